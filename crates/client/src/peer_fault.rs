//! What a server can do wrong: each fault ends its connection, has a name, and can be counted by it.

use std::fmt;

use larix_proto::{DecodeError, FrameError, LdapResult, ResponseOp};

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// The bytes are no LDAP messages, or a message is larger than is taken.
    Framing(FrameError),
    /// A message that cannot be decoded.
    Garbage(DecodeError),
    /// An answer to a message that was not sent.
    UnknownId(u32),
    /// An answer of a type that the request does not have.
    WrongType { id: u32, found: &'static str },
    /// More entries than the search may have.
    TooManyEntries { id: u32, limit: u32 },
    /// Bytes behind the answer to StartTLS: an attacker may have inserted them, so that we take them for protected ones.
    EarlyBytes,
    /// It said that it closes the connection, and why (RFC 4511 section 4.4.1).
    Disconnected(LdapResult),
    /// It closed the connection.
    Closed,
    /// TLS could not be begun, or was broken.
    Tls(String),
    /// It could not prove that it knows the user, or asked for what no mechanism has.
    Sasl(String),
    /// It refused what a connection begins with: StartTLS or the bind.
    Refused { step: &'static str, result: LdapResult },
    /// It took longer than it may.
    Late(&'static str),
    /// The system's word on the socket.
    Socket(String),
}

impl PeerFault {
    /// The names of all of them, in the order of [`Self::number`].
    pub const NAMES: [&'static str; 13] = [
        "framing",
        "garbage",
        "unknown-id",
        "wrong-type",
        "too-many-entries",
        "early-bytes",
        "disconnected",
        "closed",
        "tls",
        "sasl",
        "refused",
        "late",
        "socket",
    ];

    /// Where it stands in [`Self::NAMES`].
    pub const fn number(&self) -> usize {
        match self {
            Self::Framing(_) => 0,
            Self::Garbage(_) => 1,
            Self::UnknownId(_) => 2,
            Self::WrongType { .. } => 3,
            Self::TooManyEntries { .. } => 4,
            Self::EarlyBytes => 5,
            Self::Disconnected(_) => 6,
            Self::Closed => 7,
            Self::Tls(_) => 8,
            Self::Sasl(_) => 9,
            Self::Refused { .. } => 10,
            Self::Late(_) => 11,
            Self::Socket(_) => 12,
        }
    }

    /// What it is counted by.
    pub fn name(&self) -> &'static str {
        Self::NAMES.get(self.number()).copied().unwrap_or_default()
    }

    /// Whether the server broke the protocol, which no retry corrects.
    pub const fn is_a_lie(&self) -> bool {
        matches!(
            self,
            Self::Framing(_)
                | Self::Garbage(_)
                | Self::UnknownId(_)
                | Self::WrongType { .. }
                | Self::TooManyEntries { .. }
                | Self::EarlyBytes
        )
    }

    pub(crate) const fn wrong_type(id: u32, found: Option<ResponseOp>) -> Self {
        let found = match found {
            None => "an entry, a reference or an intermediate answer",
            Some(ResponseOp::Bind) => "the result of a bind",
            Some(ResponseOp::SearchDone) => "the result of a search",
            Some(ResponseOp::Modify) => "the result of a modify",
            Some(ResponseOp::Add) => "the result of an add",
            Some(ResponseOp::Delete) => "the result of a delete",
            Some(ResponseOp::ModifyDn) => "the result of a modify DN",
            Some(ResponseOp::Compare) => "the result of a compare",
            Some(ResponseOp::Extended) => "the result of an extended operation",
        };
        Self::WrongType { id, found }
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Framing(error) => write!(f, "the answer cannot be read: {error}"),
            Self::Garbage(error) => write!(f, "the answer cannot be read: {error}"),
            Self::UnknownId(id) => write!(f, "an answer to message {id}, which was not sent"),
            Self::WrongType { id, found } => write!(f, "message {id} was answered with {found}"),
            Self::TooManyEntries { id, limit } => {
                write!(f, "more than {limit} entries for message {id}, which asked for no more")
            }
            Self::EarlyBytes => f.write_str("unexpected answer: bytes behind the answer to StartTLS"),
            Self::Disconnected(result) => write!(f, "the server closed the connection: {result}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Tls(why) => write!(f, "no TLS: {why}"),
            Self::Sasl(why) => write!(f, "SASL: {why}"),
            Self::Refused { step, result } => write!(f, "{step}: {result}"),
            Self::Late(what) => write!(f, "{what} took too long"),
            Self::Socket(why) => write!(f, "connection lost: {why}"),
        }
    }
}

impl std::error::Error for PeerFault {}

impl From<FrameError> for PeerFault {
    fn from(error: FrameError) -> Self {
        Self::Framing(error)
    }
}

impl From<DecodeError> for PeerFault {
    fn from(error: DecodeError) -> Self {
        Self::Garbage(error)
    }
}
