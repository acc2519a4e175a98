//! Servers that hold the same entries: Larix beside Larix and beside slapd.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod accesslog_delta;
mod brought_back;
mod consumer;
mod directory;
mod first_fill;
mod glued_elsewhere;
mod overlays;
mod provider;
mod pushed;
mod relayed;
mod replica;
mod replica_status;
mod ring;
mod ring_namespaces;
mod slow;
mod subentries;
mod unique_races;
mod value_conflicts;
