//! slapd's tools and Larix's own, started as the user that the servers run as.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::{Context, anyhow, bail};

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
        self.run_into(command.stdin(self.lock()?), to)
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

    fn run(&self, command: &mut Command) -> anyhow::Result<()> {
        let name = self.as_own_user(command);
        let output = command.output().with_context(|| format!("cannot start {name}"))?;
        demand_success(&name, &output)
    }

    /// The same with the output in a new file, which this process writes: where the last bytes find no room on the disk, slapcat leaves a
    /// file that is cut, and ends with success.
    fn run_into(&self, command: &mut Command, to: &Path) -> anyhow::Result<()> {
        let mut file = new_file(to)?;
        let name = self.as_own_user(command);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {name}"))?;
        let mut dump = child.stdout.take().with_context(|| format!("{name} has no output"))?;
        let (written, ended) = thread::scope(|scope| {
            // Ends at the first error: then the tool finds no reader.
            let copy = move || io::copy(&mut dump, &mut file);
            let writing = thread::Builder::new().spawn_scoped(scope, copy);
            let ended = child.wait_with_output();
            (writing.map(|writing| writing.join()), ended)
        });
        let written = written.with_context(|| format!("no thread to write {}", to.display()))?;
        let written = written.map_err(|_| anyhow!("the thread that writes {} panicked", to.display()))?;
        written.with_context(|| format!("cannot write {}", to.display()))?;
        demand_success(&name, &ended.with_context(|| format!("cannot wait for {name}"))?)
    }

    /// Has the command run as the servers' user: no file of a database becomes root's. Answers its name for messages.
    fn as_own_user(&self, command: &mut Command) -> String {
        let found = &self.journal.found;
        if found.uid != 0 {
            command.gid(found.gid).uid(found.uid);
        }
        command.current_dir("/").stderr(Stdio::piped());
        format!("{} {}", command.get_program().display(), words(command))
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
            let below: io::Result<Vec<PathBuf>> =
                fs::read_dir(path).and_then(|files| files.map(|file| Ok(file?.path())).collect());
            let below = below.with_context(|| format!("cannot read {}", path.display()))?;
            below.iter().try_for_each(|path| self.give(path))?;
        }
        std::os::unix::fs::lchown(path, Some(found.uid), Some(found.gid))
            .with_context(|| format!("cannot give {} to the user {}", path.display(), found.uid))
    }
}

fn demand_success(name: &str, output: &Output) -> anyhow::Result<()> {
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
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

#[cfg(test)]
mod tests {
    use super::super::service::Service;
    use super::super::slapd::FoundSlapd;
    use super::*;

    /// A dump that is cut would be taken for all that slapd has: the copy is compared with it.
    #[test]
    fn a_dump_without_room_is_an_error_whatever_the_tool_says() {
        let folder = tempfile::tempdir().unwrap();
        let (text, program) = (folder.path().join("text"), folder.path().join("slapd"));
        // Writes, and does not look whether it could.
        fs::write(&text, "#!/bin/sh\nprintf 'dn: cn=a\\ncn: a\\n\\n'\nexit 0\n").unwrap();
        // Not by this process: what one of its threads has open for writing no other can start.
        let made = Command::new("install").args(["-m", "755"]).args([&text, &program]).status().unwrap();
        assert!(made.success());
        let found = FoundSlapd {
            program,
            configuration: folder.path().to_owned(),
            urls: String::new(),
            user: None,
            group: None,
            options: Vec::new(),
            uid: 0,
            gid: 0,
            databases: Vec::new(),
            service: Service::Process,
        };
        let journal = Journal::begin(folder.path(), found).unwrap();
        let lock = File::open(folder.path()).unwrap();
        let tools = Tools { journal: &journal, lock: &lock };
        let dump = |to: &Path| tools.slapcat(("-F", folder.path()), "cn=a", to);
        let there = folder.path().join("dump.ldif");
        dump(&there).unwrap();
        assert_eq!(fs::read_to_string(&there).unwrap(), "dn: cn=a\ncn: a\n\n");
        let error = dump(Path::new("/dev/full")).unwrap_err();
        assert!(format!("{error:#}").starts_with("cannot write /dev/full: "), "{error:#}");
    }
}
