//! Searches that count.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_backend::{AnsweredSearch, Cursor, StepOutcome, slice};
use larix_engine::time::ManualClock;
use larix_proto::encode::EntryEncoder;
use larix_proto::{LdapResult, MessageId, ResultCode};

use super::{Counting, counted};

#[test]
fn entries_are_counted_and_not_sent() {
    // Each: entries that are found, the client's size limit, how the search ends, and the code in the control.
    for (entries, limit, code, told) in [
        (0, 0, ResultCode::SUCCESS, ResultCode::SUCCESS),
        (3, 0, ResultCode::SUCCESS, ResultCode::SUCCESS),
        (3, 3, ResultCode::SUCCESS, ResultCode::SUCCESS),
        (3, 2, ResultCode::SUCCESS, ResultCode::SIZE_LIMIT_EXCEEDED),
        (2, 0, ResultCode::TIME_LIMIT_EXCEEDED, ResultCode::TIME_LIMIT_EXCEEDED),
    ] {
        let mut messages = Vec::new();
        for number in 0..entries {
            EntryEncoder::begin(&mut messages, MessageId(1), &format!("cn={number}")).finish(&[]);
        }
        let inner =
            Box::new(AnsweredSearch { messages, result: LdapResult::new(code), entries: entries.into() });
        let mut counting = Counting { inner, limit, found: Vec::new(), entries: 0, references: 0 };
        let (clock, mut out) = (ManualClock::default(), Vec::new());
        let StepOutcome::Done(result, controls) = counting.step(slice(&clock), &mut out) else {
            panic!("goes on")
        };
        assert_eq!((result.code, out.len(), counting.effort().entries), (code, 0, 0));
        assert_eq!(controls, [counted(told, entries, 0)], "{entries} {limit}");
    }
    // ENUMERATED is not used: three INTEGERs (0, 3 and 0).
    let value = counted(ResultCode::SUCCESS, 3, 0).value.unwrap();
    assert_eq!(value, [0x30, 9, 2, 1, 0, 2, 1, 3, 2, 1, 0]);
}
