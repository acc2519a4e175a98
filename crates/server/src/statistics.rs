//! Counters that cn=Monitor shows. Each worker counts on cache lines of its own; a reader adds them up.

pub(crate) mod latency;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use larix_engine::histogram::Durations;
use larix_engine::time::{Monotonic, Timestamp};
use larix_proto::ResultCode;

use crate::admission::Admitted;
use crate::listener::Listener;
use latency::Latencies;

/// The first connection's number; OpenLDAP counts from here.
pub(crate) const FIRST_CONNECTION: u64 = 1000;

/// The kinds of operations, in the order in which cn=Operations lists them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Bind,
    Unbind,
    Search,
    Compare,
    Modify,
    ModifyDn,
    Add,
    Delete,
    Abandon,
    Extended,
}

impl OperationKind {
    /// Whether such an operation changes something, or may.
    pub(crate) const fn is_change(self) -> bool {
        matches!(self, Self::Modify | Self::ModifyDn | Self::Add | Self::Delete | Self::Extended)
    }

    /// All of them, with the name that cn=Operations gives each.
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Bind, "Bind"),
        (Self::Unbind, "Unbind"),
        (Self::Search, "Search"),
        (Self::Compare, "Compare"),
        (Self::Modify, "Modify"),
        (Self::ModifyDn, "Modrdn"),
        (Self::Add, "Add"),
        (Self::Delete, "Delete"),
        (Self::Abandon, "Abandon"),
        (Self::Extended, "Extended"),
    ];

    /// Whether clients get an answer to it.
    pub(crate) fn is_answered(self) -> bool {
        !matches!(self, Self::Unbind | Self::Abandon)
    }
}

/// Limits that end or refuse a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    Size,
    Time,
    Administrative,
    /// Too much waits, for the writer or for passwords to be hashed.
    Busy,
    /// A message that is too large, or no LDAP.
    Message,
}

impl LimitReached {
    /// All of them, with the name that cn=Limits gives each.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::Size, "Size"),
        (Self::Time, "Time"),
        (Self::Administrative, "Administrative"),
        (Self::Busy, "Busy"),
        (Self::Message, "Message"),
    ];

    fn of(code: ResultCode) -> Option<Self> {
        match code {
            ResultCode::SIZE_LIMIT_EXCEEDED => Some(Self::Size),
            ResultCode::TIME_LIMIT_EXCEEDED => Some(Self::Time),
            ResultCode::ADMIN_LIMIT_EXCEEDED => Some(Self::Administrative),
            ResultCode::BUSY => Some(Self::Busy),
            _ => None,
        }
    }
}

/// What one worker counts. Aligned so that no two workers write to one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    initiated: [AtomicU64; OperationKind::ALL.len()],
    completed: [AtomicU64; OperationKind::ALL.len()],
    latencies: Latencies,
    limits: [AtomicU64; LimitReached::ALL.len()],
    pub bytes_sent: AtomicU64,
    pub pdus_sent: AtomicU64,
    pub entries_sent: AtomicU64,
    pub references_sent: AtomicU64,
}

impl Counters {
    pub(crate) fn initiate(&self, kind: OperationKind) {
        self.initiated.get(kind as usize).into_iter().for_each(|counter| add(counter, 1));
    }

    pub(crate) fn complete(&self, kind: OperationKind) {
        self.completed.get(kind as usize).into_iter().for_each(|counter| add(counter, 1));
    }

    /// How long an operation took from the arrival of its request, in nanoseconds.
    /// `database`: the instance of the database that it was in, 0 for none.
    pub(crate) fn took(&self, kind: OperationKind, database: u64, nanoseconds: u64) {
        self.latencies.record(kind, database, nanoseconds);
    }

    /// Notes a result that tells of a limit.
    pub(crate) fn ended_with(&self, code: ResultCode) {
        if let Some(limit) = LimitReached::of(code) {
            self.reached(limit);
        }
    }

    pub(crate) fn reached(&self, limit: LimitReached) {
        self.limits.get(limit as usize).into_iter().for_each(|counter| add(counter, 1));
    }

    fn initiated(&self, kind: OperationKind) -> u64 {
        self.initiated.get(kind as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }

    fn completed(&self, kind: OperationKind) -> u64 {
        self.completed.get(kind as usize).map_or(0, |n| n.load(Ordering::Relaxed))
    }
}

/// Adds to a counter that one thread writes and others only read: no instruction has to lock it.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// What is known of a listener once it is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenerInfo {
    pub url: String,
    /// `IP=127.0.0.1:389` or `PATH=/run/ldapi`.
    pub name: String,
}

impl ListenerInfo {
    /// Whether TLS begins with the first byte.
    pub(crate) fn is_tls(&self) -> bool {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        scheme.eq_ignore_ascii_case("ldaps") || scheme.eq_ignore_ascii_case("pldaps")
    }
}

impl From<&Listener> for ListenerInfo {
    fn from(listener: &Listener) -> Self {
        Self { url: listener.url.clone(), name: listener.name.clone() }
    }
}

/// One connection as cn=Connections shows it.
#[derive(Debug)]
pub(crate) struct ConnectionRecord {
    /// `conn=` in the log.
    pub number: u64,
    /// `fd=` in the log.
    pub descriptor: i32,
    pub listener: Arc<ListenerInfo>,
    /// As in the log: `IP=127.0.0.1:50000` or `PATH=/run/ldapi`.
    pub peer: String,
    pub started: Timestamp,
    /// By the monotonic clock, in nanoseconds.
    pub last_activity: AtomicU64,
    pub protocol: AtomicU8,
    pub operations_received: AtomicU64,
    pub operations_completed: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    identity: Mutex<String>,
    /// What TLS was agreed on: `TLSv1.3 TLS_AES_256_GCM_SHA384`.
    pub secured: OnceLock<String>,
    /// Its place among the connections; none in a server without sockets.
    pub admitted: Option<Admitted>,
}

impl ConnectionRecord {
    pub(crate) fn new(
        number: u64,
        descriptor: i32,
        listener: Arc<ListenerInfo>,
        peer: String,
        (started, since): (Timestamp, Monotonic),
    ) -> Self {
        Self {
            number,
            descriptor,
            listener,
            peer,
            started,
            last_activity: AtomicU64::new(since.0),
            protocol: AtomicU8::new(3),
            operations_received: AtomicU64::new(0),
            operations_completed: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            identity: Mutex::new(String::new()),
            secured: OnceLock::new(),
            admitted: None,
        }
    }

    /// The DN bound as; empty when anonymous.
    pub(crate) fn identity(&self) -> String {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_identity(&self, dn: &str) {
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        identity.clear();
        identity.push_str(dn);
    }
}

/// Threads that start requests which look up identities in databases of other machines.
pub(crate) const LOOKUP_THREADS: usize = 8;

/// All that is counted.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub started: Timestamp,
    pub listeners: Vec<Arc<ListenerInfo>>,
    workers: Vec<Arc<Counters>>,
    /// Of other threads that start requests: as many of low priority, and behind them those that wait for other machines.
    aside: Vec<Arc<Counters>>,
    total_connections: AtomicU64,
    connections: Mutex<BTreeMap<u64, Arc<ConnectionRecord>>>,
}

impl Statistics {
    pub(crate) fn new(started: Timestamp, listeners: Vec<Arc<ListenerInfo>>, workers: usize) -> Self {
        Self {
            started,
            listeners,
            workers: (0..workers).map(|_| Arc::default()).collect(),
            aside: (0..workers + LOOKUP_THREADS).map(|_| Arc::default()).collect(),
            total_connections: AtomicU64::new(0),
            connections: Mutex::default(),
        }
    }

    /// The counters of one worker; a spare set for a worker that is not there.
    pub(crate) fn worker(&self, index: usize) -> Arc<Counters> {
        self.workers.get(index).cloned().unwrap_or_default()
    }

    /// The counters of one thread of low priority.
    pub(crate) fn aside(&self, index: usize) -> Arc<Counters> {
        self.aside.get(index).cloned().unwrap_or_default()
    }

    /// The counters of one thread that waits for other machines.
    pub(crate) fn of_lookups(&self, index: usize) -> Arc<Counters> {
        self.aside(self.workers.len() + index)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Counters>> {
        self.workers.iter().chain(&self.aside)
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The next connection's number.
    pub(crate) fn next_connection(&self) -> u64 {
        FIRST_CONNECTION + self.total_connections.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn opened(&self, record: Arc<ConnectionRecord>) {
        self.table().insert(record.number, record);
    }

    pub(crate) fn closed(&self, number: u64) {
        self.table().remove(&number);
    }

    /// The connections that are open, by number.
    pub(crate) fn connections(&self) -> Vec<Arc<ConnectionRecord>> {
        self.table().values().cloned().collect()
    }

    pub(crate) fn current_connections(&self) -> usize {
        self.table().len()
    }

    pub(crate) fn total_connections(&self) -> u64 {
        self.total_connections.load(Ordering::Relaxed)
    }

    pub(crate) fn initiated(&self, kind: OperationKind) -> u64 {
        self.all().map(|w| w.initiated(kind)).sum()
    }

    pub(crate) fn completed(&self, kind: OperationKind) -> u64 {
        self.all().map(|w| w.completed(kind)).sum()
    }

    /// How long operations of a kind took, of all workers.
    pub(crate) fn latency(&self, kind: OperationKind) -> Durations {
        let mut sums = Durations::default();
        self.all().for_each(|worker| worker.latencies.add_to(kind, &mut sums));
        sums
    }

    /// The same of one database, by its instance.
    pub(crate) fn latency_of_database(&self, instance: u64, kind: OperationKind) -> Durations {
        let mut sums = Durations::default();
        self.all().for_each(|worker| worker.latencies.add_database_to(instance, kind, &mut sums));
        sums
    }

    /// How often a limit was reached.
    pub(crate) fn limit_reached(&self, limit: LimitReached) -> u64 {
        let counters = self.all().filter_map(|worker| worker.limits.get(limit as usize));
        counters.map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// Sums one counter over the workers.
    pub(crate) fn sum(&self, counter: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        self.all().map(|w| counter(w).load(Ordering::Relaxed)).sum()
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ConnectionRecord>>> {
        // A map of handles is whole after any panic.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
