//! Changes made at random, valid or not: what is accepted can be read back as the same model, and numbers have no gaps.
//!
//! `LARIX_CONFIG_CHANGES` sets how many, `LARIX_CONFIG_SEED` where they start.

use std::collections::BTreeSet;

use larix_engine::controls::RequestControls;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{ModifyOperation, ResultCode};

use super::super::model::{Config, Source};
use super::fixture::{TestSources, start};
use larix_backend::memory_tree::ordered_parts;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.roll(from.len())]
    }

    fn numbered(&mut self, name: &str) -> String {
        match self.roll(3) {
            0 => name.to_owned(),
            _ => format!("{{{}}}{name}", self.roll(6)),
        }
    }
}

const VALUES: &[(&str, &[&str])] = &[
    (
        "olcAccess",
        &[
            "to * by * read",
            "to attrs=larch by self write",
            "to attrs=cone by * none",
            "to nonsense",
            "{1}",
            "to * by users read",
        ],
    ),
    (
        "olcDbIndex",
        &["objectClass eq", "larch eq,sub", "needle pres", "nosuch eq", "larch,cn eq", "entryUUID eq"],
    ),
    ("olcLimits", &["* size=10", "users time=5", "anonymous size.soft=3", "rubbish", "{0}"]),
    ("olcSizeLimit", &["5", "unlimited", "much"]),
    ("olcReadOnly", &["TRUE", "FALSE", "maybe"]),
    ("olcRootDN", &["cn=root,cn=one", "cn=elsewhere", "not a dn"]),
    ("olcRootPW", &["secret", "{SSHA}x"]),
    ("olcSuffix", &["cn=one", "cn=two", "cn=three", "cn=a,cn=one"]),
    ("olcDbDirectory", &["/tmp/larix-test/one", "/tmp/larix-test/three"]),
    ("olcIdleTimeout", &["5", "-1", "99999999999", "x"]),
    ("olcLogLevel", &["stats", "256", "sync", "bogus"]),
    ("olcModuleLoad", &["ppolicy", "{0}seqmod", "back_mdb.la", "{1}"]),
    (
        "olcAttributeTypes",
        &[
            "( 1.3.9999.7 NAME 'bark' SUP larch )",
            "( 1.3.9999.8 NAME 'root' SUP nothing )",
            "{0}",
            "( broken",
        ],
    ),
    ("olcObjectClasses", &["( 1.3.9999.9 NAME 'tree' SUP top AUXILIARY MAY larch )", "{0}"]),
    ("olcDatabase", &["{1}mdb"]),
    ("objectClass", &["olcGlobal", "olcMdbConfig"]),
    ("description", &["nothing"]),
];

fn modification(dice: &mut Dice) -> Modification {
    let (name, values) = *dice.pick(VALUES);
    let operation = *dice.pick(&[
        ModifyOperation::Add,
        ModifyOperation::Add,
        ModifyOperation::Replace,
        ModifyOperation::Delete,
    ]);
    let count = match operation {
        ModifyOperation::Add => 1 + dice.roll(2),
        _ => dice.roll(3),
    };
    let value = |dice: &mut Dice| {
        let value = *dice.pick(values);
        match dice.roll(3) {
            0 if !value.starts_with('{') => format!("{{{}}}{value}", dice.roll(4)),
            _ => value.to_owned(),
        }
    };
    let values = (0..count).map(|_| value(dice).into_bytes()).collect();
    Modification { operation, attribute: AttributeValues { description: name.to_owned(), values } }
}

fn add(dice: &mut Dice, config: &Config) -> WriteOperation {
    let text = |name: &str, value: &str| AttributeValues {
        description: name.to_owned(),
        values: vec![value.as_bytes().to_vec()],
    };
    let entries = config.entries();
    match dice.roll(4) {
        0 => {
            let value = dice.numbered("mdb");
            let serial = dice.roll(9);
            let mut attributes = vec![
                text("objectClass", "olcMdbConfig"),
                text("olcDatabase", &value),
                text("olcSuffix", &format!("cn=db{serial}")),
                text("olcDbDirectory", &format!("/tmp/larix-test/db{serial}")),
            ];
            if dice.roll(4) == 0 {
                attributes.pop();
            }
            WriteOperation::Add { entry: format!("olcDatabase={value},cn=config"), attributes }
        }
        1 => {
            let name = *dice.pick(&["seqmod", "ppolicy", "deref", "nosuch", "memberof"]);
            let value = dice.numbered(name);
            let parent = dice.pick(&entries).dn.clone();
            let attributes = vec![text("objectClass", "olcOverlayConfig"), text("olcOverlay", &value)];
            WriteOperation::Add { entry: format!("olcOverlay={value},{parent}"), attributes }
        }
        2 => {
            let name = *dice.pick(&["alpha", "beta"]);
            let value = dice.numbered(name);
            let serial = dice.roll(5);
            let definition = format!("( 1.3.9999.1.{serial} NAME 'random{serial}' SUP larch )");
            let attributes = vec![
                text("objectClass", "olcSchemaConfig"),
                text("cn", &value),
                text("olcAttributeTypes", &definition),
            ];
            WriteOperation::Add { entry: format!("cn={value},cn=schema,cn=config"), attributes }
        }
        _ => {
            let value = ["module", "module{0}", "module{1}"][dice.roll(3)];
            let attributes = vec![text("objectClass", "olcModuleList"), text("olcModuleLoad", "unique")];
            WriteOperation::Add { entry: format!("cn={value},cn=config"), attributes }
        }
    }
}

fn operation(dice: &mut Dice, config: &Config) -> WriteOperation {
    let entries = config.entries();
    let entry = dice.pick(&entries).dn.clone();
    match dice.roll(10) {
        0..5 => {
            let count = 1 + dice.roll(3);
            WriteOperation::Modify {
                object: entry,
                changes: (0..count).map(|_| modification(dice)).collect(),
            }
        }
        5..7 => add(dice, config),
        7 => WriteOperation::Delete { entry },
        _ => {
            let rdn = entry.split(',').next().unwrap_or_default();
            let (attribute, value) = rdn.split_once('=').unwrap_or((rdn, ""));
            let bare = value.split_once('}').map_or(value, |(_, bare)| bare);
            let new_rdn = format!("{attribute}={{{}}}{bare}", dice.roll(5));
            WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn: true, new_superior: None }
        }
    }
}

/// Numbers without gaps, among siblings and among values; no two entries with one entryUUID.
fn check_numbers(config: &Config) {
    let mut seen = BTreeSet::new();
    let entries = config.entries();
    for entry in &entries {
        for attribute in &entry.attributes {
            let kind = config.schema.attribute_type(&attribute.description);
            if kind.is_some_and(|kind| kind.is_ordered_values()) {
                for (place, value) in attribute.values.iter().enumerate() {
                    let (number, _) = ordered_parts(value).expect("a number");
                    assert_eq!(number, format!("{{{place}}}").as_bytes(), "{}", entry.dn);
                }
            }
        }
        assert!(seen.insert(entry.values("entryUUID").to_vec()) || entry.values("entryUUID").is_empty());
    }
    for (number, _) in config.databases.iter().enumerate() {
        let start = format!("olcDatabase={{{number}}}");
        assert_eq!(entries.iter().filter(|entry| entry.dn.starts_with(&start)).count(), 1, "{start}");
    }
}

fn shown(config: &Config) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        config.global, config.frontend, config.databases, config.modules, config.schema_sections
    )
}

fn setting(name: &str, default: u64) -> u64 {
    #[allow(clippy::disallowed_methods, reason = "a variable says how long a test runs")]
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn whatever_is_accepted_reads_back_as_the_same_model() {
    let (changes, seed) = (setting("LARIX_CONFIG_CHANGES", 400), setting("LARIX_CONFIG_SEED", 5));
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let sources = TestSources::new();
    let mut entries = start(Source::QuickStart).entries();
    entries.iter_mut().for_each(|entry| sources.stamp().complete(entry));
    super::super::slapd_d::write_entries(directory.path(), &entries, &sources.stamp()).unwrap();
    let mut config = Config::from_slapd_d(directory.path()).unwrap();
    let (mut dice, mut accepted, mut bare) = (Dice(seed), 0, 0);
    for number in 0..changes {
        let operation = operation(&mut dice, &config);
        let description = format!("{operation:?}");
        let before = shown(&config);
        match sources.change(&config, operation, RequestControls::default()) {
            Ok(changed) => {
                accepted += 1;
                check_numbers(&changed.config);
                changed.commit().unwrap_or_else(|error| panic!("{description}: {error}"));
                if number % 20 == 0 || changes <= 200 {
                    let again = Config::from_slapd_d(directory.path()).unwrap();
                    assert_eq!(again.entries(), changed.config.entries(), "{description}");
                    assert_eq!(shown(&again), shown(&changed.config), "{description}");
                    assert_eq!(
                        again.schema.fingerprint(),
                        changed.config.schema.fingerprint(),
                        "{description}"
                    );
                }
                config = changed.config;
            }
            Err(refusal) => {
                bare += usize::from(refusal.0.code == ResultCode::OTHER && refusal.0.diagnostic.is_empty());
                assert_eq!(shown(&config), before, "{description}");
            }
        }
    }
    assert_eq!(bare, 0, "every refusal says why");
    assert!(accepted > changes / 20, "{accepted} of {changes} accepted");
}
