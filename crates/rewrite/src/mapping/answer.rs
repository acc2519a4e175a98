//! Answers as they are here.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use larix_backend::{AnswerFilter, End};
use larix_proto::encode::{self, EntryEncoder};
use larix_proto::{Attributes, ControlBuf, LdapResult, Response, Strings};
use larix_schema::{AttributeDescription, Schema};

use super::names::parted;
use super::{Mapping, RewriteContext, Surroundings, ValueKind};
use crate::rules::Session;

/// Attributes of an entry: a description and values each.
pub(super) type Attribute<'e> = (Cow<'e, str>, Vec<Cow<'e, [u8]>>);

/// Maps what a backend answers to one request. It goes along with the request, to whichever thread has the answer.
#[derive(Clone, Debug)]
pub struct Answers {
    mapping: Arc<Mapping>,
    session: Option<Arc<Session>>,
    requested: Option<Requested>,
}

/// What a search asks for, where attributes beside that are left out.
#[derive(Clone, Debug)]
pub(super) struct Requested {
    known: Vec<AttributeDescription>,
    /// In lower case.
    unknown: Vec<String>,
    /// All operational attributes.
    operational: bool,
}

impl Requested {
    /// None: everything may come.
    fn of(schema: &Schema, names: Strings<'_>) -> Option<Self> {
        let mut requested = Self { known: Vec::new(), unknown: Vec::new(), operational: false };
        let mut any = false;
        for name in names.iter() {
            any = true;
            match (name, schema.describe(name)) {
                ("*", _) => return None,
                (class, _) if class.starts_with('@') => return None,
                ("+", _) => requested.operational = true,
                (_, Ok(description)) => requested.known.push(description),
                (unknown, Err(_)) => requested.unknown.push(unknown.to_ascii_lowercase()),
            }
        }
        any.then_some(requested)
    }

    fn has(&self, schema: &Schema, name: &str) -> bool {
        match schema.describe(name) {
            Ok(found) => {
                let is_operational = schema.attribute(found.attribute).is_operational();
                (self.operational && is_operational)
                    || self.known.iter().any(|wanted| found.is_subdescription_of(schema, wanted))
            }
            Err(_) => {
                let (name, base) = (name.to_ascii_lowercase(), parted(name).0.to_ascii_lowercase());
                self.unknown.iter().any(|wanted| *wanted == name || *wanted == base)
                    || self.known.iter().any(|wanted| wanted.to_text(schema).eq_ignore_ascii_case(&base))
            }
        }
    }
}

/// Rules of answers search nothing.
pub(super) fn nothing(_: &larix_proto::url::LdapUrl, _: Option<&str>) -> Option<String> {
    None
}

impl Answers {
    /// Of a request that has one answer.
    pub fn new(mapping: Arc<Mapping>, session: Option<Arc<Session>>) -> Self {
        Self { mapping, session, requested: None }
    }

    /// Of a search for these attributes.
    #[must_use]
    pub fn of_search(self, names: Strings<'_>) -> Self {
        let mapping = &self.mapping;
        let drops = mapping.drops_unrequested;
        let requested = drops.then(|| Requested::of(&mapping.schema, names)).flatten();
        Self { requested, ..self }
    }

    fn around(&self) -> Surroundings<'_> {
        Surroundings { searches: &nothing, session: self.session.as_deref() }
    }

    /// A result: its matched DN, and the URLs of its referral. What rules refuse is left out.
    pub fn result(&self, result: &mut LdapResult) {
        let (mapping, around) = (&self.mapping, self.around());
        if !result.matched_dn.is_empty() {
            let matched = mapping.local_name(RewriteContext::Matched, &result.matched_dn, &around);
            result.matched_dn = matched.map(Cow::into_owned).unwrap_or_default();
        }
        if mapping.has_rules(RewriteContext::Referral) {
            result.referrals = self.urls(std::mem::take(&mut result.referrals));
        }
    }

    fn urls(&self, urls: Vec<String>) -> Vec<String> {
        let around = self.around();
        let mapped = urls.into_iter().filter_map(|url| {
            let mapped = self.mapping.url(RewriteContext::Referral, &url, &around).ok()?;
            Some(mapped.unwrap_or(url))
        });
        mapped.collect()
    }

    pub fn controls(&self, controls: &mut Vec<ControlBuf>) {
        *controls = self.mapping.local_controls(std::mem::take(controls), &self.around());
    }

    /// A result with its controls.
    pub fn end(&self, (mut result, mut controls): End) -> End {
        self.result(&mut result);
        self.controls(&mut controls);
        (result, controls)
    }

    /// Appends a message of a search that is still going on. An entry whose name rules refuse, or make no DN of, is left out.
    pub fn message(&self, message: &[u8], out: &mut Vec<u8>) {
        let Ok(decoded) = Response::decode_message(message) else { return };
        let mapping = &self.mapping;
        let controls = || {
            let controls = decoded.controls.iter().map(|control| control.to_owned()).collect();
            mapping.local_controls(controls, &self.around())
        };
        match decoded.response {
            Response::Entry(found) => {
                let around = self.around();
                let requested = self.requested.as_ref();
                let entry = mapping.entry(found.dn, found.attributes, requested, &around);
                let Some((dn, attributes)) = entry else { return };
                let mut encoder = EntryEncoder::begin(out, decoded.id, &dn);
                write(&mut encoder, &attributes);
                encoder.finish(&controls());
            }
            Response::Reference(urls) if mapping.has_rules(RewriteContext::Referral) => {
                let urls = self.urls(urls.iter().map(str::to_owned).collect());
                if !urls.is_empty() {
                    encode::search_reference(out, decoded.id, &urls, &controls());
                }
            }
            _ => out.extend_from_slice(message),
        }
    }
}

impl AnswerFilter for Answers {
    fn message(&mut self, message: &[u8], out: &mut Vec<u8>) {
        Self::message(self, message, out);
    }

    fn end(&mut self, end: End) -> End {
        Self::end(self, end)
    }
}

/// Adds the attributes of an entry.
pub(super) fn write(encoder: &mut EntryEncoder<'_>, attributes: &[Attribute<'_>]) {
    for (description, values) in attributes {
        encoder.begin_attribute(description);
        values.iter().for_each(|value| encoder.value(value));
        encoder.end_attribute();
    }
}

impl Mapping {
    /// An entry as it is here. None: it is not seen.
    pub(super) fn entry<'e>(
        &self,
        dn: &'e str,
        attributes: Attributes<'e>,
        requested: Option<&Requested>,
        around: &Surroundings<'_>,
    ) -> Option<(Cow<'e, str>, Vec<Attribute<'e>>)> {
        let dn = self.local_name(RewriteContext::Entry, dn, around)?;
        let mut mapped: Vec<Attribute<'e>> = Vec::new();
        // Two attributes there may be one here.
        let mut places: HashMap<String, usize> = HashMap::new();
        // The values at those places that more than one attribute has come to.
        let mut merged: HashMap<usize, HashSet<Vec<u8>>> = HashMap::new();
        for attribute in attributes.iter() {
            let Some(description) = self.attributes.local(&self.schema, attribute.description) else {
                continue;
            };
            if requested.is_some_and(|requested| !requested.has(&self.schema, &description)) {
                continue;
            }
            let had_values = attribute.values.iter().next().is_some();
            let values = self.local_values(&description, attribute.values.iter(), around);
            if had_values && values.is_empty() {
                continue;
            }
            if self.attributes.is_empty() {
                mapped.push((description, values));
                continue;
            }
            let place = places.entry(description.to_ascii_lowercase()).or_insert(mapped.len());
            match mapped.get_mut(*place) {
                None => mapped.push((description, values)),
                Some((_, known)) => {
                    let has = || known.iter().map(|value| value.to_vec()).collect();
                    let seen = merged.entry(*place).or_insert_with(has);
                    known.extend(values.into_iter().filter(|value| seen.insert(value.to_vec())));
                }
            }
        }
        Some((dn, mapped))
    }

    fn local_values<'e>(
        &self,
        description: &str,
        values: impl Iterator<Item = &'e [u8]>,
        around: &Surroundings<'_>,
    ) -> Vec<Cow<'e, [u8]>> {
        match self.kind(description) {
            ValueKind::Class if !self.classes.is_empty() => {
                let mut seen = HashSet::new();
                let classes = values.filter_map(|value| {
                    let name = std::str::from_utf8(value).ok()?;
                    let local = self.classes.local(&self.schema, name)?;
                    seen.insert(local.to_ascii_lowercase()).then(|| super::bytes(local))
                });
                classes.collect()
            }
            kind @ (ValueKind::Name | ValueKind::NameAndUid)
                if self.has_rules(RewriteContext::EntryValue) =>
            {
                let names = values.filter_map(|value| match std::str::from_utf8(value) {
                    Ok(text) => {
                        self.name_in(kind, RewriteContext::EntryValue, text, around).ok().map(super::bytes)
                    }
                    Err(_) => Some(Cow::Borrowed(value)),
                });
                names.collect()
            }
            ValueKind::Url if self.has_rules(RewriteContext::EntryValue) => {
                let urls = values.filter_map(|value| {
                    let Ok(text) = std::str::from_utf8(value) else { return Some(Cow::Borrowed(value)) };
                    let url = self.url(RewriteContext::EntryValue, text, around).ok()?;
                    Some(url.map_or(Cow::Borrowed(value), |url| Cow::Owned(url.into_bytes())))
                });
                urls.collect()
            }
            _ => values.map(Cow::Borrowed).collect(),
        }
    }
}
