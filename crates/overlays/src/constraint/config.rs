//! The directives of `overlay constraint`.

use std::sync::Arc;

use larix_engine::access::{EntrySet, posix_regex};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_proto::Scope;
use larix_proto::url::LdapUrl;
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::{Constraint, ConstraintSettings, Constraints, Restriction, Rule, UriSearch};

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let lines: Vec<Vec<String>> =
        settings.values("olcConstraintAttribute").map(|value| value.words.clone()).collect();
    let allow_empty = settings.is_on("olcConstraintAllowEmpty");
    let read = ConstraintSettings::parse(context.schema, context.suffixes, &lines, allow_empty);
    let read = read.map_err(|error| SettingError::new(error).awaiting_schema())?;
    let suffix = context.suffixes.first().cloned().unwrap_or_else(NormalDn::root);
    Ok(Arc::new(Constraints::new(read, suffix)))
}

const KINDS: &str = "one of regex, negregex, size, count, uri, neguri, set, negset";

impl ConstraintSettings {
    /// Reads the words of each `constraint_attribute`.
    ///
    /// # Errors
    /// A text that names the directive, the value and the mend.
    pub fn parse(
        schema: &Schema,
        suffixes: &[NormalDn],
        lines: &[Vec<String>],
        allow_empty: bool,
    ) -> Result<Self, String> {
        let constraints = lines.iter().map(|words| constraint(schema, suffixes, words));
        Ok(Self { constraints: constraints.collect::<Result<_, _>>()?, allow_empty })
    }
}

fn constraint(schema: &Schema, suffixes: &[NormalDn], words: &[String]) -> Result<Constraint, String> {
    let [names, kind, value, extra @ ..] = words else {
        let text = words.join(" ");
        return Err(format!("constraint_attribute \"{text}\": write attributes, {KINDS}, and its value"));
    };
    let fault = |what: String| format!("constraint_attribute {names} {kind} \"{value}\": {what}");
    let attributes = descriptions(schema, names.split(','))?;
    let rule = match kind.to_ascii_lowercase().as_str() {
        kind @ ("regex" | "negregex") => {
            Rule::Regex { regex: posix_regex(value, false).map_err(fault)?, negated: kind == "negregex" }
        }
        "size" => Rule::Size(number(value).map_err(fault)?),
        "count" => Rule::Count(number(value).map_err(fault)?),
        kind @ ("uri" | "neguri") => {
            Rule::Uri { uri_search: uri_search(schema, value).map_err(fault)?, negated: kind == "neguri" }
        }
        kind @ ("set" | "negset") => Rule::Set {
            set: EntrySet::parse(schema, value).map_err(|(at, why)| fault(pointed(value, at, &why)))?,
            negated: kind == "negset",
        },
        _ => return Err(fault(format!("the kind \"{kind}\" is unknown: {KINDS}"))),
    };
    let mut restriction = None;
    for word in extra {
        let Some((_, url)) = word.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("restrict"))
        else {
            return Err(fault(format!("\"{word}\" is not known here: only restrict=URI may follow")));
        };
        let url = url.trim_matches('"');
        let parsed = restrict(schema, suffixes, url);
        restriction = Some(parsed.map_err(|why| fault(format!("restrict={url}: {why}")))?);
    }
    Ok(Constraint { attributes, rule, restriction, text: words.join(" ") })
}

/// The message, and below it the text with a caret under the byte that is wrong.
fn pointed(text: &str, at: usize, why: &str) -> String {
    let before = text.get(..at).unwrap_or(text).chars().count();
    format!("{why}\n{text}\n{:before$}^", "")
}

fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| "not a number".to_owned())
}

fn descriptions<'n>(
    schema: &Schema,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<AttributeDescription>, String> {
    let known =
        |name: &str| schema.describe(name).map_err(|error| format!("constraint_attribute <{name}>: {error}"));
    names.map(known).collect()
}

/// An LDAP URL that names no server.
fn local_url(text: &str) -> Result<LdapUrl, String> {
    let url = LdapUrl::parse(text).map_err(|error| error.to_string())?;
    if !url.host.is_empty() || url.port.is_some() {
        return Err(
            "names a server: only databases of this server can be searched; write ldap:///".to_owned()
        );
    }
    Ok(url)
}

fn dn(schema: &Schema, text: &str) -> Result<Option<NormalDn>, String> {
    match text {
        "" => Ok(None),
        text => {
            let dn = schema.parse_dn(text).map_err(|error| format!("\"{text}\" is not a DN: {error}"))?;
            Ok(Some(dn))
        }
    }
}

fn uri_search(schema: &Schema, text: &str) -> Result<UriSearch, String> {
    let url = local_url(text)?;
    if url.attributes.is_empty() {
        return Err(
            "names no attribute to look for the value in; write ldap:///base?attribute?sub".to_owned()
        );
    }
    Ok(UriSearch {
        base: dn(schema, &url.dn)?,
        scope: url.scope.unwrap_or(Scope::Base),
        attributes: descriptions(schema, url.attributes.iter().map(String::as_str))?,
        filter: url.filter.map(|filter| schema.bind_filter(filter.as_filter())),
    })
}

fn restrict(schema: &Schema, suffixes: &[NormalDn], text: &str) -> Result<Restriction, String> {
    let url = local_url(text)?;
    if !url.attributes.is_empty() {
        return Err("attributes mean nothing here: leave them out".to_owned());
    }
    let base = dn(schema, &url.dn)?;
    if base.as_ref().is_some_and(|base| !suffixes.iter().any(|suffix| base.is_within(suffix))) {
        return Err("not within this database; name a DN below its suffix".to_owned());
    }
    Ok(Restriction {
        base: base.map(|base| (base, url.scope.unwrap_or(Scope::Base))),
        filter: url.filter.map(|filter| schema.bind_filter(filter.as_filter())),
    })
}
