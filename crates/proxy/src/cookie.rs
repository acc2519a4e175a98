//! Cookies of pages (RFC 2696): those that clients get name the connection to the target, too.

use larix_proto::ControlBuf;
use larix_proto::control::{self, ControlValue};

/// Which page of an answer is asked for (RFC 2696). Servers keep what a cookie stands for with the connection, and some (slapd among
/// them) for one answer at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    First,
    /// The one behind a page that came over this connection.
    After(u64),
}

/// Octets of a connection's number before a target's cookie.
const NUMBER: usize = size_of::<u64>();

/// Which page a client's cookie stands for, and the target's own cookie.
pub(crate) fn split(cookie: &[u8]) -> (Page, &[u8]) {
    match cookie.split_first_chunk::<NUMBER>() {
        Some((number, own)) if !own.is_empty() => (Page::After(u64::from_be_bytes(*number)), own),
        // No cookie, or none of this server's: the target says what it thinks of it. Cut, it could ask for the first page again.
        _ => (Page::First, cookie),
    }
}

/// The control of an answer that came over a connection, as the client gets it; `None` if no page is behind it.
pub(crate) fn with_connection(answer: &ControlBuf, connection: u64) -> Option<ControlBuf> {
    let page = control::PagedResults::decode(answer.value.as_deref()).ok()?;
    let cookie = [&connection.to_be_bytes(), page.cookie].concat();
    let is_last = page.cookie.is_empty();
    (!is_last).then(|| control::PagedResults { size: page.size, cookie: &cookie }.to_control(answer.critical))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slapd's cookie has as many octets as the number of a connection.
    #[test]
    fn a_cookie_of_another_server_goes_on_whole() {
        for cookie in [&b""[..], b"1234567", b"\0\0\0\0\0\0\0\x07"] {
            assert_eq!(split(cookie), (Page::First, cookie));
        }
        let own = control::PagedResults { size: 0, cookie: b"12345678" }.to_control(false);
        let given = with_connection(&own, 7).unwrap();
        let page = control::PagedResults::decode(given.value.as_deref()).unwrap();
        assert_eq!(split(page.cookie), (Page::After(7), &b"12345678"[..]));
        let last = control::PagedResults { size: 0, cookie: b"" }.to_control(false);
        assert_eq!(with_connection(&last, 7), None);
    }
}
