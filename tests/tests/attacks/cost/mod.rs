//! The cost fuzzer: requests of every kind, with every control, up to the largest PDU, each measured against a budget. It
//! prints the worst it found, shrunk to the least that still costs half as much.
//!
//! `COST_SECONDS=1800 COST_SEED=7 cargo test --release -p larix-tests --test attacks cost -- --nocapture` looks for longer, and
//! judges by the budget itself (`COST_VERBOSE=1` prints every request); without `COST_SECONDS` a few hundred requests are sent to a server that need not be
//! optimised, and one fails that takes [`SLACK`] times the budget in processor time or memory.

mod meter;
mod request;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larix_load::generate::Random;
use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, client};
use larix_testkit::{Kind, Server, SetAtEnd, Site};
use larix_tests::raw::bind;

use super::{ADMIN, SUFFIX, connect, durations, figure, one_entry, shown};
use meter::{Cost, measure};
use request::Shape;

/// How many budgets a request of an unoptimised server may take: such a server is some five times slower, its allocator keeps
/// more, and a machine that other tests share has colder caches. What is quadratic takes hundreds.
const SLACK: f64 = 20.0;
/// Requests sent where no time is given.
const REQUESTS: usize = 300;
/// Requests until the directory is made anew: some of them change it.
const REQUESTS_A_DIRECTORY: usize = 250;
/// The worst that are shown.
const SHOWN: usize = 10;

/// With these lines before the first database.
fn directory(global: &str) -> (Site, Server) {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "{global}access to dn.base=\"cn=ruled,{SUFFIX}\" by set=\"this/seeAlso/cn & [none]\" none by users write by * read\n\
             access to attrs=userPassword by self write by anonymous auth by * none\n\
             access to dn.subtree=\"ou=hidden,{SUFFIX}\" by * none\n\
             access to dn.subtree=\"ou=open,{SUFFIX}\" by users write by * read\n\
             access to * by self write by * read\n\
             authz-policy any\n\
             database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             index objectClass,uid,cn,member eq\nindex sn eq,sub\noverlay syncprov\n"
        ),
    );
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: ou=hidden,{SUFFIX}\nobjectClass: organizationalUnit\nou: hidden\n\n\
         dn: ou=open,{SUFFIX}\nobjectClass: organizationalUnit\nou: open\n\n"
    );
    for n in 0..300 {
        ldif += &format!(
            "dn: cn=user{n},{SUFFIX}\nobjectClass: person\ncn: user{n}\nsn: {n}\nuserPassword: right\n\n\
             dn: cn=user{n},ou=hidden,{SUFFIX}\nobjectClass: person\ncn: user{n}\nsn: {n}\n\n\
             dn: cn=item{n},ou=open,{SUFFIX}\nobjectClass: person\ncn: item{n}\nsn: {n}\n\n"
        );
    }
    ldif += &format!("dn: cn=group,{SUFFIX}\nobjectClass: groupOfNames\ncn: group\n");
    (0..20_000).for_each(|n| ldif += &format!("member: cn=user{n},{SUFFIX}\n"));
    ldif += &format!("\ndn: cn=wide,{SUFFIX}\nobjectClass: person\ncn: wide\nsn: wide\n");
    (0..5_000).for_each(|n| ldif += &format!("description: value number {n} of many\n"));
    ldif += &format!("\ndn: cn=keys,{SUFFIX}\nobjectClass: person\ncn: keys\nsn: keys\n");
    (0..20_000).for_each(|n| ldif += &format!("userPassword: {{SSHA}}{n:0>32}\n"));
    (0..2_000).for_each(|n| ldif += &format!("authzFrom: dn.regex:^cn=(nobody|{n}),.*$\n"));
    ldif += &format!("\ndn: cn=ruled,{SUFFIX}\nobjectClass: person\ncn: ruled\nsn: ruled\n");
    (0..5_000).for_each(|n| ldif += &format!("seeAlso: cn=user{n},{SUFFIX}\n"));
    site.load(&ldif);
    let server = on_one_processor(|| site.start()).unwrap();
    (site, server)
}

/// A server started in here has one event loop, so that who is measured and who is beside it share it.
fn on_one_processor<T>(start: impl FnOnce() -> T) -> T {
    let all = processors();
    on(&all[..1], start)
}

/// Clients in here leave the server its processor, as clients on machines of their own do.
fn on_the_others<T>(clients: impl FnOnce() -> T) -> T {
    let all = processors();
    on(if all.len() > 1 { &all[1..] } else { &all }, clients)
}

/// Those that this thread may use.
fn processors() -> Vec<usize> {
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).filter(|cpu| all.is_set(*cpu)).collect()
}

fn on<T>(processors: &[usize], work: impl FnOnce() -> T) -> T {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let mut these = rustix::thread::CpuSet::new();
    processors.iter().for_each(|cpu| these.set(*cpu));
    rustix::thread::sched_setaffinity(None, &these).unwrap();
    let done = work();
    rustix::thread::sched_setaffinity(None, &before).unwrap();
    done
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The least request of the kind that costs at least half of what this one did.
fn shrunk(server: &Server, shape: Shape, cost: Cost) -> (Shape, Cost) {
    let (mut best, wanted) = ((shape, cost), cost.score() / 2.0);
    for _ in 0..60 {
        let next = best.0.smaller().into_iter().find_map(|shape| {
            let cost = measure(server, &shape);
            (cost.score() >= wanted).then_some((shape, cost))
        });
        match next {
            Some(next) => best = next,
            None => break,
        }
    }
    best
}

/// Keeps the worst, one of each kind of operation and control.
fn remember(worst: &mut Vec<(Shape, Cost)>, shape: Shape, cost: Cost) {
    let kind = |shape: &Shape| {
        let extras: Vec<_> = shape.extras.iter().map(std::mem::discriminant).collect();
        (std::mem::discriminant(&shape.operation), extras)
    };
    match worst.iter_mut().find(|(known, _)| kind(known) == kind(&shape)) {
        Some(known) if known.1.score() < cost.score() => *known = (shape, cost),
        Some(_) => {}
        None => worst.push((shape, cost)),
    }
    worst.sort_by(|(_, a), (_, b)| b.score().total_cmp(&a.score()));
    worst.truncate(SHOWN * 2);
}

/// What the request costs where it costs the least: this much, or as much as in one of two directories that are made anew. What it
/// really costs it costs each time; what the machine did meanwhile, or what the server did beside it, comes once.
fn lesser(cost: Cost, global: &str, shape: &Shape) -> Cost {
    let again = (0..2).map(|_| {
        let (_site, server) = directory(global);
        let again = measure(&server, shape);
        println!("again: {again}");
        again
    });
    let all = std::iter::once(cost).chain(again);
    all.min_by(|a, b| a.score().total_cmp(&b.score())).unwrap_or(cost)
}

#[test]
fn no_request_costs_more_than_its_budget() {
    let seconds = number("COST_SECONDS");
    let seed = number("COST_SEED").unwrap_or(1);
    println!("COST_SEED={seed}");
    let mut random = Random::new(seed);
    let (until, mut sent) = (seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)), 0);
    let mut worst = Vec::new();
    let mut place = directory("");
    while until.map_or(sent < REQUESTS, |until| Instant::now() < until) {
        if sent % REQUESTS_A_DIRECTORY == REQUESTS_A_DIRECTORY - 1 {
            place = directory("");
        }
        let shape = Shape::random(&mut random);
        let cost = measure(&place.1, &shape);
        sent += 1;
        if std::env::var_os("COST_VERBOSE").is_some() {
            println!("{sent}: {cost}\n    {shape:?}");
        }
        remember(&mut worst, shape, cost);
    }
    place = directory("");
    println!("{sent} requests; the worst:");
    let worst: Vec<(Shape, Cost)> = worst
        .into_iter()
        .take(SHOWN)
        .map(|(shape, _)| {
            // What was measured once may have met a page that was not there yet.
            let again = measure(&place.1, &shape);
            let least = if again.score() > 1.0 { shrunk(&place.1, shape, again) } else { (shape, again) };
            println!("{}\n    {:?}", least.1, least.0);
            least
        })
        .collect();
    super::assert_unharmed(&place.1);
    on_the_others(|| beside(&place.1, &worst));
    let allowed = if seconds.is_some() { 1.0 } else { SLACK };
    let mut excesses: Vec<_> = worst.into_iter().filter(|(_, cost)| cost.score() > allowed).collect();
    excesses.retain_mut(|(shape, cost)| {
        *cost = lesser(*cost, "", shape);
        cost.score() > allowed
    });
    assert!(excesses.is_empty(), "seed {seed}: above {allowed} budgets: {excesses:#?}");
}

/// Requests that once took from a third of a second to twenty, or hundreds of megabytes, with names for what they are.
fn once_costly() -> [(&'static str, Shape); 20] {
    use request::{Extra, Identity::*, List, Operation::*, Term, Words};
    let list = |words, count, bytes| List { words, count, bytes };
    let one = list(Words::Same, 1, 2);
    let search =
        |base, subtree, term, filter, wanted| Search { base, subtree, term, filter, nested: false, wanted };
    let people = |wanted| search(0, true, Term::Present, one, wanted);
    let shape =
        |identity, operation, extras: &[Extra]| Shape { identity, operation, extras: extras.to_vec() };
    [
        (
            "a list of 8,000 attributes with options",
            shape(Anonymous, people(list(Words::Options, 8_000, 28)), &[]),
        ),
        (
            "a list of 32,768 attributes with options",
            shape(User, people(list(Words::Options, 32_768, 32)), &[]),
        ),
        (
            "an add of 65,536 values without the right to",
            shape(User, Add { below: 0, attributes: one, values: list(Words::Unknown, 65_536, 10) }, &[]),
        ),
        (
            "20,000 values and 5,000 modifications of one attribute",
            shape(
                User,
                Modify {
                    target: 1,
                    modifications: list(Words::Same, 5_000, 2),
                    values: list(Words::Unknown, 20_000, 8),
                    kind: 0,
                },
                &[],
            ),
        ),
        (
            "8,192 descriptions of one type in an entry",
            shape(
                User,
                Modify {
                    target: 5,
                    modifications: list(Words::Options, 8_192, 4),
                    values: list(Words::Options, 16, 8),
                    kind: 4,
                },
                &[],
            ),
        ),
        (
            "a search among them",
            shape(
                User,
                search(4, true, Term::Equal, list(Words::Options, 1, 16), list(Words::Options, 256, 8)),
                &[],
            ),
        ),
        (
            "an add of 8,192 descriptions of one type",
            shape(
                User,
                Add {
                    below: 4,
                    attributes: list(Words::Options, 8_192, 4),
                    values: list(Words::Unknown, 1, 8),
                },
                &[],
            ),
        ),
        ("a sort by 8,000 keys", shape(Anonymous, people(one), &[Extra::Sort(list(Words::Same, 8_000, 2))])),
        (
            "a sort by five long keys",
            shape(
                Anonymous,
                search(2, false, Term::Present, one, one),
                &[Extra::Sort(list(Words::Same, 5, 2))],
            ),
        ),
        (
            "250 times the same attribute of 20,000 members",
            shape(
                Anonymous,
                search(3, false, Term::Present, one, one),
                &[Extra::Dereference(list(Words::Same, 250, 2))],
            ),
        ),
        (
            "a filter of 9,999 terms",
            shape(Anonymous, search(0, true, Term::Equal, list(Words::Same, 9_999, 2), one), &[]),
        ),
        (
            "5,000 values matched by 500 filters",
            shape(
                Anonymous,
                search(2, false, Term::Present, one, list(Words::Known, 8, 2)),
                &[Extra::MatchedValues(Term::Substrings, list(Words::Known, 500, 2))],
            ),
        ),
        (
            "512 chains through a group of 20,000",
            shape(Anonymous, search(0, true, Term::InChain, list(Words::Unknown, 512, 4), one), &[]),
        ),
        (
            "an assertion about each of 8,192 descriptions that are to be added",
            shape(
                User,
                Add {
                    below: 7,
                    attributes: list(Words::Options, 8_192, 8),
                    values: list(Words::Classes, 1, 32),
                },
                &[Extra::Assertion(Term::AnyAttribute, list(Words::Unknown, 8, 8))],
            ),
        ),
        (
            "32 words that sound alike",
            shape(User, search(2, true, Term::Approximate, list(Words::Known, 32, 1), one), &[]),
        ),
        (
            "a bind as an entry of 20,000 passwords",
            shape(Anonymous, BindAs { target: 8, password: 4_096 }, &[]),
        ),
        (
            "a search in the name of an entry with 2,000 patterns for who may be it",
            shape(User, search(1, false, Term::Present, one, one), &[Extra::ActingAs(8)]),
        ),
        (
            "a search under an access rule that looks at 5,000 entries",
            shape(User, search(9, false, Term::Present, one, one), &[]),
        ),
        (
            "a modify under the same rule",
            shape(User, Modify { target: 9, modifications: one, values: one, kind: 0 }, &[]),
        ),
        (
            "a transaction of 64 updates with 1,024 values each",
            shape(User, Transaction { target: 1, updates: 64, values: list(Words::Unknown, 65_536, 8) }, &[]),
        ),
    ]
}

#[test]
fn what_was_costly_once_is_not_again() {
    // As many descriptions as were learnt then.
    let global = "request-limits descriptions=10000\n";
    let (_site, server) = directory(global);
    let mut excesses = Vec::new();
    for (what, shape) in once_costly() {
        let cost = measure(&server, &shape);
        println!("{what}: {cost}");
        if cost.score() > SLACK {
            excesses.push((what, shape, cost));
        }
    }
    super::assert_unharmed(&server);
    excesses.retain_mut(|(_, shape, cost)| {
        *cost = lesser(*cost, global, shape);
        cost.score() > SLACK
    });
    assert!(excesses.is_empty(), "above {SLACK} budgets: {excesses:#?}");
}

/// What the worst requests, sent all the time by eight clients, do to the searches and changes of another one; beside it, what
/// eight clients do that send the smallest search as often as they can: they share the loop and the processors as well.
fn beside(server: &Server, worst: &[(Shape, Cost)]) {
    let count = super::times(200);
    let mut other = connect(server);
    assert_eq!(other.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let quiet = figures(&mut other, count);
    let small = while_eight(
        |_, done| {
            let mut client = connect(server);
            while !done.load(Ordering::Relaxed) {
                client.ask(&one_entry(1));
            }
        },
        || figures(&mut other, count),
    );
    let requests: Vec<_> = worst.iter().map(|(shape, _)| (shape.identity, shape.bytes(2))).collect();
    let busy = while_eight(
        |first, done| {
            let turns = requests.iter().cycle().skip(first);
            for (identity, request) in turns.take_while(|_| !done.load(Ordering::Relaxed)) {
                let mut client = connect(server);
                if *identity == request::Identity::User {
                    client.ask(&bind(1, &format!("cn=user{},{SUFFIX}", first + 10), "right"));
                }
                client.ask(request);
            }
        },
        || figures(&mut other, count),
    );
    for (at, what) in ["searches", "modifies"].into_iter().enumerate() {
        figure(
            "the worst requests in a loop",
            format_args!(
                "{what} of another client {}; beside the smallest searches {}; quiet {}",
                shown(&busy[at]),
                shown(&small[at]),
                shown(&quiet[at])
            ),
        );
    }
}

/// How long searches and changes of a client took, sorted.
fn figures(client: &mut larix_tests::raw::Raw, count: usize) -> [Vec<Duration>; 2] {
    [durations(client, count, one_entry), changes(client, count)]
}

/// Measures while eight threads attack; each ends when it is asked to. They leave their processor to who measures.
fn while_eight<T>(attack: impl Fn(usize, &AtomicBool) + Sync, measured: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..8 {
            let (attack, done) = (&attack, &done);
            scope.spawn(move || {
                rustix::process::nice(19).unwrap();
                attack(first, done);
            });
        }
        let _end = SetAtEnd(&done);
        measured()
    })
}

/// How long each of `count` modifies took, sorted.
fn changes(connection: &mut larix_tests::raw::Raw, count: usize) -> Vec<Duration> {
    let mut durations: Vec<Duration> = (2..2 + u32::try_from(count).unwrap())
        .map(|id| {
            let (mut out, value) = (Vec::new(), [id.to_string()]);
            let attribute = ClientAttribute { description: "description", values: &value };
            let change = ClientChange { operation: ModifyOperation::Replace, attribute };
            client::modify(&mut out, MessageId(id), &format!("cn=user9,{SUFFIX}"), &[change], &[]);
            let begin = Instant::now();
            assert_eq!(connection.ask(&out).unwrap().code, 0);
            begin.elapsed()
        })
        .collect();
    durations.sort();
    durations
}
