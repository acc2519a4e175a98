//! The thread of one overlay: rounds over what is committed, and ticks.

mod current_overlay;
mod position;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larix_engine::log::LogReader;
use larix_engine::overlay::committed::{ChangeOrigin, Committed, Gap};
use larix_engine::overlay::{Interests, Overlay};
use larix_engine::{CommittedFollower, ServedDatabase, Writers, injected};
use larix_store::Store;

use super::host::OverlayHost;
use super::{AskOrigin, Figures};
use crate::log::{Log, printable};
use crate::panics;
use current_overlay::CurrentOverlay;

/// Changes whose senders are remembered until the overlay has seen them.
const ORIGINS_MAX: usize = 65_536;
/// Reports of one batch of changes that are logged one by one; the rest is counted.
const REPORTS_MAX: usize = 16;
/// After a failure, until the next try.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is made durable how far an overlay has come: what a crash may have it see twice.
const POSITION_EVERY: Duration = Duration::from_secs(10);
/// While overlays act at another server, how often the thread looks whether they do here: it is notified as well.
const TERM_EVERY: Duration = Duration::from_secs(10);
/// How long the thread sleeps at most.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct OverlayThread<H: OverlayHost> {
    host: H,
    /// By which its position is remembered.
    name: String,
    log: Log,
    state: Mutex<State<H>>,
    changed: Condvar,
    figures: Arc<Figures>,
    /// The wake of the change log's writer finds the thread by it.
    own: Weak<Self>,
}

#[derive(Debug)]
struct State<H: OverlayHost> {
    overlay: Arc<dyn Overlay>,
    /// Of all databases, for effects in other databases.
    writers: Arc<Writers<H::Store>>,
    origins: HashMap<u64, Arc<ChangeOrigin>>,
    /// Something has happened since the last round.
    awake: bool,
    ending: bool,
    /// The configuration no longer has the overlay.
    leaves: bool,
    ended: bool,
}

/// How far the thread has come, which it alone knows.
#[derive(Debug)]
pub(super) struct Progress<H: OverlayHost> {
    /// The term in which the overlay acts here.
    term: Option<u64>,
    /// Keeps the change log whole until it is known how far the overlay has come.
    reader: Option<Arc<LogReader>>,
    follower: Option<CommittedFollower<H::Store>>,
    /// Whether the overlay has seen what was committed before this term.
    has_begun: bool,
    /// When to look whether the overlay acts here.
    look: Option<Instant>,
    /// When the overlay's next turn is.
    tick: Option<Instant>,
    /// When to make its position durable.
    position: Option<Instant>,
    /// When to try again what failed.
    retry: Option<Instant>,
    /// The last failure, which was logged.
    failing: Option<String>,
}

impl<H: OverlayHost> Default for Progress<H> {
    fn default() -> Self {
        Self {
            term: None,
            reader: None,
            follower: None,
            has_begun: false,
            look: None,
            tick: None,
            position: None,
            retry: None,
            failing: None,
        }
    }
}

impl<H: OverlayHost> AskOrigin for OverlayThread<H> {
    fn keep_origin(&self, sequences: Range<u64>, origin: &Arc<ChangeOrigin>) {
        let mut state = self.lock();
        for sequence in sequences {
            if state.origins.len() >= ORIGINS_MAX {
                break;
            }
            state.origins.insert(sequence, Arc::clone(origin));
        }
    }
}

impl<H: OverlayHost> OverlayThread<H> {
    pub(super) fn new(
        host: &H,
        name: String,
        (overlay, writers): (Arc<dyn Overlay>, &Arc<Writers<H::Store>>),
        log: &Log,
    ) -> Arc<Self> {
        let state = State {
            overlay,
            writers: Arc::clone(writers),
            origins: HashMap::new(),
            awake: true,
            ending: false,
            leaves: false,
            ended: false,
        };
        let thread = Arc::new_cyclic(|own| Self {
            host: host.clone(),
            name,
            log: log.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            figures: Arc::default(),
            own: Weak::clone(own),
        });
        let own = Arc::downgrade(&thread);
        host.on_change(Box::new(move || {
            let own = own.upgrade();
            own.iter().for_each(|own| own.wake());
            own.is_some()
        }));
        thread
    }

    pub(super) fn is(&self, host: &H, name: &str) -> bool {
        self.host.is(host) && self.name == name
    }

    /// Whether its database is the one of this instance.
    pub(super) fn follows(&self, instance: u64) -> bool {
        self.host.served().is_some_and(|served| served.database().instance() == instance)
    }

    pub(super) fn asks_origin(&self) -> bool {
        self.overlay().committed().is_some_and(|committed| committed.asks_origin())
    }

    pub(super) fn figures(&self) -> (String, String, Arc<Figures>) {
        (self.suffix(), self.name.clone(), Arc::clone(&self.figures))
    }

    fn suffix(&self) -> String {
        let settings = self.host.settings();
        settings.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default()
    }

    /// Goes on with an overlay that was built anew, beside these databases.
    pub(super) fn set_overlay(&self, overlay: Arc<dyn Overlay>, writers: &Arc<Writers<H::Store>>) {
        {
            let mut state = self.lock();
            state.overlay = overlay;
            state.writers = Arc::clone(writers);
        }
        self.wake();
    }

    /// Lets the overlay take what is there, and ends the thread.
    pub(super) fn end(&self, leaves: bool) {
        let mut state = self.lock();
        (state.ending, state.leaves) = (true, leaves);
        self.changed.notify_all();
    }

    /// Waits for the end of the thread; whether it came.
    pub(super) fn has_ended_within(&self, patience: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, patience, |state| !state.ended);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).0.ended;
        if !ended {
            let name = &self.name;
            self.log.warning(format_args!(
                "overlay {name}: it has not taken the last changes within {} s, and is left behind",
                patience.as_secs()
            ));
        }
        ended
    }

    /// The one of the configuration in force.
    fn overlay(&self) -> Arc<dyn Overlay> {
        Arc::clone(&self.lock().overlay)
    }

    /// Those of the configuration in force.
    fn writers(&self) -> Arc<Writers<H::Store>> {
        Arc::clone(&self.lock().writers)
    }

    fn wake(&self) {
        self.lock().awake = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<H>> {
        // Every change of it is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread, behind [`Self::settle_position`].
    ///
    /// # Errors
    /// No thread to be had.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let (own, progress) = (Arc::clone(self), self.settle_position());
        std::thread::Builder::new().name("overlay".to_owned()).spawn(move || own.run(progress))
    }

    /// The thread.
    pub(super) fn run(&self, mut progress: Progress<H>) {
        loop {
            let (overlay, ending) = self.sleep(&progress);
            // Panics of the overlay are contained and reported below; this is for the rest.
            if panics::contained(|| self.work(&mut progress, &*overlay, ending)).is_err() {
                self.panicked(&mut progress);
            }
            if ending || self.host.served().is_some_and(|served| served.is_retired()) {
                break;
            }
        }
        // What cannot be remembered now is seen again at the next start.
        let _ = panics::contained(|| self.leave(progress));
        let mut state = self.lock();
        state.ended = true;
        self.changed.notify_all();
    }

    /// Waits until there is something to do. Answers the overlay, and whether it is the end.
    pub(super) fn sleep(&self, progress: &Progress<H>) -> (Arc<dyn Overlay>, bool) {
        let now = clock();
        let next = [progress.tick, progress.position, progress.look].into_iter().flatten().min();
        let due = progress.retry.or(next).unwrap_or(now + LOOK_EVERY);
        let patience = due.saturating_duration_since(now);
        let is_idle = |state: &mut State<H>| {
            // While something fails, news wait for the next try.
            !state.ending && (!state.awake || progress.retry.is_some())
        };
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, patience, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.awake = false;
        (Arc::clone(&state.overlay), state.ending)
    }

    pub(super) fn work(&self, progress: &mut Progress<H>, overlay: &dyn Overlay, ending: bool) {
        injected::panic_at("overlay");
        progress.retry = None;
        let acts = self.host.served().and_then(|served| Some((served, self.host.term()?)));
        let Some((served, term)) = acts else { return self.rest(progress, overlay) };
        let Err(why) = self.act((served, term), progress, overlay, ending) else {
            if progress.failing.take().is_some() {
                self.log.notice(format_args!("overlay {}: it goes on", self.name));
            }
            return;
        };
        if self.host.term() != Some(term) {
            // Another server has taken over amid it.
            return self.rest(progress, overlay);
        }
        self.figures.failed.fetch_add(1, Ordering::Relaxed);
        progress.retry = Some(clock() + RETRY);
        if progress.failing.as_ref() != Some(&why) {
            self.log.warning(format_args!("overlay {}: {}", self.name, printable(&why)));
            progress.failing = Some(why);
        }
    }

    /// Another server's overlays act.
    fn rest(&self, progress: &mut Progress<H>, overlay: &dyn Overlay) {
        (progress.term, progress.tick, progress.position, progress.failing) = (None, None, None, None);
        progress.look = Some(clock() + TERM_EVERY);
        self.figures.behind.store(0, Ordering::Relaxed);
        let begins = progress.follower.is_none() && progress.reader.is_none();
        if begins
            && overlay.interests().has(Interests::COMMITTED)
            && let Some(served) = self.host.served()
        {
            progress.reader = Some(CommittedFollower::hold(served, self.waker()));
        }
    }

    /// Does what is to be done in this term.
    fn act(
        &self,
        (served, term): (&Arc<ServedDatabase<H::Store>>, u64),
        progress: &mut Progress<H>,
        overlay: &dyn Overlay,
        ending: bool,
    ) -> Result<(), String> {
        self.begin_term((served, term), progress)?;
        let mut done = Ok(());
        if overlay.interests().has(Interests::COMMITTED) {
            done = self.take_committed(served, progress);
        }
        if overlay.interests().has(Interests::TICK) && !ending {
            done = self.take_turn(served, progress, overlay).and(done);
        }
        done
    }

    /// What the writer calls when there is something new.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let own = Weak::clone(&self.own);
        Arc::new(move || {
            if let Some(own) = own.upgrade() {
                own.wake();
            }
        })
    }

    /// Hands the overlay what is committed, until there is no more.
    fn take_committed(
        &self,
        served: &Arc<ServedDatabase<H::Store>>,
        progress: &mut Progress<H>,
    ) -> Result<(), String> {
        let current = CurrentOverlay(self);
        if !progress.has_begun {
            self.join(served, progress)?;
        }
        let Some(follower) = &mut progress.follower else { return Ok(()) };
        if !progress.has_begun {
            follower.begin(&current).map_err(|failure| failure.into_result().to_string())?;
            progress.has_begun = true;
        }
        let origin = |sequence: u64| self.lock().origins.get(&sequence).cloned();
        let mut more = true;
        while more && !served.is_retired() && self.host.term() == progress.term {
            let round = follower.round(&current, &origin, &current).map_err(|fault| fault.to_string())?;
            more = round.more;
            self.figures.taken.fetch_add(round.taken, Ordering::Relaxed);
            self.figures.behind.store(follower.behind(), Ordering::Relaxed);
            self.report(&round.reports);
            if let Some(gap) = round.gap {
                self.missed(gap);
            }
            if round.taken > 0 {
                let reached = follower.reached();
                self.lock().origins.retain(|sequence, _| *sequence > reached);
                progress.position.get_or_insert_with(|| clock() + POSITION_EVERY);
            }
            if let Some(not_taken) = round.not_taken {
                return Err(not_taken.message);
            }
        }
        if progress.position.is_some_and(|due| due <= clock()) {
            progress.position = None;
            current.settle()?;
            follower.keep_position().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn report(&self, reports: &[String]) {
        self.figures.reported.fetch_add(reports.len() as u64, Ordering::Relaxed);
        for text in reports.iter().take(REPORTS_MAX) {
            // Names of entries stand in it.
            self.log.warning(format_args!("overlay {}: {}", self.name, printable(text)));
        }
        if let Some(more) = reports.len().checked_sub(REPORTS_MAX).filter(|more| *more > 0) {
            self.log.warning(format_args!("overlay {}: {more} more like these", self.name));
        }
    }

    fn missed(&self, gap: Gap) {
        if let Gap::Records(count) = gap {
            self.figures.missed.fetch_add(count, Ordering::Relaxed);
        }
        let (name, suffix) = (&self.name, self.suffix());
        self.log
            .warning(format_args!("overlay {name}: {gap} of \"{suffix}\" are missing from what it has seen"));
    }

    /// Gives the overlay its turn, if it is due.
    fn take_turn(
        &self,
        served: &Arc<ServedDatabase<H::Store>>,
        progress: &mut Progress<H>,
        overlay: &dyn Overlay,
    ) -> Result<(), String> {
        let Some(tick) = overlay.tick() else { return Ok(()) };
        let now = clock();
        let interval = tick.interval();
        // The first comes at once, and an interval that is shorter than it was counts at once.
        let due = progress.tick.unwrap_or(now).min(now + interval);
        progress.tick = Some(due);
        if due > now {
            return Ok(());
        }
        progress.tick = Some(now + interval);
        let outcome = served.tick(tick).map_err(|failure| failure.into_result().to_string())?;
        let Some(outcome) = outcome else { return Ok(()) };
        self.figures.ticked.fetch_add(outcome.done, Ordering::Relaxed);
        // What was refused comes again with the turn after: not at once.
        let at = if outcome.more && outcome.refused.is_empty() { Duration::ZERO } else { tick.interval() };
        progress.tick = Some(clock() + at);
        match outcome.refused.first() {
            Some(first) => {
                let count = outcome.refused.len();
                Err(format!("{count} of its changes were refused, the first with: {first}"))
            }
            None => Ok(()),
        }
    }

    /// The overlay panicked, which was reported: what it had in hand is left out.
    fn panicked(&self, progress: &mut Progress<H>) {
        self.figures.panics.fetch_add(1, Ordering::Relaxed);
        progress.retry = Some(clock() + RETRY);
        let count = progress.follower.as_mut().map_or(0, CommittedFollower::leave_out);
        let what = if count == 0 { String::new() } else { format!(" behind the {count} changes in hand") };
        self.log.warning(format_args!("overlay {}: it panicked, and goes on{what}", self.name));
    }

    fn leave(&self, progress: Progress<H>) {
        let Some(mut follower) = progress.follower else { return };
        let leaves = self.lock().leaves;
        let settled = CurrentOverlay(self).settle();
        if <H::Store as Store>::SHARED && (progress.term.is_none() || self.host.term() != progress.term) {
            // The server that writes remembers it.
            return;
        }
        let kept = match leaves && !<H::Store as Store>::SHARED {
            true => follower.forget().map_err(|error| error.to_string()),
            false => settled.and_then(|()| follower.keep_position().map_err(|error| error.to_string())),
        };
        if let Err(why) = kept {
            let name = &self.name;
            self.log.warning(format_args!("overlay {name}: how far it has come is not remembered: {why}"));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
fn clock() -> Instant {
    Instant::now()
}
