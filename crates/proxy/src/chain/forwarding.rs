//! What logins change in a shadow's accounts goes to its provider (`ppolicy_forward_updates`, `lastbind`, used codes,
//! `remoteauth_store`).

use std::sync::Arc;
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

/// Hands on what a bind has to hand on, and then its verdict.
pub(super) fn forward(links: Arc<Links>, asker: Asker, mut verdict: Verdict, done: Done<Verdict>) {
    let Some(forward) = verdict.forward.take() else { return done(verdict) };
    let Forward { referrals, needed, state, conditional, password } = *forward;
    let until = Duration::from_nanos(links.clock.monotonic().0) + FORWARD_MAX;
    let needed = needed.into_iter();
    let (state, conditional) = (state.into_iter(), conditional.into_iter());
    Forwarding { links, asker, referrals, needed, state, conditional, password, until, verdict, done }
        .go_on();
}

/// One after the other: what the bind needs first.
struct Forwarding {
    links: Arc<Links>,
    asker: Asker,
    referrals: Vec<String>,
    needed: IntoIter<WriteOperation>,
    state: IntoIter<WriteOperation>,
    conditional: IntoIter<(WriteOperation, FilterBuf)>,
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
            let (operation, filter) = self.conditional.next()?;
            Some((operation, Terms::OnlyIf { filter, is_strict: false }))
        });
        let next = next.or_else(|| {
            let has_none = FilterBuf::parse("(!(userPassword=*))").ok()?;
            Some((self.password.take()?, Terms::OnlyIf { filter: has_none, is_strict: true }))
        });
        let Some((operation, terms)) = next else { return (self.done)(self.verdict) };
        let target = operation.target().to_owned();
        let (exact, conditional) = (matches!(terms, Terms::Exact), matches!(terms, Terms::OnlyIf { .. }));
        let request = Request::Forwarded { operation, terms };
        let original =
            OriginalRequest { request, target: target.clone(), controls: RequestControls::default() };
        let following = Following::forwarding(Arc::clone(&self.links), self.asker.clone(), self.until);
        let referral =
            LdapResult { referrals: self.referrals.clone(), ..LdapResult::new(ResultCode::REFERRAL) };
        // It ends by its deadline; nobody gives it up before.
        let finish = move |outcome: Outcome| {
            // Somebody else was faster.
            let is_settled = conditional && outcome.result.code == ResultCode::ASSERTION_FAILED;
            if is_settled { self.go_on() } else { self.finish(&target, &outcome, exact) }
        };
        drop(following.begin(original, referral, Box::new(finish)));
    }

    fn finish(mut self, target: &str, outcome: &Outcome, exact: bool) {
        if !outcome.result.is_success() {
            self.links.lost.count(self.links.clock.monotonic(), || {
                let (code, text) = (outcome.result.code.0, outcome.result.diagnostic.escape_debug());
                let target = target.escape_debug();
                format!("the provider did not take what a login changes in \"{target}\": {code} {text}")
            });
            if exact {
                self.verdict.fail();
                // None of the others is used up for nothing, and the state is that of a login that succeeds.
                self.needed = Vec::new().into_iter();
                self.state = Vec::new().into_iter();
                self.conditional = Vec::new().into_iter();
                self.password = None;
            }
        }
        self.go_on();
    }
}
