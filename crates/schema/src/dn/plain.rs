//! The short way to the normal form, for DNs as nearly all are: ASCII, no escapes, one value an RDN, strings whose
//! only change is letter case.

use smallvec::SmallVec;

use crate::matching_rules::Normal;
use crate::model::AttributeType;
use crate::prep::prepare_tidy;
use crate::schema::Schema;
use crate::syntaxes::SyntaxKind;

/// Appends the normal form of `text` to `out` and the place of each RDN to `starts`. False, with `out` as it was, when
/// the DN is not plain and has to be parsed.
pub(super) fn write_plain(
    schema: &Schema,
    text: &str,
    out: &mut Vec<u8>,
    starts: &mut SmallVec<[u32; 8]>,
) -> bool {
    let begin = out.len();
    let mut rest = text;
    let mut named = None;
    loop {
        starts.push((out.len() - begin) as u32);
        match write_rdn(schema, rest, &mut named, out) {
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

/// The name in the RDN before, its type and whether letter case counts: most RDNs of a DN have the same.
type Named<'s, 't> = Option<(&'t str, &'s AttributeType, bool)>;

/// Writes one RDN; gives its length in the text.
fn write_rdn<'s, 't>(
    schema: &'s Schema,
    text: &'t str,
    named: &mut Named<'s, 't>,
    out: &mut Vec<u8>,
) -> Option<usize> {
    // Names are short, so that nothing is gained by a search of many bytes at once.
    let equals = text.bytes().position(|byte| byte == b'=')?;
    let name = text.get(..equals)?;
    let (attribute, fold_case) = match named {
        Some((before, attribute, fold_case)) if *before == name => (*attribute, *fold_case),
        _ => {
            let attribute = schema.attribute_type(name)?;
            let fold_case = plain_case(attribute)?;
            *named = Some((name, attribute, fold_case));
            (attribute, fold_case)
        }
    };
    out.extend_from_slice(attribute.name().as_bytes());
    out.push(b'=');
    let value = text.as_bytes().get(equals + 1..)?;
    let length = value.iter().position(|byte| !PLAIN[usize::from(*byte)]).unwrap_or(value.len());
    let ends = value.get(length).is_none_or(|byte| *byte == b',');
    (ends && prepare_tidy(value.get(..length)?, fold_case, out)).then_some(equals + 1 + length)
}

/// Which bytes stand in a value as they are. Spaces at its ends, or several in a row, do not.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        plain[byte as usize] = !matches!(byte, b',' | b'"' | b'#' | b'+' | b';' | b'<' | b'=' | b'>' | b'\\');
        byte += 1;
    }
    plain
};

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
