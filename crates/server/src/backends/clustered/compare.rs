//! A compare. If the cache lacks something, or this node is to read what is newest, it is [answered later](super::late).

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_proto::{CompareRequest, LdapResult};
use larix_schema::NormalDn;

use super::late::{LateRequest, answer_later};
use super::{ClusteredBackend, SharedDatabase};
use crate::backends::bind_judge::compared_attempt;
use larix_backend::{Compare, Context, Done, End, Later, Reply};

struct LateCompare {
    subject: Arc<Subject>,
    dn: NormalDn,
    entry: String,
    attribute: String,
    value: Vec<u8>,
    controls: RequestControls,
    done: Done<End>,
}

impl LateRequest for LateCompare {
    type Lookup = LdapResult;

    fn read(self, handle: &SharedDatabase) {
        let Self { subject, dn, entry, attribute, value, controls, done } = self;
        let request = CompareRequest { entry: &entry, attribute: &attribute, value: &value };
        let compared = handle.read(|| handle.compared(&subject, (&dn, &request), &controls));
        let result = compared.unwrap_or_else(|result| result);
        handle.judge_compare(result, (&dn, &request), &controls, done);
    }

    fn finish(self, _: &SharedDatabase, result: LdapResult) {
        (self.done)((result, Vec::new()));
    }

    fn refuse(self, result: LdapResult) {
        (self.done)((result, Vec::new()));
    }
}

impl ClusteredBackend {
    pub(super) fn answer_compare(
        &self,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let handle = match self.handle() {
            Ok(handle) => handle,
            Err(result) => return Reply::Now((result, Vec::new())),
        };
        let (dn, controls) = (compare.dn, compare.controls);
        // `None`: what uses up a code, or is judged as a bind is, goes to a thread.
        let read = || -> Result<Option<LdapResult>, LdapResult> {
            let result = handle.compared(context.subject, (dn, compare.request), controls)?;
            let attempt = compared_attempt(handle.chosen(), &result, (dn, compare.request), controls);
            Ok(attempt.is_none().then_some(result))
        };
        if let Some(Some(result)) = handle.at_hand(read) {
            return Reply::Now((result, Vec::new()));
        }
        let known = handle.as_known(read).and_then(|(as_of, result)| Some((as_of, result?)));
        let CompareRequest { entry, attribute, value } = *compare.request;
        let late_compare = LateCompare {
            subject: Arc::clone(context.subject),
            dn: dn.clone(),
            entry: entry.to_owned(),
            attribute: attribute.to_owned(),
            value: value.to_vec(),
            controls: controls.clone(),
            done: later(),
        };
        Reply::Later(answer_later(handle, late_compare, known))
    }
}
