//! The configuration is changed at random while the server is read and written: nobody notices but those whose change it
//! is, and what is in force is what is on disk, after `kill -9`, too.
//!
//! `LARIX_CONFIG_CHANGES` says how many changes (default 80; 10,000 is the long run), `LARIX_SEED` which. Phases with
//! changes and phases of the same load without them (`LARIX_QUIET_SECONDS` in all, default 1) take turns; the slowest
//! requests of both are printed, reads and writes apart, and nothing is asserted of them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larix_load::generate::Random;
use larix_testkit::{Kind, Server, SetAtEnd, Site};
use larix_tests::client::{Client, run as ask};

const ADMIN: &str = "cn=admin,dc=example,dc=com";
const PEOPLE: &str = "ou=people,dc=example,dc=com";
const ENTRIES: usize = 200;
const READERS: usize = 2;
const WRITERS: usize = 2;
const CHANGES_IN_A_PHASE: u64 = 1_000;
const MDB: &str = "olcDatabase={1}mdb,cn=config";
const MINE: &str = "cn={4}mine,cn=schema,cn=config";

fn bound(address: SocketAddr, dn: &str) -> Client {
    let mut connection = Client::connect(address);
    assert_eq!(ask(&mut connection, &format!("as {dn} secret\n")), "=> 0\n");
    connection
}

/// A site with entries, and its slapd.d.
fn site() -> (Site, std::path::PathBuf) {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "database config\nrootpw secret\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\n\
             directory @DATA@\nindex objectClass,uid eq\n"
        ),
    );
    let mut ldif = format!(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
         dn: {PEOPLE}\nobjectClass: organizationalUnit\nou: people\n\n"
    );
    for number in 0..ENTRIES {
        ldif += &format!(
            "dn: uid={number},{PEOPLE}\nobjectClass: inetOrgPerson\nuid: {number}\ncn: c\nsn: s\n\n"
        );
    }
    site.load(&ldif);
    let directory = site.path().join("slapd.d");
    std::fs::create_dir(&directory).unwrap();
    let mut convert = Kind::Larix.tool("test");
    let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (site, directory)
}

/// What the changes made so far come to.
#[derive(Debug, Default)]
struct Model {
    rules: usize,
    types: usize,
    /// Types given out so far: no OID is used for two.
    given: usize,
    extra: bool,
    overlay: bool,
    index: bool,
}

fn modify(dn: &str, change: &str) -> String {
    format!("modify \"{dn}\"\n{change}\n")
}

fn valid(random: &mut Random, model: &mut Model, folder: &Path) -> String {
    match random.below(12) {
        0 => modify(
            "cn=config",
            ["replace olcLogLevel: none", "replace olcLogLevel: stats"][random.below(2) as usize],
        ),
        1 => modify("cn=config", &format!("replace olcIdleTimeout: {}", 600 + random.below(100))),
        2 => modify(MDB, &format!("replace olcSizeLimit: {}", 500 + random.below(100))),
        3 if model.rules > 3 => {
            model.rules -= 1;
            modify(MDB, "delete olcAccess: {0}")
        }
        3 | 4 => {
            model.rules += 1;
            // Said anew for everybody: what is above or below makes no difference.
            modify(
                MDB,
                &format!("add olcAccess: {{0}}to dn.base=\"cn={},dc=example,dc=com\" by * read", model.rules),
            )
        }
        5 if model.types > 4 => {
            model.types -= 1;
            modify(MINE, &format!("delete olcAttributeTypes: {{{}}}", model.types))
        }
        5 | 6 => {
            model.given += 1;
            model.types += 1;
            let number = model.given;
            modify(
                MINE,
                &format!(
                    "add olcAttributeTypes: ( 1.3.6.1.4.1.4203.666.11.999.{number} NAME 'mine{number}' SUP name )"
                ),
            )
        }
        7 | 8 if model.extra => {
            model.extra = false;
            "delete \"olcDatabase={2}mdb,cn=config\"\n".to_owned()
        }
        7 | 8 => {
            model.extra = true;
            format!(
                "add \"olcDatabase=mdb,cn=config\"\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\n\
                 olcDatabase: mdb\nolcSuffix: dc=extra,dc=com\nolcDbDirectory: {}\n",
                folder.join("extra").display()
            )
        }
        9 if model.overlay => {
            model.overlay = false;
            format!("delete \"olcOverlay={{0}}ppolicy,{MDB}\"\n")
        }
        9 => {
            model.overlay = true;
            format!(
                "add \"olcOverlay=ppolicy,{MDB}\"\nobjectClass: olcOverlayConfig\nobjectClass: olcPPolicyConfig\n\
                 olcOverlay: ppolicy\n"
            )
        }
        10 if model.index => {
            model.index = false;
            modify(MDB, "delete olcDbIndex: sn eq")
        }
        10 => {
            model.index = true;
            modify(MDB, "add olcDbIndex: sn eq")
        }
        _ => modify("olcDatabase={-1}frontend,cn=config", "replace olcPasswordHash: {SSHA}"),
    }
}

fn invalid(random: &mut Random) -> String {
    match random.below(7) {
        0 => modify(MDB, "add olcAccess: to nonsense"),
        1 => modify(MDB, "add olcNothing: 1"),
        2 => modify(MDB, "replace olcDbDirectory: /nonexistent/nowhere"),
        // Entries have it.
        3 => modify("cn={2}inetorgperson,cn=schema,cn=config", "delete olcObjectClasses: {0}"),
        4 => modify("cn=config", "replace olcLarixHttpListener: http://192.0.2.1:1"),
        5 => modify("cn={9}none,cn=schema,cn=config", "add olcAttributeTypes: x"),
        _ => modify("cn=config", "add olcTLSCertificateFile: /nonexistent/certificate"),
    }
}

/// Reads or writes until it is over; every answer is the one that it has to be.
#[expect(clippy::disallowed_methods, reason = "the figures are what it is about")]
fn load(address: SocketAddr, seed: u64, writes: bool, is_over: &AtomicBool, durations: &Mutex<Requests>) {
    let mut random = Random::new(seed);
    let mut connection = bound(address, ADMIN);
    while !is_over.load(Ordering::Relaxed) {
        let dn = format!("uid={},{PEOPLE}", random.below(ENTRIES as u64));
        let request = if writes {
            modify(&dn, &format!("replace description: {}", random.alphanumeric(20)))
        } else {
            format!("search \"{PEOPLE}\" sub ({})\n", dn.split(',').next().unwrap())
        };
        let begin = Instant::now();
        let answer = ask(&mut connection, &request);
        let elapsed = begin.elapsed();
        let mut durations = durations.lock().unwrap();
        if writes {
            durations.writes.push(elapsed)
        } else {
            durations.reads.push(elapsed)
        }
        drop(durations);
        assert!(answer.ends_with("=> 0\n") && (writes || answer.contains(&dn)), "{request}{answer}");
    }
}

/// Runs `work` beside the load, and gives how long its requests took.
fn beside_load(server: &Server, work: impl FnOnce()) -> Requests {
    let (is_over, durations) = (AtomicBool::new(false), Mutex::new(Requests::default()));
    thread::scope(|scope| {
        for number in 0..READERS + WRITERS {
            let (is_over, durations) = (&is_over, &durations);
            let address = server.address;
            scope.spawn(move || load(address, number as u64, number < WRITERS, is_over, durations));
        }
        let _end = SetAtEnd(&is_over);
        work();
    });
    durations.into_inner().unwrap()
}

/// How long requests took.
#[derive(Default)]
struct Requests {
    reads: Vec<Duration>,
    writes: Vec<Duration>,
}

impl Requests {
    fn extend(&mut self, more: Self) {
        self.reads.extend(more.reads);
        self.writes.extend(more.writes);
    }

    fn all(&self) -> Vec<Duration> {
        [self.reads.as_slice(), &self.writes].concat()
    }
}

/// Requests of one kind of phase.
#[derive(Default)]
struct Taken {
    requests: Requests,
    seconds: f64,
}

/// Microseconds: in the middle, what one of a thousand is slower than, the longest.
struct Slowness {
    p50: u128,
    p999: u128,
    longest: u128,
}

impl Slowness {
    fn of(mut requests: Vec<Duration>) -> Self {
        requests.sort_unstable();
        let at = |part: usize| requests.get(requests.len() * part / 1000).map_or(0, Duration::as_micros);
        Self { p50: at(500), p999: at(999), longest: requests.last().map_or(0, Duration::as_micros) }
    }
}

/// The load's requests beside changes and without, in phases that take turns: what the machine does besides meets both.
#[expect(clippy::disallowed_methods, reason = "the figures are what it is about")]
fn in_turns(
    server: &Server,
    changes: u64,
    quiet_seconds: u64,
    mut change: impl FnMut(u64),
) -> (Taken, Taken) {
    let (mut beside, mut alone) = (Taken::default(), Taken::default());
    let phases = changes.div_ceil(CHANGES_IN_A_PHASE).max(1);
    for phase in 0..phases {
        let begin = Instant::now();
        beside.requests.extend(beside_load(server, || {
            let from = phase * CHANGES_IN_A_PHASE;
            (from..changes.min(from + CHANGES_IN_A_PHASE)).for_each(&mut change);
        }));
        beside.seconds += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let quiet = Duration::from_secs(quiet_seconds).div_f64(phases as f64);
        alone.requests.extend(beside_load(server, || thread::park_timeout(quiet)));
        alone.seconds += begin.elapsed().as_secs_f64();
    }
    (beside, alone)
}

fn show(changes: u64, beside: &Taken, alone: &Taken) {
    println!("{changes} changes, {:.0}/s; beside them, and without, in us", changes as f64 / beside.seconds);
    let (with, without) = (&beside.requests, &alone.requests);
    let kinds = [
        ("all", with.all(), without.all()),
        ("reads", with.reads.clone(), without.reads.clone()),
        ("writes", with.writes.clone(), without.writes.clone()),
    ];
    for (kind, with, without) in kinds {
        let numbers = (with.len(), without.len());
        let (with, without) = (Slowness::of(with), Slowness::of(without));
        println!(
            "{kind}: p99.9 {} and {}, ratio {:.2}; p50 {} and {}; longest {} and {}; {} and {} requests",
            with.p999,
            without.p999,
            with.p999 as f64 / without.p999.max(1) as f64,
            with.p50,
            without.p50,
            with.longest,
            without.longest,
            numbers.0,
            numbers.1,
        );
    }
}

/// All of cn=config, as LDAP tells it.
fn whole(server: &Server) -> String {
    ask(&mut bound(server.address, "cn=config"), "search \"cn=config\" sub (objectClass=*) * entryUUID\n")
}

#[test]
fn random_changes_under_load_disturb_nobody() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let changes = number("LARIX_CONFIG_CHANGES").unwrap_or(80);
    let seed = number("LARIX_SEED").unwrap_or(1);
    println!("seed {seed}, {changes} changes");
    let (site, directory) = site();
    std::fs::create_dir(site.path().join("extra")).unwrap();
    let server = Server::start(Kind::Larix, &directory).unwrap_or_else(|error| panic!("{error}"));
    let mut administrator = bound(server.address, "cn=config");
    let section = "add \"cn=mine,cn=schema,cn=config\"\nobjectClass: olcSchemaConfig\ncn: mine\n";
    assert_eq!(ask(&mut administrator, section), "=> 0\n");
    let mut random = Random::new(seed);
    let mut model = Model::default();
    let quiet_seconds = number("LARIX_QUIET_SECONDS").unwrap_or(1);
    let (beside, alone) = in_turns(&server, changes, quiet_seconds, |_| {
        let fails = random.below(4) == 0;
        let request = match fails {
            true => invalid(&mut random),
            false => valid(&mut random, &mut model, site.path()),
        };
        let answer = ask(&mut administrator, &request);
        assert_eq!(answer != "=> 0\n", fails, "{request}{answer}");
    });
    show(changes, &beside, &alone);
    let before = whole(&server);
    server.kill();
    let server = Server::start(Kind::Larix, &directory).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(whole(&server), before, "what was in force is not what is on disk");
}

#[test]
fn what_a_database_holds_is_there_again_when_it_comes_back() {
    let (site, directory) = site();
    std::fs::create_dir(site.path().join("extra")).unwrap();
    let server = Server::start(Kind::Larix, &directory).unwrap_or_else(|error| panic!("{error}"));
    let mut administrator = bound(server.address, "cn=config");
    let add = format!(
        "add \"olcDatabase=mdb,cn=config\"\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\n\
         olcDatabase: mdb\nolcSuffix: dc=extra,dc=com\nolcRootDN: cn=admin,dc=extra,dc=com\nolcRootPW: secret\n\
         olcDbDirectory: {}\n",
        site.path().join("extra").display()
    );
    let read = "search \"dc=extra,dc=com\" base (objectClass=*) dc\n";
    let there = "-> dc=extra,dc=com\n   dc: extra\n=> 0\n";
    assert_eq!(ask(&mut administrator, &add), "=> 0\n");
    let mut owner = bound(server.address, "cn=admin,dc=extra,dc=com");
    assert_eq!(ask(&mut owner, "add \"dc=extra,dc=com\"\nobjectClass: domain\ndc: extra\n"), "=> 0\n");
    assert_eq!(ask(&mut owner, read), there);
    for _ in 0..3 {
        assert_eq!(ask(&mut administrator, "delete \"olcDatabase={2}mdb,cn=config\"\n"), "=> 0\n");
        assert_eq!(ask(&mut owner, read), "=> 32\n");
        assert_eq!(ask(&mut administrator, &add), "=> 0\n");
        assert_eq!(ask(&mut owner, read), there);
    }
}

/// As behind a mount that is gone: a restart would find one file of a configuration.
#[test]
fn a_change_does_not_go_to_a_directory_that_holds_no_configuration() {
    let (_site, directory) = site();
    let server = Server::start(Kind::Larix, &directory).unwrap_or_else(|error| panic!("{error}"));
    let mut administrator = bound(server.address, "cn=config");
    let away = directory.with_extension("away");
    let change = |limit: u32| modify(MDB, &format!("replace olcSizeLimit: {limit}"));
    assert_eq!(ask(&mut administrator, &change(501)), "=> 0\n");
    for (is_empty_one_there, limit) in [(false, 510), (true, 520)] {
        std::fs::rename(&directory, &away).unwrap();
        if is_empty_one_there {
            std::fs::create_dir(&directory).unwrap();
        }
        let before = whole(&server);
        let answer = ask(&mut administrator, &change(limit));
        assert!(
            answer.starts_with("=> 80") && answer.contains("cn=config.ldif` is not there any more"),
            "{answer}"
        );
        assert_eq!(whole(&server), before);
        assert_eq!(directory.exists(), is_empty_one_there);
        if is_empty_one_there {
            // It is as empty as it was.
            std::fs::remove_dir(&directory).unwrap();
        }
        std::fs::rename(&away, &directory).unwrap();
        assert_eq!(ask(&mut administrator, &change(limit + 1)), "=> 0\n");
    }
}
