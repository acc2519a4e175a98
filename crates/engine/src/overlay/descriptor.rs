//! The descriptor of an overlay: its name, its directives, how it is built. Configuration files, cn=config, `larix test` and the monitor
//! know overlays only by their descriptors.

use std::fmt;
use std::sync::Arc;

use larix_schema::{AttributeDescription, NormalDn, Schema};

use super::Overlay;
use super::settings::{SettingError, Settings};
use crate::index::IndexConfig;
use crate::password::Hasher;

/// Builds the overlay of one database from its settings.
pub type Build = fn(&Settings, &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError>;

/// The attributes of a database that an overlay with these settings maintains.
pub type Maintains = fn(&Settings, &BuildContext<'_>) -> Result<Vec<AttributeDescription>, SettingError>;

/// All that the server knows about an overlay before it is configured.
#[derive(Debug)]
pub struct Descriptor {
    /// As after `overlay` in slapd.conf, and in `olcOverlay`.
    pub name: &'static str,
    /// The structural class of its entry under cn=config; `olcOverlayConfig` for an overlay without directives.
    pub class: &'static str,
    /// `None`: it only sees requests in front of a backend.
    pub build: Option<Build>,
    pub directives: &'static [OverlayDirective],
    /// A second one on the same database is refused.
    pub once: bool,
    pub global: Global,
    pub over_glue: InGluedDatabases,
    /// A note for the administrator who configures it.
    pub note: Option<&'static str>,
    /// Definitions that it brings, each as a line of slapd.conf (`attributetype ( ... )`, `objectclass ( ... )`).
    pub schema: &'static str,
    pub maintains: Option<Maintains>,
    /// Attribute types of every schema that the subschema shows only where the overlay is configured.
    pub shows: &'static [&'static str],
    /// Attributes with its secrets, which no client should read: `larix test` warns if access rules leave them open.
    pub secrets: &'static [&'static str],
    /// Operational attributes that each server derives or keeps for itself. Comparisons of replicas leave them out.
    pub local: &'static [&'static str],
    /// The entries that its own may have below it under cn=config.
    pub below: Option<&'static EntriesBelow>,
    /// The directives, keyword and arguments, with which `larix serve --suffix` configures it; empty: it does not.
    pub quick_start: &'static [(&'static str, &'static [&'static str])],
    /// Whether the content of its database is provided to consumers (RFC 4533).
    pub provides_content: bool,
    /// Whether operations on its database are recorded in an access log, which consumers may follow.
    pub records_operations: bool,
    /// Whether it needs the change log of its database. A database without one refuses it.
    pub reads_change_log: bool,
    pub in_shared_engine: InSharedEngine,
}

/// How an overlay works on a database in an engine that several servers share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InSharedEngine {
    /// All servers have it. Its interceptor, if any, is not tried there.
    Alike,
    /// All servers have it, with its interceptor.
    AlikeInFront,
    /// It writes files of its server's machine: each server has one of its own, or none.
    OfEachServer,
    /// It needs another database, which each server has in its own configuration, and the overlay with it.
    WithAnotherDatabase,
    /// It does not work there; the text says why.
    Refused(&'static str),
}

/// The first value of an attribute of an entry, by its name.
pub type FirstValue<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Entries below an overlay's own under cn=config. Each of them means one line of a directive.
#[derive(Debug)]
pub struct EntriesBelow {
    /// The directive, and its attribute.
    pub keyword: &'static str,
    pub attribute: &'static str,
    /// Their structural classes.
    pub classes: &'static [&'static str],
    /// The attribute at which a fault of such a line is shown.
    pub fault_at: &'static str,
    /// The words of the line, without the keyword, from the class and the first value of an attribute.
    pub words: fn(&str, FirstValue<'_>) -> Vec<String>,
}

/// The meaning of an overlay that is configured before the first database, or in the frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Global {
    /// Each database that stores entries gets one of its own, unless it has one already.
    EveryDatabase,
    /// There is one, in front of all databases.
    Frontend,
}

/// The meaning of an overlay behind an `overlay glue` line for the databases glued below its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InGluedDatabases {
    /// It covers all of them, or is part of the server.
    TakenIn,
    /// Each of them gets one of its own, unless it has one already. The effect is the same.
    Each,
    /// The configuration is refused; the text says what would be wrong.
    Refused(&'static str),
}

impl Descriptor {
    pub const fn new(name: &'static str, class: &'static str, build: Build) -> Self {
        Self::of(name, class, Some(build), Global::EveryDatabase)
    }

    /// An overlay that sees requests on their way to a backend, and is part of no database.
    pub const fn in_front(name: &'static str, class: &'static str) -> Self {
        Self::of(name, class, None, Global::Frontend)
    }

    const fn of(name: &'static str, class: &'static str, build: Option<Build>, global: Global) -> Self {
        Self {
            name,
            class,
            build,
            directives: &[],
            once: false,
            global,
            over_glue: match global {
                Global::EveryDatabase => InGluedDatabases::Refused("it sees one database alone"),
                Global::Frontend => InGluedDatabases::TakenIn,
            },
            note: None,
            schema: "",
            maintains: None,
            shows: &[],
            secrets: &[],
            local: &[],
            below: None,
            quick_start: &[],
            provides_content: false,
            records_operations: false,
            reads_change_log: false,
            in_shared_engine: InSharedEngine::Alike,
        }
    }

    #[must_use]
    pub const fn directives(mut self, directives: &'static [OverlayDirective]) -> Self {
        self.directives = directives;
        self
    }

    /// Refuses a second one on the same database.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    #[must_use]
    pub const fn over_glue(mut self, means: InGluedDatabases) -> Self {
        self.over_glue = means;
        self
    }

    #[must_use]
    pub const fn noted(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }

    #[must_use]
    pub const fn schema(mut self, definitions: &'static str) -> Self {
        self.schema = definitions;
        self
    }

    #[must_use]
    pub const fn maintains(mut self, maintains: Maintains) -> Self {
        self.maintains = Some(maintains);
        self
    }

    #[must_use]
    pub const fn shows(mut self, attributes: &'static [&'static str]) -> Self {
        self.shows = attributes;
        self
    }

    #[must_use]
    pub const fn secrets(mut self, attributes: &'static [&'static str]) -> Self {
        self.secrets = attributes;
        self
    }

    #[must_use]
    pub const fn local(mut self, attributes: &'static [&'static str]) -> Self {
        self.local = attributes;
        self
    }

    #[must_use]
    pub const fn below(mut self, entries: &'static EntriesBelow) -> Self {
        self.below = Some(entries);
        self
    }

    #[must_use]
    pub const fn quick_start(
        mut self,
        directives: &'static [(&'static str, &'static [&'static str])],
    ) -> Self {
        self.quick_start = directives;
        self
    }

    #[must_use]
    pub const fn provides_content(mut self) -> Self {
        self.provides_content = true;
        self
    }

    #[must_use]
    pub const fn reads_change_log(mut self) -> Self {
        self.reads_change_log = true;
        self
    }

    #[must_use]
    pub const fn in_shared_engine(mut self, means: InSharedEngine) -> Self {
        self.in_shared_engine = means;
        self
    }

    #[must_use]
    pub const fn records_operations(mut self) -> Self {
        self.records_operations = true;
        self
    }
}

/// How arguments in slapd.conf and a value under cn=config become one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One or more words.
    Words,
    /// Words, the first of which is the keyword itself: it stands in the value, too.
    Command,
    /// One argument, which is the value as it stands.
    Whole,
    /// TRUE or FALSE; without an argument TRUE.
    Switch,
    /// One or more words, a value each.
    Each,
}

/// How many values the attribute has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    One,
    Many,
    /// Many, with `{n}` before each under cn=config.
    Ordered,
}

/// A word of a value that a directive in another order of words stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Word(&'static str),
    /// The argument of this number, from 0.
    Argument(usize),
}

impl Piece {
    /// The words of the value.
    pub fn words(pieces: &[Self], arguments: &[String]) -> Vec<String> {
        let word = |piece: &Self| match piece {
            Self::Word(word) => (*word).to_owned(),
            Self::Argument(number) => arguments.get(*number).cloned().unwrap_or_default(),
        };
        pieces.iter().map(word).collect()
    }
}

/// Looks at the arguments of one directive where it is read, so that a fault is shown at its place.
pub type Check = fn(&Schema, &[String]) -> Result<(), WordFault>;

/// What is wrong with one argument of a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordFault {
    /// The argument's number, from 0.
    pub argument: usize,
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl WordFault {
    pub fn new(argument: usize, message: impl Into<String>) -> Self {
        Self { argument, message: message.into(), help: None }
    }

    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same where the directive is taken as a whole. A name that is unknown may come with a schema.
    pub fn of_setting(self, keyword: &str, words: &[String]) -> SettingError {
        let error = SettingError::new(format!("{keyword} \"{}\": {}", words.join(" "), self.message));
        let error = error.awaiting_schema();
        match self.help {
            Some(help) => error.with_help(help),
            None => error,
        }
    }
}

/// One keyword of slapd.conf after an `overlay` line, and its attribute under cn=config.
#[derive(Clone, Copy)]
pub struct OverlayDirective {
    /// Matched without regard to case; empty where only cn=config has it.
    pub keyword: &'static str,
    pub attribute: &'static str,
    pub form: Form,
    pub values: Values,
    /// Length of the keyword that is enough; 0: the whole.
    pub prefix: usize,
    /// Other spellings of the keyword.
    pub aliases: &'static [&'static str],
    /// Other names of the attribute.
    pub attribute_aliases: &'static [&'static str],
    /// Least and most arguments; `u8::MAX`: any number.
    pub arguments: (u8, u8),
    /// It is taken without effect; why.
    pub note: Option<&'static str>,
    /// The value that says what holds without it: OpenLDAP writes such values into every slapd.d.
    pub default: Option<&'static str>,
    pub check: Option<Check>,
    /// slapd takes the value whole, such as a DN: blanks in it need no quotes.
    pub has_blanks: bool,
    /// Of a keyword that says with other words what another one of the same attribute says: the words of the value. Empty: they are the
    /// arguments.
    pub pieces: &'static [Piece],
}

impl OverlayDirective {
    const fn new(keyword: &'static str, attribute: &'static str, form: Form, arguments: (u8, u8)) -> Self {
        Self {
            keyword,
            attribute,
            form,
            values: Values::One,
            prefix: 0,
            aliases: &[],
            attribute_aliases: &[],
            arguments,
            note: None,
            default: None,
            check: None,
            has_blanks: false,
            pieces: &[],
        }
    }

    /// One or more words.
    pub const fn words(keyword: &'static str, attribute: &'static str) -> Self {
        Self::new(keyword, attribute, Form::Words, (1, u8::MAX))
    }

    /// One or more words. The first is the keyword, because the attribute has several keywords.
    pub const fn command(keyword: &'static str, attribute: &'static str) -> Self {
        Self::new(keyword, attribute, Form::Command, (1, u8::MAX))
    }

    /// One argument, which is the value as it stands.
    pub const fn whole(keyword: &'static str, attribute: &'static str) -> Self {
        Self::new(keyword, attribute, Form::Whole, (1, 1))
    }

    /// One or more words, a value each; may be given more than once.
    pub const fn each(keyword: &'static str, attribute: &'static str) -> Self {
        Self::new(keyword, attribute, Form::Each, (1, u8::MAX)).many()
    }

    /// TRUE or FALSE; TRUE without an argument.
    pub const fn switch(keyword: &'static str, attribute: &'static str) -> Self {
        Self::new(keyword, attribute, Form::Switch, (0, 1))
    }

    /// May be given more than once.
    #[must_use]
    pub const fn many(mut self) -> Self {
        self.values = Values::Many;
        self
    }

    /// May be given more than once, and the order counts.
    #[must_use]
    pub const fn ordered(mut self) -> Self {
        self.values = Values::Ordered;
        self
    }

    /// Is taken without effect.
    #[must_use]
    pub const fn noted(mut self, why: &'static str) -> Self {
        self.note = Some(why);
        self
    }

    /// One value says what holds without it.
    #[must_use]
    pub const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }

    /// So many letters of the keyword are enough.
    #[must_use]
    pub const fn prefix(mut self, length: usize) -> Self {
        self.prefix = length;
        self
    }

    #[must_use]
    pub const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    #[must_use]
    pub const fn attribute_alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.attribute_aliases = aliases;
        self
    }

    /// Takes at least and at most so many arguments.
    #[must_use]
    pub const fn arguments(mut self, least: u8, most: u8) -> Self {
        self.arguments = (least, most);
        self
    }

    /// slapd takes the value whole.
    #[must_use]
    pub const fn with_blanks(mut self) -> Self {
        self.has_blanks = true;
        self
    }

    /// The value has these words in the place of the arguments.
    #[must_use]
    pub const fn standing_for(mut self, pieces: &'static [Piece]) -> Self {
        self.pieces = pieces;
        self
    }

    #[must_use]
    pub const fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }
}

impl fmt::Debug for OverlayDirective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayDirective")
            .field("keyword", &self.keyword)
            .field("attribute", &self.attribute)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

/// What an overlay is built for: the database, and what the server's configuration says beside the overlay's own directives.
#[derive(Debug)]
pub struct BuildContext<'c> {
    pub schema: &'c Arc<Schema>,
    /// Of the database.
    pub suffixes: &'c [NormalDn],
    /// The first of them as it was configured; empty without any.
    pub shown_suffix: &'c str,
    /// `rootdn` of the database, normal and as it was configured.
    pub root_dn: Option<(&'c NormalDn, &'c str)>,
    /// `lastmod`: whether the database keeps modifiersName and the like.
    pub last_modified: bool,
    /// `lastbind`: whether the database keeps pwdLastSuccess.
    pub last_bind: bool,
    /// `lastbind-precision`, in seconds.
    pub last_bind_precision: u32,
    /// `lastbind-send-assert`: a shadow hands the time of a bind on only where the provider has none that is recent enough.
    pub last_bind_asserts: bool,
    /// How passwords are hashed (`password-hash`).
    pub hasher: &'c Hasher,
    /// The indexes of the database as configured.
    pub index: &'c IndexConfig,
    /// Attributes that other overlays of the database keep right by themselves.
    pub maintained: &'c [AttributeDescription],
    /// Whether changes of the database come from other servers (`syncrepl`).
    pub receives: bool,
    /// Of a shadow: whether what logins change can be handed on to its provider (`updateref` and `overlay chain`).
    pub forwards: Option<bool>,
    /// The other databases that the same overlay of the frontend is meant for; none for an overlay of one database.
    pub others: &'c [OtherDatabase],
}

/// A database beside the one that an overlay is built for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherDatabase {
    /// Its first suffix.
    pub suffix: NormalDn,
    /// `lastmod`: whether it keeps modifiersName and the like.
    pub last_modified: bool,
    /// Whether changes of it come from other servers (`syncrepl`).
    pub receives: bool,
}
