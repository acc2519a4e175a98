//! A second factor for an account: a device that shows codes (TOTP, RFC 6238), enrolled with a QR code, and taken away again.

use hyper::StatusCode;
use larix_engine::time::Clock as _;
use larix_proto::{LdapResult, ModifyOperation, Scope};
use maud::{Markup, html};

use super::account::may_write;
use super::edit::refused;
use super::layout::{self, MenuItem};
use super::people::{Builder, guess_parent, one_url, suffix_of};
use super::values::entry_url;
use crate::admin::client::{AttributeChange, Found, FoundAttribute, LdapClient};
use crate::admin::enrolment::{Enrolment, Parameters, Proof, qr_code};
use crate::admin::form::{Form, url};
use crate::admin::names;
use crate::admin::reply::{Attempt as _, Problem, Reply, Shown};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;
use crate::clock::SystemRandom;
use crate::log::printable;

/// The attribute of an account that names its device, and the class of a device.
const TOKEN: &str = "oathTOTPToken";
/// The class of accounts with a device.
const USER: &str = "oathTOTPUser";
/// The class of entries with parameters, and the attribute of a device that names one.
const PARAMETERS: &str = "oathTOTPParams";
const SECRET: &str = "oathSecret";
/// Entries with parameters to choose from.
const PARAMETERS_MAX: u32 = 50;

/// Whether codes are asked for in any database.
fn is_offered(visit: &Visit<'_>) -> bool {
    let config = visit.admin.server.config();
    config.databases.iter().any(|database| config.overlays_of(database).any(|o| o.has_secret(SECRET)))
}

/// A link to the page of an account, where there are codes.
pub(super) fn link(visit: &Visit<'_>, dn: &str) -> Markup {
    html! {
        @if is_offered(visit) { a.button href=(device_url(dn)) { "Second factor" } }
    }
}

fn device_url(dn: &str) -> String {
    url("/people/device", &[("dn", dn)])
}

/// `/people/device?dn=`.
pub(super) async fn page(visit: &Visit<'_>) -> Shown {
    if !is_offered(visit) {
        return Err(Problem::NotFound);
    }
    let Some(form) = visit.form else { return ask(visit, visit.query.get("dn"), html! {}).await };
    match form.get("step") {
        "show" => show(visit, form).await,
        "confirm" => confirm(visit, form).await,
        "remove" => remove(visit, form.get("dn")).await,
        _ => Err(Problem::NotFound),
    }
}

/// The account, of a user who may give it a device: nothing is made or looked up for others.
async fn account(visit: &Visit<'_>, client: &mut LdapClient, dn: &str) -> Result<Found, Problem> {
    let read = client.read_with_rights(dn, &visit.session.dn, &["objectClass", TOKEN]).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    let entry = read.attempt(format!("Reading {dn}"))?.ok_or(Problem::NotFound)?;
    if may_write(&entry, "objectClass") && may_write(&entry, TOKEN) {
        return Ok(entry);
    }
    Err(Problem::Bad(format!(
        "You may not change the second factor of {}. It takes the right to write objectClass and {TOKEN}.",
        names::called(dn)
    )))
}

/// What there is, and the form for a new device.
async fn ask(visit: &Visit<'_>, dn: &str, trouble: Markup) -> Shown {
    let mut client = visit.session.client.lock().await;
    let entry = account(visit, &mut client, dn).await?;
    let base = suffix_of(visit, dn);
    let parent = tokens_parent(&mut client, &base).await;
    let choice = parameters(&mut client, &base).await;
    drop(client);
    let token = entry.text(TOKEN);
    let content = html! {
        (trouble)
        p { "With a second factor, " (names::called(dn)) " logs in with the password and a code behind it, which an app shows." }
        @if let Some(token) = token {
            p { "The device now: " a href=(entry_url(token)) { (names::called(token)) } }
            form method="post" action="/people/device" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(dn);
                button.danger type="submit" name="step" value="remove" { "Take it away: the password alone is enough" }
            }
        } @else {
            p { "There is no device now: the password alone is enough." }
        }
        h2 { @if token.is_some() { "Another device in its place" } @else { "A device" } }
        form method="post" action="/people/device" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(dn);
            label for="name" { "What it is called" }
            input #name name="name" value="phone" required autocomplete="off";
            @if choice.len() > 1 {
                label for="parameters" { "Kind of codes" }
                select #parameters name="parameters" {
                    @for one in &choice { option value=(one.dn) { (names::called(&one.dn)) } }
                }
            }
            details {
                summary { "Where" }
                label for="parent" { "Below" }
                input #parent name="parent" value=(parent) autocomplete="off" aria-describedby="parent-help";
                p.help #parent-help { "A container that is not there yet is made." }
            }
            p.help { "The next page shows a secret, once. It is stored when a code from the app shows that the app has it." }
            div.actions {
                button.primary type="submit" name="step" value="show" { "Show the QR code" }
                a.button href=(one_url(dn)) { "Cancel" }
            }
        }
    };
    Ok(Reply::page(layout::page(visit, MenuItem::People, &title(dn), content)))
}

fn title(dn: &str) -> String {
    format!("Second factor of {}", names::called(dn))
}

/// Where devices are, or are to be.
async fn tokens_parent(client: &mut LdapClient, base: &str) -> String {
    guess_parent(client, base, "(objectClass=oathTOTPToken)", &["tokens"], "tokens").await
}

/// The kinds of codes that the directory has.
async fn parameters(client: &mut LdapClient, base: &str) -> Vec<Parameters> {
    let filter = format!("(objectClass={PARAMETERS})");
    let page = client.page(base, Scope::Subtree, &filter, &["*"], (PARAMETERS_MAX, b"")).await;
    let entries = page.map(|page| page.entries).unwrap_or_default();
    entries.iter().filter_map(Parameters::of).collect()
}

/// Makes a secret and shows it.
async fn show(visit: &Visit<'_>, form: &Form) -> Shown {
    let dn = form.get("dn");
    let mut client = visit.session.client.lock().await;
    let entry = account(visit, &mut client, dn).await?;
    let base = suffix_of(visit, dn);
    let name = form.trimmed("name");
    if name.is_empty() {
        drop(client);
        return ask(visit, dn, layout::alert("Not yet", html! { p { "The device needs a name." } })).await;
    }
    let parent = match form.trimmed("parent") {
        "" => tokens_parent(&mut client, &base).await,
        parent => parent.to_owned(),
    };
    let choice = parameters(&mut client, &base).await;
    drop(client);
    let asked = form.get("parameters");
    let chosen = choice.iter().find(|one| one.dn == asked).or_else(|| choice.first());
    let parameters = match chosen {
        Some(chosen) => (chosen.clone(), false),
        None => (Parameters::usual(names::below(&names::rdn("cn", "codes"), &parent)), true),
    };
    let login = entry.text("uid").map_or_else(|| names::called(dn), str::to_owned);
    let token = names::below(&names::rdn("cn", &format!("{login} {name}")), &parent);
    let now = visit.admin.server.clock.monotonic();
    let made = Enrolment::begin(dn.to_owned(), token, parameters, &SystemRandom, now);
    let uri = made.uri(&issuer(&base), &login);
    let content = html! {
        p { "Scan this code with the app. It is shown this once, and nothing is stored yet." }
        @if let Some(code) = qr_code(&uri) { (code) }
        @else { p { "The names are too long for a QR code: type the secret into the app." } }
        p { "Or type the secret:" }
        p.secret { code #secret { (made.typed().as_str()) } button.quiet type="button" data-copy="secret" { "Copy" } }
        (code_form(visit, dn))
    };
    visit.session.enrol(made);
    Ok(Reply::page(layout::page(visit, MenuItem::People, &title(dn), content)))
}

fn code_form(visit: &Visit<'_>, dn: &str) -> Markup {
    html! {
        form method="post" action="/people/device" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(dn);
            label for="code" { "The code that the app shows now" }
            input.narrow #code name="code" required autocomplete="one-time-code" inputmode="numeric" spellcheck="false";
            p.help { "From then on the account needs a code at each login. This one is used up." }
            div.actions {
                button.primary type="submit" name="step" value="confirm" { "Confirm" }
                a.button href=(one_url(dn)) { "Cancel" }
            }
        }
    }
}

/// The domain of a suffix, or else its name.
fn issuer(suffix: &str) -> String {
    let parts = suffix.split(',').map(|rdn| rdn.trim().split_once('='));
    let domain: Option<Vec<&str>> = parts
        .map(|part| part.filter(|(name, _)| name.eq_ignore_ascii_case("dc")).map(|(_, value)| value))
        .collect();
    domain.map_or_else(|| names::called(suffix), |parts| parts.join("."))
}

/// Stores the device if the code is of its secret.
async fn confirm(visit: &Visit<'_>, form: &Form) -> Shown {
    let dn = form.get("dn");
    let mut client = visit.session.client.lock().await;
    let entry = account(visit, &mut client, dn).await?;
    let now = visit.admin.server.clock.monotonic();
    let held = visit.session.take_enrolment().filter(|held| names::same(&held.user, dn) && held.is_open(now));
    let Some(mut held) = held else {
        drop(client);
        let why = html! { p { "The secret has expired, or too many codes were wrong. Begin again, and take the old one out of the app." } };
        return ask(visit, dn, layout::alert("Nothing is stored", why)).await;
    };
    let Some(proof) = held.prove(form.get("code"), visit.admin.server.now().seconds()) else {
        drop(client);
        let may_try = held.is_open(now);
        let wrong = html! { p { "The app's clock may be wrong, or the secret is not in it." } };
        let trouble = layout::alert("This is not the code", wrong);
        if !may_try {
            return ask(visit, dn, trouble).await;
        }
        visit.session.enrol(held);
        let content = html! { (trouble) (code_form(visit, dn)) };
        let page = layout::page(visit, MenuItem::People, &title(dn), content);
        return Ok(Reply::Page(StatusCode::UNPROCESSABLE_ENTITY, page));
    };
    let stored = store(visit, &mut client, &entry, &held, proof).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    drop(client);
    if let Err(Problem::Refused { what, result }) = &stored {
        return ask(
            visit,
            dn,
            refused(&format!("{what} did not succeed, and the account is as it was"), result),
        )
        .await;
    }
    stored?;
    visit.admin.server.log.notice(format_args!(
        "admin: \"{}\" has a second factor from \"{}\"",
        printable(dn),
        printable(&visit.session.dn)
    ));
    visit.session.notice(
        NoticeKind::Done,
        format!("{} logs in with the password and a code behind it from now on.", names::called(dn)),
    );
    if let Some(old) = entry.text(TOKEN) {
        visit.session.notice(
            NoticeKind::Warning,
            format!(
                "The entry of the old device is still there: {old}. Delete it unless another account uses it."
            ),
        );
    }
    Ok(Reply::SeeOther(one_url(dn)))
}

/// First the device, then the account that names it: an account whose device is missing lets nobody in.
async fn store(
    visit: &Visit<'_>,
    client: &mut LdapClient,
    entry: &Found,
    held: &Enrolment,
    proof: Proof,
) -> Result<(), Problem> {
    let base = suffix_of(visit, &held.user);
    if let Some(parent) = names::parent(&held.token) {
        super::prepare(client, &base, &parent).await?;
    }
    if held.makes_parameters && !super::is_there(client, &held.parameters.dn).await? {
        let mut made = named("applicationProcess", PARAMETERS, &held.parameters.dn);
        for (name, value) in held.parameters.attributes() {
            made.add(name, &value);
        }
        let doing = "Making the entry of the codes' kind";
        client.add(&held.parameters.dn, &made.0).await.attempt(doing)?;
    }
    let mut token = named("device", TOKEN, &held.token);
    token.add(PARAMETERS, &held.parameters.dn);
    token.add("oathTOTPLastTimeStep", &proof.step.to_string());
    token.add("oathTOTPTimeStepDrift", &proof.drift.to_string());
    token.0.push(FoundAttribute { name: SECRET.to_owned(), values: vec![held.secret.to_vec()] });
    let added = client.add(&held.token, &token.0).await;
    if let Some(secret) = token.0.last_mut() {
        secret.values.iter_mut().for_each(zeroize::Zeroize::zeroize);
    }
    added.attempt("Making the device's entry")?;
    let mut changes = Vec::new();
    if !entry.is_a(USER) {
        changes.push(change(ModifyOperation::Add, "objectClass", Some(USER)));
    }
    changes.push(change(ModifyOperation::Replace, TOKEN, Some(&held.token)));
    if let Err(result) = client.modify(&held.user, &changes, &[]).await {
        if let Err(left) = client.delete(&held.token, &[]).await {
            note_left(visit, &held.token, &left);
        }
        return Err(Problem::Refused { what: "Giving the account the device".to_owned(), result });
    }
    Ok(())
}

fn note_left(visit: &Visit<'_>, token: &str, result: &LdapResult) {
    let text =
        format!("The entry of the device is still there, {token}: deleting it was refused ({result}).");
    visit.session.notice(NoticeKind::Warning, text);
}

fn named(structural: &str, auxiliary: &str, dn: &str) -> Builder {
    let mut entry = Builder::default();
    entry.add("objectClass", structural);
    entry.add("objectClass", auxiliary);
    entry.add("cn", &names::called(dn));
    entry
}

fn change(operation: ModifyOperation, name: &str, value: Option<&str>) -> AttributeChange {
    let values = value.map(|value| value.as_bytes().to_vec()).into_iter().collect();
    AttributeChange { operation, name: name.to_owned(), values }
}

/// The password alone is enough again.
async fn remove(visit: &Visit<'_>, dn: &str) -> Shown {
    let mut client = visit.session.client.lock().await;
    let entry = account(visit, &mut client, dn).await?;
    let Some(token) = entry.text(TOKEN) else { return Ok(Reply::SeeOther(device_url(dn))) };
    let mut changes = vec![change(ModifyOperation::Delete, TOKEN, None)];
    if entry.is_a(USER) {
        changes.push(change(ModifyOperation::Delete, "objectClass", Some(USER)));
    }
    client.modify(dn, &changes, &[]).await.attempt("Taking the device away")?;
    visit.admin.server.log.notice(format_args!(
        "admin: \"{}\" took the second factor of \"{}\" away",
        printable(&visit.session.dn),
        printable(dn)
    ));
    visit.session.notice(NoticeKind::Done, format!("{} logs in with the password alone.", names::called(dn)));
    if let Err(result) = client.delete(token, &[]).await {
        note_left(visit, token, &result);
    }
    Ok(Reply::SeeOther(one_url(dn)))
}

#[cfg(test)]
mod tests {
    use super::issuer;

    #[test]
    fn apps_show_the_domain() {
        for (suffix, expected) in
            [("dc=example,dc=com", "example.com"), ("o=Example, c=DE", "Example"), ("", "")]
        {
            assert_eq!(issuer(suffix), expected, "{suffix}");
        }
    }
}
