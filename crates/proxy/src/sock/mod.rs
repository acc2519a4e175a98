//! `database sock`: a program behind a local socket answers requests in a text of lines (slapd-sock(5)). One connection a request, which
//! the program closes behind its answer. `overlay sock` asks such a program before a database.

mod answer_filter;
mod calls;
mod in_front;
mod notices;
mod program;
mod search;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, Done, End, ExtendedAnswer,
    ExtendedOperation, Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search,
    Verdict, answer_now,
};
use larix_engine::access::AccessPolicy;
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteOutcome};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use calls::{PATIENCE, ProgramAnswer};
use program::{GRACE, Program};

pub use calls::Tell;
pub use in_front::{OverlaySettings, ProgramInFront, SocketNotice, SocketOperation};
pub use program::ProgramContext;

/// Bytes of the path of a local socket (unix(7)).
pub const PATH_BYTES_MAX: usize = 107;

/// What is said of a connection with each request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    BindDn,
    Peer,
    Strength,
    Connection,
}

impl Extension {
    /// In the order in which requests have them.
    pub const ALL: [Self; 4] = [Self::BindDn, Self::Peer, Self::Strength, Self::Connection];

    /// As in the configuration, and in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BindDn => "binddn",
            Self::Peer => "peername",
            Self::Strength => "ssf",
            Self::Connection => "connid",
        }
    }
}

/// What such a database is configured with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    pub path: PathBuf,
    pub extensions: Vec<Extension>,
}

/// A database that a program has.
#[derive(Debug)]
pub struct SocketBackend {
    program: Program,
    naming_contexts: Vec<String>,
}

impl SocketBackend {
    /// `naming_contexts` as the root DSE lists them.
    pub fn new(settings: &SocketSettings, context: ProgramContext, naming_contexts: Vec<String>) -> Self {
        Self { program: Program::new(settings, context, false), naming_contexts }
    }

    /// Hands a request over that has one answer; `is_change`: the program may have made a change although its answer was lost.
    fn ask(
        &self,
        context: &Context<'_>,
        (text, is_change): (Zeroizing<Vec<u8>>, bool),
        done: Done<LdapResult>,
    ) -> PendingAnswer {
        let give_up = self.program.ask(
            context,
            text,
            Box::new(move |answer| {
                done(match answer {
                    ProgramAnswer::Lost(result) if is_change => result.with_unknown_outcome(),
                    ProgramAnswer::Result(result) | ProgramAnswer::Lost(result) => result,
                    // The program was not asked this.
                    ProgramAnswer::Continue => LdapResult::new(ResultCode::OTHER),
                });
            }),
        );
        let patience = u64::try_from((PATIENCE + GRACE).as_nanos()).unwrap_or(u64::MAX);
        let deadline = Some(Monotonic(context.began.0.saturating_add(patience)));
        PendingAnswer { deadline, give_up: Some(Box::new(move || give_up.give_up())) }
    }
}

/// Refuses controls that the program would have to heed, because the text has no place for them.
///
/// # Errors
/// A control that would have to be heeded.
fn heeded(controls: &RequestControls) -> Result<(), LdapResult> {
    let is_critical = [
        controls.assertion.is_some(),
        controls.no_op,
        controls.tree_delete,
        controls.pre_read.as_ref().is_some_and(|control| control.critical),
        controls.post_read.as_ref().is_some_and(|control| control.critical),
        controls.paged.as_ref().is_some_and(|control| control.critical),
        controls.sort.as_ref().is_some_and(|control| control.critical),
        controls.vlv.as_ref().is_some_and(|control| control.critical),
        controls.deref.as_ref().is_some_and(|control| control.critical),
        controls.effective_rights.as_ref().is_some_and(|control| control.critical),
    ];
    match is_critical.contains(&true) {
        true => {
            let text = "the program behind the socket does not receive this control";
            Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text))
        }
        false => Ok(()),
    }
}

impl Backend for SocketBackend {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result| Box::new((result, Vec::new()));
        heeded(&search.controls).map_err(refused)?;
        self.program.search(context, &search).map(|search| Box::new(search) as _).map_err(refused)
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        let text = heeded(compare.controls).and_then(|()| self.program.compare(context, compare));
        let text = match text {
            Ok(text) => text,
            Err(result) => return Reply::Now((result, Vec::new())),
        };
        let done = later();
        Reply::Later(self.ask(context, (text, false), Box::new(move |result| done((result, Vec::new())))))
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        let password = match bind.proof {
            Proof::Password(password) => password,
            Proof::Judged(true) => return Reply::Now(LdapResult::success().into()),
            Proof::Judged(false) => {
                return Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into());
            }
        };
        let text = match self.program.bind(context, bind.dn, password) {
            Ok(text) => text,
            Err(refused) => return Reply::Now(refused.into()),
        };
        let done = later();
        Reply::Later(self.ask(context, (text, false), Box::new(move |result| done(result.into()))))
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        let text = self.program.password(context, &change);
        let done = later();
        Reply::Later(self.ask(context, (text, true), Box::new(move |result| done(result.into()))))
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let text = self.program.extended(context, request.oid, request.value);
        let done = later();
        Reply::Later(self.ask(context, (text, true), Box::new(move |result| done(result.into()))))
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        let request = match changes {
            Changes::One(request, _) => request,
            Changes::Together(_) => {
                let text = "a program behind a socket makes no changes together";
                return answer_now(done, LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            }
        };
        let text = heeded(&request.controls).and_then(|()| self.program.change(context, &request.operation));
        let text = match text {
            Ok(text) => text,
            Err(refused) => return answer_now(done, refused),
        };
        self.ask(context, (text, true), Box::new(move |result| done(WriteOutcome::from(result))))
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(self.program.policy()))
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}
