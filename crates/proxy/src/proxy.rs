//! The connections of one database, for all who ask its targets.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_client::{Ambient, TlsClient};
use larix_engine::time::Clock;

use crate::open::{OpenConnection, moment};
use crate::settings::ProxySettings;
use crate::shared::{Counts, Shared, TargetState};
use crate::thread;

/// The connections of one database to its targets. They end when nobody has it any more.
pub struct Proxy {
    pub(crate) settings: Arc<ProxySettings>,
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// The state of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyFigures {
    /// The connections that are ready for requests, by their numbers.
    pub connections: BTreeMap<u64, OpenConnection>,
    /// The servers, in the order of the configuration.
    pub targets: Vec<TargetState>,
    /// Requests that were not answered in time.
    pub late: u64,
    /// When a connection last ended, by the monotonic clock.
    pub last_end: Option<Duration>,
    /// Where connections take turns: the place that takes the next request.
    pub next_place: u32,
}

/// What a proxy needs of the world around it.
pub struct Surroundings {
    pub clock: Arc<dyn Clock>,
    pub ambient: Ambient,
    /// Of `tls`, its files read; none where no target has TLS.
    pub tls: Option<TlsClient>,
    /// Says something to the log.
    pub tell: Box<dyn Fn(&str) + Send>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts its thread. Nothing is connected before the first request.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub fn start(settings: ProxySettings, around: Surroundings) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared::new(&settings.targets)?);
        let settings = Arc::new(settings);
        thread::start(thread::ThreadContext {
            settings: Arc::clone(&settings),
            tls: around.tls,
            shared: Arc::clone(&shared),
            clock: around.clock,
            ambient: around.ambient,
            tell: around.tell,
        })?;
        Ok(Arc::new(Self { settings, shared }))
    }

    pub fn settings(&self) -> &ProxySettings {
        &self.settings
    }

    /// Requests that are not answered yet.
    pub fn under_way(&self) -> usize {
        self.shared.jobs.load(Ordering::Relaxed)
    }

    /// What the monitor shows.
    pub fn figures(&self) -> ProxyFigures {
        let counts = &self.shared.counts;
        ProxyFigures {
            connections: self.shared.open.all(),
            targets: self.shared.targets(),
            late: counts.late.load(Ordering::Relaxed),
            last_end: moment(&counts.last_end),
            next_place: self.shared.turn.load(Ordering::Relaxed),
        }
    }

    /// Its targets, in the order of the configuration.
    pub fn targets(&self) -> Vec<TargetState> {
        self.shared.targets()
    }

    /// What has happened.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}
