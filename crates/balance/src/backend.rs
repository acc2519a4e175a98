//! A server, its connections, and which of several servers is next.

use std::time::Duration;

use crate::counters::OperationCounts;
use crate::figures::Recorder;
use crate::upstream::Pool;
use larix_configuration::balancer::{BackendSettings, Strategy};

/// The first pause before another try to connect; each further one is twice as long, up to `retry`.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Connections beyond `numconns` to one server, of clients of which it remembers something by connection.
const CONTEXT_CONNECTIONS_MAX: usize = 16;
/// A new latency counts as one part of so many in the average.
const LATENCY_PARTS: f64 = 16.0;

#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) settings: BackendSettings,
    /// Connections by [`Pool`], those that retire left out.
    pub(crate) connections: [Vec<u64>; 2],
    /// Connections that are being made, by [`Pool`].
    pub(crate) opening: [usize; 2],
    /// Tries to connect in a row that failed.
    pub(crate) failures: u32,
    /// Before then no connection is tried.
    next_try: Duration,
    /// Operations under way on shared connections.
    pub(crate) pending: usize,
    /// Where the next look for a connection begins, by [`Pool`].
    pub(crate) turn: [usize; 2],
    /// Seconds on average to the first answer; 0: none was measured.
    pub(crate) latency: f64,
    /// The configuration does not name it any more: it has no new connection, and its place may be another's.
    pub(crate) is_gone: bool,
    /// The log says that it does not know Verify Credentials.
    pub(crate) lacks_verification: bool,
    pub(crate) figures: Recorder,
    pub(crate) counts: OperationCounts,
}

impl Backend {
    pub(crate) fn new(settings: BackendSettings) -> Self {
        Self {
            settings,
            connections: [Vec::new(), Vec::new()],
            opening: [0; 2],
            failures: 0,
            next_try: Duration::ZERO,
            pending: 0,
            turn: [0; 2],
            latency: 0.0,
            is_gone: false,
            lacks_verification: false,
            figures: Recorder::default(),
            counts: OperationCounts::default(),
        }
    }

    /// It has other settings from here on, and a connection is tried at once.
    pub(crate) fn change(&mut self, settings: BackendSettings) {
        self.settings = settings;
        self.next_try = Duration::ZERO;
    }

    pub(crate) fn connections(&self, pool: Pool) -> &[u64] {
        self.connections.get(pool as usize).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn connections_mut(&mut self, pool: Pool) -> &mut Vec<u64> {
        match pool {
            Pool::Shared => &mut self.connections[0],
            Pool::Bind => &mut self.connections[1],
        }
    }

    pub(crate) fn opening_mut(&mut self, pool: Pool) -> &mut usize {
        match pool {
            Pool::Shared => &mut self.opening[0],
            Pool::Bind => &mut self.opening[1],
        }
    }

    /// Shared connections that are wanted where so many have contexts of clients: one more, for the others.
    pub(crate) fn wanted(&self, with_contexts: usize) -> usize {
        let connections = self.settings.connections;
        if with_contexts == 0 || connections == 0 {
            return connections;
        }
        connections.max(with_contexts + 1).min(connections + CONTEXT_CONNECTIONS_MAX)
    }

    /// Connections to it at most.
    pub(crate) fn connections_max(&self) -> usize {
        let settings = &self.settings;
        settings.connections + settings.bind_connections + CONTEXT_CONNECTIONS_MAX
    }

    /// A kind of connection that it lacks and that is to be made now. `with_contexts`: shared connections with contexts of clients.
    pub(crate) fn lacks(&self, now: Duration, with_contexts: usize) -> Option<Pool> {
        let [shared, bind] = self.opening;
        if now < self.next_try || (self.failures > 0 && shared + bind > 0) {
            return None;
        }
        let there = |pool| match pool {
            Pool::Shared => self.connections(pool).len() + shared,
            Pool::Bind => self.connections(pool).len() + bind,
        };
        let lacks = |pool: &Pool| {
            let wanted = match pool {
                Pool::Shared => self.wanted(with_contexts),
                Pool::Bind => self.settings.bind_connections,
            };
            there(*pool) < wanted
        };
        // One of each kind first: then clients can do everything.
        let first = if there(Pool::Shared) > 0 && there(Pool::Bind) == 0 { Pool::Bind } else { Pool::Shared };
        [first, Pool::Shared, Pool::Bind].into_iter().find(lacks)
    }

    /// When a connection is to be tried again, if one is lacking then.
    pub(crate) fn next_try(&self) -> Duration {
        self.next_try
    }

    /// A connection could not be made, or was of no use. `chance` is any number.
    pub(crate) fn failed(&mut self, now: Duration, chance: u64) {
        if now < self.next_try {
            // Connections that were tried together count once.
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let doubled = FIRST_PAUSE.saturating_mul(1 << (self.failures - 1).min(10));
        let pause = doubled.min(self.settings.retry);
        // Up to a quarter less, so that several balancers do not come at once.
        let less = pause.mul_f64(0.25 * (chance % 256) as f64 / 256.0);
        self.next_try = now + pause.saturating_sub(less);
    }

    pub(crate) fn measured(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.latency =
            if self.latency == 0.0 { took } else { self.latency + (took - self.latency) / LATENCY_PARTS };
    }

    /// The lower the better.
    fn score(&self) -> f64 {
        self.latency * f64::from(self.settings.weight.max(1))
    }
}

/// Servers that are tried together.
#[derive(Debug)]
pub(crate) struct Tier {
    strategy: Strategy,
    /// Their positions among all servers.
    pub(crate) backends: Vec<usize>,
    /// Which of them is next in turn.
    turn: usize,
}

impl Tier {
    pub(crate) fn new(strategy: Strategy, backends: Vec<usize>) -> Self {
        Self { strategy, backends, turn: 0 }
    }

    /// The positions in [`Self::backends`] that are tried before all of them are tried in turn. `chance` gives any number.
    pub(crate) fn first(&self, all: &[Backend], chance: &mut dyn FnMut() -> u64) -> [Option<usize>; 2] {
        let count = self.backends.len();
        let backend = |at: usize| self.backends.get(at).and_then(|number| all.get(*number));
        match self.strategy {
            Strategy::RoundRobin => [None, None],
            Strategy::Weighted => {
                let weight = |at: usize| backend(at).map_or(0, |backend| u64::from(backend.settings.weight));
                let sum: u64 = (0..count).map(weight).sum();
                let drawn = chance() % (sum + 1);
                if drawn == 0 {
                    // All have a slight chance, those of weight 0 too.
                    return [usize::try_from(chance()).ok().map(|number| number % count.max(1)), None];
                }
                let mut running = 0;
                let chosen = (0..count).find(|at| {
                    running += weight(*at);
                    running >= drawn
                });
                [chosen, None]
            }
            Strategy::BestOf if count < 2 => [None, None],
            Strategy::BestOf => {
                let draw = |of: usize, number: u64| usize::try_from(number % of.max(1) as u64).unwrap_or(0);
                let one = draw(count, chance());
                let other = (one + 1 + draw(count - 1, chance())) % count;
                let score = |at: usize| backend(at).map_or(f64::MAX, Backend::score);
                if score(one) <= score(other) { [Some(one), Some(other)] } else { [Some(other), Some(one)] }
            }
        }
    }

    /// All positions, beginning with the one that is next in turn.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (count, turn) = (self.backends.len(), self.turn);
        (0..count).map(move |step| (turn + step) % count)
    }

    /// This position was chosen.
    pub(crate) fn chose(&mut self, at: usize) {
        self.turn = (at + 1) % self.backends.len().max(1);
    }
}
