//! `larix backup`: takes a backup, or verifies one.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_configuration::values::Throttle;
use larix_engine::tables::TABLES;
use larix_server::backup::{self, Chain, Manifest, Source};
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use super::pace;
use crate::signals;
use crate::terminal::{print_report, say};
use crate::tools::choice::{self, Chosen};
use crate::tools::flags::{self, ConfigArgs, DatabaseArgs};

/// Copy databases while the server runs, with checksums
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  larix backup -F larix-data/slapd.d --to /backup/monday
  larix backup -F larix-data/slapd.d --to /backup/monday --incremental
  larix backup --verify /backup/monday")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    /// Make this directory; `-` writes a stream to standard output. Without -b and -n it gets every database
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "verify", conflicts_with = "verify")]
    to: Option<PathBuf>,
    /// Add to the backup in --to what was changed since the last one there
    #[arg(long, conflicts_with = "verify")]
    incremental: bool,
    /// Read a backup and its increments and compare the checksums instead; `-` reads a stream
    #[arg(long, value_name = "DIRECTORY")]
    verify: Option<PathBuf>,
    /// With --verify: restore it into a directory that is removed again, and check tree, entries and indexes
    #[arg(long, requires = "verify")]
    load: bool,
    /// Bytes a second at most, such as 50m. A backup gives way to the server and rests as long as it works; `none`: as fast
    /// as it can
    #[arg(long, value_name = "RATE", value_parser = Throttle::parse)]
    throttle: Option<Throttle>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(crate) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: BackupArgs = flags::parse(name, arguments);
    let done = match (&args.verify, &args.to) {
        (Some(directory), _) => verify(&args, directory),
        (None, Some(directory)) => take(&args, directory),
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

fn verify(args: &BackupArgs, directory: &Path) -> anyhow::Result<()> {
    let throttle = args.throttle.unwrap_or(Throttle::Unlimited);
    let mut pace = pace(throttle);
    if directory == Path::new("-") {
        if args.load {
            bail!("--load needs a directory: `larix restore --from -` makes databases of a stream");
        }
        let summary = backup::unpack(&mut io::stdin().lock(), None, &mut pace)?;
        return print_report(&format!("the stream: {} files, {} bytes, whole", summary.files, summary.bytes));
    }
    let chain = Chain::read(directory)?;
    chain.verify(&mut pace)?;
    for database in &chain.full.databases {
        let (entries, bytes) = (database.entries, database.file.bytes);
        print_report(&format!("{}: {entries} entries, {bytes} bytes, whole", database.name()))?;
    }
    print_report(&format!("made at {} by Larix {}", chain.full.made_at, chain.full.larix))?;
    for increment in &chain.increments {
        let manifest = &increment.manifest;
        let changes: u64 = manifest.databases.iter().map(|database| database.entries).sum();
        let (directory, made_at) = (increment.directory.display(), &manifest.made_at);
        print_report(&format!("{directory}: {changes} changes, made at {made_at}, whole"))?;
    }
    if args.load {
        load(args, &chain)?;
    }
    Ok(())
}

fn load(args: &BackupArgs, chain: &Chain) -> anyhow::Result<()> {
    let config = args.config.read()?;
    // What is restored is as large as the databases, and has the hashes of passwords: a signal removes it, too.
    signals::guarded("larix backup: broken off; removing what was restored", |guard| {
        let scratch = tempfile::Builder::new().prefix("larix-verify-").tempdir();
        let scratch = scratch.context("no temporary folder")?.keep();
        guard.set_folder(Some(scratch.clone()));
        load_into(&scratch, &config, args, chain)
    })
}

fn load_into(scratch: &Path, config: &Config, args: &BackupArgs, chain: &Chain) -> anyhow::Result<()> {
    let mut findings = 0;
    for loaded in chain.load(config, scratch, &mut pace(args.throttle.unwrap_or(Throttle::Unlimited)))? {
        loaded.findings.iter().for_each(|finding| eprintln!("{finding}"));
        findings += loaded.findings.len();
        print_report(&format!(
            "{}: loaded with {} changes, {} entries, {} findings",
            loaded.suffix,
            loaded.changes,
            loaded.entries,
            loaded.findings.len()
        ))?;
    }
    if findings > 0 {
        bail!("what was restored does not agree with itself");
    }
    Ok(())
}

fn take(args: &BackupArgs, to: &Path) -> anyhow::Result<()> {
    let config = args.config.read()?;
    let mut opened = Vec::new();
    for section in chosen(args, &config)? {
        let Some(mdb) = section.kind.mdb() else {
            bail!("a {} database stores no entries", section.kind.name());
        };
        let suffixes: Vec<String> = section.suffixes.iter().map(|suffix| suffix.text.clone()).collect();
        opened.push((LmdbStore::open(&mdb.directory, &TABLES, &LmdbOptions::for_reading())?, suffixes));
    }
    let sources: Vec<Source<'_>> =
        opened.iter().map(|(store, suffixes)| Source { store, suffixes }).collect();
    let throttle = args.throttle.unwrap_or_default();
    if throttle != Throttle::Unlimited {
        backup::give_way(backup::LOW);
    }
    let mut pace = pace(throttle);
    if to == Path::new("-") {
        if args.incremental {
            bail!("an increment is added to the backup in a directory: --to names it");
        }
        let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
        backup::take_stream(&config, &sources, &mut out, &mut pace)?;
        return Ok(());
    }
    let manifest = match args.incremental {
        true => backup::take_increment(&config, &sources, to, &mut pace)?,
        false => backup::take_full(&config, &sources, to, &mut pace)?,
    };
    report(&manifest, if args.incremental { "changes" } else { "entries" });
    Ok(())
}

fn report(manifest: &Manifest, what: &str) {
    for database in &manifest.databases {
        say!("{}: {} {what}, {} bytes", database.name(), database.entries, database.file.bytes);
    }
}

fn chosen<'c>(
    args: &BackupArgs,
    config: &'c Config,
) -> anyhow::Result<Vec<&'c larix_configuration::Database>> {
    if args.database.is_unset() {
        let stored = |database: &&larix_configuration::Database| database.kind.is_in_lmdb();
        let all: Vec<_> = config.databases.iter().filter(stored).collect();
        if all.is_empty() {
            return Err(choice::nothing_stored(config));
        }
        choice::why_in_engine(config, |_| true)
            .iter()
            .for_each(|why| eprintln!("note: not in this backup: {why}"));
        return Ok(all);
    }
    match args.database.choose(config)? {
        Chosen::Stored(databases) => Ok(databases),
        Chosen::Configuration => bail!("cn=config is part of every backup; `larix cat -n 0` writes it alone"),
    }
}
