//! The newest changes of a database, and the way back from one of them.

use larix_engine::log::{LogRecord, LoggedChange};
use larix_proto::control::{Assertion, ControlValue as _};
use larix_proto::filter::escaped;
use larix_proto::ldif::{LdifAttribute, Modification, Writer};
use larix_proto::{ControlBuf, FilterBuf, LdapResult, ResultCode};
use larix_schema::{NormalDn, Schema};
use maud::html;

use super::edit::refused;
use super::layout::{self, MenuItem};
use super::login::suffixes;
use super::values;
use crate::admin::client::LdapClient;
use crate::admin::form::url;
use crate::admin::names;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::schema::{self, Look};
use crate::admin::sessions::NoticeKind;
use crate::admin::undo::{self, Undo};

/// Changes that are shown.
const SHOWN: usize = 100;

/// `/changes?base=`: the newest changes of a database.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let all = suffixes(visit.admin);
    let base = if visit.query.has("base") {
        visit.query.trimmed("base")
    } else {
        all.first().map_or("", String::as_str)
    };
    let may = is_root(visit, base);
    let changes = match &may {
        None => Vec::new(),
        Some(dn) => {
            let (server, dn) = (visit.admin.server.clone(), dn.clone());
            let found = visit.admin.aside.run(move || server.databases().newest_changes(&dn, SHOWN)).await;
            found.map_err(failed).and_then(|found| found.map_err(failed)).attempt("Reading the change log")?
        }
    };
    let content = html! {
        @if all.len() > 1 {
            form.row method="get" action="/changes" {
                div { label for="base" { "Database" } select #base name="base" { @for own in &all { option value=(own) selected[own == base] { (own) } } } }
                button.fix type="submit" { "Show" }
            }
        }
        @if may.is_none() {
            p.help { "Changes are shown to the " code { "rootdn" } " of the database." }
        } @else if changes.is_empty() {
            p.help { "The change log of " code { (base) } " has no change." }
        } @else {
            p.help { "The newest records of the change log: " (changes.len()) ". " b { "Take back" } " shows what it would do first." }
            div.scroll { table.wide.stack {
                thead { tr { th { "When" } th { "Who" } th { "What" } th { "Entry" } th {} } }
                tbody { @for (key, record) in &changes { tr {
                    td { (values::readable_time(&record.csn.time.generalized()).unwrap_or_default()) }
                    td { (names::called(&record.requester)) }
                    td { (what(record)) }
                    td { a href=(values::entry_url(&record.dn)) { (record.dn) } }
                    td {
                        @if !record.local {
                            a href=(url("/changes/undo", &[("base", base), ("n", &key.sequence.to_string())])) aria-label={ "Take back: " (what(record)) " of " (record.dn) } { "Take back" }
                        }
                    }
                } } }
            } }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Changes, "Changes", content)))
}

/// `/changes/undo?base=&n=`: shows what takes a change back; a form does it.
pub(super) async fn take_back(visit: &Visit<'_>) -> PageResult {
    let fields = visit.form.unwrap_or(visit.query);
    let base = fields.trimmed("base");
    let Some(dn) = is_root(visit, base) else {
        return Err(Problem::Bad(format!(
            "Only the rootdn of {base} may take its changes back. Log in as that."
        )));
    };
    let number: u64 = fields.trimmed("n").parse().map_err(|_| Problem::NotFound)?;
    let server = visit.admin.server.clone();
    let found = visit.admin.aside.run(move || server.databases().change_with_history(&dn, number)).await;
    let found =
        found.map_err(failed).and_then(|found| found.map_err(failed)).attempt("Reading the change log")?;
    let Some(found) = found else {
        return Err(Problem::Bad("The change log does not have this change any more.".to_owned()));
    };
    let schema = visit.admin.server.config().schema.clone();
    let record = &found.record;
    let undo = undo::of(&schema, record, &found.earlier).map_err(Problem::Bad)?;
    let mut client = visit.session.client.lock().await;
    let changed = is_changed_since(&mut client, &undo, record).await?;
    let mut trouble = html! {};
    if changed {
        let why = html! { p { "Take the newer changes back first, or edit the entry." } };
        trouble = layout::alert("The entry has changed since", why);
    } else if visit.form.is_some() {
        match carry_out(&mut client, &undo, record).await {
            Ok(()) => {
                visit.session.notice(
                    NoticeKind::Done,
                    format!("The change of {} is taken back.", names::first(&record.dn)),
                );
                return Ok(Reply::SeeOther(url("/changes", &[("base", base)])));
            }
            Err(result) => trouble = refused("This cannot be taken back", &result),
        }
    }
    let content = html! {
        (trouble)
        p { (what(record)) " of " code { (record.dn) } " by " code { (record.requester) } ", " (values::readable_time(&record.csn.time.generalized()).unwrap_or_default()) "." }
        @if matches!(undo, Undo::Add { .. }) {
            p.help { "The entry comes back with another entryUUID. Groups that lost it as a member stay as they are." }
        }
        p { "This takes it back:" }
        pre #ldif { (ldif(&schema, &undo)) }
        @if !changed {
            form method="post" action="/changes/undo" {
                (layout::csrf(visit))
                input type="hidden" name="base" value=(base);
                input type="hidden" name="n" value=(number);
                div.actions {
                    button.primary type="submit" { "Take it back" }
                    a.button href=(url("/changes", &[("base", base)])) { "Leave it" }
                }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Changes, "Take a change back", content)))
}

/// The log has the values of everybody: it is for the root DN alone.
fn is_root(visit: &Visit<'_>, base: &str) -> Option<NormalDn> {
    let databases = visit.admin.server.databases();
    let (who, dn) =
        (databases.schema().parse_dn(&visit.session.dn).ok()?, databases.schema().parse_dn(base).ok()?);
    databases.is_root_over(&who, &dn).then_some(dn)
}

fn failed(error: impl std::fmt::Display) -> LdapResult {
    LdapResult::with(ResultCode::OTHER, error.to_string())
}

fn what(record: &LogRecord) -> String {
    match &record.change {
        LoggedChange::Add(_) => "add".to_owned(),
        LoggedChange::Delete => "delete".to_owned(),
        LoggedChange::ModifyDn { new_rdn, .. } => format!("rename to {new_rdn}"),
        LoggedChange::Modify(list) => {
            // The server's own attributes are in every one.
            let hidden = ["entryCSN", "modifiersName", "modifyTimestamp"];
            let names = list.iter().map(|one| one.attribute.description.as_str());
            let mut shown: Vec<&str> = names.filter(|name| !hidden.contains(name)).collect();
            shown.dedup();
            format!("modify {}", shown.join(", "))
        }
    }
}

/// Whether the entry is another than the change left: it has another entryCSN, it is gone, or it is there again.
async fn is_changed_since(client: &mut LdapClient, undo: &Undo, record: &LogRecord) -> Result<bool, Problem> {
    let read = client.read(undo.dn(), &["entryCSN"]).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    let found = read.attempt(format!("Reading {}", undo.dn()))?;
    Ok(match undo {
        Undo::Add { .. } => found.is_some(),
        _ => found.is_none_or(|entry| entry.text("entryCSN") != Some(record.csn.text().as_str())),
    })
}

/// By the writer, with the rights of who asks, and only if the entry is still what the change left.
async fn carry_out(client: &mut LdapClient, undo: &Undo, record: &LogRecord) -> Result<(), LdapResult> {
    let filter = format!("(entryCSN={})", escaped(&record.csn.text()));
    let filter = FilterBuf::parse(&filter).map_err(failed)?;
    let unchanged: [ControlBuf; 1] = [Assertion { filter: filter.as_filter() }.to_control(true)];
    match undo {
        Undo::Delete { dn } => client.delete(dn, &unchanged).await,
        Undo::Add { dn, attributes } => client.add(dn, attributes).await,
        Undo::Modify { dn, changes } => client.modify(dn, changes, &unchanged).await,
        Undo::Rename { dn, rdn, delete_old, superior } => {
            client.rename(dn, rdn, *delete_old, superior.as_deref(), &unchanged).await
        }
    }
    .map(|_| ())
}

/// The way back as LDIF, without passwords.
fn ldif(schema: &Schema, undo: &Undo) -> String {
    let writer = Writer::new(Some(78));
    let mut out = Vec::new();
    writer.value(&mut out, "dn", undo.dn().as_bytes());
    let shown = |name: &str, values: &[Vec<u8>]| match schema::look(schema, name) {
        Look::Password => values.iter().map(|_| b"(hidden here)".to_vec()).collect(),
        _ => values.to_vec(),
    };
    match undo {
        Undo::Delete { .. } => out.extend_from_slice(b"changetype: delete\n"),
        Undo::Add { attributes, .. } => {
            out.extend_from_slice(b"changetype: add\n");
            let list: Vec<_> = attributes
                .iter()
                .map(|one| LdifAttribute {
                    description: one.name.clone(),
                    values: shown(&one.name, &one.values),
                })
                .collect();
            writer.attributes(&mut out, &list);
        }
        Undo::Modify { changes, .. } => {
            out.extend_from_slice(b"changetype: modify\n");
            for change in changes {
                let (description, values) = (change.name.clone(), shown(&change.name, &change.values));
                writer.modification(
                    &mut out,
                    &Modification { operation: change.operation, description, values },
                );
            }
        }
        Undo::Rename { rdn, delete_old, superior, .. } => {
            out.extend_from_slice(b"changetype: modrdn\n");
            writer.value(&mut out, "newrdn", rdn.as_bytes());
            writer.value(&mut out, "deleteoldrdn", if *delete_old { b"1" } else { b"0" });
            if let Some(superior) = superior {
                writer.value(&mut out, "newsuperior", superior.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
