//! The server's side: requests of one tool, one after another.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Duration;

use larix_engine::controls::{ControlValues, OperationKind, RequestControls};
use larix_engine::csn::Csn;
use larix_engine::load::Rebuild;
use larix_engine::replica::ReplicatedBatch;
use larix_engine::write::{Origin, WriteOperation, WriteOutcome, WriteRequest};
use larix_engine::{DnLocation, ServedDatabase};
use larix_proto::{Controls, ExtendedRequest, LdapResult, Message, Request, ResponseOp, ResultCode, encode};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;

use super::DoorState;
use super::protocol::{
    IMPORT_ENTRIES_MAX, IMPORT_OID, ImportRequest, Messages, RAISE_OID, REINDEX_OID, ReindexRequest,
    decode_csns, encode_results,
};
use crate::server::Server;

/// Between two looks at whether indexes are complete.
const LOOK: Duration = Duration::from_millis(20);

/// One tool and the database that it works on.
pub(super) struct Dialogue<'d> {
    pub(super) server: Arc<Server>,
    pub(super) served: Weak<ServedDatabase<LmdbStore>>,
    pub(super) state: &'d DoorState,
}

impl Dialogue<'_> {
    /// Answers until the tool ends, or the socket is closed.
    pub(super) fn run(&self, stream: UnixStream) {
        let Ok(input) = stream.try_clone() else { return };
        let (mut messages, mut output) = (Messages::new(input), stream);
        // What cannot be read or written has no one who waits for it.
        while let Ok(Some(bytes)) = messages.next() {
            let mut out = Vec::new();
            let goes_on = self.answer(&bytes, &mut out);
            if output.write_all(&out).is_err() || !goes_on {
                break;
            }
        }
    }

    /// Whether there may be more.
    fn answer(&self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let message = match Message::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                let result = LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string());
                encode::notice_of_disconnection(out, &result);
                return false;
            }
        };
        let Some(served) = self.served.upgrade().filter(|served| !served.is_retired()) else {
            let text = "the database has left the configuration";
            encode::notice_of_disconnection(out, &LdapResult::with(ResultCode::UNAVAILABLE, text));
            return false;
        };
        let (op, kind) = match &message.request {
            Request::Add(_) => (ResponseOp::Add, OperationKind::Add),
            Request::Modify(_) => (ResponseOp::Modify, OperationKind::Modify),
            Request::Delete(_) => (ResponseOp::Delete, OperationKind::Delete),
            Request::ModifyDn(_) => (ResponseOp::ModifyDn, OperationKind::ModifyDn),
            Request::Extended(request) => {
                let (result, value) = self.extended(&served, request);
                encode::extended_result(out, message.id, &result, None, value.as_deref(), &[]);
                return true;
            }
            Request::Unbind => return false,
            _ => {
                let text = "this socket takes changes from tools alone";
                let result = LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text);
                encode::notice_of_disconnection(out, &result);
                return false;
            }
        };
        let result = self.change(&served, message.request, message.controls, kind);
        encode::result(out, message.id, op, &result, &[]);
        true
    }

    fn change(
        &self,
        served: &Arc<ServedDatabase<LmdbStore>>,
        request: Request<'_>,
        sent: Controls<'_>,
        kind: OperationKind<'_>,
    ) -> LdapResult {
        let controls = match RequestControls::parse(sent, kind) {
            Ok(controls) => controls,
            Err(refused) => return refused,
        };
        let operation = match request {
            Request::Add(request) => WriteOperation::from(request),
            Request::Modify(request) => WriteOperation::from(request),
            Request::ModifyDn(request) => WriteOperation::from(request),
            Request::Delete(entry) => WriteOperation::Delete { entry: entry.to_owned() },
            _ => return LdapResult::new(ResultCode::PROTOCOL_ERROR),
        };
        self.carry_out(served, vec![request_of(served, operation, controls)]).result
    }

    /// Carries out changes together, all or none, and waits until they are durable.
    fn carry_out(
        &self,
        served: &Arc<ServedDatabase<LmdbStore>>,
        requests: Vec<WriteRequest>,
    ) -> WriteOutcome {
        let generation = self.server.generation_in_force();
        let databases = &generation.databases;
        let locate = |dn: &NormalDn| match databases.stored(dn) {
            Some(holder) if Arc::ptr_eq(holder, served) => DnLocation::Here,
            Some(_) => DnLocation::Elsewhere,
            None => DnLocation::Nowhere,
        };
        for (at, request) in requests.iter().enumerate() {
            // A name that cannot be read is refused in the usual words.
            let Ok(dn) = databases.schema().parse_dn(request.operation.target()) else { continue };
            if locate(&dn) != DnLocation::Here {
                let text = "not in the database that the tool works on";
                let result = LdapResult::with(ResultCode::NAMING_VIOLATION, text);
                return WriteOutcome { refused: Some(at), ..WriteOutcome::from(result) };
            }
        }
        let (send, receive) = mpsc::channel();
        databases.directory().at(served).submit_all(
            requests,
            &locate,
            Box::new(move |outcome| {
                // The receiver waits below: it is gone only with this thread.
                let _ = send.send(outcome);
            }),
        );
        receive.recv().unwrap_or_else(|_| unavailable("the writer ended without an answer").into())
    }

    fn extended(
        &self,
        served: &Arc<ServedDatabase<LmdbStore>>,
        request: &ExtendedRequest<'_>,
    ) -> (LdapResult, Option<Vec<u8>>) {
        let value = request.value.unwrap_or_default();
        let damaged = |error: larix_proto::DecodeError| {
            (LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string()), None)
        };
        match request.name {
            IMPORT_OID => match ImportRequest::decode(value) {
                Ok(import) if import.entries.len() > IMPORT_ENTRIES_MAX => {
                    let text = format!("more than {IMPORT_ENTRIES_MAX} entries at once");
                    (LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text), None)
                }
                Ok(import) => (LdapResult::success(), Some(encode_results(&self.import(served, import)))),
                Err(error) => damaged(error),
            },
            REINDEX_OID => match ReindexRequest::decode(value) {
                Ok(request) => (self.reindex(served, &request), None),
                Err(error) => damaged(error),
            },
            RAISE_OID => match decode_csns(value) {
                Ok(csns) => (raise(served, &csns), None),
                Err(error) => damaged(error),
            },
            _ => {
                let text =
                    "an extended operation that this server does not know: is the tool of another version?";
                (LdapResult::with(ResultCode::PROTOCOL_ERROR, text), None)
            }
        }
    }

    /// What became of each entry, up to the first refusal unless it goes on behind one. Where one is refused, those before
    /// it are carried out once more without it: none is carried out more than twice.
    fn import(&self, served: &Arc<ServedDatabase<LmdbStore>>, request: ImportRequest) -> Vec<LdapResult> {
        let ImportRequest { import, go_on, entries } = request;
        let requests: Vec<WriteRequest> = entries
            .into_iter()
            .map(|entry| {
                let operation = WriteOperation::Add { entry: entry.dn, attributes: entry.attributes };
                let controls =
                    RequestControls::from(ControlValues { import: Some(import), ..ControlValues::default() });
                request_of(served, operation, controls)
            })
            .collect();
        let mut results = Vec::with_capacity(requests.len());
        let mut rest = requests.as_slice();
        while !rest.is_empty() {
            let outcome = self.carry_out(served, rest.to_vec());
            if outcome.result.is_success() {
                results.extend(rest.iter().map(|_| LdapResult::success()));
                break;
            }
            let at = outcome.refused.unwrap_or(0).min(rest.len() - 1);
            let (before, behind) = rest.split_at(at);
            if !before.is_empty() {
                let again = self.carry_out(served, before.to_vec());
                if !again.result.is_success() {
                    results.push(again.result);
                    return results;
                }
                results.extend(before.iter().map(|_| LdapResult::success()));
            }
            let ends =
                outcome.refused.is_none() || !go_on && outcome.result.code != ResultCode::NO_SUCH_OBJECT;
            results.push(outcome.result);
            if ends {
                break;
            }
            rest = behind.get(1..).unwrap_or_default();
        }
        results
    }

    /// Has the writer make indexes anew beside changes, and waits until they are complete.
    fn reindex(&self, served: &Arc<ServedDatabase<LmdbStore>>, request: &ReindexRequest) -> LdapResult {
        let database = served.database();
        let (schema, catalog) = (database.schema(), database.catalog());
        let settings = database.settings();
        let mut numbers = Vec::new();
        let mut without_index = None;
        for name in &request.attributes {
            match schema.describe(name) {
                Ok(description) => {
                    if without_index.is_none() && !settings.is_indexed(&schema, &description) {
                        without_index = Some(name);
                    }
                    numbers.extend_from_slice(catalog.covered(&schema, &description).as_slice())
                }
                Err(error) => {
                    let text = format!("{name}: {error}");
                    return LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, text);
                }
            }
        }
        let what = match (request.attributes.is_empty(), request.stale) {
            (false, _) => Rebuild::Attributes(numbers),
            (true, true) => Rebuild::Stale,
            (true, false) => Rebuild::All,
        };
        if let Err(error) = served.reindex(what) {
            return LdapResult::with(ResultCode::OTHER, error.to_string());
        }
        loop {
            if self.state.is_closing() || served.is_retired() {
                return unavailable(
                    "the server is being stopped: it goes on with the indexes when it is started",
                );
            }
            if let Some(refusal) = database.store().refusal() {
                return unavailable(&refusal.to_string());
            }
            if let Some(failure) = database.index_work().get().and_then(|work| work.failure) {
                return LdapResult::with(ResultCode::OTHER, failure);
            }
            if database.catalog().stale().next().is_none() {
                let Some(name) = without_index else { return LdapResult::success() };
                let text = format!(
                    "no index is configured for {name}, and none was made: add a line such as `index {name} eq` first"
                );
                return LdapResult::with(ResultCode::NO_SUCH_ATTRIBUTE, text);
            }
            thread::park_timeout(LOOK);
        }
    }
}

/// In the name of the root DN, as the tools do it offline.
fn request_of(
    served: &ServedDatabase<LmdbStore>,
    operation: WriteOperation,
    controls: RequestControls,
) -> WriteRequest {
    let subject = served.root_subject();
    WriteRequest { operation, subject, controls, origin: Origin::Client, passwords: None }
}

fn raise(served: &ServedDatabase<LmdbStore>, csns: &[String]) -> LdapResult {
    let parsed: Result<Vec<Csn>, _> = csns.iter().map(|csn| csn.parse()).collect();
    let context_csns = match parsed {
        Ok(csns) => csns,
        Err(error) => return LdapResult::with(ResultCode::PROTOCOL_ERROR, format!("contextCSN: {error}")),
    };
    let (send, receive) = mpsc::channel();
    let batch = ReplicatedBatch { context_csns, ..ReplicatedBatch::default() };
    served.replicate(
        batch,
        Box::new(move |outcome| {
            // As above.
            let _ = send.send(outcome.result);
        }),
    );
    receive.recv().unwrap_or_else(|_| unavailable("the writer ended without an answer"))
}

fn unavailable(text: &str) -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, text)
}
