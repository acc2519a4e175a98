//! What the values of controls say: each into a type of its own, or why not.

use larix_proto::ber::{DecodeError, Reader, Tag};
use larix_proto::control::{
    ControlValue, DerefRequest, PersistentSearch, ProxiedAuthorizationV1, SearchOptions, SyncMode,
    SyncRequest, VlvRequest, VlvTarget,
};
use larix_proto::{Control, Filter, FilterBuf, LdapResult, ResultCode, limits};

use super::protocol_error;
use crate::budget::{LimitExceeded, RequestLimit, RequestLimits};

/// The largest page that a client may ask for: maxInt of RFC 4511 (RFC 2696 section 2).
const PAGE_SIZE_MAX: u32 = i32::MAX as u32;

/// The sync request control (RFC 4533 section 2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentSync {
    pub critical: bool,
    /// refreshAndPersist: the search goes on with every change.
    pub persist: bool,
    pub cookie: Option<Vec<u8>>,
    /// The consumer prefers a new load to an order to refresh.
    pub reload_hint: bool,
    /// It is a Larix: names and deletes need not come as OpenLDAP's consumers want them.
    pub peer: bool,
}

/// The attributes that a pre-read or post-read control wants back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAttributes {
    pub critical: bool,
    pub attributes: Vec<String>,
}

/// The control of RFC 2696: one page of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagedResults {
    pub critical: bool,
    /// Entries of this page; 0 ends the search.
    pub size: u32,
    /// Empty on the first page.
    pub cookie: Vec<u8>,
}

/// The control of RFC 2891: the order of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortRequest {
    pub critical: bool,
    pub keys: Vec<SortKey>,
}

/// One of its keys, the most significant first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    pub attribute: String,
    /// An ordering rule; `None` is the attribute's own.
    pub rule: Option<String>,
    pub reverse: bool,
}

/// The dereference control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dereference {
    pub critical: bool,
    /// Attributes that name entries, and what is wanted of those.
    pub specs: Vec<(String, Vec<String>)>,
}

/// The virtual list view control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualListView {
    pub critical: bool,
    /// Entries wanted before the target.
    pub before_count: u32,
    /// Entries wanted behind it.
    pub after_count: u32,
    pub target: ViewTarget,
    /// The list that an earlier answer named.
    pub context: Option<u64>,
}

/// What a virtual list view is looked at around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewTarget {
    /// The `offset`-th, from 1, of what the client takes for `content_count` entries; a count of 0 is not known.
    Offset { offset: u32, content_count: u32 },
    /// The first entry whose first sort key does not come before this value.
    GreaterOrEqual(Vec<u8>),
}

/// The control of RFC 4370: the identity that the request acts as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedAuthorization {
    pub critical: bool,
    /// `dn:...`, `u:...`, or empty for anonymous.
    pub authzid: String,
    /// What is answered to who may not act as that identity: the control's two versions differ in this.
    pub denial: ResultCode,
}

/// The Get Effective Rights control.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveRights {
    pub critical: bool,
    /// Whose: `dn:...`, or empty for anonymous; `None` is the requester.
    pub authzid: Option<String>,
    /// Attributes that the answer lists, whether an entry has them or not.
    pub attributes: Vec<String>,
}

/// The control of draft-wahl-ldap-session: the user or program that the client acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTracking {
    pub source_ip: String,
    pub source_name: String,
    pub format_oid: String,
    pub identifier: String,
}

/// One octet: the number.
pub(super) fn hops(control: &Control<'_>, name: &str) -> Result<u8, LdapResult> {
    match present(control, name)? {
        [hops] => Ok(*hops),
        _ => Err(protocol_error(format!("{name} control could not be decoded: it is one octet"))),
    }
}

fn malformed(name: &str, error: &DecodeError) -> LdapResult {
    protocol_error(format!("{name} control could not be decoded: {error}"))
}

/// Why a list was not read.
enum ListFault {
    Malformed(DecodeError),
    Exceeded(LimitExceeded),
}

impl From<DecodeError> for ListFault {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl ListFault {
    fn answer(self, malformed: impl FnOnce(&DecodeError) -> LdapResult) -> LdapResult {
        match self {
            Self::Malformed(error) => malformed(&error),
            Self::Exceeded(exceeded) => exceeded.into(),
        }
    }
}

/// The elements of a list, if there are no more than the limit allows: an element of two bytes takes twenty times as much here.
fn elements<'a, T>(
    mut list: Reader<'a>,
    (limits, limit): (&RequestLimits, RequestLimit),
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, ListFault> {
    let mut elements = Vec::new();
    while !list.is_empty() {
        limits.check(limit, elements.len() + 1).map_err(ListFault::Exceeded)?;
        elements.push(read(&mut list)?);
    }
    Ok(elements)
}

fn present<'a>(control: &Control<'a>, name: &str) -> Result<&'a [u8], LdapResult> {
    match control.value {
        None => Err(protocol_error(format!("{name} control value is absent"))),
        Some([]) => Err(protocol_error(format!("{name} control value is empty"))),
        Some(value) => Ok(value),
    }
}

pub(super) fn assertion(control: &Control<'_>, name: &str) -> Result<FilterBuf, LdapResult> {
    let value = present(control, name)?;
    let filter = Filter::decode(value, limits::FILTER_DEPTH).map_err(|error| malformed(name, &error))?;
    Ok(filter.to_owned())
}

/// Whether subentries alone are wanted, not entries alone.
pub(super) fn subentries(control: &Control<'_>) -> Result<bool, LdapResult> {
    match control.value {
        Some([1, 1, visible]) => Ok(*visible != 0),
        _ => Err(protocol_error("subentries control value encoding is bogus")),
    }
}

/// The transaction's identifier.
pub(super) fn transaction(control: &Control<'_>) -> Result<Vec<u8>, LdapResult> {
    let value = control.value.ok_or_else(|| protocol_error("no transaction identifier provided"))?;
    if !control.critical {
        return Err(protocol_error("txnSpec control must be marked critical"));
    }
    Ok(value.to_vec())
}

/// Microsoft's search options: bit 0 is the domain scope, others are not known. Answers whether it is asked for.
pub(super) fn search_options(control: &Control<'_>, name: &str) -> Result<bool, LdapResult> {
    let domain_scope = i64::from(SearchOptions::DOMAIN_SCOPE);
    let value = present(control, name)?;
    let decode = || {
        let mut reader = Reader::new(value).sequence("SearchOptions")?;
        reader.integer("flags")
    };
    let flags = decode().map_err(|error| malformed(name, &error))?;
    if flags & !domain_scope == 0 {
        return Ok(flags & domain_scope != 0);
    }
    if control.critical {
        let text = "searchOptions contained unrecognized flag";
        return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
    }
    Ok(false)
}

pub(super) fn content_sync(control: &Control<'_>, name: &str) -> Result<ContentSync, LdapResult> {
    let value = present(control, name)?;
    let request = SyncRequest::decode(Some(value)).map_err(|error| malformed(name, &error))?;
    Ok(ContentSync {
        critical: control.critical,
        persist: request.mode == SyncMode::RefreshAndPersist,
        cookie: request.cookie.map(<[u8]>::to_vec),
        reload_hint: request.reload_hint,
        peer: false,
    })
}

/// A search that goes on with changes (draft-ietf-ldapext-psearch-03).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Persistent {
    pub critical: bool,
    pub asked: PersistentSearch,
}

pub(super) fn persistent_search(control: &Control<'_>, name: &str) -> Result<Persistent, LdapResult> {
    let asked = PersistentSearch::decode(Some(present(control, name)?));
    let asked = asked.map_err(|error| malformed(name, &error))?;
    Ok(Persistent { critical: control.critical, asked })
}

/// Without a value, the requester's rights. Else a sequence of the authorization identity and a list of attributes
/// (OpenDJ), or the identity alone, in BER or bare (389 Directory Server).
pub(super) fn effective_rights(
    control: &Control<'_>,
    name: &str,
    limits: &RequestLimits,
) -> Result<EffectiveRights, LdapResult> {
    let critical = control.critical;
    let Some(value) = control.value.filter(|value| !value.is_empty()) else {
        return Ok(EffectiveRights { critical, ..EffectiveRights::default() });
    };
    if value.get(..3).is_some_and(|head| head.eq_ignore_ascii_case(b"dn:")) {
        let authzid = std::str::from_utf8(value).map_err(|_| protocol_error(format!("{name}: not UTF-8")))?;
        return Ok(EffectiveRights {
            critical,
            authzid: Some(authzid.to_owned()),
            ..EffectiveRights::default()
        });
    }
    let decode = || {
        let mut outer = Reader::new(value);
        if value.first() != Some(&0x30) {
            return Ok((outer.string("authzId")?.to_owned(), Vec::new()));
        }
        let mut reader = outer.sequence("GetEffectiveRights")?;
        let authzid = reader.string("authzId")?.to_owned();
        let attributes = match reader.is_empty() {
            true => Vec::new(),
            false => elements(reader.sequence("attributes")?, (limits, RequestLimit::Selectors), |list| {
                list.string("attribute").map(str::to_owned)
            })?,
        };
        Ok::<_, ListFault>((authzid, attributes))
    };
    let (authzid, attributes) = decode().map_err(|fault| fault.answer(|error| malformed(name, error)))?;
    Ok(EffectiveRights { critical, authzid: Some(authzid), attributes })
}

pub(super) fn read_attributes(
    control: &Control<'_>,
    name: &str,
    limits: &RequestLimits,
) -> Result<ReadAttributes, LdapResult> {
    let fault = |text| protocol_error(format!("{name} control: {text}"));
    let value = match control.value {
        None => return Err(fault("value is absent")),
        Some([]) => return Err(fault("value is empty")),
        Some(value) => value,
    };
    let decode = || {
        let list = Reader::new(value).sequence("AttributeSelection")?;
        elements(list, (limits, RequestLimit::Selectors), |list| list.string("selector").map(str::to_owned))
    };
    let attributes = decode().map_err(|wrong| wrong.answer(|_| fault("decoding error")))?;
    Ok(ReadAttributes { critical: control.critical, attributes })
}

pub(super) fn value_sort(control: &Control<'_>, name: &str) -> Result<bool, LdapResult> {
    let value = present(control, name)?;
    let decode = || Reader::new(value).sequence("valSort")?.boolean("flag");
    decode().map_err(|_: DecodeError| protocol_error("valSort control: flag decoding error"))
}

pub(super) fn paged_results(control: &Control<'_>, name: &str) -> Result<PagedResults, LdapResult> {
    let value = present(control, name)?;
    let decode = || {
        let mut reader = Reader::new(value).sequence("realSearchControlValue")?;
        Ok::<_, DecodeError>((reader.integer("size")?, reader.octets("cookie")?.to_vec()))
    };
    let (size, cookie) =
        decode().map_err(|_| protocol_error("paged results control could not be decoded"))?;
    let size = u32::try_from(size).ok().filter(|size| *size <= PAGE_SIZE_MAX);
    let size = size.ok_or_else(|| protocol_error("paged results control size invalid"))?;
    Ok(PagedResults { critical: control.critical, size, cookie })
}

/// A database may allow fewer keys than there may be selectors.
pub(super) fn sort_request(
    control: &Control<'_>,
    name: &str,
    limits: &RequestLimits,
) -> Result<SortRequest, LdapResult> {
    let value = present(control, name)?;
    let decode = || {
        let list = Reader::new(value).sequence("SortKeyList")?;
        elements(list, (limits, RequestLimit::Selectors), |list| {
            let mut key = list.sequence("SortKey")?;
            let attribute = key.string("attributeType")?.to_owned();
            let rule = key.optional(Tag::context(0), "orderingRule")?;
            let reverse = key.optional(Tag::context(1), "reverseOrder")?;
            Ok(SortKey {
                attribute,
                rule: rule.map(|rule| String::from_utf8_lossy(rule).into_owned()),
                reverse: reverse.is_some_and(|reverse| reverse.iter().any(|byte| *byte != 0)),
            })
        })
    };
    let keys = decode().map_err(|fault| fault.answer(|error| malformed(name, error)))?;
    if keys.is_empty() {
        return Err(protocol_error("sorted results control has no keys"));
    }
    Ok(SortRequest { critical: control.critical, keys })
}

pub(super) fn virtual_list_view(control: &Control<'_>, name: &str) -> Result<VirtualListView, LdapResult> {
    let value = present(control, name)?;
    let request = VlvRequest::decode(Some(value)).map_err(|error| malformed(name, &error))?;
    let target = match request.target {
        VlvTarget::Offset { offset, content_count } => ViewTarget::Offset { offset, content_count },
        VlvTarget::GreaterOrEqual(value) => ViewTarget::GreaterOrEqual(value.to_vec()),
    };
    let VlvRequest { before_count, after_count, context_id, .. } = request;
    // One that this server has not given names no list.
    let context = context_id.and_then(|id| Some(u64::from_be_bytes(id.try_into().ok()?)));
    Ok(VirtualListView { critical: control.critical, before_count, after_count, target, context })
}

pub(super) fn dereference(control: &Control<'_>) -> Result<Dereference, LdapResult> {
    let fault = |text| protocol_error(format!("Dereference control {text}"));
    let value = match control.value {
        None => return Err(fault("value is absent")),
        Some([]) => return Err(fault("value is empty")),
        Some(value) => value,
    };
    let request = DerefRequest::decode(Some(value))
        .map_err(|_| protocol_error("Dereference control: derefSpec decoding error"))?;
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let specs = request.specs.into_iter().map(|spec| (spec.attribute.to_owned(), owned(spec.attributes)));
    Ok(Dereference { critical: control.critical, specs: specs.collect() })
}

pub(super) fn matched_values(
    control: &Control<'_>,
    name: &str,
    limits: &RequestLimits,
) -> Result<Vec<FilterBuf>, LdapResult> {
    let value = present(control, name)?;
    let decode = || {
        let list = Reader::new(value).sequence("ValuesReturnFilter")?;
        elements(list, (limits, RequestLimit::FilterTerms), |list| {
            Ok(Filter::decode(list.raw("SimpleFilterItem")?, 1)?.to_owned())
        })
    };
    decode().map_err(|fault| fault.answer(|error| malformed(name, error)))
}

pub(super) fn proxied_authorization(control: &Control<'_>) -> Result<ProxiedAuthorization, LdapResult> {
    let Some(value) = control.value else {
        return Err(protocol_error("proxy authorization control value absent"));
    };
    let authzid = std::str::from_utf8(value)
        .map_err(|_| LdapResult::with(ResultCode::AUTHORIZATION_DENIED, "authzId mapping failed"))?;
    let denial = ResultCode::AUTHORIZATION_DENIED;
    Ok(ProxiedAuthorization { critical: control.critical, authzid: authzid.to_owned(), denial })
}

/// The first version names a DN, and is denied with insufficientAccessRights.
pub(super) fn proxied_authorization_v1(
    control: &Control<'_>,
    name: &str,
) -> Result<ProxiedAuthorization, LdapResult> {
    let dn = ProxiedAuthorizationV1::decode(Some(present(control, name)?))
        .map_err(|_| protocol_error(format!("{name} control could not be decoded")))?
        .dn;
    let authzid = if dn.is_empty() { String::new() } else { format!("dn:{dn}") };
    let denial = ResultCode::INSUFFICIENT_ACCESS_RIGHTS;
    Ok(ProxiedAuthorization { critical: control.critical, authzid, denial })
}

pub(super) fn session_tracking(control: &Control<'_>, name: &str) -> Result<SessionTracking, LdapResult> {
    const SOURCE_IP_MAX: usize = 128;
    const SOURCE_NAME_MAX: usize = 65_536;
    const FORMAT_OID_MAX: usize = 1024;
    if control.critical {
        return Err(protocol_error("sessionTracking criticality is TRUE"));
    }
    let value = present(control, name)?;
    let decode = || {
        let mut reader = Reader::new(value).sequence("SessionIdentifierControlValue")?;
        let mut text = |field| {
            reader.octets(field).map(|text| match std::str::from_utf8(text) {
                Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
                _ => String::new(),
            })
        };
        Ok(SessionTracking {
            source_ip: text("sessionSourceIp")?,
            source_name: text("sessionSourceName")?,
            format_oid: text("formatOID")?,
            identifier: text("sessionTrackingIdentifier")?,
        })
    };
    let tracking =
        decode().map_err(|_: DecodeError| protocol_error("sessionTracking control decoding error"))?;
    let fault = if tracking.source_ip.len() > SOURCE_IP_MAX {
        "sessionSourceIp too long"
    } else if tracking.source_name.len() > SOURCE_NAME_MAX {
        "sessionSourceName too long"
    } else if tracking.format_oid.is_empty() {
        "formatOID empty"
    } else if tracking.format_oid.len() > FORMAT_OID_MAX {
        "formatOID too long"
    } else {
        return Ok(tracking);
    };
    Err(protocol_error(format!("sessionTracking.{fault}")))
}
