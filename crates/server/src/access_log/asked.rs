//! What the access log keeps of a request while it is under way.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::audit::{Facts, Operation, Request as Asked, Searched};
use larix_engine::database::Limits;
use larix_engine::log::{LoggedAttribute, LoggedKind, LoggedModification};
use larix_engine::time::Clock;
use larix_engine::write::{AttributeValues, WriteOperation, WriteOutcome};
use larix_proto::{
    Authentication, ControlBuf, Controls, DerefAliases, Dn, LdapResult, Message, ModifyOperation, Request,
    Scope, SearchRequest,
};
use larix_schema::{NormalDn, Schema};

use super::{Recorder, SourceKind, WithResult};
use crate::clock::SystemClock;
use crate::databases::Databases;
use crate::dispatch::Dispatcher;
use crate::secrets::{WITHHELD, is_secret_in};

/// A request that is to be recorded at its end.
#[derive(Debug)]
pub(crate) struct Noted {
    recorder: Arc<Recorder>,
    asked: Asked,
    facts: Facts,
    clock: Arc<SystemClock>,
}

impl Noted {
    /// In whose name it is carried out.
    pub(crate) fn acts_as(&mut self, subject: &Subject) {
        subject.shown_dn().clone_into(&mut self.facts.authorization);
    }

    /// What was answered, and how many entries before it.
    pub(crate) fn ended(mut self, result: &LdapResult, entries: u64) {
        if let Asked::Search(search) = &mut self.asked {
            search.entries = entries;
        }
        self.facts.end = self.clock.now();
        self.recorder.ended(self.asked, self.facts.with_result(result));
    }

    /// The writer is done with the change.
    pub(crate) fn changed(mut self, outcome: &WriteOutcome) {
        self.facts.end = self.clock.now();
        self.recorder.changed(self.asked, self.facts, outcome);
    }
}

impl Dispatcher {
    /// Notes a request, if it is to be recorded.
    pub(crate) fn note_for_log(&self, message: &Message<'_>) -> Option<Noted> {
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
        let asked = self.asked(databases.schema(), &message.request, &recorder)?;
        let shown = Dn::parse(target).ok().and_then(|dn| databases.schema().pretty_dn(&dn).ok());
        let authorization = match operation {
            // Whoever binds is nobody until that is done.
            Operation::Bind => String::new(),
            _ => self.session.subject().shown_dn().to_owned(),
        };
        let facts = Facts { authorization, dn: shown, ..self.facts(message.controls) };
        Some(Noted { recorder, asked, facts, clock: Arc::clone(&self.server.clock) })
    }

    /// Notes a change that the server makes for a request of another kind.
    pub(crate) fn note_change(&self, operation: &WriteOperation, subject: &Subject) -> Option<Noted> {
        if !self.server.access_logs.any() {
            return None;
        }
        let databases = self.server.databases();
        let dn = databases.schema().parse_dn(operation.target()).ok()?;
        let (kind, asked) = asked_change(databases.schema(), operation);
        let recorder = self.recorder_at(&databases, &dn, kind)?;
        let shown = Some(operation.target().to_owned());
        let authorization = subject.shown_dn().to_owned();
        let facts = Facts { authorization, dn: shown, ..self.facts(Controls::default()) };
        Some(Noted { recorder, asked, facts, clock: Arc::clone(&self.server.clock) })
    }

    /// Notes changes that are made together: what they were about is told by the change log.
    pub(crate) fn note_transaction(&self, first: &WriteOperation, subject: &Subject) -> Option<Noted> {
        let mut noted = self.note_change(first, subject)?;
        noted.facts.dn = None;
        Some(noted)
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
            self.record_at_once(&recorder, Asked::Unbind);
        }
    }

    /// Records an abandon wherever that is wanted: nobody knows what it is about.
    pub(crate) fn record_abandon(&self, id: u32) {
        if !self.server.access_logs.any() {
            return;
        }
        for recorder in self.server.access_logs.recorders_of(Operation::Abandon) {
            self.record_at_once(&recorder, Asked::Abandon { id: i32::try_from(id).unwrap_or(i32::MAX) });
        }
    }

    fn record_at_once(&self, recorder: &Arc<Recorder>, asked: Asked) {
        let authorization = self.session.subject().shown_dn().to_owned();
        let facts = self.facts(Controls::default());
        let end = self.server.clock.now();
        recorder.ended(asked, Facts { authorization, end, ..facts });
    }

    fn recorder_at(
        &self,
        databases: &Databases,
        dn: &NormalDn,
        operation: Operation,
    ) -> Option<Arc<Recorder>> {
        if dn.is_within(&NormalDn::from_normal("cn=config")) {
            return self.server.access_logs.recorder_of_configuration(operation, Some(dn));
        }
        let served = databases.directory().select(dn)?;
        self.server.access_logs.recorder(served, operation, Some(dn))
    }

    fn facts(&self, controls: Controls<'_>) -> Facts {
        let start = self.server.clock.now();
        let controls = controls.iter().map(|control| ControlBuf {
            oid: control.oid.to_owned().into(),
            critical: control.critical,
            value: control.value.map(<[u8]>::to_vec),
        });
        Facts {
            session: self.record.number,
            start,
            end: start,
            controls: controls.collect(),
            ..Facts::default()
        }
    }

    fn asked(&self, schema: &Schema, request: &Request<'_>, recorder: &Recorder) -> Option<Asked> {
        // What was done is told by the change log: the request itself is of use where it fails.
        let untold = recorder.settings.success_only;
        Some(match request {
            Request::Search(request) => Asked::Search(Box::new(self.searched(request, recorder))),
            Request::Bind(request) => Asked::Bind {
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
                Asked::Compare { assertion: [request.attribute.as_bytes(), b"=", value].concat() }
            }
            Request::Modify(_) if untold => Asked::Modify(Vec::new()),
            Request::Add(_) if untold => Asked::Add(Vec::new()),
            Request::Modify(request) => asked_change(schema, &WriteOperation::from(*request)).1,
            Request::Add(request) => asked_change(schema, &WriteOperation::from(*request)).1,
            Request::Delete(_) => Asked::Delete,
            Request::ModifyDn(request) => asked_change(schema, &WriteOperation::from(*request)).1,
            Request::Extended(_) | Request::Unbind | Request::Abandon(_) => return None,
        })
    }

    /// The limits are those in force: none for the root DN, the database's own where the client asks for none.
    fn searched(&self, request: &SearchRequest<'_>, recorder: &Recorder) -> Searched {
        let subject = self.session.subject();
        let (is_root, limits) = match &recorder.source.origin {
            SourceKind::Database(served) => {
                let database = served.database();
                (database.current_policy().is_root(subject), database.current_settings().limits)
            }
            SourceKind::Configuration(_) => {
                let policy = self.server.databases().configuration_policy();
                (policy.is_some_and(|policy| policy.is_root(subject)), Limits::default())
            }
        };
        let limit = |asked: u32, soft: Option<u32>| match (asked, soft) {
            (0, _) if is_root => -1,
            (0, soft) => soft.map_or(-1, i64::from),
            (asked, _) => i64::from(asked),
        };
        Searched {
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
            filter: request.filter.to_string(),
            attributes: request.attributes.iter().map(str::to_owned).collect(),
            entries: 0,
            time_limit: limit(request.time_limit, limits.time_soft),
            size_limit: limit(request.size_limit, limits.size_soft),
        }
    }
}

/// What a change asks for, without secrets: the change log has what was done.
fn asked_change(schema: &Schema, operation: &WriteOperation) -> (Operation, Asked) {
    let attribute = |AttributeValues { description, values }: &AttributeValues| LoggedAttribute {
        description: description.clone(),
        values: match is_secret_in(schema, description) {
            true => values.iter().map(|_| WITHHELD.into()).collect(),
            false => values.clone(),
        },
    };
    match operation {
        WriteOperation::Add { attributes, .. } => {
            (Operation::Add, Asked::Add(attributes.iter().map(attribute).collect()))
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
            (Operation::Modify, Asked::Modify(changes.iter().map(modification).collect()))
        }
        WriteOperation::Delete { .. } => (Operation::Delete, Asked::Delete),
        WriteOperation::ModifyDn { new_rdn, delete_old_rdn, new_superior, .. } => {
            let (new_rdn, new_superior) = (new_rdn.clone(), new_superior.clone());
            let delete_old_rdn = *delete_old_rdn;
            (Operation::ModifyDn, Asked::ModifyDn { new_rdn, delete_old_rdn, new_superior })
        }
    }
}
