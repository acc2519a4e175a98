//! Generated directories, deterministic from a seed, for demonstrations, tests and measurements.
//!
//! Of the workspace this crate depends on `larix-proto` and `larix-sasl` alone. It knows no server from within: what it makes loads into
//! any LDAP server, and it starts servers as a user would.

mod clock;
pub mod compare;
pub mod drive;
pub mod generate;
pub mod peer;
pub mod report;
pub mod scenario;
pub mod template;
