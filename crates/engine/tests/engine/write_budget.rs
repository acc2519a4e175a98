//! What one change may cost.

use std::sync::Arc;

use larix_engine::DatabaseSettings;
use larix_engine::budget::RequestLimit;
use larix_store::memory::MemoryStore;

use crate::common::{Fixture, TREE, memory, policy, schema, settings};

const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";
const ANN: &str = "cn=Ann Lee,ou=People,dc=example,dc=com";

/// With these rules before `to * by users write by * read`, and so many steps.
fn limited(rules: &[&str], steps: u64) -> Fixture<MemoryStore> {
    let schema = schema("");
    let plain = settings(&schema);
    let policy = Some(policy(&schema, &[rules, &["to * by users write by * read"]].concat()));
    let request_limits = plain.request_limits.with(RequestLimit::Steps, steps);
    let fixture = Fixture::of(schema, vec![(memory(), DatabaseSettings { policy, request_limits, ..plain })]);
    fixture.apply(TREE);
    fixture
}

/// Adds so many values to an entry.
fn add_values(fixture: &Fixture<MemoryStore>, dn: &str, attribute: &str, values: &[String]) {
    let lines: String = values.iter().map(|value| format!("{attribute}: {value}\n")).collect();
    fixture.apply(&format!("dn: {dn}\nchangetype: modify\nadd: {attribute}\n{lines}-\n"));
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("cn=somebody {n},dc=example,dc=com")).collect()
}

#[test]
fn access_rules_take_so_many_steps_of_a_change() {
    let rule = "to attrs=sn by set=\"this/seeAlso/cn & [none]\" none by users write";
    let modify = |fixture: &Fixture<MemoryStore>, attribute: &str| {
        fixture.change(&format!("dn: {BO}\nchangetype: modify\nreplace: {attribute}\n{attribute}: x\n-\n"))
    };
    for (steps, answer) in
        [(1_000, "11 more than 1000 steps of work on one entry (request-limits steps=)"), (10_000, "0")]
    {
        let mut fixture = limited(&[rule], steps);
        add_values(&fixture, BO, "seeAlso", &names(200));
        fixture.bind(ANN);
        assert_eq!(modify(&fixture, "description"), "0", "the rule is not asked");
        assert_eq!(modify(&fixture, "sn"), answer);
        let many: String = (0..100).map(|n| format!("sn: x{n}\n")).collect();
        let add = fixture.change(&format!("dn: {BO}\nchangetype: modify\nadd: sn\n{many}-\n"));
        assert_eq!(add, answer, "the rule says the same of all values, and is asked once");
        // Nobody else has to do with it.
        assert_eq!(modify(&fixture, "title"), "0");
    }
}

/// Also where their sums go to other members.
#[test]
fn increments_take_steps() {
    const A: &str = "cn=a,dc=example,dc=com";
    let schema = schema("");
    let plain = settings(&schema);
    let request_limits = plain.request_limits.with(RequestLimit::Steps, 1_000);
    for merges_records in [false, true] {
        let settings = DatabaseSettings { request_limits, merges_records, ..plain.clone() };
        let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), settings)]);
        fixture.apply(TREE);
        fixture.apply(&format!(
            "dn: {A}\nchangetype: add\nobjectClass: device\nobjectClass: posixAccount\ncn: a\nuid: a\n\
             uidNumber: 5\ngidNumber: 1\nhomeDirectory: /\n"
        ));
        let increment = |count: usize| {
            let all = "increment: uidNumber\nuidNumber: 1\n-\n".repeat(count);
            fixture.change(&format!("dn: {A}\nchangetype: modify\n{all}"))
        };
        let refused = "11 more than 1000 steps of work on one entry (request-limits steps=)";
        assert_eq!((increment(600).as_str(), increment(300).as_str()), (refused, "0"), "{merges_records}");
        assert_eq!(fixture.value(A, "uidNumber").as_deref(), Some("305"));
    }
}

/// Whether the entry is there or not, and no other change of the group fails.
#[test]
fn rules_about_the_superior_that_take_too_much_tell_of_no_entry() {
    let hidden = format!("to dn.base=\"{BO}\" by * none");
    let children = "to attrs=children by set=\"this/seeAlso/cn & [none]\" none by users write";
    let mut fixture = limited(&[&hidden, children], 1_000);
    add_values(&fixture, "ou=People,dc=example,dc=com", "seeAlso", &names(200));
    fixture.bind(ANN);
    let add = |cn: &str| {
        let dn = format!("cn={cn},ou=People,dc=example,dc=com");
        fixture.change(&format!("dn: {dn}\nchangetype: add\nobjectClass: person\ncn: {cn}\nsn: x\n"))
    };
    let refused = "11 more than 1000 steps of work on one entry (request-limits steps=)";
    for (cn, answer) in [("Bo", refused), ("Nobody", refused), ("Ann Lee", "68")] {
        assert_eq!(add(cn), answer, "{cn}");
    }
}

/// An account must not cost the others theirs: what is beyond the limit matches nothing.
#[test]
fn a_bind_looks_at_so_many_passwords() {
    let passwords_of_ann = format!("to dn.base=\"{ANN}\" attrs=userPassword");
    let rules = [
        format!("{passwords_of_ann} val.regex=\"^s\" by set=\"this/seeAlso/cn & [none]\" none by * auth"),
        format!("{passwords_of_ann} by * none"),
    ];
    let passwords = |count: usize| (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>();
    let look_up = |fixture: &Fixture<MemoryStore>, dn: &str| {
        let name = fixture.schema.parse_dn(dn).unwrap();
        let found = fixture.directory.bind_lookup(&name, &larix_engine::access::Subject::default()).unwrap();
        (found.secrets.len(), found.exceeded.map(|exceeded| exceeded.to_string()))
    };
    let exceeded = Some("more than 2000 steps of work on one entry (request-limits steps=)".to_owned());
    for (steps, of_bo, of_ann) in [(2_000, (117, exceeded.clone()), exceeded), (50_000, (200, None), None)] {
        let fixture = limited(&rules.each_ref().map(String::as_str), steps);
        add_values(&fixture, BO, "userPassword", &passwords(200));
        add_values(&fixture, ANN, "userPassword", &passwords(50));
        add_values(&fixture, ANN, "seeAlso", &names(20));
        assert_eq!(look_up(&fixture, BO), of_bo);
        let (found, left_out) = look_up(&fixture, ANN);
        // The set is evaluated for each.
        assert!(if of_ann.is_some() { (1..20).contains(&found) } else { found == 50 }, "{found}");
        assert_eq!(left_out, of_ann);
    }
}

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
