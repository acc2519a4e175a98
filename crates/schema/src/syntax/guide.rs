//! The structured texts of RFC 4517 that directories seldom hold: search guides, definitions as values, teletex
//! terminals, substring assertions.

use super::text::is_printable;
use crate::definition::is_description;
use crate::lexical::{is_descriptor, is_numeric_oid};

/// A definition in parentheses that starts with an OID, or with a rule's number (RFC 4512 §4.1).
pub(super) fn is_definition(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(is_description)
}

/// Guide (RFC 4517 §3.3.14): `[ class "#" ] criteria`.
pub(super) fn is_guide(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    match text.split_once('#') {
        Some((class, criteria)) => is_oid_text(class.trim()) && is_criteria(criteria),
        None => is_criteria(text),
    }
}

/// Enhanced Guide (RFC 4517 §3.3.10): `class "#" criteria "#" subset`.
pub(super) fn is_enhanced_guide(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    let mut parts = text.split('#');
    let (Some(class), Some(criteria), Some(subset), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    is_oid_text(class.trim())
        && is_criteria(criteria)
        && ["baseobject", "oneLevel", "wholeSubtree"].iter().any(|s| s.eq_ignore_ascii_case(subset.trim()))
}

/// Teletex Terminal Identifier (RFC 4517 §3.3.32): a printable string, then `key:value` parameters.
pub(super) fn is_teletex_terminal(value: &[u8]) -> bool {
    let mut parts = value.split(|&b| b == b'$');
    parts.next().is_some_and(is_printable)
        && parts.all(|parameter| {
            let key = parameter.split(|&b| b == b':').next().unwrap_or_default();
            key.len() < parameter.len()
                && [&b"graphic"[..], b"control", b"misc", b"page", b"private"].contains(&key)
        })
}

/// Substring Assertion (RFC 4517 §3.3.30): text with at least one asterisk; `\2A` and `\5C` are the only escapes.
pub(super) fn is_substring_assertion(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok()
        && value.contains(&b'*')
        && !value.windows(2).any(|pair| pair == b"**")
        && value.split(|&b| b == b'\\').skip(1).all(|after| {
            after
                .get(..2)
                .is_some_and(|hex| hex.eq_ignore_ascii_case(b"2a") || hex.eq_ignore_ascii_case(b"5c"))
        })
}

fn is_oid_text(text: &str) -> bool {
    is_descriptor(text.as_bytes()) || is_numeric_oid(text.as_bytes())
}

/// `term` joined by `&` and `|`, with `!` and parentheses; the depth is limited by the recursion's own count.
fn is_criteria(text: &str) -> bool {
    let mut rest = text.trim();
    criteria(&mut rest, 0).is_some() && rest.is_empty()
}

const MAX_DEPTH: usize = 32;

fn criteria(rest: &mut &str, depth: usize) -> Option<()> {
    loop {
        term(rest, depth)?;
        *rest = rest.trim_start();
        match rest.strip_prefix(['&', '|']) {
            Some(after) => *rest = after,
            None => return Some(()),
        }
    }
}

fn term(rest: &mut &str, depth: usize) -> Option<()> {
    *rest = rest.trim_start();
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some(after) = rest.strip_prefix('!') {
        *rest = after;
        return term(rest, depth + 1);
    }
    if let Some(after) = rest.strip_prefix('(') {
        *rest = after;
        criteria(rest, depth + 1)?;
        *rest = rest.strip_prefix(')')?;
        return Some(());
    }
    for constant in ["?true", "?false"] {
        if let Some(after) = rest.strip_prefix(constant) {
            *rest = after;
            return Some(());
        }
    }
    let (attribute, after) = rest.split_once('$')?;
    let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
    let (kind, after) = after.split_at_checked(end)?;
    *rest = after;
    let known = ["EQ", "SUBSTR", "GE", "LE", "APPROX"].iter().any(|k| k.eq_ignore_ascii_case(kind));
    (is_oid_text(attribute.trim()) && known).then_some(())
}
