//! Health checks of targets, anonymous clients of a target that wants a bind, and operations that go through.

use larix_testkit::{Kind, until};
use larix_tests::client::Client;
use larix_tests::relay::{Passage, Relay};
use larix_tests::running::Running;
use larix_tests::sync::{Consumer, SyncSearch};

use super::faults::metrics;
use super::{ADMIN, ENTRIES, SUFFIX, proxy, proxy_with, run, target};

const ANN: &str = "search dc=example,dc=com sub (uid=ann) sn";

/// Waits until `/metrics` of a proxy has a line.
fn until_shown(front: &Running, line: &str) {
    until(line, || metrics(&front.server).lines().any(|own| own == line));
}

fn up(relay: &Relay, is_up: u8) -> String {
    format!("larix_proxy_target_up{{suffix=\"{SUFFIX}\",target=\"ldap://{}/\"}} {is_up}.0", relay.address)
}

#[test]
fn a_target_that_hangs_is_left_out_and_comes_back() {
    let (first, second) = (target(Kind::Larix), target(Kind::Larix));
    let relays = [Relay::start(), Relay::start()];
    relays[0].lead_to(first.server.address);
    relays[1].lead_to(second.server.address);
    let uri = format!("ldap://{} ldap://{}", relays[0].address, relays[1].address);
    let settings = "health-check 1 4\ntimeout 600\nnetwork-timeout 600";
    let front = proxy_with(&uri, settings, "database monitor\naccess to * by * read\n");
    let mut client = Client::connect(front.server.address);
    assert!(run(&mut client, ANN).contains("Archer"));
    // Nobody asks the second one, and it is checked all the same.
    let checked = |relay: &Relay| {
        let text = metrics(&front.server);
        let start = format!(
            "larix_proxy_target_checks_total{{suffix=\"{SUFFIX}\",target=\"ldap://{}/\",result=\"answered\"}} ",
            relay.address
        );
        let count =
            text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{text}"));
        count.parse::<u32>().unwrap()
    };
    until_shown(&front, &up(&relays[1], 1));
    until("it is checked", || checked(&relays[1]) > 1);
    relays[0].set(Passage::Silent);
    // What is under way there goes to the second one: nobody waits for the deadline of ten minutes, for which this client has no patience.
    assert!(run(&mut client, ANN).contains("Archer"));
    until_shown(&front, &up(&relays[0], 0));
    for _ in 0..50 {
        let mut other = Client::connect(front.server.address);
        assert!(run(&mut other, ANN).contains("Archer"));
    }
    let shown = run(
        &mut client,
        "search cn=Databases,cn=Monitor sub (&(objectClass=monitoredObject)(labeledURI=*)) labeledURI monitoredInfo",
    );
    assert!(shown.contains("state=down") && shown.contains("state=up"), "{shown}");
    // With both away nobody waits, either.
    relays[1].set(Passage::Silent);
    until_shown(&front, &up(&relays[1], 0));
    let answer = run(&mut client, ANN);
    assert!(answer.contains("=> 52 text \"no target can be reached\""), "{answer}");
    relays[0].set(Passage::Open);
    until_shown(&front, &up(&relays[0], 1));
    assert!(run(&mut client, ANN).contains("Archer"));
}

#[test]
fn anonymous_clients_of_a_target_that_wants_a_bind() {
    for (refusal, bind) in [("require bind", "=> 1"), ("disallow bind_anon", "=> 0")] {
        let body = format!(
            "{refusal}\ndatabase mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\naccess to * by * read\n"
        );
        let remote = Running::start(Kind::Larix, &body, ENTRIES);
        let answer = run(&mut Client::connect(remote.server.address), ANN);
        assert!(answer.contains(bind), "{refusal}: {answer}");
        let front = proxy(remote.server.address, "");
        let answer = run(&mut Client::connect(front.server.address), ANN);
        assert!(answer.contains("Archer") && answer.contains("=> 0"), "{refusal}: {answer}");
    }
}

/// `[0]` the name, `[1]` the seconds (RFC 2589 section 4.1), in hexadecimal.
fn refresh(name: &str, seconds: u8) -> String {
    let mut inner = vec![0x80, u8::try_from(name.len()).unwrap()];
    inner.extend_from_slice(name.as_bytes());
    inner.extend_from_slice(&[0x81, 1, seconds]);
    let mut value = vec![0x30, u8::try_from(inner.len()).unwrap()];
    value.extend(inner);
    let hex: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("extended 1.3.6.1.4.1.1466.101.119.1 \"{}\"", hex.join(" "))
}

#[test]
fn a_refresh_of_a_dynamic_entry_goes_through() {
    let body = format!(
        "database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\noverlay dds\ndds-default-ttl 3600\n"
    );
    let remote = Running::start(Kind::Larix, &body, ENTRIES);
    let beside = "database mdb\nsuffix o=local\nrootdn cn=root,o=local\nrootpw secret\ndirectory @DATA@\n";
    let front = proxy_with(&format!("ldap://{}", remote.server.address), "", beside);
    let mut client = Client::connect(front.server.address);
    assert!(run(&mut client, &format!("as {ADMIN} secret")).contains("=> 0"));
    let name = "cn=guest,dc=example,dc=com";
    let add =
        format!("add {name}\n  objectClass: person\n  objectClass: dynamicObject\n  cn: guest\n  sn: g");
    assert!(run(&mut client, &add).contains("=> 0"));
    let answer = run(&mut client, &refresh(name, 100));
    assert!(answer.contains("=> 0"), "{answer}");
    let shown = run(&mut client, &format!("search {name} base (objectClass=*) entryTtl"));
    let left = shown.lines().find_map(|line| line.trim().strip_prefix("entryTtl: "));
    let left = left.and_then(|seconds| seconds.parse::<u32>().ok());
    assert!(left.is_some_and(|seconds| (1..=100).contains(&seconds)), "{shown}");
    // The target's own answer where there is no such entry, and for one that is not dynamic.
    assert!(run(&mut client, &refresh("cn=nobody,dc=example,dc=com", 100)).contains("=> 32"));
    // A database of this server without the overlay does not know it, as before.
    let answer = run(&mut client, &refresh("o=local", 100));
    assert!(answer.contains("=> 2 text \"unsupported extended operation\""), "{answer}");
    let answer = run(&mut client, "extended 1.3.6.1.4.1.1466.101.119.1");
    assert!(answer.contains("=> 2"), "{answer}");
}

#[test]
fn content_of_the_target_is_provided_through_it() {
    let body = |overlays: &str| {
        format!("database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n{overlays}")
    };
    let remote = Running::start(Kind::Larix, &body("overlay syncprov\n"), ENTRIES);
    let front = proxy(remote.server.address, "sizelimit unlimited\ntimelimit unlimited");
    let mut consumer = Consumer::default();
    let request = SyncSearch::default();
    consumer.ask(front.server.address, &request);
    assert_eq!(consumer.refresh(), None);
    assert_eq!(consumer.entries.len(), ENTRIES.matches("dn: ").count());
    let mut direct = Client::connect(remote.server.address);
    assert!(run(&mut direct, &format!("as {ADMIN} secret")).contains("=> 0"));
    assert!(run(&mut direct, &format!("delete uid=bob,ou=people,{SUFFIX}")).contains("=> 0"));
    assert!(
        run(&mut direct, &format!("add cn=new,{SUFFIX}\n  objectClass: person\n  cn: new\n  sn: n"))
            .contains("=> 0")
    );
    let has = |consumer: &Consumer, name: &str| consumer.entries.values().any(|(dn, _)| dn.starts_with(name));
    consumer.until(|consumer| has(consumer, "cn=new,") && !has(consumer, "uid=bob,"));
    // The answer of a target without the overlay is the target's own.
    let plain = Running::start(Kind::Larix, &body(""), ENTRIES);
    let front = proxy(plain.server.address, "");
    let mut refused = Consumer::default();
    refused.ask(front.server.address, &request);
    assert_eq!(refused.refresh().map(|end| end.code), Some(12));
}
