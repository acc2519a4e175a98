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
mod registers;
mod rows;
mod wire;

pub(crate) use local::{Renamed, note_change};
pub(crate) use registers::EntryState;
pub(crate) use rows::{KINDS as ROW_KINDS, check_row, forget, named_csn, put_row, rows_of, trim};
pub use wire::{ENTRY_STATE_OID, VALUE_MODE_OID, state_of};
pub(crate) use wire::{Received, counted};

use larix_schema::{AttributeDescription, Schema};

use crate::csn::Csn;
use crate::database::DatabaseSettings;
use crate::write::KnownSchema;
use registers::Rule;

/// Derived by an overlay on every server from other entries: nobody else's word counts.
const DERIVED: &str = "memberOf";

/// The state of an entry that comes, of which `csn` is the entryCSN, by how the database settles conflicts. `None`: it keeps no
/// states.
///
/// # Errors
/// What is wrong: the provider settles conflicts otherwise.
pub(crate) fn state_that_came(
    settings: &DatabaseSettings,
    csn: Option<Csn>,
    came: Option<&EntryState>,
) -> Result<Option<EntryState>, &'static str> {
    if settings.merges_records && !settings.value_conflicts && csn.is_some() {
        // Who knows nothing of states sends entries that are as old as they say.
        let known = came.filter(|state| state.newest() == csn).cloned();
        return Ok(Some(known.unwrap_or_else(|| EntryState::begin(csn))));
    }
    match (settings.value_conflicts, came) {
        (false, None) => Ok(None),
        (true, Some(state)) if state.newest() == csn => Ok(Some(state.clone())),
        (true, Some(_)) => Err("its state is not that of its entryCSN"),
        (true, None) => Err("the conflict mode here is `value`, and it came without its state"),
        (false, Some(_)) => Err("the conflict mode here is `entry`, and that of its provider `value`"),
    }
}

/// How two versions of an attribute become one.
fn rule_of(schema: &Schema, known: &KnownSchema, description: &AttributeDescription) -> Rule {
    let id = description.attribute;
    if [known.entry_csn, known.modifiers_name, known.modify_timestamp].contains(&id) {
        return Rule::Newest;
    }
    let kind = schema.attribute(id);
    if kind.name() == DERIVED {
        return Rule::Ours;
    }
    match kind.single_value || kind.equality.is_none() {
        true => Rule::Whole,
        false => Rule::Values,
    }
}
