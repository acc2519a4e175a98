//! Searches.

pub mod filter;
