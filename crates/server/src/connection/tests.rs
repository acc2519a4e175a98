//! Bytes in, bytes out, with a service that answers by a script: the password or the search base says what to do.

use super::*;

/// Answers at once, except for these: bind with password "slow" waits; add waits; a search below "steps=N" goes on
/// for N slices of one byte string each, one below "long=N" is long after its first, one below "follow=N" waits for changes after its
/// last.
#[derive(Debug, Default)]
struct Script {
    log: Vec<String>,
    slice: usize,
    layers: bool,
    /// Nothing can be computed elsewhere.
    alone: bool,
    /// What was sent elsewhere last.
    background: Option<Search>,
    /// Bytes of a message that it takes; a thousand if it does not say.
    pdu: Option<usize>,
    looks_up: RemoteLookups,
    /// Bytes of the updates of a transaction.
    kept: usize,
    now: Monotonic,
    /// What a slice takes.
    nanos: u64,
}

#[derive(Debug)]
struct Search {
    left: usize,
    long: bool,
    begun: bool,
    follows: bool,
    /// How often it was to hold nothing meanwhile.
    pauses: usize,
}

impl Service for Script {
    type Search = Search;
    type BackgroundSearch = MessageId;
    type Returned = Search;
    type Completion = &'static str;

    fn start(
        &mut self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<Search> {
        match message.request {
            Request::Bind(bind) => match bind.authentication {
                Authentication::Simple(b"slow") => StartOutcome::WaitingAlone,
                Authentication::Other(_) => StartOutcome::Disconnect(LdapResult::new(ResultCode::OTHER)),
                _ => answer(out, operation, ResponseOp::Bind),
            },
            Request::Add(_) => StartOutcome::Waiting,
            Request::Search(search) => match search.base.split_once('=') {
                Some((kind, steps)) => {
                    let (long, follows) = (kind == "long", kind == "follow");
                    let left = steps.parse().unwrap();
                    StartOutcome::Searching(Search { left, long, begun: false, follows, pauses: 0 })
                }
                None => answer(out, operation, ResponseOp::SearchDone),
            },
            Request::Extended(extended) if extended.name == oid::START_TLS => StartOutcome::Securing,
            Request::Extended(extended) if extended.name.contains('.') => {
                answer(out, operation, ResponseOp::Extended)
            }
            Request::Extended(extended) => StartOutcome::Cancel(MessageId(extended.name.parse().unwrap())),
            _ => answer(out, operation, ResponseOp::Delete),
        }
    }

    fn step(&mut self, operation: Operation, search: &mut Search, out: &mut Vec<u8>) -> SliceOutcome {
        self.log.push(format!("step {}", operation.id));
        self.now.0 += self.nanos;
        assert!(out.len() < OUTPUT_HIGH, "a real search would do nothing, and be asked again");
        search.begun = true;
        if search.left == 0 && search.follows {
            return SliceOutcome::Sleeping;
        }
        if search.left == 0 {
            encode::result(out, operation.id, ResponseOp::SearchDone, &LdapResult::success(), &[]);
            return SliceOutcome::Done;
        }
        search.left -= 1;
        out.resize(out.len() + self.slice, 0);
        SliceOutcome::More
    }

    fn pause(&mut self, search: &mut Search) {
        search.pauses += 1;
    }

    fn is_long(&self, search: &Search) -> bool {
        search.long && search.begun
    }

    fn send_to_background(
        &mut self,
        operation: Operation,
        mut search: Search,
    ) -> SearchLocation<Search, MessageId> {
        if self.alone {
            search.long = false;
            return SearchLocation::OnLoop(search);
        }
        self.log.push(format!("away {}", operation.id));
        self.background = Some(search);
        SearchLocation::InBackground(operation.id)
    }

    fn returned(&mut self, operation: Operation, mut search: Search, out: &mut Vec<u8>) -> Option<Search> {
        self.log.push(format!("back {}", operation.id));
        out.resize(out.len() + self.slice, 0);
        if search.left > 0 {
            search.left -= 1;
            return Some(search);
        }
        encode::result(out, operation.id, ResponseOp::SearchDone, &LdapResult::success(), &[]);
        None
    }

    fn complete(&mut self, operation: Operation, completion: &'static str, out: &mut Vec<u8>) {
        self.log.push(format!("complete {completion}"));
        encode::result(out, operation.id, ResponseOp::Add, &LdapResult::success(), &[]);
    }

    fn end(
        &mut self,
        operation: Operation,
        search: SearchLocation<Search, MessageId>,
        result: Option<LdapResult>,
        out: &mut Vec<u8>,
    ) {
        self.log.push(match search {
            SearchLocation::OnLoop(_) => format!("end {}", operation.id),
            SearchLocation::InBackground(id) => format!("end {id} elsewhere"),
        });
        if let Some(result) = result {
            encode::result(out, operation.id, ResponseOp::SearchDone, &result, &[]);
        }
    }

    fn cancelled(&mut self, operation: Operation, result: LdapResult, out: &mut Vec<u8>) {
        encode::extended_result(out, operation.id, &result, None, None, &[]);
    }

    fn event(&mut self, event: Event<'_>) {
        self.log.push(match event {
            Event::Unbind(_) => "unbind".to_owned(),
            Event::Abandon(_, id) => format!("abandon {id}"),
            Event::Refused(why) => format!("refused: {why}"),
            Event::BadBind => "bad bind".to_owned(),
        });
    }

    fn limits(&self) -> Limits {
        Limits {
            pdu: self.pdu.unwrap_or(1000),
            pending: 3,
            pending_bytes: 10_000,
            filter_depth: 10,
            looks_up: self.looks_up,
        }
    }

    fn now(&self) -> Monotonic {
        self.now
    }

    fn kept_bytes(&self) -> usize {
        self.kept
    }

    fn start_tls(&mut self, operation: Operation, outstanding: bool, out: &mut Vec<u8>) {
        self.log.push(format!("start TLS, outstanding {outstanding}"));
        self.layers = !outstanding;
        answer(out, operation, ResponseOp::Extended);
    }

    fn changes_layers(&self) -> bool {
        self.layers
    }
}

fn answer(out: &mut Vec<u8>, operation: Operation, op: ResponseOp) -> StartOutcome<Search> {
    encode::result(out, operation.id, op, &LdapResult::success(), &[]);
    StartOutcome::Answered
}

fn tlv(tag: u8, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![tag, 0x82];
    out.extend_from_slice(&u16::try_from(contents.len()).unwrap().to_be_bytes());
    out.extend_from_slice(contents);
    out
}

fn request(id: u8, tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    let operation = tlv(tag, &parts.concat());
    tlv(0x30, &[vec![2, 1, id], operation].concat())
}

fn bind(id: u8, password: &str) -> Vec<u8> {
    request(id, 0x60, &[vec![2, 1, 3], tlv(4, b"cn=a"), tlv(0x80, password.as_bytes())])
}

fn search(id: u8, base: &str) -> Vec<u8> {
    search_with(id, base, &tlv(0x87, b"objectClass"))
}

fn search_with(id: u8, base: &str, filter: &[u8]) -> Vec<u8> {
    let fixed = [10, 1, 2, 10, 1, 0, 2, 1, 0, 2, 1, 0, 1, 1, 0].to_vec();
    request(id, 0x63, &[tlv(4, base.as_bytes()), fixed, filter.to_vec(), tlv(0x30, b"")])
}

fn add(id: u8) -> Vec<u8> {
    let values = tlv(0x31, &tlv(4, b"top"));
    let attribute = tlv(0x30, &[tlv(4, b"objectClass"), values].concat());
    request(id, 0x68, &[tlv(4, b"cn=b"), tlv(0x30, &attribute)])
}

fn delete(id: u8) -> Vec<u8> {
    tlv(0x30, &[vec![2, 1, id], tlv(0x4a, b"cn=b")].concat())
}

fn abandon(id: u8, other: u8) -> Vec<u8> {
    tlv(0x30, &[vec![2, 1, id], vec![0x50, 1, other]].concat())
}

fn cancel(id: u8, other: u8) -> Vec<u8> {
    request(id, 0x77, &[tlv(0x80, other.to_string().as_bytes())])
}

fn unbind(id: u8) -> Vec<u8> {
    vec![0x30, 5, 2, 1, id, 0x42, 0]
}

/// The answers as `id:tag:code`, padding of the script's slices skipped.
fn answers(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(&first) = bytes.first() {
        if first == 0 {
            bytes = &bytes[1..];
            continue;
        }
        let Ok(Frame::Complete { len }) = frame(bytes, 100_000) else { panic!("no message at {bytes:02x?}") };
        let message = &bytes[..len];
        let (id, tag) = (message[4], message[5]);
        // The result's enumerated code follows the operation's header, whatever form its length has.
        let at = message[6..].windows(2).position(|w| w == [10, 1]).unwrap() + 8;
        found.push(format!("{id}:{tag:02x}:{}", message[at]));
        bytes = &bytes[len..];
    }
    found
}

fn connection() -> Connection<Script> {
    Connection::new(Script::default())
}

#[test]
fn whole_exchanges() {
    let check = |name: &str, input: &[Vec<u8>], expected: &[&str], turn: Turn| {
        // In one piece, and byte by byte: the answers must be the same.
        let bytes = input.concat();
        for piece in [bytes.len(), 1] {
            let mut connection = connection();
            let mut last = Turn::Idle;
            for part in bytes.chunks(piece) {
                last = connection.receive(part);
                while last == Turn::More {
                    last = connection.resume();
                }
                if last == Turn::Close {
                    break;
                }
            }
            assert_eq!(answers(connection.output()), expected, "{name}, pieces of {piece}");
            assert_eq!(last, turn, "{name}, pieces of {piece}");
        }
    };
    check("bind", &[bind(1, "x")], &["1:61:0"], Turn::Idle);
    check(
        "a pipeline",
        &[bind(1, "x"), delete(2), search(3, "")],
        &["1:61:0", "2:6b:0", "3:65:0"],
        Turn::Idle,
    );
    check("unbind ends it", &[delete(1), unbind(2), delete(3)], &["1:6b:0"], Turn::Close);
    check("a search of slices", &[search(1, "steps=3")], &["1:65:0"], Turn::Idle);
    check("nothing after a slow bind", &[bind(1, "slow"), delete(2)], &[], Turn::Idle);
    check("garbage", &[b"GET / HTTP/1.0\r\n\r\n".to_vec()], &["0:78:2"], Turn::Close);
    check("two gigabytes announced", &[vec![0x30, 0x84, 0x7f, 0xff, 0xff, 0xff]], &["0:78:2"], Turn::Close);
    check("indefinite length", &[vec![0x30, 0x80, 2, 1, 1]], &["0:78:2"], Turn::Close);
    check("message id 0", &[delete(0)], &["0:78:2"], Turn::Close);
    check("an unknown operation", &[tlv(0x30, &[2, 1, 7, 0x7e, 0])], &["0:78:2"], Turn::Close);
    check(
        "the service disconnects",
        &[request(1, 0x60, &[vec![2, 1, 3], tlv(4, b""), tlv(0x85, b"")])],
        &["0:78:80"],
        Turn::Close,
    );
    check("cancel of nothing", &[cancel(1, 9)], &["1:78:119"], Turn::Idle);
    check("cancel of itself", &[cancel(1, 1)], &["1:78:121"], Turn::Idle);
    check("abandon of nothing", &[abandon(1, 9), delete(2)], &["2:6b:0"], Turn::Idle);
}

#[test]
fn a_deep_filter_is_answered_and_the_connection_goes_on() {
    let mut filter = tlv(0x87, b"cn");
    for _ in 0..20 {
        filter = tlv(0xa2, &filter);
    }
    let mut connection = connection();
    let turn = connection.receive(&[search_with(1, "", &filter), delete(2)].concat());
    assert_eq!(answers(connection.output()), ["1:65:2", "2:6b:0"]);
    assert_eq!(turn, Turn::Idle);
}

#[test]
fn a_bind_is_a_barrier() {
    let mut connection = connection();
    let bytes = [search(1, "steps=9"), bind(2, "slow"), delete(3)].concat();
    assert_eq!(connection.receive(&bytes), Turn::Idle);
    assert_eq!(connection.service().log, ["end 1"], "what was under way is abandoned");
    assert_eq!(connection.pending(), 1);
    connection.complete(1, "bound");
    assert_eq!(answers(connection.output()), ["2:69:0", "3:6b:0"]);
}

#[test]
fn a_bind_that_cannot_be_read_is_a_barrier_too() {
    let mut connection = connection();
    let bad = request(2, 0x60, &[vec![2, 1, 3], tlv(4, b"cn=\xff"), tlv(0x80, b"x")]);
    assert_eq!(connection.receive(&[search(1, "steps=9"), bad, delete(3)].concat()), Turn::Idle);
    assert_eq!(connection.service().log, ["end 1", "bad bind"]);
    assert_eq!(answers(connection.output()), ["2:61:2", "3:6b:0"]);
}

#[test]
fn a_bind_that_is_answered_at_once_is_a_barrier_too() {
    let mut connection = connection();
    // One that waits for changes.
    connection.receive(&search(1, "follow=0"));
    let bytes = [search(2, "steps=9"), add(3), bind(4, "x"), delete(5)].concat();
    assert_eq!(connection.receive(&bytes), Turn::Idle);
    assert_eq!(connection.service().log, ["step 1", "end 2", "end 1"]);
    connection.complete(2, "added");
    assert_eq!(answers(connection.output()), ["4:61:0", "5:6b:0"]);
    assert_eq!(connection.pending(), 0);
}

fn start_tls(id: u8) -> Vec<u8> {
    request(id, 0x77, &[tlv(0x80, oid::START_TLS.as_bytes())])
}

#[test]
fn nothing_in_the_clear_survives_a_change_of_layers() {
    let check = |name: &str, input: &[Vec<u8>], expected: &[&str], turn: Turn, changing: bool| {
        let mut connection = connection();
        let found = connection.receive(&input.concat());
        assert_eq!(answers(connection.output()), expected, "{name}");
        assert_eq!((found, connection.is_changing_layers()), (turn, changing), "{name}");
        assert_eq!(connection.wants_input(), turn == Turn::Idle && !changing, "{name}");
    };
    let tls = "2:78:0";
    check("alone", &[start_tls(2)], &[tls], Turn::Idle, true);
    check("behind others", &[delete(1), start_tls(2)], &["1:6b:0", tls], Turn::Idle, true);
    check("a request behind it", &[start_tls(2), delete(3)], &[tls], Turn::Close, false);
    check("half a request behind it", &[start_tls(2), vec![0x30]], &[tls], Turn::Close, false);
    check(
        "while others are under way",
        &[add(1), start_tls(2), delete(3)],
        &[tls, "3:6b:0"],
        Turn::Idle,
        false,
    );
}

#[test]
fn a_bind_that_ends_elsewhere_may_change_layers() {
    for (behind, changing) in [(vec![], true), (delete(2), false)] {
        let mut connection = connection();
        connection.receive(&[bind(1, "slow"), behind].concat());
        connection.service_mut().layers = true;
        connection.complete(0, "bound");
        assert_eq!(answers(connection.output()), ["1:69:0"]);
        assert_eq!(connection.is_changing_layers(), changing);
        connection.service_mut().layers = false;
        connection.layers_changed();
        assert_eq!(connection.wants_input(), changing);
    }
}

#[test]
fn abandon_and_cancel_between_slices() {
    let mut connection = connection();
    connection.receive(&[search(1, "steps=50"), search(2, "steps=50")].concat());
    assert_eq!(connection.receive(&abandon(3, 1)), Turn::More);
    assert_eq!(connection.pending(), 1);
    assert_eq!(connection.receive(&cancel(4, 2)), Turn::Idle);
    assert_eq!(answers(connection.output()), ["2:65:118", "4:78:0"]);
}

#[test]
fn an_abandoned_write_is_done_and_not_answered() {
    let mut connection = connection();
    connection.receive(&[add(1), abandon(2, 1), cancel(3, 1)].concat());
    connection.complete(0, "added");
    assert_eq!(connection.service().log, ["abandon 1", "complete added"]);
    assert_eq!(answers(connection.output()), ["3:78:119"]);
}

#[test]
fn a_cancelled_write_is_too_late() {
    let mut connection = connection();
    connection.receive(&[add(1), cancel(2, 1)].concat());
    connection.complete(0, "added");
    assert_eq!(answers(connection.output()), ["2:78:120", "1:69:0"]);
}

#[test]
fn searches_take_turns() {
    let mut connection = connection();
    let mut turn = connection.receive(&[search(1, "steps=1"), search(2, "steps=1")].concat());
    while turn == Turn::More {
        turn = connection.resume();
    }
    assert_eq!(connection.service().log, ["step 1", "step 2", "step 1", "step 2"]);
}

#[test]
fn a_turn_ends_when_its_time_is_over() {
    for (nanos, steps_a_turn) in [(SEARCHES_NANOS / 2, [2, 2, 2]), (SEARCHES_NANOS, [1, 1, 1])] {
        let mut connection = Connection::new(Script { nanos, ..Script::default() });
        let searches = [search(1, "steps=9"), search(2, "steps=9"), search(3, "steps=9")].concat();
        let mut before = 0;
        let mut turn = connection.receive(&searches);
        for expected in steps_a_turn {
            assert_eq!((turn, connection.service().log.len() - before), (Turn::More, expected));
            before = connection.service().log.len();
            turn = connection.resume();
        }
        // Each has its turn.
        let log = connection.service().log.join(", ");
        assert!(log.starts_with("step 1, step 2, step 3, step 1"), "{log}");
    }
}

#[test]
fn a_client_that_does_not_read_stops_its_search_alone() {
    let mut connection = connection();
    connection.service_mut().slice = OUTPUT_HIGH;
    assert_eq!(connection.receive(&search(1, "steps=3")), Turn::Idle, "the output is full");
    assert!(!connection.wants_input());
    assert_eq!(connection.resume(), Turn::Idle);
    assert_eq!(connection.service().log.len(), 1);
    connection.sent(OUTPUT_HIGH / 2);
    assert_eq!(connection.resume(), Turn::Idle, "room for half of it: one more slice");
    assert_eq!(connection.service().log.len(), 2);
    connection.sent(2 * OUTPUT_HIGH);
    assert_eq!(connection.resume(), Turn::Idle);
    assert_eq!(connection.service().log.len(), 3);
}

#[test]
fn a_search_whose_client_does_not_read_is_paused() {
    let mut connection = connection();
    connection.service_mut().slice = OUTPUT_HIGH;
    let pauses = |connection: &Connection<Script>| connection.searches.short.front().map(|(_, s)| s.pauses);
    assert_eq!(connection.receive(&search(1, "steps=2")), Turn::Idle);
    assert_eq!(pauses(&connection), Some(1));
    connection.sent(OUTPUT_HIGH);
    connection.service_mut().slice = 1;
    assert_eq!(connection.resume(), Turn::More);
    assert_eq!(pauses(&connection), Some(1), "there is room");
}

/// Nothing is started while the requests that wait have so many bytes; what is under way is not harmed.
#[test]
fn the_bytes_of_requests_that_wait_are_limited() {
    let mut connection = connection();
    connection.service_mut().pdu = Some(30_000);
    let large = search_with(1, "follow=1", &tlv(0x87, &vec![b'a'; 12_000]));
    let input = [add(2), add(3)].concat();
    connection.receive(&large);
    assert_eq!(connection.resume(), Turn::Idle);
    connection.receive(&input);
    assert_eq!(connection.pending(), 3, "one that only waits for changes stands in nobody's way");
    let mut connection = self::connection();
    connection.service_mut().pdu = Some(30_000);
    connection.service_mut().slice = OUTPUT_HIGH / 4;
    let large = search_with(1, "steps=9", &tlv(0x87, &vec![b'a'; 12_000]));
    connection.receive(&[large, delete(2)].concat());
    assert_eq!(connection.pending(), 1);
    assert!(answers(&connection.output()[OUTPUT_HIGH / 4..]).is_empty());
    while connection.pending() > 0 {
        connection.sent(OUTPUT_HIGH);
        connection.resume();
    }
    connection.resume();
    assert!(answers(connection.output()).contains(&"2:6b:0".to_owned()));
}

/// The search that is elsewhere comes back.
fn come_back(connection: &mut Connection<Script>, serial: u64) -> Turn {
    let search = connection.service_mut().background.take().unwrap();
    connection.returned(serial, search)
}

#[test]
fn a_long_search_goes_elsewhere_and_others_are_answered_meanwhile() {
    let mut connection = connection();
    assert_eq!(connection.receive(&search(1, "long=2")), Turn::Idle, "nothing is to be done here");
    assert!(!connection.has_work());
    assert_eq!((connection.pending(), connection.wants_input()), (1, true));
    connection.receive(&[delete(2), add(3)].concat());
    assert_eq!(come_back(&mut connection, 0), Turn::Idle, "it goes again at once");
    connection.complete(2, "added");
    come_back(&mut connection, 0);
    assert_eq!(
        connection.service().log,
        ["step 1", "away 1", "back 1", "away 1", "complete added", "back 1"]
    );
    assert_eq!(answers(connection.output()), ["2:6b:0", "3:69:0", "1:65:0"]);
    assert_eq!(connection.pending(), 0);
}

#[test]
fn one_long_search_is_elsewhere_at_a_time() {
    let mut connection = connection();
    connection.receive(&[search(1, "long=2"), search(2, "long=1"), search(3, "steps=1")].concat());
    assert_eq!(connection.pending(), 3);
    // As many are pending as may be, but for the short one, which ends now.
    let mut turn = connection.receive(&[delete(4), add(5), delete(6)].concat());
    while turn == Turn::More {
        turn = connection.resume();
    }
    assert_eq!(answers(connection.output()), ["3:65:0", "4:6b:0"], "the last one waits");
    connection.service_mut().log.clear();
    for serial in [0, 1, 0] {
        come_back(&mut connection, serial);
    }
    let log = ["back 1", "away 2", "back 2", "away 1", "back 1"];
    assert_eq!(connection.service().log, log);
    assert_eq!(answers(connection.output()), ["3:65:0", "4:6b:0", "2:65:0", "6:6b:0", "1:65:0"]);
}

#[test]
fn a_search_that_cannot_go_elsewhere_goes_on_here() {
    let mut connection = connection();
    connection.service_mut().alone = true;
    assert_eq!(connection.receive(&search(1, "long=2")), Turn::More);
    while connection.resume() == Turn::More {}
    assert_eq!(connection.service().log, ["step 1"; 3]);
    assert_eq!(answers(connection.output()), ["1:65:0"]);
}

#[test]
fn a_search_does_not_go_elsewhere_while_its_client_does_not_read() {
    let mut connection = connection();
    connection.receive(&search(1, "long=2"));
    connection.service_mut().slice = OUTPUT_HIGH;
    assert_eq!(come_back(&mut connection, 0), Turn::Idle);
    assert!(connection.service().background.is_none());
    assert!(!connection.has_work() && !connection.wants_input());
    connection.sent(OUTPUT_HIGH);
    assert!(connection.has_work(), "no input is to come: nothing else would wake it");
    assert_eq!(connection.resume(), Turn::Idle);
    assert!(connection.service().background.is_some());
}

#[test]
fn what_is_elsewhere_can_be_ended_in_every_way() {
    let check = |name: &str, how: &[Vec<u8>], expected: &[&str], log: &[&str], turn: Turn| {
        // The first is elsewhere, the second long and here.
        let mut connection = connection();
        connection.receive(&[search(1, "long=5"), search(2, "long=5")].concat());
        connection.service_mut().log.clear();
        assert_eq!(connection.receive(&how.concat()), turn, "{name}");
        assert_eq!(connection.service().log, log, "{name}");
        connection.service_mut().slice = 7;
        let before = connection.output().len();
        let late = Search { left: 3, long: true, begun: true, follows: false, pauses: 0 };
        // Its number is the first's, for which no client waits any more.
        connection.returned(0, late);
        assert_eq!(connection.output().len(), before, "{name}: what comes too late is not answered");
        assert_eq!(answers(connection.output()), expected, "{name}");
    };
    let next = ["abandon 1", "end 1 elsewhere", "away 2"];
    check("abandoned", &[abandon(3, 1)], &[], &next, Turn::Idle);
    check("cancelled", &[cancel(3, 1)], &["1:65:118", "3:78:0"], &next[1..], Turn::Idle);
    check(
        "cancelled, then abandoned",
        &[cancel(3, 1), abandon(4, 1)],
        &["1:65:118", "3:78:0"],
        &["end 1 elsewhere", "abandon 1", "away 2"],
        Turn::Idle,
    );
    let both = ["abandon 1", "end 1 elsewhere", "abandon 2", "end 2"];
    check("both abandoned", &[abandon(3, 1), abandon(4, 2)], &[], &both, Turn::Idle);
    let all = ["end 2", "end 1 elsewhere"];
    check("a bind", &[bind(3, "slow")], &[], &all, Turn::Idle);
    check("unbind", &[unbind(3)], &[], &["unbind", "end 2", "end 1 elsewhere"], Turn::Close);
    let refused = ["refused: message id 0 is the server's own", "end 2", "end 1 elsewhere"];
    check("what is no LDAP", &[delete(0)], &["0:78:2"], &refused, Turn::Close);
}

#[test]
fn a_half_closed_connection_waits_for_what_is_elsewhere() {
    let mut connection = connection();
    connection.receive(&search(1, "long=2"));
    assert_eq!(connection.input_ended(), Turn::Idle);
    assert_eq!(come_back(&mut connection, 0), Turn::Idle);
    assert_eq!(come_back(&mut connection, 0), Turn::Close);
    assert_eq!(answers(connection.output()), ["1:65:0"]);
}

#[test]
fn who_follows_changes_is_told_that_the_server_stops() {
    let unavailable = || LdapResult::new(ResultCode::UNAVAILABLE);
    let mut waits = connection();
    waits.receive(&search(1, "follow=0"));
    assert_eq!((waits.stop(unavailable()), waits.pending()), (Turn::Close, 0));
    assert_eq!(answers(waits.output()), ["1:65:52"]);
    // One that has a slice to go when it happens, and one that a change has just woken.
    let mut at_work = connection();
    assert_eq!(at_work.receive(&search(1, "follow=3")), Turn::More);
    assert_eq!(at_work.stop(unavailable()), Turn::More);
    while at_work.resume() == Turn::More {}
    assert_eq!((at_work.resume(), answers(at_work.output())), (Turn::Close, vec!["1:65:52".to_owned()]));
    let mut woken = connection();
    woken.receive(&search(1, "follow=0"));
    woken.searches.wake(0);
    assert_eq!(woken.stop(unavailable()), Turn::Close);
    assert_eq!(answers(woken.output()), ["1:65:52"]);
}

#[test]
fn who_has_gone_is_told_of_no_changes() {
    let mut connection = connection();
    connection.receive(&[search(1, "follow=0"), search(2, "follow=2")].concat());
    assert_eq!(connection.input_ended(), Turn::More);
    while connection.resume() == Turn::More {}
    assert_eq!(connection.resume(), Turn::Close);
    assert_eq!(connection.service().log.iter().filter(|line| line.starts_with("end")).count(), 2);
    assert!(answers(connection.output()).is_empty());
}

#[test]
fn requests_kept_behind_a_full_output_start_when_it_is_sent() {
    let mut connection = connection();
    connection.service_mut().slice = OUTPUT_HIGH;
    connection.receive(&search(1, "steps=1"));
    assert_eq!(connection.receive(&[delete(2), delete(3)].concat()), Turn::Idle);
    assert!(!connection.has_work());
    connection.sent(OUTPUT_HIGH);
    assert!(connection.has_work(), "no input is to come: nothing else would wake it");
    while connection.resume() == Turn::More {}
    assert_eq!(answers(connection.output()), ["2:6b:0", "3:6b:0", "1:65:0"]);
}

#[test]
fn pending_requests_are_limited_and_the_rest_wait() {
    let mut connection = connection();
    let turn = connection.receive(&[add(1), add(2), add(3), add(4), delete(5)].concat());
    assert_eq!((turn, connection.pending()), (Turn::Idle, 3));
    connection.complete(1, "second");
    assert_eq!(connection.pending(), 3, "the fourth took its place");
    connection.complete(0, "first");
    assert_eq!(answers(connection.output()), ["2:69:0", "1:69:0", "5:6b:0"]);
}

#[test]
fn a_long_pipeline_yields() {
    let mut connection = connection();
    let many: Vec<u8> = (0..200).flat_map(|_| delete(1)).collect();
    assert_eq!(connection.receive(&many), Turn::More);
    assert_eq!(answers(connection.output()).len(), REQUESTS_PER_TURN);
    while connection.resume() == Turn::More {}
    assert_eq!(answers(connection.output()).len(), 200);
}

#[test]
fn large_requests_are_started_one_by_one_and_in_order() {
    let large = |id: u8| bind(id, &"x".repeat(LARGE_REQUEST));
    let input = [delete(1), large(2), delete(3), delete(4), large(5), large(6), delete(7)].concat();
    for piece in [input.len(), 20_000, 999] {
        let mut connection = Connection::new(Script { pdu: Some(1 << 20), ..Script::default() });
        let (mut started, mut turn) = (Vec::new(), Turn::Idle);
        for part in input.chunks(piece) {
            turn = connection.receive(part);
            while turn == Turn::More {
                if connection.has_large_next() {
                    // Nothing that is behind it has been answered.
                    started.push(answers(connection.output()).len());
                    connection.start_large();
                }
                turn = connection.resume();
            }
        }
        assert_eq!(turn, Turn::Idle, "pieces of {piece}");
        assert_eq!(started, [1, 4, 5], "pieces of {piece}");
        let expected = ["1:6b:0", "2:61:0", "3:6b:0", "4:6b:0", "5:61:0", "6:61:0", "7:6b:0"];
        assert_eq!(answers(connection.output()), expected, "pieces of {piece}");
        assert!(connection.input.is_empty() && connection.take_had_secrets());
    }
}

#[test]
fn requests_that_look_up_identities_start_elsewhere_where_these_may_be_on_other_machines() {
    let sasl = |id: u8| {
        let head = [0x30, 19, 2, 1, id, 0x60, 14, 2, 1, 3, 4, 0, 0xa3, 7, 4, 5];
        [&head[..], b"PLAIN"].concat()
    };
    // The number of a message may have zeros before it.
    let padded = |id: u8| [&[0x30, 31, 2, 13][..], &[0; 12], sasl(id).split_at(4).1].concat();
    let proxied = |id: u8| {
        let oid = b"2.16.840.1.113730.3.4.18";
        let head = [0x30, 36, 2, 1, id, 0x4a, 1, b'x', 0xa0, 28, 0x30, 26, 4, 24];
        [&head[..], oid].concat()
    };
    let input = [delete(1), sasl(2), delete(3), bind(4, "x"), proxied(5), delete(6), padded(7)].concat();
    for (looks_up, expected) in [
        (RemoteLookups::None, vec![]),
        (RemoteLookups::Identities, vec![1, 4, 6]),
        (RemoteLookups::Rules, (0..7).collect()),
    ] {
        let mut connection = Connection::new(Script { looks_up, ..Script::default() });
        let (mut started, mut turn) = (Vec::new(), connection.receive(&input));
        while turn == Turn::More {
            if connection.has_large_next() {
                assert!(connection.has_lookup_next());
                started.push(answers(connection.output()).len());
                connection.start_large();
            }
            turn = connection.resume();
        }
        assert_eq!(started, expected, "{looks_up:?}");
        assert_eq!(answers(connection.output()).len(), 7);
    }
}

#[test]
fn the_end_of_a_large_transaction_starts_elsewhere() {
    let mut end = Vec::new();
    let value = Some(&[0x30, 2, 4, 0][..]);
    larix_proto::client::extended(&mut end, MessageId(2), oid::END_TRANSACTION, value, &[]);
    let input = [delete(1), end, delete(3)].concat();
    for (kept, expected) in [(LARGE_REQUEST, vec![]), (LARGE_REQUEST + 1, vec![1])] {
        let mut connection = Connection::new(Script { kept, ..Script::default() });
        let (mut started, mut turn) = (Vec::new(), connection.receive(&input));
        while turn == Turn::More {
            if connection.has_large_next() {
                assert!(!connection.has_lookup_next());
                started.push(answers(connection.output()).len());
                connection.start_large();
            }
            turn = connection.resume();
        }
        assert_eq!(started, expected, "{kept} bytes");
        assert_eq!(answers(connection.output()).len(), 3);
    }
}

#[test]
fn a_large_request_waits_behind_a_bind() {
    let mut connection = Connection::new(Script { pdu: Some(1 << 20), ..Script::default() });
    let input = [bind(1, "slow"), bind(2, &"x".repeat(LARGE_REQUEST))].concat();
    assert_eq!(connection.receive(&input), Turn::Idle);
    assert!(!connection.has_large_next());
    connection.complete(0, "bind");
    assert!(connection.has_large_next());
}

#[test]
fn a_half_closed_connection_gets_its_answers() {
    let mut connection = connection();
    connection.receive(&[add(1), search(2, "steps=2")].concat());
    assert_eq!(connection.input_ended(), Turn::More);
    while connection.resume() == Turn::More {}
    assert_eq!(connection.complete(0, "added"), Turn::Close);
    assert_eq!(answers(connection.output()), ["2:65:0", "1:69:0"]);
    let mut idle = self::connection();
    idle.receive(&[0x30]);
    assert_eq!(idle.input_ended(), Turn::Close, "half a message is none");
}

#[test]
fn a_half_closed_connection_whose_output_is_full_gets_its_answers() {
    let mut connection = connection();
    // The search ends with what fills the output.
    connection.service_mut().slice = OUTPUT_HIGH - 1;
    connection.receive(&search(1, "steps=1"));
    while connection.resume() == Turn::More {}
    assert_eq!((connection.pending(), connection.has_room()), (0, false));
    assert_eq!(connection.receive(&[delete(2), delete(3)].concat()), Turn::Idle);
    assert_eq!(connection.input_ended(), Turn::Idle, "two requests have no answer");
    let all = connection.output().len();
    connection.sent(all);
    assert!(connection.has_work() && connection.is_half_closed());
    assert_eq!(connection.resume(), Turn::Close);
    assert_eq!(answers(connection.output()), ["2:6b:0", "3:6b:0"]);
}

#[test]
fn what_held_a_password_is_to_be_overwritten() {
    use larix_proto::client;
    let encoded = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        out
    };
    let one = MessageId(1);
    let extended = |name: &str| encoded(&|out| client::extended(out, one, name, Some(b"secret"), &[]));
    let compare = |name: &str| encoded(&|out| client::compare(out, one, "cn=x", name, b"secret", &[]));
    let bind = encoded(&|out| client::simple_bind(out, one, "cn=x", b"secret", &[]));
    // A name that is no text: the request is refused before it is looked at.
    let undecodable = bind.iter().map(|byte| if *byte == b'x' { 0xff } else { *byte }).collect();
    for (what, request, expected) in [
        ("a bind", bind, true),
        ("a bind that cannot be read", undecodable, true),
        ("a change of a password", extended(oid::PASSWORD_MODIFY), true),
        ("a password to be verified", extended(oid::VERIFY_CREDENTIALS), true),
        ("another operation", extended(oid::WHO_AM_I), false),
        ("a password to be compared", compare("userpassword"), true),
        ("the same by its number", compare("2.5.4.35"), true),
        ("another attribute", compare("cn"), false),
    ] {
        let mut connection = connection();
        connection.receive(&request);
        assert_eq!(connection.take_had_secrets(), expected, "{what}");
    }
}
