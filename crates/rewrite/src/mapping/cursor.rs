//! A search whose answers are mapped.

use std::sync::Arc;

use larix_backend::{Cursor, Effort, Slice};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{Frame, frame, limits};

use super::Answers;

/// The cursor of a backend, with its answers mapped.
#[derive(Debug)]
pub struct Mapped {
    inner: Box<dyn Cursor>,
    answers: Answers,
    /// What the backend has answered in this slice.
    buffer: Vec<u8>,
}

impl Mapped {
    pub fn new(inner: Box<dyn Cursor>, answers: Answers) -> Self {
        Self { inner, answers, buffer: Vec::new() }
    }
}

impl Cursor for Mapped {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Slice {
        let room = budget.bytes.saturating_sub(out.len());
        let slice = self.inner.step(Budget { bytes: room, ..budget }, &mut self.buffer);
        let mut left = self.buffer.as_slice();
        while let Ok(Frame::Complete { len }) = frame(left, limits::PDU_CEILING) {
            let (message, rest) = left.split_at(len);
            left = rest;
            self.answers.message(message, out);
        }
        self.buffer.clear();
        match slice {
            Slice::Done(mut result, mut controls) => {
                self.answers.result(&mut result);
                self.answers.controls(&mut controls);
                Slice::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }

    fn effort(&self) -> Effort {
        self.inner.effort()
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.inner.follow(follower);
    }

    fn waits_for_changes(&self) -> bool {
        self.inner.waits_for_changes()
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.inner.deadline()
    }

    fn pause(&mut self) {
        self.inner.pause();
    }

    fn is_dear(&self) -> bool {
        self.inner.is_dear()
    }

    fn size_limit(&self) -> Option<u32> {
        self.inner.size_limit()
    }

    fn limit_size(&mut self, entries: u32) {
        self.inner.limit_size(entries);
    }

    fn limit_page(&mut self, entries: u32) {
        self.inner.limit_page(entries);
    }
}
