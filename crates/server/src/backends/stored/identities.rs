//! Looks up identities: the entries that a filter finds with the `auth` privilege.

use larix_engine::access::Subject;
use larix_engine::overlay::internal_search::{Ended, InternalLimits, InternalSearch};
use larix_engine::search::internal;
use larix_engine::search::limits::{RequestedLimits, effective};
use larix_engine::{Fault, Limits, View};
use larix_store::{Snapshot, Store};

use super::Stored;
use larix_backend::{Context, Identities};
use larix_schema::NormalDn;

impl Stored {
    /// Appends the entries of this database, within the limits that are the subject's here.
    pub(super) fn find_identities(
        &self,
        context: &Context<'_>,
        request: &Identities<'_>,
        found: &mut Vec<NormalDn>,
    ) -> Result<Ended, Fault> {
        let database = self.served.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let limits = self.own_limits(&view, context.subject, request.base)?;
        let (own, ended) = search(&view, limits.as_ref(), context.subject, request)?;
        found.extend(own);
        Ok(ended)
    }
}

/// The entries that a filter finds within these limits, and whether those were all.
#[cfg(feature = "kv")]
pub(in crate::backends) fn identities_within<N: Snapshot>(
    view: &View<'_, N>,
    limits: Option<&Limits>,
    subject: &Subject,
    request: &Identities<'_>,
) -> Result<(Vec<NormalDn>, bool), Fault> {
    let (found, ended) = search(view, limits, subject, request)?;
    Ok((found, matches!(ended, Ended::Complete | Ended::NoBase)))
}

fn search<N: Snapshot>(
    view: &View<'_, N>,
    limits: Option<&Limits>,
    subject: &Subject,
    request: &Identities<'_>,
) -> Result<(Vec<NormalDn>, Ended), Fault> {
    let Identities { base, scope, filter, limit } = *request;
    let query = InternalSearch::for_identity(base, scope, filter, subject);
    let mut found = Vec::new();
    let requested = RequestedLimits { size: limit, ..RequestedLimits::default() };
    let Ok(limits) = effective(limits, requested) else { return Ok((found, Ended::TooMuchWork)) };
    let limits = InternalLimits {
        entries: limits.size.map_or(u64::MAX, u64::from),
        unchecked: limits.unchecked,
        ..InternalLimits::default()
    };
    let searched = internal::search(view, &query.within(limits), &mut |entry| {
        found.push(entry.dn()?.clone());
        Ok(true)
    })?;
    Ok((found, searched.ended))
}
