//! What all kinds of requests to a target have alike: whose connection they take, their controls, their deadlines.

use std::sync::Arc;
use std::time::Duration;

use larix_backend::{Done, PasswordChangeOutcome, PendingAnswer};
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_engine::write::{WriteOperation, WriteOutcome};
use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::control::{self, ControlValue};
use larix_proto::extended::{ExtendedValue, PasswordModify, PasswordModifyResponse};
use larix_proto::{ControlBuf, Controls, LdapResult, ResultCode, client, oid};
use zeroize::Zeroizing;

use crate::cookie;
use crate::identity::{Asker, Chosen, choose};
use crate::job::{ANY, Job, LATER, Outcome, Sink, body};
use crate::proxy::Proxy;
use crate::settings::Kind;
use crate::shared::Command;

/// Proxies that a request may have come through.
pub const HOPS_MAX: u8 = 8;
/// Most requests have fewer bytes.
const MESSAGE_BYTES: usize = 256;

/// What of a request is the same for every kind.
pub(crate) struct RequestContext<'a> {
    pub(crate) asker: &'a Asker,
    pub(crate) chosen: Chosen,
    pub(crate) kind: Kind,
    /// When it is answered that it takes too long.
    pub(crate) until: Option<Monotonic>,
}

impl RequestContext<'_> {
    pub(crate) fn job(self, body: Zeroizing<Vec<u8>>, is_repeatable: bool, sink: Sink) -> Job {
        let nanos = |time: Monotonic| Duration::from_nanos(time.0);
        Job {
            credentials: self.chosen.credentials,
            deadline: self.until.map(|until| nanos(until) + LATER),
            is_repeatable,
            ..Job::new(self.chosen.owner, self.kind, body, sink)
        }
    }
}

impl Proxy {
    /// # Errors
    /// A request that has come through too many proxies; somebody who may not be asserted.
    pub(crate) fn request_context<'a>(
        &self,
        asker: &'a Asker,
        hops: u8,
        kind: Kind,
    ) -> Result<RequestContext<'a>, LdapResult> {
        if hops >= HOPS_MAX {
            return Err(in_circles());
        }
        let chosen = choose(self, asker)?;
        let until = self.settings.timeouts.of(kind).map(|time| {
            let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            Monotonic(asker.began.0.saturating_add(nanos))
        });
        Ok(RequestContext { asker, chosen, kind, until })
    }

    /// The controls of the request to the target.
    pub(crate) fn controls(
        &self,
        request_context: &RequestContext<'_>,
        controls: &RequestControls,
    ) -> Vec<ControlBuf> {
        let own = |oid: &str| {
            matches!(
                oid,
                oid::PROXIED_AUTHORIZATION
                    | oid::PROXIED_AUTHORIZATION_V1
                    | oid::PAGED_RESULTS
                    | oid::PROXY_HOPS
            )
        };
        let sent = Controls::parse(&controls.sent).unwrap_or_default();
        let mut all: Vec<ControlBuf> =
            sent.iter().filter(|control| !own(control.oid)).map(|control| control.to_owned()).collect();
        // What goes through several databases has cookies of its own for each.
        all.extend(controls.paged.as_ref().map(|page| {
            let (_, cookie) = cookie::split(&page.cookie);
            control::PagedResults { size: page.size, cookie }.to_control(page.critical)
        }));
        all.extend(self.controls_of_none(request_context, controls.hops));
        all
    }

    /// The same of a request that has none itself.
    pub(crate) fn controls_of_none(
        &self,
        request_context: &RequestContext<'_>,
        before: u8,
    ) -> Vec<ControlBuf> {
        let acting = request_context.chosen.acting.as_ref().map(|(authorization_id, critical)| {
            control::ProxiedAuthorization { authorization_id }.to_control(*critical)
        });
        let tracked = self.settings.session_tracking.then(|| tracking(request_context.asker));
        acting.into_iter().chain(tracked).chain([hops(before)]).collect()
    }

    /// Hands over a request that has one answer.
    pub(crate) fn submit<T>(
        &self,
        request_context: RequestContext<'_>,
        body: Vec<u8>,
        is_repeatable: bool,
        (done, map): (Done<T>, impl FnOnce(Outcome) -> T + Send + 'static),
    ) -> PendingAnswer
    where
        T: 'static,
    {
        let until = request_context.until;
        let sink = Sink::Once(Box::new(move |outcome| done(map(outcome))));
        self.hand_over(request_context.job(body.into(), is_repeatable, sink), until)
    }

    pub(crate) fn hand_over(&self, job: Job, until: Option<Monotonic>) -> PendingAnswer {
        match self.shared.submit(job) {
            Ok(number) => {
                let shared = Arc::clone(&self.shared);
                let give_up = move || shared.command(Command::GiveUp(number));
                PendingAnswer { deadline: until, give_up: Some(Box::new(give_up)) }
            }
            Err(not_taken) => {
                not_taken.end();
                PendingAnswer::default()
            }
        }
    }
}

/// The answer to what has come through too many proxies.
pub(crate) fn in_circles() -> LdapResult {
    let text = format!(
        "the request has come through {HOPS_MAX} proxies, the most there may be: does one of them point at itself, or back at another?"
    );
    LdapResult::with(ResultCode::LOOP_DETECT, text)
}

/// One more proxy.
pub(crate) fn hops(before: u8) -> ControlBuf {
    ControlBuf { oid: oid::PROXY_HOPS.into(), critical: false, value: Some(vec![before.saturating_add(1)]) }
}

/// The hops of a request that the `depth`th referral in a row has led to: each one behind the first counts like a proxy. Otherwise
/// servers whose referrals lead to each other would multiply a request at each hop. The last hop is left, so that the referral is
/// followed all the same.
pub(crate) fn referred(hops: u8, depth: u32) -> u8 {
    let more = u8::try_from(depth.saturating_sub(1)).unwrap_or(HOPS_MAX);
    hops.saturating_add(more).min(HOPS_MAX - 1).max(hops)
}

/// For whom the proxy asks (draft-wahl-ldap-session).
fn tracking(asker: &Asker) -> ControlBuf {
    let peer = &asker.subject.peer;
    let address = peer.peer_name.strip_prefix("IP=").unwrap_or_default();
    let address = address.rsplit_once(':').map_or(address, |(address, _)| address);
    control::SessionTracking {
        source_ip: address.trim_start_matches('[').trim_end_matches(']'),
        source_name: peer.domain.get().map_or("", String::as_str),
        format: SESSION_USERNAME,
        identifier: asker.subject.shown_dn(),
    }
    .to_control(false)
}

/// The format of an identifier that is a user's name.
const SESSION_USERNAME: &str = "1.3.6.1.4.1.21008.108.63.1.3";

/// The operation and the controls of a message.
pub(crate) fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Zeroizing::new(Vec::with_capacity(MESSAGE_BYTES));
    encode(&mut message);
    let envelope = message.len() - body(&message).len();
    message.drain(..envelope);
    std::mem::take(&mut *message)
}

pub(crate) fn encode_update(out: &mut Vec<u8>, operation: &WriteOperation, controls: &[ControlBuf]) {
    match operation {
        WriteOperation::Add { entry, attributes } => {
            let attributes: Vec<ClientAttribute<'_, Vec<u8>>> = attributes
                .iter()
                .map(|a| ClientAttribute { description: &a.description, values: &a.values })
                .collect();
            client::add(out, ANY, entry, &attributes, controls);
        }
        WriteOperation::Modify { object, changes } => {
            let changes: Vec<ClientChange<'_, Vec<u8>>> = changes
                .iter()
                .map(|change| ClientChange {
                    operation: change.operation,
                    attribute: ClientAttribute {
                        description: &change.attribute.description,
                        values: &change.attribute.values,
                    },
                })
                .collect();
            client::modify(out, ANY, object, &changes, controls);
        }
        WriteOperation::Delete { entry } => client::delete(out, ANY, entry, controls),
        WriteOperation::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior } => {
            client::modify_dn(out, ANY, entry, new_rdn, *delete_old_rdn, new_superior.as_deref(), controls);
        }
    }
}

/// The kind of a change.
pub(crate) const fn kind_of(operation: &WriteOperation) -> Kind {
    match operation {
        WriteOperation::Add { .. } => Kind::Add,
        WriteOperation::Modify { .. } => Kind::Modify,
        WriteOperation::Delete { .. } => Kind::Delete,
        WriteOperation::ModifyDn { .. } => Kind::ModifyDn,
    }
}

/// A request to modify a password (RFC 3062), without its envelope.
pub(crate) fn encode_password(
    target: &str,
    old: Option<&Zeroizing<Vec<u8>>>,
    new: Option<&Zeroizing<Vec<u8>>>,
    controls: &[ControlBuf],
) -> Vec<u8> {
    let request = PasswordModify {
        user: Some(target.as_bytes()),
        old: old.map(|old| old.as_slice()),
        new: new.map(|new| new.as_slice()),
    };
    let value = Zeroizing::new(request.encode());
    encoded(|out| {
        client::extended(out, ANY, oid::PASSWORD_MODIFY, value.as_ref().map(|v| v.as_slice()), controls);
    })
}

/// What the answer to it says.
pub(crate) fn password_changed(outcome: Outcome, has_proof: bool) -> PasswordChangeOutcome {
    let value = outcome.value.as_deref();
    let generated = PasswordModifyResponse::decode(value).ok().and_then(|answer| answer.generated);
    let generated = generated.map(|generated| Zeroizing::new(generated.to_vec()));
    let proof = match outcome.result.code {
        // Nothing was compared, or nobody learns what came of it.
        _ if outcome.is_unsent => None,
        ResultCode::BUSY | ResultCode::UNAVAILABLE | ResultCode::REFERRAL => None,
        // Servers refuse a wrong old password with one code or another.
        code => has_proof.then_some(code == ResultCode::SUCCESS),
    };
    let controls = outcome.controls;
    PasswordChangeOutcome { controls, generated, proof, ..PasswordChangeOutcome::from(outcome.result) }
}

/// What the answer to a change says. A target that refuses a wrong old password has no other code for it than 53.
pub(crate) fn changed(outcome: Outcome) -> WriteOutcome {
    let Outcome { result, controls, is_of_target, .. } = outcome;
    let wrong_password = is_of_target && result.code == ResultCode::UNWILLING_TO_PERFORM;
    WriteOutcome { controls, wrong_password, ..WriteOutcome::from(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_alone_says_that_a_password_in_a_change_is_wrong() {
        for (code, is_of_target, expected) in [
            (ResultCode::UNWILLING_TO_PERFORM, true, true),
            (ResultCode::UNWILLING_TO_PERFORM, false, false),
            (ResultCode::CONSTRAINT_VIOLATION, true, false),
            (ResultCode::SUCCESS, true, false),
        ] {
            let outcome = Outcome { is_of_target, ..LdapResult::new(code).into() };
            assert_eq!(changed(outcome).wrong_password, expected, "{code:?} {is_of_target}");
        }
    }

    /// The requests of one that proxies follow for each other, each up to five referrals in a row.
    fn requests(hops: u8) -> u32 {
        if hops >= HOPS_MAX {
            return 0;
        }
        1 + (1..=5).map(|depth| requests(referred(hops, depth) + 1)).sum::<u32>()
    }

    #[test]
    fn referrals_in_a_row_count_as_hops() {
        for (hops, depth, expected) in
            [(0, 1, 0), (0, 2, 1), (3, 5, 7), (3, 32, 7), (7, 2, 7), (8, 1, 8), (0, u32::MAX, 7)]
        {
            assert_eq!(referred(hops, depth), expected, "{hops} {depth}");
        }
        assert_eq!(requests(0), 124);
    }

    #[test]
    fn what_an_answer_says_of_the_old_password() {
        for (code, is_unsent, expected) in [
            (ResultCode::SUCCESS, false, Some(true)),
            (ResultCode::INVALID_CREDENTIALS, false, Some(false)),
            // As slapd answers a wrong one.
            (ResultCode::UNWILLING_TO_PERFORM, false, Some(false)),
            (ResultCode::BUSY, false, None),
            (ResultCode::UNAVAILABLE, false, None),
            (ResultCode::REFERRAL, false, None),
            (ResultCode::ADMIN_LIMIT_EXCEEDED, true, None),
        ] {
            let outcome = || Outcome { is_unsent, ..LdapResult::new(code).into() };
            assert_eq!(password_changed(outcome(), true).proof, expected, "{code:?}");
            assert_eq!(password_changed(outcome(), false).proof, None, "{code:?}: none was sent");
        }
    }
}
