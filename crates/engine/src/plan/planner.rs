//! The planner: a filter becomes a tree of index reads with their sizes; reading it gives the candidates.
//!
//! An index key's number of ids is known before it is read. AND terms are read smallest first, and the rest is left to
//! verification as soon as the set is small; NOT is never a complement, since Undefined would be in it.

use std::cell::Cell;

use larix_schema::{AttributeDescription, BoundAssertion, BoundSubstrings, Match};
use larix_store::{Direction, KeyRange, PostingCursor, Snapshot};
use roaring::RoaringTreemap;
use smallvec::SmallVec;

use super::candidates::{Candidates, Exactness, IdSet, LIST_LIMIT};
use super::explain::Explain;
use crate::catalog::Catalog;
use crate::entry::{AttributeNumber, Target};
use crate::fault::Fault;
use crate::filter::{Assertion, Filter, InChain, Test};
use crate::index::pending::{self, Need};
use crate::index::{KeyKind, Kinds, key, substrings};
use crate::overlay::computed::Holders;
use crate::tables::INDEX;

/// So few candidates are verified rather than intersected further.
const ENOUGH: u64 = 16;
/// The same where the other set is what overlays compute.
const ENOUGH_COMPUTED: u64 = 1024;
/// A list is looked up id by id in another that is so many times longer, rather than merged with it.
const GALLOP: u64 = 8;
/// Keys of a range counted before it is given up as useless.
const RANGE_KEYS_LIMIT: usize = 10_000;
/// The same of all ranges of a filter together: a filter may have thousands of them.
const PLAN_KEYS_LIMIT: usize = 4 * RANGE_KEYS_LIMIT;
/// A union of more parts than this is not read from indexes if it comes to more ids than [`UNION_IDS_LIMIT`].
const UNION_FEW: usize = 64;
/// A scan of the entries, which goes in slices, costs others less than so many ids read at once.
const UNION_IDS_LIMIT: u64 = 16_000_000;

/// One step of a plan.
#[derive(Clone, Debug)]
pub struct Plan {
    node: Node,
    /// Ids expected; `u64::MAX` when all.
    estimate: u64,
    /// How exact it is if all of it is read: reading may stop sooner.
    exactness: Exactness,
    proof: Proof,
}

/// Which term of an AND a plan answers exactly, if what is said here was read exactly.
#[derive(Copy, Clone, Debug)]
enum Proof {
    Nothing,
    /// The whole plan is of this term.
    Whole(usize),
    /// The first plan of an intersection is.
    First(usize),
}

impl Proof {
    /// The term, if the whole plan was read exactly, and nothing is said of its first one.
    fn of_whole(self, read: Exactness) -> Option<usize> {
        match self {
            Self::Whole(term) if read == Exactness::Exact => Some(term),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
enum Node {
    Everything,
    Nothing,
    /// The ids of one key; they themselves when they are few and were seen already.
    Key(Vec<u8>, Vec<u64>),
    /// The ids of all keys from the first, included, to the second, excluded.
    Range(Vec<u8>, Vec<u8>),
    /// Entries whose keys are not in the index yet, ascending.
    Pending(Vec<u64>),
    /// Entries that overlays name for what they compute, ascending.
    Computed(Vec<u64>),
    Union(Vec<Plan>),
    Intersection(Vec<Plan>),
}

impl Plan {
    fn new(node: Node, estimate: u64, exactness: Exactness) -> Self {
        Self { node, estimate, exactness, proof: Proof::Nothing }
    }

    /// The plan for a filter.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn of<S: Snapshot>(snapshot: &S, catalog: &Catalog, filter: &Filter) -> Result<Self, Fault> {
        Planner { snapshot, catalog, computed: None, keys: Cell::new(0) }.filter(filter)
    }

    /// The same where overlays compute attributes.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub(crate) fn with_computed<S: Snapshot>(
        snapshot: &S,
        catalog: &Catalog,
        filter: &Filter,
        computed: &dyn ComputedHolders,
    ) -> Result<Self, Fault> {
        Planner { snapshot, catalog, computed: Some(computed), keys: Cell::new(0) }.filter(filter)
    }

    /// The ids of one key, for entries that are looked for beside the filter.
    pub(crate) fn of_key<S: Snapshot>(snapshot: &S, key: Vec<u8>) -> Result<Self, Fault> {
        let mut ids = Vec::new();
        let estimate = snapshot.posting_head(INDEX, &key, ENOUGH, &mut ids)?;
        Ok(Self::new(Node::Key(key, ids), estimate, Exactness::Exact))
    }

    /// Whatever either finds.
    pub fn or(self, other: Self) -> Self {
        union(vec![self, other])
    }

    /// Ids expected; `None` when all.
    pub fn estimate(&self) -> Option<u64> {
        (self.estimate != u64::MAX).then_some(self.estimate)
    }

    pub fn exactness(&self) -> Exactness {
        self.exactness
    }

    /// Reads the candidates.
    pub fn read<S: Snapshot>(&self, snapshot: &S) -> Result<Candidates, Fault> {
        let ids = match &self.node {
            Node::Everything => return Ok(Candidates::everything()),
            Node::Nothing => return Ok(Candidates::none()),
            Node::Key(_, ids) if !ids.is_empty() => IdSet::List(ids.clone()),
            Node::Key(key, _) => read_key(snapshot, key, self.estimate)?,
            Node::Range(low, high) => read_range(snapshot, low, high)?,
            Node::Pending(ids) | Node::Computed(ids) => id_set(ids.clone()),
            Node::Union(plans) => {
                let (ids, read) = read_union(snapshot, plans)?;
                return Ok(self.found(ids, read));
            }
            Node::Intersection(plans) => return self.read_intersection(snapshot, plans),
        };
        Ok(self.found(ids, Exactness::Exact))
    }

    /// What was read as exactly as `read` says, which may be less than was planned.
    fn found(&self, ids: IdSet, read: Exactness) -> Candidates {
        Candidates { ids, exactness: self.exactness.max(read), proved: self.proof.of_whole(read) }
    }

    fn read_intersection<S: Snapshot>(&self, snapshot: &S, plans: &[Self]) -> Result<Candidates, Fault> {
        let mut rest = plans.iter();
        let Some(first) = rest.next() else { return Ok(Candidates::everything()) };
        let mut found = first.read(snapshot)?;
        let first_term = match self.proof {
            Proof::First(term) if found.exactness == Exactness::Exact => Some(term),
            _ => None,
        };
        for plan in rest {
            let count = found.len().unwrap_or(u64::MAX);
            if count == 0 {
                break;
            }
            // Verifying a record costs about as much as some dozens of ids of a list.
            if count <= ENOUGH || plan.estimate / 64 > count {
                found.exactness = found.exactness.max(Exactness::Partial);
                break;
            }
            found = intersect(snapshot, found, count, plan)?;
        }
        let all = self.found(found.ids, found.exactness);
        Ok(Candidates { proved: all.proved.or(first_term), ..all })
    }

    /// Calls `visit` with each index that the plan reads and how many ids it expects of it.
    pub fn visit_keys(&self, visit: &mut dyn FnMut(AttributeNumber, KeyKind, u64)) {
        match &self.node {
            Node::Key(key, _) | Node::Range(key, _) => {
                if let Some((number, kind)) = key::parse_head(key) {
                    visit(number, kind, self.estimate);
                }
            }
            Node::Union(plans) | Node::Intersection(plans) => {
                plans.iter().for_each(|plan| plan.visit_keys(visit));
            }
            Node::Everything | Node::Nothing | Node::Pending(_) | Node::Computed(_) => {}
        }
    }

    /// As [`Self::read`], of a plan that is not needed any more.
    pub(crate) fn into_candidates<S: Snapshot>(self, snapshot: &S) -> Result<Candidates, Fault> {
        let (exactness, proved) = (self.exactness, self.proof.of_whole(Exactness::Exact));
        match self.node {
            Node::Key(_, ids) if !ids.is_empty() => {
                Ok(Candidates { ids: IdSet::List(ids), exactness, proved })
            }
            Node::Pending(ids) | Node::Computed(ids) => {
                Ok(Candidates { ids: id_set(ids), exactness, proved })
            }
            _ => self.read(snapshot),
        }
    }

    pub fn explain(&self, catalog: &Catalog) -> Explain {
        let (step, inner): (String, &[Self]) = match &self.node {
            Node::Everything => ("scan".to_owned(), &[]),
            Node::Nothing => ("nothing can match".to_owned(), &[]),
            Node::Key(key, _) => (format!("index {}", describe(catalog, key)), &[]),
            Node::Range(low, _) => (format!("index range of {}", describe(catalog, low)), &[]),
            Node::Pending(_) => ("pending keys".to_owned(), &[]),
            Node::Computed(_) => ("computed by overlays".to_owned(), &[]),
            Node::Union(plans) => ("any of".to_owned(), plans),
            Node::Intersection(plans) => ("all of".to_owned(), plans),
        };
        Explain {
            step,
            estimate: self.estimate(),
            exactness: self.exactness,
            inner: inner.iter().map(|plan| plan.explain(catalog)).collect(),
        }
    }
}

fn describe(catalog: &Catalog, key: &[u8]) -> String {
    let Some((number, kind)) = key::parse_head(key) else { return "?".to_owned() };
    let mut text = format!("{} {}", catalog.text(number), kind.name());
    if let Some(value) = key::parse_value(key).filter(|value| !value.is_empty()) {
        text.push_str(&format!(" \"{}\"", String::from_utf8_lossy(&value)));
    }
    text
}

/// Who tells which entries have values that are computed.
pub trait ComputedHolders {
    /// Whether what the description covers is computed of any entry.
    fn concerns(&self, description: &AttributeDescription) -> bool;

    /// The entries that have this value as a computed one, ascending; `None`: it may be any entry.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn holders(&self, description: &AttributeDescription, normal: &[u8]) -> Result<Option<Holders>, Fault>;
}

/// What it takes to plan a term of an AND.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// One key is sized.
    Key,
    /// Many may be.
    Keys,
    /// Overlays are asked.
    Computed,
}

struct Planner<'a, S> {
    snapshot: &'a S,
    catalog: &'a Catalog,
    computed: Option<&'a dyn ComputedHolders>,
    /// Keys of ranges that were counted.
    keys: Cell<usize>,
}

impl<S: Snapshot> Planner<'_, S> {
    fn filter(&self, filter: &Filter) -> Result<Plan, Fault> {
        match filter {
            Filter::Constant(Match::True) | Filter::Not(_) => Ok(everything()),
            // What is not True is not answered, whatever it is.
            Filter::Constant(Match::False | Match::Undefined) => Ok(nothing()),
            Filter::And(list) => self.and(list),
            Filter::Or(list) => {
                let mut plans = Vec::with_capacity(list.len());
                for filter in list {
                    let plan = self.filter(filter)?;
                    if plan.estimate == u64::MAX {
                        return Ok(plan);
                    }
                    plans.push(plan);
                }
                Ok(union(plans))
            }
            Filter::Test(test) => self.test(test),
        }
    }

    fn and(&self, list: &[Filter]) -> Result<Plan, Fault> {
        let mut plans: SmallVec<[Plan; 4]> = SmallVec::new();
        let (mut exactness, mut least) = (Exactness::Exact, u64::MAX);
        // Equality first: often it is all that it takes, and sizing a range costs reading its keys. What overlays compute comes
        // last, for they look at other entries.
        let cost = |filter: &Filter| match filter {
            Filter::Test(test) if self.is_computed(test) => Cost::Computed,
            Filter::Test(test) if matches!(test.assertion, Assertion::Equality(_)) => Cost::Key,
            _ => Cost::Keys,
        };
        let mut terms: SmallVec<[(usize, &Filter, Cost); 8]> =
            list.iter().enumerate().map(|(term, filter)| (term, filter, cost(filter))).collect();
        terms.sort_by_key(|(.., cost)| *cost);
        for (term, filter, cost) in terms {
            let enough = if cost == Cost::Computed { ENOUGH_COMPUTED } else { ENOUGH };
            if least <= enough {
                exactness = Exactness::Partial;
                break;
            }
            let plan = self.filter(filter)?;
            match plan.node {
                Node::Nothing => return Ok(plan),
                Node::Everything => {
                    if !matches!(filter, Filter::Constant(Match::True)) {
                        exactness = Exactness::Partial;
                    }
                }
                _ => {
                    exactness = exactness.max(plan.exactness);
                    least = least.min(plan.estimate);
                    let is_exact = plan.exactness == Exactness::Exact;
                    let proof = if is_exact { Proof::Whole(term) } else { Proof::Nothing };
                    plans.push(Plan { proof, ..plan });
                }
            }
        }
        plans.sort_by_key(|plan| plan.estimate);
        Ok(match plans.len() {
            0 => Plan {
                exactness: if exactness == Exactness::Exact { Exactness::Exact } else { Exactness::All },
                ..everything()
            },
            1 => {
                let mut plan = plans.remove(0);
                plan.exactness = plan.exactness.max(exactness);
                plan
            }
            _ => {
                let estimate = plans.first().map_or(0, |plan| plan.estimate);
                let proof = match plans.first().map(|first| first.proof) {
                    Some(Proof::Whole(term)) => Proof::First(term),
                    _ => Proof::Nothing,
                };
                Plan { node: Node::Intersection(plans.into_vec()), estimate, exactness, proof }
            }
        })
    }

    fn is_computed(&self, test: &Test) -> bool {
        let computed = self.computed.zip(test.target.description());
        computed.is_some_and(|(computed, description)| computed.concerns(description))
    }

    fn test(&self, test: &Test) -> Result<Plan, Fault> {
        match (self.computed, test.target.description()) {
            (Some(computed), Some(description)) if computed.concerns(description) => {
                self.test_of_computed(test, computed, description)
            }
            _ => self.test_of_stored(test),
        }
    }

    /// Entries that have it stored, and entries for which overlays compute it.
    fn test_of_computed(
        &self,
        test: &Test,
        computed: &dyn ComputedHolders,
        description: &AttributeDescription,
    ) -> Result<Plan, Fault> {
        let Assertion::Equality(a) = &test.assertion else { return Ok(everything()) };
        let stored = self.equality(&test.target, a)?;
        if stored.estimate == u64::MAX {
            return Ok(stored);
        }
        let Some(Holders { ids, exact }) = computed.holders(description, a.value.key())? else {
            return Ok(everything());
        };
        let (estimate, exactness) =
            (ids.len() as u64, if exact { Exactness::Exact } else { Exactness::Partial });
        Ok(stored.or(Plan::new(Node::Computed(ids), estimate, exactness)))
    }

    fn test_of_stored(&self, test: &Test) -> Result<Plan, Fault> {
        let target = &test.target;
        match &test.assertion {
            Assertion::Present => {
                self.keys(target, Kinds::PRESENCE, |n| Some(key::make(n, KeyKind::Presence, &[])))
            }
            Assertion::Equality(a) if a.rule.indexable_equality() => self.equality(target, a),
            Assertion::Approx(a) if a.rule.indexable_approx() => self.approx(target, a),
            Assertion::GreaterOrEqual(a) => self.order(target, a, true),
            Assertion::LessOrEqual(a) => self.order(target, a, false),
            Assertion::Substrings(a) => self.substrings(target, a),
            Assertion::InChain(chain) => self.chain(target, chain),
            // The rule of an extensible match may be the equality rule itself.
            Assertion::Extensible(a)
                if !a.dn_attributes && a.rule.indexable_equality() && target.description().is_some() =>
            {
                self.keys(target, Kinds::EQUALITY, |n| {
                    let rule = self.catalog.row(n)?.equality?;
                    (rule == a.rule).then(|| key::make(n, KeyKind::Equality, a.value.key()))
                })
            }
            _ => Ok(everything()),
        }
    }

    fn equality(&self, target: &Target, a: &BoundAssertion) -> Result<Plan, Fault> {
        self.keys(target, Kinds::EQUALITY, |n| {
            let rule = self.catalog.row(n)?.equality?;
            rule.shares_keys_with(a.rule).then(|| key::make(n, KeyKind::Equality, a.value.key()))
        })
    }

    /// Holders of any name of the chain; before the chain was followed, holders of its first name, which alone is certain.
    fn chain(&self, target: &Target, chain: &InChain) -> Result<Plan, Fault> {
        let first = [chain.assertion.value.key().into()];
        let links = chain.links().unwrap_or(&first);
        let mut plans = Vec::with_capacity(links.len());
        for link in links {
            let key = |number| Some(key::make(number, KeyKind::Equality, link));
            let plan = self.keys(target, Kinds::EQUALITY, key)?;
            if plan.estimate == u64::MAX {
                return Ok(plan);
            }
            plans.push(plan);
        }
        Ok(partial(union(plans)))
    }

    /// One key for each covered number; everything when a number has no such index.
    fn keys(
        &self,
        target: &Target,
        kind: Kinds,
        key: impl Fn(AttributeNumber) -> Option<Vec<u8>>,
    ) -> Result<Plan, Fault> {
        self.each(target, kind, |number| match key(number) {
            Some(key) => Plan::of_key(self.snapshot, key),
            None => Ok(everything()),
        })
    }

    fn each(
        &self,
        target: &Target,
        kinds: Kinds,
        plan: impl Fn(AttributeNumber) -> Result<Plan, Fault>,
    ) -> Result<Plan, Fault> {
        if let [number] = target.numbers.as_slice() {
            // The usual case, which needs no list.
            return match self.has(*number, kinds) {
                true => plan(*number).map(alone),
                false => Ok(everything()),
            };
        }
        let mut plans = Vec::with_capacity(target.numbers.as_slice().len());
        for number in target.numbers.as_slice() {
            if !self.has(*number, kinds) {
                return Ok(everything());
            }
            let plan = plan(*number)?;
            if plan.estimate == u64::MAX {
                return Ok(plan);
            }
            plans.push(plan);
        }
        Ok(union(plans))
    }

    fn has(&self, number: AttributeNumber, kinds: Kinds) -> bool {
        self.catalog.row(number).is_some_and(|row| row.usable().has(kinds))
    }

    /// All asserted words have to be there; their order is verified.
    fn approx(&self, target: &Target, a: &BoundAssertion) -> Result<Plan, Fault> {
        self.each(target, Kinds::APPROX, |number| {
            let words = a.value.key().split(|byte| *byte == b' ').filter(|word| !word.is_empty());
            let words =
                words.map(|word| Plan::of_key(self.snapshot, key::make(number, KeyKind::Approx, word)));
            Ok(partial(intersection(words.collect::<Result<_, _>>()?)))
        })
    }

    fn order(&self, target: &Target, a: &BoundAssertion, up: bool) -> Result<Plan, Fault> {
        self.each(target, Kinds::EQUALITY, |number| {
            let rule = self.catalog.row(number).and_then(|row| row.equality);
            if !rule.is_some_and(|rule| rule.shares_keys_with(a.rule)) {
                return Ok(everything());
            }
            let mut head = Vec::new();
            key::put_prefix(&mut head, number, KeyKind::Equality, &[]);
            let end = key::after_prefix(head.clone()).unwrap_or_default();
            let mut at = Vec::new();
            if up {
                key::put_prefix(&mut at, number, KeyKind::Equality, a.value.key());
                self.range(at, end, Exactness::Partial)
            } else {
                key::put(&mut at, number, KeyKind::Equality, a.value.key());
                if a.value.key().len() > key::VALUE_LIMIT {
                    // Cut keys with the same head are in no order.
                    at.clear();
                    key::put_prefix(&mut at, number, KeyKind::Equality, a.value.key());
                    at = key::after_prefix(at).unwrap_or_default();
                } else {
                    at.push(0);
                }
                self.range(head, at, Exactness::Partial)
            }
        })
    }

    fn substrings(&self, target: &Target, a: &BoundSubstrings) -> Result<Plan, Fault> {
        let mut plans = Vec::with_capacity(target.numbers.as_slice().len());
        for number in target.numbers.as_slice() {
            let plan = self.substrings_of(*number, a)?;
            if plan.estimate == u64::MAX {
                return Ok(plan);
            }
            plans.push(plan);
        }
        Ok(union(plans))
    }

    fn substrings_of(&self, number: AttributeNumber, a: &BoundSubstrings) -> Result<Plan, Fault> {
        let (mut terms, mut needs) = (Vec::new(), Vec::new());
        // A space where a piece ends and text goes on may be the end of the value, which has none in its key.
        if self.has(number, Kinds::ANY) {
            let pieces = a.initial.iter().chain(&a.any).chain(&a.final_);
            for gram in pieces.flat_map(|piece| substrings::covering_grams(piece.trim_ascii())) {
                needs.push(Need::new(KeyKind::Any, gram, false));
                terms.push(Plan::of_key(self.snapshot, key::make(number, KeyKind::Any, gram))?);
            }
        }
        let few = |terms: &[Plan]| terms.iter().any(|plan| plan.estimate <= ENOUGH);
        let initial = a.initial.as_deref().map(<[u8]>::trim_ascii_end);
        if let Some(initial) = initial.filter(|piece| !piece.is_empty() && !few(&terms)) {
            if self.has(number, Kinds::INITIAL) {
                needs.push(Need::new(KeyKind::Initial, substrings::head(initial), true));
            }
            terms.push(self.initial(number, a, initial)?);
        }
        let final_ = a.final_.as_deref().map(<[u8]>::trim_ascii_start);
        if let Some(final_) = final_
            && !final_.is_empty()
            && !few(&terms)
            && self.has(number, Kinds::FINAL)
        {
            let (tail, length) = substrings::tail(final_);
            let tail = tail.get(..length).unwrap_or_default();
            needs.push(Need::new(KeyKind::Final, tail, true));
            terms.push(self.prefix(number, KeyKind::Final, tail)?);
        }
        terms.retain(|plan| plan.estimate != u64::MAX);
        self.with_pending(number, &needs, partial(intersection(terms)))
    }

    /// Adds the entries whose substring keys are not in the index yet.
    fn with_pending(&self, number: AttributeNumber, needs: &[Need], plan: Plan) -> Result<Plan, Fault> {
        if needs.is_empty() || plan.estimate == u64::MAX {
            return Ok(plan);
        }
        let ids = pending::candidates(self.snapshot, number, needs)?;
        if ids.is_empty() {
            return Ok(plan);
        }
        let estimate = ids.len() as u64;
        Ok(plan.or(Plan::new(Node::Pending(ids), estimate, Exactness::Partial)))
    }

    /// The keys of values that begin so: of the head index, or of the equality index if its keys are the same.
    fn initial(&self, number: AttributeNumber, a: &BoundSubstrings, piece: &[u8]) -> Result<Plan, Fault> {
        if self.has(number, Kinds::INITIAL) {
            return self.prefix(number, KeyKind::Initial, substrings::head(piece));
        }
        let rule = self.catalog.row(number).and_then(|row| row.equality);
        if self.has(number, Kinds::EQUALITY) && rule.is_some_and(|rule| rule.shares_keys_with(a.rule)) {
            return self.prefix(number, KeyKind::Equality, piece);
        }
        Ok(everything())
    }

    fn prefix(&self, number: AttributeNumber, kind: KeyKind, head: &[u8]) -> Result<Plan, Fault> {
        let mut low = Vec::new();
        key::put_prefix(&mut low, number, kind, head);
        let high = key::after_prefix(low.clone()).unwrap_or_default();
        self.range(low, high, Exactness::Partial)
    }

    fn range(&self, low: Vec<u8>, high: Vec<u8>, exactness: Exactness) -> Result<Plan, Fault> {
        if low >= high {
            return Ok(nothing());
        }
        let mut estimate = 0u64;
        let keys = self.snapshot.posting_keys(INDEX, KeyRange::between(&low, &high), Direction::Forward)?;
        for (count, row) in keys.enumerate() {
            if count >= RANGE_KEYS_LIMIT || self.keys.get() >= PLAN_KEYS_LIMIT {
                return Ok(everything());
            }
            self.keys.set(self.keys.get() + 1);
            estimate = estimate.saturating_add(row?.1);
        }
        Ok(Plan::new(Node::Range(low, high), estimate, exactness))
    }
}

fn everything() -> Plan {
    Plan::new(Node::Everything, u64::MAX, Exactness::All)
}

fn nothing() -> Plan {
    Plan::new(Node::Nothing, 0, Exactness::Exact)
}

fn partial(mut plan: Plan) -> Plan {
    plan.exactness = plan.exactness.max(Exactness::Partial);
    plan
}

/// The union of one plan.
fn alone(plan: Plan) -> Plan {
    match plan.estimate {
        u64::MAX => everything(),
        0 => nothing(),
        _ => plan,
    }
}

fn union(mut plans: Vec<Plan>) -> Plan {
    if plans.iter().any(|plan| plan.estimate == u64::MAX) {
        return everything();
    }
    let exactness = plans.iter().map(|plan| plan.exactness).max().unwrap_or(Exactness::Exact);
    plans.retain(|plan| plan.estimate > 0);
    match plans.len() {
        0 => nothing(),
        1 => Plan { exactness, proof: Proof::Nothing, ..plans.remove(0) },
        _ => {
            let estimate = plans.iter().fold(0u64, |sum, plan| sum.saturating_add(plan.estimate));
            if plans.len() > UNION_FEW && estimate > UNION_IDS_LIMIT {
                return everything();
            }
            Plan::new(Node::Union(plans), estimate, exactness)
        }
    }
}

fn intersection(mut plans: Vec<Plan>) -> Plan {
    plans.sort_by_key(|plan| plan.estimate);
    match plans.len() {
        0 => everything(),
        1 => plans.remove(0),
        _ => {
            let exactness = plans.iter().map(|plan| plan.exactness).max().unwrap_or(Exactness::Exact);
            let estimate = plans.first().map_or(0, |plan| plan.estimate);
            Plan::new(Node::Intersection(plans), estimate, exactness)
        }
    }
}

/// Lists are put together first and sorted once: one by one they would be gone through as often as there are plans.
fn read_union<S: Snapshot>(snapshot: &S, plans: &[Plan]) -> Result<(IdSet, Exactness), Fault> {
    let (mut list, mut set, mut read) = (Vec::new(), RoaringTreemap::new(), Exactness::Exact);
    for plan in plans {
        let found = plan.read(snapshot)?;
        read = read.max(found.exactness);
        match found.ids {
            IdSet::Everything => return Ok((IdSet::Everything, Exactness::All)),
            IdSet::List(ids) => list.extend(ids),
            IdSet::Set(ids) => set |= ids,
        }
        if list.len() > LIST_LIMIT {
            list.sort_unstable();
            list.dedup();
        }
        if list.len() > LIST_LIMIT {
            set.extend(list.drain(..));
        }
    }
    list.sort_unstable();
    list.dedup();
    if set.is_empty() {
        return Ok((IdSet::List(list), read));
    }
    set.extend(list);
    Ok((IdSet::Set(set), read))
}

/// Ascending ids as a set of the form that suits their number.
fn id_set(ids: Vec<u64>) -> IdSet {
    if ids.len() > LIST_LIMIT { IdSet::Set(ids.into_iter().collect()) } else { IdSet::List(ids) }
}

fn read_key<S: Snapshot>(snapshot: &S, key: &[u8], estimate: u64) -> Result<IdSet, Fault> {
    if estimate <= LIST_LIMIT as u64 {
        let mut ids = Vec::with_capacity(estimate as usize);
        let mut cursor = snapshot.postings(INDEX, key)?;
        while cursor.read(LIST_LIMIT, &mut ids)? {}
        return Ok(IdSet::List(ids));
    }
    Ok(IdSet::Set(snapshot.posting_set(INDEX, key)?))
}

fn read_range<S: Snapshot>(snapshot: &S, low: &[u8], high: &[u8]) -> Result<IdSet, Fault> {
    let mut all = RoaringTreemap::new();
    let mut ids = Vec::new();
    for row in snapshot.posting_keys(INDEX, KeyRange::between(low, high), Direction::Forward)? {
        let (key, _) = row?;
        let mut cursor = snapshot.postings(INDEX, &key)?;
        while cursor.read(LIST_LIMIT, &mut ids)? {}
        if ids.len() >= LIST_LIMIT {
            all.extend(ids.drain(..));
        }
    }
    if all.is_empty() {
        ids.sort_unstable();
        ids.dedup();
        return Ok(IdSet::List(ids));
    }
    all.extend(ids);
    Ok(IdSet::Set(all))
}

/// Those of the ids, so many, that the plan finds, too.
fn intersect<S: Snapshot>(
    snapshot: &S,
    found: Candidates,
    count: u64,
    plan: &Plan,
) -> Result<Candidates, Fault> {
    if let Node::Key(key, _) = &plan.node
        && count.saturating_mul(GALLOP) <= plan.estimate
    {
        let mut cursor = snapshot.postings(INDEX, key)?;
        let mut matching = Vec::new();
        let all: Box<dyn Iterator<Item = u64>> = match &found.ids {
            IdSet::Everything => return plan.read(snapshot),
            IdSet::List(list) => Box::new(list.iter().copied()),
            IdSet::Set(set) => Box::new(set.iter()),
        };
        for id in all {
            match cursor.seek(id)? {
                Some(next) if next == id => matching.push(id),
                Some(_) => {}
                None => break,
            }
        }
        return Ok(Candidates::new(IdSet::List(matching), found.exactness));
    }
    let other = plan.read(snapshot)?;
    let exactness = found.exactness.max(other.exactness);
    let ids = match (found.ids, other.ids) {
        (IdSet::Everything, other) => other,
        (ids, IdSet::Everything) => ids,
        (IdSet::List(mut list), other) => {
            list.retain(|id| other.contains(crate::entry::EntryId(*id)));
            IdSet::List(list)
        }
        (ids, IdSet::List(mut list)) => {
            list.retain(|id| ids.contains(crate::entry::EntryId(*id)));
            IdSet::List(list)
        }
        (IdSet::Set(a), IdSet::Set(b)) => IdSet::Set(a & b),
    };
    Ok(Candidates::new(ids, exactness))
}
