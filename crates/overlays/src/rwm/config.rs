//! The directives of `overlay rwm`.

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, WordFault};
use larix_proto::Dn;
use larix_rewrite::{MapError, Mapping, Rewrite, RewriteError};
use larix_schema::Schema;

use super::Rwm;

const REWRITE: &str = "olcRwmRewrite";
const MAP: &str = "olcRwmMap";

/// The command that a line is, without the prefix.
fn command(keyword: &str) -> String {
    let keyword = keyword.to_ascii_lowercase();
    keyword.strip_prefix("rwm-").map(str::to_owned).unwrap_or(keyword)
}

/// A suffix in pretty form, where the schema knows its attributes.
fn suffix(schema: &Schema, text: &str) -> Result<String, String> {
    let dn = Dn::parse(text).map_err(|error| format!("\"{text}\" is not a DN: {error}"))?;
    // Without the schema the form is the one that was written.
    let written = || dn.rdns().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Ok(schema.pretty_dn(&dn).unwrap_or_else(|_| written()))
}

const MASSAGE: &str = "rwm-suffixmassage [SUFFIX-HERE] SUFFIX-THERE";

/// Looks at one line of rules. What it uses of lines before it is known only when all are there.
///
/// # Errors
/// A word that can be right in no place.
pub(super) fn check_rewrite(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    let Some(keyword) = words.first() else {
        return Err(WordFault::new(0, "needs a command").with_help(RewriteError::Missing("").help()));
    };
    if command(keyword) == "suffixmassage" {
        if !(2..=3).contains(&words.len()) {
            return Err(WordFault::new(0, "takes one or two suffixes").with_help(MASSAGE));
        }
        for (at, word) in words.iter().enumerate().skip(1) {
            suffix(schema, word).map_err(|fault| WordFault::new(at, fault).with_help(MASSAGE))?;
        }
        return Ok(());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match Rewrite::with_sessions().command(&words) {
        Ok(()) | Err(RewriteError::Unknown(_) | RewriteError::Context(_)) => Ok(()),
        Err(error) => Err(WordFault::new(error.word(), error.to_string()).with_help(error.help())),
    }
}

/// # Errors
/// A line that maps nothing.
pub(super) fn check_map(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let fault = |error: MapError| WordFault::new(error.word(), error.to_string()).with_help(error.help());
    Mapping::new(Arc::new(schema.clone())).map(&words).map_err(fault)
}

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
    let mut rules = Rewrite::with_sessions();
    for value in settings.values(REWRITE) {
        let words: Vec<&str> = value.words.iter().map(String::as_str).collect();
        let fault = |message: String, help: &str| {
            SettingError::new(format!("{}: {message}", value.text)).with_help(help)
        };
        let [keyword, arguments @ ..] = words.as_slice() else { continue };
        if command(keyword) != "suffixmassage" {
            rules.command(&words).map_err(|error| fault(error.to_string(), error.help()))?;
            continue;
        }
        let named = |text: &str| suffix(context.schema, text).map_err(|why| fault(why, MASSAGE));
        let (here, there) = match arguments {
            [_] if context.suffixes.is_empty() => {
                return Err(fault("no database whose suffix is meant".to_owned(), MASSAGE));
            }
            [there] => (named(context.shown_suffix)?, named(there)?),
            [here, there] => (named(here)?, named(there)?),
            _ => return Err(fault("takes one or two suffixes".to_owned(), MASSAGE)),
        };
        rules.massage(&here, &there).map_err(|error| fault(error.to_string(), error.help()))?;
    }
    let mut mapping = Mapping::new(Arc::clone(context.schema)).with_rules(rules).map_err(|context| {
        let message = format!("rwm-rewriteMap: the rules of {context} search the directory");
        SettingError::new(message)
            .with_help("names of answers are rewritten without maps; requests may have them")
    })?;
    for value in settings.values(MAP) {
        let words: Vec<&str> = value.words.iter().map(String::as_str).collect();
        mapping.map(&words).map_err(|error| {
            SettingError::new(format!("rwm-map {}: {error}", value.text)).with_help(error.help())
        })?;
    }
    let known = settings.text("olcRwmTFSupport").map(absolute_filters).transpose();
    let known = known.map_err(|message| SettingError::new(format!("rwm-t-f-support: {message}")))?;
    let mapping = mapping
        .with_absolute_filters(known.unwrap_or(false))
        .dropping_unrequested(settings.switch("olcRwmDropUnrequested").unwrap_or(true));
    Ok(Arc::new(Rwm::new(mapping, Arc::clone(context.schema), context.suffixes.to_vec())))
}
