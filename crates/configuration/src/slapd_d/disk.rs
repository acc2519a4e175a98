//! The steps that writing takes, one by one: so that a test can end the world before each.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, chown, fchown,
};
use std::path::Path;

use super::super::text::Text;
use super::splice::Splice;

/// Asked before each step that changes anything on the disk.
pub(super) trait Disk {
    /// # Errors
    /// The step is not taken.
    fn step(&mut self, what: &Path) -> io::Result<()>;
}

/// When what is written is made safe.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    Now,
    /// By the writer, together with more.
    Later,
}

/// The disk as it is.
#[derive(Debug)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn step(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a file beside its place and moves it there once it is whole, or safe.
pub(super) fn put(
    disk: &mut dyn Disk,
    file: &Path,
    text: &Text,
    owner: &fs::Metadata,
    sync: Sync,
) -> io::Result<File> {
    let fresh = file.with_extension("ldif.new");
    let written = write(disk, &fresh, text, owner, sync).and_then(|written| {
        disk.step(file)?;
        fs::rename(&fresh, file)?;
        Ok(written)
    });
    if written.is_err() && disk.step(&fresh).is_ok() {
        // What could not be written whole is of no use; that it stays is no harm either.
        let _ = fs::remove_file(&fresh);
    }
    written
}

fn write(
    disk: &mut dyn Disk,
    file: &Path,
    text: &Text,
    owner: &fs::Metadata,
    sync: Sync,
) -> io::Result<File> {
    disk.step(file)?;
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    if out.metadata()?.uid() != owner.uid() {
        // A tool that root runs must not leave the server without access. Others cannot give files away.
        let _ = fchown(&out, Some(owner.uid()), Some(owner.gid()));
    }
    let parts: Vec<&[u8]> = text.parts().collect();
    let (first, second) = parts.split_at(parts.len() / 2);
    for half in [first, second] {
        disk.step(file)?;
        half.iter().try_for_each(|part| out.write_all(part))?;
    }
    if sync == Sync::Now {
        disk.step(file)?;
        out.sync_all()?;
    }
    Ok(out)
}

/// Writes what differs into a file, in its place. A missing file has been removed by hand.
pub(super) fn overwrite(disk: &mut dyn Disk, file: &Path, splice: &Splice, sync: Sync) -> io::Result<()> {
    disk.step(file)?;
    let out = match OpenOptions::new().write(true).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    splice
        .check_length(out.metadata()?.len())
        .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", file.display())))?;
    // The checksum, which stands in front, comes last.
    for (at, bytes) in splice.spans().iter().rev() {
        disk.step(file)?;
        out.write_all_at(bytes, *at)?;
    }
    if sync == Sync::Now {
        disk.step(file)?;
        out.sync_all()?;
    }
    Ok(())
}

/// Makes safe what was written to a file; a missing one has been removed by hand.
pub(super) fn sync_file(disk: &mut dyn Disk, file: &Path) -> io::Result<()> {
    disk.step(file)?;
    match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        opened => opened?.sync_all(),
    }
}

/// Makes a directory and those above it that are missing.
pub(super) fn make_directory(disk: &mut dyn Disk, path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_directory(disk, above)?;
    }
    disk.step(path)?;
    DirBuilder::new().mode(0o750).create(path)?;
    if let Some(Ok(owner)) = above.map(fs::metadata) {
        // As for files.
        let _ = chown(path, Some(owner.uid()), Some(owner.gid()));
    }
    Ok(())
}

/// Removes a file; that it is not there is as good.
pub(super) fn remove(disk: &mut dyn Disk, file: &Path) -> io::Result<()> {
    disk.step(file)?;
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Makes names in a directory durable.
pub(super) fn sync_directory(disk: &mut dyn Disk, path: &Path) -> io::Result<()> {
    disk.step(path)?;
    File::open(path)?.sync_all()
}
