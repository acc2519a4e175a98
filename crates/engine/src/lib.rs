//! The directory: entries, tree, indexes, planner, operations, access. No sockets, no ambient clock, no async runtime.

pub mod access;
pub mod controls;
pub mod csn;
pub mod password;
pub mod time;
