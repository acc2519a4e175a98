//! What a message costs on the wire: `cargo bench -p larix-proto`. Prints nanoseconds an operation.
#![allow(clippy::disallowed_methods)] // measures real time

use std::hint::black_box;
use std::time::Instant;

use larix_proto::client::{self, Search};
use larix_proto::encode::{self, EntryEncoder};
use larix_proto::ldif::{Reader, Writer};
use larix_proto::{
    Dn, FilterBuf, LdapResult, Message, MessageId, ResponseOp, Scope,
    ber::{Tag, write},
};

fn measure(name: &str, bytes: usize, mut operation: impl FnMut()) {
    // Many short samples, of which the best counts: other work on the machine spoils only some of them.
    const ROUNDS: u32 = 200;
    let mut best = u128::MAX;
    for _ in 0..3000 {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| operation());
        best = best.min(start.elapsed().as_nanos());
    }
    println!("{name:<34} {bytes:>6} bytes {:>8.1} ns", best as f64 / f64::from(ROUNDS));
}

fn main() {
    let id = MessageId(4711);
    let filter = FilterBuf::parse("(&(objectClass=inetOrgPerson)(uid=user.123))").expect("a filter");
    let mut search = Search::new("ou=people,dc=example,dc=com", Scope::Subtree, filter.as_filter());
    search.attributes = &["cn", "mail"];
    let mut pdu = Vec::new();
    client::search(&mut pdu, id, &search, &[]);
    measure("decode a search request", pdu.len(), || {
        let _ = black_box(Message::decode(black_box(&pdu)));
    });

    let mut out = Vec::with_capacity(1 << 16);
    let success = LdapResult::success();
    measure("encode a search result done", 14, || {
        out.clear();
        encode::result(black_box(&mut out), id, ResponseOp::SearchDone, &success, &[]);
    });

    let mut values = Vec::new();
    write::octets(&mut values, Tag::OCTET_STRING, &[b'v'; 40]);
    let mut written = 0;
    measure("encode an entry of 20 attributes", 20 * 50, || {
        out.clear();
        let mut entry = EntryEncoder::begin(&mut out, id, "uid=user.123,ou=people,dc=example,dc=com");
        (0..20).for_each(|_| entry.attribute("description", black_box(&values)));
        entry.finish(&[]);
        written = out.len();
    });
    println!("  an entry was {written} bytes");

    let dn = "uid=user.123,ou=people,dc=example,dc=com";
    measure("parse a DN", dn.len(), || {
        let _ = black_box(Dn::parse(black_box(dn)));
    });
    let text = "(&(objectClass=inetOrgPerson)(uid=user.123))";
    measure("parse a filter", text.len(), || {
        let _ = black_box(FilterBuf::parse(black_box(text)));
    });

    let mut ldif = Vec::new();
    let writer = Writer::default();
    writer.value(&mut ldif, "dn", dn.as_bytes());
    for number in 0..20 {
        writer.value(&mut ldif, &format!("attribute{number}"), &[b'v'; 40]);
    }
    ldif.push(b'\n');
    measure("read an LDIF record of 20 values", ldif.len(), || {
        Reader::new(&ldif[..]).for_each(|record| drop(black_box(record)));
    });
}
