//! Searches that go on with changes (RFC 4533 section 3.4) are not among the requests that `conn_max_pending` counts: they have limits of
//! their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larix_engine::budget::{Exceeded, RequestLimit, RequestLimits};

/// Those of one connection.
#[derive(Debug, Default)]
pub(super) struct Persistent(Option<Arc<Held>>);

#[derive(Debug, Default)]
struct Held {
    searches: AtomicU64,
    /// Of their requests.
    bytes: AtomicU64,
}

/// One of them; dropped, it counts no more.
#[derive(Debug)]
pub(super) struct Persists {
    held: Arc<Held>,
    bytes: u64,
}

impl Persistent {
    /// One more, whose request has so many bytes.
    ///
    /// # Errors
    /// With this one there would be more than `persistent` of them, or more than `pending.bytes` of their requests.
    pub(super) fn one_more(&mut self, limits: &RequestLimits, bytes: usize) -> Result<Persists, Exceeded> {
        let held = self.0.get_or_insert_default();
        let bytes = bytes as u64;
        // The connection alone adds; others only take away.
        let searches = held.searches.load(Ordering::Relaxed).saturating_add(1);
        let together = held.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        for (limit, asked) in
            [(RequestLimit::PersistentSearches, searches), (RequestLimit::PendingBytes, together)]
        {
            limits.check(limit, usize::try_from(asked).unwrap_or(usize::MAX))?;
        }
        held.searches.fetch_add(1, Ordering::Relaxed);
        held.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Persists { held: Arc::clone(held), bytes })
    }
}

impl Drop for Persists {
    fn drop(&mut self) {
        self.held.searches.fetch_sub(1, Ordering::Relaxed);
        self.held.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
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
        let mut persistent = Persistent::default();
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
