//! Before a search begins, it tells a store that is a round trip away what it is going to read: the way to its base, and the posting
//! lists of its filter.
//!
//! The planner itself names the lists, in a trial on a snapshot without content: each list that it asks for seems to have very many
//! ids.

use std::borrow::Cow;
use std::cell::RefCell;
use std::iter::{Empty, Once, empty, once};

use larix_proto::{Scope, SearchRequest};
use larix_schema::NormalDn;
use larix_store::{
    Direction, KeyCount, KeyRange, KeyValue, PostingCursor, ReadError, Snapshot, Store, TableId, Wanted,
};

use crate::database::{Database, facts_ahead, path_ahead};
use crate::filter::Filter;
use crate::plan::Plan;

/// Lists and ranges asked for ahead. A filter may have thousands of terms.
const WANTED_MAX: usize = 256;
/// More ids than the planner is content with, and fewer than make it give up a union.
const MANY: u64 = 1 << 16;

/// A snapshot for a search that begins.
///
/// # Errors
/// A store that cannot be read.
pub fn snapshot_for_search<'d, S: Store>(
    database: &'d Database<S>,
    request: &SearchRequest<'_>,
    base: &NormalDn,
) -> Result<S::Snapshot<'d>, ReadError> {
    if !S::SHARED {
        return database.store().snapshot();
    }
    let state = database.state();
    let mut wanted = facts_ahead(&state);
    wanted.extend(path_ahead(&state, base));
    if request.scope != Scope::Base {
        let bound = state.schema.bind_filter(request.filter);
        let limits = &state.settings.request_limits;
        if let Ok(filter) = Filter::within(limits, &state.schema, &state.catalog, bound) {
            let trial = Trial::default();
            // Only what the planner asked for counts, not the plan.
            let _plan = Plan::of(&trial, &state.catalog, &filter);
            wanted.extend(trial.wanted.into_inner());
        }
    }
    database.store().snapshot_with(&wanted)
}

/// Notes what the planner asks for.
#[derive(Debug, Default)]
struct Trial {
    wanted: RefCell<Vec<Wanted>>,
}

impl Trial {
    fn note(&self, wanted: Wanted) {
        let mut all = self.wanted.borrow_mut();
        if all.len() < WANTED_MAX {
            all.push(wanted);
        }
    }
}

/// A list of which nothing is read.
#[derive(Debug)]
struct NoIds;

impl PostingCursor for NoIds {
    fn seek(&mut self, _: u64) -> Result<Option<u64>, ReadError> {
        Ok(None)
    }

    fn next(&mut self) -> Result<Option<u64>, ReadError> {
        Ok(None)
    }
}

impl Snapshot for Trial {
    type Scan<'a> = Empty<Result<KeyValue<'a>, ReadError>>;
    type Cursor<'a> = NoIds;
    type PostingKeys<'a> = Once<Result<KeyCount<'a>, ReadError>>;

    fn commit_counter(&self) -> u64 {
        0
    }

    fn get<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        self.note(Wanted::Record { table, key: key.to_vec() });
        Ok(None)
    }

    fn scan<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        _: Direction,
    ) -> Result<Self::Scan<'a>, ReadError> {
        self.note(Wanted::Range { table, range: range.into_owned() });
        Ok(empty())
    }

    fn postings<'a>(&'a self, table: TableId, key: &[u8]) -> Result<Self::Cursor<'a>, ReadError> {
        self.note(Wanted::List { table, key: key.to_vec() });
        Ok(NoIds)
    }

    fn posting_estimate(&self, table: TableId, key: &[u8]) -> Result<u64, ReadError> {
        self.note(Wanted::List { table, key: key.to_vec() });
        Ok(MANY)
    }

    fn posting_keys<'a>(
        &'a self,
        table: TableId,
        range: KeyRange<'_>,
        _: Direction,
    ) -> Result<Self::PostingKeys<'a>, ReadError> {
        self.note(Wanted::Range { table, range: range.into_owned() });
        Ok(once(Ok((Cow::Borrowed(&[][..]), MANY))))
    }
}
