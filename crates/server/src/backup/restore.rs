//! Puts the databases of a backup back, while nobody has them open.

use std::cmp::Ordering;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_configuration::Config;
use larix_engine::log::{self, LogRecord};
use larix_engine::tables::{ENTRIES, TABLES};
use larix_engine::time::{Clock as _, Timestamp};
use larix_engine::write::replay::{ReplayError, StoredRecord, replay};
use larix_engine::{Database, csn::Csn};
use larix_store::lmdb::{
    DATA_FILE, DirectoryLock, LmdbOptions, LmdbStore, Old, REPLACED_FILE, RESTORING, Replacement,
};
use larix_store::{Durability, Store, Transaction, WriteSet};

use super::changes::Records;
use super::manifest::DatabaseBackup;
use super::take::COMMIT_MARGIN_MICROS;
use super::{BackupError, Chain, Pace, RestoreNote, Until, sync_directory};
use crate::clock::{SystemClock, SystemRandom};

const SECOND_MICROS: i64 = 1_000_000;

/// A database of the backup and where it goes.
#[derive(Debug)]
pub struct Target<'a> {
    pub backup: &'a DatabaseBackup,
    /// The database's directory.
    pub directory: PathBuf,
    /// Permissions of the file.
    pub mode: u32,
    /// Of the directory: held until all is in its place.
    pub lock: DirectoryLock,
}

/// What was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// In the database as it is now.
    pub entries: u64,
    /// Changes carried out on the copy.
    pub changes: u64,
    /// The last change in it.
    pub last: Option<Csn>,
}

/// Puts each database together beside its place, and renames them there when all are whole and on the disk.
///
/// # Errors
/// A backup that is damaged or does not reach the moment leaves all of them as they were. A directory that cannot be written leaves its
/// own and those behind it.
pub fn restore(
    chain: &Chain,
    targets: &[Target<'_>],
    config: &Config,
    until: Until,
    replace: bool,
    pace: &mut Pace<'_>,
) -> Result<Vec<Restored>, BackupError> {
    let rebuild = |target| Rebuilt::make(chain, target, config, until, pace);
    let rebuilt = targets.iter().map(rebuild).collect::<Result<Vec<_>, _>>()?;
    rebuilt.into_iter().map(|rebuilt| rebuilt.publish(replace)).collect()
}

/// Whether an earlier restore has set a database aside.
fn keeps_earlier(directory: &Path) -> bool {
    directory.join(REPLACED_FILE).symlink_metadata().is_ok()
}

/// Whether the database that is there came from a backup and was not changed since: then the one that was set aside for it has what is
/// in no backup, and not this one.
fn is_as_restored(directory: &Path) -> bool {
    let Some(note) = RestoreNote::read(directory) else { return false };
    // One that cannot be read is set aside.
    let Ok(store) = LmdbStore::open(directory, &TABLES, &LmdbOptions::for_reading()) else { return false };
    let Ok(snapshot) = store.snapshot() else { return false };
    // A load ends the history that the restore has begun.
    let is_told = log::history(&snapshot).is_ok_and(|history| history.is_some());
    let last = log::context_csns(&snapshot).map(|csns| csns.into_iter().max().map(|csn| csn.time));
    is_told && last.is_ok_and(|last| last == note.last)
}

/// A database as it was, whole and beside its place.
#[derive(Debug)]
pub(crate) struct Rebuilt<'t> {
    chain: &'t Chain,
    directory: &'t Path,
    new: Replacement<'t>,
    restored: Restored,
}

impl<'t> Rebuilt<'t> {
    /// Puts it together. Its place may be in use meanwhile.
    ///
    /// # Errors
    /// A backup that is damaged or does not reach the moment, a directory that cannot be written.
    pub(crate) fn make(
        chain: &'t Chain,
        target: &'t Target<'_>,
        config: &Config,
        until: Until,
        pace: &mut Pace<'_>,
    ) -> Result<Self, BackupError> {
        let failed = |error| BackupError::database(&target.directory, &error);
        let new = target.lock.begin_replacement(RESTORING).map_err(failed)?;
        let restored = carry_out(chain, target.backup, config, new.path(), until, pace)?;
        let made = new.path().join(DATA_FILE);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(target.mode);
        fs::set_permissions(&made, mode).map_err(BackupError::io("write", &made))?;
        Ok(Self { chain, directory: &target.directory, new, restored })
    }

    /// Puts it into its place, which nobody has open. `replace`: a database that is there is set aside, unless an earlier restore has set
    /// one aside for it.
    ///
    /// # Errors
    /// A directory that cannot be written. The old database stands there, or the new one.
    pub(crate) fn publish(self, replace: bool) -> Result<Restored, BackupError> {
        let Self { chain, directory, new, restored } = self;
        let is_kept = replace && !(keeps_earlier(directory) && is_as_restored(directory));
        let old = if is_kept { Old::Kept } else { Old::Removed };
        // It counts beside this file alone, and so is never one of an older restore. For people: the disk may have no room for it.
        let note = RestoreNote::new(SystemClock.now(), &chain.directory, &restored);
        let _ = note.write(directory, &new.path().join(DATA_FILE));
        new.publish(old).map_err(|error| BackupError::database(directory, &error))?;
        Ok(restored)
    }
}

/// Copies the full backup of a database into `work`, carries out the changes that follow, and begins a new history there:
/// what is changed from now on does not follow what was changed after that moment elsewhere.
pub(super) fn carry_out(
    chain: &Chain,
    backup: &DatabaseBackup,
    config: &Config,
    work: &Path,
    until: Until,
    pace: &mut Pace<'_>,
) -> Result<Restored, BackupError> {
    check_reach(chain, backup, until)?;
    copy_full(chain, backup, work, pace)?;
    let failed = |error: &dyn std::fmt::Display| BackupError::database(work, error);
    let store = LmdbStore::open(work, &TABLES, &LmdbOptions::default()).map_err(|e| failed(&e))?;
    let settings = open_database::settings(config, backup)?;
    let database =
        Database::open(store, Arc::clone(&config.schema), settings, &SystemRandom).map_err(|e| failed(&e))?;
    let mut restored = Restored { entries: 0, changes: 0, last: None };
    {
        let snapshot = database.store().snapshot().map_err(|e| failed(&e))?;
        restored.last = log::context_csns(&snapshot).map_err(|e| failed(&e))?.into_iter().max();
    }
    let later = restored.last.filter(|last| is_later(&chain.full.made_at, until, last));
    if let (Some(moment), Some(last)) = (until.time(), later) {
        return Err(too_early(chain, moment, last.time));
    }
    let certain = Certain::find(chain, backup, until, database.settings().shadow);
    for (number, (directory, part)) in chain.parts(backup).enumerate() {
        // Compared first: no change of a damaged file is carried out.
        part.file.verify(directory, pace, |_| Ok(()))?;
        let records = Records::open(&directory.join(&part.file.path))?;
        pace.begin(format!("changes of {}", directory.display()), part.file.bytes);
        let mut cut = Cut { records, until, certain: certain.of(number), ended: false };
        let done = replay(&database, &mut cut, &mut |_| {}).map_err(|error| match error {
            ReplayError::Source(error) => BackupError::io("read", &directory.join(&part.file.path))(error),
            error => BackupError::damaged(
                &directory.join(&part.file.path),
                format!("cannot be carried out: {error}"),
            ),
        })?;
        restored.changes += done.records;
        restored.last = done.csn.or(restored.last);
        if cut.ended {
            break;
        }
    }
    begin_history(&database).map_err(|e| failed(&e))?;
    let statistics = database.store().statistics().map_err(|e| failed(&e))?;
    let table = TABLES.iter().position(|spec| spec.id == ENTRIES).and_then(|n| statistics.tables.get(n));
    restored.entries = table.map_or(0, |table| table.records);
    drop(database);
    for name in ["lock.mdb", "larix.lock"] {
        // Where they are missing there is nothing to remove.
        let _ = fs::remove_file(work.join(name));
    }
    sync_directory(work)?;
    Ok(restored)
}

/// Copies the full backup of a database into `work`, and checks the pages of the copy.
fn copy_full(
    chain: &Chain,
    backup: &DatabaseBackup,
    work: &Path,
    pace: &mut Pace<'_>,
) -> Result<(), BackupError> {
    let path = work.join(DATA_FILE);
    let mut copy = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(BackupError::io("write", &path))?;
    backup.file.verify(&chain.directory, pace, |chunk| {
        copy.write_all(chunk).map_err(BackupError::io("write", &path))
    })?;
    copy.sync_all().map_err(BackupError::io("write", &path))?;
    drop(copy);
    let mut damaged = None;
    LmdbStore::check_pages(work, &mut |page| damaged = damaged.take().or(Some(page)))
        .map_err(|error| BackupError::database(work, error))?;
    if let Some(page) = damaged {
        let what = format!(
            "was copied of a damaged database: {page}; take an older full backup, or put this file in the place of data.mdb by hand and \
             save what `larix cat -c` can still read"
        );
        return Err(BackupError::damaged(&chain.directory.join(&backup.file.path), what));
    }
    Ok(())
}

fn begin_history(database: &Database<LmdbStore>) -> Result<(), larix_store::CommitError> {
    let mut set = WriteSet::new();
    log::put_history(&mut set, &SystemRandom);
    database.store().transaction()?.commit(&set, Durability::Sync)?;
    Ok(())
}

/// Whether the chain leads to the moment.
pub(super) fn check_reach(chain: &Chain, backup: &DatabaseBackup, until: Until) -> Result<(), BackupError> {
    let Some(moment) = until.time() else { return Ok(()) };
    if let Some(first) = backup.last_csn().filter(|first| is_later(&chain.full.made_at, until, first)) {
        return Err(too_early(chain, moment, first.time));
    }
    // A database that was loaded and never changed does not say of when its state is: the copy's own moment counts.
    let copied = chain.full.covers().filter(|copied| backup.last_csn().is_none() && moment < *copied);
    if let Some(copied) = copied {
        return Err(too_early(chain, moment, copied));
    }
    let last = chain.last();
    // Up to its own last change nothing is missing, also where other databases had none for longer.
    let own = chain.parts(backup).last().map_or(backup, |(_, part)| part).last_own_csn().map(|csn| csn.time);
    let Some(covers) = last.covers().max(own).filter(|covers| *covers < moment) else { return Ok(()) };
    let (directory, shown) = (chain.directory.display(), moment.generalized_micros());
    let made = Timestamp::parse_generalized(&last.made_at).filter(|made| moment <= *made);
    let what = match made {
        Some(made) => format!(
            "{directory}: a change of {:?} from before {shown} may be missing, because the backup of {} was made less than a minute \
             after that moment: add an increment at {} or later, or leave the moment away for all that it has",
            backup.name(),
            made.generalized(),
            Timestamp(moment.0.saturating_add(COMMIT_MARGIN_MICROS + SECOND_MICROS)).generalized()
        ),
        None => format!(
            "{directory} ends at {}, before {shown}: add an increment, or leave the moment away for all that it has",
            covers.generalized_micros(),
        ),
    };
    Err(BackupError::Unreachable { what })
}

/// Whether a copy with this last change has the state of after the moment. A CSN from a clock that is ahead does not say so: no copy is
/// of later than it was made (`made_at`, to the second).
fn is_later(made_at: &str, until: Until, last: &Csn) -> bool {
    let made =
        Timestamp::parse_generalized(made_at).map(|made| Timestamp(made.0.saturating_add(SECOND_MICROS)));
    let is_behind_copy = made.zip(until.time()).is_some_and(|(made, moment)| moment >= made);
    !until.includes_csn(last) && !is_behind_copy
}

fn too_early(chain: &Chain, moment: Timestamp, first: Timestamp) -> BackupError {
    BackupError::Unreachable {
        what: format!(
            "{} begins with the state of {}, after {}: take an older full backup",
            chain.directory.display(),
            first.generalized_micros(),
            moment.generalized_micros()
        ),
    }
}

/// The last change up to the moment that the server made itself. What it received before was there by then, whatever the clocks of other
/// servers said.
#[derive(Clone, Copy, Default)]
struct Certain {
    /// Which of the increments has it.
    increment: usize,
    /// How many changes of that come up to it.
    count: u64,
}

impl Certain {
    /// `shadow`: all changes are the provider's. They come in any order, and may have the server ID that this server has: none is certain.
    fn find(chain: &Chain, backup: &DatabaseBackup, until: Until, shadow: bool) -> Self {
        let mut last = Self::default();
        if shadow || until.time().is_none() {
            return last;
        }
        for (increment, (directory, part)) in chain.parts(backup).enumerate() {
            // A file that cannot be read is reported when its changes are carried out, and so is a record.
            let Ok(records) = Records::open(&directory.join(&part.file.path)) else { break };
            for (count, record) in (1..).zip(records) {
                let Ok((key, bytes)) = record else { break };
                let is_own = |record: &LogRecord| record.csn.server_id == key.server_id;
                if LogRecord::decode(&bytes).is_ok_and(|record| is_own(&record) && until.includes(&record)) {
                    last = Self { increment, count };
                }
            }
        }
        last
    }

    /// How many changes of an increment are before the moment for certain.
    fn of(self, increment: usize) -> u64 {
        match increment.cmp(&self.increment) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => self.count,
            Ordering::Greater => 0,
        }
    }
}

/// Records up to a moment. What happens together is not cut apart.
struct Cut {
    records: Records,
    until: Until,
    /// So many are before the moment.
    certain: u64,
    ended: bool,
}

impl Iterator for Cut {
    type Item = std::io::Result<StoredRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.records.next()?;
        if self.certain > 0 {
            self.certain -= 1;
            return Some(next);
        }
        if let Ok((_, bytes)) = &next
            // A record that cannot be read is reported when it is carried out.
            && let Ok(record) = LogRecord::decode(bytes)
            && !record.continues
            && !self.until.includes(&record)
        {
            self.ended = true;
            return None;
        }
        Some(next)
    }
}

/// What the configuration says of a database of the backup.
pub(super) mod open_database {
    use larix_engine::DatabaseSettings;

    use super::{BackupError, Config, DatabaseBackup};

    pub(crate) fn settings(
        config: &Config,
        backup: &DatabaseBackup,
    ) -> Result<DatabaseSettings, BackupError> {
        let unreachable = |what: String| BackupError::Unreachable { what };
        let section = backup
            .section(config)
            .ok_or_else(|| unreachable(format!("the configuration has no database {:?}", backup.name())))?;
        config.engine_settings(section).map_err(|error| unreachable(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_of_no_later_than_it_was_made() {
        let made = Timestamp::parse_generalized("20260101000000Z").unwrap();
        let at = |seconds: i64| Timestamp(made.0 + seconds * SECOND_MICROS);
        let check = |moment: i64, last: i64, expected: bool| {
            let last = Csn { time: at(last), count: 0, server_id: 2, modification: 0 };
            let found = is_later("20260101000000Z", Until::Time(at(moment)), &last);
            assert_eq!(found, expected, "to {moment}, with a change of {last}");
        };
        check(-9, -10, false);
        check(-9, -8, true);
        // Within the second in which it was made.
        check(0, 1, true);
        // A clock that is ahead.
        check(-9, 1_000, true);
        check(1, 1_000, false);
        check(9, 1_000, false);
    }
}
