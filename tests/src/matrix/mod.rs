//! Generated access rules, identities and requests, for the same decision on Larix and on a real slapd.
//!
//! Everything comes from a seed: a case that differs can be run again. Requests are those of a scenario
//! (`tests/conformance/README.md`), so that a difference can be moved into a scenario as it stands.

pub mod acis;
pub mod random;
pub mod requests;
pub mod rules;
pub mod tree;

pub use random::Random;
pub use requests::{Case, Identity};
pub use tree::Tree;
