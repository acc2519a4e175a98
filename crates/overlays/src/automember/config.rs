//! The directives of `overlay automember`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_proto::FilterBuf;
use larix_schema::{AttributeDescription, NormalDn};
use regex::RegexBuilder;

use super::{AutoMember, Definition, Pattern, Rules};

/// Bytes that a compiled expression may take.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;

const DEFINITION_HELP: &str = "write a name, a base, a filter, the groups' attribute with what becomes its value, and groups for \
                               entries that no rule is about: `automember-definition hosts ou=hosts,dc=example,dc=com \
                               (objectClass=device) member:dn cn=others,ou=groups,dc=example,dc=com`";

const RULE_HELP: &str = "write the definition's name, a group, `include` or `exclude`, and an attribute with a regular expression: \
                         `automember-rule hosts cn=web,ou=groups,dc=example,dc=com include cn=^web[0-9]+`";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let mut definitions: Vec<Definition> = Vec::new();
    for value in settings.values("olcLarixAutomemberDefinition") {
        let words: Vec<&str> = value.words.iter().map(String::as_str).collect();
        let fault =
            |why: String| Fault { keyword: "automember-definition", help: DEFINITION_HELP }.at(&words, &why);
        let definition = definition(&words, context, &fault)?;
        if definitions.iter().any(|other| other.name == definition.name) {
            return Err(fault(format!("there are two of the name \"{}\"", definition.name)));
        }
        definitions.push(definition);
    }
    for value in settings.values("olcLarixAutomemberRule") {
        let words: Vec<&str> = value.words.iter().map(String::as_str).collect();
        let fault = |why: String| Fault { keyword: "automember-rule", help: RULE_HELP }.at(&words, &why);
        let [name, group, kind, pattern] = *words else {
            return Err(fault("not a name, a group, a kind and a pattern".to_owned()));
        };
        let definition = definitions.iter_mut().find(|definition| definition.name == name);
        let definition = definition.ok_or_else(|| fault(format!("there is no definition \"{name}\"")))?;
        let group = dn(context, group, &fault)?;
        let pattern = self::pattern(pattern, context, &fault)?;
        let at = match definition.groups.iter().position(|rules| rules.group == group) {
            Some(at) => at,
            None => {
                definition.groups.push(Rules { group, include: Vec::new(), exclude: Vec::new() });
                definition.groups.len() - 1
            }
        };
        let Some(rules) = definition.groups.get_mut(at) else { continue };
        match kind {
            "include" => rules.include.push(pattern),
            "exclude" => rules.exclude.push(pattern),
            other => return Err(fault(format!("\"{other}\" is neither include nor exclude"))),
        }
    }
    Ok(Arc::new(AutoMember { definitions: definitions.into() }))
}

/// Where a fault is.
#[derive(Copy, Clone)]
struct Fault {
    keyword: &'static str,
    help: &'static str,
}

impl Fault {
    fn at(self, words: &[&str], why: &str) -> SettingError {
        SettingError::new(format!("{} \"{}\": {why}", self.keyword, words.join(" "))).with_help(self.help)
    }
}

type FaultOf<'a> = &'a dyn Fn(String) -> SettingError;

fn definition(
    words: &[&str],
    context: &BuildContext<'_>,
    fault: FaultOf<'_>,
) -> Result<Definition, SettingError> {
    let [name, base, filter, grouping, default_groups @ ..] = words else {
        return Err(fault("not a name, a base, a filter and an attribute".to_owned()));
    };
    let base = dn(context, base, fault)?;
    if !context.suffixes.iter().any(|suffix| base.is_within(suffix)) {
        return Err(fault(format!("\"{}\" is not in this database", base.as_str())));
    }
    let filter =
        FilterBuf::parse(filter).map_err(|error| fault(format!("\"{filter}\" is not a filter: {error}")))?;
    let (member, value) = grouping.split_once(':').ok_or_else(|| {
        fault(format!("\"{grouping}\" is not an attribute, a colon, and an attribute or dn"))
    })?;
    let value = if value.eq_ignore_ascii_case("dn") { None } else { Some(described(context, value, fault)?) };
    Ok(Definition {
        name: (*name).to_owned(),
        base,
        filter: context.schema.bind_filter(filter.as_filter()),
        member: described(context, member, fault)?,
        value,
        default_groups: default_groups
            .iter()
            .map(|group| dn(context, group, fault))
            .collect::<Result<_, _>>()?,
        groups: Vec::new(),
    })
}

fn dn(context: &BuildContext<'_>, text: &str, fault: FaultOf<'_>) -> Result<NormalDn, SettingError> {
    let dn = context.schema.parse_dn(text);
    dn.map_err(|error| fault(format!("\"{text}\" is not a DN: {error}")).awaiting_schema())
}

fn described(
    context: &BuildContext<'_>,
    name: &str,
    fault: FaultOf<'_>,
) -> Result<AttributeDescription, SettingError> {
    let described = context.schema.describe(name);
    described.map_err(|error| fault(format!("<{name}>: {error}")).awaiting_schema())
}

fn pattern(text: &str, context: &BuildContext<'_>, fault: FaultOf<'_>) -> Result<Pattern, SettingError> {
    let (name, expression) = text
        .split_once('=')
        .ok_or_else(|| fault(format!("\"{text}\" is not an attribute, `=`, and a regular expression")))?;
    // Not a POSIX one: those of 389 are Perl's, with `\d` and the like. No value gets past a `.` by a line end all the same.
    let regex = RegexBuilder::new(expression)
        .dot_matches_new_line(true)
        .size_limit(EXPRESSION_BYTES_MAX)
        .build()
        .map_err(|error| fault(format!("\"{expression}\" is not a regular expression: {error}")))?;
    Ok(Pattern { attribute: described(context, name, fault)?, regex })
}
