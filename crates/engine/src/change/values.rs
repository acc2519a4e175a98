//! Values under their equality rule: the key that says whether two are the same.

use larix_schema::{AttributeType, InvalidValue, Schema};

/// What two equal values have in common: the normal form under the type's equality rule, or the value itself for a
/// type without one.
pub(crate) fn key(schema: &Schema, kind: &AttributeType, value: &[u8]) -> Result<Vec<u8>, InvalidValue> {
    let Some(rule) = kind.equality else { return Ok(value.to_vec()) };
    let mut out = Vec::with_capacity(value.len());
    rule.normalize_value(schema, value, &mut out)?;
    Ok(out)
}
