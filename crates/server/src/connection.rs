//! One client's connection as a state machine without I/O: bytes in, requests started in order, bytes out.
//!
//! The worker reads and writes. [`Connection`] cuts the input into messages and keeps the order that LDAP demands (a bind is a barrier).
//! It gives each search under way a slice a turn, or sends it to another thread once it has become long, and it starts nothing while the
//! client does not read its answers. Its [`Service`] carries out the requests.

mod searches;
mod service;

use larix_engine::time::Monotonic;
use larix_proto::ber::{Reader, Tag};
use larix_proto::{
    Authentication, DecodeLimits, Frame, LdapResult, Message, MessageError, MessageId, Request, ResponseOp,
    ResultCode, encode, frame, oid,
};

use crate::input::Input;
use crate::secrets::is_password_name;
pub(crate) use searches::SearchLocation;
use searches::Searches;
pub(crate) use service::{Event, Limits, Operation, RemoteLookups, Service, SliceOutcome, StartOutcome};

/// Requests of one connection that start in one turn. Other connections have theirs before the rest of a long pipeline.
pub(crate) const REQUESTS_PER_TURN: usize = 64;
/// Nanoseconds after which no other search of the connection goes on in a turn: other connections have theirs before. A slice takes a
/// tenth of it; a look at a large entry, for a search that waits for changes, may take longer.
const SEARCHES_NANOS: u64 = 1_000_000;
/// Bytes of unsent answers above which searches stop and no request starts.
pub(crate) const OUTPUT_HIGH: usize = larix_backend::OUTPUT_HIGH;
/// Bytes of requests that are read ahead while none may start. A single larger message is read to its end.
pub(crate) const INPUT_HIGH: usize = 64 * 1024;
/// A message of more bytes starts on another thread (see [`Connection::has_large_next`]): to decode, judge and prepare it takes as long as
/// tens of small requests.
pub(crate) const LARGE_REQUEST: usize = 32 * 1024;

const _: () = assert!(INPUT_HIGH < larix_proto::limits::PDU_CEILING);

/// How a bind request begins.
const BIND_TAG: Tag = Tag::application_constructed(0);
/// How an extended request begins.
const EXTENDED_TAG: Tag = Tag::application_constructed(23);
const UNBIND_TAG: Tag = Tag::application(2);
const ABANDON_TAG: Tag = Tag::application(16);

/// What to do next with a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing, until there is input, a completion, or room for output.
    Idle,
    /// It has more to do: call again, after the others had their turn.
    More,
    /// Send what is in the output, then close.
    Close,
}

/// One client's connection, without its socket.
#[derive(Debug)]
pub(crate) struct Connection<S: Service> {
    service: S,
    /// In force since the turn began, or since a bind within it ended.
    limits: Limits,
    /// Bytes read and not yet consumed. A password may be among them, so consumed bytes are overwritten.
    input: Input,
    /// Answers; the first `sent` bytes are gone.
    output: Vec<u8>,
    sent: usize,
    next_serial: u64,
    searches: Searches<S::Search, S::BackgroundSearch>,
    waiting: Vec<WaitingRequest>,
    phase: Phase,
    /// Once the server stops: the result of searches that would wait for changes.
    farewell: Option<Box<LdapResult>>,
    /// A password was among the bytes received since the last call of [`Self::take_had_secrets`].
    had_secrets: bool,
}

#[derive(Copy, Clone, Debug)]
struct WaitingRequest {
    operation: Operation,
    alone: bool,
    abandoned: bool,
}

/// Which requests a turn may start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Start {
    /// All up to the first large one.
    Small,
    /// The first, which is large.
    OneLarge,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// A layer changes: nothing is read or started until [`Connection::layers_changed`].
    Changing,
    /// No more input comes; what was asked is still answered.
    InputEnded,
    /// Nothing is done any more.
    Closing,
}

impl<S: Service> Connection<S> {
    pub(crate) fn new(service: S) -> Self {
        Self {
            limits: service.limits(),
            service,
            input: Input::default(),
            output: Vec::new(),
            sent: 0,
            next_serial: 0,
            searches: Searches::default(),
            waiting: Vec::new(),
            phase: Phase::Open,
            farewell: None,
            had_secrets: false,
        }
    }

    pub(crate) fn service(&self) -> &S {
        &self.service
    }

    pub(crate) fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// A turn with input.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Turn {
        self.limits = self.service.limits();
        if self.input.is_empty() {
            // The usual case: whole messages, decoded where they were read.
            let used = self.start_requests(bytes, Start::Small);
            match bytes.get(used..) {
                Some(rest) if self.phase == Phase::Open => self.keep(rest),
                Some(rest) if self.phase == Phase::Changing && !rest.is_empty() => self.refuse_behind(),
                _ => {}
            }
        } else {
            self.keep(bytes);
            self.start_buffered_requests(Start::Small);
        }
        self.run()
    }

    /// The client sends no more. It may still read, so its requests are answered.
    pub(crate) fn input_ended(&mut self) -> Turn {
        match self.phase {
            Phase::Open => self.phase = Phase::InputEnded,
            Phase::Changing => self.close(None),
            Phase::InputEnded | Phase::Closing => {}
        }
        // Searches that wait for changes end with the client's input.
        self.end_sleeping();
        self.run()
    }

    /// The server stops. Requests that wait, for changes or for an answer from elsewhere, end with this result, now or after their
    /// next slice. All others are answered.
    pub(crate) fn stop(&mut self, result: LdapResult) -> Turn {
        self.farewell = Some(Box::new(result.clone()));
        for (operation, search) in std::mem::take(&mut self.searches.waiting) {
            self.end_follower(operation, search);
        }
        self.give_up_where(|_, _| true, &result);
        self.input_ended()
    }

    /// Sends a message that answers no request.
    pub(crate) fn add_message(&mut self, message: &[u8]) -> Turn {
        self.output.extend_from_slice(message);
        self.resume()
    }

    /// Ends requests whose time is over.
    pub(crate) fn expire(&mut self, now: Monotonic) -> Turn {
        let is_over = |deadline: Option<Monotonic>| deadline.is_some_and(|deadline| deadline <= now);
        for queue in [&mut self.searches.waiting, &mut self.searches.sleeping] {
            let service = &self.service;
            let over: Vec<_> =
                queue.extract_if(.., |(_, search)| is_over(service.search_deadline(search))).collect();
            for (operation, search) in over {
                let result = Some(LdapResult::new(ResultCode::TIME_LIMIT_EXCEEDED));
                self.service.end(operation, SearchLocation::OnLoop(search), result, &mut self.output);
            }
        }
        let result = LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, "operation timed out");
        self.give_up_where(|service, operation| is_over(service.deadline(operation)), &result);
        self.resume()
    }

    /// When [`Self::expire`] has something to do first.
    pub(crate) fn deadline(&self) -> Option<Monotonic> {
        let searches = self.searches.waiting.iter().chain(&self.searches.sleeping);
        let searches = searches.filter_map(|(_, search)| self.service.search_deadline(search));
        let waiting = self.waiting.iter().filter_map(|waiting| self.service.deadline(waiting.operation));
        searches.chain(waiting).min()
    }

    /// Gives up those of the waiting requests that `which` is true of, unless that is impossible.
    fn give_up_where(&mut self, which: impl Fn(&S, Operation) -> bool, result: &LdapResult) {
        let Self { waiting, service, output, .. } = self;
        waiting.retain(|waiting| {
            let operation = waiting.operation;
            if !which(service, operation) {
                return true;
            }
            let result = match service.may_take_effect(operation) {
                true => unknown_outcome(result),
                false => result.clone(),
            };
            let result = Some(result).filter(|_| !waiting.abandoned);
            !service.give_up(operation, result, output)
        });
    }

    /// A search that waits goes on.
    pub(crate) fn wake(&mut self, serial: u64) -> Turn {
        self.searches.wake(serial);
        self.resume()
    }

    /// A search comes back from another thread. If it was ended meanwhile, it is dropped.
    pub(crate) fn returned(&mut self, serial: u64, returned: S::Returned) -> Turn {
        if let Some((operation, _)) = self.searches.background.take_if(|(o, _)| o.serial == serial)
            && let Some(search) = self.service.returned(operation, returned, &mut self.output)
        {
            self.searches.long.push_back((operation, search));
        }
        self.resume()
    }

    /// Ends the searches that wait for changes: without an answer, unless the server stops.
    fn end_sleeping(&mut self) {
        for (operation, search) in std::mem::take(&mut self.searches.sleeping) {
            self.end_follower(operation, search);
        }
    }

    fn end_follower(&mut self, operation: Operation, search: S::Search) {
        let result = self.farewell.as_deref().cloned();
        self.service.end(operation, SearchLocation::OnLoop(search), result, &mut self.output);
    }

    /// A turn without input.
    pub(crate) fn resume(&mut self) -> Turn {
        self.limits = self.service.limits();
        self.start_buffered_requests(Start::Small);
        self.run()
    }

    /// Whether the next request may start and is so large that no other one may wait for it. It starts when a thread calls
    /// [`start_large`](Self::start_large).
    pub(crate) fn has_large_next(&self) -> bool {
        self.next_off_loop().is_some() && self.may_start()
    }

    /// Whether that request has to start on a thread that may wait for other machines.
    pub(crate) fn has_lookup_next(&self) -> bool {
        self.next_off_loop().is_some_and(|pdu| self.limits.looks_up.concern(pdu))
    }

    fn starts_off_loop(&self, pdu: &[u8]) -> bool {
        pdu.len() > LARGE_REQUEST
            || self.limits.looks_up.concern(pdu)
            || self.keeps_much() && ends_transaction(pdu)
    }

    /// Whether the end of the transaction is as much work as a large request.
    fn keeps_much(&self) -> bool {
        self.service.kept_bytes() > LARGE_REQUEST
    }

    /// Starts that request.
    pub(crate) fn start_large(&mut self) {
        self.start_buffered_requests(Start::OneLarge);
    }

    /// Hands over the outcome of a request that waited. One that was abandoned meanwhile is not answered.
    pub(crate) fn complete(&mut self, serial: u64, completion: S::Completion) -> Turn {
        if let Some(at) = self.waiting.iter().position(|w| w.operation.serial == serial) {
            let waiting = self.waiting.swap_remove(at);
            let mut unsent = Vec::new();
            // The identity that an abandoned bind gave must still take effect: only its answer is dropped.
            let out = if waiting.abandoned { &mut unsent } else { &mut self.output };
            self.service.complete(waiting.operation, completion, out);
            if waiting.alone {
                self.note_layers();
            }
        }
        self.resume()
    }

    /// Bytes to send.
    pub(crate) fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or(&[])
    }

    /// The first `count` bytes of [`output`](Self::output) are sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent = self.sent.saturating_add(count).min(self.output.len());
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Lends the connection a buffer for its answers; an idle one keeps none.
    pub(crate) fn lend_output(&mut self, buffer: Vec<u8>) {
        if self.output.capacity() == 0 {
            self.output = buffer;
        }
    }

    /// Whether it has no buffer for its answers.
    pub(crate) fn needs_output(&self) -> bool {
        self.output.capacity() == 0
    }

    /// Takes an empty output buffer back.
    pub(crate) fn return_output(&mut self) -> Option<Vec<u8>> {
        (self.output.is_empty() && self.output.capacity() > 0).then(|| std::mem::take(&mut self.output))
    }

    /// Whether to read: not while there is more than enough that cannot be started.
    pub(crate) fn wants_input(&self) -> bool {
        self.phase == Phase::Open && self.has_room() && self.input.len() < self.input_limit()
    }

    /// Whether the client sends no more, and may still read.
    pub(crate) fn is_half_closed(&self) -> bool {
        self.phase == Phase::InputEnded
    }

    /// Requests that were started and not answered.
    pub(crate) fn pending(&self) -> usize {
        self.searches.working() + self.searches.sleeping.len() + self.waiting.len()
    }

    /// Whether what was received since the last question held a password: the caller overwrites its bytes.
    pub(crate) fn take_had_secrets(&mut self) -> bool {
        std::mem::take(&mut self.had_secrets)
    }

    /// The number of the request that has arrived in part, if the next one is not complete.
    pub(crate) fn unfinished_request(&self) -> Option<u64> {
        let is_part = || matches!(frame(&self.input, self.limits.pdu), Ok(Frame::Incomplete { .. }));
        (!self.input.is_empty() && is_part()).then_some(self.next_serial)
    }

    fn input_limit(&self) -> usize {
        match frame(&self.input, self.limits.pdu) {
            Ok(Frame::Incomplete { needed }) => needed.max(INPUT_HIGH),
            _ => INPUT_HIGH,
        }
    }

    fn has_room(&self) -> bool {
        self.output.len() - self.sent < OUTPUT_HIGH
    }

    /// Removes sent bytes from a full output: a slice compares the whole output with its budget, and would never do anything.
    fn drop_sent(&mut self) {
        if self.sent > 0 && self.output.len() >= OUTPUT_HIGH && self.has_room() {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn may_start(&self) -> bool {
        !matches!(self.phase, Phase::Closing | Phase::Changing)
            && self.has_room()
            && !self.waiting.iter().any(|w| w.alone)
            && match self.searches.working() + self.waiting.len() {
                0 => true,
                pending => {
                    pending < self.limits.pending.max(1)
                        && self.pending_bytes() < self.limits.pending_bytes.max(1)
                }
            }
    }

    /// Bytes of the requests that are worked at or wait.
    fn pending_bytes(&self) -> usize {
        self.searches.working_bytes() + self.waiting.iter().map(|w| w.operation.bytes).sum::<usize>()
    }

    /// Keeps bytes of requests that cannot start yet. They may hold a password, so the caller overwrites its copy.
    fn keep(&mut self, bytes: &[u8]) {
        // The usual case: whole messages, and no bytes are left.
        if bytes.is_empty() {
            return;
        }
        self.had_secrets = true;
        let front = if self.input.is_empty() { bytes } else { &*self.input };
        let expected = match frame(front, self.limits.pdu) {
            Ok(Frame::Incomplete { needed: expected } | Frame::Complete { len: expected }) => expected,
            // The message is refused when its turn comes.
            Err(_) => 0,
        };
        self.input.add(bytes, expected);
    }

    fn start_buffered_requests(&mut self, which: Start) {
        if self.input.is_empty() || (which == Start::Small && self.has_large_next()) {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        let used = self.start_requests(&input, which);
        if used == input.len() || self.phase == Phase::Closing {
            // Dropping it overwrites it; an idle connection holds no buffer.
            return;
        }
        if self.phase == Phase::Changing {
            self.refuse_behind();
            return;
        }
        input.remove(used);
        self.input = input;
    }

    /// Starts the complete requests at the front of `input` that order and limits allow. Answers how many bytes they were.
    fn start_requests(&mut self, input: &[u8], which: Start) -> usize {
        let mut used = 0;
        let most = if which == Start::OneLarge { 1 } else { REQUESTS_PER_TURN };
        for _ in 0..most {
            let rest = input.get(used..).unwrap_or(&[]);
            if rest.is_empty() || !self.may_start() {
                break;
            }
            match frame(rest, self.limits.pdu) {
                Ok(Frame::Complete { len })
                    if which == Start::Small && self.starts_off_loop(rest.get(..len).unwrap_or(rest)) =>
                {
                    break;
                }
                Ok(Frame::Complete { len }) => {
                    self.start_one(rest.get(..len).unwrap_or(rest));
                    used += len;
                }
                Ok(Frame::Incomplete { .. }) => break,
                Err(error) => {
                    self.refuse(&error.to_string());
                    break;
                }
            }
        }
        used
    }

    fn start_one(&mut self, pdu: &[u8]) {
        let limits = DecodeLimits { filter_depth: self.limits.filter_depth };
        match Message::decode_with(pdu, &limits) {
            Ok(message) if message.id == MessageId(0) => self.refuse("message id 0 is the server's own"),
            Ok(message) => self.start_message(&message, pdu.len()),
            Err(error) => self.answer_undecodable(&error),
        }
    }

    fn start_message(&mut self, message: &Message<'_>, bytes: usize) {
        let operation = Operation { serial: self.next_serial, id: message.id, bytes };
        self.next_serial += 1;
        self.had_secrets |= match message.request {
            Request::Bind(_) => true,
            Request::Extended(request) => {
                [oid::PASSWORD_MODIFY, oid::VERIFY_CREDENTIALS].contains(&request.name)
            }
            Request::Compare(request) => is_password_name(request.attribute),
            _ => false,
        };
        if matches!(message.request, Request::Bind(_)) {
            // RFC 4511 section 4.2.1: a bind abandons what is under way, whatever comes of it.
            self.abandon_all();
        }
        match message.request {
            Request::Unbind => {
                self.service.event(Event::Unbind(operation));
                self.close(None);
            }
            Request::Abandon(id) => {
                self.service.event(Event::Abandon(operation, id));
                self.abandon(id);
            }
            _ => match self.service.start(operation, message, &mut self.output) {
                StartOutcome::Answered => {
                    if matches!(message.request, Request::Bind(_) | Request::Extended(_)) {
                        self.limits = self.service.limits();
                        self.note_layers();
                    }
                }
                StartOutcome::Searching(search) => self.searches.short.push_back((operation, search)),
                StartOutcome::Waiting => {
                    self.waiting.push(WaitingRequest { operation, alone: false, abandoned: false })
                }
                StartOutcome::WaitingAlone => {
                    self.waiting.push(WaitingRequest { operation, alone: true, abandoned: false });
                }
                StartOutcome::Cancel(id) => self.cancel(operation, id),
                StartOutcome::Securing => {
                    let outstanding = self.pending() > 0;
                    self.service.start_tls(operation, outstanding, &mut self.output);
                    self.note_layers();
                }
                StartOutcome::Disconnect(result) => self.close(Some(result)),
            },
        }
    }

    fn note_layers(&mut self) {
        if !self.service.changes_layers() {
            return;
        }
        match self.phase {
            Phase::Open if self.input.is_empty() => self.phase = Phase::Changing,
            // They came unprotected, perhaps from an attacker, and must not count as protected.
            Phase::Open => self.refuse_behind(),
            // No more input comes that a layer could carry.
            Phase::Changing | Phase::InputEnded | Phase::Closing => self.close(None),
        }
    }

    fn refuse_behind(&mut self) {
        self.service.event(Event::Refused("bytes behind the request that changes the security layer"));
        self.close(None);
    }

    /// Whether a new layer begins behind the output. The caller then takes the output, changes the layers and calls
    /// [`layers_changed`](Self::layers_changed).
    pub(crate) fn is_changing_layers(&self) -> bool {
        self.phase == Phase::Changing
    }

    /// The new layers are in place, and reading goes on.
    pub(crate) fn layers_changed(&mut self) {
        if self.phase == Phase::Changing {
            self.phase = Phase::Open;
        }
    }

    /// A complete message with an unacceptable value gets an answer. Anything else ends the connection.
    fn answer_undecodable(&mut self, error: &MessageError) {
        // It may be a bind.
        self.had_secrets = true;
        let answer = error.id.zip(error.operation.and_then(ResponseOp::to_request));
        match answer {
            Some((id, op)) if error.is_answerable() && id != MessageId(0) => {
                self.next_serial += 1;
                if op == ResponseOp::Bind {
                    // Like any other that fails.
                    self.abandon_all();
                    self.service.event(Event::BadBind);
                    self.limits = self.service.limits();
                }
                let result = LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string());
                encode::result(&mut self.output, id, op, &result, &[]);
            }
            _ => self.refuse(&error.to_string()),
        }
    }

    fn refuse(&mut self, why: &str) {
        self.service.event(Event::Refused(why));
        self.close(Some(LdapResult::with(ResultCode::PROTOCOL_ERROR, why)));
    }

    fn abandon(&mut self, id: MessageId) {
        if let Some((operation, search)) = self.searches.take(id) {
            self.service.end(operation, search, None, &mut self.output);
        } else if let Some(at) = self.waiting.iter().position(|w| w.operation.id == id && !w.alone) {
            self.abandon_waiting(at);
        }
    }

    fn abandon_waiting(&mut self, at: usize) {
        let Some(waiting) = self.waiting.get_mut(at) else { return };
        if self.service.give_up(waiting.operation, None, &mut self.output) {
            self.waiting.swap_remove(at);
        } else {
            // It may be done already: only its answer can be held back.
            waiting.abandoned = true;
        }
    }

    fn abandon_all(&mut self) {
        if self.pending() == 0 {
            return;
        }
        for (operation, search) in self.searches.take_working() {
            self.service.end(operation, search, None, &mut self.output);
        }
        self.end_sleeping();
        for at in (0..self.waiting.len()).rev() {
            self.abandon_waiting(at);
        }
    }

    fn cancel(&mut self, operation: Operation, id: MessageId) {
        let result = if let Some((other, search)) = self.searches.take(id) {
            let result = LdapResult::new(ResultCode::CANCELED);
            self.service.end(other, search, Some(result), &mut self.output);
            LdapResult::success()
        } else if let Some(at) = self.waiting.iter().position(|w| w.operation.id == id && !w.abandoned) {
            self.cancel_waiting(at)
        } else if id == operation.id {
            // No operation that cancels others can be cancelled (RFC 3909 section 3), least of all by itself.
            LdapResult::with(ResultCode::CANNOT_CANCEL, "that is this operation itself")
        } else {
            LdapResult::with(ResultCode::NO_SUCH_OPERATION, "message ID not found")
        };
        self.service.cancelled(operation, result, &mut self.output);
    }

    fn cancel_waiting(&mut self, at: usize) -> LdapResult {
        let result = Some(LdapResult::new(ResultCode::CANCELED));
        let operation = self.waiting.get(at).map(|waiting| waiting.operation);
        // It may still take effect, and `canceled` would deny that (RFC 3909 section 3).
        let operation = operation.filter(|operation| !self.service.may_take_effect(*operation));
        if operation.is_some_and(|operation| self.service.give_up(operation, result, &mut self.output)) {
            self.waiting.swap_remove(at);
            return LdapResult::success();
        }
        LdapResult::with(ResultCode::TOO_LATE, "the operation is already under way")
    }

    /// Ends the connection. With `notice` the client gets a Notice of Disconnection (RFC 4511 section 4.4.1).
    fn close(&mut self, notice: Option<LdapResult>) {
        if self.phase == Phase::Closing {
            return;
        }
        self.abandon_all();
        self.phase = Phase::Closing;
        self.input = Input::default();
        if let Some(result) = notice {
            encode::notice_of_disconnection(&mut self.output, &result);
        }
    }

    /// Runs one slice of each short search and sends the next long one to another thread. Answers what to do next.
    fn run(&mut self) -> Turn {
        let several = self.searches.short.len() > 1;
        let until = several.then(|| self.service.now().0.saturating_add(SEARCHES_NANOS));
        for number in 0..self.searches.short.len() {
            let is_over = number > 0 && until.is_some_and(|until| self.service.now().0 >= until);
            if is_over || !self.has_room() {
                break;
            }
            self.drop_sent();
            let Some((operation, mut search)) = self.searches.short.pop_front() else { break };
            if self.service.is_long(&search) {
                self.searches.long.push_back((operation, search));
                continue;
            }
            match self.service.step(operation, &mut search, &mut self.output) {
                SliceOutcome::More if self.service.is_long(&search) => {
                    self.searches.long.push_back((operation, search))
                }
                SliceOutcome::More => self.searches.short.push_back((operation, search)),
                SliceOutcome::Waiting if self.farewell.is_none() => {
                    self.searches.waiting.push((operation, search))
                }
                SliceOutcome::Sleeping if self.phase == Phase::Open => {
                    self.searches.sleeping.push((operation, search))
                }
                // The server stops, or the client sends no more.
                SliceOutcome::Waiting | SliceOutcome::Sleeping => self.end_follower(operation, search),
                SliceOutcome::Done => {}
            }
        }
        if !self.has_room() {
            self.searches.short.iter_mut().for_each(|(_, search)| self.service.pause(search));
        } else if self.searches.background.is_none()
            && let Some((operation, search)) = self.searches.long.pop_front()
        {
            match self.service.send_to_background(operation, search) {
                SearchLocation::InBackground(background_search) => {
                    self.searches.background = Some((operation, background_search))
                }
                SearchLocation::OnLoop(search) => self.searches.short.push_back((operation, search)),
            }
        }
        match self.phase {
            Phase::Closing => Turn::Close,
            _ if self.has_work() => Turn::More,
            Phase::InputEnded if self.pending() == 0 && !self.has_buffered() => Turn::Close,
            _ => Turn::Idle,
        }
    }

    /// Whether the connection has something to do now. Room in the output may bring that: ask again after [`sent`](Self::sent).
    pub(crate) fn has_work(&self) -> bool {
        !matches!(self.phase, Phase::Closing | Phase::Changing)
            && self.has_room()
            && (self.searches.can_go_on() || self.can_start_buffered())
    }

    fn can_start_buffered(&self) -> bool {
        !self.input.is_empty() && self.may_start() && self.has_buffered()
    }

    /// Whether the input begins with a complete request, which may wait for room in the output.
    fn has_buffered(&self) -> bool {
        !self.input.is_empty() && !matches!(frame(&self.input, self.limits.pdu), Ok(Frame::Incomplete { .. }))
    }

    /// The next request, if it is complete and has to start on another thread.
    fn next_off_loop(&self) -> Option<&[u8]> {
        let looks_up = self.limits.looks_up != RemoteLookups::None;
        if self.input.len() <= LARGE_REQUEST && !looks_up && !self.keeps_much() {
            return None;
        }
        match frame(&self.input, self.limits.pdu) {
            Ok(Frame::Complete { len }) => self.input.get(..len).filter(|pdu| self.starts_off_loop(pdu)),
            _ => None,
        }
    }
}

/// A lost client ends its requests as an unbind does: those that wait are given up, and all count as ended.
impl<S: Service> Drop for Connection<S> {
    fn drop(&mut self) {
        // After a panic the service may be in any state.
        if !std::thread::panicking() {
            self.close(None);
        }
    }
}

/// The answer to a change that is given up although it may be made.
fn unknown_outcome(result: &LdapResult) -> LdapResult {
    let why = &result.diagnostic;
    let text = format!("{why}; whether it took effect is unknown: look before you try again");
    LdapResult { diagnostic: text, ..result.clone() }
}

impl RemoteLookups {
    /// Whether a request is one of them.
    fn concern(self, pdu: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::Identities => looks_up_identities(pdu),
            // What ends requests waits for none.
            Self::Rules => !matches!(operation_tag(pdu), Some(UNBIND_TAG | ABANDON_TAG) | None),
        }
    }
}

/// Whether a request may look up identities: a bind by a SASL mechanism, or a request in the name of another identity. A false positive,
/// with the bytes of such an OID elsewhere, only starts on another thread.
fn looks_up_identities(pdu: &[u8]) -> bool {
    let has = |sought: &[u8]| pdu.windows(sought.len()).any(|window| window == sought);
    let is_sasl = || {
        let decoded = Message::decode_with(pdu, &DecodeLimits { filter_depth: 0 });
        decoded.is_ok_and(|message| {
            matches!(&message.request, Request::Bind(bind) if matches!(bind.authentication, Authentication::Sasl { .. }))
        })
    };
    operation_tag(pdu) == Some(BIND_TAG) && is_sasl()
        || has(oid::PROXIED_AUTHORIZATION.as_bytes())
        || has(oid::PROXIED_AUTHORIZATION_V1.as_bytes())
        || has(oid::VERIFY_CREDENTIALS.as_bytes())
}

/// Whether a request ends a transaction. A false positive, with the bytes of that OID elsewhere, only starts on another thread.
fn ends_transaction(pdu: &[u8]) -> bool {
    let name = oid::END_TRANSACTION.as_bytes();
    operation_tag(pdu) == Some(EXTENDED_TAG) && pdu.windows(name.len()).any(|window| window == name)
}

/// The tag of the operation, which follows the message id.
fn operation_tag(pdu: &[u8]) -> Option<Tag> {
    let mut message = Reader::new(pdu).sequence("LDAPMessage").ok()?;
    message.element("messageID").ok()?;
    message.peek()
}

#[cfg(test)]
mod tests;
