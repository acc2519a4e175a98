//! Values that two servers gave before they heard of each other. Both changes were answered, so none is undone: each server that hears of
//! the other's change says which entries share a value, once, and `larix check` says it whenever it is asked.

use larix_engine::overlay::committed::{Committed, CommittedBatch, NotTaken};
use larix_engine::overlay::{Entries, Failure};
use larix_schema::{NormalDn, Schema};

use super::{Check, Unique, terms};

impl Committed for Unique {
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        let Some(committed) = batch.committed.filter(|_| self.receives) else { return Ok(()) };
        for change in batch.changes.iter().filter(|change| change.is_replicated() && !change.record.local) {
            let Some(dn) = change.name_behind(batch.schema) else { continue };
            let looked = committed.look(&mut |entries| {
                for text in self.shared_by(&dn, entries, batch.schema)? {
                    batch.report(text);
                }
                Ok(())
            });
            looked.map_err(|failure| NotTaken::yet(failure.into_result().to_string()))?;
        }
        Ok(())
    }
}

impl Unique {
    /// Each attribute of an entry with a value that another entry of a domain has, without the value.
    fn shared_by(
        &self,
        dn: &NormalDn,
        entries: &dyn Entries,
        schema: &Schema,
    ) -> Result<Vec<String>, Failure> {
        let Some(entry) = entries.entry(dn)? else { return Ok(Vec::new()) };
        let (settings, suffix) = (std::sync::Arc::clone(&self.settings), self.suffix.clone());
        let (before, own) = (dn.clone(), dn.clone());
        let check = Check { settings, suffix, before, dn: own, asserted: Vec::new(), origin: None };
        let mut shared = Vec::new();
        for domain in &self.settings.domains {
            for area in &domain.areas {
                // A store that cannot be read is found out by the search.
                if !check.is_in(area, dn, &entry, entries).unwrap_or(false) {
                    continue;
                }
                let asserted = check.all_of(&entry, (domain, area), entries, schema)?;
                for term in terms(schema, domain, area, &asserted, &entry) {
                    let attribute = term.attribute.clone();
                    if let Some(other) = check.other(area, &[term], entries, schema)? {
                        shared.push(format!(
                            "a value of {attribute} is in \"{}\", which another server changed, and in \"{other}\"",
                            entry.dn
                        ));
                    }
                }
            }
        }
        Ok(shared)
    }
}
