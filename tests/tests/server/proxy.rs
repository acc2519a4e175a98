//! `database ldap`: what goes through a proxy to Larix and to a real slapd, and targets that are gone, hang, lie or lead in circles.

mod faults;
mod health;

use std::net::SocketAddr;
use std::time::Duration;

use larix_testkit::{Authority, Kind, Server, Site, until};
use larix_tests::client::{Client, run};
use larix_tests::relay::Relay;
use larix_tests::running::Running;
use larix_tests::scenario;
use larix_tests::secure::Secure;

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";

const ENTRIES: &str = "dn: dc=example,dc=com
objectClass: organization
objectClass: dcObject
o: Example
dc: example

dn: ou=people,dc=example,dc=com
objectClass: organizationalUnit
ou: people

dn: uid=ann,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: Archer
mail: ann@example.com
userPassword: annpw

dn: uid=bob,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Brewer
mail: bob@example.com
userPassword: bobpw

dn: uid=eve,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: eve
cn: Eve
sn: Evans
userPassword: evepw

dn: ou=elsewhere,dc=example,dc=com
objectClass: referral
objectClass: extensibleObject
ou: elsewhere
ref: ldap://other.example.com/ou=elsewhere,dc=example,dc=com
";

fn target(kind: Kind) -> Running {
    let body = format!(
        "authz-policy to\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\nindex uid eq\n\
         access to attrs=userPassword by self =xw by anonymous auth by * none\naccess to * by self write by * read\n"
    );
    Running::start(kind, &body, ENTRIES)
}

/// A proxy in front of an address.
fn proxy(target: SocketAddr, settings: &str) -> Running {
    proxy_with(&format!("ldap://{target}"), settings, "")
}

fn proxy_with(uri: &str, settings: &str, beside: &str) -> Running {
    let body = format!(
        "http-listener http://127.0.0.1:0/\nallow update_anon\ndatabase ldap\nsuffix {SUFFIX}\nuri \"{uri}\"\n{settings}\n{beside}"
    );
    let site = Site::new(Kind::Larix, &body);
    let server = Server::start_with(Kind::Larix, &site.configuration(), &["-d", "256"], &[]);
    Running::with(server.unwrap_or_else(|error| panic!("{error}")), site)
}

/// Requests in the text of scenarios.
const REQUESTS: &str = "anonymous
search dc=example,dc=com sub (objectClass=*) cn sn mail
search dc=example,dc=com one (objectClass=*)
search uid=ann,ou=people,dc=example,dc=com base (objectClass=*)
search uid=nobody,ou=people,dc=example,dc=com base (objectClass=*)
search dc=example,dc=com sub (&(uid=ann)(sn=arch*)) sn
search dc=example,dc=com sub (unknownAttribute=x) sn
search ou=people,dc=example,dc=com sub (uid=*) uid with manageDSAit
search ou=elsewhere,dc=example,dc=com base (objectClass=*)
compare uid=ann,ou=people,dc=example,dc=com sn:archer
compare uid=ann,ou=people,dc=example,dc=com sn:baker
compare uid=nobody,ou=people,dc=example,dc=com sn:baker
add uid=dan,ou=people,dc=example,dc=com
  objectClass: inetOrgPerson
  cn: Dan
  sn: Drake
as uid=ann,ou=people,dc=example,dc=com wrong
as uid=nobody,ou=people,dc=example,dc=com wrong
as uid=ann,ou=people,dc=example,dc=com annpw
whoami
modify uid=ann,ou=people,dc=example,dc=com
  replace sn: Anderson
search uid=ann,ou=people,dc=example,dc=com base (objectClass=*) sn modifiersName
modify uid=bob,ou=people,dc=example,dc=com
  replace sn: Stolen
passwd uid=ann,ou=people,dc=example,dc=com annpw newpw
as uid=ann,ou=people,dc=example,dc=com annpw
as uid=ann,ou=people,dc=example,dc=com newpw
as cn=admin,dc=example,dc=com secret
add uid=dan,ou=people,dc=example,dc=com
  objectClass: inetOrgPerson
  cn: Dan
  sn: Drake
add uid=dan,ou=people,dc=example,dc=com
  objectClass: inetOrgPerson
  cn: Dan
  sn: Drake
add uid=dot,ou=people,dc=example,dc=com
  objectClass: inetOrgPerson
  cn: Dot
modrdn uid=dan,ou=people,dc=example,dc=com uid=don delete
modrdn uid=don,ou=people,dc=example,dc=com uid=don keep dc=example,dc=com
search uid=don,dc=example,dc=com base (objectClass=*) uid cn
modify uid=don,dc=example,dc=com
  add description: one
  delete title
delete uid=don,dc=example,dc=com
delete uid=don,dc=example,dc=com
delete ou=people,dc=example,dc=com
search ou=people,dc=example,dc=com sub (uid=*) uid with page=2
search ou=people,dc=example,dc=com sub (uid=*) uid with next=2
search dc=example,dc=com sub (uid=bob) sn + with assert=(sn=x)
";

/// Every request directly and through a proxy: the same answers, byte for byte where the servers chose nothing.
fn same_answers(kind: Kind) {
    if kind.is_lacking() {
        return;
    }
    let (direct, remote) = (target(kind), target(kind));
    let front = proxy(remote.server.address, "");
    let (mut plain, mut proxied) =
        (Client::connect(direct.server.address), Client::connect(front.server.address));
    let mut differences = Vec::new();
    for step in scenario::parse(REQUESTS) {
        let (expected, found) = (plain.run(&step), proxied.run(&step));
        if expected != found {
            differences.push(format!("{}\ndirect: {expected}proxied: {found}", step.request));
        }
    }
    assert!(differences.is_empty(), "{kind:?}\n{}\n{}", differences.join("\n"), front.server.log());
}

#[test]
fn in_front_of_larix_answers_are_the_same() {
    same_answers(Kind::Larix);
}

#[test]
fn in_front_of_slapd_answers_are_the_same() {
    same_answers(Kind::Slapd);
}

/// slapd's back-ldap and this proxy, in front of the same target: the same answers.
#[test]
fn slapd_in_front_answers_the_same() {
    if Kind::Slapd.is_lacking_module("back_ldap") {
        return;
    }
    let (first, second) = (target(Kind::Larix), target(Kind::Larix));
    let body = format!(
        "moduleload back_ldap\ndatabase ldap\nsuffix {SUFFIX}\nuri \"ldap://{}\"\nchase-referrals no\n",
        first.server.address
    );
    let site = Site::new(Kind::Slapd, &body);
    let slapd = site.start().unwrap_or_else(|error| panic!("{error}"));
    let front = proxy(second.server.address, "");
    let (mut theirs, mut ours) = (Client::connect(slapd.address), Client::connect(front.server.address));
    let (mut differences, mut entries) = (Vec::new(), 0);
    for step in scenario::parse(REQUESTS) {
        let (expected, found) = (theirs.run(&step), ours.run(&step));
        entries += found.matches("-> ").count();
        if expected != found {
            differences.push(format!("{}\nslapd: {expected}larix: {found}", step.request));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(entries > 0, "the target was not reached");
}

/// Who changes an entry, by the modes of identity assertion.
#[test]
fn identities_are_asserted() {
    const LOCAL: &str =
        "database mdb\nsuffix o=local\nrootdn cn=root,o=local\nrootpw secret\ndirectory @DATA@\n";
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    let bind = format!("idassert-bind bindmethod=simple binddn={ADMIN} credentials=secret");
    for (lines, is_anonymous, expected) in [
        // Nobody is asserted: anonymous, who may write nothing.
        (String::new(), false, "=> 8"),
        (format!("{bind} mode=none"), false, ADMIN),
        (format!("{bind} mode=none"), true, ADMIN),
        (format!("{bind} authzId=dn:{ann}"), false, ann),
        (format!("{bind} authzId={ann}"), true, ann),
        // Without a mode the proxy acts in its own name, but for an anonymous client, who is anonymous to the target, too.
        (bind.clone(), false, ADMIN),
        (bind.clone(), true, "=> 8"),
        (format!("{bind} mode=none\nidassert-authzFrom dn.subtree:o=other"), false, "=> 48"),
        (format!("{bind} mode=none\nidassert-authzFrom dn.children:o=local"), false, ADMIN),
        // As slapd 2.5.13 answers: an empty DN stands for nobody but an anonymous client.
        (format!("{bind} mode=none\nidassert-authzFrom dn.children:"), false, "=> 48"),
        (format!("{bind} mode=none\nidassert-authzFrom dn.subtree:"), false, "=> 48"),
        (format!("{bind} mode=none\nidassert-authzFrom dn.subtree:"), true, ADMIN),
        (format!("{bind} mode=none\nidassert-authzFrom dn:*"), true, ADMIN),
        (format!("{bind} mode=none\nidassert-authzFrom dn.regex:.*"), true, ADMIN),
        (format!("{bind} mode=none\nidassert-authzFrom dn.children:*"), true, "=> 48"),
        (format!("{bind} mode=none\nidassert-authzFrom dn.children:*"), false, ADMIN),
        (
            format!("{bind} mode=none flags=non-prescriptive\nidassert-authzFrom dn.subtree:o=other"),
            false,
            "=> 8",
        ),
        (format!("{bind} mode=none\nidassert-passThru dn.subtree:o=local"), false, "=> 8"),
    ] {
        let remote = target(Kind::Larix);
        let front = proxy_with(&format!("ldap://{}", remote.server.address), &lines, LOCAL);
        let mut client = Client::connect(front.server.address);
        if !is_anonymous {
            let bound = run(&mut client, "as cn=root,o=local secret");
            assert!(bound.contains("=> 0"), "{lines}: {bound}");
        }
        let change = format!("modify {ann}\n  replace description: changed");
        let answer = run(&mut client, &change);
        let by = Client::connect(remote.server.address).value(ann, "modifiersName").unwrap_or_default();
        let shown = if answer.starts_with("=> 0") { by } else { answer.clone() };
        assert!(shown.contains(expected), "{lines} (anonymous: {is_anonymous}): {shown} {answer}");
    }
}

/// `overlay authzid` answers its control itself: the target need not know it.
#[test]
fn the_control_of_authzid_stays_here() {
    let remote = target(Kind::Larix);
    let uri = format!("ldap://{}", remote.server.address);
    let body = format!("overlay authzid\ndatabase ldap\nsuffix {SUFFIX}\nuri {uri}\n");
    let front = Running::start(Kind::Larix, &body, "");
    let mut client = Client::connect(front.server.address);
    let answer = run(&mut client, &format!("as {ADMIN} secret with !2.16.840.1.113730.3.4.16"));
    assert!(answer.starts_with("=> 0"), "{answer}");
}

/// With `proxy-whoami yes` the target says who a client is that has bound there and acts for another.
#[test]
fn who_acts_for_another_is_known_to_the_target() {
    let remote = target(Kind::Larix);
    let ann = "uid=ann,ou=people,dc=example,dc=com";
    let as_bob = "whoami with !authzid=dn:uid=bob,ou=people,dc=example,dc=com";
    let bob = "value: dn:uid=bob,ou=people,dc=example,dc=com";
    for (root, password, line, expected) in [
        // The root of the proxy may act for everybody here, and for nobody there.
        (ann, "annpw", "", bob),
        (ann, "annpw", "proxy-whoami yes", "=> 123"),
        (ADMIN, "secret", "proxy-whoami yes", bob),
    ] {
        let front = proxy(remote.server.address, &format!("rootdn {root}\n{line}"));
        let mut client = Client::connect(front.server.address);
        assert!(run(&mut client, &format!("as {root} {password}")).contains("=> 0"), "{root}");
        let own = run(&mut client, "whoami");
        assert!(own.contains(&format!("value: dn:{root}")), "{root}: {own}");
        let found = run(&mut client, as_bob);
        assert!(found.contains(expected), "{root}, {line}: {found}");
    }
    // Who has bound here is known here.
    let lines = format!("rootdn cn=root,{SUFFIX}\nrootpw secret\nproxy-whoami yes");
    let front = proxy(remote.server.address, &lines);
    let mut client = Client::connect(front.server.address);
    assert!(run(&mut client, &format!("as cn=root,{SUFFIX} secret")).contains("=> 0"));
    let found = run(&mut client, as_bob);
    assert!(found.contains(bob), "{found}");
}

/// A server that answers, but never through TLS, is no better than one that does not: the next one is asked.
#[test]
fn a_target_without_tls_is_passed_over() {
    let remote = target(Kind::Larix);
    let address = remote.server.address;
    let front = proxy_with(&format!("ldaps://{address} ldap://{address}"), "tls ldaps tls_reqcert=never", "");
    let mut client = Client::connect(front.server.address);
    for _ in 0..3 {
        let found = run(&mut client, "search dc=example,dc=com base (objectClass=*) 1.1");
        assert!(found.contains("=> 0"), "{found}");
    }
}

/// How long idle connections may take to be closed, in tenths of a second.
const CLOSED_WITHIN: usize = 300;

/// cn=Monitor shows which connections to the target are open, as whom, and that they end.
#[test]
fn the_monitor_shows_connections() {
    let remote = target(Kind::Larix);
    let lines = format!(
        "idle-timeout 1\nrebind-as-user yes\nrootpw secret\nrootdn cn=root,{SUFFIX}\nacl-bind bindmethod=simple binddn={ADMIN} credentials=secret"
    );
    let uri = format!("ldap://{}", remote.server.address);
    let front = proxy_with(&uri, &lines, "database monitor\naccess to * by * read\n");
    let mut client = Client::connect(front.server.address);
    let mut open = || {
        let connections = "search cn=Databases,cn=Monitor sub (objectClass=olmLDAPConnection) +";
        run(&mut client, connections)
    };
    assert_eq!(open().matches("-> ").count(), 0, "{}", open());
    let mut users = Vec::new();
    for name in ["", &format!("as uid=ann,ou=people,{SUFFIX} annpw"), &format!("as cn=root,{SUFFIX} secret")]
    {
        let mut user = Client::connect(front.server.address);
        if !name.is_empty() {
            assert!(run(&mut user, name).contains("=> 0"));
        }
        users.push((user, name.to_owned()));
    }
    let expected = [
        format!("olmDbConnURI: {uri}"),
        format!("olmDbConnPeerAddress: IP={}", remote.server.address),
        "olmDbConnFlags: anonymous".to_owned(),
        "olmDbConnFlags: privileged".to_owned(),
        format!("olmDbBoundDN: uid=ann,ou=people,{SUFFIX}"),
        format!("olmDbBoundDN: {ADMIN}"),
    ];
    // On a busy machine the first one may have been closed before the last one is open.
    until("the monitor has all of them", || {
        for (user, name) in &mut users {
            if !name.is_empty() {
                assert!(run(user, name).contains("=> 0"));
            }
            assert!(run(user, "search dc=example,dc=com base (objectClass=*) 1.1").contains("=> 0"));
        }
        let shown = open();
        expected.iter().all(|line| shown.contains(line))
    });
    let ended = (0..CLOSED_WITHIN).any(|_| {
        std::thread::park_timeout(Duration::from_millis(100));
        open().matches("-> ").count() == 0
    });
    assert!(ended, "idle connections stay open: {}", open());
}

/// Rules of the proxy hold for what its targets answer; its limits, too.
#[test]
fn what_the_proxy_lets_be_seen() {
    let remote = target(Kind::Larix);
    let rules = "sizelimit 2\nomit-unknown-schema yes\nnorefs yes\n\
                 access to dn.base=uid=bob,ou=people,dc=example,dc=com by * none\n\
                 access to attrs=mail by users read by * none\naccess to * by * read\n";
    let front = proxy(remote.server.address, rules);
    let mut client = Client::connect(front.server.address);
    let found = run(&mut client, "search ou=people,dc=example,dc=com one (sn=*) sn mail");
    assert!(found.contains("uid=ann"), "{found}");
    assert!(!found.contains("uid=bob") && !found.contains("mail"), "{found}");
    assert!(found.contains("=> 4"), "the target has three: {found}");
    let found = run(&mut client, "search dc=example,dc=com one (ou=elsewhere)");
    assert!(!found.contains("other.example.com"), "{found}");
    // Nor by way of an entry that names another.
    let mut admin = Client::connect(remote.server.address);
    assert!(run(&mut admin, &format!("as {ADMIN} secret")).contains("=> 0"));
    let named =
        "modify uid=eve,ou=people,dc=example,dc=com\n  add manager: uid=ann,ou=people,dc=example,dc=com";
    assert!(run(&mut admin, named).contains("=> 0"));
    let asked = "search uid=eve,ou=people,dc=example,dc=com base (sn=*) sn with deref=manager:mail";
    assert!(run(&mut admin, asked).contains("ann@example.com"));
    let found = run(&mut client, asked);
    assert!(found.contains("Evans") && !found.contains("ann@example.com"), "{found}");
    run(&mut client, "as uid=ann,ou=people,dc=example,dc=com annpw");
    let found = run(&mut client, "search uid=ann,ou=people,dc=example,dc=com base (sn=*) mail");
    assert!(found.contains("ann@example.com"), "{found}");
}

/// Many clients share a few connections, bound and anonymous ones, and each has his own answers.
#[test]
fn connections_are_shared() {
    let remote = target(Kind::Larix);
    let relay = Relay::recording();
    relay.lead_to(remote.server.address);
    let front = proxy(relay.address, "conn-pool-max 2");
    let names = ["ann", "bob", "eve"];
    let mut clients: Vec<Client> = (0..60).map(|_| Client::connect(front.server.address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        if number % 2 == 0 {
            let name = names[number % 3];
            let bound = run(client, &format!("as uid={name},ou=people,dc=example,dc=com {name}pw"));
            assert!(bound.contains("=> 0"), "{bound}");
        }
    }
    for round in 0..5 {
        for (number, client) in clients.iter_mut().enumerate() {
            let name = names[(number + round) % 3];
            let found = run(client, &format!("search dc=example,dc=com sub (uid={name}) uid"));
            assert!(found.contains(&format!("uid={name},ou=people")) && found.contains("=> 0"), "{found}");
        }
    }
    let connections: std::collections::HashSet<usize> =
        relay.recorded().iter().map(|relayed| relayed.connection).collect();
    // Two anonymous ones, two of each user, and one for binds.
    assert!(connections.len() <= 9, "{} connections", connections.len());
}

/// Several clients of one identity read answers page by page in turns: a slapd keeps one cookie with each connection. `bind`: the line
/// that binds them, if any.
fn pages_in_turns(kind: Kind, settings: &str, bind: Option<&str>, clients: usize) -> String {
    let people =
        (0..9).map(|n| format!("dn: uid=p{n},ou=people,{SUFFIX}\nobjectClass: account\nuid: p{n}\n\n"));
    let body = format!(
        "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\nindex uid eq\naccess to * by * read\n"
    );
    let entries = format!("{ENTRIES}\n{}", people.collect::<String>());
    let target = Running::start(kind, &body, &entries);
    let front = proxy(target.server.address, settings);
    let mut clients: Vec<Client> = (0..clients).map(|_| front.client()).collect();
    for client in &mut clients {
        let bound = bind.map(|bind| run(client, bind));
        assert!(bound.is_none_or(|bound| bound.starts_with("=> 0")));
    }
    let mut answers = String::new();
    for control in ["page=2", "next=2", "next=2", "next=2", "next=2"] {
        for client in &mut clients {
            answers += &run(client, &format!("search ou=people,{SUFFIX} one (uid=p*) uid with {control}"));
        }
    }
    answers
}

#[test]
fn pages_are_read_over_one_connection() {
    for kind in [Kind::Larix, Kind::Slapd] {
        if kind.is_lacking() {
            return;
        }
        // A service's processes are bound by the same name.
        let ann = "as uid=ann,ou=people,dc=example,dc=com annpw";
        for (bind, clients) in [(None, 1), (None, 5), (Some(ann), 1), (Some(ann), 5)] {
            let answers = pages_in_turns(kind, "", bind, clients);
            assert_eq!(answers.matches("-> ").count(), 9 * clients, "{kind:?}, {bind:?}: {answers}");
            assert_eq!(answers.matches("=> 0").count(), 5 * clients, "{kind:?}, {bind:?}: {answers}");
        }
    }
    // With fewer connections than answers, the first answers come to an end early, as in slapd.
    let answers = pages_in_turns(Kind::Slapd, "conn-pool-max 2", None, 3);
    assert!(answers.contains("=> 53") && answers.matches("-> ").count() >= 9, "{answers}");
}

/// A slapd has five sorted answers for a connection at most, and keeps one with it of which a part was asked for.
#[test]
fn sorting_is_spread_over_connections() {
    if Kind::Slapd.is_lacking() {
        return;
    }
    // Over all connections together it sorts for half its threads: without more, for eight.
    let body = format!(
        "moduleload sssvlv\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
         access to * by * read\noverlay sssvlv\nsssvlv-max 100\n"
    );
    let remote = Running::start(Kind::Slapd, &body, ENTRIES);
    let front = proxy(remote.server.address, "");
    let sorted = format!("search ou=people,{SUFFIX} one (sn=*) sn with !sort=sn:caseIgnoreOrderingMatch");
    // Pages go on over the connection that they began with.
    let paged = format!("search ou=people,{SUFFIX} one (sn=*) sn with");
    let mut reader = front.client();
    assert!(run(&mut reader, &format!("{paged} page=2")).contains("=> 0"));
    for number in 0..8 {
        let found = run(&mut front.client(), &format!("{sorted} !vlv=0/0/1/0"));
        assert!(found.contains("Archer") && found.contains("=> 0"), "{number}: {found}");
    }
    let found = run(&mut reader, &format!("{paged} next=2"));
    assert!(found.matches("-> ").count() == 1 && found.contains("=> 0"), "{found}");
    let address = front.server.address;
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = Client::connect(address);
                for _ in 0..20 {
                    let found = run(&mut client, &sorted);
                    assert!(found.contains("Evans") && found.contains("=> 0"), "{found}");
                }
            });
        }
    });
}

/// cn=config changes the target of a database, and adds databases, while the server runs.
#[test]
fn cn_config_changes_it() {
    let (first, second) = (target(Kind::Larix), target(Kind::Larix));
    let mut admin = Client::connect(second.server.address);
    run(&mut admin, &format!("as {ADMIN} secret"));
    let changed = run(&mut admin, "modify uid=ann,ou=people,dc=example,dc=com\n  replace sn: Second");
    assert!(changed.starts_with("=> 0"), "{changed}");
    let beside = "database config\nrootpw secret\n";
    let front = proxy_with(&format!("ldap://{}", first.server.address), "", beside);
    let mut client = Client::connect(front.server.address);
    let ann = "search dc=example,dc=com sub (uid=ann) sn";
    assert!(run(&mut client, ann).contains("Archer"));
    let mut config = Client::connect(front.server.address);
    assert!(run(&mut config, "as cn=config secret").starts_with("=> 0"));
    let database = "olcDatabase={1}ldap,cn=config";
    let shown = run(&mut config, &format!("search {database} base (objectClass=olcLDAPConfig) olcDbURI"));
    assert!(shown.contains(&first.server.address.to_string()), "{shown}");
    let uri = format!("modify {database}\n  replace olcDbURI: ldap://{}", second.server.address);
    let answer = run(&mut config, &uri);
    assert!(answer.starts_with("=> 0"), "{answer}");
    assert!(run(&mut client, ann).contains("Second"));
    let refused = run(&mut config, &format!("modify {database}\n  add olcDbStartTLS: propagate"));
    assert!(refused.contains("clients with and without TLS"), "{refused}");
}

/// Passwords and answers go under TLS, and not at all where the target has none.
#[test]
fn with_tls_nothing_is_in_the_clear() {
    let secure = Secure::start(Kind::Larix, "");
    secure.site.load(ENTRIES);
    let relay = Relay::recording();
    relay.lead_to(secure.server.address);
    let ca = secure.path("ca.pem");
    let port = relay.address.port();
    let uri = format!("ldap://localhost:{port}");
    let tls = format!("tls start tls_cacert={}", ca.display());
    let front = proxy_with(&uri, &tls, "");
    let mut client = Client::connect(front.server.address);
    let bound = run(&mut client, &format!("as {ADMIN} secret"));
    assert!(bound.contains("=> 0"), "{bound}\n{}", front.server.log());
    let found = run(&mut client, "search dc=example,dc=com sub (uid=ann) mail");
    assert!(found.contains("ann@example.com"), "{found}");
    let contains = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    let relayed: Vec<u8> = relay.recorded().into_iter().flat_map(|relayed| relayed.bytes).collect();
    assert!(!contains(&relayed, b"secret") && !contains(&relayed, b"ann@example.com"));
    assert!(!front.server.log().contains("secret"));
    // One without TLS: where that is no fault, the anonymous alone are asked for.
    let plain = target(Kind::Larix);
    for (begins, anonymous) in [("start", "=> 52"), ("try-start", "ann@example.com")] {
        let relay = Relay::recording();
        relay.lead_to(plain.server.address);
        let port = relay.address.port();
        let tls = format!("tls {begins} tls_cacert={}", ca.display());
        let front = proxy_with(&format!("ldap://localhost:{port}"), &tls, "");
        let mut client = Client::connect(front.server.address);
        let found = run(&mut client, "search dc=example,dc=com sub (uid=ann) mail");
        assert!(found.contains(anonymous), "{begins}: {found}");
        let bound = run(&mut client, &format!("as {ADMIN} secret"));
        assert!(bound.contains("=> 52"), "{begins}: {bound}");
        let relayed: Vec<u8> = relay.recorded().into_iter().flat_map(|relayed| relayed.bytes).collect();
        assert!(!relayed.is_empty() && !contains(&relayed, b"secret"), "{begins}");
    }
}

/// A connection that is made later has what is in the files by then.
#[test]
fn an_authority_that_is_replaced_is_believed() {
    let secure = Secure::start(Kind::Larix, "");
    let ca = secure.path("replaced.pem");
    std::fs::write(&ca, Authority::new("Other").certificate()).unwrap();
    let uri = format!("ldaps://127.0.0.1:{}", secure.secure_port);
    let front = proxy_with(&uri, &format!("tls none tls_cacert={}", ca.display()), "");
    let mut client = Client::connect(front.server.address);
    let search = "search dc=example,dc=com base (objectClass=*)";
    let refused = run(&mut client, search);
    assert!(refused.contains("=> 52") && refused.contains("is not trusted"), "{refused}");
    std::fs::write(&ca, secure.authority.certificate()).unwrap();
    until("the target is reached", || run(&mut client, search).contains("=> 32"));
}
