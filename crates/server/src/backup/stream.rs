//! A backup as one stream of bytes.
//!
//! It begins with sixteen bytes; then come frames of a letter, a length (4 bytes, big-endian) and so many bytes: `F` the
//! name of a file, `D` some of its bytes, `E` the SHA-256 of the file, and at the end `Z` the SHA-256 of all before it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{BackupError, Pace, make_directory, private, sync_directory};

const HEAD: &[u8; 16] = b"LARIX-BACKUP 1\n\0";
/// Of a frame.
const BYTES_MAX: u32 = 1 << 20;

pub(super) struct StreamWriter<'o> {
    out: &'o mut dyn Write,
    all: Sha256,
    file: Sha256,
}

fn failed(error: io::Error) -> BackupError {
    BackupError::Stream { what: format!("cannot be written: {error}") }
}

impl<'o> StreamWriter<'o> {
    pub(super) fn begin(out: &'o mut dyn Write) -> Result<Self, BackupError> {
        out.write_all(HEAD).map_err(failed)?;
        Ok(Self { out, all: Sha256::new_with_prefix(HEAD), file: Sha256::new() })
    }

    fn frame(&mut self, kind: u8, bytes: &[u8]) -> Result<(), BackupError> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
        let [a, b, c, d] = length;
        let head = [kind, a, b, c, d];
        for part in [head.as_slice(), bytes] {
            self.all.update(part);
            self.out.write_all(part).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn begin_file(&mut self, path: &Path) -> Result<(), BackupError> {
        self.file = Sha256::new();
        self.frame(b'F', path.to_string_lossy().as_bytes())
    }

    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        for chunk in bytes.chunks(BYTES_MAX as usize) {
            self.file.update(chunk);
            self.frame(b'D', chunk)?;
        }
        Ok(())
    }

    pub(super) fn end_file(&mut self) -> Result<(), BackupError> {
        let digest = std::mem::take(&mut self.file).finalize();
        self.frame(b'E', &digest)
    }

    pub(super) fn file(&mut self, path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
        self.begin_file(path)?;
        self.data(bytes)?;
        self.end_file()
    }

    pub(super) fn end(mut self) -> Result<(), BackupError> {
        let digest = self.all.clone().finalize();
        self.frame(b'Z', &digest)?;
        self.out.flush().map_err(failed)
    }
}

/// What a stream had.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSummary {
    pub files: u64,
    pub bytes: u64,
}

/// Reads a stream to its end and compares its checksums; with a directory, which must not exist, makes the backup of it.
///
/// # Errors
/// A stream that is cut or damaged. What was made of it is left for the caller to remove.
pub fn unpack(
    input: &mut dyn Read,
    directory: Option<&Path>,
    pace: &mut Pace<'_>,
) -> Result<StreamSummary, BackupError> {
    let mut input = Input { input, all: Sha256::new() };
    let mut head = [0; 16];
    input.exact(&mut head)?;
    if head != *HEAD {
        return Err(damaged("is no backup, or of a later version"));
    }
    if let Some(directory) = directory {
        make_directory(directory)?;
    }
    pace.begin("the stream", 0);
    let mut summary = StreamSummary::default();
    let mut open: Option<(PathBuf, Option<File>, Sha256)> = None;
    loop {
        let before = input.all.clone();
        let (kind, bytes) = input.frame()?;
        pace.advance(bytes.len() as u64)?;
        match (kind, &mut open) {
            (b'F', None) => open = Some(begin(&bytes, directory)?),
            (b'D', Some((path, file, hash))) => {
                hash.update(&bytes);
                summary.bytes += bytes.len() as u64;
                if let Some(file) = file {
                    file.write_all(&bytes).map_err(BackupError::io("write", path))?;
                }
            }
            (b'E', Some((path, file, hash))) => {
                if hash.clone().finalize().as_slice() != bytes {
                    return Err(damaged(&format!("is damaged: {} is not what was sent", path.display())));
                }
                if let Some(file) = file {
                    file.sync_all().map_err(BackupError::io("write", path))?;
                }
                summary.files += 1;
                open = None;
            }
            (b'Z', None) => {
                if before.finalize().as_slice() != bytes {
                    return Err(damaged("is damaged: its checksum is another"));
                }
                break;
            }
            _ => return Err(damaged("is damaged: a frame stands where it cannot")),
        }
    }
    if let Some(directory) = directory {
        sync_directory(directory)?;
    }
    Ok(summary)
}

fn damaged(what: &str) -> BackupError {
    BackupError::Stream { what: what.to_owned() }
}

fn begin(name: &[u8], directory: Option<&Path>) -> Result<(PathBuf, Option<File>, Sha256), BackupError> {
    let wrong = || damaged("is damaged: a file's name leads out of the backup");
    let path = PathBuf::from(std::str::from_utf8(name).map_err(|_| wrong())?);
    let parts = path.components().count();
    if !(1..=2).contains(&parts) || !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(wrong());
    }
    let file = match directory {
        None => None,
        Some(directory) => {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                let folder = directory.join(folder);
                if folder.symlink_metadata().is_err() {
                    make_directory(&folder)?;
                }
            }
            let own = directory.join(&path);
            Some(private().open(&own).map_err(BackupError::io("write", &own))?)
        }
    };
    Ok((path, file, Sha256::new()))
}

struct Input<'i> {
    input: &'i mut dyn Read,
    all: Sha256,
}

impl Input<'_> {
    fn exact(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("is cut: it ends before its end"),
            _ => damaged(&format!("cannot be read: {error}")),
        })?;
        self.all.update(&*bytes);
        Ok(())
    }

    fn frame(&mut self) -> Result<(u8, Vec<u8>), BackupError> {
        let mut head = [0; 5];
        self.exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = u32::from_be_bytes(length);
        if length > BYTES_MAX {
            return Err(damaged("is damaged: a frame is too long"));
        }
        let mut bytes = vec![0; length as usize];
        self.exact(&mut bytes)?;
        Ok((kind, bytes))
    }
}
