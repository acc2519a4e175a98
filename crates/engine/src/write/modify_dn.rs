//! Modify DN (RFC 4511 section 4.9): renames, moves, and moves of whole subtrees.
//!
//! An entry's record knows its parent and RDN and nothing above them, so that the subordinates of a moved entry are not
//! touched at all.

use std::collections::HashMap;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{MAX_DN_LENGTH, NormalDn};
use larix_store::Snapshot;

use super::delete;
use super::disclosure;
use super::entry_state;
use super::modify;
use super::operator::{CurrentEntry, Operator, insufficient, logged};
use crate::access::Privilege;
use crate::change::prepare::PreparedModifyDn;
use crate::entry::encode::Placement;
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, EntryView};
use crate::failure::Failure;
use crate::log::LoggedChange;
use crate::tree;

pub(crate) fn modify_dn<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    rename: &PreparedModifyDn,
) -> Result<(), Failure> {
    if operator.is_suffix(&rename.dn) {
        return Err(LdapResult::with(ResultCode::NAMING_VIOLATION, "cannot rename suffix entry").into());
    }
    let old_parent = check_old_parent(operator, rename)?;
    let current = operator.find(&rename.dn)?;
    operator.check_assertion(&current, &rename.dn)?;
    if !operator.may_change_entry(&rename.dn, &operator.reader(&current)?, Privilege::Write)? {
        return Err(insufficient("no write access to old entry").into());
    }
    operator.check_referral(&current)?;
    let superior = new_superior(operator, rename, old_parent)?;
    let parent = superior.id;
    check_free(operator, rename, current.id)?;
    operator.pre_read(&current)?;

    operator.rise_above(&current)?;
    let own = operator.own_changes(&rename.mods);
    let changes: modify::Changes<'_> = rename.mods.iter().chain(&own).collect();
    // The values of the name change in the entry as it will be called: as in OpenLDAP its new place's rules decide.
    if !operator.may_modify(&rename.target(), &operator.reader(&current)?, &rename.mods)? {
        return Err(insufficient("").into());
    }
    let old_pretty_dn = operator.view.dn(&current.view()?)?;
    let pretty_dn = match operator.view.names.superior(parent)? {
        Some(superior) => format!("{},{}", rename.new_rdn, superior.dn),
        None => rename.new_rdn.clone(),
    };
    let length = pretty_dn.len().max(rename.target().as_str().len());
    // Subordinates of a store that is a round trip away are not asked for one by one.
    if length > old_pretty_dn.len() && !operator.envelope.replicated && !V::IS_DISTANT {
        check_names_below(operator, current.id, length)?;
    }
    let entry = modify::changed_entry(operator, &current, pretty_dn, (&changes, &[]))?;
    // As OpenLDAP: of a rename only where attributes are named.
    if operator.context.settings.old_values.as_ref().is_some_and(|old| !old.attributes.is_empty()) {
        operator.keep_old(&current, Some(&changes))?;
    }
    let normal_rdn = rename.new_normal_rdn.as_str();
    let place = Placement { id: current.id, parent, rdn: &rename.new_rdn, normal_rdn: normal_rdn.as_bytes() };
    modify::store_at(operator, &current, place, &entry)?;
    let old = current.view()?;
    tree::delete(&mut operator.set, old.parent(), old.normal_rdn());
    tree::put(&mut operator.set, parent, place.normal_rdn, current.id);
    operator.bump_generation()?;
    operator.post_read(current.id)?;

    let uuid = operator.entry_uuid(&current)?;
    let old_dn = operator.view.names.normal_dn(&current.view()?)?;
    let superior_pretty_dn = match &superior.new {
        Some(entry) => Some(operator.view.dn(&entry.view()?)?),
        None => (parent != old_parent).then(String::new),
    };
    operator.log((current.id, parent), uuid, &old_pretty_dn, |schema| LoggedChange::ModifyDn {
        new_rdn: rename.new_rdn.clone(),
        delete_old_rdn: rename.delete_old_rdn,
        new_superior: superior_pretty_dn,
        modifications: logged(schema, &changes),
    });
    if !operator.envelope.derived && old_dn != rename.target() {
        operator.left(&old_dn, &uuid);
    }
    let old = current.view()?;
    let renamed = entry_state::Renamed { old_rdn: old.rdn() };
    entry_state::note_change(operator, (&current, &entry), &changes, Some(renamed))?;
    delete::clear_glue(operator, current.id, (old_parent, parent))
}

/// The present superior: the requester must be allowed to take an entry away from it.
pub(super) fn check_old_parent<V: Snapshot>(
    operator: &Operator<'_, V>,
    rename: &PreparedModifyDn,
) -> Result<EntryId, Failure> {
    let dn = rename.dn.parent().unwrap_or_else(NormalDn::root);
    // The entry of an empty suffix, or nothing, is above the entries directly below the root.
    let resolved = operator.resolve(&dn)?;
    let parent = match resolved.id {
        Some(id) => Some(operator.current_entry(id)?),
        None if dn.is_root() => None,
        None => return Err(missing_parent(operator).into()),
    };
    let privilege = if rename.new_superior.is_none() { Privilege::Write } else { Privilege::Delete };
    if !operator.may_change_children(&dn, parent.as_ref(), privilege)? {
        return Err(insufficient("no write access to parent's children").into());
    }
    Ok(parent.map_or(EntryId::ROOT, |parent| parent.id))
}

/// The answer where the present superior is not there.
pub(super) fn missing_parent<V: Snapshot>(operator: &Operator<'_, V>) -> LdapResult {
    match operator.context.default_referrals {
        [] => LdapResult::new(ResultCode::NO_SUCH_OBJECT),
        referrals => operator.default_referral(referrals),
    }
}

/// Where the entry will stand.
struct Superior<'v> {
    id: EntryId,
    /// The superior's entry, when it is not the one that the entry has already.
    new: Option<CurrentEntry<'v>>,
}

fn new_superior<'v, V: Snapshot>(
    operator: &Operator<'v, V>,
    rename: &PreparedModifyDn,
    old: EntryId,
) -> Result<Superior<'v>, Failure> {
    let Some(dn) = rename.new_superior.as_ref().filter(|dn| Some(*dn) != rename.dn.parent().as_ref()) else {
        return Ok(Superior { id: old, new: None });
    };
    let not_found = || LdapResult::with(ResultCode::NO_SUCH_OBJECT, "new superior not found");
    if dn.is_within(&rename.dn) {
        return Err(not_found().into());
    }
    let superior = match operator.resolve(dn)?.id {
        Some(id) => Some(operator.current_entry(id)?),
        // The empty suffix has no entry of its own.
        None if dn.is_root() => None,
        None => return Err(not_found().into()),
    };
    if !operator.may_change_children(dn, superior.as_ref(), Privilege::Add)? {
        // One that the requester may not know of is answered as one that is not there.
        return Err(match &superior {
            Some(superior) if disclosure::matched(operator, dn, superior.id)?.is_none() => not_found().into(),
            _ => insufficient("no write access to new superior's children").into(),
        });
    }
    let Some(superior) = superior else { return Ok(Superior { id: EntryId::ROOT, new: None }) };
    let flags = superior.view()?.flags();
    if flags.has(RecordFlags::ALIAS) {
        return Err(LdapResult::with(ResultCode::ALIAS_PROBLEM, "new superior is an alias").into());
    }
    if flags.has(RecordFlags::REFERRAL) {
        return Err(LdapResult::with(ResultCode::OTHER, "new superior is a referral").into());
    }
    Ok(Superior { id: superior.id, new: Some(superior) })
}

/// Entries looked at below one that gets a longer name. Whatever their RDNs, the last one in a chain of so many has a name that is too
/// long.
const BELOW_MAX: usize = MAX_DN_LENGTH / 4;

/// No subordinate gets a name that no request can have. Each was added with a name that is short enough, but renames above it make it
/// longer, and the tree deeper, without an end. Behind [`BELOW_MAX`] subordinates this is not seen.
fn check_names_below<V: Snapshot>(
    operator: &Operator<'_, V>,
    id: EntryId,
    length: usize,
) -> Result<(), Failure> {
    let mut lengths = HashMap::from([(id, length)]);
    for below in tree::subtree(operator.view.snapshot, id, BELOW_MAX)? {
        let Some(record) = operator.view.stored(below)?.filter(|_| below != id) else { continue };
        let entry = EntryView::parse(below, &record)?;
        let above = lengths.get(&entry.parent()).copied().unwrap_or(length);
        lengths.insert(below, above + 1 + entry.rdn().len().max(entry.normal_rdn().len()));
    }
    match lengths.values().all(|length| *length <= MAX_DN_LENGTH) {
        true => Ok(()),
        false => {
            let text =
                format!("the new name, or that of a subordinate, would be longer than {MAX_DN_LENGTH} bytes");
            Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into())
        }
    }
}

/// The new name is free, or the entry's own in another spelling.
fn check_free<V: Snapshot>(
    operator: &Operator<'_, V>,
    rename: &PreparedModifyDn,
    id: EntryId,
) -> Result<(), Failure> {
    match operator.resolve(&rename.target())?.id {
        Some(other) if other != id => Err(LdapResult::with(ResultCode::ENTRY_ALREADY_EXISTS, "").into()),
        _ => Ok(()),
    }
}
