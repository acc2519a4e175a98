//! How requests and connections end: given up, late, lost, idle.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_client::{Credentials, PeerFault};
use larix_proto::{LdapResult, MessageId, ResultCode};
use larix_schema::NormalDn;

use super::health::CHECKS;
use super::{Exchange, SWEEP, leave};
use crate::connection::{Connection, Stage};
use crate::job::{Job, LATER, Numbered, Owner, Sink};
use crate::open::nanos;
use crate::settings::NETWORK_TIMEOUT;

/// How long the target may take for a change whose client waits no more.
const ALONE: Duration = Duration::from_secs(60);

impl Exchange {
    pub(super) fn forget(&mut self, number: u64) {
        self.places.remove(&number);
        if number < CHECKS {
            self.context.shared.jobs.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn end(&mut self, number: u64, job: Box<Job>, result: LdapResult) {
        self.forget(number);
        job.sink.end(result);
    }

    /// Ends a request that was never sent.
    pub(super) fn end_unsent(&mut self, number: u64, job: Box<Job>, result: LdapResult) {
        self.forget(number);
        job.sink.end_unsent(result);
    }

    /// Nobody waits for a request any more, or it gets this result. A change that the target has goes on without its client: others
    /// may have to hear whether it was made.
    pub(super) fn give_up(&mut self, number: u64, result: Option<LdapResult>) {
        let now = self.now();
        let settings = &self.context.settings;
        let (how, in_turn) = (settings.giving_up, settings.in_turn);
        let patience = settings.network_timeout.unwrap_or(NETWORK_TIMEOUT);
        let Some(id) = self.places.get(&number).copied() else {
            let at = self.binds.iter().position(|(waiting, _)| *waiting == number);
            if let Some(removed) = at.and_then(|at| self.binds.remove(at)) {
                self.forget(number);
                answer(Some(removed), result);
            }
            return;
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(at) = connection.waiting.iter().position(|(waiting, _)| *waiting == number) {
            let removed = connection.waiting.remove(at);
            self.forget(number);
            match (removed, result) {
                (Some((_, job)), None) if job.is_change() => job.sink.end_unsent(never_sent()),
                (removed, result) => answer(removed, result),
            }
            return;
        }
        let message =
            connection.sent.iter().find(|(_, (sent, _))| *sent == number).map(|(message, _)| *message);
        let Some(message) = message else { return };
        if result.is_none()
            && let Some((_, job)) = connection.sent.get_mut(&message)
            && job.is_change()
            // Late is late.
            && job.deadline.is_none_or(|deadline| deadline > now + LATER)
        {
            job.alone_until = job.deadline.into_iter().chain([now + ALONE]).min();
            return;
        }
        if let Stage::Open(channel) = &mut connection.stage {
            channel.layer().give_up(MessageId(message), how);
        }
        let removed = connection.sent.remove(&message);
        // A connection that has answered nothing for long may have died: what comes next goes over another one, and to another target if
        // this one is gone. A user's own stays unless the user can be bound again. One whose place takes turns stays while it has something
        // to do, and one over which a client reads pages until the next page does not come.
        let can_reopen = match connection.owner {
            Owner::User(_) => removed.as_ref().is_some_and(|(_, job)| job.credentials.is_some()),
            _ => !in_turn || connection.sent.is_empty(),
        };
        let may_close = removed.as_ref().is_some_and(|(_, job)| {
            let is_silent = now >= connection.last_received.max(job.sent_at) + patience;
            is_silent && (job.page.is_some() || !connection.is_paging(now))
        });
        if can_reopen && may_close {
            self.replace(id);
        }
        self.forget(number);
        let result = result.map(|result| match &removed {
            Some((_, job)) => unanswered(job, result),
            None => result,
        });
        answer(removed, result);
        let ended = match self.connections.get(&id).map(|connection| &connection.stage) {
            Some(Stage::Open(channel)) => channel.messages().ended().cloned(),
            _ => None,
        };
        match ended {
            Some(fault) => self.lost(id, &fault, false),
            None => self.flush(id),
        }
    }

    /// A server could not be connected.
    pub(super) fn unreachable(&mut self, id: u64, why: &str) {
        self.lost(id, &PeerFault::Socket(why.to_owned()), false);
    }

    /// A connection is of no use any more: what it had under way is sent elsewhere where that can be, or ends.
    pub(super) fn lost(&mut self, id: u64, fault: &PeerFault, is_stray: bool) {
        let now = self.now();
        let Some(mut connection) = self.remove_connection(id) else { return };
        let was_ready = connection.is_ready() && connection.has_spoken;
        self.report_loss(&connection, fault, was_ready);
        let is_refused = is_refusal(fault);
        if is_refused && !matches!(connection.owner, Owner::Check(_)) {
            self.targets.answered(connection.target);
        } else if !connection.has_spoken
            && !matches!(connection.owner, Owner::Check(_))
            && !self.excuses_late_bind(&connection, fault)
        {
            let mut jitter = [0];
            (self.context.ambient.random)(&mut jitter);
            self.left_out(connection.target, now, jitter[0]);
        }
        if let Owner::Check(target) = connection.owner {
            let unanswered = connection.waiting.drain(..).chain(connection.sent.drain().map(|(_, job)| job));
            let checks: Vec<u64> = unanswered.map(|(number, _)| number).collect();
            checks.into_iter().for_each(|number| self.forget(number));
            // A server may close what is idle, just when it is used: the check is made again on a new connection.
            let may_be_idle = was_ready && matches!(fault, PeerFault::Closed | PeerFault::Disconnected(_));
            return if may_be_idle { self.check_again(target) } else { self.checked(target, false) };
        }
        self.show_target(connection.target);
        if let PeerFault::Refused { result, .. } = fault
            && result.code == ResultCode::INVALID_CREDENTIALS
            && let (Owner::User(dn), Some(Credentials::Simple { password, .. })) =
                (&connection.owner, &connection.credentials)
        {
            // Tried with each request, it would lock the account.
            self.context.shared.forget_password(dn, password);
        }
        let result = match (fault, &connection.owner) {
            // The user may know what the target says of the password.
            (PeerFault::Refused { result, .. }, Owner::User(_)) => result.clone(),
            _ => LdapResult::with(ResultCode::UNAVAILABLE, format!("the target could not be used: {fault}")),
        };
        if is_refused {
            self.refusals.refused(&connection.owner, &result, now);
        }
        let is_lie = is_stray || fault.is_a_lie();
        let sent: Vec<Numbered> = connection.sent.drain().map(|(_, numbered)| numbered).collect();
        let waiting: Vec<Numbered> = connection.waiting.drain(..).collect();
        drop(connection);
        for (number, mut job) in sent {
            let untouched = match &job.sink {
                Sink::Feed(feed) => feed.is_untouched(),
                Sink::Once(_) => true,
            };
            if job.is_repeatable && untouched && !is_lie && job.tries_left() {
                self.place(number, job);
            } else {
                let result = unanswered(&job, result.clone());
                self.end(number, job, result);
            }
        }
        self.place_waiting_binds();
        for (number, mut job) in waiting {
            if is_refused || is_lie || (!was_ready && self.targets.choose(now).is_none()) || !job.tries_left()
            {
                self.end_unsent(number, job, result.clone());
            } else {
                self.place(number, job);
            }
        }
    }

    /// Counts and logs the fault that ended a connection, unless the server closed an idle one or is known to be away.
    fn report_loss(&self, connection: &Connection, fault: &PeerFault, was_ready: bool) {
        let idle_end = was_ready
            && connection.load() == 0
            && matches!(fault, PeerFault::Closed | PeerFault::Disconnected(_));
        let is_known = matches!(connection.owner, Owner::Check(_)) && !self.targets.is_up(connection.target);
        if idle_end || is_known {
            return;
        }
        self.context.shared.count_fault(fault);
        let url = self.url(connection.target).map(ToString::to_string).unwrap_or_default();
        (self.context.tell)(&format!("proxy: {url}: {fault} ({})", fault.name()));
    }

    /// Whether a connection ends because a client's bind takes too long, while the target answers others: it may ask another server about
    /// that account. It is not excused if several are late and it answers no bind in between: other targets are tried.
    fn excuses_late_bind(&mut self, connection: &Connection, fault: &PeerFault) -> bool {
        matches!(connection.owner, Owner::Spare)
            && connection.is_ready()
            && matches!(fault, PeerFault::Late(_))
            && self.targets.excuses_late_bind(connection.target, connection.opened)
    }

    /// Takes a connection that is no longer used out of everything that knows it.
    fn remove_connection(&mut self, id: u64) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        leave(&mut self.pools, &connection.owner, id);
        self.context.shared.open.hide(id);
        self.context.shared.counts.last_end.store(nanos(self.now()), Ordering::Relaxed);
        Some(connection)
    }

    /// What waits for a connection that takes no request any more goes elsewhere: what is under way there may never end.
    pub(super) fn move_waiting(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let is_worn = matches!(&connection.stage, Stage::Open(channel) if channel.messages().is_worn());
        if !is_worn || connection.waiting.is_empty() {
            return;
        }
        // It takes none of them back.
        connection.is_closing = true;
        let waiting: Vec<Numbered> = connection.waiting.drain(..).collect();
        for (number, job) in waiting {
            self.place(number, job);
        }
    }

    pub(super) fn close_if_done(&mut self, id: u64) {
        let is_done = self.connections.get(&id).is_some_and(|connection| {
            let worn = matches!(&connection.stage, Stage::Open(channel) if channel.messages().is_worn());
            let is_over = || connection.is_for_one && connection.has_served_its_one(self.now());
            (connection.is_closing || worn || is_over()) && connection.sent.is_empty()
        });
        if is_done {
            self.close(id);
        }
    }

    /// Ends a connection that has nothing under way; what waits for it goes elsewhere.
    fn close(&mut self, id: u64) {
        let Some(mut connection) = self.remove_connection(id) else { return };
        if let Stage::Open(channel) = &mut connection.stage {
            let _ = channel.layer().request(None, None, larix_proto::client::unbind);
            // Out of courtesy: the server sees the end of the connection as well.
            let _ = connection.write();
        }
        let waiting: Vec<Numbered> = connection.waiting.drain(..).collect();
        drop(connection);
        for (number, job) in waiting {
            self.place(number, job);
        }
    }

    /// What is late, idle or old.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        if now < self.alarm {
            return;
        }
        let mut late: Vec<(u64, MessageId)> = Vec::new();
        let mut unopened: Vec<u64> = Vec::new();
        for (id, connection) in &self.connections {
            match &connection.stage {
                Stage::Open(channel) if channel.is_ready() => {
                    late.extend(channel.messages().expired(now).map(|message| (*id, message)));
                }
                _ if connection.opening_until <= now => unopened.push(*id),
                _ => {}
            }
        }
        for id in unopened {
            self.lost(id, &PeerFault::Late("the connection"), false);
        }
        for (id, message) in late {
            let sent = self.connections.get(&id).and_then(|connection| connection.sent.get(&message.0));
            if let Some(number) = sent.map(|(number, _)| *number) {
                let text = "the target did not answer in time";
                self.context.shared.counts.late.fetch_add(1, Ordering::Relaxed);
                self.give_up(number, Some(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)));
            }
        }
        if now >= self.swept + SWEEP {
            self.swept = now;
            self.sweep(now);
        }
        self.alarm = self.first_deadline();
    }

    /// How many connections users have beyond one for each client by their names.
    fn surplus(&self, bound: &HashMap<NormalDn, usize>) -> HashMap<Owner, usize> {
        let users = self.pools.keys().filter_map(|owner| {
            let Owner::User(dn) = owner else { return None };
            let more = self.ready_connections(owner).saturating_sub(*bound.get(dn)?);
            (more > 0).then(|| (owner.clone(), more))
        });
        users.collect()
    }

    fn sweep(&mut self, now: Duration) {
        let bound = self.context.shared.sweep_bound();
        let mut surplus = self.surplus(&bound);
        let settings = Arc::clone(&self.context.settings);
        let mut closed = Vec::new();
        // One at a time, where connections do not end all at once: the oldest first.
        let mut oldest: Option<(Duration, u64)> = None;
        let is_late = |job: &Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let binds = self.binds.iter().filter(|(_, job)| is_late(job));
        let mut overdue: Vec<u64> = binds.map(|(number, _)| *number).collect();
        for (id, connection) in &mut self.connections {
            overdue
                .extend(connection.waiting.iter().filter(|(_, job)| is_late(job)).map(|(number, _)| *number));
            let is_forlorn = |job: &Job| job.alone_until.is_some_and(|until| until <= now);
            let forlorn = connection.sent.values().filter(|(_, job)| is_forlorn(job));
            overdue.extend(forlorn.map(|(number, _)| *number));
            let is_old = settings.connection_ttl.is_some_and(|ttl| now >= connection.opened + ttl);
            let is_idle = settings.idle_timeout.is_some_and(|idle| now >= connection.used + idle);
            let is_nobodys = matches!(&connection.owner, Owner::User(dn) if !bound.contains_key(dn));
            let ends_in_turn = is_old && settings.reset_interval.is_some();
            if ends_in_turn && connection.is_ready() && !connection.is_closing {
                oldest = oldest.into_iter().chain([(connection.opened, *id)]).min();
            }
            let is_over = connection.is_for_one && connection.has_served_its_one(now);
            let is_one_too_many = connection.credentials.is_none()
                && connection.takes_more()
                && connection.load() == 0
                && !connection.is_paging(now)
                && surplus.get_mut(&connection.owner).is_some_and(take_one);
            connection.is_closing |= connection.is_ready()
                && (is_old && !ends_in_turn || is_nobodys || is_over || is_one_too_many);
            connection.activity.note(connection.load(), connection.is_closing);
            if connection.load() == 0 && connection.is_ready() && (connection.is_closing || is_idle) {
                closed.push(*id);
            }
        }
        if let (Some((_, id)), Some(interval)) = (oldest, settings.reset_interval)
            && now >= self.last_reset + interval
            && let Some(connection) = self.connections.get_mut(&id)
        {
            self.last_reset = now;
            connection.is_closing = true;
            connection.activity.note(connection.load(), true);
            if connection.load() == 0 && !closed.contains(&id) {
                closed.push(id);
            }
        }
        for id in closed {
            self.close(id);
        }
        for number in overdue {
            self.context.shared.counts.late.fetch_add(1, Ordering::Relaxed);
            let text = "the target did not answer in time";
            self.give_up(number, Some(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)));
        }
    }
}

/// Whether one was left.
fn take_one(left: &mut usize) -> bool {
    let fewer = left.checked_sub(1);
    *left = fewer.unwrap_or(0);
    fewer.is_some()
}

/// The answer to a change that nobody waits for, and that no target has had.
fn never_sent() -> LdapResult {
    LdapResult::with(ResultCode::CANCELED, "the change was given up before it was sent")
}

/// The result of a request that the target has had and not answered.
pub(super) fn unanswered(job: &Job, result: LdapResult) -> LdapResult {
    match job.is_change() {
        true => result.with_unknown_outcome(),
        false => result,
    }
}

/// Whether the target refuses such connections. If it is only too busy for a bind, it counts as one that does not answer: the next
/// target is tried.
fn is_refusal(fault: &PeerFault) -> bool {
    match fault {
        PeerFault::Refused { step, result } => {
            *step == "StartTLS" || !matches!(result.code, ResultCode::BUSY | ResultCode::UNAVAILABLE)
        }
        PeerFault::Sasl(_) => true,
        _ => false,
    }
}

/// Ends a request that was taken from where it waited.
fn answer(removed: Option<Numbered>, result: Option<LdapResult>) {
    if let (Some((_, job)), Some(result)) = (removed, result) {
        job.sink.end(result);
    }
}

#[cfg(test)]
#[path = "ends_tests.rs"]
mod tests;
