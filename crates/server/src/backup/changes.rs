//! The file of an increment: records of the change log as they are stored, in the order of their commits.
//!
//! It begins with eight bytes; then each record has its key (10 bytes), its length (4 bytes, big-endian) and its bytes.
//! Checksum and count are in the manifest.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use larix_engine::Fault;
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey, LogRecord, NumberedRows};
use larix_engine::write::replay::StoredRecord;
use larix_store::lmdb::LmdbStore;
use larix_store::{Direction, Snapshot, Store};
use sha2::{Digest, Sha256};

use super::manifest::{DatabaseBackup, Position, StoredFile};
use super::{BackupError, Pace, hexadecimal, private};

/// What a file of changes begins with; the last byte is its version.
const HEAD: &[u8; 8] = b"LARIXCG\x01";
/// Of a record: more is damage.
const RECORD_MAX: u32 = 1 << 30;
/// Records read under one snapshot, and their bytes.
const SLICE_RECORDS: usize = 4_096;
const SLICE_BYTES: usize = 8 << 20;

/// Records of one server that come after what a backup has.
struct Feed {
    server_id: u16,
    /// The last one read.
    after: u64,
    /// The last one wanted.
    end: u64,
    waiting: VecDeque<(LogRecord, StoredRecord)>,
}

/// Why a feed cannot be read on.
enum FeedError {
    Fault(Fault),
    /// The log was trimmed meanwhile beyond what was read: it begins with this record now, or has none (0).
    Trimmed(u64),
}

impl From<Fault> for FeedError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Feed {
    /// Reads a slice when nothing waits. No snapshot is held while what was read is written, so the server may trim its log
    /// in between: each slice begins where the one before it ended, or there is no increment.
    fn fill(&mut self, store: &LmdbStore) -> Result<(), FeedError> {
        if !self.waiting.is_empty() || self.after >= self.end {
            return Ok(());
        }
        let snapshot = store.snapshot().map_err(Fault::from)?;
        let first = log::first_sequence(&snapshot, self.server_id)?;
        if first == 0 || first > self.after + 1 {
            return Err(FeedError::Trimmed(first));
        }
        let (mut bytes, end) = (0, self.end);
        let waiting = &mut self.waiting;
        let after = LogKey { server_id: self.server_id, sequence: self.after };
        log::visit_stored_after(&snapshot, after, &mut |key, record, stored| {
            if key.sequence <= end {
                bytes += stored.len();
                waiting.push_back((record, (key, stored.to_vec())));
            }
            key.sequence < end && waiting.len() < SLICE_RECORDS && bytes < SLICE_BYTES
        })?;
        self.after = waiting.back().map_or(end, |(_, (key, _))| key.sequence);
        Ok(())
    }
}

/// What the log of a store has after a backup.
struct Ahead {
    history: Option<String>,
    /// The last record of each server.
    ends: Vec<LogKey>,
    /// What the backup has of each of them: up to this sequence.
    begins: Vec<u64>,
    /// Nothing is missing behind the backup, so that sequences give the order of all changes. Not looked at where one server ID made all.
    is_gapless: bool,
    last_record: Option<String>,
    csns: Vec<Csn>,
}

/// The SHA-256 of the last of these records, as it is stored.
pub(super) fn last_record<N: Snapshot>(snapshot: &N, ends: &[LogKey]) -> Result<Option<String>, Fault> {
    let last = ends.iter().max_by_key(|end| end.sequence);
    last.map_or(Ok(None), |last| digest_of(snapshot, *last))
}

/// The SHA-256 of a record; none if it is not there any more.
fn digest_of<N: Snapshot>(snapshot: &N, at: LogKey) -> Result<Option<String>, Fault> {
    let before = LogKey { sequence: at.sequence.saturating_sub(1), ..at };
    let mut digest = None;
    log::visit_stored_after(snapshot, before, &mut |key, _, stored| {
        digest = (key == at).then(|| hexadecimal(&Sha256::digest(stored)));
        false
    })?;
    Ok(digest)
}

/// Whether the log of a store leads on from a backup.
fn ahead(store: &LmdbStore, before: &DatabaseBackup) -> Result<Ahead, BackupError> {
    let failed = |fault: Fault| BackupError::database(store.path(), fault);
    let refused = |why: &str| BackupError::NoIncrement { suffix: before.name(), why: why.to_owned() };
    let snapshot = store.snapshot().map_err(|error| failed(error.into()))?;
    let history = log::history(&snapshot).map_err(failed)?.map(|history| history.to_string());
    match (&before.history, &history) {
        (None, _) => return Err(refused("the backup before it does not say which history it is part of")),
        (_, None) => {
            return Err(refused("entries were changed without the change log (loaded, or it is off)"));
        }
        (Some(known), Some(now)) if known != now => {
            return Err(refused("since then the database was restored, loaded, or had its change log off"));
        }
        _ => {}
    }
    let ends = log::positions(&snapshot).map_err(failed)?;
    let mut begins = Vec::with_capacity(ends.len());
    let last = before.last_position().map_or(0, |last| last.sequence);
    let is_of_one = matches!(ends.as_slice(), [end] if before.position(end.server_id) > 0);
    let is_gapless = !is_of_one && is_gapless(&snapshot, last).map_err(failed)?;
    for end in &ends {
        let first = log::first_sequence(&snapshot, end.server_id).map_err(failed)?;
        let mut known = before.position(end.server_id);
        if first > known + 1 && is_gapless {
            // What comes before its first record is another server ID's.
            known = first - 1;
        }
        begins.push(known);
        if known > end.sequence {
            let last = end.sequence;
            return Err(refused(&format!("the database has changes up to {last}, the backup up to {known}")));
        }
        if end.sequence > known && first > known + 1 {
            return Err(refused(&format!(
                "the change log begins with change {first}, the backup ends with {known} (`change-log` says how long \
                 changes are kept)"
            )));
        }
    }
    let now = before.last_position().map_or(Ok(None), |at| digest_of(&snapshot, at)).map_err(failed)?;
    if let (Some(known), Some(now)) = (&before.last_record, now)
        && *known != now
    {
        // A file that was copied back tells the same history, and other changes under the same numbers.
        return Err(refused(
            "the database was put back to an earlier state by other means than `larix restore`",
        ));
    }
    let last_record = last_record(&snapshot, &ends).map_err(failed)?;
    let csns = log::context_csns(&snapshot).map_err(failed)?;
    Ok(Ahead { history, ends, begins, is_gapless, last_record, csns })
}

/// Whether all changes behind a number are there, under whichever server IDs: sequences go on when the ID changes.
fn is_gapless<N: Snapshot>(snapshot: &N, after: u64) -> Result<bool, Fault> {
    let mut last = after;
    for row in NumberedRows::after(snapshot, after, Direction::Forward)? {
        let (key, _) = row?;
        if key.sequence != last + 1 {
            return Ok(false);
        }
        last = key.sequence;
    }
    Ok(true)
}

fn trimmed(before: &DatabaseBackup, feed: &Feed, first: u64) -> BackupError {
    let now = if first == 0 { "has none any more".to_owned() } else { format!("begins with {first} now") };
    let why = format!(
        "while change {} was to be read, the server removed it from its change log, which {now} (`change-log` says how long \
         changes are kept)",
        feed.after + 1
    );
    BackupError::NoIncrement { suffix: before.name(), why }
}

/// Writes what a store has logged since `before` into a new file at `path` below `directory`. The end is what is
/// committed when it begins.
pub(super) fn write(
    store: &LmdbStore,
    before: &DatabaseBackup,
    (directory, path): (&Path, PathBuf),
    pace: &mut Pace<'_>,
) -> Result<DatabaseBackup, BackupError> {
    let failed = |fault: Fault| BackupError::database(store.path(), fault);
    let Ahead { history, ends, begins, is_gapless, last_record, csns } = ahead(store, before)?;
    let full_path = directory.join(&path);
    let mut file = private().open(&full_path).map_err(BackupError::io("write", &full_path))?;
    let mut feeds: Vec<Feed> = ends
        .iter()
        .zip(begins)
        .map(|(end, after)| Feed {
            server_id: end.server_id,
            after,
            end: end.sequence,
            waiting: VecDeque::new(),
        })
        .collect();
    let in_sequence = is_gapless || are_in_sequence(&feeds);
    pace.begin(full_path.display().to_string(), 0);
    let mut out = Output { file: &mut file, hash: Sha256::new(), bytes: 0, buffer: HEAD.to_vec() };
    let mut count = 0;
    loop {
        for feed in &mut feeds {
            feed.fill(store).map_err(|error| match error {
                FeedError::Fault(fault) => failed(fault),
                FeedError::Trimmed(first) => trimmed(before, feed, first),
            })?;
        }
        // Of several server ids the earliest change; each one's own are in order.
        let next = feeds
            .iter_mut()
            .filter_map(|feed| {
                let (record, (key, _)) = feed.waiting.front()?;
                let by_sequence = if in_sequence { key.sequence } else { 0 };
                Some(((by_sequence, record.csn), feed))
            })
            .min_by_key(|(place, _)| *place)
            .and_then(|(_, feed)| feed.waiting.pop_front());
        let Some((_, (key, bytes))) = next else { break };
        count += 1;
        let written = out.record(key, &bytes).map_err(BackupError::io("write", &full_path))?;
        pace.advance(written)?;
    }
    let (bytes, sha256) = out.finish().map_err(BackupError::io("write", &full_path))?;
    file.sync_all().map_err(BackupError::io("write", &full_path))?;
    Ok(DatabaseBackup {
        suffixes: before.suffixes.clone(),
        file: StoredFile { path, bytes, sha256 },
        entries: count,
        context_csn: csns.iter().map(ToString::to_string).collect(),
        history,
        positions: ends.into_iter().map(Position::from).collect(),
        last_record,
    })
}

/// Whether sequences went on from one server id to the next: then they give the order of all. Older versions began anew.
fn are_in_sequence(feeds: &[Feed]) -> bool {
    let mut ranges: Vec<(u64, u64)> = feeds.iter().map(|feed| (feed.after, feed.end)).collect();
    ranges.retain(|(after, end)| after < end);
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| matches!(pair, [(_, end), (after, _)] if end <= after))
}

struct Output<'f> {
    file: &'f mut File,
    hash: Sha256,
    bytes: u64,
    buffer: Vec<u8>,
}

/// Written at once.
const BUFFER: usize = 1 << 20;

impl Output<'_> {
    /// Answers how many bytes went to the file.
    fn record(&mut self, key: LogKey, record: &[u8]) -> io::Result<u64> {
        let length = u32::try_from(record.len()).map_err(|_| io::Error::other("a change is too large"))?;
        self.buffer.extend_from_slice(&key.to_bytes());
        self.buffer.extend_from_slice(&length.to_be_bytes());
        self.buffer.extend_from_slice(record);
        if self.buffer.len() < BUFFER { Ok(0) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<u64> {
        self.file.write_all(&self.buffer)?;
        self.hash.update(&self.buffer);
        let written = self.buffer.len() as u64;
        self.bytes += written;
        self.buffer.clear();
        Ok(written)
    }

    fn finish(mut self) -> io::Result<(u64, String)> {
        self.flush()?;
        Ok((self.bytes, hexadecimal(&self.hash.finalize())))
    }
}

/// The records of a file of changes.
#[derive(Debug)]
pub(super) struct Records {
    input: BufReader<File>,
    path: PathBuf,
    started: bool,
}

impl Records {
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(BackupError::io("read", path))?;
        Ok(Self { input: BufReader::with_capacity(BUFFER, file), path: path.to_owned(), started: false })
    }

    fn read(&mut self) -> io::Result<Option<StoredRecord>> {
        if !self.started {
            let mut head = [0; 8];
            self.input.read_exact(&mut head)?;
            if head != *HEAD {
                return Err(io::Error::other("it does not begin as a file of changes"));
            }
            self.started = true;
        }
        let mut head = [0; 14];
        let Some((first, rest)) = head.split_first_mut() else { return Ok(None) };
        match self.input.read(std::slice::from_mut(first))? {
            0 => return Ok(None),
            _ => self.input.read_exact(rest)?,
        }
        let (key, length) = head.split_at(10);
        let length = length.try_into().map_or(u32::MAX, u32::from_be_bytes);
        let key = LogKey::from_bytes(key).filter(|_| length <= RECORD_MAX);
        let key = key.ok_or_else(|| io::Error::other("a record's head is damaged"))?;
        let mut record = vec![0; length as usize];
        self.input.read_exact(&mut record)?;
        Ok(Some((key, record)))
    }
}

impl Iterator for Records {
    type Item = io::Result<StoredRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        read.map_err(named).transpose()
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::EntryId;
    use larix_engine::log::LoggedChange;
    use larix_engine::tables::{LOG, TABLES};
    use larix_engine::time::{SeededRandom, Timestamp};
    use larix_store::lmdb::LmdbOptions;
    use larix_store::{Durability, Transaction as _, WriteSet};

    use super::*;

    fn commit(store: &LmdbStore, set: &WriteSet) {
        store.transaction().unwrap().commit(set, Durability::NoSync).unwrap();
    }

    fn log_of(store: &LmdbStore, server_id: u16, sequences: std::ops::RangeInclusive<u64>) {
        let mut set = WriteSet::new();
        for sequence in sequences {
            let csn = Csn { time: Timestamp(1), count: 0, server_id: 0, modification: 0 };
            let record = LogRecord::new(csn, "cn=a".to_owned(), LoggedChange::Delete);
            let record = LogRecord { entry: EntryId(1), ..record };
            log::append(&mut set, LogKey { server_id, sequence }, &record);
        }
        commit(store, &set);
    }

    fn trim(store: &LmdbStore, server_id: u16, sequences: std::ops::RangeInclusive<u64>) {
        let mut set = WriteSet::new();
        sequences.for_each(|sequence| set.delete(LOG, &LogKey { server_id, sequence }.to_bytes()));
        commit(store, &set);
    }

    /// The server goes on trimming its log while an increment is written: what it has removed must not be missing there in silence.
    #[test]
    fn a_log_that_is_trimmed_meanwhile_makes_no_increment_with_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(folder.path(), &TABLES, &LmdbOptions::default()).unwrap();
        let slice = SLICE_RECORDS as u64;
        let end = 2 * slice + 10;
        log_of(&store, 0, 1..=end);
        for (trimmed, gap) in [(1, None), (slice, None), (slice + 1, Some(slice + 2)), (end, Some(0))] {
            let mut feed = Feed { server_id: 0, after: 0, end, waiting: VecDeque::new() };
            assert!(feed.fill(&store).is_ok());
            assert_eq!(feed.waiting.len() as u64, slice);
            feed.waiting.clear();
            trim(&store, 0, 1..=trimmed);
            let filled = feed.fill(&store);
            let found = match &filled {
                Ok(()) => None,
                Err(FeedError::Trimmed(first)) => Some(*first),
                Err(FeedError::Fault(fault)) => panic!("{fault}"),
            };
            assert_eq!(found, gap, "trimmed up to {trimmed}");
            if gap.is_none() {
                assert_eq!(feed.waiting.front().map(|(_, (key, _))| key.sequence), Some(slice + 1));
            }
            log_of(&store, 0, 1..=end);
        }
    }

    /// Sequences go on under the next server ID.
    #[test]
    fn an_increment_goes_on_across_a_change_of_the_server_id() {
        let folder = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(folder.path(), &TABLES, &LmdbOptions::default()).unwrap();
        let mut set = WriteSet::new();
        let history = log::put_history(&mut set, &SeededRandom::new(1));
        commit(&store, &set);
        log_of(&store, 1, 1..=10);
        log_of(&store, 2, 11..=20);
        log_of(&store, 1, 21..=30);
        let check = |positions: &[(u16, u64)], expected: Option<&[u64]>| {
            let position = |at: &(u16, u64)| Position { server_id: at.0, sequence: at.1 };
            let before = DatabaseBackup {
                suffixes: Vec::new(),
                file: StoredFile::of_bytes("changes", &[]),
                entries: 0,
                context_csn: Vec::new(),
                history: Some(history.to_string()),
                positions: positions.iter().map(position).collect(),
                last_record: None,
            };
            let begins = ahead(&store, &before).ok().map(|ahead| ahead.begins);
            assert_eq!(begins.as_deref(), expected, "{positions:?}");
        };
        check(&[], Some(&[0, 10]));
        check(&[(1, 8)], Some(&[8, 10]));
        check(&[(1, 10), (2, 15)], Some(&[10, 15]));
        trim(&store, 1, 1..=10);
        trim(&store, 2, 11..=12);
        check(&[(1, 10), (2, 12)], Some(&[20, 12]));
        // Changes 11 and 12 are not there any more.
        check(&[(1, 10)], None);
    }
}
