//! Overlays beside operations: a thread for each overlay of a database that sees committed changes or has ticks. What it waits for,
//! a file or another server, delays nothing else.
//!
//! A thread outlives changes of the configuration that keep its overlay: it goes on with the one that was built anew.

mod thread;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use larix_engine::overlay::committed::ChangeOrigin;
use larix_engine::overlay::{Interests, Overlay};
use larix_engine::write::WriteOutcome;
use larix_engine::{Served, Writers};
use larix_store::lmdb::LmdbStore;

use crate::log::Log;
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
    /// Whether any overlay asks who sent a change.
    asks_origin: AtomicBool,
    all: ArcSwap<Vec<Arc<OverlayThread>>>,
    handles: Mutex<Vec<(Arc<OverlayThread>, JoinHandle<()>)>>,
}

impl OverlayThreads {
    /// Has a thread for each overlay of these databases that wants one, and no other.
    ///
    /// # Errors
    /// No thread to be had; those that there are go on.
    pub(crate) fn follow(&self, databases: &[Arc<Served<LmdbStore>>], log: &Log) -> io::Result<()> {
        let mut handles = self.lock();
        let writers = Arc::new(Writers::of(databases));
        let mut wanted: Vec<Arc<OverlayThread>> = Vec::new();
        let mut failed = None;
        for served in databases {
            for (name, overlay) in overlays_with_threads(served) {
                let known = handles.iter().find(|(thread, _)| thread.is(served, &name));
                if let Some((thread, _)) = known {
                    thread.set_overlay(overlay, &writers);
                    wanted.push(Arc::clone(thread));
                    continue;
                }
                let thread = OverlayThread::new(served, name, (overlay, &writers), log);
                let own = Arc::clone(&thread);
                match std::thread::Builder::new().name("overlay".to_owned()).spawn(move || own.run()) {
                    Ok(handle) => {
                        handles.push((Arc::clone(&thread), handle));
                        wanted.push(thread);
                    }
                    Err(error) => failed = Some(error),
                }
            }
        }
        let asks = wanted.iter().any(|thread| thread.asks_origin());
        self.asks_origin.store(asks, Ordering::Release);
        self.all.store(Arc::new(wanted.clone()));
        let is_wanted = |(thread, _): &(Arc<OverlayThread>, _)| wanted.iter().any(|w| Arc::ptr_eq(w, thread));
        let (stay, gone): (Vec<_>, Vec<_>) = handles.drain(..).partition(is_wanted);
        *handles = stay;
        drop(handles);
        end(gone, true);
        forget_others(databases, &wanted, log);
        failed.map_or(Ok(()), Err)
    }

    /// Lets overlays take what is left, and ends the threads. To be called when no more changes come.
    pub(crate) fn finish(&self) {
        let handles = std::mem::take(&mut *self.lock());
        end(handles, false);
    }

    /// Whether any overlay asks who sent a change.
    pub(crate) fn ask_origin(&self) -> bool {
        self.asks_origin.load(Ordering::Acquire)
    }

    /// What to notify after a change of this database.
    pub(crate) fn noted(&self, served: &Arc<Served<LmdbStore>>, origin: ChangeOrigin) -> NotedOrigin {
        let all = self.all.load();
        let asking = all.iter().filter(|thread| thread.follows(served) && thread.asks_origin());
        NotedOrigin { asking: asking.cloned().collect(), origin: Arc::new(origin) }
    }

    /// Suffix of the database, name of the overlay, figures.
    pub(crate) fn figures(&self) -> Vec<(String, String, Arc<Figures>)> {
        self.all.load().iter().map(|thread| thread.figures()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Arc<OverlayThread>, JoinHandle<()>)>> {
        // Every change of it is whole.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The overlays of a database that have a thread, each with the name by which its position is remembered.
fn overlays_with_threads(served: &Arc<Served<LmdbStore>>) -> Vec<(String, Arc<dyn Overlay>)> {
    let settings = served.database().settings();
    let mut all: Vec<(String, Arc<dyn Overlay>)> = Vec::new();
    for overlay in settings.overlays.iter() {
        let interests = overlay.interests();
        if !(interests.has(Interests::COMMITTED) || interests.has(Interests::TICK)) {
            continue;
        }
        let same = all.iter().filter(|(_, other)| other.name() == overlay.name()).count();
        let name = match same {
            0 => overlay.name().to_owned(),
            number => format!("{}/{number}", overlay.name()),
        };
        all.push((name, Arc::clone(overlay)));
    }
    all
}

/// Positions of overlays that the configuration no longer has.
fn forget_others(databases: &[Arc<Served<LmdbStore>>], wanted: &[Arc<OverlayThread>], log: &Log) {
    for served in databases {
        let kept = served.follower_names().unwrap_or_default();
        for name in kept.iter().filter(|name| !wanted.iter().any(|thread| thread.is(served, name))) {
            if let Err(error) = served.forget_follower(name) {
                log.warning(format_args!("overlay {name}: its place in the change log stays: {error}"));
            }
        }
    }
}

/// `leaves`: the configuration no longer has these overlays.
fn end(threads: Vec<(Arc<OverlayThread>, JoinHandle<()>)>, leaves: bool) {
    threads.iter().for_each(|(thread, _)| thread.end(leaves));
    for (thread, handle) in threads {
        if thread.has_ended_within(END_PATIENCE) {
            // A panic was reported already.
            let _ = handle.join();
        }
    }
}

/// The sender of a change, for the overlays that ask for it.
#[derive(Debug)]
pub(crate) struct NotedOrigin {
    asking: Vec<Arc<OverlayThread>>,
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
