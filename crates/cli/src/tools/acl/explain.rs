//! `larix acl explain`: which rule decided, and why the others did not.

use std::fmt::Write as _;

use larix_engine::access::{
    ClauseOutcome, Decision, Explanation, Privilege, RuleList, RuleName, RuleOutcome, RuleStep,
};
use serde_json::{Value, json};

/// What was asked, and the answer.
pub(super) struct Explained {
    /// The attribute, and the value after `=`.
    pub(super) about: String,
    pub(super) explanation: Explanation,
}

/// The explanations for people.
pub(super) fn text(entry: &str, explained: &[Explained]) -> String {
    let mut out = String::new();
    for Explained { about, explanation } in explained {
        let outcome = if explanation.granted { "ALLOWED" } else { "DENIED" };
        let privilege = name(explanation.required);
        let _ = writeln!(out, "{privilege} access to {about} of {entry:?}: {outcome}");
        let _ = writeln!(out, "  decided by {}", explanation.decided_by);
        let _ = writeln!(out, "  privileges {}", explanation.collected);
        for step in &explanation.steps {
            rule(&mut out, step);
        }
    }
    out
}

fn rule(out: &mut String, step: &RuleStep) {
    let _ = writeln!(out, "  {}", step.rule);
    match &step.outcome {
        RuleOutcome::PassedOver { part, written } => {
            let _ = writeln!(out, "      passed over: {part} ({written})");
        }
        RuleOutcome::Concerned { clauses } => {
            for clause in clauses {
                let _ = match &clause.outcome {
                    ClauseOutcome::PassedOver { condition } => {
                        writeln!(out, "      {}: passed over: not {condition}", clause.text)
                    }
                    ClauseOutcome::Applied { control, collected, .. } => {
                        writeln!(out, "      {}: applies: {collected}, {}", clause.text, control.name())
                    }
                };
            }
        }
    }
}

/// The explanations for programs: a list.
pub(super) fn json(entry: &str, explained: &[Explained]) -> Value {
    let one = |Explained { about, explanation }: &Explained| {
        json!({
            "entry": entry,
            "about": about,
            "access": name(explanation.required),
            "granted": explanation.granted,
            "privileges": explanation.collected.to_string(),
            "decided_by": decision(&explanation.decided_by),
            "rules": explanation.steps.iter().map(step).collect::<Vec<_>>(),
        })
    };
    explained.iter().map(one).collect()
}

fn decision(decision: &Decision) -> Value {
    let kind = match decision {
        Decision::Root => "root",
        Decision::NoRules(_) => "no rules",
        Decision::NoUserModification => "no user modification",
        Decision::Clause { .. } => "clause",
        Decision::EndOfClauses { .. } => "end of clauses",
        Decision::EndOfRules => "end of rules",
        Decision::Failed => "failed",
    };
    let mut value = json!({ "kind": kind, "text": decision.to_string() });
    if let Decision::Clause { rule, clause, .. } = decision {
        value["rule"] = rule_reference(rule);
        value["clause"] = json!(clause);
    }
    if let Decision::EndOfClauses { rule } = decision {
        value["rule"] = rule_reference(rule);
    }
    value
}

fn rule_reference(rule: &RuleName) -> Value {
    let list = if rule.list == RuleList::Frontend { "frontend" } else { "database" };
    json!({ "list": list, "index": rule.index, "text": rule.text })
}

fn step(step: &RuleStep) -> Value {
    let mut value = rule_reference(&step.rule);
    match &step.outcome {
        RuleOutcome::PassedOver { part, written } => {
            value["passed_over"] = json!({ "because": part.to_string(), "written": written });
        }
        RuleOutcome::Concerned { clauses } => {
            let clause = |clause: &larix_engine::access::ClauseStep| match &clause.outcome {
                ClauseOutcome::PassedOver { condition } => {
                    json!({ "index": clause.index, "text": clause.text, "not": condition })
                }
                ClauseOutcome::Applied { control, collected, .. } => json!({
                    "index": clause.index,
                    "text": clause.text,
                    "control": control.name(),
                    "privileges": collected.to_string(),
                }),
            };
            value["clauses"] = clauses.iter().map(clause).collect();
        }
    }
    value
}

const fn name(privilege: Privilege) -> &'static str {
    match privilege {
        Privilege::Disclose => "disclose",
        Privilege::Auth => "auth",
        Privilege::Compare => "compare",
        Privilege::Search => "search",
        Privilege::Read => "read",
        Privilege::Write => "write",
        Privilege::Add => "add",
        Privilege::Delete => "delete",
        Privilege::Increment => "increment",
        Privilege::Manage => "manage",
    }
}
