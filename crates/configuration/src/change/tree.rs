//! The entries of cn=config as a tree whose siblings are numbered without gaps.

use std::mem::discriminant;
use std::sync::Arc;

use larix_proto::ResultCode;
use larix_proto::dn::Dn;
use larix_schema::{NormalDn, Schema};

use super::super::entries::{EntryName, Role};
use super::super::entry::{ConfigAttribute, ConfigEntry};
use super::ConfigRefusal;

/// One entry with its name taken apart.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: EntryName,
    pub(super) normal: NormalDn,
    pub(super) entry: Arc<ConfigEntry>,
}

impl Node {
    pub(super) fn new(schema: &Schema, entry: impl Into<Arc<ConfigEntry>>) -> Result<Self, ConfigRefusal> {
        let entry = entry.into();
        let name = EntryName::parse(&entry.dn).map_err(|why| {
            ConfigRefusal::new(ResultCode::OBJECT_CLASS_VIOLATION, format!("{}: {why}", entry.dn))
        })?;
        let normal = schema
            .parse_dn(&entry.dn)
            .map_err(|error| ConfigRefusal::new(ResultCode::INVALID_DN_SYNTAX, error.to_string()))?;
        Ok(Self { name, normal, entry })
    }
}

/// All entries, superiors first.
#[derive(Debug)]
pub(super) struct Tree<'s> {
    schema: &'s Schema,
    nodes: Vec<Node>,
}

impl<'s> Tree<'s> {
    pub(super) fn new(schema: &'s Schema, entries: Vec<Arc<ConfigEntry>>) -> Result<Self, ConfigRefusal> {
        let nodes = entries.into_iter().map(|entry| Node::new(schema, entry)).collect::<Result<_, _>>()?;
        Ok(Self { schema, nodes })
    }

    pub(super) fn into_entries(self) -> Vec<Arc<ConfigEntry>> {
        self.nodes.into_iter().map(|node| node.entry).collect()
    }

    pub(super) fn find(&self, dn: &NormalDn) -> Option<usize> {
        self.nodes.iter().position(|node| node.normal == *dn)
    }

    pub(super) fn get(&self, at: usize) -> Option<&Node> {
        self.nodes.get(at)
    }

    /// The entry itself or the nearest above it that is there.
    pub(super) fn nearest(&self, dn: &NormalDn) -> Option<&Node> {
        let mut dn = Some(dn.clone());
        while let Some(ancestor) = dn {
            if let Some(at) = self.find(&ancestor) {
                return self.nodes.get(at);
            }
            dn = ancestor.parent();
        }
        None
    }

    pub(super) fn has_children(&self, dn: &NormalDn) -> bool {
        self.nodes.iter().any(|node| node.normal.parent().as_ref() == Some(dn))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(super) fn replace(&mut self, at: usize, entry: Arc<ConfigEntry>) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.entry = entry;
        }
    }

    /// How many entries are counted together with one of this name. The frontend is not counted.
    pub(super) fn siblings(&self, name: &EntryName) -> usize {
        self.nodes.iter().filter(|node| is_counted_with(&node.name, name)).count()
    }

    /// Adds an entry at the end.
    pub(super) fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Takes an entry and all below it out.
    pub(super) fn remove(&mut self, dn: &NormalDn) {
        self.nodes.retain(|node| !node.normal.is_within(dn));
    }

    /// Adds `step` to the numbers `from..=to` among the siblings of `name`; names of all below them follow.
    pub(super) fn shift(
        &mut self,
        name: &EntryName,
        from: i32,
        to: i32,
        step: i32,
    ) -> Result<(), ConfigRefusal> {
        let mut moved: Vec<(usize, i32)> = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| is_counted_with(&node.name, name))
            .filter_map(|(at, node)| Some((at, node.name.number?)))
            .filter(|(_, number)| (from..=to).contains(number))
            .collect();
        // In an order in which no two have one number in between.
        moved.sort_by_key(|(_, number)| if step > 0 { i32::MAX - *number } else { *number });
        moved.into_iter().try_for_each(|(at, number)| self.set_number(at, number.saturating_add(step)))
    }

    /// Gives an entry another number; names of all below it follow.
    pub(super) fn set_number(&mut self, at: usize, number: i32) -> Result<(), ConfigRefusal> {
        let Some(node) = self.nodes.get(at) else { return Ok(()) };
        let leaf = numbered_leaf(&node.name, &leaf_of(&node.entry.dn)?.1, number);
        self.rename(at, &leaf)
    }

    /// Whether all siblings with numbers have them without gaps, and none twice.
    pub(super) fn is_numbered(&self) -> bool {
        self.rows().iter().all(|row| self.has_no_gaps(row))
    }

    /// Numbers siblings anew where they have gaps, or a number twice. Entries with a `wanted` number get that; the others stand around
    /// them in the order of their numbers, or of those that they had `before`. Answers whether any entry has another number now.
    pub(super) fn renumber(
        &mut self,
        wanted: impl Fn(&ConfigEntry) -> Option<i32>,
        before: impl Fn(&ConfigEntry) -> Option<i32>,
    ) -> Result<bool, ConfigRefusal> {
        let mut changed = false;
        for row in self.rows() {
            if self.has_no_gaps(&row) {
                continue;
            }
            let (mut order, mut placed) = (Vec::new(), Vec::new());
            for at in row {
                let Some(node) = self.nodes.get(at) else { continue };
                let entry = node.entry.as_ref();
                match (wanted(entry), before(entry).or(node.name.number)) {
                    (Some(number), _) => placed.push((number, at)),
                    (None, number) => order.push((number.unwrap_or(i32::MAX), at)),
                }
            }
            order.sort_unstable();
            placed.sort_unstable();
            for (number, at) in placed {
                let place = usize::try_from(number).unwrap_or(0).min(order.len());
                order.insert(place, (number, at));
            }
            // Out of the row first, so that no two have one number in between.
            for ((_, at), place) in order.iter().zip(0..) {
                self.set_number(*at, i32::MAX.saturating_sub(place))?;
            }
            for ((_, at), place) in order.iter().zip(0..) {
                self.set_number(*at, place)?;
            }
            changed = true;
        }
        Ok(changed)
    }

    /// Where the entries are that are counted together, for each such row. The frontend is in none.
    fn rows(&self) -> Vec<Vec<usize>> {
        let mut rows: Vec<Vec<usize>> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if node.name.number.is_none_or(|number| number < 0) {
                continue;
            }
            let is_its = |row: &Vec<usize>| {
                let first = row.first().and_then(|first| self.nodes.get(*first));
                first.is_some_and(|first| is_counted_with(&first.name, &node.name))
            };
            let place = rows.iter().position(is_its);
            match place.and_then(|place| rows.get_mut(place)) {
                Some(row) => row.push(at),
                None => rows.push(vec![at]),
            }
        }
        rows
    }

    fn has_no_gaps(&self, row: &[usize]) -> bool {
        let number = |at: &usize| self.nodes.get(*at).and_then(|node| node.name.number);
        let mut numbers: Vec<i32> = row.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers.iter().zip(0..).all(|(number, place)| *number == place)
    }

    /// Gives an entry another naming value; names of all below it follow.
    pub(super) fn rename(&mut self, at: usize, leaf: &str) -> Result<(), ConfigRefusal> {
        let Some(node) = self.nodes.get(at) else { return Ok(()) };
        let old = node.normal.clone();
        let below: Vec<usize> = (0..self.nodes.len())
            .filter(|other| *other != at)
            .filter(|other| self.nodes.get(*other).is_some_and(|node| node.normal.is_within(&old)))
            .collect();
        let renamed = renamed(&node.entry, leaf)?;
        let depth = old.depth();
        let top = renamed.dn.clone();
        let fresh = Node::new(self.schema, renamed)?;
        if let Some(node) = self.nodes.get_mut(at) {
            *node = fresh;
        }
        for at in below {
            let Some(node) = self.nodes.get(at) else { continue };
            let rdns = rdns_of(&node.entry.dn)?;
            let own = rdns.len().saturating_sub(depth);
            let mut entry = ConfigEntry::clone(&node.entry);
            entry.dn = rdns.into_iter().take(own).chain([top.clone()]).collect::<Vec<_>>().join(",");
            let fresh = Node::new(self.schema, entry)?;
            if let Some(node) = self.nodes.get_mut(at) {
                *node = fresh;
            }
        }
        Ok(())
    }
}

/// Whether two entries are counted together. The frontend is counted alone.
pub(super) fn is_counted_with(one: &EntryName, other: &EntryName) -> bool {
    let frontend = |name: &EntryName| matches!(&name.role, Role::Database(kind) if kind == "frontend");
    let parents = |name: &EntryName| name.path.split_last().map(|(_, above)| above.to_vec());
    let kind = |name: &EntryName| name.path.last().map(|(attribute, _)| attribute.clone());
    discriminant(&one.role) == discriminant(&other.role)
        && parents(one) == parents(other)
        && !frontend(one)
        && !frontend(other)
        && (one.role != Role::Detail || kind(one) == kind(other))
}

/// The naming value with another number: before the name, or behind that of a list of modules.
pub(super) fn numbered_leaf(name: &EntryName, leaf: &str, number: i32) -> String {
    if name.role == Role::Module {
        let bare = leaf.split('{').next().unwrap_or(leaf);
        return format!("{bare}{{{number}}}");
    }
    let bare = leaf.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or(leaf, |(_, name)| name);
    format!("{{{number}}}{bare}")
}

/// Attribute and value of the leaf RDN.
pub(super) fn leaf_of(dn: &str) -> Result<(String, String), ConfigRefusal> {
    let parsed = Dn::parse(dn).map_err(|error| invalid(&error))?;
    let ava = parsed.rdns().first().and_then(|rdn| rdn.avas().first());
    Ok(ava.map_or_else(Default::default, |ava| {
        (ava.attribute.to_owned(), String::from_utf8_lossy(&ava.value).into_owned())
    }))
}

fn rdns_of(dn: &str) -> Result<Vec<String>, ConfigRefusal> {
    let parsed = Dn::parse(dn).map_err(|error| invalid(&error))?;
    Ok(parsed.rdns().iter().map(ToString::to_string).collect())
}

fn invalid(error: &dyn std::fmt::Display) -> ConfigRefusal {
    ConfigRefusal::new(ResultCode::INVALID_DN_SYNTAX, error.to_string())
}

/// The entry under another naming value, in its DN and in its attribute.
pub(super) fn renamed(entry: &ConfigEntry, leaf: &str) -> Result<ConfigEntry, ConfigRefusal> {
    let (attribute, _) = leaf_of(&entry.dn)?;
    let rdns = rdns_of(&entry.dn)?;
    let first = format!("{attribute}={}", escaped(leaf));
    let mut entry = entry.clone();
    entry.dn = [first].into_iter().chain(rdns.into_iter().skip(1)).collect::<Vec<_>>().join(",");
    let value = leaf.as_bytes().to_vec();
    match entry.attributes.iter_mut().find(|other| other.description.eq_ignore_ascii_case(&attribute)) {
        Some(naming) => naming.values = vec![value].into(),
        None => entry.attributes.push(ConfigAttribute::new(attribute, vec![value])),
    }
    Ok(entry)
}

fn escaped(value: &str) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = larix_proto::dn::write_escaped(&mut text, value.as_bytes());
    text
}
