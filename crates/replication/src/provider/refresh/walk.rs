//! A pass over the whole content: everything is sent, or named as present.

use larix_engine::search::{Budget, Step};
use larix_proto::{LdapResult, ResultCode};
use larix_store::Store;

use crate::provider::session::{SyncSearch, failed};
use crate::provider::tombstones::Tombstones;

/// A pass over the whole content.
#[derive(Debug)]
pub(in crate::provider) struct Walk {
    part: usize,
    tombstones: Tombstones,
    present: bool,
}

impl Walk {
    pub(in crate::provider) fn new(present: bool) -> Self {
        Self { part: 0, tombstones: Tombstones::default(), present }
    }

    /// Whether consumers drop what was neither sent nor named.
    pub(in crate::provider) fn present(&self) -> bool {
        self.present
    }

    /// Goes on; answers whether it is done.
    pub(in crate::provider) fn slice<S: Store>(
        &mut self,
        search: &mut SyncSearch<S>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, LdapResult> {
        let message = search.message;
        if self.part >= search.parts.len() {
            return self.tombstones.slice(search, budget, out);
        }
        let Some(part) = search.parts.get_mut(self.part) else { return Ok(true) };
        let database = part.served.database()?;
        let snapshot = database.store().snapshot().map_err(|error| failed(&error.into()))?;
        let view = database.view(&snapshot).map_err(|fault| failed(&fault))?;
        let Step::Done(result, _) = part.task.step(&view, out, budget) else { return Ok(false) };
        if !(result.is_success() || (self.part > 0 && result.code == ResultCode::NO_SUCH_OBJECT)) {
            return Err(result);
        }
        if let Some(mut refresh) = part.task.take_refresh() {
            refresh.flush(message, out);
            part.view = refresh.view.unwrap_or_default();
        }
        let remaining = part.task.size_limit().map(|limit| limit.saturating_sub(part.task.entries()));
        self.part += 1;
        if let (Some(remaining), Some(next)) = (remaining, search.parts.get_mut(self.part)) {
            next.task.limit_size(remaining);
        }
        Ok(false)
    }
}
