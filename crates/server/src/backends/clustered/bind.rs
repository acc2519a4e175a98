//! A bind with a password. If the cache lacks something, or this node is to read what is newest, it is [answered later](super::late).

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_proto::LdapResult;
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use super::late::{LateRequest, answer_later};
use super::{ClusteredBackend, SharedDatabase};
use crate::backends::bind_judge::Judge;
use crate::backends::passwords::AccountPasswords;
use larix_backend::{Alone, Bind, Context, Done, Later, Proof, Reply, Verdict};

struct LateBind {
    subject: Arc<Subject>,
    dn: NormalDn,
    password: Zeroizing<Vec<u8>>,
    controls: RequestControls,
    by_mechanism: bool,
    policy_control: bool,
    began: Monotonic,
    done: Done<Verdict>,
}

impl LateRequest for LateBind {
    /// What the password is compared with.
    type Lookup = AccountPasswords;

    fn read(self, handle: &SharedDatabase) {
        let Self { dn, subject, password, .. } = &self;
        match handle.read(|| AccountPasswords::of(handle.chosen(), (dn, subject), password)) {
            Ok(stored) => self.finish(handle, stored),
            Err(result) => self.refuse(result),
        }
    }

    fn finish(self, handle: &SharedDatabase, stored: AccountPasswords) {
        let Self { subject, dn, password, controls, by_mechanism, policy_control, began, done } = self;
        let bind = Bind {
            dn: &dn,
            proof: Proof::Password(&password),
            by_mechanism,
            policy_control,
            controls: &controls,
        };
        let clock = &*handle.common.services.clock;
        let context = Context { subject: &subject, router: &Alone, client: &Alone, clock, began };
        let mut done = Some(done);
        let mut later = || done.take().unwrap_or_else(|| Box::new(|_| {}));
        if let Reply::Now(verdict) = handle.common.bind(handle.judge(), &context, &bind, stored, &mut later)
            && let Some(done) = done
        {
            done(verdict);
        }
    }

    fn refuse(self, result: LdapResult) {
        (self.done)(result.into());
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
        let late_bind = LateBind {
            subject: Arc::clone(context.subject),
            dn: bind.dn.clone(),
            password: Zeroizing::new(password.to_vec()),
            controls: bind.controls.clone(),
            by_mechanism: bind.by_mechanism,
            policy_control: bind.policy_control,
            began: context.began,
            done: later(),
        };
        Reply::Later(answer_later(handle, late_bind, known))
    }
}
