//! Why an exchange fails.

use std::fmt;

/// What is wrong with a message of the other side. None of them tells whether a user exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Longer than the limit, in bytes.
    TooLong { limit: usize },
    /// Not what the mechanism's grammar says; the part that was expected.
    Malformed(&'static str),
    /// The message asks for something that is not understood.
    Unsupported(&'static str),
    /// The channel binding is not the one of this connection.
    ChannelBinding(&'static str),
    /// A nonce, realm or service that is not the one of this exchange.
    Mismatch(&'static str),
    /// The proof does not show knowledge of the password.
    Proof,
    /// The other side says so (`e=`), or cannot prove itself.
    Peer,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { limit } => write!(f, "message longer than {limit} bytes"),
            Self::Malformed(what) => write!(f, "malformed message: {what}"),
            Self::Unsupported(what) => write!(f, "{what} not supported"),
            Self::ChannelBinding(what) => write!(f, "channel binding: {what}"),
            Self::Mismatch(what) => write!(f, "{what} mismatch"),
            Self::Proof => f.write_str("the proof of the password is wrong"),
            Self::Peer => f.write_str("the other side refused, or could not prove itself"),
        }
    }
}

impl std::error::Error for Fault {}
