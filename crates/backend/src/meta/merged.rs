//! A search in several targets at the same time: what each has goes on as it comes.

use std::sync::Arc;

use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{ControlBuf, LdapResult, ResultCode};

use super::OnError;
use crate::cursor::{Cursor, Effort, End, StepOutcome, lowered};

/// A search under way in several targets.
#[derive(Debug)]
pub(super) struct MergedSearch {
    parts: Vec<TargetCursor>,
    /// The part whose turn it is.
    turn: usize,
    on_error: OnError,
    /// Entries of all targets together.
    size_limit: Option<u32>,
    /// Of targets that are done.
    done: Effort,
    outcome: Outcome,
    /// What the end says beside the result.
    controls: Vec<ControlBuf>,
}

#[derive(Debug)]
struct TargetCursor {
    cursor: Box<dyn Cursor>,
    /// It begins at the suffix of the target, below the base of the request.
    is_moved: bool,
}

/// What the targets that are done have said.
#[derive(Debug, Default)]
struct Outcome {
    has_success: bool,
    referrals: Vec<String>,
    first_error: Option<LdapResult>,
    /// How far the names of targets without the base led.
    matched: String,
}

impl MergedSearch {
    /// `above`: the suffix of the database, for a base that no target has.
    pub(super) fn new(on_error: OnError, size_limit: u32, above: String, controls: Vec<ControlBuf>) -> Self {
        Self {
            parts: Vec::new(),
            turn: 0,
            on_error,
            size_limit: (size_limit > 0).then_some(size_limit),
            done: Effort::default(),
            outcome: Outcome { matched: above, ..Outcome::default() },
            controls,
        }
    }

    /// Adds a target.
    ///
    /// # Errors
    /// The end of the search, if it ends with the error of this target.
    pub(super) fn add(
        &mut self,
        opened: Result<Box<dyn Cursor>, Box<End>>,
        is_moved: bool,
    ) -> Result<(), Box<End>> {
        match opened {
            Ok(cursor) => {
                self.parts.push(TargetCursor { cursor, is_moved });
                Ok(())
            }
            Err(end) => match self.ended(end.0, 0, is_moved) {
                Some(result) => Err(Box::new((result, Vec::new()))),
                None => Ok(()),
            },
        }
    }

    /// Entries that were answered by all targets.
    fn entries(&self) -> u64 {
        self.effort().entries
    }

    /// How many entries there may still be.
    fn remaining(&self) -> Option<u32> {
        let sent = u32::try_from(self.entries()).unwrap_or(u32::MAX);
        self.size_limit.map(|limit| limit.saturating_sub(sent))
    }

    /// A target is done, after so many entries; the result of the search where it ends with that.
    fn ended(&mut self, result: LdapResult, entries: u64, is_moved: bool) -> Option<LdapResult> {
        let outcome = &mut self.outcome;
        outcome.has_success |= entries > 0;
        match result.code {
            ResultCode::SUCCESS => outcome.has_success = true,
            ResultCode::REFERRAL => {
                outcome.has_success = true;
                outcome.referrals.extend(result.referrals);
            }
            ResultCode::NO_SUCH_OBJECT => {
                if !is_moved && result.matched_dn.len() > outcome.matched.len() {
                    outcome.matched = result.matched_dn;
                }
            }
            ResultCode::SIZE_LIMIT_EXCEEDED if self.remaining() == Some(0) => return Some(result),
            _ if self.on_error == OnError::Stop => return Some(result),
            _ => {
                self.outcome.first_error.get_or_insert(result);
            }
        }
        None
    }

    /// All targets are done.
    fn result(&mut self) -> LdapResult {
        let Outcome { has_success, referrals, first_error, matched } = std::mem::take(&mut self.outcome);
        match first_error {
            Some(error) if !has_success || self.on_error == OnError::Report => error,
            _ if !has_success => {
                LdapResult { matched_dn: matched, ..LdapResult::new(ResultCode::NO_SUCH_OBJECT) }
            }
            _ if !referrals.is_empty() => LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) },
            _ => LdapResult::success(),
        }
    }

    fn end(&mut self, result: LdapResult) -> StepOutcome {
        self.parts.clear();
        StepOutcome::Done(result, std::mem::take(&mut self.controls))
    }
}

impl Cursor for MergedSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let mut idle = 0;
        // Each has its turn: one that answers much must not keep the others from being asked.
        while idle < self.parts.len() {
            if out.len() >= budget.bytes {
                return StepOutcome::More;
            }
            let remaining = self.remaining();
            let at = self.turn % self.parts.len();
            let Some(part) = self.parts.get_mut(at) else { break };
            if let Some(remaining) = remaining {
                let own = u32::try_from(part.cursor.effort().entries).unwrap_or(u32::MAX);
                part.cursor.limit_size(own.saturating_add(remaining));
            }
            match part.cursor.step(budget, out) {
                StepOutcome::Done(result, _) => {
                    let (effort, is_moved) = (part.cursor.effort(), part.is_moved);
                    self.parts.swap_remove(at);
                    self.done = self.done.plus(effort);
                    idle = 0;
                    if let Some(result) = self.ended(result, effort.entries, is_moved) {
                        return self.end(result);
                    }
                }
                StepOutcome::More => {
                    self.turn = at + 1;
                    return StepOutcome::More;
                }
                StepOutcome::Waiting => {
                    self.turn = at + 1;
                    idle += 1;
                }
            }
        }
        if self.parts.is_empty() {
            let result = self.result();
            return self.end(result);
        }
        StepOutcome::Waiting
    }

    fn effort(&self) -> Effort {
        self.parts.iter().fold(self.done, |all, part| all.plus(part.cursor.effort()))
    }

    fn waits(&self) -> bool {
        self.parts.iter().any(|part| part.cursor.waits())
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        for part in &mut self.parts {
            part.cursor.follow(Arc::clone(&follower));
        }
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.parts.iter().filter_map(|part| part.cursor.deadline()).min()
    }

    fn pause(&mut self) {
        self.parts.iter_mut().for_each(|part| part.cursor.pause());
    }

    fn is_dear(&self) -> bool {
        self.parts.iter().any(|part| part.cursor.is_dear())
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}
