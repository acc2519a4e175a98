//! The directives as a list, for a manual.

use super::builder::directive::{Directive, Handling, Scope};
use super::directives;

/// A directive, as a manual tells of it.
#[derive(Clone, Debug)]
pub struct ListedDirective {
    /// As slapd.conf(5) spells it; empty for an attribute that has no keyword.
    pub keyword: &'static str,
    /// Older spellings.
    pub aliases: &'static [&'static str],
    /// The attribute under cn=config; empty for a keyword that has none.
    pub attribute: &'static str,
    pub place: ListedScope,
    pub effect: ListedEffect,
}

/// Where a directive may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListedScope {
    Anywhere,
    BeforeDatabases,
    /// Before the first database for all, or in a database for that one.
    Shared,
    AnyDatabase,
    /// In a database of this kind.
    Database(&'static str),
    /// In a database of a kind that is not served.
    ForeignDatabase,
    Backend,
    /// Behind the `overlay` line of this name.
    Overlay(&'static str),
}

/// What becomes of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedEffect {
    Obeyed,
    /// Taken, without effect; why.
    Noted(&'static str),
    /// An error; what to do instead.
    Refused(&'static str),
}

/// Every directive, sorted by where it may stand and by keyword.
pub fn listed_directives() -> Vec<ListedDirective> {
    let mut all: Vec<ListedDirective> = directives::all().map(listed).collect();
    all.sort_by(|a, b| (a.place, a.keyword, a.attribute).cmp(&(b.place, b.keyword, b.attribute)));
    all.dedup_by(|a, b| (a.place, a.keyword, a.attribute) == (b.place, b.keyword, b.attribute));
    all
}

fn listed(directive: &Directive) -> ListedDirective {
    ListedDirective {
        keyword: directive.keyword,
        aliases: directive.aliases,
        attribute: directive.attribute,
        place: match directive.scope {
            Scope::Global | Scope::Frontend | Scope::Structure => ListedScope::Anywhere,
            Scope::GlobalFirst | Scope::Schema | Scope::Module => ListedScope::BeforeDatabases,
            Scope::Shared => ListedScope::Shared,
            Scope::Database => ListedScope::AnyDatabase,
            Scope::Kind(kind) => ListedScope::Database(kind),
            Scope::Foreign => ListedScope::ForeignDatabase,
            Scope::Backend | Scope::Balancer(_) => ListedScope::Backend,
            Scope::Overlay(name) => ListedScope::Overlay(name),
        },
        effect: match directive.handling {
            Handling::Done => ListedEffect::Obeyed,
            Handling::Noted(why) => ListedEffect::Noted(why),
            Handling::Refused(instead) => ListedEffect::Refused(instead),
        },
    }
}
