//! The folder of a comparison: LDIF, databases, configurations and logs, with room for them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::Options;
use crate::peer::Guard;
use crate::scenario::{Content, Scenario};

/// Bytes that a database takes for each of LDIF, at most: slapd needs some three, and online changes leave holes.
const DISK_FACTOR: u64 = 6;
/// Room for what is small.
const ROOM_MIN: u64 = 48 << 20;
/// The file system that is memory; from `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Removed with all its content when dropped, unless the caller keeps it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
    guard: Guard,
}

/// LDIF that was written once for all.
#[derive(Clone, Debug)]
pub(super) struct Written {
    content: Content,
    pub(super) file: PathBuf,
    /// Entries in it, those above the leaves included.
    pub(super) entries: u64,
}

impl Folder {
    pub(super) fn create(directory: &Path, keep: bool, guard: &Guard) -> anyhow::Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let directory =
            directory.canonicalize().with_context(|| format!("cannot resolve {}", directory.display()))?;
        let mut number = 0_u32;
        let path = loop {
            let path = directory.join(format!("larix-compare-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => number += 1,
                Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
            }
        };
        guard.set_folder((!keep).then(|| path.clone()));
        Ok(Self { path, keep, guard: guard.clone() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    /// The file system has less room than the scenario takes.
    pub(super) fn check_room(&self, scenario: &Scenario, options: &Options) -> anyhow::Result<()> {
        let stages = scenario.stages.iter().map(|stage| {
            let databases = stage.directory.databases.iter();
            databases.map(|(_, content)| content.leaves() * content.bytes_each()).sum::<u64>()
        });
        let ldif = stages.max().unwrap_or(0);
        let databases = if options.load_once || options.keep { options.peers.len() as u64 } else { 1 };
        let needed = ROOM_MIN + ldif * (1 + DISK_FACTOR * databases);
        let stat = rustix::fs::statvfs(&self.path)
            .with_context(|| format!("cannot ask for the room in {}", self.path.display()))?;
        room(
            needed,
            stat.f_bavail.saturating_mul(stat.f_frsize),
            &options.directory,
            scenario,
            options.entries,
        )
    }

    /// What a reader must know of the place.
    pub(super) fn note(&self) -> Option<String> {
        let stat = rustix::fs::statfs(&self.path).ok()?;
        (stat.f_type as u64 == TMPFS_MAGIC).then(|| {
            format!(
                "The databases lay in memory ({} is a tmpfs): a sync costs nothing there, and durable changes are not \
                 durable.",
                self.path.parent().unwrap_or(&self.path).display()
            )
        })
    }

    /// Writes every content of the scenario once.
    pub(super) fn write_contents(&self, scenario: &Scenario, seed: u64) -> anyhow::Result<Vec<Written>> {
        let mut written: Vec<Written> = Vec::new();
        for (_, content) in scenario.stages.iter().flat_map(|stage| &stage.directory.databases) {
            if written.iter().any(|known| known.content == *content) {
                continue;
            }
            let file = self.path.join(format!("data-{}.ldif", written.len()));
            let create = || format!("cannot write {}", file.display());
            let mut out = Counting {
                entries: 0,
                matched: Some(0),
                out: BufWriter::with_capacity(1 << 20, File::create(&file)?),
            };
            content.write_ldif(seed, &mut out).and_then(|()| out.flush()).with_context(create)?;
            written.push(Written { content: content.clone(), entries: out.entries, file });
        }
        Ok(written)
    }
}

impl Written {
    pub(super) fn find<'a>(all: &'a [Self], content: &Content) -> anyhow::Result<&'a Self> {
        all.iter().find(|written| written.content == *content).context("data that was never generated")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed is not worth hiding the outcome for.
            let _ = fs::remove_dir_all(&self.path);
        }
        self.guard.set_folder(None);
    }
}

fn room(needed: u64, free: u64, place: &Path, scenario: &Scenario, entries: u64) -> anyhow::Result<()> {
    if free >= needed {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    bail!(
        "scenario {} with {entries} entries may need {:.2} GiB, and {} has {:.2} GiB free: give --directory with more \
         room, or fewer --entries",
        scenario.name,
        gib(needed),
        place.display(),
        gib(free)
    )
}

/// Bytes that the files below a folder take on the disk.
pub(super) fn disk(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        // A file that is removed meanwhile takes nothing.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { disk(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// Counts the entries of LDIF that passes: lines that begin with `dn: `.
struct Counting<W> {
    entries: u64,
    /// How much of `dn: ` this line began with; none once it is another line.
    matched: Option<usize>,
    out: W,
}

impl<W: Write> Counting<W> {
    const MARK: &'static [u8] = b"dn: ";
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.matched = match self.matched {
                _ if *byte == b'\n' => Some(0),
                Some(matched) if Self::MARK.get(matched) == Some(byte) => Some(matched + 1),
                _ => None,
            };
            self.entries += u64::from(self.matched == Some(Self::MARK.len()));
        }
        self.out.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Size;

    #[test]
    fn too_little_room_is_said_before_anything_is_written() {
        let scenario = Scenario::new("mail", Size::SMOKE).unwrap();
        let error = room(3 << 30, 1 << 30, Path::new("/small"), &scenario, 7).unwrap_err().to_string();
        for part in ["mail with 7 entries", "3.00 GiB", "/small has 1.00 GiB", "--directory"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(room(1, 1, Path::new("/small"), &scenario, 7).is_ok());
    }

    #[test]
    fn the_folder_goes_with_its_owner_unless_it_is_kept() {
        // Its own: a free name goes to the next folder that is made.
        let place = tempfile::tempdir().unwrap();
        for keep in [false, true] {
            let guard = Guard::default();
            let folder = Folder::create(place.path(), keep, &guard).unwrap();
            let path = folder.path().to_owned();
            fs::write(path.join("a"), "b").unwrap();
            assert!(disk(&path).unwrap() >= 1);
            drop(folder);
            assert_eq!(path.exists(), keep);
        }
    }

    #[test]
    fn written_entries_are_counted() {
        let scenario = Scenario::new("subscribers", Size::SMOKE).unwrap();
        let guard = Guard::default();
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(place.path(), false, &guard).unwrap();
        let written = folder.write_contents(&scenario, 1).unwrap();
        assert_eq!(written.len(), 3);
        for one in &written {
            let text = fs::read_to_string(&one.file).unwrap();
            let lines = text.lines().filter(|line| line.starts_with("dn: ")).count();
            assert_eq!(one.entries, lines as u64);
            assert_eq!(one.entries, one.content.leaves() + 1);
        }
    }
}
