//! What a slapd tells of servers that other lines of the database follow.
//!
//! A slapd that follows access logs carries out another server's change on the entry that has the name by then, and passes over what it
//! cannot carry out. Its log and its cookies name the change all the same. So a modification, a rename or a delete of a server that
//! another line follows is taken from that line alone, and only that line raises the server's contextCSN.
//!
//! An entry that has to give its name to another one reaches a slapd as a delete and an add. The slapd passes both on, and does not say
//! whose the delete is. So such a delete waits for the add.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use larix_engine::csn::Csn;
use larix_engine::log::LoggedChange;
use larix_engine::replica::ReplicatedChange;
use larix_engine::time::{Clock as _, Monotonic};
use larix_replication::consumer::ConsumerPhase;
use uuid::Uuid;

use super::Runner;
use super::batches::Manner;

/// A line that has heard nothing for so long, in microseconds, is not waited for: what others tell counts then.
const SILENCE_MAX: u64 = 3_600_000_000;

/// So long a delete waits for an add of the same entry, in seconds.
const ADD_SECONDS: u32 = 10;

/// What one session leaves to other lines, and what it has to wait with.
#[derive(Debug, Default)]
pub(super) struct SecondHand {
    /// The provider keeps no states: it is a slapd.
    is_stateless: bool,
    /// The servers to whose lines something was left.
    left: BTreeSet<u16>,
    /// Entries that the provider deleted without a word of whose delete it was, each with the end of its wait.
    deletes: BTreeMap<Uuid, Monotonic>,
    /// The same in the order of their ends. One whose entry has come back, or was deleted again, stays until its turn.
    ends: VecDeque<(Monotonic, Uuid)>,
    /// They say that the deletes are done.
    csns: Vec<Csn>,
    /// How what waits came.
    manner: Option<Manner>,
}

impl SecondHand {
    pub(super) fn new(is_stateless: bool) -> Self {
        Self { is_stateless, ..Self::default() }
    }

    /// Keeps deletes that say nothing of their server, with the CSNs that stand for them, until then.
    fn wait_for_adds(&mut self, changes: &mut Vec<ReplicatedChange>, csns: &mut Vec<Csn>, until: Monotonic) {
        changes.retain(|change| match change {
            ReplicatedChange::Delete { entry_uuid, csn: None } => {
                self.deletes.insert(*entry_uuid, until);
                self.ends.push_back((until, *entry_uuid));
                false
            }
            ReplicatedChange::Put { entry_uuid, .. } => {
                self.deletes.remove(entry_uuid);
                true
            }
            _ => true,
        });
        let is_newer = |csns: &[Csn], known: &Csn| csns.iter().any(|csn| csn.server_id == known.server_id);
        self.csns.retain(|known| !is_newer(csns, known));
        self.csns.append(csns);
        if self.deletes.is_empty() {
            csns.append(&mut self.csns);
        }
    }

    /// The end of the first wait that still counts.
    fn first_end(&mut self) -> Option<(Monotonic, Uuid)> {
        while let Some(first) = self.ends.front().copied() {
            if self.deletes.get(&first.1) == Some(&first.0) {
                return Some(first);
            }
            self.ends.pop_front();
        }
        None
    }

    /// How long until the first delete has waited long enough; `None`: none waits.
    pub(super) fn waits(&mut self, now: Monotonic) -> Option<Duration> {
        let (until, _) = self.first_end()?;
        Some(Duration::from_nanos(until.0.saturating_sub(now.0)))
    }

    /// Deletes that have waited long enough, and the CSNs if none is left.
    fn take_due(&mut self, now: Monotonic) -> (Vec<ReplicatedChange>, Vec<Csn>) {
        let mut changes = Vec::new();
        while let Some((_, entry_uuid)) = self.first_end().filter(|(until, _)| *until <= now) {
            self.deletes.remove(&entry_uuid);
            changes.push(ReplicatedChange::Delete { entry_uuid, csn: None });
        }
        let csns = if self.deletes.is_empty() { std::mem::take(&mut self.csns) } else { Vec::new() };
        (changes, csns)
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
        manner: Manner,
    ) -> Result<bool, String> {
        let was_empty = changes.is_empty() && csns.is_empty();
        if self.second_hand.is_stateless {
            let followed = self.followed_by_others();
            self.second_hand.leave(&followed, changes, csns)?;
        }
        // A Larix always says whose a delete is, and an entry may leave a part at any time.
        let is_member = self.task.database.is_some() && self.task.sid.is_some() && !self.task.is_part;
        if is_member && !manner.refreshing {
            let until = self.server.clock.monotonic().plus_seconds(ADD_SECONDS);
            self.second_hand.wait_for_adds(changes, csns, until);
            self.second_hand.manner = Some(manner);
        }
        Ok(was_empty || !(changes.is_empty() && csns.is_empty()))
    }

    /// Carries out deletes for which no add has come.
    pub(super) fn apply_due(&mut self) -> Result<(), String> {
        let (changes, csns) = self.second_hand.take_due(self.server.clock.monotonic());
        match self.second_hand.manner {
            Some(manner) if !changes.is_empty() => self.write(changes, csns, manner),
            _ => Ok(()),
        }
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
        let mut hearing = SecondHand::new(true);
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
        let mut hearing = SecondHand::new(true);
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

    #[test]
    fn a_delete_of_nobody_waits_for_an_add() {
        let id = Uuid::from_u128;
        let delete = |number| ReplicatedChange::Delete { entry_uuid: id(number), csn: None };
        let put = |number| ReplicatedChange::Put {
            entry_uuid: id(number),
            dn: "cn=x,dc=example,dc=com".to_owned(),
            attributes: Vec::new(),
            state: None,
            place: None,
        };
        let until = Monotonic(0).plus_seconds(ADD_SECONDS);
        let mut hearing = SecondHand::new(true);
        let mut take = |mut changes: Vec<ReplicatedChange>, mut csns: Vec<Csn>, until| {
            hearing.wait_for_adds(&mut changes, &mut csns, until);
            (changes.len(), csns)
        };
        assert_eq!(take(vec![delete(1), delete(2)], vec![csn(2)], until), (0, vec![]));
        // What says that they are done waits, too.
        assert_eq!(take(vec![put(3)], vec![csn(3), csn(2)], until), (1, vec![]));
        assert_eq!(take(vec![put(1)], vec![], until), (1, vec![]));
        assert_eq!(take(vec![delete(4)], vec![], until.plus_seconds(1)), (0, vec![]));
        assert_eq!(hearing.waits(Monotonic(0)), Some(Duration::from_secs(ADD_SECONDS.into())));
        assert_eq!(hearing.take_due(Monotonic(0)).0.len(), 0);
        let (changes, csns) = hearing.take_due(until);
        assert!(
            matches!(&changes[..], [ReplicatedChange::Delete { entry_uuid, csn: None }] if *entry_uuid == id(2))
        );
        assert!(csns.is_empty(), "one still waits");
        let (changes, csns) = hearing.take_due(until.plus_seconds(1));
        assert_eq!((changes.len(), csns), (1, vec![csn(3), csn(2)]));
        assert_eq!(hearing.waits(until), None);
        // Where all have come back, the CSNs go with what comes next.
        let (mut changes, mut csns) = (vec![delete(5)], vec![csn(2)]);
        hearing.wait_for_adds(&mut changes, &mut csns, until);
        changes.push(put(5));
        hearing.wait_for_adds(&mut changes, &mut csns, until);
        assert_eq!((changes.len(), csns), (1, vec![csn(2)]));
    }

    #[test]
    fn an_entry_that_is_deleted_again_waits_anew() {
        let entry_uuid = Uuid::from_u128(1);
        let delete = || ReplicatedChange::Delete { entry_uuid, csn: None };
        let put = ReplicatedChange::Put {
            entry_uuid,
            dn: "cn=x,dc=example,dc=com".to_owned(),
            attributes: Vec::new(),
            state: None,
            place: None,
        };
        let until = Monotonic(0).plus_seconds(ADD_SECONDS);
        let mut hearing = SecondHand::new(true);
        hearing.wait_for_adds(&mut vec![delete(), put, delete()], &mut Vec::new(), until);
        hearing.wait_for_adds(&mut vec![delete()], &mut vec![csn(2)], until.plus_seconds(5));
        assert_eq!(hearing.waits(until), Some(Duration::from_secs(5)));
        assert_eq!(hearing.take_due(until).0.len(), 0);
        let (changes, csns) = hearing.take_due(until.plus_seconds(5));
        assert_eq!((changes.len(), csns), (1, vec![csn(2)]));
        assert_eq!(hearing.ends.len(), 0);
    }
}
