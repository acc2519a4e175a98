//! The normal forms behind the rules.

use super::approximate::approximate_key;
use super::number::{bits_key, integer_key, integer_text};
use crate::csn;
use crate::dn::{parse_name_and_uid, rdn_key};
use crate::error::InvalidValue;
use crate::lexical::{is_bit_string, is_descriptor, is_numeric_oid, is_oid};
use crate::matching_rules::Normal;
use crate::prep::{Position, prepare, prepare_tidy};
use crate::schema::Schema;
use crate::syntax::{
    attribute_certificate_issuer_and_serial, canonical_aci, certificate_issuer_and_serial, is_uuid,
    issuer_and_this_update, list_issuer_and_this_update, normal_authz, serial_and_issuer,
    serial_and_issuer_serial,
};
use crate::time::GeneralizedTime;
use crate::truth::Match;

impl Normal {
    /// Whether equal keys mean a match.
    pub(super) fn is_key(self) -> bool {
        !matches!(
            self,
            Self::Approximate
                | Self::BitAnd
                | Self::BitOr
                | Self::DnOneLevel
                | Self::DnSubordinate
                | Self::DnSubtree
                | Self::DnSuperior
                | Self::InChain
                | Self::Keyword
                | Self::Unknown
                | Self::Word
        )
    }

    pub(super) fn value(self, schema: &Schema, value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
        match self {
            Self::Integer => integer_key(value, out),
            Self::BitAnd | Self::BitOr => bits_key(value, out),
            Self::GeneralizedTime => time_key(value, out),
            Self::Uuid => uuid_key(value, out),
            Self::CsnSid => push(out, csn::sid(value)),
            Self::ObjectClass => {
                match schema.object_class(text_of(value)?) {
                    Some(class) => out.extend_from_slice(class.oid.as_bytes()),
                    None => out.extend(value.iter().map(u8::to_ascii_lowercase)),
                }
                Ok(())
            }
            Self::IntegerFirstComponent if !is_integer_text(value) => {
                integer_key(first_component(value)?, out)
            }
            Self::IntegerFirstComponent => integer_key(value, out),
            Self::ObjectIdentifierFirstComponent if !is_oid(value) => {
                object_identifier(schema, first_component(value)?, out);
                Ok(())
            }
            Self::ObjectIdentifierFirstComponent | Self::ObjectIdentifier => {
                object_identifier(schema, value, out);
                Ok(())
            }
            Self::StringFirstComponent => {
                let word = first_component(value)?;
                let quoted = word.strip_prefix(b"'").and_then(|word| word.strip_suffix(b"'"));
                Self::CaseIgnore.text(schema, quoted.unwrap_or(word), out)
            }
            Self::CertificateExact => push(out, Some(certificate_issuer_and_serial(schema, value)?)),
            Self::CertificateListExact => push(out, Some(list_issuer_and_this_update(schema, value)?)),
            Self::AttributeCertificateExact => {
                push(out, Some(attribute_certificate_issuer_and_serial(schema, value)?))
            }
            _ => self.text(schema, value, out),
        }
    }

    pub(super) fn assertion(
        self,
        schema: &Schema,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        match self {
            Self::CertificateExact => push(out, Some(serial_and_issuer(schema, value, true)?)),
            Self::CertificateListExact => push(out, Some(issuer_and_this_update(schema, value, true)?)),
            Self::AttributeCertificateExact => {
                push(out, Some(serial_and_issuer_serial(schema, value, true)?))
            }
            Self::CsnSid if csn::is_sid(value) => {
                out.extend(value.iter().map(u8::to_ascii_lowercase));
                Ok(())
            }
            Self::CsnSid => Err(InvalidValue),
            Self::Uuid if !is_uuid(value) => Err(InvalidValue),
            Self::IntegerFirstComponent => integer_key(value, out),
            Self::StringFirstComponent => self.text(schema, value, out),
            Self::ObjectClass => {
                // What names no class means nothing, also in the form of an OID.
                let class = schema.object_class(text_of(value)?).ok_or(InvalidValue)?;
                out.extend_from_slice(class.oid.as_bytes());
                Ok(())
            }
            Self::ObjectIdentifier | Self::ObjectIdentifierFirstComponent => {
                let known = object_identifier(schema, value, out);
                if known || is_numeric_oid(value) { Ok(()) } else { Err(InvalidValue) }
            }
            _ => self.value(schema, value, out),
        }
    }

    pub(super) fn substring(
        self,
        piece: &[u8],
        position: Position,
        out: &mut Vec<u8>,
    ) -> Result<(), InvalidValue> {
        let start = out.len();
        match self {
            Self::CaseExact => prepare(text_of(piece)?, false, position, out),
            Self::CaseIgnore => prepare(text_of(piece)?, true, position, out),
            Self::CaseIgnoreList => lines(piece, position, out)?,
            Self::NumericString => strip(piece, |b| b.is_ascii_whitespace(), out),
            Self::Telephone => strip(piece, |b| b.is_ascii_whitespace() || b == b'-', out),
            Self::OctetString => {
                out.extend_from_slice(piece);
                return Ok(());
            }
            _ => return Err(InvalidValue),
        }
        // Every value begins and ends with a space (RFC 4518 section 2.6.1), which its key does not have.
        if position != Position::Any && matches!(out.get(start..), Some([b' '])) {
            out.truncate(start);
        }
        Ok(())
    }

    /// The normal form as text.
    pub(super) fn text(self, schema: &Schema, value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
        match self {
            Self::Aci => {
                let normal = canonical_aci(schema, text_of(value)?, |dn| {
                    schema.parse_dn(dn).map(|dn| dn.as_str().to_owned()).map_err(|_| InvalidValue)
                })?;
                out.extend_from_slice(normal.as_bytes());
            }
            Self::CaseExact => prepare_whole(value, false, out)?,
            Self::CaseIgnore | Self::Keyword | Self::StringFirstComponent | Self::Word => {
                prepare_whole(value, true, out)?;
            }
            Self::CaseIgnoreList => lines(value, Position::Whole, out)?,
            Self::Approximate => approximate_key(text_of(value)?, out),
            Self::NumericString => strip_or_space(value, |b| b.is_ascii_whitespace(), out),
            Self::Telephone => strip_or_space(value, |b| b.is_ascii_whitespace() || b == b'-', out),
            Self::Integer => integer_text(value, out)?,
            Self::Boolean => {
                let upper = value.to_ascii_uppercase();
                if !matches!(upper.as_slice(), b"TRUE" | b"FALSE") {
                    return Err(InvalidValue);
                }
                out.extend_from_slice(&upper);
            }
            Self::BitString if !is_bit_string(value) => return Err(InvalidValue),
            Self::GeneralizedTime => {
                let time = GeneralizedTime::parse(value).ok_or(InvalidValue)?;
                out.extend_from_slice(time.to_text().as_bytes());
            }
            Self::Csn => push(out, csn::normalize(value))?,
            Self::Dn
            | Self::DnOneLevel
            | Self::DnSubordinate
            | Self::DnSubtree
            | Self::DnSuperior
            | Self::InChain => schema.write_normal_dn(text_of(value)?, out).map_err(|_| InvalidValue)?,
            Self::Rdn => out.extend_from_slice(rdn_key(schema, text_of(value)?)?.as_bytes()),
            Self::NameAndOptionalUid => {
                let (name, uid) = parse_name_and_uid(text_of(value)?);
                schema.write_normal_dn(name, out).map_err(|_| InvalidValue)?;
                if let Some(uid) = uid {
                    out.push(b'#');
                    out.extend_from_slice(uid.as_bytes());
                }
            }
            Self::ObjectClass => match schema.object_class(text_of(value)?) {
                Some(class) => out.extend_from_slice(class.name().as_bytes()),
                None => out.extend(value.iter().map(u8::to_ascii_lowercase)),
            },
            Self::Authz => out.extend_from_slice(normal_authz(schema, text_of(value)?)?.as_bytes()),
            Self::Uuid => out.extend(value.iter().map(u8::to_ascii_lowercase)),
            Self::Unknown => return Err(InvalidValue),
            Self::AttributeCertificateExact
            | Self::BitAnd
            | Self::BitOr
            | Self::BitString
            | Self::CertificateExact
            | Self::CertificateListExact
            | Self::CsnSid
            | Self::IntegerFirstComponent
            | Self::ObjectIdentifier
            | Self::ObjectIdentifierFirstComponent
            | Self::OctetString => out.extend_from_slice(value),
        }
        Ok(())
    }
}

/// Whether the class with the OID `value_key` is the class with the OID `assertion_key` or one of its subclasses.
pub(super) fn compare_classes(schema: &Schema, value_key: &[u8], assertion_key: &[u8]) -> Match {
    let class = |key| std::str::from_utf8(key).ok().and_then(|oid| schema.object_class(oid));
    match (class(value_key), class(assertion_key)) {
        (_, None) => Match::False,
        (None, Some(_)) => Match::Undefined,
        (Some(value), Some(asserted)) => Match::from(value.ancestry().binary_search(&asserted.id).is_ok()),
    }
}

/// Whether the normalised DN `name` is below `base`, not `base` itself.
pub(super) fn is_subordinate(name: &[u8], base: &[u8]) -> bool {
    // A comma inside a value is escaped in normalised DNs, so a comma before the base separates RDNs.
    match name.strip_suffix(base) {
        Some(above) if base.is_empty() => !above.is_empty(),
        Some(above) => above.last() == Some(&b','),
        None => false,
    }
}

/// The parent of a normalised DN that is not empty.
pub(super) fn parent(name: &[u8]) -> Option<&[u8]> {
    if name.is_empty() {
        return None;
    }
    Some(name.iter().position(|&b| b == b',').and_then(|comma| name.get(comma + 1..)).unwrap_or_default())
}

/// Whether the names are equal, and the unique identifiers where both have one.
pub(super) fn is_like_name_and_uid(a: &[u8], b: &[u8]) -> bool {
    let (Ok(a), Ok(b)) = (text_of(a), text_of(b)) else { return a == b };
    let ((a_name, a_uid), (b_name, b_uid)) = (parse_name_and_uid(a), parse_name_and_uid(b));
    a_name == b_name && (a_uid.is_none() || b_uid.is_none() || a_uid == b_uid)
}

fn text_of(value: &[u8]) -> Result<&str, InvalidValue> {
    std::str::from_utf8(value).map_err(|_| InvalidValue)
}

fn prepare_whole(value: &[u8], fold_case: bool, out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    if !prepare_tidy(value, fold_case, out) {
        prepare(text_of(value)?, fold_case, Position::Whole, out);
    }
    Ok(())
}

fn push(out: &mut Vec<u8>, text: Option<String>) -> Result<(), InvalidValue> {
    out.extend_from_slice(text.ok_or(InvalidValue)?.as_bytes());
    Ok(())
}

fn strip(value: &[u8], ignored: fn(u8) -> bool, out: &mut Vec<u8>) {
    out.extend(value.iter().copied().filter(|&b| !ignored(b)).map(|b| b.to_ascii_lowercase()));
}

fn strip_or_space(value: &[u8], ignored: fn(u8) -> bool, out: &mut Vec<u8>) {
    let start = out.len();
    strip(value, ignored, out);
    if out.len() == start {
        out.push(b' ');
    }
}

fn lines(value: &[u8], position: Position, out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    for (i, line) in text_of(value)?.split('$').enumerate() {
        if i > 0 {
            out.push(b'$');
        }
        prepare(line, true, position, out);
    }
    Ok(())
}

/// The digits of the time in UTC, without the Z: a fraction, which starts with a point, then sorts after its second.
fn time_key(value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    let time = GeneralizedTime::parse(value).ok_or(InvalidValue)?;
    // Most stand as they would be written again; a leap second does not.
    if let [digits @ .., b'Z'] = value
        && digits.len() == "YYYYmmddHHMMSS".len()
        && digits.iter().all(u8::is_ascii_digit)
        && !digits.ends_with(b"60")
    {
        out.extend_from_slice(digits);
        return Ok(());
    }
    let text = time.to_text();
    out.extend_from_slice(text.strip_suffix('Z').unwrap_or(&text).as_bytes());
    Ok(())
}

/// The sixteen bytes of a UUID. Values may be binary, or have their hyphens elsewhere: slapadd takes the latter, as in OpenLDAP.
fn uuid_key(value: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidValue> {
    if value.len() == 16 {
        out.extend_from_slice(value);
        return Ok(());
    }
    let mut digits = value.iter().filter(|&&b| b != b'-').map(|&b| (b as char).to_digit(16));
    let start = out.len();
    for _ in 0..16 {
        let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
            out.truncate(start);
            return Err(InvalidValue);
        };
        out.push((high * 16 + low) as u8);
    }
    if digits.next().is_some() || value.len() != 36 {
        out.truncate(start);
        return Err(InvalidValue);
    }
    Ok(())
}

/// The numeric OID of what the value names; text in lower case for an unknown name. Answers whether it was resolved.
fn object_identifier(schema: &Schema, value: &[u8], out: &mut Vec<u8>) -> bool {
    if is_descriptor(value)
        && let Ok(name) = std::str::from_utf8(value)
        && let Some(oid) = schema.oid_of_name(name)
    {
        out.extend_from_slice(oid.as_bytes());
        return true;
    }
    out.extend(value.iter().map(u8::to_ascii_lowercase));
    false
}

fn is_integer_text(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// First word in the parentheses of a description.
fn first_component(value: &[u8]) -> Result<&[u8], InvalidValue> {
    let inner = match value.trim_ascii() {
        [b'(', inner @ .., b')'] | [b'{', inner @ .., b'}'] => inner.trim_ascii(),
        _ => return Err(InvalidValue),
    };
    inner.split(u8::is_ascii_whitespace).next().filter(|word| !word.is_empty()).ok_or(InvalidValue)
}
