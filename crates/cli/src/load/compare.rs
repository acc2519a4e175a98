//! `larix load compare`: a scenario on Larix and on other servers, in turns, on this machine.

use std::io::{IsTerminal, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use larix_load::compare::{self, Broken, Options, Progress};
use larix_load::generate;
use larix_load::peer::{Access, Given, Guard, LogLevel, Peer, Redis};
use larix_load::report::{Document, TextOptions};
use larix_load::scenario::{self, Known, Scenario, Size};

use crate::signals::{EndingSignals, say_farewell};

/// Carry out a scenario on Larix and on other servers in turns, and show the ratios.
///
/// Each server gets the same data and the same slapd.conf, is loaded with its offline tool, started on a free loopback
/// port, asked, checked, and stopped, in several rounds: forwards in the odd ones, backwards in the even ones.
#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(super) struct CompareArgs {
    /// mail, frontend, grid, subscribers or sizing
    scenario: String,
    /// Compare with: slapd (found on this machine, or at --slapd), the PATH of a slapd, or the ldap:// URL of a running
    /// server that holds the data; may be repeated. Without it, Larix is measured alone
    #[arg(long, value_name = "slapd|PATH|URL")]
    with: Vec<String>,
    /// The program for --with slapd
    #[arg(long, value_name = "PATH")]
    slapd: Option<PathBuf>,
    /// How often each figure is taken from each server [default: 2; 3 with --long, 1 with --smoke]
    #[arg(long)]
    rounds: Option<u32>,
    /// Seconds that one figure is measured [default: 0.5; 5 with --long]
    #[arg(long)]
    seconds: Option<f64>,
    /// Leaf entries of the directory [default: 4,000; the scenario's own with --long]
    #[arg(long)]
    entries: Option<u64>,
    /// The scenario's own number of entries and figures that are worth quoting, in an hour rather than a minute
    #[arg(long, conflicts_with = "smoke")]
    long: bool,
    /// A few hundred entries and fractions of a second: shows that everything runs, its figures mean nothing
    #[arg(long)]
    smoke: bool,
    /// Only these rows: a comma-separated list; an unknown one lists those there are
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    only: Vec<String>,
    /// Load in the first round only; later rounds go on with the data as they are (scenarios with one directory)
    #[arg(long)]
    load_once: bool,
    /// What every server logs: 0 (nothing); stats: lines to a syslog socket that this command makes, takes from and drops; or
    /// both: nothing, and the reads a second time with stats
    #[arg(long, value_enum, default_value = "0")]
    log_level: LogLevels,
    /// Set searches beside a GET of as many bytes from Redis, the least that a request over a socket costs here
    #[arg(long)]
    with_redis: bool,
    /// The redis-server for --with-redis
    #[arg(long, value_name = "PATH", requires = "with_redis")]
    redis: Option<PathBuf>,
    /// Write the report with its charts here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the figures here; - is standard output, in the table's place
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say which ratios Larix aims at, and whether they were reached
    #[arg(long)]
    goals: bool,
    /// Where LDIF, databases and logs lie meanwhile; a disk, if durable changes are to cost what they cost
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Leave them there
    #[arg(long)]
    keep: bool,
    /// One port for all servers instead of a free one each
    #[arg(long)]
    port: Option<u16>,
    /// The same seed gives the same data and requests
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// With a URL: the DN that stands in the place of the scenario's own base
    #[arg(long, value_name = "DN")]
    base: Option<String>,
    /// With a URL: who may write
    #[arg(long, short = 'D', value_name = "DN")]
    bind_dn: Option<String>,
    /// With a URL: the password of --bind-dn
    #[arg(long, short = 'w', default_value = generate::ROOT_PASSWORD)]
    password: String,
    /// With a URL: the server's process id on this machine, for its CPU time and memory
    #[arg(long)]
    process: Option<u32>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum LogLevels {
    #[value(name = "0")]
    Nothing,
    Stats,
    Both,
}

fn after_help() -> String {
    let scenarios = scenario::ALL
        .iter()
        .map(|known| format!("  {:<12} {} ({} entries)", known.name, known.about, known.entries));
    format!(
        "Scenarios, with their own numbers of entries (--long):\n{}",
        scenarios.collect::<Vec<_>>().join("\n")
    )
}

pub(super) fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let known = Known::find(&args.scenario)?;
    let size = size(args, &known);
    let mut scenario = Scenario::new(known.name, size)?;
    scenario.keep(&args.only)?;
    if args.load_once && scenario.stages.iter().filter(|stage| !stage.keeps_data).count() > 1 {
        bail!("--load-once: scenario {} loads several directories in one round", known.name);
    }
    let scratch =
        tempfile::Builder::new().prefix("larix-compare").tempdir().context("no temporary folder")?;
    let options = Options {
        peers: peers(args, scratch.path())?,
        rounds: args.rounds.unwrap_or_else(|| rounds(args)),
        seconds: size.seconds,
        entries: size.entries,
        directory: args.directory.clone().unwrap_or_else(std::env::temp_dir),
        keep: args.keep,
        schema: crate::demo::write_bundled_schema(&scratch.path().join("schema"))?,
        port: args.port,
        log_level: match args.log_level {
            LogLevels::Nothing | LogLevels::Both => LogLevel::Nothing,
            LogLevels::Stats => LogLevel::Stats,
        },
        also_stats: args.log_level == LogLevels::Both,
        redis: args.with_redis.then(|| Redis::find(args.redis.as_deref())).transpose()?,
        load_once: args.load_once,
        seed: args.seed,
        command: command_line(),
    };
    let guard = Guard::default();
    end_on_signals(guard.clone(), scratch.path().to_owned())?;
    let show = Show::new();
    let done = compare::run(&options, &scenario, &guard, &mut |progress| show.step(progress));
    show.clear();
    if guard.has_ended() {
        // A signal came: its thread cleans up and ends the process; what failed here failed through it.
        loop {
            std::thread::park();
        }
    }
    if args.keep {
        eprintln!("larix load: databases and logs are below {}", options.directory.display());
    }
    match done {
        Ok(document) => {
            write(&document, args)?;
            check_answers(&document)
        }
        Err(broken) => {
            let Broken { error, document } = *broken;
            if document.rows.iter().any(|row| row.figures.iter().any(|rounds| !rounds.is_empty())) {
                write(&document, args)?;
            }
            Err(error)
        }
    }
}

fn size(args: &CompareArgs, known: &Known) -> Size {
    let usual = match (args.smoke, args.long) {
        (true, _) => Size::SMOKE,
        (_, true) => Size { entries: known.entries, seconds: Size::LONG_SECONDS },
        _ => Size::QUICK,
    };
    Size { entries: args.entries.unwrap_or(usual.entries), seconds: args.seconds.unwrap_or(usual.seconds) }
}

const fn rounds(args: &CompareArgs) -> u32 {
    match (args.smoke, args.long) {
        (true, _) => 1,
        (_, true) => 3,
        // The least that show a spread.
        _ => 2,
    }
}

fn command_line() -> String {
    let words = std::env::args().skip(1).map(|word| {
        if word.contains(|c: char| c.is_whitespace() || "'\"$&*(){}[]|;<>?!".contains(c)) {
            format!("'{}'", word.replace('\'', "'\\''"))
        } else {
            word
        }
    });
    std::iter::once("larix".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Larix first, then whom it is compared with.
fn peers(args: &CompareArgs, scratch: &Path) -> anyhow::Result<Vec<Peer>> {
    let larix = std::env::current_exe().context("cannot find this program's own file")?;
    let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
    let mut peers = vec![Peer::larix(larix, &format!("Larix {}{build}", env!("CARGO_PKG_VERSION")))];
    if args.slapd.is_some() && !args.with.iter().any(|with| with == "slapd") {
        bail!("--slapd names the program for --with slapd, which is not there");
    }
    for with in &args.with {
        let mut peer = match with.as_str() {
            "slapd" => Peer::slapd(args.slapd.as_deref(), scratch)?,
            url if url.contains("://") => peer_by_url(url, args)?,
            path if path.contains('/') => Peer::slapd(Some(Path::new(path)), scratch)?,
            other => {
                bail!("--with {other:?}: slapd, the path of a slapd (with a /), or a URL ldap://HOST:PORT")
            }
        };
        // Two columns of the same head could not be told apart.
        let same = peers.iter().filter(|known| known.name.starts_with(&peer.name)).count();
        if same > 0 {
            peer.name = format!("{} ({})", peer.name, same + 1);
        }
        peers.push(peer);
    }
    Ok(peers)
}

fn peer_by_url(url: &str, args: &CompareArgs) -> anyhow::Result<Peer> {
    let address = address(url)?;
    let given = Given {
        url: url.to_owned(),
        address,
        base: args.base.clone(),
        bind: args.bind_dn.clone().map(|dn| (dn, args.password.clone())),
        process: args.process,
    };
    given.check()?;
    Ok(Peer { name: address.to_string(), version: String::new(), access: Access::Given(given) })
}

/// `ldap://HOST[:PORT][/]`.
fn address(url: &str) -> anyhow::Result<SocketAddr> {
    let shape = || format!("{url:?} is not ldap://HOST:PORT, which is what can be compared with");
    let rest = url.strip_prefix("ldap://").with_context(shape)?;
    let host = rest.trim_end_matches('/');
    anyhow::ensure!(!host.is_empty() && !host.contains('/'), shape());
    let port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if port { host.to_owned() } else { format!("{host}:389") };
    let found = with_port.to_socket_addrs().with_context(|| format!("{url:?} cannot be resolved"))?.next();
    found.with_context(|| format!("{url:?} has no address"))
}

/// Ends everything on Ctrl-C and its kin, from a thread of its own, since the main one is busy measuring.
fn end_on_signals(guard: Guard, scratch: PathBuf) -> anyhow::Result<()> {
    // Registered before the first server starts, so that none is left behind.
    EndingSignals::new()?.end_after(move || {
        say_farewell("larix load: broken off; stopping the servers");
        guard.end();
        let _ = std::fs::remove_dir_all(scratch);
    })?;
    Ok(())
}

/// The line of progress: one that is overwritten on a terminal, one for each step elsewhere.
struct Show {
    terminal: bool,
}

impl Show {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }

    fn step(&self, progress: &Progress<'_>) {
        let remaining = remaining(Duration::from_secs_f64(progress.seconds_left.clamp(0.0, 1e9)));
        let server =
            if progress.server.is_empty() { String::new() } else { format!("{}: ", progress.server) };
        let line = format!(
            "[{:3.0} %, {remaining} left] round {} of {}, {server}{}",
            progress.done * 100.0,
            progress.round,
            progress.rounds,
            progress.what
        );
        let mut stderr = std::io::stderr().lock();
        // Progress that cannot be shown stops nothing.
        let _ = if self.terminal { write!(stderr, "\r\x1b[K{line}") } else { writeln!(stderr, "{line}") };
        let _ = stderr.flush();
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn remaining(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

fn write(document: &Document, args: &CompareArgs) -> anyhow::Result<()> {
    let stdout = Path::new("-");
    let json = || format!("{:#}\n", document.to_json());
    let shown = if args.goals { document } else { &document.without_goals() };
    if args.json.as_deref() != Some(stdout) {
        super::report::write(stdout, &shown.to_text(&TextOptions::of_stdout()))?;
    }
    if let Some(path) = &args.json {
        super::report::write(path, &json())?;
    }
    if let Some(path) = &args.html {
        super::report::write(path, &shown.to_html())?;
    }
    Ok(())
}

/// # Errors
/// A row is invalid: the caller must not use its figures.
fn check_answers(document: &Document) -> anyhow::Result<()> {
    let invalid = document.rows.iter().filter_map(|row| Some((&row.name, row.invalid.as_ref()?)));
    let texts: Vec<String> = invalid.map(|(name, why)| format!("{name}: {why}")).collect();
    anyhow::ensure!(texts.is_empty(), "{} rows are invalid:\n  {}", texts.len(), texts.join("\n  "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_servers() {
        for (url, expected) in [
            ("ldap://127.0.0.1:3389", Some("127.0.0.1:3389")),
            ("ldap://127.0.0.1:3389/", Some("127.0.0.1:3389")),
            ("ldap://127.0.0.1", Some("127.0.0.1:389")),
            ("ldap://[::1]:3389", Some("[::1]:3389")),
            ("ldaps://127.0.0.1", None),
            ("ldap://", None),
            ("ldap://127.0.0.1/dc=com", None),
        ] {
            assert_eq!(address(url).ok().map(|address| address.to_string()).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn times_left() {
        for (seconds, expected) in [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7_260, "2 h 1 min")] {
            assert_eq!(remaining(Duration::from_secs(seconds)), expected);
        }
    }
}
