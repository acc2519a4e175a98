//! The admin page, as an HTTP client and as a browser sees it.

#![allow(clippy::unwrap_used, reason = "all of this crate is tests")]

mod backups;
mod browser;
mod device;
mod http;
mod overview;
mod pages;
mod people;
mod reset;
mod reset_mail;
mod searching;
mod transfer;
