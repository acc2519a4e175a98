//! Changes of the configuration at the node that writes.

use larix_testkit::postgresql::Engine;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, SUFFIX, ask};

use super::{describe, description, fill, nodes_with};

/// Seconds of a lease: nothing but a change of the configuration could take it away.
const LEASE: u32 = 120;
const SECTION: &str = "olcDatabase={2}kv,cn=config";

#[test]
fn a_node_goes_on_writing_under_another_configuration() {
    let Some(engine) = Engine::start() else { return };
    go_on_writing(&engine.database().1);
}

pub(super) fn go_on_writing(address: &str) {
    let mut node = nodes_with(address, 1, LEASE, ("database config\nrootpw secret\n", "")).remove(0);
    node.start();
    fill(&node);
    let admin = |who: &str| {
        let mut client = Client::connect(node.address());
        assert_eq!(ask(&mut client, &format!("as {who} secret")), "=> 0\n");
        client
    };
    let (mut configuring, mut writing) = (admin("cn=config"), admin(ADMIN));
    let of_section = |change: &str| format!("modify {SECTION}\n  {change}");
    let changes = [
        "modify cn=config\n  replace olcIdleTimeout: 900".to_owned(),
        of_section("replace olcSizeLimit: 77"),
        of_section("replace olcAccess: to * by * read"),
        of_section("add olcDbIndex: sn eq"),
        of_section("delete olcDbIndex: cn eq"),
        "modify cn=config\n  add olcAttributeTypes: ( 1.2.3.4.6 NAME 'laterThing' SUP name )".to_owned(),
        format!(
            "add olcOverlay=syncprov,{SECTION}\n  objectClass: olcOverlayConfig\n  objectClass: olcSyncProvConfig\n  \
             olcOverlay: syncprov"
        ),
        of_section("replace olcLarixKvServerId: 7"),
    ];
    for (number, request) in changes.iter().enumerate() {
        assert_eq!(ask(&mut configuring, request), "=> 0\n", "{request}");
        // At once, and once only.
        assert_eq!(ask(&mut writing, &describe(&format!("n{number}"))), "=> 0\n", "{request}");
    }
    assert_eq!(description(&node), Some(format!("n{}", changes.len() - 1)));
    assert_eq!(node.log().matches("this node writes now").count(), 1);
    // What was settled is what they say.
    let ann = format!("cn=ann,ou=people,{SUFFIX}");
    assert!(node.client().value(&ann, "entryCSN").is_some_and(|csn| csn.contains("#007#")));
    assert!(ask(&mut writing, &format!("search {SUFFIX} sub (sn=Lee) sn")).contains("sn: Lee"));
    node.stop();
}
