//! Changes of several files of a slapd.d, all or none of them: through a [journal](super::journal).
//!
//! The journal holds every file that comes, whole, and the name of every file that goes; of a large file that stays
//! almost as it is, what differs. Once that is there and safe the change has happened: a reader of the directory
//! reads it through the journal, and the next writer carries it out first. Readers write nothing, and keep writers
//! out while they read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::diagnostic::{ConfigError, Origin};
use super::super::entry::ConfigEntry;
use super::super::model::Config;
use super::super::text::Text;
use super::disk::{Disk, RealDisk, Sync, make_directory, overwrite, put, remove};
use super::in_use::{CHANGE_LOCK_FILE, open_lock_file};
use super::journal::{self, RefusedJournal};
use super::places::{file_of, put_in_place};
use super::splice::Splice;
use super::{TOP, file_text, io_error};

/// Puts the files of a directory in order before a change.
type Arrange = fn(&mut dyn Disk, &Path) -> Result<(), ConfigError>;

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
    pub fn of(directory: &Path, files: BTreeMap<PathBuf, Option<Vec<u8>>>) -> Self {
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
    pub fn commit(&self) -> Result<(), ConfigError> {
        self.commit_on(&mut RealDisk)
    }

    /// The same in the directory of a `database ldif`, by the process that has it in use. `refused`: of the directory, from one change to
    /// the next.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_entries(&self, refused: &mut RefusedJournal) -> Result<(), ConfigError> {
        let lock = |directory: &Path| Ok(Lock::exclusive_of_entries(directory));
        self.commit_under(&mut RealDisk, lock, None, refused)
    }

    pub(super) fn commit_on(&self, disk: &mut dyn Disk) -> Result<(), ConfigError> {
        self.commit_under(disk, Lock::exclusive, Some(put_in_place), &mut RefusedJournal::default())
    }

    pub(super) fn commit_under(
        &self,
        disk: &mut dyn Disk,
        lock: impl Fn(&Path) -> Result<Lock, ConfigError>,
        first: Option<Arrange>,
        refused: &mut RefusedJournal,
    ) -> Result<(), ConfigError> {
        if self.files.is_empty() {
            return Ok(());
        }
        let directory = &self.directory;
        make_directory(disk, directory).map_err(|error| io_error("make", directory, &error))?;
        let _lock = lock(directory)?;
        refused.take_back(disk)?;
        recover(disk, directory)?;
        if let Some(first) = first {
            first(disk, directory)?;
        }
        let changes = self.spliced();
        journal::begin(disk, directory, &journal::whole(&changes), refused)?;
        // It has happened. What cannot be carried out now, readers find in the journal and the next change carries out.
        let _ = changes.carry_out_and_end(disk);
        Ok(())
    }

    /// A change goes to a directory that holds a configuration. Where that was moved, or its disk is not mounted any more, one file in an
    /// empty directory would be all that a restart finds of it.
    ///
    /// # Errors
    /// Names the file that is missing.
    pub(in super::super) fn check_place(&self) -> Result<(), ConfigError> {
        let top = self.directory.join(TOP);
        // What may not be read is named when it is written.
        if self.files.is_empty() || top.try_exists().unwrap_or(true) {
            return Ok(());
        }
        let message = format!("`{}` is not there any more: nothing was changed", top.display());
        Err(ConfigError::new(Origin::BuiltIn, message)
            .with_help("put the directory back that the server was started with, or mount it"))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The same with no more than what differs, for large files that stand as they are thought to.
    pub(super) fn spliced(&self) -> Self {
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

    /// The files that it touches, and the directories above them, some of which it may make.
    pub(super) fn touched(&self) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
        let files: BTreeSet<PathBuf> = self.files.keys().map(|file| self.directory.join(file)).collect();
        let above = self.files.keys().flat_map(|file| file.ancestors().skip(1));
        let directories = above.map(|above| self.directory.join(above)).collect();
        (files, directories)
    }

    pub(super) fn carry_out_and_end(&self, disk: &mut dyn Disk) -> io::Result<()> {
        self.carry_out(disk, Sync::Now)?;
        let (_, directories) = self.touched();
        journal::end(disk, &self.directory, &directories)
    }

    /// Makes the files what they have to be; names in directories are not synced.
    pub(super) fn carry_out(&self, disk: &mut dyn Disk, sync: Sync) -> io::Result<()> {
        let directory = &self.directory;
        let owner = fs::metadata(directory)?;
        for (file, content) in &self.files {
            let path = directory.join(file);
            match content {
                Content::Whole(text) => {
                    make_directory(disk, path.parent().unwrap_or(directory))?;
                    put(disk, &path, text, &owner, sync)?;
                }
                Content::Spliced(splice) => overwrite(disk, &path, splice, sync)?,
                Content::Gone => remove(disk, &path)?,
            }
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
        Ok(())
    }

    /// For each file `write LENGTH PATH` with its content, `splice ...` as [`Splice`] has it, or `remove PATH`.
    pub(super) fn to_record(&self) -> Text {
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
        body
    }

    /// `None`: it is not one.
    pub(super) fn from_record(directory: &Path, mut rest: &[u8]) -> Option<Self> {
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

    /// Both changes, one after the other, as one. `None`: the second does not go on where the first one ends.
    pub(super) fn then(mut self, later: Self) -> Option<Self> {
        for (file, content) in later.files {
            let content = match (self.files.remove(&file), content) {
                (Some(Content::Whole(text)), Content::Spliced(splice)) => {
                    let mut bytes = text.to_vec();
                    splice.apply(&mut bytes).ok()?;
                    Content::Whole(Text::from(bytes))
                }
                (Some(Content::Spliced(first)), Content::Spliced(second)) => {
                    Content::Spliced(first.then(second)?)
                }
                (Some(Content::Gone), Content::Spliced(_)) => return None,
                (_, content) => content,
            };
            self.files.insert(file, content);
        }
        Some(self)
    }
}

pub(super) fn split_line(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = text.split_at_checked(end)?;
    Some((std::str::from_utf8(line).ok()?, rest.get(1..)?))
}

/// The content of files by their paths below a directory.
type Files = BTreeMap<PathBuf, Vec<u8>>;

type ByFile = BTreeMap<PathBuf, (String, Arc<ConfigEntry>)>;

fn by_file(entries: &[Arc<ConfigEntry>]) -> Result<ByFile, ConfigError> {
    let file = |entry: &Arc<ConfigEntry>| {
        let (file, rdn) = file_of(&entry.dn)?;
        Ok((file, (rdn, Arc::clone(entry))))
    };
    entries.iter().map(file).collect()
}

/// Carries out what happened before and was not carried out.
pub(super) fn recover(disk: &mut dyn Disk, directory: &Path) -> Result<(), ConfigError> {
    match journal::pending(directory)? {
        Some(changes) => {
            changes.carry_out_and_end(disk).map_err(|error| io_error("write", directory, &error))
        }
        None => Ok(()),
    }
}

/// The content of every file of an entry, by its path below the directory, in directories nested up to `depth_max`.
pub(super) fn files_of(directory: &Path, depth_max: usize) -> Result<Files, ConfigError> {
    let _lock = Lock::shared(directory)?;
    read_files(directory, depth_max)
}

/// The same of a `database ldif`, also while a process has it in use.
///
/// # Errors
/// Names the file or directory that cannot be read.
pub fn files_of_entries(directory: &Path, depth_max: usize) -> Result<Files, ConfigError> {
    let _lock = Lock::shared_of_entries(directory);
    read_files(directory, depth_max)
}

pub(super) fn read_files(directory: &Path, depth_max: usize) -> Result<Files, ConfigError> {
    let mut files = BTreeMap::new();
    collect(directory, Path::new(""), depth_max, &mut files)?;
    if let Some(changes) = journal::pending(directory)? {
        for (file, content) in changes.files {
            match content {
                Content::Whole(text) => {
                    files.insert(file, text.to_vec());
                }
                Content::Gone => {
                    files.remove(&file);
                }
                Content::Spliced(splice) => {
                    // A file that was removed by hand since stays removed.
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
    let folder = directory.join(below);
    let listing = fs::read_dir(&folder).map_err(|error| io_error("read", &folder, &error))?;
    for child in listing {
        let name = child.map_err(|error| io_error("read", &folder, &error))?.file_name();
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

/// Keeps writers, or all processes, out of the directory until it is dropped.
pub(super) struct Lock {
    _file: Option<File>,
}

impl Lock {
    fn shared(directory: &Path) -> Result<Self, ConfigError> {
        Self::take(directory, File::lock_shared)
    }

    pub(super) fn exclusive(directory: &Path) -> Result<Self, ConfigError> {
        Self::take(directory, File::lock)
    }

    /// Without a lock where the file is missing, as before any process worked on the files, or may not be read.
    fn shared_of_entries(directory: &Path) -> Self {
        Self::over(File::open(directory.join(CHANGE_LOCK_FILE)).ok(), File::lock_shared)
    }

    /// Without a lock where the file cannot be made: the others cannot be changed either.
    fn exclusive_of_entries(directory: &Path) -> Self {
        Self::over(open_lock_file(directory, CHANGE_LOCK_FILE), File::lock)
    }

    fn take(directory: &Path, lock: impl Fn(&File) -> io::Result<()>) -> Result<Self, ConfigError> {
        let file = File::open(directory).map_err(|error| io_error("read", directory, &error))?;
        Ok(Self::over(Some(file), lock))
    }

    fn over(file: Option<File>, lock: impl Fn(&File) -> io::Result<()>) -> Self {
        if let Some(file) = &file {
            // A filesystem without locks has to do without.
            let _ = lock(file);
        }
        Self { _file: file }
    }
}
