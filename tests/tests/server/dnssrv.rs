//! `database dnssrv`: referrals to the servers that the DNS names, from a name server of the test.

use larix_testkit::Kind;
use larix_testkit::dns::{FOUND, NO_SUCH_NAME, NameServer, REFUSED, srv_record};
use larix_tests::client::run;
use larix_tests::running::Running;

fn name_server() -> NameServer {
    NameServer::start(|question| {
        let records: &[Vec<u8>] = match &*question.name {
            "_ldaps._tcp.example.com" => &[srv_record(1, 0, 636, "secure.example.com")],
            "_ldap._tcp.example.com" => &[
                srv_record(20, 0, 389, "backup.example.com"),
                srv_record(10, 0, 10389, "first.example.com"),
                // What would change the URL.
                srv_record(0, 0, 389, "evil/dc=x"),
            ],
            name if name.ends_with("broken.com") => return vec![question.answer(REFUSED, &[])],
            _ => return vec![question.answer(NO_SUCH_NAME, &[])],
        };
        vec![question.answer(FOUND, records)]
    })
}

const REFERRALS: &str = "=> 10 text \"DNS SRV generated referrals\" referral ldaps://secure.example.com:636/DN \
                         referral ldap://first.example.com:10389/DN referral ldap://backup.example.com:389/DN";

#[test]
fn requests_are_referred_to_the_servers_of_the_domain() {
    let dns = name_server();
    let body = format!(
        "referral ldap://root.example\ndatabase dnssrv\nsuffix dc=com\nrootdn cn=root,dc=com\nrootpw secret\nnameserver {}\n\
         access to dn.subtree=\"dc=hidden,dc=com\" by * none\naccess to * by * read\n",
        dns.address
    );
    let front = Running::start(Kind::Larix, &body, "");
    let mut client = front.client();
    let entry = "-> dc=example,dc=com\n   associatedDomain: example.com\n   dc: example\n   objectClass: referral\n   \
                 objectClass: extensibleObject\n   ref: ldaps://secure.example.com:636/dc=example,dc=com\n   \
                 ref: ldap://first.example.com:10389/dc=example,dc=com\n   ref: ldap://backup.example.com:389/dc=example,dc=com\n";
    let ann = "uid=ann,dc=example,dc=com";
    let of = |dn: &str, more: &str| format!("{}\n", REFERRALS.replace("/DN", &format!("/{dn}{more}")));
    for (request, expected) in [
        ("search uid=ann,dc=example,dc=com base (uid=ann)", of(ann, "??base")),
        ("search dc=example,dc=com sub (uid=ann)", of("dc=example,dc=com", "??sub")),
        ("search dc=EXAMPLE,dc=com one (uid=ann)", of("dc=EXAMPLE,dc=com", "??one")),
        ("compare uid=ann,dc=example,dc=com uid:ann", of(ann, "")),
        (
            "search dc=example,dc=com base (objectClass=referral) * ref with !manageDSAit",
            format!("{entry}=> 0\n"),
        ),
        (
            "search dc=example,dc=com sub (dc=example) dc with manageDSAit",
            "-> dc=example,dc=com\n   dc: example\n=> 0\n".to_owned(),
        ),
        ("search dc=example,dc=com base (dc=other) with manageDSAit", "=> 0\n".to_owned()),
        ("search dc=example,dc=com one (objectClass=*) with manageDSAit", "=> 0\n".to_owned()),
        (
            "search uid=ann,dc=example,dc=com base (uid=ann) with manageDSAit",
            "=> 32 matched \"dc=example,dc=com\"\n".to_owned(),
        ),
        (
            "compare dc=example,dc=com dc:example with manageDSAit",
            "=> 80 text \"Operation not supported within naming context\"\n".to_owned(),
        ),
        (
            "search dc=nothing,dc=com base (dc=*)",
            "=> 32 text \"no DNS SRV RR available for DN\"\n".to_owned(),
        ),
        (
            "search dc=nothing,dc=com base (dc=*) with manageDSAit",
            "=> 32 text \"no DNS SRV RR available for DN\"\n".to_owned(),
        ),
        (
            "search dc=broken,dc=com base (dc=*)",
            "=> 52 text \"no name server has said who serves the domain\"\n".to_owned(),
        ),
        ("search dc=hidden,dc=com base (dc=*)", "=> 32\n".to_owned()),
        (
            "search uid=ann,dc=example,dc=com base (uid=ann) with !domainScope",
            "=> 32 text \"DNS SRV generated referrals\"\n".to_owned(),
        ),
        (
            "as uid=ann,dc=example,dc=com secret",
            "=> 53 text \"you shouldn't send strangers your password\"\n".to_owned(),
        ),
        ("as cn=root,dc=com wrong", "=> 49\n".to_owned()),
        ("as cn=root,dc=com secret", "=> 0\n".to_owned()),
        ("delete uid=ann,dc=example,dc=com", of(ann, "")),
        ("modify uid=ann,dc=example,dc=com\n  replace sn: x", of(ann, "")),
        ("add uid=ann,dc=example,dc=com\n  objectClass: account", of(ann, "")),
        ("modrdn uid=ann,dc=example,dc=com uid=bob keep", of(ann, "")),
        (
            "delete uid=ann,dc=example,dc=com with manageDSAit",
            "=> 80 text \"DNS SRV problem processing manageDSAit control\"\n".to_owned(),
        ),
    ] {
        assert_eq!(run(&mut client, request), expected, "{request}");
    }
    // The records of each domain were asked for once: two services; and of the one without an answer each attempt.
    assert_eq!(dns.asked(), 2 + 2 + 2);
}

/// A search that begins above goes on here, and answers with a reference. What has no domain is referred where everything is.
#[test]
fn a_database_that_is_glued_to_another_one() {
    let dns = name_server();
    let body = format!(
        "database dnssrv\nsuffix dc=example,dc=com\nsubordinate\nnameserver {address}\n\
         database dnssrv\nsuffix dc=nothing,dc=com\nsubordinate\nnameserver {address}\n\
         database mdb\nsuffix dc=com\nrootdn cn=admin,dc=com\nrootpw secret\ndirectory @DATA@\n\
         database dnssrv\nsuffix o=x\nnameserver {address}\n",
        address = dns.address
    );
    let front = Running::start(Kind::Larix, &body, "dn: dc=com\nobjectClass: domain\ndc: com\n\n");
    let mut client = front.client();
    let answer = run(&mut client, "search dc=com sub (objectClass=*) dc");
    let reference = "~> ldaps://secure.example.com:636/dc=example,dc=com??sub ldap://first.example.com:10389/dc=example,dc=com??sub \
                     ldap://backup.example.com:389/dc=example,dc=com??sub";
    assert_eq!(answer, format!("-> dc=com\n   dc: com\n{reference}\n=> 0\n"));
    let answer = run(&mut client, "search dc=com sub (objectClass=*) dc with domainScope");
    assert_eq!(answer, "-> dc=com\n   dc: com\n=> 0\n");
    let answer = run(&mut client, "search dc=com one (objectClass=*) dc with manageDSAit");
    assert_eq!(answer, "-> dc=example,dc=com\n   dc: example\n=> 0\n");
    assert_eq!(run(&mut client, "search o=x base (o=x)"), "=> 32\n");
}
