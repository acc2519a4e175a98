//! Several databases in one log: a change waits until what has a lower CSN of this server in another of them is recorded, too. A cookie of
//! the log speaks for all of them, and who has it is not sent what comes late under a lower CSN.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use larix_engine::Fault;
use larix_engine::csn::Csn;
use larix_engine::log::{self, CsnVector, LogOutline, NumberedRows};
use larix_engine::replica::{ReplicaRules, ReplicatedBatch, ReplicatedOutcome};
use larix_engine::time::Timestamp;
use larix_engine::write::NewRecord;
use larix_store::{Direction, ReadError, Store};

use super::reading::{GROUP_BYTES, Lacking, Start};
use super::{LogWriter, Progress};
use crate::access_log::{Open, Recorder};
use crate::overlay_threads::OverlayHost;

/// How far one database is read in a round.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) start: Start,
    /// Up to this record of its change log. `None`: to the end, since it waits for no other database.
    pub(super) until: Option<u64>,
    /// There is more that waits for no other database.
    pub(super) more: bool,
    limits: Limits,
}

/// Changes of this server that are to be recorded now are not behind these.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Limits {
    /// What all databases had committed before any of them was read; `None` where that counts for nothing.
    committed: Option<Csn>,
    /// In another database a change may come that is not before this one.
    next: Option<Csn>,
}

/// What a round may read of a change log.
#[derive(Clone, Debug, Default)]
struct Readable {
    /// Each record, with its CSN if it is a new change of this server.
    records: Vec<(u64, Option<Csn>)>,
    /// No change that is left for later is before this one.
    next: Option<Csn>,
    /// What is left can be read at once.
    more: bool,
}

impl Limits {
    fn allow(&self, csn: &Csn) -> bool {
        self.committed.is_none_or(|committed| *csn <= committed) && self.next.is_none_or(|next| *csn <= next)
    }
}

impl Share {
    /// Whether consumers have to know this change, which was made before recording began. Those of another database of the log do not hear
    /// of another server's.
    pub(super) fn has_to_be_known(&self, csn: &Csn) -> bool {
        self.limits.committed.is_none() || csn.server_id == self.start.target.server_id
    }

    /// Whether the log may say that it has come so far.
    pub(super) fn allows(&self, csns: &[Csn]) -> bool {
        let own = self.start.target.server_id;
        csns.iter().filter(|csn| csn.server_id == own).all(|csn| self.limits.allow(csn))
    }
}

impl<H: OverlayHost> LogWriter<H> {
    /// Has those who follow one of the databases let in where the log begins behind its last change: they come with the contextCSN that they
    /// have from there, and would be sent back to its entries until it changes. It has all that this server had changed in it up to there.
    pub(super) fn raise_sources(
        &self,
        recorders: &[Arc<Recorder<H>>],
        (lacks, late): (&CsnVector, &[String]),
    ) -> Result<(), Fault> {
        let open: Vec<(&str, Open<'_, H>)> = recorders
            .iter()
            .filter_map(|recorder| Some((recorder.source.name.as_str(), recorder.source.joined(&self.own)?)))
            .collect();
        if recorders.len() < 2 || self.served()?.database().settings().provider.is_none() {
            return Ok(());
        }
        for (name, (served, _)) in open {
            let is_late = late.iter().any(|late| late == name);
            let (database, settings) = (served.database(), served.database().settings());
            // Who hears of changes from others says by its contextCSN that it has heard of all.
            if settings.provider.is_none() || settings.shadow || settings.multi_provider {
                continue;
            }
            let known: CsnVector = log::consumer_csns(&database.store().snapshot()?)?.into_iter().collect();
            let is_ahead = |csn: &Csn| is_late || !known.is_empty() && !known.covers(csn);
            if let Some(csn) = lacks.of(database.server_id()).filter(is_ahead) {
                let rules =
                    ReplicaRules { multi_provider: false, doubted: is_late, ..ReplicaRules::default() };
                let batch = ReplicatedBatch { changes: Vec::new(), context_csns: vec![csn], rules };
                let (done, ended) = sync_channel(1);
                let tell = move |outcome: ReplicatedOutcome| {
                    // Nobody waits where no change is late: what is refused is tried again when the server starts.
                    let _ = done.send(outcome.result);
                };
                served.replicate(batch, Box::new(tell));
                if !is_late {
                    continue;
                }
                if !ended.recv().is_ok_and(|result| result.is_success()) {
                    let failed = io::Error::other(format!("the contextCSN of \"{name}\" cannot be raised"));
                    return Err(ReadError::Unavailable(failed).into());
                }
                self.log.notice(format_args!(
                    "access log: \"{name}\" was changed while it was not recorded: consumers of the log are sent all of it"
                ));
            }
        }
        Ok(())
    }

    /// How far each database that is open is read in this round, by the sources' names.
    pub(super) fn shares(
        &self,
        progress: &Progress,
        recorders: &[Arc<Recorder<H>>],
    ) -> Result<HashMap<String, Share>, Fault> {
        let open: Vec<(&Arc<Recorder<H>>, Open<'_, H>)> = recorders
            .iter()
            .filter_map(|recorder| Some((recorder, recorder.source.joined(&self.own)?)))
            .collect();
        // Where no consumer follows the log, its records may come in any order.
        let waits = open.len() > 1 && self.served()?.database().settings().provider.is_some();
        // Read before anything else: what is committed later has higher CSNs than all that is there now.
        let mut committed = CsnVector::default();
        if waits {
            for (_, (served, _)) in &open {
                committed.extend(log::context_csns(&served.database().store().snapshot()?)?);
            }
        }
        let mut starts = Vec::with_capacity(open.len());
        let mut readable = Vec::new();
        for &(recorder, source) in &open {
            let mut start = self.start(progress, (recorder, source))?;
            if waits && !progress.positions.contains_key(&recorder.source.name) {
                start.late = self.late(source, start)?;
            }
            if waits {
                readable.push(self.readable(progress, source, start)?);
            }
            starts.push((recorder.source.name.clone(), start));
        }
        let alone = |start| Share { start, until: None, more: false, limits: Limits::default() };
        let share = |(at, (name, start)): (usize, (String, Start))| {
            let committed = committed.of(start.target.server_id).unwrap_or(Csn::ZERO);
            let share = match readable.get(at) {
                Some(_) => share_of(&readable, at, committed, start),
                None => alone(start),
            };
            (name, share)
        };
        Ok(starts.into_iter().enumerate().map(share).collect())
    }

    /// Behind which CSN consumers have what was changed in a database while the log that has other ones was not told of it.
    fn late(&self, (served, _): Open<'_, H>, start: Start) -> Result<Option<Csn>, Fault> {
        let (database, settings) = (served.database(), served.database().settings());
        // As in `raise_sources`.
        if start.lacks != Lacking::Nothing
            || settings.provider.is_none()
            || settings.shadow
            || settings.multi_provider
        {
            return Ok(None);
        }
        let own_id = start.target.server_id;
        let told: CsnVector =
            log::context_csns(&self.served()?.database().store().snapshot()?)?.into_iter().collect();
        let Some(told) = told.of(own_id) else { return Ok(None) };
        let snapshot = database.store().snapshot()?;
        let rows = NumberedRows::after(&snapshot, start.from.sequence, Direction::Forward)?;
        for (next, row) in (start.from.sequence + 1..).zip(rows) {
            let (key, stored) = row?;
            let damaged = Fault::Damaged { what: "a record of the change log" };
            let outline = LogOutline::decode(&stored).map_err(|_| damaged)?;
            let is_own = key.server_id == own_id && outline.csn.server_id == own_id && !outline.local;
            // What has gone from the change log may have been such a one.
            if key.sequence != next || is_own && outline.csn <= told {
                // No change has this one: it is behind all that the log has told, and before what is changed from now on.
                return Ok(Some(Csn { modification: told.modification + 1, ..told }));
            }
            if is_own {
                break;
            }
        }
        Ok(None)
    }

    /// What is there of one change log.
    fn readable(
        &self,
        progress: &Progress,
        (served, _): Open<'_, H>,
        start: Start,
    ) -> Result<Readable, Fault> {
        let database = served.database();
        let snapshot = database.store().snapshot()?;
        let known: CsnVector = log::context_csns(&snapshot)?.into_iter().collect();
        // What bears this server's ID on a shadow comes from its provider, in any order.
        let is_shadow = database.settings().shadow;
        let (records_max, bytes_max) = (progress.share(Self::group()), progress.share(GROUP_BYTES));
        let mut readable = Readable::default();
        let mut last = Csn::ZERO;
        let mut bytes = 0;
        for row in NumberedRows::after(&snapshot, start.from.sequence, Direction::Forward)? {
            let (key, stored) = row?;
            let damaged = Fault::Damaged { what: "a record of the change log" };
            let outline = LogOutline::decode(&stored).map_err(|_| damaged)?;
            let is_own = key.server_id == start.target.server_id
                && outline.csn.server_id == key.server_id
                && !outline.local
                && known.covers(&outline.csn);
            let own = Some(outline.csn).filter(|_| is_own && !is_shadow);
            let is_answered = key.sequence <= start.target.sequence;
            if !is_answered || readable.records.len() == records_max || bytes > bytes_max {
                readable.more = is_answered;
                readable.next = (!is_shadow).then(|| own.map_or(last, |csn| csn.max(last)));
                break;
            }
            last = own.map_or(last, |csn| csn.max(last));
            bytes += stored.len();
            readable.records.push((key.sequence, own));
        }
        Ok(readable)
    }
}

/// The share of the change log at this place among all.
fn share_of(all: &[Readable], at: usize, committed: Csn, start: Start) -> Share {
    let others = all.iter().enumerate().filter(|(other, _)| *other != at);
    let limits =
        Limits { committed: Some(committed), next: others.filter_map(|(_, other)| other.next).min() };
    let (records, more) = all.get(at).map_or((&[][..], false), |own| (&own.records[..], own.more));
    let waits = records.iter().position(|(_, csn)| csn.is_some_and(|csn| !limits.allow(&csn)));
    if waits.is_none() && !more {
        // Also past what has gone from the change log.
        return Share { start, until: None, more, limits };
    }
    let read = records.get(..waits.unwrap_or(records.len())).unwrap_or_default();
    let until = read.last().map_or(start.from.sequence, |(sequence, _)| *sequence);
    Share { start, until: Some(until), more: more && waits.is_none(), limits }
}

/// A record, and when what it tells of ended.
type EndedRecord = (Timestamp, NewRecord);

/// The records of one round: those of each source stay in their order, and changes of this server come by their CSNs.
pub(super) fn in_one_order(sources: Vec<Vec<EndedRecord>>, own_id: Option<u16>) -> Vec<EndedRecord> {
    let own_csn = |(_, record): &EndedRecord| record.csn.filter(|csn| Some(csn.server_id) == own_id);
    let mut all = Vec::with_capacity(sources.iter().map(Vec::len).sum());
    let mut sources: Vec<_> = sources.into_iter().map(VecDeque::from).collect();
    loop {
        let next = sources.iter_mut().filter(|source| !source.is_empty());
        let Some(source) = next.min_by_key(|source| source.front().and_then(own_csn)) else { return all };
        all.extend(source.pop_front());
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::log::LogKey;

    use super::*;

    fn csn(time: i64) -> Csn {
        Csn { time: Timestamp(time), count: 0, server_id: 1, modification: 0 }
    }

    /// Records 1, 2, ... with these CSNs (0: none that counts).
    fn readable(times: &[i64], next: Option<i64>, more: bool) -> Readable {
        let own = |time: &i64| (*time > 0).then(|| csn(*time));
        let records = (1..).zip(times.iter().map(own)).collect();
        Readable { records, next: next.map(csn), more }
    }

    #[test]
    fn a_change_waits_for_lower_ones_of_other_databases() {
        let check = |committed: i64, all: &[Readable], expected: &[(u64, bool)]| {
            let from = LogKey { server_id: 1, sequence: 0 };
            let share = |at: usize| {
                let target = LogKey { sequence: all[at].records.len() as u64, ..from };
                let start = Start { from, target, lacks: Lacking::Nothing, late: None };
                let share = share_of(all, at, csn(committed), start);
                (share.until.unwrap_or(target.sequence), share.more)
            };
            let found: Vec<_> = (0..all.len()).map(share).collect();
            assert_eq!(found, expected, "{committed} {all:?}");
        };
        let all_of = |times: &[i64]| readable(times, None, false);
        check(9, &[all_of(&[1, 4]), all_of(&[2, 3])], &[(2, false), (2, false)]);
        // Committed when the other one had been looked at already.
        check(3, &[all_of(&[1, 4]), all_of(&[2, 3])], &[(1, false), (2, false)]);
        // The next one is not answered yet, or too much for a round.
        check(9, &[all_of(&[1, 4, 6]), readable(&[2], Some(5), false)], &[(2, false), (1, false)]);
        check(
            9,
            &[readable(&[1, 4], Some(7), true), readable(&[2], Some(3), true)],
            &[(1, false), (1, true)],
        );
        check(9, &[all_of(&[1, 4]), readable(&[], Some(0), false)], &[(0, false), (0, false)]);
        // What came from elsewhere waits for nothing.
        check(9, &[all_of(&[0, 0]), readable(&[0], Some(0), true)], &[(2, false), (1, true)]);
        check(
            9,
            &[all_of(&[0, 4, 0]), readable(&[2], Some(3), false), all_of(&[1])],
            &[(1, false), (1, false), (1, false)],
        );
    }

    /// As when a change log was trimmed while nothing recorded it: what has gone is not waited for.
    #[test]
    fn a_change_log_without_records_is_read_to_its_end() {
        let from = LogKey { server_id: 1, sequence: 3 };
        let start =
            Start { from, target: LogKey { sequence: 9, ..from }, lacks: Lacking::Nothing, late: None };
        let all = [readable(&[], None, false), readable(&[2], Some(3), true)];
        assert_eq!(share_of(&all, 0, csn(9), start).until, None);
    }

    #[test]
    fn one_of_several_always_goes_on() {
        for (one, two) in [(2, 5), (5, 2), (3, 3)] {
            let all = [readable(&[one], Some(one), true), readable(&[two], Some(two), true)];
            let from = LogKey { server_id: 1, sequence: 0 };
            let start =
                Start { from, target: LogKey { sequence: 9, ..from }, lacks: Lacking::Nothing, late: None };
            let goes_on = |at| share_of(&all, at, csn(9), start).more;
            assert!(goes_on(0) || goes_on(1), "{one} {two}");
        }
    }
}
