//! Three extended operations for those who look after replicas: digests of what a database holds
//! ([`larix_replication::digest`]), what lost in conflicts, and removing the contextCSN of a server that is gone.
//!
//! All need the `manage` privilege on the suffix entry, which the rootdn has. Digests read the whole database, so a
//! thread of their own makes them, slice by slice; [`RUNNING_MAX`] of them at once.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larix_engine::access::{Privilege, Subject};
use larix_engine::controls::RequestControls;
use larix_engine::csn::Csn;
use larix_engine::replica::{self, ConflictKind, ConflictRecord, KeptSide};
use larix_engine::search::{Gate, Seen};
use larix_engine::{Fault, Served};
use larix_proto::{Controls, ExtendedRequest, LdapResult, ResultCode};
use larix_replication::digest::{self, DigestRequest, Scanner};
use larix_replication::{CONFLICTS_OID, ConflictsRequest, RETIRE_OID, RetireRequest, SID_MAX};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;
use serde_json::{Value, json};

use crate::connection::Started;
use crate::databases::Databases;
use crate::dispatch::{Begun, Completion, Dispatcher, Running};
use crate::operation_rules::Restricted;
use crate::secrets::is_secret;

/// Requests for digests that are worked on at once; more are answered busy.
const RUNNING_MAX: usize = 2;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Conflicts in one answer.
const CONFLICTS_MAX: usize = 100;

/// The answer to an extended request that was worked on elsewhere.
#[derive(Debug)]
pub struct ExtendedOutcome {
    pub result: LdapResult,
    pub value: Option<Vec<u8>>,
}

impl From<LdapResult> for ExtendedOutcome {
    fn from(result: LdapResult) -> Self {
        Self { result, value: None }
    }
}

/// One of the [`RUNNING_MAX`] places.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let next = |running: usize| (running < RUNNING_MAX).then_some(running + 1);
        RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A conflict as JSON has it: the answer is an array of these, as text.
fn conflict_json(record: &ConflictRecord) -> Value {
    let note = &record.note;
    let csn = |csn: Option<Csn>| csn.map(|csn| csn.text());
    let lost: serde_json::Map<String, Value> = note
        .lost
        .iter()
        .map(|attribute| {
            let secret = is_secret(&attribute.description);
            let values = attribute.values.iter().map(|value| match std::str::from_utf8(value) {
                _ if secret => Value::from("(not shown)"),
                Ok(text) => Value::from(text),
                Err(_) => json!({ "base64": STANDARD.encode(value) }),
            });
            (attribute.description.clone(), Value::Array(values.collect()))
        })
        .collect();
    let rule = match note.kind {
        ConflictKind::Modify => "modify",
        ConflictKind::Name => "name",
        ConflictKind::Delete => "delete",
        ConflictKind::Loop => "loop",
    };
    json!({
        "number": record.number,
        "at": record.at.generalized_micros(),
        "rule": rule,
        "kept": if note.kept == KeptSide::Ours { "what was here" } else { "what came" },
        "dn": note.dn,
        "winner": { "entryUUID": note.winner_uuid.to_string(), "csn": csn(note.winner_csn) },
        "loser": { "entryUUID": note.loser_uuid.to_string(), "csn": csn(note.loser_csn) },
        "lost": lost,
    })
}

impl Dispatcher {
    pub(crate) fn conflicts(
        &self,
        begun: &Begun,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Started<Running>, LdapResult> {
        let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        let value = request.value.ok_or_else(|| protocol("request data expected".to_owned()))?;
        let asked = ConflictsRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
        self.log_operation(begun, format_args!("CONFLICTS base=\"{}\"", crate::log::printable(&asked.base)));
        self.permitted(&asked.base, Restricted::Extended(CONFLICTS_OID), sent)?;
        let subject = self.subject_for(controls)?;
        let databases = self.server.databases();
        let (_, served) = managed(&databases, &asked.base, &subject)?;
        let found = || -> Result<Vec<ConflictRecord>, Fault> {
            let snapshot = served.database().store().snapshot()?;
            replica::conflicts(&snapshot, asked.after, CONFLICTS_MAX)
        };
        let found =
            found().map_err(|f| LdapResult::with(ResultCode::OTHER, format!("internal error: {f}")))?;
        let text = Value::Array(found.iter().map(conflict_json).collect()).to_string();
        self.answer_extended(begun, &LdapResult::success(), Some(text.as_bytes()), out);
        Ok(Started::Answered)
    }

    pub(crate) fn digests(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        let value = request.value.ok_or_else(|| protocol("request data expected".to_owned()))?;
        let asked = DigestRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
        self.log_operation(&begun, format_args!("DIGESTS base=\"{}\"", crate::log::printable(&asked.base)));
        asked.check().map_err(|text| protocol(text.to_owned()))?;
        self.permitted(&asked.base, Restricted::Extended(digest::OID), sent)?;
        let subject = self.subject_for(controls)?;
        let databases = self.server.databases();
        let (base, served) = managed(&databases, &asked.base, &subject)?;
        let mut all = vec![Arc::clone(served.database())];
        all.extend(databases.directory().glued_below(&base).into_iter().map(|s| Arc::clone(s.database())));
        drop(databases);
        if all.iter().any(|database| database.is_filling()) {
            let text = "the first content is coming in: there is nothing to compare yet";
            return Err(LdapResult::with(ResultCode::BUSY, text));
        }
        let busy = || LdapResult::with(ResultCode::BUSY, "other digests are being made");
        let place = Place::take().ok_or_else(busy)?;
        let completer = self.completer(&begun);
        let work = move || {
            let _place = place;
            let mut scanner = Scanner::new(&asked, base);
            let mut go_on = || {
                thread::yield_now();
                ControlFlow::Continue(())
            };
            let done = all.iter().try_for_each(|database| scanner.read(database, &mut go_on));
            let outcome = match done {
                Ok(()) => {
                    ExtendedOutcome { result: LdapResult::success(), value: Some(scanner.finish().encode()) }
                }
                Err(error) => LdapResult::with(ResultCode::OTHER, error.to_string()).into(),
            };
            completer.complete(Completion::Extended(Box::new(outcome)));
        };
        spawn(work)?;
        self.wait_for(begun);
        Ok(Started::Waiting)
    }

    pub(crate) fn retire_server_id(
        &mut self,
        begun: Begun,
        request: &ExtendedRequest<'_>,
        controls: &RequestControls,
        sent: Controls<'_>,
    ) -> Result<Started<Running>, LdapResult> {
        let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        let value = request.value.ok_or_else(|| protocol("request data expected".to_owned()))?;
        let asked = RetireRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
        self.log_operation(
            &begun,
            format_args!(
                "RETIRE base=\"{}\" sid={:03x}",
                crate::log::printable(&asked.base),
                asked.server_id
            ),
        );
        if asked.server_id > SID_MAX {
            return Err(protocol("a server id is 0 to 4095".to_owned()));
        }
        self.permitted(&asked.base, Restricted::Extended(RETIRE_OID), sent)?;
        let subject = self.subject_for(controls)?;
        let databases = self.server.databases();
        let (_, served) = managed(&databases, &asked.base, &subject)?;
        let served = Arc::clone(served);
        drop(databases);
        let completer = self.completer(&begun);
        spawn(move || {
            let result = served.retire_server_id(asked.server_id);
            completer.complete(Completion::Extended(Box::new(result.into())));
        })?;
        self.wait_for(begun);
        Ok(Started::Waiting)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), LdapResult> {
    let thread = thread::Builder::new().name("replica".to_owned()).spawn(work);
    thread.map(|_| ()).map_err(|error| LdapResult::with(ResultCode::BUSY, format!("no thread: {error}")))
}

/// The database that holds this name, for a subject that may manage it.
fn managed<'d>(
    databases: &'d Databases,
    base: &str,
    subject: &Subject,
) -> Result<(NormalDn, &'d Arc<Served<LmdbStore>>), LdapResult> {
    let dn = databases
        .schema()
        .parse_dn(base)
        .map_err(|_| LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN"))?;
    let served =
        databases.directory().select(&dn).filter(|served| served.database().suffix_of(&dn).is_some());
    let served =
        served.ok_or_else(|| LdapResult::with(ResultCode::NO_SUCH_OBJECT, "no database serves this name"))?;
    let storage = |fault: Fault| LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}"));
    if !may_manage(served, &dn, subject).map_err(storage)? {
        let text = "this takes the manage privilege on the suffix entry";
        return Err(LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text));
    }
    Ok((dn, served))
}

fn may_manage(served: &Served<LmdbStore>, dn: &NormalDn, subject: &Subject) -> Result<bool, Fault> {
    let database = served.database();
    let policy = database.policy();
    if policy.is_root(subject) {
        return Ok(true);
    }
    let Some(suffix) = database.suffix_of(dn) else { return Ok(false) };
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot)?;
    let Some(id) = view.resolve(&suffix.normal)?.and_then(|found| found.id) else { return Ok(false) };
    let Some(record) = view.record(id)? else { return Ok(false) };
    let seen = Seen::new(&view, view.reader(id, &record)?, Gate::new(&policy, subject));
    seen.allows_entry(Privilege::Manage)
}
