//! Searches and compares over a handful of entries that no database stores: one pass over a list.

use std::borrow::Cow;
use std::collections::HashSet;

use larix_engine::access::{AccessPolicy, AccessTarget, EntryFacts, Item, Privilege, Subject};
use larix_engine::budget::RequestLimits;
use larix_engine::controls::RequestControls;
use larix_engine::entry::{Entry, EntryAttribute, OwnedSource};
use larix_engine::search::answer::is_matched;
use larix_engine::search::{Filter, FilterContext};
use larix_engine::{Catalog, Fault};
use larix_proto::encode::EntryEncoder;
use larix_proto::{CompareRequest, ControlBuf, LdapResult, MessageId, ResultCode, Scope, SearchRequest};
use larix_schema::{AttributeDescription, AttributeTypeId, BoundFilter, Match, NormalDn, Schema};

use crate::{AnsweredSearch, Search};

/// Entries, and who may see what of them.
#[derive(Debug)]
pub struct MemoryTree<'a> {
    pub schema: &'a Schema,
    pub policy: &'a AccessPolicy,
    pub subject: &'a Subject,
    /// Superiors first.
    pub entries: Vec<Entry>,
    /// Some of the entries count what a search sends, this search's own entries too.
    pub counted: Option<Counted>,
}

/// The entry as it is once so many entries and bytes have been sent; `None`: as it was.
pub type Counted = fn(&Entry, u64, u64) -> Option<Entry>;

/// Whether the access rules decide that an entry may be the base of a search.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Bases {
    Judged,
    /// Every client knows that it is there: the root DSE, the subschema. As in OpenLDAP, each may be the base, and the rules decide
    /// about its content.
    Known,
}

/// What a search found.
#[derive(Debug)]
pub struct TreeSearchOutcome {
    pub result: LdapResult,
    /// Entries that were appended.
    pub entries: u64,
}

impl<'a> MemoryTree<'a> {
    /// One that has no entries yet.
    pub fn empty(schema: &'a Schema, policy: &'a AccessPolicy, subject: &'a Subject) -> Self {
        Self { schema, policy, subject, entries: Vec::new(), counted: None }
    }
}

impl MemoryTree<'_> {
    /// Runs a search whole: the list is short. Entries are appended to `out`, the result is not.
    pub fn search(&self, bases: Bases, search: &Search<'_>, out: &mut Vec<u8>) -> TreeSearchOutcome {
        self.try_search(bases, search, out).unwrap_or_else(|fault| TreeSearchOutcome {
            result: LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}")),
            entries: 0,
        })
    }

    /// As [`search`](Self::search), as a cursor that has all answers.
    pub fn answer(&self, bases: Bases, search: &Search<'_>) -> AnsweredSearch {
        let mut messages = Vec::new();
        let TreeSearchOutcome { result, entries } = self.search(bases, search, &mut messages);
        AnsweredSearch { messages, result, entries }
    }

    /// Compares one attribute of one entry with a value.
    pub fn compare(
        &self,
        dn: &NormalDn,
        request: &CompareRequest<'_>,
        controls: &RequestControls,
    ) -> LdapResult {
        let Some(guarded) = self.guarded_entries().find(|guarded| guarded.dn == *dn) else {
            return LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        };
        let result = self.compare_entry(&guarded, request, controls);
        // An error tells that there is such an entry.
        let is_verdict = matches!(result.code, ResultCode::COMPARE_TRUE | ResultCode::COMPARE_FALSE);
        if !is_verdict && !guarded.allows(Item::Entry, Privilege::Disclose) {
            return LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        }
        result
    }

    fn compare_entry(
        &self,
        guarded: &GuardedEntry<'_>,
        request: &CompareRequest<'_>,
        controls: &RequestControls,
    ) -> LdapResult {
        if !guarded.is_as_asserted(controls) {
            return LdapResult::new(ResultCode::ASSERTION_FAILED);
        }
        let Ok(description) = self.schema.describe(request.attribute) else {
            return LdapResult::new(ResultCode::UNDEFINED_ATTRIBUTE_TYPE);
        };
        if !guarded.allows(
            Item::Attribute { description: &description, value: Some(request.value) },
            Privilege::Compare,
        ) {
            return LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS);
        }
        let Some(rule) = self.schema.attribute(description.attribute).equality else {
            return LdapResult::new(ResultCode::INAPPROPRIATE_MATCHING);
        };
        let key = |value: &[u8]| {
            let mut key = Vec::new();
            rule.normalize_value(self.schema, value, &mut key).ok().map(|()| key)
        };
        let mut asserted = Vec::new();
        if rule.normalize_assertion(self.schema, request.value, &mut asserted).is_err() {
            return LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, "invalid assertion value");
        }
        let expanded = with_ordered_parts(self.schema, guarded.entry);
        let attributes = expanded.attributes.iter();
        let mut covered =
            attributes.filter(|a| a.description.is_subdescription_of(self.schema, &description)).peekable();
        if covered.peek().is_none() {
            return LdapResult::new(ResultCode::NO_SUCH_ATTRIBUTE);
        }
        let equal =
            covered.flat_map(|a| &a.values).any(|value| key(value).is_some_and(|key| key == asserted));
        LdapResult::new(if equal { ResultCode::COMPARE_TRUE } else { ResultCode::COMPARE_FALSE })
    }

    /// Whether the subject has a privilege on an entry, which need not be among the tree's.
    pub fn allows(&self, dn: &NormalDn, entry: &Entry, item: Item<'_>, privilege: Privilege) -> bool {
        GuardedEntry { tree: self, entry, dn: dn.clone() }.allows(item, privilege)
    }

    /// Whether the assertion control's filter, if there is one, is true of an entry as the subject sees it.
    pub fn is_as_asserted(&self, dn: &NormalDn, entry: &Entry, controls: &RequestControls) -> bool {
        GuardedEntry { tree: self, entry, dn: dn.clone() }.is_as_asserted(controls)
    }

    /// A SearchResultEntry message with what the subject may read of an entry; none when it may not read the entry.
    pub fn read<'n>(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Option<Vec<u8>> {
        let guarded = GuardedEntry { tree: self, entry, dn: dn.clone() };
        guarded.allows(Item::Entry, Privilege::Read).then(|| {
            let mut message = Vec::new();
            let selection = Selection::new(self.schema, names);
            guarded.encode(&selection, None, false, (MessageId(0), &[]), &mut message);
            message
        })
    }

    /// An entry by its name, and it as access rules see it.
    ///
    /// # Errors
    /// What to answer when there is none.
    pub fn find(&self, dn: &NormalDn) -> Result<(&Entry, Box<dyn EntryFacts + '_>), LdapResult> {
        let mut all: Vec<GuardedEntry<'_>> = self.guarded_entries().collect();
        match all.iter().position(|guarded| guarded.dn == *dn) {
            Some(at) => {
                let guarded = all.swap_remove(at);
                Ok((guarded.entry, Box::new(guarded)))
            }
            None => Err(self.missing(&all, dn)),
        }
    }

    fn try_search(
        &self,
        bases: Bases,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Result<TreeSearchOutcome, Fault> {
        let Search { base, request, controls, message, .. } = search;
        if controls.effective_rights.as_ref().is_some_and(|control| control.critical) {
            let text = "effective rights are told of stored entries only";
            let result = LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text);
            return Ok(TreeSearchOutcome { result, entries: 0 });
        }
        if controls.vlv.as_ref().is_some_and(|control| control.critical)
            || controls.deref.as_ref().is_some_and(|control| control.critical)
        {
            let text = "virtual list views and dereferencing are of stored entries only";
            let result = LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text);
            return Ok(TreeSearchOutcome { result, entries: 0 });
        }
        if let Err(result) = self.admit(bases, base, controls) {
            return Ok(TreeSearchOutcome { result, entries: 0 });
        }
        let all: Vec<GuardedEntry<'_>> = self.guarded_entries().collect();
        let catalog = Catalog::default();
        let bound = self.schema.bind_filter(request.filter);
        let filter = Filter::new(self.schema, &catalog, bound);
        let selection = Selection::new(self.schema, request.attributes);
        let matched: Option<Vec<BoundFilter>> = controls
            .matched_values
            .as_ref()
            .map(|filters| filters.iter().map(|f| self.schema.bind_filter(f.as_filter())).collect());
        let mut entries = 0;
        let before = out.len();
        for guarded in all.iter().filter(|guarded| guarded.dn.is_in_scope(base, request.scope)) {
            let sent = (out.len() - before) as u64;
            let counted = self.counted.and_then(|counted| counted(guarded.entry, entries, sent));
            let guarded = &GuardedEntry {
                tree: self,
                entry: counted.as_ref().unwrap_or(guarded.entry),
                dn: guarded.dn.clone(),
            };
            let expanded = with_ordered_parts(self.schema, guarded.entry);
            let source = OwnedSource { schema: self.schema, entry: &expanded };
            if controls.subentries == Some(true) || filter.matches(guarded, &source)? != Match::True {
                continue;
            }
            if !guarded.allows(Item::Entry, Privilege::Read) {
                continue;
            }
            if request.size_limit > 0 && entries >= u64::from(request.size_limit) {
                return Ok(TreeSearchOutcome {
                    result: LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED),
                    entries,
                });
            }
            guarded.encode(&selection, matched.as_deref(), request.types_only, (*message, &[]), out);
            entries += 1;
        }
        Ok(TreeSearchOutcome { result: LdapResult::success(), entries })
    }

    /// Judges the base of a search.
    ///
    /// # Errors
    /// It is not there or may not be searched, or the assertion control's filter is not true of it.
    pub fn check_base(&self, base: &NormalDn, controls: &RequestControls) -> Result<(), LdapResult> {
        self.admit(Bases::Judged, base, controls)
    }

    fn admit(&self, bases: Bases, base: &NormalDn, controls: &RequestControls) -> Result<(), LdapResult> {
        let all: Vec<GuardedEntry<'_>> = self.guarded_entries().collect();
        let Some(first) = all.iter().find(|guarded| guarded.dn == *base) else {
            return Err(self.missing(&all, base));
        };
        if bases == Bases::Judged && !first.allows(Item::Entry, Privilege::Search) {
            let disclosed = first.allows(Item::Entry, Privilege::Disclose);
            let code =
                if disclosed { ResultCode::INSUFFICIENT_ACCESS_RIGHTS } else { ResultCode::NO_SUCH_OBJECT };
            return Err(LdapResult::new(code));
        }
        if !first.is_as_asserted(controls) {
            return Err(LdapResult::new(ResultCode::ASSERTION_FAILED));
        }
        Ok(())
    }

    /// The entries that a search finds and the subject may read, in their order.
    ///
    /// # Errors
    /// What to answer when there is no such base, or nothing of it may be known.
    pub fn matching(
        &self,
        base: &NormalDn,
        scope: Scope,
        filter: larix_proto::Filter<'_>,
    ) -> Result<Vec<(NormalDn, &Entry)>, LdapResult> {
        let all: Vec<GuardedEntry<'_>> = self.guarded_entries().collect();
        let Some(first) = all.iter().find(|guarded| guarded.dn == *base) else {
            return Err(self.missing(&all, base));
        };
        if !first.allows(Item::Entry, Privilege::Search) {
            return Err(LdapResult::new(ResultCode::NO_SUCH_OBJECT));
        }
        let filter = Filter::new(self.schema, &Catalog::default(), self.schema.bind_filter(filter));
        let mut found = Vec::new();
        for guarded in all.iter().filter(|guarded| guarded.dn.is_in_scope(base, scope)) {
            let expanded = with_ordered_parts(self.schema, guarded.entry);
            let source = OwnedSource { schema: self.schema, entry: &expanded };
            let matched = filter
                .matches(guarded, &source)
                .map_err(|fault| LdapResult::with(ResultCode::OTHER, format!("internal error: {fault}")))?;
            if matched == Match::True && guarded.allows(Item::Entry, Privilege::Read) {
                found.push((guarded.dn.clone(), guarded.entry));
            }
        }
        Ok(found)
    }

    /// DNs of the entries that a filter is true of, whatever the access rules say.
    pub fn matching_unguarded(&self, filter: &BoundFilter) -> impl Iterator<Item = &str> {
        self.guarded_entries()
            .filter(|guarded| guarded.matches(filter) == Match::True)
            .map(|guarded| guarded.entry.dn.as_str())
    }

    fn missing(&self, all: &[GuardedEntry<'_>], base: &NormalDn) -> LdapResult {
        let mut superior = base.parent();
        while let Some(dn) = superior {
            if let Some(guarded) = all.iter().find(|guarded| guarded.dn == dn) {
                if !guarded.allows(Item::Entry, Privilege::Disclose) {
                    break;
                }
                return LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(guarded.entry.dn.clone());
            }
            superior = dn.parent();
        }
        LdapResult::new(ResultCode::NO_SUCH_OBJECT)
    }

    fn guarded_entries(&self) -> impl Iterator<Item = GuardedEntry<'_>> {
        self.entries.iter().filter_map(|entry| {
            Some(GuardedEntry { tree: self, entry, dn: self.schema.parse_dn(&entry.dn).ok()? })
        })
    }
}

/// A search of entries that are made one by one, where a list of them would be too long.
#[derive(Debug)]
pub struct OneByOne {
    filter: Filter,
    selection: Selection,
    matched: Option<Vec<BoundFilter>>,
    types_only: bool,
    message: MessageId,
}

impl OneByOne {
    /// # Errors
    /// A filter that costs more steps than one request may.
    pub fn new(
        schema: &Schema,
        limits: &RequestLimits,
        request: &SearchRequest<'_>,
        controls: &RequestControls,
        message: MessageId,
    ) -> Result<Self, LdapResult> {
        let bound = schema.bind_filter(request.filter);
        let bind = |filters: &Vec<larix_proto::FilterBuf>| {
            filters.iter().map(|filter| schema.bind_filter(filter.as_filter())).collect()
        };
        Ok(Self {
            filter: Filter::within(limits, schema, &Catalog::default(), bound)?,
            selection: Selection::new(schema, request.attributes),
            matched: controls.matched_values.as_ref().map(bind),
            types_only: request.types_only,
            message,
        })
    }

    /// Whether the filter is true of the entry and the tree's subject may read it.
    ///
    /// # Errors
    /// The filter costs more steps than one request may.
    pub fn finds(&self, tree: &MemoryTree<'_>, dn: &NormalDn, entry: &Entry) -> Result<bool, Fault> {
        let matched = self.is_true_of(tree, dn, entry)?;
        Ok(matched && tree.allows(dn, entry, Item::Entry, Privilege::Read))
    }

    /// Whether the filter is true of the entry, as far as the tree's subject may search it.
    ///
    /// # Errors
    /// The filter costs more steps than one request may.
    pub fn is_true_of(&self, tree: &MemoryTree<'_>, dn: &NormalDn, entry: &Entry) -> Result<bool, Fault> {
        let guarded = GuardedEntry { tree, entry, dn: dn.clone() };
        let source = OwnedSource { schema: tree.schema, entry };
        Ok(self.filter.matches(&guarded, &source)? == Match::True)
    }

    /// Whether an attribute is asked for.
    pub fn selects(&self, schema: &Schema, description: &AttributeDescription) -> bool {
        self.selection.has(schema, description)
    }

    /// Whether a value is asked for (RFC 3876).
    pub fn selects_value(&self, schema: &Schema, description: &AttributeDescription, value: &[u8]) -> bool {
        self.matched.as_deref().is_none_or(|filters| is_matched(schema, description, filters, value))
    }

    /// Whether single values are asked for (RFC 3876), and not all of an attribute.
    pub fn is_about_values(&self) -> bool {
        self.matched.is_some()
    }

    /// Appends the message with what the tree's subject may read of the entry.
    pub fn write(&self, tree: &MemoryTree<'_>, dn: &NormalDn, entry: &Entry, out: &mut Vec<u8>) {
        let guarded = GuardedEntry { tree, entry, dn: dn.clone() };
        guarded.encode(&self.selection, self.matched.as_deref(), self.types_only, (self.message, &[]), out);
    }
}

/// What a consumer is sent of entries.
#[derive(Debug)]
pub struct SyncSelection<'a> {
    pub schema: &'a Schema,
    pub policy: &'a AccessPolicy,
    pub subject: &'a Subject,
    /// As the request has them.
    pub names: &'a [String],
    pub types_only: bool,
}

impl SyncSelection<'_> {
    /// Appends the message with what the subject may read of an entry.
    pub fn write(
        &self,
        dn: &NormalDn,
        entry: &Entry,
        message: (MessageId, &[ControlBuf]),
        out: &mut Vec<u8>,
    ) {
        let Self { schema, policy, subject, .. } = *self;
        let tree = MemoryTree::empty(schema, policy, subject);
        let selection = Selection::new(schema, self.names.iter().map(String::as_str));
        GuardedEntry { tree: &tree, entry, dn: dn.clone() }.encode(
            &selection,
            None,
            self.types_only,
            message,
            out,
        );
    }
}

/// One entry under access control.
struct GuardedEntry<'a> {
    tree: &'a MemoryTree<'a>,
    entry: &'a Entry,
    dn: NormalDn,
}

impl GuardedEntry<'_> {
    fn allows(&self, item: Item<'_>, privilege: Privilege) -> bool {
        let target = AccessTarget { dn: &self.dn, entry: self };
        self.tree.policy.check(self.tree.subject, &target, item, privilege)
    }

    /// Whether the assertion control's filter (RFC 4528), if there is one, is true of the entry. What the subject may
    /// not search is never true.
    fn is_as_asserted(&self, controls: &RequestControls) -> bool {
        controls.assertion.as_ref().is_none_or(|asserted| {
            let schema = self.tree.schema;
            let filter = Filter::new(schema, &Catalog::default(), schema.bind_filter(asserted.as_filter()));
            let expanded = with_ordered_parts(schema, self.entry);
            let source = OwnedSource { schema, entry: &expanded };
            matches!(filter.matches(self, &source), Ok(Match::True))
        })
    }

    fn encode(
        &self,
        selection: &Selection,
        matched: Option<&[BoundFilter]>,
        types_only: bool,
        (id, controls): (MessageId, &[ControlBuf]),
        out: &mut Vec<u8>,
    ) {
        let schema = self.tree.schema;
        let mut encoder = EntryEncoder::begin(out, id, &self.entry.dn);
        for attribute in self.entry.attributes.iter().filter(|a| selection.has(schema, &a.description)) {
            let description = &attribute.description;
            let may_read =
                |value: Option<&[u8]>| self.allows(Item::Attribute { description, value }, Privilege::Read);
            let wanted = |value: &&Vec<u8>| {
                matched.is_none_or(|filters| is_matched(schema, description, filters, value))
                    && (types_only || may_read(Some(value)))
            };
            let mut values = attribute.values.iter().filter(wanted).peekable();
            if values.peek().is_none() || (types_only && !may_read(None)) {
                continue;
            }
            encoder.begin_attribute(&description.to_text(schema));
            if !types_only {
                values.for_each(|value| encoder.value(value));
            }
            encoder.end_attribute();
        }
        encoder.finish(controls);
    }
}

impl EntryFacts for GuardedEntry<'_> {
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        let schema = self.tree.schema;
        let covered =
            self.entry.attributes.iter().filter(|a| a.description.is_subdescription_of(schema, attribute));
        for value in covered.flat_map(|a| &a.values) {
            if !visit(value) {
                break;
            }
        }
    }

    fn matches(&self, filter: &BoundFilter) -> Match {
        let filter = Filter::new(self.tree.schema, &Catalog::default(), filter.clone());
        let expanded = with_ordered_parts(self.tree.schema, self.entry);
        let source = OwnedSource { schema: self.tree.schema, entry: &expanded };
        filter.matches(&Unguarded(self), &source).unwrap_or(Match::Undefined)
    }
}

impl FilterContext for GuardedEntry<'_> {
    fn schema(&self) -> &Schema {
        self.tree.schema
    }

    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault> {
        Ok(self.allows(Item::Attribute { description, value }, Privilege::Search))
    }

    fn judges_values(&self, _: &AttributeDescription) -> Result<bool, Fault> {
        Ok(self.tree.policy.asks_about_values())
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        Ok(self.dn.clone())
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        Ok(self.tree.guarded_entries().any(|other| other.dn.parent().is_some_and(|parent| parent == self.dn)))
    }
}

/// The same without access rules, for the filters that are part of one.
struct Unguarded<'a>(&'a GuardedEntry<'a>);

impl FilterContext for Unguarded<'_> {
    fn schema(&self) -> &Schema {
        self.0.tree.schema
    }

    fn may_search(&self, _: &AttributeDescription, _: Option<&[u8]>) -> Result<bool, Fault> {
        Ok(true)
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        self.0.normal_dn()
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        self.0.has_subordinates()
    }
}

/// `{3}value` is (`{3}`, `value`). Only decimal digits make a number, after a `-` too.
pub fn ordered_parts(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = value.iter().position(|byte| *byte == b'}')?;
    let (number, rest) = value.split_at_checked(end + 1)?;
    let digits = number.strip_prefix(b"{")?.strip_suffix(b"}")?;
    let digits = digits.strip_prefix(b"-").unwrap_or(digits);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some((number, rest))
}

/// The entry with three values for each `{n}value` of an ordered attribute: that one, `value` and `{n}`. An assertion may
/// give the number, the value, or both (OpenLDAP's X-ORDERED).
fn with_ordered_parts<'e>(schema: &Schema, entry: &'e Entry) -> Cow<'e, Entry> {
    let is_ordered = |attribute: &EntryAttribute| {
        let kind = schema.attribute(attribute.description.attribute);
        kind.is_ordered_values() || kind.is_ordered_siblings()
    };
    if !entry.attributes.iter().any(is_ordered) {
        return Cow::Borrowed(entry);
    }
    let mut expanded = entry.clone();
    for attribute in expanded.attributes.iter_mut().filter(|attribute| is_ordered(attribute)) {
        let parts: Vec<Vec<u8>> = attribute
            .values
            .iter()
            .filter_map(|value| ordered_parts(value))
            .flat_map(|(number, value)| [number.to_vec(), value.to_vec()])
            .collect();
        attribute.values.extend(parts);
    }
    Cow::Owned(expanded)
}

/// Which attributes a request wants (RFC 4511 section 4.5.1.8, RFC 3673, RFC 4529).
#[derive(Debug)]
struct Selection {
    user: bool,
    operational: bool,
    /// Asked for without options, or by a class: with all subtypes.
    types: HashSet<AttributeTypeId>,
    /// With options, each once.
    tagged: Vec<AttributeDescription>,
}

impl Selection {
    fn new<'n>(schema: &Schema, names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut names = names.into_iter().peekable();
        let (user, operational) = (names.peek().is_none(), false);
        let mut selection = Self { user, operational, types: HashSet::new(), tagged: Vec::new() };
        let mut classes = HashSet::new();
        for name in names {
            match name {
                "*" => selection.user = true,
                "+" => selection.operational = true,
                _ => match name.strip_prefix('@') {
                    Some(class) => classes.extend(schema.object_class_id(class)),
                    // The name of a class alone, as it was before RFC 4529.
                    None if schema.describe(name).is_err() => classes.extend(schema.object_class_id(name)),
                    None => selection.add(schema, name),
                },
            }
        }
        for class in classes.into_iter().map(|class| schema.class(class)) {
            selection.types.extend(class.all_must().iter().chain(class.all_may()));
        }
        selection.tagged.sort_unstable();
        selection.tagged.dedup();
        selection
    }

    fn add(&mut self, schema: &Schema, name: &str) {
        let Ok(description) = schema.describe(name) else { return };
        if !description.options().is_empty() {
            self.tagged.push(description);
        } else if !self.types.contains(&description.attribute) {
            self.types.extend(schema.subtypes(description.attribute));
            self.types.insert(description.attribute);
        }
    }

    fn has(&self, schema: &Schema, own: &AttributeDescription) -> bool {
        let by_kind =
            if schema.attribute(own.attribute).is_operational() { self.operational } else { self.user };
        // What has no options is no subdescription of what has some.
        let tagged = if own.options().is_empty() { &[][..] } else { &self.tagged };
        by_kind
            || self.types.contains(&own.attribute)
            || tagged.iter().any(|wanted| own.is_subdescription_of(schema, wanted))
    }
}
