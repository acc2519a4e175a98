//! The structural object class of entries under cn=config.

use super::super::entry::{ConfigAttribute, ConfigEntry};

const NAME: &str = "structuralObjectClass";
/// Classes that are never structural.
const AUXILIARY: [&str; 5] = [
    "olcFrontendConfig",
    "olcChainDatabase",
    "olcDistProcDatabase",
    "olcPcacheDatabase",
    "olcTranslucentDatabase",
];
/// Classes that kinds of databases, overlays and the like have above their own.
const GENERAL: [&str; 3] = ["olcBackendConfig", "olcDatabaseConfig", "olcOverlayConfig"];
/// Classes above all others.
const TOPMOST: [&str; 4] = ["top", "olcConfig", "olcPPolicyAbstractRule", "olcTransformation"];

fn is_one_of(names: &[&str], class: &[u8]) -> bool {
    names.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(class))
}

/// Whether it is a class of cn=config: others, such as extensibleObject, may be added.
fn is_own(class: &[u8]) -> bool {
    class.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"olc"))
}

/// The class, whatever the order in which the entry names its classes; empty if it has none.
pub(super) fn structural_class(entry: &ConfigEntry) -> Vec<u8> {
    // Of several the last one.
    let rank = |class: &&Vec<u8>| (is_own(class) && !is_one_of(&TOPMOST, class), !is_one_of(&GENERAL, class));
    let classes = entry.values("objectClass").iter().filter(|class| !is_one_of(&AUXILIARY, class));
    classes.max_by_key(rank).cloned().unwrap_or_default()
}

/// Corrects the attribute where an earlier Larix wrote a class that cannot be it: no change of such an entry was possible.
pub(super) fn mend(entry: &mut ConfigEntry) {
    let class = structural_class(entry);
    if class.is_empty() {
        return;
    }
    let cannot_be = |stored: &Vec<u8>| {
        !stored.eq_ignore_ascii_case(&class)
            && [&AUXILIARY[..], &GENERAL[..], &TOPMOST[..]].into_iter().any(|names| is_one_of(names, stored))
    };
    if entry.values(NAME).iter().any(cannot_be) {
        entry.attributes.retain(|attribute| !attribute.description.eq_ignore_ascii_case(NAME));
        entry.attributes.push(ConfigAttribute::new(NAME, vec![class]));
    }
}

#[cfg(test)]
mod tests {
    use larix_schema::{ClassKind, SchemaBuilder};

    use super::*;

    #[test]
    fn the_auxiliary_classes_are_those_of_the_schema() {
        let schema = SchemaBuilder::system().build();
        let names = |class: &larix_schema::ObjectClass| class.names.first().cloned().unwrap_or_default();
        let mut found: Vec<String> = schema
            .object_classes()
            .filter(|class| class.kind == ClassKind::Auxiliary)
            .map(names)
            .filter(|name| name.starts_with("olc"))
            .collect();
        found.sort_unstable();
        let mut expected = AUXILIARY.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_class_of_an_entry() {
        for (classes, expected) in [
            (&["olcGlobal"][..], "olcGlobal"),
            (&["olcDatabaseConfig", "olcFrontendConfig"], "olcDatabaseConfig"),
            (&["olcFrontendConfig", "olcDatabaseConfig"], "olcDatabaseConfig"),
            (&["olcDatabaseConfig", "olcMdbConfig"], "olcMdbConfig"),
            (&["olcMdbConfig", "olcDatabaseConfig", "olcConfig", "top"], "olcMdbConfig"),
            (&["olcOverlayConfig", "extensibleObject"], "olcOverlayConfig"),
            (&["olcLDAPConfig", "olcChainDatabase"], "olcLDAPConfig"),
            (&["olcLDAPConfig", "OLCTRANSLUCENTDATABASE"], "olcLDAPConfig"),
            (&["olcPPolicyAbstractRule", "olcPPolicyScopedRule"], "olcPPolicyScopedRule"),
            (&[], ""),
        ] {
            let mut entry = ConfigEntry::new("cn=x,cn=config", classes);
            assert_eq!(structural_class(&entry), expected.as_bytes(), "{classes:?}");
            let stored = classes.iter().rfind(|class| **class != "extensibleObject");
            let Some(stored) = stored else { continue };
            entry.text(NAME, stored);
            mend(&mut entry);
            assert_eq!(entry.values(NAME).first().unwrap(), expected.as_bytes(), "{classes:?}");
        }
    }
}
