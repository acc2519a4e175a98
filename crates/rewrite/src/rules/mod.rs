//! Rewriting rules (slapd.conf(5), slapo-rwm(5)): those of a context are applied one after another, with variables, parameters and
//! maps. Commands and maps of other servers are not there.
//!
//! Matching takes time in proportion to the text; passes, depths and sizes have limits, so a rewriting ends whatever the rules say.

mod basic;
mod escape;
mod session;
mod substitution;

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;

use escape::Escapes;
use larix_engine::access::posix_regex;
use larix_proto::ResultCode;
use substitution::{Map, Search, Substitution, legal};

pub use session::{Session, Sessions};
pub use substitution::Searches;

/// Passes of a whole rewriting, unless `rewriteMaxPasses` says so: each try of a rule is one, and each step to the next.
const PASSES: u32 = 100;
/// The most that `rewriteMaxPasses` and `M{n}` may ask for.
const PASSES_MAX: u32 = 10_000;
/// Longest name that rules may make, in bytes: a rule that doubles its name must not fill the memory.
const NAME_MAX: usize = 16_384;
/// Most rules of one configuration.
const RULES_MAX: usize = 10_000;

/// Contexts within contexts, at most.
const DEPTH_MAX: u32 = 32;
/// The context of rules that stand in none.
const DEFAULT: &str = "default";
/// The context of the names of entries that are answered (slapo-rwm(5)).
const ENTRIES: &str = "searchEntryDN";
/// The context that names of identities are rewritten in.
const AUTHID: &str = "authid";

/// The commands so far. Without `rewriteEngine` on, and without `authz-regexp`, rules have no effect.
#[derive(Debug, Clone)]
pub struct Rewrite {
    engine: Option<bool>,
    passes: u32,
    passes_per_rule: u32,
    /// The first is [`DEFAULT`].
    contexts: Vec<Context>,
    /// Where rules go.
    current: usize,
    maps: Vec<(String, Map)>,
    parameters: BTreeMap<String, String>,
    /// Whether there are sessions whose variables rules may have; and whether a rule has any.
    sessions: bool,
    uses_session: bool,
}

/// A context of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextId(usize);

/// What becomes of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewritten {
    /// It stays what it is: no rule matches.
    Kept,
    Changed(String),
    /// A rule says that the operation ends with this code (`#`, `U{n}`).
    Refused(ResultCode),
    /// A map, a variable or a context led nowhere, or the text grew beyond its limit.
    Failed,
}

#[derive(Debug, Clone)]
struct Context {
    /// In lower case.
    name: String,
    /// The one that is meant instead.
    alias: Option<usize>,
    rules: Vec<Rule>,
}

impl Default for Rewrite {
    fn default() -> Self {
        let default = Context { name: DEFAULT.to_owned(), alias: None, rules: Vec::new() };
        Self {
            engine: None,
            passes: PASSES,
            passes_per_rule: PASSES,
            contexts: vec![default],
            current: 0,
            maps: Vec::new(),
            parameters: BTreeMap::new(),
            sessions: false,
            uses_session: false,
        }
    }
}

impl Rewrite {
    /// Rules that may have variables of a client's session.
    pub(crate) fn with_sessions() -> Self {
        Self { sessions: true, ..Self::default() }
    }

    /// Whether a rule has variables of the session.
    pub const fn uses_session(&self) -> bool {
        self.uses_session
    }

    /// Whether the engine was switched on.
    pub fn is_on(&self) -> bool {
        self.engine == Some(true)
    }

    /// The context of this name, or the one that it is another name for; whether it has rules.
    pub fn context(&self, name: &str) -> Option<(ContextId, bool)> {
        let at = self.context_called(&name.to_ascii_lowercase())?;
        let has_rules = self.contexts.get(at).is_some_and(|context| !context.rules.is_empty());
        Some((ContextId(at), has_rules))
    }

    /// Whether rules of this context, or of those that they use, search the directory.
    pub fn searches(&self, context: ContextId) -> bool {
        // Rules use contexts that stand before them or their own, so each has to be looked at once.
        let (mut seen, mut todo) = (vec![false; self.contexts.len()], vec![context.0]);
        while let Some(at) = todo.pop() {
            let (Some(seen), Some(context)) = (seen.get_mut(at), self.contexts.get(at)) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            for rule in &context.rules {
                if rule.substitution.uses(&mut todo) {
                    return true;
                }
            }
        }
        false
    }

    /// Adds the rules that put one suffix in the place of another: in the context of requests, and the other way about in that of
    /// entries, which is the one of values and matched names, too. The suffixes are in pretty form. Rules that follow without a
    /// context of their own are for entries, as in slapd.
    ///
    /// # Errors
    /// Too many rules; a suffix that is too long for a rule.
    pub fn massage(&mut self, outside: &str, inside: &str) -> Result<(), RewriteError> {
        self.engine = Some(true);
        for (context, from, to) in [(DEFAULT, outside, inside), (ENTRIES, inside, outside)] {
            self.enter(&[context])?;
            self.replace_suffix(from, to)?;
        }
        ["matchedDN", "searchAttrDN"]
            .into_iter()
            .try_for_each(|context| self.enter(&[context, "alias", ENTRIES]))
    }

    fn replace_suffix(&mut self, from: &str, to: &str) -> Result<(), RewriteError> {
        let commas = regex::escape(from).replace(',', ", ?");
        let to = to.replace('$', "$$").replace('%', "%%");
        let rules = match (from.is_empty(), to.is_empty()) {
            (true, true) => Vec::new(),
            // In this order: what the one has made the other does not match.
            (true, false) => vec![("^(.+)$".to_owned(), format!("$1,{to}")), ("^$".to_owned(), to)],
            (false, true) => vec![(format!("^(?:(.+), ?)?{commas}$"), "$1".to_owned())],
            (false, false) => vec![(format!("^(.+,)? ?{commas}$"), format!("$1{to}"))],
        };
        // Rules of the configuration may follow in the same context.
        for (pattern, substitution) in rules {
            self.add(&[&pattern, &substitution, ":"])?;
        }
        Ok(())
    }

    /// What the rules of a context make of a text. Variables of a session are kept in `session`; without one they lead nowhere.
    pub fn rewrite(
        &self,
        context: ContextId,
        text: &str,
        searches: Searches<'_>,
        session: Option<&Session>,
    ) -> Rewritten {
        if self.engine != Some(true) {
            return Rewritten::Kept;
        }
        match self.run(searches, session).context(context.0, text) {
            Ok(None) => Rewritten::Kept,
            Ok(Some(changed)) if changed == text => Rewritten::Kept,
            Ok(Some(changed)) => Rewritten::Changed(changed),
            Err(End::Left(code)) => Rewritten::Refused(code),
            Err(End::Failed) => Rewritten::Failed,
        }
    }

    fn run<'a>(&'a self, searches: Searches<'a>, session: Option<&'a Session>) -> Run<'a> {
        Run { rewrite: self, searches, session, passes: 0, depth: 0, variables: BTreeMap::new() }
    }

    /// Takes one command: its name, with or without a prefix that ends in `-`, and its arguments.
    ///
    /// # Errors
    /// Names the word that is wrong, or not supported.
    pub fn command(&mut self, words: &[&str]) -> Result<(), RewriteError> {
        let Some((&keyword, arguments)) = words.split_first() else {
            return Err(RewriteError::Missing("a command"));
        };
        let name = keyword.to_ascii_lowercase();
        match name.split_once('-').map_or(name.as_str(), |(_, name)| name) {
            "rewriteengine" => self.switch(arguments),
            "rewritecontext" => self.enter(arguments),
            "rewriterule" => self.add(arguments),
            "rewritemaxpasses" => self.bound(arguments),
            "rewritemap" => self.add_map(arguments),
            "rewriteparam" => {
                let [name, value] = exactly(arguments, ["a name", "a value"])?;
                self.parameters.insert(name.to_ascii_lowercase(), value.to_owned());
                Ok(())
            }
            _ => Err(RewriteError::Command(keyword.to_owned())),
        }
    }

    /// Whether there are rules that are applied without any `authz-regexp`.
    pub fn is_in_force(&self) -> bool {
        self.engine == Some(true) && self.contexts.iter().any(|context| !context.rules.is_empty())
    }

    /// What becomes of a name. None: it stays what it is, because no rule matches, one says so, or one has failed.
    ///
    /// `on_by_default`: OpenLDAP's engine is on once there is an `authz-regexp`. `searches` serves the maps.
    pub fn apply(&self, name: &str, on_by_default: bool, searches: Searches<'_>) -> Option<String> {
        if !self.engine.unwrap_or(on_by_default) {
            return None;
        }
        self.run(searches, None).context(self.context_called(AUTHID).unwrap_or(0), name).unwrap_or_default()
    }

    fn context_called(&self, name: &str) -> Option<usize> {
        let at = self.contexts.iter().position(|context| context.name == name)?;
        Some(self.contexts.get(at)?.alias.unwrap_or(at))
    }

    fn map_called(&self, name: &str) -> Option<usize> {
        self.maps.iter().position(|(known, _)| known == name)
    }

    fn map(&self, at: usize) -> Option<&Map> {
        self.maps.get(at).map(|(_, map)| map)
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    fn switch(&mut self, arguments: &[&str]) -> Result<(), RewriteError> {
        let [state] = exactly(arguments, ["on or off"])?;
        self.engine = Some(match state.to_ascii_lowercase().as_str() {
            "on" => true,
            "off" => false,
            _ => return Err(RewriteError::State(state.to_owned())),
        });
        Ok(())
    }

    fn enter(&mut self, arguments: &[&str]) -> Result<(), RewriteError> {
        let (name, other) = match arguments {
            [name] => (name, None),
            [name, alias, other] if alias.eq_ignore_ascii_case("alias") => (name, Some(other)),
            [] => return Err(RewriteError::Missing("a context")),
            [_, alias] if alias.eq_ignore_ascii_case("alias") => {
                return Err(RewriteError::Missing("the context that is meant"));
            }
            [_, more] | [_, _, _, more, ..] | [_, more, _] => {
                let word = if arguments.len() > 3 { 4 } else { 2 };
                return Err(RewriteError::Extra(word, (*more).to_owned()));
            }
        };
        let name = name.to_ascii_lowercase();
        let has_rules = self.contexts.first().is_some_and(|default| !default.rules.is_empty());
        if name == AUTHID && has_rules && self.contexts.len() == 1 {
            return Err(RewriteError::ContextAfterRules);
        }
        let other = match other {
            None => None,
            Some(other) => {
                let lower = other.to_ascii_lowercase();
                Some(self.context_called(&lower).ok_or_else(|| RewriteError::Context((*other).to_owned()))?)
            }
        };
        let at = match self.contexts.iter().position(|context| context.name == name) {
            Some(at) => at,
            None if self.contexts.len() >= RULES_MAX => return Err(RewriteError::TooMany),
            None => {
                self.contexts.push(Context { name, alias: None, rules: Vec::new() });
                self.contexts.len() - 1
            }
        };
        let Some(context) = self.contexts.get_mut(at) else { return Ok(()) };
        context.alias = other.or(context.alias);
        self.current = context.alias.unwrap_or(at);
        Ok(())
    }

    fn add_map(&mut self, arguments: &[&str]) -> Result<(), RewriteError> {
        let (kind, name, given) = match arguments {
            [kind, name, given @ ..] => (*kind, *name, given),
            [] => return Err(RewriteError::Missing("a kind of map")),
            [_] => return Err(RewriteError::Missing("a name")),
        };
        let escapes = kind.eq_ignore_ascii_case("escape");
        if !escapes && !kind.eq_ignore_ascii_case("slapd") {
            return Err(RewriteError::MapKind(kind.to_owned()));
        }
        let legal_name = legal(name).ok_or_else(|| RewriteError::MapName(name.to_owned()))?;
        if self.map_called(&legal_name).is_some() {
            return Err(RewriteError::MapName(name.to_owned()));
        }
        let map = if escapes {
            Map::Escapes(Escapes::parse(given).map_err(|word| match given.get(word) {
                Some(word_there) => RewriteError::Escape(word + 3, (*word_there).to_owned()),
                None => RewriteError::Missing("what the map does"),
            })?)
        } else {
            let [_, _, url] = exactly(arguments, ["a kind of map", "a name", "a URL"])?;
            Map::Search(Search::parse(url).ok_or_else(|| RewriteError::MapUrl(url.to_owned()))?)
        };
        self.maps.push((legal_name, map));
        Ok(())
    }

    fn bound(&mut self, arguments: &[&str]) -> Result<(), RewriteError> {
        let (total, per_rule) = match arguments {
            [total] => (total, total),
            [total, per_rule] => (total, per_rule),
            [] => return Err(RewriteError::Missing("a number of passes")),
            [_, _, more, ..] => return Err(RewriteError::Extra(3, (*more).to_owned())),
        };
        let read = |word: usize, text: &str| {
            let number = text.parse().ok().filter(|number| (1..=PASSES_MAX).contains(number));
            number.ok_or_else(|| RewriteError::Passes(word, text.to_owned()))
        };
        (self.passes, self.passes_per_rule) = (read(1, total)?, read(arguments.len(), per_rule)?);
        Ok(())
    }

    fn add(&mut self, arguments: &[&str]) -> Result<(), RewriteError> {
        let (pattern, substitution, flags) = match arguments {
            [pattern, substitution] => (pattern, substitution, ""),
            [pattern, substitution, flags] => (pattern, substitution, *flags),
            [] | [_] => return Err(RewriteError::Missing("a pattern and a substitution")),
            [_, _, _, more, ..] => return Err(RewriteError::Extra(4, (*more).to_owned())),
        };
        if self.contexts.iter().map(|context| context.rules.len()).sum::<usize>() >= RULES_MAX {
            return Err(RewriteError::TooMany);
        }
        let flags = Flags::parse(flags, self.passes_per_rule)?;
        let substitution = Substitution::parse(substitution, self)?;
        self.uses_session |= substitution.uses_session();
        let pattern = if flags.basic { basic::to_extended(pattern) } else { (*pattern).to_owned() };
        let regex = posix_regex(&pattern, !flags.honor_case).map_err(RewriteError::Pattern)?;
        let rule = Rule { regex, substitution, passes: flags.passes, actions: flags.actions };
        if let Some(context) = self.contexts.get_mut(self.current) {
            context.rules.push(rule);
        }
        Ok(())
    }
}

/// The arguments, if they are as many as names for them.
fn exactly<'a, const N: usize>(
    arguments: &[&'a str],
    names: [&'static str; N],
) -> Result<[&'a str; N], RewriteError> {
    if let Some(more) = arguments.get(N) {
        return Err(RewriteError::Extra(N + 1, (*more).to_owned()));
    }
    let missing = names.get(arguments.len()).copied().unwrap_or("an argument");
    arguments.try_into().map_err(|_| RewriteError::Missing(missing))
}

/// One rewriting on its way.
struct Run<'a> {
    rewrite: &'a Rewrite,
    searches: Searches<'a>,
    session: Option<&'a Session>,
    passes: u32,
    depth: u32,
    /// By name in lower case; they end with the rewriting.
    variables: BTreeMap<String, String>,
}

/// How a context ends other than with a name.
enum End {
    /// A rule says that the name stays what it was, and an operation ends with this code.
    Left(ResultCode),
    Failed,
}

/// A map, a variable or a context that led nowhere; or a name that grew beyond all measure.
struct Failed;

impl Run<'_> {
    /// The rules of a context, one after another. None: none of them matched.
    fn context(&mut self, context: usize, name: &str) -> Result<Option<String>, End> {
        if self.depth >= DEPTH_MAX {
            return Err(End::Failed);
        }
        self.depth += 1;
        let rewrite = self.rewrite;
        let rules = rewrite.contexts.get(context).map_or(&[][..], |context| &context.rules);
        let ended = self.rules(rules, name);
        self.depth -= 1;
        ended
    }

    fn rules(&mut self, rules: &[Rule], name: &str) -> Result<Option<String>, End> {
        let (mut current, mut changed) = (name.to_owned(), false);
        let mut at = 0_i64;
        while let Some(rule) = usize::try_from(at).ok().and_then(|at| rules.get(at)) {
            if self.passes >= self.rewrite.passes {
                // The limit counts as success, but for a rule that just did not match.
                break;
            }
            match rule.rewrite(&current, self) {
                Ok(rewritten) => {
                    let last = usize::try_from(at + 1) == Ok(rules.len());
                    changed = rewritten.is_some() || last;
                    if let Some(rewritten) = rewritten {
                        current = rewritten;
                        for action in &rule.actions {
                            match *action {
                                Action::Stop => return Ok(Some(current)),
                                Action::Leave(code) => return Err(End::Left(code)),
                                Action::Go(distance) => at = step(rules, at, distance)?,
                                Action::IgnoreErrors => {}
                            }
                        }
                    }
                }
                Err(Failed) => {
                    let mut ignored = false;
                    for action in &rule.actions {
                        match *action {
                            Action::IgnoreErrors => ignored = true,
                            // A jump that stands before it is for matches alone.
                            Action::Go(distance) if ignored => at = step(rules, at, distance)?,
                            _ => {}
                        }
                    }
                    if !ignored {
                        return Err(End::Failed);
                    }
                    changed = usize::try_from(at + 1) == Ok(rules.len());
                }
            }
            at += 1;
            self.passes = self.passes.saturating_add(1);
        }
        Ok(changed.then_some(current))
    }
}

/// One before the rule that a jump leads to, as the walk goes on from there.
fn step(rules: &[Rule], at: i64, distance: i32) -> Result<i64, End> {
    let to = at.checked_add(i64::from(distance)).and_then(|to| to.checked_sub(1)).ok_or(End::Failed)?;
    let end = i64::try_from(rules.len()).map_err(|_| End::Failed)?;
    if (-1..end).contains(&to) { Ok(to) } else { Err(End::Failed) }
}

#[derive(Debug, Clone)]
struct Rule {
    regex: Regex,
    substitution: Substitution,
    /// How often the rule is applied to its own result.
    passes: u32,
    /// In the order of the flags.
    actions: Vec<Action>,
}

/// What follows a match.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// `@`, `U{0}`: no more rules.
    Stop,
    /// `#`, `U{n}`: the name stays what it was, and an operation ends with this code.
    Leave(ResultCode),
    /// `G{n}`
    Go(i32),
    /// `I`: what fails has not matched.
    IgnoreErrors,
}

impl Rule {
    /// The result of a match, or of several where the rule applies to its own result; None without one.
    fn rewrite(&self, name: &str, run: &mut Run<'_>) -> Result<Option<String>, Failed> {
        let mut result: Option<String> = None;
        for _ in 0..self.passes {
            run.passes = run.passes.saturating_add(1);
            let subject = result.as_deref().unwrap_or(name);
            let Some(found) = self.regex.captures(subject) else { break };
            result = Some(self.substitution.fill(run, &found)?);
            if run.passes >= run.rewrite.passes {
                break;
            }
        }
        Ok(result)
    }
}

struct Flags {
    honor_case: bool,
    basic: bool,
    passes: u32,
    actions: Vec<Action>,
}

impl Flags {
    fn parse(text: &str, passes: u32) -> Result<Self, RewriteError> {
        let fault = || RewriteError::Flag(text.to_owned());
        let mut flags = Self { honor_case: false, basic: false, passes, actions: Vec::new() };
        let mut once = false;
        let mut rest = text;
        while let Some(flag) = rest.chars().next() {
            rest = rest.get(flag.len_utf8()..).unwrap_or_default();
            let mut number = || -> Result<i32, RewriteError> {
                let inside = rest.strip_prefix('{').and_then(|inside| inside.split_once('}'));
                let (digits, after) = inside.ok_or_else(fault)?;
                rest = after;
                digits.parse().map_err(|_| fault())
            };
            match flag {
                'C' => flags.honor_case = true,
                'R' => flags.basic = true,
                ':' => once = true,
                '@' => flags.actions.push(Action::Stop),
                '#' => {
                    once = true;
                    flags.actions.push(Action::Leave(ResultCode::UNWILLING_TO_PERFORM));
                }
                'I' => flags.actions.push(Action::IgnoreErrors),
                'G' => flags.actions.push(Action::Go(number()?)),
                'U' => flags.actions.push(match u32::try_from(number()?) {
                    Ok(0) => Action::Stop,
                    Ok(code) => Action::Leave(ResultCode(code)),
                    Err(_) => return Err(fault()),
                }),
                'M' => {
                    let passes = u32::try_from(number()?.max(1)).map_err(|_| fault())?;
                    flags.passes = Some(passes).filter(|passes| *passes <= PASSES_MAX).ok_or_else(fault)?;
                }
                _ => return Err(fault()),
            }
        }
        if once {
            flags.passes = 1;
        }
        Ok(flags)
    }
}

/// Why a command is not taken. Numbers count words, the command itself is word 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewriteError {
    Command(String),
    Missing(&'static str),
    Extra(usize, String),
    State(String),
    Context(String),
    /// Rules before it belong to no context that is used.
    ContextAfterRules,
    Passes(usize, String),
    Pattern(String),
    Substitution(String),
    Flag(String),
    /// A context or a map that no line before says.
    Unknown(String),
    MapKind(String),
    /// Not a legal name, or there already.
    MapName(String),
    MapUrl(String),
    /// No step of a map that escapes.
    Escape(usize, String),
    /// A map of the old kind, a command, a session's variable.
    Unsupported(usize, String),
    TooMany,
}

impl RewriteError {
    /// The word that is at fault.
    pub const fn word(&self) -> usize {
        match self {
            Self::Command(_) | Self::Missing(_) | Self::ContextAfterRules | Self::TooMany => 0,
            Self::State(_) | Self::Pattern(_) | Self::MapKind(_) => 1,
            Self::Substitution(_) | Self::Unknown(_) | Self::MapName(_) => 2,
            Self::Flag(_) | Self::Context(_) | Self::MapUrl(_) => 3,
            Self::Extra(word, _)
            | Self::Passes(word, _)
            | Self::Escape(word, _)
            | Self::Unsupported(word, _) => *word,
        }
    }

    /// What to write instead.
    pub const fn help(&self) -> &'static str {
        match self {
            Self::Command(_) | Self::Missing(_) | Self::Extra(..) => {
                "rewriteEngine on|off, rewriteContext NAME [alias NAME], rewriteRule PATTERN SUBSTITUTION [FLAGS], \
                 rewriteMaxPasses TOTAL [PER_RULE], rewriteParam NAME VALUE, rewriteMap slapd NAME URL, rewriteMap escape NAME STEP..."
            }
            Self::State(_) => "say on or off",
            Self::Context(_) => "put the context that is meant before its other name",
            Self::Unknown(_) => "put the rewriteContext or the rewriteMap before the rule that uses it",
            Self::MapKind(_) => {
                "slapd, which searches this server, or escape; maps of other servers are not supported"
            }
            Self::MapName(_) => "a letter, then letters and digits, and not the name of a map before it",
            Self::Escape(..) => "one or several of unescapedn, unescapefilter, escape2dn and escape2filter",
            Self::MapUrl(_) => "ldap:///BASE?ATTRIBUTE?SCOPE?FILTER with one attribute and no host",
            Self::ContextAfterRules => "put it before the first rule",
            Self::Passes(..) => "a number from 1 to 10000",
            Self::Pattern(_) => "a POSIX extended regular expression; a basic one with the flag R",
            Self::Substitution(_) => "$ or % followed by a digit; twice for itself",
            Self::Flag(_) => "flags are : @ # C R I G{n} U{n} M{n}",
            Self::Unsupported(..) => {
                "find entries by a map of the kind slapd, an LDAP URL as substitution, or authz-regexp"
            }
            Self::TooMany => "say with one pattern what many say",
        }
    }
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(word) => write!(f, "`{word}` is no command of rewriting"),
            Self::Missing(what) => write!(f, "needs {what}"),
            Self::Extra(_, word) => write!(f, "`{word}` is one word too many"),
            Self::State(word) => write!(f, "`{word}` is neither on nor off"),
            Self::Context(word) => write!(f, "there is no context `{word}` yet"),
            Self::Unknown(word) => write!(f, "there is no context or map `{word}` yet"),
            Self::MapKind(word) => write!(f, "maps of the kind `{word}` are not supported"),
            Self::MapName(word) => write!(f, "`{word}` is no new name for a map"),
            Self::MapUrl(word) => write!(f, "`{word}` is not what a map of this server can search"),
            Self::Escape(_, word) => write!(f, "`{word}` is nothing that a map of the kind escape does"),
            Self::ContextAfterRules => f.write_str("rules before their context"),
            Self::Passes(_, word) => write!(f, "`{word}` is no number of passes"),
            Self::Pattern(why) => f.write_str(why),
            Self::Substitution(text) => write!(f, "`{text}`: a lone $ or %"),
            Self::Flag(text) => write!(f, "`{text}` are no flags"),
            Self::Unsupported(_, word) => {
                write!(
                    f,
                    "`{word}`: old maps, commands, and variables of a session where there is none, are not supported"
                )
            }
            Self::TooMany => write!(f, "more than {RULES_MAX} rules"),
        }
    }
}

impl std::error::Error for RewriteError {}

#[cfg(test)]
mod tests;
