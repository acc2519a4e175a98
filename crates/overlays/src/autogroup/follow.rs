//! What follows for groups from a change.

use std::collections::HashSet;
use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{
    AroundChange, ChangeKind, Consequence, Entries, Failure, FollowUp, Prepared, Refusal, internal_change,
};
use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::{GroupSet, Settings};

/// A change that is made, and whose it was.
#[derive(Debug)]
pub(super) struct Follow {
    pub(super) settings: Arc<Settings>,
    /// The entry's name; `None`: it is new.
    pub(super) before: Option<NormalDn>,
    /// The entry's name; `None`: it is gone.
    pub(super) after: Option<NormalDn>,
    /// It may have made the entry another group, or a group at all.
    pub(super) defines: bool,
    /// Entries below may have gone or come with it.
    pub(super) below: bool,
}

/// A group as the change leaves it.
struct Group<'s> {
    set: &'s GroupSet,
    dn: NormalDn,
    urls: Vec<Url>,
}

/// What makes a member.
struct Url {
    base: NormalDn,
    scope: Scope,
    filter: BoundFilter,
    /// Whose values are the members, in the place of the entries' names.
    values_of: Option<AttributeDescription>,
}

/// An entry on one side of the change.
type Side<'a> = Option<(&'a NormalDn, &'a Entry)>;

/// Whether the entry of this name matches.
pub(super) fn matches(entries: &dyn Entries, dn: &NormalDn, filter: &BoundFilter) -> Result<bool, Failure> {
    Ok(entries.finds_any(&InternalSearch::new(dn, Scope::Base, filter))?.entries > 0)
}

impl FollowUp for Follow {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let groups = self.groups(around.after, schema)?;
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let is_many = self.below
            && match &self.before {
                Some(dn) => around.before.has_subordinates(dn)?,
                None => false,
            };
        let of = |entries: &dyn Entries, dn: &Option<NormalDn>| match dn {
            Some(dn) => entries.entry(dn),
            None => Ok(None),
        };
        let (old, new) = (of(around.before, &self.before)?, of(around.after, &self.after)?);
        let old: Side<'_> = self.before.as_ref().zip(old.as_ref());
        let new: Side<'_> = self.after.as_ref().zip(new.as_ref());
        let mut all = Vec::new();
        for group in &groups {
            let is_it = self.after.as_ref() == Some(&group.dn) && (self.defines || self.before.is_none());
            let (was, is) = (group.takes(around.before, old)?, group.takes(around.after, new)?);
            let has_values = group.urls.iter().any(|url| url.values_of.is_some());
            if is_it || is_many || has_values && (was || is) {
                all.push(group.refreshed(around.after, schema)?);
                continue;
            }
            let moved = self.before != self.after;
            if was && (!is || moved) {
                all.extend(
                    old.map(|(dn, _)| group.change(schema, ChangeKind::Delete, dn.as_str())).transpose()?,
                );
            }
            if is && (!was || moved) {
                let shown = new.map(|(_, entry)| group.change(schema, ChangeKind::SoftAdd, &entry.dn));
                all.extend(shown.transpose()?);
            }
        }
        Ok(all)
    }
}

impl Follow {
    fn groups<'s>(&'s self, entries: &dyn Entries, schema: &Schema) -> Result<Vec<Group<'s>>, Failure> {
        let root = NormalDn::root();
        let mut groups: Vec<Group<'s>> = Vec::new();
        for set in &self.settings.sets {
            entries.search(&InternalSearch::new(&root, Scope::Subtree, &set.groups), &mut |found| {
                let mut urls = Vec::new();
                found.source().visit_exact(&set.url, &mut |value| {
                    urls.extend(std::str::from_utf8(value).ok().and_then(|text| url(schema, text)));
                    true
                })?;
                let dn = found.dn()?.clone();
                // An entry is a group of one class.
                if groups.iter().all(|group| std::ptr::eq(group.set, set) || group.dn != dn) {
                    groups.push(Group { set, dn, urls });
                }
                Ok(true)
            })?;
        }
        Ok(groups)
    }
}

/// A URL that names this server; others, and those with more than one attribute, find nobody.
fn url(schema: &Schema, text: &str) -> Option<Url> {
    let url = LdapUrl::parse(text).ok()?;
    if url.scheme != UrlScheme::Ldap || !url.host.is_empty() || url.attributes.len() > 1 {
        return None;
    }
    let values_of = url.attributes.first().map(|name| schema.describe(name)).transpose().ok()?;
    let filter = url.filter.map_or(BoundFilter::True, |filter| schema.bind_filter(filter.as_filter()));
    Some(Url {
        base: schema.parse_dn(&url.dn).ok()?,
        scope: url.scope.unwrap_or(Scope::Base),
        filter,
        values_of,
    })
}

impl Group<'_> {
    /// Whether any of the URLs finds the entry.
    fn takes(&self, entries: &dyn Entries, side: Side<'_>) -> Result<bool, Failure> {
        let Some((dn, entry)) = side else { return Ok(false) };
        for url in &self.urls {
            if dn.is_in_scope(&url.base, url.scope) && entries.matches(dn, entry, &url.filter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A change of one member. One that was made already is refused, and left undone.
    fn change(&self, schema: &Schema, kind: ChangeKind, member: &str) -> Result<Consequence, Refusal> {
        self.with(schema, kind, vec![member.as_bytes().to_vec()])
    }

    /// All members anew.
    fn refreshed(&self, entries: &dyn Entries, schema: &Schema) -> Result<Consequence, Refusal> {
        let (mut members, mut known): (Vec<Vec<u8>>, HashSet<Vec<u8>>) = (Vec::new(), HashSet::new());
        let rule = schema.attribute(self.set.member.attribute).equality;
        for url in &self.urls {
            let query = InternalSearch::new(&url.base, url.scope, &url.filter);
            entries.search(&query, &mut |found| {
                let mut take = |value: &[u8]| {
                    let mut key = Vec::new();
                    let is_name =
                        rule.is_none_or(|rule| rule.normalize_value(schema, value, &mut key).is_ok());
                    if is_name && known.insert(key) {
                        members.push(value.to_vec());
                    }
                    true
                };
                match &url.values_of {
                    Some(attribute) => found.source().visit_exact(attribute, &mut take)?,
                    None => {
                        take(found.shown_dn()?.as_bytes());
                    }
                }
                Ok(true)
            })?;
        }
        self.with(schema, ChangeKind::Replace, members)
    }

    fn with(&self, schema: &Schema, kind: ChangeKind, values: Vec<Vec<u8>>) -> Result<Consequence, Refusal> {
        let change = internal_change(schema, kind, &self.set.member.to_text(schema), values)?;
        let operation = Prepared::Modify { dn: self.dn.clone(), mods: vec![change] };
        Ok(Consequence { operation, local: false })
    }
}
