//! The result, as text and as JSON (`docs/guide/sizing.md` has the fields).

use larix_load::report::{bytes, count};
use serde_json::{Value, json};

use super::LoadFigures;
use super::estimate::Estimate;
use super::operate::OperationFigures;
use super::sample::Sample;

/// The room for pages that changes leave free: the disk of a directory that has been rewritten by online changes is
/// that much of the loaded one's.
const AFTER_CHANGES: f64 = 1.5;

pub(super) struct Sizing<'a> {
    pub(super) sample: &'a Sample,
    pub(super) whole: &'a LoadFigures,
    pub(super) estimate: &'a Estimate,
    pub(super) operated: Option<&'a OperationFigures>,
}

impl Sizing<'_> {
    pub(super) fn to_text(&self) -> String {
        let estimate = self.estimate;
        let mut out = format!(
            "sample: {} entries, {} of LDIF, loaded in {:.1} s\n\n",
            count(self.sample.entries as f64),
            bytes(self.whole.ldif_bytes as f64),
            self.whole.seconds
        );
        let head = format!("for {}", count(estimate.entries as f64));
        out += &format!(
            "{:<12} {:>12} {:>12} {:>16} {head:>18}\n",
            "table", "records", "bytes", "bytes an entry"
        );
        for table in estimate.tables.iter().filter(|table| table.records > 0) {
            out += &format!(
                "{:<12} {:>12} {:>12} {:>16.1} {:>18}\n",
                table.name,
                count(table.records as f64),
                bytes(table.bytes as f64),
                table.bytes_an_entry,
                bytes(table.estimated)
            );
        }
        out += &format!(
            "\ndisk, after a load:           {:>10}   (the sample takes {})\n",
            bytes(estimate.disk),
            bytes(self.whole.disk_bytes as f64)
        );
        out += &format!(
            "disk, with room for changes:  {:>10}   ({AFTER_CHANGES} times)\n",
            bytes(estimate.disk * AFTER_CHANGES)
        );
        let own = self.operated.map_or(0, |operated| operated.own_bytes) as f64;
        out += &format!("memory, all data at hand:     {:>10}\n", bytes(own + estimate.data()));
        out += &format!(
            "memory, index and tree only:  {:>10}   (each entry that is read may wait for the disk)\n",
            bytes(own + estimate.paths())
        );
        if let Some(operated) = self.operated {
            out += &operations(operated);
        }
        out + &self.method()
    }

    /// How the figures were found.
    fn method(&self) -> String {
        let (half, whole) = self.estimate.from;
        let mut out = format!(
            "\nHow: {} of the entries and all {} were loaded; each table follows the line through its two sizes.\n",
            count(half as f64),
            count(whole as f64)
        );
        if self.estimate.unlike {
            out += "WARNING: the sample is too small: records were packed with a dictionary in the whole and not in the half, so\n\
                    that the line through both is too flat. Take twice as many entries.\n";
        }
        if self.estimate.entries > whole.saturating_mul(1_000) {
            out += "That is far from the sample: a larger one gives a surer figure.\n";
        }
        out += "Take the sample from all kinds of entries of the directory, with its real index lines.\n";
        if let Some(operated) = self.operated {
            out += &format!(
                "Rates: {}. As the root DN, without access rules, on this machine together with the client.\n\
                 Memory: {} of the process's own after the load, and the data's pages, which the system gives back under pressure.\n",
                operated.how,
                bytes(operated.own_bytes as f64)
            );
        }
        out.trim_end().to_owned()
    }

    pub(super) fn to_json(&self) -> Value {
        let estimate = self.estimate;
        let tables = estimate.tables.iter().map(|table| {
            json!({
                "name": table.name,
                "records": table.records,
                "bytes": table.bytes,
                "bytes_an_entry": table.bytes_an_entry,
                "estimated_bytes": table.estimated.round(),
            })
        });
        let own = self.operated.map_or(0, |operated| operated.own_bytes) as f64;
        json!({
            "format": 1,
            "sample": {
                "entries": self.whole.entries,
                "half_entries": estimate.from.0,
                "ldif_bytes": self.whole.ldif_bytes,
                "disk_bytes": self.whole.disk_bytes,
                "load_seconds": self.whole.seconds,
            },
            "entries": estimate.entries,
            "sample_too_small": estimate.unlike,
            "tables": tables.collect::<Vec<_>>(),
            "disk_bytes": estimate.disk.round(),
            "disk_bytes_with_changes": (estimate.disk * AFTER_CHANGES).round(),
            "memory_bytes": (own + estimate.data()).round(),
            "memory_bytes_index_and_tree": (own + estimate.paths()).round(),
            "operations": self.operated.map(|operated| {
                let rates = operated.rates.iter().map(|rate| json!({
                    "name": rate.name,
                    "per_cpu_second": rate.a_core,
                    "per_second": rate.a_second,
                    "p99_us": rate.p99_us,
                    "guide_per_core": rate.guide,
                    "invalid": rate.invalid,
                }));
                json!({
                    "how": operated.how,
                    "process_bytes": operated.own_bytes,
                    "mapped_bytes": operated.mapped_bytes,
                    "rates": rates.collect::<Vec<_>>(),
                })
            }),
        })
    }
}

fn operations(operated: &OperationFigures) -> String {
    let mut out = format!(
        "\n{:<16} {:>22} {:>14} {:>10} {:>26}\n",
        "operations", "a core and second", "a second here", "p99 us", "OpenLDAP's sizing guide"
    );
    for rate in &operated.rates {
        out += &format!(
            "{:<16} {:>22} {:>14} {:>10} {:>26}\n",
            rate.name,
            count(rate.a_core),
            count(rate.a_second),
            count(rate.p99_us as f64),
            count(rate.guide)
        );
        if let Some(why) = &rate.invalid {
            out += &format!("INVALID: {}: {why}\n", rate.name);
        }
    }
    out
}
