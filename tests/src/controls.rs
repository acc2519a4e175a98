//! A scenario's controls: how a request names them, and how an answer's are shown.

use std::fmt::Write as _;

use larix_proto::ber::{DecodeError, Reader, Tag, write};
use larix_proto::control::{
    ControlValue, DerefRequest, DerefResponse, DerefSpec, PagedResults, PasswordPolicyResponse,
    PasswordWarning, PostReadResponse, PreReadResponse, ProxiedAuthorizationV1, SortKey, SortRequest,
    SortResponse, Subentries, VlvRequest, VlvResponse, VlvTarget,
};
use larix_proto::{Control, ControlBuf, FilterBuf, oid};

use crate::client::show_entry;

/// The control of `overlay noopsrch`, of requests and of answers.
const NO_OP_SEARCH: &str = "1.3.6.1.4.1.4203.666.5.18";

/// `[!]name[=value]`: controls by OpenLDAP's short names or by OID; `cookie` is the last page's.
pub fn control(word: &str, cookie: &[u8]) -> ControlBuf {
    let (critical, word) = word.strip_prefix('!').map_or((false, word), |rest| (true, rest));
    let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
    let text = value.unwrap_or("");
    let (oid, value): (&str, Option<Vec<u8>>) = match name {
        "assert" => (oid::ASSERTION, Some(filter(text))),
        "authzid" => (oid::PROXIED_AUTHORIZATION, Some(text.as_bytes().to_vec())),
        "authzid-v1" => (oid::PROXIED_AUTHORIZATION_V1, ProxiedAuthorizationV1 { dn: text }.encode()),
        "deref" => (oid::DEREF, dereference(text)),
        "domainScope" => (oid::DOMAIN_SCOPE, None),
        "dontUseCopy" => (oid::DONT_USE_COPY, None),
        "manageDSAit" => (oid::MANAGE_DSA_IT, None),
        "mv" => (oid::MATCHED_VALUES, Some(sequence(&filter(text)))),
        "noop" => (oid::NO_OP, None),
        "page" | "next" => {
            let size = text.parse().expect("a page size");
            let cookie = if name == "next" { cookie } else { &[] };
            (oid::PAGED_RESULTS, PagedResults { size, cookie }.encode())
        }
        "permissiveModify" => (oid::PERMISSIVE_MODIFY, None),
        "policy" => (oid::PASSWORD_POLICY, None),
        "postread" => (oid::POST_READ, Some(strings(text))),
        "preread" => (oid::PRE_READ, Some(strings(text))),
        "relax" => (oid::RELAX, None),
        "rights" => (oid::EFFECTIVE_RIGHTS, value.map(|text| text.as_bytes().to_vec())),
        "sort" => (oid::SORT_REQUEST, sort(text)),
        "subentries" => (oid::SUBENTRIES, Subentries { visible: text == "true" }.encode()),
        "txn" => (oid::TRANSACTION_SPECIFICATION, Some(text.as_bytes().to_vec())),
        "treeDelete" => (oid::TREE_DELETE, None),
        "valsort" => (oid::VALUE_SORT, value.map(valsort)),
        "vlv" => (oid::VLV_REQUEST, view(text)),
        other => (other, value.map(|text| text.as_bytes().to_vec())),
    };
    ControlBuf { oid: oid.to_owned().into(), critical, value }
}

fn filter(text: &str) -> Vec<u8> {
    let filter = FilterBuf::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    filter.as_filter().as_ber().to_vec()
}

fn sequence(contents: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::octets(&mut out, Tag::SEQUENCE, contents);
    out
}

fn strings(list: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for text in list.split(',').filter(|text| !text.is_empty()) {
        write::string(&mut out, text);
    }
    sequence(&out)
}

/// `-cn:rule,sn`: keys separated by commas, `-` for reverse order.
fn sort(text: &str) -> Option<Vec<u8>> {
    let keys = text.split(',').map(|key| {
        let (reverse, key) = key.strip_prefix('-').map_or((false, key), |rest| (true, rest));
        let (attribute, ordering_rule) =
            key.split_once(':').map_or((key, None), |(attribute, rule)| (attribute, Some(rule)));
        SortKey { attribute, ordering_rule, reverse }
    });
    SortRequest { keys: keys.collect() }.encode()
}

/// `member:uid,cn;manager:mail`: attributes that name entries, and what is wanted of those.
fn dereference(text: &str) -> Option<Vec<u8>> {
    let specs = text.split(';').map(|spec| {
        let (attribute, wanted) = spec.split_once(':').unwrap_or((spec, ""));
        DerefSpec { attribute, attributes: wanted.split(',').filter(|name| !name.is_empty()).collect() }
    });
    DerefRequest { specs: specs.collect() }.encode()
}

/// `before/after/offset/count`, or `before/after:value`.
fn view(text: &str) -> Option<Vec<u8>> {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text}: not a number"));
    let (window, value) = text.split_once(':').map_or((text, None), |(window, value)| (window, Some(value)));
    let numbers: Vec<u32> = window.split('/').map(number).collect();
    let (before_count, after_count, target) = match (numbers.as_slice(), value) {
        ([before, after, offset, count], None) => {
            (*before, *after, VlvTarget::Offset { offset: *offset, content_count: *count })
        }
        ([before, after], Some(value)) => (*before, *after, VlvTarget::GreaterOrEqual(value.as_bytes())),
        _ => panic!("{text}: not a view"),
    };
    VlvRequest { before_count, after_count, target, context_id: None }.encode()
}

/// What a search has counted: `counted: CODE ENTRIES REFERENCES`.
fn counted(value: Option<&[u8]>) -> Result<String, DecodeError> {
    let mut numbers = Reader::new(value.unwrap_or_default()).sequence("no-op search")?;
    let (code, entries) = (numbers.integer("code")?, numbers.integer("entries")?);
    let references = numbers.integer("references")?;
    Ok(format!("counted: {code} {entries} {references}\n"))
}

/// The entries that an entry names, in its order of names made ours.
fn named(response: &DerefResponse<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for result in &response.results {
        let mut line = format!("named: {} {}", result.attribute, result.value);
        for attribute in result.attributes.iter().flat_map(|attributes| attributes.iter()) {
            let mut values: Vec<_> = attribute.values.iter().map(String::from_utf8_lossy).collect();
            values.sort();
            let _ = write!(line, " [{} {}]", attribute.description, values.join(" | "));
        }
        lines.push(line + "\n");
    }
    lines.sort();
    lines.join("   ")
}

/// `policy: WARNING, ERROR`, as far as there are such; seconds go by meanwhile.
fn policy(response: PasswordPolicyResponse) -> String {
    let warning = response.warning.map(|warning| match warning {
        PasswordWarning::TimeBeforeExpiration(_) => "expires in *".to_owned(),
        PasswordWarning::GraceLoginsRemaining(logins) => format!("grace {logins}"),
    });
    let error = response.error.map(|error| format!("{error:?}"));
    let parts: Vec<String> = warning.into_iter().chain(error).collect();
    format!("policy: {}\n", parts.join(", "))
}

/// The cookie of an answer's paged results control.
pub fn cookie<'a>(controls: impl Iterator<Item = Control<'a>>) -> Option<Vec<u8>> {
    controls
        .filter(|control| control.oid == oid::PAGED_RESULTS)
        .find_map(|control| PagedResults::decode(control.value).ok().map(|paged| paged.cookie.to_vec()))
}

/// An answer's controls, one a line; an entry in one as the lines of an entry.
pub fn show<'a>(controls: impl Iterator<Item = Control<'a>>) -> String {
    let mut text = String::new();
    for control in controls {
        let shown = match control.oid {
            oid::PAGED_RESULTS => PagedResults::decode(control.value).map(|paged| {
                format!("page: {}\n", if paged.cookie.is_empty() { "the last" } else { "more" })
            }),
            oid::SORT_RESPONSE => SortResponse::decode(control.value)
                .map(|sorted| format!("sorted: {} {}\n", sorted.code.0, sorted.attribute.unwrap_or(""))),
            oid::VLV_RESPONSE => VlvResponse::decode(control.value).map(|view| {
                format!("view: {} at {} of {}\n", view.code.0, view.target_position, view.content_count)
            }),
            oid::DEREF => DerefResponse::decode(control.value).map(|response| named(&response)),
            oid::PRE_READ => PreReadResponse::decode(control.value)
                .map(|entry| format!("before: {}", show_entry(entry.dn, entry.attributes))),
            oid::POST_READ => PostReadResponse::decode(control.value)
                .map(|entry| format!("after: {}", show_entry(entry.dn, entry.attributes))),
            oid::PASSWORD_POLICY => PasswordPolicyResponse::decode(control.value).map(policy),
            NO_OP_SEARCH => counted(control.value),
            other => Ok(format!("control: {other}\n")),
        };
        let shown = shown.unwrap_or_else(|error| format!("control: {}: {error}\n", control.oid));
        let _ = write!(text, "   {}", shown.replace(" \n", "\n"));
    }
    text
}

/// The flag of the value sort control; a text that is none goes as it is.
fn valsort(text: &str) -> Vec<u8> {
    match text {
        "true" => vec![0x30, 3, 1, 1, 0xff],
        "false" => vec![0x30, 3, 1, 1, 0],
        other => other.as_bytes().to_vec(),
    }
}
