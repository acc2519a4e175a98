//! One server, over its sockets: protocol, security, logs, memory, crashes.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod access_matrix;
mod accesslog;
mod across_databases;
mod autoca;
mod balance;
mod chain;
mod changelog;
mod churn;
mod cluster;
mod connections;
mod crash;
mod disclosure;
mod dnssrv;
mod gssapi;
mod hostile;
mod http;
mod key_passwords;
mod lastmod;
mod lockout;
mod logs;
mod long_searches;
mod memberof;
mod memory;
mod meta;
mod overlays_generated;
mod panics;
mod pass_through;
mod password_cost;
mod pcache;
mod persistent_search;
mod principals;
mod process;
mod proxy;
mod remote_auth;
mod renames;
mod rwm;
mod sasl;
mod size;
mod small_databases;
mod sock;
mod tls;
mod totp;
mod translucent;
