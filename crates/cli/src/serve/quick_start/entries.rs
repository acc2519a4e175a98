//! The entries that a first start loads: `--ldif` and `--sample`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use larix_configuration::Config;
use larix_engine::csn::Csn;
use larix_engine::load::{self, LoadContext, LoadError, LoadOptions, RecordFault, Unobserved};
use larix_engine::password::{Hasher, Scheme};
use larix_proto::dn::{Dn, Rdn};
use larix_proto::ldif::Writer;
use larix_schema::Schema;
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::generated_password::generate_password;
use larix_store::lmdb::{DirectoryLock, LmdbOptions};
use sha1::{Digest as _, Sha1};
use uuid::Uuid;

use super::Start;
use crate::tools::flags::open_file;

/// A dozen people and three groups of them, below `@SUFFIX@`, whose own entry is `@BASE@`.
const SAMPLE: &str = include_str!("sample.ldif");

/// What a first start loaded.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) entries: u64,
    /// That of every person of the sample, in clear, the one time that it is known.
    pub(super) sample_password: Option<String>,
}

/// Is in the data directory from before a first start loads entries until the configuration is there.
const LOADING_MARK: &str = "first-start.unfinished";

/// Whose entry can be made.
const USUAL: &str = "a suffix that begins with dc=, o=, ou= or c=";
/// The line that each person of the sample has, and nobody else.
const PERSON: &str = "objectClass: inetOrgPerson";

/// Loads what the flags name into the database that is not there yet. Of several servers the first one loads it, unless another
/// one has entries; without flags that one makes the entry of the suffix, as `--base-entry` does.
///
/// # Errors
/// A file that cannot be read, an entry that is refused with its line, or entries that are there already. Nothing is loaded then.
pub(super) fn load(start: &Start<'_>, config: &Config, clock: &SystemClock) -> anyhow::Result<Loaded> {
    let Start { arguments, suffix, replicas, .. } = *start;
    if let Some(replicas) = replicas
        && (replicas.number != 1 || replicas.have_entries(suffix)?)
    {
        return Ok(Loaded::default());
    }
    if arguments.sample {
        let password = generate_password(&SystemRandom);
        let text = sample(suffix, &password)?;
        let entries = load_text(config, &mut text.as_bytes(), clock).context("cannot load the sample")?;
        let sample_password = Some(String::from_utf8_lossy(&password).into_owned());
        return Ok(Loaded { entries, sample_password });
    }
    let Some(file) = &arguments.ldif else {
        if replicas.is_none() && !arguments.base_entry {
            return Ok(Loaded::default());
        }
        let base = equal_base_entry(suffix, &config.schema, config.server_id())?;
        if base.is_none() && arguments.base_entry {
            bail!("--base-entry makes an entry for {USUAL}, not for {suffix}");
        }
        let Some(base) = base else { return Ok(Loaded::default()) };
        let entries = load_text(config, &mut base.as_bytes(), clock)
            .with_context(|| format!("cannot make the entry {suffix}"))?;
        return Ok(Loaded { entries, sample_password: None });
    };
    let opened = open_file(file)?;
    let entries = load_text(config, &mut BufReader::new(opened), clock)
        .map_err(|error| name_suffix(error, suffix))
        .with_context(|| format!("cannot load {}", file.display()))?;
    Ok(Loaded { entries, sample_password: None })
}

/// Marks a data directory without a database: what is there later was loaded by a first start.
///
/// # Errors
/// Names the file that cannot be written.
pub(super) fn begin_loading(data: &Path) -> anyhow::Result<()> {
    let mark = data.join(LOADING_MARK);
    fs::write(&mark, "").with_context(|| format!("cannot write {}", mark.display()))
}

/// Whether a first start was ended that had begun to load entries.
pub(super) fn is_loading(data: &Path) -> bool {
    data.join(LOADING_MARK).try_exists().unwrap_or(false)
}

/// What a start says that found the mark beside entries.
pub(super) fn loaded_earlier(is_sample: bool) -> String {
    let password = if is_sample { "; the password of its people was not shown: set others" } else { "" };
    format!("an earlier start loaded the entries, and was ended before it was complete{password}")
}

/// Takes the mark away. One that stays beside a configuration says nothing.
pub(super) fn end_loading(data: &Path) {
    let _ = fs::remove_file(data.join(LOADING_MARK));
}

/// Removes the database that a start has loaded which then came to nothing: the next one is a first one again, and loads the same. What
/// cannot be removed is reported by that one, as entries that exist.
pub(super) fn take_back(data: &Path) {
    if let Ok(lock) = DirectoryLock::acquire(data, &LmdbOptions::default()) {
        let _ = lock.remove_store();
    }
}

/// The file of another directory, or a part of one, is answered with what is missing.
fn name_suffix(error: anyhow::Error, suffix: &str) -> anyhow::Error {
    let Some(LoadError::Record(record)) = error.downcast_ref::<LoadError>() else { return error };
    match record.fault {
        RecordFault::OutsideSuffixes => {
            anyhow!("{error}, which has {suffix:?}: --suffix has to be the name of the topmost entry")
        }
        RecordFault::NoSuperior => anyhow!("{error}: the file has to have it, from the entry {suffix:?} on"),
        _ => error,
    }
}

/// An entry for a suffix of a kind that is usual, as lines of LDIF.
pub(super) fn base_entry(suffix: &str) -> Option<Vec<String>> {
    let dn = Dn::parse(suffix).ok()?;
    let [ava] = dn.rdns().first()?.avas() else { return None };
    let value = std::str::from_utf8(&ava.value).ok().filter(|_| !ava.hex)?;
    let mut lines = vec![ldif_line("dn", suffix)];
    match ava.attribute.to_ascii_lowercase().as_str() {
        "dc" => lines.extend([
            "objectClass: dcObject".to_owned(),
            "objectClass: organization".to_owned(),
            ldif_line("o", value),
        ]),
        "o" => lines.push("objectClass: organization".to_owned()),
        "ou" => lines.push("objectClass: organizationalUnit".to_owned()),
        "c" => lines.push("objectClass: country".to_owned()),
        _ => return None,
    }
    lines.push(ldif_line(ava.attribute, value));
    Some(lines)
}

/// A line that shows the value as it is, where LDIF can have it so.
fn ldif_line(name: &str, value: &str) -> String {
    let is_plain =
        !value.starts_with([' ', ':', '<']) && !value.ends_with(' ') && !value.contains(char::is_control);
    if is_plain {
        return format!("{name}: {value}");
    }
    let mut line = Vec::new();
    Writer::new(None).value(&mut line, name, value.as_bytes());
    String::from_utf8_lossy(line.trim_ascii_end()).into_owned()
}

/// A part of a domain, also where `dc=` was written in front of it.
fn without_type(part: &str) -> &str {
    match part.split_at_checked("dc=".len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case("dc=") => rest,
        _ => part,
    }
}

/// What a suffix says and was hardly meant: a domain in one part, or blanks between its parts.
pub(super) fn doubt(suffix: &str, data: &Path) -> Option<String> {
    let dn = Dn::parse(suffix).ok()?;
    let (part, meant) = dn.rdns().iter().flat_map(Rdn::avas).find_map(|ava| {
        let value = std::str::from_utf8(&ava.value).ok()?;
        let meant = if ava.attribute.eq_ignore_ascii_case("dc") && value.contains('.') {
            value.split('.').map(without_type).collect::<Vec<_>>().join(",dc=")
        } else if value.split(' ').skip(1).any(|word| word.contains('=')) {
            value.split_whitespace().collect::<Vec<_>>().join(",")
        } else {
            return None;
        };
        Some((format!("{}={value}", ava.attribute), format!("{}={meant}", ava.attribute)))
    })?;
    Some(format!(
        "\"{part}\" is one part of the suffix: if {meant} is meant, stop the server, remove {} and start with that",
        data.display()
    ))
}

/// The entry of the suffix as LDIF, which every server of a list makes alike: two that each made it have the same entry, not two of one
/// name. Its CSN is older than all others, so what the entry has become elsewhere counts. `None`: a suffix of another kind.
fn equal_base_entry(suffix: &str, schema: &Schema, server_id: u16) -> anyhow::Result<Option<String>> {
    let Some(mut lines) = base_entry(suffix) else { return Ok(None) };
    let normal = schema.parse_dn(suffix)?;
    // A UUID by name (RFC 9562, section 5.5).
    let digest = Sha1::new().chain_update(Uuid::NAMESPACE_X500).chain_update(normal.as_str()).finalize();
    let bytes = digest.first_chunk().copied().unwrap_or_default();
    lines.push(format!("entryUUID: {}", uuid::Builder::from_sha1_bytes(bytes).into_uuid()));
    lines.push(format!("entryCSN: {}", Csn { server_id, ..Csn::ZERO }.text()));
    Ok(Some(lines.join("\n")))
}

/// The entries as LDIF; each person has the password, under a hash of their own.
fn sample(suffix: &str, password: &[u8]) -> anyhow::Result<String> {
    let Some(base) = base_entry(suffix) else {
        bail!("--sample makes an entry for {USUAL}, not for {suffix}");
    };
    let mut text = String::with_capacity(2 * SAMPLE.len());
    for line in SAMPLE.lines() {
        text.push_str(line);
        text.push('\n');
        if line == PERSON {
            let hash = Hasher::new(Scheme::Argon2).hash(password, &SystemRandom)?;
            text.push_str(&format!("userPassword: {}\n", String::from_utf8_lossy(&hash)));
        }
    }
    Ok(text.replace("@BASE@", &base.join("\n")).replace("@SUFFIX@", suffix))
}

fn load_text(config: &Config, ldif: &mut (impl BufRead + Send), clock: &SystemClock) -> anyhow::Result<u64> {
    let found = config.databases.iter().find_map(|section| Some((section, section.kind.mdb()?)));
    let Some((section, mdb)) = found else { bail!("the configuration has no database") };
    let settings = config.engine_settings(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let context = LoadContext { schema: &config.schema, settings: &settings, clock, random: &SystemRandom };
    let options = LoadOptions {
        threads: larix_server::cores(),
        value_check: true,
        server_id: config.server_id(),
        write_context_csn: config.server_id() != 0,
        ..LoadOptions::default()
    };
    let report = load::load_directory(
        &mdb.directory,
        &LmdbOptions::default(),
        ldif,
        context,
        &options,
        &mut Unobserved,
    )?;
    Ok(report.entries)
}

#[cfg(test)]
mod tests {
    use larix_proto::ldif::Reader;
    use larix_schema::SchemaBuilder;

    use super::*;

    #[test]
    fn servers_make_the_same_entry_of_a_suffix() {
        let mut builder = SchemaBuilder::system();
        let dc = "attributetype ( 0.9.2342.19200300.100.1.25 NAME 'dc' EQUALITY caseIgnoreIA5Match \
                  SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 SINGLE-VALUE )";
        builder.add_schema_text(dc, "dc").unwrap();
        let schema = builder.build();
        let made = |suffix: &str| equal_base_entry(suffix, &schema, 1).unwrap();
        let identity = |text: String| {
            text.lines().find_map(|line| line.strip_prefix("entryUUID: ").map(str::to_owned)).unwrap()
        };
        let [one, same, other] = ["dc=Site,dc=org", "DC=site, dc=ORG", "dc=site,dc=com"]
            .map(|suffix| identity(made(suffix).unwrap()));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(Uuid::parse_str(&one).unwrap().get_version_num(), 5);
        assert_eq!(made("cn=odd"), None);
    }

    #[test]
    fn the_entry_of_a_suffix_has_the_value_that_names_it() {
        for (suffix, expected) in [
            ("dc=site,dc=org", "objectClass: dcObject|objectClass: organization|o: site|dc: site"),
            (r"o=A\, B,c=US", "objectClass: organization|o: A, B"),
            (r"o=A \2B B", "objectClass: organization|o: A + B"),
            ("ou=x;dc=org", "objectClass: organizationalUnit|ou: x"),
            (r"o=\20x", "objectClass: organization|o:: IHg="),
            ("O=Tür :", "objectClass: organization|O: Tür :"),
            ("o=:x", "objectClass: organization|o:: Ong="),
        ] {
            let lines = base_entry(suffix).unwrap_or_else(|| panic!("{suffix}"));
            assert_eq!(lines.join("|"), format!("dn: {suffix}|{expected}"));
        }
        // Of two values, none is the first.
        for suffix in ["dc=a+o=b", "cn=odd", "dc=#040161", ""] {
            assert_eq!(base_entry(suffix), None, "{suffix}");
        }
    }

    #[test]
    fn a_suffix_that_was_hardly_meant_is_noted() {
        let doubt = |suffix: &str| doubt(suffix, Path::new("/d"));
        for (suffix, part, meant) in [
            ("dc=site.org", "dc=site.org", "dc=site,dc=org"),
            ("ou=x,dc=site.org", "dc=site.org", "dc=site,dc=org"),
            ("dc=site.dc=org", "dc=site.dc=org", "dc=site,dc=org"),
            ("dc=dc.DC=org.é", "dc=dc.DC=org.é", "dc=dc,dc=org,dc=é"),
            ("dc=site  dc=org", "dc=site  dc=org", "dc=site,dc=org"),
        ] {
            let expected = format!(
                "\"{part}\" is one part of the suffix: if {meant} is meant, stop the server, remove /d and start with that"
            );
            assert_eq!(doubt(suffix), Some(expected), "{suffix}");
        }
        for suffix in ["dc=site,dc=org", "o=Example Inc.", "o=a=b", "", "cn=odd"] {
            assert_eq!(doubt(suffix), None, "{suffix}");
        }
    }

    #[test]
    fn the_sample_is_below_the_suffix() {
        let text = sample("dc=site,dc=org", b"secret").unwrap();
        let records: Vec<_> = Reader::new(text.as_bytes()).collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 18);
        assert!(records.iter().all(|record| record.dn.ends_with("dc=site,dc=org")));
        let hashes: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("userPassword: ")).collect();
        assert_eq!(hashes.len(), 12);
        assert!(hashes.iter().all(|hash| hash.starts_with("{ARGON2}$argon2id$")), "{hashes:?}");
        let distinct: std::collections::BTreeSet<_> = hashes.iter().collect();
        assert_eq!(distinct.len(), 12, "a salt for each");
        assert!(
            !text.contains('@') || text.lines().all(|line| !line.contains('@') || line.starts_with("mail:"))
        );
        assert!(sample("cn=odd", b"secret").is_err());
    }
}
