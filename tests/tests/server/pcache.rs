//! `overlay pcache`: answers of another server that are kept, beside slapd's overlay in front of the same server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, codes_alone, run};
use larix_tests::relay::{Passage, Relay};
use larix_tests::running::Running;
use larix_tests::scenario;

/// The remote server: `mobile` is for ann alone.
fn remote() -> Running {
    let body = "database mdb\nsuffix o=x\nrootdn cn=admin,o=x\nrootpw secret\ndirectory @DATA@\nindex uid eq\n\
                access to attrs=userPassword by self =xw by anonymous auth by * none\n\
                access to attrs=mobile by dn.exact=uid=ann,ou=users,o=x read by * none\n\
                access to * by * read\n";
    let person = |uid: &str| {
        format!(
            "dn: uid={uid},ou=users,o=x\nobjectClass: inetOrgPerson\nuid: {uid}\ncn: {uid}\nsn: {uid}son\n\
             mail: {uid}@x\nmobile: 1\nuserPassword: {uid}pw\n\n"
        )
    };
    let top = "dn: o=x\nobjectClass: organization\no: x\n\ndn: ou=users,o=x\nobjectClass: organizationalUnit\nou: users\n\n";
    let people: String = ["ann", "bob", "bill", "eve"].map(person).concat();
    Running::start(Kind::Larix, body, &format!("{top}{people}"))
}

const TEMPLATES: &str = "pcache mdb 100 2 3 1\npcacheAttrset 0 cn sn mail\npcacheAttrset 1 uid mobile\n\
                         pcacheTemplate (uid=) 0 1h 1h 1h\npcacheTemplate (uid=) 1 1h 1h\n\
                         pcacheTemplate (&(objectClass=)(uid=)) 0 1h 1h\npcacheTemplate (sn=) 0 1h 0 0 1\n";

/// The server in front.
fn in_front(kind: Kind, remote: SocketAddr, (head, lines): (&str, &str)) -> Running {
    let (modules, store) = match kind {
        Kind::Slapd => ("moduleload back_ldap\nmoduleload pcache\n", "directory @DATA@\nindex uid,sn eq\n"),
        _ => ("", ""),
    };
    let body = format!(
        "{modules}database ldap\nsuffix o=x\nrootdn cn=root,o=x\nrootpw secret\nuri ldap://{remote}\n{head}\
         overlay pcache\n{TEMPLATES}{lines}\n{store}"
    );
    Running::start(kind, &body, "")
}

/// Whether so much time has passed since the first call.
#[expect(clippy::disallowed_methods, reason = "what is kept for a time is what it is about")]
fn has_passed(since: &mut Option<Instant>, time: Duration) -> bool {
    since.get_or_insert_with(Instant::now).elapsed() > time
}

fn set(remote: &mut Client, uid: &str, mail: &str) {
    let answer = run(remote, &format!("modify uid={uid},ou=users,o=x\n  replace mail: {mail}"));
    assert!(answer.contains("=> 0"), "{answer}");
}

/// Who administers the remote server, past the cache.
fn admin(remote: &Running) -> Client {
    let mut client = remote.client();
    assert!(run(&mut client, "as cn=admin,o=x secret").contains("=> 0"));
    client
}

/// All of them, then the same again when every mail has changed at the remote server: what is answered from the cache has the old one.
const SEARCHES: &str = "search o=x sub (uid=ann) cn mail
search o=x sub (uid=nobody) mail
search o=x sub (uid=b*) mail
search o=x sub (uid=*e) sn mail size=1
search o=x sub (uid=eve) cn sn mail telephoneNumber
search o=x sub (&(objectClass=person)(uid=eve)) mail
search o=x sub (mail=bob@x) mail
search ou=users,o=x one (uid=bob) mail
search uid=bob,ou=users,o=x base (uid=bob) mail
search uid=nobody,ou=users,o=x base (uid=nobody) mail
search o=x sub (uid=ann) mail typesonly
search ou=nowhere,o=x sub (uid=ann) mail
";

#[test]
fn answers_as_slapd_keeps_them() {
    let answers = |kind| {
        let remote = remote();
        let front = in_front(kind, remote.server.address, ("", ""));
        let (mut client, mut admin) = (front.client(), admin(&remote));
        let steps = scenario::parse(SEARCHES);
        let mut all: Vec<String> = Vec::new();
        for mail in ["1@x", "2@x"] {
            for step in &steps {
                all.push(format!("{mail} {}\n{}", step.request, client.run(step)));
            }
            for uid in ["ann", "bob", "bill", "eve"] {
                set(&mut admin, uid, mail);
            }
        }
        all
    };
    let ours = answers(Kind::Larix);
    let has = |request: &str, expected: &str| {
        let found = ours.iter().find(|answer| answer.starts_with(request)).unwrap();
        assert!(found.contains(expected), "{found} lacks {expected}");
    };
    has("2@x search o=x sub (uid=ann) cn mail", "mail: ann@x");
    has("2@x search o=x sub (uid=b*) mail", "mail: bill@x");
    has("2@x search uid=bob,ou=users,o=x base (uid=bob) mail", "mail: bob@x");
    has("2@x search o=x sub (uid=eve) cn sn mail telephoneNumber", "mail: 1@x");
    has("2@x search o=x sub (mail=bob@x) mail", "=> 0");
    has("2@x search ou=nowhere,o=x sub (uid=ann) mail", "=> 32");
    if Kind::Slapd.is_lacking_module("pcache") {
        return;
    }
    let theirs = answers(Kind::Slapd);
    // slapd takes that nothing was found below the suffix for an answer about a base of which it does not know that it is there.
    let is_known = |one: &str, other: &str| {
        one.contains("search uid=nobody,") && one.contains("=> 32") && other.contains("=> 0")
    };
    let pairs = ours.iter().zip(&theirs).filter(|(one, other)| codes_alone(one) != codes_alone(other));
    let differences: Vec<_> = pairs.filter(|(one, other)| !is_known(one, other)).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// An answer is for those alone who are the same to the remote server, unless the configuration says that it is for all; then the access
/// rules here say what of it they see.
#[test]
fn answers_are_for_who_was_answered() {
    let mobile = "search o=x sub (uid=eve) uid mobile";
    for (lines, others) in [("", false), ("pcacheShared TRUE\n", true)] {
        let remote = remote();
        let rules = "access to dn.exact=\"uid=eve,ou=users,o=x\" attrs=mobile by dn.exact=\"uid=bob,ou=users,o=x\" read by dn.exact=\"uid=ann,ou=users,o=x\" read by * none\n\
                     access to * by * read\n";
        let front = in_front(Kind::Larix, remote.server.address, (rules, lines));
        let (mut ann, mut bob, mut anyone) = (front.client(), front.client(), front.client());
        assert!(run(&mut ann, "as uid=ann,ou=users,o=x annpw").contains("=> 0"));
        assert!(run(&mut bob, "as uid=bob,ou=users,o=x bobpw").contains("=> 0"));
        assert!(run(&mut ann, mobile).contains("mobile: 1"));
        let seen = run(&mut bob, mobile);
        assert!(seen.contains("uid: eve") && seen.contains("mobile: 1") == others, "{lines}: {seen}");
        let seen = run(&mut anyone, mobile);
        assert!(seen.contains("uid: eve") && !seen.contains("mobile"), "{lines}: {seen}");
        assert!(run(&mut ann, mobile).contains("mobile: 1"));
        // A second connection of the same name is the same to the remote server.
        let mut again = front.client();
        assert!(run(&mut again, "as uid=ann,ou=users,o=x annpw").contains("=> 0"));
        let mut admin = admin(&remote);
        assert!(run(&mut admin, "modify uid=eve,ou=users,o=x\n  replace mobile: 2").contains("=> 0"));
        assert!(run(&mut again, mobile).contains("mobile: 1"));
        // Who may not search an attribute finds nothing by it here.
        let rules = "access to attrs=uid by anonymous none by * read\naccess to * by * read\n";
        let front = in_front(Kind::Larix, remote.server.address, (rules, lines));
        let mut anyone = front.client();
        for _ in 0..2 {
            let seen = run(&mut anyone, "search o=x sub (uid=ann) cn");
            assert!(!seen.contains("ann") || seen.starts_with("=> 0"), "{seen}");
            assert!(seen.contains("=> 0") && !seen.contains("cn:"), "{seen}");
        }
    }
}

/// What the remote server has not answered whole is not kept, and what it has answered stays when it is gone.
#[test]
fn a_remote_server_that_goes() {
    let remote = remote();
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let lines = "pcacheBind (&(objectClass=person)(uid=)) 0 1h sub ou=users,o=x\n";
    let front = in_front(Kind::Larix, relay.address, ("network-timeout 5\ntimeout 5\n", lines));
    let mut client = front.client();
    for (request, expected) in [
        ("as uid=ann,ou=users,o=x wrong", "=> 49"),
        ("as uid=ann,ou=users,o=x annpw", "=> 0"),
        ("as cn=root,o=x secret", "=> 0"),
        ("as uid=bob,ou=users,o=x bobpw", "=> 0"),
        // A password that is changed on the way is known, too. What was known of the tree before is not any more.
        ("passwd uid=bob,ou=users,o=x new=next", "=> 0"),
        ("anonymous", "=> 0"),
        ("search o=x sub (sn=annson) mail", "mail: ann@x"),
        ("search o=x sub (uid=ann) mail", "mail: ann@x"),
    ] {
        let answer = run(&mut client, request);
        assert!(answer.contains(expected), "{request}: {answer}");
    }
    // The answer stops in the middle of its second entry.
    relay.silent_after(200);
    let cut = run(&mut client, "search o=x sub (uid=b*) mail");
    assert!(!cut.contains("=> 0"), "{cut}");
    relay.set(Passage::Cut);
    let mut client = front.client();
    for (request, expected) in [
        ("search o=x sub (uid=b*) mail", "=> 52"),
        ("search o=x sub (uid=bob) mail", "=> 52"),
        ("search o=x sub (uid=ann) mail", "mail: ann@x"),
        ("as uid=ann,ou=users,o=x annpw", "=> 0"),
        ("as uid=ann,ou=users,o=x wrong", "=> 52"),
        ("as uid=bob,ou=users,o=x next", "=> 0"),
        ("as uid=bob,ou=users,o=x bobpw", "=> 52"),
        ("as uid=eve,ou=users,o=x evepw", "=> 52"),
    ] {
        let answer = run(&mut client, request);
        assert!(answer.contains(expected), "{request}: {answer}");
    }
    // Its time to be read anew has come, and there is nobody to read it from: what was known stands.
    let mut client = front.client();
    let mut since = None;
    while !has_passed(&mut since, Duration::from_secs(3)) {
        let answer = run(&mut client, "search o=x sub (sn=annson) mail");
        assert!(answer.contains("mail: ann@x"), "{answer}");
    }
    relay.set(Passage::Open);
    let mut client = front.client();
    assert!(run(&mut client, "search o=x sub (uid=b*) mail").matches("mail:").count() == 2);
}

/// Changes that go through the proxy are seen at once, and an answer is read anew when its time has come.
#[test]
fn changes_through_the_proxy_are_seen() {
    let remote = remote();
    let front = in_front(Kind::Larix, remote.server.address, ("", ""));
    let (mut reader, mut writer, mut admin) = (front.client(), front.client(), admin(&remote));
    assert!(run(&mut writer, "as cn=admin,o=x secret").contains("=> 0"));
    let mail = "search o=x sub (uid=bob) mail";
    assert!(run(&mut reader, mail).contains("mail: bob@x"));
    set(&mut admin, "bob", "other@x");
    assert!(run(&mut reader, mail).contains("mail: bob@x"));
    set(&mut writer, "ann", "third@x");
    assert!(run(&mut reader, mail).contains("mail: other@x"));
    for (request, search, expected) in [
        ("delete uid=bob,ou=users,o=x", mail, "=> 0"),
        ("modrdn uid=eve,ou=users,o=x uid=bob keep", mail, "mail: eve@x"),
        ("modrdn uid=bob,ou=users,o=x uid=adam delete", mail, "=> 0"),
    ] {
        let answer = run(&mut writer, request);
        assert!(answer.contains("=> 0"), "{request}: {answer}");
        let seen = run(&mut reader, search);
        assert!(seen.contains(expected) && !seen.contains("other@x"), "{request}: {seen}");
    }
    // The template of sn has a time to refresh of a second.
    assert!(run(&mut reader, "search o=x sub (sn=annson) mail").contains("third@x"));
    set(&mut admin, "ann", "fourth@x");
    let mut since = None;
    while !run(&mut reader, "search o=x sub (sn=annson) mail").contains("fourth@x") {
        assert!(!has_passed(&mut since, Duration::from_secs(120)), "it is not read anew");
    }
    // What is there no more is not answered until it would have expired.
    assert!(run(&mut admin, "delete uid=ann,ou=users,o=x").contains("=> 0"));
    let mut since = None;
    while run(&mut reader, "search o=x sub (sn=annson) mail").contains("mail:") {
        assert!(!has_passed(&mut since, Duration::from_secs(120)), "it stays");
    }
}

/// An answer that is used is read again while searches go on with what there is: none of them waits for the remote server.
#[test]
fn no_search_waits_for_an_answer_that_is_read_again() {
    let remote = remote();
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let body = format!(
        "database ldap\nsuffix o=x\nuri ldap://{}\ntimeout search=20\noverlay pcache\npcache mdb 100 1 3 10\n\
         pcacheAttrset 0 mail\npcacheTemplate (sn=) 0 1h 0 0 1\n",
        relay.address
    );
    let front = Running::start(Kind::Larix, &body, "");
    let (mut client, mut admin) = (front.client(), admin(&remote));
    let request = "search o=x sub (sn=annson) mail";
    assert!(run(&mut client, request).contains("mail: ann@x"));
    set(&mut admin, "ann", "new@x");
    relay.set(Passage::Silent);
    let mut since = None;
    while !has_passed(&mut since, Duration::from_secs(3)) {
        let mut began = None;
        has_passed(&mut began, Duration::ZERO);
        assert!(run(&mut client, request).contains("mail: ann@x"));
        // One that waits does so for 20 seconds.
        assert!(!has_passed(&mut began, Duration::from_secs(15)), "a search has waited");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    relay.set(Passage::Open);
    let mut since = None;
    while !run(&mut client, request).contains("mail: new@x") {
        assert!(!has_passed(&mut since, Duration::from_secs(120)), "it is not read again");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The root DN sees what is kept by OpenLDAP's control privateDB, with the queries that it is kept for.
#[test]
fn the_root_dn_sees_what_is_kept() {
    const CONTROL: &str = "1.3.6.1.4.1.4203.666.11.9.5.1";
    let remote = remote();
    let front = in_front(Kind::Larix, remote.server.address, ("", ""));
    let (mut client, mut root) = (front.client(), front.client());
    assert!(run(&mut root, "as cn=root,o=x secret").contains("=> 0"));
    let answer_with =
        |client: &mut Client, what: &str, control: &str| run(client, &format!("{what} with {control}"));
    let all = "search o=x sub (objectClass=*) cn mobile pcacheQueryID";
    let empty = answer_with(&mut root, all, &format!("!{CONTROL}"));
    assert!(empty.starts_with("=> 0") && !empty.contains("uid="), "{empty}");
    for request in
        ["search o=x sub (uid=ann) cn", "search o=x sub (uid=a*) mobile", "search o=x sub (uid=bob) cn"]
    {
        assert!(run(&mut client, request).contains("=> 0"));
    }
    for (request, control, entries, ids, code) in [
        (all, "!", 2, 3, "=> 0"),
        ("search uid=ann,ou=users,o=x base (uid=ann) pcacheQueryID", "!", 1, 2, "=> 0"),
        ("search ou=users,o=x one (cn=bob) pcacheQueryID", "!", 1, 1, "=> 0"),
        ("search o=x sub (objectClass=*) pcacheQueryID size=1", "!", 1, 2, "=> 4"),
        ("search uid=eve,ou=users,o=x base (objectClass=*)", "!", 0, 0, "=> 32"),
        (all, "", 0, 0, "=> 2"),
        ("compare uid=ann,ou=users,o=x cn:ann", "!", 0, 0, "=> 12"),
    ] {
        let answer = answer_with(&mut root, request, &format!("{control}{CONTROL}"));
        assert!(answer.contains(code), "{request}: {answer}");
        let count = |what: &str| answer.matches(what).count();
        assert_eq!((count("-> uid="), count("pcacheQueryID: ")), (entries, ids), "{request}: {answer}");
    }
    let refused = answer_with(&mut client, all, &format!("!{CONTROL}"));
    assert!(refused.starts_with("=> 53"), "{refused}");
}

/// Many clients ask for the same at once while it changes: who has changed something sees it, and nobody sees half of an answer.
#[test]
fn the_same_query_at_once() {
    let remote = remote();
    let front = in_front(Kind::Larix, remote.server.address, ("", ""));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = front.client();
                for _ in 0..100 {
                    let seen = run(&mut client, "search o=x sub (uid=b*) mail");
                    assert!(seen.contains("=> 0") && seen.matches("mail:").count() == 2, "{seen}");
                }
            });
        }
        scope.spawn(|| {
            let mut client = front.client();
            assert!(run(&mut client, "as cn=admin,o=x secret").contains("=> 0"));
            for round in 0..50 {
                set(&mut client, "bob", &format!("{round}@x"));
                let seen = run(&mut client, "search o=x sub (uid=bob) mail");
                assert!(seen.contains(&format!("mail: {round}@x")), "{round}: {seen}");
            }
        });
    });
}

/// The cache stays when the configuration changes, and goes offline by it.
#[test]
fn a_cache_that_goes_offline() {
    let remote = remote();
    let head = "";
    let body = format!(
        "database config\nrootpw config\ndatabase ldap\nsuffix o=x\nrootdn cn=root,o=x\nrootpw secret\nuri ldap://{}\n{head}\
         overlay pcache\npcache mdb 100 1 3 1\npcacheAttrset 0 cn mail\npcacheTemplate (uid=) 0 1 1\n",
        remote.server.address
    );
    let front = Running::start(Kind::Larix, &body, "");
    let (mut client, mut config, mut admin) = (front.client(), front.client(), admin(&remote));
    assert!(run(&mut config, "as cn=config config").contains("=> 0"));
    let set_offline = |config: &mut Client, value: &str| {
        let request = format!(
            "modify olcOverlay={{0}}pcache,olcDatabase={{1}}ldap,cn=config\n  replace olcPcacheOffline: {value}"
        );
        let answer = run(config, &request);
        assert!(answer.contains("=> 0"), "{answer}");
    };
    let mail = "search o=x sub (uid=bob) mail";
    set_offline(&mut config, "TRUE");
    assert!(run(&mut client, mail).contains("mail: bob@x"));
    set(&mut admin, "bob", "other@x");
    let mut since = None;
    while !has_passed(&mut since, Duration::from_secs(2)) {
        assert!(run(&mut client, mail).contains("mail: bob@x"));
    }
    set_offline(&mut config, "FALSE");
    assert!(run(&mut client, mail).contains("mail: other@x"));
}

/// Several clients that ask for the same while the remote server is asked for it get its one answer.
#[test]
fn one_asks_for_several() {
    const CLIENTS: usize = 4;
    let remote = remote();
    let relay = Relay::recording();
    relay.lead_to(remote.server.address);
    let front = in_front(
        Kind::Larix,
        relay.address,
        ("timeout search=20\n", "database monitor\naccess to * by * read\n"),
    );
    let mut first = front.client();
    assert!(run(&mut first, "search o=x sub (uid=ann) mail").contains("mail: ann@x"));
    relay.set(Passage::Silent);
    std::thread::scope(|scope| {
        let ask = || run(&mut front.client(), "search o=x sub (uid=eve) mail");
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
        // All have asked by then, or the test proves less.
        std::thread::park_timeout(Duration::from_millis(500));
        relay.set(Passage::Open);
        for client in clients {
            let answer = client.join().unwrap();
            assert!(answer.contains("mail: eve@x") && answer.contains("=> 0"), "{answer}");
        }
    });
    let sent: Vec<u8> =
        relay.recorded().into_iter().filter(|chunk| !chunk.to_client).flat_map(|chunk| chunk.bytes).collect();
    for (attribute, expected) in [("pcacheNumQueries", "2"), ("pcacheNumEntries", "2")] {
        let shown = first.value("cn=Overlay 0,cn=Database 1,cn=Databases,cn=Monitor", attribute);
        assert_eq!(shown.as_deref(), Some(expected), "{attribute}");
    }
    // The last used first.
    let url = first.value("cn=Overlay 0,cn=Database 1,cn=Databases,cn=Monitor", "pcacheQueryURL").unwrap();
    let parts: Vec<&str> = url.split(',').collect();
    assert_eq!(parts[..2], ["ldap:///o=x??sub?(uid=eve)?x-template=0", "x-attrset=0"], "{url}");
    assert!(parts[2].starts_with("x-expiry=") && parts[3] == "x-answerable=TRUE", "{url}");
    assert_eq!(sent.windows(3).filter(|part| part == b"eve").count(), 1);
}

/// What was known is known after a restart; the file is there between two runs alone, for its owner.
#[test]
fn a_cache_survives_a_restart() {
    let remote = remote();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pcache.saved");
    let body = |more: &str| {
        format!(
            "database ldap\nsuffix o=x\nrootdn cn=root,o=x\nrootpw secret\nuri ldap://{}\n{more}overlay pcache\n{TEMPLATES}\
             pcachePersist TRUE\ndirectory {}\n",
            remote.server.address,
            folder.path().display()
        )
    };
    let site = Site::new(Kind::Larix, &body(""));
    let ask = |address: SocketAddr, uid: &str| {
        run(&mut Client::connect(address), &format!("search o=x sub (uid={uid}) mail"))
    };
    let server = site.start().unwrap();
    assert!(ask(server.address, "ann").contains("mail: ann@x"));
    assert!(ask(server.address, "nobody").starts_with("=> 0"));
    assert!(server.stop());
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut admin = admin(&remote);
    for uid in ["ann", "bob"] {
        set(&mut admin, uid, "new@x");
    }
    let server = site.start().unwrap();
    assert!(!file.exists(), "a crash leaves nothing that may be wrong by then");
    assert!(ask(server.address, "ann").contains("mail: ann@x"));
    assert!(ask(server.address, "bob").contains("mail: new@x"));
    assert!(server.stop() && file.exists());
    // With other settings of the remote server it is not used.
    let other = Site::new(Kind::Larix, &body("norefs yes\n"));
    let server = other.start().unwrap();
    assert!(!file.exists());
    assert!(ask(server.address, "ann").contains("mail: new@x"));
    assert!(server.stop());
}

/// Answers are forgotten on request by who may manage what they are about.
#[test]
fn kept_answers_are_forgotten_on_request() {
    let remote = remote();
    let monitor = "database monitor\naccess to * by * read\n";
    let front = in_front(Kind::Larix, remote.server.address, ("", monitor));
    let (mut client, mut admin) = (front.client(), admin(&remote));
    let request_of = |tag: u8, name: &str, number: &[u8]| {
        let length = u8::try_from(name.len()).unwrap();
        let behind = if number.is_empty() { vec![] } else { [&[0xa2, 16], number].concat() };
        let whole = length + 2 + u8::try_from(behind.len()).unwrap();
        let bytes = [0x30, whole, tag, length].into_iter().chain(name.bytes()).chain(behind);
        let hex: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
        format!("extended 1.3.6.1.4.1.4203.666.11.9.6.1 \"{}\"", hex.join(" "))
    };
    let request = |tag: u8, name: &str| request_of(tag, name, &[]);
    let entry = request(0xa1, "uid=ann,ou=users,o=x");
    let mail = |client: &mut Client, uid: &str| {
        let answer = run(client, &format!("search o=x sub (uid={uid}) mail"));
        answer
            .lines()
            .find_map(|line| Some(line.trim().strip_prefix("mail: ")?.to_owned()))
            .unwrap_or_default()
    };
    let mails = |client: &mut Client| [mail(client, "ann"), mail(client, "bob")].join(" ");
    assert_eq!(mails(&mut client), "ann@x bob@x");
    for uid in ["ann", "bob"] {
        set(&mut admin, uid, "new@x");
    }
    let mut eve = front.client();
    assert!(run(&mut eve, "as uid=eve,ou=users,o=x evepw").starts_with("=> 0"));
    let refused = run(&mut eve, &entry);
    assert!(refused.starts_with("=> 50"), "not everybody may: {refused}");
    assert_eq!(mails(&mut client), "ann@x bob@x");
    let mut root = front.client();
    assert!(run(&mut root, "as cn=root,o=x secret").starts_with("=> 0"));
    assert!(run(&mut root, &entry).starts_with("=> 0"));
    assert_eq!(mails(&mut client), "new@x bob@x");
    assert!(run(&mut root, &request(0xa0, "ou=nowhere,o=x")).starts_with("=> 0"));
    assert_eq!(mails(&mut client), "new@x bob@x");
    // One query by its UUID, which cn=Monitor shows: the one that was used last.
    assert_eq!(mail(&mut client, "bob"), "bob@x");
    let url = client.value("cn=Overlay 0,cn=Database 1,cn=Databases,cn=Monitor", "pcacheQueryURL").unwrap();
    assert!(url.contains("(uid=bob)"), "{url}");
    let (_, uuid) = url.split_once("x-uuid=").unwrap();
    let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).unwrap().to_be_bytes();
    let one = request_of(0xa0, "o=x", &number);
    assert!(run(&mut eve, &one).starts_with("=> 50"));
    assert!(run(&mut root, &one).starts_with("=> 0"));
    assert!(run(&mut root, &one).starts_with("=> 32"));
    assert_eq!(mails(&mut client), "new@x new@x");
    set(&mut admin, "bob", "newer@x");
    assert_eq!(mail(&mut client, "bob"), "new@x");
    assert!(run(&mut root, &request(0xa0, "o=x")).starts_with("=> 0"));
    assert_eq!(mails(&mut client), "new@x newer@x");
    assert!(run(&mut root, "extended 1.3.6.1.4.1.4203.666.11.9.6.1").starts_with("=> 2"));
}
