//! Home directories are made and given to others.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};

use super::Owner;
use super::tree::{self, Item};

/// Folders of a skeleton within folders, at most.
const SKELETON_DEPTH_MAX: usize = 100;

/// Makes a home directory with what is in the skeleton. One that is there stays as it is.
pub(super) fn provide(home: &Path, skeleton: &Path, owner: Owner) -> io::Result<()> {
    match fs::mkdir(home, Mode::RWXU) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let made = fill(home, skeleton, owner);
    if made.is_err() {
        // The next try finds nothing.
        let _ = std::fs::remove_dir_all(home);
    }
    made
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
            copy(&from, &to, owner, 0)?;
            mode_of(fs::fstat(&from)?.st_mode)
        }
    };
    fs::fchown(&to, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    Ok(fs::fchmod(&to, mode)?)
}

fn mode_of(raw: fs::RawMode) -> Mode {
    Mode::from_bits_truncate(raw & 0o7777)
}

fn copy(from: &OwnedFd, to: &OwnedFd, owner: Owner, depth: usize) -> io::Result<()> {
    if depth > SKELETON_DEPTH_MAX {
        return Err(io::Error::other(format!("the skeleton is more than {SKELETON_DEPTH_MAX} folders deep")));
    }
    let (uid, gid) = (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)));
    for name in tree::names(from)? {
        let stat = fs::statat(from, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
        let item = Item { folder: from.as_fd(), name: &name, stat, path: Path::new("") };
        let mode = mode_of(item.stat.st_mode);
        match item.kind() {
            FileType::Directory => {
                fs::mkdirat(to, &*name, Mode::RWXU)?;
                let (inner, made) =
                    (tree::open_folder(from.as_fd(), &*name)?, tree::open_folder(to.as_fd(), &*name)?);
                copy(&inner, &made, owner, depth + 1)?;
                fs::fchown(&made, uid, gid)?;
                fs::fchmod(&made, mode)?;
            }
            FileType::RegularFile => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mut file = File::from(fs::openat(to, &*name, flags, Mode::RUSR | Mode::WUSR)?);
                io::copy(&mut item.open()?, &mut file)?;
                fs::fchown(&file, uid, gid)?;
                fs::fchmod(&file, mode)?;
            }
            FileType::Symlink => {
                let target = fs::readlinkat(from, &*name, Vec::new())?;
                fs::symlinkat(&*target, to, &*name)?;
                fs::chownat(to, &*name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            FileType::Fifo => {
                fs::mknodat(to, &*name, FileType::Fifo, mode, 0)?;
                fs::chownat(to, &*name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            // Devices and sockets are of no use there.
            _ => {}
        }
    }
    Ok(())
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
