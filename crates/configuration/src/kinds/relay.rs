//! `database relay`: another database of this server under other names (slapd-relay(5)).

use larix_schema::NearestSuffix;

use super::super::builder::directive::{Directive, Form, Scope};
use super::super::diagnostic::ConfigError;
use super::super::model::{Config, Database};
use super::super::values::ConfigDn;
use super::{Descriptor, KindSettings, NOTHING, Storage};

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: "relay",
    storage: Storage::Elsewhere,
    class: Some("olcRelayConfig"),
    settings: || Box::new(RelaySettings::default()),
    directives: TABLE,
    ..NOTHING
};

static TABLE: &[Directive] =
    &[Directive::new("relay", "olcRelay", Scope::Kind("relay"), Form::Dn, |b, c| {
        let dn = c.dn(&b.schema(), 0)?;
        b.settings_of::<RelaySettings>()?.real = Some(dn);
        Ok(())
    })];

/// Settings of `database relay`.
#[derive(Debug, Clone, Default)]
pub struct RelaySettings {
    /// An entry of the database that has the entries; none: the one that each request's name belongs to.
    pub real: Option<ConfigDn>,
}

impl KindSettings for RelaySettings {}

/// Checks that each relay leads to another database.
///
/// # Errors
/// One that leads to itself, or nowhere.
pub(in super::super) fn check(config: &Config) -> Result<(), ConfigError> {
    let served = |database: &&Database| !database.hidden && !database.disabled;
    for database in config.databases.iter().filter(served) {
        let real = database.kind.settings::<RelaySettings>().and_then(|settings| settings.real.as_ref());
        let Some(real) = real else { continue };
        let depth = |nearest: &NearestSuffix<'_>, other: &&Database| other.depth_of(nearest);
        let holder = NearestSuffix::of(&real.normal).among(config.databases.iter().filter(served), depth);
        let fault = |message: String, help: &str| {
            Err(ConfigError::new(database.origin.clone(), message).with_help(help.to_owned()))
        };
        match holder {
            None => {
                return fault(
                    format!("relay \"{real}\": no database of this server has that name"),
                    "the name of an entry of the database that is meant, such as its suffix",
                );
            }
            Some((_, holder)) if std::ptr::eq(holder, database) => {
                return fault(
                    format!("relay \"{real}\": the database would ask itself"),
                    "the name of an entry of another database, such as its suffix",
                );
            }
            Some(_) => {}
        }
    }
    Ok(())
}
