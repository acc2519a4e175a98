//! Replication: each consumer below its database, in OpenLDAP's words, and cn=Replication,cn=Larix with the rest.

use larix_configuration::Database;
use larix_engine::csn::Csn;
use larix_engine::entry::Entry;
use larix_engine::time::Timestamp;
use larix_replication::consumer::{ConsumerPhase, ConsumerStatus};
use larix_replication::provider::SyncPeerFigures;

use super::{DN, Monitor};

/// OpenLDAP's time for never.
const NEVER: &str = "00000101000000Z";
const NAME: &str = "Replication";

impl Monitor<'_> {
    /// The consumers of a database, as OpenLDAP shows them.
    pub(super) fn consumers_of(&self, n: usize, database: &Database) -> Vec<Entry> {
        let Some(suffix) = database.suffixes.first() else { return Vec::new() };
        let own = self.consumers.iter().filter(|consumer| consumer.suffix == suffix.text);
        own.map(|consumer| self.consumer(n, consumer)).collect()
    }

    fn consumer(&self, n: usize, consumer: &ConsumerStatus) -> Entry {
        let name = format!("Consumer {:03}", consumer.rid);
        let dn = format!("cn={name},cn=Database {n},cn=Databases,{DN}");
        let time = |time: Option<Timestamp>| time.map_or_else(|| NEVER.to_owned(), Timestamp::generalized);
        let phase = if consumer.phase == ConsumerPhase::Persisting { "Persist" } else { "Refresh" };
        let connection = consumer.local.map(|address| format!("IP={address}")).unwrap_or_default();
        self.object(&dn, &name, "olmSyncReplInstance", false)
            .add("olmSRProviderURIList", consumer.providers.clone())
            .one("olmSRConnection", connection)
            .one("olmSRSyncPhase", phase)
            .one("olmSRNextConnect", time(consumer.next_connect.filter(|_| consumer.local.is_none())))
            .one("olmSRLastConnect", time(consumer.last_connect))
            .one("olmSRLastContact", time(consumer.last_contact))
            .one("olmSRLastCookieRcvd", consumer.cookie_received.clone().unwrap_or_default())
            .one("olmSRLastCookieSent", consumer.cookie_sent.clone().unwrap_or_default())
            .build()
    }

    pub(super) fn replication(&self, out: &mut Vec<Entry>) {
        let about = "What databases follow (Consumer), and who follows this server (Peer).";
        out.push(self.own_container(NAME, about).build());
        for consumer in &self.consumers {
            let name = format!("Consumer {:03}", consumer.rid);
            let words = self.consumer_words(consumer);
            let built = self.own_child(NAME, &name).one("namingContexts", consumer.suffix.clone());
            out.push(built.add("monitoredInfo", words).build());
        }
        for (n, peer) in self.peers.iter().enumerate() {
            let built = self.own_child(NAME, &format!("Peer {n}")).one("namingContexts", peer.base.clone());
            out.push(built.add("monitoredInfo", peer_words(peer)).build());
        }
    }

    fn consumer_words(&self, consumer: &ConsumerStatus) -> Vec<String> {
        let counts = &consumer.counts;
        let mut words = vec![
            format!("phase={}", consumer.phase.name()),
            format!("refreshed={}", consumer.refreshed),
            format!("silence_us={}", consumer.silence(self.now, self.statistics.started)),
            format!("applied={}", counts.applied),
            format!("older={}", counts.older),
            format!("conflicts={}", counts.conflicts),
            format!("refused={}", counts.refused),
            format!("absent={}", counts.absent),
            format!("ahead={}", counts.ahead),
        ];
        words.extend(consumer.ahead.map(|(of, ahead)| format!("clock_ahead_us={ahead} sid={of:03x}")));
        words.extend(consumer.last_delay.map(|delay| format!("delay_us={delay}")));
        words.extend(consumer.last_change.map(|time| format!("last_change={}", time.generalized_micros())));
        words.extend(consumer.error.as_ref().map(|error| format!("error={error}")));
        words
    }
}

fn peer_words(peer: &SyncPeerFigures) -> Vec<String> {
    let csns: Vec<String> = peer.csns.iter().map(Csn::text).collect();
    vec![
        format!("rid={:03}", peer.rid),
        format!("address={}", peer.address),
        format!("identity={}", peer.identity),
        format!("since={}", peer.since.generalized()),
        format!("phase={}", peer.phase),
        format!("csn={}", csns.join(";")),
        format!("log_position={}", peer.position),
        format!("behind_changes={}", peer.behind),
        format!("behind_us={}", peer.behind_micros),
    ]
}
