//! Which indexes a filter lacks, and what an index would cost: what `larix advise` is made from.

use std::collections::{BTreeMap, HashSet};

use larix_proto::{Filter, FilterNode};
use larix_schema::{AttributeDescription, AttributeType, Schema};
use larix_store::{Direction, KeyRange, Snapshot};

use crate::catalog::Catalog;
use crate::database::View;
use crate::entry::{EntryId, Target};
use crate::fault::Fault;
use crate::index::{Kinds, keys};
use crate::tables::ENTRIES;

/// Indexes by the description that their line would name.
pub type Lines = BTreeMap<String, Kinds>;

/// What can be done for searches with a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Indexes that there are, or lines for them, answer it.
    Indexed(Lines),
    /// With these the planner need not look at every entry.
    Lacks(Lines),
    /// No index would: it asks for everything, or for what something is not.
    Hopeless,
}

/// What would have to be there for the planner not to look at every entry. Index lines count whether they are complete
/// or not. Values do not matter: they may have been left out.
pub fn advise(schema: &Schema, catalog: &Catalog, filter: Filter<'_>) -> Advice {
    let test = |attribute: &str, options: &dyn Fn(&AttributeType) -> Vec<Kinds>| {
        advise_test(schema, catalog, attribute, options)
    };
    let equality = |attribute: &AttributeType| {
        let rule = attribute.equality.filter(|rule| rule.indexable_equality());
        rule.map(|_| Kinds::EQUALITY).into_iter().collect::<Vec<_>>()
    };
    match filter.node() {
        FilterNode::Not(_) => Advice::Hopeless,
        FilterNode::And(set) => {
            let all: Vec<Advice> = set.iter().map(|filter| advise(schema, catalog, filter)).collect();
            // One index is enough for the planner to begin with: the one that is there, or the cheapest.
            let indexed = all.iter().find(|advice| matches!(advice, Advice::Indexed(_)));
            let lacking = all.iter().filter(|advice| matches!(advice, Advice::Lacks(_)));
            indexed
                .or_else(|| lacking.min_by_key(|advice| price(advice)))
                .cloned()
                .unwrap_or(Advice::Hopeless)
        }
        FilterNode::Or(set) => {
            let (mut used, mut lacking) = (Lines::new(), Lines::new());
            for filter in set.iter() {
                match advise(schema, catalog, filter) {
                    Advice::Indexed(lines) => merge(&mut used, &lines),
                    Advice::Lacks(lines) => merge(&mut lacking, &lines),
                    Advice::Hopeless => return Advice::Hopeless,
                }
            }
            if lacking.is_empty() { Advice::Indexed(used) } else { Advice::Lacks(lacking) }
        }
        FilterNode::Present(attribute) => test(attribute, &|attribute| match attribute.name() {
            "objectClass" => Vec::new(),
            _ => vec![Kinds::PRESENCE],
        }),
        FilterNode::Equality(ava) => test(ava.attribute, &equality),
        FilterNode::GreaterOrEqual(ava) | FilterNode::LessOrEqual(ava) => test(ava.attribute, &equality),
        FilterNode::Approx(ava) => test(ava.attribute, &|attribute| {
            let rule = attribute.equality.filter(|rule| rule.indexable_approx());
            rule.map(|_| Kinds::APPROX).into_iter().collect()
        }),
        FilterNode::Substrings(parts) => test(parts.attribute, &|attribute| {
            let Some(rule) = attribute.substring else { return Vec::new() };
            let mut options = Vec::new();
            if parts.initial.is_some() {
                options.push(Kinds::INITIAL);
                // A head that is found among the keys for equality needs no index of its own.
                if attribute.equality.is_some_and(|equality| equality.shares_keys_with(rule)) {
                    options.push(Kinds::EQUALITY);
                }
            }
            if parts.final_.is_some() {
                options.push(Kinds::FINAL);
            }
            options.push(Kinds::ANY);
            options
        }),
        FilterNode::Extensible(_) | FilterNode::Unknown(_) => Advice::Hopeless,
    }
}

/// Adds kinds to lines.
pub fn merge(lines: &mut Lines, more: &Lines) {
    for (name, kinds) in more {
        let known = lines.entry(name.clone()).or_default();
        *known = known.or(*kinds);
    }
}

/// An equality index has one key for a value, one by sound some, one by substrings dozens.
fn price(advice: &Advice) -> u32 {
    let of = |kinds: &Kinds| match *kinds {
        Kinds::EQUALITY => 2,
        kinds if kinds.intersects(Kinds::SUBSTRINGS) => 30,
        Kinds::PRESENCE => 10,
        _ => 5,
    };
    match advice {
        Advice::Lacks(lines) => lines.values().map(of).sum(),
        _ => 0,
    }
}

/// Any one of the kinds in `options` is enough.
fn advise_test(
    schema: &Schema,
    catalog: &Catalog,
    attribute: &str,
    options: &dyn Fn(&AttributeType) -> Vec<Kinds>,
) -> Advice {
    // What the schema does not know is found nowhere, without a look.
    let Ok(description) = schema.describe(attribute) else { return Advice::Indexed(Lines::new()) };
    let options = options(schema.attribute(description.attribute));
    let target = Target::new(schema, catalog, description.clone());
    // An attribute that no entry ever had needs no index to be found nowhere.
    let wanted = |kinds: Kinds| {
        let mut numbers = target.numbers.as_slice().iter();
        numbers.all(|number| catalog.row(*number).is_some_and(|row| row.wanted.has(kinds)))
    };
    let line = |kinds| Lines::from([(description.to_text(schema), kinds)]);
    match (options.iter().copied().find(|kinds| wanted(*kinds)), options.first()) {
        (Some(kinds), _) => Advice::Indexed(line(kinds)),
        // What is looked for here may be looked for elsewhere in the value the next time.
        (None, Some(kinds)) if kinds.intersects(Kinds::SUBSTRINGS) => Advice::Lacks(line(Kinds::SUBSTRINGS)),
        (None, Some(kinds)) => Advice::Lacks(line(*kinds)),
        (None, None) => Advice::Hopeless,
    }
}

/// What an index would take, from a sample of the entries.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexCost {
    /// Entries looked at, and those that have the attribute.
    pub sampled: u64,
    pub having: u64,
    /// Keys of all of them, how many differ, and the bytes of those.
    pub keys: u64,
    pub different: u64,
    pub key_bytes: u64,
}

/// A posting takes a byte or two in a block, a key its block's head and the tree's entry beside its bytes.
const POSTING_BYTES: u64 = 2;
const KEY_OVERHEAD: u64 = 24;

impl IndexCost {
    /// Bytes an entry, over all entries, about.
    pub fn bytes_per_entry(&self) -> u64 {
        let bytes = self.keys * POSTING_BYTES + self.key_bytes + self.different * KEY_OVERHEAD;
        bytes.div_ceil(self.sampled.max(1))
    }

    /// Index keys that an entry with the attribute has, about: what adding it writes.
    pub fn keys_per_entry(&self) -> u64 {
        self.keys.div_ceil(self.having.max(1))
    }
}

/// Samples about `most` entries, spread over all ids, for what an index of these kinds would hold.
///
/// # Errors
/// A store or an entry that cannot be read.
pub fn cost<N: Snapshot>(
    view: &View<'_, N>,
    description: &AttributeDescription,
    kinds: Kinds,
    most: u64,
) -> Result<IndexCost, Fault> {
    let target = Target::new(&view.schema, &view.catalog, description.clone());
    let last = view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Backward)?.next().transpose()?;
    let last = last.and_then(|(id, _)| EntryId::from_prefix(&id)).unwrap_or(EntryId::ROOT).0;
    let step = (last / most.max(1)).max(1);
    let (mut cost, mut seen) = (IndexCost::default(), HashSet::new());
    let mut from = 1u64;
    while from <= last {
        let start = from.to_be_bytes();
        let next = view.snapshot.scan(ENTRIES, KeyRange::at_least(&start), Direction::Forward)?.next();
        let Some((id, record)) = next.transpose()? else { break };
        let id = EntryId::from_prefix(&id).ok_or(Fault::Damaged { what: "an entry id" })?;
        let record = view.unpacked(id, record)?;
        let reader = view.reader(id, &record)?;
        cost.sampled += 1;
        let mut has = false;
        for number in target.numbers.as_slice() {
            let (Some(stored), Some(row)) = (reader.view.get(*number)?, view.catalog.row(*number)) else {
                continue;
            };
            has = true;
            for key in keys::stored_attribute_keys(&view.schema, row, kinds, &reader, &stored)? {
                cost.keys += 1;
                let length = key.len() as u64;
                if seen.insert(key.into_vec()) {
                    cost.different += 1;
                    cost.key_bytes += length;
                }
            }
        }
        cost.having += u64::from(has);
        from = id.0.saturating_add(step);
    }
    Ok(cost)
}

#[cfg(test)]
mod tests {
    use larix_proto::FilterBuf;
    use larix_store::Store;

    use super::*;
    use crate::fixture::{Fixture, SUFFIX, schema};

    fn directory() -> Fixture<larix_store::memory::MemoryStore> {
        let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
        for i in 0..40 {
            ldif.push_str(&format!(
                "\ndn: cn=p{i},{SUFFIX}\nobjectClass: inetOrgPerson\ncn: p{i}\nsn: s\ntitle: t{i}\nmail: m{i}@x\n"
            ));
        }
        Fixture::memory(&[("cn", "eq"), ("title", "sub")], &ldif)
    }

    #[test]
    fn what_filters_lack() {
        let fixture = directory();
        let catalog = fixture.database.catalog();
        for (filter, expected) in [
            ("(cn=x)", "has cn eq"),
            ("(cn=x*)", "has cn eq"),
            ("(cn=*x*)", "lacks cn sub"),
            ("(title=*x*)", "has title subany"),
            ("(sn=x)", "lacks sn eq"),
            ("(sn>=x)", "lacks sn eq"),
            ("(&(uidNumber>=?)(mail=*x*))", "has uidNumber eq"),
            ("(sn~=x)", "lacks sn approx"),
            ("(mail=*)", "lacks mail pres"),
            ("(&(sn=x)(cn=y))", "has cn eq"),
            ("(&(objectClass=*)(mail=*x*)(sn=x))", "lacks sn eq"),
            ("(|(sn=x)(cn=y)(mail=*x*))", "lacks mail sub, sn eq"),
            ("(|(sn=x)(!(cn=y)))", "hopeless"),
            ("(objectClass=*)", "hopeless"),
            ("(!(sn=x))", "hopeless"),
            ("(description=x)", "has description eq"),
            ("(nobody=x)", "has "),
        ] {
            let text = FilterBuf::parse(filter).unwrap();
            let show = |lines: Lines| {
                lines.iter().map(|(name, kinds)| format!("{name} {kinds}")).collect::<Vec<_>>().join(", ")
            };
            let advice = match advise(&schema(), &catalog, text.as_filter()) {
                Advice::Indexed(lines) => format!("has {}", show(lines)),
                Advice::Lacks(lines) => format!("lacks {}", show(lines)),
                Advice::Hopeless => "hopeless".to_owned(),
            };
            assert_eq!(advice, expected, "{filter}");
        }
    }

    #[test]
    fn costs_are_counted_from_a_sample() {
        let fixture = directory();
        let snapshot = fixture.database.store().snapshot().unwrap();
        let view = fixture.database.view(&snapshot).unwrap();
        let of = |name: &str, kinds: Kinds, most: u64| {
            cost(&view, &schema().describe(name).unwrap(), kinds, most).unwrap()
        };
        let all = of("mail", Kinds::EQUALITY, 1000);
        assert_eq!((all.sampled, all.having, all.keys, all.different), (41, 40, 40, 40));
        let same = of("sn", Kinds::EQUALITY, 1000);
        assert_eq!((same.keys, same.different, same.keys_per_entry()), (40, 1, 1));
        assert!(of("mail", Kinds::SUBSTRINGS, 1000).keys_per_entry() > 4);
        let few = of("mail", Kinds::EQUALITY, 10);
        assert!((5..=20).contains(&few.sampled), "{few:?}");
        assert_eq!(of("description", Kinds::EQUALITY, 10).having, 0);
    }
}
