//! In front of a database that another server keeps: tells of the changes that are made through it.

use std::sync::Arc;

use larix_engine::write::{Completion, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{NormalDn, Schema};

use crate::backend::Context;
use crate::change_teller::{ChangeTeller, ChangedEntry};
use crate::intercept::{Interceptor, Next, Operations};
use crate::operation::{
    Changes, Done, ExtendedAnswer, ExtendedOperation, Later, PasswordChange, PasswordChangeOutcome,
    PendingAnswer, Reply,
};
use crate::renames::renamed;

/// Stands in front of all overlays of the database: names are those that clients see.
#[derive(Debug)]
pub struct TellsChanges {
    schema: Arc<Schema>,
    teller: Arc<ChangeTeller>,
}

impl TellsChanges {
    pub fn new(schema: Arc<Schema>, teller: Arc<ChangeTeller>) -> Self {
        Self { schema, teller }
    }

    fn outstanding(&self, changed: ChangedEntry) -> OutstandingChange {
        OutstandingChange { teller: Arc::clone(&self.teller), changed: Some(changed) }
    }

    fn outstanding_at(&self, dn: &NormalDn) -> OutstandingChange {
        self.outstanding(ChangedEntry { dn: dn.clone(), renamed: None, is_tree: false, is_certain: true })
    }

    fn changed(&self, request: &WriteRequest, dn: &NormalDn) -> ChangedEntry {
        let is_tree = request.controls.tree_delete;
        let mut changed = ChangedEntry { dn: dn.clone(), renamed: None, is_tree, is_certain: true };
        if let WriteOperation::ModifyDn { new_rdn, new_superior, .. } = &request.operation {
            let renamed = renamed(&self.schema, dn, new_rdn, new_superior.as_deref());
            // A name that cannot be read here: what became of the entry is not known.
            changed.is_certain = renamed.is_some();
            changed.renamed = Some(renamed.unwrap_or_else(|| dn.clone()));
        }
        changed
    }
}

impl Drop for TellsChanges {
    /// The databases were opened anew, or this one is gone: who searched the ones before has to ask the new ones.
    fn drop(&mut self) {
        self.teller.end("the databases were changed: search again");
    }
}

impl Interceptor for TellsChanges {
    fn requests(&self) -> Operations {
        Operations::UPDATE.and(Operations::PASSWORD).and(Operations::EXTENDED)
    }

    fn change_teller(&self) -> Option<&Arc<ChangeTeller>> {
        Some(&self.teller)
    }

    fn only_listens(&self) -> bool {
        true
    }

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        completion: Completion,
    ) -> PendingAnswer {
        let one = |request: &WriteRequest, dn: &NormalDn| self.outstanding(self.changed(request, dn));
        let outstanding: Vec<OutstandingChange> = match &changes {
            Changes::One(request, target) => target.iter().map(|dn| one(request, dn)).collect(),
            Changes::Together(requests) => {
                let target = |operation: &WriteOperation| self.schema.parse_dn(operation.target()).ok();
                let named =
                    requests.iter().filter_map(|request| Some((request, target(&request.operation)?)));
                named.map(|(request, dn)| one(request, &dn)).collect()
            }
        };
        let completion = Box::new(move |outcome: WriteOutcome| {
            outstanding.into_iter().for_each(|one| one.ended(&outcome.result));
            completion(outcome);
        });
        next.update(context, changes, completion)
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        let dn = change.dn.clone();
        let mut tracked_later = || -> Done<PasswordChangeOutcome> {
            let (outstanding, completion) = (self.outstanding_at(&dn), later());
            Box::new(move |changed: PasswordChangeOutcome| {
                outstanding.ended(&changed.result);
                completion(changed);
            })
        };
        let reply = next.modify_password(context, change, &mut tracked_later);
        if let Reply::Now(changed) = &reply {
            self.outstanding_at(&dn).ended(&changed.result);
        }
        reply
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let mut tracked_later = || -> Done<ExtendedAnswer> {
            let (outstanding, completion) = (self.outstanding_at(request.dn), later());
            Box::new(move |answer: ExtendedAnswer| {
                outstanding.ended(&answer.result);
                completion(answer);
            })
        };
        let reply = next.extended(context, request, &mut tracked_later);
        if let Reply::Now(answer) = &reply {
            self.outstanding_at(request.dn).ended(&answer.result);
        }
        reply
    }
}

/// A change that was not answered yet. One that is given up before may have been made all the same.
struct OutstandingChange {
    teller: Arc<ChangeTeller>,
    changed: Option<ChangedEntry>,
}

impl OutstandingChange {
    fn ended(mut self, result: &LdapResult) {
        let Some(changed) = self.changed.take() else { return };
        match result.code {
            ResultCode::SUCCESS => self.teller.tell(&changed),
            // So answers who does not know what the other server made of it.
            ResultCode::BUSY
            | ResultCode::UNAVAILABLE
            | ResultCode::OTHER
            | ResultCode::OPERATIONS_ERROR
            | ResultCode::TIME_LIMIT_EXCEEDED
            | ResultCode::ADMIN_LIMIT_EXCEEDED => {
                self.teller.tell(&ChangedEntry { is_certain: false, ..changed });
            }
            _ => {}
        }
    }
}

impl Drop for OutstandingChange {
    fn drop(&mut self) {
        if let Some(changed) = self.changed.take() {
            self.teller.tell(&ChangedEntry { is_certain: false, ..changed });
        }
    }
}
