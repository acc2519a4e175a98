//! The directives of `overlay rwm`.

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, WordFault};
use larix_rewrite::{NamesInFront, lines};
use larix_schema::Schema;

/// # Errors
/// Neither yes nor no.
pub(super) fn check_absolute_filters(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    absolute_filters(words.first().map_or("", String::as_str)).map(|_| ()).map_err(|message| {
        WordFault::new(0, message).with_help("yes, if what is behind the overlay knows (&) and (|), or no")
    })
}

fn absolute_filters(word: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" => Ok(true),
        "no" | "false" | "off" => Ok(false),
        "discover" => Err("what the database knows is not asked of it".to_owned()),
        _ => Err(format!("`{word}` is neither yes nor no")),
    }
}

/// # Errors
/// A line that cannot be understood where it stands.
pub fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    let suffix = Some(context.shown_suffix).filter(|_| !context.suffixes.is_empty());
    let words = |attribute| settings.values(attribute).map(|value| value.words.as_slice());
    let mapping =
        lines::mapping(context.schema, (suffix, "rwm-"), words("olcRwmRewrite"), words("olcRwmMap"));
    let mapping = mapping.map_err(|fault| SettingError::new(fault.message).with_help(fault.help))?;
    let known = settings.text("olcRwmTFSupport").map(absolute_filters).transpose();
    let known = known.map_err(|message| SettingError::new(format!("rwm-t-f-support: {message}")))?;
    let mapping = mapping
        .with_absolute_filters(known.unwrap_or(false))
        .dropping_unrequested(settings.switch("olcRwmDropUnrequested").unwrap_or(true));
    Ok(Arc::new(NamesInFront::new(mapping, Arc::clone(context.schema), context.suffixes.to_vec())))
}
