//! Files that the server reads later than at its start. `larix test` asks whether they are there: what needs them would fail at night.

use std::path::Path;

use larix_configuration::Config;
use larix_configuration::values::{StartTls, SyncReplication, TlsSettings};
use larix_proto::url::UrlScheme;

use crate::replication::tls_options;

/// What to warn of, a line each: TLS of `syncrepl` lines that cannot begin, and passwords of `admin-password-reset` that cannot be read.
pub fn unusable_later(config: &Config) -> Vec<String> {
    let databases = config.databases.iter().filter(|database| !database.disabled);
    let lines = databases.flat_map(|database| &database.sync_replication);
    let mut found: Vec<String> = lines.filter_map(|line| without_tls(line, &config.global.tls)).collect();
    if let Some(mail) = config.global.admin_password_reset.as_ref().and_then(|reset| reset.mail.as_ref()) {
        found.extend(unreadable("passfile", &mail.password_file));
        found.extend(mail.login.as_ref().and_then(|(_, file)| unreadable("user-passfile", file)));
    }
    found
}

fn without_tls(line: &SyncReplication, server: &TlsSettings) -> Option<String> {
    let has_tls = line.start_tls != StartTls::No
        || line.providers.iter().any(|provider| provider.scheme == UrlScheme::Ldaps);
    if !has_tls {
        return None;
    }
    let error = tls_options(line, server).check().err()?;
    Some(format!("syncrepl rid={:03}: {error}: no provider can be reached until that is mended", line.rid))
}

fn unreadable(key: &str, file: &Path) -> Option<String> {
    let error = larix_files::open(file).err()?;
    Some(format!("admin-password-reset: {key}={}: {error}: no code can be sent by mail", file.display()))
}
