//! The short way to the normal form, for DNs as nearly all are: ASCII, no escapes, one value an RDN, strings whose
//! only change is letter case.

use smallvec::SmallVec;

use crate::model::AttributeType;
use crate::rule::Normal;
use crate::schema::Schema;
use crate::syntax::SyntaxKind;

/// Appends the normal form of `text` to `out` and the place of each RDN to `starts`. False, with `out` as it was, when
/// the DN is not plain and has to be parsed.
pub(super) fn write_plain(
    schema: &Schema,
    text: &str,
    out: &mut Vec<u8>,
    starts: &mut SmallVec<[u32; 8]>,
) -> bool {
    let begin = out.len();
    let mut rest = text.as_bytes();
    loop {
        starts.push((out.len() - begin) as u32);
        match write_rdn(schema, rest, out) {
            Some(length) if length == rest.len() => return true,
            Some(length) => {
                out.push(b',');
                rest = rest.get(length + 1..).unwrap_or_default();
            }
            None => {
                out.truncate(begin);
                starts.clear();
                return false;
            }
        }
    }
}

/// Writes one RDN; gives its length in the text.
fn write_rdn(schema: &Schema, text: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let equals = memchr::memchr(b'=', text)?;
    let attribute = schema.attribute_type(std::str::from_utf8(text.get(..equals)?).ok()?)?;
    let fold_case = plain_case(attribute)?;
    out.extend_from_slice(attribute.name().as_bytes());
    out.push(b'=');
    let value = text.get(equals + 1..)?;
    let mut last = b' ';
    let mut length = value.len();
    for (i, &byte) in value.iter().enumerate() {
        match byte {
            b',' => {
                length = i;
                break;
            }
            b'"' | b'#' | b'+' | b';' | b'<' | b'=' | b'>' | b'\\' => return None,
            // A space at the start, at the end or after another one does not count.
            b' ' if last == b' ' => return None,
            b' ' | b'!'..=b'~' => out.push(if fold_case { byte.to_ascii_lowercase() } else { byte }),
            _ => return None,
        }
        last = byte;
    }
    (last != b' ').then_some(equals + 1 + length)
}

/// Whether letter case counts; none for attributes whose normal form takes more.
fn plain_case(attribute: &AttributeType) -> Option<bool> {
    if !matches!(attribute.syntax.kind, SyntaxKind::DirectoryString | SyntaxKind::Ia5String)
        || attribute.is_ordered_values()
    {
        return None;
    }
    match attribute.equality?.normal {
        Normal::CaseIgnore => Some(true),
        Normal::CaseExact => Some(false),
        _ => None,
    }
}
