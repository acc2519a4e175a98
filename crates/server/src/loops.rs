//! The event loops of a server, as far as one of them stands still: its thread has left it to wait for another machine.

use std::sync::atomic::{AtomicBool, Ordering};

/// Which of the loops may be left. One at a time, and not the only one: a client that connects finds one that turns.
#[derive(Debug)]
pub(crate) struct Loops {
    count: usize,
    is_one_left: AtomicBool,
}

impl Loops {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, is_one_left: AtomicBool::new(false) }
    }

    /// A loop is left until this is dropped; none if that may not be.
    pub(crate) fn leave(&self) -> Option<LeftLoop<'_>> {
        let may_leave = self.count > 1 && !self.is_one_left.swap(true, Ordering::AcqRel);
        may_leave.then(|| LeftLoop(self))
    }
}

/// A loop is left.
#[derive(Debug)]
pub(crate) struct LeftLoop<'l>(&'l Loops);

impl Drop for LeftLoop<'_> {
    fn drop(&mut self) {
        self.0.is_one_left.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loop_is_left_at_a_time_and_never_the_only_one() {
        assert!(Loops::new(1).leave().is_none());
        let loops = Loops::new(2);
        let left = loops.leave();
        assert!(left.is_some() && loops.leave().is_none());
        drop(left);
        assert!(loops.leave().is_some());
    }
}
