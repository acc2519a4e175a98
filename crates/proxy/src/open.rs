//! The connections of a proxy that are open, as the monitor shows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::job::Owner;

/// A connection to a target that is ready for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnection {
    /// The target's URL.
    pub url: String,
    /// The DN that it is bound as; none where it is anonymous, or SASL gave it another kind of name.
    pub bound: Option<String>,
    /// Whose it is, in the words of slapd-ldap(5)'s monitor: `bound`, `anonymous`, `privileged`, `idassert`, `TLS`; `cached` is one
    /// that clients share.
    pub flags: Vec<&'static str>,
    /// The address that it leads to; none for a socket of this machine.
    pub peer: Option<String>,
}

impl OpenConnection {
    pub(crate) fn flags_of(owner: &Owner, has_credentials: bool, is_secure: bool) -> Vec<&'static str> {
        let whose: &[&'static str] = match owner {
            Owner::Anonymous => &["anonymous", "cached"],
            Owner::Assertion if has_credentials => &["bound", "idassert", "cached"],
            Owner::Root if has_credentials => &["bound", "privileged", "cached"],
            Owner::User(_) => &["bound", "cached"],
            Owner::Assertion | Owner::Root | Owner::Spare | Owner::Check(_) => &["anonymous"],
        };
        whose.iter().copied().chain(is_secure.then_some("TLS")).collect()
    }
}

/// Those of one proxy, by number.
#[derive(Debug, Default)]
pub(crate) struct Open(Mutex<BTreeMap<u64, OpenConnection>>);

impl Open {
    pub(crate) fn show(&self, number: u64, connection: OpenConnection) {
        self.open().insert(number, connection);
    }

    pub(crate) fn hide(&self, number: u64) {
        self.open().remove(&number);
    }

    pub(crate) fn all(&self) -> BTreeMap<u64, OpenConnection> {
        self.open().clone()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, OpenConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
