//! `suffixmassage`: the provider's names under another suffix here.

use std::sync::Arc;

use larix_engine::write::AttributeValues;
use larix_proto::Dn;
use larix_schema::{NormalDn, Schema};

const DN_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.12";

/// Names below one DN become names below another.
#[derive(Clone, Debug)]
pub struct Massage {
    schema: Arc<Schema>,
    from: NormalDn,
    to: String,
}

impl Massage {
    /// `to` has the form for output.
    pub fn new(schema: Arc<Schema>, from: NormalDn, to: &str) -> Self {
        Self { schema, from, to: to.to_owned() }
    }

    /// None: not below the provider's suffix, or no DN.
    pub fn dn(&self, text: &str) -> Option<String> {
        let dn = Dn::parse(text).ok()?;
        let normal = self.schema.normalize_dn(&dn).ok()?;
        if !normal.is_within(&self.from) {
            return None;
        }
        let kept = normal.depth() - self.from.depth();
        let mut parts: Vec<String> = dn.rdns().iter().take(kept).map(ToString::to_string).collect();
        if !self.to.is_empty() {
            parts.push(self.to.clone());
        }
        Some(parts.join(","))
    }

    /// Whether an entry of this name is neither at or below the provider's suffix nor above it.
    pub(crate) fn is_apart(&self, text: &str) -> bool {
        let named = self.schema.parse_dn(text);
        named.is_ok_and(|named| !(named.is_within(&self.from) || self.from.is_within(&named)))
    }

    /// Whether an entry of this name is above the provider's suffix.
    pub(crate) fn is_above(&self, text: &str) -> bool {
        self.schema.parse_dn(text).is_ok_and(|named| named != self.from && self.from.is_within(&named))
    }

    /// Values that are names go along; names of elsewhere stay.
    pub(crate) fn values(&self, attribute: &mut AttributeValues) {
        let Ok(description) = self.schema.describe(&attribute.description) else { return };
        if self.schema.attribute(description.attribute).syntax.oid != DN_SYNTAX {
            return;
        }
        for value in &mut attribute.values {
            let massaged = std::str::from_utf8(value).ok().and_then(|text| self.dn(text));
            if let Some(massaged) = massaged {
                *value = massaged.into_bytes();
            }
        }
    }
}
