//! Request controls: which are known, on which operations, and what they say (RFC 4511 section 4.1.11).
//!
//! The rules of criticality are OpenLDAP's: a critical control that is unknown, or does not go with the operation, is
//! unavailableCriticalExtension; one that is not critical is then ignored. A control that comes twice or whose value is
//! malformed is protocolError, critical or not.

use larix_proto::ber::{DecodeError, Reader, Tag};
use larix_proto::control::{ControlValue, DerefRequest, SyncMode, SyncRequest, VlvRequest, VlvTarget};
use larix_proto::{Control, Controls, Filter, FilterBuf, LdapResult, ResultCode, limits, oid};

/// The kind of an operation, as far as controls care.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OperationKind<'a> {
    Bind,
    Search,
    Compare,
    Add,
    Modify,
    Delete,
    ModifyDn,
    /// With the operation's OID.
    Extended(&'a str),
}

/// What a request's controls say. Absent controls are `None` or false.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestControls {
    /// RFC 3296: referral entries are treated as what they are.
    pub manage_dsa_it: bool,
    /// Whether [`Self::manage_dsa_it`] was critical; a bind must not have it so.
    pub manage_dsa_it_critical: bool,
    /// RFC 4528: go on only if the target entry matches.
    pub assertion: Option<FilterBuf>,
    /// RFC 4527.
    pub pre_read: Option<ReadAttributes>,
    /// RFC 4527.
    pub post_read: Option<ReadAttributes>,
    /// RFC 2696.
    pub paged: Option<PagedResults>,
    /// RFC 2891.
    pub sort: Option<SortRequest>,
    /// draft-ietf-ldapext-ldapv3-vlv: a part of the sorted answer.
    pub vlv: Option<Box<VirtualListView>>,
    /// draft-masarati-ldap-deref: attributes of entries that are named.
    pub deref: Option<Box<Dereference>>,
    /// RFC 3876: the filters that returned values match, any of them.
    pub matched_values: Option<Vec<FilterBuf>>,
    /// RFC 3672: subentries alone (true) or entries alone (false).
    pub subentries: Option<bool>,
    /// RFC 4370.
    pub proxied_authorization: Option<ProxiedAuthorization>,
    /// draft-zeilenga-ldap-relax.
    pub relax: bool,
    /// draft-zeilenga-ldap-noop: say what would happen, and do nothing.
    pub no_op: bool,
    pub permissive_modify: bool,
    pub tree_delete: bool,
    /// No referrals are generated.
    pub domain_scope: bool,
    /// RFC 6171.
    pub dont_use_copy: bool,
    /// draft-wahl-ldap-session: for the log alone.
    pub session_tracking: Option<SessionTracking>,
    /// RFC 5805: the transaction's identifier.
    pub transaction: Option<Vec<u8>>,
    /// draft-behera-ldap-password-policy: say how the account's password stands.
    pub password_policy: bool,
    /// Say of each entry whether it could authenticate.
    pub account_usability: bool,
    /// Say of each entry what somebody may do with it.
    pub effective_rights: Option<EffectiveRights>,
    /// RFC 4533: send what a copy of the content lacks.
    pub sync: Option<ContentSync>,
    /// The copy settles conflicts value by value: send the states of entries, too.
    pub value_conflicts: bool,
    /// The consumer settles conflicts as this server does.
    pub sync_peer: bool,
}

/// The sync request control (RFC 4533 section 2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentSync {
    pub critical: bool,
    /// refreshAndPersist: the search goes on with every change.
    pub persist: bool,
    pub cookie: Option<Vec<u8>>,
    /// The consumer would rather load anew than be told that it has to.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagedResults {
    pub critical: bool,
    /// Entries of this page; 0 ends the search.
    pub size: u32,
    /// Empty on the first page.
    pub cookie: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortRequest {
    pub critical: bool,
    pub keys: Vec<SortKey>,
}

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
}

/// What a virtual list view is looked at around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewTarget {
    /// The `offset`-th, from 1, of what the client takes for `content_count` entries; a count of 0 is not known.
    Offset { offset: u32, content_count: u32 },
    /// The first entry whose first sort key does not come before this value.
    GreaterOrEqual(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedAuthorization {
    pub critical: bool,
    /// `dn:...`, `u:...`, or empty for anonymous.
    pub authzid: String,
}

/// The Get Effective Rights control.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveRights {
    pub critical: bool,
    /// Whose: `dn:...`, or empty for anonymous; `None` is the requester.
    pub authzid: Option<String>,
    /// Attributes to be told about, whether an entry has them or not.
    pub attributes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTracking {
    pub source_ip: String,
    pub source_name: String,
    pub format_oid: String,
    pub identifier: String,
}

/// A control that this server knows.
#[derive(Copy, Clone, Debug)]
pub struct SupportedControl {
    pub oid: &'static str,
    /// Whether the root DSE lists it in `supportedControl`.
    pub listed: bool,
    operations: u8,
    extended: &'static [&'static str],
}

const BIND: u8 = 1;
const SEARCH: u8 = 2;
const COMPARE: u8 = 4;
const ADD: u8 = 8;
const MODIFY: u8 = 16;
const DELETE: u8 = 32;
const MODIFY_DN: u8 = 64;
const UPDATE: u8 = ADD | MODIFY | DELETE | MODIFY_DN;
const ACCESS: u8 = UPDATE | COMPARE | SEARCH;

const IDENTITY_EXTENSIONS: &[&str] = &[oid::PASSWORD_MODIFY, oid::WHO_AM_I, oid::REFRESH];

/// Every control that is understood. Those that OpenLDAP supports without listing them are not listed here either;
/// sorting, virtual list views and dereferencing (there overlays'), tree delete and effective rights, which its embedded database
/// lacks, are.
pub const SUPPORTED: &[SupportedControl] = &[
    supported(oid::PROXIED_AUTHORIZATION, true, ACCESS, IDENTITY_EXTENSIONS),
    supported(oid::MANAGE_DSA_IT, true, ACCESS | BIND, &[oid::REFRESH]),
    supported(oid::SUBENTRIES, true, SEARCH, &[]),
    supported(oid::DONT_USE_COPY, true, SEARCH | COMPARE, &[]),
    supported(oid::PAGED_RESULTS, true, SEARCH, &[]),
    supported(oid::SORT_REQUEST, true, SEARCH, &[]),
    supported(oid::VLV_REQUEST, true, SEARCH, &[]),
    supported(oid::DEREF, true, SEARCH, &[]),
    supported(oid::MATCHED_VALUES, true, SEARCH, &[]),
    supported(oid::POST_READ, true, ADD | MODIFY | MODIFY_DN, &[]),
    supported(oid::PRE_READ, true, DELETE | MODIFY | MODIFY_DN, &[]),
    supported(oid::ASSERTION, true, UPDATE | COMPARE | SEARCH, &[]),
    supported(oid::TREE_DELETE, true, DELETE, &[]),
    supported(oid::DOMAIN_SCOPE, false, SEARCH, &[]),
    supported(oid::SEARCH_OPTIONS, false, SEARCH, &[]),
    supported(oid::PERMISSIVE_MODIFY, false, MODIFY, &[]),
    supported(oid::NO_OP, false, ACCESS, &[]),
    supported(oid::RELAX, false, UPDATE, &[]),
    supported(oid::SESSION_TRACKING, false, ACCESS | BIND, IDENTITY_EXTENSIONS),
    supported(oid::LAZY_COMMIT, false, ACCESS, &[]),
    supported(oid::TRANSACTION_SPECIFICATION, false, UPDATE, &[oid::PASSWORD_MODIFY]),
    supported(oid::PASSWORD_POLICY, false, BIND | ACCESS, &[oid::PASSWORD_MODIFY]),
    supported(oid::ACCOUNT_USABILITY, false, SEARCH, &[]),
    supported(oid::EFFECTIVE_RIGHTS, true, SEARCH, &[]),
    // Listed where a database has the syncprov overlay.
    supported(oid::SYNC_REQUEST, false, SEARCH, &[]),
    // Among members of one replicated content: nothing that clients would look for.
    supported(oid::VALUE_CONFLICTS, false, SEARCH, &[]),
    supported(oid::SYNC_PEER, false, SEARCH, &[]),
];

const fn supported(
    oid: &'static str,
    listed: bool,
    operations: u8,
    extended: &'static [&'static str],
) -> SupportedControl {
    SupportedControl { oid, listed, operations, extended }
}

impl SupportedControl {
    fn goes_with(&self, operation: OperationKind<'_>) -> bool {
        let bit = match operation {
            OperationKind::Bind => BIND,
            OperationKind::Search => SEARCH,
            OperationKind::Compare => COMPARE,
            OperationKind::Add => ADD,
            OperationKind::Modify => MODIFY,
            OperationKind::Delete => DELETE,
            OperationKind::ModifyDn => MODIFY_DN,
            OperationKind::Extended(name) => return self.extended.contains(&name),
        };
        self.operations & bit != 0
    }
}

/// The OIDs that the root DSE lists in `supportedControl`.
pub fn listed() -> impl Iterator<Item = &'static str> {
    SUPPORTED.iter().filter(|control| control.listed).map(|control| control.oid)
}

/// Whether there is a control with this OID, for some operation.
pub fn is_known(oid: &str) -> bool {
    SUPPORTED.iter().any(|known| known.oid == oid)
}

/// Whether a control with this OID means something to this kind of operation.
pub fn applies(oid: &str, operation: OperationKind<'_>) -> bool {
    SUPPORTED.iter().any(|known| known.oid == oid && known.goes_with(operation))
}

fn protocol_error(text: impl Into<String>) -> LdapResult {
    LdapResult::with(ResultCode::PROTOCOL_ERROR, text)
}

impl RequestControls {
    /// # Errors
    /// unavailableCriticalExtension and protocolError, as the module says.
    pub fn parse(controls: Controls<'_>, operation: OperationKind<'_>) -> Result<Self, LdapResult> {
        Self::parse_without(controls, operation, &[])
    }

    /// What was sent without the controls of these OIDs.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn forget(
        &mut self,
        dropped: &[String],
        sent: Controls<'_>,
        operation: OperationKind<'_>,
    ) -> Result<(), LdapResult> {
        if !dropped.is_empty() {
            *self = Self::parse_without(sent, operation, dropped)?;
        }
        Ok(())
    }

    fn parse_without(
        controls: Controls<'_>,
        operation: OperationKind<'_>,
        dropped: &[String],
    ) -> Result<Self, LdapResult> {
        let mut parsed = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for control in controls {
            if dropped.iter().any(|oid| oid == control.oid) {
                continue;
            }
            if control.oid.is_empty() {
                return Err(protocol_error("OID field is empty"));
            }
            let unavailable = |text| Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
            match SUPPORTED.iter().find(|known| known.oid == control.oid) {
                None if control.critical => return unavailable("critical extension is not recognized"),
                Some(known) if !known.goes_with(operation) && control.critical => {
                    return unavailable("critical extension is unavailable");
                }
                Some(known) if known.goes_with(operation) => {
                    let name = name_of(known.oid);
                    if seen.contains(&known.oid) {
                        return Err(protocol_error(format!("{name} control specified multiple times")));
                    }
                    seen.push(known.oid);
                    parsed.read(&control, name)?;
                }
                _ => {}
            }
        }
        if let Some(sync) = &mut parsed.sync {
            sync.peer = parsed.sync_peer;
        }
        if parsed.sync.is_some() && parsed.paged.is_some() {
            return Err(protocol_error("Sync control specified with pagedResults control"));
        }
        Ok(parsed)
    }

    fn read(&mut self, control: &Control<'_>, name: &str) -> Result<(), LdapResult> {
        match control.oid {
            oid::ASSERTION => {
                let value = present(control, name)?;
                let filter = Filter::decode(value, limits::FILTER_DEPTH).map_err(|e| malformed(name, &e))?;
                self.assertion = Some(filter.to_owned());
            }
            oid::PRE_READ => self.pre_read = Some(read_attributes(control, name)?),
            oid::POST_READ => self.post_read = Some(read_attributes(control, name)?),
            oid::PAGED_RESULTS => self.paged = Some(paged_results(control, name)?),
            oid::SORT_REQUEST => self.sort = Some(sort_request(control, name)?),
            oid::VLV_REQUEST => self.vlv = Some(Box::new(virtual_list_view(control, name)?)),
            oid::DEREF => self.deref = Some(Box::new(dereference(control)?)),
            oid::MATCHED_VALUES => self.matched_values = Some(matched_values(control, name)?),
            oid::SUBENTRIES => {
                let [1, 1, visible] = control.value.unwrap_or_default() else {
                    return Err(protocol_error("subentries control value encoding is bogus"));
                };
                self.subentries = Some(*visible != 0);
            }
            oid::PROXIED_AUTHORIZATION => self.proxied_authorization = Some(proxied_authorization(control)?),
            oid::SESSION_TRACKING => self.session_tracking = Some(session_tracking(control, name)?),
            oid::TRANSACTION_SPECIFICATION => {
                let value =
                    control.value.ok_or_else(|| protocol_error("no transaction identifier provided"))?;
                if !control.critical {
                    return Err(protocol_error("txnSpec control must be marked critical"));
                }
                self.transaction = Some(value.to_vec());
            }
            oid::EFFECTIVE_RIGHTS => self.effective_rights = Some(effective_rights(control, name)?),
            oid::SEARCH_OPTIONS => self.search_options(control, name)?,
            oid::SYNC_REQUEST => self.sync = Some(content_sync(control, name)?),
            // Some clients send an empty value with this one.
            oid::DOMAIN_SCOPE if control.value.is_none_or(<[u8]>::is_empty) => self.domain_scope = true,
            _ if control.value.is_some() => {
                let fault = if control.oid == oid::NO_OP { "empty" } else { "absent" };
                return Err(protocol_error(format!("{name} control value not {fault}")));
            }
            oid::MANAGE_DSA_IT => {
                self.manage_dsa_it = true;
                self.manage_dsa_it_critical = control.critical;
            }
            oid::SYNC_PEER => self.sync_peer = true,
            oid::RELAX => self.relax = true,
            oid::NO_OP => self.no_op = true,
            oid::PERMISSIVE_MODIFY => self.permissive_modify = true,
            oid::TREE_DELETE => self.tree_delete = true,
            oid::DONT_USE_COPY => self.dont_use_copy = true,
            oid::PASSWORD_POLICY => self.password_policy = true,
            oid::ACCOUNT_USABILITY => self.account_usability = true,
            oid::VALUE_CONFLICTS => self.value_conflicts = true,
            // Every commit is synced: a lazy one is nothing that this server could do faster.
            _ => {}
        }
        Ok(())
    }

    /// Microsoft's search options: bit 0 is the domain scope, others are not known.
    fn search_options(&mut self, control: &Control<'_>, name: &str) -> Result<(), LdapResult> {
        const DOMAIN_SCOPE: i64 = 1;
        let value = present(control, name)?;
        let decode = || {
            let mut reader = Reader::new(value).sequence("SearchOptions")?;
            reader.integer("flags")
        };
        let flags = decode().map_err(|error| malformed(name, &error))?;
        if flags & !DOMAIN_SCOPE != 0 {
            if control.critical {
                let text = "searchOptions contained unrecognized flag";
                return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
            }
            return Ok(());
        }
        if flags & DOMAIN_SCOPE != 0 && self.domain_scope {
            let text = "searchOptions control specified multiple times or with domainScope control";
            return Err(protocol_error(text));
        }
        self.domain_scope |= flags & DOMAIN_SCOPE != 0;
        Ok(())
    }
}

/// The control's name in diagnostic messages.
fn name_of(control: &str) -> &'static str {
    match control {
        oid::ASSERTION => "assert",
        oid::PRE_READ => "preread",
        oid::POST_READ => "postread",
        oid::PAGED_RESULTS => "paged results",
        oid::SORT_REQUEST => "sorted results",
        oid::VLV_REQUEST => "vlv",
        oid::DEREF => "Dereference",
        oid::MATCHED_VALUES => "valuesReturnFilter",
        oid::SUBENTRIES => "subentries",
        oid::PROXIED_AUTHORIZATION => "proxy authorization",
        oid::MANAGE_DSA_IT => "manageDSAit",
        oid::RELAX => "relax",
        oid::NO_OP => "noop",
        oid::PERMISSIVE_MODIFY => "permissiveModify",
        oid::TREE_DELETE => "treeDelete",
        oid::DOMAIN_SCOPE => "domainScope",
        oid::SEARCH_OPTIONS => "searchOptions",
        oid::DONT_USE_COPY => "dontUseCopy",
        oid::SESSION_TRACKING => "sessionTracking",
        oid::TRANSACTION_SPECIFICATION => "transaction specification",
        oid::PASSWORD_POLICY => "passwordPolicyRequest",
        oid::ACCOUNT_USABILITY => "account usability",
        oid::EFFECTIVE_RIGHTS => "effective rights",
        oid::SYNC_REQUEST => "Sync",
        oid::VALUE_CONFLICTS => "conflicts by value",
        oid::SYNC_PEER => "Sync peer",
        _ => "lazy commit",
    }
}

fn malformed(name: &str, error: &DecodeError) -> LdapResult {
    protocol_error(format!("{name} control could not be decoded: {error}"))
}

fn present<'a>(control: &Control<'a>, name: &str) -> Result<&'a [u8], LdapResult> {
    match control.value {
        None => Err(protocol_error(format!("{name} control value is absent"))),
        Some([]) => Err(protocol_error(format!("{name} control value is empty"))),
        Some(value) => Ok(value),
    }
}

fn content_sync(control: &Control<'_>, name: &str) -> Result<ContentSync, LdapResult> {
    let value = present(control, name)?;
    let asked = SyncRequest::decode(Some(value)).map_err(|error| malformed(name, &error))?;
    Ok(ContentSync {
        critical: control.critical,
        persist: asked.mode == SyncMode::RefreshAndPersist,
        cookie: asked.cookie.map(<[u8]>::to_vec),
        reload_hint: asked.reload_hint,
        peer: false,
    })
}

/// Without a value, the requester's rights. Else a sequence of the authorization identity and a list of attributes
/// (OpenDJ), or the identity alone, in BER or bare (389 Directory Server).
fn effective_rights(control: &Control<'_>, name: &str) -> Result<EffectiveRights, LdapResult> {
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
        let mut attributes = Vec::new();
        if value.first() != Some(&0x30) {
            return Ok((outer.string("authzId")?.to_owned(), attributes));
        }
        let mut reader = outer.sequence("GetEffectiveRights")?;
        let authzid = reader.string("authzId")?.to_owned();
        if !reader.is_empty() {
            let mut list = reader.sequence("attributes")?;
            while !list.is_empty() {
                attributes.push(list.string("attribute")?.to_owned());
            }
        }
        Ok::<_, DecodeError>((authzid, attributes))
    };
    let (authzid, attributes) = decode().map_err(|error| malformed(name, &error))?;
    Ok(EffectiveRights { critical, authzid: Some(authzid), attributes })
}

fn read_attributes(control: &Control<'_>, name: &str) -> Result<ReadAttributes, LdapResult> {
    let fault = |text| protocol_error(format!("{name} control: {text}"));
    let value = match control.value {
        None => return Err(fault("value is absent")),
        Some([]) => return Err(fault("value is empty")),
        Some(value) => value,
    };
    let decode = || {
        let mut reader = Reader::new(value).sequence("AttributeSelection")?;
        let mut attributes = Vec::new();
        while !reader.is_empty() {
            attributes.push(reader.string("selector")?.to_owned());
        }
        Ok::<_, DecodeError>(attributes)
    };
    let attributes = decode().map_err(|_| fault("decoding error"))?;
    Ok(ReadAttributes { critical: control.critical, attributes })
}

fn paged_results(control: &Control<'_>, name: &str) -> Result<PagedResults, LdapResult> {
    let value = present(control, name)?;
    let decode = || {
        let mut reader = Reader::new(value).sequence("realSearchControlValue")?;
        Ok::<_, DecodeError>((reader.integer("size")?, reader.octets("cookie")?.to_vec()))
    };
    let (size, cookie) =
        decode().map_err(|_| protocol_error("paged results control could not be decoded"))?;
    let size = u32::try_from(size).map_err(|_| protocol_error("paged results control size invalid"))?;
    Ok(PagedResults { critical: control.critical, size, cookie })
}

fn sort_request(control: &Control<'_>, name: &str) -> Result<SortRequest, LdapResult> {
    let value = present(control, name)?;
    let decode = || {
        let mut list = Reader::new(value).sequence("SortKeyList")?;
        let mut keys = Vec::new();
        while !list.is_empty() {
            let mut key = list.sequence("SortKey")?;
            let attribute = key.string("attributeType")?.to_owned();
            let rule = key.optional(Tag::context(0), "orderingRule")?;
            let reverse = key.optional(Tag::context(1), "reverseOrder")?;
            keys.push(SortKey {
                attribute,
                rule: rule.map(|rule| String::from_utf8_lossy(rule).into_owned()),
                reverse: reverse.is_some_and(|reverse| reverse.iter().any(|byte| *byte != 0)),
            });
        }
        Ok(keys)
    };
    let keys = decode().map_err(|error| malformed(name, &error))?;
    if keys.is_empty() {
        return Err(protocol_error("sorted results control has no keys"));
    }
    Ok(SortRequest { critical: control.critical, keys })
}

fn virtual_list_view(control: &Control<'_>, name: &str) -> Result<VirtualListView, LdapResult> {
    let value = present(control, name)?;
    let asked = VlvRequest::decode(Some(value)).map_err(|error| malformed(name, &error))?;
    let target = match asked.target {
        VlvTarget::Offset { offset, content_count } => ViewTarget::Offset { offset, content_count },
        VlvTarget::GreaterOrEqual(value) => ViewTarget::GreaterOrEqual(value.to_vec()),
    };
    let VlvRequest { before_count, after_count, .. } = asked;
    Ok(VirtualListView { critical: control.critical, before_count, after_count, target })
}

fn dereference(control: &Control<'_>) -> Result<Dereference, LdapResult> {
    let fault = |text| protocol_error(format!("Dereference control {text}"));
    let value = match control.value {
        None => return Err(fault("value is absent")),
        Some([]) => return Err(fault("value is empty")),
        Some(value) => value,
    };
    let asked = DerefRequest::decode(Some(value))
        .map_err(|_| protocol_error("Dereference control: derefSpec decoding error"))?;
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let specs = asked.specs.into_iter().map(|spec| (spec.attribute.to_owned(), owned(spec.attributes)));
    Ok(Dereference { critical: control.critical, specs: specs.collect() })
}

fn matched_values(control: &Control<'_>, name: &str) -> Result<Vec<FilterBuf>, LdapResult> {
    let value = present(control, name)?;
    let decode = || {
        let mut list = Reader::new(value).sequence("ValuesReturnFilter")?;
        let mut filters = Vec::new();
        while !list.is_empty() {
            filters.push(Filter::decode(list.raw("SimpleFilterItem")?, 1)?.to_owned());
        }
        Ok(filters)
    };
    decode().map_err(|error| malformed(name, &error))
}

fn proxied_authorization(control: &Control<'_>) -> Result<ProxiedAuthorization, LdapResult> {
    let Some(value) = control.value else {
        return Err(protocol_error("proxy authorization control value absent"));
    };
    let authzid = std::str::from_utf8(value)
        .map_err(|_| LdapResult::with(ResultCode::AUTHORIZATION_DENIED, "authzId mapping failed"))?;
    Ok(ProxiedAuthorization { critical: control.critical, authzid: authzid.to_owned() })
}

fn session_tracking(control: &Control<'_>, name: &str) -> Result<SessionTracking, LdapResult> {
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

#[cfg(test)]
#[path = "controls_tests.rs"]
mod tests;
