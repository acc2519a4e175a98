//! The turn that deletes what has expired.

use std::collections::HashSet;
use std::time::Duration;

use larix_engine::overlay::Failure;
use larix_engine::overlay::committed::{TICK_CHANGES_MAX, Tick, TickChange, TickChanges, Turn};
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use larix_engine::time::Timestamp;
use larix_engine::write::WriteOperation;
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{BoundFilter, NormalDn};

use super::DynamicObjects;

/// Names of expired entries that one turn gathers.
const GATHERED_MAX: u64 = 100_000;

impl Tick for DynamicObjects {
    fn interval(&self) -> Duration {
        Duration::from_secs(self.lifetimes.interval)
    }

    fn tick(&self, turn: &Turn<'_>) -> Result<TickChanges, Failure> {
        let tolerance = i64::try_from(self.lifetimes.tolerance).unwrap_or(i64::MAX);
        let until = Timestamp::from_seconds(turn.now.seconds().saturating_sub(tolerance)).generalized();
        let expired = format!("(&(objectClass=dynamicObject)(entryExpireTimestamp<={until}))");
        let expired = FilterBuf::parse(&expired)
            .map_err(|error| LdapResult::with(ResultCode::OTHER, error.to_string()))?;
        let (names, is_all) = gathered(turn, &turn.schema.bind_filter(expired.as_filter()))?;
        let deletes = deletable(turn, names)?;
        let more = !deletes.is_empty() && (!is_all || deletes.len() > TICK_CHANGES_MAX);
        let changes = deletes.into_iter().take(TICK_CHANGES_MAX).map(|entry| TickChange {
            operation: WriteOperation::Delete { entry },
            // One that was refreshed meanwhile stays.
            only_if: Some(expired.clone()),
        });
        Ok(TickChanges { changes: changes.collect(), more })
    }
}

/// The expired entries, and whether these are all.
fn gathered(turn: &Turn<'_>, expired: &BoundFilter) -> Result<(Vec<NormalDn>, bool), Failure> {
    let root = NormalDn::root();
    let limits = InternalLimits { entries: GATHERED_MAX, ..InternalLimits::default() };
    let query = InternalSearch::new(&root, Scope::Subtree, expired).within(limits);
    let mut names = Vec::new();
    let searched = turn.entries.search(&query, &mut |found| {
        names.push(found.dn()?.clone());
        Ok(true)
    })?;
    Ok((names, searched.ended == SearchEnd::Complete))
}

/// Those below which nothing stays, the deepest first: an entry goes once the last one below it has expired.
fn deletable(turn: &Turn<'_>, mut names: Vec<NormalDn>) -> Result<Vec<String>, Failure> {
    names.sort_unstable_by_key(|dn| std::cmp::Reverse(dn.depth()));
    let (mut going, mut deletes): (HashSet<NormalDn>, Vec<String>) = (HashSet::new(), Vec::new());
    for dn in names {
        if turn.entries.has_subordinates(&dn)? {
            let query = InternalSearch::new(&dn, Scope::OneLevel, &BoundFilter::True);
            let mut stays = false;
            turn.entries.search(&query, &mut |found| {
                stays = !going.contains(found.dn()?);
                Ok(!stays)
            })?;
            if stays {
                continue;
            }
        }
        deletes.push(dn.as_str().to_owned());
        going.insert(dn);
    }
    Ok(deletes)
}
