//! One entry for a load that goes around the writer: the checks of an add, each of which may be left out, and the
//! operational attributes that a dump lacks.

use larix_proto::{Dn, LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::change::NoLargeSets;
use super::known::KnownSchema;
use super::operational::{self, Stamp};
use super::prepare::{self, ChangeKind, refuse};
use super::request::AttributeValues;
use super::schema_check::{CheckMode, check_entry, structural_class};
use crate::entry::{Entry, EntryAttribute};
use crate::time::{RandomSource, new_uuid};

/// Which checks a load makes (`slapadd -o schema-check=...,value-check=...`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LoadChecks {
    /// Object classes, required and allowed attributes, naming.
    pub schema: bool,
    /// Syntax and equality of values. Without it values are stored as they come.
    pub values: bool,
    /// Whether missing operational attributes are added (`lastmod`).
    pub last_modified: bool,
}

impl Default for LoadChecks {
    fn default() -> Self {
        Self { schema: true, values: true, last_modified: true }
    }
}

/// An entry that is ready to be stored.
#[derive(Clone, Debug)]
pub struct LoadedEntry {
    pub dn: NormalDn,
    pub entry: Entry,
    /// Values of contextCSN that came with the entry: they belong into the table `meta`, not into the record.
    pub context_csns: Vec<Vec<u8>>,
}

/// Makes an entry of what a dump says. Attributes of one description that stand apart are joined.
///
/// # Errors
/// Those of an add: invalidDNSyntax, undefinedAttributeType, invalidAttributeSyntax, attributeOrValueExists,
/// constraintViolation, objectClassViolation, namingViolation.
pub fn load_entry(
    schema: &Schema,
    known: &KnownSchema,
    dn: &str,
    attributes: Vec<AttributeValues>,
    checks: LoadChecks,
    stamp: &Stamp,
    random: &dyn RandomSource,
) -> Result<LoadedEntry, LdapResult> {
    let invalid = || refuse(ResultCode::INVALID_DN_SYNTAX, "invalid DN");
    let parsed = Dn::parse(dn).map_err(|_| invalid())?;
    let normal = schema.normalize_dn(&parsed).map_err(|_| invalid())?;
    let mut entry = Entry::new(schema.pretty_dn(&parsed).map_err(|_| invalid())?);
    for attribute in join(attributes) {
        let (description, values) = read_attribute(schema, attribute, checks)?;
        match entry.attribute_mut(&description) {
            Some(known) => known.values.extend(values),
            None => entry.attributes.push(EntryAttribute::new(description, values)),
        }
    }
    let context_csns = entry
        .remove(&AttributeDescription::plain(known.context_csn))
        .map_or_else(Vec::new, |attribute| attribute.values);
    if checks.schema {
        let mode = CheckMode { add: true, ..CheckMode::default() };
        check_entry(schema, known, &mut entry, mode, &NoLargeSets).map_err(super::Failure::into_result)?;
    } else {
        add_structural_class(schema, known, &mut entry);
    }
    if checks.last_modified {
        operational::complete_entry(known, &mut entry, stamp, new_uuid(stamp.csn.time, random));
    }
    Ok(LoadedEntry { dn: normal, entry, context_csns })
}

/// Attributes of the same name in one: values may stand anywhere in a dump.
fn join(attributes: Vec<AttributeValues>) -> Vec<AttributeValues> {
    let mut joined: Vec<AttributeValues> = Vec::with_capacity(attributes.len());
    for attribute in attributes {
        match joined.iter_mut().find(|a| a.description.eq_ignore_ascii_case(&attribute.description)) {
            Some(known) => known.values.extend(attribute.values),
            None => joined.push(attribute),
        }
    }
    joined
}

fn read_attribute(
    schema: &Schema,
    attribute: AttributeValues,
    checks: LoadChecks,
) -> Result<(AttributeDescription, Vec<Vec<u8>>), LdapResult> {
    if checks.values {
        let change = prepare::check_change(schema, ChangeKind::Add, attribute)?;
        return Ok((change.description, change.values));
    }
    let name = &attribute.description;
    let description = schema
        .describe(name)
        .map_err(|error| refuse(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, format!("{name}: {error}")))?;
    Ok((description, attribute.values))
}

/// Without a schema check the structural class is recorded as far as it can be told.
fn add_structural_class(schema: &Schema, known: &KnownSchema, entry: &mut Entry) {
    if entry.values(known.structural_object_class).is_empty()
        && let Ok(checked) = structural_class(schema, entry.values(known.object_class))
    {
        let value = checked.structural.name().as_bytes().to_vec();
        let description = AttributeDescription::plain(known.structural_object_class);
        entry.attributes.push(EntryAttribute::new(description, vec![value]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csn::Csn;
    use crate::time::{SeededRandom, Timestamp};

    fn load(attributes: &[(&str, &str)], checks: LoadChecks) -> Result<LoadedEntry, LdapResult> {
        let schema = Schema::system();
        let known = KnownSchema::of(schema).unwrap();
        let csn = Csn { time: Timestamp(0), count: 0, server_id: 0, modification: 0 };
        let attributes = attributes
            .iter()
            .map(|(name, value)| AttributeValues {
                description: (*name).to_owned(),
                values: vec![value.as_bytes().to_vec()],
            })
            .collect();
        let stamp = Stamp::new(csn, "");
        load_entry(schema, &known, "cn=a", attributes, checks, &stamp, &SeededRandom::new(1))
    }

    #[test]
    fn an_entry_is_completed_and_joined() {
        let loaded = load(
            &[
                ("objectClass", "subschema"),
                ("cn", "a"),
                ("objectclass", "subentry"),
                ("contextCSN", "19700101000000.000000Z#000000#000#000000"),
            ],
            LoadChecks { schema: false, ..LoadChecks::default() },
        );
        let loaded = loaded.unwrap();
        assert_eq!(loaded.context_csns.len(), 1);
        assert_eq!(loaded.entry.attributes.first().map(|a| a.values.len()), Some(2));
        let known = KnownSchema::of(Schema::system()).unwrap();
        assert_eq!(loaded.entry.values(known.creators_name), [b"cn=anonymous".to_vec()]);
        assert_eq!(loaded.entry.values(known.create_timestamp), [b"19700101000000Z".to_vec()]);
        assert!(loaded.entry.values(known.context_csn).is_empty());
    }

    #[test]
    fn checks_can_be_left_out() {
        let bad = [("objectClass", "top"), ("cn", "a")];
        let check = |checks: LoadChecks, code: Option<ResultCode>| {
            assert_eq!(load(&bad, checks).err().map(|result| result.code), code, "{checks:?}");
        };
        check(LoadChecks::default(), Some(ResultCode::OBJECT_CLASS_VIOLATION));
        check(LoadChecks { schema: false, ..LoadChecks::default() }, None);
    }
}
