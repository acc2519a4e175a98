//! Groups made simple: found, made, and who is in them.

use larix_proto::filter::escaped;
use larix_proto::{ModifyOperation, Scope};
use maud::{Markup, html};

use super::edit::refused;
use super::layout::{self, MenuItem};
use super::listing::Listing;
use super::people::{self, Builder};
use super::values::entry_url;
use crate::admin::client::{AttributeChange, LdapClient, ReceivedEntry};
use crate::admin::form::{Form, url};
use crate::admin::names;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;

/// Members listed at once.
const MEMBERS_SHOWN: usize = 200;
/// People offered while typing.
const OFFERED: u32 = 50;
pub(super) const GROUPS: &str =
    "(|(objectClass=groupOfNames)(objectClass=groupOfUniqueNames)(objectClass=posixGroup))";

/// `/groups?q=&base=&page=`.
pub(super) async fn list(visit: &Visit<'_>) -> PageResult {
    let new = people::new_url(visit, "/groups/new");
    let listing = Listing {
        place: MenuItem::Groups,
        path: "/groups",
        title: "Groups",
        question: "Name or description",
        no_match: "No group matches",
        kind: GROUPS,
        searched_attributes: &["cn", "description"],
        attributes: &["cn", "description", "objectClass"],
        empty: html! {
            h2 { "There is no group yet" }
            p { "Programs ask which group somebody is in to decide what they may do." }
            p { a.button.primary href=(new) { "Make your first group" } }
        },
        beside: html! { a.button.primary href=(new) { "New group" } },
        header: html! { th { "Name" } th { "Kind" } th { "Description" } },
    };
    let row = |group: &ReceivedEntry| {
        html! {
            td { a href=(one_url(&group.dn)) { (names::called(&group.dn)) } }
            td { (kind(group).1) }
            td { (group.text("description").unwrap_or("")) }
        }
    };
    listing.page(visit, row).await
}

pub(super) fn one_url(dn: &str) -> String {
    url("/groups/one", &[("dn", dn)])
}

/// The attribute that names a group's members, and what the kind is called.
fn kind(group: &ReceivedEntry) -> (&'static str, &'static str) {
    if group.is_a("groupOfNames") {
        ("member", "groupOfNames")
    } else if group.is_a("groupOfUniqueNames") {
        ("uniqueMember", "groupOfUniqueNames")
    } else {
        ("memberUid", "posixGroup")
    }
}

/// `/groups/one?dn=`.
pub(super) async fn one(visit: &Visit<'_>) -> PageResult {
    let dn = visit.query.get("dn");
    let mut client = visit.session.client.lock().await;
    let group = client
        .read(dn, &["*"])
        .await
        .attempt(format!("Reading {dn}"))?
        .ok_or_else(|| Problem::no_entry(dn))?;
    let offered = offered(visit, &mut client, dn).await;
    drop(client);
    let (attribute, kind) = kind(&group);
    let members = group.texts(attribute);
    let has_more = members.len() > MEMBERS_SHOWN;
    let content = html! {
        dl.facts {
            @if let Some(text) = group.text("description") { dt { "Description" } dd { (text) } }
            dt { "Kind" } dd { (kind) }
            @if let Some(text) = group.text("gidNumber") { dt { "Group number" } dd { (text) } }
            dt { "Entry" } dd { a href=(entry_url(dn)) { (dn) } }
        }
        div.actions {
            a.button href=(url("/entry/edit", &[("dn", dn)])) { "Edit" }
            a.button.danger href=(url("/entry/delete", &[("dn", dn)])) { "Delete" }
        }
        section aria-labelledby="members" {
            h2 #members { (members.len()) @if members.len() == 1 { " member" } @else { " members" } }
            table.stack { tbody {
                @for member in members.iter().take(MEMBERS_SHOWN) {
                    tr {
                        td {
                            @if attribute == "memberUid" { (member) }
                            @else { a href=(people::one_url(member)) { (names::called(member)) } " " span.soft { (member) } }
                        }
                        td { (member_form(visit, dn, member, "remove", "group", html! {
                            button.quiet type="submit" aria-label={ "Remove " (names::called(member)) } { "Remove" }
                        })) }
                    }
                }
            } }
            @if has_more { p.soft { "and " (members.len() - MEMBERS_SHOWN) " more, which the field below removes" } }
            form method="post" action="/groups/member" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(dn);
                input type="hidden" name="back" value="group";
                div.row {
                    div {
                        label for="who" { @if has_more { "Add or remove somebody" } @else { "Add somebody" } }
                        input #who name="who" list="people" required autocomplete="off" aria-describedby="who-help";
                        datalist #people { @for (login, name) in &offered { option value=(login) { (name) } } }
                    }
                    button.fix type="submit" name="action" value="add" { "Add to the group" }
                    @if has_more { button.fix type="submit" name="action" value="remove" { "Remove from the group" } }
                }
                p.help #who-help { "A login, a mail address, a name or a DN." }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::Groups, &names::called(dn), content)))
}

/// A form of one button that changes one membership.
pub(super) fn member_form(
    visit: &Visit<'_>,
    group: &str,
    who: &str,
    action: &str,
    back: &str,
    button: Markup,
) -> Markup {
    html! {
        form method="post" action="/groups/member" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(group);
            input type="hidden" name="who" value=(who);
            input type="hidden" name="action" value=(action);
            input type="hidden" name="back" value=(back);
            (button)
        }
    }
}

async fn offered(visit: &Visit<'_>, client: &mut LdapClient, dn: &str) -> Vec<(String, String)> {
    let base = people::suffix_of(visit, dn);
    let page = client
        .page(&base, Scope::Subtree, "(&(objectClass=person)(uid=*))", &["uid", "cn"], (OFFERED, b""))
        .await;
    let entries = page.map(|page| page.entries).unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| Some((entry.text("uid")?.to_owned(), entry.text("cn").unwrap_or("").to_owned())))
        .collect()
}

/// `/groups/member`: `dn` a group, `who` a person, `action` add or remove.
pub(super) async fn member(visit: &Visit<'_>) -> PageResult {
    let form = visit.form.ok_or(Problem::NotFound)?;
    let (dn, who) = (form.get("dn"), form.trimmed("who"));
    let add = form.get("action") == "add";
    let mut client = visit.session.client.lock().await;
    let group = client
        .read(dn, &["objectClass"])
        .await
        .attempt(format!("Reading {dn}"))?
        .ok_or_else(|| Problem::no_entry(dn))?;
    let (attribute, _) = kind(&group);
    let person = match add {
        true => find(visit, &mut client, dn, who).await?,
        // As it stands in the group, whatever became of the person; but memberUid holds a login.
        false if attribute == "memberUid" || who.contains('=') => {
            Person { dn: who.to_owned(), login: names::called(who) }
        }
        false => find(visit, &mut client, dn, who).await?,
    };
    let value = if attribute == "memberUid" { &person.login } else { &person.dn };
    let change = AttributeChange {
        operation: if add { ModifyOperation::Add } else { ModifyOperation::Delete },
        name: attribute.to_owned(),
        values: vec![value.as_bytes().to_vec()],
    };
    let what = match add {
        true => "Adding to the group",
        false if attribute == "memberUid" => "Removing from the group",
        false => "Removing from the group (a group of this kind needs a member)",
    };
    client.modify(dn, &[change], &[]).await.attempt(what)?;
    let (group_name, name) = (names::called(dn), names::called(&person.dn));
    visit.session.notice(
        NoticeKind::Done,
        match add {
            true => format!("{name} is in {group_name} now."),
            false => format!("{name} is not in {group_name} any more."),
        },
    );
    Ok(Reply::SeeOther(match form.get("back") {
        "person" => people::one_url(&person.dn),
        _ => one_url(dn),
    }))
}

struct Person {
    dn: String,
    login: String,
}

/// The one person that a DN, a login, a mail address or a name means.
async fn find(visit: &Visit<'_>, client: &mut LdapClient, near: &str, who: &str) -> Result<Person, Problem> {
    if who.contains('=') {
        let found = client.read(who, &["uid"]).await.attempt(format!("Reading {who}"))?;
        let found = found.ok_or_else(|| Problem::Bad(format!("There is no entry {who}.")))?;
        let login = found.text("uid").map_or_else(|| names::called(who), str::to_owned);
        return Ok(Person { dn: found.dn, login });
    }
    let base = people::suffix_of(visit, near);
    let text = escaped(who);
    let filter = format!("(|(uid={text})(cn={text})(mail={text}))");
    let page = client
        .page(&base, Scope::Subtree, &filter, &["uid"], (3, b""))
        .await
        .attempt("Looking for a person")?;
    match page.entries.as_slice() {
        [one] => {
            let login = one.text("uid").map_or_else(|| names::called(&one.dn), str::to_owned);
            Ok(Person { dn: one.dn.clone(), login })
        }
        [] => Err(Problem::Bad(format!("Nobody has the login, mail address or name “{who}”."))),
        _ => Err(Problem::Bad(format!("“{who}” is more than one entry: give the login or the DN."))),
    }
}

/// `/groups/new`.
pub(super) async fn new(visit: &Visit<'_>) -> PageResult {
    let base = people::new_base(visit);
    let mut client = visit.session.client.lock().await;
    let guessed = people::guess_parent(&mut client, &base, GROUPS, &["groups"], "groups").await;
    let offered = offered(visit, &mut client, &base).await;
    let Some(form) = visit.form else {
        drop(client);
        return Ok(Reply::page(new_page(visit, &Form::default(), &guessed, &offered, html! {})));
    };
    let made = make(visit, &mut client, form, &guessed).await;
    drop(client);
    let trouble = match made {
        Ok(dn) => return Ok(Reply::SeeOther(one_url(&dn))),
        Err(Problem::Refused { what, result }) => refused(&format!("{what} did not succeed"), &result),
        Err(Problem::Bad(why)) => layout::alert("Not yet", html! { p { (why) } }),
        Err(other) => return Err(other),
    };
    let page = new_page(visit, form, &guessed, &offered, trouble);
    Ok(Reply::Page(hyper::StatusCode::UNPROCESSABLE_ENTITY, page))
}

async fn make(
    visit: &Visit<'_>,
    client: &mut LdapClient,
    form: &Form,
    guessed: &str,
) -> Result<String, Problem> {
    let cn = form.trimmed("cn");
    if cn.is_empty() {
        return Err(Problem::Bad("A group needs a name.".to_owned()));
    }
    let parent = Some(form.trimmed("parent")).filter(|parent| !parent.is_empty()).unwrap_or(guessed);
    let base = &people::suffix_of(visit, parent);
    let mut entry = Builder::default();
    let posix = form.get("kind") == "posixGroup";
    let who = form.trimmed("who");
    let first = match who {
        "" if posix => None,
        "" => return Err(Problem::Bad("A group of this kind needs a first member.".to_owned())),
        who => Some(find(visit, client, base, who).await?),
    };
    entry.add("objectClass", if posix { "posixGroup" } else { "groupOfNames" });
    entry.add("cn", cn);
    entry.add("description", form.trimmed("description"));
    if posix {
        let number = match form.trimmed("gidNumber") {
            "" => people::next_number(client, base, "gidNumber").await.to_string(),
            typed => typed.to_owned(),
        };
        entry.add("gidNumber", &number);
    }
    if let Some(first) = &first {
        let (attribute, value) = if posix { ("memberUid", &first.login) } else { ("member", &first.dn) };
        entry.add(attribute, value);
    }
    super::prepare(client, base, parent).await?;
    let dn = names::below(&names::rdn("cn", cn), parent);
    client.add(&dn, &entry.0).await.attempt("Making the group")?;
    visit.session.notice(NoticeKind::Done, format!("{cn} is a group now."));
    Ok(dn)
}

fn new_page(
    visit: &Visit<'_>,
    form: &Form,
    parent: &str,
    offered: &[(String, String)],
    trouble: Markup,
) -> Markup {
    let posix = form.get("kind") == "posixGroup";
    let content = html! {
        (trouble)
        form method="post" action="/groups/new" {
            (layout::csrf(visit))
            label for="cn" { "Name *" }
            input #cn name="cn" value=(form.get("cn")) required autocomplete="off";
            label for="description" { "Description" }
            input #description name="description" value=(form.get("description")) autocomplete="off";
            label for="who" { "First member" }
            input #who name="who" list="people" value=(form.get("who")) autocomplete="off" aria-describedby="who-help";
            datalist #people { @for (login, name) in offered { option value=(login) { (name) } } }
            p.help #who-help { "A login, a mail address, a name or a DN. Others are added afterwards." }
            details open[posix] {
                summary { "Kind, and where" }
                fieldset {
                    legend { "Kind" }
                    label.inline { input type="radio" name="kind" value="groupOfNames" checked[!posix]; "For programs (groupOfNames)" }
                    label.inline { input type="radio" name="kind" value="posixGroup" checked[posix]; "For Linux machines (posixGroup)" }
                    label for="gidNumber" { "Group number, for Linux machines" }
                    input.narrow #gidNumber name="gidNumber" value=(form.get("gidNumber")) inputmode="numeric" aria-describedby="gidNumber-help";
                    p.help #gidNumber-help { "Empty: the next free number." }
                }
                label for="parent" { "Below" }
                input #parent name="parent" value=(Some(form.get("parent")).filter(|p| !p.is_empty()).unwrap_or(parent)) autocomplete="off";
            }
            div.actions {
                button.primary type="submit" { "Make the group" }
                a.button href="/groups" { "Cancel" }
            }
        }
    };
    layout::page(visit, MenuItem::Groups, "New group", content)
}
