//! What differs between the values of an entry on two servers, and how that is reported.

use larix_server::secrets::is_secret;
use serde_json::{Map, Value, json};

use super::entries::Shown;

/// Bytes of a value that is shown as it is.
const SHOWN_BYTES: usize = 64;
/// Values of one attribute that are shown of each server.
const SHOWN_VALUES: usize = 5;

/// An attribute that does not have the same values on both servers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Differing<'s> {
    /// Its description in lower case.
    pub(super) name: &'s str,
    /// Values that only the one has, and only the other one, each in their order.
    only: [Vec<&'s [u8]>; 2],
}

/// Attributes whose values are not the same, by name; the order of values does not count.
pub(super) fn differing<'s>(here: &'s Shown, there: &'s Shown) -> Vec<Differing<'s>> {
    let mut names: Vec<&String> = here.attributes.keys().chain(there.attributes.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differing = names.into_iter().map(|name| {
        let only = [(here, there), (there, here)].map(|(one, other)| {
            let known = other.attributes.get(name);
            let all = one.attributes.get(name).into_iter().flatten();
            all.filter(|value| !known.is_some_and(|known| known.contains(*value)))
                .map(Vec::as_slice)
                .collect()
        });
        Differing { name, only }
    });
    differing.filter(|differing| differing.only.iter().any(|only: &Vec<_>| !only.is_empty())).collect()
}

impl Differing<'_> {
    /// A line for each server that has values which the other one has not.
    pub(super) fn text(&self, servers: [&str; 2]) -> String {
        let mut text = String::new();
        for (server, only) in servers.iter().zip(&self.only).filter(|(_, only)| !only.is_empty()) {
            let values = if only.len() == 1 { "value" } else { "values" };
            text.push_str(&format!("    {}: {} {values} only at {server}", self.name, only.len()));
            let shown = self.shown(only);
            let quoted: Vec<String> = shown.iter().map(|value| format!("{value:?}")).collect();
            if !quoted.is_empty() {
                let more = if shown.len() < only.len() { ", ..." } else { "" };
                text.push_str(&format!(": {}{more}", quoted.join(", ")));
            }
            text.push('\n');
        }
        text
    }

    fn json(&self) -> Value {
        let sides = self.only.iter().map(|only| json!({ "only": only.len(), "shown": self.shown(only) }));
        sides.collect()
    }

    /// Those of the values that may be shown and are short and printable.
    fn shown<'v>(&self, values: &[&'v [u8]]) -> Vec<&'v str> {
        // Those of a configuration may have credentials within.
        if is_secret(self.name) || self.name.starts_with("olc") {
            return Vec::new();
        }
        let texts = values.iter().filter(|value| value.len() <= SHOWN_BYTES);
        let texts = texts.filter_map(|value| std::str::from_utf8(value).ok());
        texts.filter(|text| text.chars().all(is_printable)).take(SHOWN_VALUES).collect()
    }
}

/// By attribute and server: how many values only this one has, and those of them that are shown.
pub(super) fn json(differing: &[Differing<'_>]) -> Value {
    let members = differing.iter().map(|differing| (differing.name.to_owned(), differing.json()));
    Value::Object(members.collect::<Map<_, _>>())
}

/// Whether a character stands for itself on a terminal: neither control nor format characters do.
fn is_printable(character: char) -> bool {
    matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1
}
