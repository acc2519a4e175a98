//! Lines of `loglevel stats` about operations: an event loop keeps what they say as it came, and the log's thread makes the text.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use larix_proto::{Dn, Filter};
use larix_schema::Schema;

use super::printable;

/// As deep as a filter may be that was decoded under any limit.
const FILTER_DEPTH_MAX: usize = usize::MAX;
const NANOS_A_MICROSECOND: u64 = 1_000;

/// One line about an operation, without its texts.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OperationLine {
    pub(crate) connection: u64,
    pub(crate) serial: u64,
    pub(crate) what: What,
}

/// What the line says. The texts that belong to it stand one behind the other, as the client sent them.
#[derive(Copy, Clone, Debug)]
pub(crate) enum What {
    /// The base, of so many bytes, and the filter's BER.
    Search { scope: u8, deref: u8, base: usize },
    /// Names of attributes, a blank between them.
    Attributes { word: &'static str },
    /// The DN of the entry that is changed.
    Change { word: &'static str },
    /// The entry's DN, of so many bytes, and the name of the attribute.
    Compare { entry: usize },
    /// The diagnostic message.
    Result { response: Response, code: u32, waited: u64, taken: u64 },
}

/// Which response it is, by what its line shows of it.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Response {
    Search {
        entries: u64,
    },
    Extended,
    /// Any other, by its tag.
    Tagged(u32),
}

/// What names are shown by: the schema of the time when they came.
pub(super) type Names<'a> = Option<&'a Arc<Schema>>;

impl OperationLine {
    /// Appends the line.
    pub(super) fn render(&self, out: &mut String, texts: &[u8], names: Names<'_>) -> fmt::Result {
        write!(out, "conn={} op={} ", self.connection, self.serial)?;
        match self.what {
            What::Search { scope, deref, base } => {
                let (base, filter) = texts.split_at_checked(base).unwrap_or_default();
                write!(out, "SRCH base=\"{}\" scope={scope} deref={deref}", shown_dn(names, text(base)))?;
                let filter = Filter::decode(filter, FILTER_DEPTH_MAX);
                let filter = filter.map(|filter| filter.to_string()).unwrap_or_default();
                write!(out, " filter=\"{}\"", printable(&filter))
            }
            What::Attributes { word } => write!(out, "{word} attr={}", printable(text(texts))),
            What::Change { word } => write!(out, "{word} dn=\"{}\"", shown_dn(names, text(texts))),
            What::Compare { entry } => {
                let (entry, attribute) = texts.split_at_checked(entry).unwrap_or_default();
                let (entry, attribute) = (shown_dn(names, text(entry)), printable(text(attribute)));
                write!(out, "CMP dn=\"{entry}\" attr=\"{attribute}\"")
            }
            What::Result { response, code, waited, taken } => {
                match response {
                    Response::Search { .. } => out.push_str("SEARCH RESULT tag=101"),
                    Response::Extended => out.push_str("RESULT oid="),
                    Response::Tagged(tag) => write!(out, "RESULT tag={tag}")?,
                }
                write!(out, " err={code} qtime={} etime={}", Seconds(waited), Seconds(taken))?;
                if let Response::Search { entries } = response {
                    write!(out, " nentries={entries}")?;
                }
                write!(out, " text={}", printable(text(texts)))
            }
        }
    }
}

/// They came as text.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// A DN as the log shows it: in its pretty form if it is one, as it came otherwise.
fn shown_dn(names: Names<'_>, dn: &str) -> String {
    let pretty = names.zip(Dn::parse(dn).ok()).and_then(|(schema, parsed)| schema.pretty_dn(&parsed).ok());
    // A value may have line breaks: no DN escapes them.
    printable(pretty.as_deref().unwrap_or(dn)).into_owned()
}

/// Nanoseconds, shown as seconds with six digits.
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0 / NANOS_A_MICROSECOND;
        write!(f, "{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use larix_proto::FilterBuf;

    use super::*;

    #[test]
    fn lines_are_openldaps() {
        let schema = Arc::new(Schema::system().clone());
        let search = FilterBuf::parse("(&(uid=a\nb)(cn=x*y))").unwrap();
        let with = |first: &str, second: &[u8]| [first.as_bytes(), second].concat();
        let (waited, taken) = (17_000, 1_463_079_000);
        let result = |response| What::Result { response, code: 4, waited, taken };
        let times = "err=4 qtime=0.000017 etime=1.463079";
        for (what, texts, expected) in [
            (
                What::Search { scope: 2, deref: 3, base: 10 },
                with("CN=A, cn=b", b"damaged"),
                "SRCH base=\"cn=A,cn=b\" scope=2 deref=3 filter=\"\"".to_owned(),
            ),
            (
                What::Search { scope: 0, deref: 0, base: 5 },
                with("a=b\nc", search.as_filter().as_ber()),
                "SRCH base=\"a=b#0Ac\" scope=0 deref=0 filter=\"(&(uid=a\\0Ab)(cn=x*y))\"".to_owned(),
            ),
            (What::Attributes { word: "MOD" }, with("cn sn", b"\n"), "MOD attr=cn sn#0A".to_owned()),
            (What::Change { word: "DEL" }, with("cn=a , cn=b", b""), "DEL dn=\"cn=a,cn=b\"".to_owned()),
            (What::Change { word: "DEL" }, with("cn=a\\0Ab", b""), "DEL dn=\"cn=a#0Ab\"".to_owned()),
            (
                What::Compare { entry: 4 },
                with("cn=a", b"member"),
                "CMP dn=\"cn=a\" attr=\"member\"".to_owned(),
            ),
            (
                result(Response::Search { entries: 5 }),
                with("enough", b""),
                format!("SEARCH RESULT tag=101 {times} nentries=5 text=enough"),
            ),
            (result(Response::Extended), with("", b""), format!("RESULT oid= {times} text=")),
            (result(Response::Tagged(105)), with("a\n", b""), format!("RESULT tag=105 {times} text=a#0A")),
        ] {
            let mut out = String::new();
            let line = OperationLine { connection: 7, serial: 2, what };
            line.render(&mut out, &texts, Some(&schema)).unwrap();
            assert_eq!(out, format!("conn=7 op=2 {expected}"));
        }
    }
}
