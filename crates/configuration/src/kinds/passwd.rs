//! `database passwd`: the accounts of a file in the form of passwd(5) (slapd-passwd(5)).

use std::path::{Path, PathBuf};

use super::super::builder::directive::{Directive, Form, Scope};
use super::super::diagnostic::ConfigError;
use super::super::model::{Config, Database};
use super::{Descriptor, KindSettings, NOTHING};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "passwd",
    class: Some("olcPasswdConfig"),
    settings: || Box::new(PasswdSettings::default()),
    directives: TABLE,
    ..NOTHING
};

static TABLE: &[Directive] =
    &[Directive::new("file", "olcPasswdFile", Scope::Kind("passwd"), Form::Whole, |b, c| {
        let file = c.path(0)?;
        b.settings_of::<PasswdSettings>()?.file = Some(file);
        Ok(())
    })];

/// The accounts of the machine itself.
const OWN_FILE: &str = "/etc/passwd";

/// What its entries consist of.
const NAMES: [&str; 5] = ["uid", "cn", "sn", "description", "ou"];

/// Settings of `database passwd`.
#[derive(Debug, Clone, Default)]
pub struct PasswdSettings {
    file: Option<PathBuf>,
}

impl PasswdSettings {
    /// The file that has the accounts.
    pub fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or_else(|| Path::new(OWN_FILE))
    }
}

impl KindSettings for PasswdSettings {
    fn refusals(&self, config: &Config, database: &Database, found: &mut Vec<ConfigError>) {
        let mut refuse = |message: String, help: &str| {
            found.push(ConfigError::new(database.origin.clone(), message).with_help(help.to_owned()));
        };
        if let Some(name) = NAMES.iter().find(|name| config.schema.describe(name).is_err()) {
            let message = format!("the accounts of `database passwd` have {name}, which the schema lacks");
            refuse(message, "write `schema core` before it");
        }
        let file = self.file();
        let why = match std::fs::metadata(file) {
            Ok(found) if found.is_file() => None,
            Ok(_) => Some("it is no file".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            let message = format!("file \"{}\": {why}", file.display());
            refuse(message, "name a file in the form of passwd(5), which the server may read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::model::Config;

    #[test]
    fn what_it_needs() {
        let core = larix_schema::bundled("core").unwrap();
        for (lines, core, expected) in [
            ("", core, None),
            ("file $D/accounts\n", core, None),
            ("file $D/none\n", core, Some("/none\": No such file")),
            ("file $D\n", core, Some("it is no file")),
            ("file $D/accounts\n", "", Some("have sn, which the schema lacks")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().display().to_string();
            std::fs::write(folder.path().join("core.schema"), core).unwrap();
            std::fs::write(folder.path().join("accounts"), "ann:x:1:1::/:/bin/sh\n").unwrap();
            let file = folder.path().join("slapd.conf");
            let text = format!("include $D/core.schema\ndatabase passwd\nsuffix cn=hosts\n{lines}");
            std::fs::write(&file, text.replace("$D", &place)).unwrap();
            let config = Config::from_slapd_conf(&file).unwrap();
            let found = config.refusals().first().map(ToString::to_string);
            match expected {
                None => assert_eq!(found, None, "{lines}"),
                Some(text) => {
                    assert!(found.as_ref().is_some_and(|it| it.contains(text)), "{lines}: {found:?}")
                }
            }
        }
    }
}
