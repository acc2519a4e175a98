#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test says where it failed by panicking")]

use larix_proto::encode::{self, EntryEncoder};
use larix_proto::{FilterBuf, Scope};

use super::*;

const BASE: &str = "dc=example,dc=com";

fn layer() -> MessageLayer {
    MessageLayer::new(MessageLimits {
        message_bytes: 64 * 1024,
        operations: 8,
        output_bytes: 64 * 1024,
        ..MessageLimits::default()
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn search(layer: &mut MessageLayer) -> Result<MessageId, NotSent> {
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    layer.request(None, Some(2), |out, id| {
        client::search(out, id, &client::Search::new(BASE, Scope::Subtree, filter.as_filter()), &[]);
    })
}

fn delete(layer: &mut MessageLayer, deadline: Option<Duration>) -> Result<MessageId, NotSent> {
    layer.request(deadline, None, |out, id| client::delete(out, id, BASE, &[]))
}

fn bind(layer: &mut MessageLayer) -> Result<MessageId, NotSent> {
    layer.request(None, None, |out, id| client::simple_bind(out, id, "cn=x", b"secret", &[]))
}

fn start_tls(layer: &mut MessageLayer) -> Result<MessageId, NotSent> {
    layer.request(None, None, |out, id| client::extended(out, id, oid::START_TLS, None, &[]))
}

fn entry(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    EntryEncoder::begin(&mut out, MessageId(id), BASE).finish(&[]);
    out
}

fn done(id: u32, kind: ResponseOp, code: ResultCode) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        ResponseOp::Extended => {
            encode::extended_result(&mut out, MessageId(id), &LdapResult::new(code), None, None, &[])
        }
        _ => encode::result(&mut out, MessageId(id), kind, &LdapResult::new(code), &[]),
    }
    out
}

fn notice(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let result = LdapResult::with(ResultCode::UNAVAILABLE, "going");
    encode::extended_result(&mut out, MessageId(0), &result, Some(name), None, &[]);
    out
}

/// What comes of some bytes: `id` of a part, `id!` of a last answer, then the fault, if there is one.
fn answers(layer: &mut MessageLayer, bytes: &[u8]) -> Vec<String> {
    layer.receive(bytes);
    let mut answers = Vec::new();
    loop {
        match layer.next_answer() {
            Ok(None) => return answers,
            Ok(Some(answer)) => {
                answers.push(format!("{}{}", answer.message.id, if answer.is_last { "!" } else { "" }))
            }
            Err(fault) => {
                answers.push(fault.name().to_owned());
                return answers;
            }
        }
    }
}

const OK: ResultCode = ResultCode::SUCCESS;

#[test]
fn what_a_server_says() {
    use ResponseOp::*;
    // A search is message 1, a delete message 2; message 3 was given up.
    for (what, bytes, expected) in [
        (
            "an entry and results",
            [entry(1), done(2, Delete, OK), done(1, SearchDone, OK)].concat(),
            &["1", "2!", "1!"][..],
        ),
        ("an answer twice", [done(2, Delete, OK), done(2, Delete, OK)].concat(), &["2!", "unknown-id"]),
        ("an id that was never sent", entry(99), &["unknown-id"]),
        ("an id of the future", done(5, Delete, OK), &["unknown-id"]),
        ("another type", done(2, Add, OK), &["wrong-type"]),
        ("an entry for a delete", entry(2), &["wrong-type"]),
        ("a bind's result for a search", done(1, Bind, OK), &["wrong-type"]),
        ("entries without end", [entry(1), entry(1), entry(1)].concat(), &["1", "1", "too-many-entries"]),
        ("what was given up", [entry(3), done(3, SearchDone, OK), entry(1)].concat(), &["1"]),
        ("what was given up, answered twice", [done(3, SearchDone, OK), entry(3)].concat(), &["unknown-id"]),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n".to_vec(), &["framing"]),
        ("a huge message", b"\x30\x84\x10\x00\x00\x00\x02\x01\x01".to_vec(), &["framing"]),
        ("no message in the frame", b"\x30\x03\x01\x01\xff".to_vec(), &["garbage"]),
        ("garbage behind the id", b"\x30\x05\x02\x01\x01\xff\x00".to_vec(), &["garbage"]),
        ("half a message", entry(1)[..7].to_vec(), &[]),
        ("another notice", [notice("1.2.3"), entry(1)].concat(), &["1"]),
        ("a goodbye", notice(oid::NOTICE_OF_DISCONNECTION), &["disconnected"]),
        ("an entry for nobody", entry(0), &["wrong-type"]),
    ] {
        let mut layer = layer();
        search(&mut layer).unwrap();
        delete(&mut layer, None).unwrap();
        let given_up = search(&mut layer).unwrap();
        assert!(layer.give_up(given_up, GivingUp::Silent));
        assert_eq!(answers(&mut layer, &bytes), expected, "{what}");
        let fault = expected.last().filter(|text| !text.ends_with(|c: char| c.is_ascii_digit() || c == '!'));
        assert_eq!(layer.ended().map(PeerFault::name), fault.copied(), "{what}");
        if fault.is_some() {
            assert!(layer.is_worn() && layer.output().is_empty(), "{what}");
            assert_eq!(delete(&mut layer, None), Err(NotSent::Worn), "{what}");
        }
    }
}

#[test]
fn binds_and_start_tls_go_alone() {
    let mut layer = layer();
    bind(&mut layer).unwrap();
    assert_eq!(search(&mut layer), Err(NotSent::Alone));
    assert_eq!(answers(&mut layer, &done(1, ResponseOp::Bind, OK)), ["1!"]);
    search(&mut layer).unwrap();
    assert_eq!((bind(&mut layer), start_tls(&mut layer)), (Err(NotSent::Alone), Err(NotSent::Alone)));
    assert_eq!(answers(&mut layer, &done(2, ResponseOp::SearchDone, OK)), ["2!"]);
    start_tls(&mut layer).unwrap();
    let early = [done(3, ResponseOp::Extended, OK), entry(1)].concat();
    assert_eq!(answers(&mut layer, &early), ["early-bytes"]);
}

#[test]
fn a_bind_that_is_given_up_ends_the_connection() {
    let mut layer = layer();
    let id = bind(&mut layer).unwrap();
    assert!(layer.give_up(id, GivingUp::Abandon));
    assert_eq!(layer.ended().map(PeerFault::name), Some("late"));
}

#[test]
fn deadlines_come_in_order() {
    let mut layer = layer();
    let late = delete(&mut layer, Some(seconds(9))).unwrap();
    let early = delete(&mut layer, Some(seconds(5))).unwrap();
    delete(&mut layer, None).unwrap();
    assert_eq!((layer.expired(seconds(4)), layer.next_deadline()), (None, Some(seconds(5))));
    assert_eq!(layer.expired(seconds(20)), Some(early));
    assert!(layer.give_up(early, GivingUp::Abandon) && !layer.give_up(early, GivingUp::Abandon));
    assert_eq!(layer.expired(seconds(20)), Some(late));
    assert_eq!(answers(&mut layer, &done(late.0, ResponseOp::Delete, OK)), ["1!"]);
    assert_eq!((layer.expired(seconds(20)), layer.next_deadline(), layer.under_way()), (None, None, 1));
}

#[test]
fn how_a_server_hears_of_it() {
    for (how, ids, answer) in [
        (GivingUp::Silent, 1, None),
        (GivingUp::Abandon, 2, None),
        // The answer to the cancel itself belongs to no operation.
        (GivingUp::Cancel, 2, Some(done(2, ResponseOp::Extended, OK))),
    ] {
        let mut layer = layer();
        let id = search(&mut layer).unwrap();
        let before = layer.output().len();
        layer.give_up(id, how);
        assert_eq!(layer.output().len() > before, how != GivingUp::Silent);
        assert_eq!(answers(&mut layer, &answer.unwrap_or_default()), [""; 0], "{how:?}");
        assert_eq!(search(&mut layer).unwrap(), MessageId(ids + 1), "{how:?}");
    }
}

#[test]
fn what_is_bounded() {
    let mut layer = layer();
    for _ in 0..8 {
        search(&mut layer).unwrap();
    }
    assert_eq!(search(&mut layer), Err(NotSent::Full));
    layer.give_up(MessageId(3), GivingUp::Silent);
    search(&mut layer).unwrap();
    // Bytes that no caller takes.
    let mut layer = self::layer();
    let large = vec![b'x'; 70 * 1024];
    layer.request(None, None, |out, id| client::compare(out, id, BASE, "cn", &large, &[])).unwrap();
    assert_eq!(search(&mut layer), Err(NotSent::Full));
    layer.sent(layer.output().len());
    search(&mut layer).unwrap();
    // Operations given up that are never answered.
    let mut layer = self::layer();
    for _ in 0..GIVEN_UP_MAX {
        let id = search(&mut layer).unwrap();
        layer.give_up(id, GivingUp::Silent);
        layer.sent(layer.output().len());
    }
    assert_eq!(search(&mut layer), Err(NotSent::Worn));
    // What is no request is not sent.
    let mut layer = self::layer();
    assert_eq!(
        layer
            .request(None, None, |out, id| done(id.0, ResponseOp::Add, OK).iter().for_each(|b| out.push(*b))),
        Err(NotSent::NoRequest)
    );
    assert!(layer.output().is_empty());
}

/// Small numbers from a seed (splitmix64).
struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A server that answers in any order, in pieces of any size, and at some time lies. As long as it is honest, every operation has its own
/// answers and no other's; whatever it says, nothing panics and what is held stays bounded.
#[test]
fn a_server_that_lies_sooner_or_later() {
    for seed in 0..400 {
        let (mut seed, mut layer) = (Seed(seed), layer());
        // Id, whether it is a search, entries sent, entries received.
        let mut open: Vec<(u32, bool, u64)> = Vec::new();
        let mut lied = false;
        for _ in 0..200 {
            let mut bytes = Vec::new();
            match seed.below(12) {
                0..4 => {
                    let is_search = seed.below(2) == 0;
                    let sent = if is_search {
                        search(&mut layer)
                    } else {
                        delete(&mut layer, Some(seconds(seed.below(50))))
                    };
                    match sent {
                        Ok(id) => open.push((id.0, is_search, 0)),
                        Err(why) => assert!(open.len() >= 8 || lied, "{why}"),
                    }
                }
                4..9 if !open.is_empty() => {
                    let at = seed.below(open.len() as u64) as usize;
                    let (id, is_search, entries) = &mut open[at];
                    if *is_search && *entries < 2 && seed.below(2) == 0 {
                        *entries += 1;
                        bytes = entry(*id);
                    } else {
                        let kind = if *is_search { ResponseOp::SearchDone } else { ResponseOp::Delete };
                        bytes = done(*id, kind, OK);
                        open.remove(at);
                    }
                }
                9 if !open.is_empty() => {
                    let (id, ..) = open.remove(seed.below(open.len() as u64) as usize);
                    assert!(layer.give_up(MessageId(id), GivingUp::Abandon) || lied);
                    bytes = entry(id);
                }
                10 if seed.below(20) == 0 => {
                    lied = true;
                    bytes = match seed.below(4) {
                        0 => entry(1_000_000),
                        1 => (0..seed.below(60)).map(|_| seed.below(256) as u8).collect(),
                        2 => b"\x30\x84\x7f\xff\xff\xff".to_vec(),
                        _ => done(0, ResponseOp::Add, OK),
                    };
                }
                _ => {}
            }
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(1 + seed.below(rest.len() as u64) as usize);
                rest = behind;
                for answer in answers(&mut layer, piece) {
                    assert!(lied || answer.starts_with(|c: char| c.is_ascii_digit()), "{answer}");
                }
            }
            assert!(layer.under_way() <= 8);
            layer.sent(layer.output().len());
            if layer.ended().is_some() {
                assert!(lied);
                break;
            }
            if !lied {
                assert_eq!(layer.under_way(), open.len());
            }
        }
    }
}

#[test]
fn a_large_request_leaves_no_large_buffer() {
    let mut layer = MessageLayer::new(MessageLimits::default());
    let value = vec![b'x'; 4 * COMPACT_BYTES];
    let extended = |out: &mut Vec<u8>, id| client::extended(out, id, "1.2.3", Some(value.as_slice()), &[]);
    layer.request(None, None, extended).unwrap();
    layer.sent(10);
    assert!(layer.output().len() > value.len(), "most of it is still to be sent");
    layer.sent(layer.output().len());
    assert_eq!(layer.output(), b"");
    assert!(layer.output.capacity() <= COMPACT_BYTES, "{}", layer.output.capacity());
    let id = delete(&mut layer, None).unwrap();
    assert_eq!(answers(&mut layer, &done(id.0, ResponseOp::Delete, OK)).len(), 1);
}
