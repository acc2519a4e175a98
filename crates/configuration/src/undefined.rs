//! What to do about a name that the schema does not have, and about a text that is no DN.

use larix_schema::{DnError, Schema};

use super::spelling::nearest;

/// Shorter names are near to too many others.
const NAME_BYTES_MIN: usize = 4;

/// What to do about an attribute type or object class that is not defined: the schema to load, the name that was meant.
/// An attribute may have options.
pub(super) fn remedy(schema: &Schema, element: &str) -> String {
    let name = element.split(';').next().unwrap_or_default();
    if let Some(remedy) = bundle_remedy(name) {
        return remedy;
    }
    let attributes = schema.attribute_types().flat_map(|attribute| &attribute.names);
    let classes = schema.object_classes().flat_map(|class| &class.names);
    let known = attributes.chain(classes).map(String::as_str).filter(|known| known.len() >= NAME_BYTES_MIN);
    match nearest(name, known).filter(|_| name.len() >= NAME_BYTES_MIN) {
        Some(near) => format!("did you mean `{near}`? If not, include the schema that defines it"),
        None => "include the schema that defines it".to_owned(),
    }
}

/// The same, if a bundled schema defines the element.
pub(super) fn bundle_remedy(element: &str) -> Option<String> {
    let bundle = larix_schema::bundle_with(element)?;
    Some(format!("write `schema {bundle}` before it, which defines {element}"))
}

/// What to do about a text that is no DN: how a domain is written, what is wrong with its form, the schema to load.
pub(super) fn dn_remedy(text: &str, why: &DnError) -> Option<String> {
    let is_label = |label: &str| {
        !label.is_empty() && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    };
    match why {
        DnError::UnknownAttribute(name) => bundle_remedy(name),
        DnError::Syntax(_) if text.contains('.') && text.split('.').all(is_label) => {
            Some(format!("a domain is written dc={}", text.replace('.', ",dc=")))
        }
        DnError::Syntax(_) if text.starts_with('\'') => Some("quote it with \" and not with '".to_owned()),
        DnError::Syntax(_) if text.ends_with(',') => Some("take out the comma at the end".to_owned()),
        DnError::Syntax(_) => Some("such as cn=admin,dc=example,dc=com".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use larix_schema::SchemaBuilder;

    use super::{dn_remedy, remedy};

    #[test]
    fn what_newcomers_write_for_a_dn() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = builder.build();
        for (text, expected) in [
            ("example.com", Some("a domain is written dc=example,dc=com")),
            ("'dc=example,dc=com'", Some("quote it with \" and not with '")),
            ("dc=example,dc=com,", Some("take out the comma at the end")),
            ("admin", Some("such as cn=admin,dc=example,dc=com")),
            ("", None),
            ("sambaSID=x", Some("write `schema samba` before it, which defines sambaSID")),
            ("dc=", None),
        ] {
            let found = schema.parse_dn(text).err().and_then(|why| dn_remedy(text, &why));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn remedies_name_the_schema_or_the_word() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        let schema = builder.build();
        for (element, expected) in [
            ("dc", "write `schema core` before it, which defines dc"),
            ("sambantpassword", "write `schema samba` before it, which defines sambantpassword"),
            ("jpegPhoto;binary", "write `schema inetorgperson` before it, which defines jpegPhoto"),
            ("userPasword", "did you mean `userPassword`? If not, include the schema that defines it"),
            (
                "organisationalUnit",
                "did you mean `organizationalUnit`? If not, include the schema that defines it",
            ),
            ("nosuch", "include the schema that defines it"),
            ("xn", "include the schema that defines it"),
        ] {
            assert_eq!(remedy(&schema, element), expected);
        }
    }
}
