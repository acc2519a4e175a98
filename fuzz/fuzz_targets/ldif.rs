//! LDIF: entries and changes.
#![no_main]

use larix_proto::ldif::{Reader, Record, Writer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, text)) = data.split_first() else { return };
    let fold = match choice % 3 {
        0 => None,
        1 => Some(usize::from(choice)),
        _ => Some(Writer::COLUMNS),
    };
    let mut records: Vec<Record> = Vec::new();
    for record in Reader::new(text).assume_modify(choice & 0x80 != 0) {
        match record {
            Ok(record) => records.push(Record { line: 0, ..record }),
            Err(error) => {
                assert!(error.line as usize <= text.len() + 1);
                drop(error.to_string());
            }
        }
    }
    let mut out = Vec::new();
    let writer = Writer::new(fold);
    records.iter().for_each(|record| writer.record(&mut out, record));
    let again: Vec<_> = Reader::new(&out[..])
        .map(|record| Record { line: 0, ..record.expect("what was written") })
        .collect();
    assert_eq!(again, records);
});
