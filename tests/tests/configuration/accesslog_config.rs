//! The access log of cn=config: its records are those that slapd writes, what a crash kept from being recorded is recorded
//! at the next start, and a consumer of the configuration can follow them.

use std::path::PathBuf;

use larix_testkit::{Kind, Server, Site, until};
use larix_tests::client::Client;
use larix_tests::replicas::ask;

const LOG_DATABASE: &str = "database mdb\nsuffix cn=log\nrootdn cn=config\ndirectory @DATA@/log\nlimits * size=unlimited\n\
                            index reqStart,reqResult,objectClass,entryCSN,entryUUID eq\noverlay syncprov\n\
                            syncprov-nopresent TRUE\nsyncprov-reloadhint TRUE\n";

/// A configuration that is kept in a directory and recorded in cn=log.
struct Recorded {
    kind: Kind,
    site: Site,
    directory: PathBuf,
}

impl Recorded {
    fn new(kind: Kind, overlay: &str) -> Self {
        let modules = if kind == Kind::Slapd {
            "moduleload back_null\nmoduleload syncprov\nmoduleload accesslog\n"
        } else {
            ""
        };
        let body = format!(
            "{modules}serverID 1\ndatabase config\nrootpw secret\noverlay syncprov\noverlay accesslog\nlogdb cn=log\n\
             {overlay}{LOG_DATABASE}database null\nsuffix cn=null\n"
        );
        Self::with(kind, &body)
    }

    fn with(kind: Kind, body: &str) -> Self {
        let site = Site::new(kind, body);
        let directory = site.path().join("slapd.d");
        std::fs::create_dir(&directory).expect("a folder");
        let mut convert = kind.tool("test");
        let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&directory).output();
        let output = output.expect("the tool starts");
        let is_there = directory.join("cn=config.ldif").exists();
        assert!(is_there, "{}", String::from_utf8_lossy(&output.stderr));
        Self { kind, site, directory }
    }

    fn start(&self) -> Server {
        Server::start(self.kind, &self.directory).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn root(server: &Server) -> Client {
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, "as cn=config secret"), "=> 0\n");
    client
}

fn succeeds(client: &mut Client, request: &str) {
    let answer = ask(client, request);
    assert!(answer.starts_with("=> 0"), "{request}: {answer}");
}

/// The log's records in their order, of each the lines that tell of the change and do not differ from run to run.
fn records(client: &mut Client) -> Vec<String> {
    let answer = ask(client, "search cn=log one (objectClass=*) * inorder");
    let mut records: Vec<String> = Vec::new();
    for line in answer.lines() {
        let prefixes =
            ["reqType:", "reqDN:", "reqResult:", "reqMod:", "reqAuthzID:", "reqNewRDN:", "reqDeleteOldRDN:"];
        match line.trim_start() {
            _ if line.starts_with("-> ") => records.push(String::new()),
            text if prefixes.iter().any(|name| text.starts_with(name)) => {
                // A UUID may begin as a year does.
                let volatile = ["entryUUID:+ ", "entryUUID:= ", ":+ 20", ":= 20"];
                let cut = volatile.iter().find_map(|part| text.find(part).map(|at| at + part.len() - 2));
                let record = records.last_mut().expect("an entry");
                *record += &text[..cut.unwrap_or(text.len())];
                record.push('\n');
            }
            _ => {}
        }
    }
    records
}

const OPERATIONS: [&str; 8] = [
    "modify cn=config\nreplace olcIdleTimeout: 100",
    "add cn=mine,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: mine\n\
     olcAttributeTypes: ( 1.1.1 NAME 'mineOne' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )",
    "modify \"cn={4}mine,cn=schema,cn=config\"\n\
     add olcAttributeTypes: ( 1.1.2 NAME 'mineTwo' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )",
    "modify \"olcDatabase={0}config,cn=config\"\nadd olcAccess: to * by dn.exact=cn=reader read",
    "add olcDatabase=null,cn=config\nobjectClass: olcDatabaseConfig\nobjectClass: olcNullConfig\nolcDatabase: null\n\
     olcSuffix: cn=other",
    "modify \"olcDatabase={3}null,cn=config\"\nreplace olcReadOnly: TRUE\nreplace olcSizeLimit: 10",
    "modify cn=config\nreplace olcIdleTimeout: 300",
    "delete cn=nobody,cn=config",
];

fn recorded(kind: Kind) -> Vec<String> {
    let site = Recorded::new(kind, "logops writes\n");
    let server = site.start();
    let mut client = root(&server);
    OPERATIONS.iter().for_each(|operation| {
        ask(&mut client, operation);
    });
    let records = records(&mut client);
    assert!(server.stop());
    records
}

/// A record without what the two say in other words: slapd has the request as it came, Larix what became of the values
/// that have a place.
fn alike(record: &str) -> String {
    let is_alike = |line: &&str| {
        let placed = line.contains("olcAccess:") || line.contains("olcAttributeTypes:");
        !placed
    };
    // slapd has the name that was asked for, Larix the one that the entry got.
    let unnumbered = |line: &str| match line.strip_prefix("reqDN: ").and_then(|dn| dn.split_once('{')) {
        Some((before, rest)) => {
            format!("reqDN: {before}{}", rest.split_once('}').map_or(rest, |(_, rest)| rest))
        }
        None => line.to_owned(),
    };
    record.lines().filter(is_alike).map(unnumbered).collect::<Vec<_>>().join("\n")
}

#[test]
fn records_are_those_of_slapd() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let (ours, theirs) = (recorded(Kind::Larix), recorded(Kind::Slapd));
    println!("OURS\n{}\nTHEIRS\n{}", ours.join("--\n"), theirs.join("--\n"));
    let all = |records: &[String]| records.iter().map(|record| alike(record)).collect::<Vec<_>>();
    assert_eq!(all(&ours), all(&theirs));
    // One for each, the last of which fails.
    assert!(ours.len() >= OPERATIONS.len() - 1, "{ours:?}");
}

#[test]
fn what_was_not_recorded_is_found_at_the_next_start() {
    let recorded = Recorded::new(Kind::Larix, "logops writes\n");
    let log = recorded.site.path().join("data/log");
    let before = recorded.site.path().join("log-before");
    let server = recorded.start();
    let mut client = root(&server);
    succeeds(&mut client, "modify cn=config\nreplace olcIdleTimeout: 100");
    assert_eq!(records(&mut client).len(), 1);
    assert!(server.stop());
    // The log's database as it would be had the server been killed right behind its answers.
    let copied = std::process::Command::new("cp").arg("-r").args([&log, &before]).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let server = recorded.start();
    let mut client = root(&server);
    for change in [
        "modify cn=config\nreplace olcIdleTimeout: 200\nreplace olcSizeLimit: 7",
        "add olcDatabase=null,cn=config\nobjectClass: olcDatabaseConfig\nolcDatabase: null\nolcSuffix: cn=other",
        "delete \"olcDatabase={2}null,cn=config\"",
    ] {
        succeeds(&mut client, change);
    }
    let live = records(&mut client);
    assert_eq!(live.len(), 4, "{live:?}");
    assert!(server.stop());
    std::fs::remove_dir_all(&log).expect("the log's folder");
    std::fs::rename(&before, &log).expect("the log's folder");
    let server = recorded.start();
    let mut client = root(&server);
    // The search waits for nothing: these changes were answered by the server before.
    let mut found = Vec::new();
    until("all are recorded", || {
        found = records(&mut client);
        found.len() >= 4
    });
    let count =
        |records: &[String], text: &str| records.iter().filter(|record| record.contains(text)).count();
    for text in ["reqMod: olcSizeLimit:= 7\n", "reqMod: olcSuffix:+ cn=other\n", "reqType: delete\n"] {
        assert_eq!(count(&found, text), 1, "{text} {found:?}");
    }
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(server.stop());
    // Nothing is recorded twice.
    let server = recorded.start();
    let mut client = root(&server);
    succeeds(&mut client, "modify cn=config\nreplace olcIdleTimeout: 300");
    assert_eq!(records(&mut client).len(), 5);
    assert!(server.stop());
}

#[test]
fn a_consumer_of_the_configuration_follows_its_log() {
    let provider = Recorded::new(Kind::Larix, "logops writes\nlogsuccess TRUE\n");
    let source = provider.start();
    let port = source.address.port();
    let consumer = Recorded::with(
        Kind::Larix,
        &format!(
            "database config\nrootpw secret\nsyncrepl rid=001 provider=ldap://127.0.0.1:{port} \
             searchbase=\"cn=schema,cn=config\" type=refreshAndPersist retry=\"1 +\" bindmethod=simple \
             binddn=cn=config credentials=secret syncdata=accesslog logbase=cn=log \
             logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0)(reqDN:dnSubtreeMatch:=cn=schema,cn=config))\"\n\
             database null\nsuffix cn=null\n"
        ),
    );
    let follower = Server::start_with(Kind::Larix, &consumer.directory, &["-d", "16384"], &[]);
    let follower = follower.unwrap_or_else(|error| panic!("{error}"));
    let mut client = root(&source);
    let has = |text: &str| {
        let mut client = root(&follower);
        ask(&mut client, "search cn=schema,cn=config sub (cn=*mine) olcAttributeTypes").contains(text)
    };
    let kind = |number: u8, name: &str| {
        format!("( 1.1.{number} NAME '{name}' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )")
    };
    let section = "\"cn={4}mine,cn=schema,cn=config\"";
    succeeds(
        &mut client,
        &format!(
            "add cn=mine,cn=schema,cn=config\nobjectClass: olcSchemaConfig\ncn: mine\nolcAttributeTypes: {}",
            kind(1, "mineOne")
        ),
    );
    until("the first content", || has("mineOne"));
    // A session that has a cookie is one with the log.
    until("a session with the log", || follower.log().contains("sending cookie=rid=001,csn="));
    // Entries are no longer provided: what comes from now on comes out of the log.
    succeeds(&mut client, "delete \"olcOverlay={0}syncprov,olcDatabase={0}config,cn=config\"");
    succeeds(&mut client, &format!("modify {section}\nadd olcAttributeTypes: {}", kind(2, "mineTwo")));
    succeeds(&mut client, &format!("modify {section}\nadd olcAttributeTypes: {{0}}{}", kind(3, "mineThree")));
    until("a value more", || has("mineTwo") && has("{0}( 1.1.3"));
    succeeds(&mut client, &format!("modrdn {section} cn={{4}}ownmine delete"));
    until("another name", || {
        let mut client = root(&follower);
        ask(&mut client, "search cn=schema,cn=config sub (cn=*ownmine) 1.1").contains("{4}ownmine")
    });
    succeeds(&mut client, "delete \"cn={4}ownmine,cn=schema,cn=config\"");
    until("it gone", || !has("mineOne"));
    assert!(!follower.log().contains("the entries themselves"), "{}", follower.log());
    assert!(follower.stop());
    assert!(source.stop());
}
