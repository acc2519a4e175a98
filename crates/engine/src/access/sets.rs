//! Sets: `this/manager & user`, `[cn=admins,dc=x]/member* | user/-1`, and what they hold (slapd.access(5), "set").
//!
//! Values are compared as the normal form of their attribute's equality rule; what stands in brackets is compared as it
//! is written. `&`, `|` and `+` have one precedence and are taken from the left.

use larix_schema::{AttributeDescription, Schema};

/// Parentheses within one another.
pub(super) const SET_DEPTH_MAX: usize = 32;
/// Values of one set, also on the way to the result; beyond it the check is denied.
pub(super) const SET_VALUES_MAX: usize = 65_536;
/// Entries and searches that one set may look at; beyond it the check is denied.
pub(super) const SET_LOOKUPS_MAX: u32 = 10_000;

/// A set as parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Set {
    /// `this`: the entry's DN.
    This,
    /// `user`: the requester's DN; with nobody there, the whole set does not match.
    User,
    /// `[...]`
    Literal(String),
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
        let mut parser = Parser { schema, text, at: 0 };
        let set = parser.joined(0)?;
        match parser.peek() {
            None => Ok(set),
            Some(c) => Err(parser.fault(format!("unexpected `{}`", char::from(c)))),
        }
    }

    /// Whether the set depends on the entry under protection.
    pub(super) fn mentions_entry(&self) -> bool {
        self.any(&|set| matches!(set, Self::This))
    }

    pub(super) fn mentions_requester(&self) -> bool {
        self.any(&|set| matches!(set, Self::User))
    }

    fn any(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        test(self)
            || match self {
                Self::This | Self::User | Self::Literal(_) => false,
                Self::Ancestor(of, _) | Self::Ancestors(of) | Self::Values { of, .. } => of.any(test),
                Self::Join(_, left, right) => left.any(test) || right.any(test),
            }
    }
}

struct Parser<'a> {
    schema: &'a Schema,
    text: &'a str,
    at: usize,
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
                Ok(Set::Literal(literal))
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
    use crate::access::fixture;

    fn shown(schema: &Schema, set: &Set) -> String {
        match set {
            Set::This => "this".to_owned(),
            Set::User => "user".to_owned(),
            Set::Literal(text) => format!("[{text}]"),
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
}
