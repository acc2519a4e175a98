//! An entry deleted or renamed, and an entry as LDIF.

use larix_proto::control::{Assertion, ControlValue as _, TreeDelete};
use larix_proto::filter::escaped;
use larix_proto::{ControlBuf, FilterBuf, Rdn, Scope};
use maud::html;

use super::edit::refused;
use super::export::{self, ExportRequest, Format};
use super::layout::{self, MenuItem};
use super::values::entry_url;
use crate::admin::names;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;

/// Entries below one that are counted before they are deleted.
const COUNTED_MAX: u32 = 1_000;

/// `/entry/delete`: asks, then deletes; what has entries below it asks twice.
pub(super) async fn delete(visit: &Visit<'_>) -> PageResult {
    let fields = visit.form.unwrap_or(visit.query);
    let dn = fields.get("dn");
    let mut client = visit.session.client.lock().await;
    let read = client.read(dn, &["entryCSN"]).await.attempt(format!("Reading {dn}"))?;
    let entry = read.ok_or_else(|| Problem::no_entry(dn))?;
    let (seen, csn) = (fields.get("csn"), entry.text("entryCSN").unwrap_or_default());
    let below = client
        .page(dn, Scope::Children, "(objectClass=*)", &["1.1"], (COUNTED_MAX, b""))
        .await
        .attempt(format!("Looking below {dn}"))?;
    let (count, more) = (below.entries.len(), !below.cookie.is_empty());
    let name = names::first(dn);
    let confirmed = fields.trimmed("name") == name;
    let mut trouble = html! {};
    let is_unconfirmed = visit.form.is_some() && count > 0 && !confirmed;
    if is_unconfirmed {
        trouble = layout::alert(
            "Not deleted",
            html! { p { "The name that was typed is not " code { (name) } "." } },
        );
    } else if visit.form.is_some() {
        let tree = (count > 0).then(|| TreeDelete.to_control(true));
        let controls: Vec<_> = unchanged(csn, seen).into_iter().chain(tree).collect();
        match client.delete(dn, &controls).await {
            Ok(_) => {
                super::end_sessions(visit.admin, dn, Scope::Subtree, None);
                visit.session.notice(NoticeKind::Done, format!("{name} is deleted."));
                return Ok(Reply::SeeOther(
                    names::parent(dn).map_or_else(|| "/browse".to_owned(), |up| entry_url(&up)),
                ));
            }
            Err(result) => trouble = refused("This cannot be deleted", &result),
        }
    }
    let content = html! {
        (trouble)
        p { "Delete " code { (dn) } "?" }
        @if count > 0 {
            p { strong {
                @if more { "More than " (count) " entries" } @else if count == 1 { "1 entry" } @else { (count) " entries" }
                " below it will be deleted with it."
            } }
            ul.plain { @for entry in below.entries.iter().take(5) { li { code { (entry.dn) } } } @if count > 5 { li { "…" } } }
        }
        form method="post" action="/entry/delete" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(dn);
            input type="hidden" name="csn" value=(if is_unconfirmed && !seen.is_empty() { seen } else { csn });
            @if count > 0 {
                label for="name" { "To make sure, type " code { (name) } }
                input #name name="name" autocomplete="off" required;
            }
            div.actions {
                button.danger type="submit" { @if count > 0 { "Delete all of it" } @else { "Delete" } }
                a.button href=(entry_url(dn)) autofocus[count == 0] { "Keep it" }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Browse, &format!("Delete {name}"), content)))
}

/// Has a change refused if somebody has changed the entry since the user saw it with the entryCSN `seen`. `csn`: the one that the user
/// may see now.
fn unchanged(csn: &str, seen: &str) -> Option<ControlBuf> {
    if csn.is_empty() || seen.is_empty() {
        return None;
    }
    let filter = FilterBuf::parse(&format!("(entryCSN={})", escaped(seen))).ok()?;
    Some(Assertion { filter: filter.as_filter() }.to_control(true))
}

/// `/entry/rename`.
pub(super) async fn rename(visit: &Visit<'_>) -> PageResult {
    let fields = visit.form.unwrap_or(visit.query);
    let dn = fields.get("dn");
    let parent = names::parent(dn).unwrap_or_default();
    let (mut rdn, mut superior) = (names::first(dn), parent.clone());
    let mut keep_old = false;
    let mut trouble = html! {};
    if let Some(form) = visit.form {
        rdn = form.trimmed("rdn").to_owned();
        superior = form.trimmed("superior").to_owned();
        keep_old = form.has("keep");
        let moved = (!names::same(&superior, &parent)).then_some(superior.as_str());
        match Rdn::parse(&rdn) {
            Err(error) => trouble = layout::alert("Not renamed", html! { p { (error) } }),
            Ok(_) => {
                let mut client = visit.session.client.lock().await;
                match client.rename(dn, &rdn, !keep_old, moved, &[]).await {
                    Ok(_) => {
                        let new = names::below(&rdn, &superior);
                        visit.session.notice(NoticeKind::Done, format!("{} is {new} now.", names::first(dn)));
                        return Ok(Reply::SeeOther(entry_url(&new)));
                    }
                    Err(result) => trouble = refused("This cannot be renamed", &result),
                }
            }
        }
    }
    let content = html! {
        (trouble)
        p { code { (dn) } }
        form method="post" action="/entry/rename" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(dn);
            label for="rdn" { "Name" }
            input #rdn name="rdn" value=(rdn) required autocomplete="off" aria-describedby="rdn-help";
            p.help #rdn-help { "Attribute and value, such as " code { "cn=Ann Example" } "." }
            label for="superior" { "Below" }
            input #superior name="superior" value=(superior) autocomplete="off";
            label.inline { input type="checkbox" name="keep" value="1" checked[keep_old]; "Keep the old name's value in the entry" }
            div.actions {
                button.primary type="submit" { "Rename" }
                a.button href=(entry_url(dn)) { "Cancel" }
            }
            p.help { "Everything below it moves along." }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Browse, &format!("Rename {}", names::first(dn)), content)))
}

/// `/entry/ldif?dn=&scope=sub`: a file.
pub(super) async fn ldif(visit: &Visit<'_>) -> PageResult {
    let scope = if visit.query.get("scope") == "sub" { Scope::Subtree } else { Scope::Base };
    let request =
        ExportRequest { base: visit.query.get("dn"), scope, filter: "(objectClass=*)", attributes: &[] };
    export::file(visit, request, Format::Ldif).await
}
