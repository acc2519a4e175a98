//! Backups that the server makes by itself, as `backup-schedule` says: on a thread of low priority.
//!
//! The manifests in the schedule's directory say what is due, so that a restart changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use larix_configuration::values::BackupSchedule;
use larix_engine::injected;
use larix_engine::time::Timestamp;

use crate::backup::schedule_directory::{NAME, REMOVED, all, is_ahead, latest, left};
use crate::backup::{
    BackupError, BackupRequest, BackupStatus, Chain, MICROS, Manifest, Pace, Progress, Source, Verified,
    remove_left, take_full, take_increment,
};
use crate::panics;
use crate::processor_time::{LOW, give_way};
use crate::server::Server;

/// At most so long until the configuration is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// After a failure, until the next try.
const RETRY_MICROS: i64 = 300_000_000;

/// The thread; ends when it is dropped, and gives up what it is doing.
#[derive(Debug)]
pub(crate) struct BackupThread {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl BackupThread {
    /// # Errors
    /// No thread to be had.
    pub(crate) fn start(server: &Arc<Server>) -> std::io::Result<Self> {
        let own = Arc::clone(server);
        let thread = std::thread::Builder::new().name("backups".to_owned()).spawn(move || run(&own))?;
        Ok(Self { server: Arc::clone(server), thread: Some(thread) })
    }
}

impl Drop for BackupThread {
    fn drop(&mut self) {
        self.server.backups.stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

fn run(server: &Arc<Server>) {
    give_way(LOW);
    let mut known: Option<BackupSchedule> = None;
    while !server.backups.is_stopped() {
        let schedule = server.config().global.backup_schedule.clone();
        if schedule != known {
            let now = server.now();
            server.backups.change(|status| *status = read_status(schedule.as_ref(), status, now));
            known.clone_from(&schedule);
        }
        let wait = match &schedule {
            None => {
                // Without a directory there is nothing that could be done.
                server.backups.change(|status| status.requested = None);
                LOOK_EVERY
            }
            Some(schedule) => contained_step(server, schedule),
        };
        // Woken early or not, what is due is looked up again.
        server.backups.wait(wait);
    }
}

/// What the directory tells of backups before this start.
fn read_status(schedule: Option<&BackupSchedule>, before: &BackupStatus, now: Timestamp) -> BackupStatus {
    let (successes, failures) = (before.successes, before.failures);
    let (requested, verified) = (before.requested.clone(), before.verified.clone());
    let put_back = before.put_back.clone();
    let fresh =
        BackupStatus { successes, failures, requested, verified, put_back, ..BackupStatus::default() };
    let Some(schedule) = schedule else { return fresh };
    let mut status = BackupStatus { scheduled: true, ..fresh };
    if let Some(chain) = latest(&schedule.directory, now) {
        note_chain(&mut status, &chain);
        if status.last_success.is_some_and(|time| is_ahead(time, now)) {
            status.last_success = status.last_full;
        }
    }
    status
}

fn note_chain(status: &mut BackupStatus, chain: &Chain) {
    status.last_full = Timestamp::parse_generalized(&chain.full.made_at);
    status.last_success = Timestamp::parse_generalized(&chain.last().made_at);
    status.covers = chain.last().covers();
    status.bytes = chain.bytes();
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Due {
    Full,
    Increment,
}

/// What is due next, and when.
fn next(schedule: &BackupSchedule, status: &BackupStatus) -> (Due, Timestamp) {
    let after = |time: Timestamp, seconds: u64| {
        let micros = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(MICROS);
        Timestamp(time.0.saturating_add(micros))
    };
    let retry = status.last_error.as_ref().map(|(time, _)| Timestamp(time.0.saturating_add(RETRY_MICROS)));
    let (Some(full), Some(last)) = (status.last_full, status.last_success) else {
        return (Due::Full, retry.unwrap_or(Timestamp(i64::MIN)));
    };
    let full = (Due::Full, after(full, schedule.full));
    let due = match schedule.increment {
        Some(increment) if after(last, increment) < full.1 => (Due::Increment, after(last, increment)),
        _ => full,
    };
    match retry {
        // An increment that fails again and again, as where its backup may not be written any more, keeps no full one away.
        Some(retry) if retry >= full.1 => (Due::Full, retry),
        Some(retry) => (due.0, retry.max(due.1)),
        None => due,
    }
}

/// As [`step`]; a panic is a backup that failed.
fn contained_step(server: &Arc<Server>, schedule: &BackupSchedule) -> Duration {
    let stepped = panics::contained(|| {
        injected::panic_at("backup");
        match server.backups.status().requested {
            Some(request) => requested(server, schedule, &request, &|| server.now()),
            None => step(server, schedule, &|| server.now()),
        }
    });
    stepped.unwrap_or_else(|panicked| {
        server.backups.change(|status| {
            (status.running, status.progress, status.requested) = (false, (0, 0), None);
            status.failures += 1;
            status.last_error = Some((server.now(), panicked.to_string()));
        });
        LOOK_EVERY
    })
}

/// Makes a backup if one is due. Answers how long to wait.
fn step(server: &Arc<Server>, schedule: &BackupSchedule, wall: &dyn Fn() -> Timestamp) -> Duration {
    let now = wall();
    let status = server.backups.status();
    let failed = status.last_error.as_ref().map(|(time, _)| *time);
    if [status.last_full, status.last_success, failed].into_iter().flatten().any(|time| is_ahead(time, now)) {
        // The clock was set back: until it has come there again, nothing would be due, and all would seem to be new.
        server.backups.change(|status| *status = read_status(Some(schedule), status, now));
    }
    let (due, at) = next(schedule, &server.backups.status());
    if at > now {
        server.backups.change(|status| status.next = Some(at));
        let micros = u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
        return Duration::from_micros(micros).min(LOOK_EVERY);
    }
    back_up(server, schedule, due, wall);
    Duration::ZERO
}

/// Does what somebody asked for. Answers how long to wait: what is due meanwhile follows at once.
fn requested(
    server: &Arc<Server>,
    schedule: &BackupSchedule,
    request: &BackupRequest,
    wall: &dyn Fn() -> Timestamp,
) -> Duration {
    match request {
        BackupRequest::Full => back_up(server, schedule, Due::Full, wall),
        BackupRequest::Increment => back_up(server, schedule, Due::Increment, wall),
        BackupRequest::Verify(directory) => verify(server, schedule, directory, wall),
        BackupRequest::Restore(request) => put_back::put_back(server, schedule, request, wall),
    }
    server.backups.change(|status| status.requested = None);
    Duration::ZERO
}

/// Reads the whole backup, compares its checksums and sees that its increments follow each other.
fn verify(server: &Server, schedule: &BackupSchedule, directory: &Path, wall: &dyn Fn() -> Timestamp) {
    let show = |progress: &Progress<'_>| {
        server.backups.change(|status| status.progress = (progress.done, progress.total));
    };
    let mut pace = Pace::new(schedule.throttle, show).stopped_by(|| server.backups.is_stopped());
    let verified =
        Chain::read(directory).and_then(|chain| chain.verify(&mut pace).map(|()| chain.last().covers()));
    let (covers, fault) = match verified {
        Ok(covers) => (covers, None),
        Err(BackupError::Stopped) => return,
        Err(error) => (None, Some(error.to_string())),
    };
    match &fault {
        None => server.log.notice(format_args!("backup: {} is as it was made", directory.display())),
        Some(fault) => server.log.warning(format_args!("backup: verification failed: {fault}")),
    }
    server.backups.change(|status| {
        status.progress = (0, 0);
        status.verified = Some(Verified { directory: directory.to_owned(), at: wall(), covers, fault });
    });
}

/// Makes a backup, and notes how it went.
fn back_up(server: &Arc<Server>, schedule: &BackupSchedule, due: Due, wall: &dyn Fn() -> Timestamp) {
    let now = wall();
    server.backups.change(|status| (status.running, status.next) = (true, None));
    let done = make(server, schedule, due, wall);
    let ended = wall();
    match done {
        Ok((kind, chain)) => {
            server.backups.change(|status| {
                note_chain(status, &chain);
                status.last_error = None;
                status.successes += 1;
                status.last_micros = u64::try_from(ended.0.saturating_sub(now.0)).unwrap_or(0);
            });
            let directory = chain.directory.display();
            server.log.notice(format_args!("backup: {kind} in {directory}, {} bytes in all", chain.bytes()));
        }
        Err(BackupError::Stopped) => {}
        Err(error) => {
            server.log.warning(format_args!("backup failed: {error}"));
            server.backups.change(|status| {
                status.failures += 1;
                status.last_error = Some((ended, error.to_string()));
            });
        }
    }
    server.backups.change(|status| (status.running, status.progress) = (false, (0, 0)));
}

fn make(
    server: &Arc<Server>,
    schedule: &BackupSchedule,
    due: Due,
    wall: &dyn Fn() -> Timestamp,
) -> Result<(&'static str, Chain), BackupError> {
    let generation = server.generation().clone();
    let served = generation.databases.directory().databases();
    let suffixes: Vec<Vec<String>> = served
        .iter()
        .map(|served| {
            let settings = served.database().settings();
            settings.suffixes.iter().map(|suffix| suffix.text.clone()).collect()
        })
        .collect();
    let sources: Vec<Source<'_>> = served
        .iter()
        .zip(&suffixes)
        .map(|(served, suffixes)| Source { store: served.database().store(), suffixes })
        .collect();
    let show = |progress: &Progress<'_>| {
        server.backups.change(|status| status.progress = (progress.done, progress.total));
    };
    let mut pace =
        Pace::new(schedule.throttle, show).stopped_by(|| server.backups.is_stopped()).with_times_of(wall);
    let config = &generation.config;
    if due == Due::Increment
        && let Some(chain) = latest(&schedule.directory, wall())
    {
        match take_increment(config, &sources, &chain.directory, &mut pace) {
            Ok(_) => return Ok(("increment", Chain::read(&chain.directory)?)),
            // A full one makes up for it.
            Err(why @ BackupError::NoIncrement { .. }) => {
                server.log.notice(format_args!("backup: {why}, which is done now"));
            }
            Err(error) => return Err(error),
        }
    }
    clear_left(server, schedule);
    let directory = free_path(&schedule.directory, wall());
    let _made: Manifest = take_full(config, &sources, &directory, &mut pace)?;
    let chain = Chain::read(&directory)?;
    remove_old(server, schedule, &directory);
    Ok(("full", chain))
}

/// The place of a full backup that is made now. Names have seconds: the second one of a second is called after the next.
fn free_path(directory: &Path, now: Timestamp) -> PathBuf {
    let mut time = now;
    loop {
        let path = directory.join(format!("{NAME}{}", time.generalized()));
        if path.symlink_metadata().is_err() {
            return path;
        }
        time = Timestamp(time.0.saturating_add(MICROS));
    }
}

/// Each full backup has a name of its own: nothing else would ever remove what a server that was killed left of one.
fn clear_left(server: &Server, schedule: &BackupSchedule) {
    for path in left(&schedule.directory) {
        match remove_left(&path) {
            Ok(()) => {
                server
                    .log
                    .notice(format_args!("backup: {} removed; a killed server left it", path.display()));
            }
            Err(BackupError::Busy { .. }) => {}
            // The backup does without.
            Err(error) => server.log.warning(format_args!("backup: {error}")),
        }
    }
}

/// `made` stays, whatever the names of the others say: with a clock that was set back it is not the last of them. One that cannot be
/// removed ends neither the removal of others nor the schedule, which would make a full backup again in its place.
fn remove_old(server: &Server, schedule: &BackupSchedule, made: &Path) {
    let mut paths = all(&schedule.directory);
    paths.retain(|path| path != made);
    let keep = usize::try_from(schedule.keep).unwrap_or(usize::MAX).saturating_sub(1);
    paths.truncate(paths.len().saturating_sub(keep));
    // What is to be restored stays until that is done.
    if let Some(BackupRequest::Restore(request)) = server.backups.status().requested {
        paths.retain(|path| *path != request.directory);
    }
    for path in &paths {
        let (keep, shown) = (schedule.keep, path.display());
        match remove(path) {
            Ok(()) => server.log.notice(format_args!("backup: {shown} removed, {keep} are kept")),
            Err(error) => {
                server.log.warning(format_args!("backup: {error}; {keep} are to be kept, remove it by hand"))
            }
        }
    }
}

/// What a crash brings back of it is removed with the next full backup.
fn remove(path: &Path) -> Result<(), BackupError> {
    // Renamed first: half of a backup never looks whole.
    let mut gone = path.as_os_str().to_owned();
    gone.push(REMOVED);
    let gone = PathBuf::from(gone);
    fs::rename(path, &gone).map_err(BackupError::io("remove", path))?;
    fs::remove_dir_all(&gone).map_err(BackupError::io("remove", &gone))
}

mod put_back;
#[cfg(test)]
mod tests;
