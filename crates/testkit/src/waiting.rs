//! Waiting for what other threads and processes bring about. A test that fails ends, and says what it has waited for.

#![allow(clippy::disallowed_methods, reason = "waits for other processes")]

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long something is waited for: so long that a busy machine does not make a test fail.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(10);

/// Waits until something is so.
///
/// # Panics
/// It is not so after three minutes.
#[track_caller]
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::park_timeout(LOOK);
    }
}

/// Waits until there is something, and gives it.
///
/// # Panics
/// There is nothing after three minutes.
#[track_caller]
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("{what}"))
}

/// The next connection that a listener gets.
///
/// # Panics
/// Nobody connects for three minutes.
#[track_caller]
pub fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a listener that does not wait");
    let stream = until_some("a connection", || match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("no connection: {error}"),
    });
    listener.set_nonblocking(false).expect("a listener that waits");
    stream.set_nonblocking(false).expect("a connection that waits");
    stream
}

/// Sets a flag when it is dropped, also behind a panic. Threads of a scope that work until the flag is set end by that: without it
/// they go on for ever where the rest of the scope has failed, and the test neither ends nor reports.
#[derive(Debug)]
pub struct SetAtEnd<'f>(pub &'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_brings_about_is_waited_for() {
        let (flag, mut looks) = (AtomicBool::new(false), 0);
        let number = thread::scope(|scope| {
            scope.spawn(|| drop(SetAtEnd(&flag)));
            until("the flag is set", || flag.load(Ordering::Acquire));
            until_some("a third look", || {
                looks += 1;
                (looks == 3).then_some(7)
            })
        });
        assert_eq!((number, looks), (7, 3));
    }

    #[test]
    fn a_scope_that_fails_ends_its_threads() {
        let flag = AtomicBool::new(false);
        let failed = std::panic::catch_unwind(|| {
            thread::scope(|scope| {
                let _end = SetAtEnd(&flag);
                scope.spawn(|| until("the flag is set", || flag.load(Ordering::Acquire)));
                panic!("the rest of the scope");
            });
        });
        assert!(failed.is_err());
    }
}
