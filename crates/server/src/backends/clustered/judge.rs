//! How binds end in a shared engine: by what is committed where that is enough, else by the node that writes.

use std::sync::Arc;

use larix_backend::{Done, End};
use larix_engine::controls::RequestControls;
use larix_engine::overlay::{BindAttempt, BindConclusion, Interests};
use larix_proto::{CompareRequest, LdapResult};
use larix_schema::NormalDn;

use super::{SharedDatabase, too_late, too_many};
use crate::backends::Common;
use crate::backends::bind_judge::{Judge, SharedJudge, compared, compared_attempt};
use crate::cluster::{Cluster, Role, Turn};

/// Judges binds of one database.
#[derive(Debug)]
struct DatabaseJudge {
    handle: SharedDatabase,
    /// Whether the names are the database's.
    is_own: bool,
}

impl SharedDatabase {
    /// Judges binds of names of this database.
    pub(super) fn judge(&self) -> Judge {
        Judge::Shared(Arc::new(DatabaseJudge { handle: self.clone(), is_own: true }))
    }
}

/// Judges binds of names that no database has, in one that counts wrong passwords: they must not be told from names of accounts by the
/// time that the answer takes.
pub(in crate::backends) fn counting(common: &Arc<Common>) -> Option<Judge> {
    let counts = |cluster: &&Cluster| {
        cluster.node.served().is_some_and(|served| {
            let settings = served.database().current_settings();
            let overlays = settings.overlays.at(Interests::BIND);
            overlays.filter_map(|overlay| overlay.authentication()).any(|judge| judge.counts_failures())
        })
    };
    let cluster = common.clusters.all().find(counts)?;
    let handle = SharedDatabase::of(cluster, common).ok()?;
    Some(Judge::Shared(Arc::new(DatabaseJudge { handle, is_own: false })))
}

impl SharedDatabase {
    /// Ends a compare. One with a token asks whether the value is a code of it, which is used up then (slapo-otp). One of a password that
    /// asks for the policy's word is judged as a bind is (slapo-ppolicy).
    pub(super) fn judge_compare(
        &self,
        result: LdapResult,
        (dn, request): (&NormalDn, &CompareRequest<'_>),
        controls: &RequestControls,
        done: Done<End>,
    ) {
        let attempt = self.read(|| Ok(compared_attempt(self.chosen(), &result, (dn, request), controls)));
        let attempt = match attempt {
            Ok(Some(attempt)) => attempt,
            Ok(None) => return done((result, Vec::new())),
            Err(trouble) => return done((trouble, Vec::new())),
        };
        self.judge().conclude(attempt, Box::new(move |verdict| done(compared(verdict))));
    }
}

fn refused(result: LdapResult) -> BindConclusion {
    BindConclusion { result, ..BindConclusion::outright(false) }
}

impl SharedJudge for DatabaseJudge {
    fn judges(&self, dn: &NormalDn) -> bool {
        self.handle.chosen().judges_binds(dn)
    }

    fn conclude(self: Arc<Self>, attempt: BindAttempt, done: Box<dyn FnOnce(BindConclusion) + Send>) {
        let node = Arc::clone(&self.handle.node);
        let Some(permit) = node.pool.permit() else { return done(refused(too_many())) };
        permit.take(move |turn| {
            if turn == Turn::Late {
                return done(refused(too_late()));
            }
            let handle = &self.handle;
            match handle.read(|| handle.chosen().judge_bind_at_once(&attempt)) {
                Err(result) => done(refused(result)),
                Ok(Some(conclusion)) => done(conclusion),
                Ok(None) => handle.node.judge_bind(attempt, done),
            }
        });
    }

    fn rehash(&self, dn: &NormalDn, old: &[u8], new: &[u8], then: Box<dyn Send>) {
        if self.is_own && self.handle.node.role() == Role::Leader {
            self.handle.chosen().rehash(dn, old, new, Box::new(|_| drop(then)));
        }
    }
}
