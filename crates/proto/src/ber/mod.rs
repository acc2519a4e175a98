//! The subset of BER that LDAP uses (RFC 4511 section 5.1): definite lengths, low tag numbers, primitive strings.

mod error;
mod reader;
mod tag;
pub mod write;

pub use error::{DecodeError, Fault};
pub use reader::{Reader, is_text};
pub(crate) use reader::{boolean, check_text, integer, unsigned, utf8};
pub use tag::Tag;

#[cfg(test)]
mod tests;
