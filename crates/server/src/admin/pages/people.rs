//! People made simple: found, made, let in and kept out, and which groups they are in.

use larix_proto::control::{ControlValue as _, SortKey, SortRequest};
use larix_proto::extended::PasswordModify;
use larix_proto::filter::escaped;
use larix_proto::{ModifyOperation, Scope};
use maud::{Markup, html};

use super::edit::refused;
use super::layout::{self, MenuItem};
use super::listing::Listing;
use super::login::suffixes;
use super::values::entry_url;
use crate::admin::client::{AttributeChange, LdapClient, ReceivedAttribute, ReceivedEntry};
use crate::admin::form::{Form, url};
use crate::admin::names;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply, explain};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;

/// Groups of one person that are listed.
const GROUPS_MAX: u32 = 200;
/// Where numbers for POSIX accounts and groups begin when there is none yet.
const FIRST_NUMBER: u64 = 10_000;
const PEOPLE: &str = "(|(objectClass=person)(objectClass=posixAccount)(objectClass=account))";
/// A time that never ends (draft-behera-ldap-password-policy-10 section 5.3.3).
const LOCKED_FOR_EVER: &[u8] = b"000001010000Z";

/// `/people?q=&base=&page=`.
pub(super) async fn list(visit: &Visit<'_>) -> PageResult {
    let new = new_url(visit, "/people/new");
    let listing = Listing {
        place: MenuItem::People,
        path: "/people",
        title: "People",
        question: "Name, login or mail",
        no_match: "Nobody matches",
        kind: PEOPLE,
        searched_attributes: &["cn", "uid", "sn", "mail"],
        attributes: &["cn", "uid", "mail", "pwdAccountLockedTime"],
        empty: html! {
            h2 { "Nobody is here yet" }
            p { "A user is a person or a program that logs in. Making one takes a name and nothing else." }
            p { a.button.primary href=(new) { "Make your first user" } }
        },
        beside: html! { a.button.primary href=(new) { "New user" } },
        header: html! { th { "Name" } th { "Login" } th { "Mail" } },
    };
    let row = |person: &ReceivedEntry| {
        html! {
            td {
                a href=(one_url(&person.dn)) { (person.text("cn").map_or_else(|| names::called(&person.dn), str::to_owned)) }
                @if is_locked(person) { " " span.tag.warn { "locked" } }
            }
            td { (person.text("uid").unwrap_or("")) }
            td { (person.text("mail").unwrap_or("")) }
        }
    };
    listing.page(visit, row).await
}

pub(super) fn one_url(dn: &str) -> String {
    url("/people/one", &[("dn", dn)])
}

fn is_locked(person: &ReceivedEntry) -> bool {
    !person.values("pwdAccountLockedTime").is_empty()
}

/// `/people/one?dn=`.
pub(super) async fn one(visit: &Visit<'_>) -> PageResult {
    let dn = visit.query.get("dn");
    let mut client = visit.session.client.lock().await;
    let wanted =
        ["*", "pwdAccountLockedTime", "pwdChangedTime", "pwdReset", "createTimestamp", "modifyTimestamp"];
    let person = client
        .read(dn, &wanted)
        .await
        .attempt(format!("Reading {dn}"))?
        .ok_or_else(|| Problem::no_entry(dn))?;
    let lock = if is_locked(&person) {
        lock_notice(client.is_usable(dn).await)
    } else {
        html! {}
    };
    let base = suffix_of(visit, dn);
    let mine = groups_of(&mut client, &base, &person).await;
    let all = client
        .page(&base, Scope::Subtree, super::groups::GROUPS, &["cn"], (GROUPS_MAX, b""))
        .await
        .map(|page| page.entries)
        .unwrap_or_default();
    drop(client);
    let others: Vec<_> = all.iter().filter(|group| !mine.iter().any(|own| own.dn == group.dn)).collect();
    let name = person.text("cn").map_or_else(|| names::called(dn), str::to_owned);
    let facts = [
        ("Login", "uid"),
        ("Mail", "mail"),
        ("Telephone", "telephoneNumber"),
        ("Title", "title"),
        ("User number", "uidNumber"),
        ("Home", "homeDirectory"),
    ];
    let content = html! {
        (lock)
        dl.facts {
            @for (title, attribute) in facts {
                @if let Some(text) = person.text(attribute) { dt { (title) } dd { (text) } }
            }
            dt { "Entry" } dd { a href=(entry_url(dn)) { (dn) } }
            @if let Some(time) = person.text("pwdChangedTime").and_then(super::values::readable_time) {
                dt { "Password set" } dd { (time) }
            }
        }
        div.actions {
            a.button href=(url("/entry/edit", &[("dn", dn)])) { "Edit" }
            (lock_button(visit, &person))
            (super::device::link(visit, dn))
            a.button.danger href=(url("/entry/delete", &[("dn", dn)])) { "Delete" }
        }
        (password_form(visit, dn))
        section aria-labelledby="groups" {
            h2 #groups { "Groups" }
            @if mine.is_empty() { p.help { "In no group." } }
            @else {
                table { tbody { @for group in &mine { tr {
                    td { a href=(super::groups::one_url(&group.dn)) { (names::called(&group.dn)) } }
                    td { (super::groups::member_form(visit, &group.dn, dn, "remove", "person", html! {
                        button.quiet type="submit" { "Remove" }
                    })) }
                } } } }
            }
            @if !others.is_empty() {
                form method="post" action="/groups/member" {
                    (layout::csrf(visit))
                    input type="hidden" name="who" value=(dn);
                    input type="hidden" name="action" value="add";
                    input type="hidden" name="back" value="person";
                    div.row {
                        div {
                            label for="group" { "Add to a group" }
                            select #group name="dn" { @for group in &others { option value=(group.dn) { (names::called(&group.dn)) } } }
                        }
                        button.fix type="submit" { "Add to the group" }
                    }
                }
            } @else if mine.is_empty() {
                p { a.button href="/groups/new" { "Make a group" } }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::People, &name, content)))
}

/// What the lock of an account means; `is_usable`: whether the account can log in, if the server says.
fn lock_notice(is_usable: Option<bool>) -> Markup {
    html! {
        div.notice.warning {
            @if is_usable == Some(true) {
                p {
                    "This account has a lock, and can log in all the same: the lock is over, or the account's password policy has no "
                    code { "pwdLockout: TRUE" } "."
                }
            } @else {
                p { "This account is locked: nobody can log in with it." }
            }
        }
    }
}

fn lock_button(visit: &Visit<'_>, person: &ReceivedEntry) -> Markup {
    let config = visit.admin.server.config();
    let has_locks = config
        .databases
        .iter()
        .any(|database| config.overlays_of(database).any(|o| o.keeps("pwdAccountLockedTime")));
    let (action, name) = if is_locked(person) { ("unlock", "Unlock") } else { ("lock", "Lock") };
    html! {
        @if has_locks {
            form method="post" action="/people/lock" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(person.dn);
                button type="submit" name="action" value=(action) { (name) }
            }
        }
    }
}

fn password_form(visit: &Visit<'_>, dn: &str) -> Markup {
    html! {
        section aria-labelledby="password-title" {
            h2 #password-title { "Password" }
            form method="post" action="/people/password" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(dn);
                div.row {
                    div {
                        label for="new" { "New password" }
                        input #new type="password" name="new" autocomplete="new-password" aria-describedby="new-help";
                    }
                    button.fix type="submit" { "Set the password" }
                }
                p.help #new-help { "Leave it empty and one is made up, which is shown once." }
            }
            (super::reset::code_form(visit, dn))
        }
    }
}

/// `/people/password`.
pub(super) async fn password(visit: &Visit<'_>) -> PageResult {
    let form = visit.form.ok_or(Problem::NotFound)?;
    let dn = form.get("dn");
    let mut client = visit.session.client.lock().await;
    set_password(visit, &mut client, dn, form.get("new")).await?;
    super::end_sessions(visit.admin, dn, Scope::Base, Some(visit.session));
    Ok(Reply::SeeOther(one_url(dn)))
}

/// Sets a password, or lets the server make one up, which the next page shows.
async fn set_password(
    visit: &Visit<'_>,
    client: &mut LdapClient,
    dn: &str,
    new: &str,
) -> Result<(), Problem> {
    let request = PasswordModify {
        user: Some(dn.as_bytes()),
        old: None,
        new: (!new.is_empty()).then_some(new.as_bytes()),
    };
    let generated = client.change_password(request).await.attempt(format!("Setting the password of {dn}"))?;
    match generated {
        Some(password) => visit.session.secret(
            format!("The new password of {}; it is shown this once:", names::called(dn)),
            String::from_utf8_lossy(&password).into_owned(),
        ),
        None => {
            visit.session.notice(NoticeKind::Done, format!("The password of {} is set.", names::called(dn)))
        }
    }
    Ok(())
}

/// `/people/lock`, where a password policy stands.
pub(super) async fn lock(visit: &Visit<'_>) -> PageResult {
    let form = visit.form.ok_or(Problem::NotFound)?;
    let dn = form.get("dn");
    let lock = form.get("action") == "lock";
    let change = AttributeChange {
        operation: ModifyOperation::Replace,
        name: "pwdAccountLockedTime".to_owned(),
        values: lock.then(|| LOCKED_FOR_EVER.to_vec()).into_iter().collect(),
    };
    let mut client = visit.session.client.lock().await;
    client.modify(dn, &[change], &[]).await.attempt(if lock {
        "Locking the account"
    } else {
        "Unlocking the account"
    })?;
    if lock {
        super::end_sessions(visit.admin, dn, Scope::Base, None);
    }
    // What keeps nobody out is no lock: the next page says why.
    let is_usable = if lock { client.is_usable(dn).await } else { None };
    let done = match is_usable {
        _ if !lock => "The account is open again.",
        Some(true) => "The lock is written.",
        _ => "The account is locked.",
    };
    visit.session.notice(NoticeKind::Done, done);
    Ok(Reply::SeeOther(one_url(dn)))
}

/// The suffix that a DN lies under.
pub(super) fn suffix_of(visit: &Visit<'_>, dn: &str) -> String {
    let all = suffixes(visit.admin);
    let mut at = Some(dn.to_owned());
    while let Some(dn) = at {
        if let Some(found) = all.iter().find(|suffix| names::same(suffix, &dn)) {
            return found.clone();
        }
        at = names::parent(&dn);
    }
    all.into_iter().next().unwrap_or_default()
}

/// The way to the form of a new entry in the naming context that a list shows.
pub(super) fn new_url(visit: &Visit<'_>, path: &str) -> String {
    match visit.query.get("base") {
        "" => path.to_owned(),
        base => url(path, &[("base", base)]),
    }
}

/// The naming context of a new entry: the one that the address names, or the first.
pub(super) fn new_base(visit: &Visit<'_>) -> String {
    let all = suffixes(visit.admin);
    let named = all.iter().find(|suffix| names::same(suffix, visit.query.get("base"))).cloned();
    named.or_else(|| all.into_iter().next()).unwrap_or_default()
}

async fn groups_of(client: &mut LdapClient, base: &str, person: &ReceivedEntry) -> Vec<ReceivedEntry> {
    let dn = escaped(&person.dn);
    let login = person.text("uid").map(|uid| format!("(memberUid={})", escaped(uid))).unwrap_or_default();
    let filter = format!("(|(member={dn})(uniqueMember={dn}){login})");
    let page = client.page(base, Scope::Subtree, &filter, &["cn"], (GROUPS_MAX, b"")).await;
    page.map(|page| page.entries).unwrap_or_default()
}

/// `/people/new`.
pub(super) async fn new(visit: &Visit<'_>) -> PageResult {
    let base = new_base(visit);
    let mut client = visit.session.client.lock().await;
    let guessed = guess_parent(&mut client, &base, PEOPLE, &["people", "users"], "people").await;
    let Some(form) = visit.form else {
        drop(client);
        return Ok(Reply::page(new_page(visit, &Form::default(), &guessed, html! {})));
    };
    let parent = match form.trimmed("parent") {
        "" => guessed.clone(),
        parent => parent.to_owned(),
    };
    let made = make(visit, &mut client, form, &suffix_of(visit, &parent), &parent).await;
    drop(client);
    match made {
        Ok(dn) => Ok(Reply::SeeOther(one_url(&dn))),
        Err(Problem::Refused { what, result }) => {
            let trouble = refused(&format!("{what} did not succeed"), &result);
            Ok(Reply::Page(hyper::StatusCode::UNPROCESSABLE_ENTITY, new_page(visit, form, &guessed, trouble)))
        }
        Err(Problem::Bad(why)) => {
            let trouble = layout::alert("Not yet", html! { p { (why) } });
            Ok(Reply::Page(hyper::StatusCode::UNPROCESSABLE_ENTITY, new_page(visit, form, &guessed, trouble)))
        }
        Err(other) => Err(other),
    }
}

async fn make(
    visit: &Visit<'_>,
    client: &mut LdapClient,
    form: &Form,
    base: &str,
    parent: &str,
) -> Result<String, Problem> {
    let (given, sn) = (form.trimmed("givenName"), form.trimmed("sn"));
    let joined = format!("{given} {sn}");
    let cn = Some(form.trimmed("cn")).filter(|cn| !cn.is_empty()).unwrap_or_else(|| joined.trim());
    let uid = form.trimmed("uid");
    if uid.is_empty() || sn.is_empty() {
        return Err(Problem::Bad("A family name and a login are needed.".to_owned()));
    }
    let password = FirstPassword::chosen(form)?;
    super::prepare(client, base, parent).await?;
    let mut entry = Builder::default();
    entry.add("objectClass", "inetOrgPerson");
    for (name, value) in [
        ("uid", uid),
        ("cn", cn),
        ("sn", sn),
        ("givenName", given),
        ("mail", form.trimmed("mail")),
        ("telephoneNumber", form.trimmed("telephoneNumber")),
    ] {
        entry.add(name, value);
    }
    if form.has("posix") {
        let next = next_number(client, base, "uidNumber").await;
        entry.add("objectClass", "posixAccount");
        entry.add("uidNumber", &next.to_string());
        entry.add("gidNumber", Some(form.trimmed("gidNumber")).filter(|n| !n.is_empty()).unwrap_or("100"));
        entry.add("homeDirectory", &format!("/home/{uid}"));
        entry.add("loginShell", "/bin/bash");
    }
    let dn = names::below(&names::rdn("uid", uid), parent);
    client.add(&dn, &entry.0).await.attempt("Making the user")?;
    visit.session.notice(NoticeKind::Done, format!("{cn} is a user now."));
    let set = match password {
        FirstPassword::None => Ok(()),
        FirstPassword::Own(new) => set_password(visit, client, &dn, new).await,
        FirstPassword::MadeUp => set_password(visit, client, &dn, "").await,
    };
    match set {
        Ok(()) => {}
        // The user is there: what is left to do is done on the user's page.
        Err(Problem::Refused { result, .. }) => visit.session.notice(
            NoticeKind::Warning,
            format!("The password is not set. {} ({result}) Set one below.", explain(&result)),
        ),
        Err(other) => return Err(other),
    }
    Ok(dn)
}

/// What a new user logs in with.
#[derive(Debug, PartialEq, Eq)]
enum FirstPassword<'f> {
    None,
    Own(&'f str),
    MadeUp,
}

impl<'f> FirstPassword<'f> {
    /// A password that was typed counts, though nothing was chosen: `generate` is what the form has at first.
    fn chosen(form: &'f Form) -> Result<Self, Problem> {
        match (form.get("password"), form.get("new")) {
            ("none", "") => Ok(Self::None),
            ("none", _) => Err(Problem::Bad(
                "“None” is chosen, and a password is typed: empty the field, or choose “This one”."
                    .to_owned(),
            )),
            ("own", "") => Err(Problem::Bad("“This one” is chosen: type the password.".to_owned())),
            (_, "") => Ok(Self::MadeUp),
            (_, new) => Ok(Self::Own(new)),
        }
    }
}

/// Attributes in the order in which they came; empty values are none.
#[derive(Debug, Default)]
pub(super) struct Builder(pub(super) Vec<ReceivedAttribute>);

impl Builder {
    pub(super) fn add(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        match self.0.iter_mut().find(|attribute| attribute.name == name) {
            Some(attribute) => attribute.values.push(value.as_bytes().to_vec()),
            None => self
                .0
                .push(ReceivedAttribute { name: name.to_owned(), values: vec![value.as_bytes().to_vec()] }),
        }
    }
}

/// Where the next entry of a kind is most likely wanted: beside the others, or in a container of a usual name, which may
/// have to be made first.
pub(super) async fn guess_parent(
    client: &mut LdapClient,
    base: &str,
    filter: &str,
    usual: &[&str],
    first: &str,
) -> String {
    if let Ok(page) = client.page(base, Scope::Subtree, filter, &["1.1"], (1, b"")).await
        && let Some(parent) = page.entries.first().and_then(|entry| names::parent(&entry.dn))
    {
        return parent;
    }
    let containers: String = usual.iter().map(|name| format!("(ou={name})")).collect();
    if let Ok(page) = client.page(base, Scope::Subtree, &format!("(|{containers})"), &["1.1"], (1, b"")).await
        && let Some(found) = page.entries.into_iter().next()
    {
        return found.dn;
    }
    names::below(&names::rdn("ou", first), base)
}

/// One more than the highest number there is; `attribute`: uidNumber or gidNumber.
pub(super) async fn next_number(client: &mut LdapClient, base: &str, attribute: &str) -> u64 {
    let keys = vec![SortKey { attribute, ordering_rule: None, reverse: true }];
    let control = SortRequest { keys }.to_control(true);
    let highest = client.highest(base, &format!("({attribute}=*)"), attribute, control).await;
    highest.map_or(FIRST_NUMBER, |highest| highest.saturating_add(1).max(FIRST_NUMBER))
}

fn new_page(visit: &Visit<'_>, form: &Form, parent: &str, trouble: Markup) -> Markup {
    let text = |name: &str, label: &str, kind: &str, required: bool| {
        html! {
            div {
                label for=(name) { (label) @if required { " *" } }
                input type=(kind) id=(name) name=(name) value=(form.get(name)) required[required] autocomplete="off";
            }
        }
    };
    let chosen =
        |value: &str| form.get("password") == value || (value == "generate" && !form.has("password"));
    let given_or = |name: &str, usual: &str| -> String {
        Some(form.get(name)).filter(|text| !text.is_empty()).unwrap_or(usual).to_owned()
    };
    let content = html! {
        (trouble)
        form method="post" action="/people/new" {
            (layout::csrf(visit))
            div.columns {
                (text("givenName", "Given name", "text", false))
                (text("sn", "Family name", "text", true))
                div {
                    label for="cn" { "Full name" }
                    input #cn name="cn" value=(form.get("cn")) data-from="givenName sn" autocomplete="off";
                }
                div {
                    label for="uid" { "Login *" }
                    input #uid name="uid" value=(form.get("uid")) required data-from="givenName sn" data-make="login"
                        autocomplete="off" autocapitalize="none" spellcheck="false";
                }
                (text("mail", "Mail", "email", false))
                (text("telephoneNumber", "Telephone", "tel", false))
            }
            fieldset {
                legend { "Password" }
                label.inline { input type="radio" name="password" value="generate" checked[chosen("generate")]; "Make one up and show it once" }
                label.inline { input #own-password type="radio" name="password" value="own" checked[chosen("own")]; "This one:" }
                label.inline { input type="radio" name="password" value="none" checked[chosen("none")]; "None: cannot log in yet" }
                input type="password" name="new" aria-label="The password" autocomplete="new-password"
                    data-chooses="own-password";
            }
            details open[form.has("posix")] {
                summary { "Where, and for Linux machines" }
                label for="parent" { "Below" }
                input #parent name="parent" value=(given_or("parent", parent)) autocomplete="off"
                    aria-describedby="parent-help";
                p.help #parent-help { "A container that is not there yet is made." }
                label.inline {
                    input type="checkbox" name="posix" value="1" checked[form.has("posix")];
                    "Also an account on Linux machines (posixAccount, with the next free number)"
                }
                label for="gidNumber" { "Number of the main group" }
                input.narrow #gidNumber name="gidNumber" value=(given_or("gidNumber", "100")) inputmode="numeric";
            }
            div.actions {
                button.primary type="submit" { "Make the user" }
                a.button href="/people" { "Cancel" }
            }
        }
    };
    layout::page(visit, MenuItem::People, "New user", content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_was_typed_is_never_dropped() {
        let check = |form: &str, expected: Option<FirstPassword<'_>>| {
            let form = Form::parse(form.as_bytes());
            assert_eq!(FirstPassword::chosen(&form).ok(), expected);
        };
        check("password=generate&new=", Some(FirstPassword::MadeUp));
        check("password=generate&new=typed", Some(FirstPassword::Own("typed")));
        check("password=own&new=typed", Some(FirstPassword::Own("typed")));
        check("password=own&new=", None);
        check("password=none&new=", Some(FirstPassword::None));
        check("password=none&new=typed", None);
        check("", Some(FirstPassword::MadeUp));
    }
}
