//! The JSON the clients write: one object a line.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larix_proto::{Attributes, LdapResult};
use serde_json::{Map, Value, json};

use larix_client::ClientError;

/// Text as a string, anything else as `{"base64": ...}`.
pub(super) fn value(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

pub(super) fn entry(dn: &str, attributes: Attributes<'_>) -> Value {
    let mut members = Map::new();
    for attribute in attributes.iter() {
        let values = attribute.values.iter().map(value).collect();
        members.insert(attribute.description.to_owned(), Value::Array(values));
    }
    json!({ "dn": dn, "attributes": members })
}

pub(super) fn result(result: &LdapResult) -> Value {
    let mut members = Map::new();
    members.insert("code".to_owned(), result.code.0.into());
    members.insert("text".to_owned(), result.code.text().into());
    if !result.matched_dn.is_empty() {
        members.insert("matchedDn".to_owned(), result.matched_dn.as_str().into());
    }
    if !result.diagnostic.is_empty() {
        members.insert("diagnostic".to_owned(), result.diagnostic.as_str().into());
    }
    if !result.referrals.is_empty() {
        members.insert("referrals".to_owned(), result.referrals.clone().into());
    }
    Value::Object(members)
}

pub(super) fn line(out: &mut dyn Write, value: &Value) -> Result<(), ClientError> {
    writeln!(out, "{value}").map_err(ClientError::Output)
}
