//! Where a message ends in a stream of bytes.

use std::fmt;

/// Whether the buffer starts with a whole PDU.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// More must be read: at least `needed` bytes counted from the start of the buffer.
    Incomplete { needed: usize },
    /// The first `len` bytes are a PDU.
    Complete { len: usize },
}

/// A stream that cannot be LDAP, or a PDU that will not be read. The connection is lost either way.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// An LDAPMessage is a SEQUENCE (0x30); this byte is not.
    NotASequence(u8),
    /// Length octet 0x80, which RFC 4511 section 5.1 forbids.
    IndefiniteLength,
    /// A length of more than eight octets.
    LengthOfLength(u8),
    /// A PDU announced to be larger than the limit, known before any of it is read. Content bytes.
    TooLarge { announced: u64, limit: usize },
}

/// Looks at the header of the PDU at the start of `buf`. `max_pdu` limits its content length in bytes.
#[inline]
pub fn frame(buf: &[u8], max_pdu: usize) -> Result<Frame, FrameError> {
    let Some(&tag) = buf.first() else { return Ok(Frame::Incomplete { needed: 2 }) };
    if tag != 0x30 {
        return Err(FrameError::NotASequence(tag));
    }
    let Some(&first) = buf.get(1) else { return Ok(Frame::Incomplete { needed: 2 }) };
    let octets = usize::from(first & 0x7f);
    let (content, header) = match first {
        0..0x80 => (u64::from(first), 2),
        0x80 => return Err(FrameError::IndefiniteLength),
        0x81..=0x88 => {
            let Some(length) = buf.get(2..2 + octets) else {
                return Ok(Frame::Incomplete { needed: 2 + octets });
            };
            (length.iter().fold(0u64, |length, &octet| (length << 8) | u64::from(octet)), 2 + octets)
        }
        _ => return Err(FrameError::LengthOfLength(first & 0x7f)),
    };
    let len = match usize::try_from(content) {
        Ok(content) if content <= max_pdu => content.saturating_add(header),
        _ => return Err(FrameError::TooLarge { announced: content, limit: max_pdu }),
    };
    Ok(if buf.len() < len { Frame::Incomplete { needed: len } } else { Frame::Complete { len } })
}

/// The whole PDUs at the start of `buf`, one after another. It ends before the first that is not whole or that [`frame`] refuses.
pub fn frames(buf: &[u8], max_pdu: usize) -> impl Iterator<Item = &[u8]> {
    let mut left = buf;
    std::iter::from_fn(move || match frame(left, max_pdu) {
        Ok(Frame::Complete { len }) => {
            let (pdu, rest) = left.split_at_checked(len)?;
            left = rest;
            Some(pdu)
        }
        _ => None,
    })
}

/// `buf` in two: what is before the last of the whole PDUs that it consists of, and that PDU. What consists of something else, too, is
/// not parted: all of it is the second part.
///
/// Under TLS the last PDU of an answer wants a record of its own: a client that waits at its socket though its TLS library has more
/// decrypted than the client took (curl, for one) then finds something there as long as anything is left.
pub fn part_last(buf: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while let Some((before, rest)) = buf.split_at_checked(at) {
        match frame(rest, usize::MAX) {
            Ok(Frame::Complete { len }) if len == rest.len() => return (before, rest),
            Ok(Frame::Complete { len }) => at += len,
            Ok(Frame::Incomplete { .. }) | Err(_) => break,
        }
    }
    (&[], buf)
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The types of records of TLS (RFC 8446 section 5.1).
            Self::NotASequence(0x14..=0x17) => {
                f.write_str("not LDAP but TLS: one side means ldaps://, the other ldap://")
            }
            Self::NotASequence(byte) => write!(f, "not LDAP: a message starts with 0x30, not {byte:#04x}"),
            Self::IndefiniteLength => f.write_str("message of indefinite length, which LDAP does not allow"),
            Self::LengthOfLength(octets) => write!(f, "message with a length of {octets} octets"),
            Self::TooLarge { announced, limit } => {
                write!(f, "message of {announced} bytes announced, the limit is {limit}")
            }
        }
    }
}

impl std::error::Error for FrameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pdus_are_read_one_after_another() {
        let check = |buf: &[u8], expected: &[&[u8]]| {
            assert_eq!(frames(buf, 10).collect::<Vec<_>>(), expected, "{buf:02x?}");
        };
        check(b"", &[]);
        check(b"\x30\x00\x30\x01\x05", &[b"\x30\x00", b"\x30\x01\x05"]);
        check(b"\x30\x00\x30\x02\x05", &[b"\x30\x00"]);
        check(b"\x30\x00\x30\x0b\x30\x00", &[b"\x30\x00"]);
        check(b"\x30\x00\x31\x00", &[b"\x30\x00"]);
    }

    #[test]
    fn the_last_pdu_is_parted() {
        let check = |buf: &[u8], before: usize| {
            assert_eq!(part_last(buf), buf.split_at(before), "{buf:02x?}");
        };
        check(b"", 0);
        check(b"\x30\x01\x05", 0);
        check(b"\x30\x00\x30\x01\x05", 2);
        check(b"\x30\x00\x30\x01\x05\x30\x81\x00", 5);
        check(b"\x30\x00\x30\x02\x05", 0);
        check(b"\x30\x00\x31\x00", 0);
        check(b"\0\0\0\x02\x30\x00", 0);
        check(b"\x30\x88\xff\xff\xff\xff\xff\xff\xff\xff", 0);
    }

    #[test]
    fn headers() {
        let check = |buf: &[u8], max, expected: Result<Frame, FrameError>| {
            assert_eq!(frame(buf, max), expected, "{buf:02x?}");
        };
        check(b"", 10, Ok(Frame::Incomplete { needed: 2 }));
        check(b"\x30", 10, Ok(Frame::Incomplete { needed: 2 }));
        check(b"\x30\x00", 10, Ok(Frame::Complete { len: 2 }));
        check(b"\x30\x02\x01", 10, Ok(Frame::Incomplete { needed: 4 }));
        check(b"\x30\x02\x01\x02\x30", 10, Ok(Frame::Complete { len: 4 }));
        check(b"\x30\x84\x00\x00\x00\x01", 10, Ok(Frame::Incomplete { needed: 7 }));
        check(b"\x30\x84\x00\x00", 10, Ok(Frame::Incomplete { needed: 6 }));
        check(b"\x30\x88\x00\x00\x00\x00\x00\x00\x00\x01\x05", 10, Ok(Frame::Complete { len: 11 }));
        check(b"GET / HTTP/1.1\r\n", 10, Err(FrameError::NotASequence(b'G')));
        check(b"\x30\x80\x02\x01\x01", 10, Err(FrameError::IndefiniteLength));
        check(b"\x30\x89", 10, Err(FrameError::LengthOfLength(9)));
        check(b"\x30\xff", 10, Err(FrameError::LengthOfLength(0x7f)));
        let two_gigabytes = FrameError::TooLarge { announced: 0x7fff_ffff, limit: 262_143 };
        check(b"\x30\x84\x7f\xff\xff\xff", 262_143, Err(two_gigabytes));
        let all = FrameError::TooLarge { announced: u64::MAX, limit: usize::MAX - 1 };
        check(b"\x30\x88\xff\xff\xff\xff\xff\xff\xff\xff", usize::MAX - 1, Err(all));
    }

    /// What a client of the wrong port sends, and what it gets.
    #[test]
    fn tls_is_named() {
        for hello_or_alert in [0x16, 0x15] {
            assert!(FrameError::NotASequence(hello_or_alert).to_string().contains("but TLS"));
        }
        assert!(FrameError::NotASequence(b'G').to_string().contains("not 0x47"));
    }
}
