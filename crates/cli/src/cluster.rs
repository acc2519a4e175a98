//! `larix cluster`: what the engine of a `database kv` says of its nodes, from its own address; no server is asked.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use larix_configuration::{Config, KvSettings};
use larix_engine::Database;
use larix_engine::check;
use larix_engine::tables::TABLES;
use larix_kv::{Freshness, KvOptions, KvStore, Lease};
use larix_server::clock::SystemRandom;
use larix_store::{Snapshot, Store};

use crate::tools::common::ConfigArgs;

/// How long a node that stepped down keeps away from the lease.
const KEPT_AWAY: Duration = Duration::from_secs(10);
/// Findings that are printed; the rest is counted.
const PRINTED_MAX: u64 = 100;
/// Something does not fit.
const FINDINGS: u8 = 1;
/// The engine cannot be asked.
const NOT_ASKED: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Print which node writes, the newest commit, and which servers are connected
    Status(PlaceArgs),
    /// End the lease: another node takes over, and the one that writes may not for ten seconds
    StepDown(PlaceArgs),
    /// Check that tree, entries and indexes in the engine agree
    Check(PlaceArgs),
}

#[derive(Debug, Args)]
struct PlaceArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// A suffix of the kv database; needed where there are several
    #[arg(short = 'b', long = "suffix", value_name = "SUFFIX")]
    suffix: Option<String>,
}

pub(crate) fn main(arguments: &ClusterArgs) -> ExitCode {
    let done = match &arguments.command {
        ClusterCommand::Status(place) => status(place),
        ClusterCommand::StepDown(place) => step_down(place),
        ClusterCommand::Check(place) => checked(place),
    };
    done.unwrap_or_else(|error| {
        eprintln!("larix cluster: {error:#}");
        ExitCode::from(NOT_ASKED)
    })
}

fn status(place: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let config = place.config.read()?;
    let store = place.open(&config)?.1;
    let Lease { leader, left, .. } = store.lease()?;
    let figures = store.figures();
    match leader {
        Some(leader) => println!("leader:        {leader} (lease: {} ms)", left.as_millis()),
        None => println!("leader:        none"),
    }
    println!("epoch:         {}", figures.epoch);
    println!("newest commit: {}", figures.version);
    let own = own_name();
    for session in store.sessions()?.iter().filter(|session| !session.name.contains(&own)) {
        println!("connected:     {} ({} connections)", session.name, session.connections);
    }
    Ok(ExitCode::SUCCESS)
}

fn step_down(place: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let config = place.config.read()?;
    let store = place.open(&config)?.1;
    match store.lease()?.leader {
        Some(leader) if store.end_lease(KEPT_AWAY)? => {
            println!("{leader} has lost the lease, and may not take it for {} seconds", KEPT_AWAY.as_secs());
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("no node holds the lease"),
    }
}

fn checked(place: &PlaceArgs) -> anyhow::Result<ExitCode> {
    let config = place.config.read()?;
    let (section, store) = place.open(&config)?;
    let settings = config.engine_settings(section).map_err(|error| anyhow::anyhow!("{error}"))?;
    let database = Database::open(Arc::new(store), Arc::clone(&config.schema), settings, &SystemRandom)
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot).map_err(|fault| anyhow::anyhow!("{fault}"))?;
    let mut findings = 0;
    larix_kv::take_noted();
    let checked = check::check(&view, &mut |finding| {
        findings += 1;
        if findings <= PRINTED_MAX {
            println!("{finding}");
        }
    });
    let checked = checked.map_err(|fault| anyhow::anyhow!("{fault}"))?;
    // What could not be read must not pass for what is not there.
    if larix_kv::take_noted().is_some() {
        bail!("the engine did not answer every question: check again");
    }
    println!("commit {}: {} entries, {findings} findings", snapshot.commit_counter(), checked.entries);
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// What the connections of this command are called.
fn own_name() -> String {
    format!("cluster {}", std::process::id())
}

impl PlaceArgs {
    /// The section of the database, and its store, opened for reading.
    fn open<'c>(&self, config: &'c Config) -> anyhow::Result<(&'c larix_configuration::Database, KvStore)> {
        let mut sections = Vec::new();
        for database in &config.databases {
            let Some(settings) = database.kind.settings::<KvSettings>() else { continue };
            let is_meant = |suffix: &larix_configuration::values::ConfigDn| match &self.suffix {
                None => true,
                Some(asked) => config.schema.parse_dn(asked).is_ok_and(|asked| asked == suffix.normal),
            };
            if database.suffixes.iter().any(is_meant) {
                sections.push((database, settings));
            }
        }
        let (database, settings) = match sections.as_slice() {
            [one] => *one,
            [] => bail!("the configuration has no such `database kv`"),
            _ => bail!("the configuration has several `database kv`: name one with -b SUFFIX"),
        };
        let engine = settings.engine.as_ref().context("the database has no `engine`")?;
        let options = KvOptions {
            schema: settings.schema.clone(),
            make: false,
            writes: false,
            freshness: Freshness::Strict,
            connections: 2,
            name: own_name(),
            ..KvOptions::default()
        };
        let store = KvStore::open(&engine.address, &TABLES, &options);
        Ok((database, store.with_context(|| engine.address.to_string())?))
    }
}
