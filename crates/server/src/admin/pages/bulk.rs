//! Several entries deleted at once, after a look at them.

use hyper::StatusCode;
use larix_proto::{Dn, Scope};
use maud::{Markup, html};

use super::layout::{self, MenuItem};
use crate::admin::names;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply, explain};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;

/// Entries that one request names: a page of what was found.
const ENTRIES_MAX: usize = 100;

/// POST `/entries/delete` with a field `dn` for each: shows what would go, and with `step=run` deletes it. Entries with others below them
/// stay, unless these were chosen as well.
pub(super) async fn delete(visit: &Visit<'_>) -> PageResult {
    let Some(form) = visit.form else { return Err(Problem::NotFound) };
    let mut chosen: Vec<&str> = form.all("dn").collect();
    if chosen.is_empty() {
        return Err(Problem::Bad("No entry was chosen: go back and tick some.".to_owned()));
    }
    if chosen.len() > ENTRIES_MAX {
        return Err(Problem::Bad(format!(
            "{} entries were chosen; at most {ENTRIES_MAX} are deleted at once.",
            chosen.len()
        )));
    }
    // Those below come first, so that what was above them can go as well.
    let mut by_depth = Vec::with_capacity(chosen.len());
    for dn in chosen.drain(..) {
        let parsed = Dn::parse(dn).map_err(|error| Problem::Bad(format!("{dn}: {error}")))?;
        by_depth.push((std::cmp::Reverse(parsed.rdns().len()), dn));
    }
    by_depth.sort_by_key(|(depth, _)| *depth);
    let chosen: Vec<&str> = by_depth.into_iter().map(|(_, dn)| dn).collect();
    if form.get("step") == "run" { run(visit, &chosen).await } else { preview(visit, &chosen).await }
}

async fn preview(visit: &Visit<'_>, chosen: &[&str]) -> PageResult {
    let mut client = visit.session.client.lock().await;
    let mut rows = Vec::with_capacity(chosen.len());
    for dn in chosen {
        let entry = client.read(dn, &["hasSubordinates"]).await.attempt(format!("Reading {dn}"))?;
        let note = match &entry {
            None => "is not there any more",
            Some(entry) if entry.text("hasSubordinates") == Some("TRUE") => {
                "has entries below it, and stays unless all of these are chosen, too"
            }
            Some(_) => "",
        };
        rows.push((*dn, note));
    }
    drop(client);
    let content = html! {
        p { strong { (count(chosen.len())) } " will be deleted. There is no way back but a backup." }
        ul.plain { @for (dn, note) in &rows {
            li { code { (dn) } @if !note.is_empty() { " " span.tag { (note) } } }
        } }
        form method="post" action="/entries/delete" {
            (layout::csrf(visit))
            @for dn in chosen { input type="hidden" name="dn" value=(dn); }
            div.actions {
                button.danger type="submit" name="step" value="run" { "Delete " (count(chosen.len())) }
                a.button href="/search" autofocus { "Keep them" }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Search, "Delete entries", content)))
}

async fn run(visit: &Visit<'_>, chosen: &[&str]) -> PageResult {
    let mut client = visit.session.client.lock().await;
    let mut refused = Vec::new();
    for dn in chosen {
        match client.delete(dn, &[]).await {
            Ok(_) => super::end_sessions(visit.admin, dn, Scope::Base, None),
            Err(_) if client.is_gone() => return Err(Problem::LoggedOut),
            Err(result) => refused.push((*dn, result)),
        }
    }
    drop(client);
    let done = chosen.len() - refused.len();
    if refused.is_empty() {
        visit.session.notice(NoticeKind::Done, format!("{} deleted.", count(done)));
        return Ok(Reply::SeeOther("/search".to_owned()));
    }
    let rows: Vec<(String, Markup)> =
        refused.iter().map(|(dn, result)| (names::first(dn), html! { (explain(result)) })).collect();
    let content = html! {
        (layout::alert("Not all were deleted", html! {
            p { (done) " of " (count(chosen.len())) " are deleted. These are still there:" }
            ul { @for (name, why) in &rows { li { code { (name) } ": " (why) } } }
        }))
        p { a.button href="/search" { "Back to the search" } }
    };
    Ok(Reply::Page(
        StatusCode::UNPROCESSABLE_ENTITY,
        layout::page(visit, MenuItem::Search, "Delete entries", content),
    ))
}

fn count(number: usize) -> String {
    if number == 1 { "1 entry".to_owned() } else { format!("{number} entries") }
}
