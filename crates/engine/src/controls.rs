//! Request controls: which are known, on which operations, and what they say (RFC 4511 section 4.1.11).
//!
//! The rules of criticality are OpenLDAP's: a critical control that is unknown, or does not go with the operation, is
//! unavailableCriticalExtension; one that is not critical is then ignored. A control that comes twice or whose value is
//! malformed is protocolError, critical or not.

mod known;
mod limits;
mod overlays;
mod values;

use std::ops::Deref;

use larix_proto::{Control, ControlBuf, Controls, FilterBuf, LdapResult, ResultCode, oid};

use crate::access::Privilege;
use crate::budget::RequestLimits;

pub use known::{OperationKind, SUPPORTED, SupportedControl, applies, is_known, listed};
pub use overlays::{OverlayControl, SentControl};
pub use values::{
    ContentSync, Dereference, EffectiveRights, PagedResults, Persistent, ProxiedAuthorization,
    ReadAttributes, SessionTracking, SortKey, SortRequest, ViewTarget, VirtualListView,
};

/// An entry that a tool hands over as it stands in its LDIF file, as if it had written the database itself: it keeps its
/// operational attributes, and neither access rules nor overlays are asked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Entries obey the schema.
    pub schema_check: bool,
    /// Values obey their syntaxes and are stored in their preferred form.
    pub value_check: bool,
}

/// What a request's controls say. Most requests have none, and carry none with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestControls(Option<Box<ControlValues>>);

/// What the controls of a request say that has any. Absent controls are `None` or false.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlValues {
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
    /// The last of them: a request may have several, and each proxy adds one (draft-wahl-ldap-session section 2.2).
    pub session_tracking: Option<SessionTracking>,
    /// RFC 5805: the transaction's identifier.
    pub transaction: Option<Vec<u8>>,
    /// draft-behera-ldap-password-policy: say how the account's password stands.
    pub password_policy: bool,
    /// Say of each entry whether it could authenticate.
    pub account_usability: bool,
    /// Whether values are answered as they are stored, with their weights (`overlay valsort`).
    pub val_sort: Option<bool>,
    /// Show the rights of an identity to each entry.
    pub effective_rights: Option<EffectiveRights>,
    /// RFC 4533: send what a copy of the content lacks.
    pub sync: Option<ContentSync>,
    /// draft-ietf-ldapext-psearch-03: go on with changes.
    pub persistent: Option<Persistent>,
    /// The copy settles conflicts value by value: send the states of entries, too.
    pub value_conflicts: bool,
    /// The copy merges changes one by one by the states of entries, and wants these where they are kept.
    pub states: bool,
    /// The consumer settles conflicts as this server does.
    pub sync_peer: bool,
    /// Of an add. No control says so: a tool's own socket does.
    pub import: Option<Import>,
    /// Entries need not obey the schema. No control says so: an offline tool does.
    pub schema_unchecked: bool,
    /// Controls that overlays in front of backends heed.
    pub overlays: Vec<SentControl>,
    /// How many proxies the request has come through, as they say.
    pub hops: u8,
    /// All of them as they were sent, those that are not understood here, too: for who passes the request on.
    pub sent: Vec<u8>,
}

fn protocol_error(text: impl Into<String>) -> LdapResult {
    LdapResult::with(ResultCode::PROTOCOL_ERROR, text)
}

impl ControlValues {
    /// No control at all.
    const NONE: Self = Self {
        manage_dsa_it: false,
        manage_dsa_it_critical: false,
        assertion: None,
        pre_read: None,
        post_read: None,
        paged: None,
        sort: None,
        vlv: None,
        deref: None,
        matched_values: None,
        subentries: None,
        proxied_authorization: None,
        relax: false,
        no_op: false,
        permissive_modify: false,
        tree_delete: false,
        domain_scope: false,
        dont_use_copy: false,
        session_tracking: None,
        transaction: None,
        password_policy: false,
        account_usability: false,
        val_sort: None,
        effective_rights: None,
        sync: None,
        persistent: None,
        value_conflicts: false,
        states: false,
        sync_peer: false,
        import: None,
        schema_unchecked: false,
        overlays: Vec::new(),
        hops: 0,
        sent: Vec::new(),
    };
}

impl ControlValues {
    /// The control of an overlay with this OID, if the request has it.
    pub fn of_overlay(&self, oid: &str) -> Option<&SentControl> {
        self.overlays.iter().find(|sent| sent.control.oid == oid)
    }

    /// Passes over a sync request: another server that has a part of the content does not get it, either.
    pub fn pass_sync_over(&mut self) {
        self.sync = None;
        self.send_on(oid::SYNC_REQUEST, |_| None);
    }

    /// The same of a persistent search.
    pub fn pass_persistent_over(&mut self) {
        self.persistent = None;
        self.send_on(oid::PERSISTENT_SEARCH, |_| None);
    }

    /// Leaves an assertion out, for a part of a search that does not begin at its base: what is asserted of that was judged there
    /// (RFC 4528 section 3).
    pub fn leave_assertion_out(&mut self) {
        if self.assertion.take().is_some() {
            self.send_on(oid::ASSERTION, |_| None);
        }
    }

    /// Changes a control for who passes the request on, or takes it away.
    fn send_on(&mut self, oid: &str, change: impl Fn(ControlBuf) -> Option<ControlBuf>) {
        let mut kept = Vec::new();
        for control in Controls::parse(&self.sent).unwrap_or_default() {
            let is_meant = control.oid == oid;
            let control = control.to_owned();
            let control = if is_meant { change(control) } else { Some(control) };
            control.into_iter().for_each(|control| control.encode(&mut kept));
        }
        self.sent = kept;
    }

    /// The privilege on the entry itself that a change of it takes: `manage` under the relax rules control, as in OpenLDAP.
    pub fn on_entry(&self, privilege: Privilege) -> Privilege {
        match privilege {
            Privilege::Add | Privilege::Delete | Privilege::Write if self.relax => Privilege::Manage,
            other => other,
        }
    }
}

impl Default for ControlValues {
    fn default() -> Self {
        Self::NONE
    }
}

impl Deref for RequestControls {
    type Target = ControlValues;

    #[inline]
    fn deref(&self) -> &ControlValues {
        static NONE: ControlValues = ControlValues::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl From<ControlValues> for RequestControls {
    fn from(values: ControlValues) -> Self {
        Self(Some(Box::new(values)))
    }
}

/// The control of an OID, if an overlay brings it.
type Brought<'b> = &'b dyn Fn(&str) -> Option<&'static OverlayControl>;

impl RequestControls {
    /// Whether the request has none, or none that means anything.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What they say, to be changed; `None` where there are none.
    pub fn values_mut(&mut self) -> Option<&mut ControlValues> {
        self.0.as_deref_mut()
    }

    /// The same without a control that an overlay has carried out: neither an overlay behind it nor another server gets it.
    #[must_use]
    pub fn without(&self, oid: &str) -> Self {
        self.with(|values| {
            values.overlays.retain(|sent| sent.control.oid != oid);
            values.send_on(oid, |_| None);
        })
    }

    /// The same with a control that an overlay heeds, and that other servers get without being asked to know it.
    #[must_use]
    pub fn optional(&self, oid: &str) -> Self {
        self.with(|values| values.send_on(oid, |control| Some(ControlBuf { critical: false, ..control })))
    }

    /// The same with a change.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut ControlValues)) -> Self {
        let mut values = ControlValues::clone(self);
        change(&mut values);
        values.into()
    }

    /// # Errors
    /// unavailableCriticalExtension and protocolError, as the module says.
    pub fn parse(controls: Controls<'_>, operation: OperationKind<'_>) -> Result<Self, LdapResult> {
        Self::parse_with(controls, operation, &RequestLimits::UNLIMITED, &|_| None)
    }

    /// The same, with the controls that overlays bring: `brought` finds one by its OID, and is asked about no other. Lists in controls
    /// are no longer than the limits of one request allow.
    ///
    /// # Errors
    /// As [`Self::parse`], and adminLimitExceeded.
    pub fn parse_with(
        controls: Controls<'_>,
        operation: OperationKind<'_>,
        limits: &RequestLimits,
        brought: Brought<'_>,
    ) -> Result<Self, LdapResult> {
        Self::parse_without(controls, operation, &[], (limits, brought))
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
            let known =
                |oid: &str| self.overlays.iter().map(|sent| sent.control).find(|known| known.oid == oid);
            // What was sent was within the limits.
            *self = Self::parse_without(sent, operation, dropped, (&RequestLimits::UNLIMITED, &known))?;
        }
        Ok(())
    }

    fn parse_without(
        controls: Controls<'_>,
        operation: OperationKind<'_>,
        dropped: &[String],
        (limits, brought): (&RequestLimits, Brought<'_>),
    ) -> Result<Self, LdapResult> {
        if controls.is_empty() {
            return Ok(Self::default());
        }
        let mut parsed = ControlValues::NONE;
        let mut seen: Vec<&str> = Vec::new();
        for control in controls {
            if dropped.iter().any(|oid| oid == control.oid) {
                continue;
            }
            if control.oid.is_empty() {
                return Err(protocol_error("OID field is empty"));
            }
            let unavailable = |text| Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
            match known::find(control.oid) {
                None => match brought(control.oid) {
                    Some(own) if (own.goes_with)(operation) => {
                        let sent = own.sent(&control, &parsed.overlays)?;
                        parsed.overlays.push(sent);
                    }
                    Some(_) if control.critical => return unavailable("critical extension is unavailable"),
                    None if control.critical => return unavailable("critical extension is not recognized"),
                    _ => {}
                },
                Some(known) if !known.goes_with(operation) && control.critical => {
                    return unavailable("critical extension is unavailable");
                }
                Some(known) if known.goes_with(operation) => {
                    let name = known.name;
                    if seen.contains(&known.oid) && known.oid != oid::SESSION_TRACKING {
                        return Err(protocol_error(format!("{name} control specified multiple times")));
                    }
                    seen.push(known.oid);
                    parsed.read(&control, name, limits)?;
                }
                _ => {}
            }
        }
        parsed.sent = match dropped {
            [] => controls.as_ber().to_vec(),
            _ => {
                let mut sent = Vec::new();
                let remaining =
                    controls.iter().filter(|control| dropped.iter().all(|oid| oid != control.oid));
                remaining.for_each(|control| control.to_owned().encode(&mut sent));
                sent
            }
        };
        if let Some(sync) = &mut parsed.sync {
            sync.peer = parsed.sync_peer;
        }
        parsed.check_together()?;
        Ok(parsed.into())
    }
}

impl ControlValues {
    /// Refuses controls that exclude each other.
    fn check_together(&self) -> Result<(), LdapResult> {
        if self.sync.is_some() && self.paged.is_some() {
            return Err(protocol_error("Sync control specified with pagedResults control"));
        }
        if self.persistent.is_some() {
            let others = [
                (self.sync.is_some(), "Sync"),
                (self.paged.is_some(), "pagedResults"),
                (self.sort.is_some(), "sorted results"),
                (self.vlv.is_some(), "vlv"),
            ];
            if let Some((_, other)) = others.iter().find(|(is_there, _)| *is_there) {
                let text = format!("persistent search control specified with {other} control");
                return Err(protocol_error(text));
            }
        }
        Ok(())
    }

    fn read(&mut self, control: &Control<'_>, name: &str, limits: &RequestLimits) -> Result<(), LdapResult> {
        match control.oid {
            oid::ASSERTION => self.assertion = Some(values::assertion(control, name)?),
            oid::PRE_READ => self.pre_read = Some(values::read_attributes(control, name, limits)?),
            oid::POST_READ => self.post_read = Some(values::read_attributes(control, name, limits)?),
            oid::PAGED_RESULTS => self.paged = Some(values::paged_results(control, name)?),
            oid::SORT_REQUEST => self.sort = Some(values::sort_request(control, name, limits)?),
            oid::VLV_REQUEST => self.vlv = Some(Box::new(values::virtual_list_view(control, name)?)),
            oid::DEREF => self.deref = Some(Box::new(values::dereference(control)?)),
            oid::MATCHED_VALUES => self.matched_values = Some(values::matched_values(control, name, limits)?),
            oid::SUBENTRIES => self.subentries = Some(values::subentries(control)?),
            oid::PROXIED_AUTHORIZATION | oid::PROXIED_AUTHORIZATION_V1 => {
                if self.proxied_authorization.is_some() {
                    return Err(protocol_error("proxy authorization control specified multiple times"));
                }
                self.proxied_authorization = Some(match control.oid {
                    oid::PROXIED_AUTHORIZATION => values::proxied_authorization(control)?,
                    _ => values::proxied_authorization_v1(control, name)?,
                });
            }
            oid::SESSION_TRACKING => self.session_tracking = Some(values::session_tracking(control, name)?),
            oid::TRANSACTION_SPECIFICATION => self.transaction = Some(values::transaction(control)?),
            oid::EFFECTIVE_RIGHTS => {
                self.effective_rights = Some(values::effective_rights(control, name, limits)?)
            }
            oid::SYNC_REQUEST => self.sync = Some(values::content_sync(control, name)?),
            oid::PERSISTENT_SEARCH => self.persistent = Some(values::persistent_search(control, name)?),
            oid::VALUE_SORT => self.val_sort = Some(values::value_sort(control, name)?),
            oid::SEARCH_OPTIONS => {
                let asks_for_domain_scope = values::search_options(control, name)?;
                if asks_for_domain_scope && self.domain_scope {
                    let text = "searchOptions control specified multiple times or with domainScope control";
                    return Err(protocol_error(text));
                }
                self.domain_scope |= asks_for_domain_scope;
            }
            // Some clients send an empty value with this one.
            oid::DOMAIN_SCOPE if control.value.is_none_or(<[u8]>::is_empty) => self.domain_scope = true,
            oid::PROXY_HOPS => self.hops = values::hops(control, name)?,
            _ if control.value.is_some() => {
                let fault = if control.oid == oid::NO_OP { "empty" } else { "absent" };
                return Err(protocol_error(format!("{name} control value not {fault}")));
            }
            _ => self.set(control),
        }
        Ok(())
    }

    /// Of a control that says all by being there.
    fn set(&mut self, control: &Control<'_>) {
        match control.oid {
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
            oid::VALUE_CONFLICTS if control.critical => self.value_conflicts = true,
            oid::VALUE_CONFLICTS => self.states = true,
            // Every commit is synced: a lazy one is nothing that this server could do faster.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
