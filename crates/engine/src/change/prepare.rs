//! The part of a change that needs no entry: names resolved, values checked against their syntax, in OpenLDAP's order
//! of checks. Runs on the caller's thread, so that the writer has less to do.

use std::borrow::Cow;

use foldhash::HashMapExt;
use larix_proto::{Dn, LdapResult, ModifyOperation, ResultCode};
use larix_schema::{AttributeDescription, AttributeType, AttributeTypeId, NormalDn, Schema};
use smallvec::SmallVec;

use super::values;
use super::{AttributeValues, Modification, WriteOperation};
use crate::controls::Import;
use crate::entry::{Entry, EntryAttribute};

pub(crate) use super::prepared::RequiredAccess;
pub use super::prepared::{Change, ChangeKind, PreparedChange, PreparedModifyDn};

/// The syntax of whole numbers (RFC 4517 section 3.3.16).
const INTEGER_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.27";

/// What a request may do beyond the rules for clients.
#[derive(Copy, Clone, Debug, Default)]
pub struct Latitude {
    /// The relax rules control.
    pub relax: bool,
    /// The server's own request.
    pub internal: bool,
    /// An entry is added as it stands.
    pub import: Option<Import>,
    /// By the identity that keeps a shadow up to date (`updatedn`): it says itself who changed what when.
    pub update: bool,
}

/// Resolves and checks a change.
///
/// # Errors
/// invalidDNSyntax, protocolError, undefinedAttributeType, invalidAttributeSyntax, constraintViolation,
/// attributeOrValueExists, and what the root DSE and the subschema subentry (`subschema`) answer to changes.
pub fn prepare(
    schema: &Schema,
    operation: WriteOperation,
    subschema: &NormalDn,
    latitude: Latitude,
) -> Result<PreparedChange, LdapResult> {
    prepare_at(schema, operation, None, subschema, latitude)
}

/// As [`prepare`]; `target`: the normal form of the target's DN, where it is known.
pub(crate) fn prepare_at(
    schema: &Schema,
    operation: WriteOperation,
    target: Option<NormalDn>,
    subschema: &NormalDn,
    latitude: Latitude,
) -> Result<PreparedChange, LdapResult> {
    match operation {
        WriteOperation::Add { entry, attributes } => {
            prepare_add(schema, (&entry, target), attributes, subschema, latitude)
        }
        WriteOperation::Modify { object, changes } => {
            changes.iter().try_for_each(check_shape)?;
            let dn = target.map_or_else(|| normal_dn(schema, &object), Ok)?;
            prepare_modify(schema, dn, changes, subschema, latitude)
        }
        WriteOperation::Delete { entry } => {
            let dn = normal_dn(schema, &entry)?;
            if dn.is_root() || dn == *subschema {
                return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "cannot delete the root DSE"));
            }
            Ok(PreparedChange::Delete { dn })
        }
        WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
            let request = RenameRequest { entry, new_rdn, delete_old_rdn, new_superior };
            prepare_modify_dn(schema, &request, subschema)
        }
    }
}

/// The normal form of the DN of an entry that stands: how it is shown, the entry knows.
fn normal_dn(schema: &Schema, text: &str) -> Result<NormalDn, LdapResult> {
    schema.parse_dn(text).map_err(|_| LdapResult::invalid_dn())
}

/// The normal form of a DN, and the form in which it is shown.
fn parse_dn(schema: &Schema, text: &str, fault: &str) -> Result<(NormalDn, String), LdapResult> {
    schema.parse_and_show_dn(text).map_err(|_| LdapResult::with(ResultCode::INVALID_DN_SYNTAX, fault))
}

/// The normal form of the DN of a new entry, parsed unless it is known, and the form in which it is shown.
fn named(schema: &Schema, name: &str, target: Option<NormalDn>) -> Result<(NormalDn, String), LdapResult> {
    let Some(dn) = target else { return parse_dn(schema, name, "invalid DN") };
    debug_assert!(schema.parse_dn(name).is_ok_and(|parsed| parsed == dn), "{dn} is known as that of {name}");
    let pretty = schema.show_dn(&dn, name).map_err(|_| LdapResult::invalid_dn())?;
    Ok((dn, pretty))
}

fn prepare_add(
    schema: &Schema,
    (name, target): (&str, Option<NormalDn>),
    attributes: Vec<AttributeValues>,
    subschema: &NormalDn,
    latitude: Latitude,
) -> Result<PreparedChange, LdapResult> {
    if attributes.iter().any(|a| a.values.is_empty()) {
        return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "no values for attribute type"));
    }
    let (dn, pretty) = named(schema, name, target)?;
    // The server itself may begin an entry to which it is going to add.
    if attributes.is_empty() && !latitude.internal {
        return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "no attributes provided"));
    }
    if dn.is_root() {
        return Err(LdapResult::with(ResultCode::ENTRY_ALREADY_EXISTS, "root DSE already exists"));
    }
    if dn == *subschema {
        return Err(LdapResult::with(ResultCode::ENTRY_ALREADY_EXISTS, "subschema subentry already exists"));
    }
    if let Some(import) = latitude.import {
        let mut entry = Entry::new(pretty);
        entry.attributes = import_attributes(schema, attributes, import)?;
        return Ok(PreparedChange::Add { dn, entry, mods: Vec::new() });
    }
    let mut mods = Vec::with_capacity(attributes.len());
    for attribute in attributes {
        mods.push(check_change(schema, ChangeKind::Add, attribute)?);
    }
    check_obsolete(schema, &mods, latitude)?;
    check_user_modification(schema, &mut mods, latitude)?;
    if let Some(change) = first_repeated_description(&mods) {
        let name = change.description.to_text(schema);
        let text = format!("attribute '{name}' provided more than once");
        return Err(LdapResult::with(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, text));
    }
    let mut entry = Entry::new(pretty);
    entry.attributes =
        mods.iter().map(|m| EntryAttribute::new(m.description.clone(), m.values.clone())).collect();
    Ok(PreparedChange::Add { dn, entry, mods })
}

/// The attributes of an entry that is stored as it stands: what a load offline makes of them.
fn import_attributes(
    schema: &Schema,
    attributes: Vec<AttributeValues>,
    import: Import,
) -> Result<Vec<EntryAttribute>, LdapResult> {
    let mut taken: Vec<EntryAttribute> = Vec::with_capacity(attributes.len() + 8);
    for attribute in attributes {
        let (description, values) = match import.value_check {
            true => {
                let change = check_change(schema, ChangeKind::Add, attribute)?;
                (change.description, change.values)
            }
            false => unchecked_values(schema, attribute, import.schema_check)?,
        };
        match taken.iter_mut().find(|known| known.description == description) {
            Some(known) => known.values.extend(values),
            None => taken.push(EntryAttribute::new(description, values)),
        }
    }
    Ok(taken)
}

/// Values whose syntax is not checked, but for what is to be [readable](values::is_readable). The very same value given twice is one;
/// one that is equal to another is refused.
fn unchecked_values(
    schema: &Schema,
    attribute: AttributeValues,
    readable: bool,
) -> Result<(AttributeDescription, Vec<Vec<u8>>), LdapResult> {
    let AttributeValues { description: name, values } = attribute;
    let description = schema.describe(&name).map_err(|error| {
        LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, format!("{name}: {error}"))
    })?;
    let attribute_type = schema.attribute(description.attribute);
    if readable {
        values::check_transfer(attribute_type, &description, &name)?;
    }
    let mut scratch = Vec::new();
    let mut is_readable =
        |value: &Vec<u8>| !readable || values::is_readable(schema, attribute_type, value, &mut scratch);
    if let Some(position) = values.iter().position(|value| !is_readable(value)) {
        return Err(values::unreadable(&name, position));
    }
    let mut seen: foldhash::HashMap<Vec<u8>, usize> = foldhash::HashMap::default();
    let mut distinct: Vec<Vec<u8>> = Vec::with_capacity(values.len());
    for (position, value) in values.into_iter().enumerate() {
        let key = values::key(schema, attribute_type, &value).unwrap_or_else(|_| value.clone());
        match seen.get(&key).and_then(|first| distinct.get(*first)) {
            Some(first) if *first == value => {}
            Some(_) => {
                let text = format!("{name}: value #{position} provided more than once");
                return Err(LdapResult::with(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, text));
            }
            None => {
                seen.insert(key, distinct.len());
                distinct.push(value);
            }
        }
    }
    Ok((description, distinct))
}

fn prepare_modify(
    schema: &Schema,
    dn: NormalDn,
    changes: Vec<Modification>,
    subschema: &NormalDn,
    latitude: Latitude,
) -> Result<PreparedChange, LdapResult> {
    let mut mods = Vec::with_capacity(changes.len());
    for change in changes {
        let kind = match change.operation {
            ModifyOperation::Add => ChangeKind::Add,
            ModifyOperation::Delete => ChangeKind::Delete,
            ModifyOperation::Replace => ChangeKind::Replace,
            ModifyOperation::Increment => ChangeKind::Increment,
        };
        mods.push(check_change(schema, kind, change.attribute)?);
    }
    let text = if dn.is_root() {
        "modify upon the root DSE not supported"
    } else if dn == *subschema {
        "modification of subschema subentry not supported"
    } else {
        check_obsolete(schema, &mods, latitude)?;
        check_user_modification(schema, &mut mods, latitude)?;
        return Ok(PreparedChange::Modify { dn, mods });
    };
    Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
}

/// How many values an operation takes (RFC 4511 section 4.6, RFC 4525).
fn check_shape(change: &Modification) -> Result<(), LdapResult> {
    let text = match (change.operation, change.attribute.values.len()) {
        (ModifyOperation::Add, 0) => "modify/add operation requires values",
        (ModifyOperation::Increment, 0) => "modify/increment operation requires value",
        (ModifyOperation::Increment, 2..) => "modify/increment operation requires single value",
        _ => return Ok(()),
    };
    Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, text))
}

/// A change that the server itself makes, to any attribute and without regard to access.
///
/// # Errors
/// As for a client's change: undefinedAttributeType, invalidAttributeSyntax, constraintViolation.
pub fn internal_change(
    schema: &Schema,
    kind: ChangeKind,
    description: &str,
    values: Vec<Vec<u8>>,
) -> Result<Change, LdapResult> {
    let attribute = AttributeValues { description: description.to_owned(), values };
    Ok(Change { access: RequiredAccess::Internal, ..check_change(schema, kind, attribute)? })
}

/// Resolves the description and brings the values into the form in which they are stored.
pub(crate) fn check_change(
    schema: &Schema,
    kind: ChangeKind,
    attribute: AttributeValues,
) -> Result<Change, LdapResult> {
    let name = &attribute.description;
    let undefined =
        |text: String| LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, format!("{name}: {text}"));
    let description = schema.describe(name).map_err(|error| undefined(error.to_string()))?;
    let attribute_type = schema.attribute(description.attribute);
    values::check_transfer(attribute_type, &description, name)?;
    if description.has_range_option() {
        return Err(undefined("inappropriate use of tag range option".to_owned()));
    }
    if kind == ChangeKind::Increment && attribute_type.syntax.oid != INTEGER_SYNTAX {
        let text = format!("{name}: attribute syntax inappropriate for increment");
        return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
    }
    let values = stored_values(schema, attribute_type, name, attribute.values)?;
    if matches!(kind, ChangeKind::Add | ChangeKind::Replace)
        && values.len() > 1
        && attribute_type.single_value
    {
        let text = format!("{name}: multiple values provided");
        return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
    }
    let keys = equality_keys(schema, attribute_type, name, &values)?;
    if kind != ChangeKind::Delete
        && let Some(position) = first_repeated(keys.iter())
    {
        let text = format!("{}: value #{position} provided more than once", description.to_text(schema));
        return Err(LdapResult::with(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, text));
    }
    Ok(Change { kind, description, values, keys, access: RequiredAccess::User })
}

fn stored_values(
    schema: &Schema,
    attribute_type: &AttributeType,
    name: &str,
    mut values: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, LdapResult> {
    let syntax = &attribute_type.syntax;
    for (position, value) in values.iter_mut().enumerate() {
        let pretty = syntax.pretty(schema, value).map_err(|_| {
            let text = format!("{name}: value #{position} invalid per syntax");
            LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text)
        })?;
        let Cow::Owned(pretty) = pretty else { continue };
        *value = pretty;
    }
    Ok(values)
}

fn equality_keys(
    schema: &Schema,
    attribute_type: &AttributeType,
    name: &str,
    values: &[Vec<u8>],
) -> Result<Vec<Vec<u8>>, LdapResult> {
    let mut keys = Vec::with_capacity(values.len());
    for (position, value) in values.iter().enumerate() {
        let key = values::key(schema, attribute_type, value).map_err(|_| {
            let text = format!("{name}: value #{position} normalization failed");
            LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text)
        })?;
        keys.push(key);
    }
    Ok(keys)
}

/// So many values are compared with each other; more are put into a map.
const FEW_VALUES: usize = 8;

/// The first change whose attribute description another one has, too.
fn first_repeated_description(mods: &[Change]) -> Option<&Change> {
    let mut types: SmallVec<[AttributeTypeId; USUAL_ATTRIBUTES]> =
        mods.iter().map(|change| change.description.attribute).collect();
    types.sort_unstable();
    // Nearly always each type comes once, and numbers are compared sooner than descriptions are hashed.
    if !types.array_windows().any(|[one, next]| one == next) {
        return None;
    }
    first_repeated(mods.iter().map(|change| &change.description)).and_then(|at| mods.get(at))
}

/// More attributes than most entries have.
const USUAL_ATTRIBUTES: usize = 64;

/// The position of the first item that comes again later.
fn first_repeated<T: Eq + std::hash::Hash>(items: impl ExactSizeIterator<Item = T>) -> Option<usize> {
    if items.len() < 2 {
        return None;
    }
    if items.len() <= FEW_VALUES {
        // Compared in pairs: that is done before a map is made.
        let items: SmallVec<[T; FEW_VALUES]> = items.collect();
        let later = |at: usize| items.get(at + 1..).unwrap_or_default();
        return items.iter().enumerate().position(|(at, item)| later(at).contains(item));
    }
    let mut seen = foldhash::HashMap::with_capacity(items.len());
    items.enumerate().filter_map(|(position, item)| seen.insert(item, position)).min()
}

/// Obsolete types take no new values (RFC 4512 section 4.1).
fn check_obsolete(schema: &Schema, mods: &[Change], latitude: Latitude) -> Result<(), LdapResult> {
    if latitude.relax {
        return Ok(());
    }
    let removes =
        |m: &Change| matches!(m.kind, ChangeKind::Replace | ChangeKind::Delete) && m.values.is_empty();
    match mods.iter().find(|m| schema.attribute(m.description.attribute).obsolete && !removes(m)) {
        Some(change) => {
            let text = format!("{}: attribute is obsolete", change.description.to_text(schema));
            Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text))
        }
        None => Ok(()),
    }
}

/// The no-user-modification rule (RFC 4512 section 4.1.2), from which the relax control exempts some attributes.
fn check_user_modification(
    schema: &Schema,
    mods: &mut [Change],
    latitude: Latitude,
) -> Result<(), LdapResult> {
    for change in mods {
        let attribute_type = schema.attribute(change.description.attribute);
        if !attribute_type.no_user_modification {
            continue;
        }
        if latitude.internal {
            change.access = RequiredAccess::Internal;
            continue;
        }
        if latitude.update && is_replicated(attribute_type.name(), change.kind) {
            continue;
        }
        let text = if !latitude.relax {
            "no user modification allowed"
        } else if is_manageable(attribute_type) {
            change.access = RequiredAccess::Managing;
            continue;
        } else {
            "no-user-modification attribute not manageable"
        };
        let text = format!("{}: {text}", change.description.to_text(schema));
        return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
    }
    Ok(())
}

/// Whether a change leaves entries the entryUUID that replicas, and what is remembered of deletes and conflicts, know them by: in a database
/// that is followed, a manager may give one to a new entry alone.
pub(crate) fn check_identity(schema: &Schema, mods: &[Change]) -> Result<(), LdapResult> {
    let is_identity = |change: &Change| {
        change.access == RequiredAccess::Managing
            && schema.attribute(change.description.attribute).name() == "entryUUID"
    };
    if mods.iter().any(is_identity) {
        let text =
            "entryUUID: consumers of this database know the entry by it: delete the entry, and add it anew";
        return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
    }
    Ok(())
}

/// The operational attributes that the relax control lets a manager write.
pub const MANAGEABLE: [&str; 14] = [
    "createTimestamp",
    "modifyTimestamp",
    "creatorsName",
    "modifiersName",
    "entryUUID",
    "entryTtl",
    // What logins change, which shadows forward.
    "authTimestamp",
    "pwdAccountLockedTime",
    "pwdAccountTmpLockoutEnd",
    "pwdChangedTime",
    "pwdFailureTime",
    "pwdGraceUseTime",
    "pwdHistory",
    "pwdLastSuccess",
];

fn is_manageable(attribute_type: &AttributeType) -> bool {
    MANAGEABLE.contains(&attribute_type.name())
}

/// What every server computes for itself.
const COMPUTED: [&str; 6] = [
    "contextCSN",
    "entryDN",
    "subschemaSubentry",
    "hasSubordinates",
    "numSubordinates",
    "numAllSubordinates",
];

/// Whether no replica takes an attribute from another one, because every server computes it.
pub fn is_computed(description: &str) -> bool {
    let base = description.split(';').next().unwrap_or_default();
    COMPUTED.iter().any(|name| name.eq_ignore_ascii_case(base))
}

/// Whether what replicates to a shadow may write this attribute: what entries keep, and how far their server has come.
fn is_replicated(name: &str, kind: ChangeKind) -> bool {
    match name.eq_ignore_ascii_case(CONTEXT_CSN) {
        true => kind == ChangeKind::Replace,
        false => !is_computed(name),
    }
}

const CONTEXT_CSN: &str = "contextCSN";

struct RenameRequest {
    entry: String,
    new_rdn: String,
    delete_old_rdn: bool,
    new_superior: Option<String>,
}

fn prepare_modify_dn(
    schema: &Schema,
    request: &RenameRequest,
    subschema: &NormalDn,
) -> Result<PreparedChange, LdapResult> {
    let (dn, pretty) = parse_dn(schema, &request.entry, "invalid DN")?;
    let (rdn_as_dn, new_rdn) = parse_dn(schema, &request.new_rdn, "invalid new RDN")?;
    if rdn_as_dn.depth() != 1 {
        return Err(LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid new RDN"));
    }
    let new_superior = match &request.new_superior {
        Some(text) => Some(parse_dn(schema, text, "invalid newSuperior")?.0),
        None => None,
    };
    let mut mods = Vec::new();
    if request.delete_old_rdn && !dn.is_root() {
        mods.extend(naming_changes(schema, &pretty, ChangeKind::Delete)?);
    }
    mods.extend(naming_changes(schema, &new_rdn, ChangeKind::SoftAdd)?);
    let text = if dn.is_root() {
        "cannot rename the root DSE"
    } else if dn == *subschema {
        "cannot rename subschema subentry"
    } else {
        let invalid = || LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid new RDN");
        let parsed = Dn::parse(&new_rdn).map_err(|_| invalid())?;
        let rdn = parsed.rdns().first().ok_or_else(invalid)?;
        let new_normal_rdn = schema.normalize_rdn(rdn).map_err(|_| invalid())?;
        drop(parsed);
        let rename = PreparedModifyDn {
            dn,
            new_rdn,
            new_normal_rdn,
            delete_old_rdn: request.delete_old_rdn,
            new_superior,
            mods,
        };
        check_target(&rename)?;
        return Ok(PreparedChange::ModifyDn(Box::new(rename)));
    };
    Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
}

/// An entry cannot become its own superior or subordinate.
fn check_target(rename: &PreparedModifyDn) -> Result<(), LdapResult> {
    let target = rename.target();
    let text = if target != rename.dn && target.is_descendant_of(&rename.dn) {
        "cannot place an entry below itself"
    } else if target != rename.dn && rename.dn.is_descendant_of(&target) {
        "cannot place an entry above itself"
    } else {
        return Ok(());
    };
    Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
}

/// The changes that a rename makes to the naming attributes of the leaf RDN of `dn`.
pub(crate) fn naming_changes(schema: &Schema, dn: &str, kind: ChangeKind) -> Result<Vec<Change>, LdapResult> {
    let invalid = || LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "unknown type(s)/value(s) used in RDN");
    let parsed = Dn::parse(dn).map_err(|_| invalid())?;
    let Some(rdn) = parsed.rdns().first() else { return Ok(Vec::new()) };
    rdn.avas()
        .iter()
        .map(|ava| {
            let description = schema
                .describe(ava.attribute)
                .map_err(|error| LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, error.to_string()))?;
            let attribute_type = schema.attribute(description.attribute);
            if kind == ChangeKind::Delete && attribute_type.no_user_modification {
                // An entry that replication set aside is called by its entryUUID, which stays when it gets a better name.
                return Ok(None);
            }
            if kind == ChangeKind::SoftAdd && attribute_type.equality.is_none() {
                let text = "naming attribute has no equality matching rule";
                return Err(LdapResult::with(ResultCode::NAMING_VIOLATION, text));
            }
            let values = vec![ava.value.to_vec()];
            let keys = equality_keys(schema, attribute_type, ava.attribute, &values)?;
            Ok(Some(Change { kind, description, values, keys, access: RequiredAccess::User }))
        })
        .filter_map(Result::transpose)
        .collect()
}

#[cfg(test)]
mod tests {
    use larix_schema::SchemaBuilder;

    use super::*;

    /// Two values of one attribute are two modifications of an add only by mistake; those of options are attributes of their own.
    #[test]
    fn an_attribute_comes_once() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = builder.build();
        for (names, refused) in [
            (&["cn", "sn", "description"][..], None),
            (&["cn", "sn", "CN"], Some("attribute 'cn' provided more than once")),
            (&["cn", "cn;lang-en", "cn;lang-de"], None),
            (
                &["sn", "cn;lang-en", "sn;lang-en", "cn;lang-EN"],
                Some("attribute 'cn;lang-en' provided more than once"),
            ),
        ] {
            let attribute = |name: &&str| AttributeValues {
                description: (*name).to_owned(),
                values: vec![b"x".to_vec()],
            };
            let attributes = names.iter().map(attribute).collect();
            let operation = WriteOperation::Add { entry: "cn=x".to_owned(), attributes };
            let prepared =
                prepare(&schema, operation, &NormalDn::from_normal("cn=subschema"), Latitude::default());
            let found = prepared.err().map(|result| result.diagnostic);
            assert_eq!(found.as_deref(), refused, "{names:?}");
        }
    }

    #[test]
    fn an_entry_keeps_its_identity() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = builder.build();
        let check = |name: &str, value: &str, latitude: Latitude, refused: Option<&str>| {
            let attribute =
                AttributeValues { description: name.to_owned(), values: vec![value.as_bytes().to_vec()] };
            let change = Modification { operation: ModifyOperation::Replace, attribute };
            let operation = WriteOperation::Modify { object: "cn=x".to_owned(), changes: vec![change] };
            let found = prepare(&schema, operation, &NormalDn::from_normal("cn=subschema"), latitude);
            let found = found.and_then(|prepared| match prepared {
                PreparedChange::Modify { mods, .. } => check_identity(&schema, &mods),
                _ => Ok(()),
            });
            let found = found.err().map(|result| result.diagnostic);
            assert_eq!(found.as_deref(), refused, "{name} {latitude:?}");
        };
        const UUID: &str = "12345678-1234-1234-1234-123456789abc";
        let relax = Latitude { relax: true, ..Latitude::default() };
        check("createTimestamp", "20200101000000Z", relax, None);
        check("entryUUID", UUID, Latitude { update: true, ..relax }, None);
        check("entryUUID", UUID, Latitude::default(), Some("entryUUID: no user modification allowed"));
        let kept =
            "entryUUID: consumers of this database know the entry by it: delete the entry, and add it anew";
        check("entryUUID", UUID, relax, Some(kept));
    }

    /// A name that the router has parsed gives the same entry as one that is parsed here.
    #[test]
    fn an_add_takes_a_known_name() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = builder.build();
        for name in ["cn=a,dc=x", "CN=A b,DC=X", "commonName=a+sn=b,dc=x", r"cn=a\2Cb,dc=x", "cn=é,dc=x"] {
            let named = |target: Option<NormalDn>| {
                let attribute = AttributeValues { description: "sn".to_owned(), values: vec![b"b".to_vec()] };
                let operation = WriteOperation::Add { entry: name.to_owned(), attributes: vec![attribute] };
                match prepare_at(&schema, operation, target, &NormalDn::root(), Latitude::default()) {
                    Ok(PreparedChange::Add { dn, entry, .. }) => (dn, entry.dn),
                    other => panic!("{name}: {other:?}"),
                }
            };
            assert_eq!(named(Some(schema.parse_dn(name).unwrap())), named(None), "{name}");
        }
    }
}
