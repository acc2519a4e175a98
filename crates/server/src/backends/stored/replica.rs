//! Three extended operations for those who look after replicas: digests of what a database holds
//! ([`larix_replication::digest`]), what lost in conflicts, and removing the contextCSN of a server that is gone.
//!
//! All need the `manage` privilege on the suffix entry, which the rootdn has; but for conflicts, on those of glued databases, too.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larix_engine::access::Subject;
use larix_engine::csn::Csn;
use larix_engine::replica::{self, ConflictKind, ConflictRecord, KeptSide};
use larix_engine::{Fault, ServedDatabase};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_replication::digest::{self, DigestRequest};
use larix_replication::{CONFLICTS_OID, ConflictsRequest, RETIRE_OID, RetireRequest, SID_MAX};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;
use serde_json::{Value, json};

use super::StoredBackend;
use crate::backends::digests::{self, RunningSlot, internal, spawn};
use crate::secrets::is_secret;
use larix_backend::{Context, ExtendedAnswer, ExtendedOperation, Later, PendingAnswer, Reply};

/// Conflicts in one answer.
const CONFLICTS_MAX: usize = 100;

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

/// Whether the requester may manage a database that is glued below another one, too.
///
/// # Errors
/// It names the database.
fn managed_below(served: &ServedDatabase<LmdbStore>, subject: &Subject) -> Result<(), LdapResult> {
    let settings = served.database().settings();
    let Some(suffix) = settings.suffixes.first() else { return Ok(()) };
    digests::managed(served.database(), &suffix.normal, subject).map_err(|refused| {
        let text = format!("nothing was done: {:?} is glued below, and {}", suffix.text, refused.diagnostic);
        LdapResult::with(refused.code, text)
    })
}

/// Has each of these databases forget a server that is gone. It is enough that one of them knows it: one contextCSN is shown for all.
fn retired(databases: &[Arc<ServedDatabase<LmdbStore>>], server_id: u16) -> LdapResult {
    let (mut is_known, mut unknown) = (false, None);
    for served in databases {
        let result = served.retire_server_id(server_id);
        match result.code {
            ResultCode::SUCCESS => is_known = true,
            ResultCode::NO_SUCH_ATTRIBUTE => unknown = Some(result),
            _ => return result,
        }
    }
    unknown.filter(|_| !is_known).unwrap_or_else(LdapResult::success)
}

fn digests(
    databases: &[Arc<ServedDatabase<LmdbStore>>],
    request: DigestRequest,
    base: &NormalDn,
    later: Later<'_, ExtendedAnswer>,
) -> Result<Reply<ExtendedAnswer>, LdapResult> {
    let all: Vec<_> = databases.iter().map(|served| Arc::clone(served.database())).collect();
    if all.iter().any(|database| database.is_filling()) {
        let text = "the first content is coming in: there is nothing to compare yet";
        return Err(LdapResult::with(ResultCode::BUSY, text));
    }
    let place = RunningSlot::take()?;
    let (base, done) = (base.clone(), later());
    spawn(move || {
        let answer = digests::made(&all, &request, base);
        drop(place);
        done(answer);
    })?;
    Ok(Reply::Later(PendingAnswer::default()))
}

impl StoredBackend {
    /// # Errors
    /// What is not one of these, or not for this requester.
    pub(super) fn replica_operation(
        &self,
        context: &Context<'_>,
        operation: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Result<Reply<ExtendedAnswer>, LdapResult> {
        let protocol = |text: String| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        let value = operation.value.ok_or_else(|| protocol("request data expected".to_owned()))?;
        match operation.oid {
            CONFLICTS_OID => {
                let request = ConflictsRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
                self.managed(context, operation.dn)?;
                self.conflicts(&request).map(Reply::Now)
            }
            digest::OID => {
                let request = digests::request(operation)?;
                let databases = self.managed_with_glued(context, operation.dn)?;
                digests(&databases, request, operation.dn, later)
            }
            RETIRE_OID => {
                let request = RetireRequest::decode(value).map_err(|error| protocol(error.to_string()))?;
                if request.server_id > SID_MAX {
                    return Err(protocol("a server id is 0 to 4095".to_owned()));
                }
                let databases = self.managed_with_glued(context, operation.dn)?;
                let done = later();
                spawn(move || done(retired(&databases, request.server_id).into()))?;
                Ok(Reply::Later(PendingAnswer::default()))
            }
            _ => Err(ExtendedOperation::unsupported()),
        }
    }

    fn conflicts(&self, request: &ConflictsRequest) -> Result<ExtendedAnswer, LdapResult> {
        let found = || -> Result<Vec<ConflictRecord>, Fault> {
            let snapshot = self.served.database().store().snapshot()?;
            replica::conflicts(&snapshot, request.after, CONFLICTS_MAX)
        };
        let found = found().map_err(|fault| internal(&fault))?;
        let text = Value::Array(found.iter().map(conflict_json).collect()).to_string();
        Ok(ExtendedAnswer { value: Some(text.into_bytes()), ..LdapResult::success().into() })
    }

    /// This database, whose suffix the name is, and those that are glued below it.
    ///
    /// # Errors
    /// The requester may not manage one of them: each has access rules of its own.
    fn managed_with_glued(
        &self,
        context: &Context<'_>,
        dn: &NormalDn,
    ) -> Result<Vec<Arc<ServedDatabase<LmdbStore>>>, LdapResult> {
        self.managed(context, dn)?;
        let mut databases = vec![Arc::clone(&self.served)];
        for (backend, ..) in context.router.glued_below(dn, Scope::Subtree) {
            let Some(stored) = Self::of(backend) else { continue };
            managed_below(&stored.served, context.subject)?;
            databases.push(Arc::clone(&stored.served));
        }
        Ok(databases)
    }

    /// Whether the requester may manage this database, whose suffix the name is.
    fn managed(&self, context: &Context<'_>, dn: &NormalDn) -> Result<(), LdapResult> {
        digests::managed(self.served.database(), dn, context.subject)
    }
}
