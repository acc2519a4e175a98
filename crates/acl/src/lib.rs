//! Access control: who may do what to which entries, attributes and values.
//!
//! [`AccessRule`] is one `access to ...` line in typed form, as written. [`AccessPolicy`] is the rules of a database
//! followed by the frontend's, looked up in a schema, ready to answer [`AccessPolicy::check`].
//!
//! Source of the rules' meaning: slapd.access(5).

mod aci;
mod ask;
mod check;
mod compile;
mod coverage;
mod decisions;
mod display;
mod entry_set;
mod error;
mod evaluate;
mod expand;
mod explain;
mod facts;
mod fault;
mod item;
mod item_classes;
mod items;
mod lookup;
mod memo;
mod parse;
mod parse_who;
mod policy;
mod posix;
mod privilege;
mod query;
mod rule;
mod sets;
mod strength;
mod subject;
mod tokens;
mod who;

pub use ask::UnmatchedWhat;
pub use coverage::{Because, NeverMatches};
pub use decisions::{Decided, Decisions};
pub use entry_set::EntrySet;
pub use error::{AccessFault, AccessSyntaxError};
pub use explain::{
    ClauseOutcome, ClauseStep, Decision, Explanation, RuleList, RuleName, RuleOutcome, RuleStep,
};
pub use facts::{AccessTarget, EntryFacts, OtherEntries, Reach, Unreadable};
pub use fault::{AccessPolicyError, AccessPolicyFault};
pub use item::{Item, ItemClass, ItemKind, Verdict};
pub use memo::Memo;
pub use policy::AccessPolicy;
pub use posix::{posix_regex, regex_steps};
pub use privilege::{AccessLevel, Collected, Grant, Privilege, Privileges};
pub use query::{EntrySearch, GroupQuery};
pub use rule::{
    AccessRule, AttributeSelector, ByClause, DnPattern, DnScope, DomainPattern, FlowControl, Identity,
    OperationPattern, PeerPattern, StrengthLayer, TargetDn, TextPattern, ValuePattern, ValueStyle, What, Who,
};
pub use strength::Strength;
pub use subject::{Operation, PeerNames, RequestFacts, Subject};
pub use tokens::Quoting;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod slapacl_tests;
