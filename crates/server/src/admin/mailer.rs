//! Mails with codes for forgotten passwords, sent by a thread of their own: a mail server that hangs delays other mails, and nothing else.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use larix_configuration::values::{MailSecurity, ResetMail};
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message, SmtpTransport, Transport as _};
use zeroize::Zeroizing;

use crate::log::printable;
use crate::processor_time::{LOW, give_way};
use crate::server::Server;

/// Mails that wait for the mail server.
const WAITING_MAX: usize = 16;
/// How long the mail server may take to connect, and for each answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take for one mail: one that sends its answers byte by byte is never silent for long.
const MAIL_MAX: Duration = Duration::from_mins(1);
/// Mails that were given up and whose threads still wait for the mail server.
const GIVEN_UP_MAX: usize = 4;

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Mailer(SyncSender<Mail>);

/// A mail to be sent.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) settings: ResetMail,
    pub(super) to: Address,
    /// The DN of the user, for the log.
    pub(super) user: String,
    pub(super) text: Zeroizing<String>,
}

impl Mailer {
    /// # Errors
    /// No thread can be had.
    pub(super) fn start(server: Arc<Server>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        // It ends with the sender. Nobody waits for it: at the server's end a mail that hangs is given up.
        std::thread::Builder::new().name("password-mail".to_owned()).spawn(move || {
            give_way(LOW);
            deliver_each(&server, &receiver);
        })?;
        Ok(Self(sender))
    }

    /// Whether there was room in the queue.
    pub(super) fn queue(&self, mail: Mail) -> bool {
        self.0.try_send(mail).is_ok()
    }
}

fn deliver_each(server: &Server, mails: &Receiver<Mail>) {
    let deliveries = Deliveries::default();
    for mail in mails {
        let user = printable(&mail.user).to_string();
        match deliveries.within(MAIL_MAX, move || deliver(&mail)) {
            Ok(()) => {
                server.log.notice(format_args!("admin: a code for a new password was mailed to \"{user}\""));
            }
            Err(why) => server.log.notice(format_args!("admin: no code was mailed to \"{user}\": {why}")),
        }
    }
}

/// Deliveries under way: each has a thread of its own, so that one can be given up.
#[derive(Default)]
struct Deliveries(Arc<()>);

impl Deliveries {
    /// What comes of a delivery within this time; afterwards its thread goes on alone.
    fn within(
        &self,
        most: Duration,
        deliver: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        if Arc::strong_count(&self.0) > GIVEN_UP_MAX {
            return Err(format!("the mail server still holds {GIVEN_UP_MAX} mails that were given up"));
        }
        let under_way = Arc::clone(&self.0);
        let (sender, outcome) = sync_channel(1);
        let thread = std::thread::Builder::new().name("password-mail".to_owned());
        let started = thread.spawn(move || {
            let _under_way = under_way;
            // Nobody listens to a delivery that was given up.
            let _ = sender.send(deliver());
        });
        started.map_err(|error| format!("no thread can be had: {error}"))?;
        outcome.recv_timeout(most).unwrap_or_else(|why| match why {
            RecvTimeoutError::Timeout => {
                Err(format!("the mail server did not take it within {} s", most.as_secs()))
            }
            RecvTimeoutError::Disconnected => Err("its thread panicked".to_owned()),
        })
    }
}

/// Why it was not sent. What the mail server answered is left out but for its number: it could have the mail in it.
fn deliver(mail: &Mail) -> Result<(), String> {
    let message = message(mail)?;
    transport(&mail.settings)?.send(&message).map(drop).map_err(|error| match error.status() {
        Some(code) => format!("the mail server refused it ({code})"),
        None if is_timeout(&error) => {
            format!("the mail server did not answer within {} s", PATIENCE.as_secs())
        }
        None if error.is_response() => "the mail server's answer makes no sense".to_owned(),
        None => format!("{error}; check server= in admin-password-reset"),
    })
}

/// A read that waited too long says `WouldBlock` on Linux, which lettre takes for no timeout.
fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let mut error = Some(error);
    while let Some(cause) = error {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return matches!(io.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock);
        }
        error = cause.source();
    }
    false
}

fn message(mail: &Mail) -> Result<Message, String> {
    let from: Address =
        mail.settings.from.parse().map_err(|error| format!("from={}: {error}", mail.settings.from))?;
    let message =
        Message::builder().from(from.into()).to(mail.to.clone().into()).subject("A code for a new password");
    let message = message.header(ContentType::TEXT_PLAIN).date_now().body(mail.text.to_string());
    let mut message = message.map_err(|error| error.to_string())?;
    // RFC 3834 section 5: no one answers it by itself.
    let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
    message.headers_mut().insert_raw(HeaderValue::new(automatic, "auto-generated".to_owned()));
    Ok(message)
}

fn transport(settings: &ResetMail) -> Result<SmtpTransport, String> {
    let server = &settings.server;
    let tls = match server.security {
        MailSecurity::None => Tls::None,
        MailSecurity::StartTls => Tls::Required(parameters(settings)?),
        MailSecurity::Tls => Tls::Wrapper(parameters(settings)?),
    };
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut transport = SmtpTransport::builder_dangerous(server.host.as_str())
        .port(server.port)
        .tls(tls)
        .hello_name(ClientId::Domain(machine))
        .timeout(Some(PATIENCE));
    if let Some((user, file)) = &settings.login {
        let password = first_line(file)?;
        transport = transport.credentials(Credentials::new(user.clone(), password.to_string()));
    }
    Ok(transport.build())
}

fn parameters(settings: &ResetMail) -> Result<TlsParameters, String> {
    let path = settings.authorities.display();
    let pem = larix_files::read(&settings.authorities).map_err(|error| format!("cacert={path}: {error}"))?;
    let authority = Certificate::from_pem(&pem).map_err(|error| format!("cacert={path}: {error}"))?;
    TlsParameters::builder(settings.server.host.clone())
        .certificate_store(CertificateStore::None)
        .add_root_certificate(authority)
        .build()
        .map_err(|error| format!("cacert={path}: {error}"))
}

/// The secret in the first line of a file.
pub(super) fn first_line(file: &Path) -> Result<Zeroizing<String>, String> {
    let text = larix_files::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let text = Zeroizing::new(text);
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(format!("{} has an empty first line", file.display()));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_that_never_ends_holds_a_few_mails_at_most() {
        let deliveries = Deliveries::default();
        let short = Duration::from_millis(10);
        assert_eq!(deliveries.within(MAIL_MAX, || Ok(())), Ok(()));
        let panicked = deliveries.within(MAIL_MAX, || panic!("on purpose"));
        assert_eq!(panicked.unwrap_err(), "its thread panicked");
        // A thread may be there for a moment after it has told how it ended.
        let threads = || Arc::strong_count(&deliveries.0) - 1;
        while threads() > 0 {
            std::thread::yield_now();
        }
        let mut held = Vec::new();
        for _ in 0..GIVEN_UP_MAX {
            let (end, ended) = sync_channel::<()>(1);
            held.push(end);
            let outcome = deliveries.within(short, move || {
                let _ = ended.recv();
                Ok(())
            });
            assert_eq!(outcome.unwrap_err(), "the mail server did not take it within 0 s");
        }
        let refused = deliveries.within(MAIL_MAX, || Ok(())).unwrap_err();
        assert_eq!(refused, "the mail server still holds 4 mails that were given up");
        held.pop();
        while threads() >= GIVEN_UP_MAX {
            std::thread::yield_now();
        }
        assert_eq!(deliveries.within(MAIL_MAX, || Ok(())), Ok(()), "one of them has ended");
    }
}
