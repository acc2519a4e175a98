//! What a tool and the server say to each other: LDAP messages (RFC 4511), one request and its answer at a time. Changes are
//! the usual requests; three extended operations, which no other listener knows, are for what LDAP has no request for.

use std::io::{self, Read};

use larix_engine::controls::Import;
use larix_engine::write::AttributeValues;
use larix_proto::ber::{DecodeError, Reader, Tag, write};
use larix_proto::{Frame, LdapResult, ResultCode, frame};

/// Adds entries as they stand in an LDIF file (`slapadd`).
pub(super) const IMPORT_OID: &str = "2.25.87610412117718157885716886434399491440.2.5";
/// Makes indexes anew and answers when they are complete (`slapindex`).
pub(super) const REINDEX_OID: &str = "2.25.87610412117718157885716886434399491440.2.6";
/// Raises contextCSN (`slapadd -w`).
pub(super) const RAISE_OID: &str = "2.25.87610412117718157885716886434399491440.2.7";

/// Bytes of one message. Entries have photos and groups, and only the database's owner can send them here.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Entries in one import: they are in one commit where none is refused.
pub const IMPORT_ENTRIES_MAX: usize = 512;

const READ_BYTES: usize = 64 << 10;

/// An entry as its record of LDIF has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    pub dn: String,
    pub attributes: Vec<AttributeValues>,
}

/// Entries to be added in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRequest {
    pub import: Import,
    /// The others are taken when one is refused. Without it the answer ends with the first refusal; an entry whose superior
    /// is missing is no refusal yet.
    pub go_on: bool,
    pub entries: Vec<NewEntry>,
}

impl ImportRequest {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::boolean(out, Tag::BOOLEAN, self.import.schema_check);
            write::boolean(out, Tag::BOOLEAN, self.import.value_check);
            write::boolean(out, Tag::BOOLEAN, self.go_on);
            for entry in &self.entries {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    write::string(out, &entry.dn);
                    entry.attributes.iter().for_each(|attribute| put_attribute(out, attribute));
                });
            }
        });
        out
    }

    /// # Errors
    /// Anything that [`Self::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut request = Reader::new(value).sequence("importRequest")?;
        let schema_check = request.boolean("schemaCheck")?;
        let value_check = request.boolean("valueCheck")?;
        let go_on = request.boolean("goOn")?;
        let mut entries = Vec::new();
        while !request.is_empty() {
            let mut entry = request.sequence("entry")?;
            let dn = entry.string("dn")?.to_owned();
            let mut attributes = Vec::new();
            while !entry.is_empty() {
                attributes.push(attribute(entry.sequence("attribute")?)?);
            }
            entries.push(NewEntry { dn, attributes });
        }
        Ok(Self { import: Import { schema_check, value_check }, go_on, entries })
    }
}

fn put_attribute(out: &mut Vec<u8>, attribute: &AttributeValues) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        write::string(out, &attribute.description);
        attribute.values.iter().for_each(|value| write::octets(out, Tag::OCTET_STRING, value));
    });
}

fn attribute(mut attribute: Reader<'_>) -> Result<AttributeValues, DecodeError> {
    let description = attribute.string("type")?.to_owned();
    let mut values = Vec::new();
    while !attribute.is_empty() {
        values.push(attribute.octets("value")?.to_vec());
    }
    Ok(AttributeValues { description, values })
}

/// What became of each entry, as far as entries were looked at.
pub(super) fn encode_results(results: &[LdapResult]) -> Vec<u8> {
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| {
        for result in results {
            write::constructed(out, Tag::SEQUENCE, |out| {
                write::integer(out, Tag::ENUMERATED, i64::from(result.code.0));
                write::string(out, &result.diagnostic);
            });
        }
    });
    out
}

pub(super) fn decode_results(value: &[u8]) -> Result<Vec<LdapResult>, DecodeError> {
    let mut all = Reader::new(value).sequence("importResponse")?;
    let mut results = Vec::new();
    while !all.is_empty() {
        let mut result = all.sequence("result")?;
        let code = u32::try_from(result.enumerated("resultCode")?).map_or(ResultCode::OTHER, ResultCode);
        results.push(LdapResult::with(code, result.string("diagnosticMessage")?));
    }
    Ok(results)
}

/// Which indexes are made anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReindexRequest {
    /// None but those that are not complete.
    pub stale: bool,
    /// Those of these attributes; none: all.
    pub attributes: Vec<String>,
}

impl ReindexRequest {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::boolean(out, Tag::BOOLEAN, self.stale);
            self.attributes.iter().for_each(|name| write::string(out, name));
        });
        out
    }

    /// # Errors
    /// Anything that [`Self::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut request = Reader::new(value).sequence("reindexRequest")?;
        let stale = request.boolean("stale")?;
        Ok(Self { stale, attributes: strings(request)? })
    }
}

/// CSNs, the highest of each server.
pub(super) fn encode_csns(csns: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| csns.iter().for_each(|csn| write::string(out, csn)));
    out
}

pub(super) fn decode_csns(value: &[u8]) -> Result<Vec<String>, DecodeError> {
    strings(Reader::new(value).sequence("raiseRequest")?)
}

fn strings(mut rest: Reader<'_>) -> Result<Vec<String>, DecodeError> {
    let mut strings = Vec::new();
    while !rest.is_empty() {
        strings.push(rest.string("element")?.to_owned());
    }
    Ok(strings)
}

/// The messages of a stream.
#[derive(Debug)]
pub(super) struct Messages<R> {
    input: R,
    read: Vec<u8>,
}

impl<R: Read> Messages<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, read: Vec::new() }
    }

    /// The next whole message; `None` at the end of the stream.
    ///
    /// # Errors
    /// What the stream fails with, what is no LDAP, and a message that is too large.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let found = frame(&self.read, MESSAGE_BYTES_MAX);
            match found.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Frame::Complete { len } => {
                    let behind = self.read.split_off(len);
                    return Ok(Some(std::mem::replace(&mut self.read, behind)));
                }
                Frame::Incomplete { .. } => {
                    // No more room is taken than was sent: an announced length is no promise.
                    let had = self.read.len();
                    if self.read_some()? == 0 {
                        return if had == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
                    }
                }
            }
        }
    }

    fn read_some(&mut self) -> io::Result<usize> {
        let start = self.read.len();
        self.read.resize(start + READ_BYTES, 0);
        let read = loop {
            match self.input.read(self.read.get_mut(start..).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.read.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_come_back_as_they_were() {
        let attributes = vec![AttributeValues {
            description: "cn;lang-en".to_owned(),
            values: vec![b"a".to_vec(), Vec::new(), vec![0xff; 300]],
        }];
        let entry = NewEntry { dn: "cn=a,dc=x".to_owned(), attributes };
        let bare = NewEntry { dn: String::new(), attributes: Vec::new() };
        for (schema_check, value_check, go_on) in [(true, false, true), (false, true, false)] {
            let import = Import { schema_check, value_check };
            let request = ImportRequest { import, go_on, entries: vec![entry.clone(), bare.clone()] };
            let encoded = request.encode();
            assert_eq!(ImportRequest::decode(&encoded), Ok(request));
            // Damage is an error, never a panic.
            for end in 0..encoded.len() {
                assert!(ImportRequest::decode(&encoded[..end]).is_err(), "{end}");
            }
        }
        let results = vec![LdapResult::success(), LdapResult::with(ResultCode::NO_SUCH_OBJECT, "not here")];
        assert_eq!(decode_results(&encode_results(&results)), Ok(results));
        let request = ReindexRequest { stale: true, attributes: vec!["cn".to_owned(), "sn".to_owned()] };
        assert_eq!(ReindexRequest::decode(&request.encode()), Ok(request));
        let csns = vec!["20260101000000.000000Z#000000#001#000000".to_owned()];
        assert_eq!(decode_csns(&encode_csns(&csns)), Ok(csns));
    }

    #[test]
    fn messages_are_cut_out_of_a_stream() {
        let stream = b"\x30\x05\x02\x01\x01\x42\x00\x30\x05\x02\x01\x02\x42\x00";
        let mut messages = Messages::new(&stream[..]);
        assert_eq!(messages.next().unwrap().as_deref(), stream.get(..7));
        assert_eq!(messages.next().unwrap().as_deref(), stream.get(7..));
        assert_eq!(messages.next().unwrap(), None);
        let mut cut = Messages::new(&stream[..9]);
        assert!(cut.next().unwrap().is_some());
        assert_eq!(cut.next().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut huge = Messages::new(&b"\x30\x84\x7f\xff\xff\xff"[..]);
        assert_eq!(huge.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
