//! Referrals followed on behalf of the client (`overlay chain`, slapo-chain(5)): what a backend answers with a referral is asked of the
//! server that it names, and that server's answer goes to the client.

mod behavior;
mod counted;
mod following;
mod forwarding;
mod links;
mod search;
mod waiting;
mod written;

use std::sync::{Arc, Mutex};

use larix_backend::{
    Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation, Interceptor, Later,
    Next, Operations, PasswordChange, PasswordChangeOutcome, PendingAnswer, ReplicaProgress, Reply, Search,
    SharedContent, Verdict,
};
use larix_engine::controls::{OverlayControl, RequestControls};
use larix_engine::write::{Completion, WriteOutcome};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;

use crate::identity::Asker;
use crate::job::Outcome;
use crate::request::{changed, password_changed};

pub use behavior::{Behavior, Wish};
pub use counted::Counted;
use following::{Following, OriginalRequest, Request};
pub use links::{Chase, Links, OpenProxy, Others};
use search::Chained;
pub use waiting::Waiting;
use written::add_text;

/// What the client learns of a change that another server made in place.
const NOT_SEEN: &str = "the change is made; reads at this server may not show it yet";
/// URLs of referrals that are tried for one request; each may take its whole time.
const TRIES_MAX: usize = 4;

/// The overlay in front of one database, or of all.
#[derive(Clone, Debug)]
pub struct Chain(pub Arc<Links>);

/// Whether the result says to ask elsewhere.
fn is_referral(result: &LdapResult) -> bool {
    result.code == ResultCode::REFERRAL && !result.referrals.is_empty()
}

/// How a backend's answer comes in the place of which the one of another server goes to the client.
struct Start {
    following: Following,
    original: OriginalRequest,
    /// What has to know of a change before it is answered.
    shared_content: Option<Arc<dyn SharedContent>>,
}

impl Chain {
    /// What to do with a referral; none where the client wants it for itself.
    fn wish(&self, controls: &RequestControls) -> Option<Behavior> {
        Behavior::of(controls, self.0.behavior).filter(|behavior| behavior.resolve.follows())
    }

    fn start(&self, asker: Asker, original: OriginalRequest) -> Option<Start> {
        let behavior = self.wish(&original.controls)?;
        let following = Following::new(Arc::clone(&self.0), asker, behavior);
        Some(Start { following, original, shared_content: None })
    }

    /// The same of a change.
    fn start_change(
        &self,
        next: Next<'_>,
        dn: &NormalDn,
        (asker, original): (Asker, OriginalRequest),
    ) -> Option<Start> {
        let Start { following, original, .. } = self.start(asker, original)?;
        let following = following.awaiting(self.awaited(next, dn));
        Some(Start { following, original, shared_content: next.shared_content(dn) })
    }

    /// The shadow to which a change of this entry has to come back.
    fn awaited(&self, next: Next<'_>, dn: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        self.0.waiting.as_ref().and_then(|_| next.replica_progress(dn))
    }
}

impl Start {
    fn follow(self, referral: LdapResult, done: impl FnOnce(Outcome) + Send + 'static) -> PendingAnswer {
        let Self { following, original, shared_content } = self;
        let Some(shared_content) = shared_content else {
            return following.begin(original, referral, Box::new(done));
        };
        let caught_up = move |mut outcome: Outcome| match outcome.result.code {
            ResultCode::SUCCESS => shared_content.catch_up(Box::new(move |is_seen| {
                if !is_seen {
                    add_text(&mut outcome.result, NOT_SEEN);
                }
                done(outcome);
            })),
            _ => done(outcome),
        };
        following.begin(original, referral, Box::new(caught_up))
    }
}

/// A start that a late answer may need, and an early one, too.
type Shared = Arc<Mutex<Option<Start>>>;

fn share(start: Start) -> Shared {
    Arc::new(Mutex::new(Some(start)))
}

fn take(shared: &Shared) -> Option<Start> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

impl Interceptor for Chain {
    fn requests(&self) -> Operations {
        let changes = Operations::UPDATE.and(Operations::PASSWORD).and(Operations::EXTENDED);
        Operations::SEARCH.and(Operations::COMPARE).and(Operations::BIND).and(changes)
    }

    fn controls(&self) -> &'static [OverlayControl] {
        &behavior::CONTROLS
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        mut search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        if let Some(controls) = behavior::passed_on(&search.controls) {
            search.controls = controls;
        }
        let behavior = Behavior::of(&search.controls, self.0.behavior);
        // A cookie of another server's page would be taken for one of a page here.
        let controls = &search.controls;
        let is_whole = controls.sync.is_some() || controls.paged.is_some() || controls.domain_scope;
        let Some(behavior) = behavior.filter(|_| !is_whole && next.refers(search.base, false)) else {
            return next.open(context, search);
        };
        let policy = self.0.entry_policy.clone().or_else(|| next.policy(search.base));
        let chained = Chained::new(Arc::clone(&self.0), Asker::of(context), &search, behavior, policy);
        match next.open(context, search) {
            Ok(inner) => Ok(Box::new(chained.around(inner))),
            Err(end) if behavior.resolve.follows() && is_referral(&end.0) => {
                Ok(Box::new(chained.instead_of(*end)))
            }
            Err(end) => Err(end),
        }
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let controls = behavior::passed_on(compare.controls);
        let compare = &Compare { controls: controls.as_ref().unwrap_or(compare.controls), ..*compare };
        let request = || Request::Compare {
            attribute: compare.request.attribute.to_owned(),
            value: compare.request.value.to_vec(),
        };
        let original = || OriginalRequest {
            request: request(),
            target: compare.request.entry.to_owned(),
            controls: compare.controls.clone(),
        };
        let start = next.refers(compare.dn, false).then(original);
        let Some(start) = start.and_then(|original| self.start(Asker::of(context), original)) else {
            return next.compare(context, compare, later);
        };
        let shared = share(start);
        let end = |outcome: Outcome| (outcome.result, outcome.controls);
        let reply = next.compare(context, compare, &mut || {
            let (shared, done) = (Arc::clone(&shared), later());
            Box::new(move |answer: End| match take(&shared).filter(|_| is_referral(&answer.0)) {
                Some(start) => drop(start.follow(answer.0, move |outcome| done(end(outcome)))),
                None => done(answer),
            })
        });
        match reply {
            Reply::Now(answer) if is_referral(&answer.0) => match take(&shared) {
                Some(start) => {
                    let done = later();
                    Reply::Later(start.follow(answer.0, move |outcome| done(end(outcome))))
                }
                None => Reply::Now(answer),
            },
            reply => reply,
        }
    }

    /// Binds are judged here. What they change goes to the provider as the identity of `chain-idassert-bind`.
    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        if !next.refers(bind.dn, true) {
            return next.bind(context, bind, later);
        }
        let asker = Asker { client: None, is_root: true, ..Asker::of(context) };
        next.bind(context, bind, &mut || {
            let (links, asker, done) = (Arc::clone(&self.0), asker.clone(), later());
            Box::new(move |verdict| forwarding::forward(links, asker, verdict, done))
        })
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        mut changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        if let Changes::One(request, _) = &mut changes
            && let Some(controls) = behavior::passed_on(&request.controls)
        {
            request.controls = controls;
        }
        let start = match &changes {
            Changes::One(request, Some(dn)) if next.refers(dn, true) => {
                let original = OriginalRequest {
                    request: Request::Update(request.operation.clone()),
                    target: request.operation.target().to_owned(),
                    controls: request.controls.clone(),
                };
                self.start_change(next, dn, (Asker::of(context), original))
            }
            _ => None,
        };
        let Some(start) = start else { return next.update(context, changes, done) };
        let follow = move |outcome: WriteOutcome| match is_referral(&outcome.result) {
            true => drop(start.follow(outcome.result, move |outcome| done(changed(outcome)))),
            false => done(outcome),
        };
        next.update(context, changes, Box::new(follow))
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        if !next.refers(change.dn, true) {
            return next.modify_password(context, change, later);
        }
        let has_proof = change.old.is_some();
        let original = OriginalRequest {
            request: Request::Password {
                old: change.old.clone(),
                new: change.new.clone(),
                policy_control: change.policy_control,
                hops: change.hops,
            },
            target: change.target.clone(),
            controls: RequestControls::default(),
        };
        let Some(start) = self.start_change(next, change.dn, (Asker::of(context), original)) else {
            return next.modify_password(context, change, later);
        };
        let shared = share(start);
        let proof_begins = change.proof_begins;
        let reply = next.modify_password(context, change, &mut || {
            let (shared, done) = (Arc::clone(&shared), later());
            Box::new(move |changed: PasswordChangeOutcome| {
                match take(&shared).filter(|_| is_referral(&changed.result)) {
                    Some(start) => drop(start.follow(changed.result, move |outcome| {
                        done(password_changed(outcome, has_proof));
                    })),
                    None => done(changed),
                }
            })
        });
        match reply {
            Reply::Now(changed) if is_referral(&changed.result) => {
                // The old password is compared elsewhere now, and counts all the same.
                if has_proof && let Err(refused) = proof_begins() {
                    return Reply::Now(refused.into());
                }
                let Some(start) = take(&shared) else { return Reply::Now(changed) };
                let done = later();
                let finish = move |outcome| done(password_changed(outcome, has_proof));
                Reply::Later(start.follow(changed.result, finish))
            }
            reply => reply,
        }
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let controls = behavior::passed_on(request.controls);
        let request =
            &ExtendedOperation { controls: controls.as_ref().unwrap_or(request.controls), ..*request };
        let original = || OriginalRequest {
            request: Request::Extended {
                oid: request.oid.to_owned(),
                value: request.value.map(<[u8]>::to_vec),
            },
            target: String::new(),
            controls: request.controls.clone(),
        };
        let start = next.refers(request.dn, true).then(original);
        let start =
            start.and_then(|original| self.start_change(next, request.dn, (Asker::of(context), original)));
        let Some(start) = start else {
            return next.extended(context, request, later);
        };
        let shared = share(start);
        let end = |outcome: Outcome| ExtendedAnswer {
            result: outcome.result,
            value: outcome.value,
            controls: outcome.controls,
        };
        let reply = next.extended(context, request, &mut || {
            let (shared, done) = (Arc::clone(&shared), later());
            Box::new(move |answer: ExtendedAnswer| {
                match take(&shared).filter(|_| is_referral(&answer.result)) {
                    Some(start) => drop(start.follow(answer.result, move |outcome| done(end(outcome)))),
                    None => done(answer),
                }
            })
        });
        match reply {
            Reply::Now(answer) if is_referral(&answer.result) => match take(&shared) {
                Some(start) => {
                    let done = later();
                    Reply::Later(start.follow(answer.result, move |outcome| done(end(outcome))))
                }
                None => Reply::Now(answer),
            },
            reply => reply,
        }
    }
}
