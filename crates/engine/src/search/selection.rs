//! Which attributes of an entry are answered (RFC 4511 section 4.5.1.8, RFC 3673, RFC 4529).

use larix_proto::Strings;
use larix_schema::{AttributeDescription, AttributeTypeId, ObjectClassId, Schema};

use crate::catalog::{Catalog, Numbers, has_number};
use crate::entry::AttributeNumber;
use crate::overlay::computed::ComputedAttribute;

/// Operational attributes that are computed when they are asked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Computed {
    EntryDn,
    SubschemaSubentry,
    HasSubordinates,
    NumSubordinates,
    /// Of the suffix entry alone.
    ContextCsn,
    /// Of the suffix entry alone: where operations on the database are recorded.
    AuditContext,
}

impl Computed {
    pub const ALL: [Self; 6] = [
        Self::EntryDn,
        Self::SubschemaSubentry,
        Self::HasSubordinates,
        Self::NumSubordinates,
        Self::ContextCsn,
        Self::AuditContext,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::EntryDn => "entryDN",
            Self::SubschemaSubentry => "subschemaSubentry",
            Self::HasSubordinates => "hasSubordinates",
            Self::NumSubordinates => "numSubordinates",
            Self::ContextCsn => "contextCSN",
            Self::AuditContext => "auditContext",
        }
    }
}

/// So many are gone through faster one by one than they are looked up.
const FEW: usize = 16;

/// What a client asked to see.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    all_user: bool,
    all_operational: bool,
    /// Nothing was asked for by name, not even by `*`.
    names_none: bool,
    /// Each once; in order where they are more than a few.
    descriptions: Vec<AttributeDescription>,
    /// Ascending, each once.
    numbers: Numbers,
    computed: Vec<Computed>,
    /// For how many numbers of the catalog `numbers` is complete.
    known: usize,
}

/// The class that allows every attribute (RFC 4512 section 4.3).
const EXTENSIBLE_OBJECT: &str = "1.3.6.1.4.1.1466.101.120.111";

impl Selection {
    /// Unknown attributes and classes are ignored, as the RFC wants.
    pub fn new(schema: &Schema, catalog: &Catalog, names: Strings<'_>) -> Self {
        if names.is_empty() {
            let known = catalog.rows().len();
            return Self { all_user: true, names_none: true, known, ..Self::default() };
        }
        Self::from_names(schema, catalog, names.iter())
    }

    /// Whether the list of attributes is empty, which asks for all of users.
    pub fn names_none(&self) -> bool {
        self.names_none
    }

    pub(crate) fn from_names<'n>(
        schema: &Schema,
        catalog: &Catalog,
        names: impl Iterator<Item = &'n str>,
    ) -> Self {
        let mut selection = Self::default();
        let mut empty = true;
        let mut classes = Vec::new();
        for name in names {
            empty = false;
            match name {
                "*" => selection.all_user = true,
                "+" => selection.all_operational = true,
                "1.1" => {}
                name => selection.add(schema, name, &mut classes),
            }
        }
        selection.all_user |= empty;
        selection.names_none = empty;
        if selection.descriptions.len() > FEW {
            selection.descriptions.sort_unstable();
            selection.descriptions.dedup();
        }
        if selection.all_operational {
            for computed in Computed::ALL.into_iter().filter(|c| *c != Computed::NumSubordinates) {
                selection.add_computed(computed);
            }
        }
        selection.renumber(schema, catalog);
        selection
    }

    /// Takes in numbers that the catalog got since.
    pub fn renumber(&mut self, schema: &Schema, catalog: &Catalog) {
        if self.known == catalog.rows().len() && self.known != 0 {
            return;
        }
        self.known = catalog.rows().len();
        self.numbers.clear();
        for description in &self.descriptions {
            self.numbers.extend(catalog.covered(schema, description).as_slice().iter().copied());
        }
        self.numbers.sort_unstable();
        self.numbers.dedup();
    }

    /// Whether a stored attribute is answered.
    #[inline]
    pub fn has(&self, number: AttributeNumber, operational: bool) -> bool {
        (if operational { self.all_operational } else { self.all_user }) || has_number(&self.numbers, number)
    }

    /// Computed attributes to answer.
    pub fn computed(&self) -> &[Computed] {
        &self.computed
    }

    /// Whether an attribute that an overlay computes is answered.
    pub(super) fn has_computed(&self, schema: &Schema, own: &ComputedAttribute) -> bool {
        self.has_described(schema, &own.description, own.operational)
    }

    /// Whether an attribute that no entry need have is answered.
    pub(super) fn has_described(
        &self,
        schema: &Schema,
        description: &AttributeDescription,
        operational: bool,
    ) -> bool {
        if (if operational { self.all_operational } else { self.all_user })
            || self.has_description(description)
        {
            return true;
        }
        let mut at = Some(description.attribute);
        while let Some(attribute) = at {
            if self.has_description(&AttributeDescription::plain(attribute)) {
                return true;
            }
            at = schema.attribute(attribute).superior;
        }
        false
    }

    /// Attribute descriptions that are asked for.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.descriptions.len()
    }

    /// Whether nothing but the DN is answered.
    pub fn is_empty(&self) -> bool {
        !self.all_user && !self.all_operational && self.descriptions.is_empty() && self.computed.is_empty()
    }

    pub(super) fn has_description(&self, description: &AttributeDescription) -> bool {
        if self.descriptions.len() <= FEW {
            self.descriptions.contains(description)
        } else {
            self.descriptions.binary_search(description).is_ok()
        }
    }

    /// `classes`: those that were taken in already.
    fn add(&mut self, schema: &Schema, name: &str, classes: &mut Vec<ObjectClassId>) {
        if let Some(class) = name.strip_prefix('@') {
            let Some(class) = schema.object_class(class) else { return };
            // There are as many as the schema has, however often a request names them.
            match classes.binary_search(&class.id) {
                Ok(_) => return,
                Err(place) => classes.insert(place, class.id),
            }
            // Every attribute is allowed in it, so every one is asked for.
            if class.oid == EXTENSIBLE_OBJECT {
                (self.all_user, self.all_operational) = (true, true);
                return;
            }
            let all = class.all_must().iter().chain(class.all_may());
            all.for_each(|attribute| self.add_type(schema, *attribute));
            return;
        }
        let Ok(description) = schema.describe(name) else { return };
        if description.options().is_empty() {
            self.add_type(schema, description.attribute);
        } else {
            self.add_description(description);
        }
    }

    fn add_type(&mut self, schema: &Schema, attribute: AttributeTypeId) {
        let name = schema.attribute(attribute).name();
        if let Some(computed) = Computed::ALL.into_iter().find(|computed| computed.name() == name) {
            self.add_computed(computed);
            return;
        }
        self.add_description(AttributeDescription::plain(attribute));
    }

    /// A few are compared with each other here. Many are sorted when all are known, and doubles go then: to look for each would be
    /// quadratic.
    fn add_description(&mut self, description: AttributeDescription) {
        if self.descriptions.len() > FEW || !self.descriptions.contains(&description) {
            self.descriptions.push(description);
        }
    }

    fn add_computed(&mut self, computed: Computed) {
        if !self.computed.contains(&computed) {
            self.computed.push(computed);
        }
    }
}
