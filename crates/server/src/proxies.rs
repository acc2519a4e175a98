//! The connections of proxied databases, by the databases' suffixes: a database whose settings stay as they are keeps its connections when
//! the configuration changes.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larix_backend::ChangeTeller;
use larix_engine::time::{Clock, RandomSource as _};
use larix_proxy::pcache::{Cache, Settings as CacheSettings};
use larix_proxy::{Proxy, ProxyBackend, ProxySettings, Surroundings};
use larix_schema::Schema;

use crate::clock::SystemRandom;

#[derive(Debug, Default)]
pub(crate) struct Proxies(Mutex<HashMap<String, Weak<Proxy>>>);

impl Proxies {
    /// All that there are, by suffix.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Proxy>)> {
        let proxies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |(name, proxy): (&String, &Weak<Proxy>)| Some((name.clone(), proxy.upgrade()?));
        let mut all: Vec<(String, Arc<Proxy>)> = proxies.iter().filter_map(open).collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Those that there are, or new ones in these surroundings.
    ///
    /// # Errors
    /// Surroundings that cannot be; no thread is left.
    pub(crate) fn of(
        &self,
        name: &str,
        settings: &ProxySettings,
        around: impl FnOnce() -> Result<Surroundings, String>,
    ) -> Result<Arc<Proxy>, String> {
        let mut proxies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(proxy) = proxies.get(name).and_then(Weak::upgrade)
            && proxy.settings() == settings
        {
            return Ok(proxy);
        }
        let proxy = Proxy::start(settings.clone(), around()?).map_err(|error| error.to_string())?;
        proxies.retain(|_, proxy| proxy.strong_count() > 0);
        proxies.insert(name.to_owned(), Arc::downgrade(&proxy));
        Ok(proxy)
    }
}

/// What tells consumers of changes that are made through proxied databases, by the databases' suffixes: it stays as long as a generation
/// has the database, so that a search of the generation before hears of all.
#[derive(Debug, Default)]
pub(crate) struct ChangeTellers(Mutex<HashMap<String, Weak<ChangeTeller>>>);

impl ChangeTellers {
    /// The one that there is, or a new one.
    pub(crate) fn of(&self, name: &str) -> Arc<ChangeTeller> {
        let mut tellers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(teller) = tellers.get(name).and_then(Weak::upgrade) {
            return teller;
        }
        let teller = Arc::<ChangeTeller>::default();
        tellers.retain(|_, teller| teller.strong_count() > 0);
        tellers.insert(name.to_owned(), Arc::downgrade(&teller));
        teller
    }
}

/// What was cached of proxied databases, by the databases' suffixes: it stays as long as the same server is asked, with the same templates and
/// the same schema.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    by_name: Mutex<HashMap<String, CacheRecord>>,
    /// Those that there were since the start: a file is read back once.
    restored: Mutex<HashSet<String>>,
}

/// What a cache has, for cn=Monitor.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheContent {
    pub queries: usize,
    pub entries: usize,
    /// Of the queries.
    pub urls: Vec<String>,
}

#[derive(Debug)]
struct CacheRecord {
    cache: Weak<Cache>,
    proxy: Weak<Proxy>,
    schema: Weak<Schema>,
    settings: Arc<CacheSettings>,
}

impl Caches {
    /// What each has, by name.
    pub(crate) fn contents(&self, clock: &dyn Clock) -> Vec<(String, CacheContent)> {
        let caches = self.lock();
        let content = |(name, one): (&String, &CacheRecord)| {
            let cache = one.cache.upgrade()?;
            let (queries, entries, _) = cache.size();
            Some((name.clone(), CacheContent { queries, entries, urls: cache.listed(&one.settings, clock) }))
        };
        caches.iter().filter_map(content).collect()
    }

    /// Writes the files of those that are kept (`pcachePersist`); what went wrong.
    pub(crate) fn save(&self, clock: &dyn Clock) -> Vec<String> {
        let mut faults = Vec::new();
        for one in self.lock().values() {
            let (Some(path), Some(cache), Some(proxy)) =
                (&one.settings.saved, one.cache.upgrade(), one.proxy.upgrade())
            else {
                continue;
            };
            let written = write_whole(path, &cache.saved(&one.settings, proxy.settings(), clock));
            if let Err(error) = written {
                faults.push(format!(
                    "pcachePersist: {}: {error}; the next start begins without it",
                    path.display()
                ));
            }
        }
        faults
    }

    /// Takes back what was kept in a file, and removes that: it is true until something is changed. What came of it.
    fn restore(
        &self,
        name: &str,
        (cache, schema): (&Cache, &Schema),
        (settings, proxy): (&CacheSettings, &Proxy),
        clock: &dyn Clock,
    ) -> Option<String> {
        let path = settings.saved.as_deref()?;
        let is_first = self.restored.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        if !is_first {
            return None;
        }
        let bytes = match larix_files::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("pcachePersist: {}: {error}; it is not read", path.display())),
        };
        let removed = std::fs::remove_file(path);
        if let Err(error) = removed {
            return Some(format!(
                "pcachePersist: {} cannot be removed: {error}; it is not used",
                path.display()
            ));
        }
        Some(match cache.restore(&bytes, schema, (settings, proxy.settings()), clock) {
            Ok(count) => format!("pcache: {count} answers are known from before"),
            Err(why) => format!("pcachePersist: {} is not used: {why}", path.display()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CacheRecord>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache that there is, or a new one; and a word about what was kept of it in a file.
    pub(crate) fn of(
        &self,
        name: &str,
        backend: &ProxyBackend,
        settings: &Arc<CacheSettings>,
        clock: &dyn Clock,
    ) -> (Arc<Cache>, Option<String>) {
        let mut caches = self.lock();
        if let Some(found) = caches.get_mut(name)
            && let Some(cache) = found.cache.upgrade()
            && found.proxy.as_ptr() == Arc::as_ptr(&backend.proxy)
            && found.schema.as_ptr() == Arc::as_ptr(&backend.schema)
            && found.settings.fits(settings)
        {
            found.settings = Arc::clone(settings);
            return (cache, None);
        }
        let mut secret = [0; 32];
        SystemRandom.fill(&mut secret);
        let cache = Arc::new(Cache::new(secret));
        let message = self.restore(name, (&cache, &backend.schema), (settings, &backend.proxy), clock);
        caches.retain(|_, one| one.cache.strong_count() > 0);
        caches.insert(
            name.to_owned(),
            CacheRecord {
                cache: Arc::downgrade(&cache),
                proxy: Arc::downgrade(&backend.proxy),
                schema: Arc::downgrade(&backend.schema),
                settings: Arc::clone(settings),
            },
        );
        (cache, message)
    }
}

/// A file that is whole, or not there; only its owner reads it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
