//! A snapshot of a database with all that it takes to read it.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::{slice, vec};

use arc_swap::Guard;
use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::facts::CommitFacts;
use super::kept_lists::KeptLists;
use super::{DatabaseState, next_instance};
use crate::catalog::CatalogEdit;
use crate::entry::{EntryId, EntryReader, EntryView, Record};
use crate::fault::Fault;
use crate::index::uses::IndexUses;
use crate::tables::ENTRIES;
use crate::tree::{self, LocatedEntry, Names};

/// A snapshot of a database, and the schema, catalog and settings to read it with.
#[derive(Debug)]
pub struct View<'s, N> {
    pub snapshot: &'s N,
    /// A guard rather than a handle of its own: no count that all cores would write to.
    pub(super) state: Guard<Arc<DatabaseState>>,
    pub names: Names<'s, N>,
    /// What is known of the commit that is read; `None` where changes are laid over it.
    pub(crate) facts: Option<CommitFacts>,
    /// The counters of the use of indexes, with the database's instance; none for the writer.
    pub(crate) uses: Option<(u64, &'s IndexUses)>,
    /// Where sorted lists are kept; none for the writer.
    pub(crate) kept_lists: Option<&'s KeptLists>,
}

impl<N> Clone for View<'_, N> {
    fn clone(&self) -> Self {
        Self {
            snapshot: self.snapshot,
            state: Guard::from_inner(Arc::clone(&self.state)),
            names: self.names,
            facts: self.facts,
            uses: self.uses,
            kept_lists: self.kept_lists,
        }
    }
}

impl<N> Deref for View<'_, N> {
    type Target = DatabaseState;

    fn deref(&self) -> &DatabaseState {
        &self.state
    }
}

impl CatalogEdit {
    /// The state with what the group has numbered so far.
    pub(crate) fn state(&self, state: &Arc<DatabaseState>) -> Arc<DatabaseState> {
        if Arc::ptr_eq(&state.catalog, self.catalog()) {
            return Arc::clone(state);
        }
        Arc::new(DatabaseState { catalog: Arc::clone(self.catalog()), ..DatabaseState::clone(state) })
    }
}

impl<'s, N: Snapshot> View<'s, N> {
    /// The commit since which the store knows that none was lost, as far as this one is behind it; 0: since it was opened. What a view
    /// with another number has shown of ids says nothing about this one: [`unbroken_since`](larix_store::Store::unbroken_since).
    pub fn unbroken_since(&self) -> u64 {
        // The generation of the names has it: no field costs every search something.
        self.facts.map_or(0, |facts| (self.names.generation() ^ facts.generation).rotate_left(u64::BITS / 2))
    }

    /// The state that it is read with, to be kept.
    pub(crate) fn state(&self) -> &Arc<DatabaseState> {
        &self.state
    }

    /// The same content, read from a copy of it.
    ///
    /// # Errors
    /// The copy cannot be read.
    pub fn of_copy<'c, C: Snapshot>(&self, copy: &'c C) -> Result<View<'c, C>, Fault> {
        View::over_changes(copy, next_instance(), Arc::clone(&self.state))
    }

    /// A view with changes laid over a commit.
    pub(crate) fn over_changes(
        snapshot: &'s N,
        instance: u64,
        state: Arc<DatabaseState>,
    ) -> Result<Self, Fault> {
        Ok(Self::over_changes_of(snapshot, instance, state, tree::generation(snapshot)?))
    }

    /// The same where the tree's generation is known.
    pub(crate) fn over_changes_of(
        snapshot: &'s N,
        instance: u64,
        state: Arc<DatabaseState>,
        generation: u64,
    ) -> Self {
        View {
            names: Names::of_generation(snapshot, instance, generation),
            snapshot,
            state: Guard::from_inner(state),
            facts: None,
            uses: None,
            kept_lists: None,
        }
    }

    /// Looks up a DN in the suffix that it belongs to; `None` when it belongs to none.
    pub fn resolve(&self, dn: &NormalDn) -> Result<Option<tree::DnLookup>, Fault> {
        Ok(self.locate(dn)?.map(|located| located.resolved))
    }

    /// The same for who goes on to [read the record](Self::located_record).
    pub fn locate(&self, dn: &NormalDn) -> Result<Option<LocatedEntry<'s>>, Fault> {
        let suffix = self.settings.suffixes.iter().find(|suffix| dn.is_within(&suffix.normal));
        suffix.map(|suffix| self.names.locate(&suffix.normal, dn, &self.found)).transpose()
    }

    /// The record of the nearest entry of a look-up, ready to be read.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn located_record(&self, located: LocatedEntry<'s>) -> Result<Record<'s>, Fault> {
        let id = located.resolved.nearest;
        self.unpacked(id, self.located_stored(located)?)
    }

    /// The same as it is stored.
    pub(crate) fn located_stored(&self, located: LocatedEntry<'s>) -> Result<Cow<'s, [u8]>, Fault> {
        let id = located.resolved.nearest;
        match located.stored {
            Some(stored) => Ok(stored),
            None => self.stored(id)?.ok_or(Fault::Missing { entry: id, what: "the record" }),
        }
    }

    /// The record of an entry, ready to be read.
    pub fn record(&self, id: EntryId) -> Result<Option<Record<'s>>, Fault> {
        self.stored(id)?.map(|stored| self.unpacked(id, stored)).transpose()
    }

    /// The record of an entry as it is stored: its head can be read, its attributes once it is
    /// [unpacked](Self::unpacked).
    pub fn stored(&self, id: EntryId) -> Result<Option<Cow<'s, [u8]>>, Fault> {
        Ok(self.snapshot.get(ENTRIES, &id.to_bytes())?)
    }

    /// The records of several entries as they are stored, in the order of `ids`: of a store that is a round trip away asked
    /// for at once, else one after the other as they are taken.
    pub(crate) fn stored_many<'i>(&self, ids: &'i [EntryId]) -> Result<StoredMany<'s, 'i, N>, Fault> {
        let fetched = match N::IS_DISTANT && ids.len() > 1 {
            true => {
                let keys: Vec<_> = ids.iter().map(|id| id.to_bytes()).collect();
                let fetched = self.snapshot.get_many(ENTRIES, &keys)?;
                self.names.fetch_superiors(ids.iter().copied().zip(&fetched))?;
                fetched
            }
            false => Vec::new(),
        };
        Ok(StoredMany { snapshot: self.snapshot, ids: ids.iter(), fetched: fetched.into_iter() })
    }

    /// A stored record, ready to be read. Costs nothing for one that is stored plain.
    pub fn unpacked<'r>(&self, id: EntryId, stored: impl Into<Cow<'r, [u8]>>) -> Result<Record<'r>, Fault> {
        self.catalog.dictionaries().unpacked(self.snapshot, id, stored.into())
    }

    /// The same of a record whose head was read as it is stored.
    pub(crate) fn unpacked_behind<'r>(
        &self,
        head: &EntryView<'_>,
        stored: &'r [u8],
    ) -> Result<Record<'r>, Fault> {
        let known = (head.id(), head.head_length(stored));
        self.catalog.dictionaries().unpacked_behind(self.snapshot, known, Cow::Borrowed(stored))
    }

    /// An unpacked record read in place.
    pub fn reader<'a>(&'a self, id: EntryId, record: &'a [u8]) -> Result<EntryReader<'a, N>, Fault> {
        Ok(EntryReader::new(self.snapshot, &self.schema, &self.catalog, EntryView::parse(id, record)?))
    }

    /// The same of a record whose head was read as it is `stored`.
    pub(crate) fn reader_of<'a>(
        &'a self,
        head: EntryView<'a>,
        stored: &[u8],
        record: &'a [u8],
    ) -> EntryReader<'a, N> {
        EntryReader::new(self.snapshot, &self.schema, &self.catalog, head.unpacked(stored, record))
    }

    /// The DN of an entry as it is shown.
    pub fn dn(&self, entry: &EntryView<'_>) -> Result<String, Fault> {
        let mut dn = String::new();
        self.names.append_dn(entry, &mut dn)?;
        Ok(dn)
    }
}

/// The records of several entries, where they have any.
#[derive(Debug)]
pub(crate) struct StoredMany<'s, 'i, N> {
    snapshot: &'s N,
    ids: slice::Iter<'i, EntryId>,
    fetched: vec::IntoIter<Option<Cow<'s, [u8]>>>,
}

impl<'s, N: Snapshot> Iterator for StoredMany<'s, '_, N> {
    type Item = Result<Option<Cow<'s, [u8]>>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let id = *self.ids.next()?;
        if N::IS_DISTANT
            && let Some(stored) = self.fetched.next()
        {
            return Some(Ok(stored));
        }
        Some(self.snapshot.get(ENTRIES, &id.to_bytes()).map_err(Fault::from))
    }
}
