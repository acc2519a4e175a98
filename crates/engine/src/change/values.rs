//! Values under their equality rule: the key that says whether two are the same, and whether one can be read at all.

use larix_proto::ber::is_text;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, AttributeType, InvalidValue, Schema, SyntaxKind};

/// Whether a value is text, a DN, a time, a UUID or a CSN where its syntax wants one: clients and replicas could not read it
/// otherwise. A value that is not of its syntax may have a normal form all the same: CSNs of older servers do. Values of other syntaxes
/// are not looked at.
pub(crate) fn is_readable(schema: &Schema, kind: &AttributeType, value: &[u8]) -> bool {
    match kind.syntax.kind {
        SyntaxKind::DirectoryString => is_text(value),
        SyntaxKind::DistinguishedName | SyntaxKind::GeneralizedTime | SyntaxKind::Uuid | SyntaxKind::Csn => {
            kind.syntax.validate(schema, value).is_ok()
                || kind
                    .equality
                    .is_none_or(|rule| rule.normalize_value(schema, value, &mut Vec::new()).is_ok())
        }
        _ => true,
    }
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

/// What two equal values have in common: the normal form under the type's equality rule, or the value itself for a
/// type without one.
pub(crate) fn key(schema: &Schema, kind: &AttributeType, value: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let Some(rule) = kind.equality else { return Ok(value.to_vec()) };
    let mut out = Vec::with_capacity(value.len());
    rule.normalize_value(schema, value, &mut out)?;
    Ok(out)
}
