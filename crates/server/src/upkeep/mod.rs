//! Regular work while the server serves: on the databases' files, for renewed certificates, and backups.

mod backups;
mod tls_files;

use std::sync::Arc;
use std::time::Duration;

use crate::server::Server;

pub(crate) use backups::BackupThread;
pub(crate) use tls_files::watch as watch_tls_files;

/// How often readers are looked for whose process was killed: until then no page that they saw is used again.
const INTERVAL: Duration = Duration::from_secs(10);

/// Looks after the databases' files until the server ends.
pub(crate) async fn run(server: Arc<Server>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let server = server.clone();
        // It asks the kernel about each process that reads. A panic of it was reported.
        let _ =
            tokio::task::spawn_blocking(move || server.databases().clear_stale_readers(&server.log)).await;
    }
}
