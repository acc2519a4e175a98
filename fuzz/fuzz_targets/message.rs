//! Requests from a peer that sends anything.
#![no_main]

use larix_proto::{Frame, Message, Request, control, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let framed = frame(data, 1 << 20);
    let pdu = match framed {
        Ok(Frame::Complete { len }) => &data[..len],
        Ok(Frame::Incomplete { needed }) => {
            assert!(needed > data.len());
            data
        }
        Err(_) => data,
    };
    match Message::decode(pdu) {
        Ok(message) => {
            // Debug walks every list and filter.
            let text = format!("{message:?}");
            assert!(!text.is_empty());
            walk(&message);
            for control in message.controls {
                let _ = control::PagedResults::decode(control.value);
                let _ = control::SortRequest::decode(control.value);
                let _ = control::VlvRequest::decode(control.value);
                let _ = control::DerefRequest::decode(control.value);
                let _ = control::Assertion::decode(control.value);
                let _ = control::MatchedValues::decode(control.value);
            }
        }
        Err(error) => {
            let _ = (error.to_string(), error.is_answerable());
        }
    }
});

use larix_proto::ControlValue;

fn walk(message: &Message<'_>) {
    match message.request {
        Request::Modify(modify) => {
            // The views hand out exactly what was checked.
            let bytes: usize = modify
                .changes
                .iter()
                .map(|change| change.attribute.values.as_ber().len() + change.attribute.description.len())
                .sum();
            assert!(bytes <= modify.changes.as_ber().len());
        }
        Request::Add(add) => {
            for attribute in add.attributes {
                assert_eq!(attribute.values.is_empty(), attribute.values.len() == 0);
            }
        }
        Request::Search(search) => {
            let again = larix_proto::Filter::decode(search.filter.as_ber(), 1000);
            assert_eq!(again, Ok(search.filter));
        }
        _ => {}
    }
}
