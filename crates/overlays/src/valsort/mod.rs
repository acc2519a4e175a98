//! The value sorting overlay (slapo-valsort(5)): values of an attribute below a base are answered in an order.

mod config;

use std::cmp::Ordering;

use larix_engine::overlay::computed::StoredEntry;
use larix_engine::overlay::shown::{ShownAttribute, ShownEntries, ShownEntry, ShownRequest};
use larix_engine::overlay::{
    Additions, Descriptor, Failure, InGluedDatabases, Interests, Overlay, OverlayDirective, PendingChange,
    PreparedChange, Refusal,
};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};

pub static DESCRIPTOR: Descriptor = Descriptor::new("valsort", "olcValSortConfig", config::build)
    .over_glue(InGluedDatabases::Each)
    .once()
    .directives(&[OverlayDirective::words("valsort-attr", "olcValSortAttr").many()]);

/// The overlay on one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValSort {
    rules: Vec<Rule>,
}

/// `valsort-attr`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    attribute: AttributeDescription,
    base: NormalDn,
    /// Values begin with a weight in braces, which comes first and is not shown.
    weighted: bool,
    method: Option<Method>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Method {
    numeric: bool,
    descending: bool,
}

impl Overlay for ValSort {
    fn name(&self) -> &'static str {
        "valsort"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE.and(Interests::SHOW)
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        match change.operation {
            PreparedChange::Add { dn, entry, .. } => {
                for rule in self.weighted(dn) {
                    let values = entry.attribute(&rule.attribute).into_iter().flat_map(|a| &a.values);
                    values.into_iter().try_for_each(|value| check(value))?;
                }
            }
            PreparedChange::Modify { dn, mods } => {
                for rule in self.weighted(dn) {
                    let changes = mods.iter().filter(|change| change.description == rule.attribute);
                    changes.flat_map(|change| &change.values).try_for_each(|value| check(value))?;
                }
            }
            _ => {}
        }
        Ok(Additions::default())
    }

    fn shown(&self) -> Option<&dyn ShownEntries> {
        Some(self)
    }
}

impl ValSort {
    /// Rules for weighted values of this entry.
    fn weighted<'a>(&'a self, dn: &'a NormalDn) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(|rule| rule.weighted && dn.is_within(&rule.base))
    }
}

/// Refuses a value without a weight.
fn check(value: &[u8]) -> Result<(), Refusal> {
    let text = match weight(value) {
        Weight::Is(_) => return Ok(()),
        Weight::Missing => "weight missing from attribute",
        Weight::Misformatted => "weight is misformatted",
    };
    Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text).into())
}

impl ShownEntries for ValSort {
    fn orders_values(&self) -> bool {
        true
    }

    fn wants(&self, request: &ShownRequest<'_>) -> bool {
        request.controls.val_sort != Some(true) && !request.types_only && !request.compares
    }

    fn concerns(&self, entry: &dyn StoredEntry, _: &Schema) -> Result<bool, Failure> {
        let dn = entry.dn()?;
        Ok(self.rules.iter().any(|rule| dn.is_within(&rule.base)))
    }

    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure> {
        for rule in &self.rules {
            if !shown.dn()?.is_within(&rule.base) {
                continue;
            }
            let schema = shown.schema;
            if let Some(attribute) = shown.attribute_mut(&rule.attribute) {
                rule.sort(schema, attribute);
            }
        }
        Ok(())
    }
}

/// A value with what it is sorted by.
struct Sorted {
    weight: i64,
    number: i64,
    normal: Vec<u8>,
    value: Box<[u8]>,
}

impl Rule {
    fn sort(&self, schema: &Schema, attribute: &mut ShownAttribute) {
        let mut all = Vec::with_capacity(attribute.values.len());
        for value in &attribute.values {
            let weight = match weight(value) {
                _ if !self.weighted => 0,
                Weight::Is(weight) => weight,
                // As in slapd: one value without a weight leaves all as they are.
                Weight::Missing | Weight::Misformatted => return,
            };
            let mut normal = self.normal(schema, value);
            let mut value = value.clone();
            if self.weighted {
                value = behind_weight(&value).into();
                normal = behind_weight(&normal).to_vec();
            }
            let number = number(&normal).0;
            all.push(Sorted { weight, number, normal, value });
        }
        // Equal values stay in their order.
        all.sort_by(|a, b| a.weight.cmp(&b.weight).then_with(|| self.order(a, b)));
        attribute.values = all.into_iter().map(|sorted| sorted.value).collect();
    }

    fn order(&self, a: &Sorted, b: &Sorted) -> Ordering {
        let Some(method) = self.method else { return Ordering::Equal };
        let order = if method.numeric { a.number.cmp(&b.number) } else { a.normal.cmp(&b.normal) };
        if method.descending { order.reverse() } else { order }
    }

    /// The value in the normal form of the equality rule; as it is where there is none.
    fn normal(&self, schema: &Schema, value: &[u8]) -> Vec<u8> {
        let mut normal = Vec::with_capacity(value.len());
        let rule = schema.attribute(self.attribute.attribute).equality;
        match rule.map(|rule| rule.normalize_text(schema, value, &mut normal)) {
            Some(Ok(())) => normal,
            _ => value.to_vec(),
        }
    }
}

/// What a value says of its weight.
enum Weight {
    Is(i64),
    Missing,
    Misformatted,
}

/// The number behind the first brace of a value.
fn weight(value: &[u8]) -> Weight {
    let Some(at) = value.iter().position(|byte| *byte == b'{') else { return Weight::Missing };
    let (weight, rest) = number(value.get(at + 1..).unwrap_or_default());
    if rest.first() == Some(&b'}') { Weight::Is(weight) } else { Weight::Misformatted }
}

/// What comes behind the weight.
fn behind_weight(value: &[u8]) -> &[u8] {
    let at = value.iter().position(|byte| *byte == b'}');
    at.and_then(|at| value.get(at + 1..)).unwrap_or(value)
}

/// The number that a text begins with, as strtol(3) reads it with base 0, and what follows it. One that is too large is the largest.
fn number(text: &[u8]) -> (i64, &[u8]) {
    let (mut rest, mut negative) = (text.trim_ascii_start(), false);
    if let Some((sign @ (b'-' | b'+'), after)) = rest.split_first() {
        (negative, rest) = (*sign == b'-', after);
    }
    let is_hexadecimal = |text: &[u8]| text.first().is_some_and(u8::is_ascii_hexdigit);
    let (base, digits) = match rest {
        [b'0', b'x' | b'X', after @ ..] if is_hexadecimal(after) => (16, after),
        [b'0', ..] => (8, rest),
        _ => (10, rest),
    };
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(base);
    let length = digits.iter().take_while(is_digit).count();
    let (digits, after) = digits.split_at_checked(length).unwrap_or((digits, &[]));
    if digits.is_empty() {
        return (0, text);
    }
    let digits = digits.iter().filter_map(|byte| char::from(*byte).to_digit(base));
    let magnitude = digits
        .fold(0_i64, |number, digit| number.saturating_mul(i64::from(base)).saturating_add(digit.into()));
    (if negative { -magnitude } else { magnitude }, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_by_strtol() {
        for (text, value, rest) in [
            ("12}", 12, "}"),
            (" -5x", -5, "x"),
            ("+7", 7, ""),
            ("0x1F}", 31, "}"),
            ("017", 15, ""),
            ("0", 0, ""),
            ("0x", 0, "x"),
            ("09", 0, "9"),
            ("x", 0, "x"),
            ("", 0, ""),
            (" }", 0, " }"),
            ("99999999999999999999", i64::MAX, ""),
        ] {
            assert_eq!(number(text.as_bytes()), (value, rest.as_bytes()), "{text}");
        }
    }
}
