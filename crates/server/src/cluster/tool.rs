//! What `larix cluster` asks and does: in the engine itself, without a server.

use std::sync::Arc;
use std::time::Duration;

use larix_configuration::values::ConfigDn;
use larix_configuration::{Config, Database as Section, KvSettings};
use larix_engine::Database;
use larix_engine::check;
use larix_engine::tables::TABLES;
use larix_kv::{Freshness, KvOptions, KvStore, Lease, take_noted};
use larix_store::{Snapshot, Store};

use super::{Checked, Connected, Removed, Status};
use crate::clock::SystemRandom;

/// How the engine stands: `suffix` names the database where there are several.
///
/// # Errors
/// The configuration has no such database; the engine cannot be asked.
pub fn status(config: &Config, suffix: Option<&str>) -> Result<Status, String> {
    let (_, store) = open(config, suffix)?;
    let Lease { leader, left, .. } = store.lease().map_err(text)?;
    let figures = store.figures();
    let own = own_name();
    let sessions = store.sessions().map_err(text)?.into_iter();
    Ok(Status {
        leader: leader.map(|leader| (leader, left)),
        epoch: figures.epoch,
        commit: figures.version,
        connected: sessions
            .filter(|session| !session.name.contains(&own))
            .map(|session| Connected { name: session.name, connections: session.connections })
            .collect(),
    })
}

/// Ends the lease; its holder may not take it again for `kept_away`. Gives the one that held it, if any node did.
///
/// # Errors
/// As [`status`].
pub fn step_down(
    config: &Config,
    suffix: Option<&str>,
    kept_away: Duration,
) -> Result<Option<String>, String> {
    let (_, store) = open(config, suffix)?;
    let leader = store.lease().map_err(text)?.leader;
    let is_ended = leader.is_some() && store.end_lease(kept_away).map_err(text)?;
    Ok(leader.filter(|_| is_ended))
}

/// Takes a node out for now: ends its lease, which it may not take again for `kept_away`, and its connections to the engine.
///
/// # Errors
/// As [`status`].
pub fn remove(
    config: &Config,
    suffix: Option<&str>,
    node: &str,
    kept_away: Duration,
) -> Result<Removed, String> {
    let (section, store) = open(config, suffix)?;
    let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
    let done = store.remove(node, &settings.connection_name(node), kept_away).map_err(text)?;
    Ok(Removed { held_lease: done.held_lease, connections: done.connections })
}

/// The store of a database that tools read.
pub type ToolStore = Arc<KvStore>;

/// Whether a database is in a shared engine.
pub fn is_shared(section: &Section) -> bool {
    section.kind.settings::<KvSettings>().is_some()
}

/// Opens a database in a shared engine for reading, beside servers that write. Behind the reading, [`whole`] says whether
/// everything could be read.
///
/// # Errors
/// As [`status`].
pub fn open_to_read(config: &Config, section: &Section) -> Result<Database<ToolStore>, String> {
    let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
    let store = open_store(settings)?;
    take_noted();
    let settings = config.engine_settings(section).map_err(text)?;
    Database::open(Arc::new(store), Arc::clone(&config.schema), settings, &SystemRandom).map_err(text)
}

/// # Errors
/// Something could not be read on this thread since a database was opened: it must not pass for what is not there.
pub fn whole() -> Result<(), String> {
    match take_noted() {
        None => Ok(()),
        Some(_) => {
            Err("the engine did not answer every question, so something may be missing: try again".to_owned())
        }
    }
}

/// Checks that tree, entries and indexes in the engine agree; `found` gets what does not.
///
/// # Errors
/// As [`status`]; what could not be read never passes for what is not there.
pub fn check(
    config: &Config,
    suffix: Option<&str>,
    found: &mut dyn FnMut(String),
) -> Result<Checked, String> {
    let (section, store) = open(config, suffix)?;
    let settings = config.engine_settings(section).map_err(text)?;
    let database =
        Database::open(Arc::new(store), Arc::clone(&config.schema), settings, &SystemRandom).map_err(text)?;
    let snapshot = database.store().snapshot().map_err(text)?;
    let view = database.view(&snapshot).map_err(text)?;
    take_noted();
    let checked = check::check(&view, &mut |finding| found(finding.to_string())).map_err(text)?;
    if take_noted().is_some() {
        return Err("the engine did not answer every question: check again".to_owned());
    }
    Ok(Checked { commit: snapshot.commit_counter(), entries: checked.entries })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What the connections of this command are called.
fn own_name() -> String {
    format!("cluster {}", std::process::id())
}

/// The section of the database, and its store, opened for reading.
fn open<'c>(config: &'c Config, suffix: Option<&str>) -> Result<(&'c Section, KvStore), String> {
    let mut sections = Vec::new();
    for section in &config.databases {
        let Some(settings) = section.kind.settings::<KvSettings>() else { continue };
        let is_meant = |own: &ConfigDn| match suffix {
            None => true,
            Some(asked) => config.schema.parse_dn(asked).is_ok_and(|asked| asked == own.normal),
        };
        if section.suffixes.iter().any(is_meant) {
            sections.push((section, settings));
        }
    }
    let (section, settings) = match sections.as_slice() {
        [one] => *one,
        [] => return Err("the configuration has no such `database kv`".to_owned()),
        _ => return Err("the configuration has several `database kv`: name one with -b SUFFIX".to_owned()),
    };
    Ok((section, open_store(settings)?))
}

fn open_store(settings: &KvSettings) -> Result<KvStore, String> {
    let engine = settings.engine.as_ref().ok_or("the database has no `engine`")?;
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
    store.map_err(|error| format!("{}: {error}", engine.address))
}
