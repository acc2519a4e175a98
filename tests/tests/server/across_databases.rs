//! `overlay memberof` and `overlay refint` before the first database, and behind `overlay glue`: what one database has to do with another.

use std::path::{Path, PathBuf};

use larix_testkit::{Kind, Server, Site, until};
use larix_tests::client::Client;
use larix_tests::replicas::ask;

const ADMIN: &str = "cn=admin,dc=people";

const PEOPLE: &str = "dn: dc=people\nobjectClass: domain\ndc: people\n\n\
    dn: cn=ann,dc=people\nobjectClass: person\ncn: ann\nsn: A\n\n\
    dn: cn=bo,dc=people\nobjectClass: person\ncn: bo\nsn: B\n\n\
    dn: cn=cid,dc=people\nobjectClass: person\ncn: cid\nsn: C\n";
const GROUPS: &str = "dn: dc=groups\nobjectClass: domain\ndc: groups\n\n\
    dn: cn=red,dc=groups\nobjectClass: groupOfNames\ncn: red\nmember: cn=ann,dc=people\nmember: cn=bo,dc=people\n\
    member: cn=cid,dc=people\n";

/// Two databases, and a folder in which files ask for panics.
fn site(overlays: &str) -> (Site, PathBuf) {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "{overlays}\
             database config\nrootdn {ADMIN}\n\
             database mdb\nsuffix dc=people\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@/people\nindex member eq\n\
             database mdb\nsuffix dc=groups\nrootdn {ADMIN}\ndirectory @DATA@/groups\nindex member eq\n"
        ),
    );
    for folder in ["people", "groups"] {
        std::fs::create_dir_all(site.path().join("data").join(folder)).expect("a folder");
    }
    site.load_into(Some("dc=people"), PEOPLE);
    site.load_into(Some("dc=groups"), GROUPS);
    let panics = site.path().join("panics");
    std::fs::create_dir(&panics).expect("a folder");
    (site, panics)
}

/// The configuration as a slapd.d, which can be changed while it is served.
fn converted(site: &Site) -> PathBuf {
    let slapd_d = site.path().join("slapd.d");
    std::fs::create_dir(&slapd_d).expect("a folder");
    let mut convert = Kind::Larix.tool("test");
    let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&slapd_d).output();
    assert!(output.expect("the tool starts").status.success());
    slapd_d
}

fn start(site: &Site, panics: &Path) -> (Server, Client) {
    let environment = [("LARIX_PANICS", panics)];
    let server = Server::start_with(Kind::Larix, &site.configuration(), &[], &environment);
    let server = server.unwrap_or_else(|error| panic!("{error:?}"));
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
    (server, client)
}

fn members(client: &mut Client) -> String {
    let answer = ask(client, "search \"cn=red,dc=groups\" base (objectClass=*) member");
    let members = answer.lines().filter_map(|line| line.trim().strip_prefix("member: "));
    let mut members: Vec<&str> = members.filter_map(|name| name.split(',').next()).collect();
    members.sort_unstable();
    members.join(" ")
}

/// Waits until what follows behind a commit is seen.
fn shows(wanted: &str, mut look: impl FnMut() -> String) {
    let mut last = String::new();
    until(wanted, || {
        let now = look();
        // A test that fails shows it.
        if now != last {
            eprintln!("{now}");
            last.clone_from(&now);
        }
        now == wanted
    });
}

fn wait_for(client: &mut Client, wanted: &str) {
    shows(wanted, || members(client));
}

/// What a server that is killed has answered, but not followed in the other database, is followed by the next.
#[test]
fn what_a_kill_interrupts_is_taken_up_again() {
    let (site, panics) = site("overlay refint\nrefint_attributes member\n");
    let (server, mut client) = start(&site, &panics);
    // Both threads have remembered where they begin.
    assert_eq!(ask(&mut client, "modrdn \"cn=cid,dc=people\" cn=sid delete"), "=> 0\n");
    wait_for(&mut client, "cn=ann cn=bo cn=sid");
    let mut server = Some(server);
    for (change, wanted) in [
        ("modrdn \"cn=ann,dc=people\" cn=anna delete", "cn=anna cn=bo cn=sid"),
        ("delete \"cn=bo,dc=people\"", "cn=anna cn=sid"),
        ("modrdn \"cn=anna,dc=people\" cn=ann delete", "cn=ann cn=sid"),
    ] {
        // The thread that would follow panics instead, and goes on a second later: the kill comes before that.
        let ask_for_panic = panics.join("overlay");
        std::fs::write(&ask_for_panic, "").expect("a file");
        assert_eq!(ask(&mut client, change), "=> 0\n");
        until("the thread has panicked", || !ask_for_panic.exists());
        server.take().expect("a server").kill();
        let (next, connected) = start(&site, &panics);
        (server, client) = (Some(next), connected);
        wait_for(&mut client, wanted);
    }
    assert!(server.expect("a server").stop());
}

/// The overlays come and go while the server runs, and a database that comes is one of theirs.
#[test]
fn databases_that_come_and_go_are_followed() {
    let (site, panics) = site("overlay memberof\nmemberof-refint TRUE\n");
    let server = Server::start_with(Kind::Larix, &converted(&site), &[], &[("LARIX_PANICS", &panics)]);
    let server = server.unwrap_or_else(|error| panic!("{error:?}"));
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret")), "=> 0\n");
    let groups = |client: &mut Client, name: &str| {
        let answer = ask(client, &format!("search \"dc=people\" sub (cn={name}) memberOf"));
        let groups = answer.lines().filter_map(|line| line.trim().strip_prefix("memberOf: "));
        let mut groups: Vec<String> = groups.map(str::to_owned).collect();
        groups.sort_unstable();
        groups.join(" ")
    };
    assert_eq!(groups(&mut client, "ann"), "cn=red,dc=groups");
    std::fs::create_dir(site.path().join("data").join("more")).expect("a folder");
    let directory = site.path().join("data").join("more").display().to_string();
    let added = ask(
        &mut client,
        &format!(
            "add \"olcDatabase=mdb,cn=config\"\n  objectClass: olcMdbConfig\n  olcDatabase: mdb\n  olcSuffix: dc=more\n  \
             olcRootDN: {ADMIN}\n  olcDbDirectory: {directory}"
        ),
    );
    assert_eq!(added, "=> 0\n");
    for entry in [
        "add \"dc=more\"\n  objectClass: domain\n  dc: more",
        "add \"cn=blue,dc=more\"\n  objectClass: groupOfNames\n  cn: blue\n  member: cn=ann,dc=people",
    ] {
        assert_eq!(ask(&mut client, entry), "=> 0\n");
    }
    assert_eq!(groups(&mut client, "ann"), "cn=blue,dc=more cn=red,dc=groups");
    assert_eq!(
        ask(&mut client, "search \"dc=people\" sub (memberOf=cn=blue,dc=more) 1.1"),
        "-> cn=ann,dc=people\n=> 0\n"
    );
    assert_eq!(ask(&mut client, "modrdn \"cn=ann,dc=people\" cn=anna delete"), "=> 0\n");
    wait_for(&mut client, "cn=anna cn=bo cn=cid");
    let blue =
        |client: &mut Client| ask(client, "search \"cn=blue,dc=more\" base (member=cn=anna,dc=people) 1.1");
    until("the other group has the new name", || blue(&mut client).starts_with("->"));
    assert!(server.stop());
}

const TOP: &str = "dn: dc=top\nobjectClass: domain\ndc: top\n\n\
    dn: cn=tip,dc=top\nobjectClass: person\ncn: tip\nsn: T\n\n\
    dn: cn=red,dc=top\nobjectClass: groupOfNames\ncn: red\nmember: cn=ann,ou=glued,dc=top\nmember: cn=tip,dc=top\n";
const GLUED: &str = "dn: ou=glued,dc=top\nobjectClass: organizationalUnit\nou: glued\n\n\
    dn: cn=ann,ou=glued,dc=top\nobjectClass: person\ncn: ann\nsn: A\n\n\
    dn: cn=bo,ou=glued,dc=top\nobjectClass: person\ncn: bo\nsn: B\n\n\
    dn: cn=blue,ou=glued,dc=top\nobjectClass: groupOfNames\ncn: blue\nmember: cn=bo,ou=glued,dc=top\n\
    member: cn=tip,dc=top\n";

/// Who is in which group, and which groups each is in, over both databases: `red=ann,tip; ann<red`.
fn related(client: &mut Client) -> String {
    let answer = ask(client, "search \"dc=top\" sub (|(member=*)(memberOf=*)) member memberOf");
    let (mut members, mut groups) = (Vec::new(), Vec::new());
    for entry in answer.split("-> ").skip(1) {
        let first =
            |name: &str| name.trim_start_matches("cn=").split(',').next().unwrap_or_default().to_owned();
        let values = |attribute: &str| {
            let lines =
                entry.lines().filter_map(|line| line.trim().strip_prefix(attribute)?.strip_prefix(": "));
            let mut values: Vec<String> = lines.map(first).collect();
            values.sort_unstable();
            values.join(",")
        };
        let name = first(entry.lines().next().unwrap_or_default());
        members.push(format!("{name}={}", values("member")));
        groups.push(format!("{name}<{}", values("memberOf")));
    }
    let joined = |all: &mut Vec<String>| {
        all.retain(|one| !one.ends_with(['=', '<']));
        all.sort_unstable();
        all.join(" ")
    };
    format!("{}; {}", joined(&mut members), joined(&mut groups))
}

/// Who is answered that an overlay is there may change something before its threads have run: here one of two rests for a second first,
/// and an entry is renamed in the database of each.
#[test]
fn an_overlay_that_is_new_misses_nothing_however_late_its_threads_run() {
    let site = Site::new(
        Kind::Larix,
        "database config\nrootdn cn=admin,dc=top\n\
         database mdb\nsuffix ou=glued,dc=top\nsubordinate\nrootdn cn=admin,dc=top\ndirectory @DATA@/glued\n\
         database mdb\nsuffix dc=top\nrootdn cn=admin,dc=top\nrootpw secret\ndirectory @DATA@/top\n\
         overlay glue\n",
    );
    for folder in ["glued", "top"] {
        std::fs::create_dir_all(site.path().join("data").join(folder)).expect("a folder");
    }
    site.load_into(Some("dc=top"), TOP);
    site.load_into(Some("ou=glued,dc=top"), GLUED);
    let panics = site.path().join("panics");
    std::fs::create_dir(&panics).expect("a folder");
    let server = Server::start_with(Kind::Larix, &converted(&site), &[], &[("LARIX_PANICS", &panics)]);
    let server = server.unwrap_or_else(|error| panic!("{error:?}"));
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, "as cn=admin,dc=top secret"), "=> 0\n");
    // The thread that finds it panics, and goes on a second later.
    let ask_for_panic = panics.join("overlay");
    std::fs::write(&ask_for_panic, "").expect("a file");
    let overlay = "add \"olcOverlay=refint,olcDatabase={2}mdb,cn=config\"\n  objectClass: olcRefintConfig\n  \
                   olcOverlay: refint\n  olcRefintAttribute: member";
    assert_eq!(ask(&mut client, overlay), "=> 0\n");
    until("the thread has panicked", || !ask_for_panic.exists());
    for change in
        ["modrdn \"cn=ann,ou=glued,dc=top\" cn=anna delete", "modrdn \"cn=tip,dc=top\" cn=tap delete"]
    {
        assert_eq!(ask(&mut client, change), "=> 0\n");
    }
    let expected = "blue=bo,tap red=anna,tap; ";
    shows(expected, || related(&mut client));
    assert!(server.stop());
}

/// Groups in one of two glued databases, members in the other; then another database is glued, and the overlays go and come back.
#[test]
fn glued_databases_follow_each_other() {
    const GLUED_ADMIN: &str = "cn=admin,dc=top";
    let site = Site::new(
        Kind::Larix,
        &format!(
            "database config\nrootdn {GLUED_ADMIN}\n\
             database mdb\nsuffix ou=glued,dc=top\nsubordinate\nrootdn {GLUED_ADMIN}\ndirectory @DATA@/glued\n\
             database mdb\nsuffix dc=top\nrootdn {GLUED_ADMIN}\nrootpw secret\ndirectory @DATA@/top\n\
             overlay glue\noverlay memberof\noverlay refint\nrefint_attributes member\n"
        ),
    );
    let data = site.path().join("data");
    for folder in ["glued", "top", "more"] {
        std::fs::create_dir_all(data.join(folder)).expect("a folder");
    }
    site.load_into(Some("dc=top"), TOP);
    site.load_into(Some("ou=glued,dc=top"), GLUED);
    let server = Server::start_with(Kind::Larix, &converted(&site), &[], &[]);
    let server = server.unwrap_or_else(|error| panic!("{error:?}"));
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, &format!("as {GLUED_ADMIN} secret")), "=> 0\n");
    let more = data.join("more").display().to_string();
    let overlays = "olcDatabase={3}mdb,cn=config";
    for (change, expected) in [
        (
            "search \"dc=top\" base (objectClass=*) 1.1".to_owned(),
            "blue=bo,tip red=ann,tip; ann<red bo<blue tip<blue,red",
        ),
        (
            "modrdn \"cn=ann,ou=glued,dc=top\" cn=anna delete".to_owned(),
            "blue=bo,tip red=anna,tip; anna<red bo<blue tip<blue,red",
        ),
        (
            "modrdn \"cn=tip,dc=top\" cn=tap delete".to_owned(),
            "blue=bo,tap red=anna,tap; anna<red bo<blue tap<blue,red",
        ),
        (
            "modrdn \"cn=red,dc=top\" cn=wine delete".to_owned(),
            "blue=bo,tap wine=anna,tap; anna<wine bo<blue tap<blue,wine",
        ),
        // slapd 2.5 ends here by a segmentation fault.
        (
            "modrdn \"cn=blue,ou=glued,dc=top\" cn=navy delete".to_owned(),
            "navy=bo,tap wine=anna,tap; anna<wine bo<navy tap<navy,wine",
        ),
        (
            "modify \"cn=navy,ou=glued,dc=top\"\n  add member: cn=anna,ou=glued,dc=top".to_owned(),
            "navy=anna,bo,tap wine=anna,tap; anna<navy,wine bo<navy tap<navy,wine",
        ),
        ("delete \"cn=tap,dc=top\"".to_owned(), "navy=anna,bo wine=anna; anna<navy,wine bo<navy"),
        // Another database is glued while the server runs.
        (
            format!(
                "add \"olcDatabase={{1}}mdb,cn=config\"\n  objectClass: olcMdbConfig\n  olcDatabase: {{1}}mdb\n  \
                 olcSuffix: ou=more,dc=top\n  olcSubordinate: TRUE\n  olcRootDN: {GLUED_ADMIN}\n  olcDbDirectory: {more}"
            ),
            "navy=anna,bo wine=anna; anna<navy,wine bo<navy",
        ),
        (
            "add \"ou=more,dc=top\"\n  objectClass: organizationalUnit\n  ou: more".to_owned(),
            "navy=anna,bo wine=anna; anna<navy,wine bo<navy",
        ),
        (
            "add \"cn=lime,ou=more,dc=top\"\n  objectClass: groupOfNames\n  cn: lime\n  \
             member: cn=anna,ou=glued,dc=top"
                .to_owned(),
            "lime=anna navy=anna,bo wine=anna; anna<lime,navy,wine bo<navy",
        ),
        (
            "modrdn \"cn=anna,ou=glued,dc=top\" cn=ann delete".to_owned(),
            "lime=ann navy=ann,bo wine=ann; ann<lime,navy,wine bo<navy",
        ),
        // Without refint names stay, and memberOf of the new name is of nobody.
        (
            format!("delete \"olcOverlay={{2}}refint,{overlays}\""),
            "lime=ann navy=ann,bo wine=ann; ann<lime,navy,wine bo<navy",
        ),
        (
            "modrdn \"cn=ann,ou=glued,dc=top\" cn=amy delete".to_owned(),
            "lime=ann navy=ann,bo wine=ann; bo<navy",
        ),
        (
            format!(
                "add \"olcOverlay=refint,{overlays}\"\n  objectClass: olcRefintConfig\n  olcOverlay: refint\n  \
                 olcRefintAttribute: member"
            ),
            "lime=ann navy=ann,bo wine=ann; bo<navy",
        ),
        (
            "modrdn \"cn=amy,ou=glued,dc=top\" cn=ann delete".to_owned(),
            "lime=ann navy=ann,bo wine=ann; ann<lime,navy,wine bo<navy",
        ),
        (
            "modrdn \"cn=ann,ou=glued,dc=top\" cn=amy delete".to_owned(),
            "lime=amy navy=amy,bo wine=amy; amy<lime,navy,wine bo<navy",
        ),
        ("delete \"cn=lime,ou=more,dc=top\"".to_owned(), "navy=amy,bo wine=amy; amy<navy,wine bo<navy"),
    ] {
        let answer = ask(&mut client, &change);
        assert!(answer.ends_with("=> 0\n"), "{change}: {answer}");
        shows(expected, || related(&mut client));
    }
    assert!(server.stop());
}

/// Each page is a search of its own: what is asserted of the base (RFC 4528 section 3) is judged also where the page has no more of its
/// database.
#[test]
fn an_assertion_is_judged_for_each_page_of_glued_databases() {
    const GLUED_ADMIN: &str = "cn=admin,dc=people";
    const BELOW: &str = "dn: dc=glued,dc=people\nobjectClass: domain\ndc: glued\n\n\
        dn: cn=di,dc=glued,dc=people\nobjectClass: person\ncn: di\nsn: D\n";
    let body = format!(
        "database mdb\nsuffix dc=glued,dc=people\nsubordinate\nrootdn {GLUED_ADMIN}\ndirectory @DATA@/glued\n\
         database mdb\nsuffix dc=people\nrootdn {GLUED_ADMIN}\nrootpw secret\ndirectory @DATA@/people\n"
    );
    let site = Site::new(Kind::Larix, &body);
    for folder in ["glued", "people"] {
        std::fs::create_dir_all(site.path().join("data").join(folder)).expect("a folder");
    }
    site.load_into(Some("dc=people"), PEOPLE);
    site.load_into(Some("dc=glued,dc=people"), BELOW);
    let server = Server::start_with(Kind::Larix, &site.configuration(), &[], &[]);
    let server = server.unwrap_or_else(|error| panic!("{error:?}"));
    let mut client = Client::connect(server.address);
    let search = "search \"dc=people\" sub (objectClass=*) 1.1 with";
    for (controls, expected) in [
        ("page=4 !assert=(dc=people)", "page: more"),
        ("next=1 !assert=(dc=people)", "-> dc=glued,dc=people"),
        ("next=1 !assert=(dc=people)", "-> cn=di,dc=glued,dc=people"),
        ("page=4", "page: more"),
        ("next=1", "-> dc=glued,dc=people"),
        // True of the suffix of the glued database, and not of the base.
        ("next=1 !assert=(dc=glued)", "=> 122"),
        ("page=5", "page: more"),
        ("next=1 assert=(dc=glued)", "=> 122"),
    ] {
        let answer = ask(&mut client, &format!("{search} {controls}"));
        assert!(answer.contains(expected), "{controls}: {answer}");
    }
    assert!(server.stop());
}
