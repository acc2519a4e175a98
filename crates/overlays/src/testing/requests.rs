//! Requests to a backend that interceptors stand in front of: it answers each with success and the word `reached`.

use std::sync::{Arc, Mutex};

use larix_backend::{
    Alone, Announcement, AnsweredSearch, Backend, Bind, Changes, Client, ClientHandle, Compare, Context,
    Cursor, Done, End, ExtendedAnswer, ExtendedOperation, First, InterceptedBackend, Interceptor, Later,
    PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, Stack, StepOutcome, Verdict,
    answer_now, slice,
};
use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::log::Follower;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor};
use larix_engine::time::{Clock, ManualClock};
use larix_engine::write::{Completion, Origin, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::ldif::Reader;
use larix_proto::{
    CompareRequest, DerefAliases, FilterBuf, LdapResult, MessageId, Response, Scope, SearchRequest, Strings,
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
        Ok(Box::new(AnsweredSearch { messages: Vec::new(), result: reached(), entries: 0 }))
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
        _: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        Reply::Now(reached().into())
    }

    fn extended(
        &self,
        _: &Context<'_>,
        _: &ExtendedOperation<'_>,
        _: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        Reply::Now(reached().into())
    }

    fn update(&self, _: &Context<'_>, _: Changes, done: Completion) -> PendingAnswer {
        answer_now(done, reached())
    }

    fn announce(&self, _: &mut Announcement) {}
}

/// How an interceptor is built, or is not.
type Built = Result<Arc<dyn Interceptor>, SettingError>;

/// A database behind one interceptor.
#[derive(Debug)]
pub(crate) struct Requests {
    backend: Arc<dyn Backend>,
    schema: Arc<Schema>,
    clock: ManualClock,
    subject: Arc<Subject>,
    client: TestClient,
    /// The answer that came later.
    late: Arc<Mutex<Option<String>>>,
    running: Mutex<Option<Box<dyn Cursor>>>,
}

/// A connection that notes what is done with it.
#[derive(Clone, Debug, Default)]
struct TestClient(Arc<Mutex<Vec<String>>>);

impl Client for TestClient {
    fn handle(&self) -> Box<dyn ClientHandle> {
        Box::new(self.clone())
    }
}

impl ClientHandle for TestClient {
    fn send(&self, message: Vec<u8>) {
        let decoded = Response::decode_message(&message).unwrap();
        let (id, text) = (decoded.id.0, format!("{:?}", decoded.response.result().unwrap().1.code.0));
        let name = match decoded.response {
            Response::Extended { name, value, .. } => {
                format!(" {} {}", name.unwrap(), String::from_utf8_lossy(value.unwrap_or_default()))
            }
            _ => String::new(),
        };
        self.0.lock().unwrap().push(format!("message {id}: {text}{name}"));
    }

    fn hang_up(&self) {
        self.0.lock().unwrap().push("closed".to_owned());
    }
}

impl Requests {
    pub(crate) fn through(
        (descriptor, build): (&Descriptor, impl FnOnce(&Settings, &BuildContext<'_>) -> Built),
        lines: &str,
    ) -> Result<Self, SettingError> {
        let schema = schema(descriptor.schema);
        let built = with_context(&schema, |context| build(&settings_of(descriptor, lines), context));
        let backend = InterceptedBackend::with(Stack::new(vec![built?]), Arc::new(Reached));
        let subject = Arc::new(Subject::default());
        let (client, late, running) = (TestClient::default(), Arc::default(), Mutex::new(None));
        Ok(Self { backend, schema, clock: ManualClock::default(), subject, client, late, running })
    }

    /// What was done with the connection since the last time.
    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.client.0.lock().unwrap())
    }

    /// The answer that has come by now; none yet.
    pub(crate) fn late(&self) -> Option<String> {
        let running = self.running.lock().unwrap().take();
        if let Some(mut cursor) = running {
            let mut out = Vec::new();
            return match cursor.step(slice(&self.clock), &mut out) {
                StepOutcome::Done(result, _) => Some(result_text(&result)),
                _ => {
                    *self.running.lock().unwrap() = Some(cursor);
                    None
                }
            };
        }
        self.late.lock().unwrap().take()
    }

    fn context(&self) -> Context<'_> {
        let clock: &dyn Clock = &self.clock;
        Context {
            subject: &self.subject,
            router: &Alone,
            client: &self.client,
            clock,
            began: clock.monotonic(),
        }
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
            First::Done { result, .. } => result_text(&result),
            First::Running(mut cursor) => {
                cursor.follow(Follower::new(Box::new(|| {})));
                *self.running.lock().unwrap() = Some(cursor);
                "later".to_owned()
            }
        }
    }

    pub(crate) fn compare(&self, entry: &str) -> String {
        let (dn, controls) = (self.dn(entry), RequestControls::default());
        let request = CompareRequest { entry, attribute: "cn", value: b"x" };
        let compare = Compare { request: &request, dn: &dn, controls: &controls };
        self.answered(
            |later| self.backend.compare(&self.context(), &compare, later),
            |end| result_text(&end.0),
        )
    }

    pub(crate) fn bind(&self, name: &str, by_mechanism: bool) -> String {
        let (dn, controls) = (self.dn(name), RequestControls::default());
        let proof = if by_mechanism { Proof::Judged(true) } else { Proof::Password(b"secret") };
        let bind = Bind { dn: &dn, proof, by_mechanism, policy_control: false, controls: &controls };
        self.answered(
            |later| self.backend.bind(&self.context(), &bind, later),
            |verdict| result_text(&verdict.result),
        )
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
        let late = Arc::clone(&self.late);
        let done = move |done: WriteOutcome| {
            let at = done.refused.map_or_else(String::new, |at| format!(", at {at}"));
            *late.lock().unwrap() = Some(result_text(&done.result) + &at);
        };
        self.backend.update(&self.context(), changes, Box::new(done));
        let answer = self.late.lock().unwrap().take();
        answer.unwrap_or_else(|| "later".to_owned())
    }

    pub(crate) fn modify_password(&self, name: &str) -> String {
        let dn = self.dn(name);
        let change = PasswordChange {
            dn: &dn,
            target: name.to_owned(),
            old: None,
            new: None,
            policy_control: false,
            hops: 0,
            proof_begins: &|| Ok(()),
        };
        let mut change = Some(change);
        self.answered(
            |later| self.backend.modify_password(&self.context(), change.take().unwrap(), later),
            |changed| result_text(&changed.result),
        )
    }

    pub(crate) fn extended(&self, oid: &str, name: &str) -> String {
        self.extended_with(oid, name, None)
    }

    pub(crate) fn extended_with(&self, oid: &str, name: &str, value: Option<&[u8]>) -> String {
        let (dn, controls) = (self.dn(name), RequestControls::default());
        let extended = ExtendedOperation { oid, controls: &controls, dn: &dn, value };
        self.answered(
            |later| self.backend.extended(&self.context(), &extended, later),
            |answer| {
                let value = answer.value.iter().flatten().map(|byte| format!(" {byte:02x}"));
                result_text(&answer.result) + &value.collect::<String>()
            },
        )
    }
}

fn result_text(result: &LdapResult) -> String {
    let mut text = format!("{} {}", result.code.0, result.diagnostic);
    if !result.matched_dn.is_empty() {
        text += &format!(", matched {}", result.matched_dn);
    }
    for url in &result.referrals {
        text += &format!(", see {url}");
    }
    text
}

impl Requests {
    /// What is answered now, or `later`.
    fn answered<T: 'static>(
        &self,
        ask: impl FnOnce(Later<'_, T>) -> Reply<T>,
        text_of: fn(&T) -> String,
    ) -> String {
        let mut later = || -> Done<T> {
            let late = Arc::clone(&self.late);
            Box::new(move |answer| *late.lock().unwrap() = Some(text_of(&answer)))
        };
        match ask(&mut later) {
            Reply::Now(answer) => text_of(&answer),
            Reply::Later(_) => "later".to_owned(),
        }
    }
}
