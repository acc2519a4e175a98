//! Where requests go: which connection takes one, and what is answered where none does.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_proto::{LdapResult, ResultCode};

use super::{BINDS_MAX, CONNECTION_BUSY, Exchange, POOL_CEILING, each_once};
use crate::connection::{Connection, SORTED_MAX};
use crate::cookie::Page;
use crate::job::{Job, Owner, Sorting};
use crate::shared::Command;

/// Connections of one identity that others replace while something is under way on them: searches may have no end, and with more of them
/// no place would be left.
const REPLACED_MAX: usize = POOL_CEILING / 4;
/// Connections of one identity that each have one request that is too large for the others.
const ALONE_MAX: usize = POOL_CEILING / 8;

/// Whose turn it is.
enum Turn {
    /// Of a connection, in this place.
    Connection(u64, u32),
    /// Of a place without one.
    Free(u32),
    /// No place takes a request; with `has_slow` some only until their client has read.
    Taken { has_slow: bool },
}

/// Where a request goes, unless connections take turns.
enum Least {
    /// To this connection.
    Takes(u64),
    /// To a new one.
    Opens,
    /// Nowhere.
    Nothing,
}

impl Exchange {
    /// Finds a connection for a request, or opens one.
    pub(super) fn place(&mut self, number: u64, job: Box<Job>) {
        let now = self.now();
        if job.owner == Owner::Spare {
            return self.place_bind(number, job);
        }
        if let Owner::Check(target) = job.owner {
            return self.open_at((target, 0), number, job, now);
        }
        if job.is_too_large_to_share() {
            return self.place_alone(number, job, now);
        }
        if let Some(page) = job.page {
            return self.place_page(page, number, job, now);
        }
        self.place_any(number, job, now);
    }

    /// A request that the target may end its connection for takes no other one with it.
    fn place_alone(&mut self, number: u64, job: Box<Job>, now: Duration) {
        if let Some(Page::After(id)) = job.page
            && let Some(connection) = self.connections.get(&id)
            && connection.owner == job.owner
            && connection.is_for_one
            && !connection.is_closing
        {
            return self.put_and_flush(id, number, job, now);
        }
        let pool = self.pools.get(&job.owner).map(Vec::as_slice).unwrap_or_default();
        let open = pool.iter().filter_map(|id| self.connections.get(id));
        if open.filter(|connection| connection.is_for_one).count() >= ALONE_MAX {
            let text = "too many large requests are under way to the target";
            return self.end_unsent(number, job, LdapResult::with(ResultCode::BUSY, text));
        }
        // The places before are taken in turn.
        let place = self.free_place(&job.owner, self.context.settings.pool_max);
        self.open_for(Some(place), number, job, now);
    }

    /// A page is asked for over the connection that the one before came over, and the first over one that no other answer is read over.
    fn place_page(&mut self, page: Page, number: u64, job: Box<Job>, now: Duration) {
        if let Some(id) = self.for_page(page, &job.owner, now) {
            return self.put_and_flush(id, number, job, now);
        }
        let taking = self.loads(&job.owner);
        let connections = self.pools.get(&job.owner).map_or(0, Vec::len);
        let most = self.context.settings.pool_max as usize;
        // A place whose turn comes has one connection. Elsewhere those that slow clients have for themselves do not count, up to a limit.
        let has_place = match self.goes_in_turn(&job.owner) {
            true => connections < most,
            false => taking.len() < most && connections < POOL_CEILING,
        };
        let may_open = job.credentials.is_some() || !matches!(job.owner, Owner::User(_));
        if has_place && may_open && !taking.is_empty() {
            return self.open_for(None, number, job, now);
        }
        // The answer that nobody has gone on reading for longest may end by it.
        let paged = taking.iter().filter_map(|(_, id)| {
            let (_, last_request) = self.connections.get(id)?.paging?;
            Some((last_request, *id))
        });
        match paged.min() {
            Some((_, id)) => self.put_and_flush(id, number, job, now),
            None => self.place_any(number, job, now),
        }
    }

    /// The connection that a page is to be asked for over, if there is one already.
    fn for_page(&self, page: Page, owner: &Owner, now: Duration) -> Option<u64> {
        if let Page::After(id) = page
            && let Some(connection) = self.connections.get(&id)
            && connection.owner == *owner
            && !connection.is_closing
        {
            return Some(id);
        }
        let is_free = |(_, id): &(usize, u64)| {
            self.connections.get(id).is_none_or(|connection| !connection.is_paging(now))
        };
        self.loads(owner).into_iter().filter(is_free).min().map(|(_, id)| id)
    }

    fn place_any(&mut self, number: u64, job: Box<Job>, now: Duration) {
        if self.goes_in_turn(&job.owner) {
            return self.place_in_turn(number, job, now);
        }
        match self.least_busy(&job) {
            Least::Takes(id) => self.put_and_flush(id, number, job, now),
            Least::Opens => self.open_for(None, number, job, now),
            Least::Nothing if matches!(job.owner, Owner::User(_)) && job.credentials.is_none() => {
                let text =
                    "the connection that was bound to the target is gone: bind again, or set rebind-as-user";
                self.end_unsent(number, job, LdapResult::with(ResultCode::UNAVAILABLE, text));
            }
            Least::Nothing => {
                let text = "every connection to the target is taken by a client that reads slowly";
                self.end_unsent(number, job, LdapResult::with(ResultCode::BUSY, text));
            }
        }
    }

    /// The connection that has least to do of those of a request's owner that take more, unless all have much to do and another can be
    /// opened.
    fn least_busy(&self, job: &Job) -> Least {
        let pool = self.pools.get(&job.owner).map(Vec::as_slice).unwrap_or_default();
        let mut taking = 0;
        let mut least: Option<(bool, Reverse<usize>, usize, u64)> = None;
        for id in pool {
            let Some(connection) = self.connections.get(id).filter(|open| open.takes_more()) else {
                continue;
            };
            taking += 1;
            let is_full = job.sorting != Sorting::None && connection.is_full_of_sorted();
            // A slapd keeps eight for all connections together: they go over few of them, which soon close.
            let parts = if job.sorting == Sorting::Part && !is_full { connection.parts } else { 0 };
            least = least.into_iter().chain([(is_full, Reverse(parts), connection.load(), *id)]).min();
        }
        // Those that slow clients have for themselves do not count, up to a limit, nor do those that are about to close.
        let has_place = taking < self.context.settings.pool_max as usize && pool.len() < POOL_CEILING;
        let may_open = match &job.owner {
            // It is opened with the user's password, which not every request brings.
            Owner::User(_) => {
                has_place && job.credentials.is_some() && least.is_none_or(|(is_full, ..)| is_full)
            }
            _ => has_place,
        };
        match least {
            Some((is_full, _, load, id)) if !may_open || !is_full && load < CONNECTION_BUSY => {
                Least::Takes(id)
            }
            _ if may_open => Least::Opens,
            _ => Least::Nothing,
        }
    }

    /// How much the connections of an owner have to do that take more.
    fn loads(&self, owner: &Owner) -> Vec<(usize, u64)> {
        let pool = self.pools.get(owner).map(Vec::as_slice).unwrap_or_default();
        let taking = pool.iter().filter_map(|id| {
            let connection = self.connections.get(id)?;
            connection.takes_more().then(|| (connection.load(), *id))
        });
        taking.collect()
    }

    /// Sends requests where connections are ready for them, on whatever thread this is; what is left for the proxy's own. No request
    /// ends by it: who brings one may hold what the end of another needs.
    pub(super) fn send_ready(&mut self, commands: Vec<Command>) -> Vec<Command> {
        let now = self.now();
        let mut touched = Vec::new();
        let mut remaining = Vec::new();
        for command in commands {
            match self.put_if_ready(command, now) {
                Ok(id) => touched.push(id),
                Err(command) => remaining.push(command),
            }
        }
        for id in each_once(touched) {
            let is_well = self.write_waiting(id, now).is_ok()
                && self.connections.get(&id).is_some_and(|connection| !connection.is_closing);
            self.set_interest(id);
            if !is_well {
                remaining.push(Command::Look(id));
            }
        }
        remaining
    }

    /// Puts a request on a connection that is ready for it; which one. It is not sent yet: more may go with it. What cannot be put is
    /// given back.
    pub(super) fn put_if_ready(&mut self, command: Command, now: Duration) -> Result<u64, Command> {
        let (number, job) = match command {
            Command::Submit(number, job) if !matches!(job.owner, Owner::Spare | Owner::Check(_)) => {
                (number, job)
            }
            other => return Err(other),
        };
        let Some(id) = self.ready_for(&job, now) else { return Err(Command::Submit(number, job)) };
        self.put(id, number, job, now);
        Ok(id)
    }

    /// A connection that can be written to for a request.
    fn ready_for(&self, job: &Job, now: Duration) -> Option<u64> {
        if job.is_too_large_to_share() {
            return None;
        }
        let owner = &job.owner;
        let is_ready = |id: &u64| self.connections.get(id).is_some_and(Connection::is_ready);
        if let Some(page) = job.page {
            return self.for_page(page, owner, now).filter(is_ready);
        }
        if !self.goes_in_turn(owner) {
            let Least::Takes(id) = self.least_busy(job) else { return None };
            return is_ready(&id).then_some(id);
        }
        let Turn::Connection(id, place) = self.next_turn(owner) else { return None };
        if !is_ready(&id) {
            return None;
        }
        self.has_had_turn(place);
        Some(id)
    }

    /// Whether requests of an owner go to the places of its connections in turn.
    fn goes_in_turn(&self, owner: &Owner) -> bool {
        self.context.settings.in_turn && matches!(owner, Owner::Anonymous | Owner::Assertion | Owner::Root)
    }

    /// The first place from the next one on that can take a request of this owner's.
    fn next_turn(&self, owner: &Owner) -> Turn {
        let places = self.context.settings.pool_max.max(1);
        let first = self.context.shared.turn.load(Ordering::Relaxed);
        let pool = self.pools.get(owner).map(Vec::as_slice).unwrap_or_default();
        let mut has_slow = false;
        for place in (0..places).map(|step| (first + step) % places) {
            let connections = pool.iter().filter_map(|id| Some((*id, self.connections.get(id)?)));
            match connections.into_iter().find(|(_, connection)| connection.place == place) {
                None => return Turn::Free(place),
                Some((id, connection)) if connection.takes_more() => return Turn::Connection(id, place),
                Some((_, connection)) => has_slow |= !connection.is_closing,
            }
        }
        Turn::Taken { has_slow }
    }

    fn has_had_turn(&self, place: u32) {
        let next = (place + 1) % self.context.settings.pool_max.max(1);
        self.context.shared.turn.store(next, Ordering::Relaxed);
    }

    fn place_in_turn(&mut self, number: u64, job: Box<Job>, now: Duration) {
        match self.next_turn(&job.owner) {
            Turn::Connection(id, place) => {
                self.has_had_turn(place);
                self.put_and_flush(id, number, job, now);
            }
            Turn::Free(place) => {
                self.has_had_turn(place);
                self.open_for(Some(place), number, job, now);
            }
            Turn::Taken { has_slow: true } => {
                let text = "every connection to the target is taken by a client that reads slowly";
                self.end_unsent(number, job, LdapResult::with(ResultCode::BUSY, text));
            }
            Turn::Taken { has_slow: false } => {
                let text = "every connection to the target is about to close (max-target-conns)";
                self.end_unsent(number, job, LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            }
        }
    }

    /// A bind goes alone, on a connection that is nobody's.
    pub(super) fn place_bind(&mut self, number: u64, job: Box<Job>) {
        let now = self.now();
        let pool = self.pools.get(&Owner::Spare).map(Vec::as_slice).unwrap_or_default();
        let free = pool.iter().copied().find(|id| {
            self.connections
                .get(id)
                .is_some_and(|connection| connection.load() == 0 && !connection.is_closing)
        });
        match free {
            Some(id) => self.put_and_flush(id, number, job, now),
            None if pool.len() < BINDS_MAX => self.open_for(None, number, job, now),
            None => self.binds.push_back((number, job)),
        }
    }

    /// Binds that wait have their turn, as far as there may be connections for them. Where no target can be reached, each of them learns it.
    pub(super) fn place_waiting_binds(&mut self) {
        while self.pools.get(&Owner::Spare).map_or(0, Vec::len) < BINDS_MAX
            && let Some((number, job)) = self.binds.pop_front()
        {
            self.place_bind(number, job);
        }
    }

    /// Puts a connection out of use behind what is under way on it, unless there are many of those.
    pub(super) fn replace(&mut self, id: u64) {
        let Some(owner) = self.connections.get(&id).map(|connection| &connection.owner) else { return };
        let pool = self.pools.get(owner).map(Vec::as_slice).unwrap_or_default();
        let open = pool.iter().filter_map(|id| self.connections.get(id));
        let closing = open.filter(|connection| connection.is_closing).count();
        if closing < REPLACED_MAX
            && let Some(connection) = self.connections.get_mut(&id)
        {
            connection.is_closing = true;
        }
    }

    fn put(&mut self, id: u64, number: u64, job: Box<Job>, now: Duration) {
        let in_turn = self.context.settings.in_turn;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.used = now;
        if job.page.is_some() {
            connection.paging = Some((number, now));
        }
        let mut is_worn = false;
        if job.sorting == Sorting::Part {
            connection.parts += 1;
            let can_reopen = !matches!(job.owner, Owner::User(_)) || job.credentials.is_some();
            // One that is not open yet has had none of them, and one whose place takes turns goes on: its place would take nothing.
            let can_close = connection.is_ready() && can_reopen && !in_turn && !connection.is_paging(now);
            is_worn = can_close && connection.parts >= SORTED_MAX;
        }
        connection.waiting.push_back((number, job));
        self.places.insert(number, id);
        if is_worn {
            self.replace(id);
        }
    }

    /// Puts a request on a connection and sends what waits there.
    pub(super) fn put_and_flush(&mut self, id: u64, number: u64, job: Box<Job>, now: Duration) {
        self.put(id, number, job, now);
        self.flush(id);
    }
}
