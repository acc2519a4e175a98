//! The PROXY protocol, versions 1 and 2, at `pldap://` and `pldaps://` listeners: a balancer in front says who the client
//! is. Anyone who reaches such a listener may claim any address: only the balancer should be able to reach it.

use std::fmt;
use std::io;
use std::net::SocketAddr;

pub(crate) use larix_proto::proxy_header::{AWAITED_MAX, PATIENCE};
use larix_proto::proxy_header::{HeaderProgress, parse};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Why a header is refused.
#[derive(Debug)]
pub(crate) enum HeaderError {
    /// The socket ended or failed before it was whole.
    Io(io::Error),
    /// It is no such header; what is wrong.
    Malformed(&'static str),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "no whole PROXY header: {error}"),
            Self::Malformed(what) => write!(f, "no PROXY header: {what}"),
        }
    }
}

impl From<io::Error> for HeaderError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a header and nothing behind it. `None`: the balancer itself connects, to see whether the server is there.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>, HeaderError> {
    let mut header = Vec::new();
    loop {
        match parse(&header).map_err(HeaderError::Malformed)? {
            HeaderProgress::Whole { source, .. } => return Ok(source),
            HeaderProgress::Incomplete { more } => {
                let known = header.len();
                header.resize(known + more, 0);
                stream.read_exact(header.get_mut(known..).unwrap_or_default()).await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of `bytes`, and how many are left.
    fn check(name: &str, bytes: &[u8], expected: Result<Option<&str>, &str>, left: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut rest = bytes;
        let found = runtime.block_on(read(&mut rest));
        let found = found.map(|source| source.map(|source| source.to_string())).map_err(|e| e.to_string());
        match (&found, expected) {
            (Err(error), Err(part)) => assert!(error.contains(part), "{name}: {error}"),
            (Ok(source), Ok(expected)) => {
                assert_eq!(source.as_deref(), expected, "{name}");
                assert_eq!(rest.len(), left, "{name}: what follows is not touched");
            }
            _ => panic!("{name}: {found:?}"),
        }
    }

    #[test]
    fn a_header_names_the_client_and_leaves_the_rest() {
        check("version 1", b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 389\r\n0\x0c", Ok(Some("192.0.2.1:4711")), 2);
        check("unknown", b"PROXY UNKNOWN\r\n0", Ok(None), 1);
        let second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\x12\x67\x01\x85";
        check("version 2", &[&second[..], b"0abc"].concat(), Ok(Some("192.0.2.7:4711")), 4);
        check("nothing", b"", Err("no whole PROXY header"), 0);
        check("half", b"PROXY TCP4 192.0.2.1", Err("no whole PROXY header"), 0);
        check("half of version 2", &second[..20], Err("no whole PROXY header"), 0);
        check("LDAP", b"0\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0", Err("like neither version"), 0);
    }
}
