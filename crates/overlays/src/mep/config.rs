//! The directive of `overlay mep`.

use std::sync::Arc;

use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_proto::FilterBuf;
use larix_schema::NormalDn;

use super::{Definition, ManagedEntries, Names, Rules};

const HELP: &str = "write a name, the base and the filter of origins, the base of managed entries, and the template: `mep-definition \
                    groups ou=people,dc=example,dc=com (objectClass=posixAccount) ou=groups,dc=example,dc=com \
                    \"cn=UPG Template,dc=example,dc=com\"`";

pub(super) fn build(
    settings: &Settings,
    context: &BuildContext<'_>,
) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let mut definitions: Vec<Definition> = Vec::new();
    for value in settings.values("olcLarixMepDefinition") {
        let definition = definition(&value.words, context)?;
        if definitions.iter().any(|other| other.name == definition.name) {
            let why = format!("there are two of the name \"{}\"", definition.name);
            return Err(fault(&value.words, &why));
        }
        definitions.push(definition);
    }
    let described = |name| described(schema, "overlay mep", name);
    let origins = FilterBuf::parse("(objectClass=mepOriginEntry)")
        .map_err(|error| SettingError::new(format!("overlay mep: {error}")))?;
    let managed = FilterBuf::parse("(objectClass=mepManagedEntry)")
        .map_err(|error| SettingError::new(format!("overlay mep: {error}")))?;
    let names = Names {
        managed_entry: described("mepManagedEntry")?,
        managed_by: described("mepManagedBy")?,
        rdn: described("mepRDNAttr")?,
        fixed: described("mepStaticAttr")?,
        mapped: described("mepMappedAttr")?,
        object_class: described("objectClass")?,
        origins: schema.bind_filter(origins.as_filter()),
        managed: schema.bind_filter(managed.as_filter()),
    };
    Ok(Arc::new(ManagedEntries(Arc::new(Rules { definitions, names }))))
}

fn fault(words: &[String], why: &str) -> SettingError {
    SettingError::new(format!("mep-definition \"{}\": {why}", words.join(" "))).with_help(HELP)
}

fn definition(words: &[String], context: &BuildContext<'_>) -> Result<Definition, SettingError> {
    let [name, scope, filter, base, template] = words else {
        return Err(fault(words, "not a name, a base, a filter, another base and a template"));
    };
    let dn = |text: &str| -> Result<NormalDn, SettingError> {
        let dn = context.schema.parse_dn(text);
        dn.map_err(|error| fault(words, &format!("\"{text}\" is not a DN: {error}")).awaiting_schema())
    };
    let within = |text: &str| {
        let dn = dn(text)?;
        let is_here = context.suffixes.iter().any(|suffix| dn.is_within(suffix));
        is_here.then_some(dn).ok_or_else(|| fault(words, &format!("\"{text}\" is not in this database")))
    };
    let bound = FilterBuf::parse(filter)
        .map_err(|error| fault(words, &format!("\"{filter}\" is not a filter: {error}")))?;
    Ok(Definition {
        name: name.clone(),
        scope: within(scope)?,
        filter: context.schema.bind_filter(bound.as_filter()),
        base: within(base)?,
        base_text: base.clone(),
        template: dn(template)?,
        template_text: template.clone(),
    })
}
