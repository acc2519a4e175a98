//! The directives of `overlay autogroup`.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larix_engine::overlay::settings::{SettingError, Settings as Given};
use larix_engine::overlay::{BuildContext, Overlay, WordFault};
use larix_proto::FilterBuf;
use larix_schema::{AttributeDescription, Schema};

use super::{AutoGroup, GroupSet, Settings};

pub(super) fn build(given: &Given, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let object_class = schema
        .describe("objectClass")
        .map_err(|error| SettingError::new(format!("overlay autogroup: {error}")))?;
    let set = |value: &larix_engine::overlay::settings::Value| {
        set(schema, &value.words).map_err(|fault| fault.of_setting("autogroup-attrset", &value.words))
    };
    let sets: Vec<GroupSet> = given.values("olcAutoGroupAttrSet").map(set).collect::<Result<_, _>>()?;
    for (at, set) in sets.iter().enumerate() {
        if sets.iter().take(at).any(|other| other.class == set.class) {
            let text = format!("autogroup-attrset \"{}\": the class is configured already", set.class_name);
            return Err(SettingError::new(text).with_help("name each class of groups once"));
        }
    }
    let mut urls: Vec<AttributeDescription> = Vec::new();
    for set in &sets {
        if !urls.contains(&set.url) {
            urls.push(set.url.clone());
        }
    }
    let urls_and_class = urls.iter().chain([&object_class]).cloned().collect();
    let settings = Settings { sets, urls, urls_and_class, object_class, cached: ArcSwapOption::empty() };
    Ok(Arc::new(AutoGroup(Arc::new(settings))))
}

pub(super) fn check(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    set(schema, words).map(|_| ())
}

pub(super) fn check_attribute(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    let Some(name) = words.first() else { return Ok(()) };
    let described = schema.describe(name).map_err(|error| {
        WordFault::new(0, format!("attribute \"{name}\": {error}"))
            .with_help("include the schema that defines it")
    })?;
    if !schema.attribute(described.attribute).syntax.is_dn() {
        let fault = WordFault::new(0, format!("\"{name}\" has no names as values"));
        return Err(fault.with_help("name the attribute with the groups of an entry, such as memberOf"));
    }
    Ok(())
}

fn set(schema: &Schema, words: &[String]) -> Result<GroupSet, WordFault> {
    let [class_name, url, member] = words else {
        let help = "as in `autogroup-attrset groupOfURLs memberURL member`";
        return Err(WordFault::new(0, "not a class, a URL attribute and a member attribute").with_help(help));
    };
    let described = |at: usize, name: &String| {
        schema.describe(name).map_err(|error| WordFault::new(at, format!("attribute \"{name}\": {error}")))
    };
    let class = schema.object_class_id(class_name).ok_or_else(|| {
        WordFault::new(0, format!("the object class \"{class_name}\" is unknown"))
            .with_help("include the schema that defines it; `schema dyngroup` has groupOfURLs")
    })?;
    let (url_type, member_type) = (described(1, url)?, described(2, member)?);
    let labeled = schema.attribute_type("labeledURI").map(|labeled| labeled.id);
    let is_url = labeled.is_some_and(|labeled| {
        url_type.attribute == labeled || schema.is_subtype(url_type.attribute, labeled)
    });
    if !is_url {
        return Err(WordFault::new(1, format!("\"{url}\" is no subtype of labeledURI")));
    }
    let kind = schema.attribute(member_type.attribute);
    for (what, is_so) in
        [("has one value only", kind.single_value), ("has no equality rule", kind.equality.is_none())]
    {
        if is_so {
            let fault = WordFault::new(2, format!("\"{member}\" {what}"));
            return Err(fault.with_help("name an attribute of members, such as member or memberUid"));
        }
    }
    let filter = FilterBuf::parse(&format!("(objectClass={})", schema.class(class).oid))
        .map_err(|error| WordFault::new(0, error.to_string()))?;
    let groups = schema.bind_filter(filter.as_filter());
    Ok(GroupSet { class, class_name: class_name.clone(), groups, url: url_type, member: member_type })
}
