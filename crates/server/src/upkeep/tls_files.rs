//! Files of TLS are looked at every few seconds: a renewed certificate is in use without a restart, and no connection
//! ends for it. What cannot be used is said once, and what was in use stays.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larix_configuration::Config;
use larix_configuration::values::TlsSettings;
use larix_files::FileLook;

use crate::aside::Aside;
use crate::server::Server;
use crate::tls::{self, Loaded, TlsState};

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(3);

type Looks = Vec<(PathBuf, Option<FileLook>)>;

/// Of the server, of the listeners of the balancer in it, and of that towards its servers.
type Settings = [TlsSettings; 3];

/// The files of a configuration as they were at some time.
#[derive(Debug)]
pub(crate) struct TlsFiles(Settings, Looks);

impl TlsFiles {
    /// To be taken before the files are read: those that change later are read again.
    pub(crate) fn look(config: &Config) -> Self {
        let settings = settings_of(config);
        let looks = look_at(&settings);
        Self(settings, looks)
    }
}

/// Watches the files of the configuration in force until the task is dropped. `loaded` are those that are in use already.
pub(crate) async fn watch(server: Arc<Server>, loaded: TlsFiles, aside: Rc<Aside>) {
    let TlsFiles(mut loaded_settings, mut loaded_files) = loaded;
    // Why files could not be used. They are tried again though they look the same: it may have been for want of descriptors.
    let mut fault: Option<String> = None;
    let mut said = Vec::new();
    loop {
        warn_of_lists(&server, &mut said);
        tokio::time::sleep(INTERVAL).await;
        let current = settings_of(&server.config());
        let looks = looks_of(current.clone(), &aside).await;
        let is_new = looks != loaded_files || current != loaded_settings;
        if !is_new && fault.is_none() {
            continue;
        }
        // A certificate and its key are two files: a program that is just writing them has a moment to finish.
        tokio::time::sleep(INTERVAL / 3).await;
        if looks_of(current.clone(), &aside).await != looks {
            continue;
        }
        let now = server.now();
        let [load, ..] = current.clone();
        let loaded = aside.run_or_here(move || TlsState::load(&load, now)).await;
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

/// Warns of each revocation list once when its time is over: its authority's clients are refused, and only `loglevel conns` shows them.
fn warn_of_lists(server: &Server, said: &mut Vec<String>) {
    let over = server.tls.current().map(|state| state.lists_over(server.now())).unwrap_or_default();
    for list in over.iter().filter(|list| !said.contains(list)) {
        server.log.warning(format_args!("TLS: {list}"));
    }
    *said = over;
}

fn settings_of(config: &Config) -> Settings {
    let balancer = config.global.balancer.as_ref();
    let own = balancer.map(|balancer| balancer.tls.clone()).unwrap_or_default();
    let towards = balancer.map(|balancer| files_of(&balancer.bind.tls)).unwrap_or_default();
    [config.global.tls.clone(), own, towards]
}

/// The files that `tls_cacert` and its like name, in the words of a server.
fn files_of(options: &[(String, String)]) -> TlsSettings {
    let path =
        |name: &str| options.iter().find(|(key, _)| key == name).map(|(_, value)| PathBuf::from(value));
    TlsSettings {
        ca_certificate_file: path("tls_cacert"),
        ca_certificate_path: path("tls_cacertdir"),
        certificate_file: path("tls_cert"),
        certificate_key_file: path("tls_key"),
        crl_file: path("tls_crlfile"),
        ..TlsSettings::default()
    }
}

async fn looks_of(settings: Settings, aside: &Aside) -> Looks {
    aside.run_or_here(move || look_at(&settings)).await.unwrap_or_default()
}

fn look_at(settings: &Settings) -> Looks {
    let paths = settings.iter().flat_map(tls::watched);
    paths.map(|path| (path.clone(), FileLook::at(&path))).collect()
}
