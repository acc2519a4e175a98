//! `overlay denyop`: operations that a database does not serve, refused before the backend has anything to do with them.

mod config;
#[cfg(test)]
mod tests;

use larix_backend::{
    Bind, Changes, Compare, Context, Cursor, End, ExtendedAnswer, ExtendedOperation, Interceptor, Later,
    Next, Operations, PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply, Search, Verdict,
    answer_now,
};
use larix_engine::overlay::{Descriptor, OverlayDirective};
use larix_engine::write::{Completion, WriteOutcome};
use larix_proto::{LdapResult, ResultCode};

use config::Denied;
pub use config::build;

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("denyop", "olcDenyOpConfig")
    .once()
    .directives(&[OverlayDirective::whole("denyop", "olcDenyOp").many().checked(config::check)]);

/// The overlay in front of one database, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenyOperations {
    denied: Vec<Denied>,
}

impl DenyOperations {
    fn denies(&self, operation: Denied) -> bool {
        self.denied.contains(&operation)
    }
}

fn refused() -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "operation not allowed within namingContext")
}

impl Interceptor for DenyOperations {
    fn requests(&self) -> Operations {
        self.denied.iter().fold(Operations::NONE, |all, denied| all.and(denied.seen_with()))
    }

    fn open(&self, _: Next<'_>, _: &Context<'_>, _: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        Err(Box::new((refused(), Vec::new())))
    }

    fn compare(&self, _: Next<'_>, _: &Context<'_>, _: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        Reply::Now((refused(), Vec::new()))
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        // Whom a SASL mechanism has found does not bind to a database.
        match bind.by_mechanism {
            true => next.bind(context, bind, later),
            false => Reply::Now(refused().into()),
        }
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> PendingAnswer {
        let denied = changes.operations().position(|operation| self.denies(Denied::of(operation)));
        match denied {
            Some(at) => answer_now(done, WriteOutcome { refused: Some(at), ..refused().into() }),
            None => next.update(context, changes, done),
        }
    }

    fn modify_password(
        &self,
        _: Next<'_>,
        _: &Context<'_>,
        _: PasswordChange<'_>,
        _: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        Reply::Now(refused().into())
    }

    fn extended(
        &self,
        _: Next<'_>,
        _: &Context<'_>,
        _: &ExtendedOperation<'_>,
        _: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        Reply::Now(refused().into())
    }
}
