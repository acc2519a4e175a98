//! A file for each ring: a header, then every place in its order. A file never grows.
//!
//! Nothing waits for the disk: what the system has not written when the machine loses its power is lost from the charts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::Range;
use super::ring::Ring;
use super::sample::{SAMPLE_BYTES, Sample, checksum};

const MAGIC: &[u8; 8] = b"larixfig";
/// Of the format.
const VERSION: u32 = 1;
/// The header takes as much as a sample.
const HEADER_BYTES: usize = SAMPLE_BYTES;
/// A crash damages the one sample that is being written. A file with more damaged ones is not used.
const DAMAGED_MAX: usize = 1;

/// The folder with the files, and others' files.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// The last write failed, and the log says so.
    failing: bool,
}

/// Why a file cannot be used.
enum Unusable {
    Unreadable(io::Error),
    Damaged(&'static str),
}

impl Files {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, failing: false }
    }

    /// Fills a ring from its file, if there is one. A damaged file is set aside. What the log should say.
    pub(super) fn read(&self, ring: &mut Ring) -> Option<String> {
        let path = self.path(ring.range());
        let why = match fill(ring, &path) {
            Ok(()) => return None,
            Err(Unusable::Unreadable(error)) if error.kind() == ErrorKind::NotFound => return None,
            Err(Unusable::Unreadable(error)) => error.to_string(),
            Err(Unusable::Damaged(why)) => why.to_owned(),
        };
        ring.forget();
        let aside = path.with_extension("damaged");
        let path = path.display();
        Some(match fs::rename(self.path(ring.range()), &aside) {
            Ok(()) => format!(
                "the overview's file {path} cannot be used ({why}): it is {} now, and a new one begins",
                aside.display()
            ),
            Err(error) => format!(
                "the overview's file {path} cannot be used ({why}) nor renamed ({error}): remove it, and start the server anew"
            ),
        })
    }

    /// Writes what changed. What the log should say: the first of several failures.
    pub(super) fn write(&mut self, rings: &mut [Ring]) -> Option<String> {
        let written = rings.iter_mut().try_for_each(|ring| -> io::Result<()> {
            write(ring, &self.path(ring.range()))?;
            ring.written();
            Ok(())
        });
        match written {
            Ok(()) => {
                self.failing = false;
                None
            }
            Err(error) => (!std::mem::replace(&mut self.failing, true)).then(|| {
                format!(
                    "cannot write the overview's figures in {}: {error}; they are in memory alone until the server can \
                     write there",
                    self.folder.display()
                )
            }),
        }
    }

    fn path(&self, range: &Range) -> PathBuf {
        self.folder.join(format!("overview-{}", range.name))
    }
}

/// The bytes of a file with all its places.
fn file_bytes(range: &Range) -> u64 {
    HEADER_BYTES as u64 + u64::from(range.samples) * SAMPLE_BYTES as u64
}

fn header(range: &Range) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in [VERSION, range.seconds, range.samples, SAMPLE_BYTES as u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(checksum(&bytes));
    bytes.resize(HEADER_BYTES, 0);
    bytes
}

fn fill(ring: &mut Ring, path: &Path) -> Result<(), Unusable> {
    let about = fs::symlink_metadata(path).map_err(Unusable::Unreadable)?;
    if !about.is_file() {
        return Err(Unusable::Damaged("it is not a file"));
    }
    if about.len() != file_bytes(ring.range()) {
        return Err(Unusable::Damaged("it has a wrong length"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(Unusable::Unreadable)?;
    file.take(about.len()).read_to_end(&mut bytes).map_err(Unusable::Unreadable)?;
    let places = bytes.strip_prefix(header(ring.range()).as_slice());
    let places = places.ok_or(Unusable::Damaged("its header is not that of this version"))?;
    let mut damaged = 0;
    for (place, bytes) in places.chunks(SAMPLE_BYTES).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let sound = Sample::decode(bytes).is_some_and(|sample| ring.put(place, sample));
        damaged += usize::from(!sound);
    }
    if damaged > DAMAGED_MAX { Err(Unusable::Damaged("checksums are wrong")) } else { Ok(()) }
}

fn write(ring: &Ring, path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let header = header(ring.range());
    // One that is new, that a full disk kept from being whole, or that somebody else has changed gets everything.
    let whole = file.metadata()?.len() != file_bytes(ring.range()) || !begins_with(&file, &header)?;
    if whole {
        file.set_len(0)?;
        file.set_len(file_bytes(ring.range()))?;
    }
    for (place, sample) in ring.to_write(whole) {
        file.write_all_at(&sample.encode(), (HEADER_BYTES + place * SAMPLE_BYTES) as u64)?;
    }
    if whole {
        // Last: where a sample finds no room, the next write begins anew.
        file.write_all_at(&header, 0)?;
    }
    Ok(())
}

fn begins_with(file: &File, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    file.read_exact_at(&mut found, 0)?;
    Ok(found == bytes)
}

#[cfg(test)]
mod tests {
    use super::super::RANGES;
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn counted(ring: &Ring) -> Vec<(i64, u64, u64, u32)> {
        ring.between(0, i64::MAX).map(Sample::counted).collect()
    }

    fn rings() -> Vec<Ring> {
        let mut rings: Vec<_> = RANGES.iter().map(Ring::new).collect();
        for ring in &mut rings {
            for n in 0..5 {
                ring.add(&Sample::searches(NOW + n * 7_200_000, 1, 1));
            }
        }
        rings
    }

    #[test]
    fn what_is_written_is_read_and_files_stay_as_large_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::new(folder.path().to_owned());
        let mut old = rings();
        assert_eq!(files.write(&mut old), None);
        old.iter_mut().for_each(|ring| ring.add(&Sample::searches(NOW + 5 * 7_200_000, 9, 4)));
        assert_eq!(files.write(&mut old), None);
        let mut bytes = 0;
        for old in &old {
            let mut new = Ring::new(old.range());
            assert_eq!(files.read(&mut new), None);
            assert_eq!(counted(&new), counted(old), "{}", old.range().name);
            assert_eq!(new.to_write(false).count(), 0);
            bytes += fs::metadata(files.path(old.range())).expect("a file").len();
        }
        assert_eq!(bytes, 1_029_120, "the guide says 1 MiB");
        // One that is removed meanwhile comes back whole.
        let path = files.path(&RANGES[0]);
        fs::remove_file(&path).expect("removed");
        assert_eq!(files.write(&mut old), None);
        let mut new = Ring::new(&RANGES[0]);
        assert_eq!((files.read(&mut new), counted(&new)), (None, counted(&old[0])));
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        type Spoil = fn(&Path);
        let damage: [(&str, Spoil); 4] = [
            ("wrong length", |path| drop(OpenOptions::new().write(true).open(path).unwrap().set_len(100))),
            ("header", |path| write_at(path, 9)),
            ("checksums", |path| {
                for place in 0..300 {
                    write_at(path, HEADER_BYTES as u64 + place * SAMPLE_BYTES as u64 + 7);
                }
            }),
            ("not a file", |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }),
        ];
        for (why, spoil) in damage {
            let folder = tempfile::tempdir().expect("a folder");
            let mut files = Files::new(folder.path().to_owned());
            let mut old = rings();
            assert_eq!(files.write(&mut old), None);
            let path = files.path(&RANGES[0]);
            spoil(&path);
            let mut new = Ring::new(&RANGES[0]);
            let note = files.read(&mut new).expect(why);
            assert!(note.contains(why) && note.contains("overview-10m.damaged"), "{note}");
            assert_eq!(counted(&new), []);
            assert!(path.with_extension("damaged").exists() && !path.exists(), "{why}");
            // And it goes on with a new one.
            assert_eq!((files.write(&mut old), files.read(&mut new)), (None, None), "{why}");
        }
    }

    #[test]
    fn one_damaged_sample_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::new(folder.path().to_owned());
        let mut old = rings();
        assert_eq!(files.write(&mut old), None);
        let (place, _) = old[5].to_write(true).next().expect("a place");
        write_at(&files.path(&RANGES[5]), (HEADER_BYTES + place * SAMPLE_BYTES + 3) as u64);
        let mut new = Ring::new(&RANGES[5]);
        assert_eq!(files.read(&mut new), None);
        assert_eq!(counted(&new).len() + 1, counted(&old[5]).len());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("none");
        let mut files = Files::new(path.clone());
        let mut old = rings();
        let note = files.write(&mut old).expect("a note");
        assert!(note.contains("in memory alone") && note.contains("none"), "{note}");
        assert_eq!(files.write(&mut old), None);
        fs::create_dir(&path).expect("made");
        assert_eq!(files.write(&mut old), None);
        let mut new = Ring::new(&RANGES[1]);
        assert_eq!((files.read(&mut new), counted(&new)), (None, counted(&old[1])));
    }

    /// A file's length takes no room on a full disk, and what is in it does.
    #[test]
    fn a_file_that_found_no_room_is_whole_when_there_is_some() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::new(folder.path().to_owned());
        let mut old = rings();
        assert_eq!(files.write(&mut old), None);
        let file = OpenOptions::new().write(true).open(files.path(&RANGES[0])).unwrap();
        file.set_len(0).unwrap();
        file.set_len(file_bytes(&RANGES[0])).unwrap();
        assert_eq!(files.write(&mut old), None);
        let mut new = Ring::new(&RANGES[0]);
        assert_eq!((files.read(&mut new), counted(&new)), (None, counted(&old[0])));
    }

    fn write_at(path: &Path, at: u64) {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[0xa5], at).unwrap();
    }
}
