//! `larix serve` and `slapd`: the server's command line.

mod join;
mod quick_start;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use larix_configuration::slapd_d::Stamp;
use larix_configuration::values::AdminAddress;
use larix_configuration::{Config, Location};
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::daemon::{Detached, Privileges, Readiness, detach};
use larix_server::listener::{AddressFamily, parse_urls};
use larix_server::log::LogLevel;
use larix_server::log::syslog_facility;
use larix_server::{BoundServer, ServeOptions};

use self::join::JoinArgs;
/// Where `larix serve --suffix` listens by default.
pub(crate) use self::quick_start::DEFAULT_URL as QUICK_START_URL;
use self::quick_start::{QuickStartArgs, Shown};
use crate::signals::EndingSignals;
use crate::terminal::{at_least_one, distinct_cookies, known_cookie, known_option, print_answer, say};
use crate::tools::flags::{name_quick_start, name_read};

const DEFAULT_URLS: &str = "ldap:///";

/// The server's flags: OpenLDAP's, and a few more under long names.
#[derive(Args, Debug)]
#[command(after_help = "\
Without --suffix, --join, -f and -F it reads /etc/ldap/slapd.d, else /etc/ldap/slapd.conf.
Without -h it listens at ldap:///, port 389 of all addresses; with --suffix at ldap://127.0.0.1:3890.
Without -d it goes to the background; with --suffix it stays in front.

Examples:
  larix serve --suffix dc=example,dc=com --sample
  larix serve -F larix-data/slapd.d -h ldap://127.0.0.1:3890 -d 0
  larix serve -f /etc/larix/slapd.conf -h 'ldap:/// ldaps:///' -u larix -g larix")]
pub(crate) struct ServeArgs {
    /// Read this slapd.conf
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read this slapd.d directory
    #[arg(short = 'F', value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// Listen on these URLs, separated by spaces: ldap://host:port/ ldaps://host ldapi://%2Fpath/????x-mod=0777
    #[arg(short = 'h', long = "listen", value_name = "URLS")]
    urls: Option<String>,
    /// Stay in the foreground and print these log levels: a number, names such as stats, or ? for a list
    #[arg(short = 'd', value_name = "LEVEL", allow_hyphen_values = true)]
    debug: Vec<String>,
    /// Send these log levels to syslog
    #[arg(short = 's', value_name = "LEVEL", allow_hyphen_values = true)]
    syslog_level: Option<String>,
    /// Syslog's facility: LOCAL0 to LOCAL7, USER or DAEMON
    #[arg(short = 'l', value_name = "FACILITY", default_value = "LOCAL4")]
    syslog_facility: String,
    /// The service's name in syslog
    #[arg(short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// Run as this user
    #[arg(short = 'u', value_name = "USER")]
    user: Option<String>,
    /// Run as this group
    #[arg(short = 'g', value_name = "GROUP")]
    group: Option<String>,
    /// Change to this root directory
    #[arg(short = 'r', value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Use IPv4 alone
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Use IPv6 alone
    #[arg(short = '6')]
    v6: bool,
    /// Print the version (twice: and end)
    #[arg(short = 'V', action = clap::ArgAction::Count)]
    version: u8,
    /// A consumer's cookie (accepted, without effect: each consumer's cookie is in its database)
    #[arg(short = 'c', value_name = "COOKIE", value_parser = known_cookie)]
    cookie: Vec<String>,
    /// OpenLDAP's further options (slp=...; accepted, without effect)
    #[arg(short = 'o', value_name = "OPTION[=VALUE]", value_parser = known_option)]
    option: Vec<String>,
    /// Check the configuration and end
    #[arg(short = 't', hide = true)]
    check: bool,
    /// Event loops; one a core without it
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    workers: Option<usize>,
    /// Answer /metrics, /health/live and /health/ready there, for example on http://127.0.0.1:9389/
    #[arg(long, value_name = "URL", value_parser = larix_configuration::values::http_address)]
    http: Vec<SocketAddr>,
    /// Serve the admin page there, for example on 127.0.0.1:9390; with TLS if that is not loopback
    #[arg(long, value_name = "ADDRESS", value_parser = AdminAddress::parse)]
    admin: Vec<AdminAddress>,
    /// Write the bound ports here, one a line
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
    /// Go to the background even with --suffix
    #[arg(long)]
    background: bool,
    #[command(flatten)]
    quick: QuickStartArgs,
    #[command(flatten)]
    join: JoinArgs,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// `slapd`'s command line for clap: no `--help` flag takes `-h` away.
#[derive(Debug, Parser)]
#[command(name = "slapd", about = "Larix as slapd: the stand-alone LDAP server", disable_help_flag = true)]
struct Slapd {
    #[command(flatten)]
    serve: ServeArgs,
}

/// slapd's command line.
pub(crate) fn slapd_command() -> clap::Command {
    Slapd::command()
}

/// Runs slapd with the arguments after its name.
pub(crate) fn slapd(name: &str, mut arguments: Vec<OsString>) -> ExitCode {
    arguments.insert(0, name.into());
    match Slapd::command().try_get_matches_from(arguments).and_then(|m| Slapd::from_arg_matches(&m)) {
        Ok(slapd) => run(name, &slapd.serve),
        Err(error) => crate::terminal::end_parsing(&error, 1),
    }
}

/// Runs the server.
pub(crate) fn run(name: &str, arguments: &ServeArgs) -> ExitCode {
    match try_run(name, arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(name: &str, arguments: &ServeArgs) -> anyhow::Result<ExitCode> {
    match arguments.version {
        0 => {}
        1 => say!("{}", larix_server::version()),
        _ => return print_answer(&format!("{}\n", larix_server::version())),
    }
    if arguments.debug.iter().chain(&arguments.syslog_level).any(|level| level == "?") {
        return print_answer(&level_list());
    }
    if arguments.check {
        load(arguments)?;
        return print_answer("config file testing succeeded\n");
    }
    distinct_cookies(&arguments.cookie).map_err(anyhow::Error::msg)?;
    let debug = levels(&arguments.debug)?;
    // The newcomer's server stays where it can be seen and stopped; slapd goes to the background.
    let made_here = arguments.quick.is_wanted() || arguments.join.is_wanted();
    let foreground = debug.is_some() || (made_here && !arguments.background);
    let readiness = if foreground {
        Readiness::foreground()
    } else {
        match detach()? {
            Detached::Parent(code) => return Ok(code),
            Detached::Server(readiness) => readiness,
        }
    };
    // The allocator asks for huge pages, each of which is resident as a whole: a small server would have twice the memory. A kernel that
    // does not know the call goes on with them.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let privileges = Privileges::look_up(
        arguments.user.as_deref(),
        arguments.group.as_deref(),
        arguments.root.as_deref(),
    )?;
    let of_node = arguments.join.listen();
    let listen = match (&arguments.urls, &of_node) {
        (Some(urls), _) => urls.as_str(),
        (None, _) if arguments.quick.is_wanted() => quick_start::DEFAULT_URL,
        (None, Some(of_node)) => of_node.as_str(),
        (None, None) => DEFAULT_URLS,
    };
    if arguments.root.is_none() {
        arguments.quick.refuse_served()?;
    }
    let bound = BoundServer::new(options(name, arguments, listen, debug)?, &privileges)?;
    let readiness = ended_while_it_starts(readiness)?;
    // What is written is written as the user and below the root directory that the server has from here on.
    let https = arguments.admin.iter().any(|address| address.tls);
    let quick = arguments.quick.prepare(arguments.urls.as_deref(), https)?;
    let joined = arguments.join.prepare(arguments.quick.data_given(), arguments.quick.certificate()?)?;
    let config = match (&quick, joined) {
        (Some(quick), _) => quick.config.clone(),
        (None, Some(joined)) => {
            joined.remark.iter().for_each(|remark| eprintln!("{name}: {remark}"));
            joined.config
        }
        (None, None) => load(arguments)?,
    };
    for note in config.notes.iter().filter(|_| foreground && debug.unwrap_or(0) & LogLevel::CONFIG != 0) {
        eprintln!("{name}: {note}");
    }
    let Some(quick) = quick else {
        bound.serve(config, readiness)?;
        return Ok(ExitCode::SUCCESS);
    };
    let shown = Shown::of(&bound);
    let quick = Arc::new(quick);
    let serving = Arc::clone(&quick);
    let readiness = readiness.and_then(move || serving.print_next_steps(&shown));
    // The configuration with the password's hash stays: who made it up has to say it, even if nothing is served.
    bound.serve(config, readiness).inspect_err(|_| quick.print_password_unserved())?;
    Ok(ExitCode::SUCCESS)
}

/// The kernel keeps signals without a handler from the first process of a container. One that ends the server would be lost before
/// the server serves, and the container would go on until it is killed. To be called when the user is the server's: the thread
/// keeps it.
fn ended_while_it_starts(readiness: Readiness) -> anyhow::Result<Readiness> {
    if std::process::id() != 1 {
        return Ok(readiness);
    }
    let serves = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&serves);
    EndingSignals::new()?.end_after(move || {
        // Then the server ends itself.
        while known.load(Ordering::Acquire) {
            std::thread::park();
        }
    })?;
    Ok(readiness.and_then(move || serves.store(true, Ordering::Release)))
}

fn options(
    name: &str,
    arguments: &ServeArgs,
    listen: &str,
    debug: Option<u32>,
) -> anyhow::Result<ServeOptions> {
    let family = match (arguments.v4, arguments.v6) {
        (true, _) => AddressFamily::V4,
        (_, true) => AddressFamily::V6,
        _ => AddressFamily::Any,
    };
    let facility = &arguments.syslog_facility;
    Ok(ServeOptions {
        urls: parse_urls(listen)?,
        family,
        debug,
        syslog_levels: levels(arguments.syslog_level.as_slice())?,
        syslog_facility: syslog_facility(facility).with_context(|| {
            format!("unknown syslog facility \"{facility}\" after -l: LOCAL0 to LOCAL7, USER or DAEMON")
        })?,
        program: arguments
            .name
            .clone()
            .unwrap_or_else(|| if name == "larix" { "larix" } else { "slapd" }.to_owned()),
        workers: arguments.workers,
        http: arguments.http.clone(),
        admin: arguments.admin.clone(),
        port_file: arguments.port_file.clone(),
    })
}

/// The configuration that the flags name, or the system's; with `-f` and `-F` the file is converted to the directory.
fn load(arguments: &ServeArgs) -> anyhow::Result<Config> {
    let location = Location { file: arguments.file.clone(), directory: arguments.directory.clone() };
    let stamp = Stamp { clock: &SystemClock, random: &SystemRandom };
    let loaded = location.load(&stamp, arguments.check);
    let config = loaded.map_err(|error| name_quick_start(&location, error))?;
    name_read(&location, &config);
    served(config)
}

/// A configuration with nothing in it that the server cannot do.
fn served(config: Config) -> anyhow::Result<Config> {
    let refusals: Vec<String> = config.refusals().iter().map(ToString::to_string).collect();
    anyhow::ensure!(refusals.is_empty(), "{}", refusals.join("\n"));
    Ok(config)
}

/// The union of the levels named; `None` without any.
fn levels(words: &[String]) -> anyhow::Result<Option<u32>> {
    let mut bits = None;
    for word in words.iter().flat_map(|words| words.split(',')) {
        let level = LogLevel::parse_word(word)
            .with_context(|| format!("unknown log level \"{word}\": one of\n{}", level_list()))?;
        bits = Some(bits.unwrap_or(0) | level.0);
    }
    Ok(bits)
}

fn level_list() -> String {
    let mut list = String::new();
    for (name, bits) in LogLevel::NAMES {
        let number = i64::from(bits.cast_signed());
        // Writing to a string cannot fail.
        let _ = writeln!(list, "  {name:<8} {number:>6}  {bits:#x}");
    }
    list
}
