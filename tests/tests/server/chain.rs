//! `overlay chain`: referrals that the server follows for its clients, beside slapd's own overlay; writes on a shadow; servers that are gone,
//! hang or lead in circles.

mod chasing;
mod forwarding;
mod waiting;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use larix_proto::encode::{self, EntryEncoder};
use larix_proto::{Frame, LdapResult, Message, Request, ResponseOp, ResultCode, frame};
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site};
use larix_tests::client::{Client, run};
use larix_tests::relay::Relay;
use larix_tests::running::Running;
use larix_tests::scenario;
use larix_tests::secure::Secure;

const SUFFIX: &str = "dc=example,dc=com";
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";

const PEOPLE: &str = "dn: dc=example,dc=com
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
userPassword: annpw

dn: uid=bob,ou=people,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Brewer
userPassword: bobpw
";

fn database(more: &str) -> String {
    format!(
        "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\nindex objectClass,entryUUID,entryCSN eq\n{more}\n\
         access to attrs=userPassword by self =xw by anonymous auth by * none\naccess to * by self write by * read\n"
    )
}

/// The server that referrals lead to.
fn referral_target(kind: Kind) -> Running {
    let module = if kind == Kind::Slapd { "moduleload syncprov\n" } else { "" };
    Running::start(kind, &format!("{module}authz-policy to\n{}", database("overlay syncprov")), PEOPLE)
}

/// Entries with a referral to the people, who are on another server.
fn referring(url: &str) -> String {
    format!(
        "dn: dc=example,dc=com\nobjectClass: organization\nobjectClass: dcObject\no: Example\ndc: example\n\n\
         dn: ou=people,dc=example,dc=com\nobjectClass: referral\nobjectClass: extensibleObject\nou: people\n\
         ref: {url}/ou=people,dc=example,dc=com\n\n\
         dn: cn=local,dc=example,dc=com\nobjectClass: organizationalRole\ncn: local\n"
    )
}

fn bind() -> String {
    format!(
        "chain-idassert-bind bindmethod=simple binddn={ADMIN} credentials=secret mode=self flags=non-prescriptive\n"
    )
}

/// The overlay with one server.
fn chain(url: &str, more: &str) -> String {
    format!("overlay chain\nchain-uri {url}\n{}{more}\n", bind())
}

const REQUESTS: &str = "anonymous
search dc=example,dc=com sub (objectClass=*) cn sn
search dc=example,dc=com sub (uid=ann) sn
search dc=example,dc=com one (objectClass=*) cn ou
search dc=example,dc=com base (objectClass=*) o
search ou=people,dc=example,dc=com sub (objectClass=*) sn
search ou=people,dc=example,dc=com one (sn=b*) sn
search uid=ann,ou=people,dc=example,dc=com base (objectClass=*) sn
search ou=people,dc=example,dc=com base (objectClass=*) ou with manageDSAit
search uid=ann,ou=people,dc=example,dc=com base (objectClass=*) sn with manageDSAit
search cn=local,dc=example,dc=com base (objectClass=*) cn
search dc=example,dc=com sub (sn=nobody) cn
add uid=dan,ou=people,dc=example,dc=com
  objectClass: inetOrgPerson
  cn: Dan
  sn: Drake
as cn=admin,dc=example,dc=com secret
add uid=dan,ou=people,dc=example,dc=com
  objectClass: inetOrgPerson
  cn: Dan
  sn: Drake
modify uid=dan,ou=people,dc=example,dc=com
  replace sn: Dove
modrdn uid=dan,ou=people,dc=example,dc=com uid=don delete
search dc=example,dc=com sub (uid=don) sn
modify cn=local,dc=example,dc=com
  replace description: here
delete uid=don,ou=people,dc=example,dc=com
search dc=example,dc=com sub (uid=don) sn
";

/// What a front answers to the requests.
fn answers(address: SocketAddr) -> Vec<(String, String)> {
    let mut client = Client::connect(address);
    scenario::parse(REQUESTS).iter().map(|step| (step.request.clone(), client.run(step))).collect()
}

/// slapd's overlay and this one (without compares: 2.5 answers them twice, with the result and the referral), each in front of a server with the people: the same answers, for a database and for all.
#[test]
fn slapd_chains_the_same() {
    if Kind::Slapd.is_lacking_module("back_ldap") {
        return;
    }
    for (is_global, more) in [(true, ""), (false, ""), (true, "chain-return-error TRUE")] {
        let [theirs, ours] = [Kind::Slapd, Kind::Larix].map(|kind| {
            let people = referral_target(Kind::Larix);
            let url = format!("ldap://{}/", people.address());
            let overlay = chain(&url, more);
            let module = if kind == Kind::Slapd { "moduleload back_ldap\n" } else { "" };
            let body = match is_global {
                true => format!("{module}{overlay}{}", database("")),
                false => format!("{module}{}", database(&overlay)),
            };
            let front = Running::start(kind, &body, &referring(url.trim_end_matches('/')));
            answers(front.address())
        });
        let different: Vec<String> = theirs
            .iter()
            .zip(&ours)
            .filter(|(theirs, ours)| theirs != ours)
            .map(|((request, theirs), (_, ours))| format!("{request}\nslapd: {theirs}larix: {ours}"))
            .map(|text| text.replace(|c: char| c.is_ascii_digit(), "#"))
            .collect();
        assert!(different.is_empty(), "{is_global} {more}\n{}", different.join("\n"));
        // Somebody was asked elsewhere.
        assert!(
            ours.iter().any(|(request, answer)| request.contains("(uid=ann)") && answer.contains("Archer"))
        );
    }
}

/// A consumer of `provider` that sends writers to it.
fn shadow(provider: SocketAddr, global: &str, more: &str) -> Running {
    let consumer = format!(
        "syncrepl rid=1 provider=ldap://{provider} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\"\nupdateref ldap://{provider}\n{more}"
    );
    let shadow = Running::start(Kind::Larix, &format!("{global}\n{}", database(&consumer)), "");
    until(&mut Client::connect(shadow.address()), &format!("search {ANN} base (objectClass=*) sn"), "Archer");
    shadow
}

/// Asks until the answer has this in it: replication takes its time.
fn until(client: &mut Client, request: &str, wanted: &str) {
    larix_testkit::until(&format!("{wanted:?} is the answer to {request}"), || {
        run(client, request).contains(wanted)
    });
}

fn writes_on_a_shadow(kind: Kind) {
    if kind.is_lacking() {
        return;
    }
    let provider = referral_target(kind);
    let url = format!("ldap://{}", provider.address());
    for is_global in [true, false] {
        let overlay = chain(&url, "chain-return-error TRUE");
        let shadow = match is_global {
            true => shadow(provider.address(), &overlay, ""),
            false => shadow(provider.address(), "", &overlay),
        };
        let mut client = Client::connect(shadow.address());
        let change = format!("modify {ANN}\n  replace description: by ann, {is_global}");
        // Nobody is nobody there, too.
        let refused = run(&mut client, &change);
        assert!(refused.starts_with("=> 8") || refused.starts_with("=> 50"), "{refused}");
        assert!(run(&mut client, &format!("as {ANN} annpw")).starts_with("=> 0"));
        let answer = run(&mut client, &change);
        assert!(answer.starts_with("=> 0"), "{kind:?} {answer}\n{}", shadow.server.log());
        let by = Client::connect(provider.address()).value(ANN, "modifiersName");
        assert_eq!(by.as_deref(), Some(ANN), "it was made as ann");
        // It comes back by replication.
        until(
            &mut client,
            &format!("search {ANN} base (objectClass=*) description"),
            &format!("ann, {is_global}"),
        );
        // The provider judges.
        let refused = run(&mut client, "modify uid=bob,ou=people,dc=example,dc=com\n  replace sn: Stolen");
        assert!(refused.starts_with("=> 50"), "{refused}");
        let missing = run(&mut client, "delete uid=nobody,ou=people,dc=example,dc=com");
        assert!(missing.starts_with("=> 32") || missing.starts_with("=> 50"), "{missing}");
        // A password is changed where it is kept.
        let changed = run(&mut client, &format!("passwd {ANN} new=annpw"));
        assert!(changed.starts_with("=> 0"), "{changed}");
        let mut root = Client::connect(shadow.address());
        assert!(run(&mut root, &format!("as {ADMIN} secret")).starts_with("=> 0"));
        let added =
            "add uid=dan,ou=people,dc=example,dc=com\n  objectClass: inetOrgPerson\n  cn: Dan\n  sn: Drake";
        assert!(run(&mut root, added).starts_with("=> 0"));
        let renamed = run(&mut root, "modrdn uid=dan,ou=people,dc=example,dc=com uid=don delete");
        assert!(renamed.starts_with("=> 0"), "{renamed}");
        assert!(run(&mut root, "delete uid=don,ou=people,dc=example,dc=com").starts_with("=> 0"));
    }
}

#[test]
fn writes_on_a_shadow_go_to_its_provider() {
    writes_on_a_shadow(Kind::Larix);
}

#[test]
fn writes_on_a_shadow_go_to_its_provider_slapd() {
    writes_on_a_shadow(Kind::Slapd);
}

/// What cannot be followed is the client's, or an error where the configuration or the client says so.
#[test]
fn servers_that_are_gone_or_hang() {
    let gone = format!("ldap://127.0.0.1:{}", free_port());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("ldap://{}", silent.local_addr().unwrap());
    for (url, code) in [(&gone, "=> 52"), (&hangs, "=> 52")] {
        for more in ["", "chain-return-error TRUE"] {
            let settings = format!("chain-network-timeout 1\n{more}");
            let body = format!("{}{}", chain(url, &settings), database(""));
            let front = Running::start(Kind::Larix, &body, &referring(url));
            let mut client = Client::connect(front.address());
            run(&mut client, &format!("as {ADMIN} secret"));
            let expected = if more.is_empty() { "=> 10" } else { code };
            for request in [
                format!("compare {ANN} sn:archer"),
                format!("search {ANN} base (objectClass=*) sn"),
                format!("delete {ANN}"),
            ] {
                let answer = run(&mut client, &request);
                assert!(answer.starts_with(expected), "{url} {more} {request}: {answer}");
            }
            // What is here is answered, with a reference to what is not.
            let found = run(&mut client, "search dc=example,dc=com sub (objectClass=*) cn");
            assert!(
                found.contains("=> 0") && found.contains("cn: local") && found.contains(url.as_str()),
                "{found}"
            );
        }
    }
    drop(silent);
}

/// Of several URLs the first that can be reached has the request, and no other.
#[test]
fn the_next_url_is_taken() {
    let gone = format!("ldap://127.0.0.1:{}", free_port());
    let people = referral_target(Kind::Larix);
    let ldif = referring(&gone).replace(
        "\n\ndn: cn=local",
        &format!("\nref: ldap://{}/ou=people,dc=example,dc=com\n\ndn: cn=local", people.address()),
    );
    let url = format!("ldap://{}", people.address());
    let front = Running::start(Kind::Larix, &format!("{}{}", chain(&url, ""), database("")), &ldif);
    let mut client = Client::connect(front.address());
    for _ in 0..4 {
        let found = run(&mut client, "search dc=example,dc=com sub (uid=ann) sn");
        assert!(found.contains("Archer") && !found.contains("ldap://"), "{found}");
        assert!(run(&mut client, &format!("compare {ANN} sn:archer")).starts_with("=> 6"));
    }
}

/// A server that answers each search with ann's entry, and then that it is busy.
fn breaks_off() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    bytes.extend_from_slice(&chunk[..count]);
                    while let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 20) {
                        let pdu: Vec<u8> = bytes.drain(..len).collect();
                        let message = Message::decode(&pdu).unwrap();
                        let (id, mut out) = (message.id, Vec::new());
                        match message.request {
                            Request::Bind(_) => {
                                encode::bind_result(&mut out, id, &LdapResult::success(), None, &[]);
                            }
                            Request::Search(_) => {
                                EntryEncoder::begin(&mut out, id, ANN).finish(&[]);
                                let busy = LdapResult::new(ResultCode::BUSY);
                                encode::result(&mut out, id, ResponseOp::SearchDone, &busy, &[]);
                            }
                            _ => return,
                        }
                        stream.write_all(&out).unwrap();
                    }
                }
            });
        }
    });
    address
}

/// Where one server has sent entries and then failed, the next one is not asked for them again: the client has the referral.
#[test]
fn no_entry_comes_of_two_servers() {
    let people = referral_target(Kind::Larix);
    let ldif = referring(&format!("ldap://{}", breaks_off())).replace(
        "\n\ndn: cn=local",
        &format!("\nref: ldap://{}/ou=people,dc=example,dc=com\n\ndn: cn=local", people.address()),
    );
    let url = format!("ldap://{}", people.address());
    let front = Running::start(Kind::Larix, &format!("{}{}", chain(&url, ""), database("")), &ldif);
    let mut client = Client::connect(front.address());
    for (base, code) in [(SUFFIX, "=> 0"), ("ou=people,dc=example,dc=com", "=> 10")] {
        let found = run(&mut client, &format!("search {base} sub (uid=ann) sn"));
        assert_eq!(found.matches("-> uid=ann").count(), 1, "{found}");
        assert!(found.contains("ldap://") && found.contains(code), "{found}");
    }
}

/// Servers that send each other's clients to each other end after some hops.
#[test]
fn circles_end() {
    let ports = [free_port(), free_port()];
    let fronts = [0, 1].map(|number| {
        let other = format!("ldap://127.0.0.1:{}", ports[1 - number]);
        let overlay = chain(&other, "chain-return-error TRUE");
        let body = format!(
            "authz-policy to\n{overlay}{}",
            database(&format!("updatedn cn=nobody\nupdateref {other}"))
        );
        let site = Site::new(Kind::Larix, &body);
        site.load(&referring(&other));
        let url = format!("ldap://127.0.0.1:{}/", ports[number]);
        let server = Server::start_on(Kind::Larix, &site.configuration(), &[&url], &[], &[]);
        Running::with(server.unwrap_or_else(|error| panic!("{error}")), site)
    });
    let mut client = Client::connect(fronts[0].address());
    assert!(run(&mut client, &format!("as {ADMIN} secret")).starts_with("=> 0"));
    for request in [
        format!("compare {ANN} sn:archer"),
        format!("search {ANN} base (objectClass=*) sn"),
        format!("delete {ANN}"),
        "modify cn=local,dc=example,dc=com\n  replace description: round".to_owned(),
        "passwd cn=local,dc=example,dc=com new=round".to_owned(),
    ] {
        let answer = run(&mut client, &request);
        assert!(answer.starts_with("=> 54"), "{request}: {answer}");
    }
}

/// A server that is not listed is asked by nobody in particular, and an identity is asserted to none but its server.
#[test]
fn unlisted_servers_are_asked_anonymously() {
    let people = referral_target(Kind::Larix);
    let relay = Relay::recording();
    relay.lead_to(people.address());
    let url = format!("ldap://{}", relay.address);
    let listed = format!("ldap://127.0.0.1:{}", free_port());
    let body = format!("{}{}", chain(&listed, "chain-return-error TRUE"), database(""));
    let front = Running::start(Kind::Larix, &body, &referring(&url));
    let mut client = Client::connect(front.address());
    run(&mut client, &format!("as {ADMIN} secret"));
    assert!(run(&mut client, "search dc=example,dc=com sub (uid=ann) sn").contains("Archer"));
    assert!(run(&mut client, &format!("delete {ANN}")).starts_with("=> 8"));
    let relayed: Vec<u8> = relay.recorded().iter().flat_map(|relayed| relayed.bytes.clone()).collect();
    assert!(!String::from_utf8_lossy(&relayed).contains("secret"));
}

/// Passwords go under TLS, and not at all where a server has none.
#[test]
fn with_tls_nothing_is_in_the_clear() {
    let secure = Secure::start(Kind::Larix, "");
    secure.site.load(PEOPLE);
    let plain = referral_target(Kind::Larix);
    for (target, works) in [(secure.server.address, true), (plain.address(), false)] {
        let relay = Relay::recording();
        relay.lead_to(target);
        let url = format!("ldap://{}", relay.address);
        let tls = format!(
            "chain-tls start tls_cacert={} tls_reqcert=demand\nchain-return-error TRUE",
            secure.path("ca.pem").display()
        );
        let body = format!("{}{}", chain(&url, &tls), database(""));
        let front = Running::start(Kind::Larix, &body, &referring(&url));
        let mut client = Client::connect(front.address());
        run(&mut client, &format!("as {ADMIN} secret"));
        let answer = run(&mut client, &format!("compare {ANN} sn:archer"));
        assert_eq!(answer.starts_with("=> 6"), works, "{answer}");
        let relayed: Vec<u8> = relay.recorded().iter().flat_map(|relayed| relayed.bytes.clone()).collect();
        let relayed = String::from_utf8_lossy(&relayed);
        assert!(!relayed.contains("secret") && !relayed.contains("archer"), "{relayed}");
    }
}

/// Limits hold for all servers together; pages are not mixed with what others have.
#[test]
fn limits_hold_together() {
    let people = referral_target(Kind::Larix);
    let url = format!("ldap://{}", people.address());
    let front =
        Running::start(Kind::Larix, &format!("{}{}", chain(&url, ""), database("")), &referring(&url));
    let mut client = Client::connect(front.address());
    for (limit, entries, code) in [(2, 2, "=> 4"), (4, 4, "=> 4"), (5, 5, "=> 0"), (9, 5, "=> 0")] {
        let found =
            run(&mut client, &format!("search dc=example,dc=com sub (objectClass=*) cn size={limit}"));
        assert_eq!(found.matches("-> ").count(), entries, "{limit}: {found}");
        assert!(found.contains(code), "{limit}: {found}");
    }
    let found = run(&mut client, "search dc=example,dc=com sub (objectClass=*) cn with page=5");
    assert!(found.contains(&url) && !found.contains("uid=ann"), "{found}");
    let found = run(&mut client, "search ou=people,dc=example,dc=com sub (uid=*) uid with page=1");
    assert!(found.starts_with("=> 10"), "{found}");
    let wants_chaining = "1.3.6.1.4.1.4203.666.11.3";
    // The server that is asked has no such overlay, and need not know the control.
    for criticality in ["", "!"] {
        let control = format!("{criticality}{wants_chaining}");
        let found = run(&mut client, &format!("search {ANN} base (objectClass=*) sn with {control}"));
        assert!(found.contains("Archer"), "{control}: {found}");
    }
}

/// What is asserted of the base is judged where that is (RFC 4528 section 3), and says nothing about what references lead to.
#[test]
fn an_assertion_is_about_the_base() {
    let people = referral_target(Kind::Larix);
    let url = format!("ldap://{}", people.address());
    let overlay = chain(&url, "chain-return-error TRUE");
    let front = Running::start(Kind::Larix, &format!("{overlay}{}", database("")), &referring(&url));
    let mut client = Client::connect(front.address());
    for (request, expected) in [
        ("search dc=example,dc=com sub (uid=ann) sn with !assert=(o=Example)", "Archer"),
        ("search dc=example,dc=com sub (uid=ann) sn with !assert=(o=Other)", "=> 122"),
        ("search ou=people,dc=example,dc=com sub (uid=ann) sn with !assert=(ou=people)", "Archer"),
        ("search ou=people,dc=example,dc=com sub (uid=ann) sn with !assert=(ou=other)", "=> 122"),
    ] {
        let found = run(&mut client, request);
        assert!(found.contains(expected), "{request}: {found}");
    }
}

/// cn=config adds the overlay, its servers and takes them away while the server runs.
#[test]
fn cn_config_changes_it() {
    let people = referral_target(Kind::Larix);
    let url = format!("ldap://{}", people.address());
    let body = format!("database config\nrootpw secret\n{}", database(""));
    let front = Running::start(Kind::Larix, &body, &referring(&url));
    let mut client = Client::connect(front.address());
    let ann = "search dc=example,dc=com sub (uid=ann) sn";
    assert!(run(&mut client, ann).contains(&url));
    let mut config = Client::connect(front.address());
    run(&mut config, "as cn=config secret");
    let overlay = "olcOverlay={0}chain,olcDatabase={-1}frontend,cn=config";
    let answer = run(
        &mut config,
        &format!(
            "add {overlay}\n  objectClass: olcOverlayConfig\n  objectClass: olcChainConfig\n  olcOverlay: {{0}}chain"
        ),
    );
    assert!(answer.starts_with("=> 0"), "{answer}");
    // Anonymously.
    assert!(run(&mut client, ann).contains("Archer"));
    let mut admin = Client::connect(front.address());
    run(&mut admin, &format!("as {ADMIN} secret"));
    let change = format!("modify {ANN}\n  replace description: chained");
    assert!(run(&mut admin, &change).starts_with("=> 10"));
    let server = format!(
        "add \"olcDatabase=ldap,{overlay}\"\n  objectClass: olcLDAPConfig\n  objectClass: olcChainDatabase\n  olcDbURI: {url}\n  \
         olcDbIDAssertBind: bindmethod=simple binddn=\"{ADMIN}\" credentials=secret mode=self"
    );
    let answer = run(&mut config, &server);
    assert!(answer.starts_with("=> 0"), "{answer}");
    assert!(run(&mut admin, &change).starts_with("=> 0"));
    let shown = run(&mut config, &format!("search {overlay} one (objectClass=*) olcDbURI"));
    assert!(shown.contains("olcDatabase={0}ldap") && shown.contains(&url), "{shown}");
    for (lines, part) in [
        ("  olcDbURI: ldap://a.example ldap://b.example", "one URI"),
        ("  olcDbURI: ldap://a.example\n  olcSuffix: dc=a", "no setting of a server"),
        ("  olcDbRebindAsUser: TRUE", "no olcDbURI"),
    ] {
        let entry = format!(
            "add olcDatabase=ldap,{overlay}\n  objectClass: olcLDAPConfig\n  objectClass: olcChainDatabase\n{lines}"
        );
        let refused = run(&mut config, &entry);
        assert!(refused.contains(part), "{refused}");
    }
    let answer = run(&mut config, &format!("delete olcDatabase={{0}}ldap,{overlay}"));
    assert!(answer.starts_with("=> 0"), "{answer}");
    assert!(run(&mut admin, &change).starts_with("=> 10"));
}
