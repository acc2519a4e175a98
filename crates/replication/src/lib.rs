//! Content synchronisation (RFC 4533) as state machines without I/O.
//!
//! What replication stands on is the engine's: a change sequence number for every change, the contextCSN of each server, and
//! the change log in the change's own transaction. Here is what a provider and a consumer make of it.

pub mod consumer;
mod cookie;
pub mod delta;
pub mod digest;
pub mod provider;

pub use cookie::{Cookie, CookieError, RID_MAX, SID_MAX};

/// The extended operation that removes the contextCSN of a server that is gone.
pub const RETIRE_OID: &str = "2.25.87610412117718157885716886434399491440.2.2";

/// The extended operation that lists what lost in conflicts.
pub const CONFLICTS_OID: &str = "2.25.87610412117718157885716886434399491440.2.3";
