//! How servers are stopped and started: units of systemd, or processes.

use std::fs::{self, File};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use larix_proto::url::{LdapUrl, UrlScheme};
use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::processes;

const SLAPD_UNIT: &str = "slapd";
const LARIX_UNIT: &str = "larix-adopted";
const LDAP_PORT: u16 = 389;
const LDAPS_PORT: u16 = 636;
/// How long a server that is starting may take to open its database.
const STARTED_TIME: Duration = Duration::from_secs(5);
const CONNECT_TIME: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum ServiceKind {
    /// slapd.service, and larix-adopted.service, which is made
    Systemd,
    /// Processes: slapd gets SIGTERM; both go to the background by themselves
    Process,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Service {
    Systemd {
        /// Where units are put.
        units: PathBuf,
    },
    Process,
}

impl Service {
    pub(super) fn choose(requested: Option<ServiceKind>, units: &Path) -> Self {
        let kind = requested.unwrap_or_else(|| {
            let runs = Path::new("/run/systemd/system").exists();
            let knows = runs && systemctl(&["cat", SLAPD_UNIT], None).is_ok();
            if knows { ServiceKind::Systemd } else { ServiceKind::Process }
        });
        match kind {
            ServiceKind::Systemd => Self::Systemd { units: units.to_owned() },
            ServiceKind::Process => Self::Process,
        }
    }

    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Systemd { .. } => "systemctl stop slapd",
            Self::Process => "SIGTERM to its process",
        }
    }

    /// Stops slapd, if it runs, and waits until no process has its databases open.
    pub(super) fn stop_slapd(&self, journal: &Journal, lock: &File) -> anyhow::Result<()> {
        if let Self::Systemd { .. } = self {
            systemctl(&["stop", SLAPD_UNIT], Some(lock))?;
        }
        for database in &journal.found.databases {
            match self {
                // systemd would start again what ends by a signal alone.
                Self::Systemd { .. } => processes::demand_none(&database.directory)?,
                Self::Process => processes::end_servers(&database.directory)?,
            }
        }
        Ok(())
    }

    /// Starts slapd as it ran before, unless it runs, and waits until it accepts connections.
    pub(super) fn start_slapd(&self, journal: &Journal, lock: &File) -> anyhow::Result<()> {
        let found = &journal.found;
        let runs = || {
            found.databases.iter().any(|database| !processes::with_files_in(&database.directory).is_empty())
        };
        match self {
            Self::Systemd { units } => {
                let unit = unit_file(units);
                if unit.exists() {
                    systemctl(&["disable", LARIX_UNIT], Some(lock))?;
                    fs::remove_file(&unit).with_context(|| format!("cannot remove {}", unit.display()))?;
                    systemctl(&["daemon-reload"], Some(lock))?;
                    systemctl(&["enable", SLAPD_UNIT], Some(lock))?;
                }
                systemctl(&["start", SLAPD_UNIT], Some(lock))?;
            }
            Self::Process if runs() => {}
            Self::Process => {
                let mut command = Command::new(&found.program);
                command.args(["-h", &found.urls, found.flag()]).arg(&found.configuration);
                // One that a killed `larix adopt` started has the ports before it has the database.
                if let Err(error) = start(own_user(command, journal).args(&found.options), lock)
                    && !processes::wait_for(STARTED_TIME, runs)
                {
                    return Err(error);
                }
            }
        }
        wait_for(&found.urls, "slapd")
    }

    /// Starts Larix in slapd's place, unless it runs, and waits until it accepts connections.
    pub(super) fn start_larix(&self, journal: &Journal, lock: &File) -> anyhow::Result<()> {
        let found = &journal.found;
        let program = std::env::current_exe().context("cannot tell where this program is")?;
        match self {
            Self::Systemd { units } => {
                let unit = unit_file(units);
                fs::write(&unit, unit_text(&program, journal)?)
                    .with_context(|| format!("cannot write {}", unit.display()))?;
                systemctl(&["daemon-reload"], Some(lock))?;
                systemctl(&["disable", SLAPD_UNIT], Some(lock))?;
                systemctl(&["enable", LARIX_UNIT], Some(lock))?;
                systemctl(&["start", LARIX_UNIT], Some(lock))?;
            }
            Self::Process if !processes::with_files_in(&journal.larix()).is_empty() => {}
            Self::Process => {
                let mut command = Command::new(program);
                command.args(["serve", "-h", &found.urls, "-F"]).arg(journal.configuration());
                start(&mut own_user(command, journal), lock)?;
            }
        }
        wait_for(&found.urls, "Larix")
    }

    /// Stops Larix, if it runs, and waits until no process has its databases open.
    pub(super) fn stop_larix(&self, journal: &Journal, lock: &File) -> anyhow::Result<()> {
        if let Self::Systemd { units } = self
            && unit_file(units).exists()
        {
            systemctl(&["stop", LARIX_UNIT], Some(lock))?;
        }
        processes::end_servers(&journal.larix())
    }
}

fn unit_file(units: &Path) -> PathBuf {
    units.join(format!("{LARIX_UNIT}.service"))
}

/// Runs as slapd did: its certificates and keys are for its user.
fn unit_text(program: &Path, journal: &Journal) -> anyhow::Result<String> {
    let found = &journal.found;
    let mut words = vec![program.display().to_string(), "serve".to_owned(), "-d".to_owned(), "0".to_owned()];
    words.extend([
        "-h".to_owned(),
        found.urls.clone(),
        "-F".to_owned(),
        journal.configuration().display().to_string(),
    ]);
    for (flag, value) in [("-u", &found.user), ("-g", &found.group)] {
        words.extend(value.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
    }
    let mut line = String::new();
    for word in &words {
        ensure!(
            !word.contains(['\n', '"', '\\']),
            "{word:?} cannot stand in a unit of systemd: take out the quote, the backslash or the line's end"
        );
        // In a unit a percent sign and a dollar sign are words of systemd's own.
        line += &format!(" \"{}\"", word.replace('%', "%%").replace('$', "$$"));
    }
    Ok(format!(
        "# Made by larix adopt; larix adopt --back removes it.\n[Unit]\nDescription=Larix in the place of slapd\n\
         After=network-online.target\nWants=network-online.target\nConflicts=slapd.service\n\n[Service]\nType=notify\n\
         RuntimeDirectory=slapd\nRuntimeDirectoryPreserve=yes\nExecStart={}\nRestart=on-failure\nLimitNOFILE=65536\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        line.trim_start()
    ))
}

/// The flags of slapd by which it gives up root.
fn own_user(mut command: Command, journal: &Journal) -> Command {
    for (flag, value) in [("-u", &journal.found.user), ("-g", &journal.found.group)] {
        value.iter().for_each(|value| {
            command.args([flag, value.as_str()]);
        });
    }
    command
}

/// Starts a server that goes to the background by itself. Until it serves, what is started has the lock: a `larix adopt` that goes on
/// after a kill waits for it, and finds the server.
fn start(command: &mut Command, lock: &File) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let lock = lock.try_clone().context("cannot share the lock")?;
    let status = command.stdin(lock).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot start {name}"))?;
    ensure!(status.success(), "{name} did not start ({status}); its log, or what stands above, says why");
    Ok(())
}

fn systemctl(arguments: &[&str], lock: Option<&File>) -> anyhow::Result<()> {
    let input = lock.map(File::try_clone).transpose().context("cannot share the lock")?;
    let input = input.map_or_else(Stdio::null, Stdio::from);
    let output = Command::new("systemctl").args(arguments).stdin(input).output();
    let output = output.context("cannot start systemctl")?;
    if !output.status.success() {
        bail!("systemctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn wait_for(urls: &str, who: &str) -> anyhow::Result<()> {
    for text in urls.split_ascii_whitespace() {
        // Behind a local socket's path there may be what slapd alone knows, x-mod say.
        let Ok(url) = LdapUrl::parse(text.split('?').next().unwrap_or(text)) else { continue };
        ensure!(
            processes::wait_until(|| accepts(&url)),
            "{who} accepts no connection on {text}: look at its log, then run this again"
        );
    }
    Ok(())
}

fn accepts(url: &LdapUrl) -> bool {
    let host = url.host.as_str();
    if url.scheme == UrlScheme::Ldapi {
        return UnixStream::connect(url.socket_path()).is_ok();
    }
    let host = if matches!(host, "" | "0.0.0.0" | "*") { "127.0.0.1" } else { host };
    let host = if host == "::" { "::1" } else { host };
    let usual = if url.scheme == UrlScheme::Ldaps { LDAPS_PORT } else { LDAP_PORT };
    let Ok(addresses) = (host, url.port.unwrap_or(usual)).to_socket_addrs() else { return false };
    addresses.into_iter().any(|address| TcpStream::connect_timeout(&address, CONNECT_TIME).is_ok())
}
