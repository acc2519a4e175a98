//! What the server's memory holds of a password after it was judged: nothing, as `/proc/PID/mem` shows.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larix_proto::{MessageId, client, oid};
use larix_testkit::{Kind, Server, Site, packages, until};
use larix_tests::raw::{Raw, bind};

const SUFFIX: &str = "dc=example,dc=com";
/// Looks at the memory before what is found is there to stay: an answer is sent before all of its work is put away, and the thread that
/// does so may wait for a processor. Beside the first of them the server does something else.
const LOOKS: usize = 600;
const BUSY_LOOKS: usize = 20;
const BETWEEN: Duration = Duration::from_millis(50);
/// How the second half of a test's password begins: allocators write over the first bytes of what is free.
const HALF: usize = 24;

/// A password that nothing else in memory looks like.
fn fresh() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let mut mixed = u64::from(std::process::id()) << 32 | NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut word = || {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 29;
        format!("{mixed:016x}")
    };
    [word(), word(), word()].concat()
}

struct Account {
    name: &'static str,
    password: String,
}

fn serving() -> (Site, Server, Vec<Account>) {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "sasl-secprops none\nauthz-regexp \"^uid=([^,]+),cn=[^,]+,cn=auth$\" \"cn=$1,{SUFFIX}\"\ndatabase mdb\n\
             suffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n\
             access to attrs=userPassword by self write by anonymous auth\naccess to * by * read\n\
             overlay ppolicy\nppolicy_hash_cleartext\n"
        ),
    );
    let mut ldif =
        format!("dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n");
    let schemes = [("light", "{SSHA}"), ("heavy", "{ARGON2}"), ("long", "{SSHA512}"), ("old", "{SMD5}")];
    let accounts = schemes.map(|(name, scheme)| {
        let password = fresh();
        let output =
            Kind::Larix.tool("hash-password").args(["-h", scheme, "-s", &password]).output().unwrap();
        let hash = String::from_utf8(output.stdout).unwrap();
        ldif += &format!(
            "dn: cn={name},{SUFFIX}\nobjectClass: person\ncn: {name}\nsn: x\nuserPassword: {hash}\n\n"
        );
        Account { name, password }
    });
    site.load(&ldif);
    let server = site.start().unwrap();
    (site, server, accounts.into())
}

/// Where in the memory that the server may write the second half of `password` stands, with what is around it.
fn places(server: &Server, password: &str) -> std::io::Result<Vec<String>> {
    let process = server.process_id();
    let open = |name: &str| std::fs::File::open(format!("/proc/{process}/{name}"));
    let (memory, pages) = (open("mem")?, open("pagemap")?);
    let half = &password.as_bytes()[HALF..];
    let mut found = Vec::new();
    for line in std::fs::read_to_string(format!("/proc/{process}/maps"))?.lines() {
        let mut words = line.split(' ');
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        let (begin, end) = range.split_once('-').unwrap();
        let [begin, end] = [begin, end].map(|at| u64::from_str_radix(at, 16).unwrap());
        for (begin, length) in present(&pages, begin, end) {
            let mut bytes = vec![0; length];
            // What went away meanwhile holds nothing.
            let Ok(read) = memory.read_at(&mut bytes, begin) else { continue };
            let bytes = &bytes[..read];
            let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == half[0]);
            for (at, _) in starts.filter(|(at, _)| bytes[*at..].starts_with(half)) {
                let around = &bytes[at.saturating_sub(64)..(at + half.len() + 16).min(bytes.len())];
                found.push(format!("{line}: {:?}", String::from_utf8_lossy(around)));
            }
        }
    }
    Ok(found)
}

/// Runs of pages that are there, as address and length: most of what an allocator reserves was never touched.
fn present(pages: &std::fs::File, begin: u64, end: u64) -> Vec<(u64, usize)> {
    const PAGE: usize = 4096;
    let mut entries = vec![0; usize::try_from(end - begin).unwrap() / PAGE * 8];
    let read = pages.read_at(&mut entries, begin / PAGE as u64 * 8).unwrap_or(0);
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for (number, entry) in entries[..read].chunks_exact(8).enumerate() {
        // Bit 63 of an entry: the page is in memory.
        if entry[7] & 0x80 == 0 {
            continue;
        }
        let at = begin + (number * PAGE) as u64;
        match runs.last_mut() {
            Some((start, length)) if *start + *length as u64 == at => *length += PAGE,
            _ => runs.push((at, PAGE)),
        }
    }
    runs
}

/// Whether the system does not let this process read the server's memory: then nothing is tested.
fn is_hidden(server: &Server) -> bool {
    let error = places(server, &fresh()).err();
    if error.is_some() {
        packages::note_lack("another process's memory");
    }
    error.is_some()
}

fn assert_gone(server: &Server, password: &str, after: &str) {
    let mut found = Vec::new();
    for look in 0..LOOKS {
        found = places(server, password).unwrap();
        if found.is_empty() {
            return;
        }
        if look < BUSY_LOOKS {
            assert_eq!(Raw::connect(server.address).unwrap().ask(&whoami()).unwrap().code, 0);
        } else {
            std::thread::park_timeout(BETWEEN);
        }
    }
    panic!("after {after} the password stands {} times in memory:\n{}", found.len(), found.join("\n"));
}

fn whoami() -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(1), oid::WHO_AM_I, None, &[]);
    out
}

fn plain(name: &str, password: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let token = format!("\0{name}\0{password}");
    client::sasl_bind(&mut out, MessageId(1), "", "PLAIN", Some(token.as_bytes()), &[]);
    out
}

/// RFC 3062: the old password and the new one of the requester.
fn password_modify(old: &str, new: &str) -> Vec<u8> {
    let field =
        |tag: u8, value: &str| [&[tag, u8::try_from(value.len()).unwrap()][..], value.as_bytes()].concat();
    let fields = [field(0x81, old), field(0x82, new)].concat();
    let value = [&[0x30, u8::try_from(fields.len()).unwrap()][..], &fields].concat();
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(2), oid::PASSWORD_MODIFY, Some(&value), &[]);
    out
}

#[test]
fn a_password_is_gone_from_memory_when_it_was_judged() {
    let (_site, server, accounts) = serving();
    if is_hidden(&server) {
        return;
    }
    let connect = || Raw::connect(server.address).unwrap();
    for Account { name, password } in &accounts {
        let dn = format!("cn={name},{SUFFIX}");
        for (right, code) in [(false, 49), (true, 0)] {
            let password = if right { password.clone() } else { fresh() };
            let mut connection = connect();
            assert_eq!(connection.ask(&bind(1, &dn, &password)).unwrap().code, code, "{name}");
            assert_gone(&server, &password, &format!("a simple bind as {name}, answered {code}"));
            let mut connection = connect();
            assert_eq!(connection.ask(&plain(name, &password)).unwrap().code, code, "{name}");
            assert_gone(&server, &password, &format!("PLAIN as {name}, answered {code}"));
        }
    }
    let password = fresh();
    assert_eq!(connect().ask(&bind(1, &format!("cn=nobody,{SUFFIX}"), &password)).unwrap().code, 49);
    assert_gone(&server, &password, "a simple bind as nobody");
}

#[test]
fn a_password_that_came_in_pieces_is_gone_too() {
    let (_site, server, accounts) = serving();
    if is_hidden(&server) {
        return;
    }
    let dn = format!("cn={},{SUFFIX}", accounts[0].name);
    let password = fresh();
    let request = bind(1, &dn, &password);
    let (first, last) = request.split_at(request.len() - 3);
    let mut connection = Raw::connect(server.address).unwrap();
    connection.socket.set_nodelay(true).unwrap();
    assert!(connection.send(first));
    // Until the first part was read it stands nowhere, then in the connection's own buffer.
    until("the first part is read", || !places(&server, &password[..password.len() - 3]).unwrap().is_empty());
    assert_eq!(connection.ask(last).unwrap().code, 49);
    assert_gone(&server, &password, "a bind in two pieces");
    // The rest never comes.
    let password = fresh();
    let request = bind(1, &dn, &password);
    let mut connection = Raw::connect(server.address).unwrap();
    let part = &password[..password.len() - 3];
    assert!(connection.send(&request[..request.len() - 3]));
    until("the part is read", || !places(&server, part).unwrap().is_empty());
    drop(connection);
    assert_gone(&server, part, "half a bind");
    // Two binds at once: the second waits in a buffer while the first is judged.
    let passwords = [fresh(), fresh()];
    let both: Vec<u8> = passwords.iter().flat_map(|password| bind(1, &dn, password)).collect();
    let mut connection = Raw::connect(server.address).unwrap();
    assert_eq!(connection.ask(&both).unwrap().code, 49);
    assert_eq!(connection.answer().unwrap().code, 49);
    passwords.iter().for_each(|password| assert_gone(&server, password, "two binds at once"));
}

#[test]
fn a_new_password_is_gone_when_its_hash_is_stored() {
    let (_site, server, accounts) = serving();
    if is_hidden(&server) {
        return;
    }
    let Account { name, password } = &accounts[0];
    let mut connection = Raw::connect(server.address).unwrap();
    assert_eq!(connection.ask(&bind(1, &format!("cn={name},{SUFFIX}"), password)).unwrap().code, 0);
    let new = fresh();
    assert_eq!(connection.ask(&password_modify(password, &new)).unwrap().code, 0);
    assert_gone(&server, &new, "a password modify request");
    assert_gone(&server, password, "a password modify request that named the old one");
}
