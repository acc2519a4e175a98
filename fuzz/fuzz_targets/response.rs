//! Responses from a server that sends anything.
#![no_main]

use larix_proto::encode::{EntryEncoder, result};
use larix_proto::{Response, ResponseOp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = Response::decode_message(data) else { return };
    let _ = format!("{message:?}");
    let controls: Vec<_> = message.controls.iter().map(|control| control.to_owned()).collect();
    let mut out = Vec::new();
    match message.response {
        Response::Entry(entry) => {
            let mut encoder = EntryEncoder::begin(&mut out, message.id, entry.dn);
            for attribute in entry.attributes {
                encoder.attribute(attribute.description, attribute.values.as_ber());
            }
            encoder.finish(&controls);
        }
        response => match response.result() {
            Some((op, view)) if !matches!(op, ResponseOp::Bind | ResponseOp::Extended) => {
                result(&mut out, message.id, op, &view.to_owned(), &controls);
            }
            _ => return,
        },
    }
    let again = Response::decode_message(&out).expect("what was encoded");
    assert_eq!(format!("{:?}", again.response), format!("{:?}", message.response));
    assert_eq!(format!("{:?}", again.controls), format!("{:?}", message.controls));
});
