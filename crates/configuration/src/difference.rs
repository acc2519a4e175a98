//! What has to change for one configuration to become another: as requests that cn=config takes.

use std::fmt;

use larix_engine::controls::RequestControls;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::ModifyOperation;
use larix_proto::dn::Dn;

use super::balancer;
use super::builder::directive::{Cardinality, Directive, Scope};
use super::chain;
use super::change::{ConfigChange, Requester};
use super::defaults::is_default;
use super::definition::meaning;
use super::diagnostic::without_secrets;
use super::directives::{self, is_secret_setting};
use super::entries::{EntryBelow, EntryName, Role, is_plain, is_server_below, is_target, split_number};
use super::entry::ConfigEntry;
use super::kinds::{descriptor_of, target_attributes};
use super::model::Config;

/// Requests that make one configuration out of another, in an order in which each is valid after those before it.
#[derive(Debug, Clone, Default)]
pub struct Difference {
    pub steps: Vec<Step>,
}

/// One request of a [`Difference`].
#[derive(Debug, Clone)]
pub struct Step {
    pub operation: WriteOperation,
    /// For people: the values that a modify takes away.
    pub removed: Vec<AttributeValues>,
}

impl Config {
    /// What has to change for this configuration to become `wanted`; nothing if both mean the same.
    ///
    /// Values that say what holds anyway count as missing. Databases are the same when kind and first suffix are, schema
    /// sections when their names are, overlays when their names are.
    pub fn difference(&self, wanted: &Self) -> Difference {
        let (current, mut wanted) = (Tree::of(self), Tree::of(wanted));
        wanted.keep_places(&current);
        wanted.keep_module_lists(&current);
        wanted.keep_empty_servers(&current);
        let mut plan = Plan::default();
        let mut databases = current.databases;
        plan.remove("cn=config", DATABASE, &mut databases, &wanted.databases);
        plan.attributes("cn=config", &current.global, &wanted.global);
        plan.unordered("cn=config", MODULE, &current.modules, &wanted.modules);
        plan.unordered(SCHEMA_DN, SCHEMA, &current.schema, &wanted.schema);
        plan.unordered("cn=config", BACKEND, &current.backends, &wanted.backends);
        for (current, wanted) in current.fixed.iter().zip(&wanted.fixed) {
            plan.attributes(&wanted.dn, current, wanted);
            let mut overlays = current.children.clone();
            plan.ordered(&wanted.dn, OVERLAY, &mut overlays, &wanted.children);
        }
        plan.ordered("cn=config", DATABASE, &mut databases, &wanted.databases);
        plan.take_away(SCHEMA_DN, SCHEMA, &current.schema, &wanted.schema);
        plan.take_away("cn=config", MODULE, &current.modules, &wanted.modules);
        plan.take_away("cn=config", BACKEND, &current.backends, &wanted.backends);
        Difference { steps: plan.steps }
    }
}

const SCHEMA_DN: &str = "cn=schema,cn=config";
const MODULE_PATH: &str = "olcModulePath";
const MODULE_LOAD: &str = "olcModuleLoad";

/// Entries that are numbered together.
#[derive(Debug, Clone, Copy)]
struct Group {
    attribute: &'static str,
    /// The number of the first.
    first: usize,
    /// `module{0}` rather than `{0}module`.
    number_behind: bool,
}

const MODULE: Group = Group { attribute: "cn", first: 0, number_behind: true };
const SCHEMA: Group = Group { attribute: "cn", first: 0, number_behind: false };
/// Tiers of the balancer, and the servers of a tier.
const TIER: Group = Group { attribute: "cn", first: 0, number_behind: false };
const BACKEND: Group = Group { attribute: "olcBackend", first: 0, number_behind: false };
/// The frontend and the config database have numbers of their own, -1 and 0.
const DATABASE: Group = Group { attribute: "olcDatabase", first: 1, number_behind: false };
const OVERLAY: Group = Group { attribute: "olcOverlay", first: 0, number_behind: false };
/// Databases that an overlay has below it.
const BELOW: Group = Group { attribute: "olcDatabase", first: 0, number_behind: false };

impl Group {
    /// Of the entries below those of this one.
    fn below(self) -> Self {
        match self.attribute {
            "olcOverlay" => BELOW,
            "olcBackend" | "cn" => TIER,
            _ => OVERLAY,
        }
    }

    fn leaf(self, name: &str, place: usize) -> String {
        let number = place + self.first;
        if self.number_behind { format!("{name}{{{number}}}") } else { format!("{{{number}}}{name}") }
    }

    fn dn(self, parent: &str, name: &str, place: usize) -> String {
        format!("{}={},{parent}", self.attribute, self.leaf(name, place))
    }
}

/// An entry with what is below it.
#[derive(Debug, Clone, Default)]
struct Node {
    dn: String,
    /// Without `{n}`.
    name: String,
    /// Tells it from its siblings, whatever their order.
    key: String,
    classes: Vec<Vec<u8>>,
    /// What is set, without `{n}` and without what says no more than defaults do.
    attributes: Vec<AttributeValues>,
    /// Attributes that stand there and say what holds anyway: a slapd writes many.
    defaults: Vec<String>,
    children: Vec<Self>,
    /// The targets of a database.
    targets: Vec<Self>,
    /// Entries below it that mean what lines do; their lines are among its own.
    below: LineEntries,
}

/// Entries that mean what lines do.
#[derive(Debug, Clone, Default)]
struct LineEntries {
    /// Of the directive whose lines they are.
    attribute: &'static str,
    /// Their RDNs, in their order.
    rdns: Vec<String>,
    /// The lines that are values.
    lines: Vec<Vec<u8>>,
}

/// A configuration's entries by the part they play.
#[derive(Debug, Default)]
struct Tree {
    global: Node,
    modules: Vec<Node>,
    schema: Vec<Node>,
    backends: Vec<Node>,
    /// The frontend and the config database.
    fixed: Vec<Node>,
    databases: Vec<Node>,
}

impl Tree {
    fn of(config: &Config) -> Self {
        let mut tree = Self::default();
        for entry in super::entries::from_model(config) {
            // What is made from a model has names that are known.
            let Ok(name) = EntryName::parse(&entry.dn) else { continue };
            let node = Node::of(&entry, &name.role);
            let list = match &name.role {
                Role::Global => {
                    tree.global = node;
                    continue;
                }
                Role::Module => &mut tree.modules,
                Role::Schema(_) => &mut tree.schema,
                Role::Backend(_) => &mut tree.backends,
                Role::BalancerTier(_) => match tree.backends.last_mut() {
                    Some(balancer) => &mut balancer.children,
                    None => continue,
                },
                Role::BalancerBackend(_) => {
                    match tree.backends.last_mut().and_then(|balancer| balancer.children.last_mut()) {
                        Some(tier) => &mut tier.children,
                        None => continue,
                    }
                }
                Role::Database(_) if name.role.fixed_number().is_some() => &mut tree.fixed,
                Role::Database(_) => &mut tree.databases,
                Role::Overlay(_) => match tree.owner_of(&node.dn) {
                    Some(owner) => &mut owner.children,
                    None => continue,
                },
                Role::Detail if is_server_below(&name) => match tree.overlay_of(&node.dn) {
                    Some(overlay) => &mut overlay.children,
                    None => continue,
                },
                Role::Detail if is_target(&name) => match tree.owner_of(&node.dn) {
                    Some(owner) => &mut owner.targets,
                    None => continue,
                },
                Role::SchemaRoot | Role::Detail => continue,
            };
            push_with_key(list, node);
        }
        tree.note_lines_below(config);
        tree
    }

    /// Tells lines that are values from those that are entries.
    fn note_lines_below(&mut self, config: &Config) {
        let read = config.read_entries.as_deref().unwrap_or_default();
        for entry in read {
            let Ok(name) = EntryName::parse(&entry.dn) else { continue };
            let Some(below) = EntryBelow::of(&name, entry) else { continue };
            let Some((rdn, above)) = split_dn(&entry.dn) else { continue };
            let owners = self.fixed.iter_mut().chain(&mut self.databases);
            let mut overlays = owners.flat_map(|owner| &mut owner.children);
            let Some(overlay) = overlays.find(|overlay| overlay.dn.eq_ignore_ascii_case(&above)) else {
                continue;
            };
            overlay.below.attribute = below.kind.attribute;
            overlay.below.rdns.push(rdn);
            let own = read.iter().find(|other| other.dn.eq_ignore_ascii_case(&overlay.dn));
            let lines = own.into_iter().flat_map(|own| own.values(below.kind.attribute).iter());
            overlay.below.lines = lines.map(|line| unnumbered(line).to_vec()).collect();
        }
    }

    /// What is set for all databases stands in the frontend or in cn=config itself: where it stands, if both mean the same.
    fn keep_places(&mut self, current: &Self) {
        let is_frontend = |node: &Node| node.name == "frontend";
        let Some(present) = current.fixed.iter().find(|node| is_frontend(node)) else { return };
        let Some(frontend) = self.fixed.iter_mut().find(|node| is_frontend(node)) else { return };
        let is_of_all = |directive: &&Directive| matches!(directive.scope, Scope::Shared | Scope::Frontend);
        for directive in directives::all().filter(is_of_all) {
            let name = directive.attribute;
            if current.global.values(name).is_empty() && self.global.values(name).is_empty() {
                continue;
            }
            let in_force = |global: &Node, frontend: &Node| {
                let (global, frontend) = (global.values(name), frontend.values(name));
                if directive.cardinality == Cardinality::One && !frontend.is_empty() {
                    return frontend.to_vec();
                }
                let mut all = [global, frontend].concat();
                if directive.cardinality != Cardinality::Ordered {
                    all.sort_unstable();
                    all.dedup();
                }
                all
            };
            let is_elsewhere = current.global.values(name) != self.global.values(name)
                || present.values(name) != frontend.values(name);
            if is_elsewhere && in_force(&current.global, present) == in_force(&self.global, frontend) {
                self.global.set(name, current.global.values(name));
                frontend.set(name, present.values(name));
            }
        }
    }

    /// A file has its modules in one list. What stands in one of several lists stays there.
    fn keep_module_lists(&mut self, current: &Self) {
        let [own] = self.modules.as_slice() else { return };
        if current.modules.len() < 2 {
            return;
        }
        let (path, wanted) = (own.values(MODULE_PATH), own.values(MODULE_LOAD));
        let paths = current.modules.iter().map(|list| list.values(MODULE_PATH));
        let is_same_path = paths.rev().find(|path| !path.is_empty()).unwrap_or_default() == path;
        let mut left = wanted.to_vec();
        let mut lists: Vec<Node> = Vec::with_capacity(current.modules.len());
        for list in &current.modules {
            let loaded = list.values(MODULE_LOAD);
            let kept: Vec<Vec<u8>> =
                loaded.iter().filter(|module| wanted.contains(module)).cloned().collect();
            left.retain(|module| !kept.contains(module));
            if kept.is_empty() && !loaded.is_empty() {
                continue;
            }
            let mut list = list.clone();
            list.set(MODULE_LOAD, &kept);
            if !is_same_path && !list.values(MODULE_PATH).is_empty() {
                list.set(MODULE_PATH, path);
            }
            lists.push(list);
        }
        let Some(last) = lists.last_mut() else { return };
        let loaded = [last.values(MODULE_LOAD), left.as_slice()].concat();
        last.set(MODULE_LOAD, &loaded);
        self.modules = lists;
    }

    /// An entry below an overlay chain that sets nothing has no line in a file: OpenLDAP writes one for each such overlay. It stays.
    fn keep_empty_servers(&mut self, current: &Self) {
        for owner in self.fixed.iter_mut().chain(&mut self.databases) {
            let mut others = current.fixed.iter().chain(&current.databases);
            let Some(present) = others.find(|other| other.key == owner.key) else { continue };
            for overlay in owner.children.iter_mut().filter(|overlay| overlay.children.is_empty()) {
                let same = present.children.iter().find(|other| other.key == overlay.key);
                let Some([server]) = same.map(|same| same.children.as_slice()) else { continue };
                if chain::is_server(&server.classes) && server.attributes.is_empty() {
                    overlay.children.push(server.clone());
                }
            }
        }
    }

    fn overlay_of(&mut self, dn: &str) -> Option<&mut Node> {
        let above = dn.split_once(',').map(|(_, above)| above.to_owned())?;
        self.owner_of(&above)?.children.iter_mut().find(|node| node.dn == above)
    }

    fn owner_of(&mut self, dn: &str) -> Option<&mut Node> {
        let above = dn.split_once(',').map(|(_, above)| above.to_owned())?;
        self.fixed.iter_mut().chain(&mut self.databases).find(|node| node.dn == above)
    }
}

/// The first RDN, and what is above it.
fn split_dn(dn: &str) -> Option<(String, String)> {
    let dn = Dn::parse(dn).ok()?;
    let (rdn, above) = dn.rdns().split_first()?;
    let above: Vec<String> = above.iter().map(ToString::to_string).collect();
    Some((rdn.to_string(), above.join(",")))
}

/// Adds a node; of several alike, each has a key of its own.
fn push_with_key(list: &mut Vec<Node>, mut node: Node) {
    let same =
        list.iter().filter(|other| other.name == node.name && other.key.starts_with(&node.key)).count();
    node.key = format!("{} {same}", node.key);
    list.push(node);
}

impl Node {
    fn of(entry: &ConfigEntry, role: &Role) -> Self {
        let leaf = entry.dn.split_once(',').map_or(entry.dn.as_str(), |(leaf, _)| leaf);
        let leaf = leaf.split_once('=').map_or(leaf, |(_, value)| value);
        let name = split_number(leaf).1;
        let name = name.split_once('{').map_or(name, |(name, _)| name).to_owned();
        let names = entry.values("olcSuffix").first().or_else(|| entry.values("olcDbURI").first());
        let suffix = names.map(|suffix| String::from_utf8_lossy(suffix).to_lowercase());
        let classes = entry.values("objectClass").to_vec();
        let is_first_server =
            *role == Role::Detail && chain::is_server(&classes) && split_number(leaf).0 == Some(0);
        let (mut attributes, mut defaults) = (Vec::new(), Vec::new());
        for attribute in entry.attributes.iter().filter(|attribute| !is_plain(&attribute.description)) {
            let description = attribute.description.clone();
            let ordered = is_ordered(&description);
            let values = attribute.values.iter().map(|value| if ordered { unnumbered(value) } else { value });
            let values: Vec<Vec<u8>> = values.map(<[u8]>::to_vec).collect();
            let holds_anyway = |value: &Vec<u8>| {
                is_default_here(role, &description, value)
                    || is_first_server && chain::holds_in_first(&description, value)
            };
            if values.iter().all(holds_anyway) {
                defaults.push(description);
            } else {
                attributes.push(AttributeValues { description, values });
            }
        }
        Self {
            dn: entry.dn.clone(),
            key: format!("{} {}", name.to_ascii_lowercase(), suffix.unwrap_or_default()),
            name,
            classes,
            attributes,
            defaults,
            children: Vec::new(),
            targets: Vec::new(),
            below: LineEntries::default(),
        }
    }

    /// The group that a target is numbered in: its siblings have the same naming attribute.
    fn target_group(&self) -> Group {
        let leaf = self.dn.split_once('=').map_or("", |(attribute, _)| attribute);
        let attribute = target_attributes().find(|known| known.eq_ignore_ascii_case(leaf));
        Group { attribute: attribute.unwrap_or_default(), first: 0, number_behind: false }
    }

    /// Without the lines that are entries.
    fn with_lines_alone(&self) -> Self {
        let mut node = Self { below: LineEntries::default(), ..self.clone() };
        node.set(self.below.attribute, &self.below.lines);
        node
    }

    fn set(&mut self, description: &str, values: &[Vec<u8>]) {
        self.attributes.retain(|attribute| attribute.description != description);
        if !values.is_empty() {
            let (description, values) = (description.to_owned(), values.to_vec());
            self.attributes.push(AttributeValues { description, values });
        }
    }

    fn values(&self, description: &str) -> &[Vec<u8>] {
        let found = self.attributes.iter().find(|attribute| attribute.description == description);
        found.map_or(&[], |attribute| attribute.values.as_slice())
    }
}

/// Defaults that hold in one kind of entry alone.
fn is_default_here(role: &Role, attribute: &str, value: &[u8]) -> bool {
    let kind = match role {
        Role::Database(kind) => kind.as_str(),
        // Its entry must have them.
        Role::Backend(kind) if kind == balancer::MODULE => {
            return is_default(attribute, value)
                && !balancer::SHOWN_ALWAYS.iter().any(|(shown, _)| shown.eq_ignore_ascii_case(attribute));
        }
        _ => return is_default(attribute, value),
    };
    let of_kind = descriptor_of(kind).map_or(&[][..], |descriptor| descriptor.defaults);
    let of_kind = of_kind.iter().find(|(known, _)| *known == attribute);
    let special = match (of_kind, kind, attribute) {
        (Some((_, default)), ..) => value == default.as_bytes(),
        (None, "frontend", "olcMaxDerefDepth") => value == b"0",
        (None, _, "olcMonitoring") => value == b"FALSE",
        _ => false,
    };
    special || is_default(attribute, value)
}

fn is_ordered(attribute: &str) -> bool {
    directives::all().any(|directive| {
        directive.cardinality == Cardinality::Ordered && directive.attribute.eq_ignore_ascii_case(attribute)
    })
}

/// Whether both lists define the same, in other words or another order.
fn mean_the_same(attribute: &str, one: &[Vec<u8>], other: &[Vec<u8>]) -> bool {
    let meanings = |values: &[Vec<u8>]| {
        let mut all: Vec<String> =
            values.iter().map(|value| meaning(attribute, &String::from_utf8_lossy(value))).collect();
        all.sort_unstable();
        all
    };
    ["olcAttributeTypes", "olcObjectClasses"].contains(&attribute) && meanings(one) == meanings(other)
}

fn unnumbered(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|byte| *byte == b'}').map_or(0, |at| at + 1);
    let prefix = std::str::from_utf8(value.get(..end).unwrap_or_default()).unwrap_or_default();
    match split_number(prefix) {
        (Some(_), "") => value.get(end..).unwrap_or_default(),
        _ => value,
    }
}

fn numbered(values: &[Vec<u8>], first: usize) -> Vec<Vec<u8>> {
    let number = |(at, value): (usize, &Vec<u8>)| {
        let mut text = format!("{{{}}}", first + at).into_bytes();
        text.extend_from_slice(value);
        text
    };
    values.iter().enumerate().map(number).collect()
}

#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
}

impl Plan {
    fn push(&mut self, operation: WriteOperation) {
        self.steps.push(Step { operation, removed: Vec::new() });
    }

    /// Deletes those that are not wanted, from the last to the first, so that the numbers of the others still hold.
    fn remove(&mut self, parent: &str, group: Group, current: &mut Vec<Node>, wanted: &[Node]) {
        for place in (0..current.len()).rev() {
            let Some(node) = current.get(place) else { continue };
            if wanted.iter().any(|other| other.key == node.key) {
                continue;
            }
            let dn = group.dn(parent, &node.name, place);
            for (below, overlay) in node.children.iter().enumerate().rev() {
                let entry = group.below().dn(&dn, &overlay.name, below);
                for (number, child) in overlay.children.iter().enumerate().rev() {
                    let entry = group.below().below().dn(&entry, &child.name, number);
                    self.push(WriteOperation::Delete { entry });
                }
                self.remove_lines_below(&entry, overlay);
                self.push(WriteOperation::Delete { entry });
            }
            self.remove_lines_below(&dn, node);
            self.remove_targets(&dn, &node.targets, 0);
            self.push(WriteOperation::Delete { entry: dn });
            current.remove(place);
        }
    }

    /// Deletes the lines that are entries.
    fn remove_lines_below(&mut self, overlay: &str, node: &Node) {
        for rdn in node.below.rdns.iter().rev() {
            self.push(WriteOperation::Delete { entry: format!("{rdn},{overlay}") });
        }
    }

    /// Deletes the targets of a database from this one on.
    fn remove_targets(&mut self, database: &str, targets: &[Node], first: usize) {
        for (place, target) in targets.iter().enumerate().skip(first).rev() {
            let entry = target.target_group().dn(database, &target.name, place);
            self.push(WriteOperation::Delete { entry });
        }
    }

    /// The targets of a database keep their places: behind the first that is another one all are added anew.
    fn targets(&mut self, database: &str, current: &[Node], wanted: &[Node]) {
        let same = current.iter().zip(wanted).take_while(|(one, other)| one.key == other.key).count();
        for (place, (own, node)) in current.iter().zip(wanted).take(same).enumerate() {
            self.attributes(&node.target_group().dn(database, &node.name, place), own, node);
        }
        self.remove_targets(database, current, same);
        self.add_targets(database, wanted, same);
    }

    fn add_targets(&mut self, database: &str, targets: &[Node], first: usize) {
        for (place, target) in targets.iter().enumerate().skip(first) {
            let group = target.target_group();
            self.add(&group.dn(database, &target.name, place), group, target, place);
        }
    }

    /// Entries whose order counts: what is not wanted goes, the others are moved or added to their places.
    fn ordered(&mut self, parent: &str, group: Group, current: &mut Vec<Node>, wanted: &[Node]) {
        self.remove(parent, group, current, wanted);
        for (place, node) in wanted.iter().enumerate() {
            let dn = group.dn(parent, &node.name, place);
            match current.iter().position(|other| other.key == node.key) {
                None => {
                    self.add(&dn, group, node, place);
                    current.insert(place.min(current.len()), node.clone());
                }
                Some(from) => {
                    if from != place {
                        self.push(WriteOperation::ModifyDn {
                            entry: group.dn(parent, &node.name, from),
                            new_rdn: format!("{}={}", group.attribute, group.leaf(&node.name, place)),
                            delete_old_rdn: true,
                            new_superior: None,
                        });
                        let moved = current.remove(from);
                        current.insert(place.min(current.len()), moved);
                    }
                    let Some(mut own) = current.get(place).cloned() else { continue };
                    self.attributes(&dn, &own, node);
                    self.targets(&dn, &own.targets, &node.targets);
                    self.ordered(&dn, group.below(), &mut own.children, &node.children);
                }
            }
        }
    }

    /// Entries whose order does not count: new ones come last. Those that are not wanted stay for now.
    fn unordered(&mut self, parent: &str, group: Group, current: &[Node], wanted: &[Node]) {
        let mut next = current.len();
        for node in wanted {
            match current.iter().position(|other| other.key == node.key) {
                Some(place) => {
                    let Some(own) = current.get(place) else { continue };
                    let dn = group.dn(parent, &own.name, place);
                    self.attributes(&dn, own, node);
                    self.ordered(&dn, group.below(), &mut own.children.clone(), &node.children);
                }
                None => {
                    self.add(&group.dn(parent, &node.name, next), group, node, next);
                    next += 1;
                }
            }
        }
    }

    /// Deletes the entries that [`Plan::unordered`] left.
    fn take_away(&mut self, parent: &str, group: Group, current: &[Node], wanted: &[Node]) {
        let mut all = current.to_vec();
        self.remove(parent, group, &mut all, wanted);
    }

    fn add(&mut self, dn: &str, group: Group, node: &Node, place: usize) {
        let one = |description: &str, values| AttributeValues { description: description.to_owned(), values };
        let mut attributes = vec![
            one("objectClass", node.classes.clone()),
            one(group.attribute, vec![group.leaf(&node.name, place).into_bytes()]),
        ];
        attributes.extend(node.attributes.iter().map(|attribute| {
            let ordered = is_ordered(&attribute.description);
            let values = if ordered { numbered(&attribute.values, 0) } else { attribute.values.clone() };
            one(&attribute.description, values)
        }));
        self.push(WriteOperation::Add { entry: dn.to_owned(), attributes });
        self.add_targets(dn, &node.targets, 0);
        let group = group.below();
        for (below, child) in node.children.iter().enumerate() {
            self.add(&group.dn(dn, &child.name, below), group, child, below);
        }
    }

    /// What changes within an entry, in one request.
    fn attributes(&mut self, dn: &str, current: &Node, wanted: &Node) {
        let lines = current.below.attribute;
        if !current.below.rdns.is_empty() && current.values(lines) != wanted.values(lines) {
            // What is wanted are lines: none of them may be there twice.
            self.remove_lines_below(dn, current);
            return self.attributes(dn, &current.with_lines_alone(), wanted);
        }
        let mut step = Step {
            operation: WriteOperation::Modify { object: dn.to_owned(), changes: Vec::new() },
            removed: Vec::new(),
        };
        let gone = current.attributes.iter().filter(|a| wanted.values(&a.description).is_empty());
        for attribute in gone.chain(&wanted.attributes) {
            let description = attribute.description.as_str();
            let (old, new) = (current.values(description), wanted.values(description));
            let has_default = current.defaults.iter().any(|known| known == description);
            step.attribute(description, old, new, has_default);
        }
        if matches!(&step.operation, WriteOperation::Modify { changes, .. } if !changes.is_empty()) {
            self.steps.push(step);
        }
    }
}

impl Step {
    fn attribute(&mut self, description: &str, old: &[Vec<u8>], new: &[Vec<u8>], has_default: bool) {
        let without = |all: &[Vec<u8>], others: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter().filter(|value| !others.contains(value)).cloned().collect()
        };
        let ordered = is_ordered(description);
        let (removed, added) = (without(old, new), without(new, old));
        if removed.is_empty() && added.is_empty() && (!ordered || old == new)
            || mean_the_same(description, old, new)
        {
            return;
        }
        if ordered && new.starts_with(old) && !has_default {
            let tail = numbered(new.get(old.len()..).unwrap_or_default(), old.len());
            return self.modification(ModifyOperation::Add, description, tail);
        }
        let (removed, values) = if ordered {
            (old.to_vec(), numbered(new, 0))
        } else {
            if !new.is_empty() && !old.is_empty() && !removed.is_empty() && old.len() > 1 {
                self.modification(ModifyOperation::Delete, description, removed);
                if !added.is_empty() {
                    self.modification(ModifyOperation::Add, description, added);
                }
                return;
            }
            (removed, new.to_vec())
        };
        match (old.is_empty(), new.is_empty()) {
            (true, _) if has_default => self.modification(ModifyOperation::Replace, description, values),
            (true, _) => self.modification(ModifyOperation::Add, description, values),
            (_, true) => {
                self.removed.push(AttributeValues { description: description.to_owned(), values: removed });
                self.modification(ModifyOperation::Delete, description, Vec::new());
            }
            _ if !ordered && removed.is_empty() => {
                self.modification(ModifyOperation::Add, description, without(new, old));
            }
            _ => {
                self.removed.push(AttributeValues { description: description.to_owned(), values: removed });
                self.modification(ModifyOperation::Replace, description, values);
            }
        }
    }

    fn modification(&mut self, operation: ModifyOperation, description: &str, values: Vec<Vec<u8>>) {
        if let WriteOperation::Modify { changes, .. } = &mut self.operation {
            let attribute = AttributeValues { description: description.to_owned(), values };
            changes.push(Modification { operation, attribute });
        }
    }
}

impl Difference {
    /// The steps as changes by a user who may write the files.
    pub fn offline_changes(&self) -> Vec<ConfigChange> {
        let change = |step: &Step| ConfigChange {
            operation: step.operation.clone(),
            controls: RequestControls::default(),
            requester: Requester::Offline,
        };
        self.steps.iter().map(change).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// For people: `+` comes, `-` goes, `~` moves. Passwords are not shown.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| step.fmt(f))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |f: &mut fmt::Formatter<'_>, sign: char, attribute: &AttributeValues| {
            attribute.values.iter().try_for_each(|value| {
                let text = match std::str::from_utf8(value) {
                    _ if is_secret_setting(&attribute.description) => "(not shown)".to_owned(),
                    Ok(text) => without_secrets(&text.replace('\n', " ")),
                    Err(_) => format!("({} bytes)", value.len()),
                };
                writeln!(f, "  {sign} {}: {text}", attribute.description)
            })
        };
        match &self.operation {
            WriteOperation::Add { entry, attributes } => {
                writeln!(f, "+ {entry}")?;
                attributes.iter().try_for_each(|attribute| values(f, '+', attribute))
            }
            WriteOperation::Delete { entry } => writeln!(f, "- {entry}"),
            WriteOperation::ModifyDn { entry, new_rdn, .. } => writeln!(f, "~ {entry} becomes {new_rdn}"),
            WriteOperation::Modify { object, changes } => {
                writeln!(f, "  {object}")?;
                self.removed.iter().try_for_each(|attribute| values(f, '-', attribute))?;
                changes.iter().try_for_each(|change| {
                    let sign = if change.operation == ModifyOperation::Delete { '-' } else { '+' };
                    values(f, sign, &change.attribute)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests;
