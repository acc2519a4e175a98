//! What a provider claims of its consumers: cookies cover what was sent, or need not be sent, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::{Arc, mpsc};

use larix_engine::access::Subject;
use larix_engine::audit;
use larix_engine::controls::{OperationKind, RequestControls};
use larix_engine::csn::Csn;
use larix_engine::database::ProviderSettings;
use larix_engine::log;
use larix_engine::order::CommitOrder;
use larix_engine::replica::{EntryPlace, ReplicaRules, ReplicatedBatch, ReplicatedChange};
use larix_engine::search::{Budget, SearchInput, SearchTask};
use larix_engine::tables::TABLES;
use larix_engine::time::{Clock as _, ManualClock, SeededRandom, Timestamp};
use larix_engine::write::{AttributeValues, Recording, WriterEnvironment};
use larix_engine::writer::Reconfiguration;
use larix_engine::{Database, DatabaseSettings, ServedDatabase, Suffix};
use larix_proto::control::{ControlValue as _, SyncMode, SyncRequest, SyncState};
use larix_proto::extended::SyncInfo;
use larix_proto::{
    ControlBuf, FilterBuf, Frame, Message, MessageId, Request, Response, ResultCode, Scope, client, frame,
    limits, oid,
};
use larix_replication::provider::{ConsumerRequest, RefreshQueue, SliceOutcome, Start, SyncSearch};
use larix_replication::{Content, Cookie};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::Store as _;
use larix_store::memory::MemoryStore;
use uuid::Uuid;

const SUFFIX: &str = "dc=example,dc=com";
const ROOT: &str = "cn=Manager,dc=example,dc=com";
const START: Timestamp = Timestamp(1_767_225_600_000_000);
/// The id of the server under test.
const OWN: u16 = 2;

/// So many seconds after the start, of that server.
fn csn(server_id: u16, number: i64) -> Csn {
    Csn { time: Timestamp(START.0 + number * 1_000_000), count: 0, server_id, modification: 0 }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// A slapd that takes changes itself.
    Slapd,
    /// A Larix that does.
    Larix,
    /// A copy of another kind.
    Copy,
    /// A Larix that takes no changes.
    Shadow,
    /// One that has a part of the entries.
    Part,
}

/// Of a server with this ID.
fn environment(clock: &Arc<ManualClock>, server_id: u16) -> WriterEnvironment {
    WriterEnvironment {
        clock: Arc::clone(clock) as _,
        random: Arc::new(SeededRandom::new(4)),
        order: Arc::new(CommitOrder::new(server_id)),
        default_referrals: Arc::from([]),
        auxiliary_needs_rule: false,
        index_watch: None,
    }
}

struct Site {
    served: Arc<ServedDatabase<MemoryStore>>,
    schema: Arc<Schema>,
    clock: Arc<ManualClock>,
}

impl Site {
    fn new() -> Self {
        Self::with(DatabaseSettings::default())
    }

    fn with(settings: DatabaseSettings) -> Self {
        let mut builder = SchemaBuilder::system();
        ["core", "cosine"].into_iter().for_each(|name| {
            builder.add_bundled(name).unwrap();
        });
        let schema = Arc::new(builder.build());
        let settings = DatabaseSettings {
            suffixes: vec![Suffix { normal: schema.parse_dn(SUFFIX).unwrap(), text: SUFFIX.to_owned() }],
            root_dn: Some(schema.parse_dn(ROOT).unwrap()),
            root_dn_text: ROOT.to_owned(),
            last_modified: true,
            log: true,
            provider: Some(ProviderSettings::default()),
            ..settings
        };
        let random = SeededRandom::new(3);
        let store = MemoryStore::new(&TABLES).unwrap();
        let database = Database::open(store, Arc::clone(&schema), settings, &random).unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let environment = environment(&clock, OWN);
        let served = Arc::new(ServedDatabase::start(Arc::new(database), environment).unwrap());
        let site = Self { served, schema, clock };
        site.put(1, "dc=example,dc=com", csn(OWN, 1));
        site
    }

    /// The server gets another ID while it runs.
    fn change_server_id(&self, server_id: u16) {
        let settings = DatabaseSettings::clone(&self.served.database().current_settings());
        let (schema, environment) = (Arc::clone(&self.schema), environment(&self.clock, server_id));
        self.served.reconfigure(Reconfiguration { schema, settings, environment });
    }

    fn batch(&self, batch: ReplicatedBatch) {
        let (sender, receiver) = mpsc::channel();
        self.served.replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
        assert!(receiver.recv().unwrap().result.is_success());
    }

    /// What somebody else tells.
    fn put(&self, number: u128, dn: &str, csn: Csn) {
        self.put_in((number, dn, csn), None, &[]);
    }

    /// What somebody else tells of an entry below this superior, whatever that is called here.
    fn put_below(&self, superior: u128, (number, dn, csn): (u128, &str, Csn)) {
        let name = dn.split(',').next().unwrap().to_owned();
        let place = EntryPlace { superior: Uuid::from_u128(superior), name };
        self.put_in((number, dn, csn), Some(place), &[]);
    }

    /// What is changed here: the contextCSN comes so far with it.
    fn change(&self, number: u128, dn: &str, csn: Csn) {
        self.put_in((number, dn, csn), None, &[csn]);
    }

    fn put_in(&self, (number, dn, csn): (u128, &str, Csn), place: Option<EntryPlace>, context_csns: &[Csn]) {
        let (name, own) = dn.split(',').next().unwrap().split_once('=').unwrap();
        let class = match (name, own) {
            ("dc", _) => "domain",
            (_, "subentry") => "subentry",
            _ => "device",
        };
        let value = |name: &str, value: &str| AttributeValues {
            description: name.to_owned(),
            values: vec![value.as_bytes().to_vec()],
        };
        let attributes = vec![
            value("objectClass", class),
            value("structuralObjectClass", class),
            value(name, own),
            value("entryCSN", &csn.to_string()),
        ];
        let put = ReplicatedChange::Put {
            entry_uuid: Uuid::from_u128(number),
            dn: dn.to_owned(),
            attributes,
            state: None,
            place,
        };
        let context_csns = context_csns.to_vec();
        self.batch(ReplicatedBatch { changes: vec![put], context_csns, ..ReplicatedBatch::default() });
    }

    fn delete(&self, number: u128, csn: Csn) {
        self.delete_in((number, csn), &[]);
    }

    /// What is deleted here.
    fn remove(&self, number: u128, csn: Csn) {
        self.delete_in((number, csn), &[csn]);
    }

    fn delete_in(&self, (number, csn): (u128, Csn), context_csns: &[Csn]) {
        let delete = ReplicatedChange::Delete { entry_uuid: Uuid::from_u128(number), csn: Some(csn) };
        let context_csns = context_csns.to_vec();
        self.batch(ReplicatedBatch { changes: vec![delete], context_csns, ..ReplicatedBatch::default() });
    }

    /// Says that everything up to there is here; `by_content`: by a pass over another server's content.
    fn raise(&self, csn: Csn, by_content: bool) {
        let rules = ReplicaRules { by_content, ..ReplicaRules::default() };
        self.batch(ReplicatedBatch { context_csns: vec![csn], rules, ..ReplicatedBatch::default() });
    }

    /// An access log says that it has not everything up to these, one by one; and that servers were retired.
    fn record(&self, lacks: &[Csn], retired: &[Csn]) {
        let suffix = self.schema.parse_dn(SUFFIX).unwrap();
        let mut recording = Recording::new(suffix, SUFFIX.to_owned());
        recording.marks.push(audit::lacks_row(&lacks.iter().copied().collect()));
        recording.retired = retired.to_vec();
        self.carry_out(recording);
    }

    /// An access log goes past a change that it does not have.
    fn leave_out(&self, csn: Csn) {
        let suffix = self.schema.parse_dn(SUFFIX).unwrap();
        let mut recording = Recording::new(suffix, SUFFIX.to_owned());
        let csns = [csn].into_iter().collect();
        recording.marks.extend([audit::lacks_row(&csns), audit::left_out_row(&csns)]);
        recording.context_csns = vec![csn];
        self.carry_out(recording);
    }

    fn carry_out(&self, recording: Recording) {
        let (sender, receiver) = mpsc::channel();
        self.served.record(recording, Box::new(move |outcome| sender.send(outcome).unwrap()));
        assert!(receiver.recv().unwrap().result.is_success());
    }

    fn ask(&self, who: Who, known: &[Csn]) -> Search<'_> {
        self.ask_for(SUFFIX, who, known, RefreshQueue::default())
    }

    /// For what is at and below this name.
    fn ask_for(&self, base: &str, who: Who, known: &[Csn], queue: RefreshQueue) -> Search<'_> {
        let sid = matches!(who, Who::Slapd | Who::Larix).then_some(1);
        let cookie = Cookie { rid: 1, sid, csns: known.to_vec(), ..Cookie::default() }.to_string();
        let sync = SyncRequest {
            mode: SyncMode::RefreshAndPersist,
            cookie: Some(cookie.as_bytes()),
            reload_hint: false,
        };
        let mut controls = vec![sync.to_control(true)];
        if !matches!(who, Who::Slapd | Who::Copy) {
            controls.push(ControlBuf { oid: oid::SYNC_PEER.into(), critical: false, value: None });
        }
        let any_entry = !matches!(who, Who::Part);
        let filter = if any_entry {
            FilterBuf::every_entry()
        } else {
            FilterBuf::parse("(objectClass=device)").unwrap()
        };
        let mut request = Vec::new();
        let search = client::Search {
            attributes: &["*", "+"],
            ..client::Search::new(base, Scope::Subtree, filter.as_filter())
        };
        client::search(&mut request, MessageId(2), &search, &controls);
        let message = Message::decode(&request).unwrap();
        let Request::Search(search) = message.request else { panic!("no search") };
        let controls = RequestControls::parse(message.controls, OperationKind::Search).unwrap();
        let database = self.served.database();
        let snapshot = database.store().snapshot().unwrap();
        let view = database.view(&snapshot).unwrap();
        let input = SearchInput {
            message: message.id,
            base: self.schema.parse_dn(search.base).unwrap(),
            request: search,
            controls: controls.clone(),
            subject: Arc::new(Subject::default().bound_as(self.schema.parse_dn(ROOT).unwrap(), ROOT)),
            limits: None,
            default_referrals: None,
            cookie_secret: *database.cookie_secret(),
            now: self.clock.monotonic(),
        };
        let task = SearchTask::new(&view, input).map_err(|(result, _)| result).unwrap();
        let asked = ConsumerRequest::new(controls.sync.as_ref().unwrap());
        let parts = vec![(Arc::clone(&self.served), task)];
        Search {
            site: self,
            search: SyncSearch::new(Start {
                asked,
                parts,
                any_entry,
                values: false,
                states: false,
                elsewhere: false,
                queue,
            }),
        }
    }
}

struct Search<'s> {
    site: &'s Site,
    search: SyncSearch<MemoryStore>,
}

impl Search<'_> {
    /// The messages that are sent until there is nothing left to send, a word or two each: the kind, the entry, `=` and the
    /// cookie's CSNs,
    /// `-` and the CSN of the delete.
    fn messages(&mut self) -> Vec<String> {
        let (messages, ended) = self.messages_and_end();
        assert_eq!(ended, None);
        messages
    }

    /// The same, and why it has ended, if it has.
    fn messages_and_end(&mut self) -> (Vec<String>, Option<ResultCode>) {
        let (out, ended) = self.sent();
        (read(&out), ended)
    }

    /// The cookie with which the refresh ends.
    fn refreshed(&mut self) -> Cookie {
        let (out, _) = self.sent();
        let mut rest = &out[..];
        while let Frame::Complete { len } = frame(rest, limits::PDU_CEILING).unwrap() {
            let (pdu, after) = rest.split_at(len);
            rest = after;
            let Response::Intermediate { value, .. } = Response::decode_message(pdu).unwrap().response else {
                continue;
            };
            if let SyncInfo::RefreshDelete { cookie: Some(cookie), .. }
            | SyncInfo::RefreshPresent { cookie: Some(cookie), .. } = SyncInfo::decode(value).unwrap()
            {
                return Cookie::parse(std::str::from_utf8(cookie).unwrap()).unwrap();
            }
        }
        panic!("the refresh has not ended");
    }

    fn sent(&mut self) -> (Vec<u8>, Option<ResultCode>) {
        let mut out = Vec::new();
        let ended = loop {
            let clock = &*self.site.clock;
            let budget = Budget { candidates: 100, nanos: u64::MAX, bytes: 1 << 20, clock };
            match self.search.step(budget, &mut out) {
                SliceOutcome::More => {}
                SliceOutcome::Waiting | SliceOutcome::Elsewhere => break None,
                SliceOutcome::Done(result, _) => break Some(result.code),
            }
        };
        (out, ended)
    }

    /// The first messages, as few as there can be.
    fn first_messages(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        while out.is_empty() {
            let clock = &*self.site.clock;
            let budget = Budget { candidates: 1, nanos: u64::MAX, bytes: 1 << 20, clock };
            assert!(matches!(self.search.step(budget, &mut out), SliceOutcome::More));
        }
        read(&out)
    }
}

fn read(mut rest: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    while let Frame::Complete { len } = frame(rest, limits::PDU_CEILING).unwrap() {
        let (pdu, after) = rest.split_at(len);
        messages.push(short(pdu));
        rest = after;
    }
    messages
}

fn short(pdu: &[u8]) -> String {
    let message = Response::decode_message(pdu).unwrap();
    match message.response {
        Response::Entry(_) => {
            let control = message.controls.iter().find(|control| control.oid == SyncState::OID).unwrap();
            let state = SyncState::decode(control.value).unwrap();
            let number = Uuid::from_bytes(state.entry_uuid).as_u128();
            format!("{:?} {number}{}", state.state, vector(state.cookie)).to_lowercase()
        }
        Response::Intermediate { value, .. } => match SyncInfo::decode(value).unwrap() {
            SyncInfo::NewCookie(cookie) => format!("cookie{}", vector(Some(cookie))),
            SyncInfo::RefreshDelete { cookie, .. } => format!("refreshed{}", vector(cookie)),
            SyncInfo::RefreshPresent { cookie, .. } => format!("by content{}", vector(cookie)),
            SyncInfo::IdSet { cookie, deletes, uuids } => {
                let mut numbers: Vec<_> =
                    uuids.iter().map(|uuid| Uuid::from_bytes(*uuid).as_u128().to_string()).collect();
                numbers.sort();
                let what = if deletes { "gone" } else { "present" };
                format!("{what} {}{}", numbers.join(","), vector(cookie))
            }
        },
        other => panic!("{other:?}"),
    }
}

fn vector(cookie: Option<&[u8]>) -> String {
    let Some(cookie) = cookie else { return String::new() };
    let cookie = Cookie::parse(std::str::from_utf8(cookie).unwrap()).unwrap();
    let number = |csn: &Csn| format!("{}:{}", csn.server_id, (csn.time.0 - START.0) / 1_000_000);
    let csns: Vec<String> = cookie.csns.iter().map(number).collect();
    let csns = if csns.is_empty() { String::new() } else { format!(" ={}", csns.join(";")) };
    let delete = cookie.delete.map(|csn| format!(" -{}", number(&csn))).unwrap_or_default();
    let deletes = if cookie.deletes_told { " deletes told" } else { "" };
    let content = if cookie.content == Some(Content::Elsewhere) { " elsewhere" } else { "" };
    format!("{csns}{delete}{deletes}{content}")
}

#[test]
fn no_cookie_goes_beyond_a_change_that_was_passed_over() {
    for who in [Who::Slapd, Who::Larix, Who::Copy] {
        let site = Site::new();
        site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
        site.raise(csn(OWN, 2), false);
        let mut search = site.ask(who, &[csn(OWN, 2)]);
        assert_eq!(search.messages(), ["refreshed"]);
        site.change(5, "cn=e,dc=example,dc=com", csn(OWN, 5));
        site.change(6, "cn=f,dc=example,dc=com", csn(OWN, 7));
        site.change(5, "cn=e,dc=example,dc=com", csn(OWN, 9));
        site.change(7, "cn=g,dc=example,dc=com", csn(OWN, 11));
        assert_eq!(search.messages(), ["add 6", "modify 5 =2:9", "add 7 =2:11"], "{who:?}");
        // An entry that is sent on its own comes with a cookie.
        site.change(5, "cn=e,dc=example,dc=com", csn(OWN, 12));
        assert_eq!(search.messages(), ["modify 5 =2:12"], "{who:?}");
    }
}

/// A renamed container is sent before an older entry below it: a consumer whose cookie covers everything up to the
/// rename would pass over that entry.
#[test]
fn what_others_told_out_of_order_is_claimed_at_its_end() {
    for who in [Who::Slapd, Who::Larix, Who::Copy] {
        for shadow in [false, true] {
            // Of a shadow, the first server's id, and of one that was restored, its own.
            let site = Site::with(DatabaseSettings { shadow, ..DatabaseSettings::default() });
            site.raise(csn(OWN, 1), false);
            let mut search = site.ask(who, &[csn(OWN, 1)]);
            assert_eq!(search.messages(), ["refreshed"]);
            site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 7));
            assert_eq!(search.messages(), ["add 5"], "{who:?}");
            site.put(6, "cn=f,cn=e,dc=example,dc=com", csn(OWN, 5));
            assert_eq!(search.messages(), ["add 6"], "{who:?}");
            site.raise(csn(OWN, 7), false);
            assert_eq!(search.messages(), ["cookie =2:7"], "{who:?}");
            // All of it at once.
            site.put(7, "cn=g,dc=example,dc=com", csn(OWN, 11));
            site.put(8, "cn=h,cn=g,dc=example,dc=com", csn(OWN, 9));
            site.raise(csn(OWN, 11), false);
            let last = if shadow { "add 8" } else { "add 8 =2:9" };
            assert_eq!(search.messages(), ["add 7", last, "cookie =2:11"], "{who:?}");
        }
    }
}

/// A slapd that is sent an entry below a name which it does not know makes a glue entry there, and then renames nothing to that name.
#[test]
fn a_superior_that_is_renamed_during_a_refresh_goes_first() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        site.change(2, "cn=box,dc=example,dc=com", csn(OWN, 2));
        site.change(3, "cn=a,dc=example,dc=com", csn(OWN, 3));
        site.change(4, "cn=b,cn=box,dc=example,dc=com", csn(OWN, 4));
        let mut search = site.ask(who, &[csn(OWN, 2)]);
        assert_eq!(search.first_messages(), ["add 3"], "{who:?}");
        site.change(2, "cn=crate,dc=example,dc=com", csn(OWN, 5));
        let messages = search.messages();
        assert_eq!(messages[..3], ["add 2", "add 4", "refreshed =2:4"], "{who:?}: {messages:?}");
    }
}

/// The same in a pass over the content.
#[test]
fn a_superior_that_is_renamed_during_a_pass_goes_first() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        site.change(2, "cn=box,dc=example,dc=com", csn(OWN, 2));
        site.change(3, "cn=b,cn=box,dc=example,dc=com", csn(OWN, 3));
        let mut search = site.ask(who, &[]);
        let mut before: Vec<String> = Vec::new();
        while before.last().is_none_or(|last| last != "add 2") {
            before.extend(search.first_messages());
        }
        site.change(2, "cn=crate,dc=example,dc=com", csn(OWN, 4));
        let messages = search.messages();
        assert_eq!(messages[..3], ["add 1", "add 2", "add 3"], "{who:?}: {messages:?}");
    }
}

/// One that came into being meanwhile, too, where an entry was moved below it.
#[test]
fn a_new_superior_of_a_refresh_goes_first() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        site.change(2, "cn=a,dc=example,dc=com", csn(OWN, 2));
        site.change(3, "cn=b,dc=example,dc=com", csn(OWN, 3));
        site.change(4, "cn=c,dc=example,dc=com", csn(OWN, 4));
        let mut search = site.ask(who, &[csn(OWN, 2)]);
        assert_eq!(search.first_messages(), ["add 3"], "{who:?}");
        site.change(5, "cn=new,dc=example,dc=com", csn(OWN, 5));
        site.change(6, "cn=other,dc=example,dc=com", csn(OWN, 6));
        site.change(4, "cn=c,cn=new,dc=example,dc=com", csn(OWN, 7));
        let messages = search.messages();
        assert_eq!(messages[..3], ["add 5", "add 4", "refreshed =2:4"], "{who:?}: {messages:?}");
    }
}

/// What is sent out of its turn is the consumer's: it also gets the delete.
#[test]
fn what_a_pass_sent_early_is_deleted_behind_it() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        site.change(2, "cn=top,dc=example,dc=com", csn(OWN, 2));
        site.change(3, "cn=a,cn=top,dc=example,dc=com", csn(OWN, 3));
        site.change(5, "cn=e,cn=top,dc=example,dc=com", csn(OWN, 4));
        site.change(4, "cn=b,cn=top,dc=example,dc=com", csn(OWN, 5));
        let mut search = site.ask_for("cn=top,dc=example,dc=com", who, &[], RefreshQueue::default());
        assert_eq!(search.first_messages(), ["add 2"], "{who:?}");
        site.change(4, "cn=c,cn=top,dc=example,dc=com", csn(OWN, 6));
        let early = search.first_messages();
        assert_eq!(early[..2], ["add 2", "add 4"], "{who:?}: {early:?}");
        site.remove(4, csn(OWN, 7));
        let messages = search.messages();
        assert!(messages.iter().any(|message| message.starts_with("delete 4")), "{who:?}: {messages:?}");
    }
}

/// A name that another one has for the consumer still is free when that was told to leave it: in the persist stage.
#[test]
fn a_name_that_was_left_during_a_pass_is_not_taken_early() {
    for who in [Who::Slapd, Who::Copy] {
        for is_swapped in [false, true] {
            let site = Site::new();
            let (a, b) = ("cn=a,dc=example,dc=com", "cn=b,dc=example,dc=com");
            site.change(2, a, csn(OWN, 2));
            site.change(3, b, csn(OWN, 3));
            let mut search = site.ask(who, &[]);
            let mut before: Vec<String> = Vec::new();
            while before.last().is_none_or(|last| last != "add 3") {
                before.extend(search.first_messages());
            }
            if is_swapped {
                site.change(2, "cn=c,dc=example,dc=com", csn(OWN, 4));
                site.change(3, a, csn(OWN, 5));
                site.change(2, b, csn(OWN, 6));
            } else {
                site.remove(2, csn(OWN, 4));
                site.change(3, a, csn(OWN, 5));
            }
            let messages = search.messages();
            let place = |begin: &str| messages.iter().position(|message| message.starts_with(begin));
            assert_eq!(place("by content"), Some(0), "{who:?}, {is_swapped}: {messages:?}");
            // One that comes back is gone only where it has not come back from another provider.
            let freed = place(if is_swapped { "gone 2 =2:3" } else { "delete 2" });
            let taken = place("modify 3");
            assert!(freed.is_some() && freed < taken, "{who:?}, {is_swapped}: {messages:?}");
        }
    }
}

#[test]
fn a_slapd_hears_of_a_delete_whatever_others_told_it() {
    for (who, expected) in [
        (Who::Slapd, &["delete 5 =2:5", "delete 5"] as &[&str]),
        (Who::Larix, &["delete 5 =2:5 -2:5"]),
        (Who::Copy, &["delete 5 =2:5"]),
    ] {
        let site = Site::new();
        site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
        site.raise(csn(OWN, 2), false);
        let mut search = site.ask(who, &[csn(OWN, 2)]);
        assert_eq!(search.messages(), ["refreshed"]);
        site.remove(5, csn(OWN, 5));
        assert_eq!(search.messages(), expected, "{who:?}");
    }
}

#[test]
fn a_delete_in_a_refresh_comes_behind_everything_that_it_claims() {
    for who in [Who::Slapd, Who::Larix] {
        let site = Site::new();
        site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
        site.raise(csn(OWN, 2), false);
        site.put(6, "cn=f,dc=example,dc=com", csn(OWN, 4));
        site.delete(5, csn(OWN, 6));
        site.put(6, "cn=f,dc=example,dc=com", csn(OWN, 8));
        site.put(7, "cn=g,dc=example,dc=com", csn(OWN, 9));
        site.raise(csn(OWN, 9), false);
        let expected = ["add 6", "gone 5 =2:6 -2:6", "add 7", "refreshed =2:9"];
        assert_eq!(site.ask(who, &[csn(OWN, 2)]).messages(), expected, "{who:?}");
    }
}

#[test]
fn what_is_ahead_of_the_context_csn_is_claimed_of_nobody() {
    for (who, expected) in [
        // An entry of the other server may come yet that is older.
        (Who::Slapd, &["add 6", "delete 5", "refreshed =2:3;3:3"] as &[&str]),
        (Who::Larix, &["add 6", "gone 5 =2:3;3:3 -3:8", "refreshed =2:3;3:3"]),
    ] {
        let site = Site::new();
        site.put(5, "cn=e,dc=example,dc=com", csn(3, 3));
        site.raise(csn(OWN, 3), false);
        site.raise(csn(3, 3), false);
        site.put(6, "cn=f,dc=example,dc=com", csn(3, 6));
        site.delete(5, csn(3, 8));
        let messages = site.ask(who, &[csn(OWN, 3), csn(3, 3)]).messages();
        assert_eq!(messages, expected, "{who:?}");
    }
}

/// What a server deleted before its content was gone through here never came here: the log does not tell of it.
#[test]
fn who_may_have_what_never_came_here_goes_through_the_content() {
    let site = Site::new();
    site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
    site.raise(csn(OWN, 2), false);
    site.raise(csn(3, 3), false);
    let before = [csn(OWN, 2), csn(3, 3)];
    let mut follow: Vec<(Who, Search<'_>)> =
        [Who::Slapd, Who::Larix, Who::Copy].into_iter().map(|who| (who, site.ask(who, &before))).collect();
    follow.iter_mut().for_each(|(who, search)| assert_eq!(search.messages(), ["refreshed"], "{who:?}"));
    site.raise(csn(3, 9), true);
    site.change(6, "cn=f,dc=example,dc=com", csn(OWN, 11));
    for (who, search) in &mut follow {
        let expected: &[&str] = match who {
            Who::Copy | Who::Shadow | Who::Part => &["add 6 =2:11", "cookie =2:11;3:9"],
            Who::Slapd | Who::Larix => &["add 6 =2:11"],
        };
        assert_eq!(search.messages(), expected, "{who:?}");
    }
    let check = |who: Who, known: &[Csn], expected: &[&str]| {
        assert_eq!(site.ask(who, known).messages(), expected, "{who:?} {known:?}");
    };
    let all = ["add 6", "present 1,5", "by content =2:11;3:9"];
    for who in [Who::Slapd, Who::Larix] {
        check(who, &before, &all);
        check(who, &[csn(OWN, 2), csn(3, 8)], &all);
        check(who, &[csn(OWN, 2), csn(3, 9)], &["add 6", "refreshed =2:11;3:9"]);
    }
    check(Who::Copy, &before, &["add 6", "refreshed =2:11;3:9"]);
}

/// Content does not tell what is not in it: who goes through that of another provider behind it, which has not heard of the
/// delete, would take the entry from there.
#[test]
fn who_may_hear_of_others_too_is_told_deletes_behind_the_content() {
    let site = Site::new();
    site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
    site.change(6, "cn=f,dc=example,dc=com", csn(OWN, 3));
    site.remove(5, csn(OWN, 5));
    let by_content = "by content =2:5";
    for who in [Who::Larix, Who::Shadow] {
        let expected = ["add 1", "add 6", "gone 5 -2:5", "by content =2:5 deletes told"];
        assert_eq!(site.ask(who, &[]).messages(), expected, "{who:?}");
    }
    for who in [Who::Slapd, Who::Copy] {
        assert_eq!(site.ask(who, &[]).messages(), ["add 1", "add 6", by_content], "{who:?}");
    }
    assert_eq!(site.ask(Who::Part, &[]).messages(), ["add 6", by_content]);
}

#[test]
fn a_log_leads_on_who_knows_what_it_lacks() {
    let site = Site::new();
    site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 4));
    site.raise(csn(OWN, 4), false);
    site.raise(csn(3, 5), false);
    site.record(&[csn(3, 5)], &[]);
    let check = |who: Who, known: &[Csn], ended: Option<ResultCode>| {
        let (_, found) = site.ask(who, known).messages_and_end();
        assert_eq!(found, ended, "{who:?} {known:?}");
    };
    for who in [Who::Slapd, Who::Larix, Who::Copy] {
        // Nothing is lacking of the server that is not named, however little is known of it.
        check(who, &[csn(OWN, 1), csn(3, 5)], None);
        check(who, &[csn(3, 5)], None);
        check(who, &[csn(OWN, 4), csn(3, 4)], Some(ResultCode::SYNC_REFRESH_REQUIRED));
        check(who, &[csn(OWN, 4)], Some(ResultCode::SYNC_REFRESH_REQUIRED));
    }
    // Nobody has to know of a server that is no more; of one that got its id he has.
    site.record(&[csn(3, 5)], &[csn(3, 5)]);
    assert_eq!(
        log::context_csns(&site.served.database().store().snapshot().unwrap()).unwrap(),
        [csn(OWN, 4)]
    );
    check(Who::Larix, &[csn(OWN, 4)], None);
    site.raise(csn(3, 6), false);
    site.record(&[csn(3, 6)], &[]);
    check(Who::Larix, &[csn(OWN, 4)], Some(ResultCode::SYNC_REFRESH_REQUIRED));
}

#[test]
fn who_follows_several_logs_is_sent_away_when_one_lacks_more_than_he_knows() {
    for (who, known, ended) in [
        (Who::Larix, &[csn(OWN, 1), csn(3, 5)] as &[Csn], Some(ResultCode::UNAVAILABLE)),
        (Who::Slapd, &[csn(OWN, 1), csn(3, 5)], Some(ResultCode::UNAVAILABLE)),
        (Who::Larix, &[csn(OWN, 1), csn(3, 7)], None),
        // He hears of everything from here.
        (Who::Copy, &[csn(OWN, 1), csn(3, 5)], None),
    ] {
        let site = Site::new();
        site.raise(csn(OWN, 1), false);
        site.raise(csn(3, 5), false);
        site.record(&[csn(3, 5)], &[]);
        let mut search = site.ask(who, known);
        search.messages();
        site.record(&[csn(3, 7)], &[]);
        site.put(6, "cn=f,dc=example,dc=com", csn(OWN, 9));
        assert_eq!(search.messages_and_end().1, ended, "{who:?} {known:?}");
    }
}

#[test]
fn who_follows_a_log_is_sent_to_the_entries_when_it_leaves_out_a_change() {
    for who in [Who::Slapd, Who::Larix, Who::Copy] {
        let site = Site::new();
        site.put(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
        site.raise(csn(OWN, 2), false);
        let mut search = site.ask(who, &[csn(OWN, 2)]);
        assert_eq!(search.messages(), ["refreshed"], "{who:?}");
        site.leave_out(csn(OWN, 5));
        site.change(6, "cn=f,dc=example,dc=com", csn(OWN, 7));
        let ended = search.messages_and_end();
        assert_eq!(ended, (Vec::new(), Some(ResultCode::SYNC_REFRESH_REQUIRED)), "{who:?}");
        // It is sent there once, and what comes then is told as ever.
        let known = |number| [csn(OWN, number)];
        let again = site.ask(who, &known(2)).messages_and_end().1;
        assert_eq!(again, Some(ResultCode::SYNC_REFRESH_REQUIRED), "{who:?}");
        let mut search = site.ask(who, &known(7));
        assert_eq!(search.messages(), ["refreshed"], "{who:?}");
        site.change(7, "cn=g,dc=example,dc=com", csn(OWN, 9));
        assert_eq!(search.messages(), ["add 7 =2:9"], "{who:?}");
    }
}

/// The log is read by one server ID, and its sequences go on when that changes.
#[test]
fn a_server_that_gets_another_id_leads_its_consumers_on() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        site.change(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
        let known = [csn(OWN, 2)];
        let mut search = site.ask(who, &known);
        assert_eq!(search.messages(), ["refreshed"], "{who:?}");
        site.change_server_id(4);
        assert_eq!(search.messages_and_end().1, Some(ResultCode::UNAVAILABLE), "{who:?}");
        // The first change under the new ID is no reason to ask for everything.
        let mut search = site.ask(who, &known);
        assert_eq!(search.messages(), ["present 1,5", "by content =2:2"], "{who:?}");
        site.change(6, "cn=f,dc=example,dc=com", csn(4, 5));
        assert_eq!(search.messages(), ["add 6 =4:5"], "{who:?}");
        // What was logged under that ID reaches who comes when the server has its old one again.
        site.change_server_id(OWN);
        let expected = ["add 6", "present 1,5", "by content =2:2;4:5"];
        assert_eq!(site.ask(who, &known).messages(), expected, "{who:?}");
        site.change(7, "cn=g,dc=example,dc=com", csn(OWN, 7));
        let expected = ["add 7", "refreshed =2:7;4:5"];
        assert_eq!(site.ask(who, &[csn(OWN, 2), csn(4, 5)]).messages(), expected, "{who:?}");
    }
}

/// A subtree that comes into a consumer's part of the tree, or leaves it, is more than one entry: who is gone before the last of them
/// was sent must not say that it has the change.
#[test]
fn a_moved_subtree_is_claimed_behind_its_last_entry() {
    let names = |top: &str| [top.to_owned(), format!("cn=g,{top}"), format!("cn=h,{top}")];
    let (outside, inside) = ("cn=f,dc=example,dc=com", "cn=f,cn=e,dc=example,dc=com");
    let place = |site: &Site, top: &str, csn: Csn| {
        let [top, first, second] = names(top);
        site.change(6, &top, csn);
        (first, second)
    };
    for who in [Who::Slapd, Who::Larix, Who::Shadow, Who::Copy] {
        let site = Site::new();
        site.change(5, "cn=e,dc=example,dc=com", csn(OWN, 2));
        let (first, second) = place(&site, outside, csn(OWN, 3));
        site.change(7, &first, csn(OWN, 4));
        site.change(8, &second, csn(OWN, 5));
        let known = [csn(OWN, 5)];
        let ask = |moved_max: usize| {
            let queue = RefreshQueue::default().moving(moved_max);
            let mut search = site.ask_for("cn=e,dc=example,dc=com", who, &known, queue);
            assert_eq!(search.messages(), ["refreshed"], "{who:?}");
            search
        };
        let (mut search, mut of_few) = (ask(4), ask(3));
        place(&site, inside, csn(OWN, 7));
        // A Larix that takes no changes itself takes what has come whatever it knows of the CSN.
        let come = |number: u32| match who {
            Who::Shadow => format!("add {number} elsewhere"),
            _ => format!("add {number}"),
        };
        assert_eq!(search.messages(), ["modify 6", &come(7), &come(8), "cookie =2:7"], "{who:?}");
        // More than is sent one by one: nothing of it is claimed, nor sent in part.
        let ended = of_few.messages_and_end();
        assert_eq!(ended, (Vec::new(), Some(ResultCode::SYNC_REFRESH_REQUIRED)), "{who:?}");
        // Who comes back goes through the content. Of what came with the moved entry it knows the CSNs, and not the entries.
        let queue = RefreshQueue::default().moving(3);
        let mut again = site.ask_for("cn=e,dc=example,dc=com", who, &known, queue).messages();
        let end = again.pop().unwrap_or_default();
        assert!(end.starts_with("by content =2:7"), "{who:?}: {end}");
        again.sort();
        assert_eq!(again, ["add 6", &come(7), &come(8), "present 5"], "{who:?}");
        // And one that the log leads on is sent them, too.
        let usual = RefreshQueue::default();
        let mut log = site.ask_for("cn=e,dc=example,dc=com", who, &known, usual).messages();
        assert_eq!(log.pop().as_deref(), Some("refreshed =2:7"), "{who:?}");
        log.sort();
        assert!(log[0].starts_with("add 6") && log[1..] == [come(7), come(8)], "{who:?}: {log:?}");
        place(&site, outside, csn(OWN, 9));
        let mut left = search.messages();
        assert_eq!(left.pop().as_deref(), Some("cookie =2:9"), "{who:?}");
        assert!(left.len() == 3 && left.iter().all(|message| message.starts_with("delete")), "{left:?}");
        assert!(!left.iter().any(|message| message.contains('=')), "{left:?}");
    }
}

/// A consumer may have come with a newer version of an entry from another provider, and takes what is sent so for what it had.
#[test]
fn who_has_heard_more_than_the_provider_judges_moved_entries_by_their_csns() {
    let base = "cn=e,dc=example,dc=com";
    for (others, expected) in [(3, "add 6 elsewhere"), (8, "add 6")] {
        let site = Site::new();
        site.change(5, base, csn(OWN, 2));
        site.change(7, "cn=t,dc=example,dc=com", csn(OWN, 3));
        site.put(6, "cn=f,cn=t,dc=example,dc=com", csn(3, 3));
        site.raise(csn(3, 3), false);
        let known = [csn(OWN, 3), csn(3, others)];
        let mut search = site.ask_for(base, Who::Shadow, &known, RefreshQueue::default());
        assert_eq!(search.messages(), ["refreshed"], "{others}");
        site.change(7, "cn=t,cn=e,dc=example,dc=com", csn(OWN, 7));
        let sent = search.messages();
        assert!(sent.iter().any(|message| message == expected), "{others}: {sent:?}");
    }
}

/// An entry waits below glue for its superior, which has another name here, and then goes there: its own record says the old name, and no
/// other server tells of the move.
#[test]
fn what_a_server_moves_by_itself_comes_into_a_part() {
    let (base, outside) = ("cn=e,dc=example,dc=com", "cn=f,cn=t,dc=example,dc=com");
    let site = Site::new();
    site.change(5, base, csn(OWN, 2));
    site.raise(csn(3, 2), false);
    let ask = |number| {
        let known = [csn(OWN, 2), csn(3, number)];
        site.ask_for(base, Who::Shadow, &known, RefreshQueue::default())
    };
    let mut search = ask(2);
    assert_eq!(search.messages(), ["refreshed"]);
    site.put_below(7, (6, outside, csn(3, 3)));
    site.put(7, "cn=t,cn=e,dc=example,dc=com", csn(3, 4));
    site.raise(csn(3, 4), false);
    let is_told = |messages: &[String]| messages.iter().any(|message| message.starts_with("add 6"));
    let messages = search.messages();
    assert!(is_told(&messages), "{messages:?}");
    // One comes back that knows the CSN of the entry.
    let messages = ask(3).messages();
    assert!(is_told(&messages), "{messages:?}");
}

/// An entry that was set aside here has its name at a slapd still, which refuses another one of that name each time that it connects.
#[test]
fn who_was_set_aside_goes_before_who_has_the_name() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        site.change(5, "cn=a,dc=example,dc=com", csn(OWN, 2));
        site.change(6, "cn=b,dc=example,dc=com", csn(OWN, 3));
        site.put(6, "cn=a,dc=example,dc=com", csn(3, 5));
        // The decision about the name has a CSN behind that.
        site.raise(csn(3, 5), false);
        let messages = site.ask(who, &[csn(OWN, 3)]).messages();
        let place = |begin: &str| messages.iter().position(|message| message.starts_with(begin));
        let (aside, named) = (place("add 5"), place("add 6"));
        assert!(aside.is_some() && aside < named, "{who:?}: {messages:?}");
    }
}

/// A slapd has entries below the one that is gone still, and cannot delete it: it refuses a single delete each time
/// that it connects.
#[test]
fn a_name_that_a_new_entry_takes_is_freed_by_a_set() {
    for who in [Who::Slapd, Who::Copy] {
        let site = Site::new();
        let name = "cn=a,dc=example,dc=com";
        site.put(5, name, csn(OWN, 2));
        site.raise(csn(OWN, 2), false);
        site.delete(5, csn(OWN, 9));
        site.put(6, name, csn(3, 5));
        site.raise(csn(OWN, 9), false);
        site.raise(csn(3, 5), false);
        let messages = site.ask(who, &[csn(OWN, 2)]).messages();
        let place = |begin: &str| messages.iter().position(|message| message.starts_with(begin));
        let (gone, taken) = (messages.iter().position(|message| message == "gone 5"), place("add 6"));
        assert!(gone.is_some() && gone < taken, "{who:?}: {messages:?}");
        assert_eq!(place("delete"), None, "{who:?}: {messages:?}");
    }
}

/// A search does not show them, and no control asks for all entries: without this a copy never has them.
#[test]
fn subentries_are_content() {
    for who in [Who::Slapd, Who::Larix, Who::Copy, Who::Shadow] {
        let site = Site::new();
        let dn = "cn=subentry,dc=example,dc=com";
        site.put(5, dn, csn(OWN, 2));
        site.raise(csn(OWN, 2), false);
        let mut search = site.ask(who, &[]);
        let all = search.messages();
        assert!(all.iter().any(|message| message.starts_with("add 5")), "{who:?}: {all:?}");
        site.change(5, dn, csn(OWN, 5));
        assert_eq!(search.messages(), ["modify 5 =2:5"], "{who:?}");
        site.remove(5, csn(OWN, 7));
        let gone = search.messages();
        assert!(gone.iter().any(|message| message.starts_with("delete 5")), "{who:?}: {gone:?}");
    }
}

/// Others may have filled it with content that lacks them.
#[test]
fn a_server_that_follows_others_does_not_say_that_it_sends_all_subentries() {
    for (shadow, multi_provider) in [(false, false), (true, false), (false, true)] {
        let site = Site::with(DatabaseSettings { shadow, multi_provider, ..DatabaseSettings::default() });
        site.raise(csn(OWN, 2), false);
        for (who, is_peer) in [(Who::Larix, true), (Who::Shadow, true), (Who::Copy, false)] {
            let expected = is_peer && !(shadow || multi_provider);
            let said = site.ask(who, &[]).refreshed().subentries_sent;
            assert_eq!(said, expected, "{who:?} {shadow} {multi_provider}");
        }
    }
}

/// A slapd carries out each delete that it receives, and never receives again what its cookie covers.
#[test]
fn the_delete_of_what_was_brought_back_is_not_sent_again() {
    let dn = "cn=e,dc=example,dc=com";
    let value = |name: &str, value: &str| AttributeValues {
        description: name.to_owned(),
        values: vec![value.as_bytes().to_vec()],
    };
    for who in [Who::Slapd, Who::Larix, Who::Copy, Who::Shadow] {
        let site = Site::new();
        site.change(5, dn, csn(OWN, 2));
        site.remove(5, csn(OWN, 4));
        let attributes = vec![
            value("objectClass", "device"),
            value("structuralObjectClass", "device"),
            value("cn", "e"),
            value("entryCSN", &csn(OWN, 6).to_string()),
            value("createTimestamp", "20260101000006Z"),
        ];
        let entry_uuid = Uuid::from_u128(5);
        let put =
            ReplicatedChange::Put { entry_uuid, dn: dn.to_owned(), attributes, state: None, place: None };
        let context_csns = vec![csn(OWN, 6)];
        site.batch(ReplicatedBatch { changes: vec![put], context_csns, ..ReplicatedBatch::default() });
        site.change(6, "cn=f,dc=example,dc=com", csn(OWN, 8));
        let mut search = site.ask(who, &[csn(OWN, 6)]);
        let messages = search.messages();
        assert!(messages.iter().any(|message| message.starts_with("add 6")), "{who:?}: {messages:?}");
        assert!(!messages.iter().any(|message| message.contains(" 5")), "{who:?}: {messages:?}");
    }
}
