//! `larix replica`: servers that hold the same are found equal, and what differs is named.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use larix_proto::Scope;
use larix_testkit::{Kind, Server, Site};
use larix_tests::replicas::{ADMIN, LOG, Member, Merging, SUFFIX, members, people};
use larix_tests::sync::{SyncSearch, read};

const ENTRIES: u32 = 10_000;
/// How often something is looked at until it is so, with [`BETWEEN`] between.
const LOOKS: u32 = 3_600;
const BETWEEN: Duration = Duration::from_millis(50);

fn configuration(kind: Kind) -> String {
    let module = if kind == Kind::Slapd { "moduleload syncprov\n" } else { "" };
    format!("{module}{DATABASE}")
}

const DATABASE: &str = "database mdb\nsuffix o=u\nrootdn cn=admin,o=u\nrootpw secret\ndirectory @DATA@\nsizelimit unlimited\n\
     access to attrs=entryUUID by dn.exact=cn=p4,o=u none by * break\n\
     access to * by dn.exact=cn=p2,o=u manage by * read\n\
     overlay syncprov\n";

/// What `check` says last where it compared by searching without values.
const NO_VALUES: &str = "values were not compared: --values compares them, too\n";

/// An entry that is the same wherever it is loaded.
fn entry(number: u32, dn: &str, own: &str) -> String {
    format!(
        "dn: {dn}\n{own}entryUUID: 01900000-0000-7000-8000-{number:012}\n\
         entryCSN: 20260101000000.{number:06}Z#000000#001#000000\ncreatorsName: cn=admin,o=u\n\
         modifiersName: cn=admin,o=u\ncreateTimestamp: 20260101000000Z\n\
         modifyTimestamp: 20260101000000Z\n\n"
    )
}

/// Entries with entryUUIDs and CSNs of their own; one of them with the values of `change`.
fn ldif(change: Option<(u32, &str)>) -> String {
    let mut text = entry(1, "o=u", "objectClass: organization\nstructuralObjectClass: organization\no: u\n");
    for number in 2..=ENTRIES {
        let values = change.filter(|(changed, _)| *changed == number);
        let values = values.map_or("sn: s\nuserPassword: pw\n", |(_, values)| values);
        let own = format!("objectClass: person\nstructuralObjectClass: person\ncn: p{number}\n{values}");
        text.push_str(&entry(number, &format!("cn=p{number},o=u"), &own));
    }
    text
}

fn serve(kind: Kind, ldif: &str) -> (Site, Server) {
    let site = Site::new(kind, &configuration(kind));
    let file = site.path().join("load.ldif");
    std::fs::write(&file, ldif).expect("an LDIF file");
    // -w: the contextCSN is that of the entries.
    let loaded =
        kind.tool("add").args(["-q", "-w", "-f"]).arg(site.configuration()).arg("-l").arg(&file).output();
    assert!(loaded.expect("the tool starts").status.success());
    let server = site.start().expect("the server starts");
    (site, server)
}

fn url(server: &Server) -> String {
    format!("ldap://{}", server.address)
}

fn replica(words: &[&str], servers: &[&Server]) -> (Option<i32>, String) {
    replica_as("cn=admin,o=u", "secret", words, servers)
}

fn replica_as(dn: &str, password: &str, words: &[&str], servers: &[&Server]) -> (Option<i32>, String) {
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    let (name, rest) = words.split_first().expect("a command");
    command.args(["replica", name, "-x", "-D", dn, "-w", password]).args(rest);
    let output: Output = command.args(servers.iter().map(|s| url(s))).output().expect("larix runs");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[test]
fn one_value_among_ten_thousand_entries() {
    let (_here, here) = serve(Kind::Larix, &ldif(None));
    let (_same, same) = serve(Kind::Larix, &ldif(None));
    let (_there, there) = serve(Kind::Larix, &ldif(Some((4_711, "sn: other\nuserPassword: pw\n"))));
    let quick = ["check", "--settle", "0"];
    assert_eq!(replica(&quick, &[&here, &same]), (Some(0), "equal: 10000 entries\n".to_owned()));

    let (status, text) = replica(&["check", "--settle", "0", "--json"], &[&here, &there]);
    assert_eq!(status, Some(5), "{text}");
    for part in [
        "\"dn\":[\"cn=p4711,o=u\",\"cn=p4711,o=u\"]",
        "\"attributes\":[\"sn\"]",
        "\"different\":1",
        "\"questions\":2",
        "\"method\":\"digests\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, text) = replica(&["check", "--settle", "0", "--without", "SN"], &[&here, &there]);
    assert_eq!((status, text.as_str()), (Some(0), "equal: 10000 entries\n"));
    // What a search compares is the same.
    let (status, text) = replica(&["check", "--settle", "0", "--search"], &[&here, &there]);
    let equal = format!("equal in entryUUID, entryCSN and DN: 10000 entries\n{NO_VALUES}");
    assert_eq!((status, text), (Some(0), equal));
    // A second proof beside digests.
    let values = ["check", "--settle", "0", "--values"];
    let equal = "equal in entryUUID, entryCSN, DN and values: 10000 entries\n";
    assert_eq!(replica(&values, &[&here, &same]), (Some(0), equal.to_owned()));
    let (status, text) = replica(&values, &[&here, &there]);
    let expected = format!("sn: 1 value only at {}: \"other\"\n", url(&there));
    assert!(status == Some(5) && text.contains(&expected), "{status:?} {text}");
    // An identity that may not see entryUUIDs only learns that the entries differ.
    assert_eq!(replica_as("cn=p4,o=u", "pw", &values, &[&here, &same]), (Some(0), equal.to_owned()));
    let (status, text) = replica_as("cn=p4,o=u", "pw", &values, &[&here, &there]);
    let expected = "\n  entryUUID: none\n";
    assert!(
        status == Some(5) && text.contains(expected) && text.contains(": 1 of 10000"),
        "{status:?} {text}"
    );

    // Not everybody may ask.
    let (status, text) = replica_as("cn=p3,o=u", "pw", &quick, &[&here, &same]);
    assert_eq!(status, Some(50), "{text}");
    assert!(text.contains("the manage privilege") && text.contains("--search"), "{text}");
    let (status, text) = replica_as("cn=p2,o=u", "pw", &quick, &[&here, &same]);
    assert_eq!(status, Some(0), "{text}");

    let newest = "sid 001  20260101000000.010000Z#000000#001#000000  up to date";
    let (status, text) = replica(&["status", "--max-lag", "1"], &[&here, &there]);
    assert!(status == Some(0) && text.matches(newest).count() == 2, "{text}");
    let (status, text) = replica(&["retire", "-n", "1"], &[&here, &there]);
    assert!(status == Some(0) && text.matches("would be removed").count() == 2, "{text}");
    let (status, text) = replica(&["retire", "1"], &[&here, &there]);
    assert!(status == Some(0) && text.matches(": removed").count() == 2, "{text}");
    let (_, text) = replica(&["retire", "-n", "1"], &[&here, &there]);
    assert_eq!(text.matches("has none").count(), 2, "{text}");
    let (status, text) = replica(&["status"], &[&here, &same]);
    assert!(status == Some(0) && text.contains("knows no change of it"), "{text}");
}

/// A server with a database that another root administers or the same, glued below `o=u`, with a change of the server id 2.
fn glued(root: &str) -> (Site, Server) {
    let below =
        format!("database mdb\nsuffix cn=below,o=u\nrootdn {root}\ndirectory @DATA@-below\nsubordinate\n");
    let site = Site::new(Kind::Larix, &format!("{below}{DATABASE}"));
    let load = |suffix: &str, ldif: &str| {
        let file = site.path().join("load.ldif");
        std::fs::write(&file, ldif).expect("an LDIF file");
        let mut add = Kind::Larix.tool("add");
        add.args(["-q", "-w", "-b", suffix, "-f"]).arg(site.configuration()).arg("-l").arg(&file);
        let output = add.output().expect("the tool starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let organization = "objectClass: organization\nstructuralObjectClass: organization\no: u\n";
    load("o=u", &entry(1, "o=u", organization));
    let device = "objectClass: device\nstructuralObjectClass: device\ncn: below\n";
    load("cn=below,o=u", &entry(2, "cn=below,o=u", device).replace("#001#", "#002#"));
    let server = site.start().expect("the server starts");
    (site, server)
}

/// The contextCSN that is shown is that of all of them.
#[test]
fn a_server_is_retired_in_glued_databases_too() {
    let (_site, server) = glued("cn=admin,o=u");
    let (status, text) = replica(&["retire", "2"], &[&server]);
    assert!(status == Some(0) && text.contains(": removed"), "{text}");
    let (_, text) = replica(&["retire", "-n", "2"], &[&server]);
    assert!(text.contains("has none"), "{text}");
    let (_, text) = replica(&["retire", "-n", "1"], &[&server]);
    assert!(text.contains("would be removed"), "{text}");
}

/// Who manages the uppermost database alone takes nothing away from the others, and nothing at all.
#[test]
fn a_server_is_retired_by_who_manages_all_that_is_glued() {
    let (_site, server) = glued("cn=other,o=u");
    for id in ["2", "1"] {
        let (status, text) = replica(&["retire", id], &[&server]);
        assert!(status == Some(50) && text.contains("is glued below"), "{id}: {text}");
        let (_, text) = replica(&["retire", "-n", id], &[&server]);
        assert!(text.contains("would be removed"), "{id}: {text}");
    }
    // Nor does it learn what they hold.
    let (status, text) = replica(&["check", "--settle", "0"], &[&server, &server]);
    assert!(status == Some(50) && text.contains("is glued below"), "{text}");
}

/// A base that is on neither server, or on one of them; nothing is equal that was not compared.
#[test]
fn a_base_is_compared_where_it_is() {
    let more =
        entry(20_000, "cn=more,o=u", "objectClass: person\nstructuralObjectClass: person\ncn: more\nsn: s\n");
    let base = "dn: o=u\nobjectClass: organization\no: u\n\n";
    let (_one, one) = serve(Kind::Larix, &format!("{base}{more}"));
    let (_other, other) = serve(Kind::Larix, base);
    let check = |words: &[&str], status: i32, part: &str| {
        for servers in [[&one, &other], [&other, &one]] {
            let (found, text) = replica(&[&["check", "--settle", "0"][..], words].concat(), &servers);
            assert!(found == Some(status) && text.contains(part), "{words:?}: {found:?} {text}");
        }
    };
    for method in [&[][..], &["--search"], &["--values"], &["-M", "--values"]] {
        check(&[method, &["-b", "cn=none,o=u"]].concat(), 32, "matched DN: o=u");
        check(&[method, &["-b", "cn=more,o=u"]].concat(), 5, "1 of ");
        check(&[method, &["--limit", "0"]].concat(), 2, "a number from 1 on");
    }
}

/// One of the two has nothing below this name: the command says which.
#[test]
fn who_answered_is_named() {
    let (_full, full) = serve(Kind::Larix, &ldif(None));
    let empty_site = Site::new(Kind::Larix, &configuration(Kind::Larix));
    let empty = empty_site.start().expect("the server starts");
    for servers in [[&full, &empty], [&empty, &full]] {
        for words in
            [&["check", "-b", "o=u"][..], &["check", "-b", "o=u", "--search"], &["retire", "-b", "o=u", "1"]]
        {
            let (status, text) = replica(words, &servers);
            assert_eq!(status, Some(32), "{words:?}: {text}");
            assert!(text.starts_with(&format!("larix: {}: ", url(&empty))), "{words:?}: {text}");
            assert!(!text.contains(&url(&full)), "{words:?}: {text}");
            assert!(text.contains("has not got its entries yet"), "{words:?}: {text}");
        }
        let (status, text) = replica(&["status", "-b", "o=u"], &servers);
        assert_eq!(status, Some(5), "{text}");
        let expected = format!("{}\n  search: No such object (32)\n", url(&empty));
        assert!(text.contains(&expected), "{text}");
    }
    let (status, text) = replica_as("cn=admin,o=u", "wrong", &["check", "-b", "o=u"], &[&full, &empty]);
    assert_eq!(status, Some(49), "{text}");
    assert!(text.starts_with(&format!("larix: {}: ", url(&full))), "{text}");
}

/// Anonymous clients see nothing, as in a quick start: the answer says what to add.
#[test]
fn who_is_not_bound_learns_what_to_add() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix o=u\nrootdn cn=admin,o=u\nrootpw secret\ndirectory @DATA@\noverlay syncprov\n\
         access to * by users read\n",
    );
    site.load(&entry(1, "o=u", "objectClass: organization\nstructuralObjectClass: organization\no: u\n"));
    let server = site.start().expect("the server starts");
    for (words, code, status) in [
        (&["check", "-b", "o=u"][..], 50, 50),
        (&["check"], 50, 50),
        (&["check", "-b", "o=u", "--search"], 32, 32),
        (&["status", "-b", "o=u"], 32, 5),
    ] {
        let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
        command.arg("replica").args(words).args([url(&server), url(&server)]);
        let output = command.env_remove("LDAPBINDDN").output().expect("larix runs");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(text.contains(&format!("({code})")), "{words:?}: {text}");
        assert!(text.contains("add -D DN -W") && text.contains("-Y EXTERNAL"), "{words:?}: {text}");
        assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
    }
}

#[test]
fn beside_slapd_names_and_numbers_are_compared() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let (_here, here) = serve(Kind::Larix, &ldif(None));
    let (_there, there) = serve(Kind::Slapd, &ldif(None));
    let quick = ["check", "--settle", "0"];
    let (status, text) = replica(&quick, &[&here, &there]);
    let equal = format!("equal in entryUUID, entryCSN and DN: 10000 entries\n{NO_VALUES}");
    assert_eq!((status, text), (Some(0), equal));
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    let changes =
        "dn: cn=p77,o=u\nchangetype: modify\nreplace: sn\nsn: new\n\ndn: cn=p78,o=u\nchangetype: delete\n";
    let file = _here.path().join("changes.ldif");
    std::fs::write(&file, changes).expect("a file");
    let url = url(&there);
    command.args(["modify", "-x", "-D", "cn=admin,o=u", "-w", "secret", "-H", &url, "-f"]).arg(&file);
    assert!(command.output().expect("larix runs").status.success());
    let (status, text) = replica(&quick, &[&here, &there]);
    assert_eq!(status, Some(5), "{text}");
    for part in
        ["cn=p77,o=u\n", "cn=p78,o=u\n", "not there", "differ: modifytimestamp, sn", "2 of 10000 and 9999"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Under the entryUUID, entryCSN and DN of an entry a slapd has other values: nothing but reading them shows it.
#[test]
fn beside_slapd_values_are_compared_when_asked_for() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    let subentry = |description: &str| {
        let own = format!(
            "objectClass: subentry\nobjectClass: extensibleObject\nstructuralObjectClass: subentry\n\
             cn: sub\nsubtreeSpecification: {{}}\ndescription: {description}\n"
        );
        entry(ENTRIES + 1, "cn=sub,o=u", &own)
    };
    let (_here, here) = serve(Kind::Larix, &(ldif(None) + &subentry("one")));
    let (_same, same) = serve(Kind::Slapd, &(ldif(None) + &subentry("one")));
    let other = "sn: s\nsn: t\nuserPassword: hidden\n";
    let (_there, there) = serve(Kind::Slapd, &(ldif(Some((4_711, other))) + &subentry("two")));

    let (status, text) = replica(&["check", "--settle", "0"], &[&here, &there]);
    let equal = format!("equal in entryUUID, entryCSN and DN: 10000 entries\n{NO_VALUES}");
    assert_eq!((status, text), (Some(0), equal));

    let values = ["check", "--settle", "0", "--values"];
    let equal = "equal in entryUUID, entryCSN, DN and values: 10001 entries\n";
    assert_eq!(replica(&values, &[&here, &same]), (Some(0), equal.to_owned()));
    let (status, text) = replica(&values, &[&here, &there]);
    assert_eq!(status, Some(5), "{text}");
    let [one, two] = [url(&here), url(&there)];
    for part in [
        "cn=p4711,o=u\n".to_owned(),
        format!("  differ: sn, userpassword\n    sn: 1 value only at {two}: \"t\"\n"),
        format!("    userpassword: 1 value only at {one}\n    userpassword: 1 value only at {two}\n"),
        format!(
            "    description: 1 value only at {one}: \"one\"\n    description: 1 value only at {two}: \"two\"\n"
        ),
        "not equal in entryUUID, entryCSN, DN and values: 2 of 10001 and 10001 entries differ\n".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(!text.contains("hidden") && !text.contains("not compared"), "{text}");

    let (status, text) = replica(&["check", "--settle", "0", "--values", "--json"], &[&here, &there]);
    assert_eq!(status, Some(5), "{text}");
    for part in [
        "\"sn\":[{\"only\":0,\"shown\":[]},{\"only\":1,\"shown\":[\"t\"]}]",
        "\"userpassword\":[{\"only\":1,\"shown\":[]},{\"only\":1,\"shown\":[]}]",
        "\"method\":\"values\"",
        "\"different\":2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // What is left out has no part in it.
    let without = ["--without", "SN", "--without", "userPassword", "--without", "description"];
    assert_eq!(replica(&[&values[..], &without].concat(), &[&here, &there]), (Some(0), equal.to_owned()));
}

/// The contextCSN of a retired server is gone from content and access log alike, even if another server sends it, and stays so.
#[test]
fn a_server_that_is_retired_is_out_of_the_access_logs() {
    let mut members = members(3, Merging::Records);
    members[0].site.load_into(Some(SUFFIX), &people(3));
    members.iter_mut().for_each(Member::start);
    let change = |member: &Member, text: &str| {
        member.change(&format!("modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: {text}"));
    };
    let all_alike =
        |members: &[Member]| members[1..].iter().for_each(|member| member.wait_until_like(&members[0]));
    for (number, text) in ["first", "second", "third"].into_iter().enumerate() {
        members[2].wait_until_like(&members[0]);
        change(&members[number], text);
        all_alike(&members);
    }
    let contexts = |member: &Member, base: &str| {
        let request =
            SyncSearch { scope: Scope::Base, base, attributes: &["contextCSN"], ..SyncSearch::default() };
        let found = read(member.address(), &request).and_then(|entries| entries.into_values().next());
        let csns = found.expect("the base").remove("contextcsn").unwrap_or_default();
        csns.iter().map(|csn| String::from_utf8_lossy(csn).into_owned()).collect::<Vec<_>>()
    };
    let knows = |member: &Member, base: &str, id: &str| {
        contexts(member, base).iter().any(|csn| csn.contains(&format!("#{id}#")))
    };
    // The log follows the content.
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let mut looks = 0;
        while !is_so() {
            looks += 1;
            assert!(looks < LOOKS, "{what}");
            thread::park_timeout(BETWEEN);
        }
    };
    for member in &members[..2] {
        wait("the log has come as far", &|| knows(member, SUFFIX, "003") && knows(member, LOG, "003"));
    }
    members[2].stop();
    let urls = [members[0].url(), members[1].url()];
    let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
    command.args(["replica", "retire", "-x", "-D", ADMIN, "-w", "secret", "-b", SUFFIX, "3"]).args(urls);
    let output = command.output().expect("larix runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for round in 0..2 {
        for number in 0..2 {
            change(&members[number], &format!("round {round}.{number}"));
            members[1 - number].wait_until_like(&members[number]);
        }
        for member in &members[..2] {
            let is_out = |base| !knows(member, base, "003") && knows(member, base, "002");
            wait("it is gone", &|| is_out(SUFFIX) && is_out(LOG));
        }
        // Nor does it come back by who was away.
        members[1].stop();
        change(&members[0], &format!("away {round}"));
        members[1].start();
        members[1].wait_until_like(&members[0]);
    }
    assert!(!knows(&members[1], SUFFIX, "003") && !knows(&members[1], LOG, "003"));
}
