//! The directory of a schedule: the full backups in it, by their names.

use std::fs;
use std::path::{Path, PathBuf};

use larix_engine::time::Timestamp;

use super::take::PART;
use super::{Chain, MICROS};

/// What the directories of full backups begin with; the time is behind it.
pub(crate) const NAME: &str = "larix-";

/// Less than this is no clock that was wrong: names have seconds, and the second backup of a second is called after the next.
const AHEAD_MICROS: i64 = 3_600 * MICROS;

/// Behind the name of one that is being removed.
pub(crate) const REMOVED: &str = ".removed";

/// The directories of full backups, oldest first: their names have their times.
pub(crate) fn all(directory: &Path) -> Vec<PathBuf> {
    // A directory that cannot be read has no backup that could be used; the next one says why.
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let is_ours = |name: &str| {
        let time = name.strip_prefix(NAME).and_then(Timestamp::parse_generalized);
        time.is_some()
    };
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    let mut paths: Vec<PathBuf> = ours.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Directories of full backups that a killed server was making, or removing.
pub(crate) fn left(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let is_left = |name: &str| {
        let own = name.strip_suffix(PART).or_else(|| name.strip_suffix(REMOVED));
        own.and_then(|own| own.strip_prefix(NAME)).and_then(Timestamp::parse_generalized).is_some()
    };
    let left = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_left));
    left.map(|entry| entry.path()).collect()
}

/// The newest that can be read. One that is of later than [`AHEAD_MICROS`] from now was made while the clock was wrong, and says nothing of
/// how new the others are.
pub(crate) fn latest(directory: &Path, now: Timestamp) -> Option<Chain> {
    let is_of_later = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(NAME));
        name.and_then(Timestamp::parse_generalized).is_some_and(|time| is_ahead(time, now))
    };
    let all = all(directory);
    all.iter().rev().filter(|path| !is_of_later(path.as_path())).find_map(|path| Chain::read(path).ok())
}

/// Whether a clock said this that was set back since.
pub(crate) fn is_ahead(time: Timestamp, now: Timestamp) -> bool {
    time.0 > now.0.saturating_add(AHEAD_MICROS)
}
