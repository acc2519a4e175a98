//! The first content of an empty database, stored as a whole as by a load.
//!
//! **It is there with its contextCSN, or not at all**: what cannot be stored so is asked for again, to be stored in batches.

use larix_engine::csn::Csn;
use larix_engine::load::{Fill, FillOptions, LoadError};
use larix_engine::replica::ReplicatedChange;
use larix_proto::ResponseMessage;
use larix_replication::consumer::{Action, BATCH_CHANGES, FirstEntry, Session};

use super::batches::Manner;
use super::{Runner, SessionEnd};
use crate::services::cores;

/// How often the first content is taken as a whole. A provider that is gone before its end each time gets further with
/// batches, which stay.
const FILLS: u32 = 5;
/// Threads that encode entries of the first content, at most.
const FILL_THREADS: usize = 4;

pub(super) struct FirstContent {
    /// On its way into the database.
    fill: Option<Fill>,
    /// Deletes that came beside it, to send to others.
    buried: Vec<ReplicatedChange>,
    /// How often it may be tried.
    left: u32,
    /// Nothing of the session has come yet.
    may_begin: bool,
}

impl FirstContent {
    pub(super) fn new() -> Self {
        Self { fill: None, buried: Vec::new(), left: FILLS, may_begin: false }
    }

    pub(super) fn session_begins(&mut self) {
        self.may_begin = true;
    }

    pub(super) fn is_underway(&self) -> bool {
        self.fill.is_some()
    }

    /// What of it came is thrown away.
    pub(super) fn abandon(&mut self) {
        (self.fill, self.buried) = (None, Vec::new());
    }
}

impl Runner {
    /// Takes an entry of the first content; `None`: it is the session's to take.
    pub(super) fn take_first(
        &mut self,
        session: &Session,
        message: &ResponseMessage<'_>,
    ) -> Option<Result<(), LoadError>> {
        let first = session.first_entry(message);
        if session.is_answer(message)
            && std::mem::take(&mut self.first.may_begin)
            && let Some(first) = &first
        {
            // They are kept before the first of them comes; the session says so later than that.
            if first.state.is_some() && self.keep_states().is_err() {
                return None;
            }
            self.begin_fill();
        }
        let (fill, FirstEntry { uuid, entry, state }) = self.first.fill.as_mut().zip(first)?;
        Some(fill.add(uuid, entry, state))
    }

    /// An action of the session while the first content is on its way.
    pub(super) fn carry_out_during_first_content(
        &mut self,
        action: Action,
        full: bool,
    ) -> Result<Option<SessionEnd>, String> {
        match action {
            Action::Apply { changes, csns, .. } if changes.iter().all(is_delete) => {
                let is_end = changes.is_empty() || !csns.is_empty();
                self.first.buried.extend(changes);
                if is_end { self.finish_fill((csns, true), full) } else { Ok(None) }
            }
            Action::Apply { .. } => {
                let why = "the provider sends more than entries";
                Ok(Some(self.fill_failed(&LoadError::Stopped(why))))
            }
            // Nothing was here that could be absent.
            Action::DeleteAbsent { csns, deletes_told, .. } => self.finish_fill((csns, !deletes_told), full),
            Action::Refreshed => {
                let ended = self.finish_fill((Vec::new(), false), full)?;
                if ended.is_none() {
                    self.refreshed();
                }
                Ok(ended)
            }
            Action::End(_) | Action::Note(_) | Action::KeepStates => self.carry_out_in_batches(action, full),
        }
    }

    /// Into an empty database the first content goes as a whole, if it is all of a suffix.
    fn begin_fill(&mut self) {
        let Some(database) = self.task.database.clone() else { return };
        let rules = self.task.rules(&self.schema(), true);
        // A fill raises the contextCSN, and not how far one of several lines has come.
        let is_part = self.task.is_part;
        if self.first.left == 0 || is_part || !self.task.is_whole() || !rules.attributes.is_whole() {
            return;
        }
        self.first.buried.clear();
        self.first.fill = database.fill(FillOptions {
            scratch: self.task.directory.clone(),
            schema_checking: rules.schema_checking,
            threads: cores().min(FILL_THREADS),
        });
        if self.first.fill.is_some() {
            self.first.left -= 1;
            self.tell("the database is empty: it is filled as by a load");
        }
    }

    /// The first content has come. Nothing of the deletes that came with it was here, and others may have it: they are to be
    /// told of them. `by_content`: the provider has not named what was deleted there.
    fn finish_fill(
        &mut self,
        (csns, by_content): (Vec<Csn>, bool),
        full: bool,
    ) -> Result<Option<SessionEnd>, String> {
        self.judge_clocks(&csns);
        let newest = csns.iter().map(|csn| csn.time).max();
        let Some(fill) = self.first.fill.take() else { return Ok(None) };
        let buried = std::mem::take(&mut self.first.buried);
        // A crash may come before the deletes are stored. Without a contextCSN all is asked for again, with one they never are.
        let proved = if buried.is_empty() { csns.clone() } else { Vec::new() };
        // Of a server that takes changes from its provider alone nobody asks for what never came here.
        let by_content = by_content && self.task.rules(&self.schema(), true).multi_provider;
        let filled = match by_content {
            true => fill.finish_by_content(proved),
            false => fill.finish(proved),
        };
        let entries = match filled {
            Ok(entries) => entries,
            Err(error) => return Ok(Some(self.fill_failed(&error))),
        };
        if entries > 0 {
            self.tell(&format!("the database was filled with {entries} entries"));
        }
        self.status.change(|status| {
            status.counts.applied += entries;
            status.last_change = newest.max(status.last_change);
        });
        let manner = Manner { refreshing: true, full, by_content, provider: None, elsewhere: false };
        // A provider remembers any number of deletes, and what is not yet stored waits behind each batch.
        let mut batches = buried.chunks(BATCH_CHANGES).peekable();
        while let Some(batch) = batches.next() {
            let csns = if batches.peek().is_none() { csns.clone() } else { Vec::new() };
            self.apply(batch.to_vec(), csns, manner)?;
        }
        self.settle()?;
        Ok(None)
    }

    /// What cannot be stored as a whole is asked for again, to be stored in batches, unless something else was in the way.
    pub(super) fn fill_failed(&mut self, error: &LoadError) -> SessionEnd {
        self.first.abandon();
        if !matches!(error, LoadError::Stopped(_)) {
            self.first.left = 0;
        }
        SessionEnd::Again(format!("the database was not filled, the content is asked for again: {error}"))
    }
}

fn is_delete(change: &ReplicatedChange) -> bool {
    matches!(change, ReplicatedChange::Delete { .. })
}
