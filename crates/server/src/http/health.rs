//! Health for orchestrators: live is a process that answers, ready is one that may be sent clients.

use crate::replication::health;
use crate::server::Server;

/// Not ready while a database takes no changes because a sync has failed, or because its file was replaced: what it answers may be
/// older than what the disk holds, and only a restart finds out; or while a replica has never had all of its content, or has lost
/// its provider for longer than `replica-max-lag`; or while its balancer reaches no server. The reasons, a line each.
pub(crate) fn unready(server: &Server) -> String {
    let mut text: String = server.databases().refusals().iter().map(|why| format!("{why}\n")).collect();
    text.extend(health::unready(server));
    if let Some(figures) = server.balancer.totals() {
        text.extend(figures.unready().lines().map(|why| format!("balancer: {why}\n")));
    }
    text
}

/// Databases whose changes find no room, a line each. Their entries are read as before, so they leave the server ready:
/// where all of its kind are full, clients would have nobody to ask.
pub(crate) fn full(server: &Server) -> String {
    let suffixes = server.databases().full();
    suffixes.iter().map(|suffix| format!("{suffix:?}: no room for changes, which are refused\n")).collect()
}
