//! cn=Connections: those that are open, and how many there were.

use std::sync::atomic::Ordering;

use larix_engine::entry::Entry;
use larix_engine::time::Timestamp;

use super::Monitor;
use crate::statistics::ConnectionRecord;

impl Monitor<'_> {
    pub(super) fn connections(&self, out: &mut Vec<Entry>) {
        let about = "This subsystem contains information about connections.";
        out.push(self.container("Connections", about, true).build());
        let open = self.statistics.connections();
        out.extend(open.iter().map(|record| self.connection(record)));
        for (name, count) in [
            ("Max File Descriptors", self.descriptors),
            ("Total", self.statistics.total_connections()),
            ("Current", open.len() as u64),
        ] {
            out.push(self.counter("Connections", name, count));
        }
    }

    fn connection(&self, record: &ConnectionRecord) -> Entry {
        let received = record.operations_received.load(Ordering::Relaxed);
        let completed = record.operations_completed.load(Ordering::Relaxed);
        let number = |n: u64| n.to_string();
        let idle = self.monotonic.0.saturating_sub(record.last_activity.load(Ordering::Relaxed)) / 1000;
        let secured = record.secured.get().cloned();
        let activity = Timestamp(self.now.0.saturating_sub_unsigned(idle));
        self.child("Connections", &format!("Connection {}", record.number), "monitorConnection")
            .one("monitorConnectionNumber", number(record.number))
            .one("monitorConnectionProtocol", record.protocol.load(Ordering::Relaxed).to_string())
            .one("monitorConnectionOpsReceived", number(received))
            .one("monitorConnectionOpsExecuting", number(received.saturating_sub(completed)))
            .one("monitorConnectionOpsPending", "0")
            .one("monitorConnectionOpsCompleted", number(completed))
            .one("monitorConnectionOpsAsync", "0")
            .one("monitorConnectionGet", number(received))
            .one("monitorConnectionRead", number(record.reads.load(Ordering::Relaxed)))
            .one("monitorConnectionWrite", number(record.writes.load(Ordering::Relaxed)))
            .one("monitorConnectionMask", if secured.is_some() { "rxt" } else { "rx" })
            .add("monitoredInfo", secured)
            .add("monitorConnectionAuthzDN", Some(record.identity()).filter(|dn| !dn.is_empty()))
            .one("monitorConnectionListener", record.listener.url.clone())
            .one("monitorConnectionPeerDomain", "unknown")
            .one("monitorConnectionPeerAddress", record.peer.clone())
            .one("monitorConnectionLocalAddress", record.listener.name.clone())
            .one("monitorConnectionStartTime", record.started.generalized())
            .one("monitorConnectionActivityTime", activity.generalized())
            .build()
    }
}
