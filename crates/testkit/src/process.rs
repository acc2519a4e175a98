//! Directory servers as child processes: Larix, and Debian's slapd as the peer.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use larix_packages::SLAPD;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

pub use crate::ports::{free_port, free_ports};
use crate::waiting::until;

/// How long a server may take until it accepts connections, in steps of [`STEP`].
const START_STEPS: u32 = 6_000;
const STEP: Duration = Duration::from_millis(10);
/// How long a server may take until it has stopped, in steps of [`STOP_STEP`].
const STOP_STEPS: u32 = 60_000;
const STOP_STEP: Duration = Duration::from_millis(2);
/// In a URL: whichever port is free.
const ANY_PORT: &str = ":0/";

/// What a program has printed, its errors last.
pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Which server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Larix,
    Slapd,
}

impl Kind {
    /// The program, or `None` when it is not installed. `LARIX` and `SLAPD` in the environment name others.
    pub fn program(self) -> Option<PathBuf> {
        let (variable, usual) = match self {
            Self::Larix => ("LARIX", built_binary()),
            Self::Slapd => ("SLAPD", SLAPD.files().into_iter().next()),
        };
        std::env::var_os(variable).map(PathBuf::from).or(usual).filter(|program| program.exists())
    }

    /// Whether a test has to do without slapd, because it is not installed: then this says that the test skips what needs it.
    /// Never of Larix, which `cargo xtask test` builds.
    pub fn is_lacking(self) -> bool {
        self == Self::Slapd && SLAPD.is_lacking()
    }

    /// Whether a test has to do without slapd, or without a module of it such as `back_ldap`: then this says so, too.
    pub fn is_lacking_module(self, name: &str) -> bool {
        let folder =
            std::env::var_os("SLAPD_MODULES").map_or_else(|| PathBuf::from("/usr/lib/ldap"), PathBuf::from);
        self == Self::Slapd && SLAPD.is_lacking_file(&folder.join(format!("{name}.la")))
    }

    /// What to do where the program is missing.
    fn lack(self) -> &'static str {
        match self {
            Self::Larix => {
                "larix is not built (`cargo xtask test` builds it), or what LARIX names is missing"
            }
            Self::Slapd => "slapd is not installed, or what SLAPD names is missing",
        }
    }

    /// A command that acts as slapd's tool `tool` (`add`, `cat`, `index` ...).
    ///
    /// # Panics
    /// When the program is not installed.
    pub fn tool(self, tool: &str) -> Command {
        let program = self.program().unwrap_or_else(|| panic!("{}", self.lack()));
        let mut command = Command::new(program);
        match self {
            Self::Larix => command.arg(tool),
            Self::Slapd => command.arg(format!("-T{tool}")),
        };
        command
    }
}

/// `target/PROFILE/larix`, two folders above the test's own binary.
fn built_binary() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    Some(test.parent()?.parent()?.join("larix"))
}

/// Why a server did not start, with what it printed.
#[derive(Debug)]
pub struct StartError {
    pub reason: String,
    pub log: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.reason, self.log)
    }
}

impl std::error::Error for StartError {}

/// A process that is killed when this is dropped: a test that fails leaves none behind.
#[derive(Debug)]
pub struct Running(pub Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running server; it is stopped when dropped.
#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    pub address: SocketAddr,
    /// Where it listens, in the order of its URLs; after them its other output about itself.
    pub ports: Vec<u16>,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts `kind` with the slapd.conf or the slapd.d at `configuration` on a free loopback port and waits until it accepts.
    /// What it prints goes to `KIND.log` beside the configuration.
    ///
    /// # Errors
    /// The server ended, or accepted nothing for a minute.
    pub fn start(kind: Kind, configuration: &Path) -> Result<Self, StartError> {
        Self::start_with(kind, configuration, &[], &[])
    }

    /// As [`Server::start`], with further arguments and more in its environment.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        kind: Kind,
        configuration: &Path,
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self, StartError> {
        if kind == Kind::Slapd {
            return Self::start_in(kind, configuration, free_port(), arguments, environment);
        }
        // A port that was free may be taken by the time the server binds it, by another test's server at that: the
        // kernel chooses, and the server tells.
        let port_file = configuration.with_extension("port");
        let _ = std::fs::remove_file(&port_file);
        let file = port_file.display().to_string();
        let arguments: Vec<&str> =
            ["--port-file", &file].into_iter().chain(arguments.iter().copied()).collect();
        let mut server = Self::spawn(kind, configuration, 0, &arguments, environment)?;
        server.wait_for_port(&port_file)?;
        Ok(server)
    }

    /// As [`Server::start_with`], on these URLs of the loopback interface. Port 0 stands for one that is free:
    /// [`Server::ports`] has them.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_on(
        kind: Kind,
        configuration: &Path,
        urls: &[&str],
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self, StartError> {
        if kind == Kind::Larix {
            let listen = urls.join(" ");
            let arguments = [&["-h", listen.as_str()], arguments].concat();
            return Self::start_with(kind, configuration, &arguments, environment);
        }
        // It does not report which ports the kernel gave it.
        let mut ports =
            free_ports(urls.iter().filter(|url| url.contains(ANY_PORT)).count()).into_iter().peekable();
        let mut chosen = Vec::new();
        let listen = urls.iter().map(|url| match ports.next_if(|_| url.contains(ANY_PORT)) {
            Some(port) => {
                chosen.push(port);
                url.replace(ANY_PORT, &format!(":{port}/"))
            }
            None => (*url).to_owned(),
        });
        let listen = listen.collect::<Vec<_>>().join(" ");
        let first = chosen.first().copied().unwrap_or_default();
        let arguments = [&["-h", listen.as_str()], arguments].concat();
        let mut server = Self::start_in(kind, configuration, first, &arguments, environment)?;
        server.ports = chosen;
        Ok(server)
    }

    /// As [`Server::start`], on a given port and with further arguments; with `-h` among them, the port must be one of
    /// its URLs'.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_at(
        kind: Kind,
        configuration: &Path,
        port: u16,
        arguments: &[&str],
    ) -> Result<Self, StartError> {
        Self::start_in(kind, configuration, port, arguments, &[])
    }

    /// As [`Server::start_at`], with more in its environment.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_in(
        kind: Kind,
        configuration: &Path,
        port: u16,
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self, StartError> {
        if kind == Kind::Slapd || arguments.contains(&"--port-file") {
            let mut server = Self::spawn(kind, configuration, port, arguments, environment)?;
            server.wait_until_it_accepts()?;
            return Ok(server);
        }
        // Where the port is taken, its owner accepts connections, too: the server says that it has bound its own.
        let port_file = configuration.with_extension("port");
        let _ = std::fs::remove_file(&port_file);
        let file = port_file.display().to_string();
        let arguments = [&["--port-file", file.as_str()], arguments].concat();
        let mut server = Self::spawn(kind, configuration, port, &arguments, environment)?;
        server.wait_for_file(&port_file)?;
        server.wait_until_it_accepts()?;
        Ok(server)
    }

    fn spawn(
        kind: Kind,
        configuration: &Path,
        port: u16,
        arguments: &[&str],
        environment: &[(&str, &Path)],
    ) -> Result<Self, StartError> {
        let fail = |reason: String| StartError { reason, log: String::new() };
        let program = kind.program().ok_or_else(|| fail(kind.lack().to_owned()))?;
        let log = configuration.with_extension(format!("{kind:?}.log"));
        let output = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let output = output.map_err(|error| fail(format!("{}: {error}", log.display())))?;
        let mut command = Command::new(program);
        if kind == Kind::Larix {
            command.arg("serve");
        }
        // slapd takes -h once: arguments that have their own listen there, too.
        if !arguments.contains(&"-h") {
            command.args(["-h", &format!("ldap://127.0.0.1:{port}/")]);
        }
        let child = command
            .args(["-d", "0", if configuration.is_dir() { "-F" } else { "-f" }])
            .arg(configuration)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(|error| fail(format!("cannot start {kind:?}: {error}")))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { kind, address, ports: vec![port], child, log })
    }

    fn wait_for_port(&mut self, file: &Path) -> Result<(), StartError> {
        let text = self.wait_for_file(file)?;
        self.ports = text.lines().filter_map(|line| line.parse().ok()).collect();
        self.ports.first().into_iter().for_each(|port| self.address.set_port(*port));
        self.wait_until_it_accepts()
    }

    /// The file appears whole once the server has bound its ports.
    fn wait_for_file(&mut self, file: &Path) -> Result<String, StartError> {
        for _ in 0..START_STEPS {
            if let Ok(text) = std::fs::read_to_string(file) {
                return Ok(text);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let reason = format!("{:?} ended: {status}", self.kind);
                return Err(StartError { reason, log: self.log() });
            }
            std::thread::park_timeout(STEP);
        }
        let reason = format!("{:?} did not say which port it has", self.kind);
        Err(StartError { reason, log: self.log() })
    }

    fn wait_until_it_accepts(&mut self) -> Result<(), StartError> {
        for _ in 0..START_STEPS {
            if TcpStream::connect_timeout(&self.address, STEP).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(StartError {
                    reason: format!("{:?} ended: {status}", self.kind),
                    log: self.log(),
                });
            }
            std::thread::park_timeout(STEP);
        }
        let reason = format!("{:?} accepts no connection at {}", self.kind, self.address);
        Err(StartError { reason, log: self.log() })
    }

    /// What the server printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server as `kill -9` does and waits until it is gone.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the server to stop and waits; says whether it ended cleanly. One that goes on for two minutes did not.
    pub fn stop(mut self) -> bool {
        self.terminate();
        for _ in 0..STOP_STEPS {
            match self.child.try_wait() {
                Ok(None) => std::thread::park_timeout(STOP_STEP),
                ended => return ended.is_ok_and(|status| status.is_some_and(|status| status.success())),
            }
        }
        eprintln!("{:?} goes on after SIGTERM:\n{}", self.kind, self.log());
        false
    }

    fn terminate(&self) {
        signal(self.child.id(), Signal::TERM);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Has a process that a test started do nothing until [`Signal::CONT`] is sent to it, and waits until all its threads have stopped:
/// on a busy machine that takes a moment. One that has ended does nothing, too.
///
/// # Panics
/// It goes on.
pub fn freeze(process: u32) {
    // It may have ended.
    let _ = signal(process, Signal::STOP);
    until("the process has stopped", || {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return true };
        threads.flatten().all(|thread| {
            let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // Behind the name, which is in parentheses. A thread without a state has ended.
            state.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 'Z', 'X']))
        })
    });
}

/// Sends a signal to a process that a test started; says whether the process was there.
pub fn signal(process: u32, signal: Signal) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}
