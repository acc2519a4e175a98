//! The writer's part in the first fill of a database ([`crate::load::Fill`]): it permits the fill, and makes its last commit.

use larix_store::{CommitError, Direction, Durability, KeyRange, Snapshot, Store, Transaction};

use super::core::Core;
use super::entrance::Work;
use super::queue::Queue;
use super::task::WriterTask;
use crate::database::{begin_fill, discard_fill};
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::load::{Extent, FillContext, FillRemainder, FillRequest, LoadError};
use crate::log;
use crate::tables::{ENTRIES, META, REPLICA, meta};
use crate::tree;
use crate::write::training::Trainer;

impl<S: Store> Core<S> {
    /// Carries a fill out; `begun` hears first whether there is one.
    pub(super) fn fill(&mut self, request: FillRequest, begun: impl FnOnce(bool), queue: &Queue<Work>) {
        let fresh = self.clear_unfinished().is_ok() && self.is_fresh().unwrap_or(false);
        // From here on the store may have something of it.
        self.unfinished = fresh;
        if !(fresh && begin_fill(self.database.store()).is_ok()) {
            // What cannot be cleared away now stands in the way of the next change.
            let _ = self.clear_unfinished();
            return begun(false);
        }
        begun(true);
        self.database.set_filling(true);
        let FillRequest { feed, options, reply } = request;
        // Another one that wants to fill it waits for its turn, and will not find it empty.
        let is_fill = |work: &Work| matches!(work, Work::WriterTask(WriterTask::Fill(..)));
        let called_off = |is_idle: bool| {
            if queue.is_closed() {
                Some("the database is being closed")
            } else if queue.find(&|work| matches!(work, Work::WriterTask(_)) && !is_fill(work)) {
                Some("the configuration is changing")
            } else if is_idle && queue.find(&|work| !is_fill(work)) {
                Some("the provider is silent, and changes wait")
            } else {
                None
            }
        };
        let filling = FillContext {
            database: &self.database,
            clock: &*self.environment.clock,
            random: &*self.environment.random,
            called_off: &called_off,
        };
        let filled = filling.run(feed, &options).and_then(|filled| self.commit_fill(filled));
        tree::forget(self.instance);
        if filled.is_err() {
            let _ = self.clear_unfinished();
        }
        self.forget_merge();
        self.database.set_filling(false);
        // The requester may have gone.
        let _ = reply.send(filled);
    }

    /// Nothing was ever stored, nothing logged, and nobody has to be shown each change.
    fn is_fresh(&self) -> Result<bool, Fault> {
        let store = self.database.store();
        // What others write may come between a fill's commits.
        if S::SHARED
            || store.is_read_only()
            || self.counters.last_entry_id > 0
            || self.counters.last_log_sequence > 0
            || self.database.mirror().is_some()
        {
            return Ok(false);
        }
        let snapshot = store.snapshot()?;
        for table in [ENTRIES, REPLICA] {
            if snapshot.scan(table, KeyRange::all(), Direction::Forward)?.next().transpose()?.is_some() {
                return Ok(false);
            }
        }
        Ok(log::context_csns(&snapshot)?.is_empty())
    }

    fn commit_fill(&mut self, filled: FillRemainder) -> Result<u64, LoadError> {
        let FillRemainder { mut set, catalog, last_entry_id, entries, extent, states } = filled;
        let Extent { context_csns, by_content } = extent;
        states.store(&mut |set| {
            self.database.store().transaction()?.commit(set, Durability::NoMetaSync)?;
            Ok(())
        })?;
        let sampled = set.get(META, meta::DICTIONARY_SAMPLED).flatten().and_then(EntryId::from_prefix);
        let sampled = sampled.map_or(0, |id| id.0);
        let database = std::sync::Arc::clone(&self.database);
        let order = std::sync::Arc::clone(&self.environment.order);
        let _turn = order.turn_to_commit(database.store());
        let transaction = database.store().transaction()?;
        for csn in &context_csns {
            order.follow(csn, self.environment.clock.now());
            if !log::is_retired(&transaction, csn)? {
                log::put_context_csn(&mut set, csn);
                log::put_whole_csn(&mut set, csn);
                if by_content {
                    log::put_content_csn(&mut set, csn);
                }
            }
        }
        match context_csns.is_empty() {
            true => set.put(META, meta::UNPROVED, []),
            false => set.delete(META, meta::UNPROVED),
        }
        // What came is not in the change log: consumers of this server have to refresh.
        log::end_history(&mut set);
        // Nor was anybody asked which groups it is in.
        set.delete(META, meta::BACK_LINKS);
        database.publish_catalog(std::sync::Arc::clone(catalog.catalog()));
        transaction.commit(&set, database.settings().durability())?;
        self.unfinished = false;
        self.log.history_ended();
        self.counters.last_entry_id = last_entry_id;
        context_csns.iter().for_each(|csn| {
            self.counters.highest.note(*csn);
        });
        self.trainer = Trainer::new(true, last_entry_id, sampled);
        if let Some(catalog) = catalog.committed() {
            database.publish_catalog(catalog);
        }
        self.back_link_walk.look(&database);
        self.contexts_rose = true;
        self.note_answered();
        database.log_watch().tell();
        Ok(entries)
    }

    /// Clears away what a fill left that did not come to its end.
    ///
    /// # Errors
    /// A store that cannot be written: no change can be made before.
    pub(super) fn clear_unfinished(&mut self) -> Result<(), CommitError> {
        if self.unfinished {
            discard_fill(self.database.store())?;
            tree::forget(self.instance);
            self.unfinished = false;
        }
        Ok(())
    }
}
