//! The backend of a proxied database.

use std::sync::Arc;
use std::time::Duration;

use larix_backend::{
    Announced, Backend, Bind, Changes, Compare, Context, Cursor, Done, End, Later, PasswordChange,
    PasswordChanged, Pending, Proof, Reply, Search, Verdict,
};
use larix_engine::access::AccessPolicy;
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteOperation, WriteOutcome};
use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::control::{self, ControlValue};
use larix_proto::extended::{ExtendedValue, PasswordModify, PasswordModifyResponse};
use larix_proto::{ControlBuf, Controls, LdapResult, MessageId, ResultCode, client, oid};
use larix_schema::{BoundFilter, NormalDn, Schema};
use zeroize::Zeroizing;

use crate::identity::{Chosen, choose};
use crate::job::{Binds, Job, Outcome, Owner, Sink, body};
use crate::proxy::{Proxy, busy};
use crate::search::{Following, Judge};
use crate::settings::Kind;
use crate::shared::Command;

/// Proxies that a request may have come through.
pub const HOPS_MAX: u8 = 8;
/// Bodies are encoded with this id, which is left out of them.
const ANY: MessageId = MessageId(1);
/// The thread ends a request so long after its client was answered that it takes too long.
const LATER: Duration = Duration::from_secs(2);

/// A database that other servers have.
#[derive(Debug)]
pub struct ProxyBackend {
    pub proxy: Arc<Proxy>,
    pub schema: Arc<Schema>,
    pub policy: Arc<AccessPolicy>,
    /// As shown.
    pub suffixes: Vec<String>,
}

/// What of a request is the same for every kind.
struct Asked<'a> {
    context: &'a Context<'a>,
    chosen: Chosen,
    kind: Kind,
    /// When it is answered that it takes too long.
    until: Option<Monotonic>,
}

impl Asked<'_> {
    fn job(self, body: Zeroizing<Vec<u8>>, is_repeatable: bool, sink: Sink) -> Job {
        let nanos = |time: Monotonic| Duration::from_nanos(time.0);
        Job {
            owner: self.chosen.owner,
            credentials: self.chosen.credentials,
            kind: self.kind,
            body,
            deadline: self.until.map(|until| nanos(until) + LATER),
            patience: None,
            entries_max: None,
            is_repeatable,
            message: ANY,
            binds: None,
            tries: 0,
            sink,
        }
    }
}

impl ProxyBackend {
    fn asked<'a>(
        &self,
        context: &'a Context<'a>,
        controls: &RequestControls,
        kind: Kind,
    ) -> Result<Asked<'a>, LdapResult> {
        if controls.hops >= HOPS_MAX {
            let text = "the request has come through too many proxies";
            return Err(LdapResult::with(ResultCode::LOOP_DETECT, text));
        }
        let chosen = choose(&self.proxy, &self.policy, context)?;
        let until = self.proxy.settings.timeouts.of(kind).map(|time| {
            let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            Monotonic(context.began.0.saturating_add(nanos))
        });
        Ok(Asked { context, chosen, kind, until })
    }

    /// The controls of the request to the target.
    fn controls(&self, asked: &Asked<'_>, controls: &RequestControls) -> Vec<ControlBuf> {
        let settings = &self.proxy.settings;
        let own = |oid: &str| {
            matches!(
                oid,
                oid::PROXIED_AUTHORIZATION
                    | oid::PROXIED_AUTHORIZATION_V1
                    | oid::PAGED_RESULTS
                    | oid::PROXY_HOPS
            ) || (settings.session_tracking && oid == oid::SESSION_TRACKING)
        };
        let sent = Controls::parse(&controls.sent).unwrap_or_default();
        let mut all: Vec<ControlBuf> =
            sent.iter().filter(|control| !own(control.oid)).map(|control| control.to_owned()).collect();
        // What goes through several databases has cookies of its own for each.
        all.extend(controls.paged.as_ref().map(|page| {
            control::PagedResults { size: page.size, cookie: &page.cookie }.to_control(page.critical)
        }));
        all.extend(asked.chosen.acting.as_ref().map(|(authorization_id, critical)| {
            control::ProxiedAuthorization { authorization_id }.to_control(*critical)
        }));
        if settings.session_tracking {
            all.push(tracking(asked.context));
        }
        all.push(hops(controls.hops));
        all
    }

    /// Hands over a request that has one answer.
    fn submit<T>(
        &self,
        asked: Asked<'_>,
        body: Vec<u8>,
        is_repeatable: bool,
        (done, map): (Done<T>, impl FnOnce(Outcome) -> T + Send + 'static),
    ) -> Pending
    where
        T: 'static,
    {
        let until = asked.until;
        let sink = Sink::Once(Box::new(move |outcome| done(map(outcome))));
        self.hand_over(asked.job(body.into(), is_repeatable, sink), until)
    }

    fn hand_over(&self, job: Job, until: Option<Monotonic>) -> Pending {
        match self.proxy.shared.submit(job) {
            Ok(number) => {
                let shared = Arc::clone(&self.proxy.shared);
                let give_up = move || shared.command(Command::GiveUp(number));
                Pending { deadline: until, give_up: Some(Box::new(give_up)) }
            }
            Err(job) => {
                job.sink.end(busy());
                Pending::default()
            }
        }
    }
}

/// One more proxy.
fn hops(before: u8) -> ControlBuf {
    ControlBuf { oid: oid::PROXY_HOPS.into(), critical: false, value: Some(vec![before.saturating_add(1)]) }
}

/// For whom the proxy asks (draft-wahl-ldap-session).
fn tracking(context: &Context<'_>) -> ControlBuf {
    let peer = &context.subject.peer;
    let address = peer.peer_name.strip_prefix("IP=").unwrap_or_default();
    let address = address.rsplit_once(':').map_or(address, |(address, _)| address);
    control::SessionTracking {
        source_ip: address.trim_start_matches('[').trim_end_matches(']'),
        source_name: peer.domain.get().map_or("", String::as_str),
        format: SESSION_USERNAME,
        identifier: context.subject.shown_dn(),
    }
    .to_control(false)
}

/// The format of an identifier that is a user's name.
const SESSION_USERNAME: &str = "1.3.6.1.4.1.21008.108.63.1.3";

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Zeroizing::new(Vec::new());
    encode(&mut message);
    body(&message).to_vec()
}

/// Whether a part of a filter can be true of no entry, as far as is known here.
fn is_undefined(filter: &BoundFilter) -> bool {
    match filter {
        BoundFilter::Undefined => true,
        BoundFilter::And(parts) | BoundFilter::Or(parts) => parts.iter().any(is_undefined),
        BoundFilter::Not(part) => is_undefined(part),
        _ => false,
    }
}

impl Backend for ProxyBackend {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result: LdapResult| Box::new((result, Vec::new()));
        let asked = self.asked(context, &search.controls, Kind::Search).map_err(refused)?;
        let settings = &self.proxy.settings;
        if settings.no_undefined_filter && is_undefined(&self.schema.bind_filter(search.request.filter)) {
            return Err(refused(LdapResult::success()));
        }
        let controls = self.controls(&asked, &search.controls);
        let request = &search.request;
        let attributes: Vec<&str> = request.attributes.iter().collect();
        let encode = |size_limit: u32| {
            encoded(|out| {
                let wanted = client::Search {
                    base: request.base,
                    scope: request.scope,
                    deref: request.deref,
                    size_limit,
                    time_limit: request.time_limit,
                    types_only: request.types_only,
                    filter: request.filter,
                    attributes: &attributes,
                };
                client::search(out, ANY, &wanted, &controls);
            })
        };
        let deadline = (request.time_limit > 0).then(|| {
            let nanos = u64::from(request.time_limit).saturating_mul(1_000_000_000);
            Monotonic(context.began.0.saturating_add(nanos))
        });
        let (proxy, schema, policy) = (&self.proxy, &self.schema, &self.policy);
        let judge = Judge::new(proxy, (schema, policy), context, &search);
        let patience = asked.until.map(|until| Duration::from_nanos(until.0.saturating_sub(context.began.0)));
        let asked = Asked { until: deadline, ..asked };
        let mut job = asked.job(encode(request.size_limit).into(), true, Sink::Feed(Arc::default()));
        job.patience = patience;
        job.message = search.message;
        job.entries_max = (request.size_limit > 0).then_some(request.size_limit);
        Ok(Box::new(Following::new(Arc::clone(&self.proxy), job, judge, deadline)))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        let asked = match self.asked(context, compare.controls, Kind::Compare) {
            Ok(asked) => asked,
            Err(refused) => return Reply::Now((refused, Vec::new())),
        };
        let controls = self.controls(&asked, compare.controls);
        let request = compare.request;
        let body = encoded(|out| {
            client::compare(out, ANY, request.entry, request.attribute, request.value, &controls);
        });
        Reply::Later(self.submit(asked, body, true, (later(), |outcome| (outcome.result, outcome.controls))))
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        let password = match bind.proof {
            Proof::Password(password) => password,
            Proof::Judged(true) => return Reply::Now(LdapResult::success().into()),
            Proof::Judged(false) => {
                return Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into());
            }
        };
        if bind.controls.hops >= HOPS_MAX {
            let text = "the request has come through too many proxies";
            return Reply::Now(LdapResult::with(ResultCode::LOOP_DETECT, text).into());
        }
        let sent = Controls::parse(&bind.controls.sent).unwrap_or_default();
        let passed = sent.iter().filter(|control| control.oid != oid::PROXY_HOPS);
        let mut controls: Vec<ControlBuf> = passed.map(|control| control.to_owned()).collect();
        if bind.policy_control && controls.iter().all(|control| control.oid != oid::PASSWORD_POLICY) {
            controls.push(control::PasswordPolicyRequest.to_control(false));
        }
        controls.push(hops(bind.controls.hops));
        let name = bind.dn.as_str();
        let body = encoded(|out| client::simple_bind(out, ANY, name, password, &controls));
        let time = self.proxy.settings.timeouts.of(Kind::Bind).unwrap_or_default();
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = Monotonic(context.began.0.saturating_add(nanos));
        let chosen = Chosen { owner: Owner::Spare, credentials: None, acting: None };
        let asked = Asked { context, chosen, kind: Kind::Bind, until: Some(until) };
        let done = later();
        let sink = Sink::Once(Box::new(move |outcome| {
            done(Verdict { controls: outcome.controls, ..Verdict::from(outcome.result) });
        }));
        let mut job = asked.job(body.into(), true, sink);
        job.binds = Some(Binds {
            dn: bind.dn.clone(),
            client: context.client.lifetime(),
            password: self.proxy.settings.rebind_as_user.then(|| password.to_vec().into()),
        });
        Reply::Later(self.hand_over(job, Some(until)))
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        if change.old.is_some()
            && let Err(refused) = (change.proof_begins)()
        {
            return Reply::Now(refused.into());
        }
        let none = RequestControls::default();
        let asked = match self.asked(context, &none, Kind::Extended) {
            Ok(asked) => asked,
            Err(refused) => return Reply::Now(refused.into()),
        };
        let mut controls = self.controls(&asked, &none);
        if change.policy_control {
            controls.push(control::PasswordPolicyRequest.to_control(false));
        }
        let secret = |secret: &'_ Option<Zeroizing<Vec<u8>>>| secret.as_ref().map(|secret| secret.to_vec());
        let (old, new) = (Zeroizing::new(secret(&change.old)), Zeroizing::new(secret(&change.new)));
        let request =
            PasswordModify { user: Some(change.target.as_bytes()), old: old.as_deref(), new: new.as_deref() };
        let value = Zeroizing::new(request.encode());
        let body = encoded(|out| {
            client::extended(out, ANY, oid::PASSWORD_MODIFY, value.as_ref().map(|v| v.as_slice()), &controls);
        });
        let has_proof = change.old.is_some();
        let map = move |outcome: Outcome| {
            let value = outcome.value.as_deref();
            let generated = PasswordModifyResponse::decode(value).ok().and_then(|answer| answer.generated);
            let generated = generated.map(|generated| Zeroizing::new(generated.to_vec()));
            let proof = match outcome.result.code {
                ResultCode::SUCCESS => has_proof.then_some(true),
                ResultCode::INVALID_CREDENTIALS => has_proof.then_some(false),
                _ => None,
            };
            let controls = outcome.controls;
            PasswordChanged { controls, generated, proof, ..PasswordChanged::from(outcome.result) }
        };
        Reply::Later(self.submit(asked, body, false, (later(), map)))
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> Pending {
        let Changes::One(request, _) = changes else {
            let text = "a proxied database takes no transactions";
            done(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
            return Pending::default();
        };
        let kind = match &request.operation {
            WriteOperation::Add { .. } => Kind::Add,
            WriteOperation::Modify { .. } => Kind::Modify,
            WriteOperation::Delete { .. } => Kind::Delete,
            WriteOperation::ModifyDn { .. } => Kind::ModifyDn,
        };
        let asked = match self.asked(context, &request.controls, kind) {
            Ok(asked) => asked,
            Err(refused) => {
                done(refused.into());
                return Pending::default();
            }
        };
        let controls = self.controls(&asked, &request.controls);
        let body = encoded(|out| encode_update(out, &request.operation, &controls));
        let map = |outcome: Outcome| WriteOutcome {
            controls: outcome.controls,
            ..WriteOutcome::from(outcome.result)
        };
        self.submit(asked, body, false, (done, map))
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn announce(&self, announced: &mut Announced) {
        announced.naming_contexts.extend(self.suffixes.iter().cloned());
    }
}

fn encode_update(out: &mut Vec<u8>, operation: &WriteOperation, controls: &[ControlBuf]) {
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
