//! What a writer does with its change log beside appending to it: the oldest records go, marks are set, a history begins
//! or ends.
//!
//! **It holds as of the last commit**: what a group comes to is a value of its own ([`LogUpkeep::along`]), which takes the
//! place of the one before once it is committed.

use larix_store::{Snapshot, WriteSet};
use uuid::Uuid;

use crate::fault::Fault;
use crate::log::{self, CsnVector, GroupMarks, Marker, TrimState, Trimmer};
use crate::replica_state;
use crate::time::RandomSource;
use crate::write::operator::Counters;

/// Where the log of the writer's server begins, where its marks are, and whether it tells a history.
#[derive(Clone, Debug)]
pub(super) struct LogUpkeep {
    /// What of the log has to go.
    trimmer: Trimmer,
    marker: Marker,
    has_history: bool,
}

/// What a group did to the log.
#[derive(Debug)]
pub(super) struct GroupLog<'a> {
    pub(super) server_id: u16,
    /// Whether the group's changes are in the log.
    pub(super) is_logged: bool,
    pub(super) before: &'a Counters,
    pub(super) behind: &'a Counters,
}

impl LogUpkeep {
    /// What is stored, and the highest CSN of each origin.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn new<V: Snapshot>(snapshot: &V, server_id: u16) -> Result<(Self, CsnVector), Fault> {
        let (marker, highest) = Marker::new(snapshot, server_id)?;
        let trimmer = Trimmer::new(snapshot, server_id)?;
        let has_history = log::history(snapshot)?.is_some();
        Ok((Self { trimmer, marker, has_history }, highest))
    }

    /// The sequence of the oldest record.
    pub(super) fn first(&self) -> u64 {
        self.trimmer.first()
    }

    /// Whether records have to go without any change.
    pub(super) fn is_behind(&self) -> bool {
        self.trimmer.is_behind()
    }

    /// What was just committed is not in the log, and neither is a history any more.
    pub(super) fn history_ended(&mut self) {
        self.has_history = false;
    }

    /// Adds what the log needs to a group's changes: twice as many of the oldest records go as it logged, so that none pays
    /// for many before it. Answers what holds once the set is committed.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn along<T: Snapshot>(
        &self,
        transaction: &T,
        set: &mut WriteSet,
        logged: &GroupLog<'_>,
        now: &TrimState,
        random: &dyn RandomSource,
    ) -> Result<Self, Fault> {
        let GroupLog { server_id, is_logged, before, behind } = *logged;
        let records = behind.last_log_sequence - before.last_log_sequence;
        let trimmer = self.trim(transaction, set, now, 2 * records)?;
        let begun = self.settle_history(set, is_logged, random);
        let marker = if is_logged {
            let marked = GroupMarks {
                server_id,
                before: (before.last_log_sequence, &before.highest),
                behind: (behind.last_log_sequence, &behind.highest),
                first: trimmer.first(),
            };
            self.marker.along(transaction, set, begun, &marked)?
        } else {
            Marker::default()
        };
        Ok(Self { trimmer, marker, has_history: is_logged })
    }

    /// Removes a slice of what need not be kept. Answers what holds once the set is committed.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn alone<T: Snapshot>(
        &self,
        transaction: &T,
        set: &mut WriteSet,
        now: &TrimState,
        limit: u64,
    ) -> Result<Self, Fault> {
        let trimmer = self.trim(transaction, set, now, limit)?;
        Ok(Self { trimmer, ..self.clone() })
    }

    /// Removes the oldest records of the log beyond those that are kept, `limit` at most or what goes together.
    fn trim<T: Snapshot>(
        &self,
        transaction: &T,
        set: &mut WriteSet,
        now: &TrimState,
        limit: u64,
    ) -> Result<Trimmer, Fault> {
        let trimmer = self.trimmer.slice(transaction, set, now, limit)?;
        let gone = trimmer.first().saturating_sub(self.first());
        if gone > 0 {
            // What is remembered of as many records, and of more, should some of it have been left.
            replica_state::trim(transaction, set, trimmer.first(), limit.max(2 * gone) as usize)?;
        }
        Ok(trimmer)
    }

    /// A group that is not logged ends the history that the log tells; the first one that is begins another, which is
    /// answered.
    fn settle_history(&self, set: &mut WriteSet, is_logged: bool, random: &dyn RandomSource) -> Option<Uuid> {
        match (is_logged, self.has_history) {
            (true, false) => return Some(log::put_history(set, random)),
            (false, true) => log::end_history(set),
            _ => {}
        }
        None
    }
}
