//! Searches under way: a cursor fills the output slice by slice.

use std::fmt::Debug;
use std::sync::Arc;

use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{ControlBuf, LdapResult, frames, limits};

/// Answer bytes above which searches stop until the client has taken some.
pub const OUTPUT_HIGH: usize = 256 * 1024;

/// Candidates that one slice looks at, which others may have to wait for. A new slice costs less than one candidate:
/// searches of many candidates are as fast with 32 as with 128 (two indexed substrings: 14,560/s and 14,668/s).
const SLICE_CANDIDATES: u32 = 128;
/// And after so long it ends where candidates are dear: a small search takes a tenth of it.
const SLICE_NANOS: u64 = 100_000;

/// How far one slice of a search may go.
pub fn slice(clock: &dyn Clock) -> Budget<'_> {
    Budget { candidates: SLICE_CANDIDATES, nanos: SLICE_NANOS, bytes: OUTPUT_HIGH, clock }
}

/// A result with its controls.
pub type End = (LdapResult, Vec<ControlBuf>);

/// What became of a search in its first slice.
#[derive(Debug)]
pub enum First {
    Done {
        result: LdapResult,
        controls: Vec<ControlBuf>,
        effort: Effort,
    },
    /// It goes on with [`Cursor::step`].
    Running(Box<dyn Cursor>),
}

impl First {
    /// A search that ends without a slice.
    pub fn ended(end: End) -> Self {
        Self::Done { result: end.0, controls: end.1, effort: Effort::default() }
    }

    /// Of a search that was only begun.
    pub fn slice_of(mut cursor: Box<dyn Cursor>, clock: &dyn Clock, out: &mut Vec<u8>) -> Self {
        // A cursor that waits needs a follower first.
        if cursor.waits() {
            return Self::Running(cursor);
        }
        match cursor.step(slice(clock), out) {
            StepOutcome::Done(result, controls) => Self::Done { result, controls, effort: cursor.effort() },
            StepOutcome::More | StepOutcome::Waiting => Self::Running(cursor),
        }
    }
}

/// How a step of a search ended: one slice.
#[derive(Debug)]
pub enum StepOutcome {
    /// The budget is used up, or the output is full.
    More,
    /// The caller waits until its follower is notified.
    Waiting,
    Done(LdapResult, Vec<ControlBuf>),
}

/// What a search took.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Entries answered.
    pub entries: u64,
    /// Entries looked at.
    pub candidates: u64,
}

impl Effort {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            candidates: self.candidates.saturating_add(other.candidates),
        }
    }
}

/// A search under way. Dropped, it ends.
pub trait Cursor: Debug + Send {
    /// Goes on for one slice: appends complete messages, until the budget is used up. Between slices it holds nothing that others
    /// wait for.
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome;

    /// What it has taken so far.
    fn effort(&self) -> Effort;

    /// Whether it may have to wait: then [`Self::follow`] is called before its first slice. All other searches only compute, and
    /// their slices can run on any thread.
    fn waits(&self) -> bool {
        false
    }

    /// Whom to tell when it may go on after it waited.
    fn follow(&mut self, _follower: Arc<Follower>) {}

    /// Whether it waits for changes, not for an answer: nothing is owed to its client then.
    fn waits_for_changes(&self) -> bool {
        false
    }

    /// When it ends with timeLimitExceeded although it waits.
    fn deadline(&self) -> Option<Monotonic> {
        None
    }

    /// The client does not take its answers: it holds nothing that other searches wait for.
    fn pause(&mut self) {}

    /// Whether its next slice is more work than others should wait for.
    fn is_dear(&self) -> bool {
        false
    }

    /// The most entries that it may answer, as the client and the limits have it.
    fn size_limit(&self) -> Option<u32> {
        None
    }

    /// Lets it answer at most this many entries: what is left for it of a search over several databases.
    fn limit_size(&mut self, _entries: u32) {}

    /// Makes the page of a paged search smaller: what is left of it for one of several databases.
    fn limit_page(&mut self, _entries: u32) {}
}

/// A limit of entries that is to be no higher than this.
pub fn lowered(limit: Option<u32>, entries: u32) -> Option<u32> {
    Some(limit.map_or(entries, |limit| limit.min(entries)))
}

/// A cursor around another one: it alters what the other answers, and leaves all else to it.
pub trait CursorAround: Debug + Send {
    fn inner(&self) -> &dyn Cursor;

    fn inner_mut(&mut self) -> &mut dyn Cursor;

    /// As [`Cursor::step`].
    fn step_around(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome;

    /// As [`Cursor::effort`].
    fn effort_around(&self) -> Effort {
        self.inner().effort()
    }
}

impl<A: CursorAround> Cursor for A {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        self.step_around(budget, out)
    }

    fn effort(&self) -> Effort {
        self.effort_around()
    }

    fn waits(&self) -> bool {
        self.inner().waits()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.inner_mut().follow(follower);
    }

    fn waits_for_changes(&self) -> bool {
        self.inner().waits_for_changes()
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.inner().deadline()
    }

    fn pause(&mut self) {
        self.inner_mut().pause();
    }

    fn is_dear(&self) -> bool {
        self.inner().is_dear()
    }

    fn size_limit(&self) -> Option<u32> {
        self.inner().size_limit()
    }

    fn limit_size(&mut self, entries: u32) {
        self.inner_mut().limit_size(entries);
    }

    fn limit_page(&mut self, entries: u32) {
        self.inner_mut().limit_page(entries);
    }
}

/// Alters the answers of a search, each by itself.
pub trait AnswerFilter: Debug + Send {
    /// Appends what becomes of a message.
    fn message(&mut self, message: &[u8], out: &mut Vec<u8>);

    /// What becomes of the end.
    fn end(&mut self, end: End) -> End {
        end
    }
}

/// A search whose answers go through a filter.
#[derive(Debug)]
pub struct FilteredSearch<F> {
    inner: Box<dyn Cursor>,
    filter: F,
    /// What the inner search has answered in this slice.
    buffer: Vec<u8>,
}

impl<F: AnswerFilter> FilteredSearch<F> {
    pub fn new(inner: Box<dyn Cursor>, filter: F) -> Self {
        Self { inner, filter, buffer: Vec::new() }
    }
}

impl<F: AnswerFilter> CursorAround for FilteredSearch<F> {
    fn inner(&self) -> &dyn Cursor {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Cursor {
        &mut *self.inner
    }

    fn step_around(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let room = budget.bytes.saturating_sub(out.len());
        let slice = self.inner.step(Budget { bytes: room, ..budget }, &mut self.buffer);
        for message in frames(&self.buffer, limits::PDU_CEILING) {
            self.filter.message(message, out);
        }
        self.buffer.clear();
        match slice {
            StepOutcome::Done(result, controls) => {
                let (result, controls) = self.filter.end((result, controls));
                StepOutcome::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }
}

/// A search whose answers were made when it was opened.
#[derive(Debug)]
pub struct AnsweredSearch {
    pub messages: Vec<u8>,
    pub result: LdapResult,
    pub entries: u64,
}

impl Cursor for AnsweredSearch {
    fn step(&mut self, _: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        out.append(&mut self.messages);
        StepOutcome::Done(std::mem::replace(&mut self.result, LdapResult::success()), Vec::new())
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.entries, candidates: self.entries }
    }
}
