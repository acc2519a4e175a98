//! `database ldif`: entries as LDIF files, which are the truth.

use std::path::{Path, PathBuf};

use larix_engine::index::IndexConfig;

use super::super::builder::directive::{Directive, Form, Scope};
use super::super::diagnostic::ConfigError;
use super::super::model::Database;
use super::super::values::ChangeLog;
use super::{Descriptor, KindSettings, NOTHING, Storage, StoredSettings};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "ldif",
    storage: Storage::LdifFiles,
    class: Some("olcLdifConfig"),
    is_recorded: true,
    follows: true,
    settings: || Box::new(LdifSettings::default()),
    directives: TABLE,
    ..NOTHING
};

static TABLE: &[Directive] =
    &[Directive::new("directory", "olcDbDirectory", Scope::Kind("ldif"), Form::Whole, |b, c| {
        let path = c.path(0)?;
        b.settings_of::<LdifSettings>()?.directory = path;
        Ok(())
    })
    .with_blanks()];

#[derive(Debug, Clone, Default)]
struct LdifSettings {
    directory: PathBuf,
}

impl KindSettings for LdifSettings {
    fn directory(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    /// The files are synced; the image of them is made anew at the next start.
    fn stored(&self) -> StoredSettings {
        StoredSettings {
            change_log: ChangeLog::default(),
            index: IndexConfig::default(),
            relaxed: true,
            ..StoredSettings::default()
        }
    }

    fn check(&self, database: &Database) -> Result<(), ConfigError> {
        one_suffix(database)
    }
}

/// The first file of a tree of LDIF files is named after the suffix.
fn one_suffix(database: &Database) -> Result<(), ConfigError> {
    let fault = match database.suffixes.as_slice() {
        [_, second, ..] => format!("an ldif database has one suffix, and \"{second}\" is another"),
        [suffix] if suffix.normal.is_root() => "an ldif database cannot hold the empty name".to_owned(),
        _ => return Ok(()),
    };
    Err(ConfigError::new(database.origin.clone(), fault)
        .with_help("give each suffix a database and a directory of its own"))
}
