//! Back links, kept in the entries that links lead to: a function of the links that there are.
//!
//! The write set of a unit of changes shows what the unit did to links: the writer compares records before and behind it, and for
//! large sets the rows that changed. So it treats alike a request, what overlays added to it, a transaction, and a change of another
//! server. A new target costs the same in a set of ten as in one of a million. Changes of targets are local: each server makes its
//! own and sends none, and no operational attribute of a target changes.

mod difference;
mod targets;

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use larix_schema::{AttributeDescription, NormalDn, Schema};
use larix_store::{Layered, Snapshot, Store, WriteSet};

use super::group::Group;
use super::{back_link_walk, values};
use crate::change::prepare::{Change, ChangeKind, PreparedChange, RequiredAccess};
use crate::csn::Csn;
use crate::database::{DatabaseSettings, View, next_instance};
use crate::entry::record::Form;
use crate::entry::values::member_key_of_normal;
use crate::entry::{EntryId, EntryReader};
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::overlay::{BackLinkRule, Interests};
use crate::plan::Plan;
use crate::tree;

use difference::difference;

/// Most targets that change in the commit of the change that asks for it, and most entries below a renamed one that are looked at
/// there. If there are more, the writer goes through all entries afterwards, slice by slice.
pub const BACK_LINKS_LIMIT: usize = 250_000;

/// The rules of a database.
pub(super) struct Rules<'s> {
    /// Each with the place of its back link in `backs`.
    rules: Vec<(&'s BackLinkRule, usize)>,
    backs: Vec<&'s AttributeDescription>,
    /// Targets that change at once.
    at_once: usize,
}

impl<'s> Rules<'s> {
    pub(super) fn of(settings: &'s DatabaseSettings) -> Self {
        let (mut rules, mut at_once) = (Vec::new(), BACK_LINKS_LIMIT);
        let mut backs: Vec<&AttributeDescription> = Vec::new();
        for rule in settings.overlays.at(Interests::BACK_LINK).filter_map(|overlay| overlay.back_link()) {
            let place = backs.iter().position(|back| **back == rule.back);
            let place = place.unwrap_or_else(|| {
                backs.push(&rule.back);
                backs.len() - 1
            });
            rules.push((rule, place));
            at_once = at_once.min(rule.at_once);
        }
        Self { rules, backs, at_once }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What the back links of an entry depend on.
    pub(super) fn text(&self, schema: &Schema) -> String {
        let line = |(rule, _): &(&BackLinkRule, usize)| {
            let class = schema.class(rule.class).name();
            format!("{class} {} {}\n", rule.forward.to_text(schema), rule.back.to_text(schema))
        };
        self.rules.iter().map(line).collect()
    }

    /// The back links, a comma between them.
    pub(super) fn names(&self, schema: &Schema) -> String {
        self.backs.iter().map(|back| back.to_text(schema)).collect::<Vec<_>>().join(",")
    }

    /// Whether an index tells who names an entry.
    pub(super) fn are_indexed(&self, catalog: &crate::catalog::Catalog) -> bool {
        self.rules.iter().all(|(rule, _)| {
            // No entry has an attribute without a number.
            let row = catalog.number(&rule.forward).and_then(|number| catalog.row(number));
            row.is_none_or(|row| row.usable().has(Kinds::EQUALITY) && row.equality.is_some())
        })
    }
}

/// What a source is called.
struct SourceName {
    normal: NormalDn,
    pretty_dn: String,
}

impl SourceName {
    fn of<N: Snapshot>(view: &View<'_, N>, reader: &EntryReader<'_, N>) -> Result<Rc<Self>, Fault> {
        let (normal, pretty_dn) = (view.names.normal_dn(&reader.view)?, view.dn(&reader.view)?);
        Ok(Rc::new(Self { normal, pretty_dn }))
    }
}

/// What is to be changed, by entries.
pub(super) type Edits = Vec<(EntryId, Vec<Change>)>;

/// The changes that make the back links of an entry right; none where they are.
pub(super) fn corrections<N: Snapshot>(
    view: &View<'_, N>,
    rules: &Rules<'_>,
    id: EntryId,
) -> Result<Vec<Change>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(Vec::new()) };
    let reader = view.reader(id, &record)?;
    let name = view.names.normal_dn(&reader.view)?;
    let mut changes = Vec::new();
    for (place, back) in rules.backs.iter().enumerate() {
        let mut sources: BTreeMap<EntryId, Rc<SourceName>> = BTreeMap::new();
        for (rule, _) in rules.rules.iter().filter(|(_, of)| *of == place) {
            let Some(number) = view.catalog.number(&rule.forward) else { continue };
            let key = key::make(number, KeyKind::Equality, name.as_str().as_bytes());
            let found = Plan::of_key(view.snapshot, key)?.into_candidates(view.snapshot)?.ids;
            let mut ids: Vec<EntryId> = Vec::new();
            found.read_after(EntryId::ROOT, usize::MAX, &mut ids);
            for source in ids {
                let Some(record) = view.record(source)? else { continue };
                let reader = view.reader(source, &record)?;
                if !sources.contains_key(&source) && is_source(view, &reader, rule)? {
                    sources.insert(source, SourceName::of(view, &reader)?);
                }
            }
        }
        let mut present: HashSet<Vec<u8>> = HashSet::new();
        visit(view, &reader, back, &mut |value| {
            present.insert(value.to_vec());
            true
        })?;
        let is_right = present.len() == sources.len()
            && sources.values().all(|source| present.contains(source.pretty_dn.as_bytes()));
        if !is_right {
            let sources: Vec<Rc<SourceName>> = sources.into_values().collect();
            changes.push(change_of(back, ChangeKind::Replace, &sources));
        }
    }
    Ok(changes)
}

fn change_of(description: &AttributeDescription, kind: ChangeKind, sources: &[Rc<SourceName>]) -> Change {
    Change {
        kind,
        description: description.clone(),
        values: sources.iter().map(|source| source.pretty_dn.clone().into_bytes()).collect(),
        keys: sources.iter().map(|source| source.normal.as_str().as_bytes().to_vec()).collect(),
        access: RequiredAccess::Internal,
    }
}

fn is_source<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    rule: &BackLinkRule,
) -> Result<bool, Fault> {
    let Some(number) = view.catalog.object_class() else { return Ok(false) };
    let Some(stored) = reader.view.get(number)? else { return Ok(false) };
    let mut found = false;
    reader.visit_values(number, &stored, &mut |value| {
        found = rule.is_source(&view.schema, std::iter::once(value));
        !found
    })?;
    Ok(found)
}

fn visit<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    description: &AttributeDescription,
    see: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), Fault> {
    let Some(number) = view.catalog.number(description) else { return Ok(()) };
    if let Some(stored) = reader.view.get(number)? {
        reader.visit_values(number, &stored, see)?;
    }
    Ok(())
}

/// The name that a value is.
fn name_of(schema: &Schema, description: &AttributeDescription, value: &[u8]) -> Option<NormalDn> {
    let normal = values::key(schema, schema.attribute(description.attribute), value).ok()?;
    String::from_utf8(normal).ok().map(|text| NormalDn::from_normal(&text))
}

/// All targets of a source.
fn targets_of<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    rule: &BackLinkRule,
) -> Result<Vec<NormalDn>, Fault> {
    let mut all = Vec::new();
    visit(view, reader, &rule.forward, &mut |value| {
        all.extend(name_of(&view.schema, &rule.forward, value));
        true
    })?;
    Ok(all)
}

/// Whether a name is among the values.
fn has_value<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    description: &AttributeDescription,
    name: &NormalDn,
) -> Result<bool, Fault> {
    let Some(number) = view.catalog.number(description) else { return Ok(false) };
    let Some(stored) = reader.view.get(number)? else { return Ok(false) };
    if stored.form() == Form::Large {
        return reader.member(number, &member_key_of_normal(name.as_str().as_bytes()));
    }
    let mut found = false;
    reader.visit_values(number, &stored, &mut |value| {
        found = name_of(&view.schema, description, value).is_some_and(|own| own == *name);
        !found
    })?;
    Ok(found)
}

/// Whether a change may alter links or back links: all do but a modify of other attributes than these and objectClass.
pub(super) fn touches(settings: &DatabaseSettings, schema: &Schema, operation: &PreparedChange) -> bool {
    let PreparedChange::Modify { mods, .. } = operation else { return true };
    let rules = settings.overlays.at(Interests::BACK_LINK).filter_map(|overlay| overlay.back_link());
    let mut rules = rules.peekable();
    if rules.peek().is_none() {
        return false;
    }
    let object_class = schema.attribute_type_id("objectClass");
    let changes_class = mods.iter().any(|change| Some(change.description.attribute) == object_class);
    changes_class
        || rules.any(|rule| {
            let (forward, back) = (rule.forward.attribute, rule.back.attribute);
            // Each change brings operational attributes of the server's own.
            schema.attribute(forward).is_operational()
                || mods.iter().any(|change| [forward, back].contains(&change.description.attribute))
        })
}

impl<S: Store> Group<'_, S> {
    /// Has the targets of links that the unit changed say so, in the unit. `csn`: under which that is logged.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn follow_links<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        csn: Option<Csn>,
    ) -> Result<(), Fault> {
        let settings = std::sync::Arc::clone(&self.state.settings);
        if !settings.overlays.want(Interests::BACK_LINK) || unit.is_empty() {
            return Ok(());
        }
        let rules = Rules::of(&settings);
        if rules.is_empty() {
            return Ok(());
        }
        let edits = {
            let before = Layered::new(transaction, &self.set);
            let snapshot = Layered::new(&before, &*unit);
            // Names from before and names from behind are not to mix.
            let instance = next_instance();
            let was = View::over_changes(&before, instance, self.catalog.state(&self.state))?;
            let now = self.view(&snapshot)?;
            let edits = difference(&rules, &was, &now, unit);
            tree::forget(instance);
            edits?
        };
        match edits {
            Some((edits, waits)) => {
                if waits {
                    // The sources that name the new ones are not known yet.
                    back_link_walk::begin_anew(unit);
                    self.walks = true;
                }
                self.edit_targets(transaction, unit, edits, csn)
            }
            None => {
                back_link_walk::begin_anew(unit);
                self.walks = true;
                Ok(())
            }
        }
    }
}
