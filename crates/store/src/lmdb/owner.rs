//! Who owns the files: a tool that root runs leaves the server, which runs as another user, its access.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, openat, stat};
use rustix::process::geteuid;

/// Gives what root has made in a directory to the directory's owner.
///
/// Nothing happens if another user than root runs this process, to a name that is not there, and to what is no plain file with one
/// name: the directory's owner may have put a link to another file there. What cannot be given away stays root's, and the server
/// names it when it cannot open it.
pub fn give_to_owner(directory: &Path, names: &[&str]) {
    if !geteuid().is_root() {
        return;
    }
    let Ok(owner) = stat(directory) else { return };
    if owner.st_uid == 0 {
        return;
    }
    for name in names {
        // Opened by its path alone: to close another descriptor of LMDB's lock file would give up this process's locks on it.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = openat(CWD, directory.join(name), flags, Mode::empty()) else { continue };
        let roots = fstat(&file).is_ok_and(|found| {
            FileType::from_raw_mode(found.st_mode).is_file() && found.st_uid == 0 && found.st_nlink == 1
        });
        if roots {
            let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
            let _ = chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH);
        }
    }
}
