//! The settings of `overlay ppolicy`.

use std::path::Path;
use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};

use super::lists::{Breached, Words};
use super::{PasswordPolicy, PasswordPolicySettings, PolicyRule, SUBENTRY};

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
    let path = |attribute| settings.text(attribute).map(Path::new);
    let words = path("olcLarixPPolicyWords").map(|path| {
        let words = Words::read(path);
        words.map_err(|error| SettingError::new(format!("ppolicy_words {}: {error}", path.display())))
    });
    let breached = path("olcLarixPPolicyBreached").map(|path| {
        let breached = Breached::open(path);
        breached.map_err(|error| {
            SettingError::new(format!("ppolicy_breached {}: {error}", path.display())).with_help(
                "name a file with lines of SHA-1 hashes in their order, or a folder of such files by their first five digits",
            )
        })
    });
    let forward_updates = settings.is_on("olcPPolicyForwardUpdates");
    Ok(PasswordPolicySettings {
        forward_updates,
        forwards_nowhere: forward_updates && context.forwards == Some(false),
        check_module: settings.text("olcPPolicyCheckModule").map(str::to_owned),
        words: words.transpose()?,
        breached: breached.transpose()?,
        default_policy,
        rules: rules.collect::<Result<_, _>>()?,
        hash_cleartext: settings.is_on("olcPPolicyHashCleartext"),
        use_lockout: settings.is_on("olcPPolicyUseLockout"),
        disable_write: settings.is_on("olcPPolicyDisableWrite"),
        send_netscape_controls: settings.is_on("olcPPolicySendNetscapeControls"),
        hasher: context.hasher.clone(),
        last_bind: context.last_bind,
        subentry: schema.describe(SUBENTRY).ok(),
    })
}
