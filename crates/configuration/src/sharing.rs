//! What the nodes of a `database kv` have in common of their configurations, and a node's own made from it.

use std::path::Path;

use larix_engine::overlay::InSharedEngine;
use larix_proto::ResultCode;

use super::change::{ChangedConfig, ConfigRefusal};
use super::difference::Difference;
use super::export::quoted_whole;
use super::kinds::KvSettings;
use super::model::{Config, Database, Frontend, Overlay};
use super::slapd_conf;
use super::slapd_d::Stamp;

/// Settings of the server as a whole that say what shared entries mean, who may do what with them, and how they are indexed. The others (listeners,
/// certificates, logs, threads, server ids) are each node's own.
const OF_ALL: &[&str] = &[
    "olcAllows",
    "olcAttributeOptions",
    "olcAttributeTypes",
    "olcAuthIDRewrite",
    "olcAuthzPolicy",
    "olcAuthzRegexp",
    "olcDisallows",
    "olcDitContentRules",
    "olcIndexHash64",
    "olcIndexIntLen",
    "olcIndexSubstrAnyLen",
    "olcIndexSubstrAnyStep",
    "olcIndexSubstrIfMaxLen",
    "olcIndexSubstrIfMinLen",
    "olcLarixSaslMechanisms",
    "olcLdapSyntaxes",
    "olcMaxFilterDepth",
    "olcObjectClasses",
    "olcObjectIdentifier",
    "olcPasswordCryptSaltFormat",
    "olcReferral",
    "olcRequires",
    "olcRestrict",
    "olcSaslRealm",
    "olcSaslSecProps",
    "olcSecurity",
    "olcSizeLimit",
    "olcTimeLimit",
];
/// Settings of the server as a whole that [`SharedLines::of_node`] adds.
const ADDED: &[&str] = &["olcTLSCertificateFile", "olcTLSCertificateKeyFile"];
/// What each node says of the database. A node may have it glued below another database, which those that join do not have.
const OF_NODE: &[&str] =
    &["olcLarixKvEngine", "olcLarixKvNode", "olcLarixKvConfiguration", "olcSubordinate", SERVER_ID];
/// The same at all nodes: where none has it, nodes that join get what `serverID` says.
const SERVER_ID: &str = "olcLarixKvServerId";
const DATABASE: &str = "\ndatabase kv\n";
/// What errors call the lines that a node reads in the engine.
const NAME: &str = "the nodes' configuration";
/// What [`SharedLines::of_node`] makes of the root DN beside the database itself.
const OF_ROOT: [(&str, &str); 2] = [("config", "olcRootDN"), ("monitor", "olcAccess")];

/// Lines of slapd.conf that all nodes of a database have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedLines {
    /// What stands before the database: the schema, and what holds for the server as a whole.
    pub head: String,
    /// The database, without `engine` and `node`.
    pub database: String,
    pub root_dn: Option<String>,
}

/// What a node says itself.
#[derive(Copy, Clone, Debug)]
pub struct OwnLines<'a> {
    pub engine: &'a str,
    pub node: &'a str,
    /// Files of its certificate and the key.
    pub certificate: Option<(&'a Path, &'a Path)>,
}

/// A directive with one argument.
fn line_of(keyword: &str, argument: &str) -> String {
    format!("{keyword} {}\n", quoted_whole(argument))
}

impl Config {
    /// What other nodes of this database need, without overlays that are [each node's own](is_of_node).
    pub fn shared_lines(&self, database: &Database) -> SharedLines {
        let mut shared = self.clone();
        let mut own = database.clone();
        own.settings.retain(|setting| !OF_NODE.contains(&setting.attribute));
        own.overlays.retain(|overlay| !is_of_node(overlay));
        shared.frontend.overlays.clear();
        shared.global.settings.retain(|setting| OF_ALL.contains(&setting.attribute));
        shared.modules.clear();
        shared.backends.clear();
        shared.databases.clear();
        let head = shared.to_slapd_conf().text;
        shared.databases.push(own);
        let whole = shared.to_slapd_conf().text;
        let lines = whole.strip_prefix(&head).unwrap_or_default();
        let id = match self.server_id_of(database) {
            0 => String::new(),
            id => format!("server-id {id}\n"),
        };
        SharedLines {
            database: lines.replacen(DATABASE, &format!("{DATABASE}{id}"), 1),
            head,
            root_dn: database.root_dn.as_ref().map(|dn| dn.text.clone()),
        }
    }
}

/// What a node's configuration becomes when it takes over what the engine has.
#[derive(Debug)]
pub struct FollowedConfig {
    pub changed: ChangedConfig,
    /// What is changed, for people.
    pub difference: Difference,
}

impl Config {
    /// The `database kv` whose first suffix has this normal form.
    pub fn in_engine(&self, suffix: &str) -> Option<&Database> {
        self.databases.iter().find(|database| {
            database.kind.is_in_shared_engine()
                && database.suffixes.first().is_some_and(|own| own.normal.as_str() == suffix)
        })
    }

    /// This configuration with what these lines say of its database in an engine, and of the server as a whole. What is each node's own
    /// stays. None where nothing is different.
    ///
    /// # Errors
    /// The lines cannot be read here, bring something that is each node's own, or do not fit the rest of this configuration.
    pub fn with_shared_lines(
        &self,
        suffix: &str,
        lines: &SharedLines,
        stamp: &Stamp<'_>,
    ) -> Result<Option<FollowedConfig>, ConfigRefusal> {
        let refused = |why: &str| ConfigRefusal::new(ResultCode::UNWILLING_TO_PERFORM, why);
        let own = self.in_engine(suffix).ok_or_else(|| refused("there is no such `database kv`"))?;
        let wanted = self.read_shared(own, lines)?;
        SharedLines::check_alone(&wanted).map_err(|why| refused(&why))?;
        let theirs = wanted.in_engine(suffix).ok_or_else(|| {
            refused("they give the database another suffix, which no running node takes: have this node join anew")
        })?;
        let before = self.read_shared(own, &self.shared_lines(own)).ok();
        let mut next = self.clone();
        next.read_entries = None;
        next.schema_sections.clone_from(&wanted.schema_sections);
        next.global.settings.retain(|setting| !OF_ALL.contains(&setting.attribute));
        next.global.settings.add_all(&wanted.global.settings, |attribute| OF_ALL.contains(&attribute));
        next.frontend = Frontend { overlays: self.frontend.overlays.clone(), ..wanted.frontend.clone() };
        for database in &mut next.databases {
            let kind = database.kind.name();
            if kind == own.kind.name() && database.suffixes == own.suffixes {
                follow(database, theirs, self.server_id_of(own) == wanted.server_id_of(theirs));
            }
            let of_kind = |config: &Self, attribute: &str| {
                let found = config.databases.iter().find(|other| other.kind.name() == kind);
                found.map(|other| other.settings.get(attribute).clone())
            };
            for (_, attribute) in OF_ROOT.iter().filter(|(of, _)| *of == kind) {
                let was = before.as_ref().and_then(|before| of_kind(before, attribute));
                let becomes = of_kind(&wanted, attribute);
                // One that somebody has changed here stays.
                if was != becomes && was.as_ref() == Some(database.settings.get(attribute)) {
                    database.settings.retain(|setting| setting.attribute != *attribute);
                    let of_root = wanted.databases.iter().find(|other| other.kind.name() == kind);
                    of_root.iter().for_each(|other| {
                        database.settings.add_all(&other.settings, |other| other == *attribute);
                    });
                }
            }
        }
        let difference = self.difference(&next);
        if difference.is_empty() {
            return Ok(None);
        }
        let changed = self.changed_together(&difference.offline_changes(), stamp);
        let changed = changed.map_err(|(_, refusal)| refusal)?;
        self.check_served(&changed.config)?;
        Ok(Some(FollowedConfig { changed, difference }))
    }

    /// The configuration of a node that joins with these lines, and is this one otherwise.
    fn read_shared(&self, own: &Database, lines: &SharedLines) -> Result<Self, ConfigRefusal> {
        let settings = own.kind.settings::<KvSettings>();
        let engine =
            settings.and_then(|settings| settings.engine.as_ref()).map_or("", |engine| engine.text());
        let node = settings.map_or("", |settings| &settings.node);
        let text = lines.of_node(&OwnLines { engine, node, certificate: None });
        slapd_conf::read_lines(NAME, text).map_err(ConfigRefusal::from)
    }
}

/// Whether an overlay of the database is each node's own: `overlay chain` names the other nodes, some write files of the machine, and an
/// access log needs a database that only this node's configuration has.
fn is_of_node(overlay: &Overlay) -> bool {
    overlay.chain().is_some() || why_of_node(overlay).is_some()
}

/// Why an overlay that works at all is each node's own.
fn why_of_node(overlay: &Overlay) -> Option<&'static str> {
    match overlay.descriptor()?.in_shared_engine {
        InSharedEngine::OfEachServer => Some("writes files of each node's own: configure that at each node"),
        InSharedEngine::WithAnotherDatabase => {
            Some("needs a database of each node's own: configure both at each node")
        }
        InSharedEngine::Alike | InSharedEngine::AlikeInFront | InSharedEngine::Refused(_) => None,
    }
}

/// Gives a database what another node says of it; `same_id`: the server id in its CSNs is no other.
fn follow(database: &mut Database, theirs: &Database, same_id: bool) {
    let stays = |attribute: &str| OF_NODE.contains(&attribute) && (attribute != SERVER_ID || same_id);
    let own = std::mem::take(&mut database.settings);
    database.settings.add_all(&own, stays);
    database.settings.add_all(&theirs.settings, |attribute| !stays(attribute));
    let own = std::mem::replace(&mut database.overlays, theirs.overlays.clone());
    for (place, overlay) in own.into_iter().enumerate().filter(|(_, overlay)| is_of_node(overlay)) {
        database.overlays.insert(place.min(database.overlays.len()), overlay);
    }
}

impl SharedLines {
    /// The slapd.conf of another node: the same with its own lines, cn=config for the same administrator, and cn=Monitor.
    pub fn of_node(&self, own: &OwnLines<'_>) -> String {
        let mut text = String::new();
        if let Some((certificate, key)) = own.certificate {
            text += &line_of("TLSCertificateFile", &certificate.to_string_lossy());
            text += &line_of("TLSCertificateKeyFile", &key.to_string_lossy());
        }
        text += &self.head;
        text += "\ndatabase config\n";
        text += &self.root_dn.as_ref().map(|dn| line_of("rootdn", dn)).unwrap_or_default();
        let own = format!(
            "{}{}{}",
            line_of("engine", own.engine),
            line_of("node", own.node),
            line_of("node-configuration", "shared")
        );
        text += &self.database.replacen(DATABASE, &format!("{DATABASE}{own}"), 1);
        text += "\ndatabase monitor\n";
        if let Some(reader) = &self.root_dn {
            text += &format!("access to * by dn.exact={} read by * none\n", quoted_whole(reader));
        }
        text
    }

    /// Whether the configuration of a node that has joined has nothing of its own but what [`Self::of_node`] adds: who writes into the
    /// engine decides about its entries, not about the files and the other databases of this machine.
    ///
    /// # Errors
    /// What it has beside.
    pub fn check_alone(config: &Config) -> Result<(), String> {
        let settings = config.global.settings.iter().map(|setting| setting.attribute);
        let others = |attribute: &&str| !OF_ALL.contains(attribute) && !ADDED.contains(attribute);
        if let Some(attribute) = settings.into_iter().find(others) {
            return Err(format!("it sets {attribute}, which is each node's own"));
        }
        let is_of_all =
            |own: &Database| own.kind.is_in_shared_engine() || own.kind.is_config() || own.kind.is_monitor();
        if let Some(database) = config.databases.iter().find(|own| !is_of_all(own)) {
            return Err(format!("it has a database {}", database.kind.name()));
        }
        let lines = config.databases.iter().flat_map(|own| &own.sync_replication);
        let files = ["tls_cert", "tls_key", "tls_cacert", "tls_cacertdir"];
        let named = |(key, _): &&(String, String)| files.iter().any(|file| key.eq_ignore_ascii_case(file));
        if let Some((key, _)) = lines.flat_map(|line| &line.tls).find(named) {
            return Err(format!(
                "a syncrepl line has {key}, a file of each node's own: configure the node by hand"
            ));
        }
        let overlays = config.databases.iter().flat_map(|own| &own.overlays);
        let of_nodes = |overlay: &Overlay| Some((overlay.name.clone(), why_of_node(overlay)?));
        if let Some((name, why)) = overlays.into_iter().find_map(of_nodes) {
            return Err(format!("it has the overlay {name}, which {why}"));
        }
        if !(config.modules.is_empty() && config.backends.is_empty() && config.frontend.overlays.is_empty()) {
            return Err("it has modules, backends, or overlays before the first database".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
