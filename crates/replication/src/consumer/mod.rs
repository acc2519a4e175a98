//! The consumer of content synchronisation (RFC 4533): one session with one provider, without I/O.
//!
//! A session is asked for its search request, fed every response, and answers with actions ([`Action`]). Changes are
//! gathered into batches: a refresh fills them up, after it each ends when nothing more waits ([`Session::flush`]). The cookie
//! of a batch is committed with its last change, never before.
//!
//! *Invariant:* contextCSN never runs ahead of what was handed out before it: an [`Action::Apply`] has the CSNs of changes in
//! it or in earlier ones, and those of a refresh come when the refresh is complete.

mod batch;
mod entries;
mod line;
mod massage;
mod retry;
mod status;

use larix_engine::csn::Csn;
use larix_engine::replica::{ENTRY_STATE_OID, ReplicatedChange, UuidSet};
use larix_proto::control::{ControlValue, EntryState, SyncDone, SyncMode, SyncRequest, SyncState};
use larix_proto::extended::SyncInfo;
use larix_proto::{
    ControlBuf, Controls, FilterBuf, LdapResult, MessageId, Response, ResponseMessage, ResultCode, Scope,
    SearchResultEntry, client, oid,
};
use uuid::Uuid;

pub use batch::{BATCH_BYTES, BATCH_CHANGES};
pub use line::{Attempts, Line, Next};
pub use massage::Massage;
pub use retry::{Retries, RetryStep};
pub use status::{ConsumerCounts, ConsumerPhase, ConsumerStatus, Status};

use crate::{Content, Cookie};
use batch::Batch;

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
    /// The consumer asks for records of an access log; each describes a change (delta-syncrepl).
    pub logged: bool,
    /// Conflicts are settled value by value: the states of entries are asked for.
    pub values: bool,
    /// The states of entries are asked for where they are kept: changes are merged by them here, or will be then.
    pub states: bool,
    /// Entries; 0 is no limit.
    pub size_limit: u32,
    /// Seconds; 0 is no limit.
    pub time_limit: u32,
    /// Behind the control of the synchronisation.
    pub controls: Vec<ControlBuf>,
}

/// The actions, in this order.
#[derive(Debug)]
pub enum Action {
    /// Carry these out in one commit, and raise the contextCSN to these. `provider`: up to this change of its own the provider
    /// had told of before. `elsewhere`: another server than the provider keeps these entries.
    Apply {
        changes: Vec<ReplicatedChange>,
        csns: Vec<Csn>,
        refreshing: bool,
        provider: Option<Csn>,
        elsewhere: bool,
    },
    /// Delete what was not present and what the provider has seen (`csns`), then raise the contextCSN to that.
    /// `deletes_told`: the provider named beside it what is gone there and was not here either. `whole`: other servers keep a part
    /// of the content, so that what was not present is gone whether the provider has seen it or not.
    /// `subentries`: it sent or named these, too, so that those that are absent are gone there.
    DeleteAbsent { present: UuidSet, csns: Vec<Csn>, deletes_told: bool, whole: bool, subentries: bool },
    /// The provider keeps the states of entries: keep them here, too, before anything else of it is stored. Comes once.
    KeepStates,
    /// The content is that of the provider; changes follow one by one from here on.
    Refreshed,
    /// The session has ended.
    End(End),
    /// A line for the log.
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

/// An entry of a refresh in which nothing is known here.
#[derive(Debug)]
pub struct FirstEntry<'m> {
    pub uuid: Uuid,
    pub entry: &'m SearchResultEntry<'m>,
    /// What came beside it, where its provider keeps states.
    pub state: Option<&'m [u8]>,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    request: Request,
    massage: Option<Massage>,
    /// No cookie was sent.
    from_nothing: bool,
    /// An earlier refresh may have left entries here, though nothing is known.
    follows_broken: bool,
    message: MessageId,
    phase: Phase,
    present: UuidSet,
    batch: Batch,
    last_cookie: Option<String>,
    /// Of the last cookie.
    last_delete: Option<Csn>,
    /// So said the last cookie.
    deletes_told: bool,
    /// The same of subentries that were sent.
    subentries_sent: bool,
    /// The same of content that is not all stored at the provider.
    content: Option<Content>,
    /// The provider keeps the states of entries, as far as is known.
    states_kept: bool,
}

impl Session {
    /// `known` is our contextCSN; none of it, or `full`, asks for everything.
    pub fn new(request: Request, massage: Option<Massage>, known: Vec<Csn>, full: bool) -> Self {
        let from_nothing = full || known.is_empty();
        Self {
            request,
            massage,
            from_nothing,
            follows_broken: false,
            message: MessageId(0),
            phase: Phase::Refreshing,
            present: UuidSet::new(),
            batch: Batch::new(known),
            last_cookie: None,
            last_delete: None,
            deletes_told: false,
            subentries_sent: false,
            content: None,
            states_kept: false,
        }
    }

    /// What is here came from this provider alone, and all of it: a first refresh that persists deletes what it is not sent, also
    /// of a slapd, which calls its end a delete phase. An earlier one that was broken off may have left what is gone there since.
    #[must_use]
    pub fn follows_broken(self) -> Self {
        Self { follows_broken: true, ..self }
    }

    /// The cookie that the request carries.
    pub fn cookie(&self) -> Cookie {
        let csns = if self.from_nothing { Vec::new() } else { self.batch.known().as_slice().to_vec() };
        Cookie { rid: self.request.rid, sid: self.request.sid, csns, ..Cookie::default() }
    }

    /// The last cookie that came, as it came.
    pub fn last_cookie(&self) -> Option<&str> {
        self.last_cookie.as_deref()
    }

    /// The provider's server ID, as far as it has said it.
    pub fn provider_id(&self) -> Option<u16> {
        self.batch.provider_id()
    }

    /// Whether the provider has our own server ID: it sends nothing that it changed itself, as if that came from here.
    pub fn has_own_id(&self) -> bool {
        self.request.sid.is_some_and(|own| own != 0 && self.batch.provider_id() == Some(own))
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
        if self.request.states && !self.request.values {
            controls.push(ControlBuf { oid: oid::VALUE_CONFLICTS.into(), critical: false, value: None });
        }
        if !self.request.logged {
            controls.push(ControlBuf { oid: oid::SYNC_PEER.into(), critical: false, value: None });
        }
        controls.extend(self.request.controls.iter().cloned());
        let attributes: Vec<&str> = self.request.attributes.iter().map(String::as_str).collect();
        let search = client::Search {
            size_limit: self.request.size_limit,
            time_limit: self.request.time_limit,
            attributes: &attributes,
            ..client::Search::new(&self.request.base, self.request.scope, self.request.filter.as_filter())
        };
        client::search(out, id, &search, &controls);
    }

    /// Whether the content is that of the provider.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.phase == Phase::Persisting
    }

    /// Whether a message answers the search.
    pub fn is_answer(&self, message: &ResponseMessage<'_>) -> bool {
        message.id == self.message
    }

    /// Whether nothing is known here and everything is being sent as it is: who stores the entries as a whole takes them by
    /// [`Self::first_entry`].
    pub fn is_first(&self) -> bool {
        self.phase == Phase::Refreshing
            && self.from_nothing
            && self.batch.known().is_empty()
            && self.massage.is_none()
            && !self.request.logged
    }

    /// An entry of a first refresh, for who stores it without this session; everything else is to be
    /// [received](Self::receive).
    pub fn first_entry<'m>(&self, message: &'m ResponseMessage<'m>) -> Option<FirstEntry<'m>> {
        let Response::Entry(entry) = &message.response else { return None };
        if !(self.is_answer(message) && self.is_first()) {
            return None;
        }
        let state = only_control(message.controls, ENTRY_STATE_OID).ok()?.and_then(|control| control.value);
        let control = only_control(message.controls, SyncState::OID).ok().flatten()?;
        let control = SyncState::decode(control.value).ok()?;
        let uuid = Uuid::from_bytes(control.entry_uuid);
        (control.state == EntryState::Add).then_some(FirstEntry { uuid, entry, state })
    }

    /// What a response means. Nothing is meant by what comes after the end.
    pub fn receive(&mut self, message: &ResponseMessage<'_>) -> Vec<Action> {
        let mut actions = Vec::new();
        if !self.is_answer(message) || self.phase == Phase::Ended {
            return actions;
        }
        let were_kept = self.states_kept;
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
        if self.states_kept && !were_kept {
            actions.insert(0, Action::KeepStates);
        }
        actions
    }

    /// Whether there is anything to flush.
    pub fn has_gathered(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Whether it is time to [`flush`](Self::flush). `more`: a whole message waits to be received. A refresh that has
    /// gathered something waits for more of it.
    pub fn flushes(&self, more: bool) -> bool {
        (self.is_refreshed() || !self.has_gathered()) && !more
    }

    /// What was gathered so far: to be called when nothing more waits to be received.
    pub fn flush(&mut self) -> Option<Action> {
        self.batch.take(self.phase == Phase::Refreshing)
    }

    fn gather(&mut self, change: ReplicatedChange, csns: Option<Vec<Csn>>, actions: &mut Vec<Action>) {
        if self.batch.is_elsewhere() {
            actions.extend(self.flush());
        }
        let is_full = self.batch.add(change);
        if let Some(csns) = csns.filter(|_| self.phase == Phase::Persisting) {
            self.batch.raise(&csns);
        }
        if is_full {
            actions.extend(self.flush());
        }
    }

    fn info(&mut self, value: Option<&[u8]>, actions: &mut Vec<Action>) -> Result<(), String> {
        let info = SyncInfo::decode(value).map_err(|error| format!("sync info: {error}"))?;
        match info {
            SyncInfo::NewCookie(cookie) => {
                let csns = self.read_cookie(Some(cookie))?.unwrap_or_default();
                // While a refresh goes on, only its end says what is here.
                if self.phase == Phase::Persisting && self.batch.is_news(&csns) {
                    self.batch.raise(&csns);
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
                    self.batch.raise(&csns);
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
        let has_whole = self.content.take() == Some(Content::Whole);
        let newer = has_whole || self.from_nothing && !csns.is_empty() || self.batch.is_news(&csns);
        if !newer {
            return;
        }
        // A provider that is asked for everything names what is present by sending it. A slapd calls that a delete phase. What changes
        // while a poll goes on it leaves out until the next one, which says nothing of what is absent.
        let may_have_left = self.follows_broken && self.request.mode == SyncMode::RefreshAndPersist;
        let is_whole = self.from_nothing && (may_have_left || !self.batch.known().is_empty());
        if (of_present || is_whole) && !self.request.logged {
            // Once.
            self.from_nothing &= !is_whole;
            let mut present = std::mem::take(&mut self.present);
            present.settle();
            self.batch.raise(&csns);
            let (csns, deletes_told) = (self.batch.take_csns(), self.deletes_told);
            let subentries = self.subentries_sent;
            actions.push(Action::DeleteAbsent { present, csns, deletes_told, whole: has_whole, subentries });
        } else {
            self.batch.raise(&csns);
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
        // One of a relayed delete says nothing but its CSN, and one of an entry that another server keeps nothing but that.
        let is_elsewhere = read.content == Some(Content::Elsewhere);
        if !read.csns.is_empty() || read.delete.is_none() && !is_elsewhere {
            self.last_cookie = Some(text.to_owned());
        }
        (self.last_delete, self.deletes_told) = (read.delete, read.deletes_told);
        self.subentries_sent = read.subentries_sent;
        self.content = read.content;
        self.states_kept |= read.states_kept;
        self.batch.note_provider(read.sid);
        Ok(Some(read.csns))
    }
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

#[cfg(test)]
mod tests;
