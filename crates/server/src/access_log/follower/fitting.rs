//! Records that the store of a log does not take as they are: etcd's values have about 1.4 MB at most. Something is left out of them, and
//! they say so. Otherwise one large change would end recording for ever.

use larix_engine::Database;
use larix_engine::entry::EntryAttribute;
use larix_engine::record::INLINE_VALUE_LIMIT;
use larix_engine::write::NewRecord;
use larix_schema::Schema;
use larix_store::Store;

/// What the store may add to a value, and an entry has beside what is recorded, in bytes.
const BESIDE_BYTES: usize = 8 << 10;
/// What each value costs beside its bytes, at most.
const BESIDE_VALUE_BYTES: usize = 8;
/// What stands in an entry's record for a value that is stored beside it.
const ELSEWHERE_BYTES: usize = 64;

/// The values of changes.
const CHANGES: &str = "reqMod";
/// What is left out, in this order: what replicas need comes last.
const LEFT_OUT: [&str; 4] = ["reqRespControls", "reqControls", "reqOld", CHANGES];

/// What a store takes of a record, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    value: usize,
    /// The values that stand in the entry's record: those of up to [`INLINE_VALUE_LIMIT`].
    entry: usize,
    /// All values together: a change log has the record as one value.
    record: usize,
}

impl Room {
    pub(super) fn of<S: Store>(database: &Database<S>) -> Self {
        let value = database.store().value_bytes_max().saturating_sub(BESIDE_BYTES);
        Self { value, entry: value, record: if database.settings().log { value } else { usize::MAX } }
    }

    fn takes(&self, record: &NewRecord) -> bool {
        let (mut all, mut inline) = (0usize, 0usize);
        record.attributes.iter().flat_map(|attribute| &attribute.values).all(|value| {
            let own = value.len().saturating_add(BESIDE_VALUE_BYTES);
            let is_inline = value.len() <= INLINE_VALUE_LIMIT;
            all = all.saturating_add(own);
            inline = inline.saturating_add(if is_inline { own } else { ELSEWHERE_BYTES });
            value.len() <= self.value && inline <= self.entry && all <= self.record
        })
    }
}

/// Leaves out what there is no room for, and has the record say so. If that is what replicas need, answers a text for the log.
pub(super) fn fit(schema: &Schema, room: Room, record: &mut NewRecord) -> Option<String> {
    let (mut gone, mut lacks) = (Vec::new(), false);
    for name in LEFT_OUT {
        if room.takes(record) {
            break;
        }
        let Ok(description) = schema.describe(name) else { continue };
        let Some(at) = record.attributes.iter().position(|known| known.description == description) else {
            continue;
        };
        let bytes: usize = record.attributes.remove(at).values.iter().map(Vec::len).sum();
        gone.push(format!("{name} with {bytes} bytes"));
        lacks |= name == CHANGES;
    }
    if gone.is_empty() {
        return None;
    }
    let gone = gone.join(", ");
    say(schema, record, &format!("left out, because the engine does not take so much at once: {gone}"));
    lacks.then(|| {
        format!(
            "a record is without what was changed ({gone}), because the engine does not take so much at once; replicas that follow the \
             log go through the entries"
        )
    })
}

/// Adds a text to what was answered.
fn say(schema: &Schema, record: &mut NewRecord, text: &str) {
    let Ok(description) = schema.describe("reqMessage") else { return };
    let known = record.attributes.iter_mut().find(|known| known.description == description);
    match known.and_then(|known| known.values.first_mut()) {
        Some(message) => message.extend_from_slice(format!("; {text}").as_bytes()),
        None => record.attributes.push(EntryAttribute::new(description, vec![text.as_bytes().to_vec()])),
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;
    use larix_schema::SchemaBuilder;

    use super::*;

    /// Names and the lengths of their values; what is left of them, and whether replicas lack something.
    fn check(room: Room, given: &[(&str, &[usize])], left: &[&str], lacks: bool) {
        let schema = SchemaBuilder::system().build();
        let attribute = |(name, lengths): &(&str, &[usize])| {
            let values = lengths.iter().map(|length| vec![b'x'; *length]).collect();
            EntryAttribute::new(schema.describe(name).expect("known"), values)
        };
        let attributes = given.iter().map(attribute).collect();
        let mut record = NewRecord { start: Timestamp(1), attributes, csn: None };
        let left_out = fit(&schema, room, &mut record);
        let is_there = |name: &&str| {
            let description = schema.describe(name).expect("known");
            record.attributes.iter().any(|attribute| attribute.description == description)
        };
        let names = ["reqMod", "reqOld", "reqControls", "reqRespControls", "reqMessage"];
        let found: Vec<&str> = names.into_iter().filter(is_there).collect();
        assert_eq!((found.as_slice(), left_out.is_some()), (left, lacks), "{given:?}: {left_out:?}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_record_says_so() {
        let value = |value| Room { value, entry: usize::MAX, record: usize::MAX };
        let entry = |entry| Room { value: 1000, entry, record: usize::MAX };
        let record = |record| Room { value: record, entry: usize::MAX, record };
        check(value(100), &[("reqMod", &[100, 100])], &["reqMod"], false);
        check(value(100), &[("reqMod", &[100, 101])], &["reqMessage"], true);
        check(value(100), &[("reqMod", &[9]), ("reqOld", &[101])], &["reqMod", "reqMessage"], false);
        // Small values stand in one record, large ones beside it.
        check(entry(116), &[("reqMod", &[50, 50])], &["reqMod"], false);
        check(entry(115), &[("reqMod", &[50, 50])], &["reqMessage"], true);
        let large = Room { value: 5000, entry: 128, record: usize::MAX };
        check(large, &[("reqMod", &[INLINE_VALUE_LIMIT + 1; 2])], &["reqMod"], false);
        check(large, &[("reqMod", &[INLINE_VALUE_LIMIT + 1; 3])], &["reqMessage"], true);
        // A change log has all of it as one value.
        check(record(226), &[("reqMod", &[100, 110])], &["reqMod"], false);
        check(record(225), &[("reqMod", &[100, 110])], &["reqMessage"], true);
        let all: &[(&str, &[usize])] =
            &[("reqMod", &[50]), ("reqOld", &[50]), ("reqControls", &[50]), ("reqRespControls", &[50])];
        check(record(232), all, &["reqMod", "reqOld", "reqControls", "reqRespControls"], false);
        check(record(231), all, &["reqMod", "reqOld", "reqControls", "reqMessage"], false);
        check(record(120), all, &["reqMod", "reqOld", "reqMessage"], false);
        check(record(60), all, &["reqMod", "reqMessage"], false);
        check(record(20), all, &["reqMessage"], true);
        // What was answered stays.
        check(record(60), &[("reqMod", &[70]), ("reqMessage", &[7])], &["reqMessage"], true);
    }
}
