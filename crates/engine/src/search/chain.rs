//! Matching along chains of names: LDAP_MATCHING_RULE_IN_CHAIN, 1.2.840.113556.1.4.1941 (Microsoft's MS-ADTS section
//! 3.1.1.3.4.4.3).
//!
//! `(member:1.2.840.113556.1.4.1941:=X)` is true for an entry whose member is X, or is an entry for which it is true. The way
//! goes up from X before the search begins: who has X as a member, who has these, and so on, one look-up in the equality
//! index each. An entry carries the chain on only if the subject may search it for the very name that led to it. What the
//! filter asks afterwards is whether an entry has one of the names that were found.

use std::collections::VecDeque;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::AttributeDescription;
use larix_store::Snapshot;
use roaring::RoaringTreemap;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::pace::Pace;
use super::task::{End, Step};
use crate::access::Privilege;
use crate::database::View;
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, Target};
use crate::fault::Fault;
use crate::filter::{Assertion, Filter, InChain, Test};
use crate::plan::{IdSet, Plan};

/// Most entries through which chains of one assertion may go; more are adminLimitExceeded.
pub(crate) const CHAIN_LINKS_MAX: usize = 10_000;
/// In-chain assertions of one filter: each is followed by itself, and keeps its links.
pub(crate) const CHAINS_MAX: usize = 64;
/// Most entries between the first and the last of a chain; more are adminLimitExceeded.
pub(crate) const CHAIN_DEPTH_MAX: u32 = 100;
/// Ids read at once.
const CHUNK: usize = 64;

impl Filter {
    /// The first in-chain assertion that was not followed.
    fn unfollowed(&mut self) -> Option<(&AttributeDescription, &mut InChain)> {
        match self {
            Self::And(list) | Self::Or(list) => list.iter_mut().find_map(Self::unfollowed),
            Self::Not(inner) => inner.unfollowed(),
            Self::Test(Test { target, assertion: Assertion::InChain(chain) }) if chain.links.is_none() => {
                Some((target.description()?, chain))
            }
            Self::Constant(_) | Self::Test(_) => None,
        }
    }

    /// How many in-chain assertions there are.
    pub(super) fn chains(&self) -> usize {
        match self {
            Self::And(list) | Self::Or(list) => list.iter().map(Self::chains).sum(),
            Self::Not(inner) => inner.chains(),
            Self::Test(test) => usize::from(matches!(test.assertion, Assertion::InChain(_))),
            Self::Constant(_) => 0,
        }
    }
}

/// A chain that is being followed.
#[derive(Debug)]
pub(super) struct Walk {
    description: AttributeDescription,
    /// Names whose holders are still to be looked up, the nearest first, with how far they are.
    todo: VecDeque<(Box<[u8]>, u32)>,
    /// The holders that are being looked at, and the last of them that was.
    reading: Option<(Holders, EntryId)>,
    /// Entries that carry the chain on.
    carriers: RoaringTreemap,
    links: Vec<Box<[u8]>>,
}

/// Entries that have a name.
#[derive(Debug)]
struct Holders {
    /// Whether an entry has it, and may be searched for it.
    test: Filter,
    ids: IdSet,
    depth: u32,
}

/// Follows the chains that the filter names, for one slice. `looked` counts the entries looked at. Answers a step if the walk under
/// way has to go on in the next slice.
///
/// # Errors
/// adminLimitExceeded; unwillingToPerform where there is no index to follow a chain by.
pub(super) fn follow<N: Snapshot>(
    under_way: &mut Option<Box<Walk>>,
    filter: &mut Filter,
    looked: &mut u64,
    view: &View<'_, N>,
    gate: &Gate<'_>,
    pace: &mut Pace<'_>,
) -> Result<Option<Step>, End> {
    loop {
        let mut walk = match under_way.take() {
            Some(walk) => walk,
            None => match filter.unfollowed() {
                Some((description, chain)) => Box::new(Walk::new(description, chain)),
                None => return Ok(None),
            },
        };
        if let Some(step) = walk.go_on(looked, view, gate, pace)? {
            *under_way = Some(walk);
            return Ok(Some(step));
        }
        if let Some((_, chain)) = filter.unfollowed() {
            walk.links.sort_unstable();
            chain.links = Some(walk.links.into());
        }
    }
}

impl Walk {
    fn new(description: &AttributeDescription, chain: &InChain) -> Self {
        Self {
            description: description.clone(),
            todo: VecDeque::from([(chain.assertion.value.key().into(), 0)]),
            reading: None,
            carriers: RoaringTreemap::new(),
            links: Vec::new(),
        }
    }

    fn go_on<N: Snapshot>(
        &mut self,
        looked: &mut u64,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<Step>, End> {
        loop {
            if let Some((holders, last)) = &mut self.reading {
                let mut ids = Vec::with_capacity(CHUNK);
                holders.ids.read_after(*last, CHUNK, &mut ids);
                for id in ids.iter().copied() {
                    if let Some(step) = pace.next()? {
                        return Ok(Some(step));
                    }
                    *last = id;
                    *looked += 1;
                    if !self.carriers.contains(id.0)
                        && let Some(name) = carrier(view, gate, holders, id)?
                    {
                        self.carriers.insert(id.0);
                        // Most carriers are members of no group: the filter itself finds them.
                        if has_holders(view, &self.description, &name)? {
                            if holders.depth >= CHAIN_DEPTH_MAX {
                                return Err(too_far("deep", CHAIN_DEPTH_MAX as usize).into());
                            }
                            self.todo.push_back((name, holders.depth + 1));
                        }
                    }
                }
                if ids.len() == CHUNK {
                    continue;
                }
                self.reading = None;
            }
            let Some((name, depth)) = self.todo.pop_front() else { return Ok(None) };
            if self.links.len() >= CHAIN_LINKS_MAX {
                return Err(too_far("long", CHAIN_LINKS_MAX).into());
            }
            let Some((test, plan)) = holders(view, &self.description, &name)? else {
                return Err(self.unindexed(view).into());
            };
            self.links.push(name);
            let ids = plan.into_candidates(view.snapshot)?.ids;
            self.reading = Some((Holders { test, ids, depth }, EntryId::ROOT));
        }
    }

    fn unindexed<N: Snapshot>(&self, view: &View<'_, N>) -> LdapResult {
        let name = self.description.to_text(&view.schema);
        let text = format!("in-chain matching follows an equality index, and {name} has none");
        LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
    }
}

fn too_far(how: &str, limit: usize) -> LdapResult {
    let text = format!("in-chain matching: the chain is too {how} (limit {limit})");
    LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)
}

/// The normalized name of an entry that carries the chain on.
fn carrier<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    holders: &Holders,
    id: EntryId,
) -> Result<Option<Box<[u8]>>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(None) };
    let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
    let carries = !seen.reader.view.flags().has(RecordFlags::GLUE)
        && seen.allows_entry(Privilege::Search)?
        && holders.test.matches(&seen, &seen.reader)?.is_true();
    Ok(if carries { Some(seen.name()?.as_str().as_bytes().into()) } else { None })
}

fn has_holders<N: Snapshot>(
    view: &View<'_, N>,
    description: &AttributeDescription,
    name: &[u8],
) -> Result<bool, Fault> {
    Ok(holders(view, description, name)?.is_none_or(|(_, plan)| plan.estimate() != Some(0)))
}

/// The entries that have this name as a value, and the plan to find them by; `None` without an index.
fn holders<N: Snapshot>(
    view: &View<'_, N>,
    description: &AttributeDescription,
    name: &[u8],
) -> Result<Option<(Filter, Plan)>, Fault> {
    let Ok(assertion) = view.schema.bind_equality(description, name) else { return Ok(None) };
    let target = Target::new(&view.schema, &view.catalog, description.clone());
    let test = Filter::Test(Test { target, assertion: Assertion::Equality(assertion) });
    let plan = Plan::of(view.snapshot, &view.catalog, &test)?;
    Ok(plan.estimate().is_some().then_some((test, plan)))
}
