//! What content synchronisation (RFC 4533) asks of a search: each entry with its state, and single entries by id.

use larix_proto::control::{EntryState, SyncState};
use larix_proto::extended::SyncInfo;
use larix_proto::{ControlBuf, ControlValue, LdapResult, MessageId, ResultCode, Scope, encode};
use larix_schema::{AttributeDescription, Schema};
use larix_store::Snapshot;
use uuid::Uuid;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::run::{CandidateOutcome, IndexProof};
use super::scope::Area;
use super::task::{End, SearchTask, storage_failure};
use crate::budget::{LimitExceeded, RequestLimit};
use crate::csn::Csn;
use crate::database::View;
use crate::entry::{EntryId, EntryReader, EntrySource, EntryView};
use crate::fault::Fault;
use crate::filter::Filter;
use crate::log::CsnVector;
use crate::replica_state::{ENTRY_PLACE_OID, ENTRY_STATE_OID, state_of};

/// UUIDs in one sync info message.
pub(crate) const UUIDS_AT_ONCE: usize = 256;
/// Superiors that a pass keeps in mind at once.
const SUPERIORS_MAX: usize = 1 << 16;

/// One pass over all of the content. Entries that the consumer has seen are not sent: they are named at most.
#[derive(Clone, Debug, Default)]
pub struct Refresh {
    /// What the consumer has seen.
    pub known: CsnVector,
    /// Whether to name the entries that it has seen: it drops those that are not named.
    pub present: bool,
    /// With each entry goes a cookie of this beginning and its own CSN.
    pub cookie: Option<String>,
    /// Which entries are in the consumer's view, where that is kept.
    pub view: Option<EntryIds>,
    /// Entries are merged: those whose entryCSN the consumer has seen are sent, too.
    pub merged: bool,
    /// Goes with an entry that has come into the search under a CSN that the consumer has seen.
    pub cookie_moved: Option<String>,
    /// Entries that the consumer has seen and that the next message names.
    uuids: Vec<[u8; 16]>,
    /// Whether no superior's name can put an entry of the database outside of the content, once that is known.
    whole: Option<bool>,
    /// Superiors, and whether one at or above them was changed in a way that the consumer has not seen.
    superiors: foldhash::HashMap<EntryId, bool>,
}

impl Refresh {
    pub fn new(known: CsnVector, present: bool, cookie: Option<String>) -> Self {
        Self { known, present, cookie, ..Self::default() }
    }

    /// Whether the consumer lacks a change of a superior. A superior that was moved into the search, or that took the name of one above
    /// its base, brought its subordinates along, and these kept their CSNs.
    fn has_new_superior<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        entry: &EntryView<'_>,
    ) -> Result<bool, Fault> {
        let Ok(entry_csn) = view.schema.describe("entryCSN") else { return Ok(false) };
        let (mut passed, mut is_new) = (Vec::new(), false);
        let mut at = entry.parent();
        while at != EntryId::ROOT {
            if let Some(found) = self.superiors.get(&at) {
                is_new = *found;
                break;
            }
            passed.push(at);
            let Some(record) = view.record(at)? else { break };
            let reader = view.reader(at, &record)?;
            is_new = csn_of(&reader, &entry_csn)?.is_some_and(|csn| !self.known.covers(&csn));
            if is_new {
                break;
            }
            at = reader.view.parent();
        }
        if self.superiors.len() >= SUPERIORS_MAX {
            self.superiors.clear();
        }
        self.superiors.extend(passed.into_iter().map(|id| (id, is_new)));
        Ok(is_new)
    }

    /// Names an entry that the consumer has seen, if it wants that.
    fn name(&mut self, uuid: Uuid, message: MessageId, out: &mut Vec<u8>) {
        if self.present {
            self.uuids.push(*uuid.as_bytes());
            if self.uuids.len() >= UUIDS_AT_ONCE {
                self.flush(message, out);
            }
        }
    }

    /// Appends the message that names what is left to be named.
    pub fn flush(&mut self, message: MessageId, out: &mut Vec<u8>) {
        if !self.uuids.is_empty() {
            let uuids = std::mem::take(&mut self.uuids);
            let info = SyncInfo::IdSet { cookie: None, deletes: false, uuids };
            encode::intermediate(out, message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
        }
    }
}

/// A set of entry ids, a bit each.
#[derive(Clone, Debug, Default)]
pub struct EntryIds {
    blocks: std::collections::BTreeMap<u64, Box<[u64; BLOCK_WORDS]>>,
}

const BLOCK_WORDS: usize = 64;
const WORD_BITS: u64 = 64;

impl EntryIds {
    fn bit_of(id: EntryId) -> (u64, usize, u64) {
        let word = id.0 / WORD_BITS;
        let words = BLOCK_WORDS as u64;
        (word / words, usize::try_from(word % words).unwrap_or_default(), 1 << (id.0 % WORD_BITS))
    }

    /// Adds an id. Answers whether it is new.
    pub fn insert(&mut self, id: EntryId) -> bool {
        let (block, word, bit) = Self::bit_of(id);
        let words = self.blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK_WORDS]));
        let Some(word) = words.get_mut(word) else { return false };
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Takes an id out. Answers whether it was there.
    pub fn remove(&mut self, id: EntryId) -> bool {
        let (block, word, bit) = Self::bit_of(id);
        let Some(word) = self.blocks.get_mut(&block).and_then(|words| words.get_mut(word)) else {
            return false;
        };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    /// The next ids behind one, at most `most` of them, in their order.
    pub fn after(&self, after: Option<EntryId>, most: usize) -> Vec<EntryId> {
        let first = after.map_or(0, |after| after.0.saturating_add(1));
        let (block, ..) = Self::bit_of(EntryId(first));
        let words = self.blocks.range(block..).flat_map(|(block, words)| {
            let begin = block * BLOCK_WORDS as u64;
            words.iter().zip(begin..).filter(|(word, _)| **word != 0)
        });
        let ids = words.flat_map(|(word, at)| {
            (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * WORD_BITS + bit)
        });
        ids.filter(|id| *id >= first).take(most).map(EntryId).collect()
    }

    pub fn contains(&self, id: EntryId) -> bool {
        let (block, word, bit) = Self::bit_of(id);
        self.blocks.get(&block).and_then(|words| words.get(word)).is_some_and(|word| word & bit != 0)
    }
}

/// What an entry is to the search.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It belongs to the content; it was sent, if that was asked for.
    Content,
    /// It may be seen and does not belong to the content.
    Outside(Option<Uuid>),
    /// The subject may not know of it.
    Hidden(Option<Uuid>),
    Gone,
}

/// An entry by its id, as far as it is known before it is sent.
#[derive(Clone, Debug)]
pub struct SingleEntry {
    pub uuid: Uuid,
    pub csn: Option<Csn>,
    /// The DN as it is now.
    pub dn: String,
}

/// How a single entry is sent.
#[derive(Clone, Debug)]
pub struct Send {
    pub state: EntryState,
    pub cookie: Option<String>,
    /// Another name than the one that it has now.
    pub name: Option<String>,
}

impl SearchTask {
    /// Makes the search tell a consumer what the content is.
    pub fn refresh(&mut self, refresh: Refresh) {
        self.refresh = Some(Box::new(refresh));
    }

    /// What is answered is for a consumer's copy.
    pub fn for_consumer(&mut self) {
        self.answer.for_consumer = true;
    }

    /// It merges value by value.
    pub fn send_states(&mut self) {
        self.answer.states = true;
    }

    /// It finds superiors by their entryUUIDs.
    pub fn send_places(&mut self) {
        self.places = Some(Box::default());
    }

    /// The pass is done, or not wanted.
    pub fn take_refresh(&mut self) -> Option<Refresh> {
        self.refresh.take().map(|refresh| *refresh)
    }

    /// The consumer of the pass was sent an entry beside it.
    pub fn note_sent(&mut self, id: EntryId) {
        if let Some(view) = self.refresh.as_mut().and_then(|refresh| refresh.view.as_mut()) {
            view.insert(id);
        }
    }

    /// Its message.
    pub fn message(&self) -> MessageId {
        self.answer.message
    }

    /// The base as it was asked for.
    pub fn base_text(&self) -> &str {
        self.base.as_str()
    }

    /// Whether a name is within base and scope.
    pub fn spans(&self, schema: &Schema, dn: &str) -> bool {
        schema.parse_dn(dn).is_ok_and(|dn| dn.is_in_scope(&self.base, self.scope))
    }

    /// Whether an entry that has another name now is the base, or above it, or was before.
    pub fn is_rebased_by(&self, schema: &Schema, before: &str, now: &str) -> bool {
        let (Ok(before), Ok(now)) = (schema.parse_dn(before), schema.parse_dn(now)) else { return false };
        before != now && (self.base.is_within(&before) || self.base.is_within(&now))
    }

    /// Whether every entry of the database is within base and scope.
    ///
    /// # Errors
    /// Base or rights as for any search.
    pub fn spans_all<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<bool, LdapResult> {
        self.with_gate(view, |task, gate| {
            let area = task.area(view, gate)?;
            Ok(area.whole && task.scope == Scope::Subtree)
        })
    }

    /// Whether an entry within base and scope may belong to the content or not, or be shown otherwise, by the names of its superiors: the
    /// filter or access rules go by them.
    ///
    /// # Errors
    /// Base or rights as for any search.
    pub fn goes_by_names<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<bool, LdapResult> {
        self.with_gate(view, |task, gate| Ok(goes_by_names(&task.filter, view, gate)))
    }

    /// Whether the subject may learn the name of an entry that is gone: it may know of the nearest superior that is there.
    ///
    /// # Errors
    /// A store that cannot be read; adminLimitExceeded where the entry takes more work than a request may.
    pub fn may_name<N: Snapshot>(&mut self, view: &View<'_, N>, dn: &str) -> Result<bool, LdapResult> {
        self.with_gate(view, |_, gate| {
            if gate.search_all && gate.read_all {
                return Ok(true);
            }
            let superior = view.schema.parse_dn(dn).ok().and_then(|dn| dn.parent());
            let found = superior.map(|superior| view.resolve(&superior)).transpose()?.flatten();
            let nearest = found.map_or(EntryId::ROOT, |found| found.nearest);
            let Some(record) = view.record(nearest)? else { return Ok(true) };
            let seen = GuardedEntry::new(view, view.reader(nearest, &record)?, gate.clone());
            Ok(seen.is_shown()?)
        })
    }

    /// Whether every entry of the database belongs to the content, as far as base, scope and rights go.
    ///
    /// # Errors
    /// Base or rights as for any search.
    pub fn sees_everything<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<bool, LdapResult> {
        self.with_gate(view, |task, gate| {
            let area = task.area(view, gate)?;
            let whole = area.whole && task.scope == Scope::Subtree && task.controls.subentries.is_none();
            Ok(whole && gate.search_all && gate.read_all)
        })
    }

    /// Finds the base. False: it is another entry now, or none.
    ///
    /// # Errors
    /// What is answered the first time when it does not exist or may not be searched; a store that cannot be read.
    pub fn keeps_base<N: Snapshot>(&mut self, view: &View<'_, N>) -> Result<bool, LdapResult> {
        self.with_gate(view, |task, gate| match (task.find_base(view, gate), task.base_id) {
            (Ok(found), None) => {
                task.base_id = Some(found);
                Ok(true)
            }
            (Ok(found), Some(before)) => Ok(found == before),
            (Err(End::Result(result)), Some(_)) if result.code == ResultCode::BUSY => Ok(false),
            (Err(end), _) => Err(end),
        })
    }

    /// Finds out what an entry is to the search. `send` says how it goes out, if it does; None: not now.
    ///
    /// # Errors
    /// A store that cannot be read; adminLimitExceeded where the entry takes more work than a request may.
    pub fn single<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        id: EntryId,
        out: &mut Vec<u8>,
        send: &mut dyn FnMut(&SingleEntry) -> Option<Send>,
    ) -> Result<Fate, LdapResult> {
        self.with_gate(view, |task, gate| task.single_for(view, gate, id, out, send))
    }

    fn with_gate<N: Snapshot, T>(
        &mut self,
        view: &View<'_, N>,
        run: impl FnOnce(&mut Self, &Gate<'_>) -> Result<T, End>,
    ) -> Result<T, LdapResult> {
        self.renumber(view);
        let Some(subject) = self.subject.take() else {
            return Err(LdapResult::new(ResultCode::OTHER));
        };
        let most = view.settings.request_limits.most(RequestLimit::Steps);
        let mut gate = Gate::new(&view.policy, &subject);
        gate.steps = most;
        let done = run(self, &gate);
        self.subject = Some(subject);
        done.map_err(|end| match end {
            End::Result(result) => result,
            End::Fault(Fault::StepsSpent) => LimitExceeded { limit: RequestLimit::Steps, most }.into(),
            End::Fault(fault) => storage_failure(&fault),
        })
    }

    fn area<N: Snapshot>(&mut self, view: &View<'_, N>, gate: &Gate<'_>) -> Result<Area, End> {
        let base = match self.base_id {
            Some(base) => base,
            None => {
                let base = self.find_base(view, gate)?;
                *self.base_id.insert(base)
            }
        };
        Ok(Area::new(view, base, self.scope, self.deref, None)?)
    }

    fn single_for<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        id: EntryId,
        out: &mut Vec<u8>,
        send: &mut dyn FnMut(&SingleEntry) -> Option<Send>,
    ) -> Result<Fate, End> {
        let Some(stored) = view.stored(id)? else { return Ok(Fate::Gone) };
        self.looked += 1;
        let area = self.area(view, gate)?;
        let inside = area.contains(view, &EntryView::parse(id, &stored).map_err(Fault::from)?)?;
        let record = view.unpacked(id, stored)?;
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
        let outside = |seen: &GuardedEntry<'_, N>| -> Result<Fate, End> {
            let uuid = identity(seen)?.map(|(uuid, _)| uuid);
            Ok(if seen.is_shown()? { Fate::Outside(uuid) } else { Fate::Hidden(uuid) })
        };
        if !inside {
            return outside(&seen);
        }
        let outcome = self.look(&seen, area.base, IndexProof::Nothing)?;
        if matches!(outcome, CandidateOutcome::PassedOver) {
            return outside(&seen);
        }
        let Some((uuid, csn)) = identity(&seen)? else { return outside(&seen) };
        if !seen.is_shown()? {
            return Ok(Fate::Hidden(Some(uuid)));
        }
        let mut dn = std::mem::take(&mut self.scratch);
        dn.clear();
        view.names.append_dn(&seen.reader.view, &mut dn)?;
        let entry = SingleEntry { uuid, csn, dn };
        if let Some(Send { state, cookie, name }) = send(&entry) {
            let mut controls = vec![state_control(state, uuid, cookie.as_deref())];
            if self.answer.states {
                controls.push(history_control(&seen, &uuid, csn)?);
            }
            controls.extend(self.place_control(&seen)?);
            if matches!(outcome, CandidateOutcome::Reference) {
                self.refer_to(&seen, &controls, out)?;
            } else {
                let name = name.as_deref().unwrap_or(&entry.dn);
                self.answer.append(&seen, name.as_bytes(), out, &controls)?;
                self.entries = self.entries.saturating_add(1);
            }
        }
        self.scratch = entry.dn;
        Ok(Fate::Content)
    }

    /// Sends a referral object of a pass, where it is answered as a reference.
    pub(super) fn refer_refreshed<N: Snapshot>(
        &mut self,
        seen: &GuardedEntry<'_, N>,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        match self.refreshed(seen, out)? {
            Some(controls) => self.refer_to(seen, &controls, out),
            None => Ok(()),
        }
    }

    /// The controls to send an entry of a pass with; none when it is not sent.
    pub(super) fn refreshed<N: Snapshot>(
        &mut self,
        seen: &GuardedEntry<'_, N>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Vec<ControlBuf>>, End> {
        let message = self.answer.message;
        let Some(refresh) = &mut self.refresh else { return Ok(None) };
        // What has no UUID cannot be told apart by a consumer.
        let Some((uuid, csn)) = identity(seen)? else { return Ok(None) };
        if !seen.is_shown()? {
            return Ok(None);
        }
        if let Some(view) = &mut refresh.view {
            view.insert(seen.reader.view.id());
        }
        let mut has_come = false;
        if csn.is_some_and(|csn| refresh.known.covers(&csn)) {
            let base = self.base_id.unwrap_or(EntryId::ROOT);
            let whole = match refresh.whole {
                Some(whole) => whole,
                None => {
                    let area = Area::new(seen.view, base, self.scope, self.deref, None)?;
                    let spans_all = area.whole && self.scope == Scope::Subtree;
                    let by_names = goes_by_names(&self.filter, seen.view, seen.gate());
                    *refresh.whole.insert(spans_all && !by_names)
                }
            };
            has_come =
                refresh.merged || (!whole && refresh.has_new_superior(seen.view, &seen.reader.view)?);
            if !has_come {
                refresh.name(uuid, message, out);
                return Ok(None);
            }
        }
        let cookie =
            refresh.cookie.as_ref().zip(csn).map(|(begin, csn)| format!("{begin},csn={}", csn.text()));
        let cookie = refresh.cookie_moved.clone().filter(|_| has_come).or(cookie);
        let mut controls = vec![state_control(EntryState::Add, uuid, cookie.as_deref())];
        if self.answer.states {
            controls.push(history_control(seen, &uuid, csn)?);
        }
        controls.extend(self.place_control(seen)?);
        Ok(Some(controls))
    }

    /// The place of an entry, for a consumer that finds superiors by their entryUUIDs.
    fn place_control<N: Snapshot>(
        &mut self,
        seen: &GuardedEntry<'_, N>,
    ) -> Result<Option<ControlBuf>, Fault> {
        let Some(places) = &mut self.places else { return Ok(None) };
        let place = places.place_of(seen.view, &seen.reader)?;
        let control = |value| ControlBuf { oid: ENTRY_PLACE_OID.into(), critical: false, value: Some(value) };
        Ok(place.map(|place| control(place.encode())))
    }
}

/// Whether the filter, or what the rules say to this subject, goes by the names of superiors.
fn goes_by_names<N>(filter: &Filter, view: &View<'_, N>, gate: &Gate<'_>) -> bool {
    if filter.asks_about_names(&view.schema) {
        return true;
    }
    if gate.search_all && gate.read_all {
        return false;
    }
    let suffixes: Vec<_> = view.settings.suffixes.iter().map(|suffix| suffix.normal.clone()).collect();
    gate.policy.asks_about_names(&suffixes)
}

/// The control that goes with an entry.
pub fn state_control(state: EntryState, uuid: Uuid, cookie: Option<&str>) -> ControlBuf {
    SyncState { state, entry_uuid: *uuid.as_bytes(), cookie: cookie.map(str::as_bytes) }.to_control(false)
}

/// What is known of an entry's changes.
fn history_control<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    uuid: &Uuid,
    csn: Option<Csn>,
) -> Result<ControlBuf, Fault> {
    let value = state_of(seen.view, &seen.reader, uuid, csn)?;
    Ok(ControlBuf { oid: ENTRY_STATE_OID.into(), critical: false, value: Some(value) })
}

/// The entryUUID, without which there is nothing to synchronise, and the entryCSN.
fn identity<N: Snapshot>(seen: &GuardedEntry<'_, N>) -> Result<Option<(Uuid, Option<Csn>)>, Fault> {
    let schema = &seen.view.schema;
    let (Ok(entry_uuid), Ok(entry_csn)) = (schema.describe("entryUUID"), schema.describe("entryCSN")) else {
        return Ok(None);
    };
    let mut uuid = None;
    seen.reader.visit_exact(&entry_uuid, &mut |value| {
        uuid = Uuid::try_parse_ascii(value).ok();
        false
    })?;
    let Some(uuid) = uuid else { return Ok(None) };
    Ok(Some((uuid, csn_of(&seen.reader, &entry_csn)?)))
}

/// The entryCSN of a stored entry.
///
/// # Errors
/// A store that cannot be read.
pub fn entry_csn<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<Csn>, Fault> {
    let Ok(description) = view.schema.describe("entryCSN") else { return Ok(None) };
    let Some(record) = view.record(id)? else { return Ok(None) };
    csn_of(&view.reader(id, &record)?, &description)
}

fn csn_of<N: Snapshot>(
    reader: &EntryReader<'_, N>,
    entry_csn: &AttributeDescription,
) -> Result<Option<Csn>, Fault> {
    let mut csn = None;
    reader.visit_exact(entry_csn, &mut |value| {
        csn = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        false
    })?;
    Ok(csn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_ids_is_a_set() {
        let mut ids = EntryIds::default();
        for id in [0, 1, 63, 64, 4_095, 4_096, 1 << 40] {
            assert!(!ids.contains(EntryId(id)));
            assert!(ids.insert(EntryId(id)) && !ids.insert(EntryId(id)));
            assert!(ids.contains(EntryId(id)));
        }
        assert!(ids.remove(EntryId(64)) && !ids.remove(EntryId(64)));
        assert!(ids.contains(EntryId(63)) && !ids.contains(EntryId(65)));
    }
}
