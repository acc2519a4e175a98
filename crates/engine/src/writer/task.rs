//! Work that the configuration asks of a writer. The writer does it between two groups of changes, so that one configuration holds
//! for a whole group.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use larix_store::{CommitError, Durability, Store};

use super::core::Core;
use super::entrance::Work;
use super::log_upkeep::LogUpkeep;
use super::queue::Queue;
use crate::catalog::Catalog;
use crate::database::DatabaseSettings;
use crate::entry::AttributeNumber;
use crate::failure::commit_failed;
use crate::fault::{Fault, commit_fault};
use crate::index::{IndexConfig, Kinds};
use crate::injected;
use crate::load::{FillRequest, Rebuild};
use crate::log;
use crate::tables::{META, meta};
use crate::tree;
use crate::write::RetiringDefinitions;
use crate::write::WriterEnvironment;

/// What another configuration says of a database that stays open.
#[derive(Clone, Debug)]
pub struct Reconfiguration {
    /// Types and classes have the numbers that they had.
    pub schema: Arc<Schema>,
    pub settings: DatabaseSettings,
    pub environment: WriterEnvironment,
}

/// What is done before a writer follows another configuration: no change comes in between.
pub struct Preparation(Box<dyn FnOnce() + Send>);

impl Preparation {
    pub fn new(prepare: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(prepare))
    }
}

impl fmt::Debug for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparation").finish_non_exhaustive()
    }
}

/// One thing asked of a writer, and whom to tell that it is done.
#[derive(Debug)]
pub(crate) enum WriterTask {
    Retire(RetiringDefinitions, SyncSender<()>),
    /// Forgets, durably, the indexes that these lines no longer want.
    ForgetIndexes(Arc<Schema>, IndexConfig, SyncSender<Result<(), CommitError>>),
    Reconfigure(Box<Reconfiguration>, Option<Preparation>, SyncSender<()>),
    /// Forgets, durably, how far the changes of a server had come that is no more.
    RetireServerId(u16, SyncSender<LdapResult>),
    /// Has indexes made anew: what there is of them is used no more, durably.
    Reindex(Rebuild, SyncSender<Result<(), CommitError>>),
    /// Keeps the states of entries from now on, durably; answers whether they are kept.
    KeepStates(SyncSender<Result<bool, CommitError>>),
    /// Keeps a row of the table meta, durably; none: removes it.
    KeepRow(Vec<u8>, Option<Vec<u8>>, SyncSender<Result<(), CommitError>>),
    /// Learns what the store holds now, where other servers may have written until now.
    FollowStore(SyncSender<Result<(), CommitError>>),
    /// Fills the database; answers at its beginning whether it can be.
    Fill(Box<FillRequest>, SyncSender<bool>),
}

impl<S: Store> Core<S> {
    pub(super) fn carry_out(&mut self, task: WriterTask, queue: &Queue<Work>) {
        injected::panic_at("task");
        // After a panic what is asked for is judged by what the store holds; if that cannot be read, so it cannot be now.
        let _ = self.renew();
        // A requester that no longer waits needs no answer.
        match task {
            WriterTask::Retire(retiring, reply) => {
                self.retiring = retiring;
                let _ = reply.send(());
            }
            WriterTask::ForgetIndexes(schema, index, reply) => {
                let _ = reply.send(self.forget_indexes(&schema, &index));
            }
            WriterTask::Reconfigure(next, preparation, reply) => {
                if let Some(Preparation(prepare)) = preparation {
                    prepare();
                    // What others wrote before. What cannot be read now is read before the next change.
                    let _ = self.learn_store();
                }
                self.reconfigure(*next);
                let _ = reply.send(());
            }
            WriterTask::RetireServerId(server_id, reply) => {
                let _ = reply.send(self.retire_server_id(server_id));
            }
            WriterTask::Reindex(what, reply) => {
                let _ = reply.send(self.reindex(&what));
            }
            WriterTask::KeepStates(reply) => {
                let _ = reply.send(self.keep_states());
            }
            WriterTask::KeepRow(key, row, reply) => {
                let _ = reply.send(self.keep_row(&key, row));
            }
            WriterTask::FollowStore(reply) => {
                let _ = reply.send(self.learn_store());
            }
            WriterTask::Fill(request, begun) => {
                let begun = |yes| {
                    let _ = begun.send(yes);
                };
                self.fill(*request, begun, queue);
            }
        }
    }

    fn retire_server_id(&mut self, server_id: u16) -> LdapResult {
        if server_id == self.environment.order.server_id() {
            let text = "this is the server's own id";
            return LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text);
        }
        let retired = self.commit_own(Durability::Sync, |_, transaction, set| {
            let is_known = log::retire_server_id(transaction, set, server_id).map_err(commit_fault)?;
            Ok(is_known.then_some(()))
        });
        match retired {
            Ok(Some(())) => LdapResult::success(),
            Ok(None) => {
                let text = format!("there is no contextCSN of the server id {server_id:03x}");
                LdapResult::with(ResultCode::NO_SUCH_ATTRIBUTE, text)
            }
            Err(error) => commit_failed(&error),
        }
    }

    /// The work begins with the next slice.
    fn reindex(&mut self, what: &Rebuild) -> Result<(), CommitError> {
        let catalog = self.commit_own(Durability::Sync, |own, _, set| {
            let mut catalog = Catalog::clone(&own.database.catalog());
            let numbers: Vec<AttributeNumber> = match what {
                Rebuild::Stale => Vec::new(),
                Rebuild::Attributes(numbers) => numbers.clone(),
                Rebuild::All => catalog.rows().iter().map(|row| row.number).collect(),
            };
            for number in numbers {
                catalog.set_built(number, Kinds::NONE);
                catalog.write_row(number, set);
            }
            // What is under way does not know of it, and begins anew.
            set.delete(META, meta::INDEX_WORK);
            Ok(Some(catalog))
        })?;
        let committed = self.as_of.unwrap_or_default();
        self.database.publish_committed(committed, catalog.map(Arc::new));
        self.index_work.begin_anew();
        Ok(())
    }

    fn keep_states(&mut self) -> Result<bool, CommitError> {
        let settings = self.database.settings();
        if !settings.can_keep_states() {
            return Ok(settings.keeps_states());
        }
        self.commit_own(Durability::Sync, |_, _, set| {
            set.put(META, meta::STATES_KEPT, []);
            Ok(Some(()))
        })?;
        self.database.publish_states();
        Ok(true)
    }

    fn keep_row(&mut self, key: &[u8], row: Option<Vec<u8>>) -> Result<(), CommitError> {
        self.commit_own(Durability::Sync, |_, _, set| {
            match &row {
                Some(row) => set.put(META, key, row.clone()),
                None => set.delete(META, key),
            }
            Ok(Some(()))
        })?;
        Ok(())
    }

    fn learn_store(&mut self) -> Result<(), CommitError> {
        self.commit_own(Durability::Sync, |_, _, _| Ok(None::<()>))?;
        self.note_answered();
        Ok(())
    }

    fn forget_indexes(&self, schema: &Schema, index: &IndexConfig) -> Result<(), CommitError> {
        self.database.settle_indexes(schema, index).map(drop)
    }

    /// As at the start: what is changed here comes after what others changed, too. Sequences go on under the next server id.
    fn follow_order(&mut self, environment: &WriterEnvironment) -> Result<(), Fault> {
        let (server_id, now) = (environment.order.server_id(), environment.clock.now());
        let snapshot = self.database.store().snapshot()?;
        let known = log::context_csns(&snapshot)?;
        for csn in known.iter().chain(self.counters.highest.as_slice()) {
            environment.order.follow(csn, now);
        }
        if server_id != self.environment.order.server_id() {
            let (log, highest) = LogUpkeep::new(&snapshot, server_id)?;
            (self.log, self.counters.highest) = (log, highest);
        }
        Ok(())
    }

    fn reconfigure(&mut self, next: Reconfiguration) {
        let Reconfiguration { schema, settings, environment } = next;
        let server_id = environment.order.server_id();
        let is_same_order = Arc::ptr_eq(&self.environment.order, &environment.order);
        if !is_same_order && self.follow_order(&environment).is_err() {
            // It is read before the next change is carried out.
            self.as_of = None;
        }
        self.database.set_server_id(server_id);
        // The work on indexes went on since they were forgotten. Should this fail, the next to open the database does it.
        let _ = self.database.settle_indexes(&schema, &settings.index);
        self.index_work.set_watch(environment.index_watch.clone());
        self.environment = environment;
        self.note_answered();
        self.retiring = RetiringDefinitions::default();
        self.database.publish_configuration(schema, settings);
        self.claim_content();
        let database = Arc::clone(&self.database);
        self.back_link_walk.look(&database);
        tree::forget(self.instance);
    }
}
