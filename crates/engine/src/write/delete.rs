//! Delete (RFC 4511 section 4.8) and the tree delete control.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Snapshot;
use uuid::Uuid;

use super::operator::{CurrentEntry, LogMark, Operator, insufficient};
use crate::access::Privilege;
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, encode};
use crate::failure::Failure;
use crate::index::keys;
use crate::index::pending::{self, Writing};
use crate::log::LoggedChange;
use crate::replica_state::{self, rows};
use crate::tree;

/// Entries that one tree delete takes at most: all of them are in one commit.
pub(crate) const TREE_DELETE_LIMIT: usize = 1_000_000;

/// Deletes one entry, or under the tree delete control the entry and all below it.
pub(crate) fn delete<V: Snapshot>(operator: &mut Operator<'_, V>, dn: &NormalDn) -> Result<(), Failure> {
    let current = operator.find(dn)?;
    check_parent(operator, dn)?;
    operator.check_assertion(&current, dn)?;
    if !operator.may_change_entry(dn, &operator.reader(&current)?, Privilege::Delete)? {
        return Err(insufficient("no write access to entry").into());
    }
    operator.check_referral(&current)?;
    operator.pre_read(&current)?;
    let above = current.view()?.parent();
    if operator.envelope.controls.tree_delete {
        delete_tree(operator, current.id)?;
    } else {
        if tree::has_children(operator.snapshot(), current.id)? {
            let text = "subordinate objects must be deleted first";
            return Err(LdapResult::with(ResultCode::NOT_ALLOWED_ON_NON_LEAF, text).into());
        }
        remove(operator, &current, Writing::Changed)?;
    }
    clear_glue(operator, current.id, (above, EntryId::ROOT))
}

fn check_parent<V: Snapshot>(operator: &Operator<'_, V>, dn: &NormalDn) -> Result<(), Failure> {
    if operator.is_suffix(dn) {
        // A suffix has no parent whose rules decide. The root DN may, and an identity that may change the children of the empty DN.
        let serves_everything = operator.is_suffix(&NormalDn::root());
        let may = operator.is_root()
            || (serves_everything
                && operator.may_change_children(&NormalDn::root(), None, Privilege::Delete)?);
        return if may { Ok(()) } else { Err(insufficient("").into()) };
    }
    let parent_dn = dn.parent().unwrap_or_else(NormalDn::root);
    let may = match operator.resolve(&parent_dn)?.id {
        Some(id) => {
            let parent = operator.current_entry(id)?;
            operator.may_change_children(&parent_dn, Some(&parent), Privilege::Delete)?
        }
        None => operator.may_change_children(&parent_dn, None, Privilege::Delete)?,
    };
    if may { Ok(()) } else { Err(insufficient("no write access to parent").into()) }
}

/// Deletes subordinates before their superiors, each under a CSN of its own: so they can be sent to replicas.
fn delete_tree<V: Snapshot>(operator: &mut Operator<'_, V>, top: EntryId) -> Result<(), Failure> {
    let ids = tree::subtree(operator.snapshot(), top, TREE_DELETE_LIMIT + 1)?;
    if ids.len() > TREE_DELETE_LIMIT {
        let text = format!("more than {TREE_DELETE_LIMIT} entries to delete at once");
        return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
    }
    for (position, id) in ids.into_iter().rev().enumerate() {
        let current = operator.current_entry(id)?;
        if position > 0 {
            operator.renew_stamp();
        }
        if id != top {
            check_subordinate(operator, &current)?;
        }
        remove(operator, &current, Writing::OneOfMany)?;
    }
    Ok(())
}

/// What the control saves is the requests, not the rights.
fn check_subordinate<V: Snapshot>(
    operator: &Operator<'_, V>,
    current: &CurrentEntry<'_>,
) -> Result<(), Failure> {
    if operator.is_root() {
        return Ok(());
    }
    let dn = operator.view.names.normal_dn(&current.view()?)?;
    check_parent(operator, &dn)?;
    if !operator.may_change_entry(&dn, &operator.reader(current)?, Privilege::Delete)? {
        return Err(insufficient("no write access to entry").into());
    }
    Ok(())
}

pub(crate) fn remove<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    current: &CurrentEntry<'_>,
    writing: Writing,
) -> Result<(), Failure> {
    if current.flags()?.has(RecordFlags::GLUE) {
        return remove_glue(operator, current, writing);
    }
    let uuid = operator.entry_uuid(current)?;
    operator.keep_old(current, None)?;
    let pretty_dn = operator.view.dn(&current.view()?)?;
    take_out(operator, current, writing)?;
    operator.log((current.id, EntryId::ROOT), uuid, &pretty_dn, |_| LoggedChange::Delete);
    operator.bury(&uuid);
    if operator.context.settings.keeps_states() {
        rows::forget(operator.snapshot(), &mut operator.set, &uuid)?;
    }
    Ok(())
}

/// Removes glue that has no subordinates any more: what every server does by itself.
pub(crate) fn remove_glue<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    glue: &CurrentEntry<'_>,
    writing: Writing,
) -> Result<(), Failure> {
    let pretty_dn = operator.view.dn(&glue.view()?)?;
    replica_state::forget_glue(&mut operator.set, glue.id);
    let mark = LogMark { local: true, ..LogMark::default() };
    operator.log_marked((glue.id, EntryId::ROOT), Uuid::nil(), &pretty_dn, mark, |_| LoggedChange::Delete);
    take_out(operator, glue, writing)
}

/// Removes glue whose last subordinate this change takes away, and so on upwards. `from`, `to`: the superiors of the subordinate before
/// the change and after it.
pub(crate) fn clear_glue<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    subordinate: EntryId,
    (from, to): (EntryId, EntryId),
) -> Result<(), Failure> {
    let (mut gone, mut at) = (subordinate, from);
    while at != EntryId::ROOT && at != to {
        let current = operator.current_entry(at)?;
        let is_glue = current.flags()?.has(RecordFlags::GLUE);
        if !is_glue || tree::has_other_children(operator.snapshot(), at, gone)? {
            break;
        }
        let above = current.view()?.parent();
        remove_glue(operator, &current, Writing::Changed)?;
        (gone, at) = (at, above);
    }
    Ok(())
}

/// Takes an entry out of the tree and of the indexes.
pub(crate) fn take_out<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    current: &CurrentEntry<'_>,
    writing: Writing,
) -> Result<(), Failure> {
    let view = current.view()?;
    let reader = operator.reader(current)?;
    let changes = keys::changes(operator.schema(), operator.catalog.catalog(), Some(&reader), None)?;
    let snapshot = operator.snapshot();
    pending::apply(&mut operator.set, snapshot, current.id, &changes, writing)?;
    encode::remove(&mut operator.set, snapshot, &view)?;
    tree::delete(&mut operator.set, view.parent(), view.normal_rdn());
    Ok(operator.bump_generation()?)
}
