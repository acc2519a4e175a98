//! When to try again: `retry "<seconds> <times> ... +"`.

/// So many tries, so far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryStep {
    pub seconds: u32,
    /// None: for ever.
    pub times: Option<u32>,
}

/// A schedule of retries and how far it is.
#[derive(Clone, Debug)]
pub struct Retries {
    steps: Vec<RetryStep>,
    at: usize,
    tried: u32,
}

impl Retries {
    pub fn new(steps: Vec<RetryStep>) -> Self {
        Self { steps, at: 0, tried: 0 }
    }

    /// Seconds until the next try; none if there is no other.
    pub fn next_wait(&mut self) -> Option<u32> {
        loop {
            let step = self.steps.get(self.at)?;
            if step.times.is_none_or(|times| self.tried < times) {
                self.tried = self.tried.saturating_add(1);
                return Some(step.seconds);
            }
            self.at += 1;
            self.tried = 0;
        }
    }

    /// How many are left of the step that is under way; none for endless ones, or when there is none left.
    pub fn left(&self) -> Option<u32> {
        let times = self.steps.get(self.at)?.times?;
        Some(times.saturating_sub(self.tried))
    }

    /// It went well: from the beginning the next time.
    pub fn reset(&mut self) {
        (self.at, self.tried) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_follow_their_steps() {
        let check = |steps: &[(u32, Option<u32>)], expected: &[Option<u32>]| {
            let steps = steps.iter().map(|(seconds, times)| RetryStep { seconds: *seconds, times: *times });
            let mut retries = Retries::new(steps.collect());
            for round in 0..2 {
                let tries: Vec<_> = expected.iter().map(|_| retries.next_wait()).collect();
                assert_eq!(tries, expected, "round {round}");
                retries.reset();
            }
        };
        check(&[(5, Some(2)), (60, None)], &[Some(5), Some(5), Some(60), Some(60), Some(60)]);
        check(&[(1, Some(1)), (2, Some(1))], &[Some(1), Some(2), None, None]);
        check(&[], &[None]);
    }
}
