//! Trees of files whose owner may change them meanwhile: everything is opened beside the folder that holds it, and no symbolic link is
//! followed.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat};

/// Folders within folders, at most.
pub(super) const DEPTH_MAX: usize = 200;

/// What is in a folder: the folder, the name in it, what it is, and its path from the beginning.
pub(super) struct Item<'a> {
    pub(super) folder: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    pub(super) stat: Stat,
    pub(super) path: &'a Path,
}

impl Item<'_> {
    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Opens a file. What a name leads to when it is opened may be something else than it was: a file is not waited for.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(self.folder, self.name, flags, Mode::empty())?;
        let opened = fs::fstat(&file)?;
        if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
            return Err(io::Error::other(format!("{} changed meanwhile", self.path.display())));
        }
        Ok(File::from(file))
    }
}

/// Opens a folder, which is no symbolic link.
pub(super) fn open_folder(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(at, name, flags, Mode::empty())?)
}

/// Hands everything in a folder to `visit`, each folder before what is in it.
pub(super) fn walk(
    folder: &OwnedFd,
    path: &Path,
    visit: &mut dyn FnMut(&Item<'_>) -> io::Result<()>,
) -> io::Result<()> {
    walk_from(folder, path, 0, visit)
}

fn walk_from(
    folder: &OwnedFd,
    path: &Path,
    depth: usize,
    visit: &mut dyn FnMut(&Item<'_>) -> io::Result<()>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!("{} is more than {DEPTH_MAX} folders deep", path.display())));
    }
    for name in names(folder)? {
        let below: PathBuf = path.join(OsStr::from_bytes(name.to_bytes()));
        let stat = match fs::statat(folder, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It went meanwhile.
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let item = Item { folder: folder.as_fd(), name: &name, stat, path: &below };
        visit(&item)?;
        if item.kind() == FileType::Directory {
            let inner = open_folder(folder.as_fd(), &*name)?;
            walk_from(&inner, &below, depth + 1, visit)?;
        }
    }
    Ok(())
}

/// The names in a folder, in their order.
pub(super) fn names(folder: &OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
