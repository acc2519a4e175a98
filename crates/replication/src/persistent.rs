//! Searches that go on with changes (draft-ietf-ldapext-psearch-03), as a state machine without I/O.
//!
//! [`Changes`] is one client's search: what matches already, if that was asked for, then every change that the change log tells. It
//! goes on in slices, each with a snapshot of its own. Between them it knows a place in the change log and, where the client does
//! not see everything and cares for what is deleted or renamed, a bit an entry. A client that does not read is not waited for: the
//! change log is its queue, and when that has lost what the client was not sent yet, the search ends.
//!
//! An entry is sent as it is now, not as one change left it: if it was changed twice it may be sent twice alike, and if it is
//! gone meanwhile, only its delete is sent. A delete is sent by the entry's name alone, to a client that was allowed to see the
//! entry.

use std::collections::VecDeque;
use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::entry::EntryId;
use larix_engine::log::{self, Follower, LogKey, LogOutline, OutlineKind};
use larix_engine::search::synchronised::EntryIds;
use larix_engine::search::task::storage_failure;
use larix_engine::search::{Budget, SearchTask, Step};
use larix_engine::{Database, DatabaseHandle, Fault, ServedDatabase, View, tree};
use larix_proto::control::{ChangeType, EntryChangeNotification, PersistentSearch};
use larix_proto::encode::EntryEncoder;
use larix_proto::{ControlBuf, ControlValue, LdapResult, MessageId, ResultCode};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

/// Records of the log, or entries that are looked at again, in one slice.
const AT_ONCE: usize = 64;

/// Entries below one that was renamed that are looked at again: with more, the search ends.
const MOVED_MAX: usize = 1_000_000;

/// What a search is started with.
#[derive(Debug)]
pub struct Start<S: Store> {
    pub asked: PersistentSearch,
    /// The database that the base is in, then those that are glued below it.
    pub parts: Vec<(Arc<ServedDatabase<S>>, SearchTask)>,
    /// Whether the filter matches every entry.
    pub any_entry: bool,
    pub message: MessageId,
}

/// How a slice ended.
#[derive(Debug)]
pub enum SliceOutcome {
    /// There is more to do.
    More,
    /// There is nothing to do until the [follower](Changes::follow) is notified.
    Waiting,
    Done(LdapResult, Vec<ControlBuf>),
}

/// See the module's page.
#[derive(Debug)]
pub struct Changes<S: Store> {
    request: PersistentSearch,
    parts: Vec<DatabaseSearch<S>>,
    message: MessageId,
    phase: Phase,
    follower: Option<Arc<Follower>>,
}

#[derive(Debug)]
enum Phase {
    /// What matches already is looked for in this part.
    Walk(usize),
    Follow,
}

/// The search in one database.
#[derive(Debug)]
struct DatabaseSearch<S: Store> {
    served: DatabaseHandle<S>,
    task: SearchTask,
    server_id: u16,
    /// The log's history when it began.
    history: Option<Uuid>,
    /// The last record of the log that was dealt with.
    position: u64,
    /// The rules by which `seen` was made.
    policy: Option<Arc<AccessPolicy>>,
    seen: Known,
    /// Entries to be looked at again before anything else is sent.
    again: VecDeque<EntryId>,
    /// The search looks again at all of `seen` behind this entry.
    again_after: Option<Option<EntryId>>,
}

/// Which entries the client is known to see.
#[derive(Debug)]
enum Known {
    /// No search asks.
    Unasked,
    /// It sees whatever there is.
    Everything,
    These(EntryIds),
}

impl Known {
    fn has(&self, id: EntryId) -> bool {
        match self {
            Self::Unasked => false,
            Self::Everything => true,
            Self::These(ids) => ids.contains(id),
        }
    }

    fn note(&mut self, id: EntryId, sees: bool) {
        if let Self::These(ids) = self {
            match sees {
                true => ids.insert(id),
                false => ids.remove(id),
            };
        }
    }
}

impl<S: Store> Changes<S> {
    /// Begins: changes from here on are sent.
    ///
    /// # Errors
    /// What is answered where there is no such base, or where it may not be searched; a store that cannot be read.
    pub fn new(start: Start<S>) -> Result<Self, LdapResult> {
        let Start { asked: request, parts, any_entry, message } = start;
        let part = |(served, task): (Arc<ServedDatabase<S>>, SearchTask)| {
            let server_id = served.database().server_id();
            DatabaseSearch {
                served: DatabaseHandle::new(&served),
                task,
                server_id,
                history: None,
                position: 0,
                policy: None,
                seen: Known::Unasked,
                again: VecDeque::new(),
                again_after: None,
            }
        };
        let parts = parts.into_iter().map(part).collect();
        let mut changes = Self { request, parts, message, phase: Phase::Follow, follower: None };
        changes.begin(any_entry)?;
        Ok(changes)
    }

    /// Whom to tell when a search that waits may go on.
    pub fn follow(&mut self, follower: &Arc<Follower>) {
        // One that is retired meanwhile ends the search in its first slice.
        let databases = self.parts.iter().filter_map(|part| part.served.database().ok());
        databases.for_each(|database| database.log_watch().follow(follower));
        self.follower = Some(Arc::clone(follower));
    }

    /// Entries sent and looked at.
    pub fn effort(&self) -> (u64, u64) {
        let sent = self.parts.iter().map(|part| u64::from(part.task.entries())).sum();
        (sent, self.parts.iter().map(|part| part.task.looked_at()).sum())
    }

    /// Goes on for one slice; appends whole messages to `out`.
    pub fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> SliceOutcome {
        self.slice(budget, out).unwrap_or_else(|result| SliceOutcome::Done(result, Vec::new()))
    }

    fn slice(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<SliceOutcome, LdapResult> {
        if let Some(follower) = &self.follower {
            follower.looks();
        }
        for part in &mut self.parts {
            let database = part.served.database()?;
            part.check_configuration(&database)?;
        }
        match self.phase {
            Phase::Walk(at) => self.walk(at, budget, out),
            Phase::Follow => self.tell(budget, out),
        }
    }

    fn wants(&self, kind: ChangeType) -> bool {
        self.request.change_types & kind as u8 != 0
    }

    /// Notes where the logs end, before anything is looked at: changes made meanwhile are sent afterwards.
    fn begin(&mut self, any_entry: bool) -> Result<(), LdapResult> {
        let asks = self.wants(ChangeType::Delete) || self.request.return_ecs && self.wants(ChangeType::ModDn);
        let silent = self.request.changes_only;
        let mut walks = !silent;
        for (at, part) in self.parts.iter_mut().enumerate() {
            let database = part.served.database()?;
            let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
            // Under whichever server ID it was written: sequences go on when that changes.
            let end = log::end(&snapshot).map_err(|fault| failed(&fault))?;
            part.position = end.map_or(0, |end| end.sequence);
            part.history = log::history(&snapshot).map_err(|fault| failed(&fault))?;
            let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
            part.policy = Some(Arc::clone(&view.policy));
            match part.task.keeps_base(&view) {
                Ok(_) => {}
                // What is glued below may not be there yet.
                Err(result) if at > 0 && result.code == ResultCode::NO_SUCH_OBJECT => continue,
                Err(result) => return Err(result),
            }
            part.seen = match asks {
                false => Known::Unasked,
                true if any_entry && part.task.sees_everything(&view)? => Known::Everything,
                true => {
                    walks = true;
                    Known::These(EntryIds::default())
                }
            };
            part.task.note_entries(silent);
        }
        self.phase = if walks { Phase::Walk(0) } else { Phase::Follow };
        Ok(())
    }

    /// What matches already.
    fn walk(&mut self, at: usize, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<SliceOutcome, LdapResult> {
        let Some(part) = self.parts.get_mut(at) else {
            self.phase = Phase::Follow;
            return Ok(SliceOutcome::More);
        };
        let is_needed = !self.request.changes_only || matches!(part.seen, Known::These(_));
        if is_needed {
            let database = part.served.database()?;
            let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
            let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
            let Step::Done(result, _) = part.task.step(&view, out, budget) else {
                return Ok(SliceOutcome::More);
            };
            if !(result.is_success() || (at > 0 && result.code == ResultCode::NO_SUCH_OBJECT)) {
                return Err(result);
            }
        }
        let found = part.task.take_noted();
        if let Known::These(ids) = &mut part.seen {
            *ids = found;
        }
        let remaining = part.task.size_limit().map(|limit| limit.saturating_sub(part.task.entries()));
        if let (Some(remaining), Some(next)) = (remaining, self.parts.get_mut(at + 1)) {
            next.task.limit_size(remaining);
        }
        self.phase = Phase::Walk(at + 1);
        Ok(SliceOutcome::More)
    }

    /// What the logs tell.
    fn tell(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<SliceOutcome, LdapResult> {
        let mut more = false;
        let to_whom = (self.request, self.message);
        for (at, part) in self.parts.iter_mut().enumerate() {
            if out.len() >= budget.bytes {
                return Ok(SliceOutcome::More);
            }
            more |= part.tell(at, to_whom, budget, out)?;
        }
        Ok(if more { SliceOutcome::More } else { SliceOutcome::Waiting })
    }
}

impl<S: Store> DatabaseSearch<S> {
    /// A database that does not tell its changes any more ends the search.
    fn check_configuration(&self, database: &Database<S>) -> Result<(), LdapResult> {
        if !database.current_settings().tells_changes {
            return Err(search_again("the database does not tell its changes any more"));
        }
        if database.server_id() != self.server_id {
            return Err(search_again("the server has another id now: search again"));
        }
        Ok(())
    }

    /// One slice of the log. Answers whether there is more.
    fn tell(
        &mut self,
        at: usize,
        to_whom: (PersistentSearch, MessageId),
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let database = self.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        let records = self.records(&snapshot)?;
        let has_base = match self.task.keeps_base(&view) {
            Ok(has_base) => has_base,
            Err(result) if result.code == ResultCode::NO_SUCH_OBJECT => false,
            Err(result) => return Err(result),
        };
        if has_base && !self.looked_again(&view)? {
            return Ok(true);
        }
        let more = records.len() >= AT_ONCE;
        for (sequence, outline) in records {
            if out.len() >= budget.bytes {
                return Ok(true);
            }
            self.send_record(&view, (&outline, has_base), to_whom, out)?;
            self.position = sequence;
            if !self.again.is_empty() {
                return Ok(true);
            }
        }
        if !(has_base || more) && at == 0 {
            return Err(LdapResult::with(
                ResultCode::NO_SUCH_OBJECT,
                "the search base is gone, or has another name",
            ));
        }
        Ok(more)
    }

    /// The next records.
    fn records<N: Snapshot>(&mut self, snapshot: &N) -> Result<Vec<(u64, LogOutline)>, LdapResult> {
        let first = log::first_sequence(snapshot, self.server_id).map_err(|fault| failed(&fault))?;
        let history = log::history(snapshot).map_err(|fault| failed(&fault))?;
        let another = self.history.is_some() && history != self.history;
        if first > self.position + 1 || another {
            return Err(search_again("the change log has lost changes that were not sent yet: search again"));
        }
        self.history = history;
        let mut records = Vec::new();
        let after = LogKey { server_id: self.server_id, sequence: self.position };
        let visited = log::visit_outlines_after(snapshot, after, &mut |key, outline| {
            records.push((key.sequence, outline));
            records.len() < AT_ONCE
        });
        visited.map_err(|fault| failed(&fault))?;
        Ok(records)
    }

    /// Looks again at what the client may see otherwise now. Answers whether that is done.
    fn looked_again<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<bool, LdapResult> {
        if self.policy.as_ref().is_some_and(|before| !Arc::ptr_eq(before, &view.policy)) {
            if matches!(self.seen, Known::Everything) && !self.task.sees_everything(view)? {
                return Err(search_again("the access rules have changed: search again"));
            }
            self.policy = Some(Arc::clone(&view.policy));
            self.again_after = matches!(self.seen, Known::These(_)).then_some(None);
        }
        if let (Some(after), Known::These(ids)) = (self.again_after, &self.seen)
            && self.again.is_empty()
        {
            self.again.extend(ids.after(after, AT_ONCE));
            self.again_after = self.again.back().map(|last| Some(*last));
        }
        for _ in 0..AT_ONCE {
            let Some(id) = self.again.pop_front() else { break };
            let sees = self.task.look_again(view, id, &mut Vec::new(), None)?;
            self.seen.note(id, sees);
        }
        Ok(self.again.is_empty() && self.again_after.is_none())
    }

    /// Tells of one record.
    fn send_record<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        (outline, has_base): (&LogOutline, bool),
        (request, message): (PersistentSearch, MessageId),
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        if outline.absent {
            return Ok(());
        }
        let kind = match outline.kind {
            OutlineKind::Add => ChangeType::Add,
            OutlineKind::Modify => ChangeType::Modify,
            OutlineKind::Delete => ChangeType::Delete,
            OutlineKind::ModifyDn { .. } => ChangeType::ModDn,
        };
        let (id, is_wanted) = (outline.entry, request.change_types & kind as u8 != 0);
        let knew = matches!(kind, ChangeType::Delete | ChangeType::ModDn)
            && self.seen.has(id)
            && self.task.spans(&view.schema, &outline.dn)
            && self.task.may_name(view, &outline.dn)?;
        let previous = (kind == ChangeType::ModDn && knew).then_some(outline.dn.as_str());
        let notification = EntryChangeNotification { change_type: kind, previous_dn: previous };
        let controls: Vec<ControlBuf> =
            request.return_ecs.then(|| notification.to_control(false)).into_iter().collect();
        if kind == ChangeType::Delete {
            if is_wanted && knew {
                EntryEncoder::begin(out, message, &outline.dn).finish(&controls);
            }
            self.seen.note(id, false);
            return Ok(());
        }
        if !has_base || !(is_wanted || matches!(self.seen, Known::These(_))) {
            return Ok(());
        }
        let sees = self.task.look_again(view, id, out, is_wanted.then_some(controls.as_slice()))?;
        self.seen.note(id, sees);
        if kind == ChangeType::ModDn && matches!(self.seen, Known::These(_)) {
            // What is below it has another name, too, and may be seen otherwise.
            let below = tree::subtree(view.snapshot, id, MOVED_MAX).map_err(|fault| failed(&fault))?;
            if below.len() >= MOVED_MAX {
                return Err(search_again(
                    "more entries were renamed at once than are looked at: search again",
                ));
            }
            self.again.extend(below.into_iter().skip(1));
        }
        Ok(())
    }
}

fn failed(fault: &Fault) -> LdapResult {
    storage_failure(fault)
}

/// The client has to begin anew.
fn search_again(why: &str) -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, why)
}
