//! A code for a forgotten password, by mail: to the address that the user's entry has, if there is one.
//!
//! The answer is given before the name is looked up, so neither its text nor its time says whether there is such a user.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use hyper::StatusCode;
use larix_configuration::values::{PasswordReset, ResetMail};
use larix_engine::Fault;
use larix_engine::time::Clock as _;
use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use lettre::Address;
use maud::{Markup, html};
use zeroize::Zeroizing;

use super::account::may_write;
use super::layout;
use super::login::resolve;
use super::reset::{PASSWORD, allowed, minutes};
use crate::admin::client::{Caller, LdapClient};
use crate::admin::form::Form;
use crate::admin::mailer::{Mail, Mailer, first_line};
use crate::admin::reset_codes::grouped;
use crate::admin::sessions::{Identity, Session};
use crate::admin::{Admin, ClientConnection, names};
use crate::clock::SystemRandom;
use crate::log::printable;
use crate::sasl::identity::Lookups as _;
use crate::sasl::online::Online;
use crate::server::Server;
use crate::statistics::ListenerInfo;
use crate::tls::TlsFacts;
use crate::waiting_thread::while_waiting;

/// Names that are looked up at once.
const LOOK_UPS_MAX: usize = 16;
/// The attribute with the user's address.
const MAIL: &str = "mail";

/// The attribute that says since when an account is locked.
const LOCKED: &str = "pwdAccountLockedTime";
/// A lock since this year or one before stands until somebody takes it away.
const EPOCH_YEAR: u32 = 1970;

/// Whether codes are sent by mail, and how.
pub(in crate::admin) fn mails(admin: &Admin) -> Option<(PasswordReset, ResetMail)> {
    let reset = allowed(admin)?;
    let mail = reset.mail.clone()?;
    Some((reset, mail))
}

pub(in crate::admin) fn page(token: &str, name: &str, error: Option<&str>) -> Markup {
    layout::before_login(
        "A code by mail",
        "A code by mail",
        error,
        &html! {
            p { "The code goes to the mail address of your account. With it you set a new password." }
            form method="post" action="/reset/mail" {
                input type="hidden" name="csrf" value=(token);
                label for="name" { "Your login" }
                input #name name="name" value=(name) autocomplete="username" required autocapitalize="none" spellcheck="false"
                    autofocus;
                button.primary type="submit" { "Send a code" }
            }
            p { a href="/login" { "Back to the login" } }
        },
    )
}

/// What everybody sees.
pub(in crate::admin) fn confirmation() -> Markup {
    layout::before_login(
        "A code by mail",
        "Look at your mail",
        None,
        &html! {
            p role="status" {
                "If there is an account with this login and a mail address, a code is on its way. If none comes, ask those who look after your account."
            }
            p { a.button.primary href="/reset" { "I have the code" } }
        },
    )
}

/// Takes the request; all that depends on the name happens afterwards.
///
/// # Errors
/// Status and text of the page: what depends on the address and on the load alone.
pub(in crate::admin) fn ask(
    admin: &Rc<Admin>,
    connection: &ClientConnection,
    form: &Form,
    (reset, mail): (PasswordReset, ResetMail),
) -> Result<(), (StatusCode, String)> {
    let name = form.trimmed("name").to_owned();
    if name.is_empty() {
        return Err((StatusCode::UNPROCESSABLE_ENTITY, "Your login is needed.".to_owned()));
    }
    let from = connection.peer.ip().to_canonical();
    let now = admin.server.clock.monotonic();
    // With the page's own.
    if Rc::strong_count(&admin.looking_up) > LOOK_UPS_MAX {
        let text = "Too many ask for a code now. Try again in a minute.".to_owned();
        return Err((StatusCode::SERVICE_UNAVAILABLE, text));
    }
    if let Err(seconds) = admin.mail_limits.borrow_mut().by_address(from, now) {
        let text =
            format!("Too many codes were asked for from your address. Try again in {}.", minutes(seconds));
        return Err((StatusCode::TOO_MANY_REQUESTS, text));
    }
    let request = Request {
        admin: admin.clone(),
        peer: connection.peer,
        listener: connection.listener.clone(),
        secured: connection.secured.clone(),
        name,
        lifetime: reset.lifetime,
        mail,
    };
    let (permit, server) = (Rc::clone(&admin.looking_up), Arc::clone(&admin.server));
    tokio::task::spawn_local(async move {
        if let Err(why) = request.answer().await {
            server.log.notice(format_args!("admin: no code by mail, asked for from IP={from}: {why}"));
        }
        drop(permit);
    });
    Ok(())
}

/// Whether an administrator has locked this account, for ever (draft-behera-ldap-password-policy-10 section 5.3.3): a new password would
/// open it. The page looks by itself, for the account that sets passwords may not have the right to see that; it says so to nobody.
pub(super) async fn is_locked_out(admin: &Admin, dn: &str) -> bool {
    let server = admin.server.clone();
    let url =
        LdapUrl { dn: dn.to_owned(), scope: Some(Scope::Base), ..LdapUrl::server(UrlScheme::Ldap, "", None) };
    let looked = admin.aside.run(move || while_waiting(|| locked_since(&server, &url))).await;
    match looked {
        Ok(Ok(since)) => since.is_some_and(|since| stands_for_ever(&since)),
        // Without an answer nothing is opened.
        Ok(Err(_)) | Err(_) => true,
    }
}

/// Of a stored entry as it is stored, so that rules hide nothing; of others as the root DN of their database sees it.
fn locked_since(server: &Server, url: &LdapUrl) -> Result<Option<String>, Fault> {
    let generation = server.generation_in_force();
    let databases = &generation.databases;
    if let Ok(dn) = databases.schema().parse_dn(&url.dn)
        && let Some(values) = databases.stored_values(&*server.clock, &dn, LOCKED)?
    {
        return Ok(values.into_iter().next().map(|value| String::from_utf8_lossy(&value).into_owned()));
    }
    let anonymous = Arc::default();
    let online = Online { server, generation: &generation, anonymous: &anonymous, subject: &anonymous };
    Ok(online.expand(url, Some(LOCKED)))
}

fn stands_for_ever(since: &str) -> bool {
    let year = since.get(..4).and_then(|year| year.parse::<u32>().ok());
    year.is_none_or(|year| year <= EPOCH_YEAR)
}

/// A request that was answered, and is carried out.
struct Request {
    admin: Rc<Admin>,
    peer: SocketAddr,
    listener: Arc<ListenerInfo>,
    secured: Option<TlsFacts>,
    name: String,
    lifetime: u64,
    mail: ResetMail,
}

impl Request {
    /// Looks the user up in the name of the account that sets passwords, makes a code and queues the mail.
    async fn answer(self) -> Result<(), String> {
        let Self { admin, name, mail, .. } = &self;
        let dn = resolve(admin, name).await;
        let Ok(user) = admin.server.config().schema.parse_dn(&dn).map(|dn| dn.as_str().to_owned()) else {
            return Err("no such account".to_owned());
        };
        let mut client = self.bound().await?;
        let read = client.read_with_rights(&dn, &mail.bind_dn, &[PASSWORD]).await;
        let Ok(Some(entry)) = read else { return Err("no such account".to_owned()) };
        let shown = printable(&dn).to_string();
        if !may_write(&entry, PASSWORD) {
            return Err(format!("\"{}\" may not set the password of \"{shown}\"", printable(&mail.bind_dn)));
        }
        if is_locked_out(admin, &dn).await {
            return Err(format!("\"{shown}\" is locked"));
        }
        let Some(to) = entry.text(MAIL).and_then(|text| text.parse::<Address>().ok()) else {
            return Err(format!("\"{shown}\" has no mail address"));
        };
        let now = admin.server.clock.monotonic();
        if admin.mail_limits.borrow_mut().by_user(&user, now).is_err() {
            return Err(format!("\"{shown}\" was sent too many"));
        }
        let identity = Identity { dn: mail.bind_dn.clone(), manages: false, watches: false };
        let session = Rc::new(Session::new(client, identity, &SystemRandom, now));
        let code = admin.reset_codes.borrow_mut().make_for_mail(
            &user,
            session,
            &mail.bind_dn,
            &SystemRandom,
            (now, self.lifetime),
        );
        let Some(code) = code else {
            return Err(format!("too many codes are open, or a helper made one for \"{shown}\""));
        };
        let text = Zeroizing::new(format!(
            "Somebody asked for a new password for {called} at\n{url}\n\n    {code}\n\nOpen {url}/reset within {within}.\n\
             Give your login, this code and a new password.\n\n\
             If it was not you, do nothing: your password stays as it is.\n",
            called = printable(&names::called(&dn)),
            url = mail.url,
            code = grouped(&code),
            within = minutes(self.lifetime),
        ));
        let sent = Mail { settings: mail.clone(), to, user: dn, text };
        if !self.queued(sent)? {
            admin.reset_codes.borrow_mut().withdraw(&user);
            return Err(format!("too many mails wait for the mail server, none for \"{shown}\""));
        }
        Ok(())
    }

    /// A connection bound as the account that sets passwords.
    async fn bound(&self) -> Result<LdapClient, String> {
        let file = self.mail.password_file.clone();
        let password = self.admin.aside.run(move || first_line(&file)).await;
        let password = password.map_err(|error| error.to_string())??;
        let caller = Caller { peer: self.peer, listener: &self.listener, secured: self.secured.as_ref() };
        let mut client = LdapClient::connect(&self.admin.server, &self.admin.workers, &caller)
            .map_err(|result| result.to_string())?;
        let (bound, _) = client.bind(&self.mail.bind_dn, password.as_bytes()).await;
        bound.map_err(|result| {
            format!(
                "{result}: check binddn= and passfile= in admin-password-reset (\"{}\")",
                printable(&self.mail.bind_dn)
            )
        })?;
        Ok(client)
    }

    /// Whether the queue had room. The first mail starts the thread.
    fn queued(&self, mail: Mail) -> Result<bool, String> {
        let mut mailer = self.admin.mailer.borrow_mut();
        let mailer = match &mut *mailer {
            Some(mailer) => mailer,
            none => none.insert(Mailer::start(self.admin.server.clone()).map_err(|error| error.to_string())?),
        };
        Ok(mailer.queue(mail))
    }
}
