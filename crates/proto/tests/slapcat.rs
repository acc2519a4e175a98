//! Dumps that OpenLDAP's `slapcat` made of values that are hard to write: read and written again to the byte.

use larix_proto::Dn;
use larix_proto::ldif::{Body, Reader, Writer};

#[test]
fn dumps_are_written_again_to_the_byte() {
    let check = |dump: &[u8], fold: Option<usize>| {
        let writer = Writer::new(fold);
        let mut out = Vec::new();
        let mut count = 0;
        for record in Reader::new(dump) {
            let record = record.expect("a record");
            assert!(matches!(record.body, Body::Content(_)));
            // The names in a dump are in the form that we write, too.
            assert_eq!(Dn::parse(&record.dn).expect("a DN").to_string(), record.dn);
            writer.record(&mut out, &record);
            count += 1;
        }
        assert!(count > 30);
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(dump));
    };
    check(include_bytes!("data/slapcat.ldif"), Some(Writer::COLUMNS));
    check(include_bytes!("data/slapcat-no-wrap.ldif"), None);
    check(include_bytes!("data/slapcat-40-columns.ldif"), Some(40));
}
