//! What a check finds, what a rebuild corrects, and large sets and long values on their way through changes.

use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::ordered::OrderedWrite as _;
use larix_store::{Durability, Snapshot, Store, Transaction, WriteSet};

use crate::check::{CheckReport, Finding, KnownKeys, check};
use crate::entry::record::{Form, INLINE_COUNT_LIMIT};
use crate::entry::{AttributeNumber, Entry, EntryId, EntrySource, LargeValues, Target, values};
use crate::fixture::{Fixture, SUFFIX, SearchSpec, index, on_every_store, schema, settings};
use crate::index::{KeyKind, Kinds, key, keys, pending};
use crate::load::{Rebuild, RebuildOptions};
use crate::tables::{BLOBS, ENTRIES, INDEX, PENDING, TABLES, VALUES};
use crate::{fixture, tree};

const LINES: &[(&str, &str)] = &[("cn,sn", "pres,eq,sub,approx"), ("member", "eq"), ("description", "sub")];

fn small() -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for name in ["a", "b", "c"] {
        ldif.push_str(&format!(
            "\ndn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: long {name} name\ndescription: d{name}d\n"
        ));
    }
    ldif
}

fn findings<S: Store>(fixture: &Fixture<S>) -> Vec<Finding> {
    let snapshot = fixture.database.store().snapshot().unwrap();
    let view = fixture.database.view(&snapshot).unwrap();
    let mut findings = Vec::new();
    let checked = check(&view, &mut |finding| findings.push(finding)).unwrap();
    assert_eq!(checked.findings, findings.len() as u64);
    findings
}

fn damage<S: Store>(fixture: &Fixture<S>, change: impl FnOnce(&mut WriteSet)) {
    let mut set = WriteSet::new();
    change(&mut set);
    fixture.database.store().transaction().unwrap().commit(&set, Durability::NoMetaSync).unwrap();
}

fn number<S: Store>(fixture: &Fixture<S>, name: &str) -> AttributeNumber {
    fixture.database.catalog().number(&schema().describe(name).unwrap()).unwrap()
}

fn rebuild<S: Store>(fixture: &Fixture<S>, what: &Rebuild) -> u64 {
    let scratch = tempfile::tempdir().unwrap();
    let options = RebuildOptions::new(scratch.path());
    let rebuilt = crate::load::rebuild(&fixture.database, what, &options, &mut |_| ()).unwrap();
    assert!(rebuilt.failed.is_empty());
    rebuilt.entries
}

#[test]
fn damage_is_found() {
    let cn = |fixture: &Fixture<_>, value: &[u8]| key::make(number(fixture, "cn"), KeyKind::Equality, value);
    type Damage<'d> = &'d dyn Fn(&Fixture<larix_store::memory::MemoryStore>, &mut WriteSet);
    let check = |name: &str, change: Damage<'_>, expected: fn(&Finding) -> bool| {
        let fixture = Fixture::memory(LINES, &small());
        assert_eq!(findings(&fixture), [], "{name}: before");
        damage(&fixture, |set| change(&fixture, set));
        let found = findings(&fixture);
        assert!(found.iter().any(expected), "{name}: {found:?}");
    };
    check("posting gone", &|f, set| set.remove_posting(INDEX, &cn(f, b"a"), 2), |f| {
        matches!(f, Finding::MissingPosting { entry: EntryId(2), .. })
    });
    let fixture = Fixture::memory(LINES, &small());
    damage(&fixture, |set| set.remove_posting(INDEX, &cn(&fixture, b"a"), 2));
    let shown: Vec<String> =
        findings(&fixture).iter().map(|finding| finding.named(&fixture.database.catalog())).collect();
    let missing = "entry 2 is missing in the index under attribute cn, Equality \"a\"".to_owned();
    assert!(shown.contains(&missing), "{shown:?}");
    check("posting too many", &|f, set| set.add_posting(INDEX, &cn(f, b"a"), 3), |f| {
        matches!(f, Finding::StrayPosting { entry: EntryId(3), .. })
    });
    check("tree row gone", &|_, set| tree::delete(set, EntryId(1), b"cn=b"), |f| {
        *f == Finding::NotInTree { entry: EntryId(3) }
    });
    check("tree row of nothing", &|_, set| tree::put(set, EntryId(1), b"cn=x", EntryId(77)), |f| {
        matches!(f, Finding::StrayTreeRow { entry: EntryId(77), .. })
    });
    check("record gone", &|_, set| set.delete(ENTRIES, &EntryId(4).to_bytes()), |f| {
        matches!(f, Finding::StrayPosting { entry: EntryId(4), .. })
    });
    check("record cut", &|_, set| set.put(ENTRIES, &EntryId(4).to_bytes(), vec![1, 0, 0]), |f| {
        matches!(f, Finding::Record { entry: EntryId(4), .. })
    });
    check("superior gone", &|_, set| set.delete(ENTRIES, &EntryId(1).to_bytes()), |f| {
        matches!(f, Finding::Orphan { entry: EntryId(2), parent: EntryId(1) })
    });
    // Each is below the other, and the tree says so, too.
    let ring: Damage<'_> = &|f, set| {
        let snapshot = f.database.store().snapshot().unwrap();
        for (id, name, parent) in [(EntryId(2), b"cn=a", EntryId(3)), (EntryId(3), b"cn=b", EntryId(2))] {
            let mut record = snapshot.get(ENTRIES, &id.to_bytes()).unwrap().unwrap().into_owned();
            record[2..10].copy_from_slice(&parent.to_bytes());
            set.put(ENTRIES, &id.to_bytes(), record);
            tree::delete(set, EntryId(1), name);
            tree::put(set, parent, name, id);
        }
    };
    for id in [EntryId(2), EntryId(3)] {
        let fixture = Fixture::memory(LINES, &small());
        damage(&fixture, |set| ring(&fixture, set));
        assert!(findings(&fixture).contains(&Finding::Ring { entry: id }), "{:?}", findings(&fixture));
        let snapshot = fixture.database.store().snapshot().unwrap();
        let view = fixture.database.view(&snapshot).unwrap();
        let record = view.record(id).unwrap().unwrap();
        let named = view.dn(&view.reader(id, &record).unwrap().view);
        assert!(named.is_err(), "its name has no end: {named:?}");
    }
    let nobody = EntryId(77).to_bytes();
    for table in [VALUES, BLOBS] {
        let fixture = Fixture::memory(LINES, &small());
        damage(&fixture, |set| set.put(table, &[&nobody[..], b"1234member"].concat(), *b"value"));
        let found = findings(&fixture);
        assert!(matches!(found[..], [Finding::StrayRow { entry: EntryId(77), .. }]), "{table:?}: {found:?}");
    }
    // A deleted entry leaves keys that have to be taken out of the index, and brings none.
    for present in [true, false] {
        let fixture = Fixture::memory(LINES, &small());
        let key = key::make(number(&fixture, "sn"), KeyKind::Any, b"abc");
        let part = pending::late_part(&key).unwrap().to_vec();
        let row = pending::Row { whole: false, keys: [(part, present)].into() };
        damage(&fixture, |set| set.put(PENDING, &nobody, row.encode()));
        let found = findings(&fixture);
        let is_stray = matches!(found[..], [Finding::StrayRow { entry: EntryId(77), .. }]);
        assert!(is_stray == present && found.is_empty() != present, "{present}: {found:?}");
    }
}

/// Such entries come from a provider that has them, or from a load before there was this check.
#[test]
fn two_entries_of_one_entry_uuid_are_found() {
    let uuid = "01900000-0000-4000-8000-000000000001";
    let own = |number: u32| format!("\nentryUUID: 01900000-0000-4000-8000-00000000000{number}\ncn: ");
    let ldif = small()
        .replace("\ncn: a\n", &format!("{}a\n", own(1)))
        .replace("\ncn: b\n", &format!("{}b\n", own(2)));
    let lines = [LINES, &[("entryUUID", "eq")]].concat();
    assert_eq!(findings(&Fixture::memory(&lines, &ldif)), []);
    let ldif = ldif.replace(&own(2), &own(1));
    let found = findings(&Fixture::memory(&lines, &ldif));
    let dns = [format!("cn=a,{SUFFIX}"), format!("cn=b,{SUFFIX}")];
    assert_eq!(found, [Finding::SameUuid { dns, uuid: uuid.parse().unwrap() }]);
    assert_eq!(
        found[0].to_string(),
        format!(
            "\"cn=a,{SUFFIX}\" and \"cn=b,{SUFFIX}\" have the same entryUUID {uuid}: delete one of them, and add it again \
             without it"
        )
    );
}

/// The keys of a long value are made once, and not for each of them.
#[test]
fn many_keys_of_an_attribute_are_remembered() {
    let long: String = (0..400_u32).map(|number| format!("{number:x}")).collect();
    let entry =
        format!("\ndn: cn=long,{SUFFIX}\nobjectClass: person\ncn: long\nsn: s\ndescription: {long}\n");
    let fixture = Fixture::memory(LINES, &(small() + &entry));
    assert_eq!(findings(&fixture), []);
    let description = number(&fixture, "description");
    let snapshot = fixture.database.store().snapshot().unwrap();
    let view = fixture.database.view(&snapshot).unwrap();
    let id = EntryId(5);
    let record = view.record(id).unwrap().unwrap();
    let reader = view.reader(id, &record).unwrap();
    let mut known = KnownKeys::default();
    for key in keys::stored_keys(&view.schema, &view.catalog, &reader).unwrap() {
        let head = key::parse_head(&key).unwrap();
        assert!(known.has(&view, id, head, &key).unwrap(), "{head:?}");
    }
    let remembered: Vec<_> = known.of.keys().copied().collect();
    assert_eq!(remembered, [(id, description, KeyKind::Any)]);
    let other = key::make(description, KeyKind::Any, b"zzz");
    assert!(!known.has(&view, id, (description, KeyKind::Any), &other).unwrap());
}

#[test]
fn a_posting_list_that_says_another_count_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let options = LmdbOptions { map_size: 64 << 20, ..LmdbOptions::default() };
    let fixture = Fixture::new(LmdbStore::open(directory.path(), &TABLES, &options).unwrap(), SUFFIX, LINES);
    fixture.load(&small());
    assert_eq!(findings(&fixture), []);
    let key = key::make(number(&fixture, "cn"), KeyKind::Equality, b"a");
    let block = [key.as_slice(), &2_u64.to_be_bytes()].concat();
    let mut transaction = fixture.database.store().transaction().unwrap();
    // Deltas: it says three ids, of which the last one is next to the first, and has two.
    transaction.write(INDEX, &block, &[1, 3, 1, 0]).unwrap();
    transaction.commit(&WriteSet::new(), Durability::NoMetaSync).unwrap();
    let found = findings(&fixture);
    assert!(found.contains(&Finding::PostingCount { key, recorded: 3, found: 2 }), "{found:?}");
}

#[test]
fn indexes_are_built_later() {
    let fixture = Fixture::memory(&[], &small());
    let spec = SearchSpec { filter: "(sn=*b na*)", ..SearchSpec::default() };
    assert_eq!(fixture.search(&spec).names(), ["b"]);
    fixture.reconfigure(settings(SUFFIX, index(LINES)));
    let sn = number(&fixture, "sn");
    assert!(fixture.database.catalog().row(sn).unwrap().usable().is_empty());
    assert_eq!(fixture.search(&spec).names(), ["b"], "not used before it is built");
    assert_eq!(rebuild(&fixture, &Rebuild::Stale), 4);
    assert!(fixture.database.catalog().row(sn).unwrap().usable().has(Kinds::SUBSTRINGS));
    assert_eq!(fixture.search(&spec).names(), ["b"]);
    assert_eq!(findings(&fixture), []);
    assert_eq!(rebuild(&fixture, &Rebuild::Stale), 0);
    let posting = key::make(sn, KeyKind::Equality, b"nobody");
    damage(&fixture, |set| set.add_posting(INDEX, &posting, 3));
    assert_eq!(findings(&fixture).len(), 1);
    rebuild(&fixture, &Rebuild::All);
    assert_eq!(findings(&fixture), []);
}

#[test]
fn what_is_no_longer_wanted_is_not_trusted_again() {
    let fixture = Fixture::memory(LINES, &small());
    // Without the line, postings are not kept; with it again they must not be used as they are.
    fixture.reconfigure(settings(SUFFIX, index(&[])));
    fixture.load(&format!("dn: cn=d,{SUFFIX}\nobjectClass: person\ncn: d\nsn: new\n"));
    fixture.reconfigure(settings(SUFFIX, index(LINES)));
    assert_eq!(fixture.search(&SearchSpec { filter: "(sn=new)", ..SearchSpec::default() }).names(), ["d"]);
}

struct Large;

impl fixture::Checks for Large {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
        let schema = schema();
        let member = schema.describe("member").unwrap();
        let dn = format!("cn=group,{SUFFIX}");
        let name = |i: usize| format!("CN=member {i},{SUFFIX}");
        let normal = |i: usize| schema.parse_dn(&name(i)).unwrap();
        let count = INLINE_COUNT_LIMIT + 50;
        let mut entry = Entry::new(dn.clone());
        for (attribute, list) in [
            ("objectClass", vec![b"groupOfNames".to_vec()]),
            ("cn", vec![b"group".to_vec()]),
            ("member", (0..count).map(|i| name(i).into_bytes()).collect()),
        ] {
            entry.attribute_or_insert(&schema.describe(attribute).unwrap()).values = list;
        }
        fixture.put(&entry);
        let has = |fixture: &Fixture<S>, i: usize| {
            let filter = format!("(member={})", normal(i));
            let found =
                !fixture.search(&SearchSpec { filter: &filter, ..SearchSpec::default() }).entries.is_empty();
            let snapshot = fixture.database.store().snapshot().unwrap();
            let view = fixture.database.view(&snapshot).unwrap();
            let id = view.resolve(&schema.parse_dn(&dn).unwrap()).unwrap().unwrap().id.unwrap();
            let record = view.record(id).unwrap().unwrap();
            let reader = view.reader(id, &record).unwrap();
            let target = Target::new(&schema, &view.catalog, member.clone());
            let key = normal(i).as_str().as_bytes().to_vec();
            assert_eq!(reader.large_member(&target, &key).unwrap().unwrap_or(found), found);
            let number = view.catalog.number(&member).unwrap();
            let form = reader.view.get(number).unwrap().unwrap().form();
            (found, form == Form::Large, reader.view.get(number).unwrap().unwrap().len())
        };
        assert_eq!(has(fixture, 7), (true, true, count as u64));
        assert_eq!(has(fixture, count), (false, true, count as u64));
        assert_eq!(findings(fixture), []);
        let answered = fixture.search(&SearchSpec {
            filter: "(cn=group)",
            attributes: &["member"],
            ..SearchSpec::default()
        });
        assert_eq!(answered.entries[0].1[0].1.len(), count);

        // One comes and one goes: the set stays where it is.
        let key = |i: usize| {
            let rule = schema.attribute(member.attribute).equality.unwrap();
            values::member_key(&schema, rule, name(i).as_bytes()).unwrap()
        };
        let mut changes = LargeValues { stored: count as u64, ..LargeValues::default() };
        changes.added.insert(key(count), name(count).into_bytes());
        changes.removed.insert(key(7));
        let attribute = entry.attribute_mut(&member).unwrap();
        attribute.values.clear();
        attribute.large = Some(changes);
        fixture.put(&entry);
        assert_eq!(has(fixture, 7), (false, true, count as u64));
        assert_eq!(has(fixture, count), (true, true, count as u64));
        assert_eq!(findings(fixture), []);

        // Another value than the one of its key.
        let id = {
            let snapshot = fixture.database.store().snapshot().unwrap();
            let view = fixture.database.view(&snapshot).unwrap();
            view.resolve(&schema.parse_dn(&dn).unwrap()).unwrap().unwrap().id.unwrap()
        };
        let row = values::set_key(id, number(fixture, "member"), &key(8));
        damage(fixture, |set| set.put(VALUES, &row, name(7).into_bytes()));
        let found = findings(fixture);
        let is_told = |finding: &Finding| {
            let told = finding.to_string();
            told.contains("a large set has a member under another key")
        };
        assert!(found.iter().any(is_told), "{found:?}");
        assert!(!found.iter().all(Finding::is_of_index), "{found:?}");
        damage(fixture, |set| set.put(VALUES, &row, name(8).into_bytes()));
        assert_eq!(findings(fixture), []);

        // Replaced by few: back in the record.
        let attribute = entry.attribute_mut(&member).unwrap();
        attribute.large = None;
        attribute.values = vec![name(7).into_bytes()];
        fixture.put(&entry);
        assert_eq!(has(fixture, 7), (true, false, 1));
        assert_eq!(has(fixture, 8), (false, false, 1));
        assert_eq!(findings(fixture), []);
        fixture.delete(&dn);
        assert_eq!(findings(fixture), []);
    }
}

#[test]
fn large_sets() {
    on_every_store(LINES, &small(), &Large);
}

struct Long;

impl fixture::Checks for Long {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
        let schema = schema();
        let dn = format!("cn=a,{SUFFIX}");
        let description = schema.describe("description").unwrap();
        let (long, other) = ("x".repeat(5000), "y".repeat(3000));
        let mut entry = fixture.get(&dn).unwrap();
        for list in [
            vec![long.clone(), "short".to_owned()],
            vec!["short".to_owned(), other, long.clone()],
            vec![long],
            vec!["short".to_owned()],
        ] {
            let list: Vec<Vec<u8>> = list.into_iter().map(String::into_bytes).collect();
            entry.attribute_mut(&description).unwrap().values = list.clone();
            fixture.put(&entry);
            assert_eq!(fixture.get(&dn).unwrap().attribute(&description).unwrap().values, list);
            assert_eq!(findings(fixture), []);
        }
        fixture.delete(&dn);
        assert!(fixture.get(&dn).is_none());
        assert_eq!(findings(fixture), []);
    }
}

#[test]
fn long_values() {
    on_every_store(LINES, &small(), &Long);
}

#[test]
fn a_check_counts_what_it_looks_at() {
    let fixture = Fixture::memory(&[], &small());
    let snapshot = fixture.database.store().snapshot().unwrap();
    let view = fixture.database.view(&snapshot).unwrap();
    let checked = check(&view, &mut |_| ()).unwrap();
    assert_eq!(
        CheckReport { index_keys: 0, postings: 0, ..checked },
        CheckReport { entries: 4, tree_rows: 4, ..CheckReport::default() }
    );
    assert!(snapshot.commit_counter() > 0);
}

struct Anew;

impl fixture::Checks for Anew {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
        let scratch = tempfile::tempdir().unwrap();
        for i in 0..50 {
            fixture.load(&format!("dn: cn=e{i},{SUFFIX}\nobjectClass: person\ncn: e{i}\nsn: entry {i}\n"));
        }
        let stray = |name: &str| key::make(number(fixture, name), KeyKind::Equality, b"nobody");
        let [cn, sn] = ["cn", "sn"].map(|name| number(fixture, name));
        // Of the ones made anew the stray postings are gone, those of the others stand.
        for (what, left) in [
            (Rebuild::Attributes(vec![cn]), 1),
            (Rebuild::Attributes(vec![cn, sn]), 0),
            (Rebuild::Stale, 2),
            (Rebuild::All, 0),
        ] {
            let keys = [stray("cn"), stray("sn")];
            damage(fixture, |set| keys.iter().for_each(|key| set.add_posting(INDEX, key, 2)));
            for memory_bytes in [1, 1 << 20] {
                for threads in [1, 3] {
                    let options =
                        RebuildOptions { threads, memory_bytes, ..RebuildOptions::new(scratch.path()) };
                    crate::load::rebuild(&fixture.database, &what, &options, &mut |_| ()).unwrap();
                    assert_eq!(findings(fixture).len(), left, "{what:?} {memory_bytes} {threads}");
                }
            }
        }
        // A record that cannot be read ends it or is passed over.
        damage(fixture, |set| set.put(ENTRIES, &EntryId(4).to_bytes(), vec![1, 0, 0]));
        let mut options = RebuildOptions::new(scratch.path());
        let all = |options: &RebuildOptions<'_>| {
            crate::load::rebuild(&fixture.database, &Rebuild::All, options, &mut |_| ())
        };
        assert!(matches!(all(&options), Err(crate::load::RebuildError::Entry(EntryId(4), _))));
        assert!(fixture.database.catalog().row(sn).unwrap().usable().is_empty(), "no half index is used");
        options.continue_on_error = true;
        let failed = all(&options).unwrap().failed;
        assert_eq!(failed.iter().map(|(entry, _)| *entry).collect::<Vec<_>>(), [EntryId(4)]);
        assert!(!fixture.database.catalog().row(sn).unwrap().usable().is_empty());
    }
}

#[test]
fn all_indexes_or_some_are_made_anew() {
    on_every_store(LINES, &small(), &Anew);
}
