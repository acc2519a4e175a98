//! Sets: `this/manager & user`, `[cn=admins,dc=x]/member* | user/-1`, and what they hold (slapd.access(5), "set").
//!
//! Values are compared as the normal form of their attribute's equality rule; what stands in brackets is compared as it
//! is written. `&`, `|` and `+` have one precedence and are taken from the left.

use larix_proto::{filter, url};
use larix_schema::{AttributeDescription, Schema};

use super::expand::{Captures, Template};

/// Parentheses within one another.
pub(super) const SET_DEPTH_MAX: usize = 32;
/// Values of one set, also on the way to the result; beyond it the check is denied.
pub(super) const SET_VALUES_MAX: usize = 65_536;
/// Bytes of the values of one set, also on the way to the result; beyond it the check is denied.
pub(super) const SET_BYTES_MAX: usize = 16 << 20;
/// Entries and searches that one set may look at; beyond it the check is denied.
pub(super) const SET_LOOKUPS_MAX: u32 = 10_000;

/// A set as parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    /// `this`: the entry's DN.
    This,
    /// `user`: the requester's DN; without a requester, the whole set does not match.
    User,
    /// `[...]`
    Literal(String),
    /// `[...$1...]` of a set with `expand`, until [`filled`](Set::filled). It holds nothing before.
    Template(Template),
    /// `/-1`: the n-th ancestors.
    Ancestor(Box<Self>, u32),
    /// `/-*`: the DNs themselves and all their ancestors.
    Ancestors(Box<Self>),
    /// `/attribute`, `->attribute`; with `*` what is found is looked up in turn.
    Values {
        of: Box<Self>,
        attribute: AttributeDescription,
        closure: bool,
    },
    Join(Join, Box<Self>, Box<Self>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// `|`
    Union,
    /// `&`
    Intersection,
    /// `+`: each of the left with each of the right behind it.
    Concatenation,
}

/// What is wrong with a set. OpenLDAP finds out when a request comes, and such a set never matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetFault {
    /// In bytes from the start of the set.
    pub(super) at: usize,
    pub(super) why: String,
}

impl Set {
    pub(super) fn parse(schema: &Schema, text: &str) -> Result<Self, SetFault> {
        Self::parse_with(schema, text, false)
    }

    /// A set with `expand`: `$1` and its kin stand in brackets only, so that no entry's name can become a part of the set itself.
    pub(super) fn parse_expanding(schema: &Schema, text: &str) -> Result<Self, SetFault> {
        Self::parse_with(schema, text, true)
    }

    fn parse_with(schema: &Schema, text: &str, expands: bool) -> Result<Self, SetFault> {
        let mut parser = Parser { schema, text, at: 0, expands };
        let set = parser.joined(0)?;
        match parser.peek() {
            None => Ok(set),
            Some(c) => Err(parser.fault(format!("unexpected `{}`", char::from(c)))),
        }
    }

    /// The set with what a rule's `<what>` captured; `None` if it refers to a submatch there is not.
    pub(super) fn filled(&self, captures: &Captures<'_>) -> Option<Self> {
        let filled = |of: &Self| of.filled(captures).map(Box::new);
        Some(match self {
            Self::Template(template) => Self::Literal(template.fill(captures, append_captured)?),
            Self::This | Self::User | Self::Literal(_) => self.clone(),
            Self::Ancestor(of, level) => Self::Ancestor(filled(of)?, *level),
            Self::Ancestors(of) => Self::Ancestors(filled(of)?),
            Self::Values { of, attribute, closure } => {
                Self::Values { of: filled(of)?, attribute: attribute.clone(), closure: *closure }
            }
            Self::Join(join, left, right) => Self::Join(*join, filled(left)?, filled(right)?),
        })
    }

    /// Whether it refers to what a rule's `<what>` captures of a value.
    pub(super) fn refers_to_value(&self) -> bool {
        self.any(&|set| matches!(set, Self::Template(template) if template.refers_to_value()))
    }

    /// Whether the set depends on the entry under protection.
    pub(super) fn mentions_entry(&self) -> bool {
        self.any(&|set| matches!(set, Self::This))
    }

    pub(super) fn mentions_requester(&self) -> bool {
        self.any(&|set| matches!(set, Self::User))
    }

    /// Whether values of this attribute are asked for.
    pub(super) fn mentions(&self, schema: &Schema, description: &AttributeDescription) -> bool {
        self.any(&|set| match set {
            Self::Values { attribute, .. } => description.is_subdescription_of(schema, attribute),
            _ => false,
        })
    }

    fn any(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        test(self)
            || match self {
                Self::This | Self::User | Self::Literal(_) | Self::Template(_) => false,
                Self::Ancestor(of, _) | Self::Ancestors(of) | Self::Values { of, .. } => of.any(test),
                Self::Join(_, left, right) => left.any(test) || right.any(test),
            }
    }
}

/// Puts captured text into a literal. In a URL it is no part of the URL's form, nor of its filter's.
fn append_captured(literal: &mut String, captured: &str) {
    if !literal.starts_with("ldap:///") {
        literal.push_str(captured);
        return;
    }
    // RFC 4516 section 2: the filter comes behind the third `?`.
    let is_filter = literal.matches('?').count() >= 3;
    let value = if is_filter { filter::escaped(captured) } else { captured.to_owned() };
    url::percent_encode(&value, literal);
}

struct Parser<'a> {
    schema: &'a Schema,
    text: &'a str,
    at: usize,
    expands: bool,
}

impl<'a> Parser<'a> {
    /// Terms with operators between them.
    fn joined(&mut self, depth: usize) -> Result<Set, SetFault> {
        let mut set = self.chain(depth)?;
        loop {
            let join = match self.peek() {
                Some(b'|') => Join::Union,
                Some(b'&') => Join::Intersection,
                Some(b'+') => Join::Concatenation,
                _ => return Ok(set),
            };
            self.at += 1;
            set = Set::Join(join, Box::new(set), Box::new(self.chain(depth)?));
        }
    }

    /// A term and the steps from it.
    fn chain(&mut self, depth: usize) -> Result<Set, SetFault> {
        let mut set = self.term(depth)?;
        loop {
            match self.peek() {
                Some(b'/') => self.at += 1,
                Some(b'-') if self.rest().starts_with("->") => self.at += 2,
                _ => return Ok(set),
            }
            set = self.step(set)?;
        }
    }

    fn term(&mut self, depth: usize) -> Result<Set, SetFault> {
        match self.peek() {
            Some(b'(') if depth >= SET_DEPTH_MAX => {
                Err(self.fault(format!("more than {SET_DEPTH_MAX} parentheses within one another")))
            }
            Some(b'(') => {
                self.at += 1;
                let set = self.joined(depth + 1)?;
                if self.peek() != Some(b')') {
                    return Err(self.fault("a parenthesis is not closed".to_owned()));
                }
                self.at += 1;
                Ok(set)
            }
            Some(b'[') => {
                let inside = self.rest().get(1..).unwrap_or_default();
                let Some((literal, _)) = inside.split_once(']') else {
                    return Err(self.fault("a bracket is not closed".to_owned()));
                };
                let literal = literal.to_owned();
                self.at += literal.len() + 2;
                let template = self.expands.then(|| Template::parse(&literal));
                Ok(template.map_or(Set::Literal(literal), Set::Template))
            }
            _ => match self.name() {
                "this" => Ok(Set::This),
                "user" => Ok(Set::User),
                "" => Err(self.fault("expected `this`, `user`, `[...]` or `(`".to_owned())),
                other => {
                    let why = format!("`{other}` is neither `this` nor `user`; attributes stand after `/`");
                    self.at -= other.len();
                    Err(self.fault(why))
                }
            },
        }
    }

    /// What comes after `/` or `->`.
    fn step(&mut self, of: Set) -> Result<Set, SetFault> {
        let of = Box::new(of);
        if self.peek() == Some(b'-') {
            self.at += 1;
            if self.rest().starts_with('*') {
                self.at += 1;
                return Ok(Set::Ancestors(of));
            }
            let rest = self.rest();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let level = rest.get(..digits).and_then(|digits| digits.parse().ok());
            let level = level.ok_or_else(|| self.fault("`/-` needs a number or `*`".to_owned()))?;
            self.at += digits;
            return Ok(Set::Ancestor(of, level));
        }
        let start = self.at;
        let name = self.name();
        let described = self.schema.describe(name);
        let attribute =
            described.map_err(|error| SetFault { at: start, why: format!("attribute `{name}`: {error}") })?;
        let closure = self.rest().starts_with('*');
        self.at += usize::from(closure);
        Ok(Set::Values { of, attribute, closure })
    }

    /// Takes a name; a hyphen belongs to it unless it begins `->`.
    fn name(&mut self) -> &'a str {
        let _ = self.peek();
        let bytes = self.text.as_bytes();
        let is_part = |at: usize| {
            bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b';'))
        };
        let start = self.at;
        while is_part(self.at) && (self.at > start || bytes.get(start).is_some_and(u8::is_ascii_alphanumeric))
        {
            if bytes.get(self.at) == Some(&b'-') && !is_part(self.at + 1) {
                break;
            }
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fault(&self, why: String) -> SetFault {
        SetFault { at: self.at, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn shown(schema: &Schema, set: &Set) -> String {
        match set {
            Set::This => "this".to_owned(),
            Set::User => "user".to_owned(),
            Set::Literal(text) => format!("[{text}]"),
            Set::Template(template) => format!("[{template:?}]"),
            Set::Ancestor(of, level) => format!("{}/-{level}", shown(schema, of)),
            Set::Ancestors(of) => format!("{}/-*", shown(schema, of)),
            Set::Values { of, attribute, closure } => {
                let star = if *closure { "*" } else { "" };
                format!("{}/{}{star}", shown(schema, of), attribute.to_text(schema))
            }
            Set::Join(join, left, right) => {
                let sign = match join {
                    Join::Union => '|',
                    Join::Intersection => '&',
                    Join::Concatenation => '+',
                };
                format!("({}{sign}{})", shown(schema, left), shown(schema, right))
            }
        }
    }

    #[test]
    fn sets_parse() {
        let schema = fixture::schema();
        let check = |text: &str, expected: &str| {
            let set = Set::parse(&schema, text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
            assert_eq!(shown(&schema, &set), expected, "{text}");
        };
        check("this", "this");
        check(" this / manager & user ", "(this/manager&user)");
        check("this->manager->cn", "this/manager/cn");
        check("user/-1 | this/-* & [x y]", "((user/-1|this/-*)&[x y])");
        check("[cn=a,dc=b]/member* & user", "([cn=a,dc=b]/member*&user)");
        check("this/cn + ([ ] + user/sn)", "(this/cn+([ ]+user/sn))");
        check("[ldap:///dc=x??sub?(cn=a)]/entryDN & user", "([ldap:///dc=x??sub?(cn=a)]/entryDN&user)");
        check("(this | user)/cn;lang-en", "(this|user)/cn;lang-en");
        check("this/member*/cn", "this/member*/cn");
        check("[]", "[]");
    }

    #[test]
    fn faults_say_where() {
        let schema = fixture::schema();
        let deep = "(".repeat(SET_DEPTH_MAX + 1);
        for (text, at, why) in [
            ("", 0, "expected `this`, `user`, `[...]` or `(`"),
            ("cn", 0, "`cn` is neither `this` nor `user`; attributes stand after `/`"),
            ("this/nosuch", 5, "attribute `nosuch`: attribute type undefined"),
            ("this/", 5, "attribute ``: empty AttributeDescription"),
            ("this user", 5, "unexpected `u`"),
            ("(this", 5, "a parenthesis is not closed"),
            ("this)", 4, "unexpected `)`"),
            ("[this", 0, "a bracket is not closed"),
            ("this/-x", 6, "`/-` needs a number or `*`"),
            ("this & ", 7, "expected `this`, `user`, `[...]` or `(`"),
            (&deep, SET_DEPTH_MAX, "more than 32 parentheses within one another"),
        ] {
            let fault = Set::parse(&schema, text).expect_err(text);
            assert_eq!((fault.at, fault.why.as_str()), (at, why), "{text}");
        }
    }

    #[test]
    fn what_is_captured_fills_a_literal_and_no_more() {
        let schema = fixture::schema();
        let filled = |text: &str, captured: &str| {
            let set = Set::parse_expanding(&schema, text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
            let mut captures = Captures::default();
            captures.dn.extend([captured, captured]);
            set.filled(&captures).map(|set| shown(&schema, &set))
        };
        let check =
            |text, captured, expected: &str| assert_eq!(filled(text, captured).as_deref(), Some(expected));
        check("[cn=$1]/member & user", "a", "([cn=a]/member&user)");
        check("[cn=$1]/member & user", "x] | user | [y", "([cn=x] | user | [y]/member&user)");
        check("[ldap:///ou=$1??sub?(cn=$1)]", "a", "[ldap:///ou=a??sub?(cn=a)]");
        check(
            "[ldap:///ou=$1??sub?(cn=$1)]",
            "a??)(|(*\\%",
            "[ldap:///ou=a%3F%3F)(%7C(*%5C%25??sub?(cn=a%3F%3F%5C29%5C28%7C%5C28%5C2a%5C5c%25)]",
        );
        assert_eq!(filled("[cn=$7]", "a"), None);
        let fault = Set::parse_expanding(&schema, "this/$1").expect_err("no bracket");
        assert_eq!(fault.at, 5);
    }
}
