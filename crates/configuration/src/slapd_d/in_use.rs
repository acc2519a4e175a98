//! Who uses a slapd.d: a server that runs with it, or a tool that changes it. One process at a time. The same for the files of a
//! `database ldif`.
//!
//! The journal's lock is held for one change; this one as long as a process relies on what it has read. A directory that this user
//! may not write has no such file: no process changes it. The directory of the entries below cn=config is locked, too, and so is the
//! directory of a `database ldif`: a lock file looks like something that a process has left, and is removed as such.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::process;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::super::diagnostic::{ConfigError, Origin};
use super::super::model::{Config, Source};
use super::read_again;

/// The process that uses the directory holds a lock on this file.
const LOCK_FILE: &str = "larix.config.lock";
/// And on this directory in it, if there is one: no change of the configuration replaces or removes it.
const BELOW_TOP: &str = "cn=config";
/// The same in the directory of a `database ldif`, as in that of a `database mdb`.
const LOCK_FILE_OF_ENTRIES: &str = "larix.lock";
/// That directory itself. Changes of the files lock [`CHANGE_LOCK_FILE`], and leave the directory's lock to this.
const DIRECTORY_OF_ENTRIES: &str = ".";
/// Locked while the files of a `database ldif` are changed or read.
pub(super) const CHANGE_LOCK_FILE: &str = "larix.change.lock";
/// Beyond that nothing of use stands there.
const LOCK_FILE_BYTES_MAX: u64 = 64 << 10;

/// A slapd.d that this process uses; no other process does until it is dropped.
#[derive(Debug)]
pub struct InUse {
    /// None where there can be no lock.
    file: Option<File>,
    /// [`BELOW_TOP`] or [`DIRECTORY_OF_ENTRIES`], if that could be locked.
    directory: Option<File>,
}

impl Drop for InUse {
    /// Closing the files would do, were it not for children between fork and exec on other threads, which hold them, too.
    fn drop(&mut self) {
        for file in self.file.iter().chain(&self.directory) {
            // The lock goes with the process at the latest.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

/// Another process that uses a slapd.d.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub process: Option<u32>,
    /// Where it listens; none for a tool.
    pub urls: Vec<String>,
    /// The flags by which clients reach a server as an identity that may change its cn=config.
    flags: String,
}

impl User {
    /// What stands in the file: process id and flags, and each URL on a line of its own.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let process = lines.next().and_then(|line| line.trim().parse().ok());
        let flags = lines.next().unwrap_or_default().to_owned();
        Self { process, flags, urls: lines.map(str::to_owned).collect() }
    }

    /// `process N`.
    pub fn process(&self) -> String {
        self.process.map_or_else(|| "another process".to_owned(), |process| format!("process {process}"))
    }
}

/// What a server says of itself: [`client_flags`], and its URLs.
fn lines_of_server(config: &Config, urls: &[String]) -> Vec<String> {
    [client_flags(config, urls)].into_iter().chain(urls.iter().cloned()).collect()
}

/// The flags of `larix modify` for a change of this configuration through a server at one of `urls`.
fn client_flags(config: &Config, urls: &[String]) -> String {
    let with = |scheme: &str| urls.iter().find(|url| url.to_ascii_lowercase().starts_with(scheme));
    let url = with("ldapi:").or_else(|| with("ldap:")).or_else(|| urls.first()).map_or("URL", String::as_str);
    let own = config.databases.iter().find(|database| database.kind.is_config());
    let root = own.and_then(|database| database.root_dn.as_ref()).map_or("cn=config", |dn| &dn.text);
    let has_password = config.databases.iter().any(|database| {
        let is_own = database.kind.is_config();
        let is_root = database.root_dn.as_ref().is_some_and(|dn| dn.text == root);
        database.root_password.is_some() && (is_own || is_root)
    });
    if with("ldapi:").is_some() && !has_password {
        // The kernel says who asks there, and the access rules let root in.
        return format!("-H {url}");
    }
    let quote = if root.contains([' ', '\'', '$']) { "\"" } else { "" };
    format!("-H {url} -D {quote}{root}{quote} -W")
}

impl InUse {
    /// For a server that runs with this configuration and listens on `urls`; none where that is in no slapd.d. What a tool changed
    /// since the configuration was read is in it then: from here on no tool does.
    ///
    /// # Errors
    /// Names the process that uses it; what a tool made of it cannot be read or served.
    pub fn by_server(config: &mut Config, urls: &[String]) -> Result<Option<Self>, ConfigError> {
        let Source::Directory(directory) = &config.source else { return Ok(None) };
        let directory = directory.clone();
        let lines = lines_of_server(config, urls);
        let taken = Self::take(&directory, (LOCK_FILE, BELOW_TOP), &lines).map_err(|user| {
            let message = format!("`{}` is in use by {}", directory.display(), user.process());
            ConfigError::new(Origin::BuiltIn, message).with_help(
                "one server runs with a configuration: stop that one first, or name another directory",
            )
        })?;
        if read_again(config, &directory)? {
            if let Some(refusal) = config.refusals().into_iter().next() {
                return Err(refusal);
            }
            taken.say(&lines_of_server(config, urls));
        }
        Ok(Some(taken))
    }

    /// For a tool that changes it.
    ///
    /// # Errors
    /// A server runs with it, or another tool changes it: says how to go about it instead.
    pub fn by_tool(directory: &Path) -> Result<Self, ConfigError> {
        Self::take(directory, (LOCK_FILE, BELOW_TOP), &[]).map_err(|user| {
            let (directory, process) = (directory.display(), user.process());
            if user.process.is_none() {
                let message =
                    format!("`{directory}` is in use, and its {LOCK_FILE} does not say by which server or tool");
                return ConfigError::new(Origin::BuiltIn, message).with_help(format!(
                    "`fuser {directory}/{BELOW_TOP}` says which: change cn=config through the server with \
                     `larix modify`, or stop that process first"
                ));
            }
            if user.urls.is_empty() {
                let message = format!("`{directory}` is being changed by {process}");
                return ConfigError::new(Origin::BuiltIn, message).with_help("wait until that has ended");
            }
            let flags = user.flags;
            ConfigError::new(
                Origin::BuiltIn,
                format!("nothing was changed: a server runs with `{directory}` ({process}), and would not know of it"),
            )
            .with_help(format!(
                "change cn=config through the server: `larix modify {flags} -f changes.ldif`, or `larix config apply \
                 {flags} FILE`; or stop the server first"
            ))
        })
    }

    /// For a process that serves or changes the files of a `database ldif`.
    ///
    /// # Errors
    /// Names the process that does already.
    pub fn of_entries(directory: &Path) -> Result<Self, ConfigError> {
        let refused = |user: User| {
            let path = directory.display();
            let which = match user.process {
                Some(_) => String::new(),
                None => format!(" (`fuser {path}` says which)"),
            };
            let message = format!("`{path}` is in use by {}{which}", user.process());
            ConfigError::new(Origin::BuiltIn, message).with_help(
                "one process works on these files: change the entries through the server, or stop it first",
            )
        };
        let locks = (LOCK_FILE_OF_ENTRIES, DIRECTORY_OF_ENTRIES);
        let taken = Self::take(directory, locks, &[]).map_err(refused)?;
        // A tool that reads the files before the first change finds this file, and can keep that change out meanwhile.
        let _ = open_lock_file(directory, CHANGE_LOCK_FILE);
        Ok(taken)
    }

    /// `lines` are what the file says beside the process. `locked` is a directory that is locked, too, if it is there.
    fn take(directory: &Path, (name, locked): (&str, &str), lines: &[String]) -> Result<Self, User> {
        let Some(file) = open_lock_file(directory, name) else {
            return Ok(Self { file: None, directory: None });
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(user(&file)),
            // A file system without locks has to do without.
            Err(_) => return Ok(Self { file: None, directory: None }),
        }
        let mut taken = Self { file: Some(file), directory: None };
        if let Ok(locked) = File::open(directory.join(locked)) {
            match rustix::fs::flock(&locked, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => taken.directory = Some(locked),
                // That one's lock file was removed, and what it said with it.
                Err(Errno::WOULDBLOCK) => return Err(User::default()),
                Err(_) => {}
            }
        }
        taken.say(lines);
        Ok(taken)
    }

    /// Writes who has the lock, which is a courtesy: a process that finds it taken reads that.
    fn say(&self, lines: &[String]) {
        let Some(mut file) = self.file.as_ref() else { return };
        let mut text = format!("{}\n", process::id());
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
    }
}

/// The server that runs with a slapd.d, if there is one.
pub fn server_of(directory: &Path) -> Option<User> {
    let file = File::open(directory.join(LOCK_FILE)).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(user(&file)).filter(|user| !user.urls.is_empty()),
        _ => None,
    }
}

/// The file, as the owner of the directory has his files; none where it cannot be had.
pub(super) fn open_lock_file(directory: &Path, name: &str) -> Option<File> {
    let path = directory.join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    if let Ok(file) = options.open(&path) {
        return Some(file);
    }
    let owner = fs::metadata(directory).ok()?;
    let file = options.create(true).truncate(false).open(&path).ok()?;
    // A process that may not change the owner owns the directory itself.
    let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
    Some(file)
}

fn user(file: &File) -> User {
    let mut text = String::new();
    // What cannot be read only costs the number.
    let _ = file.take(LOCK_FILE_BYTES_MAX).read_to_string(&mut text);
    User::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::super::super::change::fixture::TestSources;
    use super::super::super::load::convert;
    use super::super::{read_entries, write_entries};
    use super::*;

    fn config(directory: &Path, lines: &str) -> Config {
        let file = directory.join("slapd.conf");
        fs::write(&file, lines).unwrap();
        let mut config = Config::from_slapd_conf(&file).unwrap();
        config.source = Source::Directory(directory.to_owned());
        config
    }

    fn refused<T>(done: Result<T, ConfigError>) -> String {
        done.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn one_uses_it_and_the_others_are_told_who_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path();
        assert_eq!(server_of(directory), None);
        let urls = ["ldap://127.0.0.1:3890".to_owned(), "ldapi://%2Frun%2Fldapi".to_owned()];
        let process = format!("process {}", process::id());
        let administrator = "database config\nrootdn \"cn=the admin,cn=x\"\n\
            database null\nsuffix cn=x\nrootdn \"cn=the admin,cn=x\"\nrootpw secret\n";
        for (lines, urls, flags) in [
            ("", &urls[..], "-H ldapi://%2Frun%2Fldapi"),
            ("", &urls[..1], "-H ldap://127.0.0.1:3890 -D cn=config -W"),
            ("database config\nrootpw secret\n", &urls, "-H ldapi://%2Frun%2Fldapi -D cn=config -W"),
            (administrator, &urls[..1], "-H ldap://127.0.0.1:3890 -D \"cn=the admin,cn=x\" -W"),
        ] {
            let mut config = config(directory, lines);
            let server = InUse::by_server(&mut config, urls).unwrap();
            assert_eq!(server_of(directory).map(|user| user.process()), Some(process.clone()));
            let second = refused(InUse::by_server(&mut config, &[]));
            assert!(second.contains(&process) && second.contains("stop that one"), "{second}");
            let tool = refused(InUse::by_tool(directory));
            assert!(tool.contains(&format!("larix config apply {flags} FILE")), "{flags}: {tool}");
            drop(server);
        }

        let first = InUse::by_tool(directory).unwrap();
        assert_eq!(server_of(directory), None, "a tool is no server");
        assert!(refused(InUse::by_tool(directory)).contains("being changed"));
        drop(first);
        InUse::by_tool(directory).unwrap();
    }

    /// A slapd.d with a `database config` that has a password.
    fn slapd_d() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "database config\nrootpw secret\n");
        convert(&config, folder.path(), &TestSources::new().stamp()).unwrap();
        folder
    }

    /// A server has read the configuration before it knows where it listens.
    #[test]
    fn what_a_tool_changes_before_the_server_has_the_lock_is_in_force() {
        let folder = slapd_d();
        let directory = folder.path();
        let mut config = Config::from_slapd_d(directory).unwrap();
        let server = InUse::by_server(&mut config, &[]).unwrap();
        assert_eq!(config.global.idle_timeout, 0);
        drop(server);

        let tool = InUse::by_tool(directory).unwrap();
        let mut top = read_entries(directory).unwrap().0.swap_remove(0);
        assert_eq!(top.dn, "cn=config");
        top.text("olcIdleTimeout", "7");
        write_entries(directory, &[top], &TestSources::new().stamp()).unwrap();
        drop(tool);

        let server = InUse::by_server(&mut config, &[]).unwrap();
        assert_eq!(config.global.idle_timeout, 7);
        assert!(refused(InUse::by_tool(directory)).contains("being changed"), "no URL was given");
        drop(server);
    }

    #[test]
    fn where_the_lock_file_is_removed_the_directory_is_in_use_all_the_same() {
        let folder = slapd_d();
        let directory = folder.path();
        let mut config = Config::from_slapd_d(directory).unwrap();
        let server = InUse::by_server(&mut config, &["ldap://127.0.0.1:3890".to_owned()]).unwrap();
        for _ in 0..2 {
            fs::remove_file(directory.join(LOCK_FILE)).unwrap();
            let tool = refused(InUse::by_tool(directory));
            assert!(tool.contains("is in use") && tool.contains("fuser"), "{tool}");
            let second = refused(InUse::by_server(&mut config, &[]));
            assert!(second.contains("in use by another process"), "{second}");
        }
        drop(server);
        InUse::by_tool(directory).unwrap();
    }

    #[test]
    fn one_process_works_on_the_files_of_entries() {
        let folder = tempfile::tempdir().unwrap();
        let first = InUse::of_entries(folder.path()).unwrap();
        let second = refused(InUse::of_entries(folder.path()));
        assert!(second.contains(&format!("in use by process {}", process::id())), "{second}");
        for _ in 0..2 {
            fs::remove_file(folder.path().join(LOCK_FILE_OF_ENTRIES)).unwrap();
            let second = refused(InUse::of_entries(folder.path()));
            assert!(second.contains("in use by another process (`fuser "), "{second}");
        }
        drop(first);
        InUse::of_entries(folder.path()).unwrap();
        assert!(folder.path().join(CHANGE_LOCK_FILE).exists(), "readers lock it");
        InUse::of_entries(Path::new("/proc/self")).unwrap();
    }

    #[test]
    fn where_nothing_can_be_written_there_is_no_lock() {
        InUse::by_tool(Path::new("/proc/self")).unwrap();
        InUse::by_tool(Path::new("/nowhere")).unwrap();
    }
}
