//! Files of TLS are looked at every few seconds: a renewed certificate is in use without a restart, and no connection
//! ends for it. What cannot be used is said once, and what was in use stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use larix_configuration::values::TlsSettings;

use crate::server::Server;
use crate::tls::{self, Loaded, TlsState};

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(3);

/// What a file looked like: enough to see that it was written, replaced, or given to another user.
type Looks = Vec<(PathBuf, Option<Look>)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    modified: SystemTime,
    /// When its owner or mode changed last: seconds and nanoseconds.
    changed: (i64, i64),
    bytes: u64,
    inode: u64,
}

/// Watches the files of the configuration in force until the task is dropped. `loaded` is the configuration that is in use
/// already.
pub(crate) async fn watch(server: Arc<Server>) {
    let settings = |server: &Server| {
        let config = server.config();
        let own = config.global.balancer.as_ref().map(|balancer| balancer.tls.clone()).unwrap_or_default();
        (config.global.tls.clone(), own)
    };
    let mut loaded_settings = settings(&server);
    let mut loaded_files = looks_of(loaded_settings.clone()).await;
    // Why files could not be used. They are tried again though they look the same: it may have been for want of descriptors.
    let mut fault: Option<String> = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let current = settings(&server);
        let looks = looks_of(current.clone()).await;
        let is_new = looks != loaded_files || current != loaded_settings;
        if !is_new && fault.is_none() {
            continue;
        }
        // A certificate and its key are two files: a program that is just writing them has a moment to finish.
        tokio::time::sleep(INTERVAL / 3).await;
        if looks_of(current.clone()).await != looks {
            continue;
        }
        let now = server.now();
        let load = current.0.clone();
        let loaded = tokio::task::spawn_blocking(move || TlsState::load(&load, now)).await;
        match loaded {
            Ok(Ok(Loaded { state, notes })) => {
                server.tls.replace(state);
                server.log.notice(format_args!("TLS: certificates and keys were read anew"));
                notes.iter().for_each(|note| server.log.notice(format_args!("TLS: {note}")));
                fault = None;
            }
            Ok(Err(error)) => {
                let error = error.to_string();
                if is_new || fault.as_ref() != Some(&error) {
                    server.log.warning(format_args!(
                        "TLS: what was in use stays, for the new files cannot be: {error}"
                    ));
                }
                fault = Some(error);
            }
            // Only a panic of the reader comes here, which has printed itself.
            Err(_) => fault = None,
        }
        // A balancer that shares the server's TLS gets it when it is read.
        if is_new || fault.is_none() {
            server.configuration.renew_balancer();
        }
        (loaded_settings, loaded_files) = (current, looks);
    }
}

/// Of the server, and of the balancer in it.
async fn looks_of((server, balancer): (TlsSettings, TlsSettings)) -> Looks {
    let look = move || {
        let paths = tls::watched(&server).into_iter().chain(tls::watched(&balancer));
        paths.map(|path| (path.clone(), look(&path))).collect()
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

fn look(path: &std::path::Path) -> Option<Look> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    let changed = (found.ctime(), found.ctime_nsec());
    Some(Look { modified: found.modified().ok()?, changed, bytes: found.len(), inode: found.ino() })
}
