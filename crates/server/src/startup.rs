//! How the server starts and how it stops.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use larix_configuration::slapd_d::InUse;
use larix_configuration::values::AdminAddress;
use larix_configuration::{Config, ConfigError};
use larix_engine::time::Clock;
use larix_store::lmdb;
use tokio::signal::unix::{SignalKind, signal};

use crate::acceptor::Acceptor;
use crate::admin::{self, AdminListener};
use crate::balancer::{BalancerError, ServerTls};
use crate::clock::SystemClock;
use crate::daemon::{DaemonError, Privileges, ProcessFiles, Readiness};
use crate::databases::{Databases, OpenError};
use crate::hardening;
use crate::harness::{Harness, HarnessError};
use crate::http::{self, HttpListenError, HttpListener};
use crate::ldif_tree;
use crate::listener::{
    AddressFamily, DEFAULT_BACKLOG, ListenError, ListenSocket, ListenUrl, Listener, SocketPath,
};
use crate::live::ConfigurationThread;
use crate::log::{Log, LogCall, LogFileError, LogLevel, LogSettings, LogThread};
use crate::replication;
use crate::server::Server;
use crate::services::{Services, cores};
use crate::statistics::ListenerInfo;
use crate::tls::{TlsError, TlsState};
use crate::tool_socket::ToolSockets;
use crate::upkeep::{self, BackupThread, TlsFiles};
use crate::watchdog;
use crate::worker::Worker;

/// What the command line says, beside the configuration.
#[derive(Debug)]
pub struct ServeOptions {
    /// `-h`, parsed.
    pub urls: Vec<ListenUrl>,
    /// `-4`, `-6`.
    pub family: AddressFamily,
    /// `-d`: stay in the foreground and write these levels to standard error.
    pub debug: Option<u32>,
    /// `-s`: levels for syslog, instead of the configuration's.
    pub syslog_levels: Option<u32>,
    /// `-l`: syslog's facility.
    pub syslog_facility: u32,
    /// `-n`: the name in syslog and messages.
    pub program: String,
    /// Event loops; `None`: one a core.
    pub workers: Option<usize>,
    /// Where metrics and health are answered, beside the configuration's `http-listener`.
    pub http: Vec<SocketAddr>,
    /// Where the admin page is served, beside the configuration's `admin-listener`.
    pub admin: Vec<AdminAddress>,
    /// The ports that were bound are written here, one a line in the order of the URLs, then those of HTTP, of the
    /// admin page, and of the balancer.
    pub port_file: Option<PathBuf>,
}

/// Why the server did not start, or ended.
#[derive(Debug)]
pub enum ServeError {
    Listen(ListenError),
    Http(HttpListenError),
    /// The admin page listens beyond this machine, and there is no certificate.
    AdminNeedsTls,
    Daemon(DaemonError),
    Config(ConfigError),
    /// The test harness that waits for the server cannot be reached.
    Harness(HarnessError),
    /// All server IDs are those of other servers.
    NoServerId(String),
    /// The balancer cannot begin.
    Balancer(BalancerError),
    /// A database cannot be opened.
    Open(OpenError),
    /// Certificate, key or another setting of TLS.
    Tls(TlsError),
    /// The log file cannot be opened.
    LogFile(LogFileError),
    PortFile {
        path: PathBuf,
        source: io::Error,
    },
    /// A thread, an event loop or a signal handler cannot be had.
    Start {
        what: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => error.fmt(f),
            Self::Http(error) => error.fmt(f),
            Self::AdminNeedsTls => f.write_str(admin::NEEDS_TLS),
            Self::Daemon(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Harness(error) => error.fmt(f),
            Self::NoServerId(why) => f.write_str(why),
            Self::Balancer(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::LogFile(error) => error.fmt(f),
            Self::PortFile { path, source } => {
                write!(f, "cannot write the port file {}: {source}", path.display())
            }
            Self::Start { what, source } if source.kind() == io::ErrorKind::WouldBlock => {
                write!(
                    f,
                    "cannot start {what}: {source} (ulimit -u, TasksMax= or pids.max limits threads, and ulimit -v or -d their memory)"
                )
            }
            Self::Start { what, source } => write!(f, "cannot start {what}: {source}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<ListenError> for ServeError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}

impl From<DaemonError> for ServeError {
    fn from(error: DaemonError) -> Self {
        Self::Daemon(error)
    }
}

impl From<ConfigError> for ServeError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<OpenError> for ServeError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// Sockets are bound and privileges dropped; the configuration is not read yet.
#[derive(Debug)]
pub struct BoundServer {
    listeners: Vec<Listener>,
    sockets: Vec<SocketPath>,
    http: Vec<HttpListener>,
    admin: Vec<AdminListener>,
    options: ServeOptions,
    /// `-u` was given.
    other_user: bool,
}

impl BoundServer {
    /// Binds every URL and address that the options name, so that a port in use is known before anything else is touched, then
    /// changes to the user, group and root directory.
    pub fn new(options: ServeOptions, privileges: &Privileges) -> Result<Self, ServeError> {
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for url in &options.urls {
            let bound = url.bind(options.family, DEFAULT_BACKLOG)?;
            sockets.extend(bound.iter().filter_map(SocketPath::of));
            listeners.extend(bound);
        }
        let http = options.http.iter().map(|address| HttpListener::bind(*address)).collect::<Result<_, _>>();
        let http = http.map_err(ServeError::Http)?;
        let admin = options.admin.iter().map(AdminListener::bind).collect::<Result<_, _>>();
        let admin = admin.map_err(ServeError::Http)?;
        privileges.drop_to()?;
        hardening::forbid_new_privileges().map_err(cannot_start("without new privileges"))?;
        hardening::keep_files_private();
        check_port_file(options.port_file.as_deref())?;
        Ok(Self { listeners, sockets, http, admin, options, other_user: privileges.change_user() })
    }

    /// The ports that were bound, in the order of the URLs.
    pub fn ports(&self) -> Vec<u16> {
        self.listeners.iter().filter_map(Listener::port).collect()
    }

    /// Where the admin page that the options ask for is found by a browser on this machine.
    pub fn admin_urls(&self) -> Vec<String> {
        self.admin.iter().map(|listener| reachable(&listener.address().to_string())).collect()
    }

    /// URLs that reach the sockets, with the ports that were really bound.
    pub fn urls(&self) -> Vec<String> {
        let url = |listener: &Listener| match (&listener.socket, listener.name.strip_prefix("IP=")) {
            (ListenSocket::Tcp(_), Some(address)) => {
                let scheme = listener.url.split_once("://").map_or("ldap", |(scheme, _)| scheme);
                format!("{}://{address}", scheme.to_ascii_lowercase())
            }
            _ => listener.url.clone(),
        };
        self.listeners.iter().map(url).collect()
    }

    /// The same as a user on this machine writes them: if every address is bound, loopback's stands for them.
    pub fn reachable_urls(&self) -> Vec<String> {
        self.urls().iter().map(|url| reachable(url)).collect()
    }

    /// Opens the databases and serves until a signal ends it.
    pub fn serve(mut self, mut config: Config, readiness: Readiness) -> Result<(), ServeError> {
        let event_loop = EventLoop::new()?;
        let bound = self.urls();
        // Until the end no other process changes it; what one did since it was read is in it.
        let _configuration = InUse::by_server(&mut config, &self.reachable_urls())?;
        config.global.listener_urls = self.listeners.iter().map(|l| l.url.clone()).chain(bound).collect();
        config.no_server_id().map_or(Ok(()), |why| Err(ServeError::NoServerId(why)))?;
        if !config.global.core_dumps {
            let service = readiness.is_background() || self.other_user || hardening::is_managed();
            hardening::forbid_core_dumps(service).map_err(cannot_start("without core dumps"))?;
        }
        let clock = Arc::new(SystemClock);
        let (log, log_thread) = self.start_log(&config)?;
        log.watch_panics();
        config.notes.iter().for_each(|note| log.configuration_note(note));
        for listener in &self.listeners {
            listener
                .set_buffers(&config.global.tcp_buffers)
                .map_err(cannot_start("with the buffers of tcp-buffer"))?;
        }
        let tls_files = TlsFiles::look(&config);
        let tls = TlsState::load(&config.global.tls, clock.now()).map_err(ServeError::Tls)?;
        tls.notes.iter().for_each(|note| log.notice(format_args!("TLS: {note}")));
        self.bind_configured(&config, tls.state.is_some())?;
        let config = Arc::new(config);
        for image in ldif_tree::remove_left_images() {
            let image = image.display();
            log.notice(format_args!("{image}: removed; it was left by a process that was killed"));
        }
        wait_for_readers(&config, &log);
        let workers = self.options.workers.unwrap_or_else(cores).max(1);
        let infos: Vec<_> = self.listeners.iter().map(|l| Arc::new(ListenerInfo::from(l))).collect();
        let services = Arc::new(Services::new(&config, log, clock, infos.clone(), workers));
        let databases = Databases::open(&config, &services)?;
        let files =
            ProcessFiles::write(config.global.pid_file.as_deref(), config.global.args_file.as_deref())?;
        let server = Arc::new(Server::new(databases, services));
        server.tls.replace(tls.state);
        server.follow_access_logs().map_err(cannot_start("the access log's thread"))?;
        server.follow_overlays().map_err(cannot_start("a thread of an overlay"))?;
        server.traces.follow(server.config().global.trace_export.as_ref(), &server.log);
        let backups = BackupThread::start(&server).map_err(cannot_start("the backups' thread"))?;
        let tools = Arc::new(ToolSockets::default());
        let changes = ConfigurationThread::start(&server, &tools)
            .map_err(cannot_start("the configuration's thread"))?;
        replication::follow(&server);
        tools.follow(&server, &server.generation_in_force());
        start_balancer(&server, &config)?;
        let result = self.run(event_loop, (&server, &changes), (workers, infos), tls_files, readiness);
        server.balancer.finish();
        server.long_searches.finish();
        server.lookups.finish();
        tools.finish();
        changes.finish();
        server.consumers.finish();
        drop(backups);
        server.access_logs.finish();
        server.overlay_threads.finish();
        server.traces.finish();
        close_databases(&server);
        server.log.line(LogLevel::STATS, format_args!("slapd stopped."));
        drop(files);
        log_thread.finish();
        result
    }

    /// Binds the addresses of the configuration for HTTP and the admin page.
    fn bind_configured(&mut self, config: &Config, has_tls: bool) -> Result<(), ServeError> {
        for address in &config.global.http_listeners {
            self.http.push(HttpListener::bind(*address).map_err(ServeError::Http)?);
        }
        for address in &config.global.admin_listeners {
            self.admin.push(AdminListener::bind(address).map_err(ServeError::Http)?);
        }
        if !has_tls && self.admin.iter().any(|listener| listener.address().tls) {
            return Err(ServeError::AdminNeedsTls);
        }
        Ok(())
    }

    fn start_log(&self, config: &Config) -> Result<(Log, LogThread), ServeError> {
        let settings = LogSettings::open(&config.global.log_directives()).map_err(ServeError::LogFile)?;
        let call = LogCall {
            debug: self.options.debug.unwrap_or(0),
            syslog_levels: self.options.syslog_levels,
            program: self.options.program.clone(),
            facility: self.options.syslog_facility,
            no_syslog: false,
        };
        Log::start(settings, call).map_err(cannot_start("the log's thread"))
    }

    fn run(
        self,
        event_loop: EventLoop,
        (server, changes): (&Arc<Server>, &ConfigurationThread),
        (count, infos): (usize, Vec<Arc<ListenerInfo>>),
        tls_files: TlsFiles,
        mut readiness: Readiness,
    ) -> Result<(), ServeError> {
        let EventLoop { runtime, early } = event_loop;
        let workers = (0..count)
            .map(|index| Worker::start(index, server.clone()))
            .collect::<io::Result<Vec<_>>>()
            .map_err(cannot_start("a worker"))?;
        let workers = Rc::new(workers);
        let ports = self.port_lines(&server.balancer.ports());
        let port_file = self.options.port_file.clone();
        let ended = tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut signals = Signals::new(early).map_err(cannot_start("the signal handlers"))?;
            let acceptor = Rc::new(Acceptor { server: server.clone(), workers: workers.clone() });
            for (listener, info) in self.listeners.into_iter().zip(infos.iter().cloned()) {
                accept(acceptor.clone(), listener, info);
            }
            let aside = upkeep::threads();
            tokio::task::spawn_local(upkeep::watch_tls_files(server.clone(), tls_files, aside.clone()));
            tokio::task::spawn_local(upkeep::run(server.clone(), aside));
            let (sender, http_changes) = tokio::sync::mpsc::unbounded_channel();
            changes.set_http(sender);
            let configured = server.config().global.http_listeners.clone();
            http::start(with_configured(self.http, configured), http_changes, server.clone());
            let handles: Vec<_> = workers.iter().map(|worker| worker.handle().clone()).collect();
            let (sender, admin_changes) = tokio::sync::mpsc::unbounded_channel();
            changes.set_admin(sender);
            let configured = server.config().global.admin_listeners.clone();
            let listeners = with_configured(self.admin, configured);
            let admin = admin::start(listeners, admin_changes, server.clone(), handles.clone())
                .map_err(cannot_start("the admin page"))?;
            upkeep::demand_thread().map_err(cannot_start("a thread for regular work"))?;
            if rustix::process::geteuid().is_root() {
                server.log.notice(format_args!("runs as root: -u and -g, or a service's User=, are safer"));
            }
            server.log.notice(format_args!("{} starting", crate::version()));
            let listening = infos.iter().map(|info| (info.url.as_str(), info.name.as_str()));
            let settings = server.generation();
            let mut harness = Harness::greet(settings.config.global.harness.as_ref(), listening)
                .map_err(ServeError::Harness)?;
            drop(settings);
            readiness.announce();
            // The file comes after the announcement; a program that waits for this process finds the file.
            write_port_file(port_file.as_deref(), &ports)?;
            readiness.ready().map_err(cannot_start("the background process"))?;
            harness.ready();
            tokio::task::spawn_local(watchdog::run(handles));
            let name = signals.next(&server.log).await;
            hardening::notify("STOPPING=1\n");
            harness.stopped();
            server.log.line(LogLevel::STATS, format_args!("daemon: shutdown requested by {name}"));
            server.balancer.stop();
            admin.stop();
            Ok(())
        });
        // The listeners are closed with the tasks that held them; now the connections.
        drop(self.sockets);
        workers.iter().for_each(Worker::stop);
        if let Ok(workers) = Rc::try_unwrap(workers) {
            workers.into_iter().for_each(Worker::join);
        }
        ended
    }

    /// The ports that were bound, a line each.
    fn port_lines(&self, balancer: &[u16]) -> String {
        let http = self.http.iter().filter_map(|listener| Some(listener.address().ok()?.port()));
        let admin = self.admin.iter().map(|listener| listener.address().address.port());
        let balancer = balancer.iter().copied();
        self.ports()
            .into_iter()
            .chain(http)
            .chain(admin)
            .chain(balancer)
            .map(|port| format!("{port}\n"))
            .collect()
    }
}

fn cannot_start(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |source| ServeError::Start { what, source }
}

/// Starts the balancer, if the configuration has one.
fn start_balancer(server: &Server, config: &Config) -> Result<(), ServeError> {
    let settings = (None, config.global.balancer.as_ref());
    let tls = ServerTls { settings: &config.global.tls, state: server.tls.current() };
    let prepared = server.balancer.prepare(settings, tls, (&server.log, server.now()));
    server.balancer.publish(prepared.map_err(ServeError::Balancer)?);
    Ok(())
}

/// Takes the clients of a listener, on this thread.
fn accept(acceptor: Rc<Acceptor>, listener: Listener, info: Arc<ListenerInfo>) {
    let server = acceptor.server.clone();
    server.log.notice(format_args!("listening on {} ({})", info.url, info.name));
    if listener.tls && !server.tls.is_available() {
        server.log.notice(format_args!(
            "{}: every handshake will fail, for there is no TLSCertificateFile",
            info.url
        ));
    }
    tokio::task::spawn_local(async move {
        if let Err(error) = acceptor.run(listener, info.clone()).await {
            server.log.notice(format_args!("daemon: cannot listen on {}: {error}", info.name));
        }
    });
}

/// Listeners with their addresses in the configuration. Those of the command line come first; they have none, since they are not the
/// configuration's to close.
fn with_configured<L, A>(listeners: Vec<L>, configured: Vec<A>) -> Vec<(Option<A>, L)> {
    let own = listeners.len().saturating_sub(configured.len());
    let addresses = std::iter::repeat_with(|| None).take(own).chain(configured.into_iter().map(Some));
    addresses.zip(listeners).collect()
}

/// No client connects to "every address".
fn reachable(url: &str) -> String {
    for (every, loopback) in [("://0.0.0.0:", "://127.0.0.1:"), ("://[::]:", "://localhost:")] {
        if let Some((scheme, rest)) = url.split_once(every) {
            return format!("{scheme}{loopback}{rest}");
        }
    }
    url.to_owned()
}

/// Whether the port file can be written. It is once the server serves, and then it would be late to refuse that.
fn check_port_file(path: Option<&Path>) -> Result<(), ServeError> {
    let Some(path) = path else { return Ok(()) };
    let part = path.with_extension("part");
    let tried = match path.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => std::fs::write(&part, "").and_then(|()| std::fs::remove_file(&part)),
    };
    tried.map_err(|source| ServeError::PortFile { path: path.to_owned(), source })
}

/// Written beside and renamed: a program that waits for the file never reads half of it.
fn write_port_file(path: Option<&Path>, ports: &str) -> Result<(), ServeError> {
    let Some(path) = path else { return Ok(()) };
    let part = path.with_extension("part");
    std::fs::write(&part, ports).and_then(|()| std::fs::rename(&part, path)).map_err(|source| {
        // What a full disk has left of it.
        let _ = std::fs::remove_file(&part);
        ServeError::PortFile { path: path.to_owned(), source }
    })
}

/// The loop of the thread that accepts connections, with the signals that it hears from the beginning on.
struct EventLoop {
    runtime: tokio::runtime::Runtime,
    early: EarlySignals,
}

impl EventLoop {
    /// # Errors
    /// No event loop or no handlers to be had.
    fn new() -> Result<Self, ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(cannot_start("the event loop"))?;
        let entered = runtime.enter();
        let early = EarlySignals::new().map_err(cannot_start("the signal handlers"))?;
        drop(entered);
        Ok(Self { runtime, early })
    }
}

/// The signals that never end the server, not while it starts either: a program that rotates logs knows the process once its pid file is
/// there, and files may be at their limit already. All others end a server that starts as the system does it.
struct EarlySignals {
    /// The log file was moved away.
    user1: tokio::signal::unix::Signal,
    /// A limit on the size of files (`ulimit -f`, `LimitFSIZE=`): the write that meets it fails, as on a full disk.
    _file_size: tokio::signal::unix::Signal,
}

impl EarlySignals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            user1: signal(SignalKind::user_defined1())?,
            _file_size: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }
}

/// The signals of a server that serves.
struct Signals {
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// slapd ends by it, too.
    user2: tokio::signal::unix::Signal,
    early: EarlySignals,
}

impl Signals {
    fn new(early: EarlySignals) -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user2: signal(SignalKind::user_defined2())?,
            early,
        })
    }

    /// Waits for one that ends the server, and says which.
    async fn next(&mut self, log: &Log) -> &'static str {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => return "SIGHUP",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.user2.recv() => return "SIGUSR2",
                _ = self.early.user1.recv() => log.reopen(),
            }
        }
    }
}

/// Binds, opens and serves: the whole life of a server in the foreground.
pub fn run(config: Config, options: ServeOptions) -> Result<(), ServeError> {
    BoundServer::new(options, &Privileges::default())?.serve(config, Readiness::foreground())
}

/// A tool that reads a database by a read-only mount, such as a backup in another container, keeps the server from opening it. A server
/// that refused to start would stay away after the tool has ended.
fn wait_for_readers(config: &Config, log: &Log) {
    for directory in config.databases.iter().filter_map(|database| Some(&database.kind.mdb()?.directory)) {
        lmdb::wait_for_readers(directory, || {
            log.warning(format_args!(
                "{}: the server waits for a tool that reads the database by a read-only mount (fuser {} says which)",
                directory.display(),
                directory.join(lmdb::DATA_FILE).display()
            ));
        });
    }
}

/// The last step: nothing is answered any more.
fn close_databases(server: &Server) {
    for fault in server.caches.save(&*server.clock) {
        server.log.warning(format_args!("{fault}"));
    }
    server.databases().close();
}

#[cfg(test)]
mod tests {
    use super::reachable;

    #[test]
    fn urls_that_can_be_connected_to() {
        for (url, expected) in [
            ("ldap://0.0.0.0:3890", "ldap://127.0.0.1:3890"),
            ("ldaps://[::]:636", "ldaps://localhost:636"),
            ("ldap://[::1]:389", "ldap://[::1]:389"),
            ("ldap://192.0.2.7:389", "ldap://192.0.2.7:389"),
            ("ldapi://%2Frun%2Fldapi", "ldapi://%2Frun%2Fldapi"),
        ] {
            assert_eq!(reachable(url), expected);
        }
    }
}
