//! Generated directories, deterministic from a seed, for demonstrations, tests and measurements.
//!
//! This crate depends on `larix-proto` alone and knows no server: what it makes loads into any LDAP server.

pub mod drive;
pub mod generate;
pub mod report;
