//! What to send a consumer, by its cookie: pure, as OpenLDAP's provider decides.

use larix_engine::controls::ContentSync;
use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;
use larix_proto::{LdapResult, ResultCode};

use crate::cookie::Cookie;

/// What a consumer asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerRequest {
    /// Its replica id, given back in cookies.
    pub rid: u16,
    /// Its server id: it needs no changes that it made itself.
    pub sid: Option<u16>,
    /// What it has.
    pub known: CsnVector,
    pub persist: bool,
    pub reload_hint: bool,
    /// It wants changes in place of content: a consumer that follows an access log sends a cookie, be it one without a CSN, and no
    /// reload hint. A consumer that reads such a database for its content has no cookie at first.
    pub wants_changes: bool,
    /// Its cookie has a replica ID, as those of OpenLDAP's consumers have from the first request on; a Larix may do without. Others may
    /// store each cookie that comes.
    pub has_replica_id: bool,
    /// The consumer is a Larix.
    pub peer: bool,
}

impl ConsumerRequest {
    /// Reads the control. A cookie that cannot be read is as good as none.
    pub fn new(control: &ContentSync) -> Self {
        let text = control.cookie.as_deref().and_then(|cookie| std::str::from_utf8(cookie).ok());
        let cookie = text.and_then(|text| Cookie::parse(text).ok()).unwrap_or_default();
        Self {
            rid: cookie.rid,
            sid: cookie.sid.filter(|sid| *sid != 0),
            known: cookie.csns.into_iter().collect(),
            persist: control.persist,
            reload_hint: control.reload_hint,
            wants_changes: control.cookie.is_some() && !control.reload_hint,
            has_replica_id: control.cookie.is_some() && (control.peer || cookie.rid != 0),
            peer: control.peer,
        }
    }
}

/// What follows from a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has everything.
    Unchanged,
    /// It has nothing that counts: it is sent everything.
    Everything,
    /// It has what this vector covers.
    Since(CsnVector),
    Refused(LdapResult),
}

/// Decides by the cookie, by how far the database has come and by the id of this server.
pub fn decide(known: &CsnVector, context: &CsnVector, server_id: u16) -> Decision {
    let refused = |text: &str| Decision::Refused(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
    if known.is_empty() {
        return if context.is_empty() { Decision::Unchanged } else { Decision::Everything };
    }
    if context.is_empty() {
        return refused("consumer has state info but provider doesn't!");
    }
    if let (Some(theirs), Some(ours)) = (known.of(server_id), context.of(server_id))
        && theirs > ours
    {
        return refused("consumer state is newer than provider!");
    }
    if known.covers_all(context) {
        return Decision::Unchanged;
    }
    // Servers that are unknown here do not count.
    let shared: CsnVector =
        known.as_slice().iter().filter(|csn| context.of(csn.server_id).is_some()).copied().collect();
    if shared.is_empty() { Decision::Everything } else { Decision::Since(shared) }
}

/// The parts of a cookie that this server sends.
pub(super) fn cookie(rid: u16, server_id: u16, csns: &[Csn]) -> String {
    let sid = Some(server_id).filter(|sid| *sid != 0);
    Cookie { rid, sid, csns: csns.to_vec(), ..Cookie::default() }.to_string()
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;

    use super::*;

    fn vector(csns: &[(u16, i64)]) -> CsnVector {
        let csn = |(server_id, time): &(u16, i64)| Csn {
            time: Timestamp(*time),
            count: 0,
            server_id: *server_id,
            modification: 0,
        };
        csns.iter().map(csn).collect()
    }

    #[test]
    fn a_cookie_says_what_is_to_be_sent() {
        let check = |known: &[(u16, i64)], context: &[(u16, i64)], expected: &str| {
            let decision = match decide(&vector(known), &vector(context), 1) {
                Decision::Unchanged => "unchanged".to_owned(),
                Decision::Everything => "everything".to_owned(),
                Decision::Since(shared) => format!("since {}", shared.as_slice().len()),
                Decision::Refused(result) => result.diagnostic,
            };
            assert_eq!(decision, expected, "{known:?} beside {context:?}");
        };
        check(&[], &[], "unchanged");
        check(&[], &[(1, 5)], "everything");
        check(&[(1, 5)], &[], "consumer has state info but provider doesn't!");
        check(&[(1, 5)], &[(1, 5)], "unchanged");
        check(&[(1, 4)], &[(1, 5)], "since 1");
        check(&[(1, 6)], &[(1, 5)], "consumer state is newer than provider!");
        // Another server's changes may have come there earlier than here.
        check(&[(1, 5), (2, 9)], &[(1, 5), (2, 7)], "unchanged");
        check(&[(1, 5)], &[(1, 5), (2, 7)], "since 1");
        check(&[(1, 5), (3, 1)], &[(1, 5)], "unchanged");
        check(&[(3, 1)], &[(1, 5)], "everything");
        check(&[(1, 4), (3, 1)], &[(1, 5), (2, 1)], "since 1");
    }

    #[test]
    fn what_is_no_cookie_is_none() {
        let check = |cookie: Option<&str>, rid: u16, csns: usize| {
            let cookie = cookie.map(|text| text.as_bytes().to_vec());
            let control =
                ContentSync { critical: true, persist: false, cookie, reload_hint: false, peer: false };
            let request = ConsumerRequest::new(&control);
            assert_eq!((request.rid, request.known.as_slice().len()), (rid, csns));
        };
        check(None, 0, 0);
        check(Some(""), 0, 0);
        check(Some("nonsense"), 0, 0);
        check(Some("rid=004"), 4, 0);
        check(Some("rid=004,csn=20260101000000.000000Z#000000#001#000000"), 4, 1);
        check(Some("rid=004,csn=yesterday"), 0, 0);
    }
}
