//! The refresh: a pass over the content, or what the log says has changed.

use std::collections::{BTreeMap, VecDeque};

use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::log::{self, CsnVector, LogKey, LogOutline, OutlineKind};
use larix_engine::search::synchronised::{Fate, Send, state_control};
use larix_engine::search::{Budget, Step};
use larix_engine::{EntryView, View, tree};
use larix_proto::control::EntryState;
use larix_proto::encode::EntryEncoder;
use larix_proto::extended::SyncInfo;
use larix_proto::{LdapResult, MessageId, ResultCode, encode};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::decide::{Asked, cookie};
use super::graves::Graves;
use super::passes::{PutOff, bound};
use super::proof::{proved, proves_deletes};
use super::session::{Part, SyncSearch, failed, refresh_required};

/// Records of the log that one slice looks at.
const SCAN_RECORDS: u64 = 2_048;
/// Entries that wait for each other's names at most.
const RING_MAX: usize = 64;
/// Entries of a moved subtree that a consumer of a part of the tree is told of.
pub(super) const MOVED_MAX: usize = 1_000_000;

/// A pass over the whole content.
#[derive(Debug)]
pub(super) struct Walk {
    part: usize,
    graves: Graves,
    present: bool,
}

impl Walk {
    pub(super) fn new(present: bool) -> Self {
        Self { part: 0, graves: Graves::default(), present }
    }

    /// Whether consumers drop what was neither sent nor named.
    pub(super) fn present(&self) -> bool {
        self.present
    }

    /// Goes on; answers whether it is done.
    pub(super) fn slice<S: Store>(
        &mut self,
        search: &mut SyncSearch<S>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let message = search.message;
        if self.part >= search.parts.len() {
            return self.graves.slice(search, budget, out);
        }
        let Some(part) = search.parts.get_mut(self.part) else { return Ok(true) };
        let database = part.served.database().clone();
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        let Step::Done(result, _) = part.task.step(&view, out, budget) else { return Ok(false) };
        if !(result.is_success() || (self.part > 0 && result.code == ResultCode::NO_SUCH_OBJECT)) {
            return Err(result);
        }
        if let Some(mut refresh) = part.task.take_refresh() {
            refresh.flush(message, out);
            part.view = refresh.view.unwrap_or_default();
        }
        let left = part.task.size_limit().map(|limit| limit.saturating_sub(part.task.entries()));
        self.part += 1;
        if let (Some(left), Some(next)) = (left, search.parts.get_mut(self.part)) {
            next.task.limit_size(left);
        }
        Ok(false)
    }
}

/// Entries that have changed since a consumer was here.
pub(super) type Changed = BTreeMap<EntryId, Change>;

/// What the log says of an entry.
#[derive(Clone, Debug)]
pub(super) struct Change {
    uuid: Uuid,
    /// The latest of its changes.
    pub(super) csn: Csn,
    /// The earliest that the consumer may not know.
    first: Csn,
    /// What it was called before it was renamed.
    pub(super) old_name: Option<String>,
    /// It came into being, or was renamed.
    pub(super) named: bool,
    /// It was deleted.
    pub(super) gone: bool,
    /// The consumer has not seen it come into being: it knows it by no name.
    born: bool,
}

/// A refresh from the log.
#[derive(Debug)]
pub(super) struct LogRefresh {
    known: CsnVector,
    /// The beginning of a cookie that goes with each entry.
    each_cookie: Option<String>,
    /// How far this server had come when the refresh began.
    start: CsnVector,
    /// The search base, for deletes whose entry's name is not known.
    base: String,
    rid: u16,
    /// The consumer's server id.
    sid: Option<u16>,
    server_id: u16,
    /// The consumer lets names be taken while they are another's still.
    peer: bool,
    at: At,
    /// Names that changed entries have for the consumer still, though they are called otherwise.
    taken: BTreeMap<String, EntryId>,
    /// Deletes of what was not here any more, or never was.
    absent: BTreeMap<Uuid, Csn>,
    /// What is gone, and what it was called if another may have that name now.
    gone: BTreeMap<(Csn, Uuid), Option<String>>,
    /// What was called so, of those.
    gone_names: BTreeMap<String, (Csn, Uuid)>,
    /// What is there, by its first change that may be news: with its part.
    order: VecDeque<(Csn, usize, EntryId)>,
    /// Entries of a part that are kept in mind at once.
    entries_max: usize,
    /// Passes before told what has changed up to here.
    low: Option<Csn>,
    /// This one tells what has changed up to here, and leaves the rest to the next.
    high: Option<Csn>,
    /// For each part.
    passes: Vec<PutOff>,
}

#[derive(Debug)]
enum At {
    /// In the log of this part, behind a record, up to another.
    Scan { part: usize, after: u64, until: Option<u64> },
    /// What of it is gone.
    Deletes { part: usize, after: Option<EntryId> },
    /// All of it is told in the order of CSNs: a slapd that is told of a delete takes it that it has seen everything up to
    /// the delete's CSN, passes over entries that come later and are older, and says to others that it has them. So an
    /// entry goes before every delete that came after any of its changes.
    Sends,
}

impl LogRefresh {
    /// None when the logs do not reach back to what the consumer knows.
    pub(super) fn new<S: Store>(
        search: &SyncSearch<S>,
        known: &CsnVector,
        each_cookie: Option<String>,
        entries_max: usize,
    ) -> Result<Option<Self>, LdapResult> {
        for part in &search.parts {
            if begin(part, search.server_id(), search.asked.sid, known)?.is_none() {
                return Ok(None);
            }
        }
        let at = At::Scan { part: 0, after: 0, until: None };
        Ok(Some(Self {
            known: known.clone(),
            each_cookie,
            start: search.start.clone(),
            base: search.parts.first().map(|part| part.task.base_text().to_owned()).unwrap_or_default(),
            sid: search.asked.sid,
            rid: search.asked.rid,
            server_id: search.server_id(),
            peer: search.asked.peer,
            at,
            taken: BTreeMap::new(),
            absent: BTreeMap::new(),
            gone: BTreeMap::new(),
            gone_names: BTreeMap::new(),
            order: VecDeque::new(),
            entries_max,
            low: None,
            high: None,
            passes: search.parts.iter().map(|_| PutOff::default()).collect(),
        }))
    }

    /// Goes on; answers whether it is done.
    pub(super) fn slice<S: Store>(
        &mut self,
        search: &mut SyncSearch<S>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let number = match self.at {
            At::Scan { part, .. } | At::Deletes { part, .. } => part,
            At::Sends => match self.order.front() {
                Some((_, part, _)) => *part,
                None => {
                    let told = self.tell_gone(search.message, None, budget, out);
                    return Ok(told && !self.again());
                }
            },
        };
        let server_id = search.server_id();
        // Taken out for the time of the slice, so that the rest can be asked beside it.
        let Some(part) = search.parts.get_mut(number) else {
            self.at = match self.at {
                At::Scan { .. } => {
                    for (number, part) in search.parts.iter_mut().enumerate() {
                        self.leave_out(number, &mut part.changed);
                    }
                    At::Deletes { part: 0, after: None }
                }
                At::Deletes { .. } | At::Sends => {
                    self.set_order(&search.parts);
                    At::Sends
                }
            };
            return Ok(false);
        };
        let mut changed = std::mem::take(&mut part.changed);
        let done = match self.at {
            At::Scan { after, until, .. } => self.scan(part, server_id, (number, after, until), &mut changed),
            At::Deletes { after, .. } => self.deletes(part, (number, after), budget, &mut changed, out),
            At::Sends => self.sends(part, number, budget, &mut changed, out).map(|()| false),
        };
        if let Some(part) = search.parts.get_mut(number) {
            part.changed = changed;
        }
        if done? {
            self.at = match self.at {
                At::Scan { .. } => At::Scan { part: number + 1, after: 0, until: None },
                At::Deletes { .. } => At::Deletes { part: number + 1, after: None },
                At::Sends => At::Sends,
            };
        }
        Ok(false)
    }

    fn scan<S: Store>(
        &mut self,
        part: &mut Part<S>,
        server_id: u16,
        (number, after, until): (usize, u64, Option<u64>),
        changed: &mut Changed,
    ) -> Result<bool, LdapResult> {
        let stale = || refresh_required("sync cookie is stale");
        let after = match until {
            Some(_) => after,
            None => begin(part, server_id, self.sid, &self.known)?.ok_or_else(stale)?,
        };
        let database = part.served.database().clone();
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        let first = log::first_sequence(&snapshot, server_id).map_err(|fault| failed(&fault))?;
        if first > after + 1 {
            return Err(stale());
        }
        let until = match until {
            Some(until) => until,
            None => log::last_sequence(&snapshot, server_id).map_err(|fault| failed(&fault))?,
        };
        let Some(passes) = self.passes.get_mut(number) else { return Ok(true) };
        let (mut last, mut count, mut moved, mut leaves) = (after, 0, Vec::new(), false);
        let visited = log::visit_outlines_after(
            &snapshot,
            LogKey { server_id, sequence: after },
            &mut |key, outline| {
                if key.sequence > until || count == SCAN_RECORDS {
                    return false;
                }
                count += 1;
                last = key.sequence;
                // What a delete's CSN says may be a guess: see the persist stage.
                let is_known = self.known.covers(&outline.csn);
                if outline.local || is_known && outline.kind != OutlineKind::Delete {
                    return true;
                }
                let is_later = self.high.is_some_and(|high| outline.csn > high);
                if matches!(outline.kind, OutlineKind::ModifyDn { new_superior: Some(_), .. }) {
                    moved.push((outline.entry, outline.csn));
                }
                if outline.absent || outline.entry == EntryId::ROOT {
                    if !is_later && self.low.is_none_or(|low| outline.csn > low) {
                        let csn = self.absent.entry(outline.entry_uuid).or_insert(outline.csn);
                        *csn = outline.csn.max(*csn);
                    }
                } else if !passes.is_done(outline.entry) {
                    let is_put_off = passes.is_later(outline.entry);
                    if is_put_off || is_later && !changed.contains_key(&outline.entry) {
                        passes.put_off(outline.entry, outline.kind != OutlineKind::Modify);
                        if matches!(outline.kind, OutlineKind::ModifyDn { .. }) && !is_known {
                            self.taken.entry(outline.dn.to_lowercase()).or_insert(outline.entry);
                        }
                    } else {
                        leaves |= is_later;
                        note(changed, &outline, is_known);
                    }
                }
                true
            },
        );
        visited.map_err(|fault| failed(&fault))?;
        note_moved(part, &view, changed, passes, &moved)?;
        if changed.len() + self.absent.len() > self.entries_max {
            let csns = changed.values().map(|change| change.csn).chain(self.absent.values().copied());
            // A little less than may be: what comes next is mostly later, and passed over.
            let high = bound(csns.collect(), self.entries_max - self.entries_max / 8);
            self.high = self.high.min(high).or(high);
            leaves = true;
        }
        if leaves {
            self.leave_out(number, changed);
        }
        self.at = At::Scan { part: number, after: last, until: Some(until) };
        Ok(last >= until || count < SCAN_RECORDS)
    }

    /// Finds what is gone.
    fn deletes<S: Store>(
        &mut self,
        part: &mut Part<S>,
        (number, after): (usize, Option<EntryId>),
        budget: Budget<'_>,
        changed: &mut Changed,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let database = part.served.database().clone();
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        let from = after.map_or(0, |id| id.0 + 1);
        let ids: Vec<EntryId> =
            changed.range(EntryId(from)..).map(|(id, _)| *id).take(budget.candidates as usize).collect();
        let done = ids.len() < budget.candidates as usize;
        for id in &ids {
            let fate = fate(part, number, &view, *id, out, &mut |_| None)?;
            let uuid = match fate {
                Fate::Content => continue,
                Fate::Gone => None,
                Fate::Outside(uuid) | Fate::Hidden(uuid) => uuid,
            };
            let Some(change) = changed.remove(id) else { continue };
            if let Some(passes) = self.passes.get_mut(number) {
                passes.done(*id);
            }
            let uuid = uuid.unwrap_or(change.uuid);
            // Also of what came into being meanwhile: a refresh that was broken off may have brought it.
            if !uuid.is_nil() {
                // Deleted by two servers at the same time: told once.
                let csn = self.absent.remove(&uuid).map_or(change.csn, |csn| csn.max(change.csn));
                if let Some(name) = &change.old_name {
                    self.gone_names.insert(name.clone(), (csn, uuid));
                }
                self.gone.insert((csn, uuid), change.old_name);
            }
        }
        self.at = At::Deletes { part: number, after: ids.last().copied().or(after) };
        Ok(done)
    }

    /// Leaves to the next pass what has changed behind what this one tells.
    fn leave_out(&mut self, number: usize, changed: &mut Changed) {
        let (Some(high), Some(passes)) = (self.high, self.passes.get_mut(number)) else { return };
        // Who has another's name now needs it to be left first.
        self.taken.extend(passes.leave_out(changed, high));
        self.absent.retain(|_, csn| *csn <= high);
    }

    /// Begins the next pass, if something was left to it.
    fn again(&mut self) -> bool {
        let Some(high) = self.high.take() else { return false };
        self.low = Some(high);
        self.passes.iter_mut().for_each(PutOff::again);
        self.at = At::Scan { part: 0, after: 0, until: None };
        true
    }

    /// Everything that is there is to be sent by its first change.
    fn set_order<S: Store>(&mut self, parts: &[Part<S>]) {
        let absent = std::mem::take(&mut self.absent);
        self.gone.extend(absent.into_iter().map(|(uuid, csn)| ((csn, uuid), None)));
        let mut order = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            order.extend(part.changed.iter().map(|(id, change)| (change.first, number, *id)));
            let names = part.changed.iter().filter_map(|(id, change)| Some((change.old_name.clone()?, *id)));
            self.taken.extend(names);
        }
        order.sort_unstable();
        self.order = order.into();
    }

    /// Tells what was gone before a change, or all of it. Answers whether that is done.
    fn tell_gone(
        &mut self,
        message: MessageId,
        before: Option<Csn>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        while let Some((&(csn, uuid), _)) = self.gone.first_key_value() {
            if before.is_some_and(|before| csn >= before) {
                break;
            }
            if out.len() >= budget.bytes {
                return false;
            }
            // What a later pass tells may have changed before this, too.
            let is_proved = self.high.is_none() && self.start.covers(&csn);
            self.tell_one(message, (csn, uuid), is_proved, out);
        }
        true
    }

    /// `is_proved`: the consumer has been told of everything up to this CSN, and this server has it.
    fn tell_one(&mut self, message: MessageId, (csn, uuid): (Csn, Uuid), is_proved: bool, out: &mut Vec<u8>) {
        if let Some(name) = self.gone.remove(&(csn, uuid)).flatten() {
            self.gone_names.remove(&name);
        }
        if !(is_proved || self.peer) {
            return self.tell_unproved(message, uuid, out);
        }
        let cookie = cookie(self.rid, self.server_id, proved(&self.known, &self.start, &csn).as_slice());
        let cookie = format!("{cookie},delcsn={}", csn.text());
        let info =
            SyncInfo::IdSet { cookie: Some(cookie.as_bytes()), deletes: true, uuids: vec![*uuid.as_bytes()] };
        encode::intermediate(out, message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
    }

    /// A delete that says nothing of how far the consumer has come. A slapd takes it in this form whatever it has; of a set
    /// of entryUUIDs it deletes only what the cookie beside it covers.
    fn tell_unproved(&self, message: MessageId, uuid: Uuid, out: &mut Vec<u8>) {
        let control = state_control(EntryState::Delete, uuid, None);
        EntryEncoder::begin(out, message, &self.base).finish(&[control]);
    }

    fn sends<S: Store>(
        &mut self,
        part: &mut Part<S>,
        number: usize,
        budget: Budget<'_>,
        changed: &mut Changed,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        let database = part.served.database().clone();
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        for _ in 0..budget.candidates {
            let Some(&(csn, _, id)) = self.order.front().filter(|(_, of, _)| *of == number) else { break };
            if out.len() >= budget.bytes || !self.tell_gone(part.task.message(), Some(csn), budget, out) {
                break;
            }
            // It is sent already where another asked for it; a superior that has to go before it goes alone.
            if changed.contains_key(&id) {
                self.send((part, number), &view, id, changed, &mut Vec::new(), out)?;
            } else {
                self.order.pop_front();
            }
        }
        Ok(())
    }

    /// Sends an entry; before it what has to be there, or out of its way.
    fn send<S: Store, N: Snapshot>(
        &mut self,
        (part, number): (&mut Part<S>, usize),
        view: &View<'_, N>,
        id: EntryId,
        changed: &mut Changed,
        under_way: &mut Vec<EntryId>,
        out: &mut Vec<u8>,
    ) -> Result<(), LdapResult> {
        // A superior that has changed, too, comes first: it may have this entry's new place in its name.
        let nothing = PutOff::default();
        let id = topmost(view, changed, self.passes.get(number).unwrap_or(&nothing), under_way, id)?;
        under_way.push(id);
        let name = self.contested_name(view, id)?;
        if let Some(gone) = name.as_ref().and_then(|name| self.gone_names.get(name)).copied() {
            self.tell_one(part.task.message(), gone, false, out);
        }
        let holder = name.and_then(|name| self.taken.get(&name).copied()).filter(|_| !self.peer);
        let is_left = |id: &EntryId| self.passes.get(number).is_some_and(|passes| passes.is_named(*id));
        let holder =
            holder.filter(|holder| *holder != id && (changed.contains_key(holder) || is_left(holder)));
        if let Some(holder) = holder {
            if under_way.contains(&holder) || under_way.len() > RING_MAX {
                // Names that go round: one of them leaves, and comes back as if it were new.
                if let Some(change) = changed.get(&holder) {
                    self.tell_unproved(part.task.message(), change.uuid, out);
                }
                self.taken.retain(|_, of| *of != holder);
            } else {
                self.send((part, number), view, holder, changed, under_way, out)?;
            }
        }
        under_way.pop();
        let change = changed.remove(&id);
        let in_turn = change.is_some();
        if in_turn && let Some(passes) = self.passes.get_mut(number) {
            passes.done(id);
        }
        match change.map(|change| change.old_name) {
            Some(Some(name)) => drop(self.taken.remove(&name)),
            Some(None) => {}
            // Before its turn: there are few.
            None => self.taken.retain(|_, of| *of != id),
        }
        if part.task.size_limit().is_some_and(|limit| part.task.entries() >= limit) {
            return Err(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED));
        }
        let each = &self.each_cookie;
        // What a glued database's base lacks was found out before.
        let fate = fate(part, 1, view, id, out, &mut |entry| {
            // Ahead of the contextCSN others may come yet that are older.
            let cookie = each.as_ref().zip(entry.csn.filter(|csn| self.start.covers(csn)));
            let cookie = cookie.map(|(begin, csn)| format!("{begin},csn={}", csn.text()));
            Some(Send { state: EntryState::Add, cookie, name: None })
        })?;
        if fate == Fate::Content {
            part.view.insert(id);
        }
        if let Some(passes) = self.passes.get_mut(number).filter(|_| !in_turn) {
            if fate == Fate::Content { passes.done(id) } else { passes.not_needed(id) }
        }
        Ok(())
    }

    /// What this entry is called, where another may be called so for the consumer still.
    fn contested_name<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        id: EntryId,
    ) -> Result<Option<String>, LdapResult> {
        if self.taken.is_empty() && self.gone_names.is_empty() {
            return Ok(None);
        }
        let Some(stored) = view.stored(id).map_err(|fault| failed(&fault))? else { return Ok(None) };
        let entry = EntryView::parse(id, &stored).map_err(|error| failed(&error.into()))?;
        let name = view.dn(&entry).map_err(|fault| failed(&fault))?;
        Ok(Some(name.to_lowercase()))
    }
}

/// Where in the log of a part to begin; `None` also where the log does not tell of all deletes that the consumer may lack.
/// `sid`: the consumer's server id.
fn begin<S: Store>(
    part: &Part<S>,
    server_id: u16,
    sid: Option<u16>,
    known: &CsnVector,
) -> Result<Option<u64>, LdapResult> {
    let snapshot = part.served.database().store().snapshot().map_err(|error| failed(&error.into()))?;
    if !proves_deletes(&snapshot, sid, known)? {
        return Ok(None);
    }
    log::begin_after(&snapshot, server_id, known).map_err(|fault| failed(&fault))
}

/// Whether the log of a part has, up to where the search begins to follow it, anything that a consumer with this knowledge
/// may lack, or cannot prove that there is nothing.
pub(super) fn lacks_of<S: Store>(part: &Part<S>, server_id: u16, asked: &Asked) -> Result<bool, LdapResult> {
    if part.history.is_none() {
        return Ok(false);
    }
    let Some(sequence) = begin(part, server_id, asked.sid, &asked.known)? else { return Ok(true) };
    let snapshot = part.served.database().store().snapshot().map_err(|error| failed(&error.into()))?;
    let mut lacks = false;
    // A slapd that heard of as much from somebody else has passed over our deletes, too.
    let passes_over = !asked.peer && asked.sid.is_some();
    let visited =
        log::visit_outlines_after(&snapshot, LogKey { server_id, sequence }, &mut |key, outline| {
            // The CSN of a delete that came from elsewhere says nothing of who knows of it: see the persist stage.
            let is_foreign = outline.csn.server_id != server_id || outline.absent;
            let is_delete = outline.kind == OutlineKind::Delete && (is_foreign || passes_over);
            lacks = !outline.local && (is_delete || !asked.known.covers(&outline.csn));
            !lacks && key.sequence < part.position
        });
    visited.map_err(|fault| failed(&fault))?;
    Ok(lacks)
}

/// What an entry is to the search in a part; glued databases may have no base yet.
pub(super) fn fate<S: Store, N: Snapshot>(
    part: &mut Part<S>,
    number: usize,
    view: &View<'_, N>,
    id: EntryId,
    out: &mut Vec<u8>,
    send: &mut dyn FnMut(&larix_engine::search::synchronised::SingleEntry) -> Option<Send>,
) -> Result<Fate, LdapResult> {
    match part.task.single(view, id, out, send) {
        Err(result) if number > 0 && result.code == ResultCode::NO_SUCH_OBJECT => Ok(Fate::Outside(None)),
        other => other,
    }
}

/// Takes a record in. `is_known`: the consumer knows of it, and has the entry under no name that it says.
fn note(changed: &mut Changed, outline: &LogOutline, is_known: bool) {
    let change = changed.entry(outline.entry).or_insert_with(|| Change {
        uuid: outline.entry_uuid,
        csn: outline.csn,
        first: outline.csn,
        old_name: None,
        named: false,
        gone: false,
        born: false,
    });
    change.gone |= outline.kind == OutlineKind::Delete;
    change.named |= outline.kind != OutlineKind::Modify;
    change.born |= outline.kind == OutlineKind::Add;
    let leaves = matches!(outline.kind, OutlineKind::ModifyDn { .. } | OutlineKind::Delete);
    if leaves && !change.born && !is_known {
        change.old_name.get_or_insert_with(|| outline.dn.to_lowercase());
    }
    change.csn = change.csn.max(outline.csn);
    change.first = change.first.min(outline.csn);
}

/// What is below a moved entry may have come into a consumer's part of the tree, or have left it.
fn note_moved<S: Store, N: Snapshot>(
    part: &mut Part<S>,
    view: &View<'_, N>,
    changed: &mut Changed,
    passes: &PutOff,
    moved: &[(EntryId, Csn)],
) -> Result<(), LdapResult> {
    if moved.is_empty() || part.task.spans_all(view)? {
        return Ok(());
    }
    for (top, csn) in moved {
        let below = tree::subtree(view.snapshot, *top, MOVED_MAX).map_err(|fault| failed(&fault))?;
        for id in below.into_iter().filter(|id| !(passes.is_done(*id) || passes.is_later(*id))) {
            changed.entry(id).or_insert(Change {
                uuid: Uuid::nil(),
                csn: *csn,
                first: *csn,
                old_name: None,
                named: false,
                gone: false,
                born: false,
            });
        }
    }
    Ok(())
}

/// The highest of an entry and its superiors that has another name than before, and is not under way.
fn topmost<N: Snapshot>(
    view: &View<'_, N>,
    changed: &Changed,
    passes: &PutOff,
    under_way: &[EntryId],
    id: EntryId,
) -> Result<EntryId, LdapResult> {
    let mut top = id;
    let mut at = id;
    while at != EntryId::ROOT {
        let Some(stored) = view.stored(at).map_err(|fault| failed(&fault))? else { break };
        let parsed = EntryView::parse(at, &stored).map_err(|error| failed(&error.into()))?;
        at = parsed.parent();
        let is_named = passes.is_named(at) || changed.get(&at).is_some_and(|change| change.named);
        if is_named && !under_way.contains(&at) {
            top = at;
        }
    }
    Ok(top)
}
