//! Access logs: a server's changes as records in a database of their own, and the lines that follow these (delta-syncrepl).

use std::sync::{Arc, mpsc};

use larix_engine::audit;
use larix_engine::csn::Csn;
use larix_engine::log::{self, Hold, LogKey, LoggedChange};
use larix_engine::replica::EntryPlaces;
use larix_engine::tables::META;
use larix_engine::write::Recording;
use larix_proto::control::SyncMode;
use larix_proto::{FilterBuf, Scope};
use larix_replication::consumer::{End, Line, Request};
use larix_replication::delta;
use larix_store::{Snapshot as _, Store as _};

use crate::node::{Node, SUFFIX};

/// The suffix of an access log.
pub(crate) const LOG: &str = "cn=log";
const MARK: &[u8] = b"access-log/dc=example,dc=com";

/// How a line that follows an access log stands.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// The next session asks for the entries themselves.
    plain: bool,
    /// The session under way is one with the log.
    pub(crate) logged: bool,
    /// A change of the log was refused.
    pub(crate) refused: bool,
}

impl Side {
    /// What the next session asks for.
    pub(crate) fn request(&mut self, line: &Line, full: bool, known: &[Csn]) -> Request {
        self.logged = !full && !known.is_empty() && !self.plain;
        match self.logged {
            true => Request {
                base: LOG.to_owned(),
                scope: Scope::Subtree,
                filter: FilterBuf::parse(delta::FILTER).unwrap(),
                attributes: vec!["*".to_owned(), "+".to_owned()],
                logged: true,
                values: false,

                ..line.request()
            },
            // Behind it comes what the log has.
            false => Request { mode: SyncMode::RefreshOnly, ..line.request() },
        }
    }

    /// From the log to the entries, when the log does not lead on from here, and back when they were refreshed. Answers whether
    /// the next session is on the other side.
    pub(crate) fn changes(&mut self, end: Option<&End>) -> bool {
        let refused = std::mem::take(&mut self.refused);
        let other = match (self.logged, end) {
            (true, Some(End::FullRefresh | End::NotLogged(_))) => true,
            (true, _) if refused => true,
            (false, Some(End::Poll)) => false,
            _ => return false,
        };
        self.plain = other;
        true
    }
}

impl Node {
    /// Records changes that are not in the access log yet, so many at most.
    pub(crate) fn record(&self, most: usize) {
        let Some(access_log) = self.access_log() else { return };
        let recorded = access_log.database();
        let suffix = recorded.settings().suffixes.first().cloned().unwrap();
        let mut recording = Recording::new(suffix.normal, suffix.text);
        let snapshot = recorded.store().snapshot().unwrap();
        let view = recorded.view(&snapshot).unwrap();
        let from = snapshot.get(META, MARK).unwrap().and_then(|mark| LogKey::from_bytes(&mark));
        let from = from.unwrap_or(LogKey { server_id: self.id, sequence: 0 });
        let known = log::context_csns(&snapshot).unwrap();
        let lacks = audit::lacks(&view).unwrap();
        let is_new = lacks.is_none();
        let mut lacks = lacks.unwrap_or_default();
        let before = lacks.clone();
        drop(view);
        drop(snapshot);
        let database = self.database();
        let snapshot = database.store().snapshot().unwrap();
        let view = database.view(&snapshot).unwrap();
        let mut places = database.settings().merges_records.then(EntryPlaces::default);
        let (mut reached, mut count, mut ended) = (from, 0, true);
        log::visit_stored_after(&snapshot, from, &mut |key, mut record, _| {
            if count == most {
                ended = false;
                return false;
            }
            (reached, count) = (key, count + 1);
            if record.dn.is_empty() && record.absent {
                record.dn = format!("entryUUID={},{SUFFIX}", record.entry_uuid);
            }
            let is_empty = matches!(record.as_sent().1, LoggedChange::Modify(changes) if changes.is_empty());
            if !record.local && !is_empty {
                let place = places.as_mut().and_then(|places| places.of_record(&view, &record).unwrap());
                let now = record.csn.time;
                recording.records.push(audit::of_change(&self.schema, &record, place.as_ref(), None, now));
            }
            true
        })
        .unwrap();
        if ended {
            recording.context_csns = log::context_csns(&snapshot).unwrap();
            lacks.extend(log::whole_csns(&snapshot).unwrap());
        }
        drop(view);
        drop(snapshot);
        if is_new {
            recording.container = Some(audit::container(&self.schema, LOG, &[]));
        }
        if is_new || lacks != before {
            recording.marks.push(audit::lacks_row(&lacks));
        }
        let news = recording.context_csns.iter().any(|csn| !known.contains(csn));
        if count > 0 {
            recording.marks.push((MARK.to_vec(), reached.to_bytes().to_vec()));
        }
        if !(news || is_new || !recording.marks.is_empty()) {
            return;
        }
        let (sender, receiver) = mpsc::channel();
        let done = Box::new(move |outcome| sender.send(outcome).unwrap());
        access_log.record(recording, done);
        let outcome = receiver.recv().unwrap();
        assert!(outcome.result.is_success(), "{outcome:?}");
        if let Some(reader) = &*self.log_reader.borrow() {
            reader.needs_from(reached.sequence + 1);
        }
    }

    /// Keeps changes in the change log until they are recorded.
    pub(crate) fn keep_for_log(&self) {
        let Some(access_log) = self.access_log() else { return };
        let snapshot = access_log.database().store().snapshot().unwrap();
        let mark = snapshot.get(META, MARK).unwrap().and_then(|mark| LogKey::from_bytes(&mark));
        let from = mark.map_or(1, |mark| mark.sequence + 1);
        let reader = self.database().following().join(Arc::new(|| {}), from, Hold::Unbounded);
        self.log_reader.replace(Some(reader));
    }
}
