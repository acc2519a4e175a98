//! `larix balance`: many clients over a few connections to several servers, with the keywords of lloadd.conf(5).

mod metrics;

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser};
use larix_balance::{EventLoop, Listeners, LoopHandle, Reloaded};
use larix_configuration::balancer::BalanceSettings;
use larix_engine::time::Clock as _;
use larix_server::balancer;
use larix_server::clock::SystemClock;
use larix_server::daemon::{Detached, Privileges, ProcessFiles, Readiness, detach};
use larix_server::hardening;
use larix_server::http::{Answer, HttpListener, spawn_pages};
use larix_server::listener::{AddressFamily, DEFAULT_BACKLOG, ListenUrl, Listener, SocketPath, parse_urls};
use tokio::signal::unix::{SignalKind, signal};

use crate::terminal::{known_option, print_answer, say};

const DEFAULT_URLS: &str = "ldap:///";
/// In a second.
const MICROSECONDS: f64 = 1e6;

#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  larix balance -f /etc/ldap/lloadd.conf -t
  larix balance -f /etc/ldap/lloadd.conf -h 'ldap:/// ldaps:///'")]
pub(crate) struct BalanceArgs {
    /// Read this configuration, with the keywords of lloadd.conf
    #[arg(short = 'f', value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
    /// Answer /metrics, /health/live and /health/ready there, for example on http://127.0.0.1:9389/
    #[arg(long, value_name = "URL", value_parser = larix_configuration::values::http_address)]
    http: Vec<SocketAddr>,
    /// Write the bound ports here, one a line, those of --http last
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What the balancer takes by both its names.
#[derive(Args, Clone, Debug)]
struct CommonArgs {
    /// Listen on these URLs, separated by spaces, instead of those of `listen`: ldap://host:port/ ldaps://host ldapi://%2Fpath
    #[arg(short = 'h', long = "listen", value_name = "URLS")]
    urls: Option<String>,
    /// Check the configuration and end
    #[arg(short = 't', long = "check")]
    check: bool,
    /// Run as this user
    #[arg(short = 'u', value_name = "USER")]
    user: Option<String>,
    /// Run as this group
    #[arg(short = 'g', value_name = "GROUP")]
    group: Option<String>,
    /// Change to this root directory; the configuration is read before, and paths of a later reload are below it
    #[arg(short = 'r', value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Use IPv4 alone
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 alone
    #[arg(short = '6')]
    v6: bool,
}

/// lloadd's own command line.
#[derive(Debug, Parser)]
#[command(name = "lloadd", disable_help_flag = true, disable_version_flag = true)]
struct Lloadd {
    /// Stay in the foreground; the levels have no effect
    #[arg(short = 'd', value_name = "LEVELS")]
    debug: Vec<String>,
    /// Read this configuration
    #[arg(short = 'f', value_name = "FILE", default_value = "/etc/ldap/lloadd.conf")]
    file: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
    /// Print the version; twice: and end
    #[arg(short = 'V', action = clap::ArgAction::Count)]
    version: u8,
    /// Accepted without effect: the syslog level
    #[arg(short = 's', value_name = "LEVELS")]
    syslog_level: Vec<String>,
    /// Accepted without effect: the syslog user
    #[arg(short = 'l', value_name = "USER")]
    syslog_user: Option<String>,
    /// lloadd's further options: slp[=...], accepted without effect
    #[arg(short = 'o', value_name = "OPTION[=VALUE]", value_parser = known_option)]
    option: Vec<String>,
    /// Accepted without effect: the service name
    #[arg(short = 'n', value_name = "NAME")]
    service_name: Option<String>,
}

/// Runs lloadd with the arguments after its name. As lloadd it ends at SIGHUP, and goes to the background unless `-d` is there.
pub(crate) fn lloadd(name: &str, mut arguments: Vec<OsString>) -> ExitCode {
    arguments.insert(0, name.into());
    let parsed = Lloadd::command().try_get_matches_from(arguments).and_then(|m| Lloadd::from_arg_matches(&m));
    let lloadd = match parsed {
        Ok(lloadd) => lloadd,
        Err(error) => crate::terminal::end_parsing(&error, 1),
    };
    match lloadd.version {
        0 => {}
        1 => say!("{}", crate::version::text().trim_end()),
        _ => return answered(print_answer(&crate::version::text())),
    }
    let arguments = BalanceArgs {
        file: lloadd.file,
        common: lloadd.common,
        http: Vec::new(),
        port_file: None,
        help: None,
    };
    let manner =
        Manner { detaches: lloadd.debug.is_empty() && !arguments.common.check, hangup: Signal::Stop };
    answered(run(&arguments, manner))
}

pub(crate) fn main(arguments: &BalanceArgs) -> ExitCode {
    answered(run(arguments, Manner { detaches: false, hangup: Signal::Reload }))
}

fn answered(done: anyhow::Result<ExitCode>) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("larix balance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the name that it was called by says.
#[derive(Clone, Copy)]
struct Manner {
    /// It goes to the background.
    detaches: bool,
    /// What SIGHUP means.
    hangup: Signal,
}

fn run(arguments: &BalanceArgs, manner: Manner) -> anyhow::Result<ExitCode> {
    let read = read(arguments)?;
    if arguments.common.check {
        return print_answer("config file testing succeeded\n");
    }
    let readiness = match manner.detaches.then(detach).transpose()? {
        None => Readiness::foreground(),
        Some(Detached::Server(readiness)) => readiness,
        Some(Detached::Parent(code)) => return Ok(code),
    };
    let CommonArgs { user, group, root, .. } = &arguments.common;
    let privileges = Privileges::look_up(user.as_deref(), group.as_deref(), root.as_deref())?;
    let family = match (arguments.common.v4, arguments.common.v6) {
        (true, _) => AddressFamily::V4,
        (_, true) => AddressFamily::V6,
        _ => AddressFamily::Any,
    };
    let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
    for url in &urls_of(arguments, &read.settings)? {
        let bound = url.bind(family, DEFAULT_BACKLOG)?;
        sockets.extend(bound.iter().filter_map(SocketPath::of));
        listeners.extend(bound);
    }
    let pages =
        arguments.http.iter().map(|address| HttpListener::bind(*address)).collect::<Result<Vec<_>, _>>()?;
    privileges.drop_to()?;
    // Its memory holds passwords, and its credentials.
    hardening::forbid_core_dumps(false).context("cannot forbid core dumps")?;
    hardening::forbid_new_privileges().context("cannot forbid new privileges")?;
    let (pid, names) = (read.settings.pid_file.clone(), read.settings.args_file.clone());
    let _files = ProcessFiles::write(pid.as_deref(), names.as_deref())?;
    serve(arguments.clone(), read, (listeners, pages), (readiness, manner.hangup))?;
    drop(sockets);
    Ok(ExitCode::SUCCESS)
}

/// The configuration, and the certificates that it names.
fn read(arguments: &BalanceArgs) -> anyhow::Result<Reloaded> {
    let settings = larix_configuration::balancer::read(&arguments.file)?;
    let urls = urls_of(arguments, &settings)?;
    let own_notes = settings.notes.clone();
    let (read, notes) = balancer::with_certificates(Arc::new(settings), None, SystemClock.now())?;
    own_notes.iter().chain(&notes).for_each(|note| say(note));
    balancer::check_tls(&urls, &read)?;
    Ok(read)
}

fn urls_of(arguments: &BalanceArgs, settings: &BalanceSettings) -> anyhow::Result<Vec<ListenUrl>> {
    let urls = arguments.common.urls.clone().unwrap_or_else(|| match settings.listen.is_empty() {
        true => DEFAULT_URLS.to_owned(),
        false => settings.listen.join(" "),
    });
    Ok(parse_urls(&urls)?)
}

fn serve(
    arguments: BalanceArgs,
    read: Reloaded,
    (listeners, pages): (Vec<Listener>, Vec<HttpListener>),
    (readiness, hangup): (Readiness, Signal),
) -> anyhow::Result<()> {
    let port_file = arguments.port_file.clone();
    let http = pages.iter().filter_map(|page| Some(page.address().ok()?.port()));
    let ports: Vec<u16> = listeners.iter().filter_map(Listener::port).chain(http).collect();
    let mut listening = Vec::new();
    for listener in listeners {
        say(&format!("listening on {}", listener.name));
        listening.push(balancer::listening(listener));
    }
    let started = SystemClock.now().0 as f64 / MICROSECONDS;
    let around = balancer::surroundings(Arc::new(say));
    let listen = read.settings.listen.clone();
    let event_loop = EventLoop::new(read, listening, around).context("cannot start the event loop")?;
    let reloads = Arc::new([const { AtomicU64::new(0) }; 2]);
    for page in pages {
        if let Ok(address) = page.address() {
            say(&format!("listening on http://{address}/"));
        }
        let (handle, reloads) = (event_loop.handle(), Arc::clone(&reloads));
        spawn_pages(page, move |path| answer(path, &handle, started, &reloads))
            .context("cannot serve HTTP")?;
    }
    let handle = event_loop.handle();
    follow_signals(hangup, move |signal| match signal {
        Signal::Stop => handle.stop(),
        Signal::Reload => {
            let is_done = reload(&arguments, &listen, &handle);
            let [done, refused] = &*reloads;
            if is_done { done } else { refused }.fetch_add(1, Ordering::Relaxed);
        }
    })
    .context("cannot handle signals")?;
    // Who waits for it may send a signal at once.
    if let Some(path) = port_file {
        write_ports(&path, ports)?;
    }
    readiness.ready()?;
    event_loop.run().context("the event loop failed")
}

/// Reads the configuration and the certificates again. False: the balancer goes on as before.
fn reload(arguments: &BalanceArgs, listen: &[String], handle: &LoopHandle) -> bool {
    match read(arguments) {
        Ok(read) => {
            if arguments.common.urls.is_none() && read.settings.listen != listen {
                say("listen: other URLs need a restart; the balancer listens where it did");
            }
            handle.reload(read, Listeners::default());
            true
        }
        Err(error) => {
            say(&format!("the configuration is not taken, everything stays as it was: {error:#}"));
            false
        }
    }
}

fn answer(path: &str, handle: &LoopHandle, started: f64, reloads: &[AtomicU64; 2]) -> Answer {
    const STUCK: &str = "the loop that forwards does not answer\n";
    match (path, handle.figures()) {
        ("/metrics" | "/health/live" | "/health/ready", None) => Answer::ready(STUCK.to_owned()),
        ("/metrics", Some(figures)) => {
            let reloads = reloads.each_ref().map(|count| count.load(Ordering::Relaxed));
            larix_server::http::metrics::page(metrics::BalancePage { figures, started, reloads })
        }
        ("/health/live", Some(_)) => Answer::live(),
        ("/health/ready", Some(figures)) => Answer::ready(figures.unready()),
        _ => Answer::not_here(),
    }
}

/// What a signal asks of the balancer.
#[derive(Clone, Copy)]
enum Signal {
    Stop,
    Reload,
}

/// SIGTERM and SIGINT stop the balancer, and so does SIGUSR2, as it stops lloadd. SIGHUP does what it means there.
fn follow_signals(on_hangup: Signal, report: impl Fn(Signal) + Send + 'static) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let kinds =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::user_defined2(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut user2, mut hangup] = {
        let _entered = runtime.enter();
        let [interrupt, terminate, user2, hangup] = kinds.map(signal);
        [interrupt?, terminate?, user2?, hangup?]
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            let next = runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => Signal::Stop,
                    _ = terminate.recv() => Signal::Stop,
                    _ = user2.recv() => Signal::Stop,
                    _ = hangup.recv() => on_hangup,
                }
            });
            report(next);
        }
    })?;
    Ok(())
}

fn write_ports(path: &Path, ports: Vec<u16>) -> anyhow::Result<()> {
    let ports: String = ports.into_iter().map(|port| format!("{port}\n")).collect();
    // Whole or not there at all: who waits for it reads it at once.
    let partial = path.with_extension("partial");
    let written = std::fs::write(&partial, ports).and_then(|()| std::fs::rename(&partial, path));
    written.with_context(|| format!("cannot write the port file {}", path.display()))
}

/// A line of the log. The service manager adds the time.
fn say(line: &str) {
    // Without a standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "larix balance: {line}");
}
