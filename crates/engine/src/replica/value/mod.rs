//! Conflicts settled value by value (`conflict-mode value`): changes of different attributes and values of one entry that
//! two servers made both survive, in whatever order they arrive (`docs/adr/0036-conflicts-value-by-value.md`).
//!
//! Beside an entry that was changed stands its *state*: which changes of each server are in it, when its name and its
//! attributes as a whole were last set, and when single values were added and removed ([`registers`]). Two states merge to
//! one that does not depend on which came first. The state is kept in rows of its own ([`rows`]), written in the
//! transaction of the change ([`local`], [`merge`]), and travels beside the entry ([`wire`]) to consumers that ask for it.

mod derived;
mod local;
mod merge;
mod otherwise;
mod record;

use crate::replica_state::{registers, rows, wire};
pub(crate) use local::{Renamed, note_change};
pub(crate) use registers::EntryState;
pub(crate) use rows::{forget, named_csn};
pub(crate) use wire::{Received, counted, state_that_came};

use larix_schema::{AttributeDescription, Schema, Usage};

use crate::write::KnownSchema;
use registers::Rule;

/// How two versions of an attribute become one.
fn rule_of(schema: &Schema, known: &KnownSchema, description: &AttributeDescription) -> Rule {
    let id = description.attribute;
    if [known.entry_csn, known.modifiers_name, known.modify_timestamp].contains(&id) {
        return Rule::Newest;
    }
    let kind = schema.attribute(id);
    // Each server derives or keeps these by itself (RFC 4512 section 3.4.2): memberOf, for one.
    if kind.usage == Usage::DsaOperation {
        return Rule::Ours;
    }
    match kind.single_value || kind.equality.is_none() {
        true => Rule::Whole,
        false => Rule::Values,
    }
}
