//! The last lines of the log.

use maud::{Markup, html};

use super::layout::{self, MenuItem};
use crate::admin::reply::{PageResult, Problem, Reply};
use crate::admin::respond::Visit;

/// An identity that may read this entry may read the log, which has lines about every client.
const WITNESS: &str = "cn=config";
/// Lines shown unless another number is asked for.
const LINES: usize = 200;

pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let content = match may_read_configuration(visit).await? {
        true => content(visit),
        false => html! { p.help { "The log is shown to those who may read " code { "cn=config" } "." } },
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Log, "Log", content)))
}

/// Whether this identity may read `cn=config`.
pub(super) async fn may_read_configuration(visit: &Visit<'_>) -> Result<bool, Problem> {
    visit.shows(WITNESS, "objectClass").await
}

fn content(visit: &Visit<'_>) -> Markup {
    let question = visit.query.trimmed("q");
    let most = visit.query.get("lines").parse().unwrap_or(LINES);
    let needle = question.to_lowercase();
    let all = visit.admin.server.log.recent();
    let fits = |line: &&String| needle.is_empty() || line.to_lowercase().contains(&needle);
    let mut lines: Vec<&String> = all.iter().rev().filter(fits).take(most).collect();
    lines.reverse();
    if all.is_empty() {
        return nothing_yet();
    }
    html! {
        form.row method="get" action="/log" role="search" {
            div { label for="q" { "Lines with" } input #q type="search" name="q" value=(question); }
            div {
                label for="lines" { "At most" }
                select #lines name="lines" {
                    @for count in [50, LINES, 1_000] { option value=(count) selected[count == most] { (count) } }
                }
            }
            button.fix type="submit" { "Show" }
        }
        p.help role="status" {
            (lines.len()) " of the last " (all.len()) " lines, the newest last. What is logged, and where it is kept, is "
            a href="/config" { "configured" } "; only lines that are written somewhere are here."
        }
        @if !lines.is_empty() {
            pre.log tabindex="0" role="region" aria-label="Lines of the log" data-end { @for line in &lines { (line) "\n" } }
        }
    }
}

/// Why there are no lines, and what to do about it.
fn nothing_yet() -> Markup {
    html! {
        div.empty {
            h2 { "This server writes no log yet" }
            p {
                "Only lines that go somewhere are shown here, and no line has: there is no log file, no " code { "syslog" }
                " on this machine takes them, and the server was not started with " code { "-d" } "."
            }
            p {
                "Start it with " code { "-d stats" } " to have them on its standard error, or add " code { "olcLogFile" }
                " with the path of a file to the global settings in the " a href="/config" { "configuration" }
                ": that works at once."
            }
        }
    }
}
