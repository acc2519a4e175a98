//! The connections of proxied databases, by the databases' suffixes: a database whose settings stay as they are keeps its connections when
//! the configuration changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use larix_proxy::{Proxy, ProxySettings, Surroundings};

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
