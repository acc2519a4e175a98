//! What the engine is given of the overlays that are configured.

use std::sync::Arc;

use larix_engine::budget::{RequestLimit, RequestLimits};
use larix_engine::database::ProviderSettings;
use larix_engine::overlay;
use larix_engine::overlay::last_bind::LastBind;
use larix_engine::overlay::membership::Membership;
use larix_engine::overlay::password_policy::{PasswordPolicy, PasswordPolicySettings, PolicyRule};
use larix_engine::overlay::referential_integrity::ReferentialIntegrity;

use super::diagnostic::ConfigError;
use super::line;
use super::model::{Config, Database, Overlay};

/// Overlays that look after the entries of one database. Before the first database they are meant for the only one that
/// stores entries; with several of these the configuration is refused.
const OF_ONE_DATABASE: [&str; 4] = ["memberof", "ppolicy", "refint", "syncprov"];

impl Config {
    /// The overlays in force in a database: its own, then those of the frontend that are meant for it.
    pub fn overlays_of<'c>(&'c self, database: &'c Database) -> impl Iterator<Item = &'c Overlay> {
        let is_only =
            self.stored_databases().all(|other| other.kind.directory() == database.kind.directory())
                && database.kind.is_stored();
        let is_meant = move |overlay: &&Overlay| {
            is_only
                && OF_ONE_DATABASE.contains(&overlay.name.as_str())
                && !database.overlays.iter().any(|own| own.name == overlay.name)
        };
        let of_all = self.frontend.overlays.iter().filter(is_meant);
        database.overlays.iter().chain(of_all).filter(|overlay| !overlay.disabled)
    }

    fn stored_databases(&self) -> impl Iterator<Item = &Database> {
        self.databases.iter().filter(|database| database.kind.is_stored() && !database.disabled)
    }

    /// Why an overlay of the frontend cannot be in force.
    pub(super) fn refused_for_all(&self, overlay: &Overlay) -> Option<ConfigError> {
        let count = self.stored_databases().count();
        if overlay.disabled || count == 1 || !OF_ONE_DATABASE.contains(&overlay.name.as_str()) {
            return None;
        }
        let message =
            format!("the overlay {} for all databases is not supported: there are {count}", overlay.name);
        let help = format!("put `overlay {}` into each database that is to have it", overlay.name);
        Some(overlay.fault(message).with_help(help))
    }

    /// The overlays of a database as the engine runs them, in their order; what hangs on binds comes after them.
    ///
    /// # Errors
    /// An overlay's setting that cannot be understood.
    pub(super) fn overlays(
        &self,
        database: &Database,
    ) -> Result<Vec<Arc<dyn overlay::Overlay>>, ConfigError> {
        let mut overlays: Vec<Arc<dyn overlay::Overlay>> = Vec::new();
        for overlay in self.overlays_of(database) {
            match overlay.name.as_str() {
                "ppolicy" => {
                    overlays.push(Arc::new(PasswordPolicy::new(self.password_policy(database, overlay)?)));
                }
                "memberof" => {
                    let settings = self.membership(database, overlay)?;
                    overlays.extend(settings.map(|settings| Arc::new(Membership::new(settings)) as _));
                }
                "refint" => {
                    let settings = self.referential_integrity(database, overlay)?;
                    overlays.push(Arc::new(ReferentialIntegrity::new(settings)));
                }
                "constraint" => overlays.push(Arc::new(self.constraints(database, overlay)?)),
                "unique" => overlays.push(Arc::new(self.unique_overlay(database, overlay)?)),
                _ => overlays.extend(self.entry_overlay(overlay)?),
            }
        }
        if database.last_bind {
            overlays.push(Arc::new(LastBind { precision: database.last_bind_precision }));
        }
        Ok(overlays)
    }

    /// What one request may cost in a database: `request-limits`, and the keys of a sort control by its overlay sssvlv.
    ///
    /// # Errors
    /// A directive that does not say what it should.
    pub(super) fn request_limits(&self, database: &Database) -> Result<RequestLimits, ConfigError> {
        let limits = self.global.request_limits;
        let overlays = database.overlays.iter().chain(&self.frontend.overlays);
        let mut overlays = overlays.filter(|overlay| !overlay.disabled && overlay.name == "sssvlv");
        let Some(overlay) = overlays.next() else { return Ok(limits) };
        let Some(value) = overlay.settings.get("olcSssVlvMaxKeys").first() else { return Ok(limits) };
        let value = String::from_utf8_lossy(value);
        match value.parse::<u32>() {
            Ok(most) => Ok(limits.with(RequestLimit::SortKeys, most.into())),
            Err(_) => {
                let fault = format!("sssvlv-maxkeys \"{value}\": not a number of sort keys");
                Err(ConfigError::new(overlay.origin.clone(), fault))
            }
        }
    }

    /// How the overlay syncprov has the database's content provided. The session log is the change log, whatever its
    /// size; every commit of a change has the contextCSN in it, so that there is nothing to checkpoint.
    ///
    /// # Errors
    /// A setting that cannot be understood.
    pub(super) fn provider(&self, database: &Database) -> Result<Option<ProviderSettings>, ConfigError> {
        let Some(overlay) = self.overlays_of(database).find(|overlay| overlay.name == "syncprov") else {
            return Ok(None);
        };
        let text = |attribute: &str| {
            let value = overlay.settings.get(attribute).first()?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        let fault = |message: String| ConfigError::new(overlay.origin.clone(), message);
        if let Some(value) = text("olcSpCheckpoint") {
            let numbers: Vec<Option<u32>> = value.split_whitespace().map(|n| n.parse().ok()).collect();
            if !matches!(numbers.as_slice(), [Some(1..), Some(1..)]) {
                let help = "two numbers above 0: operations and minutes";
                return Err(fault(format!("syncprov-checkpoint \"{value}\": not {help}")));
            }
        }
        if let Some(value) = text("olcSpSessionlog")
            && value.parse::<u32>().is_err()
        {
            return Err(fault(format!("syncprov-sessionlog \"{value}\": not a number of operations")));
        }
        if let Some(value) = text("olcSpSessionlogSource")
            && let Err(error) = self.schema.parse_dn(&value)
        {
            return Err(fault(format!("syncprov-sessionlog-source \"{value}\": not a DN: {error}")));
        }
        let flag = |attribute: &str| text(attribute).is_some_and(|value| value.eq_ignore_ascii_case("TRUE"));
        let (no_present, reload_hint) = (flag("olcSpNoPresent"), flag("olcSpReloadHint"));
        Ok(Some(ProviderSettings { no_present, reload_hint }))
    }

    fn password_policy(
        &self,
        database: &Database,
        overlay: &Overlay,
    ) -> Result<PasswordPolicySettings, ConfigError> {
        let text = |attribute: &str| {
            let value = overlay.settings.get(attribute).first()?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        let flag = |attribute: &str| text(attribute).is_some_and(|value| value.eq_ignore_ascii_case("TRUE"));
        let fault = |message: String| ConfigError::new(overlay.origin.clone(), message);
        let default_policy = match text("olcPPolicyDefault") {
            None => None,
            Some(dn) => Some(
                self.schema
                    .parse_dn(&dn)
                    .map_err(|error| fault(format!("ppolicy_default: \"{dn}\" is not a DN: {error}")))?,
            ),
        };
        let mut rules = Vec::new();
        for value in overlay.settings.get("olcLarixPPolicyRules") {
            let value = String::from_utf8_lossy(value);
            let words = line::words(&value).0;
            let rule = PolicyRule::parse(&self.schema, words.iter().map(|word| word.text.as_str()));
            rules.push(rule.map_err(|error| fault(format!("ppolicy_rules {value}: {error}")))?);
        }
        Ok(PasswordPolicySettings {
            default_policy,
            rules,
            hash_cleartext: flag("olcPPolicyHashCleartext"),
            use_lockout: flag("olcPPolicyUseLockout"),
            disable_write: flag("olcPPolicyDisableWrite"),
            send_netscape_controls: flag("olcPPolicySendNetscapeControls"),
            hasher: self.hasher(),
            last_bind: database.last_bind,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::integrity::tests::read;

    const ONE: &str = "database mdb\nsuffix dc=a\ndirectory $D/a\n";
    const OTHER: &str = "database mdb\nsuffix dc=b\ndirectory $D/b\n";

    #[test]
    fn overlays_before_the_only_database_are_meant_for_it() {
        for (overlay, overlays, provides) in [
            ("overlay memberof\n", &["memberof"][..], false),
            ("overlay refint\nrefint_attributes member\n", &["refint"], false),
            ("overlay ppolicy\nppolicy_hash_cleartext\n", &["ppolicy"], false),
            ("overlay syncprov\nsyncprov-sessionlog 100\n", &[], true),
            ("overlay memberof\noverlay refint\nrefint_attributes member\n", &["memberof", "refint"], false),
        ] {
            let config = read(&format!("{overlay}database monitor\n{ONE}")).unwrap();
            assert_eq!(config.refusals(), [], "{overlay}");
            let settings = config.engine_settings(&config.databases[2]).unwrap();
            let found: Vec<_> = settings.overlays.iter().map(|overlay| overlay.name()).collect();
            assert_eq!((found.as_slice(), settings.provider.is_some()), (overlays, provides), "{overlay}");
            assert_eq!(config.overlays_of(&config.databases[1]).count(), 0, "{overlay}");
            // With two of them nobody knows which is meant.
            let config = read(&format!("{overlay}{ONE}{OTHER}")).unwrap();
            let refusal = config.refusals().first().map(ToString::to_string).unwrap_or_default();
            assert!(refusal.contains("for all databases is not supported: there are 2"), "{refusal}");
            assert!(refusal.contains("into each database that is to have it"), "{refusal}");
        }
        // A database's own counts more.
        let own = format!("overlay ppolicy\nppolicy_hash_cleartext\n{ONE}overlay ppolicy\n");
        let config = read(&own).unwrap();
        let settings = config.engine_settings(&config.databases[1]).unwrap();
        assert_eq!(settings.overlays.len(), 1);
    }
}
