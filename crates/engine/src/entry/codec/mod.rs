//! Records as they are stored and as they are read: packed ones are unpacked into a buffer of the thread.

mod scratch;

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use larix_store::Snapshot;
use scratch::Scratch;

use super::EntryId;
use crate::fault::Fault;

/// A record to be read in place: as it lies in the store, or unpacked.
pub struct Record<'a>(Content<'a>);

enum Content<'a> {
    Stored(Cow<'a, [u8]>),
    /// Filled by unpacking.
    #[allow(dead_code)]
    Unpacked(Scratch),
}

impl<'a> Record<'a> {
    pub(super) fn stored(bytes: Cow<'a, [u8]>) -> Self {
        Self(Content::Stored(bytes))
    }
}

impl Deref for Record<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Stored(bytes) => bytes,
            Content::Unpacked(scratch) => scratch,
        }
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Record").field(&self.len()).finish()
    }
}

/// What packed records of a database are unpacked with.
#[derive(Clone, Debug, Default)]
pub struct Dictionaries {}

impl Dictionaries {
    /// A stored record, ready to be read.
    pub fn unpacked<'a>(
        &self,
        _snapshot: &impl Snapshot,
        _id: EntryId,
        stored: Cow<'a, [u8]>,
    ) -> Result<Record<'a>, Fault> {
        Ok(Record::stored(stored))
    }
}
