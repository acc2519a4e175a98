//! The short way to the normal form, for DNs as nearly all are: ASCII, no escapes, one value an RDN, strings whose
//! only change is letter case.
//!
//! Entries that are asked for in turn mostly lie below the same few superiors: each thread remembers the normal forms of some.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Whole;
use crate::matching_rules::Normal;
use crate::model::AttributeType;
use crate::prep::prepare_tidy;
use crate::schema::Schema;
use crate::syntaxes::SyntaxKind;

thread_local! {
    /// The last name. Its memory is used again once nobody has the name any more.
    static LAST: RefCell<Arc<Whole>> = RefCell::new(Arc::new(Whole::default()));
}

/// A longer name leaves no memory to be used again.
const KEPT_BYTES: usize = 256;

/// The normal form of a plain DN; `None`: it has to be parsed.
pub(super) fn parse(schema: &Schema, text: &str) -> Option<Arc<Whole>> {
    LAST.with_borrow_mut(|last| {
        if Arc::get_mut(last).is_none_or(|last| last.text.capacity() > KEPT_BYTES) {
            *last = Arc::new(Whole::default());
        }
        let whole = Arc::get_mut(last)?;
        let mut normal = std::mem::take(&mut whole.text).into_bytes();
        normal.clear();
        normal.reserve_exact(text.len());
        whole.starts.clear();
        if !write_plain(schema, text, &mut normal, &mut whole.starts) {
            return None;
        }
        whole.text = String::from_utf8(normal).ok()?;
        whole.plain = true;
        Some(Arc::clone(last))
    })
}

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
    // The superior's name in the text, and where its normal form begins.
    let mut superior = None;
    loop {
        starts.push((out.len() - begin) as u32);
        match write_rdn(schema, rest, &mut named, out) {
            Some(length) if length == rest.len() => break,
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
        if superior.is_none() {
            if recall(schema, rest, begin, out, starts) {
                return true;
            }
            superior = Some((rest, out.len()));
        }
    }
    if let Some((text, start)) = superior {
        remember(schema, text, out.get(start..).unwrap_or_default(), starts, start - begin);
    }
    true
}

/// Superiors that a thread remembers, each in the place that the length of its name gives.
const SUPERIORS: usize = 4;
/// Longer names are not remembered.
const SUPERIOR_BYTES_MAX: usize = 512;

/// The normal form of a name below which entries were named.
struct Superior {
    /// The [instance](Schema::instance) of the schema.
    schema: u64,
    text: String,
    normal: Vec<u8>,
    /// Where each RDN starts in `normal`.
    starts: Vec<u32>,
}

thread_local! {
    static REMEMBERED: RefCell<[Superior; SUPERIORS]> = const {
        const NONE: Superior =
            Superior { schema: 0, text: String::new(), normal: Vec::new(), starts: Vec::new() };
        RefCell::new([NONE; SUPERIORS])
    };
}

/// Appends the normal form of a superior if it is remembered.
fn recall(
    schema: &Schema,
    text: &str,
    begin: usize,
    out: &mut Vec<u8>,
    starts: &mut SmallVec<[u32; 8]>,
) -> bool {
    REMEMBERED.with_borrow(|all| {
        let Some(known) = all.get(text.len() % SUPERIORS) else { return false };
        if known.schema != schema.instance || known.text != text || text.is_empty() {
            return false;
        }
        let offset = (out.len() - begin) as u32;
        starts.extend(known.starts.iter().map(|start| start + offset));
        out.extend_from_slice(&known.normal);
        true
    })
}

/// Remembers a superior whose first RDN starts at `offset` of the whole name.
fn remember(schema: &Schema, text: &str, normal: &[u8], starts: &[u32], offset: usize) {
    if text.len() > SUPERIOR_BYTES_MAX {
        return;
    }
    REMEMBERED.with_borrow_mut(|all| {
        let Some(place) = all.get_mut(text.len() % SUPERIORS) else { return };
        place.schema = schema.instance;
        place.text.clear();
        place.text.push_str(text);
        place.normal.clear();
        place.normal.extend_from_slice(normal);
        place.starts.clear();
        place.starts.extend(starts.iter().filter_map(|start| start.checked_sub(offset as u32)));
    });
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
