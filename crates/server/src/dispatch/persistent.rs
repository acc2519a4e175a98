//! Counts the searches of a connection that go on with changes (RFC 4533 section 3.4). `conn_max_pending` does not count them: they have
//! limits of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larix_engine::budget::{LimitExceeded, RequestLimit, RequestLimits};

/// The persistent searches of one connection.
#[derive(Debug, Default)]
pub(super) struct PersistentSearches(Option<Arc<Totals>>);

#[derive(Debug, Default)]
struct Totals {
    searches: AtomicU64,
    /// The bytes of their requests.
    bytes: AtomicU64,
    /// The terms of their filters: each is kept, and looked at with each change.
    terms: AtomicU64,
}

/// Counts one persistent search until it is dropped.
#[derive(Debug)]
pub(super) struct PersistentGuard {
    totals: Arc<Totals>,
    bytes: u64,
    terms: u64,
}

impl PersistentSearches {
    /// Counts one more, whose request has so many bytes, and its filter so many terms.
    ///
    /// # Errors
    /// With this one there would be more than `persistent` of them, more than `pending.bytes` of their requests, or more than `filter.terms` of
    /// their filters.
    pub(super) fn one_more(
        &mut self,
        limits: &RequestLimits,
        (bytes, terms): (usize, u64),
    ) -> Result<PersistentGuard, LimitExceeded> {
        let totals = self.0.get_or_insert_default();
        let bytes = bytes as u64;
        // The connection alone adds; others only take away.
        let searches = totals.searches.load(Ordering::Relaxed).saturating_add(1);
        let together = totals.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        let all_terms = totals.terms.load(Ordering::Relaxed).saturating_add(terms);
        for (limit, amount) in [
            (RequestLimit::PersistentSearches, searches),
            (RequestLimit::PendingBytes, together),
            (RequestLimit::FilterTerms, all_terms),
        ] {
            limits.check(limit, usize::try_from(amount).unwrap_or(usize::MAX))?;
        }
        totals.searches.fetch_add(1, Ordering::Relaxed);
        totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        totals.terms.fetch_add(terms, Ordering::Relaxed);
        Ok(PersistentGuard { totals: Arc::clone(totals), bytes, terms })
    }
}

impl Drop for PersistentGuard {
    fn drop(&mut self) {
        self.totals.searches.fetch_sub(1, Ordering::Relaxed);
        self.totals.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.totals.terms.fetch_sub(self.terms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_counts_no_more() {
        let limits = RequestLimits::default()
            .with(RequestLimit::PersistentSearches, 2)
            .with(RequestLimit::PendingBytes, 100)
            .with(RequestLimit::FilterTerms, 10);
        let mut persistent = PersistentSearches::default();
        let mut one_more = |bytes, terms| persistent.one_more(&limits, (bytes, terms));
        let first = one_more(40, 4).unwrap();
        let second = one_more(60, 6).unwrap();
        assert_eq!(one_more(0, 0).unwrap_err().limit, RequestLimit::PersistentSearches);
        drop(second);
        assert_eq!(one_more(61, 1).unwrap_err().limit, RequestLimit::PendingBytes);
        assert_eq!(one_more(1, 7).unwrap_err().limit, RequestLimit::FilterTerms);
        let second = one_more(60, 6).unwrap();
        drop((first, second));
        assert!(one_more(100, 10).is_ok());
    }
}
