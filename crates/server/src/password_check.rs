//! A password compared with what is stored, judged, and stored in a better way.

use std::path::PathBuf;
use std::sync::Arc;

use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::password::{self, Hasher, Scheme};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use crate::clock::SystemRandom;
use crate::password_pool::JobSource;
use crate::saslauthd;
use crate::server::Server;

type Secret = Zeroizing<Vec<u8>>;

/// A password and the values that one of must match.
pub(crate) struct PasswordCheck {
    pub(crate) stored: Vec<Secret>,
    pub(crate) password: Secret,
    /// Who is asked about `{SASL}` values.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// How passwords are stored anew that were stored in a weaker way.
    pub(crate) rehasher: Option<Hasher>,
}

impl PasswordCheck {
    /// The stored value that matches. All are compared: the time does not tell which one it was.
    fn matching(&self) -> Option<&Secret> {
        let mut matching = None;
        for value in &self.stored {
            if is_match(value, &self.password, self.elsewhere.as_ref()) {
                matching = Some(value);
            }
        }
        matching
    }

    /// What the comparison alone says.
    pub(crate) fn outright(&self) -> BindConclusion {
        BindConclusion::outright(self.matching().is_some())
    }

    /// Compares, lets whoever has a say in binds judge (`judged`), and hands the verdict on, here or on a writer's thread.
    pub(crate) fn conclude(
        self,
        server: Arc<Server>,
        source: JobSource,
        (dn, judged, policy_control): (NormalDn, bool, bool),
        answer: impl FnOnce(BindConclusion) + Send + 'static,
    ) {
        let matching = self.matching().cloned();
        let attempt = BindAttempt { dn: dn.clone(), matched: matching.is_some(), policy_control };
        let directory = server.clone();
        let done = move |verdict: BindConclusion| {
            let succeeded = verdict.result.is_success();
            let rehash = matching.filter(|_| succeeded).and_then(|old| self.rehash_of(&old, verdict.rehash));
            answer(verdict);
            if let Some(rehash) = rehash {
                rehash.submit(&server, dn, source);
            }
        };
        if judged {
            directory.databases().directory().conclude_bind(attempt, Box::new(done));
        } else {
            done(BindConclusion::outright(attempt.matched));
        }
    }

    /// The password as it is to be stored from now on: by the policy's scheme, or by the configured one if that is better.
    pub(crate) fn rehash(&self, wanted: Option<Scheme>) -> Option<Rehash> {
        // Without anything to compare by there is no need to compare again.
        if wanted.is_none() && self.rehasher.is_none() {
            return None;
        }
        self.rehash_of(self.matching()?, wanted)
    }

    fn rehash_of(&self, old: &Secret, wanted: Option<Scheme>) -> Option<Rehash> {
        let hasher = match (wanted, &self.rehasher) {
            (Some(scheme), configured) => {
                let stored = Scheme::split(old).map_or(Some(Scheme::Cleartext), |(scheme, _)| scheme);
                let hasher = Hasher { scheme, ..configured.clone().unwrap_or_default() };
                (stored != Some(scheme)).then_some(hasher)?
            }
            (None, Some(configured)) if password::is_weaker(old, configured) => configured.clone(),
            _ => return None,
        };
        Some(Rehash { old: old.clone(), password: self.password.clone(), hasher })
    }
}

/// Where passwords are known that are not stored here.
pub(crate) struct Elsewhere {
    pub(crate) socket: PathBuf,
    pub(crate) server: Arc<Server>,
}

impl Elsewhere {
    /// By the configuration in force.
    pub(crate) fn of(server: &Arc<Server>) -> Option<Self> {
        let socket = server.config().global.sasl.saslauthd.clone()?;
        Some(Self { socket, server: server.clone() })
    }

    fn knows(&self, name: &[u8], password: &[u8]) -> bool {
        saslauthd::knows(&self.socket, name, password).unwrap_or_else(|error| {
            let socket = self.socket.display();
            self.server.log.notice(format_args!("saslauthd at {socket} was asked in vain: {error}"));
            false
        })
    }
}

/// Whether a password matches a stored value: by itself, or because it is known elsewhere. It may take its time.
pub(crate) fn is_match(stored: &[u8], password: &[u8], elsewhere: Option<&Elsewhere>) -> bool {
    match password::pass_through(stored) {
        Some(name) => elsewhere.is_some_and(|elsewhere| elsewhere.knows(name, password)),
        None => password::verify(stored, password).is_match(),
    }
}

/// A password that is to be stored anew.
pub(crate) struct Rehash {
    old: Secret,
    password: Secret,
    hasher: Hasher,
}

impl Rehash {
    /// After the answer, when the pool has time; without a place in its queue another bind will do.
    pub(crate) fn submit(self, server: &Arc<Server>, dn: NormalDn, source: JobSource) {
        let databases = server.clone();
        let _ = server.passwords.submit(source, move || {
            if let Ok(new) = self.hasher.hash(&self.password, &SystemRandom) {
                databases.databases().directory().rehash(&dn, &self.old, &new);
            }
        });
    }
}
