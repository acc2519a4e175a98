//! How far lines have come that bring parts of one database: the contextCSN is that of all of them.

use larix_store::{Direction, KeyRange, Snapshot, WriteSet};

use super::CsnVector;
use crate::csn::{Csn, SERVER_ID_MAX};
use crate::fault::Fault;
use crate::tables::META;

fn prefix(line: &str) -> String {
    format!("part-csn/{line}/")
}

/// Notes that the line of this name has brought everything of its part up to `csn` of that server.
pub(crate) fn put_part_csn(set: &mut WriteSet, line: &str, csn: &Csn) {
    let key = format!("{}{:03x}", prefix(line), csn.server_id.min(SERVER_ID_MAX));
    set.put(META, key.as_bytes(), csn.text().into_bytes());
}

/// How far the line of this name has come; nothing if it was never complete.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn part_csns<S: Snapshot>(snapshot: &S, line: &str) -> Result<CsnVector, Fault> {
    let prefix = prefix(line);
    let rows = snapshot.scan(META, KeyRange::prefix(prefix.as_bytes()), Direction::Forward)?;
    let read = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<Csn>().ok();
    rows.map(|row| read(&row?.1).ok_or(Fault::Damaged { what: "a CSN of a part of the database" })).collect()
}
