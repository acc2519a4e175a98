//! References in other databases. No commit is common to two databases, so what follows there from a delete or a rename comes
//! after it: the change log of the database in which it was made, which is durable before the answer, says what is still to be done,
//! and that is asked of the other database's writer. After a crash the last changes come again; what is done already is found to be.

use std::sync::Arc;

use larix_engine::log::LoggedChange;
use larix_engine::overlay::committed::{Committed, CommittedBatch, CommittedChange, NotTaken};
use larix_engine::overlay::internal_search::{InternalSearch, SearchEnd};
use larix_engine::overlay::{
    Consequence, Entries, Failure, FollowUpElsewhere, Name, ReferenceTarget, Refusal,
};
use larix_proto::Scope;
use larix_schema::{BoundFilter, NormalDn, Schema};

use super::{ReferenceUpdate, ReferentialIntegrity, ReferentialIntegritySettings, shown};

/// Another database whose references follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherDatabase {
    /// One of its suffixes.
    pub suffix: NormalDn,
    /// modifiersName of entries that are changed there; `None`: its root DN's, or none at all.
    pub modifier: Option<String>,
    /// Whether changes of it come from other servers: what followed there comes, too.
    pub receives: bool,
}

/// A name that an entry had until a committed change.
struct Departed {
    dn: NormalDn,
    target: Option<NormalDn>,
    /// Another server made the change.
    replicated: bool,
}

impl Departed {
    fn of(change: &CommittedChange, schema: &Schema) -> Option<Self> {
        let target = match &change.record.change {
            LoggedChange::Delete => None,
            LoggedChange::ModifyDn { .. } => Some(change.name_behind(schema)?),
            LoggedChange::Add(_) | LoggedChange::Modify(_) => return None,
        };
        if change.record.local {
            return None;
        }
        let dn = schema.parse_dn(&change.record.dn).ok()?;
        Some(Self { dn, target, replicated: change.is_replicated() })
    }
}

impl Committed for ReferentialIntegrity {
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        let departed = batch.changes.iter().filter_map(|change| Departed::of(change, batch.schema));
        let departed: Vec<Departed> = departed.collect();
        let mut failed: Option<NotTaken> = None;
        for other in &self.settings.others {
            let settings = || ReferentialIntegritySettings {
                modifier: other.modifier.clone(),
                others: Vec::new(),
                ..ReferentialIntegritySettings::clone(&self.settings)
            };
            let settings = Arc::new(settings());
            let meant = departed.iter().filter(|departed| !(departed.replicated && other.receives));
            let follow_ups = meant.map(|Departed { dn, target, .. }| {
                let (dn, target) = (dn.clone(), target.clone());
                let update =
                    ReferenceUpdate { settings: Arc::clone(&settings), dn, below: target.is_some(), target };
                Arc::new(OtherDatabaseUpdate(update)) as Arc<dyn FollowUpElsewhere>
            });
            let follow_ups: Vec<_> = follow_ups.collect();
            if follow_ups.is_empty() {
                continue;
            }
            // One database that cannot follow now keeps no other from it.
            if let Err(not_taken) = batch.others.follow(&other.suffix, follow_ups)
                && failed.as_ref().is_none_or(|failed| !failed.again)
            {
                failed = Some(not_taken);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// References to an entry of another database that has gone from there, or is called otherwise.
#[derive(Debug)]
struct OtherDatabaseUpdate(ReferenceUpdate);

impl OtherDatabaseUpdate {
    /// Whether names below the entry's are looked for, too: not where it is known that nothing is below it.
    fn is_followed_below(&self, entries: &dyn Entries) -> Result<bool, Failure> {
        let Some(target) = &self.0.target else { return Ok(self.0.below) };
        let children = InternalSearch::new(target, Scope::OneLevel, &BoundFilter::True).of_what_is_stored();
        let searched = entries.finds_any(&children)?;
        Ok(searched.entries > 0 || searched.ended == SearchEnd::NoBase)
    }
}

impl FollowUpElsewhere for OtherDatabaseUpdate {
    fn consequences(&self, entries: &dyn Entries, schema: &Schema) -> Result<Vec<Consequence>, Refusal> {
        let update = &self.0;
        let sought = match self.is_followed_below(entries)? {
            true => ReferenceTarget::Within(&update.dn),
            false => ReferenceTarget::Name(&update.dn),
        };
        let mut referrers = entries.referrers(&update.settings.attributes, sought)?;
        for reference in referrers.iter_mut().flat_map(|referrer| &mut referrer.references) {
            let mut left: Vec<Name> = Vec::with_capacity(reference.names.len());
            for name in std::mem::take(&mut reference.names) {
                // An entry has the name again: it may be the one that is meant.
                if !entries.exists(&name.normal)? {
                    left.push(name);
                }
            }
            reference.names = left;
        }
        let target = update.target.as_ref().map(|target| shown(target, entries)).transpose()?;
        update.followed(referrers, schema, target.as_deref())
    }
}
