//! A provider whose content other servers keep in part: `overlay glue` before `overlay syncprov`, and a glued `database ldap` (ADR 0105).

use std::collections::BTreeSet;
use std::net::SocketAddr;

use larix_proto::MessageId;
use larix_proto::client;
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Site, until_some};
use larix_tests::client::{Client, run};
use larix_tests::raw::{Raw, bind};
use larix_tests::relay::{Passage, Relay};
use larix_tests::replicas::{ADMIN, Member, SUFFIX};
use larix_tests::running::Running;
use larix_tests::sync::{Consumer, SyncSearch};

const FAR: &str =
    "database mdb\nsuffix dc=far\nrootdn cn=admin,dc=far\nrootpw secret\ndirectory @DATA@\nindex uid eq\n";

const FAR_ENTRIES: &str = "dn: dc=far
objectClass: organization
objectClass: dcObject
o: Far
dc: far

dn: ou=users,dc=far
objectClass: organizationalUnit
ou: users

dn: uid=u1,ou=users,dc=far
objectClass: inetOrgPerson
uid: u1
cn: One
sn: s1

dn: uid=u2,ou=users,dc=far
objectClass: inetOrgPerson
uid: u2
cn: Two
sn: s2

dn: uid=u3,ou=users,dc=far
objectClass: inetOrgPerson
uid: u3
cn: Three
sn: s1
";

const NEAR_ENTRIES: &str = "dn: dc=example,dc=com
objectClass: organization
objectClass: dcObject
o: Example
dc: example

dn: ou=near,dc=example,dc=com
objectClass: organizationalUnit
ou: near

dn: cn=reader,ou=near,dc=example,dc=com
objectClass: person
cn: reader
sn: reader
userPassword: reading
";

const BEHIND_GLUE: &str = "overlay glue\noverlay syncprov\n";

/// The server that keeps the users.
fn far() -> Running {
    Running::start(Kind::Larix, FAR, FAR_ENTRIES)
}

/// The lines of a provider that has `ou=remote` there; `more` is of that database, `overlays` of the one above.
fn lines(far: SocketAddr, more: &str, overlays: &str) -> String {
    format!(
        "database config\nrootpw secret\n\
         database ldap\nsuffix ou=remote,{SUFFIX}\nsubordinate\nuri ldap://{far}\nrootdn {ADMIN}\n\
         idassert-bind bindmethod=simple binddn=cn=admin,dc=far credentials=secret mode=none\nidassert-authzFrom \"*\"\n{more}\
         overlay rwm\nrwm-suffixmassage ou=users,dc=far\n\
         database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\nindex uid,entryUUID,entryCSN eq\n\
         {overlays}"
    )
}

fn provider(far: SocketAddr, more: &str, overlays: &str) -> Running {
    let site = Site::new(Kind::Larix, &lines(far, more, overlays));
    site.load_into(Some(SUFFIX), NEAR_ENTRIES);
    Running::of(site)
}

fn bound(address: SocketAddr, dn: &str) -> Client {
    let mut client = Client::connect(address);
    change(&mut client, &format!("as {dn} secret"));
    client
}

fn change(client: &mut Client, request: &str) {
    let answer = run(client, request);
    assert!(answer.contains("=> 0"), "{request}\n{answer}");
}

fn following(address: SocketAddr, search: &SyncSearch<'_>) -> Consumer {
    let mut consumer = Consumer::default();
    consumer.ask(address, search);
    assert_eq!(consumer.refresh(), None, "{:?}", consumer.messages);
    consumer
}

/// The RDNs of what a consumer has of the far server.
fn remote(consumer: &Consumer) -> Vec<String> {
    let below = format!(",ou=remote,{SUFFIX}");
    let names = consumer
        .entries
        .values()
        .filter_map(|(dn, _)| dn.to_lowercase().strip_suffix(&below).map(str::to_owned));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn has(consumer: &Consumer, value: &str) -> bool {
    let mut attributes = consumer.entries.values().flat_map(|(_, attributes)| attributes.values());
    attributes.any(|values| values.contains(value.as_bytes()))
}

/// What comes for a request, of names in short.
fn messages_after(consumer: &mut Consumer, writer: &mut Client, request: &str, count: usize) -> String {
    let before = consumer.messages.len();
    change(writer, request);
    consumer.until(|consumer| consumer.messages.len() >= before + count);
    consumer.messages.split_off(before).join(", ").replace(&format!(",{SUFFIX}"), "")
}

#[test]
fn changes_made_through_the_provider_are_told() {
    let far = far();
    let provider = provider(far.address(), "", BEHIND_GLUE);
    let mut consumer = following(provider.address(), &SyncSearch::default());
    assert_eq!(remote(&consumer), ["uid=u1", "uid=u2", "uid=u3"]);
    assert!(consumer.entries.values().any(|(dn, _)| dn.to_lowercase() == format!("ou=remote,{SUFFIX}")));
    let mut writer = bound(provider.address(), ADMIN);
    for (request, expected) in [
        (
            "add uid=new,ou=remote,dc=example,dc=com\n  objectClass: inetOrgPerson\n  uid: new\n  cn: New\n  sn: s9",
            "add uid=new,ou=remote",
        ),
        (
            "modify uid=new,ou=remote,dc=example,dc=com\n  replace description: one value",
            "modify uid=new,ou=remote",
        ),
        ("modrdn uid=new,ou=remote,dc=example,dc=com uid=newer delete", "modify uid=newer,ou=remote"),
        ("modify uid=newer,ou=remote,dc=example,dc=com\n  replace sn: s8", "modify uid=newer,ou=remote"),
        ("delete uid=newer,ou=remote,dc=example,dc=com", "delete uid=newer,ou=remote"),
        ("delete uid=u2,ou=remote,dc=example,dc=com", "delete uid=u2,ou=remote"),
    ] {
        assert_eq!(messages_after(&mut consumer, &mut writer, request, 1), expected, "{request}");
        assert_eq!(
            has(&consumer, "one value"),
            request.contains("new") && !request.starts_with("add") && !request.starts_with("delete")
        );
    }
    assert_eq!(remote(&consumer), ["uid=u1", "uid=u3"]);
    // What is stored here is told as ever.
    let expected = "modify ou=near";
    let request = "modify ou=near,dc=example,dc=com\n  replace description: stored here";
    assert_eq!(messages_after(&mut consumer, &mut writer, request, 1), expected);
    // A container with what is below it has other names then: the consumer has to come again.
    change(
        &mut writer,
        "add ou=box,ou=remote,dc=example,dc=com\n  objectClass: organizationalUnit\n  ou: box",
    );
    change(&mut writer, "add cn=in,ou=box,ou=remote,dc=example,dc=com\n  objectClass: device\n  cn: in");
    consumer.until(|consumer| remote(consumer).len() == 4);
    change(&mut writer, "modrdn ou=box,ou=remote,dc=example,dc=com ou=crate delete");
    let end = std::iter::from_fn(|| Some(consumer.step())).flatten().next().unwrap();
    assert!(end.code == 52 && end.text.contains("search again"), "{end:?}");
    consumer.ask(provider.address(), &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    assert_eq!(remote(&consumer), ["cn=in,ou=crate", "ou=crate", "uid=u1", "uid=u3"]);
}

/// A slapd passes over an entry whose CSN is older than that of a change it was told of, be it of another server.
#[test]
fn what_is_heard_first_is_sent_first() {
    // Each answer of the other server comes a second late: what is stored here is changed meanwhile.
    let far = Running::start(
        Kind::Larix,
        &format!("{FAR}overlay retcode\nretcode-parent cn=codes,dc=far\nretcode-sleep 1\n"),
        FAR_ENTRIES,
    );
    let provider = provider(far.address(), "", BEHIND_GLUE);
    // As OpenLDAP's consumers ask, and without a cookie.
    let mut like_slapd = Consumer::default();
    like_slapd.cookie = Some("rid=001".to_owned());
    like_slapd.ask(provider.address(), &SyncSearch::default());
    assert_eq!(like_slapd.refresh(), None);
    let mut plain = following(provider.address(), &SyncSearch::default());
    // It comes back with a cookie and has no replica ID of its own.
    let mut another = Consumer::default();
    another.cookie = Some("rid=000".to_owned());
    another.ask(provider.address(), &SyncSearch::default());
    assert_eq!(another.refresh(), None);
    let mut writer = bound(provider.address(), ADMIN);
    change(&mut writer, "modify uid=u1,ou=remote,dc=example,dc=com\n  replace sn: changed");
    change(&mut writer, "modify ou=near,dc=example,dc=com\n  replace description: stored here");
    change(&mut writer, "delete uid=u2,ou=remote,dc=example,dc=com");
    for consumer in [&mut like_slapd, &mut plain, &mut another] {
        let refreshed = consumer.messages.iter().position(|message| message == "refresh present").unwrap();
        consumer.until(|consumer| consumer.messages.len() > refreshed + 3);
        let received =
            consumer.messages.split_off(refreshed + 1).join(", ").replace(&format!(",{SUFFIX}"), "");
        // The delete comes a second behind the change before it. If the provider takes as long to look around again, it has heard of both.
        // Then the delete may come first, which does no harm: its cookie has no CSN.
        let both = ["modify ou=near, delete uid=u2,ou=remote", "delete uid=u2,ou=remote, modify ou=near"];
        let rest = received.strip_prefix("modify uid=u1,ou=remote, ").unwrap_or_default();
        assert!(both.contains(&rest), "{received}");
    }
    change(&mut writer, "modify uid=u3,ou=remote,dc=example,dc=com\n  replace sn: the last");
    for consumer in [&mut like_slapd, &mut plain, &mut another] {
        consumer.until(|consumer| {
            consumer.messages.last().is_some_and(|message| message.starts_with("modify uid=u3"))
        });
    }
    // Otherwise a slapd judges the last one by the CSN of the one before.
    assert_eq!(like_slapd.beside.as_deref(), Some("rid=001,content=elsewhere"));
    assert_eq!((plain.beside, another.beside), (None, None));
}

/// Changes that the other server refuses, each given up at once, one by an abandon and one by the end of the connection.
#[test]
fn who_may_change_nothing_ends_no_search() {
    let far = far();
    let provider = provider(far.address(), "", BEHIND_GLUE);
    let mut consumer = following(provider.address(), &SyncSearch::default());
    for round in 0..20 {
        let mut attacker = Raw::connect(provider.address()).unwrap();
        assert_eq!(attacker.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
        let mut bytes = Vec::new();
        let nobody = format!("uid=nobody,ou=remote,{SUFFIX}");
        client::modify_dn(&mut bytes, MessageId(2), &nobody, "uid=other", true, None, &[]);
        if round % 2 == 0 {
            client::abandon(&mut bytes, MessageId(3), MessageId(2), &[]);
        }
        assert!(attacker.send(&bytes));
        if round % 2 == 0 {
            // The abandoned one is not answered.
            let answer =
                attacker.ask(&larix_tests::raw::search(4, "", larix_proto::Scope::Base, "(objectClass=*)"));
            assert_eq!(answer.unwrap().code, 0);
        }
    }
    let mut writer = bound(provider.address(), ADMIN);
    let request = "modify uid=u1,ou=remote,dc=example,dc=com\n  replace sn: after";
    assert_eq!(messages_after(&mut consumer, &mut writer, request, 1), "modify uid=u1,ou=remote");
}

/// The consumer's filter leaves the superiors out: they are renamed and deleted all the same.
#[test]
fn superiors_that_were_not_sent_count() {
    let far = far();
    let provider = provider(far.address(), "", BEHIND_GLUE);
    let mut writer = bound(provider.address(), ADMIN);
    for (rdn, class) in [("ou=box", "organizationalUnit"), ("ou=mid,ou=box", "organizationalUnit")] {
        let name = rdn.split([',', '=']).nth(1).unwrap();
        change(&mut writer, &format!("add {rdn},ou=remote,{SUFFIX}\n  objectClass: {class}\n  ou: {name}"));
    }
    change(
        &mut writer,
        &format!(
            "add uid=x,ou=mid,ou=box,ou=remote,{SUFFIX}\n  objectClass: inetOrgPerson\n  uid: x\n  cn: X\n  sn: x"
        ),
    );
    let search = SyncSearch { filter: "(objectClass=inetOrgPerson)", ..SyncSearch::default() };
    let mut consumer = following(provider.address(), &search);
    assert!(remote(&consumer).contains(&"uid=x,ou=mid,ou=box".to_owned()));
    change(&mut writer, &format!("modrdn ou=box,ou=remote,{SUFFIX} ou=crate delete"));
    let end = std::iter::from_fn(|| Some(consumer.step())).flatten().next().unwrap();
    assert!(end.code == 52 && end.text.contains("search again"), "{end:?}");
    consumer.ask(provider.address(), &search);
    assert_eq!(consumer.refresh(), None);
    assert!(remote(&consumer).contains(&"uid=x,ou=mid,ou=crate".to_owned()));
}

#[test]
fn the_order_of_the_overlays_decides() {
    let far = far();
    let provider = provider(far.address(), "", "overlay syncprov\noverlay glue\n");
    let mut consumer = following(provider.address(), &SyncSearch::default());
    assert_eq!(consumer.entries.len(), 3);
    let mut writer = bound(provider.address(), ADMIN);
    change(&mut writer, "modify uid=u1,ou=remote,dc=example,dc=com\n  replace sn: s5");
    let request = "modify ou=near,dc=example,dc=com\n  replace description: mark";
    assert_eq!(messages_after(&mut consumer, &mut writer, request, 1), "modify ou=near");
}

#[test]
fn what_was_changed_at_the_other_server_comes_with_the_next_refresh() {
    let far = far();
    let provider = provider(far.address(), "", BEHIND_GLUE);
    for persist in [true, false] {
        let search = SyncSearch { persist, ..SyncSearch::default() };
        let mut consumer = Consumer::default();
        consumer.ask(provider.address(), &search);
        consumer.refresh();
        let before = consumer.entries.len();
        let mut far_client = bound(far.address(), "cn=admin,dc=far");
        change(&mut far_client, "delete uid=u1,ou=users,dc=far");
        change(&mut far_client, "modify uid=u2,ou=users,dc=far\n  replace description: changed there");
        let add = "add uid=u1b,ou=users,dc=far\n  objectClass: inetOrgPerson\n  uid: u1b\n  cn: B\n  sn: b";
        change(&mut far_client, add);
        // Nothing was changed in what is stored here: its entries are named, those of the other server are sent.
        consumer.ask(provider.address(), &search);
        consumer.refresh();
        assert_eq!(remote(&consumer), ["uid=u1b", "uid=u2", "uid=u3"], "{:?}", consumer.messages);
        assert_eq!(consumer.entries.len(), before);
        assert!(has(&consumer, "changed there") && consumer.messages.contains(&"present 3".to_owned()));
        change(&mut far_client, "modify uid=u2,ou=users,dc=far\n  delete description");
        change(&mut far_client, "modrdn uid=u1b,ou=users,dc=far uid=u1 delete");
    }
}

#[test]
fn the_consumers_rights_and_filter_hold() {
    let far = far();
    let rules = "access to dn.base=uid=u3,ou=remote,dc=example,dc=com by dn.exact=cn=reader,ou=near,dc=example,dc=com none by * read\n\
                 access to attrs=description by dn.exact=cn=reader,ou=near,dc=example,dc=com none by * read\naccess to * by * read\n";
    let provider = provider(far.address(), rules, &format!("access to * by * read\n{BEHIND_GLUE}"));
    let reader = SyncSearch {
        dn: "cn=reader,ou=near,dc=example,dc=com",
        password: "reading",
        filter: "(sn=s1)",
        attributes: &["cn", "sn", "description"],
        ..SyncSearch::default()
    };
    let mut consumer = following(provider.address(), &reader);
    assert_eq!(remote(&consumer), ["uid=u1"]);
    let mut writer = bound(provider.address(), ADMIN);
    let mut check = |request: &str, messages: usize, expected: &str| {
        assert_eq!(messages_after(&mut consumer, &mut writer, request, messages), expected, "{request}");
        assert!(!has(&consumer, "hidden") && !has(&consumer, "u1"));
    };
    // It comes into the content, leaves it, and what the reader may not see is not told at all.
    check("modify uid=u2,ou=remote,dc=example,dc=com\n  replace sn: s1", 1, "add uid=u2,ou=remote");
    check("modify uid=u2,ou=remote,dc=example,dc=com\n  replace sn: s2", 1, "delete uid=u2,ou=remote");
    check("modify uid=u3,ou=remote,dc=example,dc=com\n  replace description: hidden", 0, "");
    check(
        "modify uid=u1,ou=remote,dc=example,dc=com\n  replace description: hidden",
        1,
        "modify uid=u1,ou=remote",
    );
    check("delete uid=u3,ou=remote,dc=example,dc=com", 0, "");
    check("delete uid=u1,ou=remote,dc=example,dc=com", 1, "delete uid=u1,ou=remote");
    assert_eq!(remote(&consumer), Vec::<String>::new());
}

#[test]
fn an_entry_without_entry_uuid_is_named() {
    let far = far();
    let rules = "access to attrs=entryUUID by dn.exact=cn=reader,ou=near,dc=example,dc=com none by * read\naccess to * by * read\n";
    let provider = provider(far.address(), rules, &format!("access to * by * read\n{BEHIND_GLUE}"));
    let reader = SyncSearch {
        dn: "cn=reader,ou=near,dc=example,dc=com",
        password: "reading",
        ..SyncSearch::default()
    };
    let mut consumer = Consumer::default();
    consumer.ask(provider.address(), &reader);
    let end = consumer.refresh().expect("an end");
    assert!(end.code == 53 && end.text.contains("no entryUUID"), "{end:?}");
}

#[test]
fn a_server_that_does_not_answer_ends_the_search_and_holds_nobody() {
    let far = far();
    let relay = Relay::start();
    relay.lead_to(far.address());
    let provider = provider(relay.address, "timeout 1\nnetwork-timeout 1\n", BEHIND_GLUE);
    // The far server has a second, which on a busy machine may be over before it has answered.
    let mut consumer = until_some("the far server is read in time", || {
        let mut consumer = Consumer::default();
        consumer.ask(provider.address(), &SyncSearch::default());
        consumer.refresh().is_none().then_some(consumer)
    });
    let mut writer = bound(provider.address(), ADMIN);
    relay.set(Passage::Silent);
    // Whether it was carried out is not known.
    let request = "modify uid=u1,ou=remote,dc=example,dc=com\n  replace sn: s7";
    assert!(!run(&mut writer, request).contains("=> 0"));
    change(&mut writer, "modify ou=near,dc=example,dc=com\n  replace description: stored here");
    let end = std::iter::from_fn(|| Some(consumer.step())).flatten().next().unwrap();
    assert!(end.code == 52 && end.text.contains("could not be read"), "{end:?}");
    // Nor is it dropped by a refresh that cannot read it.
    consumer.ask(provider.address(), &SyncSearch::default());
    let end = consumer.refresh().expect("an end");
    assert!(end.code == 52 && end.text.contains("could not be read"), "{end:?}");
    assert_eq!(remote(&consumer), ["uid=u1", "uid=u2", "uid=u3"]);
    relay.set(Passage::Cut);
    relay.set(Passage::Open);
    for _ in 0..2_000 {
        consumer.ask(provider.address(), &SyncSearch::default());
        if consumer.refresh().is_none() {
            assert_eq!(remote(&consumer), ["uid=u1", "uid=u2", "uid=u3"]);
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    panic!("it never came back");
}

/// What is gone at the other server goes from a Larix's copy, though nothing was changed at the provider. A slapd's needs such a change.
#[test]
fn a_copy_follows_with_both_parts() {
    crate::consumer::kinds().into_iter().for_each(a_copy_follows);
}

fn a_copy_follows(kind: Kind) {
    let far = far();
    let provider = Member::with(Kind::Larix, free_port(), &lines(far.address(), "", BEHIND_GLUE));
    provider.site.load_into(Some(SUFFIX), NEAR_ENTRIES);
    let provider = provider.started();
    let line = format!(
        "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret searchbase={SUFFIX} \
         retry=\"1 +\" type=refreshAndPersist\n",
        provider.url()
    );
    let mut consumer = Member::new(kind, "", &line).arguments(&["-d", "16384"]).started();
    consumer.wait_until_like(&provider);
    provider.change(
        "add uid=new,ou=remote,dc=example,dc=com\n  objectClass: inetOrgPerson\n  uid: new\n  cn: New\n  sn: n\n\n\
         modify uid=u1,ou=remote,dc=example,dc=com\n  replace sn: changed\n\n\
         modrdn uid=u3,ou=remote,dc=example,dc=com uid=u4 delete\n\n\
         modify ou=near,dc=example,dc=com\n  replace description: stored here\n\n\
         delete uid=u2,ou=remote,dc=example,dc=com\n\n\
         add uid=u2,ou=remote,dc=example,dc=com\n  objectClass: inetOrgPerson\n  uid: u2\n  cn: Two\n  sn: n",
    );
    consumer.wait_until_like(&provider);
    consumer.stop();
    let mut far_client = bound(far.address(), "cn=admin,dc=far");
    change(&mut far_client, "delete uid=new,ou=users,dc=far");
    change(&mut far_client, "modify uid=u1,ou=users,dc=far\n  replace sn: there");
    change(
        &mut far_client,
        "add uid=late,ou=users,dc=far\n  objectClass: inetOrgPerson\n  uid: late\n  cn: L\n  sn: l",
    );
    if kind == Kind::Slapd {
        provider.change("modify ou=near,dc=example,dc=com\n  replace description: changed meanwhile");
    }
    consumer.start();
    consumer.wait_until_like(&provider);
    // Of an entry below it, nothing but the name is another one then.
    provider.change(
        "add ou=box,ou=remote,dc=example,dc=com\n  objectClass: organizationalUnit\n  ou: box\n\n\
         add cn=in,ou=box,ou=remote,dc=example,dc=com\n  objectClass: device\n  cn: in",
    );
    consumer.wait_until_like(&provider);
    provider.change("modrdn ou=box,ou=remote,dc=example,dc=com ou=crate delete");
    consumer.wait_until_like(&provider);
    // Nothing there is heard of while it follows, and nothing of that is lost with the next change of the same entry.
    change(&mut far_client, "modify uid=late,ou=users,dc=far\n  replace description: unheard");
    provider.change("modify uid=late,ou=remote,dc=example,dc=com\n  replace cn: Late");
    consumer.wait_until_like(&provider);
    provider
        .change("delete uid=late,ou=remote,dc=example,dc=com\n\ndelete uid=u4,ou=remote,dc=example,dc=com");
    consumer.wait_until_like(&provider);
}
