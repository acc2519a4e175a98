//! What the end-to-end suites share: conformance scenarios as text, and a client that shows answers as text.

pub mod browser;
pub mod client;
pub mod controls;
pub mod generated;
pub mod http;
pub mod matrix;
pub mod one_time;
pub mod proxied;
pub mod raw;
pub mod relay;
pub mod replicas;
pub mod running;
pub mod scenario;
pub mod scripted;
pub mod scripted_directory;
mod sections;
pub mod secure;
pub mod shared_engine;
pub mod sync;
pub mod transcript;
pub mod writers;
