//! The deletes that a provider sends after a pass over the content.
//!
//! A pass over the content does not show deletes. A consumer that has none of the deleted entries would raise its contextCSN
//! over the deletes and could not pass them on to servers that still have the entries. And a consumer that next goes through
//! the content of another provider, one that has not heard of a delete, would take the entry from there, and never receive
//! again what its contextCSN covers. So a Larix that goes through our content is sent the deletes, too, as
//! far as they are remembered; of a part of the entries only where it is a member.

use larix_engine::replica::deletes_after;
use larix_engine::search::Budget;
use larix_proto::extended::SyncInfo;
use larix_proto::{LdapResult, encode};
use larix_store::Store;
use uuid::Uuid;

use super::session::{SyncSearch, failed};

/// Where it is.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    part: usize,
    after: Option<Uuid>,
}

impl Tombstones {
    /// Goes on; answers whether it is done.
    pub(super) fn slice<S: Store>(
        &mut self,
        search: &SyncSearch<S>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        if !are_sent(search) {
            return Ok(true);
        }
        let Some(part) = search.parts.get(self.part) else { return Ok(true) };
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let limit = budget.candidates as usize;
        let deletes = deletes_after(&snapshot, self.after, limit).map_err(|fault| failed(&fault))?;
        let cookie = search.cookie(search.request.known.as_slice());
        for (uuid, csn) in &deletes {
            if out.len() >= budget.bytes {
                return Ok(false);
            }
            self.after = Some(*uuid);
            if search.request.known.covers(csn) {
                continue;
            }
            let cookie = format!("{cookie},delcsn={}", csn.text());
            let uuids = vec![*uuid.as_bytes()];
            let info = SyncInfo::IdSet { cookie: Some(cookie.as_bytes()), deletes: true, uuids };
            encode::intermediate(out, search.message, Some(SyncInfo::OID), Some(&info.encode()), &[]);
        }
        if deletes.len() < limit {
            *self = Self { part: self.part + 1, after: None };
        }
        Ok(self.part >= search.parts.len())
    }
}

/// Whether deletes are sent after the content. A consumer other than Larix deletes what the content does not name; into a part of
/// the tree entries come back under the entryUUID that they left it with.
pub(super) fn are_sent<S: Store>(search: &SyncSearch<S>) -> bool {
    search.request.peer && (search.request.sid.is_some() || search.any_entry)
}
