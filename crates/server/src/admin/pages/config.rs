//! The configuration: what is asked for most, each a change of cn=config that is reviewed first.

use larix_configuration::{Source, indexed_classes};
use larix_engine::index::IndexStatus;
use larix_proto::Scope;
use maud::{Markup, html};

use super::edit::edit_url;
use super::layout::{self, MenuItem};
use super::values::entry_url;
use crate::admin::changes::{self, TEXT};
use crate::admin::client::ReceivedEntry;
use crate::admin::form::url;
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::log::LogLevel;

/// Entries of cn=config that are read for the page.
const ENTRIES_MAX: u32 = 1_000;

/// `/config`.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let mut client = visit.session.client.lock().await;
    let found = client
        .page("cn=config", Scope::Subtree, "(objectClass=*)", &["*", "entryCSN"], (ENTRIES_MAX, b""))
        .await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    drop(client);
    let figures = super::overview::may_see_figures(visit).await?;
    let entries = found.map(|page| page.entries).unwrap_or_default();
    let Some(global) = entries.iter().find(|entry| entry.is_a("olcGlobal")) else {
        let content = html! {
            div.empty {
                h2 { "You may not see the configuration" }
                p { "It is shown to those who may read " code { "cn=config" } ": its " code { "olcRootDN" } ", or whom its access rules let in." }
            }
        };
        return Ok(Reply::page(layout::page(visit, MenuItem::Configuration, "Configuration", content)));
    };
    let content = html! {
        (where_it_is_kept(visit))
        div.actions {
            a.button href=(entry_url("cn=config")) { "Browse cn=config" }
            a.button href=(edit_url(&global.dn, "config")) { "Edit the global settings" }
            a.button href=(url("/entry/ldif", &[("dn", "cn=config"), ("scope", "sub")])) { "All of it as LDIF" }
        }
        (databases(&entries))
        @for database in entries.iter().filter(|entry| has_index_lines(entry)) { (indexes(visit, database, figures)) }
        (log_level(visit, global))
        (schema(&entries))
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Configuration, "Configuration", content)))
}

fn where_it_is_kept(visit: &Visit<'_>) -> Markup {
    let config = visit.admin.server.config();
    html! {
        @match &config.source {
            Source::Directory(path) => p.help { "Kept in " code { (path.display()) } ". A change takes effect at once and stays." },
            Source::File(path) => div.notice.warning { p {
                "This server was started with " code { (path.display()) }
                ". A change made here takes effect at once, but only the file counts at the next start."
            } },
            Source::QuickStart => div.notice.warning { p {
                "This server has no place for its configuration. A change made here takes effect at once, and is forgotten at "
                "the next start."
            } },
        }
    }
}

/// Known by their attribute: an entry need not name the superior classes of its class.
fn databases(entries: &[ReceivedEntry]) -> Markup {
    html! {
        section aria-labelledby="databases" {
            h2 #databases { "Databases" }
            div.scroll { table.stack {
                thead { tr { th { "Database" } th { "Suffix" } th { "Administrator" } th { "Overlays" } th {} } }
                tbody { @for entry in entries.iter().filter(|entry| entry.text("olcDatabase").is_some()) { tr {
                    th scope="row" { a href=(entry_url(&entry.dn)) { (entry.text("olcDatabase").unwrap_or("")) } }
                    td { (entry.texts("olcSuffix").join(", ")) }
                    td { (entry.text("olcRootDN").unwrap_or("")) }
                    td { (overlays(entries, &entry.dn)) }
                    td { a href=(edit_url(&entry.dn, "config")) aria-label={ "Edit " (entry.text("olcDatabase").unwrap_or("")) } { "Edit" } }
                } } }
            } }
        }
    }
}

fn overlays(entries: &[ReceivedEntry], database: &str) -> String {
    let own = entries.iter().filter(|entry| entry.dn.ends_with(&format!(",{database}")));
    own.filter_map(|entry| entry.text("olcOverlay")).collect::<Vec<_>>().join(", ")
}

/// Whether an entry is that of a database whose indexes an administrator chooses.
fn has_index_lines(entry: &ReceivedEntry) -> bool {
    indexed_classes().any(|class| entry.is_a(class))
}

fn indexes(visit: &Visit<'_>, database: &ReceivedEntry, figures: bool) -> Markup {
    let suffix = database.text("olcSuffix").filter(|_| figures);
    let states = suffix.map(|suffix| visit.admin.server.databases().index_status(suffix)).unwrap_or_default();
    let lines = database.texts("olcDbIndex");
    let id = format!("index-{}", database.text("olcDatabase").unwrap_or(""));
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { "Indexes of " (database.text("olcSuffix").unwrap_or("")) }
            @if lines.is_empty() { p.help { "None: every search but one for a DN looks at every entry." } }
            @else {
                table { thead { tr { th { "Attributes" } th { "Kinds" } th { "State" } } } tbody {
                    @for line in &lines {
                        @let (attributes, kinds) = line.split_once(' ').unwrap_or((line, ""));
                        tr { td { (attributes.replace(',', ", ")) } td { (kinds.replace(',', ", ")) } td { (state(attributes, &states)) } }
                    }
                } }
            }
            form method="post" action="/entry/edit" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(database.dn);
                input type="hidden" name="csn" value=(changes::state(database));
                input type="hidden" name="from" value="config";
                @for line in &lines { input type="hidden" name={ (TEXT) "olcDbIndex" } value=(line); }
                div.row {
                    div {
                        label for={ (id) "-new" } { "One more index" }
                        input id={ (id) "-new" } name={ (TEXT) "olcDbIndex" } placeholder="employeeNumber eq" autocomplete="off" required;
                    }
                    button.fix type="submit" name="step" value="review" { "Review the change" }
                }
            }
        }
    }
}

/// How far the indexes of a line are, and how often searches used them.
fn state(attributes: &str, states: &[IndexStatus]) -> String {
    if states.is_empty() {
        return String::new();
    }
    let named =
        |state: &&IndexStatus| attributes.split(',').any(|name| name.eq_ignore_ascii_case(&state.attribute));
    let words = states.iter().filter(named).map(|state| {
        if !state.is_complete() {
            let part = state.done.saturating_mul(100).checked_div(state.total).unwrap_or(0);
            let left = state.seconds_left.map(|seconds| format!(", {seconds} s left")).unwrap_or_default();
            return format!("being built: {part} %{left}");
        }
        match state.uses.iter().map(|used| used.searches).sum::<u64>() {
            0 => "ready, not used yet".to_owned(),
            1 => "ready, used once".to_owned(),
            uses => format!("ready, used {uses} times"),
        }
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "ready, no entry has it".to_owned() } else { words.join("; ") }
}

fn log_level(visit: &Visit<'_>, global: &ReceivedEntry) -> Markup {
    // Names, or numbers as in C.
    let words = global.texts("olcLogLevel").into_iter().flat_map(|value| value.split([' ', ',']));
    let on = LogLevel(words.filter_map(LogLevel::parse_word).fold(0, |on, level| on | level.0));
    let names = LogLevel::NAMES.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("any"));
    html! {
        section aria-labelledby="log" {
            h2 #log { "What is logged" }
            form method="post" action="/entry/edit" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(global.dn);
                input type="hidden" name="csn" value=(changes::state(global));
                input type="hidden" name="from" value="config";
                @for (name, bits) in names {
                    label.inline {
                        input type="checkbox" name={ (TEXT) "olcLogLevel" } value=(name.to_ascii_lowercase())
                            checked[on.has(*bits)];
                        (name.to_ascii_lowercase())
                    }
                }
                // It has no box, and stays on.
                @if on.has(LogLevel::PCACHE) { input type="hidden" name={ (TEXT) "olcLogLevel" } value="pcache"; }
                p.help { code { "stats" } " writes a line for every operation and its result; " code { "none" } " leaves what is important." }
                button type="submit" name="step" value="review" { "Review the change" }
            }
        }
    }
}

fn schema(entries: &[ReceivedEntry]) -> Markup {
    html! {
        section aria-labelledby="schema" {
            h2 #schema { "Schema" }
            ul.plain { @for entry in entries.iter().filter(|entry| entry.is_a("olcSchemaConfig")) {
                li {
                    a href=(entry_url(&entry.dn)) { (entry.text("cn").unwrap_or("cn=schema")) }
                    " " span.soft {
                        (entry.values("olcAttributeTypes").len()) " attribute types, "
                        (entry.values("olcObjectClasses").len()) " object classes"
                    }
                }
            } }
        }
    }
}
