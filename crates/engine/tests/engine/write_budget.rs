//! What one change may cost.

use larix_engine::DatabaseSettings;
use larix_engine::budget::RequestLimit;

use crate::common::{Fixture, TREE, memory, schema, settings};

const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";

#[test]
fn a_database_learns_so_many_attribute_descriptions() {
    let schema = schema("");
    let plain = settings(&schema);
    let known = {
        let fixture = Fixture::of(schema.clone(), vec![(memory(), plain.clone())]);
        fixture.apply(TREE);
        fixture.database().catalog().rows().len()
    };
    let most = known as u64 + 2;
    let request_limits = plain.request_limits.with(RequestLimit::Descriptions, most);
    let limited = DatabaseSettings { request_limits, ..plain };
    let fixture = Fixture::of(schema, vec![(memory(), limited)]);
    fixture.apply(TREE);
    let tag = |tags: &[&str]| {
        let lines: String =
            tags.iter().map(|tag| format!("add: sn;lang-{tag}\nsn;lang-{tag}: x\n-\n")).collect();
        fixture.change(&format!("dn: {BO}\nchangetype: modify\n{lines}"))
    };
    let refused =
        format!("11 more than {most} attribute descriptions in one database (request-limits descriptions=)");
    let tagged = |line: &str| fixture.show(BO).lines().any(|shown| shown.starts_with(line));
    let rows = || fixture.database().catalog().rows().len() as u64;
    assert_eq!(tag(&["a", "b", "c"]), refused);
    // What was refused left nothing behind.
    assert_eq!((rows(), tagged("sn;lang")), (known as u64, false));
    assert_eq!(tag(&["a", "b"]), "0");
    assert_eq!(tag(&["c"]), refused);
    assert_eq!(rows(), most);
    // As many are too many for an entry to be added, before anything is made of them.
    let tags: String = (0..=most).map(|tag| format!("sn;lang-{tag}: x\n")).collect();
    let entry = "dn: cn=Tag,dc=example,dc=com\nchangetype: add\nobjectClass: person\ncn: Tag\nsn: x\n";
    assert_eq!(fixture.change(&format!("{entry}{tags}")), refused);
    // What is known may be used as before.
    fixture.apply(&format!("dn: {BO}\nchangetype: modify\nreplace: sn;lang-a\nsn;lang-a: y\n-\n"));
    assert!(tagged("sn;lang-a: y"), "{}", fixture.show(BO));
}
