//! An entry under cn=config and its attributes.

use std::sync::Arc;

use larix_proto::dn::Dn;
use larix_proto::ldif::LdifAttribute;

use super::value_list::ValueList;

/// One entry under cn=config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    pub dn: String,
    /// objectClass first; operational attributes only where the entry was read from a slapd.d.
    pub attributes: Vec<ConfigAttribute>,
}

/// An attribute of an entry under cn=config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigAttribute {
    pub description: String,
    pub values: ValueList,
}

impl ConfigAttribute {
    pub(super) fn new(description: impl Into<String>, values: impl Into<ValueList>) -> Self {
        Self { description: description.into(), values: values.into() }
    }
}

impl From<LdifAttribute> for ConfigAttribute {
    fn from(attribute: LdifAttribute) -> Self {
        Self::new(attribute.description, attribute.values)
    }
}

impl ConfigEntry {
    /// An entry as LDIF has it.
    pub fn from_ldif(dn: String, attributes: Vec<LdifAttribute>) -> Self {
        Self { dn, attributes: attributes.into_iter().map(ConfigAttribute::from).collect() }
    }

    /// Its attributes as LDIF has them.
    pub fn into_ldif(self) -> Vec<LdifAttribute> {
        let attribute =
            |a: ConfigAttribute| LdifAttribute { description: a.description, values: a.values.to_vec() };
        self.attributes.into_iter().map(attribute).collect()
    }

    pub(super) fn new(dn: impl Into<String>, classes: &[&str]) -> Self {
        let mut entry = Self { dn: dn.into(), attributes: Vec::new() };
        entry
            .add("objectClass", classes.iter().map(|class| class.as_bytes().to_vec()).collect::<ValueList>());
        entry
    }

    /// The values of an attribute, matched without regard to case.
    pub fn values(&self, description: &str) -> &ValueList {
        const NONE: &ValueList = &ValueList::NONE;
        self.attributes
            .iter()
            .find(|attribute| attribute.description.eq_ignore_ascii_case(description))
            .map_or(NONE, |attribute| &attribute.values)
    }

    pub(super) fn add(&mut self, description: &str, values: impl Into<ValueList>) {
        self.attributes.push(ConfigAttribute::new(description, values));
    }

    /// Adds the value that names the entry, if it is missing: bootstraps leave it out, and slapd takes them.
    pub(super) fn name_itself(entry: &mut Arc<Self>) {
        let Some((description, value)) = entry.missing_name() else { return };
        let attributes = &mut Arc::make_mut(entry).attributes;
        let at = usize::from(!attributes.is_empty());
        attributes.insert(at, ConfigAttribute::new(description, vec![value]));
    }

    fn missing_name(&self) -> Option<(String, Vec<u8>)> {
        let dn = Dn::parse(&self.dn).ok()?;
        let naming = dn.rdns().first()?.avas().first()?;
        let missing = self.values(naming.attribute).is_empty();
        missing.then(|| (naming.attribute.to_owned(), naming.value.to_vec()))
    }

    pub(super) fn text(&mut self, description: &str, value: &str) {
        self.add(description, vec![value.as_bytes().to_vec()]);
    }
}
