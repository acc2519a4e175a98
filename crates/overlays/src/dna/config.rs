//! The directive of `overlay dna`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, ChangeKind, Overlay, internal_change};
use larix_proto::FilterBuf;

use super::{NumericAssignment, Range};

const HELP: &str = "write attributes, a range, a base and a filter, and the value that asks for a number where entries without the \
                    attribute are to stay so: `dna-range uidNumber 1000-1999 ou=people,dc=example,dc=com \
                    (objectClass=posixAccount) -1`";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let ranges = settings.values("olcLarixDnaRange").map(|value| range(&value.words, context));
    let ranges: Vec<Range> = ranges.collect::<Result<_, _>>()?;
    for (at, range) in ranges.iter().enumerate() {
        let overlaps = |other: &&Range| {
            let shared = other.attributes.iter().any(|attribute| range.attributes.contains(attribute));
            shared && other.base == range.base && other.first <= range.last && range.first <= other.last
        };
        if let Some(other) = ranges.iter().take(at).find(overlaps) {
            return Err(fault(&range.text, &format!("it overlaps with {}", other.text)));
        }
    }
    Ok(Arc::new(NumericAssignment { ranges }))
}

fn fault(text: &str, why: &str) -> SettingError {
    SettingError::new(format!("dna-range \"{text}\": {why}")).with_help(HELP)
}

fn range(words: &[String], context: &BuildContext<'_>) -> Result<Range, SettingError> {
    let text = words.join(" ");
    let (names, limits, base, filter, magic) = match words {
        [names, limits, base, filter] => (names, limits, base, filter, None),
        [names, limits, base, filter, magic] => (names, limits, base, filter, Some(magic)),
        _ => return Err(fault(&text, "not attributes, a range, a base and a filter")),
    };
    let schema = context.schema;
    let mut attributes = Vec::new();
    for name in names.split(',') {
        let attribute = schema
            .describe(name)
            .map_err(|error| fault(&text, &format!("<{name}>: {error}")).awaiting_schema())?;
        // Whether it takes numbers.
        if internal_change(schema, ChangeKind::Add, name, vec![b"1".to_vec()]).is_err() {
            return Err(fault(&text, &format!("<{name}> takes no numbers")));
        }
        attributes.push(attribute);
    }
    let limits_of = |text: &str| {
        let (first, last) = text.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let (first, last): (u64, u64) = limits_of(limits)
        .filter(|(first, last)| first <= last && *last < u64::MAX)
        .ok_or_else(|| fault(&text, &format!("\"{limits}\" is not a range such as 1000-1999")))?;
    let base =
        schema.parse_dn(base).map_err(|error| fault(&text, &format!("\"{base}\" is not a DN: {error}")))?;
    if !context.suffixes.iter().any(|suffix| base.is_within(suffix)) {
        return Err(fault(&text, &format!("\"{}\" is not in this database", base.as_str())));
    }
    let filter = FilterBuf::parse(filter)
        .map_err(|error| fault(&text, &format!("\"{filter}\" is not a filter: {error}")))?;
    let magic = match magic {
        None if attributes.len() > 1 => {
            return Err(fault(&text, "several attributes need a value that asks for a number"));
        }
        None => None,
        Some(value) => {
            let is_value = |name: &str| {
                internal_change(schema, ChangeKind::Add, name, vec![value.clone().into_bytes()]).is_ok()
            };
            if !names.split(',').all(is_value) {
                return Err(fault(
                    &text,
                    &format!("\"{value}\" is no value of {names}, so that nobody can ask by it"),
                ));
            }
            Some(value.clone().into_bytes())
        }
    };
    let filter = schema.bind_filter(filter.as_filter());
    let text = format!("{names} {limits}");
    Ok(Range { attributes, first, last, base, filter, magic, text })
}
