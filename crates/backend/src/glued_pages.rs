//! Pages (RFC 2696) of a search over a database and those glued below it.
//!
//! A cookie is the number of the database to go on in, one byte, and that database's own cookie, which is authenticated
//! there. An empty one begins that database.

use larix_engine::controls::PagedResults;
use larix_engine::search::pages::Pages;
use larix_proto::control::{self, ControlValue};
use larix_proto::{ControlBuf, LdapResult, ResultCode, oid};

/// Where the pages are.
#[derive(Debug)]
pub(super) struct GluedPages {
    /// The database that is searched, 0 for the one that holds the base.
    at: u8,
    /// Entries that this page has room for.
    room: u32,
    request: PagedResults,
}

/// What follows when one database has answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The page ends with these.
    Answer(LdapResult, Vec<ControlBuf>),
    /// The next database fills the page with at most so many entries.
    GoOn(u32),
}

impl GluedPages {
    /// # Errors
    /// protocolError when the cookie names none of the `databases`.
    pub(super) fn new(request: &PagedResults, databases: usize) -> Result<Self, LdapResult> {
        let (at, cookie) = match request.cookie.split_first() {
            None => (0, Vec::new()),
            Some((at, cookie)) => (*at, cookie.to_vec()),
        };
        if usize::from(at) >= databases {
            return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "paged results cookie is invalid"));
        }
        Ok(Self { at, room: request.size, request: PagedResults { cookie, ..request.clone() } })
    }

    /// The database to begin in.
    pub(super) fn at(&self) -> usize {
        self.at.into()
    }

    /// The control for database `number`: only the first one of this page has come some way.
    pub(super) fn control(&self, number: usize) -> PagedResults {
        let cookie = if number == self.at() { self.request.cookie.clone() } else { Vec::new() };
        PagedResults { cookie, ..self.request.clone() }
    }

    /// A database has answered with `result` and `controls` after `entries`; `more` says whether another comes.
    pub(super) fn ended(
        &mut self,
        result: LdapResult,
        mut controls: Vec<ControlBuf>,
        entries: u32,
        more: bool,
    ) -> Next {
        if !result.is_success() || self.request.size == 0 {
            return Next::Answer(result, controls);
        }
        let paged = controls.iter().find(|control| control.oid == oid::PAGED_RESULTS);
        let paged = paged.and_then(|control| control::PagedResults::decode(control.value.as_deref()).ok());
        let (size, cookie) = paged.map_or((0, Vec::new()), |paged| (paged.size, paged.cookie.to_vec()));
        self.room = self.room.saturating_sub(entries);
        let answered = if !cookie.is_empty() {
            page(size, &[&[self.at], &cookie[..]].concat())
        } else if !more {
            Pages::end()
        } else {
            // There are no more databases than a byte counts: `new` compares with their number.
            self.at = self.at.saturating_add(1);
            if self.room > 0 {
                return Next::GoOn(self.room);
            }
            page(size, &[self.at])
        };
        controls.retain(|control| control.oid != oid::PAGED_RESULTS);
        controls.push(answered);
        Next::Answer(result, controls)
    }
}

fn page(size: u32, cookie: &[u8]) -> ControlBuf {
    control::PagedResults { size, cookie }.to_control(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(size: u32, cookie: &[u8]) -> PagedResults {
        PagedResults { critical: false, size, cookie: cookie.to_vec() }
    }

    fn missing() -> LdapResult {
        LdapResult::new(ResultCode::NO_SUCH_OBJECT)
    }

    #[test]
    fn pages_go_on_where_a_database_ended() {
        let ok = LdapResult::success;
        let answer = |control| Next::Answer(ok(), vec![control]);
        for (cookie, result, control, entries, more, expected) in [
            (&[][..], ok(), page(9, b"abc"), 3, true, answer(page(9, b"\0abc"))),
            (&[], ok(), Pages::end(), 2, true, Next::GoOn(1)),
            (&[], ok(), Pages::end(), 3, true, answer(page(0, &[1]))),
            (&[], ok(), Pages::end(), 2, false, answer(Pages::end())),
            (&[], missing(), Pages::end(), 0, true, Next::Answer(missing(), vec![Pages::end()])),
            (&[1, 7], ok(), Pages::end(), 0, false, answer(Pages::end())),
            (&[1, 7], ok(), page(0, b"x"), 3, false, answer(page(0, b"\x01x"))),
        ] {
            let mut pages = GluedPages::new(&request(3, cookie), 2).unwrap();
            let found = pages.ended(result, vec![control], entries, more);
            assert_eq!(found, expected, "{cookie:?} {entries} {more}");
        }
        assert!(GluedPages::new(&request(3, &[2]), 2).is_err());
    }

    #[test]
    fn only_the_database_that_goes_on_gets_its_cookie() {
        let pages = GluedPages::new(&request(3, &[1, 7]), 3).unwrap();
        assert_eq!((pages.at(), pages.control(1).cookie, pages.control(2).cookie), (1, vec![7], vec![]));
    }
}
