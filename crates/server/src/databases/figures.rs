//! Figures of stored databases: indexes, pages, readers.

use larix_engine::index::IndexStatus;

use super::Databases;

impl Databases {
    /// The indexes of the database that holds `base`, and what they were used for. The caller must
    /// check that the requester may see this.
    pub(crate) fn index_status(&self, base: &str) -> Vec<IndexStatus> {
        let found = self.schema().parse_dn(base).ok().and_then(|dn| self.stored(&dn));
        found.map(|served| served.index_status()).unwrap_or_default()
    }
}
