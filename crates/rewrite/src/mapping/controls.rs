//! Controls: those that have names, attributes or filters in them are mapped; others that are known to have none go through. What is
//! left cannot be mapped: it is refused where it is critical, and left out where it is not.

use std::borrow::Cow;

use larix_engine::controls::{ControlValues, RequestControls};
use larix_proto::ber::{Tag, write};
use larix_proto::control::{self, Assertion, ControlValue};
use larix_proto::{Control, ControlBuf, Controls, FilterBuf, LdapResult, ResultCode, oid};

use super::{Mapping, RewriteContext, Surroundings};

/// Controls of requests that say nothing of names, attributes or filters.
const PASSED: [&str; 20] = [
    oid::ACCOUNT_USABILITY,
    oid::AUTHORIZATION_IDENTITY_REQUEST,
    oid::CHAINING_BEHAVIOR,
    oid::DOMAIN_SCOPE,
    oid::DONT_USE_COPY,
    oid::LAZY_COMMIT,
    oid::MANAGE_DSA_IT,
    oid::NO_OP,
    oid::PAGED_RESULTS,
    oid::PASSWORD_POLICY,
    oid::PERMISSIVE_MODIFY,
    oid::PERSISTENT_SEARCH,
    oid::PROXY_HOPS,
    oid::RELAX,
    oid::SEARCH_OPTIONS,
    oid::SESSION_TRACKING,
    oid::SUBENTRIES,
    oid::SYNC_REQUEST,
    oid::TRANSACTION_SPECIFICATION,
    oid::TREE_DELETE,
];

/// The same of those that are judged here: who asks, and what overlays of this server make of the answer.
const OWN: [&str; 4] =
    [oid::PROXIED_AUTHORIZATION, oid::PROXIED_AUTHORIZATION_V1, oid::VALUE_SORT, oid::VLV_REQUEST];

fn refused(what: &str) -> LdapResult {
    let text = format!("the control {what} cannot be mapped");
    LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text)
}

impl Mapping {
    /// The controls of a request as they are put to the backend.
    ///
    /// # Errors
    /// A critical control that cannot be mapped; a name in one that rules refuse.
    pub(super) fn controls(
        &self,
        controls: &RequestControls,
        around: &Surroundings<'_>,
    ) -> Result<RequestControls, LdapResult> {
        if *controls == RequestControls::default() {
            return Ok(RequestControls::default());
        }
        let mut values = ControlValues::clone(controls);
        let filter =
            |filter: &FilterBuf| self.filter(filter.as_filter(), RewriteContext::SearchFilterValue, around);
        if let Some(assertion) = &mut values.assertion {
            *assertion = filter(assertion)?;
        }
        for filters in values.matched_values.iter_mut().flatten() {
            *filters = filter(filters)?;
        }
        for read in [&mut values.pre_read, &mut values.post_read].into_iter().flatten() {
            read.attributes = self.selection(read.attributes.iter().map(String::as_str));
        }
        if let Some(sort) = &mut values.sort {
            let missing = sort.keys.iter_mut().find_map(|key| {
                let foreign = self.attributes.foreign(&self.schema, &key.attribute).map(Cow::into_owned);
                match foreign {
                    Some(foreign) => key.attribute = foreign,
                    None => return Some(key.attribute.clone()),
                }
                None
            });
            // The order of entries would tell what is not seen.
            match missing {
                Some(missing) if sort.critical => {
                    let text = format!("no attribute \"{missing}\" to sort by");
                    return Err(LdapResult::with(ResultCode::NO_SUCH_ATTRIBUTE, text));
                }
                Some(_) => values.sort = None,
                None => {}
            }
        }
        if values.deref.take_if(|deref| !deref.critical).is_none() && values.deref.is_some() {
            return Err(refused("dereference"));
        }
        if values.effective_rights.take_if(|rights| !rights.critical).is_none()
            && values.effective_rights.is_some()
        {
            return Err(refused("effective rights"));
        }
        if values.value_conflicts {
            return Err(refused("conflicts by value"));
        }
        (values.states, values.sync_peer) = (false, false);
        values.sync.iter_mut().for_each(|sync| sync.peer = false);
        values.sent = self.sent(controls, &values)?;
        Ok(values.into())
    }

    /// All of them once more for who passes the request on.
    fn sent(&self, before: &RequestControls, mapped: &ControlValues) -> Result<Vec<u8>, LdapResult> {
        let mut sent = Vec::with_capacity(before.sent.len());
        let parsed = Controls::parse(&before.sent).unwrap_or_default();
        for control in parsed.iter() {
            let is_overlays = mapped.overlays.iter().any(|own| own.control.oid == control.oid);
            if is_overlays || PASSED.contains(&control.oid) || OWN.contains(&control.oid) {
                control.to_owned().encode(&mut sent);
            } else if let Some(value) = value(&control, mapped) {
                let control = control.to_owned();
                ControlBuf { value: Some(value), ..control }.encode(&mut sent);
            } else if control.critical {
                return Err(refused(control.oid));
            }
        }
        Ok(sent)
    }

    /// The controls of an answer as they are here.
    pub(super) fn local_controls(
        &self,
        controls: Vec<ControlBuf>,
        around: &Surroundings<'_>,
    ) -> Vec<ControlBuf> {
        controls.into_iter().filter_map(|control| self.local_control(control, around)).collect()
    }

    fn local_control(&self, control: ControlBuf, around: &Surroundings<'_>) -> Option<ControlBuf> {
        let given = control.value.as_deref();
        let value = match &*control.oid {
            oid::PRE_READ | oid::POST_READ => {
                let read = control::PreReadResponse::decode(given).ok()?;
                let (dn, attributes) = self.entry(read.dn, read.attributes, None, around)?;
                let mut value = Vec::new();
                let mut encoder = larix_proto::encode::EntryEncoder::begin_value(&mut value, &dn);
                super::answer::write(&mut encoder, &attributes);
                encoder.finish(&[]);
                value
            }
            oid::ENTRY_CHANGE_NOTIFICATION => {
                let response = control::EntryChangeNotification::decode(given).ok()?;
                let previous = match response.previous_dn {
                    Some(dn) => Some(self.local_name(RewriteContext::Entry, dn, around)?),
                    None => None,
                };
                control::EntryChangeNotification { previous_dn: previous.as_deref(), ..response }.encode()?
            }
            oid::SORT_RESPONSE => {
                let response = control::SortResponse::decode(given).ok()?;
                let attribute = response.attribute.and_then(|name| self.attributes.local(&self.schema, name));
                control::SortResponse { attribute: attribute.as_deref(), ..response }.encode()?
            }
            oid::AUTHORIZATION_IDENTITY_RESPONSE => {
                let response = control::AuthorizationIdentityResponse::decode(given).ok()?;
                // Others than DNs are not of the directory, and the empty one names nobody.
                let dn = response.authorization_id.strip_prefix("dn:").filter(|dn| !dn.is_empty());
                let Some(dn) = dn else { return Some(control) };
                let identity = format!("dn:{}", self.local_name(RewriteContext::Entry, dn, around)?);
                control::AuthorizationIdentityResponse { authorization_id: &identity }.encode()?
            }
            // It was not asked for.
            oid::DEREF => return None,
            _ => return Some(control),
        };
        Some(ControlBuf { value: Some(value), ..control })
    }
}

/// The value of a control that is mapped; none of another.
fn value(control: &Control<'_>, mapped: &ControlValues) -> Option<Vec<u8>> {
    let strings = |names: &[String]| {
        let mut value = Vec::new();
        write::constructed(&mut value, Tag::SEQUENCE, |out| {
            names.iter().for_each(|name| write::string(out, name));
        });
        value
    };
    match control.oid {
        oid::ASSERTION => Assertion { filter: mapped.assertion.as_ref()?.as_filter() }.encode(),
        oid::PRE_READ => mapped.pre_read.as_ref().map(|read| strings(&read.attributes)),
        oid::POST_READ => mapped.post_read.as_ref().map(|read| strings(&read.attributes)),
        oid::SORT_REQUEST => {
            let keys = mapped.sort.as_ref()?.keys.iter().map(|key| control::SortKey {
                attribute: &key.attribute,
                ordering_rule: key.rule.as_deref(),
                reverse: key.reverse,
            });
            control::SortRequest { keys: keys.collect() }.encode()
        }
        oid::MATCHED_VALUES => {
            let filters = mapped.matched_values.as_ref()?;
            let mut value = Vec::new();
            write::constructed(&mut value, Tag::SEQUENCE, |out| {
                filters.iter().for_each(|filter| out.extend_from_slice(filter.as_ber()));
            });
            Some(value)
        }
        _ => None,
    }
}
