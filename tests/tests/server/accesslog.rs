//! The access log: its records are those that slapd writes, none is lost by a crash or written twice, old ones go. The audit log: its
//! file is what slapd writes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Server, Site, until};
use larix_tests::client::{Client, run as ask};

const ADMIN: &str = "as cn=admin,dc=example,dc=com secret";

/// A database that is recorded, and the one that takes the records; `overlay`: more lines of the overlay.
fn configuration(kind: Kind, overlay: &str) -> String {
    let module = if kind == Kind::Slapd { "moduleload accesslog\n" } else { "" };
    format!(
        "{module}serverID 1\n\
         database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @DATA@/log\n\
         index reqStart,reqResult,objectClass,entryCSN eq\n\
         limits * size=unlimited\n\
         database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
         directory @DATA@/main\nindex objectClass,uid eq\noverlay accesslog\nlogdb cn=log\n{overlay}"
    )
}

fn site(kind: Kind, overlay: &str) -> Site {
    Site::new(kind, &configuration(kind, overlay))
}

fn start(site: &Site) -> Server {
    site.start().unwrap_or_else(|error| panic!("{error}"))
}

fn succeeds(connection: &mut Client, request: &str) {
    let answer = ask(connection, request);
    assert_eq!(answer, "=> 0\n", "{request}");
}

/// The log's records as they came, each with its lines.
fn records(connection: &mut Client) -> Vec<Vec<String>> {
    let answer = ask(connection, "search cn=log one (objectClass=*) * + inorder");
    let mut records: Vec<Vec<String>> = Vec::new();
    for line in answer.lines() {
        match line.strip_prefix("-> ") {
            Some(dn) => records.push(vec![dn.to_owned()]),
            None if line.starts_with("=>") => assert_eq!(line, "=> 0"),
            None => records.last_mut().expect("an entry").push(line.trim_start().to_owned()),
        }
    }
    records
}

/// A record without what differs from run to run and from server to server.
fn masked(record: &[String]) -> String {
    let mut text = String::new();
    for line in record {
        let name = line.split([':', '=']).next().unwrap_or_default();
        let skip =
            ["reqStart", "reqEnd", "reqSession", "entryDN", "reqEntryUUID", "entryUUID"].contains(&name);
        let line = match line.split_once(" entryUUID:") {
            _ if skip => format!("{name} *"),
            Some(_) => continue,
            None => line.clone(),
        };
        let volatile = [":+ 20", ":= 20", "entryCSN: ", "entryUUID:+ ", "Timestamp: "];
        match volatile.iter().find_map(|part| line.find(part).map(|at| at + part.len())) {
            Some(at) => text += &format!("{}*\n", &line[..at]),
            None => text += &format!("{line}\n"),
        }
    }
    text
}

const OPERATIONS: &[&str] = &[
    "add dc=example,dc=com\nobjectClass: domain\ndc: example",
    "add ou=p,dc=example,dc=com\nobjectClass: organizationalUnit\nou: p",
    "add \"cn=A B,dc=example,dc=com\"\nobjectClass: inetOrgPerson\ncn: A B\nsn: B\nmail: x@y\nuserPassword: pw",
    "modify \"cn=A B,dc=example,dc=com\"\nadd mail: m1@y | m2@y\nreplace description: d1\ndelete mail: x@y\n\
     add telephoneNumber: 1\nadd telephoneNumber: 2\nreplace description\ndelete telephoneNumber",
    "modify \"cn=a b,dc=example,dc=com\"\nreplace sn: C with !assert=(sn=B)",
    "modify \"cn=A B,dc=example,dc=com\"\nreplace sn: C",
    "modify \"cn=A B,dc=example,dc=com\"\ndelete mail: nobody@y",
    "delete cn=nobody,dc=example,dc=com",
    "modrdn \"cn=A B,dc=example,dc=com\" cn=z delete",
    "modrdn cn=z,dc=example,dc=com cn=y keep ou=p,dc=example,dc=com",
    "compare cn=y,ou=p,dc=example,dc=com sn:c",
    "compare cn=y,ou=p,dc=example,dc=com sn:d",
    "compare cn=nobody,ou=p,dc=example,dc=com sn:d",
    "search dc=example,dc=com sub (&(sn=c)(cn=z)) cn mail",
    "search ou=p,dc=example,dc=com base (objectClass=*) deref=always size=5 time=6 typesonly",
    "search dc=example,dc=com one (ou=*)",
    "search dc=example,dc=com children (ou=*) 1.1 deref=search",
    "search ou=nowhere,dc=example,dc=com base (objectClass=*)",
    "as cn=y,ou=p,dc=example,dc=com wrong",
    "as cn=y,ou=p,dc=example,dc=com pw",
    "search dc=example,dc=com base (objectClass=*)",
    "as cn=admin,dc=example,dc=com secret",
    "passwd cn=y,ou=p,dc=example,dc=com new=other",
    "delete cn=y,ou=p,dc=example,dc=com",
    "delete ou=p,dc=example,dc=com",
];

/// Carries the operations out and gives the records of them.
fn recorded(kind: Kind, overlay: &str) -> Vec<String> {
    let site = site(kind, overlay);
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    OPERATIONS.iter().for_each(|operation| {
        ask(&mut connection, operation);
    });
    let records = records(&mut connection);
    assert!(server.stop());
    records.iter().map(|record| masked(record)).collect()
}

/// Attributes that slapd has added to a change before it finds out that it cannot be made.
const COMPLETED: [&str; 7] = [
    "structuralObjectClass",
    "entryUUID",
    "creatorsName",
    "createTimestamp",
    "entryCSN",
    "modifiersName",
    "modifyTimestamp",
];

/// A record without what the two have for good reasons: what a refused change would have been completed with, the normal
/// forms that slapd shows new names, assertions and filters in, and hashes.
fn alike(text: &str) -> String {
    let failed = !text.contains("reqResult: 0\n");
    let is_told = |line: &&str| {
        let (name, rest) = line.split_once(": ").unwrap_or((line, ""));
        let of_refused =
            failed && name == "reqMod" && COMPLETED.iter().any(|completed| rest.starts_with(completed));
        !of_refused && name != "reqEntryUUID *" && !rest.starts_with("userPassword:")
    };
    let folded = |line: &str| match line.split(':').next() {
        Some("reqNewDN" | "reqAssertion" | "reqFilter") => line.to_lowercase(),
        _ => line.to_owned(),
    };
    text.lines().filter(is_told).map(|line| folded(line) + "\n").collect()
}

#[test]
fn records_are_those_of_slapd() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    for overlay in [
        "logops all\n",
        "logops writes\nlogsuccess TRUE\nlogold (objectClass=person)\nlogoldattr cn\n",
        "logops session reads\nlogbase add|delete ou=p,dc=example,dc=com\n",
    ] {
        let (theirs, ours) = (recorded(Kind::Slapd, overlay), recorded(Kind::Larix, overlay));
        for (at, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            assert_eq!(alike(ours), alike(theirs), "record {at} under {overlay}");
        }
        assert!(!ours.is_empty() && ours.len() == theirs.len(), "{overlay}: {} {}", ours.len(), theirs.len());
    }
}

/// Adds until the server is gone; how many it acknowledged.
fn add_until_gone(server: &Server, cycle: u64, writer: u64, enough: impl Fn()) -> Vec<String> {
    let mut connection = Client::connect(server.address);
    let mut acknowledged = Vec::new();
    ask(&mut connection, ADMIN);
    for number in 0.. {
        let dn = format!("uid={cycle}.{writer}.{number},dc=example,dc=com");
        let request = format!("add {dn}\nobjectClass: account\nuid: {cycle}.{writer}.{number}");
        if ask(&mut connection, &request) != "=> 0\n" {
            return acknowledged;
        }
        acknowledged.push(dn);
        if number == 40 {
            enough();
        }
    }
    acknowledged
}

#[test]
fn a_crash_loses_no_record_and_doubles_none() {
    let site = site(Kind::Larix, "logops writes\nlogsuccess TRUE\n");
    let mut acknowledged: HashSet<String> = HashSet::new();
    for cycle in 0..4 {
        let server = start(&site);
        let mut connection = Client::connect(server.address);
        ask(&mut connection, ADMIN);
        if cycle == 0 {
            succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
        }
        let is_enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (server, is_enough) = (&server, &is_enough);
                    scope.spawn(move || {
                        add_until_gone(server, cycle, writer, || is_enough.store(true, Ordering::Relaxed))
                    })
                })
                .collect();
            until("a writer has added some", || is_enough.load(Ordering::Relaxed));
            assert!(signal(server.process_id(), Signal::KILL));
            for writer in writers {
                acknowledged.extend(writer.join().expect("a writer"));
            }
        });
        server.kill();
    }
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: the last");
    let all = ask(&mut connection, "search dc=example,dc=com one (objectClass=account) 1.1 inorder");
    let entries: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("-> ")).collect();
    let records = records(&mut connection);
    let value = |record: &[String], name: &str| -> String {
        let line = record.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {record:?}")).to_owned()
    };
    let recorded: Vec<String> = records.iter().map(|record| value(record, "reqDN")).collect();
    assert_eq!(recorded.first().map(String::as_str), Some("dc=example,dc=com"));
    assert_eq!(recorded.last().map(String::as_str), Some("dc=example,dc=com"));
    // Every entry once, in the order in which they were made.
    assert_eq!(recorded[1..recorded.len() - 1], entries, "records, entries");
    // 41 of one writer at least, each time.
    assert!(acknowledged.len() >= 4 * 41, "{}", acknowledged.len());
    assert!(acknowledged.iter().all(|dn| entries.contains(&dn.as_str())));
    let starts: Vec<String> = records.iter().map(|record| record[0].clone()).collect();
    assert!(starts.is_sorted() && starts.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(server.stop());
}

/// An update in a transaction is recorded when the transaction has been carried out, with its content, and not when it is kept.
#[test]
fn a_transaction_is_recorded_when_it_is_carried_out() {
    for overlay in ["logops writes\nlogsuccess TRUE\n", "logops writes\n"] {
        let site = site(Kind::Larix, overlay);
        let server = start(&site);
        let mut connection = Client::connect(server.address);
        ask(&mut connection, ADMIN);
        succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
        for (value, end) in [("given up", "30 05 01 01 00 04 00"), ("carried out", "30 02 04 00")] {
            let started = ask(&mut connection, "extended 1.3.6.1.1.21.1");
            assert!(started.starts_with("=> 0"), "{started}");
            let update = format!("modify dc=example,dc=com with !txn\nreplace description: {value}");
            succeeds(&mut connection, &update);
            let ended = ask(&mut connection, &format!("extended 1.3.6.1.1.21.3 \"{end}\""));
            assert!(ended.starts_with("=> 0"), "{ended}");
        }
        let records = records(&mut connection);
        let is_modify = |record: &&Vec<String>| record.contains(&"reqType: modify".to_owned());
        let modifies: Vec<&Vec<String>> = records.iter().filter(is_modify).collect();
        let [modify] = modifies[..] else { panic!("{records:?}") };
        assert!(modify.contains(&"reqMod: description:= carried out".to_owned()), "{modify:?}");
        assert!(server.stop());
    }
}

/// Of a transaction that fails, the update that was refused is recorded, and nothing else.
#[test]
fn a_transaction_that_fails_is_recorded_as_its_refused_update() {
    let site = site(Kind::Larix, "logops writes\n");
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    let started = ask(&mut connection, "extended 1.3.6.1.1.21.1");
    assert!(started.starts_with("=> 0"), "{started}");
    succeeds(&mut connection, "modify dc=example,dc=com with !txn\nreplace description: never");
    succeeds(&mut connection, "delete cn=nobody,dc=example,dc=com with !txn");
    let ended = ask(&mut connection, "extended 1.3.6.1.1.21.3 \"30 02 04 00\"");
    assert!(ended.starts_with("=> 32"), "{ended}");
    let records = records(&mut connection);
    let is_add = |record: &Vec<String>| record.contains(&"reqType: add".to_owned());
    let [added, refused] = &records[..] else { panic!("{records:?}") };
    assert!(is_add(added), "{records:?}");
    for line in ["reqType: delete", "reqDN: cn=nobody,dc=example,dc=com", "reqResult: 32"] {
        assert!(refused.contains(&line.to_owned()), "{line}: {refused:?}");
    }
    assert!(server.stop());
}

/// As by hand: what is changed then bears numbers that were recorded once.
#[test]
fn a_database_that_became_an_older_copy_is_recorded() {
    let site = site(Kind::Larix, "logops writes\n");
    site.load_into(
        Some("dc=example,dc=com"),
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n",
    );
    let (data, copy) = (site.path().join("data/main/data.mdb"), site.path().join("copy.mdb"));
    let change = |values: &[u32]| {
        let server = start(&site);
        let mut connection = Client::connect(server.address);
        ask(&mut connection, ADMIN);
        for value in values {
            succeeds(&mut connection, &format!("modify dc=example,dc=com\nreplace description: {value}"));
        }
        let lines = records(&mut connection).concat();
        assert!(server.stop());
        lines
    };
    change(&[1]);
    std::fs::copy(&data, &copy).unwrap();
    change(&[2, 3]);
    std::fs::copy(&copy, &data).unwrap();
    let lines = change(&[4]);
    assert!(lines.contains(&"reqMod: description:= 4".to_owned()), "{lines:?}");
}

#[test]
fn several_databases_have_one_log() {
    let body = "database mdb\nsuffix cn=log\ndirectory @DATA@/log\nlimits * size=unlimited\n".to_owned()
        + &["a", "b"]
            .map(|name| {
                format!(
                    "database mdb\nsuffix dc={name}\nrootdn cn=admin,dc={name}\nrootpw secret\n\
                     directory @DATA@/{name}\noverlay accesslog\nlogdb cn=log\nlogops writes\n"
                )
            })
            .concat();
    let site = Site::new(Kind::Larix, &body);
    let server = start(&site);
    thread::scope(|scope| {
        for name in ["a", "b"] {
            let address = server.address;
            scope.spawn(move || {
                let mut connection = Client::connect(address);
                succeeds(&mut connection, &format!("as cn=admin,dc={name} secret"));
                succeeds(&mut connection, &format!("add dc={name}\nobjectClass: domain\ndc: {name}"));
                for number in 0..50 {
                    let request = format!("modify dc={name}\nreplace description: {number}");
                    succeeds(&mut connection, &request);
                }
            });
        }
    });
    let mut connection = Client::connect(server.address);
    let records = records(&mut connection);
    assert_eq!(records.len(), 102);
    for name in ["a", "b"] {
        let of = format!("reqDN: dc={name}");
        let own: Vec<_> = records.iter().filter(|record| record.contains(&of)).collect();
        let values = own.iter().filter_map(|record| {
            record.iter().find_map(|line| line.strip_prefix("reqMod: description:= ")).map(str::to_owned)
        });
        let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        assert_eq!(values.collect::<Vec<_>>(), expected);
        assert!(own.windows(2).all(|pair| pair[0][0] < pair[1][0]), "names rise");
    }
    assert!(server.stop());
    // The CSNs of one database are not in order with those of the other.
    let checked = Kind::Larix.tool("check").arg("-f").arg(site.configuration()).output().expect("it runs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn old_records_go_and_the_log_says_from_where_it_is_whole() {
    let site = site(Kind::Larix, "logops writes\nlogpurge 0+00:00:01 0+00:00:01\nlogpurgebatch 7\n");
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    for number in 0..30 {
        succeeds(&mut connection, &format!("modify dc=example,dc=com\nreplace description: {number}"));
    }
    until("the old records are gone", || records(&mut connection).is_empty());
    let log = ask(&mut connection, "search cn=log base (minCSN=*) objectClass");
    assert!(log.contains("auditContainer"), "{log}");
    until("what comes next is there", || {
        succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: again");
        // On a busy machine it may be old when it is looked for.
        let found = records(&mut connection).len();
        assert!(found <= 1, "{found}");
        found == 1
    });
    assert!(server.stop());
}

#[test]
fn the_overlay_comes_and_goes_while_the_server_serves() {
    let site = Site::new(
        Kind::Larix,
        "database config\nrootpw secret\ndatabase mdb\nsuffix cn=log\ndirectory @DATA@/log\nlimits * size=unlimited\n\
         database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
         directory @DATA@/main\n",
    );
    let server = start(&site);
    let (mut connection, mut config) = (Client::connect(server.address), Client::connect(server.address));
    succeeds(&mut connection, ADMIN);
    succeeds(&mut config, "as cn=config secret");
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    let overlay = "olcOverlay={0}accesslog,olcDatabase={2}mdb,cn=config";
    let unnumbered = overlay.replace("{0}", "");
    let add = |log: &str, operations: &str| {
        format!(
            "add \"{unnumbered}\"\nobjectClass: olcOverlayConfig\nobjectClass: olcAccessLogConfig\n\
             olcOverlay: accesslog\nolcAccessLogDB: {log}\nolcAccessLogOps: {operations}"
        )
    };
    for (log, operations, part) in [
        ("cn=nowhere", "writes", "no database has this suffix"),
        ("dc=example,dc=com", "writes", "cannot log to itself"),
        ("cn=log", "everything", "is no operation"),
    ] {
        let answer = ask(&mut config, &add(log, operations));
        assert!(!answer.contains("=> 0") && answer.contains(part), "{answer}");
    }
    succeeds(&mut config, &add("cn=log", "writes"));
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: 1");
    assert_eq!(records(&mut connection).len(), 1);
    succeeds(&mut config, &format!("modify \"{overlay}\"\nadd olcAccessLogOps: compare"));
    ask(&mut connection, "compare dc=example,dc=com dc:example");
    assert_eq!(records(&mut connection).len(), 2);
    succeeds(&mut config, &format!("delete \"{overlay}\""));
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: 2");
    assert_eq!(records(&mut connection).len(), 2);
    succeeds(&mut config, &add("cn=log", "writes"));
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: 3");
    let lines = records(&mut connection).concat();
    assert!(lines.contains(&"reqMod: description:= 3".to_owned()), "{lines:?}");
    assert!(server.stop());
}

#[test]
fn the_suffix_says_where_its_operations_are_recorded() {
    let shown = |kind| {
        let site = site(kind, "logops writes\n");
        let server = start(&site);
        let mut connection = Client::connect(server.address);
        ask(&mut connection, ADMIN);
        succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
        succeeds(&mut connection, "add ou=p,dc=example,dc=com\nobjectClass: organizationalUnit\nou: p");
        let search = |rest: &str| format!("search {rest}");
        let all = [
            "dc=example,dc=com sub (objectClass=*) auditContext inorder",
            "dc=example,dc=com base (objectClass=*) *",
            "cn=log base (objectClass=*) auditContext",
        ]
        .map(|rest| ask(&mut connection, &search(rest)));
        let every = ask(&mut connection, "search dc=example,dc=com base (objectClass=*) +");
        assert!(server.stop());
        (all, every.contains("auditContext: cn=log\n"))
    };
    let ours = shown(Kind::Larix);
    assert!(ours.1);
    assert!(ours.0[0].contains("auditContext: cn=log\n"), "{}", ours.0[0]);
    if !Kind::Slapd.is_lacking() {
        assert_eq!(ours, shown(Kind::Slapd));
    }
}

#[test]
fn one_log_for_all_databases() {
    let body = "serverID 1\noverlay accesslog\nlogdb cn=log\nlogops writes\n\
                database mdb\nsuffix cn=log\nrootdn cn=admin,dc=example,dc=com\ndirectory @DATA@/log\n\
                database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
                directory @DATA@/main\n\
                database mdb\nsuffix dc=other\nrootdn cn=admin,dc=example,dc=com\ndirectory @DATA@/other\n";
    let site = Site::new(Kind::Larix, body);
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    succeeds(&mut connection, "add dc=other\nobjectClass: domain\ndc: other");
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: d");
    let mut operations: Vec<Vec<String>> = records(&mut connection)
        .into_iter()
        .map(|record| {
            let of =
                |name: &str| record.iter().find(|line| line.starts_with(name)).cloned().unwrap_or_default();
            vec![of("reqDN: "), of("reqType: ")]
        })
        .collect();
    // Each database's are in its order; which database's come first depends on whose log was looked at first.
    operations.sort_by(|one, other| one[0].cmp(&other[0]));
    let expected = [("dc=example,dc=com", "add"), ("dc=example,dc=com", "modify"), ("dc=other", "add")];
    assert_eq!(
        operations,
        expected.map(|(dn, kind)| vec![format!("reqDN: {dn}"), format!("reqType: {kind}")])
    );
    assert!(server.stop());
}

#[test]
fn a_log_says_of_no_server_more_than_its_database() {
    let contexts = |connection: &mut Client, base: &str| {
        let answer = ask(connection, &format!("search {base} base (objectClass=*) contextCSN"));
        let mut csns: Vec<String> =
            answer.lines().filter(|line| line.contains("contextCSN: ")).map(str::to_owned).collect();
        csns.sort();
        csns
    };
    // What is there comes from another server, and an older one of this id.
    let entry = |csn: &str, name: &str| {
        format!(
            "dn: {name}\nobjectClass: domain\ndc: {}\nentryCSN: {csn}\n\n",
            name.trim_start_matches("dc=").split(',').next().unwrap_or_default()
        )
    };
    let site = site(Kind::Larix, "logops writes\n");
    site.load_into(
        Some("dc=example,dc=com"),
        &[
            entry("20200101000000.000000Z#000000#002#000000", "dc=example,dc=com"),
            entry("20190101000000.000000Z#000000#001#000000", "dc=a,dc=example,dc=com"),
        ]
        .concat(),
    );
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    let of_log = contexts(&mut connection, "cn=log");
    assert_eq!(of_log, contexts(&mut connection, "dc=example,dc=com"));
    succeeds(&mut connection, "modify dc=a,dc=example,dc=com\nreplace description: d");
    assert_eq!(contexts(&mut connection, "cn=log"), contexts(&mut connection, "dc=example,dc=com"));
    assert!(server.stop());
}

/// Without `logsuccess` what is refused is recorded, too, and compares are.
#[test]
fn no_password_that_was_refused_or_asked_for_stands_in_the_log() {
    let site = site(Kind::Larix, "logops all\n");
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    let person = "objectClass: person\nsn: p\ncn: p\nuserPassword: stored";
    succeeds(&mut connection, &format!("add cn=p,dc=example,dc=com\n{person}"));
    for (request, code) in [
        ("compare cn=p,dc=example,dc=com userPassword:guess-one", 5),
        ("compare cn=p,dc=example,dc=com 2.5.4.35:guess-two", 5),
        ("compare cn=p,dc=example,dc=com sn:asked-for", 5),
        ("search dc=example,dc=com sub (&(sn=asked-for)(userPassword=guess-six))", 0),
        ("search dc=example,dc=com sub (sn=nobody) with assert=(userPassword=guess-eight)", 122),
        ("search dc=example,dc=com sub (sn=nobody) with mv=(userPassword=guess-nine)", 0),
        ("search dc=example,dc=com sub (|(2.5.4.35=guess-*)(userPassword:octetStringMatch:=guess-seven))", 0),
        ("modify cn=p,dc=example,dc=com\ndelete userPassword: guess-three", 16),
        ("modify cn=p,dc=example,dc=com\nreplace userPassword: guess-four\ndelete sn", 65),
        (
            "add cn=q,ou=none,dc=example,dc=com\nobjectClass: person\nsn: q\ncn: q\nuserPassword: guess-five",
            32,
        ),
    ] {
        let answer = ask(&mut connection, request);
        assert!(answer.starts_with(&format!("=> {code}")), "{request}: {answer}");
    }
    let records = records(&mut connection).concat().join("\n");
    assert!(server.stop());
    assert!(!records.contains("guess-"), "{records}");
    // Values of controls are written in hexadecimal digits.
    let digits: String = b"guess-".iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!records.to_ascii_lowercase().contains(&digits), "{records}");
    assert!(records.contains("{1.3.6.1.1.12"), "{records}");
    assert!(records.contains("reqAssertion: sn=asked-for"), "{records}");
    assert!(records.contains("reqFilter: (&(sn=asked-for)(userPassword=\\28withheld\\29))"), "{records}");
    assert_eq!(records.matches("(withheld)").count(), 5, "{records}");
}

/// Carries the operations out and gives the file of the audit log, without what differs from run to run.
fn audited(kind: Kind) -> String {
    let module = if kind == Kind::Slapd { "moduleload auditlog\n" } else { "" };
    let site = Site::new(
        kind,
        &format!(
            "{module}serverID 1\n\
             database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@/main\nindex objectClass,uid eq\noverlay auditlog\nauditlog @DATA@/main/audit.ldif\n"
        ),
    );
    let server = start(&site);
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    OPERATIONS.iter().for_each(|operation| {
        ask(&mut connection, operation);
    });
    // What is left is written before the end.
    assert!(server.stop());
    let text = std::fs::read_to_string(site.path().join("data/main/audit.ldif")).expect("an audit log");
    // Hashes are folded where they are long, and each server has its own.
    text.replace("\n ", "").lines().map(|line| without_times(line) + "\n").collect()
}

fn without_times(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["#", "end", kind, _] => format!("# end {kind} *"),
        ["#", kind, _, suffix, who, peer, _] => {
            let peer = peer.split(':').next().unwrap_or_default();
            format!("# {kind} * {suffix} {who} {peer} *")
        }
        ["userPassword::", value] if value.len() > 8 => "userPassword:: *".to_owned(),
        [name @ ("entryUUID:" | "entryCSN:" | "createTimestamp:" | "modifyTimestamp:"), _] => {
            format!("{name} *")
        }
        _ => line.to_owned(),
    }
}

#[test]
fn the_audit_log_is_the_file_that_slapd_writes() {
    let ours = audited(Kind::Larix);
    assert!(ours.contains("# add * dc=example,dc=com cn=admin,dc=example,dc=com IP=127.0.0.1 *\n"), "{ours}");
    if Kind::Slapd.is_lacking() {
        return;
    }
    // A name stands there as the directory shows it; slapd shows how it was sent.
    assert_eq!(ours, audited(Kind::Slapd).replace("dn: cn=a b,", "dn: cn=A B,"));
}
