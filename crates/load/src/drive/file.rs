//! Workloads from a file: TOML, a table for each step.
//!
//! ```toml
//! count = 100_000          # {n} is one of so many numbers from `first` (1) on
//! order = "zipf"           # random (the default), sequential
//! exponent = 0.99
//! sequence_start = 100_000 # {s} starts after this
//!
//! [[step]]
//! weight = 4
//! search = { base = "dc=example,dc=com", filter = "(uid=user.{n})", attributes = ["cn"] }
//! entries = 1              # what each must give
//!
//! [[step]]
//! modify = { dn = "uid=user.{n},ou=people,dc=example,dc=com", replace = { description = "{digits:12}" } }
//! ```

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::{
    Change, Expect, ModifyOperation, Operation, Order, Scope, SearchTemplate, Step, Targets, Workload,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "one")]
    first: u64,
    count: u64,
    #[serde(default)]
    order: OrderName,
    exponent: Option<f64>,
    sequence_start: Option<u64>,
    step: Vec<StepTable>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderName {
    #[default]
    Random,
    Sequential,
    Zipf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTable {
    name: Option<String>,
    #[serde(default = "one_share")]
    weight: u32,
    /// How many entries each must give.
    entries: Option<u64>,
    /// The result codes that it may have.
    #[serde(default)]
    codes: Vec<u32>,
    search: Option<SearchTable>,
    read: Option<ReadTable>,
    compare: Option<CompareTable>,
    bind: Option<BindTable>,
    modify: Option<ModifyTable>,
    add: Option<AddTable>,
    delete: Option<DeleteTable>,
    rename: Option<RenameTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchTable {
    base: String,
    #[serde(default)]
    scope: ScopeName,
    filter: String,
    #[serde(default)]
    attributes: Vec<String>,
    #[serde(default)]
    size_limit: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScopeName {
    Base,
    One,
    #[default]
    Sub,
    Children,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadTable {
    dn: String,
    #[serde(default)]
    attributes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareTable {
    dn: String,
    attribute: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BindTable {
    dn: String,
    password: String,
    #[serde(default)]
    reconnect: bool,
}

/// Deletions are made first, then additions, then replacements.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModifyTable {
    dn: String,
    #[serde(default)]
    delete: BTreeMap<String, Values>,
    #[serde(default)]
    add: BTreeMap<String, Values>,
    #[serde(default)]
    replace: BTreeMap<String, Values>,
    #[serde(default)]
    increment: BTreeMap<String, Values>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddTable {
    dn: String,
    attributes: BTreeMap<String, Values>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteTable {
    dn: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenameTable {
    dn: String,
    new_rdn: String,
    new_superior: Option<String>,
}

/// One value, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

const fn one() -> u64 {
    1
}

const fn one_share() -> u32 {
    1
}

impl Workload {
    /// Reads a workload from TOML.
    ///
    /// # Errors
    /// What is no TOML, or says what a workload has not, with line and column; a step with no operation or several, by
    /// its number; and what [`Workload::check`] finds.
    pub fn from_toml(text: &str) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text)?;
        let order = match (file.order, file.exponent) {
            (OrderName::Random, None) => Order::Random,
            (OrderName::Sequential, None) => Order::Sequential,
            (OrderName::Zipf, exponent) => Order::Zipf { exponent: exponent.unwrap_or(1.0) },
            (_, Some(exponent)) => bail!("exponent = {exponent} needs order = \"zipf\""),
        };
        let mut steps = Vec::with_capacity(file.step.len());
        for (index, table) in file.step.into_iter().enumerate() {
            steps.push(step(table).with_context(|| format!("step {}", index + 1))?);
        }
        let targets = Targets { first: file.first, count: file.count, order };
        let last = file.first.saturating_add(file.count).saturating_sub(1);
        let workload = Self { steps, targets, sequence_start: file.sequence_start.unwrap_or(last) };
        workload.check()?;
        Ok(workload)
    }
}

fn step(table: StepTable) -> anyhow::Result<Step> {
    let StepTable { name, weight, entries, codes, .. } = table;
    let operations = [
        table.search.map(search),
        table.read.map(|ReadTable { dn, attributes }| Operation::Read { dn, attributes }),
        table.compare.map(|CompareTable { dn, attribute, value }| Operation::Compare {
            dn,
            attribute,
            value,
        }),
        table.bind.map(|BindTable { dn, password, reconnect }| Operation::Bind { dn, password, reconnect }),
        table.modify.map(modify),
        table.add.map(|AddTable { dn, attributes }| Operation::Add { dn, attributes: pairs(attributes) }),
        table.delete.map(|DeleteTable { dn }| Operation::Delete { dn }),
        table.rename.map(|RenameTable { dn, new_rdn, new_superior }| Operation::ModifyDn {
            dn,
            new_rdn,
            new_superior,
        }),
    ];
    let mut operations = operations.into_iter().flatten();
    let operation = operations
        .next()
        .context("no operation: one of search, read, compare, bind, modify, add, delete, rename")?;
    if let Some(second) = operations.next() {
        bail!("two operations, {} and {}: a step has one", operation.name(), second.name());
    }
    let usual = Step::new(weight, operation);
    let expect = Expect { entries: entries.or(usual.expect.entries), codes };
    let name = name.unwrap_or_else(|| usual.name.clone());
    Ok(Step { name, expect, ..usual })
}

fn search(table: SearchTable) -> Operation {
    Operation::Search(SearchTemplate {
        base: table.base,
        scope: match table.scope {
            ScopeName::Base => Scope::Base,
            ScopeName::One => Scope::OneLevel,
            ScopeName::Sub => Scope::Subtree,
            ScopeName::Children => Scope::Children,
        },
        filter: table.filter,
        attributes: table.attributes,
        size_limit: table.size_limit,
    })
}

fn modify(table: ModifyTable) -> Operation {
    let parts = [
        (ModifyOperation::Delete, table.delete),
        (ModifyOperation::Add, table.add),
        (ModifyOperation::Replace, table.replace),
        (ModifyOperation::Increment, table.increment),
    ];
    let changes = parts.into_iter().flat_map(|(operation, attributes)| {
        let each = attributes.into_iter();
        each.map(move |(attribute, values)| Change { operation, attribute, values: values.list() })
    });
    Operation::Modify { dn: table.dn, changes: changes.collect() }
}

fn pairs(attributes: BTreeMap<String, Values>) -> Vec<(String, String)> {
    let each = attributes.into_iter();
    each.flat_map(|(name, values)| values.list().into_iter().map(move |value| (name.clone(), value)))
        .collect()
}

impl Values {
    fn list(self) -> Vec<String> {
        match self {
            Self::One(value) => vec![value],
            Self::Several(values) => values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_everything() {
        let workload = Workload::from_toml(
            r#"
            first = 100
            count = 50
            order = "zipf"
            exponent = 0.8

            [[step]]
            name = "lookup"
            weight = 4
            search = { base = "dc=x", scope = "one", filter = "(uid={n})", attributes = ["cn"], size_limit = 10 }
            entries = 1
            codes = [0, 4]

            [[step]]
            read = { dn = "uid={n},dc=x" }

            [[step]]
            compare = { dn = "uid={n},dc=x", attribute = "cn", value = "a" }

            [[step]]
            bind = { dn = "uid={n},dc=x", password = "p{n}", reconnect = true }

            [[step]]
            modify = { dn = "uid={n},dc=x", delete = { a = [] }, add = { b = ["1", "2"] }, replace = { c = "{hex:4}" } }

            [[step]]
            add = { dn = "uid={s},dc=x", attributes = { uid = "{s}", objectClass = ["top", "account"] } }

            [[step]]
            delete = { dn = "uid={added},dc=x" }

            [[step]]
            weight = 0
            rename = { dn = "uid={n},dc=x", new_rdn = "uid=x{n}", new_superior = "dc=y" }
            "#,
        )
        .unwrap();
        let names: Vec<&str> = workload.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["lookup", "read", "compare", "rebind", "modify", "add", "delete", "modDN"]);
        let order = Order::Zipf { exponent: 0.8 };
        assert_eq!(workload.targets, Targets { first: 100, count: 50, order });
        assert_eq!(
            (workload.sequence_start, workload.steps[0].weight, workload.steps[7].weight),
            (149, 4, 0)
        );
        assert_eq!(workload.steps[0].expect, Expect { entries: Some(1), codes: vec![0, 4] });
        assert_eq!(workload.steps[1].expect.entries, Some(1));
        let Operation::Modify { changes, .. } = &workload.steps[4].operation else { panic!("no modify") };
        let operations: Vec<_> =
            changes.iter().map(|change| (change.operation, change.values.len())).collect();
        assert_eq!(
            operations,
            [(ModifyOperation::Delete, 0), (ModifyOperation::Add, 2), (ModifyOperation::Replace, 1)]
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let check = |text: &str, expected: &[&str]| {
            let error = format!("{:#}", Workload::from_toml(text).unwrap_err());
            assert!(expected.iter().all(|expected| error.contains(expected)), "{text}: {error}");
        };
        let read = "[[step]]\nread = { dn = \"a=b\" }\n";
        check("count = ", &["line 1"]);
        check(read, &["count"]);
        check("count = 1\n[[step]]\nserach = 1\n", &["line 3", "serach", "search"]);
        check("count = 1\n[[step]]\nread = { dnn = \"\" }\n", &["line 3", "dnn"]);
        check("count = 1\n[[step]]\nweight = 1\n", &["step 1", "no operation"]);
        let two = format!("count = 1\n{read}delete = {{ dn = \"a=b\" }}\n");
        check(&two, &["step 1", "two operations, read and delete"]);
        check(&format!("count = 0\n{read}"), &["the range of numbers is empty"]);
        check(&format!("count = 1\nexponent = 1.0\n{read}"), &["needs order"]);
        check(&format!("count = 1\norder = \"sorted\"\n{read}"), &["line 2", "sorted"]);
        check(&format!("count = 1\n{read}weight = 0\n"), &["no operation has a weight"]);
        check(&format!("count = 1\n{read}weight = -1\n"), &["line 4"]);
        check("count = 1\n[[step]]\nsearch = { base = \"\", filter = \"(a\" }\n", &["search", "(a"]);
    }
}
