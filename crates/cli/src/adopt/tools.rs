//! slapd's tools and Larix's own, started as the user that the servers run as.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::journal::Journal;

/// Starts tools. Each has the lock open for as long as it runs.
pub(super) struct Tools<'a> {
    pub(super) journal: &'a Journal,
    pub(super) lock: &'a File,
}

impl Tools<'_> {
    /// slapcat of a database, by slapd's configuration or a copy of it.
    pub(super) fn slapcat(
        &self,
        configuration: (&str, &Path),
        suffix: &str,
        to: &Path,
    ) -> anyhow::Result<()> {
        let mut command = self.slapd_tool("-Tcat");
        command.arg(configuration.0).arg(configuration.1).args(["-o", "ldif-wrap=no", "-g", "-b", suffix]);
        self.run(command.stdout(new_file(to)?).stdin(self.lock()?))
    }

    /// slapadd into an empty database: what Larix held was checked when it came.
    pub(super) fn slapadd(&self, configuration: &Path, suffix: &str, from: &Path) -> anyhow::Result<()> {
        let mut command = self.slapd_tool("-Tadd");
        command.args(["-q", "-s", "-F"]).arg(configuration).args(["-g", "-b", suffix]);
        self.run(command.stdin(open(from)?).stdout(self.lock()?))
    }

    /// slaptest, which writes a slapd.conf as slapd.d.
    pub(super) fn slaptest(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let mut command = self.slapd_tool("-Ttest");
        command.arg("-f").arg(from).arg("-F").arg(to);
        self.run(command.stdin(self.lock()?).stdout(Stdio::null()))
    }

    pub(super) fn larix_add(&self, suffix: &str, from: &Path) -> anyhow::Result<()> {
        let mut command = self.larix("add")?;
        // What slapd has it had reasons for: its rules of schema may have been others when an entry came.
        command.args(["-q", "-g", "-s", "-b", suffix]);
        self.run(command.stdin(open(from)?).stdout(self.lock()?))
    }

    pub(super) fn larix_cat(&self, suffix: &str, to: &Path) -> anyhow::Result<()> {
        let mut command = self.larix("cat")?;
        command.args(["-o", "ldif-wrap=no", "-g", "-b", suffix]);
        self.run(command.stdout(new_file(to)?).stdin(self.lock()?))
    }

    fn larix(&self, tool: &str) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        let mut command = Command::new(program);
        command.arg(tool).arg("-F").arg(self.journal.configuration());
        Ok(command)
    }

    fn slapd_tool(&self, tool: &str) -> Command {
        let mut command = Command::new(&self.journal.found.program);
        command.arg(tool);
        command
    }

    fn lock(&self) -> anyhow::Result<File> {
        self.lock.try_clone().context("cannot share the lock")
    }

    /// As the servers' user: no file of a database becomes root's.
    fn run(&self, command: &mut Command) -> anyhow::Result<()> {
        let found = &self.journal.found;
        if found.uid != 0 {
            command.gid(found.gid).uid(found.uid);
        }
        let name = format!("{} {}", command.get_program().display(), words(command));
        let output = command.current_dir("/").stderr(Stdio::piped()).output();
        let output = output.with_context(|| format!("cannot start {name}"))?;
        if !output.status.success() {
            bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// An empty directory that is root's alone. What was there goes.
    pub(super) fn own_directory(path: &Path) -> anyhow::Result<()> {
        remove(path)?;
        let made = fs::DirBuilder::new().mode(0o700).create(path);
        made.with_context(|| format!("cannot make {}", path.display()))
    }

    /// An empty directory, the servers' user's own. What was there goes.
    pub(super) fn empty_directory(&self, path: &Path) -> anyhow::Result<()> {
        let uid = self.journal.found.uid;
        let above = path.parent().and_then(|parent| fs::metadata(parent).ok());
        if uid == 0 || above.is_some_and(|above| above.uid() != uid) {
            Self::own_directory(path)?;
            return self.give(path);
        }
        // Where the user may put what it likes, root gives nothing away.
        remove(path)?;
        self.run(Command::new("mkdir").args(["-m", "0700"]).arg(path).stdin(self.lock()?))
    }

    /// Makes the servers' user the owner of root's directory, which no other user can enter yet; the directory itself comes last.
    pub(super) fn give(&self, path: &Path) -> anyhow::Result<()> {
        let found = &self.journal.found;
        if path.is_dir() && !path.is_symlink() {
            let below: std::io::Result<Vec<PathBuf>> =
                fs::read_dir(path).and_then(|files| files.map(|file| Ok(file?.path())).collect());
            let below = below.with_context(|| format!("cannot read {}", path.display()))?;
            below.iter().try_for_each(|path| self.give(path))?;
        }
        std::os::unix::fs::lchown(path, Some(found.uid), Some(found.gid))
            .with_context(|| format!("cannot give {} to the user {}", path.display(), found.uid))
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn words(command: &Command) -> String {
    command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Of dumps, which have passwords: root's alone.
fn new_file(path: &Path) -> anyhow::Result<File> {
    let mut options = fs::OpenOptions::new();
    let opened = options.create(true).truncate(true).write(true).mode(0o600).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))
}
