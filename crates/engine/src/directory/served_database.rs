//! A database with its writer, whichever directory they are part of.

use std::sync::{Arc, Weak};

use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use larix_store::{CommitError, Store};

use crate::access::Subject;
use crate::change::prepare::PreparedChange;
use crate::controls::RequestControls;
use crate::database::Database;
use crate::index::{IndexConfig, IndexStatus, NotIndexed};
use crate::load::Rebuild;
use crate::overlay::{FollowUpElsewhere, PasswordWork};
use crate::time::{Clock, RandomSource};
use crate::write::task::{Follow, Task};
use crate::write::{Completion, Recording, RetiringDefinitions, WriterEnvironment};
use crate::writer::{Job, Preparation, RETIRED, Reconfiguration, Writer, WriterStartError, WriterTask};

/// A database with its writer.
#[derive(Debug)]
pub struct ServedDatabase<S: Store> {
    pub(super) database: Arc<Database<S>>,
    pub(crate) writer: Writer,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn RandomSource>,
}

/// A served database as a search under way refers to it: open during a slice, and not kept open between slices. So a client that does
/// not read its answers holds up neither the removal of the database nor its restore.
#[derive(Debug)]
pub struct DatabaseHandle<S: Store>(Weak<ServedDatabase<S>>);

impl<S: Store> DatabaseHandle<S> {
    pub fn new(served: &Arc<ServedDatabase<S>>) -> Self {
        Self(Arc::downgrade(served))
    }

    /// The database for one slice.
    ///
    /// # Errors
    /// unavailable: it was retired.
    pub fn open(&self) -> Result<Arc<ServedDatabase<S>>, LdapResult> {
        let served = self.0.upgrade().filter(|served| !served.is_retired());
        served.ok_or_else(|| LdapResult::with(ResultCode::UNAVAILABLE, RETIRED))
    }

    /// As [`Self::open`], without its writer.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn database(&self) -> Result<Arc<Database<S>>, LdapResult> {
        self.open().map(|served| Arc::clone(served.database()))
    }
}

impl<S: Store> ServedDatabase<S> {
    /// Starts the writer of an open database.
    ///
    /// # Errors
    /// A store that cannot be read, a schema without the system's elements, or no thread to be had.
    pub fn start(
        database: Arc<Database<S>>,
        environment: WriterEnvironment,
    ) -> Result<Self, WriterStartError> {
        let (clock, random) = (Arc::clone(&environment.clock), Arc::clone(&environment.random));
        let writer = Writer::start(Arc::clone(&database), environment)?;
        Ok(Self { database, writer, clock, random })
    }

    pub fn database(&self) -> &Arc<Database<S>> {
        &self.database
    }

    /// The root DN as a subject: in whose name the server keeps an account's state.
    pub fn root_subject(&self) -> Arc<Subject> {
        let settings = self.database.current_settings();
        Arc::new(match &settings.root_dn {
            Some(root) => Subject::default().bound_as(root.clone(), &settings.root_dn_text),
            None => Subject::default(),
        })
    }

    /// Writes records of an access log. `completion` is called once, on the writer's thread or here.
    pub fn record(&self, recording: Recording, completion: Completion) {
        let target = recording.suffix_text.clone();
        self.submit_own(target, PreparedChange::Record(Arc::new(recording)), None, completion);
    }

    /// Has the writer look for work of its own, which it may do from now on.
    pub fn wake_writer(&self) {
        self.writer.wake();
    }

    /// Has a change carried out that the server itself makes, in the name of the root DN.
    pub(super) fn submit_own(
        &self,
        target: String,
        operation: PreparedChange,
        passwords: Option<Arc<PasswordWork>>,
        completion: Completion,
    ) {
        let task = Task::new(operation, target, self.root_subject(), RequestControls::default());
        self.submit(vec![Task { passwords, ..task }], completion);
    }

    /// Has what follows here from a change of another database carried out, in the name of the root DN.
    pub(super) fn submit_follow_up(&self, follow_up: Arc<dyn FollowUpElsewhere>, completion: Completion) {
        let follow = Some(Follow { follow_up, subject: self.root_subject() });
        self.writer.submit(Job { tasks: Vec::new(), replicated: None, follow, completion });
    }

    /// Has changes carried out together.
    pub(super) fn submit(&self, tasks: Vec<Task>, completion: Completion) {
        self.writer.submit(Job { tasks, replicated: None, follow: None, completion });
    }

    /// The state of each index, how far a build is, and what indexes are used for.
    pub fn index_status(&self) -> Vec<IndexStatus> {
        self.database.index_status()
    }

    /// Searches that no index could serve, the most frequent shapes first.
    pub fn not_indexed(&self) -> Vec<NotIndexed> {
        self.database.index_uses().not_indexed()
    }

    /// How many searches no index could serve.
    pub fn not_indexed_total(&self) -> u64 {
        self.database.index_uses().not_indexed_total()
    }

    /// From the answer on, no change brings these elements into an entry, until [`Self::reconfigure`] or another call of
    /// this says otherwise.
    pub fn retire_elements(&self, retiring: RetiringDefinitions) {
        // A writer that has ended changes nothing any more.
        let _ = self.writer.send(|reply| WriterTask::Retire(retiring, reply));
    }

    /// Makes it durable that indexes which these lines do not want are not kept: before [`Self::reconfigure`].
    ///
    /// # Errors
    /// A commit that failed; nothing has changed.
    pub fn forget_indexes(&self, schema: Arc<Schema>, index: IndexConfig) -> Result<(), CommitError> {
        self.writer.send(|reply| WriterTask::ForgetIndexes(schema, index, reply)).unwrap_or(Ok(()))
    }

    /// Has indexes made anew, beside changes and searches: these do without them meanwhile. Waits until that is durable, not
    /// until it is done: see [`Self::index_status`].
    ///
    /// # Errors
    /// A commit that failed; nothing has changed.
    pub fn reindex(&self, what: Rebuild) -> Result<(), CommitError> {
        self.writer.send(|reply| WriterTask::Reindex(what, reply)).unwrap_or(Ok(()))
    }

    /// Forgets how far the changes of a server had come that is no more: its contextCSN. Waits for the writer.
    pub fn retire_server_id(&self, server_id: u16) -> LdapResult {
        let ended = || LdapResult::with(ResultCode::UNAVAILABLE, "the writer has ended");
        self.writer.send(|reply| WriterTask::RetireServerId(server_id, reply)).unwrap_or_else(ended)
    }

    /// Keeps the states of entries from now on, as its provider does. Waits for the writer. Answers whether they are kept: without
    /// a change log or `lastmod` there is nothing that states could say.
    ///
    /// # Errors
    /// A commit that failed; nothing has changed.
    pub fn keep_states(&self) -> Result<bool, CommitError> {
        self.writer.send(WriterTask::KeepStates).unwrap_or(Ok(false))
    }

    /// Has the database follow another configuration, between two groups of changes.
    pub fn reconfigure(&self, next: Reconfiguration) {
        self.reconfigure_behind(None, next);
    }

    /// The same, with something that the writer does first, on its thread: no change comes between the two.
    pub fn reconfigure_behind(&self, preparation: Option<Preparation>, next: Reconfiguration) {
        let _ = self.writer.send(|reply| WriterTask::Reconfigure(Box::new(next), preparation, reply));
    }

    /// Carries out what waits and takes no more changes: the database has left the configuration.
    pub fn retire(&self) {
        self.writer.retire();
        self.database.log_watch().tell();
    }

    /// The same where another one takes its place: the same database, opened otherwise. Changes that still come go there.
    pub fn retire_for(&self, next: &Self) {
        self.writer.retire_for(&next.writer);
        self.database.log_watch().tell();
    }

    /// Whether the database has left the configuration: what is under way there ends.
    pub fn is_retired(&self) -> bool {
        self.writer.is_retired()
    }

    /// Changes that wait to be carried out.
    pub fn waiting_writes(&self) -> usize {
        self.writer.waiting()
    }
}
