//! The one table of directives: slapd.conf keyword, olc attribute, where it may stand, what becomes of it.
//!
//! A slapd.conf line and an olc value reach the same handler with the same words.

mod balancer;
mod built_in;
mod database;
mod global;
mod operations;
mod overlays;
mod shared;
mod structure;

use std::iter;
use std::sync::LazyLock;

use super::builder::DirectiveContext;
use super::builder::directive::{Cardinality, Directive, Form, Handling, MANY, Scope};
use super::spelling::nearest;
use super::{kinds, pcache, translucent};

pub(super) use overlays::{defining_overlay, overlay_kind};
pub use overlays::{overlay_that_defines, overlays_without_descriptors};
pub(super) use shared::REQUIRE_NOTHING;
pub(super) use structure::defining_module;

/// Every directive, in the order in which the attributes of one entry are applied.
pub(super) fn all() -> impl Iterator<Item = &'static Directive> {
    let common = [structure::TABLE, global::TABLE, shared::TABLE, database::TABLE].into_iter().flatten();
    common
        .chain(kinds::directives())
        .chain(overlays::table())
        .chain(kinds::FOREIGN_DIRECTIVES)
        .chain(balancer::TABLE)
}

/// The directive a keyword means where it stands. Common keywords come before those of the database's kind, these
/// before those of its overlays (the last one first), and last those of global overlays.
pub(super) fn by_keyword(word: &str, place: &DirectiveContext<'_>) -> Option<&'static Directive> {
    find(place, |directive| directive.is_keyword(word))
        .or_else(|| find(place, |directive| directive.is_prefixed(word)))
}

/// The directive of an olc attribute in an entry of this kind.
pub(super) fn by_attribute(name: &str, place: &DirectiveContext<'_>) -> Option<&'static Directive> {
    find(place, |directive| directive.is_attribute(name))
}

/// Whether values of this attribute of cn=config are secret; the description may have options.
#[must_use]
pub fn is_secret_setting(description: &str) -> bool {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        all()
            .filter(|directive| directive.form == Form::Secret)
            .flat_map(|directive| iter::once(&directive.attribute).chain(directive.attribute_aliases))
            .map(|name| without_options(name))
            .collect()
    });
    let kind = without_options(description);
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(kind))
}

fn without_options(description: &str) -> &str {
    description.split_once(';').map_or(description, |(kind, _)| kind)
}

fn find(place: &DirectiveContext<'_>, matches: impl Fn(&Directive) -> bool) -> Option<&'static Directive> {
    all()
        .filter(|directive| matches(directive))
        .min_by_key(|directive| rank(directive.scope, place))
        .filter(|directive| rank(directive.scope, place) < UNREACHABLE)
}

const UNREACHABLE: usize = usize::MAX;

/// How near a scope is to a place; the nearest directive wins.
fn rank(scope: Scope, place: &DirectiveContext<'_>) -> usize {
    match scope {
        Scope::Overlay(name) => {
            match place.overlays.iter().position(|overlay| overlay.eq_ignore_ascii_case(name)) {
                Some(distance) => 10 + distance,
                None => UNREACHABLE,
            }
        }
        Scope::Kind(kind) => rank_of_kind(kind, place),
        Scope::Foreign if place.foreign => 2,
        Scope::Backend if place.backend => 1,
        Scope::Balancer(part) if place.balancer == Some(part) => 1,
        Scope::Foreign | Scope::Backend | Scope::Balancer(_) => UNREACHABLE,
        _ => 0,
    }
}

/// How near the directives of this kind of database are to a place.
fn rank_of_kind(kind: &str, place: &DirectiveContext<'_>) -> usize {
    let distance = place.kind.and_then(|own| own.distance_of_directives(kind));
    let follows_overlay = match kind {
        kinds::CACHE_KIND => place.overlays.contains(&pcache::NAME),
        kinds::SERVER_KIND => place.overlays.contains(&translucent::NAME),
        _ => false,
    };
    match distance {
        Some(distance) => 1 + distance,
        None if follows_overlay => 20,
        None => UNREACHABLE,
    }
}

/// The known keyword or attribute nearest to an unknown one, if it is near enough to be a slip.
pub(super) fn suggestion(word: &str, attribute: bool) -> Option<&'static str> {
    nearest(word, all().map(|directive| if attribute { directive.attribute } else { directive.keyword }))
}

/// The overlay whose name is nearest, if it is near.
fn overlay_suggestion(name: &str) -> Option<&'static str> {
    nearest(name, overlays::kinds().iter().map(|kind| kind.name))
}

#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod tests;
