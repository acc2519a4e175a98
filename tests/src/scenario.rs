//! Conformance scenarios: requests and expected answers as text (see `tests/conformance/README.md`).

use std::fmt::Write as _;

/// One step: a request, what a real slapd answered, and what Larix answers instead where that differs on purpose.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Step {
    /// The line number of the request.
    pub line: usize,
    /// Headings, comments and blank lines before the request.
    pub before: String,
    /// The request's line and the indented lines below it.
    pub request: String,
    /// The answer of the real slapd; empty when not yet known.
    pub expected: String,
    /// Why Larix answers otherwise, and what.
    pub differs: Option<(String, String)>,
}

impl Step {
    /// The indented lines below the request's first.
    pub fn body(&self) -> impl Iterator<Item = &str> {
        self.request.lines().skip(1).map(|line| line.strip_prefix("  ").unwrap_or(line))
    }

    /// The request's first word.
    pub fn verb(&self) -> &str {
        self.request.split_whitespace().next().unwrap_or("")
    }

    /// What Larix is to answer.
    pub fn expected_of_larix(&self) -> &str {
        self.differs.as_ref().map_or(&self.expected, |(_, answer)| answer)
    }
}

/// Splits a scenario file into steps; what follows the last request is lost unless it is an answer.
pub fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut before = String::new();
    #[derive(PartialEq)]
    enum At {
        Request,
        Answer,
        Differs,
    }
    let mut at = At::Request;
    for (number, line) in text.lines().enumerate() {
        let answer = line.starts_with("-> ") || line.starts_with("=> ") || line.starts_with("~> ");
        let indented = line.starts_with(' ');
        if let (Some(reason), Some(step)) = (line.strip_prefix("differs: "), steps.last_mut()) {
            step.differs = Some((reason.to_owned(), String::new()));
            at = At::Differs;
        } else if answer || indented && at != At::Request {
            let Some(step) = steps.last_mut() else { continue };
            if at == At::Request {
                at = At::Answer;
            }
            let place = match (&mut step.differs, &at) {
                (Some((_, answer)), At::Differs) => answer,
                _ => &mut step.expected,
            };
            let _ = writeln!(place, "{line}");
        } else if indented {
            if let Some(step) = steps.last_mut() {
                let _ = writeln!(step.request, "{line}");
            }
        } else if line.is_empty() || line.starts_with("==") || line.starts_with('#') {
            let _ = writeln!(before, "{line}");
        } else {
            let request = format!("{line}\n");
            steps.push(Step {
                line: number + 1,
                before: std::mem::take(&mut before),
                request,
                ..Step::default()
            });
            at = At::Request;
        }
    }
    steps
}

/// The text of a scenario file, the inverse of [`parse`].
pub fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        text += &step.before;
        text += &step.request;
        text += &step.expected;
        if let Some((reason, answer)) = &step.differs {
            let _ = writeln!(text, "differs: {reason}");
            text += answer;
        }
    }
    text
}

/// Splits a request's line into words; a word may be in double quotes, and parentheses hold a filter together.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut depth, mut any) = (false, 0_usize, false);
    for c in line.chars() {
        match c {
            '"' if depth == 0 => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted && depth == 0 => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => {
                if c == '(' && !quoted {
                    depth += 1;
                } else if c == ')' && !quoted {
                    depth = depth.saturating_sub(1);
                }
                word.push(c);
            }
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_survives_parsing() {
        let text = "# note\n\n== 4.5 x\nas cn=a b\n=> 0\nadd \"cn=x\"\n  cn: x\n=> 21 text \"t\"\ndiffers: names it\n\
                    => 21 text \"u\"\n\nsearch \"\" base (a=b)\n-> dn\n   a: b\n=> 0\n";
        let steps = parse(text);
        assert_eq!(steps.len(), 3);
        assert_eq!(steps[1].request, "add \"cn=x\"\n  cn: x\n");
        assert_eq!(steps[1].expected_of_larix(), "=> 21 text \"u\"\n");
        assert_eq!(steps[2].expected, "-> dn\n   a: b\n=> 0\n");
        assert_eq!(render(&steps), text);
    }

    #[test]
    fn words_keep_quotes_and_filters_together() {
        for (line, expected) in [
            ("search \"\" base (a=b c) d", &["search", "", "base", "(a=b c)", "d"][..]),
            ("as \"cn=a b\" x", &["as", "cn=a b", "x"]),
            ("x (&(a= \"b\")(c=d)) y", &["x", "(&(a= \"b\")(c=d))", "y"]),
        ] {
            assert_eq!(words(line), expected, "{line}");
        }
    }
}
