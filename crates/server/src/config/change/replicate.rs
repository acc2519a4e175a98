//! Changes of cn=config that another server made: entries as they are there.

use std::sync::Arc;

use std::collections::BTreeSet;

use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;
use larix_engine::replica::{Applied, ReplicatedChange, UuidSet};
use larix_engine::write::AttributeValues;
use larix_proto::ldif::LdifAttribute;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use uuid::Uuid;

use super::{Changed, ConfigRefusal};
use crate::config::entries::ConfigEntry;
use crate::config::model::Config;
use crate::config::slapd_d::Stamp;

/// What each server computes, or keeps for itself.
const OWN: [&str; 4] = ["contextCSN", "entryDN", "subschemaSubentry", "hasSubordinates"];

/// What a provider's changes make of the configuration.
#[derive(Debug)]
pub(crate) struct Replicated {
    /// None: nothing is to be done.
    pub(crate) changed: Option<Changed>,
    /// In the order of the changes.
    pub(crate) applied: Vec<Applied>,
    /// Entries that went because the provider does not have them.
    pub(crate) absent: u64,
}

impl Config {
    /// What these changes of a provider make of the configuration, in their order; with `present`, entries go that are
    /// not among them. Only what comes of all has to be a valid configuration.
    ///
    /// # Errors
    /// What is wrong with the configuration that would come of it.
    pub(crate) fn replicated(
        &self,
        changes: &[ReplicatedChange],
        present: Option<&UuidSet>,
        context_csns: &[Csn],
        stamp: &Stamp<'_>,
    ) -> Result<Replicated, ConfigRefusal> {
        let mut tree = Tree { config: self, entries: self.entries(), changed: false };
        tree.entries.iter_mut().for_each(|entry| stamp.complete(entry));
        let applied = changes.iter().map(|change| tree.apply(change)).collect();
        let seen: CsnVector = context_csns.iter().copied().collect();
        let absent = present.map_or(0, |present| tree.delete_absent(present, &seen));
        tree.raise(context_csns);
        if !tree.changed {
            return Ok(Replicated { changed: None, applied, absent });
        }
        let entries = tree.entries.into_iter().map(Arc::new).collect();
        let (config, files) = self.accepted(entries, false)?;
        let changed = Changed {
            config,
            dn: "cn=config".to_owned(),
            before: None,
            after: None,
            controls: Vec::new(),
            no_op: false,
            files,
        };
        Ok(Replicated { changed: Some(changed), applied, absent })
    }
}

struct Tree<'c> {
    config: &'c Config,
    entries: Vec<ConfigEntry>,
    changed: bool,
}

impl Tree<'_> {
    fn apply(&mut self, change: &ReplicatedChange) -> Applied {
        match change {
            ReplicatedChange::Put { entry_uuid, dn, attributes } => self.put(entry_uuid, dn, attributes),
            ReplicatedChange::Delete { entry_uuid, .. } => match self.find_uuid(entry_uuid) {
                Some(at) => {
                    self.remove(at);
                    Applied::Done
                }
                None => Applied::Older,
            },
            ReplicatedChange::Delta { .. } => {
                let text = "cn=config is replicated entry by entry";
                Applied::Refused(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text))
            }
        }
    }

    fn put(&mut self, uuid: &Uuid, dn: &str, attributes: &[AttributeValues]) -> Applied {
        let Some(name) = self.name(dn) else {
            let text = format!("\"{dn}\" is no name");
            return Applied::Refused(LdapResult::with(ResultCode::INVALID_DN_SYNTAX, text));
        };
        let kept = |attribute: &&AttributeValues| {
            let description = attribute.description.as_str();
            !attribute.values.is_empty() && !OWN.iter().any(|own| own.eq_ignore_ascii_case(description))
        };
        let attribute = |a: &AttributeValues| LdifAttribute {
            description: a.description.clone(),
            values: a.values.clone(),
        };
        let mut entry = ConfigEntry {
            dn: dn.to_owned(),
            attributes: attributes.iter().filter(kept).map(attribute).collect(),
        };
        // objectClass comes first, as in the files.
        entry.attributes.sort_by_key(|a| !a.description.eq_ignore_ascii_case("objectClass"));
        let same = self.find_uuid(uuid);
        if let Some(known) = same.and_then(|at| self.entries.get(at))
            && csn_of(known) >= csn_of(&entry)
        {
            return Applied::Older;
        }
        // The provider's entry takes the place of one that was made here under its name.
        let Some(at) = same.or_else(|| self.find(&name)) else {
            self.changed = true;
            self.entries.push(entry);
            return Applied::Done;
        };
        if let Some(known) = self.entries.get(at) {
            let context = known.values("contextCSN").to_vec();
            if !context.is_empty() {
                entry
                    .attributes
                    .push(LdifAttribute { description: "contextCSN".to_owned(), values: context });
            }
            if self.name(&known.dn).is_some_and(|before| before != name) {
                self.move_below(at, dn);
            }
        }
        if let Some(place) = self.entries.get_mut(at) {
            self.changed = true;
            *place = entry;
        }
        Applied::Done
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
            if let Some(entry) = self.entries.get_mut(number) {
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
    fn delete_absent(&mut self, present: &UuidSet, seen: &CsnVector) -> u64 {
        let before = self.entries.len();
        let known = |entry: &&ConfigEntry| csn_of(entry).is_none_or(|csn| seen.covers(&csn));
        let gone: BTreeSet<Uuid> = self
            .entries
            .iter()
            .filter(known)
            .filter_map(uuid_of)
            .filter(|uuid| !present.contains(uuid))
            .collect();
        for uuid in gone {
            if let Some(at) = self.find_uuid(&uuid) {
                self.remove(at);
            }
        }
        (before - self.entries.len()) as u64
    }

    /// contextCSN rises only.
    fn raise(&mut self, csns: &[Csn]) {
        let Some(top) = self.find(&NormalDn::from_normal("cn=config")) else { return };
        let Some(entry) = self.entries.get_mut(top) else { return };
        let parse = |value: &Vec<u8>| std::str::from_utf8(value).ok()?.parse::<Csn>().ok();
        let mut known: Vec<Csn> = entry.values("contextCSN").iter().filter_map(parse).collect();
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
        entry.attributes.retain(|a| !a.description.eq_ignore_ascii_case("contextCSN"));
        entry.attributes.push(LdifAttribute { description: "contextCSN".to_owned(), values });
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

pub(crate) fn uuid_of(entry: &ConfigEntry) -> Option<Uuid> {
    let value = entry.values("entryUUID").first()?;
    Uuid::parse_str(std::str::from_utf8(value).ok()?).ok()
}

fn csn_of(entry: &ConfigEntry) -> Option<Csn> {
    std::str::from_utf8(entry.values("entryCSN").first()?).ok()?.parse().ok()
}
