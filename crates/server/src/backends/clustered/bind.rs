//! A bind with a password. What the cache knows of the account is confirmed by the engine where this node is to read what is newest; else
//! a thread reads.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use super::{CancelToken, ClusteredBackend, SharedDatabase, too_late, too_many};
use crate::backends::bind_judge::Judge;
use crate::backends::passwords::AccountPasswords;
use crate::cluster::{Confirmed, Turn};
use larix_backend::{Alone, Bind, Context, Done, Later, Proof, Reply, Verdict};

/// A bind that is answered later.
struct PendingBind {
    handle: SharedDatabase,
    subject: Arc<Subject>,
    dn: NormalDn,
    password: Zeroizing<Vec<u8>>,
    controls: RequestControls,
    by_mechanism: bool,
    policy_control: bool,
    began: Monotonic,
    cancel_token: CancelToken,
    done: Done<Verdict>,
}

impl PendingBind {
    /// Reads what the password is compared with, on a thread that may wait.
    fn run(self, turn: Turn) {
        if self.cancel_token.is_given_up() {
            return;
        }
        if turn == Turn::Late {
            return (self.done)(too_late().into());
        }
        let Self { handle, dn, subject, password, .. } = &self;
        match handle.read(|| AccountPasswords::of(handle.chosen(), (dn, subject), password)) {
            Ok(stored) => self.finish(stored),
            Err(result) => (self.done)(result.into()),
        }
    }

    /// Gives it to a thread.
    fn send_out(self) {
        let node = Arc::clone(&self.handle.node);
        match node.pool.permit() {
            Some(permit) => permit.take(move |turn| self.run(turn)),
            None => (self.done)(too_many().into()),
        }
    }

    fn finish(self, stored: AccountPasswords) {
        let Self { handle, subject, dn, password, controls, by_mechanism, policy_control, began, .. } = self;
        let bind = Bind {
            dn: &dn,
            proof: Proof::Password(&password),
            by_mechanism,
            policy_control,
            controls: &controls,
        };
        let clock = &*handle.common.services.clock;
        let context = Context { subject: &subject, router: &Alone, client: &Alone, clock, began };
        let mut done = Some(self.done);
        let mut later = || done.take().unwrap_or_else(|| Box::new(|_| {}));
        if let Reply::Now(verdict) = handle.common.bind(handle.judge(), &context, &bind, stored, &mut later)
            && let Some(done) = done
        {
            done(verdict);
        }
    }
}

impl ClusteredBackend {
    pub(super) fn answer_bind(
        &self,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let handle = self.handle();
        if let Some(stored) = AccountPasswords::of_root(&self.node().database_settings(), bind) {
            let judge =
                handle.map_or_else(|_| Judge::without_database(&self.common), |handle| handle.judge());
            return self.common.bind(judge, context, bind, stored, later);
        }
        let handle = match handle {
            Ok(handle) => handle,
            Err(result) => return Reply::Now(result.into()),
        };
        let Proof::Password(password) = bind.proof else {
            return self.common.bind(handle.judge(), context, bind, AccountPasswords::none(), later);
        };
        let read = || AccountPasswords::of(handle.chosen(), (bind.dn, context.subject), password);
        if let Some(stored) = handle.at_hand(read) {
            return self.common.bind(handle.judge(), context, bind, stored, later);
        }
        let known = handle.as_known(read);
        let cancel_token = CancelToken::default();
        let pending = cancel_token.pending();
        let bind = PendingBind {
            subject: Arc::clone(context.subject),
            dn: bind.dn.clone(),
            password: Zeroizing::new(password.to_vec()),
            controls: bind.controls.clone(),
            by_mechanism: bind.by_mechanism,
            policy_control: bind.policy_control,
            began: context.began,
            cancel_token,
            done: later(),
            handle,
        };
        let Some((as_of, stored)) = known else {
            bind.send_out();
            return Reply::Later(pending);
        };
        let (node, store) = (Arc::clone(&bind.handle.node), Arc::clone(bind.handle.store()));
        let waiter = move |confirmed: Confirmed| match confirmed {
            _ if bind.cancel_token.is_given_up() => {}
            Ok(newest) if newest == as_of => bind.finish(stored),
            Ok(_) => bind.send_out(),
            Err(why) => {
                let result = bind.handle.unconfirmed(why);
                (bind.done)(result.into());
            }
        };
        node.confirm(&store, Box::new(waiter));
        Reply::Later(pending)
    }
}
