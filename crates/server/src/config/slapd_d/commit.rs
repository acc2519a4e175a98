//! Changes of several files of a slapd.d, all or none of them: through a journal.
//!
//! The journal holds every file that comes, whole, and the name of every file that goes; of a large file that stays
//! almost as it is, what differs. Once it stands under its name the change has happened: whoever reads the directory
//! reads it through the journal, and whoever writes next carries it out first. Readers write nothing, and keep writers
//! out while they read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::diagnostic::{ConfigError, Origin};
use super::super::entries::ConfigEntry;
use super::super::model::Config;
use super::disk::{Disk, RealDisk, make_directory, overwrite, put, remove, sync_directory};
use super::splice::Splice;
use super::text::Text;
use super::{crc32, file_of, file_text, io_error};

pub(super) const JOURNAL: &str = "larix.journal";
const MAGIC: &str = "# Changes of this directory that are not carried out yet. Do not remove.\n";

/// What becomes of the files of a slapd.d.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChanges {
    directory: PathBuf,
    /// Below the directory.
    files: BTreeMap<PathBuf, Content>,
    /// Large files as the configuration before has them. Those that stand so on the disk get only what differs.
    before: BTreeMap<PathBuf, Text>,
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Gone,
    Whole(Text),
    Spliced(Splice),
}

impl From<Option<Text>> for Content {
    fn from(text: Option<Text>) -> Self {
        text.map_or(Self::Gone, Self::Whole)
    }
}

impl FileChanges {
    /// What makes the files of one configuration those of another.
    pub(in super::super) fn between(
        directory: &Path,
        old: &Config,
        new: &Config,
    ) -> Result<Self, ConfigError> {
        let (old, new) = (by_file(&old.shared_entries())?, by_file(&new.shared_entries())?);
        let (mut files, mut large) = (BTreeMap::new(), BTreeMap::new());
        for (file, (rdn, entry)) in &new {
            let before = old.get(file).map(|(_, before)| before);
            let differs = |before: &Arc<ConfigEntry>| {
                !Arc::ptr_eq(before, entry) && before.attributes != entry.attributes
            };
            if !before.is_none_or(differs) {
                continue;
            }
            let text = file_text(rdn, &entry.attributes);
            if let Some(before) = before.filter(|_| Splice::is_for(&text)) {
                large.insert(file.clone(), file_text(rdn, &before.attributes));
            }
            files.insert(file.clone(), Content::Whole(text));
        }
        let goes = |file: &PathBuf| !new.contains_key(file);
        files.extend(old.into_keys().filter(goes).map(|file| (file, Content::Gone)));
        Ok(Self { directory: directory.to_owned(), files, before: large })
    }

    /// Files below a directory that come, or go where they have no content; all others stay.
    pub(crate) fn of(directory: &Path, files: BTreeMap<PathBuf, Option<Vec<u8>>>) -> Self {
        let files = files.into_iter().map(|(file, bytes)| (file, bytes.map(Text::from).into())).collect();
        Self { directory: directory.to_owned(), files, before: BTreeMap::new() }
    }

    /// Files of entries that come; all others stay.
    pub(super) fn adding(directory: &Path, entries: &[ConfigEntry]) -> Result<Self, ConfigError> {
        let entries: Vec<_> = entries.iter().cloned().map(Arc::new).collect();
        let files = by_file(&entries)?;
        let file = |(file, (rdn, entry)): (PathBuf, (String, Arc<ConfigEntry>))| {
            (file, Content::Whole(file_text(&rdn, &entry.attributes)))
        };
        let files = files.into_iter().map(file).collect();
        Ok(Self { directory: directory.to_owned(), files, before: BTreeMap::new() })
    }

    /// Carries the changes out, durably: all or none, whenever the process is killed.
    ///
    /// # Errors
    /// Names the file or directory that could not be written; then nothing has changed.
    pub(crate) fn commit(&self) -> Result<(), ConfigError> {
        self.commit_on(&mut RealDisk)
    }

    pub(super) fn commit_on(&self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        if self.files.is_empty() {
            return Ok(());
        }
        let directory = &self.directory;
        make_directory(disk, directory).map_err(|error| io_error("make", directory, &error))?;
        let _lock = Lock::exclusive(directory)?;
        recover(disk, directory)?;
        let journal = directory.join(JOURNAL);
        let owner = fs::metadata(directory).map_err(|error| io_error("read", directory, &error))?;
        let changes = self.spliced();
        put(disk, &journal, &changes.to_journal(), &owner)
            .and_then(|()| sync_directory(disk, directory))
            .map_err(|error| {
                // It may stand under its name already, though not safely: then it must not be found there.
                let _ = remove(disk, &journal);
                io_error("write", &journal, &error)
            })?;
        // It has happened. What cannot be carried out now, readers find in the journal and the next change carries out.
        let _ = changes.carry_out(disk);
        Ok(())
    }

    /// The same with no more than what differs, for large files that stand as they are thought to.
    fn spliced(&self) -> Self {
        let mut files = self.files.clone();
        for (file, before) in &self.before {
            let Some(content) = files.get_mut(file) else { continue };
            let Content::Whole(after) = content else { continue };
            let splice = Splice::between(before, after);
            if let Some(splice) = splice.filter(|_| Splice::stands(&self.directory.join(file), before)) {
                *content = Content::Spliced(splice);
            }
        }
        Self { directory: self.directory.clone(), files, before: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn in_directory(&self, directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..self.clone() }
    }

    fn carry_out(&self, disk: &mut dyn Disk) -> io::Result<()> {
        let directory = &self.directory;
        let owner = fs::metadata(directory)?;
        let mut touched = BTreeSet::from([directory.clone()]);
        for (file, content) in &self.files {
            let path = directory.join(file);
            let above = path.parent().unwrap_or(directory).to_owned();
            match content {
                Content::Whole(text) => {
                    make_directory(disk, &above)?;
                    put(disk, &path, text, &owner)?;
                }
                Content::Spliced(splice) => overwrite(disk, &path, splice)?,
                Content::Gone => remove(disk, &path)?,
            }
            touched.insert(above);
        }
        let goes = |(file, content): (&PathBuf, &Content)| (*content == Content::Gone).then(|| file.clone());
        // The deepest first; those that are not empty stay.
        for file in self.files.iter().rev().filter_map(goes) {
            disk.step(&file)?;
            let path = directory.join(file);
            let _ = fs::remove_dir(path.with_extension(""));
            // Its siblings may have gone, too.
            let _ = path.parent().map(fs::remove_dir);
        }
        for path in touched.iter().filter(|path| path.is_dir()) {
            sync_directory(disk, path)?;
        }
        // That it is gone need not be safe: whoever finds it again carries out what was carried out.
        remove(disk, &directory.join(JOURNAL))
    }

    /// The magic line, the CRC-32 of what follows, and for each file `write LENGTH PATH` with its content,
    /// `splice ...` as [`Splice`] has it, or `remove PATH`.
    fn to_journal(&self) -> Text {
        let mut body = Text::default();
        for (file, content) in &self.files {
            let path = file.to_string_lossy();
            match content {
                Content::Whole(text) => {
                    body.push(format!("write {} {path}\n", text.len()).into_bytes());
                    body.append(text);
                }
                Content::Spliced(splice) => body.push(splice.to_journal(&path)),
                Content::Gone => body.push(format!("remove {path}\n").into_bytes()),
            }
        }
        let header = format!("{MAGIC}{:08x}\n", body.crc());
        body.behind(header.into_bytes())
    }

    /// `None`: not a whole journal.
    fn from_journal(directory: &Path, text: &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(MAGIC.as_bytes())?;
        let (checksum, mut rest) = split_line(rest)?;
        if u32::from_str_radix(checksum, 16).ok()? != crc32(rest) {
            return None;
        }
        let mut files = BTreeMap::new();
        while !rest.is_empty() {
            let (line, after) = split_line(rest)?;
            rest = after;
            if let Some(path) = line.strip_prefix("remove ") {
                files.insert(PathBuf::from(path), Content::Gone);
                continue;
            }
            if let Some(line) = line.strip_prefix("splice ") {
                let (splice, path, after) = Splice::from_journal(line, rest)?;
                rest = after;
                files.insert(PathBuf::from(path), Content::Spliced(splice));
                continue;
            }
            let (length, path) = line.strip_prefix("write ")?.split_once(' ')?;
            let (content, after) = rest.split_at_checked(length.parse().ok()?)?;
            rest = after;
            files.insert(PathBuf::from(path), Content::Whole(Text::from(content.to_vec())));
        }
        Some(Self { directory: directory.to_owned(), files, before: BTreeMap::new() })
    }
}

pub(super) fn split_line(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = text.split_at_checked(end)?;
    Some((std::str::from_utf8(line).ok()?, rest.get(1..)?))
}

type ByFile = BTreeMap<PathBuf, (String, Arc<ConfigEntry>)>;

fn by_file(entries: &[Arc<ConfigEntry>]) -> Result<ByFile, ConfigError> {
    let file = |entry: &Arc<ConfigEntry>| {
        let (file, rdn) = file_of(&entry.dn)?;
        Ok((file, (rdn, Arc::clone(entry))))
    };
    entries.iter().map(file).collect()
}

/// A change that has happened and was not carried out, if there is one.
fn pending(directory: &Path) -> Result<Option<FileChanges>, ConfigError> {
    let path = directory.join(JOURNAL);
    match fs::read(&path) {
        Ok(text) => match FileChanges::from_journal(directory, &text) {
            Some(changes) => Ok(Some(changes)),
            None => Err(ConfigError::new(
                Origin::BuiltIn,
                format!("`{}` is damaged: changes of the files there were half carried out", path.display()),
            )
            .with_help("restore the directory from a backup, or remove this file and check every entry")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", &path, &error)),
    }
}

/// Carries out what happened before and was not carried out.
fn recover(disk: &mut dyn Disk, directory: &Path) -> Result<(), ConfigError> {
    match pending(directory)? {
        Some(changes) => changes.carry_out(disk).map_err(|error| io_error("write", directory, &error)),
        None => Ok(()),
    }
}

/// The content of every file of an entry, by its path below the directory, in directories nested up to `depth_max`.
pub(crate) fn files_of(
    directory: &Path,
    depth_max: usize,
) -> Result<BTreeMap<PathBuf, Vec<u8>>, ConfigError> {
    let _lock = Lock::shared(directory)?;
    let mut files = BTreeMap::new();
    collect(directory, Path::new(""), depth_max, &mut files)?;
    if let Some(changes) = pending(directory)? {
        for (file, content) in changes.files {
            match content {
                Content::Whole(text) => {
                    files.insert(file, text.to_vec());
                }
                Content::Gone => {
                    files.remove(&file);
                }
                Content::Spliced(splice) => {
                    // A file that somebody has removed since stays so.
                    let Some(bytes) = files.get_mut(&file) else { continue };
                    let path = directory.join(&file);
                    splice.apply(bytes).map_err(|error| io_error("read", &path, &error))?;
                }
            }
        }
    }
    Ok(files)
}

fn collect(
    directory: &Path,
    below: &Path,
    depth_left: usize,
    files: &mut BTreeMap<PathBuf, Vec<u8>>,
) -> Result<(), ConfigError> {
    let here = directory.join(below);
    let listing = fs::read_dir(&here).map_err(|error| io_error("read", &here, &error))?;
    for child in listing {
        let name = child.map_err(|error| io_error("read", &here, &error))?.file_name();
        let path = below.join(&name);
        if path.extension().is_none_or(|extension| extension != "ldif") {
            continue;
        }
        let full = directory.join(&path);
        let bytes = fs::read(&full).map_err(|error| io_error("read", &full, &error))?;
        let children = path.with_extension("");
        files.insert(path, bytes);
        if depth_left > 0 && directory.join(&children).is_dir() {
            collect(directory, &children, depth_left - 1, files)?;
        }
    }
    Ok(())
}

/// Keeps writers, or everybody, out of the directory until it is dropped.
struct Lock {
    _file: File,
}

impl Lock {
    fn shared(directory: &Path) -> Result<Self, ConfigError> {
        Self::take(directory, File::lock_shared)
    }

    fn exclusive(directory: &Path) -> Result<Self, ConfigError> {
        Self::take(directory, File::lock)
    }

    fn take(directory: &Path, lock: impl Fn(&File) -> io::Result<()>) -> Result<Self, ConfigError> {
        let file = File::open(directory).map_err(|error| io_error("read", directory, &error))?;
        // A filesystem without locks has to do without.
        let _ = lock(&file);
        Ok(Self { _file: file })
    }
}
