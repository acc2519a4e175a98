//! `overlay remoteauth` and `overlay pbind`: what has binds judged by other servers, with the connections of the server, and ends them here.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use larix_backend::{Done, Interceptor, Verdict};
use larix_configuration::{ConfigError, Database, Overlay, Realm};
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::write::WriteOutcome;
use larix_engine::{Directory, ServedDatabase};
use larix_proxy::remote_auth::{Accounts, Conclude, Named, RemoteAuth, RemoteVerdict};
use larix_proxy::{Proxy, ProxySettings};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;
use zeroize::Zeroizing;

use super::Common;
use super::passwords::AtEnd;
use super::proxied::connections_by_name;
use crate::clock::SystemRandom;
use crate::log::printable;
use crate::services::Services;

/// How often `overlay pbind` asks again if a connection is lost.
const PBIND_RETRIES: u32 = 1;

/// The overlay in front of a database; none if it is another one, or if it has nothing to do.
///
/// # Errors
/// A file of hosts or settings of TLS that cannot be used; a database that is not stored here; no thread is left.
pub(crate) fn remote_auth(
    common: &Arc<Common>,
    (database, served): (&Database, Option<&Arc<ServedDatabase<LmdbStore>>>),
    overlay: &Overlay,
) -> Result<Option<Arc<dyn Interceptor>>, ConfigError> {
    let schema = &common.config.schema;
    let Some(settings) = overlay.remote_auth(schema)? else { return Ok(None) };
    let fault = |why: String| ConfigError::new(overlay.origin.clone(), why);
    let Some(served) = served else {
        let text = "overlay remoteauth looks at stored entries: put it on a database mdb";
        return Err(fault(text.to_owned()));
    };
    let (Some(dn), Some(domain)) = (settings.dn_attribute.clone(), settings.domain_attribute.clone()) else {
        return Ok(None);
    };
    let suffix = database.suffixes.first().map_or("", |suffix| suffix.normal.as_str());
    let servers = |realm: &Realm| -> Result<Arc<Proxy>, ConfigError> {
        let targets = realm.read().map_err(fault)?;
        settings.check_servers(&targets).map_err(fault)?;
        let name: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let name = format!("remoteauth {} {suffix}", name.join(" "));
        let proxy = ProxySettings {
            targets,
            tls: settings.tls.clone(),
            idle_timeout: Some(larix_proxy::remote_auth::IDLE),
            ..ProxySettings::default()
        };
        connections_by_name(&common.services, &name, &proxy).map_err(fault)
    };
    let mappings = settings.mappings.iter().map(|(name, realm)| Ok((name.clone(), servers(realm)?)));
    let password = schema.describe("userPassword").map_err(|error| fault(error.to_string()))?;
    let named = Named {
        password,
        dn,
        domain,
        default_domain: settings.default_domain.clone(),
        mappings: mappings.collect::<Result<_, ConfigError>>()?,
        default_realm: settings.default_realm.as_ref().map(servers).transpose()?,
    };
    let hasher = settings.store.then(|| common.config.hasher());
    Ok(Some(judged_elsewhere(common, (database, served), Accounts::Named(named), (settings.retries, hasher))))
}

/// `overlay pbind` in front of a database; none if it is another overlay.
///
/// # Errors
/// Settings of TLS that cannot be used; a database that is not stored here; no thread is left.
pub(crate) fn pbind(
    common: &Arc<Common>,
    (database, served): (&Database, Option<&Arc<ServedDatabase<LmdbStore>>>),
    overlay: &Overlay,
) -> Result<Option<Arc<dyn Interceptor>>, ConfigError> {
    let Some(settings) = overlay.bind_server()? else { return Ok(None) };
    let fault = |why: String| ConfigError::new(overlay.origin.clone(), why);
    let Some(served) = served else { return Err(fault("overlay pbind is for a database mdb".to_owned())) };
    let settings = ProxySettings { idle_timeout: Some(larix_proxy::remote_auth::IDLE), ..settings };
    let suffix = database.suffixes.first().map_or("", |suffix| suffix.normal.as_str());
    let proxy =
        connections_by_name(&common.services, &format!("pbind {suffix}"), &settings).map_err(fault)?;
    Ok(Some(judged_elsewhere(common, (database, served), Accounts::Own(proxy), (PBIND_RETRIES, None))))
}

fn judged_elsewhere(
    common: &Arc<Common>,
    (database, served): (&Database, &Arc<ServedDatabase<LmdbStore>>),
    accounts: Accounts,
    (retries, hasher): (u32, Option<larix_engine::password::Hasher>),
) -> Arc<dyn Interceptor> {
    Arc::new(RemoteAuth {
        accounts,
        retries,
        root: database.effective_root(),
        clock: Arc::clone(&common.services.clock) as _,
        concluding: Arc::new(Concluding {
            directory: Arc::clone(&common.directory),
            served: Arc::clone(served),
            services: Arc::clone(&common.services),
            hasher,
            storing: Arc::default(),
        }),
    })
}

/// Ends binds that another server has judged.
struct Concluding {
    directory: Arc<Directory<LmdbStore>>,
    served: Arc<ServedDatabase<LmdbStore>>,
    services: Arc<Services>,
    /// How passwords are stored that were right (`remoteauth_store`); none: not at all.
    hasher: Option<larix_engine::password::Hasher>,
    /// Entries that are being given their password: two logins at once store one.
    storing: Arc<Mutex<HashSet<NormalDn>>>,
}

impl fmt::Debug for Concluding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concluding").field("stores", &self.hasher.is_some()).finish_non_exhaustive()
    }
}

impl Conclude for Concluding {
    fn conclude(&self, judged: RemoteVerdict, done: Done<Verdict>) {
        let RemoteVerdict { dn, shown, matched, password, policy_control, peer_name } = judged;
        let store = self.hasher.clone().map(|hasher| Store {
            hasher,
            password,
            dn: dn.clone(),
            peer_name,
            directory: Arc::clone(&self.directory),
            served: Arc::clone(&self.served),
            services: Arc::clone(&self.services),
            storing: Arc::clone(&self.storing),
        });
        let concluded = move |conclusion: BindConclusion| {
            let BindConclusion { result, controls, must_change_password, forward, .. } = conclusion;
            let succeeded = result.is_success();
            let verdict = Verdict {
                result,
                controls,
                must_change_password,
                shown: Some(shown),
                identity: None,
                forward,
            };
            match store.filter(|_| succeeded) {
                Some(store) if store.is_forwarded() => store.forward(verdict, done),
                // As in slapd, who binds finds the password stored.
                Some(store) => store.begin(AtEnd::new(move || done(verdict))),
                None => done(verdict),
            }
        };
        let chosen = self.directory.at(&self.served);
        if !chosen.judges_binds(&dn) {
            return concluded(BindConclusion::outright(matched));
        }
        let attempt = BindAttempt { dn, matched, policy_control, code: GivenCode::Missing };
        chosen.conclude_bind(attempt, Box::new(concluded));
    }
}

/// A password that was right, on its way to the entry.
struct Store {
    hasher: larix_engine::password::Hasher,
    password: Zeroizing<Vec<u8>>,
    dn: NormalDn,
    peer_name: String,
    directory: Arc<Directory<LmdbStore>>,
    served: Arc<ServedDatabase<LmdbStore>>,
    services: Arc<Services>,
    storing: Arc<Mutex<HashSet<NormalDn>>>,
}

impl Store {
    /// Whether a provider is to store it.
    fn is_forwarded(&self) -> bool {
        self.directory.at(&self.served).forwarded_password(&self.dn, b"").is_some()
    }

    /// Hands the hash to the verdict when the pool has time, for what hands it on to the provider. Without a place in the pool's queue
    /// another bind will do.
    fn forward(self, verdict: Verdict, done: Done<Verdict>) {
        let verdict = Arc::new(Mutex::new(Some(verdict)));
        let answered = Arc::clone(&verdict);
        let answer = AtEnd::new(move || {
            let verdict = answered.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(verdict) = verdict {
                done(verdict);
            }
        });
        let services = Arc::clone(&self.services);
        let source = services.passwords.source(&self.peer_name, self.dn.as_str());
        let _ = services.passwords.submit(source, move || {
            match self.hasher.hash(&self.password, &SystemRandom) {
                Ok(hash) => {
                    let forwarded = self.directory.at(&self.served).forwarded_password(&self.dn, &hash);
                    let mut verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner);
                    if let (Some(verdict), Some(forwarded)) = (verdict.as_mut(), forwarded) {
                        match verdict.forward.as_deref_mut() {
                            Some(forward) => forward.password = forwarded.password,
                            None => verdict.forward = Some(Box::new(forwarded)),
                        }
                    }
                }
                Err(error) => self.failed(&error.to_string()),
            }
            drop(answer);
        });
    }

    fn failed(&self, why: &str) {
        let shown = printable(self.dn.as_str());
        self.services
            .log
            .notice(format_args!("remoteauth: the password of \"{shown}\" is not stored: {why}"));
    }

    /// When the pool has time; without a place in its queue another bind will do. `then` is dropped at the end of it.
    fn begin(self, then: impl Send + 'static) {
        let is_first = self.storing.lock().unwrap_or_else(PoisonError::into_inner).insert(self.dn.clone());
        if !is_first {
            return;
        }
        let (storing, dn) = (Arc::clone(&self.storing), self.dn.clone());
        let then = (
            AtEnd::new(move || {
                storing.lock().unwrap_or_else(PoisonError::into_inner).remove(&dn);
            }),
            then,
        );
        let services = Arc::clone(&self.services);
        let source = services.passwords.source(&self.peer_name, self.dn.as_str());
        let _ = services.passwords.submit(source, move || {
            let services = Arc::clone(&self.services);
            let shown = printable(self.dn.as_str()).to_string();
            let failed = move |why: &str| {
                services
                    .log
                    .notice(format_args!("remoteauth: the password of \"{shown}\" is not stored: {why}"));
            };
            match self.hasher.hash(&self.password, &SystemRandom) {
                Ok(hash) => {
                    let stored = move |outcome: WriteOutcome| {
                        if !outcome.result.is_success() {
                            failed(&format!(
                                "{} {}",
                                outcome.result.code.0,
                                outcome.result.diagnostic.escape_debug()
                            ));
                        }
                        drop(then);
                    };
                    let chosen = self.directory.at(&self.served);
                    chosen.store_password(&self.dn, self.password, &hash, Box::new(stored));
                }
                Err(error) => failed(&error.to_string()),
            }
        });
    }
}
