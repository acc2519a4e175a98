//! What a directive is: keyword, attribute, where it may stand, what becomes of its arguments.

use larix_engine::overlay::descriptor;

use super::Builder;
use super::call::{Call, Fault};

/// One keyword and its olc attribute.
#[derive(Clone)]
pub(crate) struct Directive {
    /// As slapd.conf(5) spells it; matched without regard to case.
    pub(crate) keyword: &'static str,
    /// Length of the keyword that is enough, as OpenLDAP matches `allow` and `allows`; 0: the whole.
    pub(crate) prefix: usize,
    /// Older spellings.
    pub(crate) aliases: &'static [&'static str],
    /// The attribute under cn=config; empty when the keyword has none.
    pub(crate) attribute: &'static str,
    /// Other names of the attribute.
    pub(crate) attribute_aliases: &'static [&'static str],
    pub(crate) scope: Scope,
    /// Least and most arguments after the keyword.
    pub(crate) arguments: (u8, u8),
    pub(crate) cardinality: Cardinality,
    pub(crate) form: Form,
    pub(crate) handling: Handling,
    /// `None`: the values are kept, and nothing more.
    pub(crate) apply: Option<Apply>,
    /// Looks at the arguments before they are applied.
    pub(crate) check: Option<descriptor::Check>,
    /// slapd takes its value whole, with blanks.
    pub(crate) has_blanks: bool,
    /// The words of the value, where they are not the arguments.
    pub(crate) pieces: &'static [descriptor::Piece],
}

pub(crate) type Apply = fn(&mut Builder, &Call<'_>) -> Result<(), Fault>;

/// Any number of arguments.
pub(crate) const MANY: u8 = u8::MAX;

/// Where a directive may stand, and which section it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
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
    /// In `backend lload`, or below it.
    Balancer(BalancerPart),
    /// After `overlay` of this name.
    Overlay(&'static str),
    /// A schema definition: in an included file, or in the server as a whole.
    Schema,
    /// In a module list.
    Module,
    /// Starts a section or reads a file.
    Structure,
}

/// What of the balancer a section is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BalancerPart {
    /// The balancer itself.
    Whole,
    /// A tier: an entry below that of the balancer.
    Tier,
    /// A server: an entry below that of its tier.
    Backend,
}

/// How many values the olc attribute has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cardinality {
    One,
    Many,
    /// Many, with `{n}` before each.
    Ordered,
}

/// How arguments and an olc value become one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Words; the value is cut at white space unless quoted.
    Words,
    /// Words, the first of which is the keyword itself: it stands in the value, too.
    Command,
    /// One argument, which is the value as it stands.
    Whole,
    /// One argument, a DN.
    Dn,
    /// One argument of any bytes, which anyone may see who may see the entry.
    Bytes,
    /// One argument of any bytes that lets one log in, decrypt or pose as the server: never shown.
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
pub(crate) enum Handling {
    Done,
    /// Accepted, without effect; why.
    Noted(&'static str),
    /// An error; what to do instead.
    Refused(&'static str),
}

impl Directive {
    pub(crate) const fn new(
        keyword: &'static str,
        attribute: &'static str,
        scope: Scope,
        form: Form,
        apply: Apply,
    ) -> Self {
        Self { apply: Some(apply), ..Self::kept(keyword, attribute, scope, form) }
    }

    /// Its values are kept as cn=config shows them, and nothing more.
    pub(crate) const fn kept(
        keyword: &'static str,
        attribute: &'static str,
        scope: Scope,
        form: Form,
    ) -> Self {
        let arguments = match form {
            Form::Words | Form::Command | Form::Each | Form::Rest | Form::Own => (1, MANY),
            Form::Whole | Form::Dn | Form::Bytes | Form::Secret | Form::Switch => (1, 1),
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
            apply: None,
            check: None,
            has_blanks: false,
            pieces: &[],
        }
    }

    pub(crate) const fn arguments(mut self, least: u8, most: u8) -> Self {
        self.arguments = (least, most);
        self
    }

    pub(crate) const fn prefix(mut self, length: usize) -> Self {
        self.prefix = length;
        self
    }

    pub(crate) const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub(crate) const fn attribute_alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.attribute_aliases = aliases;
        self
    }

    pub(crate) const fn many(mut self) -> Self {
        self.cardinality = Cardinality::Many;
        self
    }

    pub(crate) const fn ordered(mut self) -> Self {
        self.cardinality = Cardinality::Ordered;
        self
    }

    pub(crate) const fn checked(mut self, check: descriptor::Check) -> Self {
        self.check = Some(check);
        self
    }

    pub(crate) const fn with_blanks(mut self) -> Self {
        self.has_blanks = true;
        self
    }

    pub(crate) const fn noted(mut self, why: &'static str) -> Self {
        self.handling = Handling::Noted(why);
        self
    }

    pub(crate) const fn refused(mut self, instead: &'static str) -> Self {
        self.handling = Handling::Refused(instead);
        self
    }

    /// Whether the word starts with as much of the keyword as is asked for.
    pub(crate) fn is_prefixed(&self, word: &str) -> bool {
        let (start, own) = (word.get(..self.prefix), self.keyword.get(..self.prefix));
        self.prefix > 0 && start.zip(own).is_some_and(|(start, own)| start.eq_ignore_ascii_case(own))
    }

    pub(crate) fn is_keyword(&self, word: &str) -> bool {
        (!self.keyword.is_empty() && self.keyword.eq_ignore_ascii_case(word))
            || self.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(word))
    }

    /// The name of a command as slapd.conf has it: values may leave out what stands before the dash.
    pub(crate) fn command(&self, word: &str) -> String {
        match self.keyword.split_once('-') {
            Some((before, _)) if !self.is_keyword(word) && !self.is_prefixed(word) => {
                format!("{before}-{}", word.split_once('-').map_or(word, |(_, name)| name))
            }
            _ => word.to_owned(),
        }
    }

    /// Whether slapd cuts the value at blanks and takes one word: others have to be in quotes.
    pub(crate) fn is_word(&self) -> bool {
        self.form == Form::Whole && self.arguments.1 == 1 && !self.has_blanks
    }

    pub(crate) fn is_attribute(&self, name: &str) -> bool {
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
