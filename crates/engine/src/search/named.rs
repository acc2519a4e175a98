//! The entries that values of an entry name, without the entries being read.

use larix_schema::{AttributeDescription, NormalDn};
use larix_store::Snapshot;

use super::computed::LOOK_STEPS;
use crate::budget::Meter;
use crate::database::View;
use crate::entry::record::Form;
use crate::entry::{EntryId, values};
use crate::fault::Fault;
use crate::filter::charge;
use crate::key::END;
use crate::tree;

/// distinguishedNameMatch: keys of its values are names in normal form.
const DN_RULE: &str = "2.5.13.1";

/// Superiors that are remembered at once.
const SUPERIORS_MAX: usize = 1_024;

/// The ids of the entries of this database that an attribute of an entry names, ascending, each once. Values that name none are passed
/// over.
pub(crate) fn named_by<V: Snapshot>(
    view: &View<'_, V>,
    meter: Option<&Meter>,
    id: EntryId,
    attribute: &AttributeDescription,
) -> Result<Vec<u64>, Fault> {
    let mut names = Names {
        view,
        meter,
        superiors: foldhash::HashMap::default(),
        as_stored: foldhash::HashMap::default(),
        ids: Vec::new(),
        fault: None,
    };
    let Some(record) = view.record(id)? else { return Ok(Vec::new()) };
    let reader = view.reader(id, &record)?;
    let Some(number) = view.catalog.number(attribute) else { return Ok(Vec::new()) };
    let Some(stored) = reader.view.get(number)? else { return Ok(Vec::new()) };
    let is_name = view.schema.attribute(attribute.attribute).equality.is_some_and(|rule| rule.oid == DN_RULE);
    if stored.form() == Form::Large && is_name {
        // The keys of a large set spare reading its names.
        values::visit(view.snapshot, id, number, &mut |member, value| match whole_name(member) {
            Some(name) => names.note(name),
            None => names.note_value(value),
        })?;
    } else {
        reader.visit_values(number, &stored, &mut |value| names.note_value(value))?;
    }
    if let Some(fault) = names.fault {
        return Err(fault);
    }
    let mut ids = names.ids;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The name that the key of a member holds, if it is whole.
fn whole_name(member: &[u8]) -> Option<&str> {
    let name = member.strip_suffix(&END)?;
    if name.contains(&0) { None } else { std::str::from_utf8(name).ok() }
}

/// The first RDN of a name and the rest, where the first comma parts them.
fn parted(text: &str) -> Option<(&str, &str)> {
    let mut comma = None;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\\' | b'"' | b';' | b'#' => return None,
            b',' if comma.is_none() => comma = Some(at),
            _ => {}
        }
    }
    let comma = comma?;
    text.get(..comma).zip(text.get(comma + 1..))
}

struct Names<'a, V> {
    view: &'a View<'a, V>,
    meter: Option<&'a Meter>,
    /// By their normal names.
    superiors: foldhash::HashMap<Box<str>, Option<EntryId>>,
    /// Those that there are, by their names as values have them.
    as_stored: foldhash::HashMap<Box<str>, EntryId>,
    ids: Vec<u64>,
    fault: Option<Fault>,
}

impl<V: Snapshot> Names<'_, V> {
    fn note_value(&mut self, value: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(value) else { return true };
        if let Some((rdn, superior)) = parted(text)
            && let Some(above) = self.as_stored.get(superior)
        {
            // Most members are below a few entries, whose names are read once.
            let Ok(rdn) = self.view.schema.parse_dn(rdn) else { return true };
            let rdn = rdn.as_str().as_bytes();
            let found = charge(self.meter, LOOK_STEPS)
                .and_then(|()| tree::found_child(self.view.snapshot, *above, rdn, &self.view.found));
            return self.keep(found.map(|found| found.and_then(|located| located.resolved.id)));
        }
        let Ok(dn) = self.view.schema.parse_dn(text) else { return true };
        if !self.note(dn.as_str()) {
            return false;
        }
        if let Some((_, superior)) = parted(text)
            && let Some((_, normal)) = dn.as_str().split_once(',')
            && let Some(Some(above)) = self.superiors.get(normal)
        {
            if self.as_stored.len() >= SUPERIORS_MAX {
                self.as_stored.clear();
            }
            self.as_stored.insert(superior.into(), *above);
        }
        true
    }

    /// Answers false at a fault.
    fn note(&mut self, name: &str) -> bool {
        let found = self.id(name);
        self.keep(found)
    }

    fn keep(&mut self, found: Result<Option<EntryId>, Fault>) -> bool {
        match found {
            Ok(id) => self.ids.extend(id.map(|id| id.0)),
            Err(fault) => self.fault = Some(fault),
        }
        self.fault.is_none()
    }

    fn id(&mut self, name: &str) -> Result<Option<EntryId>, Fault> {
        charge(self.meter, LOOK_STEPS)?;
        // Every comma of a normal name parts two RDNs.
        let (rdn, superior) = name.split_once(',').unwrap_or((name, ""));
        if superior.is_empty() || self.view.settings.suffixes.iter().any(|own| own.normal.as_str() == name) {
            return self.resolve(name);
        }
        let above = match self.superiors.get(superior) {
            Some(known) => *known,
            None => {
                let found = self.resolve(superior)?;
                if self.superiors.len() >= SUPERIORS_MAX {
                    self.superiors.clear();
                }
                self.superiors.insert(superior.into(), found);
                found
            }
        };
        above.map_or(Ok(None), |above| tree::child(self.view.snapshot, above, rdn.as_bytes()))
    }

    fn resolve(&self, name: &str) -> Result<Option<EntryId>, Fault> {
        Ok(self.view.resolve(&NormalDn::from_normal(name))?.and_then(|resolved| resolved.id))
    }
}
