//! The extent that an access log publishes: where its changes begin, and how far they go.
//!
//! **It says no more than it has**: a contextCSN is published once everything up to it is recorded, and a gap stays published
//! for ever.

use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::audit;
use larix_engine::csn::Csn;
use larix_engine::log::{self, CsnVector};
use larix_engine::write::Recording;
use larix_store::{Snapshot, Store};

use super::LogWriter;
use crate::access_log::{Recorder, SourceKind};
use crate::overlay_threads::OverlayHost;

/// From where on a log has changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Of the log's first entry: for each server that has records.
    pub(super) min_csns: CsnVector,
    /// See [`audit::lacks`].
    pub(super) lacks: CsnVector,
    /// See [`audit::left_out`].
    pub(super) left_out: CsnVector,
}

impl Extent {
    /// What was made up to here is not in the log.
    pub(super) fn lacks(&mut self, csns: impl IntoIterator<Item = Csn>) {
        for csn in csns {
            self.min_csns.note(csn);
            self.lacks.note(csn);
        }
    }

    /// These are passed, and the log does not have what replicas need of them.
    pub(super) fn leaves_out(&mut self, csns: impl IntoIterator<Item = Csn>) {
        for csn in csns {
            self.lacks([csn]);
            self.left_out.note(csn);
        }
    }

    /// There is a change of this server from here on.
    pub(super) fn note(&mut self, csn: Csn) {
        if self.min_csns.of(csn.server_id).is_none() {
            self.min_csns.note(csn);
        }
    }

    /// Writes down what has become of it; `before`: what stands there.
    pub(super) fn record(&self, before: Option<&Self>, recording: &mut Recording) {
        if before == Some(self) {
            return;
        }
        recording.marks.push(audit::lacks_row(&self.lacks));
        if !self.left_out.is_empty() {
            recording.marks.push(audit::left_out_row(&self.left_out));
        }
        let min_csns = self.min_csns.as_slice();
        recording.min_csns = (!min_csns.is_empty()).then(|| min_csns.to_vec());
    }
}

/// How far a source had come when its change log was so long. The access log has come as far once it has all of that: other
/// servers' changes come in any order while a refresh comes in.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) csns: Vec<Csn>,
    /// What of it came with entries as they are.
    whole: Vec<Csn>,
    pub(super) sequence: u64,
}

impl Context {
    pub(super) fn now<N: Snapshot>(snapshot: &N) -> Result<Self, Fault> {
        let sequence = log::last_number(snapshot)?;
        Ok(Self { csns: log::context_csns(snapshot)?, whole: log::whole_csns(snapshot)?, sequence })
    }
}

/// What is known of how far a source had come: after a round, what the log has not come to yet. While changes go on, the change log
/// may always be longer than what was read of it: of several such states the earliest is kept.
///
/// Answers what is kept. The log has come as far as the others say, and what came with entries as they are is missing from it.
pub(super) fn settle(
    contexts: impl IntoIterator<Item = Context>,
    has_come: impl Fn(&Context) -> bool,
    recording: &mut Recording,
    missed: &mut Vec<Csn>,
) -> Option<Context> {
    let mut waits = None;
    for context in contexts {
        if has_come(&context) {
            recording.context_csns.extend_from_slice(&context.csns);
            missed.extend_from_slice(&context.whole);
        } else {
            waits = waits.or(Some(context));
        }
    }
    waits
}

impl<H: OverlayHost> LogWriter<H> {
    /// Servers that were retired in all databases that are recorded, and not in the log yet.
    pub(super) fn retired(&self, recorders: &[Arc<Recorder<H>>]) -> Result<Vec<Csn>, Fault> {
        let mut everywhere: Option<Vec<Csn>> = None;
        for recorder in recorders {
            let Some((served, _)) = recorder.source.joined(&self.own) else { continue };
            let retired = log::retired_csns(&served.database().store().snapshot()?)?;
            let of = |csn: &Csn| retired.iter().find(|other| other.server_id == csn.server_id).copied();
            everywhere = Some(match everywhere {
                None => retired.clone(),
                Some(others) => others.iter().filter_map(|csn| Some(of(csn)?.min(*csn))).collect(),
            });
        }
        let snapshot = self.served()?.database().store().snapshot()?;
        let mut news = Vec::new();
        for csn in everywhere.unwrap_or_default() {
            if !log::is_retired(&snapshot, &csn)? {
                news.push(csn);
            }
        }
        Ok(news)
    }

    /// Looks at from where on the log has changes, or what it is to be made with.
    pub(super) fn open(
        &self,
        recorders: &[Arc<Recorder<H>>],
        recording: &mut Recording,
    ) -> Result<Extent, Fault> {
        let database = self.served()?.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        if let Some((min_csns, lacks)) = audit::min_csns(&view)?.zip(audit::lacks(&view)?) {
            let left_out = audit::left_out(&snapshot)?;
            let mut extent = Extent { min_csns: min_csns.into_iter().collect(), lacks, left_out };
            if extent.min_csns.is_empty() {
                extent.min_csns = log::context_csns(&snapshot)?.into_iter().collect();
            }
            return Ok(extent);
        }
        let mut csns: Vec<Csn> = Vec::new();
        if let Some(recorder) = recorders.first() {
            csns = match (&recorder.source.origin, recorder.source.joined(&self.own)) {
                (SourceKind::Configuration(source), _) => {
                    // Consumers of a database do not hear of what cn=config has of other server IDs.
                    let counts = |csn: &Csn| recorders.len() == 1 || csn.server_id == database.server_id();
                    source.context_csns().into_iter().filter(counts).collect()
                }
                (_, Some((served, _))) => log::context_csns(&served.database().store().snapshot()?)?,
                (SourceKind::Database(..), None) => Vec::new(),
            };
        }
        recording.container = Some(audit::container(&view.schema, &recording.suffix_text, &csns));
        recording.context_csns.clone_from(&csns);
        let mut extent = Extent::default();
        extent.lacks(csns);
        Ok(extent)
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;

    use super::*;

    fn csn(server_id: u16, time: i64) -> Csn {
        Csn { time: Timestamp(time), count: 0, server_id, modification: 0 }
    }

    fn recording() -> Recording {
        let schema = larix_schema::SchemaBuilder::system().build();
        Recording::new(schema.parse_dn("cn=log").unwrap(), "cn=log".to_owned())
    }

    #[test]
    fn a_log_has_come_as_far_as_what_it_has_read() {
        let context =
            |sequence, time| Context { csns: vec![csn(1, time)], whole: vec![csn(2, time)], sequence };
        let check = |contexts: &[(u64, i64)], reached: u64, times: &[i64], waits: Option<u64>| {
            let (mut recording, mut missed) = (recording(), Vec::new());
            let contexts = contexts.iter().map(|(sequence, time)| context(*sequence, *time));
            let has_come = |context: &Context| context.sequence <= reached;
            let left = settle(contexts, has_come, &mut recording, &mut missed);
            let of = |server_id| times.iter().map(|time| csn(server_id, *time)).collect::<Vec<_>>();
            assert_eq!((recording.context_csns, missed), (of(1), of(2)), "reached {reached}");
            assert_eq!(left.map(|context| context.sequence), waits, "reached {reached}");
        };
        check(&[], 7, &[], None);
        check(&[(7, 1)], 7, &[1], None);
        check(&[(7, 1)], 6, &[], Some(7));
        check(&[(5, 1), (9, 2)], 6, &[1], Some(9));
        check(&[(5, 1), (9, 2)], 4, &[], Some(5));
        check(&[(5, 1), (9, 2)], 9, &[1, 2], None);
    }

    #[test]
    fn an_extent_is_written_when_it_changes() {
        let mut extent = Extent::default();
        let check = |before: Option<&Extent>, extent: &Extent, marks: usize, min_csns: Option<Vec<Csn>>| {
            let mut recording = recording();
            extent.record(before, &mut recording);
            assert_eq!((recording.marks.len(), recording.min_csns), (marks, min_csns));
        };
        check(None, &extent, 1, None);
        check(Some(&Extent::default()), &extent, 0, None);
        extent.lacks([csn(1, 3)]);
        // What comes behind the first of a server changes nothing.
        extent.note(csn(1, 9));
        extent.note(csn(2, 4));
        check(Some(&Extent::default()), &extent, 1, Some(vec![csn(1, 3), csn(2, 4)]));
        assert_eq!(extent.lacks.as_slice(), [csn(1, 3)]);
        check(Some(&extent), &extent, 0, None);
        let before = extent.clone();
        extent.leaves_out([csn(1, 5)]);
        check(Some(&before), &extent, 2, Some(vec![csn(1, 5), csn(2, 4)]));
        assert_eq!(
            (extent.lacks.as_slice(), extent.left_out.as_slice()),
            (&[csn(1, 5)][..], &[csn(1, 5)][..])
        );
    }
}
