//! cn=Subschema: the schema as a subschema subentry (RFC 4512 section 4.2).

use larix_engine::entry::Entry;
use larix_engine::time::Timestamp;
use larix_proto::Dn;
use larix_schema::{Schema, SubschemaAttribute};

use super::Builder;

/// The subentry's DN when `schemadn` does not give another.
pub(crate) const DEFAULT_DN: &str = "cn=Subschema";

/// `shown`: attribute types that are listed although OpenLDAP hides them unless a module is loaded.
pub(crate) fn entry(schema: &Schema, dn: &str, started: Timestamp, shown: &[&str]) -> Entry {
    let mut built = Builder::new(schema, dn)
        .one("structuralObjectClass", "subentry")
        .add("objectClass", ["top", "subentry", "subschema", "extensibleObject"]);
    for (name, value) in naming_attributes(dn) {
        built = built.one(&name, value);
    }
    built = built.one("createTimestamp", started.generalized()).one("modifyTimestamp", started.generalized());
    for attribute in SubschemaAttribute::ALL {
        let mut values = schema.subschema_values(attribute);
        if attribute == SubschemaAttribute::AttributeTypes {
            let hidden = shown.iter().filter_map(|name| schema.attribute_type(name)).filter(|of| of.hidden);
            values.extend(hidden.map(ToString::to_string));
        }
        built = built.add(attribute.name(), values);
    }
    built.one("entryDN", dn).one("subschemaSubentry", dn).build()
}

/// The attributes in a DN's RDN, which its entry must have.
pub(crate) fn naming_attributes(dn: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(parsed) = Dn::parse(dn) else { return Vec::new() };
    let first = parsed.rdns().first();
    first
        .into_iter()
        .flat_map(|rdn| {
            rdn.avas().iter().map(|ava| (ava.attribute.to_owned(), ava.value.to_vec())).collect::<Vec<_>>()
        })
        .collect()
}
