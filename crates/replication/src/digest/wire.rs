//! The bytes of a question and its answer.
//!
//! ```text
//! Request  ::= SEQUENCE { version INTEGER (1), base LDAPDN, without SEQUENCE OF LDAPString,
//!                         ranges SEQUENCE OF SEQUENCE { prefix INTEGER, bits INTEGER, split INTEGER } }
//! Response ::= SEQUENCE { version INTEGER (1), entries OCTET STRING (8 bytes),
//!                         before SEQUENCE OF OCTET STRING, after SEQUENCE OF OCTET STRING,
//!                         ranges SEQUENCE OF CHOICE { cells [0] OCTET STRING, rows [1] OCTET STRING } }
//! ```
//!
//! A cell is its number of entries (8 bytes) and its digest (16); a row is an entryUUID (16), a digest (16) and an
//! entryCSN: time in microseconds (8), count (4), server id (2), modification (4), all zero for none. Numbers are
//! big-endian.

use std::fmt;

use larix_engine::csn::Csn;
use larix_engine::time::Timestamp;
use larix_proto::ber::{DecodeError, Reader, Tag, write};
use uuid::Uuid;

use super::{Cell, Content, DigestRequest, DigestResponse, Range, Row};

const VERSION: i64 = 1;
const CELLS: Tag = Tag::context(0);
const ROWS: Tag = Tag::context(1);
const CELL_BYTES: usize = 24;
const ROW_BYTES: usize = 50;

/// Bytes that are no question or answer.
#[derive(Debug, PartialEq, Eq)]
pub enum WireError {
    Ber(DecodeError),
    /// A newer or damaged form.
    Version(i64),
    Content(&'static str),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ber(error) => write!(f, "digests: {error}"),
            Self::Version(version) => write!(f, "digests of version {version} are not known here"),
            Self::Content(what) => write!(f, "digests: {what}"),
        }
    }
}

impl std::error::Error for WireError {}

impl From<DecodeError> for WireError {
    fn from(error: DecodeError) -> Self {
        Self::Ber(error)
    }
}

impl DigestRequest {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, VERSION);
            write::string(out, &self.base);
            write::constructed(out, Tag::SEQUENCE, |out| {
                self.without.iter().for_each(|name| write::string(out, name));
            });
            write::constructed(out, Tag::SEQUENCE, |out| {
                for (range, split) in &self.ranges {
                    write::constructed(out, Tag::SEQUENCE, |out| {
                        write::integer(out, Tag::INTEGER, i64::from(range.prefix));
                        write::integer(out, Tag::INTEGER, i64::from(range.bits));
                        write::integer(out, Tag::INTEGER, i64::from(*split));
                    });
                }
            });
        });
        out
    }

    /// # Errors
    /// Anything that [`Self::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, WireError> {
        let mut request = Reader::new(value).sequence("digestRequest")?;
        version(&mut request)?;
        let base = request.string("base")?.to_owned();
        let mut names = request.sequence("without")?;
        let mut without = Vec::new();
        while names.peek().is_some() {
            without.push(names.string("without")?.to_owned());
        }
        let mut rows = request.sequence("ranges")?;
        let mut ranges = Vec::new();
        while rows.peek().is_some() {
            let mut row = rows.sequence("range")?;
            let mut number = |name| {
                u32::try_from(row.integer(name)?).map_err(|_| WireError::Content("a number out of range"))
            };
            let range = Range { prefix: number("prefix")?, bits: number("bits")? };
            ranges.push((range, number("split")?));
        }
        Ok(Self { base, without, ranges })
    }
}

impl DigestResponse {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, VERSION);
            write::octets(out, Tag::OCTET_STRING, &self.entries.to_be_bytes());
            for context in &self.context {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    context.iter().for_each(|csn| write::string(out, &csn.text()));
                });
            }
            write::constructed(out, Tag::SEQUENCE, |out| {
                for range in &self.ranges {
                    match range {
                        Content::Split(cells) => write::octets(out, CELLS, &cells_bytes(cells)),
                        Content::Listed(rows) => write::octets(out, ROWS, &rows_bytes(rows)),
                    }
                }
            });
        });
        out
    }

    /// # Errors
    /// Anything that [`Self::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, WireError> {
        let mut response = Reader::new(value).sequence("digestResponse")?;
        version(&mut response)?;
        let entries = response.octets("entries")?.try_into().map(u64::from_be_bytes);
        let entries = entries.map_err(|_| WireError::Content("a number of entries of another length"))?;
        let context = [csns(&mut response)?, csns(&mut response)?];
        let mut parts = response.sequence("ranges")?;
        let mut ranges = Vec::new();
        while parts.peek().is_some() {
            ranges.push(match parts.element("range")? {
                (tag, bytes) if tag == CELLS => Content::Split(cells(bytes)?),
                (tag, bytes) if tag == ROWS => Content::Listed(rows(bytes)?),
                _ => return Err(WireError::Content("a range of an unknown form")),
            });
        }
        Ok(Self { entries, context, ranges })
    }
}

fn version(reader: &mut Reader<'_>) -> Result<(), WireError> {
    match reader.integer("version")? {
        VERSION => Ok(()),
        other => Err(WireError::Version(other)),
    }
}

fn csns(reader: &mut Reader<'_>) -> Result<Vec<Csn>, WireError> {
    let mut list = reader.sequence("contextCSN")?;
    let mut csns = Vec::new();
    while list.peek().is_some() {
        let csn = list.string("contextCSN")?.parse();
        csns.push(csn.map_err(|_| WireError::Content("a contextCSN that is none"))?);
    }
    Ok(csns)
}

fn cells_bytes(cells: &[Cell]) -> Vec<u8> {
    let mut out = Vec::with_capacity(cells.len() * CELL_BYTES);
    for cell in cells {
        out.extend_from_slice(&cell.entries.to_be_bytes());
        out.extend_from_slice(&cell.digest.to_be_bytes());
    }
    out
}

fn rows_bytes(rows: &[Row]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rows.len() * ROW_BYTES);
    let none = Csn { time: Timestamp(0), count: 0, server_id: 0, modification: 0 };
    for row in rows {
        let csn = row.csn.unwrap_or(none);
        out.extend_from_slice(row.uuid.as_bytes());
        out.extend_from_slice(&row.digest.to_be_bytes());
        out.extend_from_slice(&csn.time.0.to_be_bytes());
        out.extend_from_slice(&csn.count.to_be_bytes());
        out.extend_from_slice(&csn.server_id.to_be_bytes());
        out.extend_from_slice(&csn.modification.to_be_bytes());
    }
    out
}

fn cells(bytes: &[u8]) -> Result<Vec<Cell>, WireError> {
    let mut take = Take(bytes);
    let mut cells = Vec::with_capacity(bytes.len() / CELL_BYTES);
    while !take.0.is_empty() {
        let entries = u64::from_be_bytes(take.array()?);
        cells.push(Cell { entries, digest: u128::from_be_bytes(take.array()?) });
    }
    Ok(cells)
}

fn rows(bytes: &[u8]) -> Result<Vec<Row>, WireError> {
    let mut take = Take(bytes);
    let mut rows = Vec::with_capacity(bytes.len() / ROW_BYTES);
    while !take.0.is_empty() {
        let uuid = Uuid::from_bytes(take.array()?);
        let digest = u128::from_be_bytes(take.array()?);
        let csn = Csn {
            time: Timestamp(i64::from_be_bytes(take.array()?)),
            count: u32::from_be_bytes(take.array()?),
            server_id: u16::from_be_bytes(take.array()?),
            modification: u32::from_be_bytes(take.array()?),
        };
        rows.push(Row { uuid, digest, csn: (csn.time.0 != 0).then_some(csn) });
    }
    Ok(rows)
}

/// Bytes that are read from the front.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let short = WireError::Content("a row or cell that is cut");
        let (head, rest) = self.0.split_first_chunk().ok_or(short)?;
        self.0 = rest;
        Ok(*head)
    }
}
