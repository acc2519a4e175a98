//! `database kv`: entries in an engine that several servers share. One of them at a time writes.

use std::time::Duration;

use larix_engine::index::IndexConfig;
use larix_engine::overlay::{InSharedEngine, Interests};
use larix_kv::{Address, NAME_BYTES_MAX, NODE_BYTES_MAX};
use larix_proto::url::{LdapUrl, UrlScheme};

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::builder::directive::{Directive, Form, Scope};
use super::super::diagnostic::ConfigError;
use super::super::model::{Config, Database, Overlay};
use super::super::values::{ChangeLog, IndexLine, ServerId};
use super::mdb::{indexed, show_index};
use super::{Descriptor, KindSettings, NOTHING, Storage, StoredSettings};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "kv",
    storage: Storage::SharedEngine,
    class: Some("olcLarixKvConfig"),
    follows: true,
    is_recorded: true,
    settings: || Box::new(KvSettings::default()),
    directives: TABLE,
    ..NOTHING
};

/// Longest and shortest lease, in seconds.
const LEASE_SECONDS: (u64, u64) = (1, 300);
/// Shortest and longest bound of `read-consistency bounded`, in seconds.
const BOUND_SECONDS: (u64, u64) = (1, 3_600);
/// Least memory of the cache, in megabytes, and most.
const CACHE_MEGABYTES: (u64, u64) = (1, 1 << 20);

/// Settings of `database kv`.
#[derive(Clone, Debug)]
pub struct KvSettings {
    /// `engine`: its address as it was given, with a password if it has one.
    pub engine: Option<Engine>,
    /// `engine-schema`: the schema of the engine's database that holds the entries.
    pub schema: String,
    /// `node`: the LDAP URL under which clients reach this server, for referrals.
    pub node: String,
    /// How long the leader may be silent before another node takes over.
    pub lease: Duration,
    pub consistency: Consistency,
    /// Most memory of the cache, in megabytes.
    pub cache_megabytes: u64,
    /// `server-id`: what the changes of all nodes are numbered under; none: each node's `serverID`.
    pub server_id: Option<u16>,
    /// `node-configuration shared`: what all nodes have in common is as the engine has it.
    pub shares_configuration: bool,
    pub index: Vec<IndexLine>,
    pub index_config: IndexConfig,
    pub entry_bytes_max: Option<u64>,
}

/// `read-consistency`: what a read sees of what other nodes have acknowledged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// All of it.
    Strict,
    /// What this node has heard of.
    Session,
    /// All that was acknowledged longer ago than this.
    Bounded(Duration),
}

/// The address of an engine.
#[derive(Clone)]
pub struct Engine {
    pub address: Address,
    text: String,
}

/// Without its password.
impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.address.fmt(f)
    }
}

impl Engine {
    /// Whether this is the text that it was given as, password and parameters included.
    #[must_use]
    pub fn is_given_as(&self, text: &str) -> bool {
        self.text == text
    }
}

impl Engine {
    /// As it was given, password and parameters included.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Engine {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Default for KvSettings {
    fn default() -> Self {
        Self {
            engine: None,
            schema: "larix".to_owned(),
            node: String::new(),
            lease: Duration::from_secs(3),
            consistency: Consistency::Strict,
            cache_megabytes: 64,
            server_id: None,
            shares_configuration: false,
            index: Vec::new(),
            index_config: IndexConfig::default(),
            entry_bytes_max: None,
        }
    }
}

impl KvSettings {
    /// Whether both are the same store, opened alike.
    #[must_use]
    pub fn opens_as(&self, other: &Self) -> bool {
        self.is_same_store(other)
            && (&self.node, self.lease, self.consistency, self.cache_megabytes)
                == (&other.node, other.lease, other.consistency, other.cache_megabytes)
    }

    /// What the connections of a node with this URL are called in the engine.
    #[must_use]
    pub fn connection_name(&self, node: &str) -> String {
        format!("{node} {}", self.schema)
    }

    fn is_same_store(&self, other: &Self) -> bool {
        (&self.engine, &self.schema) == (&other.engine, &other.schema)
    }
}

impl KindSettings for KvSettings {
    fn stored(&self) -> StoredSettings {
        StoredSettings {
            change_log: ChangeLog::Off,
            index: self.index_config.clone(),
            relaxed: false,
            entry_bytes_max: self.entry_bytes_max,
            value_conflicts: false,
        }
    }

    fn server_id(&self) -> Option<u16> {
        self.server_id
    }

    fn check(&self, database: &Database) -> Result<(), ConfigError> {
        let refused = |message: &str, help: &str| {
            Err(ConfigError::new(database.origin.clone(), message).with_help(help.to_owned()))
        };
        if self.engine.is_none() {
            let help = "such as engine postgresql://larix@127.0.0.1/directory";
            return refused("a kv database needs an `engine`", help);
        }
        if self.node.is_empty() {
            let help = "the URL under which clients reach this server, such as node ldap://n1.example.com";
            return refused("a kv database needs a `node`: others refer writes to it", help);
        }
        if database.suffixes.is_empty() {
            return refused("a kv database needs a `suffix`", "add one");
        }
        if database.sync_replication.is_empty()
            && (database.update_dn.is_some() || !database.update_refs.is_empty())
        {
            let help =
                "a node that does not write refers to the one that does: take it out, or add `syncrepl`";
            return refused("`updatedn` and `updateref` are for a kv database that follows a provider", help);
        }
        Ok(())
    }

    fn refusals(&self, config: &Config, database: &Database, found: &mut Vec<ConfigError>) {
        let own = database.overlays.iter().filter(|overlay| !overlay.disabled);
        for overlay in own {
            let Some((why, help)) = fault(config, database, overlay) else { continue };
            let message = format!("the overlay {} does not work in a kv database: {why}", overlay.name);
            found.push(ConfigError::new(overlay.origin.clone(), message).with_help(help));
        }
        let everywhere =
            config.frontend.overlays.iter().filter(|overlay| !overlay.disabled && overlay.name != "chain");
        for overlay in everywhere {
            let message = format!(
                "the overlay {} before the first database is meant for all of them, and the kv database at {} is left out",
                overlay.name, database.origin
            );
            let help = "give each other database an overlay of its own";
            found.push(ConfigError::new(overlay.origin.clone(), message).with_help(help));
        }
        let of_config = config.databases.iter().find(|other| other.kind.is_config());
        if let Some(other) =
            of_config.filter(|other| self.shares_configuration && !other.sync_replication.is_empty())
        {
            let message = format!(
                "the configuration cannot follow a provider (at {}) and the nodes of a kv database as well",
                other.origin
            );
            let help = "take `syncrepl` out of `database config`, or `node-configuration shared` out of this database";
            found.push(ConfigError::new(database.origin.clone(), message).with_help(help));
        }
        for other in config.databases.iter().filter(|other| !other.disabled) {
            let twin = other.kind.settings::<Self>().filter(|_| !std::ptr::eq(other, database));
            if twin.is_some_and(|twin| twin.is_same_store(self)) {
                let message =
                    format!("its engine and engine-schema are those of the database at {}", other.origin);
                let help = "give each kv database an `engine-schema` of its own";
                found.push(ConfigError::new(database.origin.clone(), message).with_help(help));
            }
        }
    }
}

/// Why an overlay is refused, and what to do about it.
fn fault(config: &Config, database: &Database, overlay: &Overlay) -> Option<(&'static str, &'static str)> {
    /// What has its say while the node that writes makes a change or judges a bind, behind its commits, or when any node reads.
    const WORKS: Interests = Interests::PREPARE
        .and(Interests::BACK_LINK)
        .and(Interests::BIND)
        .and(Interests::SECOND_FACTOR)
        .and(Interests::PASSWORD_KEY)
        .and(Interests::ANSWER)
        .and(Interests::COMPUTE)
        .and(Interests::SHOW)
        // Beside operations, it acts at the node that writes.
        .and(Interests::COMMITTED)
        .and(Interests::TICK)
        .and(Interests::DYNAMIC_OBJECTS);
    let take_out = "take it out, or keep what it is for in a database mdb";
    if overlay.chain().is_some() {
        return None;
    }
    let Some(descriptor) = overlay.descriptor() else {
        return Some(("the server itself stands in front of stored entries with it", take_out));
    };
    if descriptor.records_operations {
        // What it can record, and where, is judged with its settings.
        return None;
    }
    if let InSharedEngine::Refused(why) = descriptor.in_shared_engine {
        return Some((why, take_out));
    }
    let was_tried = descriptor.in_shared_engine == InSharedEngine::AlikeInFront;
    if larix_overlays::interceptor(&overlay.name).is_some() && !was_tried {
        return Some(("it sees requests before the database does, which was not tried there", take_out));
    }
    let Ok(built) = config.build_overlays(database) else { return None };
    if built.tells_changes_at(&overlay.origin) {
        return Some(("it sends changes on, which was not tried from a shared engine", take_out));
    }
    let interests = built.interests_at(&overlay.origin)?;
    let why = "it has a part in operations that was not tried there";
    (WORKS.and(interests) != WORKS).then_some((why, take_out))
}

fn kv(builder: &mut Builder) -> Result<&mut KvSettings, Fault> {
    builder.settings_of()
}

static TABLE: &[Directive] = &[
    // With a password it is a secret.
    Directive::new("engine", "olcLarixKvEngine", Scope::Kind("kv"), Form::Secret, engine),
    Directive::new("engine-schema", "olcLarixKvSchema", Scope::Kind("kv"), Form::Whole, |b, c| {
        let name = c.argument(0)?;
        larix_kv::check_schema_name(name).map_err(|error| {
            Fault::argument(0, error.to_string())
                .with_help(format!("up to {NAME_BYTES_MAX} letters, such as `engine-schema people`"))
        })?;
        kv(b)?.schema = name.to_owned();
        Ok(())
    }),
    Directive::new("node", "olcLarixKvNode", Scope::Kind("kv"), Form::Whole, node),
    Directive::new("lease", "olcLarixKvLease", Scope::Kind("kv"), Form::Whole, |b, c| {
        let seconds = within(c, LEASE_SECONDS, "seconds")?;
        kv(b)?.lease = Duration::from_secs(seconds);
        Ok(())
    }),
    Directive::new(
        "read-consistency",
        "olcLarixKvReadConsistency",
        Scope::Kind("kv"),
        Form::Words,
        |b, c| {
            kv(b)?.consistency = consistency(c)?;
            Ok(())
        },
    )
    .arguments(1, 2),
    Directive::new("engine-cache", "olcLarixKvCache", Scope::Kind("kv"), Form::Whole, |b, c| {
        kv(b)?.cache_megabytes = within(c, CACHE_MEGABYTES, "megabytes")?;
        Ok(())
    }),
    Directive::new("server-id", "olcLarixKvServerId", Scope::Kind("kv"), Form::Whole, |b, c| {
        kv(b)?.server_id = Some(server_id(c)?);
        Ok(())
    }),
    Directive::new(
        "node-configuration",
        "olcLarixKvConfiguration",
        Scope::Kind("kv"),
        Form::Whole,
        |b, c| {
            kv(b)?.shares_configuration = c.choice(0, &[("own", false), ("shared", true)])?;
            Ok(())
        },
    ),
    Directive::new("index", "olcDbIndex", Scope::Kind("kv"), Form::Own, |b, c| {
        let schema = b.schema();
        let settings = kv(b)?;
        let line = indexed(&mut settings.index_config, &schema, c)?;
        settings.index.push(line.clone());
        show_index(b, c, &line);
        Ok(())
    })
    .arguments(1, 2)
    .many(),
    Directive::new("maxentrysize", "olcDbMaxEntrySize", Scope::Kind("kv"), Form::Whole, |b, c| {
        kv(b)?.entry_bytes_max = Some(c.number(0)?).filter(|bytes| *bytes > 0);
        Ok(())
    }),
];

fn consistency(call: &Call<'_>) -> Result<Consistency, Fault> {
    let bounded = Consistency::Bounded(Duration::ZERO);
    let ways = [("strict", Consistency::Strict), ("session", Consistency::Session), ("bounded", bounded)];
    let chosen = call.choice(0, &ways)?;
    match (chosen == bounded, call.arguments.len()) {
        (true, 2) => {
            Ok(Consistency::Bounded(Duration::from_secs(within_at(call, 1, BOUND_SECONDS, "seconds")?)))
        }
        (true, _) => Err(Fault::argument(0, "a bound is missing")
            .with_help("how old what is read may be, in seconds, such as `read-consistency bounded 1`")),
        (false, 2) => {
            Err(Fault::argument(1, "only `bounded` takes a number of seconds")
                .with_help("take the number out"))
        }
        (false, _) => Ok(chosen),
    }
}

fn server_id(call: &Call<'_>) -> Result<u16, Fault> {
    let number: u64 = call.number(0)?;
    u16::try_from(number).ok().filter(|number| *number <= ServerId::MAX).ok_or_else(|| {
        Fault::argument(0, format!("server ID {number} is out of range")).with_help("a number from 0 to 4095")
    })
}

fn within(call: &Call<'_>, range: (u64, u64), unit: &str) -> Result<u64, Fault> {
    within_at(call, 0, range, unit)
}

fn within_at(call: &Call<'_>, at: usize, (least, most): (u64, u64), unit: &str) -> Result<u64, Fault> {
    let number: u64 = call.number(at)?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(Fault::argument(at, format!("{number} is not from {least} to {most} {unit}"))
        .with_help(format!("a number of {unit} between them")))
}

fn engine(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let text = std::str::from_utf8(call.bytes).map_err(|_| Fault::argument(0, "the address is not UTF-8"))?;
    let address = Address::parse(text).map_err(|error| Fault::argument(0, error.to_string()))?;
    kv(builder)?.engine = Some(Engine { address, text: text.to_owned() });
    Ok(())
}

/// What a `node` is written like.
const NODE_HELP: &str = "scheme and host, such as ldap://n1.example.com or ldaps://n1.example.com:6636";

fn node(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let text = call.argument(0)?;
    node_fault(text).map_or(Ok(()), |why| Err(Fault::argument(0, why).with_help(NODE_HELP)))?;
    kv(builder)?.node = text.trim_end_matches('/').to_owned();
    Ok(())
}

/// Whether a URL can be that of a node.
///
/// # Errors
/// Why not, and what to write.
pub fn check_node(text: &str) -> Result<(), String> {
    node_fault(text).map_or(Ok(()), |why| Err(format!("{why}: {NODE_HELP}")))
}

fn node_fault(text: &str) -> Option<String> {
    if text.len() > NODE_BYTES_MAX {
        return Some(format!("a URL of more than {NODE_BYTES_MAX} bytes"));
    }
    let url = match LdapUrl::parse(text) {
        Ok(url) => url,
        Err(error) => return Some(error.to_string()),
    };
    if !matches!(url.scheme, UrlScheme::Ldap | UrlScheme::Ldaps) || url.host.is_empty() {
        return Some("clients cannot be referred there".to_owned());
    }
    let host = &url.host;
    if host.parse().is_ok_and(|address: std::net::IpAddr| address.is_unspecified()) {
        return Some(format!(
            "{host} stands for all addresses of a machine, and clients cannot be referred there"
        ));
    }
    let plain = LdapUrl::server(url.scheme, url.host.clone(), url.port);
    (url != plain).then(|| "more than a scheme, a host and a port".to_owned())
}

#[cfg(test)]
mod tests;
