//! From a filter to candidates: which index keys to read, in which order, and the check that their ids still need.

pub mod advice;
pub mod candidates;
pub mod explain;
pub mod planner;
#[cfg(test)]
mod tests;

pub use candidates::{Candidates, Exactness, IdSet};
pub use explain::Explain;
pub use planner::{ComputedHolders, Plan};
