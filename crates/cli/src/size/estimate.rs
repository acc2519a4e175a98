//! From two sizes to any.

use super::LoadFigures;
use larix_store::TableStatistics;

/// Bytes of one table: at the sample's size, for one more entry, and at the size asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Of one more entry, from the difference of the two sizes.
    pub(super) bytes_an_entry: f64,
    pub(super) estimated: f64,
}

/// What the directory will take.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Estimate {
    /// The entries that were asked for.
    pub(super) entries: u64,
    /// Entries of the two samples.
    pub(super) from: (u64, u64),
    pub(super) tables: Vec<Table>,
    /// Bytes on disk right after a load.
    pub(super) disk: f64,
    /// Only the whole sample was large enough for a dictionary of its records: the two sizes cannot be compared.
    pub(super) unlike: bool,
}

/// Tables that do not grow with the entries: facts, dictionaries, the names of attributes.
const CONSTANT: [&str; 2] = ["meta", "attributes"];

impl Estimate {
    pub(super) fn new(half: &LoadFigures, whole: &LoadFigures, entries: u64) -> Self {
        let line = |half_bytes: u64, whole_bytes: u64| {
            Line::through((half.entries, half_bytes), (whole.entries, whole_bytes))
        };
        let page = whole.statistics.page_bytes;
        let tables = whole.statistics.tables.iter().map(|table| {
            let before = half.statistics.tables.iter().find(|other| other.name == table.name);
            let mut line = line(before.map_or(0, |before| bytes(before, page)), bytes(table, page));
            if CONSTANT.contains(&table.name) {
                line.slope = 0.0;
            }
            Table {
                name: table.name,
                records: table.records,
                bytes: bytes(table, page),
                bytes_an_entry: line.slope,
                estimated: line.at(entries),
            }
        });
        let tables: Vec<Table> = tables.collect();
        let growth: f64 = tables.iter().map(|table| table.estimated - table.bytes as f64).sum();
        let facts = |loaded: &LoadFigures| {
            let table = loaded.statistics.tables.iter().find(|table| table.name == "meta");
            table.map_or(0, |table| bytes(table, page))
        };
        Self {
            entries,
            from: (half.entries, whole.entries),
            tables,
            disk: (whole.disk_bytes as f64 + growth).max(0.0),
            unlike: facts(half) != facts(whole),
        }
    }

    /// All tables together, at the size asked for.
    pub(super) fn data(&self) -> f64 {
        self.tables.iter().map(|table| table.estimated).sum()
    }

    /// The same without the entries themselves: what every search goes through.
    pub(super) fn paths(&self) -> f64 {
        let paths = self.tables.iter().filter(|table| ["tree", "index"].contains(&table.name));
        paths.map(|table| table.estimated).sum()
    }
}

fn bytes(table: &TableStatistics, page: u64) -> u64 {
    (table.branch_pages + table.leaf_pages + table.overflow_pages) * page
}

/// Bytes over entries.
#[derive(Clone, Copy, Debug)]
struct Line {
    entries: u64,
    bytes: u64,
    slope: f64,
}

impl Line {
    /// A table that got smaller with more entries (a page more or less) is taken as one that stays.
    fn through(low: (u64, u64), high: (u64, u64)) -> Self {
        let entries = high.0.saturating_sub(low.0).max(1);
        let slope = high.1.saturating_sub(low.1) as f64 / entries as f64;
        Self { entries: high.0, bytes: high.1, slope }
    }

    fn at(&self, entries: u64) -> f64 {
        (self.bytes as f64 + (entries as f64 - self.entries as f64) * self.slope).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_grow_as_between_two_samples() {
        for (low, high, at, expected) in [
            ((100, 1_000), (200, 2_000), 1_000, 10_000.0),
            ((100, 1_500), (200, 2_000), 1_000, 6_000.0),
            ((100, 4_096), (200, 4_096), 1_000_000, 4_096.0),
            ((100, 8_192), (200, 4_096), 1_000_000, 4_096.0),
            ((100, 1_000), (200, 2_000), 50, 500.0),
            ((100, 0), (200, 2_000), 1, 0.0),
        ] {
            let found = Line::through(low, high).at(at);
            assert!((found - expected).abs() < 1e-6, "{low:?} {high:?} at {at}: {found}");
        }
    }
}
