//! Controls by name, as `-e` and `-E` give them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larix_proto::ber::{Tag, write};
use larix_proto::control::{
    Assertion, ControlValue, DerefRequest, DerefSpec, PagedResults, SessionTracking, SortKey, SortRequest,
    Subentries, VlvRequest, VlvTarget,
};
use larix_proto::{ControlBuf, FilterBuf, oid};

use super::options::CommonArgs;
use larix_client::ClientError;

/// `[!]name[=value]`
struct Named<'a> {
    whole: &'a str,
    critical: bool,
    name: &'a str,
    value: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn of(text: &'a str) -> Self {
        let (critical, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (name, value) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (rest, None),
        };
        Self { whole: text, critical, name, value }
    }

    fn bare(&self, oid: &'static str) -> ControlBuf {
        ControlBuf { oid: oid.into(), critical: self.critical, value: None }
    }

    fn with(&self, oid: &'static str, value: Option<Vec<u8>>) -> ControlBuf {
        ControlBuf { oid: oid.into(), critical: self.critical, value }
    }

    fn required(&self) -> Result<&'a str, ClientError> {
        self.value.filter(|value| !value.is_empty()).ok_or_else(|| self.fault("a value is missing"))
    }

    fn filter(&self) -> Result<FilterBuf, ClientError> {
        FilterBuf::parse(self.required()?).map_err(|error| self.fault(&error.to_string()))
    }

    fn number(&self, text: &str) -> Result<u32, ClientError> {
        text.parse().map_err(|_| self.fault(&format!("`{text}` is not a number")))
    }

    fn fault(&self, why: &str) -> ClientError {
        ClientError::Usage(format!("control `{}`: {why}", self.whole))
    }

    /// `<oid>[=:<value>|::<base64>]`
    fn generic(&self) -> Result<Option<ControlBuf>, ClientError> {
        if !self.name.contains('.') || !self.name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Ok(None);
        }
        let value = match self.value {
            None => None,
            Some(value) => match (value.strip_prefix("::"), value.strip_prefix(':')) {
                (Some(encoded), _) => {
                    let decoded = STANDARD.decode(encoded.trim());
                    Some(decoded.map_err(|error| self.fault(&format!("bad base64: {error}")))?)
                }
                (None, Some(text)) => Some(text.as_bytes().to_vec()),
                (None, None) => return Err(self.fault("write =:<value> or =::<base64>")),
            },
        };
        Ok(Some(ControlBuf { oid: self.name.to_owned().into(), critical: self.critical, value }))
    }
}

/// # Errors
/// A request has each control once (RFC 4511 section 4.1.11 leaves open what another one means).
fn each_once(texts: &[String]) -> Result<(), ClientError> {
    let mut seen: Vec<String> = Vec::new();
    for named in texts.iter().map(|text| Named::of(text)) {
        let name = named.name.to_ascii_lowercase();
        if seen.contains(&name) {
            return Err(named.fault("it is there twice: leave one of them out"));
        }
        seen.push(name);
    }
    Ok(())
}

/// The controls that go with every operation: `-e` and `-M`.
pub(super) fn common(args: &CommonArgs) -> Result<Vec<ControlBuf>, ClientError> {
    each_once(&args.controls)?;
    let mut controls =
        args.controls.iter().map(|text| general(&Named::of(text))).collect::<Result<Vec<_>, _>>()?;
    if args.manage_dsa_it > 0 {
        let critical = args.manage_dsa_it > 1;
        controls.push(ControlBuf { oid: oid::MANAGE_DSA_IT.into(), critical, value: None });
    }
    Ok(controls)
}

/// What ldapsearch says about them in its header.
pub(super) fn remarks(controls: &[ControlBuf]) -> Vec<String> {
    let named = [(oid::MANAGE_DSA_IT, "manageDSAit"), (oid::NO_OP, "noop")];
    named
        .iter()
        .flat_map(|(oid, name)| {
            controls.iter().filter(move |control| control.oid == *oid).map(move |control| (name, control))
        })
        .map(|(name, control)| format!("{name} {}control", if control.critical { "critical " } else { "" }))
        .collect()
}

fn general(named: &Named<'_>) -> Result<ControlBuf, ClientError> {
    Ok(match named.name.to_ascii_lowercase().as_str() {
        "assert" => {
            let filter = named.filter()?;
            named.with(oid::ASSERTION, Assertion { filter: filter.as_filter() }.encode())
        }
        // Always critical (RFC 4370 section 3); the value is the identity itself.
        "authzid" => ControlBuf {
            oid: oid::PROXIED_AUTHORIZATION.into(),
            critical: true,
            value: Some(named.value.unwrap_or_default().as_bytes().to_vec()),
        },
        "bauthzid" => named.bare(oid::AUTHORIZATION_IDENTITY_REQUEST),
        "managedsait" => named.bare(oid::MANAGE_DSA_IT),
        "noop" => named.bare(oid::NO_OP),
        "ppolicy" => named.bare(oid::PASSWORD_POLICY),
        "relax" => named.bare(oid::RELAX),
        "preread" => named.with(oid::PRE_READ, Some(attribute_selection(named.value))),
        "postread" => named.with(oid::POST_READ, Some(attribute_selection(named.value))),
        "sessiontracking" => {
            let tracking = SessionTracking {
                source_ip: "",
                source_name: "",
                format: "1.3.6.1.4.1.21008.108.63.1.3",
                identifier: named.value.unwrap_or_default(),
            };
            named.with(oid::SESSION_TRACKING, tracking.encode())
        }
        _ => named.generic()?.ok_or_else(|| {
            named.fault("not known: assert, authzid, bauthzid, manageDSAit, noop, ppolicy, preread, postread, relax, sessiontracking or an OID")
        })?,
    })
}

/// AttributeSelection (RFC 4527): a list of descriptions, empty for all.
fn attribute_selection(list: Option<&str>) -> Vec<u8> {
    let mut value = Vec::new();
    write::constructed(&mut value, Tag::SEQUENCE, |out| {
        for name in list.unwrap_or_default().split(',').filter(|name| !name.is_empty()) {
            write::string(out, name);
        }
    });
    value
}

/// Paged results as `-E pr=<size>[/prompt|noprompt]` asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paging {
    pub(super) size: u32,
    pub(super) critical: bool,
    pub(super) prompt: bool,
}

/// The controls of a search, with what ldapsearch says about them in its header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SearchControls {
    pub(super) controls: Vec<ControlBuf>,
    pub(super) paging: Option<Paging>,
    pub(super) remarks: Vec<String>,
}

pub(super) fn search(extensions: &[String]) -> Result<SearchControls, ClientError> {
    each_once(extensions)?;
    let mut found = SearchControls::default();
    for text in extensions {
        let named = Named::of(text);
        let critical = if named.critical { "critical " } else { "" };
        match named.name.to_ascii_lowercase().as_str() {
            "pr" => {
                found.paging = Some(paging(&named)?);
                let size = found.paging.map_or(0, |paging| paging.size);
                found.remarks.push(format!("pagedResults {critical}control: size={size}"));
            }
            "sss" => {
                found.controls.push(sort(&named)?);
                found.remarks.push(format!("server side sorting {critical}control"));
            }
            "vlv" => {
                found.controls.push(window(&named)?);
                found.remarks.push(format!("virtual list view {critical}control: {}", named.required()?));
            }
            "deref" => {
                found.controls.push(dereference(&named)?);
                found.remarks.push(format!("dereference {critical}control"));
            }
            "mv" => {
                found.controls.push(matched_values(&named)?);
                found.remarks.push(format!("valuesReturnFilter {critical}control: {}", named.required()?));
            }
            "subentries" => {
                let visible = match named.value {
                    None | Some("true") => true,
                    Some("false") => false,
                    Some(_) => return Err(named.fault("true or false")),
                };
                found.controls.push(named.with(oid::SUBENTRIES, Subentries { visible }.encode()));
                found.remarks.push(format!("subentries {critical}control: {visible}"));
            }
            "domainscope" => found.controls.push(named.bare(oid::DOMAIN_SCOPE)),
            "dontusecopy" => found.controls.push(named.bare(oid::DONT_USE_COPY)),
            _ => found.controls.push(named.generic()?.ok_or_else(|| {
                named.fault(
                    "not known: pr, sss, vlv, deref, mv, subentries, domainScope, dontUseCopy or an OID",
                )
            })?),
        }
    }
    Ok(found)
}

/// Extensions of the other operations: an OID, or dontUseCopy.
pub(super) fn other(extensions: &[String]) -> Result<Vec<ControlBuf>, ClientError> {
    each_once(extensions)?;
    extensions
        .iter()
        .map(|text| {
            let named = Named::of(text);
            if named.name.eq_ignore_ascii_case("dontUseCopy") {
                return Ok(named.bare(oid::DONT_USE_COPY));
            }
            named.generic()?.ok_or_else(|| named.fault("not known here: dontUseCopy or an OID"))
        })
        .collect()
}

pub(super) fn page(paging: Paging, cookie: &[u8]) -> ControlBuf {
    PagedResults { size: paging.size, cookie }.to_control(paging.critical)
}

fn paging(named: &Named<'_>) -> Result<Paging, ClientError> {
    let value = named.required()?;
    let (size, mode) = value.split_once('/').unwrap_or((value, "prompt"));
    let prompt = match mode {
        "prompt" => true,
        "noprompt" => false,
        _ => return Err(named.fault("prompt or noprompt")),
    };
    Ok(Paging { size: named.number(size)?, critical: named.critical, prompt })
}

/// `[-]<attribute>[:<rule>]`, several with `/` between.
fn sort(named: &Named<'_>) -> Result<ControlBuf, ClientError> {
    let keys = named.required()?.split('/').map(|key| {
        let (reverse, key) = key.strip_prefix('-').map_or((false, key), |key| (true, key));
        let (attribute, ordering_rule) =
            key.split_once(':').map_or((key, None), |(name, rule)| (name, Some(rule)));
        SortKey { attribute, ordering_rule, reverse }
    });
    Ok(SortRequest { keys: keys.collect() }.to_control(named.critical))
}

/// `<before>/<after>/<offset>/<count>` or `<before>/<after>:<value>`
fn window(named: &Named<'_>) -> Result<ControlBuf, ClientError> {
    let value = named.required()?;
    let bad = || named.fault("write <before>/<after>/<offset>/<count> or <before>/<after>:<value>");
    let (before, rest) = value.split_once('/').ok_or_else(bad)?;
    let (after, target) = match rest.split_once(':') {
        Some((after, value)) => (after, VlvTarget::GreaterOrEqual(value.as_bytes())),
        None => {
            let mut parts = rest.splitn(3, '/');
            let mut part = || parts.next().ok_or_else(bad);
            let (after, offset, count) = (part()?, part()?, part()?);
            (after, VlvTarget::Offset { offset: named.number(offset)?, content_count: named.number(count)? })
        }
    };
    let request = VlvRequest {
        before_count: named.number(before)?,
        after_count: named.number(after)?,
        target,
        context_id: None,
    };
    Ok(request.to_control(named.critical))
}

/// `<attribute>:<attribute>[,<attribute>...]`, several with `;` between.
fn dereference(named: &Named<'_>) -> Result<ControlBuf, ClientError> {
    let spec = |spec| match str::split_once(spec, ':') {
        Some((attribute, names)) if !attribute.is_empty() && !names.is_empty() => {
            Ok(DerefSpec { attribute, attributes: names.split(',').collect() })
        }
        _ => Err(named.fault("write <attribute>:<attribute>[,<attribute>...][;...]")),
    };
    let specs = named.required()?.split(';').map(spec).collect::<Result<_, _>>()?;
    Ok(DerefRequest { specs }.to_control(named.critical))
}

/// ValuesReturnFilter (RFC 3876): a sequence of filters; one filter is a sequence of one.
fn matched_values(named: &Named<'_>) -> Result<ControlBuf, ClientError> {
    let text = named.required()?;
    let listed = text.strip_prefix("((").map(|_| text.get(1..text.len() - 1).unwrap_or_default());
    let mut filters = Vec::new();
    for filter in split_filters(listed.unwrap_or(text)) {
        let parsed = FilterBuf::parse(filter).map_err(|error| named.fault(&error.to_string()))?;
        filters.extend_from_slice(parsed.as_filter().as_ber());
    }
    let mut value = Vec::new();
    write::octets(&mut value, Tag::SEQUENCE, &filters);
    Ok(named.with(oid::MATCHED_VALUES, Some(value)))
}

/// Filters side by side: `(a=b)(c=d)`.
fn split_filters(text: &str) -> Vec<&str> {
    let mut filters = Vec::new();
    let (mut depth, mut start) = (0u32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    filters.extend(text.get(start..=at));
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    filters.extend(text.get(start..).filter(|rest| !rest.is_empty()));
    filters
}
