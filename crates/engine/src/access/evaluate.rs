//! Applying rules to a question. Where the entry or the value is not known, all that could be is followed, so that a
//! question about many can be answered once.

use std::cell::RefCell;
use std::collections::HashMap;

use larix_schema::{Match, NormalDn, Schema};
use regex::Regex;

use super::compile::{
    self, CompiledClause, CompiledPeer, CompiledRule, CompiledTarget, CompiledText, CompiledValue,
    CompiledWho, GroupName,
};
use super::expand::{Captures, Template};
use super::explain::UnmatchedWhat;
use super::policy::{AccessTarget, GroupQuery, ItemKind, Verdict};
use super::posix;
use super::privilege::{Collected, Privileges};
use super::rule::{DnScope, FlowControl, Identity, PeerPattern, StrengthLayer};
use super::subject::{PeerNames, Subject};

/// A question, as far as it is known.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) subject: &'a Subject,
    /// `None`: any.
    pub(super) item: Option<ItemKind<'a>>,
    pub(super) value: Value<'a>,
    pub(super) target: Option<&'a AccessTarget<'a>>,
    /// A name all targets are at or below, when `target` is not known.
    pub(super) within: Option<&'a NormalDn>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Unknown,
    /// The attribute as a whole: rules about values are passed over.
    Whole,
    Is(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Granted,
    Denied,
    Unknown(Missing),
}

/// What would have to be known; the later includes the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Missing {
    Entry,
    Value,
}

impl Answer {
    pub(super) const fn of(granted: bool) -> Self {
        if granted { Self::Granted } else { Self::Denied }
    }

    pub(super) const fn verdict(self) -> Verdict {
        match self {
            Self::Granted => Verdict::Granted,
            Self::Denied => Verdict::Denied,
            Self::Unknown(Missing::Entry) => Verdict::PerEntry,
            Self::Unknown(Missing::Value) => Verdict::PerValue,
        }
    }

    /// The answer when it depends on something missing which of two it is.
    fn either(missing: Missing, a: Self, b: Self) -> Self {
        if a == b && !matches!(a, Self::Unknown(_)) {
            return a;
        }
        let of = |answer| if let Self::Unknown(missing) = answer { missing } else { Missing::Entry };
        Self::Unknown(missing.max(of(a)).max(of(b)))
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    Unknown(Missing),
}

impl Holds {
    const fn of(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    /// Both; the second is asked only if it matters.
    fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::No => Self::No,
            Self::Yes => other(),
            Self::Unknown(missing) => match other() {
                Self::No => Self::No,
                Self::Yes => self,
                Self::Unknown(also) => Self::Unknown(missing.max(also)),
            },
        }
    }
}

/// Clauses looked at for one question about many entries; beyond it the answer is to ask for each.
const STEPS_MAX: u32 = 512;

pub(super) struct Evaluation<'a> {
    schema: &'a Schema,
    ask: &'a Ask<'a>,
    required: Privileges,
    steps: u32,
}

impl<'a> Evaluation<'a> {
    pub(super) const fn new(schema: &'a Schema, ask: &'a Ask<'a>, required: Privileges) -> Self {
        Self { schema, ask, required, steps: 0 }
    }

    pub(super) fn run(mut self, rules: &[CompiledRule]) -> Answer {
        self.rules(rules, Privileges::NONE)
    }

    /// What the rules collect for a target that is known; also where the list ends without a decision.
    pub(super) fn collect(&self, rules: &[CompiledRule]) -> Collected {
        let mut collected = Collected::default();
        'rules: for rule in rules.iter().filter(|rule| self.concerns(rule) == Holds::Yes) {
            let captures = self.captures(rule);
            for clause in
                rule.by.iter().filter(|clause| self.applies(clause, captures.as_ref()) == Holds::Yes)
            {
                collected = collected.after(clause.grant);
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

    fn rules(&mut self, mut rules: &[CompiledRule], mut granted: Privileges) -> Answer {
        while let Some((rule, rest)) = rules.split_first() {
            rules = rest;
            match self.concerns(rule) {
                Holds::No => {}
                Holds::Yes => match self.clauses(rule, &rule.by, rest, granted) {
                    Flow::Answer(answer) => return answer,
                    Flow::Break(now) => granted = now,
                },
                Holds::Unknown(missing) => {
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
        later: &[CompiledRule],
        mut granted: Privileges,
    ) -> Flow {
        let captures = self.captures(rule);
        while let Some((clause, rest)) = clauses.split_first() {
            clauses = rest;
            self.steps += 1;
            if self.steps > STEPS_MAX && self.ask.target.is_none() {
                return Flow::Answer(Answer::Unknown(Missing::Value));
            }
            let applied = clause.grant.apply(granted);
            match self.applies(clause, captures.as_ref()) {
                Holds::No => {}
                Holds::Yes => match clause.control {
                    FlowControl::Stop => return Flow::Answer(self.decide(applied)),
                    FlowControl::Break => return Flow::Break(applied),
                    FlowControl::Continue => granted = applied,
                },
                Holds::Unknown(missing) => {
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

    fn remaining(
        &mut self,
        rule: &CompiledRule,
        clauses: &[CompiledClause],
        later: &[CompiledRule],
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

    /// Whether the rule's `<what>` matches.
    fn concerns(&self, rule: &CompiledRule) -> Holds {
        self.concerns_item(rule)
            .and(|| self.concerns_dn(&rule.dn))
            .and(|| self.concerns_value(rule))
            .and(|| self.concerns_filter(rule))
    }

    /// The first part of the rule's `<what>` that does not match a target that is known.
    pub(super) fn unconcerned(&self, rule: &CompiledRule) -> Option<UnmatchedWhat> {
        let no = |holds: Holds| holds == Holds::No;
        Some(match () {
            () if no(self.concerns_dn(&rule.dn)) => UnmatchedWhat::Dn,
            () if no(self.concerns_item(rule)) => UnmatchedWhat::Attributes,
            () if no(self.concerns_value(rule)) => UnmatchedWhat::Value,
            () if no(self.concerns_filter(rule)) => UnmatchedWhat::Filter,
            () => return None,
        })
    }

    fn concerns_item(&self, rule: &CompiledRule) -> Holds {
        match (&rule.items, self.ask.item) {
            (None, _) => Holds::Yes,
            (Some(items), Some(item)) => Holds::of(items.contains(self.schema, item)),
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
            (CompiledTarget::Scoped { scope, dn }, None) => match self.ask.within {
                None => unknown,
                Some(within) if within.is_within(dn) => match scope {
                    DnScope::Subtree => Holds::Yes,
                    DnScope::Children if within != dn => Holds::Yes,
                    DnScope::Base if within != dn => Holds::No,
                    _ => unknown,
                },
                Some(within) if dn.is_within(within) => unknown,
                Some(_) => Holds::No,
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
        Holds::of(match pattern {
            CompiledValue::Equal { rule, key } => {
                let mut own = Vec::with_capacity(key.len());
                rule.normalize_value(self.schema, value, &mut own).is_ok()
                    && rule.compare_keys(self.schema, &own, key) == Match::True
            }
            CompiledValue::Regex(regex) => std::str::from_utf8(value).is_ok_and(|text| regex.is_match(text)),
            CompiledValue::Dn { scope, dn } => {
                self.value_dn(value).is_some_and(|value| in_scope(&value, *scope, dn))
            }
        })
    }

    fn value_dn(&self, value: &[u8]) -> Option<NormalDn> {
        self.schema.parse_dn(std::str::from_utf8(value).ok()?).ok()
    }

    /// What the patterns of `<what>` captured; `None` if the target is not known or nobody asks.
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
        if let (Some(CompiledValue::Regex(regex)), Value::Is(value)) = (&rule.value, self.ask.value)
            && let Ok(text) = std::str::from_utf8(value)
        {
            captures.value.extend(submatches(regex, text));
        }
        Some(captures)
    }

    fn applies(&self, clause: &CompiledClause, captures: Option<&Captures<'_>>) -> Holds {
        let own = match clause.own_value {
            None => Holds::Yes,
            Some(identity) => self.is_own_value(identity),
        };
        clause
            .who
            .iter()
            .fold(own, |holds, who| holds.and(|| self.is(who, captures, clause.own_value.is_some())))
    }

    fn dn_of(&self, identity: Identity) -> Option<&'a NormalDn> {
        match identity {
            Identity::Authorization => self.ask.subject.dn.as_ref(),
            Identity::Authentication => self.ask.subject.authentication_dn(),
        }
    }

    /// Whether the value is the requester's own name.
    pub(super) fn is_own_value(&self, identity: Identity) -> Holds {
        let Some(own) = self.dn_of(identity) else { return Holds::No };
        match self.ask.item {
            Some(ItemKind::Attribute(description)) if compile::has_dn_syntax(self.schema, description) => {}
            Some(_) => return Holds::No,
            None => return Holds::Unknown(Missing::Value),
        }
        match self.ask.value {
            Value::Unknown => Holds::Unknown(Missing::Value),
            Value::Whole => Holds::No,
            Value::Is(value) => Holds::of(self.value_dn(value).is_some_and(|value| value == *own)),
        }
    }

    /// Whether the requester meets one condition.
    pub(super) fn is(&self, who: &CompiledWho, captures: Option<&Captures<'_>>, own_value: bool) -> Holds {
        let subject = self.ask.subject;
        match who {
            CompiledWho::Anyone => Holds::Yes,
            CompiledWho::Anonymous(identity) => Holds::of(self.dn_of(*identity).is_none()),
            CompiledWho::Users(identity) => Holds::of(self.dn_of(*identity).is_some()),
            CompiledWho::SelfEntry { identity, level } => self.is_self(*identity, *level),
            CompiledWho::Dn { identity, scope, dn } => Holds::of(match self.dn_of(*identity) {
                Some(own) => in_scope(own, *scope, dn),
                None => in_scope(&NormalDn::root(), *scope, dn),
            }),
            CompiledWho::DnExpanded { identity, scope, dn } => {
                self.expanded(captures, dn, str::to_owned, |text| {
                    let own = self.dn_of(*identity).cloned().unwrap_or_else(NormalDn::root);
                    self.schema.parse_dn(text).is_ok_and(|dn| in_scope(&own, *scope, &dn))
                })
            }
            CompiledWho::DnRegex { identity, regex } => Holds::of(regex.is_match(self.text_of(*identity))),
            CompiledWho::DnRegexExpanded { identity, regex } => {
                self.expanded(captures, regex, regex::escape, |pattern| {
                    matches(pattern, self.text_of(*identity))
                })
            }
            CompiledWho::DnAttribute { identity, attribute } => {
                let Some(own) = self.dn_of(*identity) else { return Holds::No };
                // With `self`, being the value is enough.
                if own_value {
                    return Holds::Yes;
                }
                let Some(target) = self.ask.target else { return Holds::Unknown(Missing::Entry) };
                let mut found = false;
                target.entry.visit(attribute, &mut |value| {
                    found = self.value_dn(value).is_some_and(|value| value == *own);
                    !found
                });
                Holds::of(found)
            }
            CompiledWho::Group { group, class, attribute } => {
                let Some(member) = self.dn_of(Identity::Authorization) else { return Holds::No };
                let Some(target) = self.ask.target else { return Holds::Unknown(Missing::Entry) };
                let is_member = |group: &NormalDn| {
                    target.entry.is_member(&GroupQuery { group, class: *class, attribute }, member)
                };
                match group {
                    GroupName::Fixed(group) => Holds::of(is_member(group)),
                    GroupName::Expanded(group) => self.expanded(captures, group, str::to_owned, |text| {
                        self.schema.parse_dn(text).is_ok_and(|group| is_member(&group))
                    }),
                }
            }
            CompiledWho::PeerName(CompiledPeer::Parsed(pattern)) => {
                Holds::of(is_peer(pattern, &subject.peer))
            }
            CompiledWho::PeerName(CompiledPeer::Text(text)) => {
                self.is_text(text, &subject.peer.peer_name, captures)
            }
            CompiledWho::SockName(text) => self.is_text(text, &subject.peer.sock_name, captures),
            CompiledWho::SockUrl(text) => self.is_text(text, &subject.peer.sock_url, captures),
            CompiledWho::StrengthFactor { layer, minimum } => Holds::of(
                *minimum
                    <= match layer {
                        StrengthLayer::Overall => subject.strength.overall,
                        StrengthLayer::Transport => subject.strength.transport,
                        StrengthLayer::Tls => subject.strength.tls,
                        StrengthLayer::Sasl => subject.strength.sasl,
                    },
            ),
        }
    }

    fn text_of(&self, identity: Identity) -> &'a str {
        self.dn_of(identity).map_or("", NormalDn::as_str)
    }

    fn is_self(&self, identity: Identity, level: i32) -> Holds {
        let Some(own) = self.dn_of(identity) else { return Holds::No };
        let levels = level.unsigned_abs() as usize;
        let Some(target) = self.ask.target else {
            // Nobody is an entry of a subtree that he is not in.
            return match self.ask.within {
                Some(within) if level == 0 && !own.is_within(within) => Holds::No,
                _ => Holds::Unknown(Missing::Entry),
            };
        };
        let (lower, upper) = if level < 0 { (target.dn, own) } else { (own, target.dn) };
        Holds::of(lower.ancestor(levels).is_some_and(|ancestor| !ancestor.is_root() && ancestor == *upper))
    }

    fn is_text(&self, pattern: &CompiledText, name: &str, captures: Option<&Captures<'_>>) -> Holds {
        match pattern {
            CompiledText::Any => Holds::of(!name.is_empty()),
            CompiledText::Exact(text) => Holds::of(text.eq_ignore_ascii_case(name)),
            CompiledText::Regex(regex) => Holds::of(!name.is_empty() && regex.is_match(name)),
            CompiledText::Expanded(template) => {
                self.expanded(captures, template, str::to_owned, |text| text.eq_ignore_ascii_case(name))
            }
            CompiledText::RegexExpanded(template) => {
                self.expanded(captures, template, regex::escape, |pattern| matches(pattern, name))
            }
        }
    }

    /// Fills a template in and asks about the result. What was captured stands for itself, also in a regular expression.
    fn expanded(
        &self,
        captures: Option<&Captures<'_>>,
        template: &Template,
        quote: fn(&str) -> String,
        test: impl FnOnce(&str) -> bool,
    ) -> Holds {
        match captures {
            Some(captures) => Holds::of(template.expand(captures, quote).is_some_and(|text| test(&text))),
            None => Holds::Unknown(Missing::Entry),
        }
    }
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

/// `$0` to `$9`.
const SINGLE_DIGITS: usize = 10;

fn in_scope(dn: &NormalDn, scope: DnScope, pattern: &NormalDn) -> bool {
    match scope {
        DnScope::Base => dn == pattern,
        DnScope::OneLevel => dn.depth() == pattern.depth() + 1 && dn.is_within(pattern),
        DnScope::Subtree => dn.is_within(pattern),
        DnScope::Children => dn.is_descendant_of(pattern),
        DnScope::Level(level) => dn.depth() == pattern.depth() + level as usize && dn.is_within(pattern),
    }
}

fn is_peer(pattern: &PeerPattern, peer: &PeerNames) -> bool {
    let name = peer.peer_name.as_str();
    match pattern {
        PeerPattern::Text(_) => false,
        PeerPattern::Path(path) => name.strip_prefix("PATH=") == Some(path),
        PeerPattern::Ipv4 { address, mask, port } => {
            let Some(rest) = name.strip_prefix("IP=") else { return false };
            let (own, own_port) = rest.rsplit_once(':').unwrap_or((rest, ""));
            port_fits(*port, own_port)
                && own
                    .parse::<std::net::Ipv4Addr>()
                    .is_ok_and(|own| own.to_bits() & mask.to_bits() == address.to_bits())
        }
        PeerPattern::Ipv6 { address, mask, port } => {
            let Some((own, own_port)) = name.strip_prefix("IP=[").and_then(|rest| rest.rsplit_once(']'))
            else {
                return false;
            };
            port_fits(*port, own_port.strip_prefix(':').unwrap_or_default())
                && own
                    .parse::<std::net::Ipv6Addr>()
                    .is_ok_and(|own| own.to_bits() & mask.to_bits() == address.to_bits())
        }
    }
}

fn port_fits(wanted: Option<u16>, port: &str) -> bool {
    wanted.is_none_or(|wanted| port.parse() == Ok(wanted))
}

thread_local! {
    /// Expressions whose references were filled in: compiling costs far more than matching.
    static EXPANDED: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}
const EXPANDED_MAX: usize = 256;

fn matches(pattern: &str, text: &str) -> bool {
    EXPANDED.with_borrow_mut(|cache| {
        if let Some(known) = cache.get(pattern) {
            return known.as_ref().is_some_and(|regex| regex.is_match(text));
        }
        if cache.len() >= EXPANDED_MAX {
            cache.clear();
        }
        let compiled = posix::compile(pattern).ok();
        let found = compiled.as_ref().is_some_and(|regex| regex.is_match(text));
        cache.insert(pattern.to_owned(), compiled);
        found
    })
}
