//! A configuration with `database kv` in place of `database mdb`, and its entries in a PostgreSQL or an etcd.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use larix_testkit::etcd::Etcd;
use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site};

use crate::sections::{OF_SCHEMA, is_one_of, sections, those_of};

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
/// The password of the root DN while entries are loaded.
const PASSWORD: &str = "secret";

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
    loading: Site,
    port: u16,
    /// First suffix and root DN of each.
    databases: Vec<(String, String)>,
}

impl OnEngine {
    /// `configuration`: the lines of slapd.conf below the schema, for Larix; `reads`: what `read-consistency` says.
    ///
    /// # Panics
    /// When a stored database has no suffix.
    pub fn new(engine: &AnyEngine, configuration: &str, reads: &str) -> Self {
        let address = engine.place();
        let port = free_port();
        let (global, sections) = sections(configuration);
        let mut body = global.iter().map(|line| format!("{line}\n")).collect::<String>();
        let mut loading = those_of(&global, &OF_SCHEMA);
        let mut databases = Vec::new();
        for section in &sections {
            if !section.is_stored() {
                section.lines.iter().for_each(|line| body += &format!("{line}\n"));
                continue;
            }
            let head = format!(
                "database kv\nengine {address}\nengine-schema s{}\nnode ldap://127.0.0.1:{port}\nlease {LEASE_SECONDS}\n\
                 read-consistency {reads}\n",
                databases.len()
            );
            body += &head;
            let rest = section.lines.iter().skip(1).filter(|line| !is_one_of(line, &OF_FILES));
            rest.for_each(|line| body += &format!("{line}\n"));
            let suffix = section.value("suffix").expect("a suffix");
            let root = section.value("rootdn").unwrap_or_else(|| format!("cn=loader,{suffix}"));
            loading += &format!("{head}suffix \"{suffix}\"\nrootdn \"{root}\"\nrootpw {PASSWORD}\n");
            let indexes = section.lines.iter().filter(|line| is_one_of(line, &["index"]));
            indexes.for_each(|line| loading += &format!("{line}\n"));
            databases.push((suffix, root));
        }
        let (site, loading) = (Site::new(Kind::Larix, &body), Site::new(Kind::Larix, &loading));
        Self { site, loading, port, databases }
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
        self.start_with(&self.site)
    }

    fn start_with(&self, site: &Site) -> Result<Server, String> {
        let server = Server::start_at(Kind::Larix, &site.configuration(), self.port, &["-d", "256"]);
        let server = server.map_err(|error| error.to_string())?;
        for _ in 0..LOOKS {
            if server.log().matches("this node writes now").count() >= self.databases.len() {
                return Ok(server);
            }
            std::thread::park_timeout(PAUSE);
        }
        Err(format!("it does not write: {}", server.log()))
    }

    /// Adds entries as the root DN: each to the database of a suffix, or to the first one.
    ///
    /// # Errors
    /// One of them is refused, or the server does not start.
    ///
    /// # Panics
    /// When the tool cannot be started.
    pub fn load(&self, loads: &[(Option<String>, String)]) -> Result<(), String> {
        if loads.is_empty() {
            return Ok(());
        }
        let server = self.start_with(&self.loading)?;
        for (suffix, ldif) in loads {
            let meant = |(own, _): &&(String, String)| {
                suffix.as_ref().is_none_or(|suffix| suffix.to_lowercase().ends_with(&own.to_lowercase()))
            };
            let (_, root) = self.databases.iter().find(meant).expect("a database of this suffix");
            let url = format!("ldap://127.0.0.1:{}", self.port);
            let mut adding = Kind::Larix
                .tool("modify")
                .args(["-a", "-x", "-M", "-e", "!relax", "-H", &url, "-D", root, "-w", PASSWORD])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("larix modify");
            adding.stdin.take().expect("its input").write_all(ldif.as_bytes()).expect("it reads");
            let output = adding.wait_with_output().expect("its end");
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        if server.stop() { Ok(()) } else { Err("the server did not stop cleanly".to_owned()) }
    }
}
