//! The target of a database for a thread that may wait: a consumer that writes there what it receives (slapd-ldap(5)).
//!
//! It is the database's root to the target: it goes by `acl-bind`.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use larix_backend::{Cursor as _, PendingAnswer, StepOutcome, slice};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::log::Follower;
use larix_engine::time::Clock;
use larix_engine::write::WriteOperation;
use larix_proto::{
    ControlBuf, Filter, Frame, LdapResult, Response, ResultCode, Scope, SearchResultEntry, frame, limits, oid,
};
use larix_schema::Schema;

use crate::identity::Asker;
use crate::proxy::Proxy;
use crate::request::{encode_update, encoded, kind_of};
use crate::search::{Judge, OutgoingSearch, TargetCursor};
use crate::settings::OPERATION_TIMEOUT;

/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(200);

/// A search of a target.
#[derive(Debug)]
pub struct TargetSearch<'a> {
    pub base: &'a str,
    pub scope: Scope,
    pub filter: Filter<'a>,
    pub attributes: &'a [&'a str],
}

/// The target of a database, for a thread that may wait.
#[derive(Clone)]
pub struct BlockingTarget {
    pub proxy: Arc<Proxy>,
    pub schema: Arc<Schema>,
    pub clock: Arc<dyn Clock>,
    /// Whether the thread is to stop.
    pub is_stopped: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for BlockingTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingTarget").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl BlockingTarget {
    /// Hands every entry that a search finds to `found`. References are passed over: referral entries are entries here.
    ///
    /// # Errors
    /// A result that is not success.
    pub fn search(
        &self,
        search: &TargetSearch<'_>,
        found: &mut dyn FnMut(&SearchResultEntry<'_>),
    ) -> Result<(), LdapResult> {
        let normal = self.schema.parse_dn(search.base).map_err(|error| {
            LdapResult::with(ResultCode::INVALID_DN_SYNTAX, format!("\"{}\": {error}", search.base))
        })?;
        let mut sent = Vec::new();
        manage_dsa_it().encode(&mut sent);
        let controls = RequestControls::from(ControlValues { sent, ..ControlValues::default() });
        let outgoing = OutgoingSearch {
            scope: search.scope,
            ..OutgoingSearch::own((search.base, &normal), search.filter, search.attributes, &controls)
        };
        let asker = self.asker();
        let open = Arc::new(AccessPolicy::open(Arc::clone(&self.schema), None));
        let judge = Judge::new(&self.proxy, (&self.schema, &open), &asker, &outgoing);
        let mut cursor = TargetCursor::new(&self.proxy, &asker, &outgoing, judge)?;
        cursor.be_patient_at_most(OPERATION_TIMEOUT);
        let (news, come): (Sender<()>, Receiver<()>) = channel();
        // Who waits for it may be gone.
        let tell = move || news.send(()).unwrap_or_default();
        cursor.follow(Follower::new(Box::new(tell)));
        let mut out = Vec::new();
        loop {
            let slice = cursor.step(slice(&*self.clock), &mut out);
            hand_over(&mut out, found)?;
            match slice {
                StepOutcome::More => {}
                StepOutcome::Waiting => self.wait(&come)?,
                StepOutcome::Done(result, _) if result.code == ResultCode::SUCCESS => return Ok(()),
                StepOutcome::Done(result, _) => return Err(result),
            }
        }
    }

    /// Carries out a change.
    ///
    /// # Errors
    /// A result that is not success; the thread is to stop.
    pub fn write(&self, operation: &WriteOperation) -> Result<(), LdapResult> {
        let asker = self.asker();
        let request_context = self.proxy.request_context(&asker, 0, kind_of(operation))?;
        let mut controls = vec![manage_dsa_it()];
        controls.extend(self.proxy.controls_of_none(&request_context, 0));
        let body = encoded(|out| encode_update(out, operation, &controls));
        let (sender, answer) = channel();
        let done = Box::new(move |result| sender.send(result).unwrap_or_default());
        let pending = self.proxy.submit(request_context, body, false, (done, |outcome| outcome.result));
        match self.wait(&answer) {
            Ok(result) if result.code == ResultCode::SUCCESS => Ok(()),
            Ok(result) => Err(result),
            Err(stopped) => {
                let PendingAnswer { give_up, .. } = pending;
                if let Some(give_up) = give_up {
                    give_up();
                }
                Err(stopped)
            }
        }
    }

    fn asker(&self) -> Asker {
        Asker {
            subject: Arc::new(Subject::default()),
            client: None,
            began: self.clock.monotonic(),
            is_root: true,
            root_acts: false,
        }
    }

    /// Waits for what comes; the thread of the connections ends every request some time.
    fn wait<T>(&self, come: &Receiver<T>) -> Result<T, LdapResult> {
        loop {
            match come.recv_timeout(LOOK) {
                Ok(what) => return Ok(what),
                Err(RecvTimeoutError::Timeout) if !(self.is_stopped)() => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(LdapResult::with(ResultCode::UNAVAILABLE, "the consumer is ended"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LdapResult::with(ResultCode::UNAVAILABLE, "the database is being closed"));
                }
            }
        }
    }
}

/// Referral entries are what they are.
fn manage_dsa_it() -> ControlBuf {
    ControlBuf { oid: oid::MANAGE_DSA_IT.into(), critical: false, value: None }
}

/// Hands the entries over that have come.
fn hand_over(out: &mut Vec<u8>, found: &mut dyn FnMut(&SearchResultEntry<'_>)) -> Result<(), LdapResult> {
    let mut rest = out.as_slice();
    while let Ok(Frame::Complete { len }) = frame(rest, limits::PDU_CEILING) {
        let (message, behind) = rest.split_at(len);
        rest = behind;
        let message = Response::decode_message(message).map_err(|error| {
            LdapResult::with(ResultCode::PROTOCOL_ERROR, format!("an answer of the target: {error}"))
        })?;
        if let Response::Entry(entry) = &message.response {
            found(entry);
        }
    }
    let consumed = out.len() - rest.len();
    out.drain(..consumed);
    Ok(())
}
