//! Requests that have one answer, sent to the servers that a referral names.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larix_backend::{Done, PendingAnswer, ReplicaProgress};
use larix_engine::controls::RequestControls;
use larix_engine::write::WriteOperation;
use larix_proto::control::{self, ControlValue};
use larix_proto::url::LdapUrl;
use larix_proto::{FilterBuf, LdapResult, ResultCode, client, oid};
use zeroize::Zeroizing;

use super::behavior::{Behavior, Wish, cannot_chain};
use super::links::Links;
use super::written::{self, Written};
use super::{TRIES_MAX, is_referral};
use crate::identity::Asker;
use crate::job::{ANY, Outcome, Sink};
use crate::proxy::Proxy;
use crate::request::{encode_password, encode_update, encoded, kind_of, referred};
use crate::settings::Kind;
use crate::shared::Command;

/// A request that may have to be asked elsewhere.
pub(super) enum Request {
    Compare {
        attribute: String,
        value: Vec<u8>,
    },
    Update(WriteOperation),
    /// A change of a shadow's account that goes to its provider.
    Forwarded {
        operation: WriteOperation,
        terms: Terms,
    },
    Password {
        old: Option<Zeroizing<Vec<u8>>>,
        new: Option<Zeroizing<Vec<u8>>>,
        policy_control: bool,
        hops: u8,
    },
    Extended {
        oid: String,
        value: Option<Vec<u8>>,
    },
}

impl Request {
    /// Whether somebody's password stands in it.
    fn has_password(&self) -> bool {
        match self {
            Self::Password { .. } => true,
            Self::Compare { attribute, .. } => is_password(attribute),
            Self::Update(operation) | Self::Forwarded { operation, .. } => match operation {
                WriteOperation::Add { attributes, .. } => {
                    attributes.iter().any(|attribute| is_password(&attribute.description))
                }
                WriteOperation::Modify { changes, .. } => {
                    changes.iter().any(|change| is_password(&change.attribute.description))
                }
                WriteOperation::Delete { .. } | WriteOperation::ModifyDn { .. } => false,
            },
            Self::Extended { .. } => false,
        }
    }
}

/// With options or without.
fn is_password(description: &str) -> bool {
    let name = description.split(';').next().unwrap_or_default();
    ["userPassword", "2.5.4.35"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// What holds for a change that is forwarded.
pub(super) enum Terms {
    Exact,
    /// What is there already, or no longer, is no fault.
    Permissive,
    /// It is made if the filter matches the entry.
    OnlyIf {
        filter: FilterBuf,
        /// A server that knows no conditions refuses it; else it makes it.
        is_strict: bool,
    },
}

pub(super) struct OriginalRequest {
    pub(super) request: Request,
    /// The entry that it is about, as the client named it.
    pub(super) target: String,
    pub(super) controls: RequestControls,
}

/// The request that a target has now: what it takes to give it up.
type Current = Arc<Mutex<Option<(Arc<Proxy>, u64)>>>;

/// A referral that is being followed.
pub(super) struct Following {
    links: Arc<Links>,
    asker: Asker,
    behavior: Behavior,
    urls: VecDeque<String>,
    /// Proxies that the request has come through.
    hops: u8,
    /// Referrals that have led here.
    depth: u32,
    tries: usize,
    /// What went wrong first.
    failure: Option<Outcome>,
    current: Current,
    /// When it is given up: of what is forwarded, whose failure is answered and no referral.
    until: Option<Duration>,
    /// The shadow to which a change has to come back before it is answered.
    awaited: Option<Arc<dyn ReplicaProgress>>,
}

/// What is answered in the end.
struct Answer {
    referral: LdapResult,
    done: Done<Outcome>,
}

impl Following {
    pub(super) fn new(links: Arc<Links>, asker: Asker, behavior: Behavior) -> Self {
        Self {
            links,
            asker,
            behavior,
            urls: VecDeque::new(),
            hops: 0,
            depth: 1,
            tries: 0,
            failure: None,
            current: Arc::default(),
            until: None,
            awaited: None,
        }
    }

    /// A change is answered when it has come back to this shadow.
    pub(super) fn awaiting(self, awaited: Option<Arc<dyn ReplicaProgress>>) -> Self {
        Self { awaited, ..self }
    }

    /// A change that is forwarded, until a time on the monotonic clock.
    pub(super) fn forwarding(links: Arc<Links>, asker: Asker, until: Duration) -> Self {
        Self { until: Some(until), ..Self::new(links, asker, Behavior::default()) }
    }

    /// Follows it. `done` is called once, unless it is given up.
    pub(super) fn begin(
        mut self,
        original: OriginalRequest,
        referral: LdapResult,
        done: Done<Outcome>,
    ) -> PendingAnswer {
        self.urls = referral.referrals.iter().cloned().collect();
        self.hops = match &original.request {
            Request::Password { hops, .. } => *hops,
            _ => original.controls.hops,
        };
        let current = Arc::clone(&self.current);
        self.go_on(original, Answer { referral, done });
        let give_up = move || {
            let current = current.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((proxy, number)) = current {
                proxy.shared.command(Command::GiveUp(number));
            }
        };
        PendingAnswer { deadline: None, give_up: Some(Box::new(give_up)) }
    }

    /// Asks the next server.
    fn go_on(mut self, original: OriginalRequest, answer: Answer) {
        while let Some(text) = self.urls.pop_front() {
            if self.tries >= TRIES_MAX {
                break;
            }
            self.tries += 1;
            let Ok(url) = LdapUrl::parse(&text) else {
                self.note(LdapResult::with(ResultCode::OTHER, format!("`{text}` is no URL to follow")));
                continue;
            };
            // A referral could name any server.
            if original.request.has_password() && !self.links.lists(&url) {
                let why = "no password goes to a server that only a referral names";
                self.note(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, why));
                continue;
            }
            let proxy = match self.links.to(&url) {
                Ok(proxy) => proxy,
                Err(why) => {
                    self.note(LdapResult::with(ResultCode::UNAVAILABLE, why));
                    continue;
                }
            };
            return self.ask(&proxy, &url, original, answer);
        }
        self.fail(None, answer);
    }

    fn ask(mut self, proxy: &Arc<Proxy>, url: &LdapUrl, original: OriginalRequest, answer: Answer) {
        let target = if url.dn.is_empty() { original.target.as_str() } else { &url.dn };
        self.asker.began = self.links.clock.monotonic();
        let asker = self.asker.clone();
        let (kind, is_repeatable) = match &original.request {
            Request::Compare { .. } => (Kind::Compare, true),
            Request::Update(operation) | Request::Forwarded { operation, .. } => (kind_of(operation), false),
            Request::Password { .. } | Request::Extended { .. } => (Kind::Extended, false),
        };
        let hops = referred(self.hops, self.depth);
        let request_context = match proxy.request_context(&asker, hops, kind) {
            Ok(request_context) => request_context,
            Err(refused) => {
                return self.fail(Some(refused.into()), answer);
            }
        };
        let counted = original.controls.with(|values| values.hops = hops);
        let mut controls = proxy.controls(&request_context, &counted);
        controls.extend(self.awaited.as_ref().and_then(|_| written::csn_control(&original)));
        let body = match &original.request {
            Request::Compare { attribute, value } => {
                encoded(|out| client::compare(out, ANY, target, attribute, value, &controls))
            }
            Request::Update(operation) => {
                let operation = renamed(operation, target);
                encoded(|out| encode_update(out, &operation, &controls))
            }
            Request::Forwarded { operation, terms } => {
                let mut controls = proxy.controls_of_none(&request_context, hops);
                controls.push(control::Relax.to_control(true));
                match terms {
                    Terms::Exact => {}
                    Terms::Permissive => controls.push(control::PermissiveModify.to_control(false)),
                    Terms::OnlyIf { filter, is_strict } => {
                        let filter = filter.as_filter();
                        controls.push(control::Assertion { filter }.to_control(*is_strict));
                    }
                }
                let operation = renamed(operation, target);
                encoded(|out| encode_update(out, &operation, &controls))
            }
            Request::Password { old, new, policy_control, .. } => {
                let mut controls = proxy.controls_of_none(&request_context, hops);
                if *policy_control {
                    controls.push(control::PasswordPolicyRequest.to_control(false));
                }
                encode_password(target, old.as_ref(), new.as_ref(), &controls)
            }
            Request::Extended { oid, value } => {
                encoded(|out| client::extended(out, ANY, oid, value.as_deref(), &controls))
            }
        };
        let (current, until) = (Arc::clone(&self.current), self.until);
        let answerer = Arc::clone(proxy);
        let answered = move |outcome| self.answered(&answerer, original, answer, outcome);
        let mut job = request_context.job(body.into(), is_repeatable, Sink::Once(Box::new(answered)));
        job.deadline = until.or(job.deadline);
        // Locked so that giving it up, and the answer, come behind the number.
        let mut place = current.lock().unwrap_or_else(PoisonError::into_inner);
        match proxy.shared.submit(job) {
            Ok(number) => *place = Some((Arc::clone(proxy), number)),
            Err(not_taken) => {
                drop(place);
                not_taken.end();
            }
        }
    }

    fn answered(
        mut self,
        proxy: &Arc<Proxy>,
        original: OriginalRequest,
        answer: Answer,
        mut outcome: Outcome,
    ) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The hops are no business of the client, and neither is what this overlay alone asked for, whatever came of the change.
        outcome.controls.retain(|control| control.oid != oid::PROXY_HOPS);
        let csn = self.awaited.as_ref().and_then(|_| written::take_csn(&original, &mut outcome.controls));
        let code = outcome.result.code;
        if is_referral(&outcome.result) && self.depth < self.links.depth_max {
            self.depth += 1;
            self.urls = std::mem::take(&mut outcome.result.referrals).into();
            return self.go_on(original, answer);
        }
        let is_good = matches!(
            code,
            ResultCode::SUCCESS | ResultCode::COMPARE_TRUE | ResultCode::COMPARE_FALSE | ResultCode::REFERRAL
        );
        if let Some(progress) = self.awaited.take().filter(|_| code == ResultCode::SUCCESS) {
            let written = Written { links: self.links, proxy: Arc::clone(proxy), progress };
            return written.wait(&original, csn, outcome, answer.done);
        }
        if is_good {
            return (answer.done)(outcome);
        }
        // What a server may have had is not sent to another one, unless it changes nothing.
        let may_go_on = outcome.is_unsent
            || (matches!(original.request, Request::Compare { .. })
                && matches!(
                    code,
                    ResultCode::UNAVAILABLE | ResultCode::BUSY | ResultCode::ADMIN_LIMIT_EXCEEDED
                ));
        if may_go_on && !self.urls.is_empty() {
            self.failure.get_or_insert(outcome);
            return self.go_on(original, answer);
        }
        self.fail(Some(outcome), answer);
    }

    fn note(&mut self, result: LdapResult) {
        self.failure.get_or_insert_with(|| result.into());
    }

    fn fail(self, last: Option<Outcome>, answer: Answer) {
        let last = match last {
            // The proxy that asks would follow the referral once more.
            Some(outcome) if self.hops > 0 && outcome.result.code == ResultCode::LOOP_DETECT => {
                return (answer.done)(outcome);
            }
            last => last,
        };
        let outcome = if self.until.is_some() {
            self.failure
                .or(last)
                .unwrap_or_else(|| LdapResult::with(ResultCode::UNAVAILABLE, "no server to ask").into())
        } else if self.behavior.resolve == Wish::ChainingRequired {
            cannot_chain().into()
        } else if self.links.return_error {
            self.failure.or(last).unwrap_or_else(|| answer.referral.into())
        } else {
            answer.referral.into()
        };
        (answer.done)(outcome);
    }
}

/// The same change of an entry that has another name where it is made.
fn renamed(operation: &WriteOperation, target: &str) -> WriteOperation {
    let mut operation = operation.clone();
    let (WriteOperation::Add { entry, .. }
    | WriteOperation::Delete { entry }
    | WriteOperation::Modify { object: entry, .. }
    | WriteOperation::ModifyDn { entry, .. }) = &mut operation;
    target.clone_into(entry);
    operation
}
