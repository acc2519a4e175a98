//! A walk through all entries that makes the back links of each right: when the overlay is new, after a load that ran no overlays, and
//! after a change of more targets than one commit takes.
//!
//! The writer walks in slices, between and beside groups of changes, once an index tells who names an entry. Each slice commits how
//! far the walk has come. Changes meanwhile keep their own back links right, on either side of that place.

use std::time::Duration;

use larix_store::{Direction, KeyRange, Layered, Snapshot, Store, WriteSet};

use super::back_links::{Rules, corrections};
use super::group::Group;
use super::index_work::{IndexNotice, IndexWatch};
use crate::database::{Database, View};
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::tables::{ENTRIES, META, meta};
use crate::time::{Clock, Monotonic};

/// The lengths of a slice of the walk while no change waits, and beside a group of changes, in nanoseconds.
const IDLE_NANOS: u64 = 10_000_000;
const BESIDE_NANOS: u64 = 1_000_000;
/// Entries of one slice.
const SLICE_ENTRIES: u64 = 8_192;
/// Changes of targets of one slice.
const SLICE_CHANGES: usize = 1_024;
/// Entries between two looks at the clock.
const ENTRIES_A_LOOK: u64 = 16;
/// After a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

const VERSION: u8 = 1;
/// In the place of the last entry: all are done.
const DONE: u64 = u64::MAX;
/// Version and place.
const HEAD_BYTES: usize = 9;

/// What is to be done.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Task {
    #[default]
    Nothing,
    Walk,
    /// The overlay is gone: what is stored of it no longer holds from the next change on.
    Forget,
}

/// The work of a writer.
#[derive(Debug, Default)]
pub(crate) struct BackLinkWalk {
    task: Task,
    /// Not before.
    next: Monotonic,
    entries: u64,
    changed: u64,
    /// The back links, as a notice names them.
    attributes: String,
}

/// What a slice did.
#[derive(Debug)]
pub(crate) struct WalkSlice {
    entries: u64,
    changed: u64,
    ended: bool,
}

impl BackLinkWalk {
    /// Finds out what there is to do under the settings in force.
    pub(crate) fn look<S: Store>(&mut self, database: &Database<S>) {
        let (schema, settings) = (database.schema(), database.settings());
        let rules = Rules::of(&settings);
        // What cannot be read now is looked at again by the walk.
        let stored =
            database.store().snapshot().ok().and_then(|snapshot| read_progress(&snapshot).ok().flatten());
        self.task = match (rules.is_empty(), stored) {
            (true, None) => Task::Nothing,
            (true, Some(_)) => Task::Forget,
            (false, Some((text, DONE))) if text == rules.text(&schema) => Task::Nothing,
            (false, _) => Task::Walk,
        };
        (self.entries, self.changed) = (0, 0);
        self.attributes = rules.names(&schema);
    }

    /// How long the writer waits for changes before it goes on.
    pub(crate) fn patience<S: Store>(&self, database: &Database<S>, clock: &dyn Clock) -> Option<Duration> {
        if self.task != Task::Walk {
            return None;
        }
        let state = database.state();
        let rules = Rules::of(&state.settings);
        let is_ready = !rules.is_empty() && rules.are_indexed(&state.catalog);
        is_ready.then(|| Duration::from_nanos(self.next.0.saturating_sub(clock.monotonic().0)))
    }

    /// Adds a slice to a group; `alone`: there are no changes in it.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn along<S: Store, T: Snapshot>(
        &self,
        group: &mut Group<'_, S>,
        transaction: &T,
        alone: bool,
    ) -> Result<Option<WalkSlice>, Fault> {
        match self.task {
            Task::Nothing => Ok(None),
            Task::Forget => {
                group.set.delete(META, meta::BACK_LINKS);
                Ok(Some(WalkSlice { entries: 0, changed: 0, ended: true }))
            }
            Task::Walk => group.walk(transaction, if alone { IDLE_NANOS } else { BESIDE_NANOS }),
        }
    }

    /// A group was committed with what [`Self::along`] answered. `anew`: there was too much for it.
    pub(crate) fn committed(
        &mut self,
        walked: Option<WalkSlice>,
        anew: bool,
        watch: Option<&dyn IndexWatch>,
    ) {
        if let Some(walked) = walked {
            self.entries += walked.entries;
            self.changed += walked.changed;
            if walked.ended {
                let (entries, changed) = (self.entries, self.changed);
                if let Some(watch) = watch.filter(|_| changed > 0) {
                    let attributes = self.attributes.clone();
                    watch.notice(IndexNotice::BackLinks { attributes, entries, changed });
                }
                let attributes = std::mem::take(&mut self.attributes);
                *self = Self { attributes, ..Self::default() };
            }
        }
        if anew {
            let attributes = std::mem::take(&mut self.attributes);
            *self = Self { task: Task::Walk, attributes, ..Self::default() };
        }
    }

    /// A group was not committed.
    pub(crate) fn failed(&mut self, clock: &dyn Clock) {
        let pause = u64::try_from(FAILURE_PAUSE.as_nanos()).unwrap_or(u64::MAX);
        self.next = Monotonic(clock.monotonic().0.saturating_add(pause));
    }
}

/// For which rules entries were gone through, and the last of them.
fn read_progress<N: Snapshot>(snapshot: &N) -> Result<Option<(String, u64)>, Fault> {
    let Some(bytes) = snapshot.get(META, meta::BACK_LINKS)? else { return Ok(None) };
    let known = bytes.split_at_checked(HEAD_BYTES).and_then(|(head, text)| {
        let &[VERSION, ref place @ ..] = head else { return None };
        let place = u64::from_be_bytes(place.try_into().ok()?);
        Some((String::from_utf8(text.to_vec()).ok()?, place))
    });
    // What is not understood is begun anew.
    Ok(Some(known.unwrap_or_default()))
}

fn write_progress(set: &mut WriteSet, text: &str, place: u64) {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&place.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    set.put(META, meta::BACK_LINKS, bytes);
}

/// All entries are to be gone through.
pub(crate) fn begin_anew(set: &mut WriteSet) {
    write_progress(set, "", 0);
}

impl<S: Store> Group<'_, S> {
    fn walk<T: Snapshot>(&mut self, transaction: &T, nanos: u64) -> Result<Option<WalkSlice>, Fault> {
        let settings = std::sync::Arc::clone(&self.state.settings);
        let rules = Rules::of(&settings);
        if rules.is_empty() || !rules.are_indexed(self.catalog.catalog()) {
            return Ok(None);
        }
        let text = rules.text(&self.state.schema);
        let clock = &*self.environment.clock;
        let until = clock.monotonic().0.saturating_add(nanos);
        let mut walked = WalkSlice { entries: 0, changed: 0, ended: true };
        let mut edits = Vec::new();
        let mut last;
        {
            let snapshot = Layered::new(transaction, &self.set);
            let view: View<'_, _> = self.view(&snapshot)?;
            last = match read_progress(&snapshot)? {
                Some((of, place)) if of == text => place,
                _ => 0,
            };
            let start = last.saturating_add(1).to_be_bytes();
            for row in snapshot.scan(ENTRIES, KeyRange::at_least(&start), Direction::Forward)? {
                let id =
                    EntryId::from_prefix(&row?.0).ok_or(Fault::Damaged { what: "a key of the entries" })?;
                let changes = corrections(&view, &rules, id)?;
                if !changes.is_empty() {
                    edits.push((id, changes));
                }
                last = id.0;
                walked.entries += 1;
                let looks = walked.entries.is_multiple_of(ENTRIES_A_LOOK);
                if walked.entries >= SLICE_ENTRIES
                    || edits.len() >= SLICE_CHANGES
                    || looks && clock.monotonic().0 >= until
                {
                    walked.ended = false;
                    break;
                }
            }
        }
        walked.changed = edits.len() as u64;
        let mut unit = WriteSet::new();
        self.edit_targets(transaction, &mut unit, edits, None)?;
        write_progress(&mut unit, &text, if walked.ended { DONE } else { last });
        self.set.merge(unit);
        Ok(Some(walked))
    }
}
