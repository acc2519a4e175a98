//! Definitions that come behind many others. What they are and do is judged with the whole configuration; here a section
//! gets them without a look at each of those that it has.

use std::collections::HashSet;
use std::sync::Arc;

use larix_engine::overlay::{Change, ChangeKind};
use larix_schema::{AttributeTypeId, Schema};

use super::super::entries::{EntryName, Role};
use super::super::entry::ConfigEntry;
use super::super::value_list::ValueList;
use larix_backend::memory_tree::ordered_parts;

/// With fewer definitions a section is changed as any entry is.
const MANY: usize = 256;

/// A change that adds definitions at the end of a schema section.
#[derive(Debug)]
pub(super) struct Growth {
    /// The entry with one value of the many.
    stand_in: ConfigEntry,
    attribute: AttributeTypeId,
    /// The attribute's description as the entry has it, with all values after the change.
    description: String,
    values: ValueList,
}

impl Growth {
    /// `None`: the change is another one, or may not be one of these.
    pub(super) fn of(schema: &Schema, before: &Arc<ConfigEntry>, requested: &[Change]) -> Option<Self> {
        let change = requested.first()?;
        let attribute = change.description.attribute;
        let is_known: fn(&Schema, &str) -> bool = match schema.attribute(attribute).name() {
            "olcAttributeTypes" => |schema, oid| schema.attribute_type_id(oid).is_some(),
            "olcObjectClasses" => |schema, oid| schema.object_class_id(oid).is_some(),
            _ => return None,
        };
        let adds = |change: &Change| {
            matches!(change.kind, ChangeKind::Add | ChangeKind::SoftAdd)
                && change.description.attribute == attribute
                && change.description.options().is_empty()
        };
        let name = EntryName::parse(&before.dn).ok()?;
        if !matches!(name.role, Role::Schema(_)) || !requested.iter().all(adds) {
            return None;
        }
        let mut stand_in = ConfigEntry::clone(before);
        let many = stand_in.attributes.iter_mut().find(|candidate| candidate.values.len() >= MANY)?;
        if schema.attribute_type_id(&many.description) != Some(attribute) || !many.values.is_numbered() {
            return None;
        }
        let description = many.description.clone();
        let mut values = std::mem::take(&mut many.values);
        many.values = values.first().cloned().into_iter().collect();
        let mut new = HashSet::new();
        for value in requested.iter().flat_map(|change| &change.values) {
            // An OID that no schema has is that of no value here, so it is not one of them.
            let oid = numeric_oid(value)?;
            if is_known(schema, oid) || !new.insert(oid) {
                return None;
            }
            let place = format!("{{{}}}", values.len());
            values.push([place.as_bytes(), value].concat());
        }
        Some(Self { stand_in, attribute, description, values })
    }

    pub(super) fn stand_in(&self) -> &ConfigEntry {
        &self.stand_in
    }

    /// Whether this is what the change does.
    pub(super) fn covers(&self, change: &Change) -> bool {
        change.description.attribute == self.attribute
    }

    /// Gives the entry all its values.
    pub(super) fn settle(self, entry: &mut ConfigEntry) {
        let Self { description, values, .. } = self;
        let grown =
            entry.attributes.iter_mut().find(|grown| grown.description.eq_ignore_ascii_case(&description));
        if let Some(grown) = grown {
            grown.values = values;
        }
    }
}

/// The OID of a definition without a place, if it is written in numbers.
fn numeric_oid(value: &[u8]) -> Option<&str> {
    if ordered_parts(value).is_some() {
        return None;
    }
    let text = std::str::from_utf8(value).ok()?;
    let oid = text.trim_start().strip_prefix('(')?.split_ascii_whitespace().next()?;
    let numeric = oid.split('.').all(|arc| !arc.is_empty() && arc.bytes().all(|byte| byte.is_ascii_digit()));
    numeric.then_some(oid)
}

#[cfg(test)]
mod tests {
    use larix_engine::controls::{ControlValues, ReadAttributes, RequestControls};
    use larix_proto::ResultCode;

    use super::super::super::load::convert;
    use super::super::super::model::{Config, Source};
    use super::super::fixture::{START, TestSources, entries, operations};

    /// Values that are added, and those that are there then, or why they are refused.
    type Case<'c> = (&'c [&'c str], Result<&'c [&'c str], ResultCode>);

    const SECTION: &str = "cn={2}many,cn=schema,cn=config";

    /// A section with so many classes, from a directory.
    fn config(classes: usize, folder: &std::path::Path) -> Config {
        let mut text = format!("{START}\ndn: {SECTION}\nobjectClass: olcSchemaConfig\ncn: {{2}}many\n");
        for number in 0..classes {
            text += &format!(
                "olcObjectClasses: {{{number}}}( 1.3.9999.20.{number} NAME 'many{number}' SUP top AUXILIARY )\n"
            );
        }
        let config = Config::from_entries(entries(&text), Source::QuickStart).unwrap();
        convert(&config, folder, &TestSources::new().stamp()).unwrap();
        Config::from_slapd_d(folder).unwrap()
    }

    fn add(values: &[&str]) -> String {
        let lines: String = values.iter().map(|value| format!("olcObjectClasses: {value}\n")).collect();
        format!("dn: {SECTION}\nchangetype: modify\nadd: olcObjectClasses\n{lines}")
    }

    /// Whether a section has few definitions or many, and whether a control asks for its values, one comes of it.
    #[test]
    fn sections_grow_alike_however_many_they_have() {
        let whole = "( 1.3.9999.30.1 NAME 'more' SUP top AUXILIARY MAY larch )";
        let two = "( 1.3.9999.30.2 NAME 'most' SUP more AUXILIARY )";
        let cases: [Case<'_>; 8] = [
            (&[whole], Ok(&[whole])),
            (&[whole, two], Ok(&[whole, two])),
            (&["{7}( 1.3.9999.30.1 NAME 'more' SUP top AUXILIARY )"], Ok(&[])),
            (
                &["( 1.3.9999.20.3 NAME 'many3' SUP top AUXILIARY )"],
                Err(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS),
            ),
            (
                &["( 1.3.9999.20.3 NAME 'other' SUP top AUXILIARY )"],
                Err(ResultCode::INVALID_ATTRIBUTE_SYNTAX),
            ),
            (
                &["( 1.3.9999.30.1 NAME 'many3' SUP top AUXILIARY )"],
                Err(ResultCode::INVALID_ATTRIBUTE_SYNTAX),
            ),
            (
                &["( 1.3.9999.30.1 NAME 'more' SUP missing AUXILIARY )"],
                Err(ResultCode::INVALID_ATTRIBUTE_SYNTAX),
            ),
            (
                &[whole, "( 1.3.9999.30.1 NAME 'most' SUP top AUXILIARY )"],
                Err(ResultCode::INVALID_ATTRIBUTE_SYNTAX),
            ),
        ];
        let sources = TestSources::new();
        for classes in [10, 64, 400] {
            let folder = tempfile::tempdir().unwrap();
            let before = config(classes, folder.path());
            for (values, expected) in cases {
                for reads in [false, true] {
                    let pre_read =
                        reads.then(|| ReadAttributes { critical: false, attributes: vec!["*".to_owned()] });
                    let controls =
                        RequestControls::from(ControlValues { pre_read, ..ControlValues::default() });
                    let changed = sources.change(&before, operations(&add(values)).remove(0), controls);
                    let code = changed.as_ref().map(|_| ()).map_err(|refused| refused.0.code);
                    assert_eq!(code, expected.map(|_| ()), "{values:?} behind {classes}");
                    let (Ok(changed), Ok(new)) = (changed, expected) else { continue };
                    let entry = changed.after.unwrap();
                    let stored = entry.values("olcObjectClasses");
                    assert!(stored.is_numbered() && stored.len() == classes + values.len(), "{values:?}");
                    let last = stored.behind(classes).zip(new);
                    for (number, (stored, new)) in last.enumerate() {
                        assert_eq!(*stored, format!("{{{}}}{new}", classes + number).into_bytes());
                    }
                    assert_eq!(entry.values("modifiersName"), [b"cn=config".to_vec()]);
                }
            }
        }
    }

    #[test]
    fn what_grew_is_what_is_read() {
        let (folder, sources) = (tempfile::tempdir().unwrap(), TestSources::new());
        let mut config = config(400, folder.path());
        for number in 0..70 {
            let value = format!("( 1.3.9999.30.{number} NAME 'more{number}' SUP top AUXILIARY )");
            let operation = operations(&add(&[&value])).remove(0);
            let changed = sources.change(&config, operation, RequestControls::default()).unwrap();
            changed.commit().unwrap();
            config = changed.config;
        }
        let read = Config::from_slapd_d(folder.path()).unwrap();
        assert_eq!(read.entries(), config.entries());
        assert!(read.notes.iter().all(|note| !note.text.contains("checksum")), "{:?}", read.notes);
        assert!(read.schema.object_class_id("more69").is_some());
    }

    /// An earlier definition must not use a later one, because the files are read in this order.
    #[test]
    fn sections_in_front_grow_without_what_is_behind() {
        let (folder, sources) = (tempfile::tempdir().unwrap(), TestSources::new());
        let mut config = config(300, folder.path());
        let mut check = |section: &str, attribute: &str, value: &str, accepted: bool| {
            let text = format!(
                "dn: cn={section},cn=schema,cn=config\nchangetype: modify\nadd: {attribute}\n{attribute}: {value}\n"
            );
            let changed = sources.change(&config, operations(&text).remove(0), RequestControls::default());
            assert_eq!(changed.is_ok(), accepted, "{value}: {changed:?}");
            let Ok(changed) = changed else { return };
            changed.commit().unwrap();
            config = changed.config;
            let read = Config::from_slapd_d(folder.path()).unwrap();
            assert_eq!(read.entries(), config.entries(), "{value}");
        };
        let class = |number: usize, name: &str, may: &str| {
            format!("( 1.3.9999.40.{number} NAME '{name}' SUP top AUXILIARY MAY {may} )")
        };
        check("{0}one", "olcObjectClasses", &class(1, "first", "larch"), true);
        check("{0}one", "olcObjectClasses", &class(2, "early", "cone"), false);
        check("{1}two", "olcAttributeTypes", "( 1.3.9999.41.1 NAME 'scale' SUP cone )", true);
        check("{1}two", "olcObjectClasses", &class(2, "second", "( scale $ larch )"), true);
        check("{0}one", "olcObjectClasses", &class(3, "early", "scale"), false);
        check("{0}one", "olcAttributeTypes", "( 1.3.9999.41.2 NAME 'bark' SUP needle )", true);
        check("{0}one", "olcObjectClasses", &class(3, "third", "bark"), true);
        check("{1}two", "olcObjectClasses", "( 1.3.9999.40.4 NAME 'fourth' SUP third AUXILIARY )", true);
        check("{1}two", "olcObjectClasses", "( 1.3.9999.40.5 NAME 'fifth' SUP many7 AUXILIARY )", false);
        check("{2}many", "olcObjectClasses", "( 1.3.9999.40.5 NAME 'fifth' SUP fourth AUXILIARY )", true);
        check("{0}one", "olcObjectClasses", &class(6, "many7", "larch"), false);
    }
}
