//! POSIX extended regular expressions, as slapd.conf(5) and slapd.access(5) use them, carried over to the `regex` crate.
//!
//! What differs and is kept in mind: inside brackets a backslash is data, and there are no operators of sets; `.` matches a line
//! end; a `?` behind a repetition makes it optional, and not lazy. Back-references are refused: the `regex` crate promises linear
//! time, and has none.

use regex::{Regex, RegexBuilder};

/// Compiled patterns stay below this many bytes of memory each.
const COMPILED_SIZE_LIMIT: usize = 1 << 20;

/// What it costs to compile a pattern, for each [`PATTERN_BYTES`].
const PATTERN_STEPS: u64 = 1_000;
const PATTERN_BYTES: usize = 64;
/// So many times as much where the pattern repeats a part by number: each time is compiled.
const REPEATED: u64 = 10;

/// Names of character classes (POSIX XBD section 9.3.5).
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
    "xdigit",
];

/// Compiles a POSIX pattern, case-insensitively.
///
/// # Errors
/// Says why the pattern is no regular expression, or that it uses back-references.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    compile_as(pattern, true)
}

/// Compiles a POSIX extended regular expression, in which `.` stands for every character, line ends too; letters match in either
/// case if `any_case` says so.
///
/// # Errors
/// Says that it is none, and why, or that it uses back-references.
pub fn posix_regex(pattern: &str, any_case: bool) -> Result<Regex, String> {
    compile_as(pattern, any_case).map_err(|why| format!("not a regular expression: {why}"))
}

/// What it costs to compile a pattern and to try it, in [steps](crate::EntryFacts::charge). For patterns that come with requests and entries.
pub fn regex_steps(pattern: &str) -> u64 {
    let steps = PATTERN_STEPS * (1 + (pattern.len() / PATTERN_BYTES) as u64);
    if pattern.contains('{') { REPEATED * steps } else { steps }
}

fn compile_as(pattern: &str, any_case: bool) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern)?)
        .case_insensitive(any_case)
        .dot_matches_new_line(true)
        .size_limit(COMPILED_SIZE_LIMIT)
        .build()
        .map_err(|error| match error {
            // The parser's message spans several lines with a caret; its last line says what is wrong.
            regex::Error::Syntax(text) => {
                text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
            }
            regex::Error::CompiledTooBig(_) => "it is too large when compiled".to_owned(),
            other => other.to_string(),
        })
}

fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                None => return Err("it ends in a backslash".to_owned()),
                Some(digit) if digit.is_ascii_digit() => {
                    return Err(format!("back-references (\\{digit}) are not supported"));
                }
                Some(class @ ('w' | 'W' | 's' | 'S' | 'b' | 'B')) => out.extend(['\\', class]),
                Some('<') => out.push_str("\\b{start}"),
                Some('>') => out.push_str("\\b{end}"),
                Some('`') => out.push_str("\\A"),
                Some('\'') => out.push_str("\\z"),
                Some(other) => out.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
            },
            '[' => bracket(&mut rest, &mut out)?,
            // `(?` is no POSIX; the `regex` crate knows groups that begin so.
            '(' if rest.next_if_eq(&'?').is_some() => out.push_str("(?"),
            '?' => out.push_str("{0,1}"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

fn bracket(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Result<(), String> {
    const UNCLOSED: &str = "a bracket is not closed";
    out.push('[');
    if rest.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    // A `]` in first place is data.
    let mut first = true;
    loop {
        match rest.next().ok_or(UNCLOSED)? {
            ']' if !first => {
                out.push(']');
                return Ok(());
            }
            '[' if rest.next_if_eq(&':').is_some() => {
                let mut name = String::new();
                loop {
                    match rest.next().ok_or(UNCLOSED)? {
                        ':' if rest.next_if_eq(&']').is_some() => break,
                        c => name.push(c),
                    }
                }
                // The `regex` crate would take what is no name for the characters that it has.
                if !CLASSES.contains(&name.as_str()) {
                    let known = CLASSES.join(", ");
                    return Err(format!("`[:{name}:]` is no character class; these are known: {known}"));
                }
                out.extend(["[:", name.as_str(), ":]"]);
            }
            '[' if matches!(rest.peek(), Some('.' | '=')) => {
                return Err("collating elements are not supported".to_owned());
            }
            c => {
                push_literal(c, out);
                // A `-` in last place is data.
                let mut ahead = rest.clone();
                if ahead.next() == Some('-') && ahead.peek().is_some_and(|&end| end != ']') {
                    rest.next();
                    let end = rest.next().ok_or(UNCLOSED)?;
                    if end == '[' && matches!(rest.peek(), Some('.' | '=' | ':')) {
                        return Err("a range ends in a class of characters".to_owned());
                    }
                    out.push('-');
                    push_literal(end, out);
                }
            }
        }
        first = false;
    }
}

/// Adds one character of a bracket expression, which the `regex` crate shall take for itself.
fn push_literal(c: char, out: &mut String) {
    if matches!(c, '[' | ']' | '\\' | '&' | '~' | '^' | '-') {
        out.push('\\');
    }
    out.push(c);
}

/// Takes the spaces after commas out of a pattern, as normalised DNs have none.
pub(crate) fn without_spaces_after_commas(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        out.push(c);
        match c {
            '\\' => out.extend(rest.next()),
            ',' => while rest.next_if_eq(&' ').is_some() {},
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_posix_has_it() {
        let check = |pattern: &str, text: &str, expected: bool| {
            let compiled = compile(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern} on {text}");
        };
        check("^(.+,)?uid=([^,]+),dc=[^,]+,dc=com$", "uid=a,dc=b,dc=com", true);
        check("^UID=", "uid=a", true);
        check("[^\\,]x", "\\x", false);
        check("[]a]+$", "]a]", true);
        check("[a&&b]", "&", true);
        check("[[:digit:]]+$", "12", true);
        check("^[[:upper:]_]+$", "A_", true);
        check("a\\.b\\,", "a.b,", true);
        check("a\\.b", "axb", false);
        check("\\<foo\\>", "a foo b", true);
        check("a{2}$", "aa", true);
        check("^a.b$", "a\nb", true);
        check("^[a-c-]+$", "b-", true);
        check("^[+--]$", ",", true);
        check("^a{2}?$", "", true);
        check("^a+?$", "", true);
        check("^(?:ab)+$", "abab", true);
    }

    #[test]
    fn a_question_mark_behind_a_repetition_does_not_make_it_lazy() {
        let compiled = compile("^(.+?)(,.*)?$").unwrap();
        assert_eq!(compiled.captures("uid=a,dc=b").unwrap().get(1).unwrap().as_str(), "uid=a,dc=b");
    }

    #[test]
    fn bad_patterns_say_why() {
        for (pattern, why) in [
            ("a(b", "unclosed group"),
            ("(a)\\1", "back-references (\\1) are not supported"),
            ("[a", "a bracket is not closed"),
            ("[[:alpha]", "a bracket is not closed"),
            (
                "[[:alhpa:]]",
                "`[:alhpa:]` is no character class; these are known: alnum, alpha, blank, cntrl, digit, graph, lower, print, punct, \
                 space, upper, xdigit",
            ),
            ("[A-[:digit:]]", "a range ends in a class of characters"),
            ("a\\", "it ends in a backslash"),
            ("*", "repetition operator missing expression"),
            ("?", "repetition operator missing expression"),
        ] {
            assert_eq!(compile(pattern).expect_err(pattern), why, "{pattern}");
        }
        assert_eq!(posix_regex("a(b", false).unwrap_err(), "not a regular expression: unclosed group");
    }

    #[test]
    fn spaces_after_commas() {
        for (pattern, expected) in [("a, b,  c", "a,b,c"), ("a\\, b", "a\\, b"), ("a ,b", "a ,b")] {
            assert_eq!(without_spaces_after_commas(pattern), expected);
        }
    }
}
