//! The process: background, pid and argument files, user, group and root directory.
//!
//! Going to the background needs no `fork`: the process starts itself again, detached, and waits on a pipe until the
//! new one has bound its sockets and opened its databases. The caller sees errors on its own terminal and an exit
//! status that is true.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Gid, Uid};

use crate::hardening;

/// Set in the environment of the process that was started for the background.
const DETACHED: &str = "LARIX_DETACHED";
const ROOT: Uid = Uid::ROOT;
const READY: &[u8] = b"ready\n";

/// What goes wrong with the process itself.
#[derive(Debug)]
pub enum DaemonError {
    /// The program cannot be started again for the background.
    Spawn(io::Error),
    /// `-u` or `-g` names an unknown user or group.
    NoSuchUser(String),
    NoSuchGroup(String),
    /// The kernel refuses the user or group.
    Privileges {
        what: &'static str,
        source: rustix::io::Errno,
    },
    Root {
        path: PathBuf,
        source: rustix::io::Errno,
    },
    /// The kernel let a process that had given root up have it back.
    StillRoot,
    /// A pid or argument file cannot be written.
    File {
        path: PathBuf,
        source: io::Error,
    },
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(source) => write!(f, "cannot start the background process: {source}"),
            Self::NoSuchUser(name) => write!(f, "no such user: {name}"),
            Self::NoSuchGroup(name) => write!(f, "no such group: {name}"),
            Self::Privileges { what, source } => {
                write!(f, "cannot set the {what}: {source} (-u, -g and -r are for servers that root starts)")
            }
            Self::Root { path, source } => write!(
                f,
                "cannot set the root directory {}: {source} (-u, -g and -r are for servers that root starts)",
                path.display()
            ),
            Self::StillRoot => f.write_str("the user was changed, but root's rights could be had back"),
            Self::File { path, source } => write!(f, "cannot write {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for DaemonError {}

/// Which of the processes this is, after [`detach`].
#[derive(Debug)]
pub enum Detached {
    /// The one that was started: its child serves, or failed; exit with this.
    Parent(ExitCode),
    /// The one that serves; call [`Readiness::ready`] when it does.
    Server(Readiness),
}

/// How the serving process tells that it serves.
pub struct Readiness {
    background: bool,
    /// Done first, while the terminal is still there.
    first: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("background", &self.background).finish_non_exhaustive()
    }
}

impl Readiness {
    /// For a server that stays in the foreground.
    pub fn foreground() -> Self {
        Self { background: false, first: None }
    }

    /// Has this done, too, when the server serves, and never if it does not come to that.
    #[must_use]
    pub fn and_then(self, next: impl FnOnce() + Send + 'static) -> Self {
        let Self { background, first } = self;
        let both = move || {
            first.into_iter().for_each(|first| first());
            next();
        };
        Self { background, first: Some(Box::new(both)) }
    }

    /// Whether the server runs in the background.
    pub(crate) fn is_background(&self) -> bool {
        self.background
    }

    /// Takes the first steps, if they were not taken yet.
    pub(crate) fn announce(&mut self) {
        if let Some(first) = self.first.take() {
            first();
        }
    }

    /// Lets the waiting parent exit and gives up the terminal; tells a service manager.
    pub fn ready(mut self) -> io::Result<()> {
        self.announce();
        hardening::notify(&format!("READY=1\nMAINPID={}\n", std::process::id()));
        if !self.background {
            return Ok(());
        }
        let mut stdout = io::stdout();
        // The parent may be gone already, killed at the terminal: the server serves all the same.
        let _ = stdout.write_all(READY).and_then(|()| stdout.flush());
        let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(())
    }
}

/// Goes to the background: see the module's page.
pub fn detach() -> Result<Detached, DaemonError> {
    if std::env::var_os(DETACHED).is_some() {
        // Fails only when this process leads a group already, and then it is detached.
        let _ = rustix::process::setsid();
        return Ok(Detached::Server(Readiness { background: true, first: None }));
    }
    let program = std::env::current_exe().map_err(DaemonError::Spawn)?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(DETACHED, "1").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(DaemonError::Spawn)?;
    let mut output = Vec::new();
    if let Some(mut pipe) = child.stdout.take() {
        let mut buffer = [0; 256];
        while !output.ends_with(READY) {
            match pipe.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(n) => output.extend_from_slice(buffer.get(..n).unwrap_or(&[])),
            }
        }
    }
    if let Some(text) = output.strip_suffix(READY) {
        // What the server printed for the administrator, a generated password say.
        let _ = io::stdout().write_all(text);
        return Ok(Detached::Parent(ExitCode::SUCCESS));
    }
    let _ = io::stdout().write_all(&output);
    let status = child.wait().map_err(DaemonError::Spawn)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1);
    Ok(Detached::Parent(ExitCode::from(code)))
}

/// The user, group and root directory to change to (`-u`, `-g`, `-r`), looked up while `/etc` is still reachable.
#[derive(Debug, Default)]
pub struct Privileges {
    user: Option<User>,
    group: Option<Gid>,
    root: Option<PathBuf>,
}

#[derive(Debug)]
struct User {
    id: Uid,
    /// The primary group, used unless `-g` names another.
    group: Gid,
    /// Groups that list the user.
    groups: Vec<Gid>,
}

impl Privileges {
    /// Whether `-u` names another user.
    pub(crate) fn change_user(&self) -> bool {
        self.user.is_some()
    }

    /// Looks names or numbers up.
    pub fn look_up(
        user: Option<&str>,
        group: Option<&str>,
        root: Option<&Path>,
    ) -> Result<Self, DaemonError> {
        let group = group.map(find_group).transpose()?;
        let user = user.map(find_user).transpose()?;
        Ok(Self { user, group, root: root.map(Path::to_owned) })
    }

    /// Changes to them. To be called while the process has one thread: what Linux keeps is per thread, and threads
    /// started later inherit it.
    pub fn drop_to(&self) -> Result<(), DaemonError> {
        let failed = |what| move |source| DaemonError::Privileges { what, source };
        hardening::connect_to_manager();
        if let Some(root) = &self.root {
            let failed = |source| DaemonError::Root { path: root.clone(), source };
            rustix::process::chroot(root).map_err(failed)?;
            rustix::process::chdir("/").map_err(failed)?;
        }
        let group = self.group.or_else(|| self.user.as_ref().map(|u| u.group));
        if let Some(group) = group.filter(|_| rustix::process::getuid().is_root()) {
            // With -g alone, too: root's own groups are not to stay.
            let others = self.user.as_ref().map_or(&[][..], |user| &user.groups);
            let groups: Vec<Gid> = [group].into_iter().chain(others.iter().copied()).collect();
            rustix::thread::set_thread_groups(&groups).map_err(failed("groups"))?;
        }
        if let Some(group) = group {
            rustix::thread::set_thread_res_gid(group, group, group).map_err(failed("group"))?;
        }
        if let Some(user) = &self.user {
            rustix::thread::set_thread_res_uid(user.id, user.id, user.id).map_err(failed("user"))?;
            if !user.id.is_root() && rustix::thread::set_thread_res_uid(ROOT, ROOT, ROOT).is_ok() {
                return Err(DaemonError::StillRoot);
            }
        }
        Ok(())
    }
}

fn find_user(name: &str) -> Result<User, DaemonError> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let (login, id, group) = (fields.first()?, fields.get(2)?, fields.get(3)?);
        (*login == name || *id == name).then_some((
            (*login).to_owned(),
            id.parse().ok()?,
            group.parse().ok()?,
        ))
    });
    let (login, id, group): (String, u32, u32) = match found {
        Some(found) => found,
        // A number needs no name.
        None => match name.parse::<u32>() {
            Ok(id) => (String::new(), id, id),
            Err(_) => return Err(DaemonError::NoSuchUser(name.to_owned())),
        },
    };
    let mut groups = Vec::new();
    for line in fs::read_to_string("/etc/group").unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let (Some(id), Some(members)) = (fields.get(2).and_then(|id| id.parse().ok()), fields.get(3))
            && !login.is_empty()
            && members.split(',').any(|member| member == login)
        {
            groups.push(Gid::from_raw(id));
        }
    }
    Ok(User { id: Uid::from_raw(id), group: Gid::from_raw(group), groups })
}

fn find_group(name: &str) -> Result<Gid, DaemonError> {
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let found = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (group, id) = (fields.next()?, fields.nth(1)?);
        if group == name || id == name { id.parse().ok() } else { None }
    });
    found
        .or_else(|| name.parse().ok())
        .map(Gid::from_raw)
        .ok_or_else(|| DaemonError::NoSuchGroup(name.to_owned()))
}

/// Pid and argument files, removed when the server ends.
#[derive(Debug, Default)]
pub struct ProcessFiles {
    written: Vec<PathBuf>,
}

impl ProcessFiles {
    /// Writes the files that the configuration names.
    pub fn write(pid_file: Option<&Path>, args_file: Option<&Path>) -> Result<Self, DaemonError> {
        let mut files = Self::default();
        if let Some(path) = pid_file {
            files.put(path, &format!("{}\n", std::process::id()))?;
        }
        if let Some(path) = args_file {
            let arguments: Vec<String> =
                std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
            files.put(path, &format!("{}\n", arguments.join(" ")))?;
        }
        Ok(files)
    }

    fn put(&mut self, path: &Path, text: &str) -> Result<(), DaemonError> {
        let is_file =
            written(path, text).map_err(|source| DaemonError::File { path: path.to_owned(), source })?;
        if is_file {
            self.written.push(path.to_owned());
        }
        Ok(())
    }
}

/// Writes a file that monitoring reads, under any user. Answers whether it is one: a device, such as /dev/null, keeps its mode and
/// its place. A pipe waits for its reader, as in slapd: who starts a server may learn by it how far the start has come.
fn written(path: &Path, text: &str) -> io::Result<bool> {
    written_by(path, |file| file.write_all(text.as_bytes()))
}

fn written_by(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> io::Result<bool> {
    let mut file = fs::File::create(path)?;
    let is_file = file.metadata()?.is_file();
    let readable = |file: &fs::File| match is_file {
        true => file.set_permissions(fs::Permissions::from_mode(0o644)),
        false => Ok(()),
    };
    let done = write(&mut file).and_then(|()| readable(&file));
    if is_file && done.is_err() {
        // On a full disk it is empty. A script that reads it would not know what to do with that; the error names the file.
        let _ = fs::remove_file(path);
    }
    done.map(|()| is_file)
}

impl Drop for ProcessFiles {
    fn drop(&mut self) {
        for path in &self.written {
            // Another user's directory after -u, say: a stale pid file is no reason to fail at the end.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_by_name_and_number() {
        assert!(find_user("root").unwrap().id.is_root());
        assert_eq!(find_user("54321").unwrap().id.as_raw(), 54321);
        assert!(matches!(find_user("no-such-user"), Err(DaemonError::NoSuchUser(_))));
        assert!(find_group("root").unwrap().is_root());
        assert!(matches!(find_group("no-such-group"), Err(DaemonError::NoSuchGroup(_))));
    }

    #[test]
    fn process_files_go_when_the_server_goes() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let files = ProcessFiles::write(Some(&pid), None).unwrap();
        assert_eq!(fs::read_to_string(&pid).unwrap(), format!("{}\n", std::process::id()));
        drop(files);
        assert!(!pid.exists());
    }

    #[test]
    fn no_file_stays_that_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let (pid, args) = (directory.path().join("pid"), directory.path().join("args"));
        // As the kernel writes to a full disk: the file is made, and takes no bytes.
        fs::write(&args, "of a server that was killed").unwrap();
        let full = written_by(&args, |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!args.exists());
        let unwritable = directory.path().join("no-directory").join("args");
        let error = ProcessFiles::write(Some(&pid), Some(&unwritable)).unwrap_err();
        assert!(error.to_string().contains(&*unwritable.to_string_lossy()), "{error}");
        assert!(!pid.exists(), "the server did not start");
        // A device that is always full keeps its place.
        ProcessFiles::write(Some(Path::new("/dev/full")), None).unwrap_err();
        assert!(Path::new("/dev/full").exists());
    }

    #[test]
    fn a_device_stays_as_it_is() {
        let before = fs::metadata("/dev/null").unwrap().permissions();
        drop(ProcessFiles::write(Some(Path::new("/dev/null")), None).unwrap());
        assert_eq!(fs::metadata("/dev/null").unwrap().permissions(), before);
    }
}
