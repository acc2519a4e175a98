//! Databases that other LDAP servers have (slapd-ldap(5)): a [`Proxy`] holds the connections to the targets of one database, a
//! [`ProxyBackend`] answers requests with them.
//!
//! One thread a database reads all answers and waits for nobody; a request goes out on the thread that brings it if it can. Both pass
//! as bytes. Connections are shared by identity, with many requests under way on each.
//!
//! *Invariant:* no thread waits for a target, and what a target does wrong ends its own connection.

mod absolute;
mod backend;
mod batch;
pub mod blocking;
pub mod chain;
mod connection;
mod cookie;
mod identity;
mod job;
mod lookup;
mod open;
mod pages;
pub mod pcache;
mod proxy;
pub mod remote_auth;
mod request;
mod search;
pub mod settings;
mod shared;
pub mod sock;
mod targets;
mod thread;
pub mod translucent;

pub use backend::ProxyBackend;
pub use batch::{gather_requests, send_gathered};
pub use open::OpenConnection;
pub use proxy::{Proxy, ProxyFigures, Surroundings};
pub use request::HOPS_MAX;
pub use settings::ProxySettings;
pub use shared::{Counts, TargetState};
