//! A limit on a process's memory, its share of the page cache included: a memory control group.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A control group that goes away when it is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
}

impl Group {
    /// A group whose processes may use `bytes` together.
    ///
    /// # Errors
    /// No memory control group here, or no right to make one: needs root.
    pub(crate) fn new(bytes: u64) -> anyhow::Result<Self> {
        let first = Path::new("/sys/fs/cgroup/memory");
        let (parent, limit) = if first.is_dir() {
            (first, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let folder = parent.join(format!("larix-bench-engines-{}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("no memory control group can be made in {}", parent.display()))?;
        let group = Self { folder };
        let limit = group.folder.join(limit);
        fs::write(&limit, bytes.to_string()).with_context(|| format!("cannot write {}", limit.display()))?;
        Ok(group)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with a process that is about to end is busy for a moment; what is left is empty and harmless.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Moves this process into the group, so that every page that it touches from now on counts.
pub(crate) fn join(group: &Path) -> anyhow::Result<()> {
    let file = group.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string())
        .with_context(|| format!("cannot join {}", file.display()))
}

/// Drops the files below `folder` from the page cache, where they count for whoever read them first.
pub(crate) fn forget(folder: &Path) -> anyhow::Result<()> {
    for file in files(folder)? {
        let open = fs::File::open(&file)?;
        open.sync_all()?;
        rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// Bytes on disk of the files below `folder`; holes do not count.
pub(crate) fn disk_bytes(folder: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    files(folder)?.iter().map(|file| Ok(fs::metadata(file)?.blocks() * 512)).sum()
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        } else {
            found.push(entry.path());
        }
    }
    Ok(found)
}
