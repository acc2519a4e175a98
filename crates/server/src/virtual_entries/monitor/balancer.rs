//! cn=Load Balancer: the balancer in this server, in lloadd's tree.

use std::net::SocketAddr;

use larix_balance::{ConnectionFigures, ConnectionOf, Figures, OperationCounts, ServerFigures};
use larix_engine::entry::Entry;
use larix_proto::dn::{Dn, write_escaped};

use super::Monitor;
use crate::virtual_entries::Builder;

/// The entry of the balancer.
const DN: &str = "cn=Load Balancer,cn=Backends,cn=Monitor";
const INCOMING: &str = "Incoming Connections";
const TIERS: &str = "Backend Tiers";

impl Monitor<'_> {
    pub(super) fn balancer(&self, out: &mut Vec<Entry>) {
        if self.config.global.balancer.is_none() {
            return;
        }
        let figures = self.balancer.as_ref();
        let mut top = self.object(DN, "Load Balancer", "olmBalancer", true);
        if let Some(figures) = figures {
            let ready: usize = figures.servers.iter().flat_map(|server| server.ready).sum();
            top = top
                .one("olmIncomingConnections", figures.clients.to_string())
                .one("olmOutgoingConnections", ready.to_string());
        }
        out.push(top.build());
        let Some(figures) = figures else { return };
        self.incoming(figures, out);
        let dn = format!("cn=Operations,{DN}");
        out.push(self.object(&dn, "Operations", "monitorContainer", true).build());
        let [binds, others] = &figures.counters.operations;
        for (name, counts) in [("Bind", binds), ("Other", others)] {
            let OperationCounts { received, forwarded, rejected, completed, failed } = counts;
            let built = self.object(&format!("cn={name},{dn}"), name, "olmBalancerOperation", false);
            let built = built
                .one("olmReceivedOps", received.to_string())
                .one("olmForwardedOps", forwarded.to_string())
                .one("olmRejectedOps", rejected.to_string())
                .one("olmCompletedOps", completed.to_string())
                .one("olmFailedOps", failed.to_string());
            out.push(built.build());
        }
        self.tiers(figures, out);
    }

    fn incoming(&self, figures: &Figures, out: &mut Vec<Entry>) {
        let dn = format!("cn={INCOMING},{DN}");
        let has_some = !figures.connections.is_empty();
        out.push(self.object(&dn, INCOMING, "monitorContainer", has_some).build());
        out.extend(figures.connections.iter().map(|connection| self.balanced(connection, &dn)));
    }

    fn tiers(&self, figures: &Figures, out: &mut Vec<Entry>) {
        let dn = format!("cn={TIERS},{DN}");
        out.push(self.object(&dn, TIERS, "monitorContainer", !figures.tiers.is_empty()).build());
        for (number, tier) in (1..).zip(&figures.tiers) {
            let of_tier = || figures.servers.iter().filter(|server| server.tier == number);
            let tier_dn = below(tier, &dn);
            let has_servers = of_tier().next().is_some();
            out.push(self.object(&tier_dn, tier, "monitorContainer", has_servers).build());
            of_tier().for_each(|server| self.balanced_server(server, &tier_dn, out));
        }
    }

    fn balanced_server(&self, server: &ServerFigures, tier: &str, out: &mut Vec<Entry>) {
        let dn = below(&server.name, tier);
        let pending: usize = server.connections.iter().map(|connection| connection.pending).sum();
        let has_some = !server.connections.is_empty();
        let built = self
            .object(&dn, &server.name, "olmBalancerServer", has_some)
            .one("olmServerURI", server.uri.clone())
            .one("olmActiveConnections", server.ready.iter().sum::<usize>().to_string())
            .one("olmPendingConnections", server.coming.to_string());
        out.push(counted(built, pending, &server.counts).build());
        out.extend(server.connections.iter().map(|connection| self.balanced(connection, &dn)));
    }

    fn balanced(&self, connection: &ConnectionFigures, above: &str) -> Entry {
        let name = format!("Connection {}", connection.number);
        let named = Some(&connection.authorization).filter(|dn| !dn.is_empty());
        let built = self
            .object(&format!("cn={name},{above}"), &name, "olmBalancerConnection", false)
            .one("olmConnectionType", connection.kind)
            .one("olmConnectionState", connection.state)
            .add("olmConnectionLocalAddress", connection.local.map(shown))
            .add("olmConnectionPeerAddress", connection.peer.map(shown))
            .add("olmConnectionAuthzDN", named.cloned());
        counted(built, connection.pending, &connection.counts).build()
    }
}

fn counted<'s>(built: Builder<'s>, pending: usize, counts: &OperationCounts) -> Builder<'s> {
    built
        .one("olmPendingOps", pending.to_string())
        .one("olmReceivedOps", counts.received.to_string())
        .one("olmCompletedOps", counts.completed.to_string())
        .one("olmFailedOps", counts.failed.to_string())
}

fn below(name: &str, above: &str) -> String {
    let mut leaf = String::new();
    // Writing to a string does not fail.
    let _ = write_escaped(&mut leaf, name.as_bytes());
    format!("cn={leaf},{above}")
}

fn shown(address: SocketAddr) -> String {
    format!("IP={}", SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Whose connection an entry shows, and its number.
pub(super) fn connection_of(dn: &str) -> Option<(ConnectionOf, u64)> {
    let parsed = Dn::parse(dn).ok()?;
    let first = parsed.rdns().first()?.avas().first()?;
    let number = std::str::from_utf8(&first.value).ok()?.strip_prefix("Connection ")?.parse().ok()?;
    let above = dn.strip_suffix(DN)?.strip_suffix(',')?;
    if above.ends_with(&format!(",cn={INCOMING}")) {
        return Some((ConnectionOf::Client, number));
    }
    above.ends_with(&format!(",cn={TIERS}")).then_some((ConnectionOf::Server, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_connections() {
        let client = format!("cn=Connection 7,cn=Incoming Connections,{DN}");
        assert_eq!(connection_of(&client), Some((ConnectionOf::Client, 7)));
        let server =
            format!("cn=Connection 12,{}", below("a, b", &below("one", &format!("cn={TIERS},{DN}"))));
        assert_eq!(connection_of(&server), Some((ConnectionOf::Server, 12)));
        for other in [
            DN.to_owned(),
            format!("cn=Connection x,cn=Incoming Connections,{DN}"),
            format!("cn=Bind,cn=Operations,{DN}"),
            "cn=Connection 1,cn=Connections,cn=Monitor".to_owned(),
        ] {
            assert_eq!(connection_of(&other), None, "{other}");
        }
    }
}
