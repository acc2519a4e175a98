//! The state that all connections of the server share.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use larix_configuration::Config;
use larix_engine::time::RandomSource;

use crate::clock::SystemRandom;
use crate::databases::Databases;
use crate::generation::Generation;
use crate::services::Services;

/// A part of the generation that was in force at the call. A request must not keep it beyond its end.
pub(crate) struct Current<T> {
    generation: Guard<Arc<Generation>>,
    part: fn(&Generation) -> &T,
}

impl<T> Deref for Current<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (self.part)(&self.generation)
    }
}

/// The shared state: the generation in force, and [`Services`].
#[derive(Debug)]
pub(crate) struct Server {
    generation: ArcSwap<Generation>,
    /// How many generations were published, counted after each publication.
    generations: AtomicU64,
    services: Arc<Services>,
    /// Derives what SASL answers for users who do not exist, the same each time.
    pub(crate) sasl_secret: [u8; 32],
}

impl Deref for Server {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl Server {
    pub(crate) fn new(databases: Databases, services: Arc<Services>) -> Self {
        let config = Arc::clone(databases.config());
        let sasl_secret = databases.secret().unwrap_or_else(|| {
            let mut secret = [0; 32];
            SystemRandom.fill(&mut secret);
            secret
        });
        services.configuration_in_force.store(databases.configuration_in_force().map(Arc::new));
        let generation = ArcSwap::from_pointee(Generation { config, databases });
        Self { sasl_secret, generation, generations: AtomicU64::new(0), services }
    }

    /// Starts the threads that overlays of the databases in force need, and ends others.
    ///
    /// # Errors
    /// A thread cannot be started. The running ones go on.
    pub(crate) fn follow_overlays(&self) -> io::Result<()> {
        let databases = self.databases();
        let stored = self.overlay_threads.follow(databases.directory().databases(), &self.log);
        #[cfg(feature = "kv")]
        self.overlay_threads.follow_shared(&databases.nodes(), &self.log)?;
        stored
    }

    /// Starts the threads of the access logs of the databases in force, and ends others.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn follow_access_logs(&self) -> io::Result<()> {
        let databases = self.databases();
        let (config, beside) = (databases.config(), (&self.clock, &self.log));
        #[cfg(feature = "kv")]
        {
            let recorded = databases.recorded_in_engines();
            for node in databases.nodes() {
                let of_node = recorded.iter().find(|(.., log)| Arc::ptr_eq(log, &node));
                node.write_beside(of_node.and_then(|(_, source, _)| source.as_deref()));
            }
            self.access_logs.follow_shared((config, recorded), beside)?;
        }
        self.access_logs.follow((config, databases.recorded()), beside)
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Current<Config> {
        Current { generation: self.generation(), part: |generation| &generation.config }
    }

    /// The databases in force.
    pub(crate) fn databases(&self) -> Current<Databases> {
        Current { generation: self.generation(), part: |generation| &generation.databases }
    }

    /// Configuration and databases that belong together. A request takes them once and sees them throughout.
    pub(crate) fn generation(&self) -> Guard<Arc<Generation>> {
        self.generation.load()
    }

    /// The number of the generation, for those who cache what they derive from it. A generation that is read after this number is at least
    /// as new.
    pub(crate) fn generation_number(&self) -> u64 {
        self.generations.load(Ordering::Acquire)
    }

    /// As [`Self::generation`], to be kept longer than a request.
    pub(crate) fn generation_in_force(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// Publishes a generation. Requests that begin from now on see it.
    pub(crate) fn publish(&self, generation: Generation) {
        let in_force = generation.databases.configuration_in_force();
        self.generation.store(Arc::new(generation));
        self.generations.fetch_add(1, Ordering::Release);
        self.configuration_in_force.store(in_force.map(Arc::new));
        self.configuration_watch.tell();
    }
}
