//! Which of the URLs in the configuration are this server's own.

use std::net::{IpAddr, ToSocketAddrs as _};

use super::Config;
use super::model::Database;
use super::values::{ServerId, SyncReplication, is_own_url};

impl Config {
    /// Our own server ID: the one without a URL, or the one with the URL of a listener. The others are the peers'.
    pub fn server_id(&self) -> u16 {
        let is_own = |id: &&ServerId| id.url.as_deref().is_none_or(|url| self.is_own(url));
        self.global.server_ids.iter().find(is_own).map_or(0, |id| id.number)
    }

    /// What is wrong if all lines of `serverID` have URLs and none of them is a listener's: this server has no ID then.
    pub fn no_server_id(&self) -> Option<String> {
        let ids = &self.global.server_ids;
        let urls: Vec<&str> = ids.iter().map(|id| id.url.as_deref()).collect::<Option<_>>()?;
        if urls.is_empty() || urls.iter().any(|url| self.is_own(url)) {
            return None;
        }
        let mut listeners: Vec<&str> = self.global.listener_urls.iter().map(String::as_str).collect();
        listeners.dedup();
        Some(format!(
            "no serverID line is for this server: the lines have {}, and the server listens on {}; give -h one of those \
             URLs, or add a line `serverID NUMBER URL` with a URL of -h",
            urls.join(" "),
            listeners.join(" ")
        ))
    }

    /// Under which id the changes of a database are numbered: [`Self::server_id`], unless all nodes of a shared engine have one.
    pub fn server_id_of(&self, database: &Database) -> u16 {
        database.kind.server_id().unwrap_or_else(|| self.server_id())
    }

    /// Whether a `syncrepl` line names this server as its provider: all members of a group may have the same lines, one for
    /// each member.
    pub fn names_itself(&self, line: &SyncReplication) -> bool {
        line.suffix_massage.is_none() && line.providers.iter().any(|url| self.is_own(&url.to_string()))
    }

    /// Whether a URL is a listener's.
    fn is_own(&self, url: &str) -> bool {
        self.global.listener_urls.iter().any(|listener| is_own_url(url, listener, &resolve_host))
    }
}

/// The addresses of a host; none of a host that is not known.
fn resolve_host(host: &str) -> Vec<IpAddr> {
    let found = (host, 0).to_socket_addrs();
    found.map_or_else(|_| Vec::new(), |addresses| addresses.map(|address| address.ip()).collect())
}
