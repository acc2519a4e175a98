//! The CSN of a change that another server has made, and the wait for it (`chain-wait-replicated`).

use std::sync::Arc;
use std::time::Duration;

use larix_backend::{Done, ReplicaProgress};
use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::csn::Csn;
use larix_engine::log::CsnVector;
use larix_engine::write::WriteOperation;
use larix_proto::control::{ControlValue, PostReadRequest, PostReadResponse};
use larix_proto::{Attributes, ControlBuf, FilterBuf, LdapResult, Response, Strings, frames, limits, oid};

use super::following::{OriginalRequest, Request};
use super::links::Links;
use super::waiting::{WaitOutcome, Waiting};
use crate::identity::Asker;
use crate::job::Outcome;
use crate::lookup;
use crate::proxy::Proxy;
use crate::search::{Judge, OutgoingSearch, TargetCursor};

const ENTRY_CSN: &str = "entryCSN";
const CONTEXT_CSN: &str = "contextCSN";
/// A list of attributes in BER: entryCSN alone.
const ENTRY_CSN_LIST: &[u8] = b"\x04\x08entryCSN";

/// The control that asks for the CSN of a change, where there will be one and the client does not ask for the entry itself.
pub(super) fn csn_control(original: &OriginalRequest) -> Option<ControlBuf> {
    let attributes = Strings::check(ENTRY_CSN_LIST, "attributes").ok()?;
    // The change does not fail for what the client may not read.
    adds_post_read(original).then(|| PostReadRequest { attributes }.to_control(false))
}

fn adds_post_read(original: &OriginalRequest) -> bool {
    let leaves_entry = match &original.request {
        Request::Update(operation) => !matches!(operation, WriteOperation::Delete { .. }),
        _ => false,
    };
    leaves_entry && original.controls.post_read.is_none()
}

/// What an entry says of a CSN.
fn csns(attributes: Attributes<'_>, name: &str) -> CsnVector {
    let named = attributes.iter().filter(|one| one.description.eq_ignore_ascii_case(name));
    let texts = named.flat_map(|one| one.values.iter()).filter_map(|value| std::str::from_utf8(value).ok());
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// The CSN of a change in its answer, without the control that [`csn_control`] has asked for.
pub(super) fn take_csn(original: &OriginalRequest, controls: &mut Vec<ControlBuf>) -> Option<Csn> {
    let is_it = |control: &ControlBuf| control.oid == oid::POST_READ;
    let csn = controls.iter().filter(|control| is_it(control)).find_map(|control| {
        let read = PostReadResponse::decode(control.value.as_deref()).ok()?;
        csns(read.attributes, ENTRY_CSN).as_slice().first().copied()
    });
    // The client did not ask for it.
    if adds_post_read(original) {
        controls.retain(|control| !is_it(control));
    }
    csn
}

/// A change of a shadow that another server has made.
pub(super) struct Written {
    pub(super) links: Arc<Links>,
    /// The server that has made it.
    pub(super) proxy: Arc<Proxy>,
    pub(super) progress: Arc<dyn ReplicaProgress>,
}

impl Written {
    /// Answers when the change with this CSN has come back, and at the deadline all the same: it was made.
    pub(super) fn wait(
        self,
        original: &OriginalRequest,
        csn: Option<Csn>,
        mut outcome: Outcome,
        done: Done<Outcome>,
    ) {
        let Some(waiting) = &self.links.waiting else { return done(outcome) };
        let deadline = waiting.deadline();
        let links = Arc::clone(&self.links);
        let target = original.target.clone();
        let end: End = Box::new(move |wait_end| {
            if let Some(text) =
                links.waiting.as_ref().and_then(|waiting| wait_text(&links, waiting, &target, wait_end))
            {
                add_text(&mut outcome.result, &text);
            }
            done(outcome);
        });
        match csn {
            Some(csn) => self.wait_for(vec![csn], deadline, end),
            None => self.read_context(deadline, end),
        }
    }

    fn wait_for(self, csns: Vec<Csn>, deadline: Duration, end: End) {
        match &self.links.waiting {
            Some(waiting) => {
                let end = Box::new(move |outcome| end(WaitEnd::Outcome(outcome)));
                waiting.wait(Arc::clone(&self.progress), csns, deadline, end);
            }
            None => end(WaitEnd::Outcome(WaitOutcome::Unknown)),
        }
    }

    /// Waits for all that the server has now, as this overlay may read it there.
    fn read_context(self, deadline: Duration, end: End) {
        let asker = Asker {
            subject: Arc::new(Subject::default()),
            client: None,
            began: self.links.clock.monotonic(),
            is_root: true,
            root_acts: false,
        };
        let cursor = match self.search_of_context(&asker) {
            Ok(mut cursor) => {
                cursor.end_by(deadline);
                cursor
            }
            Err(why) => return end(WaitEnd::Unread(why)),
        };
        let clock = Arc::clone(&self.links.clock);
        // It ends by its deadline; nobody gives it up before.
        drop(lookup::read(
            Box::new(cursor),
            clock,
            Box::new(move |found| match found.map(|found| context_csns(&found.unwrap_or_default())) {
                Ok(csns) if !csns.is_empty() => self.wait_for(csns.as_slice().to_vec(), deadline, end),
                Ok(_) => end(WaitEnd::Unread("it shows no contextCSN".to_owned())),
                Err(result) => end(WaitEnd::Unread(format!("{} {}", result.code.0, result.diagnostic))),
            }),
        ));
    }

    fn search_of_context(&self, asker: &Asker) -> Result<TargetCursor, String> {
        let base = self.progress.suffix();
        let normal = self.links.schema.parse_dn(base).map_err(|error| error.to_string())?;
        let filter = FilterBuf::every_entry();
        let controls = RequestControls::default();
        let outgoing = OutgoingSearch {
            size_limit: 1,
            ..OutgoingSearch::own((base, &normal), filter.as_filter(), &[CONTEXT_CSN], &controls)
        };
        let judge = Judge::new(&self.proxy, (&self.links.schema, &self.links.open_policy), asker, &outgoing);
        TargetCursor::new(&self.proxy, asker, &outgoing, judge)
            .map_err(|refused| format!("{} {}", refused.code.0, refused.diagnostic))
    }
}

/// How waiting for a change ended.
enum WaitEnd {
    Outcome(WaitOutcome),
    /// How far the server is could not be read.
    Unread(String),
}

type End = Box<dyn FnOnce(WaitEnd) + Send>;

/// The contextCSN in the messages of a search.
fn context_csns(messages: &[u8]) -> CsnVector {
    let mut found = CsnVector::default();
    for message in frames(messages, limits::PDU_CEILING) {
        if let Ok(message) = Response::decode_message(message)
            && let Response::Entry(entry) = &message.response
        {
            found.extend(csns(entry.attributes, CONTEXT_CSN).as_slice().iter().copied());
        }
    }
    found
}

/// What the client and the log learn of a change that has not come back; none: it has.
fn wait_text(links: &Links, waiting: &Waiting, target: &str, end: WaitEnd) -> Option<String> {
    let seconds = waiting.time.as_secs();
    let (client, log) = match end {
        WaitEnd::Outcome(WaitOutcome::Arrived) => return None,
        WaitEnd::Outcome(WaitOutcome::Late) => (
            format!("the change is made; it has not come back to this server within {seconds} seconds"),
            format!("has not come back by replication within {seconds} seconds"),
        ),
        WaitEnd::Outcome(WaitOutcome::TooMany) => {
            (NOT_AWAITED.to_owned(), "was not waited for: too many wait".to_owned())
        }
        WaitEnd::Outcome(WaitOutcome::Unknown) => (
            NOT_AWAITED.to_owned(),
            "was not waited for: the database was closed, or no thread is left".to_owned(),
        ),
        WaitEnd::Unread(why) => {
            let why = why.escape_debug();
            (
                NOT_AWAITED.to_owned(),
                format!("was not waited for: the contextCSN of the provider cannot be read: {why}"),
            )
        }
    };
    waiting.late.count(links.clock.monotonic(), || {
        format!("a change of \"{}\" that the provider has made {log}", target.escape_debug())
    });
    Some(client)
}

/// What the client learns where nothing is known.
const NOT_AWAITED: &str = "the change is made; it may not have come back to this server yet";

pub(super) fn add_text(result: &mut LdapResult, text: &str) {
    if !result.diagnostic.is_empty() {
        result.diagnostic.push_str("; ");
    }
    result.diagnostic.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_asks_for_the_csn_alone() {
        let attributes = Strings::check(ENTRY_CSN_LIST, "attributes").unwrap();
        assert_eq!(attributes.iter().collect::<Vec<_>>(), [ENTRY_CSN]);
    }
}
