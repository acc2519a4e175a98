//! `overlay refint`: names of entries that are deleted or renamed, where other entries have them as values.
//!
//! Names below a renamed entry follow whether there is an entry of that name or not. What refers to an entry is looked up once
//! the entry is deleted or renamed, and changed in the same commit: one modification for each entry that refers, with a CSN of
//! its own, so that it goes to replicas as any change does. Such a change that comes by replication is no reason to look again:
//! what followed from it comes, too.
//!
//! An overlay that is meant for all databases follows in the others as well, right after the commit ([`other_databases`]).

mod config;
mod other_databases;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_schema::{AttributeDescription, NormalDn, Schema, Usage};

use larix_engine::entry::split_rdn;
use larix_engine::index::IndexConfig;
use larix_engine::overlay::committed::Committed;
use larix_engine::overlay::{
    Additions, AroundChange, Change, ChangeKind, Consequence, Descriptor, Entries, Failure, FollowUp,
    InGluedDatabases, Interests, Name, Overlay, OverlayDirective, PendingChange, PreparedChange, Reference,
    ReferenceTarget, Referrer, Refusal, internal_change,
};

pub use other_databases::OtherDatabase;

pub static DESCRIPTOR: Descriptor = Descriptor::new("refint", "olcRefintConfig", config::build)
    .over_glue(InGluedDatabases::Each)
    .directives(&[
        OverlayDirective::words("refint_attributes", "olcRefintAttribute").many(),
        OverlayDirective::whole("refint_nothing", "olcRefintNothing").with_blanks(),
        OverlayDirective::whole("refint_modifiersName", "olcRefintModifiersName").with_blanks(),
    ]);

/// modifiersName of entries that were changed, where the configuration names no other.
pub const MODIFIER: &str = "cn=Referential Integrity Overlay";

/// `overlay refint` with its directives.
#[derive(Clone, Debug, Default)]
pub struct ReferentialIntegritySettings {
    /// `refint_attributes`
    pub attributes: Vec<AttributeDescription>,
    /// `refint_nothing`: the value that takes the place of the last one.
    pub nothing: Option<String>,
    /// `refint_modifiersName`; `None` where the database keeps no operational attributes.
    pub modifier: Option<String>,
    /// The other databases of an overlay that is meant for all.
    pub others: Vec<OtherDatabase>,
}

/// Keeps references right.
#[derive(Debug)]
pub struct ReferentialIntegrity {
    settings: Arc<ReferentialIntegritySettings>,
}

impl ReferentialIntegrity {
    pub fn new(settings: ReferentialIntegritySettings) -> Self {
        Self { settings: Arc::new(settings) }
    }

    /// Whether there are other databases in which references follow.
    pub(crate) fn follows_elsewhere(&self) -> bool {
        !self.settings.others.is_empty() && !self.settings.attributes.is_empty()
    }
}

impl Overlay for ReferentialIntegrity {
    fn name(&self) -> &'static str {
        "refint"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE | if self.follows_elsewhere() { Interests::COMMITTED } else { Interests::NONE }
    }

    fn committed(&self) -> Option<&dyn Committed> {
        Some(self)
    }

    fn index_notes(&self, schema: &Schema, index: &IndexConfig) -> Vec<String> {
        let note = |names: String| {
            format!(
                "each delete and each rename looks at every entry: refint_attributes without an equality index; add \
                 `index {names} eq`"
            )
        };
        index.lacking_equality(schema, &self.settings.attributes).map(note).into_iter().collect()
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        if self.settings.attributes.is_empty() {
            return Ok(Additions::default());
        }
        let (dn, below, target) = match change.operation {
            PreparedChange::Delete { dn } => (dn, change.controls.tree_delete, None),
            PreparedChange::ModifyDn(rename) => (&rename.dn, true, Some(rename.target())),
            _ => return Ok(Additions::default()),
        };
        let update = ReferenceUpdate { settings: Arc::clone(&self.settings), dn: dn.clone(), below, target };
        Ok(Additions { follow_up: Some(Box::new(update)), ..Additions::default() })
    }
}

/// The references to entries that were deleted or renamed. The overlay looks them up once the change is made: a requester who may
/// not make it is to cost nothing.
#[derive(Debug)]
struct ReferenceUpdate {
    settings: Arc<ReferentialIntegritySettings>,
    /// What the topmost was called.
    dn: NormalDn,
    /// Whether entries below it, if there were any, went with it.
    below: bool,
    /// What the topmost is called now.
    target: Option<NormalDn>,
}

impl FollowUp for ReferenceUpdate {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        // Below what has no entries below it no names are looked for, where OpenLDAP reads all entries for them: a look-up is much
        // less than a walk, and most deletes and renames are of such entries.
        let sought = match self.below && around.before.has_subordinates(&self.dn)? {
            true => ReferenceTarget::Within(&self.dn),
            false => ReferenceTarget::Name(&self.dn),
        };
        let target = self.target.as_ref().map(|target| shown(target, around.after)).transpose()?;
        let referrers = around.after.referrers(&self.settings.attributes, sought)?;
        self.followed(referrers, schema, target.as_deref())
    }
}

/// How the name of an entry is shown.
fn shown(dn: &NormalDn, entries: &dyn Entries) -> Result<String, Failure> {
    Ok(entries.entry(dn)?.map_or_else(|| dn.as_str().to_owned(), |entry| entry.dn))
}

impl ReferenceUpdate {
    /// The changes of who refers; `target`: what the topmost is called now, if it is not gone.
    fn followed(
        &self,
        referrers: Vec<Referrer>,
        schema: &Schema,
        target: Option<&str>,
    ) -> Result<Vec<Consequence>, Refusal> {
        let mut consequences = Vec::new();
        for referrer in referrers {
            for local in [false, true] {
                let mut each = Vec::new();
                for reference in referrer.references.iter().filter(|reference| !reference.names.is_empty()) {
                    let usage = schema.attribute(reference.attribute.attribute).usage;
                    if (usage == Usage::DsaOperation) == local {
                        each.push(self.changes(schema, reference, target)?);
                    }
                }
                if !each.is_empty() {
                    self.push(&mut consequences, schema, (&referrer.dn, each), local)?;
                }
            }
        }
        Ok(consequences)
    }

    /// Changes all attributes of an entry at once. Another overlay may have changed one of them by then, as `memberof-refint` does: the
    /// others are to follow all the same.
    fn push(
        &self,
        consequences: &mut Vec<Consequence>,
        schema: &Schema,
        (dn, each): (&NormalDn, Vec<Vec<Change>>),
        local: bool,
    ) -> Result<(), Refusal> {
        let all = each.concat();
        // A name may come in only where the old one went: if the change of all is refused, each attribute is tried for itself. If it is
        // not, nothing of that is left to do, and it is refused.
        let comes = all.iter().any(|change| change.kind == ChangeKind::SoftAdd);
        // A name that is only spelt otherwise is its own old name: all would be done twice.
        let is_other = self.target.as_ref() != Some(&self.dn);
        let alone = if comes && is_other && each.len() > 1 { each } else { Vec::new() };
        for mut mods in std::iter::once(all).chain(alone) {
            if let Some(modifier) = self.settings.modifier.as_ref().filter(|_| !local) {
                let value = vec![modifier.clone().into_bytes()];
                mods.push(internal_change(schema, ChangeKind::Replace, "modifiersName", value)?);
            }
            let operation = PreparedChange::Modify { dn: dn.clone(), mods };
            consequences.push(Consequence { operation, local, permissive: !comes });
        }
        Ok(())
    }

    /// What a name is now that the topmost is called `target`: what stood before its RDNs stays as it was written.
    fn renamed(&self, name: &Name, target: &str) -> String {
        let mut parts = Vec::new();
        let mut rest = name.text.as_str();
        for _ in self.dn.depth()..name.normal.depth() {
            let (rdn, above) = split_rdn(rest);
            parts.push(rdn);
            rest = above;
        }
        parts.push(target);
        parts.join(",")
    }

    /// The changes of one attribute; `target`: what the topmost is called now, if it is not gone.
    fn changes(
        &self,
        schema: &Schema,
        reference: &Reference,
        target: Option<&str>,
    ) -> Result<Vec<Change>, Refusal> {
        let text = reference.attribute.to_text(schema);
        let values: Vec<Vec<u8>> =
            reference.names.iter().map(|name| name.text.clone().into_bytes()).collect();
        let removed = values.len() as u64;
        let mut changes = vec![internal_change(schema, ChangeKind::Delete, &text, values)?];
        let come: Vec<Vec<u8>> = match (target, &self.settings.nothing) {
            (Some(target), _) => {
                reference.names.iter().map(|name| self.renamed(name, target).into_bytes()).collect()
            }
            (None, Some(nothing)) if removed == reference.values => vec![nothing.clone().into_bytes()],
            _ => Vec::new(),
        };
        if !come.is_empty() {
            // A value that is there already is no reason to leave the old one.
            changes.push(internal_change(schema, ChangeKind::SoftAdd, &text, come)?);
        }
        Ok(changes)
    }
}
