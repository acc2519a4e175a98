//! The few things that can be changed under cn=Monitor, as in OpenLDAP: log levels, whether a database is only read, and whether a
//! connection of the balancer closes.
//! A change lasts until the server ends or its configuration says otherwise.

use std::collections::BTreeSet;

use larix_balance::ConnectionOf;
use larix_engine::access::{AccessTarget, EntryFacts, Item, Privilege};
use larix_engine::write::WriteOperation;
use larix_proto::{LdapResult, ModifyOperation, ResultCode};

use super::balancer::connection_of;
use super::{DN, level_names};
use crate::log::LogLevel;
use larix_backend::memory_tree::MemoryTree;

/// What a permitted change comes to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum MonitorChange {
    Levels(u32),
    /// Of the database with this number.
    ReadOnly(usize, bool),
    /// A connection of the balancer takes no new operation, and closes behind its last one.
    Close(ConnectionOf, u64),
}

/// Checks a change: the requester and its rights.
///
/// # Errors
/// The answer, if there is nothing to do.
pub(crate) fn judge(
    tree: &MemoryTree<'_>,
    levels: u32,
    operation: &WriteOperation,
) -> Result<MonitorChange, LdapResult> {
    let WriteOperation::Modify { object, changes } = operation else {
        return Err(unwilling("operation not supported within namingContext"));
    };
    let dn = tree.schema.parse_dn(object).map_err(|_| LdapResult::invalid_dn())?;
    let (entry, facts) = tree.find(&dn)?;
    let target = AccessTarget { dn: &dn, entry: facts.as_ref() as &dyn EntryFacts };
    let allows = |item: Item<'_>, privilege| tree.policy.check(tree.subject, &target, item, privilege);
    let hidden = |result| match allows(Item::Entry, Privilege::Disclose) {
        true => result,
        false => LdapResult::new(ResultCode::NO_SUCH_OBJECT),
    };
    let mut monitor_change = None;
    let mut now = level_names(levels).map(str::to_owned).collect::<BTreeSet<_>>();
    for change in changes {
        let name = &change.attribute.description;
        let unknown = |error: larix_schema::DescriptionError| {
            LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, format!("{name}: {error}"))
        };
        let description = tree.schema.describe(name).map_err(unknown)?;
        let attribute = tree.schema.attribute(description.attribute);
        if attribute.no_user_modification {
            let text = format!("{name}: no user modification allowed");
            return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
        }
        let values = change.attribute.values.iter().map(|value| Some(value.as_slice()));
        let whole = change.attribute.values.is_empty() || change.operation == ModifyOperation::Replace;
        for value in values.chain(whole.then_some(None)) {
            if !allows(Item::Attribute { description: &description, value }, Privilege::Write) {
                return Err(hidden(LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS)));
            }
        }
        monitor_change = Some(match (target_of(&entry.dn), attribute.name()) {
            (Some(ChangeTarget::Log), "managedInfo") => {
                change_levels(&mut now, change.operation, &change.attribute.values).map_err(hidden)?;
                let bits = now.iter().filter_map(|name| LogLevel::parse_word(name));
                MonitorChange::Levels(bits.fold(0, |sum, level| sum | level.0))
            }
            (Some(ChangeTarget::Database(number)), "readOnly") => {
                let value = read_only(change.operation, &change.attribute.values)?;
                MonitorChange::ReadOnly(number, value)
            }
            (Some(ChangeTarget::Connection(of, number)), "olmConnectionState") => {
                closing(change.operation, &change.attribute.values).map_err(hidden)?;
                MonitorChange::Close(of, number)
            }
            _ => {
                return Err(hidden(unwilling(
                    "only managedInfo of cn=Log, readOnly of a database and olmConnectionState of a balancer's connection can be changed",
                )));
            }
        });
    }
    monitor_change.ok_or_else(|| LdapResult::with(ResultCode::PROTOCOL_ERROR, "no modifications specified"))
}

enum ChangeTarget {
    Log,
    Database(usize),
    /// Of the balancer.
    Connection(ConnectionOf, u64),
}

fn target_of(dn: &str) -> Option<ChangeTarget> {
    if let Some((of, number)) = connection_of(dn) {
        return Some(ChangeTarget::Connection(of, number));
    }
    let name = dn.strip_suffix(DN)?.strip_suffix(',')?;
    if name == "cn=Log" {
        return Some(ChangeTarget::Log);
    }
    let number = name.strip_suffix(",cn=Databases")?.strip_prefix("cn=Database ")?;
    number.parse().ok().map(ChangeTarget::Database)
}

/// Changes a set of level names.
fn change_levels(
    now: &mut BTreeSet<String>,
    operation: ModifyOperation,
    values: &[Vec<u8>],
) -> Result<(), LdapResult> {
    let names = values.iter().map(|value| level(value)).collect::<Result<Vec<_>, _>>()?;
    match operation {
        ModifyOperation::Add => {
            for name in names {
                if !now.insert(name.to_owned()) {
                    return Err(LdapResult::new(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS));
                }
            }
        }
        ModifyOperation::Delete if values.is_empty() => {
            if std::mem::take(now).is_empty() {
                return Err(LdapResult::new(ResultCode::NO_SUCH_ATTRIBUTE));
            }
        }
        ModifyOperation::Delete => {
            for name in names {
                if !now.remove(name) {
                    return Err(LdapResult::new(ResultCode::NO_SUCH_ATTRIBUTE));
                }
            }
        }
        ModifyOperation::Replace => *now = names.into_iter().map(str::to_owned).collect(),
        ModifyOperation::Increment => {
            return Err(LdapResult::new(ResultCode::CONSTRAINT_VIOLATION));
        }
    }
    Ok(())
}

/// The name of a level. Numbers are not taken, as in OpenLDAP.
fn level(value: &[u8]) -> Result<&'static str, LdapResult> {
    let named = LogLevel::NAMES.iter().find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(name, _)| *name).ok_or_else(|| {
        let text = format!("managedInfo: `{}` is no log level", String::from_utf8_lossy(value));
        LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text)
    })
}

fn read_only(operation: ModifyOperation, values: &[Vec<u8>]) -> Result<bool, LdapResult> {
    match (operation, values) {
        (ModifyOperation::Replace, [value]) => match value.as_slice() {
            b"TRUE" => Ok(true),
            b"FALSE" => Ok(false),
            _ => {
                let text = "readOnly: value #0 invalid per syntax";
                Err(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text))
            }
        },
        _ => {
            let text = "readOnly: it has one value, which can be replaced";
            Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text))
        }
    }
}

/// The one state that can be asked for.
fn closing(operation: ModifyOperation, values: &[Vec<u8>]) -> Result<(), LdapResult> {
    match (operation, values) {
        (ModifyOperation::Replace, [value]) if value.eq_ignore_ascii_case(b"closing") => Ok(()),
        _ => {
            let text = "olmConnectionState: it has one value, which can be replaced by `closing`";
            Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text))
        }
    }
}

fn unwilling(text: &str) -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
}
