//! slapd.conf and cn=config: read, changed while the server serves, changed while it does not.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod accesslog_config;
mod config_file;
mod configuration_in_use;
mod foreign_config;
mod ldif_database;
mod live_config;
mod live_settings;
mod offline_config;
mod public_configurations;
