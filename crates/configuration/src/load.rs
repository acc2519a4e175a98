//! Where a configuration is read from: files, entries or flags; and which of them `-f`, `-F`, both or neither mean.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::diagnostic::{ConfigError, Origin};
use super::entry::ConfigEntry;
use super::model::{Config, Earlier, QuickStart, Source};
use super::slapd_d::{self, Stamp};
use super::{entries, quick_start, slapd_conf};

/// Where slapd looks without flags, in this order.
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
    /// What is wrong, where, and how to correct it.
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
                if slapd_d::exists_in(directory) {
                    return Config::from_slapd_d(directory);
                }
                if file.exists() {
                    return Config::from_slapd_conf(file);
                }
                let message = format!("there is neither {DEFAULT_DIRECTORY} nor {DEFAULT_FILE}");
                let help = "name a file with -f or a directory with -F; `larix serve --suffix dc=example,dc=com` makes one";
                Err(ConfigError::new(Origin::BuiltIn, message).with_help(help))
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
    if slapd_d::exists_in(directory) {
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

impl Config {
    /// Reads a slapd.conf and all it includes.
    pub fn from_slapd_conf(path: &Path) -> Result<Self, ConfigError> {
        slapd_conf::read(path)
    }

    /// Builds and validates a configuration from entries under cn=config, given in any order.
    ///
    /// # Errors
    /// Names the entry, the attribute and the value.
    pub fn from_entries(all: Vec<ConfigEntry>, source: Source) -> Result<Self, ConfigError> {
        entries::from_entries(all.into_iter().map(Arc::new).collect(), source, Earlier::Nothing)
    }

    /// The same of entries that a server has, which may be what an earlier version took and a new entry may not have.
    ///
    /// # Errors
    /// As [`Self::from_entries`].
    pub fn from_kept_entries(all: Vec<ConfigEntry>, source: Source) -> Result<Self, ConfigError> {
        entries::from_entries(all.into_iter().map(Arc::new).collect(), source, Earlier::Kept)
    }

    /// The same for a configuration that takes this one's place: attribute types and object classes that both have keep
    /// their numbers, so that what was begun under this one is still understood.
    ///
    /// # Errors
    /// As [`Self::from_entries`].
    pub fn followed_by(&self, all: Vec<Arc<ConfigEntry>>) -> Result<Self, ConfigError> {
        entries::from_entries(all, self.source.clone(), Earlier::Before(self))
    }

    /// The entries under cn=config, parents before children.
    pub fn entries(&self) -> Vec<ConfigEntry> {
        entries(self)
    }

    /// The same, shared with other holders.
    pub fn shared_entries(&self) -> Vec<Arc<ConfigEntry>> {
        entries::shared(self)
    }

    /// Reads a slapd.d directory.
    pub fn from_slapd_d(path: &Path) -> Result<Self, ConfigError> {
        slapd_d::read(path)
    }

    /// A directory with safe defaults and sensible indexes, for `larix serve --suffix`.
    pub fn quick_start(start: &QuickStart) -> Result<Self, ConfigError> {
        quick_start::build(start)
    }
}
