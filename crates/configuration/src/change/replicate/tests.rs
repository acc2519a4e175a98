use super::super::super::model::Source;
use super::super::fixture::{TestSources, start};
use super::*;

const UUIDS: [&str; 3] = [
    "01900000-0000-7000-8000-000000000001",
    "01900000-0000-7000-8000-000000000002",
    "01900000-0000-7000-8000-000000000003",
];

fn csn(second: u32) -> String {
    // The fixture's clock stands at 20260921.
    format!("20270101000{second:03}.000000Z#000000#001#000000")
}

fn put(uuid: usize, second: u32, dn: &str, attributes: &[(&str, &str)]) -> ReplicatedChange {
    let all = attributes.iter().map(|(name, value)| (*name, (*value).to_owned()));
    let own = [("entryUUID", UUIDS[uuid].to_owned()), ("entryCSN", csn(second))];
    let values = |(name, value): (&str, String)| AttributeValues {
        description: name.to_owned(),
        values: vec![value.into_bytes()],
    };
    ReplicatedChange::Put {
        entry_uuid: UUIDS[uuid].parse().unwrap(),
        dn: dn.to_owned(),
        attributes: all.chain(own).map(values).collect(),
        state: None,
        place: None,
    }
}

fn null(uuid: usize, second: u32, dn: &str, suffix: &str) -> ReplicatedChange {
    let name = dn.split(['=', ',']).nth(1).unwrap();
    put(
        uuid,
        second,
        dn,
        &[("objectClass", "olcDatabaseConfig"), ("olcDatabase", name), ("olcSuffix", suffix)],
    )
}

fn suffixes(config: &Config) -> Vec<String> {
    config.databases.iter().flat_map(|database| &database.suffixes).map(ToString::to_string).collect()
}

#[test]
fn a_providers_entries_become_the_configuration() {
    let sources = TestSources::new();
    let mut config = start(Source::QuickStart);
    let mut carry =
        |changes: &[ReplicatedChange], present: Option<&Present>, second: u32, expected: &[&str]| {
            let seen = [csn(second).parse().unwrap()];
            let done = config.replicated(changes, present, &seen, &sources.stamp()).unwrap();
            if let Some(changed) = done.changed {
                config = changed.config;
            }
            assert_eq!(suffixes(&config), expected);
            let top = config.entries().remove(0);
            assert_eq!(top.values("contextCSN"), [csn(second).into_bytes()]);
            (done.applied, done.absent)
        };
    let third = "olcDatabase={3}null,cn=config";
    let (done, older) = (vec![ApplyOutcome::Done], vec![ApplyOutcome::Older]);
    // Another entry, the same again, an older one, a newer one.
    let before = ["cn=one", "cn=two", "cn=three"];
    assert_eq!(carry(&[null(0, 1, third, "cn=three")], None, 1, &before), (done.clone(), 0));
    assert_eq!(carry(&[null(0, 1, third, "cn=other")], None, 1, &before), (older.clone(), 0));
    assert_eq!(
        carry(&[null(0, 2, third, "cn=four")], None, 2, &["cn=one", "cn=two", "cn=four"]),
        (done.clone(), 0)
    );
    // One that was made here under the name of the provider's gives way.
    let second = put(
        1,
        3,
        "olcDatabase={2}mdb,cn=config",
        &[
            ("objectClass", "olcMdbConfig"),
            ("olcDatabase", "{2}mdb"),
            ("olcSuffix", "cn=theirs"),
            ("olcDbDirectory", "/tmp/larix-test/two"),
        ],
    );
    assert_eq!(carry(&[second], None, 3, &["cn=one", "cn=theirs", "cn=four"]), (done, 0));
    // What the provider does not name goes if the provider would know of it: not what was made here.
    let mut uuids = UuidSet::new();
    uuids.insert(UUIDS[1].parse().unwrap());
    uuids.settle();
    // Only what is below its base.
    let base = NormalDn::from_normal("cn=schema,cn=config");
    let elsewhere = Present { base, uuids: uuids.clone() };
    assert_eq!(carry(&[], Some(&elsewhere), 4, &["cn=one", "cn=theirs", "cn=four"]), (vec![], 0));
    let present = Present { base: NormalDn::from_normal("cn=config"), uuids };
    assert_eq!(carry(&[], Some(&present), 4, &["cn=one", "cn=theirs"]), (vec![], 1));
    let gone = ReplicatedChange::Delete { entry_uuid: UUIDS[0].parse().unwrap(), csn: None };
    assert_eq!(carry(&[gone], None, 4, &["cn=one", "cn=theirs"]), (older, 0));
}

/// A provider's renumbered siblings have the CSNs that they had; a slapd does not send them at all.
#[test]
fn siblings_are_numbered_as_at_the_provider() {
    let sources = TestSources::new();
    let mut config = start(Source::QuickStart);
    let mut carry = |changes: &[ReplicatedChange], present: Option<&Present>, expected: &[&str]| {
        let seen = [csn(9).parse().unwrap()];
        let done = config.replicated(changes, present, &seen, &sources.stamp()).unwrap();
        config = done.changed.unwrap().config;
        assert_eq!(suffixes(&config), expected);
        let names: Vec<String> = config.entries().iter().map(|entry| entry.dn.clone()).collect();
        for number in 1..=expected.len() {
            let start = format!("olcDatabase={{{number}}}");
            assert_eq!(names.iter().filter(|name| name.starts_with(&start)).count(), 1, "{names:?}");
        }
        let is_it = |name: &String| name.starts_with("olcOverlay={0}seqmod,") && name.contains("}null,");
        names.into_iter().filter(is_it).collect::<Vec<_>>()
    };
    let first = "olcDatabase={1}null,cn=config";
    let second = "olcDatabase={2}null,cn=config";
    // One that comes in between: the others move down, with what is below them.
    carry(&[null(0, 1, first, "cn=a")], None, &["cn=a", "cn=one", "cn=two"]);
    let overlay = put(
        2,
        1,
        "olcOverlay={0}seqmod,olcDatabase={1}null,cn=config",
        &[("objectClass", "olcOverlayConfig"), ("olcOverlay", "{0}seqmod")],
    );
    carry(&[overlay], None, &["cn=a", "cn=one", "cn=two"]);
    // Another one of the same name, and the one that had it, which has not changed.
    let both = [null(1, 2, first, "cn=b"), null(0, 1, second, "cn=a")];
    let below = carry(&both, None, &["cn=b", "cn=a", "cn=one", "cn=two"]);
    assert_eq!(below, ["olcOverlay={0}seqmod,olcDatabase={2}null,cn=config"]);
    // One that is moved, and one that goes.
    let last = "olcDatabase={4}null,cn=config";
    carry(&[null(1, 3, last, "cn=b")], None, &["cn=a", "cn=one", "cn=two", "cn=b"]);
    let gone = ReplicatedChange::Delete { entry_uuid: UUIDS[0].parse().unwrap(), csn: None };
    assert!(carry(&[gone], None, &["cn=one", "cn=two", "cn=b"]).is_empty());
    // One that goes because the provider does not name it.
    carry(&[null(0, 4, first, "cn=a")], None, &["cn=a", "cn=one", "cn=two", "cn=b"]);
    let mut uuids = UuidSet::new();
    uuids.insert(UUIDS[1].parse().unwrap());
    uuids.settle();
    let present = Present { base: NormalDn::from_normal("cn=config"), uuids };
    carry(&[], Some(&present), &["cn=one", "cn=two", "cn=b"]);
}

#[test]
fn what_would_not_be_a_configuration_is_refused_whole() {
    let sources = TestSources::new();
    let config = start(Source::QuickStart);
    let good = null(0, 1, "olcDatabase={3}null,cn=config", "cn=three");
    let bad = put(
        1,
        1,
        "olcDatabase={4}mdb,cn=config",
        &[("objectClass", "olcMdbConfig"), ("olcDatabase", "{4}mdb"), ("olcSuffix", "cn=four")],
    );
    let refused = config.replicated(&[good, bad], None, &[], &sources.stamp()).unwrap_err();
    assert!(refused.to_string().contains("directory"), "{refused}");
}

#[test]
fn a_newer_entry_of_the_same_name_stays_and_is_theirs_from_now_on() {
    let sources = TestSources::new();
    let config = start(Source::QuickStart);
    let theirs = ReplicatedChange::Put {
        entry_uuid: UUIDS[2].parse().unwrap(),
        dn: "olcDatabase={0}config,cn=config".to_owned(),
        attributes: [
            ("objectClass", "olcDatabaseConfig"),
            ("olcDatabase", "{0}config"),
            ("olcRootPW", "theirs"),
            ("entryUUID", UUIDS[2]),
            ("entryCSN", "20200101000000.000000Z#000000#001#000000"),
        ]
        .map(|(name, value)| AttributeValues {
            description: name.to_owned(),
            values: vec![value.as_bytes().to_vec()],
        })
        .to_vec(),
        state: None,
        place: None,
    };
    let done = config.replicated(&[theirs], None, &[], &sources.stamp()).unwrap();
    assert_eq!(done.applied, [ApplyOutcome::Older]);
    let config = done.changed.unwrap().config;
    let entries = config.entries();
    let entry = entries.iter().find(|entry| entry.dn.starts_with("olcDatabase={0}")).unwrap();
    assert_eq!(entry.values("olcRootPW"), [b"secret".to_vec()]);
    assert_eq!(entry.values("entryUUID"), [UUIDS[2].as_bytes().to_vec()]);
}
