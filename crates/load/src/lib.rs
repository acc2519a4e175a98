//! Generated directories, deterministic from a seed, for demonstrations, tests and measurements.
//!
//! This crate depends on `larix-proto` alone and knows no server from within: what it makes loads into any LDAP
//! server, and what it starts it starts as a user would.

mod clock;
pub mod compare;
pub mod drive;
pub mod generate;
pub mod peer;
pub mod report;
pub mod scenario;
pub mod template;
