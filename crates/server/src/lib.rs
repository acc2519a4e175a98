//! Everything with a socket, a thread or a signal: listeners, per-core workers, connections, configuration, logs.
//!
//! The way of a request: [`listener`] binds, [`worker`] accepts and reads, [`connection`] cuts the bytes into requests
//! (no I/O in it), [`session`] knows who asks, [`dispatch`] hands the request to the directory, and the answer goes
//! back the same way in one write.

pub mod config;
pub mod connection;
pub mod daemon;
pub mod listener;
pub mod stats_log;
