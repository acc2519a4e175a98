//! The servers that are compared: programs that are started on generated data, and servers that are given by URL.

mod configuration;
mod detect;
mod guard;
mod process;
mod redis;
mod session;
mod syslog;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

pub use configuration::Database;
pub(crate) use configuration::{Paths, configuration};
pub use guard::Guard;
pub use process::ToolCost;
pub(crate) use process::{Running, Start, run_tool};
pub use redis::Redis;
pub(crate) use redis::Shape;
pub(crate) use session::Session;
pub use syslog::LogLevel;
pub(crate) use syslog::SyslogSink;

/// The program at `path`, or where it usually is. `packages`: which have it, for who has none.
fn installed(name: &str, path: Option<&Path>, places: &[&str], packages: &str) -> anyhow::Result<PathBuf> {
    match path {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => bail!("there is no {name} at {}. {packages}", path.display()),
        None => {
            let found = places.iter().map(Path::new).find(|place| place.is_file());
            let nowhere = || format!("no {name} is installed (looked for {}). {packages}", places.join(", "));
            Ok(found.with_context(nowhere)?.to_owned())
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Short and unlike the others': a column head.
    pub name: String,
    pub version: String,
    pub access: Access,
}

/// How a peer is reached.
#[derive(Clone, Debug)]
pub enum Access {
    /// A program that is configured, loaded, started and stopped here.
    Program(Program),
    /// A server that runs already and holds the scenario's data.
    Given(Given),
}

/// A server program that takes slapd's flags.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    /// What stands before the flags of the server: `serve` for Larix.
    pub serve: &'static [&'static str],
    /// What stands before the flags of the offline loader: `add`, or `-Tadd`.
    pub add: &'static [&'static str],
    /// Lines that its slapd.conf needs first: where its modules lie and which to load.
    pub preamble: String,
}

/// A running server.
#[derive(Clone, Debug)]
pub struct Given {
    pub url: String,
    pub address: SocketAddr,
    /// The DN that holds the data in place of the scenario's own; none when they are the same.
    pub base: Option<String>,
    /// The identity that may write; none leaves out what has to write.
    pub bind: Option<(String, String)>,
    /// Its process on this machine, for CPU time and memory.
    pub process: Option<u32>,
}

impl Given {
    /// Connects and binds, so that a server that is not there is found before anything is measured.
    ///
    /// # Errors
    /// No connection, or the bind is refused.
    pub fn check(&self) -> anyhow::Result<()> {
        Session::open(self.address, self.bind.as_ref()).map(drop).with_context(|| self.url.clone())
    }
}

impl Peer {
    /// Larix itself, by the path of its binary.
    pub fn larix(path: PathBuf, version: &str) -> Self {
        let program = Program { path, serve: &["serve"], add: &["add"], preamble: String::new() };
        Self { name: "larix".into(), version: version.to_owned(), access: Access::Program(program) }
    }

    /// How it is started, or its URL: a line of the report.
    pub fn flags(&self) -> String {
        match &self.access {
            Access::Program(program) => {
                // Larix is this program wherever it lies; of slapd there may be several.
                let name = if program.serve.is_empty() {
                    program.path.display().to_string()
                } else {
                    "larix".into()
                };
                let serve: String = program.serve.iter().map(|word| format!(" {word}")).collect();
                format!("{name}{serve} -d 0 -f slapd.conf, every commit synced")
            }
            Access::Given(given) => given.url.clone(),
        }
    }
}

impl Program {
    /// A command that loads `ldif` into the database with `suffix`, without a server.
    pub(crate) fn load_command(&self, configuration: &Path, suffix: &str, ldif: &Path) -> Command {
        let mut command = Command::new(&self.path);
        // -q: as the source documents loaded, without checks that a generator's output does not need.
        command.args(self.add).args(["-q", "-b", suffix, "-f"]).arg(configuration).arg("-l").arg(ldif);
        command
    }

    /// A command that serves in the foreground.
    pub(crate) fn serve_command(&self, configuration: &Path, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.path);
        command.args(self.serve).args(["-d", "0", "-f"]).arg(configuration);
        command.args(["-h", &format!("ldap://{address}/")]);
        command
    }
}
