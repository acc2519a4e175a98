//! Why a check has the answer it has: the rules that were gone through, which decided, and what kept the others from it.

use std::fmt;

use super::ask::{Among, Ask, Holds, UnmatchedWhat};
use super::evaluate::{ClauseEffect, Evaluation};
use super::facts::AccessTarget;
use super::item::{Item, ItemKind};
use super::policy::AccessPolicy;
use super::privilege::{AccessLevel, Collected, Grant, Privilege, Privileges};
use super::rule::{AccessRule, ByClause, FlowControl};
use super::subject::Subject;

/// The answer to a check, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    pub granted: bool,
    pub required: Privilege,
    /// What the rules have collected where they ended.
    pub collected: Collected,
    pub decided_by: Decision,
    /// The rules that were looked at, in order: those before the one that decided, and that one.
    pub steps: Vec<RuleStep>,
}

/// What a check was decided by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The requester is the database's root DN, to whom no rule applies.
    Root,
    /// There are no rules at all: the default level holds.
    NoRules(AccessLevel),
    /// The server provides this attribute; rules do not speak about writing it.
    NoUserModification,
    /// A clause (counted from 0) whose control is `stop`.
    Clause { rule: RuleName, clause: usize, text: String },
    /// No clause of the rule that stops: every rule ends in `by * none stop`.
    EndOfClauses { rule: RuleName },
    /// No rule was the last word: the list ends in `to * by * none`.
    EndOfRules,
    /// A fault while reading the entry or a group: denied.
    Failed,
}

/// Which list a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleList {
    Database,
    Frontend,
}

/// A rule by its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleName {
    pub list: RuleList,
    /// Its place in the list, from 0, as olcAccess counts.
    pub index: usize,
    /// As it was written, without `access`.
    pub text: String,
}

/// One rule of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleStep {
    pub rule: RuleName,
    pub outcome: RuleOutcome,
}

/// What a rule did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOutcome {
    /// Its `<what>` does not match; the first part that does not, and how it is written.
    PassedOver { part: UnmatchedWhat, written: String },
    /// Its clauses were gone through, as far as the one that ended it.
    Concerned { clauses: Vec<ClauseStep> },
}

/// One `by` clause of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClauseStep {
    /// Its place in the rule, from 0.
    pub index: usize,
    /// In canonical form: `by users read`.
    pub text: String,
    pub outcome: ClauseOutcome,
}

/// What a clause did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClauseOutcome {
    /// The first condition that the requester does not meet, as written.
    PassedOver { condition: String },
    /// The requester meets all conditions.
    Applied { grant: Grant, control: FlowControl, collected: Collected },
}

impl AccessPolicy {
    /// As [`Self::check`], with the way to the answer. Costs far more.
    pub fn explain(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        item: Item<'_>,
        privilege: Privilege,
    ) -> Explanation {
        let (kind, value) = item.split();
        let mut explanation = Explanation {
            granted: false,
            required: privilege,
            collected: Collected::default(),
            decided_by: Decision::EndOfRules,
            steps: Vec::new(),
        };
        if let Some((decision, collected)) = self.without_rules(subject, kind, privilege) {
            explanation.granted = collected.privileges.contains(privilege.required());
            (explanation.decided_by, explanation.collected) = (decision, collected);
            return explanation;
        }
        let ask = Ask { subject, item: Some(kind), value, target: Some(target), among: Among::All };
        let evaluation = Evaluation::new(self, &ask, privilege.required());
        self.go_through(&evaluation, &mut explanation);
        let granted = explanation.collected.privileges.contains(privilege.required());
        explanation.granted = granted && !matches!(explanation.decided_by, Decision::EndOfRules);
        if evaluation.has_failed() {
            (explanation.granted, explanation.decided_by) = (false, Decision::Failed);
        }
        explanation
    }

    /// What is decided before any rule.
    fn without_rules(
        &self,
        subject: &Subject,
        item: ItemKind<'_>,
        privilege: Privilege,
    ) -> Option<(Decision, Collected)> {
        if self.is_root(subject) {
            return Some((Decision::Root, Collected::of_level(AccessLevel::Manage)));
        }
        if let ItemKind::Attribute(description) = item
            && privilege.is_write()
            && self.is_no_user_modification(description.attribute)
        {
            let collected = Collected { privileges: Privileges::WRITE, level: None };
            return Some((Decision::NoUserModification, collected));
        }
        let level = Self::WITHOUT_RULES;
        self.rules.is_empty().then(|| (Decision::NoRules(level), Collected::of_level(level)))
    }

    fn go_through(&self, evaluation: &Evaluation<'_>, explanation: &mut Explanation) {
        'rules: for (number, (rule, source)) in self.rules.iter().zip(&*self.sources).enumerate() {
            let name = self.rule_name(number, source);
            if let Some(part) = evaluation.unconcerned(rule) {
                let outcome = RuleOutcome::PassedOver { part, written: part.written(source) };
                explanation.steps.push(RuleStep { rule: name, outcome });
                continue;
            }
            let captures = evaluation.captures(rule);
            let mut clauses = Vec::new();
            let mut ended = None;
            for (index, (clause, source)) in rule.by.iter().zip(&source.by).enumerate() {
                let text = source.to_string();
                let own = clause.own_value.filter(|own| evaluation.is_own_value(*own) != Holds::Yes);
                let unmet =
                    clause.who.iter().zip(&source.who).find(|(who, _)| {
                        evaluation.is(who, captures.as_ref(), clause.own_value) != Holds::Yes
                    });
                if own.is_some() || unmet.is_some() {
                    let condition = match unmet {
                        Some((_, who)) => who.to_string(),
                        None => own_value_text(source),
                    };
                    let outcome = ClauseOutcome::PassedOver { condition };
                    clauses.push(ClauseStep { index, text, outcome });
                    continue;
                }
                let ClauseEffect::By(grant) = evaluation.clause_effect(clause, captures.as_ref()) else {
                    let outcome = ClauseOutcome::PassedOver { condition: "aci".to_owned() };
                    clauses.push(ClauseStep { index, text, outcome });
                    continue;
                };
                let collected = explanation.collected.after(grant);
                explanation.collected = collected;
                let control = clause.control;
                let outcome = ClauseOutcome::Applied { grant, control, collected };
                clauses.push(ClauseStep { index, text: text.clone(), outcome });
                match control {
                    FlowControl::Continue => {}
                    FlowControl::Break => {
                        let outcome = RuleOutcome::Concerned { clauses };
                        explanation.steps.push(RuleStep { rule: name, outcome });
                        continue 'rules;
                    }
                    FlowControl::Stop => {
                        ended = Some(Decision::Clause { rule: name.clone(), clause: index, text });
                        break;
                    }
                }
            }
            if ended.is_none() {
                explanation.collected = Collected::default();
            }
            explanation.decided_by = ended.unwrap_or_else(|| Decision::EndOfClauses { rule: name.clone() });
            explanation.steps.push(RuleStep { rule: name, outcome: RuleOutcome::Concerned { clauses } });
            return;
        }
    }

    fn rule_name(&self, number: usize, source: &AccessRule) -> RuleName {
        let (list, index) = match number.checked_sub(self.frontend_from) {
            Some(index) => (RuleList::Frontend, index),
            None => (RuleList::Database, number),
        };
        RuleName { list, index, text: source.text.clone() }
    }
}

fn own_value_text(clause: &ByClause) -> String {
    format!("the value is the requester's own name ({clause})")
}

impl UnmatchedWhat {
    /// That part of the rule, in canonical form.
    fn written(self, rule: &AccessRule) -> String {
        use super::rule::What;
        let what = &rule.what;
        let part = match self {
            Self::Dn => What { dn: what.dn.clone(), ..What::default() },
            Self::Attributes => What { attributes: what.attributes.clone(), ..What::default() },
            Self::Value => What { value: what.value.clone(), ..What::default() },
            Self::Filter => What { filter: what.filter.clone(), ..What::default() },
            Self::Operation => What { operation: what.operation.clone(), ..What::default() },
            Self::Control => What { control: what.control.clone(), ..What::default() },
        };
        part.to_string()
    }
}

impl fmt::Display for UnmatchedWhat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dn => "another entry",
            Self::Attributes => "another attribute",
            Self::Value => "another value",
            Self::Filter => "the filter does not match",
            Self::Operation => "another operation",
            Self::Control => "the control was not sent",
        })
    }
}

impl fmt::Display for RuleName {
    /// `{2}to * by * read`, with `frontend` in front for a rule of the frontend.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.list == RuleList::Frontend {
            f.write_str("frontend ")?;
        }
        write!(f, "{{{}}}{}", self.index, self.text)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("the requester is the root DN"),
            Self::NoRules(level) => write!(f, "there are no rules: everybody has {}", level.name()),
            Self::NoUserModification => f.write_str("the server provides this attribute"),
            Self::Clause { rule, text, .. } => write!(f, "`{text}` of {rule}"),
            Self::EndOfClauses { rule } => write!(f, "no clause that applies and stops in {rule}"),
            Self::EndOfRules => f.write_str("no rule: the list ends in `to * by * none`"),
            Self::Failed => f.write_str("the entry or a group could not be read"),
        }
    }
}
