//! The directive of `overlay denyop`.

use std::sync::Arc;

use larix_backend::{Interceptor, Operations};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, WordFault};
use larix_engine::write::WriteOperation;
use larix_schema::Schema;

use super::DenyOperations;

/// An operation that can be denied.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    Add,
    Bind,
    Compare,
    Delete,
    Extended,
    Modify,
    ModifyDn,
    Search,
    /// It has no answer that could refuse it.
    Unbind,
}

const NAMES: [(&str, Denied); 9] = [
    ("add", Denied::Add),
    ("bind", Denied::Bind),
    ("compare", Denied::Compare),
    ("delete", Denied::Delete),
    ("extended", Denied::Extended),
    ("modify", Denied::Modify),
    ("modrdn", Denied::ModifyDn),
    ("search", Denied::Search),
    ("unbind", Denied::Unbind),
];

impl Denied {
    pub(super) fn of(operation: &WriteOperation) -> Self {
        match operation {
            WriteOperation::Add { .. } => Self::Add,
            WriteOperation::Modify { .. } => Self::Modify,
            WriteOperation::Delete { .. } => Self::Delete,
            WriteOperation::ModifyDn { .. } => Self::ModifyDn,
        }
    }

    /// What has to be seen to deny it. A password is modified by an extended operation, and that is a modify.
    pub(super) const fn seen_with(self) -> Operations {
        match self {
            Self::Add | Self::Delete | Self::ModifyDn => Operations::UPDATE,
            Self::Modify => Operations::UPDATE.and(Operations::PASSWORD),
            Self::Bind => Operations::BIND,
            Self::Compare => Operations::COMPARE,
            Self::Extended => Operations::EXTENDED.and(Operations::PASSWORD),
            Self::Search => Operations::SEARCH,
            Self::Unbind => Operations::NONE,
        }
    }
}

/// The operations of a list with commas.
///
/// # Errors
/// A name that is none.
fn parse(list: &str) -> Result<Vec<Denied>, String> {
    let known = |name: &str| NAMES.iter().find(|(known, _)| *known == name).map(|(_, denied)| *denied);
    list.split(',').map(|name| known(name).ok_or_else(|| name.to_owned())).collect()
}

const HELP: &str = "operations are add, bind, compare, delete, extended, modify, modrdn, search and unbind, with commas between";

/// # Errors
/// An operation that is unknown.
pub(super) fn check(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    let unknown = words.iter().enumerate().find_map(|(at, list)| Some((at, parse(list).err()?)));
    match unknown {
        Some((argument, name)) => {
            let message = format!("unknown operation \"{name}\"");
            Err(WordFault { argument, message, help: Some(HELP.to_owned()) })
        }
        None => Ok(()),
    }
}

/// Builds the overlay from `denyop` lines.
///
/// # Errors
/// An operation that is unknown.
pub fn build(settings: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    let mut denied = Vec::new();
    for value in settings.values("olcDenyOp") {
        let parsed = parse(&value.text);
        denied.extend(parsed.map_err(|name| {
            SettingError::new(format!("denyop {}: unknown operation \"{name}\"", value.text)).with_help(HELP)
        })?);
    }
    Ok(Arc::new(DenyOperations { denied }))
}
