//! Where a filter for a policy looks, beside the entries that name the policy themselves: for what the rules, and the default, may make
//! it the policy of. Whether they do is asked of each.

use larix_engine::overlay::Failure;
use larix_engine::overlay::computed::{ComputedIn, Holders};
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd};
use larix_proto::Scope;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

use super::PasswordPolicy;
use super::account::PASSWORD;
use super::rules::{GroupCondition, ObjectPattern, PolicyName, PolicyRule};

/// Entries that are listed for one rule. Where it may be about more, a filter looks at all entries.
const HOLDERS_MAX: u32 = 10_000;

/// Ids of entries; `None`: it may be any.
type Ids = Option<Vec<u64>>;

impl PasswordPolicy {
    pub(super) fn entries_under(
        &self,
        within: &ComputedIn<'_>,
        policy: &NormalDn,
    ) -> Result<Option<Holders>, Failure> {
        let mut ids = Vec::new();
        if self.settings.default_policy.as_ref() == Some(policy) {
            match accounts(within)? {
                Some(accounts) => ids.extend(accounts),
                None => return Ok(None),
            }
        }
        for rule in self.settings.rules.iter().filter(|rule| may_name(rule, policy)) {
            match candidates(rule, within)? {
                Some(candidates) => ids.extend(candidates),
                None => return Ok(None),
            }
        }
        Ok(Some(Holders { ids, exact: false }))
    }
}

fn may_name(rule: &PolicyRule, policy: &NormalDn) -> bool {
    match &rule.policy {
        PolicyName::None => false,
        PolicyName::Dn(dn) => dn == policy,
        // What a submatch fills in may be anything.
        PolicyName::Expand(_) => true,
    }
}

/// Entries with a password, which have the default policy, if an index tells.
fn accounts(within: &ComputedIn<'_>) -> Result<Ids, Failure> {
    let Ok(password) = within.schema.describe(PASSWORD) else { return Ok(None) };
    within.entries.indexed_ids(&BoundFilter::Present(password))
}

/// Entries that a rule may be about.
fn candidates(rule: &PolicyRule, within: &ComputedIn<'_>) -> Result<Ids, Failure> {
    if let Some(GroupCondition { name: PolicyName::Dn(group), attribute, .. }) = &rule.group
        && let Some(members) = members(within, group, attribute)?
    {
        return Ok(Some(members));
    }
    let (base, scope) = match &rule.object {
        Some(ObjectPattern::Base(dn)) => {
            return Ok(Some(within.entries.id_of(dn)?.into_iter().map(|id| id.0).collect()));
        }
        Some(ObjectPattern::One(base)) => (base.clone(), Scope::OneLevel),
        Some(ObjectPattern::Subtree(base)) => (base.clone(), Scope::Subtree),
        Some(ObjectPattern::Children(base)) => (base.clone(), Scope::Children),
        Some(ObjectPattern::Regex(_)) | None => (NormalDn::root(), Scope::Subtree),
    };
    // What is no entry of this database may be above all of them.
    let is_here = !base.is_root() && within.entries.id_of(&base)?.is_some();
    let (base, scope) = if is_here { (base, scope) } else { (NormalDn::root(), Scope::Subtree) };
    if !is_here && rule.filter.is_none() {
        return Ok(None);
    }
    let filter = rule.filter.clone().unwrap_or(BoundFilter::True);
    let limits = InternalLimits {
        entries: u64::from(HOLDERS_MAX),
        unchecked: Some(HOLDERS_MAX),
        ..InternalLimits::default()
    };
    let mut ids = Vec::new();
    let searched =
        within.entries.search(&InternalSearch::new(&base, scope, &filter).within(limits), &mut |found| {
            ids.push(found.id().0);
            Ok(true)
        })?;
    Ok((searched.ended == SearchEnd::Complete).then_some(ids))
}

/// The members of a group in this database; `None`: its values do not name them one by one.
fn members(
    within: &ComputedIn<'_>,
    group: &NormalDn,
    attribute: &AttributeDescription,
) -> Result<Ids, Failure> {
    let (mut names, mut known) = (Vec::new(), names_entries(within.schema, attribute));
    let query = InternalSearch::new(group, Scope::Base, &BoundFilter::True);
    within.entries.search(&query, &mut |found| {
        found.source().visit_description(attribute, &mut |value| {
            let name = std::str::from_utf8(value).ok().and_then(|text| within.schema.parse_dn(text).ok());
            known &= name.is_some() && names.len() < HOLDERS_MAX as usize;
            names.extend(name);
            known
        })?;
        Ok(false)
    })?;
    if !known {
        return Ok(None);
    }
    let mut ids = Vec::with_capacity(names.len());
    for name in names {
        ids.extend(within.entries.id_of(&name)?.map(|id| id.0));
    }
    Ok(Some(ids))
}

/// Whether values are names and nothing else: neither URLs that find entries, nor names with a number.
fn names_entries(schema: &Schema, attribute: &AttributeDescription) -> bool {
    schema.attribute(attribute.attribute).syntax.oid == "1.3.6.1.4.1.1466.115.121.1.12"
}
