//! Digests of a database in a shared engine: they show whether a replica has what the nodes have.

use std::sync::Arc;

use larix_kv::take_read_fault;
use larix_proto::LdapResult;
use larix_replication::digest::{self, DigestCache, DigestRequest};
use larix_schema::NormalDn;

use super::{ClusteredBackend, SharedDatabase, too_late};
use crate::backends::digests::{self, RunningSlot};
use crate::cluster::Turn;
use larix_backend::{Context, ExtendedAnswer, ExtendedOperation, Later, PendingAnswer, Reply};

impl ClusteredBackend {
    /// # Errors
    /// It is not this operation; too many operations wait.
    pub(super) fn digests(
        &self,
        context: &Context<'_>,
        operation: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Result<Reply<ExtendedAnswer>, LdapResult> {
        if operation.oid != digest::OID {
            return Err(ExtendedOperation::not_served());
        }
        let request = digests::request(operation)?;
        let handle = self.handle()?;
        let permit = self.permit()?;
        let (subject, base, done) = (Arc::clone(context.subject), operation.dn.clone(), later());
        // Whether it may ask can take a question to the engine.
        permit.take(move |turn| {
            let slot = match turn {
                Turn::Late => Err(too_late()),
                Turn::Go => {
                    let database = handle.served().database();
                    handle
                        .read(|| digests::managed(database, &base, &subject))
                        .and_then(|()| RunningSlot::take())
                }
            };
            match slot {
                Ok(slot) => {
                    // Where there is no thread, what is dropped says so.
                    let _started = digests::spawn(move || {
                        let answer = handle.digests(&request, base);
                        drop(slot);
                        done(answer);
                    });
                }
                Err(refused) => done(refused.into()),
            }
        });
        Ok(Reply::Later(PendingAnswer::default()))
    }
}

impl SharedDatabase {
    /// On this thread, which may wait for the engine. Each slice sees what any node has acknowledged before.
    fn digests(&self, request: &DigestRequest, base: NormalDn) -> ExtendedAnswer {
        let database = self.served().database();
        take_read_fault();
        let answer = database.store().afresh(|| digests::made(std::slice::from_ref(database), request, base));
        match take_read_fault() {
            None => answer,
            // Something between may have taken what could not be read for what is not there.
            Some(fault) => {
                database.attached::<DigestCache>().into_iter().for_each(DigestCache::forget);
                self.trouble(fault).into()
            }
        }
    }
}
