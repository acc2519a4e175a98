//! The refresh: a [pass over the content](walk), or what the log says has changed.
//!
//! From the log it goes in stages: a [scan] of the records, a look at what is gone, and then all of it is [sent](sending). When
//! more has changed than is kept in mind, it begins again for the rest ([`super::passes`]).

mod changed;
mod pending_deletes;
mod scan;
mod sending;
mod walk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use larix_engine::View;
use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::log::CsnVector;
use larix_engine::replica::entry_of;
use larix_engine::search::Budget;
use larix_engine::search::synchronised::{Fate, Send, SingleEntry};
use larix_proto::{LdapResult, ResultCode};
use larix_store::{Snapshot, Store};
use uuid::Uuid;

pub(super) use changed::{Changed, moved_with};
pub(super) use scan::lacks_of;
pub(super) use walk::Walk;

use super::passes::PassProgress;
use super::session::{DatabaseSearch, SyncSearch, failed};
use pending_deletes::PendingDeletes;
use scan::begin;

/// Names that a refresh keeps in mind: those that entries have left, by a rename or a delete, since it began. With more, what is renamed
/// comes in its turn alone.
const LATE_NAMES_MAX: usize = 1 << 16;

/// A refresh from the log.
#[derive(Debug)]
pub(super) struct LogRefresh {
    known: CsnVector,
    /// The beginning of a cookie that goes with each entry.
    each_cookie: Option<String>,
    /// Goes with an entry that has come into the search under a CSN that the consumer knows.
    cookie_moved: Option<String>,
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
    stale_names: BTreeMap<String, EntryId>,
    /// Deletes of what was not here any more, or never was.
    absent: BTreeMap<Uuid, Csn>,
    pending_deletes: PendingDeletes,
    /// What is there, by its first change that may be news: with its part.
    order: VecDeque<(Csn, usize, EntryId)>,
    /// Entries of a part that are kept in mind at once.
    entries_max: usize,
    /// Earlier passes have sent the changes up to here.
    low: Option<Csn>,
    /// This one tells what has changed up to here, and leaves the rest to the next.
    high: Option<Csn>,
    /// For each part.
    passes: Vec<PassProgress>,
    /// The last record of each part's log that was looked at.
    late: Vec<u64>,
    /// Names that entries have left since then, and may have for the consumer still.
    late_names: BTreeSet<String>,
    /// It tells of more than is sent one by one.
    gives_up: bool,
}

#[derive(Debug)]
enum At {
    /// In the log of this part, behind a record, up to another.
    Scan { part: usize, after: u64, until: Option<u64> },
    /// What of it is gone.
    Deletes { part: usize, after: Option<EntryId> },
    /// Sends all of it.
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
            if begin(part, search.server_id(), search.request.sid, known)?.is_none() {
                return Ok(None);
            }
        }
        let at = At::Scan { part: 0, after: 0, until: None };
        Ok(Some(Self {
            known: known.clone(),
            each_cookie,
            cookie_moved: search.cookie_moved(),
            start: search.start.clone(),
            base: search.parts.first().map(|part| part.task.base_text().to_owned()).unwrap_or_default(),
            sid: search.request.sid,
            rid: search.request.rid,
            server_id: search.server_id(),
            peer: search.request.peer,
            at,
            stale_names: BTreeMap::new(),
            absent: BTreeMap::new(),
            pending_deletes: PendingDeletes::default(),
            order: VecDeque::new(),
            entries_max,
            low: None,
            high: None,
            passes: search.parts.iter().map(|_| PassProgress::default()).collect(),
            late: vec![0; search.parts.len()],
            late_names: BTreeSet::new(),
            gives_up: false,
        }))
    }

    /// Whether the consumer has to go through the content instead.
    pub(super) fn gives_up(&self) -> bool {
        self.gives_up
    }

    /// What such a pass begins with: what the consumer knows, and the beginning of a cookie that goes with each entry.
    pub(super) fn taken_over(&mut self) -> (CsnVector, Option<String>) {
        (std::mem::take(&mut self.known), self.each_cookie.take())
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
                    if !self.send_deletes(search.message, None, budget, out) {
                        return Ok(false);
                    }
                    // What was only to go before others comes in its turn.
                    search.parts.iter_mut().for_each(|part| part.changed.clear());
                    self.late_names.clear();
                    return Ok(!self.again());
                }
            },
        };
        let server_id = search.server_id();
        // Taken out for the time of the slice, so that the rest can be asked beside it.
        let Some(part) = search.parts.get_mut(number) else {
            self.at = match self.at {
                At::Scan { .. } => {
                    for (number, part) in search.parts.iter_mut().enumerate() {
                        self.defer_later(number, &mut part.changed);
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

    /// Finds what is gone.
    fn deletes<S: Store>(
        &mut self,
        part: &mut DatabaseSearch<S>,
        (number, after): (usize, Option<EntryId>),
        budget: Budget<'_>,
        changed: &mut Changed,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        let from = after.map_or(0, |id| id.0 + 1);
        let ids: Vec<EntryId> =
            changed.range(EntryId(from)..).map(|(id, _)| *id).take(budget.candidates as usize).collect();
        let done = ids.len() < budget.candidates as usize;
        for id in &ids {
            let fate = fate(part, number, &view, *id, out, &mut |_| None)?;
            let (uuid, is_gone) = match fate {
                Fate::Content => continue,
                Fate::Gone => (None, true),
                Fate::Outside(uuid) | Fate::Hidden(uuid) => (uuid, false),
            };
            let Some(change) = changed.remove(id) else { continue };
            if let Some(passes) = self.passes.get_mut(number) {
                passes.done(*id);
            }
            let uuid = uuid.unwrap_or(change.uuid);
            if is_gone && self.known.covers(&change.csn) && lives_again(part, number, &view, &uuid, out)? {
                continue;
            }
            // Also of what came into being meanwhile: a refresh that was broken off may have brought it.
            if !uuid.is_nil() {
                // Deleted by two servers at the same time: told once.
                let csn = self.absent.remove(&uuid).map_or(change.csn, |csn| csn.max(change.csn));
                self.pending_deletes.insert((csn, uuid), change.old_name);
            }
        }
        if done {
            let known = self.absent.iter().filter(|(_, csn)| self.known.covers(csn));
            for uuid in known.map(|(uuid, _)| *uuid).collect::<Vec<_>>() {
                if lives_again(part, number, &view, &uuid, out)? {
                    self.absent.remove(&uuid);
                }
            }
        }
        self.at = At::Deletes { part: number, after: ids.last().copied().or(after) };
        Ok(done)
    }

    /// Puts everything that is present in the order of its first change.
    fn set_order<S: Store>(&mut self, parts: &[DatabaseSearch<S>]) {
        let absent = std::mem::take(&mut self.absent);
        absent.into_iter().for_each(|(uuid, csn)| self.pending_deletes.insert((csn, uuid), None));
        let mut order = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            order.extend(part.changed.iter().map(|(id, change)| (change.first, number, *id)));
            let names = part.changed.iter().filter_map(|(id, change)| Some((change.old_name.clone()?, *id)));
            self.stale_names.extend(names);
        }
        order.sort_unstable();
        self.order = order.into();
    }
}

/// What an entry is to the search in a part; glued databases may have no base yet.
pub(super) fn fate<S: Store, N: Snapshot>(
    part: &mut DatabaseSearch<S>,
    number: usize,
    view: &View<'_, N>,
    id: EntryId,
    out: &mut Vec<u8>,
    send: &mut dyn FnMut(&SingleEntry) -> Option<Send>,
) -> Result<Fate, LdapResult> {
    match part.task.single(view, id, out, send) {
        Err(result) if number > 0 && result.code == ResultCode::NO_SUCH_OBJECT => Ok(Fate::Outside(None)),
        other => other,
    }
}

/// Whether the search finds an entry with this entryUUID, whose delete the consumer knows: `larix deleted` brings entries back so. The
/// consumer has it, or receives it in this refresh. If the delete came once more, a slapd would carry it out, and never receive the entry.
fn lives_again<S: Store, N: Snapshot>(
    part: &mut DatabaseSearch<S>,
    number: usize,
    view: &View<'_, N>,
    uuid: &Uuid,
    out: &mut Vec<u8>,
) -> Result<bool, LdapResult> {
    match entry_of(view, uuid).map_err(|fault| failed(&fault))? {
        Some(id) => Ok(matches!(fate(part, number, view, id, out, &mut |_| None)?, Fate::Content)),
        None => Ok(false),
    }
}
