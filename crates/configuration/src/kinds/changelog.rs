//! `database changelog`: cn=changelog, the change log of another database as entries (draft-good-ldap-changelog-04).

use super::super::builder::directive::{Directive, Form, Scope};
use super::super::diagnostic::ConfigError;
use super::super::model::{Config, Database};
use super::super::values::{ChangeLog, ConfigDn};
use super::{Descriptor, KindSettings, NOTHING};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "changelog",
    class: Some("olcLarixChangelogConfig"),
    own_suffix: Some(("cn=changelog", "cn=changelog")),
    closed: true,
    settings: || Box::new(ChangelogSettings::default()),
    directives: TABLE,
    schema: include_str!("changelog.schema"),
    ..NOTHING
};

static TABLE: &[Directive] =
    &[Directive::new("changelog-of", "olcLarixChangelogOf", Scope::Kind("changelog"), Form::Dn, |b, c| {
        let dn = c.dn(&b.schema(), 0)?;
        b.settings_of::<ChangelogSettings>()?.of = Some(dn);
        Ok(())
    })];

/// Settings of `database changelog`.
#[derive(Debug, Clone, Default)]
pub struct ChangelogSettings {
    /// The suffix of the database whose changes it shows; none: of the only one that stores entries.
    pub of: Option<ConfigDn>,
}

impl KindSettings for ChangelogSettings {
    fn refusals(&self, config: &Config, database: &Database, found: &mut Vec<ConfigError>) {
        if let Err(error) = self.shown(config, database) {
            found.push(error);
        }
        let number = config.schema.describe("changeNumber").ok();
        let has_order = number.is_some_and(|it| config.schema.attribute(it.attribute).ordering.is_some());
        if !has_order {
            let message = "the schema has a changeNumber without an ordering rule: no client could ask for the changes after a number";
            found.push(
                ConfigError::new(database.origin.clone(), message)
                    .with_help("take out the schema file that defines it, such as dsee.schema; `database changelog` brings its own"),
            );
        }
    }
}

impl ChangelogSettings {
    /// The database whose changes are shown.
    ///
    /// # Errors
    /// There is none, there are several, or it keeps no change log.
    pub fn shown<'c>(&self, config: &'c Config, own: &Database) -> Result<&'c Database, ConfigError> {
        let fault = |message: String, help: &str| {
            Err(ConfigError::new(own.origin.clone(), message).with_help(help.to_owned()))
        };
        let stored: Vec<&Database> =
            config.databases.iter().filter(|it| !it.disabled && it.kind.is_stored()).collect();
        let shown = match (&self.of, stored.as_slice()) {
            (Some(of), _) => {
                let has = |it: &&&Database| it.suffixes.iter().any(|suffix| suffix.normal == of.normal);
                match stored.iter().find(has) {
                    Some(shown) => *shown,
                    None => {
                        return fault(
                            format!("changelog-of \"{of}\": no database mdb or ldif has that suffix"),
                            "name the suffix of the database whose changes are wanted",
                        );
                    }
                }
            }
            (None, [only]) => *only,
            (None, []) => {
                return fault(
                    "no database mdb or ldif is configured whose changes cn=changelog could show".to_owned(),
                    "add one, or take `database changelog` out",
                );
            }
            (None, _) => {
                return fault(
                    format!(
                        "{} databases store entries, and cn=changelog shows the changes of one",
                        stored.len()
                    ),
                    "say which: changelog-of \"dc=example,dc=com\"",
                );
            }
        };
        if matches!(shown.kind.stored().change_log, ChangeLog::Off) {
            let suffix = shown.suffixes.first().map(ToString::to_string).unwrap_or_default();
            return fault(
                format!("cn=changelog has nothing to show: the database \"{suffix}\" keeps no change log"),
                "take `change-log off` out of that database",
            );
        }
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::model::Config;

    #[test]
    fn what_it_shows() {
        const ONE: &str = "database mdb\nsuffix dc=a\ndirectory $D/a\n";
        const OFF: &str = "database mdb\nsuffix dc=b\ndirectory $D/b\nchange-log off\n";
        const LOG: &str = "database changelog\n";
        for (lines, expected) in [
            (format!("{ONE}{LOG}"), None),
            (format!("{ONE}{OFF}{LOG}changelog-of dc=a\n"), None),
            (LOG.to_owned(), Some("no database mdb or ldif is configured")),
            (format!("{ONE}{OFF}{LOG}"), Some("2 databases store entries")),
            (format!("{ONE}{LOG}changelog-of dc=z\n"), Some("changelog-of \"dc=z\": no database")),
            (format!("{ONE}{OFF}{LOG}changelog-of dc=b\n"), Some("keeps no change log")),
            (format!("include $D/dsee.schema\n{ONE}{LOG}"), Some("changeNumber without an ordering rule")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().display().to_string();
            std::fs::write(folder.path().join("core.schema"), larix_schema::bundled("core").unwrap())
                .unwrap();
            std::fs::write(folder.path().join("dsee.schema"), larix_schema::bundled("dsee").unwrap())
                .unwrap();
            let file = folder.path().join("slapd.conf");
            let text = format!("include {place}/core.schema\n{lines}").replace("$D", &place);
            std::fs::write(&file, text).unwrap();
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
