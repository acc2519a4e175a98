//! Counts the searches of a connection that go on with changes (RFC 4533 section 3.4). `conn_max_pending` does not count them: they have
//! limits of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larix_engine::budget::{Exceeded, RequestLimit, RequestLimits};

/// The persistent searches of one connection.
#[derive(Debug, Default)]
pub(super) struct PersistentSearches(Option<Arc<Totals>>);

#[derive(Debug, Default)]
struct Totals {
    searches: AtomicU64,
    /// The bytes of their requests.
    bytes: AtomicU64,
}

/// Counts one persistent search until it is dropped.
#[derive(Debug)]
pub(super) struct PersistentGuard {
    totals: Arc<Totals>,
    bytes: u64,
}

impl PersistentSearches {
    /// Counts one more, whose request has so many bytes.
    ///
    /// # Errors
    /// With this one there would be more than `persistent` of them, or more than `pending.bytes` of their requests.
    pub(super) fn one_more(
        &mut self,
        limits: &RequestLimits,
        bytes: usize,
    ) -> Result<PersistentGuard, Exceeded> {
        let totals = self.0.get_or_insert_default();
        let bytes = bytes as u64;
        // The connection alone adds; others only take away.
        let searches = totals.searches.load(Ordering::Relaxed).saturating_add(1);
        let together = totals.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        for (limit, amount) in
            [(RequestLimit::PersistentSearches, searches), (RequestLimit::PendingBytes, together)]
        {
            limits.check(limit, usize::try_from(amount).unwrap_or(usize::MAX))?;
        }
        totals.searches.fetch_add(1, Ordering::Relaxed);
        totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(PersistentGuard { totals: Arc::clone(totals), bytes })
    }
}

impl Drop for PersistentGuard {
    fn drop(&mut self) {
        self.totals.searches.fetch_sub(1, Ordering::Relaxed);
        self.totals.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_counts_no_more() {
        let limits = RequestLimits::default()
            .with(RequestLimit::PersistentSearches, 2)
            .with(RequestLimit::PendingBytes, 100);
        let mut persistent = PersistentSearches::default();
        let first = persistent.one_more(&limits, 40).unwrap();
        let second = persistent.one_more(&limits, 60).unwrap();
        assert_eq!(persistent.one_more(&limits, 0).unwrap_err().limit, RequestLimit::PersistentSearches);
        drop(second);
        assert_eq!(persistent.one_more(&limits, 61).unwrap_err().limit, RequestLimit::PendingBytes);
        let second = persistent.one_more(&limits, 60).unwrap();
        drop((first, second));
        assert!(persistent.one_more(&limits, 100).is_ok());
    }
}
