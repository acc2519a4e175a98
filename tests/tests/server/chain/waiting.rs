//! A shadow answers a change when it has come back by replication (`chain-wait-replicated`).

use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, Scope, client};
use larix_testkit::{Kind, Server, Site};
use larix_tests::client::{Client, run};
use larix_tests::raw::{self, Raw};
use larix_tests::relay::{Passage, Relay};
use larix_tests::running::Running;

use super::{ADMIN, ANN, PEOPLE, SUFFIX, chain, database, referral_target, until};

/// A provider, and a shadow whose replication goes through a relay.
struct Pair {
    provider: Running,
    shadow: Running,
    relay: Relay,
}

fn pair(kind: Kind, more: &str) -> Pair {
    let provider = referral_target(kind);
    let relay = Relay::start();
    relay.lead_to(provider.address());
    let url = format!("ldap://{}", provider.address());
    let consumer = format!(
        "syncrepl rid=1 provider=ldap://{} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\"\nupdateref {url}\n",
        relay.address
    );
    let body =
        format!("{}\n{}", chain(&url, &format!("chain-return-error TRUE\n{more}")), database(&consumer));
    let site = Site::new(Kind::Larix, &body);
    let server = Server::start_with(Kind::Larix, &site.configuration(), &["-d", "256"], &[]);
    let shadow = Running::with(server.unwrap_or_else(|error| panic!("{error}")), site);
    until(&mut Client::connect(shadow.address()), &format!("search {ANN} base (objectClass=*) sn"), "Archer");
    Pair { provider, shadow, relay }
}

fn describe(id: u32, text: &str) -> Vec<u8> {
    let values = [text.as_bytes()];
    let attribute = ClientAttribute { description: "description", values: &values };
    let changes = [ClientChange { operation: ModifyOperation::Replace, attribute }];
    let mut out = Vec::new();
    client::modify(&mut out, MessageId(id), ANN, &changes, &[]);
    out
}

#[test]
fn an_answer_waits_for_its_change_and_other_requests_go_on() {
    let Pair { provider, shadow, relay } = pair(Kind::Larix, "chain-wait-replicated 300");
    let mut raw = Raw::connect(shadow.address()).unwrap();
    assert_eq!(raw.ask(&raw::bind(1, ANN, "annpw")).unwrap().code, 0);
    relay.set(Passage::Silent);
    assert!(raw.send(&describe(2, "waited for")));
    let request = format!("search {ANN} base (objectClass=*) description");
    until(&mut Client::connect(provider.address()), &request, "waited for");
    // The change is made, and is not here.
    let here = |id| raw::search(id, SUFFIX, Scope::Subtree, "(description=waited for)");
    for id in 3..6 {
        let answer = raw.ask(&here(id)).unwrap();
        assert_eq!((answer.id, answer.code, answer.entries), (id, 0, 0), "{}", shadow.server.log());
    }
    relay.set(Passage::Open);
    let answer = raw.answer().unwrap();
    assert_eq!((answer.id, answer.code, answer.text.as_str()), (2, 0, ""), "{}", shadow.server.log());
    assert_eq!(answer.controls, Vec::<String>::new(), "the client asked for none");
    assert_eq!(raw.ask(&here(6)).unwrap().entries, 1);
}

fn what_is_written_is_read(kind: Kind) {
    if kind.is_lacking() {
        return;
    }
    let Pair { provider: _provider, shadow, relay: _relay } = pair(kind, "chain-wait-replicated 300");
    let mut root = Client::connect(shadow.address());
    let done = |root: &mut Client, request: &str| {
        let answer = run(root, request);
        assert_eq!(answer, "=> 0\n", "{request}\n{}", shadow.server.log());
    };
    done(&mut root, &format!("as {ADMIN} secret"));
    let found = |root: &mut Client, filter: &str| {
        run(root, &format!("search {SUFFIX} sub {filter} 1.1")).matches("-> ").count()
    };
    for round in 0..5 {
        done(
            &mut root,
            "add uid=dan,ou=people,dc=example,dc=com\n  objectClass: inetOrgPerson\n  cn: Dan\n  sn: Drake",
        );
        assert_eq!(found(&mut root, "(uid=dan)"), 1, "{round}");
        done(&mut root, "modify uid=dan,ou=people,dc=example,dc=com\n  replace sn: Dove");
        assert_eq!(found(&mut root, "(sn=dove)"), 1, "{round}");
        done(&mut root, "modrdn uid=dan,ou=people,dc=example,dc=com uid=don delete");
        assert_eq!((found(&mut root, "(uid=dan)"), found(&mut root, "(uid=don)")), (0, 1), "{round}");
        let changed = run(&mut root, "passwd uid=don,ou=people,dc=example,dc=com new=donpw");
        assert!(changed.starts_with("=> 0\n"), "{changed}");
        done(&mut Client::connect(shadow.address()), "as uid=don,ou=people,dc=example,dc=com donpw");
        done(&mut root, "delete uid=don,ou=people,dc=example,dc=com");
        assert_eq!(found(&mut root, "(uid=don)"), 0, "{round}");
    }
    // What the client asks for itself it gets, and no more.
    let read = run(&mut root, &format!("modify {ANN}\n  replace description: read")).replace("=> 0\n", "");
    assert_eq!(read, "");
    for (wanted, shown, hidden) in
        [("description", "description", "entryCSN"), ("entryCSN", "entryCSN", "description")]
    {
        let request = format!("modify {ANN} with postread={wanted}\n  replace description: read {wanted}");
        let read = run(&mut root, &request);
        assert!(read.contains(shown) && !read.contains(hidden), "{wanted}: {read}");
        assert_eq!(found(&mut root, &format!("(description=read {wanted})")), 1);
    }
    // Nor where nothing is changed in the end (draft-zeilenga-ldap-noop).
    let read = run(&mut root, &format!("modify {ANN} with noop\n  replace description: not made"));
    assert!(read.starts_with("=> 16654") && !read.contains("entryCSN"), "{read}");
    // What is refused is not waited for.
    let refused = run(&mut root, "delete uid=nobody,ou=people,dc=example,dc=com");
    assert!(refused.starts_with("=> 32"), "{refused}");
}

#[test]
fn what_is_written_on_a_shadow_is_read_there() {
    what_is_written_is_read(Kind::Larix);
}

#[test]
fn what_is_written_on_a_shadow_is_read_there_slapd() {
    what_is_written_is_read(Kind::Slapd);
}

/// The change is made: a wait that ends without it is no failure.
#[test]
fn a_change_that_does_not_come_back_is_answered_as_made() {
    let Pair { provider: _provider, shadow, relay } = pair(Kind::Larix, "chain-wait-replicated 1");
    let mut root = Client::connect(shadow.address());
    run(&mut root, &format!("as {ADMIN} secret"));
    relay.set(Passage::Silent);
    for request in [
        format!("modify {ANN}\n  replace description: made"),
        "delete uid=bob,ou=people,dc=example,dc=com".to_owned(),
    ] {
        let answer = run(&mut root, &request);
        let expected =
            "=> 0 text \"the change is made; it has not come back to this server within 1 seconds\"\n";
        assert_eq!(answer, expected, "{request}");
    }
    let line =
        "a change of \"uid=ann,ou=people,dc=example,dc=com\" that the provider has made has not come back";
    larix_testkit::until(line, || shadow.server.log().contains(line));
    relay.set(Passage::Open);
    until(&mut root, &format!("search {ANN} base (objectClass=*) description"), "made");
}

/// Where it cannot be known how far the provider is, nothing is waited for.
#[test]
fn a_provider_without_a_context_csn() {
    let provider = Running::start(Kind::Larix, &format!("authz-policy to\n{}", database("")), PEOPLE);
    let url = format!("ldap://{}", provider.address());
    let overlay = chain(&url, "chain-return-error TRUE\nchain-wait-replicated 300");
    let body = format!("{overlay}\n{}", database(&format!("updatedn cn=nobody\nupdateref {url}")));
    let shadow = Running::start(Kind::Larix, &body, PEOPLE);
    let mut root = Client::connect(shadow.address());
    run(&mut root, &format!("as {ADMIN} secret"));
    let answer = run(&mut root, "delete uid=bob,ou=people,dc=example,dc=com");
    let expected = "=> 0 text \"the change is made; it may not have come back to this server yet\"\n";
    assert_eq!(answer, expected);
}
