//! The engine as a whole, on every store. One program for all of it: what is generic over the store is compiled once.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

mod access_log;
mod committed;
mod common;
mod context_csn;
mod dictionaries;
mod fill;
mod fill_states;
mod formats;
mod index_build;
mod internal_search;
mod lazy_commit;
mod log_marks;
mod model;
mod modify_ways;
mod own_thread;
mod prepared_sets;
mod replay;
mod replica;
mod replica_forgotten;
mod replica_model;
mod replica_places;
mod replica_records;
mod replicated;
mod two_writers;
mod write;
mod write_budget;
mod write_groups;
mod write_rules;
mod write_schema;
