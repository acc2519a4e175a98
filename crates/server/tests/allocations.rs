//! Steady state: what a request allocates once caches are warm. The limits here are to be lowered, never raised.
#![allow(clippy::expect_used, reason = "a test that cannot run says why and ends")]

#[allow(dead_code, reason = "the benchmark uses the rest of it")]
#[path = "../benches/instructions/mail.rs"]
mod mail;

use std::alloc::System;

use mail::What;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: u64 = 50;
const REQUESTS: u64 = 200;

/// Allocations of one request at most.
const LIMITS: [(What, u64); 4] =
    [(What::Search, 0), (What::SearchSelected, 1), (What::Read, 0), (What::Compare, 1)];

#[test]
fn reading_allocates_no_more_than_is_known() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    mail::prepare(folder.path());
    let server = mail::open(folder.path());
    let mut connection = server.connect();
    mail::bind_as_root(&mut connection);
    let mut faults = Vec::new();
    for (what, limit) in LIMITS {
        let (counted, mut out) = mail::warm(&mut connection, what, WARM_UP, REQUESTS);
        // The writer's thread allocates, too, while it makes a dictionary.
        mail::wait_for_rest();
        let region = Region::new(ALLOCATOR);
        for request in &counted {
            out.clear();
            connection.request(request, &mut out);
        }
        let change = region.change();
        let each = (change.allocations + change.reallocations) as u64 / REQUESTS;
        println!("{}: {each} allocations a request", what.name());
        if each > limit {
            faults.push(format!("{} allocates {each} times, not {limit}", what.name()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("; "));
}
