use larix_engine::time::Timestamp;

use super::*;

const OWN: u16 = 1;

fn csn((server_id, time): (u16, i64)) -> Csn {
    Csn { time: Timestamp(time), count: 0, server_id, modification: 0 }
}

/// Modifications of one entry in the order of the log, of which the consumer knows the servers' up to here: which one the
/// entry is sent for.
fn sent_for(records: &[(u16, i64)], known: &[(u16, i64)]) -> Option<(u16, i64)> {
    let record = |(at, of): (usize, &(u16, i64))| PendingRecord {
        part: 0,
        sequence: at as u64 + 1,
        in_order: true,
        outline: LogOutline {
            csn: csn(*of),
            entry: EntryId(7),
            entry_uuid: Uuid::nil(),
            dn: String::new(),
            local: false,
            absent: false,
            kind: OutlineKind::Modify,
        },
    };
    let known: CsnVector = known.iter().copied().map(csn).collect();
    let logs = vec![records.iter().enumerate().map(record).collect()];
    let mut batch = Batch::default();
    merge(&mut batch, logs, None, OWN, (false, &|csn| known.covers(csn)));
    batch.last.get(&(0, EntryId(7))).map(|at| records[*at])
}

#[test]
fn a_late_change_that_is_known_does_not_stand_for_a_newer_one() {
    let check = |records: &[(u16, i64)], known: &[(u16, i64)], expected: (u16, i64)| {
        assert_eq!(sent_for(records, known), Some(expected), "{records:?}, known {known:?}");
    };
    check(&[(1, 10), (2, 20)], &[], (2, 20));
    check(&[(2, 20), (1, 10)], &[], (1, 10));
    check(&[(2, 20), (1, 10)], &[(1, 10)], (2, 20));
    check(&[(2, 20), (1, 10), (3, 15)], &[(1, 10)], (3, 15));
    check(&[(2, 20), (1, 10), (3, 15)], &[(1, 10), (3, 15)], (2, 20));
    // What comes in order and is known has what came before it: the entry was sent whole with it.
    check(&[(1, 10), (2, 20)], &[(2, 20)], (2, 20));
}
