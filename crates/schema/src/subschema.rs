//! The schema as text: the values of a subschema entry (RFC 4512 §4.2).

use std::fmt;

use crate::clauses::write_oids;
use crate::matching_rules::{ALL_RULES, MatchingRule};
use crate::model::AttributeType;
use crate::schema::Schema;

/// The attributes of a subschema entry that hold definitions.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum SubschemaAttribute {
    AttributeTypes,
    DitContentRules,
    LdapSyntaxes,
    MatchingRules,
    MatchingRuleUse,
    ObjectClasses,
}

impl SubschemaAttribute {
    /// All, in the order in which OpenLDAP returns them.
    pub const ALL: [Self; 6] = [
        Self::LdapSyntaxes,
        Self::MatchingRules,
        Self::MatchingRuleUse,
        Self::AttributeTypes,
        Self::ObjectClasses,
        Self::DitContentRules,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::AttributeTypes => "attributeTypes",
            Self::DitContentRules => "dITContentRules",
            Self::LdapSyntaxes => "ldapSyntaxes",
            Self::MatchingRules => "matchingRules",
            Self::MatchingRuleUse => "matchingRuleUse",
            Self::ObjectClasses => "objectClasses",
        }
    }
}

impl Schema {
    /// The values of one attribute of the subschema entry, without the elements that OpenLDAP hides.
    pub fn subschema_values(&self, attribute: SubschemaAttribute) -> Vec<String> {
        match attribute {
            SubschemaAttribute::AttributeTypes => texts(self.attribute_types().filter(|e| !e.hidden)),
            SubschemaAttribute::ObjectClasses => texts(self.object_classes().filter(|e| !e.hidden)),
            SubschemaAttribute::DitContentRules => texts(self.content_rules()),
            SubschemaAttribute::LdapSyntaxes => texts(self.syntaxes().filter(|e| !e.hidden)),
            SubschemaAttribute::MatchingRules => texts(ALL_RULES.iter().rev().filter(|rule| !rule.hidden)),
            SubschemaAttribute::MatchingRuleUse => {
                ALL_RULES.iter().rev().filter_map(|rule| self.rule_use(rule)).collect()
            }
        }
    }

    /// MatchingRuleUseDescription (RFC 4512 §4.1.4); none when nothing uses the rule.
    fn rule_use(&self, rule: &MatchingRule) -> Option<String> {
        let listed = !rule.hidden && (rule.extensible || !rule.value_syntaxes.is_empty());
        let names: Vec<String> = self
            .attribute_types()
            .filter(|attribute| listed && !attribute.hidden && rule.is_usable_with(attribute))
            .map(|attribute: &AttributeType| attribute.name().to_owned())
            .collect();
        (!names.is_empty()).then(|| RuleUseText { rule, names: &names }.to_string())
    }
}

struct RuleUseText<'a> {
    rule: &'a MatchingRule,
    names: &'a [String],
}

impl fmt::Display for RuleUseText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "( {} NAME '{}'", self.rule.oid, self.rule.name)?;
        write_oids(f, "APPLIES", self.names)?;
        f.write_str(" )")
    }
}

impl fmt::Display for MatchingRule {
    /// MatchingRuleDescription (RFC 4512 §4.1.3).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "( {} NAME '{}' SYNTAX {} )", self.oid, self.name, self.syntax_oid)
    }
}

fn texts<T: fmt::Display>(elements: impl Iterator<Item = T>) -> Vec<String> {
    elements.map(|element| element.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaBuilder;

    #[test]
    fn values_are_well_formed_and_read_back() {
        let mut builder = SchemaBuilder::system();
        builder.add_bundled("core").unwrap();
        builder.add_dit_content_rule("( 2.5.6.6 NAME 'r' AUX uidObject NOT ( sn $ seeAlso ) )").unwrap();
        let schema = builder.build();
        for attribute in SubschemaAttribute::ALL {
            let values = schema.subschema_values(attribute);
            assert!(!values.is_empty(), "{}", attribute.name());
            for value in &values {
                assert!(value.starts_with("( ") && value.ends_with(" )") && !value.contains("  "), "{value}");
            }
        }
        for text in schema.subschema_values(SubschemaAttribute::AttributeTypes) {
            let again = crate::definition::AttributeTypeDefinition::parse(&text).unwrap();
            assert_eq!(schema.attribute_type(&again.oid).unwrap().to_string(), text);
        }
        for text in schema.subschema_values(SubschemaAttribute::ObjectClasses) {
            let again = crate::definition::ObjectClassDefinition::parse(&text).unwrap();
            assert_eq!(schema.object_class(&again.oid).unwrap().to_string(), text);
        }
        assert_eq!(
            schema.subschema_values(SubschemaAttribute::DitContentRules),
            ["( 2.5.6.6 NAME 'r' AUX uidObject NOT ( sn $ seeAlso ) )"]
        );
        let sup_first = schema.subschema_values(SubschemaAttribute::MatchingRules);
        assert_eq!(
            sup_first.first().unwrap(),
            "( 1.3.6.1.1.16.3 NAME 'UUIDOrderingMatch' SYNTAX 1.3.6.1.1.16.1 )"
        );
    }
}
