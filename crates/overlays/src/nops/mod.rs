//! `overlay nops`: a modify that replaces values by the same values does not change the entry.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{
    Additions, BuildContext, Change, ChangeKind, Descriptor, InGluedDatabases, Interests, Overlay,
    PendingChange, PreparedChange, Refusal,
};

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("nops", "olcOverlayConfig", build).over_glue(InGluedDatabases::Each).once();

/// The overlay on one database.
#[derive(Debug)]
struct NoOperations;

fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    Ok(Arc::new(NoOperations))
}

impl Overlay for NoOperations {
    fn name(&self) -> &'static str {
        "nops"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let PreparedChange::Modify { dn, mods } = change.operation else { return Ok(Additions::default()) };
        let replaces = |change: &Change| change.kind == ChangeKind::Replace && !change.values.is_empty();
        if !mods.iter().any(replaces) {
            return Ok(Additions::default());
        }
        let Some(entry) = change.entries.entry(dn)? else { return Ok(Additions::default()) };
        let mut changed = HashSet::new();
        let mut left = Vec::new();
        for change in mods {
            // A replace that follows a change of the same attribute finds other values than the entry's.
            let is_first = changed.insert(&change.description);
            if !(is_first && replaces(change) && has_values(&entry, change)) {
                left.push(change.clone());
            }
        }
        // As in slapd, other overlays do not hear of a modify of which nothing is left.
        let ends = left.is_empty();
        let altered =
            (left.len() < mods.len()).then(|| PreparedChange::Modify { dn: dn.clone(), mods: left });
        Ok(Additions { altered, ends, ..Additions::default() })
    }
}

/// Whether the entry's values of an attribute are those of a change, byte for byte, in any order.
fn has_values(entry: &Entry, change: &Change) -> bool {
    let Some(attribute) = entry.attribute(&change.description) else { return false };
    if attribute.values.len() != change.values.len() {
        return false;
    }
    let (mut stored, mut wanted): (Vec<_>, Vec<_>) =
        (attribute.values.iter().collect(), change.values.iter().collect());
    stored.sort_unstable();
    wanted.sort_unstable();
    stored == wanted
}
