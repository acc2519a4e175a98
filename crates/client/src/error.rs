//! What can go wrong before, beside or instead of an LDAP result.

use std::fmt;
use std::io;

use larix_proto::{DecodeError, FrameError, LdapResult};

use crate::peer_fault::PeerFault;

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug)]
pub enum ClientError {
    /// What is asked for cannot be.
    Usage(String),
    /// No server could be reached.
    Connect {
        url: String,
        source: io::Error,
    },
    Io(io::Error),
    /// The handshake failed.
    Tls {
        host: String,
        why: String,
    },
    /// The server closed the connection.
    Closed,
    /// The server said that it closes the connection, and why.
    Disconnected(LdapResult),
    Frame(FrameError),
    Decode(DecodeError),
    /// A response to something that was not asked.
    Unexpected(&'static str),
    /// The server broke the protocol.
    Peer(PeerFault),
    /// The server refused, in the named step.
    Refused {
        step: &'static str,
        result: LdapResult,
    },
    /// What one of several servers made of it.
    At {
        url: String,
        error: Box<Self>,
    },
    /// A possible remedy.
    Advised {
        error: Box<Self>,
        advice: String,
    },
    /// A file, or standard input, could not be read.
    Input {
        name: String,
        why: String,
    },
    Output(io::Error),
}

impl ClientError {
    /// Whether the reader of standard output has gone, which is no fault.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl std::error::Error for ClientError {}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => write!(f, "{text}"),
            Self::Connect { url, source } => write!(f, "cannot contact LDAP server {url}: {source}"),
            Self::Tls { host, why } => write!(f, "no TLS with {host}: {why}"),
            Self::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
                f.write_str("the server did not answer in time")
            }
            Self::Io(error) => write!(f, "connection lost: {error}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Disconnected(result) => write!(f, "the server closed the connection: {result}"),
            Self::Frame(error) => write!(f, "the answer cannot be read: {error}"),
            Self::Decode(error) => write!(f, "the answer cannot be read: {error}"),
            Self::Unexpected(what) => write!(f, "unexpected answer: {what}"),
            Self::Peer(fault) => write!(f, "unexpected answer: {fault}"),
            Self::Refused { step, result } => write_result(f, step, result),
            Self::At { url, error } => write!(f, "{url}: {error}"),
            Self::Advised { error, advice } => write!(f, "{error}\n\t{advice}"),
            Self::Input { name, why } => write!(f, "{name}: {why}"),
            Self::Output(error) => write!(f, "cannot write: {error}"),
        }
    }
}

/// As OpenLDAP's tools show a result that is not success.
pub fn write_result(f: &mut fmt::Formatter<'_>, step: &str, result: &LdapResult) -> fmt::Result {
    write!(f, "{step}: {} ({})", result.code.text(), result.code.0)?;
    if !result.matched_dn.is_empty() {
        write!(f, "\n\tmatched DN: {}", result.matched_dn)?;
    }
    if !result.diagnostic.is_empty() {
        write!(f, "\n\tadditional info: {}", result.diagnostic)?;
    }
    if !result.referrals.is_empty() {
        f.write_str("\n\treferrals:")?;
        result.referrals.iter().try_for_each(|url| write!(f, "\n\t\t{url}"))?;
    }
    Ok(())
}

impl From<PeerFault> for ClientError {
    fn from(fault: PeerFault) -> Self {
        match fault {
            PeerFault::Framing(error) => Self::Frame(error),
            PeerFault::Garbage(error) => Self::Decode(error),
            PeerFault::Disconnected(result) => Self::Disconnected(result),
            PeerFault::Closed => Self::Closed,
            PeerFault::EarlyBytes => Self::Unexpected("bytes behind the answer to StartTLS"),
            PeerFault::Refused { step, result } => Self::Refused { step, result },
            other => Self::Peer(other),
        }
    }
}

impl From<FrameError> for ClientError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<DecodeError> for ClientError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}
