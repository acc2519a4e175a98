//! Overlays made into plugins.

use std::sync::Arc;

use larix_engine::plugins::Plugin;
use larix_engine::plugins::last_bind::LastBind;
use larix_engine::plugins::password_policy::{PasswordPolicy, PasswordPolicySettings, PolicyRule};

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
            if overlay.name == "ppolicy" {
                plugins.push(Arc::new(PasswordPolicy::new(self.password_policy(database, overlay)?)));
            }
        }
        if database.last_bind {
            plugins.push(Arc::new(LastBind { precision: database.last_bind_precision }));
        }
        Ok(plugins)
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
