//! What it takes to find entries by their names, told to a store that is a round trip away before it is read.

use std::sync::Arc;

use larix_proto::Rdn;
use larix_schema::NormalDn;
use larix_store::{Path, ReadError, StepLists, Store, TableId, Wanted};

use super::facts::referrals_key;
use super::{Database, DatabaseState};
use crate::entry::EntryId;
use crate::index::{KeyKind, Kinds, key};
use crate::tables::{ATTRIBUTES, ENTRIES, INDEX, META, TREE, meta};
use crate::tree;

/// What everybody reads, and how many of the first records of it: the database's facts, the names of attributes, and the top of the
/// tree, whose entries are mostly the oldest ones.
pub const READ_FIRST: [(TableId, u32); 4] = [(META, 64), (ATTRIBUTES, 512), (TREE, 256), (ENTRIES, 64)];

impl<S: Store> Database<S> {
    /// A snapshot for who is going to read the entries of these names.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn snapshot_for(&self, names: &[&NormalDn]) -> Result<S::Snapshot<'_>, ReadError> {
        match S::SHARED {
            true => self.store.snapshot_with(&self.wanted(names.iter().copied())),
            false => self.store.snapshot(),
        }
    }

    /// What is read to find the entries of these names.
    pub(crate) fn wanted<'n>(&self, names: impl Iterator<Item = &'n NormalDn>) -> Vec<Wanted> {
        let state = self.state.load();
        let mut wanted = facts(&state);
        wanted.extend(names.filter_map(|name| path(&state, name)));
        wanted
    }
}

/// What every view reads of a commit that it has not seen yet.
pub(crate) fn facts(state: &DatabaseState) -> Vec<Wanted> {
    let mut wanted = vec![Wanted::Record { table: META, key: meta::TREE_GENERATION.to_vec() }];
    if let [suffix] = state.settings.suffixes.as_slice() {
        let key = tree::key(EntryId::ROOT, suffix.normal.as_str().as_bytes()).to_vec();
        wanted.push(Wanted::Record { table: TREE, key });
    }
    let referrals = referrals_key(&state.catalog);
    wanted.extend(referrals.map(|key| Wanted::List { table: INDEX, key }));
    wanted
}

/// The way from the root to the entry of a name.
pub(crate) fn path(state: &Arc<DatabaseState>, name: &NormalDn) -> Option<Wanted> {
    let suffix = state.settings.suffixes.iter().find(|suffix| name.is_within(&suffix.normal))?;
    // What stands in a key behind the superior's id.
    let step =
        |rdn: &[u8]| tree::key(EntryId::ROOT, rdn).get(EntryId::ROOT.to_bytes().len()..).map(<[u8]>::to_vec);
    let below = name.depth().saturating_sub(suffix.normal.depth());
    let mut steps: Vec<Vec<u8>> = name.rdns().take(below).filter_map(step).collect();
    if suffix.normal.depth() > 0 || below == 0 {
        steps.extend(step(suffix.normal.as_str().as_bytes()));
    }
    steps.reverse();
    let guesses: Arc<dyn StepLists> = Arc::<DatabaseState>::clone(state);
    let from = EntryId::ROOT.to_bytes();
    Some(Wanted::Path(Path { table: TREE, records: ENTRIES, from, steps, guesses: Some(guesses) }))
}

impl StepLists for DatabaseState {
    /// An entry has the values of its RDN, so it is in the lists of these values. An RDN that was cut for its key names none.
    fn list(&self, step: &[u8]) -> Option<(TableId, Vec<u8>)> {
        let rdn = Rdn::parse(std::str::from_utf8(step).ok()?).ok()?;
        rdn.avas().iter().filter(|ava| !ava.hex).find_map(|ava| {
            let description = self.schema.describe(ava.attribute).ok()?;
            let number = self.catalog.number(&description)?;
            let row = self.catalog.row(number).filter(|row| row.usable().has(Kinds::EQUALITY))?;
            let asserted = self.schema.bind_equality(&description, &ava.value).ok()?;
            row.equality.filter(|rule| rule.shares_keys_with(asserted.rule))?;
            Some((INDEX, key::make(number, KeyKind::Equality, asserted.value.key())))
        })
    }
}
