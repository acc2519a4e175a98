//! Delta-syncrepl: a consumer follows a provider's access log, slapd and Larix on either side, stopped and started under
//! changes, and when the log does not reach back.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::Duration;

use larix_proto::Scope;
use larix_testkit::process::free_ports;
use larix_testkit::{Kind, Server, Site, until};
use larix_tests::client::{Client, run as ask};
use larix_tests::relay::{Passage, Relay};
use larix_tests::replicas::{ADMIN as ROOT, Content, LOG, Member, Merging, SUFFIX, members, people};
use larix_tests::sync::{Consumer, SyncSearch, read};

const ADMIN: &str = "as cn=admin,dc=example,dc=com secret";
/// Looks at both sides until they are alike, and between two looks.
const LOOKS: u32 = 3_600;
const BETWEEN: Duration = Duration::from_millis(50);

fn modules(kind: Kind) -> &'static str {
    if kind == Kind::Slapd { "moduleload syncprov\nmoduleload accesslog\n" } else { "" }
}

fn provider(kind: Kind) -> Site {
    let limits = "limits * size=unlimited time=unlimited\n";
    Site::new(
        kind,
        &format!(
            "{}serverID 1\ndatabase config\nrootpw secret\n\
             database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @DATA@/log\n\
             index reqStart,reqResult,objectClass,entryCSN,entryUUID eq\n{limits}\
             overlay syncprov\nsyncprov-nopresent TRUE\nsyncprov-reloadhint TRUE\n\
             database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@/main\nindex objectClass,entryCSN,entryUUID eq\n{limits}\
             overlay syncprov\noverlay accesslog\nlogdb cn=log\nlogops writes\nlogsuccess TRUE\n",
            modules(kind)
        ),
    )
}

fn consumer(kind: Kind, port: u16) -> Site {
    Site::new(
        kind,
        &format!(
            "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@/main\nindex objectClass,entryCSN,entryUUID eq\n\
             limits * size=unlimited time=unlimited\n\
             syncrepl rid=001 provider=ldap://127.0.0.1:{port} searchbase=\"dc=example,dc=com\" \
             type=refreshAndPersist retry=\"1 +\" bindmethod=simple binddn=\"cn=admin,dc=example,dc=com\" \
             credentials=secret logbase=\"cn=log\" logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\" \
             syncdata=accesslog schemachecking=off\n"
        ),
    )
}

fn succeeds(connection: &mut Client, request: &str) {
    let answer = ask(connection, request);
    assert!(answer.starts_with("=> 0"), "{request}: {answer}");
}

/// Changes of every kind.
fn change(connection: &mut Client, round: u32) {
    let dn = |number: u32| format!("cn=u{round}.{number},dc=example,dc=com");
    for number in 0..12 {
        succeeds(
            connection,
            &format!(
                "add {}\nobjectClass: inetOrgPerson\ncn: u{round}.{number}\nsn: s\ndescription: :+ {number}",
                dn(number)
            ),
        );
    }
    succeeds(
        connection,
        &format!("add ou=g{round},dc=example,dc=com\nobjectClass: organizationalUnit\nou: g{round}"),
    );
    for number in 0..4 {
        let changes = "add mail: a@b | c@d\nreplace sn: other | more\ndelete description\nadd sn: last\nadd title: a\nadd \
                       title: b\nreplace initials";
        succeeds(connection, &format!("modify {}\n{changes}", dn(number)));
        succeeds(connection, &format!("modify {}\ndelete mail: a@b", dn(number)));
    }
    for number in 4..7 {
        succeeds(connection, &format!("delete {}", dn(number)));
    }
    for number in 7..9 {
        let superior = format!("ou=g{round},dc=example,dc=com");
        succeeds(connection, &format!("modrdn {} cn=r{round}.{number} delete {superior}", dn(number)));
    }
    succeeds(connection, &format!("modrdn {} cn=k{round} keep", dn(9)));
    succeeds(connection, &format!("modify dc=example,dc=com\nreplace description: round {round}"));
}

fn content(connection: &mut Client) -> String {
    ask(connection, "search dc=example,dc=com sub (objectClass=*)")
}

/// Waits until the consumer shows what the provider shows.
fn wait_until_alike(provider: &mut Client, consumer: &Server, what: &str) {
    let expected = content(provider);
    let mut found = String::new();
    for _ in 0..LOOKS {
        let mut connection = Client::connect(consumer.address);
        ask(&mut connection, ADMIN);
        found = content(&mut connection);
        if found == expected {
            return;
        }
        thread::park_timeout(BETWEEN);
    }
    panic!("{what}: the consumer has\n{found}\nand the provider\n{expected}\n{}", consumer.log());
}

/// Entries as the tool writes them, operational attributes and all, without what is a server's own.
fn dumped(kind: Kind, site: &Site) -> BTreeSet<String> {
    let mut cat: Command = kind.tool("cat");
    let output =
        cat.arg("-f").arg(site.configuration()).args(["-b", "dc=example,dc=com", "-o", "ldif_wrap=no"]);
    let output = output.output().expect("the tool starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("LDIF");
    let sorted = |entry: &str| {
        let mut lines: Vec<&str> = entry.lines().filter(|line| !line.starts_with("contextCSN:")).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    text.split("\n\n").map(sorted).filter(|entry| entry.contains("dn: ")).collect()
}

fn check(of: Kind, by: Kind) {
    let what = format!("{by:?} follows {of:?}");
    if of.is_lacking() || by.is_lacking() {
        return;
    }
    let provided = provider(of);
    let source = provided.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = Client::connect(source.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    change(&mut connection, 0);
    let site = consumer(by, source.address.port());
    let follower = site.start().unwrap_or_else(|error| panic!("{error}"));
    wait_until_alike(&mut connection, &follower, &format!("{what}: the first content"));
    change(&mut connection, 1);
    wait_until_alike(&mut connection, &follower, &format!("{what}: live"));
    assert!(follower.stop(), "{what}");
    change(&mut connection, 2);
    let follower = site.start().unwrap_or_else(|error| panic!("{error}"));
    wait_until_alike(&mut connection, &follower, &format!("{what}: after a pause"));
    change(&mut connection, 3);
    wait_until_alike(&mut connection, &follower, &format!("{what}: live again"));
    if of == Kind::Larix {
        assert!(follower.stop(), "{what}");
        change(&mut connection, 4);
        purge(&source);
        let follower = site.start().unwrap_or_else(|error| panic!("{error}"));
        wait_until_alike(&mut connection, &follower, &format!("{what}: after the log was purged"));
        change(&mut connection, 5);
        wait_until_alike(&mut connection, &follower, &format!("{what}: live behind that"));
        assert!(follower.stop(), "{what}");
    } else {
        assert!(follower.stop(), "{what}");
    }
    assert!(source.stop(), "{what}");
    let (theirs, ours) = (dumped(of, &provided), dumped(by, &site));
    let differing: Vec<_> = theirs.symmetric_difference(&ours).collect();
    assert!(differing.is_empty(), "{what}: {differing:#?}");
}

/// Has all records of the log go.
fn purge(source: &Server) {
    let mut config = Client::connect(source.address);
    succeeds(&mut config, "as cn=config secret");
    let overlay = "olcOverlay={1}accesslog,olcDatabase={2}mdb,cn=config";
    succeeds(&mut config, &format!("modify \"{overlay}\"\nadd olcAccessLogPurge: 0+00:00:01 0+00:00:01"));
    for _ in 0..LOOKS {
        if ask(&mut config, "search cn=log one (objectClass=*) 1.1") == "=> 0\n" {
            return;
        }
        thread::park_timeout(BETWEEN);
    }
    panic!("the log is not purged: {}", source.log());
}

#[test]
fn slapd_follows_larix() {
    check(Kind::Larix, Kind::Slapd);
}

#[test]
fn larix_follows_slapd() {
    check(Kind::Slapd, Kind::Larix);
}

#[test]
fn larix_follows_larix() {
    check(Kind::Larix, Kind::Larix);
}

/// A consumer that comes with what it has just heard of the entries is not ahead of the log, which is written a moment later.
#[test]
fn a_consumer_that_turns_from_the_entries_to_the_log_is_let_in() {
    let site = provider(Kind::Larix);
    let source = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut connection = Client::connect(source.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    let value = "x".repeat(20_000);
    for number in 0..100 {
        succeeds(&mut connection, &format!("modify dc=example,dc=com\nreplace description: {number}{value}"));
        let suffix = SyncSearch { scope: Scope::Base, attributes: &["contextCSN"], ..SyncSearch::default() };
        let shown = read(source.address, &suffix).expect("the entry");
        let csn = String::from_utf8_lossy(shown["dc=example,dc=com"]["contextcsn"].first().expect("one"));
        let mut consumer = Consumer::default();
        consumer.cookie = Some(format!("rid=001,csn={csn}"));
        consumer.ask(source.address, &SyncSearch { base: "cn=log", ..SyncSearch::default() });
        assert_eq!(consumer.refresh(), None);
    }
}

/// As of a database whose clock was ahead, and which is gone from the log: consumers that have the log's cookie are sent what is changed now.
#[test]
fn changes_come_above_what_the_log_says() {
    const AHEAD: &str = "21000101000000.000000Z#000000#001#000000";
    let site = provider(Kind::Larix);
    let file = site.path().join("log.ldif");
    let log = format!("dn: cn=log\nobjectClass: auditContainer\ncn: log\nentryCSN: {AHEAD}\n");
    std::fs::write(&file, log).unwrap();
    let mut add = Kind::Larix.tool("add");
    // -w: the contextCSN is that of the entry.
    add.args(["-w", "-b", "cn=log", "-f"]).arg(site.configuration()).arg("-l").arg(&file);
    assert!(add.output().unwrap().status.success());
    site.load_into(
        Some("dc=example,dc=com"),
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n",
    );
    let server = site.start().unwrap();
    let mut connection = Client::connect(server.address);
    ask(&mut connection, ADMIN);
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: now");
    let csn = connection.value("dc=example,dc=com", "entryCSN").expect("a CSN");
    assert!(csn.as_str() > AHEAD, "{csn}");
    assert!(server.stop());
}

/// Consumers that were away follow it from where they are.
#[test]
fn a_log_that_was_loaded_with_its_database_lacks_nothing() {
    let change_and_ask = |server: &Server, changes: usize| {
        let mut connection = Client::connect(server.address);
        ask(&mut connection, ADMIN);
        succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: another");
        // On a busy machine it is recorded later than a search waits for it.
        until("it is recorded", || {
            ask(&mut connection, "search cn=log one (reqType=modify) 1.1").matches("-> ").count() == changes
        });
        let answer = ask(&mut connection, "search cn=log base (objectClass=*) minCSN");
        let csn = answer.split_whitespace().find(|word| word.contains("Z#"));
        csn.unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let (before, after) = (provider(Kind::Larix), provider(Kind::Larix));
    before.load_into(
        Some("dc=example,dc=com"),
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n",
    );
    let server = before.start().unwrap();
    let expected = change_and_ask(&server, 1);
    assert!(server.stop());
    for suffix in ["cn=log", "dc=example,dc=com"] {
        let mut cat = Kind::Larix.tool("cat");
        let output = cat.args(["-b", suffix, "-f"]).arg(before.configuration()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        after.load_into(Some(suffix), &String::from_utf8(output.stdout).unwrap());
    }
    let server = after.start().unwrap();
    assert_eq!(change_and_ask(&server, 2), expected);
    assert!(server.stop());
}

/// What goes from the log of cn=config is nothing that they lack.
#[test]
fn consumers_of_a_database_are_let_in_where_its_log_has_cn_config() {
    let overlay = "overlay accesslog\nlogdb cn=log\nlogops writes\nlogsuccess TRUE\n";
    let site = Site::new(
        Kind::Larix,
        &format!(
            "serverID 1\ndatabase config\nrootpw secret\n{overlay}\
             database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @DATA@/log\noverlay syncprov\n\
             database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
             directory @DATA@/main\noverlay syncprov\n{overlay}"
        ),
    );
    let server = site.start().unwrap();
    let mut connection = Client::connect(server.address);
    succeeds(&mut connection, ADMIN);
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    purge(&server);
    until("it is let in", || {
        let csn = connection.value("dc=example,dc=com", "contextCSN").expect("a CSN");
        let mut consumer = Consumer::default();
        consumer.cookie = Some(format!("rid=001,csn={csn}"));
        consumer.ask(server.address, &SyncSearch { base: "cn=log", ..SyncSearch::default() });
        consumer.refresh().is_none()
    });
    assert!(server.stop());
}

/// The log has gone past that with changes of the other database, and so has the consumer's cookie.
#[test]
fn what_was_changed_while_the_overlay_was_away_arrives() {
    let database = |suffix: &str, folder: &str| {
        format!(
            "database mdb\nsuffix {suffix}\ndirectory @DATA@/{folder}\noverlay syncprov\noverlay accesslog\n\
             logdb cn=log\nlogops writes\nlogsuccess TRUE\nrootdn cn=admin,{suffix}\nrootpw secret\n"
        )
    };
    let site = Site::new(
        Kind::Larix,
        &format!(
            "serverID 1\ndatabase config\nrootpw secret\n\
             database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @DATA@/log\noverlay syncprov\n{}{}",
            database("dc=example,dc=com", "main"),
            database("dc=two", "two")
        ),
    );
    let source = site.start().unwrap();
    let mut connection = Client::connect(source.address);
    let (mut other, mut config) = (Client::connect(source.address), Client::connect(source.address));
    succeeds(&mut connection, ADMIN);
    succeeds(&mut other, "as cn=admin,dc=two secret");
    succeeds(&mut config, "as cn=config secret");
    succeeds(&mut connection, "add dc=example,dc=com\nobjectClass: domain\ndc: example");
    let copy = consumer(Kind::Larix, source.address.port());
    let follower = copy.start().unwrap();
    wait_until_alike(&mut connection, &follower, "at first");
    let overlay = "olcDatabase={2}mdb,cn=config";
    succeeds(&mut config, &format!("delete \"olcOverlay={{1}}accesslog,{overlay}\""));
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: away");
    succeeds(&mut other, "add dc=two\nobjectClass: domain\ndc: two");
    let told = other.value("dc=two", "entryCSN").expect("a CSN");
    until("the consumer has heard of that", || {
        let mut connection = Client::connect(follower.address);
        ask(&mut connection, ADMIN);
        connection.value("dc=example,dc=com", "contextCSN").as_ref() == Some(&told)
    });
    succeeds(
        &mut config,
        &format!(
            "add \"olcOverlay=accesslog,{overlay}\"\nobjectClass: olcOverlayConfig\n\
             objectClass: olcAccessLogConfig\nolcOverlay: accesslog\nolcAccessLogDB: cn=log\n\
             olcAccessLogOps: writes\nolcAccessLogSuccess: TRUE"
        ),
    );
    wait_until_alike(&mut connection, &follower, "with the overlay again");
    succeeds(&mut connection, "modify dc=example,dc=com\nreplace description: back");
    wait_until_alike(&mut connection, &follower, "behind it");
    assert!(follower.stop() && source.stop());
}

/// Each comes with the contextCSN of its own database. That of the first one is behind the second one's, which the log does not reach.
#[test]
fn consumers_of_all_databases_of_a_log_are_let_in() {
    const SUFFIXES: [&str; 2] = ["dc=example,dc=com", "dc=two"];
    let database = |(number, suffix): (usize, &&str)| {
        format!(
            "database mdb\nsuffix {suffix}\ndirectory @DATA@/{number}\noverlay syncprov\noverlay accesslog\n\
             logdb cn=log\nlogops writes\nlogsuccess TRUE\nrootdn cn=admin,{suffix}\nrootpw secret\n"
        )
    };
    let databases: String = SUFFIXES.iter().enumerate().map(database).collect();
    let log = "database mdb\nsuffix cn=log\nrootdn cn=log\ndirectory @DATA@/log\noverlay syncprov\n";
    let site = Site::new(Kind::Larix, &format!("serverID 1\n{log}{databases}"));
    for (number, suffix) in SUFFIXES.iter().enumerate() {
        let file = site.path().join("load.ldif");
        let name = suffix.trim_start_matches("dc=").split(',').next().unwrap();
        let csn = format!("20260101000000.00000{number}Z#000000#001#000000");
        let entry = format!("dn: {suffix}\nobjectClass: domain\ndc: {name}\nentryCSN: {csn}\n");
        std::fs::write(&file, entry).unwrap();
        let mut add = Kind::Larix.tool("add");
        // -w: the contextCSN is that of the entry.
        add.args(["-w", "-b", suffix, "-f"]).arg(site.configuration()).arg("-l").arg(&file);
        assert!(add.output().unwrap().status.success());
    }
    let server = site.start().unwrap();
    for suffix in SUFFIXES {
        until("it is let in", || {
            let shown = SyncSearch {
                base: suffix,
                scope: Scope::Base,
                attributes: &["contextCSN"],
                ..SyncSearch::default()
            };
            let shown = read(server.address, &shown).expect("the entry");
            let csn = String::from_utf8_lossy(shown[suffix]["contextcsn"].first().expect("one")).into_owned();
            let mut consumer = Consumer::default();
            consumer.cookie = Some(format!("rid=001,csn={csn}"));
            consumer.ask(server.address, &SyncSearch { base: "cn=log", ..SyncSearch::default() });
            consumer.refresh().is_none()
        });
    }
    assert!(server.stop());
}

/// A member merges changes that are older than the version that it has, and the entryCSN stays as it is. Who follows a part of the entries
/// receives what comes into that part, or gets another name there, though it knows the CSN.
#[test]
fn what_older_changes_bring_into_a_part_arrives() {
    let mut members = members(2, Merging::Records);
    members[0].site.load_into(Some(SUFFIX), &people(4));
    members.iter_mut().for_each(Member::start);
    members[1].wait_until_like(&members[0]);
    let filter = "(|(objectClass=organizationalUnit)(objectClass=organization)(title=wanted))";
    let line = format!(
        "syncrepl rid=001 provider={} searchbase={SUFFIX} filter=\"{filter}\" bindmethod=simple binddn={ROOT} \
         credentials=secret type=refreshAndPersist retry=\"1 +\"",
        members[0].url()
    );
    let mut part = Member::new(Kind::Larix, "", &line).started();
    part.wait_for("the containers", |content| content.len() == 3);
    // Those of the second round come while the part is away.
    for (comes, moves, is_away) in [("u0", "u1", false), ("u2", "u3", true)] {
        let person = |name: &str| format!("uid={name},ou=people,{SUFFIX}");
        let moved = format!("uid={moves},ou=groups,{SUFFIX}");
        members[0].stop();
        members[1].change(&format!(
            "modify {}\nadd title: wanted\n\nmodrdn {} uid={moves} keep ou=groups,{SUFFIX}",
            person(comes),
            person(moves)
        ));
        members[1].stop();
        members[0].start();
        members[0].change(&format!(
            "modify {}\nadd initials: l\n\nmodify {}\nadd title: wanted",
            person(comes),
            person(moves)
        ));
        part.wait_for("the one that moves", |content| content.contains_key(&person(moves)));
        if is_away {
            part.stop();
        }
        members[1].start();
        let is_titled = |name: &str| {
            let dn = person(name);
            move |content: &Content| content.get(&dn).is_some_and(|entry| entry.contains_key("title"))
        };
        let (titled, is_moved) = (is_titled(comes), |content: &Content| content.contains_key(&moved));
        members[0].wait_for("what was merged", |content| titled(content) && is_moved(content));
        if is_away {
            part.start();
        }
        part.wait_for("what was merged", |content| {
            titled(content) && is_moved(content) && !content.contains_key(&person(moves))
        });
    }
}

/// A member that follows the logs of the others, which are reached at these addresses.
fn mixed(kind: Kind, number: usize, port: u16, others: &[(usize, String)]) -> Member {
    let lines: String = others
        .iter()
        .map(|(other, address)| {
            format!(
                "syncrepl rid={:03} provider=ldap://{address} bindmethod=simple binddn={ROOT} credentials=secret \
                 searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\" logbase={LOG} \
                 logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\" syncdata=accesslog\n",
                other + 1
            )
        })
        .collect();
    let id = number + 1;
    let global = format!(
        "serverID {id}\ndatabase mdb\nsuffix {LOG}\nrootdn {ROOT}\ndirectory @DATA@/changes\n\
         index objectClass,entryUUID,entryCSN,reqStart,reqDN eq\nlimits users size=unlimited\n\
         overlay syncprov\nsyncprov-nopresent TRUE\nsyncprov-reloadhint TRUE"
    );
    let database = format!(
        "{lines}mirrormode on\noverlay syncprov\noverlay accesslog\nlogdb {LOG}\nlogops writes\nlogsuccess TRUE"
    );
    Member::at(kind, port, &global, &database).arguments(&["-d", "16384"])
}

/// A slapd carries out another server's change on the entry that has the name by then, and logs it of that entry. The
/// Larix servers take such a change from the server that made it.
#[test]
fn what_a_slapd_did_to_another_entry_is_not_taken_from_it() {
    for change in ["modify @\nreplace title: other", "delete @", "modrdn @ uid=other delete"] {
        let ports = free_ports(3);
        // The first one hears the second one by it, and the second one the two others.
        let relays = [Relay::start(), Relay::start(), Relay::start()];
        for (relay, port) in relays.iter().zip([ports[1], ports[0], ports[2]]) {
            relay.lead_to(([127, 0, 0, 1], port).into());
        }
        let [by_first, first, slapd] = relays.each_ref().map(|relay| relay.address.to_string());
        let direct = |number: usize| (number, format!("127.0.0.1:{}", ports[number]));
        let mut members = [
            mixed(Kind::Larix, 0, ports[0], &[(1, by_first), direct(2)]),
            mixed(Kind::Larix, 1, ports[1], &[(0, first), (2, slapd)]),
            mixed(Kind::Slapd, 2, ports[2], &[direct(0), direct(1)]),
        ];
        members.iter_mut().for_each(Member::start);
        let [one, two, slapd] = &members;
        let dn = |name: &str| format!("uid={name},ou=people,{SUFFIX}");
        one.change(&format!(
            "add {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
             add ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people"
        ));
        for name in ["u0", "u1"] {
            one.change(&format!(
                "add {}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: s",
                dn(name)
            ));
        }
        let titled =
            |content: &Content| content.get(&dn("u1")).is_some_and(|entry| entry.contains_key("title"));
        slapd.wait_for("the people", |content| content.contains_key(&dn("u1")));
        two.wait_for("the people", |content| content.contains_key(&dn("u1")));
        two.change(&format!("modify {}\nadd title: first", dn("u1")));
        [one, slapd].iter().for_each(|member| member.wait_for("a title", titled));
        one.wait_for_log("syncrepl rid=002: the refresh is complete");
        relays.iter().for_each(|relay| relay.set(Passage::Silent));
        let (gone, comes) = (dn("u0"), dn("u1"));
        slapd.change(&format!("delete {gone}\n\nmodrdn {comes} uid=u0 delete"));
        one.wait_for("the new name", |content| !content.contains_key(&comes));
        let mine = |content: &Content| {
            let title = content.get(&gone).and_then(|entry| entry.get("title"));
            title.is_some_and(|values| *values == [b"first".to_vec()])
        };
        two.change(&change.replace('@', &gone));
        slapd.wait_for("the change of another entry", |content| !mine(content));
        slapd.change(&format!("modify {SUFFIX}\nreplace description: later"));
        one.wait_for("a later change", |content| content[SUFFIX].contains_key("description"));
        relays.iter().for_each(|relay| relay.set(Passage::Open));
        two.wait_for("a later change", |content| content[SUFFIX].contains_key("description"));
        two.wait_until_like(one);
        one.wait_for("the entry as it was", mine);
    }
}
