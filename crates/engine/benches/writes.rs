//! What a durable change costs: `cargo bench -p larix-engine --bench writes -- KIND ENTRIES OPERATIONS GROUP`.
//!
//! KIND is `add`, `modify`, `delete`, `member` or `values`; ENTRIES accounts of the mail directory (with `member` a few, and a group of
//! ENTRIES members, which gets one more with each change; with `values` a few, and each change gives one of them ENTRIES values of an
//! attribute that is indexed `eq,sub`, in place of as many others) are loaded first, then OPERATIONS changes go through the writer, GROUP of them in flight at a time. Printed for each operation: CPU time, bytes written, and the
//! commits it took; at the end the memory and the size of the file. Time on the clock is the machine's, not the code's:
//! under `valgrind --tool=callgrind --toggle-collect='*Core*group*'` the same run counts instructions.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // measures a real machine

use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::index::IndexConfig;
use larix_engine::load::{LoadContext, LoadOptions, Unobserved, load_empty};
use larix_engine::log::LogRetention;
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_engine::write::{
    AttributeValues, Modification, Origin, WriteOperation, WriteRequest, WriterEnvironment,
};
use larix_engine::{Database, DatabaseSettings, Directory, Frontend, ServedDatabase, Suffix};
use larix_load::generate::Kind;
use larix_proto::ModifyOperation;
use larix_proto::ldif::{Body, Reader};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};

const SEED: u64 = 1;
/// 2026-01-01T00:00:00Z
const START: Timestamp = Timestamp(1_767_225_600_000_000);
const CROWD: &str = "cn=crowd,ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";
/// Accounts beside a group, or where one account gets many values.
const FEW: u64 = 10;
const PEOPLE: &str = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";

struct Arguments {
    kind: String,
    entries: u64,
    operations: u64,
    group: u64,
}

fn arguments() -> Arguments {
    let given: Vec<String> = std::env::args().skip(1).filter(|text| text != "--bench").collect();
    let number = |at: usize, or: u64| given.get(at).map_or(or, |text| text.parse().expect("a number"));
    Arguments {
        kind: given.first().cloned().unwrap_or_else(|| "modify".to_owned()),
        entries: number(1, 2_000),
        operations: number(2, 2_000),
        group: number(3, 16).max(1),
    }
}

fn schema() -> Arc<Schema> {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis"] {
        builder.add_bundled(name).unwrap();
    }
    builder.add_schema_text(Kind::Mail.schema().unwrap(), "mail").unwrap();
    Arc::new(builder.build())
}

/// `LARIX_LOG=age` and `LARIX_LOG=size` keep so little that each group has something to remove.
fn retention() -> LogRetention {
    match std::env::var("LARIX_LOG").as_deref() {
        Ok("age") => LogRetention { age: Some(1), size: None },
        Ok("size") => LogRetention { age: None, size: Some(1 << 16) },
        _ => LogRetention::default(),
    }
}

fn settings(schema: &Schema) -> DatabaseSettings {
    let mut index = IndexConfig::default();
    // LARIX_INDEXES=eq leaves the substrings out: what they cost is the difference.
    let without = std::env::var("LARIX_INDEXES").is_ok_and(|text| text == "eq");
    for line in Kind::Mail.index_lines() {
        let (attributes, kinds) = line.split_once(' ').unwrap();
        let kept: Vec<&str> = kinds.split(',').filter(|kind| !(without && *kind == "sub")).collect();
        if !kept.is_empty() {
            index.add_line(schema, attributes, Some(&kept.join(","))).unwrap();
        }
    }
    let root = Kind::Mail.root_dn();
    index.add_line(schema, "member", Some("eq")).unwrap();
    index.add_line(schema, "street", Some(if without { "eq" } else { "eq,sub" })).unwrap();
    DatabaseSettings {
        suffixes: vec![Suffix { normal: schema.parse_dn("").unwrap(), text: String::new() }],
        root_dn: Some(schema.parse_dn(&root).unwrap()),
        root_dn_text: root,
        index,
        last_modified: true,
        log: std::env::var("LARIX_LOG").is_ok(),
        log_retention: retention(),
        ..DatabaseSettings::default()
    }
}

/// The accounts numbered `from..to` as adds.
fn adds(from: u64, to: u64) -> Vec<WriteOperation> {
    let mut ldif = Vec::new();
    Kind::Mail.write_ldif(to, SEED, &mut ldif).unwrap();
    let mut reader = Reader::new(Cursor::new(ldif));
    let mut adds = Vec::new();
    while let Some(record) = reader.read_record().unwrap() {
        let Some(number) = record.dn.strip_prefix("uid=user.").and_then(|rest| rest.split(',').next()) else {
            continue;
        };
        if number.parse::<u64>().unwrap() <= from {
            continue;
        }
        let Body::Content(list) = record.body else { panic!("an entry") };
        let attributes = list
            .into_iter()
            .map(|attribute| AttributeValues { description: attribute.description, values: attribute.values })
            .collect();
        adds.push(WriteOperation::Add { entry: record.dn, attributes });
    }
    adds
}

fn operations(arguments: &Arguments) -> Vec<WriteOperation> {
    let Arguments { kind, entries, operations, .. } = arguments;
    let dn = |number: u64| format!("uid=user.{},{PEOPLE}", 1 + number.wrapping_mul(7_919) % entries);
    match kind.as_str() {
        "add" => adds(*entries, entries + operations),
        "modify" => (0..*operations)
            .map(|number| WriteOperation::Modify {
                object: dn(number),
                changes: vec![Modification {
                    operation: ModifyOperation::Replace,
                    attribute: AttributeValues {
                        description: "zimbraLastLogonTimestamp".to_owned(),
                        values: vec![timestamp(number)],
                    },
                }],
            })
            .collect(),
        "member" => (0..*operations)
            .map(|number| WriteOperation::Modify {
                object: CROWD.to_owned(),
                changes: vec![Modification {
                    operation: ModifyOperation::Add,
                    attribute: AttributeValues {
                        description: "member".to_owned(),
                        values: vec![format!("uid=new.{number},{PEOPLE}").into_bytes()],
                    },
                }],
            })
            .collect(),
        "values" => (0..*operations)
            .map(|number| WriteOperation::Modify {
                object: format!("uid=user.1,{PEOPLE}"),
                changes: vec![Modification {
                    operation: ModifyOperation::Replace,
                    attribute: AttributeValues {
                        description: "street".to_owned(),
                        values: (0..*entries).map(|value| address(number * entries + value)).collect(),
                    },
                }],
            })
            .collect(),
        "delete" => (0..(*operations).min(*entries))
            .map(|number| WriteOperation::Delete { entry: format!("uid=user.{},{PEOPLE}", number + 1) })
            .collect(),
        other => panic!("no kind {other}"),
    }
}

/// An address that no other number has.
fn address(number: u64) -> Vec<u8> {
    format!("{} {:x} street", number % 200, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

/// A generalized time that differs for each of some two million numbers.
fn timestamp(number: u64) -> Vec<u8> {
    let (day, hour) = (1 + number / 86_400 % 28, number / 3_600 % 24);
    format!("202601{day:02}{hour:02}{:02}{:02}Z", number / 60 % 60, number % 60).into_bytes()
}

/// What the process has used so far.
struct Used {
    cpu_ns: u64,
    written: u64,
    writes: u64,
}

impl Used {
    fn now() -> Self {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let cpu_ns = tasks
            .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
            .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
            .sum();
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        Self { cpu_ns, written: field(&io, "wchar:"), writes: field(&io, "syscw:") }
    }
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn main() {
    let arguments = arguments();
    let folder = tempfile::tempdir().unwrap();
    let schema = schema();
    let settings = settings(&schema);
    let store = loaded(folder.path(), &schema, &settings, &arguments);
    let clock = Arc::new(ManualClock::new(START));
    let random = Arc::new(SeededRandom::new(SEED));
    let database = Arc::new(Database::open(store, Arc::clone(&schema), settings, &*random).unwrap());
    let environment = WriterEnvironment {
        clock: clock as _,
        random: random as _,
        order: Arc::new(CommitOrder::new(1)),
        default_referrals: Arc::from([]),
        auxiliary_needs_rule: false,
        index_watch: None,
    };
    let served = Arc::new(ServedDatabase::start(Arc::clone(&database), environment).unwrap());
    let frontend = Frontend {
        subschema: schema.parse_dn("cn=Subschema").unwrap(),
        schema: Arc::clone(&schema),
        default_search_base: None,
        referrals: Vec::new(),
    };
    let directory = Directory::new(frontend, vec![served]).unwrap();
    let root = Kind::Mail.root_dn();
    let subject = Arc::new(Subject::default().bound_as(schema.parse_dn(&root).unwrap(), &root));
    run(&arguments, &directory, &subject, operations(&arguments), folder.path());
}

/// A store with the mail directory in it.
fn loaded(
    folder: &Path,
    schema: &Arc<Schema>,
    settings: &DatabaseSettings,
    arguments: &Arguments,
) -> LmdbStore {
    let options = LmdbOptions { map_size: 16 << 30, ..LmdbOptions::default() };
    let store = LmdbStore::open(folder, &TABLES, &options).unwrap();
    let mut ldif = Vec::new();
    let has_crowd = arguments.kind == "member";
    let accounts = if has_crowd || arguments.kind == "values" { FEW } else { arguments.entries };
    Kind::Mail.write_ldif(accounts, SEED, &mut ldif).unwrap();
    if has_crowd {
        ldif.extend_from_slice(format!("\ndn: {CROWD}\nobjectClass: groupOfNames\ncn: crowd\n").as_bytes());
        for number in 0..arguments.entries {
            ldif.extend_from_slice(format!("member: uid=user.{number},{PEOPLE}\n").as_bytes());
        }
    }
    let (clock, random) = (ManualClock::new(START), SeededRandom::new(SEED));
    let context = LoadContext { schema, settings, clock: &clock, random: &random };
    load_empty(&store, folder, Cursor::new(ldif), context, &LoadOptions::default(), &mut Unobserved).unwrap();
    store
}

fn run(
    arguments: &Arguments,
    directory: &Directory<LmdbStore>,
    subject: &Arc<Subject>,
    operations: Vec<WriteOperation>,
    folder: &Path,
) {
    let count = operations.len() as u64;
    let file = folder.join("data.mdb");
    let store = directory.databases()[0].database().store();
    let size_before = fs::metadata(&file).unwrap().len();
    let (commits, before, begin) = (store.commit_counter(), Used::now(), Instant::now());
    let refused = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = mpsc::channel();
    let mut in_flight = 0;
    for operation in operations {
        if in_flight == arguments.group {
            receiver.recv().unwrap();
            in_flight -= 1;
        }
        let (sender, refused) = (sender.clone(), Arc::clone(&refused));
        let request = WriteRequest {
            operation,
            subject: Arc::clone(subject),
            controls: RequestControls::default(),
            origin: Origin::Client,
            passwords: None,
        };
        directory.submit(
            request,
            Box::new(move |outcome| {
                if !outcome.result.is_success() && refused.fetch_add(1, Ordering::Relaxed) == 0 {
                    println!("refused: {:?}", outcome.result);
                }
                let _ = sender.send(());
            }),
        );
        in_flight += 1;
    }
    (0..in_flight).for_each(|_| receiver.recv().unwrap());
    let (seconds, after) = (begin.elapsed().as_secs_f64(), Used::now());
    let commits = (store.commit_counter() - commits).max(1);
    let each = |value: u64| value as f64 / count as f64;
    println!(
        "{} of {} entries, {} in flight: {} done, {} refused, {commits} commits of {:.1}",
        arguments.kind,
        arguments.entries,
        arguments.group,
        count,
        refused.load(Ordering::Relaxed),
        count as f64 / commits as f64
    );
    println!("  CPU us each               {:>10.1}", each(after.cpu_ns - before.cpu_ns) / 1e3);
    println!("  each per second           {:>10.0}", count as f64 / seconds);
    println!("  bytes written each        {:>10.0}", each(after.written - before.written));
    println!("  write calls a commit      {:>10.1}", (after.writes - before.writes) as f64 / commits as f64);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    println!(
        "  file MB before, after     {:>10.1} {:.1}",
        mega(size_before),
        mega(fs::metadata(&file).unwrap().len())
    );
    println!(
        "  resident MB: own, mapped  {:>10.1} {:.1}",
        mega(field(&status, "RssAnon:") << 10),
        mega(field(&status, "RssFile:") << 10)
    );
}

fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
