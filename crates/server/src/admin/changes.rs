//! From a form's values to the changes that a modify request asks for.

use base64::Engine as _;
use larix_proto::ModifyOperation;
use larix_schema::Schema;

use super::client::{AttributeChange, Found, FoundAttribute};
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
pub(super) fn values(form: &Form) -> Result<Vec<FoundAttribute>, String> {
    let mut attributes: Vec<FoundAttribute> = Vec::new();
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
        let known = attributes.iter().position(|attribute| attribute.name.eq_ignore_ascii_case(name));
        let at = known.unwrap_or(attributes.len());
        if known.is_none() {
            attributes.push(FoundAttribute { name: name.to_owned(), values: Vec::new() });
        }
        if let Some(attribute) = attributes.get_mut(at)
            && !value.is_empty()
            && !attribute.values.contains(&value)
        {
            attribute.values.push(value);
        }
    }
    Ok(attributes)
}

/// What is to be changed for the entry to become what the form says. Attributes that the form does not name stay.
pub(super) fn between(schema: &Schema, entry: &Found, wanted: &[FoundAttribute]) -> Vec<AttributeChange> {
    let mut changes = Vec::new();
    for attribute in wanted {
        let old = entry.values(&attribute.name);
        let gone: Vec<_> = old.iter().filter(|value| !attribute.values.contains(value)).cloned().collect();
        let new: Vec<_> = attribute.values.iter().filter(|value| !old.contains(value)).cloned().collect();
        let named = schema::has_named_values(schema, &attribute.name);
        let mut change = |operation, values| {
            changes.push(AttributeChange { operation, name: attribute.name.clone(), values });
        };
        if gone.is_empty() && new.is_empty() && (named || old == attribute.values) {
            continue;
        }
        if old.is_empty() {
            change(ModifyOperation::Add, new);
        } else if attribute.values.is_empty() {
            change(ModifyOperation::Delete, Vec::new());
        } else if named {
            if !gone.is_empty() {
                change(ModifyOperation::Delete, gone);
            }
            if !new.is_empty() {
                change(ModifyOperation::Add, new);
            }
        } else {
            change(ModifyOperation::Replace, attribute.values.clone());
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(text: &str) -> Vec<FoundAttribute> {
        values(&Form::parse(text.as_bytes())).expect("values")
    }

    #[test]
    fn only_what_differs_is_changed() {
        let schema = Schema::system();
        let entry = Found {
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
}
