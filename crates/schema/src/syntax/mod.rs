//! Syntaxes: which octet strings are values, and how they are written prettily (RFC 4517 §3, and OpenLDAP's own).

mod aci;
mod guide;
mod text;
mod x509;

use std::borrow::Cow;

use larix_proto::ber::is_text;

use crate::dn::{parse_name_and_uid, pretty_dn_text, pretty_rdn_text};
use crate::error::InvalidValue;
use crate::lexical::{is_bit_string, is_oid};
use crate::schema::Schema;
use crate::syntaxes::{Syntax, SyntaxKind};
use crate::{csn, time};

pub(crate) use aci::canonical as canonical_aci;
pub(crate) use text::{is_uuid, normal_authz};
pub(crate) use x509::{
    attribute_certificate_issuer_and_serial, certificate_issuer_and_serial, issuer_and_this_update,
    list_issuer_and_this_update, serial_and_issuer, serial_and_issuer_serial,
};

impl Syntax {
    /// Checks one value.
    pub fn validate(&self, schema: &Schema, value: &[u8]) -> Result<(), InvalidValue> {
        let valid = match self.kind {
            SyntaxKind::AttributeCertificate => x509::is_attribute_certificate(value),
            SyntaxKind::Ber => value.len() >= 2,
            SyntaxKind::BitString => is_bit_string(value),
            SyntaxKind::Boolean => matches!(value, b"TRUE" | b"FALSE"),
            SyntaxKind::BootParameter => text::is_boot_parameter(value),
            SyntaxKind::Certificate => x509::is_certificate(value),
            SyntaxKind::CertificateList => x509::is_certificate_list(value),
            SyntaxKind::CountryString => value.len() == 2 && text::is_printable(value),
            SyntaxKind::Csn => csn::is_csn(value),
            SyntaxKind::CsnSid => csn::is_sid(value),
            SyntaxKind::Definition => guide::is_definition(value),
            SyntaxKind::EnhancedGuide => guide::is_enhanced_guide(value),
            SyntaxKind::Guide => guide::is_guide(value),
            SyntaxKind::SubstringAssertion => guide::is_substring_assertion(value),
            SyntaxKind::TeletexTerminalIdentifier => guide::is_teletex_terminal(value),
            SyntaxKind::DeliveryMethod => text::is_delivery_method(value),
            SyntaxKind::DirectoryString => !value.is_empty() && is_text(value),
            SyntaxKind::GeneralizedTime => time::GeneralizedTime::parse(value).is_some(),
            SyntaxKind::Ia5String => value.is_ascii(),
            SyntaxKind::Integer => text::is_integer(value),
            SyntaxKind::NetgroupTriple => text::is_netgroup_triple(value),
            SyntaxKind::Nothing | SyntaxKind::Unchecked => false,
            SyntaxKind::NumericString => text::is_numeric(value),
            SyntaxKind::OctetString => true,
            SyntaxKind::Oid => is_oid(value),
            SyntaxKind::PostalAddress => text::is_postal_address(value),
            SyntaxKind::PrintableString => text::is_printable(value),
            SyntaxKind::PrintableStrings => text::is_printables(value),
            SyntaxKind::PrivateKey => x509::is_private_key(value),
            SyntaxKind::Sequence => x509::is_sequence(value),
            SyntaxKind::UtcTime => time::is_utc_time(value),
            SyntaxKind::Utf8String => is_text(value),
            SyntaxKind::Uuid => is_uuid(value),
            SyntaxKind::Aci
            | SyntaxKind::AttributeCertificateExactAssertion
            | SyntaxKind::Authz
            | SyntaxKind::CertificateExactAssertion
            | SyntaxKind::CertificateListExactAssertion
            | SyntaxKind::DistinguishedName
            | SyntaxKind::NameAndOptionalUid
            | SyntaxKind::ObjectClassName
            | SyntaxKind::Rdn => return self.pretty(schema, value).map(|_| ()),
        };
        if valid { Ok(()) } else { Err(InvalidValue) }
    }

    /// Checks one value and gives it as it is stored and returned: DNs with canonical attribute names and escapes,
    /// UUIDs in lower case, object classes by their first name; everything else as it came.
    pub fn pretty<'v>(&self, schema: &Schema, value: &'v [u8]) -> Result<Cow<'v, [u8]>, InvalidValue> {
        let text = |value: &'v [u8]| std::str::from_utf8(value).map_err(|_| InvalidValue);
        let owned = match self.kind {
            SyntaxKind::DistinguishedName => pretty_dn_text(schema, text(value)?)?,
            SyntaxKind::Rdn => pretty_rdn_text(schema, text(value)?)?,
            SyntaxKind::NameAndOptionalUid => {
                let (name, uid) = parse_name_and_uid(text(value)?);
                let mut pretty = pretty_dn_text(schema, name)?;
                if let Some(uid) = uid {
                    pretty.push('#');
                    pretty.push_str(uid);
                }
                pretty
            }
            SyntaxKind::ObjectClassName => {
                let class = schema.object_class(text(value)?).ok_or(InvalidValue)?;
                if class.name().as_bytes() == value {
                    return Ok(Cow::Borrowed(value));
                }
                class.name().to_owned()
            }
            SyntaxKind::Uuid if is_uuid(value) => text(value)?.to_ascii_lowercase(),
            SyntaxKind::Csn => csn::normalize(value).ok_or(InvalidValue)?,
            SyntaxKind::CsnSid if csn::is_sid(value) => text(value)?.to_ascii_lowercase(),
            SyntaxKind::Aci => aci::canonical(schema, text(value)?, |dn| pretty_dn_text(schema, dn))?,
            SyntaxKind::Authz => text::pretty_authz(schema, text(value)?)?,
            SyntaxKind::CertificateExactAssertion => serial_and_issuer(schema, value, false)?,
            SyntaxKind::CertificateListExactAssertion => issuer_and_this_update(schema, value, false)?,
            SyntaxKind::AttributeCertificateExactAssertion => serial_and_issuer_serial(schema, value, false)?,
            _ => {
                self.validate(schema, value)?;
                return Ok(Cow::Borrowed(value));
            }
        };
        Ok(if owned.as_bytes() == value { Cow::Borrowed(value) } else { Cow::Owned(owned.into_bytes()) })
    }
}

#[cfg(test)]
mod tests;
