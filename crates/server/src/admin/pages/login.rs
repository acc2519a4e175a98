//! Logging in: an LDAP bind.

use hyper::StatusCode;
use larix_engine::time::Clock as _;
use larix_proto::control::PasswordWarning;
use larix_proto::{LdapResult, ResultCode, Scope};
use maud::{Markup, html};

use super::layout;
use crate::admin::client::{Caller, LdapClient};
use crate::admin::form::Form;
use crate::admin::reply::explain;
use crate::admin::sessions::{NoticeKind, Session};
use crate::admin::{Admin, Way, assets, names};
use crate::clock::SystemRandom;

/// What was tried before, to be shown again. The password is not.
#[derive(Debug, Default)]
pub(in crate::admin) struct Attempted<'a> {
    pub(in crate::admin) name: &'a str,
    /// Where to go afterwards: a path of this page.
    pub(in crate::admin) next: &'a str,
    pub(in crate::admin) error: Option<String>,
}

impl<'a> Attempted<'a> {
    pub(in crate::admin) fn at(next: &'a str) -> Self {
        let own = next.starts_with('/')
            && !next.starts_with("//")
            && !next.contains('\\')
            && next.bytes().all(|byte| byte.is_ascii_graphic());
        Self { next: if own { next } else { "" }, ..Self::default() }
    }
}

pub(in crate::admin) fn page(admin: &Admin, token: &str, attempted: &Attempted<'_>) -> Markup {
    let suffix = suffixes(admin).into_iter().next().unwrap_or_default();
    let example = match suffix.is_empty() {
        true => "cn=admin".to_owned(),
        false => format!("cn=admin,{suffix}"),
    };
    layout::document(
        "Log in",
        html! {
            main.login #main {
                img src=(assets::url("larch.svg")) alt="" width="48" height="48";
                h1 { "Larix" }
                @if let Some(error) = &attempted.error {
                    div.problem role="alert" { p { (error) } }
                }
                form method="post" action="/login" {
                    input type="hidden" name="csrf" value=(token);
                    input type="hidden" name="next" value=(attempted.next);
                    label for="name" { "Name" }
                    input #name name="name" value=(attempted.name) autocomplete="username" required
                        autocapitalize="none" spellcheck="false" aria-describedby="name-help"
                        autofocus[attempted.name.is_empty()];
                    p.help #name-help { "A DN such as " code { (example) } ", or the part of it that names you." }
                    label for="password" { "Password" }
                    input #password type="password" name="password" autocomplete="current-password" required
                        autofocus[!attempted.name.is_empty()];
                    button.primary type="submit" { "Log in" }
                }
            }
        },
    )
}

/// Binds; the new session's cookie, or what to say.
///
/// # Errors
/// Status and text of the page that says why not.
pub(in crate::admin) async fn log_in(
    admin: &Admin,
    way: &Way,
    form: &Form,
) -> Result<String, (StatusCode, String)> {
    let caller = Caller { peer: way.peer, listener: &way.listener, secured: way.secured.as_ref() };
    let mut client =
        LdapClient::connect(&admin.server, &admin.workers, &caller).map_err(|result| refused(&result))?;
    let password = form.get("password");
    if password.is_empty() {
        // To the directory that would be an anonymous bind, which succeeds.
        return Err((StatusCode::UNAUTHORIZED, "A password is needed.".to_owned()));
    }
    let dn = resolve(admin, &mut client, form.trimmed("name")).await;
    let (bound, policy) = client.bind(&dn, password.as_bytes()).await;
    bound.map_err(|result| refused(&result))?;
    let shown = client.who_am_i().await.ok().filter(|dn| !dn.is_empty()).unwrap_or(dn);
    let now = admin.server.clock.monotonic();
    let session = Session::new(client, shown, &SystemRandom, now);
    if policy.error == Some(larix_proto::control::PasswordError::ChangeAfterReset) {
        session.must_change.set(true);
        session.notice(NoticeKind::Warning, "Your password was set by somebody else. Choose your own first.");
    }
    match policy.warning {
        Some(PasswordWarning::TimeBeforeExpiration(seconds)) => session.notice(
            NoticeKind::Warning,
            format!("Your password expires in {} days.", seconds.div_ceil(86_400)),
        ),
        Some(PasswordWarning::GraceLoginsRemaining(count)) => session.notice(
            NoticeKind::Warning,
            format!("Your password has expired; it lets you in {count} more times. Change it now."),
        ),
        None => {}
    }
    let token = admin.sessions.borrow_mut().insert(session, &SystemRandom, now);
    token.ok_or_else(|| {
        (StatusCode::SERVICE_UNAVAILABLE, "Too many are logged in. Try again later.".to_owned())
    })
}

/// One text for a wrong name and a wrong password.
fn refused(result: &LdapResult) -> (StatusCode, String) {
    match result.code {
        ResultCode::INVALID_CREDENTIALS | ResultCode::INVALID_DN_SYNTAX | ResultCode::NO_SUCH_OBJECT => {
            (StatusCode::UNAUTHORIZED, "Name or password is wrong.".to_owned())
        }
        _ => (StatusCode::UNAUTHORIZED, format!("{} ({result})", explain(result))),
    }
}

/// The DN that a name stands for. One that stands for nothing becomes a DN that is not there, so that the bind fails as
/// any other.
async fn resolve(admin: &Admin, client: &mut LdapClient, name: &str) -> String {
    if name.contains('=') || name.is_empty() {
        return name.to_owned();
    }
    let roots: Vec<String> = {
        let config = admin.server.config();
        config.databases.iter().filter_map(|database| Some(database.root_dn.as_ref()?.to_string())).collect()
    };
    if let Some(root) = roots.iter().find(|dn| names::called(dn).eq_ignore_ascii_case(name)) {
        return root.clone();
    }
    let mut found = Vec::new();
    let filter = format!("(uid={})", names::filter_value(name));
    for suffix in suffixes(admin) {
        // Only where anybody may look people up; else the whole DN is needed.
        if let Ok(page) = client.page(&suffix, Scope::Subtree, &filter, &["1.1"], (2, b"")).await {
            found.extend(page.entries.into_iter().map(|entry| entry.dn));
        }
    }
    match found.as_slice() {
        [one] => one.clone(),
        _ => names::below(&names::rdn("uid", name), suffixes(admin).first().map_or("", String::as_str)),
    }
}

/// The naming contexts that hold users.
pub(in crate::admin) fn suffixes(admin: &Admin) -> Vec<String> {
    use crate::config::DatabaseKind;
    let config = admin.server.config();
    let stored =
        config.databases.iter().filter(|d| !matches!(d.kind, DatabaseKind::Config | DatabaseKind::Monitor));
    stored.flat_map(|database| database.suffixes.iter().map(ToString::to_string)).collect()
}
