//! Forgotten passwords: a helper makes a code on the page of a user, who sets another password with it.

use std::rc::Rc;

use hyper::StatusCode;
use larix_configuration::values::PasswordReset;
use larix_engine::time::Clock as _;
use larix_proto::extended::PasswordModify;
use larix_proto::{LdapResult, ResultCode, Scope};
use maud::{Markup, html};
use zeroize::Zeroizing;

use super::account::may_write;
use super::layout;
use super::login::resolve;
use super::people::one_url;
use super::reset_mail::is_locked_out;
use super::values::readable_time;
use crate::admin::form::Form;
use crate::admin::names;
use crate::admin::reply::{PageResult, Problem, Reply, explain};
use crate::admin::reset_codes::{Full, OpenCode, Refused, grouped};
use crate::admin::respond::Visit;
use crate::admin::sessions::Session;
use crate::admin::{Admin, ClientConnection};
use crate::backup::MICROS;
use crate::clock::SystemRandom;
use crate::log::printable;
use larix_engine::time::Timestamp;

/// The attribute that a helper must have the right to write.
pub(super) const PASSWORD: &str = "userPassword";

/// What the configuration says; `None`: users cannot set a forgotten password.
pub(in crate::admin) fn allowed(admin: &Admin) -> Option<PasswordReset> {
    admin.server.config().global.admin_password_reset.clone()
}

/// The helper's half, on the page of a user.
pub(super) fn code_form(visit: &Visit<'_>, dn: &str) -> Markup {
    html! {
        @if let Some(reset) = allowed(visit.admin) {
            form method="post" action="/people/code" {
                (layout::csrf(visit))
                input type="hidden" name="dn" value=(dn);
                p.help #code-help {
                    "Or make a code and read it out: with it the user sets a password of their own at " code { "/reset" } ", once, within "
                    (minutes(reset.lifetime)) ". Be sure whom you talk to."
                }
                button type="submit" aria-describedby="code-help" { "Make a code" }
            }
        }
    }
}

/// `/people/code`: a code for a user whose password the helper may set.
pub(super) async fn make_code(visit: &Visit<'_>) -> PageResult {
    let form = visit.form.ok_or(Problem::NotFound)?;
    let server = &visit.admin.server;
    let Some(reset) = allowed(visit.admin) else {
        return Err(Problem::Bad(
            "Codes are off: admin-password-reset in the configuration allows them.".to_owned(),
        ));
    };
    let dn = form.get("dn");
    let user = server
        .config()
        .schema
        .parse_dn(dn)
        .map_err(|error| Problem::Bad(format!("{dn:?} is no DN: {error}")))?;
    if !may_set_password(visit, dn).await? {
        return Err(Problem::Bad(format!(
            "You may not set the password of {}, so you can make no code for it. It takes the right to write {PASSWORD}.",
            names::called(dn)
        )));
    }
    let now = server.clock.monotonic();
    let made = visit.admin.reset_codes.borrow_mut().make(
        user.as_str(),
        visit.session.clone(),
        &visit.session.dn,
        &SystemRandom,
        (now, reset.lifetime),
    );
    let code = made.map_err(|full| {
        Problem::Bad(match full {
            Full::All => "Too many codes are open. Wait until one is used or has expired.".to_owned(),
            Full::OfThisHelper => {
                "Eight codes that you made are open. Wait until one is used or has expired.".to_owned()
            }
        })
    })?;
    server.log.notice(format_args!(
        "admin: a code to set the password of \"{}\" was made by \"{}\"",
        printable(dn),
        printable(&visit.session.dn)
    ));
    let lifetime = i64::try_from(reset.lifetime).unwrap_or(0).saturating_mul(MICROS);
    let until = Timestamp(server.now().0.saturating_add(lifetime));
    let until = readable_time(&until.generalized()).unwrap_or_default();
    visit.session.secret(
        format!(
            "The code for {}. It is shown this once, works once at /reset, and ends at {until}:",
            names::called(dn)
        ),
        grouped(&code),
    );
    Ok(Reply::SeeOther(one_url(dn)))
}

/// Asked of the directory, as the helper.
async fn may_set_password(visit: &Visit<'_>, dn: &str) -> Result<bool, Problem> {
    let mut client = visit.session.client.lock().await;
    let read = client.read_with_rights(dn, &visit.session.dn, &[PASSWORD]).await;
    if client.is_gone() {
        return Err(Problem::LoggedOut);
    }
    Ok(read.ok().flatten().is_some_and(|entry| may_write(&entry, PASSWORD)))
}

/// The user's half before it is sent, or what was wrong with it.
pub(in crate::admin) fn page(token: &str, name: &str, error: Option<&str>, by_mail: bool) -> Markup {
    layout::before_login(
        "Forgotten password",
        "Forgotten password",
        error,
        &html! {
            p { "Ask those who look after your account for a code. It works once, for some minutes." }
            @if by_mail { p { "Or " a href="/reset/mail" { "have a code sent to your mail address" } "." } }
            form method="post" action="/reset" {
                input type="hidden" name="csrf" value=(token);
                label for="name" { "Your login" }
                input #name name="name" value=(name) autocomplete="username" required autocapitalize="none" spellcheck="false"
                    autofocus[name.is_empty()];
                label for="code" { "The code" }
                input #code name="code" autocomplete="one-time-code" required autocapitalize="characters" spellcheck="false"
                    autofocus[!name.is_empty()];
                label for="new" { "A new password" }
                input #new type="password" name="new" autocomplete="new-password" required;
                label for="again" { "The new password again" }
                input #again type="password" name="again" autocomplete="new-password" required;
                button.primary type="submit" { "Set the password" }
            }
            p { a href="/login" { "Back to the login" } }
        },
    )
}

/// After a change.
pub(in crate::admin) fn done() -> Markup {
    layout::before_login(
        "Your password is set",
        "Your password is set",
        None,
        &html! {
            p role="status" { "The code is used up. Log in with the new password." }
            p { a.button.primary href="/login" { "Log in" } }
        },
    )
}

/// Sets the password if the code is right.
///
/// # Errors
/// Status and text of the page that says why not: the same for a wrong name and a wrong code.
pub(in crate::admin) async fn set(
    admin: &Rc<Admin>,
    connection: &ClientConnection,
    form: &Form,
) -> Result<(), (StatusCode, String)> {
    let bad = |text: &str| Err((StatusCode::UNPROCESSABLE_ENTITY, text.to_owned()));
    let new = Zeroizing::new(form.get("new").to_owned());
    if new.is_empty() {
        return bad("A new password is needed.");
    }
    if form.get("again") != new.as_str() {
        return bad("The two new passwords differ.");
    }
    let from = connection.peer.ip().to_canonical();
    let now = admin.server.clock.monotonic();
    // Asked before the name is looked up, which may be dear, and once more behind it.
    admin
        .reset_codes
        .borrow_mut()
        .may_try(from, now)
        .map_err(|refused| refusal(admin, connection, refused))?;
    let dn = resolve(admin, form.trimmed("name")).await;
    let user =
        admin.server.config().schema.parse_dn(&dn).map(|dn| dn.as_str().to_owned()).unwrap_or_default();
    let taken = admin.reset_codes.borrow_mut().take(&user, form.get("code"), from, now);
    let code = taken.map_err(|refused| refusal(admin, connection, refused))?;
    // Since the mail an administrator may have locked the user out.
    let is_mailed = allowed(admin).and_then(|reset| reset.mail).is_some_and(|mail| mail.bind_dn == code.by);
    if is_mailed && is_locked_out(admin, &user).await {
        return Err(refusal(admin, connection, Refused::Wrong));
    }
    let by = code.by.clone();
    // A browser that leaves meanwhile must not cut the helper's connection in the middle of a message.
    let changing = tokio::task::spawn_local(change(admin.clone(), code, new));
    let changed = match changing.await {
        Ok(changed) => changed,
        Err(error) => Err(LdapResult::with(ResultCode::OTHER, error.to_string())),
    };
    let outcome =
        changed.as_ref().err().map_or_else(|| "set".to_owned(), |result| format!("not set ({result})"));
    admin.server.log.notice(format_args!(
        "admin: the password of \"{}\" was {outcome} with a code made by \"{}\", from IP={from}",
        printable(&user),
        printable(&by)
    ));
    if changed.is_ok() {
        super::end_sessions(admin, &user, Scope::Base, None);
    }
    changed.map_err(|result| {
        let text = match result.code {
            ResultCode::UNAVAILABLE | ResultCode::INSUFFICIENT_ACCESS_RIGHTS => {
                "The code is not valid any more. Ask for a new one.".to_owned()
            }
            _ => format!("The password is not set. {} ({result})", explain(&result)),
        };
        (StatusCode::UNPROCESSABLE_ENTITY, text)
    })
}

/// One text for a wrong name and a wrong code.
fn refusal(admin: &Admin, connection: &ClientConnection, refused: Refused) -> (StatusCode, String) {
    match refused {
        Refused::Wrong => {
            let from = connection.peer.ip().to_canonical();
            admin
                .server
                .log
                .notice(format_args!("admin: a wrong code or name to set a password, from IP={from}"));
            (StatusCode::UNAUTHORIZED, "Login or code is wrong, or the code has expired.".to_owned())
        }
        Refused::TooMany(seconds) => {
            let text = format!("Too many wrong codes from your address. Try again in {}.", minutes(seconds));
            (StatusCode::TOO_MANY_REQUESTS, text)
        }
    }
}

/// The change over the helper's connection: what the helper may do, the password policy and the log are those of any request.
async fn change(
    admin: Rc<Admin>,
    code: OpenCode<Rc<Session>>,
    new: Zeroizing<String>,
) -> Result<(), LdapResult> {
    let changed = {
        let mut client = code.helper.client.lock().await;
        let request =
            PasswordModify { user: Some(code.user.as_bytes()), old: None, new: Some(new.as_bytes()) };
        client.change_password(request).await
    };
    match changed {
        Ok(_) => Ok(()),
        Err(result) => {
            // Another password may be fine.
            if result.code == ResultCode::CONSTRAINT_VIOLATION || result.code == ResultCode::BUSY {
                admin.reset_codes.borrow_mut().give_back(code);
            }
            Err(result)
        }
    }
}

pub(super) fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}
