//! Virtual list views (draft-ietf-ldapext-ldapv3-vlv-09): a part of a sorted answer, by number or by value.
//!
//! The contextID names the list that the server keeps ([`kept_lists`](crate::database::kept_lists)). It is no more than a hint: with one that
//! names none the server sorts anew. Result codes are OpenLDAP's: a view that cannot be had is virtualListViewError, critical or not,
//! and the response control says why.

use std::ops::Range;

use larix_proto::control::{ControlValue, VlvResponse};
use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::Schema;

use super::sort::Order;
use crate::controls::{RequestControls, ViewTarget, VirtualListView};
use crate::database::kept_lists::Matches;

/// The part of a sorted list that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The target's position from 1; one more than there are when it is behind the last; 0 of an empty list.
    pub(super) target: usize,
    pub(super) places: Range<usize>,
}

/// What is refused before anything is looked for.
///
/// # Errors
/// A view of what is not sorted.
pub(super) fn check(
    controls: &RequestControls,
    order: Option<&Order>,
) -> Result<(), Box<(LdapResult, ControlBuf)>> {
    if controls.vlv.is_none() || order.is_some() {
        return Ok(());
    }
    // A sort control that was not critical may have been ignored.
    Err(Box::new(match controls.sort {
        None => {
            let text = "Sort control is required with VLV";
            (
                LdapResult::with(ResultCode::VLV_ERROR, text),
                response(ResultCode::SORT_CONTROL_MISSING, 0, 0, None),
            )
        }
        Some(_) => {
            let result = LdapResult::with(ResultCode::VLV_ERROR, "VLV needs an order that can be had");
            (result, response(ResultCode::INAPPROPRIATE_MATCHING, 0, 0, None))
        }
    }))
}

/// The window into a list of so many matches.
///
/// # Errors
/// The code of the response control.
pub(super) fn window(
    schema: &Schema,
    order: &Order,
    control: &VirtualListView,
    matches: &Matches,
) -> Result<Window, ResultCode> {
    let count = matches.len();
    if count == 0 {
        return Ok(Window { target: 0, places: 0..0 });
    }
    let target = match &control.target {
        ViewTarget::Offset { offset, content_count } => at_offset(*offset, *content_count, count)?,
        ViewTarget::GreaterOrEqual(value) => {
            let key = order.assertion_key(schema, value).ok_or(ResultCode::INAPPROPRIATE_MATCHING)?;
            matches.partition_point(|(other, _)| *other < key) + 1
        }
    };
    let first = target.saturating_sub(1);
    let from = first.saturating_sub(control.before_count as usize);
    let to = first.saturating_add(control.after_count as usize).saturating_add(1).min(count);
    Ok(Window { target, places: from..to })
}

/// The position in a list of `count` entries, which is not empty, for a client that asks for the `offset`-th of `claimed` entries.
fn at_offset(offset: u32, claimed: u32, count: usize) -> Result<usize, ResultCode> {
    let place = offset as usize;
    match (offset, claimed) {
        (0, _) => Err(ResultCode::OFFSET_RANGE_ERROR),
        (offset, claimed) if offset == claimed => Ok(count),
        (1, _) => Ok(1),
        (_, claimed) if claimed == 0 || claimed as usize == count => {
            if place > count {
                Err(ResultCode::OFFSET_RANGE_ERROR)
            } else {
                Ok(place)
            }
        }
        (offset, claimed) if offset > claimed => Err(ResultCode::OFFSET_RANGE_ERROR),
        (offset, claimed) => {
            let scaled = count as u128 * u128::from(offset) / u128::from(claimed);
            Ok(usize::try_from(scaled).unwrap_or(count).clamp(1, count))
        }
    }
}

/// The response control. `list`: the number of the list that is kept.
pub(super) fn response(code: ResultCode, target: usize, count: usize, list: Option<u64>) -> ControlBuf {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).min(i32::MAX as u32);
    let context = list.map(u64::to_be_bytes);
    let response = VlvResponse {
        target_position: number(target),
        content_count: number(count),
        code,
        context_id: context.as_ref().map(<[u8; 8]>::as_slice),
    };
    response.to_control(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_scaled_to_what_there_is() {
        let out = Err(ResultCode::OFFSET_RANGE_ERROR);
        for (offset, claimed, count, want) in [
            (1, 0, 10, Ok(1)),
            (1, 1000, 10, Ok(1)),
            (10, 10, 10, Ok(10)),
            (7, 7, 10, Ok(10)),
            (7, 0, 10, Ok(7)),
            (7, 10, 10, Ok(7)),
            (11, 0, 10, out),
            (11, 10, 10, out),
            (0, 0, 10, out),
            (0, 10, 10, out),
            (50, 100, 10, Ok(5)),
            (2, 100, 10, Ok(1)),
            (99, 100, 10, Ok(9)),
            (101, 100, 10, out),
            (u32::MAX - 1, u32::MAX, 10, Ok(9)),
            (2, 3, 1, Ok(1)),
        ] {
            assert_eq!(at_offset(offset, claimed, count), want, "{offset} of {claimed} in {count}");
        }
    }
}
