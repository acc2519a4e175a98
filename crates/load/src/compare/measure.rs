//! One step against one running server.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use anyhow::{Context, bail};
use larix_proto::{ModifyOperation, ResultCode};

use super::folder::disk;
use super::outcome::{Bunch, Outcome};
use super::rows::LIMITED;
use crate::clock;
use crate::drive::{self, Report, Usage};
use crate::generate::ROOT_PASSWORD;
use crate::peer::{Session, SyslogSink};
use crate::scenario::{Adds, Bunches, Identity, Rewrite, Step, Stream, Work, object_class};

/// The account that may change cn=config.
const CONFIGURATION_ROOT: &str = "cn=config";
/// The schema entry that test VI makes: its number follows those of the included files.
const SCHEMA_ENTRY: &str = "cn={4}grid,cn=schema,cn=config";

/// Whom a step asks.
#[derive(Debug)]
pub(super) struct ServerUnderTest<'a> {
    pub(super) address: SocketAddr,
    /// The identity that may write into each database.
    pub(super) identities: &'a [(String, String)],
    pub(super) process: Option<u32>,
    /// Who takes the lines that it sends, where it sends one for each operation.
    pub(super) lines: Option<&'a SyslogSink>,
    /// The folder of the databases.
    pub(super) data: Option<&'a Path>,
    pub(super) seed: u64,
    /// Of each database.
    pub(super) suffixes: &'a [String],
}

/// Carries out a step. `sequence` is the highest number that an added entry has; `added` counts acknowledged adds by
/// database.
pub(super) fn measure(
    step: &Step,
    server: &ServerUnderTest<'_>,
    sequence: &mut u64,
    added: &mut [u64],
) -> anyhow::Result<Outcome> {
    let own_lines = || Some(server.lines?.line_count_at_rest(server.process?));
    let lines = own_lines();
    let mut outcome = match &step.work {
        Work::Look => Outcome::default(),
        Work::Drive(streams) => drive_streams(streams, server, sequence, added)?,
        Work::Optimize(stream) => optimize(stream, server, sequence)?,
        Work::Bunches(bunches) => add_bunches(bunches, server, sequence, added)?,
        Work::Classes { bunches, each } => add_classes(*bunches, *each, server)?,
        Work::Rewrite(rewrite) => change_all(rewrite, server, sequence, added)?,
    };
    outcome.lines = lines.zip(own_lines()).map(|(before, after)| after - before);
    outcome.resident = server.process.map(Usage::of).transpose()?.map(|usage| usage.resident);
    outcome.disk = server.data.map(disk).transpose()?;
    Ok(outcome)
}

fn drive_streams(
    streams: &[Stream],
    server: &ServerUnderTest<'_>,
    sequence: &mut u64,
    added: &mut [u64],
) -> anyhow::Result<Outcome> {
    let start = *sequence;
    let prepared: Vec<(drive::Options, drive::Workload)> = streams
        .iter()
        .enumerate()
        .map(|(position, stream)| {
            let workload = drive::Workload { sequence_start: start, ..stream.workload.clone() };
            Ok((options(stream, position, server)?, workload))
        })
        .collect::<anyhow::Result<_>>()?;
    let reports = match prepared.as_slice() {
        [(options, workload)] => vec![drive::run(options, workload)?],
        many => std::thread::scope(|scope| {
            let threads = many
                .iter()
                .map(|(options, workload)| {
                    Builder::new().spawn_scoped(scope, move || drive::run(options, workload))
                })
                .collect::<io::Result<Vec<_>>>()
                .context("no thread for a driver")?;
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a driver panicked"))))
                .collect::<anyhow::Result<Vec<Report>>>()
        })?,
    };
    for (stream, report) in streams.iter().zip(&reports) {
        *sequence = (*sequence).max(report.sequence_end);
        if let (Some(count), Identity::Root(database)) = (acknowledged_adds(stream, report), stream.identity)
            && let Some(added) = added.get_mut(database)
        {
            *added += count;
        }
    }
    let invalid = reports.iter().find_map(wrong);
    Ok(Outcome { streams: reports, invalid, ..Outcome::default() })
}

/// The most connections that are tried.
const OPTIMUM_MAX: usize = 512;

fn optimize(stream: &Stream, server: &ServerUnderTest<'_>, sequence: &mut u64) -> anyhow::Result<Outcome> {
    let workload = drive::Workload { sequence_start: *sequence, ..stream.workload.clone() };
    let steps = drive::Steps { max: OPTIMUM_MAX, ..drive::Steps::default() };
    let options = drive::Options { connections: steps.first, ..options(stream, 0, server)? };
    let found = drive::optimize(&options, &workload, steps)?;
    let reports = || found.steps.iter().map(|(_, report)| report);
    *sequence = reports().map(|report| report.sequence_end).fold(*sequence, u64::max);
    let invalid = reports().find_map(wrong);
    let note = found.best().map(|(connections, report)| {
        let limited = report.saturated.as_ref().map(|_| format!(", where it {LIMITED}"));
        format!("best with {connections} connections{}", limited.unwrap_or_default())
    });
    Ok(Outcome { steps: found.steps, invalid, note, ..Outcome::default() })
}

fn options(stream: &Stream, position: usize, server: &ServerUnderTest<'_>) -> anyhow::Result<drive::Options> {
    let identity = match stream.identity {
        Identity::Anonymous => drive::Identity::Anonymous,
        Identity::Root(database) => {
            server.identities.get(database).cloned().context("nobody may write into this database")?.into()
        }
    };
    Ok(drive::Options {
        identity,
        connections: stream.connections,
        in_flight: stream.in_flight,
        rate: stream.rate,
        duration: Duration::from_secs_f64(stream.seconds),
        warm_up: Duration::from_secs_f64(stream.warm_up),
        sample_every: Duration::from_secs_f64((stream.seconds / 20.0).max(0.05)),
        process: server.process,
        seed: server.seed + position as u64,
        ..drive::Options::new(server.address.into())
    })
}

/// How many adds the server said it had done.
fn acknowledged_adds(stream: &Stream, report: &Report) -> Option<u64> {
    let of = |operations: u64, failures: u64| operations.saturating_sub(failures);
    match stream.adds {
        Adds::None => None,
        Adds::All => Some(of(report.operations, report.failures.iter().map(|(_, count)| count).sum())),
        Adds::Some => {
            let adds = report.by_operation.iter().filter(|operation| operation.name == "add");
            Some(adds.map(|operation| of(operation.operations, operation.failures)).sum())
        }
    }
}

/// Why a report's figures must not be used.
fn wrong(report: &Report) -> Option<String> {
    if let Some(unexpected) = report.unexpected.first() {
        return Some(format!("{}: {}, {} times", unexpected.step, unexpected.what, unexpected.count));
    }
    (report.operations == 0).then(|| "no request was answered".to_owned())
}

/// Adds entries of the same small shape, one after the other, until there are enough or the time is over.
fn add_bunches(
    bunches: &Bunches,
    server: &ServerUnderTest<'_>,
    sequence: &mut u64,
    added: &mut [u64],
) -> anyhow::Result<Outcome> {
    let mut session = Session::open(server.address, server.identities.get(bunches.database))?;
    let suffix = server.suffixes.get(bunches.database).context("a database that is not there")?;
    let begin = clock::now();
    let mut outcome = Outcome::default();
    let mut parent = String::new();
    let mut new_parent = |session: &mut Session, name: String| -> anyhow::Result<String> {
        let dn = format!("ou={name},{suffix}");
        let class = ["organizationalUnit".to_owned()];
        session
            .add(&dn, &[("objectClass", &class), ("ou", &[name])])?
            .success(&format!("the add of {dn}"))?;
        added.iter_mut().skip(bunches.database).take(1).for_each(|count| *count += 1);
        Ok(dn)
    };
    let mut count = 0;
    for number in 0..bunches.bunches {
        if bunches.tree {
            parent = new_parent(&mut session, format!("{} {number}", bunches.parent))?;
        } else if number == 0 {
            parent = new_parent(&mut session, bunches.parent.clone())?;
        }
        let cpu = server.process.map(Usage::of).transpose()?;
        let bunch_begin = clock::now();
        for _ in 0..bunches.each {
            *sequence += 1;
            add_file(&mut session, *sequence, &parent)?;
        }
        let seconds = bunch_begin.elapsed().as_secs_f64();
        let after = server.process.map(Usage::of).transpose()?;
        let cpu_seconds = cpu.zip(after).map(|(before, after)| after.cpu_seconds - before.cpu_seconds);
        let changes = bunches.each;
        outcome.bunches.push(Bunch { before: count, changes, seconds, cpu_seconds });
        count += changes;
        if begin.elapsed().as_secs_f64() >= bunches.seconds_max {
            outcome.note =
                Some(format!("the time ended after {count} of {} entries", bunches.bunches * bunches.each));
            break;
        }
    }
    added.iter_mut().skip(bunches.database).take(1).for_each(|added| *added += count);
    Ok(outcome)
}

fn add_file(session: &mut Session, number: u64, parent: &str) -> anyhow::Result<()> {
    let dn = format!("cn=file.{number},{parent}");
    let values = [
        ("objectClass", vec!["top".to_owned(), "device".to_owned()]),
        ("cn", vec![format!("file.{number}")]),
        ("serialNumber", vec![format!("{number:012}")]),
        ("l", vec![format!("storage {:02}", number % 20)]),
        ("description", vec![format!("size={}", number * 4_093 % 1_000_003)]),
    ];
    let attributes: Vec<(&str, &[String])> =
        values.iter().map(|(name, values)| (*name, values.as_slice())).collect();
    session.add(&dn, &attributes)?.success(&format!("the add of {dn}"))?;
    Ok(())
}

/// Adds object classes to the running server: an entry of the schema with the first bunch, which each further one
/// extends. A server that refuses has no figures.
fn add_classes(bunches: u64, each: u64, server: &ServerUnderTest<'_>) -> anyhow::Result<Outcome> {
    let refused = |why: String| Outcome { note: Some(format!("not measured, {why}")), ..Outcome::default() };
    let root = (CONFIGURATION_ROOT.to_owned(), ROOT_PASSWORD.to_owned());
    let mut session = match Session::open(server.address, Some(&root)) {
        Ok(session) => session,
        Err(error) => return Ok(refused(format!("{error:#}"))),
    };
    let mut outcome = Outcome::default();
    for bunch in 0..bunches {
        let before = bunch * each;
        let classes: Vec<String> = (before + 1..=before + each).map(object_class).collect();
        let cpu = server.process.map(Usage::of).transpose()?;
        let begin = clock::now();
        let answer = if bunch == 0 {
            let (class, name) = (["olcSchemaConfig".to_owned()], ["{4}grid".to_owned()]);
            let attributes: [(&str, &[String]); 3] =
                [("objectClass", &class), ("cn", &name), ("olcObjectClasses", &classes)];
            session.add(SCHEMA_ENTRY, &attributes)?
        } else {
            session.modify(SCHEMA_ENTRY, ModifyOperation::Add, "olcObjectClasses", &classes)?
        };
        let seconds = begin.elapsed().as_secs_f64();
        if answer.code != ResultCode::SUCCESS {
            return Ok(refused(format!("result {} {}", answer.code.0, answer.diagnostic)));
        }
        let after = server.process.map(Usage::of).transpose()?;
        let cpu_seconds = cpu.zip(after).map(|(before, after)| after.cpu_seconds - before.cpu_seconds);
        outcome.bunches.push(Bunch { before, changes: each, seconds, cpu_seconds });
    }
    Ok(outcome)
}

/// Makes a fixed number of changes on several connections, whatever they take.
fn change_all(
    rewrite: &Rewrite,
    server: &ServerUnderTest<'_>,
    sequence: &mut u64,
    added: &mut [u64],
) -> anyhow::Result<Outcome> {
    let identity = server.identities.get(rewrite.database);
    let (next_modify, next_add) = (AtomicU64::new(1), AtomicU64::new(1));
    let first = *sequence;
    let work = || -> anyhow::Result<()> {
        let mut session = Session::open(server.address, identity)?;
        loop {
            let number = next_modify.fetch_add(1, Ordering::Relaxed);
            if number > rewrite.modifies {
                break;
            }
            let dn = rewrite.dn.replace("{n}", &number.to_string());
            let values = [rewrite.value.to_owned()];
            session
                .modify(&dn, ModifyOperation::Replace, rewrite.attribute, &values)?
                .success(&format!("the modify of {dn}"))?;
        }
        loop {
            let number = next_add.fetch_add(1, Ordering::Relaxed);
            if number > rewrite.adds {
                return Ok(());
            }
            add_numbered(&mut session, &rewrite.added, first + number)?;
        }
    };
    std::thread::scope(|scope| {
        let begin = |_| Builder::new().spawn_scoped(scope, work);
        let threads = (0..rewrite.connections)
            .map(begin)
            .collect::<io::Result<Vec<_>>>()
            .context("no thread for a client")?;
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a client panicked"),
        })
    })?;
    *sequence += rewrite.adds;
    added.iter_mut().skip(rewrite.database).take(1).for_each(|added| *added += rewrite.adds);
    Ok(Outcome::default())
}

/// Adds the template's entry with `number` for `{s}`.
fn add_numbered(
    session: &mut Session,
    (dn, attributes): &(String, Vec<(String, String)>),
    number: u64,
) -> anyhow::Result<()> {
    let fill = |text: &str| text.replace("{s}", &number.to_string());
    let mut values: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, value) in attributes {
        match values.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(fill(value)),
            None => values.push((name, vec![fill(value)])),
        }
    }
    let list: Vec<(&str, &[String])> = values.iter().map(|(name, all)| (*name, all.as_slice())).collect();
    let dn = fill(dn);
    session.add(&dn, &list)?.success(&format!("the add of {dn}"))?;
    Ok(())
}
