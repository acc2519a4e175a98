//! Access control: who may do what to which entries, attributes and values.
//!
//! [`AccessRule`] is one `access to ...` line in typed form, as written. [`AccessPolicy`] is the rules of a database
//! followed by the frontend's, looked up in a schema, ready to answer [`AccessPolicy::check`].
//!
//! Source of the rules' meaning: slapd.access(5).

mod aci;
mod compile;
mod coverage;
mod decisions;
mod display;
mod error;
mod evaluate;
mod expand;
mod explain;
mod fault;
mod items;
mod lookup;
mod memo;
mod parse;
mod parse_who;
mod policy;
mod posix;
mod privilege;
mod rule;
mod sets;
mod subject;
mod tokens;
mod who;

mod entry_set;

pub use coverage::{Because, NeverMatches};
pub use decisions::{Decided, Decisions};
pub use entry_set::EntrySet;
pub use error::{AccessFault, AccessSyntaxError};
pub use explain::{
    ClauseOutcome, ClauseStep, Decision, Explanation, RuleList, RuleName, RuleOutcome, RuleStep,
    UnmatchedWhat,
};
pub use fault::{AccessPolicyError, AccessPolicyFault};
pub use items::ItemClass;
pub use lookup::EntrySearch;
pub use memo::Memo;
pub use policy::{
    AccessPolicy, AccessTarget, EntryFacts, GroupQuery, Item, ItemKind, OtherEntries, Reach, Unreadable,
    Verdict,
};
pub use posix::compile_as as posix_regex;
pub use privilege::{AccessLevel, Collected, Grant, Privilege, Privileges};
pub use rule::{
    AccessRule, AttributeSelector, ByClause, DnPattern, DnScope, DomainPattern, FlowControl, Identity,
    OperationPattern, PeerPattern, StrengthLayer, TargetDn, TextPattern, ValuePattern, ValueStyle, What, Who,
};
pub use subject::{Operation, PeerNames, RequestFacts, Strength, Subject};
pub use tokens::Quoting;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod parse_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod slapacl_tests;
