//! Server-side sorting (RFC 2891).
//!
//! Each entry gets one key in whose byte order the answer comes: for each sort key the least value as its ordering rule
//! normalizes it, escaped and terminated; an entry without a value sorts last, with a reversed key first.

use larix_proto::ResultCode;
use larix_schema::{MatchingRule, Schema};

use larix_store::Snapshot;

use super::cookie::SORT_KEY_LIMIT;
use super::entry::GuardedEntry;
use super::selection::Computed;
use crate::catalog::{Catalog, CoveredOnce};
use crate::controls;
use crate::entry::Target;
use crate::fault::Fault;
use crate::filter::value_steps;

const PRESENT: u8 = 0;
const ABSENT: u8 = 1;

#[derive(Clone, Debug)]
struct Key {
    target: Target,
    rule: &'static MatchingRule,
    reverse: bool,
}

/// The order that a client asked for.
#[derive(Clone, Debug)]
pub struct Order {
    keys: Vec<Key>,
}

/// Why it cannot be had: the code and attribute of the response control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortFault {
    pub code: ResultCode,
    pub attribute: String,
}

impl Order {
    pub fn new(
        schema: &Schema,
        catalog: &Catalog,
        sort_keys: &[controls::SortKey],
    ) -> Result<Self, SortFault> {
        let mut keys = Vec::with_capacity(sort_keys.len());
        for key in sort_keys {
            let fault = |code| SortFault { code, attribute: key.attribute.clone() };
            let description =
                schema.describe(&key.attribute).map_err(|_| fault(ResultCode::NO_SUCH_ATTRIBUTE))?;
            let attribute = schema.attribute(description.attribute);
            // What is computed when it is answered is in no entry to sort by.
            if Computed::ALL.into_iter().any(|computed| computed.name() == attribute.name()) {
                return Err(fault(ResultCode::INAPPROPRIATE_MATCHING));
            }
            let rule = match &key.rule {
                None => attribute.ordering.or(attribute.equality),
                Some(name) => schema.matching_rule(name).filter(|rule| rule.is_usable_with(attribute)),
            };
            let rule = rule.ok_or_else(|| fault(ResultCode::INAPPROPRIATE_MATCHING))?;
            let target = Target::new(schema, catalog, description);
            keys.push(Key { target, rule, reverse: key.reverse });
        }
        Ok(Self { keys })
    }

    /// Where a value of the first key stands among keys of entries: the first entry that it comes not behind is the first
    /// whose key is not less. `None` for a value that the key's rule does not take.
    pub fn assertion_key(&self, schema: &Schema, value: &[u8]) -> Option<Vec<u8>> {
        let first = self.keys.first()?;
        let mut normal = Vec::new();
        first.rule.normalize_value(schema, value, &mut normal).ok()?;
        let mut out = Vec::with_capacity(cut(&normal).len() + 3);
        put(&mut out, cut(&normal));
        if first.reverse {
            out.iter_mut().for_each(|byte| *byte = !*byte);
        }
        out.truncate(SORT_KEY_LIMIT);
        Some(out)
    }

    pub fn renumber(&mut self, schema: &Schema, catalog: &Catalog) {
        let mut covered = CoveredOnce::new(schema, catalog);
        self.keys.iter_mut().for_each(|key| key.target.renumber(&mut covered));
    }

    /// The key in whose byte order the entry comes. What the subject may not read is as if it were absent: an order tells
    /// much about what it is made from.
    pub fn key<N: Snapshot>(&self, schema: &Schema, seen: &GuardedEntry<'_, N>) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        let (mut normal, mut spent) = (Vec::new(), false);
        for key in &self.keys {
            // What comes behind is cut off anyway.
            if out.len() >= SORT_KEY_LIMIT {
                break;
            }
            let mut least: Option<Vec<u8>> = None;
            seen.visit_readable(&key.target, &mut |value| {
                spent = !seen.meter().take(value_steps(value));
                normal.clear();
                if key.rule.normalize_value(schema, value, &mut normal).is_ok()
                    && least.as_ref().is_none_or(|least| normal < *least)
                {
                    match &mut least {
                        Some(least) => std::mem::swap(least, &mut normal),
                        None => least = Some(std::mem::take(&mut normal)),
                    }
                }
                !spent
            })?;
            if spent {
                return Err(Fault::StepsSpent);
            }
            let start = out.len();
            match least {
                None => out.push(ABSENT),
                Some(value) => put(&mut out, cut(&value)),
            }
            if key.reverse {
                out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
            }
        }
        out.truncate(SORT_KEY_LIMIT);
        out.shrink_to_fit();
        Ok(out)
    }
}

/// The part of a normalized value that can have a place in a key.
fn cut(value: &[u8]) -> &[u8] {
    value.get(..SORT_KEY_LIMIT).unwrap_or(value)
}

fn put(out: &mut Vec<u8>, value: &[u8]) {
    out.push(PRESENT);
    for byte in value {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}
