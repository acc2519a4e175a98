//! What logins change in a shadow's accounts goes to its provider (`ppolicy_forward_updates`, used codes, `remoteauth_store`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::vec::IntoIter;

use larix_backend::{Done, Verdict};
use larix_engine::controls::RequestControls;
use larix_engine::write::{Forward, WriteOperation};
use larix_proto::{FilterBuf, LdapResult, ResultCode};

use super::following::{Following, OriginalRequest, Request, Terms};
use super::links::Links;
use crate::identity::Asker;
use crate::job::Outcome;

/// How long a bind waits for the provider at most, with all of its changes.
const FORWARD_MAX: Duration = Duration::from_secs(5);

/// Lines about what was lost are this far apart, in nanoseconds; the number in them counts all.
const TELL_INTERVAL: u64 = 1_000_000_000;

/// Changes that were to be handed on and were not: counted, and told.
pub struct Lost {
    count: AtomicU64,
    /// Before which time nothing is told.
    quiet_until: AtomicU64,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Lost {
    pub fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { count: AtomicU64::new(0), quiet_until: AtomicU64::new(0), tell: Box::new(tell) }
    }

    fn count(&self, target: &str, why: &LdapResult, now: u64) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        let next = now.saturating_add(TELL_INTERVAL);
        let is_mine = now >= quiet_until
            && self
                .quiet_until
                .compare_exchange(quiet_until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_mine {
            let (code, text) = (why.code.0, why.diagnostic.escape_debug());
            let target = target.escape_debug();
            (self.tell)(&format!(
                "the provider did not take what a login changes in \"{target}\": {code} {text} ({count} since the start)"
            ));
        }
    }
}

/// Hands on what a bind has to hand on, and then its verdict.
pub(super) fn forward(links: Arc<Links>, asker: Asker, mut verdict: Verdict, done: Done<Verdict>) {
    let Some(forward) = verdict.forward.take() else { return done(verdict) };
    let Forward { referrals, needed, state, password } = *forward;
    let until = Duration::from_nanos(links.clock.monotonic().0) + FORWARD_MAX;
    let needed = needed.into_iter();
    let state = state.into_iter();
    Forwarding { links, asker, referrals, needed, state, password, until, verdict, done }.go_on();
}

/// One after the other: what the bind needs first.
struct Forwarding {
    links: Arc<Links>,
    asker: Asker,
    referrals: Vec<String>,
    needed: IntoIter<WriteOperation>,
    state: IntoIter<WriteOperation>,
    password: Option<WriteOperation>,
    until: Duration,
    verdict: Verdict,
    done: Done<Verdict>,
}

impl Forwarding {
    fn go_on(mut self) {
        let next = self.needed.next().map(|operation| (operation, Terms::Exact));
        let next = next.or_else(|| Some((self.state.next()?, Terms::Permissive)));
        let next = next.or_else(|| {
            let has_none = FilterBuf::parse("(!(userPassword=*))").ok()?;
            Some((self.password.take()?, Terms::OnlyIf(has_none)))
        });
        let Some((operation, terms)) = next else { return (self.done)(self.verdict) };
        let target = operation.target().to_owned();
        let (exact, conditional) = (matches!(terms, Terms::Exact), matches!(terms, Terms::OnlyIf(_)));
        let request = Request::Forwarded { operation, terms };
        let kept = OriginalRequest { request, target: target.clone(), controls: RequestControls::default() };
        let following = Following::forwarding(Arc::clone(&self.links), self.asker.clone(), self.until);
        let referral =
            LdapResult { referrals: self.referrals.clone(), ..LdapResult::new(ResultCode::REFERRAL) };
        // It ends by its deadline; nobody gives it up before.
        let ended = move |outcome: Outcome| {
            // Somebody else was faster.
            let is_settled = conditional && outcome.result.code == ResultCode::ASSERTION_FAILED;
            if is_settled { self.go_on() } else { self.ended(&target, &outcome, exact) }
        };
        drop(following.begin(kept, referral, Box::new(ended)));
    }

    fn ended(mut self, target: &str, outcome: &Outcome, exact: bool) {
        if !outcome.result.is_success() {
            self.links.lost.count(target, &outcome.result, self.links.clock.monotonic().0);
            if exact {
                self.verdict.fail();
                // None of the others is used up for nothing, and the state is that of a login that succeeds.
                self.needed = Vec::new().into_iter();
                self.state = Vec::new().into_iter();
                self.password = None;
            }
        }
        self.go_on();
    }
}
