//! The consumer of content synchronisation (RFC 4533): one session with one provider, without I/O.
//!
//! A session is asked for its search request, fed every response, and answers with what is to be done ([`Action`]). Changes are
//! gathered into batches: a refresh fills them up, after it each ends when nothing more waits ([`Session::flush`]). The cookie
//! of a batch is committed with its last change, never before.
//!
//! *Invariant:* contextCSN never runs ahead of what was handed out before it: an [`Action::Apply`] has the CSNs of changes in
//! it or in earlier ones, and those of a refresh come when the refresh is complete.

mod line;
mod massage;
mod retry;

use std::collections::BTreeSet;

use larix_engine::csn::Csn;
use larix_engine::replica::{ENTRY_PLACE_OID, ENTRY_STATE_OID, EntryPlace, ReplicatedChange, UuidSet};
use larix_engine::write::AttributeValues;
use larix_proto::control::{ControlValue, EntryState, SyncDone, SyncMode, SyncRequest, SyncState};
use larix_proto::extended::SyncInfo;
use larix_proto::{
    ControlBuf, Controls, FilterBuf, LdapResult, MessageId, Response, ResponseMessage, ResultCode, Scope,
    SearchResultEntry, client, oid,
};
use uuid::Uuid;

pub use line::{Attempts, Line, Next};
pub use massage::Massage;
pub use retry::{Retries, RetryStep};

use crate::{Cookie, delta};

/// Changes of one batch; more make another one.
pub const BATCH_CHANGES: usize = 1_000;
/// Bytes of values of one batch.
pub const BATCH_BYTES: usize = 4 << 20;

/// What is asked of the provider.
#[derive(Clone, Debug)]
pub struct Request {
    /// The replica id, 0 to [`RID_MAX`](crate::RID_MAX).
    pub rid: u16,
    /// Our own server id, where several servers take changes: then the provider does not send what was made here.
    pub sid: Option<u16>,
    pub mode: SyncMode,
    pub base: String,
    pub scope: Scope,
    pub filter: FilterBuf,
    /// Empty: all user attributes.
    pub attributes: Vec<String>,
    pub types_only: bool,
    /// What is asked for are records of an access log, each of which tells of a change (delta-syncrepl).
    pub logged: bool,
    /// Conflicts are settled value by value: the states of entries are asked for.
    pub values: bool,
    /// Entries; 0 is no limit.
    pub size_limit: u32,
    /// Seconds; 0 is no limit.
    pub time_limit: u32,
    /// Behind the control of the synchronisation.
    pub controls: Vec<ControlBuf>,
}

/// What is to be done, in this order.
#[derive(Debug)]
pub enum Action {
    /// Carry these out in one commit, and raise the contextCSN to these. `provider`: up to this change of its own the provider
    /// had told of before.
    Apply { changes: Vec<ReplicatedChange>, csns: Vec<Csn>, refreshing: bool, provider: Option<Csn> },
    /// Delete what was not present and what the provider has seen (`csns`), then raise the contextCSN to that.
    /// `deletes_told`: the provider named beside it what is gone there and was not here either.
    DeleteAbsent { present: UuidSet, csns: Vec<Csn>, deletes_told: bool },
    /// The content is that of the provider; changes follow one by one from here on.
    Refreshed,
    /// The session has ended.
    End(End),
    /// Something to be told in the log.
    Note(String),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A refresh without persist is done: again after the interval.
    Poll,
    /// The provider cannot tell what changed since our cookie: once more at once, without one.
    FullRefresh,
    /// A record of the access log does not tell what was done: the entries themselves have to be asked for.
    NotLogged(String),
    /// The provider refused, or what it sent cannot be: by the schedule of retries.
    Failed(LdapResult),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Refreshing,
    Persisting,
    Ended,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    request: Request,
    massage: Option<Massage>,
    /// What the contextCSN was when the session began, and what it was raised to since.
    known: Vec<Csn>,
    /// No cookie was sent.
    from_nothing: bool,
    message: MessageId,
    phase: Phase,
    present: UuidSet,
    changes: Vec<ReplicatedChange>,
    bytes: usize,
    csns: Vec<Csn>,
    /// What the last change that was taken has to say of itself.
    taken: Vec<Csn>,
    last_cookie: Option<String>,
    /// Of the last cookie.
    last_delete: Option<Csn>,
    /// So said the last cookie.
    deletes_told: bool,
    provider: Provider,
}

/// What the provider made itself.
#[derive(Debug, Default)]
struct Provider {
    /// Its server id, as its cookies say it.
    sid: Option<u16>,
    /// How far it had told of its changes when the batch began.
    before: Option<Csn>,
    /// Entries of the batch that it changed itself.
    changed: BTreeSet<Uuid>,
}

impl Session {
    /// `known` is our contextCSN; none of it, or `full`, asks for everything.
    pub fn new(request: Request, massage: Option<Massage>, known: Vec<Csn>, full: bool) -> Self {
        let from_nothing = full || known.is_empty();
        Self {
            request,
            massage,
            known,
            from_nothing,
            message: MessageId(0),
            phase: Phase::Refreshing,
            present: UuidSet::new(),
            changes: Vec::new(),
            bytes: 0,
            csns: Vec::new(),
            taken: Vec::new(),
            last_cookie: None,
            last_delete: None,
            deletes_told: false,
            provider: Provider::default(),
        }
    }

    /// The cookie that the request carries.
    pub fn cookie(&self) -> Cookie {
        let csns = if self.from_nothing { Vec::new() } else { self.known.clone() };
        Cookie { rid: self.request.rid, sid: self.request.sid, csns, ..Cookie::default() }
    }

    /// The last cookie that came, as it came.
    pub fn last_cookie(&self) -> Option<&str> {
        self.last_cookie.as_deref()
    }

    /// Writes the search request.
    pub fn request(&mut self, out: &mut Vec<u8>, id: MessageId) {
        self.message = id;
        let cookie = self.cookie().to_string();
        let sync = SyncRequest {
            mode: self.request.mode,
            cookie: Some(cookie.as_bytes()),
            // A log that does not reach back is to say so.
            reload_hint: !self.request.logged,
        };
        let whole = ControlBuf { oid: oid::MANAGE_DSA_IT.into(), critical: true, value: None };
        let mut controls = vec![sync.to_control(true), whole];
        if self.request.values {
            controls.push(ControlBuf { oid: oid::VALUE_CONFLICTS.into(), critical: true, value: None });
        }
        if !self.request.logged {
            controls.push(ControlBuf { oid: oid::SYNC_PEER.into(), critical: false, value: None });
        }
        controls.extend(self.request.controls.iter().cloned());
        let attributes: Vec<&str> = self.request.attributes.iter().map(String::as_str).collect();
        let search = client::Search {
            size_limit: self.request.size_limit,
            time_limit: self.request.time_limit,
            types_only: self.request.types_only,
            attributes: &attributes,
            ..client::Search::new(&self.request.base, self.request.scope, self.request.filter.as_filter())
        };
        client::search(out, id, &search, &controls);
    }

    /// Whether the content is that of the provider.
    pub fn is_refreshed(&self) -> bool {
        self.phase == Phase::Persisting
    }

    /// Whether nothing is known here and everything is being sent as it is: who stores the entries as a whole takes them by
    /// [`Self::first_entry`].
    pub fn is_first(&self) -> bool {
        self.phase == Phase::Refreshing
            && self.from_nothing
            && self.known.is_empty()
            && self.massage.is_none()
            && !self.request.logged
            && !self.request.values
    }

    /// An entry of a first refresh, for who stores it without this session; everything else is to be
    /// [received](Self::receive).
    pub fn first_entry<'m>(
        &self,
        message: &'m ResponseMessage<'m>,
    ) -> Option<(Uuid, &'m SearchResultEntry<'m>)> {
        let Response::Entry(entry) = &message.response else { return None };
        if message.id != self.message || !self.is_first() {
            return None;
        }
        let control = only_control(message.controls, SyncState::OID).ok().flatten()?;
        let control = SyncState::decode(control.value).ok()?;
        (control.state == EntryState::Add).then(|| (Uuid::from_bytes(control.entry_uuid), entry))
    }

    /// What a response means. Nothing is meant by what comes after the end.
    pub fn receive(&mut self, message: &ResponseMessage<'_>) -> Vec<Action> {
        let mut actions = Vec::new();
        if message.id != self.message || self.phase == Phase::Ended {
            return actions;
        }
        let done = match &message.response {
            Response::Entry(entry) => self.entry(entry, message.controls, &mut actions),
            Response::Reference(_) => {
                actions.push(Action::Note("the provider sent a reference, which is no content".to_owned()));
                Ok(())
            }
            Response::Intermediate { name: Some(SyncInfo::OID), value } => self.info(*value, &mut actions),
            Response::SearchDone(result) => self.done(&result.to_owned(), message.controls, &mut actions),
            _ => Ok(()),
        };
        if let Err(why) = done {
            self.end(End::Failed(LdapResult::with(ResultCode::PROTOCOL_ERROR, why)), &mut actions);
        }
        actions
    }

    /// Whether there is anything to flush.
    pub fn has_gathered(&self) -> bool {
        !self.changes.is_empty() || !self.csns.is_empty()
    }

    /// Whether it is time to [`flush`](Self::flush). `more`: a whole message waits to be received. A refresh that has
    /// gathered something waits for more of it.
    pub fn flushes(&self, more: bool) -> bool {
        (self.is_refreshed() || !self.has_gathered()) && !more
    }

    /// What was gathered so far: to be called when nothing more waits to be received.
    pub fn flush(&mut self) -> Option<Action> {
        if self.changes.is_empty() && self.csns.is_empty() {
            return None;
        }
        self.bytes = 0;
        self.provider.changed.clear();
        Some(Action::Apply {
            provider: self.provider.before.take(),
            changes: std::mem::take(&mut self.changes),
            csns: std::mem::take(&mut self.csns),
            refreshing: self.phase == Phase::Refreshing,
        })
    }

    fn entry(
        &mut self,
        entry: &SearchResultEntry<'_>,
        controls: Controls<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        let wrong = |what: &dyn std::fmt::Display| format!("entry \"{}\": {what}", entry.dn);
        let state = only_control(controls, SyncState::OID).map_err(|what| wrong(&what))?;
        let state = state
            .ok_or_else(|| wrong(&"no sync state control; is the provider's overlay syncprov there?"))?;
        let SyncState { state, entry_uuid, cookie } =
            SyncState::decode(state.value).map_err(|error| wrong(&error))?;
        let csns = self.read_cookie(cookie).map_err(|error| wrong(&error))?;
        if self.request.logged {
            let proves = csns.is_some_and(|csns| !csns.is_empty());
            return self.logged(entry, (state, proves), actions);
        }
        let uuid = Uuid::from_bytes(entry_uuid);
        let is_seen = self.is_passed_over(&csns);
        // Somebody who never had the entry may have told us of as much, and not of the delete.
        if is_seen && state != EntryState::Delete {
            return Ok(());
        }
        match state {
            EntryState::Present => self.present.insert(uuid),
            EntryState::Add | EntryState::Modify => {
                if self.phase == Phase::Refreshing {
                    self.present.insert(uuid);
                }
                actions.extend(self.flush_before(uuid, csns.as_deref().unwrap_or_default()));
                let beside = only_control(controls, ENTRY_STATE_OID).map_err(|what| wrong(&what))?;
                let beside = beside.and_then(|control| control.value.map(<[u8]>::to_vec));
                let place = only_control(controls, ENTRY_PLACE_OID).map_err(|what| wrong(&what))?;
                let place = match place.and_then(|control| control.value) {
                    Some(value) => {
                        let read = EntryPlace::decode(value);
                        Some(read.ok_or_else(|| wrong(&"its place cannot be read"))?)
                    }
                    None => None,
                };
                let change = self.put(uuid, entry, (beside, place))?;
                self.gather(change, csns, actions);
            }
            EntryState::Delete => {
                let last = self.last_delete.filter(|_| cookie.is_some());
                let csn = last.or_else(|| csns.iter().flatten().max().copied());
                let csns = csns.filter(|_| !is_seen);
                self.gather(ReplicatedChange::Delete { entry_uuid: uuid, csn }, csns, actions);
            }
        }
        Ok(())
    }

    /// A record of an access log: the change that it tells of. `proves`: a CSN came beside it, which says that all before it
    /// was told. That a record is gone says nothing of what it told.
    fn logged(
        &mut self,
        entry: &SearchResultEntry<'_>,
        (state, proves): (EntryState, bool),
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        if !matches!(state, EntryState::Add | EntryState::Modify) {
            return Ok(());
        }
        let read = delta::change_of(&attributes_of(entry)).map_err(|error| error.to_string());
        let massaged = read.and_then(|change| match (change, &self.massage) {
            (Some(change), Some(massage)) => delta::massaged(change, massage).map(Some),
            (change, _) => Ok(change),
        });
        match massaged {
            Ok(Some(ReplicatedChange::Delta { entry_uuid, dn, csn, change })) => {
                // What a refresh brought the provider stands in its log in any order. It is told without a CSN beside it; a
                // slapd whose log is gone through has one beside everything, and is in order with its own changes alone.
                let is_own = Some(csn.server_id) == self.provider.sid;
                if !proves || self.phase == Phase::Refreshing && !is_own {
                    self.gather(ReplicatedChange::Delta { entry_uuid, dn, csn, change }, None, actions);
                    return Ok(());
                }
                // Other records come in the order of the changes: each is as good as a cookie.
                // Changes that were made together, deletes above all, may share a CSN.
                if is_newer(&self.known, &[csn]) || self.taken == [csn] {
                    self.raise(&[csn]);
                    self.taken = vec![csn];
                    self.gather(ReplicatedChange::Delta { entry_uuid, dn, csn, change }, None, actions);
                }
            }
            Ok(_) => {}
            Err(why) => self.end(End::NotLogged(format!("{}: {why}", entry.dn)), actions),
        }
        Ok(())
    }

    /// Whether all of a change was seen before. What comes without a cookie, as other servers' changes that are passed on do,
    /// is judged by its entryCSN when it is written.
    fn is_passed_over(&mut self, csns: &Option<Vec<Csn>>) -> bool {
        let Some(csns) = csns.as_deref().filter(|csns| !csns.is_empty()) else { return false };
        // Changes that were made together, deletes above all, may share a CSN.
        let is_seen = !is_newer(&self.known, csns) && self.taken != *csns;
        if self.phase == Phase::Persisting && is_seen {
            return true;
        }
        self.taken = csns.to_vec();
        false
    }

    fn put(
        &self,
        uuid: Uuid,
        entry: &SearchResultEntry<'_>,
        (state, place): (Option<Vec<u8>>, Option<EntryPlace>),
    ) -> Result<ReplicatedChange, String> {
        let (mut dn, mut attributes) = (entry.dn.to_owned(), attributes_of(entry));
        if let Some(massage) = &self.massage {
            dn = massage.dn(&dn).ok_or_else(|| format!("entry \"{dn}\" is not below the searchbase"))?;
            attributes.iter_mut().for_each(|attribute| massage.values(attribute));
        }
        Ok(ReplicatedChange::Put { entry_uuid: uuid, dn, attributes, state, place })
    }

    /// A change that others made of an entry, behind one of the provider's own, goes into the next batch: it is to be seen
    /// that the provider had told of its own before.
    fn flush_before(&mut self, uuid: Uuid, csns: &[Csn]) -> Option<Action> {
        let is_own = csns.iter().any(|csn| Some(csn.server_id) == self.provider.sid);
        let flushed = if !is_own && self.provider.changed.contains(&uuid) { self.flush() } else { None };
        if is_own {
            self.provider.changed.insert(uuid);
        }
        flushed
    }

    fn gather(&mut self, change: ReplicatedChange, csns: Option<Vec<Csn>>, actions: &mut Vec<Action>) {
        if self.changes.is_empty() {
            let own = |csn: &&Csn| Some(csn.server_id) == self.provider.sid;
            self.provider.before = self.known.iter().find(own).copied();
        }
        self.bytes += size(&change);
        self.changes.push(change);
        if let Some(csns) = csns.filter(|_| self.phase == Phase::Persisting) {
            self.raise(&csns);
        }
        if self.changes.len() >= BATCH_CHANGES || self.bytes >= BATCH_BYTES {
            actions.extend(self.flush());
        }
    }

    /// From the next batch on the contextCSN covers these.
    fn raise(&mut self, csns: &[Csn]) {
        for csn in csns {
            for vector in [&mut self.known, &mut self.csns] {
                match vector.iter_mut().find(|known| known.server_id == csn.server_id) {
                    Some(known) => *known = (*known).max(*csn),
                    None => vector.push(*csn),
                }
            }
        }
    }

    fn info(&mut self, value: Option<&[u8]>, actions: &mut Vec<Action>) -> Result<(), String> {
        let info = SyncInfo::decode(value).map_err(|error| format!("sync info: {error}"))?;
        match info {
            SyncInfo::NewCookie(cookie) => {
                let csns = self.read_cookie(Some(cookie))?.unwrap_or_default();
                // While a refresh goes on, only its end says what is here.
                if self.phase == Phase::Persisting && is_newer(&self.known, &csns) {
                    self.raise(&csns);
                }
            }
            SyncInfo::RefreshDelete { cookie, done } => {
                let csns = self.read_cookie(cookie)?;
                self.phase_ends(csns, false, done, actions)?;
            }
            SyncInfo::RefreshPresent { cookie, done } => {
                let csns = self.read_cookie(cookie)?;
                self.phase_ends(csns, true, done, actions)?;
            }
            SyncInfo::IdSet { .. } if self.request.logged => {}
            SyncInfo::IdSet { cookie, deletes, uuids } => {
                let csns = self.read_cookie(cookie)?;
                let uuids = uuids.into_iter().map(Uuid::from_bytes);
                if !deletes {
                    self.present.extend(uuids);
                    return Ok(());
                }
                // The CSN is of the last delete; which is whose is not said.
                let newest = csns.as_ref().and_then(|csns| csns.iter().max().copied());
                let last = self.last_delete.filter(|_| cookie.is_some()).or(newest);
                for entry_uuid in uuids {
                    self.gather(ReplicatedChange::Delete { entry_uuid, csn: last }, None, actions);
                }
                if let Some(csns) = csns.filter(|_| self.phase == Phase::Persisting) {
                    self.raise(&csns);
                }
            }
        }
        Ok(())
    }

    /// The end of a delete or of a present phase.
    fn phase_ends(
        &mut self,
        csns: Option<Vec<Csn>>,
        of_present: bool,
        done: bool,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        if self.phase != Phase::Refreshing {
            return Err("the provider ended the refresh twice".to_owned());
        }
        actions.extend(self.flush());
        self.conclude(csns.unwrap_or_default(), of_present, actions);
        if done {
            // Nothing of a phase that ends before its cookie is covered by it: what waits goes now.
            actions.extend(self.flush());
            self.phase = Phase::Persisting;
            self.present = UuidSet::new();
            actions.push(Action::Refreshed);
        }
        Ok(())
    }

    /// A phase is complete: what it did not name as present is gone, and its cookie holds. A cookie that tells nothing new
    /// says that nothing changed: what was named present meanwhile means nothing then.
    fn conclude(&mut self, csns: Vec<Csn>, of_present: bool, actions: &mut Vec<Action>) {
        let newer = self.from_nothing && !csns.is_empty() || is_newer(&self.known, &csns);
        if !newer {
            return;
        }
        if of_present && !self.request.logged {
            let mut present = std::mem::take(&mut self.present);
            present.settle();
            self.raise(&csns);
            let (csns, deletes_told) = (std::mem::take(&mut self.csns), self.deletes_told);
            actions.push(Action::DeleteAbsent { present, csns, deletes_told });
        } else {
            self.raise(&csns);
        }
    }

    fn done(
        &mut self,
        result: &LdapResult,
        controls: Controls<'_>,
        actions: &mut Vec<Action>,
    ) -> Result<(), String> {
        if result.code == ResultCode::SYNC_REFRESH_REQUIRED {
            self.end(End::FullRefresh, actions);
            return Ok(());
        }
        if result.code == ResultCode::UNAVAILABLE_CRITICAL_EXTENSION && self.request.values {
            let text = format!(
                "the conflict mode here is `value`, which the provider does not know: every member has to be a Larix \
                 server in that mode ({})",
                result.diagnostic
            );
            self.end(End::Failed(LdapResult { diagnostic: text, ..result.clone() }), actions);
            return Ok(());
        }
        if result.code != ResultCode::SUCCESS {
            self.end(End::Failed(result.clone()), actions);
            return Ok(());
        }
        let control = only_control(controls, SyncDone::OID)?;
        let (mut csns, mut deletes) = (None, false);
        if let Some(control) = control {
            let SyncDone { cookie, refresh_deletes } =
                SyncDone::decode(control.value).map_err(|error| format!("sync done: {error}"))?;
            (csns, deletes) = (self.read_cookie(cookie)?, refresh_deletes);
        }
        if self.phase == Phase::Persisting || self.request.mode == SyncMode::RefreshAndPersist {
            let why = "the provider ended a search that persists";
            self.end(End::Failed(LdapResult::with(ResultCode::OTHER, why)), actions);
            return Ok(());
        }
        actions.extend(self.flush());
        self.conclude(csns.unwrap_or_default(), !deletes, actions);
        actions.extend(self.flush());
        actions.push(Action::Refreshed);
        self.end(End::Poll, actions);
        Ok(())
    }

    /// What was gathered is good in itself, whatever ended the session.
    fn end(&mut self, end: End, actions: &mut Vec<Action>) {
        actions.extend(self.flush());
        self.phase = Phase::Ended;
        actions.push(Action::End(end));
    }

    /// The CSNs of a cookie. None: there was no cookie.
    fn read_cookie(&mut self, cookie: Option<&[u8]>) -> Result<Option<Vec<Csn>>, String> {
        let Some(cookie) = cookie else { return Ok(None) };
        let text = std::str::from_utf8(cookie)
            .map_err(|_| "the provider's cookie is no text: it is not of OpenLDAP's form".to_owned())?;
        let read = Cookie::parse(text).map_err(|error| error.to_string())?;
        // One of a relayed delete says nothing but its CSN.
        if !read.csns.is_empty() || read.delete.is_none() {
            self.last_cookie = Some(text.to_owned());
        }
        (self.last_delete, self.deletes_told) = (read.delete, read.deletes_told);
        self.provider.sid = read.sid.or(self.provider.sid);
        Ok(Some(read.csns))
    }
}

fn attributes_of(entry: &SearchResultEntry<'_>) -> Vec<AttributeValues> {
    let owned = |attribute: larix_proto::Attribute<'_>| AttributeValues {
        description: attribute.description.to_owned(),
        values: attribute.values.iter().map(<[u8]>::to_vec).collect(),
    };
    entry.attributes.iter().map(owned).collect()
}

/// Whether one of these is new to whoever knows those.
fn is_newer(known: &[Csn], csns: &[Csn]) -> bool {
    let is_new = |csn: &Csn| {
        known.iter().find(|known| known.server_id == csn.server_id).is_none_or(|known| csn > known)
    };
    csns.iter().any(is_new)
}

/// The control with this OID, if there is one.
fn only_control<'a>(controls: Controls<'a>, oid: &str) -> Result<Option<larix_proto::Control<'a>>, String> {
    let mut found = controls.iter().filter(|control| control.oid == oid);
    let first = found.next();
    if found.next().is_some() {
        return Err(format!("the control {oid} twice"));
    }
    Ok(first)
}

fn size(change: &ReplicatedChange) -> usize {
    match change {
        ReplicatedChange::Put { dn, attributes, state, place, .. } => {
            let values = attributes.iter().flat_map(|attribute| &attribute.values);
            let beside =
                state.as_ref().map_or(0, Vec::len) + place.as_ref().map_or(0, |place| place.name.len());
            dn.len() + values.map(Vec::len).sum::<usize>() + beside
        }
        // What a log tells of is small beside entries; the count of changes bounds it.
        ReplicatedChange::Delete { .. } | ReplicatedChange::Delta { .. } => 16,
    }
}

#[cfg(test)]
mod tests;
