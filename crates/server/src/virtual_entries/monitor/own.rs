//! cn=Larix,cn=Monitor: what OpenLDAP's monitor does not tell. Counters are `monitorCounter`, all else is `monitoredInfo`
//! in words `name=value`.

use std::sync::atomic::Ordering;

use larix_engine::budget::RequestLimit;
use larix_engine::entry::Entry;
use larix_engine::histogram::Durations;
use larix_engine::index::IndexStatus;
use larix_engine::time::Timestamp;

use super::{BackupStatus, Builder, DN, DatabaseFigures, Monitor};
use crate::panics;
use crate::statistics::{LimitReached, OperationKind};

const NAME: &str = "Larix";
/// Shapes of searches without an index that are shown.
const SHAPES_SHOWN: usize = 50;
const NANOS_A_MICROSECOND: u64 = 1_000;

impl Monitor<'_> {
    pub(super) fn own(&self, out: &mut Vec<Entry>) {
        let about = "This subtree contains what Larix tells beside OpenLDAP's monitor.";
        out.push(self.container(NAME, about, true).build());
        self.latencies(out);
        self.clients(out);
        self.limits(out);
        self.queues(out);
        self.bugs(out);
        self.scheduled_backups(out);
        self.own_databases(out);
        self.replication(out);
        #[cfg(feature = "kv")]
        self.cluster_nodes(out);
    }

    fn latencies(&self, out: &mut Vec<Entry>) {
        let about = "Microseconds from the arrival of a request to its answer, by operation.";
        out.push(self.own_container("Latency", about).build());
        for (kind, name) in OperationKind::ALL.into_iter().filter(|(kind, _)| kind.is_answered()) {
            let figures = self.statistics.latency(kind);
            out.push(self.own_child("Latency", name).add("monitoredInfo", percentiles(&figures)).build());
        }
    }

    fn clients(&self, out: &mut Vec<Entry>) {
        out.push(self.own_container("Connections", "Connections beyond OpenLDAP's counters.").build());
        let refused = self.admission.refused();
        for (name, count) in [
            ("Max", self.admission.connections_max() as u64),
            ("Refused", refused.connections.load(Ordering::Relaxed)),
            ("Refused Operations", refused.operations.load(Ordering::Relaxed)),
            ("Refused Binds", refused.binds.load(Ordering::Relaxed)),
        ] {
            out.push(self.own_counter("Connections", name, count));
        }
        out.push(self.own_container("TLS", "TLS handshakes.").build());
        for (name, count) in [
            ("Established", &self.tls.established),
            ("Resumed", &self.tls.resumed),
            ("Failed", &self.tls.failed),
        ] {
            out.push(self.own_counter("TLS", name, count.load(Ordering::Relaxed)));
        }
    }

    fn limits(&self, out: &mut Vec<Entry>) {
        let limits = &self.config.global.request_limits;
        let each = RequestLimit::ALL.iter().map(|row| match limits.most(row.limit) {
            u64::MAX => format!("{}=unlimited", row.word),
            most => format!("{}={most}", row.word),
        });
        let about = "How often limits were reached, and what one request may cost.";
        out.push(self.own_container("Limits", about).add("monitoredInfo", each).build());
        for (limit, name) in LimitReached::ALL {
            let count = self.statistics.limit_reached(limit);
            out.push(self.own_counter("Limits", name, count));
        }
    }

    fn queues(&self, out: &mut Vec<Entry>) {
        out.push(self.own_container("Queues", "What waits, and what was dropped.").build());
        for (name, count) in [
            ("Passwords Waiting", self.passwords_waiting as u64),
            ("Long Searches Waiting", self.long_searches_waiting as u64),
            ("Log Bytes Waiting", self.log.waiting() as u64),
            ("Log Lines Dropped", self.log.lost()),
            ("Log Lines Not Written", self.log.unwritten()),
        ] {
            out.push(self.own_counter("Queues", name, count));
        }
    }

    fn bugs(&self, out: &mut Vec<Entry>) {
        out.push(self.own_container("Bugs", "What is ours to mend: the log tells where.").build());
        out.push(self.own_counter("Bugs", "Panics", panics::count()));
    }

    fn scheduled_backups(&self, out: &mut Vec<Entry>) {
        let about = "Backups that the server makes by itself.";
        let info = backups(&self.backups, self.now);
        out.push(self.own_container("Backups", about).add("monitoredInfo", info).build());
    }

    fn own_databases(&self, out: &mut Vec<Entry>) {
        out.push(self.own_container("Databases", "Writers, change logs and indexes.").build());
        for (n, figures) in self.stored.iter().enumerate() {
            let Some(figures) = figures else { continue };
            let name = format!("Database {n}");
            let parent = format!("cn=Databases,cn={NAME},{DN}");
            let dn = format!("cn={name},{parent}");
            out.push(
                self.object(&dn, &name, "monitoredObject", true)
                    .one("namingContexts", figures.suffix.clone())
                    .add("monitoredInfo", database(figures))
                    .build(),
            );
            for (kind, name) in OperationKind::ALL.into_iter().filter(|(kind, _)| kind.is_answered()) {
                let latency = self.statistics.latency_of_database(figures.instance, kind);
                if latency.count() > 0 {
                    let built = self.object(&format!("cn={name},{dn}"), name, "monitoredObject", false);
                    out.push(built.add("monitoredInfo", percentiles(&latency)).build());
                }
            }
            for status in &figures.indexes {
                let name = format!("Index {}", status.attribute);
                let dn = format!("cn={},{dn}", name.replace(';', "\\;"));
                let built = self.object(&dn, &name, "monitoredObject", false);
                out.push(built.add("monitoredInfo", index(status)).build());
            }
            let shapes = figures.not_indexed_shapes.iter().take(SHAPES_SHOWN);
            let shapes = shapes
                .map(|s| format!("searches={} base=\"{}\" filter=\"{}\"", s.searches, s.base, s.filter));
            out.push(
                self.object(&format!("cn=Not Indexed,{dn}"), "Not Indexed", "monitorCounterObject", false)
                    .one("monitorCounter", figures.not_indexed.to_string())
                    .add("monitoredInfo", shapes)
                    .build(),
            );
        }
    }

    pub(super) fn own_container(&self, name: &str, about: &str) -> Builder<'_> {
        let dn = format!("cn={name},cn={NAME},{DN}");
        self.object(&dn, name, "monitorContainer", true).one("description", about)
    }

    pub(super) fn own_child(&self, parent: &str, name: &str) -> Builder<'_> {
        let dn = format!("cn={name},cn={parent},cn={NAME},{DN}");
        self.object(&dn, name, "monitoredObject", false)
    }

    fn own_counter(&self, parent: &str, name: &str, count: u64) -> Entry {
        let dn = format!("cn={name},cn={parent},cn={NAME},{DN}");
        self.object(&dn, name, "monitorCounterObject", false).one("monitorCounter", count.to_string()).build()
    }
}

fn percentiles(figures: &Durations) -> Vec<String> {
    let micros = |nanoseconds: u64| nanoseconds.div_ceil(NANOS_A_MICROSECOND);
    let mut words = vec![format!("count={}", figures.count())];
    if figures.count() > 0 {
        words.push(format!("mean_us={}", micros(figures.nanoseconds / figures.count())));
        for (name, per_mille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p99.9", 999), ("max", 1000)] {
            words.push(format!("{name}_us={}", micros(figures.percentile(per_mille))));
        }
    }
    words
}

fn database(figures: &DatabaseFigures) -> Vec<String> {
    let writes = &figures.writes;
    let commit = |per_mille| writes.commits.percentile(per_mille).div_ceil(NANOS_A_MICROSECOND);
    let mut words = vec![
        format!("changes_waiting={}", figures.writes_waiting),
        format!("sync_failed={}", figures.sync_failed),
        format!("full={}", figures.full),
        format!("groups={}", writes.groups),
        format!("changes={}", writes.changes),
        format!("largest_group={}", writes.largest_group),
        format!("commit_p50_us={}", commit(500)),
        format!("commit_p99_us={}", commit(990)),
        format!("commit_max_us={}", commit(1000)),
        format!("log_first={}", writes.log_first),
        format!("log_last={}", writes.log_last),
    ];
    let time = |name: &str, time: Timestamp| format!("{name}={}", time.generalized());
    let (first, last) = figures.log_times.unzip();
    words.extend(first.map(|first| time("log_first_time", first)));
    words.extend(last.map(|last| time("log_last_time", last)));
    words.extend(figures.store.oldest_read.map(|age| format!("oldest_read_ms={}", age.as_millis())));
    words
}

fn backups(status: &BackupStatus, now: Timestamp) -> Vec<String> {
    let mut words = vec![format!("scheduled={}", status.scheduled)];
    if !status.scheduled {
        return words;
    }
    words.push(format!("running={}", status.running));
    words.push(format!("made={}", status.successes));
    words.push(format!("failed={}", status.failures));
    words.push(format!("bytes={}", status.bytes));
    for (name, time) in [
        ("last_success", status.last_success),
        ("last_full", status.last_full),
        ("covers", status.covers),
        ("next", status.next),
    ] {
        words.extend(time.map(|time| format!("{name}={}", time.generalized())));
    }
    words.extend(status.age(now).map(|seconds| format!("age_seconds={seconds}")));
    if let Some((time, why)) = &status.last_error {
        words.push(format!("error_time={}", time.generalized()));
        words.push(format!("error={why}"));
    }
    words
}

fn index(status: &IndexStatus) -> Vec<String> {
    let mut words = vec![format!("kinds={}", status.kinds), format!("complete={}", status.is_complete())];
    if !status.working.is_empty() {
        words.push(format!("done={}", status.done));
        words.push(format!("total={}", status.total));
        words.push(format!("per_second={}", status.per_second));
        words.extend(status.seconds_left.map(|left| format!("seconds_left={left}")));
    }
    for used in &status.uses {
        let kind = used.kind.name();
        words.push(format!("{kind}_searches={}", used.searches));
        words.push(format!("{kind}_candidates={}", used.candidates));
    }
    words
}
