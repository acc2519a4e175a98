//! Changes through a node that does not write: it sends them to the one that does over TLS with certificates on both sides, as the client,
//! and the client's own later reads see them.

use larix_testkit::etcd::Etcd;
use larix_testkit::pki::Authority;
use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_ports;
use larix_testkit::{Kind, until, until_some};
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{BASE, LEASE, change, larix};

/// Each is read at once after its answer; a notification usually comes later.
const CHANGES: usize = 100;

/// Two nodes, each of which sends the other one what it does not write itself. `folder` has the certificates.
fn chained_nodes(address: &str, folder: &std::path::Path, consistency: &str) -> Vec<Member> {
    let ports = free_ports(2);
    let folder = folder.display();
    let node = |(at, port): (usize, &u16)| {
        let other = ports[1 - at];
        let own = format!("tls_cacert={folder}/ca.pem tls_cert={folder}/node.pem tls_key={folder}/node.key");
        let body = format!(
            "TLSCACertificateFile {folder}/ca.pem\nTLSCertificateFile {folder}/server.pem\n\
             TLSCertificateKeyFile {folder}/server.key\nTLSVerifyClient try\nauthz-policy to\n\
             authz-regexp \"^cn=node,o=Larix tests$\" cn=node,{SUFFIX}\n\
             overlay chain\nchain-uri ldap://127.0.0.1:{other}\nchain-tls start {own} tls_reqcert=demand\n\
             chain-idassert-bind bindmethod=sasl saslmech=EXTERNAL mode=self {own}\nchain-return-error TRUE\n\
             database kv\nengine {address}\nnode ldap://127.0.0.1:{port}\nlease {LEASE}\n\
             read-consistency {consistency}\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\n\
             access to attrs=userPassword by anonymous auth\naccess to attrs=authzTo by * auth\n\
             access to * by self write by * read\n"
        );
        Member::with(Kind::Larix, *port, &body).arguments(&["-d", "256"])
    };
    ports.iter().enumerate().map(node).collect()
}

/// The one that sends its changes to the other. A change finds none: both take changes.
fn follower(nodes: &[Member]) -> &Member {
    let mut found = None;
    until("one leads", || {
        let (_, text) = larix(&["cluster", "status"], &nodes[0]);
        found = nodes.iter().position(|node| text.contains(&format!("leader:        {} ", node.url())));
        found.is_some()
    });
    &nodes[1 - found.expect("a leader")]
}

/// Adds the first entries, and the one that the nodes bind as. The node that writes takes them of the root DN: on a busy machine it is not
/// the same one all the time.
fn fill(nodes: &[Member]) {
    let node = format!(
        "add cn=node,{SUFFIX}\n  objectClass: device\n  objectClass: extensibleObject\n  cn: node\n  \
         authzTo: dn.children:ou=people,{SUFFIX}"
    );
    let taken = |answer: String| ["=> 0", "=> 68"].iter().any(|code| answer.starts_with(code));
    for request in BASE.split("\n\n").chain([node.as_str()]) {
        until("a node takes it", || nodes.iter().any(|node| taken(change(node, request))));
    }
}

fn read_own_changes(address: &str, consistency: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("Root");
    std::fs::write(folder.path().join("ca.pem"), authority.certificate()).expect("a certificate");
    authority.server().write(folder.path(), "server");
    authority.client("node").write(folder.path(), "node");
    let mut nodes = chained_nodes(address, folder.path(), consistency);
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes);
    let ann = format!("cn=ann,ou=people,{SUFFIX}");
    let mut client = follower(&nodes).client();
    until("ann's node knows of her", || ask(&mut client, &format!("as {ann} right")) == "=> 0\n");
    for number in 0..CHANGES {
        let change = format!("modify {ann}\n  replace description: {number}");
        // On a busy machine the right to write may move; and its change is refused.
        until("it is changed", || ask(&mut client, &change) == "=> 0\n");
        let search = format!("search {ann} base (objectClass=*) description modifiersName");
        // Without an answer of the engine in time there is no entry.
        let entry = until_some("an answer", || {
            Some(ask(&mut client, &search)).filter(|entry| entry.ends_with("=> 0\n"))
        });
        assert!(entry.contains(&format!("description: {number}\n")), "{number}: {entry}");
        assert!(entry.to_lowercase().contains(&format!("modifiersname: {ann}")), "{entry}");
    }
    // What ann may not do at one node, she may not do through the other.
    let change = format!("modify ou=people,{SUFFIX}\n  replace description: hers");
    let elsewhere = until_some("a node that writes", || {
        Some(ask(&mut client, &change)).filter(|answer| !answer.starts_with("=> 52"))
    });
    assert!(elsewhere.starts_with("=> 50"), "{elsewhere}");
    // The root DN is not among those for whom the node may act.
    until("the root DN is refused", || {
        let mut root = follower(&nodes).client();
        ask(&mut root, &format!("modify {ann}\n  replace description: root")).starts_with("=> 123")
    });
    nodes.iter_mut().for_each(Member::stop);
}

#[test]
fn clients_read_what_they_changed_through_another_node() {
    let Some(engine) = Engine::start() else { return };
    read_own_changes(&engine.database().1, "session");
}

#[test]
fn clients_read_what_they_changed_through_another_node_of_an_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    read_own_changes(&etcd.prefix(), "bounded 3600");
}
