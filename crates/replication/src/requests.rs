//! Extended operations for those who look after replicas.

use larix_proto::ber::{DecodeError, Reader, Tag, write};

/// The extended operation that removes the contextCSN of a server that is gone.
pub const RETIRE_OID: &str = "2.25.87610412117718157885716886434399491440.2.2";

/// The extended operation that lists what lost in conflicts.
pub const CONFLICTS_OID: &str = "2.25.87610412117718157885716886434399491440.2.3";

/// What a request to retire a server id says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetireRequest {
    /// A suffix.
    pub base: String,
    /// 0 to 4095.
    pub server_id: u16,
}

impl RetireRequest {
    /// `SEQUENCE { base LDAPDN, serverID INTEGER }`
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::string(out, &self.base);
            write::integer(out, Tag::INTEGER, i64::from(self.server_id));
        });
        out
    }

    /// # Errors
    /// Anything that [`Self::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut request = Reader::new(value).sequence("retireRequest")?;
        let base = request.string("base")?.to_owned();
        let server_id = request.unsigned("serverID")?;
        request.finish("retireRequest")?;
        Ok(Self { base, server_id: u16::try_from(server_id).unwrap_or(u16::MAX) })
    }
}

/// Which conflicts are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictsRequest {
    /// A suffix.
    pub base: String,
    /// Those with higher numbers.
    pub after: u64,
}

impl ConflictsRequest {
    /// `SEQUENCE { base LDAPDN, after OCTET STRING (8 bytes) }`
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            write::string(out, &self.base);
            write::octets(out, Tag::OCTET_STRING, &self.after.to_be_bytes());
        });
        out
    }

    /// # Errors
    /// Anything that [`Self::encode`] does not write.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut request = Reader::new(value).sequence("conflictsRequest")?;
        let base = request.string("base")?.to_owned();
        let after = request.octets("after")?;
        let after = after.try_into().map(u64::from_be_bytes).unwrap_or(u64::MAX);
        request.finish("conflictsRequest")?;
        Ok(Self { base, after })
    }
}
