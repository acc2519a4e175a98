//! `slapadd`: LDIF loaded into a database, by the server where one runs on it; `-n 0` fills a slapd.d.

mod configuration;
mod served;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Seek, SeekFrom, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use larix_configuration::Config;
use larix_engine::load::{
    self, LoadContext, LoadError, LoadObserver, LoadOptions, LoadReport, Phase, Progress, RecordError,
    RecordFault,
};
use larix_engine::tables::TABLES;
use larix_proto::brief::{MESSAGE_MAX, shortened};
use larix_proto::ldif;
use larix_schema::NearestSuffix;
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::cluster::{self, ToolWriter};
use larix_server::ldif_tree;
use larix_store::OpenError;
use larix_store::lmdb::LmdbOptions;
use larix_store::memory::MemoryStore;

use super::changing::server_of;
use super::choice::Chosen;
use super::flags::{self, ConfigArgs, DatabaseArgs, InputArgs};
use super::opening::{self, Access};
use crate::terminal::{self, at_least_one};

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// The same where a program reads it; a load that takes less says nothing.
const RECORD_EVERY: Duration = Duration::from_secs(5);

/// Load LDIF into a database, also while a server runs on it
#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Options of -o: schema-check=no, value-check=yes.

Examples:
  larix add -F larix-data/slapd.d -l people.ldif
  larix add -f /etc/ldap/slapd.conf -b dc=example,dc=com -l people.ldif
  larix add -n 0 -F /etc/ldap/slapd.d -l config.ldif

Over LDAP, as a client: `larix modify -a` (ldapadd).")]
pub(super) struct AddArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    input: InputArgs,
    /// Quick: no progress is shown. The load is as safe with it as without
    #[arg(short = 'q')]
    quick: bool,
    /// Memory for sorting what is indexed, in MiB; with less, more is sorted in temporary files
    #[arg(long, value_name = "MIB", default_value_t = load::MEMORY_BYTES_DEFAULT >> 20, value_parser = at_least_one)]
    memory: usize,
    /// Threads that read and check entries [default: one a core]
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one)]
    threads: Option<usize>,
    /// No schema checks, for data that another server accepted
    #[arg(short = 's')]
    no_schema_check: bool,
    /// Server id of change sequence numbers that are made, 0 to 4095
    #[arg(short = 'S', value_name = "SID", value_parser = flags::server_id)]
    server_id: Option<u16>,
    /// Write contextCSN: the highest entryCSN of each server id
    #[arg(short = 'w')]
    write_context: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn main(name: &str, arguments: &[OsString]) -> ExitCode {
    let args: AddArgs = flags::parse(name, arguments);
    let done =
        if args.database.is_configuration() { configuration::add(name, &args) } else { add(name, &args) };
    terminal::end_counted(name, done, "records were refused")
}

/// Answers how many records were refused and passed over.
fn add(name: &str, args: &AddArgs) -> anyhow::Result<u64> {
    let config = args.config.read()?;
    let Chosen::Stored(databases) = args.database.choose_with_shared(&config)? else {
        bail!("-n 0 or -b cn=config fill a slapd.d");
    };
    let options = LoadOptions {
        schema_check: !args.no_schema_check && args.config.switch("schema-check", true)?,
        value_check: args.config.switch("value-check", false)?,
        continue_on_error: args.input.go_on,
        start_line: args.input.from_line.max(1),
        dry_run: args.input.dry_run,
        unique_uuids: true,
        write_context_csn: args.write_context,
        server_id: args.server_id.unwrap_or_else(|| opening::configured_server_id(&config)),
        threads: args.threads.unwrap_or_else(larix_server::cores).max(1),
        memory_bytes: args.memory.max(1).saturating_mul(1 << 20),
    };
    let ldif = args.input.open()?;
    let report = match databases.as_slice() {
        [section] => load_one(name, args, &config, section, ldif, &options)?,
        glued => load_glued(name, args, &config, glued, ldif, &options)?,
    };
    Ok(report.failed)
}

/// Loads one LDIF into databases that are glued together: each gets the records below its own suffix. In its share the
/// records of the others are blank lines, so that errors name the lines of the whole.
fn load_glued(
    name: &str,
    args: &AddArgs,
    config: &Config,
    databases: &[&larix_configuration::Database],
    ldif: impl BufRead,
    options: &LoadOptions,
) -> anyhow::Result<LoadReport> {
    let mut shares = databases.iter().map(|_| tempfile::tempfile()).collect::<io::Result<Vec<_>>>()?;
    let mut writers: Vec<_> = shares.iter_mut().map(io::BufWriter::new).collect();
    let mut record: Vec<Vec<u8>> = Vec::new();
    let mut flush = |record: &mut Vec<Vec<u8>>| -> anyhow::Result<()> {
        let owner = owner(config, databases, record);
        for (index, writer) in writers.iter_mut().enumerate() {
            for line in record.iter() {
                let line = if index == owner { line.as_slice() } else { b"\n" };
                writer.write_all(line).context("cannot write a temporary file")?;
            }
        }
        record.clear();
        Ok(())
    };
    for line in ldif.split(b'\n') {
        let mut line = line.context("cannot read the LDIF")?;
        let ends = line.is_empty() || line == b"\r";
        line.push(b'\n');
        record.push(line);
        if ends {
            flush(&mut record)?;
        }
    }
    flush(&mut record)?;
    writers.iter_mut().try_for_each(Write::flush).context("cannot write a temporary file")?;
    drop(writers);
    let mut total = LoadReport::default();
    for (section, mut share) in databases.iter().zip(shares) {
        share.seek(SeekFrom::Start(0))?;
        let report = load_one(name, args, config, section, BufReader::new(share), options)?;
        total.entries += report.entries;
        total.failed += report.failed;
    }
    Ok(total)
}

/// The database whose suffix is the nearest above the record; the first when its DN says nothing, which its loader
/// will then explain.
fn owner(config: &Config, databases: &[&larix_configuration::Database], record: &[Vec<u8>]) -> usize {
    let Some(dn) = record_dn(record).and_then(|dn| config.schema.parse_dn(&dn).ok()) else { return 0 };
    let nearest = NearestSuffix::of(&dn)
        .among(databases.iter().enumerate(), |nearest, (_, database)| database.depth_of(nearest));
    nearest.map_or(0, |(_, (index, _))| index)
}

/// The DN of a record given as its lines.
fn record_dn(record: &[Vec<u8>]) -> Option<String> {
    let text = record.concat();
    let whole = ldif::Reader::new(text.as_slice()).next()?;
    whole.ok().map(|record| record.dn)
}

fn load_one(
    name: &str,
    args: &AddArgs,
    config: &Config,
    section: &larix_configuration::Database,
    mut ldif: impl BufRead + Send,
    options: &LoadOptions,
) -> anyhow::Result<LoadReport> {
    let settings = config.engine_settings(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (clock, random) = (SystemClock, SystemRandom);
    let context = LoadContext { schema: &config.schema, settings: &settings, clock: &clock, random: &random };
    let show = match (args.quick, io::stderr().is_terminal()) {
        (true, _) => Show::Nothing,
        (false, true) => Show::Line,
        (false, false) => Show::Records,
    };
    let size = args.input.ldif.as_deref().and_then(|path| std::fs::metadata(path).ok());
    let size = size.filter(|file| file.is_file()).map(|file| file.len());
    let mut observer = Observer::new(name, show, size);
    let report = match section.kind.mdb() {
        Some(mdb) => {
            let defaults = LmdbOptions::default();
            let store = LmdbOptions { file_mode: mdb.mode.unwrap_or(defaults.file_mode), ..defaults };
            match load::load_directory(&mdb.directory, &store, &mut ldif, context, options, &mut observer) {
                // Nothing of the LDIF was read.
                Err(LoadError::Open(error @ OpenError::InUse { .. })) => {
                    let (server_id, verbose) = (args.server_id, args.config.verbose > 0);
                    let load = served::Load { config, section, options, server_id, verbose, clock: &clock };
                    load_into_served(load, error, ldif, context, &mut observer)
                }
                loaded => loaded.map_err(anyhow::Error::from),
            }
        }
        None if section.kind.is_in_shared_engine() => {
            // All nodes have one server id.
            let own = args.server_id.unwrap_or_else(|| config.server_id_of(section));
            let options = LoadOptions { server_id: own, ..options.clone() };
            load_into_engine(name, config, section, ldif, context, &options, &mut observer)
        }
        None => load_files(config, section, ldif, context, options, &mut observer),
    };
    observer.finish();
    let report = report.map_err(|error| with_database(error, config, section))?;
    if args.config.verbose > 0 {
        eprintln!("{name}: {} entries from {} bytes", report.entries, report.bytes);
    }
    Ok(report)
}

/// An error about a record of another database names that one.
fn with_database(
    error: anyhow::Error,
    config: &Config,
    section: &larix_configuration::Database,
) -> anyhow::Error {
    let Some(LoadError::Record(RecordError { dn, fault: RecordFault::OutsideSuffixes, .. })) =
        error.downcast_ref::<LoadError>()
    else {
        return error;
    };
    let texts: Vec<String> = section.suffixes.iter().map(|suffix| format!("{:?}", suffix.text)).collect();
    let meant = config.schema.parse_dn(dn).ok().and_then(|dn| {
        let databases = config.databases.iter();
        NearestSuffix::of(&dn).among(databases, |nearest, database| database.depth_of(nearest))
    });
    let help = match meant.and_then(|(_, database)| database.suffixes.first()) {
        Some(suffix) => format!("-b {:?} loads into the one that has it", suffix.text),
        None => "no other database has it".to_owned(),
    };
    anyhow::anyhow!("{error}, which has {}; {help}", texts.join(", "))
}

/// Into a database that a server has open: it adds the entries. A dry run looks at what is there by itself.
///
/// # Errors
/// `error`, if the process that has the database open takes no work.
fn load_into_served(
    load: served::Load<'_>,
    error: OpenError,
    ldif: impl BufRead + Send,
    context: LoadContext<'_>,
    observer: &mut Observer<'_>,
) -> anyhow::Result<LoadReport> {
    if load.options.dry_run {
        let database = opening::open(load.config, load.section, Access::Read)?;
        return Ok(load::load_into(&database, ldif, context, load.options, observer)?);
    }
    match server_of(load.section, load.verbose)? {
        Some(mut client) => load.run(&mut client, ldif, observer),
        None => Err(error.into()),
    }
}

/// Into a database in an engine that servers share: this process writes there in the place of a node.
fn load_into_engine(
    name: &str,
    config: &Config,
    section: &larix_configuration::Database,
    ldif: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut Observer<'_>,
) -> anyhow::Result<LoadReport> {
    let scratch = tempfile::tempdir().context("cannot make a directory for temporary files")?;
    let scratch = scratch.path();
    let report = if options.dry_run {
        match ToolWriter::look(config, section).map_err(anyhow::Error::msg)? {
            Some(database) => load::load_shared(&database, scratch, ldif, context, options, observer),
            None => load::load_empty(&MemoryStore::new(&TABLES)?, scratch, ldif, context, options, observer),
        }
    } else {
        let writer = ToolWriter::open(config, section, name).map_err(anyhow::Error::msg)?;
        writer.end_history().map_err(anyhow::Error::msg)?;
        let loaded = load::load_shared(writer.database(), scratch, ldif, context, options, observer);
        if loaded.is_err() {
            writer.still_writes().map_err(anyhow::Error::msg)?;
        }
        loaded
    };
    cluster::whole().map_err(anyhow::Error::msg)?;
    Ok(report?)
}

/// Into a database of LDIF files: all of the files are written, or none.
fn load_files(
    config: &Config,
    section: &larix_configuration::Database,
    ldif: impl BufRead + Send,
    context: LoadContext<'_>,
    options: &LoadOptions,
    observer: &mut Observer<'_>,
) -> anyhow::Result<LoadReport> {
    let access = if options.dry_run { Access::Read } else { Access::Write };
    let database = opening::open(config, section, access)?;
    let report = load::load_into(&database, ldif, context, options, observer)?;
    if !options.dry_run {
        ldif_tree::write_back(&database).map_err(anyhow::Error::msg)?;
    }
    Ok(report)
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    Nothing,
    /// For people: one line that is written anew.
    Line,
    /// For programs: a line of `name=value` now and then.
    Records,
}

/// Shows progress as wanted, failed records always.
struct Observer<'n> {
    name: &'n str,
    show: Show,
    /// Bytes of the LDIF, where that is known.
    size: Option<u64>,
    started: Instant,
    shown: Option<Instant>,
    phase: (Phase, Instant),
}

impl<'n> Observer<'n> {
    fn new(name: &'n str, show: Show, size: Option<u64>) -> Self {
        let started = now();
        Self { name, show, size, started, shown: None, phase: (Phase::Reading, started) }
    }

    fn finish(&self) {
        if self.show == Show::Line && self.shown.is_some() {
            eprintln!();
        }
    }

    /// Seconds to the end of the phase, at the rate of the phase so far.
    fn seconds_left(&self, progress: &Progress, now: Instant) -> Option<f64> {
        let (done, all) = match progress.phase {
            Phase::Reading => (progress.bytes, self.size?),
            Phase::Indexing => progress.postings,
            Phase::Syncing => return None,
        };
        let seconds = now.duration_since(self.phase.1).as_secs_f64();
        (done > 0).then(|| seconds * all.saturating_sub(done) as f64 / done as f64)
    }
}

impl LoadObserver for Observer<'_> {
    fn progress(&mut self, progress: &Progress) {
        let now = now();
        if progress.phase != self.phase.0 {
            self.phase = (progress.phase, now);
        }
        let every = match self.show {
            Show::Nothing => return,
            Show::Line => SHOW_EVERY,
            Show::Records => RECORD_EVERY,
        };
        if now.duration_since(self.shown.unwrap_or(self.started)) < every {
            return;
        }
        self.shown = Some(now);
        let seconds = now.duration_since(self.started).as_secs_f64().max(0.001);
        let phase = match progress.phase {
            Phase::Reading => "reading",
            Phase::Indexing => "indexing",
            Phase::Syncing => "syncing",
        };
        let remaining = self.seconds_left(progress, now);
        let (entries, (postings, postings_all)) = (progress.entries, progress.postings);
        let rate = entries as f64 / seconds;
        if self.show == Show::Records {
            let remaining =
                remaining.map_or_else(String::new, |remaining| format!(" phase_seconds_left={remaining:.0}"));
            return eprintln!(
                "{}: progress phase={phase} seconds={seconds:.0} entries={entries} failed={} bytes={} \
                 postings={postings} postings_all={postings_all} entries_per_second={rate:.0}{remaining}",
                self.name, progress.failed, progress.bytes
            );
        }
        let remaining = remaining.map_or_else(String::new, |remaining| format!(", {remaining:.0} s left"));
        let what = match progress.phase {
            Phase::Indexing if postings_all > 0 => {
                format!("{:.0} %", postings as f64 * 100.0 / postings_all as f64)
            }
            _ => format!("{} MB, {rate:.0}/s", progress.bytes >> 20),
        };
        // Blanks cover what a longer line left.
        eprint!("\r{}: {phase}: {entries} entries, {what}{remaining}        ", self.name);
    }

    fn record_failed(&mut self, error: &RecordError) {
        eprintln!("{}: {}", self.name, shortened(error.to_string(), MESSAGE_MAX));
    }
}

#[allow(clippy::disallowed_methods, reason = "progress is about this machine's time")]
fn now() -> Instant {
    Instant::now()
}
