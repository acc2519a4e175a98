//! Access control: who may do what to which entries, attributes and values.
//!
//! [`AccessRule`] is one `access to ...` line in typed form, as written. [`AccessPolicy`] is the rules of a database
//! followed by the frontend's, looked up in a schema, ready to answer [`AccessPolicy::check`].
//!
//! Source of the rules' meaning: slapd.access(5).

mod display;
mod error;
mod parse;
mod parse_who;
mod posix;
mod privilege;
mod rule;
mod tokens;

pub use error::{AccessFault, AccessSyntaxError};
pub use privilege::{AccessLevel, Grant, Privilege, Privileges};
pub use rule::{
    AccessRule, AttributeSelector, ByClause, DnPattern, DnScope, DomainPattern, FlowControl, Identity,
    PeerPattern, StrengthLayer, TargetDn, TextPattern, ValuePattern, ValueStyle, What, Who,
};
pub use tokens::Quoting;

#[cfg(test)]
mod parse_tests;
