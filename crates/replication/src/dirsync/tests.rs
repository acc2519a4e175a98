//! What is asked of an Active Directory, and what its answers make of entries here.

use larix_engine::{Entry, EntryAttribute};
use larix_proto::control::SyncMode;
use larix_proto::{Message, Request, encode};
use larix_schema::{Schema, SchemaBuilder};

use super::*;

const ID: MessageId = MessageId(7);

fn schema() -> Schema {
    let mut builder = SchemaBuilder::system();
    for name in ["core", "cosine", "inetorgperson", "nis", "msuser"] {
        builder.add_bundled(name).unwrap();
    }
    builder.build()
}

fn line(filter: &str, attributes: &[&str]) -> Line {
    let base = schema().parse_dn("dc=x").unwrap();
    Line {
        rid: 1,
        sid: None,
        mode: SyncMode::RefreshOnly,
        base: "dc=x".to_owned(),
        local_base: ("dc=x".to_owned(), base),
        scope: Scope::Subtree,
        filter: FilterBuf::parse(filter).unwrap(),
        is_part: false,
        attributes: attributes.iter().map(ToString::to_string).collect(),
        except_attributes: Vec::new(),
        size_limit: 0,
        time_limit: 0,
        schema_checking: false,
        lazy: false,
        delete_percent: 50,
        values: false,
        states: false,
        controls: Vec::new(),
    }
}

#[test]
fn a_request_asks_for_what_the_line_names() {
    let every = "(objectClass=*)";
    let check = |(filter, attributes): (&str, &[&str]), cookie: &[u8], expected: &str, asked: &[&str]| {
        let mut out = Vec::new();
        Session::new(line(filter, attributes), cookie.to_vec()).request(&mut out, ID);
        let message = Message::decode(&out).unwrap();
        let Request::Search(search) = message.request else { panic!("no search") };
        assert_eq!((search.base, search.filter.to_string().as_str()), ("dc=x", expected));
        assert_eq!(search.attributes.iter().collect::<Vec<_>>(), asked);
        let controls: Vec<_> = message.controls.iter().collect();
        let sync = DirSyncRequest::decode(controls[0].value).unwrap();
        assert_eq!((sync.flags, sync.cookie), (i32::MIN, cookie));
        let shows_deleted =
            controls.iter().any(|control| control.oid == oid::SHOW_DELETED && control.critical);
        assert!(controls[0].critical && shows_deleted != cookie.is_empty());
    };
    check((every, &[]), b"", every, &["*"]);
    check((every, &[]), b"c", every, &["*"]);
    check(("(cn=a)", &[]), b"", "(cn=a)", &["*"]);
    check(("(cn=a)", &[]), b"c", "(|(cn=a)(isDeleted=TRUE))", &["*"]);
    let all = ["cn", "objectguid", "instanceType", "isDeleted", "whenCreated", "objectClass"];
    check((every, &["cn", "objectguid"]), b"", every, &all);
}

/// What an answer means.
fn receive(session: &mut Session, answer: &[u8]) -> Result<Option<Event>, String> {
    session.receive(&Response::decode_message(answer).unwrap())
}

fn entry(dn: &str, attributes: &[(&str, &[&[u8]])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = encode::EntryEncoder::begin(&mut out, ID, dn);
    for (name, values) in attributes {
        encoder.begin_attribute(name);
        values.iter().for_each(|value| encoder.value(value));
        encoder.end_attribute();
    }
    encoder.finish(&[]);
    out
}

#[test]
fn answers_are_entries_deletes_and_pages() {
    let mut session = Session::new(line("(objectClass=*)", &[]), Vec::new());
    session.request(&mut Vec::new(), ID);
    let guid = [1_u8; 16];
    let uuid = Uuid::from_bytes(guid);
    let found = receive(&mut session, &entry("CN=a,DC=x", &[("objectGUID", &[&guid]), ("sn", &[])]));
    let Ok(Some(Event::Entry(received))) = found else { panic!("{found:?}") };
    assert_eq!((received.uuid, received.dn.as_str(), received.is_whole()), (uuid, "CN=a,DC=x", false));
    let gone = entry("CN=a", &[("isDeleted", &[b"TRUE"]), ("objectGUID", &[&guid])]);
    assert_eq!(receive(&mut session, &gone), Ok(Some(Event::Gone(uuid))));
    for wrong in [&[][..], &[("objectGUID", &[&b"short"[..]][..])]] {
        assert!(
            receive(&mut session, &entry("CN=a", wrong))
                .unwrap_err()
                .starts_with("entry \"CN=a\": no objectGUID")
        );
    }
    let done = |code: ResultCode, control: Option<DirSyncResponse<'_>>| {
        let controls: Vec<ControlBuf> = control.iter().map(|control| control.to_control(false)).collect();
        let mut out = Vec::new();
        encode::result(&mut out, ID, larix_proto::ResponseOp::SearchDone, &LdapResult::new(code), &controls);
        out
    };
    let page = |cookie: &[u8], more| Ok(Some(Event::Page { cookie: cookie.to_vec(), more }));
    let of = |more, cookie| Some(DirSyncResponse { more, cookie });
    assert_eq!(receive(&mut session, &done(ResultCode::SUCCESS, of(true, b"1"))), page(b"1", true));
    assert!(receive(&mut session, &done(ResultCode::SUCCESS, of(true, b"1"))).is_err(), "no end");
    assert_eq!(receive(&mut session, &done(ResultCode::SUCCESS, of(false, b"1"))), page(b"1", false));
    assert_eq!(receive(&mut session, &done(ResultCode::SUCCESS, None)), page(b"", false));
    let refused = LdapResult::new(ResultCode::BUSY);
    assert_eq!(receive(&mut session, &done(ResultCode::BUSY, None)), Ok(Some(Event::Refused(refused))));
}

/// Attributes as `name: value` lines; a name alone has none.
fn attributes(text: &str) -> Vec<AttributeValues> {
    let mut list: Vec<AttributeValues> = Vec::new();
    for line in text.split('|').filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").map_or((line, None), |(name, value)| (name, Some(value)));
        let value = value.map(|value| value.as_bytes().to_vec());
        match list.iter_mut().find(|one| one.description == name) {
            Some(known) => known.values.extend(value),
            None => list
                .push(AttributeValues { description: name.to_owned(), values: value.into_iter().collect() }),
        }
    }
    list
}

fn held(schema: &Schema, dn: &str, text: &str) -> Entry {
    let mut entry = Entry::new(dn);
    for one in attributes(text) {
        entry.attributes.push(EntryAttribute::new(schema.describe(&one.description).unwrap(), one.values));
    }
    entry
}

fn shown(schema: &Schema, entry: &Entry) -> String {
    let values = entry.attributes.iter().flat_map(|attribute| {
        let name = attribute.description.to_text(schema);
        attribute.values.iter().map(move |value| format!("{name}: {}", String::from_utf8_lossy(value)))
    });
    let lines: Vec<String> = values.filter(|line| !line.starts_with("modifyTimestamp")).collect();
    format!("{}|{}", entry.dn, lines.join("|"))
}

#[test]
fn entries_are_merged() {
    let schema = schema();
    let base = schema.parse_dn("dc=x").unwrap();
    let except = ["l".to_owned()];
    let merge =
        Merge { schema: &schema, massage: None, except: &except, base: &base, now: "20260101000000Z" };
    let check = |known: Option<(&str, &str)>, (dn, text): (&str, &str), expected: Option<&str>| {
        let known = known.map(|(dn, text)| held(&schema, dn, text));
        let here = merge.dn(dn).unwrap().unwrap();
        let received = Received { uuid: Uuid::nil(), dn: dn.to_owned(), attributes: attributes(text) };
        let mut left_out = LeftOut::default();
        let merged = merge.merged(known.as_ref(), &here, received, &mut left_out).unwrap();
        assert_eq!(merged.map(|entry| shown(&schema, &entry)).as_deref(), expected, "{text}");
        left_out
    };
    let ann = Some(("cn=Ann,dc=x", "objectClass: person|cn: Ann|cn: A|sn: B|description: d"));
    // A new one gets what its name says, which does not come, and has its time of creation.
    let left_out = check(
        None,
        (
            "CN=Ann,DC=x",
            "objectClass: top|objectClass: person|objectClass: theirs|whenCreated: 20260102030405.0Z|theirOwn: 1|l: here",
        ),
        Some(
            "cn=Ann,dc=x|objectClass: top|objectClass: person|createTimestamp: 20260102030405Z|whenCreated: 20260102030405.0Z|cn: Ann",
        ),
    );
    assert_eq!(left_out.unknown.iter().map(String::as_str).collect::<Vec<_>>(), ["theirOwn", "theirs"]);
    // Without a class that is known here it has no rules.
    check(
        None,
        ("OU=a,DC=x", "objectClass: theirs|name: a"),
        Some("ou=a,dc=x|name: a|ou: a|objectClass: top|objectClass: extensibleObject"),
    );
    // What came is replaced, what came without values goes, the rest stays.
    check(
        ann,
        ("CN=Ann,DC=x", "sn: C|description"),
        Some("cn=Ann,dc=x|objectClass: person|cn: Ann|cn: A|sn: C"),
    );
    check(ann, ("CN=Ann,DC=x", "sn: B"), None);
    // A rename takes the old name's value.
    check(
        ann,
        ("CN=Eve,DC=x", "name: Eve"),
        Some("cn=Eve,dc=x|objectClass: person|cn: A|cn: Eve|sn: B|description: d|name: Eve"),
    );
    // Values come and go one by one, and again.
    let staff = Some(("cn=s,dc=x", "objectClass: group|cn: s|member: cn=a,dc=x|member: cn=b,dc=x"));
    check(
        staff,
        (
            "CN=s,DC=x",
            "member;range=1-1: CN=C,DC=x|member;range=1-1: CN=B,DC=x|member;range=0-0: CN=A,DC=X|member;range=0-0: CN=none,DC=x",
        ),
        Some("cn=s,dc=x|objectClass: group|cn: s|member: cn=b,dc=x|member: cn=C,dc=x"),
    );
    check(staff, ("CN=s,DC=x", "member;range=1-1: CN=A,DC=x|member;range=0-0: CN=gone,DC=x"), None);
    // Names come with what identifies the entry besides.
    let extended = "manager: <GUID=08f9d0e8-c451-437c-9398-960cf2aea044>;<SID=S-1-5>;CN=b,DC=x";
    check(
        staff,
        ("CN=s,DC=x", extended),
        Some("cn=s,dc=x|objectClass: group|cn: s|member: cn=a,dc=x|member: cn=b,dc=x|manager: cn=b,dc=x"),
    );
    // A value that cannot be is left out, and said.
    let left_out = check(ann, ("CN=Ann,DC=x", "seeAlso: nobody"), None);
    assert_eq!(left_out.invalid, ["\"CN=Ann,DC=x\": seeAlso"]);
    let odd = Received {
        uuid: Uuid::nil(),
        dn: "CN=s,DC=x".to_owned(),
        attributes: attributes("member;range=0-1499: CN=a"),
    };
    assert!(
        merge.merged(None, "cn=s,dc=x", odd, &mut LeftOut::default()).unwrap_err().contains("range=0-1499")
    );
    assert_eq!(merge.dn("CN=a,DC=y"), Ok(None));
}

/// Values that differ only behind a long beginning: to compare each with all before it would compare hundreds of GB.
#[test]
fn many_values_come_once_each() {
    let schema = schema();
    let base = schema.parse_dn("dc=x").unwrap();
    let merge = Merge { schema: &schema, massage: None, except: &[], base: &base, now: "20260101000000Z" };
    let beginning = "a".repeat(1_000);
    let values: Vec<Vec<u8>> = (0..20_000).map(|n| format!("{beginning}{n}").into_bytes()).collect();
    let twice = values.iter().chain(&values).cloned().collect();
    let attribute = AttributeValues { description: "userPassword".to_owned(), values: twice };
    let received = Received { uuid: Uuid::nil(), dn: "CN=a,DC=x".to_owned(), attributes: vec![attribute] };
    let merged = merge.merged(None, "cn=a,dc=x", received, &mut LeftOut::default()).unwrap().unwrap();
    let description = schema.describe("userPassword").unwrap();
    assert!(merged.attribute(&description).unwrap().values == values);
}

#[test]
fn names_move_under_another_suffix() {
    let schema = std::sync::Arc::new(schema());
    let base = schema.parse_dn("dc=x").unwrap();
    let massage = crate::consumer::Massage::new(std::sync::Arc::clone(&schema), base.clone(), "o=here");
    let merge =
        Merge { schema: &schema, massage: Some(&massage), except: &[], base: &base, now: "20260101000000Z" };
    assert_eq!(merge.dn("CN=a,OU=b,DC=x").unwrap().as_deref(), Some("cn=a,ou=b,o=here"));
    let received = Received {
        uuid: Uuid::nil(),
        dn: "CN=a,DC=x".to_owned(),
        attributes: attributes("objectClass: group|member: CN=b,DC=x|manager: CN=c,DC=y"),
    };
    let merged = merge.merged(None, "cn=a,o=here", received, &mut LeftOut::default()).unwrap().unwrap();
    let expected = "cn=a,o=here|objectClass: group|member: cn=b,o=here|manager: cn=c,dc=y|cn: a";
    assert_eq!(shown(&schema, &merged), expected);
}

#[test]
fn the_suffix_keeps_the_cookie() {
    let schema = schema();
    for (dn, expected) in [
        ("dc=ad,dc=x", Some("dc=ad,dc=x|objectClass: top|objectClass: domain|dc: ad")),
        ("o=a", Some("o=a|objectClass: top|objectClass: organization|o: a")),
        ("cn=a", None),
    ] {
        assert_eq!(suffix_entry(&schema, dn).map(|entry| shown(&schema, &entry)).as_deref(), expected);
    }
    let mut entry = Entry::new("dc=x");
    set_cookie(&schema, &mut entry, b"1");
    set_cookie(&schema, &mut entry, b"2");
    assert_eq!(shown(&schema, &entry), "dc=x|dirSyncCookie: 2");
}
