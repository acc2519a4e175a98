//! Commands as they are typed, and the guide that says which.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod adopt;
mod applications;
mod backup;
mod chart;
mod check_rules;
mod command_line;
mod container;
mod deleted;
mod demo;
mod guide_blocks;
mod guide_configurations;
mod killed_tools;
mod load_compare;
mod load_run;
mod mail;
mod offline_checks;
mod quick_start;
mod slapacl;
mod slappasswd;
mod terminal;
mod tools_beside_server;
