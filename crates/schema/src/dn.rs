//! Distinguished names by what they mean: the normal form, in which equal names are equal texts, and the pretty form,
//! in which names are stored and returned. Both are OpenLDAP's.

mod cache;
mod plain;

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use larix_proto::dn::write_escaped;
use larix_proto::{Dn, DnSyntaxError, Rdn, RdnAva, Scope};
use smallvec::SmallVec;

use crate::error::InvalidValue;
use crate::lexical::is_bit_string;
use crate::model::AttributeType;
use crate::schema::Schema;

/// Longest DN taken, in bytes; OpenLDAP's number.
pub const MAX_DN_LENGTH: usize = 8192;

/// Why a DN has no normal form (LDAP result invalidDNSyntax).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DnError {
    /// Two values of one attribute type in an RDN (RFC 4512 §2.3.1).
    DuplicateAttribute(String),
    EmptyValue(String),
    InvalidValue(String),
    Syntax(DnSyntaxError),
    TooLong(usize),
    UnknownAttribute(String),
    /// The attribute cannot name entries: its value is BER, or its values carry an order.
    Unsupported(String),
}

impl fmt::Display for DnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateAttribute(name) => write!(f, "two values of \"{name}\" in one RDN"),
            Self::EmptyValue(name) => write!(f, "empty value of \"{name}\" in a DN"),
            Self::InvalidValue(name) => write!(f, "value of \"{name}\" in a DN is invalid per its syntax"),
            Self::Syntax(error) => error.fmt(f),
            Self::TooLong(length) => write!(f, "DN of {length} bytes is longer than {MAX_DN_LENGTH}"),
            Self::UnknownAttribute(name) => write!(f, "attribute type \"{name}\" in a DN is not defined"),
            Self::Unsupported(name) => write!(f, "\"{name}\" cannot be used so in a DN"),
        }
    }
}

impl std::error::Error for DnError {}

impl From<DnSyntaxError> for DnError {
    fn from(error: DnSyntaxError) -> Self {
        Self::Syntax(error)
    }
}

/// A DN in normal form. Cheap to clone; parents share its memory.
#[derive(Clone)]
pub struct NormalDn {
    whole: Arc<Whole>,
    /// Index of the first RDN in `whole.starts` that belongs to this name.
    first: u32,
}

#[derive(Default)]
struct Whole {
    text: String,
    /// Where each RDN starts, leaf first.
    starts: SmallVec<[u32; 8]>,
    /// It was made of a text whose values are shown as they were given.
    plain: bool,
}

/// An RDN in normal form: `cn=foo` or `cn=foo+uid=bar`, sorted by attribute name.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NormalRdn(Arc<str>);

impl NormalRdn {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Takes back what [`as_str`](Self::as_str) gave, or one of [`NormalDn::rdns`]; it is not checked.
    pub fn from_normal(text: &str) -> Self {
        Self(text.into())
    }
}

impl NormalDn {
    /// The empty name.
    pub fn root() -> Self {
        Self::from_parts(String::new(), SmallVec::new())
    }

    /// Takes back what [`as_str`](Self::as_str) gave; it is not checked.
    pub fn from_normal(text: &str) -> Self {
        let mut starts = SmallVec::new();
        if !text.is_empty() {
            starts.push(0);
            // Commas inside values are escaped, so every comma parts two RDNs.
            starts.extend(memchr::memchr_iter(b',', text.as_bytes()).map(|comma| comma as u32 + 1));
        }
        Self::from_parts(text.to_owned(), starts)
    }

    /// The name of the entry `rdn` below `parent`.
    pub fn join(rdn: &NormalRdn, parent: &Self) -> Self {
        if parent.is_root() {
            return Self::from_normal(rdn.as_str());
        }
        let mut text = String::with_capacity(rdn.0.len() + 1 + parent.as_str().len());
        text.push_str(rdn.as_str());
        text.push(',');
        text.push_str(parent.as_str());
        Self::from_normal(&text)
    }

    /// The normal form as text; empty for the root.
    pub fn as_str(&self) -> &str {
        let start = self.starts().first().map_or(self.whole.text.len(), |&start| start as usize);
        self.whole.text.get(start..).unwrap_or_default()
    }

    #[inline]
    pub fn is_root(&self) -> bool {
        self.depth() == 0
    }

    /// Number of RDNs.
    #[inline]
    pub fn depth(&self) -> usize {
        self.starts().len()
    }

    /// RDNs, leaf first.
    pub fn rdns(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        let starts = self.starts();
        (0..starts.len()).map(move |i| {
            let start = starts.get(i).map_or(0, |&start| start as usize);
            let end = starts.get(i + 1).map_or(self.whole.text.len(), |&next| next as usize - 1);
            self.whole.text.as_bytes().get(start..end).unwrap_or_default()
        })
    }

    /// The leaf RDN; none for the root.
    pub fn rdn(&self) -> Option<NormalRdn> {
        let rdn = self.rdns().next()?;
        std::str::from_utf8(rdn).ok().map(NormalRdn::from_normal)
    }

    /// The name of the entry above; none for the root.
    pub fn parent(&self) -> Option<Self> {
        self.ancestor(1)
    }

    /// The name `levels` above; the name itself for 0, none beyond the root.
    pub fn ancestor(&self, levels: usize) -> Option<Self> {
        (levels <= self.depth())
            .then(|| Self { whole: Arc::clone(&self.whole), first: self.first + levels as u32 })
    }

    /// Whether the entry is somewhere below `other`; false for `other` itself.
    pub fn is_descendant_of(&self, other: &Self) -> bool {
        self.depth() > other.depth() && self.is_within(other)
    }

    /// Whether the entry is `base` or somewhere below it.
    #[inline]
    pub fn is_within(&self, base: &Self) -> bool {
        let (own, base_starts) = (self.starts(), base.starts());
        // All names are within the root's, which databases may have as their suffix.
        if base_starts.is_empty() {
            return true;
        }
        let Some(above) = own.len().checked_sub(base_starts.len()) else { return false };
        let start = own.get(above).map_or(self.whole.text.len(), |&start| start as usize);
        self.whole.text.as_bytes().get(start..) == Some(base.octets())
    }

    /// Whether a search of this scope from `base` (RFC 4511 section 4.5.1.2) comes to the entry.
    pub fn is_in_scope(&self, base: &Self, scope: Scope) -> bool {
        match scope {
            Scope::Base => self == base,
            Scope::OneLevel => self.depth() == base.depth() + 1 && self.is_within(base),
            Scope::Subtree => self.is_within(base),
            Scope::Children => self.is_descendant_of(base),
        }
    }

    /// [`Self::as_str`] for who compares it: whether it begins within a character is not asked.
    #[inline]
    fn octets(&self) -> &[u8] {
        let start = self.starts().first().map_or(self.whole.text.len(), |&start| start as usize);
        self.whole.text.as_bytes().get(start..).unwrap_or_default()
    }

    #[inline]
    fn starts(&self) -> &[u32] {
        self.whole.starts.get(self.first as usize..).unwrap_or_default()
    }

    fn from_parts(text: String, starts: SmallVec<[u32; 8]>) -> Self {
        Self { whole: Arc::new(Whole { text, starts, plain: false }), first: 0 }
    }
}

impl PartialEq for NormalDn {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // A name that a thread remembers is often compared with itself.
        let is_same = self.first == other.first && Arc::ptr_eq(&self.whole, &other.whole);
        is_same || self.octets() == other.octets()
    }
}

impl Eq for NormalDn {}

impl PartialOrd for NormalDn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NormalDn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for NormalDn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for NormalDn {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for NormalDn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NormalDn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Appends an attribute value as it stands in a DN (see [`write_escaped`]).
pub fn escape_value(value: &[u8], out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write_escaped(out, value);
}

impl Schema {
    /// Parses a DN's text and brings it into normal form.
    pub fn parse_dn(&self, text: &str) -> Result<NormalDn, DnError> {
        let Some(hash) = cache::hash(text) else { return self.parse_new_dn(text) };
        if let Some(cached) = cache::recall(self, text, hash) {
            return Ok(cached);
        }
        let dn = self.parse_new_dn(text)?;
        cache::note(self, text, hash, &dn);
        Ok(dn)
    }

    /// As [`Self::parse_dn`], of a name that is not remembered.
    fn parse_new_dn(&self, text: &str) -> Result<NormalDn, DnError> {
        check_length(text)?;
        match plain::parse(self, text) {
            Some(whole) => Ok(NormalDn { whole, first: 0 }),
            None => self.normalize_dn(&Dn::parse(text)?),
        }
    }

    /// A DN's text in normal form, as [`Self::parse_dn`] gives it, and in pretty form, as [`Self::pretty_dn`] does.
    ///
    /// # Errors
    /// The text is no DN, or names what the schema does not know.
    pub fn parse_and_show_dn(&self, text: &str) -> Result<(NormalDn, String), DnError> {
        let dn = self.parse_dn(text)?;
        let pretty = self.show_dn(&dn, text)?;
        Ok((dn, pretty))
    }

    /// The pretty form of a DN's text, of which `dn` is the normal form, as [`Self::parse_dn`] gives it.
    ///
    /// # Errors
    /// As [`Self::pretty_dn`]; none where the text is plain and normal already.
    pub fn show_dn(&self, dn: &NormalDn, text: &str) -> Result<String, DnError> {
        // The pretty form has the canonical attribute names, as the normal form has them, and plain values as they are given.
        if dn.whole.plain && dn.as_str() == text {
            return Ok(text.to_owned());
        }
        self.pretty_dn(&Dn::parse(text)?)
    }

    /// Appends the normal form of a DN's text.
    pub fn write_normal_dn(&self, text: &str, out: &mut Vec<u8>) -> Result<(), DnError> {
        check_length(text)?;
        if !plain::append(self, text, out) {
            out.extend_from_slice(self.normalize_dn(&Dn::parse(text)?)?.as_str().as_bytes());
        }
        Ok(())
    }

    /// The normal form of a DN.
    pub fn normalize_dn(&self, dn: &Dn<'_>) -> Result<NormalDn, DnError> {
        let mut text = String::new();
        let mut starts = SmallVec::new();
        for rdn in dn.rdns() {
            if !text.is_empty() {
                text.push(',');
            }
            starts.push(text.len() as u32);
            self.write_rdn(rdn, Form::Normal, &mut text)?;
        }
        Ok(NormalDn::from_parts(text, starts))
    }

    /// The normal form of an RDN.
    pub fn normalize_rdn(&self, rdn: &Rdn<'_>) -> Result<NormalRdn, DnError> {
        let mut text = String::new();
        self.write_rdn(rdn, Form::Normal, &mut text)?;
        Ok(NormalRdn(text.into()))
    }

    /// The DN as it is stored and returned: canonical attribute names, values as given, OpenLDAP's escapes.
    pub fn pretty_dn(&self, dn: &Dn<'_>) -> Result<String, DnError> {
        let mut text = String::new();
        for (i, rdn) in dn.rdns().iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            self.write_rdn(rdn, Form::Pretty, &mut text)?;
        }
        Ok(text)
    }

    /// The RDN as it is stored and returned.
    pub fn pretty_rdn(&self, rdn: &Rdn<'_>) -> Result<String, DnError> {
        let mut text = String::new();
        self.write_rdn(rdn, Form::Pretty, &mut text)?;
        Ok(text)
    }

    fn write_rdn(&self, rdn: &Rdn<'_>, form: Form, text: &mut String) -> Result<(), DnError> {
        let mut avas: SmallVec<[(&AttributeType, &RdnAva<'_>); 2]> = SmallVec::new();
        for ava in rdn.avas() {
            let attribute = self
                .attribute_type(ava.attribute)
                .ok_or_else(|| DnError::UnknownAttribute(ava.attribute.to_owned()))?;
            avas.push((attribute, ava));
        }
        avas.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
        for pair in avas.windows(2) {
            if let [(a, _), (b, _)] = pair
                && a.id == b.id
            {
                return Err(DnError::DuplicateAttribute(a.name().to_owned()));
            }
        }
        for (i, (attribute, ava)) in avas.into_iter().enumerate() {
            if i > 0 {
                text.push('+');
            }
            text.push_str(attribute.name());
            text.push('=');
            escape_value(&self.naming_value(attribute, ava, form)?, text);
        }
        Ok(())
    }

    fn naming_value<'a>(
        &self,
        attribute: &AttributeType,
        ava: &'a RdnAva<'_>,
        form: Form,
    ) -> Result<Cow<'a, [u8]>, DnError> {
        let name = || attribute.name().to_owned();
        if ava.hex || attribute.is_ordered_values() {
            return Err(DnError::Unsupported(name()));
        }
        if ava.value.is_empty() {
            return Err(DnError::EmptyValue(name()));
        }
        if std::str::from_utf8(&ava.value).is_err() {
            return Err(DnError::InvalidValue(name()));
        }
        let pretty = attribute.syntax.pretty(self, &ava.value).map_err(|_| DnError::InvalidValue(name()))?;
        let (Form::Normal, Some(rule)) = (form, attribute.equality) else { return Ok(pretty) };
        let mut normal = Vec::with_capacity(pretty.len());
        rule.normalize_text(self, &pretty, &mut normal).map_err(|_| DnError::InvalidValue(name()))?;
        if normal.is_empty() { Err(DnError::EmptyValue(name())) } else { Ok(Cow::Owned(normal)) }
    }
}

#[derive(Copy, Clone)]
enum Form {
    Normal,
    Pretty,
}

pub(crate) fn pretty_dn_text(schema: &Schema, text: &str) -> Result<String, InvalidValue> {
    let pretty = || schema.pretty_dn(&Dn::parse(text)?);
    check_length(text).and_then(|()| pretty()).map_err(|_| InvalidValue)
}

pub(crate) fn pretty_rdn_text(schema: &Schema, text: &str) -> Result<String, InvalidValue> {
    let pretty = || schema.pretty_rdn(&Rdn::parse(text)?);
    check_length(text).and_then(|()| pretty()).map_err(|_| InvalidValue)
}

pub(crate) fn rdn_key(schema: &Schema, text: &str) -> Result<String, InvalidValue> {
    let normal = || schema.normalize_rdn(&Rdn::parse(text)?);
    let normal = check_length(text).and_then(|()| normal()).map_err(|_| InvalidValue)?;
    Ok(normal.as_str().to_owned())
}

/// Splits NameAndOptionalUID (RFC 4517 §3.3.21) into the DN and the bit string.
pub(crate) fn parse_name_and_uid(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('#') {
        Some((name, uid)) if is_bit_string(uid.as_bytes()) => (name, Some(uid)),
        _ => (text, None),
    }
}

fn check_length(text: &str) -> Result<(), DnError> {
    if text.len() > MAX_DN_LENGTH { Err(DnError::TooLong(text.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
