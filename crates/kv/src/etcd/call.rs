//! Calls of etcd's API: gRPC, which is HTTP/2 with messages in frames. One connection carries all calls, and goes to whichever
//! endpoint answers.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use larix_proto::url::percent_decode_text;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::address::{Address, Endpoint};
use super::wire::{Txn, TxnResponse, Writer, bytes, fields};
use crate::error::{Fault, Status};
use crate::runtime::{AbortOnDrop, look_up};
use crate::tls::TlsFault;

/// Longest answer. A question for many rows is cut into several.
const ANSWER_BYTES_MAX: usize = 256 << 20;
const WINDOW_BYTES: u32 = 4 << 20;
/// A message begins with whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;
/// Members that have lost their leader elect another one in a second or two, and are asked again behind pauses of so long.
const ELECTION: Duration = Duration::from_secs(2);
const ELECTION_PAUSE: Duration = Duration::from_millis(50);
/// A login that was refused is not tried again before, whatever asks for it.
const LOGIN_PAUSE: Duration = Duration::from_secs(1);
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
const TXN: &str = "/etcdserverpb.KV/Txn";

/// Whether a call that got no answer may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Some,
}

/// An etcd, over one connection at a time.
#[derive(Debug)]
pub(super) struct Client {
    address: Address,
    /// How long a call may wait for one endpoint where another could be asked.
    patience: Duration,
    /// The same of a login, which takes an engine longer.
    login_patience: Duration,
    /// How long a call waits for a leader: who waits for the call is to hear that there is none, and not that it takes too long.
    election: Duration,
    state: Mutex<State>,
    /// Who asks for a token holds it: when the last login was refused, and how.
    login: tokio::sync::Mutex<Option<(Instant, Status)>>,
    trips: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    link: Option<Arc<Link>>,
    /// The endpoint to be connected to next.
    next: usize,
    /// What proves who asks.
    token: Option<String>,
}

/// A connection.
struct Link {
    requests: SendRequest<Bytes>,
    endpoint: String,
    scheme: &'static str,
    has_answered: AtomicBool,
    _task: AbortOnDrop,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// The messages of an answer that goes on.
pub(super) struct Stream {
    body: RecvStream,
    link: Arc<Link>,
}

/// Which connection a stream comes over; it does not keep it open.
#[derive(Clone, Debug)]
pub(super) struct StreamLink(Weak<Link>);

impl Stream {
    pub(super) fn link(&self) -> StreamLink {
        StreamLink(Arc::downgrade(&self.link))
    }

    /// Waits for some bytes of it. Whether there were any before its end.
    pub(super) async fn receives(&mut self) -> bool {
        match self.body.data().await {
            Some(Ok(data)) => self.body.flow_control().release_capacity(data.len()).is_ok(),
            _ => false,
        }
    }
}

impl Client {
    pub(super) fn new(address: Address, deadline: Duration) -> Self {
        let tries = u32::try_from(address.endpoints.len()).unwrap_or(1).max(1);
        let election = ELECTION.min(deadline * 3 / 4);
        Self {
            address,
            patience: deadline / tries,
            login_patience: deadline / tries.min(2),
            election,
            state: Mutex::default(),
            login: tokio::sync::Mutex::default(),
            trips: AtomicU64::new(0),
        }
    }

    pub(super) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    /// Counts a round trip.
    pub(super) fn trip(&self) {
        self.trips.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next call go to another endpoint. Calls under way keep their connection.
    pub(super) fn move_on(&self) {
        let mut state = self.lock();
        state.link = None;
        state.next = (state.next + 1) % self.address.endpoints.len().max(1);
    }

    /// Whether calls go over the connection of a stream: once they do not, nobody would see that it hangs.
    pub(super) fn goes_over(&self, stream: &StreamLink) -> bool {
        self.lock().link.as_ref().is_some_and(|link| Weak::ptr_eq(&Arc::downgrade(link), &stream.0))
    }

    fn leave(&self, link: &Arc<Link>) {
        let is_current = self.lock().link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
        if is_current {
            self.move_on();
        }
    }

    pub(super) async fn txn(&self, txn: &Txn) -> Result<TxnResponse, Fault> {
        let changes = |op: &super::wire::Op| !matches!(op, super::wire::Op::Range(_));
        let effect = match txn.success.iter().chain(&txn.failure).any(changes) {
            true => Effect::Some,
            false => Effect::None,
        };
        let answer = self.call(TXN, txn.encode().into(), effect).await?;
        TxnResponse::decode(&answer)
            .ok_or_else(|| Fault::Lie("an answer to a transaction that is none".to_owned()))
    }

    /// One message, answered by one message. Where the members have no leader, it waits a while for their election.
    pub(super) async fn call(
        &self,
        method: &'static str,
        message: Bytes,
        effect: Effect,
    ) -> Result<Vec<u8>, Fault> {
        let until = Instant::now() + self.election;
        loop {
            match self.ask_members(method, message.clone(), effect).await {
                Err(Fault::Etcd(status)) if status.lacks_leader() && Instant::now() < until => {
                    tokio::time::sleep(ELECTION_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Asks one member after the other, as long as nothing was done.
    async fn ask_members(
        &self,
        method: &'static str,
        message: Bytes,
        effect: Effect,
    ) -> Result<Vec<u8>, Fault> {
        let mut last = None;
        let mut logged_in = false;
        for _ in 0..=self.address.endpoints.len() {
            let link = match self.link().await {
                Ok(link) => link,
                Err(fault) => {
                    last = Some(fault);
                    continue;
                }
            };
            let token = self.lock().token.clone();
            let asked = ask(&link, method, message.clone(), token.clone());
            let answer = match effect {
                Effect::None => tokio::time::timeout(self.patience, asked)
                    .await
                    .unwrap_or(Err(Fault::Late(self.patience))),
                Effect::Some => asked.await,
            };
            let fault = match answer {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if fault.ends_connection() {
                self.leave(&link);
            }
            match &fault {
                Fault::Etcd(status) if status.wants_login() && !logged_in => {
                    match self.log_in(&link, token.as_deref()).await {
                        Ok(()) => logged_in = true,
                        // Another member is asked.
                        Err(fault) if fault.ends_connection() => {
                            self.leave(&link);
                            last = Some(fault);
                            continue;
                        }
                        Err(fault) => return Err(fault),
                    }
                }
                Fault::Etcd(status) if status.is_for_another_member() => {}
                // A leader that has changed, a member that ends.
                Fault::Etcd(status) if effect == Effect::None && status.code == Status::UNAVAILABLE => {}
                Fault::Connection { was_sent: false, .. } => {}
                Fault::Connection { .. } | Fault::Late(_) if effect == Effect::None => {}
                _ => return Err(fault),
            }
            last = Some(fault);
        }
        Err(last.unwrap_or(Fault::Ended))
    }

    /// One message, answered by as many as come.
    pub(super) async fn stream(&self, method: &'static str, message: Bytes) -> Result<Stream, Fault> {
        let link = self.link().await?;
        let token = self.lock().token.clone();
        let (head, body) = send(&link, method, message, token).await?;
        check(&link, &head)?;
        Ok(Stream { body, link })
    }

    /// The connection, or a new one to the first endpoint that takes it.
    async fn link(&self) -> Result<Arc<Link>, Fault> {
        if let Some(link) = self.lock().link.clone() {
            return Ok(link);
        }
        let mut last = Fault::Ended;
        for _ in 0..self.address.endpoints.len() {
            let at = self.lock().next;
            let Some(endpoint) = self.address.endpoints.get(at) else { break };
            let connecting = tokio::time::timeout(self.patience, self.connect(endpoint));
            let link = match connecting.await.unwrap_or(Err(Fault::Late(self.patience))) {
                Ok(link) => Arc::new(link),
                Err(fault) => {
                    last = at_endpoint(fault, endpoint);
                    self.move_on();
                    continue;
                }
            };
            let lacks_token = self.address.user.is_some() && self.lock().token.is_none();
            if lacks_token && let Err(fault) = self.log_in(&link, None).await {
                if !fault.ends_connection() {
                    return Err(fault);
                }
                last = at_endpoint(fault, endpoint);
                self.move_on();
                continue;
            }
            self.lock().link = Some(Arc::clone(&link));
            return Ok(link);
        }
        Err(last)
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<Link, Fault> {
        let fault = |why: String| Fault::Connection { why, tls: None, was_sent: false };
        let addresses = look_up(&endpoint.host, endpoint.port).await.flatten();
        let addresses = addresses.map_err(|error| fault(error.to_string()))?;
        let socket =
            TcpStream::connect(addresses.as_slice()).await.map_err(|error| fault(error.to_string()))?;
        // Without it each small request would wait for the answer to the one before.
        socket.set_nodelay(true).map_err(|error| fault(error.to_string()))?;
        match &self.address.tls {
            None => speak(socket, endpoint, "http").await,
            Some(tls) => {
                let secured = tls.secure(socket, &endpoint.host, &[b"h2"]).await.map_err(|tls| {
                    let why = tls.to_string();
                    Fault::Connection { why, tls: Some(tls), was_sent: false }
                })?;
                speak(secured, endpoint, "https").await
            }
        }
    }

    /// Gets a token in the place of the one that an endpoint has refused, or of none. All calls lack it at the same moment, and a login takes
    /// the engine longer than thousands of them: one asks for all. Where no answer comes, it is given up: nobody else
    /// gets a token before.
    async fn log_in(&self, link: &Arc<Link>, refused: Option<&str>) -> Result<(), Fault> {
        let Some((user, password)) = &self.address.user else { return Ok(()) };
        let mut last_refusal = self.login.lock().await;
        if self.lock().token.as_deref() != refused {
            return Ok(());
        }
        if let Some((at, status)) = &*last_refusal
            && at.elapsed() < LOGIN_PAUSE
        {
            return Err(Fault::Etcd(status.clone()));
        }
        let message = Writer::default().bytes(1, user.as_bytes()).bytes(2, password.as_bytes()).done();
        let asked = ask(link, AUTHENTICATE, message.into(), None);
        let patience = self.login_patience;
        let answer = tokio::time::timeout(patience, asked).await.unwrap_or(Err(Fault::Late(patience)));
        *last_refusal = match &answer {
            Err(Fault::Etcd(status)) if status.is_of_login() => Some((Instant::now(), status.clone())),
            _ => None,
        };
        let answer = answer?;
        let token = fields(&answer).map(|answer| String::from_utf8_lossy(bytes(&answer, 2)).into_owned());
        self.lock().token = token.filter(|token| !token.is_empty());
        Ok(())
    }
}

/// Names the endpoint where a connection failed.
fn at_endpoint(fault: Fault, endpoint: &Endpoint) -> Fault {
    match fault {
        Fault::Connection { why, tls, was_sent } => {
            Fault::Connection { why: format!("{endpoint}: {why}"), tls, was_sent }
        }
        Fault::Late(time) => Fault::Connection {
            why: format!("{endpoint} did not answer within {} ms", time.as_millis()),
            tls: None,
            was_sent: false,
        },
        fault => fault,
    }
}

async fn speak<S>(stream: S, endpoint: &Endpoint, scheme: &'static str) -> Result<Link, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let made = h2::client::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .enable_push(false)
        .handshake::<_, Bytes>(stream)
        .await;
    let (requests, connection) =
        made.map_err(|error| Fault::Connection { why: error.to_string(), tls: None, was_sent: false })?;
    let task = tokio::spawn(async move {
        // The next call sees its end.
        let _end = connection.await;
    });
    let task = AbortOnDrop(Some(task.abort_handle()));
    Ok(Link {
        requests,
        endpoint: endpoint.to_string(),
        scheme,
        has_answered: AtomicBool::new(false),
        _task: task,
    })
}

fn broken(link: &Link, error: &h2::Error, was_sent: bool) -> Fault {
    /// With TLS 1.3 an engine says only behind the handshake what it has against a client's certificate. Of the error that says so
    /// only the text comes here.
    const ALERT: &str = "received fatal alert: ";
    let text = error.to_string();
    let alert = text.split_once(ALERT).map(|(_, alert)| alert);
    // What it said may have been lost with the connection.
    if link.scheme == "https" && (alert.is_some() || !link.has_answered.load(Ordering::Relaxed)) {
        let why = format!(
            "{} ended the connection behind the handshake ({}): if it asks for certificates, name one in cert, with its key in key, that \
             is of an authority in etcd's --trusted-ca-file",
            link.endpoint,
            alert.unwrap_or(&text)
        );
        let tls = alert.map(|_| TlsFault::refusal(why.clone()));
        return Fault::Connection { why, tls, was_sent };
    }
    // A member that ends refuses streams that it has not looked at.
    let was_sent = was_sent && error.reason() != Some(h2::Reason::REFUSED_STREAM);
    let why = format!("{}: the connection ended: {text}", link.endpoint);
    Fault::Connection { why, tls: None, was_sent }
}

/// Sends a message, and waits for the beginning of the answer.
async fn send(
    link: &Link,
    method: &str,
    message: Bytes,
    token: Option<String>,
) -> Result<(HeaderMap, RecvStream), Fault> {
    let mut requests = link.requests.clone().ready().await.map_err(|error| broken(link, &error, false))?;
    let mut request = Request::post(format!("{}://{}{method}", link.scheme, link.endpoint))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        // A member without a leader refuses at once, so that another one is asked.
        .header("hasleader", "true");
    if let Some(token) = token {
        request = request.header("token", token);
    }
    let request = request.body(()).map_err(|error| Fault::Lie(error.to_string()))?;
    let (response, mut body) =
        requests.send_request(request, false).map_err(|error| broken(link, &error, false))?;
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(FRAME_BYTES + message.len());
    frame.push(0);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&message);
    let mut rest = Bytes::from(frame);
    while rest.has_remaining() {
        body.reserve_capacity(rest.len());
        match poll_fn(|context| body.poll_capacity(context)).await {
            Some(Ok(some)) => {
                let part = rest.split_to(some.min(rest.len()));
                let sent = body.send_data(part, rest.is_empty());
                sent.map_err(|error| broken(link, &error, true))?;
            }
            // The answer says why it wants no more.
            Some(Err(_)) | None => break,
        }
    }
    let response = response.await.map_err(|error| broken(link, &error, true))?;
    link.has_answered.store(true, Ordering::Relaxed);
    let (head, body) = response.into_parts();
    if head.status != StatusCode::OK {
        return Err(no_etcd(&link.endpoint, head.status));
    }
    Ok((head.headers, body))
}

/// An answer that etcd does not give. A proxy says with one of 500 and above that etcd's own is lost: what was asked for may be done.
fn no_etcd(endpoint: &str, status: StatusCode) -> Fault {
    let why = format!("{endpoint}: this is no etcd: it answers {status}");
    Fault::Connection { why, tls: None, was_sent: status.is_server_error() }
}

async fn ask(link: &Link, method: &str, message: Bytes, token: Option<String>) -> Result<Vec<u8>, Fault> {
    let (head, mut body) = send(link, method, message, token).await?;
    check(link, &head)?;
    let mut answer = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(|error| broken(link, &error, true))?;
        if answer.len() + data.len() > ANSWER_BYTES_MAX {
            return Err(Fault::Lie(format!("an answer of more than {} MB", ANSWER_BYTES_MAX >> 20)));
        }
        answer.extend_from_slice(&data);
        body.flow_control().release_capacity(data.len()).map_err(|error| broken(link, &error, true))?;
    }
    let trailers = body.trailers().await.map_err(|error| broken(link, &error, true))?;
    check(link, &trailers.unwrap_or_default())?;
    match answer.split_first_chunk::<FRAME_BYTES>() {
        Some(([0, a, b, c, d], message))
            if message.len() == usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(0) =>
        {
            answer.drain(..FRAME_BYTES);
            Ok(answer)
        }
        _ => Err(Fault::Lie("an answer that is no single message".to_owned())),
    }
}

/// What gRPC says of a call, in its head or behind its messages.
fn check(link: &Link, fields: &HeaderMap) -> Result<(), Fault> {
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let Some(code) = text("grpc-status") else { return Ok(()) };
    let code = code.parse().unwrap_or(2);
    if code == 0 {
        return Ok(());
    }
    let message = text("grpc-message").unwrap_or_default();
    let message = percent_decode_text(message).unwrap_or_else(|| message.to_owned());
    Err(Fault::Etcd(Status { code, text: message, endpoint: link.endpoint.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Verdict;

    #[test]
    fn what_a_proxy_lost_may_be_done() {
        for (status, is_unknown) in [
            (StatusCode::NOT_FOUND, false),
            (StatusCode::FORBIDDEN, false),
            (StatusCode::BAD_GATEWAY, true),
            (StatusCode::GATEWAY_TIMEOUT, true),
        ] {
            let verdict = no_etcd("e1:2379", status).verdict();
            assert_eq!(matches!(verdict, Verdict::Unknown), is_unknown, "{status}");
        }
    }
}
