//! The extended operation with which a client has kept answers forgotten (OpenLDAP's queryDelete).

use larix_backend::memory_tree::MemoryTree;
use larix_backend::{Context, ExtendedOperation, OverlayOperation};
use larix_engine::access::{Item, Privilege};
use larix_engine::entry::Entry;
use larix_proto::ber::{DecodeError, Reader, Tag};
use larix_proto::{LdapResult, ResultCode};

use super::CachingBackend;
use super::store::QueryId;

pub(super) const OID: &str = "1.3.6.1.4.1.4203.666.11.9.6.1";

pub(super) static OPERATION: OverlayOperation =
    OverlayOperation { oid: OID, target: |value| Ok(QueryDelete::decode(value)?.name.to_owned()) };

/// The tags of a request: a search base, an entry, and the number of a query.
const BASE: Tag = Tag(0xa0);
const ENTRY: Tag = Tag(0xa1);
const QUERY: Tag = Tag(0xa2);

/// What is to be forgotten.
#[derive(Debug, PartialEq, Eq)]
struct QueryDelete<'v> {
    name: &'v str,
    /// Answers that this entry is in, or may be missing in; otherwise those to searches of this base and below it.
    is_entry: bool,
    /// One query alone is meant.
    number: Option<QueryId>,
}

impl<'v> QueryDelete<'v> {
    fn decode(value: Option<&'v [u8]>) -> Result<Self, LdapResult> {
        let fault = |text: &str| LdapResult::with(ResultCode::PROTOCOL_ERROR, text);
        let value = value.filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| fault("empty request data field in queryDelete exop"))?;
        let decode = || -> Result<Option<Self>, DecodeError> {
            let mut outer = Reader::new(value);
            let mut reader = outer.sequence("queryDelete")?;
            let (tag, name) = reader.element("name")?;
            let number = match reader.is_empty() {
                false => Some(QueryId::try_from(reader.expect(QUERY, "queryUUID")?)),
                true => None,
            };
            reader.finish("queryDelete")?;
            outer.finish("queryDelete")?;
            let is_known = [BASE, ENTRY].contains(&tag);
            let name = std::str::from_utf8(name).ok().filter(|_| is_known);
            let number = number.transpose().ok();
            Ok(name.zip(number).map(|(name, number)| Self { name, is_entry: tag == ENTRY, number }))
        };
        decode().ok().flatten().ok_or_else(|| fault("queryDelete data decoding error"))
    }
}

impl CachingBackend {
    /// Forgets kept answers, for who may manage what they are about.
    pub(super) fn query_delete(&self, context: &Context<'_>, request: &ExtendedOperation<'_>) -> LdapResult {
        let delete = match QueryDelete::decode(request.value) {
            Ok(delete) => delete,
            Err(refused) => return refused,
        };
        let tree = MemoryTree::empty(&self.inner.schema, &self.inner.policy, context.subject);
        if !tree.allows(request.dn, &Entry::new(request.dn.as_str()), Item::Entry, Privilege::Manage) {
            let text = "who has answers forgotten needs `manage` there";
            return LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text);
        }
        match (delete.number, delete.is_entry) {
            (Some(number), is_entry) if !self.cache.forget_query(&number, request.dn, is_entry) => {
                let text = "no query with this pcacheQueryId is kept there";
                return LdapResult::with(ResultCode::NO_SUCH_OBJECT, text);
            }
            (Some(_), _) => {}
            (None, true) => self.cache.forget_entry(request.dn),
            (None, false) => self.cache.forget_searches(request.dn),
        }
        LdapResult::success()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_decoded() {
        let delete = |name, is_entry, number| Some(QueryDelete { name, is_entry, number });
        let number = |length: u8| {
            let mut bytes = vec![0x30, 7 + length, 0xa0, 3, b'o', b'=', b'x', 0xa2, length];
            bytes.extend(std::iter::repeat_n(1, length.into()));
            bytes
        };
        for (value, expected) in [
            (&[0x30, 5, 0xa0, 3, b'o', b'=', b'x'][..], delete("o=x", false, None)),
            (&[0x30, 5, 0xa1, 3, b'o', b'=', b'x'], delete("o=x", true, None)),
            (&number(16), delete("o=x", false, Some([1; 16]))),
            (&number(15), None),
            (&[0x30, 5, 0xa3, 3, b'o', b'=', b'x'], None),
            (&[0x30, 5, 0xa0, 3, b'o', b'=', 0xff], None),
            (&[0x30, 6, 0xa0, 3, b'o', b'=', b'x'], None),
            (&[], None),
        ] {
            assert_eq!(QueryDelete::decode(Some(value)).ok(), expected, "{value:02x?}");
        }
        assert!(QueryDelete::decode(None).is_err());
    }
}
