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
        let column = first_column + start;
        let text = match quoting {
            Quoting::Configuration => configuration_word(&mut rest, column)?,
            Quoting::Ldif => ldif_word(&mut rest, column)?,
        };
        words.push(Word { text, column });
    }
    Ok(words)
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

fn configuration_word(rest: &mut Characters<'_>, column: usize) -> Result<String, AccessSyntaxError> {
    let mut word = String::new();
    let mut quoted = false;
    while let Some(&(_, c)) = rest.peek() {
        if c.is_ascii_whitespace() && !quoted {
            break;
        }
        rest.next();
        match c {
            '"' => quoted = !quoted,
            '\\' => word.push(rest.next().map_or('\\', |(_, escaped)| escaped)),
            _ => word.push(c),
        }
    }
    if quoted {
        return Err(AccessSyntaxError::at(column, AccessFault::UnclosedQuote));
    }
    Ok(word)
}

fn ldif_word(rest: &mut Characters<'_>, column: usize) -> Result<String, AccessSyntaxError> {
    let mut word = String::new();
    let mut quoted = false;
    while let Some(&(_, c)) = rest.peek() {
        if c.is_ascii_whitespace() && !quoted {
            break;
        }
        rest.next();
        match c {
            '"' if !quoted => quoted = true,
            '"' if rest.peek().is_none_or(|(_, next)| next.is_ascii_whitespace()) => quoted = false,
            _ => word.push(c),
        }
    }
    if quoted {
        return Err(AccessSyntaxError::at(column, AccessFault::UnclosedQuote));
    }
    Ok(word)
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
    fn words() {
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
