//! Looks up identities: the entries that a filter finds with the `auth` privilege.

use larix_engine::Fault;
use larix_engine::overlay::internal_search::{Ended, InternalLimits, InternalSearch};
use larix_engine::search::internal;
use larix_engine::search::limits::{RequestedLimits, effective};
use larix_store::Store;

use super::Stored;
use larix_backend::{Context, Identities};
use larix_schema::NormalDn;

impl Stored {
    /// Appends the entries of this database, within the limits that are the subject's here.
    pub(super) fn find_identities(
        &self,
        context: &Context<'_>,
        asked: &Identities<'_>,
        found: &mut Vec<NormalDn>,
    ) -> Result<Ended, Fault> {
        let Identities { base, scope, filter, limit } = *asked;
        let query = InternalSearch::for_identity(base, scope, filter, context.subject);
        let database = self.served.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let policy = database.current_policy();
        let limits = self.own_limits(&policy, &view, context.subject, base)?;
        let asked = RequestedLimits { size: limit, ..RequestedLimits::default() };
        let Ok(limits) = effective(limits.as_ref(), asked) else { return Ok(Ended::TooMuchWork) };
        let limits = InternalLimits {
            entries: limits.size.map_or(u64::MAX, u64::from),
            unchecked: limits.unchecked,
            ..InternalLimits::default()
        };
        let searched = internal::search(&view, &policy, &query.within(limits), &mut |entry| {
            found.push(entry.dn()?.clone());
            Ok(true)
        })?;
        Ok(searched.ended)
    }
}
