//! A store that several machines share, on an engine that somebody else runs: PostgreSQL.
//!
//! [`KvStore`] is a [`larix_store::Store`]. Rows lie in one table of the engine, ordered by key; every commit has a row of its own
//! with a number one above the last, which is the fence: the engine's primary key lets one writer in, and rows of a later
//! epoch ([`KvStore::take_over`]) keep the writers of earlier ones out for good. The answer to a commit may be lost, and its
//! row then tells what became of it.
//!
//! Reads go through a cache of records, absent keys and gaps. It is validated, not leased: the first question of a view brings the
//! newest commits with the keys that they changed, in the same round trip.

mod address;
mod cache;
mod changes;
mod commit;
mod error;
mod handle;
mod lease;
mod link;
mod load;
mod messages;
mod noted;
mod schema;
mod statements;
mod store;
mod tls;
mod view;

pub use address::Address;
pub use commit::KvTransaction;
pub use error::OpenError;
pub use lease::{Lease, NODE_BYTES_MAX, Removed, Session};
pub use load::KvLoader;
pub use messages::{Mailbox, Message, Recipient};
pub use noted::{Noted, take_noted};
pub use schema::{FORMAT, NAME_BYTES_MAX, check_name as check_schema_name};
pub use store::{Figures, Freshness, KvOptions, KvStore};
pub use view::{KvRecords, KvSnapshot};
