//! The manifest of a backup: its contents and origin.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use larix_configuration::{Config, Database};
use larix_engine::csn::Csn;
use larix_engine::log::LogKey;
use larix_engine::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BackupError, Pace, hexadecimal, write_private};

/// The manifest's own format. 1 knew no increments.
const FORMAT: u32 = 2;
const FORMAT_OLDEST: u32 = 1;

const CHUNK: usize = 1 << 20;
/// What stands in the place of a manifest's checksum while that is computed.
const BLANK: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// `backup.json` or `increment.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub(super) format: u32,
    /// The version that made it.
    pub larix: String,
    /// Generalized time (RFC 4517 section 3.3.13), when the last database was copied.
    pub made_at: String,
    /// Generalized time to the microsecond: every change up to it is in the backup.
    #[serde(default)]
    pub covers: String,
    /// Of an increment: the SHA-256 of the manifest before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) previous: Option<String>,
    pub(super) configuration: StoredFile,
    pub databases: Vec<DatabaseBackup>,
    /// The SHA-256 of the manifest's bytes, with [`BLANK`] in this place. Manifests of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

/// One database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseBackup {
    /// Its naming contexts, as configured.
    pub suffixes: Vec<String>,
    pub file: StoredFile,
    /// Of a copy: entries; of an increment: changes.
    pub entries: u64,
    /// The state of replication in it, one for each server id.
    pub context_csn: Vec<String>,
    /// Which history its change log tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<String>,
    /// The last change of each server that is in it.
    #[serde(default)]
    pub(super) positions: Vec<Position>,
    /// The SHA-256 of the last of these changes, as its record is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_record: Option<String>,
}

/// The place of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) server_id: u16,
    pub(super) sequence: u64,
}

impl From<LogKey> for Position {
    fn from(LogKey { server_id, sequence }: LogKey) -> Self {
        Self { server_id, sequence }
    }
}

/// A file of the backup.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredFile {
    /// Below the directory of the manifest.
    pub path: PathBuf,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

impl DatabaseBackup {
    /// For messages.
    pub fn name(&self) -> String {
        self.suffixes.join(", ")
    }

    /// The section of the configuration that has one of its suffixes.
    pub fn section<'c>(&self, config: &'c Config) -> Option<&'c Database> {
        let suffixes: Vec<_> =
            self.suffixes.iter().filter_map(|text| config.schema.parse_dn(text).ok()).collect();
        let serves =
            |database: &&Database| database.suffixes.iter().any(|own| suffixes.contains(&own.normal));
        config.databases.iter().find(serves)
    }

    pub(super) fn position(&self, server_id: u16) -> u64 {
        let own = self.positions.iter().find(|position| position.server_id == server_id);
        own.map_or(0, |position| position.sequence)
    }

    /// The last change of all servers that is in it.
    pub(super) fn last_position(&self) -> Option<LogKey> {
        let last = self.positions.iter().max_by_key(|position| position.sequence)?;
        Some(LogKey { server_id: last.server_id, sequence: last.sequence })
    }

    /// The last change in it.
    pub(super) fn last_csn(&self) -> Option<Csn> {
        self.csns().max()
    }

    /// The last change in it that its server made: all that this server changed before is in it, too. What another server changed says
    /// nothing of the kind, since its clock may be ahead.
    pub(super) fn last_own_csn(&self) -> Option<Csn> {
        let own = self.last_position()?.server_id;
        self.csns().find(|csn| csn.server_id == own)
    }

    fn csns(&self) -> impl Iterator<Item = Csn> {
        self.context_csn.iter().filter_map(|csn| csn.parse().ok())
    }
}

impl StoredFile {
    /// Describes bytes that stand at `path`.
    pub(super) fn of_bytes(path: impl Into<PathBuf>, bytes: &[u8]) -> Self {
        Self { path: path.into(), bytes: bytes.len() as u64, sha256: hexadecimal(&Sha256::digest(bytes)) }
    }

    /// Whether the file is what it was when the backup was made; each chunk is handed over on the way.
    ///
    /// # Errors
    /// Names the file; those of `chunk` as they are.
    pub(super) fn verify(
        &self,
        directory: &Path,
        pace: &mut Pace<'_>,
        mut chunk: impl FnMut(&[u8]) -> Result<(), BackupError>,
    ) -> Result<(), BackupError> {
        let path = directory.join(&self.path);
        let mut file = File::open(&path).map_err(BackupError::io("read", &path))?;
        pace.begin(path.display().to_string(), self.bytes);
        let mut hash = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            let count = file.read(&mut buffer).map_err(BackupError::io("read", &path))?;
            let read = buffer.get(..count).unwrap_or(&[]);
            if read.is_empty() {
                break;
            }
            hash.update(read);
            chunk(read)?;
            bytes += count as u64;
            pace.advance(count as u64)?;
        }
        if bytes != self.bytes {
            let expected = self.bytes;
            let what = format!("has {bytes} bytes where the manifest says {expected}: it was cut or changed");
            return Err(BackupError::damaged(&path, what));
        }
        let sha256 = hexadecimal(&hash.finalize());
        if sha256 != self.sha256 {
            let what = format!("is not what it was when the backup was made: its SHA-256 is {sha256}");
            return Err(BackupError::damaged(&path, what));
        }
        Ok(())
    }
}

impl Manifest {
    pub(super) fn new(
        made_at: Timestamp,
        covers: Timestamp,
        configuration: StoredFile,
        databases: Vec<DatabaseBackup>,
    ) -> Self {
        Self {
            format: FORMAT,
            larix: env!("CARGO_PKG_VERSION").to_owned(),
            made_at: made_at.generalized(),
            covers: covers.generalized_micros(),
            previous: None,
            configuration,
            databases,
            checksum: None,
        }
    }

    /// Up to which moment every change is in it.
    pub(crate) fn covers(&self) -> Option<Timestamp> {
        Timestamp::parse_generalized(&self.covers).or_else(|| {
            // Format 1 did not say: the last change in it is certain.
            self.databases.iter().filter_map(DatabaseBackup::last_csn).max().map(|csn| csn.time)
        })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let blank = Self { checksum: Some(BLANK.to_owned()), ..self.clone() };
        // Texts, numbers and lists of them always have a form in JSON.
        let mut text = serde_json::to_string_pretty(&blank).unwrap_or_default();
        text.push('\n');
        let checksum = checksum(text.as_bytes(), BLANK).unwrap_or_default();
        let whole = text.rsplit_once(BLANK).map(|(before, behind)| format!("{before}{checksum}{behind}"));
        whole.unwrap_or(text).into_bytes()
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), BackupError> {
        write_private(path, &self.to_bytes())
    }

    /// Reads a manifest; `None` when there is none. With it comes its SHA-256.
    pub(super) fn read(path: &Path) -> Result<Option<(Self, String)>, BackupError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BackupError::io("read", path)(error)),
        };
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| BackupError::damaged(path, format!("is damaged: {error}")))?;
        if !(FORMAT_OLDEST..=FORMAT).contains(&manifest.format) {
            let (found, larix) = (manifest.format, &manifest.larix);
            let what = format!(
                "has format {found}, made by Larix {larix}; this version reads {FORMAT_OLDEST} to {FORMAT}"
            );
            return Err(BackupError::damaged(path, what));
        }
        if let Some(own) = &manifest.checksum
            && checksum(&text, own).as_ref() != Some(own)
        {
            let what = "is damaged: it is not what it was when the backup was made, by its checksum";
            return Err(BackupError::damaged(path, what));
        }
        let escapes = |file: &StoredFile| {
            !file.path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let files = manifest.databases.iter().map(|database| &database.file);
        if files.chain([&manifest.configuration]).any(escapes) {
            return Err(BackupError::damaged(path, "names a file outside of the backup"));
        }
        Ok(Some((manifest, hexadecimal(&Sha256::digest(&text)))))
    }
}

/// Of a manifest's bytes that have `own` as their checksum.
fn checksum(text: &[u8], own: &str) -> Option<String> {
    let (before, behind) = std::str::from_utf8(text).ok()?.rsplit_once(own)?;
    let hash = Sha256::new().chain_update(before).chain_update(BLANK).chain_update(behind);
    Some(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed suffix would leave the changes of its database out of a restore, without a word.
    #[test]
    fn each_changed_byte_is_noticed() {
        let database = DatabaseBackup {
            suffixes: vec!["dc=example,dc=com".to_owned()],
            file: StoredFile::of_bytes("database-1.changes", b"changes"),
            entries: 3,
            context_csn: Vec::new(),
            history: None,
            positions: vec![Position { server_id: 1, sequence: 2 }],
            last_record: None,
        };
        let configuration = StoredFile::of_bytes("config.ldif", b"text");
        let manifest = Manifest::new(Timestamp(5), Timestamp(3), configuration, vec![database]);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("increment.json");
        let is_taken = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Manifest::read(&path).is_ok()
        };
        let whole = manifest.to_bytes();
        assert!(is_taken(&whole));
        let text = String::from_utf8(whole.clone()).unwrap();
        let name = text.rfind("\"checksum\"").unwrap();
        for at in 0..name {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(!is_taken(&changed), "byte {at} of {text}");
        }
        // One of an earlier version.
        let end = text[..name].rfind(',').unwrap();
        assert!(is_taken(format!("{}\n}}\n", &text[..end]).as_bytes()));
    }
}
