//! Delta-syncrepl: a record of an access log, slapd's or ours, becomes the change that it tells of.
//!
//! What cannot be understood is an error, and never guessed at: the consumer then asks for the entries themselves.

use std::fmt;

use larix_engine::audit;
use larix_engine::csn::Csn;
use larix_engine::entry::split_rdn;
use larix_engine::log::{LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_engine::replica::{EntryPlace, ReplicatedChange};
use larix_engine::write::AttributeValues;
use larix_proto::Dn;
use uuid::Uuid;

use crate::consumer::Massage;

/// The filter for the records that are of use (`logfilter`).
pub const FILTER: &str = "(&(objectClass=auditWriteObject)(reqResult=0))";

/// A record that does not tell what was done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DeltaError {
    /// An attribute without which the change is not known.
    Missing(&'static str),
    /// An attribute's value that is not understood.
    Value { attribute: &'static str, value: String },
    /// A reqType that is no change.
    Type(String),
}

impl fmt::Display for DeltaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(attribute) => write!(f, "a record of the access log has no {attribute}"),
            Self::Value { attribute, value } => {
                write!(f, "a record of the access log has {attribute} \"{value}\", which is not understood")
            }
            Self::Type(word) => write!(f, "a record of the access log is of the type \"{word}\""),
        }
    }
}

impl std::error::Error for DeltaError {}

/// The change that a record tells of; `None` for entries that tell of none: the log's own first entry, operations that
/// failed or changed nothing.
///
/// # Errors
/// See [`DeltaError`].
pub fn change_of(record: &[AttributeValues]) -> Result<Option<ReplicatedChange>, DeltaError> {
    let record = Record(record);
    let Some(word) = record.text("reqType")? else { return Ok(None) };
    if record.text("reqResult")?.is_some_and(|code| code != "0") {
        return Ok(None);
    }
    let change = match word.to_ascii_lowercase().as_str() {
        "add" => LoggedChange::Add(added(record.modifications()?)?),
        "modify" => LoggedChange::Modify(record.modifications()?),
        "delete" => LoggedChange::Delete,
        "modrdn" => record.rename()?,
        "compare" | "search" | "bind" | "unbind" | "abandon" => return Ok(None),
        other if other.starts_with("extended") => return Ok(None),
        _ => return Err(DeltaError::Type(word.to_owned())),
    };
    let dn = record.text("reqDN")?.ok_or(DeltaError::Missing("reqDN"))?.to_owned();
    let entry_uuid = match record.text("reqEntryUUID")? {
        None => own_uuid(&change),
        Some(text) => Some(Uuid::try_parse(text).map_err(|_| wrong("reqEntryUUID", text.as_bytes()))?),
    };
    let csn = match own_csn(&change) {
        Some(text) => text,
        None => record.bytes("entryCSN").ok_or(DeltaError::Missing("entryCSN"))?.to_vec(),
    };
    let parsed = std::str::from_utf8(&csn).ok().and_then(|text| text.parse::<Csn>().ok());
    let csn = parsed.ok_or_else(|| wrong("entryCSN", &csn))?;
    let whole = record.text(audit::WHOLE)?.is_some();
    Ok(Some(ReplicatedChange::Delta { entry_uuid, dn, csn, change, place: record.place()?, whole }))
}

/// The change under the names that hold here; `None` if it is about an entry that is not below the searchbase, and stays outside: the log
/// has all changes of the provider's database.
///
/// # Errors
/// A rename that brings an entry below the searchbase, or takes it away from there, or changes the name of the searchbase: the record
/// does not have what the entries are.
pub fn massaged(change: ReplicatedChange, massage: &Massage) -> Result<Option<ReplicatedChange>, String> {
    let ReplicatedChange::Delta { entry_uuid, dn, csn, mut change, place, whole } = change else {
        return Ok(Some(change));
    };
    let behind = match &change {
        LoggedChange::ModifyDn { new_rdn, new_superior, .. } => {
            let superior = new_superior.as_deref().unwrap_or_else(|| split_rdn(&dn).1);
            Some(if superior.is_empty() { new_rdn.clone() } else { format!("{new_rdn},{superior}") })
        }
        _ => None,
    };
    let stays_outside = match &behind {
        Some(name) => massage.is_apart(&dn) && massage.is_apart(name),
        None => massage.is_apart(&dn) || massage.is_above(&dn),
    };
    if stays_outside {
        return Ok(None);
    }
    let named =
        |dn: &str| massage.dn(dn).ok_or_else(|| format!("entry \"{dn}\" is not below the searchbase"));
    if let Some(name) = &behind {
        named(name)?;
    }
    let values = |attribute: &mut LoggedAttribute| {
        let LoggedAttribute { description, values } =
            std::mem::replace(attribute, LoggedAttribute { description: String::new(), values: Vec::new() });
        let mut own = AttributeValues { description, values };
        massage.values(&mut own);
        *attribute = LoggedAttribute { description: own.description, values: own.values };
    };
    match &mut change {
        LoggedChange::Add(attributes) => attributes.iter_mut().for_each(values),
        LoggedChange::Modify(modifications) => {
            modifications.iter_mut().for_each(|modification| values(&mut modification.attribute));
        }
        LoggedChange::Delete => {}
        LoggedChange::ModifyDn { new_superior, modifications, .. } => {
            if let Some(superior) = new_superior {
                *superior = named(superior)?;
            }
            modifications.iter_mut().for_each(|modification| values(&mut modification.attribute));
        }
    }
    Ok(Some(ReplicatedChange::Delta { entry_uuid, dn: named(&dn)?, csn, change, place, whole }))
}

fn wrong(attribute: &'static str, value: &[u8]) -> DeltaError {
    DeltaError::Value { attribute, value: String::from_utf8_lossy(value).into_owned() }
}

/// The attributes of one record.
struct Record<'r>(&'r [AttributeValues]);

impl<'r> Record<'r> {
    fn values(&self, name: &str) -> &'r [Vec<u8>] {
        let found = self.0.iter().find(|attribute| attribute.description.eq_ignore_ascii_case(name));
        found.map_or(&[], |attribute| &attribute.values)
    }

    fn bytes(&self, name: &str) -> Option<&'r [u8]> {
        self.values(name).first().map(Vec::as_slice)
    }

    fn text(&self, name: &'static str) -> Result<Option<&'r str>, DeltaError> {
        let text = |value| std::str::from_utf8(value).map_err(|_| wrong(name, value));
        self.bytes(name).map(text).transpose()
    }

    /// Where an add or a rename put the entry, as a Larix says it.
    fn place(&self) -> Result<Option<EntryPlace>, DeltaError> {
        let Some(text) = self.text(audit::PLACE)? else { return Ok(None) };
        let place = text.split_once(' ').and_then(|(superior, name)| {
            Some(EntryPlace { superior: Uuid::try_parse(superior).ok()?, name: name.to_owned() })
        });
        place.map(Some).ok_or_else(|| wrong(audit::PLACE, text.as_bytes()))
    }

    fn modifications(&self) -> Result<Vec<LoggedModification>, DeltaError> {
        modifications(self.values("reqMod"))
    }

    fn rename(&self) -> Result<LoggedChange, DeltaError> {
        let dn = self.text("reqDN")?.ok_or(DeltaError::Missing("reqDN"))?;
        let new_rdn = self.text("reqNewRDN")?.ok_or(DeltaError::Missing("reqNewRDN"))?;
        let delete_old_rdn = match self.text("reqDeleteOldRDN")? {
            Some("TRUE") => true,
            Some("FALSE") => false,
            Some(other) => return Err(wrong("reqDeleteOldRDN", other.as_bytes())),
            None => return Err(DeltaError::Missing("reqDeleteOldRDN")),
        };
        let new_superior = self.text("reqNewSuperior")?.map(str::to_owned);
        // The log leaves out what the name itself tells.
        let mut modifications = Vec::new();
        if delete_old_rdn {
            modifications.extend(naming("reqDN", dn, LoggedKind::Delete)?);
        }
        modifications.extend(naming("reqNewRDN", new_rdn, LoggedKind::SoftAdd)?);
        modifications.extend(self.modifications()?);
        let new_rdn = new_rdn.to_owned();
        Ok(LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, modifications })
    }
}

/// What the values of the first RDN are to an entry that gets, or loses, the name.
fn naming(
    attribute: &'static str,
    dn: &str,
    kind: LoggedKind,
) -> Result<Vec<LoggedModification>, DeltaError> {
    let parsed = Dn::parse(dn).map_err(|_| wrong(attribute, dn.as_bytes()))?;
    let rdn = parsed.rdns().first().ok_or_else(|| wrong(attribute, dn.as_bytes()))?;
    let one = |description: &str, value: &[u8]| LoggedModification {
        kind,
        attribute: LoggedAttribute { description: description.to_owned(), values: vec![value.to_vec()] },
    };
    Ok(rdn.avas().iter().map(|ava| one(ava.attribute, &ava.value)).collect())
}

/// The entry that an add's lines make.
fn added(modifications: Vec<LoggedModification>) -> Result<Vec<LoggedAttribute>, DeltaError> {
    let mut attributes: Vec<LoggedAttribute> = Vec::new();
    for LoggedModification { kind, attribute } in modifications {
        if kind != LoggedKind::Add {
            return Err(wrong("reqMod", attribute.description.as_bytes()));
        }
        match attributes.iter_mut().find(|a| a.description.eq_ignore_ascii_case(&attribute.description)) {
            Some(known) => known.values.extend(attribute.values),
            None => attributes.push(attribute),
        }
    }
    if attributes.is_empty() { Err(DeltaError::Missing("reqMod")) } else { Ok(attributes) }
}

/// Lines of reqMod: `attribute:` and one of `+-=#`, then a space and the value, or nothing for the whole attribute. Lines
/// of one attribute and kind that follow each other are one modification, unless a colon alone stands between them.
pub fn modifications(lines: &[Vec<u8>]) -> Result<Vec<LoggedModification>, DeltaError> {
    let mut all: Vec<LoggedModification> = Vec::new();
    let mut apart = true;
    for line in lines {
        if line == b":" {
            apart = true;
            continue;
        }
        let (description, kind, value) = parsed(line).ok_or_else(|| wrong("reqMod", line))?;
        let same = |last: &&mut LoggedModification| {
            !apart && last.kind == kind && last.attribute.description.eq_ignore_ascii_case(description)
        };
        match (all.last_mut().filter(same), value) {
            (Some(last), Some(value)) => last.attribute.values.push(value.to_vec()),
            // The whole attribute twice is two modifications.
            (_, value) => {
                let values = value.map(<[u8]>::to_vec).into_iter().collect();
                let description = description.to_owned();
                let attribute = LoggedAttribute { description, values };
                all.push(LoggedModification { kind, attribute });
            }
        }
        // Values never join what was about the whole attribute.
        apart = value.is_none();
    }
    Ok(all)
}

fn parsed(line: &[u8]) -> Option<(&str, LoggedKind, Option<&[u8]>)> {
    let at = line.iter().position(|byte| *byte == b':')?;
    let (description, rest) = line.split_at_checked(at)?;
    let description = std::str::from_utf8(description).ok().filter(|text| !text.is_empty())?;
    let (kind, rest) = rest.get(1..)?.split_first()?;
    let kind = match kind {
        b'+' => LoggedKind::Add,
        b'-' => LoggedKind::Delete,
        b'=' => LoggedKind::Replace,
        b'#' => LoggedKind::Increment,
        _ => return None,
    };
    let value = match rest {
        [] => None,
        [b' ', value @ ..] => Some(value),
        _ => return None,
    };
    let needs_value = matches!(kind, LoggedKind::Add | LoggedKind::Increment);
    (value.is_some() || !needs_value).then_some((description, kind, value))
}

/// The CSN that a change gives its entry.
fn own_csn(change: &LoggedChange) -> Option<Vec<u8>> {
    let is_it = |attribute: &&LoggedAttribute| attribute.description.eq_ignore_ascii_case("entryCSN");
    let last = |modifications: &[LoggedModification]| {
        let mut attributes = modifications.iter().map(|m| &m.attribute);
        attributes.rfind(is_it).and_then(|attribute| attribute.values.first().cloned())
    };
    match change {
        LoggedChange::Add(attributes) => {
            attributes.iter().find(is_it).and_then(|attribute| attribute.values.first().cloned())
        }
        LoggedChange::Modify(modifications) | LoggedChange::ModifyDn { modifications, .. } => {
            last(modifications)
        }
        LoggedChange::Delete => None,
    }
}

/// The entryUUID that an add gives its entry: records that older servers wrote have it there alone.
fn own_uuid(change: &LoggedChange) -> Option<Uuid> {
    let LoggedChange::Add(attributes) = change else { return None };
    let found = attributes.iter().find(|attribute| attribute.description.eq_ignore_ascii_case("entryUUID"));
    Uuid::try_parse_ascii(found?.values.first()?).ok()
}

#[cfg(test)]
mod tests;
