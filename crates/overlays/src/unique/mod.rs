//! `overlay unique`: values of attributes that at most one entry may have (slapo-unique(5)).
//!
//! The check looks at the entry as the change leaves it, in the writer's own transaction: of two changes at once the second one
//! finds what the first one wrote. slapd searches before it writes, and two adds at once may both pass there.

mod add_check;
mod config;
mod replicated;
mod stored;
mod term_searches;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::entry::Entry;
use larix_engine::index::IndexConfig;
use larix_engine::overlay::committed::Committed;
use larix_engine::overlay::internal_search::{FoundEntry, InternalSearch, SearchEnd};
use larix_engine::overlay::{
    Additions, AroundChange, Change, ChangeKind, Consequence, Descriptor, Entries, Failure, FollowUp,
    InGluedDatabases, Interests, Overlay, OverlayDirective, PendingChange, PreparedChange, Refusal,
    Violation,
};

use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use add_check::AddCheck;
use term_searches::TermSearches;

pub use config::UniqueDirectives;

pub static DESCRIPTOR: Descriptor = Descriptor::new("unique", "olcUniqueConfig", config::build)
    .over_glue(InGluedDatabases::Refused("it looks for values in one database"))
    .once()
    .directives(&[
        OverlayDirective::whole("unique_base", "olcUniqueBase").with_blanks(),
        OverlayDirective::each("unique_ignore", "olcUniqueIgnore"),
        OverlayDirective::each("unique_attributes", "olcUniqueAttribute"),
        OverlayDirective::switch("unique_strict", "olcUniqueStrict"),
        // Under cn=config slapd reads what stands there, without quotes.
        OverlayDirective::whole("unique_uri", "olcUniqueURI").arguments(1, u8::MAX).many(),
    ]);

/// Bytes of the filter that a refusal quotes; a longer one is cut.
const QUOTED_MAX: usize = 1024;

/// Which values are unique.
#[derive(Clone, Debug, Default)]
pub struct UniqueSettings {
    pub domains: Vec<Domain>,
}

/// One `unique_uri`: its areas share the keywords, and are searched one by one.
#[derive(Clone, Debug)]
pub struct Domain {
    /// `strict`: an attribute without a value is a value, too, that one entry may have.
    pub strict: bool,
    /// `ignore`: all user attributes but those that are named.
    pub ignore: bool,
    pub areas: Vec<Area>,
}

/// One URI of a domain.
#[derive(Clone, Debug)]
pub struct Area {
    /// `None`: the database's suffix.
    pub base: Option<NormalDn>,
    pub scope: Scope,
    /// Empty: all user attributes.
    pub attributes: Vec<AttributeDescription>,
    /// Only entries that match are compared; with its text, for refusals.
    pub filter: Option<(BoundFilter, String)>,
}

impl Domain {
    /// Whether the domain is about this attribute: exactly as it is described, without options or subtypes.
    fn covers(&self, schema: &Schema, area: &Area, description: &AttributeDescription) -> bool {
        let named = area.attributes.contains(description);
        !schema.attribute(description.attribute).is_operational()
            && (area.attributes.is_empty() || named != self.ignore)
    }
}

/// Keeps values unique.
#[derive(Debug)]
pub struct Unique {
    settings: Arc<UniqueSettings>,
    suffix: NormalDn,
    /// Whether changes of the database come from other servers: values of theirs are looked at once they are here.
    receives: bool,
}

impl Unique {
    /// `suffix`: the database's first.
    pub fn new(settings: UniqueSettings, suffix: NormalDn) -> Self {
        Self { settings: Arc::new(settings), suffix, receives: false }
    }

    /// Looks at what other servers changed, too.
    #[must_use]
    pub(crate) fn receiving(self, receives: bool) -> Self {
        Self { receives, ..self }
    }

    /// The attributes whose values are looked up, for a check of the indexes; none for a domain about all user attributes.
    fn attributes(&self) -> Vec<AttributeDescription> {
        let mut found = Vec::new();
        let domains = self.settings.domains.iter().filter(|domain| !domain.ignore);
        for description in domains.flat_map(|domain| &domain.areas).flat_map(|area| &area.attributes) {
            if !found.contains(description) {
                found.push(description.clone());
            }
        }
        found
    }
}

impl Overlay for Unique {
    fn name(&self) -> &'static str {
        "unique"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE | if self.receives { Interests::COMMITTED } else { Interests::NONE }
    }

    fn committed(&self) -> Option<&dyn Committed> {
        Some(self)
    }

    fn index_notes(&self, schema: &Schema, index: &IndexConfig) -> Vec<String> {
        let note = |names: String| {
            format!(
                "each change of these looks at every entry: unique attributes without an equality index; add \
                 `index {names} eq`"
            )
        };
        index.lacking_equality(schema, &self.attributes()).map(note).into_iter().collect()
    }

    fn violations(
        &self,
        entries: &dyn Entries,
        schema: &Schema,
        report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        self.report_shared(entries, schema, report)
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        if !change.is_judged() || self.settings.domains.is_empty() {
            return Ok(Additions::default());
        }
        let (before, dn, asserted) = match change.operation {
            PreparedChange::Add { dn, .. } => (dn, dn.clone(), Vec::new()),
            PreparedChange::Modify { dn, mods } => (dn, dn.clone(), of_changes(mods)),
            PreparedChange::ModifyDn(rename) => (&rename.dn, rename.target(), of_changes(&rename.mods)),
            PreparedChange::Delete { .. } | PreparedChange::Authenticate(_) | PreparedChange::Record(_) => {
                return Ok(Additions::default());
            }
        };
        if let PreparedChange::Modify { mods, .. } = change.operation
            && !self.may_concern(change.schema, mods)
        {
            return Ok(Additions::default());
        }
        if change.controls.relax && self.may_bypass(change, &dn)? {
            return Ok(Additions::default());
        }
        let (settings, suffix) = (Arc::clone(&self.settings), self.suffix.clone());
        let origin = change.required_by.cloned();
        let check = Check { settings, suffix, before: before.clone(), dn, asserted, origin };
        if let PreparedChange::Add { entry, .. } = change.operation {
            // All of it is known: the answer comes before those of the schema, as in slapd.
            check.judge(None, entry, (change.entries, change.entries), change.schema)?;
            let follow_up = match change.is_final {
                true => None,
                false => Some(AddCheck::new(check, entry, change)?),
            };
            let follow_up = follow_up.map(|check| Box::new(check) as Box<dyn FollowUp>);
            return Ok(Additions { follow_up, ..Additions::default() });
        }
        Ok(Additions { follow_up: Some(Box::new(check)), ..Additions::default() })
    }
}

impl Unique {
    /// Whether values of a domain may come to an entry by these changes: themselves, or because a filter finds it then.
    fn may_concern(&self, schema: &Schema, mods: &[Change]) -> bool {
        let brings = |domain: &Domain, area: &Area| {
            let mut come = mods.iter().filter(|change| change.kind != ChangeKind::Delete);
            come.any(|change| domain.covers(schema, area, &change.description))
        };
        let domains = &self.settings.domains;
        domains
            .iter()
            .any(|domain| domain.areas.iter().any(|area| area.filter.is_some() || brings(domain, area)))
    }

    /// With the relax rules control, a requester who may manage the entry is not bound by uniqueness.
    fn may_bypass(&self, change: &PendingChange<'_>, dn: &NormalDn) -> Result<bool, Refusal> {
        let stored;
        let entry = match change.operation {
            PreparedChange::Add { entry, .. } => entry,
            other => {
                stored = change.entries.entry(other.dn())?;
                match &stored {
                    Some(entry) => entry,
                    None => return Ok(false),
                }
            }
        };
        Ok(change.entries.manages(change.subject, dn, entry)?)
    }
}

/// What a change says of one attribute: its new values, or that there are none.
type Asserted = (AttributeDescription, Vec<Vec<u8>>);

fn of_changes(changes: &[Change]) -> Vec<Asserted> {
    let come = changes.iter().filter(|change| change.kind != ChangeKind::Delete);
    come.map(|change| {
        // What an increment leads to, only the entry tells.
        let values = if change.kind == ChangeKind::Increment { Vec::new() } else { change.values.clone() };
        (change.description.clone(), values)
    })
    .collect()
}

/// Asked once the change is made; for an add before it.
#[derive(Debug)]
struct Check {
    settings: Arc<UniqueSettings>,
    suffix: NormalDn,
    /// The name that the entry had.
    before: NormalDn,
    dn: NormalDn,
    asserted: Vec<Asserted>,
    /// The entry that this one is kept in step with: the two may share values.
    origin: Option<NormalDn>,
}

impl FollowUp for Check {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let old = around.before.entry(&self.before)?;
        if let Some(new) = around.after.entry(&self.dn)? {
            self.judge(old.as_ref(), &new, (around.before, around.after), schema)?;
        }
        Ok(Vec::new())
    }
}

impl Check {
    /// Refuses values of the entry that others have. `old`: the entry before the change, if it was there.
    fn judge(
        &self,
        old: Option<&Entry>,
        new: &Entry,
        (before, after): (&dyn Entries, &dyn Entries),
        schema: &Schema,
    ) -> Result<(), Refusal> {
        for domain in &self.settings.domains {
            for area in &domain.areas {
                if !self.is_in(area, &self.dn, new, after)? {
                    continue;
                }
                // An entry that comes into the area brings all of its values.
                let was_in = match old {
                    Some(old) => self.is_in(area, &self.before, old, before)?,
                    None => false,
                };
                let all;
                let asserted = if was_in {
                    &self.asserted
                } else {
                    all = self.all_of(new, (domain, area), after, schema)?;
                    &all
                };
                let terms = terms(schema, domain, area, asserted, new);
                if !terms.is_empty() {
                    self.look(area, &terms, after, schema)?;
                }
            }
        }
        Ok(())
    }

    /// All values that a domain is about, also those that the entry has left in the store.
    fn all_of(
        &self,
        entry: &Entry,
        (domain, area): (&Domain, &Area),
        entries: &dyn Entries,
        schema: &Schema,
    ) -> Result<Vec<Asserted>, Failure> {
        let mut all = Vec::new();
        for attribute in entry.attributes.iter().filter(|own| domain.covers(schema, area, &own.description)) {
            let mut attribute = attribute.clone();
            entries.bring(&self.dn, &mut attribute)?;
            all.push((attribute.description, attribute.values));
        }
        Ok(all)
    }

    /// Whether the area is about this entry. As in slapd the base counts and the scope does not: an entry deeper than one level
    /// must not have a value of those that a domain of scope `one` has found.
    fn is_in(
        &self,
        area: &Area,
        dn: &NormalDn,
        entry: &Entry,
        entries: &dyn Entries,
    ) -> Result<bool, Refusal> {
        if area.base.as_ref().is_some_and(|base| !dn.is_within(base)) {
            return Ok(false);
        }
        Ok(match &area.filter {
            Some((filter, _)) => entries.matches(dn, entry, filter)?,
            None => true,
        })
    }

    /// Refuses when another entry of the area has one of the values.
    fn look(
        &self,
        area: &Area,
        terms: &[Term],
        entries: &dyn Entries,
        schema: &Schema,
    ) -> Result<(), Refusal> {
        match self.other(area, terms, entries, schema)? {
            Some(_) => Err(refusal(area, terms).into()),
            None => Ok(()),
        }
    }

    /// Another entry of the area that has one of the values.
    fn other(
        &self,
        area: &Area,
        terms: &[Term],
        entries: &dyn Entries,
        schema: &Schema,
    ) -> Result<Option<String>, Failure> {
        let TermSearches { searches, together } = TermSearches::of(terms, entries)?;
        for terms in searches {
            let any = match terms.as_slice() {
                [one] => one.filter.clone(),
                many => BoundFilter::Or(many.iter().map(|term| term.filter.clone()).collect()),
            };
            let other = self.found(area, any, entries, &|_| Ok(true))?;
            if other.is_some() {
                return Ok(other);
            }
        }
        if together.is_empty() {
            return Ok(None);
        }
        self.found(area, together.candidates(), entries, &|found| together.are_in(found, schema))
    }

    /// Another entry of the area that a filter finds, and that `has` confirms.
    fn found(
        &self,
        area: &Area,
        any: BoundFilter,
        entries: &dyn Entries,
        has: &dyn Fn(&dyn FoundEntry) -> Result<bool, Fault>,
    ) -> Result<Option<String>, Failure> {
        let filter = match &area.filter {
            Some((filter, _)) => BoundFilter::And(vec![filter.clone(), any]),
            None => any,
        };
        let root = NormalDn::root();
        let base = match (&area.base, area.scope) {
            (Some(base), _) => base,
            (None, Scope::Subtree | Scope::Children) => &root,
            (None, Scope::OneLevel | Scope::Base) => &self.suffix,
        };
        // The change is judged for what the directory holds, whether the requester may see it or not: as in slapd.
        let query = InternalSearch::new(base, area.scope, &filter);
        let mut other = None;
        let mut visit = |found: &dyn FoundEntry| -> Result<bool, Fault> {
            let dn = found.dn()?;
            let is_origin = self.origin.as_ref().is_some_and(|origin| dn.is_within(origin));
            if *dn != self.dn && !is_origin && has(found)? {
                other = Some(found.shown_dn()?);
            }
            Ok(other.is_none())
        };
        let searched = entries.search(&query, &mut visit)?;
        if searched.ended == SearchEnd::TooMuchWork {
            // What was not looked at may have the value.
            let text =
                "unique: the filter of a domain takes more steps for one entry than request-limits allows";
            return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
        }
        Ok(other)
    }
}

/// One value that must not be elsewhere.
struct Term {
    /// The attribute's name.
    attribute: String,
    filter: BoundFilter,
    text: String,
}

/// The values of a change that a domain is about. A value that no equality rule compares is never found: it is passed over.
fn terms(schema: &Schema, domain: &Domain, area: &Area, asserted: &[Asserted], new: &Entry) -> Vec<Term> {
    let mut terms = Vec::new();
    for (description, values) in asserted {
        if !domain.covers(schema, area, description) {
            continue;
        }
        let name = description.to_text(schema);
        let now = new.attribute(description).map_or(&[][..], |attribute| &attribute.values);
        let values = if values.is_empty() { now } else { values };
        if values.is_empty() && domain.strict {
            terms.push(Term {
                attribute: name.clone(),
                filter: BoundFilter::Present(description.clone()),
                text: format!("({name}=*)"),
            });
        }
        for value in values {
            if let Ok(assertion) = schema.bind_equality(description, value) {
                let filter = BoundFilter::Equality(assertion);
                let text = format!("({name}={})", escaped(value));
                terms.push(Term { attribute: name.clone(), filter, text });
            }
        }
    }
    terms
}

/// A value as it stands in a filter (RFC 4515 section 3).
fn escaped(value: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(value.len());
    for piece in value.utf8_chunks() {
        for character in piece.valid().chars() {
            match character {
                '*' | '(' | ')' | '\\' | '\0' => {
                    let _ = write!(out, "\\{:02X}", u32::from(character));
                }
                other => out.push(other),
            }
        }
        for byte in piece.invalid() {
            let _ = write!(out, "\\{byte:02X}");
        }
    }
    out
}

fn refusal(area: &Area, terms: &[Term]) -> LdapResult {
    let mut any = String::new();
    for term in terms {
        if any.len() + term.text.len() > QUOTED_MAX {
            any.push_str("...");
            break;
        }
        any.push_str(&term.text);
    }
    let text = match &area.filter {
        Some((_, filter)) => format!("non-unique attributes found with (&{filter}(|{any}))"),
        None => format!("non-unique attributes found with (|{any})"),
    };
    LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text)
}
