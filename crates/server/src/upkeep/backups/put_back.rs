//! A restore while the server serves: databases are put together beside their places, and only their exchange takes them out of
//! service ([ADR 0095](../../../../../docs/adr/0095-a-database-is-put-back-while-the-server-serves.md)).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larix_configuration::Config;
use larix_configuration::values::BackupSchedule;
use larix_engine::time::Timestamp;
use larix_store::lmdb::{LmdbOptions, Old};

use super::{Due, make, note_chain};
use crate::backup::{
    BackupError, Chain, DatabaseBackup, Pace, Progress, PutBack, Rebuilt, RestoreRequest, Restored, Target,
};
use crate::panics;
use crate::server::Server;

/// Between two tries to serve a database again.
const AGAIN: Duration = Duration::from_secs(1);

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
    let (entries, fault) = match done {
        Ok(restored) => (restored.iter().map(|one| one.entries).sum(), None),
        Err(BackupError::Stopped) => return,
        Err(error) => (0, Some(error.to_string())),
    };
    let directory = request.directory.clone();
    match &fault {
        None => server.log.notice(format_args!("restored from {}: {entries} entries", directory.display())),
        Some(fault) => {
            server.log.warning(format_args!("restore from {} failed: {fault}", directory.display()));
        }
    }
    server.backups.change(|status| {
        // A new history begins: no increment can follow, and a full backup is due.
        if fault.is_none() {
            status.last_full = None;
        }
        status.put_back = Some(PutBack { directory, at: wall(), entries, fault });
    });
}

fn carry_out(
    server: &Arc<Server>,
    schedule: &BackupSchedule,
    request: &RestoreRequest,
    wall: &dyn Fn() -> Timestamp,
) -> Result<Vec<Restored>, BackupError> {
    // What was changed since the last backup is lost to the directory, and shall not be lost to everybody.
    let (_, newest) = make(server, schedule, Due::Increment, wall)?;
    server.backups.change(|status| note_chain(status, &newest));
    let chain = Chain::read(&request.directory)?;
    // Nothing here keeps the databases open.
    let config = Arc::clone(&server.generation_in_force().config);
    let targets = targets(server, &config, &chain.databases(&request.suffix))?;
    let show = |progress: &Progress<'_>| {
        server.backups.change(|status| status.progress = (progress.done, progress.total));
    };
    let mut pace = Pace::new(schedule.throttle, show).stopped_by(|| server.backups.is_stopped());
    let rebuild = |target| Rebuilt::make(&chain, target, &config, request.until, &mut pace);
    let rebuilt = targets.iter().map(rebuild).collect::<Result<Vec<_>, _>>()?;
    let exchanged = exchange(server, &targets, rebuilt);
    // Who opens a database locks its directory.
    drop(targets);
    serve_again(server);
    exchanged
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

/// Nobody has the databases open for as long as this takes: renames and syncs.
fn exchange(
    server: &Server,
    targets: &[Target<'_>],
    rebuilt: Vec<Rebuilt<'_>>,
) -> Result<Vec<Restored>, BackupError> {
    let directories: Vec<PathBuf> = targets.iter().map(|target| target.directory.clone()).collect();
    let place = directories.first().cloned().unwrap_or_default();
    let exchanged = panics::contained(|| {
        let taken = server.configuration.take_out_of_service(directories);
        taken.map_err(|why| BackupError::database(&place, why))?;
        rebuilt.into_iter().map(|one| one.publish(Old::Kept)).collect()
    });
    exchanged.unwrap_or_else(|panicked| Err(BackupError::database(&place, panicked)))
}

/// Serves every database again, whatever became of it.
fn serve_again(server: &Server) {
    while let Err(why) = server.configuration.take_out_of_service(Vec::new()) {
        if server.backups.is_stopped() {
            return;
        }
        server.log.warning(format_args!("a restored database cannot be opened: {why}; it is tried again"));
        std::thread::park_timeout(AGAIN);
    }
}
