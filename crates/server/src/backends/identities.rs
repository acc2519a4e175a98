//! Looks up identities: the entries that a filter finds with the `auth` privilege.

use larix_configuration::values::LimitRule;
use larix_engine::access::Subject;
use larix_engine::overlay::internal_search::{FoundEntry, InternalLimits, InternalSearch, SearchEnd};
use larix_engine::search::internal;
use larix_engine::search::limits::{RequestedLimits, effective};
use larix_engine::{Database, Fault};
use larix_schema::NormalDn;
use larix_store::Store;

use super::search_limits;
use larix_backend::Identities;

/// The entries of a database that a filter finds, within the limits that are the subject's here, and whether those were all.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn find<S: Store>(
    database: &Database<S>,
    rules: &[LimitRule],
    subject: &Subject,
    request: &Identities<'_>,
) -> Result<(Vec<NormalDn>, bool), Fault> {
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot)?;
    let limits = search_limits::of_search(&view, rules, subject, request.base)?;
    let Identities { base, scope, filter, limit, meter } = *request;
    let query = InternalSearch::for_identity(base, scope, filter, subject);
    let mut found = Vec::new();
    let requested = RequestedLimits { size: limit, ..RequestedLimits::default() };
    let Ok(limits) = effective(limits.as_ref(), requested) else { return Ok((found, false)) };
    let limits = InternalLimits {
        entries: limits.size.map_or(u64::MAX, u64::from),
        unchecked: limits.unchecked,
        ..InternalLimits::default()
    };
    let query = query.within(limits);
    let mut visit = |entry: &dyn FoundEntry| -> Result<bool, Fault> {
        found.push(entry.dn()?.clone());
        Ok(true)
    };
    let searched = match meter {
        None => internal::search(&view, &query, &mut visit)?,
        Some(meter) => match internal::search_charged(&view, meter, &query, &mut visit) {
            Err(Fault::StepsSpent) => {
                meter.overdraw();
                return Ok((Vec::new(), false));
            }
            searched => searched?,
        },
    };
    Ok((found, matches!(searched.ended, SearchEnd::Complete | SearchEnd::NoBase)))
}
