//! A compare. What the cache answers is confirmed by the engine where this node is to read what is newest; else a thread reads.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_proto::{CompareRequest, LdapResult};
use larix_schema::NormalDn;

use super::{CancelToken, ClusteredBackend, SharedDatabase, too_late, too_many};
use crate::backends::bind_judge::compared_attempt;
use crate::cluster::{Confirmed, Turn};
use larix_backend::{Compare, Context, Done, End, Later, Reply};

/// A compare that is answered later.
struct PendingCompare {
    handle: SharedDatabase,
    subject: Arc<Subject>,
    dn: NormalDn,
    entry: String,
    attribute: String,
    value: Vec<u8>,
    controls: RequestControls,
    cancel_token: CancelToken,
    done: Done<End>,
}

impl PendingCompare {
    /// Reads, on a thread that may wait.
    fn run(self, turn: Turn) {
        let Self { handle, subject, dn, entry, attribute, value, controls, cancel_token, done } = self;
        if cancel_token.is_given_up() {
            return;
        }
        if turn == Turn::Late {
            return done((too_late(), Vec::new()));
        }
        let request = CompareRequest { entry: &entry, attribute: &attribute, value: &value };
        let compared = handle.read(|| handle.compared(&subject, (&dn, &request), &controls));
        let result = compared.unwrap_or_else(|result| result);
        handle.judge_compare(result, (&dn, &request), &controls, done);
    }

    /// Gives it to a thread.
    fn send_out(self) {
        let node = Arc::clone(&self.handle.node);
        match node.pool.permit() {
            Some(permit) => permit.take(move |turn| self.run(turn)),
            None => (self.done)((too_many(), Vec::new())),
        }
    }
}

impl ClusteredBackend {
    pub(super) fn answer_compare(
        &self,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let handle = match self.handle() {
            Ok(handle) => handle,
            Err(result) => return Reply::Now((result, Vec::new())),
        };
        let (dn, controls) = (compare.dn, compare.controls);
        // `None`: what uses up a code, or is judged as a bind is, goes to a thread.
        let read = || -> Result<Option<LdapResult>, LdapResult> {
            let result = handle.compared(context.subject, (dn, compare.request), controls)?;
            let attempt = compared_attempt(handle.chosen(), &result, (dn, compare.request), controls);
            Ok(attempt.is_none().then_some(result))
        };
        if let Some(Some(result)) = handle.at_hand(read) {
            return Reply::Now((result, Vec::new()));
        }
        let known = handle.as_known(read);
        let cancel_token = CancelToken::default();
        let pending = cancel_token.pending();
        let CompareRequest { entry, attribute, value } = *compare.request;
        let compare = PendingCompare {
            subject: Arc::clone(context.subject),
            dn: dn.clone(),
            entry: entry.to_owned(),
            attribute: attribute.to_owned(),
            value: value.to_vec(),
            controls: controls.clone(),
            cancel_token,
            done: later(),
            handle,
        };
        let Some((as_of, Some(result))) = known else {
            compare.send_out();
            return Reply::Later(pending);
        };
        let (node, store) = (Arc::clone(&compare.handle.node), Arc::clone(compare.handle.store()));
        let waiter = move |confirmed: Confirmed| match confirmed {
            _ if compare.cancel_token.is_given_up() => {}
            Ok(newest) if newest == as_of => (compare.done)((result, Vec::new())),
            Ok(_) => compare.send_out(),
            Err(why) => {
                let result = compare.handle.unconfirmed(why);
                (compare.done)((result, Vec::new()));
            }
        };
        node.confirm(&store, Box::new(waiter));
        Reply::Later(pending)
    }
}
