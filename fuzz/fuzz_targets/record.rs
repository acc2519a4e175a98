//! Stored entries, plain and packed: what another program or a failing disk may have left in the store.
#![no_main]

use std::sync::LazyLock;

use larix_engine::entry::Dictionary;
use larix_engine::entry::{EntryId, EntryView};
use libfuzzer_sys::fuzz_target;

const ENTRY: EntryId = EntryId(7);
/// Codec, flags, the superior's id, the RDN `a`, the normalized one the same.
const HEAD: &[u8] = b"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01a\x00";

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(|| {
    Dictionary::new(
        b"\x01\x04\x10\x04\x0euser@example.org\x00\x10\x32\x04\x03top\x04\x06person\x04\x0dinetOrgPerson",
    )
});

fn walk(record: &[u8]) {
    let Ok(view) = EntryView::parse(ENTRY, record) else { return };
    for attribute in view.attributes() {
        let Ok((_, values)) = attribute else { return };
        values.iter().for_each(|value| drop(value));
    }
}

fuzz_target!(|data: &[u8]| {
    walk(data);
    if let Ok(record) = DICTIONARY.unpacked(ENTRY, data) {
        walk(&record);
    }
    // The dictionary may be damaged as well.
    if let Some((length, rest)) = data.split_first() {
        let (dictionary, body) = rest.split_at(usize::from(*length).min(rest.len()));
        let plain = [HEAD, body].concat();
        for dictionary in [&*DICTIONARY, &Dictionary::new(dictionary)] {
            let mut packed = Vec::new();
            if dictionary.pack(3, &plain, &mut packed) {
                assert!(dictionary.unpacked(ENTRY, &packed).is_ok_and(|record| *record == plain[..]));
            }
        }
    }
});
