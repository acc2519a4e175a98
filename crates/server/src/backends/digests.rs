//! Digests of what a database holds ([`larix_replication::digest`]), whichever store has it: for who has the `manage` privilege on the suffix
//! entry, which the rootdn has. They take the whole database to be read, so a thread of their own makes them, slice by slice; [`RUNNING_MAX`] of
//! them at once.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use larix_backend::{ExtendedAnswer, ExtendedOperation};
use larix_configuration::local_attributes;
use larix_engine::access::{Privilege, Subject};
use larix_engine::search::{Gate, GuardedEntry};
use larix_engine::{Database, Fault};
use larix_proto::{LdapResult, ResultCode};
use larix_replication::digest::{DigestRequest, Scanner};
use larix_schema::NormalDn;
use larix_store::Store;

/// Requests for digests that are worked on at once; more are answered busy.
const RUNNING_MAX: usize = 2;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of the [`RUNNING_MAX`] places.
pub(super) struct RunningSlot;

impl RunningSlot {
    /// # Errors
    /// All are taken.
    pub(super) fn take() -> Result<Self, LdapResult> {
        let next = |running: usize| (running < RUNNING_MAX).then_some(running + 1);
        match RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => Ok(Self),
            Err(_) => Err(LdapResult::with(ResultCode::BUSY, "other digests are being made")),
        }
    }
}

impl Drop for RunningSlot {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is asked for.
///
/// # Errors
/// It cannot be read, or is more than may be asked for at once.
pub(super) fn request(operation: &ExtendedOperation<'_>) -> Result<DigestRequest, LdapResult> {
    let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
    let value = operation.value.ok_or_else(|| protocol("request data expected".to_owned()))?;
    let request = DigestRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
    request.check().map_err(|text| protocol(text.to_owned()))?;
    Ok(request)
}

/// Digests of databases, on this thread.
pub(super) fn made<S: Store>(
    all: &[Arc<Database<S>>],
    request: &DigestRequest,
    base: NormalDn,
) -> ExtendedAnswer {
    let mut scanner = Scanner::new(request, base, local_attributes());
    let mut go_on = || {
        thread::yield_now();
        ControlFlow::Continue(())
    };
    match all.iter().try_for_each(|database| scanner.read(database, &mut go_on)) {
        Ok(()) => {
            let value = Some(scanner.finish().encode());
            ExtendedAnswer { value, ..LdapResult::success().into() }
        }
        Err(error) => LdapResult::with(ResultCode::OTHER, error.to_string()).into(),
    }
}

/// Whether this identity may manage the database, whose suffix the name is.
///
/// # Errors
/// It may not; the name is no suffix here; the suffix entry cannot be read.
pub(super) fn managed<S: Store>(
    database: &Database<S>,
    dn: &NormalDn,
    subject: &Subject,
) -> Result<(), LdapResult> {
    if database.suffix_of(dn).is_none() {
        return Err(ExtendedOperation::not_served());
    }
    if !may_manage(database, dn, subject).map_err(|fault| internal(&fault))? {
        let text = "this takes the manage privilege on the suffix entry";
        return Err(LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text));
    }
    Ok(())
}

fn may_manage<S: Store>(database: &Database<S>, dn: &NormalDn, subject: &Subject) -> Result<bool, Fault> {
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot)?;
    if view.policy.is_root(subject) {
        return Ok(true);
    }
    let Some(suffix) = database.suffix_of(dn) else { return Ok(false) };
    let Some(id) = view.resolve(&suffix.normal)?.and_then(|found| found.id) else { return Ok(false) };
    let Some(record) = view.record(id)? else { return Ok(false) };
    let seen = GuardedEntry::new(&view, view.reader(id, &record)?, Gate::new(&view.policy, subject));
    seen.allows_entry(Privilege::Manage)
}

pub(super) fn internal(fault: &Fault) -> LdapResult {
    LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}"))
}

/// # Errors
/// The system has no thread left.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), LdapResult> {
    let thread = thread::Builder::new().name("replica".to_owned()).spawn(work);
    thread.map(|_| ()).map_err(|error| LdapResult::with(ResultCode::BUSY, format!("no thread: {error}")))
}
