//! `larix backup` and `larix restore`: databases copied while the server runs, with checksums, and put back.
//!
//! A backup is a directory: a store for each database, the configuration as LDIF, and `backup.json`, which is written
//! last and says what belongs to it. Each database is one snapshot, consistent in itself.

mod manifest;
mod restore;
mod take;

pub(super) use restore::main as restore;
pub(super) use take::main as take;

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use sha2::{Digest, Sha256};

/// The manifest's name in a backup.
const MANIFEST: &str = "backup.json";
/// The configuration's.
const CONFIGURATION: &str = "config.ldif";
/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(500);
const CHUNK: usize = 1 << 20;

/// Reads a file, hands its chunks over, and answers its length and SHA-256 in hexadecimal digits.
fn digest(path: &Path, mut chunk: impl FnMut(&[u8]) -> io::Result<()>) -> anyhow::Result<(u64, String)> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let length = file.metadata().map(|metadata| metadata.len()).unwrap_or(0);
    let mut progress = Progress::new(path, length);
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let count = file.read(&mut buffer).with_context(|| format!("cannot read {}", path.display()))?;
        let read = buffer.get(..count).unwrap_or(&[]);
        if read.is_empty() {
            break;
        }
        hash.update(read);
        chunk(read).with_context(|| format!("copying {}", path.display()))?;
        bytes += count as u64;
        progress.show(bytes);
    }
    progress.end();
    Ok((bytes, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Makes what was written to a directory and the names in it survive a loss of power.
fn sync_directory(path: &Path) -> anyhow::Result<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .with_context(|| format!("cannot sync {}", path.display()))
}

/// One line on a terminal that tells how far a file is.
struct Progress<'p> {
    path: &'p Path,
    length: u64,
    shown: Option<Instant>,
    is_terminal: bool,
}

impl<'p> Progress<'p> {
    fn new(path: &'p Path, length: u64) -> Self {
        Self { path, length, shown: None, is_terminal: io::stderr().is_terminal() }
    }

    #[expect(clippy::disallowed_methods, reason = "how often a person is told something")]
    fn show(&mut self, bytes: u64) {
        let now = Instant::now();
        let due = self.shown.is_none_or(|shown| now.duration_since(shown) >= SHOW_EVERY);
        if self.is_terminal && due {
            self.shown = Some(now);
            let percent = (bytes * 100).checked_div(self.length).unwrap_or(100);
            let mut out = io::stderr().lock();
            // A terminal that takes no progress misses nothing else.
            let _ = write!(out, "\r{}: {} MiB, {percent} %\x1b[K", self.path.display(), bytes >> 20);
            let _ = out.flush();
        }
    }

    fn end(&self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
