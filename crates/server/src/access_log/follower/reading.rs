//! Reads the change logs: the records after those already read of each, in the form of the access log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use larix_engine::Fault;
use larix_engine::audit::{self, AuditFacts, Request};
use larix_engine::csn::Csn;
use larix_engine::log::{self, CsnVector, LogKey, LogRecord, LoggedChange, NumberedRows};
use larix_engine::replica::{EntryPlace, EntryPlaces};
use larix_engine::tables::{META, meta};
use larix_engine::time::{Clock as _, Timestamp};
use larix_engine::write::{NewRecord, Recording};
use larix_schema::Schema;
use larix_store::{Direction, Snapshot, Store};
use uuid::Uuid;

use super::extent::{self, Context};
use super::fitting::{self, Room};
use super::sharing::Share;
use super::{GROUP, LogWriter, Position, Progress};
use crate::access_log::configuration::{ConfigChanges, EntryVersions};
use crate::access_log::{CONFIGURATION, Open, Recorder};
use crate::overlay_threads::OverlayHost;

/// Bytes of a change log, and of other operations, that one commit takes, about.
pub(super) const GROUP_BYTES: usize = 8 << 20;

/// Where a round begins to read a change log.
#[derive(Copy, Clone, Debug)]
pub(super) struct Start {
    /// Behind this record.
    pub(super) from: LogKey,
    /// What is answered ends here.
    pub(super) target: LogKey,
    /// What was changed before may not be in the log.
    pub(super) lacks: Lacking,
    /// The log has gone past changes that are still to be recorded, as while the overlay was away: who has its cookie, up to this CSN, may
    /// lack them.
    pub(super) late: Option<Csn>,
}

/// What a round lacks of a change log before it begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    Nothing,
    /// The database is recorded for the first time, in a log that was loaded or is new: what that has not come to yet.
    Newer,
    /// The database is recorded for the first time, beside others.
    Earlier,
    /// It is not known how far it was recorded.
    Unknown,
}

/// What a change log was read for.
pub(super) struct LogRead {
    pub(super) reached: Position,
    /// There is more that can be recorded at once.
    pub(super) more: bool,
    /// What the access log has not come to.
    pub(super) context: Option<Context>,
    /// Changes up to here are missing for ever.
    pub(super) missed: Vec<Csn>,
    /// Changes that the log goes past while replicas may follow it, without what they need.
    pub(super) left_out: Vec<Csn>,
}

impl<H: OverlayHost> LogWriter<H> {
    /// Where this round begins in a change log.
    pub(super) fn start(
        &self,
        progress: &Progress,
        (recorder, (served, joined)): (&Arc<Recorder<H>>, Open<'_, H>),
    ) -> Result<Start, Fault> {
        let source = &recorder.source;
        let database = served.database();
        let target = database.following().answered();
        if let Some(position) = progress.positions.get(&source.name) {
            return Ok(Start { from: position.key, target, lacks: Lacking::Nothing, late: None });
        }
        let snapshot = database.store().snapshot()?;
        let history = log::history(&snapshot)?.unwrap_or_default();
        // Another server may have recorded more than this one has followed.
        let last = (!<H::Store as Store>::SHARED).then(|| log::last_number(&snapshot)).transpose()?;
        let begun = self.begin((&source.name, joined.began), (history, last))?;
        let (from, lacks) = begun.unwrap_or((target, Lacking::Unknown));
        Ok(Start { from, target, lacks, late: None })
    }

    /// The records of one change log behind what was read of it, up to the group's limit.
    pub(super) fn changes_of(
        &self,
        progress: &Progress,
        (recorder, (served, joined), share): (&Arc<Recorder<H>>, Open<'_, H>, &Share),
        schema: &Arc<Schema>,
        changes: &mut Vec<(Timestamp, NewRecord)>,
        recording: &mut Recording,
    ) -> Result<LogRead, Fault> {
        let source = &recorder.source;
        let database = served.database();
        let Start { from, target, lacks, late } = share.start;
        let until = share.until.unwrap_or(target.sequence).min(target.sequence);
        let snapshot = database.store().snapshot()?;
        let history = log::history(&snapshot)?.unwrap_or_default();
        let position = progress.positions.get(&source.name).copied();
        let before = progress.contexts.get(&source.name).cloned();
        let context = Context::now(&snapshot)?;
        let unwanted = Unwanted::new(&context, database.settings().shadow);
        let mut taken = RoundRecords { changes, unwanted, left_out: Vec::new() };
        let contexts = before.into_iter().chain([context]);
        let suffix = database.settings().suffixes.first().map(|suffix| suffix.text.clone());
        let recorded = RecordedLog {
            recorder,
            instance: database.instance(),
            suffix: suffix.unwrap_or_default(),
            schema,
            room: Room::of(self.served()?.database()),
            now: self.clock.now(),
        };
        let (mut reached, mut count, mut bytes, mut ended) = (from, 0, 0, true);
        let (records_max, bytes_max) = (progress.share(Self::group()), progress.share(GROUP_BYTES));
        // Who merges records goes by the places that they tell.
        let view = database.view(&snapshot)?;
        let mut places = database.settings().merges_records.then(EntryPlaces::default);
        for row in NumberedRows::after(&snapshot, from.sequence, Direction::Forward)? {
            let (key, stored) = row?;
            if key.sequence > until {
                break;
            }
            if count == records_max || bytes > bytes_max {
                ended = false;
                break;
            }
            let damaged = Fault::Damaged { what: "a record of the change log" };
            let record = LogRecord::decode(&stored).map_err(|_| damaged)?;
            count += 1;
            bytes += stored.len();
            reached = key;
            let place = places.as_mut().map(|places| places.of_record(&view, &record)).transpose()?.flatten();
            self.take(&mut taken, &recorded, (key, record), place.as_ref());
        }
        recording.context_csns.extend(taken.unwanted.last);
        let is_cut = until < target.sequence;
        if ended && !is_cut {
            // Another server may have recorded more than this one has followed: what is recorded stays so.
            reached = if target.sequence > from.sequence { target } else { from };
        }
        // Sequences have no gaps: what was not met has gone.
        let gone = (reached.sequence - from.sequence).saturating_sub(count as u64);
        self.report_gone(&source.name, gone);
        let lacks = if gone > 0 { Lacking::Unknown } else { lacks };
        let mut missed = self.missed(&snapshot, joined.earlier.as_deref(), (lacks, share))?;
        if lacks == Lacking::Unknown {
            taken.left_out.extend_from_slice(&missed);
        }
        taken.left_out.extend(late);
        recording.context_csns.extend(late);
        let now = Position { history, key: reached };
        if position != Some(now) {
            recording.marks.push(mark(&source.name, now));
        }
        let has_come =
            |context: &Context| context.sequence <= reached.sequence && share.allows(&context.csns);
        let context = extent::settle(contexts, has_come, recording, &mut missed);
        let more = !ended || share.more;
        Ok(LogRead { reached: now, more, context, missed, left_out: taken.left_out })
    }

    /// Takes what the recorder wants of one record; `place`: of the entry, where records are merged.
    fn take(
        &self,
        taken: &mut RoundRecords<'_>,
        recorded: &RecordedLog<'_, H>,
        (key, record): (LogKey, LogRecord),
        place: Option<&EntryPlace>,
    ) {
        let facts = || self.facts_of(recorded.instance, key.sequence);
        let own = Some(record.csn).filter(|csn| csn.server_id == key.server_id && !record.local);
        let Some((end, mut change)) = record_of(recorded, record, place, facts) else {
            return taken.unwanted.pass(own);
        };
        if let Some(what) = fitting::fit(recorded.schema, recorded.room, &mut change) {
            self.log.warning(format_args!("access log: \"{}\": {what}", recorded.recorder.source.name));
            taken.left_out.extend(change.csn);
        }
        taken.changes.push((end, change));
    }

    fn report_gone(&self, name: &str, changes: u64) {
        if changes > 0 {
            self.log.warning(format_args!(
                "access log: {changes} changes of \"{name}\" are no longer in its change log and stay unrecorded"
            ));
        }
    }

    /// Changes of a database up to these are not in the log. `earlier`: how far it had come when recording was asked for.
    fn missed<N: Snapshot>(
        &self,
        snapshot: &N,
        earlier: Option<&[Csn]>,
        (lacks, share): (Lacking, &Share),
    ) -> Result<Vec<Csn>, Fault> {
        let mut missed = match (lacks, earlier) {
            (Lacking::Nothing, _) => Vec::new(),
            (Lacking::Newer | Lacking::Earlier, Some(earlier)) => earlier.to_vec(),
            _ => log::context_csns(snapshot)?,
        };
        if lacks != Lacking::Unknown {
            missed.retain(|csn| share.has_to_be_known(csn));
        }
        if lacks == Lacking::Newer {
            let loaded = log::context_csns(&self.served()?.database().store().snapshot()?)?;
            let loaded: CsnVector = loaded.into_iter().collect();
            missed.retain(|csn| !loaded.covers(csn));
        }
        Ok(missed)
    }

    /// The same for cn=config. The thread that makes its changes reports them.
    pub(super) fn changes_of_configuration(
        &self,
        configuration: &mut Option<Arc<EntryVersions>>,
        (recorder, source): (&Arc<Recorder<H>>, &ConfigChanges),
        schema: &Arc<Schema>,
        changes: &mut Vec<(Timestamp, NewRecord)>,
        recording: &mut Recording,
    ) -> Result<LogRead, Fault> {
        let (name, now) = (&recorder.source.name, self.clock.now());
        let position = |sequence| Position { history: Uuid::nil(), key: LogKey { server_id: 0, sequence } };
        let wanted = |record: &LogRecord| {
            let dn = schema.parse_dn(&record.dn).ok();
            recorder.settings.wants(audit::operation_of(&record.change), dn.as_ref())
        };
        let versions = match configuration {
            Some(versions) => Arc::clone(versions),
            None => {
                let snapshot = self.served()?.database().store().snapshot()?;
                let stored =
                    snapshot.get(META, &mark_key(name))?.and_then(|row| EntryVersions::from_bytes(&row));
                let missed = stored.as_ref().map_or_else(Vec::new, |stored| source.missed_since(stored));
                let of = |record: &LogRecord| {
                    (record.csn.time.min(now), audit::of_change(schema, record, None, None, now))
                };
                changes.extend(missed.iter().filter(|record| wanted(record)).map(of));
                let began = source.began();
                recording.marks.push((mark_key(name), began.to_bytes()));
                began
            }
        };
        let reached = recorder.source.reached.load(Ordering::Acquire);
        let recorded = source.after(reached, &versions, GROUP);
        for (sequence, record) in recorded.records.iter().filter(|(_, record)| wanted(record)) {
            recording.context_csns.push(record.csn);
            let facts = self.facts_of(CONFIGURATION, *sequence);
            let change = audit::of_change(schema, record, None, facts.as_deref(), now);
            changes.push((facts.map_or_else(|| record.csn.time.min(now), |facts| facts.end), change));
        }
        if recorded.reached != reached {
            recording.marks.push((mark_key(name), recorded.versions.to_bytes()));
        }
        *configuration = Some(recorded.versions);
        let (context, missed, left_out) = (None, Vec::new(), Vec::new());
        let reached = position(recorded.reached);
        Ok(LogRead { reached, more: recorded.more, context, missed, left_out })
    }

    fn facts_of(&self, database: u64, sequence: u64) -> Option<Arc<AuditFacts>> {
        self.lock().facts.get(&(database, sequence)).cloned()
    }

    /// Where to begin in a change log: where it was left, or where it ended when recording was asked for; `None`: it is not
    /// known. `last`: its last record, which an older copy of the database has behind what was recorded of it.
    fn begin(
        &self,
        (name, began): (&str, LogKey),
        (history, last): (Uuid, Option<u64>),
    ) -> Result<Option<(LogKey, Lacking)>, Fault> {
        let snapshot = self.served()?.database().store().snapshot()?;
        let Some(stored) = snapshot.get(META, &mark_key(name))? else {
            // A log that was loaded says how far it goes, until the first of its databases is recorded.
            let is_loaded = audit::stored_lacks(&snapshot)?.is_none();
            return Ok(Some((began, if is_loaded { Lacking::Newer } else { Lacking::Earlier })));
        };
        let stored = stored
            .split_at_checked(16)
            .and_then(|(was, key)| LogKey::from_bytes(key).filter(|_| was == history.as_bytes()))
            .filter(|key| last.is_none_or(|last| key.sequence <= last));
        if stored.is_none() {
            self.log.warning(format_args!(
                "access log: \"{name}\" has another history than when it was recorded last, or is an older copy; changes \
                 made in between are not in the log"
            ));
        }
        Ok(stored.map(|key| (key, Lacking::Nothing)))
    }
}

/// A change log that is recorded, and what holds for all of its records in one round.
struct RecordedLog<'r, H: OverlayHost> {
    recorder: &'r Recorder<H>,
    /// Of the database, as its suffix.
    instance: u64,
    suffix: String,
    schema: &'r Schema,
    room: Room,
    now: Timestamp,
}

/// What a round takes of one change log.
struct RoundRecords<'c> {
    /// With the times when they ended.
    changes: &'c mut Vec<(Timestamp, NewRecord)>,
    unwanted: Unwanted,
    /// As in [`LogRead`].
    left_out: Vec<Csn>,
}

/// Changes of this server that a recorder does not want (`logops`, `logbase`). The log has come as far as they say, too: a replica that
/// has them asks it for what comes behind, and while changes are made, the log never has all that the database has.
struct Unwanted {
    known: CsnVector,
    /// What bears this server's ID may come from its provider, in any order.
    is_shadow: bool,
    last: Option<Csn>,
}

impl Unwanted {
    fn new(context: &Context, is_shadow: bool) -> Self {
        Self { known: context.csns.iter().copied().collect(), is_shadow, last: None }
    }

    fn pass(&mut self, own: Option<Csn>) {
        self.last = self.last.max(own.filter(|csn| !self.is_shadow && self.known.covers(csn)));
    }
}

/// What is recorded of a change, and when it ended; `None`: it is none that the recorder wants.
fn record_of<H: OverlayHost>(
    recorded: &RecordedLog<'_, H>,
    mut record: LogRecord,
    place: Option<&EntryPlace>,
    facts: impl FnOnce() -> Option<Arc<AuditFacts>>,
) -> Option<(Timestamp, NewRecord)> {
    let RecordedLog { recorder, suffix, schema, now, .. } = recorded;
    if record.dn.is_empty() && record.absent {
        // Of an entry that was never here nothing but its identity is known; a record has a name.
        record.dn = format!("entryUUID={},{suffix}", record.entry_uuid);
    }
    let (dn, change) = record.as_sent();
    let dn = schema.parse_dn(dn).ok();
    // What only says whose changes a merge brought (`conflict-mode value`) changes nothing by itself.
    let is_empty = matches!(change, LoggedChange::Modify(changes) if changes.is_empty());
    if record.local || is_empty || !recorder.settings.wants(audit::operation_of(change), dn.as_ref()) {
        return None;
    }
    let facts = facts();
    let change = audit::of_change(schema, &record, place, facts.as_deref(), *now);
    Some((facts.map_or_else(|| record.csn.time.min(*now), |facts| facts.end), change))
}

/// In the order in which they ended; changes keep theirs.
pub(super) fn merged(
    schema: &Schema,
    changes: Vec<(Timestamp, NewRecord)>,
    mut requests: Vec<(Request, AuditFacts)>,
) -> Vec<NewRecord> {
    requests.sort_by_key(|(_, facts)| facts.end);
    let mut requests = requests.into_iter().peekable();
    let mut all = Vec::with_capacity(changes.len() + requests.len());
    for (end, change) in changes {
        while let Some((request, facts)) = requests.next_if(|(_, facts)| facts.end < end) {
            all.push(audit::of_request(schema, &request, &facts));
        }
        all.push(change);
    }
    all.extend(requests.map(|(request, facts)| audit::of_request(schema, &request, &facts)));
    all
}

fn mark_key(name: &str) -> Vec<u8> {
    [meta::ACCESS_LOG, name.as_bytes()].concat()
}

/// The row that tells how far a change log was read: its history, then the key of its record.
fn mark(name: &str, position: Position) -> (Vec<u8>, Vec<u8>) {
    (mark_key(name), [position.history.as_bytes().as_slice(), &position.key.to_bytes()].concat())
}
