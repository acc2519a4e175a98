//! A later start: the configuration that the first one wrote, and what this one's flags say beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use larix_configuration::values::{ConfigDn, TlsSettings};
use larix_configuration::{Config, Database, QuickReplicas, QuickStart, quoted};
use larix_engine::controls::RequestControls;
use larix_engine::password::{Verification, verify};
use larix_engine::time::Clock as _;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{LdapResult, ModifyOperation, ResultCode};
use larix_server::clock::SystemClock;
use larix_server::tls::TlsState;
use larix_store::lmdb::{self, DATA_FILE};

use super::{CONFIGURATION, Prepared, Start, configured, self_signed};
use crate::serve::served;
use crate::tools::config_directory::{change_configuration, demand_directory};

const CERTIFICATE: &str = "olcTLSCertificateFile";
const KEY: &str = "olcTLSCertificateKeyFile";
/// Files of TLS that may be beside the data.
const TLS_FILES: [&str; 5] =
    [CERTIFICATE, KEY, "olcTLSCACertificateFile", "olcTLSCACertificatePath", "olcTLSCRLFile"];

/// Takes the configuration in `config_dir`.
///
/// # Errors
/// Which flag says something else than the configuration, and what to do about it.
pub(super) fn again(start: &Start<'_>, config_dir: &Path) -> anyhow::Result<Prepared> {
    let mut config = served(Config::from_slapd_d(config_dir)?)?;
    let mut remarks = Vec::new();
    let number = database(start, &config, config_dir)?;
    if let Some(earlier) = moved_from(start, &config, number, config_dir)? {
        move_along(start, &mut config, number, &earlier)?;
        remarks.push(format!("the data directory was moved here from {}", earlier.display()));
    }
    let is_stored_here = config.databases.get(number).is_some_and(|database| database.kind.mdb().is_some());
    if is_stored_here && lmdb::is_there(start.data).is_ok_and(|is_there| !is_there) {
        remarks.push(format!(
            "there was no {DATA_FILE} in {}: the database is empty; larix restore puts a backup back",
            start.data.display()
        ));
    }
    remarks.extend(replicas(start, &mut config, number, config_dir)?);
    let self_signed = certificate(start, &mut config, config_dir)?;
    if let (Some(password), Some(stored)) =
        (start.arguments.password()?, config.databases.get(number).and_then(|it| it.root_password.as_ref()))
        && !matches!(verify(stored, &password), Verification::Match)
    {
        remarks.push(format!(
            "the password in --admin-password-file is not the administrator's: the file counts at the first start; \
             later, change olcRootPW in cn=config (larix offline-modify -n0 -F {} while the server is stopped)",
            config_dir.display()
        ));
    }
    let flags = [
        ("--ldif", start.arguments.ldif.is_some()),
        ("--sample", start.arguments.sample),
        ("--include", !start.arguments.include.is_empty()),
    ];
    let without_effect: Vec<&str> =
        flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect();
    if !without_effect.is_empty() {
        remarks.push(format!(
            "{}: no effect, because that counts at the first start; later, add entries with larix modify, and change \
             the configuration with larix config apply",
            without_effect.join(" and ")
        ));
    }
    Ok(Prepared {
        suffix: start.suffix.to_owned(),
        data: start.data.to_owned(),
        config,
        generated: None,
        password_file: None,
        sample_password: None,
        first: false,
        self_signed,
        remarks,
        shown: AtomicBool::new(false),
    })
}

/// The number of the database that `--suffix` names.
fn database(start: &Start<'_>, config: &Config, config_dir: &Path) -> anyhow::Result<usize> {
    let dn = ConfigDn::parse_relaxed(&config.schema, start.suffix)
        .map_err(|error| anyhow::anyhow!("--suffix {}: {error}", start.suffix))?;
    let serves = |database: &Database| database.suffixes.iter().any(|suffix| suffix.normal == dn.normal);
    let found = config.databases.iter().position(serves);
    found.ok_or_else(|| {
        let all = config.databases.iter().filter(|it| it.kind.is_in_lmdb());
        let names: Vec<String> =
            all.flat_map(|it| &it.suffixes).map(|suffix| format!("\"{}\"", suffix.text)).collect();
        anyhow::anyhow!(
            "--suffix says \"{}\", and the configuration in {} serves {}: name that suffix, or another directory \
             with --data (a further suffix is a database added to cn=config)",
            start.suffix,
            config_dir.display(),
            names.join(" and "),
        )
    })
}

/// Where the database was, if the data directory has another name now.
fn moved_from(
    start: &Start<'_>,
    config: &Config,
    number: usize,
    config_dir: &Path,
) -> anyhow::Result<Option<PathBuf>> {
    let Some(settings) = config.databases.get(number).and_then(|database| database.kind.mdb()) else {
        return Ok(None);
    };
    match fs::canonicalize(&settings.directory) {
        Ok(directory) if directory == start.data => Ok(None),
        Err(_) if has_moved(start, config, &settings.directory) => Ok(Some(settings.directory.clone())),
        Err(error) => anyhow::bail!(
            "the configuration in {} keeps \"{}\" in {}, not in --data {}, and that directory cannot be had: {error}",
            config_dir.display(),
            start.suffix,
            settings.directory.display(),
            start.data.display(),
        ),
        Ok(directory) => anyhow::bail!(
            "the configuration in {} keeps \"{}\" in {}, not in --data {}: start with that directory, or with \
             -F {} and without --suffix",
            config_dir.display(),
            start.suffix,
            directory.display(),
            start.data.display(),
            config_dir.display(),
        ),
    }
}

/// Whether a directory that is gone is the data directory under its earlier name, in which the slapd.d was. A file system that is not
/// mounted is gone, too: an empty database would be served in its place.
fn has_moved(start: &Start<'_>, config: &Config, directory: &Path) -> bool {
    let is_used = |place: &Path| config.databases.iter().any(|it| it.kind.directory() == Some(place));
    let has_data = || lmdb::is_there(start.data).unwrap_or(false);
    match config.earlier_place() {
        Some(place) if place == start.data => false,
        Some(place) => place == directory || !is_used(place) && has_data(),
        None => has_data(),
    }
}

/// Paths below the earlier data directory become paths below this one. The database that shows the move to the next start comes behind
/// all others: a start that was killed in between is completed.
fn move_along(start: &Start<'_>, config: &mut Config, number: usize, earlier: &Path) -> anyhow::Result<()> {
    let moved = |path: &Path| path.strip_prefix(earlier).ok().map(|rest| start.data.join(rest));
    let now = |attribute: &'static str| {
        let path = configured(config, attribute)?;
        Some((attribute, word(&moved(Path::new(&path))?)))
    };
    let files: Vec<_> = TLS_FILES.into_iter().filter_map(now).collect();
    if !files.is_empty() {
        replace(config, "cn=config", &files)?;
    }
    let others = config.databases.iter().enumerate().filter(|(other, _)| *other != number);
    let below = others.filter_map(|(other, database)| {
        let path = moved(database.kind.directory()?)?;
        // slapd takes that of another kind whole, quotes and all.
        let is_word = database.kind.mdb().is_some();
        let value = if is_word { word(&path) } else { path.to_string_lossy().into_owned() };
        Some((format!("olcDatabase={{{other}}}{},cn=config", database.kind.name()), value))
    });
    for (entry, directory) in below.collect::<Vec<_>>() {
        replace(config, &entry, &[("olcDbDirectory", directory)])?;
    }
    let database = format!("olcDatabase={{{number}}}mdb,cn=config");
    replace(config, &database, &[("olcDbDirectory", word(start.data))])?;
    let place = start.data.join(CONFIGURATION).to_string_lossy().into_owned();
    replace(config, "cn=config", &[("olcConfigDir", place)])
}

/// The list of servers and their password become the configuration's, where the flags have them.
fn replicas(
    start: &Start<'_>,
    config: &mut Config,
    number: usize,
    config_dir: &Path,
) -> anyhow::Result<Option<String>> {
    let Some(replicas) = start.replicas else { return Ok(None) };
    anyhow::ensure!(
        config.server_id() == replicas.number,
        "--replica makes this server number {}, and the configuration in {} has serverID {}: put new servers at the end \
         of the list, name this one with --replica-name, or make the data directory anew (the others have the entries)",
        replicas.number,
        config_dir.display(),
        config.server_id(),
    );
    let quick_replicas = replicas.configured(start.suffix)?;
    let account = config
        .databases
        .iter()
        .position(|it| it.root_dn.as_ref().is_some_and(|dn| dn.text == QuickReplicas::ACCOUNT));
    let stored = account.and_then(|account| config.databases.get(account)?.root_password.clone());
    let mut changed = false;
    if let (Some(account), Some(stored)) = (account, stored)
        && !matches!(verify(&stored, &replicas.password), Verification::Match)
    {
        replace_values(
            config,
            &format!("olcDatabase={{{account}}}null,cn=config"),
            &[("olcRootPW", vec![quick_replicas.password.clone()])],
        )?;
        changed = true;
    }
    let lines = |config: &Config| {
        config.databases.get(number).map(|it| it.settings.get("olcSyncrepl").to_vec()).unwrap_or_default()
    };
    let desired = Config::quick_start(&QuickStart {
        suffix: start.suffix.to_owned(),
        directory: start.data.to_owned(),
        replicas: Some(quick_replicas),
        ..QuickStart::default()
    })?;
    let position = database(start, &desired, config_dir)?;
    let desired =
        desired.databases.get(position).map(|it| it.settings.get("olcSyncrepl").to_vec()).unwrap_or_default();
    if lines(config) != desired {
        replace_values(
            config,
            &format!("olcDatabase={{{number}}}mdb,cn=config"),
            &[("olcSyncrepl", desired)],
        )?;
        changed = true;
    }
    Ok(changed.then(|| "the other servers are those of --replica from now on".to_owned()))
}

/// The certificate of the flags, or one made for them, becomes the configuration's if that has none. Answers the one that
/// the server signed itself.
fn certificate(start: &Start<'_>, config: &mut Config, config_dir: &Path) -> anyhow::Result<Option<PathBuf>> {
    let own = start.data.join(super::CERTIFICATE_FILE);
    let of_configuration = configured(config, CERTIFICATE).map(PathBuf::from);
    let pair = match (start.arguments.certificate()?, of_configuration) {
        (Some(given), Some(has)) if has != given.certificate => anyhow::bail!(
            "--tls-cert says {}, and the configuration in {} has {CERTIFICATE}: {}: leave the flag away, or change \
             the configuration (larix offline-modify -n0 -F {})",
            given.certificate.display(),
            config_dir.display(),
            has.display(),
            config_dir.display(),
        ),
        (_, Some(has)) => return Ok((has == own).then_some(has)),
        (Some(given), None) => given,
        (None, None) if start.secure => self_signed(start.data)?,
        (None, None) => return Ok(None),
    };
    let made = (pair.certificate == own).then(|| own.clone());
    // What is kept is asked for at each start: a certificate that cannot be had is no part of it.
    let tls = TlsSettings {
        certificate_file: Some(pair.certificate.clone()),
        certificate_key_file: Some(pair.key.clone()),
        ..config.global.tls.clone()
    };
    TlsState::load(&tls, SystemClock.now())?;
    replace(config, "cn=config", &[(CERTIFICATE, word(&pair.certificate)), (KEY, word(&pair.key))])?;
    Ok(made)
}

/// A path as a value that is cut at blanks.
fn word(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn replace(config: &mut Config, entry: &str, values: &[(&str, String)]) -> anyhow::Result<()> {
    let values: Vec<_> =
        values.iter().map(|(attribute, value)| (*attribute, vec![value.clone().into_bytes()])).collect();
    replace_values(config, entry, &values)
}

fn replace_values(config: &mut Config, entry: &str, values: &[(&str, Vec<Vec<u8>>)]) -> anyhow::Result<()> {
    let change = |(attribute, values): &(&str, Vec<Vec<u8>>)| Modification {
        operation: ModifyOperation::Replace,
        attribute: AttributeValues { description: (*attribute).to_owned(), values: values.clone() },
    };
    let operation =
        WriteOperation::Modify { object: entry.to_owned(), changes: values.iter().map(change).collect() };
    let _directory = demand_directory(config)?;
    let LdapResult { code, diagnostic, .. } =
        change_configuration(config, operation, RequestControls::default());
    anyhow::ensure!(code == ResultCode::SUCCESS, "cannot change {entry}: {diagnostic}");
    Ok(())
}
