//! Values under their equality rule: the key that says whether two are the same, and whether one can be read at all.

use larix_proto::ber::is_text;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, AttributeType, InvalidValue, Schema, SyntaxKind};

/// Whether a value is text, a DN, a time, a UUID or a CSN where its syntax wants one, as far as slapadd asks for it: the value must have
/// a normal form. A type without an equality rule takes every value, and values of other syntaxes are not looked at. `scratch` is room
/// for a normal form.
pub(crate) fn is_readable(
    schema: &Schema,
    kind: &AttributeType,
    value: &[u8],
    scratch: &mut Vec<u8>,
) -> bool {
    let Some(rule) = kind.equality else { return true };
    let mut has_normal_form = || {
        scratch.clear();
        rule.normalize_value(schema, value, scratch).is_ok()
    };
    let is_valid = || kind.syntax.validate(schema, value).is_ok();
    match kind.syntax.kind {
        SyntaxKind::DirectoryString => is_text(value) || is_encoded_as_text(value) || has_normal_form(),
        SyntaxKind::DistinguishedName => has_normal_form() || is_valid(),
        SyntaxKind::GeneralizedTime => is_common_time(value) || is_valid() || has_normal_form(),
        SyntaxKind::Uuid => is_valid() || has_normal_form(),
        SyntaxKind::Csn => is_common_csn(value) || has_normal_form(),
        _ => true,
    }
}

/// Whether octets are numbers of characters as UTF-8 encodes them, each in its shortest form, also those that are no characters of Unicode:
/// halves of surrogate pairs, and numbers above U+10FFFF (RFC 2279). slapd takes these.
fn is_encoded_as_text(mut value: &[u8]) -> bool {
    while let [first, rest @ ..] = value {
        let length = first.leading_ones();
        if length == 0 {
            value = rest;
            continue;
        }
        if !(2..=6).contains(&length) {
            return false;
        }
        let Some((following, after)) = rest.split_at_checked(length as usize - 1) else { return false };
        // The bits that a shorter form has no room for.
        let is_shortest = match following {
            [_] => first & 0x1e != 0,
            [second, ..] => first & (0x7f_u8 >> length) != 0 || second & 0x3f >= 1_u8 << (8 - length),
            [] => false,
        };
        if !is_shortest || following.iter().any(|octet| octet & 0xc0 != 0x80) {
            return false;
        }
        value = after;
    }
    true
}

/// Whether a value is a time as servers write it, `YYYYmmddHHMMSSZ`, on a day that every month has. It needs no parser.
fn is_common_time(value: &[u8]) -> bool {
    let Some((digits, b"Z")) = value.split_at_checked(14) else { return false };
    let ([_, _, month, day, hour, minute, second], []) = digits.as_chunks::<2>() else { return false };
    digits.iter().all(u8::is_ascii_digit)
        && (*b"01"..=*b"12").contains(month)
        && (*b"01"..=*b"28").contains(day)
        && hour <= b"23"
        && minute <= b"59"
        && second <= b"59"
}

/// Whether a value has the form of `YYYYmmddHHMMSS.uuuuuuZ#cccccc#sss#mmmmmm`. slapd looks for no more.
fn is_common_csn(value: &[u8]) -> bool {
    value.len() == 40 && [22, 29, 33].iter().all(|at| value.get(*at) == Some(&b'#'))
}

/// Refuses values of an attribute that go with the option `;binary` alone, if `name` is without it: clients ask for them with it.
///
/// # Errors
/// undefinedAttributeType, as of an add.
pub(crate) fn check_transfer(
    kind: &AttributeType,
    description: &AttributeDescription,
    name: &str,
) -> Result<(), LdapResult> {
    if !kind.syntax.binary_transfer || description.has_binary_option() {
        return Ok(());
    }
    let text = format!("{name}: requires ;binary transfer");
    Err(LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, text))
}

/// The refusal of a value that is not [readable](is_readable), by its place among those of the attribute `name`.
pub(crate) fn unreadable(name: &str, position: usize) -> LdapResult {
    let text = format!("{name}: value #{position} invalid per syntax");
    LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text)
}

/// Bytes of a value that are shown.
const VALUE_SHOWN_MAX: usize = 64;

/// Adds the value that a result speaks of by its number; `values` are those of its attribute.
#[must_use]
pub fn with_value(result: LdapResult, values: &[Vec<u8>]) -> LdapResult {
    let invalid = result.invalid_value().and_then(|(name, number)| Some((name, values.get(number)?)));
    let Some((name, value)) = invalid else { return result };
    let shown = match std::str::from_utf8(value) {
        Ok(text) if text.len() <= VALUE_SHOWN_MAX && name.eq_ignore_ascii_case("objectClass") => {
            let bundle = larix_schema::bundle_with_class(text).map_or_else(String::new, |bundle| {
                format!("; `schema {bundle}` in the configuration defines it")
            });
            format!("{text:?}: the schema has no class of this name{bundle}")
        }
        Ok(text) if text.len() <= VALUE_SHOWN_MAX => format!("{text:?}"),
        Ok(_) => return result,
        Err(_) => "it is not UTF-8, which most syntaxes want".to_owned(),
    };
    LdapResult { diagnostic: format!("{}: {shown}", result.diagnostic), ..result }
}

/// What two equal values have in common: the normal form under the type's equality rule, or the value itself for a
/// type without one.
pub(crate) fn key(schema: &Schema, kind: &AttributeType, value: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let Some(rule) = kind.equality else { return Ok(value.to_vec()) };
    let mut out = Vec::with_capacity(value.len());
    rule.normalize_value(schema, value, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_encoded_as_slapd_wants_it() {
        for (octets, expected) in [
            (&b""[..], true),
            ("a\u{fc}\u{20ac}\u{1f600}".as_bytes(), true),
            (b"\xed\xa0\xbd\xed\xb8\x80", true),
            (b"\xf4\x90\x80\x80", true),
            (b"\xf8\x88\x80\x80\x80", true),
            (b"\xfc\x84\x80\x80\x80\x80", true),
            (b"M\xfcller", false),
            (b"\xc3", false),
            (b"\xc3A", false),
            (b"\x80", false),
            (b"\xfe", false),
            (b"\xff", false),
            (b"\xc0\x80", false),
            (b"\xc1\xbf", false),
            (b"\xe0\x9f\xbf", false),
            (b"\xf0\x8f\xbf\xbf", false),
            (b"\xf8\x87\xbf\xbf\xbf", false),
            (b"\xfc\x83\xbf\xbf\xbf\xbf", false),
        ] {
            assert_eq!(is_encoded_as_text(octets), expected, "{octets:x?}");
        }
    }

    #[test]
    fn common_times_are_valid() {
        for (time, expected) in [
            ("20060228235959Z", true),
            ("20060101000000Z", true),
            ("20060001000000Z", false),
            ("20061301000000Z", false),
            ("20060100000000Z", false),
            // The parser tells.
            ("20060129000000Z", false),
            ("20060101240000Z", false),
            ("20060101006000Z", false),
            ("20060101000060Z", false),
            ("2006010100000xZ", false),
            ("20060101000000", false),
            ("20060101000000.5Z", false),
            ("", false),
        ] {
            assert_eq!(is_common_time(time.as_bytes()), expected, "{time}");
        }
    }
}
