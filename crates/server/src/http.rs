//! The listener for operators: `/metrics`, `/health/live` and `/health/ready` over HTTP/1.1.
//!
//! It answers on the acceptor's loop, apart from the loops that serve LDAP: a scrape takes nothing from them but reads of
//! their counters. Nothing here changes anything, and clients do not log in: it belongs on loopback or a
//! network of the operators' own.

pub(crate) mod health;
pub mod metrics;
mod slots;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use larix_engine::injected;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;

use crate::panics::contained_part;
use crate::server::Server;
pub(crate) use slots::ConnectionSlot;
use slots::ConnectionSlots;

/// Connections of one listener served at once; the next gets the slot of one that lets us wait.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's line and headers.
const HEADERS_MAX: usize = 16 * 1024;
/// How long a request's headers may take from the end of the request before, idle time included.
const HEADERS_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to read an answer of this listener.
const TAKING_PATIENCE: Duration = Duration::from_secs(30);
/// After an accept that failed, as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A bound `http-listener`.
#[derive(Debug)]
pub struct HttpListener {
    socket: std::net::TcpListener,
}

/// An address that cannot be listened on.
#[derive(Debug)]
pub struct HttpListenError {
    /// The directive that names it, with its URL.
    pub directive: String,
    pub source: io::Error,
}

impl fmt::Display for HttpListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directive, source } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => {
                let why = "the address is in use by another process or another listener of this server";
                write!(f, "{directive}: {why}: end that, or name another")
            }
            _ => write!(f, "{directive}: cannot listen there: {source}"),
        }
    }
}

impl std::error::Error for HttpListenError {}

/// What the configuration makes of its listeners while the server serves.
#[derive(Debug)]
pub(crate) enum HttpChange {
    /// Under the address that the configuration gives.
    Open(SocketAddr, HttpListener),
    /// What is being answered there goes on to its end.
    Close(SocketAddr),
}

/// Serves on tasks of the local task set this is called on. Each listener comes with the address under which the
/// configuration may close it.
pub(crate) fn start(
    listeners: Vec<(Option<SocketAddr>, HttpListener)>,
    mut changes: UnboundedReceiver<HttpChange>,
    server: Arc<Server>,
) {
    let mut open = HashMap::new();
    for (name, listener) in listeners {
        let task = spawn(listener, server.clone());
        open.extend(name.map(|name| (name, task)));
    }
    tokio::task::spawn_local(async move {
        while let Some(change) = changes.recv().await {
            match change {
                HttpChange::Open(name, listener) => {
                    open.insert(name, spawn(listener, server.clone()));
                }
                HttpChange::Close(name) => {
                    if let Some(task) = open.remove(&name) {
                        task.abort();
                        server.log.notice(format_args!("no longer listening on http://{name}/"));
                    }
                }
            }
        }
    });
}

fn spawn(listener: HttpListener, server: Arc<Server>) -> AbortHandle {
    if let Ok(address) = listener.address() {
        server.log.notice(format_args!("listening on http://{address}/"));
    }
    let serving = tokio::task::spawn_local(async move {
        if let Err(error) = listener.run(pages_of(server.clone())).await {
            server.log.notice(format_args!("daemon: cannot serve HTTP: {error}"));
        }
    });
    serving.abort_handle()
}

/// What a page is answered with.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    content_type: &'static str,
    text: String,
}

/// What a listener shows, by its path.
type Pages = Rc<dyn Fn(&str) -> Answer>;

/// Serves the pages of another program than the server, on a thread of its own, as long as the process runs.
///
/// # Errors
/// No event loop or no thread is to be had.
pub fn spawn_pages(
    listener: HttpListener,
    pages: impl Fn(&str) -> Answer + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        let serving = listener.run(Rc::new(pages));
        // It ends only if the socket cannot be polled: then nobody is answered, as an orchestrator notices.
        let _ = tokio::task::LocalSet::new().block_on(&runtime, serving);
    })?;
    Ok(())
}

impl HttpListener {
    /// # Errors
    /// An address that is in use, that is not this machine's, or whose port is not allowed.
    pub fn bind(address: SocketAddr) -> Result<Self, HttpListenError> {
        let socket = bind_socket(address).map_err(|source| {
            let directive = format!("http-listener http://{address}/");
            HttpListenError { directive, source }
        })?;
        Ok(Self { socket })
    }

    /// With the port that was really bound.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    async fn run(self, pages: Pages) -> io::Result<()> {
        accept_each(self.socket, TAKING_PATIENCE, |stream, _, slot| serve(stream, slot, pages.clone())).await
    }
}

/// A socket that listens, ready for an event loop.
pub(crate) fn bind_socket(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = std::net::TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Serves each connection on a task of its own, [`CONNECTIONS_MAX`] of them at once. One whose client does not take an
/// answer within `patience` is ended.
pub(crate) async fn accept_each<F: Future<Output = ()> + 'static>(
    socket: std::net::TcpListener,
    patience: Duration,
    serve: impl Fn(TcpStream, SocketAddr, Rc<ConnectionSlot>) -> F,
) -> io::Result<()> {
    let listener = TcpListener::from_std(socket)?;
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let accepted = contained_part(async {
            let (stream, peer) = listener.accept().await?;
            injected::panic_at("http-accept");
            // Without a slot it is closed.
            let Some(seat) = slots.take(peer.ip()) else { return Ok(()) };
            let slot = seat.slot().clone();
            let serving = serve(stream, peer, slot.clone());
            let task = tokio::task::spawn_local(seat.serve(serving, patience));
            slot.set_task(task.abort_handle());
            io::Result::Ok(())
        });
        if let Ok(Err(_)) = accepted.await {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// HTTP/1.1 with the limits that hold for every listener of ours.
pub(crate) fn protocol() -> hyper::server::conn::http1::Builder {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS_PATIENCE).max_buf_size(HEADERS_MAX);
    http
}

async fn serve(stream: TcpStream, slot: Rc<ConnectionSlot>, pages: Pages) {
    let stream = slot.time(stream);
    let service = service_fn(move |request: Request<Incoming>| {
        let _answering = slot.begin();
        injected::panic_at("http");
        let response = respond(&pages, request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(response))
    });
    // hyper answers a client that breaks off or speaks another protocol, as far as it can.
    let _ = protocol().serve_connection(TokioIo::new(stream), service).await;
}

/// The server's own.
fn pages_of(server: Arc<Server>) -> Pages {
    Rc::new(move |path| match path {
        "/metrics" => metrics::answer(&server),
        "/health/live" => Answer::live(),
        "/health/ready" => Answer::ready(health::unready(&server)).and(&health::full(&server)),
        _ => Answer::not_here(),
    })
}

fn respond(pages: &Pages, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let answer = match *method {
        Method::GET | Method::HEAD => pages(path),
        _ => Answer::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.text)));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(answer.content_type));
    headers.insert(CACHE_CONTROL, hyper::header::HeaderValue::from_static("no-store"));
    if answer.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

impl Answer {
    fn text(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", text: text.into() }
    }

    /// The process answers.
    pub fn live() -> Self {
        Self::text(StatusCode::OK, "live\n")
    }

    /// Whether clients may be sent here; `why` not, a line for each reason.
    pub fn ready(why: String) -> Self {
        if why.is_empty() {
            return Self::text(StatusCode::OK, "ready\n");
        }
        Self::text(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// With more lines, whatever the status.
    fn and(mut self, lines: &str) -> Self {
        self.text.push_str(lines);
        self
    }

    /// For any other path.
    pub fn not_here() -> Self {
        Self::text(StatusCode::NOT_FOUND, "not here: /metrics, /health/live and /health/ready are\n")
    }
}
