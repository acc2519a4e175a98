//! What a writer knows between two groups, and whoever carries out a change has the use of.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use larix_schema::Schema;
use larix_store::{Direction, KeyRange, Snapshot, Store, Transaction, WriteSet};

use super::commit::GroupError;
use super::log_upkeep::LogUpkeep;
use super::{WriterEnvironment, WriterStartError};
use crate::csn::Csn;
use crate::database::{Database, next_instance};
use crate::fault::Fault;
use crate::index::merge::Merger;
use crate::log;
use crate::tables::{ENTRIES, META, meta};
use crate::tree;
use crate::write::index_work::IndexWork;
use crate::write::known::{KnownSchema, MissingElement};
use crate::write::membership_walk::MembershipWalk;
use crate::write::operator::Counters;
use crate::write::retiring::Retiring;
use crate::write::training;

/// All of it holds as of the last commit, the counters apart: numbers of a group that was not committed are not given twice.
#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) database: Arc<Database<S>>,
    pub(super) environment: WriterEnvironment,
    pub(super) counters: Counters,
    /// What no change may use any more, while it is found out whether it can leave the schema.
    pub(super) retiring: Retiring,
    /// What the rules and names of a schema are, looked up once.
    pub(super) known: (Arc<Schema>, Arc<KnownSchema>),
    pub(super) merger: Merger,
    pub(super) index_work: IndexWork,
    pub(super) membership_walk: MembershipWalk,
    /// Nothing has come for a while, and what is pending is being brought in.
    pub(super) quiet: bool,
    pub(super) log: LogUpkeep,
    /// Under which this thread caches names: those of changes that are not committed are nobody else's business.
    pub(super) instance: u64,
    /// The entry id from which on records are looked at for a new dictionary.
    pub(super) next_training: u64,
    /// A fill may have left something that is to be thrown away first.
    pub(super) unfinished: bool,
    /// A panic came amid something: what is known here is to be read again first.
    pub(super) doubtful: bool,
    /// A commit has begun, and what it brought is not published yet.
    pub(super) committing: bool,
    /// The thread that carried out something last: what another one remembers of names is no longer to be trusted.
    thread: Option<ThreadId>,
    /// Changes that other threads carried out themselves.
    pub(super) changes_elsewhere: u64,
    /// A contextCSN was raised, which whoever follows the log is to be told.
    pub(super) contexts_rose: bool,
    /// Whether the writer's thread waits no longer than until something is to be done beside changes.
    pub(super) looks_again: bool,
}

impl<S: Store> Core<S> {
    /// Learns what the database holds, and tells it where its log is.
    ///
    /// # Errors
    /// A store that cannot be read, or a schema that lacks what changes need.
    pub(super) fn new(
        database: Arc<Database<S>>,
        environment: WriterEnvironment,
    ) -> Result<Self, WriterStartError> {
        let server_id = environment.order.server_id();
        let snapshot = database.store().snapshot().map_err(Fault::from)?;
        let (log, highest) = LogUpkeep::new(&snapshot, server_id)?;
        let counters = Counters { highest, ..read_counters(&snapshot)? };
        // What came in a refresh that was broken off is not covered by the contextCSN.
        let logged = counters.highest.as_slice().iter().copied();
        for csn in log::context_csns(&snapshot)?.into_iter().chain(logged) {
            environment.order.follow(&csn, environment.clock.now());
        }
        let merger = Merger::new(&snapshot)?;
        drop(snapshot);
        let sequence = counters.last_log_sequence;
        database.writes().log_extent(log.first(), sequence);
        database.following().set_answered(log::LogKey { server_id, sequence }, false);
        database.set_server_id(server_id);
        let schema = database.schema();
        let known = Arc::new(KnownSchema::of(&schema).map_err(WriterStartError::Schema)?);
        let next_training = match database.catalog().dictionaries().is_empty() {
            true => training::FIRST,
            false => training::next_after(counters.last_entry_id),
        };
        let mut membership_walk = MembershipWalk::default();
        membership_walk.look(&database);
        Ok(Self {
            index_work: IndexWork::new(environment.index_watch.clone(), Arc::clone(&environment.clock)),
            membership_walk,
            database,
            environment,
            counters,
            retiring: Retiring::default(),
            known: (schema, known),
            merger,
            quiet: false,
            log,
            instance: next_instance(),
            next_training,
            unfinished: false,
            doubtful: false,
            committing: false,
            thread: None,
            changes_elsewhere: 0,
            contexts_rose: false,
            looks_again: false,
        })
    }

    /// To be called before anything is done on this thread.
    pub(super) fn take_up(&mut self) {
        let this = thread::current().id();
        if self.thread.replace(this) != Some(this) {
            tree::forget(self.instance);
        }
    }

    /// After a panic: reads again what the store holds. Numbers that were given out stay so.
    ///
    /// # Errors
    /// A store that cannot be read: nothing is written before.
    pub(super) fn renew(&mut self) -> Result<(), GroupError> {
        if !self.doubtful {
            return Ok(());
        }
        tree::forget(self.instance);
        self.database.set_filling(false);
        if self.committing {
            self.database.read_catalog_again()?;
        }
        let (database, environment) = (Arc::clone(&self.database), self.environment.clone());
        let fresh = Self::new(database, environment).map_err(|error| GroupError::Again(error.to_string()))?;
        let counters = Counters {
            last_entry_id: fresh.counters.last_entry_id.max(self.counters.last_entry_id),
            last_log_sequence: fresh.counters.last_log_sequence.max(self.counters.last_log_sequence),
            ..fresh.counters
        };
        let retiring = std::mem::take(&mut self.retiring);
        let (unfinished, thread) = (self.unfinished, self.thread);
        let (changes_elsewhere, looks_again) = (self.changes_elsewhere, self.looks_again);
        *self = Self { counters, retiring, unfinished, thread, changes_elsewhere, looks_again, ..fresh };
        Ok(())
    }

    /// Follows a change of the schema.
    pub(super) fn renew_known(&mut self) -> Result<(), MissingElement> {
        let schema = self.database.schema();
        if !Arc::ptr_eq(&schema, &self.known.0) {
            self.known = (Arc::clone(&schema), Arc::new(KnownSchema::of(&schema)?));
        }
        Ok(())
    }

    /// Tells who follows the log how far it may go: what is answered is durable.
    pub(super) fn note_answered(&mut self) {
        let server_id = self.environment.order.server_id();
        let answered = log::LogKey { server_id, sequence: self.counters.last_log_sequence };
        self.database.following().set_answered(answered, std::mem::take(&mut self.contexts_rose));
    }

    /// Content that is provided and of which nothing says how far it has come, as after a load, gets a contextCSN of ours:
    /// consumers can tell what comes later by it. A replica learns it from its provider.
    pub(super) fn claim_content(&mut self) {
        let settings = self.database.settings();
        if settings.provider.is_none() || settings.shadow || self.database.store().is_read_only() {
            return;
        }
        // What could not be written now is tried again at the next start; the first change brings a contextCSN, too.
        if let Ok(Some(csn)) = self.claim() {
            self.counters.highest.note(csn);
            self.database.log_watch().tell();
        }
    }

    fn claim(&self) -> Result<Option<Csn>, GroupError> {
        let order = &self.environment.order;
        let _turn = order.turn();
        let transaction = self.database.store().transaction()?;
        if !is_unclaimed(&transaction)? {
            return Ok(None);
        }
        let csn = order.next_csn(self.environment.clock.now());
        let mut set = WriteSet::new();
        log::put_context_csn(&mut set, &csn);
        transaction.commit(&set, self.database.settings().durability())?;
        Ok(Some(csn))
    }
}

/// Whether there are entries, and nothing says how far they have come, nor that this cannot be said.
fn is_unclaimed<V: Snapshot>(snapshot: &V) -> Result<bool, Fault> {
    if snapshot.get(META, meta::UNPROVED)?.is_some() || !log::context_csns(snapshot)?.is_empty() {
        return Ok(false);
    }
    let mut entries = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)?;
    Ok(entries.next().transpose()?.is_some())
}

/// What is stored of them: [`Counters::highest`] is the log's to say.
fn read_counters<V: Snapshot>(snapshot: &V) -> Result<Counters, Fault> {
    let last_entry_id = match snapshot.get(META, meta::LAST_ENTRY_ID)? {
        None => 0,
        Some(bytes) => {
            let damaged = Fault::Damaged { what: "the last entry id" };
            u64::from_be_bytes(bytes.as_ref().try_into().map_err(|_| damaged)?)
        }
    };
    let end = log::end(snapshot)?;
    let last_log_sequence = end.map_or(0, |end| end.sequence);
    let logged_bytes = end.map_or(Ok(0), |end| log::logged_bytes(snapshot, end.server_id))?;
    let highest = log::CsnVector::default();
    Ok(Counters { last_entry_id, last_log_sequence, logged_bytes, csn: None, highest })
}
