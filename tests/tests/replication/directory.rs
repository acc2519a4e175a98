//! Databases that follow an Active Directory (`type=dirsync`): one that a test plays. `tests/interop/active-directory/run` has a real
//! Samba.

use larix_proto::ResultCode;
use larix_testkit::Kind;
use larix_tests::replicas::{Content, Member, SUFFIX};
use larix_tests::scripted_directory::{DirectoryConnection, DirectorySearch, ScriptedDirectory};

const PEOPLE: [&str; 4] =
    ["objectClass: top", "objectClass: organizationalUnit", "name: People", "whenCreated: 20260101000000.0Z"];
const FILTER: &str = "(|(objectClass=user)(objectClass=group)(objectClass=organizationalUnit))";

fn user<'l>(name: &'l str, more: &[&'l str]) -> Vec<&'l str> {
    let mut lines = vec![
        "objectClass: top",
        "objectClass: person",
        "objectClass: organizationalPerson",
        "objectClass: user",
        "objectClass: theirOwn",
        "instanceType: 4",
        "whenCreated: 20260102030405.0Z",
        "theirAttribute: 1",
    ];
    lines.push(name);
    lines.extend(more);
    lines
}

fn line(directory: &ScriptedDirectory, more: &str) -> String {
    format!(
        "syncrepl rid=001 provider=ldap://{} bindmethod=simple binddn=reader@example.com credentials=secret \
         searchbase={SUFFIX} type=dirSync interval=00:00:00:01 retry=\"1 +\" filter=\"{FILTER}\" {more}\n",
        directory.address
    )
}

fn consumer(directory: &ScriptedDirectory, more: &str) -> Member {
    let database = format!("{}overlay syncprov\n", line(directory, more));
    Member::new(Kind::Larix, "schema active-directory", &database).arguments(&["-d", "16384"]).started()
}

/// One value of an entry, or all of them with `|` between.
fn values(content: &Content, dn: &str, name: &str) -> String {
    let dn = if dn.is_empty() { SUFFIX.to_owned() } else { format!("{dn},{SUFFIX}") };
    let found = content.get(&dn).and_then(|entry| entry.get(&name.to_ascii_lowercase()));
    let shown = found.into_iter().flatten().map(|value| String::from_utf8_lossy(value));
    shown.collect::<Vec<_>>().join("|")
}

/// The pass that begins with this cookie; an empty one is asked for everything.
fn pass(directory: &ScriptedDirectory, cookie: &[u8]) -> DirectoryConnection {
    let (connection, search) = directory.accept();
    check(&search, cookie);
    connection
}

fn check(search: &DirectorySearch, cookie: &[u8]) {
    let filter = match cookie.is_empty() {
        true => FILTER.to_owned(),
        false => format!("(|{FILTER}(isDeleted=TRUE))"),
    };
    let shows_deleted = !cookie.is_empty();
    let (base, cookie) = (SUFFIX.to_owned(), Some(cookie.to_vec()));
    assert_eq!(*search, DirectorySearch { base, filter, cookie, shows_deleted });
}

/// Everything, in two pages.
fn first_content(directory: &ScriptedDirectory) {
    let mut ad = pass(directory, b"");
    // A group before those in it, a user before the container.
    let group = ["objectClass: top", "objectClass: group", "groupType: 2"];
    let members = format!("member;range=1-1: CN=Ann,OU=People,{SUFFIX}");
    ad.entry(&format!("CN=staff,OU=People,{SUFFIX}"), 3, &[&group[..], &[&members]].concat());
    ad.entry(&format!("CN=Ann,OU=People,{SUFFIX}"), 1, &user("name: Ann", &["sn: A", "description: first"]));
    ad.page(b"1", true);
    let search = ad.next_search().expect("the next page");
    check(&search, b"1");
    ad.entry(&format!("OU=People,{SUFFIX}"), 4, &PEOPLE);
    ad.entry(&format!("CN=Bob,OU=People,{SUFFIX}"), 2, &user("name: Bob", &["sn: B"]));
    ad.page(b"2", false);
    assert_eq!(ad.next_search(), None, "the pass is over");
}

#[test]
fn an_active_directory_is_followed() {
    let directory = ScriptedDirectory::start();
    let mut consumer = consumer(&directory, "");
    let line = format!(
        "syncrepl rid=002 provider={} bindmethod=simple binddn=cn=admin,{SUFFIX} credentials=secret searchbase={SUFFIX} \
         type=refreshAndPersist retry=\"1 +\"\n",
        consumer.url()
    );
    let follower = Member::new(Kind::Larix, "schema active-directory", &line).started();
    first_content(&directory);

    // What has changed since.
    let mut ad = pass(&directory, b"2");
    let content = consumer.content(SUFFIX).unwrap();
    let ann = "cn=ann,ou=people";
    for (dn, name, expected) in [
        (ann, "entryUUID", "01010101-0101-0101-0101-010101010101"),
        (ann, "objectClass", "organizationalPerson|person|top|user"),
        (ann, "cn", "Ann"),
        (ann, "createTimestamp", "20260102030405Z"),
        (ann, "theirAttribute", ""),
        ("ou=people", "ou", "People"),
        ("cn=staff,ou=people", "member", "cn=Ann,ou=People,dc=example,dc=com"),
        // No entry of the suffix came: there is one for the cookie.
        ("", "objectClass", "domain|top"),
        ("", "dirSyncCookie", "2"),
    ] {
        assert_eq!(values(&content, dn, name), expected, "{dn} {name}");
    }
    follower.wait_until_like(&consumer);
    ad.entry(&format!("OU=Folk,{SUFFIX}"), 4, &["name: Folk"]);
    ad.entry(&format!("CN=Anna,OU=Folk,{SUFFIX}"), 1, &["name: Anna", "sn: AA", "description"]);
    let (gone, come) = (
        format!("member;range=0-0: CN=Ann,OU=People,{SUFFIX}"),
        format!("member;range=1-1: CN=Anna,OU=Folk,{SUFFIX}"),
    );
    ad.entry(&format!("CN=staff,OU=Folk,{SUFFIX}"), 3, &[&gone, &come]);
    ad.entry("CN=Bob\\0ADEL:02,CN=Deleted Objects,DC=example,DC=com", 2, &["isDeleted: TRUE"]);
    ad.entry("CN=Nobody\\0ADEL:09,CN=Deleted Objects,DC=example,DC=com", 9, &["isDeleted: TRUE"]);
    // One that the filter did not take before: what changed is not all of it.
    let eve = format!("CN=Eve,OU=Folk,{SUFFIX}");
    ad.entry(&eve, 5, &["description: new"]);
    ad.page(b"3", false);
    let search = ad.next_search().expect("a search for the entry");
    assert_eq!((search.base.as_str(), search.cookie, search.filter.as_str()), (eve.as_str(), None, FILTER));
    ad.entry(&eve, 5, &user("name: Eve", &["sn: E", "description: new"]));
    ad.done(ResultCode::SUCCESS, &[]);
    assert_eq!(ad.next_search(), None);

    let mut ad = pass(&directory, b"3");
    let content = consumer.content(SUFFIX).unwrap();
    for (dn, name, expected) in [
        ("cn=anna,ou=folk", "entryUUID", "01010101-0101-0101-0101-010101010101"),
        ("cn=anna,ou=folk", "cn", "Anna"),
        ("cn=anna,ou=folk", "sn", "AA"),
        ("cn=anna,ou=folk", "description", ""),
        ("cn=eve,ou=folk", "sn", "E"),
        ("cn=staff,ou=folk", "member", "cn=Anna,ou=Folk,dc=example,dc=com"),
        ("ou=folk", "ou", "Folk"),
    ] {
        assert_eq!(values(&content, dn, name), expected, "{dn} {name}");
    }
    assert_eq!(content.len(), 5, "{:?}", content.keys());
    follower.wait_until_like(&consumer);
    // It takes the cookie no longer: everything comes again, and what does not come is gone.
    ad.done(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, &[]);
    drop(ad);
    let mut ad = pass(&directory, b"");
    ad.entry(
        &format!("OU=Folk,{SUFFIX}"),
        4,
        &["objectClass: top", "objectClass: organizationalUnit", "name: Folk"],
    );
    ad.entry(&eve, 5, &user("name: Eve", &["sn: E"]));
    ad.page(b"7", false);
    drop(ad);
    let ad = pass(&directory, b"7");
    consumer.wait_for("what is left", |content| content.len() == 3);
    follower.wait_until_like(&consumer);
    // The next run of the server goes on from there.
    consumer.stop();
    drop(ad);
    consumer.start();
    drop(pass(&directory, b"7"));
    consumer.wait_for_log("sending a cookie of 1 bytes");
}

#[test]
fn what_is_refused_is_said() {
    let directory = ScriptedDirectory::start();
    let consumer = consumer(&directory, "");
    let (mut ad, _) = directory.accept();
    ad.done(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, &[]);
    consumer.wait_for_log("the bind DN needs the right Replicating Directory Changes there; again in 1 s");
    // A server that is none.
    let mut ad = pass(&directory, b"");
    ad.done(ResultCode::SUCCESS, &[]);
    consumer.wait_for_log("answers without a DirSync control: is it an Active Directory?");
    let mut ad = pass(&directory, b"");
    ad.done(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, &[]);
    consumer.wait_for_log("; is it an Active Directory?; again");
}
