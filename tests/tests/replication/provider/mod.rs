//! Larix as provider (RFC 4533): what consumers receive, and that their copies are the content; with a real slapd as
//! consumer, too.

mod slapd;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use larix_load::generate::Random;
use larix_proto::control::{SortKey, SortRequest, SyncMode, SyncRequest};
use larix_proto::extended::SyncInfo;
use larix_proto::{ControlBuf, ControlValue as _, FilterBuf, MessageId, Response, Scope, client};
use larix_testkit::{Kind, Site, until};
use larix_tests::client::{Client, run};
use larix_tests::scripted::ScriptedProvider;
use larix_tests::sync::{Consumer, NamedEntry, SyncSearch, read};

const ADMIN: &str = "cn=admin,dc=example,dc=com";
const DATABASE: &str = "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\n\
                        rootpw secret\ndirectory @DATA@\nindex objectClass,uid,entryUUID,entryCSN eq\n";

fn site(more: &str) -> Site {
    Site::new(Kind::Larix, &format!("{DATABASE}{more}overlay syncprov\n"))
}

/// The suffix, two organizational units, and so many people.
fn content(people: usize) -> String {
    let mut ldif = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\n\
                    o: Example\n\n"
        .to_owned();
    for unit in ["a", "b"] {
        ldif += &format!("dn: ou={unit},dc=example,dc=com\nobjectClass: organizationalUnit\nou: {unit}\n\n");
    }
    for number in 0..people {
        let unit = if number % 2 == 0 { "a" } else { "b" };
        ldif += &format!(
            "dn: uid=p{number},ou={unit},dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: p{number}\n\
             cn: Person {number}\nsn: s{}\n\n",
            number % 3
        );
    }
    ldif
}

fn admin(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    assert!(run(&mut client, &format!("as {ADMIN} secret")).contains("=> 0"));
    client
}

fn change(client: &mut Client, request: &str) {
    let answer = run(client, request);
    assert!(answer.contains("=> 0"), "{request}\n{answer}");
}

/// What the provider has, as a refresh of its own gives it: the same without a cookie.
fn all(address: SocketAddr, search: &SyncSearch<'_>) -> BTreeMap<[u8; 16], NamedEntry> {
    let mut whole = Consumer::default();
    whole.ask(address, &SyncSearch { persist: false, ..search.clone() });
    let end = whole.refresh();
    assert_eq!(end.map(|end| end.code), Some(0));
    whole.entries
}

fn is_same(copy: &Consumer, address: SocketAddr, search: &SyncSearch<'_>, what: &str) {
    let all = all(address, search);
    let names = |entries: &BTreeMap<[u8; 16], NamedEntry>| {
        entries.values().map(|(dn, _)| dn.clone()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(&copy.entries), names(&all), "{what}");
    for (uuid, entry) in &all {
        assert_eq!(copy.entries.get(uuid), Some(entry), "{what}");
    }
}

/// A change that every consumer of the suffix receives: it has all before it then.
fn mark(client: &mut Client, text: &str) {
    change(client, &format!("modify dc=example,dc=com\n  replace description: {text}"));
}

fn has_mark(copy: &Consumer, text: &str) -> bool {
    copy.entries.values().any(|(_, attributes)| {
        attributes.get("description").is_some_and(|values| values.iter().any(|v| v == text.as_bytes()))
    })
}

#[test]
fn each_change_is_told_as_it_concerns_the_consumer() {
    let site = site("");
    site.load(&content(4));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let s0 = SyncSearch { filter: "(|(sn=s0)(objectClass=organization))", ..SyncSearch::default() };
    let mut whole = Consumer::default();
    whole.ask(server.address, &SyncSearch::default());
    let mut part = Consumer::default();
    part.ask(server.address, &s0);
    let mut unit = Consumer::default();
    let below_a = SyncSearch { base: "ou=a,dc=example,dc=com", ..SyncSearch::default() };
    unit.ask(server.address, &below_a);
    for consumer in [&mut whole, &mut part, &mut unit] {
        assert_eq!(consumer.refresh(), None);
    }
    assert_eq!((whole.entries.len(), part.entries.len(), unit.entries.len()), (7, 3, 3));
    let next_messages = |consumer: &mut Consumer, count: usize| {
        let before = consumer.messages.len();
        consumer.until(|consumer| consumer.messages.len() >= before + count);
        consumer.messages.split_off(before).join(", ").replace(",dc=example,dc=com", "")
    };
    let mut check = |request: &str, expected: [&str; 3]| {
        change(&mut writer, request);
        for (consumer, expected) in [&mut whole, &mut part, &mut unit].into_iter().zip(expected) {
            let count = expected.split(", ").count();
            assert_eq!(next_messages(consumer, count), expected, "{request}");
        }
    };
    let person = |uid: &str, sn: &str| {
        format!(
            "add uid={uid},ou=a,dc=example,dc=com\n  objectClass: inetOrgPerson\n  uid: {uid}\n  cn: x\n  sn: {sn}"
        )
    };
    check(&person("n", "s0"), ["add uid=n,ou=a", "add uid=n,ou=a", "add uid=n,ou=a"]);
    check(&person("m", "other"), ["add uid=m,ou=a", "cookie", "add uid=m,ou=a"]);
    check(
        "modify uid=m,ou=a,dc=example,dc=com\n  replace sn: s0",
        ["modify uid=m,ou=a", "add uid=m,ou=a", "modify uid=m,ou=a"],
    );
    check(
        "modify uid=n,ou=a,dc=example,dc=com\n  replace sn: other",
        ["modify uid=n,ou=a", "delete uid=n,ou=a", "modify uid=n,ou=a"],
    );
    check(
        "modrdn uid=m,ou=a,dc=example,dc=com uid=m keep ou=b,dc=example,dc=com",
        ["modify uid=m,ou=b", "modify uid=m,ou=b", "delete uid=m,ou=a"],
    );
    check("delete uid=n,ou=a,dc=example,dc=com", ["delete uid=n,ou=a", "cookie", "delete uid=n,ou=a"]);
    check("delete uid=p1,ou=b,dc=example,dc=com", ["delete uid=p1,ou=b", "cookie", "cookie"]);
    check(
        "modrdn uid=p3,ou=b,dc=example,dc=com uid=p3 keep ou=a,dc=example,dc=com",
        ["modify uid=p3,ou=a", "modify uid=p3,ou=a", "add uid=p3,ou=a"],
    );
    is_same(&whole, server.address, &SyncSearch::default(), "whole");
    is_same(&part, server.address, &s0, "part");
    is_same(&unit, server.address, &below_a, "unit");
}

#[test]
fn a_moved_subtree_comes_and_goes_whole() {
    let site = site("");
    site.load(&content(6));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let below_a = SyncSearch { base: "ou=a,dc=example,dc=com", ..SyncSearch::default() };
    let mut unit = Consumer::default();
    unit.ask(server.address, &below_a);
    assert_eq!(unit.refresh(), None);
    let mut away = Consumer::default();
    away.ask(server.address, &SyncSearch { persist: false, ..below_a.clone() });
    assert_eq!(away.refresh().map(|end| end.code), Some(0));
    for (superior, count) in [("ou=a,", 8), ("", 4)] {
        let from = if superior.is_empty() { "ou=b,ou=a," } else { "ou=b," };
        let to = format!("{superior}dc=example,dc=com");
        change(&mut writer, &format!("modrdn {from}dc=example,dc=com ou=b keep {to}"));
        unit.until(|unit| unit.entries.len() == count);
        is_same(&unit, server.address, &below_a, "followed");
        away.ask(server.address, &SyncSearch { persist: false, ..below_a.clone() });
        assert_eq!(away.refresh().map(|end| end.code), Some(0));
        is_same(&away, server.address, &below_a, "polled");
    }
}

#[test]
fn what_rules_and_filters_say_of_names_holds_below_a_renamed_superior() {
    let rules = "access to dn.subtree=ou=b,dc=example,dc=com by dn.exact=uid=p0,ou=a,dc=example,dc=com none by * read\n\
                 access to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n";
    let site = site(rules);
    let team = "dn: ou=team,ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\nou: team\n\n\
                dn: uid=t,ou=team,ou=a,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: t\ncn: t\nsn: t\n\n";
    site.load(&(content(6).replace("uid: p0\n", "uid: p0\nuserPassword: secret\n") + team));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let by_rules = SyncSearch { dn: "uid=p0,ou=a,dc=example,dc=com", ..SyncSearch::default() };
    let by_filter = SyncSearch { filter: "(|(ou:dn:=a)(objectClass=organization))", ..SyncSearch::default() };
    let searches = [by_rules, by_filter];
    let polls = searches.clone().map(|search| SyncSearch { persist: false, ..search });
    let mut followed = [Consumer::default(), Consumer::default()];
    let mut polled = [Consumer::default(), Consumer::default()];
    for (consumer, search) in followed.iter_mut().zip(&searches) {
        consumer.ask(server.address, search);
        assert_eq!(consumer.refresh(), None);
    }
    for (consumer, search) in polled.iter_mut().zip(&polls) {
        consumer.ask(server.address, search);
        assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
    }
    let renames = [
        "ou=team,ou=a,dc=example,dc=com ou=team keep ou=b,dc=example,dc=com",
        "ou=b,dc=example,dc=com ou=x delete",
        "ou=x,dc=example,dc=com ou=b delete",
        "ou=team,ou=b,dc=example,dc=com ou=team keep ou=a,dc=example,dc=com",
    ];
    for (number, rename) in renames.into_iter().enumerate() {
        change(&mut writer, &format!("modrdn {rename}"));
        let end = format!("rename {number}");
        mark(&mut writer, &end);
        for (consumer, search) in followed.iter_mut().zip(&searches) {
            consumer.until(|consumer| has_mark(consumer, &end));
            is_same(consumer, server.address, search, rename);
        }
        for (consumer, search) in polled.iter_mut().zip(&polls) {
            consumer.ask(server.address, search);
            assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
            is_same(consumer, server.address, search, rename);
        }
    }
}

#[test]
fn a_base_whose_name_another_entry_takes_is_sent_anew() {
    let site = site("");
    let teams = ["a", "b"].map(|unit| {
        format!("dn: ou=team,ou={unit},dc=example,dc=com\nobjectClass: organizationalUnit\nou: team\n\n")
    });
    let late =
        "dn: uid=t,ou=team,ou=b,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: t\ncn: t\nsn: t\n\n";
    site.load(&(content(4) + &teams.concat() + late));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let search = |base: &'static str| SyncSearch { base, persist: false, ..SyncSearch::default() };
    let searches = [search("ou=a,dc=example,dc=com"), search("ou=team,ou=a,dc=example,dc=com")];
    let mut consumers = [Consumer::default(), Consumer::default()];
    let mut poll = |what: &str| {
        for (consumer, search) in consumers.iter_mut().zip(&searches) {
            consumer.ask(server.address, search);
            assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
            is_same(consumer, server.address, search, what);
        }
    };
    poll("at first");
    change(&mut writer, "modrdn ou=a,dc=example,dc=com ou=z delete");
    change(&mut writer, "modrdn ou=b,dc=example,dc=com ou=a delete");
    poll("another entry is the base");
    change(&mut writer, "modify uid=p0,ou=z,dc=example,dc=com\n  replace sn: x");
    poll("and then what was there changes");
    change(&mut writer, "modrdn ou=a,dc=example,dc=com ou=b delete");
    change(&mut writer, "modrdn ou=z,dc=example,dc=com ou=a delete");
    poll("as at first");
}

#[test]
fn who_does_not_see_everything_any_more_is_told_nothing_more() {
    let site = Site::new(
        Kind::Larix,
        &format!("database config\nrootpw secret\n{DATABASE}access to * by * read\noverlay syncprov\n"),
    );
    site.load(&content(4).replace("uid: p0\n", "uid: p0\nuserPassword: secret\n"));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let search = SyncSearch { dn: "uid=p0,ou=a,dc=example,dc=com", ..SyncSearch::default() };
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &search);
    assert_eq!(consumer.refresh(), None);
    let mut config = Client::connect(server.address);
    assert!(run(&mut config, "as cn=config secret").contains("=> 0"));
    // Rules by which it sees everything still end nothing.
    let section = "modify \"olcDatabase={1}mdb,cn=config\"\n";
    change(&mut config, &format!("{section}  replace olcAccess: {{0}}to * by * read"));
    mark(&mut writer, "seen");
    consumer.until(|consumer| has_mark(consumer, "seen"));
    let hidden = "to dn.subtree=ou=b,dc=example,dc=com by * none";
    change(&mut config, &format!("{section}  add olcAccess: {{0}}{hidden}"));
    change(
        &mut writer,
        "add uid=late,ou=b,dc=example,dc=com\n  objectClass: inetOrgPerson\n  uid: late\n  cn: x\n  sn: x",
    );
    change(&mut writer, "delete uid=late,ou=b,dc=example,dc=com");
    let end = loop {
        if let Some(end) = consumer.step() {
            break end;
        }
    };
    assert_eq!((end.code, end.text.as_str()), (52, "the access rules have changed"));
    assert!(!consumer.messages.join("\n").contains("late"), "{:?}", consumer.messages);
}

#[test]
fn a_consumer_comes_back_by_its_cookie() {
    let site = site("");
    site.load(&content(50));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let search = SyncSearch { persist: false, ..SyncSearch::default() };
    let mut consumer = Consumer::default();
    let mut poll = |expected: &str| {
        consumer.ask(server.address, &search);
        assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
        assert_eq!(consumer.messages.join(", ").replace(",dc=example,dc=com", ""), expected);
        is_same(&consumer, server.address, &search, expected);
    };
    consumer_fill(server.address, &search, &mut poll);
    change(&mut writer, "delete uid=p1,ou=b,dc=example,dc=com");
    change(&mut writer, "modify uid=p2,ou=a,dc=example,dc=com\n  replace sn: x");
    change(&mut writer, "modify uid=p2,ou=a,dc=example,dc=com\n  replace sn: y");
    change(&mut writer, "modrdn uid=p3,ou=b,dc=example,dc=com uid=q3 delete");
    change(
        &mut writer,
        "add uid=n,ou=a,dc=example,dc=com\n  objectClass: inetOrgPerson\n  uid: n\n  cn: n\n  sn: n",
    );
    change(&mut writer, "delete uid=n,ou=a,dc=example,dc=com");
    poll("gone 1, add uid=p2,ou=a, add uid=q3,ou=b, gone 1, done 0");
    poll("done 0");
}

/// A provider that is itself in the midst of a refresh has content that its contextCSN does not cover yet: who comes then
/// has to be sent it, for what stands in the log before the consumer came is never told later.
#[test]
fn what_is_ahead_of_the_context_csn_is_sent_to_who_comes_meanwhile() {
    let other = ScriptedProvider::start();
    let line = format!(
        "serverID 2\n{DATABASE}syncrepl rid=003 provider=ldap://{} searchbase=\"dc=example,dc=com\" bindmethod=simple \
         type=refreshAndPersist retry=\"1 +\"\nmultiprovider on\noverlay syncprov\n",
        other.address
    );
    let site = Site::new(Kind::Larix, &line);
    site.load(&content(2));
    let server = site.start().expect("the provider");
    let mut refresh = other.accept();
    let poll = SyncSearch { persist: false, ..SyncSearch::default() };
    let (mut polls, mut follows) = (Consumer::default(), Consumer::default());
    for consumer in [&mut polls, &mut follows] {
        consumer.ask(server.address, &poll);
        assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
    }
    let late = "uid=late,ou=a,dc=example,dc=com";
    let csn = "20200101000000.000000Z#000000#003#000000";
    let person = [
        ("objectClass", "inetOrgPerson"),
        ("structuralObjectClass", "inetOrgPerson"),
        ("uid", "late"),
        ("cn", "late"),
        ("sn", "late"),
        ("entryUUID", "00000000-0000-0000-0000-000000000007"),
        ("entryCSN", csn),
    ];
    refresh.add(late, 7_u128.to_be_bytes(), &person);
    let search = SyncSearch { base: late, scope: Scope::Base, ..SyncSearch::default() };
    until("the entry is there", || read(server.address, &search).is_some());
    polls.ask(server.address, &poll);
    assert_eq!(polls.refresh().map(|end| end.code), Some(0));
    // The poll is answered when the contextCSN has come so far.
    assert_eq!(polls.messages, ["done 0"]);
    follows.ask(server.address, &SyncSearch::default());
    assert_eq!(follows.refresh(), None);
    assert!(follows.entries.contains_key(&7_u128.to_be_bytes()), "{:?}", follows.messages);
    let cookie = format!("rid=003,sid=003,csn={csn}");
    refresh.inform(&SyncInfo::RefreshDelete { cookie: Some(cookie.as_bytes()), done: true });
    follows.until(|consumer| consumer.cookie.as_deref().is_some_and(|cookie| cookie.contains(csn)));
    is_same(&follows, server.address, &poll, "followed");
    polls.ask(server.address, &poll);
    assert_eq!(polls.refresh().map(|end| end.code), Some(0));
    assert_eq!(polls.messages, [&format!("add {late}"), "done 0"]);
    // Now it is known by its cookie.
    follows.ask(server.address, &SyncSearch::default());
    assert_eq!(follows.refresh(), None);
    assert!(!follows.messages.iter().any(|message| message.contains("late")), "{:?}", follows.messages);
}

fn consumer_fill(address: SocketAddr, search: &SyncSearch<'_>, poll: &mut dyn FnMut(&str)) {
    let mut names: Vec<String> = Vec::new();
    let mut whole = Consumer::default();
    whole.ask(address, search);
    whole.refresh();
    names.append(&mut whole.messages);
    poll(&names.join(", ").replace(",dc=example,dc=com", ""));
}

#[test]
fn what_cannot_be_served_is_said() {
    let site = site("");
    site.load(&content(2));
    let server = site.start().expect("the provider");
    let check = |cookie: Option<&str>, search: &SyncSearch<'_>, code: u32, text: &str| {
        let mut consumer = Consumer::default();
        consumer.cookie = cookie.map(str::to_owned);
        consumer.ask(server.address, search);
        let end = consumer.refresh().expect("an end");
        assert_eq!((end.code, end.text.as_str()), (code, text), "{cookie:?}");
    };
    let poll = SyncSearch { persist: false, ..SyncSearch::default() };
    let future = "rid=001,csn=29991231235959.000000Z#000000#000#000000";
    check(Some(future), &poll, 53, "consumer state is newer than provider!");
    check(Some(future), &SyncSearch::default(), 53, "consumer state is newer than provider!");
    check(Some("rid=001"), &poll, 0, "");
    check(Some("what is this"), &poll, 0, "");
    check(Some("rid=001,csn=20000101000000.000000Z#000000#000#000000"), &poll, 0, "");
    check(Some("rid=001,csn=20000101000000.000000Z#000000#00a#000000"), &poll, 0, "");
    check(None, &SyncSearch { base: "ou=none,dc=example,dc=com", ..SyncSearch::default() }, 32, "");
    check(None, &SyncSearch { size_limit: 2, dn: "", password: "", ..poll.clone() }, 4, "");
    let plain = Site::example(Kind::Larix);
    plain.load(&content(2));
    let plain = plain.start().expect("a server that provides nothing");
    let mut consumer = Consumer::default();
    consumer.ask(plain.address, &poll);
    let end = consumer.refresh().expect("an end");
    assert_eq!((end.code, end.text.as_str()), (12, "critical extension is not recognized"));
}

#[test]
fn abandon_cancel_and_the_end_of_the_server_end_a_search() {
    let site = site("");
    site.load(&content(2));
    let server = site.start().expect("the provider");
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    let mut request = Vec::new();
    let cancel = [0x30, 3, 2, 1, 2];
    client::extended(&mut request, MessageId(3), larix_proto::oid::CANCEL, Some(&cancel), &[]);
    consumer.send(&request);
    assert_eq!(consumer.step().map(|end| end.code), Some(118));
    let mut other = Consumer::default();
    other.ask(server.address, &SyncSearch::default());
    assert_eq!(other.refresh(), None);
    let mut request = Vec::new();
    client::abandon(&mut request, MessageId(3), MessageId(2), &[]);
    // Nothing answers an abandon; that there is nothing left to cancel shows that the server has taken it.
    client::extended(&mut request, MessageId(4), larix_proto::oid::CANCEL, Some(&cancel), &[]);
    other.send(&request);
    other.until(|other| other.messages.last().is_some_and(|message| message == "extended 119"));
    let mut last = Consumer::default();
    last.ask(server.address, &SyncSearch::default());
    assert_eq!(last.refresh(), None);
    assert!(server.stop());
    assert_eq!(last.step().map(|end| end.code), Some(52));
    other.drain();
    assert!(!other.messages.iter().any(|message| message.starts_with("done")), "{:?}", other.messages);
}

#[test]
fn nobody_learns_of_what_may_not_be_seen() {
    let rules = "access to dn.subtree=ou=b,dc=example,dc=com by dn.exact=uid=p0,ou=a,dc=example,dc=com none by * read\n\
                 access to attrs=sn by dn.exact=uid=p0,ou=a,dc=example,dc=com none by * read\n\
                 access to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n";
    let site = site(rules);
    site.load(&content(6).replace("uid: p0\n", "uid: p0\nuserPassword: secret\n"));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let search = SyncSearch { dn: "uid=p0,ou=a,dc=example,dc=com", ..SyncSearch::default() };
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &search);
    assert_eq!(consumer.refresh(), None);
    assert_eq!(consumer.entries.len(), 5);
    change(&mut writer, "modify uid=p1,ou=b,dc=example,dc=com\n  replace sn: z");
    change(&mut writer, "delete uid=p3,ou=b,dc=example,dc=com");
    change(&mut writer, "modrdn uid=p2,ou=a,dc=example,dc=com uid=p2 keep ou=b,dc=example,dc=com");
    change(&mut writer, "modrdn uid=p5,ou=b,dc=example,dc=com uid=p5 keep ou=a,dc=example,dc=com");
    mark(&mut writer, "end");
    consumer.until(|consumer| has_mark(consumer, "end"));
    is_same(&consumer, server.address, &search, "followed");
    let received = consumer.messages.join("\n");
    assert!(!received.contains("ou=b,") && !received.contains("uid=p3"), "{received}");
    assert!(received.contains("delete uid=p2,ou=a") && received.contains("add uid=p5,ou=a"), "{received}");
    assert!(consumer.entries.values().all(|(_, attributes)| !attributes.contains_key("sn")));
}

/// What is done in a transaction is told at once, so the entry is gone when its superior's new place is looked at.
#[test]
fn a_delete_has_no_name_that_the_consumer_may_not_see() {
    let rules = "access to dn.subtree=ou=b,dc=example,dc=com by dn.exact=uid=p0,ou=a,dc=example,dc=com none by * read\n\
                 access to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n";
    let site = site(rules);
    let team = "dn: ou=team,ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\nou: team\n\n\
                dn: uid=t,ou=team,ou=a,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: t\ncn: t\nsn: t\n\n";
    site.load(&(content(2).replace("uid: p0\n", "uid: p0\nuserPassword: secret\n") + team));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let search = SyncSearch { dn: "uid=p0,ou=a,dc=example,dc=com", ..SyncSearch::default() };
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &search);
    assert_eq!(consumer.refresh(), None);
    change(&mut writer, "extended 1.3.6.1.1.21.1");
    change(
        &mut writer,
        "modrdn ou=team,ou=a,dc=example,dc=com ou=team keep ou=b,dc=example,dc=com with !txn",
    );
    change(&mut writer, "delete uid=t,ou=team,ou=b,dc=example,dc=com with !txn");
    change(&mut writer, "extended 1.3.6.1.1.21.3 \"30 02 04 00\"");
    mark(&mut writer, "end");
    consumer.until(|consumer| has_mark(consumer, "end"));
    is_same(&consumer, server.address, &search, "followed");
    let received = consumer.messages.join("\n");
    assert!(received.contains("delete ou=team,ou=a") && !received.contains("ou=b,"), "{received}");
}

#[test]
fn twenty_consumers_have_the_content_whatever_changes() {
    let seed = std::env::var("LARIX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let site = site("");
    site.load(&content(40));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let kinds = [
        SyncSearch::default(),
        SyncSearch { filter: "(|(sn=s0)(objectClass=organization))", ..SyncSearch::default() },
        SyncSearch { attributes: &["uid", "description", "entryUUID"], ..SyncSearch::default() },
        SyncSearch { filter: "(!(sn=s1))", ..SyncSearch::default() },
    ];
    let mut consumers: Vec<(Consumer, &SyncSearch<'_>)> =
        (0..20).map(|number| (Consumer::default(), &kinds[number % kinds.len()])).collect();
    consumers.iter_mut().for_each(|(consumer, search)| consumer.ask(server.address, search));
    for round in 0..4 {
        for _ in 0..60 {
            random_change(&mut writer, &mut random);
        }
        mark(&mut writer, &format!("round {round}"));
        for (number, (consumer, search)) in consumers.iter_mut().enumerate() {
            consumer.until(|consumer| has_mark(consumer, &format!("round {round}")) && consumer.refreshed);
            is_same(consumer, server.address, search, &format!("round {round}, consumer {number}"));
            // Some leave and come back after the next round has begun.
            if number % 3 == round % 3 {
                consumer.ask(server.address, search);
            }
        }
    }
}

/// Whatever comes of it: names are few, so that much is refused.
fn random_change(writer: &mut Client, random: &mut Random) {
    let unit = |random: &mut Random| ["a", "b"][random.below(2) as usize];
    let (uid, own, other) = (random.below(40), unit(random), unit(random));
    let dn = format!("uid=p{uid},ou={own},dc=example,dc=com");
    let request = match random.below(6) {
        0 => format!("delete {dn}"),
        1 => format!(
            "add {dn}\n  objectClass: inetOrgPerson\n  uid: p{uid}\n  cn: x\n  sn: s{}",
            random.below(3)
        ),
        2 => format!("modrdn {dn} uid=p{} delete ou={other},dc=example,dc=com", random.below(40)),
        _ => format!("modify {dn}\n  replace sn: s{}", random.below(3)),
    };
    run(writer, &request);
}

/// A consumer that says that it is a Larix receives the superior's entryUUID with each entry that has one; others get what slapd
/// sends.
#[test]
fn places_are_told_to_servers_of_our_kind() {
    const PLACE: &str = "2.25.87610412117718157885716886434399491440.3.3";
    let site = site("");
    site.load(&content(4));
    let server = site.start().expect("the provider");
    let mut client = admin(server.address);
    for is_peer in [false, true] {
        let sync = SyncRequest { mode: SyncMode::RefreshOnly, cookie: None, reload_hint: false };
        let peer = ControlBuf { oid: larix_proto::oid::SYNC_PEER.into(), critical: false, value: None };
        let controls: Vec<ControlBuf> =
            [sync.to_control(true)].into_iter().chain(is_peer.then_some(peer)).collect();
        let filter = FilterBuf::every_entry();
        let search = client::Search::new("dc=example,dc=com", Scope::Subtree, filter.as_filter());
        let mut request = Vec::new();
        client::search(&mut request, MessageId(5), &search, &controls);
        let mut places = BTreeMap::new();
        for pdu in client.exchange(&request) {
            let message = Response::decode_message(&pdu).expect("a response");
            let Response::Entry(entry) = message.response else { continue };
            let place = message.controls.iter().find(|control| control.oid == PLACE);
            let name = place.and_then(|control| control.value?.get(16..).map(<[u8]>::to_vec));
            places.insert(entry.dn.to_owned(), name);
        }
        assert_eq!(places.len(), 7);
        for (dn, name) in places {
            let rdn = dn.split(',').next().filter(|_| is_peer && dn != "dc=example,dc=com");
            assert_eq!(name.as_deref(), rdn.map(str::as_bytes), "{dn}");
        }
    }
}

/// A content comes in no order that a client could choose: to leave a critical control out would be wrong, and another one may be left
/// out.
#[test]
fn a_content_has_no_order() {
    let site = site("");
    site.load(&content(2));
    let server = site.start().expect("the provider");
    let mut client = admin(server.address);
    let key = SortKey { attribute: "uid", ordering_rule: Some("caseIgnoreOrderingMatch"), reverse: false };
    for (is_critical, expected) in [(false, 0), (true, 12)] {
        let sync = SyncRequest { mode: SyncMode::RefreshOnly, cookie: None, reload_hint: false };
        let sort = SortRequest { keys: vec![key] }.to_control(is_critical);
        let filter = FilterBuf::every_entry();
        let search = client::Search::new("dc=example,dc=com", Scope::Subtree, filter.as_filter());
        let mut request = Vec::new();
        client::search(&mut request, MessageId(5), &search, &[sync.to_control(true), sort]);
        let answer = client.exchange(&request);
        let end = Response::decode_message(answer.last().expect("an end")).expect("a response").response;
        assert_eq!(end.result().map(|(_, result)| result.code.0), Some(expected), "{is_critical}");
    }
}

#[test]
fn glued_databases_are_one_content() {
    let glued = "database mdb\nsuffix ou=b,dc=example,dc=com\nsubordinate\nrootdn cn=admin,dc=example,dc=com\n\
                 directory @DATA@/b\nindex objectClass eq\n";
    let site = Site::new(Kind::Larix, &format!("{glued}{DATABASE}overlay syncprov\n"));
    let whole = content(10);
    let (below, above): (Vec<&str>, Vec<&str>) = whole
        .split("\n\n")
        .filter(|entry| !entry.trim().is_empty())
        .partition(|entry| entry.contains("ou=b,dc="));
    site.load_into(Some("dc=example,dc=com"), &above.join("\n\n"));
    site.load_into(Some("ou=b,dc=example,dc=com"), &below.join("\n\n"));
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let (mut follows, mut polls) = (Consumer::default(), Consumer::default());
    let poll = SyncSearch { persist: false, ..SyncSearch::default() };
    follows.ask(server.address, &SyncSearch::default());
    assert_eq!(follows.refresh(), None);
    polls.ask(server.address, &poll);
    polls.refresh();
    let mut random = Random::new(7);
    for round in 0..3 {
        for _ in 0..40 {
            random_change(&mut writer, &mut random);
        }
        mark(&mut writer, &format!("round {round}"));
        follows.until(|consumer| has_mark(consumer, &format!("round {round}")));
        is_same(&follows, server.address, &poll, "followed");
        polls.ask(server.address, &poll);
        polls.refresh();
        assert!(!polls.messages.iter().any(|message| message.starts_with("present")), "{:?}", polls.messages);
        is_same(&polls, server.address, &poll, "polled");
    }
    // What is changed below counts, too: consumers show it.
    change(&mut writer, "modify ou=b,dc=example,dc=com\n  replace description: below");
    let below = writer.value("ou=b,dc=example,dc=com", "entryCSN").expect("a CSN");
    assert_eq!(writer.value("dc=example,dc=com", "contextCSN"), Some(below));
}

#[test]
fn the_overlay_comes_and_goes_while_the_server_runs() {
    let site = Site::new(Kind::Larix, &format!("database config\nrootpw secret\n{DATABASE}change-log off\n"));
    site.load(&content(4));
    let server = site.start().expect("the provider");
    let mut config = Client::connect(server.address);
    assert!(run(&mut config, "as cn=config secret").contains("=> 0"));
    let mut writer = admin(server.address);
    let supported = |writer: &mut Client| {
        run(writer, "search \"\" base (objectClass=*) supportedControl").contains("1.3.6.1.4.1.4203.1.9.1.1")
    };
    assert!(!supported(&mut writer));
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &SyncSearch::default());
    assert_eq!(consumer.refresh().map(|end| end.code), Some(12));
    let overlay = "olcOverlay={0}syncprov,olcDatabase={1}mdb,cn=config";
    change(
        &mut config,
        &format!(
            "add {overlay}\n  objectClass: olcOverlayConfig\n  objectClass: olcSyncProvConfig\n  \
             olcOverlay: {{0}}syncprov\n  olcSpCheckpoint: 100 10\n  olcSpSessionlog: 500"
        ),
    );
    assert!(supported(&mut writer));
    consumer.ask(server.address, &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    mark(&mut writer, "followed");
    consumer.until(|consumer| has_mark(consumer, "followed"));
    let refused = run(&mut config, &format!("modify {overlay}\n  replace olcSpCheckpoint: never"));
    assert!(!refused.contains("=> 0"), "{refused}");
    change(&mut config, &format!("modify {overlay}\n  replace olcSpNoPresent: TRUE"));
    mark(&mut writer, "still");
    consumer.until(|consumer| has_mark(consumer, "still"));
    change(&mut config, &format!("delete {overlay}"));
    assert_eq!(consumer.step().map(|end| end.code), Some(52));
    assert!(!supported(&mut writer));
}

/// Overlays that look into the answers of searches, in front of all databases, leave a consumer of cn=config alone.
#[test]
fn consumers_of_cn_config_are_answered_as_such_behind_overlays() {
    let answer = |overlay: &str| {
        let config = format!("{overlay}database config\nrootpw secret\noverlay syncprov\n{DATABASE}");
        let site = Site::new(Kind::Larix, &config);
        site.load(&content(1));
        let server = site.start().expect("the provider");
        let mut consumer = Consumer::default();
        let (dn, base) = ("cn=config", "cn=config");
        consumer.ask(server.address, &SyncSearch { dn, base, ..SyncSearch::default() });
        consumer.refresh().map(|end| end.code)
    };
    let without = answer("");
    assert_ne!(without, Some(0));
    for overlay in ["chain", "noopsrch"] {
        assert_eq!(answer(&format!("overlay {overlay}\n")), without, "{overlay}");
    }
}

/// Eight refreshes run at once. A consumer that does not read loses its turn to the next.
#[test]
fn consumers_that_do_not_read_keep_nobody_from_a_refresh() {
    let site = site("");
    let long = "x".repeat(16 << 10);
    let described = |entry: &str| format!("{entry}\ndescription: {long}\n\n");
    let ldif: String = content(1_200).split_terminator("\n\n").map(described).collect();
    site.load(&ldif);
    let server = site.start().expect("the provider");
    let search = SyncSearch { persist: false, ..SyncSearch::default() };
    let silent = || {
        let mut consumer = Consumer::default();
        consumer.ask(server.address, &search);
        consumer
    };
    let mut silent: Vec<Consumer> = (0..12).map(|_| silent()).collect();
    let mut reads = Consumer::default();
    reads.ask(server.address, &search);
    assert_eq!(reads.refresh().map(|end| end.code), Some(0));
    assert_eq!(reads.entries.len(), 1_203);
    // And those go on where they were.
    for consumer in &mut silent {
        assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
        assert_eq!(consumer.entries.len(), 1_203);
    }
}

#[test]
fn persistent_searches_of_one_connection_are_counted() {
    let site = Site::new(Kind::Larix, &format!("request-limits persistent=3\n{DATABASE}overlay syncprov\n"));
    site.load(&content(2));
    let server = site.start().expect("the provider");
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    let ask = |id: u32, mode| {
        let mut out = Vec::new();
        let filter = FilterBuf::parse("(objectClass=*)").expect("a filter");
        let control = SyncRequest { mode, cookie: None, reload_hint: false }.to_control(true);
        let search = client::Search::new("dc=example,dc=com", Scope::Base, filter.as_filter());
        client::search(&mut out, MessageId(id), &search, &[control]);
        out
    };
    for id in [3, 4] {
        consumer.send(&ask(id, SyncMode::RefreshAndPersist));
        consumer.refreshed = false;
        assert_eq!(consumer.refresh(), None, "the search of message {id}");
    }
    consumer.send(&ask(5, SyncMode::RefreshAndPersist));
    consumer.refreshed = false;
    let end = consumer.refresh().expect("an end");
    let text = "more than 3 persistent searches on one connection (request-limits persistent=)";
    assert_eq!((end.code, end.text.as_str()), (11, text));
    // A poll is none of them, and one that was abandoned makes room.
    consumer.send(&ask(6, SyncMode::RefreshOnly));
    consumer.refreshed = false;
    assert_eq!(consumer.refresh().map(|end| end.code), Some(0));
    let mut abandon = Vec::new();
    client::abandon(&mut abandon, MessageId(7), MessageId(4), &[]);
    consumer.send(&abandon);
    consumer.refreshed = false;
    consumer.send(&ask(8, SyncMode::RefreshAndPersist));
    assert_eq!(consumer.refresh(), None);
}
