//! The configuration as a whole: what no single directive can see.

use std::path::PathBuf;
use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_schema::NormalDn;

use super::diagnostic::{ConfigError, Origin};
use super::directives::{OverlayHandling, overlay_kind};
use super::model::{AccessLine, Config, Database, DatabaseKind, MdbSettings, Overlay};

/// Checks a configuration before anyone sees it.
pub(super) fn complete(mut config: Config) -> Result<Config, ConfigError> {
    let mut served: Vec<(NormalDn, usize)> = Vec::new();
    let mut directories: Vec<(PathBuf, Origin)> = Vec::new();
    for (number, database) in config.databases.iter().enumerate() {
        suffixes(database, number, &config, &mut served)?;
        root(database)?;
        if let DatabaseKind::Mdb(settings) = &database.kind {
            directory(database, settings, &mut directories)?;
        }
    }
    for database in &config.databases {
        superior(database, &config)?;
    }
    access(&config)?;
    for database in &config.databases {
        if matches!(database.kind, DatabaseKind::Mdb(_)) && database.suffixes.is_empty() {
            config.notes.push(database.origin.clone(), "this database has no suffix, so nothing reaches it");
        }
    }
    Ok(config)
}

/// Names in access rules are defined.
fn access(config: &Config) -> Result<(), ConfigError> {
    let check = |lines: &[AccessLine]| {
        lines.iter().try_for_each(|line| {
            AccessPolicy::new(Arc::clone(&config.schema), None, std::slice::from_ref(&line.rule), &[])
                .map(|_| ())
                .map_err(|error| {
                    ConfigError::new(line.origin.clone(), format!("access rule: {}", error.fault))
                })
        })
    };
    if config.read_entries.is_some() && config.schema_sections.is_empty() {
        // The schema comes later; rules are checked then.
        return Ok(());
    }
    check(&config.frontend.access)?;
    config.databases.iter().try_for_each(|database| check(&database.access))
}

fn suffixes(
    database: &Database,
    number: usize,
    config: &Config,
    served: &mut Vec<(NormalDn, usize)>,
) -> Result<(), ConfigError> {
    if database.hidden {
        return Ok(());
    }
    for suffix in &database.suffixes {
        let own = suffix.normal.clone();
        if let Some((_, first)) = served.iter().find(|(other, _)| own.is_within(other)) {
            let at = config.databases.get(*first).map_or_else(String::new, |first| first.origin.to_string());
            let twice = served.iter().any(|(other, _)| *other == own);
            let (message, help) = if *first == number {
                (
                    format!("suffix \"{suffix}\" is already served by this database"),
                    "take one of the lines out".to_owned(),
                )
            } else if twice {
                (
                    format!("suffix \"{suffix}\" is already served by the database at {at}"),
                    "give each database its own suffix".to_owned(),
                )
            } else {
                (
                    format!(
                        "suffix \"{suffix}\" lies within that of the database at {at}, which comes first"
                    ),
                    "put the database with the longer suffix first".to_owned(),
                )
            };
            return Err(ConfigError::new(database.origin.clone(), message).with_help(help));
        }
        served.push((own, number));
    }
    Ok(())
}

fn root(database: &Database) -> Result<(), ConfigError> {
    if database.root_password.is_none() {
        return Ok(());
    }
    let error =
        |message: String, help: &str| Err(ConfigError::new(database.origin.clone(), message).with_help(help));
    let own: Vec<NormalDn> = match database.kind {
        DatabaseKind::Config => vec![NormalDn::from_normal("cn=config")],
        DatabaseKind::Monitor => vec![NormalDn::from_normal("cn=monitor")],
        _ => database.suffixes.iter().map(|suffix| suffix.normal.clone()).collect(),
    };
    let Some(root) = &database.root_dn else {
        if matches!(database.kind, DatabaseKind::Config) {
            return Ok(());
        }
        return error(
            "there is a rootpw, but no rootdn to use it".to_owned(),
            "add `rootdn` before it, or take it out",
        );
    };
    if database.hidden || own.iter().any(|suffix| root.normal.is_within(suffix)) {
        return Ok(());
    }
    error(
        format!("rootpw is of no use: the rootdn \"{root}\" is not below a suffix of this database"),
        "choose a rootdn below the suffix, or give the entry itself a userPassword",
    )
}

fn directory(
    database: &Database,
    settings: &MdbSettings,
    others: &mut Vec<(PathBuf, Origin)>,
) -> Result<(), ConfigError> {
    if settings.directory.as_os_str().is_empty() {
        return Err(ConfigError::new(database.origin.clone(), "this mdb database has no directory")
            .with_help("add a line such as `directory /var/lib/ldap`"));
    }
    if let Some((_, first)) = others.iter().find(|(other, _)| *other == settings.directory) {
        let message =
            format!("its directory `{}` is that of the database at {first}", settings.directory.display());
        return Err(ConfigError::new(database.origin.clone(), message)
            .with_help("give each database a directory of its own"));
    }
    others.push((settings.directory.clone(), database.origin.clone()));
    Ok(())
}

/// A subordinate database needs one above it to be glued to.
fn superior(database: &Database, config: &Config) -> Result<(), ConfigError> {
    if database.subordinate.is_none() {
        return Ok(());
    }
    for suffix in &database.suffixes {
        let above = config
            .databases
            .iter()
            .any(|other| other.suffixes.iter().any(|other| suffix.normal.is_descendant_of(&other.normal)));
        if !above {
            let message = format!("subordinate \"{suffix}\" has no database above it");
            return Err(ConfigError::new(database.origin.clone(), message)
                .with_help("add a database whose suffix is above, or take `subordinate` out"));
        }
    }
    Ok(())
}

impl Config {
    /// What the server cannot do although the configuration asks for it, and must not pretend to: it does not start.
    pub fn refusals(&self) -> Vec<ConfigError> {
        let mut found = Vec::new();
        self.frontend.overlays.iter().for_each(|overlay| refuse_overlay(overlay, &mut found));
        if self.backends.iter().any(|backend| backend.name == "lload") {
            found.push(ConfigError::new(Origin::BuiltIn, "`backend lload`: balancing load is not supported"));
        }
        for database in self.databases.iter().filter(|database| !database.disabled) {
            if let DatabaseKind::Foreign(kind) = &database.kind {
                let message = format!("databases of kind {} are not supported", kind.name);
                found.push(ConfigError::new(database.origin.clone(), message));
            }
            if !database.sync_replication.is_empty() {
                let message = "syncrepl is not supported yet: this database would not follow its provider";
                found.push(ConfigError::new(database.origin.clone(), message));
            }
            database.overlays.iter().for_each(|overlay| refuse_overlay(overlay, &mut found));
        }
        found
    }

    /// Whether every database's directory is there and can be written to.
    ///
    /// # Errors
    /// Names the directory, and how to make it.
    pub fn check_directories(&self) -> Result<(), ConfigError> {
        for database in self.databases.iter().filter(|database| !database.disabled) {
            let DatabaseKind::Mdb(settings) = &database.kind else { continue };
            let path = settings.directory.display();
            let error = |message: String, help: String| {
                Err(ConfigError::new(database.origin.clone(), message).with_help(help))
            };
            match std::fs::metadata(&settings.directory) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return error(format!("`{path}` is not a directory"), "name a directory".to_owned()),
                Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
                    return error(
                        format!("the database directory `{path}` does not exist"),
                        format!("make it: mkdir -p -m 700 {path}"),
                    );
                }
                Err(why) => {
                    return error(
                        format!("the database directory `{path}` cannot be used: {why}"),
                        "check its owner and mode".to_owned(),
                    );
                }
            }
        }
        Ok(())
    }
}

fn refuse_overlay(overlay: &Overlay, found: &mut Vec<ConfigError>) {
    let handling = overlay_kind(&overlay.name).map(|kind| kind.handling);
    if let (false, Some(OverlayHandling::Refused(why))) = (overlay.disabled, handling) {
        let message = format!("the overlay {} is not supported yet: {why}", overlay.name);
        found.push(ConfigError::new(overlay.origin.clone(), message));
    }
}
