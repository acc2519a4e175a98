//! `overlay noopsrch`: a control that has a search count what it finds instead of sending it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_backend::{
    Context, Cursor, CursorAround, Effort, End, Interceptor, Next, Operations, Search, StepOutcome,
};
use larix_engine::controls::{OperationKind, OverlayControl};
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::{BuildContext, Descriptor};
use larix_engine::search::task::Budget;
use larix_proto::ber::{Tag, write};
use larix_proto::{ControlBuf, LdapResult, Response, ResultCode, Strings, frames};

pub static DESCRIPTOR: Descriptor = Descriptor::in_front("noopsrch", "olcOverlayConfig").once();

/// Request and response have the same.
const OID: &str = "1.3.6.1.4.1.4203.666.5.18";

static CONTROLS: [OverlayControl; 1] = [OverlayControl {
    oid: OID,
    name: "No-op Search",
    listed: true,
    goes_with: |operation| operation == OperationKind::Search,
    fault: |value| value.map(|_| "is present"),
}];

/// A list of attributes with `1.1`: none is asked for (RFC 4511 section 4.5.1.8).
const NO_ATTRIBUTES: &[u8] = b"\x04\x031.1";

/// The overlay in front of one database, or of all.
#[derive(Debug)]
struct NoOpSearch;

pub fn build(_: &Settings, _: &BuildContext<'_>) -> Result<Arc<dyn Interceptor>, SettingError> {
    Ok(Arc::new(NoOpSearch))
}

impl Interceptor for NoOpSearch {
    fn requests(&self) -> Operations {
        Operations::SEARCH
    }

    fn controls(&self) -> &'static [OverlayControl] {
        &CONTROLS
    }

    fn counts_answers(&self) -> bool {
        true
    }

    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        mut search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        if search.controls.of_overlay(OID).is_none() {
            return next.open(context, search);
        }
        // The client's limit is about entries that it receives. The answer says whether there would be more.
        let limit = std::mem::take(&mut search.request.size_limit);
        search.request.attributes = Strings::check(NO_ATTRIBUTES, "attributes").unwrap_or_default();
        // Another server would count as well, and send nothing to count.
        search.controls = search.controls.without(OID);
        match next.open(context, search) {
            Ok(inner) => {
                Ok(Box::new(Counting { inner, limit, found: Vec::new(), entries: 0, references: 0 }))
            }
            Err(mut end) => {
                end.1.push(counted(end.0.code, 0, 0));
                Err(end)
            }
        }
    }
}

/// The response control: the code that the search would have ended with, entries and continuation references.
fn counted(code: ResultCode, entries: u32, references: u32) -> ControlBuf {
    let mut value = Vec::new();
    write::constructed(&mut value, Tag::SEQUENCE, |out| {
        for number in [code.0, entries, references] {
            write::integer(out, Tag::INTEGER, i64::from(number));
        }
    });
    ControlBuf { oid: OID.into(), critical: false, value: Some(value) }
}

/// A search whose entries are counted.
#[derive(Debug)]
struct Counting {
    inner: Box<dyn Cursor>,
    /// The client's size limit; 0 is no limit.
    limit: u32,
    /// What one slice has found.
    found: Vec<u8>,
    entries: u32,
    references: u32,
}

impl Counting {
    /// Counts the messages of a slice, and passes on what is neither an entry nor a reference.
    fn count(&mut self, out: &mut Vec<u8>) {
        for message in frames(&self.found, usize::MAX) {
            match Response::decode_message(message).map(|message| message.response) {
                Ok(Response::Entry(_)) => self.entries = self.entries.saturating_add(1),
                Ok(Response::Reference(_)) => self.references = self.references.saturating_add(1),
                _ => out.extend_from_slice(message),
            }
        }
        self.found.clear();
    }

    fn ended(&self, result: &LdapResult) -> ControlBuf {
        let is_more = self.limit > 0 && self.entries > self.limit;
        let code = if is_more { ResultCode::SIZE_LIMIT_EXCEEDED } else { result.code };
        counted(code, self.entries, self.references)
    }
}

impl CursorAround for Counting {
    fn inner(&self) -> &dyn Cursor {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Cursor {
        &mut *self.inner
    }

    fn step_around(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let slice = self.inner.step(budget, &mut self.found);
        self.count(out);
        match slice {
            StepOutcome::Done(result, mut controls) => {
                controls.push(self.ended(&result));
                StepOutcome::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }

    fn effort_around(&self) -> Effort {
        Effort { entries: 0, ..self.inner.effort() }
    }
}
