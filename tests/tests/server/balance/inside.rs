//! The balancer in a server (`backend lload`), changed by cn=config while clients work.

use larix_testkit::process::free_ports;

use super::*;
use larix_tests::client::run;

const BALANCER: &str = "olcBackend={0}lload,cn=config";
const MONITOR: &str = "cn=Load Balancer,cn=Backends,cn=Monitor";

/// A server whose balancer listens there; its own databases are cn=config and cn=Monitor.
fn front(balanced: u16) -> Site {
    front_with(balanced, "")
}

/// The same, with lines for the whole server.
fn front_with(balanced: u16, lines: &str) -> Site {
    Site::new(
        Kind::Larix,
        &format!(
            "{lines}moduleload lloadd.la\n\
             backend lload\nlisten \"ldap://127.0.0.1:{balanced}/\"\n\
             bindconf bindmethod=simple binddn=cn=balancer,{SUFFIX} credentials=balance timeout=20\n\
             database config\nrootpw secret\n\
             database monitor\nrootdn cn=config\naccess to * by * read\n"
        ),
    )
}

fn admin(address: SocketAddr) -> Client {
    let mut admin = Client::connect(address);
    assert_eq!(run(&mut admin, "as cn=config secret"), "=> 0\n");
    admin
}

fn add_server(admin: &mut Client, name: &str, port: u16, more: &str) -> String {
    run(
        admin,
        &format!(
            "add cn={name},cn={{0}}main,{BALANCER}\n  objectClass: olcBkLloadBackendConfig\n  \
             olcBkLloadBackendUri: ldap://127.0.0.1:{port}/\n  olcBkLloadNumconns: 2\n  olcBkLloadBindconns: 2\n  \
             olcBkLloadRetry: 200\n  olcBkLloadMaxPendingOps: 0\n  olcBkLloadMaxPendingConns: 0\n{more}"
        ),
    )
}

/// Waits until an attribute of an entry under cn=Monitor has a value.
fn wait_for(admin: &mut Client, entry: &str, attribute: &str, value: &str) {
    let mut last = None;
    for _ in 0..STEPS {
        last = admin.value(entry, attribute);
        if last.as_deref() == Some(value) {
            return;
        }
        step();
    }
    panic!("{entry}: {attribute} is {last:?}, not {value}");
}

#[test]
fn tiers_and_servers_come_and_go_under_load() {
    const CLIENTS: usize = 4;
    let sites = [site(), site()];
    let [first, second] = [sites[0].start().unwrap(), sites[1].start().unwrap()];
    let balanced = free_ports(1)[0];
    let front = front(balanced);
    let server = front.start().unwrap();
    let mut admin = admin(server.address);
    let address: SocketAddr = ([127, 0, 0, 1], balanced).into();
    let connect = || Person { client: Client::connect(address), next: 0 };

    // It is there, and has no server yet.
    assert_eq!(connect().bind(1, "pw1"), 52);
    let tier = format!(
        "add cn=main,{BALANCER}\n  objectClass: olcBkLloadTierConfig\n  olcBkLloadTierType: roundrobin"
    );
    assert_eq!(run(&mut admin, &tier), "=> 0\n");
    assert_eq!(add_server(&mut admin, "one", first.address.port(), ""), "=> 0\n");
    wait_for(&mut admin, MONITOR, "olmOutgoingConnections", "4");

    let (done, failed, ends) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let work = |number: usize| {
        let mut person = connect();
        let own = format!("dn:cn=user{number},{SUFFIX}");
        assert_eq!(person.bind(number, &format!("pw{number}")), 0);
        while !ends.load(Ordering::Relaxed) {
            let (code, who) = person.who();
            let (found, names) = person.search(&format!("(sn={number})"));
            let is_right =
                (code, found) == (0, 0) && who == own && names == [format!("cn=user{number},{SUFFIX}")];
            failed.fetch_add(usize::from(!is_right), Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reached = |more: usize| {
        let wanted = done.load(Ordering::Relaxed) + more;
        for _ in 0..STEPS {
            if done.load(Ordering::Relaxed) >= wanted {
                return;
            }
            step();
        }
        panic!("{wanted} rounds are not reached: {}", server.log());
    };
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || work(number));
        }
        let end = SetAtEnd(&ends);
        reached(20);
        // Another server, more and fewer connections, another kind of tier, weights, limits and times.
        assert_eq!(add_server(&mut admin, "two", second.address.port(), "  olcBkLloadWeight: 3"), "=> 0\n");
        wait_for(&mut admin, MONITOR, "olmOutgoingConnections", "8");
        let two = format!("cn={{1}}two,cn={{0}}main,{BALANCER}");
        for (entry, attribute, value) in [
            (two.as_str(), "olcBkLloadNumconns", "5"),
            (&format!("cn={{0}}main,{BALANCER}"), "olcBkLloadTierType", "weighted"),
            (&two, "olcBkLloadWeight", "7"),
            (&two, "olcBkLloadMaxPendingOps", "50"),
            (BALANCER, "olcBkLloadIOTimeout", "20000"),
            (BALANCER, "olcBkLloadWriteCoherence", "2"),
            (BALANCER, "olcBkLloadSockbufMaxClient", "20000"),
        ] {
            let change = format!("modify {entry}\n  replace {attribute}: {value}");
            assert_eq!(run(&mut admin, &change), "=> 0\n", "{attribute}");
            reached(20);
        }
        wait_for(&mut admin, MONITOR, "olmOutgoingConnections", "11");
        let shown = format!("cn=two,cn=main,cn=Backend Tiers,{MONITOR}");
        let answered = admin.value(&shown, "olmCompletedOps").unwrap();
        assert!(answered.parse::<u64>().unwrap() > 0, "{answered}");
        // The first goes: what is under way there is still answered.
        let one = format!("delete cn={{0}}one,cn={{0}}main,{BALANCER}");
        assert_eq!(run(&mut admin, &one), "=> 0\n");
        wait_for(&mut admin, MONITOR, "olmOutgoingConnections", "7");
        reached(50);
        drop(end);
    });
    assert_eq!(failed.load(Ordering::Relaxed), 0, "of {}: {}", done.load(Ordering::Relaxed), server.log());
    // Nothing goes to the first any more: nobody notices its end.
    assert!(first.stop());
    let mut person = connect();
    assert_eq!(person.bind(1, "pw1"), 0);
    for _ in 0..8 {
        assert_eq!(person.who().0, 0);
    }
    // Its name and its number are gone, and the other has moved up.
    let left = admin.value(&format!("cn={{0}}two,cn={{0}}main,{BALANCER}"), "olcBkLloadWeight");
    assert_eq!(left.as_deref(), Some("7"));
    assert!(server.stop(), "the server ends with its balancer");
    assert!(Client::try_connect(address).is_err());
    assert!(second.stop());
}

#[test]
fn what_cannot_be_is_refused_and_nothing_changes() {
    let site = site();
    let remote = site.start().unwrap();
    let ports = free_ports(2);
    let (balanced, other) = (ports[0], ports[1]);
    let front = front(balanced);
    let server = front.start().unwrap();
    let mut admin = admin(server.address);
    let tier =
        format!("add cn=main,{BALANCER}\n  objectClass: olcBkLloadTierConfig\n  olcBkLloadTierType: best");
    let refused = run(&mut admin, &tier);
    assert!(refused.contains("roundrobin, weighted or bestof"), "{refused}");
    assert_eq!(run(&mut admin, &tier.replace("best", "bestof")), "=> 0\n");
    assert_eq!(add_server(&mut admin, "one", remote.address.port(), ""), "=> 0\n");
    wait_for(&mut admin, MONITOR, "olmOutgoingConnections", "4");
    let one = format!("cn={{0}}one,cn={{0}}main,{BALANCER}");
    for (entry, attribute, value, part) in [
        (one.as_str(), "olcBkLloadNumconns", "0", "connections, from 1 to 1000"),
        (&one, "olcBkLloadRetry", "0", "milliseconds, 1 or more"),
        (&one, "olcBkLloadStartTLS", "perhaps", "yes or critical"),
        (&one, "olcBkLloadBackendUri", "http://127.0.0.1/", "uri=ldap://"),
        (BALANCER, "olcBkLloadBindconf", "bindmethod=simple binddn=cn=x", "credentials=PASSWORD"),
        (BALANCER, "olcBkLloadFeatureEnable", "vcs", "unknown feature `vcs`"),
        (BALANCER, "olcBkLloadRestrictExop", "1.2.3 refuse", "ignore, write, backend, connection or reject"),
        (BALANCER, "olcBkLloadTLSCertificateFile", "/no/such/file", "/no/such/file"),
        (BALANCER, "olcBkLloadListen", "http://127.0.0.1/", "is no URL to listen on"),
        (BALANCER, "olcBkLloadListen", "ldaps://127.0.0.1:0/", "TLSCertificateFile"),
        (BALANCER, "olcBkLloadListen", &format!("ldap://{}/", remote.address), "in use by another process"),
    ] {
        let change = format!("modify {entry}\n  replace {attribute}: {value}");
        let refused = run(&mut admin, &change);
        assert!(!refused.starts_with("=> 0") && refused.contains(part), "{attribute}: {value}: {refused}");
    }
    // A credential that was refused is in no text.
    let hidden = run(
        &mut admin,
        &format!("modify {BALANCER}\n  replace olcBkLloadBindconf: credentials=hidden bindmethd=simple"),
    );
    assert!(hidden.contains("unknown key `bindmethd`") && !hidden.contains("hidden"), "{hidden}");
    let address: SocketAddr = ([127, 0, 0, 1], balanced).into();
    let mut person = Person { client: Client::connect(address), next: 0 };
    assert_eq!(person.bind(1, "pw1"), 0, "all is as it was");

    // Another listener; the first one closes, and who is connected there stays.
    let moved = format!("modify {BALANCER}\n  replace olcBkLloadListen: ldap://127.0.0.1:{other}/");
    assert_eq!(run(&mut admin, &moved), "=> 0\n");
    let next: SocketAddr = ([127, 0, 0, 1], other).into();
    let reaches = |address| {
        (0..STEPS).any(|_| {
            step();
            Client::try_connect(address).is_ok()
        })
    };
    assert!(reaches(next));
    assert!((0..STEPS).any(|_| {
        step();
        Client::try_connect(address).is_err()
    }));
    assert_eq!(person.who(), (0, format!("dn:cn=user1,{SUFFIX}")));
    // A connection is told to close.
    wait_for(&mut admin, MONITOR, "olmIncomingConnections", "1");
    let found = run(
        &mut admin,
        &format!("search \"cn=Incoming Connections,{MONITOR}\" one (objectClass=*) olmConnectionAuthzDN"),
    );
    let entry = found.lines().find_map(|line| line.strip_prefix("-> ")).unwrap_or_else(|| panic!("{found}"));
    assert!(found.contains(&format!("cn=user1,{SUFFIX}")), "{found}");
    let state = |value: &str| format!("modify \"{entry}\"\n  replace olmConnectionState: {value}");
    assert!(run(&mut admin, &state("ready")).starts_with("=> 19"));
    assert_eq!(run(&mut admin, &state("closing")), "=> 0\n");
    wait_for(&mut admin, MONITOR, "olmIncomingConnections", "0");
    assert_eq!(
        run(&mut admin, &state("closing")),
        "=> 32 matched \"cn=Incoming Connections,cn=Load Balancer,cn=Backends,cn=Monitor\"\n"
    );

    // Without its entries the balancer ends, and the server goes on.
    for entry in [one.as_str(), &format!("cn={{0}}main,{BALANCER}"), BALANCER] {
        assert_eq!(run(&mut admin, &format!("delete {entry}")), "=> 0\n");
    }
    assert!((0..STEPS).any(|_| {
        step();
        Client::try_connect(next).is_err()
    }));
    assert_eq!(admin.value(MONITOR, "cn"), None);
    assert!(server.stop());
    assert!(remote.stop());
}

/// Not only files of the listeners are watched.
#[test]
fn an_authority_of_the_servers_that_is_replaced_is_believed() {
    let secure = Secure::start(Kind::Larix, "authz-policy to");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, Authority::new("Other").certificate()).unwrap();
    let balanced = free_port();
    let site = Site::new(
        Kind::Larix,
        &format!(
            "moduleload lloadd.la\nbackend lload\nlisten \"ldap://127.0.0.1:{balanced}/\"\n\
             bindconf bindmethod=simple binddn=cn=admin,{SUFFIX} credentials=secret tls_cacert={}\n\
             tier roundrobin\n\
             backend-server uri=ldaps://127.0.0.1:{} numconns=1 bindconns=1 retry=200\n\
             database monitor\n",
            ca.display(),
            secure.secure_port
        ),
    );
    let _server = site.start().unwrap();
    let search = || {
        run(&mut Client::connect(([127, 0, 0, 1], balanced).into()), &format!("search {SUFFIX} base (cn=*)"))
    };
    assert!(search().contains("=> 52"));
    std::fs::write(&ca, secure.authority.certificate()).unwrap();
    until("the server is reached", || search().contains("=> 32"));
}

/// The server's metrics have those of its balancer, as long as there is one.
#[test]
fn metrics_of_the_server_have_the_balancer() {
    let site = site();
    let remote = site.start().unwrap();
    let ports = free_ports(2);
    let (balanced, http) = (ports[0], ports[1]);
    let front = front_with(balanced, &format!("http-listener http://127.0.0.1:{http}/\n"));
    let server = front.start().unwrap();
    let mut admin = admin(server.address);
    let tier =
        format!("add cn=main,{BALANCER}\n  objectClass: olcBkLloadTierConfig\n  olcBkLloadTierType: bestof");
    assert_eq!(run(&mut admin, &tier), "=> 0\n");
    assert_eq!(add_server(&mut admin, "one", remote.address.port(), ""), "=> 0\n");
    wait_for(&mut admin, MONITOR, "olmOutgoingConnections", "4");
    let mut person = Person { client: Client::connect(([127, 0, 0, 1], balanced).into()), next: 0 };
    assert_eq!(person.bind(1, "pw1"), 0);
    assert_eq!(person.search("(sn=2)"), (0, vec![format!("cn=user2,{SUFFIX}")]));
    let (status, text) = page(http, "/metrics");
    assert_eq!(status, 200);
    let one = format!("tier=\"1\",server=\"ldap://127.0.0.1:{}/\"", remote.address.port());
    for expected in [
        "larix_balance_clients 1.0".to_owned(),
        format!("larix_balance_server_connections{{{one},pool=\"bind\"}} 2.0"),
        format!("larix_balance_operations_started_total{{{one},operation=\"search\"}} 1"),
        format!("larix_balance_operation_seconds_count{{{one},operation=\"bind\"}} 1"),
    ] {
        assert!(text.lines().any(|line| line == expected), "no {expected} in {text}");
    }
    assert!(text.contains("larix_connections "), "its own are there, too");
    for entry in [
        format!("cn={{0}}one,cn={{0}}main,{BALANCER}"),
        format!("cn={{0}}main,{BALANCER}"),
        BALANCER.to_owned(),
    ] {
        assert_eq!(run(&mut admin, &format!("delete {entry}")), "=> 0\n");
    }
    assert!(!page(http, "/metrics").1.contains("larix_balance_"));
    assert!(server.stop());
    assert!(remote.stop());
}
