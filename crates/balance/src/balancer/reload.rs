//! Other settings while clients are connected, and the figures of a moment.

use std::collections::VecDeque;
use std::sync::Arc;

use larix_client::TlsClient;

use super::{Balancer, authorize};
use crate::backend::{Backend, Tier};
use crate::client::{Client, Restriction, State};
use crate::figures::{ConnectionFigures, Figures, ServerFigures};
use crate::upstream::{Pool, Upstream};
use crate::wire::ClientTls;
use larix_configuration::balancer::{BackendSettings, BalanceSettings};

/// What a configuration comes to.
#[derive(Debug)]
pub struct Reloaded {
    pub settings: Arc<BalanceSettings>,
    /// For servers with TLS.
    pub upstream_tls: Option<TlsClient>,
    /// For listeners with TLS, and StartTLS.
    pub client_tls: Option<ClientTls>,
}

impl Balancer {
    /// Goes on with other settings. Clients keep their connections, identities and operations under way. A server that is still named keeps
    /// its connections, unless `bindconf` is another; those that are not wanted any more end behind their last operation.
    pub(crate) fn reload(&mut self, new: Reloaded) {
        let Reloaded { settings, upstream_tls, client_tls } = new;
        // Connections that passwords are sent over are made with more care.
        let keeps_connections = self.settings.bind == settings.bind
            && (self.settings.verifies_credentials || !settings.verifies_credentials);
        let mut left: Vec<usize> = (0..self.backends.len())
            .filter(|at| self.backends.get(*at).is_some_and(|own| !own.is_gone))
            .collect();
        let mut tiers = Vec::new();
        for tier in &settings.tiers {
            let places = tier.backends.iter().map(|server| {
                let same = |at: &usize| {
                    self.backends.get(*at).is_some_and(|own| own.settings.is_same_server(server))
                };
                match left.iter().position(same) {
                    Some(found) => {
                        let at = left.remove(found);
                        if let Some(own) = self.backends.get_mut(at) {
                            own.change(server.clone());
                        }
                        at
                    }
                    None => self.add_backend(server.clone()),
                }
            });
            let places = places.collect();
            tiers.push(Tier::new(tier.strategy, places));
        }
        for at in left {
            self.remove_backend(at);
        }
        self.tiers = tiers;
        self.settings = settings;
        (self.upstream_tls, self.client_tls) = (upstream_tls, client_tls);
        self.retire_surplus(keeps_connections);
        let settings = Arc::clone(&self.settings);
        for client in self.clients.values_mut() {
            // Who the balancer itself is may have changed.
            let (name, identity) = (std::mem::take(&mut client.name), std::mem::take(&mut client.identity));
            authorize(&settings, client, &name, &identity);
        }
        // What waits may have a connection now, or none any more.
        self.freed = [true; 2];
    }

    /// A server that was not there: at the place of one that is gone, if nothing is left of that.
    fn add_backend(&mut self, server: BackendSettings) -> usize {
        let added = Backend::new(server);
        let is_free = |at: usize, own: &Backend| {
            own.is_gone
                && own.opening == [0; 2]
                && !self.upstreams.values().any(|upstream| upstream.backend == at)
        };
        let free = self.backends.iter().enumerate().position(|(at, own)| is_free(at, own));
        match free.and_then(|at| Some((at, self.backends.get_mut(at)?))) {
            Some((at, place)) => {
                *place = added;
                at
            }
            None => {
                self.backends.push(added);
                self.backends.len() - 1
            }
        }
    }

    /// A server is no longer named.
    fn remove_backend(&mut self, at: usize) {
        if let Some(own) = self.backends.get_mut(at) {
            own.is_gone = true;
            own.settings.connections = 0;
            own.settings.bind_connections = 0;
        }
        for client in self.clients.values_mut() {
            match client.restriction {
                Restriction::Write(own, _) if own == at => client.restriction = Restriction::None,
                // It has to stay there, and learns that it cannot.
                Restriction::Backend(own) if own == at => client.restriction = Restriction::Lost,
                _ => {}
            }
        }
    }

    /// Connections above the number that is wanted take no new operation. Those with contexts of clients stay until the clients go.
    fn retire_surplus(&mut self, keeps_connections: bool) {
        let mut surplus = Vec::new();
        for own in &self.backends {
            for (pool, wanted) in
                [(Pool::Shared, own.settings.connections), (Pool::Bind, own.settings.bind_connections)]
            {
                let kept = if keeps_connections { wanted } else { 0 };
                let has_context =
                    |id: &&u64| self.upstreams.get(*id).is_some_and(|upstream| upstream.contexts > 0);
                let above = own.connections(pool).iter().skip(kept);
                surplus.extend(above.filter(|id| kept == 0 || !has_context(id)));
            }
        }
        surplus.into_iter().for_each(|id| self.retire(id));
    }

    /// A connection to a server as cn=Monitor shows it. The loop knows its addresses.
    fn upstream_figures(&self, id: u64) -> Option<ConnectionFigures> {
        let upstream = self.upstreams.get(&id)?;
        let kind = match upstream.pool {
            _ if !upstream.is_ready => "preparing",
            Pool::Shared => "regular",
            Pool::Bind => "bind",
        };
        let state = match upstream.pool {
            _ if upstream.is_retiring => "closing",
            Pool::Bind if upstream.reserved.is_some() || !upstream.pending.is_empty() => "active",
            _ => "ready",
        };
        Some(ConnectionFigures {
            id,
            number: upstream.number,
            kind,
            state,
            pending: upstream.pending.len(),
            counts: upstream.counts,
            ..ConnectionFigures::default()
        })
    }

    /// The connections of clients as cn=Monitor shows them, in the order in which they came.
    fn client_figures(&self) -> Vec<ConnectionFigures> {
        let shown = |(id, client): (&u64, &Client)| ConnectionFigures {
            id: *id,
            number: client.number,
            kind: if client.is_privileged && !client.name.is_empty() { "privileged" } else { "regular" },
            state: match client.state {
                State::Closing => "dying",
                _ if client.is_leaving => "closing",
                State::Binding => "binding",
                _ => "ready",
            },
            peer: client.address,
            authorization: client.name.clone(),
            pending: client.pending.len(),
            counts: client.counts,
            ..ConnectionFigures::default()
        };
        let mut all: Vec<ConnectionFigures> = self.clients.iter().map(shown).collect();
        all.sort_by_key(|connection| connection.number);
        all
    }

    /// The same with every connection by itself, for cn=Monitor.
    pub(crate) fn all_figures(&self) -> Figures {
        let mut figures = self.figures();
        figures.connections = self.client_figures();
        for server in &mut figures.servers {
            let of = |(id, upstream): (&u64, &Upstream)| (upstream.backend == server.at).then_some(*id);
            let mut own: Vec<_> =
                self.upstreams.iter().filter_map(of).filter_map(|id| self.upstream_figures(id)).collect();
            own.sort_by_key(|connection| connection.number);
            server.connections = own;
        }
        figures
    }

    /// Everything that there is to watch, now.
    pub(crate) fn figures(&self) -> Figures {
        let mut servers = Vec::new();
        for (tier, at) in (1..)
            .zip(&self.tiers)
            .flat_map(|(number, tier)| tier.backends.iter().map(move |at| (number, *at)))
        {
            let Some(own) = self.backends.get(at) else { continue };
            let ready = Pool::ALL.map(|pool| {
                let is_ready = |id: &&u64| {
                    self.upstreams.get(id).is_some_and(|upstream| upstream.is_ready && !upstream.is_retiring)
                };
                own.connections(pool).iter().filter(is_ready).count()
            });
            let preparing = self
                .upstreams
                .values()
                .filter(|upstream| upstream.backend == at && !upstream.is_ready)
                .count();
            let mut figures = ServerFigures {
                at,
                name: own.settings.name.clone(),
                uri: own.settings.uri.clone(),
                coming: own.opening.iter().sum::<usize>() + preparing,
                counts: own.counts,
                url: own.settings.url.to_string(),
                tier,
                ready,
                wanted: [own.settings.connections, own.settings.bind_connections],
                under_way: own.pending,
                latency: own.latency,
                ..ServerFigures::default()
            };
            own.figures.show(&mut figures);
            servers.push(figures);
        }
        let [shared, binds] = self.waiting.each_ref().map(VecDeque::len);
        let pinned: usize = self.pinned.values().map(VecDeque::len).sum();
        Figures {
            counters: self.counters.clone(),
            clients: self.clients.len(),
            waiting: [shared + pinned, binds],
            is_stopping: self.is_stopping,
            tiers: self.settings.tiers.iter().map(|tier| tier.name.clone()).collect(),
            connections: Vec::new(),
            servers,
        }
    }
}
