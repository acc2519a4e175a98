//! The persist stage: the provider follows the change log, and sends each change as far as it concerns the consumer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use larix_engine::audit;
use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::log::{self, CsnVector, LogKey, LogOutline, OutlineKind};
use larix_engine::search::Budget;
use larix_engine::search::synchronised::{Fate, Send, entry_csn, state_control};
use larix_engine::time::Clock;
use larix_engine::{EntryView, View};
use larix_proto::control::EntryState;
use larix_proto::encode::EntryEncoder;
use larix_proto::extended::SyncInfo;
use larix_proto::{LdapResult, ResultCode};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::held_back::HeldBack;
use super::refresh::{fate, moved_with};
use super::session::{DatabaseSearch, SliceOutcome, SyncSearch, failed, refresh_required};

/// Records that one slice deals with.
const RECORDS: usize = 256;

/// Where the persist stage is, beside the places in the logs.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Entries below one that was moved, to be looked at before anything else: with their part.
    moved: VecDeque<(usize, EntryId)>,
    /// Names that entries have for the consumer still, though they are called otherwise and will be sent so.
    stale_names: BTreeMap<String, (usize, EntryId, Uuid)>,
    /// Entries with a change that was passed over for a later one, which is not told yet: a cookie that goes beyond says
    /// what is not so.
    skipped: BTreeSet<(usize, EntryId)>,
    /// What a cookie cannot say to the consumer.
    held_back: HeldBack,
}

/// A record to send.
#[derive(Debug)]
struct PendingRecord {
    part: usize,
    sequence: u64,
    outline: LogOutline,
    /// What comes behind it in the slice is newer.
    in_order: bool,
}

/// What a slice sees.
struct Now<'n, N> {
    batch: &'n Batch,
    view: &'n View<'n, N>,
    is_based: bool,
}

/// What a slice has before it.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<PendingRecord>,
    /// The last record of each entry, by its part.
    last: BTreeMap<(usize, EntryId), usize>,
    /// Entries that came into being or were renamed.
    named: BTreeSet<(usize, EntryId)>,
    /// There is more behind it.
    more: bool,
    /// How far the databases are when it is done.
    context: CsnVector,
    /// How far they have come by other servers' contents.
    by_content: CsnVector,
}

impl Following {
    pub(super) fn slice<S: Store>(
        &mut self,
        search: &mut SyncSearch<S>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<SliceOutcome, LdapResult> {
        // What glued databases have in common is read first: their snapshots, taken later, have all of it.
        let bound = (search.parts.len() > 1).then(|| context(search)).transpose()?;
        let databases =
            search.parts.iter().map(|part| part.served.database()).collect::<Result<Vec<_>, _>>()?;
        let mut snapshots = Vec::with_capacity(databases.len());
        for database in &databases {
            snapshots.push(database.store().snapshot().map_err(|error| failed(&error.into()))?);
        }
        let mut views = Vec::with_capacity(databases.len());
        for (database, snapshot) in databases.iter().zip(&snapshots) {
            views.push(database.view(snapshot).map_err(|fault| failed(&fault))?);
        }
        if let Some(snapshot) = snapshots.first() {
            search.check_left_out(snapshot)?;
            if search.request.sid.is_some() || search.states {
                check_log_tells(search, snapshot)?;
            }
        }
        let batch = gather(search, &snapshots, bound)?;
        if batch.records.is_empty() && self.moved.is_empty() && !batch.more {
            // The end of a refresh from elsewhere says how far this server has come, and changes no entry.
            self.send_cookie(search, &batch, budget.clock, out)?;
            return Ok(SliceOutcome::Waiting);
        }
        let mut based = Vec::with_capacity(views.len());
        for (number, (part, view)) in search.parts.iter_mut().zip(&views).enumerate() {
            part.check_rules(view)?;
            based.push(number > 0 || part.task.keeps_base(view)?);
        }
        if !self.send_moved(search, &views, budget, out)? {
            return Ok(SliceOutcome::More);
        }
        let mut early = BTreeSet::new();
        for (index, record) in batch.records.iter().enumerate() {
            if out.len() >= budget.bytes {
                return Ok(SliceOutcome::More);
            }
            let is_based = based.get(record.part).copied().unwrap_or_default();
            if let Some(view) = views.get(record.part)
                && !early.contains(&index)
            {
                self.send_record(search, &Now { batch: &batch, view, is_based }, index, &mut early, out)?;
            }
            if let Some(part) = search.parts.get_mut(record.part) {
                part.position = record.sequence;
            }
            if !self.moved.is_empty() {
                return Ok(SliceOutcome::More);
            }
        }
        if based.contains(&false) {
            return Err(refresh_required("search base has changed"));
        }
        if batch.more {
            return Ok(SliceOutcome::More);
        }
        self.stale_names.clear();
        self.skipped.clear();
        self.send_cookie(search, &batch, budget.clock, out)?;
        Ok(SliceOutcome::Waiting)
    }

    /// The consumer learns how far it has come where nothing that it may see says so.
    fn send_cookie<S: Store>(
        &mut self,
        search: &mut SyncSearch<S>,
        batch: &Batch,
        clock: &dyn Clock,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let own = search.request.sid;
        let mut sent_csns = search.sent_csns.clone();
        let (mut news, mut withholds) = (false, false);
        for csn in batch.context.as_slice() {
            if search.may_lack_deletes(&batch.by_content, csn.server_id) {
                withholds = true;
                continue;
            }
            // Its own changes it knows of.
            news |= sent_csns.note(*csn) && own != Some(csn.server_id);
        }
        if news {
            let cookie = search.cookie(sent_csns.as_slice());
            search.inform(&SyncInfo::NewCookie(cookie.as_bytes()), out);
        }
        search.sent_csns = sent_csns;
        match self.held_back.is_over(withholds, clock.monotonic()) {
            // It knows by now from elsewhere, and says so, or goes through the content.
            true => Err(LdapResult::with(
                ResultCode::UNAVAILABLE,
                "a contextCSN was held back for a minute: refresh again",
            )),
            false => Ok(()),
        }
    }

    /// Looks at what was moved with its superior. Answers whether all of it was.
    fn send_moved<S: Store, N: Snapshot>(
        &mut self,
        search: &mut SyncSearch<S>,
        views: &[View<'_, N>],
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        for _ in 0..budget.candidates {
            let Some((number, id)) = self.moved.pop_front() else { return Ok(true) };
            let cookie = search.cookie_moved();
            let Some((part, view)) = search.parts.get_mut(number).zip(views.get(number)) else { continue };
            let was_there = part.may_have(id);
            let state = if part.view.contains(id) { EntryState::Modify } else { EntryState::Add };
            let fate = fate(part, number, view, id, out, &mut |_| {
                Some(Send { state, cookie: cookie.clone(), name: None })
            })?;
            match fate {
                Fate::Content => {
                    part.keep(id);
                }
                Fate::Outside(Some(uuid)) | Fate::Hidden(Some(uuid)) if was_there => {
                    part.view.remove(id);
                    let base = part.task.base_text().to_owned();
                    send_delete(search, (uuid, None), &base, None, out);
                }
                _ => {}
            }
            if out.len() >= budget.bytes {
                return Ok(self.moved.is_empty());
            }
        }
        Ok(self.moved.is_empty())
    }

    /// Sends what one record changed, and before it superiors that have to be there.
    fn send_record<S: Store, N: Snapshot>(
        &mut self,
        search: &mut SyncSearch<S>,
        now: &Now<'_, N>,
        index: usize,
        early: &mut BTreeSet<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let Some(record) = now.batch.records.get(index) else { return Ok(()) };
        let PendingRecord { outline, part: number, .. } = record;
        let (csn, id) = (outline.csn, outline.entry);
        // A present phase tells that an entry is gone, not who deleted it when: its CSN says nothing of who knows of it.
        let is_known = search.request.known.covers(&csn) || search.request.sid == Some(csn.server_id);
        if outline.local {
            let Some(part) = search.parts.get_mut(*number) else { return Ok(()) };
            let settled = settled_below(part, now.view, outline)?;
            self.note_moved(*number, settled, true);
            return Ok(());
        }
        if is_known && outline.kind != OutlineKind::Delete {
            self.skipped.remove(&(*number, id));
            return Ok(());
        }
        let is_delete = outline.kind == OutlineKind::Delete;
        if !(now.is_based || is_delete) {
            return Ok(());
        }
        let comes_again = !is_delete
            && (now.batch.last.get(&(*number, id)) != Some(&index) || changes_later(now.view, id, csn)?);
        if comes_again {
            // Each state is sent once: consumers pass over what has the CSN that they know.
            self.skipped.insert((*number, id));
            if matches!(outline.kind, OutlineKind::ModifyDn { .. }) {
                let uuid = outline.entry_uuid;
                self.stale_names.entry(outline.dn.to_lowercase()).or_insert((*number, id, uuid));
                let Some(part) = search.parts.get_mut(*number) else { return Ok(()) };
                let below = moved_below(part, now.view, outline)?;
                self.note_moved(*number, below, true);
            }
            return Ok(());
        }
        let was_early = early.contains(&index);
        let mut name = outline.dn_behind();
        if !is_delete && self.superiors_first(search, now, index, early, out)? {
            name = current_name(now.view, id)?.unwrap_or(name);
        }
        let holder = self.stale_names.get(&name.to_lowercase()).copied().filter(|(_, of, _)| *of != id);
        if let Some((at, of, uuid)) = holder.filter(|_| !(is_delete || search.request.peer)) {
            // The entry that still has that name at the consumer leaves it, and comes back under its present name.
            if let Some(part) = search.parts.get_mut(at) {
                part.view.remove(of);
            }
            self.stale_names.retain(|_, (_, other, _)| *other != of);
            // As in a refresh: another provider may have sent it anew already.
            let cookie = search.cookie(search.sent_csns.as_slice());
            let uuids = vec![*uuid.as_bytes()];
            search.inform(&SyncInfo::IdSet { cookie: Some(cookie.as_bytes()), deletes: true, uuids }, out);
        }
        // Of other servers' changes only all of a commit say how far this one has come: the cookie follows by itself. On a
        // shadow these may bear its own id (a chain of servers without ids), and here after a restore: they come in the
        // order in which somebody told them, a renamed superior before an older entry below it.
        // A delete that a present phase brought may have a CSN of ours that was sent before: a consumer would pass over it.
        let is_old = is_delete && search.sent_csns.covers(&csn);
        // Nor does a cookie go out where an entry may have more than the change that it is sent for, or while a change was
        // passed over whose entry comes later: a consumer that gets no further would delete such an entry elsewhere.
        let was_skipped = self.skipped.remove(&(*number, id));
        let own = csn.server_id == search.server_id() && !was_early && !is_old;
        let own = own && record.in_order && now.batch.context.covers(&csn) && !search.is_shadow(*number);
        // A consumer whose base is another entry now comes again, and must not know what was renamed then.
        let own = own && self.skipped.is_empty() && !search.merged && now.is_based;
        let cookie = own.then(|| search.cookie(&[csn]));
        self.send_entry(search, now, (outline, *number, was_skipped), (name, cookie), out)?;
        self.stale_names.retain(|_, (_, of, _)| *of != id);
        Ok(())
    }

    /// Superiors that come later in this slice are sent now. Answers whether any was, then or before.
    fn superiors_first<S: Store, N: Snapshot>(
        &mut self,
        search: &mut SyncSearch<S>,
        now: &Now<'_, N>,
        index: usize,
        early: &mut BTreeSet<usize>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let Some(record) = now.batch.records.get(index) else { return Ok(false) };
        let mut above = Vec::new();
        let mut at = record.outline.entry;
        while let Some(parent) = parent(now.view, at)? {
            let entry = (record.part, parent);
            if let Some(&later) = now.batch.last.get(&entry).filter(|last| **last > index)
                && now.batch.named.contains(&entry)
            {
                above.push(later);
            }
            at = parent;
        }
        let any = !above.is_empty();
        for later in above.into_iter().rev() {
            if early.insert(later) {
                self.send_record(search, now, later, early, out)?;
            }
        }
        Ok(any)
    }

    /// Sends an entry as it is now, or its delete.
    fn send_entry<S: Store, N: Snapshot>(
        &mut self,
        search: &mut SyncSearch<S>,
        now: &Now<'_, N>,
        (outline, number, was_skipped): (&LogOutline, usize, bool),
        (name, cookie): (String, Option<String>),
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        // An older change that was merged leaves the entryCSN as it is: the consumer may know that.
        let cookie_merged = if search.merged { search.cookie_moved() } else { None };
        let Some(part) = search.parts.get_mut(number) else { return Ok(()) };
        let (id, view) = (outline.entry, now.view);
        let below = moved_below(part, view, outline)?;
        // What is below a moved entry follows it: a consumer that gets no further does not have all of the change.
        let cookie = cookie.filter(|_| below.is_empty());
        let (had, has_cookie) = (part.view.contains(id), cookie.is_some());
        let was_there = part.may_have(id) && (had || part.unrestricted || outline.kind != OutlineKind::Add);
        let state = match outline.kind {
            _ if had => EntryState::Modify,
            OutlineKind::Add => EntryState::Add,
            _ if part.unrestricted || !part.view_complete => EntryState::Modify,
            _ => EntryState::Add,
        };
        let spans = part.unrestricted || part.task.spans(&view.schema, &name);
        let mut sent = false;
        let found = if now.is_based {
            fate(part, number, view, id, out, &mut |entry| {
                // Under a name that is not within the search: what moves it there comes later.
                let name = (name != entry.dn).then(|| name.clone());
                sent = name.is_none() || spans;
                let merged = cookie_merged.clone().filter(|_| entry.csn.is_some_and(|csn| csn > outline.csn));
                sent.then(|| Send { state, cookie: cookie.clone().or(merged), name })
            })?
        } else {
            Fate::Gone
        };
        let delete_uuid = match found {
            // One that was renamed and is gone meanwhile frees its name now.
            Fate::Gone if !matches!(outline.kind, OutlineKind::Add | OutlineKind::Modify) => {
                Some(outline.entry_uuid)
            }
            Fate::Outside(uuid) | Fate::Hidden(uuid) if outline.kind != OutlineKind::Delete => uuid,
            _ => None,
        };
        if sent {
            part.keep(id);
        }
        let delete_uuid = delete_uuid.filter(|uuid| was_there && !uuid.is_nil());
        self.note_moved(number, below, delete_uuid.is_none());
        if let Some(uuid) = delete_uuid {
            part.view.remove(id);
            // Whether the consumer had the entry, and by this name, may be unknown: then no name is sent.
            let knows_name = had && !was_skipped && part.task.may_name(view, &outline.dn)?;
            let name = match part.unrestricted || knows_name {
                true => outline.dn.clone(),
                false => part.task.base_text().to_owned(),
            };
            send_delete(search, (uuid, Some(outline.csn)), &name, cookie, out);
            if has_cookie && !search.request.peer && search.request.sid.is_some() {
                // A slapd passes over a delete if a server that never had the entry sent it the CSN before; it does not pass over
                // one without a cookie.
                send_delete(search, (uuid, None), &name, None, out);
            }
            sent = true;
        }
        if sent && has_cookie {
            search.sent_csns.note(outline.csn);
        }
        Ok(())
    }

    /// What is below a moved entry is looked at before anything else. `comes`: the entry itself belongs to the content.
    fn note_moved(&mut self, number: usize, mut below: Vec<EntryId>, comes: bool) {
        if !comes {
            below.reverse();
        }
        self.moved.extend(below.into_iter().map(|id| (number, id)));
    }
}

/// What is below a renamed entry, where it may have come into what the consumer sees, or have left it.
fn moved_below<S: Store, N: Snapshot>(
    part: &mut DatabaseSearch<S>,
    view: &View<'_, N>,
    outline: &LogOutline,
) -> Result<Vec<EntryId>, LdapResult> {
    let OutlineKind::ModifyDn { new_superior, .. } = &outline.kind else { return Ok(Vec::new()) };
    if part.unrestricted {
        return Ok(Vec::new());
    }
    let leaves_scope = new_superior.is_some() && !part.task.spans_all(view)?;
    if !(leaves_scope || part.task.goes_by_names(view)?) {
        return Ok(Vec::new());
    }
    // A refresh sees that, too, and goes through the content.
    let too_many = || refresh_required("more entries were moved at once than are sent one by one");
    let mut below = moved_with(part, view, outline.entry)?.ok_or_else(too_many)?;
    below.retain(|id| *id != outline.entry);
    Ok(below)
}

/// An entry that this server put below another superior by itself, and what is below it: that may concern a consumer of a part, which does
/// not settle places as this server does.
fn settled_below<S: Store, N: Snapshot>(
    part: &mut DatabaseSearch<S>,
    view: &View<'_, N>,
    outline: &LogOutline,
) -> Result<Vec<EntryId>, LdapResult> {
    if part.unrestricted || !outline.is_settled() {
        return Ok(Vec::new());
    }
    let mut settled = vec![outline.entry];
    settled.extend(moved_below(part, view, outline)?);
    Ok(settled)
}

impl<S: Store> DatabaseSearch<S> {
    /// Whether the consumer may have this entry, as far as is known.
    fn may_have(&self, id: EntryId) -> bool {
        self.unrestricted || !self.view_complete || self.view.contains(id)
    }

    /// Who saw everything, and does not by the rules that are in force now, hears of nothing more.
    fn check_rules<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<(), LdapResult> {
        let is_same = self.policy.as_ref().is_none_or(|before| Arc::ptr_eq(before, &view.policy));
        if is_same {
            return Ok(());
        }
        if !self.task.sees_everything(view)? {
            return Err(LdapResult::with(ResultCode::UNAVAILABLE, "the access rules have changed"));
        }
        self.policy = Some(Arc::clone(&view.policy));
        Ok(())
    }

    /// The consumer has it now.
    fn keep(&mut self, id: EntryId) {
        if !self.unrestricted {
            self.view.insert(id);
        }
    }
}

/// How far all databases of the search have come.
fn context<S: Store>(search: &SyncSearch<S>) -> Result<CsnVector, LdapResult> {
    let mut context = CsnVector::default();
    for part in &search.parts {
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let csns = log::context_csns(&snapshot).map_err(|fault| failed(&fault))?;
        csns.into_iter().for_each(|csn| {
            context.note(csn);
        });
    }
    Ok(context)
}

/// The records behind the places in the logs, in the order of their CSNs where there are several logs.
fn gather<S: Store, N: Snapshot>(
    search: &mut SyncSearch<S>,
    snapshots: &[N],
    bound: Option<CsnVector>,
) -> Result<Batch, LdapResult> {
    let server_id = search.server_id();
    let mut logs: Vec<VecDeque<PendingRecord>> = Vec::with_capacity(snapshots.len());
    let mut batch = Batch::default();
    for (number, (part, snapshot)) in search.parts.iter_mut().zip(snapshots).enumerate() {
        let first = log::first_sequence(snapshot, server_id).map_err(|fault| failed(&fault))?;
        let history = log::history(snapshot).map_err(|fault| failed(&fault))?;
        // A log that has just been switched on begins its history with the first change.
        let another = part.history.is_some() && history != part.history;
        if first > part.position + 1 || another {
            return Err(refresh_required("sync cookie is stale"));
        }
        part.history = history;
        let mut records = VecDeque::new();
        let after = LogKey { server_id, sequence: part.position };
        let visited = log::visit_outlines_after(snapshot, after, &mut |key, outline| {
            if records.len() == RECORDS {
                batch.more = true;
                return false;
            }
            records.push_back(PendingRecord {
                part: number,
                sequence: key.sequence,
                outline,
                in_order: true,
            });
            true
        });
        visited.map_err(|fault| failed(&fault))?;
        logs.push(records);
        if search.request.sid.is_some() {
            let csns = log::content_csns(snapshot).map_err(|fault| failed(&fault))?;
            csns.as_slice().iter().for_each(|csn| {
                batch.by_content.note(*csn);
            });
        }
        if bound.is_none() {
            let csns = log::context_csns(snapshot).map_err(|fault| failed(&fault))?;
            batch.context = csns.into_iter().collect();
        }
    }
    let known = |csn: &Csn| search.request.known.covers(csn) || search.request.sid == Some(csn.server_id);
    merge(&mut batch, logs, bound, server_id, (search.merged, &known));
    Ok(batch)
}

/// An access log whose server took entries as they are does not tell what was changed in them one by one. A consumer with
/// other providers, too, may know the CSN that such an entry came with and lack what else is in it; it may say anew what
/// it knows.
fn check_log_tells<S: Store, N: Snapshot>(search: &SyncSearch<S>, snapshot: &N) -> Result<(), LdapResult> {
    let lacks = audit::stored_lacks(snapshot).map_err(|fault| failed(&fault))?.unwrap_or_default();
    let is_known = |csn: &Csn| {
        search.sent_csns.covers(csn)
            || search.request.known.covers(csn)
            || search.request.sid == Some(csn.server_id)
    };
    if lacks.as_slice().iter().all(is_known) {
        return Ok(());
    }
    Err(LdapResult::with(ResultCode::UNAVAILABLE, "the log does not tell all changes one by one"))
}

/// Several logs in one order. A change above the bound waits: another log may have a lower one that was not seen.
fn merge(
    batch: &mut Batch,
    mut logs: Vec<VecDeque<PendingRecord>>,
    bound: Option<CsnVector>,
    server_id: u16,
    (merged, known): (bool, &dyn Fn(&Csn) -> bool),
) {
    let highest = bound.as_ref().and_then(|bound| bound.of(server_id));
    let truncated: Vec<bool> = logs.iter().map(|log| log.len() == RECORDS).collect();
    loop {
        let heads = logs.iter().enumerate().filter_map(|(at, log)| Some((log.front()?.outline.csn, at)));
        let Some((csn, at)) = heads.min() else { break };
        let above = bound.is_some() && csn.server_id == server_id && highest.is_none_or(|bound| csn > bound);
        // Behind the end of one that was cut off the order is not known.
        let cut = logs.len() > 1 && logs.iter().zip(&truncated).any(|(log, cut)| *cut && log.is_empty());
        if above || cut {
            batch.more |= cut || logs.iter().zip(&truncated).any(|(log, cut)| *cut && log.is_empty());
            break;
        }
        batch.records.extend(logs.get_mut(at).and_then(VecDeque::pop_front));
    }
    if let Some(bound) = bound {
        batch.context = bound;
    }
    let mut lowest: Option<Csn> = None;
    for record in batch.records.iter_mut().rev().filter(|record| record.outline.csn.server_id == server_id) {
        record.in_order = lowest.is_none_or(|lowest| record.outline.csn <= lowest);
        lowest = lowest.into_iter().chain([record.outline.csn]).min();
    }
    for (index, record) in batch.records.iter().enumerate() {
        let entry = (record.part, record.outline.entry);
        // What this server did by itself is not told, and stands for nothing before it. Nor does what the consumer knows,
        // where the entry has that and more.
        let outline = &record.outline;
        // An access log may bring one that is older than what it follows: it does not stand for that.
        let before = batch.last.get(&entry).and_then(|at| batch.records.get(*at));
        let is_late = outline.kind == OutlineKind::Modify
            && before.is_some_and(|before| before.outline.csn > outline.csn);
        let is_known = outline.kind != OutlineKind::Delete && (merged || is_late) && known(&outline.csn);
        if !(outline.local || is_known) {
            batch.last.insert(entry, index);
        }
        if record.outline.kind != OutlineKind::Modify {
            batch.named.insert(entry);
        }
    }
}

/// Whether the log has a later record of an entry.
fn changes_later<N: Snapshot>(view: &View<'_, N>, id: EntryId, csn: Csn) -> Result<bool, LdapResult> {
    let now = entry_csn(view, id).map_err(|fault| failed(&fault))?;
    Ok(now.is_some_and(|now| now.server_id == csn.server_id && now > csn))
}

/// The entry above, if there is one.
fn parent<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<EntryId>, LdapResult> {
    let Some(stored) = view.stored(id).map_err(|fault| failed(&fault))? else { return Ok(None) };
    let entry = EntryView::parse(id, &stored).map_err(|error| failed(&error.into()))?;
    Ok(Some(entry.parent()).filter(|parent| *parent != EntryId::ROOT))
}

/// What an entry is called now.
fn current_name<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<String>, LdapResult> {
    let Some(stored) = view.stored(id).map_err(|fault| failed(&fault))? else { return Ok(None) };
    let entry = EntryView::parse(id, &stored).map_err(|error| failed(&error.into()))?;
    view.dn(&entry).map(Some).map_err(|fault| failed(&fault))
}

/// Tells that an entry is gone; a consumer of our kind also, by which change.
fn send_delete<S: Store>(
    search: &SyncSearch<S>,
    (uuid, csn): (Uuid, Option<Csn>),
    name: &str,
    cookie: Option<String>,
    out: &mut Vec<u8>,
) {
    let cookie = match csn.filter(|_| search.request.peer) {
        Some(csn) => {
            let cookie = cookie.unwrap_or_else(|| search.cookie(&[]));
            Some(format!("{cookie},delcsn={}", csn.text()))
        }
        None => cookie,
    };
    let control = state_control(EntryState::Delete, uuid, cookie.as_deref());
    EntryEncoder::begin(out, search.message, name).finish(&[control]);
}

#[cfg(test)]
mod tests;
