//! What the schema says of an entry's attributes, as far as a page shows it differently.

use larix_schema::{AttributeType, ClassKind, ObjectClass, Schema};

use crate::secrets;

/// How a value is shown and entered.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Text,
    /// Text of several lines.
    Lines,
    Dn,
    Boolean,
    Number,
    /// GeneralizedTime.
    Time,
    /// Never shown.
    Password,
    Jpeg,
    Certificate,
    /// Bytes that are not text.
    Bytes,
}

/// An attribute description without its options.
pub(super) fn base_name(description: &str) -> &str {
    description.split(';').next().unwrap_or(description)
}

/// The look of an attribute's values; text where the schema does not know it.
pub(super) fn look(schema: &Schema, description: &str) -> Look {
    let Some(kind) = schema.attribute_type(base_name(description)) else { return Look::Text };
    if is_secret(kind) {
        return Look::Password;
    }
    let number = kind.syntax.oid.strip_prefix("1.3.6.1.4.1.1466.115.121.1.").unwrap_or("");
    match number {
        "12" => Look::Dn,
        "7" => Look::Boolean,
        "27" => Look::Number,
        "24" => Look::Time,
        "28" => Look::Jpeg,
        "8" => Look::Certificate,
        "41" => Look::Lines,
        "40" => Look::Text,
        _ if !kind.syntax.human_readable => Look::Bytes,
        _ => Look::Text,
    }
}

/// Attributes that hold secrets for logging in.
fn is_secret(kind: &AttributeType) -> bool {
    kind.names.iter().any(|name| secrets::is_secret(name))
}

/// What entries of these classes must and may have, by name.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    pub(super) must: Vec<String>,
    pub(super) may: Vec<String>,
    /// `extensibleObject`: everything is allowed.
    pub(super) anything: bool,
}

pub(super) fn allowed<'a>(schema: &Schema, classes: impl IntoIterator<Item = &'a str>) -> Allowed {
    let mut allowed = Allowed::default();
    for class in classes.into_iter().filter_map(|name| schema.object_class(name)) {
        allowed.anything |= class.name().eq_ignore_ascii_case("extensibleObject");
        let name = |id: &larix_schema::AttributeTypeId| schema.attribute(*id).name().to_owned();
        allowed.must.extend(class.all_must().iter().map(name));
        allowed.may.extend(class.all_may().iter().map(name));
    }
    for list in [&mut allowed.must, &mut allowed.may] {
        list.sort_by_key(|name| name.to_ascii_lowercase());
        list.dedup();
    }
    allowed.must.retain(|name| name != "objectClass");
    let must = allowed.must.clone();
    allowed.may.retain(|name| !must.contains(name) && name != "objectClass");
    allowed
}

/// Whether users may change it at all.
pub(super) fn is_editable(schema: &Schema, description: &str) -> bool {
    schema
        .attribute_type(base_name(description))
        .is_none_or(|kind| !kind.no_user_modification && !is_secret(kind))
}

pub(super) fn is_operational(schema: &Schema, description: &str) -> bool {
    schema.attribute_type(base_name(description)).is_some_and(AttributeType::is_operational)
}

pub(super) fn is_single(schema: &Schema, description: &str) -> bool {
    schema.attribute_type(base_name(description)).is_some_and(|kind| kind.single_value)
}

/// Whether single values can be named in a change: they can be told apart, and their order means nothing.
pub(super) fn has_named_values(schema: &Schema, description: &str) -> bool {
    schema
        .attribute_type(base_name(description))
        .is_some_and(|kind| kind.equality.is_some() && !kind.single_value && !kind.is_ordered_values())
}

/// Whether a change can say which values it takes away.
pub(super) fn has_equality(schema: &Schema, description: &str) -> bool {
    schema.attribute_type(base_name(description)).is_some_and(|kind| kind.equality.is_some())
}

/// Whether the order of its values means something.
pub(super) fn is_ordered(schema: &Schema, description: &str) -> bool {
    schema.attribute_type(base_name(description)).is_some_and(AttributeType::is_ordered_values)
}

pub(super) fn description(schema: &Schema, attribute: &str) -> Option<String> {
    let text = schema.attribute_type(base_name(attribute))?.description.as_deref()?;
    // "RFC2256: common name(s) for which the entity is known by"
    let text = text.split_once(": ").filter(|(rfc, _)| rfc.starts_with("RFC")).map_or(text, |(_, rest)| rest);
    Some(text.to_owned())
}

/// Classes of a kind by name.
pub(super) fn classes(schema: &Schema, kind: ClassKind) -> Vec<&ObjectClass> {
    let mut classes: Vec<_> = schema
        .object_classes()
        .filter(|class| class.kind == kind && !class.hidden && !class.obsolete)
        .collect();
    classes.sort_by_key(|class| class.name().to_ascii_lowercase());
    classes
}

#[cfg(test)]
mod tests {
    use larix_schema::SchemaBuilder;

    use super::*;

    #[test]
    fn the_private_key_of_the_configuration_is_never_shown() {
        let schema = SchemaBuilder::system().build();
        for secret in ["olcTLSCertificateKey;binary", "olcTLSCertificateKey", "olcRootPW", "userPassword"] {
            assert_eq!(look(&schema, secret), Look::Password, "{secret}");
            assert!(!is_editable(&schema, secret), "{secret}");
        }
        for shown in ["olcTLSCertificate;binary", "olcTLSCACertificate;binary"] {
            assert_eq!(look(&schema, shown), Look::Certificate, "{shown}");
            assert!(is_editable(&schema, shown), "{shown}");
        }
    }
}
