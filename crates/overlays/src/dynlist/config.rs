//! The directives of `overlay dynlist`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_proto::Scope;
use larix_proto::url::LdapUrl;
use larix_schema::{AttributeDescription, ObjectClassId, Schema};

use super::{AttributeSet, ClassNames, DynList, Map, MemberOf, Restriction};

const ATTRIBUTE_SET: &str = "dynlist-attrset";
/// The superior of all attributes whose values are URLs.
const LABELED_URI: &str = "labeledURI";
/// The class of groups of a `dynlist-attrpair`.
pub(super) const USUAL_CLASS: &str = "groupOfURLs";
/// What lists are without a `dynlist-attrset`.
const USUAL_SET: [&str; 2] = [USUAL_CLASS, "memberURL"];

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let read = |words: &[String]| set(schema, words).map_err(|fault| fault.of_setting(ATTRIBUTE_SET, words));
    let mut sets = Vec::new();
    for value in settings.values("olcDynListAttrSet") {
        sets.push(read(&value.words)?);
    }
    if sets.is_empty() {
        sets.push(read(&USUAL_SET.map(str::to_owned))?);
    }
    Ok(Arc::new(DynList::new(schema, sets, settings.is_on("olcDynListSimple"))))
}

/// Looks at one line where it is read.
pub(super) fn check(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    set(schema, words).map(|_| ())
}

/// Looks at `member url-attribute`, which stands for a set of groups of the usual class.
pub(super) fn check_pair(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    let [member, url] = words else {
        return Err(WordFault::new(0, "write the member attribute and the attribute of the URLs"));
    };
    described(schema, 0, member)?;
    let moved = |fault: WordFault| match fault.argument {
        1 => fault,
        _ => WordFault { argument: 0, ..fault },
    };
    set(schema, &[USUAL_CLASS.to_owned(), url.clone(), member.clone()]).map(|_| ()).map_err(moved)
}

/// `class [URL] url-attribute [[mapped:]member[+memberOf[@static-class[*]]]]...`
fn set(schema: &Schema, words: &[String]) -> Result<AttributeSet, WordFault> {
    let [class, rest @ ..] = words else {
        return Err(WordFault::new(0, "write an object class and the attribute of its URLs"));
    };
    let class = class_named(schema, 0, class)?;
    let is_url = |text: &str| text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("ldap://"));
    let (restriction, at, rest) = match rest {
        [text, rest @ ..] if is_url(text) => (Some(restriction(schema, text)?), 2, rest),
        rest => (None, 1, rest),
    };
    let [url, maps @ ..] = rest else {
        let message = "the attribute of the URLs is missing behind the object class";
        return Err(WordFault::new(at - 1, message).with_help("write it, such as memberURL"));
    };
    let name = url;
    let url = described(schema, at, url)?;
    let superior = schema.attribute_type_id(LABELED_URI);
    let holds_urls = superior
        .is_some_and(|superior| url.attribute == superior || schema.is_subtype(url.attribute, superior));
    if !holds_urls {
        let message = format!("the attribute \"{name}\" is no subtype of {LABELED_URI}");
        return Err(WordFault::new(at, message).with_help("name one that is, such as memberURL"));
    }
    let first = at + 1;
    let maps = maps.iter().zip(first..).map(|(text, at)| map(schema, at, text));
    let maps = maps.collect::<Result<Vec<Map>, _>>()?;
    let is_list = maps.len() > 1 || maps.iter().any(|map| map.mapped.is_some());
    if let Some(at) = maps.iter().position(|map| map.member_of.is_some()).filter(|_| is_list) {
        let message =
            "only a group says who its members are, and it has one member attribute and no other name for it";
        let help = "write a dynlist-attrset of its own, such as groupOfURLs memberURL member+memberOf";
        return Err(WordFault::new(first + at, message).with_help(help));
    }
    let static_class = maps.iter().find_map(|map| map.member_of.as_ref().and_then(|own| own.static_class));
    let of_groups: Vec<ObjectClassId> = std::iter::once(class).chain(static_class).collect();
    let (classes, of_groups) = (ClassNames::of(schema, &[class]), ClassNames::of(schema, &of_groups));
    let static_class: Vec<ObjectClassId> = static_class.into_iter().collect();
    let static_classes = ClassNames::of(schema, &static_class);
    Ok(AttributeSet { class, classes, static_classes, of_groups, restriction, url, maps })
}

fn map(schema: &Schema, at: usize, text: &str) -> Result<Map, WordFault> {
    let (mapped, rest) = match text.split_once(':') {
        Some((mapped, rest)) => (Some(described(schema, at, mapped)?), rest),
        None => (None, text),
    };
    let (member, member_of) = match rest.split_once('+') {
        None => (rest, None),
        Some((member, member_of)) => (member, Some(member_of)),
    };
    let member_of = member_of.map(|text| {
        let (text, nested) = text.strip_suffix('*').map_or((text, false), |text| (text, true));
        let (name, class) = text.split_once('@').map_or((text, None), |(name, class)| (name, Some(class)));
        let static_class = class.map(|class| class_named(schema, at, class)).transpose()?;
        Ok::<_, WordFault>(MemberOf { attribute: described(schema, at, name)?, static_class, nested })
    });
    Ok(Map { attribute: described(schema, at, member)?, mapped, member_of: member_of.transpose()? })
}

/// To which entries a set is restricted.
fn restriction(schema: &Schema, text: &str) -> Result<Restriction, WordFault> {
    let fault = |why: String| WordFault::new(1, format!("\"{text}\": {why}"));
    let url = LdapUrl::parse(text).map_err(|error| fault(error.to_string()))?;
    for (what, is_there) in [
        ("a server", !url.host.is_empty() || url.port.is_some()),
        ("attributes", !url.attributes.is_empty()),
        ("extensions", !url.extensions.is_empty()),
    ] {
        if is_there {
            let help = "leave that out: ldap:///BASE??SCOPE?FILTER";
            return Err(fault(format!("it names {what}")).with_help(help));
        }
    }
    let base = match url.dn.as_str() {
        "" => None,
        dn => Some(schema.parse_dn(dn).map_err(|error| fault(format!("not a DN: {error}")))?),
    };
    let filter = url.filter.map(|filter| schema.bind_filter(filter.as_filter()));
    Ok(Restriction { base, scope: url.scope.unwrap_or(Scope::Base), filter })
}

fn described(schema: &Schema, at: usize, name: &str) -> Result<AttributeDescription, WordFault> {
    let described = schema.describe(name);
    described.map_err(|error| WordFault::new(at, format!("attribute \"{name}\": {error}")))
}

fn class_named(schema: &Schema, at: usize, name: &str) -> Result<ObjectClassId, WordFault> {
    schema.object_class_id(name).ok_or_else(|| {
        WordFault::new(at, format!("the object class \"{name}\" is unknown"))
            .with_help("include the schema that defines it; `schema dyngroup` has groupOfURLs")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use super::*;

    #[test]
    fn faults_of_a_pair_are_at_its_words() {
        let schema = crate::testing::schema(larix_schema::bundled("dyngroup").unwrap());
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(check_pair(&schema, &words("member memberURL")), Ok(()));
        for (text, at, fault) in [
            ("member cn", 1, "no subtype of labeledURI"),
            ("nothing memberURL", 0, "attribute \"nothing\""),
            ("cn:sn memberURL", 0, "attribute \"cn:sn\""),
            ("member", 0, "write the member attribute"),
        ] {
            let found = check_pair(&schema, &words(text)).unwrap_err();
            assert!(found.argument == at && found.message.contains(fault), "{text}: {found:?}");
        }
    }
}
