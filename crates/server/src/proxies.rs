//! The connections of proxied databases, by the databases' suffixes: a database whose settings stay as they are keeps its connections when
//! the configuration changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use larix_engine::time::RandomSource as _;
use larix_proxy::pcache::{Cache, Settings as CacheSettings};
use larix_proxy::{Proxy, ProxyBackend, ProxySettings, Surroundings};
use larix_schema::Schema;

use crate::clock::SystemRandom;

#[derive(Debug, Default)]
pub(crate) struct Proxies(Mutex<HashMap<String, Weak<Proxy>>>);

impl Proxies {
    /// All that there are, by suffix.
    pub(crate) fn all(&self) -> Vec<(String, Arc<Proxy>)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |(name, proxy): (&String, &Weak<Proxy>)| Some((name.clone(), proxy.upgrade()?));
        let mut all: Vec<(String, Arc<Proxy>)> = known.iter().filter_map(open).collect();
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
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(proxy) = known.get(name).and_then(Weak::upgrade)
            && proxy.settings() == settings
        {
            return Ok(proxy);
        }
        let proxy = Proxy::start(settings.clone(), around()?).map_err(|error| error.to_string())?;
        known.retain(|_, proxy| proxy.strong_count() > 0);
        known.insert(name.to_owned(), Arc::downgrade(&proxy));
        Ok(proxy)
    }
}

/// What was cached of proxied databases, by the databases' suffixes: it stays as long as the same server is asked, with the same templates and
/// the same schema.
#[derive(Debug, Default)]
pub(crate) struct Caches(Mutex<HashMap<String, Known>>);

#[derive(Debug)]
struct Known {
    cache: Weak<Cache>,
    proxy: Weak<Proxy>,
    schema: Weak<Schema>,
    settings: Arc<CacheSettings>,
}

impl Caches {
    /// The cache that there is, or a new one.
    pub(crate) fn of(&self, name: &str, asked: &ProxyBackend, settings: &Arc<CacheSettings>) -> Arc<Cache> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get_mut(name)
            && let Some(cache) = found.cache.upgrade()
            && found.proxy.as_ptr() == Arc::as_ptr(&asked.proxy)
            && found.schema.as_ptr() == Arc::as_ptr(&asked.schema)
            && found.settings.fits(settings)
        {
            found.settings = Arc::clone(settings);
            return cache;
        }
        let mut secret = [0; 32];
        SystemRandom.fill(&mut secret);
        let cache = Arc::new(Cache::new(secret));
        known.retain(|_, one| one.cache.strong_count() > 0);
        known.insert(
            name.to_owned(),
            Known {
                cache: Arc::downgrade(&cache),
                proxy: Arc::downgrade(&asked.proxy),
                schema: Arc::downgrade(&asked.schema),
                settings: Arc::clone(settings),
            },
        );
        cache
    }
}
