//! What the driver reads of an answer: whose it is, what it is and the result code. Nothing else is decoded.

pub(super) const SEARCH_RESULT_ENTRY: u8 = 0x64;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answer {
    pub(super) id: u32,
    /// The identifier octet of the protocolOp (RFC 4511 section 4.2 and after).
    pub(super) operation: u8,
    /// The result code; none for entries, references and intermediate responses.
    pub(super) code: Option<u32>,
}

/// Reads the start of a whole PDU. None if it is not an answer in BER.
#[inline]
pub(super) fn read(pdu: &[u8]) -> Option<Answer> {
    let (_, rest) = header(pdu, 0x30)?;
    let (length, rest) = header(rest, 0x02)?;
    let id = number(rest.get(..length)?)?;
    let rest = rest.get(length..)?;
    let operation = *rest.first()?;
    let code = match operation {
        // entry, reference, intermediate
        SEARCH_RESULT_ENTRY | 0x73 | 0x79 => None,
        // bind, search done, modify, add, delete, modDN, compare, extended
        0x61 | 0x65 | 0x67 | 0x69 | 0x6b | 0x6d | 0x6f | 0x78 => {
            let (_, content) = header(rest, operation)?;
            let (length, content) = header(content, 0x0a)?;
            Some(number(content.get(..length)?)?)
        }
        _ => return None,
    };
    Some(Answer { id, operation, code })
}

/// The length of the content behind `tag`, and what follows the header.
#[inline]
fn header(bytes: &[u8], tag: u8) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    if first != tag {
        return None;
    }
    if length < 0x80 {
        return Some((usize::from(length), rest));
    }
    let octets = usize::from(length & 0x7f);
    let length = rest.get(..octets).filter(|octets| (1..=8).contains(&octets.len()))?;
    let length = length.iter().fold(0_u64, |length, &octet| length << 8 | u64::from(octet));
    Some((usize::try_from(length).ok()?, rest.get(octets..)?))
}

/// A number without sign of at most four octets.
#[inline]
fn number(octets: &[u8]) -> Option<u32> {
    match octets {
        [one] if *one < 0x80 => Some(u32::from(*one)),
        [] => None,
        [first, ..] if *first >= 0x80 || octets.len() > 4 => None,
        _ => Some(octets.iter().fold(0, |number, &octet| number << 8 | u32::from(octet))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let check = |pdu: &[u8], expected: Option<(u32, u8, Option<u32>)>| {
            let expected = expected.map(|(id, operation, code)| Answer { id, operation, code });
            assert_eq!(read(pdu), expected, "{pdu:02x?}");
        };
        let done = b"\x30\x0c\x02\x01\x05\x65\x07\x0a\x01\x20\x04\x00\x04\x00";
        check(done, Some((5, 0x65, Some(32))));
        check(
            b"\x30\x81\x0f\x02\x04\x01\x02\x03\x04\x6f\x07\x0a\x01\x06\x04\x00\x04\x00",
            Some((0x0102_0304, 0x6f, Some(6))),
        );
        check(b"\x30\x0d\x02\x01\x05\x65\x08\x0a\x02\x10\x00\x04\x00\x04\x00", Some((5, 0x65, Some(4_096))));
        check(b"\x30\x05\x02\x01\x05\x64\x00", Some((5, 0x64, None)));
        check(b"\x30\x05\x02\x01\x05\x73\x00", Some((5, 0x73, None)));
        for cut in 0..10 {
            check(&done[..cut], None);
        }
        check(b"\x31\x05\x02\x01\x05\x65\x00", None);
        check(b"\x30\x05\x02\x01\xff\x65\x00", None);
        check(b"\x30\x05\x02\x00\x65\x00", None);
        check(b"\x30\x05\x02\x01\x05\x42\x00", None);
        check(b"\x30\x89\x01\x01\x01\x01\x01\x01\x01\x01\x01\x02\x01\x05", None);
    }
}
