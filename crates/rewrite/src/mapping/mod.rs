//! The mapping of requests and answers: names by rules, attributes and object classes by maps.

mod answer;
mod controls;
mod filter;
mod names;
mod request;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use larix_proto::url::LdapUrl;
use larix_proto::{Dn, LdapResult, ResultCode};
use larix_schema::{Schema, SyntaxKind};

use crate::rules::{ContextId, Rewrite, Rewritten, Searches, Session};

pub use answer::Answers;
pub use names::MapError;
use names::{NameMap, Of};

/// `objectClass` (RFC 4512 section 3.3).
const OBJECT_CLASS: &str = "2.5.4.0";
/// `structuralObjectClass` (RFC 4512 section 3.4.8).
const STRUCTURAL_OBJECT_CLASS: &str = "2.5.21.9";
/// `ref` (RFC 3296 section 2.2).
const REFERRAL: &str = "2.16.840.1.113730.3.1.34";

/// Where a name stands; rules go by that.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RewriteContext {
    /// What binds.
    Bind,
    /// The base of a search.
    Search,
    /// The filter of a search as text.
    SearchFilter,
    /// A value in a filter.
    SearchFilterValue,
    Compare,
    CompareValue,
    Add,
    AddValue,
    Modify,
    ModifyValue,
    /// In a URL that is added or changed.
    ReferralValue,
    /// What is renamed.
    Rename,
    NewSuperior,
    NewRdn,
    Delete,
    /// Whose password is replaced.
    Password,
    /// The name of an entry that is answered.
    Entry,
    /// A value of such an entry.
    EntryValue,
    /// The matched DN of a result.
    Matched,
    /// In the URL of a referral or reference that is answered.
    Referral,
}

/// Every place, the context of its rules, and the one whose rules hold where it has no context.
const CONTEXTS: [(RewriteContext, &str, &str); 20] = [
    (RewriteContext::Bind, "bindDN", DEFAULT),
    (RewriteContext::Search, "searchDN", DEFAULT),
    (RewriteContext::SearchFilter, "searchFilter", ""),
    (RewriteContext::SearchFilterValue, "searchFilterAttrDN", DEFAULT),
    (RewriteContext::Compare, "compareDN", DEFAULT),
    (RewriteContext::CompareValue, "compareAttrDN", DEFAULT),
    (RewriteContext::Add, "addDN", DEFAULT),
    (RewriteContext::AddValue, "addAttrDN", DEFAULT),
    (RewriteContext::Modify, "modifyDN", DEFAULT),
    (RewriteContext::ModifyValue, "modifyAttrDN", DEFAULT),
    (RewriteContext::ReferralValue, "referralAttrDN", ""),
    (RewriteContext::Rename, "renameDN", DEFAULT),
    (RewriteContext::NewSuperior, "newSuperiorDN", DEFAULT),
    (RewriteContext::NewRdn, "newRDN", ""),
    (RewriteContext::Delete, "deleteDN", DEFAULT),
    (RewriteContext::Password, "exopPasswdDN", DEFAULT),
    (RewriteContext::Entry, "searchEntryDN", ""),
    (RewriteContext::EntryValue, "searchAttrDN", "searchEntryDN"),
    (RewriteContext::Matched, "matchedDN", "searchEntryDN"),
    (RewriteContext::Referral, "referralDN", ""),
];

const DEFAULT: &str = "default";

/// The places of answers, whose rules run on threads that have no directory to search.
const ANSWERS: [RewriteContext; 4] =
    [RewriteContext::Entry, RewriteContext::EntryValue, RewriteContext::Matched, RewriteContext::Referral];

/// What rules may use beside the text.
#[derive(Copy, Clone)]
pub struct Surroundings<'a> {
    pub searches: Searches<'a>,
    pub session: Option<&'a Session>,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("session", &self.session).finish_non_exhaustive()
    }
}

/// How another directory's names, attributes and classes are seen here.
#[derive(Clone, Debug)]
pub struct Mapping {
    schema: Arc<Schema>,
    rules: Rewrite,
    /// The context of each place, in the order of [`CONTEXTS`], where it has rules.
    contexts: [Option<ContextId>; CONTEXTS.len()],
    attributes: NameMap,
    classes: NameMap,
    absolute_filters: bool,
    drops_unrequested: bool,
}

impl Mapping {
    /// One that leaves everything as it is.
    pub fn new(schema: Arc<Schema>) -> Self {
        Self {
            schema,
            rules: Rewrite::with_sessions(),
            contexts: [None; CONTEXTS.len()],
            attributes: NameMap::new(Of::Attributes),
            classes: NameMap::new(Of::Classes),
            absolute_filters: false,
            drops_unrequested: true,
        }
    }

    /// The same with these rules for names.
    ///
    /// # Errors
    /// The context of answers whose rules search the directory: there is none where these are mapped.
    pub fn with_rules(mut self, rules: Rewrite) -> Result<Self, &'static str> {
        let context = |name: &str| rules.context(name);
        for (found, (place, own, other)) in self.contexts.iter_mut().zip(CONTEXTS) {
            let Some((id, has_rules)) = context(own).or_else(|| context(other)) else { continue };
            if ANSWERS.contains(&place) && rules.searches(id) {
                return Err(own);
            }
            *found = Some(id).filter(|_| has_rules && rules.is_on());
        }
        self.rules = rules;
        Ok(self)
    }

    /// Takes a line of the maps: `attribute` or `objectclass`, then the name here, unless what is there is not to be seen, then the
    /// name there; `*` for either is the other, `* *` everything else as it is, `*` alone nothing else.
    ///
    /// # Errors
    /// A line that says something else; a name that has been mapped.
    pub fn map(&mut self, words: &[&str]) -> Result<(), MapError> {
        let Some((kind, words)) = words.split_first() else { return Err(MapError::Missing) };
        let map = match kind.to_ascii_lowercase().as_str() {
            "attribute" => &mut self.attributes,
            "objectclass" => &mut self.classes,
            _ => return Err(MapError::Kind((*kind).to_owned())),
        };
        map.add(&self.schema, words)
    }

    /// Whether the backend knows the filters `(&)` and `(|)` (RFC 4526).
    #[must_use]
    pub fn with_absolute_filters(self, known: bool) -> Self {
        Self { absolute_filters: known, ..self }
    }

    /// Whether attributes that a search did not ask for are left out of entries.
    #[must_use]
    pub fn dropping_unrequested(self, drops: bool) -> Self {
        Self { drops_unrequested: drops, ..self }
    }

    /// Whether rules have variables of the client's session.
    pub fn uses_session(&self) -> bool {
        self.rules.uses_session()
    }

    fn has_rules(&self, place: RewriteContext) -> bool {
        self.context_of(place).is_some()
    }

    fn context_of(&self, place: RewriteContext) -> Option<ContextId> {
        let at = CONTEXTS.iter().position(|(known, ..)| *known == place)?;
        self.contexts.get(at).copied().flatten()
    }

    /// What the rules make of a text; none: it stays.
    fn text(
        &self,
        place: RewriteContext,
        text: &str,
        around: &Surroundings<'_>,
    ) -> Result<Option<String>, LdapResult> {
        let Some(context) = self.context_of(place) else { return Ok(None) };
        match self.rules.rewrite(context, text, around.searches, around.session) {
            Rewritten::Kept => Ok(None),
            Rewritten::Changed(text) => Ok(Some(text)),
            Rewritten::Refused(code) => Err(fault(place, code)),
            Rewritten::Failed => Err(fault(place, ResultCode::OTHER)),
        }
    }

    /// A name as it is behind the mapping, or, of an answer, as it is here. Rules see names in their pretty form where the schema
    /// knows their attributes.
    ///
    /// # Errors
    /// Rules that refuse the name, or have failed.
    pub fn name<'n>(
        &self,
        place: RewriteContext,
        name: &'n str,
        around: &Surroundings<'_>,
    ) -> Result<Cow<'n, str>, LdapResult> {
        if !self.has_rules(place) {
            return Ok(Cow::Borrowed(name));
        }
        let pretty = self.schema.parse_and_show_dn(name).ok().map(|(_, pretty)| pretty);
        let mapped = self.text(place, pretty.as_deref().unwrap_or(name), around)?;
        Ok(mapped.map_or(Cow::Borrowed(name), Cow::Owned))
    }

    /// A name of an answer as it is here. None: rules refuse it, have failed, or have made something of it that is no DN.
    fn local_name<'n>(
        &self,
        place: RewriteContext,
        name: &'n str,
        around: &Surroundings<'_>,
    ) -> Option<Cow<'n, str>> {
        let mapped = self.name(place, name, around).ok()?;
        let is_sound = match &mapped {
            Cow::Borrowed(_) => true,
            Cow::Owned(made) => is_dn(made),
        };
        is_sound.then_some(mapped)
    }

    /// A URL whose DN is mapped; one that cannot be parsed or has no DN, and one of whose DN rules make no DN, stays.
    fn url(
        &self,
        place: RewriteContext,
        url: &str,
        around: &Surroundings<'_>,
    ) -> Result<Option<String>, LdapResult> {
        if !self.has_rules(place) {
            return Ok(None);
        }
        let Ok(parsed) = LdapUrl::parse(url) else { return Ok(None) };
        if parsed.dn.is_empty() {
            return Ok(None);
        }
        let dn = match self.name(place, &parsed.dn, around)? {
            Cow::Owned(dn) if is_dn(&dn) => dn,
            _ => return Ok(None),
        };
        Ok(Some(LdapUrl { dn, ..parsed }.to_string()))
    }

    /// What values of an attribute are, by its description here. Those with an optional UID are names where the attribute has DN
    /// syntax here or there, as in slapd.
    fn kind(&self, description: &str) -> ValueKind {
        let (base, _) = names::parted(description);
        let local = self.kind_of(base);
        if matches!(local, ValueKind::Class | ValueKind::Url) {
            return local;
        }
        let foreign = match self.attributes.foreign(&self.schema, base) {
            Some(Cow::Owned(foreign)) => self.kind_of(&foreign),
            _ => local,
        };
        match (local, foreign) {
            (ValueKind::Name, ValueKind::NameAndUid) | (ValueKind::NameAndUid, ValueKind::Name) => {
                ValueKind::NameAndUid
            }
            (ValueKind::Name, _) | (_, ValueKind::Name) => ValueKind::Name,
            _ => ValueKind::Other,
        }
    }

    fn kind_of(&self, base: &str) -> ValueKind {
        let Some(known) = self.schema.attribute_type(base) else { return ValueKind::Other };
        match known.oid.as_str() {
            OBJECT_CLASS | STRUCTURAL_OBJECT_CLASS => ValueKind::Class,
            REFERRAL => ValueKind::Url,
            _ => match known.syntax.kind {
                SyntaxKind::DistinguishedName => ValueKind::Name,
                SyntaxKind::NameAndOptionalUid => ValueKind::NameAndUid,
                _ => ValueKind::Other,
            },
        }
    }

    /// A value as it is behind the mapping. None: it is a class that is not there.
    fn foreign_value<'v>(
        &self,
        attribute: &str,
        value: &'v [u8],
        place: RewriteContext,
        around: &Surroundings<'_>,
    ) -> Result<Option<Cow<'v, [u8]>>, LdapResult> {
        let kept = Ok(Some(Cow::Borrowed(value)));
        let Ok(text) = std::str::from_utf8(value) else { return kept };
        match self.kind(attribute) {
            ValueKind::Other => kept,
            ValueKind::Class => Ok(self.classes.foreign(&self.schema, text).map(bytes)),
            ValueKind::Url => {
                let url = self.url(RewriteContext::ReferralValue, text, around)?;
                Ok(Some(url.map_or(Cow::Borrowed(value), |url| Cow::Owned(url.into_bytes()))))
            }
            kind @ (ValueKind::Name | ValueKind::NameAndUid) => {
                self.name_in(kind, place, text, around).map(|name| Some(bytes(name)))
            }
        }
    }

    /// A value; one of which rules make no DN stays, as in slapd.
    fn name_in<'v>(
        &self,
        kind: ValueKind,
        place: RewriteContext,
        text: &'v str,
        around: &Surroundings<'_>,
    ) -> Result<Cow<'v, str>, LdapResult> {
        let uid = if kind == ValueKind::NameAndUid && text.ends_with("'B") { text.rfind('#') } else { None };
        let (name, uid) = text.split_at(uid.unwrap_or(text.len()));
        Ok(match self.name(place, name, around)? {
            Cow::Owned(name) if is_dn(&name) => Cow::Owned(name + uid),
            _ => Cow::Borrowed(text),
        })
    }
}

/// Whether a text is a DN, of whatever attributes (RFC 4514).
fn is_dn(text: &str) -> bool {
    Dn::parse(text).is_ok()
}

/// What is answered where rules do not let a name through.
fn fault(place: RewriteContext, code: ResultCode) -> LdapResult {
    let context = CONTEXTS.iter().find(|(known, ..)| *known == place).map_or("", |(_, context, _)| *context);
    LdapResult::with(code, format!("{context} massage error"))
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// What the values of an attribute are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum ValueKind {
    Other,
    /// Names of object classes.
    Class,
    /// DNs.
    Name,
    /// DNs with an optional UID (RFC 4517 section 3.3.21).
    NameAndUid,
    /// LDAP URLs.
    Url,
}
