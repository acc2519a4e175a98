//! The message layer of a client (RFC 4511 section 4.1.1) without I/O: requests become bytes, bytes become answers.
//!
//! It frames, gives out message ids, knows which operations are under way and until when, and holds a server to the protocol: what
//! does not answer an operation under way, in a type that it has, ends the connection with a [`PeerFault`]. There is no socket and no
//! clock in it; the time is a parameter, counted from a start that the caller chooses.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use larix_proto::ber::{Reader, Tag, write};
use larix_proto::{
    Frame, FrameError, LdapResult, MessageId, Response, ResponseMessage, ResponseOp, ResultCode, client,
    frame, limits, oid,
};

use zeroize::{Zeroize, optimization_barrier};

use crate::peer_fault::PeerFault;

/// Operations that were given up and may still be answered. A connection that has more of them takes no request any more.
pub const GIVEN_UP_MAX: usize = 1024;
/// The last message id (RFC 4511 section 4.1.1.1).
const LAST_ID: u32 = i32::MAX as u32;
/// Behind so many bytes that are read the buffer is moved together.
const COMPACT_BYTES: usize = 64 * 1024;

/// What a connection takes.
#[derive(Copy, Clone, Debug)]
pub struct MessageLimits {
    /// The content of one answer, bytes.
    pub message_bytes: usize,
    /// Operations under way at once.
    pub operations: usize,
    /// Requests that the socket has not taken, bytes; more is not begun.
    pub output_bytes: usize,
    /// Behind a notice of disconnection answers still come for what is under way, and the connection is at its end behind the last; else it
    /// ends with the notice (RFC 4511 section 4.4.1).
    pub outlives_notice: bool,
    /// An answer that is larger than `message_bytes` is thrown away, and its operation is named by [`MessageLayer::take_too_large`]; else it
    /// ends the connection.
    pub outlives_large: bool,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            message_bytes: limits::PDU_CEILING,
            operations: 1 << 16,
            output_bytes: usize::MAX,
            outlives_notice: false,
            outlives_large: false,
        }
    }
}

/// Why a request is not sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// As many operations are under way as may be, or as many bytes wait to be sent.
    Full,
    /// A bind or StartTLS is under way, beside which nothing goes (RFC 4511 sections 4.2.1 and 4.14.1), or it would be one beside others.
    Alone,
    /// The connection is at its end: it closes, has no ids left, or too many operations were given up.
    Worn,
    /// What was encoded is no request.
    NoRequest,
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too much is under way on the connection",
            Self::Alone => "a bind or StartTLS goes alone",
            Self::Worn => "the connection is at its end",
            Self::NoRequest => "no request",
        })
    }
}

/// The message that tells the server that an operation is given up.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum GivingUp {
    /// By an abandon (RFC 4511 section 4.11).
    #[default]
    Abandon,
    /// By a cancel (RFC 3909).
    Cancel,
    /// Not at all: what still comes is thrown away.
    Silent,
}

/// An answer, or a part of one.
#[derive(Copy, Clone, Debug)]
pub struct Answer<'a> {
    pub message: ResponseMessage<'a>,
    /// The whole message.
    pub pdu: &'a [u8],
    /// Whether the operation is over with it.
    pub is_last: bool,
}

/// What becomes of a message that is larger than may be.
enum Large {
    Skipped,
    /// Its id is not there yet.
    Incomplete,
    /// It ends the connection.
    Refused,
}

/// An operation under way.
#[derive(Debug)]
struct UnderWay {
    kind: ResponseOp,
    deadline: Option<Duration>,
    entries: u32,
    entries_max: Option<u32>,
}

/// The message layer of one connection.
pub struct MessageLayer {
    limits: MessageLimits,
    input: Vec<u8>,
    /// Where the next answer starts in it.
    start: usize,
    /// Bytes of a message that are still to come, and to be thrown away.
    skipping: usize,
    /// The operation whose answer is thrown away.
    too_large: Option<u32>,
    output: Vec<u8>,
    /// How much of it was sent.
    written: usize,
    last_id: u32,
    operations: Operations,
}

/// Operations, and what may come for them.
#[derive(Debug, Default)]
struct Operations {
    under_way: HashMap<u32, UnderWay>,
    deadlines: BTreeSet<(Duration, u32)>,
    given_up: HashSet<u32>,
    /// A bind or StartTLS, which goes alone.
    alone: Option<u32>,
    starts_tls: bool,
    notices: u64,
    /// As [`MessageLimits`] has it.
    outlives_notice: bool,
    /// The server has given notice of disconnection.
    is_noticed: bool,
    ended: Option<PeerFault>,
}

impl Operations {
    fn forget(&mut self, id: u32) {
        if self.take(id).is_some() {
            self.given_up.insert(id);
        }
    }

    fn take(&mut self, id: u32) -> Option<UnderWay> {
        let operation = self.under_way.remove(&id)?;
        if let Some(deadline) = operation.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(operation)
    }

    /// Whether a message is the last answer of its operation; none if no caller waits for it. `has_more`: bytes stand behind it.
    fn judge(&mut self, message: &ResponseMessage<'_>, has_more: bool) -> Result<Option<bool>, PeerFault> {
        let (id, result) = (message.id.0, message.response.result());
        let last = result.map(|(kind, _)| kind);
        if id == 0 {
            return match message.response {
                Response::Extended { name: Some(oid::NOTICE_OF_DISCONNECTION), .. }
                    if self.outlives_notice && !self.under_way.is_empty() =>
                {
                    self.is_noticed = true;
                    Ok(None)
                }
                Response::Extended { result, name: Some(oid::NOTICE_OF_DISCONNECTION), .. } => {
                    Err(PeerFault::Disconnected(result.to_owned()))
                }
                Response::Extended { .. } => {
                    self.notices += 1;
                    Ok(None)
                }
                _ => Err(PeerFault::wrong_type(0, last)),
            };
        }
        if self.given_up.contains(&id) {
            if last.is_some() {
                self.given_up.remove(&id);
            }
            return Ok(None);
        }
        let Some(operation) = self.under_way.get_mut(&id) else { return Err(PeerFault::UnknownId(id)) };
        let is_search = operation.kind == ResponseOp::SearchDone;
        match (last, message.response) {
            (Some(kind), _) if kind == operation.kind => {
                self.take(id);
                if self.alone == Some(id) {
                    self.alone = None;
                    let is_success = result.is_some_and(|(_, result)| result.code == ResultCode::SUCCESS);
                    if std::mem::take(&mut self.starts_tls) && is_success && has_more {
                        return Err(PeerFault::EarlyBytes);
                    }
                }
                Ok(Some(true))
            }
            (None, Response::Entry(_)) if is_search => {
                operation.entries = operation.entries.saturating_add(1);
                match operation.entries_max {
                    Some(limit) if operation.entries > limit => Err(PeerFault::TooManyEntries { id, limit }),
                    _ => Ok(Some(false)),
                }
            }
            (None, Response::Reference(_)) if is_search => Ok(Some(false)),
            (None, Response::Intermediate { .. }) if operation.kind != ResponseOp::Bind => Ok(Some(false)),
            _ => Err(PeerFault::wrong_type(id, last)),
        }
    }
}

impl fmt::Debug for MessageLayer {
    /// Without what was sent: there may be passwords in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLayer")
            .field("under_way", &self.operations.under_way.len())
            .field("last_id", &self.last_id)
            .field("ended", &self.operations.ended)
            .finish_non_exhaustive()
    }
}

impl MessageLayer {
    pub fn new(limits: MessageLimits) -> Self {
        Self {
            limits,
            input: Vec::new(),
            start: 0,
            skipping: 0,
            too_large: None,
            output: Vec::new(),
            written: 0,
            last_id: 0,
            operations: Operations { outlives_notice: limits.outlives_notice, ..Operations::default() },
        }
    }

    /// Whether the server has given notice of disconnection and is still to answer what is under way: the connection takes no request.
    pub fn is_noticed(&self) -> bool {
        self.operations.is_noticed
    }

    /// Encodes a request into the output. Its kind, and with it the type of its answers, is read from what was encoded; an unbind and an
    /// abandon have none. `deadline` is when it is given up ([`Self::expired`]), `entries_max` how many entries a search may have.
    ///
    /// # Errors
    /// It cannot be sent now, or here.
    pub fn request(
        &mut self,
        deadline: Option<Duration>,
        entries_max: Option<u32>,
        encode: impl FnOnce(&mut Vec<u8>, MessageId),
    ) -> Result<MessageId, NotSent> {
        if self.is_worn() {
            return Err(NotSent::Worn);
        }
        if self.operations.alone.is_some() {
            return Err(NotSent::Alone);
        }
        if self.operations.under_way.len() >= self.limits.operations
            || self.output().len() >= self.limits.output_bytes
        {
            return Err(NotSent::Full);
        }
        let (id, before) = (self.last_id + 1, self.output.len());
        encode(&mut self.output, MessageId(id));
        let encoded = Encoded::of(self.output.get(before..).unwrap_or_default());
        let refused = match &encoded {
            None => Some(NotSent::NoRequest),
            Some(Encoded::Operation { alone: true, .. }) if !self.operations.under_way.is_empty() => {
                Some(NotSent::Alone)
            }
            _ => None,
        };
        if let Some(refused) = refused {
            overwrite(self.output.get_mut(before..).unwrap_or_default());
            self.output.truncate(before);
            return Err(refused);
        }
        self.last_id = id;
        match encoded {
            Some(Encoded::Operation { kind, alone, starts_tls }) => {
                self.operations.starts_tls = starts_tls;
                self.operations.alone = alone.then_some(id);
                self.operations.deadlines.extend(deadline.map(|deadline| (deadline, id)));
                self.operations.under_way.insert(id, UnderWay { kind, deadline, entries: 0, entries_max });
            }
            Some(Encoded::Abandon(given_up)) => self.operations.forget(given_up),
            Some(Encoded::Unbind) | None => {}
        }
        Ok(MessageId(id))
    }

    /// Gives an operation up: it has no answer from here on. False: there is no such operation.
    pub fn give_up(&mut self, id: MessageId, how: GivingUp) -> bool {
        let is_bind =
            self.operations.under_way.get(&id.0).is_some_and(|operation| operation.kind == ResponseOp::Bind);
        if !self.operations.under_way.contains_key(&id.0) {
            return false;
        }
        if is_bind || self.operations.alone == Some(id.0) {
            // A bind cannot be abandoned, and who the connection belongs to is not known without its answer.
            self.end(PeerFault::Late("the bind"));
            return true;
        }
        self.operations.forget(id.0);
        let next = self.last_id.saturating_add(1);
        match how {
            GivingUp::Silent => {}
            _ if self.last_id >= LAST_ID || self.output().len() >= self.limits.output_bytes => {}
            GivingUp::Abandon => {
                client::abandon(&mut self.output, MessageId(next), id, &[]);
                self.last_id = next;
            }
            GivingUp::Cancel => {
                let mut value = Vec::new();
                write::constructed(&mut value, Tag::SEQUENCE, |out| {
                    write::integer(out, Tag::INTEGER, i64::from(id.0));
                });
                client::extended(&mut self.output, MessageId(next), oid::CANCEL, Some(&value), &[]);
                self.last_id = next;
                self.operations.given_up.insert(next);
            }
        }
        true
    }

    /// Gives an operation another deadline.
    pub fn set_deadline(&mut self, id: MessageId, deadline: Option<Duration>) {
        let Some(operation) = self.operations.under_way.get_mut(&id.0) else { return };
        if let Some(old) = std::mem::replace(&mut operation.deadline, deadline) {
            self.operations.deadlines.remove(&(old, id.0));
        }
        self.operations.deadlines.extend(deadline.map(|deadline| (deadline, id.0)));
    }

    /// An operation whose time is over by now. The caller gives it up: [`Self::give_up`].
    pub fn expired(&self, now: Duration) -> Option<MessageId> {
        let (deadline, id) = self.operations.deadlines.first()?;
        (*deadline <= now).then_some(MessageId(*id))
    }

    /// When the next operation's time is over.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.operations.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Hands over what has come. [`Self::next_answer`] is to be asked until it has nothing before more is handed over: that bounds what is held
    /// here to one answer of the largest size beside it.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.start == self.input.len() {
            self.input.clear();
            self.start = 0;
        } else if self.start >= COMPACT_BYTES {
            self.input.drain(..self.start);
            self.start = 0;
        }
        let skipped = self.skipping.min(bytes.len());
        self.skipping -= skipped;
        self.input.extend_from_slice(bytes.get(skipped..).unwrap_or_default());
    }

    /// The operation whose answer is larger than may be, and is thrown away: the caller gives it up. To be asked when
    /// [`Self::next_answer`] has nothing.
    pub fn take_too_large(&mut self) -> Option<MessageId> {
        self.too_large.take().map(MessageId)
    }

    /// Begins to throw away a message that is larger than may be, of so many bytes of content.
    fn skip_large(&mut self, announced: u64) -> Large {
        let waiting = self.waiting();
        let Some(content) = usize::try_from(announced).ok().filter(|bytes| *bytes <= limits::PDU_CEILING)
        else {
            return Large::Refused;
        };
        let header = match waiting.get(1).copied() {
            Some(octets @ 0x80..) => 2 + usize::from(octets & 0x7f),
            _ => 2,
        };
        let Some(begin) = waiting.get(header..header + limits::MESSAGE_ID) else { return Large::Incomplete };
        let Ok(id) = Reader::new(begin).unsigned("messageID") else { return Large::Refused };
        let is_known = self.operations.under_way.contains_key(&id);
        // What a bind or StartTLS comes to is not known without its answer.
        if self.operations.alone.is_some() || !is_known && !self.operations.given_up.contains(&id) {
            return Large::Refused;
        }
        let there = (header + content).min(waiting.len());
        self.start += there;
        self.skipping = header + content - there;
        self.too_large = is_known.then_some(id);
        Large::Skipped
    }

    /// Whether a whole answer waits, or bytes that can be none.
    pub(crate) fn has_answer(&self) -> bool {
        !matches!(frame(self.waiting(), self.limits.message_bytes), Ok(Frame::Incomplete { .. }))
    }

    /// How many bytes the next answer lacks, as far as is known: 0 where it is there.
    pub fn lacks(&self) -> usize {
        match frame(self.waiting(), self.limits.message_bytes) {
            Ok(Frame::Incomplete { needed }) => needed.saturating_sub(self.waiting().len()),
            _ => 0,
        }
    }

    fn waiting(&self) -> &[u8] {
        self.input.get(self.start..).unwrap_or_default()
    }

    /// The next answer for which a caller waits, as far as it has come.
    ///
    /// # Errors
    /// What ends the connection; it is the same ever after.
    pub fn next_answer(&mut self) -> Result<Option<Answer<'_>>, PeerFault> {
        if !self.skip_unwanted()? {
            return Ok(None);
        }
        let Self { input, start, limits, operations, output, written, .. } = self;
        let waiting = input.get(*start..).unwrap_or_default();
        let judged = frame(waiting, limits.message_bytes).map_err(PeerFault::from).and_then(|framed| {
            let Frame::Complete { len } = framed else { return Ok(None) };
            *start += len;
            let pdu = waiting.get(..len).unwrap_or_default();
            let message = Response::decode_message(pdu)?;
            let is_last = operations.judge(&message, *start < input.len())?;
            Ok(is_last.map(|is_last| Answer { message, pdu, is_last }))
        });
        judged.inspect_err(|fault| {
            operations.ended = Some(fault.clone());
            output.zeroize();
            *written = 0;
        })
    }

    /// Takes leading messages for which no caller waits; whether a whole answer waits behind them.
    ///
    /// # Errors
    /// As [`Self::next_answer`].
    pub(crate) fn skip_unwanted(&mut self) -> Result<bool, PeerFault> {
        loop {
            if let Some(fault) = &self.operations.ended {
                return Err(fault.clone());
            }
            let waiting = self.input.get(self.start..).unwrap_or_default();
            let judged =
                frame(waiting, self.limits.message_bytes).map_err(PeerFault::from).and_then(|framed| {
                    let Frame::Complete { len } = framed else { return Ok(None) };
                    let pdu = waiting.get(..len).unwrap_or_default();
                    let id = Reader::new(pdu).sequence("LDAPMessage")?.unsigned("messageID")?;
                    if id != 0 && !self.operations.given_up.contains(&id) {
                        return Ok(Some(true));
                    }
                    let message = Response::decode_message(pdu)?;
                    let is_wanted = self.operations.judge(&message, true)?.is_some();
                    self.start += len;
                    Ok(Some(is_wanted))
                });
            match judged {
                Ok(None) => return Ok(false),
                Ok(Some(true)) => return Ok(true),
                Ok(Some(false)) => {}
                Err(PeerFault::Framing(FrameError::TooLarge { announced, limit }))
                    if self.limits.outlives_large =>
                {
                    match self.skip_large(announced) {
                        Large::Skipped if self.too_large.is_none() => {}
                        Large::Skipped | Large::Incomplete => return Ok(false),
                        Large::Refused => {
                            return Err(self.end(FrameError::TooLarge { announced, limit }.into()));
                        }
                    }
                }
                Err(fault) => return Err(self.end(fault)),
            }
        }
    }

    /// Ends the connection, and says with what it ended: the first fault stays.
    pub fn end(&mut self, fault: PeerFault) -> PeerFault {
        self.output.zeroize();
        self.written = 0;
        self.operations.ended.get_or_insert(fault).clone()
    }

    /// Operations under way.
    pub fn under_way(&self) -> usize {
        self.operations.under_way.len()
    }

    /// Whether it takes no request any more.
    pub fn is_worn(&self) -> bool {
        self.operations.ended.is_some()
            || self.operations.is_noticed
            || self.last_id >= LAST_ID
            || self.operations.given_up.len() >= GIVEN_UP_MAX
    }

    /// What ended it.
    pub fn ended(&self) -> Option<&PeerFault> {
        self.operations.ended.as_ref()
    }

    /// Unsolicited notifications that are none of disconnection, and meant nothing here.
    pub fn notices(&self) -> u64 {
        self.operations.notices
    }

    /// The bytes to send.
    pub fn output(&self) -> &[u8] {
        self.output.get(self.written..).unwrap_or_default()
    }

    /// So many bytes of it were sent. They are overwritten: there may be passwords in them.
    pub fn sent(&mut self, count: usize) {
        self.written = (self.written + count).min(self.output.len());
        if self.written == self.output.len() {
            // What stands behind them in the buffer was overwritten when it was sent. A large request leaves no large buffer.
            overwrite(&mut self.output);
            self.output.clear();
            self.output.shrink_to(COMPACT_BYTES);
            self.written = 0;
        } else if self.written >= COMPACT_BYTES && self.written * 2 >= self.output.len() {
            let rest = self.output.split_off(self.written);
            self.output.zeroize();
            self.output = rest;
            self.written = 0;
        }
    }
}

/// Overwrites bytes that may be secret, many at a time. `Zeroize` writes single bytes, and those that a buffer has room for as well: with
/// each request, that would be as much as the largest one had.
fn overwrite(bytes: &mut [u8]) {
    bytes.fill(0);
    // Without this the compiler may leave out what nobody reads afterwards.
    optimization_barrier(bytes);
}

/// What was encoded.
enum Encoded {
    Operation { kind: ResponseOp, alone: bool, starts_tls: bool },
    Abandon(u32),
    Unbind,
}

impl Encoded {
    fn of(pdu: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(pdu);
        let mut message = reader.sequence("LDAPMessage").ok()?;
        message.unsigned("messageID").ok()?;
        let (tag, contents) = message.element("protocolOp").ok()?;
        let operation = |kind| Some(Self::Operation { kind, alone: false, starts_tls: false });
        match tag.0 {
            0x60 => Some(Self::Operation { kind: ResponseOp::Bind, alone: true, starts_tls: false }),
            0x42 => Some(Self::Unbind),
            0x63 => operation(ResponseOp::SearchDone),
            0x66 => operation(ResponseOp::Modify),
            0x68 => operation(ResponseOp::Add),
            0x4a => operation(ResponseOp::Delete),
            0x6c => operation(ResponseOp::ModifyDn),
            0x6e => operation(ResponseOp::Compare),
            0x50 => Some(Self::Abandon(contents.iter().fold(0, |id, byte| (id << 8) | u32::from(*byte)))),
            0x77 => {
                let name = Reader::new(contents).expect(Tag::context(0), "requestName").ok()?;
                let starts_tls = name == oid::START_TLS.as_bytes();
                Some(Self::Operation { kind: ResponseOp::Extended, alone: starts_tls, starts_tls })
            }
            _ => None,
        }
    }
}

/// The result that an operation gets whose connection ended.
impl From<&PeerFault> for LdapResult {
    fn from(fault: &PeerFault) -> Self {
        Self::with(ResultCode::UNAVAILABLE, fault.to_string())
    }
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
