//! A state beside its entry: the value of the control [`ENTRY_STATE_OID`] that goes with each entry of a refresh and of the
//! persist stage, to consumers whose request had the control [`VALUE_MODE_OID`].
//!
//! ```text
//! 1 byte         the version, 1
//! u32, then so often:  u16 length, description, u32   the attributes that were sent, and how many values each
//! u32 length, the head: base and name (1, CSN or 0 each), then a CSN of each server
//! u32, then so often:  u16 length, description, when it was set (1, CSN or 0), u32, then so often: 16 bytes, present, CSN
//! ```
//!
//! Numbers are big-endian; a CSN is its time in microseconds (i64), count (u32), server id (u16) and modification (u32).

use std::collections::BTreeMap;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::Schema;
use larix_store::Snapshot;
use uuid::Uuid;

use super::registers::{AttributeState, EntryState, Register};
use super::rows::{self, decode_head, encode_head, put_csn, put_optional, take, take_csn, take_optional};
use crate::change::AttributeValues;
use crate::csn::Csn;
use crate::database::{DatabaseSettings, View};
use crate::entry::EntryReader;
use crate::fault::Fault;

/// On a search of content synchronisation: the consumer merges value by value, and wants the states of entries.
pub const VALUE_MODE_OID: &str = larix_proto::oid::VALUE_CONFLICTS;
/// On an entry of such a search: its state.
pub const ENTRY_STATE_OID: &str = "2.25.87610412117718157885716886434399491440.3.2";

const VERSION: u8 = 1;

/// A state as received, with the number of values of each attribute in the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    state: EntryState,
    counts: BTreeMap<String, usize>,
}

/// The state of a received entry with the entryCSN `csn`, by how the database settles conflicts. `None`: it keeps no
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

/// The state of a stored entry, with what is counted of its content.
///
/// # Errors
/// A store that cannot be read.
pub fn state_of<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    uuid: &Uuid,
    entry_csn: Option<Csn>,
) -> Result<Vec<u8>, Fault> {
    let state = rows::read(&view.schema, view.snapshot, uuid, entry_csn)?;
    let mut counts = Vec::new();
    for attribute in reader.view.attributes() {
        let (number, stored) = attribute?;
        // Not every client may see attributes that the schema no longer knows.
        if let Some(row) = view.catalog.row(number).filter(|row| row.description.is_some()) {
            counts.push((row.text.as_ref(), stored.len()));
        }
    }
    Ok(encode(&view.schema, &state, &counts))
}

fn length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn encode(schema: &Schema, state: &EntryState, counts: &[(&str, u64)]) -> Vec<u8> {
    let mut out = vec![VERSION];
    length(&mut out, counts.len());
    for (name, count) in counts {
        text(&mut out, name);
        length(&mut out, usize::try_from(*count).unwrap_or(usize::MAX));
    }
    let head = encode_head(state);
    length(&mut out, head.len());
    out.extend_from_slice(&head);
    length(&mut out, state.attributes.len());
    for (description, attribute) in &state.attributes {
        text(&mut out, &description.to_text(schema));
        put_optional(&mut out, attribute.cleared.as_ref());
        length(&mut out, attribute.values.len());
        for (value, register) in &attribute.values {
            out.extend_from_slice(value);
            out.push(u8::from(register.present));
            put_csn(&mut out, &register.csn);
        }
    }
    out
}

impl Received {
    /// None: it is damaged, of another version, or names attributes that the schema does not know.
    fn decode(schema: &Schema, mut from: &[u8]) -> Option<Self> {
        let from = &mut from;
        if take(from)? != [VERSION] {
            return None;
        }
        let mut counts = BTreeMap::new();
        for _ in 0..u32::from_be_bytes(take(from)?) {
            let name = take_text(from)?.to_owned();
            counts.insert(name, u32::from_be_bytes(take(from)?) as usize);
        }
        let length = u32::from_be_bytes(take(from)?) as usize;
        let (head, rest) = from.split_at_checked(length)?;
        *from = rest;
        let mut state = decode_head(head)?;
        for _ in 0..u32::from_be_bytes(take(from)?) {
            let description = schema.describe(take_text(from)?).ok()?;
            let cleared = take_optional(from)?;
            let mut attribute = AttributeState { cleared, ..AttributeState::default() };
            for _ in 0..u32::from_be_bytes(take(from)?) {
                let value = take(from)?;
                let [present] = take(from)?;
                let register = Register { csn: take_csn(from)?, present: present == 1 };
                attribute.values.insert(value, register);
            }
            state.attributes.insert(description, attribute);
        }
        from.is_empty().then_some(Self { state, counts })
    }

    /// The state that came beside an entry, if the entry came whole; `counted`: how many values of each attribute came.
    ///
    /// # Errors
    /// What a change with such a state is answered.
    pub(crate) fn whole(
        schema: &Schema,
        dn: &str,
        state: Option<&[u8]>,
        counted: impl FnOnce() -> BTreeMap<String, usize>,
    ) -> Result<Option<Box<EntryState>>, LdapResult> {
        let Some(bytes) = state else { return Ok(None) };
        let Some(received) = Self::decode(schema, bytes) else {
            let text = format!(
                "\"{dn}\": its state cannot be read: is the provider of another version, or its schema?"
            );
            return Err(LdapResult::with(ResultCode::OTHER, text));
        };
        match received.check_whole(&counted()) {
            Ok(()) => Ok(Some(Box::new(received.state))),
            Err(attribute) => {
                let text = format!(
                    "\"{dn}\": the provider does not show all values of {attribute}: check its access rules"
                );
                Err(LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text))
            }
        }
    }

    /// Whether the entry came whole: a value that a consumer may not see would be taken for one that was removed.
    /// Otherwise an attribute that lacks some.
    fn check_whole(&self, counted: &BTreeMap<String, usize>) -> Result<(), String> {
        match self.counts.iter().find(|(name, count)| counted.get(*name) != Some(count)) {
            None => Ok(()),
            Some((name, _)) => Err(name.clone()),
        }
    }
}

fn take_text<'f>(from: &mut &'f [u8]) -> Option<&'f str> {
    let length = usize::from(u16::from_be_bytes(take(from)?));
    let (text, rest) = from.split_at_checked(length)?;
    *from = rest;
    std::str::from_utf8(text).ok()
}

/// How many values came of each attribute.
pub(crate) fn counted(attributes: &[AttributeValues]) -> BTreeMap<String, usize> {
    attributes.iter().map(|attribute| (attribute.description.clone(), attribute.values.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::schema;
    use crate::time::Timestamp;

    fn csn(time: i64, server_id: u16) -> Csn {
        Csn { time: Timestamp(time), count: 3, server_id, modification: 0 }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let schema = schema();
        let mut state = EntryState::begin(Some(csn(5, 1)));
        state.seen.note(csn(9, 2));
        state.named = Some(csn(9, 2));
        let attribute = AttributeState {
            cleared: Some(csn(7, 2)),
            values: [([7; 16], Register { csn: csn(8, 1), present: false })].into(),
        };
        state.attributes.insert(schema.describe("description;lang-de").unwrap(), attribute);
        let bytes = encode(&schema, &state, &[("cn", 2), ("description;lang-de", 0)]);
        let received = Received::decode(&schema, &bytes).unwrap();
        assert_eq!(received.state, state);
        for length in 0..bytes.len() {
            assert_eq!(Received::decode(&schema, &bytes[..length]), None, "{length}");
        }
        let whole = |cn| {
            let values = vec![Vec::new(); cn];
            let cn = AttributeValues { description: "cn".to_owned(), values };
            let none = AttributeValues { description: "description;lang-de".to_owned(), values: Vec::new() };
            received.check_whole(&counted(&[cn, none]))
        };
        assert_eq!(whole(2), Ok(()));
        assert_eq!(whole(1), Err("cn".to_owned()));
    }
}
