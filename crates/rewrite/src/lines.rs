//! A mapping from the lines of a configuration: those of `overlay rwm`, and of the targets of `database meta`, which have the same
//! words without `rwm-`.

use std::fmt;
use std::sync::Arc;

use larix_engine::overlay::WordFault;
use larix_proto::Dn;
use larix_schema::{DnError, Schema};

use crate::mapping::{MapError, Mapping};
use crate::rules::{Rewrite, RewriteError};

/// What is wrong with a line, and the mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    pub message: String,
    pub help: &'static str,
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

const MASSAGE: &str = "suffixmassage [SUFFIX-HERE] SUFFIX-THERE";

/// Contexts that slapd-meta(5) has by other names than slapo-rwm(5).
const CONTEXTS: [(&str, &str); 3] =
    [("searchbase", "searchDN"), ("modrdn", "renameDN"), ("searchresult", "searchEntryDN")];

/// The command that a line is, without a prefix.
fn command(keyword: &str) -> String {
    let keyword = keyword.to_ascii_lowercase();
    keyword.strip_prefix("rwm-").map(str::to_owned).unwrap_or(keyword)
}

/// The words of a line, with the names of contexts that the rules have.
fn known<'a>(words: &'a [String]) -> Vec<&'a str> {
    let is_context = words.first().is_some_and(|keyword| command(keyword) == "rewritecontext");
    let name = |word: &'a String| {
        let found = CONTEXTS.iter().find(|(other, _)| is_context && other.eq_ignore_ascii_case(word));
        found.map_or(word.as_str(), |(_, name)| *name)
    };
    words.iter().map(name).collect()
}

/// A suffix in pretty form, where the schema knows its attributes.
fn suffix(schema: &Schema, text: &str) -> Result<String, String> {
    let dn = Dn::parse(text).map_err(|error| format!("\"{text}\" is not a DN: {error}"))?;
    // Without the schema the form is the one that was written.
    let written = || dn.rdns().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match schema.pretty_dn(&dn) {
        Ok(pretty) => Ok(pretty),
        Err(why @ DnError::EmptyValue(_)) => Err(format!("\"{text}\" is not a DN: {why}")),
        Err(_) => Ok(written()),
    }
}

/// Looks at one line of rules. What it uses of lines before it is known only when all are there.
///
/// # Errors
/// A word that can be right in no place.
pub fn check_rewrite(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
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
    match Rewrite::with_sessions().command(&known(words)) {
        Ok(()) | Err(RewriteError::Unknown(_) | RewriteError::Context(_)) => Ok(()),
        Err(error) => Err(WordFault::new(error.word(), error.to_string()).with_help(error.help())),
    }
}

/// # Errors
/// A line that maps nothing.
pub fn check_map(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let fault = |error: MapError| WordFault::new(error.word(), error.to_string()).with_help(error.help());
    Mapping::new(Arc::new(schema.clone())).map(&words).map_err(fault)
}

/// The mapping of all lines.
///
/// # Arguments
/// `default_virtual`: the virtual suffix where `suffixmassage` names the real one alone. `prefix`: what faults have before keywords.
///
/// # Errors
/// A line that cannot be understood where it stands.
pub fn mapping<'a>(
    schema: &Arc<Schema>,
    (default_virtual, prefix): (Option<&str>, &str),
    rewrite: impl IntoIterator<Item = &'a [String]>,
    maps: impl IntoIterator<Item = &'a [String]>,
) -> Result<Mapping, LineFault> {
    let mut rules = Rewrite::with_sessions();
    for line in rewrite {
        let words = known(line);
        let fault =
            |message: String, help| LineFault { message: format!("{}: {message}", line.join(" ")), help };
        let [keyword, arguments @ ..] = words.as_slice() else { continue };
        if command(keyword) != "suffixmassage" {
            rules.command(&words).map_err(|error| fault(error.to_string(), error.help()))?;
            continue;
        }
        let named = |text: &str| suffix(schema, text).map_err(|why| fault(why, MASSAGE));
        let (virtual_suffix, real_suffix) = match (arguments, default_virtual) {
            ([_], None) => return Err(fault("no database whose suffix is meant".to_owned(), MASSAGE)),
            ([real_suffix], Some(virtual_suffix)) => (named(virtual_suffix)?, named(real_suffix)?),
            ([virtual_suffix, real_suffix], _) => (named(virtual_suffix)?, named(real_suffix)?),
            _ => return Err(fault("takes one or two suffixes".to_owned(), MASSAGE)),
        };
        rules
            .massage(&virtual_suffix, &real_suffix)
            .map_err(|error| fault(error.to_string(), error.help()))?;
    }
    let mut mapping = Mapping::new(Arc::clone(schema)).with_rules(rules).map_err(|context| LineFault {
        message: format!("{prefix}rewriteMap: the rules of {context} search the directory"),
        help: "names of answers are rewritten without maps; requests may have them",
    })?;
    for line in maps {
        let words: Vec<&str> = line.iter().map(String::as_str).collect();
        mapping.map(&words).map_err(|error| LineFault {
            message: format!("{prefix}map {}: {error}", line.join(" ")),
            help: error.help(),
        })?;
    }
    Ok(mapping)
}
