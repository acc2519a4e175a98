//! Names, attributes and classes as another directory has them: the rules that rewrite texts ([`Rewrite`]), and the [`Mapping`] of
//! requests on their way to a backend and of answers on their way back.
//!
//! *Invariant:* a mapping looks nothing up but what its rules say, and takes time in proportion to what it maps.

mod in_front;
pub mod lines;
mod mapping;
mod rules;

pub use in_front::NamesInFront;
pub use mapping::{Answers, MapError, Mapping, RewriteContext, Surroundings};
pub use rules::{ContextId, Rewrite, RewriteError, Rewritten, Searches, Session, Sessions};
