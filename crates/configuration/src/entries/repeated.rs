//! A section of the schema that is added again, as by a script that adds its schema at each start.
//!
//! A definition may come twice if both mean the same, and the number of a new section makes its name another one. Without this check
//! each start would leave one more copy of the section.

use std::collections::HashSet;

use super::super::entry::ConfigEntry;
use super::names::{EntryName, Role, split_number};

/// Attributes with definitions, and what OpenLDAP calls one.
const DEFINITIONS: [(&str, &str); 5] = [
    ("olcAttributeTypes", "attributeType"),
    ("olcObjectClasses", "objectClass"),
    ("olcObjectIdentifier", "objectIdentifier"),
    ("olcLdapSyntaxes", "ldapSyntax"),
    ("olcDitContentRules", "DITContentRule"),
];

/// What is wrong with a new section, in OpenLDAP's words, if one of the same name among `others` has all its definitions already; else `None`.
pub(crate) fn repeats<'e>(
    section: &ConfigEntry,
    others: impl IntoIterator<Item = &'e ConfigEntry>,
) -> Option<String> {
    let name = section_name(section)?;
    let own: Vec<(&str, &str, String)> = definitions(section).collect();
    let (attribute, element, first) = own.first()?;
    let has_all = |other: &&ConfigEntry| {
        let is_named = section_name(other).is_some_and(|known| known.eq_ignore_ascii_case(&name));
        is_named && {
            let known: HashSet<(&str, &str, String)> = definitions(other).collect();
            own.iter().all(|definition| known.contains(definition))
        }
    };
    let known = others.into_iter().find(has_all)?;
    let oid = first.trim_start_matches(['(', ' ']).split(' ').next().unwrap_or_default();
    Some(format!("{attribute}: Duplicate {element}: \"{oid}\"; {} has the same definitions", known.dn))
}

fn section_name(entry: &ConfigEntry) -> Option<String> {
    match EntryName::parse(&entry.dn).ok()?.role {
        Role::Schema(name) => Some(name),
        _ => None,
    }
}

/// The definitions without their numbers and with single blanks.
fn definitions(entry: &ConfigEntry) -> impl Iterator<Item = (&'static str, &'static str, String)> + '_ {
    let text = |value: &Vec<u8>| {
        let text = String::from_utf8_lossy(value);
        split_number(text.trim()).1.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    DEFINITIONS.iter().flat_map(move |(attribute, element)| {
        entry.values(attribute).iter().map(move |value| (*attribute, *element, text(value)))
    })
}
