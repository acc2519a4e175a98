use std::path::Path;

use super::file::LogFile;
use super::*;

fn settings(path: &Path, levels: u32) -> LogSettings {
    LogSettings { levels, file: Some(LogFile::open(path, None).unwrap()), ..LogSettings::silent() }
}

fn texts(path: &Path) -> Vec<String> {
    let written = std::fs::read_to_string(path).unwrap();
    written.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap().to_owned()).collect()
}

#[test]
fn lines_reach_the_file_in_order_and_only_those_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (log, thread) = Log::start(settings(&path, LogLevel::STATS), LogCall::default()).unwrap();
    for n in 0..3 {
        log.line(LogLevel::STATS, format_args!("conn={n} fd=1 closed"));
        log.line(LogLevel::STATS2, format_args!("not wanted"));
    }
    thread.finish();
    assert_eq!(texts(&path), ["conn=0 fd=1 closed", "conn=1 fd=1 closed", "conn=2 fd=1 closed"]);
}

#[test]
fn gathered_lines_are_handed_over_together_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (log, thread) = Log::start(settings(&path, LogLevel::STATS), LogCall::default()).unwrap();
    log.gather();
    for n in 0..2_000 {
        log.line(LogLevel::STATS, format_args!("line {n}"));
    }
    hand_over();
    thread.finish();
    let expected: Vec<String> = (0..2_000).map(|n| format!("line {n}")).collect();
    assert_eq!(texts(&path), expected);
    GATHERED.set(None);
}

#[test]
fn levels_change_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (log, thread) = Log::start(settings(&path, 0), LogCall::default()).unwrap();
    log.line(LogLevel::STATS, format_args!("not yet"));
    log.set_levels(LogLevel::STATS);
    assert!(log.wants(LogLevel::STATS));
    log.line(LogLevel::STATS, format_args!("now"));
    log.set_levels(0);
    log.line(LogLevel::STATS, format_args!("no more"));
    thread.finish();
    assert_eq!(texts(&path), ["now"]);
}

#[test]
fn other_settings_take_over_between_two_lines() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let (log, thread) = Log::start(settings(&first, LogLevel::STATS), LogCall::default()).unwrap();
    log.line(LogLevel::STATS, format_args!("one"));
    log.publish(LogSettings { format: LogFormat::Json, ..settings(&second, LogLevel::STATS) });
    assert!(log.wants_records() && !log.wants_stats_lines());
    log.line(LogLevel::STATS, format_args!("two"));
    thread.finish();
    assert_eq!(texts(&first), ["one"]);
    let written = std::fs::read_to_string(&second).unwrap();
    assert!(written.ends_with("\"severity\":\"info\",\"message\":\"two\"}\n"), "{written}");
}

#[test]
fn a_full_disk_loses_lines_and_nothing_else() {
    let (log, thread) =
        Log::start(settings(Path::new("/dev/full"), LogLevel::STATS), LogCall::default()).unwrap();
    log.line(LogLevel::STATS, format_args!("one"));
    let shared = log.shared;
    thread.finish();
    assert_eq!(shared.unwritten.load(Ordering::Relaxed), 1);
}

#[test]
fn too_much_is_counted_and_dropped() {
    let (queue, orders) = sync_channel(1);
    let shared = Shared {
        levels: AtomicU32::new(LogLevel::STATS),
        json: AtomicBool::new(false),
        slow: AtomicU64::new(u64::MAX),
        waiting: AtomicUsize::new(0),
        lost: AtomicU64::new(0),
        unwritten: AtomicU64::new(0),
        recent: Mutex::default(),
        queue,
    };
    let batch = |bytes: usize| {
        let mut batch = Batch::default();
        let text = "x".repeat(bytes);
        batch.add((LogLevel::STATS, Severity::Info, Kind::Text), format_args!("{text}"));
        batch
    };
    let lost = || shared.lost.load(Ordering::Relaxed);
    shared.queue(batch(QUEUE_BYTES + 1));
    assert_eq!(lost(), 1, "too many bytes");
    shared.queue(batch(1));
    assert_eq!(lost(), 1);
    shared.queue(batch(1));
    assert_eq!(lost(), 2, "too many batches");
    assert_eq!(shared.waiting.load(Ordering::Relaxed), 1);
    drop(orders);
}

#[test]
fn facilities() {
    for (name, expected) in
        [("LOCAL4", Some(20)), ("local0", Some(16)), ("DAEMON", Some(3)), ("LOCAL8", None), ("MAIL", None)]
    {
        assert_eq!(syslog_facility(name), expected, "{name}");
    }
}

#[test]
fn a_client_cannot_write_lines() {
    assert_eq!(printable("cn=a\nconn=1 fd=2 closed"), "cn=a#0Aconn=1 fd=2 closed");
}
