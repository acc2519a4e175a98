//! Operations logged at their end: one JSON object each (`log-format json`), and those that took long with what made
//! them slow (`slow-operation`).

use std::fmt::{self, Write as _};

use larix_engine::plan::Explain;
use larix_proto::{Authentication, DerefAliases, FilterBuf, LdapResult, Message, Request, Scope};

use crate::databases::Databases;
use crate::log::LogLevel;
use crate::log::json::{List, Quoted};
use crate::log::{Log, Seconds, Severity, printable};
use crate::statistics::ConnectionRecord;
use larix_backend::Effort;

const NANOS_A_MICROSECOND: u64 = 1_000;

/// What a request asked, without passwords and values: kept until its end if a log may need it then.
#[derive(Debug)]
pub(crate) enum RequestSummary {
    Search { base: String, scope: Scope, deref: DerefAliases, filter: FilterBuf, attributes: Vec<String> },
    Bind { dn: String, method: String },
    Compare { dn: String, attribute: String },
    Modify { dn: String, attributes: Vec<String> },
    Add { dn: String },
    Delete { dn: String },
    Rename { dn: String, new_rdn: String, new_superior: Option<String> },
    Extended { oid: String },
}

impl RequestSummary {
    /// None of requests that are not answered.
    pub(crate) fn of(message: &Message<'_>) -> Option<Self> {
        let owned = str::to_owned;
        Some(match &message.request {
            Request::Search(request) => Self::Search {
                base: owned(request.base),
                scope: request.scope,
                deref: request.deref,
                filter: request.filter.to_owned(),
                attributes: request.attributes.iter().map(owned).collect(),
            },
            Request::Bind(request) => Self::Bind {
                dn: owned(request.name),
                method: match request.authentication {
                    Authentication::Simple(_) => "simple".to_owned(),
                    Authentication::Sasl { mechanism, .. } => owned(mechanism),
                    Authentication::Other(number) => number.to_string(),
                },
            },
            Request::Compare(request) => {
                Self::Compare { dn: owned(request.entry), attribute: owned(request.attribute) }
            }
            Request::Modify(request) => Self::Modify {
                dn: owned(request.object),
                attributes: request
                    .changes
                    .iter()
                    .map(|change| owned(change.attribute.description))
                    .collect(),
            },
            Request::Add(request) => Self::Add { dn: owned(request.entry) },
            Request::Delete(dn) => Self::Delete { dn: owned(dn) },
            Request::ModifyDn(request) => Self::Rename {
                dn: owned(request.entry),
                new_rdn: owned(request.new_rdn),
                new_superior: request.new_superior.map(owned),
            },
            Request::Extended(request) => Self::Extended { oid: owned(request.name) },
            Request::Unbind | Request::Abandon(_) => return None,
        })
    }

    /// The word that OpenLDAP's lines have for it.
    fn word(&self) -> &'static str {
        match self {
            Self::Search { .. } => "SRCH",
            Self::Bind { .. } => "BIND",
            Self::Compare { .. } => "CMP",
            Self::Modify { .. } => "MOD",
            Self::Add { .. } => "ADD",
            Self::Delete { .. } => "DEL",
            Self::Rename { .. } => "MODRDN",
            Self::Extended { .. } => "EXT",
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Search { .. } => "search",
            Self::Bind { .. } => "bind",
            Self::Compare { .. } => "compare",
            Self::Modify { .. } => "modify",
            Self::Add { .. } => "add",
            Self::Delete { .. } => "delete",
            Self::Rename { .. } => "modrdn",
            Self::Extended { .. } => "extended",
        }
    }

    /// As members of a JSON object, each with a comma before it.
    fn members(&self, out: &mut String) -> fmt::Result {
        let dn = |out: &mut String, dn: &str| write!(out, ",\"dn\":{}", Quoted(dn));
        match self {
            Self::Search { base, scope, deref, filter, attributes } => {
                let scope = scope_name(*scope);
                let filter = filter.to_string();
                write!(out, ",\"base\":{},\"scope\":\"{scope}\"", Quoted(base))?;
                write!(out, ",\"deref\":{},\"filter\":{}", *deref as u8, Quoted(&filter))?;
                if !attributes.is_empty() {
                    write!(out, ",\"attributes\":{}", List(attributes))?;
                }
                Ok(())
            }
            Self::Bind { dn: name, method } => {
                dn(out, name)?;
                write!(out, ",\"method\":{}", Quoted(method))
            }
            Self::Compare { dn: name, attribute } => {
                dn(out, name)?;
                write!(out, ",\"attribute\":{}", Quoted(attribute))
            }
            Self::Modify { dn: name, attributes } => {
                dn(out, name)?;
                write!(out, ",\"attributes\":{}", List(attributes))
            }
            Self::Add { dn: name } | Self::Delete { dn: name } => dn(out, name),
            Self::Rename { dn: name, new_rdn, new_superior } => {
                dn(out, name)?;
                write!(out, ",\"new_rdn\":{}", Quoted(new_rdn))?;
                match new_superior {
                    Some(superior) => write!(out, ",\"new_superior\":{}", Quoted(superior)),
                    None => Ok(()),
                }
            }
            Self::Extended { oid } => write!(out, ",\"oid\":{}", Quoted(oid)),
        }
    }

    /// As OpenLDAP's lines have it.
    fn words(&self, out: &mut String) -> fmt::Result {
        match self {
            Self::Search { base, scope, deref, filter, .. } => {
                let (scope, deref) = (*scope as u8, *deref as u8);
                let filter = filter.to_string();
                let (base, filter) = (printable(base), printable(&filter));
                write!(out, " base=\"{base}\" scope={scope} deref={deref} filter=\"{filter}\"")
            }
            Self::Extended { oid } => write!(out, " oid={}", printable(oid)),
            Self::Compare { dn, attribute } => {
                write!(out, " dn=\"{}\" attr=\"{}\"", printable(dn), printable(attribute))
            }
            Self::Modify { dn, attributes } => {
                write!(out, " dn=\"{}\" attr=\"{}\"", printable(dn), printable(&attributes.join(" ")))
            }
            Self::Bind { dn, .. } | Self::Add { dn } | Self::Delete { dn } | Self::Rename { dn, .. } => {
                write!(out, " dn=\"{}\"", printable(dn))
            }
        }
    }

    /// What a search did, or would do again.
    fn plan(&self, databases: &Databases) -> Option<Explain> {
        match self {
            Self::Search { scope: Scope::Base, .. } => None,
            Self::Search { base, filter, .. } => databases.explain(base, filter.as_filter()),
            _ => None,
        }
    }
}

/// What became of a request.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RequestEnd<'a> {
    pub(crate) serial: u64,
    /// None of a request that was not answered: its client gave it up or went away. A change may be made all the same.
    pub(crate) result: Option<&'a LdapResult>,
    /// Nanoseconds from its arrival to its start, and from there to its end.
    pub(crate) waited: u64,
    pub(crate) taken: u64,
    /// Of a search.
    pub(crate) effort: Option<Effort>,
}

/// Logs an operation that has ended, if the log wants it.
pub(crate) fn tell(
    log: &Log,
    databases: &Databases,
    record: &ConnectionRecord,
    request: &RequestSummary,
    ended: &RequestEnd<'_>,
) {
    // A search that follows changes lasts until its client gives it up.
    let slow = ended.result.is_some() && log.is_slow(ended.waited.saturating_add(ended.taken));
    if !slow && !log.wants_records() {
        return;
    }
    let plan = if slow { request.plan(databases) } else { None };
    let mut text = String::with_capacity(512);
    // Writing into a string fails only where a value refuses to be shown; what it said so far stays.
    if log.is_json() {
        let _ = members(&mut text, record, request, ended, slow, plan.as_ref());
        let (level, severity) = match slow {
            true => (LogLevel::ANY, Severity::Warning),
            false => (LogLevel::STATS, Severity::Info),
        };
        log.record(level, severity, format_args!("{text}"));
    } else {
        let _ = words(&mut text, record, request, ended, plan.as_ref());
        log.warning(format_args!("{text}"));
    }
}

fn members(
    out: &mut String,
    record: &ConnectionRecord,
    request: &RequestSummary,
    ended: &RequestEnd<'_>,
    slow: bool,
    plan: Option<&Explain>,
) -> fmt::Result {
    write!(out, "\"operation\":\"{}\",\"conn\":{},\"op\":{}", request.name(), record.number, ended.serial)?;
    write!(out, ",\"peer\":{},\"identity\":{}", Quoted(&record.peer), Quoted(&record.identity()))?;
    request.members(out)?;
    match ended.result {
        Some(result) => {
            write!(out, ",\"result\":{}", result.code.0)?;
            for (name, text) in [("matched", &result.matched_dn), ("text", &result.diagnostic)] {
                if !text.is_empty() {
                    write!(out, ",\"{name}\":{}", Quoted(text))?;
                }
            }
        }
        None => out.push_str(",\"abandoned\":true"),
    }
    let micros = |nanoseconds: u64| nanoseconds / NANOS_A_MICROSECOND;
    write!(out, ",\"wait_us\":{},\"time_us\":{}", micros(ended.waited), micros(ended.taken))?;
    if let Some(effort) = ended.effort {
        write!(out, ",\"entries\":{},\"candidates\":{}", effort.entries, effort.candidates)?;
    }
    if slow {
        out.push_str(",\"slow\":true");
    }
    if let Some(plan) = plan {
        let (indexed, plan) = (plan.estimate.is_some(), one_line(plan));
        write!(out, ",\"indexed\":{indexed},\"plan\":{}", Quoted(&plan))?;
    }
    Ok(())
}

fn words(
    out: &mut String,
    record: &ConnectionRecord,
    request: &RequestSummary,
    ended: &RequestEnd<'_>,
    plan: Option<&Explain>,
) -> fmt::Result {
    write!(out, "conn={} op={} SLOW {}", record.number, ended.serial, request.word())?;
    request.words(out)?;
    let (waited, taken) = (Seconds(ended.waited), Seconds(ended.taken));
    if let Some(result) = ended.result {
        write!(out, " err={}", result.code.0)?;
    }
    write!(out, " qtime={waited} etime={taken}")?;
    if let Some(effort) = ended.effort {
        write!(out, " nentries={} candidates={}", effort.entries, effort.candidates)?;
    }
    if let Some(plan) = plan {
        let note = if plan.estimate.is_none() { " not indexed" } else { "" };
        write!(out, " plan=\"{}\"{note}", one_line(plan))?;
    }
    Ok(())
}

fn one_line(plan: &Explain) -> String {
    let text = plan.to_string();
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Base => "base",
        Scope::OneLevel => "one",
        Scope::Subtree => "sub",
        Scope::Children => "children",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larix_engine::plan::Exactness;
    use larix_engine::time::{Monotonic, Timestamp};
    use larix_proto::ResultCode;

    use super::*;
    use crate::statistics::ListenerInfo;

    fn request_summary() -> RequestSummary {
        RequestSummary::Search {
            base: "dc=example,dc=com".to_owned(),
            scope: Scope::Subtree,
            deref: DerefAliases::Never,
            filter: FilterBuf::parse("(sn=\"x\")").unwrap(),
            attributes: vec!["cn".to_owned()],
        }
    }

    fn record() -> ConnectionRecord {
        let listener = ListenerInfo { url: "ldap:///".to_owned(), name: "IP=0.0.0.0:389".to_owned() };
        let peer = "IP=192.0.2.7:4000".to_owned();
        ConnectionRecord::new(7, 9, Arc::new(listener), peer, (Timestamp(0), Monotonic(0)))
    }

    fn ended(result: &LdapResult) -> RequestEnd<'_> {
        let effort = Some(Effort { entries: 1, candidates: 5000 });
        RequestEnd { serial: 2, result: Some(result), waited: 17_000, taken: 463_079_000, effort }
    }

    fn plan(estimate: Option<u64>) -> Explain {
        Explain { step: "scan".to_owned(), estimate, exactness: Exactness::All, inner: Vec::new() }
    }

    #[test]
    fn a_slow_search_is_told_with_its_plan() {
        let result = LdapResult::success();
        let check = |plan: &Explain, expected: &str| {
            let mut out = String::new();
            words(&mut out, &record(), &request_summary(), &ended(&result), Some(plan)).unwrap();
            assert_eq!(out, expected);
        };
        let head = "conn=7 op=2 SLOW SRCH base=\"dc=example,dc=com\" scope=2 deref=0 filter=\"(sn=\"x\")\" \
                    err=0 qtime=0.000017 etime=0.463079 nentries=1 candidates=5000 plan=\"scan: ";
        let tested = ", the filter is tested on each\"";
        check(&plan(None), &format!("{head}all entries{tested} not indexed"));
        check(&plan(Some(1)), &format!("{head}about 1 entry{tested}"));
    }

    #[test]
    fn an_operation_is_members_of_an_object() {
        let result = LdapResult::with(ResultCode::SIZE_LIMIT_EXCEEDED, "enough");
        let mut out = String::new();
        members(&mut out, &record(), &request_summary(), &ended(&result), true, Some(&plan(None))).unwrap();
        let expected = "\"operation\":\"search\",\"conn\":7,\"op\":2,\"peer\":\"IP=192.0.2.7:4000\",\"identity\":\"\",\
                        \"base\":\"dc=example,dc=com\",\"scope\":\"sub\",\"deref\":0,\"filter\":\"(sn=\\\"x\\\")\",\
                        \"attributes\":[\"cn\"],\"result\":4,\"text\":\"enough\",\"wait_us\":17,\"time_us\":463079,\
                        \"entries\":1,\"candidates\":5000,\"slow\":true,\"indexed\":false,\
                        \"plan\":\"scan: all entries, the filter is tested on each\"";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_request_without_an_answer_has_no_result() {
        let result = LdapResult::success();
        let mut out = String::new();
        let ended = RequestEnd { result: None, effort: None, ..ended(&result) };
        let request = RequestSummary::Delete { dn: "cn=a".to_owned() };
        members(&mut out, &record(), &request, &ended, false, None).unwrap();
        let expected = "\"operation\":\"delete\",\"conn\":7,\"op\":2,\"peer\":\"IP=192.0.2.7:4000\",\"identity\":\"\",\
                        \"dn\":\"cn=a\",\"abandoned\":true,\"wait_us\":17,\"time_us\":463079";
        assert_eq!(out, expected);
    }
}
