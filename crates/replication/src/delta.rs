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
mod tests {
    use larix_engine::audit;

    use super::*;

    const CSN: &str = "20261121153509.070405Z#000000#001#000000";
    const UUID: &str = "e0b80f08-7a0c-1041-93ed-f5d4b3c37bd4";

    fn record(lines: &[(&str, &str)]) -> Vec<AttributeValues> {
        let mut attributes: Vec<AttributeValues> = Vec::new();
        for (name, value) in lines {
            let value = value.as_bytes().to_vec();
            match attributes.iter_mut().find(|a| a.description == *name) {
                Some(attribute) => attribute.values.push(value),
                None => {
                    attributes.push(AttributeValues { description: (*name).to_owned(), values: vec![value] })
                }
            }
        }
        attributes
    }

    fn modification(kind: LoggedKind, name: &str, values: &[&str]) -> LoggedModification {
        let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        LoggedModification { kind, attribute: LoggedAttribute { description: name.to_owned(), values } }
    }

    #[test]
    fn lines_survive() {
        use LoggedKind::{Add, Delete, Increment, Replace};
        for modifications_in in [
            vec![
                modification(Add, "mail", &["a", "b"]),
                modification(Replace, "description", &[]),
                modification(Replace, "description", &["x"]),
                modification(Delete, "mail", &[]),
                modification(Delete, "mail", &["a:+ b", ""]),
                modification(Increment, "uidNumber", &["-1"]),
            ],
            vec![modification(Add, "sn", &["1"]), modification(Add, "sn", &["2"])],
            vec![modification(Delete, "sn", &[]), modification(Delete, "sn", &[])],
            vec![modification(Add, "cn;lang-en", &[" leading"])],
        ] {
            let lines = audit::modification_lines(&modifications_in);
            assert_eq!(modifications(&lines).as_ref(), Ok(&modifications_in), "{lines:?}");
        }
    }

    #[test]
    fn lines_that_are_none() {
        for line in ["", "sn", "sn:", "sn:? x", "sn:+x", "sn:+", "sn:#", ":+ x"] {
            let read = modifications(&[line.as_bytes().to_vec()]);
            assert!(matches!(read, Err(DeltaError::Value { attribute: "reqMod", .. })), "{line}: {read:?}");
        }
    }

    fn check(lines: &[(&str, &str)], expected: Result<Option<LoggedChange>, DeltaError>) {
        let read = change_of(&record(lines));
        let read = read.map(|change| {
            change.map(|change| match change {
                ReplicatedChange::Delta { entry_uuid, dn, csn, change, .. } => {
                    assert_eq!(entry_uuid, Some(UUID.parse().unwrap()));
                    assert_eq!((dn.as_str(), csn), ("cn=A,dc=b", CSN.parse().unwrap()));
                    change
                }
                other => panic!("{other:?}"),
            })
        });
        assert_eq!(read, expected, "{lines:?}");
    }

    #[test]
    fn records() {
        let common = [("reqDN", "cn=A,dc=b"), ("reqResult", "0"), ("reqEntryUUID", UUID)];
        let with = |more: &[(&'static str, &'static str)]| [&common[..], more].concat();
        let csn_line = "entryCSN:= 20261121153509.070405Z#000000#001#000000";
        check(
            &with(&[("reqType", "modify"), ("reqMod", "sn:= C"), ("reqMod", csn_line), ("entryCSN", "x")]),
            Ok(Some(LoggedChange::Modify(vec![
                modification(LoggedKind::Replace, "sn", &["C"]),
                modification(LoggedKind::Replace, "entryCSN", &[CSN]),
            ]))),
        );
        check(&with(&[("reqType", "delete"), ("entryCSN", CSN)]), Ok(Some(LoggedChange::Delete)));
        check(
            &with(&[
                ("reqType", "modrdn"),
                ("reqNewRDN", "cn=Z+sn=Q"),
                ("reqDeleteOldRDN", "TRUE"),
                ("reqNewSuperior", "dc=c"),
                ("reqMod", csn_line),
            ]),
            Ok(Some(LoggedChange::ModifyDn {
                new_rdn: "cn=Z+sn=Q".to_owned(),
                delete_old_rdn: true,
                new_superior: Some("dc=c".to_owned()),
                modifications: vec![
                    modification(LoggedKind::Delete, "cn", &["A"]),
                    modification(LoggedKind::SoftAdd, "cn", &["Z"]),
                    modification(LoggedKind::SoftAdd, "sn", &["Q"]),
                    modification(LoggedKind::Replace, "entryCSN", &[CSN]),
                ],
            })),
        );
        check(&with(&[("reqType", "bind")]), Ok(None));
        check(&[("objectClass", "auditContainer"), ("cn", "log")], Ok(None));
        check(&[("reqType", "add"), ("reqResult", "68")], Ok(None));
        check(&with(&[("reqType", "add"), ("entryCSN", CSN)]), Err(DeltaError::Missing("reqMod")));
        check(&with(&[("reqType", "delete")]), Err(DeltaError::Missing("entryCSN")));
        check(&with(&[("reqType", "modrdn")]), Err(DeltaError::Missing("reqNewRDN")));
        check(&with(&[("reqType", "unheard")]), Err(DeltaError::Type("unheard".to_owned())));
    }

    #[test]
    fn an_add_brings_its_own_identity() {
        let uuid_line = format!("entryUUID:+ {UUID}");
        let csn_line = format!("entryCSN:+ {CSN}");
        let lines = [
            ("reqDN", "cn=A,dc=b"),
            ("reqType", "add"),
            ("reqMod", "objectClass:+ person"),
            ("reqMod", uuid_line.as_str()),
            ("reqMod", csn_line.as_str()),
            ("reqMod", "objectClass:+ top"),
        ];
        let attribute = |name: &str, values: &[&str]| LoggedAttribute {
            description: name.to_owned(),
            values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        check(
            &lines,
            Ok(Some(LoggedChange::Add(vec![
                attribute("objectClass", &["person", "top"]),
                attribute("entryUUID", &[UUID]),
                attribute("entryCSN", &[CSN]),
            ]))),
        );
    }

    /// The log has changes of the whole database, and the line asks for what is below one entry.
    #[test]
    fn what_stays_outside_of_the_searchbase_is_no_change() {
        let mut builder = larix_schema::SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = std::sync::Arc::new(builder.build());
        let base = schema.parse_dn("ou=in,dc=b").unwrap();
        let massage = Massage::new(schema, base, "o=here");
        let called = |new_rdn: &str, new_superior: Option<&str>| LoggedChange::ModifyDn {
            new_rdn: new_rdn.to_owned(),
            delete_old_rdn: true,
            new_superior: new_superior.map(str::to_owned),
            modifications: Vec::new(),
        };
        let rename = |new_superior: Option<&str>| called("cn=z", new_superior);
        let modify = || LoggedChange::Modify(Vec::new());
        for (dn, change, expected) in [
            ("cn=a,ou=in,dc=b", modify(), Ok(Some("cn=a,o=here"))),
            ("cn=a,ou=out,dc=b", modify(), Ok(None)),
            ("cn=a,ou=out,dc=b", LoggedChange::Delete, Ok(None)),
            ("cn=a,ou=out,dc=b", LoggedChange::Add(Vec::new()), Ok(None)),
            ("cn=a,ou=out,dc=b", rename(None), Ok(None)),
            ("cn=a,ou=out,dc=b", rename(Some("ou=other,dc=b")), Ok(None)),
            ("cn=a,ou=out,dc=b", rename(Some("ou=in,dc=b")), Err(())),
            ("cn=a,ou=in,dc=b", rename(Some("ou=out,dc=b")), Err(())),
            ("cn=a,ou=in,dc=b", rename(Some("ou=deep,ou=in,dc=b")), Ok(Some("cn=a,o=here"))),
            // The searchbase itself, and what is above it.
            ("ou=old,dc=b", called("ou=in", None), Err(())),
            ("ou=in,dc=b", called("ou=old", Some("dc=b")), Err(())),
            ("ou=in,dc=b", called("ou=old", None), Err(())),
            ("dc=b", called("dc=c", None), Err(())),
            ("dc=b", modify(), Ok(None)),
            ("no name", modify(), Err(())),
        ] {
            let delta = ReplicatedChange::Delta {
                entry_uuid: None,
                dn: dn.to_owned(),
                csn: CSN.parse().unwrap(),
                change: change.clone(),
                place: None,
                whole: false,
            };
            let found = massaged(delta, &massage).map_err(drop);
            let found = found.map(|change| change.map(|change| name_of(&change)));
            assert_eq!(found, expected.map(|dn| dn.map(str::to_owned)), "{dn}: {change:?}");
        }
    }

    fn name_of(change: &ReplicatedChange) -> String {
        let ReplicatedChange::Delta { dn, .. } = change else { panic!("{change:?}") };
        dn.clone()
    }
}
