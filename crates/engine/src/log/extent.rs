//! The times of the first and the last record in the change log.

use larix_store::{Direction, KeyRange, Snapshot};

use super::{LogHead, positions};
use crate::fault::Fault;
use crate::tables::LOG;
use crate::time::Timestamp;

/// The times of the oldest and the newest record; `None` without any.
pub fn times<S: Snapshot>(snapshot: &S) -> Result<Option<(Timestamp, Timestamp)>, Fault> {
    let mut extent: Option<(Timestamp, Timestamp)> = None;
    for position in positions(snapshot)? {
        let prefix = position.server_id.to_be_bytes();
        for direction in [Direction::Forward, Direction::Backward] {
            let Some(row) = snapshot.scan(LOG, KeyRange::prefix(&prefix), direction)?.next() else {
                continue;
            };
            let (_, record) = row?;
            let head = LogHead::of(&record).ok_or(Fault::Damaged { what: "a record of the change log" })?;
            let (first, last) = extent.unwrap_or((head.time, head.time));
            extent = Some((first.min(head.time), last.max(head.time)));
        }
    }
    Ok(extent)
}
