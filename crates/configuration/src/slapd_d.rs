//! slapd.d: one LDIF file an entry, in directories that follow the tree.
//!
//! `cn=config.ldif` holds the top; an entry's children are files in the directory named like its own file without
//! `.ldif`. A file starts with two comment lines, the second with the CRC-32 of what follows; its `dn:` is the RDN alone.

mod add;
mod commit;
#[cfg(test)]
mod commit_tests;
mod disk;
mod in_use;
mod journal;
#[cfg(test)]
mod journal_tests;
mod places;
mod splice;
mod structural;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_engine::csn::CsnGenerator;
use larix_engine::time::{Clock, RandomSource, new_uuid};
use larix_proto::ldif::{Body, LdifAttribute, LdifError, Reader, Record, Writer};

use super::diagnostic::{ConfigError, ConfigFault, Notes, Origin};
use super::entries::{EntryName, from_entries, kind_of, split_number, takes_word};
use super::entry::{ConfigAttribute, ConfigEntry};
use super::line;
use super::model::{Config, Earlier, Source};
use super::text::{Piece, Text, crc32};

pub use add::{add_entries, merge_entries};
use commit::files_of;
pub use commit::{FileChanges, files_of_entries};
pub use in_use::{InUse, User, server_of};
pub use journal::{Keeper, RefusedJournal};
use places::{dn_of, file_of, held_twice, superior_of};
use structural::structural_class;

const HEADER: &str = "# AUTO-GENERATED FILE - DO NOT EDIT!! Use ldapmodify.\n# CRC32 ";
/// The file of the topmost entry.
const TOP: &str = "cn=config.ldif";
/// Deeper than any entry under cn=config.
const MAX_DEPTH: usize = 8;
/// What has limits of sizes and times.
const LIMITS: [&str; 3] = ["olcSizeLimit", "olcTimeLimit", "olcLimits"];
/// Values of an attribute that are written piece by piece.
const MANY: usize = 256;

/// Reads a whole configuration.
pub(super) fn read(directory: &Path) -> Result<Config, ConfigError> {
    if directory.exists() && !directory.is_dir() {
        let message = format!("`{}` is no directory", directory.display());
        return Err(ConfigError::new(Origin::BuiltIn, message)
            .with_help("name a slapd.d directory; a slapd.conf is given with -f"));
    }
    let (all, notes) = read_entries(directory)?;
    if all.is_empty() {
        let below = directory.join("slapd.d");
        let help = if exists_in(&below) {
            format!("name the directory `{}`", below.display())
        } else {
            "fill it with `slaptest -f slapd.conf -F` or `slapadd -n0 -F`".to_owned()
        };
        return Err(ConfigError::new(
            Origin::BuiltIn,
            format!("`{}` holds no cn=config.ldif", directory.display()),
        )
        .with_help(help));
    }
    let source = Source::Directory(directory.to_owned());
    let mut config = from_entries(all.into_iter().map(Arc::new).collect(), source, Earlier::Kept)
        .map_err(|error| with_files(error, directory))?;
    for note in &notes {
        config.notes.push(note.origin.clone(), note.text.clone());
    }
    Ok(config)
}

/// The error with the file of each entry at fault.
fn with_files(mut error: ConfigError, directory: &Path) -> ConfigError {
    name_file(&mut error, directory);
    error.others.iter_mut().for_each(|other| name_file(other, directory));
    error
}

fn name_file(fault: &mut ConfigFault, directory: &Path) {
    if let Origin::Value { dn, .. } = &fault.origin {
        let file = file_of(dn).ok().map(|(file, _)| directory.join(file));
        fault.file = file.filter(|file| file.exists());
    }
}

/// Reads a configuration once more, if its files are not those any more that it was read from; says whether they are not.
fn read_again(config: &mut Config, directory: &Path) -> Result<bool, ConfigError> {
    // One that was made of no files.
    let Some(before) = &config.read_entries else { return Ok(false) };
    let mut now: Vec<Arc<ConfigEntry>> = read_entries(directory)?.0.into_iter().map(Arc::new).collect();
    now.iter_mut().for_each(ConfigEntry::name_itself);
    if now == *before {
        return Ok(false);
    }
    *config = read(directory)?;
    Ok(true)
}

/// Whether there is a configuration in this directory, be it one that a journal alone holds yet.
pub fn exists_in(directory: &Path) -> bool {
    directory.join(TOP).exists() || directory.join(journal::JOURNAL).exists()
}

/// Every entry of a slapd.d as it is stored, parents before children; none when there is no cn=config.ldif. What an earlier Larix took
/// and slapd does not is as slapd has it.
///
/// # Errors
/// Names the file that cannot be read or parsed.
pub fn read_entries(directory: &Path) -> Result<(Vec<ConfigEntry>, Notes), ConfigError> {
    let mut notes = Notes::default();
    let files = files_of(directory, MAX_DEPTH)?;
    note_orphans(directory, &files, &mut notes);
    let mut all = entries_of(directory, files, &mut notes)?;
    mend_values(&mut all, &mut notes);
    all.iter_mut().for_each(structural::mend);
    let mut named: Vec<(EntryName, ConfigEntry)> = Vec::with_capacity(all.len());
    for entry in all {
        let name = EntryName::parse(&entry.dn).map_err(|why| {
            ConfigError::new(Origin::BuiltIn, format!("`{}` cannot be under cn=config: {why}", entry.dn))
        })?;
        named.push((name, entry));
    }
    named.sort_by_cached_key(|(name, _)| name.order());
    Ok((named.into_iter().map(|(_, entry)| entry).collect(), notes))
}

/// Mends values that an earlier Larix took and slapd refuses, where they mean one thing: the server starts with them, as it did.
fn mend_values(all: &mut [ConfigEntry], notes: &mut Notes) {
    for entry in all {
        let kind = kind_of(entry);
        for attribute in &mut entry.attributes {
            let name = attribute.description.as_str();
            let is_rule = name.eq_ignore_ascii_case("olcAccess");
            let is_limit = LIMITS.iter().any(|limit| name.eq_ignore_ascii_case(limit));
            let mend: fn(&[u8]) -> Option<Vec<u8>> = match (is_rule, is_limit) {
                (true, _) => without_keyword,
                (_, true) => within_limits,
                _ => in_quotes,
            };
            let is_wrong = attribute.values.iter().any(|value| mend(value).is_some());
            if !is_wrong || !is_rule && !is_limit && !takes_word(kind.as_deref(), name) {
                continue;
            }
            let what = match (is_rule, is_limit) {
                (true, _) => "begins with `access`, which is left out",
                (_, true) => "has a limit above 2147483647, which is read as that",
                _ => "has blanks and no quotes, and is read as one word",
            };
            let origin = Origin::Value { dn: Arc::from(entry.dn.as_str()), attribute: name.to_owned() };
            notes.push(origin, format!("{what}: the next change of this entry mends it"));
            let mended = |value: &Vec<u8>| mend(value).unwrap_or_else(|| value.clone());
            attribute.values = attribute.values.iter().map(mended).collect();
        }
    }
}

/// A value with blanks that does not begin with a quote, in quotes.
fn in_quotes(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let is_bare = !text.starts_with('"') && text.contains(line::is_space);
    is_bare.then(|| line::quoted(text).into_bytes())
}

/// A rule that begins with the keyword of slapd.conf, without it.
fn without_keyword(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let rule = split_number(text).1;
    let number = text.strip_suffix(rule)?;
    let (keyword, rest) = rule.trim_start().split_once(line::is_space)?;
    let has_keyword = keyword.eq_ignore_ascii_case("access");
    has_keyword.then(|| format!("{number}{}", rest.trim_start()).into_bytes())
}

/// A value whose limits are above 2147483647, with that number: no client can ask for more.
fn within_limits(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok()?;
    let is_above = |number: &str| {
        let number = line::c_integer(number).and_then(|number| u32::try_from(number).ok());
        number.is_some_and(|number| i32::try_from(number).is_err())
    };
    let is_limit = |key: &str| {
        let kind = key.get(..4).unwrap_or_default();
        kind.eq_ignore_ascii_case("size") || kind.eq_ignore_ascii_case("time")
    };
    let (mut mended, mut is_mended) = (String::new(), false);
    for piece in text.split_inclusive(line::is_space) {
        let word = piece.trim_end_matches(line::is_space);
        let number = match word.split_once('=') {
            Some((key, number)) if is_limit(key) => number,
            Some(_) => "",
            None => word,
        };
        match piece.split_once(number).filter(|_| is_above(number)) {
            Some((before, after)) => {
                mended.push_str(&format!("{before}{}{after}", i32::MAX));
                is_mended = true;
            }
            None => mended.push_str(piece),
        }
    }
    is_mended.then(|| mended.into_bytes())
}

/// Notes folders with files of entries whose superior has no file: nothing of them is read.
fn note_orphans(directory: &Path, files: &BTreeMap<PathBuf, Vec<u8>>, notes: &mut Notes) {
    let names = |folder: &Path| -> Vec<PathBuf> {
        let listing = std::fs::read_dir(directory.join(folder)).into_iter().flatten().flatten();
        listing.map(|child| folder.join(child.file_name())).collect()
    };
    let is_ldif = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ldif");
    for superior in files.keys().map(|file| file.with_extension("")) {
        for folder in names(&superior) {
            let mut file = folder.clone().into_os_string();
            file.push(".ldif");
            let file = PathBuf::from(file);
            if !is_ldif(&folder) && !files.contains_key(&file) && names(&folder).iter().any(is_ldif) {
                let origin = Origin::Line { file: Arc::new(directory.join(&file)), line: 1 };
                let text =
                    "warning: there is no such file: the entries in the folder of its name are not read";
                notes.push(origin, text);
            }
        }
    }
}

/// The entries that files hold, superiors first. A file whose superior's is missing belongs to nothing.
fn entries_of(
    directory: &Path,
    files: BTreeMap<PathBuf, Vec<u8>>,
    notes: &mut Notes,
) -> Result<Vec<ConfigEntry>, ConfigError> {
    let mut by_depth: Vec<(PathBuf, Vec<u8>)> = files.into_iter().collect();
    by_depth.sort_by_key(|(path, _)| path.components().count());
    let mut dns: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut places: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut all = Vec::with_capacity(by_depth.len());
    for (path, bytes) in by_depth {
        let Some(superior) = superior_of(&path, &dns) else { continue };
        let entry = entry_of(&directory.join(&path), &bytes, superior, notes)?;
        dns.insert(path.with_extension(""), entry.dn.clone());
        if let Ok((place, _)) = file_of(&entry.dn)
            && let Some(other) = places.insert(place, path.clone())
        {
            return Err(held_twice(directory, &entry.dn, [&other, &path]));
        }
        all.push(entry);
    }
    Ok(all)
}

/// The entry in one file.
fn entry_of(
    file: &Path,
    bytes: &[u8],
    superior: &str,
    notes: &mut Notes,
) -> Result<ConfigEntry, ConfigError> {
    let origin = Origin::Line { file: Arc::new(file.to_owned()), line: 1 };
    if !checksum_fits(bytes) {
        notes.push(origin.clone(), "was edited by hand: its checksum does not fit");
    }
    let record = Reader::new(bytes).read_record().map_err(|error| at_line(file, &error))?;
    let Some(Record { dn: rdn, body: Body::Content(attributes), .. }) = record else {
        return Err(ConfigError::new(origin, "holds no entry"));
    };
    Ok(ConfigEntry::from_ldif(dn_of(rdn, superior), attributes))
}

/// A fault of LDIF, at its line of the file.
fn at_line(file: &Path, error: &LdifError) -> ConfigError {
    let line = u32::try_from(error.line).unwrap_or(u32::MAX);
    ConfigError::new(Origin::Line { file: Arc::new(file.to_owned()), line }, error.fault.to_string())
}

/// Whether the checksum in the second line is that of the rest; a file without one passes.
pub fn checksum_fits(bytes: &[u8]) -> bool {
    let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
    let (_, second, rest) = (lines.next(), lines.next(), lines.next());
    let stated = second
        .and_then(|line| line.strip_prefix(b"# CRC32 "))
        .and_then(|hex| std::str::from_utf8(hex).ok())
        .and_then(|hex| u32::from_str_radix(hex.trim(), 16).ok());
    match (stated, rest) {
        (Some(stated), Some(rest)) => stated == crc32(rest),
        _ => true,
    }
}

/// What entries get that have no operational attributes yet.
#[derive(Debug)]
pub struct Stamp<'a> {
    pub clock: &'a dyn Clock,
    pub random: &'a dyn RandomSource,
}

impl Stamp<'_> {
    /// What it completes.
    pub const ATTRIBUTES: [&'static str; 7] = [
        "structuralObjectClass",
        "entryUUID",
        "creatorsName",
        "createTimestamp",
        "entryCSN",
        "modifiersName",
        "modifyTimestamp",
    ];

    /// As [`Self::complete`]; an entry that lacks nothing is not touched.
    pub(super) fn complete_shared(&self, entry: &mut Arc<ConfigEntry>) {
        if Self::ATTRIBUTES.iter().any(|name| entry.values(name).is_empty()) {
            self.complete(Arc::make_mut(entry));
        }
    }

    /// Adds the operational attributes an entry lacks.
    pub fn complete(&self, entry: &mut ConfigEntry) {
        let now = self.clock.now();
        let time = now.generalized();
        let csn = CsnGenerator::new(0).next(now).to_string();
        let uuid = new_uuid(now, self.random).to_string();
        let defaults: [(&str, Vec<u8>); 7] = [
            ("structuralObjectClass", structural_class(entry)),
            ("entryUUID", uuid.into_bytes()),
            ("creatorsName", b"cn=config".to_vec()),
            ("createTimestamp", time.clone().into_bytes()),
            ("entryCSN", csn.into_bytes()),
            ("modifiersName", b"cn=config".to_vec()),
            ("modifyTimestamp", time.into_bytes()),
        ];
        for (description, value) in defaults {
            if entry.values(description).is_empty() {
                entry.attributes.push(ConfigAttribute::new(description, vec![value]));
            }
        }
    }
}

/// Writes entries into a directory, which is made if need be: all of them or none. Files of entries that are not given
/// stay.
///
/// # Errors
/// Names the file or directory that cannot be written.
pub fn write_entries(directory: &Path, all: &[ConfigEntry], stamp: &Stamp<'_>) -> Result<(), ConfigError> {
    let complete = |entry: &ConfigEntry| {
        let mut entry = entry.clone();
        stamp.complete(&mut entry);
        entry
    };
    FileChanges::adding(directory, &all.iter().map(complete).collect::<Vec<_>>())?.commit()
}

/// What the file of an entry holds.
pub fn file_bytes(rdn: &str, attributes: &[LdifAttribute]) -> Vec<u8> {
    let writer = writer();
    let mut body = Vec::new();
    writer.value(&mut body, "dn", rdn.as_bytes());
    writer.attributes(&mut body, attributes);
    let mut text = format!("{HEADER}{:08x}\n", crc32(&body)).into_bytes();
    text.append(&mut body);
    text
}

/// The same of an entry of cn=config.
fn file_text(rdn: &str, attributes: &[ConfigAttribute]) -> Text {
    let writer = writer();
    let mut text = Text::default();
    let mut body = Vec::new();
    writer.value(&mut body, "dn", rdn.as_bytes());
    for ConfigAttribute { description, values } in attributes {
        if values.len() < MANY {
            values.iter().for_each(|value| writer.value(&mut body, description, value));
            continue;
        }
        text.push(std::mem::take(&mut body));
        text.extend(values.pieces(description, |values| {
            let mut lines = Vec::new();
            values.iter().for_each(|value| writer.value(&mut lines, description, value));
            Piece::new(lines)
        }));
    }
    text.push(body);
    let header = format!("{HEADER}{:08x}\n", text.crc());
    text.with_header(header.into_bytes())
}

fn writer() -> Writer {
    let mut writer = Writer::default();
    writer.always_base64("olcRootPW");
    writer.always_base64("userPassword");
    writer
}

fn io_error(what: &str, path: &Path, error: &io::Error) -> ConfigError {
    let fault = ConfigError::new(Origin::BuiltIn, format!("cannot {what} `{}`: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::NotFound if path.is_relative() => {
            fault.with_help("a relative name starts at the working directory")
        }
        io::ErrorKind::PermissionDenied => match owner_above(path) {
            Some(help) => fault.with_help(help),
            None => fault,
        },
        _ => fault,
    }
}

/// Who may do what is denied at this path. What cannot be looked at stands in a directory that denies it.
fn owner_above(path: &Path) -> Option<String> {
    let looked_at = |above: &Path| std::fs::metadata(above).ok().map(|found| (above.to_owned(), found.uid()));
    let (above, owner) = path.ancestors().find_map(looked_at)?;
    Some(format!("`{}` belongs to the user {owner}: do it as that one, or as root", above.display()))
}

#[cfg(test)]
mod tests;
