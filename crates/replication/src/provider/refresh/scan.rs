//! The first stage of a refresh from the log: what the records say has changed, as much of it as is kept in mind at once.

use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::log::{self, CsnVector, LogKey, LogOutline, OutlineKind};
use larix_proto::LdapResult;
use larix_store::Store;

use super::changed::{Changed, Renamed, note, note_moved, note_settled};
use super::{At, LogRefresh};
use crate::provider::decide::ConsumerRequest;
use crate::provider::passes::{PassProgress, bound};
use crate::provider::proof::proves_deletes;
use crate::provider::session::{DatabaseSearch, failed, refresh_required};

/// Records of the log that one slice looks at.
pub(super) const SCAN_RECORDS: u64 = 2_048;

/// What a slice came to.
#[derive(Default)]
struct Scanned {
    /// The last record that was looked at.
    last: u64,
    count: u64,
    renamed: Vec<Renamed>,
    /// Those that this server moved by itself.
    settled: Vec<(EntryId, Csn)>,
    /// Another entry may be the base: what the consumer knows says nothing of what is below it.
    rebases: bool,
    /// Something is kept in mind that this pass does not tell.
    leaves: bool,
}

impl LogRefresh {
    /// Looks at a slice of a part's log; answers whether that is done.
    pub(super) fn scan<S: Store>(
        &mut self,
        part: &mut DatabaseSearch<S>,
        server_id: u16,
        (number, after, until): (usize, u64, Option<u64>),
        changed: &mut Changed,
    ) -> Result<bool, LdapResult> {
        let stale = || refresh_required("sync cookie is stale");
        let after = match until {
            Some(_) => after,
            None => begin(part, server_id, self.sid, &self.known)?.ok_or_else(stale)?,
        };
        let database = part.served.database()?;
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
        if let Some(late) = self.late.get_mut(number) {
            *late = until;
        }
        let Some(passes) = self.passes.get_mut(number) else { return Ok(true) };
        let mut passes = std::mem::take(passes);
        let mut scanned = Scanned { last: after, ..Scanned::default() };
        let after = LogKey { server_id, sequence: after };
        let visited = log::visit_outlines_after(&snapshot, after, &mut |key, outline| {
            if key.sequence > until || scanned.count == SCAN_RECORDS {
                return false;
            }
            scanned.count += 1;
            scanned.last = key.sequence;
            let is_taken = self.take_in(&outline, &mut passes, changed, &mut scanned);
            scanned.rebases |= is_taken
                && matches!(outline.kind, OutlineKind::ModifyDn { .. })
                && part.task.is_rebased_by(&view.schema, &outline.dn, &outline.dn_behind());
            true
        });
        let visited = visited.map_err(|fault| failed(&fault));
        let noted = visited.and_then(|_| note_moved(part, &view, changed, &passes, &scanned.renamed));
        if !part.unrestricted {
            note_settled(changed, &passes, &scanned.settled);
        }
        if let Some(place) = self.passes.get_mut(number) {
            *place = passes;
        }
        if scanned.rebases {
            self.known = CsnVector::default();
        }
        if !noted? || scanned.rebases {
            self.gives_up = true;
            return Ok(false);
        }
        if changed.len() + self.absent.len() > self.entries_max {
            let csns = changed.values().map(|change| change.csn).chain(self.absent.values().copied());
            // A little less than may be: what comes next is mostly later, and passed over.
            let high = bound(csns.collect(), self.entries_max - self.entries_max / 8);
            self.high = self.high.min(high).or(high);
            scanned.leaves = true;
        }
        if scanned.leaves {
            self.defer_later(number, changed);
        }
        self.at = At::Scan { part: number, after: scanned.last, until: Some(until) };
        Ok(scanned.last >= until || scanned.count < SCAN_RECORDS)
    }

    /// Takes one record of the log in. Answers whether the consumer may not know it.
    fn take_in(
        &mut self,
        outline: &LogOutline,
        passes: &mut PassProgress,
        changed: &mut Changed,
        scanned: &mut Scanned,
    ) -> bool {
        // What a delete's CSN says may be a guess: see the persist stage.
        let is_known = self.known.covers(&outline.csn);
        if outline.is_settled() {
            scanned.renamed.push(Renamed { entry: outline.entry, csn: outline.csn, is_moved: true });
            scanned.settled.push((outline.entry, outline.csn));
            // The consumer may have it under this name until it learns what this server decided.
            self.stale_names.entry(outline.dn.to_lowercase()).or_insert(outline.entry);
        }
        if outline.local || is_known && outline.kind != OutlineKind::Delete {
            return outline.is_settled();
        }
        let is_later = self.high.is_some_and(|high| outline.csn > high);
        if let OutlineKind::ModifyDn { new_superior, .. } = &outline.kind {
            let is_moved = new_superior.is_some();
            scanned.renamed.push(Renamed { entry: outline.entry, csn: outline.csn, is_moved });
        }
        if outline.absent || outline.entry == EntryId::ROOT {
            if !is_later && self.low.is_none_or(|low| outline.csn > low) {
                let csn = self.absent.entry(outline.entry_uuid).or_insert(outline.csn);
                *csn = outline.csn.max(*csn);
            }
        } else if !passes.is_done(outline.entry) {
            let is_deferred = passes.is_deferred(outline.entry);
            if is_deferred || is_later && !changed.contains_key(&outline.entry) {
                passes.defer(outline.entry, outline.kind != OutlineKind::Modify);
                if matches!(outline.kind, OutlineKind::ModifyDn { .. }) && !is_known {
                    self.stale_names.entry(outline.dn.to_lowercase()).or_insert(outline.entry);
                }
            } else {
                scanned.leaves |= is_later;
                note(changed, outline, is_known);
            }
        }
        true
    }

    /// Leaves to the next pass what has changed behind what this one tells.
    pub(super) fn defer_later(&mut self, number: usize, changed: &mut Changed) {
        let (Some(high), Some(passes)) = (self.high, self.passes.get_mut(number)) else { return };
        // An entry that took over another's name needs the other one to leave it first.
        self.stale_names.extend(passes.defer_later(changed, high));
        self.absent.retain(|_, csn| *csn <= high);
    }

    /// Begins the next pass, if something was left to it.
    pub(super) fn again(&mut self) -> bool {
        let Some(high) = self.high.take() else { return false };
        self.low = Some(high);
        self.passes.iter_mut().for_each(PassProgress::again);
        self.at = At::Scan { part: 0, after: 0, until: None };
        true
    }
}

/// Where in the log of a part to begin; `None` also where the log does not tell of all deletes that the consumer may lack.
/// `sid`: the consumer's server id.
pub(super) fn begin<S: Store>(
    part: &DatabaseSearch<S>,
    server_id: u16,
    sid: Option<u16>,
    known: &CsnVector,
) -> Result<Option<u64>, LdapResult> {
    let database = part.served.database()?;
    let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
    if !proves_deletes(&snapshot, sid, known)? {
        return Ok(None);
    }
    log::begin_after(&snapshot, server_id, known).map_err(|fault| failed(&fault))
}

/// Whether the log of a part has, up to where the search begins to follow it, anything that a consumer with this knowledge
/// may lack, or cannot prove that there is nothing.
pub(in crate::provider) fn lacks_of<S: Store>(
    part: &DatabaseSearch<S>,
    server_id: u16,
    request: &ConsumerRequest,
) -> Result<bool, LdapResult> {
    if part.history.is_none() {
        return Ok(false);
    }
    let Some(sequence) = begin(part, server_id, request.sid, &request.known)? else { return Ok(true) };
    let database = part.served.database()?;
    let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
    let mut lacks = false;
    // A slapd that received as much from another server has skipped our deletes, too.
    let passes_over = !request.peer && request.sid.is_some();
    let visited =
        log::visit_outlines_after(&snapshot, LogKey { server_id, sequence }, &mut |key, outline| {
            // The CSN of a delete that came from elsewhere says nothing of who knows of it: see the persist stage.
            let is_foreign = outline.csn.server_id != server_id || outline.absent;
            let is_delete = outline.kind == OutlineKind::Delete && (is_foreign || passes_over);
            lacks = !outline.local && (is_delete || !request.known.covers(&outline.csn));
            !lacks && key.sequence < part.position
        });
    visited.map_err(|fault| failed(&fault))?;
    Ok(lacks)
}
