//! A store that several machines share, on an engine that somebody else runs: PostgreSQL or etcd.
//!
//! [`KvStore`] is a [`larix_store::Store`]. The engine keeps rows in the order of their keys. Every commit has a number one above the
//! last, which is the fence: the engine lets one writer in, and commits of a later epoch ([`KvStore::take_over`]) keep the writers of
//! earlier ones out for good. The answer to a commit may be lost, and the engine then tells what became of it.
//!
//! Reads go through a cache of records, absent keys and gaps. It is validated, not leased: the first question of a view brings the
//! newest commits with the keys that they changed, in the same round trip.

#[cfg(not(any(feature = "postgresql", feature = "etcd")))]
compile_error!("a store needs an engine: build with the feature postgresql or etcd");

mod address;
mod cache;
mod changes;
mod commit;
mod engine;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod expectation;
mod feed;
mod handle;
mod lease;
mod load;
mod messages;
#[cfg(feature = "postgresql")]
mod postgresql;
mod presence;
mod read_faults;
mod room;
mod runtime;
mod schema;
mod store;
mod tls;
mod view;

pub use address::Address;
pub use commit::KvTransaction;
pub use engine::{Holding, Message, NODE_BYTES_MAX, Recipient, RemovedNode, Said, Session};
pub use error::OpenError;
pub use feed::CommitFeed;
pub use lease::Lease;
pub use load::KvLoader;
pub use messages::Mailbox;
pub use read_faults::{ReadFault, take_read_fault};
pub use schema::{FORMAT, NAME_BYTES_MAX, check_name as check_schema_name};
pub use store::{Figures, Freshness, KvOptions, KvStore};
pub use view::{KvRecords, KvSnapshot};
