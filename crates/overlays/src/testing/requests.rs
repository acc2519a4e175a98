//! Requests to a backend that interceptors stand in front of: it answers each with success and the word `reached`.

use std::sync::{Arc, Mutex};

use larix_backend::{
    Announced, Answered, Backend, Below, Bind, Changes, Compare, Context, Cursor, Done, End, Extended,
    ExtendedAnswer, First, Intercepted, Interceptor, Later, Mount, PasswordChange, PasswordChanged, Pending,
    Proof, Reply, Routing, Search, Stack, Verdict,
};
use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor};
use larix_engine::time::{Clock, ManualClock};
use larix_engine::write::{Completion, Origin, WriteOperation, WriteRequest};
use larix_proto::ldif::Reader;
use larix_proto::{
    CompareRequest, DerefAliases, FilterBuf, LdapResult, MessageId, Scope, SearchRequest, Strings,
};
use larix_schema::{NormalDn, Schema};

use super::{schema, settings_of, with_context};

/// What answers requests that come through.
#[derive(Debug)]
struct Reached;

fn reached() -> LdapResult {
    LdapResult { diagnostic: "reached".to_owned(), ..LdapResult::success() }
}

impl Backend for Reached {
    fn open(&self, _: &Context<'_>, _: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        Ok(Box::new(Answered { messages: Vec::new(), result: reached(), entries: 0 }))
    }

    fn compare(&self, _: &Context<'_>, _: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        Reply::Now((reached(), Vec::new()))
    }

    fn bind(&self, _: &Context<'_>, _: &Bind<'_>, _: Later<'_, Verdict>) -> Reply<Verdict> {
        Reply::Now(reached().into())
    }

    fn modify_password(
        &self,
        _: &Context<'_>,
        _: PasswordChange<'_>,
        _: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        Reply::Now(reached().into())
    }

    fn extended(
        &self,
        _: &Context<'_>,
        _: &Extended<'_>,
        _: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        Reply::Now(reached().into())
    }

    fn update(&self, _: &Context<'_>, _: Changes, done: Completion) -> Pending {
        done(reached().into());
        Pending::default()
    }

    fn announce(&self, _: &mut Announced) {}
}

/// There is no other database.
#[derive(Debug)]
struct Alone;

impl Routing for Alone {
    fn mounts(&self) -> &[Mount] {
        &[]
    }

    fn backend(&self, _: &NormalDn) -> Option<&dyn Backend> {
        None
    }

    fn glued_below(&self, _: &NormalDn, _: Scope) -> Vec<Below<'_>> {
        Vec::new()
    }

    fn announced(&self) -> Announced {
        Announced::default()
    }
}

/// Builds an interceptor.
type Build = fn(&Settings, &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError>;

/// A database behind one interceptor.
#[derive(Debug)]
pub(crate) struct Requests {
    backend: Arc<dyn Backend>,
    schema: Arc<Schema>,
    clock: ManualClock,
    subject: Arc<Subject>,
}

impl Requests {
    pub(crate) fn through(
        (descriptor, build): (&Descriptor, Build),
        lines: &str,
    ) -> Result<Self, SettingError> {
        let schema = schema(descriptor.schema);
        let built = with_context(&schema, |context| build(&settings_of(descriptor, lines), context));
        let backend = Intercepted::with(Stack::new(vec![built?]), Arc::new(Reached));
        let subject = Arc::new(Subject::default());
        Ok(Self { backend, schema, clock: ManualClock::default(), subject })
    }

    fn context(&self) -> Context<'_> {
        let clock: &dyn Clock = &self.clock;
        Context { subject: &self.subject, router: &Alone, clock, began: clock.monotonic() }
    }

    fn dn(&self, text: &str) -> NormalDn {
        self.schema.parse_dn(text).unwrap()
    }

    pub(crate) fn search(&self, base: &str, scope: Scope) -> String {
        let filter: FilterBuf = "(objectClass=*)".parse().unwrap();
        let request = SearchRequest {
            base,
            scope,
            deref: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter: filter.as_filter(),
            attributes: Strings::default(),
        };
        let dn = self.dn(base);
        let search =
            Search { request, base: &dn, controls: RequestControls::default(), message: MessageId(1) };
        match self.backend.search(&self.context(), search, &mut Vec::new()) {
            First::Done { result, .. } => told(&result),
            First::Running(_) => "later".to_owned(),
        }
    }

    pub(crate) fn compare(&self, entry: &str) -> String {
        let (dn, controls) = (self.dn(entry), RequestControls::default());
        let request = CompareRequest { entry, attribute: "cn", value: b"x" };
        let compare = Compare { request: &request, dn: &dn, controls: &controls };
        answered(|later| self.backend.compare(&self.context(), &compare, later), |end| told(&end.0))
    }

    pub(crate) fn bind(&self, name: &str, by_mechanism: bool) -> String {
        let (dn, controls) = (self.dn(name), RequestControls::default());
        let proof = if by_mechanism { Proof::Judged(true) } else { Proof::Password(b"secret") };
        let bind = Bind { dn: &dn, proof, by_mechanism, policy_control: false, controls: &controls };
        answered(|later| self.backend.bind(&self.context(), &bind, later), |verdict| told(&verdict.result))
    }

    /// The records of an LDIF text, in one transaction if there are several.
    pub(crate) fn change(&self, ldif: &str) -> String {
        let request = |operation: WriteOperation| WriteRequest {
            operation,
            subject: Arc::clone(&self.subject),
            controls: RequestControls::default(),
            origin: Origin::Client,
            passwords: None,
        };
        let records = Reader::new(ldif.as_bytes()).map(|record| request(record.unwrap().into()));
        let mut requests: Vec<WriteRequest> = records.collect();
        let changes = match requests.len() {
            1 => {
                let request = requests.remove(0);
                let target = self.dn(request.operation.target());
                Changes::One(request, Some(target))
            }
            _ => Changes::Together(requests),
        };
        let outcome = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&outcome);
        self.backend.update(
            &self.context(),
            changes,
            Box::new(move |done| *noted.lock().unwrap() = Some((told(&done.result), done.refused))),
        );
        match outcome.lock().unwrap().take() {
            Some((text, Some(at))) => format!("{text}, at {at}"),
            Some((text, None)) => text,
            None => "later".to_owned(),
        }
    }

    pub(crate) fn modify_password(&self, name: &str) -> String {
        let dn = self.dn(name);
        let change = PasswordChange {
            dn: &dn,
            target: name.to_owned(),
            old: None,
            new: None,
            policy_control: false,
            proof_begins: &|| Ok(()),
        };
        let mut change = Some(change);
        answered(
            |later| self.backend.modify_password(&self.context(), change.take().unwrap(), later),
            |changed| told(&changed.result),
        )
    }

    pub(crate) fn extended(&self, oid: &str, name: &str) -> String {
        let (dn, controls) = (self.dn(name), RequestControls::default());
        let asked = Extended { oid, controls: &controls, dn: &dn, value: None };
        answered(|later| self.backend.extended(&self.context(), &asked, later), |answer| told(&answer.result))
    }
}

fn told(result: &LdapResult) -> String {
    let mut text = format!("{} {}", result.code.0, result.diagnostic);
    if !result.matched_dn.is_empty() {
        text += &format!(", matched {}", result.matched_dn);
    }
    for url in &result.referrals {
        text += &format!(", see {url}");
    }
    text
}

/// What is answered now, or `later`.
fn answered<T: 'static>(
    ask: impl FnOnce(Later<'_, T>) -> Reply<T>,
    told: impl FnOnce(&T) -> String,
) -> String {
    let mut later = || -> Done<T> { Box::new(|_| {}) };
    match ask(&mut later) {
        Reply::Now(answer) => told(&answer),
        Reply::Later(_) => "later".to_owned(),
    }
}
