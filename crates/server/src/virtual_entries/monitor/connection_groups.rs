//! The connections of `database asyncmeta` as OpenLDAP's back-asyncmeta shows them: in numbered groups, each with an entry for each
//! target, whether it has a connection or not. Group 1 has the first place for connections to each target, group 2 the second.

use std::time::Duration;

use larix_configuration::{Database, MetaSettings};
use larix_engine::entry::Entry;
use larix_proxy::{OpenConnection, ProxyFigures, TargetState};

use super::proxies::{name_of, state_of};
use super::{Builder, DN, Monitor, truth};

/// The words of back-asyncmeta for a connection, in its order. `cached`, which all are, is left out.
const FLAGS: [&str; 5] = ["bound", "anonymous", "privileged", "TLS", "idassert"];

impl Monitor<'_> {
    /// `n`: the number of the database. The names are in lower case, as there.
    pub(super) fn connection_groups(&self, n: usize, database: &Database, out: &mut Vec<Entry>) {
        let Some(settings) = database.kind.settings::<MetaSettings>() else { return };
        let above = format!("cn=database {n},cn=databases,{}", DN.to_lowercase());
        let targets: Vec<Option<&ProxyFigures>> =
            (0..settings.targets.len()).map(|target| self.proxy_of_target(database, target)).collect();
        // Without `max-target-conns`, as many as are open.
        let open = targets.iter().flatten().flat_map(|figures| figures.connections.values());
        let groups = open.map(|connection| connection.place + 1).max().unwrap_or(1);
        let groups = groups.max(settings.connection_groups().unwrap_or(1));
        let container = format!("cn=Connections,{above}");
        out.push(self.object(&container, "Connections", "monitorContainer", true).build());
        for group in 0..groups {
            self.connection_group((group, &container), &targets, out);
        }
        let container = format!("cn=Targets,{above}");
        out.push(self.object(&container, "Targets", "monitorContainer", !targets.is_empty()).build());
        for (number, figures) in targets.iter().enumerate() {
            if let Some(figures) = figures {
                out.push(self.target((number, &container), figures));
            }
        }
    }

    /// The group that has the next turn, on the database's entry; none: no turns are taken.
    pub(super) fn next_group(&self, database: &Database) -> Option<u32> {
        let settings = database.kind.settings::<MetaSettings>()?;
        settings.connection_groups()?;
        self.proxy_of_target(database, 0).map(|figures| figures.next_place + 1)
    }

    fn proxy_of_target(&self, database: &Database, target: usize) -> Option<&ProxyFigures> {
        let wanted = format!("{} target {}", name_of(database), target + 1);
        self.proxies.iter().find(|(name, _)| *name == wanted).map(|(_, figures)| figures)
    }

    fn connection_group(
        &self,
        (group, container): (u32, &str),
        targets: &[Option<&ProxyFigures>],
        out: &mut Vec<Entry>,
    ) {
        let connections: Vec<Vec<&OpenConnection>> = targets
            .iter()
            .map(|figures| {
                let all = figures.iter().flat_map(|figures| figures.connections.values());
                all.filter(|connection| connection.place == group).collect()
            })
            .collect();
        let name = format!("Connection Group {}", group + 1);
        let dn = format!("cn={name},{container}");
        let pending: usize = connections.iter().flatten().map(|connection| connection.under_way).sum();
        out.push(
            self.object(&dn, &name, "olmAsyncmetaConnectionGroup", true)
                .one("olmCGID", (group + 1).to_string())
                .one("olmCGPendingOps", pending.to_string())
                .build(),
        );
        for (number, held) in connections.iter().enumerate() {
            let name = format!("Target Connection {}", number + 1);
            let entry = self.object(&format!("cn={name},{dn}"), &name, "olmAsyncmetaTargetConnection", false);
            out.push(self.target_connection(entry, held).build());
        }
    }

    /// One of each identity, if several have one in this place: the attributes that have one value say the latest.
    fn target_connection<'s>(&self, entry: Builder<'s>, held: &[&OpenConnection]) -> Builder<'s> {
        let latest = |of: fn(&OpenConnection) -> Option<Duration>| {
            self.seconds(held.iter().filter_map(|connection| of(connection)).max())
        };
        let established = latest(|connection| Some(connection.established));
        let flags: Vec<String> = match held {
            [] => vec!["closed".to_owned()],
            held => held.iter().map(|connection| flags(connection)).collect(),
        };
        entry
            .one("olmTargetConnLastUseTime", latest(|connection| connection.used))
            .one("olmTargetConnBoundTime", established.clone())
            .one("olmTargetConnResultTime", latest(|connection| connection.answered))
            .add("olmTargetConnFlags", flags)
            .add("olmTargetConnURI", held.iter().map(|connection| connection.url.clone()))
            .add("olmTargetConnPeerAddress", held.iter().filter_map(|connection| connection.peer.clone()))
            .one("olmTargetConnEstablishedTime", established)
    }

    fn target(&self, (number, container): (usize, &str), figures: &ProxyFigures) -> Entry {
        let name = format!("Target {}", number + 1);
        let urls = figures.targets.iter().map(|target| target.url.clone());
        let is_left_out = !figures.targets.iter().any(|target| target.is_up);
        self.object(&format!("cn={name},{container}"), &name, "olmAsyncmetaTarget", false)
            .one("olmTgtURIList", urls.collect::<Vec<_>>().join(" "))
            .one("olmTgtQuarantined", truth(is_left_out))
            .one("olmTgtConnLastReset", self.seconds(figures.last_end))
            .one("olmTgtTimeoutOps", figures.late.to_string())
            .add("monitoredInfo", figures.targets.iter().map(described))
            .build()
    }

    /// A moment of the monotonic clock as seconds of the other one; 0 for none.
    fn seconds(&self, moment: Option<Duration>) -> String {
        let Some(moment) = moment else { return "0".to_owned() };
        let ago = Duration::from_nanos(self.monotonic.0).saturating_sub(moment);
        let micros = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        (self.now.0.saturating_sub_unsigned(micros) / 1_000_000).to_string()
    }
}

fn flags(connection: &OpenConnection) -> String {
    let own = FLAGS.into_iter().filter(|flag| connection.flags.contains(flag));
    let state = ["initialized"].into_iter().chain(connection.is_closing.then_some("closing"));
    own.chain(state).collect::<Vec<_>>().join(",")
}

/// A server of a target, and its checks: in one value, because a target may have several.
fn described(target: &TargetState) -> String {
    format!("{} {}", target.url, state_of(target).join(" "))
}
