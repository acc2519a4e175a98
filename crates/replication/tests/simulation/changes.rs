//! What clients do, and what they were promised.

use std::collections::{BTreeMap, BTreeSet};

use larix_engine::csn::Csn;
use larix_engine::log::LoggedChange;
use larix_engine::replica::ReplicatedChange;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::ModifyOperation;

use crate::node::{Kind, Node, SUFFIX, Shown};
use crate::random::{Random, Trace};
use crate::setup::{Setup, Tree};

/// What was acknowledged, by entryUUID.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// The newest change of each entry.
    newest: BTreeMap<String, Newest>,
    deleted: BTreeSet<String>,
    /// The DNs that containers were seen under, by entryUUID.
    names: BTreeMap<String, BTreeSet<String>>,
    made: u32,
}

#[derive(Debug)]
struct Newest {
    csn: Csn,
    /// What the entry was behind it.
    shown: Shown,
    /// What it gave `description`.
    given: BTreeSet<String>,
}

fn description(shown: &Shown) -> BTreeSet<String> {
    shown.1.get("description").cloned().unwrap_or_default()
}

fn is_container(shown: &Shown) -> bool {
    shown.1["objectClass"].contains("organizationalUnit")
}

impl Promises {
    /// One change at one server.
    pub(crate) fn change(&mut self, node: &Node, setup: Setup, random: &mut Random, trace: &mut Trace) {
        if node.kind != Kind::Member {
            return;
        }
        let before = node.content();
        self.see(&before);
        let Some(operation) = self.operation(&before, setup, random) else { return };
        let text = format!("{} {operation:?}", node.id);
        let result = node.change(operation);
        trace.note(format_args!("{text}: {}", result.code.0));
        if result.is_success() {
            let after = node.content();
            self.see(&after);
            self.keep(&before, &after);
        }
    }

    /// Keeps what containers are called.
    pub(crate) fn see(&mut self, content: &BTreeMap<String, Shown>) {
        for (uuid, shown) in content.iter().filter(|(_, shown)| is_container(shown)) {
            self.names.entry(uuid.clone()).or_default().insert(shown.0.clone());
        }
    }

    /// Whether a superior of an entry was called otherwise once, or is none any more.
    pub(crate) fn superior_was_renamed(&self, content: &BTreeMap<String, Shown>, dn: &str) -> bool {
        let superiors = dn.match_indices(',').map(|(at, _)| &dn[at + 1..]);
        superiors.take_while(|dn| *dn != SUFFIX).any(|superior| {
            let found = content.iter().find(|(_, shown)| shown.0 == superior);
            found.is_none_or(|(uuid, _)| self.names.get(uuid).is_some_and(|names| names.len() > 1))
        })
    }

    fn operation(
        &mut self,
        content: &BTreeMap<String, Shown>,
        Setup { tree, values: by_value, .. }: Setup,
        random: &mut Random,
    ) -> Option<WriteOperation> {
        let containers: Vec<&Shown> =
            content.values().filter(|shown| is_container(shown) || shown.0 == SUFFIX).collect();
        if containers.is_empty() {
            return None;
        }
        let superior = random.pick(&containers).0.clone();
        let all: Vec<&Shown> = content.values().collect();
        let entry = *random.pick(&all);
        let name = *random.pick(&["x", "y", "z", "w"]);
        let (kind, roll) = (random.below(12), random.next());
        self.made += 1;
        let number = self.made.to_string();
        let is_free = entry.0 != SUFFIX;
        let may_move = is_free && (tree == Tree::Containers || !is_container(entry));
        Some(match kind {
            0..=3 => add(
                &format!("cn={name},{superior}"),
                &[("objectClass", "device"), ("cn", name), ("description", &number)],
            ),
            4 if tree == Tree::Containers => add(
                &format!("ou={name},{superior}"),
                &[("objectClass", "organizationalUnit"), ("ou", name), ("description", &number)],
            ),
            4..=6 if is_free => {
                let kinds = [ModifyOperation::Replace, ModifyOperation::Add, ModifyOperation::Delete];
                let operation = *random.pick(if by_value { &kinds } else { &kinds[..2] });
                let given: &[&str] = if operation == ModifyOperation::Delete { &[] } else { &[&number] };
                let attribute = values("description", given);
                let changes = vec![Modification { operation, attribute }];
                WriteOperation::Modify { object: entry.0.clone(), changes }
            }
            7..=9 if may_move => WriteOperation::ModifyDn {
                entry: entry.0.clone(),
                new_rdn: format!("{}={name}", if is_container(entry) { "ou" } else { "cn" }),
                delete_old_rdn: roll % 2 == 0,
                new_superior: (kind > 7).then_some(superior),
            },
            10..=11 if may_move => WriteOperation::Delete { entry: entry.0.clone() },
            _ => return None,
        })
    }

    /// Takes in what a change has changed.
    pub(crate) fn keep(&mut self, before: &BTreeMap<String, Shown>, behind: &BTreeMap<String, Shown>) {
        for uuid in before.keys().filter(|uuid| !behind.contains_key(*uuid)) {
            self.deleted.insert(uuid.clone());
            self.newest.remove(uuid);
        }
        for (uuid, shown) in behind {
            let csn = csn_of(shown);
            let is_changed = before.get(uuid).is_none_or(|old| csn_of(old) != csn);
            let newest = self.newest.get(uuid).is_none_or(|known| known.csn < csn);
            if is_changed && newest && !self.deleted.contains(uuid) {
                let old = before.get(uuid).map(description).unwrap_or_default();
                let given = description(shown).difference(&old).cloned().collect();
                self.newest.insert(uuid.clone(), Newest { csn, shown: shown.clone(), given });
            }
        }
    }

    /// What a server that has heard of everything lacks of what was promised, or has though it may not.
    pub(crate) fn broken(&self, content: &BTreeMap<String, Shown>, by_value: bool) -> Option<String> {
        if let Some(uuid) = self.deleted.iter().find(|uuid| content.contains_key(*uuid)) {
            return Some(format!("{uuid} was deleted and is back: {:?}", content[uuid]));
        }
        for (uuid, Newest { csn, shown, given }) in &self.newest {
            let Some(found) = content.get(uuid) else {
                return Some(format!("{uuid} is lost: {shown:?}"));
            };
            if csn_of(found) < *csn {
                return Some(format!("{uuid} has lost a change: {shown:?}, found {found:?}"));
            }
            // Value by value what others gave it may be there, too.
            let is_kept = match by_value {
                true => given.is_subset(&description(found)),
                false => description(found) == description(shown),
            };
            if csn_of(found) == *csn && !is_kept {
                return Some(format!("{uuid} is not what it was made: {shown:?}, found {found:?}"));
            }
        }
        None
    }
}

fn csn_of(shown: &Shown) -> Csn {
    shown.1["entryCSN"].first().unwrap().parse().unwrap()
}

fn values(name: &str, values: &[&str]) -> AttributeValues {
    AttributeValues {
        description: name.to_owned(),
        values: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
    }
}

pub(crate) fn add(dn: &str, attributes: &[(&str, &str)]) -> WriteOperation {
    WriteOperation::Add {
        entry: dn.to_owned(),
        attributes: attributes.iter().map(|(name, value)| values(name, &[value])).collect(),
    }
}

/// A change in a line of the trace.
pub(crate) fn shown(change: &ReplicatedChange) -> String {
    match change {
        ReplicatedChange::Put { entry_uuid, dn, attributes, .. } => {
            let csn = attributes.iter().find(|a| a.description == "entryCSN");
            let csn = csn.map(|a| String::from_utf8_lossy(&a.values[0]).into_owned()).unwrap_or_default();
            format!("put {entry_uuid} {dn} {csn}")
        }
        ReplicatedChange::Delete { entry_uuid, csn } => {
            format!("delete {entry_uuid} {}", csn.map(|csn| csn.text()).unwrap_or_default())
        }
        ReplicatedChange::Delta { entry_uuid, dn, csn, change, .. } => {
            let uuid = entry_uuid.map(|uuid| uuid.to_string()).unwrap_or_default();
            let what = match change {
                LoggedChange::Add(_) => "add".to_owned(),
                LoggedChange::Modify(mods) => {
                    let names: Vec<&str> = mods.iter().map(|m| m.attribute.description.as_str()).collect();
                    format!("modify {}", names.join(","))
                }
                LoggedChange::Delete => "delete".to_owned(),
                LoggedChange::ModifyDn { new_rdn, new_superior, .. } => {
                    format!("rename {new_rdn} {new_superior:?}")
                }
            };
            format!("delta {uuid} {dn} {} {what}", csn.text())
        }
    }
}
