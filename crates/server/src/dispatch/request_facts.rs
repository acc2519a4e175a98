//! What access rules may ask about a request beside its identity: its kind and its controls (`op=`, `control=`).

use std::sync::Arc;

use larix_engine::access::{Operation, PeerNames, RequestFacts, Subject};
use larix_proto::Controls;

use crate::databases::Databases;
use crate::dispatch::Dispatcher;

impl Dispatcher {
    /// What the connection is known by.
    pub(crate) fn peer_names(&self) -> &PeerNames {
        &self.session.subject().peer
    }

    /// The subject with the facts of this request, for access rules. If no rule asks for such facts, it is the subject itself.
    pub(crate) fn in_request(
        &self,
        databases: &Databases,
        subject: Arc<Subject>,
        operation: impl FnOnce() -> Operation,
        controls: Controls<'_>,
    ) -> Arc<Subject> {
        if !databases.ask_about_request() {
            return subject;
        }
        let controls = controls.iter().map(|control| control.oid.to_owned()).collect();
        Arc::new(subject.in_request(RequestFacts { operation: operation(), controls }))
    }
}
