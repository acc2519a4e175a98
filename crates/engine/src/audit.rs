//! The records of an access log (`draft-chu-ldap-logschema`, slapo-accesslog): from what was asked, or from what the change
//! log says was done, to an entry of the classes `auditAdd`, `auditModify` and their kin.

mod operations;
#[cfg(test)]
mod tests;

use larix_proto::ControlBuf;
use larix_schema::Schema;
use larix_store::Snapshot;

use crate::change::values;
use crate::csn::Csn;
use crate::database::View;
use crate::entry::{Entry, EntryAttribute, EntrySource};
use crate::fault::Fault;
use crate::log::{
    self, CsnVector, LogRecord, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification, RecordForm,
};
use crate::replica::EntryPlace;
use crate::tables::{META, meta};
use crate::time::Timestamp;
use crate::write::NewRecord;

pub use operations::{Operation, Operations, UnknownOperation};

/// What every operation is recorded with.
#[derive(Clone, Debug, Default)]
pub struct AuditFacts {
    /// The number of the connection.
    pub session: u64,
    pub start: Timestamp,
    pub end: Timestamp,
    /// The identity under which it was carried out; empty for anonymous.
    pub authorization: String,
    /// What it was about, as the request had it.
    pub dn: Option<String>,
    pub controls: Vec<ControlBuf>,
    pub response_controls: Vec<ControlBuf>,
    pub result: u32,
    pub message: String,
    pub referrals: Vec<String>,
}

/// What was asked, for operations that the change log does not tell of.
#[derive(Clone, Debug)]
pub enum Request {
    Add(Vec<LoggedAttribute>),
    Modify(Vec<LoggedModification>),
    Delete,
    ModifyDn {
        new_rdn: String,
        delete_old_rdn: bool,
        new_superior: Option<String>,
    },
    Compare {
        /// `attribute=value`
        assertion: Vec<u8>,
    },
    Search(Box<SearchRecord>),
    Bind {
        version: u8,
        method: String,
    },
    Unbind,
    Abandon {
        id: i32,
    },
    Extended {
        oid: String,
        data: Option<Vec<u8>>,
    },
}

/// A search request, and how many entries it gave.
#[derive(Clone, Debug)]
pub struct SearchRecord {
    /// `base`, `one`, `sub` or `subord`.
    pub scope: &'static str,
    /// `never`, `searching`, `finding` or `always`.
    pub deref: &'static str,
    pub types_only: bool,
    pub filter: String,
    pub attributes: Vec<String>,
    pub entries: u64,
    /// -1: none.
    pub time_limit: i64,
    pub size_limit: i64,
}

/// Beside the bytes of a value or a name.
const EACH: usize = size_of::<Vec<u8>>();

impl AuditFacts {
    /// About how many bytes it refers to.
    pub fn bytes(&self) -> usize {
        let of_control = |control: &ControlBuf| EACH + control.value.as_ref().map_or(0, Vec::len);
        let controls = self.controls.iter().chain(&self.response_controls).map(of_control);
        let texts = [&self.authorization, &self.message].into_iter().chain(&self.dn).chain(&self.referrals);
        controls.sum::<usize>() + texts.map(|text| EACH + text.len()).sum::<usize>()
    }
}

impl Request {
    /// About how many bytes it refers to.
    pub fn bytes(&self) -> usize {
        let of = |attribute: &LoggedAttribute| {
            let values = attribute.values.iter().map(|value| EACH + value.len());
            EACH + attribute.description.len() + values.sum::<usize>()
        };
        match self {
            Self::Add(attributes) => attributes.iter().map(of).sum(),
            Self::Modify(modifications) => modifications.iter().map(|one| of(&one.attribute)).sum(),
            Self::ModifyDn { new_rdn, new_superior, .. } => {
                new_rdn.len() + new_superior.as_ref().map_or(0, String::len)
            }
            Self::Compare { assertion } => assertion.len(),
            Self::Search(search) => {
                search.filter.len() + search.attributes.iter().map(|name| EACH + name.len()).sum::<usize>()
            }
            Self::Bind { method, .. } => method.len(),
            Self::Extended { oid, data } => oid.len() + data.as_ref().map_or(0, Vec::len),
            Self::Delete | Self::Unbind | Self::Abandon { .. } => 0,
        }
    }

    pub fn operation(&self) -> Operation {
        match self {
            Self::Add(_) => Operation::Add,
            Self::Modify(_) => Operation::Modify,
            Self::Delete => Operation::Delete,
            Self::ModifyDn { .. } => Operation::ModifyDn,
            Self::Compare { .. } => Operation::Compare,
            Self::Search(_) => Operation::Search,
            Self::Bind { .. } => Operation::Bind,
            Self::Unbind => Operation::Unbind,
            Self::Abandon { .. } => Operation::Abandon,
            Self::Extended { .. } => Operation::Extended,
        }
    }
}

/// Of an add or a rename: the entryUUID of the superior, a space, and the DN from there down.
pub const PLACE: &str = "larixReqPlace";
/// It is not a client's change: it gave an entry the content of another server's version.
pub const WHOLE: &str = "larixReqWhole";

/// What kind of operation a record of the change log is.
pub fn operation_of(change: &LoggedChange) -> Operation {
    match change {
        LoggedChange::Add(_) => Operation::Add,
        LoggedChange::Modify(_) => Operation::Modify,
        LoggedChange::Delete => Operation::Delete,
        LoggedChange::ModifyDn { .. } => Operation::ModifyDn,
    }
}

/// The record of a change that is in the change log. What came with its request is known as long as the server has not
/// been restarted in between; without it the record has what the change log says.
/// `place`: where it put the entry, for Larix servers. `now`: by the clock of this server. A change of a server whose clock is
/// ahead has that time: later records get no earlier names, so that one wrong clock would set those of all.
pub fn of_change(
    schema: &Schema,
    record: &LogRecord,
    place: Option<&EntryPlace>,
    facts: Option<&AuditFacts>,
    now: Timestamp,
) -> NewRecord {
    let time = record.csn.time.min(now);
    let unknown = || AuditFacts {
        start: time,
        end: time,
        authorization: record.requester.clone(),
        ..AuditFacts::default()
    };
    let facts = facts.cloned().unwrap_or_else(unknown);
    let (dn, change) = record.as_sent();
    let mut writer = Writer::new(schema, operation_of(change), &facts);
    // A request may change several entries: its own name for one of them stands for that one alone.
    let requested = facts.dn.as_deref().filter(|name| is_same_name(schema, name, dn));
    writer.text("reqDN", requested.unwrap_or(dn));
    writer.ended(&facts);
    match change {
        LoggedChange::Add(attributes) => writer.put("reqMod", add_lines(attributes)),
        LoggedChange::Modify(modifications) => {
            writer.put("reqMod", modification_lines(modifications));
            writer.put("reqOld", old_lines(&record.old));
        }
        LoggedChange::Delete => writer.put("reqOld", old_lines(&record.old)),
        LoggedChange::ModifyDn { new_rdn, delete_old_rdn, new_superior, modifications } => {
            // The new name implies the changes of its own values. What another server's version brings together with a name may take
            // values from other attributes, too: slapd leaves these deletes out.
            let is_recorded = |m: &&LoggedModification| {
                m.kind != LoggedKind::SoftAdd && !(m.kind == LoggedKind::Delete && is_of_name(schema, dn, m))
            };
            let recorded: Vec<_> = modifications.iter().filter(is_recorded).cloned().collect();
            writer.put("reqMod", modification_lines(&recorded));
            writer.put("reqOld", old_lines(&record.old));
            writer.renamed(dn, new_rdn, *delete_old_rdn, new_superior.as_deref());
        }
    }
    if !record.entry_uuid.is_nil() {
        writer.text("reqEntryUUID", &record.entry_uuid.to_string());
    }
    if let Some(place) = place {
        writer.text(PLACE, &format!("{} {}", place.superior, place.name));
    }
    if record.form == RecordForm::Whole {
        writer.text(WHOLE, "TRUE");
    }
    writer.finish(facts.start, Some(record.csn))
}

/// Whether all values of a modification are those of the first RDN. A rename takes away what its request calls the entry, which may be
/// written otherwise than in the entry's DN: the equality rule decides.
fn is_of_name(schema: &Schema, dn: &str, modification: &LoggedModification) -> bool {
    let LoggedAttribute { description, values: gone } = &modification.attribute;
    let Ok(own) = schema.describe(description) else { return false };
    let Ok(parsed) = larix_proto::Dn::parse(dn) else { return false };
    let Some(rdn) = parsed.rdns().first() else { return false };
    let kind = schema.attribute(own.attribute);
    let key = |value: &[u8]| values::key(schema, kind, value).ok();
    let is_own = |attribute: &str| schema.describe(attribute).is_ok_and(|named| named == own);
    let avas = rdn.avas().iter().filter(|ava| is_own(ava.attribute));
    let names: Vec<Vec<u8>> = avas.filter_map(|ava| key(&ava.value)).collect();
    !gone.is_empty() && gone.iter().all(|value| key(value).is_some_and(|of| names.contains(&of)))
}

fn is_same_name(schema: &Schema, one: &str, other: &str) -> bool {
    let normal = |text: &str| schema.parse_dn(text).ok();
    one == other || normal(one).is_some_and(|one| Some(one) == normal(other))
}

/// The record of an operation that changed nothing.
pub fn of_request(schema: &Schema, request: &Request, facts: &AuditFacts) -> NewRecord {
    let mut writer = Writer::new(schema, request.operation(), facts);
    if let Request::Extended { oid, .. } = request {
        writer.replace("reqType", format!("extended{{{oid}}}"));
    }
    if let Some(dn) = &facts.dn {
        writer.text("reqDN", dn);
    }
    match request {
        Request::Unbind | Request::Abandon { .. } => {}
        _ => writer.ended(facts),
    }
    match request {
        Request::Add(attributes) => writer.put("reqMod", add_lines(attributes)),
        Request::Modify(modifications) => writer.put("reqMod", modification_lines(modifications)),
        Request::ModifyDn { new_rdn, delete_old_rdn, new_superior } => {
            let dn = facts.dn.as_deref().unwrap_or_default();
            writer.renamed(dn, new_rdn, *delete_old_rdn, new_superior.as_deref());
        }
        Request::Compare { assertion } => writer.put("reqAssertion", vec![assertion.clone()]),
        Request::Search(search) => writer.searched(search),
        Request::Bind { version, method } => {
            writer.text("reqVersion", &version.to_string());
            writer.text("reqMethod", method);
        }
        Request::Abandon { id } => writer.text("reqId", &id.to_string()),
        Request::Extended { data: Some(data), .. } => writer.put("reqData", vec![data.clone()]),
        Request::Delete | Request::Unbind | Request::Extended { data: None, .. } => {}
    }
    writer.finish(facts.start, None)
}

/// The entry at the suffix of a log's database: the changes from `min_csns` on are in the log.
pub fn container(schema: &Schema, suffix: &str, min_csns: &[Csn]) -> Entry {
    let mut writer = Writer { schema, attributes: Vec::new() };
    writer.text("objectClass", "auditContainer");
    writer.text("structuralObjectClass", "auditContainer");
    if let Ok(dn) = larix_proto::Dn::parse(suffix)
        && let Some(rdn) = dn.rdns().first()
    {
        rdn.avas().iter().for_each(|ava| writer.put(ava.attribute, vec![ava.value.to_vec()]));
    }
    writer.put("minCSN", min_csns.iter().map(|csn| csn.text().into_bytes()).collect());
    Entry { dn: suffix.to_owned(), attributes: writer.attributes }
}

/// From where on a log has all changes, as its first entry says; empty in a database that is no access log, `None` where
/// nothing is.
///
/// # Errors
/// A store that cannot be read.
pub fn min_csns<N: Snapshot>(view: &View<'_, N>) -> Result<Option<Vec<Csn>>, Fault> {
    let Some(suffix) = view.settings.suffixes.first() else { return Ok(None) };
    let Some(id) = view.resolve(&suffix.normal)?.and_then(|resolved| resolved.id) else { return Ok(None) };
    let (Some(record), Ok(description)) = (view.record(id)?, view.schema.describe("minCSN")) else {
        return Ok(None);
    };
    let mut csns = Vec::new();
    view.reader(id, &record)?.visit_description(&description, &mut |value| {
        csns.extend(std::str::from_utf8(value).ok().and_then(|text| text.parse::<Csn>().ok()));
        true
    })?;
    Ok(Some(csns))
}

/// The CSN of each server up to which an access log does not have every change: changes from before it began, purged
/// changes, and changes that came with whole entries. If a server is not named, the log has everything from its first
/// change on. minCSN cannot say that, because it names every server that has a record. `None` without a row; a database
/// that is no access log lacks nothing, and a retired server counts as complete: no consumer has to know of it.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn lacks<N: Snapshot>(view: &View<'_, N>) -> Result<Option<CsnVector>, Fault> {
    match stored_lacks(view.snapshot)? {
        Some(lacks) => Ok(Some(lacks)),
        // It was written by an older version, or loaded.
        None => min_csns(view)?.map(|csns| without_retired(view.snapshot, &csns)).transpose(),
    }
}

fn without_retired<S: Snapshot>(snapshot: &S, csns: &[Csn]) -> Result<CsnVector, Fault> {
    let mut left = CsnVector::default();
    for csn in csns {
        if !log::is_retired(snapshot, csn)? {
            left.note(*csn);
        }
    }
    Ok(left)
}

/// What [`lacks`] says where the log has written it.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn stored_lacks<N: Snapshot>(snapshot: &N) -> Result<Option<CsnVector>, Fault> {
    let Some(row) = snapshot.get(META, meta::ACCESS_LOG_LACKS)? else { return Ok(None) };
    let csns = CsnVector::parse(&row).ok_or(Fault::Damaged { what: "what an access log lacks" })?;
    without_retired(snapshot, csns.as_slice()).map(Some)
}

/// What [`lacks`] reads: key and value.
pub fn lacks_row(lacks: &CsnVector) -> (Vec<u8>, Vec<u8>) {
    (meta::ACCESS_LOG_LACKS.to_vec(), lacks.text().into_bytes())
}

/// The last change of each server that an access log has gone past without what replicas need of it, if there was one. A replica that
/// follows the log while that happens misses the change: it has to ask for the entries.
///
/// # Errors
/// A store that cannot be read, or a row that is damaged.
pub fn left_out<N: Snapshot>(snapshot: &N) -> Result<CsnVector, Fault> {
    let Some(row) = snapshot.get(META, meta::ACCESS_LOG_LEFT_OUT)? else { return Ok(CsnVector::default()) };
    CsnVector::parse(&row).ok_or(Fault::Damaged { what: "what an access log has left out" })
}

/// What [`left_out`] reads: key and value.
pub fn left_out_row(left_out: &CsnVector) -> (Vec<u8>, Vec<u8>) {
    (meta::ACCESS_LOG_LEFT_OUT.to_vec(), left_out.text().into_bytes())
}

/// The values of reqMod for an add: `attribute:+ value`.
pub(crate) fn add_lines(attributes: &[LoggedAttribute]) -> Vec<Vec<u8>> {
    lines(attributes, b":+ ")
}

/// The values of reqOld: `attribute: value`.
pub fn old_lines(attributes: &[LoggedAttribute]) -> Vec<Vec<u8>> {
    lines(attributes, b": ")
}

fn lines(attributes: &[LoggedAttribute], sign: &[u8]) -> Vec<Vec<u8>> {
    let of = |attribute: &LoggedAttribute| {
        let name = attribute.description.clone();
        attribute.values.clone().into_iter().map(move |value| [name.as_bytes(), sign, &value].concat())
    };
    attributes.iter().flat_map(of).collect()
}

/// The values of reqMod for a modify: `attribute:` and `+`, `-`, `=` or `#`, then the value; without value for the whole
/// attribute. A colon alone stands between two modifications of one kind and attribute.
pub fn modification_lines(modifications: &[LoggedModification]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for (at, modification) in modifications.iter().enumerate() {
        let sign = match modification.kind {
            LoggedKind::Add | LoggedKind::SoftAdd => '+',
            LoggedKind::Delete => '-',
            LoggedKind::Replace => '=',
            LoggedKind::Increment => '#',
        };
        let LoggedAttribute { description, values } = &modification.attribute;
        if values.is_empty() {
            lines.push(format!("{description}:{sign}").into_bytes());
        }
        let of = |value: &Vec<u8>| [format!("{description}:{sign} ").as_bytes(), value].concat();
        lines.extend(values.iter().map(of));
        let next = modifications.get(at + 1);
        if next
            .is_some_and(|next| next.kind == modification.kind && next.attribute.description == *description)
        {
            lines.push(b":".to_vec());
        }
    }
    lines
}

/// A control as reqControls has it.
fn control_value(at: usize, control: &ControlBuf) -> String {
    let mut text = format!("{{{at}}}{{{}", control.oid);
    if control.critical {
        text.push_str(" criticality TRUE");
    }
    if let Some(value) = &control.value {
        text.push_str(" controlValue \"");
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
        value.iter().for_each(|byte| text.extend([digit(byte >> 4), digit(byte & 0xf)]));
        text.push('"');
    }
    text.push('}');
    text
}

/// Attributes in the order in which slapd has them.
struct Writer<'s> {
    schema: &'s Schema,
    attributes: Vec<EntryAttribute>,
}

impl<'s> Writer<'s> {
    fn new(schema: &'s Schema, operation: Operation, facts: &AuditFacts) -> Self {
        let mut writer = Self { schema, attributes: Vec::with_capacity(24) };
        writer.text("objectClass", operation.class());
        writer.text("structuralObjectClass", operation.class());
        // Set when the record is named.
        if let Ok(description) = schema.describe("reqStart") {
            writer.attributes.push(EntryAttribute::new(description, Vec::new()));
        }
        writer.text("reqEnd", &facts.end.generalized_micros());
        writer.text("reqType", operation.word());
        writer.text("reqSession", &facts.session.to_string());
        writer.put("reqAuthzID", vec![facts.authorization.clone().into_bytes()]);
        let controls = |controls: &[ControlBuf]| -> Vec<Vec<u8>> {
            let numbered = controls.iter().enumerate();
            numbered.map(|(at, control)| control_value(at, control).into_bytes()).collect()
        };
        writer.put("reqControls", controls(&facts.controls));
        writer.put("reqRespControls", controls(&facts.response_controls));
        writer
    }

    /// What schemas that were put together by hand do not know is left out.
    fn put(&mut self, name: &str, values: Vec<Vec<u8>>) {
        if let Ok(description) = self.schema.describe(name)
            && !values.is_empty()
        {
            self.attributes.push(EntryAttribute::new(description, values));
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        self.put(name, vec![value.as_bytes().to_vec()]);
    }

    fn replace(&mut self, name: &str, value: String) {
        if let Ok(description) = self.schema.describe(name)
            && let Some(attribute) = self.attributes.iter_mut().find(|a| a.description == description)
        {
            attribute.values = vec![value.into_bytes()];
        }
    }

    fn ended(&mut self, facts: &AuditFacts) {
        if !facts.message.is_empty() {
            self.text("reqMessage", &facts.message);
        }
        self.text("reqResult", &facts.result.to_string());
        self.put("reqReferral", facts.referrals.iter().map(|url| url.clone().into_bytes()).collect());
    }

    fn renamed(&mut self, dn: &str, new_rdn: &str, delete_old_rdn: bool, new_superior: Option<&str>) {
        self.text("reqNewRDN", new_rdn);
        self.text("reqDeleteOldRDN", if delete_old_rdn { "TRUE" } else { "FALSE" });
        let below = match new_superior {
            Some(superior) => {
                self.text("reqNewSuperior", superior);
                superior
            }
            None => crate::write::superior_of(dn),
        };
        let new_dn = if below.is_empty() { new_rdn.to_owned() } else { format!("{new_rdn},{below}") };
        self.text("reqNewDN", &new_dn);
    }

    fn searched(&mut self, search: &SearchRecord) {
        self.text("reqScope", search.scope);
        self.text("reqDerefAliases", search.deref);
        self.text("reqAttrsOnly", if search.types_only { "TRUE" } else { "FALSE" });
        self.text("reqFilter", &search.filter);
        self.put("reqAttr", search.attributes.iter().map(|name| name.clone().into_bytes()).collect());
        self.text("reqEntries", &search.entries.to_string());
        self.text("reqTimeLimit", &search.time_limit.to_string());
        self.text("reqSizeLimit", &search.size_limit.to_string());
    }

    fn finish(self, start: Timestamp, csn: Option<Csn>) -> NewRecord {
        NewRecord { start, attributes: self.attributes, csn }
    }
}
