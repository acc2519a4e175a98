//! What takes a logged change back: from its record, and from earlier ones of the same entry where it lacks old values.

use larix_engine::log::{LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_proto::{Dn, ModifyOperation};
use larix_schema::Schema;

use super::client::{AttributeChange, ReceivedAttribute};
use super::{names, schema};

/// A change that takes another one back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    Delete { dn: String },
    Add { dn: String, attributes: Vec<ReceivedAttribute> },
    Modify { dn: String, changes: Vec<AttributeChange> },
    Rename { dn: String, rdn: String, delete_old: bool, superior: Option<String> },
}

impl Undo {
    /// The entry that it changes, by the name that it has now.
    pub(super) fn dn(&self) -> &str {
        match self {
            Self::Delete { dn }
            | Self::Add { dn, .. }
            | Self::Modify { dn, .. }
            | Self::Rename { dn, .. } => dn,
        }
    }
}

/// What takes a change back. `earlier`: records of the same entry before it, the oldest first.
///
/// # Errors
/// What the log lacks, as a sentence.
pub(super) fn of(schema: &Schema, record: &LogRecord, earlier: &[LogRecord]) -> Result<Undo, String> {
    if record.local || record.absent {
        return Err(
            "The server made this change by itself, and takes it back with the change that caused it."
                .to_owned(),
        );
    }
    let dn = record.dn.clone();
    match &record.change {
        LoggedChange::Add(_) => Ok(Undo::Delete { dn }),
        LoggedChange::Delete => {
            let attributes = entry_before(schema, record, earlier)?;
            Ok(Undo::Add { dn, attributes })
        }
        LoggedChange::Modify(modifications) => {
            let mut changes = Vec::new();
            for (at, modification) in modifications.iter().enumerate().rev() {
                if is_of_server(schema, &modification.attribute.description) {
                    continue;
                }
                let before = || {
                    values_before(
                        record,
                        earlier,
                        modifications.get(..at).unwrap_or(&[]),
                        &modification.attribute.description,
                    )
                };
                changes.extend(inverse(modification, before)?);
            }
            if changes.is_empty() {
                return Err(
                    "This change set nothing but attributes that the server keeps by itself.".to_owned()
                );
            }
            Ok(Undo::Modify { dn, changes })
        }
        LoggedChange::ModifyDn { new_rdn, new_superior, modifications, .. } => {
            let old_parent = names::parent(&dn).unwrap_or_default();
            let parent = new_superior.clone().unwrap_or_else(|| old_parent.clone());
            // What the rename added to the entry goes again.
            let added = modifications.iter().any(|one| {
                matches!(one.kind, LoggedKind::Add | LoggedKind::SoftAdd | LoggedKind::Replace)
                    && is_named(new_rdn, &one.attribute.description)
            });
            Ok(Undo::Rename {
                dn: names::below(new_rdn, &parent),
                rdn: names::first(&dn),
                delete_old: added,
                superior: new_superior.is_some().then_some(old_parent),
            })
        }
    }
}

/// Attributes that clients cannot write.
fn is_of_server(schema: &Schema, description: &str) -> bool {
    schema.attribute_type(schema::base_name(description)).is_none_or(|kind| kind.no_user_modification)
}

fn is_named(rdn: &str, description: &str) -> bool {
    let Ok(parsed) = Dn::parse(rdn) else { return false };
    let avas = parsed.rdns().first().map(|first| first.avas().to_vec()).unwrap_or_default();
    avas.iter().any(|ava| ava.attribute.eq_ignore_ascii_case(description))
}

fn inverse(
    modification: &LoggedModification,
    before: impl FnOnce() -> Option<Vec<Vec<u8>>>,
) -> Result<Option<AttributeChange>, String> {
    let LoggedAttribute { description, values } = &modification.attribute;
    let change = |operation, values: Vec<Vec<u8>>| {
        Ok(Some(AttributeChange { operation, name: description.clone(), values }))
    };
    match modification.kind {
        LoggedKind::Add if !values.is_empty() => change(ModifyOperation::Delete, values.clone()),
        LoggedKind::Delete if !values.is_empty() => change(ModifyOperation::Add, values.clone()),
        _ => match before() {
            Some(old) => change(ModifyOperation::Replace, old),
            None => Err(format!(
                "The change log does not say which values {description} had before this change. Take them from a backup \
                 (larix restore)."
            )),
        },
    }
}

/// The values of one attribute before a modification of this record; `None` where the log does not say.
fn values_before(
    record: &LogRecord,
    earlier: &[LogRecord],
    within: &[LoggedModification],
    description: &str,
) -> Option<Vec<Vec<u8>>> {
    let same = |name: &str| name.eq_ignore_ascii_case(description);
    let mut current_values = None;
    for one in earlier {
        match &one.change {
            LoggedChange::Add(attributes) => {
                let found = attributes.iter().find(|attribute| same(&attribute.description));
                current_values = Some(found.map_or_else(Vec::new, |attribute| attribute.values.clone()));
            }
            LoggedChange::Modify(modifications) | LoggedChange::ModifyDn { modifications, .. } => {
                modifications.iter().for_each(|one| follow(&mut current_values, one, description));
            }
            LoggedChange::Delete => current_values = None,
        }
    }
    // The access log may have asked for the entry as it was.
    if !record.old.is_empty() {
        let found = record.old.iter().find(|attribute| same(&attribute.description));
        current_values = found.map(|attribute| attribute.values.clone()).or(current_values);
    }
    within.iter().for_each(|one| follow(&mut current_values, one, description));
    current_values
}

fn follow(current_values: &mut Option<Vec<Vec<u8>>>, modification: &LoggedModification, description: &str) {
    let LoggedAttribute { description: name, values } = &modification.attribute;
    if !name.eq_ignore_ascii_case(description) {
        return;
    }
    *current_values = match (modification.kind, current_values.take()) {
        (LoggedKind::Replace, _) => Some(values.clone()),
        (LoggedKind::Delete, _) if values.is_empty() => Some(Vec::new()),
        (LoggedKind::Add, Some(mut old)) => {
            old.extend(values.iter().cloned());
            Some(old)
        }
        (LoggedKind::SoftAdd, Some(mut old)) => {
            old.extend(values.iter().filter(|value| !old.contains(value)).cloned().collect::<Vec<_>>());
            Some(old)
        }
        // A value may be written otherwise than it is stored: what is left is then not known.
        (LoggedKind::Delete, Some(mut old)) => {
            let all = values.iter().all(|value| old.contains(value));
            old.retain(|value| !values.contains(value));
            all.then_some(old)
        }
        (LoggedKind::Add | LoggedKind::SoftAdd | LoggedKind::Delete, None) | (LoggedKind::Increment, _) => {
            None
        }
    };
}

/// The entry that a delete took away, without what the server keeps by itself.
fn entry_before(
    schema: &Schema,
    record: &LogRecord,
    earlier: &[LogRecord],
) -> Result<Vec<ReceivedAttribute>, String> {
    let lacks = || {
        "The change log does not have the whole entry any more, or never had it, because it was loaded from a file. Take it from a \
         backup (larix restore)."
            .to_owned()
    };
    let begun =
        earlier.iter().rposition(|one| matches!(one.change, LoggedChange::Add(_))).ok_or_else(lacks)?;
    let since = earlier.get(begun..).unwrap_or(&[]);
    let mut names: Vec<&str> = Vec::new();
    for one in since {
        match &one.change {
            LoggedChange::Add(attributes) => {
                names.extend(attributes.iter().map(|one| one.description.as_str()))
            }
            LoggedChange::Modify(list) | LoggedChange::ModifyDn { modifications: list, .. } => {
                names.extend(list.iter().map(|one| one.attribute.description.as_str()));
            }
            LoggedChange::Delete => {}
        }
    }
    let mut attributes: Vec<ReceivedAttribute> = Vec::new();
    for name in names {
        let known = attributes.iter().any(|one| one.name.eq_ignore_ascii_case(name));
        if known || is_of_server(schema, name) {
            continue;
        }
        let values = values_before(record, since, &[], name).ok_or_else(lacks)?;
        if !values.is_empty() {
            attributes.push(ReceivedAttribute { name: name.to_owned(), values });
        }
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use larix_engine::csn::Csn;

    use super::*;

    const DN: &str = "cn=a,dc=x";

    fn record(change: LoggedChange) -> LogRecord {
        LogRecord::new(Csn::ZERO, DN.to_owned(), change)
    }

    fn attribute(text: &str) -> LoggedAttribute {
        let (description, values) = text.split_once('=').expect("a name");
        let values =
            values.split('|').filter(|value| !value.is_empty()).map(|value| value.as_bytes().to_vec());
        LoggedAttribute { description: description.to_owned(), values: values.collect() }
    }

    /// `+cn=a|b` adds, `-cn=a` deletes, `=cn=a` replaces, `#n=1` increments.
    fn modify(list: &[&str]) -> LogRecord {
        let one = |text: &&str| {
            let kind = match text.as_bytes().first() {
                Some(b'+') => LoggedKind::Add,
                Some(b'-') => LoggedKind::Delete,
                Some(b'#') => LoggedKind::Increment,
                _ => LoggedKind::Replace,
            };
            LoggedModification { kind, attribute: attribute(&text[1..]) }
        };
        record(LoggedChange::Modify(list.iter().map(one).collect()))
    }

    fn add(list: &[&str]) -> LogRecord {
        record(LoggedChange::Add(list.iter().map(|text| attribute(text)).collect()))
    }

    fn rename(new_rdn: &str, new_superior: Option<&str>, modification: LoggedModification) -> LogRecord {
        record(LoggedChange::ModifyDn {
            new_rdn: new_rdn.to_owned(),
            delete_old_rdn: true,
            new_superior: new_superior.map(str::to_owned),
            modifications: vec![modification],
        })
    }

    fn shown(undo: &Undo) -> String {
        let values = |values: &[Vec<u8>]| {
            values.iter().map(|value| String::from_utf8_lossy(value)).collect::<Vec<_>>().join("|")
        };
        match undo {
            Undo::Delete { dn } => format!("delete {dn}"),
            Undo::Add { dn, attributes } => {
                let attributes: Vec<_> =
                    attributes.iter().map(|one| format!("{}={}", one.name, values(&one.values))).collect();
                format!("add {dn} {}", attributes.join(" "))
            }
            Undo::Modify { changes, .. } => {
                let mark = |operation| match operation {
                    ModifyOperation::Add => '+',
                    ModifyOperation::Delete => '-',
                    _ => '=',
                };
                let changes = changes
                    .iter()
                    .map(|one| format!("{}{}={}", mark(one.operation), one.name, values(&one.values)));
                changes.collect::<Vec<_>>().join(" ")
            }
            Undo::Rename { dn, rdn, delete_old, superior } => {
                format!("rename {dn} {rdn} {delete_old} {superior:?}")
            }
        }
    }

    #[test]
    fn changes_are_taken_back_where_the_log_knows_how() {
        let schema = Schema::system();
        let check = |earlier: &[LogRecord], record: &LogRecord, expected: &str| {
            let found = of(schema, record, earlier).map_or_else(|why| why, |undo| shown(&undo));
            assert!(found.starts_with(expected), "{found}\n  {expected}");
        };
        let known = [
            add(&["cn=a", "description=one|two", "entryUUID=x"]),
            modify(&["+description=three", "-description=one"]),
        ];
        check(&[], &add(&["cn=a"]), "delete cn=a,dc=x");
        check(&[], &modify(&["+description=x", "-cn=b", "=entryCSN=1"]), "+cn=b -description=x");
        check(&[], &modify(&["=description=x"]), "The change log does not say which values description had");
        check(&[], &modify(&["-description="]), "The change log does not say which values description had");
        check(&known, &modify(&["=description=x"]), "=description=two|three");
        check(&known, &modify(&["-description="]), "=description=two|three");
        check(
            &known,
            &modify(&["+description=four", "=description=x"]),
            "=description=two|three|four -description=four",
        );
        // What was written otherwise than it is stored makes the rest unknown.
        let unknown = [known[0].clone(), modify(&["-description=ONE"])];
        check(&unknown, &modify(&["=description=x"]), "The change log does not say");
        check(
            &known,
            &modify(&["=modifiersName=x"]),
            "This change set nothing but attributes that the server keeps",
        );
        check(&known, &record(LoggedChange::Delete), "add cn=a,dc=x cn=a description=two|three");
        check(&known[1..], &record(LoggedChange::Delete), "The change log does not have the whole entry");
        let new = LoggedModification { kind: LoggedKind::Add, attribute: attribute("cn=b") };
        check(&[], &rename("cn=b", None, new), "rename cn=b,dc=x cn=a true None");
        let other = LoggedModification { kind: LoggedKind::Delete, attribute: attribute("cn=a") };
        check(
            &[],
            &rename("cn=b", Some("ou=y,dc=x"), other),
            "rename cn=b,ou=y,dc=x cn=a false Some(\"dc=x\")",
        );
        let local = LogRecord { local: true, ..modify(&["+description=x"]) };
        check(&known, &local, "The server made this change by itself");
    }
}
