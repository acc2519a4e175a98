//! Changes that the `updatedn` of a shadow writes: they were made on another server, and say themselves by whom and when.
//!
//! **They raise the contextCSN only where they set it**: a CSN of this server would run ahead of the provider's.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::known::KnownSchema;
use super::operator::Operator;
use super::schema_check::CheckMode;
use super::task::Task;
use crate::change::prepare::{Change, ChangeKind, PreparedChange};
use crate::csn::Csn;
use crate::failure::Failure;
use crate::log;

/// How an entry is checked that was checked where it was made.
pub(crate) fn mode(mode: CheckMode) -> CheckMode {
    CheckMode { relax: true, auxiliary_needs_rule: false, dynamic_objects: true, ..mode }
}

/// The CSN that such a change has, if it says so.
pub(crate) fn csn_of(task: &Task, known: &KnownSchema) -> Option<Csn> {
    let (PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. }) = &task.operation else {
        return None;
    };
    let sets = |change: &&Change| {
        change.description.attribute == known.entry_csn && change.kind != ChangeKind::Delete
    };
    let change = mods.iter().filter(|_| task.replicated).find(sets)?;
    csn(change.values.first()?)
}

/// What such a change raises the contextCSN to.
pub(crate) fn contexts_of(task: &Task, known: &KnownSchema) -> Vec<Csn> {
    let PreparedChange::Modify { mods, .. } = &task.operation else { return Vec::new() };
    values(mods, known).filter_map(|value| csn(value)).collect()
}

/// Raises the contextCSN to the values that a change of the suffix sets. It never falls.
///
/// # Errors
/// An entry that has none; a value that is no CSN.
pub(crate) fn raise_contexts<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    dn: &NormalDn,
    mods: &[Change],
) -> Result<(), Failure> {
    if values(mods, operator.context.known).next().is_none() {
        return Ok(());
    }
    if !operator.is_suffix(dn) {
        let text = "contextCSN: only the entry of a suffix has it";
        return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text).into());
    }
    let covered = log::context_csns(operator.snapshot())?;
    for value in values(mods, operator.context.known) {
        let Some(csn) = csn(value) else {
            let text = format!("contextCSN: `{}` is no CSN", String::from_utf8_lossy(value));
            return Err(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text).into());
        };
        let before = covered.iter().find(|known| known.server_id == csn.server_id);
        if before.is_none_or(|before| *before < csn) {
            operator.context.order.follow(&csn, operator.envelope.now);
            log::put_context_csn(&mut operator.set, &csn);
        }
    }
    Ok(())
}

fn values<'m>(mods: &'m [Change], known: &KnownSchema) -> impl Iterator<Item = &'m Vec<u8>> {
    let context_csn = known.context_csn;
    mods.iter()
        .filter(move |change| change.description.attribute == context_csn)
        .flat_map(|change| &change.values)
}

fn csn(value: &[u8]) -> Option<Csn> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
