//! Add (RFC 4511 section 4.7).

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, MAX_DN_LENGTH, NormalDn};
use larix_store::Snapshot;
use uuid::Uuid;

use super::change::NoLargeSets;
use super::operational;
use super::operator::{CurrentEntry, Operator, insufficient};
use super::replicated;
use super::schema_check::{CheckMode, check_entry, check_part, name_structural_class};
use crate::access::Privilege;
use crate::change::prepare::Change;
use crate::controls::Import;
use crate::entry::encode::{self, Placement};
use crate::entry::record::RecordFlags;
use crate::entry::{Entry, EntryId, split_rdn};
use crate::failure::Failure;
use crate::index::new_entry;
use crate::replica_state;
use crate::time::new_uuid;
use crate::tree;

/// Checks and completes a new entry by the schema alone: what an add, a bulk load and a replica share.
///
/// # Errors
/// Those of [`check_entry`].
pub(crate) fn add<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    dn: &NormalDn,
    mut entry: Entry,
    mods: &[Change],
) -> Result<(), Failure> {
    let context = operator.context;
    let mode = CheckMode { relax: operator.envelope.controls.relax, add: true, ..context.check_mode() };
    let controls = operator.envelope.controls;
    match controls.import {
        Some(Import { schema_check: false, .. }) => {
            name_structural_class(context.schema, context.known, &mut entry)
        }
        _ if controls.schema_unchecked => name_structural_class(context.schema, context.known, &mut entry),
        _ if context.settings.holds_parts => {
            check_part(context.schema, &entry)?;
            name_structural_class(context.schema, context.known, &mut entry);
        }
        _ if operator.envelope.replicated => {
            let mode = replicated::mode(mode);
            check_entry(context.schema, context.known, &mut entry, mode, &NoLargeSets)?;
        }
        _ => check_entry(context.schema, context.known, &mut entry, mode, &NoLargeSets)?,
    }
    if operator.envelope.controls.import.is_some() && context.settings.provider.is_some() && operator.stamps()
    {
        // Consumers pass over what is older than what they have: under its old entryCSN they would never take it.
        entry.remove(&AttributeDescription::plain(context.known.entry_csn));
    }
    if let Some(given) = entry.values(context.known.entry_uuid).first()
        && let Ok(uuid) = Uuid::try_parse_ascii(given)
    {
        // Consumers, which find entries by it, would take one for the other.
        let is_own = !operator.envelope.replicated && operator.has_index_of_uuids();
        if is_own && operator.entry_with_uuid(&uuid)?.is_some() {
            let text = format!("another entry has the entryUUID {uuid}");
            return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text).into());
        }
        if context.settings.multi_provider
            && let Some(dead) = replica_state::tombstone(operator.snapshot(), &uuid)?
        {
            operational::begin_behind(context.known, &mut entry, &operator.stamp, &dead.csn);
        }
        replica_state::unbury(&mut operator.set, &uuid);
    }
    if context.settings.last_modified {
        let uuid = new_uuid(operator.envelope.now, context.random);
        operational::complete_entry(context.known, &mut entry, &operator.stamp, uuid);
    }
    operator.check_assertion_of_new(&entry, dn)?;
    let parent = find_parent(operator, dn)?;
    check_access(operator, dn, &entry, mods)?;
    if !operator.envelope.replicated && controls.import.is_none() {
        check_name(operator, dn, parent.id(), &entry)?;
    }
    let id = store(operator, dn, &parent, &entry)?;
    operator.post_read(id)?;
    log(operator, (id, parent.id()), &entry, mods);
    Ok(())
}

/// Stores an entry that the server itself made, whole with its operational attributes, and logs it.
pub(crate) fn record<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    dn: &NormalDn,
    entry: &Entry,
) -> Result<(), Failure> {
    let resolved = operator.resolve(dn)?;
    let parent = match (operator.is_suffix(dn), resolved.missing) {
        (true, _) => Parent::Root,
        (false, 1) if resolved.nearest != EntryId::ROOT => {
            Parent::Entry(operator.current_entry(resolved.nearest)?)
        }
        _ => return Err(operator.missing(&resolved)?.into()),
    };
    let id = store(operator, dn, &parent, entry)?;
    log(operator, (id, parent.id()), entry, &[]);
    Ok(())
}

fn log<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    place: (EntryId, EntryId),
    entry: &Entry,
    mods: &[Change],
) {
    let known = operator.context.known;
    let uuid = entry
        .values(known.entry_uuid)
        .first()
        .map_or(Uuid::nil(), |value| Uuid::try_parse_ascii(value).unwrap_or_default());
    operator.log_add(place, uuid, entry, mods);
}

/// The superior under which the entry will stand.
enum Parent<'v> {
    Root,
    Entry(CurrentEntry<'v>),
}

impl Parent<'_> {
    fn id(&self) -> EntryId {
        match self {
            Self::Root => EntryId::ROOT,
            Self::Entry(entry) => entry.id,
        }
    }
}

fn find_parent<'v, V: Snapshot>(operator: &Operator<'v, V>, dn: &NormalDn) -> Result<Parent<'v>, Failure> {
    let resolved = operator.resolve(dn)?;
    if resolved.id.is_some() {
        return Err(LdapResult::with(ResultCode::ENTRY_ALREADY_EXISTS, "").into());
    }
    if operator.is_suffix(dn) || (resolved.nearest == EntryId::ROOT && resolved.missing == 1) {
        if !operator.may_change_children(&NormalDn::root(), None, Privilege::Add)? {
            return Err(insufficient("no write access to parent").into());
        }
        return Ok(Parent::Root);
    }
    if resolved.nearest == EntryId::ROOT || resolved.missing != 1 {
        return Err(operator.missing(&resolved)?.into());
    }
    let parent = operator.current_entry(resolved.nearest)?;
    let parent_dn = dn.parent().unwrap_or_else(NormalDn::root);
    if !operator.may_change_children(&parent_dn, Some(&parent), Privilege::Add)? {
        return Err(insufficient("no write access to parent").into());
    }
    if operator.envelope.controls.import.is_some() {
        return Ok(Parent::Entry(parent));
    }
    let flags = parent.view()?.flags();
    if flags.has(RecordFlags::SUBENTRY) {
        return Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, "parent is a subentry").into());
    }
    if flags.has(RecordFlags::ALIAS) {
        return Err(LdapResult::with(ResultCode::ALIAS_PROBLEM, "parent is an alias").into());
    }
    if flags.has(RecordFlags::REFERRAL) {
        return Err(operator.referral(&parent)?.into());
    }
    Ok(Parent::Entry(parent))
}

/// The name as it will be shown can be asked for. The superior may be stored in a longer spelling than the request has of it.
fn check_name<V: Snapshot>(
    operator: &Operator<'_, V>,
    dn: &NormalDn,
    parent: EntryId,
    entry: &Entry,
) -> Result<(), Failure> {
    let shown = match operator.view.names.superior(parent)? {
        Some(superior) => split_rdn(&entry.dn).0.len() + 1 + superior.dn.len(),
        None => entry.dn.len(),
    };
    if shown.max(dn.as_str().len()) <= MAX_DN_LENGTH {
        return Ok(());
    }
    let text = format!("the name would be longer than {MAX_DN_LENGTH} bytes");
    Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into())
}

/// The requester's rights to the new entry itself.
pub(super) fn check_access<V: Snapshot>(
    operator: &Operator<'_, V>,
    dn: &NormalDn,
    entry: &Entry,
    mods: &[Change],
) -> Result<(), Failure> {
    let source = operator.new_source(entry);
    if !operator.may_change_entry(dn, &source, Privilege::Add)? {
        return Err(insufficient("no write access to entry").into());
    }
    if operator.context.settings.add_content_acl && !operator.may_modify(dn, &source, mods)? {
        return Err(insufficient("no write access to attribute").into());
    }
    Ok(())
}

fn store<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    dn: &NormalDn,
    parent: &Parent<'_>,
    entry: &Entry,
) -> Result<EntryId, Failure> {
    let id = operator.next_entry_id();
    let normal_rdn = dn.rdn();
    let (parent, rdn, normal_rdn) = match parent {
        Parent::Entry(parent) => {
            (parent.id, split_rdn(&entry.dn).0, normal_rdn.as_ref().map_or(dn.as_str(), |rdn| rdn.as_str()))
        }
        // A suffix stands under the root with its whole DN.
        Parent::Root => (EntryId::ROOT, entry.dn.as_str(), dn.as_str()),
    };
    let place = Placement { id, parent, rdn, normal_rdn: normal_rdn.as_bytes() };
    let (schema, snapshot) = (operator.schema(), operator.snapshot());
    let bytes = encode::store(&mut operator.set, snapshot, schema, operator.catalog, place, None, entry)?;
    operator.check_size(bytes)?;
    tree::put(&mut operator.set, parent, place.normal_rdn, id);
    new_entry::put(&mut operator.set, snapshot, schema, operator.catalog.catalog(), id, entry)?;
    Ok(id)
}
