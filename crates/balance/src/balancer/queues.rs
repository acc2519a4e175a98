//! Requests that wait for a connection.

use std::collections::VecDeque;
use std::time::Duration;

use larix_proto::{Frame, LdapResult, Message, ResponseOp, frame};

use super::{Balancer, requests};
use crate::client::{Restriction, State};
use crate::upstream::Pool;

impl Balancer {
    /// Those that wait for a connection of this kind: to any server, or to this one.
    pub(super) fn queue(&mut self, pool: Pool, pinned: Option<usize>) -> &mut VecDeque<u64> {
        match (pool, pinned) {
            (Pool::Shared, Some(backend)) => self.pinned.entry(backend).or_default(),
            (Pool::Shared, None) => &mut self.waiting[0],
            (Pool::Bind, _) => &mut self.waiting[1],
        }
    }

    /// All queues for connections of this kind: the one whose first client has waited longest comes first.
    pub(super) fn queues(&self, pool: Pool) -> Vec<Option<usize>> {
        let since = |queue: &VecDeque<u64>| {
            let first = queue.front().and_then(|id| self.clients.get(id));
            first.map_or(Duration::ZERO, |client| match client.state {
                State::Waiting(_, since) => since,
                _ => Duration::ZERO,
            })
        };
        let [shared, binds] = &self.waiting;
        match pool {
            Pool::Bind if binds.is_empty() => Vec::new(),
            Pool::Bind => vec![None],
            Pool::Shared => {
                let any = (!shared.is_empty()).then(|| (since(shared), None));
                let pinned = self.pinned.iter().map(|(backend, queue)| (since(queue), Some(*backend)));
                let mut found: Vec<(Duration, Option<usize>)> = any.into_iter().chain(pinned).collect();
                found.sort_unstable();
                found.into_iter().map(|(_, pinned)| pinned).collect()
            }
        }
    }

    /// Forgets a queue of its own that has nobody any more.
    pub(super) fn drop_if_empty(&mut self, pinned: Option<usize>) {
        if let Some(backend) = pinned
            && self.pinned.get(&backend).is_some_and(VecDeque::is_empty)
        {
            self.pinned.remove(&backend);
        }
    }

    /// The one server whose connections a client may use; none: all of them.
    pub(super) fn pinned_to(&self, id: u64, pool: Pool) -> Option<usize> {
        if pool == Pool::Bind {
            return None;
        }
        let client = self.clients.get(&id)?;
        if let Some(context) = client.context {
            return self.upstreams.get(&context.upstream).map(|upstream| upstream.backend);
        }
        match client.restriction {
            Restriction::Write(backend, _) | Restriction::Backend(backend) => Some(backend),
            Restriction::None | Restriction::Lost => None,
        }
    }

    /// Whether others wait for what a client's request needs.
    pub(super) fn is_behind_others(&self, id: u64, pool: Pool) -> bool {
        let queue = match (pool, self.pinned_to(id, pool)) {
            (Pool::Shared, Some(backend)) => self.pinned.get(&backend),
            (Pool::Shared, None) => Some(&self.waiting[0]),
            (Pool::Bind, _) => Some(&self.waiting[1]),
        };
        queue.is_some_and(|queue| !queue.is_empty())
    }

    /// The next request of a client waits for a connection.
    pub(super) fn wait(&mut self, id: u64, pool: Pool, now: Duration) {
        let pinned = self.pinned_to(id, pool);
        if let Some(client) = self.clients.get_mut(&id) {
            client.state = State::Waiting(pool, self.waking.unwrap_or(now));
            self.queue(pool, pinned).push_back(id);
        }
    }

    /// Tries requests again that wait, the first first, as far as connections take them.
    pub(super) fn wake(&mut self, now: Duration) {
        for pool in Pool::ALL {
            let freed = match pool {
                Pool::Shared => &mut self.freed[0],
                Pool::Bind => &mut self.freed[1],
            };
            if !std::mem::take(freed) {
                continue;
            }
            for pinned in self.queues(pool) {
                self.wake_queue(pool, pinned, now);
                self.drop_if_empty(pinned);
            }
        }
    }

    pub(super) fn wake_queue(&mut self, pool: Pool, pinned: Option<usize>, now: Duration) {
        for _ in 0..self.queue(pool, pinned).len() {
            let Some(id) = self.queue(pool, pinned).pop_front() else { break };
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let State::Waiting(own, since) = client.state else { continue };
            if own != pool {
                continue;
            }
            client.state = State::Open;
            self.waking = Some(since);
            self.advance(id, now);
            self.waking = None;
            let waits_again = self
                .clients
                .get(&id)
                .is_some_and(|client| matches!(client.state, State::Waiting(again, _) if again == pool));
            let queue = self.queue(pool, pinned);
            // It may wait for another server now.
            if waits_again && queue.back() == Some(&id) {
                // It keeps its position.
                queue.pop_back();
                queue.push_front(id);
                break;
            }
        }
    }

    /// Refuses the request of a client that waits.
    pub(super) fn refuse_waiting(&mut self, id: u64, result: &LdapResult, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.state = State::Open;
        let Ok(Frame::Complete { len }) = frame(&client.input, self.settings.client_message_bytes) else {
            return;
        };
        let pdu: Vec<u8> = client.input.drain(..len).collect();
        if let Ok(message) = Message::decode(&pdu)
            && let Some(op) = requests::response_of(&message.request)
        {
            self.count_received(id, op == ResponseOp::Bind);
            self.reject(id, message.id, op, result);
        }
        self.advance(id, now);
    }
}
