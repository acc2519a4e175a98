//! Which attributes of an entry are answered (RFC 4511 section 4.5.1.8, RFC 3673, RFC 4529).

use larix_proto::Strings;
use larix_schema::{AttributeDescription, AttributeTypeId, Schema};

use crate::catalog::{Catalog, Numbers};
use crate::entry::AttributeNumber;

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

/// What a client asked to see.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    all_user: bool,
    all_operational: bool,
    descriptions: Vec<AttributeDescription>,
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
        Self::from_names(schema, catalog, names.iter())
    }

    pub fn from_names<'n>(schema: &Schema, catalog: &Catalog, names: impl Iterator<Item = &'n str>) -> Self {
        let mut selection = Self::default();
        let mut empty = true;
        for name in names {
            empty = false;
            match name {
                "*" => selection.all_user = true,
                "+" => selection.all_operational = true,
                "1.1" => {}
                name => selection.add(schema, name),
            }
        }
        selection.all_user |= empty;
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
            self.numbers.extend(catalog.covered(schema, description));
        }
    }

    /// Whether a stored attribute is answered.
    pub fn has(&self, number: AttributeNumber, operational: bool) -> bool {
        (if operational { self.all_operational } else { self.all_user }) || self.numbers.contains(&number)
    }

    /// Computed attributes to answer.
    pub fn computed(&self) -> &[Computed] {
        &self.computed
    }

    /// Whether an operational attribute that an entry may have, or a plugin has something to say of, is answered.
    pub fn asks_for(&self, description: &AttributeDescription) -> bool {
        self.all_operational || self.descriptions.contains(description)
    }

    /// Whether nothing but the DN is answered.
    pub fn is_empty(&self) -> bool {
        !self.all_user && !self.all_operational && self.descriptions.is_empty() && self.computed.is_empty()
    }

    fn add(&mut self, schema: &Schema, name: &str) {
        if let Some(class) = name.strip_prefix('@') {
            let Some(class) = schema.object_class(class) else { return };
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
        } else if !self.descriptions.contains(&description) {
            self.descriptions.push(description);
        }
    }

    fn add_type(&mut self, schema: &Schema, attribute: AttributeTypeId) {
        let name = schema.attribute(attribute).name();
        if let Some(computed) = Computed::ALL.into_iter().find(|computed| computed.name() == name) {
            self.add_computed(computed);
            return;
        }
        let description = AttributeDescription::plain(attribute);
        if !self.descriptions.contains(&description) {
            self.descriptions.push(description);
        }
    }

    fn add_computed(&mut self, computed: Computed) {
        if !self.computed.contains(&computed) {
            self.computed.push(computed);
        }
    }
}
