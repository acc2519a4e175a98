//! Changes: from a request to a commit.
//!
//! A request is [prepared](prepare) on the caller's thread (names resolved, values checked), then waits in the queue of
//! its database's [writer](crate::writer), which carries it out on a view of everything before it: [`add`], [`modify`],
//! [`delete`], [`modify_dn`].

pub(crate) mod add;
pub(crate) mod authority;
pub(crate) mod back_link_walk;
mod back_links;
pub mod change;
mod checked_classes;
pub(crate) mod delete;
mod disclosure;
pub(crate) mod entry_state;
mod environment;
mod forwarding;
pub(crate) mod group;
pub(crate) mod index_work;
pub mod known;
pub(crate) mod modify;
mod modify_dn;
pub mod operational;
pub(crate) mod operator;
mod patched;
pub(crate) mod prepared_sets;
pub(crate) mod read_controls;
mod recording;
pub mod replay;
mod replicated;
pub(crate) mod request;
mod retiring;
pub mod schema_check;
pub(crate) mod task;
pub(crate) mod training;

pub use crate::change::prepare::{Latitude, MANAGEABLE, prepare};
pub(crate) use crate::change::values;
pub use crate::change::{AttributeValues, Forward, Modification, NewRecord, Recording, WriteOperation};
pub use crate::figures::WriteFigures;
pub use crate::search::REFERENCES_LIMIT;
pub use back_links::BACK_LINKS_LIMIT;
pub use environment::WriterEnvironment;
pub use index_work::{IndexNotice, IndexWatch};
pub use known::KnownSchema;
pub use request::{Completion, Origin, WriteOutcome, WriteRequest};
pub use retiring::RetiringDefinitions;

use crate::entry::split_rdn;

/// The DN above this one, as it is shown; empty above the last RDN.
pub(crate) fn superior_of(dn: &str) -> &str {
    split_rdn(dn).1
}
