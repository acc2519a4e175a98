//! Which records of a log are too old, and when the follower looks for them.

use std::sync::Arc;
use std::time::Duration;

use larix_configuration::Purge;
use larix_engine::csn::Csn;
use larix_engine::tables::ENTRIES;
use larix_engine::time::{Monotonic, Timestamp};
use larix_engine::{EntryId, EntrySource, Fault, ServedDatabase, tree};
use larix_store::{Snapshot, Store, Wanted};

use super::Recorder;
use crate::overlay_threads::OverlayHost;

const MICROS: i64 = 1_000_000;

/// Records that are asked for at once where that is a round trip.
const ASKED_AT_ONCE: usize = 64;

/// When it was looked last: by a clock that nobody sets. One that was ahead for a moment would put off the next look for as long.
#[derive(Debug, Default)]
pub(super) struct Purging {
    looked: Option<Monotonic>,
    /// The last look found more than it took.
    more: bool,
}

/// What a look found.
pub(super) struct Purged {
    /// Of what goes, the latest of each server.
    pub(super) csns: Vec<Csn>,
    pub(super) more: bool,
}

impl Purging {
    /// How long until the next look; none when nothing ever goes.
    pub(super) fn patience<H: OverlayHost>(
        &self,
        now: Monotonic,
        recorders: &[Arc<Recorder<H>>],
    ) -> Option<Duration> {
        let purge = settings(recorders)?;
        if self.more {
            return Some(Duration::ZERO);
        }
        match self.looked {
            None => Some(Duration::ZERO),
            Some(looked) => Some(left_of(purge.interval, looked, now)),
        }
    }

    /// Adds records that are too old at the time of day `today` to `removed`, one batch at most, if it is time to look. `shrunk`: how
    /// often a batch is halved.
    pub(super) fn slice<H: OverlayHost>(
        &mut self,
        served: &ServedDatabase<H::Store>,
        (today, now): (Timestamp, Monotonic),
        (recorders, shrunk): (&[Arc<Recorder<H>>], u32),
        removed: &mut Vec<EntryId>,
    ) -> Result<Option<Purged>, Fault> {
        let Some(purge) = settings(recorders) else { return Ok(None) };
        let purge = Purge { batch: (purge.batch >> shrunk).max(1), ..purge };
        if !self.patience(now, recorders).is_some_and(|patience| patience.is_zero()) {
            return Ok(None);
        }
        let purged = find(served, today, purge, removed)?;
        self.looked = Some(now);
        self.more = purged.more;
        Ok(Some(purged))
    }
}

/// Of several sources the one that wants most to go.
fn settings<H: OverlayHost>(recorders: &[Arc<Recorder<H>>]) -> Option<Purge> {
    recorders.iter().filter_map(|recorder| recorder.settings.purge).min_by_key(|purge| purge.age)
}

fn find<S: Store>(
    served: &ServedDatabase<S>,
    now: Timestamp,
    purge: Purge,
    removed: &mut Vec<EntryId>,
) -> Result<Purged, Fault> {
    let mut purged = Purged { csns: Vec::new(), more: false };
    let age = i64::try_from(purge.age).unwrap_or(i64::MAX).saturating_mul(MICROS);
    let oldest = Timestamp(now.0.saturating_sub(age));
    let database = served.database();
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot)?;
    let Some(suffix) = view.settings.suffixes.first() else { return Ok(purged) };
    let Some(root) = view.resolve(&suffix.normal)?.and_then(|resolved| resolved.id) else {
        return Ok(purged);
    };
    let (Ok(start), Ok(csn)) = (view.schema.describe("reqStart"), view.schema.describe("entryCSN")) else {
        return Ok(purged);
    };
    let mut children = Vec::new();
    // The names are times: the oldest come first.
    tree::visit_children(&snapshot, root, |id| {
        children.push(id);
        children.len() <= purge.batch
    })?;
    purged.more = children.len() > purge.batch;
    children.truncate(purge.batch);
    for (at, id) in children.iter().copied().enumerate() {
        if at.is_multiple_of(ASKED_AT_ONCE) {
            let some = children.iter().skip(at).take(ASKED_AT_ONCE);
            let records = some.map(|id| Wanted::Record { table: ENTRIES, key: id.to_bytes().to_vec() });
            snapshot.fetch_ahead(&records.collect::<Vec<_>>());
        }
        let Some(record) = view.record(id)? else { continue };
        let reader = view.reader(id, &record)?;
        let mut time = None;
        reader.visit_description(&start, &mut |value| {
            time = std::str::from_utf8(value).ok().and_then(Timestamp::parse_generalized);
            false
        })?;
        match time {
            Some(time) if time > oldest => {
                purged.more = false;
                break;
            }
            // An entry that the log did not write.
            None => continue,
            Some(_) => removed.push(id),
        }
        reader.visit_description(&csn, &mut |value| {
            let csn = std::str::from_utf8(value).ok().and_then(|text| text.parse::<Csn>().ok());
            if let Some(csn) = csn {
                match purged.csns.iter_mut().find(|known| known.server_id == csn.server_id) {
                    Some(known) => *known = csn.max(*known),
                    None => purged.csns.push(csn),
                }
            }
            false
        })?;
    }
    purged.more &= !removed.is_empty();
    Ok(purged)
}

/// What is left at `now` of so many seconds that began at `since`.
fn left_of(seconds: u64, since: Monotonic, now: Monotonic) -> Duration {
    Duration::from_secs(seconds).saturating_sub(Duration::from_nanos(now.0.saturating_sub(since.0)))
}
