//! `overlay psearch`: searches that go on with changes (draft-ietf-ldapext-psearch-03).

use std::io::{Read, Write};
use std::net::TcpStream;

use larix_proto::control::{ChangeType, EntryChangeNotification, PersistentSearch};
use larix_proto::{
    ControlBuf, ControlValue, FilterBuf, Frame, MessageId, Response, Scope, client, frame, oid,
};
use larix_testkit::Kind;
use larix_tests::client::Client;
use larix_tests::raw::PATIENCE;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask, people};

const ALL: u8 = 15;

/// A client with one such search.
struct Watcher {
    socket: TcpStream,
    input: Vec<u8>,
}

struct SearchSpec<'a> {
    who: &'a str,
    base: &'a str,
    filter: &'a str,
    types: u8,
    changes_only: bool,
    return_ecs: bool,
    others: &'a [ControlBuf],
}

impl Default for SearchSpec<'_> {
    fn default() -> Self {
        let others = &[];
        Self {
            who: ADMIN,
            base: SUFFIX,
            filter: "(uid=*)",
            types: ALL,
            changes_only: true,
            return_ecs: true,
            others,
        }
    }
}

impl Watcher {
    fn new(member: &Member, spec: &SearchSpec<'_>) -> Self {
        let mut socket = TcpStream::connect(member.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut out = Vec::new();
        let password: &[u8] = if spec.who.is_empty() { b"" } else { b"secret" };
        client::simple_bind(&mut out, MessageId(1), spec.who, password, &[]);
        socket.write_all(&out).unwrap();
        let mut watcher = Self { socket, input: Vec::new() };
        assert_eq!(watcher.next(), "bound 0");
        watcher.search(2, spec);
        watcher
    }

    fn search(&mut self, id: u32, spec: &SearchSpec<'_>) {
        let filter = FilterBuf::parse(spec.filter).unwrap();
        let search = client::Search {
            attributes: &["title"],
            ..client::Search::new(spec.base, Scope::Subtree, filter.as_filter())
        };
        let SearchSpec { types, changes_only, return_ecs, .. } = *spec;
        let control = PersistentSearch { change_types: types, changes_only, return_ecs };
        let mut controls = vec![control.to_control(true)];
        controls.extend_from_slice(spec.others);
        let mut out = Vec::new();
        client::search(&mut out, MessageId(id), &search, &controls);
        self.socket.write_all(&out).unwrap();
    }

    /// Waits until the search has begun: until the next request is answered.
    fn begun(mut self) -> Self {
        let request = larix_tests::raw::search(100, "", Scope::Base, "(objectClass=*)");
        self.socket.write_all(&request).unwrap();
        assert_eq!((self.next(), self.next()), ("entry ".to_owned(), "done 0 ".to_owned()));
        self
    }

    fn receive(&mut self) -> Vec<u8> {
        loop {
            if let Ok(Frame::Complete { len }) = frame(&self.input, 64 << 20) {
                return self.input.drain(..len).collect();
            }
            let mut chunk = [0; 65536];
            let count = self.socket.read(&mut chunk).expect("something comes");
            assert!(count > 0, "the connection was closed");
            self.input.extend_from_slice(&chunk[..count]);
        }
    }

    /// The next message in short.
    fn next(&mut self) -> String {
        let pdu = self.receive();
        let message = Response::decode_message(&pdu).expect("a response");
        match message.response {
            Response::Bind { result, .. } => format!("bound {}", result.code.0),
            Response::SearchDone(result) => format!("done {} {}", result.code.0, result.diagnostic),
            Response::Entry(entry) => {
                let control = message.controls.iter().find(|c| c.oid == EntryChangeNotification::OID);
                let notification =
                    control.map(|c| EntryChangeNotification::decode(c.value).expect("a notification"));
                let kind = notification.map_or("entry", |notification| match notification.change_type {
                    ChangeType::Add => "add",
                    ChangeType::Delete => "delete",
                    ChangeType::Modify => "modify",
                    ChangeType::ModDn => "rename",
                });
                let rdn = |dn: &str| dn.split(',').next().unwrap_or_default().to_owned();
                let titles = entry.attributes.iter().flat_map(|attribute| attribute.values.iter());
                let titles: String =
                    titles.map(|value| format!(" {}", String::from_utf8_lossy(value))).collect();
                let before = notification
                    .and_then(|notification| notification.previous_dn)
                    .map(|dn| format!(" < {}", rdn(dn)));
                format!("{kind} {}{titles}{}", rdn(entry.dn), before.unwrap_or_default())
            }
            other => panic!("{other:?}"),
        }
    }

    /// All that comes up to an entry.
    fn up_to(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let next = self.next();
            assert!(!next.starts_with("done"), "{next} after {lines:?}");
            if next == last {
                return lines;
            }
            lines.push(next);
        }
    }
}

fn started(database: &str) -> Member {
    let member = Member::new(Kind::Larix, "", &format!("overlay psearch\n{database}"));
    member.site.load_into(Some(SUFFIX), &people(4));
    member.started()
}

fn person(uid: &str) -> String {
    format!(
        "add \"uid={uid},ou=people,{SUFFIX}\"\n  objectClass: inetOrgPerson\n  uid: {uid}\n  cn: N\n  sn: N\n\n"
    )
}

/// A change of each kind.
fn changes() -> String {
    format!(
        "{}modify \"uid=u1,ou=people,{SUFFIX}\"\n  replace title: Boss\n\n\
         modrdn \"uid=u2,ou=people,{SUFFIX}\" uid=u2b delete\n\n\
         delete \"uid=u3,ou=people,{SUFFIX}\"\n\n{}",
        person("new"),
        person("end"),
    )
}

#[test]
fn changes_are_told_as_they_were_asked_for() {
    let check = |spec: &SearchSpec<'_>, expected: &[&str], last: &str| {
        let member = started("");
        let mut watcher = Watcher::new(&member, spec);
        let mut received = Vec::new();
        if spec.changes_only {
            watcher = watcher.begun();
        } else {
            received.extend((0..4).map(|_| watcher.next()));
            received.sort();
        }
        member.change(&changes());
        received.extend(watcher.up_to(last));
        assert_eq!(received, expected, "{} {}", spec.types, spec.filter);
    };
    let all = SearchSpec::default();
    check(
        &all,
        &["add uid=new", "modify uid=u1 Boss", "rename uid=u2b < uid=u2", "delete uid=u3"],
        "add uid=end",
    );
    let bare = SearchSpec { changes_only: false, return_ecs: false, types: 1 | 8, ..SearchSpec::default() };
    let found = ["entry uid=u0", "entry uid=u1", "entry uid=u2", "entry uid=u3"];
    check(&bare, &[&found[..], &["entry uid=new", "entry uid=u2b"]].concat(), "entry uid=end");
    // What does not match is not told, and what has come to match is.
    let some = SearchSpec { filter: "(|(uid=u2b)(uid=u3)(uid=end))", ..SearchSpec::default() };
    check(&some, &["rename uid=u2b", "delete uid=u3"], "add uid=end");
}

#[test]
fn rights_are_judged_when_an_entry_is_sent() {
    let rules = format!(
        "access to filter=(title=secret) by dn.exact=\"{ADMIN}\" write by * none\n\
         access to attrs=title by users read by * none\naccess to * by * read\n"
    );
    let member = started(&rules);
    let mut watcher = Watcher::new(&member, &SearchSpec { who: "", ..SearchSpec::default() }).begun();
    let entry = |uid: &str| format!("\"uid={uid},ou=people,{SUFFIX}\"");
    // What it may not see is not told, whatever is done to it, and comes back as somebody else's change makes it visible.
    member.change(&format!("modify {}\n  replace title: secret\n\n", entry("u1")));
    member.change(&format!("modify {}\n  replace title: plain\n\n", entry("u2")));
    member.change(&format!("modrdn {} uid=u1b delete\n\n", entry("u1")));
    member.change(&format!("delete {}\n\n", entry("u1b")));
    member.change(&format!("modify {}\n  replace title: secret\n\n", entry("u3")));
    // What counts is what an entry is when it is sent, so each of these is waited for.
    member.change(&person("hidden"));
    assert_eq!(watcher.up_to("add uid=hidden"), ["modify uid=u2"]);
    member.change(&format!("modify {}\n  delete title\n\n", entry("u3")));
    assert!(watcher.up_to("modify uid=u3").is_empty());
    member.change(&format!("delete {}\n\n", entry("u3")));
    member.change(&person("end"));
    assert_eq!(watcher.up_to("add uid=end"), ["delete uid=u3"]);
    // Rules that change change what is told of.
    let mut config = Client::connect(member.address());
    assert_eq!(ask(&mut config, "as cn=config secret"), "=> 0\n");
    let hidden = "modify \"olcDatabase={1}mdb,cn=config\"\n  add olcAccess: {0}to dn.regex=uid=(u0|u2|end).* by * none";
    assert_eq!(ask(&mut config, hidden), "=> 0\n");
    member.change(&format!("delete {}\n\ndelete {}\n\n{}", entry("u0"), entry("end"), person("last")));
    assert_eq!(watcher.up_to("add uid=last"), [""; 0]);
}

/// What is done in a transaction is told at once, so an entry is gone when its superior's new place is looked at.
#[test]
fn nothing_is_named_in_a_place_that_rules_hide() {
    let member = started(&format!(
        "access to dn.subtree=\"ou=groups,{SUFFIX}\" by dn.exact=\"{ADMIN}\" write by * none\n\
         access to attrs=userPassword by * auth\naccess to * by * read\n"
    ));
    let unit = format!("\"ou=team,ou=people,{SUFFIX}\"");
    member.change(&format!("add {unit}\n  objectClass: organizationalUnit\n  ou: team\n\n"));
    for number in 0..2 {
        let moved = format!("\"uid=u{number},ou=people,{SUFFIX}\" uid=u{number} keep {unit}");
        member.change(&format!("modrdn {moved}\n\n"));
    }
    let mut watcher = Watcher::new(&member, &SearchSpec { who: "", ..SearchSpec::default() }).begun();
    let mut client = member.client();
    let hidden = format!("ou=team,ou=groups,{SUFFIX}");
    for request in [
        "extended 1.3.6.1.1.21.1".to_owned(),
        format!("modrdn {unit} ou=team keep \"ou=groups,{SUFFIX}\" with !txn"),
        format!("delete \"uid=u0,{hidden}\" with !txn"),
        format!("modrdn \"uid=u1,{hidden}\" uid=u1 keep \"ou=people,{SUFFIX}\" with !txn"),
        "extended 1.3.6.1.1.21.3 \"30 02 04 00\"".to_owned(),
    ] {
        let answer = ask(&mut client, &request);
        assert!(answer.starts_with("=> 0"), "{request}: {answer}");
    }
    member.change(&person("end"));
    assert_eq!(watcher.up_to("add uid=end"), ["rename uid=u1"]);
}

#[test]
fn it_is_there_where_it_was_configured() {
    let member = started("");
    let control = |watcher: &mut Watcher| watcher.next();
    // Elsewhere a critical one is refused.
    let check = |spec: &SearchSpec<'_>, expected: &str| {
        assert_eq!(control(&mut Watcher::new(&member, spec)), expected);
    };
    check(
        &SearchSpec { base: "cn=Subschema", ..SearchSpec::default() },
        "done 12 critical control unavailable in context",
    );
    check(&SearchSpec { base: "ou=none,dc=example,dc=com", ..SearchSpec::default() }, "done 32 ");
    let paged = ControlBuf {
        oid: oid::PAGED_RESULTS.into(),
        critical: true,
        value: Some(b"\x30\x05\x02\x01\x05\x04\x00".to_vec()),
    };
    check(
        &SearchSpec { others: &[paged], ..SearchSpec::default() },
        "done 2 persistent search control specified with pagedResults control",
    );
    let malformed =
        "done 2 persistent search control could not be decoded: changeTypes: not a number from 1 to 15";
    check(&SearchSpec { types: 0, ..SearchSpec::default() }, malformed);
    let listed = |member: &Member| {
        let mut client = member.client();
        ask(&mut client, "search \"\" base (objectClass=*) supportedControl").contains(oid::PERSISTENT_SEARCH)
    };
    assert!(listed(&member));
    let without = Member::new(Kind::Larix, "", "").started();
    assert!(!listed(&without));
    // It ends when the overlay goes.
    let mut watcher = Watcher::new(&member, &SearchSpec::default()).begun();
    let mut config = Client::connect(member.address());
    assert_eq!(ask(&mut config, "as cn=config secret"), "=> 0\n");
    assert_eq!(ask(&mut config, "delete \"olcOverlay={0}psearch,olcDatabase={1}mdb,cn=config\""), "=> 0\n");
    member.change(&person("late"));
    assert_eq!(watcher.next(), "done 52 the database does not tell its changes any more");
}

#[test]
fn a_connection_may_have_so_many_and_abandons_them() {
    let member = Member::new(Kind::Larix, "request-limits persistent=2\n", "overlay psearch\n");
    member.site.load_into(Some(SUFFIX), &people(1));
    let member = member.started();
    let mut watcher = Watcher::new(&member, &SearchSpec::default());
    watcher.search(3, &SearchSpec { types: 2, ..SearchSpec::default() });
    watcher.search(4, &SearchSpec::default());
    let refused = watcher.next();
    assert!(refused.starts_with("done 11 ") && refused.contains("persistent=)"), "{refused}");
    let mut out = Vec::new();
    client::abandon(&mut out, MessageId(5), MessageId(2), &[]);
    watcher.socket.write_all(&out).unwrap();
    watcher.search(6, &SearchSpec { types: 1, ..SearchSpec::default() });
    // With one of them abandoned the next begins; one tells of it.
    let mut watcher = watcher.begun();
    member.change(&person("a"));
    assert_eq!(watcher.next(), "add uid=a");
    member.change(&format!("delete \"uid=a,ou=people,{SUFFIX}\""));
    assert_eq!(watcher.next(), "delete uid=a");
}

#[test]
fn an_end_of_the_base_ends_it() {
    let member = started("");
    let base = format!("uid=u1,ou=people,{SUFFIX}");
    let mut watcher = Watcher::new(&member, &SearchSpec { base: &base, ..SearchSpec::default() }).begun();
    member.change(&format!("delete \"{base}\""));
    assert_eq!(watcher.next(), "delete uid=u1");
    assert_eq!(watcher.next(), "done 32 the search base is gone, or has another name");
}
