//! Values that carry their place: `{n}` before each value of an X-ORDERED attribute.

use std::collections::HashMap;

use larix_engine::overlay::{Change, ChangeKind};
use larix_proto::ResultCode;
use larix_schema::{AttributeType, Schema};

use super::ConfigRefusal;
use larix_backend::memory_tree::ordered_parts;

/// The value without its number.
pub(super) fn bare(value: &[u8]) -> &[u8] {
    ordered_parts(value).map_or(value, |(_, rest)| rest)
}

/// Below 0 in a value that has no place yet.
fn number_of(value: &[u8]) -> Option<i64> {
    let (number, _) = ordered_parts(value)?;
    std::str::from_utf8(number.get(1..number.len() - 1)?).ok()?.parse().ok()
}

/// Numbers the values from 0 in the order in which they stand.
fn renumber(values: &mut [Vec<u8>]) {
    for (place, value) in values.iter_mut().enumerate() {
        let expected = place.to_string();
        if ordered_parts(value)
            .is_some_and(|(number, _)| number.get(1..number.len() - 1) == Some(expected.as_bytes()))
        {
            continue;
        }
        let mut numbered = format!("{{{place}}}").into_bytes();
        numbered.extend_from_slice(bare(value));
        *value = numbered;
    }
}

/// The values of an entry that is added: all with a number, which then sorts them, or none.
pub(super) fn settle(name: &str, values: &mut [Vec<u8>]) -> Result<(), ConfigRefusal> {
    let numbered = values.iter().filter(|value| ordered_parts(value).is_some()).count();
    if numbered != 0 && numbered != values.len() {
        let text = format!("{name}: either every value has its {{n}}, or none has");
        return Err(ConfigRefusal::new(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text));
    }
    values.sort_by_key(|value| number_of(value).unwrap_or(0));
    renumber(values);
    Ok(())
}

/// One modification of an X-ORDERED attribute.
pub(super) struct OrderedChange<'a> {
    pub(super) schema: &'a Schema,
    pub(super) kind: &'a AttributeType,
    pub(super) name: &'a str,
    pub(super) change: &'a Change,
    pub(super) permissive: bool,
}

impl OrderedChange<'_> {
    /// The values as the modification leaves them; empty: the attribute goes.
    ///
    /// # Errors
    /// noSuchAttribute, attributeOrValueExists, inappropriateMatching.
    pub(super) fn apply(&self, present: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ConfigRefusal> {
        let mut values = present.to_vec();
        match self.change.kind {
            ChangeKind::Add | ChangeKind::SoftAdd => self.add(&mut values, "add")?,
            ChangeKind::Replace => {
                values.clear();
                self.add(&mut values, "replace")?;
            }
            ChangeKind::Delete if self.change.values.is_empty() => {
                if values.is_empty() && !self.permissive {
                    return Err(self.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "delete", "no such attribute"));
                }
                values.clear();
            }
            ChangeKind::Delete => self.delete(&mut values)?,
            ChangeKind::Increment => {
                return Err(self.refuse(
                    ResultCode::CONSTRAINT_VIOLATION,
                    "increment",
                    "values with a place are no numbers",
                ));
            }
        }
        renumber(&mut values);
        Ok(values)
    }

    fn refuse(&self, code: ResultCode, operation: &str, text: &str) -> ConfigRefusal {
        ConfigRefusal::new(code, format!("modify/{operation}: {}: {text}", self.name))
    }

    fn add(&self, values: &mut Vec<Vec<u8>>, operation: &str) -> Result<(), ConfigRefusal> {
        let mut present: HashMap<Vec<u8>, Vec<Option<&[u8]>>> = HashMap::with_capacity(values.len());
        for value in &*values {
            let number = ordered_parts(value).map(|(number, _)| number);
            present.entry(self.key(bare(value))).or_default().push(number);
        }
        let mut new = Vec::with_capacity(self.change.values.len());
        for (position, value) in self.change.values.iter().enumerate() {
            if bare(value).is_empty() {
                let text = format!("value #{position} has a number and nothing behind it");
                return Err(self.refuse(ResultCode::INVALID_ATTRIBUTE_SYNTAX, operation, &text));
            }
            let asserted_number = ordered_parts(value).map(|(number, _)| number);
            let numbers = present.entry(self.key(bare(value))).or_default();
            let is_there = numbers
                .iter()
                .any(|number| asserted_number.is_none() || number.is_none() || asserted_number == *number);
            if !is_there {
                numbers.push(asserted_number);
                new.push(value);
            } else if !self.permissive {
                let text = format!("value #{position} already exists");
                return Err(self.refuse(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, operation, &text));
            }
        }
        drop(present);
        for value in new {
            // A number beyond the end or below 0 is the end.
            let number = number_of(value).and_then(|number| usize::try_from(number).ok());
            let place = number.unwrap_or(usize::MAX).min(values.len());
            values.insert(place, value.clone());
        }
        Ok(())
    }

    fn delete(&self, values: &mut Vec<Vec<u8>>) -> Result<(), ConfigRefusal> {
        if values.is_empty() {
            return match self.permissive {
                true => Ok(()),
                false => Err(self.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "delete", "no such attribute")),
            };
        }
        let mut doomed = Vec::with_capacity(self.change.values.len());
        for value in &self.change.values {
            match values.iter().position(|present| self.is_meant(present, value)) {
                Some(place) => doomed.push(place),
                None if self.permissive => {}
                None => return Err(self.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "delete", "no such value")),
            }
        }
        let mut place = 0;
        values.retain(|_| {
            place += 1;
            !doomed.contains(&(place - 1))
        });
        Ok(())
    }

    /// Whether `asserted` means the stored value: by its number, by what stands behind it, or by both.
    fn is_meant(&self, stored: &[u8], asserted: &[u8]) -> bool {
        if let (Some((asserted_number, rest)), Some((number, _))) =
            (ordered_parts(asserted), ordered_parts(stored))
        {
            if asserted_number != number {
                return false;
            }
            if rest.is_empty() {
                return true;
            }
        }
        self.key(bare(stored)) == self.key(bare(asserted))
    }

    fn key(&self, value: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        match self.kind.equality.map(|rule| rule.normalize_value(self.schema, value, &mut key)) {
            Some(Ok(())) => key,
            _ => value.to_vec(),
        }
    }
}
