//! Logging in: an LDAP bind.

use std::sync::Arc;

use hyper::StatusCode;
use larix_engine::time::Clock as _;
use larix_proto::control::PasswordWarning;
use larix_proto::filter::escaped;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use maud::{Markup, html};

use super::layout;
use crate::admin::client::{Caller, LdapClient};
use crate::admin::form::Form;
use crate::admin::reply::explain;
use crate::admin::sessions::{Identity, NoticeKind, Session};
use crate::admin::{Admin, ClientConnection, names};
use crate::clock::SystemRandom;
use crate::sasl::online::Online;
use crate::server::Server;
use crate::waiting_thread::while_waiting;

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
    layout::before_login(
        "Log in",
        "Larix",
        attempted.error.as_deref(),
        &html! {
            form method="post" action="/login" {
                input type="hidden" name="csrf" value=(token);
                input type="hidden" name="next" value=(attempted.next);
                label for="name" { "Name" }
                input #name name="name" value=(attempted.name) autocomplete="username" required
                    autocapitalize="none" spellcheck="false" aria-describedby="name-help"
                    autofocus[attempted.name.is_empty()];
                p.help #name-help { "A DN such as " code { (example) } ", or the part of it that names you: your login." }
                label for="password" { "Password" }
                input #password type="password" name="password" autocomplete="current-password" required
                    autofocus[!attempted.name.is_empty()];
                button.primary type="submit" { "Log in" }
            }
            @if super::reset::allowed(admin).is_some() {
                p { a href="/reset" { "Forgotten password" } }
            }
        },
    )
}

/// A new session.
#[derive(Debug)]
pub(in crate::admin) struct LoggedIn {
    /// Its cookie's value.
    pub(in crate::admin) token: String,
    /// The page that it begins with, where none was asked for.
    pub(in crate::admin) first: &'static str,
}

/// Binds; the new session, or what to say.
///
/// # Errors
/// Status and text of the page that says why not.
pub(in crate::admin) async fn log_in(
    admin: &Admin,
    connection: &ClientConnection,
    form: &Form,
) -> Result<LoggedIn, (StatusCode, String)> {
    let caller = Caller {
        peer: connection.peer,
        listener: &connection.listener,
        secured: connection.secured.as_ref(),
    };
    let mut client =
        LdapClient::connect(&admin.server, &admin.workers, &caller).map_err(|result| refused(&result))?;
    let password = form.get("password");
    if password.is_empty() {
        // To the directory that would be an anonymous bind, which succeeds.
        return Err((StatusCode::UNAUTHORIZED, "A password is needed.".to_owned()));
    }
    let dn = resolve(admin, form.trimmed("name")).await;
    let (bound, policy) = client.bind(&dn, password.as_bytes()).await;
    bound.map_err(|result| refused(&result))?;
    let shown = client.who_am_i().await.ok().filter(|dn| !dn.is_empty()).unwrap_or(dn);
    let now = admin.server.clock.monotonic();
    let manages = manages(admin, &mut client, &shown).await;
    let watches = manages || super::overview::shows_figures(&mut client).await;
    let first = if watches { "/" } else { "/account" };
    let session = Session::new(client, Identity { dn: shown, manages, watches }, &SystemRandom, now);
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
    token.map(|token| LoggedIn { token, first }).ok_or_else(|| {
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

/// Whether this identity runs the directory: a root DN, or who may read the configuration.
async fn manages(admin: &Admin, client: &mut LdapClient, dn: &str) -> bool {
    if roots(admin).iter().any(|root| names::same(root, dn)) {
        return true;
    }
    client.shows("cn=config", "objectClass").await
}

/// Those of databases that hold users come first: `admin` is theirs, also where `cn=admin,cn=config` is another one.
fn roots(admin: &Admin) -> Vec<String> {
    let config = admin.server.config();
    let (of_users, others): (Vec<_>, Vec<_>) =
        config.databases.iter().partition(|database| database.kind.own_suffix().is_none());
    let all = of_users.into_iter().chain(others);
    all.filter_map(|database| Some(database.root_dn.as_ref()?.to_string())).collect()
}

/// The DN that a name stands for. One that stands for nothing, or for several, becomes a DN that is not there, so that the bind
/// fails as any other: what the page finds here it says to nobody.
pub(super) async fn resolve(admin: &Admin, name: &str) -> String {
    if name.contains('=') || name.is_empty() {
        return name.to_owned();
    }
    if let Some(root) = roots(admin).iter().find(|dn| names::called(dn).eq_ignore_ascii_case(name)) {
        return root.clone();
    }
    let (server, suffixes, wanted) = (admin.server.clone(), suffixes(admin), name.to_owned());
    let first = suffixes.first().cloned().unwrap_or_default();
    // On a thread beside the page's, at low priority: without an index for uid every entry is looked at.
    let found = admin.aside.run(move || while_waiting(|| called(&server, &suffixes, &wanted))).await;
    found.ok().flatten().unwrap_or_else(|| names::below(&names::rdn("uid", name), &first))
}

/// The one entry below the suffixes with this `uid`. The page asks in the name of each database's root DN: anonymous, who is about
/// to log in, may not have the right.
fn called(server: &Server, suffixes: &[String], uid: &str) -> Option<String> {
    let filter = FilterBuf::parse(&format!("(uid={})", escaped(uid))).ok()?;
    let generation = server.generation_in_force();
    let anonymous = Arc::default();
    let online = Online { server, generation: &generation, anonymous: &anonymous, subject: &anonymous };
    let mut found = suffixes.iter().flat_map(|suffix| {
        let url = LdapUrl {
            scheme: UrlScheme::Ldap,
            host: String::new(),
            port: None,
            dn: suffix.clone(),
            attributes: Vec::new(),
            scope: Some(Scope::Subtree),
            filter: Some(filter.clone()),
            extensions: Vec::new(),
        };
        online.found_by_root(&url)
    });
    let one = found.next()?;
    found.all(|other| other == one).then(|| one.as_str().to_owned())
}

/// The naming contexts that hold users.
pub(in crate::admin) fn suffixes(admin: &Admin) -> Vec<String> {
    let config = admin.server.config();
    let stored = config.databases.iter().filter(|database| database.kind.own_suffix().is_none());
    stored.flat_map(|database| database.suffixes.iter().map(ToString::to_string)).collect()
}
