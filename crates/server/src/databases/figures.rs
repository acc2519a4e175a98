//! What stored databases say of themselves: indexes, pages, readers.

use larix_engine::index::IndexStatus;

use larix_store::Statistics;

use super::Databases;
use crate::virtual_entries::monitor::StoreFigures;

impl Databases {
    /// The indexes of the database that holds `base`, and what they were used for. Who may see this is the caller's
    /// business.
    pub(crate) fn index_status(&self, base: &str) -> Vec<IndexStatus> {
        let found = self.schema().parse_dn(base).ok().and_then(|dn| self.directory.select(&dn));
        found.map(|served| served.index_status()).unwrap_or_default()
    }
}

/// A store's statistics in cn=Monitor's terms.
pub(super) fn of_store(store: &Statistics) -> StoreFigures {
    let entries = store.tables.iter().find(|table| table.name == "entries").map_or(0, |table| table.records);
    StoreFigures {
        pages_max: store.map_bytes.checked_div(store.page_bytes).unwrap_or(0),
        pages_used: store.pages_used,
        pages_free: store.pages_free,
        readers_max: store.max_readers.into(),
        readers_used: store.readers.into(),
        oldest_read: store.oldest_read,
        entries,
    }
}
