//! Second factors: a code that stands behind the password of a login.

use std::fmt::{self, Debug};

use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::{Change, Entries, PendingBind};
pub use crate::change::GivenCode;
use crate::entry::Entry;
use crate::failure::Failure;
use crate::time::Timestamp;

/// The hook of a second factor. The server takes the code off the password before it compares the rest, and the writer judges the
/// code: of two logins with one code at the same time only one can succeed.
pub trait SecondFactor: Debug + Send + Sync {
    /// How many bytes at the end of the password are the code, fewer than the password has. `None`: the account has no second
    /// factor, or the password is too short to have a code.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn code_length(&self, login: &LoginPassword<'_>) -> Result<Option<usize>, Failure>;

    /// Whether a compare of an attribute of this entry asks for a code: [`Self::judge`] then has it as [`GivenCode::Compared`].
    fn is_compared(&self, _schema: &Schema, _entry: &Entry, _attribute: &AttributeDescription) -> bool {
        false
    }

    /// Judges the code of a login, before [`super::Authentication::judge`] is asked about the password.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn judge(&self, bind: &PendingBind<'_>) -> Result<FactorJudgement, Failure>;
}

/// A password as it was sent, to an account that is there.
pub struct LoginPassword<'a> {
    pub dn: &'a NormalDn,
    pub password: &'a [u8],
    pub entry: &'a Entry,
    pub schema: &'a Schema,
    pub entries: &'a dyn Entries,
    pub now: Timestamp,
}

/// Passwords stay out of logs.
impl Debug for LoginPassword<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginPassword").field("dn", self.dn).finish_non_exhaustive()
    }
}

/// What a second factor says to a login.
#[derive(Clone, Debug, Default)]
pub struct FactorJudgement {
    /// The login fails, whatever the password is.
    pub refused: bool,
    /// As [`super::Judgement::ordered`].
    pub ordered: bool,
    /// The code is one that a stored password takes: [`GivenCode::OfPasswords`].
    pub redeemed: bool,
    /// Changes of entries of this database that use up the code. The login fails where one cannot be made.
    pub changes: Vec<(NormalDn, Vec<Change>)>,
}

impl FactorJudgement {
    /// Joins what the next overlay says.
    pub(crate) fn join(&mut self, next: Self) {
        self.refused |= next.refused;
        self.ordered |= next.ordered;
        self.redeemed |= next.redeemed;
        self.changes.extend(next.changes);
    }
}
