//! Conflicts settled value by value (`conflict-mode value`): changes of different attributes and values of one entry that
//! two servers made both survive, in whatever order they arrive (`docs/adr/0036-conflicts-value-by-value.md`).
//!
//! Beside an entry that was changed stands its *state*: which changes of each server are in it, when its name and its
//! attributes as a whole were last set, and when single values were added and removed ([`registers`]). Two states merge to
//! one that does not depend on which came first. The state is kept in rows of its own ([`rows`]), written in the
//! transaction of the change ([`entry_state`](crate::write::entry_state), [`merge`]), and travels beside the entry ([`wire`]) to consumers that ask for it.

mod derived;
mod merge;
mod otherwise;
mod record;

use crate::replica_state::{registers, rows, wire};
pub(crate) use registers::EntryState;
pub(crate) use rows::{forget, named_csn};
pub(crate) use wire::{Received, counted, state_that_came};

use crate::write::entry_state::{attribute_changes, rule_of};
