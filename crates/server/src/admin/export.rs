//! Entries as a file: LDIF (RFC 2849), or CSV (RFC 4180) for spreadsheets.

use base64::Engine as _;
use larix_proto::ldif::{LdifAttribute, Writer};
use larix_schema::Schema;

use super::client::ReceivedEntry;
use super::schema::{self, Look};

/// Between several values in one cell.
const BETWEEN: char = '|';

/// Writes an entry and the empty line behind it.
pub(super) fn ldif(writer: &Writer, out: &mut Vec<u8>, entry: &ReceivedEntry) {
    writer.value(out, "dn", entry.dn.as_bytes());
    let attributes: Vec<_> = entry
        .attributes
        .iter()
        .map(|a| LdifAttribute { description: a.name.clone(), values: a.values.clone() })
        .collect();
    writer.attributes(out, &attributes);
    out.push(b'\n');
}

/// A table with the name in the first column. Without `columns` each attribute that any of the entries has is one. Passwords are
/// left out; bytes that are no text stand in base64.
pub(super) fn csv(schema: &Schema, entries: &[ReceivedEntry], columns: &[&str]) -> Vec<u8> {
    let mut shown: Vec<&str> = columns.to_vec();
    if shown.is_empty() {
        for attribute in entries.iter().flat_map(|entry| &entry.attributes) {
            let name = attribute.name.as_str();
            if !shown.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                shown.push(name);
            }
        }
    }
    shown.retain(|name| schema::look(schema, name) != Look::Password);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let row = |cells: Vec<String>, writer: &mut csv::Writer<Vec<u8>>| {
        // A vector takes every byte.
        drop(writer.write_record(cells));
    };
    row(
        std::iter::once("dn".to_owned()).chain(shown.iter().map(|name| (*name).to_owned())).collect(),
        &mut writer,
    );
    for entry in entries {
        let cells = shown.iter().map(|name| cell(entry.values(name)));
        row(std::iter::once(guarded(entry.dn.clone())).chain(cells).collect(), &mut writer);
    }
    writer.into_inner().unwrap_or_default()
}

fn cell(values: &[Vec<u8>]) -> String {
    let texts: Vec<String> = values
        .iter()
        .map(|value| match std::str::from_utf8(value) {
            Ok(text) => text.to_owned(),
            Err(_) => base64::engine::general_purpose::STANDARD.encode(value),
        })
        .collect();
    guarded(texts.join(&BETWEEN.to_string()))
}

/// A cell that a spreadsheet takes for text. One that begins like a formula gets an apostrophe, which spreadsheets do not show:
/// somebody may have put the formula into an own attribute for the one who opens the file. A telephone number is no formula.
fn guarded(cell: String) -> String {
    if is_formula(&cell) { format!("'{cell}") } else { cell }
}

fn is_formula(cell: &str) -> bool {
    let number = |rest: &str| {
        rest.chars()
            .all(|c| c.is_ascii_digit() || matches!(c, ' ' | '(' | ')' | '-' | '.' | '/' | BETWEEN | '+'))
    };
    match cell.chars().next() {
        Some('=' | '@' | '\t' | '\r') => true,
        Some('+' | '-') => !number(cell),
        _ => false,
    }
}

/// The values of a cell, as [`csv`] writes them.
pub(super) fn cell_values(cell: &str) -> impl Iterator<Item = String> {
    let cell = match cell.strip_prefix('\'') {
        Some(rest) if is_formula(rest) => rest,
        _ => cell,
    };
    cell.split(BETWEEN).map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client::ReceivedAttribute;

    fn entry(dn: &str, attributes: &[(&str, &[&[u8]])]) -> ReceivedEntry {
        let attributes = attributes
            .iter()
            .map(|(name, values)| ReceivedAttribute {
                name: (*name).to_owned(),
                values: values.iter().map(|value| value.to_vec()).collect(),
            })
            .collect();
        ReceivedEntry { dn: dn.to_owned(), attributes }
    }

    #[test]
    fn a_table_is_text_and_nothing_else() {
        let schema = Schema::system();
        let entries = [
            entry(
                "cn=a,dc=x",
                &[("cn", &[b"a"]), ("mail", &[b"a@x", b"b,\"c\"@x"]), ("userPassword", &[b"secret"])],
            ),
            entry(
                "cn=b,dc=x",
                &[("cn", &[b"=1+1"]), ("photo", &[b"\xff\xfe"]), ("mail", &[b"+49 (30) 1-2"])],
            ),
        ];
        let all = String::from_utf8(csv(schema, &entries, &[])).expect("text");
        assert_eq!(
            all,
            "dn,cn,mail,photo\n\"cn=a,dc=x\",a,\"a@x|b,\"\"c\"\"@x\",\n\"cn=b,dc=x\",'=1+1,+49 (30) 1-2,//4=\n"
        );
        let some = String::from_utf8(csv(schema, &entries, &["MAIL", "userPassword"])).expect("text");
        assert_eq!(some, "dn,MAIL\n\"cn=a,dc=x\",\"a@x|b,\"\"c\"\"@x\"\n\"cn=b,dc=x\",+49 (30) 1-2\n");
    }

    #[test]
    fn cells_come_back_as_their_values() {
        for (cell, values) in [
            ("a", &["a"][..]),
            ("a|b", &["a", "b"]),
            ("'=x", &["=x"]),
            ("'n Sync", &["'n Sync"]),
            ("'+1-HYPERLINK()", &["+1-HYPERLINK()"]),
            ("", &[]),
            (" | ", &[]),
        ] {
            assert_eq!(cell_values(cell).collect::<Vec<_>>(), values, "{cell:?}");
        }
        assert_eq!(guarded("-1+cmd".to_owned()), "'-1+cmd");
    }
}
