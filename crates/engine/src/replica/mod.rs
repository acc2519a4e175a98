//! What a replication consumer writes: changes that other servers made, through the database's one writer.
//!
//! **A replicated change is what it was where it was made**: no access rule, password policy, hash or stamp of this server
//! touches it. It is logged here like any other, in local order, with the CSN that it came with. What speaks against it (a
//! newer change, a name that is taken, a delete) is settled by rules that give the same on every server
//! (`docs/adr/0025-replicated-changes-and-conflicts.md`).

mod apply;
mod conflicts;
mod decided;
mod delete;
mod delta;
mod difference;
mod names;
mod place;
mod prepare;
mod put;
mod request;
mod resolve;
mod settle;
mod steps;
mod uuids;
pub(crate) mod value;

pub use crate::log::EntryPlace;
use crate::replica_state as state;
pub use crate::replica_state::{ENTRY_PLACE_OID, EntryPlaces};
pub(crate) use apply::ReplicatedJob;
pub(crate) use conflicts::is_conflict;
pub use conflicts::{CONFLICTS_MAX, ConflictRecord, LOST_BYTES_MAX, conflicts, last_conflict};
pub(crate) use prepare::{Ready, is_elsewhere, prepare};
pub(crate) use state::check;
pub use state::is_computed;
pub use state::{ReplicaRows, deletes_after, entry_of};

pub use request::{
    ApplyOutcome, AttributeShare, ConflictKind, ConflictNote, DeleteCompletion, DeleteLimit, DeleteOutcome,
    KeptSide, ReplicaRules, ReplicatedBatch, ReplicatedChange, ReplicatedCompletion, ReplicatedOutcome,
    ReplicatedPart, Share,
};
pub use state::{ENTRY_STATE_OID, VALUE_MODE_OID, state_of};
pub use uuids::UuidSet;
