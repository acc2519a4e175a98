//! `larix acl explain` as a page: which rule decides, and why the others do not. It changes nothing.

use std::net::{IpAddr, SocketAddr};

use larix_engine::access::{
    ClauseOutcome, ClauseStep, Decision, Explanation, PeerNames, Privilege, RuleName, RuleOutcome, RuleStep,
    Strength, Subject,
};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use super::log::may_read_configuration;
use crate::admin::form::Form;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::schema::{self, Look};
use crate::databases::{About, AccessQuestion};

/// What can be asked for, and what it is for.
const PRIVILEGES: [(Privilege, &str, &str); 10] = [
    (Privilege::Read, "read", "read: see values"),
    (Privilege::Search, "search", "search: find by values"),
    (Privilege::Compare, "compare", "compare: ask for one value"),
    (Privilege::Auth, "auth", "auth: log in with it"),
    (Privilege::Disclose, "disclose", "disclose: learn that it is there"),
    (Privilege::Write, "write", "write: add and delete"),
    (Privilege::Add, "add", "add"),
    (Privilege::Delete, "delete", "delete"),
    (Privilege::Increment, "increment", "increment"),
    (Privilege::Manage, "manage", "manage: everything"),
];

/// What protects the connection of who asks.
const PROTECTIONS: [(&str, &str); 3] = [("tls", "TLS"), ("sasl", "SASL"), ("transport", "ldapi://")];

/// The strongest that is believed: bits of a key.
const SSF_MAX: u32 = 65_536;

/// `/access?dn=` shows the form; a form that is sent shows the answer.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let fields = visit.form.unwrap_or(visit.query);
    // What no one may see here says no more than that.
    if !may_read_configuration(visit).await? {
        let content =
            html! { p.help { "Access rules are shown to those who may read " code { "cn=config" } "." } };
        return Ok(Reply::page(layout::page(visit, MenuItem::Access, "Access", content)));
    }
    let answer = match visit.form {
        None => html! {},
        Some(form) => match answer(visit, form).await {
            Ok(answer) => answer,
            Err(Problem::Bad(why)) => layout::alert("This cannot be asked", html! { p { (why) } }),
            Err(other) => return Err(other),
        },
    };
    let content = html! {
        p.help {
            "Choose who asks and for what: the page shows which access rule decides, and why the others do not. Nothing is changed, "
            "and nobody is logged in. You need the right " code { "manage" } " to the entry."
        }
        (form(visit, fields))
        (answer)
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Access, "Access", content)))
}

fn form(visit: &Visit<'_>, fields: &Form) -> Markup {
    let value_of = |name: &str, default: &'static str| match fields.trimmed(name) {
        "" => default.to_owned(),
        text => text.to_owned(),
    };
    let (access, protection) = (value_of("access", "read"), value_of("protection", "tls"));
    html! {
        form.access method="post" action="/access" {
            (layout::csrf(visit))
            fieldset {
                legend { "Who asks" }
                label for="who" { "DN" }
                input #who name="who" value=(fields.trimmed("who")) aria-describedby="who-help" spellcheck="false" autocomplete="off";
                p.help #who-help { "Empty: anonymous." }
                div.row {
                    div { label for="peer" { "From the address" } input #peer name="peer" value=(fields.trimmed("peer")) placeholder="192.0.2.1" autocomplete="off"; }
                    div { label for="ssf" { "Strength (ssf)" } input #ssf name="ssf" type="number" min="0" max=(SSF_MAX) value=(value_of("ssf", "0")); }
                    div {
                        label for="protection" { "By" }
                        select #protection name="protection" { @for (name, title) in PROTECTIONS { option value=(name) selected[name == protection] { (title) } } }
                    }
                }
            }
            fieldset {
                legend { "For what" }
                label for="dn" { "Entry" }
                input #dn name="dn" value=(fields.trimmed("dn")) required spellcheck="false" autocomplete="off";
                div.row {
                    div { label for="attribute" { "Attribute" } input #attribute name="attribute" value=(fields.trimmed("attribute")) aria-describedby="attribute-help" autocomplete="off"; }
                    div { label for="value" { "Value, if rules ask for it" } input #value name="value" value=(fields.get("value")) autocomplete="off"; }
                    div {
                        label for="access" { "Access" }
                        select #access name="access" { @for (_, name, title) in PRIVILEGES { option value=(name) selected[name == access] { (title) } } }
                    }
                }
                p.help #attribute-help { "Also " code { "entry" } " and " code { "children" } ". Empty: all of the entry." }
            }
            button.primary type="submit" { "Explain" }
        }
    }
}

async fn answer(visit: &Visit<'_>, form: &Form) -> Result<Markup, Problem> {
    let schema = visit.admin.server.config().schema.clone();
    let question = question(&schema, form).map_err(Problem::Bad)?;
    let shown = form.trimmed("dn").to_owned();
    if !may_manage(visit, &shown).await? {
        let why = format!(
            "There is no entry {shown:?} to which you have the right manage. Ask for another entry, or log in as its database's rootdn."
        );
        return Err(Problem::Bad(why));
    }
    let generation = visit.admin.server.generation_in_force();
    // On a thread beside the page's: rules with sets and groups read other entries.
    let found = visit.admin.aside.run(move || generation.databases.explain_access(&question)).await;
    let unavailable = |text: String| LdapResult::with(ResultCode::OTHER, text);
    let found = found.map_err(|error| unavailable(error.to_string())).attempt("Explaining access")?;
    let found = found.map_err(|fault| unavailable(fault.to_string())).attempt("Explaining access")?;
    let Some(found) = found else {
        return Err(Problem::Bad(format!("No database that this server stores has an entry {shown:?}.")));
    };
    Ok(html! {
        section #answer aria-labelledby="answer-title" {
            h2 #answer-title tabindex="-1" data-focus { (summary(&found)) }
            @for (about, explanation) in &found { (explained(&schema, about, explanation, found.len() == 1)) }
        }
    })
}

/// From the fields of the form.
fn question(schema: &Schema, form: &Form) -> Result<AccessQuestion, String> {
    let dn = |name: &str| {
        let text = form.trimmed(name);
        schema.parse_dn(text).map_err(|error| {
            format!("{text:?} is not a DN ({error}): write it as uid=ann,ou=people,dc=example,dc=com.")
        })
    };
    let ssf = match form.trimmed("ssf") {
        "" => 0,
        text => text
            .parse()
            .ok()
            .filter(|ssf| *ssf <= SSF_MAX)
            .ok_or_else(|| format!("The strength {text:?} is not a number from 0 to {SSF_MAX}."))?,
    };
    let mut strength = Strength { overall: ssf, ..Strength::default() };
    match form.trimmed("protection") {
        "sasl" => strength.sasl = ssf,
        "transport" => strength.transport = ssf,
        _ => strength.tls = ssf,
    }
    let peer = PeerNames { peer_name: peer_name(form.trimmed("peer"))?, ..PeerNames::default() };
    let subject = Subject::anonymous(peer.into(), strength).bound_as(dn("who")?, form.trimmed("who"));
    let value = form.get("value");
    let about = match form.trimmed("attribute") {
        "" => None,
        "entry" => Some(About::Entry),
        "children" => Some(About::Children),
        name => {
            let description = schema
                .describe(name)
                .map_err(|error| format!("{name:?} is not an attribute of the schema ({error})."))?;
            Some(About::Attribute {
                description,
                value: (!value.is_empty()).then(|| value.as_bytes().to_vec()),
            })
        }
    };
    let access = form.trimmed("access");
    let privilege = PRIVILEGES.iter().find(|(_, name, _)| *name == access).map(|(privilege, ..)| *privilege);
    let privilege = privilege
        .ok_or_else(|| format!("{access:?} is not an access: take read, write or another of the list."))?;
    if form.trimmed("dn").is_empty() {
        return Err("The name of the entry is missing.".to_owned());
    }
    Ok(AccessQuestion { subject, dn: dn("dn")?, about, privilege })
}

/// As access rules know a client: `IP=192.0.2.1:0`. The port is one that no rule asks for.
fn peer_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with("IP=") || text.starts_with("PATH=") {
        return Ok(text.to_owned());
    }
    let address: IpAddr = text.parse().map_err(|_| {
        format!("{text:?} is not an IP address: write 192.0.2.1, 2001:db8::1 or PATH=/run/ldapi.")
    })?;
    Ok(format!("IP={}", SocketAddr::new(address, 0)))
}

/// The directory says so itself: it shows the rights of others to an entry to those alone who may manage it.
async fn may_manage(visit: &Visit<'_>, dn: &str) -> Result<bool, Problem> {
    let mut client = visit.session.client.lock().await;
    let read = client.read_with_rights(dn, "", &[]).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    Ok(read.is_ok_and(|entry| entry.is_some_and(|entry| entry.text("aclRights;entryLevel").is_some())))
}

fn summary(found: &[(About, Explanation)]) -> String {
    let granted = found.iter().filter(|(_, explanation)| explanation.granted).count();
    match found {
        [(_, explanation)] => if explanation.granted { "Allowed" } else { "Denied" }.to_owned(),
        _ => format!("{granted} of {} allowed", found.len()),
    }
}

fn explained(schema: &Schema, about: &About, explanation: &Explanation, open: bool) -> Markup {
    let what = match about {
        About::Entry => "entry".to_owned(),
        About::Children => "children".to_owned(),
        About::Attribute { description, value } => {
            let name = description.to_text(schema);
            match value {
                // Not even a hash is to be seen over a shoulder.
                Some(_) if schema::look(schema, &name) == Look::Password => format!("{name}=****"),
                Some(value) => format!("{name}={}", String::from_utf8_lossy(value)),
                None => name,
            }
        }
    };
    let privilege = PRIVILEGES.iter().find(|(privilege, ..)| *privilege == explanation.required);
    let (word, class) = if explanation.granted { ("allowed", "tag good") } else { ("denied", "tag bad") };
    html! {
        details.decision open[open] {
            summary { span class=(class) { (word) } " " (privilege.map_or("", |(_, name, _)| name)) " access to " code { (what) } }
            p { "Decided by " (explanation.decided_by) "." }
            p.help { "Privileges: " code { (explanation.collected) } }
            @if !explanation.steps.is_empty() {
                ol.rules { @for step in &explanation.steps { (rule(step, &explanation.decided_by)) } }
            }
        }
    }
}

fn rule(step: &RuleStep, decision: &Decision) -> Markup {
    let (decides, clause) = match decision {
        Decision::Clause { rule, clause, .. } => (*rule == step.rule, Some(*clause)),
        Decision::EndOfClauses { rule } => (*rule == step.rule, None),
        _ => (false, None),
    };
    html! {
        li.decides[decides] {
            (rule_name(&step.rule)) @if decides { " " span.tag.good { "decides" } }
            @match &step.outcome {
                RuleOutcome::PassedOver { part, written } => { p.help { "Passed over: " (part) " (" code { (written) } ")" } }
                RuleOutcome::Concerned { clauses } => {
                    ul.clauses { @for one in clauses { (clause_step(one, decides && clause == Some(one.index))) } }
                }
            }
        }
    }
}

fn rule_name(name: &RuleName) -> Markup {
    html! { code { (name) } }
}

fn clause_step(step: &ClauseStep, decides: bool) -> Markup {
    html! {
        li.decides[decides] {
            code { (step.text) } " "
            @match &step.outcome {
                ClauseOutcome::PassedOver { condition } => { "passed over: not " code { (condition) } }
                ClauseOutcome::Applied { control, collected, .. } => { "applies: " code { (collected) } ", " (control.name()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_the_names_that_rules_know() {
        for (text, expected) in [
            ("", Ok("")),
            ("192.0.2.1", Ok("IP=192.0.2.1:0")),
            ("2001:db8::1", Ok("IP=[2001:db8::1]:0")),
            ("PATH=/run/ldapi", Ok("PATH=/run/ldapi")),
            ("example.com", Err("\"example.com\" is not an IP address")),
        ] {
            match (peer_name(text), expected) {
                (Ok(name), Ok(expected)) => assert_eq!(name, expected),
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_makes_no_question_is_named() {
        let schema = Schema::system();
        let check = |text: &str, expected: &str| {
            let error = question(schema, &Form::parse(text.as_bytes())).map(|_| ()).expect_err(text);
            assert!(error.contains(expected), "{error}");
        };
        check("access=read", "entry is missing");
        check("dn=nonsense&access=read", "\"nonsense\" is not a DN");
        check("dn=cn%3Da&who=x&access=read", "\"x\" is not a DN");
        check("dn=cn%3Da&access=none", "\"none\" is not an access");
        check("dn=cn%3Da&access=read&ssf=-1", "\"-1\" is not a number");
        check("dn=cn%3Da&access=read&attribute=nothing", "\"nothing\" is not an attribute");
        let question =
            question(schema, &Form::parse(b"dn=cn%3Da&access=write&ssf=128&protection=sasl&attribute=cn"));
        let question = question.expect("a question");
        assert_eq!(
            (
                question.subject.strength.overall,
                question.subject.strength.sasl,
                question.subject.strength.tls
            ),
            (128, 128, 0)
        );
        assert!(question.subject.is_anonymous() && question.privilege == Privilege::Write);
    }
}
