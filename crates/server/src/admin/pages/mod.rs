//! The pages: one module each. Markup is made by macros that escape every value.

pub(super) mod about;
mod access;
mod account;
mod backups;
pub(super) mod browse;
mod bulk;
pub(super) mod config;
pub(super) mod create;
mod device;
pub(super) mod edit;
mod export;
pub(super) mod groups;
mod history;
mod import;
pub(super) mod layout;
mod listing;
pub(super) mod log;
pub(super) mod login;
pub(super) mod overview;
pub(super) mod own_password;
pub(super) mod people;
pub(super) mod remove;
pub(super) mod replication;
pub(super) mod reset;
pub(super) mod reset_mail;
mod restore;
mod schema;
pub(super) mod search;
mod search_results;
pub(super) mod values;

use std::rc::Rc;

use hyper::StatusCode;
use larix_proto::Scope;
use maud::{Markup, html};

use super::client::LdapClient;
use super::reply::{Attempt as _, PageResult, Problem, Reply, explain};
use super::respond::Visit;
use super::sessions::Session;
use super::{Admin, names};
use layout::MenuItem;

/// The page of a path.
pub(super) async fn route(visit: &Visit<'_>) -> PageResult {
    if visit.session.must_change.get() && visit.path != "/password" {
        return Ok(Reply::SeeOther("/password".to_owned()));
    }
    match visit.path {
        "/password" => own_password::page(visit).await,
        "/" => overview::page(visit).await,
        "/api/figures" => overview::figures(visit).await,
        "/account" => account::page(visit).await,
        "/access" => access::page(visit).await,
        "/about" => about::page(visit).await,
        "/browse" => browse::page(visit).await,
        "/api/children" => browse::api_children(visit).await,
        "/entry/value" => browse::value(visit).await,
        "/entry/edit" => edit::page(visit).await,
        "/entry/new" => create::page(visit).await,
        "/entry/copy" => create::copy(visit).await,
        "/entry/delete" => remove::delete(visit).await,
        "/entry/rename" => remove::rename(visit).await,
        "/entries/delete" => bulk::delete(visit).await,
        "/entry/ldif" => remove::ldif(visit).await,
        "/search" => search::page(visit).await,
        "/search/file" => search::file(visit).await,
        "/import" => import::page(visit).await,
        "/changes" => history::page(visit).await,
        "/changes/undo" => history::take_back(visit).await,
        "/schema" => schema::page(visit).await,
        "/people" => people::list(visit).await,
        "/people/one" => people::one(visit).await,
        "/people/new" => people::new(visit).await,
        "/people/password" => people::password(visit).await,
        "/people/code" => reset::make_code(visit).await,
        "/people/device" => device::page(visit).await,
        "/people/lock" => people::lock(visit).await,
        "/groups" => groups::list(visit).await,
        "/groups/one" => groups::one(visit).await,
        "/groups/new" => groups::new(visit).await,
        "/groups/member" => groups::member(visit).await,
        "/config" => config::page(visit).await,
        "/backup" => backups::page(visit).await,
        "/backup/restore" => restore::page(visit).await,
        "/replication" => replication::page(visit).await,
        "/log" => log::page(visit).await,
        _ => Err(Problem::NotFound),
    }
}

/// Why there is no page, as a page.
pub(super) fn problem(visit: &Visit<'_>, problem: &Problem) -> Reply {
    let (status, title, body) = match problem {
        Problem::NotFound => {
            (StatusCode::NOT_FOUND, "Not found", html! { p { "There is no page at this address." } })
        }
        Problem::NoEntry(dn) => (
            StatusCode::NOT_FOUND,
            "There is no such entry",
            html! {
                p { "There is no entry " code { (dn) } ", or you may not see it." }
                p.help { "It may have been deleted or renamed meanwhile." }
            },
        ),
        Problem::Bad(why) => (StatusCode::BAD_REQUEST, "This does not work", html! { p { (why) } }),
        Problem::LoggedOut => (StatusCode::UNAUTHORIZED, "Logged out", html! {}),
        Problem::Refused { what, result } => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "The directory refused",
            html! {
                p { (what) " did not succeed. " (explain(result)) }
                (layout::result(result))
            },
        ),
    };
    if visit.path.starts_with("/api/") {
        let text = match problem {
            Problem::Refused { result, .. } => result.to_string(),
            Problem::Bad(why) => why.clone(),
            _ => title.to_owned(),
        };
        return Reply::Json(status, serde_json::json!({ "error": text }));
    }
    let page = layout::page(
        visit,
        MenuItem::None,
        title,
        html! {
            div.problem role="alert" { h2 { (title) } (body) }
            p { a href="/" { "Back to the overview" } }
        },
    );
    Reply::Page(status, page)
}

/// Whether there is an entry to be seen.
pub(super) async fn is_there(client: &mut LdapClient, dn: &str) -> Result<bool, Problem> {
    let read = client.read(dn, &["1.1"]).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    Ok(read.attempt(format!("Reading {dn}"))?.is_some())
}

/// Ends the sessions of an account that was locked or deleted, with `scope` also of those below it, or that has another password. `kept`
/// goes on.
fn end_sessions(admin: &Admin, dn: &str, scope: Scope, kept: Option<&Rc<Session>>) {
    let schema = admin.server.config().schema.clone();
    let Ok(ended) = schema.parse_dn(dn) else { return };
    let is_kept = |session: &Session| kept.is_some_and(|kept| std::ptr::eq(Rc::as_ptr(kept), session));
    let is_ended =
        |session: &Session| schema.parse_dn(&session.dn).is_ok_and(|dn| dn.is_in_scope(&ended, scope));
    admin.sessions.borrow_mut().end(|session| !is_kept(session) && is_ended(session));
}

/// Makes the suffix's own entry and a container in it, where they are not there yet.
async fn prepare(client: &mut LdapClient, base: &str, parent: &str) -> Result<(), Problem> {
    for dn in [base, parent] {
        if is_there(client, dn).await? {
            continue;
        }
        let first = names::first(dn);
        let (attribute, _) = first.split_once('=').unwrap_or((first.as_str(), ""));
        let value = names::called(dn);
        let mut entry = people::Builder::default();
        match attribute.to_ascii_lowercase().as_str() {
            "dc" => {
                entry.add("objectClass", "dcObject");
                entry.add("objectClass", "organization");
                entry.add("o", &value);
            }
            "o" => entry.add("objectClass", "organization"),
            "ou" => entry.add("objectClass", "organizationalUnit"),
            "c" => entry.add("objectClass", "country"),
            _ => {
                return Err(Problem::Bad(format!(
                    "{dn} is not there, and of no kind that can be made by itself."
                )));
            }
        }
        entry.add(attribute, &value);
        client.add(dn, &entry.0).await.attempt(format!("Making {dn}"))?;
    }
    Ok(())
}

/// The row above a list: a question, and what else can be done.
fn search_row(
    path: &str,
    label: &str,
    question: &str,
    bases: &[String],
    base: &str,
    beside: Markup,
) -> Markup {
    html! {
        form.row method="get" action=(path) role="search" {
            div {
                label for="q" { (label) }
                input #q type="search" name="q" value=(question);
            }
            @if bases.len() > 1 {
                div {
                    label for="base" { "In" }
                    select #base name="base" { @for own in bases { option value=(own) selected[own == base] { (own) } } }
                }
            }
            button.fix type="submit" { "Search" }
            div.fix { (beside) }
        }
    }
}
