//! Overlays beside operations: a thread for each overlay of a database that sees committed changes or has ticks. What it waits for,
//! a file or another server, delays nothing else.
//!
//! A thread outlives changes of the configuration that keep its overlay: it goes on with the one that was built anew. Who is answered
//! that an overlay is new, or configured otherwise, may make changes at once: the overlay is shown all of them, as it is configured then.
//!
//! Of a database in an engine that several servers share, each server has the threads, and those of the one that writes work. The next
//! one goes on from the places that lie in the engine.

mod host;
#[cfg(test)]
mod tests;
mod thread;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use larix_engine::overlay::committed::ChangeOrigin;
use larix_engine::write::WriteOutcome;
use larix_engine::{ServedDatabase, Writers};
use larix_store::lmdb::LmdbStore;

#[cfg(feature = "kv")]
use crate::cluster::Node;
use crate::log::Log;
pub(crate) use host::OverlayHost;
use thread::OverlayThread;

/// So long the end of the server, or of an overlay, waits for the overlay's current work: an overlay that waits for a pipe
/// without a reader is then abandoned.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// What one overlay did beside operations, since its thread began.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Committed changes that it took.
    pub(crate) taken: AtomicU64,
    /// Committed changes that it was not shown, as far as their number is known.
    pub(crate) missed: AtomicU64,
    /// Times that it could not take changes, or have its turn.
    pub(crate) failed: AtomicU64,
    pub(crate) panics: AtomicU64,
    /// Warnings that it had the log tell.
    pub(crate) reported: AtomicU64,
    /// Changes that its ticks brought.
    pub(crate) ticked: AtomicU64,
    /// Records of the change log that it has still to see.
    pub(crate) behind: AtomicU64,
}

/// All threads of overlays.
#[derive(Debug, Default)]
pub(crate) struct OverlayThreads {
    stored: Threads<Arc<ServedDatabase<LmdbStore>>>,
    /// Of databases in engines that several servers share.
    #[cfg(feature = "kv")]
    shared: Threads<Arc<Node>>,
}

impl OverlayThreads {
    /// Has a thread for each overlay of these databases that wants one, and no other of stored databases.
    ///
    /// # Errors
    /// No thread to be had; those that there are go on.
    pub(crate) fn follow(&self, databases: &[Arc<ServedDatabase<LmdbStore>>], log: &Log) -> io::Result<()> {
        let (threads, followed) = self.stored.follow(databases, log);
        forget_others(databases, &threads, log);
        followed
    }

    /// The same for databases in engines that several servers share.
    ///
    /// # Errors
    /// No thread to be had; those that there are go on.
    #[cfg(feature = "kv")]
    pub(crate) fn follow_shared(&self, nodes: &[Arc<Node>], log: &Log) -> io::Result<()> {
        // Places stay: other nodes may have overlays that this one does not have.
        self.shared.follow(nodes, log).1
    }

    /// Lets overlays take what is left, and ends the threads. To be called when no more changes come.
    pub(crate) fn finish(&self) {
        self.stored.finish();
        #[cfg(feature = "kv")]
        self.shared.finish();
    }

    /// Whether any overlay asks who sent a change.
    pub(crate) fn ask_origin(&self) -> bool {
        #[cfg(feature = "kv")]
        if self.shared.ask_origin() {
            return true;
        }
        self.stored.ask_origin()
    }

    /// What to notify after a change of the database of this [instance](larix_engine::Database::instance).
    pub(crate) fn noted(&self, instance: u64, origin: ChangeOrigin) -> NotedOrigin {
        let asking = self.stored.asking(instance);
        #[cfg(feature = "kv")]
        let asking = asking.into_iter().chain(self.shared.asking(instance)).collect();
        NotedOrigin { asking, origin: Arc::new(origin) }
    }

    /// Suffix of the database, name of the overlay, figures.
    pub(crate) fn figures(&self) -> Vec<(String, String, Arc<Figures>)> {
        let all = self.stored.figures();
        #[cfg(feature = "kv")]
        let all = all.into_iter().chain(self.shared.figures()).collect();
        all
    }
}

/// A thread, and what waits for its end.
type Handle<H> = (Arc<OverlayThread<H>>, JoinHandle<()>);

/// The threads of overlays of databases of one kind.
#[derive(Debug)]
struct Threads<H: OverlayHost> {
    /// Whether any overlay asks who sent a change.
    asks_origin: AtomicBool,
    all: ArcSwap<Vec<Arc<OverlayThread<H>>>>,
    handles: Mutex<Vec<Handle<H>>>,
}

impl<H: OverlayHost> Default for Threads<H> {
    fn default() -> Self {
        Self { asks_origin: AtomicBool::new(false), all: ArcSwap::default(), handles: Mutex::default() }
    }
}

impl<H: OverlayHost> Threads<H> {
    /// Has a thread for each overlay of these databases that wants one, and no other. Answers which, and whether some could not be had.
    fn follow(&self, hosts: &[H], log: &Log) -> (Vec<Arc<OverlayThread<H>>>, io::Result<()>) {
        let mut handles = self.lock();
        let open: Vec<_> = hosts.iter().filter_map(|host| host.served().cloned()).collect();
        let writers = Arc::new(Writers::of(&open));
        let mut threads: Vec<Arc<OverlayThread<H>>> = Vec::new();
        let mut failed = None;
        for host in hosts {
            for (name, overlay) in host.settings().overlays.beside_operations() {
                let existing = handles.iter().find(|(thread, _)| thread.is(host, &name));
                if let Some((thread, _)) = existing {
                    thread.set_overlay(overlay, &writers);
                    threads.push(Arc::clone(thread));
                    continue;
                }
                let thread = OverlayThread::new(host, name, (overlay, &writers), log);
                match thread.start() {
                    Ok(handle) => {
                        handles.push((Arc::clone(&thread), handle));
                        threads.push(thread);
                    }
                    Err(error) => failed = Some(error),
                }
            }
        }
        let asks = threads.iter().any(|thread| thread.asks_origin());
        self.asks_origin.store(asks, Ordering::Release);
        self.all.store(Arc::new(threads.clone()));
        let is_wanted = |(thread, _): &Handle<H>| threads.iter().any(|w| Arc::ptr_eq(w, thread));
        let (stay, gone): (Vec<_>, Vec<_>) = handles.drain(..).partition(is_wanted);
        *handles = stay;
        drop(handles);
        end(gone, true);
        (threads, failed.map_or(Ok(()), Err))
    }

    fn finish(&self) {
        let handles = std::mem::take(&mut *self.lock());
        end(handles, false);
    }

    fn ask_origin(&self) -> bool {
        self.asks_origin.load(Ordering::Acquire)
    }

    /// Those of the database of this instance that ask who sent a change.
    fn asking(&self, instance: u64) -> Vec<Arc<dyn AskOrigin>> {
        let all = self.all.load();
        let asking = all.iter().filter(|thread| thread.follows(instance) && thread.asks_origin());
        asking.map(|thread| Arc::clone(thread) as Arc<dyn AskOrigin>).collect()
    }

    fn figures(&self) -> Vec<(String, String, Arc<Figures>)> {
        self.all.load().iter().map(|thread| thread.figures()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Handle<H>>> {
        // Every change of it is whole.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Positions of overlays that the configuration no longer has.
fn forget_others(
    databases: &[Arc<ServedDatabase<LmdbStore>>],
    threads: &[Arc<OverlayThread<Arc<ServedDatabase<LmdbStore>>>>],
    log: &Log,
) {
    for served in databases {
        let kept = served.follower_names().unwrap_or_default();
        for name in kept.iter().filter(|name| !threads.iter().any(|thread| thread.is(served, name))) {
            if let Err(error) = served.forget_follower(name) {
                log.warning(format_args!("overlay {name}: its place in the change log stays: {error}"));
            }
        }
    }
}

/// `leaves`: the configuration no longer has these overlays.
fn end<H: OverlayHost>(threads: Vec<Handle<H>>, leaves: bool) {
    threads.iter().for_each(|(thread, _)| thread.end(leaves));
    for (thread, handle) in threads {
        if thread.has_ended_within(END_PATIENCE) {
            // A panic was reported already.
            let _ = handle.join();
        }
    }
}

/// A thread whose overlay asks who sent a change.
trait AskOrigin: fmt::Debug + Send + Sync {
    /// Remembers who sent the changes of these sequences.
    fn keep_origin(&self, sequences: Range<u64>, origin: &Arc<ChangeOrigin>);
}

/// The sender of a change, for the overlays that ask for it.
#[derive(Debug)]
pub(crate) struct NotedOrigin {
    asking: Vec<Arc<dyn AskOrigin>>,
    origin: Arc<ChangeOrigin>,
}

impl NotedOrigin {
    /// The change has ended: to be called before the change log's followers are woken.
    pub(crate) fn changed(self, outcome: &WriteOutcome) {
        for thread in &self.asking {
            thread.keep_origin(outcome.logged.clone(), &self.origin);
        }
    }
}
