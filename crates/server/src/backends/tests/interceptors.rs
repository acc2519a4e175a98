//! Overlays in front of a backend, and in front of all: what they pass on, alter, answer, refuse and answer later.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use larix_proto::LdapResult;
use larix_schema::NormalDn;

use super::*;

/// What an interceptor does with requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Deed {
    Pass,
    /// It asks for `cn=fail,o=toy` in the place of what was asked for.
    Alter,
    Answer,
    /// It answers compares when the test says so.
    AnswerLater,
}

struct ToyInterceptor {
    name: &'static str,
    deed: Deed,
    requests: Operations,
    calls: AtomicUsize,
    waiting: Mutex<Option<Done<End>>>,
}

impl std::fmt::Debug for ToyInterceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const ALL: Operations =
    Operations::SEARCH.and(Operations::COMPARE).and(Operations::BIND).and(Operations::UPDATE);

fn interceptor(name: &'static str, deed: Deed, requests: Operations) -> Arc<ToyInterceptor> {
    let (calls, waiting) = (AtomicUsize::new(0), Mutex::new(None));
    Arc::new(ToyInterceptor { name, deed, requests, calls, waiting })
}

impl ToyInterceptor {
    fn called(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

pub(super) fn own() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "own")
}

fn other() -> NormalDn {
    NormalDn::from_normal("cn=fail,o=toy")
}

impl Interceptor for ToyInterceptor {
    fn requests(&self) -> Operations {
        self.requests
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: larix_backend::Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        self.called();
        match self.deed {
            Deed::Alter => next.open(context, larix_backend::Search { base: &other(), ..search }),
            Deed::Answer => Ok(Box::new(AnsweredSearch { messages: Vec::new(), result: own(), entries: 0 })),
            Deed::Pass | Deed::AnswerLater => next.open(context, search),
        }
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        self.called();
        match self.deed {
            Deed::Alter => next.compare(context, &Compare { dn: &other(), ..*compare }, later),
            Deed::Answer => Reply::Now((own(), Vec::new())),
            Deed::AnswerLater => {
                *self.waiting.lock().unwrap() = Some(later());
                Reply::Later(PendingAnswer::default())
            }
            Deed::Pass => next.compare(context, compare, later),
        }
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        self.called();
        match self.deed {
            Deed::Answer => Reply::Now(own().into()),
            _ => next.bind(context, bind, later),
        }
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        self.called();
        if self.deed == Deed::Answer {
            done(own().into());
            return PendingAnswer::default();
        }
        next.update(context, changes, done)
    }
}

/// With these in front of the toy, and of all.
fn bench(database: &[&Arc<ToyInterceptor>], all: &[&Arc<ToyInterceptor>]) -> Bench {
    let stack = |interceptors: &[&Arc<ToyInterceptor>]| {
        Stack::new(
            interceptors
                .iter()
                .map(|front| -> Arc<dyn Interceptor> { Arc::clone(front) as Arc<dyn Interceptor> })
                .collect(),
        )
    };
    Bench::behind("o=toy", false, stack(database), stack(all))
}

/// Codes and texts of results.
fn texts(bytes: &[u8]) -> Vec<String> {
    let text = |message: &[u8]| {
        let message = Response::decode_message(message).unwrap();
        let result = message.response.result().unwrap().1;
        format!("{} {}", result.code.0, result.diagnostic)
    };
    frames(bytes, 1 << 20).map(text).collect()
}

pub(super) fn ask(client: &mut Client, request: &[u8]) -> Vec<String> {
    client.ask(request);
    while client.pending() > 0 {
        client.event();
    }
    texts(&std::mem::take(&mut client.out))
}

#[test]
fn late_answers_come_through_those_in_front() {
    let inner = interceptor("inner", Deed::Pass, ALL);
    let outer = interceptor("outer", Deed::Pass, Operations::NONE);
    let all = interceptor("all", Deed::Pass, ALL);
    let bench = bench(&[&outer, &inner], &[&all]);
    let mut client = bench.bound();
    let before = (inner.calls(), all.calls());
    assert_eq!(before, (0, 1), "the bind of the administrator is none of the toy's");
    assert_eq!(ask(&mut client, &search(1, "cn=fail,o=toy", 0)), ["52 the toy is broken"]);
    assert_eq!(ask(&mut client, &compare(2, "cn=fail,o=toy")), ["52 the toy is broken"]);
    for request in [search(3, "cn=later,o=toy", 0), compare(3, "cn=later,o=toy"), delete(3, "cn=later,o=toy")]
    {
        client.ask(&request);
        answer(&bench.toy, ResultCode::BUSY);
        client.event();
        assert_eq!(texts(&std::mem::take(&mut client.out)), ["51 "]);
    }
    // What is not the toy's has only what is in front of all.
    assert_eq!(ask(&mut client, &compare(4, "o=nowhere")), ["32 "]);
    assert_eq!((inner.calls(), outer.calls(), all.calls()), (5, 0, 7));
}

#[test]
fn what_does_not_care_is_not_called() {
    for kind in [Operations::SEARCH, Operations::COMPARE, Operations::UPDATE] {
        let one = interceptor("one", Deed::Answer, kind);
        let bench = bench(&[&one], &[]);
        let mut client = bench.bound();
        for (other, request) in [
            (Operations::SEARCH, search(1, "cn=later,o=toy", 0)),
            (Operations::COMPARE, compare(1, "cn=later,o=toy")),
            (Operations::UPDATE, delete(1, "cn=later,o=toy")),
        ] {
            let before = one.calls();
            client.ask(&request);
            if other != kind {
                answer(&bench.toy, ResultCode::SUCCESS);
            }
            let expected = if other == kind { "51 own" } else { "0 " };
            assert_eq!(ask(&mut client, &[]), [expected], "{kind:?} {other:?}");
            assert_eq!(one.calls() - before, usize::from(other == kind), "{kind:?} {other:?}");
        }
    }
}

#[test]
fn requests_are_altered_and_answered() {
    for (deed, expected) in [(Deed::Alter, "52 the toy is broken"), (Deed::Answer, "51 own")] {
        let outer = interceptor("outer", deed, ALL);
        let inner = interceptor("inner", Deed::Pass, ALL);
        for is_global in [false, true] {
            let bench = if is_global { bench(&[&inner], &[&outer]) } else { bench(&[&outer, &inner], &[]) };
            let mut client = bench.connect();
            let before = inner.calls();
            assert_eq!(ask(&mut client, &search(1, "cn=a,o=toy", 0)), [expected]);
            assert_eq!(ask(&mut client, &compare(2, "cn=a,o=toy")), [expected]);
            assert_eq!(inner.calls() - before, if deed == Deed::Alter { 2 } else { 0 }, "{is_global}");
        }
        if deed == Deed::Answer {
            let bench = bench(&[&outer], &[]);
            let mut client = bench.connect();
            assert_eq!(ask(&mut client, &bind(3, "cn=a,o=toy")), [expected]);
        }
    }
}

#[test]
fn requests_are_answered_later() {
    let one = interceptor("one", Deed::AnswerLater, Operations::COMPARE);
    let bench = bench(&[&one], &[]);
    let mut client = bench.connect();
    client.ask(&compare(1, "cn=a,o=toy"));
    client.ask(&who_am_i(2));
    assert_eq!(client.answers(), ["2 0"]);
    let done = one.waiting.lock().unwrap().take().unwrap();
    on_other_thread(move || done((own(), Vec::new())));
    assert_eq!(ask(&mut client, &[]), ["51 own"]);
}

#[test]
fn overlays_over_glue_see_what_is_glued_below() {
    let overlay = interceptor("over", Deed::Pass, ALL);
    let bench = Bench::over_glue(Stack::new(vec![Arc::clone(&overlay) as _]));
    let mut client = bench.bound();
    // The uppermost database's own requests are none of it: there the overlay stands in front of that database.
    client.ask(&add_top(1));
    client.event();
    assert_eq!((client.answers(), overlay.calls()), (vec!["1 0".to_owned()], 0));
    // A search passes it once, and goes on below.
    for (id, base, first) in [(2, SUFFIX, Some(SUFFIX)), (3, "ou=toy,dc=example,dc=com", None)] {
        let before = overlay.calls();
        client.ask(&search(id, base, 0));
        assert_eq!(client.answers(), first.map(|dn| format!("{id} {dn}")).into_iter().collect::<Vec<_>>());
        let PendingRequest::Search(feed) = bench.toy.next() else { panic!("no search") };
        on_other_thread(move || {
            feed.entry("ou=toy,dc=example,dc=com");
            feed.end(ResultCode::SUCCESS);
        });
        client.event();
        let expected = [format!("{id} ou=toy,dc=example,dc=com"), format!("{id} 0")];
        assert_eq!((client.answers(), overlay.calls()), (expected.to_vec(), before + 1), "{base}");
    }
    // Compares go to the database of the entry.
    let before = overlay.calls();
    client.ask(&compare(4, "cn=never,ou=toy,dc=example,dc=com"));
    assert!(matches!(bench.toy.next(), PendingRequest::Compare(_)));
    assert_eq!(overlay.calls(), before);
}
