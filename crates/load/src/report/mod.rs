//! Reports: one document of figures, shown as a table, as JSON and as one HTML file.
//!
//! The caller measures and fills a [`Document`]; nothing here measures or asks a server. The same document is shown by
//! [`Document::to_text`] on a terminal, [`Document::to_json`] to programs and [`Document::to_html`] in a browser or on
//! paper.

mod document;
mod html;
mod json;
mod machine;
mod number;
mod scale;
#[cfg(test)]
mod tests;
mod text;

pub use document::{
    Axis, Better, Chart, ChartKind, Document, FORMAT, Machine, Point, Ratio, Row, Scale, Series, Server,
};
pub use number::{bytes, count};
pub use text::TextOptions;
