//! Lines and words of slapd.conf, cut exactly as OpenLDAP cuts them, and the words of an olc value.
//!
//! slapd.conf: a line that begins with white space continues the one before; so does any line after one that ends in
//! a single backslash. A logical line that begins with `#` is a comment, continuations and all; an `include` line
//! takes none. Words are separated by spaces and tabs; double quotes, which may open and close anywhere in a word,
//! keep them; a backslash takes the next character as it is.
//!
//! olc values: white space separates, a backslash is a character like any other, and a quote closes only before white
//! space or the end.

pub(super) use larix_engine::overlay::settings::c_integer;

/// One argument and where it stands in the logical line (byte offsets).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A quote that never closes, at this byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnterminatedQuote(pub(super) usize);

/// A line with its continuations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogicalLine {
    pub(super) text: String,
    /// 1-based number of its first physical line.
    pub(super) number: u32,
    pieces: Vec<Piece>,
}

/// What one physical line gave to a logical one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Offset in the logical text.
    start: usize,
    /// 1-based physical line.
    line: u32,
}

/// A place in the file: physical line and character column, both 1-based.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: usize,
}

impl LogicalLine {
    fn push(&mut self, text: &str, line: u32) {
        self.pieces.push(Piece { start: self.text.len(), line });
        self.text.push_str(text);
    }

    /// Where a byte of the logical text was written. Pieces keep their length, so columns are those of the file.
    pub(super) fn position(&self, offset: usize) -> Position {
        let piece = self.pieces.iter().rev().find(|piece| piece.start <= offset);
        let Some(piece) = piece else { return Position { line: self.number, column: 1 } };
        let before = self.text.get(piece.start..offset).unwrap_or_default();
        Position { line: piece.line, column: before.chars().count() + 1 }
    }
}

/// Cuts a file into logical lines; comments and blank lines are left out.
pub(super) fn logical_lines(text: &str) -> Vec<LogicalLine> {
    let mut done: Vec<LogicalLine> = Vec::new();
    let mut open: Option<LogicalLine> = None;
    for (physical, number) in text.lines().zip(1u32..) {
        let physical = physical.strip_suffix('\r').unwrap_or(physical);
        if let Some(line) = &mut open {
            if continues_by_backslash(&line.text) {
                line.text.pop();
                line.push(physical, number);
                continue;
            }
            let indented = physical.starts_with([' ', '\t', '\x0b', '\x0c', '\r']);
            if indented && !line.text.is_empty() && !is_include(&line.text) {
                // Whatever white space led, one blank stands for its first character.
                let rest = physical.get(1..).unwrap_or_default();
                line.push(" ", number);
                line.text.push_str(rest);
                continue;
            }
        }
        done.extend(open.take());
        let mut line = LogicalLine { text: String::new(), number, pieces: Vec::new() };
        line.push(physical, number);
        open = Some(line);
    }
    done.extend(open);
    done.retain(|line| !line.text.starts_with('#') && !line.text.trim().is_empty());
    done
}

fn continues_by_backslash(text: &str) -> bool {
    text.strip_suffix('\\').is_some_and(|before| !before.ends_with('\\') && !before.is_empty())
}

fn is_include(text: &str) -> bool {
    text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("include"))
}

/// The words of a slapd.conf line. On an unterminated quote the words so far come with it.
pub(super) fn words(line: &str) -> (Vec<Word>, Option<UnterminatedQuote>) {
    let mut found = Vec::new();
    let mut chars = line.char_indices().peekable();
    loop {
        while chars.next_if(|(_, c)| matches!(c, ' ' | '\t')).is_some() {}
        let Some(&(start, _)) = chars.peek() else { return (found, None) };
        let mut text = String::new();
        let mut quote = None;
        let mut end = line.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => quote = if quote.is_some() { None } else { Some(UnterminatedQuote(at)) },
                '\\' => text.push(chars.next().map_or('\\', |(_, escaped)| escaped)),
                ' ' | '\t' if quote.is_none() => {
                    end = at;
                    break;
                }
                other => text.push(other),
            }
        }
        found.push(Word { text, start, end });
        if quote.is_some() {
            return (found, quote);
        }
    }
}

/// The words of an olc value.
pub(super) fn value_words(value: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = value.get(at..).and_then(|rest| rest.find(|c| !is_space(c))).map(|skip| at + skip)
    {
        let (word, next) = value_word(value, start);
        found.push(word);
        at = next;
    }
    found
}

/// One word that starts at `start`, and where to go on.
fn value_word(value: &str, start: usize) -> (Word, usize) {
    let rest = value.get(start..).unwrap_or_default();
    let (body, mut quoted) = match rest.strip_prefix('"') {
        Some(body) => (body, true),
        None => (rest, false),
    };
    let offset = start + (rest.len() - body.len());
    let mut opening = None;
    let mut stop = body.len();
    let mut next = value.len();
    let mut chars = body.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let last = chars.peek().is_none_or(|(_, following)| is_space(*following));
        if c == '"' && quoted && last {
            stop = at;
            next = offset + at + 1;
            break;
        }
        if c == '"' {
            quoted = true;
            opening = Some(at);
        } else if !quoted && is_space(c) {
            stop = at;
            next = offset + at;
            break;
        }
    }
    let mut text = body.get(..stop).unwrap_or_default().to_owned();
    if let Some(quote) = opening.filter(|quote| *quote < text.len()) {
        text.remove(quote);
    }
    (Word { text, start, end: next }, next)
}

/// Words as one olc value: what [`value_words`] cuts into the same words.
pub(super) fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut value = String::new();
    for word in words {
        if !value.is_empty() {
            value.push(' ');
        }
        // `dn.exact="cn=a b"` reads better than quotes around the whole.
        match word.split_once('=') {
            Some((key, rest))
                if rest.contains(is_space) && !key.contains(is_space) && !word.contains('"') =>
            {
                value.push_str(&format!("{key}=\"{rest}\""));
            }
            _ => value.push_str(&quoted(word)),
        }
    }
    value
}

/// One word as a value under cn=config that slapd cuts at blanks, such as a path: in quotes if it needs them. What cuts the value takes the
/// last quote within the word away, so that one stands there twice. A quote before a blank ends the word: slapd has no form for such words.
pub fn quoted(word: &str) -> String {
    match word.rfind('"') {
        None if word.is_empty() || word.contains(is_space) => format!("\"{word}\""),
        None => word.to_owned(),
        Some(last) => {
            let (before, after) = word.split_at(last);
            format!("\"{before}\"{after}\"")
        }
    }
}

/// The word of which [`quoted`] made this value. One that does not begin with a quote is the word.
pub fn unquoted(value: &str) -> String {
    let value = value.trim();
    let first = || value_words(value).into_iter().next().map(|word| word.text).unwrap_or_default();
    if value.starts_with('"') { first() } else { value.to_owned() }
}

/// A command as one olc value: its name, and its arguments in quotes.
pub(super) fn join_command(words: &[String]) -> String {
    let mut value = String::new();
    for (number, word) in words.iter().enumerate() {
        match number {
            0 => value.push_str(word),
            _ if word.contains('"') => value.push_str(&format!(" {}", quoted(word))),
            _ => value.push_str(&format!(" \"{word}\"")),
        }
    }
    value
}

/// A schema definition on one line: runs of white space outside of quoted strings become one blank.
pub(super) fn collapse(definition: &str) -> String {
    let mut out = String::with_capacity(definition.len());
    let mut quoted = false;
    for c in definition.trim().chars() {
        quoted ^= c == '\'';
        if quoted || !is_space(c) {
            out.push(if is_space(c) { ' ' } else { c });
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out
}

/// What separates the words of a value, as C has it: other blanks of Unicode do not.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_continue_by_space_and_by_backslash() {
        let text = "a b\n c\n# comment\n still comment\n\n  indented\n\tmore\nend \\\nhere\ninclude x\n  y\r\nlast\\\\\nz";
        let lines: Vec<(u32, String)> = logical_lines(text).into_iter().map(|l| (l.number, l.text)).collect();
        let expected = [
            (1, "a b c"),
            (6, "  indented more"),
            (8, "end here"),
            (10, "include x"),
            (11, "  y"),
            (12, "last\\\\"),
            (13, "z"),
        ];
        assert_eq!(lines, expected.map(|(n, t)| (n, t.to_owned())));
    }

    #[test]
    fn positions_are_those_of_the_file() {
        let lines = logical_lines("one two\n\t three\n");
        let line = &lines[0];
        let (words, _) = words(&line.text);
        assert_eq!(line.position(words[1].start), Position { line: 1, column: 5 });
        assert_eq!(line.position(words[2].start), Position { line: 2, column: 3 });
    }

    #[test]
    fn conf_words() {
        let cases: &[(&str, &[&str], Option<usize>)] = &[
            ("a  b\tc ", &["a", "b", "c"], None),
            (r#"rootdn "cn=a b,c=d""#, &["rootdn", "cn=a b,c=d"], None),
            (r#"by dn="a b" x"#, &["by", "dn=a b", "x"], None),
            (r#"a\ b "c\"d" \\e"#, &["a b", "c\"d", "\\e"], None),
            (r#"x "" y"#, &["x", "", "y"], None),
            (r#"x "open end"#, &["x", "open end"], Some(2)),
        ];
        for (line, expected, quote) in cases {
            let (found, unterminated) = words(line);
            let texts: Vec<&str> = found.iter().map(|word| word.text.as_str()).collect();
            assert_eq!(&texts, expected, "{line}");
            assert_eq!(unterminated, quote.map(UnterminatedQuote), "{line}");
        }
    }

    #[test]
    fn definitions_on_one_line() {
        assert_eq!(collapse("( 1.2  NAME\t\t'a  b' \n  DESC 'x' ) "), "( 1.2 NAME 'a  b' DESC 'x' )");
    }

    #[test]
    fn one_word_and_back() {
        for (value, expected) in
            [("/a", "/a"), (r#""/a b""#, "/a b"), (r#""/a""b""#, "/a\"b"), ("/a b ", "/a b"), ("\"\"", "")]
        {
            assert_eq!(unquoted(value), expected, "{value}");
            assert_eq!(unquoted(&quoted(expected)), expected, "{value}");
        }
    }

    #[test]
    fn olc_words_and_back() {
        let cases: &[(&str, &[&str])] = &[
            ("to * by * read", &["to", "*", "by", "*", "read"]),
            (r#"to dn.regex="^a b\.c$" by x"#, &["to", r"dn.regex=^a b\.c$", "by", "x"]),
            (r#""a b" """#, &["a b", ""]),
            ("a\n  b", &["a", "b"]),
            (r#"credentials="a b" c=d "x=" "#, &["credentials=a b", "c=d", "x="]),
            (r#""a""b" c"#, &["a\"b", "c"]),
            (r#""a""" """" """b" "a b"c""d""#, &["a\"", "\"", "\"b", "a b\"c\"d"]),
        ];
        for (value, expected) in cases {
            let texts: Vec<String> = value_words(value).into_iter().map(|word| word.text).collect();
            assert_eq!(&texts, expected, "{value}");
            let again: Vec<String> = value_words(&join(texts.iter().map(String::as_str)))
                .into_iter()
                .map(|word| word.text)
                .collect();
            assert_eq!(again, texts, "{value}");
        }
    }
}
