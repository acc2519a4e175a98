//! What a replica and its provider say of themselves: in cn=Monitor, in metrics, and to who asks whether clients may come.

use std::path::PathBuf;
use std::time::Duration;

use larix_testkit::Kind;
use larix_tests::http;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, people};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

const STEPS: u32 = 3_600;
const STEP: Duration = Duration::from_millis(50);
const PEOPLE: usize = 40;

fn member(global: &str, database: &str) -> Member {
    let member = Member::with(
        Kind::Larix,
        larix_testkit::process::free_port(),
        &format!(
            "http-listener http://127.0.0.1:0/\n{global}\ndatabase config\nrootpw secret\n\
             database monitor\naccess to * by dn.exact={ADMIN} read by * none\n\
             database mdb\nsuffix {SUFFIX}\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             index objectClass,entryUUID,entryCSN,uid eq\n{database}\n"
        ),
    );
    let ports = ports_of(&member).display().to_string();
    member.arguments(&["--port-file", &ports])
}

fn ports_of(member: &Member) -> PathBuf {
    member.site.configuration().with_extension("port")
}

/// Each start has a port for HTTP of its own.
fn start(member: &mut Member) {
    let _ = std::fs::remove_file(ports_of(member));
    member.start();
    becomes("the ports", || ports_of(member).exists().to_string(), |there| there == "true");
}

/// Status and body.
fn get(member: &Member, path: &str) -> (u16, String) {
    let ports = std::fs::read_to_string(ports_of(member)).unwrap();
    let port: u16 = ports.lines().nth(1).and_then(|port| port.parse().ok()).unwrap();
    let (status, _, body) = http::get(("127.0.0.1", port), path);
    (status, body)
}

/// Asks until the answer is this.
fn becomes(what: &str, ask: impl Fn() -> String, wanted: impl Fn(&str) -> bool) {
    let mut last = String::new();
    for _ in 0..STEPS {
        last = ask();
        if wanted(&last) {
            return;
        }
        std::thread::park_timeout(STEP);
    }
    panic!("{what}: it never came to that:\n{last}");
}

fn is_ready(member: &Member, status: u16, why: &str) {
    let ask = || {
        let (status, body) = get(member, "/health/ready");
        format!("{status} {body}")
    };
    becomes("/health/ready", ask, |answer| answer.starts_with(&status.to_string()) && answer.contains(why));
}

/// What is said of one entry below cn=Replication,cn=Larix,cn=Monitor, a word a line.
fn monitored(member: &Member, name: &str) -> String {
    let base = format!("cn={name},cn=Replication,cn=Larix,cn=Monitor");
    let Some(content) = member.content_as(ADMIN, &base) else { return String::new() };
    let words = content.values().flat_map(|entry| entry.get("monitoredinfo").into_iter().flatten());
    words.map(|word| String::from_utf8_lossy(word).into_owned() + "\n").collect()
}

fn monitor_says(member: &Member, name: &str, words: &[&str]) {
    becomes(
        name,
        || monitored(member, name),
        |text| words.iter().all(|word| text.lines().any(|l| l == *word)),
    );
}

fn metrics_say(member: &Member, lines: &[&str]) {
    let ask = || get(member, "/metrics").1;
    becomes("/metrics", ask, |text| lines.iter().all(|line| text.lines().any(|other| other == *line)));
}

#[test]
fn a_replica_says_how_it_stands() {
    let mut provider = member("", "overlay syncprov");
    provider.site.load_into(Some(SUFFIX), &people(PEOPLE));
    let line = format!(
        "syncrepl rid=001 provider={} bindmethod=simple binddn={ADMIN} credentials=secret \
         searchbase={SUFFIX} retry=\"1 +\" type=refreshAndPersist",
        provider.url()
    );
    let mut consumer = member("replica-max-lag 1", &line);

    // The provider is not there yet: nobody may be sent to an empty replica.
    start(&mut consumer);
    is_ready(&consumer, 503, "the first refresh from its provider is not complete");
    monitor_says(&consumer, "Consumer 001", &["refreshed=false", "applied=0"]);
    becomes("the failure", || monitored(&consumer, "Consumer 001"), |text| text.contains("error="));
    metrics_say(
        &consumer,
        &[
            "larix_replication_consumer_refreshed{suffix=\"dc=example,dc=com\",rid=\"001\"} 0.0",
            "larix_replication_consumer_failed{suffix=\"dc=example,dc=com\",rid=\"001\"} 1.0",
        ],
    );

    start(&mut provider);
    consumer.wait_until_like(&provider);
    is_ready(&consumer, 200, "ready");
    monitor_says(
        &consumer,
        "Consumer 001",
        &["phase=persisting", "refreshed=true", "silence_us=0", "conflicts=0", "refused=0"],
    );
    assert!(
        !monitored(&consumer, "Consumer 001").contains("error="),
        "{}",
        monitored(&consumer, "Consumer 001")
    );
    metrics_say(
        &consumer,
        &[
            "larix_replication_consumer_persisting{suffix=\"dc=example,dc=com\",rid=\"001\"} 1.0",
            "larix_replication_consumer_refreshed{suffix=\"dc=example,dc=com\",rid=\"001\"} 1.0",
            "larix_replication_consumer_failed{suffix=\"dc=example,dc=com\",rid=\"001\"} 0.0",
            "larix_replication_consumer_silence_seconds{suffix=\"dc=example,dc=com\",rid=\"001\"} 0.0",
        ],
    );
    // The other side of it.
    monitor_says(&provider, "Peer 0", &["rid=001", "behind_changes=0", "behind_us=0"]);
    metrics_say(&provider, &["larix_replication_peers 1.0"]);
    is_ready(&provider, 200, "ready");

    let applied = |text: &str| {
        text.lines().find_map(|line| line.strip_prefix("applied=")?.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = applied(&monitored(&consumer, "Consumer 001"));
    provider.change("modify \"uid=u1,ou=people,dc=example,dc=com\"\n  replace title: One");
    becomes(
        "one change more",
        || monitored(&consumer, "Consumer 001"),
        |text| applied(text) == before + 1 && text.contains("delay_us=") && text.contains("last_change="),
    );

    // What nobody brings up to date is not to be asked for ever.
    provider.stop();
    is_ready(&consumer, 503, "nothing was heard of its provider for");
    monitor_says(&consumer, "Consumer 001", &["refreshed=true"]);
    start(&mut provider);
    is_ready(&consumer, 200, "ready");
    monitor_says(&consumer, "Consumer 001", &["phase=persisting", "silence_us=0"]);

    // Nor what cannot store what it hears. A limit on the size of files is a full disk.
    let limit = |bytes: Option<u64>| {
        let process = Pid::from_raw(i32::try_from(consumer.process_id().unwrap()).unwrap());
        prlimit(process, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    let before = applied(&monitored(&consumer, "Consumer 001"));
    limit(Some(std::fs::metadata(consumer.site.path().join("data/data.mdb")).unwrap().len()));
    let title = "x".repeat(2 << 20);
    provider.change(&format!("modify \"uid=u1,ou=people,dc=example,dc=com\"\n  replace title: {title}"));
    is_ready(&consumer, 503, "it has not caught up with its provider for");
    assert_eq!(applied(&monitored(&consumer, "Consumer 001")), before);
    limit(None);
    is_ready(&consumer, 200, "ready");
    monitor_says(&consumer, "Consumer 001", &["phase=persisting", "silence_us=0"]);
}
