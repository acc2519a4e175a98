//! What lists take over of the entries that their URLs find.

use larix_engine::Fault;
use larix_engine::overlay::Failure;
use larix_engine::overlay::computed::{ComputedIn, StoredEntry};
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch};
use larix_schema::{AttributeDescription, ClassKind, Schema};

use super::AttributeSet;
use super::cache::{MemberUrl, urls};
use super::identity::Identity;

/// What is done with a value: what it is called in the list, and the value. Until it answers false.
pub(super) type OnValue<'f> = dyn FnMut(&AttributeDescription, &[u8]) -> bool + 'f;

impl AttributeSet {
    /// What an attribute of a found entry is called in the list.
    fn name_in_list<'a>(&'a self, found: &'a AttributeDescription) -> &'a AttributeDescription {
        let map = self.maps.iter().find(|map| map.attribute == *found);
        map.map_or(found, |map| map.target())
    }

    /// Whether an attribute of a found entry is mapped: then it is computed, and filters see it.
    pub(super) fn is_mapped(&self, found: &AttributeDescription) -> bool {
        self.maps.iter().any(|map| map.attribute == *found)
    }

    /// Hands on what the list takes over: attributes of found entries that pass `wanted`, which is asked with what it
    /// is called there and what it is called in the list.
    pub(super) fn expand(
        &self,
        within: &ComputedIn<'_>,
        entry: &dyn StoredEntry,
        wanted: &dyn Fn(&AttributeDescription, &AttributeDescription) -> bool,
        visit: &mut OnValue<'_>,
    ) -> Result<(), Failure> {
        let (schema, source) = (within.schema, entry.source());
        let urls = urls(schema, self, source)?;
        if urls.is_empty() {
            return Ok(());
        }
        let identity = Identity::of(schema, source)?;
        let identity = Identity::of_requester(identity.as_ref(), within)?;
        let Some(whose) = identity.whose() else { return Ok(()) };
        let mut more = true;
        for url in &urls {
            let named: Vec<AttributeDescription> =
                url.attributes.iter().filter_map(|name| schema.describe(name).ok()).collect();
            let takes_any = url.takes_all() || named.iter().any(|name| wanted(name, self.name_in_list(name)));
            if !takes_any {
                continue;
            }
            let query = InternalSearch {
                subentries: false,
                ..InternalSearch::new(&url.base, url.scope, &url.filter).of(whose)
            };
            within.entries.search(&query, &mut |found| {
                more = self.take(schema, (url, &named), found, wanted, visit)?;
                Ok(more)
            })?;
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn take(
        &self,
        schema: &Schema,
        (url, named): (&MemberUrl, &[AttributeDescription]),
        found: &dyn FoundEntry,
        wanted: &dyn Fn(&AttributeDescription, &AttributeDescription) -> bool,
        visit: &mut OnValue<'_>,
    ) -> Result<bool, Fault> {
        let mut taken = Vec::new();
        found.source().descriptions(&mut |description| {
            if url.takes(schema, named, description) && wanted(description, self.name_in_list(description)) {
                taken.push(description.clone());
            }
        })?;
        let mut more = true;
        for description in taken {
            let is_class = schema.attribute(description.attribute).name() == "objectClass";
            found.visit_readable(&description, &mut |value| {
                // An entry has one structural class.
                if !is_class || !is_structural(schema, value) {
                    more = visit(self.name_in_list(&description), value);
                }
                more
            })?;
            if !more {
                break;
            }
        }
        Ok(more)
    }
}

impl MemberUrl {
    fn takes_all(&self) -> bool {
        self.attributes.is_empty() || self.attributes.iter().any(|name| name == "*" || name == "+")
    }

    fn takes(&self, schema: &Schema, named: &[AttributeDescription], own: &AttributeDescription) -> bool {
        let operational = schema.attribute(own.attribute).is_operational();
        let all = if operational { "+" } else { "*" };
        (self.attributes.is_empty() && !operational)
            || self.attributes.iter().any(|name| name == all)
            || named.iter().any(|named| own.is_subdescription_of(schema, named))
    }
}

fn is_structural(schema: &Schema, class: &[u8]) -> bool {
    let class = std::str::from_utf8(class).ok().and_then(|name| schema.object_class(name));
    class.is_none_or(|class| class.kind == ClassKind::Structural)
}
