//! Larix between others: what it receives itself, and how far the cookies for its consumers go.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use larix_proto::control::{ControlValue, EntryState, SyncState};
use larix_proto::encode::{self, EntryEncoder};
use larix_proto::extended::SyncInfo;
use larix_proto::{Frame, LdapResult, Message, Request, ResponseOp, Scope, frame};
use larix_testkit::{Kind, Site, until};
use larix_tests::scripted::ScriptedProvider;
use larix_tests::sync::{Consumer, SyncSearch, read};

const SUFFIX: &str = "dc=example,dc=com";
const NEW: &str = "ou=new,dc=example,dc=com";
const NEW_CSN: &str = "20260101000000.000000Z#000000#002#000000";

/// A provider that sends one entry of its refresh, and then nothing more: its cookie never comes.
fn stalling_provider() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = listener.local_addr().expect("the address of a bound socket");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || answer(&mut stream));
        }
    });
    address
}

/// Answers until the other side is gone.
fn answer(stream: &mut TcpStream) {
    let (mut input, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        input.extend_from_slice(&chunk[..count]);
        while let Ok(Frame::Complete { len }) = frame(&input, 1 << 20) {
            let mut out = Vec::new();
            let message = Message::decode(&input[..len]).expect("a request");
            match message.request {
                Request::Bind(_) => {
                    encode::bind_result(&mut out, message.id, &LdapResult::success(), None, &[])
                }
                Request::Search(_) => {
                    let state = SyncState { state: EntryState::Add, entry_uuid: [7; 16], cookie: None };
                    let mut entry = EntryEncoder::begin(&mut out, message.id, NEW);
                    for (name, value) in [
                        ("objectClass", "organizationalUnit"),
                        ("structuralObjectClass", "organizationalUnit"),
                        ("ou", "new"),
                        ("entryUUID", "07070707-0707-0707-0707-070707070707"),
                        ("entryCSN", NEW_CSN),
                    ] {
                        entry.begin_attribute(name);
                        entry.value(value.as_bytes());
                        entry.end_attribute();
                    }
                    entry.finish(&[state.to_control(false)]);
                }
                _ => encode::result(&mut out, message.id, ResponseOp::Extended, &LdapResult::success(), &[]),
            }
            if stream.write_all(&out).is_err() {
                return;
            }
            input.drain(..len);
        }
    }
}

/// A member that follows another one.
fn between(provider: SocketAddr) -> Site {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "serverID 1\ndatabase mdb\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n\
             syncrepl rid=002 provider=ldap://{provider} searchbase=\"{SUFFIX}\" bindmethod=simple \
             binddn=\"cn=admin,{SUFFIX}\" credentials=secret type=refreshAndPersist retry=\"1 +\"\n\
             multiprovider on\noverlay syncprov\n"
        ),
    );
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n"
    ));
    site
}

fn context_csns(address: SocketAddr) -> Vec<String> {
    let request = SyncSearch { scope: Scope::Base, attributes: &["contextCSN"], ..SyncSearch::default() };
    let found = read(address, &request).expect("the suffix").into_values();
    let values = found.flat_map(|attributes| attributes.into_values().flatten().collect::<Vec<_>>());
    values.map(|csn| String::from_utf8(csn).expect("a CSN")).collect()
}

/// Another server's entry is here and nobody has said yet how far that server has come. A consumer that knows all that this
/// one's contextCSN says lacks it, and is never told of it again once that rises.
#[test]
fn what_came_before_its_cookie_is_told_to_who_has_everything_else() {
    let site = between(stalling_provider());
    let server = site.start().expect("the server in between");
    let new = SyncSearch { base: NEW, scope: Scope::Base, ..SyncSearch::default() };
    until("the new entry is there", || read(server.address, &new).is_some_and(|found| !found.is_empty()));
    let context = context_csns(server.address);
    assert!(!context.is_empty() && !context.iter().any(|csn| csn.contains("#002#")), "{context:?}");
    let cookie = format!("rid=009,csn={}", context.join(";"));
    let mut consumer = Consumer::default();
    consumer.cookie = Some(cookie);
    consumer.ask(server.address, &SyncSearch::default());
    consumer.refresh();
    assert!(consumer.messages.contains(&format!("add {NEW}")), "{:?}", consumer.messages);
}

/// What the other server deleted before its content was gone through never came here. A member may have it from there, and is
/// not to be told that it has seen the delete.
#[test]
fn who_may_have_what_was_deleted_elsewhere_goes_through_the_content() {
    let other = ScriptedProvider::start();
    let site = between(other.address);
    let server = site.start().expect("the server in between");
    let mut pass = other.accept();
    let own = context_csns(server.address);
    let cookie = format!("rid=002,sid=002,csn={NEW_CSN}");
    pass.inform(&SyncInfo::RefreshPresent { cookie: Some(cookie.as_bytes()), done: true });
    until("the CSN is there", || context_csns(server.address).contains(&NEW_CSN.to_owned()));
    let check = |sid: &str, known: &[&str], expected: &str| {
        let mut consumer = Consumer::default();
        let own = own.iter().map(String::as_str);
        let csns: Vec<&str> = own.chain(known.iter().copied()).collect();
        consumer.cookie = Some(format!("rid=009{sid},csn={}", csns.join(";")));
        consumer.ask(server.address, &SyncSearch::default());
        assert_eq!(consumer.refresh(), None);
        assert_eq!(consumer.messages, expected.split(", ").collect::<Vec<_>>(), "{sid} {known:?}");
    };
    check(",sid=005", &[], "present 1, refresh present");
    check(",sid=005", &[NEW_CSN], "refresh delete");
    // Its own deletes it knows of, and who has no way to others has nothing of theirs that never came here.
    check(",sid=002", &[], "refresh delete");
    check("", &[], "refresh delete");
}
