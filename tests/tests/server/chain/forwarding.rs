//! What logins change on a shadow goes to its provider.

use std::net::{SocketAddr, TcpListener};

use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site, packages};
use larix_tests::client::Client;
use larix_tests::relay::{Passage, Relay};

use super::{ADMIN, ANN, PEOPLE, Running, SUFFIX, chain, database, run, until};
use crate::totp::code;

const OVERLAYS: &str =
    "overlay ppolicy\nppolicy_default cn=policy,dc=example,dc=com\nppolicy_forward_updates\noverlay totp";

fn provider() -> Running {
    let policy = "dn: cn=policy,dc=example,dc=com\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n\
                  pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 5\n\n\
                  dn: uid=tom,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: tom\ncn: Tom\nsn: Tower\n\
                  userPassword: {TOTP1}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\n";
    let body = database(&format!("overlay syncprov\n{OVERLAYS}"));
    Running::start(Kind::Larix, &body, &format!("{PEOPLE}\n{policy}"))
}

/// A consumer of `provider` whose referral leads to `url`.
fn shadow(provider: SocketAddr, url: &str, chained: bool) -> Running {
    let shadow = shadow_with(provider, url, chained, OVERLAYS);
    let mut client = Client::connect(shadow.address());
    until(&mut client, "search uid=tom,ou=people,dc=example,dc=com base (objectClass=*) sn", "Tower");
    shadow
}

fn shadow_with(provider: SocketAddr, url: &str, chained: bool, overlays: &str) -> Running {
    let overlay = if chained { chain(url, "chain-network-timeout 4") } else { String::new() };
    let consumer = format!(
        "syncrepl rid=1 provider=ldap://{provider} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\"\nupdateref {url}\n{overlays}"
    );
    let site = Site::new(Kind::Larix, &format!("{overlay}\n{}", database(&consumer)));
    let server = Server::start_with(Kind::Larix, &site.configuration(), &["-d", "256"], &[]);
    Running::with(server.unwrap_or_else(|error| panic!("{error}")), site)
}

fn login(address: SocketAddr, name: &str, password: &str) -> String {
    run(&mut Client::connect(address), &format!("as {name} {password}"))
}

fn failures(provider: &Running) -> usize {
    let mut root = Client::connect(provider.address());
    assert!(run(&mut root, &format!("as {ADMIN} secret")).starts_with("=> 0"));
    let found = run(&mut root, &format!("search {ANN} base (objectClass=*) pwdFailureTime"));
    found.matches("pwdFailureTime:").count()
}

#[test]
fn a_wrong_password_on_a_shadow_counts_on_its_provider() {
    let provider = provider();
    let shadow = shadow(provider.address(), &format!("ldap://{}", provider.address()), true);
    for counted in 1..=3 {
        assert!(login(shadow.address(), ANN, "wrong").starts_with("=> 49"));
        assert_eq!(failures(&provider), counted, "{}", shadow.server.log());
    }
    assert!(login(shadow.address(), ANN, "annpw").starts_with("=> 0"));
    assert_eq!(failures(&provider), 0, "{}", shadow.server.log());
}

#[test]
fn a_provider_that_is_gone_or_hangs_holds_no_bind_and_the_loss_is_told() {
    let provider = provider();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = format!("ldap://127.0.0.1:{}", free_port());
    for url in [gone, format!("ldap://{}", silent.local_addr().unwrap())] {
        let shadow = shadow(provider.address(), &url, true);
        assert!(login(shadow.address(), ANN, "wrong").starts_with("=> 49"));
        assert!(login(shadow.address(), ANN, "annpw").starts_with("=> 0"));
        assert_eq!(failures(&provider), 0);
        // The log has a thread of its own.
        let line = "the provider did not take what a login changes";
        larix_testkit::until(line, || shadow.server.log().contains(line));
    }
}

#[test]
fn a_code_that_is_used_on_a_shadow_is_used_up_on_its_provider() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    const TOM: &str = "uid=tom,ou=people,dc=example,dc=com";
    let provider = provider();
    let url = format!("ldap://{}", provider.address());
    // Where nothing can say that it is used it is refused, and is not used up.
    for (url, chained) in [(url.clone(), false), (format!("ldap://127.0.0.1:{}", free_port()), true)] {
        let shadow = shadow(provider.address(), &url, chained);
        assert!(login(shadow.address(), TOM, &code("-sha1")).starts_with("=> 49"), "{url}");
    }
    let shadow = shadow(provider.address(), &url, true);
    let code = code("-sha1");
    assert!(login(shadow.address(), TOM, &code).starts_with("=> 0"), "{}", shadow.server.log());
    for address in [provider.address(), shadow.address()] {
        assert!(login(address, TOM, &code).starts_with("=> 49"));
    }
}

/// `remoteauth_store` on a shadow: as in slapd the provider is to store the password, if something follows the referral.
#[test]
fn a_password_that_another_server_found_right_is_stored_by_the_provider() {
    const ELI: &str = "uid=eli,ou=people,dc=example,dc=com";
    let judge = Running::start(Kind::Larix, &database(""), PEOPLE);
    let eli = format!(
        "dn: {ELI}\nobjectClass: inetOrgPerson\nobjectClass: domainRelatedObject\nuid: eli\ncn: Eli\nsn: Ember\n\
         associatedDomain: here\nseeAlso: {ANN}\n"
    );
    let provider = Running::start(Kind::Larix, &database("overlay syncprov"), &format!("{PEOPLE}\n{eli}"));
    let mut root = Client::connect(provider.address());
    run(&mut root, &format!("as {ADMIN} secret"));
    let mut stored = || {
        let found = run(&mut root, &format!("search {ELI} base (objectClass=*) userPassword"));
        assert!(!found.contains("annpw"), "{found}");
        found.matches("userPassword:").count()
    };
    let (url, judge_address) = (format!("ldap://{}", provider.address()), judge.address());
    let overlays = format!(
        "overlay remoteauth\nremoteauth_dn_attribute seeAlso\nremoteauth_domain_attribute associatedDomain\n\
         remoteauth_mapping here {judge_address}\nremoteauth_store on"
    );
    for (chained, expected) in [(false, 0), (true, 1)] {
        let shadow = shadow_with(provider.address(), &url, chained, &overlays);
        let mut client = Client::connect(shadow.address());
        until(&mut client, &format!("search {ELI} base (objectClass=*) sn"), "Ember");
        assert!(login(shadow.address(), ELI, "wrong").starts_with("=> 49"));
        assert_eq!(stored(), 0);
        // The second may come before the provider's password does: it stores no other one.
        for _ in 0..2 {
            assert!(login(shadow.address(), ELI, "annpw").starts_with("=> 0"), "{}", shadow.server.log());
            assert_eq!(stored(), expected, "{}", shadow.server.log());
        }
        if chained {
            run(&mut client, &format!("as {ADMIN} secret"));
            until(&mut client, &format!("search {ELI} base (objectClass=*) userPassword"), "userPassword:");
            judge.server.kill();
            for address in [provider.address(), shadow.address()] {
                assert!(login(address, ELI, "annpw").starts_with("=> 0"));
                assert!(login(address, ELI, "wrong").starts_with("=> 49"));
            }
            break;
        }
    }
}

/// The time of a login on a shadow: as in slapd pwdLastSuccess always goes to the provider, authTimestamp if the overlay says so.
#[test]
fn the_time_of_a_login_goes_to_the_provider() {
    const FORWARDS: &str = "overlay lastbind\nlastbind_forward_updates";
    for (overlays, expected) in
        [("lastbind on", [true, false]), ("overlay lastbind", [false, false]), (FORWARDS, [false, true])]
    {
        let body = database("overlay syncprov\noverlay lastbind");
        let provider = Running::start(Kind::Larix, &body, PEOPLE);
        let url = format!("ldap://{}", provider.address());
        let shadow = shadow_with(provider.address(), &url, true, overlays);
        let search = format!("search {ANN} base (objectClass=*)");
        until(&mut Client::connect(shadow.address()), &format!("{search} sn"), "Archer");
        let kept = |server: &Running| {
            let mut root = Client::connect(server.address());
            run(&mut root, &format!("as {ADMIN} secret"));
            let found = run(&mut root, &format!("{search} pwdLastSuccess authTimestamp"));
            ["pwdLastSuccess:", "authTimestamp:"].map(|name| found.contains(name))
        };
        assert!(login(shadow.address(), ANN, "wrong").starts_with("=> 49"));
        assert_eq!(kept(&provider), [false, false], "{overlays}");
        assert!(login(shadow.address(), ANN, "annpw").starts_with("=> 0"));
        assert_eq!(kept(&provider), expected, "{overlays}\n{}", shadow.server.log());
        assert_ne!(kept(&shadow), [false, false], "{overlays}");
    }
}

/// With `lastbind-send-assert` a time that the provider has and that is recent enough stays.
#[test]
fn a_time_that_is_recent_enough_is_not_written_again() {
    const LATER: &str = "20991231235959Z";
    for (asserts, stays) in [("on", true), ("off", false)] {
        let provider = Running::start(Kind::Larix, &database("overlay syncprov"), PEOPLE);
        let relay = Relay::start();
        relay.lead_to(provider.address());
        let url = format!("ldap://{}", provider.address());
        let overlays = format!("lastbind on\nlastbind-precision 60\nlastbind-send-assert {asserts}");
        let shadow = shadow_with(relay.address, &url, true, &overlays);
        let search = format!("search {ANN} base (objectClass=*)");
        until(&mut Client::connect(shadow.address()), &format!("{search} sn"), "Archer");
        relay.set(Passage::Silent);
        let mut root = Client::connect(provider.address());
        run(&mut root, &format!("as {ADMIN} secret"));
        let elsewhere = format!("modify {ANN} with !relax\n  replace pwdLastSuccess: {LATER}");
        assert_eq!(run(&mut root, &elsewhere), "=> 0\n");
        assert!(login(shadow.address(), ANN, "annpw").starts_with("=> 0"));
        let found = run(&mut root, &format!("{search} pwdLastSuccess"));
        assert_eq!(found.contains(LATER), stays, "{asserts}: {found}");
    }
}
