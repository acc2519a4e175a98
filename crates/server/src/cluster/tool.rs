//! What `larix cluster` asks and does: in the engine itself, without a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larix_configuration::values::ConfigDn;
use larix_configuration::{Config, Database as Section, KvSettings, OwnLines, SharedLines};
use larix_engine::Database;
use larix_engine::check;
use larix_engine::tables::{FORMAT_SHARED, META, TABLES, meta};
use larix_kv::{Address, Freshness, KvOptions, KvStore, Lease, OpenError, Said, take_read_fault};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::{CommitError, Snapshot, Store};

use super::published_configuration::{self, PublishedConfiguration};
use super::{CheckedContent, EngineClient, KnownNode, RemovedNode, Status, node_report};
use crate::clock::SystemRandom;

/// How the engine stands: `suffix` names the database where there are several.
///
/// # Errors
/// The configuration has no such database; the engine cannot be asked.
pub fn status(config: &Config, suffix: Option<&str>) -> Result<Status, String> {
    let (section, store) = open(config, suffix)?;
    let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
    let Lease { leader, left, .. } = store.lease().map_err(text)?;
    let published = published_configuration::read(&store.snapshot().map_err(text)?)?;
    let figures = store.figures();
    let own = own_name();
    let sessions: Vec<_> = store.sessions().map_err(text)?;
    let sessions: Vec<_> = sessions.into_iter().filter(|session| !session.name.contains(&own)).collect();
    let reports = store.said().map_err(text)?;
    let names = sessions.iter().map(|session| session.name.as_str());
    Ok(Status {
        leader: leader.map(|leader| (leader, left)),
        epoch: figures.epoch,
        commit: figures.version,
        configuration: published.and_then(Result::ok).map(|published| (published.generation, published.node)),
        nodes: known_nodes(reports, names, &settings.schema),
        connected: sessions
            .into_iter()
            .map(|session| EngineClient { name: session.name, connections: session.connections })
            .collect(),
    })
}

/// Nodes that say something of themselves, and those that are connected and do not.
fn known_nodes<'n>(
    reports: Vec<Said>,
    connected: impl Iterator<Item = &'n str>,
    schema: &str,
) -> Vec<KnownNode> {
    let known =
        |Said { node, words, ago }| KnownNode { node, heard: Some(ago), report: node_report::decode(&words) };
    let mut nodes: Vec<KnownNode> = reports.into_iter().map(known).collect();
    for name in connected {
        let Some(node) = node_of(name, schema) else { continue };
        let is_cut = name.len() == CONNECTION_NAME_BYTES_MAX;
        if !nodes.iter().any(|known| known.node == node || is_cut && known.node.starts_with(node)) {
            nodes.push(KnownNode { node: node.to_owned(), heard: None, report: None });
        }
    }
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    nodes
}

/// The URL of the node that has connections of this name, if one of this store has.
fn node_of<'n>(name: &'n str, schema: &str) -> Option<&'n str> {
    let rest = name.strip_prefix("larix ")?;
    let (node, of) = rest.split_once(' ').unwrap_or((rest, ""));
    let is_cut = name.len() == CONNECTION_NAME_BYTES_MAX;
    let fits = of == schema || is_cut && schema.starts_with(of);
    (fits && node.starts_with("ldap")).then_some(node)
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
) -> Result<RemovedNode, String> {
    let (section, store) = open(config, suffix)?;
    let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
    let done = store.remove(node, &settings.connection_name(node), kept_away).map_err(text)?;
    Ok(RemovedNode { held_lease: done.held_lease, connections: done.connections })
}

/// PostgreSQL cuts the names of connections.
const CONNECTION_NAME_BYTES_MAX: usize = 63;
/// So long etcd counts a node as connected that gives no sign.
const FORGOTTEN_SECONDS: u64 = 10;

/// Whether a URL can be that of a node.
///
/// # Errors
/// Why not, and what to write.
pub fn check_node(text: &str) -> Result<(), String> {
    larix_configuration::check_node(text)
}

/// What the node that writes has published of its configuration, for a node of this name that joins.
///
/// # Errors
/// The engine refuses or holds no directory; nothing is published, or by a later version; the name is taken.
pub fn published(engine: &str, schema: &str, node: &str) -> Result<PublishedConfiguration, String> {
    let address = Address::parse(engine).map_err(text)?;
    let at = |why: &dyn std::fmt::Display| format!("{address}: {why}");
    let store = KvStore::open(&address, &TABLES, &tool_options(schema)).map_err(|error| match error {
        OpenError::NotAStore { .. } => {
            at(&format!("{error}, with `database kv` in its configuration, before others join"))
        }
        error => at(&error),
    })?;
    let snapshot = store.snapshot().map_err(text)?;
    let format = snapshot.get(META, meta::FORMAT).map_err(text)?;
    let format = format.and_then(|format| Some(u32::from_be_bytes(format.as_ref().try_into().ok()?)));
    if let Some(newer) = format.filter(|format| *format > FORMAT_SHARED) {
        return Err(at(&format!(
            "the entries there are of format {newer}, and this version reads up to {FORMAT_SHARED}: install the version of the other nodes"
        )));
    }
    let found = published_configuration::read(&snapshot)?.ok_or_else(|| {
        at(&"no node has left its configuration there: start the node that writes with this version of Larix, then try again")
    })?;
    let found = found.map_err(|why| at(&why))?;
    let own = format!("larix {node} {schema}");
    let is_own = |name: &str| name == own || name.len() == CONNECTION_NAME_BYTES_MAX && own.starts_with(name);
    let holds_lease = store.lease().map_err(text)?.leader.as_deref() == Some(node);
    if holds_lease || store.sessions().map_err(text)?.iter().any(|session| is_own(&session.name)) {
        return Err(at(&format!(
            "{node} is a node of this directory already: give this server a --node of its own, or stop that one; one that has died \
             is forgotten within {FORGOTTEN_SECONDS} seconds behind the end of its lease"
        )));
    }
    Ok(found)
}

/// Whether the configuration that such a slapd.conf gives is of this database alone.
///
/// # Errors
/// What it has beside.
pub fn check_joined(config: &Config) -> Result<(), String> {
    SharedLines::check_alone(config)
}

/// The slapd.conf of a node that joins; with the files of its certificate and key.
pub fn configuration_of_node(
    published: &PublishedConfiguration,
    engine: &str,
    node: &str,
    certificate: Option<(&Path, &Path)>,
) -> String {
    published.lines.of_node(&OwnLines { engine, node, certificate })
}

/// Whether a node that has joined before is asked for what it is.
///
/// # Errors
/// In which way it is another.
pub fn check_kept(config: &Config, engine: &str, schema: &str, node: &str) -> Result<(), String> {
    let address = Address::parse(engine).map_err(text)?.to_string();
    let all = config.databases.iter().filter_map(|section| section.kind.settings::<KvSettings>());
    let is_there =
        |own: &&KvSettings| own.engine.as_ref().is_some_and(|engine| engine.address.to_string() == address);
    let there: Vec<&KvSettings> = all.filter(is_there).collect();
    // The nodes may have gone on to other content since this one joined.
    let followed = || there.iter().find(|own| own.shares_configuration);
    match there.iter().find(|own| own.schema == schema).or_else(followed).copied() {
        None => Err(format!(
            "it has no `database kv` at {address} with the schema {schema}: leave --join out to serve it"
        )),
        Some(own) if own.node.trim_end_matches('/') != node => {
            Err(format!("it is that of {}, not of --node {node}", own.node))
        }
        Some(own) if own.engine.as_ref().is_some_and(|own| !own.is_given_as(engine)) => Err(format!(
            "it says {address} with another password or other parameters than --join: change olcLarixKvEngine there"
        )),
        Some(_) => Ok(()),
    }
}

/// The store of a database that tools read.
pub type ToolStore = Arc<KvStore>;

/// Opens a database in a shared engine for reading, beside servers that write. Behind the reading, [`whole`] says whether
/// everything could be read.
///
/// # Errors
/// As [`status`].
pub fn open_to_read(config: &Config, section: &Section) -> Result<Database<ToolStore>, String> {
    let settings = section.kind.settings::<KvSettings>().ok_or("the database is in no engine")?;
    let store = open_store(settings)?;
    take_read_fault();
    let settings = config.engine_settings(section).map_err(text)?;
    Database::open(Arc::new(store), Arc::clone(&config.schema), settings, &SystemRandom).map_err(text)
}

/// # Errors
/// Something could not be read on this thread since a database was opened: it must not pass for what is not there.
pub fn whole() -> Result<(), String> {
    match take_read_fault() {
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
) -> Result<CheckedContent, String> {
    let (section, store) = open(config, suffix)?;
    let settings = config.engine_settings(section).map_err(text)?;
    let database =
        Database::open(Arc::new(store), Arc::clone(&config.schema), settings, &SystemRandom).map_err(text)?;
    let snapshot = database.store().snapshot().map_err(text)?;
    let view = database.view(&snapshot).map_err(text)?;
    take_read_fault();
    // A check looks up each key of each entry. Copied, the content costs a round trip for hundreds of rows in place of one for each key.
    let directory = tempfile::Builder::new().prefix("larix-check-").tempdir();
    let directory = directory
        .map_err(|error| format!("cannot make a directory in {}: {error}", std::env::temp_dir().display()))?;
    let copy = LmdbStore::open(directory.path(), &TABLES, &LmdbOptions::default()).map_err(text)?;
    copy.copy_unsynced(&snapshot).map_err(|error| match error {
        CommitError::Full => format!(
            "no room in {} for a copy of the content: let TMPDIR name a directory with more",
            directory.path().display()
        ),
        error => format!("cannot copy the content to check it: {error}"),
    })?;
    if take_read_fault().is_some() {
        return Err("the engine did not answer every question: check again".to_owned());
    }
    let copied = copy.snapshot().map_err(text)?;
    let view = view.of_copy(&copied).map_err(text)?;
    let checked = check::check(&view, &mut |finding| found(finding.named(&view.catalog))).map_err(text)?;
    Ok(CheckedContent { commit: snapshot.commit_counter(), entries: checked.entries })
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What the connections of this command are called.
fn own_name() -> String {
    format!("cluster {}", std::process::id())
}

/// The section of the database, and its store, opened for reading.
fn open<'c>(config: &'c Config, suffix: Option<&str>) -> Result<(&'c Section, KvStore), String> {
    let (mut sections, mut suffixes) = (Vec::new(), Vec::new());
    for section in &config.databases {
        let Some(settings) = section.kind.settings::<KvSettings>() else { continue };
        suffixes.extend(section.suffixes.iter().map(|suffix| format!("{:?}", suffix.text)));
        let is_meant = |own: &ConfigDn| match suffix {
            None => true,
            Some(suffix) => config.schema.parse_dn(suffix).is_ok_and(|suffix| suffix == own.normal),
        };
        if section.suffixes.iter().any(is_meant) {
            sections.push((section, settings));
        }
    }
    let (section, settings) = match sections.as_slice() {
        [one] => *one,
        [] => {
            let which = suffix.map(|suffix| format!(" with the suffix {suffix:?}")).unwrap_or_default();
            let mend = match suffixes.as_slice() {
                [] => "-f or -F names that of one of its nodes".to_owned(),
                suffixes => format!("-b names one of {}", suffixes.join(", ")),
            };
            return Err(format!("the configuration has no `database kv`{which}: {mend}"));
        }
        _ => {
            let suffixes = suffixes.join(", ");
            return Err(format!(
                "the configuration has several `database kv`: name one with -b, of {suffixes}"
            ));
        }
    };
    Ok((section, open_store(settings)?))
}

/// How a tool opens a store.
pub(super) fn tool_options(schema: &str) -> KvOptions {
    KvOptions {
        schema: schema.to_owned(),
        make: false,
        writes: false,
        freshness: Freshness::Strict,
        connections: 2,
        name: own_name(),
        ..KvOptions::default()
    }
}

fn open_store(settings: &KvSettings) -> Result<KvStore, String> {
    let engine = settings.engine.as_ref().ok_or("the database has no `engine`")?;
    let store = KvStore::open(&engine.address, &TABLES, &tool_options(&settings.schema));
    store.map_err(|error| format!("{}: {error}", engine.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_say_nothing_are_known_by_their_connections() {
        let long = format!("ldaps://{}.example.com", "n".repeat(60));
        let cut = |node: &str| format!("larix {node} larix").chars().take(63).collect::<String>();
        let report_of = |node: &str| Said { node: node.to_owned(), words: Vec::new(), ago: Duration::ZERO };
        let names = [
            "larix ldap://n2 larix".to_owned(),
            "larix ldap://n1 larix".to_owned(),
            "larix ldap://n3 another".to_owned(),
            "larix cluster 77".to_owned(),
            "psql".to_owned(),
            cut(&long),
        ];
        let nodes = |reports| {
            let known = known_nodes(reports, names.iter().map(String::as_str), "larix");
            known.into_iter().map(|known| (known.node, known.heard.is_some())).collect::<Vec<_>>()
        };
        let name = |node: &str| node.to_owned();
        let known = nodes(vec![report_of("ldap://n1"), report_of(&long)]);
        assert_eq!(known, [(name("ldap://n1"), true), (name("ldap://n2"), false), (long.clone(), true)]);
        let cut = cut(&long).replace("larix ", "");
        let known = nodes(Vec::new());
        assert_eq!(known, [(name("ldap://n1"), false), (name("ldap://n2"), false), (cut, false)]);
    }
}
