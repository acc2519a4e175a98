//! What may be claimed of a consumer, and what this server can prove.
//!
//! *Invariant:* a cookie that is sent covers what was sent, or need not be sent, and nothing else. A consumer whose cookie covers
//! more passes over what comes late, and tells others that it has it; in a present phase these delete what it never had.

use larix_engine::csn::Csn;
use larix_engine::log::{self, CsnVector};
use larix_engine::time::Timestamp;
use larix_proto::LdapResult;
use larix_store::Snapshot;

use super::session::failed;

/// What the consumer has of each server once it has received everything that changed up to a CSN. A slapd deletes nothing
/// whose entryCSN its provider's cookie does not cover; one that was killed in a refresh has entries above its own.
pub(super) fn proved(known: &CsnVector, start: &CsnVector, up_to: &Csn) -> CsnVector {
    let mut proved = known.clone();
    for csn in start.as_slice() {
        let bound = match csn.server_id <= up_to.server_id {
            true => Csn { server_id: csn.server_id, ..*up_to },
            // Of equal times its changes come behind.
            false => Csn { time: Timestamp(up_to.time.0 - 1), count: 0, modification: 0, ..*csn },
        };
        proved.note(bound.min(*csn));
    }
    proved
}

/// Whether no server has deleted what this one never heard of, behind what a consumer knows. A consumer that hears of
/// changes only from here has nothing that was never here; its own deletes it knows of.
pub(super) fn proves_deletes<N: Snapshot>(
    snapshot: &N,
    sid: Option<u16>,
    known: &CsnVector,
) -> Result<bool, LdapResult> {
    let Some(sid) = sid else { return Ok(true) };
    let unproved = log::content_csns(snapshot).map_err(|fault| failed(&fault))?;
    Ok(unproved.as_slice().iter().all(|csn| csn.server_id == sid || known.covers(csn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_proves_what_was_told_before_it() {
        let vector = |csns: &[(u16, i64)]| -> CsnVector {
            let csn = |(server_id, time): &(u16, i64)| Csn {
                time: Timestamp(*time),
                count: 0,
                server_id: *server_id,
                modification: 0,
            };
            csns.iter().map(csn).collect()
        };
        let check =
            |known: &[(u16, i64)], start: &[(u16, i64)], up_to: (u16, i64), expected: &[(u16, i64)]| {
                let up_to = vector(&[up_to]).as_slice()[0];
                let csns = proved(&vector(known), &vector(start), &up_to);
                assert_eq!(csns, vector(expected), "{known:?} from {start:?} up to {up_to:?}");
            };
        check(&[], &[], (1, 5), &[]);
        check(&[(1, 3)], &[(1, 9)], (1, 5), &[(1, 5)]);
        // Never more than this server has, nor less than the consumer had.
        check(&[(1, 3)], &[(1, 4)], (1, 5), &[(1, 4)]);
        check(&[(1, 7)], &[(1, 4)], (1, 5), &[(1, 7)]);
        check(&[(1, 1), (2, 1), (3, 1)], &[(1, 9), (2, 9), (3, 9)], (2, 5), &[(1, 5), (2, 5), (3, 4)]);
        check(&[(1, 1)], &[(1, 9), (2, 2), (3, 9)], (1, 5), &[(1, 5), (2, 2), (3, 4)]);
    }
}
