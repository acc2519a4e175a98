//! The admin page: HTML for an administrator's browser, on a listener of its own.
//!
//! Each session is an LDAP connection inside the process ([`client`]), so that whatever the page does is done by the
//! identity that logged in and nothing else. Pages are written on the server ([`pages`]); the browser runs a few small
//! modules for charts and the tree. The page has a thread of its own: the loops that serve LDAP do not wait for it.

mod assets;
mod changes;
mod client;
mod enrolment;
mod export;
mod figures;
mod form;
mod guard;
mod import;
mod mail_limits;
mod mailer;
mod names;
mod pages;
mod reply;
mod reset_codes;
mod respond;
mod schema;
mod sessions;
mod tls_stream;
mod undo;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use larix_configuration::values::AdminAddress;
use larix_engine::time::Clock as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::aside::Aside;
use crate::http::{self, ConnectionSlot, HttpListenError};
use crate::processor_time::{LOW, give_way};
use crate::server::Server;
use crate::statistics::ListenerInfo;
use crate::tls::{TlsFacts, TlsSession};
use crate::worker::WorkerHandle;
use figures::Figures;
use mail_limits::MailLimits;
use mailer::Mailer;
use reset_codes::ResetCodes;
use sessions::{Session, Sessions};
use tls_stream::TlsStream;

/// Why an address of the admin page that other machines reach is refused.
pub(crate) const NEEDS_TLS: &str = "admin-listener with https:// needs a certificate: TLSCertificateFile and \
    TLSCertificateKeyFile (or --tls-cert with --suffix)";
/// How long a browser may take for a TLS handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(15);
/// A connection is closed after so long, once what is under way is answered: a browser opens another. So nobody holds a
/// place for ever by reading slowly.
const CONNECTION_AGE: Duration = Duration::from_secs(10 * 60);
/// And so much later it is cut.
const CONNECTION_GRACE: Duration = Duration::from_secs(60);
/// How long a browser may take to read one answer: 64 MiB of LDIF at the most.
const TAKING_PATIENCE: Duration = Duration::from_secs(5 * 60);
/// Threads beside the page's that look up who wants to log in.
const LOOK_UP_THREADS: usize = 1;
/// Between two looks at the counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);

/// A bound `admin-listener`.
#[derive(Debug)]
pub(crate) struct AdminListener {
    socket: std::net::TcpListener,
    address: AdminAddress,
}

/// What the configuration makes of its listeners while the server serves.
#[derive(Debug)]
pub(crate) enum AdminChange {
    /// Under the address that the configuration gives.
    Open(AdminAddress, AdminListener),
    /// What is being answered there goes on to its end.
    Close(AdminAddress),
}

/// The page's thread.
#[derive(Debug)]
pub(crate) struct AdminThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// What all requests share.
struct Admin {
    server: Arc<Server>,
    workers: Vec<WorkerHandle>,
    sessions: RefCell<Sessions>,
    figures: RefCell<Figures>,
    reset_codes: RefCell<ResetCodes<Rc<Session>>>,
    mail_limits: RefCell<MailLimits>,
    /// Each look-up of a name for a code by mail holds one.
    looking_up: Rc<()>,
    /// Each change that is carried out to its end holds one.
    changing: Rc<()>,
    /// From the first mail on.
    mailer: RefCell<Option<Mailer>>,
    /// The machine's own name.
    machine: String,
    /// For what reads entries or files, and may take long.
    aside: Aside,
}

/// How a request came.
struct ClientConnection {
    address: Rc<AdminAddress>,
    listener: Arc<ListenerInfo>,
    peer: SocketAddr,
    secured: Option<TlsFacts>,
    place: Rc<ConnectionSlot>,
}

impl AdminListener {
    /// # Errors
    /// An address that is in use, that is not this machine's, or whose port is not allowed.
    pub(crate) fn bind(address: &AdminAddress) -> Result<Self, HttpListenError> {
        let bind = || {
            let socket = http::bind_socket(address.address)?;
            let bound = socket.local_addr()?;
            Ok(Self { socket, address: address.bound(bound) })
        };
        bind().map_err(|source| HttpListenError { directive: format!("admin-listener {address}"), source })
    }

    /// With the port that was really bound.
    pub(crate) fn address(&self) -> &AdminAddress {
        &self.address
    }
}

/// Serves on a thread of its own until it is stopped. Each listener comes with the address under which the configuration
/// may close it.
///
/// # Errors
/// No event loop or thread can be had.
pub(crate) fn start(
    listeners: Vec<(Option<AdminAddress>, AdminListener)>,
    changes: UnboundedReceiver<AdminChange>,
    server: Arc<Server>,
    workers: Vec<WorkerHandle>,
) -> io::Result<AdminThread> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (stop, stopped) = oneshot::channel();
    let mut own = OwnLoop(Some(runtime));
    let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        let Some(runtime) = own.0.take() else { return };
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let figures = RefCell::new(Figures::open(&server));
        let (sessions, reset_codes, mail_limits, looking_up, changing, mailer) = Default::default();
        let admin = Admin {
            server,
            workers,
            sessions,
            figures,
            reset_codes,
            mail_limits,
            looking_up,
            changing,
            mailer,
            machine,
            aside: Aside::new("admin-aside", LOOK_UP_THREADS).beginning_with(|| give_way(LOW)),
        };
        let admin = Rc::new(admin);
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local(serve_listeners(admin.clone(), listeners, changes));
            // An error is the sender that is gone: stopped as well.
            let _ = stopped.await;
            admin.figures.borrow_mut().write(&admin.server);
        });
    })?;
    Ok(AdminThread { stop, thread })
}

/// An event loop that goes if its thread cannot be had: on a thread that is in another event loop, which must not wait for it.
struct OwnLoop(Option<Runtime>);

impl Drop for OwnLoop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl AdminThread {
    /// Ends the page and its sessions.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        // A thread that panicked has printed why.
        let _ = self.thread.join();
    }
}

/// Serves what there is and what comes. Nothing is looked at before the first listener.
async fn serve_listeners(
    admin: Rc<Admin>,
    listeners: Vec<(Option<AdminAddress>, AdminListener)>,
    mut changes: UnboundedReceiver<AdminChange>,
) {
    let mut open: Vec<(AdminAddress, AbortHandle)> = Vec::new();
    let mut watching = false;
    let mut listen = |name: Option<AdminAddress>, listener, open: &mut Vec<_>| {
        if !std::mem::replace(&mut watching, true) {
            tokio::task::spawn_local(watch(admin.clone()));
        }
        let task = tokio::task::spawn_local(serve_listener(admin.clone(), listener));
        open.extend(name.map(|name| (name, task.abort_handle())));
    };
    for (name, listener) in listeners {
        listen(name, listener, &mut open);
    }
    while let Some(change) = changes.recv().await {
        match change {
            AdminChange::Open(name, listener) => listen(Some(name), listener, &mut open),
            AdminChange::Close(name) => {
                for (_, task) in open.extract_if(.., |(other, _)| *other == name) {
                    task.abort();
                    admin.server.log.notice(format_args!("no longer an admin page on {name}"));
                }
            }
        }
    }
}

/// Looks at the counters for the charts, and ends sessions and codes whose time is over.
async fn watch(admin: Rc<Admin>) {
    let mut tick = tokio::time::interval(SAMPLE_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        admin.figures.borrow_mut().look(&admin.server);
        let now = admin.server.clock.monotonic();
        admin.sessions.borrow_mut().sweep(now);
        let mut codes = admin.reset_codes.borrow_mut();
        codes.sweep(now);
        if admin.server.config().global.admin_password_reset.is_none() {
            codes.clear();
        }
    }
}

async fn serve_listener(admin: Rc<Admin>, listener: AdminListener) {
    let server = admin.server.clone();
    let address = Rc::new(listener.address);
    server.log.notice(format_args!("admin page on {address}"));
    let name = format!("IP={}", address.address);
    let info = Arc::new(ListenerInfo { url: address.to_string(), name });
    let serving = http::accept_each(listener.socket, TAKING_PATIENCE, |stream, peer, place| {
        let client_connection =
            ClientConnection { address: address.clone(), listener: info.clone(), peer, secured: None, place };
        serve(admin.clone(), stream, client_connection)
    });
    if let Err(error) = serving.await {
        server.log.notice(format_args!("daemon: cannot serve the admin page: {error}"));
    }
}

async fn serve(admin: Rc<Admin>, stream: TcpStream, mut client_connection: ClientConnection) {
    // Small answers are not held back; a socket that cannot be told so is closed already.
    let _ = stream.set_nodelay(true);
    if !client_connection.address.tls {
        return speak(admin, stream, client_connection).await;
    }
    let Some(state) = admin.server.tls.current() else { return };
    let handshake = TlsStream::accept(stream, TlsSession::new(state));
    match tokio::time::timeout(HANDSHAKE_PATIENCE, handshake).await {
        Ok(Ok((stream, facts))) => {
            admin.server.tls.count(Some(&facts));
            client_connection.secured = Some(facts);
            speak(admin, stream, client_connection).await;
        }
        Ok(Err(_)) | Err(_) => admin.server.tls.count(None),
    }
}

async fn speak(
    admin: Rc<Admin>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    client_connection: ClientConnection,
) {
    let client_connection = Rc::new(client_connection);
    let stream = client_connection.place.time(stream);
    let service =
        service_fn(move |request| respond::respond(admin.clone(), client_connection.clone(), request));
    let connection = http::protocol().serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // hyper answers a browser that breaks off or speaks another protocol, as far as it can.
    if tokio::time::timeout(CONNECTION_AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(CONNECTION_GRACE, connection).await;
    }
}
