//! What one request costs the server's threads and its memory, read from /proc: processor time, so that other programs of the
//! machine do not count.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, client as requests};
use larix_testkit::{Server, until_some};
use larix_tests::raw::{Answer, Raw, bind};

use super::request::{Identity, Shape};
use super::{ADMIN, SUFFIX, connect, one_entry};

/// What a request may cost.
pub(super) struct Budget {
    /// Processor time of an event loop during which it serves nobody else.
    pub(super) turn: Duration,
    /// Processor time of the database's writer.
    pub(super) writer: Duration,
    /// Bytes of memory for each byte of an anonymous client's request.
    pub(super) memory_factor: u64,
    /// The same for one with a name: what it may write has keys, records and a log.
    pub(super) user_memory_factor: u64,
    /// Bytes of memory whatever the request's size: buffers of the connection, pages that an allocator keeps, answers that
    /// are waiting.
    pub(super) memory_floor: u64,
}

pub(super) const BUDGET: Budget = Budget {
    turn: Duration::from_millis(5),
    writer: Duration::from_millis(20),
    memory_factor: 4,
    user_memory_factor: 32,
    memory_floor: 4 << 20,
};

/// What a request has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) identity: Identity,
    pub(super) request: u64,
    pub(super) answer: u64,
    pub(super) code: Option<u32>,
    /// The longest time without a turn for others; all of it where that is within the budget.
    pub(super) turn: Duration,
    pub(super) writer: Duration,
    /// Threads of low priority, the password pool and the rest.
    pub(super) aside: Duration,
    pub(super) memory: u64,
}

impl Cost {
    /// How much of the budget is spent, of what is spent most; 1 is all of it.
    pub(super) fn score(&self) -> f64 {
        let factor = match self.identity {
            Identity::Anonymous => BUDGET.memory_factor,
            Identity::User => BUDGET.user_memory_factor,
        };
        // What is answered is there until it is sent, and has limits of its own.
        let memory = factor * self.request + BUDGET.memory_floor + self.answer;
        let parts = [
            self.turn.as_secs_f64() / BUDGET.turn.as_secs_f64(),
            self.writer.as_secs_f64() / BUDGET.writer.as_secs_f64(),
            self.memory as f64 / memory as f64,
        ];
        parts.into_iter().fold(0.0, f64::max)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, answer, code, turn, writer, aside, memory, .. } = self;
        let code = code.map_or_else(|| "closed".to_owned(), |code| format!("code {code}"));
        write!(
            f,
            "{:.2} of the budget: turn {turn:.1?}, writer {writer:.1?}, aside {aside:.1?}, memory {} KB, \
             request {request} bytes, answer {answer} bytes, {code}",
            self.score(),
            memory >> 10
        )
    }
}

/// Processor time by the thread's name.
fn threads(process: u32) -> BTreeMap<String, u64> {
    let mut times = BTreeMap::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return times };
    for task in tasks.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        *times.entry(name.trim().to_owned()).or_default() += on_processor(&task.path().join("schedstat"));
    }
    times
}

/// The same, when the loop and the writer are among them: a thread gives itself its name when it first runs, and the server
/// may answer before its writer has run. Under other names everything would cost nothing.
fn named_threads(process: u32) -> BTreeMap<String, u64> {
    until_some("the loop and the writer have their names", || {
        let times = threads(process);
        let are_named = times.keys().any(|name| name.starts_with("worker-")) && times.contains_key("writer");
        are_named.then_some(times)
    })
}

/// The first number of a schedstat file: nanoseconds on a processor.
fn on_processor(file: &std::path::Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A number of KB from /proc/PID/status, as bytes.
fn status(process: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap_or(0) << 10
}

/// Resident bytes of mapped files, as on a disk so on a file system in memory.
fn mapped_files(process: u32) -> u64 {
    status(process, "RssFile:") + status(process, "RssShmem:")
}

/// The event loop's file in /proc; the server was started with one processor, and so with one loop.
fn event_loop(process: u32) -> Option<std::path::PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    tasks
        .flatten()
        .find(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("worker-"))
        })
        .map(|task| task.path().join("schedstat"))
}

fn client(server: &Server, identity: Identity) -> Raw {
    let mut client = connect(server);
    if identity == Identity::User {
        let bind = bind(1, &format!("cn=user1,{SUFFIX}"), "right");
        if client.ask(&bind).unwrap().code != 0 {
            // The user has changed the password by a request that was measured before.
            set_password(server);
            let answer = client.ask(&bind).unwrap();
            assert_eq!(answer.code, 0, "{answer:?}");
        }
    }
    client
}

fn set_password(server: &Server) {
    let mut administrator = connect(server);
    assert_eq!(administrator.ask(&bind(1, ADMIN, "secret")).unwrap().code, 0);
    let attribute = ClientAttribute { description: "userPassword", values: &["right"] };
    let change = ClientChange { operation: ModifyOperation::Replace, attribute };
    let mut modify = Vec::new();
    requests::modify(&mut modify, MessageId(2), &format!("cn=user1,{SUFFIX}"), &[change], &[]);
    assert_eq!(administrator.ask(&modify).unwrap().code, 0);
}

/// Sends all messages of the request, and waits for the last answer.
fn ask(client: &mut Raw, request: &[u8], shape: &Shape) -> Option<Answer> {
    let mut last = client.ask(request);
    for _ in 1..shape.messages() {
        if last.is_some() {
            last = client.answer();
        }
    }
    last
}

/// Sends the request and measures. Where its loop was busy for longer than a turn may take, it is sent again beside a client
/// that asks all the time, and the longest time without an answer for that one counts.
pub(super) fn measure(server: &Server, shape: &Shape) -> Cost {
    let process = server.process_id();
    // While somebody else is connected, the writer makes the changes: a client that is alone on its loop has them made there.
    let mut other = connect(server);
    other.ask(&one_entry(1));
    let mut client = client(server, shape.identity);
    let request = shape.bytes(2);
    let _ = std::fs::write(format!("/proc/{process}/clear_refs"), "5");
    let (before, resident) = (named_threads(process), status(process, "VmRSS:"));
    assert!(resident > 0, "/proc says nothing about {process}");
    let mapped = mapped_files(process);
    let begin = client.received;
    let answer = ask(&mut client, &request, shape);
    // The loop has come to rest when it has answered somebody else.
    other.ask(&one_entry(2));
    let after = threads(process);
    let spent = |want: fn(&str) -> bool| {
        let all = after.iter().filter(|(name, _)| want(name));
        let sum = all.map(|(name, time)| time.saturating_sub(before.get(name).copied().unwrap_or(0))).sum();
        Duration::from_nanos(sum)
    };
    if std::env::var_os("COST_VERBOSE").is_some() {
        println!("{answer:?}, {} KB of files mapped", mapped_files(process).saturating_sub(mapped) >> 10);
    }
    let mut cost = Cost {
        identity: shape.identity,
        request: request.len() as u64,
        answer: (client.received - begin) as u64,
        code: answer.map(|answer| answer.code),
        turn: spent(|name| name.starts_with("worker-")),
        writer: spent(|name| name == "writer"),
        aside: spent(|name| !name.starts_with("worker-") && name != "writer"),
        // The store's pages are the kernel's cache: it may take them back, and no other request is refused for them.
        memory: status(process, "VmHWM:")
            .saturating_sub(resident)
            .saturating_sub(mapped_files(process).saturating_sub(mapped)),
    };
    if cost.turn > BUDGET.turn {
        // A change that cannot be made a second time says nothing about the first.
        let turns = (0..3).map(|_| longest_turn(server, shape)).filter(|(_, code)| *code == cost.code);
        cost.turn = turns.map(|(turn, _)| turn).min().unwrap_or(cost.turn).min(cost.turn);
    }
    cost
}

/// The most processor time that the loop took between two answers to another client.
fn longest_turn(server: &Server, shape: &Shape) -> (Duration, Option<u32>) {
    let file = event_loop(server.process_id()).expect("an event loop");
    let (mut client, request) = (client(server, shape.identity), shape.bytes(2));
    let (done, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let asking = std::sync::Barrier::new(2);
    let code = std::thread::scope(|scope| {
        let (asking, done_here, longest_here) = (&asking, &done, &longest);
        scope.spawn(move || {
            let mut other = connect(server);
            other.ask(&one_entry(1));
            asking.wait();
            let mut last = on_processor(&file);
            // Once more after the answer: its own turn may be the longest.
            let mut is_over = false;
            while !is_over {
                is_over = done_here.load(Ordering::Acquire);
                other.ask(&one_entry(1));
                let now = on_processor(&file);
                longest_here.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
                last = now;
            }
        });
        asking.wait();
        let answer = ask(&mut client, &request, shape);
        done.store(true, Ordering::Release);
        answer.map(|answer| answer.code)
    });
    (Duration::from_nanos(longest.into_inner()), code)
}
