//! How far the configuration has come, for its replication.

use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;

use super::Config;

impl Config {
    /// The contextCSN of cn=config, and the CSNs of its entries.
    pub fn context_csns(&self) -> CsnVector {
        let entries = self.shared_entries();
        let values = entries.iter().flat_map(|e| e.values("contextCSN").iter().chain(e.values("entryCSN")));
        values.filter_map(|value| std::str::from_utf8(value).ok()?.parse::<Csn>().ok()).collect()
    }
}
