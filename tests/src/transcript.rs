//! What servers that replicate have told each other, from what a relay has kept, a line a message.

use std::collections::BTreeMap;

use larix_proto::control::SyncState;
use larix_proto::extended::SyncInfo;
use larix_proto::{Attributes, ControlValue, Frame, Response, ResponseMessage, frame};
use uuid::Uuid;

use crate::relay::RelayedChunk;

/// No message of a test is longer.
const MESSAGE_MAX: usize = 64 << 20;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// As in [`RelayedChunk::at`]: when its last byte passed.
    pub at: String,
    pub text: String,
}

/// Decodes what has passed: the requests of consumers, as far as they have a cookie, and the answers.
pub fn transcript(record: &[RelayedChunk]) -> Vec<Line> {
    let mut waiting: BTreeMap<(usize, bool), Vec<u8>> = BTreeMap::new();
    let mut lines = Vec::new();
    for chunk in record {
        let bytes = waiting.entry((chunk.connection, chunk.to_client)).or_default();
        bytes.extend_from_slice(&chunk.bytes);
        while let Ok(Frame::Complete { len }) = frame(bytes, MESSAGE_MAX) {
            let message: Vec<u8> = bytes.drain(..len).collect();
            let text = if chunk.to_client { response_text(&message) } else { request_text(&message) };
            let text = text.map(|text| format!("connection {}: {text}", chunk.connection));
            lines.extend(text.map(|text| Line { at: chunk.at.clone(), text }));
        }
    }
    lines
}

/// A request: what is printable of its cookie.
fn request_text(message: &[u8]) -> Option<String> {
    let begin = message.windows(4).position(|bytes| bytes == b"rid=")?;
    let cookie = message[begin..].iter().take_while(|byte| byte.is_ascii_graphic());
    Some(format!("asks with {}", cookie.map(|byte| char::from(*byte)).collect::<String>()))
}

fn response_text(message: &[u8]) -> Option<String> {
    let Ok(message) = Response::decode_message(message) else { return Some("no response".to_owned()) };
    match message.response {
        Response::Entry(entry) => {
            let csn = entry.attributes.iter().find(|a| a.description.eq_ignore_ascii_case("entryCSN"));
            let csn = csn.and_then(|a| a.values.iter().next()).map(String::from_utf8_lossy);
            let state = state(&message).unwrap_or_default();
            let values = values(&entry.attributes);
            Some(format!("{} {} {state}{values}", entry.dn, csn.unwrap_or_default()))
        }
        Response::Intermediate { value, .. } => Some(match SyncInfo::decode(value) {
            Ok(SyncInfo::NewCookie(cookie)) => format!("new cookie{}", shown(Some(cookie))),
            Ok(SyncInfo::RefreshDelete { cookie, done }) => {
                format!("end of deletes, done {done}{}", shown(cookie))
            }
            Ok(SyncInfo::RefreshPresent { cookie, done }) => {
                format!("end of present, done {done}{}", shown(cookie))
            }
            Ok(SyncInfo::IdSet { cookie, deletes, uuids }) => {
                let uuids: Vec<String> =
                    uuids.iter().map(|uuid| Uuid::from_bytes(*uuid).to_string()).collect();
                format!("{} {}{}", if deletes { "gone" } else { "present" }, uuids.join(" "), shown(cookie))
            }
            Err(error) => format!("sync info: {error}"),
        }),
        Response::SearchDone(result) => Some(format!("search done {}", result.code.0)),
        _ => None,
    }
}

/// What clients change, and what a record of an access log says of a change.
const VALUES: [&str; 7] =
    ["description", "telephoneNumber", "reqType", "reqDN", "reqEntryUUID", "reqMod", "reqNewRDN"];

fn values(attributes: &Attributes<'_>) -> String {
    let of = attributes
        .iter()
        .filter(|attribute| VALUES.iter().any(|name| attribute.description.eq_ignore_ascii_case(name)));
    let lines = of.flat_map(|attribute| {
        let name = attribute.description;
        attribute.values.iter().map(move |value| format!(", {name}: {}", String::from_utf8_lossy(value)))
    });
    lines.collect()
}

fn state(message: &ResponseMessage<'_>) -> Option<String> {
    let control = message.controls.iter().find(|control| control.oid == SyncState::OID)?;
    let state = SyncState::decode(control.value).ok()?;
    let uuid = Uuid::from_bytes(state.entry_uuid);
    Some(format!("{:?} {uuid}{}", state.state, shown(state.cookie)))
}

fn shown(cookie: Option<&[u8]>) -> String {
    cookie.map(|cookie| format!(", cookie {}", String::from_utf8_lossy(cookie))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use larix_proto::MessageId;
    use larix_proto::control::EntryState;
    use larix_proto::encode::{self, EntryEncoder};

    use super::*;

    #[test]
    fn messages_are_told_whole() {
        let uuid = Uuid::from_u128(7);
        let mut bytes = Vec::new();
        let mut entry = EntryEncoder::begin(&mut bytes, MessageId(2), "cn=a");
        entry.begin_attribute("entryCSN");
        entry.value(b"1#2");
        entry.begin_attribute("description");
        entry.value(b"x");
        let state =
            SyncState { state: EntryState::Add, entry_uuid: *uuid.as_bytes(), cookie: Some(b"rid=1") };
        entry.finish(&[state.to_control(false)]);
        let info = SyncInfo::IdSet { cookie: None, deletes: true, uuids: vec![*uuid.as_bytes()] };
        encode::intermediate(&mut bytes, MessageId(2), Some(SyncInfo::OID), Some(&info.encode()), &[]);
        let (first, second) = bytes.split_at(9);
        let chunk = |at: &str, bytes: &[u8]| RelayedChunk {
            at: at.to_owned(),
            connection: 3,
            to_client: true,
            bytes: bytes.to_vec(),
        };
        let lines = transcript(&[chunk("1", first), chunk("2", second)]);
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                format!("connection 3: cn=a 1#2 Add {uuid}, cookie rid=1, description: x"),
                format!("connection 3: gone {uuid}")
            ]
        );
        assert!(lines.iter().all(|line| line.at == "2"));
    }
}
