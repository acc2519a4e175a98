//! Where a request under way leaves what the access log is to have of it.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Weak;

use larix_engine::audit::{AuditFacts, Request};
use larix_engine::write::WriteOutcome;
use larix_proto::LdapResult;

use super::{CONFIGURATION, StoredDatabase};

/// What records an operation.
#[derive(Clone, Debug)]
pub(crate) struct OperationRecorder {
    pub(super) records: Records,
    /// The database that it is on; `None`: cn=config, or one in an engine that several servers share.
    pub(super) database: Option<StoredDatabase>,
}

impl OperationRecorder {
    /// Whether only operations that succeed are recorded.
    pub(crate) fn is_success_only(&self) -> bool {
        self.records.success_only
    }

    /// The database that the operation is on, if it is of this server alone.
    pub(crate) fn database(&self) -> Option<&StoredDatabase> {
        self.database.as_ref()
    }

    /// Where its requests go when they have ended.
    pub(crate) fn records(&self) -> Records {
        self.records.clone()
    }
}

/// What takes what connections know.
pub(super) trait TakeOperations: Debug + Send + Sync {
    /// Takes an operation that changed nothing.
    fn hand_over(&self, request: Request, facts: AuditFacts);
    /// Keeps what is known of the request behind these records of a database's change log.
    fn keep_facts(&self, database: u64, sequences: Range<u64>, facts: AuditFacts);
}

/// Where requests go that are under way. It keeps no database open: a client that does not read its answers must not hold up a restore.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(super) success_only: bool,
    /// The instance whose operations are recorded.
    pub(super) database: u64,
    pub(super) log: Weak<dyn TakeOperations>,
}

impl Records {
    /// An operation that changed nothing has ended.
    pub(crate) fn ended(&self, request: Request, facts: AuditFacts) {
        const COMPARE_FALSE: u32 = 5;
        const COMPARE_TRUE: u32 = 6;
        if self.success_only && !matches!(facts.result, 0 | COMPARE_FALSE | COMPARE_TRUE) {
            return;
        }
        // A log that was retired meanwhile takes no records.
        if let Some(log) = self.log.upgrade() {
            log.hand_over(request, facts);
        }
    }

    /// A change has ended: called before its requester is answered, and before the change log's follower is woken.
    pub(crate) fn changed(&self, request: Request, facts: AuditFacts, outcome: &WriteOutcome) {
        let facts =
            AuditFacts { response_controls: outcome.controls.clone(), ..facts }.with_result(&outcome.result);
        if outcome.result.is_success() {
            // cn=config says itself under what name it took an entry.
            let dn = facts.dn.clone().filter(|_| self.database != CONFIGURATION);
            let facts = AuditFacts { dn, ..facts };
            if let Some(log) = self.log.upgrade() {
                log.keep_facts(self.database, outcome.logged.clone(), facts);
            }
        } else {
            self.ended(request, facts);
        }
    }
}

/// Facts about results.
pub(super) trait WithResult {
    fn with_result(self, result: &LdapResult) -> Self;
}

impl WithResult for AuditFacts {
    fn with_result(mut self, result: &LdapResult) -> Self {
        self.result = result.code.0;
        self.message.clone_from(&result.diagnostic);
        self.referrals.clone_from(&result.referrals);
        self
    }
}
