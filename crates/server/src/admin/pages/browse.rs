//! The tree, and one entry of it.

use larix_proto::{Dn, ResultCode, Scope};
use larix_schema::Schema;
use maud::{Markup, html};
use serde_json::json;

use super::layout::{self, MenuItem};
use super::login::suffixes;
use super::values::{self, entry_url};
use crate::admin::client::{LdapClient, ReceivedAttribute, ReceivedEntry};
use crate::admin::form::url;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::{Admin, assets, names, schema};

/// Subordinates listed at once.
const CHILDREN_A_PAGE: u32 = 200;
/// Values of one attribute listed at once.
const VALUES_SHOWN: usize = 200;

/// `/browse?dn=`.
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    let dn = visit.query.get("dn");
    if !dn.is_empty() {
        Dn::parse(dn).map_err(|error| Problem::Bad(format!("{error}")))?;
    }
    let mut client = visit.session.client.lock().await;
    let children = children(&mut client, visit, dn, visit.query.get("page")).await?;
    let entry = match dn {
        "" => None,
        dn => client.read(dn, &["*", "+"]).await.attempt(format!("Reading {dn}"))?,
    };
    drop(client);
    let schema = visit.admin.server.config().schema.clone();
    let title = if dn.is_empty() { "Browse".to_owned() } else { names::first(dn) };
    let content = html! {
        (crumbs(dn, &contexts(visit.admin)))
        div.browse {
            nav.side aria-label="Tree" data-tree="/api/children" data-dn=(dn) { (listed(dn, &children)) }
            div {
                @match &entry {
                    Some(entry) => (show(&schema, entry, &children, visit.session.manages)),
                    None if dn.is_empty() => p.help { "Choose a naming context. Arrow keys open and close the tree." },
                    None => (missing(visit, dn)),
                }
            }
        }
        script type="module" src=(assets::url("tree.js")) {}
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Browse, &title, content)))
}

/// `/api/children?dn=&page=`.
pub(super) async fn api_children(visit: &Visit<'_>) -> PageResult {
    let dn = visit.query.get("dn");
    let mut client = visit.session.client.lock().await;
    let children = children(&mut client, visit, dn, visit.query.get("page")).await?;
    let list: Vec<_> = children
        .list
        .iter()
        .map(|child| json!({ "dn": child.dn, "name": shown_name(dn, &child.dn), "more": child.has_children }))
        .collect();
    Ok(Reply::json(json!({ "children": list, "page": children.next })))
}

/// `/entry/value?dn=&attribute=&n=`: one value's bytes.
pub(super) async fn value(visit: &Visit<'_>) -> PageResult {
    let (dn, attribute) = (visit.query.get("dn"), visit.query.get("attribute"));
    let number: usize = visit.query.get("n").parse().map_err(|_| Problem::NotFound)?;
    let schema = visit.admin.server.config().schema.clone();
    let look = schema::look(&schema, attribute);
    if look == schema::Look::Password {
        return Err(Problem::NotFound);
    }
    let mut client = visit.session.client.lock().await;
    let entry = client
        .read(dn, &[attribute])
        .await
        .attempt(format!("Reading {dn}"))?
        .ok_or_else(|| Problem::no_entry(dn))?;
    let found = entry.attributes.iter().find(|a| a.name.eq_ignore_ascii_case(attribute));
    let bytes = found.and_then(|a| a.values.get(number)).ok_or(Problem::NotFound)?.clone();
    // Only what a browser does nothing but paint is shown by it; the rest is a file.
    let jpeg = look == schema::Look::Jpeg && bytes.starts_with(&[0xff, 0xd8]);
    let safe: String = attribute.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    Ok(Reply::Bytes {
        content_type: if jpeg { "image/jpeg" } else { "application/octet-stream" },
        file_name: (!jpeg).then(|| format!("{safe}.bin")),
        bytes,
    })
}

#[derive(Debug, Default)]
struct Children {
    list: Vec<Child>,
    /// For the next page; empty without one.
    next: String,
}

#[derive(Debug)]
struct Child {
    dn: String,
    has_children: bool,
}

async fn children(
    client: &mut LdapClient,
    visit: &Visit<'_>,
    dn: &str,
    page: &str,
) -> Result<Children, Problem> {
    if dn.is_empty() {
        let mut list: Vec<_> = suffixes(visit.admin);
        for own in ["cn=config", "cn=Monitor"] {
            if matches!(client.read(own, &["1.1"]).await, Ok(Some(_))) {
                list.push(own.to_owned());
            }
        }
        let list = list.into_iter().map(|dn| Child { dn, has_children: true }).collect();
        return Ok(Children { list, next: String::new() });
    }
    let cookie = from_hex(page).ok_or_else(|| Problem::Bad("the page's number is damaged".to_owned()))?;
    let found = client
        .page(dn, Scope::OneLevel, "(objectClass=*)", &["hasSubordinates"], (CHILDREN_A_PAGE, &cookie))
        .await;
    let found = match found {
        Err(result) if result.code == ResultCode::NO_SUCH_OBJECT => return Ok(Children::default()),
        found => found.attempt(format!("Listing what is below {dn}"))?,
    };
    let mut list: Vec<_> = found
        .entries
        .into_iter()
        .map(|entry| Child { has_children: entry.text("hasSubordinates") != Some("FALSE"), dn: entry.dn })
        .collect();
    if page.is_empty() && found.cookie.is_empty() {
        list.sort_by_key(|child| child.dn.to_lowercase());
    }
    Ok(Children { list, next: hex(&found.cookie) })
}

fn shown_name(parent: &str, dn: &str) -> String {
    if parent.is_empty() { dn.to_owned() } else { names::first(dn) }
}

fn listed(dn: &str, children: &Children) -> Markup {
    html! {
        h2 { @if dn.is_empty() { "Naming contexts" } @else { "Below this entry" } }
        @if children.list.is_empty() { p.help { "Nothing is below it." } }
        ul {
            @for child in &children.list { li { a href=(entry_url(&child.dn)) { (shown_name(dn, &child.dn)) } } }
        }
        @if !children.next.is_empty() {
            p { a href=(url("/browse", &[("dn", dn), ("page", &children.next)])) { "More" } }
        }
    }
}

/// All that can be browsed: naming contexts, cn=config and cn=Monitor.
fn contexts(admin: &Admin) -> Vec<String> {
    suffixes(admin).into_iter().chain(["cn=config", "cn=Monitor"].map(str::to_owned)).collect()
}

/// The way to an entry, from its naming context on: above that there is nothing to go to.
fn crumbs(dn: &str, contexts: &[String]) -> Markup {
    let mut above = superiors(dn, contexts);
    let first = above.pop();
    html! {
        @if !dn.is_empty() {
            nav aria-label="Superiors" {
                ol.crumbs {
                    li { a href="/browse" { "All" } }
                    @if let Some(context) = &first { li { a href=(entry_url(context)) { (context) } } }
                    @for dn in above.iter().rev() { li { a href=(entry_url(dn)) { (names::first(dn)) } } }
                    li aria-current="page" { @if first.is_some() { (names::first(dn)) } @else { (dn) } }
                }
            }
        }
    }
}

/// The names above, the nearest first, up to that of the naming context that is highest.
fn superiors(dn: &str, contexts: &[String]) -> Vec<String> {
    let mut above: Vec<String> = std::iter::successors(names::parent(dn), |dn| names::parent(dn)).collect();
    let is_context = |dn: &String| contexts.iter().any(|context| names::same(context, dn));
    let count = above.iter().rposition(is_context).map_or(0, |at| at + 1);
    above.truncate(count);
    above
}

fn missing(visit: &Visit<'_>, dn: &str) -> Markup {
    let is_suffix = suffixes(visit.admin).iter().any(|suffix| names::same(suffix, dn));
    html! {
        div.empty {
            @if is_suffix {
                h2 { "This directory is empty" }
                p { "Nothing is in it yet, not even " code { (dn) } " itself." }
                p { a.button.primary href=(url("/people/new", &[("base", dn)])) { "Make your first user" } }
            } @else {
                h2 { "Nothing to see here" }
                p { "There is no entry " code { (dn) } ", or you may not see it." }
            }
        }
    }
}

fn show(schema: &Schema, entry: &ReceivedEntry, children: &Children, manages: bool) -> Markup {
    let dn = entry.dn.as_str();
    let (operational, user): (Vec<_>, Vec<_>) =
        entry.attributes.iter().partition(|a| schema::is_operational(schema, &a.name));
    let link = |path: &str| url(path, &[("dn", dn)]);
    html! {
        div.actions {
            a.button href=(link("/entry/edit")) { "Edit" }
            a.button href=(url("/entry/new", &[("parent", dn)])) { "Add below" }
            a.button href=(link("/entry/rename")) { "Rename or move" }
            a.button href=(link("/entry/copy")) { "Add a copy" }
            @if is_person(entry) { a.button href=(link("/people/one")) { "As a person" } }
            @if is_group(entry) { a.button href=(link("/groups/one")) { "As a group" } }
            a.button href=(link("/entry/ldif")) { "LDIF" }
            @if manages { a.button href=(link("/access")) { "Who may" } }
            @if !children.list.is_empty() {
                a.button href=(url("/entry/ldif", &[("dn", dn), ("scope", "sub")])) { "LDIF of all below" }
            }
            a.button.danger href=(link("/entry/delete")) { "Delete" }
        }
        p { code #dn { (dn) } " " button.quiet type="button" data-copy="dn" { "Copy" } }
        (table(schema, dn, &user))
        details { summary { "Operational attributes (" (operational.len()) ")" } (table(schema, dn, &operational)) }
    }
}

fn is_person(entry: &ReceivedEntry) -> bool {
    ["person", "organizationalPerson", "inetOrgPerson", "posixAccount", "account"]
        .iter()
        .any(|class| entry.is_a(class))
}

pub(super) fn is_group(entry: &ReceivedEntry) -> bool {
    ["groupOfNames", "groupOfUniqueNames", "posixGroup"].iter().any(|class| entry.is_a(class))
}

fn table(schema: &Schema, dn: &str, attributes: &[&ReceivedAttribute]) -> Markup {
    html! {
        table.wide.stack { tbody {
            @for attribute in attributes {
                tr {
                    th scope="row" title=[schema::description(schema, &attribute.name)] { (attribute.name) }
                    td {
                        ul.values {
                            @for (n, value) in attribute.values.iter().take(VALUES_SHOWN).enumerate() {
                                li { (values::show(schema, dn, &attribute.name, n, value)) }
                            }
                        }
                        @if attribute.values.len() > VALUES_SHOWN {
                            p.soft { "and " (attribute.values.len() - VALUES_SHOWN) " more: see the LDIF" }
                        }
                    }
                }
            }
        } }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::superiors;

    #[test]
    fn the_way_to_an_entry_begins_at_its_naming_context() {
        let contexts = ["dc=example,dc=com", "ou=far,dc=example,dc=com", "cn=config"].map(str::to_owned);
        let check = |dn: &str, above: &[&str]| assert_eq!(superiors(dn, &contexts), above, "{dn}");
        check("dc=example,dc=com", &[]);
        check("uid=a,ou=people,DC=Example,dc=com", &["ou=people,DC=Example,dc=com", "DC=Example,dc=com"]);
        check("uid=a,ou=far,dc=example,dc=com", &["ou=far,dc=example,dc=com", "dc=example,dc=com"]);
        check("olcDatabase={1}mdb,cn=config", &["cn=config"]);
        check("uid=a,dc=elsewhere", &[]);
        check("", &[]);
    }
}
