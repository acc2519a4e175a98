//! The connections of a database to other servers, below its entry: as slapd-ldap(5)'s monitor has them, in one container for
//! all targets.

use larix_configuration::{Database, LdapSettings, MetaSettings};
use larix_engine::entry::Entry;
use larix_proxy::OpenConnection;

use super::{DN, Monitor};

/// Whether other servers have the database.
pub(super) fn is_proxied(database: &Database) -> bool {
    database.kind.settings::<LdapSettings>().is_some() || database.kind.settings::<MetaSettings>().is_some()
}

impl Monitor<'_> {
    /// `n`: the number of the database.
    pub(super) fn proxy_connections(&self, n: usize, database: &Database, out: &mut Vec<Entry>) {
        if !is_proxied(database) {
            return;
        }
        let suffix = database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default();
        let of_target = |name: &str| {
            let number = name.strip_prefix(suffix)?.strip_prefix(" target ")?;
            number.parse::<u32>().ok()
        };
        let own = self.proxies.iter().filter(|(name, _)| name == suffix || of_target(name).is_some());
        let open: Vec<&OpenConnection> = own.flat_map(|(_, connections)| connections.values()).collect();
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
    }
}
