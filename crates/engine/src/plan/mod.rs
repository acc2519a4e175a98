//! From a filter to candidates: which index keys to read, in which order, and what their ids still owe.

pub mod advice;
pub mod candidates;
pub mod explain;
pub mod planner;
#[cfg(test)]
mod tests;

pub use candidates::{Candidates, IdSet, Owed};
pub use explain::Explain;
pub use planner::{ComputedHolders, Plan};
