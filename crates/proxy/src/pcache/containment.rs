//! Whether what one search finds is among what another one has found.

use larix_proto::{DerefAliases, Scope};
use larix_schema::{BoundAssertion, BoundFilter, BoundSubstrings, Match, NormalDn, Schema, Scratch};

/// Where a search looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) base: NormalDn,
    pub(super) scope: Scope,
    pub(super) deref: DerefAliases,
}

impl Region {
    /// Whether all entries of the other one are entries of this one.
    pub(super) fn has(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        // Aliases may lead anywhere.
        if self.deref != DerefAliases::Never || other.deref != DerefAliases::Never {
            return false;
        }
        let (same, below) = (self.base == other.base, other.base.is_descendant_of(&self.base));
        match (self.scope, other.scope) {
            (Scope::Subtree, _) => same || below,
            (Scope::Children, Scope::OneLevel | Scope::Children) => same || below,
            (Scope::Children, _) => below,
            (Scope::OneLevel, Scope::Base) => other.base.parent().as_ref() == Some(&self.base),
            _ => false,
        }
    }

    /// Whether a change of this entry, or of what is below it, may change what is found.
    pub(super) fn may_see(&self, dn: &NormalDn) -> bool {
        self.deref != DerefAliases::Never || dn.is_within(&self.base) || self.base.is_within(dn)
    }
}

/// Whether every entry that `requested` is true of is one that `cached` is true of, for two filters of one template.
pub(super) fn has(schema: &Schema, cached: &BoundFilter, requested: &BoundFilter) -> bool {
    match (cached, requested) {
        (BoundFilter::And(cached), BoundFilter::And(requested))
        | (BoundFilter::Or(cached), BoundFilter::Or(requested)) => {
            cached.len() == requested.len()
                && cached.iter().zip(requested).all(|(cached, requested)| has(schema, cached, requested))
        }
        // What is more on the inside is less on the outside.
        (BoundFilter::Not(cached), BoundFilter::Not(requested)) => has(schema, requested, cached),
        (BoundFilter::Present(cached), BoundFilter::Present(requested)) => cached == requested,
        (BoundFilter::Equality(cached), BoundFilter::Equality(requested))
        | (BoundFilter::Approx(cached), BoundFilter::Approx(requested)) => {
            is_same(cached, requested) && cached.value.key() == requested.value.key()
        }
        // The order of keys is the order of values.
        (BoundFilter::GreaterOrEqual(cached), BoundFilter::GreaterOrEqual(requested)) => {
            is_same(cached, requested) && requested.value.key() >= cached.value.key()
        }
        (BoundFilter::LessOrEqual(cached), BoundFilter::LessOrEqual(requested)) => {
            is_same(cached, requested) && requested.value.key() <= cached.value.key()
        }
        (BoundFilter::Substrings(cached), BoundFilter::Substrings(requested)) => {
            cached.description == requested.description
                && cached.rule == requested.rule
                && has_parts(cached, requested)
        }
        (BoundFilter::Substrings(cached), BoundFilter::Equality(requested)) => {
            cached.description == requested.description
                && compares_alike(cached.rule.name, requested.rule.name)
                && cached.matches(schema, requested.value.raw(), &mut Scratch::default()) == Match::True
        }
        _ => false,
    }
}

fn is_same(one: &BoundAssertion, other: &BoundAssertion) -> bool {
    one.description == other.description && one.rule == other.rule
}

/// Whether equal values have equal parts: `caseIgnoreSubstringsMatch` and `caseIgnoreMatch`.
fn compares_alike(substrings: &str, equality: &str) -> bool {
    let family = substrings.strip_suffix("SubstringsMatch");
    family.is_some() && family == equality.strip_suffix("Match")
}

/// Whether every value with the parts of `requested` has those of `cached`.
fn has_parts(cached: &BoundSubstrings, requested: &BoundSubstrings) -> bool {
    fn ends<'a>(
        cached: Option<&[u8]>,
        requested: Option<&'a [u8]>,
        strip: fn(&'a [u8], &[u8]) -> Option<&'a [u8]>,
    ) -> Option<&'a [u8]> {
        match (cached, requested) {
            (None, requested) => Some(requested.unwrap_or_default()),
            (Some(cached), Some(requested)) => strip(requested, cached),
            (Some(_), None) => None,
        }
    }
    // A piece of spaces alone is between two words, where no value ends.
    if requested.has_spaces_at_ends() && cached.any.iter().any(|piece| **piece == *b" ") {
        return cached == requested;
    }
    let first = ends(cached.initial.as_deref(), requested.initial.as_deref(), |requested, cached| {
        requested.strip_prefix(cached)
    });
    let last = ends(cached.final_.as_deref(), requested.final_.as_deref(), |requested, cached| {
        requested.strip_suffix(cached)
    });
    let (Some(first), Some(last)) = (first, last) else { return false };
    let mut pieces = std::iter::once(first).chain(requested.any.iter().map(|part| &**part)).chain([last]);
    let mut here = pieces.next().unwrap_or_default();
    for needle in &cached.any {
        here = loop {
            if let Some(at) = memchr::memmem::find(here, needle) {
                break here.get(at + needle.len()..).unwrap_or_default();
            }
            match pieces.next() {
                Some(next) => here = next,
                None => return false,
            }
        };
    }
    true
}

/// Whether a filter finds more than equal filters ask for.
pub(super) fn is_wide(filter: &BoundFilter) -> bool {
    match filter {
        BoundFilter::And(parts) | BoundFilter::Or(parts) => parts.iter().any(is_wide),
        BoundFilter::Not(part) => is_wide(part),
        BoundFilter::Substrings(_) | BoundFilter::GreaterOrEqual(_) | BoundFilter::LessOrEqual(_) => true,
        _ => false,
    }
}

/// The values of a filter: those of two filters of one template are the same if the filters are.
pub(super) fn values(filter: &BoundFilter, out: &mut Vec<u8>) {
    let mut add = |kind: u8, value: &[u8]| {
        out.push(kind);
        out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(value);
    };
    match filter {
        BoundFilter::And(parts) | BoundFilter::Or(parts) => parts.iter().for_each(|part| values(part, out)),
        BoundFilter::Not(part) => values(part, out),
        BoundFilter::Equality(item)
        | BoundFilter::Approx(item)
        | BoundFilter::GreaterOrEqual(item)
        | BoundFilter::LessOrEqual(item) => add(b'=', item.value.key()),
        BoundFilter::Substrings(item) => {
            item.initial.iter().for_each(|part| add(b'<', part));
            item.any.iter().for_each(|part| add(b'*', part));
            item.final_.iter().for_each(|part| add(b'>', part));
            add(b'.', b"");
        }
        _ => add(b'-', b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcache::template::tests::schema;
    use larix_proto::FilterBuf;

    #[test]
    fn a_cached_filter_contains_narrower_ones() {
        let schema = schema();
        let bound = |text: &str| schema.bind_filter(FilterBuf::parse(text).unwrap().as_filter());
        for (cached, requested, expected) in [
            ("(sn=Smith)", "(sn=SMITH)", true),
            ("(sn=Smith)", "(sn=Smithe)", false),
            ("(sn=Smith*)", "(sn=smith)", true),
            ("(sn=Smith*)", "(sn=Smithson*)", true),
            ("(sn=Smith*)", "(sn=Smi*)", false),
            ("(sn=Smith*)", "(sn=*Smith*)", false),
            ("(sn=*Smith*)", "(sn=Smith*)", true),
            ("(sn=*Smith*)", "(sn=*Smith)", true),
            ("(sn=*a*b*)", "(sn=*xay*zbz*)", true),
            ("(sn=*a*b*)", "(sn=*ab*)", true),
            ("(sn=*a*b*)", "(sn=*b*a*)", false),
            ("(sn=*a*a*)", "(sn=*a*)", false),
            ("(sn=*a*a*)", "(sn=*a*a*)", true),
            ("(sn=*ab*)", "(sn=*a*b*)", false),
            ("(sn=a*c)", "(sn=abc)", true),
            ("(sn=a*a)", "(sn=a)", false),
            ("(sn=a*c)", "(sn=ab*bc)", true),
            ("(sn=a*b*)", "(sn=ab*)", true),
            ("(sn=a*ab*)", "(sn=ab*)", false),
            ("(sn=*a*)", "(sn=b*a)", true),
            // `a` is true of the second alone.
            ("(sn=* *)", "(sn=a *)", false),
            ("(sn=* *)", "(sn=a b*)", true),
            ("(sn=* *)", "(sn=* *)", true),
            ("(sn=a * *)", "(sn=a * *)", true),
            ("(sn=a*)", "(sn=a *)", true),
            ("(sn=a *)", "(sn=a b*)", true),
            ("(sn=a *)", "(sn=a*)", false),
            ("(createTimestamp>=20200101000000Z)", "(createTimestamp>=20210101000000Z)", true),
            ("(createTimestamp>=20200101000000Z)", "(createTimestamp>=20190101000000Z)", false),
            ("(createTimestamp<=20200101000000Z)", "(createTimestamp<=20190101000000Z)", true),
            ("(createTimestamp<=20200101000000Z)", "(createTimestamp<=20210101000000Z)", false),
            ("(&(sn=a*)(cn=b*))", "(&(sn=ab)(cn=bc))", true),
            ("(&(sn=a*)(cn=b*))", "(&(sn=ab)(cn=c))", false),
            ("(|(sn=a*)(cn=b*))", "(|(sn=ab)(cn=bc*))", true),
            ("(|(sn=a*)(cn=b*))", "(|(sn=ab)(cn=c))", false),
            ("(!(sn=a*))", "(!(sn=ab))", false),
            ("(!(sn=ab))", "(!(sn=a*))", true),
            ("(sn=*)", "(sn=*)", true),
            ("(sn~=a)", "(sn~=b)", false),
        ] {
            assert_eq!(has(&schema, &bound(cached), &bound(requested)), expected, "{cached} {requested}");
        }
    }

    /// Whatever is said to be contained is found by both.
    #[test]
    fn what_is_contained_matches() {
        let schema = schema();
        let description = schema.describe("sn").unwrap();
        let mut texts = vec![String::new()];
        for length in 1..=4 {
            let all: Vec<String> = texts.iter().filter(|text| text.len() == length - 1).cloned().collect();
            texts.extend(all.iter().flat_map(|text| ["a", "b"].map(|letter| format!("{text}{letter}"))));
        }
        let parts = ["", "a", "b", "ab", "ba"];
        let mut filters = Vec::new();
        for first in parts {
            for middle in parts {
                for last in parts {
                    let middle = if middle.is_empty() { String::new() } else { format!("{middle}*") };
                    if let Ok(filter) = FilterBuf::parse(&format!("(sn={first}*{middle}{last})")) {
                        filters.push(schema.bind_filter(filter.as_filter()));
                    }
                }
            }
        }
        let matches = |filter: &BoundFilter, text: &str| match filter {
            BoundFilter::Substrings(item) => {
                assert_eq!(item.description, description);
                item.matches(&schema, text.as_bytes(), &mut Scratch::default()) == Match::True
            }
            _ => true,
        };
        let mut contained = 0;
        for cached in &filters {
            for requested in filters.iter().filter(|requested| has(&schema, cached, requested)) {
                contained += 1;
                for text in texts.iter().filter(|text| !text.is_empty() && matches(requested, text)) {
                    assert!(matches(cached, text), "{cached:?} {requested:?} {text}");
                }
            }
        }
        assert!(contained > filters.len());
    }

    #[test]
    fn a_cached_region_contains_narrower_ones() {
        let schema = schema();
        let region = |base: &str, scope| Region {
            base: schema.parse_dn(base).unwrap(),
            scope,
            deref: DerefAliases::Never,
        };
        use Scope::{Base, Children, OneLevel, Subtree};
        for (cached, requested, expected) in [
            (("o=x", Subtree), ("o=x", Subtree), true),
            (("o=x", Subtree), ("ou=a,o=x", Subtree), true),
            (("o=x", Subtree), ("ou=a,o=x", Base), true),
            (("o=x", Subtree), ("o=x", OneLevel), true),
            (("ou=a,o=x", Subtree), ("o=x", Subtree), false),
            (("o=x", OneLevel), ("o=x", OneLevel), true),
            (("o=x", OneLevel), ("o=x", Subtree), false),
            (("o=x", OneLevel), ("ou=a,o=x", Base), true),
            (("o=x", OneLevel), ("o=x", Base), false),
            (("o=x", OneLevel), ("cn=b,ou=a,o=x", Base), false),
            (("o=x", Base), ("o=x", Base), true),
            (("o=x", Base), ("ou=a,o=x", Base), false),
            (("o=x", Children), ("o=x", OneLevel), true),
            (("o=x", Children), ("o=x", Base), false),
            (("o=x", Children), ("o=x", Subtree), false),
            (("o=x", Children), ("ou=a,o=x", Subtree), true),
            (("o=x", Subtree), ("o=xx", Subtree), false),
        ] {
            assert_eq!(
                region(cached.0, cached.1).has(&region(requested.0, requested.1)),
                expected,
                "{cached:?} {requested:?}"
            );
        }
        let follows = Region { deref: DerefAliases::Always, ..region("o=x", Subtree) };
        assert!(follows.has(&follows) && !follows.has(&region("o=x", Subtree)));
        let dn = |text: &str| schema.parse_dn(text).unwrap();
        assert!(region("ou=a,o=x", Base).may_see(&dn("o=x")));
        assert!(region("ou=a,o=x", Subtree).may_see(&dn("cn=c,ou=a,o=x")));
        assert!(!region("ou=a,o=x", Subtree).may_see(&dn("ou=b,o=x")));
    }
}
