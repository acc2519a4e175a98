use super::*;

fn attribute(name: &str, values: &[&str]) -> LoggedAttribute {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    LoggedAttribute { description: name.to_owned(), values }
}

fn modification(kind: LoggedKind, name: &str, values: &[&str]) -> LoggedModification {
    LoggedModification { kind, attribute: attribute(name, values) }
}

fn check(lines: Vec<Vec<u8>>, expected: &[&str]) {
    let lines: Vec<String> = lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
    assert_eq!(lines, expected);
}

#[test]
fn lines_of_modifications() {
    use LoggedKind::{Add, Delete, Increment, Replace, SoftAdd};
    check(
        modification_lines(&[
            modification(Add, "mail", &["m1@y", "m2@y"]),
            modification(Replace, "description", &["d1"]),
            modification(Delete, "mail", &["x@y"]),
            modification(Add, "telephoneNumber", &["1"]),
            modification(Add, "telephoneNumber", &["2"]),
            modification(Replace, "description", &[]),
            modification(Delete, "telephoneNumber", &[]),
            modification(Increment, "uidNumber", &["-1"]),
            modification(SoftAdd, "cn;lang-en", &[" a"]),
        ]),
        &[
            "mail:+ m1@y",
            "mail:+ m2@y",
            "description:= d1",
            "mail:- x@y",
            "telephoneNumber:+ 1",
            ":",
            "telephoneNumber:+ 2",
            "description:=",
            "telephoneNumber:-",
            "uidNumber:# -1",
            "cn;lang-en:+  a",
        ],
    );
}

/// What came together with a new name is told, but for what the name implies.
#[test]
fn records_of_renames() {
    use LoggedKind::{Delete, Replace, SoftAdd};
    let record = LogRecord {
        csn: Csn::ZERO,
        offset: 0,
        entry: crate::EntryId(7),
        superior: crate::EntryId::ROOT,
        entry_uuid: uuid::Uuid::from_u128(7),
        dn: "CN=A\\, b+sn=c,dc=example,dc=com".to_owned(),
        requester: String::new(),
        local: false,
        continues: false,
        absent: false,
        change: LoggedChange::ModifyDn {
            new_rdn: "cn=z".to_owned(),
            delete_old_rdn: true,
            new_superior: None,
            modifications: vec![
                modification(Delete, "cn", &["A, b"]),
                // The request had the name in other letters.
                modification(Delete, "cn", &["a,  B"]),
                modification(Delete, "surname", &["c"]),
                modification(SoftAdd, "cn", &["z"]),
                modification(Delete, "member", &["cn=m,dc=example,dc=com", "cn=n,dc=example,dc=com"]),
                modification(Delete, "sn", &["c", "d"]),
                modification(Delete, "description", &[]),
                modification(Replace, "title", &["t"]),
            ],
        },
        old: Vec::new(),
        form: RecordForm::AsDone,
    };
    let schema = crate::fixture::schema();
    let told = of_change(&schema, &record, None, None, Timestamp(1));
    let description = schema.describe("reqMod").unwrap();
    let lines = told.attributes.into_iter().find(|attribute| attribute.description == description);
    check(
        lines.unwrap().values,
        &[
            "member:- cn=m,dc=example,dc=com",
            "member:- cn=n,dc=example,dc=com",
            "sn:- c",
            "sn:- d",
            "description:-",
            "title:= t",
        ],
    );
}

#[test]
fn lines_of_entries() {
    let entry = [attribute("objectClass", &["top", "person"]), attribute("sn", &[""])];
    check(add_lines(&entry), &["objectClass:+ top", "objectClass:+ person", "sn:+ "]);
    check(old_lines(&entry), &["objectClass: top", "objectClass: person", "sn: "]);
}

#[test]
fn controls_are_values_of_req_controls() {
    let control = |critical, value: Option<&[u8]>| ControlBuf {
        oid: "1.3.6.1.1.13.2".into(),
        critical,
        value: value.map(<[u8]>::to_vec),
    };
    assert_eq!(control_value(0, &control(false, None)), "{0}{1.3.6.1.1.13.2}");
    assert_eq!(
        control_value(3, &control(true, Some(b"0\x04\xff"))),
        "{3}{1.3.6.1.1.13.2 criticality TRUE controlValue \"3004FF\"}"
    );
}

#[test]
fn sets_of_operations() {
    for (text, has, has_not) in [
        ("writes", Operation::ModifyDn, Operation::Search),
        ("reads", Operation::Compare, Operation::Bind),
        ("session", Operation::Abandon, Operation::Extended),
        ("ADD|bind", Operation::Bind, Operation::Delete),
    ] {
        let set: Operations = text.parse().unwrap();
        assert!(set.contains(has) && !set.contains(has_not), "{text}");
    }
    assert!("all".parse::<Operations>().unwrap().contains(Operation::Extended));
    assert_eq!("add|x".parse::<Operations>(), Err(UnknownOperation("x".to_owned())));
}
