//! What comparing with a stored password costs: `cargo bench -p larix-passwords --bench passwords`.
//!
//! Every scheme at its default cost, one value and the right password; printed is the CPU time of one comparison, the
//! least of several rounds, so that a machine with other work says nearly the same.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // measures a real machine

use std::fs;
use std::hint::black_box;

use larix_passwords::random::SeededRandom;
use larix_passwords::{CryptMethod, Hasher, Scheme, verify};

const PASSWORD: &[u8] = b"correct horse battery";
const ROUNDS: usize = 5;
/// Nanoseconds of CPU time that a round takes at least.
const ROUND: u64 = 50_000_000;

/// What is verified but never made, as crypt(3) makes it of [`PASSWORD`].
const ONLY_VERIFIED: [(&str, &str); 3] = [
    ("{CRYPT} DES", "{CRYPT}abhfCpXqd4GrI"),
    ("{CRYPT} DES, BSDi, 725 times", "{CRYPT}_J9..rasmHJqxwvNJG6s"),
    (
        "{CRYPT} yescrypt, $y$j9T$",
        "{CRYPT}$y$j9T$abcdefghijklmnop$F7kfVk.oOhV81K9PnQ5GcZ31QaSOFBtNI3Y3euDcm9C",
    ),
];

fn main() {
    let random = SeededRandom::new(1);
    println!("| scheme | CPU us |\n|---|---|");
    for name in Scheme::names()
        .filter(|name| !matches!(*name, "{CRYPT}" | "{PBKDF2-SHA1}") && !name.starts_with("{TOTP"))
    {
        let hasher = Hasher::new(Scheme::from_name(name).unwrap());
        measure(name, &hasher.hash(PASSWORD, &random).unwrap());
    }
    for (name, format) in [
        ("{CRYPT} MD5", "$1$%.8s"),
        ("{CRYPT} bcrypt, cost 10", "$2b$10$%.22s"),
        ("{CRYPT} SHA-256", "$5$%.16s"),
        ("{CRYPT} SHA-512", "$6$%.16s"),
    ] {
        let crypt = CryptMethod::from_salt_format(format).unwrap();
        let hasher = Hasher { crypt, ..Hasher::new(Scheme::Crypt) };
        measure(name, &hasher.hash(PASSWORD, &random).unwrap());
    }
    for (name, stored) in ONLY_VERIFIED {
        measure(name, stored.as_bytes());
    }
}

fn measure(name: &str, stored: &[u8]) {
    assert!(verify(stored, PASSWORD).is_match(), "{name}: {}", String::from_utf8_lossy(stored));
    let least = (0..ROUNDS).map(|_| round(stored)).min().unwrap();
    println!("| `{name}` | {}.{:02} |", least / 1_000, least % 1_000 / 10);
}

/// Nanoseconds of CPU time for one comparison.
fn round(stored: &[u8]) -> u64 {
    let begin = cpu_time();
    let mut done = 0;
    // As many again each time: the clock is looked at seldom where a comparison is short.
    loop {
        for _ in 0..u64::max(done, 1) {
            black_box(verify(black_box(stored), black_box(PASSWORD)));
        }
        done = u64::max(2 * done, 1);
        let taken = cpu_time() - begin;
        if taken >= ROUND {
            return taken / done;
        }
    }
}

/// Nanoseconds that this thread has run.
fn cpu_time() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_ascii_whitespace().next().unwrap().parse().unwrap()
}
