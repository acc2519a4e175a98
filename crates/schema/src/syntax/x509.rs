//! X.509 values: as much of their DER as checking and exact matching need (RFC 4523).

use larix_proto::Dn;

use crate::dn::escape_value;
use crate::error::InvalidValue;
use crate::schema::Schema;
use crate::time::GeneralizedTime;

const BIT_STRING: u8 = 0x03;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const CONTEXT_0: u8 = 0xa0;

/// A walk over DER (definite lengths, one-byte tags).
#[derive(Copy, Clone)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0_usize, |length, &b| (length << 8) | usize::from(b)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content) = self.next()?;
        (found == tag).then_some(content)
    }

    fn skip_if(&mut self, tag: u8) -> Option<()> {
        if self.peek() == Some(tag) {
            self.next()?;
        }
        Some(())
    }

    /// Exactly one element of this tag, and nothing after it.
    fn only(value: &'a [u8], tag: u8) -> Option<Self> {
        Self::before(value, tag, 0)
    }

    /// An element of this tag with at most `rest` bytes after it.
    fn before(value: &'a [u8], tag: u8, rest: usize) -> Option<Self> {
        let mut der = Self(value);
        let content = der.expect(tag)?;
        (der.0.len() <= rest).then_some(Self(content))
    }

    /// A certificate. Files that a text tool saved end with a newline, and clients send them so: OpenLDAP takes one byte after
    /// the DER and refuses two.
    fn certificate(value: &'a [u8]) -> Option<Self> {
        Self::before(value, SEQUENCE, 1)
    }

    /// A revocation list. OpenLDAP looks at nothing after the DER.
    fn certificate_list(value: &'a [u8]) -> Option<Self> {
        Self::before(value, SEQUENCE, usize::MAX)
    }
}

pub(super) fn is_sequence(value: &[u8]) -> bool {
    Der::only(value, SEQUENCE).is_some()
}

/// PrivateKeyInfo of PKCS#8: version, algorithm, key.
pub(super) fn is_private_key(value: &[u8]) -> bool {
    let check = || {
        let mut key = Der::only(value, SEQUENCE)?;
        key.expect(INTEGER)?;
        key.expect(SEQUENCE)?;
        key.expect(OCTET_STRING)
    };
    check().is_some()
}

pub(super) fn is_certificate(value: &[u8]) -> bool {
    let check = || {
        let mut signed = Der::certificate(value)?;
        let body = signed.expect(SEQUENCE)?;
        signed.expect(SEQUENCE)?;
        signed.expect(BIT_STRING)?;
        let mut body = Der(body);
        body.skip_if(CONTEXT_0)?;
        body.expect(INTEGER)?;
        // signature algorithm, issuer, validity, subject, key
        (0..5).try_for_each(|_| body.expect(SEQUENCE).map(|_| ()))
    };
    check().is_some()
}

pub(super) fn is_certificate_list(value: &[u8]) -> bool {
    let check = || {
        let mut signed = Der::certificate_list(value)?;
        let mut body = Der(signed.expect(SEQUENCE)?);
        signed.expect(SEQUENCE)?;
        signed.expect(BIT_STRING)?;
        body.skip_if(INTEGER)?;
        body.expect(SEQUENCE)?;
        body.expect(SEQUENCE)?;
        matches!(body.peek()?, UTC_TIME | GENERALIZED_TIME).then_some(())
    };
    check().is_some()
}

pub(super) fn is_attribute_certificate(value: &[u8]) -> bool {
    let check = || {
        let mut signed = Der::certificate(value)?;
        let mut body = Der(signed.expect(SEQUENCE)?);
        signed.expect(SEQUENCE)?;
        signed.expect(BIT_STRING)?;
        body.expect(INTEGER)?;
        body.expect(SEQUENCE)
    };
    check().is_some()
}

/// What certificateExactMatch compares: serial number and normalised issuer.
pub(crate) fn certificate_issuer_and_serial(schema: &Schema, value: &[u8]) -> Result<String, InvalidValue> {
    let parts = || {
        let mut signed = Der::certificate(value)?;
        let mut body = Der(signed.expect(SEQUENCE)?);
        body.skip_if(CONTEXT_0)?;
        let serial = body.expect(INTEGER)?;
        body.expect(SEQUENCE)?;
        Some((serial, body.expect(SEQUENCE)?))
    };
    let (serial, issuer) = parts().ok_or(InvalidValue)?;
    let issuer = normal_name(schema, &name_text(schema, issuer).ok_or(InvalidValue)?)?;
    Ok(format!(
        "{{ serialNumber {}, issuer rdnSequence:\"{issuer}\" }}",
        decimal(serial).ok_or(InvalidValue)?
    ))
}

/// What certificateListExactMatch compares: normalised issuer and the time of this update.
pub(crate) fn list_issuer_and_this_update(schema: &Schema, value: &[u8]) -> Result<String, InvalidValue> {
    let parts = || {
        let mut signed = Der::certificate_list(value)?;
        let mut body = Der(signed.expect(SEQUENCE)?);
        body.skip_if(INTEGER)?;
        body.expect(SEQUENCE)?;
        let issuer = body.expect(SEQUENCE)?;
        Some((issuer, body.next()?))
    };
    let (issuer, (tag, time)) = parts().ok_or(InvalidValue)?;
    let issuer = normal_name(schema, &name_text(schema, issuer).ok_or(InvalidValue)?)?;
    let mut full = Vec::new();
    if tag == UTC_TIME {
        // RFC 5280 §4.1.2.5.1: years from 50 on are of the last century.
        full.extend_from_slice(if time.first() >= Some(&b'5') { b"19" } else { b"20" });
    }
    full.extend_from_slice(time);
    let time = GeneralizedTime::parse(&full).ok_or(InvalidValue)?.to_text();
    Ok(format!("{{ issuer rdnSequence:\"{issuer}\", thisUpdate \"{time}\" }}"))
}

/// What attributeCertificateExactMatch compares: its serial number and its issuer's name.
pub(crate) fn attribute_certificate_issuer_and_serial(
    schema: &Schema,
    value: &[u8],
) -> Result<String, InvalidValue> {
    let parts = || {
        let mut signed = Der::certificate(value)?;
        let mut body = Der(signed.expect(SEQUENCE)?);
        body.expect(INTEGER)?; // version
        body.expect(SEQUENCE)?; // holder
        let issuer = attribute_certificate_issuer(Der(body.expect(CONTEXT_0)?))?;
        body.expect(SEQUENCE)?; // signature algorithm
        Some((body.expect(INTEGER)?, issuer))
    };
    let (serial, issuer) = parts().ok_or(InvalidValue)?;
    let issuer = normal_name(schema, &name_text(schema, issuer).ok_or(InvalidValue)?)?;
    Ok(attribute_assertion(&decimal(serial).ok_or(InvalidValue)?, &issuer))
}

/// The directory name among the issuer's general names.
fn attribute_certificate_issuer(mut form: Der<'_>) -> Option<&[u8]> {
    let mut names = Der(form.expect(SEQUENCE)?);
    while let Some((tag, content)) = names.next() {
        if tag == 0xa4 {
            return Der(content).expect(SEQUENCE);
        }
    }
    None
}

/// CertificateExactAssertion: GSER `{ serialNumber 1, issuer rdnSequence:"..." }` or the older `1$dn`; gives the GSER
/// form with the issuer's DN pretty or normalised.
pub(crate) fn serial_and_issuer(schema: &Schema, value: &[u8], normal: bool) -> Result<String, InvalidValue> {
    let text = std::str::from_utf8(value).map_err(|_| InvalidValue)?;
    let (serial, issuer) = match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(inner) => {
            let fields = gser_fields(inner).ok_or(InvalidValue)?;
            (field(&fields, "serialNumber")?.to_owned(), field(&fields, "issuer")?.to_owned())
        }
        None => {
            let (serial, issuer) = text.split_once('$').ok_or(InvalidValue)?;
            (serial.trim().to_owned(), issuer.trim().to_owned())
        }
    };
    let serial = canonical_serial(&serial).ok_or(InvalidValue)?;
    let issuer = if normal { normal_name(schema, &issuer)? } else { pretty_name(schema, &issuer)? };
    Ok(format!("{{ serialNumber {serial}, issuer rdnSequence:\"{issuer}\" }}"))
}

/// CertificateListExactAssertion: `{ issuer rdnSequence:"...", thisUpdate "..." }`.
pub(crate) fn issuer_and_this_update(
    schema: &Schema,
    value: &[u8],
    normal: bool,
) -> Result<String, InvalidValue> {
    let text = std::str::from_utf8(value).map_err(|_| InvalidValue)?;
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or(InvalidValue)?;
    let fields = gser_fields(inner).ok_or(InvalidValue)?;
    let issuer = field(&fields, "issuer")?;
    let time = field(&fields, "thisUpdate")?;
    let issuer = if normal { normal_name(schema, issuer)? } else { pretty_name(schema, issuer)? };
    let time = GeneralizedTime::parse(time.as_bytes()).ok_or(InvalidValue)?.to_text();
    Ok(format!("{{ issuer rdnSequence:\"{issuer}\", thisUpdate \"{time}\" }}"))
}

/// AttributeCertificateExactAssertion:
/// `{ serialNumber 1, issuer { issuerName { directoryName:rdnSequence:"..." } } }`.
pub(crate) fn serial_and_issuer_serial(
    schema: &Schema,
    value: &[u8],
    normal: bool,
) -> Result<String, InvalidValue> {
    let text = std::str::from_utf8(value).map_err(|_| InvalidValue)?;
    let serial = text.split_once("serialNumber").map(|(_, rest)| rest.trim_start()).ok_or(InvalidValue)?;
    let digits = serial.bytes().take_while(|b| b.is_ascii_digit() || *b == b'-').count();
    let serial = serial.get(..digits).and_then(canonical_serial).ok_or(InvalidValue)?;
    let issuer = text.split_once("rdnSequence:").and_then(|(_, rest)| quoted(rest)).ok_or(InvalidValue)?.0;
    let issuer = if normal { normal_name(schema, &issuer)? } else { pretty_name(schema, &issuer)? };
    Ok(attribute_assertion(&serial, &issuer))
}

fn attribute_assertion(serial: &str, issuer: &str) -> String {
    format!(
        "{{ serialNumber {serial}, issuer {{ issuerName {{ directoryName:rdnSequence:\"{issuer}\" }} }} }}"
    )
}

/// `name value` pairs with commas between them; a value is a bare word or a quoted string, whose `rdnSequence:` is
/// optional.
fn gser_fields(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        text = text.trim_start();
        let (name, rest) = text.split_once(' ')?;
        let rest = rest.trim_start();
        let rest = match rest.get(..12) {
            Some(choice) if choice.eq_ignore_ascii_case("rdnSequence:") => rest.get(12..)?,
            _ => rest,
        };
        let (value, rest) = if rest.starts_with('"') {
            quoted(rest)?
        } else {
            let end = rest.find([',', ' ']).unwrap_or(rest.len());
            (rest.get(..end)?.to_owned(), rest.get(end..)?)
        };
        fields.push((name.to_owned(), value));
        text = rest.trim_start();
        if text.is_empty() {
            return Some(fields);
        }
        text = text.strip_prefix(',')?;
    }
}

/// A string in quotes, in which a doubled quote stands for one; and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut rest = text.strip_prefix('"')?;
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"')?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                value.push('"');
                rest = after;
            }
            None => return Some((value, after)),
        }
    }
}

fn field<'f>(fields: &'f [(String, String)], name: &str) -> Result<&'f str, InvalidValue> {
    let found = fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str()).ok_or(InvalidValue)
}

/// A serial number as decimal text without leading zeros. `'A0'H` is taken, too, as a number that is not negative.
fn canonical_serial(text: &str) -> Option<String> {
    if let Some(hex) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix("'H")) {
        let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
        if digits.is_empty() {
            return None;
        }
        let octet = |pair: &[u32]| pair.iter().fold(0_u32, |octet, digit| (octet << 4) | *digit) as u8;
        // The octet in front keeps the sign away.
        let octets: Vec<u8> = std::iter::once(0).chain(digits.rchunks(2).rev().map(octet)).collect();
        return decimal(&octets);
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(if digits.is_empty() { "0".to_owned() } else { format!("{sign}{digits}") })
}

/// Two's complement bytes of an INTEGER as decimal text. Serial numbers have 20 octets (RFC 5280); 64 are taken.
fn decimal(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() || bytes.len() > 64 {
        return None;
    }
    let negative = bytes.first()? & 0x80 != 0;
    let mut magnitude = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
            *byte = sum;
            carry = overflow;
        }
    }
    let mut digits = Vec::new();
    while magnitude.iter().any(|&b| b != 0) {
        let mut remainder = 0_u32;
        for byte in &mut magnitude {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = (value / 10) as u8;
            remainder = value % 10;
        }
        digits.push(char::from(b'0' + remainder as u8));
    }
    if digits.is_empty() {
        digits.push('0');
    } else if negative {
        digits.push('-');
    }
    Some(digits.iter().rev().collect())
}

/// The content of a Name as RFC 4514 text: last RDN first.
fn name_text(schema: &Schema, content: &[u8]) -> Option<String> {
    let mut rdns = Vec::new();
    let mut sequence = Der(content);
    while !sequence.0.is_empty() {
        let mut set = Der(sequence.expect(SET)?);
        let mut avas = Vec::new();
        while !set.0.is_empty() {
            let mut ava = Der(set.expect(SEQUENCE)?);
            let oid = oid_text(ava.expect(OID)?)?;
            let (tag, value) = ava.next()?;
            let attribute = schema.attribute_type(&oid).map_or(oid.as_str(), |attribute| attribute.name());
            let mut text = format!("{attribute}=");
            escape_value(string_value(tag, value)?.as_bytes(), &mut text);
            avas.push(text);
        }
        rdns.push(avas.join("+"));
    }
    rdns.reverse();
    Some(rdns.join(","))
}

/// The ASN.1 string types as text.
fn string_value(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String, VisibleString
        0x0c | 0x12 | 0x13 | 0x16 | 0x1a => String::from_utf8(value.to_vec()).ok(),
        // TeletexString, as everyone writes it: Latin-1.
        0x14 => Some(value.iter().map(|&b| char::from(b)).collect()),
        // BMPString
        0x1e => {
            let units: Vec<u16> = value
                .chunks_exact(2)
                .map(|p| p.iter().fold(0, |unit, &b| (unit << 8) | u16::from(b)))
                .collect();
            String::from_utf16(&units).ok()
        }
        // UniversalString
        0x1c => value
            .chunks_exact(4)
            .map(|p| char::from_u32(p.iter().fold(0, |point, &b| (point << 8) | u32::from(b))))
            .collect(),
        _ => None,
    }
}

fn oid_text(content: &[u8]) -> Option<String> {
    let mut arcs: Vec<u64> = Vec::new();
    let mut arc = 0_u64;
    for &byte in content {
        arc = arc.checked_mul(128)? + u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if arcs.is_empty() {
                let first = (arc / 40).min(2);
                arcs.extend([first, arc - first * 40]);
            } else {
                arcs.push(arc);
            }
            arc = 0;
        }
    }
    let text: Vec<String> = arcs.iter().map(u64::to_string).collect();
    (!text.is_empty()).then(|| text.join("."))
}

fn normal_name(schema: &Schema, text: &str) -> Result<String, InvalidValue> {
    // An issuer may have attributes that no schema here defines: its text then stands for itself.
    match schema.parse_dn(text) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => Dn::parse(text).map(|dn| dn.to_string().to_lowercase()).map_err(|_| InvalidValue),
    }
}

fn pretty_name(schema: &Schema, text: &str) -> Result<String, InvalidValue> {
    let dn = Dn::parse(text).map_err(|_| InvalidValue)?;
    Ok(schema.pretty_dn(&dn).unwrap_or_else(|_| dn.to_string()))
}
