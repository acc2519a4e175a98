//! Applying rules to a question. Where the entry or the value is not known, all that could be is followed, so that a
//! question about many can be answered once.

use std::cell::Cell;

use larix_schema::{Match, NormalDn, Schema};
use regex::Regex;

use super::aci::{Aci, Rights};
use super::ask::{Among, Answer, Ask, Holds, Missing, UnmatchedWhat};
use super::compile::{CompiledClause, CompiledRule, CompiledTarget, CompiledValue};
use super::expand::Captures;
use super::facts::value_steps;
use super::item::{ItemKind, Value};
use super::lookup::{Lookup, normal_text};
use super::policy::AccessPolicy;
use super::privilege::{Collected, Grant, Privileges};
use super::rule::{DnScope, FlowControl};

/// Clauses looked at for one question about many entries or values; beyond it the answer is to ask for each. Where a rule may be about
/// some of them, both ways are followed, so that each such rule can double the work.
const STEPS_MAX: u32 = 512;

pub(super) struct Evaluation<'a> {
    pub(super) policy: &'a AccessPolicy,
    pub(super) ask: &'a Ask<'a>,
    required: Privileges,
    steps: u32,
    /// Whether both ways were followed of something that holds for some values of an entry that is known.
    forked: bool,
    /// Whether the rules gone through were chosen for the item: then it is not asked about again.
    chosen: bool,
    /// Whether something could not be looked up.
    failed: Cell<bool>,
}

impl<'a> Evaluation<'a> {
    pub(super) const fn new(policy: &'a AccessPolicy, ask: &'a Ask<'a>, required: Privileges) -> Self {
        Self { policy, ask, required, steps: 0, forked: false, chosen: false, failed: Cell::new(false) }
    }

    /// For rules that are known to speak about the item, or about the class of it.
    pub(super) const fn of_chosen(self) -> Self {
        Self { chosen: true, ..self }
    }

    pub(super) fn schema(&self) -> &'a Schema {
        self.policy.schema()
    }

    /// Takes steps for a part of a rule that takes time; false: there are none left, and the answer is no.
    pub(super) fn charge(&self, steps: u64) -> bool {
        let is_paid = self.ask.target.is_none_or(|target| target.entry.charge(steps));
        if !is_paid {
            self.failed.set(true);
        }
        is_paid
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.get() || self.ask.target.is_some_and(|target| target.entry.failed())
    }

    /// Goes through the rules of these numbers.
    pub(super) fn run(mut self, rules: &[u32]) -> Answer {
        let answer = self.rules(rules, Privileges::NONE);
        if self.has_failed() { Answer::Denied } else { answer }
    }

    /// The same; `None` where something that the rules ask for could not be read.
    pub(super) fn run_known(mut self, rules: &[u32]) -> Option<Answer> {
        let answer = self.rules(rules, Privileges::NONE);
        (!self.has_failed()).then_some(answer)
    }

    /// What the rules collect for a target that is known; also where the list ends without a decision.
    pub(super) fn collect(&self) -> Collected {
        let mut collected = Collected::default();
        'rules: for rule in self.policy.rules.iter().filter(|rule| self.concerns(rule) == Holds::Yes) {
            let captures = self.captures(rule);
            for clause in
                rule.by.iter().filter(|clause| self.applies(clause, captures.as_ref()) == Holds::Yes)
            {
                match self.clause_effect(clause, captures.as_ref()) {
                    ClauseEffect::By(grant) => collected = collected.after(grant),
                    ClauseEffect::Unknown => {}
                    ClauseEffect::Nothing => continue,
                }
                match clause.control {
                    FlowControl::Stop => return collected,
                    FlowControl::Break => continue 'rules,
                    FlowControl::Continue => {}
                }
            }
            return Collected::default();
        }
        collected
    }

    fn rules(&mut self, mut rules: &[u32], mut granted: Privileges) -> Answer {
        while let Some((number, rest)) = rules.split_first() {
            rules = rest;
            if self.asks_too_much() {
                return Answer::Unknown(Missing::Value);
            }
            let Some(rule) = self.policy.rules.get(*number as usize) else { continue };
            match self.concerns(rule) {
                Holds::No => {}
                Holds::Yes => match self.clauses(rule, &rule.by, rest, granted) {
                    Flow::Answer(answer) => return answer,
                    Flow::Break(now) => granted = now,
                },
                Holds::Unknown(missing) => {
                    self.fork();
                    let concerned = match self.clauses(rule, &rule.by, rest, granted) {
                        Flow::Answer(answer) => answer,
                        Flow::Break(now) => self.rules(rest, now),
                    };
                    let unconcerned = self.rules(rest, granted);
                    return Answer::either(missing, concerned, unconcerned);
                }
            }
        }
        // After the last rule comes `access to * by * none`, whatever was collected on the way.
        Answer::Denied
    }

    fn clauses(
        &mut self,
        rule: &CompiledRule,
        mut clauses: &[CompiledClause],
        later: &[u32],
        mut granted: Privileges,
    ) -> Flow {
        let captures = self.captures(rule);
        while let Some((clause, rest)) = clauses.split_first() {
            clauses = rest;
            self.steps += 1;
            if self.asks_too_much() {
                return Flow::Answer(Answer::Unknown(Missing::Value));
            }
            let applies = self.applies(clause, captures.as_ref());
            if applies == Holds::No {
                continue;
            }
            let applied = match self.clause_effect(clause, captures.as_ref()) {
                ClauseEffect::By(grant) => grant.apply(granted),
                ClauseEffect::Unknown => return Flow::Answer(Answer::Unknown(Missing::Value)),
                ClauseEffect::Nothing => continue,
            };
            match applies {
                Holds::No => {}
                Holds::Yes => match clause.control {
                    FlowControl::Stop => return Flow::Answer(self.decide(applied)),
                    FlowControl::Break => return Flow::Break(applied),
                    FlowControl::Continue => granted = applied,
                },
                Holds::Unknown(missing) => {
                    self.fork();
                    let matched = match clause.control {
                        FlowControl::Stop => self.decide(applied),
                        FlowControl::Break => self.rules(later, applied),
                        FlowControl::Continue => self.remaining(rule, rest, later, applied),
                    };
                    let unmatched = self.remaining(rule, rest, later, granted);
                    return Flow::Answer(Answer::either(missing, matched, unmatched));
                }
            }
        }
        // Every list of clauses ends in `by * none stop`.
        Flow::Answer(self.decide(Privileges::NONE))
    }

    /// Whether a question about many has taken more than it may. One about a single value of an entry has one way through the rules, and so
    /// has one about all values until a rule may be about some of them: to ask about each value goes through as many clauses each time.
    fn asks_too_much(&self) -> bool {
        self.steps > STEPS_MAX
            && (self.ask.target.is_none() || self.forked && matches!(self.ask.value, Value::Unknown))
    }

    /// Both ways are followed from here on. Of an entry that is known, what was gone through before does not count.
    fn fork(&mut self) {
        if self.ask.target.is_some() && !self.forked {
            (self.forked, self.steps) = (true, 0);
        }
    }

    fn remaining(
        &mut self,
        rule: &CompiledRule,
        clauses: &[CompiledClause],
        later: &[u32],
        granted: Privileges,
    ) -> Answer {
        match self.clauses(rule, clauses, later, granted) {
            Flow::Answer(answer) => answer,
            Flow::Break(now) => self.rules(later, now),
        }
    }

    const fn decide(&self, granted: Privileges) -> Answer {
        Answer::of(granted.contains(self.required))
    }

    /// What a clause that applies grants: as it is written, or what the entries say within it (`aci`).
    pub(super) fn clause_effect(
        &self,
        clause: &CompiledClause,
        captures: Option<&Captures<'_>>,
    ) -> ClauseEffect {
        let Some(attribute) = &clause.aci else { return ClauseEffect::By(clause.grant) };
        // A sign in front says nothing here about which privileges these are (slapd, `slap_acl_mask`).
        let (allowed, is_signed) = match clause.grant {
            Grant::Add(set) | Grant::Remove(set) => (set, true),
            grant => (grant.apply(Privileges::NONE), false),
        };
        if !allowed.contains(self.required) {
            return ClauseEffect::Nothing;
        }
        let Some(lookup) = self.lookup() else { return ClauseEffect::Unknown };
        // The entries may name whom it is for by what was captured of the value.
        if captures.is_some_and(|captures| captures.value_is_unknown) {
            return ClauseEffect::Unknown;
        }
        // The root DSE has no ACIs.
        if lookup.target.dn.is_root() {
            return ClauseEffect::Nothing;
        }
        let Rights { granted, denied } = Aci { ask: self.ask, lookup, captures }.rights(attribute);
        let granted = allowed.intersection(granted);
        ClauseEffect::By(match is_signed && granted.is_empty() {
            true => Grant::Remove(denied),
            false => Grant::Add(granted.without(denied)),
        })
    }

    /// What other entries can be asked with; `None` where the target is not known.
    pub(super) fn lookup(&self) -> Option<Lookup<'_>> {
        Some(Lookup { policy: self.policy, target: self.ask.target?, failed: &self.failed })
    }

    /// Whether the rule's `<what>` matches.
    fn concerns(&self, rule: &CompiledRule) -> Holds {
        let item = if self.chosen { Holds::Yes } else { self.concerns_item(rule) };
        item.and(|| self.concerns_dn(&rule.dn))
            .and(|| self.concerns_value(rule))
            .and(|| Holds::of(self.concerns_operation(rule) && self.concerns_control(rule)))
            .and(|| self.concerns_filter(rule))
    }

    /// The first part of the rule's `<what>` that does not match a target that is known.
    pub(super) fn unconcerned(&self, rule: &CompiledRule) -> Option<UnmatchedWhat> {
        let no = |holds: Holds| holds == Holds::No;
        Some(match () {
            () if no(self.concerns_dn(&rule.dn)) => UnmatchedWhat::Dn,
            () if no(self.concerns_item(rule)) => UnmatchedWhat::Attributes,
            () if no(self.concerns_value(rule)) => UnmatchedWhat::Value,
            () if !self.concerns_operation(rule) => UnmatchedWhat::Operation,
            () if !self.concerns_control(rule) => UnmatchedWhat::Control,
            () if no(self.concerns_filter(rule)) => UnmatchedWhat::Filter,
            () => return None,
        })
    }

    fn concerns_operation(&self, rule: &CompiledRule) -> bool {
        let Some(wanted) = &rule.operation else { return true };
        self.ask.subject.request.as_ref().is_some_and(|request| wanted.is(&request.operation))
    }

    fn concerns_control(&self, rule: &CompiledRule) -> bool {
        let Some(wanted) = &rule.control else { return true };
        self.ask.subject.request.as_ref().is_some_and(|request| request.controls.contains(wanted))
    }

    fn concerns_item(&self, rule: &CompiledRule) -> Holds {
        match (&rule.items, self.ask.item) {
            (None, _) => Holds::Yes,
            (Some(items), Some(item)) => Holds::of(items.contains(self.schema(), item)),
            (Some(_), None) => Holds::Unknown(Missing::Value),
        }
    }

    fn concerns_filter(&self, rule: &CompiledRule) -> Holds {
        match (&rule.filter, self.ask.target) {
            (None, _) => Holds::Yes,
            (Some(filter), Some(target)) => Holds::of(target.entry.matches(filter) == Match::True),
            (Some(_), None) => Holds::Unknown(Missing::Entry),
        }
    }

    fn concerns_dn(&self, pattern: &CompiledTarget) -> Holds {
        let unknown = Holds::Unknown(Missing::Entry);
        match (pattern, self.ask.target) {
            (CompiledTarget::Any, _) => Holds::Yes,
            (CompiledTarget::Scoped { scope, dn }, Some(target)) => {
                Holds::of(in_scope(target.dn, *scope, dn))
            }
            (CompiledTarget::Regex(regex), Some(target)) => Holds::of(regex.is_match(target.dn.as_str())),
            (CompiledTarget::Scoped { scope, dn }, None) => match self.ask.among {
                Among::All | Among::Others => unknown,
                Among::Within(within) if within.is_within(dn) => match scope {
                    DnScope::Subtree => Holds::Yes,
                    DnScope::Children if within != dn => Holds::Yes,
                    DnScope::Base if within != dn => Holds::No,
                    _ => unknown,
                },
                Among::Within(within) if dn.is_within(within) => unknown,
                Among::Within(_) => Holds::No,
            },
            (CompiledTarget::Regex(_), None) => unknown,
        }
    }

    fn concerns_value(&self, rule: &CompiledRule) -> Holds {
        let Some(pattern) = &rule.value else { return Holds::Yes };
        let value = match self.ask.value {
            Value::Unknown => return Holds::Unknown(Missing::Value),
            Value::Whole => return Holds::No,
            Value::Is(value) => value,
        };
        if !self.charge(value_steps(value)) {
            return Holds::No;
        }
        Holds::of(match pattern {
            CompiledValue::Equal { rule, key } => {
                let mut own = Vec::with_capacity(key.len());
                rule.normalize_value(self.schema(), value, &mut own).is_ok()
                    && rule.compare_keys(self.schema(), &own, key) == Match::True
            }
            CompiledValue::Regex(regex) => self.value_text(value).is_some_and(|text| regex.is_match(&text)),
            CompiledValue::Dn { scope, dn } => {
                self.value_dn(value).is_some_and(|value| in_scope(&value, *scope, dn))
            }
        })
    }

    pub(super) fn value_dn(&self, value: &[u8]) -> Option<NormalDn> {
        self.schema().parse_dn(std::str::from_utf8(value).ok()?).ok()
    }

    /// The value that a pattern is matched with: in the normal form of the attribute's equality rule, as slapd has it. A client could
    /// get past a pattern otherwise, by another spelling of the same value.
    fn value_text(&self, value: &[u8]) -> Option<String> {
        let normal = match self.ask.item {
            Some(ItemKind::Attribute(description)) => normal_text(self.schema(), description, value),
            _ => value.to_vec(),
        };
        String::from_utf8(normal).ok()
    }

    /// What the patterns of `<what>` captured; `None` if the target is not known or there is no requester.
    pub(super) fn captures(&self, rule: &CompiledRule) -> Option<Captures<'a>> {
        let target = self.ask.target.filter(|_| rule.captures)?;
        let mut captures = Captures::default();
        let name = target.dn.as_str();
        match &rule.dn {
            CompiledTarget::Regex(regex) => captures.dn.extend(submatches(regex, name)),
            CompiledTarget::Any | CompiledTarget::Scoped { scope: DnScope::Base, .. } => {
                captures.dn.push(name)
            }
            CompiledTarget::Scoped { dn, .. } => {
                let suffix = name.len().saturating_sub(dn.as_str().len());
                captures.dn.extend([name, name.get(suffix..).unwrap_or_default()]);
            }
        }
        let Some(CompiledValue::Regex(regex)) = &rule.value else { return Some(captures) };
        match self.ask.value {
            Value::Unknown => captures.value_is_unknown = true,
            Value::Whole => {}
            Value::Is(value) => {
                if self.charge(CAPTURE_STEPS * value_steps(value))
                    && let Some(text) = self.value_text(value)
                {
                    captures.value.extend(submatches(regex, &text).map(str::to_owned));
                }
            }
        }
        Some(captures)
    }

    pub(super) fn applies(&self, clause: &CompiledClause, captures: Option<&Captures<'_>>) -> Holds {
        let own = match clause.own_value {
            None => Holds::Yes,
            Some(identity) => self.is_own_value(identity),
        };
        clause.who.iter().fold(own, |holds, who| holds.and(|| self.is(who, captures, clause.own_value)))
    }
}

/// What a clause that applies does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClauseEffect {
    By(Grant),
    /// It depends on the entry.
    Unknown,
    /// The clause is passed over after all.
    Nothing,
}

/// How a list of clauses was left.
enum Flow {
    Answer(Answer),
    /// The next rule, with these privileges.
    Break(Privileges),
}

/// What a pattern captured. As in OpenLDAP a group that it has not is empty, rather than one that nothing fits.
fn submatches<'t>(regex: &Regex, text: &'t str) -> impl Iterator<Item = &'t str> {
    let captures = regex.captures(text);
    let count = captures.as_ref().map_or(0, |captures| captures.len().max(SINGLE_DIGITS));
    (0..count).map(move |number| {
        captures.as_ref().and_then(|captures| captures.get(number)).map_or("", |found| found.as_str())
    })
}

/// What it costs to find what a pattern captures, for each step that looking at the value costs.
const CAPTURE_STEPS: u64 = 8;

/// `$0` to `$9`.
const SINGLE_DIGITS: usize = 10;

pub(super) fn in_scope(dn: &NormalDn, scope: DnScope, pattern: &NormalDn) -> bool {
    match scope {
        DnScope::Base => dn == pattern,
        DnScope::OneLevel => dn.depth() == pattern.depth() + 1 && dn.is_within(pattern),
        DnScope::Subtree => dn.is_within(pattern),
        DnScope::Children => dn.is_descendant_of(pattern),
        DnScope::Level(level) => dn.depth() == pattern.depth() + level as usize && dn.is_within(pattern),
    }
}
