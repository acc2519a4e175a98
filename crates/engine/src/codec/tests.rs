use std::sync::Arc;
use std::task::Poll;

use super::train::SAMPLE_RECORDS_MIN;
use super::*;
use crate::entry::{AttributeNumber, EntryView};
use crate::record::{AttributeLookup, AttributesIter, RecordFlags, RecordWriter};

const ENTRY: EntryId = EntryId(9);

/// A record like its neighbours, but for its number and a value that no other has.
fn person(number: u64) -> Vec<u8> {
    let name = format!("uid=user.{number}");
    let mut writer = RecordWriter::new(EntryId(3), &name, name.as_bytes(), RecordFlags::default());
    let own = (0..6).map(|word| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(word * 9) as u8);
    let own: String = own.map(|byte| format!("{byte:02x}")).collect();
    let values: [&[&str]; 6] = [
        &["top", "person", "organizationalPerson", "inetOrgPerson"],
        &[&format!("user.{number}")],
        &[&format!("user.{number}@mail.example.com"), &format!("user.{number}@example.org")],
        &["a preference that every account has, since nobody ever changed it:true"],
        &[&own],
        &["20260101000000Z", if number.is_multiple_of(3) { "enabled" } else { "disabled" }],
    ];
    for (number, values) in (0..).zip(values) {
        writer.attribute(AttributeNumber(number), values.iter().map(|value| value.as_bytes()), |_, _| ());
    }
    writer.finish()
}

fn people(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(person).collect()
}

fn unpack(dictionary: &Dictionary, record: &[u8]) -> Result<Vec<u8>, RecordError> {
    dictionary.unpacked(ENTRY, record).map(|record| record.to_vec())
}

fn pack(dictionary: &Dictionary, plain: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    dictionary.pack(5, plain, &mut out).then_some(out)
}

/// What another implementation of LZ4 reads from the block.
fn foreign(dictionary: &Dictionary, record: &[u8]) -> Vec<u8> {
    let packed = Packed::parse(record).unwrap();
    let mut before = dictionary.bytes().to_vec();
    before.push(CODEC_PLAIN);
    before.extend_from_slice(&packed.head[1..]);
    lz4_flex::block::decompress_with_dict(packed.block, packed.length, &before).unwrap()
}

#[test]
fn what_is_packed_is_unpacked_here_and_elsewhere() {
    let dictionary = train(&people(400)).unwrap();
    let (mut plain_bytes, mut packed_bytes) = (0, 0);
    for plain in people(1_200) {
        let packed = pack(&dictionary, &plain).unwrap();
        assert_eq!(unpack(&dictionary, &packed).unwrap(), plain);
        assert_eq!(foreign(&dictionary, &packed), plain[head_length(&plain).unwrap()..]);
        (plain_bytes, packed_bytes) = (plain_bytes + plain.len(), packed_bytes + packed.len());
        let (in_place, read) =
            (EntryView::parse(ENTRY, &packed).unwrap(), EntryView::parse(ENTRY, &plain).unwrap());
        assert_eq!((in_place.parent(), in_place.rdn()), (read.parent(), read.rdn()));
        assert_eq!(in_place.attributes().next().unwrap().unwrap_err(), RecordError::Packed { entry: ENTRY });
    }
    assert!(packed_bytes * 3 < plain_bytes, "{packed_bytes} of {plain_bytes}");
}

/// A record with attributes of every third number, among them a long one.
fn long_record(number: u64) -> Vec<u8> {
    let name = format!("uid=user.{number}");
    let mut writer = RecordWriter::new(EntryId(3), &name, name.as_bytes(), RecordFlags::default());
    for at in 0..60 {
        let text = format!("value {at} of user.{number} among others like it");
        let other = text.repeat(if at == 20 { 12 } else { 1 });
        let values = [text.as_bytes(), other.as_bytes()];
        writer.attribute(AttributeNumber(3 * at), values.into_iter(), |_, _| ());
    }
    writer.finish()
}

/// The same dictionary under six numbers: [`pack`] names the last.
fn six_times(dictionary: &Arc<Dictionary>) -> Dictionaries {
    let mut dictionaries = Dictionaries::default();
    (0..6).for_each(|_| dictionaries.add(Arc::clone(dictionary)));
    dictionaries
}

/// The values of an attribute that are found while the record is unpacked, and how many bytes it took. No values: the record has none of
/// it, or it takes another reader.
fn found_in(dictionaries: &Dictionaries, stored: &[u8], number: AttributeNumber) -> (Option<String>, usize) {
    let (mut passed, mut seen) = (0, 0);
    let head = EntryView::parse(ENTRY, stored).unwrap().head_length(stored);
    let found = dictionaries.look_into(head, stored, &mut |attributes: &[u8]| {
        let mut unread = AttributesIter::within(ENTRY, &attributes[passed..]);
        let sought = unread.seek(number);
        (passed, seen) = (attributes.len() - unread.rest(), attributes.len());
        match sought {
            AttributeLookup::Found(values) => ControlFlow::Break(Some(format!("{values:?}"))),
            AttributeLookup::Needs(more) => ControlFlow::Continue(more),
            AttributeLookup::Other => ControlFlow::Break(None),
        }
    });
    (found.flatten(), seen)
}

#[test]
fn attributes_are_found_while_a_record_is_unpacked() {
    let dictionary = Arc::new(train(&people(400)).unwrap());
    let dictionaries = six_times(&dictionary);
    for plain in [long_record(7), long_record(70_000), person(7)] {
        let packed = pack(&dictionary, &plain).unwrap();
        let view = EntryView::parse(ENTRY, &plain).unwrap();
        for number in (0..181).map(AttributeNumber) {
            let expected = view.get(number).unwrap().map(|values| format!("{values:?}"));
            let (found, seen) = found_in(&dictionaries, &packed, number);
            let (found_plain, all) = found_in(&dictionaries, &plain, number);
            assert_eq!((&found, &found_plain), (&expected, &expected), "{number:?}");
            assert!(number.0 > 30 || plain.len() < 1_024 || seen < all / 2 || found.is_none(), "{number:?}");
        }
    }
}

#[test]
fn a_damaged_record_that_can_be_unpacked_is_looked_into_as_it_is_read() {
    let dictionary = Arc::new(train(&people(400)).unwrap());
    let dictionaries = six_times(&dictionary);
    let (mut readable, mut found_here) = (0, 0);
    for plain in [long_record(7), person(7)] {
        let packed = pack(&dictionary, &plain).unwrap();
        // Behind the head stands the dictionary's number, which `unpack` does not look at.
        for at in head_length(&packed).unwrap() + 1..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 1 << (at % 8);
            let whole = unpack(&dictionary, &damaged).ok();
            for number in [0, 3, 60].map(AttributeNumber) {
                // A record that cannot be unpacked to its end may still show what stands before the damage.
                let (found, _) = found_in(&dictionaries, &damaged, number);
                let Some(whole) = &whole else { continue };
                let read = EntryView::parse(ENTRY, whole).unwrap().get(number).ok().flatten();
                let read = read.filter(|values| values.as_ber().is_some());
                readable += 1;
                found_here += usize::from(found.is_some());
                assert_eq!(found, read.map(|values| format!("{values:?}")), "byte {at}, {number:?}");
            }
        }
    }
    assert!(found_here > 0 && found_here < readable, "{found_here} of {readable}");
}

/// `plain` packed over what is stored of the record before it.
fn pack_over(dictionary: &Dictionary, before: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let before = dictionary.unpacked(ENTRY, before).unwrap();
    dictionary.pack_over(5, plain, Some((&before, 0)), &mut out).then_some(out)
}

#[test]
fn a_record_that_is_changed_again_and_again_stays_as_short() {
    let dictionary = train(&people(400)).unwrap();
    let (mut anew, mut over) = (0, 0);
    for number in 0..300 {
        let mut plain = person(number);
        let mut packed = pack(&dictionary, &plain).unwrap();
        for change in 0..8_u64 {
            // As a modify does: something goes, at the end or before, and something comes at the end.
            let cut = plain.len() - 20 - (number * 7 + change * 13) as usize % 60;
            plain.drain(cut..cut + 20);
            plain.extend_from_slice(format!("{:020}", number * change).as_bytes());
            let next = pack_over(&dictionary, &packed, &plain).unwrap();
            assert_eq!(unpack(&dictionary, &next).unwrap(), plain);
            assert_eq!(foreign(&dictionary, &next), plain[head_length(&plain).unwrap()..]);
            over += next.len();
            anew += pack(&dictionary, &plain).unwrap().len();
            packed = next;
        }
    }
    assert!(over * 100 <= anew * 101, "{over} instead of {anew}");
}

#[test]
fn what_is_taken_over_is_what_a_search_finds() {
    let dictionary = train(&people(400)).unwrap();
    for number in 0..200 {
        let plain = person(number);
        let packed = pack(&dictionary, &plain).unwrap();
        let again = pack_over(&dictionary, &packed, &plain).unwrap();
        assert!(again.len() <= packed.len() + 2, "{} and {}", again.len(), packed.len());
        // Another name, and nothing is alike.
        let other = person(number + 1_000);
        assert_eq!(pack_over(&dictionary, &packed, &other), pack(&dictionary, &other));
    }
}

#[test]
fn the_same_records_give_the_same_dictionary() {
    let records = people(400);
    assert_eq!(train(&records).unwrap().bytes(), train(&records).unwrap().bytes());
    assert!(train(&records[..SAMPLE_RECORDS_MIN - 1]).is_none());
}

#[test]
fn a_dictionary_made_in_steps_is_the_same() {
    let records = people(400);
    let mut sample = Sample::default();
    records.iter().for_each(|record| sample.add(record));
    let mut training = Training::new(sample, None).unwrap();
    let mut steps = 0;
    let made = loop {
        steps += 1;
        if let Poll::Ready(made) = training.step(1) {
            break made;
        }
    };
    assert_eq!(made.unwrap().bytes(), train(&records).unwrap().bytes());
    // Each of the records that are counted and tried is a step of its own.
    assert!(steps > 400, "{steps} steps");
}

#[test]
fn a_dictionary_that_is_hardly_better_is_not_taken() {
    let records = people(400);
    let mut sample = Sample::default();
    records.iter().for_each(|record| sample.add(record));
    let now = Arc::new(train(&records).unwrap());
    let mut training = Training::new(sample, Some(now)).unwrap();
    assert!(matches!(training.step(usize::MAX), Poll::Ready(None)));
}

/// Records with all kinds of contents and lengths, in dictionaries of all kinds.
#[test]
fn any_bytes_come_back() {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut count, mut count_over) = (0, 0);
    for round in 0..600 {
        let alphabet = [1, 2, 4, 256][round % 4];
        let mut bytes = |length: u64| -> Vec<u8> { (0..length).map(|_| random(alphabet) as u8).collect() };
        let base = bytes([0, 7, 300, 40_000][round / 4 % 4]);
        let dictionary = Dictionary::new(&base);
        for length in
            [0, 1, 11, 12, 13, 60, 100, 500, 3_000, RECORD_BYTES_MAX as u64 - 14, RECORD_BYTES_MAX as u64]
        {
            let mut plain = vec![CODEC_PLAIN, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, b'a', 0];
            if length > 1_000 && round % 16 != 0 {
                continue;
            }
            plain.extend(bytes(length / 2));
            plain.extend(base.iter().rev().take(length as usize / 3).rev());
            plain.extend(bytes(length - length / 2));
            if let Some(packed) = pack(&dictionary, &plain) {
                count += 1;
                assert_eq!(unpack(&dictionary, &packed).unwrap(), plain);
                assert_eq!(foreign(&dictionary, &packed), plain[13..]);
                let mut changed = plain.clone();
                changed.truncate(13 + (changed.len() - 13) * (round % 7) / 6);
                changed.extend(bytes(round as u64 % 80));
                if let Some(next) = pack_over(&dictionary, &packed, &changed) {
                    count_over += 1;
                    assert_eq!(unpack(&dictionary, &next).unwrap(), changed);
                    assert_eq!(foreign(&dictionary, &next), changed[13..]);
                }
            }
        }
    }
    assert!(count > 0 && count_over > 0, "{count} and {count_over} were packed");
}

#[test]
fn damage_is_an_error() {
    let dictionary = train(&people(400)).unwrap();
    let plain = person(777);
    let packed = pack(&dictionary, &plain).unwrap();
    let head = head_length(&packed).unwrap();
    for cut in 0..packed.len() {
        assert!(unpack(&dictionary, &packed[..cut]).is_err(), "cut at {cut}");
    }
    let mut wrong = 0;
    for at in head..packed.len() {
        for bit in 0..8 {
            let mut damaged = packed.clone();
            damaged[at] ^= 1 << bit;
            // What it becomes is another record or an error, never a panic.
            wrong += usize::from(unpack(&dictionary, &damaged).is_err());
        }
    }
    assert!(wrong > 0);
    assert!(unpack(&Dictionary::new(b"short"), &packed).is_err());
}

/// A thread unpacks behind a copy of the dictionary that it keeps.
#[test]
fn records_of_many_dictionaries_are_read_in_turn_and_at_once() {
    let trained = train(&people(400)).unwrap();
    let cut = |number: usize| trained.bytes().get(number * 300..).unwrap();
    let dictionaries: Vec<Dictionary> = (0..20).map(|number| Dictionary::new(cut(number))).collect();
    let plain = person(777);
    let packed: Vec<Vec<u8>> = dictionaries.iter().map(|own| pack(own, &plain).unwrap()).collect();
    let mut records = Vec::new();
    for round in 0..60 {
        for (at, (dictionary, packed)) in dictionaries.iter().zip(&packed).enumerate() {
            let mut damaged = packed.clone();
            let bit = (round * 131 + at * 17) % (8 * (packed.len() - 40)) + 8 * 40;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let _ = unpack(dictionary, &damaged);
            assert_eq!(unpack(dictionary, packed).unwrap(), plain, "{round} {at}");
            if round % 20 == 0 {
                records.push(dictionary.unpacked(ENTRY, packed).unwrap());
            }
        }
    }
    assert!(records.iter().all(|record| **record == *plain));
}

/// Runs of one byte and of a few are matches that repeat themselves; long ones are copied in steps.
#[test]
fn matches_of_all_lengths_and_distances_come_back() {
    let dictionary = Dictionary::new(&(0..4_000_u32).map(|n| ((n * n) >> 5) as u8).collect::<Vec<_>>());
    for period in [1, 2, 3, 7, 15, 31, 32, 33, 63, 64, 65, 200] {
        for length in (0..400).chain([1_000, 5_000]) {
            let mut plain = vec![CODEC_PLAIN, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, b'a', 0];
            plain.extend_from_slice(&dictionary.bytes()[period..period + 300]);
            let unit: Vec<u8> = (0..period).map(|at| (at * 37 + 11) as u8).collect();
            plain.extend(unit.iter().cycle().take(length));
            plain.extend_from_slice(&dictionary.bytes()[2_000..2_000 + length.min(2_000)]);
            let packed = pack(&dictionary, &plain).unwrap();
            assert_eq!(unpack(&dictionary, &packed).unwrap(), plain, "{period} {length}");
            assert_eq!(foreign(&dictionary, &packed), plain[13..], "{period} {length}");
        }
    }
}

#[test]
fn small_and_incompressible_records_stay_plain() {
    let dictionary = train(&people(400)).unwrap();
    let small = RecordWriter::new(EntryId(1), "cn=a", b"cn=a", RecordFlags::default()).finish();
    assert!(pack(&dictionary, &small).is_none());
    let mut noise = small;
    let mix = |n: u64| (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    noise.extend((1..4_000_u64).map(|n| (mix(mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 56) as u8));
    assert!(pack(&dictionary, &noise).is_none());
    let mut huge = person(1);
    huge.resize(RECORD_BYTES_MAX + 1, 0);
    assert!(pack(&dictionary, &huge).is_none());
}

/// The example of docs/disk-format.md.
#[test]
fn documented_bytes() {
    let dictionary = Dictionary::new(
        b"\x00\x10\x32\x04\x03top\x04\x06person\x04\x14organizationalPerson\x04\x0dinetOrgPerson",
    );
    let mut writer = RecordWriter::new(EntryId(1), "cn=A", b"cn=a", RecordFlags::default());
    let classes = [b"top".as_slice(), b"person", b"organizationalPerson", b"inetOrgPerson"];
    writer.attribute(AttributeNumber(0), classes.into_iter(), |_, _| ());
    writer.attribute(AttributeNumber(1), [b"A".as_slice(), b"Abraham"].into_iter(), |_, _| ());
    let plain = writer.finish();
    let mut packed = Vec::new();
    assert!(dictionary.pack(0, &plain, &mut packed));
    assert_eq!(unpack(&dictionary, &packed).unwrap(), plain);
    let expected = [
        b"\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x04cn=A\x05cn=a\x00\x44".as_slice(),
        b"\x0f\x49\x00\x22\xf0\x00\x01\x08\x0c\x04\x01A\x04\x07Abraham",
    ];
    assert_eq!(packed, expected.concat());
}
