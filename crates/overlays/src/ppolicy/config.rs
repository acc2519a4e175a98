//! The settings of `overlay ppolicy`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};

use super::{PasswordPolicy, PasswordPolicySettings, PolicyRule};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(PasswordPolicy::new(read(settings, context)?)))
}

fn read(settings: &Settings, context: &BuildContext<'_>) -> Result<PasswordPolicySettings, SettingError> {
    let schema = context.schema;
    let default_policy = match settings.text("olcPPolicyDefault") {
        None => None,
        Some(dn) => Some(schema.parse_dn(dn).map_err(|error| {
            SettingError::new(format!("ppolicy_default: \"{dn}\" is not a DN: {error}")).awaiting_schema()
        })?),
    };
    let rules = settings.values("olcLarixPPolicyRules").map(|value| {
        let rule = PolicyRule::parse(schema, value.words.iter().map(String::as_str));
        rule.map_err(|error| {
            SettingError::new(format!("ppolicy_rules {}: {error}", value.text)).awaiting_schema()
        })
    });
    Ok(PasswordPolicySettings {
        default_policy,
        rules: rules.collect::<Result<_, _>>()?,
        hash_cleartext: settings.is_on("olcPPolicyHashCleartext"),
        use_lockout: settings.is_on("olcPPolicyUseLockout"),
        disable_write: settings.is_on("olcPPolicyDisableWrite"),
        send_netscape_controls: settings.is_on("olcPPolicySendNetscapeControls"),
        hasher: context.hasher.clone(),
        last_bind: context.last_bind,
    })
}
