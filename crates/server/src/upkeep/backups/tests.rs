use std::cell::Cell;

use larix_configuration::values::Throttle;
use larix_configuration::{Config, QuickStart};
use larix_proto::client::{self, ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation};

use super::*;
use crate::local::LocalServer;

#[test]
fn what_is_due() {
    let schedule = BackupSchedule {
        directory: "/b".into(),
        full: 1_000,
        increment: Some(100),
        keep: 2,
        throttle: Throttle::Unlimited,
    };
    let seconds = |seconds: i64| Timestamp(seconds * MICROS);
    let status = |full, last, error: Option<i64>| BackupStatus {
        last_full: Some(seconds(full)),
        last_success: Some(seconds(last)),
        last_error: error.map(|time| (seconds(time), String::new())),
        ..BackupStatus::default()
    };
    for (status, expected) in [
        (BackupStatus::default(), (Due::Full, Timestamp(i64::MIN))),
        (status(0, 0, None), (Due::Increment, seconds(100))),
        (status(0, 850, None), (Due::Increment, seconds(950))),
        (status(0, 950, None), (Due::Full, seconds(1_000))),
        (status(0, 0, Some(50)), (Due::Increment, seconds(350))),
        (status(0, 500, Some(699)), (Due::Increment, seconds(999))),
        // Once the full one is due, it does not wait for the increment.
        (status(0, 500, Some(700)), (Due::Full, seconds(1_000))),
        (status(0, 950, Some(1_010)), (Due::Full, seconds(1_310))),
    ] {
        assert_eq!(next(&schedule, &status), expected, "{status:?}");
    }
    let never = BackupSchedule { increment: None, ..schedule };
    assert_eq!(next(&never, &status(0, 0, None)), (Due::Full, seconds(1_000)));
}

const ADMIN: &str = "cn=admin,dc=example,dc=com";

/// A server of one database, backups in a folder beside it, and a clock that is set.
struct Bench {
    folder: tempfile::TempDir,
    local: LocalServer,
    seconds: Cell<i64>,
    schedule: BackupSchedule,
    written: Cell<u32>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (data, backups) = (folder.path().join("data"), folder.path().join("backups"));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&backups).unwrap();
        let config = Config::quick_start(&QuickStart {
            suffix: "dc=example,dc=com".to_owned(),
            directory: data,
            root_password: Some(b"secret".to_vec()),
            ..QuickStart::default()
        });
        let local = LocalServer::open(config.unwrap()).unwrap();
        let schedule = BackupSchedule {
            directory: backups,
            full: 1_000,
            increment: Some(100),
            keep: 2,
            throttle: Throttle::Unlimited,
        };
        let bench = Self { folder, local, seconds: Cell::new(0), schedule, written: Cell::new(0) };
        bench.request(|out, id| {
            let attributes = [
                ClientAttribute { description: "objectClass", values: &["dcObject", "organization"] },
                ClientAttribute { description: "dc", values: &["example"] },
                ClientAttribute { description: "o", values: &["0"] },
            ];
            client::add(out, id, "dc=example,dc=com", &attributes, &[]);
        });
        bench
    }

    fn request(&self, request: impl FnOnce(&mut Vec<u8>, MessageId)) {
        let (mut connection, mut out) = (self.local.connect(), Vec::new());
        let mut bytes = Vec::new();
        client::simple_bind(&mut bytes, MessageId(1), ADMIN, b"secret", &[]);
        connection.request(&bytes, &mut out);
        bytes.clear();
        out.clear();
        request(&mut bytes, MessageId(2));
        connection.request(&bytes, &mut out);
        // SEQUENCE, messageID, the answer, and in it the result's code: success.
        assert_eq!(out.get(7..10), Some(&[10, 1, 0][..]), "{out:02x?}");
    }

    fn write(&self) {
        self.written.set(self.written.get() + 1);
        let text = self.written.get().to_string();
        self.request(|out, id| {
            let values = [text.as_str()];
            let attribute = ClientAttribute { description: "o", values: &values };
            let change = ClientChange { operation: ModifyOperation::Replace, attribute };
            client::modify(out, id, "dc=example,dc=com", &[change], &[]);
        });
    }

    /// Lets the schedule act at so many seconds, until nothing is due. Answers how many seconds it then waits.
    fn at(&self, seconds: i64) -> u64 {
        self.seconds.set(seconds);
        let wall = || Timestamp((1_893_456_000 + self.seconds.get()) * MICROS);
        let waits = std::iter::repeat_with(|| step(self.local.server(), &self.schedule, &wall).as_secs());
        waits.take(5).find(|wait| *wait > 0).unwrap_or(0)
    }

    /// What is in the folder: the seconds of each full backup, and how many increments it has.
    fn chain_sizes(&self) -> Vec<(i64, usize)> {
        let seconds = |chain: &Chain| {
            let made = Timestamp::parse_generalized(&chain.full.made_at).unwrap();
            made.0 / MICROS - 1_893_456_000
        };
        let chains = all(&self.schedule.directory).into_iter().map(|path| Chain::read(&path).unwrap());
        chains.map(|chain| (seconds(&chain), chain.increments.len())).collect()
    }
}

#[test]
fn increments_follow_full_ones_and_old_ones_go() {
    let bench = Bench::new();
    let foreign = bench.schedule.directory.join("larix-of-my-own");
    fs::create_dir(&foreign).unwrap();
    for (seconds, wait, expected) in [
        (0, 30, &[(0, 0)][..]),
        (80, 20, &[(0, 0)]),
        (100, 30, &[(0, 1)]),
        (120, 30, &[(0, 1)]),
        // Late, it is made once.
        (750, 30, &[(0, 2)]),
        (850, 30, &[(0, 3)]),
        (940, 10, &[(0, 3)]),
        (950, 30, &[(0, 4)]),
        // The full one is due sooner than another increment.
        (980, 20, &[(0, 4)]),
        (1_000, 30, &[(0, 4), (1_000, 0)]),
        (1_100, 30, &[(0, 4), (1_000, 1)]),
        // Both are due: what was changed is safe first.
        (2_000, 30, &[(1_000, 2), (2_000, 0)]),
        // The machine was off.
        (9_000, 30, &[(2_000, 1), (9_000, 0)]),
    ] {
        bench.write();
        assert_eq!(bench.at(seconds), wait, "at {seconds}");
        assert_eq!(bench.chain_sizes(), expected, "at {seconds}");
    }
    assert!(foreign.is_dir(), "what is not a backup stays");
    let status = bench.local.server().backups.status();
    assert_eq!((status.successes, status.failures), (11, 0));
    let newest = fs::read_dir(&bench.schedule.directory).unwrap().count();
    assert_eq!(newest, 3, "nothing half removed is left");
}

/// Full backups have names of their own: what a killed server left of one is in nobody's way, and would fill the disk.
#[test]
fn what_a_killed_server_left_goes() {
    let bench = Bench::new();
    let place = |name: &str| bench.schedule.directory.join(name);
    let names = ["larix-20291231000000Z.part", "larix-20291230000000Z.removed"];
    let (busy, foreign) = ("larix-20291229000000Z.part", "larix-of-my-own.part");
    for name in names.into_iter().chain([busy, foreign]) {
        fs::create_dir_all(place(name).join("database-1")).unwrap();
        fs::write(place(name).join("database-1/data.mdb"), b"half").unwrap();
    }
    let held = fs::File::open(place(busy)).unwrap();
    held.lock().unwrap();
    bench.at(0);
    assert_eq!(bench.chain_sizes(), [(0, 0)]);
    for name in names {
        assert!(!place(name).exists(), "{name}");
    }
    assert!(place(busy).is_dir(), "it is being made");
    assert!(place(foreign).is_dir(), "what is not a backup stays");
    drop(held);
    bench.at(1_000);
    assert!(!place(busy).exists());
    assert_eq!(bench.local.server().backups.status().failures, 0);
}

/// A backup of a clock that was wrong holds up no other one, also where the server is started anew.
#[test]
fn a_clock_that_was_set_back_does_not_end_the_backups() {
    const WRONG: i64 = 100_000_000;
    let bench = Bench::new();
    for (seconds, expected) in [
        (0, &[(0, 0)][..]),
        (WRONG, &[(0, 1), (WRONG, 0)]),
        (2_000, &[(2_000, 0), (WRONG, 0)]),
        (2_100, &[(2_000, 1), (WRONG, 0)]),
    ] {
        bench.at(seconds);
        assert_eq!(bench.chain_sizes(), expected, "at {seconds}");
    }
    let now = Timestamp((1_893_456_000 + 2_100) * MICROS);
    let status = read_status(Some(&bench.schedule), &BackupStatus::default(), now);
    assert_eq!((status.last_success, status.age(now)), (Some(now), Some(0)));
}

/// Backups of a clock that was ahead have the last names. They do not push out the one that is made now.
#[test]
fn a_backup_that_is_made_now_stays_beside_those_of_later() {
    for (keep, gone) in [(1, 2), (2, 1)] {
        let mut bench = Bench::new();
        bench.schedule.keep = keep;
        let place = |time: &str| bench.schedule.directory.join(format!("larix-{time}"));
        let later = ["20981231000000Z", "20991231000000Z"].map(place);
        later.iter().for_each(|path| fs::create_dir(path).unwrap());
        bench.at(0);
        let left = all(&bench.schedule.directory);
        assert!(Chain::read(&left[0]).is_ok(), "keep={keep}: {left:?}");
        assert_eq!(left[1..], later[gone..], "keep={keep}");
    }
}

/// Such as one that another user owns.
#[test]
fn an_old_backup_that_cannot_be_removed_is_no_failure() {
    let mut bench = Bench::new();
    bench.schedule.keep = 1;
    // A file can be renamed, and not be removed as a directory.
    let (old, older) = ("larix-20200102000000Z", "larix-20200101000000Z");
    fs::create_dir(bench.schedule.directory.join(old)).unwrap();
    fs::write(bench.schedule.directory.join(older), b"").unwrap();
    for seconds in [0, 1_000] {
        bench.at(seconds);
        assert_eq!(bench.chain_sizes(), [(seconds, 0)], "the others go");
    }
    let status = bench.local.server().backups.status();
    assert!(status.failures == 0 && status.last_error.is_none(), "{status:?}");
}

#[test]
fn a_failure_is_tried_again_after_a_while() {
    let bench = Bench::new();
    let elsewhere = bench.folder.path().join("elsewhere");
    bench.at(0);
    // Without its folder nothing can be made.
    fs::rename(&bench.schedule.directory, &elsewhere).unwrap();
    fs::write(&bench.schedule.directory, b"").unwrap();
    bench.at(100);
    let status = bench.local.server().backups.status();
    assert!(status.last_error.is_some() && status.failures == 1, "{status:?}");
    bench.at(399);
    assert_eq!(bench.local.server().backups.status().failures, 1, "not yet");
    fs::remove_file(&bench.schedule.directory).unwrap();
    fs::rename(&elsewhere, &bench.schedule.directory).unwrap();
    bench.at(400);
    let status = bench.local.server().backups.status();
    assert!(status.last_error.is_none() && status.successes == 2, "{status:?}");
    assert_eq!(bench.chain_sizes(), [(0, 1)]);
}

/// As where a finished backup may not be written any more.
#[test]
fn a_full_backup_does_not_wait_for_an_increment_that_fails() {
    let bench = Bench::new();
    bench.at(0);
    // A file is not removed as what a killed server left.
    let part = all(&bench.schedule.directory)[0].join("increment-000001.part");
    fs::write(part, b"").unwrap();
    for (number, seconds) in (1..).zip([100, 400, 700]) {
        bench.at(seconds);
        assert_eq!(bench.local.server().backups.status().failures, number, "{seconds}");
    }
    bench.at(1_000);
    assert_eq!(bench.chain_sizes(), [(0, 0), (1_000, 0)]);
    let status = bench.local.server().backups.status();
    assert!(status.last_error.is_none(), "{status:?}");
}

#[test]
fn an_increment_that_does_not_lead_on_becomes_a_full_one() {
    let bench = Bench::new();
    bench.at(0);
    // The database is another one now: its log tells another history.
    let other = Bench::new();
    let other = Bench { schedule: bench.schedule.clone(), ..other };
    let now = Timestamp(1_893_456_000 * MICROS);
    other.local.server().backups.change(|status| *status = read_status(Some(&bench.schedule), status, now));
    other.at(100);
    assert_eq!(other.chain_sizes(), [(0, 0), (100, 0)]);
}

/// What somebody asks for is done beside the schedule, one at a time.
#[test]
fn what_is_asked_for_is_done_beside_the_schedule() {
    let bench = Bench::new();
    bench.at(0);
    let backups = &bench.local.server().backups;
    let wall = || Timestamp((1_893_456_000 + bench.seconds.get()) * MICROS);
    let ask = |request: BackupRequest| {
        assert!(backups.request(request.clone()));
        assert!(!backups.request(BackupRequest::Full), "one at a time");
        requested(bench.local.server(), &bench.schedule, &request, &wall);
        assert_eq!(backups.status().requested, None);
    };
    bench.write();
    bench.seconds.set(10);
    ask(BackupRequest::Increment);
    assert_eq!(bench.chain_sizes(), [(0, 1)]);
    // Twice within a second: each has its own place, and the oldest goes.
    bench.seconds.set(20);
    ask(BackupRequest::Full);
    assert_eq!(bench.chain_sizes(), [(0, 1), (20, 0)]);
    ask(BackupRequest::Full);
    assert_eq!(bench.chain_sizes(), [(20, 0), (20, 0)]);
    let status = backups.status();
    assert_eq!((status.successes, status.failures, status.running), (4, 0, false));
    // The schedule counts from there.
    assert_eq!(next(&bench.schedule, &status), (Due::Increment, Timestamp((1_893_456_120) * MICROS)));

    let newest = all(&bench.schedule.directory).pop().unwrap();
    ask(BackupRequest::Verify(newest.clone()));
    let verified = backups.status().verified.unwrap();
    assert_eq!((&verified.directory, &verified.fault), (&newest, &None));
    assert_eq!(verified.covers, Chain::read(&newest).unwrap().last().covers());
    let file = newest.join("database-1/data.mdb");
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    ask(BackupRequest::Verify(newest));
    let fault = backups.status().verified.and_then(|verified| verified.fault).unwrap();
    assert!(fault.contains("data.mdb is not what it was when the backup was made"), "{fault}");
    let status = backups.status();
    assert_eq!((status.failures, status.progress), (0, (0, 0)), "a verification is no backup that failed");
}
