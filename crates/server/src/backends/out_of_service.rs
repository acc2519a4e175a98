//! A database whose files are being exchanged: it answers that it is not available, for the moment that this takes.

use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, End, Later, PasswordChange,
    PasswordChangeOutcome, PendingAnswer, Reply, Search, Verdict, answer_now,
};
use larix_engine::write::Completion;
use larix_proto::{LdapResult, ResultCode};

/// Stands in the database's place, so that its entries do not seem to be missing (noSuchObject) to anybody.
#[derive(Debug)]
pub(crate) struct OutOfService {
    /// What the root DSE goes on to list.
    pub(crate) naming_contexts: Vec<String>,
}

fn unavailable() -> LdapResult {
    let text = "the database is being restored: try again in a moment";
    LdapResult::with(ResultCode::UNAVAILABLE, text)
}

impl Backend for OutOfService {
    fn open(&self, _: &Context<'_>, _: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        Err(Box::new((unavailable(), Vec::new())))
    }

    fn compare(&self, _: &Context<'_>, _: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        Reply::Now((unavailable(), Vec::new()))
    }

    fn bind(&self, _: &Context<'_>, _: &Bind<'_>, _: Later<'_, Verdict>) -> Reply<Verdict> {
        Reply::Now(unavailable().into())
    }

    fn modify_password(
        &self,
        _: &Context<'_>,
        _: PasswordChange<'_>,
        _: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        Reply::Now(unavailable().into())
    }

    fn update(&self, _: &Context<'_>, _: Changes, done: Completion) -> PendingAnswer {
        answer_now(done, unavailable())
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}
