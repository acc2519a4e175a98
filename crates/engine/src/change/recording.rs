//! Entries that the server writes into the database of an access log.

use larix_schema::NormalDn;

use crate::csn::Csn;
use crate::entry::{Entry, EntryAttribute, EntryId};
use crate::time::Timestamp;

/// What one commit brings into the database of an access log.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Of the database.
    pub suffix: NormalDn,
    /// The suffix as it is shown.
    pub suffix_text: String,
    /// Added as the suffix's entry unless there is one.
    pub container: Option<Entry>,
    /// In the order in which they are added.
    pub records: Vec<NewRecord>,
    /// Records that are too old.
    pub removed: Vec<EntryId>,
    /// The values of minCSN from now on; `None`: as they are.
    pub min_csns: Option<Vec<Csn>>,
    /// How far the log has come, which raises what the records themselves say of this server's changes; those that are known
    /// to be later stay. Others' changes may come in any order: of these nothing but this says that all are there.
    pub context_csns: Vec<Csn>,
    /// Servers that were retired where it is recorded, with how far they had come.
    pub retired: Vec<Csn>,
    /// Rows of the table `meta`.
    pub marks: Vec<(Vec<u8>, Vec<u8>)>,
    /// A row of the table `meta` that has to be as it is said here, `None`: not there, or nothing is recorded. Where several servers share
    /// the store, another one may have recorded the same meanwhile.
    pub expected: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Recording {
    /// Nothing, yet.
    pub fn new(suffix: NormalDn, suffix_text: String) -> Self {
        Self {
            suffix,
            suffix_text,
            container: None,
            records: Vec::new(),
            removed: Vec::new(),
            min_csns: None,
            context_csns: Vec::new(),
            retired: Vec::new(),
            marks: Vec::new(),
            expected: None,
        }
    }

    /// Whether there is anything to commit.
    pub fn is_empty(&self) -> bool {
        self.container.is_none()
            && self.records.is_empty()
            && self.removed.is_empty()
            && self.min_csns.is_none()
            && self.retired.is_empty()
            && self.context_csns.is_empty()
            && self.marks.is_empty()
    }
}

/// One record of the access log.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// When the operation began: the record's name. If that is taken, the next microsecond that is free.
    pub start: Timestamp,
    /// Everything but the operational attributes that every entry has; reqStart without values.
    pub attributes: Vec<EntryAttribute>,
    /// Of the change that it tells of; `None`: it concerns this server alone, and is not sent to replicas.
    pub csn: Option<Csn>,
}
