//! The short way to the normal form, for DNs as nearly all are: ASCII, no escapes, one value an RDN, strings whose
//! only change is letter case.
//!
//! Entries that are asked for in turn mostly lie below the same few superiors: each thread remembers the normal forms of some.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Whole;
use crate::matching_rules::Normal;
use crate::model::AttributeType;
use crate::schema::Schema;
use crate::syntaxes::SyntaxKind;

thread_local! {
    /// The last name. Its memory is used again once nobody has the name any more.
    static LAST: RefCell<Arc<Whole>> = RefCell::new(Arc::new(Whole::default()));
    /// Memory for names that are copied.
    static COPIED: Cell<String> = const { Cell::new(String::new()) };
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
        if !write_plain(schema, text, &mut whole.text, &mut whole.starts) {
            return None;
        }
        whole.plain = true;
        Some(Arc::clone(last))
    })
}

/// Appends the normal form of a plain DN. False, with nothing appended: it has to be parsed.
pub(super) fn append(schema: &Schema, text: &str, out: &mut Vec<u8>) -> bool {
    let mut normal = COPIED.take();
    let is_plain = write_plain(schema, text, &mut normal, &mut SmallVec::new());
    if is_plain {
        out.extend_from_slice(normal.as_bytes());
    }
    if normal.capacity() <= KEPT_BYTES {
        COPIED.set(normal);
    }
    is_plain
}

/// Makes `out` the normal form of `text`, and `starts` the place of each RDN. False, with nothing there: the DN is not plain and has to be
/// parsed.
pub(super) fn write_plain(
    schema: &Schema,
    text: &str,
    out: &mut String,
    starts: &mut SmallVec<[u32; 8]>,
) -> bool {
    out.clear();
    out.reserve_exact(text.len());
    starts.clear();
    let mut rest = text;
    let mut named = None;
    // The superior's name in the text, and where its normal form begins.
    let mut superior = None;
    loop {
        starts.push(out.len() as u32);
        match write_rdn(schema, rest, &mut named, out) {
            Some(length) if length == rest.len() => break,
            Some(length) => {
                out.push(',');
                rest = rest.get(length + 1..).unwrap_or_default();
            }
            None => {
                out.clear();
                starts.clear();
                return false;
            }
        }
        if superior.is_none() {
            if recall(schema, rest, out, starts) {
                return true;
            }
            superior = Some((rest, out.len()));
        }
    }
    if let Some((text, start)) = superior {
        remember(schema, text, out.get(start..).unwrap_or_default(), starts, start);
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
    normal: String,
    /// Where each RDN starts in `normal`.
    starts: Vec<u32>,
}

thread_local! {
    static REMEMBERED: RefCell<[Superior; SUPERIORS]> = const {
        const NONE: Superior =
            Superior { schema: 0, text: String::new(), normal: String::new(), starts: Vec::new() };
        RefCell::new([NONE; SUPERIORS])
    };
}

/// Appends the normal form of a superior if it is remembered.
fn recall(schema: &Schema, text: &str, out: &mut String, starts: &mut SmallVec<[u32; 8]>) -> bool {
    REMEMBERED.with_borrow(|all| {
        let Some(known) = all.get(text.len() % SUPERIORS) else { return false };
        if known.schema != schema.instance || known.text != text || text.is_empty() {
            return false;
        }
        let offset = out.len() as u32;
        starts.extend(known.starts.iter().map(|start| start + offset));
        out.push_str(&known.normal);
        true
    })
}

/// Remembers a superior whose first RDN starts at `offset` of the whole name.
fn remember(schema: &Schema, text: &str, normal: &str, starts: &[u32], offset: usize) {
    if text.len() > SUPERIOR_BYTES_MAX {
        return;
    }
    REMEMBERED.with_borrow_mut(|all| {
        let Some(place) = all.get_mut(text.len() % SUPERIORS) else { return };
        place.schema = schema.instance;
        place.text.clear();
        place.text.push_str(text);
        place.normal.clear();
        place.normal.push_str(normal);
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
    out: &mut String,
) -> Option<usize> {
    // Names are short, so that nothing is gained by a search of many bytes at once.
    let equals = text.bytes().position(|byte| byte == b'=')?;
    let name = text.get(..equals)?;
    let (attribute, fold_case) = match named {
        Some((before, attribute, fold_case)) if *before == name => (*attribute, *fold_case),
        _ => {
            let attribute = schema.attribute(schema.recent_attribute_type_id(name.as_bytes())?);
            let fold_case = plain_case(attribute)?;
            *named = Some((name, attribute, fold_case));
            (attribute, fold_case)
        }
    };
    out.push_str(attribute.name());
    out.push('=');
    let begin = equals + 1;
    let rest = text.as_bytes().get(begin..)?;
    let mut kinds = 0;
    let length = rest.iter().position(|byte| {
        kinds |= KINDS[usize::from(*byte)];
        kinds & OTHER != 0
    });
    let length = length.unwrap_or(rest.len());
    let ends = rest.get(length).is_none_or(|byte| *byte == b',');
    let value = text.get(begin..begin + length).filter(|value| ends && !value.is_empty())?;
    if kinds & SPACE != 0 && (value.starts_with(' ') || value.ends_with(' ') || value.contains("  ")) {
        return None;
    }
    let start = out.len();
    out.push_str(value);
    if fold_case
        && kinds & CAPITAL != 0
        && let Some(value) = out.get_mut(start..)
    {
        value.make_ascii_lowercase();
    }
    Some(begin + length)
}

/// What stands in a value as it is, but for its case.
const CAPITAL: u8 = 1;
/// Stands there as it is, but not at the ends, and not several in a row.
const SPACE: u8 = 2;
/// Is not plain, or ends the value.
const OTHER: u8 = 4;

/// What each byte is; 0: it stands in a value as it is.
const KINDS: [u8; 256] = {
    let mut kinds = [OTHER; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        kinds[byte as usize] = match byte {
            b',' | b'"' | b'#' | b'+' | b';' | b'<' | b'=' | b'>' | b'\\' => OTHER,
            b' ' => SPACE,
            b'A'..=b'Z' => CAPITAL,
            _ => 0,
        };
        byte += 1;
    }
    kinds
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
