//! Rules and clauses that can never match, found by comparing them with those before. Every finding is true; not all
//! such rules are found.

use larix_schema::NormalDn;

use super::compile::{
    CompiledClause, CompiledCondition, CompiledRule, CompiledSet, CompiledTarget, CompiledWho,
};
use super::items::{Selector, selector};
use super::policy::AccessPolicy;
use super::rule::{AccessRule, DnScope, FlowControl, Identity, ValueStyle, What, Who};
use super::sets::Set;

/// So many rules or clauses before one are compared with it, so that the work is in proportion to the text.
const COMPARED_MAX: usize = 1_000;

/// Something that can never match. Rules and clauses are counted from 0, frontend rules behind the database's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeverMatches {
    pub rule: usize,
    /// `None`: the whole rule.
    pub clause: Option<usize>,
    pub because: Because,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// The rule of this number speaks about all of it, and ends there.
    CoveredByRule(usize),
    /// The clause of this number, as written, applies to all of its requesters, and ends there.
    CoveredByClause(usize, String),
    /// No attribute is selected.
    NoAttributes,
    /// The entry, or subtree, is in no suffix of the database.
    OutsideOfDatabase,
    /// Its `val.regex` asks for spaces or hyphens that no normal form of a value has.
    NoNormalForm,
    /// The set cannot be understood.
    BadSet(String),
}

impl AccessPolicy {
    /// What of the rules can never match. `suffixes` are those of the database that the rules are for, or none.
    pub fn never_matching(&self, suffixes: &[NormalDn]) -> Vec<NeverMatches> {
        let mut found = Vec::new();
        for (number, (rule, source)) in self.rules.iter().zip(&*self.sources).enumerate() {
            let because = self.why_never(number, rule, source, suffixes);
            if let Some(because) = because {
                found.push(NeverMatches { rule: number, clause: None, because });
                continue;
            }
            self.clauses_never(number, rule, source, &mut found);
        }
        found
    }

    fn why_never(
        &self,
        number: usize,
        rule: &CompiledRule,
        source: &AccessRule,
        suffixes: &[NormalDn],
    ) -> Option<Because> {
        if rule.items.as_ref().is_some_and(super::items::ItemSet::is_empty) {
            return Some(Because::NoAttributes);
        }
        if is_outside(&rule.dn, suffixes) {
            return Some(Because::OutsideOfDatabase);
        }
        if self.asks_for_no_normal_form(&source.what) {
            return Some(Because::NoNormalForm);
        }
        // Those of the frontend are covered in this database perhaps, and not in another.
        let start = if number < self.frontend_from { 0 } else { self.frontend_from };
        let start = start.max(number.saturating_sub(COMPARED_MAX));
        let earlier = self.rules.iter().zip(&*self.sources).enumerate().take(number).skip(start);
        let mut covering = earlier.filter(|(_, (earlier, text))| {
            earlier.by.iter().all(|clause| clause.control != FlowControl::Break)
                && covers_target(&earlier.dn, &rule.dn)
                && covers_rest(&text.what, &source.what)
        });
        covering.next().map(|(by, _)| Because::CoveredByRule(by))
    }

    fn asks_for_no_normal_form(&self, what: &What) -> bool {
        let (Some(pattern), [attribute]) = (&what.value, what.attributes.as_slice()) else { return false };
        let text = pattern.text.as_str();
        // Of a pattern with alternatives, or with parts that may be missing, nothing is said.
        if pattern.style != ValueStyle::Regex
            || text.contains(['|', '?', '*', '{', '[', '('])
            || !text.contains(|c: char| c.is_ascii_alphanumeric())
        {
            return false;
        }
        let Ok(Selector::Description(description) | Selector::Exactly(description)) =
            selector(&self.schema, attribute)
        else {
            return false;
        };
        let equality = self.schema.attribute(description.attribute).equality;
        match equality.map_or("", |rule| rule.name) {
            "caseExactMatch" | "caseIgnoreMatch" | "caseExactIA5Match" | "caseIgnoreIA5Match" => {
                text.contains("  ")
            }
            "distinguishedNameMatch" => text.contains(", "),
            "telephoneNumberMatch" => text.contains([' ', '-']),
            _ => false,
        }
    }

    fn clauses_never(
        &self,
        number: usize,
        rule: &CompiledRule,
        source: &AccessRule,
        found: &mut Vec<NeverMatches>,
    ) {
        for (index, clause) in rule.by.iter().enumerate() {
            let start = index.saturating_sub(COMPARED_MAX);
            let mut earlier = rule.by.iter().enumerate().take(index).skip(start);
            let covering = earlier.find(|(_, earlier)| covers_clause(earlier, clause)).map(|(by, _)| by);
            let because = match covering {
                Some(by) => {
                    let text = source.by.get(by).map(ToString::to_string).unwrap_or_default();
                    Some(Because::CoveredByClause(by, text))
                }
                None => source.by.get(index).and_then(|text| self.bad_set(clause, &text.who)),
            };
            if let Some(because) = because {
                found.push(NeverMatches { rule: number, clause: Some(index), because });
            }
        }
    }

    fn bad_set(&self, clause: &CompiledClause, source: &[Who]) -> Option<Because> {
        let bad =
            |condition: &CompiledCondition| matches!(condition.who, CompiledWho::Set(CompiledSet::Never));
        let position = clause.who.iter().position(bad)?;
        let Some(Who::Set { pattern, expand }) = source.get(position) else { return None };
        let parse = if *expand { Set::parse_expanding } else { Set::parse };
        let fault = parse(&self.schema, pattern).err()?;
        Some(Because::BadSet(format!("at byte {} of `{pattern}`: {}", fault.at + 1, fault.why)))
    }
}

/// Whether the pattern can match no name below a suffix. The name above all suffixes stands for the place where a suffix
/// is added.
fn is_outside(target: &CompiledTarget, suffixes: &[NormalDn]) -> bool {
    let CompiledTarget::Scoped { dn, .. } = target else { return false };
    let touches = |suffix: &NormalDn| dn.is_within(suffix) || suffix.is_within(dn);
    !suffixes.is_empty() && !dn.is_root() && !suffixes.iter().any(touches)
}

fn covers_target(wide: &CompiledTarget, narrow: &CompiledTarget) -> bool {
    match (wide, narrow) {
        (CompiledTarget::Any, _) => true,
        (CompiledTarget::Scoped { scope, dn }, CompiledTarget::Scoped { scope: inner, dn: below }) => {
            covers_scope((*scope, dn), (*inner, below))
        }
        (CompiledTarget::Regex(wide), CompiledTarget::Regex(narrow)) => wide.as_str() == narrow.as_str(),
        _ => false,
    }
}

/// Whether every name in the second scope is in the first.
fn covers_scope(wide: (DnScope, &NormalDn), narrow: (DnScope, &NormalDn)) -> bool {
    let (scope, dn) = wide;
    let (inner, below) = narrow;
    if wide == narrow {
        return true;
    }
    match scope {
        DnScope::Subtree => below.is_within(dn),
        DnScope::Children => {
            below.is_descendant_of(dn)
                || below == dn && matches!(inner, DnScope::OneLevel | DnScope::Children)
        }
        DnScope::OneLevel => inner == DnScope::Base && below.parent().is_some_and(|parent| parent == *dn),
        DnScope::Base | DnScope::Level(_) => false,
    }
}

fn covers_rest(wide: &What, narrow: &What) -> bool {
    let same_or_any = |same: bool, any: bool| same || any;
    same_or_any(wide.filter == narrow.filter, wide.filter.is_none())
        && same_or_any(wide.attributes == narrow.attributes, wide.attributes.is_empty())
        && same_or_any(wide.value == narrow.value, wide.value.is_none())
        && same_or_any(wide.operation == narrow.operation, wide.operation.is_none())
        && same_or_any(wide.control == narrow.control, wide.control.is_none())
}

fn covers_clause(earlier: &CompiledClause, later: &CompiledClause) -> bool {
    earlier.control != FlowControl::Continue
        && earlier.own_value.is_none()
        && earlier.aci.is_none()
        && earlier.who.iter().all(|wide| later.who.iter().any(|narrow| implies(&narrow.who, &wide.who)))
}

/// Whether every subject that meets the first condition meets the second.
fn implies(narrow: &CompiledWho, wide: &CompiledWho) -> bool {
    match (wide, narrow) {
        (CompiledWho::Anyone, _) => true,
        (
            CompiledWho::Users(of),
            CompiledWho::Users(also) | CompiledWho::SelfEntry { identity: also, .. },
        )
        | (CompiledWho::Users(of), CompiledWho::DnAttribute { identity: also, .. })
        | (CompiledWho::Anonymous(of), CompiledWho::Anonymous(also)) => of == also,
        (CompiledWho::Users(of), CompiledWho::Dn { identity, dn, .. }) => of == identity && !dn.is_root(),
        (CompiledWho::Users(of), CompiledWho::Group { .. }) => *of == Identity::Authorization,
        (
            CompiledWho::SelfEntry { identity: of, level },
            CompiledWho::SelfEntry { identity: also, level: same },
        ) => of == also && level == same,
        (
            CompiledWho::Dn { identity: of, scope, dn },
            CompiledWho::Dn { identity: also, scope: inner, dn: below },
        ) => of == also && covers_scope((*scope, dn), (*inner, below)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {

    use super::COMPARED_MAX;
    use crate::fixture::Fixture;

    #[test]
    fn what_stands_far_before_is_not_compared() {
        let fixture = Fixture::new();
        for (between, is_told) in [(COMPARED_MAX - 1, true), (COMPARED_MAX, false)] {
            let others: String = (0..between).map(|number| format!(" by dn.base=cn={number} read")).collect();
            let rules = format!("to * by dn.base=cn=a read{others} by dn.base=cn=a write");
            let found = fixture.policy(&rules).never_matching(&[]);
            assert_eq!(found.len(), usize::from(is_told), "{between} between them");
        }
    }

    #[test]
    fn what_can_never_match_is_told() {
        let fixture = Fixture::new();
        let suffix = [fixture.dn("dc=example,dc=com")];
        let check = |rules: &str, expected: &[(usize, Option<usize>, &str)]| {
            let found = fixture.policy(rules).never_matching(&suffix);
            let shown: Vec<(usize, Option<usize>, String)> = found
                .iter()
                .map(|never| (never.rule, never.clause, format!("{:?}", never.because)))
                .collect();
            let expected: Vec<(usize, Option<usize>, String)> =
                expected.iter().map(|(rule, clause, why)| (*rule, *clause, (*why).to_owned())).collect();
            assert_eq!(shown, expected, "{rules}");
        };
        check(
            "to attrs=userPassword by self write by anonymous auth by * none\nto * by self write by * read",
            &[],
        );
        check("to * by * read\nto attrs=cn by * none", &[(1, None, "CoveredByRule(0)")]);
        check("to * by users read by * break\nto attrs=cn by * none", &[]);
        check(
            "to * by users read continue by * none\nto attrs=cn by * none",
            &[(1, None, "CoveredByRule(0)")],
        );
        check(
            "to attrs=cn by * read\nto attrs=cn,sn by * none\nto attrs=cn by self write",
            &[(2, None, "CoveredByRule(0)")],
        );
        check("to filter=(cn=a) by * read\nto * by * none", &[]);
        check("to op=search by * read\nto attrs=cn by * none", &[]);
        check("to attrs=cn val=a by * read\nto attrs=cn by * none", &[]);
        for (value, is_told) in [
            ("title val.regex=\"^top  secret\"", true),
            ("title val.regex=\"^top secret\"", false),
            ("title val.regex=\"^top  *secret\"", false),
            ("title val=\"top  secret\"", false),
            ("manager val.regex=\"^uid=ann, ou=people\"", true),
            ("manager val.regex=\"^uid=ann,ou=people\"", false),
            ("telephoneNumber val.regex=\"^.49 30\"", true),
            ("telephoneNumber val.regex=\"^.4930\"", false),
            ("telephoneNumber val.regex=\"^.49( 30|31)\"", false),
        ] {
            let told = [(0, None, "NoNormalForm")];
            check(&format!("to attrs={value} by * none"), if is_told { &told[..] } else { &[] });
        }
        check("to attrs=cn by * read\nto attrs=cn val=a by * none", &[(1, None, "CoveredByRule(0)")]);
        check(
            "to dn.subtree=ou=people,dc=example,dc=com by * read\nto dn.base=uid=a,ou=people,dc=example,dc=com by * none",
            &[(1, None, "CoveredByRule(0)")],
        );
        check(
            "to dn.children=ou=people,dc=example,dc=com by * read\nto dn.base=ou=people,dc=example,dc=com by * none",
            &[],
        );
        check("to dn.one=dc=example,dc=com by * read\nto dn.children=dc=example,dc=com by * none", &[]);
        check("to dn.subtree=dc=org by * read", &[(0, None, "OutsideOfDatabase")]);
        check("to dn.base=\"\" by * read\nto dn.subtree=dc=com by * none", &[]);
        check("to attrs=!extensibleObject by * read", &[(0, None, "NoAttributes")]);
        check("to * by * read by users write", &[(0, Some(1), "CoveredByClause(0, \"by * read\")")]);
        check(
            "to * by users read by dn.base=cn=a write",
            &[(0, Some(1), "CoveredByClause(0, \"by users read\")")],
        );
        check("to * by users read continue by self write by * none", &[]);
        check("to * by users ssf=128 read by self write", &[]);
        check(
            "to * by users read by users ssf=128 write",
            &[(0, Some(1), "CoveredByClause(0, \"by users read\")")],
        );
        check("to attrs=member by users selfwrite by self read", &[]);
        check("to * by users read by anonymous auth by * none", &[]);
        check(
            "to * by aci write by * read by users write",
            &[(0, Some(2), "CoveredByClause(1, \"by * read\")")],
        );
        check(
            "to * by set=\"this/nosuch\" write by * read",
            &[(
                0,
                Some(0),
                "BadSet(\"at byte 6 of `this/nosuch`: attribute `nosuch`: attribute type undefined\")",
            )],
        );
    }
}
