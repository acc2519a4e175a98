//! Change sequence numbers: `YYYYmmddHHMMSS.uuuuuuZ#cccccc#sss#mmmmmm`, and the older forms of it.

use crate::time::GeneralizedTime;

/// Whether the value is a CSN of today's form or of the one before (seconds only, two-digit server id).
pub(crate) fn is_csn(value: &[u8]) -> bool {
    let mut parts = value.split(|&b| b == b'#');
    let (Some(time), Some(count), Some(sid), Some(modification), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let digits = time.iter().take_while(|b| b.is_ascii_digit()).count();
    matches!(time.len(), 15 | 22)
        && digits == 14
        && GeneralizedTime::parse(time).is_some()
        && is_hex(count, 6)
        && (is_hex(sid, 2) || is_sid(sid))
        && is_hex(modification, 6)
}

/// Whether the value is a server id of three hexadecimal digits.
pub(crate) fn is_sid(value: &[u8]) -> bool {
    is_hex(value, 3)
}

fn is_hex(value: &[u8], length: usize) -> bool {
    value.len() == length && value.iter().all(u8::is_ascii_hexdigit)
}

/// The CSN in today's form, lower case, so that byte order is the order of changes.
pub(crate) fn normalize(value: &[u8]) -> Option<String> {
    let modern = match modernize_colons(value) {
        Some(text) => text,
        None => std::str::from_utf8(value).ok()?.to_owned(),
    };
    if !is_csn(modern.as_bytes()) {
        return None;
    }
    let mut parts = modern.split('#');
    let (time, count, sid, modification) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let time = match time.len() {
        15 => format!("{}.000000Z", time.strip_suffix('Z')?),
        _ => time.to_owned(),
    };
    let sid = format!("{sid:0>3}");
    Some(format!("{time}#{count}#{sid}#{modification}").to_ascii_lowercase().replace('z', "Z"))
}

/// The server id of a CSN.
pub(crate) fn sid(value: &[u8]) -> Option<String> {
    normalize(value)?.split('#').nth(2).map(str::to_owned)
}

/// `YYYYmmddHH:MM:SSZ#0xCCCC#S#MMMM`, as slapd 2.1 wrote it.
fn modernize_colons(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split('#');
    let (time, count, sid, modification) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let count = count.strip_prefix("0x")?;
    if time.len() != 17 || time.get(10..11)? != ":" || time.get(13..14)? != ":" || sid.len() != 1 {
        return None;
    }
    let time = time.replace(':', "");
    Some(format!("{}.000000Z#00{count}#00{sid}#00{modification}", time.strip_suffix('Z')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_become_the_one_of_today() {
        let cases = [
            ("20240102030405.678901Z#00000A#0FF#000000", Some("20240102030405.678901Z#00000a#0ff#000000")),
            ("20240102030405Z#000001#00#000002", Some("20240102030405.000000Z#000001#000#000002")),
            ("2004010203:04:05Z#0x0001#0#0002", Some("20040102030405.000000Z#000001#000#000002")),
            ("20240102030405.678901Z#000000#000", None),
            ("20240102030405.678901Z#000000#000#000000#", None),
            ("x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(normalize(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }
}
