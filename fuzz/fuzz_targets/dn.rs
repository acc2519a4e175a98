//! Distinguished names.
#![no_main]

use larix_proto::Dn;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let written;
    match Dn::parse(text) {
        Ok(dn) => {
            written = dn.to_string();
            assert!(Dn::parse(&written).is_ok_and(|again| again == dn), "{text:?} {written:?}");
        }
        Err(error) => assert!(error.position <= text.len(), "{error}"),
    }
});
