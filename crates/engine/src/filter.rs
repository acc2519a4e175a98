//! Filters as they are evaluated: bound to the schema and to the numbers of one database (RFC 4511 section 4.5.1.7).
//!
//! Three-valued: what the subject may not search, and what the schema cannot compare, is Undefined and stays so under
//! NOT. Entries are read in place.

mod in_chain;

use larix_proto::Dn;
use larix_schema::{
    AttributeDescription, BoundAssertion, BoundExtensible, BoundFilter, BoundSubstrings, Match, NormalDn,
    Schema, Scratch,
};

use crate::budget::{LimitExceeded, Meter, RequestLimit, RequestLimits};
use crate::catalog::{Catalog, CoveredOnce};
use crate::entry::{EntrySource, Target};
use crate::fault::Fault;

pub(crate) use in_chain::InChain;

/// A filter ready to be evaluated.
#[derive(Clone, Debug)]
pub enum Filter {
    Constant(Match),
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Test(Test),
}

/// One assertion of a filter.
#[derive(Clone, Debug)]
pub struct Test {
    pub target: Target,
    pub assertion: Assertion,
}

#[derive(Clone, Debug)]
pub enum Assertion {
    Present,
    Equality(BoundAssertion),
    Approx(BoundAssertion),
    GreaterOrEqual(BoundAssertion),
    LessOrEqual(BoundAssertion),
    Substrings(BoundSubstrings),
    Extensible(BoundExtensible),
    /// By the rule that goes along chains of names.
    InChain(Box<InChain>),
    /// entryDN is computed.
    EntryDn(NormalDn),
    /// hasSubordinates is computed.
    HasSubordinates(bool),
    /// Computed attributes that every entry has.
    Everywhere,
}

/// What a filter asks besides the values.
pub trait FilterContext {
    fn schema(&self) -> &Schema;
    /// Whether the subject may search for this (privilege `search`).
    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault>;
    /// The entry's normalized DN.
    fn normal_dn(&self) -> Result<NormalDn, Fault>;
    /// The entry's DN as it is shown: rules that tell case apart need it. Where only the normalized one is at hand, that.
    fn shown_dn(&self) -> Result<String, Fault> {
        Ok(self.normal_dn()?.as_str().to_owned())
    }
    fn has_subordinates(&self) -> Result<bool, Fault>;
    /// What the work on the entry is charged to; `None`: no request waits for it.
    fn meter(&self) -> Option<&Meter> {
        None
    }
    /// Whether the rules may say of one value of the attribute otherwise than of another (`val=`): then a value that matches has to be
    /// asked about, too.
    fn judges_values(&self, _: &AttributeDescription) -> Result<bool, Fault> {
        Ok(false)
    }
    /// Whether [`Self::may_search`] is true of everything.
    fn may_search_all(&self) -> bool {
        false
    }
}

impl Filter {
    pub fn new(schema: &Schema, catalog: &Catalog, filter: BoundFilter) -> Self {
        Self::bound(&mut CoveredOnce::new(schema, catalog), filter)
    }

    /// The same, for a filter that a client sent: it may cost so many steps.
    ///
    /// # Errors
    /// Its terms have more attribute descriptions of the database to be looked through.
    pub fn within(
        limits: &RequestLimits,
        schema: &Schema,
        catalog: &Catalog,
        filter: BoundFilter,
    ) -> Result<Self, LimitExceeded> {
        let most = limits.most(RequestLimit::Steps);
        let mut covered = CoveredOnce::new(schema, catalog).at_most(most);
        let filter = Self::bound(&mut covered, filter);
        if covered.is_exceeded() {
            Err(LimitExceeded { limit: RequestLimit::Steps, most })
        } else {
            Ok(filter)
        }
    }

    fn bound(covered: &mut CoveredOnce<'_>, filter: BoundFilter) -> Self {
        let schema = covered.schema();
        let mut test = |description: AttributeDescription, assertion: Assertion| {
            Self::Test(Test { target: Target::among(covered, description), assertion })
        };
        match filter {
            BoundFilter::True => Self::Constant(Match::True),
            BoundFilter::False => Self::Constant(Match::False),
            BoundFilter::Undefined => Self::Constant(Match::Undefined),
            BoundFilter::And(list) => Self::And(Self::all(covered, list)),
            BoundFilter::Or(list) => Self::Or(Self::all(covered, list)),
            BoundFilter::Not(inner) => Self::Not(Box::new(Self::bound(covered, *inner))),
            BoundFilter::Present(description) => match schema.attribute(description.attribute).name() {
                "entryDN" | "subschemaSubentry" | "hasSubordinates" => {
                    test(description, Assertion::Everywhere)
                }
                _ => test(description, Assertion::Present),
            },
            BoundFilter::Equality(a) => match computed(schema, &a.description, a.value.raw()) {
                Some(assertion) => test(a.description, assertion),
                None => test(a.description.clone(), Assertion::Equality(a)),
            },
            // An approximate match of what has no rule for that is one of equality (RFC 4511 section 4.5.1.7.6).
            BoundFilter::Approx(a) => match computed(schema, &a.description, a.value.raw()) {
                Some(assertion) => test(a.description, assertion),
                None => test(a.description.clone(), Assertion::Approx(a)),
            },
            BoundFilter::GreaterOrEqual(a) => test(a.description.clone(), Assertion::GreaterOrEqual(a)),
            BoundFilter::LessOrEqual(a) => test(a.description.clone(), Assertion::LessOrEqual(a)),
            BoundFilter::Substrings(a) => test(a.description.clone(), Assertion::Substrings(a)),
            BoundFilter::Extensible(a) if a.rule.is_in_chain() => match &a.description {
                Some(description) if !a.dn_attributes => {
                    test(description.clone(), Assertion::InChain(Box::new(InChain::new(a))))
                }
                // A chain goes through one attribute.
                _ => Self::Constant(Match::Undefined),
            },
            BoundFilter::Extensible(a) => {
                let target = match &a.description {
                    Some(description) => Target::among(covered, description.clone()),
                    None => Target::any(),
                };
                let assertion = computed_by_own_rule(schema, &a).unwrap_or(Assertion::Extensible(a));
                Self::Test(Test { target, assertion })
            }
        }
    }

    fn all(covered: &mut CoveredOnce<'_>, list: Vec<BoundFilter>) -> Vec<Self> {
        list.into_iter().map(|filter| Self::bound(covered, filter)).collect()
    }

    /// The same filter with the numbers of a newer catalog.
    pub fn renumber(&mut self, schema: &Schema, catalog: &Catalog) {
        self.renumber_by(&mut CoveredOnce::new(schema, catalog));
    }

    fn renumber_by(&mut self, covered: &mut CoveredOnce<'_>) {
        match self {
            Self::Constant(_) => {}
            Self::And(list) | Self::Or(list) => list.iter_mut().for_each(|f| f.renumber_by(covered)),
            Self::Not(inner) => inner.renumber_by(covered),
            Self::Test(test) => test.target.renumber(covered),
        }
    }

    pub fn matches(&self, context: &dyn FilterContext, entry: &dyn EntrySource) -> Result<Match, Fault> {
        match self {
            Self::Constant(constant) => Ok(*constant),
            Self::Not(inner) => Ok(!inner.matches(context, entry)?),
            Self::And(list) => all_match(list, None, context, entry),
            Self::Or(list) => {
                let mut result = Match::False;
                for filter in list {
                    match filter.matches(context, entry)? {
                        Match::True => return Ok(Match::True),
                        Match::False => {}
                        Match::Undefined => result = Match::Undefined,
                    }
                }
                Ok(result)
            }
            Self::Test(test) => test.matches(context, entry),
        }
    }

    /// Like the above, for an entry for which this term of an AND is known to hold for the searching identity.
    pub(crate) fn matches_without(
        &self,
        proved: usize,
        context: &dyn FilterContext,
        entry: &dyn EntrySource,
    ) -> Result<Match, Fault> {
        match self {
            Self::And(list) => all_match(list, Some(proved), context, entry),
            _ => self.matches(context, entry),
        }
    }

    /// A term of an AND.
    pub fn term(&self, number: usize) -> Option<&Self> {
        if let Self::And(list) = self { list.get(number) } else { None }
    }
}

/// Whether all terms match; one of them may be known to match.
fn all_match(
    terms: &[Filter],
    proved: Option<usize>,
    context: &dyn FilterContext,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let mut result = Match::True;
    for (number, filter) in terms.iter().enumerate() {
        if proved == Some(number) {
            continue;
        }
        match filter.matches(context, entry)? {
            Match::True => {}
            Match::False => return Ok(Match::False),
            Match::Undefined => result = Match::Undefined,
        }
    }
    Ok(result)
}

impl Filter {
    /// Whether every attribute that the filter names passes `test`; never true of one that asks about all attributes.
    pub(crate) fn asks_only(&self, test: &dyn Fn(&AttributeDescription) -> bool) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::And(list) | Self::Or(list) => list.iter().all(|part| part.asks_only(test)),
            Self::Not(inner) => inner.asks_only(test),
            Self::Test(part) => {
                !matches!(part.assertion, Assertion::Extensible(_) | Assertion::InChain(_))
                    && part.target.description().is_some_and(test)
            }
        }
    }

    /// Whether it may be true of an entry or not by the names of the entry's superiors.
    pub fn asks_about_names(&self, schema: &Schema) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::And(list) | Self::Or(list) => list.iter().any(|part| part.asks_about_names(schema)),
            Self::Not(inner) => inner.asks_about_names(schema),
            Self::Test(part) => part.asks_about_names(schema),
        }
    }
}

impl Test {
    fn asks_about_names(&self, schema: &Schema) -> bool {
        match &self.assertion {
            Assertion::EntryDn(_) => true,
            Assertion::Extensible(assertion) => {
                let named = self.target.description().map(|own| schema.attribute(own.attribute).name());
                assertion.dn_attributes || named == Some("entryDN")
            }
            _ => false,
        }
    }

    fn matches(&self, context: &dyn FilterContext, entry: &dyn EntrySource) -> Result<Match, Fault> {
        if let Some(description) = self.target.description()
            && !context.may_search(description, self.raw())?
        {
            return Ok(Match::Undefined);
        }
        charge(context.meter(), 1)?;
        let schema = context.schema();
        let mut scratch = Scratch::default();
        match &self.assertion {
            Assertion::Everywhere => Ok(Match::True),
            Assertion::Present if self.is_simple(context, entry) && !self.judges(context)? => {
                entry.is_present(&self.target).map(Match::from)
            }
            Assertion::Present => self.any(context, entry, |_| Match::True),
            Assertion::EntryDn(dn) => Ok((context.normal_dn()? == *dn).into()),
            Assertion::HasSubordinates(expected) => Ok((context.has_subordinates()? == *expected).into()),
            Assertion::Equality(a) => {
                if self.is_simple(context, entry)
                    && let Some(member) = entry.large_member(&self.target, a.value.key())?
                {
                    return Ok(member.into());
                }
                self.any(context, entry, |value| a.matches(schema, value, &mut scratch))
            }
            Assertion::Approx(a) | Assertion::GreaterOrEqual(a) | Assertion::LessOrEqual(a) => {
                self.any(context, entry, |value| a.matches(schema, value, &mut scratch))
            }
            Assertion::Substrings(a) => {
                self.any(context, entry, |value| a.matches(schema, value, &mut scratch))
            }
            Assertion::Extensible(a) => self.extensible(context, a, entry),
            Assertion::InChain(chain) => self.in_chain(context, chain, entry),
        }
    }

    /// The assertion value as the client sent it, for rules that look at values.
    fn raw(&self) -> Option<&[u8]> {
        match &self.assertion {
            Assertion::Equality(a)
            | Assertion::Approx(a)
            | Assertion::GreaterOrEqual(a)
            | Assertion::LessOrEqual(a) => Some(a.value.raw()),
            Assertion::Extensible(a) => Some(a.value.raw()),
            Assertion::InChain(chain) => Some(chain.assertion.value.raw()),
            Assertion::EntryDn(dn) => Some(dn.as_str().as_bytes()),
            Assertion::HasSubordinates(expected) => Some(boolean(*expected)),
            Assertion::Present | Assertion::Substrings(_) | Assertion::Everywhere => None,
        }
    }

    /// Whether what matches has to be asked about by value. What is equal to the assertion value need not: that was asked about.
    fn judges_matches(&self) -> bool {
        match &self.assertion {
            Assertion::Present
            | Assertion::Substrings(_)
            | Assertion::Approx(_)
            | Assertion::GreaterOrEqual(_)
            | Assertion::LessOrEqual(_)
            | Assertion::Extensible(_) => true,
            Assertion::Equality(_)
            | Assertion::InChain(_)
            | Assertion::EntryDn(_)
            | Assertion::HasSubordinates(_)
            | Assertion::Everywhere => false,
        }
    }

    /// Whether values of the attribute itself that match have to be asked about.
    fn judges(&self, context: &dyn FilterContext) -> Result<bool, Fault> {
        match self.target.description().filter(|_| self.judges_matches() && !context.may_search_all()) {
            Some(description) => context.judges_values(description),
            None => Ok(false),
        }
    }

    /// Whether no subtype or option has to be asked about by itself.
    pub(super) fn is_simple(&self, context: &dyn FilterContext, entry: &dyn EntrySource) -> bool {
        context.may_search_all() || entry.has_only_itself(&self.target)
    }

    /// True of an attribute whose test is true of any value; Undefined if it is of none, but undefined of one, or if a
    /// subtype, or one with more options, may not be searched.
    pub(super) fn any(
        &self,
        context: &dyn FilterContext,
        entry: &dyn EntrySource,
        mut test: impl FnMut(&[u8]) -> Match,
    ) -> Result<Match, Fault> {
        let mut result = Match::False;
        let (meter, mut spent) = (context.meter(), false);
        let weight = if matches!(self.assertion, Assertion::Approx(_)) { APPROX_STEPS } else { 1 };
        let mut fault = None;
        // `judged`: the attribute, where the rules are asked about the value.
        let mut ask = |judged: Option<&AttributeDescription>, value: &[u8]| {
            spent = !meter.is_none_or(|meter| meter.take(weight * value_steps(value)));
            match unless_hidden(context, judged, value, test(value)) {
                Ok(found) => result = result.or(found),
                Err(error) => {
                    fault = Some(error);
                    return false;
                }
            }
            !result.is_true() && !spent
        };
        let Some(own) = self.target.description().filter(|_| !self.is_simple(context, entry)) else {
            let judges = self.judges(context)?;
            let judged = self.target.description().filter(|_| judges);
            entry.visit(&self.target, &mut |value| ask(judged, value))?;
            return fault.map_or_else(|| unless_spent(spent, result), Err);
        };
        let (mut covered, mut descriptions) = (Vec::new(), 0_u64);
        entry.descriptions(&mut |description| {
            descriptions += 1;
            if description.is_subdescription_of(context.schema(), own) {
                covered.push(description.clone());
            }
        })?;
        let mut hidden = false;
        for description in covered {
            // The rules are asked about each, and it is looked for among all.
            charge(meter, DESCRIPTION_STEPS + descriptions / DESCRIPTIONS_A_STEP)?;
            if description != *own && !context.may_search(&description, self.raw())? {
                hidden = true;
                continue;
            }
            let judges = self.judges_matches() && context.judges_values(&description)?;
            let judged = judges.then_some(&description);
            entry.visit_exact(&description, &mut |value| ask(judged, value))?;
        }
        if let Some(fault) = fault {
            return Err(fault);
        }
        unless_spent(spent, if hidden { result.or(Match::Undefined) } else { result })
    }

    fn extensible(
        &self,
        context: &dyn FilterContext,
        assertion: &BoundExtensible,
        entry: &dyn EntrySource,
    ) -> Result<Match, Fault> {
        let schema = context.schema();
        let mut scratch = Scratch::default();
        let name = self.target.description().map(|own| schema.attribute(own.attribute).name());
        let result = match name {
            Some("entryDN") => assertion.matches(schema, context.shown_dn()?.as_bytes(), &mut scratch),
            Some("hasSubordinates") => {
                assertion.matches(schema, boolean(context.has_subordinates()?), &mut scratch)
            }
            Some(_) => self.any(context, entry, |value| assertion.matches(schema, value, &mut scratch))?,
            None => applicable(context, assertion, entry)?,
        };
        let in_name = || dn_attribute_matches(context, assertion, &context.shown_dn()?);
        if result != Match::True && assertion.dn_attributes && in_name()? {
            return Ok(Match::True);
        }
        Ok(result)
    }
}

/// What was found of a value. One that may not be searched for is as one that is not there: what a filter matches would tell it piece by
/// piece. `judged`: the attribute; `None` where no rule is about values.
fn unless_hidden(
    context: &dyn FilterContext,
    judged: Option<&AttributeDescription>,
    value: &[u8],
    found: Match,
) -> Result<Match, Fault> {
    match judged.filter(|_| found.is_true()) {
        Some(description) if !context.may_search(description, Some(value))? => Ok(Match::False),
        _ => Ok(found),
    }
}

/// What it costs to find how a value sounds, for each step that looking at it costs.
const APPROX_STEPS: u64 = 8;
/// What it costs to ask the rules about one of several descriptions that a term is for.
const DESCRIPTION_STEPS: u64 = 16;
/// So many descriptions are passed over for a step.
const DESCRIPTIONS_A_STEP: u64 = 64;

/// Bytes of a value that cost a step.
const STEP_BYTES: usize = 256;

/// What it costs to look at a value.
#[inline]
pub(crate) fn value_steps(value: &[u8]) -> u64 {
    1 + (value.len() / STEP_BYTES) as u64
}

/// Takes steps for work on an entry.
///
/// # Errors
/// There are none left.
#[inline]
pub(crate) fn charge(meter: Option<&Meter>, steps: u64) -> Result<(), Fault> {
    unless_spent(!meter.is_none_or(|meter| meter.take(steps)), ())
}

/// An answer of the access rules, unless the steps did not last for it.
///
/// # Errors
/// They did not.
#[inline]
pub(crate) fn unless_overdrawn<T>(meter: Option<&Meter>, answer: T) -> Result<T, Fault> {
    unless_spent(meter.is_some_and(Meter::is_overdrawn), answer)
}

/// What was found, unless the steps did not last for all of it.
#[inline]
fn unless_spent<T>(spent: bool, found: T) -> Result<T, Fault> {
    if spent { Err(Fault::StepsSpent) } else { Ok(found) }
}

/// A value of the Boolean syntax (RFC 4517 section 3.3.3).
const fn boolean(holds: bool) -> &'static [u8] {
    if holds { b"TRUE" } else { b"FALSE" }
}

/// The equality assertion about an attribute that is computed of each entry and stored in none.
fn computed(schema: &Schema, description: &AttributeDescription, value: &[u8]) -> Option<Assertion> {
    match schema.attribute(description.attribute).name() {
        "entryDN" => {
            let text = std::str::from_utf8(value).ok()?;
            schema.parse_dn(text).ok().map(Assertion::EntryDn)
        }
        "hasSubordinates" => Some(Assertion::HasSubordinates(value.eq_ignore_ascii_case(b"TRUE"))),
        _ => None,
    }
}

/// The same of an extensible match by the attribute's own equality rule, which is an equality match (RFC 4511 section 4.5.1.7.7).
fn computed_by_own_rule(schema: &Schema, assertion: &BoundExtensible) -> Option<Assertion> {
    let description = assertion.description.as_ref().filter(|_| !assertion.dn_attributes)?;
    let equality = schema.attribute(description.attribute).equality;
    if equality == Some(assertion.rule) { computed(schema, description, assertion.value.raw()) } else { None }
}

/// Without an attribute, all to which the rule applies are asked (RFC 4511 section 4.5.1.7.7).
fn applicable(
    context: &dyn FilterContext,
    assertion: &BoundExtensible,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let schema = context.schema();
    let (mut descriptions, mut all) = (Vec::new(), 0_u64);
    entry.descriptions(&mut |description| {
        all += 1;
        if assertion.asks(schema.attribute(description.attribute)) {
            descriptions.push(description.clone());
        }
    })?;
    let mut result = Match::False;
    for description in descriptions {
        // The rules are asked about each, and it is looked for among all.
        charge(context.meter(), DESCRIPTION_STEPS + all / DESCRIPTIONS_A_STEP)?;
        if !context.may_search(&description, Some(assertion.value.raw()))? {
            continue;
        }
        let judges = !context.may_search_all() && context.judges_values(&description)?;
        let judged = judges.then_some(&description);
        let mut scratch = Scratch::default();
        let (meter, mut spent, mut fault) = (context.meter(), false, None);
        entry.visit_exact(&description, &mut |value| {
            spent = !meter.is_none_or(|meter| meter.take(value_steps(value)));
            match unless_hidden(context, judged, value, assertion.matches(schema, value, &mut scratch)) {
                Ok(found) => result = result.or(found),
                Err(error) => {
                    fault = Some(error);
                    return false;
                }
            }
            !result.is_true() && !spent
        })?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        result = unless_spent(spent, result)?;
        if result == Match::True {
            break;
        }
    }
    Ok(result)
}

/// Whether an attribute of the entry's name matches that may be searched.
fn dn_attribute_matches(
    context: &dyn FilterContext,
    assertion: &BoundExtensible,
    dn: &str,
) -> Result<bool, Fault> {
    let schema = context.schema();
    let Ok(dn) = Dn::parse(dn) else { return Ok(false) };
    let mut scratch = Scratch::default();
    for ava in dn.rdns().iter().flat_map(|rdn| rdn.avas()) {
        let Ok(own) = schema.describe(ava.attribute) else { continue };
        let is_covered = match &assertion.description {
            Some(description) => own.is_subdescription_of(schema, description),
            None => assertion.asks(schema.attribute(own.attribute)),
        };
        if is_covered
            && context.may_search(&own, Some(assertion.value.raw()))?
            && assertion.matches(schema, &ava.value, &mut scratch).is_true()
        {
            return Ok(true);
        }
    }
    Ok(false)
}
