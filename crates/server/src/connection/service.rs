//! The interface between a connection and what carries out its requests.

use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, Message, MessageId};

use super::SearchLocation;

/// Carries out the requests of one connection, whose session it has.
pub(crate) trait Service {
    /// A search under way.
    type Search;
    /// The handle of a search whose slices another thread computes. Dropping it ends the search.
    type BackgroundSearch;
    /// Such a search with its answers, on its way back.
    type Returned;
    /// The outcome of work on another thread: a write, a verified password.
    type Completion;

    /// Starts a request, and appends to `out` what can be answered at once.
    fn start(
        &mut self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<Self::Search>;
    /// Runs one slice of a search.
    fn step(&mut self, operation: Operation, search: &mut Self::Search, out: &mut Vec<u8>) -> SliceOutcome;
    /// Answers a request that waited.
    fn complete(&mut self, operation: Operation, completion: Self::Completion, out: &mut Vec<u8>);
    /// Releases what others may wait for, while the client does not read its answers.
    fn pause(&mut self, search: &mut Self::Search);
    /// Whether a search has become so long that no other request may wait for its slices.
    fn is_long(&self, search: &Self::Search) -> bool;
    /// Sends a long search to another thread, which ends with a call of [`Connection::returned`](super::Connection::returned) with its
    /// serial number. If no thread takes it, the search stays here and no longer counts as long.
    fn send_to_background(
        &mut self,
        operation: Operation,
        search: Self::Search,
    ) -> SearchLocation<Self::Search, Self::BackgroundSearch>;
    /// Takes a search back and appends its answers. Answers the search, or `None` if its result was among them.
    fn returned(
        &mut self,
        operation: Operation,
        returned: Self::Returned,
        out: &mut Vec<u8>,
    ) -> Option<Self::Search>;
    /// Ends a search early: with this result, or without an answer.
    fn end(
        &mut self,
        operation: Operation,
        search: SearchLocation<Self::Search, Self::BackgroundSearch>,
        result: Option<LdapResult>,
        out: &mut Vec<u8>,
    );
    /// Gives up a request that waits: with this result, or without an answer. False: that is impossible, and its completion will
    /// come.
    fn give_up(&mut self, _operation: Operation, _result: Option<LdapResult>, _out: &mut Vec<u8>) -> bool {
        false
    }
    /// Whether a request that waits may take effect although it is given up.
    fn may_take_effect(&self, _operation: Operation) -> bool {
        false
    }
    /// When the time of a request that waits is over.
    fn deadline(&self, _operation: Operation) -> Option<Monotonic> {
        None
    }
    /// When the time of a search that waits is over.
    fn search_deadline(&self, _search: &Self::Search) -> Option<Monotonic> {
        None
    }
    /// Answers a Cancel request (RFC 3909).
    fn cancelled(&mut self, operation: Operation, result: LdapResult, out: &mut Vec<u8>);
    /// Tells the log and the session what the connection decided by itself.
    fn event(&mut self, event: Event<'_>);
    /// The limits in force. They change with the identity and with the configuration.
    fn limits(&self) -> Limits;
    /// The time, which bounds a turn.
    fn now(&self) -> Monotonic;
    /// Bytes of the updates of an open transaction. Its end prepares all of them at once.
    fn kept_bytes(&self) -> usize {
        0
    }
    /// Answers a StartTLS request, for which [`Self::start`] gave [`StartOutcome::Securing`]. `outstanding`: other requests of this
    /// connection are under way.
    fn start_tls(&mut self, operation: Operation, outstanding: bool, out: &mut Vec<u8>);
    /// Whether the last answer begins a new layer (StartTLS, a SASL security layer). Bytes that came behind its request, without that
    /// layer, cannot be trusted.
    fn changes_layers(&self) -> bool;
}

/// A request's number on its connection (`op=` in the log) and the client's message id.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub serial: u64,
    pub id: MessageId,
    /// Bytes of its message.
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
    /// The same, and no other request starts before: a bind.
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
    /// It waits for changes, until the same call. Its client expects no answer meanwhile.
    Sleeping,
    /// Its result is appended.
    Done,
}

/// Limits of one connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Content bytes of one message.
    pub pdu: usize,
    /// Requests under way, searching or waiting. With so many, no other one starts.
    pub pending: usize,
    /// Bytes of these requests. With so many, no other one starts.
    pub pending_bytes: usize,
    /// Nesting of filters.
    pub filter_depth: usize,
    /// Which requests start on another thread because they may ask databases on other machines.
    pub looks_up: RemoteLookups,
}

/// Which requests ask databases on other machines before it is known which database carries them out.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RemoteLookups {
    #[default]
    None,
    /// Those that look up identities: these may be there.
    Identities,
    /// All of them: the rules for operations ask for groups that may be there.
    Rules,
}

/// What a connection decides or finds without its service.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    Unbind(Operation),
    Abandon(Operation, MessageId),
    /// The input is no LDAP, or breaks a limit.
    Refused(&'a str),
    /// A bind with an unacceptable value, which the connection has answered.
    BadBind,
}
