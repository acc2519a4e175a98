//! Delete (RFC 4511 section 4.8) and the tree delete control.

use larix_proto::ResultCode;
use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::operator::{CurrentEntry, Operator, insufficient};
use crate::access::Privilege;
use crate::change::prepare::refuse;
use crate::entry::{EntryId, encode};
use crate::failure::Failure;
use crate::index::keys;
use crate::index::pending::{self, Writing};
use crate::log::LoggedChange;
use crate::replica_state::rows;
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
    if operator.envelope.controls.tree_delete {
        return delete_tree(operator, current.id);
    }
    if tree::has_children(operator.snapshot(), current.id)? {
        let text = "subordinate objects must be deleted first";
        return Err(refuse(ResultCode::NOT_ALLOWED_ON_NON_LEAF, text).into());
    }
    remove(operator, &current, Writing::Changed)
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
        return Err(refuse(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
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
    let view = current.view()?;
    let uuid = operator.entry_uuid(current)?;
    operator.keep_old(current, None)?;
    let pretty_dn = operator.view.dn(&view)?;
    let reader = operator.reader(current)?;
    let changes = keys::changes(operator.schema(), operator.catalog.catalog(), Some(&reader), None)?;
    let snapshot = operator.snapshot();
    pending::apply(&mut operator.set, snapshot, current.id, &changes, writing)?;
    encode::remove(&mut operator.set, snapshot, &view)?;
    tree::delete(&mut operator.set, view.parent(), view.normal_rdn());
    operator.bump_generation()?;
    operator.log((current.id, EntryId::ROOT), uuid, &pretty_dn, |_| LoggedChange::Delete);
    operator.bury(&uuid);
    if operator.context.settings.keeps_states() {
        rows::forget(operator.snapshot(), &mut operator.set, &uuid)?;
    }
    Ok(())
}
