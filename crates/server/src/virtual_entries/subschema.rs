//! cn=Subschema: the schema as a subschema subentry (RFC 4512 section 4.2).

use larix_engine::entry::Entry;
use larix_engine::time::Timestamp;
use larix_proto::Dn;
use larix_schema::Schema;

use super::Builder;

/// The subentry's DN when `schemadn` does not give another.
pub const DEFAULT_DN: &str = "cn=Subschema";

pub fn entry(schema: &Schema, dn: &str, started: Timestamp) -> Entry {
    let syntaxes: Vec<String> = schema.syntaxes().map(ToString::to_string).collect();
    let rules: Vec<String> = schema.matching_rules().map(ToString::to_string).collect();
    let uses: Vec<String> = schema.matching_rule_uses().collect();
    let types: Vec<String> = schema.attribute_types().map(ToString::to_string).collect();
    let classes: Vec<String> = schema.object_classes().map(ToString::to_string).collect();
    let content: Vec<String> = schema.content_rules().map(ToString::to_string).collect();
    let mut built = Builder::new(schema, dn).one("structuralObjectClass", "subentry").add(
        "objectClass",
        ["top", "subentry", "subschema", "extensibleObject"],
    );
    for (name, value) in naming_attributes(dn) {
        built = built.one(&name, value);
    }
    built
        .one("createTimestamp", started.generalized())
        .one("modifyTimestamp", started.generalized())
        .add("ldapSyntaxes", syntaxes)
        .add("matchingRules", rules)
        .add("matchingRuleUse", uses)
        .add("attributeTypes", types)
        .add("objectClasses", classes)
        .add("dITContentRules", content)
        .one("entryDN", dn)
        .one("subschemaSubentry", dn)
        .build()
}

/// The attributes in a DN's RDN, which its entry must have.
pub(crate) fn naming_attributes(dn: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(parsed) = Dn::parse(dn) else { return Vec::new() };
    let first = parsed.rdns().next();
    first
        .into_iter()
        .flat_map(|rdn| rdn.avas().map(|ava| (ava.attribute.to_owned(), ava.value.to_vec())).collect::<Vec<_>>())
        .collect()
}
