//! `overlay translucent`: what lays stored values over the entries of another server, with the connections of the server.

use std::sync::Arc;

use larix_backend::{
    Alone, Backend, Bind, Changes, Context, Done, Interceptor, PasswordChange, PasswordChangeOutcome, Proof,
    Reply, Search, Verdict,
};
use larix_configuration::{ConfigError, Database, Overlay};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::budget::RequestLimits;
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::search::internal;
use larix_engine::search::limits::{self, Effective, RequestedLimits};
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteRequest};
use larix_engine::{DatabaseHandle, DnLocation, Fault, ServedDatabase};
use larix_proto::{LdapResult, Scope};
use larix_proxy::ProxyBackend;
use larix_proxy::translucent::{
    LocalBind, LocalEntries, LocalEntry, LocalPasswordChange, StoredEntries, Translucent,
};
use larix_schema::{BoundFilter, NormalDn};
use larix_store::Store as _;
use larix_store::lmdb::LmdbStore;

use super::engine_database::failure;
use super::proxied::connections_by_name;
use super::{Common, StoredBackend, search_limits};
use crate::services::Services;

/// The overlay in front of a database; none if it is another one.
///
/// # Errors
/// Settings of TLS that cannot be used; a database that is not stored here; no thread is left.
pub(crate) fn translucent(
    common: &Arc<Common>,
    (database, served, policy): (&Database, Option<&Arc<ServedDatabase<LmdbStore>>>, &Arc<AccessPolicy>),
    overlay: &Overlay,
) -> Result<Option<Arc<dyn Interceptor>>, ConfigError> {
    let schema = &common.config.schema;
    let Some(settings) = overlay.translucent(schema)? else { return Ok(None) };
    let fault = |why: String| ConfigError::new(overlay.origin.clone(), why);
    let Some(served) = served else {
        return Err(fault("overlay translucent stands on a database mdb".to_owned()));
    };
    let suffix = database.suffixes.first().map_or("", |suffix| suffix.normal.as_str());
    let name = format!("translucent {suffix}");
    let open_policy = Arc::new(AccessPolicy::open(Arc::clone(schema), None));
    let remote = settings.server.as_ref().map(|server| {
        Ok::<_, ConfigError>(ProxyBackend {
            proxy: connections_by_name(&common.services, &name, server).map_err(fault)?,
            schema: Arc::clone(schema),
            policy: Arc::clone(policy),
            entry_policy: Arc::clone(&open_policy),
            suffixes: Vec::new(),
        })
    });
    let services = Arc::clone(&common.services);
    let reader = Arc::new(Reader { served: DatabaseHandle::new(served), services });
    let stored = StoredBackend {
        served: Arc::clone(served),
        common: Arc::clone(common),
        limits: database.shared.limits.clone(),
    };
    Ok(Some(Arc::new(Translucent {
        remote: remote.transpose()?,
        local: Arc::new(Local { stored, reader }),
        schema: Arc::clone(schema),
        policy: Arc::clone(policy),
        open_policy,
        suffixes: database.suffixes.iter().map(|suffix| suffix.normal.clone()).collect(),
        settings: settings.behavior,
        clock: Arc::clone(&common.services.clock) as _,
    })))
}

/// The database in which the parts are stored.
#[derive(Debug)]
struct Local {
    stored: StoredBackend,
    reader: Arc<Reader>,
}

/// Reads its entries.
#[derive(Debug)]
struct Reader {
    served: DatabaseHandle<LmdbStore>,
    services: Arc<Services>,
}

impl Reader {
    fn find(
        database: &larix_engine::Database<LmdbStore>,
        dn: &NormalDn,
    ) -> Result<Option<LocalEntry>, Fault> {
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True).of_what_is_stored();
        let mut stored = None;
        internal::search(&view, &query, &mut |found| {
            let Entry { dn, attributes } = found.owned()?;
            let mut entry = Entry::new(dn);
            for attribute in attributes {
                let mut values = attribute.values;
                // Values of a large set stand elsewhere.
                if values.is_empty() {
                    found.source().visit_exact(&attribute.description, &mut |value| {
                        values.push(value.to_vec());
                        true
                    })?;
                }
                entry.attributes.push(EntryAttribute::new(attribute.description, values));
            }
            stored = Some(LocalEntry { id: found.id(), entry });
            Ok(false)
        })?;
        Ok(stored)
    }
}

impl StoredEntries for Reader {
    fn entry(&self, dn: &NormalDn) -> Result<Option<LocalEntry>, LdapResult> {
        let database = self.served.database()?;
        Self::find(&database, dn).map_err(|fault| failure(&self.services, &fault))
    }
}

impl Local {
    /// What a request is carried out under that has waited.
    fn context<'a>(&'a self, subject: &'a Arc<Subject>, began: Monotonic) -> Context<'a> {
        Context { subject, router: &Alone, client: &Alone, clock: &*self.stored.common.services.clock, began }
    }

    fn effective(&self, subject: &Subject, search: &Search<'_>) -> Result<Effective, LdapResult> {
        let database = self.stored.served.database();
        let failed = |fault: Fault| failure(&self.stored.common.services, &fault);
        let snapshot = database.store().snapshot().map_err(|error| failed(error.into()))?;
        let view = database.view(&snapshot).map_err(failed)?;
        let subject_limits =
            search_limits::of_search(&view, &self.stored.limits, subject, search.base).map_err(failed)?;
        let page = search.controls.paged.as_ref().map(|page| (page.size, 0));
        let requested =
            RequestedLimits { size: search.request.size_limit, time: search.request.time_limit, page };
        let effective = limits::effective(subject_limits.as_ref(), requested)?;
        // Of pages the remote server counts what came before.
        Ok(Effective { size: effective.size.filter(|_| page.is_none()), ..effective })
    }
}

impl StoredEntries for Local {
    fn entry(&self, dn: &NormalDn) -> Result<Option<LocalEntry>, LdapResult> {
        self.reader.entry(dn)
    }
}

impl LocalEntries for Local {
    fn reader(&self) -> Arc<dyn StoredEntries> {
        Arc::clone(&self.reader) as _
    }

    fn admit(&self, subject: &Subject, search: &Search<'_>) -> Result<Effective, LdapResult> {
        self.request_limits().check_search(&search.request, &search.controls)?;
        self.effective(subject, search)
    }

    fn request_limits(&self) -> RequestLimits {
        self.stored.served.database().current_settings().request_limits
    }

    fn root(&self) -> Arc<Subject> {
        self.stored.served.root_subject()
    }

    fn change(&self, mut requests: Vec<WriteRequest>, done: Completion) {
        let common = &self.stored.common;
        let changes = match (requests.pop(), requests.is_empty()) {
            (Some(only), true) => {
                let target = common.config.schema.parse_dn(only.operation.target()).ok();
                Changes::One(only, target)
            }
            (Some(last), false) => {
                requests.push(last);
                Changes::Together(requests)
            }
            (None, _) => return done(LdapResult::success().into()),
        };
        self.stored.database().change(common, changes, &|_| DnLocation::Here, done);
    }

    fn bind(&self, bind: LocalBind, done: Done<Verdict>) {
        let LocalBind { dn, password, policy_control, by_mechanism, controls, subject, began } = bind;
        let context = self.context(&subject, began);
        let proof = Proof::Password(&password);
        let bind = Bind { dn: &dn, proof, by_mechanism, policy_control, controls: &controls };
        let mut done = Some(done);
        let reply =
            self.stored.bind(&context, &bind, &mut || done.take().unwrap_or_else(|| Box::new(|_| {})));
        if let (Reply::Now(verdict), Some(done)) = (reply, done) {
            done(verdict);
        }
    }

    fn modify_password(&self, change: LocalPasswordChange, done: Done<PasswordChangeOutcome>) {
        let LocalPasswordChange { dn, target, new, policy_control, subject, began } = change;
        let context = self.context(&subject, began);
        // There is no old password to compare.
        let proof_begins = || Ok(());
        let change = PasswordChange {
            dn: &dn,
            target,
            old: None,
            new,
            policy_control,
            hops: 0,
            proof_begins: &proof_begins,
        };
        let mut done = Some(done);
        let mut later = || done.take().unwrap_or_else(|| Box::new(|_| {}));
        let reply = Backend::modify_password(&self.stored, &context, change, &mut later);
        if let (Reply::Now(changed), Some(done)) = (reply, done) {
            done(changed);
        }
    }
}
