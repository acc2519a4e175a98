//! `chase-referrals yes`: a proxied database that follows the referrals of its target, beside slapd's own.

use std::net::SocketAddr;

use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site};
use larix_tests::client::{Client, run};
use larix_tests::relay::Relay;
use larix_tests::scenario;

use super::{ADMIN, ANN, Running, SUFFIX, database, referral_target, referring};

const REQUESTS: &str = "anonymous
search dc=example,dc=com sub (objectClass=*) cn sn
search dc=example,dc=com sub (uid=ann) sn
search dc=example,dc=com one (objectClass=*) cn ou
search dc=example,dc=com base (objectClass=*) o
search ou=people,dc=example,dc=com sub (objectClass=*) sn
search ou=people,dc=example,dc=com one (sn=b*) sn
search uid=ann,ou=people,dc=example,dc=com base (objectClass=*) sn
search ou=people,dc=example,dc=com base (objectClass=*) ou with manageDSAit
search cn=local,dc=example,dc=com base (objectClass=*) cn
search dc=example,dc=com sub (sn=nobody) cn
compare uid=ann,ou=people,dc=example,dc=com sn:archer
compare uid=ann,ou=people,dc=example,dc=com sn:nobody
";

/// A database whose target has a referral to the people of another server.
fn front(kind: Kind, target: SocketAddr, more: &str) -> Running {
    let module = if kind == Kind::Slapd { "moduleload back_ldap\n" } else { "" };
    let lines = format!("{module}database ldap\nsuffix {SUFFIX}\nuri ldap://{target}\n{more}\n");
    Running::start(kind, &lines, "")
}

fn target(people: &str) -> Running {
    Running::start(Kind::Larix, &database(""), &referring(people))
}

/// What is answered, whatever the order: slapd's library asks the other server while the target still answers. `with_references`:
/// the references, too, which slapd hands on even where it has followed them.
fn answers(address: SocketAddr, with_references: bool) -> Vec<(String, Vec<String>)> {
    let mut client = Client::connect(address);
    let sorted = |text: String| {
        let lines = text.lines().filter(|line| with_references || !line.starts_with("~>"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    scenario::parse(REQUESTS).iter().map(|step| (step.request.clone(), sorted(client.run(step)))).collect()
}

#[test]
fn slapd_chases_the_same() {
    if Kind::Slapd.is_lacking_module("back_ldap") {
        return;
    }
    let people = referral_target(Kind::Larix);
    let target = target(&format!("ldap://{}", people.address()));
    for chase in ["yes", "no"] {
        let [theirs, ours] = [Kind::Slapd, Kind::Larix].map(|kind| {
            let front = front(kind, target.address(), &format!("chase-referrals {chase}"));
            answers(front.address(), kind == Kind::Larix || chase == "no")
        });
        assert_eq!(ours, theirs, "chase-referrals {chase}");
        let found = ours.iter().any(|(request, lines)| {
            request.contains("(uid=ann)") && lines.iter().any(|line| line.contains("Archer"))
        });
        assert_eq!(found, chase == "yes", "{ours:?}");
    }
}

/// A server that a target names gets no password and no identity. What the proxy is to the target does not matter.
#[test]
fn nobody_is_known_where_a_referral_leads() {
    let people = referral_target(Kind::Larix);
    let target = target(&format!("ldap://{}", people.address()));
    let identity = format!(
        "chase-referrals yes\nrebind-as-user yes\nrootdn cn=root,{SUFFIX}\nrootpw secret\n\
         acl-bind bindmethod=simple binddn={ADMIN} credentials=secret\n\
         idassert-bind bindmethod=simple binddn={ADMIN} credentials=secret mode=none\nidassert-authzFrom *"
    );
    let front = front(Kind::Larix, target.address(), &identity);
    for who in [ADMIN.to_owned(), format!("cn=root,{SUFFIX}")] {
        let mut client = front.client();
        assert!(run(&mut client, &format!("as {who} secret")).starts_with("=> 0"));
        // The target itself knows who it is.
        let local_answer =
            run(&mut client, "modify cn=local,dc=example,dc=com\n  replace description: by the proxy");
        assert!(local_answer.starts_with("=> 0"), "{who}: {local_answer}");
        // The other server refuses what nobody asks for: the client has the referral.
        let relayed = run(&mut client, &format!("modify {ANN}\n  replace sn: Stolen"));
        assert!(relayed.starts_with("=> 10"), "{who}: {relayed}");
        let found = run(&mut client, &format!("search {ANN} base (objectClass=*) sn userPassword"));
        assert!(found.contains("Archer") && !found.contains("userPassword"), "{who}: {found}");
    }
    assert_eq!(Client::connect(people.address()).value(ANN, "sn").as_deref(), Some("Archer"));
}

/// A password that a request brings does not go to a server that a target names either: the client has the referral, and says for itself
/// whom it trusts.
#[test]
fn no_password_goes_where_a_referral_leads() {
    let people = referral_target(Kind::Larix);
    let relay = Relay::recording();
    relay.lead_to(people.address());
    let url = format!("ldap://{}", relay.address);
    let target = target(&url);
    let front = front(Kind::Larix, target.address(), "chase-referrals yes");
    let mut client = front.client();
    assert!(run(&mut client, &format!("as {ADMIN} secret")).starts_with("=> 0"));
    for request in [
        format!("passwd {ANN} new=newpw"),
        format!("compare {ANN} userPassword:annpw"),
        format!("modify {ANN}\n  replace userPassword: newpw"),
        format!(
            "add uid=dan,ou=people,{SUFFIX}\n  objectClass: inetOrgPerson\n  cn: Dan\n  sn: Drake\n  userPassword: newpw"
        ),
    ] {
        let answer = run(&mut client, &request);
        assert!(answer.starts_with("=> 10") && answer.contains(&url), "{request}: {answer}");
    }
    // What has none is asked there.
    assert!(run(&mut client, &format!("compare {ANN} sn:archer")).starts_with("=> 6"));
    let relayed: Vec<u8> = relay.recorded().iter().flat_map(|relayed| relayed.bytes.clone()).collect();
    let relayed = String::from_utf8_lossy(&relayed);
    assert!(
        relayed.contains("archer") && !relayed.contains("annpw") && !relayed.contains("newpw"),
        "{relayed}"
    );
}

/// Where no server answers, and where a server sends its clients to itself, the client has the referral.
#[test]
fn referrals_that_lead_nowhere_are_handed_on() {
    let port = free_port();
    let gone = format!("ldap://127.0.0.1:{}", free_port());
    let itself = format!("ldap://127.0.0.1:{port}");
    for url in [&gone, &itself] {
        let site = Site::new(Kind::Larix, &database(""));
        site.load(&referring(url));
        let listener = format!("ldap://127.0.0.1:{port}/");
        let server = Server::start_on(Kind::Larix, &site.configuration(), &[&listener], &[], &[]);
        let target = Running::with(server.unwrap_or_else(|error| panic!("{error}")), site);
        let front = front(Kind::Larix, target.address(), "chase-referrals yes\nnetwork-timeout 20");
        let mut client = front.client();
        for request in [format!("compare {ANN} sn:archer"), format!("search {ANN} base (objectClass=*) sn")] {
            let answer = run(&mut client, &request);
            assert!(
                answer.starts_with("=> 10") && answer.contains(url.as_str()),
                "{url} {request}: {answer}"
            );
        }
        let found = run(&mut client, "search dc=example,dc=com sub (objectClass=*) cn");
        assert!(
            found.contains("=> 0") && found.contains("cn: local") && found.contains(url.as_str()),
            "{url}: {found}"
        );
    }
}

/// Referrals back to the proxy: the loop is found by the first request that goes through it, so that one request becomes no thousands.
#[test]
fn referrals_back_to_the_proxy_multiply_no_requests() {
    let port = free_port();
    let back = format!("ldap://127.0.0.1:{port}");
    let monitor = "database monitor\naccess to * by * read\n";
    let more = format!(
        "\ndn: ou=more,{SUFFIX}\nobjectClass: referral\nobjectClass: extensibleObject\nou: more\nref: {back}/{SUFFIX}\n"
    );
    let ldif = referring(&back) + &more;
    let target = Running::start(Kind::Larix, &format!("{}{monitor}", database("")), &ldif);
    let lines =
        format!("database ldap\nsuffix {SUFFIX}\nuri ldap://{}\nchase-referrals yes\n", target.address());
    let site = Site::new(Kind::Larix, &lines);
    let listener = format!("{back}/");
    let server = Server::start_on(Kind::Larix, &site.configuration(), &[&listener], &[], &[]);
    let front = Running::with(server.unwrap_or_else(|error| panic!("{error}")), site);
    let (mut client, mut observer) = (front.client(), target.client());
    let mut initiated = |kind: &str| -> u64 {
        let count = observer.value(&format!("cn={kind},cn=Operations,cn=Monitor"), "monitorOpInitiated");
        count.expect("a count").parse().expect("a number")
    };
    for (kind, request, result) in [
        ("Search", format!("search {ANN} base (objectClass=*) sn"), "=> 10"),
        ("Search", format!("search {SUFFIX} sub (sn=archer) sn"), "=> 0"),
        ("Compare", format!("compare {ANN} sn:archer"), "=> 10"),
    ] {
        let before = initiated(kind);
        let answer = run(&mut client, &request);
        assert!(answer.contains(result), "{request}: {answer}");
        let asked = initiated(kind) - before;
        assert!((2..=200).contains(&asked), "{request}: {asked} requests");
    }
}
