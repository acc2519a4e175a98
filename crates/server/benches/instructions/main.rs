//! What a request costs in instructions: `cargo xtask instructions`, which runs this under callgrind and compares what
//! it counts with `baseline.toml` beside this file.
//!
//! `prepare FOLDER` generates and loads the directory, outside of the measurement; `run FOLDER OPERATIONS` sends each
//! kind of request so many times, in the order of `kinds`, with a call of [`phase_ends`] before and after.
#![allow(clippy::expect_used, reason = "a benchmark that cannot run says why and ends")]

mod mail;

use std::path::Path;

use larix_server::local::LocalConnection;
use mail::What;

// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Requests that fill caches before those that count.
const WARM_UP: u64 = 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["prepare", folder] => mail::prepare(Path::new(folder)),
        ["kinds"] => {
            What::RULED.iter().for_each(|what| println!("{}-ruled", what.name()));
            for overlay in behind() {
                println!("search+{overlay}\nmodify+{overlay}");
            }
            What::ALL.iter().for_each(|what| println!("{}", what.name()));
        }
        ["run", folder, operations] => run(Path::new(folder), operations.parse().expect("a number")),
        _ => println!("run by `cargo xtask instructions`"),
    }
}

/// The overlays that stand before a search and a modify that do not concern them: each alone, ten, and none for comparison.
fn behind() -> impl Iterator<Item = &'static str> {
    ["none"].into_iter().chain(mail::OVERLAYS.iter().map(|(name, _)| *name)).chain([mail::TEN])
}

fn run(folder: &Path, operations: u64) {
    // Before changes, after which the writer has work of its own.
    {
        let server = mail::open_ruled(folder);
        mail::wait_for_rest();
        let mut connection = server.connect();
        mail::bind_as_user(&mut connection, folder);
        What::RULED.into_iter().for_each(|what| measure(&mut connection, what, operations));
    }
    for overlay in behind() {
        let server = mail::open_behind(folder, overlay);
        let mut connection = server.connect();
        mail::bind_as_root(&mut connection);
        measure(&mut connection, What::Search, operations);
        measure(&mut connection, What::Modify, operations);
    }
    let server = mail::open(folder);
    mail::wait_for_rest();
    let mut connection = server.connect();
    mail::bind_as_root(&mut connection);
    What::ALL.into_iter().for_each(|what| measure(&mut connection, what, operations));
}

fn measure(connection: &mut LocalConnection, what: What, operations: u64) {
    let (counted, mut out) = mail::warm(connection, what, WARM_UP, operations);
    phase_ends();
    send(connection, &counted, &mut out);
    phase_ends();
    mail::check(what, &out);
}

fn send(connection: &mut LocalConnection, requests: &[Vec<u8>], out: &mut Vec<u8>) {
    for request in requests {
        out.clear();
        connection.request(request, out);
    }
}

/// Callgrind writes what it has counted since the last call when this is called.
#[inline(never)]
fn phase_ends() {
    std::hint::black_box(());
}
