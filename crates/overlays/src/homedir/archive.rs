//! Archives of home directories: tar files (POSIX 1003.1-2001, ustar with pax headers for what does not fit).

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Stat, fstat, readlinkat};

use super::tree;

const RECORD: usize = 512;
/// A tar file is a multiple of so many octets.
const BLOCK: u64 = 10_240;
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
    let mut out = Out { to: BufWriter::new(file), written: 0 };
    let folder = tree::open_folder(CWD, home)?;
    out.header(home, &fstat(&folder)?, b'5', &[], 0)?;
    tree::walk(&folder, home, &mut |item| {
        let (path, stat) = (item.path, &item.stat);
        match item.kind() {
            FileType::Directory => out.header(path, stat, b'5', &[], 0),
            FileType::Symlink => {
                let target = readlinkat(item.folder, item.name, Vec::new())?;
                out.header(path, stat, b'2', target.as_bytes(), 0)
            }
            FileType::Fifo => out.header(path, stat, b'6', &[], 0),
            FileType::RegularFile => {
                let file = item.open()?;
                let stat = fstat(&file)?;
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                out.header(path, &stat, b'0', &[], size)?;
                out.content(file, size, path)
            }
            // Devices and sockets are left out.
            _ => Ok(()),
        }
    })?;
    out.finish()
}

struct Out {
    to: BufWriter<File>,
    written: u64,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn header(&mut self, path: &Path, stat: &Stat, kind: u8, target: &[u8], size: u64) -> io::Result<()> {
        let mut name = path.as_os_str().as_bytes().strip_prefix(b"/").unwrap_or_default().to_vec();
        if kind == b'5' {
            name.push(b'/');
        }
        let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
        let header = Header {
            name: &name,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size,
            seconds,
            kind,
            target,
        };
        let more = header.more();
        if !more.is_empty() {
            let name = b"PaxHeaders/home";
            let size = more.len() as u64;
            let of_more =
                Header { name, mode: 0o600, uid: 0, gid: 0, size, seconds: 0, kind: b'x', target: &[] };
            self.put(&of_more.record())?;
            self.put(&more)?;
            self.pad(RECORD as u64)?;
        }
        self.put(&header.record())
    }

    /// As many octets as the header has said, of a file that may change meanwhile.
    fn content(&mut self, file: File, size: u64, path: &Path) -> io::Result<()> {
        let copied = io::copy(&mut file.take(size), &mut self.to)?;
        self.written += copied;
        if copied < size {
            return Err(io::Error::other(format!("{} became shorter meanwhile", path.display())));
        }
        self.pad(RECORD as u64)
    }

    fn pad(&mut self, to: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(to) - self.written;
        self.put(&vec![0; usize::try_from(missing).unwrap_or_default()])
    }

    fn finish(mut self) -> io::Result<()> {
        self.put(&[0; 2 * RECORD])?;
        self.pad(BLOCK)?;
        let file = self.to.into_inner().map_err(io::IntoInnerError::into_error)?;
        // The home directory goes only behind this.
        file.sync_all()
    }
}

struct Header<'a> {
    name: &'a [u8],
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    seconds: u64,
    kind: u8,
    target: &'a [u8],
}

/// Octets of names, and the greatest numbers of fields.
const NAME: usize = 100;
const OWNER_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;

impl Header<'_> {
    /// What does not fit, as the content of a pax header.
    fn more(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut line = |key: &str, value: &[u8]| {
            // The length counts itself.
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            out.extend([format!("{length} {key}=").as_bytes(), value, b"\n"].concat());
        };
        if self.name.len() > NAME {
            line("path", self.name);
        }
        if self.target.len() > NAME {
            line("linkpath", self.target);
        }
        for (key, number) in [("uid", self.uid), ("gid", self.gid)] {
            if number > OWNER_MAX {
                line(key, number.to_string().as_bytes());
            }
        }
        if self.size > SIZE_MAX {
            line("size", self.size.to_string().as_bytes());
        }
        out
    }

    fn record(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        let mut fields = record.iter_mut();
        let mut field = |length: usize, bytes: &[u8]| {
            let mut bytes = bytes.iter();
            for to in fields.by_ref().take(length) {
                *to = bytes.next().copied().unwrap_or(0);
            }
        };
        let octal = |number: u64, digits: usize| format!("{number:0digits$o}").into_bytes();
        field(NAME, self.name);
        field(8, &octal(self.mode.into(), 7));
        field(8, &octal(self.uid.min(OWNER_MAX).into(), 7));
        field(8, &octal(self.gid.min(OWNER_MAX).into(), 7));
        field(12, &octal(self.size.min(SIZE_MAX), 11));
        field(12, &octal(self.seconds.min(SIZE_MAX), 11));
        field(8, b"        ");
        field(1, &[self.kind]);
        field(NAME, self.target);
        field(8, b"ustar\x0000");
        let sum: u32 = record.iter().map(|byte| u32::from(*byte)).sum();
        let sum = [&octal(sum.into(), 6)[..], b"\0 "].concat();
        record.iter_mut().skip(148).zip(sum).for_each(|(to, byte)| *to = byte);
        record
    }
}
