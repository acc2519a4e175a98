//! The signals that end a program, for commands that have something to put right first.

use std::io::{self, Write as _};
use std::process;
use std::thread::{self, JoinHandle};

use larix_load::peer::Guard;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What `kill`, a terminal's Ctrl-C and Ctrl-\ and its closing send.
pub(crate) struct EndingSignals {
    runtime: tokio::runtime::Runtime,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
}

impl EndingSignals {
    /// From now on they do not end the process by themselves.
    ///
    /// # Errors
    /// No event loop or no handler to be had.
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (interrupt, terminate, hangup, quit) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::quit())?,
            )
        };
        Ok(Self { runtime, interrupt, terminate, hangup, quit })
    }

    /// On a thread of its own: awaits one of them, does `last`, and ends the process with the status by which a shell tells
    /// of the signal (128 and its number).
    ///
    /// # Errors
    /// No thread to be had.
    pub(crate) fn end_after(self, last: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        let Self { runtime, mut interrupt, mut terminate, mut hangup, mut quit } = self;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let kind = runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                    _ = hangup.recv() => SignalKind::hangup(),
                    _ = quit.recv() => SignalKind::quit(),
                }
            });
            last();
            process::exit(128 + kind.as_raw_value());
        })
    }
}

/// Says what a signal broke off. A reader of standard error that has gone, with the same Ctrl-C say, must not end the thread by a panic:
/// nothing would end the process then.
pub(crate) fn say_farewell(text: &str) {
    let _ = writeln!(io::stderr(), "\n{text}");
}

/// Runs something that starts servers and makes a folder, both known to the guard: they are gone when this returns, and when
/// a signal ends the process. `farewell` is what it says then.
///
/// # Errors
/// Those of `run`; no handler or no thread to be had.
pub(crate) fn guarded<T>(
    farewell: &'static str,
    run: impl FnOnce(&Guard) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let guard = Guard::default();
    let ending = guard.clone();
    EndingSignals::new()?.end_after(move || {
        say_farewell(farewell);
        ending.end();
    })?;
    let done = run(&guard);
    if guard.has_ended() {
        // Its thread puts things right and ends the process; what failed here failed through it.
        loop {
            thread::park();
        }
    }
    guard.end();
    done
}
