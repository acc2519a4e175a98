use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use larix_proto::Request;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType};

use super::fake::{Fake, Reply};
use super::{
    Identity, Operation, Optimum, Options, Order, Report, Step, Steps, Targets, Workload, optimize,
    optimize_by, run,
};

fn options(fake: &Fake) -> Options {
    Options {
        connections: 4,
        duration: Duration::from_millis(150),
        warm_up: Duration::ZERO,
        sample_every: Duration::from_millis(50),
        ..Options::new(fake.address.into())
    }
}

fn reading() -> Workload {
    Workload::new(1_000).with(Step::new(1, Operation::read("uid={n},dc=example")))
}

fn failure(options: &Options, workload: &Workload) -> String {
    format!("{:#}", run(options, workload).unwrap_err())
}

/// A socket that has its address and does not listen.
fn unheard() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    (socket, address.try_into().unwrap())
}

#[test]
fn a_closed_loop_is_counted() {
    let fake = Fake::start(|_, _| Reply::entries(1));
    for (threads, in_flight) in [(1, 1), (2, 3)] {
        // Long enough for answers within the first sample, also where others have the processors.
        let options = Options {
            threads,
            in_flight,
            process: Some(std::process::id()),
            duration: Duration::from_millis(1_500),
            sample_every: Duration::from_millis(500),
            ..options(&fake)
        };
        let report = run(&options, &reading()).unwrap();
        assert!(report.operations > 0);
        assert_eq!(report.entries, report.operations);
        assert_eq!(report.latency_us.len(), report.operations);
        assert_eq!(report.by_operation.len(), 1);
        assert_eq!(report.by_operation[0].operations, report.operations);
        assert_eq!((report.failures.len(), report.is_valid()), (0, true), "{:?}", report.unexpected);
        assert_eq!(report.samples.len(), 3, "{:?}", report.samples);
        let sampled: u64 = report.samples.iter().map(|sample| sample.operations).sum();
        assert!(sampled <= report.operations && report.samples[0].operations > 0, "{:?}", report.samples);
        assert!(report.samples.iter().all(|sample| sample.server_resident.is_some()), "{:?}", report.samples);
        assert!(report.generator_cpu_seconds > 0.0 && report.server_cpu_seconds.is_some());
        assert_eq!(report.to_json()["by_operation"][0]["name"], "read");
    }
}

/// The server stands still once, for a third of the time. A closed loop sends nothing meanwhile and sees one slow answer
/// a connection; the requests of an open loop were due, and each has waited.
#[test]
fn latency_counts_from_when_a_request_was_due() {
    let stall = |_: &Request<'_>, number| match number {
        20 => Reply { entries: 1, delay: Duration::from_millis(500), ..Reply::default() },
        _ => Reply::entries(1),
    };
    let slow_answers = |rate| {
        let fake = Fake::start(stall);
        let options =
            Options { connections: 1, rate, duration: Duration::from_millis(1_500), ..options(&fake) };
        let report = run(&options, &reading()).unwrap();
        let slow = report.latency_us.count_between(250_000, u64::MAX);
        (slow, report)
    };
    let (slow, closed) = slow_answers(None);
    assert!(slow < closed.operations / 10, "closed: {slow} of {}", closed.operations);
    let (slow, open) = slow_answers(Some(200.0));
    // 100 requests were due within the half second, half of which waited for more than half of it.
    assert!(slow >= 40, "open: {slow} of {}", open.operations);
    assert!(open.operations <= 300, "{}", open.operations);
}

#[test]
fn an_open_loop_keeps_its_rate_over_threads() {
    let fake = Fake::start(|_, _| Reply::entries(1));
    let duration = Duration::from_millis(500);
    let options = Options { threads: 2, rate: Some(400.0), duration, ..options(&fake) };
    let median = || {
        let report = run(&options, &reading()).unwrap();
        // A machine that is busy with something else may end behind, and then says so.
        let least = if report.saturated.is_none() { 195 } else { 1 };
        assert!((least..=200).contains(&report.operations), "{}", report.operations);
        report.latency_us.value_at_quantile(0.5)
    };
    // It is the timer that wakes the driver, not its looking around every half second: by that, no run would be fast. One of
    // them is, whatever else the machine does.
    let medians: Vec<u64> = (0..5).map(|_| median()).collect();
    assert!(medians.iter().any(|median| *median < 100_000), "{medians:?}");
}

#[test]
fn a_rate_that_cannot_be_sent_is_said() {
    let slow = Reply { entries: 1, delay: Duration::from_millis(50), ..Reply::default() };
    let fake = Fake::start(move |_, _| slow);
    let options = Options { connections: 1, rate: Some(1_000.0), ..options(&fake) };
    let report = run(&options, &reading()).unwrap();
    let saturated = report.saturated.unwrap();
    assert!(saturated.contains("1000 requests per second could not be sent"), "{saturated}");
    assert!(saturated.contains("of 150 were due"), "{saturated}");
}

#[test]
fn wrong_answers_are_found_and_counted_by_code() {
    let fake = Fake::start(|request, number| match request {
        Request::Search(_) if number % 2 == 0 => Reply::entries(2),
        Request::Search(_) => Reply::code(32),
        Request::Compare(_) => Reply::code(if number % 2 == 0 { 5 } else { 6 }),
        _ => Reply::code(50),
    });
    let compare = Operation::Compare { dn: "uid={n}".into(), attribute: "a".into(), value: "{s}".into() };
    let workload = reading()
        .with(Step::new(1, compare))
        .with(Step::new(1, Operation::search("", "(uid={n})")).named("free"))
        .with(Step::new(1, Operation::replace("uid={n}", "a", "{digits:4}")));
    // Long enough for each of the answers, also where others have the processors.
    let duration = Duration::from_secs(1);
    let report = run(&Options { connections: 1, duration, ..options(&fake) }, &workload).unwrap();
    let of = |name: &str| {
        let found = report.unexpected.iter().filter(|unexpected| unexpected.step == name);
        found.map(|unexpected| (unexpected.what.as_str(), unexpected.count)).collect::<Vec<_>>()
    };
    let read: Vec<&str> = of("read").iter().map(|(what, _)| *what).collect();
    assert!(read.contains(&"2 entries instead of 1") && read.contains(&"result 32"), "{read:?}");
    assert_eq!(of("compare"), []);
    assert_eq!(of("free").iter().map(|(what, _)| *what).collect::<Vec<_>>(), ["result 32"]);
    let modifies = report.by_operation.iter().find(|operation| operation.name == "modify").unwrap();
    assert_eq!(modifies.failures, modifies.operations);
    assert!(report.failures.contains(&(50, modifies.operations)), "{:?}", report.failures);
    assert!(!report.is_valid());
}

#[test]
fn binds_reconnect_when_they_are_to() {
    let fake = Fake::start(|_, _| Reply::code(0));
    let bind = |reconnect| {
        let operation = Operation::Bind { dn: "cn=a".into(), password: "secret".into(), reconnect };
        Workload::new(1).with(Step::new(1, operation))
    };
    let staying = run(&options(&fake), &bind(false)).unwrap();
    assert_eq!(fake.connections(), 4);
    let leaving = run(&options(&fake), &bind(true)).unwrap();
    assert_eq!(fake.connections(), 8 + leaving.operations);
    assert!(staying.operations > 0 && leaving.operations > 0);
    assert_eq!((leaving.by_operation[0].name.as_str(), leaving.failures.len()), ("rebind", 0));
    let error = failure(&Options { in_flight: 2, ..options(&fake) }, &bind(true));
    assert!(error.contains("one request in flight, not 2"), "{error}");
}

#[test]
fn renames_are_undone_at_the_end() {
    use std::sync::atomic::{AtomicI64, Ordering};
    static AWAY: AtomicI64 = AtomicI64::new(0);
    let fake = Fake::start(|request, _| {
        if let Request::ModifyDn(rename) = request {
            let there = rename.new_rdn.starts_with("uid=b");
            AWAY.fetch_add(if there { 1 } else { -1 }, Ordering::Relaxed);
        }
        Reply::code(0)
    });
    let rename = Operation::ModifyDn {
        dn: "uid=a{n},dc=example".into(),
        new_rdn: "uid=b{n}".into(),
        new_superior: None,
    };
    let workload = Workload::new(1_000).with(Step::new(1, rename));
    let report = run(&Options { in_flight: 3, threads: 2, ..options(&fake) }, &workload).unwrap();
    assert!(report.operations > 0);
    assert_eq!(AWAY.load(Ordering::Relaxed), 0);
}

#[test]
fn numbers_go_on_where_a_run_ended() {
    let fake = Fake::start(|_, _| Reply::code(0));
    let add = Operation::Add { dn: "uid=a{s}".into(), attributes: vec![("uid".into(), "a{s}".into())] };
    let workload = Workload::new(100).with(Step::new(1, add));
    let report = run(&Options { threads: 2, ..options(&fake) }, &workload).unwrap();
    assert!(report.sequence_end >= 100 + report.operations, "{}", report.sequence_end);
}

#[test]
fn every_order_of_targets_is_driven() {
    let fake = Fake::start(|_, _| Reply::entries(1));
    for order in [Order::Random, Order::Sequential, Order::Zipf { exponent: 0.99 }] {
        let targets = Targets { order, ..Targets::random(50) };
        let report = run(&options(&fake), &Workload { targets, ..reading() }).unwrap();
        assert!(report.operations > 0 && report.is_valid(), "{order:?}");
    }
}

#[test]
fn what_the_server_does_wrong_is_named() {
    let check = |reply: Reply, expected: &str| {
        let fake = Fake::start(move |_, number| if number < 10 { Reply::entries(1) } else { reply });
        // It ends when the server does it, which may be late.
        let error = failure(&Options { duration: Duration::from_secs(60), ..options(&fake) }, &reading());
        assert!(error.contains(expected), "{error}");
    };
    check(Reply { close: true, ..Reply::default() }, "the server closed a connection with ");
    check(Reply { notice: true, code: 52, ..Reply::default() }, "the server disconnects: ");
    let fake = Fake::start(|_, _| Reply::code(49));
    let identity = Identity::Simple { dn: "cn=me".into(), password: "x".into() };
    let error = failure(&Options { identity, ..options(&fake) }, &reading());
    assert!(error.contains("the bind as \"cn=me\" was refused: Invalid credentials (49)"), "{error}");
    // A port on which nobody listens, and which nobody else can have.
    let (_unheard, address) = unheard();
    let error = failure(&Options::new(address.into()), &reading());
    assert!(error.contains("cannot connect to ldap://127.0.0.1:"), "{error}");
}

#[test]
fn options_and_workload_are_checked_first() {
    let fake = Fake::start(|_, _| Reply::code(0));
    let check = |options: &Options, workload: &Workload, expected: &str| {
        let error = failure(options, workload);
        assert!(error.contains(expected), "{error}");
    };
    check(&Options { rate: Some(0.0), ..options(&fake) }, &reading(), "a rate of 0");
    check(&Options { in_flight: 101, ..options(&fake) }, &reading(), "101 requests in flight");
    check(&options(&fake), &Workload::new(1), "no operation has a weight");
    assert_eq!(fake.connections(), 0);
}

/// A report with this rate and nothing else.
fn with_rate(rate: u64) -> Report {
    let fake = Fake::start(|_, _| Reply::entries(1));
    let duration = Duration::from_millis(1);
    let mut report = run(&Options { connections: 1, duration, ..options(&fake) }, &reading()).unwrap();
    report.operations = rate;
    report.seconds = 1.0;
    report
}

#[test]
fn optimizing_stops_after_three_steps_without_gain() {
    let check = |rates: &[u64], steps: Steps, expected: &[usize], best: usize| {
        let mut rates = rates.iter();
        let found = optimize_by(steps, |_| Ok(with_rate(*rates.next().unwrap()))).unwrap();
        let tried: Vec<usize> = found.steps.iter().map(|(connections, _)| *connections).collect();
        assert_eq!((tried.as_slice(), found.best().unwrap().0), (expected, best));
    };
    let doubling = Steps::default();
    check(&[10, 20, 30, 30, 29, 28, 99], doubling, &[1, 2, 4, 8, 16, 32], 4);
    // Half a percent is noise, but the highest rate stays the highest.
    check(&[1_000, 1_005, 1_005, 1_009], doubling, &[1, 2, 4, 8], 8);
    check(&[10, 9, 9, 20, 9, 9, 9], doubling, &[1, 2, 4, 8, 16, 32, 64], 8);
    check(&[1, 2, 3], Steps { max: 5, ..doubling }, &[1, 2, 4], 4);
    let by_two = Steps { first: 3, growth: super::Growth::Add(2), max: 9 };
    check(&[1, 2, 3, 4], by_two, &[3, 5, 7, 9], 9);
    let none = optimize_by(Steps { first: 0, ..doubling }, |_| unreachable!("nothing is to be measured"));
    assert!(none.unwrap_err().to_string().contains("no connection"));
}

#[test]
fn optimizing_drives() {
    let fake = Fake::start(|_, _| Reply::entries(1));
    let short = Options { duration: Duration::from_millis(20), ..options(&fake) };
    let Optimum { steps, .. } = optimize(&short, &reading(), Steps { max: 4, ..Steps::default() }).unwrap();
    assert_eq!(steps.iter().map(|(connections, _)| *connections).collect::<Vec<_>>(), [1, 2, 4]);
}
