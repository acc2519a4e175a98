//! Which server is tried next, and when again: growing intervals with jitter, or the pattern of `quarantine`; and when a bind of the
//! proxy's own that was refused is.

use std::collections::HashMap;
use std::time::Duration;

use larix_proto::LdapResult;

use crate::job::Owner;
use crate::settings::QuarantineStep;

/// The first interval after a failure.
const FIRST: Duration = Duration::from_millis(50);
/// The longest: a server that comes back is found within a second.
const LONGEST: Duration = Duration::from_millis(640);
/// So many binds of clients may be late in a row at a target that answers something else meanwhile. More than that are no matter of one
/// account.
const LATE_BINDS_MAX: u32 = 8;

/// The servers of one database.
#[derive(Debug)]
pub(crate) struct Targets {
    states: Vec<TargetHealth>,
    /// The last that answered.
    preferred: usize,
    quarantine: Vec<QuarantineStep>,
    answers: Vec<TargetAnswers>,
}

/// What a target has answered, over whatever connection.
#[derive(Clone, Copy, Debug, Default)]
struct TargetAnswers {
    /// When something came last.
    last: Duration,
    /// Binds of clients that were late since it last answered one.
    late_binds: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct TargetHealth {
    /// Failures in a row.
    failures: u32,
    /// Not before then; none: now.
    again: Option<Duration>,
    /// The pattern is used up.
    given_up: bool,
    /// Until a health check succeeds.
    is_left_out: bool,
}

impl Targets {
    pub(crate) fn new(count: usize, quarantine: Vec<QuarantineStep>) -> Self {
        let answers = vec![TargetAnswers::default(); count];
        Self { states: vec![TargetHealth::default(); count], preferred: 0, quarantine, answers }
    }

    /// The one to connect to now.
    pub(crate) fn choose(&self, now: Duration) -> Option<usize> {
        let count = self.states.len();
        (0..count).map(|step| (self.preferred + step) % count).find(|number| {
            let state = self.states.get(*number).copied().unwrap_or_default();
            !state.given_up && !state.is_left_out && state.again.is_none_or(|again| again <= now)
        })
    }

    pub(crate) fn answered(&mut self, number: usize) {
        if let Some(state) = self.states.get_mut(number) {
            *state = TargetHealth::default();
            self.preferred = number;
        }
    }

    /// An answer of it has come.
    pub(crate) fn note_answer(&mut self, number: usize, now: Duration) {
        if let Some(answers) = self.answers.get_mut(number) {
            answers.last = now;
        }
    }

    /// It has answered the bind of a client.
    pub(crate) fn note_bind(&mut self, number: usize) {
        if let Some(answers) = self.answers.get_mut(number) {
            answers.late_binds = 0;
        }
    }

    /// A client's bind was late, on a connection that was opened then. Whether that says nothing about the target: it has answered
    /// something else since, and not many binds in a row were late.
    pub(crate) fn excuses_late_bind(&mut self, number: usize, opened: Duration) -> bool {
        let Some(answers) = self.answers.get_mut(number) else { return false };
        answers.late_binds = answers.late_binds.saturating_add(1);
        answers.last > opened && answers.late_binds <= LATE_BINDS_MAX
    }

    /// It answers, and is used where its turn comes.
    pub(crate) fn is_up_again(&mut self, number: usize) {
        if let Some(state) = self.states.get_mut(number) {
            *state = TargetHealth::default();
        }
    }

    /// Nothing goes there until [it answers](Self::is_up_again).
    pub(crate) fn leave_out(&mut self, number: usize) {
        if let Some(state) = self.states.get_mut(number) {
            state.is_left_out = true;
        }
    }

    /// Whether it has not failed since it last answered.
    pub(crate) fn is_up(&self, number: usize) -> bool {
        self.states.get(number).is_some_and(|state| state.failures == 0)
    }

    /// When it may be tried after a failure; none: never.
    pub(crate) fn next_try(&self, number: usize) -> Option<Duration> {
        let state = self.states.get(number)?;
        if state.given_up { None } else { Some(state.again.unwrap_or_default()) }
    }

    /// It could not be reached. `jitter` is any number.
    pub(crate) fn failed(&mut self, number: usize, now: Duration, jitter: u8) {
        let Some(state) = self.states.get_mut(number) else { return };
        let failures = state.failures;
        state.failures = failures.saturating_add(1);
        if self.quarantine.is_empty() {
            let pause = growing(failures);
            // Three quarters of it and up to a half more.
            let pause = pause * 3 / 4 + pause * u32::from(jitter) / 512;
            state.again = Some(now + pause);
            return;
        }
        let mut remaining = failures;
        for step in &self.quarantine {
            match step.times {
                Some(times) if remaining >= times => remaining -= times,
                _ => {
                    state.again = Some(now + step.interval);
                    return;
                }
            }
        }
        state.given_up = true;
    }
}

/// The proxy's own binds and StartTLS that the target refuses, by whose connection it was. Tried with each request, they would lock
/// the account.
#[derive(Debug, Default)]
pub(crate) struct Refusals(HashMap<Owner, Refusal>);

#[derive(Debug)]
struct Refusal {
    /// In a row.
    failures: u32,
    /// Not before then.
    again: Duration,
    /// What requests get until then.
    result: LdapResult,
}

impl Refusals {
    /// What clients are bound with is theirs, and left out.
    pub(crate) fn refused(&mut self, owner: &Owner, result: &LdapResult, now: Duration) {
        if !matches!(owner, Owner::Anonymous | Owner::Assertion | Owner::Root | Owner::Spare) {
            return;
        }
        let earlier = self.0.get(owner);
        // Connections that were opened together are refused once.
        if earlier.is_some_and(|refusal| now < refusal.again) {
            return;
        }
        let failures = earlier.map_or(0, |refusal| refusal.failures);
        let again = now + growing(failures);
        let refusal = Refusal { failures: failures.saturating_add(1), again, result: result.clone() };
        self.0.insert(owner.clone(), refusal);
    }

    pub(crate) fn accepted(&mut self, owner: &Owner) {
        self.0.remove(owner);
    }

    /// What a request gets for which a connection would be opened; none: it is opened.
    pub(crate) fn current(&self, owner: &Owner, now: Duration) -> Option<LdapResult> {
        let refusal = self.0.get(owner)?;
        (now < refusal.again).then(|| refusal.result.clone())
    }
}

/// The pause after so many failures and one more.
fn growing(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.min(4)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use larix_proto::ResultCode;

    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_next_one_is_taken_and_the_first_comes_back() {
        let mut targets = Targets::new(2, Vec::new());
        assert_eq!(targets.choose(at(0)), Some(0));
        targets.failed(0, at(0), 0);
        assert_eq!(targets.choose(at(0)), Some(1));
        targets.failed(1, at(0), 0);
        assert_eq!(targets.choose(at(10)), None);
        assert_eq!(targets.choose(at(60)), Some(0));
        targets.answered(1);
        assert_eq!(targets.choose(at(60)), Some(1));
    }

    #[test]
    fn it_is_tried_again_within_a_second() {
        for jitter in [0, 255] {
            let (mut targets, mut now) = (Targets::new(1, Vec::new()), at(0));
            for _ in 0..100 {
                targets.failed(0, now, jitter);
                assert_eq!(targets.choose(now), None);
                now += at(1000);
                assert_eq!(targets.choose(now), Some(0));
            }
        }
    }

    #[test]
    fn what_is_left_out_is_not_chosen_again_by_time() {
        let mut targets = Targets::new(2, Vec::new());
        targets.failed(0, at(0), 0);
        targets.leave_out(0);
        assert_eq!((targets.is_up(0), targets.is_up(1)), (false, true));
        assert_eq!(targets.choose(at(1_000_000)), Some(1));
        assert!(targets.next_try(0).is_some_and(|again| again > at(0) && again < at(1000)));
        targets.answered(1);
        targets.is_up_again(0);
        assert_eq!(targets.choose(at(1_000_000)), Some(1), "the last that answered a request");
        targets.failed(1, at(1_000_000), 0);
        targets.leave_out(1);
        assert_eq!(targets.choose(at(1_000_000)), Some(0));
    }

    #[test]
    fn late_binds_of_a_target_that_answers_others() {
        let mut targets = Targets::new(2, Vec::new());
        assert!(!targets.excuses_late_bind(0, at(0)));
        targets.note_bind(0);
        targets.note_answer(0, at(5));
        // What it is otherwise known for takes nothing back.
        targets.answered(0);
        targets.failed(0, at(6), 0);
        let mut late = |number, opened| targets.excuses_late_bind(number, at(opened));
        assert_eq!((late(0, 4), late(0, 5), late(1, 4)), (true, false, false));
    }

    #[test]
    fn a_target_that_answers_no_bind_is_not_excused_for_ever() {
        let mut targets = Targets::new(1, Vec::new());
        targets.note_answer(0, at(1));
        for _ in 0..2 {
            for number in 0..LATE_BINDS_MAX {
                targets.note_answer(0, at(10));
                assert!(targets.excuses_late_bind(0, at(9)), "{number}");
            }
            assert!(!targets.excuses_late_bind(0, at(9)));
            assert!(!targets.excuses_late_bind(0, at(9)));
            targets.note_bind(0);
        }
    }

    #[test]
    fn a_target_that_fails_is_left_alone_for_its_steps() {
        let step = |seconds, times| QuarantineStep { interval: Duration::from_secs(seconds), times };
        let mut targets = Targets::new(1, vec![step(1, Some(2)), step(10, Some(1))]);
        for (now, early, again) in [(0, 999, 1000), (1000, 1999, 2000), (2000, 11_999, 12_000)] {
            targets.failed(0, at(now), 0);
            assert_eq!((targets.choose(at(early)), targets.choose(at(again))), (None, Some(0)));
        }
        targets.failed(0, at(12_000), 0);
        assert_eq!(targets.choose(at(u64::from(u32::MAX))), None);
    }

    #[test]
    fn what_was_refused_is_tried_again_after_growing_pauses() {
        let mut refusals = Refusals::default();
        let result = LdapResult::with(ResultCode::UNAVAILABLE, "refused");
        let owner = Owner::Assertion;
        let mut now = at(0);
        for pause in [50, 100, 200, 400, 640, 640] {
            assert_eq!(refusals.current(&owner, now), None);
            refusals.refused(&owner, &result, now);
            // Another one that was under way.
            refusals.refused(&owner, &result, now + at(1));
            assert_eq!(refusals.current(&owner, now + at(pause - 1)).as_ref(), Some(&result));
            assert_eq!(refusals.current(&Owner::Root, now), None);
            now += at(pause);
        }
        refusals.refused(&owner, &result, now);
        refusals.accepted(&owner);
        assert_eq!(refusals.current(&owner, now), None);
        refusals.refused(&owner, &result, now);
        assert_eq!(refusals.current(&owner, now + at(50)), None, "the first pause again");
        refusals.refused(&Owner::Check(0), &result, now);
        assert_eq!(refusals.current(&Owner::Check(0), now), None);
    }
}
