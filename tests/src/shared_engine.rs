//! A configuration with `database kv` in place of `database mdb`, and its entries in a PostgreSQL or an etcd.

use std::time::Duration;

use larix_testkit::etcd::Etcd;
use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site};

use crate::sections::{is_one_of, sections};

/// Directives of `database mdb` that `database kv` does not have.
const OF_FILES: [&str; 11] = [
    "checkpoint",
    "dbnosync",
    "directory",
    "envflags",
    "maxreaders",
    "maxsize",
    "mode",
    "multival",
    "recycle-rtxn",
    "rtxnsize",
    "searchstack",
];
/// A server on a busy machine keeps its lease.
const LEASE_SECONDS: u32 = 120;
/// How often a server is looked at until it writes: three minutes.
const LOOKS: usize = 9_000;
const PAUSE: Duration = Duration::from_millis(20);

/// An engine of either kind.
#[derive(Debug)]
pub enum AnyEngine {
    PostgreSql(Engine),
    Etcd(Etcd),
}

impl AnyEngine {
    /// A PostgreSQL, or an etcd where the variable of the environment says `etcd`. `None` where it is not installed.
    ///
    /// # Panics
    /// When the variable names another one.
    pub fn start(variable: &str) -> Option<Self> {
        match std::env::var(variable).as_deref() {
            Ok("etcd") => Etcd::start().map(Self::Etcd),
            Ok("postgresql") | Err(_) => Engine::start_with(&["max_connections = 400"]).map(Self::PostgreSql),
            Ok(other) => panic!("{variable} is postgresql or etcd, not {other}"),
        }
    }

    /// The address of a place in it that nobody has used.
    fn place(&self) -> String {
        match self {
            Self::PostgreSql(engine) => engine.database().1,
            Self::Etcd(etcd) => etcd.prefix(),
        }
    }
}

/// A configuration whose stored databases are in an engine.
#[derive(Debug)]
pub struct OnEngine {
    site: Site,
    port: u16,
    /// How many of them there are.
    databases: usize,
}

impl OnEngine {
    /// `configuration`: the lines of slapd.conf below the schema, for Larix; `reads`: what `read-consistency` says.
    pub fn new(engine: &AnyEngine, configuration: &str, reads: &str) -> Self {
        let address = engine.place();
        let port = free_port();
        let (global, sections) = sections(configuration);
        let mut body = global.iter().map(|line| format!("{line}\n")).collect::<String>();
        let mut databases = 0;
        for section in &sections {
            if !section.is_stored() {
                section.lines.iter().for_each(|line| body += &format!("{line}\n"));
                continue;
            }
            let head = format!(
                "database kv\nengine {address}\nengine-schema s{databases}\nnode ldap://127.0.0.1:{port}\nlease {LEASE_SECONDS}\n\
                 read-consistency {reads}\n"
            );
            body += &head;
            let rest = section.lines.iter().skip(1).filter(|line| !is_one_of(line, &OF_FILES));
            rest.for_each(|line| body += &format!("{line}\n"));
            databases += 1;
        }
        Self { site: Site::new(Kind::Larix, &body), port, databases }
    }

    /// Why the server refuses the configuration, if it does.
    ///
    /// # Panics
    /// When the tool cannot be started.
    pub fn refusal(&self) -> Option<String> {
        let output = Kind::Larix.tool("test").arg("-f").arg(self.site.configuration()).output();
        let output = output.expect("larix test");
        let text = [output.stdout, output.stderr].concat();
        (!output.status.success()).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Starts the server, and waits until it writes.
    ///
    /// # Errors
    /// It does not start, or does not come to write.
    pub fn start(&self) -> Result<Server, String> {
        let server = Server::start_at(Kind::Larix, &self.site.configuration(), self.port, &["-d", "256"]);
        let server = server.map_err(|error| error.to_string())?;
        for _ in 0..LOOKS {
            if server.log().matches("this node writes now").count() >= self.databases {
                return Ok(server);
            }
            std::thread::park_timeout(PAUSE);
        }
        Err(format!("it does not write: {}", server.log()))
    }

    /// Loads entries: each LDIF into the database of a suffix, or into the first one.
    ///
    /// # Errors
    /// One of them is refused.
    ///
    /// # Panics
    /// When the tool cannot be started.
    pub fn load(&self, loads: &[(Option<String>, String)]) -> Result<(), String> {
        loads.iter().try_for_each(|(suffix, ldif)| self.site.try_load(suffix.as_deref(), ldif))
    }
}
