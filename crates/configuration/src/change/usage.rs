//! What is in use cannot be taken away: modules that a database or an overlay stands on.
//!
//! Schema definitions that others, access rules or index lines use are found when the configuration is built without
//! them. The caller that opens the databases finds those that entries use.

use larix_proto::ResultCode;

use super::super::model::Config;
use super::ConfigRefusal;

/// # Errors
/// unwillingToPerform, with what uses it.
pub(super) fn check(before: &Config, after: &Config) -> Result<(), ConfigRefusal> {
    let loaded_after = loaded(after);
    for module in loaded(before).into_iter().filter(|module| !loaded_after.contains(module)) {
        if let Some(user) = user_of(after, &module) {
            let text = format!("the module {module} is in use: {user}");
            return Err(ConfigRefusal::new(ResultCode::UNWILLING_TO_PERFORM, text));
        }
    }
    Ok(())
}

/// Names of all modules, without directory and ending.
fn loaded(config: &Config) -> Vec<String> {
    let values = config.modules.iter().flat_map(|list| list.settings.get("olcModuleLoad"));
    values
        .map(|value| {
            let text = String::from_utf8_lossy(value);
            let file = text.split_whitespace().next().unwrap_or_default();
            let name = file.rsplit('/').next().unwrap_or(file);
            let name = name.strip_suffix(".la").or_else(|| name.strip_suffix(".so")).unwrap_or(name);
            name.to_ascii_lowercase()
        })
        .collect()
}

/// The first database or overlay that the module is for.
fn user_of(config: &Config, module: &str) -> Option<String> {
    if matches!(module, "lload" | "lloadd") && config.global.balancer.is_some() {
        return Some("the balancer, olcBackend=lload,cn=config".to_owned());
    }
    if let Some(kind) = module.strip_prefix("back_") {
        return config
            .databases
            .iter()
            .position(|database| database.kind.name() == kind)
            .map(|number| format!("olcDatabase={{{number}}}{kind},cn=config"));
    }
    let overlays = config.databases.iter().enumerate().flat_map(|(number, database)| {
        let parent = format!("olcDatabase={{{number}}}{},cn=config", database.kind.name());
        database.overlays.iter().enumerate().map(move |(at, overlay)| (at, overlay, parent.clone()))
    });
    let frontend = "olcDatabase={-1}frontend,cn=config".to_owned();
    let of_frontend = config.frontend.overlays.iter().enumerate();
    let mut all = overlays.chain(of_frontend.map(|(at, overlay)| (at, overlay, frontend.clone())));
    all.find(|(_, overlay, _)| overlay.name.eq_ignore_ascii_case(module))
        .map(|(at, overlay, parent)| format!("olcOverlay={{{at}}}{},{parent}", overlay.name))
}
