//! Changes of cn=config that another server made: entries as they are there.

use std::sync::Arc;

use std::collections::{BTreeMap, BTreeSet};

use larix_engine::controls::RequestControls;
use larix_engine::csn::Csn;
use larix_engine::log::{CsnVector, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_engine::replica::{ApplyOutcome, ReplicatedChange, UuidSet};
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::{LdapResult, ModifyOperation, ResultCode};
use larix_schema::NormalDn;
use uuid::Uuid;

use super::super::entries::EntryName;
use super::super::entry::ConfigAttribute;
use super::transition::Transition;
use super::tree::{self, Node, leaf_of, numbered_leaf, renamed};
use super::{ChangedConfig, ConfigChange, ConfigRefusal, Requester};
use crate::entry::ConfigEntry;
use crate::model::Config;
use crate::slapd_d::Stamp;

/// What each server computes, or keeps for itself.
const OWN: [&str; 4] = ["contextCSN", "entryDN", "subschemaSubentry", "hasSubordinates"];

/// What a provider's changes make of the configuration.
#[derive(Debug)]
pub struct ReplicatedConfig {
    /// None: there is nothing to do.
    pub changed: Option<ChangedConfig>,
    /// In the order of the changes.
    pub applied: Vec<ApplyOutcome>,
    /// Entries that went because the provider does not have them.
    pub absent: u64,
}

/// What a provider has of its share.
#[derive(Clone, Debug)]
pub struct Present {
    /// What is not below it is not the provider's.
    pub base: NormalDn,
    pub uuids: UuidSet,
}

impl Config {
    /// What these changes of a provider make of the configuration, in their order; with `present`, entries of the
    /// share go that are not in it. Only what comes of all has to be a valid configuration.
    ///
    /// # Errors
    /// What is wrong with the configuration that would come of it.
    pub fn replicated(
        &self,
        changes: &[ReplicatedChange],
        present: Option<&Present>,
        context_csns: &[Csn],
        stamp: &Stamp<'_>,
    ) -> Result<ReplicatedConfig, ConfigRefusal> {
        let mut tree = Tree {
            config: self,
            entries: self.shared_entries(),
            stamp,
            changed: false,
            sent: changes.iter().filter_map(put_uuid).collect(),
            wanted: BTreeMap::new(),
            parked: BTreeMap::new(),
            parking: PARKING,
        };
        tree.entries.iter_mut().for_each(|entry| stamp.complete_shared(entry));
        // Gaps that were there before are somebody's own.
        let was_numbered = tree.numbered().is_ok_and(|numbered| numbered.is_numbered());
        let applied = changes.iter().map(|change| tree.apply(change)).collect();
        let seen: CsnVector = context_csns.iter().copied().collect();
        let absent = present.map_or(0, |present| tree.delete_absent(present, &seen));
        if was_numbered {
            tree.renumber()?;
        }
        tree.raise(context_csns);
        if !tree.changed {
            return Ok(ReplicatedConfig { changed: None, applied, absent });
        }
        let (config, files) = self.accepted(tree.entries, false)?;
        let changed = ChangedConfig {
            config,
            dn: "cn=config".to_owned(),
            before: None,
            after: None,
            controls: Vec::new(),
            no_op: false,
            files,
        };
        Ok(ReplicatedConfig { changed: Some(changed), applied, absent })
    }
}

struct Tree<'c> {
    config: &'c Config,
    entries: Vec<Arc<ConfigEntry>>,
    stamp: &'c Stamp<'c>,
    changed: bool,
    /// The entries that the provider sends.
    sent: BTreeSet<Uuid>,
    /// The numbers that the provider's entries have there.
    wanted: BTreeMap<Uuid, i32>,
    /// Entries whose names others have now, and the numbers that they had.
    parked: BTreeMap<Uuid, i32>,
    /// The number of the next parked entry.
    parking: i32,
}

/// Numbers from here on are those of parked entries.
const PARKING: i32 = 1 << 30;

impl Tree<'_> {
    fn apply(&mut self, change: &ReplicatedChange) -> ApplyOutcome {
        match change {
            ReplicatedChange::Put { entry_uuid, dn, attributes, .. } => self.put(entry_uuid, dn, attributes),
            ReplicatedChange::Delete { entry_uuid, .. } => match self.find_uuid(entry_uuid) {
                Some(at) => {
                    self.remove(at);
                    ApplyOutcome::Done
                }
                None => ApplyOutcome::Older,
            },
            ReplicatedChange::Delta { entry_uuid, dn, csn, change, .. } => self
                .delta(entry_uuid.as_ref(), dn, csn, change)
                .unwrap_or_else(|why| ApplyOutcome::Refused(why.0)),
        }
    }

    /// A change out of an access log: carried out as if it had been asked for here, numbers of siblings and all.
    fn delta(
        &mut self,
        uuid: Option<&Uuid>,
        dn: &str,
        csn: &Csn,
        change: &LoggedChange,
    ) -> Result<ApplyOutcome, ConfigRefusal> {
        let at = match uuid {
            Some(uuid) => self.find_uuid(uuid),
            None => self.name(dn).and_then(|name| self.find(&name)),
        };
        let stored = at.and_then(|at| self.entries.get(at)).cloned();
        match (&stored, change) {
            (Some(stored), LoggedChange::Add(_)) if csn_of(stored).is_some_and(|own| own >= *csn) => {
                return Ok(ApplyOutcome::Older);
            }
            (_, LoggedChange::Add(attributes)) => {
                // One that was made here, or that came another way, becomes what the log says.
                let uuid = uuid.copied().or_else(|| logged_uuid(attributes));
                if let Some(uuid) = uuid.filter(|_| stored.is_some() || self.is_single(dn)) {
                    return Ok(self.put(&uuid, dn, &attributes.iter().map(values_of).collect::<Vec<_>>()));
                }
            }
            (None, LoggedChange::Delete) => return Ok(ApplyOutcome::Older),
            (None, _) => {
                let text = format!("\"{dn}\" is not here, and its change makes no entry of it");
                return Err(ConfigRefusal::new(ResultCode::NO_SUCH_OBJECT, text));
            }
            (Some(stored), _) if csn_of(stored).is_some_and(|own| own >= *csn) => {
                return Ok(ApplyOutcome::Older);
            }
            _ => {}
        }
        let target = stored.map_or_else(|| dn.to_owned(), |entry| entry.dn.clone());
        let contexts = self.contexts();
        let renamed = self.carry_out(operation(&target, change))?;
        if let LoggedChange::ModifyDn { modifications, .. } = change {
            // What names it was done with the name.
            let rest = |m: &&LoggedModification| !matches!(m.kind, LoggedKind::SoftAdd | LoggedKind::Delete);
            let rest = modifications.iter().filter(rest).cloned().collect();
            self.carry_out(operation(&renamed.unwrap_or(target), &LoggedChange::Modify(rest)))?;
        }
        // Nothing was changed here for itself.
        self.set_contexts(contexts);
        Ok(ApplyOutcome::Done)
    }

    /// Answers the name of the entry afterwards; `None` when there was nothing to do.
    fn carry_out(&mut self, operation: WriteOperation) -> Result<Option<String>, ConfigRefusal> {
        let controls = RequestControls::default();
        let change = ConfigChange { operation, controls, requester: Requester::Offline };
        let transition = Transition::new(self.config, self.entries.clone(), &change, self.stamp)?;
        let Some(carried) = transition.run(&change)? else { return Ok(None) };
        (self.entries, self.changed) = (carried.entries, true);
        Ok(Some(carried.effect.dn))
    }

    /// Whether there is one entry of this name in any configuration, so that an added one can only be the same.
    fn is_single(&self, dn: &str) -> bool {
        const NAMES: [&str; 4] = [
            "cn=config",
            "cn=schema,cn=config",
            "olcdatabase={-1}frontend,cn=config",
            "olcdatabase={0}config,cn=config",
        ];
        self.name(dn).is_some_and(|name| NAMES.contains(&name.as_str()))
    }

    fn contexts(&self) -> Vec<Vec<u8>> {
        let top = self.find(&NormalDn::from_normal("cn=config")).and_then(|at| self.entries.get(at));
        top.map(|entry| entry.values("contextCSN").to_vec()).unwrap_or_default()
    }

    fn set_contexts(&mut self, values: Vec<Vec<u8>>) {
        let Some(top) = self.find(&NormalDn::from_normal("cn=config")) else { return };
        let Some(entry) = self.entries.get_mut(top).map(Arc::make_mut) else { return };
        entry.attributes.retain(|a| !a.description.eq_ignore_ascii_case("contextCSN"));
        if !values.is_empty() {
            entry.attributes.push(ConfigAttribute::new("contextCSN", values));
        }
    }

    fn put(&mut self, uuid: &Uuid, dn: &str, attributes: &[AttributeValues]) -> ApplyOutcome {
        let Some(name) = self.name(dn) else {
            let text = format!("\"{dn}\" is no name");
            return ApplyOutcome::Refused(LdapResult::with(ResultCode::INVALID_DN_SYNTAX, text));
        };
        let kept = |attribute: &&AttributeValues| {
            let description = attribute.description.as_str();
            !attribute.values.is_empty() && !OWN.iter().any(|own| own.eq_ignore_ascii_case(description))
        };
        let attribute = |a: &AttributeValues| ConfigAttribute::new(a.description.clone(), a.values.clone());
        let mut entry = ConfigEntry {
            dn: dn.to_owned(),
            attributes: attributes.iter().filter(kept).map(attribute).collect(),
        };
        // objectClass comes first, as in the files.
        entry.attributes.sort_by_key(|a| !a.description.eq_ignore_ascii_case("objectClass"));
        let same = self.find_uuid(uuid);
        if let Some(at) = same
            && let Some(known) = self.entries.get(at)
            && csn_of(known) >= csn_of(&entry)
        {
            // Numbers change with those of siblings, without a new CSN.
            if csn_of(known) == csn_of(&entry) {
                self.take_number(at, uuid, &entry.dn);
            }
            return ApplyOutcome::Older;
        }
        self.make_room(&name, same);
        if let Some(number) = number_of(dn) {
            self.wanted.insert(*uuid, number);
        }
        // The provider's entry takes the place of one that was made here under its name, unless that is newer: then it is
        // the same entry from now on, as it is here.
        if same.is_none()
            && let Some(known) = self.find(&name).and_then(|at| self.entries.get_mut(at))
            && csn_of(known) > csn_of(&entry)
        {
            self.changed = true;
            let known = Arc::make_mut(known);
            known.attributes.retain(|a| !a.description.eq_ignore_ascii_case("entryUUID"));
            let values = vec![uuid.to_string().into_bytes()];
            known.attributes.push(ConfigAttribute::new("entryUUID", values));
            return ApplyOutcome::Older;
        }
        let Some(at) = same.or_else(|| self.find(&name)) else {
            self.changed = true;
            self.entries.push(Arc::new(entry));
            return ApplyOutcome::Done;
        };
        if let Some(known) = self.entries.get(at) {
            let context = known.values("contextCSN").clone();
            if !context.is_empty() {
                entry.attributes.push(ConfigAttribute::new("contextCSN", context));
            }
            if self.name(&known.dn).is_some_and(|before| before != name) {
                self.move_below(at, dn);
            }
        }
        if let Some(place) = self.entries.get_mut(at) {
            self.changed = true;
            *place = Arc::new(entry);
        }
        ApplyOutcome::Done
    }

    /// An entry that is as it is here has another number at the provider.
    fn take_number(&mut self, at: usize, uuid: &Uuid, dn: &str) {
        let known = self.entries.get(at).and_then(|entry| self.name(&entry.dn));
        let (Some(known), Some(name), Some(number)) = (known, self.name(dn), number_of(dn)) else { return };
        if known.parent() != name.parent() {
            return;
        }
        self.wanted.insert(*uuid, number);
        if known != name {
            self.make_room(&name, Some(at));
            self.set_number(at, number);
        }
    }

    /// Another entry that has this name gets another number, if the provider has it, too. `own` is the entry that gets the name, if it is
    /// here.
    fn make_room(&mut self, name: &NormalDn, own: Option<usize>) {
        let Some(at) = self.find(name).filter(|at| Some(*at) != own) else { return };
        let Some(other) = self.entries.get(at) else { return };
        let (Some(uuid), Some(number)) = (uuid_of(other), number_of(&other.dn)) else { return };
        if own.is_none() && !self.sent.contains(&uuid) {
            return;
        }
        self.parked.entry(uuid).or_insert(number);
        self.set_number(at, self.parking);
        self.parking = self.parking.saturating_add(1);
    }

    /// Gives an entry another number; what is below it follows.
    fn set_number(&mut self, at: usize, number: i32) {
        let Some(entry) = self.entries.get(at).cloned() else { return };
        let Ok(node) = Node::new(&self.config.schema, Arc::clone(&entry)) else { return };
        let leaf = leaf_of(&entry.dn).map(|(_, leaf)| numbered_leaf(&node.name, &leaf, number));
        let Ok(entry) = leaf.and_then(|leaf| renamed(&entry, &leaf)) else { return };
        self.move_below(at, &entry.dn);
        if let Some(place) = self.entries.get_mut(at) {
            self.changed = true;
            *place = Arc::new(entry);
        }
    }

    fn numbered(&self) -> Result<tree::Tree<'_>, ConfigRefusal> {
        tree::Tree::new(&self.config.schema, self.entries.clone())
    }

    /// Siblings have numbers without gaps, as they have at the provider, which need not send those that only move up or down.
    fn renumber(&mut self) -> Result<(), ConfigRefusal> {
        let mut numbered = self.numbered()?;
        let of = |numbers: &BTreeMap<Uuid, i32>, entry: &ConfigEntry| {
            uuid_of(entry).and_then(|uuid| numbers.get(&uuid).copied())
        };
        let changed = numbered.renumber(|entry| of(&self.wanted, entry), |entry| of(&self.parked, entry))?;
        if changed {
            let entries = numbered.into_entries();
            (self.entries, self.changed) = (entries, true);
        }
        Ok(())
    }

    /// What is below an entry gets its new name.
    fn move_below(&mut self, at: usize, to: &str) {
        let Some(from) = self.entries.get(at).and_then(|entry| self.name(&entry.dn)) else { return };
        for number in 0..self.entries.len() {
            let below = self.entries.get(number).and_then(|entry| {
                let name = self.name(&entry.dn)?;
                let levels = name.depth().checked_sub(from.depth())?;
                (levels > 0 && name.is_within(&from)).then_some((entry.dn.clone(), levels))
            });
            let Some((dn, levels)) = below else { continue };
            let Ok(parsed) = larix_proto::Dn::parse(&dn) else { continue };
            let rdns: Vec<String> = parsed.rdns().iter().take(levels).map(ToString::to_string).collect();
            if let Some(entry) = self.entries.get_mut(number).map(Arc::make_mut) {
                entry.dn = format!("{},{to}", rdns.join(","));
            }
        }
    }

    /// Removes an entry and what is below it.
    fn remove(&mut self, at: usize) {
        let Some(name) = self.entries.get(at).and_then(|entry| self.name(&entry.dn)) else { return };
        let config = self.config;
        self.changed = true;
        self.entries
            .retain(|entry| config.schema.parse_dn(&entry.dn).map_or(true, |other| !other.is_within(&name)));
    }

    /// Removes what the provider does not have and would know of. Answers how many went.
    fn delete_absent(&mut self, present: &Present, seen: &CsnVector) -> u64 {
        let before = self.entries.len();
        let shared = |entry: &&Arc<ConfigEntry>| {
            self.name(&entry.dn).is_some_and(|name| name.is_within(&present.base))
        };
        let known = |entry: &&Arc<ConfigEntry>| csn_of(entry).is_none_or(|csn| seen.covers(&csn));
        let absent: BTreeSet<Uuid> = self
            .entries
            .iter()
            .filter(|entry| known(entry) && shared(entry))
            .filter_map(|entry| uuid_of(entry))
            .filter(|uuid| !present.uuids.contains(uuid))
            .collect();
        for uuid in absent {
            if let Some(at) = self.find_uuid(&uuid) {
                self.remove(at);
            }
        }
        (before - self.entries.len()) as u64
    }

    /// contextCSN rises only.
    fn raise(&mut self, csns: &[Csn]) {
        let parse = |value: &Vec<u8>| std::str::from_utf8(value).ok()?.parse::<Csn>().ok();
        let mut known: Vec<Csn> = self.contexts().iter().filter_map(parse).collect();
        let before = known.clone();
        for csn in csns {
            match known.iter_mut().find(|known| known.server_id == csn.server_id) {
                Some(known) => *known = (*known).max(*csn),
                None => known.push(*csn),
            }
        }
        if known == before {
            return;
        }
        self.changed = true;
        let mut values: Vec<Vec<u8>> = known.iter().map(|csn| csn.text().into_bytes()).collect();
        values.sort();
        self.set_contexts(values);
    }

    fn name(&self, dn: &str) -> Option<NormalDn> {
        self.config.schema.parse_dn(dn).ok()
    }

    fn find(&self, name: &NormalDn) -> Option<usize> {
        self.entries.iter().position(|entry| self.name(&entry.dn).as_ref() == Some(name))
    }

    fn find_uuid(&self, uuid: &Uuid) -> Option<usize> {
        self.entries.iter().position(|entry| uuid_of(entry).as_ref() == Some(uuid))
    }
}

/// The entry that the provider sends whole.
fn put_uuid(change: &ReplicatedChange) -> Option<Uuid> {
    match change {
        ReplicatedChange::Put { entry_uuid, .. } => Some(*entry_uuid),
        ReplicatedChange::Delete { .. } | ReplicatedChange::Delta { .. } => None,
    }
}

/// The `{n}` of an entry that is counted; the frontend is not.
fn number_of(dn: &str) -> Option<i32> {
    EntryName::parse(dn).ok()?.number.filter(|number| *number >= 0)
}

fn values_of(attribute: &LoggedAttribute) -> AttributeValues {
    AttributeValues { description: attribute.description.clone(), values: attribute.values.clone() }
}

fn logged_uuid(attributes: &[LoggedAttribute]) -> Option<Uuid> {
    let own = attributes.iter().find(|a| a.description.eq_ignore_ascii_case("entryUUID"))?;
    Uuid::parse_str(std::str::from_utf8(own.values.first()?).ok()?).ok()
}

/// What a logged change asks for.
fn operation(dn: &str, change: &LoggedChange) -> WriteOperation {
    let modification = |m: &LoggedModification| Modification {
        operation: match m.kind {
            LoggedKind::Add | LoggedKind::SoftAdd => ModifyOperation::Add,
            LoggedKind::Delete => ModifyOperation::Delete,
            LoggedKind::Replace => ModifyOperation::Replace,
            LoggedKind::Increment => ModifyOperation::Increment,
        },
        attribute: values_of(&m.attribute),
    };
    match change {
        LoggedChange::Add(attributes) => {
            let kept =
                attributes.iter().filter(|a| !OWN.iter().any(|own| own.eq_ignore_ascii_case(&a.description)));
            WriteOperation::Add { entry: dn.to_owned(), attributes: kept.map(values_of).collect() }
        }
        LoggedChange::Modify(modifications) => {
            let changes = modifications.iter().map(modification).collect();
            WriteOperation::Modify { object: dn.to_owned(), changes }
        }
        LoggedChange::Delete => WriteOperation::Delete { entry: dn.to_owned() },
        LoggedChange::ModifyDn { new_rdn, delete_old_rdn, .. } => WriteOperation::ModifyDn {
            entry: dn.to_owned(),
            new_rdn: new_rdn.clone(),
            delete_old_rdn: *delete_old_rdn,
            new_superior: None,
        },
    }
}

fn uuid_of(entry: &ConfigEntry) -> Option<Uuid> {
    let value = entry.values("entryUUID").first()?;
    Uuid::parse_str(std::str::from_utf8(value).ok()?).ok()
}

fn csn_of(entry: &ConfigEntry) -> Option<Csn> {
    std::str::from_utf8(entry.values("entryCSN").first()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
