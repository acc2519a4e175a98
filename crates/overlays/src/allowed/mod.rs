//! `overlay allowed`: which attributes and auxiliary classes an entry could have, and which of them the requester may write.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use larix_engine::access::{Privilege, Subject};
use larix_engine::overlay::computed::{ComputedAttributes, ComputedOf};
use larix_engine::overlay::internal_search::{InternalSearch, Whose};
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Descriptor, Failure, InGluedDatabases, Interests, Overlay};
use larix_proto::Scope;
use larix_schema::{
    AttributeDescription, AttributeTypeId, BoundFilter, ClassKind, ObjectClass, ObjectClassId, Schema,
};

pub static DESCRIPTOR: Descriptor = Descriptor::new("allowed", "olcOverlayConfig", build).over_glue(InGluedDatabases::Each).once().schema(
    "attributetype ( 1.2.840.113556.1.4.911 NAME 'allowedChildClasses' EQUALITY objectIdentifierMatch \
     SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 NO-USER-MODIFICATION USAGE dSAOperation )\n\
     attributetype ( 1.2.840.113556.1.4.912 NAME 'allowedChildClassesEffective' EQUALITY objectIdentifierMatch \
     SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 NO-USER-MODIFICATION USAGE dSAOperation )\n\
     attributetype ( 1.2.840.113556.1.4.913 NAME 'allowedAttributes' EQUALITY objectIdentifierMatch \
     SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 NO-USER-MODIFICATION USAGE dSAOperation )\n\
     attributetype ( 1.2.840.113556.1.4.914 NAME 'allowedAttributesEffective' EQUALITY objectIdentifierMatch \
     SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 NO-USER-MODIFICATION USAGE dSAOperation )",
);

/// The overlay on one database.
#[derive(Debug)]
struct Allowed {
    object_class: AttributeDescription,
    /// Each with what it tells.
    attributes: [(AttributeDescription, AllowedKind); 4],
}

/// What an attribute tells.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct AllowedKind {
    /// Classes that could be added. Otherwise attributes that the classes of the entry allow.
    classes: bool,
    /// Only those that the requester may write.
    effective: bool,
}

fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let described = |name| described(context.schema, "overlay allowed", name);
    let kind = |classes, effective| AllowedKind { classes, effective };
    Ok(Arc::new(Allowed {
        object_class: described("objectClass")?,
        attributes: [
            (described("allowedChildClasses")?, kind(true, false)),
            (described("allowedChildClassesEffective")?, kind(true, true)),
            (described("allowedAttributes")?, kind(false, false)),
            (described("allowedAttributesEffective")?, kind(false, true)),
        ],
    }))
}

impl Overlay for Allowed {
    fn name(&self) -> &'static str {
        "allowed"
    }

    fn interests(&self) -> Interests {
        Interests::COMPUTE
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        Some(self)
    }
}

impl ComputedAttributes for Allowed {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        self.attributes.iter().map(|(attribute, _)| attribute.clone()).collect()
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let kind = self.attributes.iter().find(|(own, _)| own == attribute);
        let Some((_, kind)) = kind else { return Ok(()) };
        let writable = Writable::of(of, kind.effective)?;
        if kind.classes {
            let auxiliary = |class: &&ObjectClass| class.kind == ClassKind::Auxiliary;
            for class in of.schema.object_classes().filter(auxiliary) {
                if self.could_add(&writable, of.schema, class)? && !visit(class.name().as_bytes()) {
                    break;
                }
            }
            return Ok(());
        }
        for id in self.allowed_by_classes(of)? {
            let name = of.schema.attribute(id).name();
            if writable.allows(&AttributeDescription::plain(id))? && !visit(name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }
}

impl Allowed {
    /// Whether the requester may add this class, with all that it requires.
    fn could_add(
        &self,
        writable: &Writable<'_>,
        schema: &Schema,
        class: &ObjectClass,
    ) -> Result<bool, Failure> {
        if writable.requester.is_none() {
            return Ok(true);
        }
        if !writable.allows(&self.object_class)? {
            return Ok(false);
        }
        for id in with_superiors(schema, class).into_iter().flat_map(|id| &schema.class(id).must) {
            if !writable.allows(&AttributeDescription::plain(*id))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What those classes of the entry that the requester may read require and allow, superiors included.
    fn allowed_by_classes(&self, of: &ComputedOf<'_>) -> Result<BTreeSet<AttributeTypeId>, Failure> {
        let mut classes: BTreeSet<ObjectClassId> = BTreeSet::new();
        let mut note = |value: &[u8]| {
            let class = std::str::from_utf8(value).ok().and_then(|name| of.schema.object_class(name));
            classes.extend(class.into_iter().flat_map(|class| with_superiors(of.schema, class)));
            true
        };
        match of.requester {
            None => of.entry.source().visit_exact(&self.object_class, &mut note)?,
            Some(requester) => {
                let dn = of.entry.dn()?;
                let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True);
                of.entries.search(&query.of(Whose::Requester(requester)), &mut |found| {
                    found.visit_readable(&self.object_class, &mut note)?;
                    Ok(false)
                })?;
            }
        }
        let classes = classes.into_iter().map(|id| of.schema.class(id));
        Ok(classes.flat_map(|class| class.must.iter().chain(&class.may)).copied().collect())
    }
}

/// The class and all above it.
fn with_superiors(schema: &Schema, class: &ObjectClass) -> BTreeSet<ObjectClassId> {
    let (mut all, mut left) = (BTreeSet::new(), vec![class.id]);
    while let Some(id) = left.pop() {
        if all.insert(id) {
            left.extend(&schema.class(id).superiors);
        }
    }
    all
}

/// What the requester may write of an entry.
struct Writable<'a> {
    of: &'a ComputedOf<'a>,
    entry: larix_engine::Entry,
    /// None: rights do not matter.
    requester: Option<&'a Subject>,
}

impl<'a> Writable<'a> {
    fn of(of: &'a ComputedOf<'a>, effective: bool) -> Result<Self, Failure> {
        let requester = of.requester.filter(|_| effective);
        let entry = if requester.is_some() { of.entry.owned()? } else { larix_engine::Entry::new("") };
        Ok(Self { of, entry, requester })
    }

    fn allows(&self, attribute: &AttributeDescription) -> Result<bool, Failure> {
        let Some(requester) = self.requester else { return Ok(true) };
        let dn = self.of.entry.dn()?;
        self.of.entries.allows(requester, dn, &self.entry, attribute, Privilege::Write)
    }
}
