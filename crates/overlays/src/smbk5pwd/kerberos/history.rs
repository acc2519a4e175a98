//! krbPwdHistory: keys of the passwords before, encrypted in the key of `kadmin/history`. kadmin and kpasswd compare new passwords with them.

use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{Failure, PendingChange};
use larix_proto::Scope;
use larix_schema::{BoundFilter, NormalDn};

use super::key_set::KeySet;
use super::mit::{Mit, Policy};
use super::names::KEYS;
use super::stash::MasterKey;

/// Passwords that are remembered, whatever a policy says.
const REMEMBERED_MAX: usize = 1_000;

/// The values with the keys `sets` among them, which were valid until now. `None`: nothing changes, because the policy wants no history, or
/// because there is no key to encrypt it in.
pub(super) fn with_the_last(
    mit: &Mit,
    change: &PendingChange<'_>,
    policy: &Policy,
    sets: &[Vec<u8>],
    past: Vec<Vec<u8>>,
) -> Result<Option<Vec<Vec<u8>>>, Failure> {
    // The present password is one of those that the policy counts.
    let remembered = policy.history.saturating_sub(1).min(REMEMBERED_MAX);
    let last = sets.iter().filter_map(|set| KeySet::parse(set)).max_by_key(|set| set.version);
    let Some(last) = last.filter(|_| remembered > 0) else { return Ok(None) };
    let Some(key) = history_key(mit, change)? else { return Ok(None) };
    let Some(resealed) = last.resealed(&mit.masters, &key, change.random) else { return Ok(None) };
    // kadmin cannot read keys under another history key, and forgets them, too.
    let version = |set: &[u8]| {
        KeySet::parse(set).filter(|set| set.master_version == Some(key.version)).map(|set| set.version)
    };
    let mut past: Vec<(u32, Vec<u8>)> =
        past.into_iter().filter_map(|set| Some((version(&set)?, set))).collect();
    past.push((last.version, resealed));
    past.sort_by_key(|(version, _)| *version);
    let oldest = past.len().saturating_sub(remembered);
    Ok(Some(past.into_iter().skip(oldest).map(|(_, set)| set).collect()))
}

/// The key of `kadmin/history` in the realm; its version is that of the key.
fn history_key(mit: &Mit, change: &PendingChange<'_>) -> Result<Option<MasterKey>, Failure> {
    let Ok(keys) = change.schema.describe(KEYS) else { return Ok(None) };
    let name = [b"kadmin/history@", mit.masters.realm.as_slice()].concat();
    let Ok(named) = change.schema.bind_equality(&mit.principal_name, &name) else { return Ok(None) };
    let (root, filter) = (NormalDn::root(), BoundFilter::Equality(named));
    let mut found = None;
    change.entries.search(&InternalSearch::new(&root, Scope::Subtree, &filter), &mut |entry| {
        let entry = entry.owned()?;
        let sets = entry.values(keys.attribute).iter().filter_map(|set| KeySet::parse(set));
        if let Some(set) = sets.max_by_key(|set| set.version) {
            let opened = set.first(&mit.masters);
            found = opened.map(|(kind, key)| MasterKey { version: set.version, kind, key });
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}
