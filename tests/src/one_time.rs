//! Codes as apps show them, by another program's HMAC: `openssl`.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// The time step of now.
#[expect(clippy::disallowed_methods, reason = "codes are of the present time")]
pub fn step_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time since 1970").as_secs() / 30
}

/// The six digits of a counter or time step, by a key and `-sha1` or another hash.
///
/// # Panics
/// No openssl.
pub fn code(hash: &str, key: &[u8], moving: u64) -> String {
    let key: Vec<String> = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("hexkey:{}", key.concat());
    let mut child = Command::new("openssl")
        .args(["dgst", hash, "-mac", "HMAC", "-macopt", &key, "-binary"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl");
    child.stdin.take().expect("its input").write_all(&moving.to_be_bytes()).expect("it reads");
    let mac = child.wait_with_output().expect("an answer").stdout;
    let at = usize::from(mac.last().expect("a hash") & 0xf);
    let number = u32::from_be_bytes(mac[at..at + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

/// The bytes of a secret in base 32, without padding.
///
/// # Panics
/// Other letters.
pub fn key_of(secret: &str) -> Vec<u8> {
    let (mut bits, mut bit_count, mut key) = (0_u64, 0, Vec::new());
    for letter in secret.bytes() {
        let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter);
        bits = (bits << 5 | value.expect("a letter of base 32") as u64) & 0xfff;
        bit_count += 5;
        if bit_count >= 8 {
            bit_count -= 8;
            key.push((bits >> bit_count & 0xff) as u8);
        }
    }
    key
}
