//! Changes before they are carried out: as they come ([`operation`]), with names resolved and values checked ([`prepare`]), and what
//! the server writes itself ([`recording`]).

mod operation;
pub mod prepare;
mod recording;
pub(crate) mod values;

use larix_schema::NormalDn;

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
}
