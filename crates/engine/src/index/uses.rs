//! What searches use indexes for, and which searches have none: the numbers behind `larix advise` and cn=Monitor.
//!
//! Every thread counts for itself, so that no two cores write to the same memory; the reader adds up. Memory is bounded:
//! counters by the number of attribute descriptions, shapes of searches by [`SHAPES_MAX`] a thread.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::{HashMap, HashMapExt};
use larix_schema::{Match, Schema};

use super::KeyKind;
use crate::entry::{AttributeNumber, Target};
use crate::filter::{Assertion, Filter};

/// Shapes of searches without an index that a thread remembers. A new one takes the place of the one seen least.
pub const SHAPES_MAX: usize = 128;
/// Bytes of a shape's filter, and of its base; longer ones are counted under [`LONG`].
pub(crate) const SHAPE_BYTES_MAX: usize = 512;
/// What stands for a filter or a base that is longer.
pub const LONG: &str = "...";
/// Databases that a thread remembers; more than one process serves.
const DATABASES_MAX: usize = 64;
/// Slots of an attribute number: one for each kind of key.
const KINDS: usize = 8;

/// How often an index of one kind was read for a search, and how many ids it gave, by its own estimate.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct IndexUse {
    pub kind: KeyKind,
    pub searches: u64,
    pub candidates: u64,
}

/// Searches alike that no index could serve: every entry was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotIndexed {
    /// The filter with `?` for each value, which parses as a filter; or [`LONG`].
    pub filter: String,
    /// The normalized base; or [`LONG`].
    pub base: String,
    /// How many there were; where a thread has met more than [`SHAPES_MAX`] shapes, at most so many.
    pub searches: u64,
}

/// The counters of one database.
#[derive(Debug, Default)]
pub struct IndexUses {
    shards: Mutex<Shards>,
}

#[derive(Debug, Default)]
struct Shards {
    live: Vec<Arc<Mutex<Shard>>>,
    /// Of threads that have ended.
    ended: Shard,
}

/// What one thread counted.
#[derive(Debug, Default)]
struct Shard {
    /// Searches and candidates by attribute number and kind.
    uses: Vec<(u64, u64)>,
    shapes: HashMap<(String, String), u64>,
    not_indexed: u64,
}

thread_local! {
    /// This thread's counters by the database's instance.
    static MINE: RefCell<Vec<(u64, Arc<Mutex<Shard>>)>> = const { RefCell::new(Vec::new()) };
}

impl IndexUses {
    /// Counts that these keys were read; `instance` is the database's.
    pub(crate) fn count(
        &self,
        instance: u64,
        keys: impl FnOnce(&mut dyn FnMut(AttributeNumber, KeyKind, u64)),
    ) {
        self.with_mine(instance, |shard| {
            keys(&mut |number, kind, candidates| {
                let at = number.0 as usize * KINDS + kind as usize;
                if shard.uses.len() <= at {
                    shard.uses.resize(at + KINDS, (0, 0));
                }
                if let Some((searches, sum)) = shard.uses.get_mut(at) {
                    *searches += 1;
                    *sum = sum.saturating_add(candidates);
                }
            });
        });
    }

    /// Counts a search that has to look at every entry, unless that is what it asks for.
    pub(crate) fn count_not_indexed(&self, instance: u64, schema: &Schema, filter: &Filter, base: &str) {
        if asks_for_all(schema, filter) {
            return;
        }
        let short = |text: String| if text.len() > SHAPE_BYTES_MAX { LONG.to_owned() } else { text };
        let shape = (short(shape(schema, filter)), short(base.to_owned()));
        self.with_mine(instance, |shard| {
            shard.not_indexed += 1;
            shard.count_shape(shape, 1);
        });
    }

    /// What was counted of an attribute description.
    pub fn of(&self, number: AttributeNumber) -> Vec<IndexUse> {
        let mut sums = [(0u64, 0u64); KINDS];
        self.visit(|shard| {
            let own = shard.uses.iter().skip(number.0 as usize * KINDS).take(KINDS);
            for (sum, (searches, candidates)) in sums.iter_mut().zip(own) {
                *sum = (sum.0 + searches, sum.1.saturating_add(*candidates));
            }
        });
        let kinds = sums.iter().enumerate().filter(|(_, (searches, _))| *searches > 0);
        kinds
            .filter_map(|(kind, &(searches, candidates))| {
                let kind = KeyKind::from_byte(u8::try_from(kind).ok()?)?;
                Some(IndexUse { kind, searches, candidates })
            })
            .collect()
    }

    /// Searches without an index, the most frequent first.
    pub fn not_indexed(&self) -> Vec<NotIndexed> {
        let mut all = Shard::default();
        self.visit(|shard| {
            for (shape, count) in &shard.shapes {
                *all.shapes.entry(shape.clone()).or_default() += count;
            }
        });
        let mut list: Vec<NotIndexed> = all
            .shapes
            .into_iter()
            .map(|((filter, base), searches)| NotIndexed { filter, base, searches })
            .collect();
        list.sort_unstable_by(|a, b| {
            b.searches.cmp(&a.searches).then_with(|| (&a.filter, &a.base).cmp(&(&b.filter, &b.base)))
        });
        list
    }

    /// How many searches had no index.
    pub fn not_indexed_total(&self) -> u64 {
        let mut sum = 0;
        self.visit(|shard| sum += shard.not_indexed);
        sum
    }

    fn with_mine(&self, instance: u64, use_it: impl FnOnce(&mut Shard)) {
        MINE.with_borrow_mut(|mine| {
            let at = match mine.iter().position(|(other, _)| *other == instance) {
                Some(at) => at,
                None => {
                    // No other thread has those of closed databases any more.
                    mine.retain(|(_, shard)| Arc::strong_count(shard) > 1);
                    if mine.len() >= DATABASES_MAX {
                        mine.clear();
                    }
                    mine.push((instance, self.new_shard()));
                    mine.len() - 1
                }
            };
            if let Some((_, shard)) = mine.get(at) {
                // Others take it only to read, now and then.
                use_it(&mut lock(shard));
            }
        });
    }

    fn new_shard(&self) -> Arc<Mutex<Shard>> {
        let shard = Arc::<Mutex<Shard>>::default();
        let mut shards = lock(&self.shards);
        shards.fold_ended();
        shards.live.push(Arc::clone(&shard));
        shard
    }

    fn visit(&self, mut look: impl FnMut(&Shard)) {
        let mut shards = lock(&self.shards);
        shards.fold_ended();
        look(&shards.ended);
        shards.live.iter().for_each(|shard| look(&lock(shard)));
    }
}

impl Shards {
    fn fold_ended(&mut self) {
        let Self { live, ended } = self;
        live.retain(|shard| {
            let is_live = Arc::strong_count(shard) > 1;
            if !is_live {
                ended.take(&lock(shard));
            }
            is_live
        });
    }
}

impl Shard {
    fn count_shape(&mut self, shape: (String, String), times: u64) {
        if let Some(count) = self.shapes.get_mut(&shape) {
            *count += times;
            return;
        }
        let mut before = 0;
        if self.shapes.len() >= SHAPES_MAX {
            // What is rare gives way; its count goes on, so that what is frequent always comes through.
            let least = self.shapes.iter().min_by_key(|(_, count)| **count);
            if let Some((least, count)) = least.map(|(shape, count)| (shape.clone(), *count)) {
                before = count;
                self.shapes.remove(&least);
            }
        }
        self.shapes.insert(shape, before + times);
    }

    fn take(&mut self, other: &Self) {
        if self.uses.len() < other.uses.len() {
            self.uses.resize(other.uses.len(), (0, 0));
        }
        for (sum, more) in self.uses.iter_mut().zip(&other.uses) {
            *sum = (sum.0 + more.0, sum.1.saturating_add(more.1));
        }
        if self.shapes.capacity() == 0 {
            self.shapes = HashMap::with_capacity(SHAPES_MAX);
        }
        other.shapes.iter().for_each(|(shape, count)| self.count_shape(shape.clone(), *count));
        self.not_indexed += other.not_indexed;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counters are whole whatever happens.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a filter asks for everything: then no index is missing.
fn asks_for_all(schema: &Schema, filter: &Filter) -> bool {
    match filter {
        Filter::Constant(Match::True) => true,
        Filter::And(list) => list.iter().all(|filter| asks_for_all(schema, filter)),
        Filter::Test(test) => match test.assertion {
            Assertion::Everywhere => true,
            Assertion::Present => test
                .target
                .description()
                .is_some_and(|d| schema.attribute(d.attribute).name() == "objectClass"),
            _ => false,
        },
        _ => false,
    }
}

/// The filter with `?` for each value (RFC 4515).
pub fn shape(schema: &Schema, filter: &Filter) -> String {
    let mut out = String::new();
    put_shape(schema, filter, &mut out);
    out
}

fn put_shape(schema: &Schema, filter: &Filter, out: &mut String) {
    if out.len() > SHAPE_BYTES_MAX {
        return;
    }
    let list = |sign: &str, list: &[Filter], out: &mut String| {
        out.push('(');
        out.push_str(sign);
        list.iter().for_each(|filter| put_shape(schema, filter, out));
        out.push(')');
    };
    match filter {
        // RFC 4526; what is Undefined matches nothing either.
        Filter::Constant(Match::True) => out.push_str("(&)"),
        Filter::Constant(_) => out.push_str("(|)"),
        Filter::And(all) => list("&", all, out),
        Filter::Or(all) => list("|", all, out),
        Filter::Not(inner) => list("!", std::slice::from_ref(inner), out),
        Filter::Test(test) => {
            let name = name(schema, &test.target);
            // A String takes everything.
            let _ = match &test.assertion {
                Assertion::Present | Assertion::Everywhere => write!(out, "({name}=*)"),
                Assertion::Equality(_) | Assertion::EntryDn(_) | Assertion::HasSubordinates(_) => {
                    write!(out, "({name}=?)")
                }
                Assertion::Approx(_) => write!(out, "({name}~=?)"),
                Assertion::GreaterOrEqual(_) => write!(out, "({name}>=?)"),
                Assertion::LessOrEqual(_) => write!(out, "({name}<=?)"),
                Assertion::Substrings(a) => {
                    let initial = if a.initial.is_some() { "?" } else { "" };
                    let middle = if a.any.is_empty() { "" } else { "?*" };
                    let last = if a.final_.is_some() { "?" } else { "" };
                    write!(out, "({name}={initial}*{middle}{last})")
                }
                Assertion::InChain(chain) => write!(out, "({name}:{}:=?)", chain.assertion.rule.oid),
                Assertion::Extensible(a) => {
                    let dn = if a.dn_attributes { ":dn" } else { "" };
                    write!(out, "({name}{dn}:{}:=?)", a.rule.oid)
                }
            };
        }
    }
}

fn name(schema: &Schema, target: &Target) -> String {
    target.description().map_or_else(String::new, |description| description.to_text(schema))
}

#[cfg(test)]
mod tests {
    use larix_proto::FilterBuf;

    use super::*;
    use crate::catalog::Catalog;
    use crate::fixture::schema;

    fn filter(text: &str) -> Filter {
        let text = FilterBuf::parse(text).expect(text);
        Filter::new(&schema(), &Catalog::default(), schema().bind_filter(text.as_filter()))
    }

    #[test]
    fn shapes_hide_values_and_parse() {
        for (text, expected) in [
            ("(cn=Ann)", "(cn=?)"),
            ("(&(uidNumber>=5)(!(cn~=x)))", "(&(uidNumber>=?)(!(cn~=?)))"),
            ("(|(cn=a*b*c*d)(cn=*b*)(cn=a*)(cn=*d))", "(|(cn=?*?*?)(cn=*?*)(cn=?*)(cn=*?))"),
            ("(mail=*)", "(mail=*)"),
            ("(cn:dn:caseExactMatch:=x)", "(cn:dn:2.5.13.5:=?)"),
            ("(nobody=knows)", "(|)"),
        ] {
            let shape = shape(&schema(), &filter(text));
            assert_eq!(shape, expected, "{text}");
            assert!(FilterBuf::parse(&shape).is_ok(), "{shape}");
        }
    }

    #[test]
    fn threads_add_up_and_memory_is_bounded() {
        let uses = IndexUses::default();
        let (one, number) = (7, AttributeNumber(300));
        let count = || uses.count(one, |put| put(number, KeyKind::Equality, 10));
        count();
        std::thread::scope(|scope| {
            scope.spawn(|| (count(), count()));
        });
        count();
        assert_eq!(uses.of(number), [IndexUse { kind: KeyKind::Equality, searches: 4, candidates: 40 }]);
        assert_eq!(uses.of(AttributeNumber(2)), []);
        let schema = schema();
        for round in 0..3 * SHAPES_MAX {
            for base in ["dc=often".to_owned(), format!("dc=x{round}")] {
                uses.count_not_indexed(one, &schema, &filter("(cn=x)"), &base);
            }
        }
        for all in ["(objectClass=*)", "(&(objectClass=*)(entryDN=*))"] {
            uses.count_not_indexed(one, &schema, &filter(all), "dc=often");
        }
        uses.count_not_indexed(one, &schema, &filter("(cn=x)"), &"x".repeat(SHAPE_BYTES_MAX + 1));
        let shapes = uses.not_indexed();
        assert_eq!(shapes.len(), SHAPES_MAX);
        assert!(shapes.iter().any(|shape| shape.base == LONG));
        let often = shapes.first().expect("a shape");
        assert_eq!((often.filter.as_str(), often.base.as_str()), ("(cn=?)", "dc=often"));
        assert_eq!(often.searches, 3 * SHAPES_MAX as u64);
        assert_eq!(uses.not_indexed_total(), 6 * SHAPES_MAX as u64 + 1);
    }
}
