//! The page's own LDAP client: messages over a pair of sockets to a worker, which takes them for any other client's.
//!
//! So there is no second way into the directory: access rules, limits, password policy, log and counters see a connection
//! that came from the browser's address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::time::Clock as _;
use larix_proto::ber::{Tag, write};
use larix_proto::client::{self, ClientAttribute, ClientChange, Search};
use larix_proto::control::{
    AccountUsability, AccountUsabilityRequest, ControlValue as _, PagedResults, PasswordPolicyRequest,
    PasswordPolicyResponse, SortKey, SortRequest,
};
use larix_proto::extended::{ExtendedValue as _, PasswordModify, PasswordModifyResponse};
use larix_proto::{
    ControlBuf, FilterBuf, Frame, FrameError, LdapResult, MessageId, ModifyOperation, Response, ResultCode,
    Scope, frame, oid,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use zeroize::{Zeroize as _, Zeroizing};

use crate::log::LogLevel;
use crate::server::Server;
use crate::session::Peer;
use crate::statistics::{ConnectionRecord, ListenerInfo};
use crate::stream::AcceptedStream;
use crate::tls::TlsFacts;
use crate::worker::{AcceptedConnection, WorkerHandle};

/// How long the page waits for one answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of one answer that are kept; a page is not the place for more.
const ANSWER_MAX: usize = 16 * 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;

/// One connection to a worker.
#[derive(Debug)]
pub(super) struct LdapClient {
    stream: UnixStream,
    input: Vec<u8>,
    last_id: u32,
    /// Bytes of a message too large for a page that are still to come.
    passed_over: usize,
    /// Nothing more comes from there, or a request has gone in part: no other may follow it.
    gone: bool,
}

/// What was answered to one request.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) entries: Vec<ReceivedEntry>,
    pub(super) controls: Vec<ControlBuf>,
    /// Those of the last entry.
    entry_controls: Vec<ControlBuf>,
    /// Of an extended response.
    pub(super) value: Option<Vec<u8>>,
}

/// An entry as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedEntry {
    pub(super) dn: String,
    pub(super) attributes: Vec<ReceivedAttribute>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedAttribute {
    /// With its options.
    pub(super) name: String,
    pub(super) values: Vec<Vec<u8>>,
}

/// A change of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttributeChange {
    pub(super) operation: ModifyOperation,
    pub(super) name: String,
    pub(super) values: Vec<Vec<u8>>,
}

/// A page of a search's answer.
#[derive(Debug, Default)]
pub(super) struct EntryPage {
    pub(super) entries: Vec<ReceivedEntry>,
    /// Empty when there is no more.
    pub(super) cookie: Vec<u8>,
    /// Entries in all, as the server guesses; 0 where it does not.
    pub(super) estimate: u32,
    /// A size or time limit left entries out.
    pub(super) limited: bool,
}

/// Who asks, and how they came here.
#[derive(Debug)]
pub(super) struct Caller<'a> {
    pub(super) peer: SocketAddr,
    pub(super) listener: &'a Arc<ListenerInfo>,
    pub(super) secured: Option<&'a TlsFacts>,
}

impl LdapClient {
    /// Opens a connection in the browser's name.
    ///
    /// # Errors
    /// The answer of `client-limits`, or for want of descriptors.
    pub(super) fn connect(
        server: &Server,
        workers: &[WorkerHandle],
        caller: &Caller<'_>,
    ) -> Result<Self, LdapResult> {
        let unavailable = |error: io::Error| LdapResult::with(ResultCode::UNAVAILABLE, error.to_string());
        let peer = SocketAddr::new(caller.peer.ip().to_canonical(), caller.peer.port());
        let admitted = server
            .admission
            .admit(Some(peer.ip()), server.clock.monotonic())
            .map_err(|refusal| refusal.result())?;
        let (ours, theirs) = StdUnixStream::pair().map_err(unavailable)?;
        ours.set_nonblocking(true).map_err(unavailable)?;
        let stream = UnixStream::from_std(ours).map_err(unavailable)?;
        let (name, fd) = (format!("IP={peer}"), theirs.as_raw_fd());
        let number = server.statistics.next_connection();
        server.log.line(
            LogLevel::STATS,
            format_args!("conn={number} fd={fd} ACCEPT from {name} ({})", caller.listener.name),
        );
        let mut record =
            ConnectionRecord::new(number, fd, caller.listener.clone(), name.clone(), server.both_clocks());
        record.admitted = Some(admitted);
        let record = Arc::new(record);
        let now = server.clock.monotonic();
        let Some(worker) = workers.iter().min_by_key(|worker| worker.load(now)) else {
            return Err(LdapResult::with(ResultCode::UNAVAILABLE, "the server stops"));
        };
        server.statistics.opened(record.clone());
        let served = worker.serve(AcceptedConnection {
            stream: AcceptedStream::Unix(theirs),
            record,
            peer: Peer { name, credentials: None },
            // What a browser shows of itself in TLS is no LDAP identity.
            secured: caller.secured.map(|facts| TlsFacts { peer_dn: None, ..facts.clone() }),
        });
        if !served {
            server.statistics.closed(number);
        }
        Ok(Self { stream, input: Vec::new(), last_id: 0, passed_over: 0, gone: false })
    }

    /// Whether the server has ended the connection, as `idletimeout` does.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// A simple bind, with what the password policy says to it.
    ///
    /// # Errors
    /// As answered.
    pub(super) async fn bind(
        &mut self,
        dn: &str,
        password: &[u8],
    ) -> (Result<(), LdapResult>, PasswordPolicyResponse) {
        let control = [PasswordPolicyRequest.to_control(false)];
        let (result, answer) =
            self.exchange(|out, id| client::simple_bind(out, id, dn, password, &control)).await;
        let policy = answer
            .controls
            .iter()
            .find(|control| control.oid == PasswordPolicyResponse::OID)
            .and_then(|control| PasswordPolicyResponse::decode(control.value.as_deref()).ok());
        let result = if result.is_success() { Ok(()) } else { Err(result) };
        (result, policy.unwrap_or_default())
    }

    /// # Errors
    /// As answered.
    pub(super) async fn who_am_i(&mut self) -> Result<String, LdapResult> {
        let answer = self.call(|out, id| client::extended(out, id, oid::WHO_AM_I, None, &[])).await?;
        let text = String::from_utf8_lossy(&answer.value.unwrap_or_default()).into_owned();
        Ok(text.strip_prefix("dn:").map_or_else(|| text.clone(), str::to_owned))
    }

    /// One entry; `None` where there is none to be seen.
    ///
    /// # Errors
    /// As answered.
    pub(super) async fn read(
        &mut self,
        dn: &str,
        attributes: &[&str],
    ) -> Result<Option<ReceivedEntry>, LdapResult> {
        let filter = FilterBuf::parse("(objectClass=*)").map_err(bad_filter)?;
        let mut search = Search::new(dn, Scope::Base, filter.as_filter());
        search.attributes = attributes;
        let (result, answer) = self
            .exchange(|out, id| {
                client::search(out, id, &search, &[larix_proto::control::ManageDsaIt.to_control(false)]);
            })
            .await;
        match result.code {
            ResultCode::SUCCESS => Ok(answer.entries.into_iter().next()),
            ResultCode::NO_SUCH_OBJECT => Ok(None),
            _ => Err(result),
        }
    }

    /// Whether the user may read this attribute of an entry.
    pub(super) async fn shows(&mut self, dn: &str, attribute: &str) -> bool {
        let read = self.read(dn, &[attribute]).await;
        read.is_ok_and(|entry| entry.is_some_and(|entry| entry.text(attribute).is_some()))
    }

    /// An entry with the own rights to each of `attributes` (the Get Effective Rights control), beside what `read` gives.
    ///
    /// # Errors
    /// As answered.
    pub(super) async fn read_with_rights(
        &mut self,
        dn: &str,
        identity: &str,
        attributes: &[&str],
    ) -> Result<Option<ReceivedEntry>, LdapResult> {
        let filter = FilterBuf::parse("(objectClass=*)").map_err(bad_filter)?;
        let mut search = Search::new(dn, Scope::Base, filter.as_filter());
        search.attributes = &["*", "entryCSN"];
        let control = effective_rights(identity, attributes);
        let (result, answer) = self.exchange(|out, id| client::search(out, id, &search, &[control])).await;
        match result.code {
            ResultCode::NO_SUCH_OBJECT => Ok(None),
            _ if result.is_success() => Ok(answer.entries.into_iter().next()),
            _ => Err(result),
        }
    }

    /// Whether an account can log in, as far as its state and its password policy go (the account usability control). `None`: the server
    /// does not say, as to those who may not compare the password, and of an account without a policy or a password.
    pub(super) async fn is_usable(&mut self, dn: &str) -> Option<bool> {
        let filter = FilterBuf::parse("(objectClass=*)").ok()?;
        let mut search = Search::new(dn, Scope::Base, filter.as_filter());
        search.attributes = &["1.1"];
        let control = [AccountUsabilityRequest.to_control(false)];
        let (_, answer) = self.exchange(|out, id| client::search(out, id, &search, &control)).await;
        let control = answer.entry_controls.iter().find(|control| control.oid == AccountUsability::OID)?;
        let usability = AccountUsability::decode(control.value.as_deref()).ok()?;
        Some(matches!(usability, AccountUsability::Available { .. }))
    }

    /// One page of a search. What a size or time limit left is given, as if it were all.
    ///
    /// # Errors
    /// As answered, and for a filter that is none.
    pub(super) async fn page(
        &mut self,
        base: &str,
        scope: Scope,
        filter: &str,
        attributes: &[&str],
        (size, cookie): (u32, &[u8]),
    ) -> Result<EntryPage, LdapResult> {
        self.sorted_page(base, scope, filter, attributes, (size, cookie), None).await
    }

    /// The same in an order that the server makes.
    ///
    /// # Errors
    /// As answered, and for a filter that is none.
    pub(super) async fn sorted_page(
        &mut self,
        base: &str,
        scope: Scope,
        filter: &str,
        attributes: &[&str],
        (size, cookie): (u32, &[u8]),
        sort: Option<SortKey<'_>>,
    ) -> Result<EntryPage, LdapResult> {
        let filter = FilterBuf::parse(filter).map_err(bad_filter)?;
        let mut search = Search::new(base, scope, filter.as_filter());
        search.attributes = attributes;
        let mut controls = vec![
            PagedResults { size, cookie }.to_control(true),
            larix_proto::control::ManageDsaIt.to_control(false),
        ];
        controls.extend(sort.map(|key| SortRequest { keys: vec![key] }.to_control(true)));
        let (result, answer) = self.exchange(|out, id| client::search(out, id, &search, &controls)).await;
        let limited =
            matches!(result.code, ResultCode::SIZE_LIMIT_EXCEEDED | ResultCode::TIME_LIMIT_EXCEEDED);
        let some = limited && !answer.entries.is_empty();
        if !result.is_success() && !some {
            return Err(result);
        }
        let paged =
            answer.controls.iter().find(|control| control.oid == PagedResults::OID).and_then(|control| {
                let paged = PagedResults::decode(control.value.as_deref()).ok()?;
                Some((paged.cookie.to_vec(), paged.size))
            });
        let (cookie, estimate) = paged.unwrap_or_default();
        Ok(EntryPage { entries: answer.entries, cookie, estimate, limited })
    }

    /// The first number of an attribute in the order that `sort` asks for.
    pub(super) async fn highest(
        &mut self,
        base: &str,
        filter: &str,
        attribute: &str,
        sort: ControlBuf,
    ) -> Option<u64> {
        let filter = FilterBuf::parse(filter).ok()?;
        let attributes = [attribute];
        let mut search = Search::new(base, Scope::Subtree, filter.as_filter());
        search.attributes = &attributes;
        search.size_limit = 1;
        let (_, answer) = self.exchange(|out, id| client::search(out, id, &search, &[sort])).await;
        answer.entries.first()?.text(attribute)?.parse().ok()
    }

    /// # Errors
    /// As answered.
    pub(super) async fn add(
        &mut self,
        dn: &str,
        attributes: &[ReceivedAttribute],
    ) -> Result<Answer, LdapResult> {
        let list: Vec<_> = attributes
            .iter()
            .map(|attribute| ClientAttribute { description: &attribute.name, values: &attribute.values })
            .collect();
        self.call(|out, id| client::add(out, id, dn, &list, &[])).await
    }

    /// # Errors
    /// As answered.
    pub(super) async fn modify(
        &mut self,
        dn: &str,
        changes: &[AttributeChange],
        controls: &[ControlBuf],
    ) -> Result<Answer, LdapResult> {
        let list: Vec<_> = changes
            .iter()
            .map(|change| ClientChange {
                operation: change.operation,
                attribute: ClientAttribute { description: &change.name, values: &change.values },
            })
            .collect();
        self.call(|out, id| client::modify(out, id, dn, &list, controls)).await
    }

    /// Whether an entry has this value.
    ///
    /// # Errors
    /// As answered.
    pub(super) async fn compare(
        &mut self,
        dn: &str,
        attribute: &str,
        value: &[u8],
    ) -> Result<bool, LdapResult> {
        let (result, _) = self.exchange(|out, id| client::compare(out, id, dn, attribute, value, &[])).await;
        match result.code {
            ResultCode::COMPARE_TRUE => Ok(true),
            ResultCode::COMPARE_FALSE => Ok(false),
            _ => Err(result),
        }
    }

    /// # Errors
    /// As answered.
    pub(super) async fn delete(&mut self, dn: &str, controls: &[ControlBuf]) -> Result<Answer, LdapResult> {
        self.call(|out, id| client::delete(out, id, dn, controls)).await
    }

    /// # Errors
    /// As answered.
    pub(super) async fn rename(
        &mut self,
        dn: &str,
        rdn: &str,
        delete_old: bool,
        superior: Option<&str>,
        controls: &[ControlBuf],
    ) -> Result<Answer, LdapResult> {
        self.call(|out, id| client::modify_dn(out, id, dn, rdn, delete_old, superior, controls)).await
    }

    /// Changes a password (RFC 3062). The generated one, if none was given.
    ///
    /// # Errors
    /// As answered.
    pub(super) async fn change_password(
        &mut self,
        request: PasswordModify<'_>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, LdapResult> {
        let value = request.encode().map(Zeroizing::new);
        let value = value.as_deref().map(Vec::as_slice);
        let answer = self.call(|out, id| client::extended(out, id, PasswordModify::OID, value, &[])).await?;
        let value = answer.value.map(Zeroizing::new);
        let response = PasswordModifyResponse::decode(value.as_deref().map(Vec::as_slice))
            .map_err(|error| LdapResult::with(ResultCode::OTHER, error.to_string()))?;
        Ok(response.generated.map(|password| Zeroizing::new(password.to_vec())))
    }

    /// # Errors
    /// Any result but success.
    async fn call(&mut self, encode: impl FnOnce(&mut Vec<u8>, MessageId)) -> Result<Answer, LdapResult> {
        let (result, answer) = self.exchange(encode).await;
        if result.is_success() { Ok(answer) } else { Err(result) }
    }

    /// Sends a request and collects what is answered.
    async fn exchange(&mut self, encode: impl FnOnce(&mut Vec<u8>, MessageId)) -> (LdapResult, Answer) {
        self.last_id += 1;
        let id = MessageId(self.last_id);
        let mut request = Zeroizing::new(Vec::new());
        encode(&mut request, id);
        let mut answer = Answer::default();
        let exchanged = tokio::time::timeout(PATIENCE, self.converse(id, &request, &mut answer)).await;
        let result = match exchanged {
            Ok(Ok(result)) => result,
            Ok(Err(result)) => {
                self.gone = true;
                result
            }
            Err(_) => {
                if !self.gone {
                    request.zeroize();
                    request.clear();
                    client::abandon(&mut request, MessageId(id.0 + 1), id, &[]);
                    self.last_id += 1;
                    self.gone = self.stream.try_write(&request).ok() != Some(request.len());
                }
                LdapResult::with(ResultCode::TIME_LIMIT_EXCEEDED, "no answer within 30 seconds: abandoned")
            }
        };
        (result, answer)
    }

    async fn converse(
        &mut self,
        id: MessageId,
        request: &[u8],
        answer: &mut Answer,
    ) -> Result<LdapResult, LdapResult> {
        let lost = |_| LdapResult::with(ResultCode::UNAVAILABLE, "the server has ended this connection");
        // A browser that leaves ends this wherever it waits: what came next would be taken for the rest of the request.
        self.gone = true;
        self.stream.write_all(request).await.map_err(lost)?;
        self.gone = false;
        let (mut bytes, mut is_too_large) = (0, false);
        loop {
            let passed = self.passed_over.min(self.input.len());
            self.input.drain(..passed);
            self.passed_over -= passed;
            let framed = match self.passed_over {
                0 => frame(&self.input, ANSWER_MAX),
                needed => Ok(Frame::Incomplete { needed }),
            };
            match framed {
                Ok(Frame::Complete { len }) => {
                    let pdu = Zeroizing::new(self.input.drain(..len).collect::<Vec<u8>>());
                    let taken = take(id, &pdu, answer)?;
                    bytes += if taken == Taken::OfAnotherRequest { 0 } else { len };
                    is_too_large |= bytes > ANSWER_MAX;
                    if is_too_large {
                        answer.entries.clear();
                    }
                    match taken {
                        // All that belongs to the answer has come: the connection is as good as before.
                        Taken::Last(_) if is_too_large => return Ok(too_large()),
                        Taken::Last(result) => return Ok(result),
                        Taken::Part | Taken::OfAnotherRequest => {}
                    }
                }
                Ok(Frame::Incomplete { .. }) => {
                    self.input.reserve(READ_BYTES);
                    if self.stream.read_buf(&mut self.input).await.map_err(lost)? == 0 {
                        return Err(lost(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                Err(FrameError::TooLarge { .. }) => {
                    self.passed_over = match frame(&self.input, usize::MAX) {
                        Ok(Frame::Complete { len } | Frame::Incomplete { needed: len }) => len,
                        Err(error) => return Err(LdapResult::with(ResultCode::OTHER, error.to_string())),
                    };
                    is_too_large = true;
                }
                Err(error) => return Err(LdapResult::with(ResultCode::OTHER, error.to_string())),
            }
        }
    }
}

fn too_large() -> LdapResult {
    let text = "the answer is larger than 16 MiB: too much for a page";
    LdapResult::with(ResultCode::SIZE_LIMIT_EXCEEDED, text)
}

impl Drop for LdapClient {
    fn drop(&mut self) {
        let mut goodbye = Vec::new();
        client::unbind(&mut goodbye, MessageId(self.last_id + 1));
        // Out of courtesy: the server sees the end of the connection as well.
        let _ = self.stream.try_write(&goodbye);
    }
}

/// The Get Effective Rights control as OpenDJ has it: whose rights, and to which attributes beside those of the answer.
fn effective_rights(identity: &str, attributes: &[&str]) -> ControlBuf {
    let mut value = Vec::new();
    write::constructed(&mut value, Tag::SEQUENCE, |out| {
        write::octets(out, Tag::OCTET_STRING, format!("dn:{identity}").as_bytes());
        write::constructed(out, Tag::SEQUENCE, |out| {
            attributes.iter().for_each(|name| write::octets(out, Tag::OCTET_STRING, name.as_bytes()));
        });
    });
    ControlBuf { oid: oid::EFFECTIVE_RIGHTS.into(), critical: true, value: Some(value) }
}

/// What a message was.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// Of one that was given up: it is passed over.
    OfAnotherRequest,
    Part,
    Last(LdapResult),
}

/// Takes one message.
fn take(id: MessageId, pdu: &[u8], answer: &mut Answer) -> Result<Taken, LdapResult> {
    let message = Response::decode_message(pdu)
        .map_err(|error| LdapResult::with(ResultCode::OTHER, error.to_string()))?;
    if message.id == MessageId(0) {
        let result = message.response.result().map(|(_, result)| result.to_owned());
        return Err(result.unwrap_or_else(|| LdapResult::new(ResultCode::UNAVAILABLE)));
    }
    if message.id != id {
        return Ok(Taken::OfAnotherRequest);
    }
    match message.response {
        Response::Entry(entry) => {
            let attributes = entry.attributes.iter().map(|attribute| ReceivedAttribute {
                name: attribute.description.to_owned(),
                values: attribute.values.iter().map(<[u8]>::to_vec).collect(),
            });
            answer.entry_controls = message.controls.iter().map(|control| control.to_owned()).collect();
            answer.entries.push(ReceivedEntry { dn: entry.dn.to_owned(), attributes: attributes.collect() });
        }
        Response::Extended { value, .. } => answer.value = value.map(<[u8]>::to_vec),
        _ => {}
    }
    let Some((_, result)) = message.response.result() else { return Ok(Taken::Part) };
    answer.controls = message.controls.iter().map(|control| control.to_owned()).collect();
    Ok(Taken::Last(result.to_owned()))
}

fn bad_filter(error: larix_proto::FilterSyntaxError) -> LdapResult {
    LdapResult::with(ResultCode::PROTOCOL_ERROR, format!("the filter cannot be read: {error}"))
}

impl ReceivedEntry {
    /// The values of an attribute, by its name in any case.
    pub(super) fn values(&self, name: &str) -> &[Vec<u8>] {
        let found = self.attributes.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(name));
        found.map_or(&[], |attribute| &attribute.values)
    }

    /// Its first value that is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.values(name).first()?).ok()
    }

    /// All its values that are text.
    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        self.values(name).iter().filter_map(|value| std::str::from_utf8(value).ok()).collect()
    }

    /// Whether it is of an object class, or of one that is called so.
    pub(super) fn is_a(&self, class: &str) -> bool {
        self.texts("objectClass").iter().any(|name| name.eq_ignore_ascii_case(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(stream: UnixStream) -> LdapClient {
        LdapClient { stream, input: Vec::new(), last_id: 0, passed_over: 0, gone: false }
    }

    /// An entry with a value of 1 MiB, for the first request.
    fn entry() -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, 1);
            write::constructed(out, Tag::application_constructed(4), |out| {
                write::octets(out, Tag::OCTET_STRING, b"cn=x");
                write::constructed(out, Tag::SEQUENCE, |out| {
                    write::constructed(out, Tag::SEQUENCE, |out| {
                        write::octets(out, Tag::OCTET_STRING, b"cn");
                        write::constructed(out, Tag::SET, |out| {
                            write::octets(out, Tag::OCTET_STRING, &vec![b'x'; 1 << 20]);
                        });
                    });
                });
            });
        });
        out
    }

    #[test]
    fn what_is_too_large_is_passed_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let content = ANSWER_MAX + 1;
        let mut large = vec![0x30, 0x84];
        large.extend(u32::try_from(content).unwrap().to_be_bytes());
        large.resize(large.len() + content, 0);
        // That a comparison is true.
        let answer = |id: u8| [0x30, 12, 2, 1, id, 0x6f, 7, 10, 1, 6, 4, 0, 4, 0];
        // One message, and several that are too much together.
        for before in [large, entry().repeat(17)] {
            runtime.block_on(async {
                let (stream, mut server) = UnixStream::pair().unwrap();
                let mut client = client(stream);
                let serve = async {
                    for bytes in [&before[..], &answer(1), &answer(2)] {
                        server.write_all(bytes).await.unwrap();
                    }
                };
                let ask = async {
                    let refused = client.compare("cn=x", "cn", b"x").await.map_err(|result| result.code);
                    assert_eq!(refused, Err(ResultCode::SIZE_LIMIT_EXCEEDED));
                    assert!(!client.is_gone());
                    assert!(client.compare("cn=x", "cn", b"x").await.is_ok_and(|is_there| is_there));
                };
                tokio::join!(serve, ask);
            });
        }
    }

    #[test]
    fn behind_a_request_that_went_in_part_no_other_goes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // More than the sockets hold, and what goes whole.
            for (bytes, is_gone) in [(8 << 20, true), (10, false)] {
                let (stream, mut server) = UnixStream::pair().unwrap();
                let mut client = client(stream);
                let value = vec![b'x'; bytes];
                let mut first = [0; 10];
                tokio::select! {
                    _ = client.compare("cn=x", "cn", &value) => panic!("nobody answers"),
                    read = server.read_exact(&mut first) => assert_eq!(read.unwrap(), 10),
                }
                assert_eq!(client.is_gone(), is_gone, "{bytes}");
            }
        });
    }
}
