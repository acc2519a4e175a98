//! HAProxy's PROXY protocol, versions 1 and 2: a header before the first byte of a connection, by which a proxy in front of a
//! server says who the client is. Bytes in, an address out: who reads them may do so as they come.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How long a header may take.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Connections whose header is awaited at once; further ones are closed.
pub const AWAITED_MAX: usize = 1024;
/// A header of version 2 that names no client: the proxy itself connects.
pub const LOCAL_HEADER: [u8; FIXED_BYTES] = *b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
/// A line of version 1, its end included.
const LINE_BYTES_MAX: usize = 107;
/// What follows the fixed part of version 2: addresses and options.
const BODY_BYTES_MAX: usize = 2048;
/// What a header of version 2 begins with; shorter than any header of either version.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, command, family and length of version 2.
const FIXED_BYTES: usize = 16;
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderProgress {
    /// A header that is not whole: it has so many more bytes at the least.
    Incomplete { more: usize },
    /// A whole one of so many bytes. Without a source the proxy itself connects, as to see whether the server is there.
    Whole { bytes: usize, source: Option<SocketAddr> },
}

/// Looks at what has come of a connection.
///
/// # Errors
/// What is wrong with the header.
pub fn parse(bytes: &[u8]) -> Result<HeaderProgress, &'static str> {
    let begins_like = |start: &[u8]| bytes.iter().zip(start).all(|(found, expected)| found == expected);
    if !begins_like(SIGNATURE) && !begins_like(b"PROXY ") {
        return Err("it begins like neither version");
    }
    let Some((start, rest)) = bytes.split_first_chunk::<12>() else {
        return Ok(HeaderProgress::Incomplete { more: SIGNATURE.len() - bytes.len() });
    };
    if start == SIGNATURE {
        return parse_second(rest);
    }
    let line = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    match line.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => {
            let source = source_of_line(line.get(..end).unwrap_or_default())?;
            Ok(HeaderProgress::Whole { bytes: end + 2, source })
        }
        None if line.len() == LINE_BYTES_MAX => Err("its line is too long"),
        None => Ok(HeaderProgress::Incomplete { more: if line.ends_with(b"\r") { 1 } else { 2 } }),
    }
}

/// Version 2, from behind its signature.
fn parse_second(rest: &[u8]) -> Result<HeaderProgress, &'static str> {
    let Some(([command, family, length @ ..], body)) = rest.split_first_chunk::<4>() else {
        return Ok(HeaderProgress::Incomplete { more: FIXED_BYTES - SIGNATURE.len() - rest.len() });
    };
    let length = usize::from(u16::from_be_bytes(*length));
    if length > BODY_BYTES_MAX {
        return Err("it is too long");
    }
    match body.get(..length) {
        None => Ok(HeaderProgress::Incomplete { more: length - body.len() }),
        Some(body) => {
            let source = source_of_body(*command, *family, body)?;
            Ok(HeaderProgress::Whole { bytes: FIXED_BYTES + length, source })
        }
    }
}

fn source_of_line(line: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "its line is no ASCII")?;
    let words: Vec<&str> = line.split(' ').collect();
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

    /// A header with something behind it is found, and each shorter part of it is known to be one.
    fn whole(name: &str, header: &[u8], expected: Option<&str>) {
        let source = expected.map(|address| address.parse().unwrap());
        let found = Ok(HeaderProgress::Whole { bytes: header.len(), source });
        assert_eq!(parse(header), found, "{name}");
        assert_eq!(parse(&[header, b"0\x0c\r\n"].concat()), found, "{name}, with something behind it");
        for len in 0..header.len() {
            match parse(&header[..len]) {
                Ok(HeaderProgress::Incomplete { more }) => {
                    assert!((1..=header.len() - len).contains(&more), "{name}: {more} more behind {len}");
                }
                other => panic!("{name}, {len} bytes: {other:?}"),
            }
        }
    }

    fn second(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body].concat()
    }

    const FOUR: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 0x85];

    #[test]
    fn headers() {
        whole("version 1", b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 389\r\n", Some("192.0.2.1:4711"));
        whole("IPv6", b"PROXY TCP6 2001:db8::1 ::1 5 636\r\n", Some("[2001:db8::1]:5"));
        whole("unknown", b"PROXY UNKNOWN\r\n", None);
        whole("version 2", &second(0x21, 0x11, &FOUR), Some("192.0.2.7:4711"));
        let with_options = [&FOUR[..], &[3, 0, 1, 9]].concat();
        whole("with options", &second(0x21, 0x11, &with_options), Some("192.0.2.7:4711"));
        let six = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 16], &[0, 5, 2, 0x7c]]
            .concat();
        whole("version 2, IPv6", &second(0x21, 0x21, &six), Some("[2001:db8::1]:5"));
        whole("a look", &LOCAL_HEADER, None);
    }

    #[test]
    fn what_is_no_header() {
        for (name, bytes, expected) in [
            ("LDAP", &b"0\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\0\x80\0"[..], "like neither version"),
            ("the first byte of LDAP", b"0", "like neither version"),
            ("words", b"PROXY TCP4 192.0.2.1 10.0.0.1\r\n", "not of version 1"),
            ("family", b"PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n", "of another family"),
            ("address", b"PROXY TCP4 example 10.0.0.1 1 2\r\n", "no address"),
            ("port", b"PROXY TCP4 192.0.2.1 10.0.0.1 99999 2\r\n", "no port"),
            ("long", &[b' '; 200], "like neither version"),
            ("an endless line", &[&b"PROXY TCP4 "[..], &[b'1'; 200]].concat(), "too long"),
            ("short", &second(0x21, 0x11, &FOUR[..8]), "not whole"),
            ("UDP", &second(0x21, 0x12, &FOUR), "no TCP connection"),
            ("version 3", &second(0x31, 0x11, &FOUR), "version or command"),
            ("too long", &[&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat(), "too long"),
        ] {
            let error = parse(bytes).expect_err(name);
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
