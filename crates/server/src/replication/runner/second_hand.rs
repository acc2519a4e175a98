//! What a slapd tells of servers that other lines of the database follow.
//!
//! A slapd that follows access logs carries out another server's change on the entry that has the name by then, and passes over what it
//! cannot carry out. Its log and its cookies name the change all the same. One that is sent entries may be sent an entry that has to give
//! its name to another one as a delete and an add, and passes the delete on as any other. So a modification, a rename or a delete
//! of a server that another line follows is taken from that line alone, and only that line raises the server's contextCSN.

use std::collections::BTreeSet;

use larix_engine::csn::Csn;
use larix_engine::log::LoggedChange;
use larix_engine::replica::ReplicatedChange;
use larix_replication::consumer::ConsumerPhase;

use super::Runner;

/// A line that has heard nothing for so long, in microseconds, is not waited for: what others tell counts then.
const SILENCE_MAX: u64 = 3_600_000_000;

/// What one session leaves to other lines.
#[derive(Debug, Default)]
pub(super) struct SecondHand {
    /// The provider keeps no states: it is a slapd.
    is_stateless: bool,
    /// The session has not begun with an empty database, or has filled it.
    is_filled: bool,
    /// The servers to whose lines something was left.
    left: BTreeSet<u16>,
}

impl SecondHand {
    pub(super) fn new(is_stateless: bool, is_filled: bool) -> Self {
        Self { is_stateless, is_filled, left: BTreeSet::new() }
    }

    /// Takes out what is left to the lines of these servers. An add stays, and so does an entry as it is: it says by itself which one it
    /// is.
    ///
    /// # Errors
    /// No line follows a server any more to which something was left: the session has to ask for that again.
    fn leave(
        &mut self,
        followed: &BTreeSet<u16>,
        changes: &mut Vec<ReplicatedChange>,
        csns: &mut Vec<Csn>,
    ) -> Result<(), String> {
        if let Some(id) = self.left.difference(followed).next() {
            return Err(format!(
                "no line has heard from the server ID {id} for an hour: its changes are asked for here again"
            ));
        }
        let mut is_first_hand = |csn: &Csn| {
            let is_left = followed.contains(&csn.server_id);
            if is_left {
                self.left.insert(csn.server_id);
            }
            !is_left
        };
        changes.retain(|change| match change {
            ReplicatedChange::Delta { csn, change, .. } if !matches!(change, LoggedChange::Add(_)) => {
                is_first_hand(csn)
            }
            ReplicatedChange::Delete { csn: Some(csn), .. } => is_first_hand(csn),
            _ => true,
        });
        csns.retain(is_first_hand);
        Ok(())
    }
}

impl Runner {
    /// Takes out of a batch what is left to other lines. Whether there is still something to do.
    ///
    /// # Errors
    /// What was left to a line has to be asked for again.
    pub(super) fn keep_first_hand(
        &mut self,
        changes: &mut Vec<ReplicatedChange>,
        csns: &mut Vec<Csn>,
        refreshing: bool,
    ) -> Result<bool, String> {
        self.second_hand.is_filled |= !refreshing;
        if !(self.second_hand.is_stateless && self.second_hand.is_filled) {
            return Ok(true);
        }
        let followed = self.followed_by_others();
        let was_empty = changes.is_empty() && csns.is_empty();
        self.second_hand.leave(&followed, changes, csns)?;
        Ok(was_empty || !(changes.is_empty() && csns.is_empty()))
    }

    /// The server IDs of the providers of the database's other lines that bring the same.
    fn followed_by_others(&self) -> BTreeSet<u16> {
        if self.task.is_part {
            return BTreeSet::new();
        }
        let (now, started) = (self.server.now(), self.server.statistics.started);
        let own = &self.task;
        let provider = self.status.get().provider_id;
        let running = self.server.consumers.lock();
        let others = running.iter().filter(|other| {
            let line = &other.task.line;
            let brings_the_same = (&line.attributes, &line.except_attributes)
                == (&own.line.attributes, &own.line.except_attributes);
            other.task.database == own.database && line.rid != own.line.rid && brings_the_same
        });
        let ids = others.filter_map(|other| {
            let status = other.status.get();
            let has_ended = matches!(status.phase, ConsumerPhase::GivenUp | ConsumerPhase::Stopped);
            let hears = !has_ended && status.silence(now, started) <= SILENCE_MAX;
            status.provider_id.filter(|_| hears)
        });
        ids.filter(|id| Some(*id) != provider && Some(*id) != own.sid).collect()
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn csn(server_id: u16) -> Csn {
        Csn { time: Timestamp(1), count: 0, server_id, modification: 0 }
    }

    fn delta(server_id: u16, change: LoggedChange) -> ReplicatedChange {
        let dn = "cn=x,dc=example,dc=com".to_owned();
        ReplicatedChange::Delta {
            entry_uuid: None,
            dn,
            csn: csn(server_id),
            change,
            place: None,
            whole: false,
        }
    }

    #[test]
    fn changes_are_left_to_the_line_that_follows_their_server() {
        let followed = BTreeSet::from([2]);
        let mut hearing = SecondHand::new(true, true);
        let mut changes = vec![
            delta(2, LoggedChange::Add(Vec::new())),
            delta(2, LoggedChange::Delete),
            delta(3, LoggedChange::Delete),
            delta(2, LoggedChange::Modify(Vec::new())),
            delta(4, LoggedChange::Modify(Vec::new())),
            ReplicatedChange::Delete { entry_uuid: Uuid::nil(), csn: Some(csn(2)) },
            ReplicatedChange::Delete { entry_uuid: Uuid::nil(), csn: Some(csn(5)) },
        ];
        let mut csns = vec![csn(2), csn(3), csn(4)];
        assert_eq!(hearing.leave(&followed, &mut changes, &mut csns), Ok(()));
        let of: Vec<u16> = changes
            .iter()
            .filter_map(|change| match change {
                ReplicatedChange::Delta { csn, .. } | ReplicatedChange::Delete { csn: Some(csn), .. } => {
                    Some(csn.server_id)
                }
                _ => None,
            })
            .collect();
        assert_eq!((of, csns), (vec![2, 3, 4, 5], vec![csn(3), csn(4)]));
    }

    #[test]
    fn what_was_left_to_a_line_that_hears_nothing_is_asked_for_again() {
        let mut hearing = SecondHand::new(true, true);
        let nobody = BTreeSet::new();
        assert_eq!(
            hearing.leave(&nobody, &mut vec![delta(2, LoggedChange::Delete)], &mut Vec::new()),
            Ok(())
        );
        let mut csns = vec![csn(2)];
        assert_eq!(hearing.leave(&BTreeSet::from([2, 3]), &mut Vec::new(), &mut csns), Ok(()));
        assert_eq!(hearing.leave(&BTreeSet::from([2]), &mut Vec::new(), &mut csns), Ok(()));
        let asks_again = hearing.leave(&BTreeSet::from([3]), &mut Vec::new(), &mut vec![csn(3)]);
        assert!(asks_again.is_err_and(|why| why.contains("server ID 2")));
    }
}
