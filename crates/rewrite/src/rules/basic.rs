//! POSIX basic regular expressions, written as extended ones.

/// The same expression in extended syntax. Back references stay as they are, for the compiler to refuse.
pub(super) fn to_extended(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern.chars().peekable();
    // An asterisk or a caret has its meaning only elsewhere, or only here.
    let mut start = true;
    while let Some(c) = rest.next() {
        let was_start = std::mem::replace(&mut start, false);
        match c {
            '\\' => match rest.next() {
                // GNU's \+, \? and \| are operators, too.
                Some(operator @ ('(' | ')' | '{' | '}' | '+' | '?' | '|')) => {
                    out.push(operator);
                    start = matches!(operator, '(' | '|');
                }
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' => copy_bracket(&mut rest, &mut out),
            '*' if was_start => out.push_str("\\*"),
            '^' if was_start => {
                out.push('^');
                start = true;
            }
            '^' => out.push_str("\\^"),
            '$' => {
                let mut ahead = rest.clone();
                let ends = match ahead.next() {
                    None => true,
                    Some('\\') => matches!(ahead.next(), Some(')' | '|')),
                    Some(_) => false,
                };
                out.push_str(if ends { "$" } else { "\\$" });
            }
            '(' | ')' | '{' | '}' | '+' | '?' | '|' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

/// A bracket expression, which is the same in both syntaxes: its end is what has to be found.
fn copy_bracket(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    out.push('[');
    if let Some(caret) = rest.next_if_eq(&'^') {
        out.push(caret);
    }
    if let Some(data) = rest.next_if_eq(&']') {
        out.push(data);
    }
    while let Some(c) = rest.next() {
        match c {
            ']' => {
                out.push(']');
                return;
            }
            '[' if rest.peek() == Some(&':') => {
                out.push('[');
                for inner in rest.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            _ => out.push(c),
        }
    }
}
