//! Searches: what is asked ([`task`] runs it), where ([`scope`]), whether an entry matches (`filter`), what of it is
//! answered ([`selection`], [`answer`]).

pub mod ahead;
pub mod answer;
pub mod chain;
pub mod computed;
#[cfg(test)]
mod computed_tests;
pub mod cookie;
#[cfg(test)]
mod cost_tests;
pub mod dereference;
pub mod direct;
#[cfg(test)]
mod direct_tests;
pub mod entry;
#[cfg(test)]
mod extension_tests;
mod found_entries;
mod gate;
pub(crate) mod hidden;
pub mod internal;
#[cfg(test)]
mod internal_tests;
#[cfg(test)]
mod kept_lists_tests;
pub mod limits;
mod named;
mod pace;
pub mod pages;
mod references;
pub mod referral;
pub mod rights;
pub(crate) mod rule_facts;
mod run;
pub mod scope;
pub mod selection;
pub(crate) mod shown;
pub mod sort;
pub mod sorted;
pub mod synchronised;
pub mod task;
#[cfg(test)]
mod tests;
pub(crate) mod view_entries;
mod window;

pub use crate::filter::{Filter, FilterContext};
pub use entry::GuardedEntry;
pub use gate::Gate;
pub use references::REFERENCES_LIMIT;
pub use task::{Budget, SearchInput, SearchTask, Step};
