//! `larix backup`: takes a backup, or verifies one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_engine::log;
use larix_engine::tables::{ENTRIES, TABLES};
use larix_engine::time::Clock;
use larix_proto::ldif::{Body, Record, Writer};
use larix_server::clock::SystemClock;
use larix_server::config::{self, Config, DatabaseKind};
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use super::manifest::{DatabaseBackup, Manifest, StoredFile};
use super::{CONFIGURATION, sync_directory};
use crate::tools::common::{self, Chosen, ConfigArgs, DatabaseArgs};

/// Copy databases while the server runs, with checksums
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct BackupArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// The directory to be made; without -b and -n it gets every database
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "verify", conflicts_with = "verify")]
    to: Option<PathBuf>,
    /// Verify a backup's checksums instead
    #[arg(long, value_name = "DIRECTORY")]
    verify: Option<PathBuf>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: BackupArgs = common::parse(name, arguments);
    let done = match (&args.verify, &args.to) {
        (Some(directory), _) => verify(directory),
        (None, Some(directory)) => backup(&args, directory),
        (None, None) => Err(anyhow::anyhow!("--to DIRECTORY says where")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn verify(directory: &Path) -> anyhow::Result<()> {
    let manifest = Manifest::read(directory)?;
    manifest.configuration.verify(directory, |_| Ok(()))?;
    for database in &manifest.databases {
        database.file.verify(directory, |_| Ok(()))?;
        println!(
            "{}: {} entries, {} bytes, whole",
            database.suffixes.join(", "),
            database.entries,
            database.file.bytes
        );
    }
    println!("made at {} by Larix {}", manifest.made_at, manifest.larix);
    Ok(())
}

/// Everything is made beside and renamed: the directory has a whole backup or does not exist.
fn backup(args: &BackupArgs, directory: &Path) -> anyhow::Result<()> {
    let config = args.config.read()?;
    let databases = chosen(args, &config)?;
    if directory.symlink_metadata().is_ok() {
        bail!("{} exists: a backup makes its directory", directory.display());
    }
    let parent =
        directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut beside = directory.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    make_directory(&beside).with_context(|| {
        format!("cannot make {}; if it is left from a backup that was killed, remove it", beside.display())
    })?;
    let made = fill(&beside, &config, &databases).and_then(|manifest| {
        fs::rename(&beside, directory).with_context(|| format!("cannot make {}", directory.display()))?;
        sync_directory(parent)?;
        Ok(manifest)
    });
    match made {
        Ok(manifest) => {
            for database in &manifest.databases {
                let suffixes = database.suffixes.join(", ");
                println!("{suffixes}: {} entries, {} bytes", database.entries, database.file.bytes);
            }
            Ok(())
        }
        Err(error) => {
            // What cannot be removed is named by the next backup to the same place.
            let _ = fs::remove_dir_all(&beside);
            Err(error)
        }
    }
}

fn chosen<'c>(args: &BackupArgs, config: &'c Config) -> anyhow::Result<Vec<&'c config::Database>> {
    if args.database.is_unset() {
        let stored = |database: &&config::Database| matches!(database.kind, DatabaseKind::Mdb(_));
        let all: Vec<_> = config.databases.iter().filter(stored).collect();
        if all.is_empty() {
            bail!("the configuration has no database that stores entries");
        }
        return Ok(all);
    }
    match args.database.choose(config)? {
        Chosen::Stored(databases) => Ok(databases),
        Chosen::Configuration => bail!("cn=config is part of every backup; `larix cat -n 0` writes it alone"),
    }
}

fn fill(directory: &Path, config: &Config, databases: &[&config::Database]) -> anyhow::Result<Manifest> {
    write_private(&directory.join(CONFIGURATION), &configuration(config))?;
    let mut copied = Vec::new();
    for (number, section) in databases.iter().enumerate() {
        copied.push(copy(directory, number + 1, section)?);
    }
    let made_at = SystemClock::new().now().generalized();
    let configuration = StoredFile::of(directory, CONFIGURATION.into())?;
    let manifest = Manifest::new(made_at, configuration, copied);
    manifest.write(directory)?;
    sync_directory(directory)?;
    Ok(manifest)
}

fn configuration(config: &Config) -> Vec<u8> {
    let writer = Writer::new(None);
    let mut text = Vec::new();
    for entry in config.entries() {
        let record = Record { line: 0, dn: entry.dn, body: Body::Content(entry.attributes) };
        writer.record(&mut text, &record);
    }
    text
}

/// Copies one snapshot without its free pages, and looks into the copy.
fn copy(directory: &Path, number: usize, section: &config::Database) -> anyhow::Result<DatabaseBackup> {
    let DatabaseKind::Mdb(mdb) = &section.kind else {
        bail!("a {} database stores no entries", section.kind.name());
    };
    let name = PathBuf::from(format!("database-{number}"));
    let folder = directory.join(&name);
    make_directory(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join(larix_store::lmdb::DATA_FILE);
    let failed = || format!("copying {} to {}", mdb.directory.display(), file.display());
    let source = LmdbStore::open(&mdb.directory, &TABLES, &LmdbOptions::for_reading())?;
    let mut copy = private().open(&file).with_context(failed)?;
    source.copy_to(&mut copy, true).with_context(failed)?;
    copy.sync_all().with_context(failed)?;
    drop(copy);
    let (entries, context_csn) = look_into(&folder).with_context(failed)?;
    sync_directory(&folder)?;
    Ok(DatabaseBackup {
        suffixes: section.suffixes.iter().map(|suffix| suffix.text.clone()).collect(),
        file: StoredFile::of(directory, name.join(larix_store::lmdb::DATA_FILE))?,
        entries,
        context_csn,
    })
}

/// The number of entries of a copy, and its contextCSNs: it can be opened, then.
fn look_into(folder: &Path) -> anyhow::Result<(u64, Vec<String>)> {
    let store = LmdbStore::open(folder, &TABLES, &LmdbOptions::for_reading())?;
    let statistics = store.statistics()?;
    let table = TABLES.iter().position(|spec| spec.id == ENTRIES).and_then(|n| statistics.tables.get(n));
    let snapshot = store.snapshot()?;
    let csns = log::context_csns(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    drop(snapshot);
    drop(store);
    // LMDB makes it for readers; in a backup nobody needs it.
    let _ = fs::remove_file(folder.join("lock.mdb"));
    Ok((table.map_or(0, |table| table.records), csns.iter().map(ToString::to_string).collect()))
}

/// Files of a backup have what only the server may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Writes a new file, durably.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let write = |mut file: File| file.write_all(bytes).and_then(|()| file.sync_all());
    private().open(path).and_then(write).with_context(|| format!("cannot write {}", path.display()))
}
