//! What is asked: operations with weights, their names and values made from templates.

use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{DerefAliases, FilterBuf, MessageId, ModifyOperation, Scope};

use crate::generate::Random;

/// One kind of request. `{n}` in a template becomes a random number of the workload's range, `{s}` a number that no
/// other request of the run has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    Search {
        base: String,
        filter: String,
    },
    Read {
        dn: String,
    },
    Compare {
        dn: String,
        attribute: String,
        value: String,
    },
    Bind {
        dn: String,
        password: String,
    },
    /// Replaces one attribute's values by a single new one.
    Modify {
        dn: String,
        attribute: String,
        value: String,
    },
    /// Adds an entry; attributes as (description, value), one value each unless a description repeats.
    Add {
        dn: String,
        attributes: Vec<(String, String)>,
    },
}

/// Operations by weight over a range of numbers.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The operations with their weights; a weight of 0 is never chosen.
    pub operations: Vec<(u32, Operation)>,
    /// `{n}` is drawn from `1..=range`.
    pub range: u64,
    /// `{s}` starts after this.
    pub sequence_start: u64,
}

impl Workload {
    /// Appends one request to `out`.
    pub(super) fn append(&self, id: MessageId, sequence: u64, random: &mut Random, out: &mut Vec<u8>) {
        let total: u64 = self.operations.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut draw = random.below(total);
        let mut chosen = None;
        for (weight, operation) in &self.operations {
            if draw < u64::from(*weight) {
                chosen = Some(operation);
                break;
            }
            draw -= u64::from(*weight);
        }
        let number = 1 + random.below(self.range);
        if let Some(operation) = chosen {
            operation.append(id, number, self.sequence_start + sequence, out);
        }
    }
}

impl Operation {
    fn append(&self, id: MessageId, number: u64, sequence: u64, out: &mut Vec<u8>) {
        let fill = |template: &str| fill(template, number, sequence);
        match self {
            Self::Search { base, filter } => {
                append_search(id, &fill(base), Scope::Subtree, &fill(filter), out)
            }
            Self::Read { dn } => append_search(id, &fill(dn), Scope::Base, "(objectClass=*)", out),
            Self::Compare { dn, attribute, value } => {
                client::compare(out, id, &fill(dn), attribute, fill(value).as_bytes(), &[]);
            }
            Self::Bind { dn, password } => {
                client::simple_bind(out, id, &fill(dn), fill(password).as_bytes(), &[]);
            }
            Self::Modify { dn, attribute, value } => {
                let value = fill(value);
                let attribute = ClientAttribute { description: attribute, values: &[value.as_str()] };
                let changes = [ClientChange { operation: ModifyOperation::Replace, attribute }];
                client::modify(out, id, &fill(dn), &changes, &[]);
            }
            Self::Add { dn, attributes } => append_add(id, &fill(dn), attributes, fill, out),
        }
    }
}

fn append_search(id: MessageId, base: &str, scope: Scope, filter: &str, out: &mut Vec<u8>) {
    // A template that is no filter is refused before the run starts; see `Workload::check`.
    let Ok(filter) = FilterBuf::parse(filter) else { return };
    let request = client::Search {
        base,
        scope,
        deref: DerefAliases::Never,
        size_limit: 0,
        time_limit: 0,
        types_only: false,
        filter: filter.as_filter(),
        attributes: &[],
    };
    client::search(out, id, &request, &[]);
}

fn append_add(
    id: MessageId,
    dn: &str,
    attributes: &[(String, String)],
    fill: impl Fn(&str) -> String,
    out: &mut Vec<u8>,
) {
    let mut filled: Vec<(&str, Vec<String>)> = Vec::with_capacity(attributes.len());
    for (description, value) in attributes {
        match filled.iter_mut().find(|(known, _)| known == description) {
            Some((_, values)) => values.push(fill(value)),
            None => filled.push((description, vec![fill(value)])),
        }
    }
    let list: Vec<ClientAttribute<'_, String>> =
        filled.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
    client::add(out, id, dn, &list, &[]);
}

impl Workload {
    /// Whether every template can be sent.
    ///
    /// # Errors
    /// No operation with a weight, an empty range, or a filter template that is no filter.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.range > 0, "the range of numbers is empty");
        anyhow::ensure!(self.operations.iter().any(|(weight, _)| *weight > 0), "no operation has a weight");
        for (_, operation) in &self.operations {
            if let Operation::Search { filter, .. } = operation {
                FilterBuf::parse(&fill(filter, 1, 1))
                    .map_err(|error| anyhow::anyhow!("filter template {filter:?}: {error}"))?;
            }
        }
        Ok(())
    }
}

/// The template with its numbers in place.
fn fill(template: &str, number: u64, sequence: u64) -> String {
    if !template.contains('{') {
        return template.to_owned();
    }
    template.replace("{n}", &number.to_string()).replace("{s}", &sequence.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        for (template, expected) in [("plain", "plain"), ("user.{n}@x", "user.7@x"), ("{s}-{n}", "9-7")] {
            assert_eq!(fill(template, 7, 9), expected);
        }
    }

    #[test]
    fn a_bad_filter_is_named_before_the_run() {
        let operation = Operation::Search { base: String::new(), filter: "(a={n}".into() };
        let workload = Workload { operations: vec![(1, operation)], range: 1, sequence_start: 0 };
        assert!(workload.check().unwrap_err().to_string().contains("(a={n}"));
    }
}
