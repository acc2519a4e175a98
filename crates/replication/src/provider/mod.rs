//! The provider's side of content synchronisation (RFC 4533), for consumers that speak as OpenLDAP's do.
//!
//! A [`SyncSearch`] is one consumer's search: a refresh, then, if that was asked for, every change. It goes on in slices, each
//! with snapshots of its own; between them it knows a place in the change log and nothing that would grow with the
//! database, but for a bit an entry where the consumer sees a part of the content, and [`ENTRIES_MAX`] entries that have changed
//! in a refresh from the log.

mod decide;
mod follow;
mod held_back;
mod passes;
mod peers;
mod proof;
mod queue;
mod refresh;
mod session;
mod tombstones;

pub use decide::{ConsumerRequest, Decision, decide};
pub use passes::ENTRIES_MAX;
pub use peers::{Behind, SyncPeer, SyncPeerFigures, SyncPeers};
pub use queue::{REFRESHES_MAX, RefreshQueue};
pub use session::{ConsumerProgress, SliceOutcome, Start, SyncSearch};
