//! The balancer in the server (`backend lload`): its thread and its listeners; and what the standalone program has alike.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use larix_balance::{
    ClientTls, ConnectionOf, EventLoop, Figures, Listeners, Listening, LoopHandle, Reloaded, Surroundings,
};
use larix_client::{Ambient, ClientError, TlsClient, TlsOptions};
use larix_configuration::balancer::{BalanceSettings, StartTls};
use larix_configuration::values::TlsSettings;
use larix_engine::time::{Clock as _, RandomSource as _, Timestamp};
use larix_proto::url::UrlScheme;

use crate::clock::{SystemClock, SystemRandom};
use crate::listener::{
    AddressFamily, DEFAULT_BACKLOG, ListenError, ListenSocket, ListenUrl, Listener, SocketPath,
};
use crate::log::{Log, printable};
use crate::tls::{Loaded, TlsError, TlsState, end_point_binding};

/// How long cn=Monitor waits for the loop, which answers between two events.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why a balancer cannot begin, or not go on with other settings.
#[derive(Debug)]
pub enum BalancerError {
    Listen(ListenError),
    /// Certificate, key or another setting of TLS of its listeners.
    Tls(TlsError),
    /// TLS towards the servers.
    TowardsServers(ClientError),
    /// A listener with TLS, and no certificate.
    NeedsTls(String),
    /// No descriptor or no thread is left.
    Start(io::Error),
}

impl fmt::Display for BalancerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("balancer: ")?;
        match self {
            Self::Listen(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::TowardsServers(error) => write!(f, "TLS towards the servers: {error}"),
            Self::NeedsTls(url) => write!(
                f,
                "{url}: TLS needs TLSCertificateFile and TLSCertificateKeyFile of the balancer, or within a server \
                 TLSShareSlapdCTX"
            ),
            Self::Start(error) => write!(f, "cannot start the event loop: {error}"),
        }
    }
}

impl std::error::Error for BalancerError {}

/// TLS of the server that a balancer is in.
#[derive(Debug)]
pub struct ServerTls<'a> {
    pub settings: &'a TlsSettings,
    /// What they come to.
    pub state: Option<Arc<TlsState>>,
}

/// What settings come to: with the certificates that they name, or with those of the server where the settings share its TLS. And notes for
/// the log.
///
/// # Errors
/// Files that cannot be used.
pub fn with_certificates(
    settings: Arc<BalanceSettings>,
    server: Option<ServerTls<'_>>,
    now: Timestamp,
) -> Result<(Reloaded, Vec<String>), BalancerError> {
    let (own, state, notes) = match server {
        Some(server) if settings.shares_tls => (server.settings, server.state, Vec::new()),
        _ => {
            let Loaded { state, notes } = TlsState::load(&settings.tls, now).map_err(BalancerError::Tls)?;
            (&settings.tls, state, notes)
        }
    };
    let client_tls = state.map(|state| ClientTls {
        config: Arc::clone(state.config()),
        peer_dn: Arc::new(move |session| state.facts(session).peer_dn),
    });
    let upstream_tls = towards_servers(&settings, own).map_err(BalancerError::TowardsServers)?;
    Ok((Reloaded { settings, upstream_tls, client_tls }, notes))
}

/// Whether listeners at these URLs have the TLS that they need.
///
/// # Errors
/// The first that has not.
pub fn check_tls(urls: &[ListenUrl], read: &Reloaded) -> Result<(), BalancerError> {
    match urls.iter().find(|url| url.tls && read.client_tls.is_none()) {
        Some(url) => Err(BalancerError::NeedsTls(url.text.clone())),
        None => Ok(()),
    }
}

/// TLS towards servers, if one has it: the settings of `bindconf`, and the authorities and the certificate of the listeners for what
/// those leave out.
fn towards_servers(
    settings: &BalanceSettings,
    listeners: &TlsSettings,
) -> Result<Option<TlsClient>, ClientError> {
    let has_tls = |scheme, start_tls| scheme == UrlScheme::Ldaps || start_tls != StartTls::No;
    if !settings.backends().any(|backend| has_tls(backend.url.scheme, backend.start_tls)) {
        return Ok(None);
    }
    let own = &settings.bind.tls;
    let has = |name: &str| own.iter().any(|(key, _)| key == name);
    let text = |path: &Option<PathBuf>| path.as_deref().map(|path| path.to_string_lossy().into_owned());
    let mut inherited = Vec::new();
    if !has("tls_cacert") && !has("tls_cacertdir") {
        inherited.push(("tls_cacert", text(&listeners.ca_certificate_file)));
        inherited.push(("tls_cacertdir", text(&listeners.ca_certificate_path)));
    }
    if !has("tls_cert") {
        inherited.push(("tls_cert", text(&listeners.certificate_file)));
        inherited.push(("tls_key", text(&listeners.certificate_key_file)));
    }
    let given = own.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let inherited = inherited.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
    TlsOptions::new(given.chain(inherited)).prepare().map(Some)
}

/// A bound socket for the loop.
pub fn listening(listener: Listener) -> Listening {
    let Listener { url, socket, tls, proxied, .. } = listener;
    let socket = match socket {
        ListenSocket::Tcp(socket) => socket.into(),
        ListenSocket::Unix(socket, _) => socket.into(),
    };
    Listening { url, socket, is_tls: tls, is_proxied: proxied }
}

/// The clock, the randomness and the log of this process. Words of servers stand in what the loop says: a line of it is one line.
pub fn surroundings(tell: Arc<dyn Fn(&str) + Send + Sync>) -> Surroundings {
    let clock = SystemClock;
    Surroundings {
        ambient: Ambient { random: |bytes| SystemRandom.fill(bytes), end_point_binding },
        clock: Box::new(move || Duration::from_nanos(clock.monotonic().0)),
        tell: Arc::new(move |line: &str| tell(&printable(line))),
    }
}

/// The thread of the balancer, while there is one.
#[derive(Debug, Default)]
pub(crate) struct BalancerThread {
    running: Mutex<Option<RunningBalancer>>,
    /// Threads that end when their clients have their answers.
    leaving: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct RunningBalancer {
    handle: LoopHandle,
    thread: JoinHandle<()>,
    endpoints: Vec<Endpoint>,
}

/// Where it listens.
#[derive(Debug)]
struct Endpoint {
    url: String,
    port: Option<u16>,
    /// Removed at the end.
    _path: Option<SocketPath>,
}

/// All that the next settings need, ready beside what is in force.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Option<Step>);

#[derive(Debug)]
enum Step {
    Start(Box<EventLoop>, Vec<Endpoint>, Log),
    Reload(Box<Reloaded>, Listeners, Vec<Endpoint>),
    Stop,
}

impl BalancerThread {
    /// Makes ready what the settings behind these need.
    ///
    /// # Errors
    /// An address, a file or a thread that cannot be had; what was made is taken back.
    pub(crate) fn prepare(
        &self,
        (before, after): (Option<&BalanceSettings>, Option<&BalanceSettings>),
        tls: ServerTls<'_>,
        (log, now): (&Log, Timestamp),
    ) -> Result<Prepared, BalancerError> {
        let Some(after) = after else { return Ok(Prepared(before.map(|_| Step::Stop))) };
        let (read, notes) = with_certificates(Arc::new(after.clone()), Some(tls), now)?;
        notes.iter().for_each(|note| log.notice(format_args!("balancer: TLS: {note}")));
        let urls = |settings: &BalanceSettings| {
            settings.listen.iter().map(|url| ListenUrl::parse(url)).collect::<Result<Vec<_>, _>>()
        };
        let urls = urls(after).map_err(BalancerError::Listen)?;
        check_tls(&urls, &read)?;
        let running = self.running();
        let old = before.filter(|_| running.is_some()).map_or(&[][..], |before| before.listen.as_slice());
        let mut listeners = Listeners::default();
        let mut endpoints = Vec::new();
        for url in urls.iter().filter(|url| !old.contains(&url.text)) {
            for listener in url.bind(AddressFamily::Any, DEFAULT_BACKLOG).map_err(BalancerError::Listen)? {
                log.notice(format_args!("balancer: listening on {} ({})", listener.url, listener.name));
                endpoints.push(Endpoint {
                    url: listener.url.clone(),
                    port: listener.port(),
                    _path: SocketPath::of(&listener),
                });
                listeners.opened.push(listening(listener));
            }
        }
        if running.is_some() {
            listeners.closed.extend(old.iter().filter(|url| !after.listen.contains(url)).cloned());
            return Ok(Prepared(Some(Step::Reload(Box::new(read), listeners, endpoints))));
        }
        let balancer_log = log.clone();
        let around =
            surroundings(Arc::new(move |line: &str| balancer_log.notice(format_args!("balancer: {line}"))));
        let made = EventLoop::new(read, listeners.opened, around).map_err(BalancerError::Start)?;
        Ok(Prepared(Some(Step::Start(Box::new(made), endpoints, log.clone()))))
    }

    /// Takes up what was made ready.
    pub(crate) fn publish(&self, Prepared(step): Prepared) {
        match step {
            None => {}
            Some(Step::Stop) => self.leave(),
            Some(Step::Reload(read, listeners, endpoints)) => {
                let mut running = self.running();
                let Some(running) = &mut *running else { return };
                running.endpoints.retain(|endpoint| !listeners.closed.contains(&endpoint.url));
                running.endpoints.extend(endpoints);
                running.handle.reload(*read, listeners);
            }
            Some(Step::Start(made, endpoints, log)) => {
                let (handle, balancer_log) = (made.handle(), log.clone());
                let serve = move || {
                    if let Err(error) = made.run() {
                        balancer_log.warning(format_args!("balancer: the event loop failed: {error}"));
                    }
                };
                match std::thread::Builder::new().name("balancer".to_owned()).spawn(serve) {
                    Ok(thread) => *self.running() = Some(RunningBalancer { handle, thread, endpoints }),
                    Err(error) => log.warning(format_args!("balancer: no thread to be had: {error}")),
                }
            }
        }
    }

    /// Tells it to end: clients with nothing under way are closed at once, the others when they have their answers.
    pub(crate) fn stop(&self) {
        if let Some(running) = &*self.running() {
            running.handle.stop();
        }
    }

    /// Ends it, and waits for that.
    pub(crate) fn finish(&self) {
        self.leave();
        let leaving = std::mem::take(&mut *self.leaving.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in leaving {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }

    /// Tells it to end, and does not wait.
    fn leave(&self) {
        let running = self.running().take();
        if let Some(RunningBalancer { handle, thread, .. }) = running {
            handle.stop();
            let mut leaving = self.leaving.lock().unwrap_or_else(PoisonError::into_inner);
            leaving.retain(|thread| !thread.is_finished());
            leaving.push(thread);
        }
    }

    /// The TCP ports that were bound.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let running = self.running();
        running.iter().flat_map(|running| &running.endpoints).filter_map(|endpoint| endpoint.port).collect()
    }

    /// What there is to watch now, with every connection; none: there is no balancer, or it does not answer.
    pub(crate) fn figures(&self) -> Option<Figures> {
        self.handle()?.all_figures(PATIENCE)
    }

    /// The same without connections, for those who can wait longer.
    pub(crate) fn totals(&self) -> Option<Figures> {
        self.handle()?.figures()
    }

    /// Has a connection close behind its last operation. None: there is no balancer, or it does not answer; false: there is no such connection.
    pub(crate) fn close(&self, of: ConnectionOf, number: u64) -> Option<bool> {
        self.handle()?.close(of, number, PATIENCE)
    }

    /// The loop's answer may take a moment: nobody waits for the lock meanwhile.
    fn handle(&self) -> Option<LoopHandle> {
        self.running().as_ref().map(|running| running.handle.clone())
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningBalancer>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
