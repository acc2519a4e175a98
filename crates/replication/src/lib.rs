//! Content synchronisation (RFC 4533) and persistent searches, as state machines without I/O.
//!
//! What replication stands on is the engine's: a change sequence number for every change, the contextCSN of each server, and
//! the change log in the change's own transaction. Here is what a provider and a consumer make of it.

pub mod consumer;
mod cookie;
pub mod delta;
pub mod digest;
pub mod dirsync;
pub mod persistent;
pub mod provider;
pub mod push;
mod requests;

pub use cookie::{Content, Cookie, CookieError, RID_MAX, SID_MAX};
pub use requests::{CONFLICTS_OID, ConflictsRequest, RETIRE_OID, RetireRequest};
