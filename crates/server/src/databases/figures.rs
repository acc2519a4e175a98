//! What can be said of a stored database beside its entries: how it would answer a filter, and how its indexes are.

use larix_engine::Fault;
use larix_engine::index::IndexStatus;
use larix_engine::plan::Plan;
use larix_engine::search::filter::Filter;
use larix_proto::Filter as RequestFilter;
use larix_store::Store as _;

use super::Databases;

impl Databases {
    /// The plan for a filter below `base`, step by step; `None` where no stored database is asked. What it finds is not
    /// looked at, and no access rule is asked: who may see this is the caller's business.
    pub fn explain(&self, base: &str, filter: RequestFilter<'_>) -> Option<String> {
        let dn = self.schema().parse_dn(base).ok()?;
        let database = self.directory.select(&dn)?.database();
        let plan = || -> Result<String, Fault> {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            let filter = Filter::new(&view.schema, &view.catalog, view.schema.bind_filter(filter));
            Ok(Plan::new(&snapshot, &view.catalog, &filter)?.explain(&view.catalog).to_string())
        };
        plan().ok()
    }

    /// The indexes of the database that holds `base`, and what they were used for.
    pub fn index_status(&self, base: &str) -> Vec<IndexStatus> {
        let found = self.schema().parse_dn(base).ok().and_then(|dn| self.directory.select(&dn));
        found.map(|served| served.index_status()).unwrap_or_default()
    }
}
