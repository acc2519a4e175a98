//! What a rule puts in the place of a match: text, parts of the match, variables, parameters, other contexts' results, and
//! what a search of the directory finds.

use larix_proto::FilterBuf;
use larix_proto::url::{LdapUrl, UrlScheme, percent_decode_text};
use regex::Captures;

use super::escape::Escapes;
use super::{Failed, NAME_MAX, Rewrite, RewriteError, Run};

/// The deepest nesting of substitutions within substitutions.
const NESTING_MAX: u32 = 16;

/// A substitution as it was read.
#[derive(Debug, Clone)]
pub(super) struct Substitution(Vec<Segment>);

#[derive(Debug, Clone)]
enum Segment {
    Text(String),
    /// `$0` to `$9`; empty if it took no part in the match.
    Group(usize),
    /// `${$name}`: of `rewriteParam`.
    Parameter(String),
    /// `${*name}`
    Variable(String),
    /// `${**name}`, of the client's session.
    SessionVariable(String),
    /// `${&name(...)}`, which leaves nothing behind, and `${&*name(...)}`, which leaves the value; with `&&` of the session.
    Assign {
        name: String,
        shown: bool,
        session: bool,
        value: Substitution,
    },
    /// `${>context(...)}`
    Context {
        context: usize,
        argument: Substitution,
    },
    /// `${map(...)}`
    Map {
        map: usize,
        searches: bool,
        argument: Substitution,
    },
}

impl Substitution {
    /// # Errors
    /// A lone `$`, or something that is not known or not supported.
    pub(super) fn parse(text: &str, known: &Rewrite) -> Result<Self, RewriteError> {
        Self::nested(text, known, 0)
    }

    fn nested(text: &str, known: &Rewrite, depth: u32) -> Result<Self, RewriteError> {
        let fault = || RewriteError::Substitution(text.to_owned());
        if depth > NESTING_MAX {
            return Err(fault());
        }
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['$', '%']) {
            literal.push_str(rest.get(..at).unwrap_or_default());
            rest = rest.get(at + 1..).unwrap_or_default();
            let next = rest.chars().next().ok_or_else(fault)?;
            let after = rest.get(next.len_utf8()..).unwrap_or_default();
            let part = match next {
                '$' | '%' => {
                    literal.push(next);
                    rest = after;
                    continue;
                }
                '{' => {
                    let (inside, behind) = enclosed(after).ok_or_else(fault)?;
                    rest = behind;
                    Segment::parse(inside, known, depth).map_err(|what| what.unwrap_or_else(fault))?
                }
                digit => {
                    let group = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                    let group = group.ok_or_else(fault)?;
                    if after.starts_with('{') {
                        return Err(RewriteError::Unsupported(2, text.to_owned()));
                    }
                    rest = after;
                    Segment::Group(group)
                }
            };
            parts.push(Segment::Text(std::mem::take(&mut literal)));
            parts.push(part);
        }
        literal.push_str(rest);
        parts.push(Segment::Text(literal));
        Ok(Self(parts))
    }

    /// Whether it has variables of the session.
    pub(super) fn uses_session(&self) -> bool {
        self.0.iter().any(|part| match part {
            Segment::Text(_) | Segment::Group(_) | Segment::Parameter(_) | Segment::Variable(_) => false,
            Segment::SessionVariable(_) => true,
            Segment::Assign { session, value, .. } => *session || value.uses_session(),
            Segment::Context { argument, .. } | Segment::Map { argument, .. } => argument.uses_session(),
        })
    }

    /// Adds the contexts that it uses; whether it searches the directory.
    pub(super) fn uses(&self, contexts: &mut Vec<usize>) -> bool {
        self.0.iter().any(|part| match part {
            Segment::Context { context, argument } => {
                contexts.push(*context);
                argument.uses(contexts)
            }
            Segment::Assign { value, .. } => value.uses(contexts),
            Segment::Map { searches, argument, .. } => *searches || argument.uses(contexts),
            _ => false,
        })
    }

    /// The text that stands in the match's place.
    pub(super) fn fill(&self, run: &mut Run<'_>, found: &Captures<'_>) -> Result<String, Failed> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Segment::Text(literal) => text.push_str(literal),
                Segment::Group(group) => text.push_str(found.get(*group).map_or("", |part| part.as_str())),
                other => text.push_str(&other.resolve(run, found)?),
            }
            if text.len() > NAME_MAX {
                return Err(Failed);
            }
        }
        Ok(text)
    }
}

impl Segment {
    /// What stands in the braces. No error told: the substitution as a whole is malformed.
    fn parse(inside: &str, known: &Rewrite, depth: u32) -> Result<Self, Option<RewriteError>> {
        let unsupported = || Some(RewriteError::Unsupported(2, inside.to_owned()));
        if let Some(name) = inside.strip_prefix('$') {
            return Ok(Self::Parameter(legal(name).ok_or(None)?));
        }
        if let Some(name) = inside.strip_prefix('*') {
            return match name.strip_prefix('*') {
                // There may be no session, as where an identity is mapped before there is one.
                Some(_) if !known.sessions => Err(unsupported()),
                Some(name) => Ok(Self::SessionVariable(legal(name).ok_or(None)?)),
                None => Ok(Self::Variable(legal(name).ok_or(None)?)),
            };
        }
        let (head, argument) = inside.split_once('(').ok_or(None)?;
        let (argument, _) = argument.rsplit_once(')').ok_or(None)?;
        let argument = Substitution::nested(argument, known, depth + 1).map_err(Some)?;
        if let Some(name) = head.strip_prefix('&') {
            let (session, name) = name.strip_prefix('&').map_or((false, name), |name| (true, name));
            if session && !known.sessions {
                return Err(unsupported());
            }
            let (shown, name) = name.strip_prefix('*').map_or((false, name), |name| (true, name));
            return Ok(Self::Assign { name: legal(name).ok_or(None)?, shown, session, value: argument });
        }
        if let Some(name) = head.strip_prefix('>') {
            let name = legal(name).ok_or(None)?;
            let context = known.context_called(&name).ok_or(Some(RewriteError::Unknown(name)))?;
            return Ok(Self::Context { context, argument });
        }
        if head.starts_with('|') {
            return Err(unsupported());
        }
        let name = legal(head).ok_or(None)?;
        let map = known.map_called(&name).ok_or(Some(RewriteError::Unknown(name)))?;
        let searches = known.map(map).is_none_or(Map::searches);
        Ok(Self::Map { map, searches, argument })
    }

    fn resolve(&self, run: &mut Run<'_>, found: &Captures<'_>) -> Result<String, Failed> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Group(group) => Ok(found.get(*group).map_or("", |part| part.as_str()).to_owned()),
            Self::Parameter(name) => run.rewrite.parameter(name).map(str::to_owned).ok_or(Failed),
            Self::Variable(name) => run.variables.get(name).cloned().ok_or(Failed),
            Self::SessionVariable(name) => run.session.and_then(|session| session.get(name)).ok_or(Failed),
            Self::Assign { name, shown, session, value } => {
                let value = value.fill(run, found)?;
                if *session {
                    let is_kept = run.session.is_some_and(|session| session.set(name, &value));
                    is_kept.then_some(()).ok_or(Failed)?;
                } else {
                    run.variables.insert(name.clone(), value.clone());
                }
                Ok(if *shown { value } else { String::new() })
            }
            Self::Context { context, argument } => {
                let argument = argument.fill(run, found)?;
                // Whatever else a context may end with, for the rule that uses it it has failed.
                run.context(*context, &argument).map(Option::unwrap_or_default).map_err(|_| Failed)
            }
            Self::Map { map, argument, .. } => {
                let argument = argument.fill(run, found)?;
                match run.rewrite.map(*map).ok_or(Failed)? {
                    Map::Search(search) => search.look_up(&argument, run.searches),
                    Map::Escapes(escapes) => escapes.apply(&argument),
                }
            }
        }
    }
}

/// Up to the brace that closes what is open, and what is behind it.
fn enclosed(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let (mut at, mut open) = (0, 1);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'$' | b'%' => {
                // Old maps have a digit before the brace. Behind a digit without a brace another `$` may stand.
                let digit = usize::from(bytes.get(at + 1).is_some_and(u8::is_ascii_digit));
                let opens = bytes.get(at + 1 + digit) == Some(&b'{');
                open += usize::from(opens);
                at += if opens { 1 + digit } else { 1 };
            }
            b'}' => {
                open -= 1;
                if open == 0 {
                    return Some((text.get(..at)?, text.get(at + 1..)?));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// A letter, then letters and digits; names are the same in any case.
pub(super) fn legal(name: &str) -> Option<String> {
    let ok = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    ok.then(|| name.to_ascii_lowercase())
}

/// Finds what an LDAP URL of this server leads to: the DN of the one entry, or an attribute's first value there.
pub type Searches<'a> = &'a dyn Fn(&LdapUrl, Option<&str>) -> Option<String>;

/// What `rewriteMap` names.
#[derive(Debug, Clone)]
pub(super) enum Map {
    Search(Search),
    Escapes(Escapes),
}

impl Map {
    const fn searches(&self) -> bool {
        matches!(self, Self::Search(_))
    }
}

/// `rewriteMap slapd NAME URL`: its argument stands behind the URL's filter.
#[derive(Debug, Clone)]
pub(super) struct Search {
    url: LdapUrl,
    filter: String,
    /// None: the entry's DN.
    attribute: Option<String>,
}

impl Search {
    /// None: not a URL of this server with at most one attribute.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = match text.get(..4) {
            Some(prefix) if prefix.eq_ignore_ascii_case("uri=") => text.get(4..)?,
            _ => text,
        };
        // The filter need not be whole.
        let mut parts = text.splitn(4, '?');
        let whole: Vec<&str> = parts.by_ref().take(3).collect();
        let filter = parts.next().unwrap_or_default();
        let url = LdapUrl::parse(&whole.join("?")).ok()?;
        let local = url.scheme == UrlScheme::Ldap && url.host.is_empty() && url.extensions.is_empty();
        if !local || url.attributes.len() > 1 || filter.contains('?') {
            return None;
        }
        let is_dn = |name: &&String| !["dn", "entrydn"].contains(&name.to_ascii_lowercase().as_str());
        let attribute = url.attributes.first().filter(is_dn).cloned();
        Some(Self {
            filter: percent_decode_text(filter)?,
            attribute,
            url: LdapUrl { attributes: Vec::new(), ..url },
        })
    }

    fn look_up(&self, argument: &str, searches: Searches<'_>) -> Result<String, Failed> {
        let filter = FilterBuf::parse(&format!("{}{argument}", self.filter)).map_err(|_| Failed)?;
        let url = LdapUrl { filter: Some(filter), ..self.url.clone() };
        searches(&url, self.attribute.as_deref()).ok_or(Failed)
    }
}
