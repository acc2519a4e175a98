//! `restrictop` (OpenLDAP 2.7): which operations are served, with which controls, and for whom.

use std::sync::Arc;

use larix_configuration::values::operation_rule::requester;
use larix_configuration::values::{OperationAction, OperationRule};
use larix_configuration::{Config, ConfigError, Database, Origin};
use larix_engine::access::{
    AccessPolicy, AccessPolicyError, AccessTarget, EntryFacts, FlowControl, Privilege, Subject,
};
use larix_engine::controls::{self, OperationKind};
use larix_proto::{Controls, LdapResult, ResultCode, oid};
use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema};

use crate::cluster;

const UNREADABLE: &str =
    "an entry that the rules for operations (restrictop) ask for cannot be read now: try again";

/// An operation as the rules tell them apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum RestrictedOperation<'a> {
    SimpleBind,
    /// A simple bind without a name: it gives nothing away, and what follows is asked for its protection.
    AnonymousBind,
    SaslBind,
    Search,
    Compare,
    Add,
    Delete,
    Modify,
    Rename,
    /// An extended operation, by its OID.
    Extended(&'a str),
}

impl RestrictedOperation<'_> {
    /// Whether the operation counts as a change.
    pub(crate) fn is_update(self) -> bool {
        match self {
            Self::Add | Self::Delete | Self::Modify | Self::Rename => true,
            // An extended operation that is not known to only ask counts as a change.
            Self::Extended(oid) => {
                const READING: [&str; 5] = [
                    oid::WHO_AM_I,
                    oid::CANCEL,
                    oid::START_TLS,
                    larix_replication::digest::OID,
                    larix_replication::CONFLICTS_OID,
                ];
                !READING.contains(&oid)
            }
            Self::SimpleBind | Self::AnonymousBind | Self::SaslBind | Self::Search | Self::Compare => false,
        }
    }

    /// Whether the operation is about the session itself: a bind or StartTLS.
    pub(crate) fn is_session(self) -> bool {
        matches!(
            self,
            Self::SimpleBind | Self::AnonymousBind | Self::SaslBind | Self::Extended(oid::START_TLS)
        )
    }
}

/// The rules that the requests for one database are under, looked up in the schema.
#[derive(Clone, Debug)]
pub(crate) struct OperationRules {
    /// No rule applies to a client that is bound as this DN.
    root: Option<NormalDn>,
    written: Vec<OperationRule>,
    /// For each rule what its clauses ask of the requester, in order.
    requesters: Vec<Vec<AccessPolicy>>,
}

/// Rules are the same if they were written the same.
impl PartialEq for OperationRules {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root && self.written == other.written
    }
}

impl Eq for OperationRules {}

impl OperationRules {
    /// # Errors
    /// A `<who>` that names what the schema does not define.
    pub(crate) fn new(
        schema: &Arc<Schema>,
        root: Option<NormalDn>,
        written: &[OperationRule],
    ) -> Result<Self, AccessPolicyError> {
        let requesters = written
            .iter()
            .map(|rule| rule.by.iter().map(|clause| requester(schema, &clause.who)).collect())
            .collect::<Result<_, _>>()?;
        Ok(Self { root, written: written.to_vec(), requesters })
    }

    /// The rules in force in a database, its own or else the frontend's; without a database the frontend's. `None`: there are
    /// none.
    ///
    /// # Errors
    /// As [`Self::new`], with the place of the rule in the configuration.
    pub(crate) fn in_force(
        config: &Config,
        database: Option<&Database>,
    ) -> Result<Option<Self>, ConfigError> {
        let own = database.map(|database| database.shared.operation_rules.as_slice()).unwrap_or_default();
        let rules = if own.is_empty() { &config.frontend.shared.operation_rules } else { own };
        if rules.is_empty() {
            return Ok(None);
        }
        let root = database.and_then(Database::effective_root);
        Self::new(&config.schema, root, rules).map(Some).map_err(|error| {
            let origin = database.map_or(Origin::BuiltIn, |database| database.origin.clone());
            ConfigError::new(origin, format!("restrictop `{}`: {}", error.rule, error.fault))
        })
    }

    /// What the rules ask of requesters, for those who let them see groups.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &AccessPolicy> {
        self.requesters.iter().flatten()
    }

    /// Checks one operation. Answers the OIDs of the controls to ignore (`drop`).
    ///
    /// # Errors
    /// unwillingToPerform, without a text as OpenLDAP has none: a rule refuses the operation, or none allows it. unavailable: a rule asks
    /// for an entry that could not be read.
    pub(crate) fn check(
        &self,
        subject: &Subject,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        if self.root.is_some() && self.root == subject.dn {
            return Ok(Vec::new());
        }
        let mut request = RuleInput::new(operation, sent);
        // What another request of this thread has missed.
        cluster::take_missed_read();
        let allowed = self.allow(subject, &mut request);
        match allowed.filter(|_| !cluster::take_missed_read()) {
            Some(true) => Ok(request.dropped),
            Some(false) => Err(LdapResult::new(ResultCode::UNWILLING_TO_PERFORM)),
            None => Err(LdapResult::with(ResultCode::UNAVAILABLE, UNREADABLE)),
        }
    }

    /// None where something could not be read: nobody is let in, or kept out, because of that.
    fn allow(&self, subject: &Subject, request: &mut RuleInput<'_>) -> Option<bool> {
        let mut allowed = false;
        for (rule, requesters) in self.written.iter().zip(&self.requesters) {
            if !request.concerns(rule) {
                continue;
            }
            // A rule that ends without a match is the last one, as with access rules.
            let mut flow = FlowControl::Stop;
            for (clause, requester) in rule.by.iter().zip(requesters) {
                if !matches(requester, subject)? {
                    continue;
                }
                match &clause.action {
                    OperationAction::Allow => return Some(true),
                    OperationAction::Reject => return Some(false),
                    OperationAction::Drop(oid) => match request.drop(oid) {
                        Dropped::Critical => return Some(false),
                        Dropped::Done => allowed = true,
                        Dropped::NotThere => {}
                    },
                    OperationAction::Nothing => {}
                }
                if clause.flow != FlowControl::Continue {
                    flow = clause.flow;
                    break;
                }
            }
            if flow != FlowControl::Break {
                break;
            }
        }
        Some(allowed)
    }
}

/// None where a group or another entry that is asked for could not be read.
fn matches(requester: &AccessPolicy, subject: &Subject) -> Option<bool> {
    let root = NormalDn::root();
    let target = AccessTarget { dn: &root, entry: &NoEntry };
    requester.check_known(subject, &target, Privilege::Write)
}

/// The request as the rules see it.
struct RuleInput<'a> {
    operation: RestrictedOperation<'a>,
    /// The controls that it came with and that mean something to it: OIDs, and whether they are critical.
    controls: Vec<(&'a str, bool)>,
    dropped: Vec<String>,
}

enum Dropped {
    Done,
    Critical,
    NotThere,
}

impl<'a> RuleInput<'a> {
    fn new(operation: RestrictedOperation<'a>, sent: Controls<'a>) -> Self {
        let kind = kind(operation);
        let meant = sent.into_iter().filter(|control| controls::applies(control.oid, kind));
        Self {
            operation,
            controls: meant.map(|control| (control.oid, control.critical)).collect(),
            dropped: Vec::new(),
        }
    }

    fn concerns(&self, rule: &OperationRule) -> bool {
        let set = &rule.operations;
        let by_kind = match self.operation {
            RestrictedOperation::SimpleBind
            | RestrictedOperation::AnonymousBind
            | RestrictedOperation::SaslBind => set.bind,
            RestrictedOperation::Search => set.search,
            RestrictedOperation::Compare => set.compare,
            RestrictedOperation::Add => set.add,
            RestrictedOperation::Delete => set.delete,
            RestrictedOperation::Modify => set.modify,
            RestrictedOperation::Rename => set.rename,
            RestrictedOperation::Extended(oid) => {
                set.extended || set.extended_oids.iter().any(|listed| listed == oid)
            }
        };
        by_kind && rule.controls.iter().all(|wanted| self.controls.iter().any(|(oid, _)| oid == wanted))
    }

    fn drop(&mut self, oid: &str) -> Dropped {
        match self.controls.iter().position(|(sent, _)| *sent == oid) {
            None => Dropped::NotThere,
            Some(at) if self.controls.get(at).is_some_and(|(_, critical)| *critical) => Dropped::Critical,
            Some(at) => {
                self.controls.remove(at);
                self.dropped.push(oid.to_owned());
                Dropped::Done
            }
        }
    }
}

const fn kind(operation: RestrictedOperation<'_>) -> OperationKind<'_> {
    match operation {
        RestrictedOperation::SimpleBind
        | RestrictedOperation::AnonymousBind
        | RestrictedOperation::SaslBind => OperationKind::Bind,
        RestrictedOperation::Search => OperationKind::Search,
        RestrictedOperation::Compare => OperationKind::Compare,
        RestrictedOperation::Add => OperationKind::Add,
        RestrictedOperation::Delete => OperationKind::Delete,
        RestrictedOperation::Modify => OperationKind::Modify,
        RestrictedOperation::Rename => OperationKind::ModifyDn,
        RestrictedOperation::Extended(oid) => OperationKind::Extended(oid),
    }
}

/// The rules are about no entry.
struct NoEntry;

impl EntryFacts for NoEntry {
    fn visit(&self, _: &AttributeDescription, _: &mut dyn FnMut(&[u8]) -> bool) {}

    fn matches(&self, _: &BoundFilter) -> Match {
        Match::Undefined
    }
}

#[cfg(test)]
#[path = "operation_rules_tests.rs"]
mod tests;
