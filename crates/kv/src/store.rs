//! The store: a handle, what it knows, and what becomes of commits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

use larix_store::table::Catalog;
use larix_store::{Attempt, CommitError, CommitId, ReadError, TableId, TableSpec};
use rustix::time::{ClockId, clock_gettime};

use crate::address::{Address, Opening};
use crate::cache::{Cache, Range, Row};
use crate::changes::Keys;
use crate::engine::{CommitPresence, Engine, LeaseGap, Limits, NewCommits, Sizes, StoredCommit};
use crate::error::{Fault, OpenError, Verdict};
use crate::expectation::Expectation;
use crate::read_faults;
use crate::room::Room;
use crate::schema;

/// Commits without an answer that can be asked about; older ones are forgotten.
const ATTEMPTS_MAX: usize = 64;
/// How often taking over is tried while others commit.
const TAKE_OVER_TRIES: usize = 64;
/// Rows of commits that are [not kept](crate::engine::COMMITS_KEPT) are removed that many at a time.
pub(crate) const COMMITS_TRIMMED_EVERY: u64 = 256;

/// What a reader gets to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Everything that was acknowledged by any node before: one round trip for each view.
    Strict,
    /// Everything that was acknowledged through this handle, and what has been heard of others since. Others are heard of with
    /// each question to the engine; a handle that finds everything in its cache hears nothing, however long, unless somebody
    /// [listens](KvStore::commit_feed) and [asks](KvStore::hear). A view that finds all in
    /// the cache takes no round trip. One that does not, and has read what was changed meanwhile, ends with
    /// [`ReadError::Stale`].
    Session,
    /// Everything that was acknowledged by any node longer ago than this when the view was opened, and what was acknowledged through this
    /// handle. A view asks first where the engine was asked longer ago, and is one of [`Self::Session`] otherwise.
    Bounded(Duration),
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct KvOptions {
    /// The schema of the engine's database that holds the store: up to [`crate::NAME_BYTES_MAX`] lower-case letters, digits
    /// and underscores.
    pub schema: String,
    /// Whether a store is made where there is none, and tables that are new are entered.
    pub make: bool,
    /// Whether this handle may commit from the start. Else [`KvStore::take_over`] gives it that right.
    pub writes: bool,
    pub freshness: Freshness,
    /// Most memory of the cache in bytes, about.
    pub cache_bytes: usize,
    /// Most connections to the engine.
    pub connections: usize,
    /// How long one answer of the engine may take.
    pub deadline: Duration,
    /// What the engine calls its connections, behind `larix`.
    pub name: String,
    /// Tables whose first records, so many, come along with the first question of an empty cache.
    pub beginnings: &'static [(TableId, u32)],
}

impl Default for KvOptions {
    fn default() -> Self {
        Self {
            schema: "larix".to_owned(),
            make: true,
            writes: true,
            freshness: Freshness::Strict,
            cache_bytes: 64 << 20,
            connections: 16,
            deadline: Duration::from_secs(5),
            name: String::new(),
            beginnings: &[],
        }
    }
}

/// Numbers for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Round trips to the engine that somebody waited for.
    pub trips: u64,
    /// Commits that another one came before.
    pub conflicts: u64,
    /// Reads of one record, or of the one next to a key, that the cache answered, and those that it did not.
    pub hits: u64,
    pub misses: u64,
    pub cache_bytes: u64,
    /// The newest commit that is known here, and the epoch that it was made in.
    pub version: u64,
    pub epoch: u64,
    /// Whether the engine had no room for a change of this handle, and none as large has found some since. A minute behind the last refusal,
    /// any change that finds some counts.
    pub lacks_room: bool,
}

/// A handle of a store on an engine.
#[derive(Debug)]
pub struct KvStore {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) sizes: Sizes,
    pub(crate) catalog: Catalog,
    /// The engine's number of each declared table, by the table's position.
    numbers: Vec<u8>,
    known: RwLock<Known>,
    /// The version of the cache, for readers without its lock.
    version: AtomicU64,
    freshness: Freshness,
    beginnings: &'static [(TableId, u32)],
    /// In which it commits; 0 if it may not.
    epoch: AtomicU64,
    newest_epoch: AtomicU64,
    /// Whether it has taken over: nobody else commits in its epoch.
    alone: AtomicBool,
    /// The thread that alone commits for now, and in which epoch.
    settling: Mutex<Option<(ThreadId, u64)>>,
    /// Whether it is about to take over.
    pub(crate) expectation: Expectation,
    pub(crate) room: Room,
    /// Whether the engine has to be asked what is newest before this handle's own memory is used again.
    doubt: AtomicBool,
    pub(crate) lease_gap: LeaseGap,
    /// When the question was sent that has brought the newest commits last, in nanoseconds since the store was opened; 0: none was.
    last_contact: AtomicU64,
    /// By [`now`].
    opened: Duration,
    /// The engine, or the server of it that was asked, lacks this commit. Until it has it again, nothing here is to be believed.
    behind: AtomicU64,
    /// Another commit has the number of the one that it lacks: it was lost for good.
    replaced: AtomicBool,
    /// The commit since which this handle knows that none was lost.
    unbroken_since: AtomicU64,
    attempts: Mutex<Attempts>,
    conflicts: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Why a read could not be answered, until somebody takes it.
    trouble: Mutex<Option<String>>,
}

/// What is known, and by which attempt the newest known commit was made.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) cache: Cache,
    pub(crate) attempt: Vec<u8>,
    /// Commits of this handle that are being made: one of each thread that commits.
    own: Vec<OwnCommit>,
}

/// A commit that the engine may have made already. Readers may hear of it before the thread that waits for the answer does.
#[derive(Debug)]
struct OwnCommit {
    version: u64,
    attempt: Vec<u8>,
    keys: Option<Keys>,
    rows: Vec<Row>,
}

impl Known {
    /// Takes in commits that the engine tells, the oldest first. One of this handle's comes with what it wrote, which stays known.
    fn advance(&mut self, commits: impl Iterator<Item = StoredCommit>) {
        for StoredCommit { version, keys, attempt, .. } in commits {
            match self.take_own(&attempt) {
                Some(own) if self.cache.version() + 1 == version => {
                    self.cache.committed(version, own.keys, &mut own.rows.into_iter());
                }
                _ => self.cache.advance(vec![(version, keys)]),
            }
        }
    }

    fn take_own(&mut self, attempt: &[u8]) -> Option<OwnCommit> {
        let at = self.own.iter().position(|own| own.attempt == attempt)?;
        Some(self.own.swap_remove(at))
    }
}

#[derive(Debug, Default)]
struct Attempts {
    handle: [u8; 8],
    last: u64,
    unanswered: VecDeque<Unanswered>,
}

#[derive(Clone, Debug)]
struct Unanswered {
    number: u64,
    version: u64,
    attempt: Vec<u8>,
}

/// In place of an epoch: the handle had one, and has given it up.
pub(crate) const RESIGNED: u64 = u64::MAX;
/// Not behind.
const SOUND: u64 = u64::MAX;

impl KvStore {
    /// Opens the store that is in a schema of the engine's database, or makes it.
    ///
    /// # Errors
    /// The engine cannot be reached, refuses, or holds something else.
    pub fn open(address: &Address, tables: &[TableSpec], options: &KvOptions) -> Result<Self, OpenError> {
        let catalog = Catalog::new(tables).map_err(|spec| OpenError::Table { name: spec.name })?;
        schema::check_name(&options.schema)?;
        let opening = Opening {
            schema: &options.schema,
            name: &options.name,
            limits: Limits { connections: options.connections.max(2), deadline: options.deadline },
            tables,
            make: options.make,
        };
        let (engine, numbers) = address.open(&opening)?;
        let mut handle = [0; 8];
        #[expect(
            clippy::disallowed_methods,
            reason = "it only has to differ from that of every other handle"
        )]
        getrandom::fill(&mut handle).map_err(|error| OpenError::Unavailable(error.to_string()))?;
        let highest = numbers.iter().copied().max().map_or(0, |highest| usize::from(highest) + 1);
        let store = Self {
            sizes: engine.sizes(),
            engine,
            catalog,
            numbers,
            known: RwLock::new(Known {
                cache: Cache::new(highest, options.cache_bytes, 0),
                attempt: Vec::new(),
                own: Vec::new(),
            }),
            version: AtomicU64::new(0),
            freshness: options.freshness,
            beginnings: options.beginnings,
            epoch: AtomicU64::new(0),
            newest_epoch: AtomicU64::new(0),
            alone: AtomicBool::new(false),
            settling: Mutex::default(),
            expectation: Expectation::default(),
            room: Room::default(),
            doubt: AtomicBool::new(true),
            lease_gap: LeaseGap::default(),
            last_contact: AtomicU64::new(0),
            opened: now(),
            behind: AtomicU64::new(SOUND),
            replaced: AtomicBool::new(false),
            unbroken_since: AtomicU64::new(0),
            attempts: Mutex::new(Attempts { handle, ..Attempts::default() }),
            conflicts: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            trouble: Mutex::default(),
        };
        store.look().map_err(Fault::into_open)?;
        if options.writes {
            store.epoch.store(store.newest_epoch.load(Ordering::Acquire), Ordering::Release);
        }
        Ok(store)
    }

    /// Finds out where the engine stands, with nothing known.
    fn look(&self) -> Result<(), Fault> {
        let newest = self.engine.newest()?;
        let mut known = self.known_mut();
        known.cache.forget(newest.version);
        known.attempt = newest.attempt;
        self.version.store(newest.version, Ordering::Release);
        self.newest_epoch.fetch_max(newest.epoch, Ordering::AcqRel);
        Ok(())
    }

    /// Alone has the right to commit from now on; handles of before are [fenced off](CommitError::Fenced). What was
    /// remembered as of the last commit has to be read again: [`larix_store::Snapshot::commit_counter`] is another.
    ///
    /// # Errors
    /// The engine cannot be reached. Others may have been fenced off all the same; to try again does no harm.
    pub fn take_over(&self) -> Result<(), CommitError> {
        let epoch = self.raise_epoch()?;
        self.epoch.store(epoch, Ordering::Release);
        self.expectation.end();
        Ok(())
    }

    /// The same, with something to do before others of this handle may commit: meanwhile only the calling thread may.
    ///
    /// # Errors
    /// Those of [`Self::take_over`] and of `settle`: this handle has no right to commit then.
    pub fn take_over_and<E: From<CommitError>>(
        &self,
        settle: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let epoch = self.raise_epoch()?;
        let settling = Settling::begin(self, epoch);
        settle()?;
        self.epoch.store(epoch, Ordering::Release);
        drop(settling);
        self.expectation.end();
        Ok(())
    }

    /// Makes every earlier epoch the last of its holder's. The new one.
    fn raise_epoch(&self) -> Result<u64, CommitError> {
        self.sound().map_err(Fault::into_commit)?;
        self.doubt();
        for _ in 0..TAKE_OVER_TRIES {
            match self.engine.take_over(&self.new_attempt()) {
                Ok(epoch) => {
                    self.newest_epoch.fetch_max(epoch, Ordering::AcqRel);
                    self.alone.store(true, Ordering::Release);
                    self.room.found(0, now());
                    return Ok(epoch);
                }
                Err(fault) => match self.noted(fault).into_commit() {
                    CommitError::Conflict => {}
                    error => return Err(error),
                },
            }
        }
        Err(CommitError::Conflict)
    }

    pub fn figures(&self) -> Figures {
        Figures {
            trips: self.engine.trips(),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            cache_bytes: self.known().cache.bytes() as u64,
            version: self.version.load(Ordering::Acquire),
            epoch: self.newest_epoch.load(Ordering::Acquire),
            lacks_room: self.lacks_room(),
        }
    }

    /// As [`Figures::lacks_room`].
    pub fn lacks_room(&self) -> bool {
        self.room.is_lacking()
    }

    /// Notes an engine without room, where something that has hardly any size finds none.
    pub(crate) fn noted(&self, fault: Fault) -> Fault {
        if fault.verdict() == Verdict::Full {
            self.room.lacks(0, now());
        }
        fault
    }

    /// Why a read had no answer, the last one that had none since this was asked: who reads learns no more than that.
    pub fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn note_trouble(&self, fault: &Fault) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.text());
    }

    /// Counts a read by whether the cache answered it.
    pub(crate) fn looked_up(&self, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn known(&self) -> RwLockReadGuard<'_, Known> {
        // Each change of it is whole before anything can panic.
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known_mut(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has to come along with the next question: of each table the range, and how many of its first records.
    pub(crate) fn beginnings(&self) -> Vec<(TableId, Range, u32)> {
        if self.known().cache.is_begun() {
            return Vec::new();
        }
        let beginning = |(table, limit): &(TableId, u32)| {
            let number = self.number(*table).ok()?;
            Some((*table, Range { table: number, from: Vec::new(), to: None }, *limit))
        };
        self.beginnings.iter().filter_map(beginning).collect()
    }

    /// The engine's number of a table.
    pub(crate) fn number(&self, table: TableId) -> Result<u8, ReadError> {
        let number = self.catalog.position(table).and_then(|position| self.numbers.get(position));
        number.copied().ok_or(ReadError::WrongTable(table))
    }

    /// Whether the engine has what is known here. One that lacked it is asked again: it may have been a server that another one
    /// has taken the place of, which answers now.
    pub(crate) fn sound(&self) -> Result<(), Fault> {
        let lacked = self.behind.load(Ordering::Acquire);
        if lacked == SOUND {
            return Ok(());
        }
        if read_faults::is_at_hand() {
            return Err(Fault::NotAtHand);
        }
        let (version, attempt) = {
            let known = self.known();
            (known.cache.version(), known.attempt.clone())
        };
        match self.engine.holds(version, &attempt)? {
            // A server that has the newest one has all before it.
            CommitPresence::Present => self.replaced.store(false, Ordering::Release),
            held if held.is_too_old(version) && !self.replaced.load(Ordering::Acquire) => {
                self.go_on_from(self.engine.newest()?, false);
            }
            held => return Err(self.lacking(held, lacked)),
        }
        // Unless it was found lacking again.
        let _sound = self.behind.compare_exchange(lacked, SOUND, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    /// The engine, or the server of it that was asked, lacks a commit: nothing here is to be believed until it has it.
    fn lacking(&self, held: CommitPresence, known: u64) -> Fault {
        if held == CommitPresence::Replaced {
            self.replaced.store(true, Ordering::Release);
        }
        self.behind.store(known, Ordering::Release);
        Fault::Behind { known }
    }

    /// The newest commit is too far ahead for those between to be told. Only where the known one is before it is what others remember of
    /// that one right.
    fn catch_up(&self, newest: StoredCommit, known: u64, held: CommitPresence) -> Result<u64, Fault> {
        if held != CommitPresence::Present && !held.is_too_old(known) {
            return Err(self.lacking(held, known));
        }
        let version = newest.version;
        self.go_on_from(newest, held == CommitPresence::Present);
        Ok(version)
    }

    /// Goes on with a commit, with nothing known of those between. `is_unbroken`: what was known is before it.
    fn go_on_from(&self, newest: StoredCommit, is_unbroken: bool) {
        self.newest_epoch.fetch_max(newest.epoch, Ordering::AcqRel);
        let mut state = self.known_mut();
        if newest.version > state.cache.version() {
            if !is_unbroken {
                // Who sees the version sees this, too.
                self.unbroken_since.store(newest.version, Ordering::Release);
            }
            state.cache.forget(newest.version);
            state.attempt = newest.attempt;
            self.version.store(newest.version, Ordering::Release);
        }
    }

    /// The commit since which this handle knows that the engine has lost none; 0: since it was opened.
    pub(crate) fn unbroken(&self) -> u64 {
        self.unbroken_since.load(Ordering::Acquire)
    }

    /// Takes in what the engine tells of the commits from `known` on. The newest.
    pub(crate) fn take_in(&self, new_commits: NewCommits, known: u64, attempt: &[u8]) -> Result<u64, Fault> {
        let listed = match new_commits {
            NewCommits::Listed(listed) => listed,
            NewCommits::TooMany { newest, known: by } => {
                let held = match by {
                    Some(by) if by == attempt => CommitPresence::Present,
                    Some(_) => CommitPresence::Replaced,
                    None => CommitPresence::Absent { newest: newest.version },
                };
                return self.catch_up(newest, known, held);
            }
        };
        let (Some(newest), Some(oldest)) = (listed.first(), listed.last()) else {
            return Err(self.lacking(CommitPresence::Absent { newest: 0 }, known));
        };
        let version = newest.version;
        if !listed
            .iter()
            .map(|commit| commit.version)
            .eq((0..listed.len() as u64).map(|back| version.wrapping_sub(back)))
        {
            return Err(Fault::Lie("the numbers of the commits have a gap".to_owned()));
        }
        if oldest.version != known {
            return Err(Fault::Lie("commits lack their rows".to_owned()));
        }
        if oldest.attempt != attempt {
            return Err(self.lacking(CommitPresence::Replaced, known));
        }
        self.newest_epoch.fetch_max(newest.epoch, Ordering::AcqRel);
        if version <= self.newest() {
            // The usual case: readers are not held up for it.
            return Ok(version);
        }
        let newest_attempt = newest.attempt.clone();
        let mut state = self.known_mut();
        if version > state.cache.version() {
            state.advance(listed.into_iter().rev());
            state.attempt = newest_attempt;
            self.version.store(state.cache.version(), Ordering::Release);
        }
        Ok(version)
    }

    /// A commit of this handle is sent. `rows`: what it writes.
    pub(crate) fn sends(&self, version: u64, attempt: &[u8], keys: Option<Keys>, rows: Vec<Row>) {
        let mut known = self.known_mut();
        let newest = known.cache.version();
        // What a panic has left.
        known.own.retain(|own| own.version > newest);
        known.own.push(OwnCommit { version, attempt: attempt.to_vec(), keys, rows });
    }

    /// The engine has answered that it was made, or not.
    pub(crate) fn answered(&self, version: u64, attempt: &[u8], is_made: bool) {
        let mut known = self.known_mut();
        let own = known.take_own(attempt);
        if is_made {
            self.goes_on(&mut known, version, attempt, |cache| match own {
                Some(own) => cache.committed(version, own.keys, &mut own.rows.into_iter()),
                None => cache.forget(version),
            });
        }
    }

    /// A commit of this handle was made.
    pub(crate) fn committed(&self, version: u64, attempt: &[u8], take_in: impl FnOnce(&mut Cache)) {
        self.goes_on(&mut self.known_mut(), version, attempt, take_in);
    }

    fn goes_on(&self, known: &mut Known, version: u64, attempt: &[u8], take_in: impl FnOnce(&mut Cache)) {
        if known.cache.version() < version {
            if known.cache.version() + 1 == version {
                take_in(&mut known.cache);
            } else {
                known.cache.forget(version);
            }
            known.attempt = attempt.to_vec();
        }
        self.version.store(known.cache.version(), Ordering::Release);
    }

    /// The newest commit that is known here.
    pub(crate) fn newest(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// What made a commit, if it is the newest that is known here.
    pub(crate) fn made_by(&self, version: u64) -> Option<Vec<u8>> {
        let known = self.known();
        (known.cache.version() == version).then(|| known.attempt.clone())
    }

    /// Whether the engine has what is known here, as far as it was asked.
    pub(crate) fn is_sound(&self) -> bool {
        self.behind.load(Ordering::Acquire) == SOUND
    }

    /// Whether a view that is opened now asks for the newest commits first.
    pub(crate) fn asks_first(&self) -> bool {
        if let Some(asks) = read_faults::asks_first() {
            return asks;
        }
        match self.freshness {
            Freshness::Strict => true,
            Freshness::Session => false,
            Freshness::Bounded(bound) => {
                let last_contact = self.last_contact.load(Ordering::Acquire);
                last_contact == 0 || u128::from(self.clock().saturating_sub(last_contact)) > bound.as_nanos()
            }
        }
    }

    /// Whether a transaction that is begun now asks for the newest commits first. One of the handle that alone commits need not: the fence
    /// refuses its commit if another one has come before it, and one without changes [asks in the end](larix_store::Transaction::confirm).
    pub(crate) fn transaction_asks_first(&self) -> bool {
        let has_doubt = self.doubt.swap(false, Ordering::AcqRel);
        has_doubt || !self.alone.load(Ordering::Acquire) && self.asks_first()
    }

    /// Reads of the calling thread that take no round trip and wait for nothing: out of the cache. `None` where something was not
    /// in it, or where a view has to ask first ([`Freshness`]). What `read` made of the rest is not to be believed then, and the
    /// same is to be read again by a thread that may wait.
    pub fn at_hand<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        if self.asks_first() { None } else { read_faults::at_hand(read) }
    }

    /// The same where a view would have to ask first, and the number of the commit that the reads were as of. Nobody may be shown what was
    /// made of them before the engine was asked, later than this, and [told of no newer commit](Self::hear).
    pub fn as_known<T>(&self, read: impl FnOnce() -> T) -> Option<(u64, T)> {
        // Where nothing has to be asked first, they were tried at hand.
        if !self.asks_first() {
            return None;
        }
        let known = self.newest();
        let read = read_faults::asking_first(false, || read_faults::at_hand(read))?;
        Some((known, read))
    }

    /// Reads of the calling thread that see everything which was acknowledged by any node before, as with [`Freshness::Strict`].
    pub fn afresh<T>(&self, read: impl FnOnce() -> T) -> T {
        read_faults::asking_first(true, read)
    }

    /// Nanoseconds since the store was opened, never 0.
    pub(crate) fn clock(&self) -> u64 {
        u64::try_from(now().saturating_sub(self.opened).as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// The newest commits are known as of a question that was sent at this time of [`Self::clock`].
    pub(crate) fn note_contact(&self, sent: u64) {
        self.last_contact.fetch_max(sent, Ordering::AcqRel);
    }

    pub(crate) fn numbers(&self) -> &[u8] {
        &self.numbers
    }

    /// What became of a commit without an answer; `None` if there is no such one.
    pub(crate) fn became(&self, attempt: Attempt) -> Option<Result<Option<CommitId>, Fault>> {
        let unanswered = self.attempts().unanswered.iter().find(|asked| asked.number == attempt.0).cloned();
        unanswered.map(|unanswered| self.settle(&unanswered))
    }

    /// What is known here may be old: the next transaction asks.
    pub(crate) fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
    }

    pub(crate) fn conflict(&self) -> CommitError {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
        self.doubt();
        CommitError::Conflict
    }

    /// Under which epoch this handle commits.
    pub(crate) fn epoch(&self) -> Result<u64, CommitError> {
        let mut own = self.epoch.load(Ordering::Acquire);
        if own == 0 || own == RESIGNED {
            own = self.settles_under().unwrap_or(own);
        }
        if own == 0 {
            return Err(CommitError::ReadOnly { after_failed_sync: false });
        }
        if own == RESIGNED || self.newest_epoch.load(Ordering::Acquire) > own {
            Err(CommitError::Fenced)
        } else {
            Ok(own)
        }
    }

    /// The same; waits for an epoch that is [expected](KvStore::expect_take_over).
    pub(crate) fn epoch_in_time(&self) -> Result<u64, CommitError> {
        if self.expectation.wait(|| self.epoch().is_ok(), now) {
            let text = "this server opened it anew and has not come to write since: try again";
            return Err(CommitError::Unavailable(std::io::Error::other(text)));
        }
        self.epoch()
    }

    /// The epoch that this handle was given; 0: none.
    pub(crate) fn own_epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// What tells this handle from every other one.
    pub(crate) fn handle(&self) -> [u8; 8] {
        self.attempts().handle
    }

    /// The epoch in which this thread settles what comes before others' commits.
    fn settles_under(&self) -> Option<u64> {
        let settling = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        settling.filter(|(thread, _)| *thread == thread::current().id()).map(|(_, epoch)| epoch)
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What makes a commit one of this handle's and no other.
    pub(crate) fn new_attempt(&self) -> Vec<u8> {
        let mut attempts = self.attempts();
        attempts.last += 1;
        [attempts.handle, attempts.last.to_be_bytes()].concat()
    }

    /// A commit that wants `version` got no answer.
    pub(crate) fn unanswered(&self, version: u64, attempt: Vec<u8>) -> CommitError {
        self.doubt();
        let mut attempts = self.attempts();
        attempts.last += 1;
        let number = attempts.last;
        if attempts.unanswered.len() >= ATTEMPTS_MAX {
            attempts.unanswered.pop_front();
        }
        attempts.unanswered.push_back(Unanswered { number, version, attempt });
        CommitError::OutcomeUnknown(Attempt(number))
    }

    fn settle(&self, unanswered: &Unanswered) -> Result<Option<CommitId>, Fault> {
        let Unanswered { version, attempt, .. } = unanswered;
        let made = self.engine.settle(*version, attempt, &self.new_attempt());
        self.doubt();
        Ok(made?.then_some(CommitId(*version)))
    }
}

/// Cached data is never right because of the time: it only says when to ask again.
///
/// The clock goes on while the machine is suspended, as other nodes do.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The time in which only one thread of a handle commits.
struct Settling<'s>(&'s KvStore);

impl<'s> Settling<'s> {
    fn begin(store: &'s KvStore, epoch: u64) -> Self {
        let settling = Some((thread::current().id(), epoch));
        *store.settling.lock().unwrap_or_else(PoisonError::into_inner) = settling;
        Self(store)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        *self.0.settling.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
