//! Attributes of the entries that an entry names, along with it (draft-masarati-ldap-deref).
//!
//! What comes is what searches would have shown: values that the subject may read, and of the entries that they name,
//! where he may read those, the attributes that he may read. A value comes whether there is such an entry or not.

use std::collections::HashSet;

use larix_proto::ber::{Tag, write};
use larix_proto::control::{ControlValue, DerefRequest};
use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::{AttributeDescription, Schema};
use larix_store::Snapshot;

use super::entry::GuardedEntry;
use crate::access::Privilege;
use crate::budget::{LimitExceeded, RequestLimit};
use crate::controls::Dereference;
use crate::entry::EntryId;
use crate::entry::record::RecordFlags;
use crate::fault::Fault;
use crate::filter::charge;

/// Most values of one entry that are dereferenced; more are adminLimitExceeded.
pub(crate) const DEREFERENCED_MAX: usize = 20_000;

/// What it costs to find the entry that a value names, beside its attributes.
const ENTRY_STEPS: u64 = 16;

/// Which attributes are read of which entries: the derefSpecs of the control.
#[derive(Clone, Debug)]
pub(super) struct DerefSpecs {
    specs: Vec<(AttributeDescription, Vec<AttributeDescription>)>,
}

/// Why there is no control for an entry.
#[derive(Debug)]
pub(super) enum Failure {
    TooMany,
    Exceeded(LimitExceeded),
    Fault(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl DerefSpecs {
    /// `None` where the control does not name entries and may be ignored.
    ///
    /// # Errors
    /// protocolError, as OpenLDAP answers.
    pub(super) fn new(schema: &Schema, control: &Dereference) -> Result<Option<Self>, LdapResult> {
        let fail =
            |text: &str| LdapResult::with(ResultCode::PROTOCOL_ERROR, format!("Dereference control: {text}"));
        let mut specs: Vec<(AttributeDescription, Vec<AttributeDescription>)> = Vec::new();
        let mut named = HashSet::new();
        for (attribute, attributes) in &control.specs {
            let description = schema.describe(attribute).map_err(|_| fail("derefAttr decoding error"))?;
            if !named.insert(description.clone()) {
                return Err(fail("derefAttr must be unique within control"));
            }
            if !schema.attribute(description.attribute).syntax.is_dn() {
                let result = fail("derefAttr syntax not distinguishedName");
                return if control.critical { Err(result) } else { Ok(None) };
            }
            let descriptions =
                attributes.iter().map(|name| schema.describe(name)).collect::<Result<Vec<_>, _>>();
            let mut descriptions = descriptions.map_err(|_| fail("attribute decoding error"))?;
            // What is named twice is answered once, in the place of the first.
            let mut known = HashSet::with_capacity(descriptions.len());
            descriptions.retain(|description| known.insert(description.clone()));
            specs.push((description, descriptions));
        }
        Ok(Some(Self { specs }))
    }

    /// The control for an entry that is shown; `None` when it names no entry.
    pub(super) fn control<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
    ) -> Result<Option<ControlBuf>, Failure> {
        let limits = &seen.view.settings.request_limits;
        let mut list = Vec::new();
        let mut count = 0;
        for (description, descriptions) in &self.specs {
            let name = description.to_text(&seen.view.schema);
            let mut failed = None;
            seen.visit_readable_exact(description, &mut |value| {
                count += 1;
                let result = match count > DEREFERENCED_MAX {
                    true => Err(Failure::TooMany),
                    false => charge(Some(seen.meter()), ENTRY_STEPS + descriptions.len() as u64)
                        .and_then(|()| result(seen, &name, value, descriptions, &mut list))
                        .map_err(Failure::Fault)
                        .and_then(|()| {
                            limits.check(RequestLimit::ControlBytes, list.len()).map_err(Failure::Exceeded)
                        }),
                };
                failed = result.err();
                failed.is_none()
            })?;
            if let Some(failure) = failed {
                return Err(failure);
            }
        }
        if list.is_empty() {
            return Ok(None);
        }
        let mut value = Vec::with_capacity(list.len() + 6);
        write::octets(&mut value, Tag::SEQUENCE, &list);
        Ok(Some(ControlBuf { oid: DerefRequest::OID.into(), critical: false, value: Some(value) }))
    }
}

/// Appends the answer for one value.
fn result<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    name: &str,
    value: &[u8],
    descriptions: &[AttributeDescription],
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let attributes = attributes(seen, value, descriptions)?;
    write::constructed(out, Tag::SEQUENCE, |out| {
        write::string(out, name);
        write::octets(out, Tag::OCTET_STRING, value);
        if !attributes.is_empty() {
            write::octets(out, Tag::context_constructed(0), &attributes);
        }
    });
    Ok(())
}

/// What may be read of the entry that the value names, as a list of attributes.
fn attributes<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    value: &[u8],
    descriptions: &[AttributeDescription],
) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let (view, schema) = (seen.view, &seen.view.schema);
    let Some(dn) = std::str::from_utf8(value).ok().and_then(|text| schema.parse_dn(text).ok()) else {
        return Ok(out);
    };
    let Some(id) = view.resolve(&dn)?.and_then(|resolved| resolved.id).filter(|id| *id != EntryId::ROOT)
    else {
        return Ok(out);
    };
    let Some(record) = view.record(id)? else { return Ok(out) };
    let other = seen.with_entry(view.reader(id, &record)?);
    if other.reader.view.flags().has(RecordFlags::GLUE) || !other.allows_entry(Privilege::Read)? {
        return Ok(out);
    }
    for description in descriptions {
        let mut values = Vec::new();
        other.visit_readable_exact(description, &mut |value| {
            write::octets(&mut values, Tag::OCTET_STRING, value);
            true
        })?;
        if !values.is_empty() {
            write::constructed(&mut out, Tag::SEQUENCE, |out| {
                write::string(out, &description.to_text(schema));
                write::octets(out, Tag::SET, &values);
            });
        }
    }
    Ok(out)
}
