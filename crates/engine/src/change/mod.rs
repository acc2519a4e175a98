//! Changes before they are carried out: as they come ([`operation`]), with names resolved and values checked ([`prepare`]), and what
//! the server writes itself ([`recording`]).

mod forward;
mod operation;
pub(crate) mod prepare;
mod prepared;
mod recording;
pub(crate) mod values;

use std::fmt;

use larix_schema::NormalDn;
use zeroize::Zeroizing;

pub use forward::Forward;
pub(crate) use operation::Counts;
pub use operation::{AttributeValues, Modification, WriteOperation};
pub use recording::{NewRecord, Recording};

/// A bind on its way to the overlays.
#[derive(Clone, Debug)]
pub struct BindAttempt {
    pub dn: NormalDn,
    /// Whether the password, or whatever the mechanism asks for, was right.
    pub matched: bool,
    /// Whether the password policy control was sent.
    pub policy_control: bool,
    /// What came with the password for a second factor.
    pub code: GivenCode,
}

/// The code that came with a login.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum GivenCode {
    /// No login: the old password of a change, or a compare. No code is asked for.
    #[default]
    NotAsked,
    /// A login without a code.
    Missing,
    /// What stood at the end of the password.
    Given(Zeroizing<Vec<u8>>),
    /// What stood at the end of the password, and the stored passwords that take such a code and of which what stood before it was
    /// right. The login fails unless a second factor takes the code for one of them.
    OfPasswords { stored: Vec<Zeroizing<Vec<u8>>>, code: Zeroizing<Vec<u8>> },
    /// No login: a compare asks whether this is a code of the token that the attempt names.
    Compared(Zeroizing<Vec<u8>>),
}

/// Codes stay out of logs.
impl fmt::Debug for GivenCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "NotAsked",
            Self::Missing => "Missing",
            Self::Given(_) => "Given",
            Self::OfPasswords { .. } => "OfPasswords",
            Self::Compared(_) => "Compared",
        })
    }
}
