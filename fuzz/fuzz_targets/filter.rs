//! Filters as text and as BER.
#![no_main]

use larix_proto::{Filter, FilterBuf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(filter) = Filter::decode(data, 1000) {
        // Attribute descriptions in BER may be anything, so the text need not be a filter.
        if let Ok(again) = FilterBuf::parse(&filter.to_string()) {
            let _ = again.to_string();
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    match FilterBuf::parse(text) {
        Ok(filter) => {
            assert_eq!(Filter::decode(filter.as_ber(), 1000), Ok(filter.as_filter()));
            assert_eq!(FilterBuf::parse(&filter.to_string()), Ok(filter));
        }
        Err(error) => assert!(error.position <= text.len(), "{error}"),
    }
});
