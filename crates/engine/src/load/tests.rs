//! Both ways of loading against each other, and what goes wrong.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use larix_schema::{Schema, SchemaBuilder};
use larix_store::fault::{Fault as StoreFault, FaultPlan, FaultStore};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::memory::MemoryStore;
use larix_store::{CommitError, Direction, KeyRange, Snapshot, Store};

use super::*;
use crate::catalog::Catalog;
use crate::codec::Dictionaries;
use crate::csn::Csn;
use crate::database::Suffix;
use crate::entry::EntryId;
use crate::index::IndexConfig;
use crate::log;
use crate::tables::{ATTRIBUTES, BLOBS, ENTRIES, INDEX, META, TABLES, TREE, VALUES, meta};
use crate::time::{ManualClock, SeededRandom};

struct Site {
    schema: Arc<Schema>,
    settings: DatabaseSettings,
    clock: ManualClock,
    random: SeededRandom,
}

impl Site {
    fn new() -> Self {
        let mut builder = SchemaBuilder::system();
        for name in ["core", "cosine", "inetorgperson"] {
            builder.add_bundled(name).unwrap();
        }
        let schema = Arc::new(builder.build());
        let mut index = IndexConfig::default();
        index.add_line(&schema, "cn,sn,mail", Some("pres,eq,sub,approx")).unwrap();
        index.add_line(&schema, "member", Some("eq")).unwrap();
        let suffix = |text: &str| Suffix { normal: schema.parse_dn(text).unwrap(), text: text.to_owned() };
        let settings = DatabaseSettings {
            suffixes: vec![suffix("dc=example,dc=com"), suffix("o=Other")],
            root_dn: Some(schema.parse_dn("cn=admin,dc=example,dc=com").unwrap()),
            root_dn_text: "cn=admin,dc=example,dc=com".to_owned(),
            index,
            last_modified: true,
            ..DatabaseSettings::default()
        };
        Self { schema, settings, clock: ManualClock::default(), random: SeededRandom::new(7) }
    }

    fn context(&self) -> LoadContext<'_> {
        LoadContext {
            schema: &self.schema,
            settings: &self.settings,
            clock: &self.clock,
            random: &self.random,
        }
    }

    fn empty(&self) -> Database<MemoryStore> {
        let store = MemoryStore::new(&TABLES).unwrap();
        Database::open(store, Arc::clone(&self.schema), self.settings.clone(), &SeededRandom::new(1)).unwrap()
    }

    /// Loads in bulk into a new store.
    fn bulk(
        &self,
        ldif: &str,
        options: &LoadOptions,
    ) -> (Database<MemoryStore>, Result<LoadReport, LoadError>) {
        let database = self.empty();
        let scratch = tempfile::tempdir().unwrap();
        let input = ldif.as_bytes();
        let report =
            load_empty(database.store(), scratch.path(), input, self.context(), options, &mut Unobserved);
        (database, report)
    }
}

const HEAD: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
    dn: ou=People,dc=example,dc=com\nobjectClass: organizationalUnit\nou: People\n\n";

/// Operational attributes, so that nothing depends on the clock.
fn stamped(n: usize) -> String {
    format!(
        "entryUUID: 00000000-0000-4000-8000-{n:012}\nentryCSN: 20260101000000.{n:06}Z#000000#001#000000\n\
         creatorsName: cn=a\ncreateTimestamp: 20260101000000Z\nmodifiersName: cn=a\n\
         modifyTimestamp: 20260101000000Z\n"
    )
}

/// The first two entries with operational attributes.
fn head() -> String {
    let (top, below) = HEAD.split_once("\n\n").unwrap();
    let second = stamped(0).replacen("-000000000000", "-000000900000", 1);
    format!("{top}\n{}\n{}\n{second}\n", stamped(0), below.trim_end())
}

/// `count` people, some photos and a group with all of them.
fn people(count: usize) -> String {
    let mut out = head();
    for n in 0..count {
        let name = format!("Person {} {}", n % 97, n);
        write!(
            out,
            "dn: cn={name},ou=People,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: {name}\n\
             sn: {}\nmail: p{n}@example.com\nmail: alias{n}@example.com\n{}",
            n % 13,
            stamped(n + 1)
        )
        .unwrap();
        if n % 50 == 0 {
            writeln!(out, "description: {}", "long ".repeat(500)).unwrap();
        }
        out.push('\n');
    }
    write!(out, "dn: cn=All,dc=example,dc=com\nobjectClass: groupOfNames\ncn: All\n{}", stamped(count + 1))
        .unwrap();
    for n in 0..count {
        writeln!(out, "member: cn=Person {} {},ou=People,dc=example,dc=com", n % 97, n).unwrap();
    }
    out
}

/// Everything in a store but the secret and the like; records as they are read.
fn dump<S: Store>(store: &S) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
    let snapshot = store.snapshot().unwrap();
    let dictionaries = Dictionaries::load(&snapshot).unwrap();
    let mut all = Vec::new();
    for table in [ATTRIBUTES, ENTRIES, TREE, VALUES, BLOBS, META] {
        for row in snapshot.scan(table, KeyRange::all(), Direction::Forward).unwrap() {
            let (key, value) = row.unwrap();
            let value = match table {
                ENTRIES => dictionaries.unpacked(&snapshot, EntryId(1), value).unwrap().to_vec(),
                _ => value.into_owned(),
            };
            let of_its_own =
                [meta::COOKIE_SECRET, meta::FORMAT, meta::DICTIONARY_SAMPLED].contains(&key.as_ref());
            if !of_its_own && !key.starts_with(meta::DICTIONARY) {
                all.push((table.0, key.into_owned(), value));
            }
        }
    }
    for item in snapshot.posting_keys(INDEX, KeyRange::all(), Direction::Forward).unwrap() {
        let (key, count) = item.unwrap();
        let set = snapshot.posting_set(INDEX, &key).unwrap();
        assert_eq!(set.len(), count);
        let ids = set.iter().flat_map(u64::to_be_bytes).collect();
        all.push((INDEX.0, key.into_owned(), ids));
    }
    all
}

#[test]
fn both_ways_make_the_same_database() {
    let site = Site::new();
    let ldif = people(700);
    let merged = site.empty();
    let options = LoadOptions { write_context_csn: true, ..LoadOptions::default() };
    let want = load_into(&merged, ldif.as_bytes(), site.context(), &options, &mut Unobserved).unwrap();
    assert_eq!((want.entries, want.failed), (703, 0));
    for (threads, memory_bytes) in [(1, 256 << 20), (1, 10_000), (3, 20_000)] {
        let options = LoadOptions { threads, memory_bytes, ..options.clone() };
        let (database, report) = site.bulk(&ldif, &options);
        let report = report.unwrap();
        assert_eq!((report.entries, report.failed, report.bytes), (703, 0, ldif.len() as u64));
        assert!(dump(database.store()) == dump(merged.store()), "{threads} threads, {memory_bytes} bytes");
    }
    // Which thread packs a record, and when, makes no difference.
    let stored = |threads| {
        let (database, report) = site.bulk(&ldif, &LoadOptions { threads, ..options.clone() });
        report.unwrap();
        let snapshot = database.store().snapshot().unwrap();
        assert_eq!(Dictionaries::load(&snapshot).unwrap().len(), 1);
        assert_eq!(crate::write::training::sampled(&snapshot).unwrap(), 703, "all of them waited for it");
        let rows = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).unwrap();
        rows.map(|row| row.unwrap().1.into_owned()).collect::<Vec<_>>()
    };
    assert!(stored(1) == stored(4));
    let csns = log::context_csns(&merged.store().snapshot().unwrap()).unwrap();
    assert_eq!(csns, ["20260101000000.000701Z#000000#001#000000".parse::<Csn>().unwrap()]);
}

/// The records in reverse: each before its superior.
fn bottom_up(ldif: &str) -> String {
    let mut records: Vec<_> = ldif.trim_end().split("\n\n").collect();
    records.reverse();
    records.join("\n\n") + "\n"
}

#[test]
fn superiors_may_come_later() {
    let site = Site::new();
    let ldif = bottom_up(&people(200));
    for memory_bytes in [64 << 20, 30_000] {
        let options = LoadOptions { memory_bytes, write_context_csn: true, ..LoadOptions::default() };
        let merged = site.empty();
        let (database, report) = site.bulk(&ldif, &options);
        let into = load_into(&merged, ldif.as_bytes(), site.context(), &options, &mut Unobserved);
        if report.is_ok() {
            // Attributes have other numbers, entries have the same.
            let tree = |database: &Database<MemoryStore>| {
                dump(database.store()).into_iter().filter(|(table, ..)| *table == TREE.0).collect::<Vec<_>>()
            };
            assert!(tree(&database) == tree(&merged), "the ways differ");
        }
        for (database, report) in [(database, report), (merged, into)] {
            if memory_bytes < 1 << 20 {
                let error = report.expect_err("more than the memory there is").to_string();
                assert!(error.ends_with("too many records wait for theirs"), "{error}");
                continue;
            }
            assert_eq!((report.as_ref().unwrap().entries, report.unwrap().failed), (203, 0));
            let snapshot = database.store().snapshot().unwrap();
            // The bulk load wrote the catalog behind the database's back.
            let index = site.settings.index.clone();
            database.publish_catalog(Arc::new(Catalog::load(&snapshot, &site.schema, index).unwrap()));
            let view = database.view(&snapshot).unwrap();
            for dn in
                ["dc=example,dc=com", "cn=All,dc=example,dc=com", "cn=Person 5 5,ou=People,dc=example,dc=com"]
            {
                let id = view.resolve(&site.schema.parse_dn(dn).unwrap()).unwrap().unwrap().id.unwrap();
                assert!(snapshot.get(ENTRIES, &id.to_bytes()).unwrap().is_some(), "{dn}");
            }
            crate::check::check(&view, &mut |finding| panic!("{finding:?}")).unwrap();
            assert_eq!(log::context_csns(&snapshot).unwrap().len(), 1);
        }
    }
}

#[test]
fn errors_name_the_line() {
    let site = Site::new();
    let person = "dn: cn=X,ou=People,dc=example,dc=com\nobjectClass: person\ncn: X\nsn: x\n\n";
    let cases = [
        (
            "dn: cn=X,ou=Nobody,dc=example,dc=com\nobjectClass: person\ncn: X\nsn: x\n\n",
            "line 9: \"cn=X,ou=Nobody,dc=example,dc=com\": the superior entry does not exist",
        ),
        (HEAD, "line 9: \"dc=example,dc=com\": the entry exists already"),
        (
            "dn: cn=X,o=Elsewhere\nobjectClass: person\ncn: X\nsn: x\n\n",
            "line 9: \"cn=X,o=Elsewhere\": not below any suffix of the database",
        ),
        (
            "dn: cn=X,ou=People,dc=example,dc=com\nobjectClass: person\ncn: X\n\n",
            "line 9: \"cn=X,ou=People,dc=example,dc=com\": Object class violation (65): object class 'person' requires attribute 'sn'",
        ),
        (
            "dn: cn=X,ou=People,dc=example,dc=com\nchangetype: delete\n\n",
            "line 9: \"cn=X,ou=People,dc=example,dc=com\": a change record, where entries are loaded",
        ),
        (
            "dn: cn=X,ou=People,dc=example,dc=com\nobjectClass: person\ncn: X\ncn: x\nsn: x\n\n",
            "line 9: \"cn=X,ou=People,dc=example,dc=com\": Type or value exists (20): cn: value #1 provided more than once",
        ),
        ("dn: cn=X,ou=People,dc=example,dc=com\nno colon\n\n", "line 10: "),
        ("dn: cn=X,,dc=example\nobjectClass: person\n\n", "line 9: \"cn=X,,dc=example\": "),
        (
            "dn: cn=X,ou=People,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: X\nsn: x\nstructuralObjectClass: person\n\n",
            "line 9: \"cn=X,ou=People,dc=example,dc=com\": Cannot modify object class (69): structural object class modification from \
             'person' to 'inetOrgPerson' not allowed; without its structuralObjectClass the entry gets the right one",
        ),
        (
            "dn: cn=X,ou=People,dc=example,dc=com\nobjectClass: person\nshoeSize: 9\n\n",
            "line 9: \"cn=X,ou=People,dc=example,dc=com\": Undefined attribute type (17): shoeSize: ",
        ),
    ];
    for (record, message) in cases {
        let ldif = [HEAD, record, person].concat();
        let (_, report) = site.bulk(&ldif, &LoadOptions::default());
        let error = report.expect_err(message).to_string();
        assert!(error.starts_with(message), "{error}\nnot {message}");
        let merged = site.empty();
        let before = dump(merged.store());
        let report =
            load_into(&merged, ldif.as_bytes(), site.context(), &LoadOptions::default(), &mut Unobserved);
        assert_eq!(report.expect_err(message).to_string(), error);
        assert!(dump(merged.store()) == before, "{message}");
    }
}

#[test]
fn a_value_that_is_refused_is_shown() {
    let site = Site::new();
    let options = LoadOptions { value_check: true, ..LoadOptions::default() };
    for (attributes, message) in [
        (
            "objectClass: nosuchClass\ncn: X\n",
            "objectClass: value #0 invalid per syntax: \"nosuchClass\": the schema has no class of this name",
        ),
        (
            "objectClass: sambaSamAccount\ncn: X\n",
            "objectClass: value #0 invalid per syntax: \"sambaSamAccount\": the schema has no class of this name; \
             `schema samba` in the configuration defines it",
        ),
        (
            "objectClass: person\ncn: X\nsn: x\nseeAlso: nonsense\n",
            "seeAlso: value #0 invalid per syntax: \"nonsense\"",
        ),
        (
            "objectClass: person\ncn: X\nsn: x\ndescription: good\ndescription:: /w==\n",
            "description: value #1 invalid per syntax: it is not UTF-8, which most syntaxes want",
        ),
    ] {
        let ldif = format!("{HEAD}dn: cn=X,ou=People,dc=example,dc=com\n{attributes}\n");
        let error = site.bulk(&ldif, &options).1.expect_err(message).to_string();
        assert!(error.ends_with(message), "{error}\nnot {message}");
    }
}

/// What slapadd refuses without a check of values, too. `-s` loads it.
#[test]
fn a_value_that_nobody_can_read_is_refused() {
    let site = Site::new();
    let unchecked = LoadOptions { schema_check: false, ..LoadOptions::default() };
    let load = |line: &str, options: &LoadOptions| {
        let person =
            format!("dn: cn=X,ou=People,dc=example,dc=com\nobjectClass: person\ncn: X\nsn: x\n{line}\n\n");
        let ldif = format!("{HEAD}{person}");
        let bulk = site.bulk(&ldif, options).1.map(|_| ()).map_err(|error| error.to_string());
        let merged =
            load_into(&site.empty(), ldif.as_bytes(), site.context(), options, &mut Unobserved).map(|_| ());
        assert_eq!(merged.map_err(|error| error.to_string()), bulk, "{line}");
        bulk
    };
    for (line, message) in [
        (
            "description:: TfxsbGVy",
            "description: value #0 invalid per syntax: it is not UTF-8, which most syntaxes want",
        ),
        ("description:: wIA=", "description: value #0 invalid per syntax: it is not UTF-8"),
        ("seeAlso: nonsense", "seeAlso: value #0 invalid per syntax: \"nonsense\""),
        ("seeAlso: cn=a\nseeAlso: nonsense", "seeAlso: value #1 invalid per syntax: \"nonsense\""),
        ("modifiersName: nosuch=x", "modifiersName: value #0 invalid per syntax: \"nosuch=x\""),
        (
            "createTimestamp: 20060101000000",
            "createTimestamp: value #0 invalid per syntax: \"20060101000000\"",
        ),
        ("objectClass: pkiUser\nuserCertificate: abc", "userCertificate: requires ;binary transfer"),
        ("entryUUID: 1", "entryUUID: value #0 invalid per syntax: \"1\""),
        ("entryCSN: 20060101000000.000Z#000000#000#000000", "entryCSN: value #0 invalid per syntax: "),
    ] {
        let error = load(line, &LoadOptions::default()).expect_err(line);
        assert!(error.contains(message), "{error}\nnot {message}");
        load(line, &unchecked).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for line in [
        "description: M\u{fc}ller",
        "seeAlso: cn=a\nseeAlso: cn=a\nseeAlso: cn=b",
        "telephoneNumber: ext. 7",
        "createTimestamp: 200601010000Z\nmodifyTimestamp: 20060101000000,5Z",
        "entryUUID: 3A1F6A3E-1D2C-102A-9C3F-CF3B8A3F7B1E",
        "entryCSN: 20060101000000Z#000002#00#000000",
        "entryCSN: 2002110813:58:24Z#0x0001#0#0000",
        // What slapadd takes, too.
        "description:: 7aC97biA",
        "description:: 9JCAgA==",
        "description:",
        "seeAlso:",
        "modifiersName: uid=a;ou=b",
        "createTimestamp: 20060101000060Z",
        "entryUUID: 3a1f6a3-e1d2c-102a-9c3f-cf3b8a3f7b1e",
        "entryCSN: 20061301000000.000000Z#000000#000#000000",
    ] {
        load(line, &LoadOptions::default()).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn the_empty_suffix_takes_entries_of_one_rdn() {
    let mut site = Site::new();
    let root = Suffix { normal: site.schema.parse_dn("").unwrap(), text: String::new() };
    site.settings.suffixes = vec![root];
    let ldif = format!("dn: dc=com\nobjectClass: domain\ndc: com\n\n{HEAD}");
    let (database, report) = site.bulk(&ldif, &LoadOptions::default());
    assert_eq!(report.unwrap().entries, 3);
    let snapshot = database.store().snapshot().unwrap();
    let view = database.view(&snapshot).unwrap();
    for (dn, id) in [("DC=com", 1), ("ou=people,dc=example,dc=com", 3)] {
        let found = view.resolve(&site.schema.parse_dn(dn).unwrap()).unwrap().unwrap();
        assert_eq!(found.id, Some(EntryId(id)), "{dn}");
    }
}

#[test]
fn the_same_value_twice_is_one() {
    let site = Site::new();
    let record_bytes = |attributes: &str| {
        let ldif = format!("{}\n{attributes}\n", HEAD.trim_end());
        let (database, report) = site.bulk(&ldif, &LoadOptions::default());
        assert_eq!(report.unwrap().entries, 2);
        let snapshot = database.store().snapshot().unwrap();
        snapshot.get(ENTRIES, &2_u64.to_be_bytes()).unwrap().unwrap().len()
    };
    let twice = record_bytes("description: a\ntelephoneNumber: 1\ndescription: b\ndescription: a\n");
    assert_eq!(twice, record_bytes("description: a\ndescription: b\ntelephoneNumber: 1\n"));
}

#[derive(Default)]
struct Failures(Vec<u64>);

impl LoadObserver for Failures {
    fn record_failed(&mut self, error: &RecordError) {
        self.0.push(error.line);
    }
}

#[test]
fn failed_records_can_be_passed_over() {
    let site = Site::new();
    let ldif = [
        HEAD,
        "dn: cn=X,ou=Nobody,dc=example,dc=com\nobjectClass: person\ncn: X\nsn: x\n\n",
        "dn: cn=Y,ou=People,dc=example,dc=com\nobjectClass: person\ncn: Y\n\n",
        "dn: cn=Z,ou=People,dc=example,dc=com\nobjectClass: person\ncn: Z\nsn: z\n\n",
    ]
    .concat();
    let options = LoadOptions { continue_on_error: true, ..LoadOptions::default() };
    let (database, merged) = (site.empty(), site.empty());
    let scratch = tempfile::tempdir().unwrap();
    let mut failures = Failures::default();
    let report = load_empty(
        database.store(),
        scratch.path(),
        ldif.as_bytes(),
        site.context(),
        &options,
        &mut failures,
    );
    let report = report.unwrap();
    assert_eq!((report.entries, report.failed, failures.0.as_slice()), (3, 2, &[14, 9][..]));
    let report = load_into(&merged, ldif.as_bytes(), site.context(), &options, &mut failures).unwrap();
    assert_eq!((report.entries, report.failed, failures.0.as_slice()), (3, 2, &[14, 9, 14, 9][..]));
    let snapshot = database.store().snapshot().unwrap();
    for item in snapshot.posting_keys(INDEX, KeyRange::all(), Direction::Forward).unwrap() {
        let (key, _) = item.unwrap();
        for id in snapshot.posting_set(INDEX, &key).unwrap() {
            assert!(snapshot.get(ENTRIES, &id.to_be_bytes()).unwrap().is_some(), "{id} under {key:?}");
        }
    }
    drop(snapshot);
    // From a line on: the superiors are in the database already.
    let options = LoadOptions { start_line: 18, ..LoadOptions::default() };
    let only_head = site.empty();
    load_into(&only_head, HEAD.as_bytes(), site.context(), &LoadOptions::default(), &mut Unobserved).unwrap();
    let report = load_into(&only_head, ldif.as_bytes(), site.context(), &options, &mut Unobserved).unwrap();
    assert_eq!(report.entries, 1);
}

/// More than a load commits at once: later records still know the names and the entryUUIDs of earlier ones.
#[test]
fn a_dry_run_forgets_no_names() {
    let site = Site::new();
    let filled = site.empty();
    load_into(&filled, HEAD.as_bytes(), site.context(), &LoadOptions::default(), &mut Unobserved).unwrap();
    let unit = |uuid| {
        format!("dn: ou=Far,dc=example,dc=com\nobjectClass: organizationalUnit\nou: Far\n{}\n", stamped(uuid))
    };
    let person = |dn: &str, more: &str| {
        format!("dn: cn={dn},dc=example,dc=com\nobjectClass: person\ncn: Somebody\nsn: s\n{more}\n")
    };
    let mut ldif = unit(1);
    let mut state = 1_u32;
    // Text that no codec makes much shorter.
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24).to_le_bytes()[0] % 26)
    };
    for number in 0..200 {
        let text: String = (0..150_000).map(|_| letter()).collect();
        ldif += &person(
            &format!("Somebody+sn=s+description={number}"),
            &format!("description: {number}\ndescription: {text}\n"),
        );
    }
    // Its superior, its name and its entryUUID came first.
    ldif += &person("Somebody,ou=Far", "");
    ldif += &unit(2);
    ldif += &person("Somebody", &stamped(1));
    let options = LoadOptions { dry_run: true, continue_on_error: true, ..LoadOptions::default() };
    let report = load_into(&filled, ldif.as_bytes(), site.context(), &options, &mut Unobserved).unwrap();
    assert_eq!((report.entries, report.failed), (202, 2));
}

#[test]
fn a_directory_changes_as_a_whole() {
    let site = Site::new();
    let directory = tempfile::tempdir().unwrap();
    let lmdb = LmdbOptions::default();
    let load = |ldif: &str, options: &LoadOptions| {
        load_directory(directory.path(), &lmdb, ldif.as_bytes(), site.context(), options, &mut Unobserved)
    };
    let files = || {
        let mut names: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let good = people(300);
    let broken = format!("{good}\ndn: broken\n\n");
    fs::create_dir(directory.path().join("loading.tmp")).unwrap();
    load(&broken, &LoadOptions::default()).expect_err("broken");
    assert_eq!(files(), ["larix.lock"]);
    load(&good, &LoadOptions { dry_run: true, ..LoadOptions::default() }).unwrap();
    assert_eq!(files(), ["larix.lock"]);
    let report = load(&good, &LoadOptions::default()).unwrap();
    assert_eq!(report.entries, 303);
    assert_eq!(files(), ["data.mdb", "larix.lock"]);
    // A second load adds to it, or leaves it as it was.
    let before = dump(&LmdbStore::open(directory.path(), &TABLES, &lmdb).unwrap());
    let more = "dn: cn=New,ou=People,dc=example,dc=com\nobjectClass: person\ncn: New\nsn: n\n\n";
    load(&format!("{more}dn: broken\n\n"), &LoadOptions::default()).expect_err("broken");
    assert!(dump(&LmdbStore::open(directory.path(), &TABLES, &lmdb).unwrap()) == before);
    assert_eq!(load(more, &LoadOptions::default()).unwrap().entries, 1);
    // The server has it.
    let store = LmdbStore::open(directory.path(), &TABLES, &lmdb).unwrap();
    let refused = load(more, &LoadOptions::default()).expect_err("in use");
    assert!(matches!(refused, LoadError::Open(larix_store::OpenError::InUse { .. })), "{refused}");
    drop(store);
    let database = Database::open(
        LmdbStore::open(directory.path(), &TABLES, &lmdb).unwrap(),
        Arc::clone(&site.schema),
        site.settings.clone(),
        &SeededRandom::new(3),
    )
    .unwrap();
    assert_eq!(database.catalog().stale().count(), 0);
}

/// A directory of `count` entries in a tree of any shape, superiors first, with values of all lengths: some shared by
/// many, some with spaces, capitals, zero bytes, letters of many bytes, options; groups that refer to others.
fn any_tree(seed: u64, count: u64) -> String {
    let dice = SeededRandom::new(seed);
    let mut out = head();
    let mut names = vec!["ou=People,dc=example,dc=com".to_owned()];
    for n in 0..count {
        let parent = names[dice.below(names.len())].clone();
        let name = format!("cn={} {n},{parent}", dice.one_of(&["Ann", "bob", "Österreich", "A  b"]));
        write!(out, "dn: {name}\nobjectClass: inetOrgPerson\n{}", stamped(n as usize + 1)).unwrap();
        writeln!(out, "sn: {}", dice.below(5)).unwrap();
        for _ in 0..dice.below(4) {
            let (words, word) = (dice.below(300) + 1, dice.one_of(&["x", "Long  ", "ab c", "é"]));
            writeln!(out, "description: {}{n}", word.repeat(words)).unwrap();
        }
        if dice.below(3) == 0 {
            writeln!(
                out,
                "description;lang-de: {}\ntelephoneNumber: +1 {n}-{}",
                dice.below(9),
                dice.below(9)
            )
            .unwrap();
        }
        for at in 0..dice.below(3) {
            writeln!(out, "mail: user{}.{n}.{at}@example.com", dice.below(1000)).unwrap();
        }
        if dice.below(20) == 0 {
            writeln!(out, "userPassword:: AAECAAA=\n# a comment\n folded").unwrap();
        }
        out.push('\n');
        if dice.below(3) == 0 {
            names.push(name);
        }
    }
    out
}

#[test]
fn any_directory_is_the_same_both_ways() {
    let site = Site::new();
    for seed in 0..4 {
        let ldif = any_tree(seed, 400);
        let merged = site.empty();
        let options = LoadOptions { write_context_csn: true, ..LoadOptions::default() };
        let report = load_into(&merged, ldif.as_bytes(), site.context(), &options, &mut Unobserved).unwrap();
        assert_eq!(report.entries, 402, "seed {seed}");
        for (threads, memory_bytes) in [(1, 256 << 20), (4, 256 << 20), (1, 10_000), (4, 20_000)] {
            let options = LoadOptions { threads, memory_bytes, ..options.clone() };
            let (database, report) = site.bulk(&ldif, &options);
            assert_eq!(report.unwrap().entries, 402, "seed {seed}");
            assert!(
                dump(database.store()) == dump(merged.store()),
                "seed {seed}, {threads} threads, {memory_bytes} bytes"
            );
            let snapshot = database.store().snapshot().unwrap();
            let index = site.settings.index.clone();
            database.publish_catalog(Arc::new(Catalog::load(&snapshot, &site.schema, index).unwrap()));
            let view = database.view(&snapshot).unwrap();
            crate::check::check(&view, &mut |finding| panic!("seed {seed}: {finding:?}")).unwrap();
        }
    }
}

#[test]
fn a_second_entry_of_a_name_is_refused() {
    let site = Site::new();
    let ldif = people(300);
    let again =
        "dn: CN=person 7 7,ou=people,dc=example,dc=com\nobjectClass: person\ncn: Person 7 7\nsn: x\n\n";
    for threads in [1, 4] {
        let options = LoadOptions { threads, ..LoadOptions::default() };
        let (_, report) = site.bulk(&format!("{ldif}\n{again}"), &options);
        let error = report.expect_err("twice").to_string();
        assert!(error.ends_with("the entry exists already"), "{error}");
        let options = LoadOptions { continue_on_error: true, ..options };
        let (database, report) = site.bulk(&format!("{ldif}\n{again}"), &options);
        let report = report.unwrap();
        assert_eq!((report.entries, report.failed), (303, 1));
        let (clean, report) = site.bulk(&ldif, &options);
        report.unwrap();
        assert!(dump(database.store()) == dump(clean.store()), "the refused entry left something");
    }
}

#[test]
fn a_second_entry_of_an_entry_uuid_is_refused() {
    let mut site = Site::new();
    site.settings.index.add_line(&site.schema, "entryUUID", Some("eq")).unwrap();
    let ldif = people(300);
    let name = "cn=Twin,ou=People,dc=example,dc=com";
    let twin = format!("dn: {name}\nobjectClass: person\ncn: Twin\nsn: x\n{}\n", stamped(8));
    let line_of = |text: &str, dn: &str| {
        let before = text.split_once(&format!("dn: {dn}")).unwrap().0;
        before.lines().count() + 1
    };
    let uuid = "another entry has the entryUUID 00000000-0000-4000-8000-000000000008";
    let help = "leave it out, and the entry gets one of its own";
    let both = format!("{ldif}\n{twin}");
    let (first, second) = (line_of(&both, "cn=Person 7 7,"), line_of(&both, name));
    for (threads, dry_run) in [(1, false), (4, false), (1, true)] {
        // Nothing of a load into an empty database can be passed over once its indexes are made.
        for continue_on_error in [false, true] {
            let options = LoadOptions { threads, dry_run, continue_on_error, ..LoadOptions::default() };
            let (_, report) = site.bulk(&both, &options);
            let error = report.expect_err("twins").to_string();
            assert_eq!(error, format!("line {second}: {uuid}, that of line {first}: {help}"));
        }
    }
    // Lines that find no room in the memory are not named.
    let (_, report) = site.bulk(&both, &LoadOptions { memory_bytes: 2_000, ..LoadOptions::default() });
    let error = report.expect_err("twins").to_string();
    assert_eq!(error, format!("{uuid}, that of line {first}: {help}"));
    // One that fails for another reason is no twin.
    let options = LoadOptions { continue_on_error: true, ..LoadOptions::default() };
    let orphan = twin.replace(name, "cn=Twin,ou=Nobody,dc=example,dc=com");
    let (_, report) = site.bulk(&format!("{ldif}\n{orphan}"), &options);
    assert_eq!(report.map(|report| (report.entries, report.failed)).unwrap(), (303, 1));
    let (_, report) = site.bulk(&both, &LoadOptions { unique_uuids: false, ..LoadOptions::default() });
    assert_eq!(report.unwrap().entries, 304);

    for options in [LoadOptions::default(), LoadOptions { dry_run: true, ..LoadOptions::default() }] {
        let merged = site.empty();
        let report = load_into(&merged, both.as_bytes(), site.context(), &options, &mut Unobserved);
        let error = report.expect_err("twins").to_string();
        assert_eq!(error, format!("line {second}: \"{name}\": {uuid}: {help}"));
    }
    let merged = site.empty();
    let load = |ldif: &str, options: &LoadOptions| {
        let report = load_into(&merged, ldif.as_bytes(), site.context(), options, &mut Unobserved);
        report.map(|report| (report.entries, report.failed)).map_err(|error| error.to_string())
    };
    assert_eq!(load(&ldif, &options), Ok((303, 0)));
    assert_eq!(load(&twin, &options), Ok((0, 1)), "what is in the database counts, too");
    assert_eq!(load(&twin.replace("000000000008", "000000990008"), &options), Ok((1, 0)));
}

/// Commits without syncs reuse pages that the last root on the disk still has: a machine that died amid them lost the entries, too.
#[test]
fn indexes_made_anew_put_no_entries_at_risk() {
    let site = Site::new();
    let store = FaultStore::new(MemoryStore::new(&TABLES).unwrap(), FaultPlan::new());
    let (schema, settings) = (Arc::clone(&site.schema), site.settings.clone());
    let database = Database::open(store, schema, settings, &SeededRandom::new(1)).unwrap();
    let (ldif, options) = (people(5), LoadOptions::default());
    load_into(&database, ldif.as_bytes(), site.context(), &options, &mut Unobserved).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let rebuilt =
        rebuild(&database, &Rebuild::All, &RebuildOptions::new(scratch.path()), &mut |_| {}).unwrap();
    assert!(rebuilt.postings > 0);
    assert_eq!(database.store().careless_loads(), 0);
}

/// A store that does not answer a commit says later what became of it.
#[test]
fn what_became_of_a_commit_without_an_answer_is_found_out() {
    let site = Site::new();
    let lost = |made| StoreFault::Lost { made, silent: 0 };
    for (faults, stored) in [
        (vec![lost(true)], true),
        (vec![lost(false)], true),
        (vec![lost(false), lost(true)], true),
        (vec![lost(false), lost(false), lost(false)], false),
    ] {
        let plan = FaultPlan::new();
        let store = FaultStore::new(MemoryStore::new(&TABLES).unwrap(), plan.clone());
        let (schema, settings) = (Arc::clone(&site.schema), site.settings.clone());
        let database = Database::open(store, schema, settings, &SeededRandom::new(1)).unwrap();
        let first = plan.commits() + 1;
        for (commit, fault) in (first..).zip(&faults) {
            let _same = plan.clone().at(commit, *fault);
        }
        let options = LoadOptions::default();
        let loaded = load_into(&database, people(5).as_bytes(), site.context(), &options, &mut Unobserved);
        assert_eq!(plan.commits(), first + faults.len() as u64 - 1 + u64::from(faults == [lost(false)]));
        assert_eq!(bulk::is_empty(&database).unwrap(), !stored, "{faults:?}");
        match loaded {
            Ok(_) => assert!(stored, "{faults:?}"),
            Err(LoadError::Commit(CommitError::Unavailable(why))) => {
                assert!(!stored && why.to_string().contains("nothing of it is there"), "{faults:?}: {why}");
            }
            Err(error) => panic!("{faults:?}: {error}"),
        }
    }
}
