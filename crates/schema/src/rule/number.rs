//! Keys of integers, and the rules that look at their bits.

use crate::error::InvalidValue;

/// Longest prefix count that fits the first byte beside the sign.
const SHORT: usize = 0x3f;

/// Appends the key of a decimal integer of any length: a sign and the number of digits, then the digits packed two a
/// byte; all bits turned for a negative one. Byte order is numeric order.
pub(super) fn integer_key(value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    let (negative, digits) = match value.trim_ascii() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(InvalidValue);
    }
    let zeros = digits.iter().take_while(|&&b| b == b'0').count();
    let digits = digits.get(zeros..).unwrap_or_default();
    let negative = negative && !digits.is_empty();
    let start = out.len();
    if digits.len() < SHORT {
        out.push(0x80 | digits.len() as u8);
    } else {
        out.push(0x80 | SHORT as u8);
        out.extend_from_slice(&(digits.len() as u64).to_be_bytes());
    }
    let mut pairs = digits.chunks_exact(2);
    out.extend(pairs.by_ref().map(|pair| match pair {
        [high, low] => ((high - b'0') << 4) | (low - b'0'),
        _ => 0,
    }));
    if let [last] = pairs.remainder() {
        out.push((last - b'0') << 4);
    }
    if negative {
        out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// The normal text of an integer: no sign but minus, no leading zeros.
pub(super) fn integer_text(value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    integer_key(value, &mut Vec::new())?;
    let trimmed = value.trim_ascii();
    let digits = trimmed.strip_prefix(b"-").or_else(|| trimmed.strip_prefix(b"+")).unwrap_or(trimmed);
    let zeros = digits.iter().take_while(|&&b| b == b'0').count();
    let digits = digits.get(zeros..).unwrap_or_default();
    if digits.is_empty() {
        out.push(b'0');
        return Ok(());
    }
    if trimmed.starts_with(b"-") {
        out.push(b'-');
    }
    out.extend_from_slice(digits);
    Ok(())
}

/// The number as 16 big-endian bytes, for the bit rules; numbers beyond 128 bits have no bits to test.
pub(super) fn bits_key(value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    let number: i128 = std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()).ok_or(InvalidValue)?;
    out.extend_from_slice(&number.to_be_bytes());
    Ok(())
}

pub(super) fn bits(value_key: &[u8], assertion_key: &[u8], test: fn(i128, i128) -> bool) -> bool {
    match (value_key.try_into(), assertion_key.try_into()) {
        (Ok(value), Ok(bits)) => test(i128::from_be_bytes(value), i128::from_be_bytes(bits)),
        _ => false,
    }
}
