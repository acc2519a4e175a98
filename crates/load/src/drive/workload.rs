//! What is asked: steps with weights, their names and values made from templates.

use anyhow::Context;
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{FilterBuf, MessageId, ModifyOperation, ResultCode, Scope};

use super::placeholder::{Encode, Fill, MESSAGE_ID_MIN};
use super::requests::Requests;
use super::targets::Targets;

/// One kind of request. Every text is a template:
///
/// | placeholder | becomes |
/// |---|---|
/// | `{n}` | a number of the workload's [`Targets`] |
/// | `{n:9}` | the same with leading zeros to nine digits |
/// | `{s}`, `{s:9}` | a number that no other request of the run has, ascending |
/// | `{added}` | the `{s}` of an add of this run that succeeded and was not taken yet; an add is made while there is none |
/// | `{digits:8}`, `{letters:8}`, `{hex:8}` | so many random characters |
/// | `{{` | an opening brace |
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    Search(SearchTemplate),
    /// A search of scope base with `(objectClass=*)`.
    Read {
        dn: String,
        /// None is all user attributes.
        attributes: Vec<String>,
    },
    Compare {
        dn: String,
        attribute: String,
        value: String,
    },
    /// A simple bind.
    Bind {
        dn: String,
        password: String,
        /// On a new connection each time: connecting, the TLS handshake if there is one, and the bind are measured.
        reconnect: bool,
    },
    Modify {
        dn: String,
        changes: Vec<Change>,
    },
    /// Adds an entry; attributes as (description, value), one value each unless a description repeats.
    Add {
        dn: String,
        attributes: Vec<(String, String)>,
    },
    Delete {
        dn: String,
    },
    /// Renames, moves, or both. Each is followed by the way back, so that it can go on for ever; its targets are taken
    /// in sequence, whatever the workload's order.
    ModifyDn {
        dn: String,
        new_rdn: String,
        new_superior: Option<String>,
    },
}

/// What a search asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SearchTemplate {
    pub base: String,
    pub scope: Scope,
    pub filter: String,
    /// None is all user attributes.
    pub attributes: Vec<String>,
    /// Entries; 0 is no limit. A search with a limit may end with sizeLimitExceeded (4).
    pub size_limit: u32,
}

/// One change of a modify.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    pub operation: ModifyOperation,
    pub attribute: String,
    pub values: Vec<String>,
}

/// What the answer must be for the measurement to be valid.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Expect {
    /// How many entries a search that succeeds gives; none does not count them.
    pub entries: Option<u64>,
    /// The result codes; empty are those of the operation's success.
    pub codes: Vec<u32>,
}

/// One kind of request with its share of the whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// A weight of 0 is never chosen.
    pub weight: u32,
    /// As reports call it.
    pub name: String,
    pub operation: Operation,
    pub expect: Expect,
}

/// Steps by weight over a range of numbers.
#[derive(Clone, Debug)]
pub struct Workload {
    pub steps: Vec<Step>,
    /// What `{n}` is drawn from.
    pub targets: Targets,
    /// `{s}` starts after this.
    pub sequence_start: u64,
}

impl Operation {
    /// A search below `base` for all user attributes, without limits.
    pub fn search(base: impl Into<String>, filter: impl Into<String>) -> Self {
        Self::Search(SearchTemplate {
            base: base.into(),
            scope: Scope::Subtree,
            filter: filter.into(),
            attributes: Vec::new(),
            size_limit: 0,
        })
    }

    /// A search of one entry by its name, for all user attributes.
    pub fn read(dn: impl Into<String>) -> Self {
        Self::Read { dn: dn.into(), attributes: Vec::new() }
    }

    /// A modify that replaces one attribute's values by a single new one.
    pub fn replace(dn: impl Into<String>, attribute: impl Into<String>, value: impl Into<String>) -> Self {
        let change = Change {
            operation: ModifyOperation::Replace,
            attribute: attribute.into(),
            values: vec![value.into()],
        };
        Self::Modify { dn: dn.into(), changes: vec![change] }
    }

    /// What reports call it: the RFC's word for the operation.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Search(_) => "search",
            Self::Read { .. } => "read",
            Self::Compare { .. } => "compare",
            Self::Bind { reconnect: false, .. } => "bind",
            Self::Bind { reconnect: true, .. } => "rebind",
            Self::Modify { .. } => "modify",
            Self::Add { .. } => "add",
            Self::Delete { .. } => "delete",
            Self::ModifyDn { .. } => "modDN",
        }
    }

    /// The way back of a rename.
    ///
    /// # Errors
    /// A name without a parent.
    pub(super) fn back(&self) -> anyhow::Result<Option<Self>> {
        let Self::ModifyDn { dn, new_rdn, new_superior } = self else { return Ok(None) };
        let (rdn, parent) =
            split_rdn(dn).with_context(|| format!("{dn:?} has no parent: it cannot be renamed back"))?;
        let superior = new_superior.as_deref().unwrap_or(parent);
        Ok(Some(Self::ModifyDn {
            dn: format!("{new_rdn},{superior}"),
            new_rdn: rdn.to_owned(),
            new_superior: new_superior.is_some().then(|| parent.to_owned()),
        }))
    }

    /// The result codes that are this operation's success.
    pub(super) fn success_codes(&self) -> &'static [u32] {
        const LIMITED: [u32; 2] = [ResultCode::SUCCESS.0, ResultCode::SIZE_LIMIT_EXCEEDED.0];
        const COMPARED: [u32; 2] = [ResultCode::COMPARE_TRUE.0, ResultCode::COMPARE_FALSE.0];
        match self {
            Self::Search(SearchTemplate { size_limit: 1.., .. }) => &LIMITED,
            Self::Compare { .. } => &COMPARED,
            _ => &[ResultCode::SUCCESS.0],
        }
    }

    /// What an answer is unless the workload says otherwise: success, and of a read one entry.
    fn usual(&self) -> Expect {
        let entries = matches!(self, Self::Read { .. }).then_some(1);
        Expect { entries, codes: Vec::new() }
    }
}

impl Step {
    /// A step with its operation's name and what is usually expected.
    pub fn new(weight: u32, operation: Operation) -> Self {
        Self { weight, name: operation.name().to_owned(), expect: operation.usual(), operation }
    }

    /// The step under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The step with a number of entries that each search must give.
    #[must_use]
    pub fn expecting(mut self, entries: u64) -> Self {
        self.expect.entries = Some(entries);
        self
    }
}

impl Workload {
    /// No steps yet, `{n}` random in `1..=range`, `{s}` after `range`.
    pub const fn new(range: u64) -> Self {
        Self { steps: Vec::new(), targets: Targets::random(range), sequence_start: range }
    }

    /// The workload with one more step.
    #[must_use]
    pub fn with(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Whether every request can be made.
    ///
    /// # Errors
    /// No step with a weight, an empty range, an exponent that is none, a template that cannot be read, a filter that
    /// is none, `{added}` without an add: with the step's name and the text.
    pub fn check(&self) -> anyhow::Result<()> {
        Requests::new(self, 0, 1).map(drop)
    }
}

impl Encode for Operation {
    fn encode(&self, fill: &mut Fill<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let id = MessageId(MESSAGE_ID_MIN);
        match self {
            Self::Search(search) => append_search(id, search, fill, out)?,
            Self::Read { dn, attributes } => {
                let read = SearchTemplate {
                    base: dn.clone(),
                    scope: Scope::Base,
                    filter: "(objectClass=*)".into(),
                    attributes: attributes.clone(),
                    size_limit: 0,
                };
                append_search(id, &read, fill, out)?;
            }
            Self::Compare { dn, attribute, value } => {
                client::compare(out, id, &fill(dn)?, attribute, fill(value)?.as_bytes(), &[]);
            }
            Self::Bind { dn, password, .. } => {
                client::simple_bind(out, id, &fill(dn)?, fill(password)?.as_bytes(), &[]);
            }
            Self::Modify { dn, changes } => append_modify(id, &fill(dn)?, changes, fill, out)?,
            Self::Add { dn, attributes } => append_add(id, &fill(dn)?, attributes, fill, out)?,
            Self::Delete { dn } => client::delete(out, id, &fill(dn)?, &[]),
            Self::ModifyDn { dn, new_rdn, new_superior } => {
                let (dn, new_rdn) = (fill(dn)?, fill(new_rdn)?);
                let superior = new_superior.as_deref().map(fill).transpose()?;
                client::modify_dn(out, id, &dn, &new_rdn, true, superior.as_deref(), &[]);
            }
        }
        Ok(())
    }
}

/// A name's first RDN and what follows its comma.
fn split_rdn(dn: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let comma = dn.find(|c| {
        let found = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        found
    })?;
    Some((dn.get(..comma)?, dn.get(comma + 1..)?))
}

fn append_search(
    id: MessageId,
    search: &SearchTemplate,
    fill: &mut Fill<'_>,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let text = fill(&search.filter)?;
    let filter = FilterBuf::parse(&text)
        .map_err(|error| anyhow::anyhow!("filter template {:?}: {error}", search.filter))?;
    let attributes: Vec<&str> = search.attributes.iter().map(String::as_str).collect();
    let base = fill(&search.base)?;
    let request = client::Search {
        size_limit: search.size_limit,
        attributes: &attributes,
        ..client::Search::new(&base, search.scope, filter.as_filter())
    };
    client::search(out, id, &request, &[]);
    Ok(())
}

fn append_modify(
    id: MessageId,
    dn: &str,
    changes: &[Change],
    fill: &mut Fill<'_>,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let mut filled: Vec<Vec<String>> = Vec::with_capacity(changes.len());
    for change in changes {
        filled.push(change.values.iter().map(|value| fill(value)).collect::<Result<_, _>>()?);
    }
    let list: Vec<ClientChange<'_, String>> = changes
        .iter()
        .zip(&filled)
        .map(|(change, values)| ClientChange {
            operation: change.operation,
            attribute: ClientAttribute { description: &change.attribute, values },
        })
        .collect();
    client::modify(out, id, dn, &list, &[]);
    Ok(())
}

fn append_add(
    id: MessageId,
    dn: &str,
    attributes: &[(String, String)],
    fill: &mut Fill<'_>,
    out: &mut Vec<u8>,
) -> anyhow::Result<()> {
    let mut filled: Vec<(&str, Vec<String>)> = Vec::with_capacity(attributes.len());
    for (description, value) in attributes {
        let value = fill(value)?;
        match filled.iter_mut().find(|(known, _)| known == description) {
            Some((_, values)) => values.push(value),
            None => filled.push((description, vec![value])),
        }
    }
    let list: Vec<ClientAttribute<'_, String>> =
        filled.iter().map(|(description, values)| ClientAttribute { description, values }).collect();
    client::add(out, id, dn, &list, &[]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Order;

    #[test]
    fn what_cannot_be_asked_is_named_before_the_run() {
        let check = |change: &dyn Fn(&mut Workload), expected: &str| {
            let mut workload = Workload::new(10).with(Step::new(1, Operation::read("uid={n}")));
            change(&mut workload);
            let error = format!("{:#}", workload.check().unwrap_err());
            assert!(error.contains(expected), "{error}");
        };
        let step = |operation: Operation| {
            move |workload: &mut Workload| {
                workload.steps.push(Step::new(1, operation.clone()));
            }
        };
        check(&|workload| workload.steps.clear(), "no operation has a weight");
        check(&|workload| workload.steps[0].weight = 0, "no operation has a weight");
        check(&|workload| workload.targets.count = 0, "the range of numbers is empty");
        check(&|workload| workload.targets.order = Order::Zipf { exponent: 0.0 }, "exponent 0");
        check(&step(Operation::search("", "(a={n}")), "search: filter template \"(a={n}\"");
        check(&step(Operation::read("uid={m}")), "read: no placeholder is called {m}");
        check(&step(Operation::Delete { dn: "uid={added}".into() }), "{added} needs an add");
        let renamed =
            Operation::ModifyDn { dn: "dc=com".into(), new_rdn: "dc=org".into(), new_superior: None };
        check(&step(renamed), "\"dc=com\" has no parent");
    }
}
