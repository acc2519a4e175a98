//! `larix restore`: puts the databases of a backup back, while no server runs on them.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_server::config::{self, Config, DatabaseKind, MdbSettings};
use larix_store::lmdb::{DATA_FILE, DirectoryLock, LmdbOptions};

use super::manifest::{DatabaseBackup, Manifest};
use super::{CONFIGURATION, sync_directory};
use crate::tools::common::{self, ConfigArgs};

/// Put the databases of a backup back while no server runs
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct RestoreArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The backup
    #[arg(long, value_name = "DIRECTORY")]
    from: PathBuf,
    /// Only the database with this suffix
    #[arg(short = 'b', value_name = "SUFFIX")]
    suffix: Option<String>,
    /// Where there is a database already, set it aside as data.mdb.replaced
    #[arg(long)]
    replace: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: RestoreArgs = common::parse(name, arguments);
    match restore(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A database of the backup and where the configuration has it.
struct Target<'a> {
    backup: &'a DatabaseBackup,
    mdb: &'a MdbSettings,
    lock: DirectoryLock,
}

/// Nothing is touched until every target is known, free and locked.
fn restore(args: &RestoreArgs) -> anyhow::Result<()> {
    let manifest = Manifest::read(&args.from)?;
    let config = args.config.read()?;
    let mut targets = Vec::new();
    for backup in wanted(&manifest, args)? {
        targets.push(target(backup, &config, args)?);
    }
    for target in &targets {
        put_back(&args.from, target, args.replace)?;
        let suffixes = target.backup.suffixes.join(", ");
        println!("{suffixes}: {} entries in {}", target.backup.entries, target.mdb.directory.display());
    }
    println!(
        "made at {}; the configuration of then is in {}",
        manifest.made_at,
        args.from.join(CONFIGURATION).display()
    );
    // Held until all is in its place.
    targets.into_iter().for_each(|target| drop(target.lock));
    Ok(())
}

fn wanted<'m>(manifest: &'m Manifest, args: &RestoreArgs) -> anyhow::Result<Vec<&'m DatabaseBackup>> {
    let Some(suffix) = &args.suffix else { return Ok(manifest.databases.iter().collect()) };
    let has = |backup: &&DatabaseBackup| backup.suffixes.iter().any(|own| own.eq_ignore_ascii_case(suffix));
    let found: Vec<_> = manifest.databases.iter().filter(has).collect();
    if found.is_empty() {
        let held: Vec<_> = manifest.databases.iter().flat_map(|backup| &backup.suffixes).collect();
        bail!("the backup has no database {suffix:?}; it has {held:?}");
    }
    Ok(found)
}

fn target<'a>(
    backup: &'a DatabaseBackup,
    config: &'a Config,
    args: &RestoreArgs,
) -> anyhow::Result<Target<'a>> {
    let normal = |text: &String| config.schema.parse_dn(text).ok();
    let suffixes: Vec<_> = backup.suffixes.iter().filter_map(normal).collect();
    let serves =
        |database: &&config::Database| database.suffixes.iter().any(|own| suffixes.contains(&own.normal));
    let section = config.databases.iter().find(serves).with_context(|| {
        format!("the configuration has no database {:?}; -b restores others alone", backup.suffixes)
    })?;
    let DatabaseKind::Mdb(mdb) = &section.kind else {
        bail!("{:?} is a {} database, which stores no entries", backup.suffixes, section.kind.name());
    };
    let lock = DirectoryLock::acquire(&mdb.directory, &LmdbOptions::default())?;
    let file = mdb.directory.join(DATA_FILE);
    if !args.replace && file.symlink_metadata().is_ok() {
        bail!("{} exists: --replace sets it aside as {DATA_FILE}.replaced", file.display());
    }
    Ok(Target { backup, mdb, lock })
}

/// Copies beside, compares the checksum, and renames.
fn put_back(from: &Path, target: &Target<'_>, replace: bool) -> anyhow::Result<()> {
    let directory = &target.mdb.directory;
    let (file, part) = (directory.join(DATA_FILE), directory.join(format!("{DATA_FILE}.part")));
    let failed = || format!("cannot write {}", part.display());
    let mode = target.mdb.mode.unwrap_or_else(|| LmdbOptions::default().file_mode);
    let mut options = OpenOptions::new();
    let mut copy =
        options.write(true).create(true).truncate(true).mode(mode).open(&part).with_context(failed)?;
    let copied = target.backup.file.verify(from, |chunk| copy.write_all(chunk));
    let copied = copied.and_then(|()| copy.sync_all().with_context(failed));
    if let Err(error) = copied {
        // What is left of it would be written over by the next attempt.
        let _ = fs::remove_file(&part);
        return Err(error);
    }
    if replace && file.symlink_metadata().is_ok() {
        let aside = directory.join(format!("{DATA_FILE}.replaced"));
        fs::rename(&file, &aside).with_context(|| format!("cannot set {} aside", file.display()))?;
    }
    fs::rename(&part, &file).with_context(|| format!("cannot make {}", file.display()))?;
    // It belongs to the old file; LMDB makes another.
    let _ = fs::remove_file(directory.join("lock.mdb"));
    sync_directory(directory)
}
