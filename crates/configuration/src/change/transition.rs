//! One change carried out on the entries: what may be done, what becomes of names and values, and the entry's own
//! schema. Whether the whole is a configuration is asked afterwards.

use std::borrow::Cow;
use std::sync::Arc;

use larix_engine::access::{Item, Privilege};
use larix_engine::controls::RequestControls;
use larix_engine::csn::{Csn, CsnGenerator};
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::overlay::{Change, ChangeKind, Failure, PreparedChange, PreparedModifyDn};
use larix_engine::time::new_uuid;
use larix_engine::write::change::{self as entry_change, NoLargeSets};
use larix_engine::write::operational;
use larix_engine::write::schema_check::{CheckMode, check_entry};
use larix_engine::write::{KnownSchema, Latitude, prepare};
use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::{NormalDn, Schema};

use super::super::balancer;
use super::super::entries::{Role, split_number};
use super::super::entry::{ConfigAttribute, ConfigEntry};
use super::super::model::Config;
use super::super::slapd_d::Stamp;
use super::growth::Growth;
use super::ordered::{self, OrderedChange};
use super::rights::{POST_READ, PRE_READ, Rights};
use super::tree::{Node, Tree, leaf_of, numbered_leaf};
use super::{ConfigChange, ConfigRefusal, Requester};

/// What a change did to the entries.
#[derive(Debug)]
pub(super) struct Effect {
    /// The DN of the entry after the change; of a deleted one the one it had.
    pub(super) dn: String,
    pub(super) before: Option<Arc<ConfigEntry>>,
    pub(super) after: Option<Arc<ConfigEntry>>,
}

#[derive(Debug)]
pub(super) struct Transition<'a> {
    config: &'a Config,
    schema: &'a Schema,
    known: KnownSchema,
    rights: Rights<'a>,
    controls: &'a RequestControls,
    offline: bool,
    stamp: operational::Stamp,
    uuid: uuid::Uuid,
    tree: Tree<'a>,
    answers: Vec<ControlBuf>,
}

/// The entries after a change that did something, and answers to controls.
#[derive(Debug)]
pub(super) struct CarriedChange {
    pub(super) effect: Effect,
    pub(super) entries: Vec<Arc<ConfigEntry>>,
    pub(super) answers: Vec<ControlBuf>,
}

impl<'a> Transition<'a> {
    pub(super) fn new(
        config: &'a Config,
        entries: Vec<Arc<ConfigEntry>>,
        change: &'a ConfigChange,
        stamp: &Stamp<'_>,
    ) -> Result<Self, ConfigRefusal> {
        let schema = &*config.schema;
        let known = KnownSchema::of(schema)
            .map_err(|error| ConfigRefusal::new(ResultCode::OTHER, error.to_string()))?;
        let now = stamp.clock.now();
        let name = match &change.requester {
            Requester::Client { subject, .. } => subject.shown_dn().to_owned(),
            Requester::Offline => "cn=config".to_owned(),
        };
        let csn = next_csn(config, &entries, stamp);
        Ok(Self {
            config,
            schema,
            known,
            rights: Rights::new(schema, &change.requester),
            controls: &change.controls,
            offline: matches!(change.requester, Requester::Offline),
            stamp: operational::Stamp::new(csn, &name),
            uuid: new_uuid(now, stamp.random),
            tree: Tree::new(schema, entries)?,
            answers: Vec::new(),
        })
    }

    /// Carries the change out. `None`: there is nothing to do, and that is a success.
    pub(super) fn run(mut self, change: &ConfigChange) -> Result<Option<CarriedChange>, ConfigRefusal> {
        let latitude = Latitude { relax: self.controls.relax, internal: self.offline, ..Latitude::default() };
        let subschema = self.config.frontend.schema_dn.as_ref().map(|dn| dn.normal.clone());
        let subschema = subschema.unwrap_or_else(|| NormalDn::from_normal("cn=subschema"));
        let prepared = prepare(self.schema, change.operation.clone(), &subschema, latitude)?;
        let dn = prepared.dn().clone();
        let effect = match prepared {
            PreparedChange::Add { dn, entry, mods } => self.add(&dn, entry, &mods),
            PreparedChange::Modify { dn, mods } => self.modify(&dn, &mods),
            PreparedChange::Delete { dn } => self.delete(&dn),
            PreparedChange::ModifyDn(rename) => self.rename(&rename),
            PreparedChange::Authenticate(_) | PreparedChange::Record(_) => {
                Err(unwilling("a bind or a record is no change of cn=config"))
            }
        };
        let effect = effect.map_err(|refusal| self.without_disclosure(refusal, &dn))?;
        let Some(effect) = effect else { return Ok(None) };
        self.post_read(&effect);
        self.keep_context_csn();
        let Self { tree, answers, .. } = self;
        Ok(Some(CarriedChange { effect, entries: tree.into_entries(), answers }))
    }

    fn add(
        &mut self,
        dn: &NormalDn,
        mut entry: Entry,
        mods: &[Change],
    ) -> Result<Option<Effect>, ConfigRefusal> {
        self.demand_of_entry(dn, &entry, Privilege::Add, "no write access to entry")?;
        self.rights.demand_changes(dn, &entry, mods, "no write access to attribute")?;
        self.name_as_its_dn(&mut entry)?;
        self.check(&mut entry, true)?;
        operational::complete_entry(&self.known, &mut entry, &self.stamp, self.uuid);
        self.rights.check_assertion(dn, &entry, self.controls)?;
        for attribute in &mut entry.attributes {
            let kind = self.schema.attribute(attribute.description.attribute);
            if kind.is_ordered_values() {
                ordered::settle(kind.name(), &mut attribute.values)?;
            }
        }
        let node = Node::new(self.schema, self.to_config_entry(&entry, Vec::new()))?;
        check_superior(&node)?;
        if self.check_free(&node)? == Free::NothingToDo {
            return Ok(None);
        }
        self.check_parent(dn)?;
        check_class(self.schema, &entry, &node)?;
        let node = self.number(node)?;
        let effect = Effect { dn: node.entry.dn.clone(), before: None, after: Some(node.entry.clone()) };
        self.tree.push(node);
        Ok(Some(effect))
    }

    /// `olcOverlay: syncprov` in an entry `olcOverlay={0}syncprov` is its name, as slapd takes it, and so the other way round.
    fn name_as_its_dn(&self, entry: &mut Entry) -> Result<(), ConfigRefusal> {
        let (attribute, leaf) = leaf_of(&entry.dn)?;
        let Some(id) = self.schema.attribute_type_id(&attribute) else { return Ok(()) };
        if !self.schema.attribute(id).is_ordered_siblings() {
            return Ok(());
        }
        let (number, name) = split_number(&leaf);
        for value in entry.attributes.iter_mut().filter(|it| it.description.attribute == id) {
            for value in &mut value.values {
                let text = String::from_utf8_lossy(value);
                let (other, same) = split_number(&text);
                if same.eq_ignore_ascii_case(name) && number.is_some() != other.is_some() {
                    *value = leaf.as_bytes().to_vec();
                }
            }
        }
        Ok(())
    }

    fn check_free(&self, node: &Node) -> Result<Free, ConfigRefusal> {
        let already_exists = || Err(LdapResult::new(ResultCode::ENTRY_ALREADY_EXISTS).into());
        let is_only_one = node.name.role.fixed_number().is_some();
        match &node.name.role {
            // What is built in is built in; OpenLDAP, too, takes it as given.
            Role::SchemaRoot if self.tree.find(&node.normal).is_some() => return Ok(Free::NothingToDo),
            Role::Database(_)
                if is_only_one && self.tree.iter().any(|other| other.name.role == node.name.role) =>
            {
                return already_exists();
            }
            // Their numbers say where they go.
            Role::Database(_) | Role::Overlay(_) if !self.controls.manage_dsa_it => {}
            // A list of modules is taken to be badly numbered.
            Role::Module => {}
            _ if self.tree.find(&node.normal).is_some() => return already_exists(),
            _ => {}
        }
        Ok(Free::Place)
    }

    fn check_parent(&self, dn: &NormalDn) -> Result<(), ConfigRefusal> {
        let parent = dn.parent().unwrap_or_else(NormalDn::root);
        let Some(at) = self.tree.find(&parent) else { return Err(self.missing(dn)) };
        let Some(node) = self.tree.get(at) else { return Err(self.missing(dn)) };
        let (entry, _) = self.to_entry(&node.entry);
        self.rights.demand(&parent, &entry, Item::Children, Privilege::Add, "no write access to parent")
    }

    /// Gives a new entry its number, and those behind it theirs.
    fn number(&mut self, node: Node) -> Result<Node, ConfigRefusal> {
        let counted = match &node.name.role {
            Role::Global | Role::SchemaRoot => false,
            Role::Detail => {
                let (attribute, _) = leaf_of(&node.entry.dn)?;
                self.schema.attribute_type(&attribute).is_some_and(|kind| kind.is_ordered_siblings())
            }
            _ => true,
        };
        if !counted {
            return Ok(node);
        }
        let (_, leaf) = leaf_of(&node.entry.dn)?;
        if node.name.number.is_none() && leaf.contains('{') {
            return Err(naming(&format!("`{leaf}`: there must be a number between the braces")));
        }
        let siblings = i32::try_from(self.tree.siblings(&node.name)).unwrap_or(i32::MAX);
        let number = match (&node.name.role, node.name.number) {
            (Role::Database(kind), None | Some(-1)) if kind == "frontend" => -1,
            (Role::Database(kind), Some(_)) if kind == "frontend" => {
                return Err(naming("the frontend is always {-1}"));
            }
            (Role::Database(kind), None | Some(0)) if kind == "config" => 0,
            (Role::Database(kind), Some(_)) if kind == "config" => {
                return Err(naming("the config database is always {0}"));
            }
            (_, Some(number)) if number < 0 => return Err(naming("the number must not be negative")),
            (Role::Database(_), Some(0)) => {
                let text = "{0} is the config database: the first other one is {1}";
                return Err(ConfigRefusal::new(ResultCode::OBJECT_CLASS_VIOLATION, text));
            }
            (_, Some(number)) if number < siblings => {
                self.insert_at(&node, number)?;
                number
            }
            _ => siblings,
        };
        let entry = super::tree::renamed(&node.entry, &numbered_leaf(&node.name, &leaf, number))?;
        Node::new(self.schema, entry)
    }

    fn insert_at(&mut self, node: &Node, number: i32) -> Result<(), ConfigRefusal> {
        match node.name.role {
            Role::Database(_) | Role::Overlay(_) | Role::BalancerTier(_) | Role::BalancerBackend(_) => {
                self.tree.shift(&node.name, number, i32::MAX, 1)
            }
            Role::Module => Err(naming("a list of modules comes behind the others: leave its number out")),
            _ => Err(unwilling("operation requires sibling renumbering")),
        }
    }

    fn modify(&mut self, dn: &NormalDn, requested: &[Change]) -> Result<Option<Effect>, ConfigRefusal> {
        let (at, before) = self.existing(dn)?;
        let growth =
            if self.looks_into_values() { None } else { Growth::of(self.schema, &before, requested) };
        let (mut entry, unknown) = self.to_entry(growth.as_ref().map_or(&before, Growth::stand_in));
        self.look_before(dn, &entry)?;
        self.rights.demand_changes(dn, &entry, requested, "")?;
        let (naming, _) = leaf_of(&before.dn)?;
        let naming = self.schema.attribute_type_id(&naming);
        if requested.iter().any(|change| Some(change.description.attribute) == naming) {
            let text = "Use modrdn to change the entry name";
            return Err(ConfigRefusal::new(ResultCode::NOT_ALLOWED_ON_RDN, text));
        }
        self.check_classes_kept(&entry, requested)?;
        for change in requested.iter().filter(|change| !growth.as_ref().is_some_and(|it| it.covers(change))) {
            self.apply(&mut entry, change)?;
        }
        for change in operational::modification_changes(&self.known, requested, &self.stamp) {
            self.apply(&mut entry, &change)?;
        }
        self.check(&mut entry, false)?;
        let mut after = self.to_config_entry(&entry, unknown);
        if let Some(growth) = growth {
            growth.settle(&mut after);
        }
        let after = Arc::new(after);
        self.tree.replace(at, after.clone());
        Ok(Some(Effect { dn: after.dn.clone(), before: Some(before), after: Some(after) }))
    }

    /// Whether a request wants to know, or may not know, what the entry's values are.
    fn looks_into_values(&self) -> bool {
        let controls = self.controls;
        !self.rights.is_root()
            || controls.assertion.is_some()
            || controls.pre_read.is_some()
            || controls.post_read.is_some()
    }

    fn apply(&self, entry: &mut Entry, change: &Change) -> Result<(), ConfigRefusal> {
        let kind = self.schema.attribute(change.description.attribute);
        let permissive = self.controls.permissive_modify;
        if !kind.is_ordered_values() {
            let applied = entry_change::apply(self.schema, entry, change, permissive, &NoLargeSets);
            return applied.map_err(|failure| failure.into_result().into());
        }
        let name = change.description.to_text(self.schema);
        let change_of = OrderedChange { schema: self.schema, kind, name: &name, change, permissive };
        let present = entry.attribute(&change.description).map_or(&[][..], |a| a.values.as_slice());
        let values = change_of.apply(present)?;
        if values.is_empty() {
            entry.remove(&change.description);
        } else {
            entry.attribute_or_insert(&change.description).values = values;
        }
        Ok(())
    }

    /// The classes say what an entry is: they stay as they are.
    fn check_classes_kept(&self, entry: &Entry, requested: &[Change]) -> Result<(), ConfigRefusal> {
        let ids = |values: &[Vec<u8>]| {
            let class = |value: &Vec<u8>| self.schema.object_class_id(std::str::from_utf8(value).ok()?);
            let mut ids: Vec<_> = values.iter().map(class).collect();
            ids.sort();
            ids
        };
        let present = ids(entry.values(self.known.object_class));
        let kept = |change: &Change| change.kind == ChangeKind::Replace && ids(&change.values) == present;
        let of_classes = |change: &&Change| change.description.attribute == self.known.object_class;
        match requested.iter().filter(of_classes).all(kept) {
            true => Ok(()),
            false => Err(unwilling("objectclass modification disallowed")),
        }
    }

    fn delete(&mut self, dn: &NormalDn) -> Result<Option<Effect>, ConfigRefusal> {
        let (at, before) = self.existing(dn)?;
        let (entry, _) = self.to_entry(&before);
        self.look_before(dn, &entry)?;
        self.demand_of_parent(dn, Privilege::Delete)?;
        self.demand_of_entry(dn, &entry, Privilege::Delete, "no write access to entry")?;
        let name = self.tree.get(at).map(|node| node.name.clone());
        let Some(name) = name else { return Err(self.missing(dn)) };
        match &name.role {
            Role::Global | Role::SchemaRoot => {
                return Err(unwilling(&format!("{}: every configuration has this entry", before.dn)));
            }
            Role::Database(_) if name.role.fixed_number().is_some() => {
                return Err(unwilling("Cannot delete config or frontend database"));
            }
            _ => {}
        }
        if self.tree.has_children(dn) && !self.controls.tree_delete {
            let text = "there are entries below it: delete them first";
            return Err(ConfigRefusal::new(ResultCode::NOT_ALLOWED_ON_NON_LEAF, text));
        }
        self.tree.remove(dn);
        if let Some(number) = name.number {
            self.tree.shift(&name, number.saturating_add(1), i32::MAX, -1)?;
        }
        Ok(Some(Effect { dn: before.dn.clone(), before: Some(before), after: None }))
    }

    fn rename(&mut self, rename: &PreparedModifyDn) -> Result<Option<Effect>, ConfigRefusal> {
        let dn = &rename.dn;
        let (at, before) = self.existing(dn)?;
        let (entry, _) = self.to_entry(&before);
        self.look_before(dn, &entry)?;
        self.demand_of_entry(dn, &entry, Privilege::Write, "no write access to old entry")?;
        self.demand_of_parent(dn, Privilege::Write)?;
        if rename.new_superior.is_some() {
            return Err(unwilling("entries of the configuration stay below their superiors"));
        }
        if rename.target() == *dn {
            return Ok(None);
        }
        let Some(node) = self.tree.get(at).cloned() else { return Err(self.missing(dn)) };
        let (_, old_leaf) = leaf_of(&before.dn)?;
        let (_, new_leaf) = leaf_of(&rename.new_rdn)?;
        match node.name.role {
            Role::Schema(_) => {
                if number_text(&old_leaf) != number_text(&new_leaf) {
                    return Err(unwilling("schema reordering not supported"));
                }
                self.tree.rename(at, &new_leaf)?;
            }
            Role::SchemaRoot => return Err(unwilling("renaming not allowed for this entry")),
            Role::Database(_) | Role::Overlay(_) | Role::BalancerTier(_) | Role::BalancerBackend(_) => {
                self.renumber(at, &node, &old_leaf, &new_leaf)?;
            }
            _ => return Err(unwilling("renaming not supported for this entry")),
        }
        let Some(node) = self.tree.get(at) else { return Err(self.missing(dn)) };
        let (mut entry, unknown) = self.to_entry(&node.entry);
        for change in operational::modification_changes(&self.known, &[], &self.stamp) {
            self.apply(&mut entry, &change)?;
        }
        let after = Arc::new(self.to_config_entry(&entry, unknown));
        self.tree.replace(at, after.clone());
        Ok(Some(Effect { dn: after.dn.clone(), before: Some(before), after: Some(after) }))
    }

    /// Moves a database or overlay to another place among its siblings.
    fn renumber(
        &mut self,
        at: usize,
        node: &Node,
        old_leaf: &str,
        new_leaf: &str,
    ) -> Result<(), ConfigRefusal> {
        let Some(new_number) = number_text(new_leaf) else {
            return Err(naming("new ordering index is required"));
        };
        let kind = |leaf: &str| leaf.split_once('}').map(|(_, kind)| kind.to_ascii_lowercase());
        if kind(old_leaf) != kind(new_leaf) {
            return Err(unwilling("changing database/overlay type not allowed"));
        }
        let old = node.name.number.unwrap_or(-1);
        let Ok(new) = new_number.parse::<i32>() else {
            return Err(naming(&format!("`{{{new_number}}}` is not a number")));
        };
        if old < 0 || new < 0 {
            return Err(naming("the frontend is always {-1}, and no other number is negative"));
        }
        if matches!(node.name.role, Role::Database(_)) && (old == 0 || new == 0) {
            let text = "the config database is always {0}";
            return Err(ConfigRefusal::new(ResultCode::CONSTRAINT_VIOLATION, text));
        }
        let last = i32::try_from(self.tree.siblings(&node.name)).unwrap_or(i32::MAX).saturating_sub(1);
        let new = new.min(last);
        // Out of the row first, so that no two have one number in between.
        self.tree.set_number(at, i32::MAX)?;
        if old < new {
            self.tree.shift(&node.name, old + 1, new, -1)?;
        } else {
            self.tree.shift(&node.name, new, old - 1, 1)?;
        }
        self.tree.set_number(at, new)
    }

    fn demand_of_entry(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        privilege: Privilege,
        text: &str,
    ) -> Result<(), ConfigRefusal> {
        self.rights.demand(dn, entry, Item::Entry, self.controls.on_entry(privilege), text)
    }

    fn demand_of_parent(&self, dn: &NormalDn, privilege: Privilege) -> Result<(), ConfigRefusal> {
        let Some(parent) = dn.parent().filter(|parent| !parent.is_root()) else { return Ok(()) };
        let Some(node) = self.tree.find(&parent).and_then(|at| self.tree.get(at)) else { return Ok(()) };
        let (entry, _) = self.to_entry(&node.entry);
        let text = "no write access to parent's children";
        self.rights.demand(&parent, &entry, Item::Children, privilege, text)
    }

    fn check(&self, entry: &mut Entry, add: bool) -> Result<(), ConfigRefusal> {
        let mode = CheckMode { relax: self.controls.relax, add, ..CheckMode::default() };
        check_entry(self.schema, &self.known, entry, mode, &NoLargeSets)
            .map_err(|failure: Failure| failure.into_result().into())
    }

    fn existing(&self, dn: &NormalDn) -> Result<(usize, Arc<ConfigEntry>), ConfigRefusal> {
        let at = self.tree.find(dn);
        let found = at.and_then(|at| Some((at, self.tree.get(at)?.entry.clone())));
        found.ok_or_else(|| self.missing(dn))
    }

    fn missing(&self, dn: &NormalDn) -> ConfigRefusal {
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        match self.tree.nearest(dn) {
            Some(node) => missing.matched(node.entry.dn.clone()).into(),
            None => missing.into(),
        }
    }

    fn without_disclosure(&self, refusal: ConfigRefusal, dn: &NormalDn) -> ConfigRefusal {
        if self.rights.is_root() {
            return refusal;
        }
        let mut at = Some(dn.clone());
        let mut upwards = Vec::new();
        while let Some(dn) = at {
            if let Some(node) = self.tree.find(&dn).and_then(|at| self.tree.get(at)) {
                upwards.push((dn.clone(), self.to_entry(&node.entry).0));
            }
            at = dn.parent();
        }
        self.rights.without_disclosure(refusal, dn, upwards.into_iter())
    }

    /// What a request asserts of the entry that it changes, and wants to read of it.
    fn look_before(&mut self, dn: &NormalDn, entry: &Entry) -> Result<(), ConfigRefusal> {
        let requested = self.controls.pre_read.as_ref();
        if self.controls.assertion.is_none() && requested.is_none() {
            return Ok(());
        }
        let entry = self.as_found(entry);
        self.rights.check_assertion(dn, &entry, self.controls)?;
        self.answers.extend(self.rights.read(PRE_READ, requested, dn, &entry));
        Ok(())
    }

    /// The entry as searches find it: without stamps that it is about to get.
    fn as_found<'e>(&self, entry: &'e Entry) -> Cow<'e, Entry> {
        let mut all = self.config.shared_entries().into_iter();
        let Some(found) = all.find(|found| found.dn.eq_ignore_ascii_case(&entry.dn)) else {
            return Cow::Borrowed(entry);
        };
        let is_found = |attribute: &EntryAttribute| {
            let name = self.schema.attribute(attribute.description.attribute).name();
            !Stamp::ATTRIBUTES.contains(&name) || !found.values(name).is_empty()
        };
        let mut entry = entry.clone();
        entry.attributes.retain(is_found);
        Cow::Owned(entry)
    }

    fn post_read(&mut self, effect: &Effect) {
        let (Some(after), Some(_)) = (&effect.after, &self.controls.post_read) else { return };
        let Ok(dn) = self.schema.parse_dn(&after.dn) else { return };
        let (entry, _) = self.to_entry(after);
        let requested = self.controls.post_read.as_ref();
        self.answers.extend(self.rights.read(POST_READ, requested, &dn, &entry));
    }

    /// contextCSN says up to which change a replica that has this tree has followed, for each server.
    fn keep_context_csn(&mut self) {
        let Some(at) = self.tree.find(&NormalDn::from_normal("cn=config")) else { return };
        let existing = self.tree.get(at).map(|node| ConfigEntry::clone(&node.entry));
        let Some(mut entry) = existing else { return };
        let csn = self.stamp.csn;
        let of_other = |value: &Vec<u8>| {
            let csn_of = std::str::from_utf8(value).ok().and_then(|text| text.parse::<Csn>().ok());
            csn_of.is_some_and(|other| other.server_id != csn.server_id)
        };
        let mut values: Vec<Vec<u8>> =
            entry.values("contextCSN").iter().filter(|value| of_other(value)).cloned().collect();
        values.push(csn.text().into_bytes());
        values.sort();
        match entry.attributes.iter_mut().find(|a| a.description.eq_ignore_ascii_case("contextCSN")) {
            Some(attribute) => attribute.values = values.into(),
            None => entry.add("contextCSN", values),
        }
        self.tree.replace(at, Arc::new(entry));
    }

    /// The entry as the engine has it, and attributes that the schema does not define.
    fn to_entry(&self, entry: &ConfigEntry) -> (Entry, Vec<ConfigAttribute>) {
        let mut converted = Entry::new(entry.dn.clone());
        let mut unknown = Vec::new();
        for attribute in &entry.attributes {
            match self.schema.describe(&attribute.description) {
                Ok(description) => {
                    let values = &mut converted.attribute_or_insert(&description).values;
                    values.extend(attribute.values.iter().cloned());
                }
                Err(_) => unknown.push(attribute.clone()),
            }
        }
        (converted, unknown)
    }

    fn to_config_entry(&self, entry: &Entry, unknown: Vec<ConfigAttribute>) -> ConfigEntry {
        let known = |attribute: &EntryAttribute| {
            ConfigAttribute::new(attribute.description.to_text(self.schema), attribute.values.clone())
        };
        let attributes = entry.attributes.iter().map(known).chain(unknown).collect();
        ConfigEntry { dn: entry.dn.clone(), attributes }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Free {
    Place,
    NothingToDo,
}

/// No overlay comes below an overlay. One that is stored there already is read, and has no effect.
fn check_superior(node: &Node) -> Result<(), ConfigRefusal> {
    let [.., (superior, _), (own, _)] = node.name.path.as_slice() else { return Ok(()) };
    if superior != "olcoverlay" || own != "olcoverlay" {
        return Ok(());
    }
    let text = format!("{}: an overlay belongs below the entry of a database", node.entry.dn);
    Err(ConfigRefusal::new(ResultCode::OBJECT_CLASS_VIOLATION, text))
}

/// The class of an entry and its place go together.
fn check_class(schema: &Schema, entry: &Entry, node: &Node) -> Result<(), ConfigRefusal> {
    let class_name = match node.name.role {
        Role::Global => "olcGlobal",
        Role::Module => "olcModuleList",
        Role::SchemaRoot | Role::Schema(_) => "olcSchemaConfig",
        Role::Backend(_) => "olcBackendConfig",
        Role::BalancerTier(_) => balancer::TIER_CLASS,
        Role::BalancerBackend(_) => balancer::BACKEND_CLASS,
        Role::Database(_) => "olcDatabaseConfig",
        Role::Overlay(_) => "olcOverlayConfig",
        Role::Detail => return Ok(()),
    };
    let Some(id) = schema.object_class_id(class_name) else { return Ok(()) };
    let class_attribute = schema.attribute_type_id("objectClass");
    let classes = class_attribute.map_or(&[][..], |id| entry.values(id));
    let fits = classes
        .iter()
        .filter_map(|value| schema.object_class_id(std::str::from_utf8(value).ok()?))
        .any(|class| schema.is_subclass(class, id));
    if fits {
        return Ok(());
    }
    let text = format!("an entry of this name is of the class {class_name}");
    Err(ConfigRefusal::new(ResultCode::OBJECT_CLASS_VIOLATION, text))
}

/// What stands between the braces at the front of a naming value.
fn number_text(leaf: &str) -> Option<&str> {
    leaf.strip_prefix('{')?.split_once('}').map(|(number, _)| number)
}

/// A CSN above all that the entries have.
fn next_csn(config: &Config, entries: &[Arc<ConfigEntry>], stamp: &Stamp<'_>) -> Csn {
    let own = config.global.server_ids.iter().find(|id| id.url.is_none()).map_or(0, |id| id.number);
    let generator = CsnGenerator::new(own);
    for value in
        entries.iter().flat_map(|entry| entry.values("entryCSN").iter().chain(entry.values("contextCSN")))
    {
        if let Some(csn) = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()) {
            generator.observe(&csn);
        }
    }
    generator.next(stamp.clock.now())
}

fn naming(text: &str) -> ConfigRefusal {
    ConfigRefusal::new(ResultCode::NAMING_VIOLATION, text)
}

fn unwilling(text: &str) -> ConfigRefusal {
    ConfigRefusal::new(ResultCode::UNWILLING_TO_PERFORM, text)
}
