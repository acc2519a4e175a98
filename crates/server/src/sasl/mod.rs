//! Authentication and authorization identities (RFC 4513 section 5.2.1.8): from names to DNs, and who may act for whom.
//!
//! The binds themselves are the dispatcher's.

pub mod authorize;
pub mod external;
pub mod identity;
pub(crate) mod online;
