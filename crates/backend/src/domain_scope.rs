//! Searches under the domain scope control (1.2.840.113556.1.4.1339): no backend's referrals and references reach the client, as in
//! OpenLDAP.

use larix_engine::search::task::Budget;
use larix_proto::ber::Reader;
use larix_proto::{LdapResult, ResultCode, frames, limits};

use crate::cursor::{Cursor, CursorAround, End, StepOutcome};

/// The tag of a search reference (RFC 4511 section 4.5.3).
const REFERENCE: u8 = 0x73;

/// A search whose references are left out, and whose referral is noSuchObject.
#[derive(Debug)]
pub(crate) struct WithoutReferrals {
    inner: Box<dyn Cursor>,
    /// What the backend has answered in this slice.
    buffer: Vec<u8>,
}

impl WithoutReferrals {
    pub(crate) fn new(inner: Box<dyn Cursor>) -> Self {
        Self { inner, buffer: Vec::new() }
    }

    /// The end of such a search.
    pub(crate) fn end((result, controls): End) -> End {
        let result = match result.code {
            ResultCode::REFERRAL => {
                LdapResult { code: ResultCode::NO_SUCH_OBJECT, referrals: Vec::new(), ..result }
            }
            _ => result,
        };
        (result, controls)
    }
}

impl CursorAround for WithoutReferrals {
    fn inner(&self) -> &dyn Cursor {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Cursor {
        &mut *self.inner
    }

    fn step_around(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let room = budget.bytes.saturating_sub(out.len());
        let slice = self.inner.step(Budget { bytes: room, ..budget }, &mut self.buffer);
        for message in frames(&self.buffer, limits::PDU_CEILING).filter(|message| !is_reference(message)) {
            out.extend_from_slice(message);
        }
        self.buffer.clear();
        match slice {
            StepOutcome::Done(result, controls) => {
                let (result, controls) = Self::end((result, controls));
                StepOutcome::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }
}

fn is_reference(message: &[u8]) -> bool {
    let mut reader = Reader::new(message);
    let operation = reader.sequence("LDAPMessage").and_then(|mut message| {
        message.element("messageID")?;
        Ok(message.peek())
    });
    operation.is_ok_and(|tag| tag.is_some_and(|tag| tag.0 == REFERENCE))
}
