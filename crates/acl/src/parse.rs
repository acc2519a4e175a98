//! Reading `access to ...` lines and olcAccess values. Conditions on the requester are in [`super::parse_who`].

use super::error::{AccessFault, AccessSyntaxError};
use super::parse_who::{self, Pieces};
use super::posix;
use super::privilege::Grant;
use super::rule::{
    AccessRule, AttributeSelector, ByClause, DnScope, FlowControl, Identity, OperationPattern, TargetDn,
    ValuePattern, ValueStyle, What,
};
use super::tokens::{self, Quoting, Word};

impl AccessRule {
    /// Reads a line of slapd.conf; `access` in front and `{n}` are optional.
    ///
    /// # Errors
    /// Names the column and the fault. DNs, filters and attribute names are checked when a policy is built.
    pub fn parse(line: &str) -> Result<Self, AccessSyntaxError> {
        Self::parse_from(line, Quoting::Configuration, true)
    }

    /// Reads a rule without `access` in front, under the given way of quoting; a value of olcAccess has that of LDIF.
    ///
    /// # Errors
    /// As [`Self::parse`], and where the keyword is there: slapd refuses it, too.
    pub fn parse_quoted(text: &str, quoting: Quoting) -> Result<Self, AccessSyntaxError> {
        Self::parse_from(text, quoting, false)
    }

    fn parse_from(text: &str, quoting: Quoting, may_have_keyword: bool) -> Result<Self, AccessSyntaxError> {
        let (index, start) = leading_index(text);
        let mut start = start;
        let body = text.get(start..).unwrap_or_default();
        if may_have_keyword && let Some(rest) = strip_keyword(body, "access") {
            start += body.len() - rest.len();
        }
        let body = text.get(start..).unwrap_or_default();
        let words = tokens::split(body, quoting, start + 1)?;
        let mut words = Words { words: words.into_iter().peekable(), end: text.len() + 1 };
        let (what, by) = rule(&mut words)?;
        Ok(Self { index, what, by, text: body.trim().to_owned() })
    }
}

/// The words not read yet.
struct Words {
    words: std::iter::Peekable<std::vec::IntoIter<Word>>,
    /// The column after the last byte, for faults about what is missing.
    end: usize,
}

impl Words {
    fn peek(&mut self) -> Option<&Word> {
        self.words.peek()
    }

    fn next(&mut self) -> Option<Word> {
        self.words.next()
    }

    fn next_is(&mut self, keyword: &str) -> bool {
        self.words.peek().is_some_and(|word| word.text.eq_ignore_ascii_case(keyword))
    }

    fn missing(&self, fault: AccessFault) -> AccessSyntaxError {
        AccessSyntaxError::at(self.end, fault)
    }
}

/// `{n}` and how many bytes it takes; anything else is left to the rule itself.
fn leading_index(text: &str) -> (Option<i32>, usize) {
    let trimmed = text.trim_start();
    let skipped = text.len() - trimmed.len();
    let Some((digits, rest)) = trimmed.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
        return (None, 0);
    };
    match digits.parse() {
        Ok(index) => (Some(index), skipped + trimmed.len() - rest.len()),
        Err(_) => (None, 0),
    }
}

/// `text` after `keyword` and white space.
fn strip_keyword<'t>(text: &'t str, keyword: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let (head, rest) = text.split_at_checked(keyword.len())?;
    (head.eq_ignore_ascii_case(keyword) && rest.starts_with(|c: char| c.is_ascii_whitespace()))
        .then_some(rest)
}

fn rule(words: &mut Words) -> Result<(What, Vec<ByClause>), AccessSyntaxError> {
    match words.next() {
        Some(word) if word.text.eq_ignore_ascii_case("to") => {}
        Some(word) => return Err(AccessSyntaxError::at(word.column, AccessFault::MissingTo)),
        None => return Err(words.missing(AccessFault::MissingTo)),
    }
    let what = what(words)?;
    let mut by = Vec::new();
    while let Some(word) = words.next() {
        if word.text.eq_ignore_ascii_case("by") {
            by.push(clause(words)?);
        } else if word.text.eq_ignore_ascii_case("to") {
            return Err(AccessSyntaxError::at(word.column, AccessFault::SecondTo));
        } else {
            return Err(AccessSyntaxError::at(word.column, AccessFault::UnexpectedWord(word.text)));
        }
    }
    if by.is_empty() {
        return Err(words.missing(AccessFault::MissingBy));
    }
    Ok((what, by))
}

fn what(words: &mut Words) -> Result<What, AccessSyntaxError> {
    let mut what = What::default();
    let mut dn_given = false;
    while !words.next_is("by") {
        let Some(word) = words.next() else { break };
        let fail = |fault| Err(AccessSyntaxError::at(word.column, fault));
        if word.text == "*" {
            if dn_given {
                return fail(AccessFault::DnTwice);
            }
            dn_given = true;
            continue;
        }
        let pieces = Pieces::of(&word.text);
        let Some(value) = pieces.value else {
            return fail(if word.text.eq_ignore_ascii_case("to") {
                AccessFault::SecondTo
            } else {
                AccessFault::MissingEquals(word.text.clone())
            });
        };
        let keyword = pieces.keyword.to_ascii_lowercase();
        match keyword.as_str() {
            "dn" => {
                if dn_given {
                    return fail(AccessFault::DnTwice);
                }
                dn_given = true;
                what.dn = target_dn(pieces.style, value)
                    .map_err(|fault| AccessSyntaxError::at(word.column, fault))?;
            }
            "filter" if what.filter.is_some() => return fail(AccessFault::FilterTwice),
            "filter" => what.filter = Some(value.to_owned()),
            "attr" | "attrs" => {
                for name in value.split(',').filter(|name| !name.is_empty()) {
                    what.attributes.push(selector(name));
                }
                if what.attributes.is_empty() {
                    return fail(AccessFault::EmptyAttribute);
                }
            }
            _ if keyword == "val" || keyword.starts_with("val/") => {
                if what.value.is_some() {
                    return fail(AccessFault::ValueTwice);
                }
                if what.attributes.len() != 1 {
                    return fail(AccessFault::ValueWithoutAttribute);
                }
                let matching_rule = pieces.keyword.get(4..).filter(|rule| !rule.is_empty());
                what.value = Some(
                    value_pattern(matching_rule, pieces.style, value)
                        .map_err(|fault| AccessSyntaxError::at(word.column, fault))?,
                );
            }
            "op" => what.operation = Some(OperationPattern::parse(value)),
            "control" => what.control = Some(value.to_owned()),
            _ => return fail(AccessFault::UnknownWhat(pieces.keyword.to_owned())),
        }
    }
    Ok(what)
}

fn target_dn(style: Option<&str>, value: &str) -> Result<TargetDn, AccessFault> {
    let style = style.unwrap_or_default();
    let scope = match style.to_ascii_lowercase().as_str() {
        "" | "base" | "baseobject" | "exact" => DnScope::Base,
        "one" | "onelevel" => DnScope::OneLevel,
        "sub" | "subtree" if value.is_empty() => return Ok(TargetDn::Any),
        "sub" | "subtree" => DnScope::Subtree,
        "children" => DnScope::Children,
        "regex" => return target_regex(value),
        _ => return Err(AccessFault::UnknownStyle(style.to_owned())),
    };
    if value == "*" {
        return Ok(TargetDn::Any);
    }
    Ok(TargetDn::Scoped { scope, dn: value.to_owned() })
}

fn target_regex(pattern: &str) -> Result<TargetDn, AccessFault> {
    if pattern.is_empty() {
        return Ok(TargetDn::Scoped { scope: DnScope::Base, dn: String::new() });
    }
    if parse_who::matches_everything(pattern) || pattern == "*" {
        return Ok(TargetDn::Any);
    }
    let pattern = posix::without_spaces_after_commas(pattern);
    match posix::compile(&pattern) {
        Ok(_) => Ok(TargetDn::Regex(pattern)),
        Err(why) => Err(AccessFault::BadRegex { pattern, why }),
    }
}

fn selector(name: &str) -> AttributeSelector {
    let rest = || name.get(1..).unwrap_or_default().to_owned();
    match name.as_bytes().first() {
        Some(b'@' | b'+') => AttributeSelector::Class(rest()),
        Some(b'!') => AttributeSelector::NotClass(rest()),
        Some(b'-') => AttributeSelector::Exactly(rest()),
        _ => AttributeSelector::Named(name.to_owned()),
    }
}

fn value_pattern(rule: Option<&str>, style: Option<&str>, value: &str) -> Result<ValuePattern, AccessFault> {
    let style = match style.unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "exact" | "base" | "baseobject" => ValueStyle::Exact,
        "regex" => match posix::compile(value) {
            Ok(_) => ValueStyle::Regex,
            Err(why) => return Err(AccessFault::BadRegex { pattern: value.to_owned(), why }),
        },
        "one" | "onelevel" => ValueStyle::Scope(DnScope::OneLevel),
        "sub" | "subtree" => ValueStyle::Scope(DnScope::Subtree),
        "children" => ValueStyle::Scope(DnScope::Children),
        other => return Err(AccessFault::UnknownStyle(other.to_owned())),
    };
    Ok(ValuePattern { matching_rule: rule.map(str::to_owned), style, text: value.to_owned() })
}

fn clause(words: &mut Words) -> Result<ByClause, AccessSyntaxError> {
    let mut who = Vec::new();
    while let Some(word) = words.peek() {
        let (column, text) = (word.column, word.text.clone());
        let parsed = parse_who::condition(&text).map_err(|fault| AccessSyntaxError::at(column, fault))?;
        let Some(condition) = parsed else { break };
        if let Some(keyword) = parse_who::repeated(&who, &condition) {
            return Err(AccessSyntaxError::at(column, keyword));
        }
        who.push(condition);
        words.next();
    }
    if who.is_empty() {
        return Err(match words.next() {
            Some(word) => AccessSyntaxError::at(word.column, AccessFault::UnknownWho(word.text)),
            None => words.missing(AccessFault::MissingWho),
        });
    }
    let (own_value, grant) = match words.peek() {
        Some(word) if !is_control(&word.text) && !word.text.eq_ignore_ascii_case("by") => {
            let parsed = access(&word.text);
            let column = word.column;
            let text = words.next().map(|word| word.text).unwrap_or_default();
            parsed.ok_or_else(|| AccessSyntaxError::at(column, AccessFault::UnknownAccess(text)))?
        }
        _ => (None, Grant::UNCHANGED),
    };
    let control = match words.peek().map(|word| word.text.to_ascii_lowercase()).as_deref() {
        Some("stop") => Some(FlowControl::Stop),
        Some("continue") => Some(FlowControl::Continue),
        Some("break") => Some(FlowControl::Break),
        _ => None,
    };
    if control.is_some() {
        words.next();
    }
    Ok(ByClause { who, own_value, grant, control: control.unwrap_or_default() })
}

fn is_control(word: &str) -> bool {
    ["stop", "continue", "break"].iter().any(|control| control.eq_ignore_ascii_case(word))
}

/// `[[real]self]{<level>|<privileges>}`
fn access(word: &str) -> Option<(Option<Identity>, Grant)> {
    if let Some(grant) = Grant::parse(word) {
        return Some((None, grant));
    }
    let lower = word.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("realself") {
        return Some((Some(Identity::Authentication), Grant::parse(rest)?));
    }
    Some((Some(Identity::Authorization), Grant::parse(lower.strip_prefix("self")?)?))
}
