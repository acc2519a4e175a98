//! `overlay pguid`: parentUUID, the entryUUID of the entry above, as Samba 4 wants it. It is computed: whatever is moved or loaded, it
//! is right.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders};
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{
    Additions, BuildContext, ChangeKind, Descriptor, Entries, Failure, InGluedDatabases, Interests, Overlay,
    PendingChange, PreparedChange, Refusal, internal_change,
};
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};
use uuid::Uuid;

const NAME: &str = "parentUUID";

pub static DESCRIPTOR: Descriptor = Descriptor::new("pguid", "olcOverlayConfig", build).over_glue(InGluedDatabases::Each).once().schema(
    "attributetype ( 1.3.6.1.4.1.4203.666.1.59 NAME 'parentUUID' EQUALITY UUIDMatch ORDERING UUIDOrderingMatch \
     SYNTAX 1.3.6.1.1.16.1 SINGLE-VALUE NO-USER-MODIFICATION USAGE dSAOperation )",
);

/// Entries below one that are listed for a filter; where there are more it looks at all entries.
const HOLDERS_MAX: u64 = 100_000;

/// The overlay on one database.
#[derive(Debug)]
struct ParentUuid {
    parent: AttributeDescription,
    uuid: AttributeDescription,
    suffixes: Vec<NormalDn>,
}

fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let described = |name| described(context.schema, "overlay pguid", name);
    let suffixes = context.suffixes.to_vec();
    Ok(Arc::new(ParentUuid { parent: described(NAME)?, uuid: described("entryUUID")?, suffixes }))
}

impl Overlay for ParentUuid {
    fn name(&self) -> &'static str {
        "pguid"
    }

    fn interests(&self) -> Interests {
        Interests::COMPUTE.and(Interests::PREPARE)
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        Some(self)
    }

    /// A stored value, as slapd's export has it, is computed from the first move on.
    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let PreparedChange::ModifyDn(rename) = change.operation else { return Ok(Additions::default()) };
        let is_stored = |entry: larix_engine::Entry| entry.attribute(&self.parent).is_some();
        if rename.new_superior.is_none() || !change.entries.entry(&rename.dn)?.is_some_and(is_stored) {
            return Ok(Additions::default());
        }
        let mut altered = rename.clone();
        altered.mods.push(internal_change(change.schema, ChangeKind::Delete, NAME, Vec::new())?);
        Ok(Additions { altered: Some(PreparedChange::ModifyDn(altered)), ..Additions::default() })
    }
}

impl ParentUuid {
    /// The entryUUID of an entry, as it is stored.
    fn uuid_of(&self, entries: &dyn Entries, dn: &NormalDn) -> Result<Option<Vec<u8>>, Failure> {
        let mut uuid = None;
        entries.search(&InternalSearch::new(dn, Scope::Base, &BoundFilter::True), &mut |found| {
            found.source().visit_exact(&self.uuid, &mut |value| {
                uuid = Some(value.to_vec());
                false
            })?;
            Ok(false)
        })?;
        Ok(uuid)
    }
}

impl ComputedAttributes for ParentUuid {
    fn attributes(&self, _: &Schema) -> Vec<AttributeDescription> {
        vec![self.parent.clone()]
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        _: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut is_stored = false;
        of.entry.source().visit_exact(&self.parent, &mut |_| {
            is_stored = true;
            false
        })?;
        let dn = of.entry.dn()?;
        let parent = dn.parent().filter(|_| !is_stored && !self.suffixes.contains(dn));
        if let Some(parent) = parent
            && let Some(uuid) = self.uuid_of(of.entries, &parent)?
        {
            visit(&uuid);
        }
        Ok(())
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        _: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        let Ok(uuid) = Uuid::from_slice(normal) else { return Ok(Some(Holders::default())) };
        let filter = FilterBuf::parse(&format!("(entryUUID={uuid})"))
            .map_err(|error| LdapResult::with(ResultCode::OTHER, error.to_string()))?;
        let filter = within.schema.bind_filter(filter.as_filter());
        let (root, mut parent) = (NormalDn::root(), None);
        within.entries.search(&InternalSearch::new(&root, Scope::Subtree, &filter), &mut |found| {
            parent = Some(found.dn()?.clone());
            Ok(false)
        })?;
        let Some(parent) = parent else { return Ok(Some(Holders::default())) };
        let limits = InternalLimits { entries: HOLDERS_MAX, ..InternalLimits::default() };
        let below = InternalSearch::new(&parent, Scope::OneLevel, &BoundFilter::True).within(limits);
        let mut ids = Vec::new();
        let searched = within.entries.search(&below, &mut |found| {
            ids.push(found.id().0);
            Ok(true)
        })?;
        Ok((searched.ended == SearchEnd::Complete).then_some(Holders { ids, exact: false }))
    }
}
