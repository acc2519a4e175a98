//! The trait through which a connection has its requests carried out.

use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, Message, MessageId};

use super::SearchLocation;

/// What happens to requests. One a connection: it knows the session.
pub(crate) trait Service {
    /// A search under way.
    type Search;
    /// Stands for a search whose slices are computed elsewhere. Dropping it ends that.
    type BackgroundSearch;
    /// Such a search with what it has answered, on its way back.
    type Returned;
    /// The outcome of something that was done elsewhere: a write, a password verified.
    type Completion;

    /// Starts a request; what can be answered at once is appended to `out`.
    fn start(
        &mut self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<Self::Search>;
    /// Lets a search go on for one slice.
    fn step(&mut self, operation: Operation, search: &mut Self::Search, out: &mut Vec<u8>) -> SliceOutcome;
    /// Answers a request that waited.
    fn complete(&mut self, operation: Operation, completion: Self::Completion, out: &mut Vec<u8>);
    /// The client does not take its answers: a search that could go on holds nothing meanwhile that others wait for.
    fn pause(&mut self, search: &mut Self::Search);
    /// Whether a search has become so long that others are not to wait for its slices.
    fn is_long(&self, search: &Self::Search) -> bool;
    /// Has slices of a long search computed elsewhere, until [`Connection::returned`](super::Connection::returned) is called with
    /// its serial number. Where that is not to be had it stays here, and is not long any more.
    fn send_to_background(
        &mut self,
        operation: Operation,
        search: Self::Search,
    ) -> SearchLocation<Self::Search, Self::BackgroundSearch>;
    /// A search is back: appends what it has answered. The search, unless its result is appended, too.
    fn returned(
        &mut self,
        operation: Operation,
        returned: Self::Returned,
        out: &mut Vec<u8>,
    ) -> Option<Self::Search>;
    /// A search ends early, with this result to send, or silently.
    fn end(
        &mut self,
        operation: Operation,
        search: SearchLocation<Self::Search, Self::BackgroundSearch>,
        result: Option<LdapResult>,
        out: &mut Vec<u8>,
    );
    /// A request that waits is not waited for any longer: with this result to send, or silently. False where that cannot be: then
    /// its completion comes.
    fn give_up(&mut self, _operation: Operation, _result: Option<LdapResult>, _out: &mut Vec<u8>) -> bool {
        false
    }
    /// Whether a request that waits may have its effect although it is given up.
    fn may_take_effect(&self, _operation: Operation) -> bool {
        false
    }
    /// When to give up a waiting request because of its duration.
    fn deadline(&self, _operation: Operation) -> Option<Monotonic> {
        None
    }
    /// The same of a search that waits.
    fn search_deadline(&self, _search: &Self::Search) -> Option<Monotonic> {
        None
    }
    /// Answers a Cancel request (RFC 3909).
    fn cancelled(&mut self, operation: Operation, result: LdapResult, out: &mut Vec<u8>);
    /// For the log and the session: what the connection decided by itself.
    fn event(&mut self, event: Event<'_>);
    /// The limits that hold now; they change with the identity.
    fn limits(&self) -> Limits;
    /// The time, for how long a turn may be.
    fn now(&self) -> Monotonic;
    /// Bytes of the updates that are kept until their transaction ends, which prepares all of them.
    fn kept_bytes(&self) -> usize {
        0
    }
    /// Answers a StartTLS request that [`StartOutcome::Securing`] stands for. `outstanding`: other requests of this
    /// connection are under way.
    fn start_tls(&mut self, operation: Operation, outstanding: bool, out: &mut Vec<u8>);
    /// Whether the request that was answered last has changed what carries the bytes (StartTLS, a SASL security
    /// layer): what came behind it in the clear is not to be trusted.
    fn changes_layers(&self) -> bool;
}

/// A request's number on its connection (`op=` in the log) and the client's message id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub serial: u64,
    pub id: MessageId,
    /// Of its message.
    pub bytes: usize,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum StartOutcome<S> {
    /// Answered, or nothing to answer.
    Answered,
    /// A search that goes on.
    Searching(S),
    /// [`Connection::complete`](super::Connection::complete) will be called with its serial number.
    Waiting,
    /// The same, and no request is started before: a bind.
    WaitingAlone,
    /// A Cancel request for this message.
    Cancel(MessageId),
    /// A StartTLS request: [`Service::start_tls`] answers it.
    Securing,
    /// The client broke the protocol: notice of disconnection.
    Disconnect(LdapResult),
}

/// How a slice of a search ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum SliceOutcome {
    /// There is more to do.
    More,
    /// It waits for an answer from elsewhere, until [`Connection::wake`](super::Connection::wake).
    Waiting,
    /// It waits for changes, until then. Nothing is owed to its client meanwhile.
    Sleeping,
    /// Its result is appended.
    Done,
}

/// Limits of one connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Content bytes of one message.
    pub pdu: usize,
    /// Requests under way (searching or waiting); more are read when one is done.
    pub pending: usize,
    /// Bytes of these; no more are started once they are so many.
    pub pending_bytes: usize,
    /// Nesting of filters.
    pub filter_depth: usize,
    /// Identities may be in databases of other machines: a request that looks some up does not start in a turn of the loop.
    pub looks_up: bool,
}

/// What a connection decides or finds without its service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    Unbind(Operation),
    Abandon(Operation, MessageId),
    /// The input cannot be LDAP, or one of its messages will not be read.
    Refused(&'a str),
    /// A bind has a value that is not acceptable, and is answered so.
    BadBind,
}
