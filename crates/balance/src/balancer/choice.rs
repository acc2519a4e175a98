//! Which connection an operation goes to.

use larix_proto::{LdapResult, ResultCode};

use super::{Balancer, CONNECTION_OPERATIONS};
use crate::upstream::Pool;

/// What a connection is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Operations of which the server remembers nothing.
    Operations(Pool),
    /// A client of which the server will remember something by connection: one with no other such client, if there is any.
    Context,
}

impl Need {
    const fn pool(self) -> Pool {
        match self {
            Self::Operations(pool) => pool,
            Self::Context => Pool::Shared,
        }
    }
}

/// Where an operation may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Upstream(u64),
    /// There are connections, and none takes it now.
    Busy,
    /// There is no connection.
    None,
}

impl Balancer {
    /// A connection of this kind: in the first tier that has one.
    pub(super) fn choose(&mut self, need: Need) -> Choice {
        let (pool, mut is_coming) = (need.pool(), false);
        for number in 0..self.tiers.len() {
            match self.choose_in(number, need) {
                Choice::None => {}
                found => return found,
            }
            let backends = self.tiers.get(number).map(|tier| tier.backends.as_slice()).unwrap_or_default();
            is_coming |= backends.iter().filter_map(|at| self.backends.get(*at)).any(|backend| {
                let opening =
                    !backend.connections(pool).is_empty() || backend.opening.iter().sum::<usize>() > 0;
                backend.failures == 0 && opening
            });
        }
        // At the start, and while a connection that was lost is made again, a request waits.
        if is_coming { Choice::Busy } else { Choice::None }
    }

    fn choose_in(&mut self, number: usize, need: Need) -> Choice {
        let Some(tier) = self.tiers.get(number) else { return Choice::None };
        let chance = &mut self.chance;
        let first = tier.first(&self.backends, &mut || Self::draw(chance));
        let order = first.into_iter().flatten().chain(tier.in_turn());
        let mut is_busy = false;
        for at in order {
            let Some(backend) = self.tiers.get(number).and_then(|tier| tier.backends.get(at)).copied() else {
                continue;
            };
            match self.choose_of(backend, need) {
                Choice::Upstream(id) => {
                    if let Some(tier) = self.tiers.get_mut(number) {
                        tier.chose(at);
                    }
                    return Choice::Upstream(id);
                }
                Choice::Busy => is_busy = true,
                Choice::None => {}
            }
        }
        if is_busy { Choice::Busy } else { Choice::None }
    }

    /// The connection to a server with the least under way; those that a slow client has for itself come last.
    pub(super) fn choose_of(&mut self, backend: usize, need: Need) -> Choice {
        let pool = need.pool();
        let Some(backend) = self.backends.get_mut(backend) else { return Choice::None };
        let limit = match backend.settings.connection_max_pending {
            0 => CONNECTION_OPERATIONS,
            limit => limit.min(CONNECTION_OPERATIONS),
        };
        let connections = backend.connections(pool);
        let count = connections.len();
        let mut is_there = false;
        let mut best = None;
        let turn = backend.turn.get(pool as usize).copied().unwrap_or_default();
        for step in 0..count {
            let at = (turn + step) % count;
            let Some(upstream) = connections.get(at).and_then(|id| Some((*id, self.upstreams.get(id)?)))
            else {
                continue;
            };
            let (id, upstream) = upstream;
            is_there |= upstream.is_ready && !upstream.is_retiring;
            if upstream.takes(limit) {
                let contexts = if need == Need::Context { upstream.contexts } else { 0 };
                let load = (contexts, upstream.is_paused, upstream.pending.len());
                if best.is_none_or(|(_, least, _)| load < least) {
                    best = Some((id, load, at));
                }
            }
        }
        let is_full = pool == Pool::Shared
            && backend.settings.max_pending > 0
            && backend.pending >= backend.settings.max_pending;
        match best {
            Some((id, _, at)) if !is_full => {
                if let Some(turn) = backend.turn.get_mut(pool as usize) {
                    *turn = at + 1;
                }
                Choice::Upstream(id)
            }
            _ if is_there => Choice::Busy,
            _ => Choice::None,
        }
    }

    /// The result when there is no connection for a client that has to stay somewhere, or not.
    pub(super) fn none_there(&mut self, is_restricted: bool) -> LdapResult {
        self.counters.unavailable += 1;
        let text = match is_restricted {
            true => {
                "the server or connection that this client has to stay at is lost: try again, or bind again"
            }
            false => "no server can be reached",
        };
        LdapResult::with(ResultCode::UNAVAILABLE, text)
    }
}
