//! The rules of `authid-rewrite` (slapd.conf(5), slapo-rwm(5)): what `authz-regexp` leaves as it is, they rewrite one after
//! another. Maps, parameters and variables are not there.

mod basic;

use std::fmt;

use regex::Regex;

/// Passes of a whole rewriting, unless `rewriteMaxPasses` says so: each try of a rule is one, and each step to the next.
const PASSES: u32 = 100;
/// The most that `rewriteMaxPasses` and `M{n}` may ask for.
const PASSES_MAX: u32 = 10_000;
/// Longest name that rules may make, in bytes: a rule that doubles its name must not fill the memory.
const NAME_MAX: usize = 16_384;
/// Most rules of one configuration.
const RULES_MAX: usize = 10_000;

/// The commands so far. Without `rewriteEngine` on, and without `authz-regexp`, rules have no effect.
#[derive(Debug, Clone)]
pub struct Rewrite {
    engine: Option<bool>,
    /// Whether `rewriteContext authid` was there.
    context: bool,
    passes: u32,
    passes_per_rule: u32,
    rules: Vec<Rule>,
}

impl Default for Rewrite {
    fn default() -> Self {
        Self { engine: None, context: false, passes: PASSES, passes_per_rule: PASSES, rules: Vec::new() }
    }
}

impl Rewrite {
    /// Takes one command: its name, with or without `authid-`, and its arguments.
    ///
    /// # Errors
    /// Names the word that is wrong, or not supported.
    pub fn command(&mut self, words: &[&str]) -> Result<(), RewriteError> {
        let Some((&keyword, arguments)) = words.split_first() else {
            return Err(RewriteError::Missing("a command"));
        };
        let name = keyword.to_ascii_lowercase();
        match name.strip_prefix("authid-").unwrap_or(&name) {
            "rewriteengine" => self.switch(arguments),
            "rewritecontext" => self.enter(arguments),
            "rewriterule" => self.add(arguments),
            "rewritemaxpasses" => self.bound(arguments),
            "rewritemap" | "rewriteparam" => Err(RewriteError::Unsupported(0, keyword.to_owned())),
            _ => Err(RewriteError::Command(keyword.to_owned())),
        }
    }

    /// Whether there are rules that are applied without any `authz-regexp`.
    pub fn is_in_force(&self) -> bool {
        self.engine == Some(true) && !self.rules.is_empty()
    }

    /// What becomes of a name. None: it stays what it is, because no rule matches or one says so.
    ///
    /// `on_by_default`: OpenLDAP's engine is on once there is an `authz-regexp`.
    pub fn apply(&self, name: &str, on_by_default: bool) -> Option<String> {
        if !self.engine.unwrap_or(on_by_default) {
            return None;
        }
        let (mut current, mut changed) = (name.to_owned(), false);
        let (mut at, mut passes) = (0_i64, 0_u32);
        while let Some(rule) = usize::try_from(at).ok().and_then(|at| self.rules.get(at)) {
            if passes >= self.passes {
                // The limit counts as success, but for a rule that just did not match.
                break;
            }
            let rewritten = rule.rewrite(&current, &mut passes, self.passes).ok()?;
            let last = usize::try_from(at + 1) == Ok(self.rules.len());
            changed = rewritten.is_some() || last;
            if let Some(rewritten) = rewritten {
                current = rewritten;
                for action in &rule.actions {
                    match *action {
                        Action::Stop => return Some(current),
                        Action::Leave => return None,
                        Action::Go(distance) => at = self.step(at, distance)?,
                    }
                }
            }
            at += 1;
            passes = passes.saturating_add(1);
        }
        changed.then_some(current)
    }

    /// One before the rule that a jump leads to, as the walk goes on from there. None: outside of the rules.
    fn step(&self, at: i64, distance: i32) -> Option<i64> {
        let to = at.checked_add(i64::from(distance))?.checked_sub(1)?;
        let end = i64::try_from(self.rules.len()).ok()?;
        (-1..end).contains(&to).then_some(to)
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
        let [name] = exactly(arguments, ["a context"])?;
        if !name.eq_ignore_ascii_case("authid") {
            return Err(RewriteError::Context(name.to_owned()));
        }
        if !self.rules.is_empty() && !self.context {
            return Err(RewriteError::ContextAfterRules);
        }
        self.context = true;
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
        if self.rules.len() >= RULES_MAX {
            return Err(RewriteError::TooMany);
        }
        let flags = Flags::parse(flags, self.passes_per_rule)?;
        let parts = parse_substitution(substitution)?;
        let pattern = if flags.basic { basic::to_extended(pattern) } else { (*pattern).to_owned() };
        let regex =
            crate::config::values::posix_regex(&pattern, !flags.honor_case).map_err(RewriteError::Pattern)?;
        self.rules.push(Rule { regex, parts, passes: flags.passes, actions: flags.actions });
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

#[derive(Debug, Clone)]
struct Rule {
    regex: Regex,
    parts: Vec<Part>,
    /// How often the rule is applied to its own result.
    passes: u32,
    /// In the order of the flags.
    actions: Vec<Action>,
}

/// A part of a substitution.
#[derive(Debug, Clone)]
enum Part {
    Text(String),
    /// `$0` to `$9`; empty if it took no part in the match.
    Group(usize),
}

/// What follows a match.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// `@`, `U{0}`: no more rules.
    Stop,
    /// `#`, `U{n}`: the name stays what it was.
    Leave,
    /// `G{n}`
    Go(i32),
}

/// The name grew beyond all measure.
struct TooLong;

impl Rule {
    /// The result of a match, or of several where the rule applies to its own result; None without one.
    fn rewrite(&self, name: &str, passes: &mut u32, passes_max: u32) -> Result<Option<String>, TooLong> {
        let mut result: Option<String> = None;
        for _ in 0..self.passes {
            *passes = passes.saturating_add(1);
            let subject = result.as_deref().unwrap_or(name);
            let Some(found) = self.regex.captures(subject) else { break };
            let mut next = String::new();
            for part in &self.parts {
                next.push_str(match part {
                    Part::Text(text) => text,
                    Part::Group(group) => found.get(*group).map_or("", |part| part.as_str()),
                });
                if next.len() > NAME_MAX {
                    return Err(TooLong);
                }
            }
            result = Some(next);
            if *passes >= passes_max {
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
                    flags.actions.push(Action::Leave);
                }
                // Only maps can fail while a rule is applied.
                'I' => {}
                'G' => flags.actions.push(Action::Go(number()?)),
                'U' => flags.actions.push(match number()? {
                    0 => Action::Stop,
                    1.. => Action::Leave,
                    _ => return Err(fault()),
                }),
                'M' => {
                    let asked = u32::try_from(number()?.max(1)).map_err(|_| fault())?;
                    flags.passes = Some(asked).filter(|asked| *asked <= PASSES_MAX).ok_or_else(fault)?;
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

fn parse_substitution(text: &str) -> Result<Vec<Part>, RewriteError> {
    let fault = || RewriteError::Substitution(text.to_owned());
    let (mut parts, mut literal) = (Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if !matches!(c, '$' | '%') {
            literal.push(c);
            continue;
        }
        match rest.next() {
            Some(doubled @ ('$' | '%')) => literal.push(doubled),
            Some('{') => return Err(RewriteError::Unsupported(2, text.to_owned())),
            Some(digit) => {
                let group =
                    digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).ok_or_else(fault)?;
                if rest.peek() == Some(&'{') {
                    return Err(RewriteError::Unsupported(2, text.to_owned()));
                }
                parts.push(Part::Text(std::mem::take(&mut literal)));
                parts.push(Part::Group(group));
            }
            None => return Err(fault()),
        }
    }
    parts.push(Part::Text(literal));
    Ok(parts)
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
    /// A map, a parameter or a variable.
    Unsupported(usize, String),
    TooMany,
}

impl RewriteError {
    /// The word that is at fault.
    pub const fn word(&self) -> usize {
        match self {
            Self::Command(_) | Self::Missing(_) | Self::ContextAfterRules | Self::TooMany => 0,
            Self::State(_) | Self::Context(_) | Self::Pattern(_) => 1,
            Self::Substitution(_) => 2,
            Self::Flag(_) => 3,
            Self::Extra(word, _) | Self::Passes(word, _) | Self::Unsupported(word, _) => *word,
        }
    }

    /// What to write instead.
    pub const fn help(&self) -> &'static str {
        match self {
            Self::Command(_) | Self::Missing(_) | Self::Extra(..) => {
                "rewriteEngine on|off, rewriteContext authid, rewriteRule PATTERN SUBSTITUTION [FLAGS], \
                 rewriteMaxPasses TOTAL [PER_RULE]"
            }
            Self::State(_) => "say on or off",
            Self::Context(_) => "names are rewritten in the context authid alone",
            Self::ContextAfterRules => "put it before the first rule",
            Self::Passes(..) => "a number from 1 to 10000",
            Self::Pattern(_) => "a POSIX extended regular expression; a basic one with the flag R",
            Self::Substitution(_) => "$ or % followed by a digit; twice for itself",
            Self::Flag(_) => "flags are : @ # C R I G{n} U{n} M{n}",
            Self::Unsupported(..) => "find entries with an LDAP URL as substitution, or by authz-regexp",
            Self::TooMany => "say with one pattern what many say",
        }
    }
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(word) => write!(f, "`{word}` is no command of authid-rewrite"),
            Self::Missing(what) => write!(f, "needs {what}"),
            Self::Extra(_, word) => write!(f, "`{word}` is one word too many"),
            Self::State(word) => write!(f, "`{word}` is neither on nor off"),
            Self::Context(word) => write!(f, "`{word}` is no context of authentication identities"),
            Self::ContextAfterRules => f.write_str("rules before their context"),
            Self::Passes(_, word) => write!(f, "`{word}` is no number of passes"),
            Self::Pattern(why) => f.write_str(why),
            Self::Substitution(text) => write!(f, "`{text}`: a lone $ or %"),
            Self::Flag(text) => write!(f, "`{text}` are no flags"),
            Self::Unsupported(_, word) => {
                write!(f, "`{word}`: maps, parameters and variables are not supported")
            }
            Self::TooMany => write!(f, "more than {RULES_MAX} rules"),
        }
    }
}

impl std::error::Error for RewriteError {}

#[cfg(test)]
mod tests;
