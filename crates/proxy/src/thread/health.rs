//! Health checks: each target is asked for its root DSE now and then, on a connection of its own. One that does not answer in time is left
//! out of everything until it does.

use std::time::Duration;

use larix_client::PeerFault;
use larix_proto::{FilterBuf, ResultCode, Scope, client};

use super::Exchange;
use crate::job::{ANY, Job, Outcome, Owner, Sink, body};
use crate::settings::{HealthCheck, Kind};

/// Numbers of checks: those of requests are below.
pub(super) const CHECKS: u64 = 1 << 63;

/// When a target is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Check {
    /// The next time; none: never again (`quarantine`).
    pub(super) next: Option<Duration>,
    /// One is under way, and late then.
    until: Option<Duration>,
    began: Duration,
}

impl Check {
    pub(super) const fn at_once() -> Self {
        Self { next: Some(Duration::ZERO), until: None, began: Duration::ZERO }
    }
}

impl Exchange {
    /// When the next check begins, or one is late.
    pub(super) fn next_check(&self) -> Option<Duration> {
        self.context.settings.health_check?;
        self.checks.iter().filter_map(|check| check.until.or(check.next)).min()
    }

    /// Begins the checks whose time has come, and ends those that are late.
    pub(super) fn check_targets(&mut self) {
        let Some(health) = self.context.settings.health_check else { return };
        let now = self.now();
        for target in 0..self.checks.len() {
            let Some(check) = self.checks.get(target).copied() else { continue };
            match check {
                Check { until: Some(until), .. } if until <= now => {
                    let fault = PeerFault::Late("a health check");
                    self.pool_of(target).into_iter().for_each(|id| self.lost(id, &fault, false));
                    // Without a connection it waits for a name to be looked up.
                    self.checked(target, false);
                }
                Check { until: None, next: Some(next), .. } if next <= now => self.check(target, health, now),
                _ => {}
            }
        }
    }

    fn pool_of(&self, target: usize) -> Vec<u64> {
        self.pools.get(&Owner::Check(target)).cloned().unwrap_or_default()
    }

    fn check(&mut self, target: usize, health: HealthCheck, now: Duration) {
        if let Some(check) = self.checks.get_mut(target) {
            check.until = Some(now + health.timeout);
            check.began = now;
        }
        self.check_number += 1;
        let number = CHECKS | self.check_number;
        // See [`Self::checked`].
        let sink = Sink::Once(Box::new(|_| ()));
        let job = Job::new(Owner::Check(target), Kind::Search, root_dse().into(), sink);
        let job = Box::new(Job { entries_max: Some(1), ..job });
        match self.pool_of(target).first().copied() {
            Some(id) if self.connections.get(&id).is_some_and(|open| !open.is_closing) => {
                self.put_and_flush(id, number, job, now);
            }
            _ => self.open_at((target, 0), number, job, now),
        }
    }

    /// A target has answered its check, with any result but one that says that it cannot.
    pub(super) fn check_answered(&mut self, target: usize, outcome: &Outcome) {
        self.checked(target, !matches!(outcome.result.code, ResultCode::UNAVAILABLE | ResultCode::BUSY));
    }

    /// The check that is under way is made anew.
    pub(super) fn check_again(&mut self, target: usize) {
        if let Some(check) = self.checks.get_mut(target)
            && check.until.take().is_some()
        {
            check.next = Some(Duration::ZERO);
        }
    }

    /// What came of a check.
    pub(super) fn checked(&mut self, target: usize, is_up: bool) {
        let now = self.now();
        let mut jitter = [0];
        (self.context.ambient.random)(&mut jitter);
        let Some(health) = self.context.settings.health_check else { return };
        let Some(check) = self.checks.get_mut(target).filter(|check| check.until.is_some()) else { return };
        let took = now.saturating_sub(check.began);
        check.until = None;
        // Three quarters of it and up to a half more: several proxies do not come at once.
        check.next = Some(now + health.interval * 3 / 4 + health.interval * u32::from(jitter[0]) / 512);
        if is_up {
            self.targets.is_up_again(target);
        } else {
            self.left_out(target, now, jitter[0]);
        }
        self.context.shared.note_check(target, is_up, took);
        self.show_target(target);
        if !is_up {
            self.leave_target(target);
        }
    }

    /// Without a check that succeeds nothing goes to a target any more.
    pub(super) fn left_out(&mut self, target: usize, now: Duration, jitter: u8) {
        self.targets.failed(target, now, jitter);
        if self.context.settings.health_check.is_none() {
            return;
        }
        self.targets.leave_out(target);
        let again = self.targets.next_try(target);
        if let Some(check) = self.checks.get_mut(target) {
            check.next = again;
        }
    }

    /// Gives up the connections to a target that is left out: what they have under way goes to the next one where that can be.
    fn leave_target(&mut self, target: usize) {
        let own = self.connections.iter().filter(|(_, open)| open.target == target).map(|(id, _)| *id);
        let mut own: Vec<u64> = own.collect();
        own.sort_unstable();
        let fault = PeerFault::Late("a health check");
        own.into_iter().for_each(|id| self.lost(id, &fault, false));
    }

    /// The log and the monitor learn whether a target is used.
    pub(super) fn show_target(&self, target: usize) {
        let is_up = self.targets.is_up(target);
        if self.context.shared.show_target(target, is_up) && self.context.settings.health_check.is_some() {
            let url = self.url(target).map(ToString::to_string).unwrap_or_default();
            let what =
                if is_up { "it answers again, and is used" } else { "it does not answer, and is left out" };
            (self.context.tell)(&format!("proxy: {url}: {what}"));
        }
    }
}

/// A search for the root DSE, without its envelope.
fn root_dse() -> Vec<u8> {
    // It is written here, and correct.
    let Ok(filter) = FilterBuf::parse("(objectClass=*)") else { return Vec::new() };
    let request = client::Search {
        size_limit: 1,
        attributes: &["1.1"],
        ..client::Search::new("", Scope::Base, filter.as_filter())
    };
    let mut message = Vec::new();
    client::search(&mut message, ANY, &request, &[]);
    body(&message).to_vec()
}
