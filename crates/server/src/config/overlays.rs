//! Overlays made into plugins.

use std::sync::Arc;

use larix_engine::database::ProviderSettings;
use larix_engine::plugins::Plugin;
use larix_engine::plugins::last_bind::LastBind;
use larix_engine::plugins::membership::Membership;
use larix_engine::plugins::password_policy::{PasswordPolicy, PasswordPolicySettings, PolicyRule};
use larix_engine::plugins::referential_integrity::ReferentialIntegrity;

use super::diagnostic::ConfigError;
use super::line;
use super::model::{Config, Database, Overlay};

impl Config {
    /// The plugins of a database, in the order of its overlays; what hangs on binds comes after them.
    ///
    /// # Errors
    /// An overlay's setting that cannot be understood.
    pub(super) fn plugins(&self, database: &Database) -> Result<Vec<Arc<dyn Plugin>>, ConfigError> {
        let mut plugins: Vec<Arc<dyn Plugin>> = Vec::new();
        for overlay in database.overlays.iter().filter(|overlay| !overlay.disabled) {
            match overlay.name.as_str() {
                "ppolicy" => {
                    plugins.push(Arc::new(PasswordPolicy::new(self.password_policy(database, overlay)?)));
                }
                "memberof" => {
                    let settings = self.membership(database, overlay)?;
                    plugins.extend(settings.map(|settings| Arc::new(Membership::new(settings)) as _));
                }
                "refint" => {
                    let settings = self.referential_integrity(database, overlay)?;
                    plugins.push(Arc::new(ReferentialIntegrity::new(settings)));
                }
                _ => {}
            }
        }
        if database.last_bind {
            plugins.push(Arc::new(LastBind { precision: database.last_bind_precision }));
        }
        Ok(plugins)
    }

    /// How the overlay syncprov has the database's content provided. The session log is the change log, whatever its
    /// size; every commit of a change has the contextCSN in it, so that there is nothing to checkpoint.
    ///
    /// # Errors
    /// A setting that cannot be understood.
    pub(super) fn provider(&self, database: &Database) -> Result<Option<ProviderSettings>, ConfigError> {
        let mut overlays = database.overlays.iter().filter(|overlay| !overlay.disabled);
        let Some(overlay) = overlays.find(|overlay| overlay.name == "syncprov") else { return Ok(None) };
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
