//! From a form's values to the changes that a modify request asks for.

use std::collections::{HashMap, HashSet};

use base64::Engine as _;
use larix_proto::ModifyOperation;
use larix_schema::Schema;
use sha2::{Digest as _, Sha256};

use super::client::{AttributeChange, ReceivedAttribute, ReceivedEntry};
use super::form::Form;
use super::schema;

/// Before an attribute's name in the name of a field: its values as text.
pub(super) const TEXT: &str = "v:";
/// The same as base64.
pub(super) const BYTES: &str = "b:";

/// The attributes that a form holds, each with its values; empty fields are none.
///
/// # Errors
/// Which attribute's base64 cannot be read.
pub(super) fn values(form: &Form) -> Result<Vec<ReceivedAttribute>, String> {
    let mut attributes: Vec<ReceivedAttribute> = Vec::new();
    // Where the attribute of a name in lower case stands, and which values each has. Forms have up to 20,000 fields.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut known: Vec<HashSet<Vec<u8>>> = Vec::new();
    for (field, text) in form.iter() {
        let (name, value) = if let Some(name) = field.strip_prefix(TEXT) {
            // Browsers end lines their own way.
            (name, text.replace("\r\n", "\n").into_bytes())
        } else if let Some(name) = field.strip_prefix(BYTES) {
            let text: String = text.split_ascii_whitespace().collect();
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            (name, bytes.map_err(|error| format!("{name} is not base64: {error}"))?)
        } else {
            continue;
        };
        let at = *places.entry(name.to_ascii_lowercase()).or_insert(attributes.len());
        if at == attributes.len() {
            attributes.push(ReceivedAttribute { name: name.to_owned(), values: Vec::new() });
            known.push(HashSet::new());
        }
        if let (Some(attribute), Some(known)) = (attributes.get_mut(at), known.get_mut(at))
            && !value.is_empty()
            && known.insert(value.clone())
        {
            attribute.values.push(value);
        }
    }
    Ok(attributes)
}

/// The values that others lack.
fn lacking(values: &[Vec<u8>], others: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let others: HashSet<&Vec<u8>> = others.iter().collect();
    values.iter().filter(|value| !others.contains(*value)).cloned().collect()
}

/// Which state of an entry a form is made from: the entryCSN or, for those who may not read it, a hash of what they may.
pub(super) fn state(entry: &ReceivedEntry) -> String {
    if let Some(csn) = entry.text("entryCSN") {
        return csn.to_owned();
    }
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for attribute in &entry.attributes {
        add(attribute.name.as_bytes());
        add(&(attribute.values.len() as u64).to_be_bytes());
        attribute.values.iter().for_each(|value| add(value));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a browser sends back of a value in a text field, where that is something else: it ends lines its own way, and has no zero byte.
fn as_sent_back(value: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.contains(['\r', '\0']))?;
    Some(text.replace("\r\n", "\n").replace('\r', "\n").replace('\0', "\u{fffd}").into_bytes())
}

/// The values of a form; one that nothing but the browser has altered as it is stored. Stored values that come back alike are all meant.
fn as_meant(values: &[Vec<u8>], stored: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut altered: HashMap<Vec<u8>, Vec<&Vec<u8>>> = HashMap::new();
    for value in stored {
        if let Some(sent_back) = as_sent_back(value) {
            altered.entry(sent_back).or_default().push(value);
        }
    }
    let stored: HashSet<&Vec<u8>> = stored.iter().collect();
    let mut meant = Vec::with_capacity(values.len());
    for value in values {
        let sources = altered.get(value).map(Vec::as_slice).unwrap_or_default();
        if sources.is_empty() || stored.contains(value) {
            meant.push(value.clone());
        }
        meant.extend(sources.iter().map(|&source| source.clone()));
    }
    meant
}

/// What is to be changed for the entry to become what the form says. Attributes that the form does not name stay.
pub(super) fn between(
    schema: &Schema,
    entry: &ReceivedEntry,
    form_attributes: &[ReceivedAttribute],
) -> Vec<AttributeChange> {
    let mut changes = Vec::new();
    let mut held: HashMap<String, &[Vec<u8>]> = HashMap::new();
    for attribute in &entry.attributes {
        held.entry(attribute.name.to_ascii_lowercase()).or_insert(&attribute.values);
    }
    for attribute in form_attributes {
        let old = held.get(&attribute.name.to_ascii_lowercase()).copied().unwrap_or_default();
        let values = as_meant(&attribute.values, old);
        let gone = lacking(old, &values);
        let new = lacking(&values, old);
        let named = schema::has_named_values(schema, &attribute.name);
        let mut change = |operation, values| {
            changes.push(AttributeChange { operation, name: attribute.name.clone(), values });
        };
        if gone.is_empty() && new.is_empty() && (named || old == values) {
            continue;
        }
        if old.is_empty() {
            change(ModifyOperation::Add, new);
        } else if values.is_empty() {
            change(ModifyOperation::Delete, Vec::new());
        } else if named {
            if !gone.is_empty() {
                change(ModifyOperation::Delete, gone);
            }
            if !new.is_empty() {
                change(ModifyOperation::Add, new);
            }
        } else {
            change(ModifyOperation::Replace, values);
        }
    }
    changes
}

/// The same changes, which take away only values that the form was made from: what others have added meanwhile stays, and what
/// they have taken away is a refusal. Also the attributes whose values no change can name.
pub(super) fn by_value(
    schema: &Schema,
    entry: &ReceivedEntry,
    changes: &[AttributeChange],
) -> (Vec<AttributeChange>, Vec<String>) {
    let (mut precise, mut unnamed) = (Vec::with_capacity(changes.len()), Vec::new());
    for change in changes {
        let takes_all = match change.operation {
            ModifyOperation::Replace => true,
            ModifyOperation::Delete => change.values.is_empty(),
            ModifyOperation::Add | ModifyOperation::Increment => false,
        };
        if !takes_all || !schema::has_equality(schema, &change.name) {
            unnamed.extend(takes_all.then(|| change.name.clone()));
            precise.push(change.clone());
            continue;
        }
        let old = entry.values(&change.name);
        let (gone, new) = match schema::is_ordered(schema, &change.name) {
            // All of them come anew, in the order of the form.
            true => (old.to_vec(), change.values.clone()),
            false => (lacking(old, &change.values), lacking(&change.values, old)),
        };
        for (operation, values) in [(ModifyOperation::Delete, gone), (ModifyOperation::Add, new)] {
            if !values.is_empty() {
                precise.push(AttributeChange { operation, name: change.name.clone(), values });
            }
        }
    }
    (precise, unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(text: &str) -> Vec<ReceivedAttribute> {
        values(&Form::parse(text.as_bytes())).expect("values")
    }

    #[test]
    fn only_what_differs_is_changed() {
        let schema = Schema::system();
        let entry = ReceivedEntry {
            dn: "cn=x".to_owned(),
            attributes: attributes("v:objectClass=a&v:objectClass=b&v:cn=x&v:description=d"),
        };
        let check = |form: &str, expected: &[(ModifyOperation, &str, &[&str])]| {
            let found = between(schema, &entry, &attributes(form));
            let found: Vec<_> = found
                .iter()
                .map(|c| {
                    let values: Vec<_> =
                        c.values.iter().map(|v| String::from_utf8_lossy(v).into_owned()).collect();
                    (c.operation, c.name.as_str(), values)
                })
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|(o, n, v)| (*o, *n, v.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>()))
                .collect();
            assert_eq!(found, expected, "{form}");
        };
        check("v:cn=x", &[]);
        check("v:objectClass=b&v:objectClass=a", &[]);
        check(
            "v:objectClass=a&v:objectClass=c",
            &[
                (ModifyOperation::Delete, "objectClass", &["b"]),
                (ModifyOperation::Add, "objectClass", &["c"]),
            ],
        );
        check("v:description=", &[(ModifyOperation::Delete, "description", &[])]);
        check("v:sn=s&v:sn=", &[(ModifyOperation::Add, "sn", &["s"])]);
        check("b:sn=YQ%3D%3D", &[(ModifyOperation::Add, "sn", &["a"])]);
        assert!(values(&Form::parse(b"b:sn=%%")).is_err());
    }

    #[test]
    fn only_what_was_seen_is_taken_away() {
        use ModifyOperation::{Add, Delete, Replace};
        let mut builder = larix_schema::SchemaBuilder::system();
        for name in ["core", "cosine", "inetorgperson"] {
            builder.add_bundled(name).expect("a bundled schema");
        }
        let schema = &builder.build();
        let entry = ReceivedEntry {
            dn: "cn=x".to_owned(),
            attributes: attributes(
                "v:cn=x&v:description=d&v:description=e&v:displayName=n&v:jpegPhoto=p&v:olcAccess={0}a&v:olcAccess={1}b",
            ),
        };
        let check = |form: &str, expected: &[(ModifyOperation, &str, &[&str])], expected_unnamed: &[&str]| {
            let (found, unnamed) = by_value(schema, &entry, &between(schema, &entry, &attributes(form)));
            let expected: Vec<_> = expected
                .iter()
                .map(|(operation, name, values)| AttributeChange {
                    operation: *operation,
                    name: (*name).to_owned(),
                    values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
                })
                .collect();
            assert_eq!(found, expected, "{form}");
            assert_eq!(unnamed, expected_unnamed, "{form}");
        };
        check("v:description=", &[(Delete, "description", &["d", "e"])], &[]);
        check("v:description=d", &[(Delete, "description", &["e"])], &[]);
        check("v:displayName=m", &[(Delete, "displayName", &["n"]), (Add, "displayName", &["m"])], &[]);
        check("v:displayName=", &[(Delete, "displayName", &["n"])], &[]);
        check("v:sn=s", &[(Add, "sn", &["s"])], &[]);
        check(
            "v:olcAccess={0}b&v:olcAccess={1}a",
            &[(Delete, "olcAccess", &["{0}a", "{1}b"]), (Add, "olcAccess", &["{0}b", "{1}a"])],
            &[],
        );
        check("v:jpegPhoto=q", &[(Replace, "jpegPhoto", &["q"])], &["jpegPhoto"]);
        check("v:jpegPhoto=", &[(Delete, "jpegPhoto", &[])], &["jpegPhoto"]);
    }

    #[test]
    fn what_a_browser_alone_alters_stays() {
        let schema = Schema::system();
        let attribute = |name: &str, values: &[&str]| ReceivedAttribute {
            name: name.to_owned(),
            values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
        };
        let stored = ["a\r\nb", "c\rd", "e\0f", "g\nh"];
        let entry =
            ReceivedEntry { dn: "cn=x".to_owned(), attributes: vec![attribute("description", &stored)] };
        let others = "v:description=c%0D%0Ad&v:description=e%EF%BF%BDf&v:description=g%0D%0Ah&v:sn=";
        let same = format!("v:description=a%0D%0Ab&{others}");
        assert_eq!(between(schema, &entry, &attributes(&same)), []);
        // One that the user changes is what the user writes.
        let found = between(schema, &entry, &attributes(&format!("v:description=a%0D%0Abb&{others}")));
        let change = |operation, value: &str| AttributeChange {
            operation,
            name: "description".to_owned(),
            values: vec![value.as_bytes().to_vec()],
        };
        let expected = [change(ModifyOperation::Delete, "a\r\nb"), change(ModifyOperation::Add, "a\nbb")];
        assert_eq!(found, expected);
        // Three that come back as one.
        let alike = ["a\nb", "a\r\nb", "a\rb"];
        let entry =
            ReceivedEntry { dn: "cn=x".to_owned(), attributes: vec![attribute("description", &alike)] };
        let thrice = "v:description=a%0D%0Ab&v:description=a%0D%0Ab&v:description=a%0D%0Ab&v:description=";
        assert_eq!(between(schema, &entry, &attributes(thrice)), []);
    }

    #[test]
    fn names_and_values_that_come_again_count_once() {
        let found = attributes("v:cn=x&v:CN=y&v:sn=s&v:cN=x&v:sn=&v:SN=S");
        let found: Vec<(&str, Vec<&[u8]>)> = found
            .iter()
            .map(|one| (one.name.as_str(), one.values.iter().map(Vec::as_slice).collect()))
            .collect();
        assert_eq!(found, [("cn", vec![&b"x"[..], &b"y"[..]]), ("sn", vec![&b"s"[..], &b"S"[..]])]);
    }

    /// Values that differ only behind a long beginning: to compare each with all before it would compare 200 GB.
    #[test]
    fn many_values_are_not_compared_with_each_other() {
        let (count, beginning) = (20_000, "a".repeat(1_000));
        let attribute =
            |name: &str, values: Vec<Vec<u8>>| ReceivedAttribute { name: name.to_owned(), values };
        let value = |n: usize| format!("{beginning}{n:05}").into_bytes();
        let form: String = (0..count).map(|n| format!("v:objectClass={beginning}{n:05}&")).collect();
        let form_attributes = attributes(&form);
        assert_eq!(form_attributes, [attribute("objectClass", (0..count).map(value).collect())]);
        let entry = ReceivedEntry {
            dn: "cn=x".to_owned(),
            attributes: vec![attribute("ObjectClass", (0..count).rev().map(value).collect())],
        };
        assert_eq!(between(Schema::system(), &entry, &form_attributes), []);
    }
}
