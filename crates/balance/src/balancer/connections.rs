//! Connections to servers: which are to be made, and what goes over them.

use std::collections::VecDeque;
use std::time::Duration;

use larix_client::{Channel, MessageLimits, Opening, PeerFault, Security};
use larix_proto::proxy_header;
use larix_proto::url::{LdapUrl, UrlScheme};

use super::{Balancer, CONNECTION_OPERATIONS, CONNECTION_OUTPUT, PlannedConnection};
use crate::backend::Backend;
use crate::upstream::{Pool, Upstream};
use larix_configuration::balancer::{ProxyHeader, StartTls};

impl Balancer {
    /// The next connection that is to be made; it counts as being made from here on.
    pub(crate) fn next_connection(&mut self, now: Duration) -> Option<PlannedConnection> {
        if self.is_stopping {
            return None;
        }
        let lacking =
            self.backends.iter().enumerate().find_map(|(number, backend)| {
                Some((number, backend.lacks(now, self.with_contexts(backend))?))
            })?;
        self.upstream_number += 1;
        let lacking = PlannedConnection { backend: lacking.0, pool: lacking.1, number: self.upstream_number };
        if let Some(backend) = self.backends.get_mut(lacking.backend) {
            *backend.opening_mut(lacking.pool) += 1;
        }
        Some(lacking)
    }

    /// Connections to all servers at most.
    pub(crate) fn connections_max(&self) -> usize {
        let named = self.backends.iter().filter(|backend| !backend.is_gone);
        named.map(Backend::connections_max).sum()
    }

    /// When a connection is to be tried again.
    pub(crate) fn next_try(&self, now: Duration) -> Option<Duration> {
        let later = self.backends.iter().map(Backend::next_try).filter(|at| *at > now);
        later.min()
    }

    pub(crate) fn url(&self, backend: usize) -> Option<&LdapUrl> {
        self.backends.get(backend).map(|backend| &backend.settings.url)
    }

    /// A connection could not be made.
    pub(crate) fn not_opened(&mut self, planned: PlannedConnection, why: &str, now: Duration) {
        let is_gone = self.backends.get(planned.backend).is_none_or(|backend| backend.is_gone);
        if !is_gone {
            let url = self.url(planned.backend).map(ToString::to_string).unwrap_or_default();
            (self.tell)(&format!("{url}: cannot connect: {why}"));
            self.counters.fault(&PeerFault::Socket(String::new()));
        }
        let chance = Self::draw(&mut self.chance);
        if let Some(backend) = self.backends.get_mut(planned.backend) {
            let opening = backend.opening_mut(planned.pool);
            *opening = opening.saturating_sub(1);
            backend.figures.unreached += 1;
            backend.failed(now, chance);
        }
        // Who waits for it learns that there is none.
        self.freed = [true; 2];
    }

    /// A socket is connected: its number, under which bytes go and come.
    pub(crate) fn opened(&mut self, planned: PlannedConnection, now: Duration) -> Option<u64> {
        let begun = self.opening(planned).and_then(Channel::begin);
        let channel = match begun {
            Ok(channel) => channel,
            Err(fault) => {
                self.not_opened(planned, &fault.to_string(), now);
                return None;
            }
        };
        let backend = self.backends.get_mut(planned.backend)?;
        let opening = backend.opening_mut(planned.pool);
        *opening = opening.saturating_sub(1);
        if backend.is_gone {
            // Other settings have come meanwhile.
            return None;
        }
        self.next += 1;
        let id = self.next;
        // In the order of their numbers, whichever was first.
        let own = backend.connections_mut(planned.pool);
        let number = |id: &u64| self.upstreams.get(id).map_or(0, |upstream| upstream.number);
        own.insert(own.partition_point(|id| number(id) < planned.number), id);
        let mut upstream = Upstream::new(planned.backend, planned.pool, channel, now);
        upstream.number = planned.number;
        if backend.settings.proxy_header == ProxyHeader::Local {
            upstream.preface = proxy_header::LOCAL_HEADER.to_vec();
        }
        self.upstreams.insert(id, upstream);
        self.note_ready(id);
        self.touch_upstream(id);
        Some(id)
    }

    pub(super) fn opening(&self, planned: PlannedConnection) -> Result<Opening, PeerFault> {
        let backend = self.backends.get(planned.backend).ok_or(PeerFault::Closed)?;
        let url = &backend.settings.url;
        let tls = || {
            let client = self.upstream_tls.clone();
            client.ok_or_else(|| PeerFault::Tls("the settings of TLS cannot be used".to_owned()))
        };
        let security = match (url.scheme, backend.settings.start_tls) {
            (UrlScheme::Ldaps, _) => Security::Ldaps(tls()?),
            (UrlScheme::Ldapi, _) | (_, StartTls::No) => Security::Clear,
            // Passwords of clients would go in the clear.
            (_, StartTls::Yes) if planned.pool == Pool::Bind || self.settings.verifies_credentials => {
                Security::StartTls { client: tls()?, required: true }
            }
            (_, StartTls::Yes) => Security::StartTls { client: tls()?, required: false },
            (_, StartTls::Critical) => Security::StartTls { client: tls()?, required: true },
        };
        let credentials = match planned.pool {
            Pool::Shared => self.settings.bind.credentials.clone(),
            Pool::Bind => None,
        };
        Ok(Opening {
            host: url.effective_host().to_owned(),
            security,
            credentials,
            binds_anonymously: false,
            limits: MessageLimits {
                message_bytes: self.settings.upstream_message_bytes,
                operations: CONNECTION_OPERATIONS,
                output_bytes: CONNECTION_OUTPUT,
                outlives_notice: true,
                outlives_large: true,
            },
            ambient: self.ambient,
        })
    }

    pub(super) fn note_ready(&mut self, id: u64) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if upstream.is_ready || !upstream.channel.is_ready() {
            return;
        }
        upstream.is_ready = true;
        let pool = upstream.pool;
        if let Some(backend) = self.backends.get_mut(upstream.backend) {
            if backend.failures > 0 {
                (self.tell)(&format!("{}: connected again", backend.settings.url));
            }
            backend.failures = 0;
        }
        self.free(pool);
    }

    pub(super) fn free(&mut self, pool: Pool) {
        match pool {
            Pool::Shared => self.freed[0] = true,
            Pool::Bind => self.freed[1] = true,
        }
    }

    /// Whether more is to be read of a server.
    pub(crate) fn upstream_reads(&self, id: u64) -> bool {
        self.upstreams.get(&id).is_some_and(|upstream| !upstream.is_paused)
    }

    /// What is to be written to a server now.
    pub(crate) fn upstream_output(&mut self, id: u64) -> &[u8] {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return &[] };
        if !upstream.preface.is_empty() {
            return &upstream.preface;
        }
        // Broken TLS has nothing to write; reading ends the connection.
        upstream.channel.output().unwrap_or_default()
    }

    /// The socket of a server took so many bytes.
    pub(crate) fn upstream_sent(&mut self, id: u64, count: usize) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if upstream.preface.is_empty() {
            upstream.channel.sent(count);
        } else {
            upstream.preface.drain(..count.min(upstream.preface.len()));
        }
        upstream.stalled = None;
        let pool = upstream.pool;
        if !self.waiting.iter().all(VecDeque::is_empty) || !self.pinned.is_empty() {
            self.free(pool);
        }
    }
}
