//! Values as they are shown and as they are entered, by their syntax.

use base64::Engine as _;
use larix_schema::Schema;
use maud::{Markup, html};

use super::overview::bytes;
use crate::admin::changes::{BYTES, TEXT};
use crate::admin::form::url;
use crate::admin::schema::{self, Look};

/// Characters of a value that a page shows.
const SHOWN_MAX: usize = 4_000;

/// The entry's page.
pub(super) fn entry_url(dn: &str) -> String {
    url("/browse", &[("dn", dn)])
}

/// One value; `number` is its place among the attribute's.
pub(super) fn show(schema: &Schema, dn: &str, attribute: &str, number: usize, value: &[u8]) -> Markup {
    let raw = || url("/entry/value", &[("dn", dn), ("attribute", attribute), ("n", &number.to_string())]);
    let download = |what: &str| {
        html! { (what) ", " (bytes(value.len() as u64)) " " a href=(raw()) download { "Download" } }
    };
    match (schema::look(schema, attribute), std::str::from_utf8(value)) {
        (Look::Password, _) => html! { span.soft { "•••••••• " (scheme(value)) } },
        (Look::Jpeg, _) => html! {
            img.photo src=(raw()) alt={ "Picture of " (dn) };
            (download("JPEG"))
        },
        (Look::Certificate, _) => download("Certificate"),
        (Look::Dn, Ok(text)) => html! { a href=(entry_url(text)) { (text) } },
        (Look::Time, Ok(text)) => {
            html! { (text) @if let Some(time) = readable_time(text) { " " span.soft { "(" (time) ")" } } }
        }
        (Look::Bytes, _) | (_, Err(_)) => download("Bytes"),
        (_, Ok(text)) if text.chars().nth(SHOWN_MAX).is_some() => html! {
            (text.chars().take(SHOWN_MAX).collect::<String>()) "… " (download("in all"))
        },
        (_, Ok(text)) if text.contains('\n') => html! { pre { (text) } },
        (_, Ok(text)) => html! { (text) },
    }
}

/// `{ARGON2}`, of a stored password; nothing of the rest is shown.
fn scheme(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        Some((name, _)) if name.len() < 30 => format!("{{{name}}}"),
        _ => "(not hashed)".to_owned(),
    }
}

/// `20260102030405Z` as `2026-01-02 03:04:05 UTC`.
pub(super) fn readable_time(text: &str) -> Option<String> {
    let digits = text.get(..14).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let part = |range: std::ops::Range<usize>| digits.get(range).unwrap_or("");
    text.ends_with('Z').then(|| {
        format!(
            "{}-{}-{} {}:{}:{} UTC",
            part(0..4),
            part(4..6),
            part(6..8),
            part(8..10),
            part(10..12),
            part(12..14)
        )
    })
}

/// What an attribute's fields are to be like.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) schema: &'a Schema,
    pub(super) attribute: &'a str,
    pub(super) must: bool,
    /// The server's answer names it.
    pub(super) at_fault: bool,
}

/// The fields of one attribute: its values, and an empty one where there may be more.
pub(super) fn fields(field: &Field<'_>, values: &[Vec<u8>]) -> Markup {
    let Field { schema, attribute, must, at_fault } = *field;
    let id = format!("field-{attribute}");
    let single = schema::is_single(schema, attribute);
    let empty = Vec::new();
    let spare = (values.is_empty() || !single).then_some(&empty);
    html! {
        div.attribute {
            label for=(id) { (attribute) @if must { span.must title="required" aria-hidden="true" { " *" } } }
            @if let Some(text) = schema::description(schema, attribute) { p.help id={ (id) "-help" } { (text) } }
            @for (n, value) in values.iter().chain(spare).enumerate() {
                div.value-row {
                    (input(field, (n == 0).then_some(id.as_str()), value, must && n == 0, at_fault))
                }
            }
            @if !single { button.quiet type="button" data-more hidden { "Add a value" } }
        }
    }
}

fn input(field: &Field<'_>, id: Option<&str>, value: &[u8], required: bool, at_fault: bool) -> Markup {
    let attribute = field.attribute;
    let name = format!("{TEXT}{attribute}");
    let invalid = at_fault.then_some("true");
    let look = schema::look(field.schema, attribute);
    let text = std::str::from_utf8(value);
    let label = id.is_none().then_some(attribute);
    match (look, text) {
        (Look::Jpeg | Look::Certificate | Look::Bytes, _) | (_, Err(_)) => html! {
            textarea id=[id] name={ (BYTES) (attribute) } rows="2" spellcheck="false" aria-label=[label]
                aria-invalid=[invalid] placeholder="base64" {
                (base64::engine::general_purpose::STANDARD.encode(value))
            }
            input type="file" data-file hidden aria-label={ "A file for " (attribute) };
        },
        (Look::Boolean, Ok(text)) => html! {
            select.narrow id=[id] name=(name) aria-label=[label] {
                @for choice in ["", "TRUE", "FALSE"] {
                    option value=(choice) selected[choice == text] { (choice) }
                }
            }
        },
        (Look::Number, Ok(text)) => html! {
            input.narrow id=[id] name=(name) value=(text) inputmode="numeric" required[required] aria-label=[label]
                aria-invalid=[invalid];
        },
        // Browsers drop the first line break of a textarea's content.
        (Look::Lines, Ok(text)) => html! {
            textarea id=[id] name=(name) rows="2" aria-label=[label] aria-invalid=[invalid] { "\n" (text) }
        },
        // A field of one line would lose its line breaks.
        (_, Ok(text)) if text.contains(['\n', '\r']) || text.len() > 100 => html! {
            textarea id=[id] name=(name) rows="3" aria-label=[label] aria-invalid=[invalid] spellcheck="false" {
                "\n" (text)
            }
        },
        (_, Ok(text)) => html! {
            input type="text" id=[id] name=(name) value=(text) required[required] aria-label=[label]
                aria-invalid=[invalid] autocomplete="off";
        },
    }
}
