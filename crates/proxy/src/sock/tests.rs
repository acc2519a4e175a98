//! Programs that answer, hang, lie and are not there.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larix_engine::time::{ManualClock, Monotonic};
use larix_proto::LdapResult;
use zeroize::Zeroizing;

use super::calls::{Call, CallState, Calls, ProgramAnswer, Sink};

/// How long a program may take that does not answer, and how long one that does: nothing is to depend on how busy the machine is.
const PATIENCE: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(180);

/// Calls to a program at this path that may take so long, and what the log was told.
fn calls(path: &Path, patience: Duration) -> (Calls, Arc<Mutex<Vec<String>>>) {
    let told = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&told);
    let tell = Arc::new(move |text: &str| log.lock().unwrap().push(text.to_owned()));
    (Calls::new((path, false), Arc::new(ManualClock::default()), tell, patience), told)
}

/// A request, and where its result comes.
fn ask(calls: &Calls) -> (Arc<CallState>, Receiver<LdapResult>) {
    ask_with(calls, b"DELETE\nmsgid: 1\ndn: cn=a\n\n".to_vec())
}

fn ask_with(calls: &Calls, text: Vec<u8>) -> (Arc<CallState>, Receiver<LdapResult>) {
    let (sender, results) = mpsc::channel();
    let state = Arc::<CallState>::default();
    let done = Box::new(move |answer| match answer {
        ProgramAnswer::Result(result) | ProgramAnswer::Lost(result) => {
            sender.send(result).unwrap_or_default();
        }
        ProgramAnswer::Continue => panic!("nothing stands behind it"),
    });
    calls.submit(Call {
        text: Zeroizing::new(text),
        began: Monotonic(0),
        sink: Sink::Once(done),
        state: Arc::clone(&state),
    });
    (state, results)
}

/// Reads a request up to its empty line.
fn read(stream: &UnixStream) -> String {
    let mut text = String::new();
    let mut lines = BufReader::new(stream);
    while lines.read_line(&mut text).unwrap() > 1 {}
    text
}

#[test]
fn a_program_answers_or_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers");
    let (calls, told) = calls(&path, LONG);
    let told = || std::mem::take(&mut *told.lock().unwrap()).join("; ");
    let result = |calls: &Calls| {
        let result = ask(calls).1.recv_timeout(LONG).unwrap();
        format!("{} {}", result.code.0, result.diagnostic)
    };
    // Nobody is there, which is said once.
    for _ in 0..2 {
        assert_eq!(result(&calls), "52 the program behind the socket cannot be reached");
    }
    assert_eq!(told().matches("No such file").count(), 1);

    let listener = UnixListener::bind(&path).unwrap();
    // Each: what the program answers before it closes, what the client gets, and what the log is told.
    let unusable = "80 the answer of the program behind the socket cannot be used";
    for (answer, expected, said) in [
        ("RESULT\ncode: 32\ninfo: not here\n", "32 not here", "answers again"),
        ("RESULT\ncode: 0\n\n", "0 ", ""),
        ("", unusable, "ended before the result"),
        ("dn: cn=a\ncn: a\n\nRESULT\n", unusable, "was asked for none"),
        ("CONTINUE\n\n", unusable, "CONTINUE"),
        ("\u{1}\u{2}: \n\n", unusable, "no LDIF"),
    ] {
        let program = std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let request = read(&stream);
                stream.write_all(answer.as_bytes()).unwrap();
                request
            });
            assert_eq!(result(&calls), expected);
            served.join().unwrap()
        });
        assert_eq!(program, "DELETE\nmsgid: 1\ndn: cn=a\n\n");
        let said_now = told();
        assert!(said_now.contains(said) && (said.is_empty() == said_now.is_empty()), "{answer}: {said_now}");
    }
}

#[test]
fn a_program_that_hangs_costs_its_callers_a_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hangs");
    let listener = UnixListener::bind(&path).unwrap();
    let (calls, told) = calls(&path, PATIENCE);
    // Nobody takes connections; more requests than there are threads.
    let all: Vec<_> = (0..40).map(|_| ask(&calls).1).collect();
    for results in all {
        let result = results.recv_timeout(LONG).unwrap();
        assert_eq!(result.code.0, 52, "{}", result.diagnostic);
    }
    assert!(told.lock().unwrap().iter().any(|text| text.contains("no answer within 200ms")));

    // One that is given up ends at once, whatever the program does.
    let (calls, _) = self::calls(&path, Duration::from_secs(600));
    drop(listener);
    std::fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let (state, results) = ask(&calls);
    let (stream, _) = listener.accept().unwrap();
    read(&stream);
    state.give_up();
    results.recv_timeout(LONG).unwrap();
}

#[test]
fn requests_that_wait_have_a_limit_of_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waits");
    let listener = UnixListener::bind(&path).unwrap();
    let patience = Duration::from_secs(600);
    let calls = Calls::new(
        (path.as_path(), false),
        Arc::new(ManualClock::default()),
        Arc::new(|_: &str| {}),
        patience,
    );
    // Nobody takes connections: as many as there are threads rest there, and what comes behind them waits.
    let small: Vec<_> = (0..16).map(|_| ask(&calls).1).collect();
    let [one, two, three] = [(); 3].map(|()| ask_with(&calls, vec![b'a'; 30 << 20]));
    assert_eq!(three.1.recv_timeout(LONG).unwrap().code.0, 51);
    assert!(one.1.try_recv().is_err() && two.1.try_recv().is_err(), "there is room for two");
    // What waits no more does not count, and a long one has its turn where no other waits.
    one.0.give_up();
    two.0.give_up();
    drop(listener);
    for results in small.iter().chain([&one.1, &two.1]) {
        results.recv_timeout(LONG).unwrap();
    }
    let long = ask_with(&calls, vec![b'a'; 65 << 20]).1.recv_timeout(LONG).unwrap();
    assert_eq!(long.code.0, 52, "{}", long.diagnostic);
}
