//! `--replica`: servers that all take changes, each made from the same list of addresses.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use larix_client::{Ambient, ClientError, ConnectionOptions, Credentials, Session, TlsOptions};
use larix_configuration::QuickReplicas;
use larix_engine::password::{Hasher, Scheme};
use larix_engine::time::{Clock as _, RandomSource as _};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{ResultCode, client};
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::tls::end_point_binding;
use zeroize::Zeroizing;

use crate::terminal::say;

/// More would be a mistake: each server follows each other one.
const REPLICAS_MAX: usize = 64;
/// How long a server may take to connect, and to answer, when it is asked for entries before the first start.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a server that is there, and leaves it open whether it has entries, is asked before the start fails.
const QUESTIONS: usize = 20;
/// Between two questions.
const PAUSE: Duration = Duration::from_secs(1);

/// The flags of a server that is one of several.
#[derive(Args, Debug)]
pub(super) struct ReplicaArgs {
    /// One of several servers that all take changes: its URL, in the same order on each server
    #[arg(long = "replica", value_name = "URL", requires_all = ["suffix", "replica_password_file"])]
    replicas: Vec<String>,
    /// Which of them this server is: its host, the first part of that, or the URL [default: the name of this machine]
    #[arg(long, value_name = "NAME", requires = "replicas")]
    replica_name: Option<String>,
    /// The password with which these servers bind each other: this file's first line, the same on each server
    #[arg(long, value_name = "FILE", requires = "replicas")]
    replica_password_file: Option<PathBuf>,
    /// Check the other servers' certificates with these authorities (PEM), and use StartTLS with ldap://
    #[arg(long, value_name = "FILE", requires = "replicas")]
    replica_ca: Option<PathBuf>,
    /// Before its first start the first server asks the others for entries; it takes one that it cannot reach for so long for an empty one
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "replicas")]
    replica_wait: u64,
}

/// What the flags say, checked.
#[derive(Debug)]
pub(super) struct Replicas {
    /// This server's ID, by its place in the list.
    pub(super) number: u16,
    /// The others, with their server IDs.
    others: Vec<(usize, LdapUrl, String)>,
    authorities: Option<PathBuf>,
    pub(super) password: Zeroizing<Vec<u8>>,
    /// How long a server that cannot be reached is asked again.
    wait: Duration,
}

impl ReplicaArgs {
    /// # Errors
    /// A URL that names no server, two that are equal, a list without this server, or a file that cannot be read.
    pub(super) fn replicas(&self) -> anyhow::Result<Option<Replicas>> {
        if self.replicas.is_empty() {
            return Ok(None);
        }
        let count = self.replicas.len();
        anyhow::ensure!(
            (2..=REPLICAS_MAX).contains(&count),
            "--replica names {count} servers: name each of them, this one too, {REPLICAS_MAX} at most"
        );
        let machine = rustix::system::uname();
        let own = match &self.replica_name {
            Some(name) => name.clone(),
            None => machine.nodename().to_string_lossy().into_owned(),
        };
        let mut number = None;
        let mut others: Vec<(usize, LdapUrl, String)> = Vec::new();
        for (place, text) in self.replicas.iter().enumerate() {
            let url = server_of(text)?;
            anyhow::ensure!(
                !self.replicas.iter().take(place).any(|earlier| earlier == text),
                "--replica {text} is there twice"
            );
            if !is_named(&url, text, &own) {
                others.push((place + 1, url, text.clone()));
            } else if number.replace(place + 1).is_some() {
                anyhow::bail!("more than one --replica is {own}: say which with --replica-name URL");
            }
        }
        let Some(number) = number.and_then(|number| u16::try_from(number).ok()) else {
            anyhow::bail!(
                "no --replica is this server, {own}: add its URL to the list, or name it with --replica-name"
            );
        };
        let file = self.replica_password_file.as_ref().context("--replica needs --replica-password-file")?;
        let password = super::first_line(file)?;
        anyhow::ensure!(
            std::str::from_utf8(&password).is_ok_and(|text| !text.contains(['"', '\\'])),
            "the password in {} has to be text without \" and \\",
            file.display()
        );
        let authorities = self.replica_ca.as_ref().map(|path| {
            fs::metadata(path)
                .and_then(|_| std::path::absolute(path))
                .with_context(|| format!("cannot read {}", path.display()))
        });
        let wait = Duration::from_secs(self.replica_wait);
        Ok(Some(Replicas { number, others, authorities: authorities.transpose()?, password, wait }))
    }
}

fn server_of(text: &str) -> anyhow::Result<LdapUrl> {
    let url = LdapUrl::parse(text).map_err(|error| {
        anyhow::anyhow!("--replica {text}: {error}: it has to be such as ldap://host:3890")
    })?;
    anyhow::ensure!(
        url.scheme != UrlScheme::Ldapi && !url.host.is_empty() && url.dn.is_empty(),
        "--replica {text} has to name a host and no entry, such as ldap://host:3890"
    );
    Ok(url)
}

/// Whether a URL is of the server with this name: its host, the first label of that, or the whole URL.
fn is_named(url: &LdapUrl, text: &str, name: &str) -> bool {
    let label = url.host.split('.').next().unwrap_or_default();
    text == name
        || url.host.eq_ignore_ascii_case(name)
        || (label.eq_ignore_ascii_case(name) && url.host.parse::<std::net::IpAddr>().is_err())
}

impl Replicas {
    /// What the configuration has of them.
    ///
    /// # Errors
    /// A password that cannot be hashed.
    pub(super) fn configured(&self, suffix: &str) -> anyhow::Result<QuickReplicas> {
        Ok(QuickReplicas {
            number: self.number,
            lines: self.others.iter().map(|(id, url, text)| self.line(suffix, *id, url, text)).collect(),
            password: Hasher::new(Scheme::Argon2).hash(&self.password, &SystemRandom)?.to_vec(),
        })
    }

    fn line(&self, suffix: &str, id: usize, url: &LdapUrl, text: &str) -> Vec<String> {
        let mut words = vec![
            format!("rid={id:03}"),
            format!("provider={text}"),
            format!("searchbase={suffix}"),
            "type=refreshAndPersist".to_owned(),
            "retry=1 10 5 +".to_owned(),
            "network-timeout=5".to_owned(),
            "bindmethod=simple".to_owned(),
            format!("binddn={}", QuickReplicas::ACCOUNT),
            format!("credentials={}", String::from_utf8_lossy(&self.password)),
        ];
        if let Some(authorities) = &self.authorities {
            words.push(format!("tls_cacert={}", authorities.display()));
            if url.scheme == UrlScheme::Ldap {
                words.push("starttls=critical".to_owned());
            }
        }
        words
    }

    /// Whether another server has the suffix entry already. A server that cannot be reached has none; one that is there and does
    /// not answer, or is just starting or busy, is asked again.
    ///
    /// # Errors
    /// A server that answers and does not let this one in, or leaves it open after [`QUESTIONS`]: what it has is not known then.
    pub(super) fn have_entries(&self, suffix: &str) -> anyhow::Result<bool> {
        let mut pending: Vec<_> = self.others.iter().collect();
        let clock = SystemClock;
        let begun = clock.monotonic();
        let mut waits = false;
        loop {
            let mut unreachable = Vec::new();
            for other @ (_, url, text) in pending {
                let has = repeated(PAUSE, || self.has_entries(url, suffix)).with_context(|| {
                    format!("cannot ask {text} for entries: each server needs the same replication password and authorities")
                })?;
                match has {
                    Some(true) => return Ok(true),
                    Some(false) => {}
                    None => unreachable.push(other),
                }
            }
            pending = unreachable;
            let elapsed = Duration::from_nanos(clock.monotonic().0.saturating_sub(begun.0));
            if pending.is_empty() || elapsed >= self.wait {
                return Ok(false);
            }
            if !waits {
                waits = true;
                let names: Vec<&str> = pending.iter().map(|(_, _, text)| text.as_str()).collect();
                say!(
                    "Waiting up to {} s for {}, which may have entries",
                    self.wait.as_secs(),
                    names.join(" ")
                );
            }
            thread::park_timeout(PAUSE);
        }
    }

    fn has_entries(&self, url: &LdapUrl, suffix: &str) -> Result<bool, ClientError> {
        let authorities = self.authorities.as_ref().map(|path| path.to_string_lossy());
        let tls = TlsOptions::new(authorities.as_deref().map(|path| ("tls_cacert", path)));
        let options = ConnectionOptions { connect_timeout: Some(PATIENCE), ..ConnectionOptions::default() };
        let ambient = Ambient { random: |bytes| SystemRandom.fill(bytes), end_point_binding };
        let mut session = Session::connect(std::slice::from_ref(url), &options, &tls, ambient)?;
        session.set_patience(Some(PATIENCE))?;
        if authorities.is_some()
            && url.scheme == UrlScheme::Ldap
            && let Some(result) = session.start_tls(&tls)?
        {
            return Err(ClientError::Refused { step: "ldap_start_tls", result });
        }
        let dn = QuickReplicas::ACCOUNT.to_owned();
        session.bind(&Credentials::Simple { dn, password: self.password.clone() })?;
        let reply = session.call(|out, id, controls| {
            client::compare(out, id, suffix, "objectClass", b"top", controls);
        })?;
        match reply.result.code {
            ResultCode::COMPARE_TRUE | ResultCode::COMPARE_FALSE | ResultCode::NO_SUCH_ATTRIBUTE => Ok(true),
            ResultCode::NO_SUCH_OBJECT => Ok(false),
            _ => Err(ClientError::Refused { step: "ldap_compare", result: reply.result }),
        }
    }
}

/// What a server answers in the end; `None`: it cannot be reached. `ask` is called again, [`QUESTIONS`] times at most, while the server is
/// there and cannot say.
fn repeated(
    pause: Duration,
    mut ask: impl FnMut() -> Result<bool, ClientError>,
) -> Result<Option<bool>, ClientError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match ask() {
            Err(ClientError::Connect { .. }) => return Ok(None),
            Err(error) if tries < QUESTIONS && is_passing(&error) => thread::park_timeout(pause),
            answer => return answer.map(Some),
        }
    }
}

/// Whether the same question may be answered a moment later.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Io(_) | ClientError::Closed | ClientError::Disconnected(_) => true,
        ClientError::Refused { result, .. } => {
            matches!(result.code, ResultCode::BUSY | ResultCode::UNAVAILABLE)
        }
        ClientError::At { error, .. } | ClientError::Advised { error, .. } => is_passing(error),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(urls: &[&str], name: &str) -> (tempfile::TempDir, ReplicaArgs) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "a word\n").unwrap();
        let arguments = ReplicaArgs {
            replicas: urls.iter().map(|url| (*url).to_owned()).collect(),
            replica_name: Some(name.to_owned()),
            replica_password_file: Some(file),
            replica_ca: None,
            replica_wait: 0,
        };
        (folder, arguments)
    }

    #[test]
    fn a_name_says_which_server_this_is() {
        let urls = [
            "ldap://larix-0.larix.site.svc:3890",
            "ldap://larix-1.larix.site.svc:3890",
            "ldap://127.0.0.1:1",
        ];
        for (name, number) in [
            ("larix-0", 1),
            ("LARIX-1", 2),
            ("larix-1.larix.site.svc", 2),
            ("127.0.0.1", 3),
            ("ldap://127.0.0.1:1", 3),
        ] {
            let (_folder, arguments) = arguments(&urls, name);
            let replicas = arguments.replicas().unwrap().unwrap();
            assert_eq!(replicas.number, number, "{name}");
            let lines = replicas.configured("dc=example,dc=com").unwrap().lines;
            assert_eq!(lines.len(), 2, "{name}");
            let own = format!("rid={number:03}");
            assert!(lines.iter().flatten().all(|word| *word != own), "{lines:?}");
            assert!(lines.iter().all(|line| line.contains(&"credentials=a word".to_owned())), "{lines:?}");
        }
    }

    #[test]
    fn a_server_that_cannot_say_yet_is_asked_again() {
        let refused = |code| {
            let result = larix_proto::LdapResult::with(code, String::new());
            Err(ClientError::Refused { step: "ldap_compare", result })
        };
        let outcome = |answers: &mut dyn Iterator<Item = Result<bool, ClientError>>| {
            repeated(Duration::ZERO, || answers.next().expect("an answer"))
        };
        let mut late = [refused(ResultCode::BUSY), Err(ClientError::Closed), Ok(true)].into_iter();
        assert_eq!(outcome(&mut late).unwrap(), Some(true));
        let mut wrong =
            [refused(ResultCode::UNAVAILABLE), refused(ResultCode::INVALID_CREDENTIALS)].into_iter();
        assert!(matches!(outcome(&mut wrong), Err(ClientError::Refused { .. })));
        let mut silent = 0;
        let never = repeated(Duration::ZERO, || {
            silent += 1;
            Err(ClientError::Io(std::io::ErrorKind::WouldBlock.into()))
        });
        assert!(matches!(never, Err(ClientError::Io(_))));
        assert_eq!(silent, QUESTIONS);
        let absent = ClientError::Connect {
            url: "ldap://a".to_owned(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        assert_eq!(outcome(&mut [Err(absent)].into_iter()).unwrap(), None);
    }

    #[test]
    fn a_list_that_cannot_be_is_refused() {
        let pair = ["ldap://a", "ldap://b"];
        for (urls, name, fault) in [
            (&pair[..], "c", "no --replica is this server, c"),
            (&pair[..], "127", "no --replica is this server"),
            (&["ldap://a"][..], "a", "names 1 servers"),
            (&["ldap://a", "ldap://a"][..], "a", "is there twice"),
            (&["ldap://a:1", "ldap://a:2"][..], "a", "more than one --replica is a"),
            (&["ldapi://%2Frun%2Fldapi", "ldap://b"][..], "b", "has to name a host"),
            (&["a", "b"][..], "b", "such as ldap://host:3890"),
        ] {
            let (_folder, arguments) = arguments(urls, name);
            let error = arguments.replicas().unwrap_err().to_string();
            assert!(error.contains(fault), "{error}");
        }
    }
}
