//! Who is logged in: a table from cookies to LDAP connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use larix_engine::time::{Monotonic, RandomSource};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::client::LdapClient;

/// Sessions at once. Each holds a connection of the directory's.
pub(super) const SESSIONS_MAX: usize = 64;
/// Sessions of one identity at once; the one that has been idle longest makes room.
pub(super) const SESSIONS_OF_ONE_MAX: usize = 8;
/// A session that asks for no page for so long ends. Charts that refresh themselves do not count.
pub(super) const IDLE_SECONDS: u64 = 30 * 60;
/// A session ends after so long, whatever it does.
pub(super) const AGE_SECONDS: u64 = 12 * 60 * 60;
/// Notices kept for the next page.
const NOTICES_MAX: usize = 8;
const NANOS_A_SECOND: u64 = 1_000_000_000;
const TOKEN_BYTES: usize = 32;

/// Somebody who is logged in.
#[derive(Debug)]
pub(super) struct Session {
    /// One request of a session at a time.
    pub(super) client: Mutex<LdapClient>,
    /// As the server knows them.
    pub(super) dn: String,
    /// In every form: another site cannot know it.
    pub(super) csrf: String,
    /// The password was set by somebody else, and has to be changed first.
    pub(super) must_change: Cell<bool>,
    notices: RefCell<Vec<Notice>>,
    began: Monotonic,
    last: Cell<Monotonic>,
}

/// What the next page says first.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) kind: NoticeKind,
    pub(super) text: String,
    /// Shown this once.
    pub(super) secret: Option<Zeroizing<String>>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NoticeKind {
    Done,
    Warning,
}

/// All sessions, by the hash of their cookie's value: what can be read here opens nothing.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<[u8; 32], Rc<Session>>);

impl Session {
    pub(super) fn new(client: LdapClient, dn: String, random: &dyn RandomSource, now: Monotonic) -> Self {
        Self {
            client: Mutex::new(client),
            dn,
            csrf: token(random),
            must_change: Cell::new(false),
            notices: RefCell::default(),
            began: now,
            last: Cell::new(now),
        }
    }

    /// A page was asked for.
    pub(super) fn touch(&self, now: Monotonic) {
        self.last.set(now);
    }

    pub(super) fn notice(&self, kind: NoticeKind, text: impl Into<String>) {
        self.push(Notice { kind, text: text.into(), secret: None });
    }

    /// With something that is shown once and forgotten.
    pub(super) fn secret(&self, text: impl Into<String>, secret: String) {
        self.push(Notice { kind: NoticeKind::Done, text: text.into(), secret: Some(Zeroizing::new(secret)) });
    }

    fn push(&self, notice: Notice) {
        let mut notices = self.notices.borrow_mut();
        if notices.len() < NOTICES_MAX {
            notices.push(notice);
        }
    }

    pub(super) fn take_notices(&self) -> Vec<Notice> {
        self.notices.take()
    }

    fn is_over(&self, now: Monotonic) -> bool {
        let passed =
            |since: Monotonic, seconds: u64| now.0.saturating_sub(since.0) / NANOS_A_SECOND >= seconds;
        passed(self.last.get(), IDLE_SECONDS) || passed(self.began, AGE_SECONDS)
    }
}

impl Sessions {
    /// Takes a session in; its cookie's value. `None` when there is no room.
    pub(super) fn insert(
        &mut self,
        session: Session,
        random: &dyn RandomSource,
        now: Monotonic,
    ) -> Option<String> {
        self.sweep(now);
        let of_same = self.0.iter().filter(|(_, other)| other.dn == session.dn);
        if of_same.clone().count() >= SESSIONS_OF_ONE_MAX
            && let Some(oldest) = of_same.min_by_key(|(_, other)| other.last.get()).map(|(key, _)| *key)
        {
            self.0.remove(&oldest);
        }
        if self.0.len() >= SESSIONS_MAX {
            return None;
        }
        let token = token(random);
        self.0.insert(key(&token), Rc::new(session));
        Some(token)
    }

    pub(super) fn get(&mut self, token: &str, now: Monotonic) -> Option<Rc<Session>> {
        let key = key(token);
        let session = self.0.get(&key)?;
        let gone = session.client.try_lock().is_ok_and(|client| client.is_gone());
        if gone || session.is_over(now) {
            self.0.remove(&key);
            return None;
        }
        Some(session.clone())
    }

    pub(super) fn remove(&mut self, token: &str) {
        self.0.remove(&key(token));
    }

    /// Ends what is over.
    pub(super) fn sweep(&mut self, now: Monotonic) {
        self.0.retain(|_, session| !session.is_over(now));
    }
}

fn key(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// 256 random bits as text.
pub(super) fn token(random: &dyn RandomSource) -> String {
    let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
    random.fill(&mut bytes[..]);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two tokens are the same, in a time that does not tell where they differ.
pub(super) fn same(left: &str, right: &str) -> bool {
    !left.is_empty() && left.as_bytes().ct_eq(right.as_bytes()).into()
}
