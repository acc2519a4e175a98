//! Variables that rules keep for as long as a client's connection lives.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes that the variables of one session may take, names and values.
const SESSION_MAX: usize = 16_384;

/// The variables of one client.
#[derive(Debug, Default)]
pub struct Session(Mutex<BTreeMap<String, String>>);

impl Session {
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Whether it fits.
    pub(super) fn set(&self, name: &str, value: &str) -> bool {
        let mut variables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = variables.iter().filter(|(known, _)| *known != name);
        let taken: usize = others.map(|(known, value)| known.len() + value.len()).sum();
        let fits = taken + name.len() + value.len() <= SESSION_MAX;
        if fits {
            variables.insert(name.to_owned(), value.to_owned());
        }
        fits
    }
}

/// Clients whose variables are kept at a time; the variables of others lead nowhere.
const SESSIONS_MAX: usize = 65_536;

/// The variables of all clients, each for as long as its connection lives.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the address of what lives as long as the connection, which is held weakly and so is not used again.
    sessions: HashMap<usize, (Weak<dyn Any + Send + Sync>, Arc<Session>)>,
    /// How many were left when those of closed connections were last forgotten.
    left: usize,
}

impl Sessions {
    /// The variables of the client whose connection lives as long as this does.
    pub fn of(&self, client: &Weak<dyn Any + Send + Sync>) -> Option<Arc<Session>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = client.as_ptr().cast::<()>().addr();
        if let Some((_, session)) = known.sessions.get(&key) {
            return Some(Arc::clone(session));
        }
        if known.sessions.len() >= known.left.saturating_mul(2).max(64) {
            known.sessions.retain(|_, (client, _)| client.strong_count() > 0);
            known.left = known.sessions.len();
        }
        if known.sessions.len() >= SESSIONS_MAX {
            return None;
        }
        let session = Arc::<Session>::default();
        known.sessions.insert(key, (Weak::clone(client), Arc::clone(&session)));
        Some(session)
    }
}
