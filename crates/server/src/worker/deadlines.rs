//! Timeouts of connections, for idle clients, answers that are not read and requests that do not end. The worker keeps them beside
//! the task that serves the connection.

use std::cell::Cell;

use larix_engine::time::Monotonic;
use tokio::sync::mpsc::UnboundedSender;

use super::ConnectionEvent;

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// Limits of the configuration in seconds; 0 is none.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Patience {
    /// With a client that asks for nothing.
    pub(super) idle: u32,
    /// With a client that does not take its answers.
    pub(super) write: u32,
    /// With an anonymous client that does not send the rest of a request.
    pub(super) request: u32,
}

/// What the worker knows of a connection beside the task that serves it.
pub(super) struct Handle {
    events: UnboundedSender<ConnectionEvent>,
    last_activity: Cell<Monotonic>,
    /// Since when the client has not taken anything of an answer.
    blocked_since: Cell<Option<Monotonic>>,
    pending: Cell<usize>,
    /// When a request that waits has waited for too long.
    deadline: Cell<Option<Monotonic>>,
    /// Since when an anonymous client owes the rest of a request, and that request's number.
    unfinished: Cell<Option<(Monotonic, u64)>>,
}

impl Handle {
    pub(super) fn new(events: UnboundedSender<ConnectionEvent>, now: Monotonic) -> Self {
        Self {
            events,
            last_activity: Cell::new(now),
            blocked_since: Cell::new(None),
            pending: Cell::new(0),
            deadline: Cell::new(None),
            unfinished: Cell::new(None),
        }
    }

    pub(super) fn tell(&self, event: ConnectionEvent) {
        // A connection that just closed by itself needs no event.
        let _ = self.events.send(event);
    }

    /// When the client last sent something.
    pub(super) fn note_activity(&self, at: Monotonic) {
        self.last_activity.set(at);
    }

    /// Requests that are not answered yet.
    pub(super) fn note_pending(&self, count: usize) {
        self.pending.set(count);
    }

    /// When the first of them has waited for too long.
    pub(super) fn note_deadline(&self, deadline: Option<Monotonic>) {
        self.deadline.set(deadline);
    }

    /// The same, for who looks after it.
    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.deadline.get()
    }

    /// The client takes nothing now.
    pub(super) fn note_blocked(&self, now: Monotonic) {
        if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(now));
        }
    }

    /// The client has taken some of its answers.
    pub(super) fn note_taken(&self) {
        self.blocked_since.set(None);
    }

    /// The client owes the rest of the request with this number, since it last sent something; `None`: of no request.
    pub(super) fn note_unfinished(&self, number: Option<u64>) {
        self.unfinished.set(number.map(|number| match self.unfinished.get() {
            Some(before) if before.1 == number => before,
            _ => (self.last_activity.get(), number),
        }));
    }

    /// Why the connection is to end now, if it is: as the log says it.
    pub(super) fn overdue(&self, now: Monotonic, patience: Patience) -> Option<&'static str> {
        let passed = |since: Monotonic, limit: u32| {
            limit > 0 && now.0.saturating_sub(since.0) / NANOS_A_SECOND >= limit.into()
        };
        match self.blocked_since.get() {
            Some(since) if passed(since, patience.write) => Some("writetimeout"),
            _ if self.unfinished.get().is_some_and(|(since, _)| passed(since, patience.request)) => {
                Some("unfinished request")
            }
            None if self.pending.get() == 0 && passed(self.last_activity.get(), patience.idle) => {
                Some("idletimeout")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * NANOS_A_SECOND)
    }

    #[test]
    fn when_patience_ends() {
        const PATIENCE: Patience = Patience { idle: 10, write: 5, request: 3 };
        const NONE: Patience = Patience { idle: 0, write: 0, request: 0 };
        let check = |what: &str, note: &dyn Fn(&Handle), ends: Option<(u64, &'static str)>| {
            let handle = Handle::new(unbounded_channel().0, at(0));
            note(&handle);
            let first = (0..20).find_map(|second| Some((second, handle.overdue(at(second), PATIENCE)?)));
            assert_eq!(first, ends, "{what}");
            assert_eq!(handle.overdue(at(1_000), NONE), None, "{what}, without limits");
        };
        check("nothing", &|_| {}, Some((10, "idletimeout")));
        check("activity", &|handle| handle.note_activity(at(4)), Some((14, "idletimeout")));
        check("a request is being answered", &|handle| handle.note_pending(1), None);
        check("blocked", &|handle| handle.note_blocked(at(2)), Some((7, "writetimeout")));
        let blocked_twice = |handle: &Handle| {
            handle.note_blocked(at(2));
            handle.note_blocked(at(4));
        };
        check("blocked since the first", &blocked_twice, Some((7, "writetimeout")));
        let taken = |handle: &Handle| {
            handle.note_blocked(at(2));
            handle.note_taken();
        };
        check("taken", &taken, Some((10, "idletimeout")));
        let blocked_and_pending = |handle: &Handle| {
            handle.note_pending(1);
            handle.note_blocked(at(2));
        };
        check("blocked while more is asked", &blocked_and_pending, Some((7, "writetimeout")));
        check("unfinished", &|handle| handle.note_unfinished(Some(1)), Some((3, "unfinished request")));
        let drips = |handle: &Handle| {
            handle.note_unfinished(Some(1));
            handle.note_activity(at(2));
            handle.note_unfinished(Some(1));
        };
        check("bytes of the same request change nothing", &drips, Some((3, "unfinished request")));
        let next = |handle: &Handle| {
            handle.note_unfinished(Some(1));
            handle.note_activity(at(2));
            handle.note_unfinished(Some(2));
        };
        check("another request", &next, Some((5, "unfinished request")));
        let finished = |handle: &Handle| {
            handle.note_unfinished(Some(1));
            handle.note_unfinished(None);
        };
        check("finished", &finished, Some((10, "idletimeout")));
    }
}
