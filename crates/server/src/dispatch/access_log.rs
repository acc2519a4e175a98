//! Requests that an access log records: what is noted of them while they are under way.

use larix_engine::access::Subject;
use larix_engine::audit::{AuditFacts, Operation, Request as LoggedRequest, SearchRecord};
use larix_engine::database::Limits;
use larix_engine::log::{LoggedAttribute, LoggedKind, LoggedModification};
use larix_engine::overlay::committed::ChangeOrigin;
use larix_engine::time::Clock;
use larix_engine::write::{AttributeValues, WriteOperation, WriteRequest};
use larix_proto::control::{Assertion, ControlValue as _, MatchedValues};
use larix_proto::{
    Authentication, Control, ControlBuf, Controls, DerefAliases, Dn, Filter, Message, ModifyOperation,
    Request, Scope, SearchRequest, oid,
};
use larix_schema::{NormalDn, Schema};

use super::Dispatcher;
use crate::access_log::{OperationRecorder, RecordedRequest, Records};
use crate::databases::Databases;
use crate::overlay_threads::NotedOrigin;
use crate::secrets::{WITHHELD, is_secret_in};

impl Dispatcher {
    /// Notes a request, if the access log records it.
    pub(crate) fn note_for_log(&self, message: &Message<'_>) -> Option<RecordedRequest> {
        let databases = self.server.databases();
        let (target, operation) = match &message.request {
            Request::Search(request) => (request.base, Operation::Search),
            Request::Bind(request) => (request.name, Operation::Bind),
            Request::Compare(request) => (request.entry, Operation::Compare),
            Request::Modify(request) => (request.object, Operation::Modify),
            Request::Add(request) => (request.entry, Operation::Add),
            Request::Delete(dn) => (*dn, Operation::Delete),
            Request::ModifyDn(request) => (request.entry, Operation::ModifyDn),
            Request::Extended(_) | Request::Unbind | Request::Abandon(_) => return None,
        };
        let dn = databases.schema().parse_dn(target).ok()?;
        let recorder = self.recorder_at(&databases, &dn, operation)?;
        let request = self.logged_request(databases.schema(), &message.request, &recorder)?;
        let shown_dn = Dn::parse(target).ok().and_then(|dn| databases.schema().pretty_dn(&dn).ok());
        let authorization = match operation {
            // A client that binds is anonymous until the bind is done.
            Operation::Bind => String::new(),
            _ => self.session.subject().shown_dn().to_owned(),
        };
        let facts = AuditFacts { authorization, dn: shown_dn, ..self.facts(message.controls) };
        Some(RecordedRequest::new(&recorder, request, facts, &self.server.clock))
    }

    /// Notes a change that the server makes for a request of another kind.
    pub(crate) fn note_change(
        &self,
        operation: &WriteOperation,
        subject: &Subject,
    ) -> Option<RecordedRequest> {
        if !self.server.access_logs.any() {
            return None;
        }
        let databases = self.server.databases();
        let dn = databases.schema().parse_dn(operation.target()).ok()?;
        let (kind, request) = logged_change(databases.schema(), operation);
        let recorder = self.recorder_at(&databases, &dn, kind)?;
        let shown_dn = Some(operation.target().to_owned());
        let authorization = subject.shown_dn().to_owned();
        let facts = AuditFacts { authorization, dn: shown_dn, ..self.facts(Controls::default()) };
        Some(RecordedRequest::new(&recorder, request, facts, &self.server.clock))
    }

    /// Notes changes that are to be made together: all of them if a log takes what fails, else the first.
    pub(crate) fn note_transaction(&self, requests: &[WriteRequest]) -> Vec<Option<RecordedRequest>> {
        let note = |request: &WriteRequest| self.note_change(&request.operation, &request.subject);
        let mut noted: Vec<_> = requests.iter().take(1).map(note).collect();
        if noted.iter().flatten().any(|first| !first.is_success_only()) {
            noted.extend(requests.iter().skip(1).map(note));
        }
        noted
    }

    /// What overlays that follow committed changes learn of the sender of this one; `None`: no overlay wants it.
    pub(crate) fn note_origin(&self, target: &str) -> Option<NotedOrigin> {
        if !self.server.overlay_threads.ask_origin() {
            return None;
        }
        let databases = self.server.databases();
        let dn = databases.schema().parse_dn(target).ok()?;
        let instance = databases.instance_at(&dn)?;
        let origin = ChangeOrigin {
            connection: self.record.number,
            peer: self.record.peer.clone(),
            bound: self.session.subject().shown_dn().to_owned(),
        };
        Some(self.server.overlay_threads.noted(instance, origin))
    }

    /// Records an unbind where the identity is from.
    pub(crate) fn record_unbind(&self) {
        if !self.server.access_logs.any() {
            return;
        }
        let databases = self.server.databases();
        let subject = self.session.subject();
        let Some(dn) = &subject.dn else { return };
        if let Some(recorder) = self.recorder_at(&databases, dn, Operation::Unbind) {
            self.record_at_once(&recorder.records(), LoggedRequest::Unbind);
        }
    }

    /// Records an abandon in every log that wants it: its database is not known.
    pub(crate) fn record_abandon(&self, id: u32) {
        if !self.server.access_logs.any() {
            return;
        }
        for records in self.server.access_logs.recorders_of(Operation::Abandon) {
            self.record_at_once(
                &records,
                LoggedRequest::Abandon { id: i32::try_from(id).unwrap_or(i32::MAX) },
            );
        }
    }

    fn record_at_once(&self, records: &Records, request: LoggedRequest) {
        let authorization = self.session.subject().shown_dn().to_owned();
        let facts = self.facts(Controls::default());
        let end = self.server.clock.now();
        records.ended(request, AuditFacts { authorization, end, ..facts });
    }

    fn recorder_at(
        &self,
        databases: &Databases,
        dn: &NormalDn,
        operation: Operation,
    ) -> Option<OperationRecorder> {
        let logs = &self.server.access_logs;
        if dn.is_within(&NormalDn::from_normal("cn=config")) {
            return logs.recorder_of_configuration(operation, Some(dn));
        }
        if let Some(served) = databases.stored(dn) {
            return logs.recorder(served, operation, Some(dn));
        }
        #[cfg(feature = "kv")]
        if let Some(instance) = databases.instance_at(dn) {
            return logs.recorder_of_shared(instance, operation, Some(dn));
        }
        None
    }

    fn facts(&self, controls: Controls<'_>) -> AuditFacts {
        let start = self.server.clock.now();
        let databases = self.server.databases();
        let controls = controls.iter().map(|control| ControlBuf {
            oid: control.oid.to_owned().into(),
            critical: control.critical,
            value: control.value.filter(|_| !has_secret(databases.schema(), &control)).map(<[u8]>::to_vec),
        });
        AuditFacts {
            session: self.record.number,
            start,
            end: start,
            controls: controls.collect(),
            ..AuditFacts::default()
        }
    }

    fn logged_request(
        &self,
        schema: &Schema,
        request: &Request<'_>,
        recorder: &OperationRecorder,
    ) -> Option<LoggedRequest> {
        // The change log says what a change did. The access log needs the request itself only if the change fails.
        let untold = recorder.is_success_only();
        Some(match request {
            Request::Search(request) => {
                LoggedRequest::Search(Box::new(self.searched(schema, request, recorder)))
            }
            Request::Bind(request) => LoggedRequest::Bind {
                version: request.version,
                method: match request.authentication {
                    Authentication::Simple(_) => "SIMPLE".to_owned(),
                    Authentication::Sasl { mechanism, .. } => format!("SASL({mechanism})"),
                    Authentication::Other(number) => format!("{number}"),
                },
            },
            Request::Compare(request) => {
                let value =
                    if is_secret_in(schema, request.attribute) { WITHHELD.as_bytes() } else { request.value };
                LoggedRequest::Compare { assertion: [request.attribute.as_bytes(), b"=", value].concat() }
            }
            Request::Modify(_) if untold => LoggedRequest::Modify(Vec::new()),
            Request::Add(_) if untold => LoggedRequest::Add(Vec::new()),
            Request::Modify(request) => logged_change(schema, &WriteOperation::from(*request)).1,
            Request::Add(request) => logged_change(schema, &WriteOperation::from(*request)).1,
            Request::Delete(_) => LoggedRequest::Delete,
            Request::ModifyDn(request) => logged_change(schema, &WriteOperation::from(*request)).1,
            Request::Extended(_) | Request::Unbind | Request::Abandon(_) => return None,
        })
    }

    /// The limits are those in force: none for the root DN, the database's own where the client asks for none.
    fn searched(
        &self,
        schema: &Schema,
        request: &SearchRequest<'_>,
        recorder: &OperationRecorder,
    ) -> SearchRecord {
        let subject = self.session.subject();
        let (is_root, limits) = match recorder.database() {
            Some(served) => {
                let database = served.database();
                let state = database.state();
                (state.policy.is_root(subject), state.settings.limits)
            }
            None => {
                let policy = self.server.databases().configuration_policy();
                (policy.is_some_and(|policy| policy.is_root(subject)), Limits::default())
            }
        };
        let limit = |requested: u32, soft: Option<u32>| match (requested, soft) {
            (0, _) if is_root => -1,
            (0, soft) => soft.map_or(-1, i64::from),
            (requested, _) => i64::from(requested),
        };
        SearchRecord {
            scope: match request.scope {
                Scope::Base => "base",
                Scope::OneLevel => "one",
                Scope::Subtree => "sub",
                Scope::Children => "subord",
            },
            deref: match request.deref {
                DerefAliases::Never => "never",
                DerefAliases::InSearching => "searching",
                DerefAliases::FindingBase => "finding",
                DerefAliases::Always => "always",
            },
            types_only: request.types_only,
            filter: request.filter.withholding(&|name| is_secret_in(schema, name)),
            attributes: request.attributes.iter().map(str::to_owned).collect(),
            entries: 0,
            time_limit: limit(request.time_limit, limits.time_soft),
            size_limit: limit(request.size_limit, limits.size_soft),
        }
    }
}

/// Whether the value of a control has a filter with a value of a secret attribute.
fn has_secret(schema: &Schema, control: &Control<'_>) -> bool {
    let compares =
        |filter: Filter<'_>| filter.withholding(&|name| is_secret_in(schema, name)) != filter.to_string();
    match control.oid {
        oid::ASSERTION => Assertion::decode(control.value).is_ok_and(|own| compares(own.filter)),
        oid::MATCHED_VALUES => {
            MatchedValues::decode(control.value).is_ok_and(|own| own.filters().iter().any(compares))
        }
        _ => false,
    }
}

/// What a change asks for, without secrets: the change log has what was done.
fn logged_change(schema: &Schema, operation: &WriteOperation) -> (Operation, LoggedRequest) {
    let attribute = |AttributeValues { description, values }: &AttributeValues| LoggedAttribute {
        description: description.clone(),
        values: match is_secret_in(schema, description) {
            true => values.iter().map(|_| WITHHELD.into()).collect(),
            false => values.clone(),
        },
    };
    match operation {
        WriteOperation::Add { attributes, .. } => {
            (Operation::Add, LoggedRequest::Add(attributes.iter().map(attribute).collect()))
        }
        WriteOperation::Modify { changes, .. } => {
            let modification = |change: &larix_engine::write::Modification| LoggedModification {
                kind: match change.operation {
                    ModifyOperation::Add => LoggedKind::Add,
                    ModifyOperation::Delete => LoggedKind::Delete,
                    ModifyOperation::Replace => LoggedKind::Replace,
                    ModifyOperation::Increment => LoggedKind::Increment,
                },
                attribute: attribute(&change.attribute),
            };
            (Operation::Modify, LoggedRequest::Modify(changes.iter().map(modification).collect()))
        }
        WriteOperation::Delete { .. } => (Operation::Delete, LoggedRequest::Delete),
        WriteOperation::ModifyDn { new_rdn, delete_old_rdn, new_superior, .. } => {
            let (new_rdn, new_superior) = (new_rdn.clone(), new_superior.clone());
            let delete_old_rdn = *delete_old_rdn;
            (Operation::ModifyDn, LoggedRequest::ModifyDn { new_rdn, delete_old_rdn, new_superior })
        }
    }
}
