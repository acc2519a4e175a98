//! `restrictop`: one rule, read.

use std::sync::Arc;

use larix_engine::access::{AccessPolicy, AccessPolicyError, AccessRule, FlowControl};
use larix_schema::Schema;

use super::Restrictions;

/// One rule about operations, their controls, and the requester.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRule {
    /// The operations that it is about; never none.
    pub operations: Restrictions,
    /// OIDs; only requests with all of these.
    pub controls: Vec<String>,
    /// In order; never empty.
    pub by: Vec<OperationClause>,
}

/// `by <who> <action> [<flow>]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationClause {
    /// A rule of access that grants writing to whom the clause is for.
    pub who: AccessRule,
    pub action: OperationAction,
    pub flow: FlowControl,
}

/// The `<who>` of a clause as an access policy that grants writing to those whom it matches.
///
/// # Errors
/// `<who>` names what the schema does not define.
pub fn requester(schema: &Arc<Schema>, who: &AccessRule) -> Result<AccessPolicy, AccessPolicyError> {
    AccessPolicy::new(Arc::clone(schema), None, std::slice::from_ref(who), &[])
}

/// What a clause does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationAction {
    Allow,
    Reject,
    /// The control of this OID is passed over; a request where it is critical is refused.
    Drop(String),
    /// Leaves it to the rules that follow.
    Nothing,
}
