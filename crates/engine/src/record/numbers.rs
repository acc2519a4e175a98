//! Numbers in records: in base 128, and lengths of BER.

#[inline]
pub(super) fn take<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(taken)
}

pub(super) fn take_ber_length(rest: &mut &[u8]) -> Option<u64> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let bytes = take(rest, u64::from(first & 0x7f))?;
    if bytes.len() > 8 {
        return None;
    }
    Some(bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)))
}

/// Appends a number in base 128, low bits first, as short as it can be.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number that [`put_varint`] wrote: most are of one byte or two.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    match **rest {
        [low, ref after @ ..] if low < 0x80 => {
            *rest = after;
            Some(u64::from(low))
        }
        [low, high, ref after @ ..] if high < 0x80 => {
            *rest = after;
            Some(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => take_long_varint(rest),
    }
}

#[cold]
fn take_long_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    let mut shift = 0;
    loop {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(number);
        }
        shift += 7;
    }
}

pub(super) fn varint_length(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_take_their_length() {
        for number in [0, 1, 127, 128, 300, 16383, 16384, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            assert_eq!(out.len(), varint_length(number));
            assert_eq!(take_varint(&mut out.as_slice()), Some(number));
        }
        assert_eq!(take_varint(&mut [0x80u8; 12].as_slice()), None);
    }
}
