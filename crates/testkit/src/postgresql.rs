//! A real PostgreSQL behind a socket of its own, in a directory of its own, ended by its process id.

#![allow(clippy::disallowed_methods, reason = "waits until another process answers")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use tempfile::TempDir;

use crate::pki::{Authority, Issued};
use crate::ports::free_port;
use crate::process::{Signal, freeze, signal};

const START_SECONDS: u64 = 180;

/// The engine refuses to run as root.
const NOBODY: u32 = 65_534;

/// The server and its directory, which goes with it.
#[derive(Debug)]
pub struct Engine {
    directory: TempDir,
    programs: PathBuf,
    server: Option<Child>,
    databases: AtomicU32,
    port: u16,
}

/// Copies a directory with owners and modes.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status().expect("cp");
    assert!(status.success(), "cp: {status}");
}

/// Where it listens unless it is said.
const PORT: u16 = 5_432;

impl Engine {
    /// None where PostgreSQL is not installed; the run says so.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with lines for its settings.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn start_with(settings: &[&str]) -> Option<Self> {
        Self::start_at(PORT, settings, |_| {})
    }

    /// The same on a port of loopback, too, with TLS by a certificate, and clients' certificates by those of `authority`. Who
    /// comes over the network needs TLS; the user `certified` needs a certificate with this name.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn start_with_tls(issued: &Issued, authority: &Authority) -> Option<Self> {
        let settings = [
            "listen_addresses = '127.0.0.1'",
            "ssl = on",
            "ssl_cert_file = '../tls.pem'",
            "ssl_key_file = '../tls.key'",
            "ssl_ca_file = '../clients.pem'",
        ];
        Self::start_at(free_port(), &settings, |engine| {
            engine.write_own("clients.pem", &authority.certificate());
            engine.write_certificate(issued);
            let rules = "local all all trust\nhostssl all larix all trust\nhostssl all certified all cert\n";
            fs::write(engine.data().join("pg_hba.conf"), rules).expect("rules");
        })
    }

    fn start_at(port: u16, settings: &[&str], prepare: impl FnOnce(&Self)) -> Option<Self> {
        if crate::packages::POSTGRESQL.is_lacking() {
            return None;
        }
        let package = crate::packages::POSTGRESQL;
        let installed = || package.files().first()?.parent().map(Path::to_owned);
        let programs = package.named().or_else(installed).expect("a directory");
        // The path of a socket has about a hundred bytes.
        let directory = tempfile::Builder::new().prefix("kv").tempdir_in("/tmp").expect("a directory");
        if is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
        }
        let mut engine = Self { directory, programs, server: None, databases: AtomicU32::new(0), port };
        engine.initialize();
        let mut text = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 100\nlogging_collector = off\n\
             port = {port}\n",
            engine.directory.path().display()
        );
        for setting in settings {
            text.push_str(setting);
            text.push('\n');
        }
        let file = engine.data().join("postgresql.conf");
        fs::write(&file, [fs::read_to_string(&file).expect("its settings"), text].concat())
            .expect("settings");
        prepare(&engine);
        engine.run();
        Some(engine)
    }

    /// Makes the files of an empty server. initdb takes a second of a processor, and a copy of what it makes a tenth of that: the first
    /// engine leaves one among what cargo builds, for all test programs.
    fn initialize(&self) {
        let template = self.template();
        if template.is_dir() {
            return copy(&template, &self.data());
        }
        // No test cuts off the power, and all others wait for a disk that forty megabytes are made safe on.
        let status = self
            .command("initdb")
            .args(["--auth=trust", "--username=larix", "--encoding=UTF8", "--no-locale", "--no-sync", "-D"])
            .arg(self.data())
            .stdout(Stdio::null())
            .status()
            .expect("initdb");
        assert!(status.success(), "initdb: {status}");
        let made = tempfile::tempdir_in(template.parent().expect("a folder")).expect("a directory");
        copy(&self.data(), &made.path().join("data"));
        // Where another test was faster, its copy stays.
        let _ = fs::rename(made.path().join("data"), &template);
    }

    /// Where the copy is, of these programs and for this user.
    fn template(&self) -> PathBuf {
        let built = std::env::current_exe().expect("a program");
        let version = fs::metadata(self.programs.join("postgres")).and_then(|file| file.modified());
        let since = version.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let user = if is_root() { "root" } else { "user" };
        let programs = self.programs.to_string_lossy().replace('/', "-");
        let name = format!("postgresql{programs}-{}-{user}", since.as_nanos());
        built.parent().expect("a folder").join(name)
    }

    /// A file that only the server reads.
    fn write_own(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
        if is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY)).expect("chown");
        }
    }

    fn write_certificate(&self, issued: &Issued) {
        self.write_own("tls.pem", &issued.certificate);
        self.write_own("tls.key", &issued.key);
    }

    /// Gives it another certificate; it takes it up soon.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn certify(&self, issued: &Issued) {
        self.write_certificate(issued);
        self.signal("HUP");
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.directory.path()).stderr(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Starts the server and waits until it accepts clients.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn run(&mut self) {
        let log = fs::File::create(self.directory.path().join("log")).expect("a log");
        let server =
            self.command("postgres").arg("-D").arg(self.data()).stderr(log).stdout(Stdio::null()).spawn();
        self.server = Some(server.expect("postgres"));
        let until = Instant::now() + Duration::from_secs(START_SECONDS);
        while self.sql("postgres", "SELECT 1").is_none() {
            assert!(Instant::now() < until, "{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it does not run.
    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    /// Sends a signal to the server: QUIT ends it at once with all its connections, as a crash does.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(format!("-{signal}")).arg(self.pid().to_string()).status();
        assert!(status.expect("kill").success());
    }

    /// Ends the server as a crash would.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn crash(&mut self) {
        self.signal("QUIT");
        let mut server = self.server.take().expect("it runs");
        server.wait().expect("its end");
    }

    /// Adds a line to the settings, for the next start.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn setting(&self, line: &str) {
        let file = self.data().join("postgresql.conf");
        let text = fs::read_to_string(&file).expect("its settings");
        fs::write(&file, format!("{text}{line}\n")).expect("settings");
    }

    /// What psql prints, or none if it fails.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn sql(&self, database: &str, text: &str) -> Option<String> {
        let output = self
            .command("psql")
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "larix", "-d", database, "-c", text, "-h"])
            .arg(self.directory.path())
            .args(["-p", &self.port.to_string()])
            .output()
            .expect("psql");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// A new database: its name and its address.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn database(&self) -> (String, String) {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}")).expect("a database");
        (name.clone(), self.address(&name))
    }

    /// The address of a database, with a password that is not looked at.
    pub fn address(&self, database: &str) -> String {
        let socket = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgresql://larix:never-shown@{socket}:{}/{database}", self.port)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has the server and all its processes do nothing until [`Self::go_on`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn hang(&self) {
        // The one that starts the others is the first: none comes behind the look for them.
        freeze(self.pid());
        self.children().into_iter().for_each(freeze);
    }

    /// The opposite of [`Self::hang`].
    ///
    /// # Panics
    /// When it does not run.
    pub fn go_on(&self) {
        for process in self.children().into_iter().chain([self.pid()]) {
            // A child may have ended meanwhile.
            let _ = signal(process, Signal::CONT);
        }
    }

    fn children(&self) -> Vec<u32> {
        let children = Command::new("pgrep").args(["-P", &self.pid().to_string()]).output().expect("pgrep");
        let text = String::from_utf8_lossy(&children.stdout);
        text.split_whitespace().filter_map(|process| process.parse().ok()).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _stopped = Command::new("kill").args(["-CONT", &server.id().to_string()]).status();
            let _ended = Command::new("kill").args(["-QUIT", &server.id().to_string()]).status();
            let _status = server.wait();
        }
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(Path::new("/proc/self")).expect("our own process").uid() == 0
}
