//! Splitting a rule into words, the two ways OpenLDAP does it.

use super::error::{AccessFault, AccessSyntaxError};

/// How quotation marks and backslashes are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quoting {
    /// slapd.conf: quotation marks toggle anywhere and vanish, a backslash takes the next character as it is.
    #[default]
    Configuration,
    /// An olcAccess value: a quotation mark ends at one followed by white space, backslashes are data.
    Ldif,
}

/// A word with its quotation marks removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    /// Of its first byte in the given text, from 1.
    pub(crate) column: usize,
}

/// The words of `text`, which starts at `first_column`.
pub(crate) fn split(
    text: &str,
    quoting: Quoting,
    first_column: usize,
) -> Result<Vec<Word>, AccessSyntaxError> {
    let mut words = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some(&(start, c)) = rest.peek() {
        if c.is_ascii_whitespace() {
            rest.next();
            continue;
        }
        words.push(word(&mut rest, quoting, first_column + start)?);
    }
    Ok(words)
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// The word that `rest` begins with.
fn word(rest: &mut Characters<'_>, quoting: Quoting, column: usize) -> Result<Word, AccessSyntaxError> {
    let mut text = String::new();
    let mut quoted = false;
    while let Some(&(_, c)) = rest.peek() {
        if c.is_ascii_whitespace() && !quoted {
            break;
        }
        rest.next();
        match (quoting, c) {
            (Quoting::Configuration, '"') => quoted = !quoted,
            (Quoting::Configuration, '\\') => text.push(rest.next().map_or('\\', |(_, escaped)| escaped)),
            (Quoting::Ldif, '"') if !quoted => quoted = true,
            (Quoting::Ldif, '"') if rest.peek().is_none_or(|(_, next)| next.is_ascii_whitespace()) => {
                quoted = false;
            }
            _ => text.push(c),
        }
    }
    if quoted {
        return Err(AccessSyntaxError::at(column, AccessFault::UnclosedQuote));
    }
    Ok(Word { text, column })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, quoting: Quoting, expected: &[(usize, &str)]) {
        let words = split(text, quoting, 1).expect("splits");
        let shown: Vec<(usize, &str)> = words.iter().map(|word| (word.column, word.text.as_str())).collect();
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn rules_are_cut_into_words_with_their_places() {
        use Quoting::{Configuration, Ldif};
        check("to * by  x", Configuration, &[(1, "to"), (4, "*"), (6, "by"), (10, "x")]);
        check("to dn.base=\"a b\" by", Configuration, &[(1, "to"), (4, "dn.base=a b"), (18, "by")]);
        check("a=\\\"x\\ y", Configuration, &[(1, "a=\"x y")]);
        check("\"dn=a b\"", Configuration, &[(1, "dn=a b")]);
        check("to dn.base=\"a b\"\n  by", Ldif, &[(1, "to"), (4, "dn.base=a b"), (20, "by")]);
        check("dn.regex=\"a\\,b\"", Ldif, &[(1, "dn.regex=a\\,b")]);
        check("\"dn=a b\"", Ldif, &[(1, "dn=a b")]);
        assert_eq!(
            split("to \"x", Configuration, 1),
            Err(AccessSyntaxError::at(4, AccessFault::UnclosedQuote))
        );
    }
}
