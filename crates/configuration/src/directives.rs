//! The one table of directives: slapd.conf keyword, olc attribute, where it may stand, what becomes of it.
//!
//! A slapd.conf line and an olc value reach the same handler with the same words.

mod database;
mod global;
mod operations;
mod overlays;
mod shared;
mod structure;

use larix_engine::overlay::descriptor;

use super::builder::{Builder, Place};
use super::call::{Call, Fault};
use super::kinds;

pub(super) use overlays::{OverlayHandling, overlay_kind};

/// One keyword and its olc attribute.
#[derive(Clone)]
pub(super) struct Directive {
    /// As slapd.conf(5) spells it; matched without regard to case.
    pub(super) keyword: &'static str,
    /// Length of the keyword that is enough, as OpenLDAP matches `allow` and `allows`; 0: the whole.
    pub(super) prefix: usize,
    /// Older spellings.
    pub(super) aliases: &'static [&'static str],
    /// The attribute under cn=config; empty when the keyword has none.
    pub(super) attribute: &'static str,
    /// Other names of the attribute.
    pub(super) attribute_aliases: &'static [&'static str],
    pub(super) scope: Scope,
    /// Least and most arguments after the keyword.
    pub(super) arguments: (u8, u8),
    pub(super) cardinality: Cardinality,
    pub(super) form: Form,
    pub(super) handling: Handling,
    pub(super) apply: Apply,
    /// Looks at the arguments before they are applied.
    pub(super) check: Option<descriptor::Check>,
}

pub(super) type Apply = fn(&mut Builder, &Call<'_>) -> Result<(), Fault>;

/// Any number of arguments.
pub(super) const MANY: u8 = u8::MAX;

/// Where a directive may stand, and which section it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Anywhere; sets the server as a whole.
    Global,
    /// Before the first database; sets the server as a whole.
    GlobalFirst,
    /// Anywhere; sets the frontend.
    Frontend,
    /// Before the first database for all databases, or in a database for that one.
    Shared,
    /// In a database of any kind.
    Database,
    /// In a database of this kind.
    Kind(&'static str),
    /// In a database of a kind that is not served here.
    Foreign,
    /// In `backend <type>`.
    Backend,
    /// After `overlay` of this name.
    Overlay(&'static str),
    /// A schema definition: in an included file, or in the server as a whole.
    Schema,
    /// In a module list.
    Module,
    /// Starts a section or reads a file.
    Structure,
}

/// How many values the olc attribute has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cardinality {
    One,
    Many,
    /// Many, with `{n}` before each.
    Ordered,
}

/// How arguments and an olc value become one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Words; the value is cut at white space unless quoted.
    Words,
    /// Words, the first of which is the keyword itself: it stands in the value, too.
    Command,
    /// One argument, which is the value as it stands.
    Whole,
    /// One argument, a DN.
    Dn,
    /// One argument of any bytes, never shown in messages.
    Secret,
    /// TRUE or FALSE.
    Switch,
    /// One value a word.
    Each,
    /// The rest of the line as written.
    Rest,
    /// The handler keeps the values itself.
    Own,
}

/// What becomes of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    Done,
    /// Accepted, without effect; why.
    Noted(&'static str),
    /// An error; what to do instead.
    Refused(&'static str),
}

impl Directive {
    pub(super) const fn new(
        keyword: &'static str,
        attribute: &'static str,
        scope: Scope,
        form: Form,
        apply: Apply,
    ) -> Self {
        let arguments = match form {
            Form::Words | Form::Command | Form::Each | Form::Rest | Form::Own => (1, MANY),
            Form::Whole | Form::Dn | Form::Secret | Form::Switch => (1, 1),
        };
        Self {
            keyword,
            prefix: 0,
            aliases: &[],
            attribute,
            attribute_aliases: &[],
            scope,
            arguments,
            cardinality: Cardinality::One,
            form,
            handling: Handling::Done,
            apply,
            check: None,
        }
    }

    pub(super) const fn arguments(mut self, least: u8, most: u8) -> Self {
        self.arguments = (least, most);
        self
    }

    const fn prefix(mut self, length: usize) -> Self {
        self.prefix = length;
        self
    }

    const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn attribute_alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.attribute_aliases = aliases;
        self
    }

    pub(super) const fn many(mut self) -> Self {
        self.cardinality = Cardinality::Many;
        self
    }

    pub(super) const fn ordered(mut self) -> Self {
        self.cardinality = Cardinality::Ordered;
        self
    }

    pub(super) const fn noted(mut self, why: &'static str) -> Self {
        self.handling = Handling::Noted(why);
        self
    }

    pub(super) const fn refused(mut self, instead: &'static str) -> Self {
        self.handling = Handling::Refused(instead);
        self
    }

    /// Whether the word starts with as much of the keyword as is asked for.
    fn is_prefixed(&self, word: &str) -> bool {
        let (start, own) = (word.get(..self.prefix), self.keyword.get(..self.prefix));
        self.prefix > 0 && start.zip(own).is_some_and(|(start, own)| start.eq_ignore_ascii_case(own))
    }

    fn is_keyword(&self, word: &str) -> bool {
        (!self.keyword.is_empty() && self.keyword.eq_ignore_ascii_case(word))
            || self.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(word))
    }

    fn is_attribute(&self, name: &str) -> bool {
        (!self.attribute.is_empty() && self.attribute.eq_ignore_ascii_case(name))
            || self.attribute_aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    }
}

impl std::fmt::Debug for Directive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directive")
            .field("keyword", &self.keyword)
            .field("attribute", &self.attribute)
            .field("scope", &self.scope)
            .field("handling", &self.handling)
            .finish_non_exhaustive()
    }
}

/// For a directive whose values are kept and nothing more.
pub(super) fn keep(_: &mut Builder, _: &Call<'_>) -> Result<(), Fault> {
    Ok(())
}

/// Every directive, in the order in which the attributes of one entry are applied.
pub(super) fn all() -> impl Iterator<Item = &'static Directive> {
    let common = [structure::TABLE, global::TABLE, shared::TABLE, database::TABLE].into_iter().flatten();
    common.chain(kinds::directives()).chain(overlays::table()).chain(kinds::FOREIGN_DIRECTIVES)
}

/// The directive a keyword means where it stands. Common keywords come before those of the database's kind, these
/// before those of its overlays (the last one first), and last those of global overlays.
pub(super) fn by_keyword(word: &str, place: &Place<'_>) -> Option<&'static Directive> {
    find(place, |directive| directive.is_keyword(word))
        .or_else(|| find(place, |directive| directive.is_prefixed(word)))
}

/// The directive of an olc attribute in an entry of this kind.
pub(super) fn by_attribute(name: &str, place: &Place<'_>) -> Option<&'static Directive> {
    find(place, |directive| directive.is_attribute(name))
}

fn find(place: &Place<'_>, matches: impl Fn(&Directive) -> bool) -> Option<&'static Directive> {
    all()
        .filter(|directive| matches(directive))
        .min_by_key(|directive| rank(directive.scope, place))
        .filter(|directive| rank(directive.scope, place) < UNREACHABLE)
}

const UNREACHABLE: usize = usize::MAX;

/// How near a scope is to a place; the nearest directive wins.
fn rank(scope: Scope, place: &Place<'_>) -> usize {
    match scope {
        Scope::Overlay(name) => {
            match place.overlays.iter().position(|overlay| overlay.eq_ignore_ascii_case(name)) {
                Some(distance) => 10 + distance,
                None => UNREACHABLE,
            }
        }
        Scope::Kind(kind) if place.kind == Some(kind) => 1,
        // The cache of pcache is an mdb database whose settings follow its `overlay` line.
        Scope::Kind("mdb") if place.overlays.contains(&"pcache") => 20,
        Scope::Foreign if place.foreign => 2,
        // translucent asks a server as an ldap database would.
        Scope::Foreign if place.overlays.contains(&"translucent") => 20,
        Scope::Backend if place.backend => 1,
        Scope::Kind(_) | Scope::Foreign | Scope::Backend => UNREACHABLE,
        _ => 0,
    }
}

/// The known keyword or attribute nearest to an unknown one, if it is near enough to be a slip.
pub(super) fn suggestion(word: &str, attribute: bool) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    all()
        .map(|directive| if attribute { directive.attribute } else { directive.keyword })
        .filter(|known| !known.is_empty())
        .map(|known| (distance(&word, &known.to_ascii_lowercase()), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (at(&last, j) + usize::from(x != y)).min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            if i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x) {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod tests;
