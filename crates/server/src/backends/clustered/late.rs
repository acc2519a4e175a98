//! Requests that are answered later. If the cache knows the answer, the engine confirms that it is the newest; otherwise a thread of the
//! node reads.

use std::sync::Arc;

use larix_backend::PendingAnswer;
use larix_proto::LdapResult;

use super::{CancelToken, SharedDatabase, too_late, too_many};
use crate::cluster::{Confirmed, Turn};

/// A bind or a compare that is answered later.
pub(super) trait LateRequest: Sized + Send + 'static {
    /// What is read for the answer.
    type Lookup: Send + 'static;

    /// Reads and answers, on a thread that may wait for the engine.
    fn read(self, handle: &SharedDatabase);

    /// Answers with what was read.
    fn finish(self, handle: &SharedDatabase, known: Self::Lookup);

    /// Answers with an error.
    fn refuse(self, result: LdapResult);
}

/// Answers later. `known`: what the cache has for the answer, and the commit that it is as of.
pub(super) fn answer_later<R: LateRequest>(
    handle: SharedDatabase,
    request: R,
    known: Option<(u64, R::Lookup)>,
) -> PendingAnswer {
    let cancel_token = CancelToken::default();
    let pending = cancel_token.pending();
    let pending_request = PendingRequest { handle, request, cancel_token };
    match known {
        Some((as_of, known)) => pending_request.confirm(as_of, known),
        None => pending_request.send_out(),
    }
    pending
}

struct PendingRequest<R> {
    handle: SharedDatabase,
    request: R,
    cancel_token: CancelToken,
}

impl<R: LateRequest> PendingRequest<R> {
    /// Answers with what the cache knows if the engine has no newer commit. Otherwise a thread reads.
    fn confirm(self, as_of: u64, known: R::Lookup) {
        let (node, store) = (Arc::clone(&self.handle.node), Arc::clone(self.handle.store()));
        let waiter = move |confirmed: Confirmed| match confirmed {
            _ if self.cancel_token.is_given_up() => {}
            Ok(newest) if newest == as_of => self.request.finish(&self.handle, known),
            Ok(_) => self.send_out(),
            Err(why) => {
                let result = self.handle.unconfirmed(why);
                self.request.refuse(result);
            }
        };
        node.confirm(&store, Box::new(waiter));
    }

    /// Gives it to a thread.
    fn send_out(self) {
        let node = Arc::clone(&self.handle.node);
        match node.pool.permit() {
            Some(permit) => permit.take(move |turn| self.run(turn)),
            None => self.request.refuse(too_many()),
        }
    }

    fn run(self, turn: Turn) {
        match turn {
            _ if self.cancel_token.is_given_up() => {}
            Turn::Late => self.request.refuse(too_late()),
            Turn::Go => self.request.read(&self.handle),
        }
    }
}
