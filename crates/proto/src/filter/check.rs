//! Checking a filter once, so that looking into it later cannot fail.

use smallvec::SmallVec;

use super::{
    AND, ANY, APPROX, EQUALITY, EXTENSIBLE, FINAL, GREATER_OR_EQUAL, INITIAL, LESS_OR_EQUAL, NOT, OR,
    PRESENT, SUBSTRINGS,
};
use crate::ber::{self, DecodeError, Fault, Reader, Tag};
use crate::limits;

/// Checks one filter and everything nested in it. Iterative: the input chooses the depth, not the call stack.
pub(super) fn check(ber: &[u8], max_depth: usize) -> Result<(), DecodeError> {
    let limit = max_depth.min(limits::FILTER_DEPTH_CEILING);
    // The members still to be checked of each open AND, OR and NOT.
    let mut open: SmallVec<[Reader<'_>; 8]> = SmallVec::new();
    let mut members = Reader::new(ber);
    loop {
        if members.is_empty() {
            match open.pop() {
                Some(outer) => members = outer,
                None => return Ok(()),
            }
            continue;
        }
        let (tag, contents) = members.element("filter")?;
        match tag {
            AND | OR | NOT => {
                if open.len() >= limit {
                    return Err(DecodeError::new("filter", Fault::TooDeep { limit }));
                }
                if tag == NOT {
                    let mut inner = Reader::new(contents);
                    inner.element("not")?;
                    inner.finish("not")?;
                }
                open.push(members);
                members = Reader::new(contents);
            }
            _ => item(tag, contents)?,
        }
    }
}

/// Checks a filter that holds no filters.
#[inline]
fn item(tag: Tag, contents: &[u8]) -> Result<(), DecodeError> {
    match tag {
        EQUALITY | GREATER_OR_EQUAL | LESS_OR_EQUAL | APPROX => assertion(contents),
        PRESENT => ber::check_text(contents, "present"),
        SUBSTRINGS => substrings(contents),
        EXTENSIBLE => {
            let assertion = super::extensible(contents)?;
            if assertion.rule.is_none() && assertion.attribute.is_none() {
                let reason = "neither matching rule nor attribute type";
                return Err(DecodeError::new("extensibleMatch", Fault::Invalid(reason)));
            }
            Ok(())
        }
        _ if tag.is_context() => Ok(()),
        found => Err(DecodeError::new("filter", Fault::UnexpectedTag { expected: AND, found })),
    }
}

#[inline]
fn assertion(contents: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(contents);
    reader.text("attributeDesc")?;
    reader.octets("assertionValue")?;
    reader.ignore_rest("assertion")
}

fn substrings(contents: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(contents);
    reader.string("type")?;
    let mut pieces = reader.sequence("substrings")?;
    reader.ignore_rest("substrings")?;
    if pieces.is_empty() {
        return Err(DecodeError::new("substrings", Fault::Empty));
    }
    let mut first = true;
    while !pieces.is_empty() {
        let (tag, _) = pieces.element("substring")?;
        match tag {
            INITIAL if first => {}
            ANY => {}
            FINAL if pieces.is_empty() => {}
            INITIAL | FINAL => return Err(DecodeError::new("substrings", Fault::Order)),
            Tag(other) => {
                return Err(DecodeError::new("substring", Fault::UnknownChoice(i64::from(other))));
            }
        }
        first = false;
    }
    Ok(())
}
