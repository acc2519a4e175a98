//! The part of a replicated change that needs no entry, on the caller's thread: names resolved, values checked against
//! their syntaxes.

use larix_proto::{Dn, LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};
use uuid::Uuid;

use super::state::is_computed;
use super::value::{EntryState, Received, counted};
use super::{EntryPlace, ReplicaRules, ReplicatedChange};
use crate::change::prepare::{Change, ChangeKind, RequiredAccess, check_change};
use crate::change::values::with_value;
use crate::csn::Csn;
use crate::database::Suffix;
use crate::log::{LoggedChange, LoggedKind, LoggedModification, ReceivedChange};
use crate::write::AttributeValues;
use crate::write::entry_state::without_passing_values;
use crate::write::known::KnownSchema;

/// A replicated change that is ready for the writer.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    Put(Box<Put>),
    Delete {
        uuid: Uuid,
        csn: Option<Csn>,
    },
    Delta(Box<Delta>),
    /// It tells nothing that a replica takes.
    Nothing,
    Refused(LdapResult),
}

/// An entry in its future form.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) uuid: Uuid,
    pub(crate) dn: NormalDn,
    /// The DN in pretty form.
    pub(crate) pretty_dn: String,
    /// Its entryCSN.
    pub(crate) csn: Option<Csn>,
    /// When it got its name; its entryCSN where nothing else is known.
    pub(crate) named: Option<Csn>,
    /// modifiersName.
    pub(crate) modifier: String,
    /// The attributes, each as an add of its values.
    pub(crate) attributes: Vec<Change>,
    /// Where conflicts are settled value by value.
    pub(crate) state: Option<Box<EntryState>>,
    /// Where it stands, if the provider sent that.
    pub(crate) place: Option<EntryPlace>,
    /// It is what a record of an access log tells: the change as it came. None within: the add of this entry.
    pub(crate) record: Option<Option<Box<ReceivedChange>>>,
}

impl Put {
    /// One of which nothing else is known than the entry. `name`: the DN, and its pretty form.
    pub(crate) fn new(
        uuid: Uuid,
        name: (NormalDn, String),
        csn: Option<Csn>,
        modifier: String,
        attributes: Vec<Change>,
    ) -> Self {
        let (dn, pretty_dn) = name;
        let (named, state, place, record) = (csn, None, None, None);
        Self { uuid, dn, pretty_dn, csn, named, modifier, attributes, state, place, record }
    }
}

/// One logged change, resolved.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) dn: NormalDn,
    /// The DN in pretty form.
    pub(crate) pretty_dn: String,
    pub(crate) csn: Csn,
    pub(crate) change: DeltaChange,
    /// Where a rename put it, if the provider sent that.
    pub(crate) place: Option<EntryPlace>,
    /// The change as it was received.
    pub(crate) received: Box<ReceivedChange>,
    /// It is what it took to make the entry another server's version of it.
    pub(crate) whole: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum DeltaChange {
    Modify(Vec<Change>),
    Delete,
    Rename { new_rdn: String, delete_old_rdn: bool, new_superior: Option<String>, mods: Vec<Change> },
}

/// Whether a record of an access log is about an entry of another database, and leaves it there: a log may record several.
pub(crate) fn is_elsewhere(schema: &Schema, suffixes: &[Suffix], change: &ReplicatedChange) -> bool {
    let ReplicatedChange::Delta { dn, change, .. } = change else { return false };
    let Ok(dn) = schema.parse_dn(dn) else { return false };
    let is_outside = |dn: &NormalDn| suffixes.iter().all(|suffix| !dn.is_within(&suffix.normal));
    let LoggedChange::ModifyDn { new_superior, .. } = change else { return is_outside(&dn) };
    // What is above the suffix may bring an entry there by a rename.
    let is_apart =
        |dn: &NormalDn| is_outside(dn) && suffixes.iter().all(|suffix| !suffix.normal.is_within(dn));
    let superior = match new_superior {
        Some(superior) => schema.parse_dn(superior).ok(),
        None => dn.parent(),
    };
    is_apart(&dn) && superior.is_some_and(|superior| is_apart(&superior))
}

pub(crate) fn prepare(
    schema: &Schema,
    known: &KnownSchema,
    rules: &ReplicaRules,
    change: ReplicatedChange,
) -> Ready {
    let prepared = match change {
        ReplicatedChange::Put { ref attributes, .. } if rules.multi_provider && is_glue(attributes) => {
            Ok(Ready::Nothing)
        }
        ReplicatedChange::Put { entry_uuid, dn, attributes, state, place } => {
            Received::whole(schema, &dn, state.as_deref(), || counted(&attributes)).and_then(|state| {
                let mut put = put(schema, known, rules, entry_uuid, &dn, attributes)?;
                put.named = state.as_ref().map_or(put.csn, |state| state.named());
                put.state = state;
                if let Some(place) = &place {
                    names(schema, &place.name)?;
                }
                put.place = place;
                Ok(Ready::Put(Box::new(put)))
            })
        }
        ReplicatedChange::Delete { entry_uuid: uuid, csn } => Ok(Ready::Delete { uuid, csn }),
        ReplicatedChange::Delta { entry_uuid, dn, csn, change, place, whole } => {
            delta(schema, known, rules, (entry_uuid, &dn, csn), change).map(|ready| match ready {
                Ready::Delta(delta) => Ready::Delta(Box::new(Delta { place, whole, ..*delta })),
                Ready::Put(put) => Ready::Put(Box::new(Put { place, record: Some(None), ..*put })),
                other => other,
            })
        }
    };
    prepared.unwrap_or_else(Ready::Refused)
}

/// Whether this stands for a superior that the provider lacks. A slapd sends it as an entry, with an entryUUID that
/// other servers do not know and a CSN of the change that asked for it, so that not all members are sent it. What is
/// below it makes glue here.
fn is_glue(attributes: &[AttributeValues]) -> bool {
    let classes = attributes.iter().filter(|one| one.description.eq_ignore_ascii_case("objectClass"));
    classes.flat_map(|one| &one.values).any(|class| class.eq_ignore_ascii_case(b"glue"))
}

/// The normal form of a DN, and the pretty one.
pub(super) fn names(schema: &Schema, text: &str) -> Result<(NormalDn, String), LdapResult> {
    let invalid = || LdapResult::with(ResultCode::INVALID_DN_SYNTAX, format!("\"{text}\": invalid DN"));
    let dn = Dn::parse(text).map_err(|_| invalid())?;
    let normal = schema.normalize_dn(&dn).map_err(|_| invalid())?;
    Ok((normal, schema.pretty_dn(&dn).map_err(|_| invalid())?))
}

fn put(
    schema: &Schema,
    known: &KnownSchema,
    rules: &ReplicaRules,
    uuid: Uuid,
    dn: &str,
    attributes: Vec<AttributeValues>,
) -> Result<Put, LdapResult> {
    let (dn, pretty_dn) = names(schema, dn)?;
    let mut all = Vec::with_capacity(attributes.len() + 1);
    for attribute in attributes.into_iter().filter(|attribute| !attribute.values.is_empty()) {
        if let Some(change) = one(schema, rules, ChangeKind::Add, attribute)? {
            all.push(change);
        }
    }
    let text = uuid.to_string();
    let own = check_change(
        schema,
        ChangeKind::Add,
        AttributeValues { description: "entryUUID".to_owned(), values: vec![text.into_bytes()] },
    )?;
    match all.iter_mut().find(|change: &&mut Change| change.description.attribute == known.entry_uuid) {
        Some(sent) => *sent = own,
        None => all.push(own),
    }
    let value = |id| first_value(&all, id);
    let csn = value(known.entry_csn).and_then(|text| text.parse().ok());
    let modifier = value(known.modifiers_name).unwrap_or_default().to_owned();
    if !all.iter().any(|change| change.description.attribute == known.object_class) {
        let text = format!("\"{pretty_dn}\": no objectClass attribute");
        return Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text));
    }
    Ok(Put::new(uuid, (dn, pretty_dn), csn, modifier, all))
}

pub(super) fn first_value(changes: &[Change], id: larix_schema::AttributeTypeId) -> Option<&str> {
    let change = changes.iter().find(|change| change.description == AttributeDescription::plain(id))?;
    std::str::from_utf8(change.values.first()?).ok()
}

/// One attribute, or `None` for one that is left out.
fn one(
    schema: &Schema,
    rules: &ReplicaRules,
    kind: ChangeKind,
    attribute: AttributeValues,
) -> Result<Option<Change>, LdapResult> {
    let base = attribute.description.split(';').next().unwrap_or_default();
    if is_computed(base) {
        return Ok(None);
    }
    if schema.attribute_type(base).is_none() && rules.drop_unknown {
        return Ok(None);
    }
    if let Ok(description) = schema.describe(&attribute.description)
        && !rules.attributes.covers(schema, &description)
    {
        return Ok(None);
    }
    // Which class is lacking is what the log has to say.
    let classes = base.eq_ignore_ascii_case("objectClass").then(|| attribute.values.clone());
    let change = check_change(schema, kind, attribute).map_err(|result| match &classes {
        Some(classes) => with_value(result, classes),
        None => result,
    })?;
    Ok(Some(Change { access: RequiredAccess::Internal, ..change }))
}

fn delta(
    schema: &Schema,
    known: &KnownSchema,
    rules: &ReplicaRules,
    (uuid, dn, csn): (Option<Uuid>, &str, Csn),
    change: LoggedChange,
) -> Result<Ready, LdapResult> {
    let received = Box::new(ReceivedChange { dn: dn.to_owned(), change: change.clone() });
    // What an entry is does not change, though it was called by that and is so no more.
    let modifications = |mods| -> Result<Vec<Change>, LdapResult> {
        let mut changes = modifications_of(schema, rules, mods)?;
        changes.retain(|change| change.description.attribute != known.entry_uuid);
        Ok(changes)
    };
    let change = match change {
        LoggedChange::Add(attributes) => {
            let attributes: Vec<_> = attributes
                .into_iter()
                .map(|a| AttributeValues { description: a.description, values: a.values })
                .collect();
            let stated = attributes.iter().find(|a| a.description.eq_ignore_ascii_case("entryUUID"));
            let stated = stated.and_then(|a| Uuid::try_parse_ascii(a.values.first()?).ok());
            let Some(uuid) = uuid.or(stated) else {
                let text = format!("\"{dn}\": added without entryUUID");
                return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
            };
            if rules.multi_provider && is_glue(&attributes) {
                return Ok(Ready::Nothing);
            }
            let mut put = put(schema, known, rules, uuid, dn, attributes)?;
            put.csn = put.csn.or(Some(csn));
            put.named = put.csn;
            return Ok(Ready::Put(Box::new(put)));
        }
        // A slapd logs its contextCSN as a change of its suffix, under the CSN of another change and without one of
        // its own: the entry does not change there.
        LoggedChange::Modify(mods) if tells_computed_alone(&mods) => return Ok(Ready::Nothing),
        // As a slapd lets a manager do: who asks for the entries receives another entry in this one's place.
        LoggedChange::Modify(mods) if gives_another_uuid(&mods, uuid) => {
            let text = format!("\"{dn}\" has another entryUUID now");
            return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text));
        }
        LoggedChange::Modify(mods) => DeltaChange::Modify(modifications(mods)?),
        LoggedChange::Delete => DeltaChange::Delete,
        LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, modifications: mods } => {
            let mods = without_passing_values(schema, modifications(mods)?);
            DeltaChange::Rename { new_rdn, delete_old_rdn, new_superior, mods }
        }
    };
    let (dn, pretty_dn) = names(schema, dn)?;
    Ok(Ready::Delta(Box::new(Delta {
        uuid,
        dn,
        pretty_dn,
        csn,
        change,
        place: None,
        received,
        whole: false,
    })))
}

fn tells_computed_alone(modifications: &[LoggedModification]) -> bool {
    let is_own = |modification: &LoggedModification| is_computed(&modification.attribute.description);
    !modifications.is_empty() && modifications.iter().all(is_own)
}

fn gives_another_uuid(modifications: &[LoggedModification], uuid: Option<Uuid>) -> bool {
    let is_it = |modification: &&LoggedModification| {
        modification.kind != LoggedKind::Delete
            && modification.attribute.description.eq_ignore_ascii_case("entryUUID")
    };
    let mut values =
        modifications.iter().filter(is_it).flat_map(|modification| &modification.attribute.values);
    values.any(|value| Uuid::try_parse_ascii(value).ok() != uuid)
}

pub(super) fn modifications_of(
    schema: &Schema,
    rules: &ReplicaRules,
    modifications: Vec<LoggedModification>,
) -> Result<Vec<Change>, LdapResult> {
    let mut changes = Vec::with_capacity(modifications.len());
    for LoggedModification { kind, attribute } in modifications {
        let kind = match kind {
            LoggedKind::Add => ChangeKind::Add,
            LoggedKind::Delete => ChangeKind::Delete,
            LoggedKind::Replace => ChangeKind::Replace,
            LoggedKind::Increment => ChangeKind::Increment,
            LoggedKind::SoftAdd => ChangeKind::SoftAdd,
        };
        let attribute = AttributeValues { description: attribute.description, values: attribute.values };
        changes.extend(one(schema, rules, kind, attribute)?);
    }
    Ok(changes)
}
