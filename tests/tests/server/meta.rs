//! `database meta` and `database asyncmeta`: two servers as one tree, beside slapd's back-meta in front of the same servers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, run};
use larix_tests::relay::{Passage, Relay};
use larix_tests::running::Running;
use larix_tests::scenario;

/// A target with entries below `dc=NAME`.
fn target(name: &str) -> Running {
    let body = format!(
        "authz-policy to\ndatabase mdb\nsuffix dc={name}\nrootdn cn=admin,dc={name}\nrootpw secret\ndirectory @DATA@\nindex uid eq\n\
         access to attrs=userPassword by self =xw by anonymous auth by * none\naccess to * by self write by * read\n"
    );
    let site = Site::new(Kind::Larix, &body);
    let person = |uid: &str| {
        format!(
            "dn: uid={uid}{name},dc={name}\nobjectClass: inetOrgPerson\nuid: {uid}{name}\ncn: {uid}\nsn: {name}\n\
             description: person\nuserPassword: {uid}pw\n\n"
        )
    };
    let top =
        format!("dn: dc={name}\nobjectClass: organization\nobjectClass: dcObject\no: {name}\ndc: {name}\n\n");
    let group = format!(
        "dn: cn=team,dc={name}\nobjectClass: groupOfNames\ncn: team\nmember: uid=ann{name},dc={name}\n"
    );
    site.load(&[top, person("ann"), person("bob"), person("eve"), group].concat());
    Running::of(site)
}

/// The lines of a database of two targets; `lines` stand before the first, `first` and `second` behind each.
fn of_two(kind: Kind, servers: [SocketAddr; 2], lines: &str, [first, second]: [&str; 2]) -> String {
    let modules = if kind == Kind::Slapd { "moduleload back_ldap\nmoduleload back_meta\n" } else { "" };
    let [one, two] = servers;
    format!(
        "{modules}database meta\nsuffix o=all\nrootdn cn=root,o=all\nrootpw secret\nchase-referrals no\n{lines}\n\
         uri ldap://{one}/ou=one,o=all\nsuffixmassage ou=one,o=all dc=one\n{first}\n\
         uri ldap://{two}/ou=two,o=all\nsuffixmassage ou=two,o=all dc=two\nmap attribute title description\n{second}\n"
    )
}

/// Requests in the text of scenarios.
const REQUESTS: &str = "anonymous
search o=all base (objectClass=*)
search o=all one (objectClass=*) dc
search o=all sub (objectClass=*) 1.1
search ou=one,o=all sub (uid=ann*) uid sn description
search ou=two,o=all sub (uid=ann*) uid sn title
search ou=two,o=all one (title=person) uid
search ou=three,o=all sub (uid=*) uid
search uid=nobody,ou=one,o=all base (objectClass=*)
search o=all sub (member=uid=anntwo,ou=two,o=all) member
search o=all sub (title=person) uid
search cn=team,ou=two,o=all base (objectClass=*) member
compare uid=annone,ou=one,o=all sn:one
compare uid=anntwo,ou=two,o=all sn:one
compare uid=anntwo,ou=two,o=all title:person
compare uid=nobody,ou=two,o=all title:person
compare uid=nobody,ou=three,o=all title:person
as uid=annone,ou=one,o=all wrong
as uid=nobody,ou=three,o=all wrong
as uid=annone,ou=one,o=all annpw
whoami
modify uid=annone,ou=one,o=all
  replace description: changed
modify uid=bobone,ou=one,o=all
  replace description: stolen
modify uid=anntwo,ou=two,o=all
  replace title: stolen
search o=all sub (uid=ann*) description title
as uid=anntwo,ou=two,o=all annpw
modify uid=anntwo,ou=two,o=all
  replace title: changed
search uid=anntwo,ou=two,o=all base (objectClass=*) title
";

/// The same answers as those of slapd's back-meta, in front of the same servers; entries of several targets in any order.
#[test]
fn two_servers_are_one_tree() {
    let answers = |kind: Kind| {
        let (one, two) = (target("one"), target("two"));
        let front =
            Running::start(kind, &of_two(kind, [one.server.address, two.server.address], "", ["", ""]), "");
        let mut client = front.client();
        let steps = scenario::parse(REQUESTS);
        let answers: Vec<String> =
            steps.iter().map(|step| format!("{}\n{}", step.request, sorted(&client.run(step)))).collect();
        // What was changed here stands there by its own name.
        let description = two.client().value("uid=anntwo,dc=two", "description");
        assert_eq!(description.as_deref(), Some("changed"), "{kind:?} {answers:#?}");
        answers
    };
    let ours = answers(Kind::Larix);
    let all = ours.iter().find(|answer| answer.starts_with("search o=all sub (objectClass=*)")).unwrap();
    assert_eq!(all.matches("-> ").count(), 10, "{all}");
    if Kind::Slapd.is_lacking_module("back_meta") {
        return;
    }
    let theirs = answers(Kind::Slapd);
    // slapd has other words for a name that no target serves, and says of the suffix itself that it leads to it. The matched DN of a
    // compare it shows as the target has it.
    let code = |answer: &str| {
        answer.split("=> ").nth(1).and_then(|end| end.split_whitespace().next()).map(str::to_owned)
    };
    let is_known = |one: &str, other: &str| {
        let of_names =
            one.contains("=> 32") && (one.contains("no target serves") || one.starts_with("compare"));
        of_names && code(one) == code(other)
    };
    let differences = ours.iter().zip(&theirs).filter(|(one, other)| one != other && !is_known(one, other));
    let differences: Vec<_> = differences.collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// An answer with its entries in order.
fn sorted(answer: &str) -> String {
    let mut entries: Vec<&str> = answer.split("-> ").collect();
    // The last has the result behind it.
    let end = entries.last().and_then(|last| last.find("=> ")).unwrap_or(0);
    let last = entries.pop().unwrap_or_default();
    let (last, result) = last.split_at(end);
    entries.push(last);
    entries.sort_unstable();
    format!("{}{result}", entries.join("-> "))
}

/// Limits hold for all targets together, of pages that are answered at once, too.
#[test]
fn limits_hold_over_all_targets() {
    let (one, two) = (target("one"), target("two"));
    let servers = [one.server.address, two.server.address];
    let front = Running::start(Kind::Larix, &of_two(Kind::Larix, servers, "sizelimit 5", ["", ""]), "");
    let mut client = front.client();
    let count = |answer: &str| answer.matches("-> ").count();
    for (request, entries, code) in [
        ("search o=all sub (uid=*) 1.1", 5, "=> 4"),
        ("search ou=one,o=all sub (objectClass=*) 1.1", 5, "=> 0"),
        ("search ou=two,o=all sub (uid=*) 1.1", 3, "=> 0"),
        ("search o=all one (objectClass=*) 1.1", 2, "=> 0"),
        // A client's own limit.
        ("search o=all sub (uid=*) 1.1 size=1", 1, "=> 4"),
    ] {
        let answer = run(&mut client, request);
        assert!(count(&answer) == entries && answer.contains(code), "{request}: {answer}");
    }
    // Pages of one target are that target's; over both, nobody can make them.
    let paged = run(&mut client, "search ou=one,o=all sub (uid=*) uid with page=2");
    assert_eq!(count(&paged), 2, "{paged}");
    let paged = run(&mut client, "search ou=one,o=all sub (uid=*) uid with next=2");
    assert!(count(&paged) == 1 && paged.contains("=> 0"), "{paged}");
    let refused = run(&mut client, "search o=all sub (uid=*) uid with !page=2");
    assert!(refused.starts_with("=> 12") && refused.contains("several targets"), "{refused}");
    let refused = run(&mut client, "search o=all sub (uid=*) uid with !sort=uid");
    assert!(refused.starts_with("=> 12") && refused.contains("several targets"), "{refused}");
    // An assertion is about the base, which one of them has at most.
    let refused = run(&mut client, "search o=all sub (uid=*) uid with !assert=(dc=one)");
    assert!(refused.starts_with("=> 12 ") && refused.contains("several targets"), "{refused}");
    let refused = run(&mut client, "search ou=one,o=all sub (uid=*) uid with !assert=(dc=nobody)");
    assert!(refused.starts_with("=> 122"), "{refused}");
    let passed_over = run(&mut client, "search o=all sub (uid=*) uid with assert=(dc=one)");
    assert!(count(&passed_over) == 5 && passed_over.contains("=> 4"), "{passed_over}");
    let at_once = run(&mut client, "search o=all sub (uid=*) uid with page=2");
    assert!(count(&at_once) == 5 && at_once.contains("=> 4"), "{at_once}");
}

/// A target that answers few entries at once is read page by page, and the client does not notice; limits of the search hold.
#[test]
fn answers_are_read_page_by_page() {
    let body = "database mdb\nsuffix dc=one\nrootdn cn=admin,dc=one\nrootpw secret\ndirectory @DATA@\nindex uid eq\n\
                limits * size=2 size.pr=2 size.prtotal=unlimited\naccess to * by * read\n";
    let site = Site::new(Kind::Larix, body);
    let top = "dn: dc=one\nobjectClass: organization\nobjectClass: dcObject\no: one\ndc: one\n\n".to_owned();
    let people = (0..7).map(|n| format!("dn: uid=p{n},dc=one\nobjectClass: account\nuid: p{n}\n\n"));
    site.load(&std::iter::once(top).chain(people).collect::<Vec<_>>().concat());
    let small = Running::of(site);
    let two = target("two");
    let servers = [small.server.address, two.server.address];
    for (first, entries, code) in [("", 2, "=> 4"), ("client-pr 2", 7, "=> 0"), ("client-pr 1", 7, "=> 0")] {
        let front = Running::start(Kind::Larix, &of_two(Kind::Larix, servers, "", [first, ""]), "");
        let mut client = front.client();
        let answer = run(&mut client, "search ou=one,o=all sub (uid=*) uid");
        assert_eq!(answer.matches("-> ").count(), entries, "{first}: {answer}");
        assert!(answer.contains(code) && !answer.contains("page"), "{first}: {answer}");
        if !first.is_empty() {
            let limited = run(&mut client, "search ou=one,o=all sub (uid=*) uid size=5");
            assert_eq!(limited.matches("-> ").count(), 5, "{first}: {limited}");
            assert!(limited.contains("=> 4"), "{first}: {limited}");
        }
        // With the other target's entries, which has no such limit.
        let both = run(&mut client, "search o=all sub (uid=*) uid");
        assert_eq!(both.matches("-> ").count(), entries + 3, "{first}: {both}");
        // A client's own pages are the client's.
        let paged = run(&mut client, "search ou=one,o=all sub (uid=*) uid with page=2");
        assert_eq!(paged.matches("-> ").count(), 2, "{first}: {paged}");
        assert!(paged.contains("page"), "{first}: {paged}");
    }
}

/// A target that is gone: what `onerr` says of the answer. The other one goes on, and it comes back.
#[test]
fn a_target_that_is_gone() {
    for (onerr, expected, entries) in [
        ("", "=> 0", 3..4),
        ("onerr continue", "=> 0", 3..4),
        ("onerr report", "=> 52", 3..4),
        ("onerr stop", "=> 52", 0..4),
    ] {
        let (one, two) = (target("one"), target("two"));
        let relay = Relay::start();
        relay.lead_to(two.server.address);
        let body = of_two(Kind::Larix, [one.server.address, relay.address], onerr, ["", ""]);
        let front = Running::start(Kind::Larix, &body, "");
        let mut client = front.client();
        let ask = "search o=all sub (uid=*) uid";
        let both = run(&mut client, ask);
        assert!(both.matches("-> ").count() == 6 && both.contains("=> 0"), "{onerr}: {both}");
        relay.set(Passage::Cut);
        let rest = run(&mut client, ask);
        assert!(entries.contains(&rest.matches("-> ").count()) && rest.contains(expected), "{onerr}: {rest}");
        assert!(run(&mut client, "search ou=two,o=all sub (uid=*) uid").contains("=> 52"), "{onerr}");
        assert!(run(&mut client, "compare uid=annone,ou=one,o=all sn:one").contains("=> 6"), "{onerr}");
        assert!(run(&mut client, "compare uid=anntwo,ou=two,o=all sn:two").contains("=> 52"), "{onerr}");
    }
}

/// Two targets that serve the same names; `lines` stand before the first, `more` behind the second.
fn overlapping(one: &Running, two: &Running, lines: &str, more: &str) -> String {
    format!(
        "database meta\nsuffix o=all\nrootdn cn=root,o=all\nrootpw secret\n{lines}\n\
         uri ldap://{}/o=all\nsuffixmassage o=all dc=one\nidassert-bind bindmethod=simple binddn=cn=admin,dc=one credentials=secret\n\
         uri ldap://{}/o=all\nsuffixmassage o=all dc=two\nidassert-bind bindmethod=simple binddn=cn=admin,dc=two credentials=secret\n\
         {more}\n",
        one.server.address, two.server.address
    )
}

/// Names that two targets serve: requests for one of them go to the default target, or are refused with the mend.
#[test]
fn one_target_takes_changes() {
    let (one, two) = (target("one"), target("two"));
    let front = Running::start(Kind::Larix, &overlapping(&one, &two, "", ""), "");
    let mut client = front.client();
    assert!(run(&mut client, "as cn=root,o=all secret").contains("=> 0"));
    for request in [
        "delete uid=annone,o=all",
        "compare uid=annone,o=all sn:one",
        "modify uid=annone,o=all\n  replace sn: x",
    ] {
        let refused = run(&mut client, request);
        assert!(refused.starts_with("=> 53") && refused.contains("default-target"), "{request}: {refused}");
    }
    assert!(run(&mut client, "as uid=annone,o=all annpw").starts_with("=> 49"));
    let front = Running::start(Kind::Larix, &overlapping(&one, &two, "", "default-target"), "");
    let mut client = front.client();
    assert!(run(&mut client, "as cn=root,o=all secret").contains("=> 0"));
    let add = "add uid=new,o=all\n  objectClass: inetOrgPerson\n  uid: new\n  cn: New\n  sn: New";
    assert!(run(&mut client, add).starts_with("=> 0"));
    assert_eq!(two.client().value("uid=new,dc=two", "sn").as_deref(), Some("New"));
    assert_eq!(run(&mut client, "search o=all sub (uid=*) 1.1").matches("-> ").count(), 7);
    assert!(run(&mut client, "modrdn uid=new,o=all uid=newer delete").starts_with("=> 0"));
    assert!(run(&mut client, "delete uid=newer,o=all").starts_with("=> 0"));
}

/// With `dncache-ttl` the searches of an identity say which of two targets has an entry, to this identity and to binds.
#[test]
fn a_search_says_which_target_takes_changes() {
    let (one, two) = (target("one"), target("two"));
    let front = Running::start(Kind::Larix, &overlapping(&one, &two, "dncache-ttl forever", ""), "");
    let mut client = front.client();
    assert!(run(&mut client, "as cn=root,o=all secret").contains("=> 0"));
    let change = |uid: &str| format!("modify uid={uid},o=all\n  replace title: found");
    assert!(run(&mut client, &change("annone")).starts_with("=> 53"));
    assert!(run(&mut front.client(), "as uid=annone,o=all annpw").starts_with("=> 49"));
    assert_eq!(run(&mut client, "search o=all sub (uid=ann*) 1.1").matches("-> ").count(), 2);
    for (uid, server, dn) in [("annone", &one, "uid=annone,dc=one"), ("anntwo", &two, "uid=anntwo,dc=two")] {
        let answer = run(&mut client, &change(uid));
        assert!(answer.starts_with("=> 0"), "{answer}");
        assert_eq!(server.client().value(dn, "title").as_deref(), Some("found"));
        assert!(run(&mut front.client(), &format!("as uid={uid},o=all annpw")).starts_with("=> 0"), "{uid}");
        // Others have not found it.
        let compare = format!("compare uid={uid},o=all title:found");
        assert!(run(&mut client, &compare).starts_with("=> 6"));
        assert!(run(&mut front.client(), &compare).starts_with("=> 53"));
    }
    assert!(
        run(&mut front.client(), "as uid=bobtwo,o=all bobpw").starts_with("=> 49"),
        "nobody has found it"
    );
    // A renamed entry stays with its target, and is gone from its name.
    assert!(run(&mut client, "modrdn uid=annone,o=all uid=other delete").starts_with("=> 0"));
    assert!(run(&mut client, &change("annone")).starts_with("=> 53"));
    assert!(one.client().value("uid=other,dc=one", "title").is_some());
    // What is new has not been found anywhere.
    let add = "add uid=new,o=all\n  objectClass: inetOrgPerson\n  uid: new\n  cn: New\n  sn: New";
    assert!(run(&mut client, add).starts_with("=> 53"));
}

/// Who may be asserted is said of names as they are here; entries of one target are nothing to the other.
#[test]
fn identities_of_each_target() {
    let (one, two) = (target("one"), target("two"));
    let servers = [one.server.address, two.server.address];
    let assertion = "idassert-bind bindmethod=simple binddn=cn=admin,dc=two credentials=secret mode=none\n\
                     idassert-authzFrom dn.exact:uid=annone,ou=one,o=all";
    let front = Running::start(Kind::Larix, &of_two(Kind::Larix, servers, "", ["", assertion]), "");
    let mut client = front.client();
    assert!(run(&mut client, "as uid=annone,ou=one,o=all annpw").contains("=> 0"));
    let change = "modify uid=bobtwo,ou=two,o=all\n  replace title: by ann";
    assert!(run(&mut client, change).starts_with("=> 0"));
    assert_eq!(two.client().value("uid=bobtwo,dc=two", "modifiersName").as_deref(), Some("cn=admin,dc=two"));
    assert!(run(&mut client, "as uid=bobone,ou=one,o=all bobpw").contains("=> 0"));
    assert!(run(&mut client, change).starts_with("=> 48"));
    let across = run(&mut client, "modrdn uid=bobone,ou=one,o=all uid=bob delete ou=two,o=all");
    assert!(across.starts_with("=> 71") && across.contains("another target"), "{across}");
    let changed = run(&mut client, "passwd uid=bobone,ou=one,o=all old=bobpw new=newpw");
    assert!(changed.contains("=> 0"), "{changed}");
    let bound = run(&mut client, "as uid=bobone,ou=one,o=all newpw");
    assert!(bound.contains("=> 0"), "{bound} behind {changed}");
}

/// Targets are added, changed and taken away by cn=config while the server runs, under both names.
#[test]
fn cn_config_changes_the_targets() {
    let (one, two) = (target("one"), target("two"));
    let front = Running::start(
        Kind::Larix,
        &format!(
            "database config\nrootpw secret\ndatabase asyncmeta\nsuffix o=all\nuri ldap://{}/ou=one,o=all\n\
             suffixmassage ou=one,o=all dc=one\n",
            one.server.address
        ),
        "",
    );
    let (mut client, mut config) = (front.client(), front.client());
    assert!(run(&mut config, "as cn=config secret").starts_with("=> 0"));
    let database = "olcDatabase={1}asyncmeta,cn=config";
    let count = |client: &mut Client| run(client, "search o=all sub (uid=*) 1.1").matches("-> ").count();
    assert_eq!(count(&mut client), 3);
    let add = |suffix: &str| {
        format!(
            "add olcAsyncMetaSub=uri,{database}\n  objectClass: olcAsyncMetaTargetConfig\n  olcAsyncMetaSub: uri\n  \
             olcDbURI: ldap://{}/{suffix}\n  olcDbSuffixMassage: {suffix} dc=two",
            two.server.address
        )
    };
    let refused = run(&mut config, &add("o=elsewhere"));
    assert!(!refused.starts_with("=> 0") && refused.contains("not within a suffix"), "{refused}");
    let added = run(&mut config, &add("ou=two,o=all"));
    assert!(added.starts_with("=> 0"), "{added}");
    assert_eq!(count(&mut client), 6);
    let second = format!("olcAsyncMetaSub={{1}}uri,{database}");
    let changed = run(&mut config, &format!("modify {second}\n  add olcDbSubtreeExclude: ou=two,o=all"));
    assert!(changed.starts_with("=> 0"), "{changed}");
    assert!(run(&mut client, "search ou=two,o=all sub (uid=*) 1.1").contains("=> 32"));
    let deleted = run(&mut config, &format!("delete {second}"));
    assert!(deleted.starts_with("=> 0"), "{deleted}");
    assert_eq!(count(&mut client), 3);
}

/// A target that says nothing costs a search its time limit, and other requests nothing.
#[test]
fn a_target_that_hangs() {
    let (one, two) = (target("one"), target("two"));
    let relay = Relay::start();
    relay.lead_to(two.server.address);
    let body = of_two(Kind::Larix, [one.server.address, relay.address], "onerr report", ["", "timeout 3"]);
    let front = Running::start(Kind::Larix, &body, "");
    let mut client = front.client();
    let count = |answer: &str| answer.matches("-> ").count();
    assert_eq!(count(&run(&mut client, "search o=all sub (uid=*) uid")), 6);
    relay.set(Passage::Silent);
    let limited = run(&mut client, "search o=all sub (uid=*) uid time=1");
    assert!(count(&limited) == 3 && limited.contains("=> 3"), "{limited}");
    // The target's own time ends its part; what the other has is there.
    let rest = run(&mut client, "search o=all sub (uid=*) uid");
    assert!(count(&rest) == 3 && !rest.contains("=> 0"), "{rest}");
    let other = run(&mut front.client(), "search ou=one,o=all sub (uid=*) uid");
    assert!(count(&other) == 3 && other.contains("=> 0"), "{other}");
    assert!(run(&mut client, "compare uid=annone,ou=one,o=all sn:one").contains("=> 6"));
    assert!(!run(&mut client, "compare uid=anntwo,ou=two,o=all sn:two").contains("=> 6"));
}

/// A target that sends what is no LDAP loses its own connection; one that has other entries has none.
#[test]
fn a_target_that_lies() {
    let one = target("one");
    let liar = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = liar.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in liar.incoming().flatten() {
            let mut request = [0; 512];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let front =
        Running::start(Kind::Larix, &of_two(Kind::Larix, [one.server.address, address], "", ["", ""]), "");
    let mut client = front.client();
    for _ in 0..3 {
        let found = run(&mut client, "search o=all sub (uid=*) uid");
        assert!(found.matches("-> ").count() == 3 && found.contains("=> 0"), "{found}");
        let alone = run(&mut client, "search ou=two,o=all sub (uid=*) uid");
        assert!(!alone.contains("=> 0") && !alone.contains("-> "), "{alone}");
        let bound = run(&mut client, "as uid=anntwo,ou=two,o=all annpw");
        assert!(!bound.contains("=> 0"), "{bound}");
    }
    // One that has another suffix than it is asked for answers for itself alone: it has no such entry.
    let body = of_two(Kind::Larix, [one.server.address, one.server.address], "", ["", ""]);
    let found = run(&mut Running::start(Kind::Larix, &body, "").client(), "search o=all sub (uid=*) uid");
    assert!(found.matches("-> ").count() == 3 && found.contains("=> 0"), "{found}");
}

/// A connection of asyncmeta as the monitor shows it, by the numbers of its group and its target.
fn flags(client: &mut Client, group: u32, target: u32) -> String {
    let name = format!(
        "cn=Target Connection {target},cn=Connection Group {group},cn=Connections,cn=Database 1,cn=Databases,cn=Monitor"
    );
    client.value(&name, "olmTargetConnFlags").unwrap_or_default()
}

/// Asks until it is so, for three minutes at most.
fn becomes(mut is_so: impl FnMut() -> bool) -> bool {
    (0..3_600).any(|_| {
        std::thread::park_timeout(Duration::from_millis(50));
        is_so()
    })
}

/// With `max-target-conns` requests take turns over numbered groups of connections, which end one by one; OpenLDAP's test091 is the
/// same.
#[test]
fn connections_stand_in_groups() {
    let (one, two) = (target("one"), target("two"));
    let body = format!(
        "database asyncmeta\nsuffix o=all\nmax-target-conns 2\nconn-ttl 15s 8s\n\
         uri ldap://{}/ou=one,o=all\nsuffixmassage ou=one,o=all dc=one\n\
         uri ldap://{}/ou=two,o=all\nsuffixmassage ou=two,o=all dc=two\ndatabase monitor\naccess to * by * read\n",
        one.server.address, two.server.address
    );
    let front = Running::start(Kind::Larix, &body, "");
    let (mut client, mut watcher) = (front.client(), front.client());
    let all = |watcher: &mut Client| {
        [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(group, target)| flags(watcher, group, target))
    };
    assert_eq!(all(&mut watcher), ["closed"; 4]);
    let next = |watcher: &mut Client| {
        watcher.value("cn=Database 1,cn=Databases,cn=Monitor", "olmDbNextConnectionGroup")
    };
    assert_eq!(next(&mut watcher).as_deref(), Some("1"));
    let ask = |client: &mut Client, base: &str| run(client, &format!("search {base} sub (uid=*) 1.1"));
    assert_eq!(ask(&mut client, "o=all").matches("-> ").count(), 6);
    let open = "anonymous,initialized";
    assert_eq!(all(&mut watcher), [open, open, "closed", "closed"]);
    assert_eq!(next(&mut watcher).as_deref(), Some("2"));
    // What goes to one target alone takes that one's turn.
    ask(&mut client, "ou=two,o=all");
    assert_eq!(all(&mut watcher), [open, open, "closed", open]);
    ask(&mut client, "ou=one,o=all");
    assert_eq!(all(&mut watcher), [open; 4]);
    let group = run(
        &mut watcher,
        "search \"cn=Connection Group 1,cn=Connections,cn=Database 1,cn=Databases,cn=Monitor\" base (objectClass=*) +",
    );
    assert!(group.contains("olmCGID: 1") && group.contains("olmCGPendingOps: 0"), "{group}");
    let shown = run(
        &mut watcher,
        "search \"cn=Targets,cn=Database 1,cn=Databases,cn=Monitor\" one (objectClass=*) +",
    );
    for expected in [
        format!("olmTgtURIList: ldap://{}", two.server.address),
        "olmTgtQuarantined: FALSE".to_owned(),
        "olmTgtTimeoutOps: 0".to_owned(),
        "olmTgtConnLastReset: 0".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected}: {shown}");
    }
    let connection = run(
        &mut watcher,
        "search \"cn=Target Connection 2,cn=Connection Group 1,cn=Connections,cn=Database 1,cn=Databases,cn=Monitor\" base (objectClass=*) +",
    );
    assert!(
        connection.contains(&format!("olmTargetConnPeerAddress: IP={}", two.server.address)),
        "{connection}"
    );
    assert!(!connection.contains("Time: 0"), "{connection}");
    // They end by their age, the oldest of each target first, one in eight seconds.
    assert!(becomes(|| flags(&mut watcher, 1, 1) == "closed"), "{:?}", all(&mut watcher));
    assert_eq!(flags(&mut watcher, 2, 1), open);
    assert!(becomes(|| all(&mut watcher) == ["closed"; 4]), "{:?}", all(&mut watcher));
}

/// With `max-target-conns`, too, each answer that is read page by page has a connection, as long as there may be another one: slapd keeps
/// one cookie with each.
#[test]
fn pages_take_places_of_their_own() {
    const CLIENTS: usize = 3;
    if Kind::Slapd.is_lacking() {
        return;
    }
    let body = "database mdb\nsuffix dc=one\nrootdn cn=admin,dc=one\nrootpw secret\ndirectory @DATA@\naccess to * by * read\n";
    let top = "dn: dc=one\nobjectClass: organization\nobjectClass: dcObject\no: one\ndc: one\n\n";
    let people = (0..5).map(|n| format!("dn: uid=p{n},dc=one\nobjectClass: account\nuid: p{n}\n\n"));
    let entries = format!("{top}{}", people.collect::<String>());
    let remote = Running::start(Kind::Slapd, body, &entries);
    let lines = format!(
        "database asyncmeta\nsuffix dc=one\nmax-target-conns {CLIENTS}\nuri ldap://{}/dc=one\n",
        remote.server.address
    );
    let front = Running::start(Kind::Larix, &lines, "");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| front.client()).collect();
    for (control, entries) in [("page=2", 2), ("next=2", 2), ("next=2", 1)] {
        for client in &mut clients {
            let page = run(client, &format!("search dc=one one (uid=p*) uid with {control}"));
            assert!(page.contains("=> 0") && page.matches("-> ").count() == entries, "{control}: {page}");
        }
    }
}

/// Behind a notice of disconnection a connection takes no request, and waits for what it has under way; OpenLDAP's test092 is the same.
#[test]
fn a_noticed_connection_closes() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix dc=one\nrootdn cn=admin,dc=one\nrootpw secret\ndirectory @DATA@\noverlay retcode\n\
         retcode-parent ou=codes,dc=one\nretcode-item cn=notice 0x00 unsolicited=1.3.6.1.4.1.1466.20036\n",
    );
    site.load("dn: dc=one\nobjectClass: organization\nobjectClass: dcObject\no: one\ndc: one\n");
    let remote = Running::of(site);
    let body = format!(
        "database asyncmeta\nsuffix dc=one\nmax-target-conns 1\ntimeout search=10\nuri ldap://{}/dc=one\n\
         database monitor\naccess to * by * read\n",
        remote.server.address
    );
    let front = Running::start(Kind::Larix, &body, "");
    let (mut client, mut watcher, mut waiting) = (front.client(), front.client(), front.client());
    assert!(run(&mut client, "search dc=one base (objectClass=*) 1.1").contains("=> 0"));
    assert_eq!(flags(&mut watcher, 1, 1), "anonymous,initialized");
    let noticed = std::thread::spawn(move || {
        run(&mut waiting, "search cn=notice,ou=codes,dc=one base (objectClass=*)")
    });
    assert!(becomes(|| flags(&mut watcher, 1, 1) == "anonymous,initialized,closing"));
    let refused = run(&mut client, "search dc=one base (objectClass=*) 1.1");
    assert!(refused.starts_with("=> 53") && refused.contains("max-target-conns"), "{refused}");
    assert!(noticed.join().unwrap().starts_with("=> 11"));
    assert!(becomes(|| flags(&mut watcher, 1, 1) == "closed"));
    assert!(run(&mut client, "search dc=one base (objectClass=*) 1.1").contains("=> 0"));
    let shown = run(
        &mut watcher,
        "search \"cn=Target 1,cn=Targets,cn=Database 1,cn=Databases,cn=Monitor\" base (objectClass=*) +",
    );
    assert!(shown.contains("olmTgtTimeoutOps: 1"), "{shown}");
}
