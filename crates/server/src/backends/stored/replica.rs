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
use larix_configuration::local_attributes;
use larix_engine::access::{Privilege, Subject};
use larix_engine::csn::Csn;
use larix_engine::replica::{self, ConflictKind, ConflictRecord, KeptSide};
use larix_engine::search::{Gate, Seen};
use larix_engine::{Fault, Served};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_replication::digest::{self, DigestRequest, Scanner};
use larix_replication::{CONFLICTS_OID, ConflictsRequest, RETIRE_OID, RetireRequest, SID_MAX};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;
use serde_json::{Value, json};

use super::Stored;
use crate::secrets::is_secret;
use larix_backend::{Context, Extended, ExtendedAnswer, Later, Pending, Reply};

/// Requests for digests that are worked on at once; more are answered busy.
const RUNNING_MAX: usize = 2;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Conflicts in one answer.
const CONFLICTS_MAX: usize = 100;

/// One of the [`RUNNING_MAX`] places.
struct RunningSlot;

impl RunningSlot {
    fn take() -> Option<Self> {
        let next = |running: usize| (running < RUNNING_MAX).then_some(running + 1);
        RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).ok().map(|_| Self)
    }
}

impl Drop for RunningSlot {
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

impl Stored {
    /// # Errors
    /// What is not one of these, or not for this requester.
    pub(super) fn replica_operation(
        &self,
        context: &Context<'_>,
        asked: &Extended<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Result<Reply<ExtendedAnswer>, LdapResult> {
        let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        let value = asked.value.ok_or_else(|| protocol("request data expected".to_owned()))?;
        match asked.oid {
            CONFLICTS_OID => {
                let request = ConflictsRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
                self.managed(context, asked.dn)?;
                self.conflicts(&request).map(Reply::Now)
            }
            digest::OID => {
                let request = DigestRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
                request.check().map_err(|text| protocol(text.to_owned()))?;
                self.managed(context, asked.dn)?;
                self.digests(context, request, asked.dn, later)
            }
            RETIRE_OID => {
                let request = RetireRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
                if request.server_id > SID_MAX {
                    return Err(protocol("a server id is 0 to 4095".to_owned()));
                }
                self.managed(context, asked.dn)?;
                let (served, done) = (Arc::clone(&self.served), later());
                spawn(move || done(served.retire_server_id(request.server_id).into()))?;
                Ok(Reply::Later(Pending::default()))
            }
            _ => Err(Extended::unsupported()),
        }
    }

    fn conflicts(&self, asked: &ConflictsRequest) -> Result<ExtendedAnswer, LdapResult> {
        let found = || -> Result<Vec<ConflictRecord>, Fault> {
            let snapshot = self.served.database().store().snapshot()?;
            replica::conflicts(&snapshot, asked.after, CONFLICTS_MAX)
        };
        let found = found().map_err(|fault| internal(&fault))?;
        let text = Value::Array(found.iter().map(conflict_json).collect()).to_string();
        Ok(ExtendedAnswer { value: Some(text.into_bytes()), ..LdapResult::success().into() })
    }

    fn digests(
        &self,
        context: &Context<'_>,
        asked: DigestRequest,
        base: &NormalDn,
        later: Later<'_, ExtendedAnswer>,
    ) -> Result<Reply<ExtendedAnswer>, LdapResult> {
        let mut all = vec![Arc::clone(self.served.database())];
        let below = context.router.glued_below(base, Scope::Subtree);
        let below = below.into_iter().filter_map(|(backend, ..)| Self::of(backend));
        all.extend(below.map(|stored| Arc::clone(stored.served.database())));
        if all.iter().any(|database| database.is_filling()) {
            let text = "the first content is coming in: there is nothing to compare yet";
            return Err(LdapResult::with(ResultCode::BUSY, text));
        }
        let busy = || LdapResult::with(ResultCode::BUSY, "other digests are being made");
        let place = RunningSlot::take().ok_or_else(busy)?;
        let (base, done) = (base.clone(), later());
        spawn(move || {
            let _place = place;
            let mut scanner = Scanner::new(&asked, base, local_attributes());
            let mut go_on = || {
                thread::yield_now();
                ControlFlow::Continue(())
            };
            done(match all.iter().try_for_each(|database| scanner.read(database, &mut go_on)) {
                Ok(()) => {
                    let value = Some(scanner.finish().encode());
                    ExtendedAnswer { value, ..LdapResult::success().into() }
                }
                Err(error) => LdapResult::with(ResultCode::OTHER, error.to_string()).into(),
            });
        })?;
        Ok(Reply::Later(Pending::default()))
    }

    /// Whether the requester may manage this database, whose suffix the name is.
    fn managed(&self, context: &Context<'_>, dn: &NormalDn) -> Result<(), LdapResult> {
        if self.served.database().suffix_of(dn).is_none() {
            return Err(Extended::not_served());
        }
        if !may_manage(&self.served, dn, context.subject).map_err(|fault| internal(&fault))? {
            let text = "this takes the manage privilege on the suffix entry";
            return Err(LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text));
        }
        Ok(())
    }
}

fn internal(fault: &Fault) -> LdapResult {
    LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}"))
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), LdapResult> {
    let thread = thread::Builder::new().name("replica".to_owned()).spawn(work);
    thread.map(|_| ()).map_err(|error| LdapResult::with(ResultCode::BUSY, format!("no thread: {error}")))
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
