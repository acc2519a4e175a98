//! When the writer makes a dictionary for new records: each time that a database has doubled.

use std::sync::Arc;

use larix_store::Snapshot;

use crate::catalog::CatalogEdit;
use crate::entry::EntryId;
use crate::entry::codec::{SAMPLE_RECORDS, train};
use crate::fault::Fault;
use crate::tables::ENTRIES;

/// Records that a running server makes a dictionary of. Changes wait meanwhile, so that they are half as many as a load takes.
const SAMPLE_SERVING: usize = SAMPLE_RECORDS / 2;

/// Entry ids at which the first dictionary is made. The writer pauses for it.
pub(crate) const FIRST: u64 = 2_048;

/// The highest entry id at which a dictionary is to be made next, after this one.
pub(crate) fn next_after(last_entry_id: u64) -> u64 {
    let mut next = FIRST;
    while next <= last_entry_id {
        next = next.saturating_mul(2);
    }
    next
}

/// Makes a dictionary of a sample of the newer half, and takes it if it is better for them than the one there is.
pub(crate) fn renew_dictionary<V: Snapshot>(
    snapshot: &V,
    catalog: &mut CatalogEdit,
    last_entry_id: u64,
) -> Result<(), Fault> {
    let dictionaries = catalog.catalog().dictionaries();
    let first = last_entry_id / 2 + 1;
    let step = ((last_entry_id - first + 1) / SAMPLE_SERVING as u64).max(1) as usize;
    let mut sample = Vec::with_capacity(SAMPLE_SERVING);
    for id in (first..=last_entry_id).step_by(step).map(EntryId) {
        if let Some(stored) = snapshot.get(ENTRIES, &id.to_bytes())? {
            sample.push(dictionaries.unpacked(snapshot, id, stored)?.to_vec());
        }
    }
    if let Some(dictionary) = train(&sample, dictionaries.last().map(|dictionary| &**dictionary)) {
        catalog.add_dictionary(Arc::new(dictionary));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doublings() {
        for (last, next) in [(0, 2_048), (2_047, 2_048), (2_048, 4_096), (200_000, 262_144)] {
            assert_eq!(next_after(last), next, "{last}");
        }
        assert_eq!(next_after(u64::MAX - 1), u64::MAX);
    }
}
