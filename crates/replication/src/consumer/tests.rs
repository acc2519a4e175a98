//! What a provider sends, and what the session makes of it.

use std::sync::Arc;

use larix_engine::replica::ReplicatedChange;
use larix_engine::write::AttributeValues;
use larix_proto::encode;
use larix_schema::SchemaBuilder;

use super::*;

const A1: &str = "20260101000000.000000Z#000000#001#000000";
const A2: &str = "20260101000002.000000Z#000000#001#000000";
const A3: &str = "20260101000003.000000Z#000000#001#000000";
const B1: &str = "20260101000001.000000Z#000000#002#000000";
const ID: MessageId = MessageId(7);

/// One message of the provider.
enum Sent {
    Entry(EntryState, u128, Option<&'static str>),
    Info(SyncInfo<'static>),
    Done(ResultCode, Option<&'static str>, bool),
    /// An entry that says nothing of synchronisation.
    Bare,
    /// An entry that comes with its state.
    Stated(u128),
}

use Sent::{Bare, Done, Entry, Info, Stated};

fn cookie(csns: &str) -> String {
    format!("rid=001,csn={csns}")
}

fn leak(csns: &str) -> &'static [u8] {
    cookie(csns).leak().as_bytes()
}

fn csns(texts: &str) -> Vec<Csn> {
    texts.split(';').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect()
}

impl Sent {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Entry(state, uuid, csn) => {
                let cookie = csn.map(cookie);
                let control = SyncState {
                    state: *state,
                    entry_uuid: Uuid::from_u128(*uuid).into_bytes(),
                    cookie: cookie.as_ref().map(|cookie| cookie.as_bytes()),
                };
                entry(&mut out, &format!("cn={uuid},dc=example,dc=com"), &[control.to_control(false)]);
            }
            Stated(uuid) => {
                let control = SyncState {
                    state: EntryState::Modify,
                    entry_uuid: Uuid::from_u128(*uuid).into_bytes(),
                    cookie: None,
                };
                let state =
                    ControlBuf { oid: ENTRY_STATE_OID.into(), critical: false, value: Some(Vec::new()) };
                entry(&mut out, &format!("cn={uuid},dc=example,dc=com"), &[control.to_control(false), state]);
            }
            Bare => entry(&mut out, "cn=x,dc=example,dc=com", &[]),
            Info(info) => encode::intermediate(&mut out, ID, Some(SyncInfo::OID), Some(&info.encode()), &[]),
            Done(code, csn, refresh_deletes) => {
                let cookie = csn.map(cookie);
                let control = SyncDone {
                    cookie: cookie.as_ref().map(|cookie| cookie.as_bytes()),
                    refresh_deletes: *refresh_deletes,
                };
                let result = LdapResult::new(*code);
                encode::result(
                    &mut out,
                    ID,
                    larix_proto::ResponseOp::SearchDone,
                    &result,
                    &[control.to_control(false)],
                );
            }
        }
        out
    }
}

fn entry(out: &mut Vec<u8>, dn: &str, controls: &[ControlBuf]) {
    let mut encoder = encode::EntryEncoder::begin(out, ID, dn);
    encoder.begin_attribute("cn");
    encoder.value(b"x");
    encoder.end_attribute();
    encoder.finish(controls);
}

fn request(mode: SyncMode) -> Request {
    Request {
        rid: 1,
        sid: None,
        mode,
        base: "dc=example,dc=com".to_owned(),
        scope: Scope::Subtree,
        filter: FilterBuf::parse("(objectClass=*)").unwrap(),
        attributes: vec!["*".to_owned(), "+".to_owned()],
        values: false,
        states: false,
        logged: false,
        size_limit: 0,
        time_limit: 0,
        controls: Vec::new(),
    }
}

/// Actions in short: `+1` puts, `-1` deletes, `!1,2` deletes what is not among these (`!!` where other deletes were sent),
/// `@` before what another server keeps, `!*` where the whole content was named,
/// `=` and the contextCSN's last digits of the seconds with the server.
fn shown(action: &Action) -> String {
    let uuid = |uuid: &Uuid| uuid.as_u128().to_string();
    let vector = |csns: &[Csn]| {
        let csns: Vec<String> =
            csns.iter().map(|csn| format!("{}:{}", csn.server_id, csn.time.seconds() % 60)).collect();
        if csns.is_empty() { String::new() } else { format!("={}", csns.join(";")) }
    };
    match action {
        Action::Apply { changes, csns, elsewhere, .. } => {
            let mark = if *elsewhere { "@" } else { "" };
            let changes = changes.iter().map(|change| match change {
                ReplicatedChange::Put { entry_uuid, .. } => format!("+{}", uuid(entry_uuid)),
                ReplicatedChange::Delete { entry_uuid, csn } => {
                    format!("-{}{}", uuid(entry_uuid), if csn.is_some() { "" } else { "?" })
                }
                ReplicatedChange::Delta { dn, .. } => format!("~{dn}"),
            });
            format!("{mark}{}{}", changes.collect::<String>(), vector(csns))
        }
        Action::DeleteAbsent { present, csns, deletes_told, whole, subentries } => {
            let known = (1..10).filter(|n| present.contains(&Uuid::from_u128(*n)));
            let mark = match (deletes_told, whole, subentries) {
                (_, _, true) => "!s",
                (_, true, _) => "!*",
                (true, _, _) => "!!",
                (false, _, _) => "!",
            };
            format!("{mark}{}{}", known.map(|n| n.to_string()).collect::<Vec<_>>().join(","), vector(csns))
        }
        Action::KeepStates => "states".to_owned(),
        Action::Refreshed => "refreshed".to_owned(),
        Action::End(End::Failed(result)) => format!("failed {}", result.code.0),
        Action::End(end) => format!("{end:?}"),
        Action::Note(_) => "note".to_owned(),
    }
}

fn receive(session: &mut Session, sent: &Sent) -> Vec<Action> {
    let bytes = sent.encode();
    session.receive(&Response::decode_message(&bytes).unwrap())
}

fn check(mode: SyncMode, known: &str, sent: &[Sent], expected: &[&str]) {
    check_session(Session::new(request(mode), None, csns(known), false), sent, expected);
}

fn check_session(mut session: Session, sent: &[Sent], expected: &[&str]) {
    session.request(&mut Vec::new(), ID);
    let mut actions = Vec::new();
    for message in sent {
        actions.extend(receive(&mut session, message));
        if session.is_refreshed() {
            actions.extend(session.flush());
        }
    }
    actions.extend(session.flush());
    let shown: Vec<String> = actions.iter().map(shown).collect();
    assert_eq!(shown, expected);
}

/// A provider whose content other servers keep in part: no CSN says anything of that part.
#[test]
fn content_of_other_servers() {
    use EntryState::{Add, Delete, Modify, Present};
    let elsewhere = Some(",content=elsewhere");
    // The contextCSN is what it was: what was not named is gone all the same.
    let whole = format!("{A1},content=whole").leak();
    check(
        SyncMode::RefreshOnly,
        A1,
        &[
            Entry(Present, 1, None),
            Entry(Add, 2, elsewhere),
            Entry(Add, 3, elsewhere),
            Entry(Add, 4, None),
            Done(ResultCode::SUCCESS, Some(whole), false),
        ],
        &["@+2+3", "+4", "!*1,2,3,4=1:0", "refreshed", "Poll"],
    );
    // A provider that does not say so means nothing by it.
    check(
        SyncMode::RefreshOnly,
        A1,
        &[Entry(Present, 1, None), Done(ResultCode::SUCCESS, Some(A1), false)],
        &["refreshed", "Poll"],
    );
    let present = SyncInfo::RefreshPresent { cookie: Some(leak(whole)), done: true };
    check(
        SyncMode::RefreshAndPersist,
        A1,
        &[
            Entry(Add, 2, elsewhere),
            Info(present),
            Entry(Modify, 2, elsewhere),
            Entry(Modify, 1, Some(A2)),
            Entry(Delete, 2, elsewhere),
        ],
        &["@+2", "!*2=1:0", "refreshed", "@+2", "+1=1:2", "@-2?"],
    );
}

#[test]
fn a_refresh_leaves_what_the_provider_has() {
    use EntryState::{Add, Delete, Present};
    let mode = SyncMode::RefreshOnly;
    // A newcomer.
    check(
        mode,
        "",
        &[Entry(Add, 1, None), Entry(Add, 2, None), Done(ResultCode::SUCCESS, Some(A1), false)],
        &["+1+2", "!1,2=1:0", "refreshed", "Poll"],
    );
    // The present phase: 2 is still there, 1 has changed.
    check(
        mode,
        A1,
        &[Entry(Add, 1, None), Entry(Present, 2, None), Done(ResultCode::SUCCESS, Some(A2), false)],
        &["+1", "!1,2=1:2", "refreshed", "Poll"],
    );
    let ids = SyncInfo::IdSet { cookie: None, deletes: false, uuids: vec![Uuid::from_u128(3).into_bytes()] };
    check(
        mode,
        A1,
        &[Info(ids), Done(ResultCode::SUCCESS, Some(A2), false)],
        &["!3=1:2", "refreshed", "Poll"],
    );
    // The delete phase.
    check(
        mode,
        A1,
        &[Entry(Add, 1, None), Entry(Delete, 2, Some(A2)), Done(ResultCode::SUCCESS, Some(A2), true)],
        &["+1-2", "=1:2", "refreshed", "Poll"],
    );
    let gone =
        |cookie| SyncInfo::IdSet { cookie, deletes: true, uuids: vec![Uuid::from_u128(3).into_bytes()] };
    check(
        mode,
        A1,
        &[Info(gone(Some(leak(A2)))), Info(gone(None)), Done(ResultCode::SUCCESS, Some(A2), true)],
        &["-3-3?", "=1:2", "refreshed", "Poll"],
    );
    // Nothing is new: what was not named present stays.
    check(mode, A1, &[Done(ResultCode::SUCCESS, Some(A1), false)], &["refreshed", "Poll"]);
    check(mode, A1, &[Done(ResultCode::SUCCESS, None, false)], &["refreshed", "Poll"]);
    // A provider with nothing in it deletes nothing.
    check(mode, "", &[Done(ResultCode::SUCCESS, None, false)], &["refreshed", "Poll"]);
    // Another origin is new.
    let both = format!("{A1};{B1}").leak();
    check(mode, A1, &[Done(ResultCode::SUCCESS, Some(both), true)], &["=1:0;2:1", "refreshed", "Poll"]);
}

#[test]
fn changes_come_behind_the_refresh() {
    use EntryState::{Add, Delete, Modify, Present};
    let mode = SyncMode::RefreshAndPersist;
    let deletes = |csn, done| Info(SyncInfo::RefreshDelete { cookie: Some(leak(csn)), done });
    let presents = |csn, done| Info(SyncInfo::RefreshPresent { cookie: Some(leak(csn)), done });
    check(
        mode,
        A1,
        &[
            Entry(Add, 1, None),
            deletes(A2, true),
            Entry(Modify, 1, Some(A3)),
            Entry(Delete, 2, Some(B1)),
            // Made together with the one before.
            Entry(Delete, 4, Some(B1)),
            // Seen before. What has no CSN may be another server's change that is passed on: its entryCSN decides.
            Entry(Modify, 1, Some(A2)),
            Entry(Modify, 3, None),
            // The server that said so before need not have known of it.
            Entry(Delete, 5, Some(A2)),
        ],
        &["+1", "=1:2", "refreshed", "+1=1:3", "-2=2:1", "-4=2:1", "+3", "-5"],
    );
    // A present phase, then a delete phase.
    check(
        mode,
        A1,
        &[Entry(Present, 1, None), presents(A2, false), Entry(Delete, 2, None), deletes(A3, true)],
        &["!1=1:2", "-2?", "=1:3", "refreshed"],
    );
    let present_done =
        Info(SyncInfo::RefreshPresent { cookie: Some(leak(&format!("{A2},deletes=told"))), done: true });
    check(mode, A1, &[Entry(Delete, 2, None), present_done], &["-2?", "!!=1:2", "refreshed"]);
    let present_done =
        Info(SyncInfo::RefreshPresent { cookie: Some(leak(&format!("{A2},subentries=sent"))), done: true });
    check(mode, A1, &[Entry(Present, 1, None), present_done], &["!s1=1:2", "refreshed"]);
    let new_cookie = Info(SyncInfo::NewCookie(leak(B1)));
    check(mode, A1, &[presents(A1, true), new_cookie], &["refreshed", "=2:1"]);
    // A cookie within the refresh promises nothing.
    let new_cookie = Info(SyncInfo::NewCookie(leak(A3)));
    check(mode, A1, &[new_cookie], &[]);
}

#[test]
fn what_is_not_among_everything_is_gone() {
    let deletes = |csn, done| Info(SyncInfo::RefreshDelete { cookie: Some(leak(csn)), done });
    let check = |known: &str, mode, sent: &[Sent], expected: &[&str]| {
        check_session(Session::new(request(mode), None, csns(known), true), sent, expected);
    };
    let add = || Entry(EntryState::Add, 1, None);
    let (persists, polls) = (SyncMode::RefreshAndPersist, SyncMode::RefreshOnly);
    // A slapd that is asked without a cookie says that it tells deletes, and names none.
    check(A1, persists, &[add(), deletes(A2, true)], &["+1", "!1=1:2", "refreshed"]);
    check(
        A1,
        polls,
        &[add(), Done(ResultCode::SUCCESS, Some(A1), true)],
        &["+1", "!1=1:0", "refreshed", "Poll"],
    );
    check(
        A1,
        persists,
        &[add(), deletes(A2, false), deletes(A3, true)],
        &["+1", "!1=1:2", "=1:3", "refreshed"],
    );
    // A first refresh may have been broken off before. It did not bring what others keep here, or wrote here.
    let done = || Done(ResultCode::SUCCESS, Some(A1), true);
    let first = |mode| Session::new(request(mode), None, Vec::new(), false);
    check_session(first(persists), &[add(), deletes(A2, true)], &["+1", "=1:2", "refreshed"]);
    check_session(
        first(persists).follows_broken(),
        &[add(), deletes(A2, true)],
        &["+1", "!1=1:2", "refreshed"],
    );
    // A slapd leaves out of a poll what changes meanwhile.
    check_session(first(polls).follows_broken(), &[add(), done()], &["+1", "=1:0", "refreshed", "Poll"]);
}

#[test]
fn states_are_kept_before_anything_that_comes_of_who_keeps_them() {
    let done = |cookie: &str| {
        let cookie = Some(format!("{}{cookie}", self::cookie(A1)).leak().as_bytes());
        Info(SyncInfo::RefreshDelete { cookie, done: true })
    };
    let mode = SyncMode::RefreshAndPersist;
    let add = || Entry(EntryState::Add, 1, None);
    check(mode, A1, &[done(",states=kept")], &["states", "refreshed"]);
    check(mode, A1, &[add(), done(",states=kept"), Stated(2)], &["states", "+1", "refreshed", "+2"]);
    check(mode, A1, &[Stated(2), done(""), Stated(2)], &["states", "+2", "refreshed", "+2"]);
    check(mode, A1, &[add(), done("")], &["+1", "refreshed"]);
}

#[test]
fn how_a_session_ends_says_what_comes_next() {
    let mode = SyncMode::RefreshAndPersist;
    let add = || Entry(EntryState::Add, 1, None);
    check(mode, A1, &[add(), Done(ResultCode::SYNC_REFRESH_REQUIRED, None, false)], &["+1", "FullRefresh"]);
    check(mode, A1, &[add(), Done(ResultCode::BUSY, None, false)], &["+1", "failed 51"]);
    check(mode, A1, &[Done(ResultCode::SUCCESS, Some(A2), false)], &["failed 80"]);
    check(mode, A1, &[Bare], &["failed 2"]);
    check(mode, A1, &[Entry(EntryState::Add, 1, Some("never"))], &["failed 2"]);
    let done = |csn| Info(SyncInfo::RefreshDelete { cookie: Some(leak(csn)), done: true });
    check(mode, A1, &[done(A2), done(A3), add()], &["=1:2", "refreshed", "failed 2"]);
}

#[test]
fn batches_are_bounded() {
    let mut session = Session::new(request(SyncMode::RefreshOnly), None, Vec::new(), false);
    session.request(&mut Vec::new(), ID);
    let mut batches = Vec::new();
    for uuid in 0..2 * BATCH_CHANGES as u128 + 1 {
        for action in receive(&mut session, &Entry(EntryState::Add, uuid, None)) {
            let Action::Apply { changes, csns, .. } = action else { panic!("{action:?}") };
            assert!(csns.is_empty());
            batches.push(changes.len());
        }
    }
    assert_eq!(batches, [BATCH_CHANGES, BATCH_CHANGES]);
}

#[test]
fn requests_carry_the_cookie() {
    let check = |known: &str, full: bool, expected: &str| {
        let session = Session::new(
            Request { sid: Some(10), ..request(SyncMode::RefreshOnly) },
            None,
            csns(known),
            full,
        );
        assert_eq!(session.cookie().to_string(), expected);
    };
    check("", false, "rid=001,sid=00a");
    check(A1, false, &format!("rid=001,sid=00a,csn={A1}"));
    check(A1, true, "rid=001,sid=00a");
}

#[test]
fn names_are_massaged() {
    let mut builder = SchemaBuilder::system();
    builder.add_bundled("core").unwrap();
    let schema = Arc::new(builder.build());
    let from = schema.parse_dn("dc=example,dc=com").unwrap();
    let massage = Massage::new(schema, from, "o=Here");
    for (name, expected) in [
        ("cn=A+sn=b, dc=Example,dc=com", Some("cn=A+sn=b,o=Here")),
        ("DC=example,dc=com", Some("o=Here")),
        ("dc=com", None),
        ("cn=a,dc=other", None),
    ] {
        assert_eq!(massage.dn(name).as_deref(), expected, "{name}");
    }
    let mut members = AttributeValues {
        description: "member".to_owned(),
        values: vec![b"cn=a,dc=example,dc=com".to_vec(), b"cn=b,dc=other".to_vec()],
    };
    massage.values(&mut members);
    assert_eq!(members.values, [b"cn=a,o=Here".to_vec(), b"cn=b,dc=other".to_vec()]);
    let mut text = AttributeValues {
        description: "description".to_owned(),
        values: vec![b"cn=a,dc=example,dc=com".to_vec()],
    };
    massage.values(&mut text);
    assert_eq!(text.values, [b"cn=a,dc=example,dc=com".to_vec()]);
}
