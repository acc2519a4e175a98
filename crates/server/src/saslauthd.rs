//! `{SASL}NAME` passwords: saslauthd(8) is asked whether a password is right, over its socket.
//!
//! Its protocol is a request of four counted strings (name, password, service, realm) and one counted string as the
//! answer, which begins with `OK` or `NO`; counts have two bytes, the higher one first.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use zeroize::Zeroizing;

/// Questions that are open at the same time; more wait.
pub(crate) const QUESTIONS_AT_ONCE: usize = 16;
/// How long each part of an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest name or password that is asked about, in bytes: saslauthd takes 256.
const PART_MAX: usize = 256;
/// What is asked for.
const SERVICE: &[u8] = b"ldap";

/// Why a password could not be checked.
#[derive(Debug)]
pub(crate) enum AskError {
    /// The socket cannot be reached, or fell silent.
    Socket(io::Error),
    /// Neither `OK` nor `NO`.
    Answer,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(error) => error.fmt(f),
            Self::Answer => f.write_str("its answer is neither OK nor NO"),
        }
    }
}

impl std::error::Error for AskError {}

impl From<io::Error> for AskError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// Whether saslauthd takes this password for `NAME` or `NAME@REALM`.
///
/// # Errors
/// When it does not say.
pub(crate) fn knows(socket: &Path, name: &[u8], password: &[u8]) -> Result<bool, AskError> {
    let (user, realm) = match name.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (name.get(..at).unwrap_or_default(), name.get(at + 1..).unwrap_or_default()),
        None => (name, &[][..]),
    };
    let parts = [user, password, SERVICE, realm];
    // A zero byte would end the text for a program that reads it as a C string.
    if user.is_empty() || parts.iter().any(|part| part.len() > PART_MAX || part.contains(&0)) {
        return Ok(false);
    }
    let mut request = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len() + 2).sum()));
    for part in parts {
        let len = u16::try_from(part.len()).unwrap_or(u16::MAX);
        request.extend_from_slice(&len.to_be_bytes());
        request.extend_from_slice(part);
    }
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&request)?;
    let mut count = [0; 2];
    stream.read_exact(&mut count)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(count))];
    stream.read_exact(&mut answer)?;
    match answer.get(..2) {
        Some(b"OK") => Ok(true),
        Some(b"NO") => Ok(false),
        _ => Err(AskError::Answer),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Asks a socket that gives one answer; returns the result and the bytes that the socket received.
    fn ask(name: &str, password: &str, answer: &[u8]) -> (Result<bool, String>, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mux");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                for _ in 0..4 {
                    let mut count = [0; 2];
                    stream.read_exact(&mut count).unwrap();
                    let mut part = vec![0; usize::from(u16::from_be_bytes(count))];
                    stream.read_exact(&mut part).unwrap();
                    request.extend_from_slice(&part);
                    request.push(b'|');
                }
                stream.write_all(answer).unwrap();
                request
            });
            let verdict =
                knows(&path, name.as_bytes(), password.as_bytes()).map_err(|error| error.to_string());
            (verdict, server.join().unwrap())
        })
    }

    #[test]
    fn what_is_asked_and_what_is_understood() {
        for (name, password, answer, expected, request) in [
            ("ann", "pw", &b"\0\x02OK"[..], Ok(true), "ann|pw|ldap||"),
            ("ann@X.Y", "", b"\0\x02OK", Ok(true), "ann||ldap|X.Y|"),
            ("a@b@c", "p w", b"\0\x0bNO declined", Ok(false), "a@b|p w|ldap|c|"),
            ("ann", "pw", b"\0\x02ok", Err("its answer is neither OK nor NO"), "ann|pw|ldap||"),
            ("ann", "pw", b"\0\0", Err("its answer is neither OK nor NO"), "ann|pw|ldap||"),
            ("ann", "pw", b"\0\x05OK", Err("failed to fill whole buffer"), "ann|pw|ldap||"),
        ] {
            let (verdict, sent) = ask(name, password, answer);
            assert_eq!(verdict, expected.map_err(str::to_owned), "{name} {password}");
            assert_eq!(String::from_utf8_lossy(&sent), request);
        }
        // saslauthd is not asked.
        let nowhere = Path::new("/nowhere/mux");
        let long = "x".repeat(PART_MAX + 1);
        for (name, password) in
            [("ann", "a\0b"), ("a\0b", "pw"), ("", "pw"), ("@x", "pw"), (&long, "pw"), ("ann", &long)]
        {
            assert!(matches!(knows(nowhere, name.as_bytes(), password.as_bytes()), Ok(false)), "{name:?}");
        }
        assert!(knows(nowhere, b"ann", b"pw").is_err());
    }
}
