//! Archives of home directories: tar files.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Stat, fstat, readlinkat};
use tar::{Builder, EntryType, Header};

use super::tree;

/// Archives of one name and second.
const SAME_SECOND_MAX: u32 = 1_000;

/// Writes an archive of a home directory: `NAME-SECONDS-NUMBER.tar` in the folder.
pub(super) fn store(home: &Path, folder: &Path, seconds: i64) -> io::Result<PathBuf> {
    let name = home.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
    let (file, path) = create(folder, name.as_bytes(), seconds)?;
    let written = write(home, file);
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    written.map(|()| path)
}

fn create(folder: &Path, name: &[u8], seconds: i64) -> io::Result<(File, PathBuf)> {
    for number in 0..SAME_SECOND_MAX {
        let name = [name, format!("-{seconds}-{number}.tar").as_bytes()].concat();
        let path = folder.join(std::ffi::OsStr::from_bytes(&name));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return Ok((opened?, path)),
        }
    }
    Err(io::Error::other(format!("{} has {SAME_SECOND_MAX} archives of this second", folder.display())))
}

fn write(home: &Path, file: File) -> io::Result<()> {
    let mut archive = Builder::new(BufWriter::new(file));
    let folder = tree::open_folder(CWD, home)?;
    let at = inside(home);
    archive.append_data(&mut header(EntryType::Directory, &fstat(&folder)?, 0), at, io::empty())?;
    tree::walk(&folder, home, &mut |item| {
        let (path, stat) = (inside(item.path), &item.stat);
        match item.kind() {
            FileType::Directory => {
                archive.append_data(&mut header(EntryType::Directory, stat, 0), path, io::empty())
            }
            FileType::Symlink => {
                let target = readlinkat(item.folder, item.name, Vec::new())?;
                let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes()));
                archive.append_link(&mut header(EntryType::Symlink, stat, 0), path, target)
            }
            FileType::Fifo => archive.append_data(&mut header(EntryType::Fifo, stat, 0), path, io::empty()),
            FileType::RegularFile => {
                let file = item.open()?;
                let stat = fstat(&file)?;
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                let content = Content { file, left: size };
                archive.append_data(&mut header(EntryType::Regular, &stat, size), path, content)
            }
            // Devices and sockets are left out.
            _ => Ok(()),
        }
    })?;
    let file = archive.into_inner()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    // The home directory goes only behind this.
    file.sync_all()
}

/// A path in an archive: archives have no absolute ones.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn header(kind: EntryType, stat: &Stat, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or_default());
    header.set_size(size);
    header
}

/// As many octets as the header has said, of a file that may change meanwhile.
struct Content {
    file: File,
    left: u64,
}

impl Read for Content {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        let Some(to) = to.get_mut(..most).filter(|to| !to.is_empty()) else { return Ok(0) };
        let read = self.file.read(to)?;
        if read == 0 {
            return Err(io::Error::other("a file became shorter meanwhile"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}
