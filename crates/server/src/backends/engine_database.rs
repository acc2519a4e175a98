//! What all databases of the engine have in common, whichever store holds them: changes with passwords by way of the pool, a
//! compare, and what the root DSE says of them.

use std::sync::Arc;

use larix_backend::{Announcement, Backend, Changes, Context, Secret};
use larix_engine::access::Subject;
use larix_engine::compare::{self, CompareContext};
use larix_engine::controls::RequestControls;
use larix_engine::overlay::Interests;
use larix_engine::search::task::storage_failure;
use larix_engine::write::{Completion, WriteRequest};
use larix_engine::{
    ChosenDatabase, Database, DatabaseSettings, Directory, DnLocation, Fault, ServedDatabase,
};
use larix_proto::{CompareRequest, LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;

use super::Common;
use super::passwords::{Saslauthd, is_match};
use crate::password_pool::JobSource;
use crate::services::Services;

/// A database and the directory that it is part of, for jobs on other threads.
#[derive(Debug)]
pub(super) struct EngineDatabase<S: Store> {
    pub(super) directory: Arc<Directory<S>>,
    pub(super) served: Arc<ServedDatabase<S>>,
}

impl<S: Store> Clone for EngineDatabase<S> {
    fn clone(&self) -> Self {
        Self { directory: Arc::clone(&self.directory), served: Arc::clone(&self.served) }
    }
}

impl<S: Store> EngineDatabase<S> {
    pub(super) fn chosen(&self) -> ChosenDatabase<'_, S> {
        self.directory.at(&self.served)
    }

    /// Hands changes to the writer.
    pub(super) fn change(
        &self,
        common: &Common,
        changes: Changes,
        locate: &dyn Fn(&NormalDn) -> DnLocation,
        done: Completion,
    ) {
        match changes {
            Changes::One(request, target) => self.submit(common, request, target, locate, done),
            Changes::Together(requests) => self.chosen().submit_all(requests, locate, done),
        }
    }

    /// Hands a change to the writer; one with passwords by way of the pool, where they are compared and hashed, and by way of
    /// saslauthd where that alone can compare the old one.
    fn submit(
        &self,
        common: &Common,
        mut request: WriteRequest,
        target: Option<NormalDn>,
        locate: &dyn Fn(&NormalDn) -> DnLocation,
        done: Completion,
    ) {
        let chosen = self.chosen();
        let account = target.as_ref().filter(|_| chosen.has_password_work(&request.operation));
        let Some(account) = account else {
            return chosen.submit_at(request, target, locate, done);
        };
        let passwords = &common.services.passwords;
        let source = passwords.source(&request.subject.peer.peer_name, account.as_str());
        let (services, saslauthd) = (Arc::clone(&common.services), common.saslauthd());
        let (database, mut done) = (self.clone(), Some(done));
        let queued = passwords.submit_made(source, || {
            let done = done.take();
            move || {
                database.chosen().work_on_passwords(&mut request);
                let Some(done) = done else { return };
                let unasked = request.passwords.as_ref().map(|work| work.take_unasked()).unwrap_or_default();
                match saslauthd.filter(|_| !unasked.is_empty()) {
                    Some(saslauthd) => {
                        database.ask_and_submit(
                            (&*services, source),
                            (saslauthd, unasked),
                            (request, target),
                            done,
                        );
                    }
                    // What brings passwords names no other entry.
                    None => database.chosen().submit_at(request, target, &|_| DnLocation::Here, done),
                }
            }
        });
        if let (Err(_), Some(done)) = (queued, done) {
            done(too_many_passwords().into());
        }
    }

    /// Asks saslauthd about stored values and old passwords, and hands the change to the writer. That takes no thread from those
    /// that compute.
    fn ask_and_submit(
        self,
        (services, source): (&Services, JobSource),
        (saslauthd, unasked): (Saslauthd, Vec<(Secret, Secret)>),
        (mut request, target): (WriteRequest, Option<NormalDn>),
        done: Completion,
    ) {
        let mut done = Some(done);
        let queued = services.askers.submit_made(source, || {
            let done = done.take();
            move || {
                if let Some(work) = &request.passwords {
                    for (stored, old) in &unasked {
                        work.learn(stored, old, is_match(stored, old, Some(&saslauthd)));
                    }
                }
                self.chosen().work_on_passwords(&mut request);
                if let Some(done) = done {
                    self.chosen().submit_at(request, target, &|_| DnLocation::Here, done);
                }
            }
        });
        if let (Err(_), Some(done)) = (queued, done) {
            done(too_many_passwords().into());
        }
    }
}

/// What is answered where the pool takes no more work.
pub(super) fn too_many_passwords() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "too many passwords wait to be hashed")
}

/// What is answered where the store cannot be read; the log says why.
pub(super) fn failure(services: &Services, fault: &Fault) -> LdapResult {
    services.log.notice(format_args!("search failed: {fault}"));
    storage_failure(fault)
}

/// Where a name is, by the router's choice; `is_own` knows the database's own backend.
pub(super) fn locate(
    context: &Context<'_>,
    dn: &NormalDn,
    is_own: impl FnOnce(&dyn Backend) -> bool,
) -> DnLocation {
    match context.router.backend(dn) {
        Some(backend) if is_own(backend) => DnLocation::Here,
        Some(_) => DnLocation::Elsewhere,
        None => DnLocation::Nowhere,
    }
}

/// What came of a compare, as far as the entry alone decides; and whether an overlay may say that the value is a code.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn compare<S: Store>(
    database: &Database<S>,
    (subject, controls): (&Subject, &RequestControls),
    default_referrals: &[String],
    (dn, request): (&NormalDn, &CompareRequest<'_>),
) -> Result<(LdapResult, bool), Fault> {
    let snapshot = database.snapshot_for(&[dn])?;
    let view = database.view(&snapshot)?;
    let has_codes = view.settings.overlays.want(Interests::SECOND_FACTOR);
    let context = CompareContext { controls, subject, default_referrals };
    Ok((compare::compare(&view, &context, dn, request), has_codes))
}

/// Says what the root DSE shows of a database.
pub(super) fn announce(settings: &DatabaseSettings, announced: &mut Announcement) {
    let suffixes = || settings.suffixes.iter().map(|suffix| suffix.text.clone());
    if !settings.hidden && !settings.subordinate {
        announced.naming_contexts.extend(suffixes());
    }
    if settings.overlays.want(Interests::DYNAMIC_OBJECTS) {
        announced.dynamic_subtrees.extend(suffixes());
    }
    for control in settings.overlays.iter().flat_map(|overlay| overlay.listed_controls()) {
        if !announced.database_controls.contains(control) {
            announced.database_controls.push(control);
        }
    }
}
