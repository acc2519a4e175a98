use larix_engine::audit;

use super::*;

const CSN: &str = "20261121153509.070405Z#000000#001#000000";
const UUID: &str = "e0b80f08-7a0c-1041-93ed-f5d4b3c37bd4";

fn record(lines: &[(&str, &str)]) -> Vec<AttributeValues> {
    let mut attributes: Vec<AttributeValues> = Vec::new();
    for (name, value) in lines {
        let value = value.as_bytes().to_vec();
        match attributes.iter_mut().find(|a| a.description == *name) {
            Some(attribute) => attribute.values.push(value),
            None => attributes.push(AttributeValues { description: (*name).to_owned(), values: vec![value] }),
        }
    }
    attributes
}

fn modification(kind: LoggedKind, name: &str, values: &[&str]) -> LoggedModification {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    LoggedModification { kind, attribute: LoggedAttribute { description: name.to_owned(), values } }
}

#[test]
fn lines_survive() {
    use LoggedKind::{Add, Delete, Increment, Replace};
    for modifications_in in [
        vec![
            modification(Add, "mail", &["a", "b"]),
            modification(Replace, "description", &[]),
            modification(Replace, "description", &["x"]),
            modification(Delete, "mail", &[]),
            modification(Delete, "mail", &["a:+ b", ""]),
            modification(Increment, "uidNumber", &["-1"]),
        ],
        vec![modification(Add, "sn", &["1"]), modification(Add, "sn", &["2"])],
        vec![modification(Delete, "sn", &[]), modification(Delete, "sn", &[])],
        vec![modification(Add, "cn;lang-en", &[" leading"])],
    ] {
        let lines = audit::modification_lines(&modifications_in);
        assert_eq!(modifications(&lines).as_ref(), Ok(&modifications_in), "{lines:?}");
    }
}

#[test]
fn lines_that_are_none() {
    for line in ["", "sn", "sn:", "sn:? x", "sn:+x", "sn:+", "sn:#", ":+ x"] {
        let read = modifications(&[line.as_bytes().to_vec()]);
        assert!(matches!(read, Err(DeltaError::Value { attribute: "reqMod", .. })), "{line}: {read:?}");
    }
}

fn check(lines: &[(&str, &str)], expected: Result<Option<LoggedChange>, DeltaError>) {
    let read = change_of(&record(lines));
    let read = read.map(|change| {
        change.map(|change| match change {
            ReplicatedChange::Delta { entry_uuid, dn, csn, change, .. } => {
                assert_eq!(entry_uuid, Some(UUID.parse().unwrap()));
                assert_eq!((dn.as_str(), csn), ("cn=A,dc=b", CSN.parse().unwrap()));
                change
            }
            other => panic!("{other:?}"),
        })
    });
    assert_eq!(read, expected, "{lines:?}");
}

#[test]
fn records_of_an_access_log_are_changes() {
    let common = [("reqDN", "cn=A,dc=b"), ("reqResult", "0"), ("reqEntryUUID", UUID)];
    let with = |more: &[(&'static str, &'static str)]| [&common[..], more].concat();
    let csn_line = "entryCSN:= 20261121153509.070405Z#000000#001#000000";
    check(
        &with(&[("reqType", "modify"), ("reqMod", "sn:= C"), ("reqMod", csn_line), ("entryCSN", "x")]),
        Ok(Some(LoggedChange::Modify(vec![
            modification(LoggedKind::Replace, "sn", &["C"]),
            modification(LoggedKind::Replace, "entryCSN", &[CSN]),
        ]))),
    );
    check(&with(&[("reqType", "delete"), ("entryCSN", CSN)]), Ok(Some(LoggedChange::Delete)));
    check(
        &with(&[
            ("reqType", "modrdn"),
            ("reqNewRDN", "cn=Z+sn=Q"),
            ("reqDeleteOldRDN", "TRUE"),
            ("reqNewSuperior", "dc=c"),
            ("reqMod", csn_line),
        ]),
        Ok(Some(LoggedChange::ModifyDn {
            new_rdn: "cn=Z+sn=Q".to_owned(),
            delete_old_rdn: true,
            new_superior: Some("dc=c".to_owned()),
            modifications: vec![
                modification(LoggedKind::Delete, "cn", &["A"]),
                modification(LoggedKind::SoftAdd, "cn", &["Z"]),
                modification(LoggedKind::SoftAdd, "sn", &["Q"]),
                modification(LoggedKind::Replace, "entryCSN", &[CSN]),
            ],
        })),
    );
    check(&with(&[("reqType", "bind")]), Ok(None));
    check(&[("objectClass", "auditContainer"), ("cn", "log")], Ok(None));
    check(&[("reqType", "add"), ("reqResult", "68")], Ok(None));
    check(&with(&[("reqType", "add"), ("entryCSN", CSN)]), Err(DeltaError::Missing("reqMod")));
    check(&with(&[("reqType", "delete")]), Err(DeltaError::Missing("entryCSN")));
    check(&with(&[("reqType", "modrdn")]), Err(DeltaError::Missing("reqNewRDN")));
    check(&with(&[("reqType", "unheard")]), Err(DeltaError::Type("unheard".to_owned())));
}

#[test]
fn an_add_brings_its_own_identity() {
    let uuid_line = format!("entryUUID:+ {UUID}");
    let csn_line = format!("entryCSN:+ {CSN}");
    let lines = [
        ("reqDN", "cn=A,dc=b"),
        ("reqType", "add"),
        ("reqMod", "objectClass:+ person"),
        ("reqMod", uuid_line.as_str()),
        ("reqMod", csn_line.as_str()),
        ("reqMod", "objectClass:+ top"),
    ];
    let attribute = |name: &str, values: &[&str]| LoggedAttribute {
        description: name.to_owned(),
        values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
    };
    check(
        &lines,
        Ok(Some(LoggedChange::Add(vec![
            attribute("objectClass", &["person", "top"]),
            attribute("entryUUID", &[UUID]),
            attribute("entryCSN", &[CSN]),
        ]))),
    );
}

/// The log has changes of the whole database, and the line asks for what is below one entry.
#[test]
fn what_stays_outside_of_the_searchbase_is_no_change() {
    let mut builder = larix_schema::SchemaBuilder::system();
    builder.add_bundled("core").unwrap();
    let schema = std::sync::Arc::new(builder.build());
    let base = schema.parse_dn("ou=in,dc=b").unwrap();
    let massage = Massage::new(schema, base, "o=here");
    let called = |new_rdn: &str, new_superior: Option<&str>| LoggedChange::ModifyDn {
        new_rdn: new_rdn.to_owned(),
        delete_old_rdn: true,
        new_superior: new_superior.map(str::to_owned),
        modifications: Vec::new(),
    };
    let rename = |new_superior: Option<&str>| called("cn=z", new_superior);
    let modify = || LoggedChange::Modify(Vec::new());
    for (dn, change, expected) in [
        ("cn=a,ou=in,dc=b", modify(), Ok(Some("cn=a,o=here"))),
        ("cn=a,ou=out,dc=b", modify(), Ok(None)),
        ("cn=a,ou=out,dc=b", LoggedChange::Delete, Ok(None)),
        ("cn=a,ou=out,dc=b", LoggedChange::Add(Vec::new()), Ok(None)),
        ("cn=a,ou=out,dc=b", rename(None), Ok(None)),
        ("cn=a,ou=out,dc=b", rename(Some("ou=other,dc=b")), Ok(None)),
        ("cn=a,ou=out,dc=b", rename(Some("ou=in,dc=b")), Err(())),
        ("cn=a,ou=in,dc=b", rename(Some("ou=out,dc=b")), Err(())),
        ("cn=a,ou=in,dc=b", rename(Some("ou=deep,ou=in,dc=b")), Ok(Some("cn=a,o=here"))),
        // The searchbase itself, and what is above it.
        ("ou=old,dc=b", called("ou=in", None), Err(())),
        ("ou=in,dc=b", called("ou=old", Some("dc=b")), Err(())),
        ("ou=in,dc=b", called("ou=old", None), Err(())),
        ("dc=b", called("dc=c", None), Err(())),
        ("dc=b", modify(), Ok(None)),
        ("no name", modify(), Err(())),
    ] {
        let delta = ReplicatedChange::Delta {
            entry_uuid: None,
            dn: dn.to_owned(),
            csn: CSN.parse().unwrap(),
            change: change.clone(),
            place: None,
            whole: false,
        };
        let found = massaged(delta, &massage).map_err(drop);
        let found = found.map(|change| change.map(|change| name_of(&change)));
        assert_eq!(found, expected.map(|dn| dn.map(str::to_owned)), "{dn}: {change:?}");
    }
}

fn name_of(change: &ReplicatedChange) -> String {
    let ReplicatedChange::Delta { dn, .. } = change else { panic!("{change:?}") };
    dn.clone()
}
