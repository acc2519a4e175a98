//! The connections of a database to other servers, below its entry: as slapd-ldap(5)'s monitor has them, in one container for
//! all targets. Those of `database asyncmeta` stand in groups (`connection_groups.rs`).

use larix_configuration::{Database, MetaSettings};
use larix_engine::entry::Entry;
use larix_proxy::{ProxyFigures, TargetState};

use super::{DN, Monitor};

/// The suffix that names the proxies of a database.
pub(super) fn name_of(database: &Database) -> &str {
    database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default()
}

impl Monitor<'_> {
    /// `n`: the number of the database.
    pub(super) fn proxy_connections(&self, n: usize, database: &Database, out: &mut Vec<Entry>) {
        if !database.kind.is_proxied() {
            return;
        }
        if database.kind.settings::<MetaSettings>().is_some_and(|settings| settings.is_asynchronous) {
            return self.connection_groups(n, database, out);
        }
        let own = || self.proxies_of(name_of(database));
        let open: Vec<_> = own().flat_map(|figures| figures.connections.values()).collect();
        let container = format!("cn=Connections,cn=Database {n},cn=Databases,{DN}");
        let about = "This container contains the open connections to the servers that have the entries.";
        out.push(
            self.object(&container, "Connections", "monitorContainer", !open.is_empty())
                .one("description", about)
                .build(),
        );
        for (number, connection) in open.into_iter().enumerate() {
            let name = format!("Connection {number}");
            out.push(
                self.object(&format!("cn={name},{container}"), &name, "olmLDAPConnection", false)
                    .add("olmDbBoundDN", connection.bound.clone())
                    .add("olmDbConnFlags", connection.flags.iter().copied())
                    .one("olmDbConnURI", connection.url.clone())
                    .add("olmDbConnPeerAddress", connection.peer.clone())
                    .build(),
            );
        }
        self.proxy_targets(n, &own().flat_map(|figures| &figures.targets).collect::<Vec<_>>(), out);
    }

    fn proxies_of<'s>(&'s self, suffix: &'s str) -> impl Iterator<Item = &'s ProxyFigures> {
        self.proxies.iter().filter(move |(name, _)| is_of(suffix, name)).map(|(_, figures)| figures)
    }

    /// The servers that have the entries, and whether they answer.
    fn proxy_targets(&self, n: usize, all: &[&TargetState], out: &mut Vec<Entry>) {
        let container = format!("cn=Targets,cn=Database {n},cn=Databases,{DN}");
        let about = "This container contains the servers that have the entries.";
        out.push(
            self.object(&container, "Targets", "monitorContainer", !all.is_empty())
                .one("description", about)
                .build(),
        );
        for (number, target) in all.iter().enumerate() {
            let name = format!("Target {number}");
            out.push(
                self.object(&format!("cn={name},{container}"), &name, "monitoredObject", false)
                    .one("labeledURI", target.url.clone())
                    .add("monitoredInfo", state_of(target))
                    .build(),
            );
        }
    }
}

/// Whether a server answers, and its health checks.
pub(super) fn state_of(target: &TargetState) -> [String; 4] {
    [
        format!("state={}", if target.is_up { "up" } else { "down" }),
        format!("checksAnswered={}", target.answered),
        format!("checksMissed={}", target.missed),
        format!("lastCheckMicroseconds={}", target.took.as_micros()),
    ]
}

/// Whether connections with this name are those of a database, or of one of its targets.
fn is_of(suffix: &str, name: &str) -> bool {
    let number = || name.strip_prefix(suffix)?.strip_prefix(" target ")?.parse::<u32>().ok();
    name == suffix || number().is_some()
}
