//! The first fill of an empty consumer: all at once, whatever is killed or cut while it goes on.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use larix_proto::Scope;
use larix_proto::extended::SyncInfo;
use larix_testkit::Kind;
use larix_tests::relay::{Passage, Relay};
use larix_tests::replicas::{ADMIN, LOG, Member, Merging, SUFFIX, ask, members, people};
use larix_tests::scripted::{ConsumerSearch, ScriptedProvider};
use larix_tests::sync::{SyncSearch, read};

const FILLED: &str = "the database was filled with ";
const PEOPLE: usize = 1_500;
/// Until who follows somebody has been told that there is nothing.
const SETTLED: Duration = Duration::from_millis(500);

fn provider(kind: Kind) -> Member {
    let member = Member::new(kind, "", "overlay syncprov");
    member.site.load_into(Some(SUFFIX), &people(PEOPLE));
    member.started()
}

fn line(url: &str, more: &str) -> String {
    format!(
        "syncrepl rid=001 provider={url} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} type=refreshAndPersist retry=\"1 +\" {more}\n"
    )
}

fn consumer(url: &str, more: &str) -> Member {
    Member::new(Kind::Larix, "", &line(url, more)).arguments(&["-d", "16384"])
}

fn relay(provider: &Member) -> (Relay, String) {
    let relay = Relay::start();
    relay.lead_to(SocketAddr::from(([127, 0, 0, 1], provider.port)));
    let url = format!("ldap://{}", relay.address);
    (relay, url)
}

fn change(provider: &Member, title: &str) {
    provider.change(&format!("modify \"uid=u7,ou=people,{SUFFIX}\"\n  replace title: {title}"));
}

#[test]
fn an_empty_consumer_is_filled_at_once_and_goes_on() {
    for kind in [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking()) {
        let provider = provider(kind);
        let mut consumer = consumer(&provider.url(), "").started();
        consumer.wait_for_log(&format!("{FILLED}{} entries", PEOPLE + 3));
        consumer.wait_until_like(&provider);
        change(&provider, "Seventh");
        consumer.wait_until_like(&provider);
        // It comes back with what it has.
        consumer.stop();
        change(&provider, "Again");
        consumer.start();
        consumer.wait_until_like(&provider);
        assert_eq!(consumer.log().matches(FILLED).count(), 1, "{}", consumer.log());
    }
}

#[test]
fn one_who_follows_whom_is_filled_is_told_all() {
    let provider = provider(Kind::Larix);
    let (relay, url) = relay(&provider);
    relay.set(Passage::Cut);
    let middle = consumer(&url, "\noverlay syncprov").started();
    let last = consumer(&middle.url(), "").started();
    relay.set(Passage::Open);
    last.wait_until_like(&provider);
    middle.wait_until_like(&provider);
    change(&provider, "Seventh");
    last.wait_until_like(&provider);
}

#[test]
fn killed_in_the_middle_it_begins_anew() {
    let provider = provider(Kind::Larix);
    let (relay, url) = relay(&provider);
    let mut consumer = consumer(&url, "");
    for bytes in [1, 100_000, 400_000] {
        relay.set(Passage::Open);
        relay.silent_after(bytes);
        consumer.start();
        relay.wait_for_silence();
        consumer.kill();
        relay.set(Passage::Cut);
    }
    relay.set(Passage::Open);
    consumer.start();
    consumer.wait_for_log(FILLED);
    consumer.wait_until_like(&provider);
}

#[test]
fn a_provider_that_is_killed_in_the_middle_is_asked_again() {
    let mut provider = provider(Kind::Larix);
    let (relay, url) = relay(&provider);
    relay.silent_after(300_000);
    let consumer = consumer(&url, "").started();
    relay.wait_for_silence();
    provider.kill();
    relay.set(Passage::Cut);
    provider.start();
    change(&provider, "Seventh");
    relay.set(Passage::Open);
    consumer.wait_for_log(FILLED);
    consumer.wait_until_like(&provider);
}

#[test]
fn what_cannot_be_stored_as_a_whole_comes_in_batches() {
    let provider = provider(Kind::Larix);
    // The unit's place is not there before those who are in it.
    provider.change(&format!(
        "add \"ou=new,{SUFFIX}\"\n  objectClass: organizationalUnit\n  ou: new\n\n\
         modrdn \"uid=u1,ou=people,{SUFFIX}\" uid=u1 delete ou=new,{SUFFIX}"
    ));
    let consumer = consumer(&provider.url(), "").started();
    consumer.wait_for_log(FILLED);
    consumer.wait_until_like(&provider);
    // Part of it is no matter of a load.
    let part = "filter=\"(|(description=even)(objectClass=organization)(objectClass=organizationalUnit))\"";
    let part =
        Member::new(Kind::Larix, "", &line(&provider.url(), part)).arguments(&["-d", "16384"]).started();
    part.wait_for_log("the refresh is complete");
    assert!(!part.log().contains(FILLED), "{}", part.log());
}

const CSN: &str = "20261101000000.000000Z#000000#001#000000";
const LATER: &str = "20261101000009.000000Z#000000#001#000000";
/// Behind the deletes: what it says would be done if they were not remembered.
const LATEST: &str = "20261101000019.000000Z#000000#001#000000";
/// Of an entry that was deleted while it was unknown here.
const DELETED: u128 = 2;
/// UUIDs in one message.
const UUIDS: u128 = 200;

/// A member that has nothing.
fn member(provider: SocketAddr) -> Member {
    let line = format!(
        "syncrepl rid=001 provider=ldap://{provider} searchbase={SUFFIX} bindmethod=simple type=refreshAndPersist retry=\"1 +\"\n\
         multiprovider on\noverlay syncprov\ndatabase monitor\n"
    );
    Member::new(Kind::Larix, "serverID 2", &line).arguments(&["-d", "16384"])
}

fn send(search: &mut ConsumerSearch, uuid: u128, name: &str, csn: &str) {
    let dn = format!("{name}{SUFFIX}");
    let (attribute, value) = dn.split(',').next().and_then(|rdn| rdn.split_once('=')).unwrap();
    let class = if attribute == "ou" { "organizationalUnit" } else { "domain" };
    let attributes = [
        ("structuralObjectClass", class),
        ("objectClass", class),
        (attribute, value),
        ("entryCSN", csn),
        ("createTimestamp", "20261101000000Z"),
    ];
    search.add(&dn, uuid.to_be_bytes(), &attributes);
}

/// One entry, and so many deletes beside it.
fn send_first(search: &mut ConsumerSearch, deletes: u128) {
    send(search, 1, "", CSN);
    let all: Vec<u128> = (DELETED..DELETED + deletes).collect();
    for some in all.chunks(UUIDS as usize) {
        let uuids = some.iter().map(|uuid| uuid.to_be_bytes()).collect();
        let cookie = format!("rid=001,delcsn={LATER}");
        search.inform(&SyncInfo::IdSet { cookie: Some(cookie.as_bytes()), deletes: true, uuids });
    }
    let cookie = format!("rid=001,csn={LATER}");
    search.inform(&SyncInfo::RefreshPresent { cookie: Some(cookie.as_bytes()), done: true });
}

/// Somebody still has the entry that was deleted: it does not come back.
fn stays_deleted(search: &mut ConsumerSearch, consumer: &Member) {
    send(search, DELETED, "ou=deleted,", LATEST);
    send(search, u128::MAX, "ou=kept,", LATEST);
    let kept = format!("ou=kept,{SUFFIX}");
    consumer.wait_for("what is new", |content| content.contains_key(&kept));
    let content = consumer.content(SUFFIX).unwrap();
    assert!(!content.contains_key(&format!("ou=deleted,{SUFFIX}")), "{content:?}");
    let request = SyncSearch { scope: Scope::Base, attributes: &["contextCSN"], ..SyncSearch::default() };
    let base = read(consumer.address(), &request).and_then(|entries| entries.into_values().next()).unwrap();
    let context: Vec<_> = base["contextcsn"].iter().map(|csn| String::from_utf8_lossy(csn)).collect();
    // Who refuses an entry may tell its delete again, under a CSN of its own.
    assert!(context.iter().any(|csn| csn == LATER), "{context:?}");
}

/// Of the deletes that come with the first content nothing was here. They are remembered with it: an entry that somebody
/// still has does not come back.
#[test]
fn deletes_beside_the_first_content_are_remembered() {
    let other = ScriptedProvider::start();
    let consumer = member(other.address).started();
    let mut search = other.accept();
    send_first(&mut search, 1);
    stays_deleted(&mut search, &consumer);
    consumer.wait_for_log(FILLED);
}

/// A provider may remember any number of them.
#[test]
fn many_deletes_beside_the_first_content_are_stored_in_batches() {
    let other = ScriptedProvider::start();
    let consumer = member(other.address).started();
    let mut search = other.accept();
    send_first(&mut search, 12_000);
    stays_deleted(&mut search, &consumer);
    let monitor =
        "search \"cn=Database 1,cn=Databases,cn=Larix,cn=Monitor\" base (objectClass=*) monitoredInfo";
    let figures = ask(&mut consumer.client(), monitor);
    let groups = figures
        .lines()
        .find_map(|line| line.trim().strip_prefix("monitoredInfo: groups=")?.parse::<u32>().ok());
    // Two batches of a thousand are one group at most, and what comes behind them takes three.
    assert!(groups.is_some_and(|groups| groups > 6), "{figures}");
}

/// The deletes are stored behind the content. Killed between the two, or while they are stored, it asks for all once more:
/// that it has content says nothing of how far that goes, and it is none of its own.
#[test]
fn killed_before_the_deletes_are_stored_it_asks_for_all_again() {
    // Told twice, and still fewer than the change log keeps: beyond 16,384 records the oldest deletes are forgotten.
    const DELETES: u128 = 6_000;
    let other = ScriptedProvider::start();
    let mut consumer = member(other.address);
    consumer.start();
    let mut search = other.accept();
    send_first(&mut search, DELETES);
    consumer.wait_for_log(FILLED);
    consumer.kill();
    consumer.start();
    let mut search = other.accept();
    assert!(!consumer.log().contains("#002#"), "it claims what it was sent: {}", consumer.log());
    send_first(&mut search, DELETES);
    stays_deleted(&mut search, &consumer);
}

/// What members keep of who changed what when comes with the content, and consumers of the newcomer's log learn what it
/// lacks.
#[test]
fn a_newcomer_among_members_is_filled_at_once() {
    for merging in [Merging::Records, Merging::Values] {
        let mut members = members(3, merging);
        members[0].site.load_into(Some(SUFFIX), &people(PEOPLE));
        members[..2].iter_mut().for_each(Member::start);
        members[1].wait_until_like(&members[0]);
        let person = |number: u32| format!("modify \"uid=u{number},ou=people,{SUFFIX}\"\n  ");
        for number in 0..50 {
            let (first, second) = (person(number), person(number + 25));
            members[0].change(&format!("{first}add title: a | b\n\n{first}delete title: a"));
            members[1].change(&format!("{second}add title: c\n\n{second}replace initials: XY"));
        }
        members[0].wait_until_like(&members[1]);
        members[2].start();
        members[2].wait_for_log(&format!("{FILLED}{} entries", PEOPLE + 3));
        members[2].wait_until_like(&members[0]);
        let all_alike = |members: &[Member]| {
            for _ in 0..2 {
                members[1..].iter().for_each(|member| member.wait_until_like(&members[0]));
            }
        };
        for (number, member) in members.iter().enumerate() {
            member.change(&format!("{}add title: from{number}", person(30)));
        }
        all_alike(&members);
        // It has been told everything, and tells it to who comes back.
        members[1].stop();
        members[0].change(&format!("{}delete title: from1", person(30)));
        members[2].change(&format!("{}delete title: c", person(30)));
        members[2].wait_until_like(&members[0]);
        members[0].stop();
        members[1].start();
        members[1].wait_until_like(&members[2]);
        members[0].start();
        all_alike(&members);
        assert_eq!(members[2].log().matches(FILLED).count(), 1, "{}", members[2].log());
    }
}

/// What the first content brought is not in the access log. A consumer that followed it before asks for the entries.
#[test]
fn who_follows_the_log_of_one_that_is_filled_is_told_all() {
    for kind in [Kind::Larix, Kind::Slapd].into_iter().filter(|kind| !kind.is_lacking()) {
        let mut members = members(2, Merging::Records);
        members[0].site.load_into(Some(SUFFIX), &people(PEOPLE));
        members[1].start();
        let filter = "logfilter=\"(&(objectClass=auditWriteObject)(reqResult=0))\"";
        let more = format!("logbase={LOG} {filter} syncdata=accesslog");
        let last = Member::new(kind, "", &line(&members[1].url(), &more)).started();
        // It goes through content that is not there, and waits for changes.
        thread::park_timeout(SETTLED);
        members[0].start();
        members[1].wait_for_log(FILLED);
        last.wait_for("the first content", |content| content.len() == PEOPLE + 3);
        change(&members[0], "Seventh");
        let seventh = format!("uid=u7,ou=people,{SUFFIX}");
        last.wait_for("a change behind it", |content| content[&seventh].contains_key("title"));
    }
}

/// Batches of a first refresh that is broken off stay. A slapd that is asked without a cookie ends with a delete phase that names
/// nothing: what it did not send is gone.
#[test]
fn what_a_broken_refresh_left_goes_if_the_provider_has_it_no_longer() {
    let other = ScriptedProvider::start();
    let line = format!(
        "syncrepl rid=001 provider=ldap://{} searchbase={SUFFIX} bindmethod=simple type=refreshAndPersist retry=\"1 +\" \
         exattrs=description",
        other.address
    );
    let consumer = Member::new(Kind::Larix, "", &line).started();
    let mut search = other.accept();
    let gone = format!("ou=gone,{SUFFIX}");
    send(&mut search, 1, "", CSN);
    send(&mut search, 2, "ou=gone,", CSN);
    consumer.wait_for("the begin of the content", |content| content.contains_key(&gone));
    drop(search);
    let mut search = other.accept();
    send(&mut search, 1, "", CSN);
    let cookie = format!("rid=001,csn={LATER}");
    search.inform(&SyncInfo::RefreshDelete { cookie: Some(cookie.as_bytes()), done: true });
    consumer.wait_for("the content", |content| content.len() == 1);
}
