//! An add that overlays alter once it was judged.

use std::hash::{BuildHasher as _, RandomState};

use larix_engine::entry::Entry;
use larix_engine::overlay::{AroundChange, Consequence, Entries, Failure, FollowUp, PendingChange, Refusal};
use larix_schema::{AttributeDescription, Schema};

use super::Check;

/// Asked once an entry is added: overlays that were asked behind this one may have given it other values than those that were judged.
#[derive(Debug)]
pub(super) struct AddCheck {
    check: Check,
    hasher: RandomState,
    judged: Vec<(AttributeDescription, u64)>,
}

impl AddCheck {
    pub(super) fn new(check: Check, entry: &Entry, change: &PendingChange<'_>) -> Result<Self, Failure> {
        let hasher = RandomState::new();
        let judged = check.hashes(entry, change.entries, (change.schema, &hasher))?;
        Ok(Self { check, hasher, judged })
    }
}

impl FollowUp for AddCheck {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        if let Some(new) = around.after.entry(&self.check.dn)?
            && self.check.hashes(&new, around.after, (schema, &self.hasher))? != self.judged
        {
            self.check.judge(None, &new, (around.before, around.after), schema)?;
        }
        Ok(Vec::new())
    }
}

impl Check {
    /// The attributes of an entry that domains are about, each with a hash of its values, whatever their order.
    fn hashes(
        &self,
        entry: &Entry,
        entries: &dyn Entries,
        (schema, hasher): (&Schema, &RandomState),
    ) -> Result<Vec<(AttributeDescription, u64)>, Failure> {
        let covers = |description: &AttributeDescription| {
            let mut areas = self
                .settings
                .domains
                .iter()
                .flat_map(|domain| domain.areas.iter().map(move |area| (domain, area)));
            areas.any(|(domain, area)| domain.covers(schema, area, description))
        };
        let mut hashes = Vec::new();
        for attribute in entry.attributes.iter().filter(|own| covers(&own.description)) {
            let mut attribute = attribute.clone();
            entries.bring(&self.dn, &mut attribute)?;
            let values = attribute.values.iter();
            let hash = values.fold(0_u64, |hash, value| hash.wrapping_add(hasher.hash_one(value)));
            hashes.push((attribute.description, hash));
        }
        hashes.sort_unstable();
        Ok(hashes)
    }
}
