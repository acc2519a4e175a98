#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::*;
use crate::batch::{gather_requests, send_gathered};
use crate::job::{Feed, FeedEnd, FeedItem, Numbered, Outcome, Owner, Sink};
use crate::settings::Kind;

/// Says which requests it got together.
struct Toy {
    sent: Sender<Vec<u64>>,
    /// Brings another one while the first is sent.
    brings: Option<Arc<OnceLock<Arc<Shared>>>>,
}

impl RequestCarrier for Toy {
    fn carry_out(&mut self, _: Vec<Command>) {}

    fn send_at_once(&mut self, commands: Vec<Command>) -> Vec<Command> {
        let numbers = commands.iter().filter_map(|command| match command {
            Command::Submit(number, _) => Some(*number),
            _ => None,
        });
        self.sent.send(numbers.collect()).unwrap();
        if let Some(shared) = self.brings.take() {
            let brought = thread::spawn(move || shared.get().unwrap().submit(job()).is_ok());
            assert!(brought.join().unwrap());
        }
        Vec::new()
    }

    fn happened(&mut self, _: &[epoll::Event], _: &mut [u8]) {}

    fn falls_asleep(&mut self) -> Option<Duration> {
        None
    }

    fn is_due_earlier(&mut self) -> bool {
        false
    }

    fn give_all_up(self: Box<Self>) {}

    fn begin_anew(self: Box<Self>) -> (Box<dyn RequestCarrier>, Vec<Numbered>) {
        (self, Vec::new())
    }
}

pub(crate) fn job() -> Job {
    let sink = Sink::Once(Box::new(|_| ()));
    Job { is_repeatable: true, ..Job::new(Owner::Anonymous, Kind::Search, Vec::new().into(), sink) }
}

fn begun(brings: Option<Arc<OnceLock<Arc<Shared>>>>) -> (Arc<Shared>, Receiver<Vec<u64>>) {
    let (sent, come) = channel();
    let shared = Arc::new(Shared::new(&[]).unwrap());
    shared.begin(Box::new(Toy { sent, brings }));
    (shared, come)
}

fn submitted(shared: &Arc<Shared>, count: usize) -> Vec<u64> {
    (0..count).map(|_| shared.submit(job()).unwrap()).collect()
}

/// Clients that are bound by another name since, or that went before a sweep, do not count.
#[test]
fn bound_clients_are_counted_by_name() {
    let shared = Shared::new(&[]).unwrap();
    let [first, second] = [(); 2].map(|()| -> Arc<dyn Any + Send + Sync> { Arc::new(0_u8) });
    let note = |client: &Arc<dyn Any + Send + Sync>, name| {
        shared.note_bound(Arc::downgrade(client), NormalDn::from_normal(name), None)
    };
    let a = "cn=a";
    assert_eq!([note(&first, a), note(&second, a), note(&second, a)], [1, 2, 2]);
    assert_eq!([note(&first, "cn=b"), note(&second, a)], [1, 1]);
    drop(first);
    assert_eq!(shared.sweep_bound(), HashMap::from([(NormalDn::from_normal(a), 1)]));
    assert_eq!(note(&second, a), 1);
}

#[test]
fn requests_of_one_turn_of_a_loop_go_together() {
    let (shared, come) = begun(None);
    // What a thread gathers is its own.
    let test = thread::spawn(move || {
        assert_eq!((submitted(&shared, 1), come.try_recv()), (vec![1], Ok(vec![1])), "no loop");
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        gather_requests(Box::new(move || counted.set(counted.get() + 1)));
        for turn in 1..3 {
            let numbers = submitted(&shared, 3);
            assert!(come.try_recv().is_err());
            send_gathered();
            assert_eq!((come.try_recv(), calls.get()), (Ok(numbers), turn));
            send_gathered();
            assert!(come.try_recv().is_err(), "nothing waits");
        }
        let many = submitted(&shared, 33);
        assert_eq!(come.try_recv(), Ok(many), "too many wait");
        send_gathered();
        assert!(come.try_recv().is_err());
    });
    test.join().unwrap();
}

#[test]
fn what_is_brought_meanwhile_is_sent_by_who_is_there() {
    let place = Arc::new(OnceLock::new());
    let (shared, come) = begun(Some(Arc::clone(&place)));
    assert!(place.set(Arc::clone(&shared)).is_ok());
    assert_eq!(submitted(&shared, 1), vec![1]);
    assert_eq!((come.try_recv(), come.try_recv()), (Ok(vec![1]), Ok(vec![2])));
}

/// The caller may hold a lock that the end of its request takes.
#[test]
fn a_request_behind_the_end_goes_back_to_who_brings_it() {
    let (shared, _come) = begun(None);
    shared.end();
    let (ended, results) = channel();
    let done = move |outcome: Outcome| ended.send((outcome.result.code, outcome.is_unsent)).unwrap();
    let Err(not_taken) = shared.submit(Job { sink: Sink::Once(Box::new(done)), ..job() }) else {
        panic!("nobody carries it out")
    };
    assert!(results.try_recv().is_err(), "it has ended within submit()");
    assert_eq!(shared.jobs.load(Ordering::Relaxed), 0);
    not_taken.end();
    assert_eq!(results.try_recv(), Ok((ResultCode::UNAVAILABLE, true)));
}

#[test]
fn a_search_ends_whose_request_is_lost() {
    let feed = Arc::<Feed>::default();
    drop(Job { sink: Sink::Feed(FeedEnd(Arc::clone(&feed))), ..job() });
    let (FeedItem::End((result, _)), _) = feed.take() else { panic!("it waits") };
    assert_eq!(result.code, ResultCode::UNAVAILABLE);
    // One that has its result gets no other.
    let feed = Arc::<Feed>::default();
    Sink::Feed(FeedEnd(Arc::clone(&feed))).end(LdapResult::success());
    let (FeedItem::End((result, _)), _) = feed.take() else { panic!("it waits") };
    assert_eq!(result.code, ResultCode::SUCCESS);
    assert!(matches!(feed.take(), (FeedItem::Nothing, _)));
}

/// Who am I is an extended operation, and may be asked once more.
#[test]
fn a_question_is_no_change() {
    for (kind, is_repeatable, is_change) in [
        (Kind::Extended, false, true),
        (Kind::Extended, true, false),
        (Kind::Delete, false, true),
        (Kind::Compare, true, false),
        (Kind::Bind, false, false),
    ] {
        assert_eq!(Job { kind, is_repeatable, ..job() }.is_change(), is_change, "{kind:?}");
    }
}
