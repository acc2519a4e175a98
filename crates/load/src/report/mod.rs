//! Reports: one document of figures, shown as a table, as JSON and as one HTML file.
//!
//! Whoever measures fills a [`Document`]; nothing here measures or asks a server.

mod document;
mod json;
mod machine;

pub use document::{
    Axis, Better, Chart, ChartKind, Document, FORMAT, Machine, Point, Ratio, Row, Scale, Series, Server,
};
