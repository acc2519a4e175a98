//! The backend of a proxied database.

use std::sync::Arc;

use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation,
    Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, Verdict, answer_now,
};
use larix_engine::access::AccessPolicy;
use larix_engine::time::Monotonic;
use larix_engine::write::Completion;
use larix_proto::control::{self, ControlValue};
use larix_proto::{ControlBuf, Controls, LdapResult, ResultCode, client, oid};
use larix_schema::{BoundFilter, NormalDn, Schema};

use crate::identity::{Asker, Chosen, has_bound};
use crate::job::{ANY, Binds, Outcome, Owner, Sink};
use crate::proxy::Proxy;
use crate::request::{
    HOPS_MAX, RequestContext, changed, encode_password, encode_update, encoded, hops, in_circles, kind_of,
    password_changed,
};
use crate::search::{Judge, OutgoingSearch, TargetCursor};
use crate::settings::Kind;

/// A database that other servers have.
#[derive(Clone, Debug)]
pub struct ProxyBackend {
    pub proxy: Arc<Proxy>,
    pub schema: Arc<Schema>,
    pub policy: Arc<AccessPolicy>,
    /// The rules for entries that targets answer: [`Self::policy`], unless that holds for the names that an overlay in front gives them.
    pub entry_policy: Arc<AccessPolicy>,
    /// As shown.
    pub suffixes: Vec<String>,
}

impl ProxyBackend {
    pub(crate) fn asker(&self, context: &Context<'_>) -> Asker {
        Asker::by(&self.policy, context)
    }
}

/// Whether a part of a filter can be true of no entry, as far as is known here.
pub(crate) fn is_undefined(filter: &BoundFilter) -> bool {
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
        let asker = self.asker(context);
        let settings = &self.proxy.settings;
        if settings.no_undefined_filter && is_undefined(&self.schema.bind_filter(search.request.filter)) {
            return Err(refused(LdapResult::success()));
        }
        let request = &search.request;
        let attributes: Vec<&str> = request.attributes.iter().collect();
        // Below a database that this one is glued to, the base is not what the request says.
        let is_own = request.base == search.base.as_str()
            || self.schema.parse_dn(request.base).is_ok_and(|dn| dn == *search.base);
        let outgoing = OutgoingSearch {
            base: if is_own { request.base } else { search.base.as_str() },
            normal: search.base,
            scope: request.scope,
            deref: request.deref,
            size_limit: request.size_limit,
            time_limit: request.time_limit,
            types_only: request.types_only,
            filter: request.filter,
            attributes: &attributes,
            controls: &search.controls,
            message: search.message,
        };
        let judge = Judge::new(&self.proxy, (&self.schema, &self.entry_policy), &asker, &outgoing);
        TargetCursor::new(&self.proxy, &asker, &outgoing, judge)
            .map(|following| Box::new(following) as Box<dyn Cursor>)
            .map_err(refused)
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        let asker = self.asker(context);
        let request_context = match self.proxy.request_context(&asker, compare.controls.hops, Kind::Compare) {
            Ok(request_context) => request_context,
            Err(refused) => return Reply::Now((refused, Vec::new())),
        };
        let controls = self.proxy.controls(&request_context, compare.controls);
        let request = compare.request;
        let body = encoded(|out| {
            client::compare(out, ANY, request.entry, request.attribute, request.value, &controls);
        });
        Reply::Later(self.proxy.submit(
            request_context,
            body,
            true,
            (later(), |outcome| (outcome.result, outcome.controls)),
        ))
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
            return Reply::Now(in_circles().into());
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
        let asker = self.asker(context);
        let request_context = RequestContext { asker: &asker, chosen, kind: Kind::Bind, until: Some(until) };
        let done = later();
        let sink = Sink::Once(Box::new(move |outcome| {
            done(Verdict { controls: outcome.controls, ..Verdict::from(outcome.result) });
        }));
        let mut job = request_context.job(body.into(), true, sink);
        job.binds = Some(Binds {
            dn: bind.dn.clone(),
            client: context.client.lifetime(),
            password: self.proxy.settings.rebind_as_user.then(|| password.to_vec().into()),
        });
        Reply::Later(self.proxy.hand_over(job, Some(until)))
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        if change.old.is_some()
            && let Err(refused) = (change.proof_begins)()
        {
            return Reply::Now(refused.into());
        }
        let asker = self.asker(context);
        let request_context = match self.proxy.request_context(&asker, change.hops, Kind::Extended) {
            Ok(request_context) => request_context,
            Err(refused) => return Reply::Now(refused.into()),
        };
        let mut controls = self.proxy.controls_of_none(&request_context, change.hops);
        if change.policy_control {
            controls.push(control::PasswordPolicyRequest.to_control(false));
        }
        let body = encode_password(&change.target, change.old.as_ref(), change.new.as_ref(), &controls);
        let has_proof = change.old.is_some();
        let (shared, dn, new) = (Arc::clone(&self.proxy.shared), change.dn.clone(), change.new);
        let map = move |outcome: Outcome| {
            if let Some(new) = new.filter(|_| outcome.result.is_success()) {
                shared.note_password(&dn, &new);
            }
            password_changed(outcome, has_proof)
        };
        Reply::Later(self.proxy.submit(request_context, body, false, (later(), map)))
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let asker = self.asker(context);
        let is_question = request.oid == oid::WHO_AM_I;
        if is_question && !(self.proxy.settings.proxies_who_am_i && has_bound(&self.proxy, &asker)) {
            return Reply::Now(ExtendedOperation::not_served().into());
        }
        let request_context = match self.proxy.request_context(&asker, request.controls.hops, Kind::Extended)
        {
            Ok(request_context) => request_context,
            Err(refused) => return Reply::Now(refused.into()),
        };
        let controls = self.proxy.controls(&request_context, request.controls);
        let body = encoded(|out| client::extended(out, ANY, request.oid, request.value, &controls));
        let map = |outcome: Outcome| ExtendedAnswer {
            value: outcome.value,
            controls: outcome.controls,
            ..ExtendedAnswer::from(outcome.result)
        };
        Reply::Later(self.proxy.submit(request_context, body, is_question, (later(), map)))
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        let Changes::One(request, _) = changes else {
            let text = "a proxied database takes no transactions";
            return answer_now(done, LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        };
        let kind = kind_of(&request.operation);
        let asker = self.asker(context);
        let request_context = match self.proxy.request_context(&asker, request.controls.hops, kind) {
            Ok(request_context) => request_context,
            Err(refused) => return answer_now(done, refused),
        };
        let controls = self.proxy.controls(&request_context, &request.controls);
        let body = encoded(|out| encode_update(out, &request.operation, &controls));
        self.proxy.submit(request_context, body, false, (done, changed))
    }

    fn heeds(&self, control: &str) -> bool {
        matches!(control, oid::SYNC_REQUEST | oid::PERSISTENT_SEARCH)
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend(self.suffixes.iter().cloned());
    }
}
