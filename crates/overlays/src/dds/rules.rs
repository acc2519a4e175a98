//! What holds for changes of dynamic objects. What depends on entries is looked at once the change has been carried out, rights and all.

use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use larix_engine::overlay::{
    Additions, AroundChange, Change, ChangeKind, Consequence, Entries, Failure, FollowUp, PendingChange,
    PreparedChange, Refusal, internal_change,
};
use larix_engine::time::Timestamp;
use larix_engine::{Entry, EntryAttribute};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::config::TTL_MAX;
use super::{DynamicObjects, Lifetimes};

pub(super) fn prepare(own: &DynamicObjects, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
    match change.operation {
        PreparedChange::Add { dn, entry, .. } => added(own, change, dn, entry),
        PreparedChange::Modify { dn, mods } => modified(own, change, dn, mods),
        PreparedChange::ModifyDn(rename) if own.lifetimes.on && rename.new_superior.is_some() => {
            let text = "static entry cannot have dynamicObject as newSuperior";
            Ok(follow(NewPosition::below(own, rename.target(), text)))
        }
        _ => Ok(Additions::default()),
    }
}

fn follow(placed: NewPosition) -> Additions {
    Additions { follow_up: Some(Box::new(placed)), ..Additions::default() }
}

fn added(
    own: &DynamicObjects,
    change: &PendingChange<'_>,
    dn: &NormalDn,
    entry: &Entry,
) -> Result<Additions, Refusal> {
    let has_class = |name: &str| has_class(change.schema, entry.attribute(&own.object_class), name);
    let is_dynamic = has_class("dynamicObject");
    if !is_dynamic && entry.attribute(&own.ttl).is_some() {
        return Err(only_in_dynamic(own, change.schema).into());
    }
    if !own.lifetimes.on {
        return Ok(Additions::default());
    }
    if !is_dynamic {
        let text = "no static subordinate entries allowed for dynamicObject";
        return Ok(follow(NewPosition::below(own, dn.clone(), text)));
    }
    for (class, text) in [
        ("referral", "a referral cannot be a dynamicObject"),
        ("alias", "an alias cannot be a dynamicObject"),
    ] {
        if has_class(class) {
            return Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text).into());
        }
    }
    // Under the relax rules control.
    let value = entry.attribute(&own.ttl).and_then(|ttl| ttl.values.first());
    let ttl = value.map_or(Ok(own.lifetimes.usual), |value| checked(own, value))?;
    let mut altered = change.operation.clone();
    if let PreparedChange::Add { entry, .. } = &mut altered {
        entry.remove(&own.ttl);
        entry.remove(&own.expires);
        for (attribute, value) in [(&own.ttl, ttl.to_string()), (&own.expires, expires(change.now, ttl))] {
            entry.attributes.push(EntryAttribute::new(attribute.clone(), vec![value.into_bytes()]));
        }
    }
    let limit = own.lifetimes.limit.map(|limit| ObjectLimit { limit, dynamic: own.dynamic.clone() });
    let follow_up = limit.map(|limit| Box::new(limit) as Box<dyn FollowUp>);
    Ok(Additions { altered: Some(altered), follow_up, ..Additions::default() })
}

fn modified(
    own: &DynamicObjects,
    change: &PendingChange<'_>,
    dn: &NormalDn,
    mods: &[Change],
) -> Result<Additions, Refusal> {
    let of = |attribute: &AttributeDescription| {
        let attribute = attribute.clone();
        mods.iter().filter(move |one| one.description == attribute)
    };
    if !own.lifetimes.on {
        let concerns = of(&own.ttl).chain(of(&own.object_class)).next().is_some();
        let follow_up = concerns.then(|| {
            let refusal = only_in_dynamic(own, change.schema);
            let misplaced = Misplaced { dn: dn.clone(), filter: own.misplaced.clone(), refusal };
            Box::new(misplaced) as Box<dyn FollowUp>
        });
        return Ok(Additions { follow_up, ..Additions::default() });
    }
    let mut altered = None;
    if let Some(last) = of(&own.ttl).last() {
        if last.kind == ChangeKind::Increment {
            let text = "entryTtl is replaced or refreshed, not incremented";
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
        }
        let value = last.values.first().filter(|_| last.kind != ChangeKind::Delete);
        let Some(value) = value else {
            let text = "a dynamicObject has an entryTtl";
            return Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text).into());
        };
        let value = expires(change.now, checked(own, value)?).into_bytes();
        let name = own.expires.to_text(change.schema);
        let expires = internal_change(change.schema, ChangeKind::Replace, &name, vec![value])?;
        let mods = mods.iter().cloned().chain([expires]).collect();
        altered = Some(PreparedChange::Modify { dn: dn.clone(), mods });
    }
    let concerns = altered.is_some() || of(&own.object_class).next().is_some();
    let follow_up = concerns.then(|| {
        let kind = Kind { dn: dn.clone(), dynamic: own.dynamic.clone(), refreshed: altered.is_some() };
        Box::new(kind) as Box<dyn FollowUp>
    });
    Ok(Additions { altered, follow_up, ..Additions::default() })
}

/// What slapd's check of the schema answers.
fn only_in_dynamic(own: &DynamicObjects, schema: &Schema) -> LdapResult {
    let text = format!("attribute \"{}\" only allowed in dynamic object", own.ttl.to_text(schema));
    LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text)
}

fn expires(now: Timestamp, ttl: u64) -> String {
    let ttl = i64::try_from(ttl).unwrap_or(i64::MAX);
    Timestamp::from_seconds(now.seconds().saturating_add(ttl)).generalized()
}

fn checked(own: &DynamicObjects, value: &[u8]) -> Result<u64, LdapResult> {
    let ttl = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    check_ttl(ttl, &own.lifetimes, "time-to-live for dynamicObject exceeds administrative limit")?;
    Ok(ttl)
}

/// Whether somebody may ask for so many seconds; `exceeds` is said where they are too many here.
pub(super) fn check_ttl(ttl: u64, lifetimes: &Lifetimes, exceeds: &str) -> Result<(), LdapResult> {
    if !(1..=TTL_MAX).contains(&ttl) {
        let text = "invalid time-to-live for dynamicObject";
        return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, text));
    }
    if ttl > lifetimes.most {
        return Err(LdapResult::with(ResultCode::SIZE_LIMIT_EXCEEDED, exceeds));
    }
    Ok(())
}

fn has_class(schema: &Schema, classes: Option<&EntryAttribute>, name: &str) -> bool {
    let Some(wanted) = schema.object_class(name) else { return false };
    let classes = classes.into_iter().flat_map(|classes| &classes.values);
    let classes = classes.filter_map(|value| schema.object_class(std::str::from_utf8(value).ok()?));
    classes.into_iter().any(|class| class.id == wanted.id || schema.is_subclass(class.id, wanted.id))
}

fn is_found(entries: &dyn Entries, dn: &NormalDn, filter: &BoundFilter) -> Result<bool, Failure> {
    Ok(entries.finds_any(&InternalSearch::new(dn, Scope::Base, filter))?.entries > 0)
}

/// An entry that stands at a new place: a static one does not stand below a dynamic one.
#[derive(Debug)]
struct NewPosition {
    dn: NormalDn,
    dynamic: BoundFilter,
    text: &'static str,
}

impl NewPosition {
    fn below(own: &DynamicObjects, dn: NormalDn, text: &'static str) -> Self {
        Self { dn, dynamic: own.dynamic.clone(), text }
    }
}

impl FollowUp for NewPosition {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        _: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let Some(parent) = self.dn.parent() else { return Ok(Vec::new()) };
        let is_dynamic = |dn: &NormalDn| is_found(around.after, dn, &self.dynamic);
        if is_dynamic(&parent)? && !is_dynamic(&self.dn)? {
            return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, self.text).into());
        }
        Ok(Vec::new())
    }
}

/// A dynamic object that is added: there may be only so many.
#[derive(Debug)]
struct ObjectLimit {
    limit: u64,
    dynamic: BoundFilter,
}

impl FollowUp for ObjectLimit {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        _: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let root = NormalDn::root();
        let limits = InternalLimits { entries: self.limit, ..InternalLimits::default() };
        let query = InternalSearch::new(&root, Scope::Subtree, &self.dynamic).within(limits);
        if around.after.search(&query, &mut |_| Ok(true))?.ended == SearchEnd::TooManyEntries {
            let text = "too many dynamicObjects in context";
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
        }
        Ok(Vec::new())
    }
}

/// An entry whose classes or whose entryTtl were changed: it stays dynamic or static, and a static one has no time to live.
#[derive(Debug)]
struct Kind {
    dn: NormalDn,
    dynamic: BoundFilter,
    refreshed: bool,
}

impl FollowUp for Kind {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        _: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let is_dynamic = |entries| is_found(entries, &self.dn, &self.dynamic);
        let text = match (is_dynamic(around.before)?, is_dynamic(around.after)?) {
            (true, false) => "objectClass modification cannot turn dynamicObject into static entry",
            (false, true) => "objectClass modification cannot turn static entry into dynamicObject",
            (false, false) if self.refreshed => "refresh operation only applies to dynamic objects",
            _ => return Ok(Vec::new()),
        };
        Err(LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text).into())
    }
}

/// An entry whose classes or entryTtl were changed while `dds-state` is off: a static one has no time to live.
#[derive(Debug)]
struct Misplaced {
    dn: NormalDn,
    filter: BoundFilter,
    refusal: LdapResult,
}

impl FollowUp for Misplaced {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        _: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        match is_found(around.after, &self.dn, &self.filter)? {
            true => Err(self.refusal.into()),
            false => Ok(Vec::new()),
        }
    }
}
