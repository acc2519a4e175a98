//! A restore while the server serves: databases are put together beside their places, and only their exchange takes them out of
//! service ([ADR 0095](../../../../../docs/adr/0095-a-database-is-put-back-while-the-server-serves.md)).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larix_configuration::Config;
use larix_configuration::values::BackupSchedule;
use larix_engine::time::{Monotonic, Timestamp};
use larix_store::lmdb::LmdbOptions;

use super::{Due, make, note_chain};
use crate::backup::{
    BackupError, Chain, DatabaseBackup, Pace, Progress, PutBack, Rebuilt, RestoreRequest, Restored, Target,
};
use crate::panics;
use crate::server::Server;

/// Between the first two tries to serve a database again: who closed its files last may be a moment behind.
const AGAIN_AT_FIRST: Duration = Duration::from_millis(2);
/// At most so long between two tries.
const AGAIN: Duration = Duration::from_secs(1);

/// What was put back.
struct Done {
    entries: u64,
    /// How long clients got no answers from the databases.
    unavailable: Duration,
}

/// Puts databases back, and notes how it went.
pub(super) fn put_back(
    server: &Arc<Server>,
    schedule: &BackupSchedule,
    request: &RestoreRequest,
    wall: &dyn Fn() -> Timestamp,
) {
    server.backups.change(|status| status.running = true);
    let done = carry_out(server, schedule, request, wall);
    server.backups.change(|status| (status.running, status.progress) = (false, (0, 0)));
    let (Done { entries, unavailable }, fault) = match done {
        Ok(done) => (done, None),
        Err(BackupError::Stopped) => return,
        Err(error) => (Done { entries: 0, unavailable: Duration::ZERO }, Some(error.to_string())),
    };
    let directory = request.directory.clone();
    if let Some(fault) = &fault {
        server.log.warning(format_args!("restore from {} failed: {fault}", directory.display()));
    }
    server.backups.change(|status| {
        // A new history begins: no increment can follow, and a full backup is due.
        if fault.is_none() {
            status.last_full = None;
        }
        status.put_back = Some(PutBack { directory, at: wall(), entries, unavailable, fault });
    });
}

fn carry_out(
    server: &Arc<Server>,
    schedule: &BackupSchedule,
    request: &RestoreRequest,
    wall: &dyn Fn() -> Timestamp,
) -> Result<Done, BackupError> {
    // As it was when somebody asked for it: without the increment that follows.
    let chain = Chain::read(&request.directory)?;
    // What was changed since the last backup is lost to the directory, and shall not be lost to everybody.
    let (_, newest) = make(server, schedule, Due::Increment, wall)?;
    server.backups.change(|status| note_chain(status, &newest));
    // Nothing here keeps the databases open.
    let config = Arc::clone(&server.generation_in_force().config);
    let targets = targets(server, &config, &chain.databases(&request.suffix))?;
    let show = |progress: &Progress<'_>| {
        server.backups.change(|status| status.progress = (progress.done, progress.total));
    };
    let mut pace = Pace::new(schedule.throttle, show).stopped_by(|| server.backups.is_stopped());
    let rebuild = |target| Rebuilt::make(&chain, target, &config, request.until, &mut pace);
    let rebuilt = targets.iter().map(rebuild).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = targets.iter().map(|target| target.backup.name()).collect();
    let exchanged = exchange(server, &targets, rebuilt);
    // Who opens a database locks its directory.
    drop(targets);
    let back = serve_again(server);
    let (restored, left) = exchanged?;
    let back = back.ok_or(BackupError::Stopped)?;
    let unavailable = Duration::from_nanos(back.0.saturating_sub(left.0));
    let moment = request.until.time().or_else(|| chain.last().covers());
    for (name, restored) in names.iter().zip(&restored) {
        server.log.notice(format_args!(
            "restored \"{name}\" from {} to {}: {} entries, unavailable for {} ms",
            request.directory.display(),
            moment.map_or_else(|| "its last change".to_owned(), Timestamp::generalized_micros),
            restored.entries,
            unavailable.as_millis(),
        ));
    }
    Ok(Done { entries: restored.iter().map(|one| one.entries).sum(), unavailable })
}

/// Where the databases go. Their directories stay locked, by the server's databases and by these, until the exchange is done.
fn targets<'b>(
    server: &Server,
    config: &Config,
    wanted: &[&'b DatabaseBackup],
) -> Result<Vec<Target<'b>>, BackupError> {
    let generation = server.generation_in_force();
    let target = |backup: &&'b DatabaseBackup| {
        let mdb = backup.section(config).and_then(|section| section.kind.mdb());
        let served = mdb.and_then(|mdb| generation.databases.served_in(&mdb.directory));
        let lock = served.and_then(|served| served.database().store().directory_lock());
        let (Some(mdb), Some(lock)) = (mdb, lock) else {
            let name = backup.name();
            let what =
                format!("the server has no database {name:?}: configure it first, or restore others alone");
            return Err(BackupError::Unreachable { what });
        };
        let mode = mdb.mode.unwrap_or_else(|| LmdbOptions::default().file_mode);
        Ok(Target { backup, directory: mdb.directory.clone(), mode, lock })
    };
    wanted.iter().map(target).collect()
}

/// Nobody has the databases open for as long as this takes: renames and syncs. Answers also when they left service.
fn exchange(
    server: &Server,
    targets: &[Target<'_>],
    rebuilt: Vec<Rebuilt<'_>>,
) -> Result<(Vec<Restored>, Monotonic), BackupError> {
    let directories: Vec<PathBuf> = targets.iter().map(|target| target.directory.clone()).collect();
    let place = directories.first().cloned().unwrap_or_default();
    let exchanged = panics::contained(|| {
        let taken = server.configuration.take_out_of_service(directories);
        let left = taken.map_err(|why| BackupError::database(&place, why))?;
        let restored = rebuilt.into_iter().map(|one| one.publish(true));
        Ok((restored.collect::<Result<_, _>>()?, left))
    });
    exchanged.unwrap_or_else(|panicked| Err(BackupError::database(&place, panicked)))
}

/// Serves every database again, whatever became of it. Answers since when; `None`: the server stops.
fn serve_again(server: &Server) -> Option<Monotonic> {
    let mut wait = AGAIN_AT_FIRST;
    loop {
        match server.configuration.take_out_of_service(Vec::new()) {
            Ok(back) => return Some(back),
            Err(_) if server.backups.is_stopped() => return None,
            Err(why) if wait >= AGAIN => {
                server
                    .log
                    .warning(format_args!("a restored database cannot be opened: {why}; it is tried again"));
            }
            Err(_) => {}
        }
        std::thread::park_timeout(wait);
        wait = (2 * wait).min(AGAIN);
    }
}
