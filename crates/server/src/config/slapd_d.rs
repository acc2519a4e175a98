//! slapd.d: one LDIF file an entry, in directories that follow the tree.
//!
//! `cn=config.ldif` holds the top; an entry's children are files in the directory named like its own file without
//! `.ldif`. A file starts with two comment lines, the second with the CRC-32 of what follows; its `dn:` is the RDN alone.

mod add;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use larix_engine::csn::CsnGenerator;
use larix_engine::time::{Clock, RandomSource, new_uuid};
use larix_proto::ldif::{Body, LdifAttribute, Reader, Record, Writer};

use super::diagnostic::{ConfigError, Notes, Origin};
use super::entries::{ConfigEntry, EntryName, from_entries};
use super::model::{Config, Source};

pub use add::{add_entries, merge_entries};

const HEADER: &str = "# AUTO-GENERATED FILE - DO NOT EDIT!! Use ldapmodify.\n# CRC32 ";
/// Deeper than any entry under cn=config.
const MAX_DEPTH: usize = 8;

/// Reads a whole configuration.
pub(super) fn read(directory: &Path) -> Result<Config, ConfigError> {
    let (all, notes) = read_entries(directory)?;
    if all.is_empty() {
        return Err(ConfigError::new(
            Origin::BuiltIn,
            format!("`{}` holds no cn=config.ldif", directory.display()),
        )
        .with_help("fill it with `slaptest -f slapd.conf -F` or `slapadd -n0 -F`"));
    }
    let mut config = from_entries(all, Source::Directory(directory.to_owned()))?;
    for note in &notes {
        config.notes.push(note.origin.clone(), note.text.clone());
    }
    Ok(config)
}

/// Every entry of a slapd.d as it is stored, parents before children; none when there is no cn=config.ldif.
///
/// # Errors
/// Names the file that cannot be read or parsed.
pub fn read_entries(directory: &Path) -> Result<(Vec<ConfigEntry>, Notes), ConfigError> {
    let mut all = Vec::new();
    let mut notes = Notes::default();
    let listing = fs::read_dir(directory).map_err(|error| io_error("read", directory, &error))?;
    drop(listing);
    let top = directory.join("cn=config.ldif");
    if top.exists() {
        read_tree(&top, "", 0, &mut all, &mut notes)?;
    }
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

fn read_tree(
    file: &Path,
    parent: &str,
    depth: usize,
    all: &mut Vec<ConfigEntry>,
    notes: &mut Notes,
) -> Result<(), ConfigError> {
    let dn = read_file(file, parent, all, notes)?;
    let below = file.with_extension("");
    if depth >= MAX_DEPTH || !below.is_dir() {
        return Ok(());
    }
    let listing = fs::read_dir(&below).map_err(|error| io_error("read", &below, &error))?;
    for child in listing {
        let path = child.map_err(|error| io_error("read", &below, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "ldif") {
            read_tree(&path, &dn, depth + 1, all, notes)?;
        }
    }
    Ok(())
}

/// Reads one file; gives the entry's DN.
fn read_file(
    file: &Path,
    parent: &str,
    all: &mut Vec<ConfigEntry>,
    notes: &mut Notes,
) -> Result<String, ConfigError> {
    let bytes = fs::read(file).map_err(|error| io_error("read", file, &error))?;
    let origin = Origin::Line { file: std::sync::Arc::new(file.to_owned()), line: 1 };
    if !checksum_fits(&bytes) {
        notes.push(origin.clone(), "was edited by hand: its checksum does not fit");
    }
    let record = Reader::new(bytes.as_slice())
        .read_record()
        .map_err(|error| ConfigError::new(origin.clone(), error.to_string()))?;
    let Some(Record { dn: rdn, body: Body::Content(attributes), .. }) = record else {
        return Err(ConfigError::new(origin, "holds no entry"));
    };
    let dn = if parent.is_empty() { rdn } else { format!("{rdn},{parent}") };
    all.push(ConfigEntry { dn: dn.clone(), attributes });
    Ok(dn)
}

/// Whether the checksum in the second line is that of the rest; a file without one passes.
fn checksum_fits(bytes: &[u8]) -> bool {
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
    /// Adds the operational attributes an entry lacks.
    pub fn complete(&self, entry: &mut ConfigEntry) {
        let now = self.clock.now();
        let time = now.generalized();
        let structural = entry.values("objectClass").last().cloned().unwrap_or_default();
        // olcFrontendConfig is auxiliary.
        let structural =
            if structural == b"olcFrontendConfig" { b"olcDatabaseConfig".to_vec() } else { structural };
        let csn = CsnGenerator::new(0).next(now).to_string();
        let uuid = new_uuid(now, self.random).to_string();
        let defaults: [(&str, Vec<u8>); 7] = [
            ("structuralObjectClass", structural),
            ("entryUUID", uuid.into_bytes()),
            ("creatorsName", b"cn=config".to_vec()),
            ("createTimestamp", time.clone().into_bytes()),
            ("entryCSN", csn.into_bytes()),
            ("modifiersName", b"cn=config".to_vec()),
            ("modifyTimestamp", time.into_bytes()),
        ];
        for (description, value) in defaults {
            if entry.values(description).is_empty() {
                entry
                    .attributes
                    .push(LdifAttribute { description: description.to_owned(), values: vec![value] });
            }
        }
    }
}

/// Writes entries into a directory, which is made if need be. Files of entries that are not given stay.
///
/// # Errors
/// Names the file or directory that cannot be written.
pub fn write_entries(directory: &Path, all: &[ConfigEntry], stamp: &Stamp<'_>) -> Result<(), ConfigError> {
    make_directory(directory)?;
    for entry in all {
        let mut entry = entry.clone();
        stamp.complete(&mut entry);
        let (file, rdn) = file_of(directory, &entry.dn)?;
        if let Some(parent) = file.parent() {
            make_directory(parent)?;
        }
        write_file(&file, &rdn, &entry.attributes)?;
    }
    Ok(())
}

/// The file an entry lives in, and its RDN as written.
fn file_of(directory: &Path, dn: &str) -> Result<(PathBuf, String), ConfigError> {
    let bad =
        |why: String| ConfigError::new(Origin::BuiltIn, format!("`{dn}` has no place in a slapd.d: {why}"));
    let parsed = larix_proto::dn::Dn::parse(dn).map_err(|error| bad(error.to_string()))?;
    let mut file = directory.to_owned();
    let mut rdns = Vec::new();
    for rdn in parsed.rdns().iter().rev() {
        let text = rdn.to_string();
        if text.contains(['/', '\0']) {
            return Err(bad("an RDN cannot be a file name".to_owned()));
        }
        file.push(&text);
        rdns.push(text);
    }
    let rdn = rdns.pop().ok_or_else(|| bad("it is empty".to_owned()))?;
    file.set_file_name(format!("{rdn}.ldif"));
    Ok((file, rdn))
}

/// Writes a file beside the old one and puts it in its place.
fn write_file(file: &Path, rdn: &str, attributes: &[LdifAttribute]) -> Result<(), ConfigError> {
    let mut writer = Writer::default();
    writer.always_base64("olcRootPW");
    writer.always_base64("userPassword");
    let mut body = Vec::new();
    writer.value(&mut body, "dn", rdn.as_bytes());
    writer.attributes(&mut body, attributes);
    let mut text = format!("{HEADER}{:08x}\n", crc32(&body)).into_bytes();
    text.append(&mut body);
    let fresh = file.with_extension("ldif.new");
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut out| out.write_all(&text).and_then(|()| out.sync_all()))
        .and_then(|()| fs::rename(&fresh, file));
    written.map_err(|error| io_error("write", file, &error))
}

fn make_directory(directory: &Path) -> Result<(), ConfigError> {
    if directory.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(directory)
        .map_err(|error| io_error("make", directory, &error))
}

fn io_error(what: &str, path: &Path, error: &std::io::Error) -> ConfigError {
    ConfigError::new(Origin::BuiltIn, format!("cannot {what} `{}`: {error}", path.display()))
}

/// CRC-32 as in ISO 3309 and zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert!(checksum_fits(b"# x\n# CRC32 cbf43926\n123456789"));
        assert!(!checksum_fits(b"# x\n# CRC32 cbf43927\n123456789"));
        assert!(checksum_fits(b"dn: cn=config\n"));
    }
}
