//! `overlay sock`: a program is asked before a database answers, and told what the database has answered (slapd-sock(5)).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_backend::{
    Behind, Bind, Changes, Compare, Context, Cursor, Done, End, ExtendedAnswer, ExtendedOperation,
    Interceptor, KeptContext, KeptSearch, Later, Next, Operations, PasswordChange, PasswordChangeOutcome,
    PendingAnswer, Proof, Reply, Search, Verdict, answer_now, answered_by,
};
use larix_engine::time::Clock;
use larix_engine::write::{Completion, WriteOperation, WriteOutcome};
use larix_proto::{CompareRequest, LdapResult, Response, ResultCode, frames, limits};
use larix_schema::NormalDn;
use regex::Regex;
use zeroize::Zeroizing;

use super::SocketSettings;
use super::calls::ProgramAnswer;
use super::notices::{self, Notices};
use super::program::{Program, ProgramContext};
use super::text::Text;

mod search;

use search::{FrontSearch, Stage};

/// Requests that the program may be asked (`sockops`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SocketOperation {
    Bind,
    Unbind,
    Search,
    Compare,
    Modify,
    ModifyDn,
    Add,
    Delete,
    Extended,
}

impl SocketOperation {
    pub const ALL: [Self; 9] = [
        Self::Bind,
        Self::Unbind,
        Self::Search,
        Self::Compare,
        Self::Modify,
        Self::ModifyDn,
        Self::Add,
        Self::Delete,
        Self::Extended,
    ];

    /// As in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Unbind => "unbind",
            Self::Search => "search",
            Self::Compare => "compare",
            Self::Modify => "modify",
            Self::ModifyDn => "modrdn",
            Self::Add => "add",
            Self::Delete => "delete",
            Self::Extended => "extended",
        }
    }

    const fn of(operation: &WriteOperation) -> Self {
        match operation {
            WriteOperation::Add { .. } => Self::Add,
            WriteOperation::Delete { .. } => Self::Delete,
            WriteOperation::Modify { .. } => Self::Modify,
            WriteOperation::ModifyDn { .. } => Self::ModifyDn,
        }
    }

    const fn operations(self) -> Operations {
        match self {
            Self::Bind => Operations::BIND,
            Self::Unbind => Operations::NONE,
            Self::Search => Operations::SEARCH,
            Self::Compare => Operations::COMPARE,
            Self::Modify | Self::ModifyDn | Self::Add | Self::Delete => Operations::UPDATE,
            Self::Extended => Operations::PASSWORD.and(Operations::EXTENDED),
        }
    }
}

/// Answers of the database that the program may receive (`sockresps`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SocketNotice {
    Result,
    Search,
}

impl SocketNotice {
    pub const ALL: [Self; 2] = [Self::Result, Self::Search];

    /// As in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Search => "search",
        }
    }

    const fn operations(self) -> Operations {
        match self {
            Self::Search => Operations::SEARCH,
            Self::Result => Operations::SEARCH
                .and(Operations::COMPARE)
                .and(Operations::BIND)
                .and(Operations::UPDATE)
                .and(Operations::PASSWORD)
                .and(Operations::EXTENDED),
        }
    }
}

/// What the overlay is configured with.
#[derive(Clone, Debug, Default)]
pub struct OverlaySettings {
    pub socket: SocketSettings,
    pub asked: Vec<SocketOperation>,
    pub told: Vec<SocketNotice>,
    /// Names that requests are asked about; none: all.
    pub pattern: Option<Regex>,
}

/// The overlay in front of one database.
#[derive(Debug)]
pub struct ProgramInFront {
    program: Program,
    settings: OverlaySettings,
    notices: Option<Arc<Notices>>,
    clock: Arc<dyn Clock>,
    /// Where requests go on.
    behind: Mutex<Option<Behind>>,
}

/// Where a request goes on that the program was asked about, and under what.
#[derive(Debug)]
struct Continuation {
    behind: Option<Behind>,
    context: KeptContext,
}

impl Continuation {
    /// # Errors
    /// The databases of the request are there no more.
    fn with<T>(&self, then: impl FnOnce(Next<'_>, &Context<'_>) -> T) -> Result<T, LdapResult> {
        let went = self.context.with(|context| self.behind.as_ref()?.with(|next| then(next, context)));
        went.flatten().ok_or_else(|| {
            let text =
                "the configuration has changed while the program behind the socket was asked: try again";
            LdapResult::with(ResultCode::UNAVAILABLE, text)
        })
    }
}

/// What the program receives about one request.
#[derive(Clone, Debug)]
struct Notifier {
    notices: Arc<Notices>,
    result: Option<Text>,
    entry: Option<Text>,
}

impl Notifier {
    fn result(&self, result: &LdapResult) {
        if let Some(mut text) = self.result.clone() {
            text.result(result);
            self.notices.add(text.end());
        }
    }

    /// The entries among some messages.
    fn entries(&self, messages: &[u8]) {
        let Some(begun) = &self.entry else { return };
        for message in frames(messages, limits::PDU_CEILING) {
            if let Ok(decoded) = Response::decode_message(message)
                && let Response::Entry(entry) = decoded.response
            {
                let mut text = begun.clone();
                text.entry(&entry);
                self.notices.add(text.end());
            }
        }
    }

    /// Tells the result before it is answered.
    fn before<T: 'static>(self, done: Done<T>, result: fn(&T) -> &LdapResult) -> Done<T> {
        Box::new(move |answer| {
            self.result(result(&answer));
            done(answer);
        })
    }
}

/// An operation that is under way behind the program, for who gives it up.
#[derive(Debug, Default)]
struct Continued(Mutex<(bool, PendingAnswer)>);

impl Continued {
    fn lock(&self) -> MutexGuard<'_, (bool, PendingAnswer)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_given_up(&self) -> bool {
        self.lock().0
    }

    fn goes_on(&self, pending: PendingAnswer) {
        let mut state = self.lock();
        state.1 = pending;
        let give_up = if state.0 { state.1.give_up.take() } else { None };
        drop(state);
        give_up.into_iter().for_each(|give_up| give_up());
    }

    fn give_up(&self) {
        let mut state = self.lock();
        state.0 = true;
        let give_up = state.1.give_up.take();
        drop(state);
        give_up.into_iter().for_each(|give_up| give_up());
    }
}

impl ProgramInFront {
    pub fn new(settings: OverlaySettings, context: ProgramContext) -> Self {
        let clock = Arc::clone(&context.clock);
        let is_told = !settings.told.is_empty();
        let notices = is_told.then(|| {
            let path = &settings.socket.path;
            Arc::new(Notices::new(path, Arc::clone(&context.tell), notices::PATIENCE))
        });
        let program = Program::new(&settings.socket, context, true);
        Self { program, settings, notices, clock, behind: Mutex::default() }
    }

    /// Whether the program is asked about such a request.
    fn asks(&self, kind: SocketOperation, dn: &NormalDn) -> bool {
        let of_name = |pattern: &Regex| pattern.is_match(dn.as_str());
        self.settings.asked.contains(&kind) && self.settings.pattern.as_ref().is_none_or(of_name)
    }

    fn continuation(&self, context: &Context<'_>) -> Continuation {
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Continuation { behind, context: KeptContext::new(context, &self.clock) }
    }

    /// What the program receives about a request; none: nothing.
    fn notifier(&self, context: &Context<'_>) -> Option<Notifier> {
        let notices = self.notices.clone()?;
        let mut header = self.program.header(context);
        header.suffixes = &[];
        let begun = |notice: SocketNotice, command: &str| {
            self.settings.told.contains(&notice).then(|| Text::begin(command, &header))
        };
        let (result, entry) = (begun(SocketNotice::Result, "RESULT"), begun(SocketNotice::Search, "ENTRY"));
        Some(Notifier { notices, result, entry })
    }

    /// Passes on what the program is not asked about.
    fn pass<T: 'static>(
        &self,
        context: &Context<'_>,
        later: Later<'_, T>,
        result: fn(&T) -> &LdapResult,
        ask: impl FnOnce(Later<'_, T>) -> Reply<T>,
    ) -> Reply<T> {
        let Some(notifier) = self.notifier(context) else { return ask(later) };
        let reply = ask(&mut || notifier.clone().before(later(), result));
        if let Reply::Now(answer) = &reply {
            notifier.result(result(answer));
        }
        reply
    }

    /// Asks the program: its result is the answer, or the request goes on by `go_on`.
    fn ask<T: From<LdapResult> + 'static>(
        &self,
        context: &Context<'_>,
        text: Zeroizing<Vec<u8>>,
        (done, result): (Done<T>, fn(&T) -> &LdapResult),
        go_on: impl FnOnce(Next<'_>, &Context<'_>, Done<T>) -> PendingAnswer + Send + 'static,
    ) -> PendingAnswer {
        let (continuation, notifier) = (self.continuation(context), self.notifier(context));
        let continued = Arc::<Continued>::default();
        let state = Arc::clone(&continued);
        let answered = move |answer| match answer {
            // What the database has is as it was.
            ProgramAnswer::Result(result) | ProgramAnswer::Lost(result) => done(result.into()),
            ProgramAnswer::Continue if state.is_given_up() => {
                done(LdapResult::new(ResultCode::CANCELED).into())
            }
            ProgramAnswer::Continue => {
                let mut done = Some(match notifier {
                    Some(notifier) => notifier.before(done, result),
                    None => done,
                });
                let went = continuation.with(|next, context| {
                    done.take().map_or_else(PendingAnswer::default, |done| go_on(next, context, done))
                });
                match (went, done) {
                    (Ok(pending), _) => state.goes_on(pending),
                    (Err(gone), Some(done)) => done(gone.into()),
                    (Err(_), None) => {}
                }
            }
        };
        let call = self.program.ask(context, text, Box::new(answered));
        let give_up = move || {
            call.give_up();
            continued.give_up();
        };
        // The program has its own time, and so has what stands behind it.
        PendingAnswer { deadline: None, give_up: Some(Box::new(give_up)) }
    }
}

impl Interceptor for ProgramInFront {
    fn requests(&self) -> Operations {
        let requests = self.settings.asked.iter().map(|operation| operation.operations());
        let notices = self.settings.told.iter().map(|notice| notice.operations());
        requests.chain(notices).fold(Operations::NONE, Operations::and)
    }

    fn stands_before(&self, behind: Behind) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = Some(behind);
    }

    fn sees(&self, search: &Search<'_>) -> bool {
        self.notices.is_some() || self.asks(SocketOperation::Search, search.base)
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let notifier = self.notifier(context);
        if self.asks(SocketOperation::Search, search.base) {
            let program_search = self.program.search(context, &search);
            let program_search = program_search.map_err(|refused| Box::new((refused, Vec::new())))?;
            let stage = Stage::Program {
                search: Box::new(program_search),
                then: Box::new((self.continuation(context), KeptSearch::new(search))),
            };
            return Ok(Box::new(FrontSearch::new(stage, notifier)));
        }
        let Some(notifier) = notifier else { return next.open(context, search) };
        match next.open(context, search) {
            Ok(cursor) => Ok(Box::new(FrontSearch::new(Stage::Database(cursor), Some(notifier)))),
            Err(end) => {
                notifier.result(&end.0);
                Err(end)
            }
        }
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        if !self.asks(SocketOperation::Compare, compare.dn) {
            return self.pass(context, later, |end| &end.0, |later| next.compare(context, compare, later));
        }
        let text = match self.program.compare(context, compare) {
            Ok(text) => text,
            Err(refused) => return Reply::Now((refused, Vec::new())),
        };
        let CompareRequest { entry, attribute, value } = compare.request;
        let (entry, attribute, value) = ((*entry).to_owned(), (*attribute).to_owned(), value.to_vec());
        let (dn, controls) = (compare.dn.clone(), compare.controls.clone());
        let done = later();
        let answer: Done<EndOf> = Box::new(move |EndOf(end)| done(end));
        Reply::Later(self.ask(context, text, (answer, |EndOf(end)| &end.0), move |next, context, done| {
            let request = CompareRequest { entry: &entry, attribute: &attribute, value: &value };
            let compare = Compare { request: &request, dn: &dn, controls: &controls };
            let done: Done<End> = Box::new(move |end| done(EndOf(end)));
            answered_by(done, |later| next.compare(context, &compare, later))
        }))
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let password = match bind.proof {
            Proof::Password(password) if self.asks(SocketOperation::Bind, bind.dn) => password,
            // As in slapd, a mechanism's binds are no business of a database.
            _ => {
                return self.pass(
                    context,
                    later,
                    |verdict| &verdict.result,
                    |later| next.bind(context, bind, later),
                );
            }
        };
        let text = match self.program.bind(context, bind.dn, password) {
            Ok(text) => text,
            Err(refused) => return Reply::Now(refused.into()),
        };
        let (dn, password) = (bind.dn.clone(), Zeroizing::new(password.to_vec()));
        let (by_mechanism, policy_control) = (bind.by_mechanism, bind.policy_control);
        let controls = bind.controls.clone();
        let answer: (Done<Verdict>, fn(&Verdict) -> &LdapResult) = (later(), |verdict| &verdict.result);
        Reply::Later(self.ask(context, text, answer, move |next, context, done| {
            let proof = Proof::Password(&password);
            let bind = Bind { dn: &dn, proof, by_mechanism, policy_control, controls: &controls };
            answered_by(done, |later| next.bind(context, &bind, later))
        }))
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        let of_text = |dn: &str| self.program.schema().parse_dn(dn).ok();
        let is_asked = |operation: &WriteOperation| {
            of_text(operation.target()).is_some_and(|dn| self.asks(SocketOperation::of(operation), &dn))
        };
        if !changes.operations().any(is_asked) {
            let done = match self.notifier(context) {
                Some(notifier) => notifier.before(done, |outcome: &WriteOutcome| &outcome.result),
                None => done,
            };
            return next.update(context, changes, done);
        }
        let (request, target) = match changes {
            Changes::One(request, target) => (request, target),
            Changes::Together(_) => {
                let text = "a program behind a socket is asked about one change at a time (overlay sock)";
                return answer_now(done, LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            }
        };
        let text = match self.program.change(context, &request.operation) {
            Ok(text) => text,
            Err(refused) => return answer_now(done, refused),
        };
        let answer: (Completion, fn(&WriteOutcome) -> &LdapResult) = (done, |outcome| &outcome.result);
        self.ask(context, text, answer, move |next, context, done| {
            next.update(context, Changes::One(request, target), done)
        })
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        if !self.asks(SocketOperation::Extended, change.dn) {
            return self.pass(
                context,
                later,
                |changed| &changed.result,
                |later| next.modify_password(context, change, later),
            );
        }
        // Nobody can be asked later, so an old password counts as wrong from now on until it was right.
        if change.old.is_some()
            && let Err(refused) = (change.proof_begins)()
        {
            return Reply::Now(refused.into());
        }
        let text = self.program.password(context, &change);
        let PasswordChange { dn, target, old, new, policy_control, hops, .. } = change;
        let (dn, counted, done) = (dn.clone(), old.is_some(), later());
        let done: Done<PasswordChangeOutcome> = Box::new(move |mut changed: PasswordChangeOutcome| {
            let is_wrong = changed.result.code == ResultCode::INVALID_CREDENTIALS;
            changed.proof = changed.proof.or_else(|| counted.then_some(!is_wrong));
            done(changed);
        });
        let answer: (Done<PasswordChangeOutcome>, fn(&PasswordChangeOutcome) -> &LdapResult) =
            (done, |changed| &changed.result);
        Reply::Later(self.ask(context, text, answer, move |next, context, done| {
            let proof_begins = &|| Ok(());
            let change = PasswordChange { dn: &dn, target, old, new, policy_control, hops, proof_begins };
            answered_by(done, |later| next.modify_password(context, change, later))
        }))
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        if !self.asks(SocketOperation::Extended, request.dn) {
            return self.pass(
                context,
                later,
                |answer| &answer.result,
                |later| next.extended(context, request, later),
            );
        }
        let text = self.program.extended(context, request.oid, request.value);
        let (oid, controls) = (request.oid.to_owned(), request.controls.clone());
        let (dn, value) = (request.dn.clone(), request.value.map(<[u8]>::to_vec));
        let answer: (Done<ExtendedAnswer>, fn(&ExtendedAnswer) -> &LdapResult) =
            (later(), |answer| &answer.result);
        Reply::Later(self.ask(context, text, answer, move |next, context, done| {
            let request =
                ExtendedOperation { oid: &oid, controls: &controls, dn: &dn, value: value.as_deref() };
            answered_by(done, |later| next.extended(context, &request, later))
        }))
    }
}

/// The answer to a compare, which a result alone can be.
struct EndOf(End);

impl From<LdapResult> for EndOf {
    fn from(result: LdapResult) -> Self {
        Self((result, Vec::new()))
    }
}
