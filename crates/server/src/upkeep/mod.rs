//! Regular work while the server serves: on the databases' files, for renewed certificates, and backups.

mod backups;
mod tls_files;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::time::Clock;

use crate::aside::Aside;
use crate::server::Server;

pub(crate) use backups::BackupThread;
pub(crate) use tls_files::{TlsFiles, watch as watch_tls_files};

/// How often readers are looked for whose process was killed: until then no page that they saw is used again. As often, whether the
/// databases take changes.
const INTERVAL: Duration = Duration::from_secs(10);

/// Threads for this work: the tasks wait for what they have done.
const THREADS: usize = 2;

/// The threads that regular work has beside its event loop.
pub(crate) fn threads() -> Rc<Aside> {
    Rc::new(Aside::new("upkeep", THREADS))
}

/// Whether the system has a thread for this work. Without one the event loop would do it, and take no clients meanwhile.
///
/// # Errors
/// No thread to be had.
pub(crate) fn demand_thread() -> io::Result<()> {
    // It does nothing that could panic.
    let _ = std::thread::Builder::new().spawn(|| ())?.join();
    Ok(())
}

/// Looks after the databases' files until the server ends.
pub(crate) async fn run(server: Arc<Server>, aside: Rc<Aside>) {
    let mut reported = Vec::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let server = server.clone();
        let before = std::mem::take(&mut reported);
        // It asks the kernel about each process that reads. A panic of it was reported.
        let looked = aside.run_or_here(move || look_after_files(&server, &before)).await;
        reported = looked.unwrap_or_default();
    }
}

/// Answers which databases refuse changes; those that did not before are reported.
fn look_after_files(server: &Server, before: &[String]) -> Vec<String> {
    server.databases().clear_stale_readers(&server.log);
    server.databases().drop_old_lists(server.clock.monotonic());
    let mut refusals = server.databases().refusals();
    let full = server.databases().without_room().into_iter();
    refusals.extend(full.map(|(suffix, directory, full_map)| {
        let directory = directory.display();
        match full_map {
            None => format!(
                "{suffix:?}: no space left for the database in {directory}: changes are refused until there is room, and no restart is \
                 needed then"
            ),
            Some(bytes) => format!(
                "{suffix:?}: the database in {directory} has come to the end of its map of {bytes} bytes: changes are refused until the \
                 server starts with more address space (ulimit -v, LimitAS=)"
            ),
        }
    }));
    for refusal in refusals.iter().filter(|refusal| !before.contains(refusal)) {
        server.log.warning(format_args!("{refusal}"));
    }
    refusals
}
