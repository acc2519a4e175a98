//! Templates: entries that say what managed entries have (389's class mepTemplateEntry).

use larix_engine::Entry;
use larix_schema::{Schema, escape_value};

use super::Names;

/// What a template entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// `mepRDNAttr`
    rdn: String,
    /// `mepStaticAttr`
    fixed: Vec<(String, Vec<u8>)>,
    /// `mepMappedAttr`
    mapped: Vec<Mapping>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    attribute: String,
    parts: Vec<TemplateSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplateSegment {
    Text(String),
    /// An attribute of the origin, or `dn`.
    Value(String),
}

/// An attribute and its values.
pub(super) type Valued = (String, Vec<Vec<u8>>);

/// A managed entry as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManagedEntry {
    pub(super) rdn: String,
    pub(super) dn: String,
    pub(super) fixed: Vec<Valued>,
    /// Without those of the name.
    pub(super) mapped: Vec<Valued>,
    /// The attribute of the name, and its value.
    pub(super) name: (String, Vec<u8>),
}

impl Template {
    /// Reads a template entry.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(entry: &Entry, names: &Names, schema: &Schema) -> Result<Self, String> {
        let values = |attribute| {
            let values = entry.attribute(attribute).map_or(&[][..], |own| &own.values);
            values
                .iter()
                .map(|value| std::str::from_utf8(value).map_err(|_| "a value is not UTF-8".to_owned()))
        };
        let rdn = values(&names.rdn).next().unwrap_or_else(|| Err("mepRDNAttr is missing".to_owned()))?;
        let rdn = own_name(rdn, schema)?;
        let mut fixed = Vec::new();
        for value in values(&names.fixed) {
            let value = value?;
            let (attribute, value) = split(value).ok_or_else(|| {
                format!(
                    "mepStaticAttr \"{value}\" is not `attribute: value`, as in `objectClass: posixGroup`"
                )
            })?;
            fixed.push((own_name(attribute, schema)?, value.as_bytes().to_vec()));
        }
        let mut mapped = Vec::new();
        for value in values(&names.mapped) {
            mapped.push(mapping(value?, schema)?);
        }
        let template = Self { rdn, fixed, mapped };
        if !template.maps(&template.rdn) {
            let rdn = &template.rdn;
            return Err(format!(
                "no mepMappedAttr is about \"{rdn}\", the mepRDNAttr: each managed entry needs a name of its own, as by \
                 `{rdn}: $uid`"
            ));
        }
        Ok(template)
    }

    /// Whether it is about the attribute of this name, the schema's first one.
    pub(super) fn maps(&self, attribute: &str) -> bool {
        self.mapped.iter().any(|mapping| mapping.attribute == attribute)
    }

    /// The managed entry of an origin, below this base.
    ///
    /// # Errors
    /// What the origin lacks.
    pub(super) fn managed_entry(
        &self,
        origin: &Entry,
        base: &str,
        schema: &Schema,
    ) -> Result<ManagedEntry, String> {
        let mut name: Option<(String, Vec<u8>)> = None;
        let (mut fixed, mut mapped) = (Vec::new(), Vec::new());
        for mapping in &self.mapped {
            let value = mapping.value(origin, schema)?;
            if mapping.attribute == self.rdn {
                name.get_or_insert_with(|| (mapping.attribute.clone(), value));
            } else {
                put(&mut mapped, &mapping.attribute, value);
            }
        }
        for (attribute, value) in &self.fixed {
            put(&mut fixed, attribute, value.clone());
        }
        let name = name.ok_or_else(|| format!("nothing is mapped to \"{}\"", self.rdn))?;
        let mut rdn = format!("{}=", name.0);
        escape_value(&name.1, &mut rdn);
        Ok(ManagedEntry { dn: format!("{rdn},{base}"), rdn, fixed, mapped, name })
    }
}

impl Mapping {
    fn value(&self, origin: &Entry, schema: &Schema) -> Result<Vec<u8>, String> {
        let mut value = Vec::new();
        for part in &self.parts {
            match part {
                TemplateSegment::Text(text) => value.extend_from_slice(text.as_bytes()),
                TemplateSegment::Value(name) if name.eq_ignore_ascii_case("dn") => {
                    value.extend_from_slice(origin.dn.as_bytes());
                }
                TemplateSegment::Value(name) => {
                    let description =
                        schema.describe(name).map_err(|error| format!("\"{name}\": {error}"))?;
                    let own = origin.attribute(&description).and_then(|own| own.values.first());
                    let own = own.ok_or_else(|| {
                        format!("it needs \"{name}\", which the template maps to \"{}\"", self.attribute)
                    })?;
                    value.extend_from_slice(own);
                }
            }
        }
        Ok(value)
    }
}

fn put(all: &mut Vec<Valued>, attribute: &str, value: Vec<u8>) {
    match all.iter_mut().find(|(known, _)| known == attribute) {
        Some((_, values)) => values.push(value),
        None => all.push((attribute.to_owned(), vec![value])),
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    let (attribute, value) = text.split_once(':')?;
    let attribute = attribute.trim();
    (!attribute.is_empty()).then(|| (attribute, value.trim_start_matches(' ')))
}

/// The name by which the schema shows an attribute: a template may call it by another one, or by its OID.
fn own_name(name: &str, schema: &Schema) -> Result<String, String> {
    let described = schema.describe(name).map_err(|error| format!("\"{name}\": {error}"))?;
    Ok(described.to_text(schema))
}

/// Reads `attribute: text $attribute text`; `$$` is a dollar sign, and `${attribute}` ends where the brace does.
fn mapping(text: &str, schema: &Schema) -> Result<Mapping, String> {
    let fault = |why: &str| format!("mepMappedAttr \"{text}\": {why}, as in `gidNumber: $gidNumber`");
    let (attribute, mut rest) =
        split(text).ok_or_else(|| fault("write an attribute, a colon and a value"))?;
    let attribute = own_name(attribute, schema)?;
    let mut parts = Vec::new();
    while let Some((before, behind)) = rest.split_once('$') {
        let mut push = |text: &str| {
            if !text.is_empty() {
                parts.push(TemplateSegment::Text(text.to_owned()));
            }
        };
        push(before);
        if let Some(behind) = behind.strip_prefix('$') {
            push("$");
            rest = behind;
            continue;
        }
        let (name, behind) = match behind.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or_else(|| fault("a brace is not closed"))?,
            None => {
                let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ';' | '-');
                behind.split_at(behind.find(|c| !is_of_name(c)).unwrap_or(behind.len()))
            }
        };
        if name.is_empty() {
            return Err(fault("write an attribute of the origin behind the dollar sign"));
        }
        if !name.eq_ignore_ascii_case("dn") {
            own_name(name, schema)?;
        }
        parts.push(TemplateSegment::Value(name.to_owned()));
        rest = behind;
    }
    if !rest.is_empty() {
        parts.push(TemplateSegment::Text(rest.to_owned()));
    }
    if !parts.iter().any(|part| matches!(part, TemplateSegment::Value(_))) {
        return Err(fault(
            "it names no attribute of the origin; what is always the same belongs into mepStaticAttr",
        ));
    }
    Ok(Mapping { attribute, parts })
}
