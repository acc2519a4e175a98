//! Changes under controls and under access rules, and the changes of glued, read-only and empty-suffix databases.

use std::sync::Arc;

use larix_store::memory::MemoryStore;

use crate::common::{
    self, Fixture, SUFFIX, TREE, describe, memory, operation, policy, records, schema, settings, suffix,
};

const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";
const ANN: &str = "cn=Ann Lee,ou=People,dc=example,dc=com";

fn tree() -> Fixture<MemoryStore> {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    fixture
}

const ASSERTION: &str = "1.3.6.1.1.12";
const PERMISSIVE: &str = "1.2.840.113556.1.4.1413";
const RELAX: &str = "1.3.6.1.4.1.4203.666.5.12";
const NO_OP: &str = "1.3.6.1.4.1.4203.666.5.2";

fn check(control: &str, change: &str, expected: &str, after: &str) {
    let fixture = tree();
    let answer = fixture.change(&format!("dn: {BO}\ncontrol: {control}\n{change}\n"));
    assert_eq!(answer, expected, "{control} {change}");
    let shown: String = fixture.show(BO).lines().skip(2).map(|line| format!("{line}|")).collect();
    assert_eq!(shown, after, "{control} {change}");
}

#[test]
fn controls() {
    let (same, none) = ("cn: Bo|sn: Bo|", "");
    let modify = "changetype: modify\nreplace: sn\nsn: x\n-";
    // (sn=Bo), (sn=y)
    check(&format!("{ASSERTION} true:: owgEAnNuBAJibw=="), modify, "0", "cn: Bo|sn: x|");
    check(&format!("{ASSERTION} true:: owcEAnNuBAF5"), modify, "122", same);
    check(&format!("{ASSERTION} true:: owcEAnNuBAF5"), "changetype: delete", "122", same);
    check(&format!("{NO_OP} true"), modify, "16654", same);
    check(&format!("{NO_OP} true"), "changetype: delete", "16654", same);
    let twice = "changetype: modify\nadd: sn\nsn: BO\nsn: z\n-\ndelete: mail\nmail: x\n-";
    check(&format!("{PERMISSIVE} true"), twice, "0", "cn: Bo|sn: Bo|sn: z|");
    let class = "changetype: modify\nreplace: objectClass\nobjectClass: person\n-";
    check(&format!("{RELAX} true"), class, "0", "sn: Bo|objectClass: person|");
    let time = "changetype: modify\nreplace: createTimestamp\ncreateTimestamp: 20200101000000Z\n-";
    check(&format!("{RELAX} true"), time, "0", same);
    let csn = "changetype: modify\nreplace: entryCSN\nentryCSN: 20200101000000.000000Z#000000#000#000000\n-";
    check(&format!("{RELAX} true"), csn, "19 entryCSN: no-user-modification attribute not manageable", same);
    check("1.2.840.113556.1.4.805 false", "changetype: delete", "0", none);
}

#[test]
fn the_entry_before_and_after() {
    let fixture = tree();
    let read = |ldif: &str| {
        let (change, controls) = operation(records(ldif).remove(0));
        let outcome = fixture.submit(fixture.request(change, &controls));
        assert_eq!(describe(&outcome), "0");
        let text = |value: &Option<Vec<u8>>| {
            let value = value.clone().unwrap();
            assert_eq!(value[0], 0x64);
            String::from_utf8_lossy(&value).into_owned()
        };
        outcome.controls.iter().map(|c| (c.oid.to_string(), text(&c.value))).collect::<Vec<_>>()
    };
    // Both ask for sn.
    let both = "control: 1.3.6.1.1.13.1 true:: MAQEAnNu\ncontrol: 1.3.6.1.1.13.2 true:: MAQEAnNu\n";
    let found = read(&format!("dn: {BO}\n{both}changetype: modrdn\nnewrdn: sn=New\ndeleteoldrdn: 0\n"));
    assert!(found[0].1.contains(BO) && found[0].1.ends_with("sn1\u{4}\u{4}\u{2}Bo"), "{found:?}");
    assert!(found[1].1.contains("sn=New,ou=People") && found[1].1.contains("Bo\u{4}\u{3}New"), "{found:?}");
}

/// OpenLDAP 2.5 asks for `a` and `z`, 2.7 for `i`: who is granted either may increment, until `-i`.
#[test]
fn what_an_increment_needs() {
    let dn = "uid=u,ou=People,dc=example,dc=com";
    let entry = format!(
        "dn: {dn}\nobjectClass: account\nobjectClass: posixAccount\nuid: u\ncn: u\nuidNumber: 10\ngidNumber: 1\nhomeDirectory: /\n"
    );
    let (allowed, refused) = ("0", "50");
    for (grant, increment, add, replace) in [
        ("read", refused, refused, refused),
        ("increment", allowed, refused, refused),
        ("selfincrement", refused, refused, refused),
        ("=i", allowed, refused, refused),
        ("add", refused, allowed, refused),
        ("delete", refused, refused, refused),
        ("=az", allowed, allowed, allowed),
        ("=azi", allowed, allowed, allowed),
        ("write", allowed, allowed, allowed),
        ("manage", allowed, allowed, allowed),
        ("increment continue by users -w", refused, refused, refused),
        ("write continue by users -az", refused, refused, refused),
        ("=aiz continue by users -a", allowed, refused, refused),
        ("write continue by users -i", refused, allowed, allowed),
    ] {
        let schema = schema("");
        let mut settings = settings(&schema);
        let rule = format!("to attrs=uidNumber,description by users {grant}");
        settings.policy = Some(policy(&schema, &[&rule, "to * by * read"]));
        let mut fixture = Fixture::of(schema, vec![(memory(), settings)]);
        fixture.apply(TREE);
        fixture.apply(&entry);
        fixture.bind(ANN);
        let modify = |change: &str| fixture.change(&format!("dn: {dn}\nchangetype: modify\n{change}\n-\n"));
        assert_eq!(modify("increment: uidNumber\nuidNumber: 1"), increment, "{grant}");
        assert_eq!(modify("add: description\ndescription: x"), add, "{grant}");
        assert_eq!(modify("replace: uidNumber\nuidNumber: 1"), replace, "{grant}");
    }
}

#[test]
fn what_access_rules_allow() {
    let schema = schema("");
    let mut settings = settings(&schema);
    settings.policy = Some(policy(
        &schema,
        &[
            "to dn.base=\"ou=Groups,dc=example,dc=com\" attrs=children by users write",
            "to dn.subtree=\"ou=Groups,dc=example,dc=com\" by users write by * read",
            "to attrs=sn by self write by * read",
            "to attrs=mail by self =az by * read",
            "to * by * read",
        ],
    ));
    let mut fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    let person = |rdn: &str, at: &str| {
        format!("dn: {rdn},{at},{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: x\nsn: x\n")
    };
    let modify = |dn: &str, change: &str| format!("dn: {dn}\nchangetype: modify\n{change}\n-\n");

    fixture.bind(ANN);
    assert_eq!(fixture.change(&person("cn=x", "ou=People")), "50 no write access to parent");
    assert_eq!(fixture.change(&person("cn=x", "ou=Groups")), "0");
    assert_eq!(fixture.value("cn=x,ou=Groups,dc=example,dc=com", "creatorsName").as_deref(), Some(ANN));
    assert_eq!(fixture.change(&modify(BO, "replace: sn\nsn: y")), "50");
    assert_eq!(fixture.change(&modify(ANN, "replace: sn\nsn: y")), "0");
    assert_eq!(fixture.change(&modify(ANN, "add: mail\nmail: y")), "0");
    assert_eq!(fixture.change(&modify(ANN, "add: description\ndescription: y")), "50");
    assert_eq!(fixture.change(&format!("dn: {BO}\nchangetype: delete\n")), "50 no write access to parent");
    assert_eq!(
        fixture.change(&format!(
            "dn: {BO}\nchangetype: modrdn\nnewrdn: cn=z\ndeleteoldrdn: 1\nnewsuperior: ou=Groups,{SUFFIX}\n"
        )),
        "50 no write access to parent's children"
    );
    assert_eq!(fixture.change(&format!("dn: {SUFFIX}\nchangetype: delete\n")), "50");
    fixture.bind("");
    assert_eq!(fixture.change(&person("cn=y", "ou=Groups")), "50 no write access to parent");
}

#[test]
fn several_databases() {
    let schema = schema("");
    let mut glued = settings(&schema);
    glued.suffixes = vec![suffix(&schema, "ou=Far,dc=example,dc=com")];
    glued.subordinate = true;
    let mut frozen = settings(&schema);
    frozen.suffixes = vec![suffix(&schema, "dc=frozen")];
    frozen.read_only = true;
    let near = settings(&schema);
    let fixture =
        Fixture::of(Arc::clone(&schema), vec![(memory(), glued), (memory(), near), (memory(), frozen)]);
    fixture.apply(TREE);
    fixture.apply("dn: ou=Far,dc=example,dc=com\nobjectClass: organizationalUnit\nou: Far\n");
    assert_eq!(fixture.directory.naming_contexts(), [SUFFIX, "dc=frozen"]);
    let far = fixture.directory.select(&schema.parse_dn("cn=x,ou=far,dc=example,dc=com").unwrap()).unwrap();
    assert!(Arc::ptr_eq(far, &fixture.directory.databases()[0]));
    let top = schema.parse_dn(SUFFIX).unwrap();
    assert_eq!(fixture.directory.glued_below(&top).len(), 1);
    assert_eq!(
        fixture.change(&format!(
            "dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bo\ndeleteoldrdn: 1\nnewsuperior: ou=Far,{SUFFIX}\n"
        )),
        "71 cannot rename between DSAs"
    );
    assert_eq!(
        fixture.change("dn: dc=frozen\nchangetype: add\nobjectClass: domain\ndc: frozen\n"),
        "53 operation restricted"
    );
    assert_eq!(fixture.change("dn: dc=nowhere\nchangetype: delete\n"), "53 no global superior knowledge");
}

#[test]
fn the_empty_suffix_holds_everything() {
    let schema = schema("");
    let mut settings = settings(&schema);
    settings.suffixes = vec![suffix(&schema, "")];
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply("dn: dc=com\nobjectClass: domain\ndc: com\n\ndn: dc=example,dc=com\nobjectClass: domain\ndc: example\n");
    fixture.apply(
        "dn: dc=example,dc=com\nchangetype: modrdn\nnewrdn: dc=example\ndeleteoldrdn: 1\nnewsuperior:\n",
    );
    assert_eq!(fixture.show("dc=example"), "dn: dc=example\nobjectClass: domain\ndc: example\n");
    assert_eq!(fixture.change("dn: dc=x,dc=y\nchangetype: add\nobjectClass: domain\ndc: x\n"), "32");
    fixture.apply("dn: dc=com\nchangetype: delete\n");
}

#[test]
fn referral_entries_refer() {
    let fixture = tree();
    fixture.apply(&format!(
        "dn: ou=Away,{SUFFIX}\nobjectClass: referral\nobjectClass: extensibleObject\nou: Away\nref: ldap://other/ou=Away,dc=x\n"
    ));
    let away = format!("10 <ou=Away,{SUFFIX}> -> ldap://other/");
    let answer = fixture.change(&format!("dn: cn=a,ou=Away,{SUFFIX}\nchangetype: delete\n"));
    assert!(answer.starts_with(&away) && answer.contains("cn=a,ou=Away,dc=x"), "{answer}");
    let modify = "changetype: modify\nreplace: description\ndescription: x\n-\n";
    assert!(fixture.change(&format!("dn: ou=Away,{SUFFIX}\n{modify}")).starts_with(&away));
    let managed = format!("dn: ou=Away,{SUFFIX}\ncontrol: 2.16.840.1.113730.3.4.2 true\n{modify}");
    assert_eq!(fixture.change(&managed), "0");
}

#[test]
fn binds_find_their_passwords() {
    let fixture = tree();
    fixture.apply(&format!(
        "dn: {BO}\nchangetype: modify\nadd: userPassword\nuserPassword: a\nuserPassword: b\n-\n"
    ));
    let check = |dn: &str, shown: &str, secrets: &[&str]| {
        let name = fixture.schema.parse_dn(dn).unwrap();
        let found = fixture.directory.bind_lookup(&name, &larix_engine::access::Subject::default()).unwrap();
        let expected: Vec<Vec<u8>> = secrets.iter().map(|s| s.as_bytes().to_vec()).collect();
        assert_eq!((found.shown.as_str(), found.secrets), (shown, expected), "{dn}");
    };
    check("CN=manager,dc=example,dc=com", common::ROOT, &["secret"]);
    // Nobody but the root may use what no rule grants more than reading of: auth is below read.
    check("cn=bo,OU=people,dc=example,dc=com", BO, &["a", "b"]);
    check("cn=nobody,dc=example,dc=com", "cn=nobody,dc=example,dc=com", &[]);
    let elsewhere = fixture.schema.parse_dn("cn=x,dc=org").unwrap();
    let refused =
        fixture.directory.bind_lookup(&elsewhere, &larix_engine::access::Subject::default()).unwrap_err();
    assert_eq!(refused.code.0, 49);
}

/// `maxentrysize`: by the short way of a modify and by the long one, inline, apart and in large sets.
#[test]
fn entries_grow_up_to_a_size() {
    let schema = schema("");
    let limited = larix_engine::DatabaseSettings { entry_bytes_max: Some(20_000), ..settings(&schema) };
    let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), limited)]);
    fixture.apply(TREE);
    let (more, blob) = ("x".repeat(6_000), "x".repeat(30_000));
    let many: String = (0..2_000).map(|number| format!("seeAlso: cn=somebody {number},{SUFFIX}\n")).collect();
    let add = |name: &str, values: &str| {
        fixture.change(&format!(
            "dn: cn={name},{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: {name}\nsn: x\n{values}"
        ))
    };
    assert_eq!(add("small", &format!("description: {more}\n")), "0");
    for values in [format!("description: {blob}\n"), many.clone()] {
        let answer = add("large", &values);
        assert!(answer.starts_with("11") && answer.contains("where maxentrysize is 20000"), "{answer}");
        assert_eq!(fixture.show(&format!("cn=large,{SUFFIX}")), "none");
    }
    let small = format!("cn=small,{SUFFIX}");
    let modify = |change: &str| fixture.change(&format!("dn: {small}\nchangetype: modify\n{change}-\n"));
    let before = fixture.show(&small);
    assert!(modify(&format!("add: description\ndescription: {blob}\n")).starts_with("11"));
    assert!(modify(&format!("add: seeAlso\n{many}")).starts_with("11"));
    assert_eq!(fixture.show(&small), before, "what is refused leaves nothing");
    for (letter, answer) in [("y", "0"), ("z", "0"), ("w", "11")] {
        let result = modify(&format!("add: description\ndescription: {}\n", letter.repeat(6_000)));
        assert!(result.starts_with(answer), "{letter}: {result}");
    }
    assert_eq!(modify("delete: description\n"), "0");
}

#[test]
fn an_entry_uuid_names_one_entry() {
    let schema = schema("");
    let mut settings = settings(&schema);
    settings.index.add_line(&schema, "entryUUID", Some("eq")).unwrap();
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    let uuid = "01900000-0000-4000-8000-000000000001";
    let add = |name: &str| {
        fixture.change(&format!(
            "dn: cn={name},{SUFFIX}\ncontrol: {RELAX} true\nchangetype: add\nobjectClass: person\ncn: {name}\nsn: x\n\
             entryUUID: {uuid}\n"
        ))
    };
    assert_eq!(add("x"), "0");
    assert_eq!(add("y"), format!("19 another entry has the entryUUID {uuid}"));
    fixture.apply(&format!("dn: cn=x,{SUFFIX}\nchangetype: delete\n"));
    assert_eq!(add("y"), "0");
}
