//! Spans of operations for an OpenTelemetry collector (`trace-export`): some of the operations, as many as the
//! configuration says, told at their end. An operation never waits for it: what finds the queue full is counted and left out.

mod export;
mod span;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use larix_configuration::values::TraceExport;
use larix_engine::time::RandomSource as _;

use crate::clock::SystemRandom;
use crate::log::Log;

pub(crate) use span::Span;

/// Spans that may wait for the thread that sends them.
const QUEUE_LIMIT: usize = 8_192;
/// How long the server's end waits for the last ones to be sent.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Which operations are reported, and the queue to the thread that reports them.
#[derive(Default)]
pub(crate) struct Traces {
    /// An operation is reported if a random number is below; 0: none is.
    threshold: AtomicU64,
    queue: ArcSwapOption<SyncSender<Span>>,
    figures: Arc<Figures>,
    running: Mutex<Option<Running>>,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("figures", &self.figures).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Running {
    settings: TraceExport,
    /// Says when its thread has ended.
    ended: Receiver<()>,
}

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) sent: AtomicU64,
    /// Because too many waited, or the collector did not take them.
    pub(crate) lost: AtomicU64,
}

impl Traces {
    /// Whether to export this operation. Costs one load where nothing is exported.
    #[inline]
    pub(crate) fn wants_one(&self) -> bool {
        let threshold = self.threshold.load(Ordering::Relaxed);
        threshold != 0 && (threshold == u64::MAX || random() < threshold)
    }

    /// Hands a span over.
    pub(crate) fn tell(&self, span: Span) {
        let queue = self.queue.load();
        let Some(queue) = queue.as_deref() else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(span) {
            self.figures.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Exports as the configuration says from now on.
    pub(crate) fn follow(&self, wanted: Option<&TraceExport>, log: &Log) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().map(|running| &running.settings) == wanted {
            return;
        }
        self.threshold.store(0, Ordering::Relaxed);
        // Its thread ends when it has sent what waits.
        self.queue.store(None);
        *running = None;
        let Some(settings) = wanted else { return };
        let (queue, spans) = sync_channel(QUEUE_LIMIT);
        let (done, ended) = sync_channel(1);
        let exporter = export::Exporter::new(settings.clone(), log.clone(), Arc::clone(&self.figures));
        let thread = std::thread::Builder::new().name("traces".to_owned()).spawn(move || {
            exporter.run(&spans);
            // No thread waits while the server goes on.
            let _ = done.send(());
        });
        match thread {
            Ok(_) => {
                self.queue.store(Some(Arc::new(queue)));
                self.threshold.store(settings.threshold(), Ordering::Relaxed);
                *running = Some(Running { settings: settings.clone(), ended });
            }
            Err(error) => log.warning(format_args!("trace-export: no thread to be had: {error}")),
        }
    }

    /// Sends what waits, if the collector takes it soon.
    pub(crate) fn finish(&self) {
        self.threshold.store(0, Ordering::Relaxed);
        self.queue.store(None);
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { ended, .. }) = running {
            // Late or gone, the server ends.
            let _ = ended.recv_timeout(END_PATIENCE);
        }
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }
}

/// For choosing and naming spans: fast, without a lock, of no use for secrets.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut seed = state.get();
        if seed == 0 {
            let mut bytes = [0; 8];
            SystemRandom.fill(&mut bytes);
            seed = u64::from_le_bytes(bytes) | 1;
        }
        // SplitMix64.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(seed);
        let mut mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}
