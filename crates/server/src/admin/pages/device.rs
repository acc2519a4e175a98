//! A second factor for an account: a device that shows codes (TOTP, RFC 6238, and HOTP, RFC 4226), enrolled with a QR code, brought back in
//! step, and taken away again.

use hyper::StatusCode;
use larix_engine::time::Clock as _;
use larix_proto::{LdapResult, ModifyOperation, Scope};
use maud::{Markup, html};

use super::account::may_write;
use super::edit::refused;
use super::layout::{self, MenuItem};
use super::people::{Builder, guess_parent, one_url, suffix_of};
use super::values::entry_url;
use crate::admin::client::{AttributeChange, LdapClient, ReceivedAttribute, ReceivedEntry};
use crate::admin::enrolment::{Enrolment, Kind, Parameters, Proof, qr_code};
use crate::admin::form::{Form, url};
use crate::admin::names;
use crate::admin::reply::{Attempt as _, PageResult, Problem, Reply};
use crate::admin::respond::Visit;
use crate::admin::sessions::NoticeKind;
use crate::clock::SystemRandom;
use crate::log::printable;

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
pub(super) async fn page(visit: &Visit<'_>) -> PageResult {
    if !is_offered(visit) {
        return Err(Problem::NotFound);
    }
    let Some(form) = visit.form else { return ask(visit, visit.query.get("dn"), html! {}).await };
    match form.get("step") {
        "show" => show(visit, form).await,
        "confirm" => confirm(visit, form).await,
        "remove" => remove(visit, form).await,
        "resynchronise" => resynchronise(visit, form).await,
        _ => Err(Problem::NotFound),
    }
}

/// The account, of a user who may give it a device of this kind: nothing is made or looked up for others.
async fn account(
    visit: &Visit<'_>,
    client: &mut LdapClient,
    dn: &str,
    kind: Kind,
) -> Result<ReceivedEntry, Problem> {
    let entry = read(visit, client, dn).await?;
    if may_enrol(&entry, kind) { Ok(entry) } else { Err(not_allowed(dn, kind)) }
}

async fn read(visit: &Visit<'_>, client: &mut LdapClient, dn: &str) -> Result<ReceivedEntry, Problem> {
    let attributes = ["objectClass", Kind::Totp.token(), Kind::Hotp.token()];
    let read = client.read_with_rights(dn, &visit.session.dn, &attributes).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    read.attempt(format!("Reading {dn}"))?.ok_or_else(|| Problem::no_entry(dn))
}

fn may_enrol(entry: &ReceivedEntry, kind: Kind) -> bool {
    may_write(entry, "objectClass") && may_write(entry, kind.token())
}

fn not_allowed(dn: &str, kind: Kind) -> Problem {
    Problem::Bad(format!(
        "You may not change the second factor of {}. It takes the right to write objectClass and {}.",
        names::called(dn),
        kind.token()
    ))
}

/// What there is, and the form for a new device.
async fn ask(visit: &Visit<'_>, dn: &str, trouble: Markup) -> PageResult {
    let mut client = visit.session.client.lock().await;
    let entry = read(visit, &mut client, dn).await?;
    let allowed: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| may_enrol(&entry, *kind)).collect();
    if allowed.is_empty() {
        return Err(not_allowed(dn, Kind::Totp));
    }
    let base = suffix_of(visit, dn);
    let parent = tokens_parent(&mut client, &base).await;
    let choice = parameters(&mut client, &base).await;
    drop(client);
    let devices: Vec<(Kind, &str)> =
        Kind::ALL.into_iter().filter_map(|kind| Some((kind, entry.text(kind.token())?))).collect();
    let offered = |kind: Kind| choice.iter().filter(move |one| one.kind() == kind);
    let content = html! {
        (trouble)
        p { "With a second factor, " (names::called(dn)) " logs in with the password and a code behind it, which an app shows." }
        @for (kind, token) in &devices {
            p { "The device now: " a href=(entry_url(token)) { (names::called(token)) } ", with codes " (kind.called()) "." }
            form method="post" action="/people/device" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(dn);
                input type="hidden" name="kind" value=(kind.token());
                button.danger type="submit" name="step" value="remove" {
                    @if devices.len() > 1 { "Take it away" } @else { "Take it away: the password alone is enough" }
                }
            }
            details {
                summary { "Its codes are refused" }
                (resynchronise_form(visit, dn, *kind))
            }
        }
        @if devices.is_empty() {
            p { "There is no device now: the password alone is enough." }
        }
        h2 { @if devices.is_empty() { "A device" } @else { "Another device" } }
        @if !devices.is_empty() { p { "It takes the place of one with the same kind of codes." } }
        form method="post" action="/people/device" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(dn);
            label for="name" { "What it is called" }
            input #name name="name" value="phone" required autocomplete="off";
            label for="parameters" { "Codes" }
            select #parameters name="parameters" {
                @for kind in allowed {
                    @for one in offered(kind) { option value=(one.dn) { (kind.called()) ": " (names::called(&one.dn)) } }
                    @if offered(kind).next().is_none() { option value=(kind.token()) { (kind.called()) } }
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
    guess_parent(client, base, "(objectClass=oathToken)", &["tokens"], "tokens").await
}

/// The kinds of codes that the directory has.
async fn parameters(client: &mut LdapClient, base: &str) -> Vec<Parameters> {
    let mut known = Vec::new();
    for kind in Kind::ALL {
        let filter = format!("(objectClass={})", kind.parameters());
        let page = client.page(base, Scope::Subtree, &filter, &["*"], (PARAMETERS_MAX, b"")).await;
        let entries = page.map(|page| page.entries).unwrap_or_default();
        known.extend(entries.iter().filter_map(|entry| Parameters::of(kind, entry)));
    }
    known
}

/// Makes a secret and shows it.
async fn show(visit: &Visit<'_>, form: &Form) -> PageResult {
    let dn = form.get("dn");
    let mut client = visit.session.client.lock().await;
    let base = suffix_of(visit, dn);
    let choice = parameters(&mut client, &base).await;
    let selection = form.get("parameters");
    let chosen = choice.iter().find(|one| one.dn == selection);
    let kind = chosen.map(Parameters::kind);
    let kind =
        kind.or_else(|| Kind::ALL.into_iter().find(|kind| kind.token() == selection)).unwrap_or(Kind::Totp);
    let entry = account(visit, &mut client, dn, kind).await?;
    let name = form.trimmed("name");
    if name.is_empty() {
        drop(client);
        return ask(visit, dn, layout::alert("Not yet", html! { p { "The device needs a name." } })).await;
    }
    let parent = match form.trimmed("parent") {
        "" => tokens_parent(&mut client, &base).await,
        parent => parent.to_owned(),
    };
    drop(client);
    let chosen = chosen.or_else(|| choice.iter().find(|one| one.kind() == kind));
    let parameters = match chosen {
        Some(chosen) => (chosen.clone(), false),
        None => {
            let called = match kind {
                Kind::Totp => "codes",
                Kind::Hotp => "counted codes",
            };
            (Parameters::usual(kind, names::below(&names::rdn("cn", called), &parent)), true)
        }
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
async fn confirm(visit: &Visit<'_>, form: &Form) -> PageResult {
    let dn = form.get("dn");
    let mut client = visit.session.client.lock().await;
    // Who may give the account no device has no secret of it.
    let enrolment = visit.session.take_enrolment();
    let kind = enrolment.as_ref().map_or(Kind::Totp, |enrolment| enrolment.parameters.kind());
    let entry = account(visit, &mut client, dn, kind).await?;
    let now = visit.admin.server.clock.monotonic();
    let enrolment = enrolment.filter(|enrolment| names::same(&enrolment.user, dn) && enrolment.is_open(now));
    let Some(mut enrolment) = enrolment else {
        drop(client);
        let why = html! { p { "The secret has expired, or too many codes were wrong. Begin again, and take the old one out of the app." } };
        return ask(visit, dn, layout::alert("Nothing is stored", why)).await;
    };
    let Some(proof) = enrolment.prove(form.get("code"), visit.admin.server.now().seconds()) else {
        drop(client);
        let may_try = enrolment.is_open(now);
        let wrong = match kind {
            Kind::Totp => "The app's clock may be wrong, or the secret is not in it.",
            Kind::Hotp => "The app may have shown too many codes already, or the secret is not in it.",
        };
        let wrong = html! { p { (wrong) } };
        let trouble = layout::alert("This is not the code", wrong);
        if !may_try {
            return ask(visit, dn, trouble).await;
        }
        visit.session.enrol(enrolment);
        let content = html! { (trouble) (code_form(visit, dn)) };
        let page = layout::page(visit, MenuItem::People, &title(dn), content);
        return Ok(Reply::Page(StatusCode::UNPROCESSABLE_ENTITY, page));
    };
    let stored = store(visit, &mut client, &entry, &enrolment, proof).await;
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
    if let Some(old) = entry.text(kind.token()) {
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
    entry: &ReceivedEntry,
    enrolment: &Enrolment,
    proof: Proof,
) -> Result<(), Problem> {
    let (base, kind) = (suffix_of(visit, &enrolment.user), enrolment.parameters.kind());
    if let Some(parent) = names::parent(&enrolment.token) {
        super::prepare(client, &base, &parent).await?;
    }
    if enrolment.makes_parameters && !super::is_there(client, &enrolment.parameters.dn).await? {
        let mut made = named("applicationProcess", kind.parameters(), &enrolment.parameters.dn);
        for (name, value) in enrolment.parameters.attributes() {
            made.add(name, &value);
        }
        let doing = "Making the entry of the codes' kind";
        client.add(&enrolment.parameters.dn, &made.0).await.attempt(doing)?;
    }
    let mut token = named("device", kind.token(), &enrolment.token);
    token.add(kind.parameters(), &enrolment.parameters.dn);
    for (name, value) in proof.attributes() {
        token.add(name, &value);
    }
    token.0.push(ReceivedAttribute { name: SECRET.to_owned(), values: vec![enrolment.secret.to_vec()] });
    let added = client.add(&enrolment.token, &token.0).await;
    if let Some(secret) = token.0.last_mut() {
        secret.values.iter_mut().for_each(zeroize::Zeroize::zeroize);
    }
    added.attempt("Making the device's entry")?;
    let mut changes = Vec::new();
    if !entry.is_a(kind.user()) {
        changes.push(change(ModifyOperation::Add, "objectClass", Some(kind.user())));
    }
    changes.push(change(ModifyOperation::Replace, kind.token(), Some(&enrolment.token)));
    if let Err(result) = client.modify(&enrolment.user, &changes, &[]).await {
        if let Err(left) = client.delete(&enrolment.token, &[]).await {
            note_left(visit, &enrolment.token, &left);
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

/// The kind of device that a form is about.
fn kind_of(form: &Form) -> Kind {
    let word = form.get("kind");
    Kind::ALL.into_iter().find(|kind| kind.token() == word).unwrap_or(Kind::Totp)
}

fn resynchronise_form(visit: &Visit<'_>, dn: &str, kind: Kind) -> Markup {
    let why = match kind {
        Kind::Totp => {
            "The clock of the device may be wrong. Two codes, one behind the other, tell by how much, up to 100 of them."
        }
        Kind::Hotp => {
            "The device may have shown many codes that nobody used. Two codes, one behind the other, tell how many, up to 1,000."
        }
    };
    let (first, second) = (format!("first-{}", kind.token()), format!("second-{}", kind.token()));
    html! {
        p { (why) }
        form method="post" action="/people/device" {
            (layout::csrf(visit))
            input type="hidden" name="dn" value=(dn);
            input type="hidden" name="kind" value=(kind.token());
            label for=(first) { "A code that it shows" }
            input.narrow id=(first) name="first" required autocomplete="off" inputmode="numeric" spellcheck="false";
            label for=(second) { "The next one" }
            input.narrow id=(second) name="second" required autocomplete="off" inputmode="numeric" spellcheck="false";
            p.help { "Both are used up. It takes the right to compare " (SECRET) " of the device." }
            div.actions { button type="submit" name="step" value="resynchronise" { "Bring it back in step" } }
        }
    }
}

/// Two codes in a row say where the device is: the server finds them, and nobody reads the secret.
async fn resynchronise(visit: &Visit<'_>, form: &Form) -> PageResult {
    let (dn, kind) = (form.get("dn"), kind_of(form));
    let mut client = visit.session.client.lock().await;
    let entry = account(visit, &mut client, dn, kind).await?;
    let Some(token) = entry.text(kind.token()) else { return Ok(Reply::SeeOther(device_url(dn))) };
    let codes: String = [form.get("first"), form.get("second")].join("").split_whitespace().collect();
    let found = client.compare(token, SECRET, codes.as_bytes()).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    drop(client);
    match found {
        Ok(true) => {
            visit.admin.server.log.notice(format_args!(
                "admin: \"{}\" brought the second factor of \"{}\" back in step",
                printable(&visit.session.dn),
                printable(dn)
            ));
            let done = format!("The device of {} is in step again.", names::called(dn));
            visit.session.notice(NoticeKind::Done, done);
            Ok(Reply::SeeOther(device_url(dn)))
        }
        Ok(false) => {
            let why = html! { p { "They may not follow each other, one of them may be used up, or they are of another device." } };
            ask(visit, dn, layout::alert("These are not two codes of the device", why)).await
        }
        Err(result) => {
            ask(visit, dn, refused("The device is as it was: comparing the codes did not succeed", &result))
                .await
        }
    }
}

/// The password alone is enough again.
async fn remove(visit: &Visit<'_>, form: &Form) -> PageResult {
    let (dn, kind) = (form.get("dn"), kind_of(form));
    let mut client = visit.session.client.lock().await;
    let entry = account(visit, &mut client, dn, kind).await?;
    let Some(token) = entry.text(kind.token()) else { return Ok(Reply::SeeOther(device_url(dn))) };
    let mut changes = vec![change(ModifyOperation::Delete, kind.token(), None)];
    if entry.is_a(kind.user()) {
        changes.push(change(ModifyOperation::Delete, "objectClass", Some(kind.user())));
    }
    client.modify(dn, &changes, &[]).await.attempt("Taking the device away")?;
    visit.admin.server.log.notice(format_args!(
        "admin: \"{}\" took the second factor of \"{}\" away",
        printable(&visit.session.dn),
        printable(dn)
    ));
    let has_other = Kind::ALL.iter().any(|other| *other != kind && entry.text(other.token()).is_some());
    let what = if has_other { "a code of the other device" } else { "the password alone" };
    visit.session.notice(NoticeKind::Done, format!("{} logs in with {what}.", names::called(dn)));
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
