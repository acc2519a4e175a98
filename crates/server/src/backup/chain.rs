//! A full backup and the increments that follow it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_configuration::Config;
use larix_engine::log::LogRecord;
use larix_engine::tables::TABLES;
use larix_engine::{Database, check};
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use super::changes::Records;
use super::manifest::{DatabaseBackup, Manifest};
use super::restore::{carry_out, check_reach, open_database};
use super::{BackupError, INCREMENT_MANIFEST, MANIFEST, Pace, Until};
use crate::clock::SystemRandom;

/// What stands in a backup's directory, by its manifests.
#[derive(Clone, Debug)]
pub struct Chain {
    pub directory: PathBuf,
    pub full: Manifest,
    digest: String,
    /// In their order.
    pub increments: Vec<Increment>,
}

/// What was changed since the backup before.
#[derive(Clone, Debug)]
pub struct Increment {
    pub directory: PathBuf,
    pub manifest: Manifest,
    digest: String,
}

/// What a chain came to when it was loaded.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub suffix: String,
    pub entries: u64,
    pub changes: u64,
    /// What `larix check` would say.
    pub findings: Vec<String>,
}

/// Most findings that are reported.
const FINDINGS_MAX: usize = 20;

pub(super) fn increment_name(number: usize) -> String {
    format!("increment-{number:06}")
}

impl Chain {
    /// Reads the manifests and sees that each increment follows the one before.
    ///
    /// # Errors
    /// Names what is missing or does not follow.
    pub fn read(directory: &Path) -> Result<Self, BackupError> {
        let manifest = Manifest::read(&directory.join(MANIFEST))?;
        let Some((full, digest)) = manifest else {
            return Err(BackupError::NotABackup { path: directory.to_owned() });
        };
        let mut chain = Self { directory: directory.to_owned(), full, digest, increments: Vec::new() };
        for number in 1..=highest_increment(directory)? {
            let own = directory.join(increment_name(number));
            let path = own.join(INCREMENT_MANIFEST);
            let Some((manifest, digest)) = Manifest::read(&path)? else {
                return Err(BackupError::damaged(
                    &path,
                    "is missing: the chain is broken, later increments are of no use",
                ));
            };
            if manifest.previous.as_deref() != Some(chain.last_digest()) {
                let what = "does not follow the backup before it: one of the two was changed or exchanged";
                return Err(BackupError::damaged(&path, what));
            }
            chain.increments.push(Increment { directory: own, manifest, digest });
        }
        Ok(chain)
    }

    /// The last manifest.
    pub fn last(&self) -> &Manifest {
        self.increments.last().map_or(&self.full, |increment| &increment.manifest)
    }

    pub(super) fn last_digest(&self) -> &str {
        self.increments.last().map_or(&self.digest, |increment| &increment.digest)
    }

    /// All files' bytes.
    pub fn bytes(&self) -> u64 {
        let manifests = self.increments.iter().map(|increment| &increment.manifest).chain([&self.full]);
        manifests.flat_map(|manifest| &manifest.databases).map(|database| database.file.bytes).sum()
    }

    /// The databases of the full backup: all (an empty suffix), or the one with this suffix.
    pub fn databases(&self, suffix: &str) -> Vec<&DatabaseBackup> {
        let has = |database: &&DatabaseBackup| {
            suffix.is_empty() || database.suffixes.iter().any(|own| own.eq_ignore_ascii_case(suffix))
        };
        self.full.databases.iter().filter(has).collect()
    }

    /// Whether a restore of these databases can go back to the moment.
    ///
    /// # Errors
    /// Says where the chain begins or ends.
    pub fn check_reach(&self, databases: &[&DatabaseBackup], until: Until) -> Result<(), BackupError> {
        databases.iter().try_for_each(|database| check_reach(self, database, until))
    }

    /// The changes of a database that the increments have.
    pub fn changes(&self, database: &DatabaseBackup) -> u64 {
        self.parts(database).map(|(_, part)| part.entries).sum()
    }

    /// The increments' parts of a database of the full backup.
    pub(super) fn parts<'c>(
        &'c self,
        database: &'c DatabaseBackup,
    ) -> impl Iterator<Item = (&'c Path, &'c DatabaseBackup)> {
        self.increments.iter().filter_map(|increment| {
            let own = increment.manifest.databases.iter().find(|own| own.suffixes == database.suffixes);
            own.map(|own| (increment.directory.as_path(), own))
        })
    }

    /// Reads everything: checksums, and that the changes of each increment follow those before.
    ///
    /// # Errors
    /// Names the file.
    pub fn verify(&self, pace: &mut Pace<'_>) -> Result<(), BackupError> {
        let full = (self.directory.as_path(), &self.full);
        let increments = self.increments.iter().map(|i| (i.directory.as_path(), &i.manifest));
        for (directory, manifest) in [full].into_iter().chain(increments) {
            manifest.configuration.verify(directory, pace, |_| Ok(()))?;
            for database in &manifest.databases {
                database.file.verify(directory, pace, |_| Ok(()))?;
            }
        }
        for database in &self.full.databases {
            let mut before = database;
            for (directory, own) in self.parts(database) {
                verify_records(directory, before, own)?;
                before = own;
            }
        }
        Ok(())
    }

    /// Restores every database into `scratch`, an empty directory, with all changes, and checks it.
    ///
    /// # Errors
    /// What keeps it from being restored; what is wrong in it is among the findings.
    pub fn load(
        &self,
        config: &Config,
        scratch: &Path,
        pace: &mut Pace<'_>,
    ) -> Result<Vec<Loaded>, BackupError> {
        let mut all = Vec::new();
        for database in &self.full.databases {
            let restored = carry_out(self, database, config, scratch, Until::End, pace)?;
            let failed = |error: &dyn std::fmt::Display| BackupError::database(scratch, error);
            let store =
                LmdbStore::open(scratch, &TABLES, &LmdbOptions::for_reading()).map_err(|e| failed(&e))?;
            let settings = open_database::settings(config, database)?;
            let opened = Database::open(store, Arc::clone(&config.schema), settings, &SystemRandom)
                .map_err(|e| failed(&e))?;
            let snapshot = opened.store().snapshot().map_err(|e| failed(&e))?;
            let view = opened.view(&snapshot).map_err(|e| failed(&e))?;
            let mut findings = Vec::new();
            let checked = check::check(&view, &mut |finding| {
                if findings.len() < FINDINGS_MAX {
                    findings.push(finding.named(&view.catalog));
                }
            });
            let checked = checked.map_err(|e| failed(&e))?;
            let (entries, changes) = (checked.entries, restored.changes);
            all.push(Loaded { suffix: database.name(), entries, changes, findings });
            drop(view);
            drop(snapshot);
            drop(opened);
            for entry in fs::read_dir(scratch).map_err(BackupError::io("read", scratch))? {
                let path = entry.map_err(BackupError::io("read", scratch))?.path();
                fs::remove_file(&path).map_err(BackupError::io("remove", &path))?;
            }
        }
        Ok(all)
    }
}

/// The number of the last increment that is there.
fn highest_increment(directory: &Path) -> Result<usize, BackupError> {
    let mut highest = 0;
    for entry in fs::read_dir(directory).map_err(BackupError::io("read", directory))? {
        let name = entry.map_err(BackupError::io("read", directory))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("increment-"));
        // One that is still being made has `.part` behind its number.
        let number = number.filter(|number| number.len() == 6).and_then(|number| number.parse().ok());
        highest = highest.max(number.unwrap_or(0));
    }
    Ok(highest)
}

/// Every change can be read, and goes on where the backup before ends.
fn verify_records(
    directory: &Path,
    before: &DatabaseBackup,
    own: &DatabaseBackup,
) -> Result<(), BackupError> {
    let path = directory.join(&own.file.path);
    let mut last = before.positions.clone();
    let mut count = 0;
    for record in Records::open(&path)? {
        let (key, bytes) =
            record.map_err(|error| BackupError::damaged(&path, format!("is damaged: {error}")))?;
        let wrong = |what: String| {
            let what = format!("has a change {} of server {} {what}", key.sequence, key.server_id);
            BackupError::damaged(&path, what)
        };
        LogRecord::decode(&bytes).map_err(|error| wrong(format!("that cannot be read: {error}")))?;
        match last.iter_mut().find(|position| position.server_id == key.server_id) {
            Some(position) if position.sequence >= key.sequence => {
                return Err(wrong("that the backup before it has, too".to_owned()));
            }
            Some(position) => position.sequence = key.sequence,
            None => last.push(key.into()),
        }
        count += 1;
    }
    if count != own.entries || own.positions.iter().any(|end| !last.contains(end)) {
        let what = format!("has {count} changes where the manifest says {}, or others", own.entries);
        return Err(BackupError::damaged(&path, what));
    }
    Ok(())
}
