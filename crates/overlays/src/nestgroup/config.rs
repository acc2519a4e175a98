//! The directives of `overlay nestgroup`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::nested::Nested;
use super::{NestGroup, NestGroupFlags};

const DN: &str = "1.3.6.1.4.1.1466.115.121.1.12";
const NAME_AND_OPTIONAL_UID: &str = "1.3.6.1.4.1.1466.115.121.1.34";
const FLAGS: &str = "one of member-filter, memberof-filter, member-values, memberof-values";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let attribute = |keyword: &str, attribute: &str, usual: &str| {
        let name = settings.text(attribute).unwrap_or(usual).trim().to_owned();
        named(schema, &name).map_err(|fault| fault.of_setting(keyword, std::slice::from_ref(&name)))
    };
    let mut made = NestGroup {
        member: attribute("nestgroup-member", "olcNestGroupMember", "member")?,
        member_of: attribute("nestgroup-memberof", "olcNestGroupMemberOf", "memberOf")?,
        bases: Vec::new(),
        member_flags: NestGroupFlags::default(),
        member_of_flags: NestGroupFlags::default(),
        nested: Nested::default(),
    };
    for value in settings.values("olcNestGroupBase") {
        let text = value.text.trim().trim_matches('"').to_owned();
        let dn = base(schema, &text);
        made.bases.push(dn.map_err(|fault| fault.of_setting("nestgroup-base", std::slice::from_ref(&text)))?);
    }
    for value in settings.values("olcNestGroupFlags") {
        for (argument, word) in value.words.iter().enumerate() {
            flag(argument, word, &mut made)
                .map_err(|fault| fault.of_setting("nestgroup-flags", &value.words))?;
        }
    }
    if made.bases.is_empty() {
        (made.member_flags, made.member_of_flags) = (NestGroupFlags::default(), NestGroupFlags::default());
    }
    Ok(Arc::new(made))
}

/// Looks at an attribute's name where it is read.
pub(super) fn check_attribute(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    words.iter().try_for_each(|name| named(schema, name).map(|_| ()))
}

/// Looks at a base where it is read.
pub(super) fn check_base(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    words.iter().try_for_each(|text| base(schema, text).map(|_| ()))
}

/// Looks at flags where they are read.
pub(super) fn check_flags(_: &Schema, words: &[String]) -> Result<(), WordFault> {
    words.iter().enumerate().try_for_each(|(argument, word)| read_flag(argument, word).map(|_| ()))
}

fn base(schema: &Schema, text: &str) -> Result<NormalDn, WordFault> {
    schema.parse_dn(text).map_err(|error| WordFault::new(0, format!("\"{text}\" is not a DN: {error}")))
}

/// What a flag is about: memberOf rather than member, filters rather than values.
fn read_flag(argument: usize, word: &str) -> Result<(bool, bool), WordFault> {
    match word.to_ascii_lowercase().as_str() {
        "member-values" => Ok((false, false)),
        "member-filter" => Ok((false, true)),
        "memberof-values" => Ok((true, false)),
        "memberof-filter" => Ok((true, true)),
        _ => Err(WordFault::new(argument, format!("the flag \"{word}\" is unknown")).with_help(FLAGS)),
    }
}

fn flag(argument: usize, word: &str, made: &mut NestGroup) -> Result<(), WordFault> {
    let (member_of, filter) = read_flag(argument, word)?;
    let flags = if member_of { &mut made.member_of_flags } else { &mut made.member_flags };
    if filter {
        flags.filter = true;
    } else {
        flags.values = true;
    }
    Ok(())
}

fn named(schema: &Schema, name: &str) -> Result<AttributeDescription, WordFault> {
    let described = schema.describe(name);
    let attribute = described.map_err(|error| WordFault::new(0, format!("attribute \"{name}\": {error}")))?;
    let syntax = schema.attribute(attribute.attribute).syntax.oid.as_str();
    if [DN, NAME_AND_OPTIONAL_UID].contains(&syntax) {
        return Ok(attribute);
    }
    let message = format!("the values of \"{name}\" are no names: its syntax is {syntax}");
    Err(WordFault::new(0, message)
        .with_help(format!("an attribute of the syntax DN ({DN}) or NAMEUID ({NAME_AND_OPTIONAL_UID})")))
}
