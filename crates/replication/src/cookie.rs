//! The synchronisation cookie in OpenLDAP's form: `rid=001,sid=002,csn=...;...`.

use std::fmt;

use larix_engine::csn::Csn;

/// What a consumer has seen: the highest CSN of each server (RFC 4533 section 2.1.2 leaves the form to the servers).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cookie {
    /// The consumer's replica id, 0 to 999.
    pub rid: u16,
    /// The server id that sent the cookie; none from a plain consumer.
    pub sid: Option<u16>,
    /// At most one of each server.
    pub csns: Vec<Csn>,
    /// Of the last of the deletes that a message tells of (`delcsn`); OpenLDAP's providers say it since 2.5.
    pub delete: Option<Csn>,
    /// The pass over the content that it ends named what is gone, too: a Larix says so to a Larix.
    pub deletes_told: bool,
    /// States of entries are kept there, and sent: a Larix says so to a Larix that takes them.
    pub states_kept: bool,
    /// What a Larix says to a Larix of content that other servers keep in part.
    pub content: Option<Content>,
    /// The pass over the content that it ends sent or named all subentries, too: a Larix that follows no other server says so to a Larix.
    pub subentries_sent: bool,
}

/// What a cookie says of content that is not all stored where it comes from.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// Of the end of a pass over all of it: what was neither sent nor named is gone, also where no CSN of the cookie says so.
    Whole,
    /// Of an entry, or of its delete: another server keeps it, and no CSN of the sender says anything of it. Also of an entry that has come
    /// into the consumer's part of the tree with its superior: its CSN may be one that the consumer knows.
    Elsewhere,
}

/// How cookies of ours say that.
pub(crate) const DELETES_TOLD: &str = ",deletes=told";
pub(crate) const STATES_KEPT: &str = ",states=kept";
pub(crate) const CONTENT_WHOLE: &str = ",content=whole";
pub(crate) const CONTENT_ELSEWHERE: &str = ",content=elsewhere";
pub(crate) const SUBENTRIES_SENT: &str = ",subentries=sent";

/// A cookie that cannot be read, with the part that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CookieError {
    part: String,
    why: &'static str,
}

impl fmt::Display for CookieError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "synchronisation cookie: {:?}: {}", self.part, self.why)
    }
}

impl std::error::Error for CookieError {}

/// Characters of a part that an error shows, at most.
const SHOWN: usize = 64;

fn shortened(part: &str) -> String {
    match part.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", part.get(..end).unwrap_or_default()),
        None => part.to_owned(),
    }
}

/// The largest replica id.
pub const RID_MAX: u16 = 999;
/// The largest server id.
pub const SID_MAX: u16 = 0xfff;

impl Cookie {
    /// Reads a cookie. Parts that this version does not know are passed over, as a newer peer may send them.
    ///
    /// # Errors
    /// A part without `=`, a number out of range, a CSN that is none, or two CSNs of one server.
    pub fn parse(text: &str) -> Result<Self, CookieError> {
        let mut cookie = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let error = |why| CookieError { part: shortened(part), why };
            let (name, value) = part.split_once('=').ok_or_else(|| error("has no `=`"))?;
            match name {
                "rid" => {
                    let rid = value.parse().ok().filter(|rid| *rid <= RID_MAX);
                    cookie.rid = rid.ok_or_else(|| error("a replica id is 0 to 999"))?;
                }
                "sid" => {
                    let sid = u16::from_str_radix(value, 16).ok().filter(|sid| *sid <= SID_MAX);
                    cookie.sid = Some(sid.ok_or_else(|| error("a server id is 0 to fff, hexadecimal"))?);
                }
                "csn" => {
                    for csn in value.split(';').filter(|csn| !csn.is_empty()) {
                        let csn: Csn = csn.parse().map_err(|_| error("not a change sequence number"))?;
                        if cookie.csns.iter().any(|known| known.server_id == csn.server_id) {
                            return Err(error("two change sequence numbers of one server"));
                        }
                        cookie.csns.push(csn);
                    }
                }
                "delcsn" => {
                    let csn = value.parse().map_err(|_| error("not a change sequence number"))?;
                    cookie.delete = Some(csn);
                }
                "deletes" => cookie.deletes_told = value == "told",
                "states" => cookie.states_kept = value == "kept",
                "subentries" => cookie.subentries_sent = value == "sent",
                "content" => {
                    cookie.content = match value {
                        "whole" => Some(Content::Whole),
                        "elsewhere" => Some(Content::Elsewhere),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        Ok(cookie)
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rid={:03}", self.rid)?;
        if let Some(sid) = self.sid {
            write!(f, ",sid={sid:03x}")?;
        }
        for (index, csn) in self.csns.iter().enumerate() {
            write!(f, "{}{csn}", if index == 0 { ",csn=" } else { ";" })?;
        }
        if let Some(csn) = &self.delete {
            write!(f, ",delcsn={csn}")?;
        }
        if self.deletes_told {
            f.write_str(DELETES_TOLD)?;
        }
        if self.states_kept {
            f.write_str(STATES_KEPT)?;
        }
        match self.content {
            Some(Content::Whole) => f.write_str(CONTENT_WHOLE)?,
            Some(Content::Elsewhere) => f.write_str(CONTENT_ELSEWHERE)?,
            None => {}
        }
        if self.subentries_sent {
            f.write_str(SUBENTRIES_SENT)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSN_1: &str = "20260101000000.000000Z#000000#001#000000";
    const CSN_2: &str = "20260101000001.000000Z#000000#002#000000";

    #[test]
    fn cookies_survive_parsing() {
        for text in [
            "rid=001".to_owned(),
            "rid=001,sid=00a".into(),
            format!("rid=123,sid=001,csn={CSN_1};{CSN_2}"),
            format!("rid=123,csn={CSN_1},delcsn={CSN_2}"),
            format!("rid=123,csn={CSN_1},deletes=told"),
            format!("rid=123,csn={CSN_1},content=whole"),
            "rid=001,content=elsewhere".into(),
            format!("rid=123,csn={CSN_1},deletes=told,subentries=sent"),
        ] {
            assert_eq!(Cookie::parse(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_cannot_be_a_cookie_is_named() {
        for (text, part) in [
            ("rid=1000", "rid=1000"),
            ("rid", "rid"),
            ("rid=1,sid=1000", "sid=1000"),
            ("rid=1,csn=yesterday", "csn=yesterday"),
        ] {
            assert!(Cookie::parse(text).unwrap_err().to_string().contains(part), "{text}");
        }
        assert!(Cookie::parse(&format!("csn={CSN_1};{CSN_1}")).is_err());
        // A provider may send megabytes.
        let long = Cookie::parse(&"\u{e9}".repeat(100_000)).unwrap_err().to_string();
        let expected = format!("synchronisation cookie: \"{}...\": has no `=`", "\u{e9}".repeat(64));
        assert_eq!(long, expected);
        assert_eq!(Cookie::parse("rid=7,later=x").unwrap().rid, 7);
    }
}
