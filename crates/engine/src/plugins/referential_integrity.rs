//! `overlay refint`: names of entries that are deleted or renamed, where other entries have them as values.
//!
//! What refers to an entry is looked up once the entry is deleted or renamed, and changed in the same commit: one modification
//! for each entry that refers, with a CSN of its own, so that it goes to replicas as any change does. Such a change that comes
//! by replication is no reason to look again: what followed from it comes, too.

use std::sync::Arc;

use larix_schema::{AttributeDescription, NormalDn, Schema, Usage};

use super::{
    Additions, AroundChange, Consequence, Entries, FollowUp, Name, PendingChange, Plugin, Reference, Refusal,
};
use crate::write::Failure;
use crate::write::prepare::{Change, ChangeKind, Prepared, internal_change};
use crate::write::split_rdn;

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
}

impl Plugin for ReferentialIntegrity {
    fn name(&self) -> &'static str {
        "refint"
    }

    fn before(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        if self.settings.attributes.is_empty() {
            return Ok(Additions::default());
        }
        let (dn, below, target) = match change.operation {
            Prepared::Delete { dn } => (dn, change.controls.tree_delete, None),
            Prepared::ModifyDn(rename) => (&rename.dn, true, Some(rename.target())),
            _ => return Ok(Additions::default()),
        };
        let gone = Gone { settings: Arc::clone(&self.settings), dn: dn.clone(), below, target };
        Ok(Additions { follow_up: Some(Box::new(gone)), ..Additions::default() })
    }
}

/// Entries that are no more, or elsewhere. Who they are is looked up once the change is made: whoever may not make it is to
/// cost nothing.
#[derive(Debug)]
struct Gone {
    settings: Arc<ReferentialIntegritySettings>,
    /// What the topmost was called.
    dn: NormalDn,
    /// Whether the entries below it went with it.
    below: bool,
    /// What the topmost is called now.
    target: Option<NormalDn>,
}

impl FollowUp for Gone {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let names = self.names(around.before)?;
        let new_names = self.new_names(&names, around.after)?;
        let mut consequences = Vec::new();
        for referrer in around.after.referrers(&self.settings.attributes, &names)? {
            for local in [false, true] {
                let mut mods = Vec::new();
                for reference in &referrer.references {
                    let usage = schema.attribute(reference.attribute.attribute).usage;
                    if (usage == Usage::DsaOperation) == local {
                        mods.extend(self.changes(schema, reference, &names, new_names.as_deref())?);
                    }
                }
                if mods.is_empty() {
                    continue;
                }
                if let Some(modifier) = self.settings.modifier.as_ref().filter(|_| !local) {
                    let value = vec![modifier.clone().into_bytes()];
                    mods.push(
                        internal_change(schema, ChangeKind::Replace, "modifiersName", value)
                            .map_err(Refusal::from)?,
                    );
                }
                let operation = Prepared::Modify { dn: referrer.dn.clone(), mods };
                consequences.push(Consequence { operation, local });
            }
        }
        Ok(consequences)
    }
}

impl Gone {
    /// The former names, that of the topmost first.
    fn names(&self, before: &dyn Entries) -> Result<Vec<Name>, Failure> {
        if self.below {
            return before.names_within(&self.dn);
        }
        // Its spelling matters to nobody: values are found by their normal form.
        Ok(vec![Name { normal: self.dn.clone(), shown: self.dn.as_str().to_owned() }])
    }

    /// What the entries are called now, in the same order; `None` when they are gone.
    fn new_names(&self, names: &[Name], after: &dyn Entries) -> Result<Option<Vec<String>>, Failure> {
        let Some(target) = &self.target else { return Ok(None) };
        let shown = after.entry(target)?.map_or_else(|| target.as_str().to_owned(), |entry| entry.dn);
        let depth = self.dn.depth();
        let renamed = |name: &Name| {
            let mut below = Vec::new();
            let mut rest = name.shown.as_str();
            for _ in depth..name.normal.depth() {
                let (rdn, above) = split_rdn(rest);
                below.push(rdn);
                rest = above;
            }
            below.push(&shown);
            below.join(",")
        };
        Ok(Some(names.iter().map(renamed).collect()))
    }

    /// The changes of one attribute.
    fn changes(
        &self,
        schema: &Schema,
        reference: &Reference,
        names: &[Name],
        new_names: Option<&[String]>,
    ) -> Result<Vec<Change>, Refusal> {
        let text = reference.attribute.to_text(schema);
        let former = reference.names.iter().filter_map(|at| names.get(*at));
        let values: Vec<Vec<u8>> = former.map(|name| name.shown.clone().into_bytes()).collect();
        let removed = values.len() as u64;
        let mut changes = vec![internal_change(schema, ChangeKind::Delete, &text, values)?];
        let come: Vec<Vec<u8>> = match (new_names, &self.settings.nothing) {
            (Some(names), _) => {
                let now = reference.names.iter().filter_map(|at| names.get(*at));
                now.map(|name| name.clone().into_bytes()).collect()
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
