//! One consumer's search, from its request to its end.

use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::audit;
use larix_engine::csn::Csn;
use larix_engine::database::ProviderSettings;
use larix_engine::log::{self, CsnVector, Follower};
use larix_engine::search::synchronised::{EntryIds, Refresh};
use larix_engine::search::{Budget, SearchTask};
use larix_engine::tables::ENTRIES;
use larix_engine::{DatabaseHandle, Fault, ServedDatabase};
use larix_proto::control::SyncDone;
use larix_proto::extended::SyncInfo;
use larix_proto::{ControlBuf, ControlValue, LdapResult, MessageId, ResultCode, encode};
use larix_store::{Direction, KeyRange, Snapshot, Store};
use uuid::Uuid;

use super::decide::{ConsumerRequest, Decision, cookie, decide};
use super::follow::Following;
use super::proof::proves_deletes;
use super::queue::{QueueTicket, RefreshQueue, Turn};
use super::refresh::{Changed, LogRefresh, Walk, lacks_of};
use super::tombstones;
use crate::cookie::{CONTENT_ELSEWHERE, CONTENT_WHOLE, DELETES_TOLD, STATES_KEPT, SUBENTRIES_SENT};

/// What a search is started with.
#[derive(Debug)]
pub struct Start<S: Store> {
    pub asked: ConsumerRequest,
    /// The database that the base is in, then those that are glued below it.
    pub parts: Vec<(Arc<ServedDatabase<S>>, SearchTask)>,
    /// Whether the filter matches every entry.
    pub any_entry: bool,
    /// The consumer settles conflicts value by value, as these databases do.
    pub values: bool,
    /// It wants the states of entries, where they are kept.
    pub states: bool,
    /// Other servers keep a part of the content: the caller sends it, and no log tells of it. Each refresh is a pass over all of the
    /// content then.
    pub elsewhere: bool,
    pub queue: RefreshQueue,
}

/// How a slice ended.
#[derive(Debug)]
pub enum SliceOutcome {
    /// There is more to do.
    More,
    /// There is nothing to do until the [follower](SyncSearch::follow) is notified.
    Waiting,
    /// The part of the content that is stored here was sent: now the caller sends what other servers keep, then calls
    /// [`SyncSearch::elsewhere_sent`].
    Elsewhere,
    Done(LdapResult, Vec<ControlBuf>),
}

/// How far a consumer has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerProgress {
    /// In a word or two.
    pub phase: &'static str,
    /// The CSNs of the last cookie that was sent to it.
    pub csns: Vec<Csn>,
    /// The last record of the log that was dealt with, for each database by its instance; none before changes are
    /// followed.
    pub positions: Vec<(u64, u64)>,
}

/// See the module's page.
#[derive(Debug)]
pub struct SyncSearch<S: Store> {
    pub(super) request: ConsumerRequest,
    pub(super) parts: Vec<DatabaseSearch<S>>,
    pub(super) message: MessageId,
    /// How far the databases had come at the start of the refresh.
    pub(super) start: CsnVector,
    /// The CSNs of the last cookie that was sent to the consumer.
    pub(super) sent_csns: CsnVector,
    phase: Phase,
    follower: Option<Arc<Follower>>,
    queue: RefreshQueue,
    turn: Option<Turn>,
    /// Where it waits for that.
    ticket: Option<QueueTicket>,
    /// It asked for every entry.
    pub(super) any_entry: bool,
    values: bool,
    /// The consumer merges changes one by one: it accepts no record of a difference that is not a change of its own.
    pub(super) states: bool,
    /// Entries are merged here: what is in one its entryCSN does not say.
    pub(super) merged: bool,
    /// A pass over the content is followed by all deletes that the consumer may lack.
    tells_deletes: bool,
    /// The refresh was a pass over the content.
    goes_through: bool,
    /// Other servers keep a part of the content.
    elsewhere: bool,
    /// What an access log had gone past when the search began.
    left_out: CsnVector,
    server_id: u16,
}

/// The search in one database.
#[derive(Debug)]
pub(super) struct DatabaseSearch<S: Store> {
    pub(super) served: DatabaseHandle<S>,
    pub(super) task: SearchTask,
    /// Of the database.
    instance: u64,
    /// The log's history when it began.
    pub(super) history: Option<Uuid>,
    /// The last record of the log that was dealt with.
    pub(super) position: u64,
    /// What the log says has changed.
    pub(super) changed: Changed,
    /// The consumer may see everything: nothing of it has to be kept in mind.
    pub(super) unrestricted: bool,
    /// The access rules by which it may.
    pub(super) policy: Option<Arc<AccessPolicy>>,
    /// What the consumer has of a content that is not everything.
    pub(super) view: EntryIds,
    /// Whether `view` has all of that.
    pub(super) view_complete: bool,
    /// With so many entries of a moved subtree the consumer goes through the content.
    pub(super) moved_max: usize,
}

impl<S: Store> DatabaseSearch<S> {
    fn new(served: &Arc<ServedDatabase<S>>, task: SearchTask, moved_max: usize) -> Self {
        Self {
            served: DatabaseHandle::new(served),
            instance: served.database().instance(),
            task,
            history: None,
            position: 0,
            changed: Changed::default(),
            unrestricted: false,
            policy: None,
            view: EntryIds::default(),
            view_complete: false,
            moved_max,
        }
    }
}

#[derive(Debug)]
enum Phase {
    Begin,
    Walk(Walk),
    Log(Box<LogRefresh>),
    /// The caller sends what other servers keep.
    Elsewhere,
    Persist(Following),
}

impl<S: Store> SyncSearch<S> {
    pub fn new(start: Start<S>) -> Self {
        let Start { asked: request, parts, any_entry, values, states, elsewhere, queue } = start;
        let keeps = |(served, _): &(Arc<ServedDatabase<S>>, SearchTask)| {
            served.database().current_settings().keeps_states()
        };
        let merged = parts.iter().any(keeps);
        let message = parts.first().map_or(MessageId(0), |(_, task)| task.message());
        let server_id = parts.first().map_or(0, |(served, _)| served.database().server_id());
        let (peer, moved_max) = (request.peer, queue.moved_max());
        let part = |(served, mut task): (Arc<ServedDatabase<S>>, SearchTask)| {
            task.for_consumer();
            if values || states && merged {
                task.send_states();
            }
            if peer {
                task.send_places();
            }
            DatabaseSearch::new(&served, task, moved_max)
        };
        Self {
            request,
            parts: parts.into_iter().map(part).collect(),
            message,
            start: CsnVector::default(),
            sent_csns: CsnVector::default(),
            phase: Phase::Begin,
            follower: None,
            queue,
            turn: None,
            ticket: None,
            any_entry,
            values,
            states,
            merged,
            tells_deletes: false,
            goes_through: false,
            elsewhere,
            left_out: CsnVector::default(),
            server_id,
        }
    }

    /// Whom to tell when a search that waits may go on.
    pub fn follow(&mut self, follower: Arc<Follower>) {
        // One that is retired meanwhile ends the search in its first slice.
        let databases = self.parts.iter().filter_map(|part| part.served.database().ok());
        databases.for_each(|database| database.log_watch().follow(&follower));
        self.follower = Some(follower);
    }

    /// Entries sent and looked at.
    pub fn effort(&self) -> (u64, u64) {
        let sent = self.parts.iter().map(|part| u64::from(part.task.entries())).sum();
        (sent, self.parts.iter().map(|part| part.task.looked_at()).sum())
    }

    /// Says how far the consumer has come.
    pub fn reached(&self, out: &mut ConsumerProgress) {
        out.phase = match &self.phase {
            Phase::Begin => "waiting",
            Phase::Walk(_) => "refresh by content",
            Phase::Log(_) => "refresh by log",
            Phase::Elsewhere => "refresh from other servers",
            Phase::Persist(_) => "persist",
        };
        out.csns.clear();
        out.csns.extend_from_slice(self.sent_csns.as_slice());
        out.positions.clear();
        // Before that it is not known what of the log it has.
        if self.persists() {
            out.positions.extend(self.parts.iter().map(|part| (part.instance, part.position)));
        }
    }

    /// Whether the refresh is done and changes are followed.
    pub fn persists(&self) -> bool {
        matches!(self.phase, Phase::Persist(_))
    }

    /// All that other servers keep was sent.
    pub fn elsewhere_sent(&mut self, out: &mut Vec<u8>) -> SliceOutcome {
        match self.phase {
            Phase::Elsewhere => self.refreshed(true, true, out),
            _ => SliceOutcome::More,
        }
    }

    /// The cookie beside an entry, or beside a delete, of what another server keeps: a Larix judges it by no CSN of this server. A slapd
    /// judges a message without a cookie by the CSN of the message before it, and so passes over it.
    pub fn cookie_elsewhere(&self) -> Option<String> {
        self.request.has_replica_id.then(|| format!("{}{CONTENT_ELSEWHERE}", self.cookie(&[])))
    }

    /// The cookie beside an entry that has come into the search, or has changed, under a CSN that the consumer may know, for a Larix: with
    /// its superior, or by an older change that was merged. One that is sent states goes by these. The consumer takes such an entry for
    /// what it had, be that newer: one that takes changes itself, or has heard more than this server, is sent no such cookie.
    pub(super) fn cookie_moved(&self) -> Option<String> {
        let sends_states = self.values || self.states && self.merged;
        let hears_all_here = self.request.sid.is_none() && self.start.covers_all(&self.request.known);
        let is_for = self.request.peer && !sends_states && hears_all_here;
        is_for.then(|| format!("{}{CONTENT_ELSEWHERE}", self.cookie(&[])))
    }

    /// The consumer does not read: others refresh meanwhile, and it asks for a turn again at its next slice.
    pub fn pause(&mut self) {
        self.turn = None;
        // A turn that was offered to it goes to the next waiting search.
        self.ticket = None;
    }

    fn has_turn(&mut self) -> bool {
        if self.turn.is_none() {
            self.turn = self.queue.ask(self.follower.as_ref(), &mut self.ticket);
        }
        self.turn.is_some()
    }

    /// Goes on for one slice; appends whole messages to `out`.
    pub fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> SliceOutcome {
        self.slice(budget, out).unwrap_or_else(|result| SliceOutcome::Done(result, Vec::new()))
    }

    fn slice(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<SliceOutcome, LdapResult> {
        if let Some(follower) = &self.follower {
            follower.looks();
        }
        self.check_configuration()?;
        if matches!(self.phase, Phase::Elsewhere) {
            return Ok(SliceOutcome::Elsewhere);
        }
        if !self.persists() && !self.has_turn() {
            return Ok(SliceOutcome::Waiting);
        }
        let mut phase = std::mem::replace(&mut self.phase, Phase::Begin);
        let stepped = match &mut phase {
            Phase::Begin => return self.begin(out),
            Phase::Walk(walk) => {
                if walk.slice(self, budget, out)? {
                    self.goes_through = true;
                    if self.elsewhere {
                        // Others need not wait until another server has answered.
                        (self.phase, self.turn) = (Phase::Elsewhere, None);
                        return Ok(SliceOutcome::Elsewhere);
                    }
                    return Ok(self.refreshed(walk.present(), true, out));
                }
                SliceOutcome::More
            }
            Phase::Log(log) => {
                if log.slice(self, budget, out)? {
                    return Ok(self.refreshed(false, true, out));
                }
                if log.gives_up() {
                    let (known, each_cookie) = log.taken_over();
                    return Ok(self.pass_instead(known, each_cookie));
                }
                SliceOutcome::More
            }
            Phase::Elsewhere => SliceOutcome::Elsewhere,
            Phase::Persist(following) => following.slice(self, budget, out)?,
        };
        self.phase = phase;
        Ok(stepped)
    }

    /// A database that was retired, or that is no longer provided, ends the search.
    fn check_configuration(&self) -> Result<(), LdapResult> {
        for (at, part) in self.parts.iter().enumerate() {
            let database = part.served.database()?;
            if at == 0 && database.current_settings().provider.is_none() {
                return Err(LdapResult::with(ResultCode::UNAVAILABLE, "the content is no longer provided"));
            }
            if database.current_settings().value_conflicts != self.values {
                let text = "the database settles conflicts in another mode now";
                return Err(LdapResult::with(ResultCode::UNAVAILABLE, text));
            }
            if database.current_settings().keeps_states() && !self.merged {
                let text = "the database keeps the states of entries now";
                return Err(LdapResult::with(ResultCode::UNAVAILABLE, text));
            }
            if database.server_id() != self.server_id {
                return Err(LdapResult::with(ResultCode::UNAVAILABLE, "the server has another id now"));
            }
        }
        Ok(())
    }

    fn begin(&mut self, out: &mut Vec<u8>) -> Result<SliceOutcome, LdapResult> {
        let mut doubted = CsnVector::default();
        for (number, part) in self.parts.iter_mut().enumerate() {
            let database = part.served.database()?;
            let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
            if number == 0 {
                self.left_out = audit::left_out(&snapshot).map_err(|fault| failed(&fault))?;
            }
            let csns = log::context_csns(&snapshot).map_err(|fault| failed(&fault))?;
            csns.into_iter().for_each(|csn| {
                self.start.note(csn);
            });
            let lacked = log::doubted_csns(&snapshot).map_err(|fault| failed(&fault))?;
            doubted.extend(lacked.as_slice().iter().copied());
            // Under whichever server ID it was written: sequences go on when that changes.
            let end = log::end(&snapshot).map_err(|fault| failed(&fault))?;
            part.position = end.map_or(0, |end| end.sequence);
            part.history = log::history(&snapshot).map_err(|fault| failed(&fault))?;
        }
        if self.request.persist {
            self.look_around()?;
        }
        // A pass over all of the content names everything that is there; what is gone elsewhere nobody here can name.
        self.tells_deletes = !self.elsewhere && tombstones::are_sent(self) && self.proves_deletes()?;
        let settings = match self.parts.first() {
            Some(part) => part.served.database()?.current_settings().provider.unwrap_or_default(),
            None => ProviderSettings::default(),
        };
        let each_cookie = settings.no_present && settings.reload_hint;
        let each_cookie = each_cookie.then(|| cookie(self.request.rid, self.server_id, &[]));
        let is_below = |csn: &Csn| doubted.of(csn.server_id).is_some_and(|doubted| *csn < doubted);
        let is_doubted = self.request.known.as_slice().iter().any(is_below);
        let decision = match decide(&self.request.known, &self.start, self.server_id) {
            _ if is_doubted => Decision::Everything,
            // Content without a contextCSN is content, too.
            Decision::Unchanged if self.start.is_empty() && self.has_content()? => Decision::Everything,
            // A poll is sent it when the contextCSN has come so far.
            Decision::Unchanged if self.request.persist && !self.start.is_empty() && self.is_ahead()? => {
                Decision::Since(self.request.known.clone())
            }
            other => other,
        };
        match decision {
            Decision::Refused(result) => Err(result),
            Decision::Unchanged if !self.elsewhere => Ok(self.refreshed(false, false, out)),
            Decision::Unchanged => {
                let known = self.request.known.clone();
                Ok(self.pass(known, true, each_cookie))
            }
            Decision::Everything => {
                if !self.request.known.is_empty() || self.request.wants_changes {
                    self.check_log_reaches()?;
                }
                // It drops what it is not sent: a first refresh that was interrupted may have left something there.
                Ok(self.pass(CsnVector::default(), !settings.no_present, each_cookie))
            }
            Decision::Since(known) => {
                self.check_log_reaches()?;
                let log = match self.elsewhere {
                    true => None,
                    false => LogRefresh::new(self, &known, each_cookie.clone(), self.queue.entries_max())?,
                };
                let Some(log) = log else { return Ok(self.pass(known, !settings.no_present, each_cookie)) };
                self.phase = Phase::Log(Box::new(log));
                Ok(SliceOutcome::More)
            }
        }
    }

    /// An access log that has not everything says so: who lacks what it does not tell has to ask for the entries. A server
    /// of which it has everything from the first change on need not be known to the consumer.
    fn check_log_reaches(&self) -> Result<(), LdapResult> {
        let Some(part) = self.parts.first() else { return Ok(()) };
        let database = part.served.database()?;
        let lacks = || -> Result<Option<CsnVector>, Fault> {
            let snapshot = database.store().snapshot()?;
            audit::lacks(&database.view(&snapshot)?)
        };
        let lacks = lacks().map_err(|fault| failed(&fault))?.unwrap_or_default();
        if self.request.known.covers_all(&lacks) {
            Ok(())
        } else {
            Err(refresh_required("sync cookie is stale"))
        }
    }

    /// An access log that has gone past a change since the search began says so to who follows it.
    pub(super) fn check_left_out<N: Snapshot>(&self, snapshot: &N) -> Result<(), LdapResult> {
        let left_out = audit::left_out(snapshot).map_err(|fault| failed(&fault))?;
        if left_out == self.left_out {
            Ok(())
        } else {
            Err(refresh_required("the log lacks a change: ask for the entries"))
        }
    }

    /// Whether the logs are ahead of the contextCSN with what the consumer lacks: a refresh from elsewhere is under way here,
    /// or was broken off. A consumer that began to follow after that would never receive it.
    fn is_ahead(&self) -> Result<bool, LdapResult> {
        for part in &self.parts {
            if lacks_of(part, self.server_id, &self.request)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether nothing was deleted behind what the consumer knows that this server has not heard of.
    fn proves_deletes(&self) -> Result<bool, LdapResult> {
        for part in &self.parts {
            let database = part.served.database()?;
            let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
            if !proves_deletes(&snapshot, self.request.sid, &self.request.known)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_content(&self) -> Result<bool, LdapResult> {
        let Some(part) = self.parts.first() else { return Ok(false) };
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let rows = snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward);
        let row = rows.and_then(|mut rows| rows.next().transpose()).map_err(|error| failed(&error.into()))?;
        Ok(row.is_some())
    }

    /// A pass over all of the content, of which the consumer has what `known` covers.
    fn pass(&mut self, known: CsnVector, present: bool, each_cookie: Option<String>) -> SliceOutcome {
        // What is gone elsewhere has no other sign than that it is not named.
        let mut refresh = Refresh::new(known, present || self.elsewhere, each_cookie);
        refresh.merged = self.merged;
        self.walk(&refresh);
        SliceOutcome::More
    }

    /// A pass in the place of what the log would tell, deletes included: it names what is present, whatever the overlay says.
    fn pass_instead(&mut self, known: CsnVector, each_cookie: Option<String>) -> SliceOutcome {
        self.parts.iter_mut().for_each(|part| part.changed.clear());
        self.pass(known, true, each_cookie)
    }

    fn walk(&mut self, refresh: &Refresh) {
        let cookie_moved = self.cookie_moved();
        for part in &mut self.parts {
            let mut refresh = refresh.clone();
            refresh.cookie_moved.clone_from(&cookie_moved);
            if self.request.persist && !part.unrestricted {
                part.view_complete = true;
                refresh.view = Some(EntryIds::default());
            }
            part.task.refresh(refresh);
        }
        self.phase = Phase::Walk(Walk::new(refresh.present));
    }

    /// Finds the bases, and whether the consumer sees all there is.
    fn look_around(&mut self) -> Result<(), LdapResult> {
        let any_entry = self.any_entry;
        for (at, part) in self.parts.iter_mut().enumerate() {
            let database = part.served.database()?;
            let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
            let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
            match part.task.keeps_base(&view) {
                Ok(_) => {
                    part.unrestricted = any_entry && part.task.sees_everything(&view)?;
                    part.policy = part.unrestricted.then(|| Arc::clone(&view.policy));
                }
                // What is glued below may not be there yet.
                Err(result) if at > 0 && result.code == ResultCode::NO_SUCH_OBJECT => {}
                Err(result) => return Err(result),
            }
        }
        Ok(())
    }

    /// The refresh is done.
    fn refreshed(&mut self, present: bool, changed: bool, out: &mut Vec<u8>) -> SliceOutcome {
        self.turn = None;
        self.sent_csns = self.start.clone();
        let mut text = (changed && !self.start.is_empty()).then(|| self.cookie(self.start.as_slice()));
        if present && self.tells_deletes {
            text.iter_mut().for_each(|text| text.push_str(DELETES_TOLD));
        }
        if self.states && self.merged && self.request.persist {
            // A consumer that has everything, and receives no entry with its state, must note from here on when what was changed.
            // (One that polls for the entries of a log's server notes it anyhow.)
            text.get_or_insert_with(|| self.cookie(self.start.as_slice())).push_str(STATES_KEPT);
        }
        if self.elsewhere && self.request.peer {
            text.get_or_insert_with(|| self.cookie(self.start.as_slice())).push_str(CONTENT_WHOLE);
        }
        if self.goes_through && self.request.peer && self.has_all_subentries() {
            text.iter_mut().for_each(|text| text.push_str(SUBENTRIES_SENT));
        }
        let cookie = text.as_deref().map(str::as_bytes);
        if !self.request.persist {
            let done = SyncDone { cookie, refresh_deletes: !present };
            return SliceOutcome::Done(LdapResult::success(), vec![done.to_control(false)]);
        }
        let info = match present {
            true => SyncInfo::RefreshPresent { cookie, done: true },
            false => SyncInfo::RefreshDelete { cookie, done: true },
        };
        self.inform(&info, out);
        self.phase = Phase::Persist(Following::default());
        SliceOutcome::More
    }

    pub(super) fn inform(&self, info: &SyncInfo<'_>, out: &mut Vec<u8>) {
        encode::intermediate(out, self.message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
    }

    pub(super) fn cookie(&self, csns: &[Csn]) -> String {
        cookie(self.request.rid, self.server_id, csns)
    }

    pub(super) fn server_id(&self) -> u16 {
        self.server_id
    }

    /// Whether no other server fills the content. One that does may have sent no subentries: a slapd, or a Larix of an earlier version.
    fn has_all_subentries(&self) -> bool {
        self.parts.iter().all(|part| {
            part.served.database().is_ok_and(|database| {
                let settings = database.current_settings();
                !(settings.shadow || settings.multi_provider)
            })
        })
    }

    /// Whether nothing in a part's database was changed here first.
    pub(super) fn is_shadow(&self, part: usize) -> bool {
        let database = self.parts.get(part).and_then(|part| part.served.database().ok());
        database.is_some_and(|database| database.current_settings().shadow)
    }

    /// Whether a pass over some content brought this server further with another one's changes than the cookie sent to the consumer
    /// says: it may have what was deleted meanwhile, and of that the log tells nothing. A consumer that receives changes only from
    /// here has nothing that was never here.
    pub(super) fn may_lack_deletes(&self, by_content: &CsnVector, server_id: u16) -> bool {
        if self.request.sid.is_none_or(|own| own == server_id) {
            return false;
        }
        let unproved = by_content.of(server_id);
        unproved.is_some_and(|csn| !self.sent_csns.covers(&csn) && !self.request.known.covers(&csn))
    }
}

/// The result for a consumer when the store cannot be read.
pub(super) fn failed(fault: &Fault) -> LdapResult {
    larix_engine::search::task::storage_failure(fault)
}

/// The result for a consumer that the log cannot serve any more.
pub(super) fn refresh_required(why: &str) -> LdapResult {
    LdapResult::with(ResultCode::SYNC_REFRESH_REQUIRED, why)
}
