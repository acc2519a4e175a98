//! How a connection comes about: its address, its socket, TLS and the proxy's own bind.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_client::dial::{begin_tcp, begin_unix};
use larix_client::{Channel, Credentials, MessageLimits, Opening, PeerFault, Security};
use larix_files::FileLook;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{LdapResult, ResultCode, limits};
use rustix::event::epoll;
use rustix::event::epoll::EventFlags;
use socket2::SockRef;

use super::{CONNECTION_OPERATIONS, CONNECTION_OUTPUT, Exchange};
use crate::connection::{Connection, Stage};
use crate::job::{Job, Owner, Sorting};
use crate::settings::{NETWORK_TIMEOUT, TlsBegins};

/// None: it is not there.
pub(super) type TlsFiles = Vec<Option<FileLook>>;

impl Exchange {
    /// A connection for a request, in this place, or in any.
    pub(super) fn open_for(&mut self, place: Option<u32>, number: u64, job: Box<Job>, now: Duration) {
        if let Some(result) = self.refusals.current(&job.owner, now) {
            return self.end_unsent(number, job, result);
        }
        let Some(target) = self.targets.choose(now) else {
            let text = "no target can be reached";
            return self.end_unsent(number, job, LdapResult::with(ResultCode::UNAVAILABLE, text));
        };
        let place = place.unwrap_or_else(|| self.free_place(&job.owner, 0));
        self.open_at((target, place), number, job, now);
    }

    /// The first place that no connection of an owner has, from this one on.
    pub(super) fn free_place(&self, owner: &Owner, first: u32) -> u32 {
        let pool = self.pools.get(owner).map(Vec::as_slice).unwrap_or_default();
        let used: HashSet<u32> = pool
            .iter()
            .filter_map(|id| self.connections.get(id))
            .map(|connection| connection.place)
            .collect();
        (first..).find(|place| !used.contains(place)).unwrap_or(u32::MAX)
    }

    /// A connection to a target, in this place of its owner's, for a request.
    pub(super) fn open_at(
        &mut self,
        (target, place): (usize, u32),
        number: u64,
        job: Box<Job>,
        now: Duration,
    ) {
        let id = self.next;
        self.next += 1;
        let patience = self.context.settings.network_timeout.unwrap_or(NETWORK_TIMEOUT);
        self.alarm = self.alarm.min(now + patience);
        self.pools.entry(job.owner.clone()).or_default().push(id);
        self.places.insert(number, id);
        let paging = job.page.map(|_| (number, now));
        let parts = usize::from(job.sorting == Sorting::Part);
        let is_for_one = job.is_too_large_to_share();
        self.connections.insert(
            id,
            Connection {
                owner: job.owner.clone(),
                credentials: job.credentials.clone(),
                target,
                place,
                stage: Stage::Resolving,
                socket: None,
                waiting: VecDeque::from([(number, job)]),
                sent: HashMap::new(),
                opened: now,
                used: now,
                last_received: now,
                opening_until: now + patience,
                interest: (false, false),
                is_reserved: false,
                is_for_one,
                paging,
                parts,
                has_full: false,
                is_shown: false,
                has_spoken: false,
                is_closing: false,
                activity: Arc::default(),
                addresses: VecDeque::new(),
            },
        );
        self.context.shared.counts.connections_opened.fetch_add(1, Ordering::Relaxed);
        self.begin(id, target);
    }

    pub(super) fn url(&self, target: usize) -> Option<&LdapUrl> {
        self.context.settings.targets.get(target)
    }

    fn begin(&mut self, id: u64, target: usize) {
        let Some(url) = self.url(target).cloned() else { return };
        if url.scheme == UrlScheme::Ldapi {
            return self.connecting(id, begin_unix(url.socket_path()));
        }
        let port = url.effective_port().unwrap_or_default();
        let host = url.effective_host().trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.addresses.push_back(SocketAddr::new(address, port));
                }
                self.connect_next(id, String::new());
            }
            Err(_) => {
                // The thread for names lives as long as this one.
                let _ = self.resolver.send((id, host.to_owned(), port));
            }
        }
    }

    pub(super) fn connect_next(&mut self, id: u64, why: String) {
        let next = self.connections.get_mut(&id).and_then(|connection| connection.addresses.pop_front());
        match next {
            Some(address) => {
                let settings = &self.context.settings;
                let begun = begin_tcp(address, settings.keep_alive, settings.user_timeout);
                self.connecting(id, begun);
            }
            None => self.unreachable(id, &why),
        }
    }

    fn connecting(&mut self, id: u64, begun: io::Result<socket2::Socket>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let registered = begun.and_then(|socket| {
            epoll::add(&self.poll, &socket, epoll::EventData::new_u64(id), EventFlags::OUT)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => {
                connection.socket = Some(socket);
                connection.stage = Stage::Connecting;
                connection.interest = (false, true);
            }
            Err(error) => self.connect_next(id, error.to_string()),
        }
    }

    /// The socket is connected, or not.
    pub(super) fn connected(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(socket) = &connection.socket else { return };
        let error = match SockRef::from(socket).take_error() {
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(error.to_string()),
        };
        if let Some(error) = error {
            // Closed, it leaves the poll.
            connection.socket = None;
            return self.connect_next(id, error);
        }
        let (owner, credentials, target) =
            (connection.owner.clone(), connection.credentials.clone(), connection.target);
        self.renew_tls();
        let credentials = if owner == Owner::Spare { None } else { credentials };
        match self.opening(target, &owner, credentials).and_then(Channel::begin) {
            Ok(channel) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.stage = Stage::Open(Box::new(channel));
                }
                self.flush(id);
            }
            Err(fault) => self.lost(id, &fault, false),
        }
    }

    /// Reads the files of TLS anew if they are others than those in use. What cannot be used leaves it as it was, until they change again.
    fn renew_tls(&mut self) {
        if self.context.tls.is_none() {
            return;
        }
        let looks = looks(&self.context.settings.tls.options);
        if looks == self.tls_files {
            return;
        }
        self.tls_files = looks;
        match self.context.settings.tls_client() {
            Ok(tls) => self.context.tls = tls,
            Err(error) => (self.context.tell)(&format!("proxy: TLS: what was in use stays: {error}")),
        }
    }

    fn opening(
        &self,
        target: usize,
        owner: &Owner,
        credentials: Option<Credentials>,
    ) -> Result<Opening, PeerFault> {
        // A server with `require bind` takes no other request before it.
        let binds_anonymously = matches!(owner, Owner::Anonymous | Owner::Assertion | Owner::Root);
        // Clients' passwords go over it.
        let takes_binds = *owner == Owner::Spare;
        let url = self.url(target).ok_or(PeerFault::Closed)?;
        let tls = || {
            self.context
                .tls
                .clone()
                .ok_or_else(|| PeerFault::Tls("the settings of TLS cannot be used".to_owned()))
        };
        let security = match (url.scheme, self.context.settings.tls.begins) {
            (UrlScheme::Ldaps, _) => Security::Ldaps(tls()?),
            (UrlScheme::Ldapi, _) | (_, TlsBegins::Never) => Security::Clear,
            (_, TlsBegins::Start) => Security::StartTls { client: tls()?, required: true },
            (_, TlsBegins::TryStart) => Security::StartTls { client: tls()?, required: takes_binds },
        };
        Ok(Opening {
            host: url.effective_host().to_owned(),
            security,
            credentials,
            binds_anonymously,
            limits: MessageLimits {
                message_bytes: limits::PDU_AUTHENTICATED.saturating_mul(4),
                operations: CONNECTION_OPERATIONS,
                output_bytes: CONNECTION_OUTPUT,
                outlives_notice: self.context.settings.outlives_notice,
                outlives_large: false,
            },
            ambient: self.context.ambient,
        })
    }
}

/// What the files of TLS look like.
fn looks(options: &[(String, String)]) -> TlsFiles {
    let names = ["tls_cacert", "tls_cacertdir", "tls_cert", "tls_key", "tls_crlfile"];
    let files = options.iter().filter(|(key, _)| names.contains(&key.as_str()));
    files.map(|(_, path)| FileLook::at(Path::new(path))).collect()
}
