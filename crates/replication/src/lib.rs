//! Content synchronisation (RFC 4533) as state machines without I/O.
//!
//! What replication stands on is written today by the engine: a change sequence number for every change, the contextCSN of
//! each server, and the change log in the change's own transaction. The provider and the consumer will live here; so far there
//! is the cookie that both exchange.

mod cookie;
pub mod digest;

pub use cookie::{Cookie, CookieError, RID_MAX, SID_MAX};
