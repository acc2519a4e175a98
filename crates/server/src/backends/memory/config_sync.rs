//! cn=config as a provider's content (RFC 4533): its entries, and what becomes of them with each generation.
//!
//! The tree is small and whole in memory: a refresh names all entries, and a change is what differs between two
//! generations.

use std::collections::BTreeMap;
use std::sync::Arc;

use larix_configuration::{Config, Database};
use larix_engine::access::Subject;
use larix_engine::csn::Csn;
use larix_engine::entry::Entry;
use larix_engine::log::{CsnVector, Follower};
use larix_engine::search::task::Budget;
use larix_proto::control::{EntryState, SyncDone, SyncState};
use larix_proto::encode::EntryEncoder;
use larix_proto::extended::SyncInfo;
use larix_proto::{ControlBuf, ControlValue, FilterBuf, LdapResult, MessageId, ResultCode, Scope, encode};
use larix_replication::Cookie;
use larix_replication::provider::{ConsumerRequest, Decision, decide};
use larix_schema::NormalDn;
use uuid::Uuid;

use super::config::entries;
use crate::services::{ConfigurationInForce, Services};
use larix_backend::memory_tree::{MemoryTree, SyncSelection};
use larix_backend::{Cursor, Effort, Search, StepOutcome};

/// entryUUIDs in one message.
const TOGETHER: usize = 1_000;
/// What each server computes, or keeps for itself.
const OWN: [&str; 4] = ["contextCSN", "entryDN", "subschemaSubentry", "hasSubordinates"];

/// A consumer's search below cn=config.
#[derive(Debug)]
pub(super) struct ConfigSearch {
    consumer: ConsumerRequest,
    subject: Arc<Subject>,
    base: NormalDn,
    scope: Scope,
    filter: FilterBuf,
    attributes: Vec<String>,
    types_only: bool,
    message: MessageId,
    /// The configuration that was looked at last, and what the consumer has of it: entryCSNs and names.
    last_config: Option<Arc<Config>>,
    has: BTreeMap<Uuid, (Option<Csn>, String)>,
    services: Arc<Services>,
    follower: Option<Arc<Follower>>,
    sent: u64,
}

/// Whether the configuration has its own content provided.
pub(super) fn is_provided(config: &Config) -> bool {
    let database = config.databases.iter().find(|database| database.kind.is_config());
    database.is_some_and(Database::provides_content)
}

impl ConfigSearch {
    /// None without the control.
    pub(super) fn new(services: &Arc<Services>, subject: &Arc<Subject>, search: Search<'_>) -> Option<Self> {
        let Search { request, base, controls, message } = search;
        Some(Self {
            consumer: ConsumerRequest::new(controls.sync.as_ref()?),
            subject: Arc::clone(subject),
            base: base.clone(),
            scope: request.scope,
            filter: request.filter.to_owned(),
            attributes: request.attributes.iter().map(str::to_owned).collect(),
            types_only: request.types_only,
            message,
            last_config: None,
            has: BTreeMap::new(),
            services: Arc::clone(services),
            follower: None,
            sent: 0,
        })
    }

    /// What is sent now, and what is waited for.
    fn go_on(&mut self, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(follower) = &self.follower {
            follower.looks();
        }
        let done = |result| StepOutcome::Done(result, Vec::new());
        let in_force = self.services.configuration_in_force.load_full();
        let Some(in_force) = in_force.filter(|in_force| is_provided(&in_force.config)) else {
            let text = "the content is no longer provided";
            return done(LdapResult::with(ResultCode::UNAVAILABLE, text));
        };
        let config = Arc::clone(&in_force.config);
        let is_first = self.last_config.is_none();
        if self.last_config.as_ref().is_some_and(|last_config| Arc::ptr_eq(last_config, &config)) {
            return StepOutcome::Waiting;
        }
        let context = config.context_csns();
        let now = match self.look(&in_force) {
            Ok(now) => now,
            Err(result) => return done(result),
        };
        let server_id = config.server_id();
        let text = cookie(self.consumer.rid, server_id, context.as_slice());
        self.last_config = Some(config);
        if is_first {
            return self.refresh(now, &context, (server_id, &text), &in_force, out);
        }
        self.changes(now, &in_force, out);
        encode::intermediate(
            out,
            self.message,
            Some(SyncInfo::OID),
            Some(&SyncInfo::NewCookie(text.as_bytes()).encode()),
            &[],
        );
        StepOutcome::Waiting
    }

    /// The entries that the consumer may have, superiors first.
    fn look(&self, in_force: &ConfigurationInForce) -> Result<Vec<ContentEntry>, LdapResult> {
        let schema = &in_force.config.schema;
        let mut tree = MemoryTree {
            schema,
            policy: &in_force.policy,
            subject: &self.subject,
            entries: entries(&in_force.config, schema, &in_force.subschema_dn),
            counted: None,
        };
        for entry in &mut tree.entries {
            entry.attributes.retain(|a| {
                let name = a.description.to_text(tree.schema);
                !OWN.iter().any(|own| own.eq_ignore_ascii_case(&name))
            });
        }
        let found = tree.matching(&self.base, self.scope, self.filter.as_filter())?;
        let first = |entry: &Entry, name: &str| -> Option<String> {
            let description = tree.schema.describe(name).ok()?;
            let value = entry.attribute(&description)?.values.first()?;
            String::from_utf8(value.clone()).ok()
        };
        let mut content = Vec::new();
        for (dn, entry) in found {
            let uuid = first(entry, "entryUUID").and_then(|text| Uuid::parse_str(&text).ok());
            let Some(uuid) = uuid else {
                let text = "a configuration that is not kept in a directory (slapd.d) cannot be replicated";
                return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            };
            let csn = first(entry, "entryCSN").and_then(|text| text.parse().ok());
            content.push(ContentEntry { uuid, csn, dn: dn.clone(), entry: entry.clone() });
        }
        Ok(content)
    }

    fn refresh(
        &mut self,
        now: Vec<ContentEntry>,
        context: &CsnVector,
        (server_id, text): (u16, &str),
        in_force: &ConfigurationInForce,
        out: &mut Vec<u8>,
    ) -> StepOutcome {
        let cookie = Some(text.as_bytes());
        let (present, changed) = match decide(&self.consumer.known, context, server_id) {
            Decision::Refused(result) => return StepOutcome::Done(result, Vec::new()),
            Decision::Unchanged => (false, false),
            Decision::Everything => {
                self.send_new(&now, &CsnVector::default(), in_force, out);
                (true, true)
            }
            Decision::Since(known) => {
                self.send_new(&now, &known, in_force, out);
                (true, true)
            }
        };
        self.has = now.into_iter().map(|k| (k.uuid, (k.csn, k.entry.dn))).collect();
        let cookie = cookie.filter(|_| changed);
        if !self.consumer.persist {
            let done = SyncDone { cookie, refresh_deletes: !present };
            return StepOutcome::Done(LdapResult::success(), vec![done.to_control(false)]);
        }
        let info = match present {
            true => SyncInfo::RefreshPresent { cookie, done: true },
            false => SyncInfo::RefreshDelete { cookie, done: true },
        };
        encode::intermediate(out, self.message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
        StepOutcome::More
    }

    /// Sends what `known` does not cover, and names the rest. One that has come or was moved has given its siblings other numbers, which
    /// change no CSN: they are sent, too.
    fn send_new(
        &mut self,
        now: &[ContentEntry],
        known: &CsnVector,
        in_force: &ConfigurationInForce,
        out: &mut Vec<u8>,
    ) {
        let is_known = |entry: &&ContentEntry| entry.csn.is_some_and(|csn| known.covers(&csn));
        let row = |entry: &ContentEntry| {
            let (attribute, value) = entry.dn.as_str().split_once('=')?;
            let can_be_moved = attribute != "cn" && value.starts_with('{');
            can_be_moved.then(|| (attribute.to_owned(), entry.dn.parent()))
        };
        let rows: Vec<_> = now.iter().filter(|entry| !is_known(entry)).filter_map(row).collect();
        let is_sent =
            |entry: &&ContentEntry| !is_known(entry) || row(entry).is_some_and(|row| rows.contains(&row));
        for entry in now.iter().filter(is_sent) {
            self.send(entry, EntryState::Add, in_force, out);
        }
        let present = now.iter().filter(|entry| !is_sent(entry));
        let present: Vec<[u8; 16]> = present.map(|k| *k.uuid.as_bytes()).collect();
        for some in present.chunks(TOGETHER) {
            let info = SyncInfo::IdSet { cookie: None, deletes: false, uuids: some.to_vec() };
            encode::intermediate(out, self.message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
        }
    }

    fn changes(&mut self, now: Vec<ContentEntry>, in_force: &ConfigurationInForce, out: &mut Vec<u8>) {
        let before = std::mem::take(&mut self.has);
        for (uuid, (_, dn)) in before.iter().rev() {
            if !now.iter().any(|current| current.uuid == *uuid) {
                let control = state(EntryState::Delete, uuid);
                EntryEncoder::begin(out, self.message, dn).finish(&[control]);
            }
        }
        for current in &now {
            match before.get(&current.uuid) {
                None => self.send(current, EntryState::Add, in_force, out),
                Some((csn, dn)) if *csn != current.csn || *dn != current.entry.dn => {
                    self.send(current, EntryState::Modify, in_force, out);
                }
                Some(_) => {}
            }
        }
        self.has = now.into_iter().map(|k| (k.uuid, (k.csn, k.entry.dn))).collect();
    }

    fn send(
        &mut self,
        content: &ContentEntry,
        what: EntryState,
        in_force: &ConfigurationInForce,
        out: &mut Vec<u8>,
    ) {
        let selection = SyncSelection {
            schema: &in_force.config.schema,
            policy: &in_force.policy,
            subject: &self.subject,
            names: &self.attributes,
            types_only: self.types_only,
        };
        self.sent += 1;
        selection.write(&content.dn, &content.entry, (self.message, &[state(what, &content.uuid)]), out);
    }
}

impl Cursor for ConfigSearch {
    /// All that there is to send is sent in one slice.
    fn step(&mut self, _: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        self.go_on(out)
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.sent }
    }

    fn waits(&self) -> bool {
        true
    }

    fn waits_for_changes(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.services.configuration_watch.follow(&follower);
        self.follower = Some(follower);
    }
}

/// One entry that the consumer may have.
struct ContentEntry {
    uuid: Uuid,
    csn: Option<Csn>,
    dn: NormalDn,
    entry: Entry,
}

fn state(state: EntryState, uuid: &Uuid) -> ControlBuf {
    SyncState { state, entry_uuid: *uuid.as_bytes(), cookie: None }.to_control(false)
}

fn cookie(rid: u16, server_id: u16, csns: &[Csn]) -> String {
    let sid = Some(server_id).filter(|sid| *sid != 0);
    Cookie { rid, sid, csns: csns.to_vec(), ..Cookie::default() }.to_string()
}
