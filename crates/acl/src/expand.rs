//! `$1`, `${12}`, `${v1}`: what a rule's `<what>` matched, put into a pattern of its `<who>`.

use smallvec::SmallVec;

/// What the patterns of a `<what>` matched, by submatch number; 0 is the whole.
#[derive(Debug, Default)]
pub(super) struct Captures<'t> {
    pub(super) dn: SmallVec<[&'t str; 4]>,
    pub(super) value: SmallVec<[String; 4]>,
    /// Whether the question is about values that are not known, of which a pattern captures something.
    pub(super) value_is_unknown: bool,
}

/// A pattern with references to submatches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Dn(usize),
    Value(usize),
}

impl Template {
    /// Reads a pattern. `$$` is a dollar sign; so is one before anything but a digit or a brace, and a last one.
    pub(super) fn parse(pattern: &str) -> Self {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            let (piece, left) = reference(after);
            rest = left;
            match piece {
                Some(piece) => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                    }
                    pieces.push(piece);
                }
                None => literal.push('$'),
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Self(pieces)
    }

    /// The pattern, if it refers to nothing.
    pub(super) fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it refers to what is captured of a value.
    pub(super) fn refers_to_value(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Value(_)))
    }

    /// The pattern with the references filled in by `quote`; `None` if it refers to a submatch there is not.
    pub(super) fn expand(&self, captures: &Captures<'_>, quote: fn(&str) -> String) -> Option<String> {
        self.fill(captures, |text, captured| text.push_str(&quote(captured)))
    }

    /// The same where it matters what stands before: `append` gets that, and what was captured.
    pub(super) fn fill(&self, captures: &Captures<'_>, append: impl Fn(&mut String, &str)) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Dn(number) => append(&mut text, captures.dn.get(*number)?),
                Piece::Value(number) => append(&mut text, captures.value.get(*number)?),
            }
        }
        Some(text)
    }
}

/// The reference after a `$`, and what follows it. Of `$$`, the second is taken.
fn reference(after: &str) -> (Option<Piece>, &str) {
    let none = (None, after.strip_prefix('$').unwrap_or(after));
    let Some(first) = after.as_bytes().first() else { return none };
    if first.is_ascii_digit() {
        return (Some(Piece::Dn(usize::from(first - b'0'))), after.get(1..).unwrap_or_default());
    }
    let Some((inner, rest)) = after.strip_prefix('{').and_then(|inner| inner.split_once('}')) else {
        return none;
    };
    let (make, digits): (fn(usize) -> Piece, &str) = match inner.as_bytes().first() {
        Some(b'v') => (Piece::Value, inner.get(1..).unwrap_or_default()),
        Some(b'd') => (Piece::Dn, inner.get(1..).unwrap_or_default()),
        _ => (Piece::Dn, inner),
    };
    match digits.parse() {
        Ok(number) => (Some(make(number)), rest),
        Err(_) => none,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_expand() {
        let mut captures = Captures::default();
        captures.dn.extend(["whole", "one", "two"]);
        captures.value.extend(["v", "w"].map(str::to_owned));
        let check = |pattern: &str, expected: Option<&str>| {
            let expanded = Template::parse(pattern).expand(&captures, str::to_owned);
            assert_eq!(expanded.as_deref(), expected, "{pattern}");
        };
        check("uid=$1,dc=b", Some("uid=one,dc=b"));
        check("$0/${1}/${d2}/${v1}", Some("whole/one/two/w"));
        check("a$$", Some("a$"));
        check("a$", Some("a$"));
        check("(a$|b)$$", Some("(a$|b)$"));
        check("$12", Some("one2"));
        check("${12}", None);
        check("$9", None);
        check("${x}", Some("${x}"));
        assert_eq!(Template::parse("^a$$").literal(), Some("^a$"));
        assert_eq!(Template::parse("^$1").literal(), None);
        assert!(Template::parse("uid=${v1}").refers_to_value());
        assert!(!Template::parse("uid=$1,${d2}").refers_to_value());
    }
}
