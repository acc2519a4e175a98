//! The dynamic group overlay (slapo-dyngroup(5)): a compare with a member attribute that a group does not have is answered
//! by the group's URLs. Searches do not see such members; that takes the overlay dynlist.

mod config;
#[cfg(test)]
mod tests;

use larix_engine::overlay::computed::StoredEntry;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::shown::{ShownAttribute, ShownEntries, ShownEntry, ShownRequest};
use larix_engine::overlay::{Descriptor, Failure, Interests, Overlay, OverlayDirective};
use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

pub static DESCRIPTOR: Descriptor = Descriptor::new("dyngroup", "olcDynGroupConfig", config::build)
    .once()
    .directives(&[OverlayDirective::words("attrpair", "olcDynGroupAttrPair")
        .many()
        .attribute_alias(&["olcDGAttrPair"])
        .arguments(2, 2)
        .checked(config::check)]);

/// The overlay on one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynGroup {
    pairs: Vec<Pair>,
}

/// `attrpair`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    member: AttributeDescription,
    url: AttributeDescription,
}

impl Overlay for DynGroup {
    fn name(&self) -> &'static str {
        "dyngroup"
    }

    fn interests(&self) -> Interests {
        Interests::SHOW
    }

    fn shown(&self) -> Option<&dyn ShownEntries> {
        Some(self)
    }
}

impl ShownEntries for DynGroup {
    fn wants(&self, request: &ShownRequest<'_>) -> bool {
        request.compares
    }

    fn concerns(&self, _: &dyn StoredEntry, _: &Schema) -> Result<bool, Failure> {
        Ok(true)
    }

    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure> {
        let Some(asserted) = shown.asserted.and_then(|normal| std::str::from_utf8(normal).ok()) else {
            return Ok(());
        };
        let member = NormalDn::from_normal(asserted);
        let within = shown.within();
        for pair in &self.pairs {
            if !shown.asks_for(&pair.member) || has_any(shown.entry, &pair.member)? {
                continue;
            }
            let (mut urls, schema) = (Vec::new(), shown.schema);
            shown.entry.source().visit_exact(&pair.url, &mut |value| {
                urls.extend(std::str::from_utf8(value).ok().and_then(|text| url(schema, text)));
                true
            })?;
            let mut values = Vec::new();
            for (base, scope, filter) in &urls {
                if member.is_in_scope(base, *scope) {
                    let query = InternalSearch::new(&member, Scope::Base, filter).of(within.whose());
                    if within.entries.finds_any(&query)?.entries > 0 {
                        values.push(asserted.as_bytes().into());
                        break;
                    }
                }
            }
            // Without a value it is there all the same, and the compare is false.
            shown.attributes.push(ShownAttribute { description: pair.member.clone(), values });
            break;
        }
        Ok(())
    }
}

fn has_any(entry: &dyn StoredEntry, attribute: &AttributeDescription) -> Result<bool, Failure> {
    let mut any = false;
    entry.source().visit_exact(attribute, &mut |_| {
        any = true;
        false
    })?;
    Ok(any)
}

/// A URL that names no server and no attribute; one without a filter finds nobody, as in slapd.
fn url(schema: &Schema, text: &str) -> Option<(NormalDn, Scope, BoundFilter)> {
    let url = LdapUrl::parse(text).ok()?;
    let is_local = url.scheme == UrlScheme::Ldap && url.host.is_empty() && url.extensions.is_empty();
    if !is_local || !url.attributes.is_empty() {
        return None;
    }
    let filter = schema.bind_filter(url.filter.as_ref()?.as_filter());
    Some((schema.parse_dn(&url.dn).ok()?, url.scope.unwrap_or(Scope::Base), filter))
}
