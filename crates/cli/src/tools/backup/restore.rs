//! `larix restore`: puts the databases of a backup back, while no server runs on them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_configuration::values::Throttle;
use larix_server::backup::{self, CONFIGURATION, Chain, DatabaseBackup, Target, Until};
use larix_store::lmdb::{DATA_FILE, DirectoryLock, LmdbOptions, REPLACED_FILE, UNPACKING};

use super::pace;
use crate::terminal::say;
use crate::tools::choice;
use crate::tools::flags::{self, ConfigArgs};

/// Put the databases of a backup back while no server runs
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix restore -F larix-data/slapd.d --from /backup/monday --replace
  larix restore -F larix-data/slapd.d --from /backup/monday --to-time 2026-11-21T12:34:56Z")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The backup; `-` reads a stream from standard input
    #[arg(long, value_name = "DIRECTORY")]
    from: PathBuf,
    /// Only the database with this suffix
    #[arg(short = 'b', value_name = "SUFFIX")]
    suffix: Option<String>,
    /// Every change up to this moment and none after it, such as 2026-11-21T12:34:56Z
    #[arg(long, value_name = "TIME", value_parser = Until::parse_time, conflicts_with = "to_csn")]
    to_time: Option<Until>,
    /// Every change up to this CSN, as entryCSN has it
    #[arg(long, value_name = "CSN", value_parser = Until::parse_csn)]
    to_csn: Option<Until>,
    /// Where there is a database already, set it aside as data.mdb.replaced
    #[arg(long)]
    replace: bool,
    /// Bytes a second at most, such as 50m
    #[arg(long, value_name = "RATE", value_parser = Throttle::parse)]
    throttle: Option<Throttle>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: RestoreArgs = flags::parse(name, arguments);
    let done = if args.from == Path::new("-") { from_stream(&args) } else { restore(&args, &args.from) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The stream becomes a backup beside the first database, which is then restored and removed.
fn from_stream(args: &RestoreArgs) -> anyhow::Result<()> {
    let config = args.config.read()?;
    let first = config.databases.iter().find_map(|database| Some(&database.kind.mdb()?.directory));
    let first = first.ok_or_else(|| choice::nothing_stored(&config))?;
    // A server at work there must not be disturbed, and two restores not meet.
    drop(DirectoryLock::acquire(first, &LmdbOptions::default())?);
    let unpacked = first.join(UNPACKING);
    if unpacked.symlink_metadata().is_ok() {
        fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
    }
    let done = backup::unpack(
        &mut io::stdin().lock(),
        Some(&unpacked),
        &mut pace(args.throttle.unwrap_or(Throttle::Unlimited)),
    )
    .map_err(anyhow::Error::from)
    .and_then(|_| restore(args, &unpacked));
    // What cannot be removed is removed by the next restore of a stream.
    let _ = fs::remove_dir_all(&unpacked);
    done
}

/// Nothing is touched until every target is known, free and locked, and every database is whole beside its place.
fn restore(args: &RestoreArgs, from: &Path) -> anyhow::Result<()> {
    let chain = Chain::read(from)?;
    let config = args.config.read()?;
    let mut targets = Vec::new();
    for backup in selected_backups(&chain, args)? {
        targets.push(target(backup, &config, args)?);
    }
    let until = args.to_time.or(args.to_csn).unwrap_or(Until::End);
    let mut pace = pace(args.throttle.unwrap_or(Throttle::Unlimited));
    let restored = backup::restore(&chain, &targets, &config, until, args.replace, &mut pace)?;
    for (target, restored) in targets.iter().zip(restored) {
        let last = restored.last.map_or_else(|| "none".to_owned(), |csn| csn.to_string());
        say!(
            "{}: {} entries in {}, {} changes carried out; the last change is {last}",
            target.backup.name(),
            restored.entries,
            target.directory.display(),
            restored.changes
        );
    }
    say!("made at {}", chain.last().made_at);
    if args.from == from {
        say!("the configuration of that time is in {}", from.join(CONFIGURATION).display());
    }
    // Held until all is in its place.
    targets.into_iter().for_each(|target| drop(target.lock));
    Ok(())
}

fn selected_backups<'m>(chain: &'m Chain, args: &RestoreArgs) -> anyhow::Result<Vec<&'m DatabaseBackup>> {
    let found = chain.databases(args.suffix.as_deref().unwrap_or_default());
    if let (true, Some(suffix)) = (found.is_empty(), &args.suffix) {
        let suffixes: Vec<_> = chain.full.databases.iter().flat_map(|backup| &backup.suffixes).collect();
        bail!("the backup has no database {suffix:?}; it has {suffixes:?}");
    }
    Ok(found)
}

fn target<'a>(
    backup: &'a DatabaseBackup,
    config: &'a Config,
    args: &RestoreArgs,
) -> anyhow::Result<Target<'a>> {
    let section = backup.section(config).with_context(|| {
        format!(
            "the configuration has no database {}: name another one with -f or -F (the backup has its own in {CONFIGURATION}), \
             or say with -b which database alone to restore",
            backup.name()
        )
    })?;
    let Some(mdb) = section.kind.mdb() else {
        bail!("{:?} is a {} database, which stores no entries", backup.suffixes, section.kind.name());
    };
    let lock = DirectoryLock::acquire(&mdb.directory, &LmdbOptions::default())?;
    let file = mdb.directory.join(DATA_FILE);
    if !args.replace && file.symlink_metadata().is_ok() {
        bail!("{} exists: --replace sets it aside as {REPLACED_FILE}", file.display());
    }
    let mode = mdb.mode.unwrap_or_else(|| LmdbOptions::default().file_mode);
    Ok(Target { backup, directory: mdb.directory.clone(), mode, lock })
}
