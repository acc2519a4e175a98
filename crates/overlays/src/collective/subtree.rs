//! Which entries a subtree specification is about (RFC 3672 section 2.1 and appendix A).

use larix_schema::{NormalDn, ObjectClassId, Schema};

/// Refinements within refinements.
const DEPTH_MAX: usize = 16;

/// A subtree below an administrative point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subtree {
    base: NormalDn,
    /// With all below them.
    chopped_before: Vec<NormalDn>,
    /// All below them.
    chopped_after: Vec<NormalDn>,
    minimum: usize,
    maximum: Option<usize>,
    refinement: Option<Refinement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Refinement {
    /// `None`: a class that nobody knows, and no entry has.
    Item(Option<ObjectClassId>),
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
}

impl Subtree {
    /// The value of a subentry below this point.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(schema: &Schema, point: &NormalDn, text: &str) -> Result<Self, String> {
        let mut parser = Parser { schema, rest: text };
        let mut subtree = Self {
            base: point.clone(),
            chopped_before: Vec::new(),
            chopped_after: Vec::new(),
            minimum: 0,
            maximum: None,
            refinement: None,
        };
        let mut exclusions = Vec::new();
        parser.list(&mut |parser| {
            match parser.word() {
                "base" => subtree.base = below(schema, point, &parser.string()?)?,
                "minimum" => subtree.minimum = parser.number()?,
                "maximum" => subtree.maximum = Some(parser.number()?),
                "specificExclusions" => parser.list(&mut |parser| {
                    let after = match parser.word() {
                        "chopBefore" => false,
                        "chopAfter" => true,
                        other => return Err(format!("\"{other}\" is none of chopBefore, chopAfter")),
                    };
                    parser.expect(':')?;
                    exclusions.push((after, parser.string()?));
                    Ok(())
                })?,
                "specificationFilter" => subtree.refinement = Some(parser.refinement(0)?),
                other => return Err(format!("\"{other}\" is no part of a subtree specification")),
            }
            Ok(())
        })?;
        parser.end()?;
        for (after, name) in exclusions {
            let name = below(schema, &subtree.base, &name)?;
            let list = if after { &mut subtree.chopped_after } else { &mut subtree.chopped_before };
            list.push(name);
        }
        Ok(subtree)
    }

    /// The entry that all of it is at or below.
    pub(super) fn base(&self) -> &NormalDn {
        &self.base
    }

    /// Whether an entry of this name is in it, as far as names go.
    pub(super) fn has_name(&self, dn: &NormalDn) -> bool {
        if !dn.is_within(&self.base) {
            return false;
        }
        let levels = dn.depth().saturating_sub(self.base.depth());
        levels >= self.minimum
            && self.maximum.is_none_or(|maximum| levels <= maximum)
            && !self.chopped_before.iter().any(|chopped| dn.is_within(chopped))
            && !self.chopped_after.iter().any(|chopped| dn.is_descendant_of(chopped))
    }

    /// Whether an entry of these classes is in it.
    pub(super) fn has_classes(&self, schema: &Schema, classes: &[ObjectClassId]) -> bool {
        self.refinement.as_ref().is_none_or(|refinement| refinement.holds(schema, classes))
    }
}

impl Refinement {
    fn holds(&self, schema: &Schema, classes: &[ObjectClassId]) -> bool {
        match self {
            Self::Item(None) => false,
            Self::Item(Some(wanted)) => classes.iter().any(|class| schema.is_subclass(*class, *wanted)),
            Self::And(all) => all.iter().all(|one| one.holds(schema, classes)),
            Self::Or(any) => any.iter().any(|one| one.holds(schema, classes)),
            Self::Not(inner) => !inner.holds(schema, classes),
        }
    }
}

/// A local name below a base.
fn below(schema: &Schema, base: &NormalDn, local: &str) -> Result<NormalDn, String> {
    let text = match (local.trim(), base.as_str()) {
        ("", base) => base.to_owned(),
        (local, "") => local.to_owned(),
        (local, base) => format!("{local},{base}"),
    };
    schema.parse_dn(&text).map_err(|error| format!("\"{local}\": {error}"))
}

/// Generic string encoding rules (RFC 3641), as far as they come up here.
struct Parser<'t> {
    schema: &'t Schema,
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.spaces();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.takes(wanted) {
            Ok(())
        } else {
            Err(format!("'{wanted}' is missing before \"{}\"", self.rest))
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.spaces();
        if self.rest.is_empty() { Ok(()) } else { Err(format!("\"{}\" behind the end", self.rest)) }
    }

    /// Letters, digits, dots and hyphens; maybe none.
    fn word(&mut self) -> &'t str {
        self.spaces();
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ';');
        let length = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        word
    }

    fn number(&mut self) -> Result<usize, String> {
        let word = self.word();
        word.parse().map_err(|_| format!("\"{word}\" is no number"))
    }

    /// A text between quotes, of which one within is doubled.
    fn string(&mut self) -> Result<String, String> {
        self.expect('"')?;
        let mut text = String::new();
        loop {
            let Some((part, rest)) = self.rest.split_once('"') else {
                return Err("a closing quote is missing".to_owned());
            };
            text.push_str(part);
            self.rest = rest;
            match rest.strip_prefix('"') {
                Some(rest) => {
                    text.push('"');
                    self.rest = rest;
                }
                None => return Ok(text),
            }
        }
    }

    /// What is between braces, with commas between.
    fn list(&mut self, each: &mut dyn FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.expect('{')?;
        if self.takes('}') {
            return Ok(());
        }
        loop {
            each(self)?;
            if self.takes('}') {
                return Ok(());
            }
            self.expect(',')?;
        }
    }

    fn refinement(&mut self, depth: usize) -> Result<Refinement, String> {
        if depth >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} refinements within each other"));
        }
        let kind = self.word();
        self.expect(':')?;
        let mut inner = Vec::new();
        match kind {
            "item" => {
                let name = self.word();
                Ok(Refinement::Item(self.schema.object_class_id(name)))
            }
            "not" => Ok(Refinement::Not(Box::new(self.refinement(depth + 1)?))),
            "and" | "or" => {
                self.list(&mut |parser| {
                    inner.push(parser.refinement(depth + 1)?);
                    Ok(())
                })?;
                Ok(if kind == "and" { Refinement::And(inner) } else { Refinement::Or(inner) })
            }
            other => Err(format!("\"{other}\" is none of item, and, or, not")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::schema;

    #[test]
    fn names_are_within_a_subtree_or_not() {
        let schema = schema("");
        let point = schema.parse_dn("dc=a").unwrap();
        for (text, within, beside) in [
            ("{}", &["dc=a", "ou=b,dc=a", "ou=c,ou=b,dc=a"][..], &["dc=b", "dc=aa"][..]),
            ("{ base \"ou=b\" }", &["ou=b,dc=a", "ou=c,ou=b,dc=a"], &["dc=a", "ou=c,dc=a"]),
            ("{ minimum 1, maximum 1 }", &["ou=b,dc=a"], &["dc=a", "ou=c,ou=b,dc=a"]),
            (
                "{ specificExclusions { chopBefore:\"ou=b\", chopAfter:\"ou=c\" } }",
                &["dc=a", "ou=c,dc=a"],
                &["ou=b,dc=a", "ou=x,ou=b,dc=a", "ou=x,ou=c,dc=a"],
            ),
            (
                "{ base \"ou=b\", specificExclusions { chopBefore: \"ou=c\" } }",
                &["ou=b,dc=a"],
                &["ou=c,ou=b,dc=a"],
            ),
        ] {
            let subtree =
                Subtree::parse(&schema, &point, text).unwrap_or_else(|error| panic!("{text}: {error}"));
            for (names, expected) in [(within, true), (beside, false)] {
                for name in names {
                    assert_eq!(subtree.has_name(&schema.parse_dn(name).unwrap()), expected, "{text} {name}");
                }
            }
        }
    }

    #[test]
    fn classes_are_refined() {
        let schema = schema("");
        let point = schema.parse_dn("dc=a").unwrap();
        let person = [schema.object_class_id("inetOrgPerson").unwrap()];
        for (text, expected) in [
            ("item:person", true),
            ("item:2.5.6.6", true),
            ("item:device", false),
            ("item:nothing", false),
            ("not:item:device", true),
            ("and:{ item:person, not:item:device }", true),
            ("or:{item:device,item:person}", true),
            ("or:{}", false),
        ] {
            let text = format!("{{ specificationFilter {text} }}");
            let subtree =
                Subtree::parse(&schema, &point, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(subtree.has_classes(&schema, &person), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        let schema = schema("");
        let point = schema.parse_dn("dc=a").unwrap();
        let deep = format!("{{ specificationFilter {}item:person }}", "not:".repeat(DEPTH_MAX));
        for (text, fault) in [
            ("", "'{' is missing"),
            ("{ base ou=b }", "'\"' is missing"),
            ("{ base \"ou=b }", "a closing quote"),
            ("{ base \"b\" }", "\"b\":"),
            ("{ minimum x }", "\"x\" is no number"),
            ("{ minimum 1 maximum 2 }", "',' is missing"),
            ("{ least 1 }", "\"least\" is no part"),
            ("{ specificExclusions { chop:\"ou=b\" } }", "\"chop\" is none of"),
            ("{ specificationFilter (a=b) }", "':' is missing"),
            ("{ specificationFilter xor:{} }", "\"xor\" is none of"),
            ("{} x", "\"x\" behind the end"),
            (deep.as_str(), "refinements within each other"),
        ] {
            let error = Subtree::parse(&schema, &point, text).unwrap_err();
            assert!(error.contains(fault), "{text}: {error}");
        }
    }
}
