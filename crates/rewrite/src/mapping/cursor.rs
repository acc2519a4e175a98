//! A search whose answers are mapped.

use larix_backend::{Cursor, CursorAround, StepOutcome};
use larix_engine::search::task::Budget;
use larix_proto::{frames, limits};

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

impl CursorAround for Mapped {
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
            self.answers.message(message, out);
        }
        self.buffer.clear();
        match slice {
            StepOutcome::Done(mut result, mut controls) => {
                self.answers.result(&mut result);
                self.answers.controls(&mut controls);
                StepOutcome::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }
}
