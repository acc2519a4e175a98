//! Importing: LDIF or CSV, what it would do, and then doing it.

use std::time::Duration;

use larix_engine::time::{Clock, Monotonic};
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use super::login::suffixes;
use super::values::entry_url;
use crate::admin::client::LdapClient;
use crate::admin::form::Form;
use crate::admin::import::{self, Action, CsvRules, Import, Step};
use crate::admin::reply::{PageResult, Problem, Reply, explain};
use crate::admin::respond::Visit;

/// Steps that the preview lists.
const LISTED: usize = 200;
/// Refusals that the report lists; the rest is counted.
const REFUSALS_LISTED: usize = 200;
/// An import ends after this time, and says where: a page is answered within two minutes.
const PATIENCE: Duration = Duration::from_secs(90);

/// `/import`: GET the form; POST `step` = `preview`, `back` or `run`.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let Some(form) = visit.form else { return Ok(begin(visit, visit.query, None)) };
    let text = form.get("text");
    if text.trim().is_empty() {
        return Ok(begin(visit, form, Some("There is nothing to import: choose a file, or paste its text.")));
    }
    let import = read(visit, form, text);
    match form.get("step") {
        "back" => Ok(begin(visit, form, None)),
        "run" if import.faults_in_all == 0 => {
            let mut client = visit.session.client.lock().await;
            let report =
                run(&mut client, &import.steps, form.has("continue"), &*visit.admin.server.clock).await;
            if client.is_gone() && report.done == 0 {
                return Err(Problem::LoggedOut);
            }
            drop(client);
            Ok(done(visit, &import.steps, &report))
        }
        _ => Ok(preview(visit, form, &import)),
    }
}

fn read(visit: &Visit<'_>, form: &Form, text: &str) -> Import {
    if form.get("format") != "csv" {
        return import::ldif(text);
    }
    let schema = visit.admin.server.config().schema.clone();
    let rules = CsvRules {
        parent: form.trimmed("parent"),
        naming: form.trimmed("naming"),
        classes: form.trimmed("classes"),
    };
    import::csv(&schema, text, rules)
}

/// What became of an import.
#[derive(Debug, Default)]
struct Report {
    /// Steps that were carried out.
    done: usize,
    refused: Vec<Refusal>,
    refused_in_all: usize,
    /// The first step that was not tried, where the import ended early.
    rest: Option<usize>,
    /// The time was over.
    late: bool,
}

#[derive(Debug)]
struct Refusal {
    line: u64,
    dn: String,
    text: String,
}

/// Carries out one step after the other. Ends at the first refusal unless `go_on`.
async fn run(client: &mut LdapClient, steps: &[Step], go_on: bool, clock: &dyn Clock) -> Report {
    let began = clock.monotonic();
    let mut report = Report::default();
    for (number, step) in steps.iter().enumerate() {
        if since(began, clock.monotonic()) > PATIENCE {
            report.late = true;
            report.rest = Some(number);
            break;
        }
        let done = match &step.action {
            Action::Add(attributes) => client.add(&step.dn, attributes).await,
            Action::Modify(changes) => client.modify(&step.dn, changes, &[]).await,
            Action::Delete => client.delete(&step.dn, &[]).await,
            Action::Rename { rdn, delete_old, superior } => {
                client.rename(&step.dn, rdn, *delete_old, superior.as_deref(), &[]).await
            }
        };
        let Err(result) = done else {
            report.done += 1;
            continue;
        };
        report.refused_in_all += 1;
        if report.refused.len() < REFUSALS_LISTED {
            let text = format!("{} {result}", explain(&result));
            report.refused.push(Refusal { line: step.line, dn: step.dn.clone(), text });
        }
        if !go_on || client.is_gone() {
            report.rest = (number + 1 < steps.len()).then_some(number + 1);
            break;
        }
    }
    report
}

fn since(began: Monotonic, now: Monotonic) -> Duration {
    Duration::from_nanos(now.0.saturating_sub(began.0))
}

fn begin(visit: &Visit<'_>, form: &Form, trouble: Option<&str>) -> Reply {
    let bases = suffixes(visit.admin);
    let parent =
        if form.has("parent") { form.get("parent") } else { bases.first().map_or("", String::as_str) };
    let or = |name: &str, other: &'static str| {
        if form.has(name) { form.get(name).to_owned() } else { other.to_owned() }
    };
    let is_csv = form.get("format") == "csv";
    let content = html! {
        @if let Some(trouble) = trouble { (layout::alert("Nothing to import", html! { p { (trouble) } })) }
        p { "Entries and changes from a file. Before anything is done you see what it would do." }
        form method="post" action="/import" {
            (layout::csrf(visit))
            fieldset {
                legend { "Kind of file" }
                label.inline { input type="radio" name="format" value="ldif" checked[!is_csv];
                    span { "LDIF: entries to be added, or changes with " code { "changetype" } } }
                label.inline { input type="radio" name="format" value="csv" checked[is_csv];
                    "CSV: a table whose first line names attributes" }
            }
            label for="text" { "Text of the file" }
            textarea #text name="text" rows="14" spellcheck="false" aria-describedby="text-help" { "\n" (form.get("text")) }
            p.help #text-help { "About 3 MiB and " (import::STEPS_MAX) " records at most. " code { "larix modify" } " and " code { "larix add" } " take more." }
            input type="file" data-text-file="text" hidden aria-label="A file to be read into the text";
            details open[is_csv] {
                summary { "For CSV" }
                p.help { "A column " code { "dn" } " holds whole names, a column " code { "objectClass" }
                    " the classes. Without them:" }
                label for="parent" { "Below" }
                input #parent name="parent" value=(parent) autocomplete="off";
                label for="naming" { "The column that names the entries" }
                input #naming name="naming" value=(or("naming", "uid")) autocomplete="off";
                label for="classes" { "Object classes" }
                input #classes name="classes" value=(or("classes", "inetOrgPerson")) autocomplete="off";
                p.help { "Several values in a cell are separated by " code { "|" } ". Empty cells are no values." }
            }
            div.actions { button.primary type="submit" name="step" value="preview" { "Show what it would do" } }
        }
    };
    let page = layout::page(visit, MenuItem::Import, "Import", content);
    match trouble {
        Some(_) => Reply::Page(hyper::StatusCode::UNPROCESSABLE_ENTITY, page),
        None => Reply::page(page),
    }
}

fn preview(visit: &Visit<'_>, form: &Form, import: &Import) -> Reply {
    let can = import.faults_in_all == 0 && !import.steps.is_empty();
    let content = html! {
        @if import.faults_in_all > 0 {
            (layout::alert("This cannot be imported", faults(import)))
        } @else if import.steps.is_empty() {
            (layout::alert("This cannot be imported", html! { p { "There is no record in it." } }))
        }
        @if !import.steps.is_empty() { h2 { (import::summary(&import.steps)) } }
        form method="post" action="/import" {
            (layout::csrf(visit))
            @for (name, value) in form.iter().filter(|(name, _)| !matches!(*name, "step" | "csrf" | "continue")) {
                input type="hidden" name=(name) value=(value);
            }
            @if can {
                label.inline { input type="checkbox" name="continue" value="1"; "Go on after a record that the directory refuses" }
            }
            div.actions {
                @if can { button.primary type="submit" name="step" value="run" { "Import" } }
                button type="submit" name="step" value="back" { "Back to the text" }
                a.button href="/import" { "Cancel" }
            }
        }
        @if !import.steps.is_empty() { (steps(&import.steps)) }
    };
    let page = layout::page(visit, MenuItem::Import, "What the import would do", content);
    match can {
        true => Reply::page(page),
        false => Reply::Page(hyper::StatusCode::UNPROCESSABLE_ENTITY, page),
    }
}

fn faults(import: &Import) -> Markup {
    html! {
        ul.plain {
            @for fault in &import.faults { li { "Line " (fault.line) ": " (fault.text) } }
        }
        @if import.faults_in_all > import.faults.len() {
            p { "and " (import.faults_in_all - import.faults.len()) " more" }
        }
    }
}

fn steps(steps: &[Step]) -> Markup {
    html! {
        table.wide.stack {
            thead { tr { th { "Line" } th { "What" } th { "Entry" } th { "Detail" } } }
            tbody {
                @for step in steps.iter().take(LISTED) {
                    tr {
                        td { (step.line) }
                        td { (step.action.name()) }
                        td { code { (step.dn) } }
                        td { (import::outline(&step.action)) }
                    }
                }
            }
        }
        @if steps.len() > LISTED { p.soft { "and " (steps.len() - LISTED) " more" } }
    }
}

fn done(visit: &Visit<'_>, steps: &[Step], report: &Report) -> Reply {
    let whole = report.refused_in_all == 0 && report.rest.is_none();
    let rest = report.rest.and_then(|number| steps.get(number));
    let content = html! {
        @if whole {
            div.notice.done role="status" { p { @if report.done == 1 { "The record was imported." } @else { "All " (report.done) " records were imported." } } }
        } @else {
            (layout::alert("Not all of it was imported", html! {
                p { (report.done) " of " (steps.len()) " records were carried out, and stay. " (report.refused_in_all) " were refused." }
                @if report.late { p { "The import ended after " (PATIENCE.as_secs()) " seconds." } }
                @if let Some(step) = rest {
                    p { "What begins at line " (step.line) " was not tried: import the file from there on once more." }
                }
            }))
        }
        @if !report.refused.is_empty() {
            table.wide.stack {
                thead { tr { th { "Line" } th { "Entry" } th { "Why it was refused" } } }
                tbody {
                    @for refusal in &report.refused {
                        tr { td { (refusal.line) } td { code { (refusal.dn) } } td { (refusal.text) } }
                    }
                }
            }
            @if report.refused_in_all > report.refused.len() {
                p.soft { "and " (report.refused_in_all - report.refused.len()) " more" }
            }
        }
        p {
            a.button href="/import" { "Import more" } " "
            @if let Some(step) = steps.first() { a.button href=(entry_url(&step.dn)) { "Look at the first entry" } }
        }
    };
    let page = layout::page(visit, MenuItem::Import, "Import", content);
    if whole { Reply::page(page) } else { Reply::Page(hyper::StatusCode::UNPROCESSABLE_ENTITY, page) }
}
