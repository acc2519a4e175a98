//! What goes over a connection that is open: requests out, answers in, and to whom they belong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larix_client::{Channel, PeerFault};
use larix_proto::{ControlBuf, LdapResult, MessageId, Response, ResponseMessage, ResultCode, oid};
use rustix::event::epoll;
use rustix::event::epoll::EventFlags;

use super::{Exchange, READS_IN_TURN, leave};
use crate::connection::Stage;
use crate::cookie;
use crate::job::{FEED_HIGH, FEED_MAX, Job, Numbered, Outcome, Owner, Sink, body, envelope};

impl Exchange {
    pub(super) fn socket_has(&mut self, id: u64, flags: EventFlags, buffer: &mut [u8]) {
        let Some(connection) = self.connections.get(&id) else { return };
        if matches!(connection.stage, Stage::Connecting) {
            return self.connected(id);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP) {
            self.read(id, buffer);
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(id);
        }
    }

    fn read(&mut self, id: u64, buffer: &mut [u8]) {
        for _ in 0..READS_IN_TURN {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            let read = connection.read(buffer);
            let count = match read {
                Ok(Some(count)) => count,
                Ok(None) => break,
                Err(fault) => return self.lost(id, &fault, false),
            };
            let received = match &mut connection.stage {
                Stage::Open(channel) => channel.receive(buffer.get(..count).unwrap_or_default()),
                Stage::Resolving | Stage::Connecting => Ok(()),
            };
            // Who never gets through TLS or the proxy's own bind is no better than who does not answer: the next one is tried.
            if !connection.has_spoken && connection.is_ready() {
                connection.has_spoken = true;
                let target = connection.target;
                self.refusals.accepted(&connection.owner);
                if !matches!(connection.owner, Owner::Check(_)) {
                    self.targets.answered(target);
                    let now = self.now();
                    self.targets.note_answer(target, now);
                    self.show_target(target);
                }
            }
            if let Err(fault) = received.and_then(|()| self.take_answers(id)) {
                return self.lost(id, &fault, false);
            }
            if count < buffer.len() || !self.connections.get(&id).is_some_and(|c| c.interest.0) {
                break;
            }
        }
        self.flush(id);
    }

    /// Hands out what has come whole.
    fn take_answers(&mut self, id: u64) -> Result<(), PeerFault> {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let Stage::Open(channel) = &mut connection.stage else { return Ok(()) };
        // Messages in a row for one search go together.
        let mut gathered: (u32, Vec<u8>) = (0, Vec::new());
        let mut fed: Vec<u32> = Vec::new();
        let mut ended: Vec<(Numbered, Outcome)> = Vec::new();
        let fault = loop {
            let answer = match channel.next_answer() {
                Ok(Some(answer)) => answer,
                Ok(None) => break None,
                Err(fault) => break Some(fault),
            };
            let message = answer.message.id.0;
            connection.last_received = now;
            if answer.is_last || message != gathered.0 {
                connection.has_full |= hand_over(id, &connection.sent, &mut gathered);
            }
            if answer.is_last {
                let Some(numbered) = connection.sent.remove(&message) else { continue };
                let outcome = outcome_of(&answer.message);
                ended.push((numbered, outcome));
                continue;
            }
            let Some((_, job)) = connection.sent.get(&message) else { continue };
            if matches!(answer.message.response, Response::Reference(_))
                && self.context.settings.no_references
            {
                continue;
            }
            if let Sink::Feed(_) = &job.sink {
                gathered.0 = message;
                envelope(&mut gathered.1, job.message, body(answer.pdu));
                if fed.last() != Some(&message) {
                    fed.push(message);
                }
            }
        };
        connection.has_full |= hand_over(id, &connection.sent, &mut gathered);
        connection.activity.receives(now);
        if connection.last_received == now {
            self.targets.note_answer(connection.target, now);
        }
        let waiting = tell_fed(&fed, &connection.sent, channel, now);
        // The server has given notice: what waits goes elsewhere, what it has may still be answered.
        let moved: Vec<Numbered> = if channel.messages().is_noticed() {
            connection.is_closing = true;
            connection.waiting.drain(..).collect()
        } else {
            Vec::new()
        };
        let is_alone = connection.sent.len() == waiting.len();
        for (numbered, outcome) in ended {
            self.answered(id, numbered, outcome);
        }
        for (number, job) in moved {
            self.place(number, job);
        }
        if !is_alone {
            // Its client does not read, and others wait for this connection.
            for number in waiting {
                let text = "the client takes its answers too slowly for a connection that others use";
                self.give_up(number, Some(LdapResult::with(ResultCode::BUSY, text)));
            }
        }
        fault.map_or(Ok(()), Err)
    }

    fn answered(&mut self, id: u64, (number, mut job): Numbered, mut outcome: Outcome) {
        self.forget(number);
        self.note_page(id, number, &job, &mut outcome.controls);
        if let Owner::Check(target) = job.owner {
            return self.check_answered(target, &outcome);
        }
        if let Some(binds) = job.binds.take() {
            if let Some(connection) = self.connections.get(&id) {
                self.targets.note_bind(connection.target);
            }
            if outcome.result.code == ResultCode::SUCCESS
                && let Some(client) = binds.client
            {
                let owner = Owner::User(binds.dn.clone());
                let clients = self.context.shared.note_bound(client, binds.dn, binds.password);
                if self.needs_another(&owner, clients) {
                    self.change_owner(id, owner);
                }
            }
            if let Some((number, job)) = self.binds.pop_front() {
                self.place_bind(number, job);
            }
        }
        match job.sink {
            Sink::Once(done) => done(outcome),
            Sink::Feed(feed) => feed.end((outcome.result, outcome.controls)),
        }
    }

    /// Puts the number of the connection into the cookie of a page, and notes whether another page follows.
    fn note_page(&mut self, id: u64, number: u64, job: &Job, controls: &mut [ControlBuf]) {
        let mut follows = false;
        for control in controls.iter_mut().filter(|control| control.oid == oid::PAGED_RESULTS) {
            if let Some(with_connection) = cookie::with_connection(control, id) {
                *control = with_connection;
                follows = true;
            }
        }
        // Most answers have no pages: those ask for no time.
        let paging = follows.then(|| (number, self.now()));
        if let Some(connection) = self.connections.get_mut(&id) {
            match connection.paging {
                _ if follows => connection.paging = paging,
                Some((last, _)) if last == number && job.page.is_some() => connection.paging = None,
                _ => {}
            }
        }
    }

    /// Whether a user has fewer connections than there are clients under the user's name. Clients that read page by page need one each, and
    /// the user's password is needed to open more.
    fn needs_another(&self, owner: &Owner, clients: usize) -> bool {
        let connections = self.pools.get(owner).map_or(0, Vec::len);
        let ready = self.ready_connections(owner);
        ready == 0 || ready < clients && connections < self.context.settings.pool_max as usize
    }

    /// How many connections of an owner can take a request at once.
    pub(super) fn ready_connections(&self, owner: &Owner) -> usize {
        let pool = self.pools.get(owner).map(Vec::as_slice).unwrap_or_default();
        let open = pool.iter().filter_map(|id| self.connections.get(id));
        open.filter(|open| !open.is_closing && !open.is_reserved && open.is_ready()).count()
    }

    fn change_owner(&mut self, id: u64, owner: Owner) {
        let place = self.free_place(&owner, 0);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let old = std::mem::replace(&mut connection.owner, owner.clone());
        connection.place = place;
        connection.is_shown = false;
        leave(&mut self.pools, &old, id);
        self.pools.entry(owner).or_default().push(id);
    }

    /// Sends what waits and looks again at what the connection waits for.
    pub(super) fn flush(&mut self, id: u64) {
        let now = self.now();
        let written = self.write_waiting(id, now);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_shown
            && let Some(url) = self.context.settings.targets.get(connection.target)
            && let Some(shown) = connection.shown(url, now)
        {
            connection.is_shown = true;
            self.context.shared.open.show(id, shown, Arc::clone(&connection.activity));
        }
        match written {
            Ok(_) => self.set_interest(id),
            Err(fault) => return self.lost(id, &fault, false),
        }
        self.move_waiting(id);
        self.close_if_done(id);
    }

    /// Sends what waits, as far as the socket takes it; whether more is left.
    pub(super) fn write_waiting(&mut self, id: u64, now: Duration) -> Result<bool, PeerFault> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(false) };
        connection.send_waiting(now);
        if let Stage::Open(channel) = &connection.stage {
            self.alarm = channel.next_deadline().into_iter().chain([self.alarm]).min().unwrap_or_default();
        }
        connection.write()
    }

    pub(super) fn set_interest(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.activity.note(connection.load(), connection.is_closing);
        let (Stage::Open(channel), Some(socket)) = (&mut connection.stage, &connection.socket) else {
            return;
        };
        let is_full = |(_, job): &Numbered| matches!(&job.sink, Sink::Feed(feed) if feed.is_full());
        // Most connections have none, however many requests are under way.
        let full = match connection.has_full {
            true => connection.sent.values().filter(|numbered| is_full(numbered)).count(),
            false => 0,
        };
        connection.has_full = full > 0;
        connection.is_reserved = full > 0;
        // Others that are under way are not kept waiting by one whose client does not read.
        let reads = full == 0 || full < connection.sent.len();
        let writes = channel.output().is_ok_and(|output| !output.is_empty());
        let interest = (reads, writes);
        if interest != connection.interest {
            connection.interest = interest;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, reads);
            flags.set(EventFlags::OUT, writes);
            let _ = epoll::modify(&self.poll, socket, epoll::EventData::new_u64(id), flags);
        }
    }
}

/// Gives a search what was gathered for it; whether as much waits for its client then as may be. It is not told yet.
fn hand_over(connection: u64, sent: &HashMap<u32, Numbered>, gathered: &mut (u32, Vec<u8>)) -> bool {
    if gathered.1.is_empty() {
        return false;
    }
    let messages = std::mem::take(&mut gathered.1);
    match sent.get(&gathered.0).map(|(_, job)| &job.sink) {
        Some(Sink::Feed(feed)) => feed.add_from(connection, messages) >= FEED_HIGH,
        _ => false,
    }
}

/// Tells searches that messages have come for them. Answers the numbers of those whose clients take their messages too slowly.
fn tell_fed(fed: &[u32], sent: &HashMap<u32, Numbered>, channel: &mut Channel, now: Duration) -> Vec<u64> {
    for message in fed {
        let Some((_, job)) = sent.get(message) else { continue };
        // A search that has had an answer may be silent for as long again.
        if let Some(patience) = job.patience {
            let deadline = job.deadline.into_iter().chain([now + patience]).min();
            channel.layer().set_deadline(MessageId(*message), deadline);
        }
        // Those that have ended learn it with their results: one wake-up for all that came together.
        if let Sink::Feed(feed) = &job.sink {
            feed.tell();
        }
    }
    fed.iter()
        .filter_map(|message| sent.get(message))
        .filter_map(|(number, job)| match &job.sink {
            Sink::Feed(feed) if feed.bytes() >= FEED_MAX => Some(*number),
            _ => None,
        })
        .collect()
}

/// How an operation ended, by the last of its answers.
fn outcome_of(message: &ResponseMessage<'_>) -> Outcome {
    let result = message.response.result().map(|(_, result)| result.to_owned());
    let value = match message.response {
        Response::Extended { value, .. } => value.map(<[u8]>::to_vec),
        _ => None,
    };
    let controls = message.controls.iter().map(|control| control.to_owned()).collect();
    let result = result.unwrap_or_else(|| LdapResult::new(ResultCode::OTHER));
    Outcome { result, controls, value, is_unsent: false, is_of_target: true }
}
