//! What a change of an origin does to its managed entry.

use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{AroundChange, Consequence, FollowUp, Refusal};
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{ModifyOperation, Scope};
use larix_schema::{NormalDn, Schema};

use super::template::{ManagedEntry, Valued};
use super::{Definition, Rules, unwilling};

/// An entry on both sides of its change.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    /// `None`: it is new.
    pub(super) before: Option<NormalDn>,
    /// `None`: it is gone.
    pub(super) after: Option<NormalDn>,
    /// And all below it.
    pub(super) all: bool,
}

#[derive(Debug)]
pub(super) struct Follow {
    pub(super) rules: Arc<Rules>,
    pub(super) moved: Moved,
}

impl FollowUp for Follow {
    fn consequences(self: Box<Self>, _: &AroundChange<'_>, _: &Schema) -> Result<Vec<Consequence>, Refusal> {
        Ok(Vec::new())
    }

    fn required(&self, around: &AroundChange<'_>, schema: &Schema) -> Result<Vec<WriteOperation>, Refusal> {
        let Moved { before, after, all } = &self.moved;
        let mut step = Steps { rules: &self.rules, around, schema, operations: Vec::new() };
        step.follow(before.as_ref(), after.as_ref())?;
        if let Some(top) = before.as_ref().filter(|_| *all) {
            let query = InternalSearch::new(top, Scope::Children, &self.rules.names.origins);
            let mut origins = Vec::new();
            around.before.search(&query, &mut |found| {
                origins.push(found.dn()?.clone());
                Ok(true)
            })?;
            for origin in origins {
                let moved = after.as_ref().and_then(|after| below(&origin, top, after));
                step.follow(Some(&origin), moved.as_ref())?;
            }
        }
        Ok(step.operations)
    }
}

/// What an entry below `top` is called once that is called `after`.
fn below(dn: &NormalDn, top: &NormalDn, after: &NormalDn) -> Option<NormalDn> {
    let relative = dn.as_str().strip_suffix(top.as_str())?;
    Some(NormalDn::from_normal(&format!("{relative}{}", after.as_str())))
}

struct Steps<'a> {
    rules: &'a Rules,
    around: &'a AroundChange<'a>,
    schema: &'a Schema,
    operations: Vec<WriteOperation>,
}

impl Steps<'_> {
    fn follow(&mut self, before: Option<&NormalDn>, after: Option<&NormalDn>) -> Result<(), Refusal> {
        let (around, names) = (self.around, &self.rules.names);
        let old = before.map(|dn| around.before.entry(dn)).transpose()?.flatten();
        let new = after.map(|dn| around.after.entry(dn)).transpose()?.flatten();
        let Some((dn, origin)) = after.zip(new.as_ref()) else {
            // The origin is gone.
            let managed =
                old.as_ref().and_then(|old| self.rules.name_in(old, &names.managed_entry, self.schema));
            if let Some((managed, origin)) = managed.zip(before) {
                self.delete(&managed, origin)?;
            }
            return Ok(());
        };
        let pointer = self.rules.name_in(origin, &names.managed_entry, self.schema);
        match (self.rules.of_origin(around.after, dn, origin)?, pointer) {
            (None, None) => Ok(()),
            (None, Some(managed)) => {
                self.delete(&managed, before.unwrap_or(dn))?;
                self.unlink(origin);
                Ok(())
            }
            (Some(definition), pointer) => self.keep(definition, (before, dn), origin, pointer.as_ref()),
        }
    }

    /// Has the managed entry of an origin be as its template says.
    fn keep(
        &mut self,
        definition: &Definition,
        (before, dn): (Option<&NormalDn>, &NormalDn),
        origin: &Entry,
        pointer: Option<&NormalDn>,
    ) -> Result<(), Refusal> {
        let template = self.rules.template(definition, self.around.after, self.schema)?;
        let desired = template.managed_entry(origin, &definition.base_text, self.schema).map_err(|why| {
            unwilling(format!(
                "managed entries: \"{}\" is an origin of \"{}\": {why}",
                origin.dn, definition.name
            ))
        })?;
        let target = self.schema.parse_dn(&desired.dn).map_err(|error| {
            unwilling(format!(
                "managed entries: \"{}\" of \"{}\" is not a DN: {error}",
                desired.dn, origin.dn
            ))
        })?;
        let managed =
            pointer.map(|managed| self.managed(managed, &[before, Some(dn)])).transpose()?.flatten();
        // One that names this origin already, as after both were brought back, is its own.
        let (own, entry) = match pointer.zip(managed) {
            Some((own, entry)) => (own.clone(), Some(entry)),
            None => (target.clone(), self.managed(&target, &[before, Some(dn)])?),
        };
        let is_taken = target != own || entry.is_none();
        if is_taken && self.around.after.exists(&target)? {
            return Err(unwilling(format!(
                "managed entries: \"{}\", the managed entry of \"{}\", cannot be made: another entry has this name; rename or \
                 delete it first",
                desired.dn, origin.dn
            )));
        }
        if is_taken && !self.around.after.exists(&definition.base)? {
            return Err(unwilling(format!(
                "managed entries: \"{}\", the base of the definition \"{}\", does not exist; add it first",
                definition.base_text, definition.name
            )));
        }
        match entry {
            None => self.add(&desired, origin),
            Some(entry) => self.update(&desired, (&own, &target), &entry, origin),
        }
        if pointer != Some(&target) {
            self.link(origin, &desired);
        }
        Ok(())
    }

    /// An entry that says that it is managed by one of these origins.
    fn managed(&self, dn: &NormalDn, origins: &[Option<&NormalDn>]) -> Result<Option<Entry>, Refusal> {
        let Some(entry) = self.around.after.entry(dn)? else { return Ok(None) };
        let by = self.rules.origin_of(&entry, self.schema);
        let is_own = by.is_some_and(|by| origins.iter().flatten().any(|origin| **origin == by));
        Ok(is_own.then_some(entry))
    }

    fn delete(&mut self, managed: &NormalDn, origin: &NormalDn) -> Result<(), Refusal> {
        if let Some(entry) = self.managed(managed, &[Some(origin)])? {
            self.operations.push(WriteOperation::Delete { entry: entry.dn });
        }
        Ok(())
    }

    fn add(&mut self, desired: &ManagedEntry, origin: &Entry) {
        let (name, value) = &desired.name;
        let class = b"mepManagedEntry".to_vec();
        let mut all: Vec<Valued> = vec![(name.clone(), vec![value.clone()])];
        all.extend(desired.mapped.iter().cloned());
        for (attribute, values) in &desired.fixed {
            let known = all.iter_mut().find(|(known, _)| known == attribute);
            match known {
                Some((_, own)) => own.extend(values.iter().cloned()),
                None => all.push((attribute.clone(), values.clone())),
            }
        }
        match all.iter_mut().find(|(known, _)| known == "objectClass") {
            Some((_, own)) => own.push(class),
            None => all.push(("objectClass".to_owned(), vec![class])),
        }
        all.push(("mepManagedBy".to_owned(), vec![origin.dn.clone().into_bytes()]));
        let attributes = all.into_iter().map(|(description, values)| AttributeValues { description, values });
        self.operations
            .push(WriteOperation::Add { entry: desired.dn.clone(), attributes: attributes.collect() });
    }

    fn update(
        &mut self,
        desired: &ManagedEntry,
        (own, target): (&NormalDn, &NormalDn),
        entry: &Entry,
        origin: &Entry,
    ) {
        if own != target {
            let moves = own.parent() != target.parent();
            let superior = desired.dn.strip_prefix(&desired.rdn).and_then(|rest| rest.strip_prefix(','));
            self.operations.push(WriteOperation::ModifyDn {
                entry: entry.dn.clone(),
                new_rdn: desired.rdn.clone(),
                delete_old_rdn: true,
                new_superior: superior.filter(|_| moves).map(str::to_owned),
            });
        }
        let by = ("mepManagedBy".to_owned(), vec![origin.dn.clone().into_bytes()]);
        let mut changes = Vec::new();
        for (description, values) in desired.mapped.iter().chain([&by]) {
            let known = self.schema.describe(description).ok();
            let is = known.and_then(|known| entry.attribute(&known)).map_or(&[][..], |own| &own.values);
            if is != values.as_slice() {
                changes.push(modification(ModifyOperation::Replace, description, values.clone()));
            }
        }
        if !changes.is_empty() {
            self.operations.push(WriteOperation::Modify { object: desired.dn.clone(), changes });
        }
    }

    /// Has the origin name its managed entry.
    fn link(&mut self, origin: &Entry, desired: &ManagedEntry) {
        let mut changes = Vec::new();
        if !self.is_linked(origin) {
            changes.push(modification(ModifyOperation::Add, "objectClass", vec![b"mepOriginEntry".to_vec()]));
        }
        let name = vec![desired.dn.clone().into_bytes()];
        changes.push(modification(ModifyOperation::Replace, "mepManagedEntry", name));
        self.operations.push(WriteOperation::Modify { object: origin.dn.clone(), changes });
    }

    fn unlink(&mut self, origin: &Entry) {
        let mut changes = vec![modification(ModifyOperation::Delete, "mepManagedEntry", Vec::new())];
        if self.is_linked(origin) {
            let class = vec![b"mepOriginEntry".to_vec()];
            changes.push(modification(ModifyOperation::Delete, "objectClass", class));
        }
        self.operations.push(WriteOperation::Modify { object: origin.dn.clone(), changes });
    }

    fn is_linked(&self, origin: &Entry) -> bool {
        let classes = origin.attribute(&self.rules.names.object_class).map_or(&[][..], |own| &own.values);
        classes.iter().any(|class| class.eq_ignore_ascii_case(b"mepOriginEntry"))
    }
}

fn modification(operation: ModifyOperation, description: &str, values: Vec<Vec<u8>>) -> Modification {
    Modification { operation, attribute: AttributeValues { description: description.to_owned(), values } }
}
