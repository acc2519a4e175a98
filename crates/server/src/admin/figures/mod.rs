//! Figures for the charts of the overview: what the server counted, in ranges from ten minutes to thirty days.
//!
//! The page looks at the server's counters every two seconds, and adds what was counted to a ring of each range
//! ([`ring`]). The rings are in memory, and in files of a fixed size in the directory of the first database ([`files`]).

mod files;
mod ring;
mod sample;

use std::path::PathBuf;

use larix_engine::time::Clock as _;
use larix_engine::time::Monotonic;
use serde_json::{Value, json};

use crate::server::Server;
use crate::statistics::latency::BOUNDS;
use files::Files;
use ring::Ring;
use sample::{Counters, GROUPS};

/// Looks at the counters between two writes of the files: half a minute.
const LOOKS_PER_WRITE: u32 = 15;

/// A range of the overview: how much one sample covers, and how many samples there are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// In addresses, and the name of its file.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// One sample in words.
    pub(super) each: &'static str,
    seconds: u32,
    samples: u32,
}

/// All, from the shortest one on.
pub(super) const RANGES: [Range; 6] = [
    Range { name: "10m", title: "10 minutes", each: "2 seconds", seconds: 2, samples: 300 },
    Range { name: "1h", title: "1 hour", each: "10 seconds", seconds: 10, samples: 360 },
    Range { name: "6h", title: "6 hours", each: "1 minute", seconds: 60, samples: 360 },
    Range { name: "24h", title: "24 hours", each: "5 minutes", seconds: 300, samples: 288 },
    Range { name: "7d", title: "7 days", each: "30 minutes", seconds: 1_800, samples: 336 },
    Range { name: "30d", title: "30 days", each: "2 hours", seconds: 7_200, samples: 360 },
];

/// What was counted, in each range.
#[derive(Debug)]
pub(super) struct Figures {
    rings: Vec<Ring>,
    files: Option<Files>,
    last: Option<(Monotonic, Counters)>,
    looks: u32,
}

impl Range {
    /// The range of a name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        RANGES.iter().find(|range| range.name == name)
    }

    /// In milliseconds, all of it.
    fn span(&self) -> i64 {
        i64::from(self.seconds) * i64::from(self.samples) * 1_000
    }
}

impl Figures {
    /// With what was kept before. Files that cannot be used are named in the log.
    pub(super) fn open(server: &Server) -> Self {
        let mut rings: Vec<_> = RANGES.iter().map(Ring::new).collect();
        let files = folder(server).map(Files::new);
        if let Some(files) = &files {
            for ring in &mut rings {
                if let Some(note) = files.read(ring) {
                    server.log.notice(format_args!("{note}"));
                }
            }
        }
        Self { rings, files, last: None, looks: 0 }
    }

    /// Looks at the counters, and writes the files when it is time.
    pub(super) fn look(&mut self, server: &Server) {
        let (now, counters) = (server.clock.monotonic(), Counters::read(server));
        if let Some((before, earlier)) = &self.last {
            let milliseconds = now.0.saturating_sub(before.0) / 1_000_000;
            let sample = counters.since(earlier, server.now().0 / 1_000, milliseconds);
            for ring in &mut self.rings {
                ring.add(&sample);
            }
        }
        self.last = Some((now, counters));
        self.looks += 1;
        if self.looks >= LOOKS_PER_WRITE {
            self.write(server);
        }
    }

    /// Writes what is not in the files yet.
    pub(super) fn write(&mut self, server: &Server) {
        self.looks = 0;
        // Without a listener nothing was counted, and the folder stays as it is.
        if self.last.is_none() {
            return;
        }
        let Some(files) = &mut self.files else { return };
        if let Some(note) = files.write(&mut self.rings) {
            server.log.notice(format_args!("{note}"));
        }
    }

    /// The samples of a range that begin at `since` or later, in milliseconds since 1970.
    pub(super) fn to_json(&self, range: &Range, since: i64, now: i64) -> Value {
        let ring = self.rings.iter().find(|ring| ring.range() == range);
        let samples: Vec<_> = ring
            .into_iter()
            .flat_map(|ring| ring.between(since.max(now.saturating_sub(range.span())), now))
            .map(sample::Sample::to_json)
            .collect();
        json!({
            "now": now,
            "seconds": range.seconds,
            "span": range.span(),
            "groups": GROUPS.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            "bounds": BOUNDS.iter().map(|nanoseconds| *nanoseconds as f64 / 1e6).collect::<Vec<_>>(),
            "samples": samples,
        })
    }
}

/// Where the files are: beside those of the first database in LMDB. An administrator who empties that directory by `rm *`, as with slapd,
/// takes them along.
fn folder(server: &Server) -> Option<PathBuf> {
    let config = server.config();
    let first = config.databases.iter().find(|database| database.kind.is_in_lmdb())?;
    first.kind.directory().map(PathBuf::from)
}
