//! `overlay syncprov`: the content of a database is provided to consumers (RFC 4533). The session log is the change log, whatever
//! its size; every commit of a change has the contextCSN in it, so that there is nothing to checkpoint.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    BuildContext, Descriptor, InGluedDatabases, Interests, Overlay, OverlayDirective, ProviderSettings,
};

pub static DESCRIPTOR: Descriptor = Descriptor::new("syncprov", "olcSyncProvConfig", build)
    .over_glue(InGluedDatabases::TakenIn)
    .once()
    .provides_content()
    .directives(&[
        OverlayDirective::words("syncprov-checkpoint", "olcSpCheckpoint"),
        OverlayDirective::whole("syncprov-sessionlog", "olcSpSessionlog"),
        OverlayDirective::switch("syncprov-nopresent", "olcSpNoPresent"),
        OverlayDirective::switch("syncprov-reloadhint", "olcSpReloadHint"),
        OverlayDirective::whole("syncprov-sessionlog-source", "olcSpSessionlogSource").with_blanks(),
    ]);

/// Its settings say all; it uses no hook.
#[derive(Debug)]
struct Provider {
    settings: ProviderSettings,
}

impl Overlay for Provider {
    fn name(&self) -> &'static str {
        "syncprov"
    }

    fn interests(&self) -> Interests {
        Interests::NONE
    }

    fn provider(&self) -> Option<ProviderSettings> {
        Some(self.settings)
    }
}

fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    if let Some(value) = settings.text("olcSpCheckpoint") {
        let numbers: Vec<Option<u32>> = value.split_whitespace().map(|number| number.parse().ok()).collect();
        if !matches!(numbers.as_slice(), [Some(1..), Some(1..)]) {
            let wanted = "two numbers above 0: operations and minutes";
            return Err(SettingError::new(format!("syncprov-checkpoint \"{value}\": not {wanted}")));
        }
    }
    if let Some(value) = settings.text("olcSpSessionlog")
        && value.parse::<u32>().is_err()
    {
        return Err(SettingError::new(format!(
            "syncprov-sessionlog \"{value}\": not a number of operations"
        )));
    }
    if let Some(value) = settings.text("olcSpSessionlogSource")
        && let Err(error) = context.schema.parse_dn(value)
    {
        return Err(SettingError::new(format!("syncprov-sessionlog-source \"{value}\": not a DN: {error}")));
    }
    let (no_present, reload_hint) = (settings.is_on("olcSpNoPresent"), settings.is_on("olcSpReloadHint"));
    Ok(Arc::new(Provider { settings: ProviderSettings { no_present, reload_hint } }))
}
