//! The JSON form: the document as it is, each row with its ratios beside its figures.

use anyhow::{Context, bail};
use serde_json::Value;

use super::{Document, FORMAT};

impl Document {
    /// The document as JSON; see `docs/guide/report.md` for the fields. What is derived (`ratios`, `reached`) is
    /// written for readers and not read back.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        let rows = value.get_mut("rows").and_then(Value::as_array_mut);
        for (row, shown) in self.rows.iter().zip(rows.into_iter().flatten()) {
            let Some(shown) = shown.as_object_mut() else { continue };
            let others = 1..self.servers.len();
            let ratios: Vec<Value> = others
                .clone()
                .map(|other| serde_json::to_value(row.ratio(other)).unwrap_or_default())
                .collect();
            shown.insert("ratios".into(), Value::Array(ratios));
            shown.insert("reached".into(), others.map(|other| Value::from(row.reached(other))).collect());
        }
        value
    }

    /// Reads what [`Document::to_json`] wrote, whichever version of Larix did.
    ///
    /// # Errors
    /// No JSON, no report, or a format that is newer than this program; with line and column where there are some.
    pub fn from_json(text: &str) -> anyhow::Result<Self> {
        // A list would be taken for the fields in their order.
        if text.trim_start().starts_with('[') {
            bail!("this is no report: it is a list");
        }
        let document: Self = serde_json::from_str(text).context("this is no report")?;
        match document.format {
            0 => bail!("this is no report: it has no \"format\""),
            1..=FORMAT => Ok(document),
            newer => bail!("the report has format {newer}; this program knows formats up to {FORMAT}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Better, Row, Server};

    #[test]
    fn a_document_comes_back_as_it_was() {
        let mut row = Row::new("search <&>", "/s", Better::Higher);
        for (server, figure) in [(0, Some(4.0)), (0, None), (1, Some(2.0)), (1, Some(f64::NAN))] {
            row.push(server, figure);
        }
        let server = |name: &str| Server { name: name.into(), ..Server::default() };
        let servers = vec![server("larix"), server("slapd")];
        let document = Document { format: FORMAT, servers, rows: vec![row], ..Document::default() };
        let json = document.to_json();
        assert_eq!(json["rows"][0]["ratios"][0]["median"], 2.0);
        assert_eq!(Document::from_json(&json.to_string()).unwrap(), document);
    }

    #[test]
    fn what_is_no_report_is_named() {
        for (text, expected) in [
            ("", "EOF"),
            ("{}", "no \"format\""),
            ("[1]", "no report"),
            ("{\"format\": 1, \"rows\": 7}", "line 1 column 23"),
            ("{\"format\": 2}", "format 2; this program knows formats up to 1"),
        ] {
            let error = format!("{:#}", Document::from_json(text).unwrap_err());
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
