//! The sessions of the admin page: a table from cookies to LDAP connections.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::rc::Rc;

use larix_engine::time::{Monotonic, RandomSource};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::client::LdapClient;
use super::enrolment::Enrolment;

/// Sessions at once. Each holds a connection of the directory's. The next gets the place of another.
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

/// A logged-in user.
#[derive(Debug)]
pub(super) struct Session {
    /// One request of a session at a time.
    pub(super) client: Mutex<LdapClient>,
    /// As the server knows them.
    pub(super) dn: String,
    /// Runs the directory: does not make room for those who do not.
    pub(super) manages: bool,
    /// May see the server's figures.
    pub(super) watches: bool,
    /// In every form: another site cannot know it.
    pub(super) csrf: String,
    /// The password was set by somebody else, and has to be changed first.
    pub(super) must_change: Cell<bool>,
    notices: RefCell<Vec<Notice>>,
    /// A device whose secret is shown and not yet proven; the next one takes its place.
    enrolment: RefCell<Option<Enrolment>>,
    began: Monotonic,
    last: Cell<Monotonic>,
}

/// Who has logged in, and what their menu shows.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) dn: String,
    pub(super) manages: bool,
    pub(super) watches: bool,
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
    pub(super) fn new(
        client: LdapClient,
        Identity { dn, manages, watches }: Identity,
        random: &dyn RandomSource,
        now: Monotonic,
    ) -> Self {
        Self {
            client: Mutex::new(client),
            dn,
            manages,
            watches,
            csrf: token(random),
            must_change: Cell::new(false),
            notices: RefCell::default(),
            enrolment: RefCell::default(),
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

    /// Holds a device until it is proven.
    pub(super) fn enrol(&self, enrolment: Enrolment) {
        self.enrolment.replace(Some(enrolment));
    }

    pub(super) fn take_enrolment(&self) -> Option<Enrolment> {
        self.enrolment.take()
    }

    fn holder(&self) -> Holder<'_> {
        Holder { dn: &self.dn, manages: self.manages, last: self.last.get() }
    }

    fn is_over(&self, now: Monotonic) -> bool {
        let passed =
            |since: Monotonic, seconds: u64| now.0.saturating_sub(since.0) / NANOS_A_SECOND >= seconds;
        passed(self.last.get(), IDLE_SECONDS) || passed(self.began, AGE_SECONDS)
    }
}

impl Sessions {
    /// Takes a session in; its cookie's value. `None` when all places are those of managers, and it is not one's.
    pub(super) fn insert(
        &mut self,
        session: Session,
        random: &dyn RandomSource,
        now: Monotonic,
    ) -> Option<String> {
        self.sweep(now);
        let holders: Vec<_> = self.0.iter().map(|(key, one)| (*key, one.holder())).collect();
        if let Some(key) = who_makes_room(&holders, session.holder()).ok()? {
            self.0.remove(&key);
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

    /// Ends the sessions that are to end.
    pub(super) fn end(&mut self, ends: impl Fn(&Session) -> bool) {
        self.0.retain(|_, session| !ends(session));
    }

    /// Ends what is over.
    pub(super) fn sweep(&mut self, now: Monotonic) {
        self.0.retain(|_, session| !session.is_over(now));
    }
}

/// Whose session it is, as far as others who want one are concerned.
#[derive(Copy, Clone, Debug)]
struct Holder<'s> {
    dn: &'s str,
    manages: bool,
    last: Monotonic,
}

/// All places are those of managers.
#[derive(Debug, PartialEq, Eq)]
struct Full;

/// The session that ends so that `newcomer` can have one, if one has to. Of one's own the one that has been idle longest;
/// else one of the identity that has most, and a manager's for another manager alone.
fn who_makes_room<K: Copy>(holders: &[(K, Holder<'_>)], newcomer: Holder<'_>) -> Result<Option<K>, Full> {
    let of = |dn: &str| holders.iter().filter(|(_, other)| other.dn == dn).count();
    let own = of(newcomer.dn) >= SESSIONS_OF_ONE_MAX;
    if !own && holders.len() < SESSIONS_MAX {
        return Ok(None);
    }
    let may_go = |other: &Holder<'_>| match own {
        true => other.dn == newcomer.dn,
        false => !other.manages || newcomer.manages,
    };
    let gives_way = holders
        .iter()
        .filter(|(_, other)| may_go(other))
        .min_by_key(|(_, other)| (other.manages, Reverse(of(other.dn)), other.last));
    gives_way.map(|(key, _)| Some(*key)).ok_or(Full)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_directory_always_gets_in() {
        // Identities with so many sessions, from the one that was idle longest on; those in capitals are managers'.
        let check = |holders: &[(&'static str, usize)],
                     newcomer: &'static str,
                     expected: Result<Option<&str>, Full>| {
            let manages = |dn: &str| dn.starts_with(char::is_uppercase);
            let dns = holders.iter().flat_map(|(dn, count)| std::iter::repeat_n(*dn, *count));
            let holders: Vec<_> = dns
                .enumerate()
                .map(|(at, dn)| (at, Holder { dn, manages: manages(dn), last: Monotonic(at as u64) }))
                .collect();
            let holder = Holder { dn: newcomer, manages: manages(newcomer), last: Monotonic(1_000) };
            let found = who_makes_room(&holders, holder);
            // Of those of one identity it is the first.
            let found = found.map(|at| {
                let at = at?;
                let first = holders.iter().position(|(_, holder)| holder.dn == holders[at].1.dn);
                assert_eq!(first, Some(at), "{newcomer}");
                Some(holders[at].1.dn)
            });
            assert_eq!(found, expected, "{newcomer} beside {}", holders.len());
        };
        let users = [("a", 8), ("b", 8), ("c", 8), ("d", 8), ("e", 8), ("f", 8), ("g", 8)];
        let all = |last: &[(&'static str, usize)]| [users.as_slice(), last].concat();
        check(&users, "Admin", Ok(None));
        check(&users, "a", Ok(Some("a")));
        check(&all(&[("h", 8)]), "Admin", Ok(Some("a")));
        check(&all(&[("h", 8)]), "i", Ok(Some("a")));
        check(&all(&[("h", 8)]), "h", Ok(Some("h")));
        // Nor does anybody take an administrator's place.
        check(&[("Admin", 8), ("a", 7), ("b", 49)], "c", Ok(Some("b")));
        check(&[("Admin", 8), ("a", 56)], "Other", Ok(Some("a")));
        check(&[("Admin", 7), ("Other", 57)], "a", Err(Full));
        check(&[("Admin", 7), ("Other", 57)], "Third", Ok(Some("Other")));
        check(&[("Admin", 8), ("Other", 56)], "Admin", Ok(Some("Admin")));
    }
}
