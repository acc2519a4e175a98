//! Which configuration: `-f`, `-F`, both, or neither.

use std::path::{Path, PathBuf};

use super::diagnostic::{ConfigError, Origin};
use super::model::{Config, Source};
use super::slapd_d::{self, Stamp};

/// Where slapd looks when it is told nothing, in this order.
pub const DEFAULT_DIRECTORY: &str = "/etc/ldap/slapd.d";
pub const DEFAULT_FILE: &str = "/etc/ldap/slapd.conf";

/// The flags `-f` and `-F` of the server and of every tool.
#[derive(Debug, Clone, Default)]
pub struct Location {
    pub file: Option<PathBuf>,
    pub directory: Option<PathBuf>,
}

impl Location {
    /// Reads the configuration. With both flags the file is read and written to the directory in slapd.d form, unless
    /// `dry_run`; with neither a directory at the usual place comes before a file there.
    ///
    /// # Errors
    /// What is wrong, where, and how to mend it.
    pub fn load(&self, stamp: &Stamp<'_>, dry_run: bool) -> Result<Config, ConfigError> {
        match (&self.file, &self.directory) {
            (Some(file), None) => Config::from_slapd_conf(file),
            (None, Some(directory)) => Config::from_slapd_d(directory),
            (Some(file), Some(directory)) => {
                let config = Config::from_slapd_conf(file)?;
                if dry_run {
                    return Ok(config);
                }
                convert(&config, directory, stamp)?;
                // Changes are kept there from now on.
                let mut converted = Config::from_slapd_d(directory)?;
                converted.notes = config.notes;
                Ok(converted)
            }
            (None, None) => {
                let (directory, file) = (Path::new(DEFAULT_DIRECTORY), Path::new(DEFAULT_FILE));
                if directory.join("cn=config.ldif").exists() {
                    return Config::from_slapd_d(directory);
                }
                if file.exists() {
                    return Config::from_slapd_conf(file);
                }
                let message = format!("there is neither {DEFAULT_DIRECTORY} nor {DEFAULT_FILE}");
                Err(ConfigError::new(Origin::BuiltIn, message)
                    .with_help("name a file with -f or a directory with -F"))
            }
        }
    }

    /// The slapd.d that a tool works on when it writes cn=config.
    pub fn directory_to_write(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_DIRECTORY))
    }
}

/// Writes a configuration to a slapd.d that holds none yet.
///
/// # Errors
/// There is a configuration already, or a file cannot be written.
pub fn convert(config: &Config, directory: &Path, stamp: &Stamp<'_>) -> Result<(), ConfigError> {
    if directory.join("cn=config.ldif").exists() {
        let message = format!("`{}` holds a configuration already", directory.display());
        return Err(ConfigError::new(Origin::BuiltIn, message)
            .with_help("name an empty directory, or move the old one away"));
    }
    let mut all = config.entries();
    for entry in &mut all {
        if entry.dn == "cn=config" && !matches!(config.source, Source::Directory(_)) {
            entry.text("olcConfigDir", &directory.to_string_lossy());
        }
    }
    slapd_d::write_entries(directory, &all, stamp)
}
