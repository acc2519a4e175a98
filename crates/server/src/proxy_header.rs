//! The PROXY protocol, versions 1 and 2, at `pldap://` and `pldaps://` listeners: a balancer in front says who the client
//! is. Anyone who reaches such a listener may claim any address: only the balancer should be able to reach it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

/// How long a header may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Connections whose header is awaited at once; further ones are closed.
pub(crate) const AWAITED_MAX: usize = 1024;
/// A line of version 1, its end included.
const LINE_BYTES_MAX: usize = 107;
/// What follows the fixed part of version 2: addresses and options.
const BODY_BYTES_MAX: usize = 2048;
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

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
    // Shorter than any header of either version.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == *SIGNATURE {
        let mut fixed = [0; 4];
        stream.read_exact(&mut fixed).await?;
        let [command, family, length @ ..] = fixed;
        let length = usize::from(u16::from_be_bytes(length));
        if length > BODY_BYTES_MAX {
            return Err(HeaderError::Malformed("it is too long"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        return source_of_body(command, family, &body).map_err(HeaderError::Malformed);
    }
    if !start.starts_with(b"PROXY ") {
        return Err(HeaderError::Malformed("it begins like neither version"));
    }
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= LINE_BYTES_MAX {
            return Err(HeaderError::Malformed("its line is too long"));
        }
        line.push(stream.read_u8().await?);
    }
    source_of_line(&line).map_err(HeaderError::Malformed)
}

fn source_of_line(line: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "its line is no ASCII")?;
    let words: Vec<&str> = line.trim_end_matches("\r\n").split(' ').collect();
    let (address, port, v4) = match words.as_slice() {
        ["PROXY", "UNKNOWN", ..] => return Ok(None),
        ["PROXY", "TCP4", source, _, port, _] => (*source, *port, true),
        ["PROXY", "TCP6", source, _, port, _] => (*source, *port, false),
        _ => return Err("its line is not of version 1"),
    };
    let address: IpAddr = address.parse().map_err(|_| "its source is no address")?;
    let port: u16 = port.parse().map_err(|_| "its source port is no port")?;
    if address.is_ipv4() != v4 {
        return Err("its source is of another family");
    }
    Ok(Some(SocketAddr::new(address, port)))
}

fn source_of_body(command: u8, family: u8, body: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    const LOCAL: u8 = 0x20;
    const PROXY: u8 = 0x21;
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    let short = "its addresses are not whole";
    match (command, family) {
        (LOCAL, _) => Ok(None),
        (PROXY, TCP4) => {
            let (source, rest) = body.split_first_chunk::<4>().ok_or(short)?;
            let port = rest.get(4..6).and_then(|port| port.first_chunk::<2>()).ok_or(short)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(*source).into(), u16::from_be_bytes(*port))))
        }
        (PROXY, TCP6) => {
            let (source, rest) = body.split_first_chunk::<16>().ok_or(short)?;
            let port = rest.get(16..18).and_then(|port| port.first_chunk::<2>()).ok_or(short)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(*source).into(), u16::from_be_bytes(*port))))
        }
        (PROXY, _) => Err("it is about no TCP connection"),
        _ => Err("its version or command is unknown"),
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

    fn second(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body, b"0abc"].concat()
    }

    #[test]
    fn headers() {
        check("version 1", b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 389\r\n0\x0c", Ok(Some("192.0.2.1:4711")), 2);
        check("IPv6", b"PROXY TCP6 2001:db8::1 ::1 5 636\r\n", Ok(Some("[2001:db8::1]:5")), 0);
        check("unknown", b"PROXY UNKNOWN\r\n0", Ok(None), 1);
        let four = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 0x85];
        check("version 2", &second(0x21, 0x11, &four), Ok(Some("192.0.2.7:4711")), 4);
        check(
            "with options",
            &second(0x21, 0x11, &[&four[..], &[3, 0, 1, 9]].concat()),
            Ok(Some("192.0.2.7:4711")),
            4,
        );
        let six = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 16], &[0, 5, 2, 0x7c]]
            .concat();
        check("version 2, IPv6", &second(0x21, 0x21, &six), Ok(Some("[2001:db8::1]:5")), 4);
        check("a look", &second(0x20, 0, b""), Ok(None), 4);
        for (name, bytes, expected) in [
            ("LDAP", &b"0\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0"[..], "like neither version"),
            ("nothing", b"", "no whole PROXY header"),
            ("half", b"PROXY TCP4 192.0.2.1", "no whole PROXY header"),
            ("words", b"PROXY TCP4 192.0.2.1 10.0.0.1\r\n", "not of version 1"),
            ("family", b"PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n", "of another family"),
            ("address", b"PROXY TCP4 example 10.0.0.1 1 2\r\n", "no address"),
            ("port", b"PROXY TCP4 192.0.2.1 10.0.0.1 99999 2\r\n", "no port"),
            ("long", &[b'x'; 200].map(|_| b' '), "like neither version"),
        ] {
            check(name, bytes, Err(expected), 0);
        }
        check("an endless line", &[&b"PROXY TCP4 "[..], &[b'1'; 200]].concat(), Err("too long"), 0);
        check("short", &second(0x21, 0x11, &four[..8]), Err("not whole"), 0);
        check("UDP", &second(0x21, 0x12, &four), Err("no TCP connection"), 0);
        check("version 3", &second(0x31, 0x11, &four), Err("version or command"), 0);
        check("too long", &[&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat(), Err("too long"), 0);
    }
}
