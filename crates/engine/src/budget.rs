//! What a single request may cost: limits with names, and a meter for the work on one entry.
//!
//! A slice of a search ends between two candidates. Work that one candidate or one request can cause beyond that is
//! charged here, where it is done. A request over its budget leaves its worker or ends with adminLimitExceeded, and the
//! text names the limit, so that an operator who needs more knows which word to change.

use std::cell::Cell;
use std::fmt;

use larix_proto::{LdapResult, ResultCode};

/// A limit of one request; the order is that of [`RequestLimit::ALL`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RequestLimit {
    /// Attribute selectors of a search, or of a control of those for read entries, dereferencing and effective rights.
    Selectors,
    /// Keys of a sort control (RFC 2891).
    SortKeys,
    /// Parts of all filters of a request together: assertions, pieces of substrings, AND, OR and NOT.
    FilterTerms,
    /// Bytes of one control in an answer.
    ControlBytes,
    /// Steps of work on one entry of a search: terms evaluated, values compared, sorted by, checked or dereferenced. As many on the
    /// aliases that a search follows.
    Steps,
    /// Modifications of a modify request.
    Modifications,
    /// Values of an add or modify request.
    Values,
    /// Bytes of all updates of one transaction (RFC 5805).
    TransactionBytes,
    /// Updates of one transaction.
    TransactionUpdates,
    /// Rounds of all password hashes of one entry together that a bind computes.
    HashCost,
    /// Attribute descriptions that a database knows: types, each also with every set of options.
    Descriptions,
    /// Persistent searches of one connection (RFC 4533, refreshAndPersist).
    PersistentSearches,
    /// Bytes of the requests that wait on one connection.
    PendingBytes,
}

/// A limit's word in `request-limits`, its default and what it counts.
#[derive(Copy, Clone, Debug)]
pub struct LimitRow {
    pub limit: RequestLimit,
    pub word: &'static str,
    pub default: u64,
    pub what: &'static str,
}

const fn row(limit: RequestLimit, word: &'static str, default: u64, what: &'static str) -> LimitRow {
    LimitRow { limit, word, default, what }
}

impl RequestLimit {
    /// Every limit, in the order of the enumeration.
    pub const ALL: [LimitRow; 13] = [
        row(Self::Selectors, "selectors", 4_096, "attribute selectors in one request"),
        // OpenLDAP's number.
        row(Self::SortKeys, "sortkeys", 5, "keys in a sort control"),
        row(Self::FilterTerms, "filter.terms", 10_000, "filter terms in one request"),
        row(Self::ControlBytes, "control.bytes", 4 << 20, "bytes of one control in an answer"),
        row(Self::Steps, "steps", 2_000_000, "steps of work on one entry"),
        row(Self::Modifications, "modifications", 10_000, "modifications in one request"),
        row(Self::Values, "values", 1_000_000, "values in one request"),
        row(Self::TransactionBytes, "transaction.bytes", 32 << 20, "bytes of a transaction's updates"),
        row(Self::TransactionUpdates, "transaction.updates", 1_000, "updates in one transaction"),
        row(Self::HashCost, "hash.cost", 2_000_000, "hash rounds of one entry's passwords"),
        row(Self::Descriptions, "descriptions", 4_096, "attribute descriptions in one database"),
        row(Self::PersistentSearches, "persistent", 100, "persistent searches on one connection"),
        row(Self::PendingBytes, "pending.bytes", 64 << 20, "bytes of requests that wait on one connection"),
    ];

    fn row(self) -> &'static LimitRow {
        // The table has a row for each: a test holds the order.
        &Self::ALL[self as usize]
    }

    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// The limit that a word of `request-limits` names.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.word.eq_ignore_ascii_case(word)).map(|row| row.limit)
    }
}

/// How much of each a request may ask for. `u64::MAX` is: no limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits([u64; RequestLimit::ALL.len()]);

impl Default for RequestLimits {
    fn default() -> Self {
        Self(RequestLimit::ALL.map(|row| row.default))
    }
}

impl RequestLimits {
    pub const UNLIMITED: Self = Self([u64::MAX; RequestLimit::ALL.len()]);

    pub fn most(&self, limit: RequestLimit) -> u64 {
        self.0[limit as usize]
    }

    pub fn set(&mut self, limit: RequestLimit, most: u64) {
        self.0[limit as usize] = most;
    }

    #[must_use]
    pub fn with(mut self, limit: RequestLimit, most: u64) -> Self {
        self.set(limit, most);
        self
    }

    /// # Errors
    /// More than the limit allows.
    pub fn check(&self, limit: RequestLimit, count: usize) -> Result<(), LimitExceeded> {
        let most = self.most(limit);
        if count as u64 > most { Err(LimitExceeded { limit, most }) } else { Ok(()) }
    }
}

/// A request asked for more than a limit allows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    pub limit: RequestLimit,
    pub most: u64,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitRow { word, what, .. } = self.limit.row();
        write!(f, "more than {} {what} (request-limits {word}=)", self.most)
    }
}

impl std::error::Error for LimitExceeded {}

impl From<LimitExceeded> for LdapResult {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::with(ResultCode::ADMIN_LIMIT_EXCEEDED, exceeded.to_string())
    }
}

/// Counts the work on one entry down. A step is about what it takes to compare one short value.
#[derive(Debug)]
pub struct Meter {
    remaining: Cell<u64>,
    overdrawn: Cell<bool>,
}

impl Meter {
    pub fn new(steps: u64) -> Self {
        Self { remaining: Cell::new(steps), overdrawn: Cell::new(false) }
    }

    /// Takes steps from what is left; false when they are more than that.
    #[inline]
    pub fn take(&self, steps: u64) -> bool {
        let remaining = self.remaining.get();
        self.remaining.set(remaining.saturating_sub(steps));
        if steps > remaining {
            self.overdrawn.set(true);
        }
        steps <= remaining
    }

    /// Leaves nothing: work that has a meter of its own went beyond it.
    pub fn overdraw(&self) {
        self.remaining.set(0);
        self.overdrawn.set(true);
    }

    /// Whether more was to be taken than there was: work was left undone, and what it would have found is not known.
    #[inline]
    pub fn is_overdrawn(&self) -> bool {
        self.overdrawn.get()
    }

    pub fn remaining(&self) -> u64 {
        self.remaining.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_row_and_its_word() {
        for (at, row) in RequestLimit::ALL.iter().enumerate() {
            assert_eq!(row.limit as usize, at, "{}", row.word);
            assert_eq!(RequestLimit::named(&row.word.to_ascii_uppercase()), Some(row.limit));
            assert_eq!(RequestLimits::default().most(row.limit), row.default);
        }
        assert_eq!(RequestLimit::named("speed"), None);
    }

    #[test]
    fn the_guide_has_every_limit() {
        let page = include_str!("../../../docs/guide/limits.md");
        for row in &RequestLimit::ALL {
            let line = format!("| `{}` | {} | ", row.word, row.default);
            assert!(page.contains(&line), "docs/guide/limits.md has no line {line:?}");
        }
    }

    #[test]
    fn a_limit_holds_and_names_itself() {
        let limits = RequestLimits::default().with(RequestLimit::Selectors, 3);
        assert_eq!(limits.check(RequestLimit::Selectors, 3), Ok(()));
        let exceeded = limits.check(RequestLimit::Selectors, 4).unwrap_err();
        let result = LdapResult::from(exceeded);
        assert_eq!(result.code, ResultCode::ADMIN_LIMIT_EXCEEDED);
        assert_eq!(
            result.diagnostic,
            "more than 3 attribute selectors in one request (request-limits selectors=)"
        );
        assert_eq!(RequestLimits::UNLIMITED.check(RequestLimit::Selectors, usize::MAX), Ok(()));
    }

    #[test]
    fn a_meter_ends_for_good() {
        let meter = Meter::new(10);
        assert!(meter.take(10));
        assert_eq!((meter.remaining(), meter.is_overdrawn()), (0, false));
        assert!(!meter.take(1) && !meter.take(u64::MAX));
        assert!(meter.take(0) && meter.is_overdrawn());
        let meter = Meter::new(u64::MAX);
        meter.overdraw();
        assert_eq!((meter.remaining(), meter.is_overdrawn()), (0, true));
    }
}
