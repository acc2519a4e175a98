//! One operation, as OTLP has it in JSON (opentelemetry-proto 1, trace.v1).

use larix_engine::time::Timestamp;
use larix_proto::ResultCode;
use serde_json::{Value, json};

use super::random;

/// OTLP's SPAN_KIND_SERVER.
const SERVER: u8 = 2;
/// OTLP's STATUS_CODE_ERROR.
const ERROR: u8 = 2;

/// An operation that has ended. No name, filter or value of it: what a request was about stays in the log.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// Of a request: `search`, `bind`, ...
    pub(crate) operation: &'static str,
    /// When its last byte was read.
    pub(crate) arrived: Timestamp,
    /// Nanoseconds from there to its start, and from its start to its end.
    pub(crate) waited: u64,
    pub(crate) taken: u64,
    pub(crate) code: ResultCode,
    /// Entries sent and looked at, of a search.
    pub(crate) entries: Option<(u64, u64)>,
    /// The database's suffix, if it was in one.
    pub(crate) database: Option<String>,
    pub(crate) connection: u64,
    pub(crate) serial: u64,
}

impl Span {
    pub(super) fn to_json(&self) -> Value {
        let begin = u64::try_from(self.arrived.0).unwrap_or(0).saturating_mul(1_000);
        let end = begin.saturating_add(self.waited).saturating_add(self.taken);
        let number = |key: &str, value: u64| json!({"key": key, "value": {"intValue": value.to_string()}});
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let mut attributes = vec![
            text("db.system.name", "ldap"),
            text("db.operation.name", self.operation),
            text("db.response.status_code", &self.code.0.to_string()),
            number("ldap.connection", self.connection),
            number("ldap.operation", self.serial),
            number("ldap.waited_ns", self.waited),
        ];
        attributes.extend(self.database.as_deref().map(|suffix| text("db.namespace", suffix)));
        if let Some((sent, candidates)) = self.entries {
            attributes.push(number("db.response.returned_rows", sent));
            attributes.push(number("ldap.candidates", candidates));
        }
        let mut span = json!({
            "traceId": format!("{:016x}{:016x}", random() | 1, random()),
            "spanId": format!("{:016x}", random() | 1),
            "name": self.operation,
            "kind": SERVER,
            "startTimeUnixNano": begin.to_string(),
            "endTimeUnixNano": end.to_string(),
            "attributes": attributes,
        });
        if is_fault(self.code)
            && let Some(span) = span.as_object_mut()
        {
            span.insert("status".to_owned(), json!({"code": ERROR}));
        }
        span
    }
}

/// What is the server's fault or state; that a client asked wrongly, or for what is not there, is no error of the server.
fn is_fault(code: ResultCode) -> bool {
    [ResultCode::OPERATIONS_ERROR, ResultCode::BUSY, ResultCode::UNAVAILABLE, ResultCode::OTHER]
        .contains(&code)
}

/// What is posted: `spans`, and who tells of them.
pub(super) fn request(spans: &[Span], host: &str) -> Value {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let version = env!("CARGO_PKG_VERSION");
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "larix"),
            text("service.version", version),
            text("host.name", host),
            json!({"key": "process.pid", "value": {"intValue": std::process::id().to_string()}}),
        ]},
        "scopeSpans": [{
            "scope": {"name": "larix", "version": version},
            "spans": spans.iter().map(Span::to_json).collect::<Vec<_>>(),
        }],
    }]})
}
