//! The database in which local values are stored, as the overlay needs it after a request has waited for the remote server.

use std::fmt::{self, Debug};
use std::sync::Arc;

use larix_backend::{Done, PasswordChangeOutcome, Search, Secret, Verdict};
use larix_engine::access::Subject;
use larix_engine::budget::RequestLimits;
use larix_engine::controls::RequestControls;
use larix_engine::entry::{Entry, EntryId};
use larix_engine::search::limits::Effective;
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::LdapResult;
use larix_schema::NormalDn;

/// What is stored of an entry.
#[derive(Debug)]
pub struct LocalEntry {
    pub id: EntryId,
    /// With all values.
    pub entry: Entry,
}

/// A bind that the remote server has not let in.
pub struct LocalBind {
    pub dn: NormalDn,
    pub password: Secret,
    pub policy_control: bool,
    pub by_mechanism: bool,
    pub controls: RequestControls,
    pub subject: Arc<Subject>,
    pub began: Monotonic,
}

/// A password to replace that has no old one to compare.
pub struct LocalPasswordChange {
    pub dn: NormalDn,
    pub target: String,
    pub new: Option<Secret>,
    pub policy_control: bool,
    pub subject: Arc<Subject>,
    pub began: Monotonic,
}

/// Passwords stay out of logs.
impl Debug for LocalBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBind").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// Passwords stay out of logs.
impl Debug for LocalPasswordChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPasswordChange").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// Reads entries of the local database.
pub trait StoredEntries: Debug + Send + Sync {
    /// What is stored at this name, whatever access rules say; none: nothing is.
    ///
    /// # Errors
    /// A store that cannot be read, or a database that is no longer served.
    fn entry(&self, dn: &NormalDn) -> Result<Option<LocalEntry>, LdapResult>;
}

/// The local database. No call blocks but for a read of it.
pub trait LocalEntries: StoredEntries {
    /// Reads the same entries for a search under way, and does not keep the database open.
    fn reader(&self) -> Arc<dyn StoredEntries>;

    /// The limits of a search.
    ///
    /// # Errors
    /// What is answered to one that asks for too much.
    fn admit(&self, subject: &Subject, search: &Search<'_>) -> Result<Effective, LdapResult>;

    fn request_limits(&self) -> RequestLimits;

    /// The identity of the database's root.
    fn root(&self) -> Arc<Subject>;

    /// Carries out changes, all or none.
    fn change(&self, requests: Vec<WriteRequest>, done: Completion);

    /// Judges a bind by the password that is stored here.
    fn bind(&self, bind: LocalBind, done: Done<Verdict>);

    /// Replaces a password with the rights of the subject.
    fn modify_password(&self, change: LocalPasswordChange, done: Done<PasswordChangeOutcome>);
}
