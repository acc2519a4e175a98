use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::file::LogFile;
use super::*;

pub(super) fn settings(path: &Path, levels: u32) -> LogSettings {
    LogSettings { levels, file: Some(LogFile::open(path, None).unwrap()), ..LogSettings::silent() }
}

pub(super) fn texts(path: &Path) -> Vec<String> {
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

/// A pipe is full until somebody reads, as a disk is until somebody makes room.
pub(super) struct Pipe {
    _directory: tempfile::TempDir,
    pub(super) path: PathBuf,
    reader: File,
}

impl Pipe {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let reader = Self::without_waiting(File::options().read(true)).open(&path).unwrap();
        Self { _directory: directory, path, reader }
    }

    fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
    }

    /// The bytes that wait to be read.
    fn waiting(&self) -> usize {
        usize::try_from(rustix::io::ioctl_fionread(&self.reader).unwrap()).unwrap()
    }

    /// How many bytes the empty pipe takes. It is empty afterwards.
    fn room(&mut self) -> usize {
        let mut filler = Self::without_waiting(File::options().append(true)).open(&self.path).unwrap();
        while filler.write(&[b'x'; 4_096]).is_ok() {}
        let bytes = self.waiting();
        self.reader.read_exact(&mut vec![0; bytes]).unwrap();
        bytes
    }

    /// Fills it but for so many bytes of its last page. Answers how many are in it.
    pub(super) fn fill_but(&mut self, left: usize) -> usize {
        let bytes = self.room() - left;
        let mut filler = File::options().append(true).open(&self.path).unwrap();
        filler.write_all(&vec![b'x'; bytes]).unwrap();
        bytes
    }

    /// Reads what is there.
    pub(super) fn take(&mut self) -> String {
        let mut bytes = Vec::new();
        // More would have to be waited for, which is an error.
        let _ = self.reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Until the file says that it takes lines again, and how many it did not take.
    fn await_report(&mut self, log: &Log) {
        let mut written = String::new();
        larix_testkit::until("the file says so", || {
            log.line(LogLevel::STATS, format_args!("another one"));
            written.push_str(&self.take());
            written.contains("pipe takes lines again; ") && written.contains(" before this one are lost")
        });
    }
}

#[test]
fn a_file_that_takes_lines_again_says_how_many_are_lost() {
    let mut pipe = Pipe::new();
    let (log, thread) = Log::start(settings(&pipe.path, LogLevel::STATS), LogCall::default()).unwrap();
    while log.unwritten() == 0 {
        log.line(LogLevel::STATS, format_args!("line {}", "x".repeat(1_000)));
    }
    pipe.await_report(&log);
    thread.finish();
}

#[test]
fn a_report_that_found_no_room_comes_later() {
    let mut pipe = Pipe::new();
    let (log, thread) = Log::start(settings(&pipe.path, LogLevel::STATS), LogCall::default()).unwrap();
    // Enough for the time and a letter.
    let bytes = pipe.fill_but(80);
    log.line(LogLevel::STATS, format_args!("{}", "x".repeat(1_000)));
    larix_testkit::until("the line found no room", || log.unwritten() == 1);
    log.line(LogLevel::STATS, format_args!("x"));
    larix_testkit::until("the letter is in the pipe", || pipe.waiting() > bytes);
    pipe.await_report(&log);
    thread.finish();
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
    thread.finish();
    assert_eq!(log.unwritten(), 1);
    let recent = log.recent();
    assert!(recent.iter().any(|line| line.contains("log: /dev/full takes no lines")), "{recent:?}");
}

fn batch(bytes: usize) -> Batch {
    let mut batch = Batch::new();
    let text = "x".repeat(bytes);
    batch.add((LogLevel::STATS, Severity::Info, Kind::Text), format_args!("{text}"));
    batch
}

#[test]
fn what_a_log_that_hangs_does_not_take_is_counted() {
    let (queue, orders) = sync_channel(1);
    let shared = Shared::new(queue, Duration::ZERO);
    let lost = || shared.lost.load(Ordering::Relaxed);
    shared.queue(batch(QUEUE_BYTES + 1));
    assert_eq!(lost(), 1, "too many bytes");
    shared.queue(batch(1));
    assert_eq!(lost(), 1);
    for expected in [2, 3] {
        shared.queue(batch(1));
        assert_eq!((lost(), shared.room().hangs), (expected, true), "too many batches");
    }
    assert_eq!(shared.waiting.load(Ordering::Relaxed), batch(1).size());
    shared.took(batch(1).size());
    assert!(!shared.room().hangs, "it is waited for again");
    drop(orders);
    shared.queue(batch(1));
    assert_eq!(lost(), 4, "nobody takes lines any more");
}

#[test]
fn a_full_queue_is_waited_for() {
    const BATCHES: usize = 1_000;
    let (queue, orders) = sync_channel(1);
    // Waited for in vain it would be for an hour.
    let shared = Shared::new(queue, Duration::from_secs(3_600));
    std::thread::scope(|scope| {
        let shared = &shared;
        scope.spawn(move || {
            for _ in 0..BATCHES {
                let Ok(Order::Lines(batch)) = orders.recv() else { panic!("no lines") };
                shared.took(batch.size());
            }
        });
        (0..BATCHES).for_each(|_| shared.queue(batch(3)));
    });
    let counts = (shared.lost.load(Ordering::Relaxed), shared.waiting.load(Ordering::Relaxed));
    assert_eq!((counts, shared.room().waiting), ((0, 0), 0));
}

#[test]
fn lines_about_operations_stand_between_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (log, thread) = Log::start(settings(&path, LogLevel::STATS), LogCall::default()).unwrap();
    let schema = Arc::new(Schema::system().clone());
    let line = |serial, what| OperationLine { connection: 1, serial, what };
    log.gather();
    log.line(LogLevel::STATS, format_args!("conn=1 fd=9 ACCEPT"));
    let names = |names: &'static str| move |out: &mut Vec<u8>| out.extend_from_slice(names.as_bytes());
    log.operation(line(0, What::Change { word: "ADD" }), Some(&schema), names("CN=a, cn=b"));
    log.operation(line(1, What::Attributes { word: "SRCH" }), None, names("cn sn"));
    log.line(LogLevel::STATS, format_args!("conn=1 fd=9 closed"));
    hand_over();
    GATHERED.set(None);
    // No thread gathers here.
    log.operation(line(2, What::Change { word: "DEL" }), Some(&schema), names("cn=a"));
    thread.finish();
    let expected = [
        "conn=1 fd=9 ACCEPT",
        "conn=1 op=0 ADD dn=\"cn=a,cn=b\"",
        "conn=1 op=1 SRCH attr=cn sn",
        "conn=1 fd=9 closed",
        "conn=1 op=2 DEL dn=\"cn=a\"",
    ];
    assert_eq!(texts(&path), expected);
}

#[test]
fn facilities_are_those_of_slapd() {
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
