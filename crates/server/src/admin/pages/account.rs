//! My account: the own entry, what of it one may change, and the password.

use larix_schema::Schema;
use maud::{Markup, html};

use super::edit::is_too_long;
use super::layout::{self, MenuItem};
use super::values::{self, Field, entry_url};
use crate::admin::changes;
use crate::admin::client::{ReceivedAttribute, ReceivedEntry};
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::schema;

/// Attributes whose rights are asked for; the server takes 256.
const ASKED_MAX: usize = 256;
/// Values of one attribute that the form holds.
const VALUES_MAX: usize = 100;
/// What people change of themselves, in this order; all else is behind it.
const USUAL: [&str; 14] = [
    "displayName",
    "cn",
    "givenName",
    "sn",
    "jpegPhoto",
    "mail",
    "telephoneNumber",
    "mobile",
    "homePhone",
    "title",
    "roomNumber",
    "postalAddress",
    "preferredLanguage",
    "description",
];
/// Before the name of an attribute that an answer has the rights to.
const RIGHTS: &str = "aclRights;attributeLevel;";

/// `/account`: a form whose change is reviewed and saved as that of any entry.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let dn = visit.session.dn.as_str();
    let schema = visit.admin.server.config().schema.clone();
    let read = {
        let mut client = visit.session.client.lock().await;
        // As the review of the form reads it: overlays show another entry to who asks otherwise. The fields are no older.
        let seen = client.read(dn, &["*", "entryCSN"]).await;
        if client.is_gone() {
            return Err(Problem::LoggedOut);
        }
        match seen {
            Ok(Some(seen)) => {
                let attributes = editable(&schema, &seen);
                let attributes: Vec<&str> = attributes.iter().take(ASKED_MAX).map(String::as_str).collect();
                let entry =
                    client.read_with_rights(dn, dn, &attributes).await.attempt("Reading your entry")?;
                entry.map(|entry| (entry, changes::state(&seen)))
            }
            // The root DN needs no entry, and some may not see their own.
            _ => None,
        }
    };
    let content = html! {
        @match &read {
            Some((entry, state)) => (account(visit, &schema, entry, state)),
            None => {
                p { "You are logged in as " code { (dn) } "." }
                p.help { "There is no entry of this name, or you may not see it. " (root_password()) }
                (password())
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Account, "My account", content)))
}

/// Where the password of those is who need no entry.
pub(super) fn root_password() -> Markup {
    html! {
        "The password of a root DN without an entry is " code { "olcRootPW" } " of its database, in the configuration."
    }
}

fn password() -> Markup {
    html! { div.actions { a.button.primary href="/password" { "Change my password" } } }
}

/// `state` is that of the entry.
fn account(visit: &Visit<'_>, schema: &Schema, entry: &ReceivedEntry, state: &str) -> Markup {
    let dn = entry.dn.as_str();
    let shown: Vec<&ReceivedAttribute> = sorted(
        entry.attributes.iter().filter(|a| {
            !a.name.starts_with("aclRights")
                && !schema::is_operational(schema, &a.name)
                && schema::look(schema, &a.name) != schema::Look::Password
                && !a.name.eq_ignore_ascii_case("objectClass")
        }),
        |a| &a.name,
    );
    let may = writable(entry).into_iter().filter(|name| is_for_users(schema, name));
    let may: Vec<&str> = sorted(may, |name| name);
    let (usual, others): (Vec<&str>, Vec<&str>) =
        may.into_iter().partition(|name| usual_order(name) < USUAL.len());
    let fields = |names: &[&str]| {
        let field = |attribute| Field { schema, attribute, must: false, at_fault: false };
        html! { @for name in names { (values::fields(&field(name), entry.values(name))) } }
    };
    html! {
        p { code { (dn) } }
        div.actions {
            a.button.primary href="/password" { "Change my password" }
            (super::device::link(visit, dn))
        }
        h2 { "What the directory knows of you" }
        table.wide.stack { tbody {
            @for attribute in shown {
                tr {
                    th scope="row" title=[schema::description(schema, &attribute.name)] { (attribute.name) }
                    td { ul.values {
                        @for (n, value) in attribute.values.iter().take(VALUES_MAX).enumerate() {
                            li { (values::show(schema, dn, &attribute.name, n, value)) }
                        }
                    } }
                }
            }
        } }
        @if usual.is_empty() && others.is_empty() {
            p.help { "None of it is yours to change: ask those who run the directory." }
        } @else {
            h2 { "Change it" }
            form method="post" action="/entry/edit" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(dn);
                input type="hidden" name="csn" value=(state);
                input type="hidden" name="from" value="account";
                (fields(&usual))
                @if !others.is_empty() {
                    details open[usual.is_empty()] { summary { "More (" (others.len()) ")" } (fields(&others)) }
                }
                div.actions { button.primary type="submit" name="step" value="review" { "Review the change" } }
            }
        }
        p { a href=(entry_url(dn)) { "The whole entry" } }
    }
}

/// The attributes of one's entry that a form may hold.
fn editable(schema: &Schema, entry: &ReceivedEntry) -> Vec<String> {
    let allowed = schema::allowed(schema, entry.texts("objectClass"));
    let names = allowed.must.into_iter().chain(allowed.may);
    names.filter(|name| is_for_users(schema, name)).collect()
}

/// Whether a form may hold it: the rules let everybody write what the server keeps, and the server then refuses that.
fn is_for_users(schema: &Schema, name: &str) -> bool {
    schema::is_editable(schema, name) && !schema::is_operational(schema, name)
}

/// The attributes that the server lets one write, by its answer to the question for rights.
fn writable(entry: &ReceivedEntry) -> Vec<&str> {
    let rights = entry.attributes.iter().filter_map(|a| Some((a.name.strip_prefix(RIGHTS)?, a)));
    rights
        .filter(|(name, rights)| {
            let may = rights.values.iter().any(|value| has_write(&String::from_utf8_lossy(value)));
            let values = entry.values(name);
            may && !name.eq_ignore_ascii_case("objectClass")
                && values.len() <= VALUES_MAX
                && !is_too_long(values)
        })
        .map(|(name, _)| name)
        .collect()
}

/// Whether the server's answer to the question for rights says that one may write the attribute.
pub(super) fn may_write(entry: &ReceivedEntry, attribute: &str) -> bool {
    let wanted =
        |name: &str| name.strip_prefix(RIGHTS).is_some_and(|name| name.eq_ignore_ascii_case(attribute));
    let rights = entry.attributes.iter().filter(|one| wanted(&one.name)).flat_map(|one| &one.values);
    rights.into_iter().any(|value| has_write(&String::from_utf8_lossy(value)))
}

/// `search:1,read:1,compare:1,write:1,...`
fn has_write(rights: &str) -> bool {
    rights.split(',').any(|right| right.trim() == "write:1")
}

fn usual_order(name: &str) -> usize {
    USUAL.iter().position(|usual| usual.eq_ignore_ascii_case(name)).unwrap_or(USUAL.len())
}

fn sorted<'a, T>(items: impl Iterator<Item = T>, name: impl Fn(&T) -> &'a str) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_by_cached_key(|item| (usual_order(name(item)), name(item).to_ascii_lowercase()));
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_say_what_may_be_written() {
        for (rights, expected) in [
            ("search:1,read:1,compare:1,write:1,selfwrite_add:0,selfwrite_delete:0,proxy:0", true),
            ("search:1,read:1,compare:1,write:0,selfwrite_add:1,selfwrite_delete:1,proxy:0", false),
            ("", false),
        ] {
            assert_eq!(has_write(rights), expected, "{rights}");
        }
    }
}
