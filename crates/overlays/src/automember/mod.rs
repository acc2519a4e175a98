//! `overlay automember`: new entries become members of groups by rules about their values, as by the auto membership plug-in of 389
//! Directory Server.
//!
//! The groups have members as any: what follows from a change of an entry is committed with it. Only what the change makes different is
//! changed in groups: who was put into one by hand, or taken out, stays so.

mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::{
    Additions, AroundChange, ChangeKind, Consequence, Descriptor, Entries, Failure, FollowUp, Interests,
    Overlay, OverlayDirective, PendingChange, PreparedChange, Refusal, internal_change,
};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};
use regex::Regex;

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("automember", "olcLarixAutomemberConfig", config::build).once().directives(&[
        OverlayDirective::words("automember-definition", "olcLarixAutomemberDefinition")
            .many()
            .arguments(4, u8::MAX),
        OverlayDirective::words("automember-rule", "olcLarixAutomemberRule").many().arguments(4, 4),
    ]);

/// The overlay of one database.
#[derive(Debug)]
struct AutoMember {
    definitions: Arc<[Definition]>,
}

/// `automember-definition`, with its rules.
#[derive(Debug)]
struct Definition {
    name: String,
    base: NormalDn,
    filter: BoundFilter,
    /// The attribute of groups.
    member: AttributeDescription,
    /// The attribute of entries whose value becomes the member's; `None`: the name does.
    value: Option<AttributeDescription>,
    /// Where entries go that no rule is about.
    default_groups: Vec<NormalDn>,
    /// In the order of the configuration, each group once.
    groups: Vec<Rules>,
}

/// The rules about one group.
#[derive(Debug)]
struct Rules {
    group: NormalDn,
    include: Vec<Pattern>,
    /// These come first.
    exclude: Vec<Pattern>,
}

/// A value that an entry may have.
#[derive(Debug)]
struct Pattern {
    attribute: AttributeDescription,
    regex: Regex,
}

impl Pattern {
    fn matches(&self, entry: &Entry) -> bool {
        let values = entry.attribute(&self.attribute).map_or(&[][..], |own| &own.values);
        values
            .iter()
            .filter_map(|value| std::str::from_utf8(value).ok())
            .any(|value| self.regex.is_match(value))
    }
}

/// An entry on one side of the change.
type Side<'a> = Option<(&'a NormalDn, &'a Entry)>;

impl Definition {
    /// The groups that an entry belongs to.
    fn groups_of(&self, entries: &dyn Entries, side: Side<'_>) -> Result<Vec<&NormalDn>, Failure> {
        let Some((dn, entry)) = side else { return Ok(Vec::new()) };
        if !dn.is_within(&self.base) || !entries.matches(dn, entry, &self.filter)? {
            return Ok(Vec::new());
        }
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(entry));
        let chosen = self.groups.iter().filter(|rules| !any(&rules.exclude) && any(&rules.include));
        let chosen: Vec<&NormalDn> = chosen.map(|rules| &rules.group).collect();
        Ok(if chosen.is_empty() { self.default_groups.iter().collect() } else { chosen })
    }

    /// What the entry is called in groups.
    fn value_of(&self, side: Side<'_>) -> Option<Vec<u8>> {
        let (_, entry) = side?;
        match &self.value {
            None => Some(entry.dn.clone().into_bytes()),
            Some(attribute) => entry.attribute(attribute)?.values.first().cloned(),
        }
    }

    /// A change of one member. A value that the attribute does not take makes none, and one that was made already is refused, and
    /// left undone.
    fn change(
        &self,
        schema: &Schema,
        kind: ChangeKind,
        group: &NormalDn,
        value: Vec<u8>,
    ) -> Option<Consequence> {
        let change = internal_change(schema, kind, &self.member.to_text(schema), vec![value]).ok()?;
        let operation = PreparedChange::Modify { dn: group.clone(), mods: vec![change] };
        Some(Consequence { operation, local: false, permissive: false })
    }
}

impl Overlay for AutoMember {
    fn name(&self) -> &'static str {
        "automember"
    }

    fn interests(&self) -> Interests {
        if self.definitions.is_empty() { Interests::NONE } else { Interests::PREPARE }
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        // Members that follow from a change make no other members: it would not have to end.
        if change.is_derived_about(|one| self.definitions.iter().any(|own| own.member == one.description)) {
            return Ok(Additions::default());
        }
        let (before, after) = match change.operation {
            PreparedChange::Add { dn, .. } => (None, dn.clone()),
            PreparedChange::Modify { dn, .. } => (Some(dn.clone()), dn.clone()),
            PreparedChange::ModifyDn(rename) => (Some(rename.dn.clone()), rename.target()),
            // Who takes names of entries out that are gone is refint.
            _ => return Ok(Additions::default()),
        };
        let concerns = |definition: &Definition| {
            after.is_within(&definition.base)
                || before.as_ref().is_some_and(|before| before.is_within(&definition.base))
        };
        if !self.definitions.iter().any(concerns) {
            return Ok(Additions::default());
        }
        let follow = Follow { definitions: Arc::clone(&self.definitions), before, after };
        Ok(Additions { follow_up: Some(Box::new(follow) as Box<dyn FollowUp>), ..Additions::default() })
    }
}

/// A change that is made.
#[derive(Debug)]
struct Follow {
    definitions: Arc<[Definition]>,
    /// `None`: the entry is new.
    before: Option<NormalDn>,
    after: NormalDn,
}

impl FollowUp for Follow {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let old = match &self.before {
            Some(dn) => around.before.entry(dn)?,
            None => None,
        };
        let new = around.after.entry(&self.after)?;
        let (old, new): (Side<'_>, Side<'_>) =
            (self.before.as_ref().zip(old.as_ref()), new.as_ref().map(|entry| (&self.after, entry)));
        let mut sides = Vec::with_capacity(self.definitions.len());
        for definition in self.definitions.iter() {
            let was = definition.groups_of(around.before, old)?;
            sides.push((definition, was, definition.groups_of(around.after, new)?));
        }
        // Another definition may keep the entry in a group.
        let stays = |group: &&NormalDn| sides.iter().any(|(_, _, is)| is.contains(group));
        let mut all = Vec::new();
        for (definition, was, is) in &sides {
            let (called, is_called) = (definition.value_of(old), definition.value_of(new));
            let moved = called != is_called;
            if let Some(value) = called {
                let left = was.iter().filter(|group| moved || !is.contains(*group));
                for group in left {
                    all.extend(definition.change(schema, ChangeKind::Delete, group, value.clone()));
                    // Referential integrity may have put the new name there by then; it changes names of entries alone.
                    let goes = moved && definition.value.is_none() && !stays(group);
                    let now = is_called.as_ref().filter(|_| goes);
                    all.extend(
                        now.and_then(|now| definition.change(schema, ChangeKind::Delete, group, now.clone())),
                    );
                }
            }
            if let Some(value) = is_called {
                let joined = is.iter().filter(|group| moved || !was.contains(*group));
                all.extend(joined.filter_map(|group| {
                    definition.change(schema, ChangeKind::SoftAdd, group, value.clone())
                }));
            }
        }
        Ok(all)
    }
}
