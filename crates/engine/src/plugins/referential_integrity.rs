//! `overlay refint`: names of entries that are deleted or renamed, where other entries have them as values.
//!
//! What refers to an entry is looked up once the entry is deleted or renamed, and changed in the same commit: one modification
//! for each entry that refers, with a CSN of its own, so that it goes to replicas as any change does. Such a change that comes
//! by replication is no reason to look again: what followed from it comes, too.

use std::sync::Arc;

use larix_schema::{AttributeDescription, NormalDn, NormalRdn, Schema, Usage};

use super::{Additions, Consequence, Entries, FollowUp, Name, PendingChange, Plugin, Reference, Refusal};
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
        let (names, target) = match change.operation {
            Prepared::Delete { dn } if change.controls.tree_delete => {
                (change.entries.names_within(dn)?, None)
            }
            // Its spelling matters to nobody: values are found by their normal form.
            Prepared::Delete { dn } => {
                (vec![Name { normal: dn.clone(), shown: dn.as_str().to_owned() }], None)
            }
            // What is below it is looked up once it is renamed: whoever may not rename it is to cost nothing.
            Prepared::ModifyDn(rename) => {
                let normal = rename.dn.clone();
                let shown = change.entries.entry(&normal)?.map(|entry| entry.dn);
                let shown = shown.unwrap_or_else(|| normal.as_str().to_owned());
                (vec![Name { normal, shown }], Some(rename.target()))
            }
            _ => return Ok(Additions::default()),
        };
        let settings = Arc::clone(&self.settings);
        Ok(Additions { follow_up: Some(Box::new(Gone { settings, names, target })), ..Additions::default() })
    }
}

/// Entries that are no more, or elsewhere.
#[derive(Debug)]
struct Gone {
    settings: Arc<ReferentialIntegritySettings>,
    /// Their former names, that of the topmost first; of a rename that one alone.
    names: Vec<Name>,
    /// What the topmost is called now.
    target: Option<NormalDn>,
}

impl FollowUp for Gone {
    fn consequences(
        self: Box<Self>,
        entries: &dyn Entries,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let (names, new_names) = self.names(entries)?;
        let mut consequences = Vec::new();
        for referrer in entries.referrers(&self.settings.attributes, &names)? {
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
    /// The former names, and what the entries are called now; `None` when they are gone.
    fn names(&self, entries: &dyn Entries) -> Result<(Vec<Name>, Option<Vec<String>>), Failure> {
        let (Some(target), Some(top)) = (&self.target, self.names.first()) else {
            return Ok((self.names.clone(), None));
        };
        let now = entries.names_within(target)?;
        let former = now.iter().map(|name| former(name, target, top)).collect();
        Ok((former, Some(now.into_iter().map(|name| name.shown).collect())))
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

/// What an entry at or below `target` was called when that was `top`.
fn former(name: &Name, target: &NormalDn, top: &Name) -> Name {
    let levels = name.normal.depth().saturating_sub(target.depth());
    let rdns: Vec<&[u8]> = name.normal.rdns().take(levels).collect();
    let normal = rdns.iter().rev().fold(top.normal.clone(), |superior, rdn| {
        NormalDn::join(&NormalRdn::from_normal(&String::from_utf8_lossy(rdn)), &superior)
    });
    let mut below: Vec<&str> = Vec::new();
    let mut rest = name.shown.as_str();
    for _ in 0..levels {
        let (rdn, above) = split_rdn(rest);
        below.push(rdn);
        rest = above;
    }
    below.push(&top.shown);
    Name { normal, shown: below.join(",") }
}
