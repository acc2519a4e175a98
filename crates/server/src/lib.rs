//! Everything with a socket, a thread or a signal: listeners, per-core workers, connections, logs.
//!
//! The way of a request: [`listener`] binds, the acceptor gives each connection to a worker, which reads;
//! `connection` cuts the bytes into requests (no I/O in it), `session` knows the requester, `dispatch` hands the
//! request to the `databases`, and the answer goes back the same way in one write.

mod acceptor;
mod access_log;
mod admin;
mod admission;
mod ahead;
mod aside;
mod backends;
mod background_pool;
pub mod backup;
pub mod balancer;
pub mod clock;
#[cfg(feature = "kv")]
pub mod cluster;
#[cfg(not(feature = "kv"))]
#[path = "cluster/absent.rs"]
pub mod cluster;
mod configuration_queue;
mod connection;
mod consumer_database;
mod consumers;
pub mod daemon;
mod databases;
mod decoy;
mod dispatch;
pub mod generated_password;
mod generation;
pub mod hardening;
mod harness;
mod host_names;
pub mod http;
mod input;
mod layers;
pub mod ldif_tree;
pub mod listener;
mod live;
pub mod local;
pub mod log;
mod loops;
mod low_priority;
mod operation_log;
mod operation_rules;
mod overlay_threads;
mod panics;
mod password_pool;
mod processor_time;
mod proxies;
mod proxy_header;
mod replication;
mod resolver;
mod restrictions;
pub mod sasl;
mod sasl_mechanisms;
mod saslauthd;
pub mod secrets;
mod security_layer;
mod server;
mod services;
mod session;
mod startup;
mod statistics;
mod stream;
mod thread_pool;
pub mod tls;
pub mod tool_socket;
mod traces;
mod upkeep;
mod virtual_entries;
mod waiting_thread;
mod watchdog;
mod worker;

pub use ahead::unusable_later;
pub use backends::config_entries_matching;
pub use services::cores;
pub use startup::{BoundServer, ServeError, ServeOptions, run};

/// The engines of `database kv`, by the names of their features, and whether this build has them.
pub const ENGINES: [(&str, bool); 2] =
    [("postgresql", cfg!(feature = "postgresql")), ("etcd", cfg!(feature = "etcd"))];

/// The server's name and version, as monitoring and the log show it.
pub fn version() -> String {
    format!("Larix: slapd {}", env!("CARGO_PKG_VERSION"))
}
