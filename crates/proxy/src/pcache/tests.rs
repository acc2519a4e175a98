//! The cache and its cursors with a remote server that answers what a test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larix_backend::memory_tree::OneByOne;
use larix_backend::{Cursor, Effort, StepOutcome, slice};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::budget::RequestLimits;
use larix_engine::controls::RequestControls;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, ManualClock, Timestamp};
use larix_proto::encode::{EntryEncoder, search_reference};
use larix_proto::{
    DerefAliases, FilterBuf, LdapResult, Message, MessageId, Request, Response, ResultCode, Scope, client,
};
use larix_schema::{NormalDn, Schema};

use super::containment::Region;
use super::cursors::{Answering, Keeping, Reading};
use super::flights::{Awaiting, Boarding};
use super::projection::Projection;
use super::refreshing::AskAgain;
use super::store::{Answer, Cache, CacheLookup, CachedEntry, Query, Times};
use super::template::tests::schema;
use super::{AttributeSet, NotRestored, Settings, Shape, Template};
use crate::identity::Asker;
use crate::job::Owner;
use crate::settings::ProxySettings;

const ID: MessageId = MessageId(7);

/// What the remote server answers, in steps.
#[derive(Debug)]
struct Remote {
    messages: Vec<Vec<u8>>,
    end: Option<LdapResult>,
}

impl Cursor for Remote {
    fn step(&mut self, _: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if !self.messages.is_empty() {
            out.append(&mut self.messages.remove(0));
            return StepOutcome::More;
        }
        match self.end.take() {
            Some(result) => StepOutcome::Done(result, Vec::new()),
            None => StepOutcome::Waiting,
        }
    }

    fn effort(&self) -> Effort {
        Effort::default()
    }
}

struct World {
    schema: Arc<Schema>,
    cache: Arc<Cache>,
    settings: Settings,
    clock: Arc<ManualClock>,
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn world() -> World {
    let schema = Arc::new(schema());
    let template = |text: &str| Template {
        shape: Shape::parse(&schema, text, false).unwrap(),
        set: 0,
        ttl: seconds(60),
        negative_ttl: seconds(10),
        limit_ttl: seconds(20),
        refresh: None,
    };
    let settings = Settings {
        sets: vec![AttributeSet::parse(&schema, ["cn", "sn", "uid"]).unwrap()],
        templates: vec![
            template("(uid=)"),
            Template { refresh: Some(seconds(5)), ..template("(sn=)") },
            template("(&(uid=)(sn=))"),
        ],
        binds: Vec::new(),
        entries_max: 20,
        answer_entries_max: 4,
        bytes_max: 1 << 20,
        queries_max: 10,
        check_period: seconds(1),
        offline: false,
        shared: false,
        saved: None,
    };
    let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(0)));
    World { schema, cache: Arc::new(Cache::new([1; 32])), settings, clock }
}

fn entry(uid: &str, attributes: &[(&str, &str)]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut encoder = EntryEncoder::begin(&mut message, ID, &format!("uid={uid},o=x"));
    for (name, value) in std::iter::once(&("uid", uid)).chain(attributes) {
        encoder.begin_attribute(name);
        encoder.value(value.as_bytes());
        encoder.end_attribute();
    }
    encoder.finish(&[]);
    message
}

fn person(uid: &str) -> Vec<u8> {
    entry(uid, &[("cn", uid), ("sn", "Smith")])
}

impl World {
    fn advance(&self, seconds: u32) {
        self.clock.advance_micros(seconds * 1_000_000);
    }

    fn query(&self, asker: &str, base: &str, filter: &str) -> Query {
        let sent = FilterBuf::parse(filter).unwrap();
        let bound = self.schema.bind_filter(sent.as_filter());
        let template = self.settings.templates.iter().position(|one| one.shape.fits(&bound)).unwrap();
        let owner = match asker {
            "" => Owner::Anonymous,
            name => Owner::User(NormalDn::from_normal(name)),
        };
        Query {
            asker: (!self.settings.shared).then_some((owner, None)),
            template,
            region: Region {
                base: self.schema.parse_dn(base).unwrap(),
                scope: Scope::Subtree,
                deref: DerefAliases::Never,
            },
            filter: bound,
            sent: Arc::new(sent),
            unknown: Vec::new(),
            again: None,
        }
    }

    fn projection(&self, filter: &str, names: &[&str]) -> Arc<Projection> {
        let filter = FilterBuf::parse(filter).unwrap();
        let mut request = Vec::new();
        let search = client::Search {
            attributes: names,
            ..client::Search::new("o=x", Scope::Subtree, filter.as_filter())
        };
        client::search(&mut request, ID, &search, &[]);
        let Ok(Message { request: Request::Search(request), .. }) = Message::decode(&request) else {
            panic!()
        };
        let (limits, controls) = (RequestLimits::default(), RequestControls::default());
        let open = Arc::new(AccessPolicy::open(Arc::clone(&self.schema), None));
        Arc::new(Projection {
            schema: Arc::clone(&self.schema),
            policy: Arc::clone(&open),
            open_policy: open,
            subject: Arc::new(Subject::default()),
            search: OneByOne::new(&self.schema, &limits, &request, &controls, ID).unwrap(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            types_only: false,
            message: ID,
        })
    }

    fn reading(
        &self,
        (asker, base, filter): (&str, &str, &str),
        messages: Vec<Vec<u8>>,
        end: Option<ResultCode>,
        limit: Option<u32>,
    ) -> Reading {
        let query = self.query(asker, base, filter);
        let before = match self.find(&query) {
            CacheLookup::Refresh { entries, .. } => Some(entries),
            _ => None,
        };
        let keeping = Keeping {
            cache: Arc::clone(&self.cache),
            settings: Arc::new(self.settings.clone()),
            query,
            changes: self.cache.changes(),
            clock: Arc::clone(&self.clock) as _,
            leading: None,
        };
        let inner = Remote { messages, end: end.map(LdapResult::new) };
        Reading::new(Box::new(inner), self.projection(filter, &["cn"]), keeping, before, limit)
    }

    /// Reads an answer whole; the names that the client sees, and the code.
    fn read(&self, query: (&str, &str, &str), messages: Vec<Vec<u8>>, end: ResultCode) -> (Vec<String>, u32) {
        self.run(&mut self.reading(query, messages, Some(end), None))
    }

    fn run(&self, cursor: &mut dyn Cursor) -> (Vec<String>, u32) {
        let mut out = Vec::new();
        loop {
            match cursor.step(slice(&*self.clock), &mut out) {
                StepOutcome::Done(result, _) => return (names(&out), result.code.0),
                StepOutcome::More => {}
                StepOutcome::Waiting => panic!("waits"),
            }
        }
    }

    fn find(&self, query: &Query) -> CacheLookup {
        self.cache.find(&self.schema, query, &self.settings, self.clock.monotonic())
    }

    /// What is answered from the cache: names; none: the remote server is asked.
    fn answer(&self, asker: &str, base: &str, filter: &str) -> Option<Vec<String>> {
        let query = self.query(asker, base, filter);
        let CacheLookup::Entries { entries, is_same, .. } = self.find(&query) else { return None };
        let mut answering = Answering::new(entries, query.region, self.projection(filter, &["cn"]), None);
        (is_same || answering.finds_any()).then(|| self.run(&mut answering).0)
    }
}

fn names(messages: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for one in larix_proto::frames(messages, 1 << 20) {
        if let Response::Entry(found) = Response::decode_message(one).unwrap().response {
            assert!(
                found.attributes.iter().all(|attribute| attribute.description.eq_ignore_ascii_case("cn"))
            );
            names.push(found.dn.to_owned());
        }
    }
    names
}

const ALL: (&str, &str, &str) = ("", "o=x", "(uid=a*)");

#[test]
fn a_whole_answer_is_kept() {
    let world = world();
    let (shown, code) = world.read(ALL, vec![person("ann"), person("abe")], ResultCode::SUCCESS);
    assert_eq!((shown.len(), code), (2, 0));
    assert_eq!(world.cache.reading(), 0);
    for (filter, expected) in [
        ("(uid=a*)", Some(&["uid=ann,o=x", "uid=abe,o=x"][..])),
        ("(uid=ann)", Some(&["uid=ann,o=x"])),
        ("(uid=an*)", Some(&["uid=ann,o=x"])),
        ("(uid=axel)", Some(&[])),
        ("(uid=b*)", None),
        ("(uid=*a*)", None),
        ("(sn=Smith)", None),
        ("(&(uid=ann)(sn=Smith))", None),
    ] {
        let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(world.answer("", "o=x", filter), expected, "{filter}");
    }
    // That there is such a base is known where something is found below it.
    assert_eq!(world.answer("", "uid=ann,o=x", "(uid=a*)").map(|names| names.len()), Some(1));
    assert_eq!(world.answer("", "ou=nowhere,o=x", "(uid=a*)"), None);
    // What one identity was answered is for no other one.
    assert_eq!(world.answer("uid=bob,o=x", "o=x", "(uid=a*)"), None);
}

#[test]
fn what_is_not_whole_is_not_kept() {
    let mut reference = Vec::new();
    search_reference(&mut reference, ID, &["ldap://elsewhere/o=y".to_owned()], &[]);
    let twice = entry("ann", &[("cn", "ann"), ("CN", "anna")]);
    let (one, other) = (person("ann"), person("bob"));
    for (messages, end) in [
        (vec![one.clone()], ResultCode::UNAVAILABLE),
        (vec![one.clone()], ResultCode::TIME_LIMIT_EXCEEDED),
        (vec![one.clone()], ResultCode::ADMIN_LIMIT_EXCEEDED),
        (vec![one.clone()], ResultCode::OTHER),
        (vec![], ResultCode::NO_SUCH_OBJECT),
        (vec![one.clone(), reference.clone()], ResultCode::SUCCESS),
        (vec![reference], ResultCode::SUCCESS),
        // A server that answers what the filter is not true of, or an attribute twice.
        (vec![one.clone(), other], ResultCode::SUCCESS),
        (vec![twice], ResultCode::SUCCESS),
        // More entries than one answer may have.
        (vec![one; 5], ResultCode::SUCCESS),
    ] {
        let world = world();
        let count = messages.len();
        world.read(ALL, messages, end);
        assert_eq!((world.cache.size().0, world.cache.reading()), (0, 0), "{count} {end:?}");
    }
    // A server that dies in the middle, and a client that goes.
    let world = world();
    let mut cursor = world.reading(ALL, vec![person("ann")], None, None);
    let mut out = Vec::new();
    while !matches!(cursor.step(slice(&*world.clock), &mut out), StepOutcome::Waiting) {}
    assert!(names(&out).len() == 1 && world.cache.reading() > 0);
    drop(cursor);
    assert_eq!((world.cache.size().0, world.cache.reading()), (0, 0));
}

#[test]
fn limits_of_the_client_and_of_the_server() {
    let world = world();
    let people = || vec![person("ann"), person("abe"), person("ada")];
    let mut cursor = world.reading(ALL, people(), Some(ResultCode::SUCCESS), Some(1));
    let (shown, code) = world.run(&mut cursor);
    assert_eq!((shown.len(), code), (1, 4));
    // To others it is the whole.
    assert_eq!(world.answer("", "o=x", "(uid=a*)").map(|names| names.len()), Some(3));
    // What met a limit says that what is within it is not to be answered.
    world.read(("", "o=x", "(uid=*a*)"), people(), ResultCode::SIZE_LIMIT_EXCEEDED);
    assert!(matches!(world.find(&world.query("", "o=x", "(uid=ann)")), CacheLookup::TooMany));
    world.advance(21);
    assert_eq!(world.answer("", "o=x", "(uid=ann)").map(|names| names.len()), Some(1));
}

#[test]
fn answers_expire_and_are_read_anew() {
    let mut world = world();
    let smith = ("", "o=x", "(sn=Smi*)");
    world.read(ALL, vec![person("ann")], ResultCode::SUCCESS);
    world.read(("", "o=x", "(uid=nobody)"), vec![], ResultCode::SUCCESS);
    assert_eq!(world.answer("", "o=x", "(uid=nobody)"), Some(vec![]));
    world.advance(10);
    assert_eq!(world.answer("", "o=x", "(uid=nobody)"), None);
    world.read(smith, vec![person("ann")], ResultCode::SUCCESS);
    world.advance(5);
    // One asks again, the others go on with what there is; a part of it is asked for by itself.
    assert_eq!(world.answer("", "o=x", "(sn=Smith)"), None);
    let mut again = world.reading(smith, vec![person("ann"), person("bob")], Some(ResultCode::SUCCESS), None);
    assert_eq!(world.answer("", "o=x", "(sn=Smi*)").map(|names| names.len()), Some(1));
    assert_eq!(world.run(&mut again).0.len(), 2);
    assert_eq!(world.answer("", "o=x", "(sn=Smi*)").map(|names| names.len()), Some(2));
    // A server that is gone leaves what was known until it expires.
    world.advance(6);
    let (shown, code) = world.read(smith, vec![person("eve")], ResultCode::UNAVAILABLE);
    assert_eq!((shown, code), (vec!["uid=ann,o=x".to_owned(), "uid=bob,o=x".to_owned()], 0));
    world.advance(60);
    assert_eq!(world.answer("", "o=x", "(sn=Smi*)"), None);
    assert_eq!(world.answer("", "o=x", "(uid=a*)"), None);
    world.settings.offline = true;
    assert_eq!(world.answer("", "o=x", "(sn=Smith)").map(|names| names.len()), Some(2));
    world.settings.offline = false;
    world.cache.check(&world.settings, world.clock.monotonic());
    assert_eq!(world.cache.size(), (0, 0, 0));
}

#[test]
fn a_change_takes_what_it_may_have_made_wrong() {
    let world = world();
    let dn = |text: &str| world.schema.parse_dn(text).unwrap();
    world.read(ALL, vec![person("ann")], ResultCode::SUCCESS);
    world.read(("", "ou=other,o=x", "(uid=b*)"), vec![], ResultCode::SUCCESS);
    // What was begun before the change is not kept.
    let mut before = world.reading(("", "o=x", "(uid=c*)"), vec![], Some(ResultCode::SUCCESS), None);
    world.cache.forget(&dn("uid=ann,o=x"));
    world.run(&mut before);
    assert_eq!(world.answer("", "o=x", "(uid=c*)"), None);
    assert_eq!(world.answer("", "o=x", "(uid=a*)"), None);
    assert_eq!(world.answer("", "ou=other,o=x", "(uid=b*)"), Some(vec![]));
    world.cache.forget(&dn("o=x"));
    assert_eq!(world.cache.size(), (0, 0, 0));
}

/// Queries, entries and bytes stay within their bounds, and the longest unused go first.
#[test]
fn a_full_cache() {
    let mut world = world();
    let read = |world: &World, uid: &str| {
        world.read(("", "o=x", &format!("(uid={uid})")), vec![person(uid)], ResultCode::SUCCESS);
    };
    for number in 0..50 {
        read(&world, &format!("p{number}"));
        assert_eq!(world.answer("", "o=x", "(uid=p0)").map(|names| names.len()), Some(1), "{number}");
        let (queries, entries, _) = world.cache.size();
        assert!(queries <= 10 && entries <= 10);
    }
    assert_eq!(world.answer("", "o=x", "(uid=p40)"), None);
    for number in 0..10 {
        let filter = format!("(uid=g{number}*)");
        let all = (0..4).map(|one| person(&format!("g{number}{one}"))).collect();
        world.read(("", "o=x", &filter), all, ResultCode::SUCCESS);
        assert!(world.cache.size().1 <= 20);
    }
    world.settings.bytes_max = 20_000;
    for number in 0..50 {
        let (name, value) = (format!("l{number}"), "x".repeat(1_500));
        let large = entry(&name, &[("cn", &value)]);
        world.read(("", "o=x", &format!("(uid={name})")), vec![large], ResultCode::SUCCESS);
        assert!(world.cache.size().2 <= 20_000);
    }
    assert!(world.cache.size().0 > 0);
    // An eighth of the whole is the most that one answer takes.
    let before = world.cache.size();
    let huge = entry("huge", &[("cn", &"x".repeat(3_000))]);
    assert_eq!(world.read(("", "o=x", "(uid=huge)"), vec![huge], ResultCode::SUCCESS).0.len(), 1);
    assert_eq!(world.cache.size(), before);
    assert_eq!(world.cache.reading(), 0);
}

#[test]
fn answers_for_all() {
    let mut world = world();
    world.settings.shared = true;
    world.read(("uid=ann,o=x", "o=x", "(uid=a*)"), vec![person("ann")], ResultCode::SUCCESS);
    assert_eq!(world.answer("uid=bob,o=x", "o=x", "(uid=ann)").map(|names| names.len()), Some(1));
}

/// Several threads read, change and answer: nothing is counted twice, and nothing of before a change is answered behind it.
#[test]
fn many_at_once() {
    let world = world();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..200 {
                    let uid = format!("p{}", (round * 7 + thread) % 13);
                    let filter = format!("(uid={uid})");
                    world.read(("", "o=x", &filter), vec![person(&uid)], ResultCode::SUCCESS);
                    if let Some(found) = world.answer("", "o=x", &filter) {
                        assert_eq!(found, [format!("uid={uid},o=x")]);
                    }
                    if round % 5 == 0 {
                        world.cache.forget(&NormalDn::from_normal("o=x"));
                    }
                }
            });
        }
    });
    assert_eq!(world.cache.reading(), 0);
    world.cache.forget(&NormalDn::root());
    assert_eq!(world.cache.size(), (0, 0, 0));
}

impl World {
    /// A search that asks the remote server, which others wait for.
    fn leader(&self, query: (&str, &str, &str), messages: Vec<Vec<u8>>, end: Option<ResultCode>) -> Reading {
        let Boarding::Leads(leading) = self.cache.board(&self.query(query.0, query.1, query.2)) else {
            panic!("another one asks for it")
        };
        let keeping = Keeping {
            cache: Arc::clone(&self.cache),
            settings: Arc::new(self.settings.clone()),
            query: self.query(query.0, query.1, query.2),
            changes: self.cache.changes(),
            clock: Arc::clone(&self.clock) as _,
            leading: Some(leading),
        };
        let inner = Remote { messages, end: end.map(LdapResult::new) };
        Reading::new(Box::new(inner), self.projection(query.2, &["cn"]), keeping, None, None)
    }

    /// One that waits for it, and then says whether the cache has the answer; and how often it was told.
    fn waiter(&self, query: (&'static str, &'static str, &'static str)) -> (Awaiting, Arc<AtomicUsize>) {
        let Boarding::Waits(flight) = self.cache.board(&self.query(query.0, query.1, query.2)) else {
            panic!("nobody asks for it")
        };
        let (cache, schema) = (Arc::clone(&self.cache), Arc::clone(&self.schema));
        let (settings, now) = (self.settings.clone(), self.clock.monotonic());
        let (wanted, projection) = (self.query(query.0, query.1, query.2), self.projection(query.2, &["cn"]));
        let go_on = move || match cache.find(&schema, &wanted, &settings, now) {
            CacheLookup::Entries { entries, .. } => {
                Ok(Box::new(Answering::new(entries, wanted.region, projection, None)) as Box<dyn Cursor>)
            }
            _ => Err(LdapResult::new(ResultCode::BUSY)),
        };
        let mut waiter = Awaiting::new(flight, (None, None), Box::new(go_on));
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        waiter.follow(Follower::new(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        })));
        (waiter, told)
    }

    fn waits(&self, waiter: &mut Awaiting) -> bool {
        matches!(waiter.step(slice(&*self.clock), &mut Vec::new()), StepOutcome::Waiting)
    }
}

/// Those who ask for the same while it is being asked for get that answer.
#[test]
fn one_asks_for_all() {
    let world = world();
    let mut leader = world.leader(ALL, vec![person("ann"), person("abe")], Some(ResultCode::SUCCESS));
    let (mut first, told) = world.waiter(ALL);
    let (mut second, _) = world.waiter(ALL);
    // Another filter, another base or another identity is something else.
    for other in [("", "o=x", "(uid=b*)"), ("", "ou=a,o=x", "(uid=a*)"), ("uid=bob,o=x", "o=x", "(uid=a*)")] {
        let boarded = world.cache.board(&world.query(other.0, other.1, other.2));
        assert!(matches!(boarded, Boarding::Leads(_)), "{other:?}");
    }
    assert!(world.waits(&mut first) && told.load(Ordering::Relaxed) == 0);
    assert_eq!(world.run(&mut leader).0.len(), 2);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    for waiter in [&mut first, &mut second] {
        let (names, code) = world.run(waiter);
        assert_eq!((names.len(), code), (2, 0));
    }
    // Nobody is under way any more.
    assert!(matches!(world.cache.board(&world.query("", "o=x", "(uid=a*)")), Boarding::Leads(_)));
}

/// If the one that asks comes to nothing, or its client does not read, the others wait no longer, and ask by themselves.
#[test]
fn nobody_waits_for_one_that_fails() {
    let end = |how: &str| {
        let world = world();
        let fails = how == "fails";
        let result = fails.then_some(ResultCode::UNAVAILABLE);
        let messages = if how == "too much" { vec![person("ann"); 9] } else { vec![person("ann")] };
        let mut leader = world.leader(ALL, messages, result);
        let (mut waiter, told) = world.waiter(ALL);
        let mut out = Vec::new();
        match how {
            "fails" => assert_eq!(world.run(&mut leader).1, ResultCode::UNAVAILABLE.0),
            "pauses" => leader.pause(),
            // More than is kept: it goes on for its own client alone.
            "too much" => {
                while !matches!(leader.step(slice(&*world.clock), &mut out), StepOutcome::Waiting) {}
            }
            _ => drop(leader),
        }
        assert_eq!(told.load(Ordering::Relaxed), 1, "{how}");
        assert_eq!(world.run(&mut waiter).1, ResultCode::BUSY.0, "{how}");
    };
    ["fails", "pauses", "too much", "goes"].into_iter().for_each(end);
}

/// What is saved is there again, as long as it would have been; nothing of another server's or of a damaged file.
#[test]
fn a_cache_is_kept_in_a_file() {
    let mut world = world();
    let proxy = ProxySettings::default();
    let bob = ("uid=bob,o=x", "o=x", "(sn=Smi*)");
    world.read(ALL, vec![person("ann"), person("abe")], ResultCode::SUCCESS);
    world.read(bob, vec![person("bob")], ResultCode::SUCCESS);
    world.read(("", "o=x", "(uid=nobody)"), vec![], ResultCode::SUCCESS);
    world.read(("", "o=x", "(uid=*x*)"), vec![person("xx")], ResultCode::SIZE_LIMIT_EXCEEDED);
    let saved = world.cache.saved(&world.settings, &proxy, &*world.clock);
    let restored = |world: &mut World, bytes: &[u8], proxy: &ProxySettings| {
        world.cache = Arc::new(Cache::new([2; 32]));
        world.cache.restore(bytes, &world.schema, (&world.settings, proxy), &*world.clock)
    };
    world.advance(3);
    assert_eq!(restored(&mut world, &saved, &proxy), Ok(4));
    assert_eq!(world.cache.size().1, 3);
    assert_eq!(world.answer("", "o=x", "(uid=ann)").map(|names| names.len()), Some(1));
    assert_eq!(world.answer("", "o=x", "(uid=nobody)"), Some(vec![]));
    assert!(matches!(world.find(&world.query("", "o=x", "(uid=*x*)")), CacheLookup::TooMany));
    assert_eq!(world.answer("", "o=x", "(sn=Smith)"), None, "it is for bob alone");
    assert_eq!(world.answer(bob.0, bob.1, bob.2).map(|names| names.len()), Some(1));
    world.advance(2);
    assert!(matches!(world.find(&world.query(bob.0, bob.1, bob.2)), CacheLookup::Refresh { .. }));
    // Ten seconds behind the answer nothing is known of nobody any more, and sixty behind it nothing at all.
    world.advance(5);
    assert_eq!(restored(&mut world, &saved, &proxy), Ok(3));
    world.advance(50);
    assert_eq!(restored(&mut world, &saved, &proxy), Ok(0));
    let other = ProxySettings { no_references: true, ..ProxySettings::default() };
    assert_eq!(restored(&mut world, &saved, &other), Err(NotRestored::Changed));
    world.settings.shared = true;
    assert_eq!(restored(&mut world, &saved, &proxy), Err(NotRestored::Changed));
    world.settings.shared = false;
    for length in 0..saved.len() {
        assert!(restored(&mut world, &saved[..length], &proxy).is_err(), "{length}");
        assert_eq!(world.cache.size().0, 0);
    }
    assert!(matches!(restored(&mut world, b"", &proxy), Err(NotRestored::Damaged(_))));
}

#[test]
fn a_query_is_forgotten_by_its_uuid_where_it_is() {
    let world = world();
    let base = |name: &str| world.schema.parse_dn(name).unwrap();
    let read = |uid: &str| {
        let filter = format!("(uid={uid})");
        world.read(("", "o=x", &filter), vec![person(uid)], ResultCode::SUCCESS);
    };
    let knows = |uid: &str| world.answer("", "o=x", &format!("(uid={uid})")).is_some();
    read("ann");
    read("bob");
    let ids: Vec<_> = world.cache.all().iter().map(|kept| kept.id).collect();
    assert_ne!(ids[0], ids[1]);
    assert!(ids.iter().all(|id| id[6] >> 4 == 8 && id[8] >> 6 == 2), "{ids:02x?}");
    // What is read again keeps its UUID.
    read("ann");
    assert!(world.cache.all().iter().any(|kept| kept.id == ids[0]));
    for (id, name, is_entry, expected) in [
        (&ids[0], "o=y", false, false),
        (&ids[0], "uid=bob,o=x", true, false),
        (&[7; 16], "o=x", false, false),
        (&ids[0], "uid=ann,o=x", true, true),
        (&ids[0], "o=x", false, false),
    ] {
        assert_eq!(world.cache.forget_query(id, &base(name), is_entry), expected, "{name}");
    }
    assert!(!knows("ann") && knows("bob"));
    assert!(world.cache.forget_query(&ids[1], &base("o=x"), false));
    assert!(!knows("bob"));
}

impl World {
    /// Keeps an answer that can be read again in the background, after five seconds.
    fn keep_refreshed(&self, filter: &str) {
        let again = AskAgain {
            asker: Asker {
                subject: Arc::default(),
                client: None,
                began: self.clock.monotonic(),
                is_root: false,
                root_acts: false,
            },
            identity: (Owner::Anonymous, None),
            projection: self.projection(filter, &["cn"]),
            base: "o=x".to_owned(),
            controls: RequestControls::default(),
        };
        let query = Query { again: Some(Arc::new(again)), ..self.query("", "o=x", filter) };
        let dn = self.schema.parse_dn("uid=ann,o=x").unwrap();
        let entries = vec![CachedEntry { dn, message: person("ann").into() }];
        let times = Times { ttl: seconds(60), refresh: Some(seconds(5)) };
        let facts = (&self.settings, self.clock.monotonic(), self.cache.changes());
        assert!(self.cache.insert(query, Answer::Entries(entries.into()), times, facts));
    }

    /// What is to be read again: the filters.
    fn due(&self) -> Vec<String> {
        let mut due = Vec::new();
        while let Some((query, _)) = self.cache.next_refresh() {
            due.push(query.sent.to_string());
        }
        due
    }
}

/// What a search finds when its time has come is read again, and nobody waits for that; what no search has found for longer is read by
/// the search that finds it.
#[test]
fn answers_are_read_again_in_the_background() {
    let world = world();
    let (whole, part) = ("(sn=Smi*)", "(sn=Smith)");
    let found = |filter: &str| match world.find(&world.query("", "o=x", filter)) {
        CacheLookup::Entries { .. } => "entries",
        CacheLookup::Refresh { .. } => "refresh",
        CacheLookup::Nothing => "nothing",
        CacheLookup::TooMany => "too many",
    };
    world.keep_refreshed(whole);
    for (advance, searches, due) in [
        (4, &[(whole, "entries")][..], &[][..]),
        (1, &[(part, "entries"), (whole, "entries"), (whole, "entries")], &[whole]),
        // Nothing has come of it.
        (5, &[(whole, "entries")], &[whole]),
        (7, &[(part, "nothing"), (whole, "refresh"), (whole, "entries"), (part, "entries")], &[]),
    ] {
        world.advance(advance);
        for (filter, expected) in searches {
            assert_eq!(found(filter), *expected, "{advance} {filter}");
        }
        assert_eq!(world.due(), due, "{advance}");
    }
}

/// A check has what was used read again, and no more at a time than may be.
#[test]
fn a_check_has_what_is_used_read_again() {
    let world = world();
    let check = || world.cache.check(&world.settings, world.clock.monotonic());
    let filters: Vec<String> = (0..10).map(|number| format!("(sn=s{number})")).collect();
    filters.iter().for_each(|filter| world.keep_refreshed(filter));
    for filter in filters.iter().skip(1) {
        assert!(matches!(world.find(&world.query("", "o=x", filter)), CacheLookup::Entries { .. }));
    }
    check();
    assert!(world.due().is_empty());
    world.advance(5);
    check();
    let mut turns = Vec::new();
    let begin = |turns: &mut Vec<_>| {
        while let Some(turn) = world.cache.next_refresh() {
            turns.push(turn);
        }
    };
    begin(&mut turns);
    assert_eq!(turns.len(), 8);
    turns.pop();
    begin(&mut turns);
    assert_eq!(turns.len(), 8, "nine of ten were used, and eight are under way");
    // What has gone meanwhile is not asked for.
    world.advance(6);
    check();
    world.cache.forget(&NormalDn::root());
    turns.clear();
    assert!(world.due().is_empty());
}

/// What the remote server has no more is not answered until it would have expired.
#[test]
fn an_answer_that_is_nothing_takes_the_one_before_with_it() {
    let world = world();
    let smith = ("", "o=x", "(sn=Smi*)");
    let mut settings = world.settings.clone();
    settings.templates[1].negative_ttl = Duration::ZERO;
    let world = World { settings, ..world };
    for (messages, end, expected) in [
        (vec![], ResultCode::SUCCESS, None),
        (vec![], ResultCode::NO_SUCH_OBJECT, None),
        (vec![], ResultCode::OTHER, Some(1)),
        (vec![person("ann"), person("bob")], ResultCode::SUCCESS, Some(2)),
    ] {
        world.read(smith, vec![person("ann")], ResultCode::SUCCESS);
        world.read(smith, messages, end);
        assert_eq!(world.answer("", "o=x", "(sn=Smi*)").map(|names| names.len()), expected, "{end:?}");
    }
}
