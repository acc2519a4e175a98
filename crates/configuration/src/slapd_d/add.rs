//! Adding entries to a slapd.d: what `slapadd -n0` does, again and again.

use std::path::Path;
use std::sync::Arc;

use larix_proto::dn::Dn;

use super::super::builder::directive::Cardinality;
use super::super::diagnostic::{ConfigError, Origin};
use super::super::directives::{self};
use super::super::entries::{EntryName, Role, from_entries, repeats, split_number};
use super::super::entry::{ConfigAttribute, ConfigEntry};
use super::super::model::{Config, Earlier, Source};
use super::{Stamp, read, read_entries, write_entries};

/// Adds entries to a directory, which is made if it is not there. `{n}` is put in where it is missing, and one that would
/// leave a gap becomes the next one; what every configuration has (cn=schema, the frontend, the config database) is added when it is not given.
///
/// Nothing is written unless all entries together are a valid configuration. Gives that configuration.
///
/// # Errors
/// Names the entry that is there already, has no parent or is not valid.
pub fn add_entries(
    directory: &Path,
    new: Vec<ConfigEntry>,
    stamp: &Stamp<'_>,
) -> Result<Config, ConfigError> {
    let (config, written) = merge_entries(directory, new, stamp)?;
    write_entries(directory, &written, stamp)?;
    Ok(config)
}

/// The same without writing: the configuration as it would be, and the entries that would be written.
///
/// # Errors
/// As [`add_entries`].
pub fn merge_entries(
    directory: &Path,
    new: Vec<ConfigEntry>,
    stamp: &Stamp<'_>,
) -> Result<(Config, Vec<ConfigEntry>), ConfigError> {
    let old = if directory.exists() { read_entries(directory)?.0 } else { Vec::new() };
    let mut all = Vec::with_capacity(old.len() + new.len());
    for entry in old {
        all.push((name_of(&entry)?, entry));
    }
    let first_new = all.len();
    for entry in new {
        // A dump may have it twice: it is taken as it is.
        let old = all.iter().take(first_new).map(|(_, entry)| entry);
        if let Some(text) = repeats(&entry, old) {
            return Err(ConfigError::new(Origin::BuiltIn, format!("{}: {text}", entry.dn)));
        }
        add_one(&mut all, entry)?;
    }
    for entry in common_entries() {
        let name = name_of(&entry)?;
        if !all.iter().any(|(other, _)| is_same(other, &name))
            && all.iter().any(|(other, _)| other.role == Role::Global)
        {
            all.push((name, entry));
        }
    }
    close_gaps(&mut all, first_new)?;
    let mut written: Vec<ConfigEntry> = Vec::with_capacity(all.len() - first_new);
    for (_, entry) in all.iter_mut().skip(first_new) {
        stamp.complete(entry);
        written.push(entry.clone());
    }
    let all: Vec<Arc<ConfigEntry>> = all.into_iter().map(|(_, entry)| Arc::new(entry)).collect();
    let source = Source::Directory(directory.to_owned());
    let config = match from_entries(all.clone(), source.clone(), Earlier::Nothing) {
        // It may be about what is there already, with which a server starts.
        Err(refused) if first_new > 0 => match read(directory) {
            Ok(before) => from_entries(all, source, Earlier::Before(&before))?,
            Err(_) => return Err(refused),
        },
        config => config?,
    };
    Ok((config, written))
}

fn add_one(all: &mut Vec<(EntryName, ConfigEntry)>, mut entry: ConfigEntry) -> Result<(), ConfigError> {
    let mut name = name_of(&entry)?;
    let fault = |entry: &ConfigEntry, message: &str| {
        ConfigError::new(Origin::BuiltIn, format!("{}: {message}", entry.dn))
    };
    if name.role != Role::Global && !all.iter().any(|(other, _)| other.is_parent_of(&name)) {
        return Err(fault(&entry, "the entry above it is missing").with_help("add it first"));
    }
    let siblings = all.iter().filter(|(other, _)| is_sibling(other, &name)).count();
    let base = i32::from(matches!(name.role, Role::Database(_)));
    let numbered = matches!(
        name.role,
        Role::Module
            | Role::Schema(_)
            | Role::Backend(_)
            | Role::BalancerTier(_)
            | Role::BalancerBackend(_)
            | Role::Database(_)
            | Role::Overlay(_)
    );
    if numbered && name.number.is_none() {
        let next = i32::try_from(siblings).unwrap_or(i32::MAX).saturating_add(base);
        let number = name.role.fixed_number().unwrap_or(next);
        renumber(&mut entry, number);
        name = name_of(&entry)?;
    }
    if all.iter().any(|(other, _)| is_same(other, &name)) {
        return Err(fault(&entry, "there is such an entry already"));
    }
    number_values(&mut entry);
    all.push((name, entry));
    Ok(())
}

/// Gives new entries, and what is below them, the next number where theirs leaves a gap behind their siblings.
fn close_gaps(all: &mut [(EntryName, ConfigEntry)], first_new: usize) -> Result<(), ConfigError> {
    let mut numbered: Vec<usize> = (0..all.len()).collect();
    // Superiors first: what is below them is renamed with them.
    let order = |at: &usize| all.get(*at).map(|(name, _)| (name.path.len(), name.number));
    numbered.sort_by_key(order);
    for (place, at) in numbered.iter().enumerate() {
        let Some((name, _)) = all.get(*at) else { continue };
        let Some(number) = name.number.filter(|_| *at >= first_new && is_counted(name)) else { continue };
        let siblings = numbered.iter().take(place).filter_map(|other| all.get(*other));
        let before =
            siblings.filter(|(other, _)| is_sibling(other, name)).filter_map(|(other, _)| other.number);
        let next = before.max().unwrap_or_else(|| i32::from(matches!(name.role, Role::Database(_))) - 1) + 1;
        if next < number {
            rename(all, *at, next)?;
        }
    }
    Ok(())
}

/// Whether its number is its place among its siblings.
fn is_counted(name: &EntryName) -> bool {
    match &name.role {
        Role::Database(_) => name.role.fixed_number().is_none(),
        Role::Module
        | Role::Schema(_)
        | Role::Backend(_)
        | Role::BalancerTier(_)
        | Role::BalancerBackend(_)
        | Role::Overlay(_) => true,
        _ => false,
    }
}

/// Gives an entry another number, and what is below it the new name.
fn rename(all: &mut [(EntryName, ConfigEntry)], at: usize, number: i32) -> Result<(), ConfigError> {
    let Some((name, entry)) = all.get_mut(at) else { return Ok(()) };
    let old = name.clone();
    renumber(entry, number);
    *name = name_of(entry)?;
    let above = entry.dn.clone();
    for (name, entry) in all.iter_mut().filter(|(name, _)| name.path.len() > old.path.len()) {
        if name.path.get(..old.path.len()) == Some(old.path.as_slice()) {
            let dn = entry.dn.clone();
            let rdns = Dn::parse(&dn)
                .map_err(|error| ConfigError::new(Origin::BuiltIn, format!("{dn}: {error}")))?;
            let own = rdns.rdns().iter().take(name.path.len() - old.path.len());
            let own: Vec<String> = own.map(ToString::to_string).chain([above.clone()]).collect();
            entry.dn = own.join(",");
            *name = name_of(entry)?;
        }
    }
    Ok(())
}

fn name_of(entry: &ConfigEntry) -> Result<EntryName, ConfigError> {
    EntryName::parse(&entry.dn)
        .map_err(|why| ConfigError::new(Origin::BuiltIn, format!("{}: {why}", entry.dn)))
}

/// Whether two entries have the same place: the same DN, or the same `{n}` among their siblings.
fn is_same(one: &EntryName, other: &EntryName) -> bool {
    one.path == other.path || (is_sibling(one, other) && one.number.is_some() && one.number == other.number)
}

/// Whether two entries are counted together. The frontend and the config database have numbers of their own.
fn is_sibling(one: &EntryName, other: &EntryName) -> bool {
    let fixed = |name: &EntryName| name.role.fixed_number().is_some();
    std::mem::discriminant(&one.role) == std::mem::discriminant(&other.role)
        && one.path.len() == other.path.len()
        && one.path.iter().rev().skip(1).eq(other.path.iter().rev().skip(1))
        && fixed(one) == fixed(other)
}

/// Puts `{n}` into the RDN and its attribute.
fn renumber(entry: &mut ConfigEntry, number: i32) {
    let Some((attribute, rest)) = entry.dn.split_once('=') else { return };
    let (leaf, parent) = rest.split_once(',').unwrap_or((rest, ""));
    let attribute = attribute.trim().to_owned();
    let leaf = split_number(leaf.trim()).1;
    let leaf = leaf.split_once('{').map_or(leaf, |(name, _)| name);
    // cn=module carries its number behind.
    let leaf = match leaf {
        module if module.eq_ignore_ascii_case("module") => format!("{module}{{{number}}}"),
        name => format!("{{{number}}}{name}"),
    };
    entry.dn = format!("{attribute}={leaf},{parent}");
    entry.attributes.retain(|other| !other.description.eq_ignore_ascii_case(&attribute));
    let at = usize::from(!entry.attributes.is_empty());
    entry.attributes.insert(at, ConfigAttribute::new(attribute, vec![leaf.into_bytes()]));
}

/// Puts `{n}` before values whose order counts.
fn number_values(entry: &mut ConfigEntry) {
    for attribute in &mut entry.attributes {
        let ordered = directives::all().any(|directive| {
            directive.cardinality == Cardinality::Ordered
                && directive.attribute.eq_ignore_ascii_case(&attribute.description)
        });
        let has_number = |value: &Vec<u8>| {
            let text =
                String::from_utf8_lossy(value.get(..16.min(value.len())).unwrap_or_default()).into_owned();
            split_number(&text).0.is_some()
        };
        if !ordered || attribute.values.iter().any(has_number) {
            continue;
        }
        let numbered =
            |(number, value): (usize, &Vec<u8>)| [format!("{{{number}}}").as_bytes(), value].concat();
        attribute.values = attribute.values.iter().enumerate().map(numbered).collect();
    }
}

/// What every configuration has.
fn common_entries() -> Vec<ConfigEntry> {
    let mut schema = ConfigEntry::new("cn=schema,cn=config", &["olcSchemaConfig"]);
    schema.text("cn", "schema");
    let mut frontend =
        ConfigEntry::new("olcDatabase={-1}frontend,cn=config", &["olcDatabaseConfig", "olcFrontendConfig"]);
    frontend.text("olcDatabase", "{-1}frontend");
    let mut config = ConfigEntry::new("olcDatabase={0}config,cn=config", &["olcDatabaseConfig"]);
    config.text("olcDatabase", "{0}config");
    config.text("olcRootDN", "cn=config");
    vec![schema, frontend, config]
}
