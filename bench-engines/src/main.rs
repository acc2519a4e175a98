//! The store's workloads on LMDB beside other engines, as a table.

mod engines;
mod memory;
mod table;
mod workload;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

use engines::Kind;
use table::{Run, Suite};
use workload::{Figure, Work};

const HELP: &str = "\
larix-bench-engines [--entries N] [--large N] [--seconds S] [--folder DIR] [--engines A,B]

  --entries N    small records of 100 bytes (default 1000000)
  --large N      records of 100,000 bytes (default entries / 1000)
  --seconds S    the longest time of one figure (default 5)
  --folder DIR   where the data go, on the disk to be measured (default: the system's temporary folder)
  --engines LIST of lmdb, redb, sqlite, fjall (default all)

Writes a table in markdown to standard output. The part with less memory than data needs root and memory control groups.
";

const SMALL_BYTES: u64 = 100;
const LARGE_BYTES: u64 = 100_000;
/// The cache that each engine with one of its own is given: all data fit, as they fit the page cache.
const CACHE_BYTES: u64 = 1 << 30;
/// Data are this many times the memory in the last part.
const TIMES_MEMORY: u64 = 4;
/// A process needs some memory besides its data.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

#[derive(Debug)]
struct Options {
    entries: u64,
    large: u64,
    seconds: f64,
    folder: PathBuf,
    engines: Vec<Kind>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some("worker") => worker(arguments.get(1..).unwrap_or_default()),
        _ => options(&arguments).and_then(|options| run(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-engines: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options {
        entries: 1_000_000,
        large: 0,
        seconds: 5.0,
        folder: std::env::temp_dir(),
        engines: vec![Kind::Lmdb, Kind::Redb, Kind::Sqlite, Kind::Fjall],
    };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let value = rest.next().with_context(|| format!("{name} has no value\n\n{HELP}"))?;
        let number = || value.parse::<u64>().ok().filter(|n| (1..=1_000_000_000).contains(n));
        let number = || number().with_context(|| format!("{name} {value}: a number from 1 to 1000000000"));
        match name.as_str() {
            "--entries" => options.entries = number()?,
            "--large" => options.large = number()?,
            "--seconds" => {
                let seconds = value.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= 3600.0);
                options.seconds =
                    seconds.with_context(|| format!("--seconds {value}: above 0, at most 3600"))?;
            }
            "--folder" => options.folder = value.into(),
            "--engines" => {
                options.engines = value.split(',').map(Kind::from_name).collect::<anyhow::Result<_>>()?
            }
            _ => bail!("no option is called {name}\n\n{HELP}"),
        }
    }
    if options.large == 0 {
        options.large = (options.entries / 1000).max(10);
    }
    if !options.folder.is_dir() {
        bail!("--folder {}: there is no such directory", options.folder.display());
    }
    Ok(options)
}

fn run(options: &Options) -> anyhow::Result<()> {
    let work = |entries, value_bytes| Work {
        entries,
        value_bytes,
        cache_bytes: CACHE_BYTES,
        seconds: options.seconds,
    };
    let small = work(options.entries, SMALL_BYTES);
    let large = work(options.large, LARGE_BYTES);
    println!("{}", table::heading(options.seconds));
    for (title, work) in [("small records", &small), ("large records", &large)] {
        let title = format!(
            "{title}: {} of {} bytes",
            table::number(work.entries as f64),
            table::number(work.value_bytes as f64)
        );
        let runs = options
            .engines
            .iter()
            .map(|kind| measured(*kind, options, work))
            .collect::<anyhow::Result<Vec<_>>>()?;
        println!("{}", table::suite(&Suite { title, runs }));
    }
    println!("{}", past_memory(options, &small)?);
    Ok(())
}

/// The whole of the work in a process of its own.
fn measured(kind: Kind, options: &Options, work: &Work) -> anyhow::Result<Run> {
    let folder = scratch(options)?;
    eprintln!("{}: {} records of {} bytes", kind.name(), work.entries, work.value_bytes);
    let (figures, peak) = start("full", kind, folder.path(), work, None)?;
    Ok(Run { name: kind.name().into(), figures, disk_bytes: memory::disk_bytes(folder.path())?, peak })
}

/// Random reads and a scan in a process that may use a quarter of the data's size as memory.
fn past_memory(options: &Options, work: &Work) -> anyhow::Result<String> {
    let mut runs = Vec::new();
    let mut limit = None;
    let mut kinds = options.engines.clone();
    if let Some(at) = kinds.iter().position(|kind| *kind == Kind::Lmdb) {
        kinds.insert(at + 1, Kind::LmdbNoReadAhead);
    }
    for kind in kinds {
        let folder = scratch(options)?;
        start("fill", kind, folder.path(), work, None)?;
        let disk_bytes = memory::disk_bytes(folder.path())?;
        // The first engine's size sets the memory of all.
        let limit = *limit.get_or_insert((disk_bytes / TIMES_MEMORY).max(MEMORY_BYTES_MIN));
        let group = match memory::Group::new(limit) {
            Ok(group) => group,
            Err(error) => return Ok(format!("### more data than memory\n\nNot measured: {error:#}.\n")),
        };
        memory::forget(folder.path())?;
        eprintln!("{}: {disk_bytes} bytes of data, {limit} of memory", kind.name());
        let limited = Work { cache_bytes: limit / 4, ..*work };
        // Engines that ask for more than there is are ended by the system: that is a result, too.
        let read = start("reads", kind, folder.path(), &limited, Some(group.folder()));
        let (figures, peak) = read.or_else(|error| match error.downcast_ref::<Killed>() {
            Some(killed) => {
                eprintln!("{killed}");
                Ok((Vec::new(), 0))
            }
            None => Err(error),
        })?;
        runs.push(Run { name: kind.name().into(), figures, disk_bytes, peak });
    }
    let title = format!(
        "more data than memory: {} of {} bytes, {} of memory for the process and its pages",
        table::number(work.entries as f64),
        table::number(work.value_bytes as f64),
        table::bytes(limit.unwrap_or(0) as f64)
    );
    Ok(table::suite(&Suite { title, runs }))
}

fn scratch(options: &Options) -> anyhow::Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("larix-bench-engines").tempdir_in(&options.folder);
    made.with_context(|| format!("cannot make a folder in {}", options.folder.display()))
}

/// What the system sends to a process that has no more memory to have.
const SIGKILL: i32 = 9;

/// The worker was killed: in a group, for want of memory.
#[derive(Debug)]
struct Killed(Kind);

impl std::fmt::Display for Killed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the worker for {} was killed, for want of memory most likely", self.0.name())
    }
}

impl std::error::Error for Killed {}

/// Starts this program as a worker and reads its figures and its peak of resident bytes.
fn start(
    what: &str,
    kind: Kind,
    folder: &Path,
    work: &Work,
    group: Option<&Path>,
) -> anyhow::Result<(Vec<Figure>, u64)> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(["worker", what, kind.name()]).arg(folder);
    for number in [work.entries, work.value_bytes, work.cache_bytes] {
        command.arg(number.to_string());
    }
    command.arg(work.seconds.to_string());
    command.args(group);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot start a worker")?;
    if output.status.signal() == Some(SIGKILL) {
        return Err(Killed(kind).into());
    }
    if !output.status.success() {
        bail!("the worker for {} ended with {}", kind.name(), output.status);
    }
    table::read_figures(&String::from_utf8_lossy(&output.stdout))
}

fn worker(arguments: &[String]) -> anyhow::Result<()> {
    let [what, kind, folder, entries, value_bytes, cache_bytes, seconds, group @ ..] = arguments else {
        bail!("worker is for this program's own use");
    };
    if let Some(group) = group.first() {
        memory::join(Path::new(group))?;
    }
    let work = Work {
        entries: entries.parse()?,
        value_bytes: value_bytes.parse()?,
        cache_bytes: cache_bytes.parse()?,
        seconds: seconds.parse()?,
    };
    let (kind, folder) = (Kind::from_name(kind)?, Path::new(folder));
    let figures = match what.as_str() {
        "full" => workload::full(kind, folder, &work)?,
        "fill" => workload::fill(kind, folder, &work)?,
        "reads" => workload::reads(kind, folder, &work)?,
        _ => bail!("no work is called {what:?}"),
    };
    print!("{}", table::write_figures(&figures));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_named() {
        for (line, expected) in [
            ("--entries 0", "--entries 0"),
            ("--entries", "no value"),
            ("--seconds -1", "--seconds -1"),
            ("--engines lmdb,bdb", "bdb"),
            ("--folder /nowhere/at/all", "/nowhere/at/all"),
            ("--colour 7", "--colour"),
        ] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = format!("{:#}", options(&arguments).unwrap_err());
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
