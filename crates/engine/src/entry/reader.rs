//! Reading an entry with all that belongs to it, wherever it is stored.

use larix_proto::ldif::LdifAttribute;
use larix_schema::{AttributeDescription, Schema};
use larix_store::Snapshot;

use super::{AttributeNumber, Entry, EntryAttribute, EntryView, LargeValues, UnchangedValues, values};
use crate::catalog::{Catalog, Covered, CoveredOnce};
use crate::fault::Fault;
use crate::record::{Form, RecordError, RecordFlags, StoredValue, ValuesView};

/// An attribute description, and the numbers that it covers in one database: itself, its subtypes, more options.
#[derive(Clone, Debug)]
pub struct Target {
    description: Option<AttributeDescription>,
    pub numbers: Covered,
}

impl Target {
    pub fn new(schema: &Schema, catalog: &Catalog, description: AttributeDescription) -> Self {
        Self { numbers: catalog.covered(schema, &description), description: Some(description) }
    }

    /// One of many targets of a filter.
    pub fn among(covered: &mut CoveredOnce<'_>, description: AttributeDescription) -> Self {
        Self { numbers: covered.covered(&description), description: Some(description) }
    }

    /// No attribute in particular.
    pub fn any() -> Self {
        Self { description: None, numbers: Covered::none() }
    }

    pub fn description(&self) -> Option<&AttributeDescription> {
        self.description.as_ref()
    }

    /// The same target with the numbers of a newer catalog.
    pub fn renumber(&mut self, covered: &mut CoveredOnce<'_>) {
        if let Some(description) = &self.description {
            self.numbers = covered.covered(description);
        }
    }
}

/// Attributes that an entry is given room for.
const USUAL_ATTRIBUTES: usize = 48;
/// Values that an attribute is given room for at once, whatever a record, which may be damaged, says.
const VALUES_RESERVED: u64 = 64;

/// An entry whose values can be asked for: stored, or about to be.
pub trait EntrySource {
    /// Calls `visit` with each value of what the target covers, until it answers false.
    fn visit(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault>;

    /// Calls `visit` with the description of each attribute.
    fn descriptions(&self, visit: &mut dyn FnMut(&AttributeDescription)) -> Result<(), Fault>;

    /// Calls `visit` with each value of exactly this description, until it answers false.
    fn visit_exact(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault>;

    /// As [`Self::visit`], for a description without numbers at hand.
    fn visit_description(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault>;

    /// Whether the target has any value.
    fn is_present(&self, target: &Target) -> Result<bool, Fault> {
        let mut found = false;
        self.visit(target, &mut |_| {
            found = true;
            false
        })?;
        Ok(found)
    }

    /// Whether the target covers its own description only, and no subtype or one with more options.
    fn has_only_itself(&self, _target: &Target) -> bool {
        false
    }

    /// Whether an attribute of the target is a large set that has the member, by the equality rule's normalized value.
    /// `None` when no attribute of the target is large and `visit` has to be asked.
    fn large_member(&self, _target: &Target, _normal: &[u8]) -> Result<Option<bool>, Fault> {
        Ok(None)
    }
}

/// A stored entry.
#[derive(Debug)]
pub struct EntryReader<'a, S> {
    pub snapshot: &'a S,
    pub schema: &'a Schema,
    pub catalog: &'a Catalog,
    pub view: EntryView<'a>,
}

impl<S> Clone for EntryReader<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for EntryReader<'_, S> {}

impl<'a, S: Snapshot> EntryReader<'a, S> {
    pub fn new(snapshot: &'a S, schema: &'a Schema, catalog: &'a Catalog, view: EntryView<'a>) -> Self {
        Self { snapshot, schema, catalog, view }
    }

    /// The attributes that the target covers.
    pub(crate) fn covered<'t>(
        &self,
        target: &'t Target,
    ) -> impl Iterator<Item = Result<(AttributeNumber, ValuesView<'a>), RecordError>> + use<'a, 't, S> {
        let mut attributes = self.view.attributes();
        let only = match target.numbers.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        std::iter::from_fn(move || match only {
            Some(only) => attributes.next_of(only),
            None => attributes.find(|found| match found {
                Ok((number, _)) => target.numbers.contains(*number),
                Err(_) => true,
            }),
        })
    }

    /// Calls `visit` with each value of one attribute, until it answers false. Answers false if it was stopped.
    pub fn visit_values(
        &self,
        number: AttributeNumber,
        stored: &ValuesView<'_>,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<bool, Fault> {
        let mut more = true;
        if stored.form() == Form::Large {
            values::visit(self.snapshot, self.view.id(), number, &mut |_, value| {
                more = visit(value);
                more
            })?;
            return Ok(more);
        }
        for value in stored.iter() {
            more = match value? {
                StoredValue::Inline(value) => visit(value),
                StoredValue::Blob { digest, .. } => {
                    values::with_blob(self.snapshot, self.view.id(), digest, &mut *visit)?
                }
            };
            if !more {
                break;
            }
        }
        Ok(more)
    }

    /// Whether a large set has the member, by its [`values::member_key`].
    pub fn member(&self, number: AttributeNumber, member: &[u8]) -> Result<bool, Fault> {
        values::contains(self.snapshot, self.view.id(), number, member)
    }

    /// The attributes that the schema does not know any more, as they are shown, with all of their values.
    pub fn unknown(&self) -> Result<Vec<LdifAttribute>, Fault> {
        let mut unknown = Vec::new();
        for attribute in self.view.attributes() {
            let (number, stored) = attribute?;
            let Some(row) = self.catalog.row(number).filter(|row| row.description.is_none()) else {
                continue;
            };
            let mut values = Vec::new();
            self.visit_values(number, &stored, &mut |value| {
                values.push(value.to_vec());
                true
            })?;
            unknown.push(LdifAttribute { description: row.text.to_string(), values });
        }
        Ok(unknown)
    }

    /// The entry as an owned one. Large sets stay in the store unless `whole`. Attributes that the schema does not
    /// know any more are left out: [`Self::unknown`] has them.
    pub fn to_owned(&self, dn: String, whole: bool) -> Result<Entry, Fault> {
        self.owned(dn, whole, |_| true)
    }

    /// As [`Self::to_owned`], but of attributes that are not `wanted` and stand in the record the values are
    /// [kept](UnchangedValues).
    pub(crate) fn owned_in_part(
        &self,
        dn: String,
        wanted: impl Fn(&AttributeDescription) -> bool,
    ) -> Result<Entry, Fault> {
        self.owned(dn, false, wanted)
    }

    fn owned(
        &self,
        dn: String,
        whole: bool,
        wanted: impl Fn(&AttributeDescription) -> bool,
    ) -> Result<Entry, Fault> {
        let mut entry = Entry::new(dn);
        entry.attributes.reserve(USUAL_ATTRIBUTES);
        for attribute in self.view.attributes() {
            let (number, stored) = attribute?;
            let Some(description) = self.catalog.row(number).and_then(|row| row.description.clone()) else {
                continue;
            };
            let keeps = stored.form() == Form::Inline && !wanted(&description);
            let mut attribute = EntryAttribute::new(description, Vec::new());
            if keeps {
                attribute.unchanged = Some(UnchangedValues { number, count: stored.len() });
            } else if stored.form() == Form::Large && !whole {
                attribute.large = Some(LargeValues { stored: stored.len(), ..LargeValues::default() });
            } else {
                attribute.values.reserve_exact(stored.len().min(VALUES_RESERVED) as usize);
                self.visit_values(number, &stored, &mut |value| {
                    attribute.values.push(value.to_vec());
                    true
                })?;
            }
            entry.attributes.push(attribute);
        }
        Ok(entry)
    }
}

impl<S: Snapshot> EntrySource for EntryReader<'_, S> {
    fn visit(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        for attribute in self.covered(target) {
            let (number, stored) = attribute?;
            if !self.visit_values(number, &stored, visit)? {
                break;
            }
        }
        Ok(())
    }

    fn descriptions(&self, visit: &mut dyn FnMut(&AttributeDescription)) -> Result<(), Fault> {
        for attribute in self.view.attributes() {
            let (number, _) = attribute?;
            self.catalog
                .row(number)
                .and_then(|row| row.description.as_ref())
                .into_iter()
                .for_each(&mut *visit);
        }
        Ok(())
    }

    fn visit_exact(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let Some(number) = self.catalog.number(description) else { return Ok(()) };
        if let Some(stored) = self.view.get(number)? {
            self.visit_values(number, &stored, visit)?;
        }
        Ok(())
    }

    fn visit_description(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        self.visit(&Target::new(self.schema, self.catalog, description.clone()), visit)
    }

    fn is_present(&self, target: &Target) -> Result<bool, Fault> {
        for attribute in self.covered(target) {
            let (_, stored) = attribute?;
            if !stored.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_only_itself(&self, target: &Target) -> bool {
        match target.numbers.as_slice() {
            [] => true,
            [number] => {
                let row = self.catalog.row(*number);
                row.and_then(|row| row.description.as_ref()) == target.description()
            }
            _ => false,
        }
    }

    fn large_member(&self, target: &Target, normal: &[u8]) -> Result<Option<bool>, Fault> {
        if !self.view.flags().has(RecordFlags::OUTSIDE) {
            return Ok(None);
        }
        // With several covered attributes each is visited instead: rare.
        let [number] = target.numbers.as_slice() else { return Ok(None) };
        match self.view.get(*number)? {
            Some(stored) if stored.form() == Form::Large => {
                Ok(Some(self.member(*number, &values::member_key_of_normal(normal))?))
            }
            _ => Ok(None),
        }
    }
}

/// An owned entry as a source; large sets are not visited.
#[derive(Copy, Clone, Debug)]
pub struct OwnedSource<'a> {
    pub schema: &'a Schema,
    pub entry: &'a Entry,
}

impl EntrySource for OwnedSource<'_> {
    fn visit(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        match target.description() {
            Some(description) => self.visit_description(description, visit),
            None => Ok(()),
        }
    }

    fn descriptions(&self, visit: &mut dyn FnMut(&AttributeDescription)) -> Result<(), Fault> {
        self.entry.attributes.iter().for_each(|a| visit(&a.description));
        Ok(())
    }

    fn visit_exact(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let values = self.entry.attribute(description).into_iter().flat_map(EntryAttribute::loaded);
        values.take_while(|value| visit(value)).count();
        Ok(())
    }

    fn visit_description(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let covered = self
            .entry
            .attributes
            .iter()
            .filter(|a| a.description.is_subdescription_of(self.schema, description));
        for value in covered.flat_map(EntryAttribute::loaded) {
            if !visit(value) {
                break;
            }
        }
        Ok(())
    }
}
