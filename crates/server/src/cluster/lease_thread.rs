//! Which node writes: a thread that holds the lease, or watches who does.
//!
//! **The lease decides who tries, and no more.** A node that believes to lead and does not is refused by the fence in its next commit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::database::{DatabaseOpenError, DatabaseSettings};
use larix_engine::time::{Clock, Monotonic};
use larix_engine::{Database, ServedDatabase};
use larix_kv::{Holding, Lease, ReadFault, take_read_fault};
use larix_schema::Schema;
use larix_store::Store as _;

use super::SharedStore;
use super::following::Follower;
use super::foreign_content::why_foreign;
use super::logged::{self, Logging};
use super::node_report;
use super::opening::{self, Failure, Opening};
use super::publication::Publication;
use super::published_configuration::{self, Unreadable};
use super::reasons::Reasons;
use super::role::{DAMAGED, OUT_OF_REACH, Role, WITHOUT_ROOM, Watch};
use crate::clock::{SystemClock, SystemRandom};
use crate::log::Log;

/// A node looks at the lease so many times while it lasts.
const LOOKS: u32 = 3;

/// How soon it looks again while changes wait for it to write.
const SOON: Duration = Duration::from_millis(50);

/// A node says what it is with a look at the lease, where that is another thing than before, or was said longer ago than this.
const REPORT_AGAIN: Duration = Duration::from_secs(3);

/// A reason why reads had no answer is logged again behind this.
const TROUBLE_AGAIN: Duration = Duration::from_secs(60);

/// The thread's own.
pub(super) struct Holder {
    pub(super) follower: Follower,
    pub(super) watch: Arc<Watch>,
    pub(super) opening: Arc<Opening>,
    pub(super) node: String,
    pub(super) lease: Duration,
    pub(super) suffix: String,
    pub(super) clock: Arc<SystemClock>,
    pub(super) log: Log,
}

/// What the thread remembers between two looks at the lease, so that the log says nothing twice.
#[derive(Default)]
struct Memory {
    /// When the last look began that had an answer.
    answered: Monotonic,
    /// Why looks had no answer.
    reasons: Reasons,
    /// Why this node did not take the lease.
    last_lack: String,
    last_report: Option<(Monotonic, Vec<u8>)>,
    troubles: Reasons,
    namesake: Namesake,
    was_full: bool,
    publication: Publication,
}

/// Whether another process writes under the URL of this node. What a restart has left of the lease is over when the lease has lasted.
#[derive(Default)]
struct Namesake {
    since: Option<Monotonic>,
    is_said: bool,
}

impl Namesake {
    /// Whether that is to be said now: once for each time.
    fn is_found(&mut self, holds_it: bool, now: Monotonic, lease: Duration) -> bool {
        if !holds_it {
            *self = Self::default();
            return false;
        }
        let since = self.since.get_or_insert(now);
        let lasts = u128::from(now.0.saturating_sub(since.0)) > (lease * 2).as_nanos();
        lasts && !std::mem::replace(&mut self.is_said, true)
    }
}

/// Why a look came to nothing.
type Trouble = String;

impl Holder {
    /// Looks who writes before the node serves: until it knows that, it refuses changes that it has to refer. What cannot be asked now is asked
    /// by the thread.
    pub(super) fn begin(&self) {
        let Some(served) = self.opening.served() else { return };
        let role =
            served.database().store().lease().ok().and_then(|lease| role_under_lease(lease, &self.node));
        role.into_iter().for_each(|role| self.publish(served, role));
    }

    pub(super) fn run(self) {
        if let Some(served) = self.open() {
            self.hold(&served);
        }
        self.watch.leave();
    }

    /// The database: waits until the engine answers. None where the node ends before that.
    fn open(&self) -> Option<Arc<ServedDatabase<SharedStore>>> {
        let mut reasons = Reasons::default();
        let mut failures = 0;
        loop {
            if let Some(served) = self.opening.served() {
                return Some(Arc::clone(served));
            }
            // The first attempt was made before this thread.
            if !self.watch.wait(opening::pause(failures, &SystemRandom)) {
                return None;
            }
            failures = failures.saturating_add(1);
            match self.opening.open(&self.clock) {
                Ok(()) => self.log.notice(format_args!("\"{}\": the engine answers", self.suffix)),
                Err(failure) => self.log_failure(failure, &mut reasons),
            }
        }
    }

    fn log_failure(&self, failure: Failure, reasons: &mut Reasons) {
        let needs_help = matches!(failure, Failure::Refused(_));
        let why = failure.text();
        if !reasons.is_new(&why, self.clock.monotonic(), None) {
            return;
        }
        match needs_help {
            true => self.log.warning(format_args!(
                "\"{}\": {why}; somebody has to mend it, and it is tried again",
                self.suffix
            )),
            false => self.log.warning(format_args!("\"{}\": {why}; it is tried again", self.suffix)),
        }
    }

    fn hold(&self, served: &ServedDatabase<SharedStore>) {
        let store = served.database().store();
        let pause = self.lease / LOOKS;
        let mut seen = 0;
        let mut memory = Memory { answered: self.clock.monotonic(), ..Memory::default() };
        loop {
            self.look_and_tell(served, &mut memory);
            // The followers of the log know of it, unless the notice was lost on the way.
            let newest = store.commit_counter();
            if std::mem::replace(&mut seen, newest) != newest {
                served.database().log_watch().tell();
            }
            // Changes wait for it: what has failed is tried again at once.
            let pause = if store.expects_take_over() { SOON } else { pause };
            if !self.watch.wait(pause) {
                break;
            }
        }
        self.give_up(served);
    }

    /// Looks at the lease, and says what this node is now.
    fn look_and_tell(&self, served: &ServedDatabase<SharedStore>, memory: &mut Memory) {
        let store = served.database().store();
        let began = self.clock.monotonic();
        // One that is left to the node that writes another database is given up, not lost.
        let led = self.watch.role() == Role::Leader && self.watch.takes_turns();
        // Until then the lease is that one's.
        let is_decided = !self.watch.has_predecessor();
        take_read_fault();
        let looked = self.look(served, &mut memory.last_lack, &mut memory.namesake);
        let is_damaged = take_read_fault() == Some(ReadFault::Broken);
        // An engine that does not answer this thread, either, is a reason of its own.
        let trouble = store.take_trouble().filter(|_| looked.is_ok());
        trouble.into_iter().for_each(|why| self.log_trouble(&why, &mut memory.troubles));
        self.log_room(store.lacks_room(), &mut memory.was_full);
        match looked {
            Ok(role) => {
                if led && role != Role::Leader && self.watch.takes_turns() {
                    self.log_lost_lease(memory.answered, began);
                }
                memory.answered = began;
                memory.reasons.clear();
                // Before changes are taken: they would only be in each other's way.
                self.publish_configuration(served, &role, &mut memory.publication);
                if is_decided && matches!(role, Role::Follower(_)) {
                    // Changes that wait here are another node's.
                    store.expect_no_take_over();
                }
                self.publish(served, role);
                self.report(served, &mut memory.last_report);
            }
            Err(why) => self.missed(served, (why, is_damaged), memory),
        }
    }

    /// A look had no answer.
    fn missed(
        &self,
        served: &ServedDatabase<SharedStore>,
        (why, is_damaged): (Trouble, bool),
        memory: &mut Memory,
    ) {
        let store = served.database().store();
        if memory.reasons.is_new(&why, self.clock.monotonic(), None) {
            self.log.warning(format_args!("\"{}\": {why}", self.suffix));
        }
        if !self.is_over(memory.answered) {
            return;
        }
        // Others may lead by now; if not, the lease is taken anew.
        store.resign();
        store.expect_no_take_over();
        self.watch.lock().why_cut_off = match is_damaged {
            true => DAMAGED,
            false if store.lacks_room() => WITHOUT_ROOM,
            false => OUT_OF_REACH,
        };
        self.publish(served, Role::CutOff);
    }

    /// Leaves the lease to others, for this node ends.
    fn give_up(&self, served: &ServedDatabase<SharedStore>) {
        let store = served.database().store();
        let is_reached = self.watch.role() != Role::CutOff;
        // One that is about to write may have the lease already.
        if store.leads() || store.expects_take_over() {
            self.publish(served, Role::Vacant);
            store.resign();
            // Without it others wait for the lease's end.
            let _released = store.release_lease();
            // Before the rest: another one may wait for it.
            self.watch.leave();
        }
        if is_reached {
            // It is forgotten by itself otherwise.
            let _unsaid = store.unsay(&self.node);
        }
    }

    /// Says in the engine what this node is, for who looks after all of them. What cannot be said now is said later.
    fn report(&self, served: &ServedDatabase<SharedStore>, last_report: &mut Option<(Monotonic, Vec<u8>)>) {
        let report = node_report::encode(&self.follower.following.state());
        let now = self.clock.monotonic();
        let is_known = last_report.as_ref().is_some_and(|(at, before)| {
            *before == report && u128::from(now.0.saturating_sub(at.0)) < REPORT_AGAIN.as_nanos()
        });
        if is_known {
            return;
        }
        // Nobody waits for it: the next look must not be late because of it.
        let _done = served.database().store().say(&self.node, &report);
        *last_report = Some((now, report));
    }

    /// Says why reads had no answer although the engine answers here: it takes no more connections, say.
    fn log_trouble(&self, why: &str, troubles: &mut Reasons) {
        if troubles.is_new(why, self.clock.monotonic(), Some(TROUBLE_AGAIN)) {
            self.log.warning(format_args!("\"{}\": reads had no answer: {why}", self.suffix));
        }
    }

    /// Says when the engine has no room for changes, and when it has some again.
    fn log_room(&self, is_full: bool, was_full: &mut bool) {
        match (std::mem::replace(was_full, is_full), is_full) {
            (false, true) => self.log.warning(format_args!(
                "\"{}\": the engine has no room: changes are refused until it has some, and no restart is needed then",
                self.suffix
            )),
            (true, false) => {
                self.log.notice(format_args!("\"{}\": the engine has room for changes again", self.suffix));
            }
            _ => {}
        }
    }

    /// Says why another node may write now: a renewal that began late or took long, or neither where somebody had it step down.
    fn log_lost_lease(&self, last: Monotonic, began: Monotonic) {
        let milliseconds = |from: Monotonic, to: Monotonic| to.0.saturating_sub(from.0) / 1_000_000;
        self.log.warning(format_args!(
            "\"{}\": this node has lost the right to write: it asked for it {} ms after the last time, and had the answer {} ms later; the \
             lease lasts {} ms",
            self.suffix,
            milliseconds(last, began),
            milliseconds(began, self.clock.monotonic()),
            self.lease.as_millis()
        ));
    }

    /// Says why changes come to nothing where other nodes refer them to this URL, and the server there is not the one that writes.
    fn log_namesake(&self) {
        self.log.warning(format_args!(
            "\"{}\": another server writes as {}, which is this server's `node`, too: clients are referred to one of the two that does not \
             write; give each server a `node` of its own, and do not copy the directory of one to another machine",
            self.suffix, self.node
        ));
    }

    fn is_over(&self, since: Monotonic) -> bool {
        let passed = self.clock.monotonic().0.saturating_sub(since.0);
        u128::from(passed) >= self.lease.as_nanos()
    }

    fn publish(&self, served: &ServedDatabase<SharedStore>, role: Role) {
        let mut state = self.watch.lock();
        if state.role == role || state.hurries && role == Role::Leader {
            return;
        }
        match &role {
            Role::Leader => {
                let epoch = served.database().store().figures().epoch;
                self.log.notice(format_args!("\"{}\": this node writes now (epoch {epoch})", self.suffix));
            }
            Role::Follower(leader) => self.log.notice(format_args!("\"{}\": {leader} writes", self.suffix)),
            Role::Vacant => self.log.notice(format_args!("\"{}\": nobody writes now", self.suffix)),
            Role::CutOff => {
                let why = state.why_cut_off;
                self.log.warning(format_args!("\"{}\": {why}; no changes are taken", self.suffix));
            }
        }
        let leads = role == Role::Leader;
        state.role = role;
        drop(state);
        if leads {
            // Indexes and back links may lack what no change brings in.
            served.wake_writer();
        }
        self.watch.notify();
    }

    /// Holds the lease, takes it if nobody has it, or learns who has.
    /// `last_lack`: what was said last of why this node does not.
    fn look(
        &self,
        served: &ServedDatabase<SharedStore>,
        last_lack: &mut String,
        namesake: &mut Namesake,
    ) -> Result<Role, Trouble> {
        let _turn = self.watch.turn();
        let store = served.database().store();
        let text = |error: &dyn fmt::Display| error.to_string();
        if !self.watch.takes_turns() {
            return self.stand_by(store);
        }
        if store.leads() {
            let holding = store.renew_lease(&self.node, self.lease).map_err(|error| text(&error))?;
            // In a gap of the lease another node may have taken over.
            if holding != Holding::Others && store.leads() {
                return Ok(Role::Leader);
            }
            // It came too late, or another node asked it to step down.
            store.resign();
        } else {
            // A node that was fenced off resigns here.
            store.resign();
            store.hear().map_err(|error| text(&error))?;
        }
        let lease = store.lease().map_err(|error| text(&error))?;
        let is_own = lease.is_own;
        let holds_it = !is_own && lease.leader.as_deref() == Some(self.node.as_str());
        if namesake.is_found(holds_it, self.clock.monotonic(), self.lease) {
            self.log_namesake();
        }
        if let Some(role) = role_under_lease(lease, &self.node) {
            return Ok(role);
        }
        // The node that holds the lease had the configuration when it took it.
        let lacks = if is_own { None } else { self.lacks_configuration(store)? };
        // Where both began on an empty store, neither was refused.
        let lacks = match lacks {
            None => why_foreign(served.database()).map_err(|fault| text(&fault))?,
            lacks => lacks,
        };
        let why = match lacks {
            Some(why) => why,
            None => {
                if !store.hold_lease(&self.node, self.lease).map_err(|error| text(&error))? {
                    let lease = store.lease().map_err(|error| text(&error))?;
                    return Ok(role_under_lease(lease, &self.node).unwrap_or(Role::Vacant));
                }
                let Err(why) = take_over(served) else {
                    last_lack.clear();
                    return Ok(Role::Leader);
                };
                // Another node may be able to, and gets the lease only if this one does not keep it.
                store.resign();
                store.release_lease().map_err(|error| text(&error))?;
                format!("this node cannot take over the right to write, and leaves it to others: {why}")
            }
        };
        if *last_lack != why {
            self.log.warning(format_args!("\"{}\": {why}", self.suffix));
            *last_lack = why;
        }
        Ok(Role::Vacant)
    }
}

impl Holder {
    /// Leaves it to the node that writes the other database to write this one.
    fn stand_by(&self, store: &SharedStore) -> Result<Role, Trouble> {
        let text = |error: &dyn fmt::Display| error.to_string();
        store.resign();
        store.hear().map_err(|error| text(&error))?;
        let lease = store.lease().map_err(|error| text(&error))?;
        if lease.is_own {
            // That node need not wait for its end.
            store.release_lease().map_err(|error| text(&error))?;
            return Ok(Role::Vacant);
        }
        Ok(role_under_lease(lease, &self.node).unwrap_or(Role::Vacant))
    }

    /// Why this node may not write although nobody else does: the others made their changes under a configuration that is not in force
    /// here.
    fn lacks_configuration(&self, store: &SharedStore) -> Result<Option<Trouble>, Trouble> {
        let shared = self.opening.shared();
        if !shared.is_shared {
            return Ok(None);
        }
        let snapshot = store.snapshot().map_err(|error| error.to_string())?;
        let (found, why) = match published_configuration::read(&snapshot)? {
            Some(Ok(found)) => {
                let state = self.follower.following.state();
                if found.lines == shared.lines || state.in_force == found.generation {
                    return Ok(None);
                }
                let refused = state.refused.filter(|_| state.newest == found.generation);
                (format!("generation {}, from {}", found.generation, found.node), refused)
            }
            Some(Err(newer @ Unreadable::Newer { .. })) => ("the newest".to_owned(), Some(newer.to_string())),
            Some(Err(Unreadable::Damaged)) | None => return Ok(None),
        };
        Ok(Some(match why {
            Some(why) => format!(
                "nobody writes, and this node does not take its turn, because the configuration of the nodes ({found}) is not in force \
                 here: {why}; start a node that has it, or take `node-configuration shared` out here to go on with this one"
            ),
            None => format!(
                "nobody writes, and this node takes its turn when it has the configuration of the nodes ({found})"
            ),
        }))
    }
}

/// What the node of this URL is while another handle holds the lease; none where no other one does.
fn role_under_lease(lease: Lease, node: &str) -> Option<Role> {
    let leader = lease.leader.filter(|_| !lease.is_own)?;
    // What is left of this node from before a restart: a referral would lead clients back here. Tools have no URL to refer to.
    let leads_there = leader != node && leader.starts_with("ldap");
    Some(if leads_there { Role::Follower(leader) } else { Role::Vacant })
}

/// Fences everybody else off, and settles with the engine what this node's configuration says.
fn take_over(served: &ServedDatabase<SharedStore>) -> Result<(), Trouble> {
    let database = served.database();
    let store = database.store();
    let (schema, settings) = (database.schema(), database.settings());
    let settled = store.take_over_and(|| settle(store, &schema, &settings, database.server_id()));
    settled.map_err(|error| error.to_string())
}

/// Settles with the engine what a configuration says: what indexes are kept, and how changes are logged.
///
/// # Errors
/// The engine cannot be reached, another commit came first, or another node has taken over.
pub(super) fn settle(
    store: &SharedStore,
    schema: &Arc<Schema>,
    settings: &DatabaseSettings,
    server_id: u16,
) -> Result<(), DatabaseOpenError> {
    // Opening a database brings the store up to what its settings say.
    Database::open(Arc::clone(store), Arc::clone(schema), settings.clone(), &SystemRandom)?;
    logged::settle(store, Logging::of(settings, server_id).as_ref(), &SystemRandom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_of_the_same_url_is_told_from_a_restart() {
        let mut namesake = Namesake::default();
        let lease = Duration::from_secs(3);
        for (seconds, holds_it, expected) in [
            (0, true, false),
            // Until then it may be what this node held before it was restarted.
            (6, true, false),
            (7, true, true),
            (8, true, false),
            (9, false, false),
            (10, true, false),
            (17, true, true),
        ] {
            let now = Monotonic(seconds * 1_000_000_000);
            assert_eq!(namesake.is_found(holds_it, now, lease), expected, "{seconds} s");
        }
    }

    #[test]
    fn a_node_follows_others_and_not_itself() {
        let lease = |leader: Option<&str>, is_own| Lease {
            leader: leader.map(str::to_owned),
            is_own,
            left: Duration::from_secs(1),
        };
        for (leader, is_own, expected) in [
            (None, false, None),
            (Some("ldap://n1"), true, None),
            (Some("ldap://n1"), false, Some(Role::Vacant)),
            (Some("ldap://n2"), false, Some(Role::Follower("ldap://n2".to_owned()))),
            (Some("slapadd (process 77)"), false, Some(Role::Vacant)),
        ] {
            assert_eq!(role_under_lease(lease(leader, is_own), "ldap://n1"), expected, "{leader:?} {is_own}");
        }
    }
}
