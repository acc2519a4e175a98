//! `restrictop OPERATION... [control=OID]... by WHO ACTION [FLOW] ...`, as OpenLDAP 2.7 has it.

use std::sync::Arc;

use larix_engine::access::{AccessRule, DnPattern, FlowControl, Who};
use larix_engine::controls;
use larix_schema::Schema;

use super::super::builder::Builder;
use super::super::builder::call::{Call, Fault};
use super::super::values::operation_rule::requester;
use super::super::values::{OperationAction, OperationClause, OperationRule, Restrictions};
use super::shared::{RESTRICTABLE, restrict_word};

const ACTIONS: &str = "allow, reject, drop control=<OID>, or break";

pub(super) fn restrict_operations(builder: &mut Builder, call: &Call<'_>) -> Result<(), Fault> {
    let schema = builder.schema();
    let words = call.arguments;
    let by = words.iter().position(|word| is(word, "by")).unwrap_or(words.len());
    let mut rule =
        OperationRule { operations: Restrictions::default(), controls: Vec::new(), by: Vec::new() };
    for (number, word) in words.iter().enumerate().take(by) {
        match after(word, "control=") {
            Some(control) => rule.controls.push(known_control(&schema, number, control)?),
            None => operation(&schema, &mut rule.operations, number, word)?,
        }
    }
    if rule.operations == Restrictions::default() {
        let fault = Fault::keyword("`restrictop` names no operation");
        return Err(fault.with_help(format!("some of {RESTRICTABLE}")));
    }
    let mut at = by;
    while at < words.len() {
        rule.by.push(clause(&schema, words, &mut at)?);
    }
    if rule.by.is_empty() {
        let fault = Fault::keyword("`restrictop` has no `by` clause, so that it refuses everybody");
        return Err(fault.with_help("by * reject"));
    }
    builder.shared().operation_rules.push(rule);
    Ok(())
}

fn operation(schema: &Schema, set: &mut Restrictions, number: usize, word: &str) -> Result<(), Fault> {
    let mut named = Restrictions::default();
    match extended_operation(schema, number, word)? {
        Some(oid) => named.extended_oids.push(oid),
        None if restrict_word(&mut named, &word.to_ascii_lowercase()) => {}
        None => {
            let fault = Fault::argument(number, format!("no operation `{word}`"));
            return Err(fault.with_help(format!("some of {RESTRICTABLE}")));
        }
    }
    let twice = flags(set).into_iter().zip(flags(&named)).any(|(before, now)| before && now);
    if twice {
        let fault = Fault::argument(number, format!("`{word}` names an operation for the second time"));
        return Err(fault.with_help("name each operation once; one rule for each extended operation"));
    }
    set.join(&named);
    Ok(())
}

/// The OID of the operation that `extended=` names; none: the word says something else.
pub(super) fn extended_operation(
    schema: &Schema,
    number: usize,
    word: &str,
) -> Result<Option<String>, Fault> {
    let Some(name) = after(word, "extended=") else { return Ok(None) };
    let oid = schema.resolve_request_oid(name).ok_or_else(|| {
        Fault::argument(number, format!("`{name}` is not the OID of an extended operation"))
            .with_help("an OID in digits, or a name that `objectidentifier` gives one")
    })?;
    Ok(Some(oid))
}

const fn flags(set: &Restrictions) -> [bool; 8] {
    let extended = set.extended || !set.extended_oids.is_empty();
    [set.bind, set.search, set.compare, set.add, set.delete, set.modify, set.rename, extended]
}

fn known_control(schema: &Schema, number: usize, name: &str) -> Result<String, Fault> {
    let fault = |message| {
        let fault = Fault::argument(number, message);
        Err(fault.with_help(
            "an OID that the root DSE lists as supportedControl, or a name that `objectidentifier` gives one",
        ))
    };
    match schema.resolve_request_oid(name) {
        None => fault(format!("`{name}` is not the OID of a control")),
        Some(oid) if !controls::is_known(&oid) => fault(format!("no control `{name}` is served")),
        Some(oid) => Ok(oid),
    }
}

/// Reads from a `by` to before the next.
fn clause(schema: &Arc<Schema>, words: &[String], at: &mut usize) -> Result<OperationClause, Fault> {
    let word = |number: usize| words.get(number).map(String::as_str);
    let start = *at;
    if !word(start).is_some_and(|word| is(word, "by")) {
        let found = word(start).unwrap_or_default();
        return Err(Fault::argument(start, format!("`{found}` where the next `by` was expected"))
            .with_help("by <who> <action> [stop|continue|break]"));
    }
    *at += 1;
    while word(*at)
        .is_some_and(|word| !["allow", "reject", "drop", "break", "by"].iter().any(|end| is(word, end)))
    {
        *at += 1;
    }
    let who = who(schema, words, start + 1, *at)?;
    let found = word(*at).unwrap_or_default().to_ascii_lowercase();
    let mut action = match found.as_str() {
        "allow" => OperationAction::Allow,
        "reject" => OperationAction::Reject,
        "break" => {
            *at += 1;
            return Ok(OperationClause { who, action: OperationAction::Nothing, flow: FlowControl::Break });
        }
        "drop" => OperationAction::Drop(String::new()),
        _ => return Err(Fault::argument(start, "this `by` clause does nothing").with_help(ACTIONS)),
    };
    *at += 1;
    if let OperationAction::Drop(oid) = &mut action {
        let Some(name) = word(*at).and_then(|word| after(word, "control=")) else {
            return Err(Fault::argument(*at - 1, "`drop` does not say what").with_help("drop control=<OID>"));
        };
        *oid = known_control(schema, *at, name)?;
        *at += 1;
    }
    let flow = match word(*at) {
        Some(word) if is(word, "stop") => FlowControl::Stop,
        Some(word) if is(word, "continue") => FlowControl::Continue,
        Some(word) if is(word, "break") => FlowControl::Break,
        _ => return Ok(OperationClause { who, action, flow: FlowControl::Stop }),
    };
    *at += 1;
    Ok(OperationClause { who, action, flow })
}

/// The words between `by` and the action, in the language of access rules.
fn who(schema: &Arc<Schema>, words: &[String], from: usize, to: usize) -> Result<AccessRule, Fault> {
    let given = words.get(from..to).unwrap_or_default();
    if given.is_empty() {
        return Err(Fault::argument(from - 1, "`by` does not say whom").with_help("by * reject"));
    }
    let quoted = given.iter().map(|word| {
        let plain = word.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{plain}\"")
    });
    let quoted = quoted.collect::<Vec<_>>().join(" ");
    let rule = AccessRule::parse(&format!("to * by {quoted} write")).map_err(|error| {
        let fault = Fault::argument(from, format!("`{}`: {}", given.join(" "), error.fault));
        fault.with_help(format!("by <who> as in access rules, then one of {ACTIONS}"))
    })?;
    for clause in &rule.by {
        if clause.own_value.is_some() || clause.who.iter().any(needs_entry) {
            let message = format!("`{}` asks for an entry, and `restrictop` has none", given.join(" "));
            return Err(Fault::argument(from, message)
                .with_help("*, anonymous, users, dn[.style]=, group=, peername=, sockname=, sockurl=, domain=, ssf= and their like"));
        }
    }
    requester(schema, &rule).map_err(|error| Fault::argument(from, error.fault.to_string()))?;
    Ok(rule)
}

/// Self, attributes of the entry, sets, modules and what is put in from a match.
fn needs_entry(who: &Who) -> bool {
    match who {
        Who::SelfEntry { .. } | Who::DnAttribute { .. } | Who::Set { .. } | Who::Dynamic { .. } => true,
        Who::Dn { pattern: DnPattern::Scoped { expand, .. }, .. } | Who::Group { expand, .. } => *expand,
        _ => false,
    }
}

fn is(word: &str, keyword: &str) -> bool {
    word.eq_ignore_ascii_case(keyword)
}

/// What follows a keyword, whatever its case.
fn after<'w>(word: &'w str, keyword: &str) -> Option<&'w str> {
    let (head, rest) = word.split_at_checked(keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then_some(rest)
}
