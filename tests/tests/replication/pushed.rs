//! `syncrepl` in a `database ldap`: what a provider has is written to another server, which takes it from its `updatedn` alone.

use larix_proto::Scope;
use larix_testkit::Kind;
use larix_testkit::process::free_port;
use larix_tests::client::Client;
use larix_tests::replicas::{Member, SUFFIX, ask};

use larix_tests::sync::{SyncSearch, read};

use crate::consumer::{CHANGES, LATER, kinds, line, provider};

/// A server that takes changes from `cn=Monitor` alone.
fn target(kind: Kind) -> Member {
    let module = if kind == Kind::Slapd { "moduleload back_monitor\n" } else { "" };
    let global = format!(
        "{module}access to dn.base=\"\" attrs=children by dn.exact=cn=Monitor write by * break\n\
         access to * by dn.exact=cn=Monitor write by * read\n\
         database monitor\nrootdn cn=Monitor\nrootpw monitor\n"
    );
    let database = "updatedn cn=Monitor\nupdateref ldap://provider.example.com\n\
                    limits dn.exact=cn=Monitor size=unlimited time=unlimited";
    Member::new(kind, &global, database)
}

/// The proxy that follows and writes.
fn proxy(provider: &Member, target: &Member, more: &str) -> Member {
    let body = format!(
        "database ldap\nsuffix {SUFFIX}\nrootdn cn=whoever\nuri {}\n\
         acl-bind bindmethod=simple binddn=cn=Monitor credentials=monitor\n{}",
        target.url(),
        line(1, provider, more),
    );
    Member::with(Kind::Larix, free_port(), &body).arguments(&["-d", "16384"])
}

fn pushes(source: Kind, kind: Kind, more: &str) {
    let provider = provider(source, 40);
    let mut target = target(kind).started();
    let mut proxy = proxy(&provider, &target, more).started();
    target.wait_until_like(&provider);
    provider.change(CHANGES);
    target.wait_until_like(&provider);
    // The proxy is away. Where it stood the target says.
    proxy.stop();
    provider.change(LATER);
    proxy.start();
    target.wait_until_like(&provider);
    proxy.wait_for_log("(sending cookie=rid=001,csn=");
    // The target is away.
    target.stop();
    provider.change(&format!("modify \"uid=u7,ou=people,{SUFFIX}\"\n  replace title: Seventh"));
    target.start();
    target.wait_until_like(&provider);
    // Nobody else writes: neither there nor through the proxy.
    for (member, expected) in [
        (&target, "=> 10 referral ldap://provider.example.com/uid=u7,ou=people,dc=example,dc=com\n"),
        (&proxy, "=> 53 text \"shadow context; no update referral\"\n"),
    ] {
        let mut client = member.client();
        let change = format!("modify \"uid=u7,ou=people,{SUFFIX}\"\n  replace title: x");
        assert_eq!(ask(&mut client, &change), expected);
    }
}

#[test]
fn what_is_followed_is_written_to_another_server() {
    for source in kinds() {
        for kind in kinds() {
            pushes(source, kind, "type=refreshAndPersist");
        }
    }
}

#[test]
fn what_is_polled_is_written_to_another_server() {
    pushes(Kind::Larix, Kind::Larix, "type=refreshOnly interval=00:00:00:01");
}

#[test]
fn a_shadow_keeps_what_its_updatedn_says() {
    let target = target(Kind::Larix).started();
    let mut client = Client::connect(target.address());
    let mut check = |request: &str, expected: &str| {
        assert_eq!(ask(&mut client, request), expected, "{request}");
    };
    let csn = |second: u32| format!("202401010000{second:02}.000000Z#000000#000#000000");
    let uuid = "00000000-0000-4000-8000-000000000001";
    let suffix = format!(
        "add \"{SUFFIX}\"\n  objectClass: dcObject\n  objectClass: organization\n  dc: example\n  o: Example\n  \
         entryUUID: {uuid}\n  entryCSN: {}\n  modifiersName: cn=elsewhere\n  modifyTimestamp: 20240101000001Z",
        csn(1)
    );
    check("as cn=Monitor monitor", "=> 0\n");
    check(&suffix, "=> 0\n");
    let raise = |second: u32| format!("modify \"{SUFFIX}\"\n  replace contextCSN: {}", csn(second));
    check(&raise(5), "=> 0\n");
    // It never falls.
    check(&raise(4), "=> 0\n");
    check(
        &format!("modify \"{SUFFIX}\"\n  replace contextCSN: x"),
        "=> 21 text \"contextCSN: value #0 invalid per syntax\"\n",
    );
    check(
        &format!("modify \"{SUFFIX}\"\n  replace hasSubordinates: TRUE"),
        "=> 19 text \"hasSubordinates: no user modification allowed\"\n",
    );
    let content = target.content(SUFFIX).unwrap_or_default();
    let entry = &content[SUFFIX];
    let value = |name: &str| String::from_utf8_lossy(&entry[name][0]).into_owned();
    assert_eq!(value("entryuuid"), uuid);
    assert_eq!(value("entrycsn"), csn(1));
    assert_eq!(value("modifiersname"), "cn=elsewhere");
    let is_context = |expected: &str| {
        let search = SyncSearch { scope: Scope::Base, attributes: &["contextCSN"], ..SyncSearch::default() };
        let base = read(target.address(), &search).and_then(|entries| entries.into_values().next()).unwrap();
        assert_eq!(base["contextcsn"], [expected.as_bytes().to_vec()].into());
    };
    is_context(&csn(5));
    // What a client of this name changes by itself is stamped here.
    check(&format!("modify \"{SUFFIX}\"\n  replace description: x"), "=> 0\n");
    let content = target.content(SUFFIX).unwrap_or_default();
    assert_eq!(content[SUFFIX]["modifiersname"][0], b"cn=Monitor");
    // The provider has not seen it: what it sends later is still to come.
    is_context(&csn(5));
    // Everybody else may not.
    check("as cn=admin,dc=example,dc=com secret", "=> 0\n");
    check(&raise(9), "=> 19 text \"contextCSN: no user modification allowed\"\n");
}
