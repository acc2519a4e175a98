//! `larix size`: what a directory will need, from a sample of it.
//!
//! The sample is loaded twice, half of it and the whole, into a temporary folder. Two sizes give a line for each
//! table, and the line is followed to the number of entries that is asked for. Then the sample is served and driven.

mod estimate;
mod operate;
mod sample;
mod show;

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use larix_configuration::slapd_d::Stamp;
use larix_configuration::{Config, Location};
use larix_engine::load::{self, LoadContext, LoadObserver, LoadOptions, RecordError};
use larix_engine::tables::TABLES;
use larix_load::generate::{self, Kind};
use larix_load::peer::Guard;
use larix_server::clock::{SystemClock, SystemRandom};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::{Statistics, Store};

use crate::signals;
use crate::terminal::print_report;
use estimate::Estimate;
use sample::Sample;

/// The most entries that are asked for.
const FOR_MAX: u64 = 100_000_000_000;
/// Room beside the sample's own files.
const ROOM_MIN: u64 = 64 << 20;
/// LDIF, two databases, and what the load sorts, as multiples of the LDIF.
const ROOM_FACTOR: u64 = 4;

/// Estimate the disk, memory and processors that a directory needs, from a sample of it.
///
/// Loads the sample into a temporary folder, serves it on a free loopback port, and drives it. The directory itself, and
/// the folders that its configuration names, are not touched.
#[derive(Args, Debug)]
pub(crate) struct SizeArgs {
    /// The sample: LDIF as slapcat writes it. Without it, a directory is generated
    #[arg(long, value_name = "FILE", requires = "configuration")]
    ldif: Option<PathBuf>,
    /// The slapd.conf whose schema, suffix and index lines are used (with --ldif)
    #[arg(short = 'f', id = "config", value_name = "FILE", requires = "ldif", group = "configuration")]
    config: Option<PathBuf>,
    /// The same of a slapd.d
    #[arg(short = 'F', value_name = "DIRECTORY", requires = "ldif", group = "configuration")]
    directory: Option<PathBuf>,
    /// The suffix of the database that the sample belongs to; without it the first one
    #[arg(short = 'b', value_name = "SUFFIX")]
    suffix: Option<String>,
    /// What is generated without --ldif: mail, people or subscribers
    #[arg(long, value_name = "KIND", default_value = "people", value_parser = crate::load::kind, conflicts_with = "ldif")]
    generate: Kind,
    /// How many entries are generated
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    entries: u64,
    /// How many entries the directory will have
    #[arg(long = "for", default_value_t = 10_000_000, value_name = "N")]
    target: u64,
    /// Seconds that each rate is measured; 0 measures none
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Connections that drive the server
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Where the temporary folder goes; on the disk that the directory will use, for changes wait for it
    #[arg(long, value_name = "DIRECTORY")]
    folder: Option<PathBuf>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: &SizeArgs) -> ExitCode {
    match signals::guarded("larix size: broken off", |guard| size(args, guard)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larix size: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn size(args: &SizeArgs, guard: &Guard) -> anyhow::Result<()> {
    check(args)?;
    let base = args.folder.clone().unwrap_or_else(std::env::temp_dir);
    let temporary = tempfile::Builder::new().prefix("larix-size").tempdir_in(&base);
    let temporary = temporary.with_context(|| format!("cannot make a folder in {}", base.display()))?;
    let folder = &temporary.keep();
    guard.set_folder(Some(folder.clone()));
    let source = source(args, folder)?;
    enough_room(folder, &source.ldif)?;
    let config = read_config(&source.config)?;
    let section = section(&config, args.suffix.as_deref())?;
    let sample = Sample::read(&source.ldif, &folder.join("half.ldif"))?;

    let half = load_sample(&config, section, &folder.join("half.ldif"), &folder.join("half"))?;
    let whole = load_sample(&config, section, &source.ldif, &folder.join("whole"))?;
    if whole.entries <= half.entries {
        bail!(
            "the whole sample has {} entries, its half {}: no line goes through them",
            whole.entries,
            half.entries
        );
    }
    let estimate = Estimate::new(&half, &whole, args.target);
    let operated = match args.seconds > 0.0 {
        true => {
            say("serving and driving it");
            let served = operate::SizedDatabase { section, source: &source, sample: &sample };
            Some(operate::run(&served, folder, args, guard)?)
        }
        false => None,
    };
    let result =
        show::Sizing { sample: &sample, whole: &whole, estimate: &estimate, operated: operated.as_ref() };
    let text = if args.json { format!("{:#}", result.to_json()) } else { result.to_text() };
    print_report(&text)
}

fn check(args: &SizeArgs) -> anyhow::Result<()> {
    if args.target == 0 || args.target > FOR_MAX {
        bail!("--for {}: 1 to {FOR_MAX} entries", args.target);
    }
    if !(0.0..=3600.0).contains(&args.seconds) {
        bail!("--seconds {}: 0 to 3600", args.seconds);
    }
    if args.ldif.is_none() && args.entries < sample::ENTRIES_MIN {
        bail!("--entries {}: a sample needs at least {}", args.entries, sample::ENTRIES_MIN);
    }
    Ok(())
}

/// Progress for people: on a terminal only.
fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("larix size: {text}");
    }
}

/// The sample's files.
struct Source {
    ldif: PathBuf,
    config: PathBuf,
    /// The kind, if it was generated: its entries are known by number.
    generated: Option<Kind>,
}

fn source(args: &SizeArgs, folder: &Path) -> anyhow::Result<Source> {
    if let Some(ldif) = &args.ldif {
        let config = match (&args.config, &args.directory) {
            (Some(file), _) => file.clone(),
            (None, Some(directory)) => as_file(directory, folder)?,
            (None, None) => bail!("--ldif needs -f FILE or -F DIRECTORY"),
        };
        return Ok(Source { ldif: ldif.clone(), config, generated: None });
    }
    // 2.5 KB an entry is more than any kind has.
    room(folder, args.entries.saturating_mul(2_500).saturating_mul(ROOM_FACTOR + 1))?;
    say("generating the sample");
    let schema = crate::demo::write_bundled_schema(&folder.join("schema"))?;
    let directory = generate::write_directory(args.generate, args.entries, 1, folder, &schema)?;
    Ok(Source { ldif: directory.ldif, config: directory.configuration, generated: Some(args.generate) })
}

/// A slapd.d as a slapd.conf in the temporary folder.
fn as_file(directory: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let config = Config::from_slapd_d(directory).map_err(|error| anyhow::anyhow!("{error}"))?;
    let file = folder.join("exported.conf");
    std::fs::write(&file, config.to_slapd_conf().text)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn enough_room(folder: &Path, ldif: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::metadata(ldif).with_context(|| format!("cannot read {}", ldif.display()))?.len();
    room(folder, bytes.saturating_mul(ROOM_FACTOR))
}

fn room(folder: &Path, bytes: u64) -> anyhow::Result<()> {
    let needed = bytes.saturating_add(ROOM_MIN);
    let found =
        rustix::fs::statvfs(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free < needed {
        bail!(
            "{} has {} MiB free, and the sample needs about {} MiB: take a smaller one, or name another place with --folder",
            folder.display(),
            free >> 20,
            needed >> 20
        );
    }
    Ok(())
}

fn read_config(file: &Path) -> anyhow::Result<Config> {
    let (clock, random) = (SystemClock, SystemRandom);
    let location = Location { file: Some(file.to_owned()), directory: None };
    location.load(&Stamp { clock: &clock, random: &random }, true).map_err(|error| anyhow::anyhow!("{error}"))
}

fn section<'c>(
    config: &'c Config,
    suffix: Option<&str>,
) -> anyhow::Result<&'c larix_configuration::Database> {
    let args = crate::tools::DatabaseArgs { suffix: suffix.map(str::to_owned), number: None, no_glue: true };
    match args.choose(config)? {
        crate::tools::Chosen::Stored(found) => found.first().copied().context("no database is chosen"),
        crate::tools::Chosen::Configuration => {
            bail!("-b cn=config: a sample is of a database that stores entries")
        }
    }
}

/// A loaded sample.
pub(super) struct LoadFigures {
    entries: u64,
    ldif_bytes: u64,
    statistics: Statistics,
    /// Bytes on disk of the database's folder.
    disk_bytes: u64,
    seconds: f64,
}

fn load_sample(
    config: &Config,
    section: &larix_configuration::Database,
    ldif: &Path,
    data: &Path,
) -> anyhow::Result<LoadFigures> {
    say(&format!("loading {}", ldif.display()));
    if !section.kind.is_in_lmdb() {
        bail!("a {} database stores no entries", section.kind.name());
    }
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let settings = config.engine_settings(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (clock, random) = (SystemClock, SystemRandom);
    let context = LoadContext { schema: &config.schema, settings: &settings, clock: &clock, random: &random };
    let lmdb = LmdbOptions::default();
    let input = open(ldif)?;
    let started = now();
    let options = LoadOptions::default();
    let report = load::load_directory(data, &lmdb, input, context, &options, &mut Quiet)
        .map_err(|error| anyhow::anyhow!("{}: {error}", ldif.display()))?;
    let seconds = started.elapsed().as_secs_f64();
    let store = LmdbStore::open(data, &TABLES, &LmdbOptions::for_reading())?;
    let statistics = store.statistics()?;
    Ok(LoadFigures {
        entries: report.entries,
        ldif_bytes: report.bytes,
        statistics,
        disk_bytes: larix_load::drive::disk_bytes(&[data.to_owned()])?,
        seconds,
    })
}

/// Failed records end the load; nothing else is shown.
struct Quiet;

impl LoadObserver for Quiet {
    fn record_failed(&mut self, error: &RecordError) {
        eprintln!("larix size: {error}");
    }
}

fn open(file: &Path) -> anyhow::Result<impl BufRead + Send> {
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    Ok(BufReader::with_capacity(1 << 20, opened))
}

#[allow(clippy::disallowed_methods, reason = "a measurement is about this machine's time")]
fn now() -> Instant {
    Instant::now()
}

impl SizeArgs {
    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}
