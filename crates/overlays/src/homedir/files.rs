//! Home directories are made, moved and given to others.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::Owner;
use super::tree::{self, Item};

/// Folders of a skeleton within folders, at most.
const SKELETON_DEPTH_MAX: usize = 100;
/// Octets of an extended attribute, and of the names of all those of a file, at most: the kernel's limit.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;

/// Makes a home directory with what is in the skeleton: it gets its name when it is whole. One that is there stays as it is.
pub(super) fn provide(home: &Path, skeleton: &Path, owner: Owner) -> io::Result<()> {
    match std::fs::symlink_metadata(home) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let part = begin_unfinished(home)?;
    let filled = fill(&part, skeleton, owner);
    name_finished(&part, home, filled)
}

/// The owner gets the directory last: until then nobody else reaches what is in it.
fn fill(home: &Path, skeleton: &Path, owner: Owner) -> io::Result<()> {
    let to = tree::open_folder(CWD, home)?;
    let mode = match std::fs::metadata(skeleton) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Mode::RWXU,
        Err(error) => return Err(error),
        Ok(_) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let from = fs::open(skeleton, flags, Mode::empty())?;
            copy(&from, &to, Copied::Skeleton(owner), 0)?;
            mode_of(fs::fstat(&from)?.st_mode)
        }
    };
    fs::fchown(&to, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    Ok(fs::fchmod(&to, mode)?)
}

fn mode_of(raw: fs::RawMode) -> Mode {
    Mode::from_bits_truncate(raw & 0o7777)
}

/// What is copied, and whose the copy is.
#[derive(Clone, Copy)]
enum Copied {
    /// A skeleton, for this owner.
    Skeleton(Owner),
    /// A home directory, for whom it is: with owners, times and extended attributes.
    Home,
}

impl Copied {
    const fn depth_max(self) -> usize {
        match self {
            Self::Skeleton(_) => SKELETON_DEPTH_MAX,
            Self::Home => tree::DEPTH_MAX,
        }
    }

    fn owner(self, stat: &Stat) -> (Option<Uid>, Option<Gid>) {
        let (uid, gid) = match self {
            Self::Skeleton(owner) => (owner.uid, owner.gid),
            Self::Home => (stat.st_uid, stat.st_gid),
        };
        (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
    }

    /// Gives a copied file or folder what its original has, once it is filled: what was opened counts, because a name may lead to
    /// another file by now.
    fn finish(self, from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
        let stat = fs::fstat(from)?;
        let (uid, gid) = self.owner(&stat);
        fs::fchown(to, uid, gid)?;
        fs::fchmod(to, mode_of(stat.st_mode))?;
        if matches!(self, Self::Home) {
            copy_attributes(from, to)?;
            fs::futimens(to, &times(&stat))?;
        }
        Ok(())
    }
}

fn copy(from: &OwnedFd, to: &OwnedFd, copied: Copied, depth: usize) -> io::Result<()> {
    let most = copied.depth_max();
    if depth > most {
        return Err(io::Error::other(format!("it is more than {most} folders deep")));
    }
    for name in tree::names(from)? {
        let stat = fs::statat(from, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (uid, gid) = copied.owner(&stat);
        let item = Item {
            folder: from.as_fd(),
            name: &name,
            stat,
            path: Path::new(OsStr::from_bytes(name.to_bytes())),
        };
        match item.kind() {
            FileType::Directory => {
                fs::mkdirat(to, &*name, Mode::RWXU)?;
                let (inner, made) =
                    (tree::open_folder(from.as_fd(), &*name)?, tree::open_folder(to.as_fd(), &*name)?);
                copy(&inner, &made, copied, depth + 1)?;
                copied.finish(&inner, &made)?;
            }
            FileType::RegularFile => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mut file = File::from(fs::openat(to, &*name, flags, Mode::RUSR | Mode::WUSR)?);
                let mut original = item.open()?;
                io::copy(&mut original, &mut file)?;
                copied.finish(&original.into(), &file.into())?;
            }
            FileType::Symlink => {
                let target = fs::readlinkat(from, &*name, Vec::new())?;
                fs::symlinkat(&*target, to, &*name)?;
                fs::chownat(to, &*name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            FileType::Fifo => {
                fs::mknodat(to, &*name, FileType::Fifo, mode_of(item.stat.st_mode), 0)?;
                fs::chownat(to, &*name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            // Devices and sockets are of no use there.
            _ => {}
        }
    }
    Ok(())
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(stat.st_atime as _, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime as _, stat.st_mtime_nsec as _),
    }
}

/// Extended attributes, access control lists among them. A file system that has none is none of an obstacle.
fn copy_attributes(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let mut names = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    let length = match fs::flistxattr(from, &mut names) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length?,
    };
    let mut value = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    for name in
        names.get(..length).unwrap_or_default().split(|byte| *byte == 0).filter(|name| !name.is_empty())
    {
        let length = match fs::fgetxattr(from, name, &mut value) {
            // It went meanwhile.
            Err(Errno::NODATA) => continue,
            length => length?,
        };
        match fs::fsetxattr(to, name, value.get(..length).unwrap_or_default(), XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => {}
            set => set?,
        }
    }
    Ok(())
}

/// Moves a home directory, to another file system by a copy. Nothing of the new name may be there.
///
/// # Errors
/// What cannot be renamed or copied: it stays where it is. If the original cannot be deleted behind a copy, both are there.
pub(super) fn relocate(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(Errno::XDEV) => relocate_by_copy(from, to),
        renamed => Ok(renamed?),
    }
}

/// The copy gets its name when it is whole and on the disk, and only then the original goes: a crash leaves one of them at least.
pub(super) fn relocate_by_copy(from: &Path, to: &Path) -> io::Result<()> {
    let part = begin_unfinished(to)?;
    let copied = copy_home(from, &part);
    name_finished(&part, to, copied)?;
    if let Some(folder) = to.parent() {
        File::open(folder)?.sync_all()?;
    }
    std::fs::remove_dir_all(from)
        .map_err(|error| io::Error::other(format!("it is copied, and the original is not deleted: {error}")))
}

fn copy_home(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (tree::open_folder(CWD, from)?, tree::open_folder(CWD, to)?);
    copy(&from, &to, Copied::Home, 0)?;
    Copied::Home.finish(&from, &to)?;
    Ok(fs::syncfs(&to)?)
}

/// An empty folder beside a home directory, for what is not whole: nobody but the server's user may look into it.
fn begin_unfinished(home: &Path) -> io::Result<PathBuf> {
    let name = home.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    let hidden = [OsStr::new("."), name, OsStr::new(".larix-copy")].into_iter().collect::<OsString>();
    let part = home.with_file_name(hidden);
    if std::fs::symlink_metadata(&part).is_ok() {
        // A crash has left it.
        std::fs::remove_dir_all(&part)?;
    }
    fs::mkdir(&part, Mode::RWXU)?;
    Ok(part)
}

/// Gives the name to what was filled. Nothing is left of what was not.
fn name_finished(part: &Path, home: &Path, filled: io::Result<()>) -> io::Result<()> {
    let named = filled.and_then(|()| Ok(fs::rename(part, home)?));
    if named.is_err() {
        let _ = std::fs::remove_dir_all(part);
    }
    named
}

/// Gives to the new owner what the old one has in a home directory, and the directory.
pub(super) fn give(home: &Path, before: Owner, now: Owner) -> io::Result<()> {
    let changed = |uid: u32, gid: u32| {
        let uid = (uid == before.uid && before.uid != now.uid).then(|| Uid::from_raw(now.uid));
        let gid = (gid == before.gid && before.gid != now.gid).then(|| Gid::from_raw(now.gid));
        (uid.is_some() || gid.is_some()).then_some((uid, gid))
    };
    let folder = tree::open_folder(CWD, home)?;
    tree::walk(&folder, home, &mut |item| {
        if let Some((uid, gid)) = changed(item.stat.st_uid, item.stat.st_gid) {
            fs::chownat(item.folder, item.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    })?;
    let stat = fs::fstat(&folder)?;
    if let Some((uid, gid)) = changed(stat.st_uid, stat.st_gid) {
        fs::fchown(&folder, uid, gid)?;
    }
    Ok(())
}
