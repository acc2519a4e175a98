//! What a reader is about to ask for: a store that is a round trip away fetches all of it at once.
//!
//! It changes no answer. What was not wanted ahead is fetched when it is read.

use std::fmt;
use std::sync::Arc;

use crate::table::{KeyRange, TableId};

/// Bytes of an id that a value of a [`Path`] begins with.
pub const ID_BYTES: usize = 8;

/// Something that will be read.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// The record of a key.
    Record {
        table: TableId,
        key: Vec<u8>,
    },
    /// A posting list: its first block, and how many ids it has.
    List {
        table: TableId,
        key: Vec<u8>,
    },
    /// The first records of a range.
    Range {
        table: TableId,
        range: KeyRange<'static>,
    },
    Path(Path),
}

/// Records that lead from one to the next: the key of each is the id that the value before begins with, and the next step. The
/// records that have these ids as their keys, in another table, come along.
#[derive(Clone, Debug)]
pub struct Path {
    pub table: TableId,
    /// The table of the records with the ids.
    pub records: TableId,
    /// The id that the key of the first one begins with.
    pub from: [u8; ID_BYTES],
    pub steps: Vec<Vec<u8>>,
    /// Where to guess the ids of later steps, for a store that learns one step in each round trip.
    pub guesses: Option<Arc<dyn StepLists>>,
}

/// Posting lists that have the ids which steps of a [`Path`] lead to.
pub trait StepLists: fmt::Debug + Send + Sync {
    /// A list that has the id of each record that a step with these bytes leads to, whatever record it starts from; none if there is no
    /// such list. An id of the list may as well be of something else.
    fn list(&self, step: &[u8]) -> Option<(TableId, Vec<u8>)>;
}
