//! Entries that no database stores: the root DSE, cn=Subschema, cn=Monitor, cn=config. They are made for each request, from the
//! state at that moment.

pub(crate) mod monitor;
pub(crate) mod root_dse;
pub(crate) mod subschema;

use larix_engine::entry::{Entry, EntryAttribute};
use larix_proto::Dn;
use larix_schema::Schema;

/// Makes one entry by the names of its attributes.
///
/// A name that the schema does not define is left out: the schema of a running server always has those used here.
#[derive(Debug)]
pub(crate) struct Builder<'s> {
    schema: &'s Schema,
    entry: Entry,
    /// What is computed for every entry, which comes last.
    computed: Vec<EntryAttribute>,
}

impl<'s> Builder<'s> {
    pub(crate) fn new(schema: &'s Schema, dn: impl Into<String>) -> Self {
        Self { schema, entry: Entry::new(dn), computed: Vec::new() }
    }

    /// Appends values; none adds nothing.
    pub(crate) fn add<V: Into<Vec<u8>>>(mut self, name: &str, values: impl IntoIterator<Item = V>) -> Self {
        let values: Vec<Vec<u8>> = values.into_iter().map(Into::into).collect();
        if !values.is_empty()
            && let Ok(description) = self.schema.describe(name)
        {
            match self.entry.attribute_mut(&description) {
                Some(attribute) => attribute.values.extend(values),
                None => self.entry.attributes.push(EntryAttribute::new(description, values)),
            }
        }
        self
    }

    pub(crate) fn one(self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.add(name, [value])
    }

    /// The values that its name has.
    pub(crate) fn named(self) -> Self {
        let dn = self.entry.dn.clone();
        let Ok(dn) = Dn::parse(&dn) else { return self };
        let avas = dn.rdns().first().map_or(&[][..], |rdn| rdn.avas());
        avas.iter().fold(self, |built, ava| built.one(ava.attribute, ava.value.to_vec()))
    }

    /// `objectClass` and its structural class, which comes last of `classes`.
    pub(crate) fn classes(self, classes: &[&str]) -> Self {
        let built = self.add("objectClass", classes.iter().copied());
        match classes.last() {
            Some(structural) => built.one("structuralObjectClass", *structural),
            None => built,
        }
    }

    /// The first value of an attribute added before.
    pub(crate) fn first(&self, name: &str) -> Option<Vec<u8>> {
        let description = self.schema.describe(name).ok()?;
        self.entry.attribute(&description)?.values.first().cloned()
    }

    /// An attribute that comes after those added later.
    pub(crate) fn computed(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        if let Ok(description) = self.schema.describe(name) {
            self.computed.push(EntryAttribute::new(description, vec![value.into()]));
        }
        self
    }

    pub(crate) fn build(mut self) -> Entry {
        self.entry.attributes.append(&mut self.computed);
        self.entry
    }
}
