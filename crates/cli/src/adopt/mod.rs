//! `larix adopt`: takes over the slapd of this machine, and gives back to it. See
//! `docs/adr/0074-a-slapd-is-adopted-by-its-own-tools.md`.

mod back;
mod configuration;
mod content;
mod forward;
mod journal;
mod processes;
mod service;
mod slapd;
mod tools;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use rustix::fs::FlockOperation;

use self::journal::{Journal, Step};
use self::service::ServiceKind;
use crate::terminal::print_report;

/// Where everything is kept that Larix has of the slapd it took over.
const DEFAULT_PLACE: &str = "/var/lib/larix-adopted";
const DEFAULTS: &str = "/etc/default/slapd";

/// What `larix adopt` is given.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  larix adopt --dry-run
  larix adopt
  larix adopt --back")]
pub(crate) struct AdoptArgs {
    /// Return to slapd, with what was written since; or undo what was begun
    #[arg(long)]
    back: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// slapd's slapd.conf; without -f and -F, what /etc/default/slapd names
    #[arg(short = 'f', value_name = "FILE", conflicts_with = "directory")]
    file: Option<PathBuf>,
    /// slapd's slapd.d
    #[arg(short = 'F', value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// The settings of Debian's package
    #[arg(long, value_name = "FILE", default_value = DEFAULTS)]
    defaults: PathBuf,
    /// slapd's program, which is its tools, too
    #[arg(long, value_name = "FILE", default_value = "/usr/sbin/slapd")]
    slapd: PathBuf,
    /// Where Larix keeps its configuration, its databases and the journal of the move
    #[arg(long, value_name = "DIRECTORY", default_value = DEFAULT_PLACE)]
    place: PathBuf,
    /// How servers are stopped and started; without it systemd where it runs and knows slapd.service
    #[arg(long, value_enum)]
    service: Option<ServiceKind>,
    /// Where units of systemd are put
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/systemd/system", hide = true)]
    units: PathBuf,
}

pub(crate) fn main(arguments: &AdoptArgs) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larix adopt: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &AdoptArgs) -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root can stop slapd and read all of its files: run it with sudo"
    );
    let place = &arguments.place;
    ensure!(place.is_absolute(), "--place {}: give the whole path, from / on", place.display());
    if !Journal::is_in(place) {
        if arguments.back {
            bail!(
                "nothing was adopted: there is no {}; --place names another directory",
                Journal::path(place).display()
            );
        }
        if let Ok(mut entries) = fs::read_dir(place) {
            ensure!(
                entries.all(|entry| entry.is_ok_and(|entry| Journal::may_lie_before(&entry.file_name()))),
                "{} exists and is not empty: move it away, or name another directory with --place",
                place.display()
            );
        }
        let found = slapd::find(arguments)?;
        if arguments.dry_run {
            return found.print_steps(place);
        }
        fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
        let lock = lock(place)?;
        // What was found is not so any more: the other one may have stopped slapd.
        ensure!(
            !Journal::is_in(place),
            "another one has begun meanwhile: `larix adopt --dry-run --place {}` says where it stands",
            place.display()
        );
        let mut journal = Journal::begin(place, found)?;
        return forward::run(&mut journal, &lock);
    }
    let mut journal = Journal::read(place)?;
    if arguments.dry_run {
        return print_report(&format!(
            "{} was begun and stands at: {}",
            place.display(),
            journal.step.tells()
        ));
    }
    let lock = lock(place)?;
    // The process that had the lock may have come further.
    journal = Journal::read(place)?;
    if arguments.back {
        return back::run(&mut journal, &lock);
    }
    match journal.step {
        Step::Adopted => {
            bail!("slapd was adopted already: larix adopt --back --place {} returns to it", place.display())
        }
        step if step >= Step::Returning => {
            bail!("the way back was begun: larix adopt --back goes on with it")
        }
        Step::Preparing | Step::Copied => {
            // The configuration and the processes may be others by now.
            journal.found = slapd::find(arguments)?;
            forward::run(&mut journal, &lock)
        }
        _ => forward::run(&mut journal, &lock),
    }
}

/// Kept by every tool that is started, too: a tool that outlives a killed `larix adopt` still writes, and is waited for.
fn lock(place: &std::path::Path) -> anyhow::Result<fs::File> {
    let path = place.join(journal::LOCK);
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!(
            "larix adopt: another one, or a tool that it started, is at work; waits until it has ended"
        );
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}
