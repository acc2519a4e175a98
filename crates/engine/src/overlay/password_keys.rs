//! Passwords that are keys of the entry: the stored value has the name of a scheme alone, such as `{K5KEY}`.

use std::fmt::Debug;
use std::sync::Arc;

use larix_schema::Schema;
use zeroize::Zeroizing;

use crate::entry::Entry;
use crate::time::Timestamp;

/// The hook of such passwords. Only binds with a password ask it.
pub trait PasswordKeys: Debug + Send + Sync {
    /// Whether a value of userPassword stands for a key of the entry.
    fn is_meant_by(&self, value: &[u8]) -> bool;

    /// The key that a password is compared with; `None`: the entry has none that can be used now, and no password matches.
    fn key(&self, entry: &Entry, schema: &Schema, now: Timestamp) -> Option<Arc<dyn PasswordKey>>;
}

/// A key that is derived of a password. That takes thousands of rounds of a hash.
pub trait PasswordKey: Send + Sync {
    /// Whether it is the key of this password.
    fn is_of(&self, password: &[u8]) -> bool;

    /// A stored value that takes as long to compare with, and that no password matches.
    fn like(&self) -> Zeroizing<Vec<u8>>;
}
