//! Templates: text with placeholders, and requests made from them once and then only patched.

use std::fmt;

use crate::generate::Random;

/// The most placeholders of one request that differ from each other.
pub(super) const VARIABLES_MAX: usize = 64;
/// The most characters or digits that one placeholder may ask for.
pub(super) const WIDTH_MAX: u8 = 64;

/// The lowest message id: ids have four octets from here to 2^31-1, so that one takes another's place. Requests are
/// encoded with it.
pub(super) const MESSAGE_ID_MIN: u32 = 0x0100_0000;

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Variable {
    /// `{n}`, with the least width.
    Number(u8),
    /// `{s}`
    Sequence(u8),
    /// `{added}`
    Added(u8),
    /// Random characters of an alphabet; no two are the same.
    Random(&'static [u8], u8),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Segment<'a> {
    Text(&'a str),
    Variable(Variable),
}

/// A template that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum PlaceholderError {
    Unclosed(String),
    Unknown(String),
    Width(String),
}

impl fmt::Display for PlaceholderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed(text) => {
                write!(f, "{text:?} opens a placeholder and does not close it; a brace is {{{{")
            }
            Self::Unknown(name) => write!(
                f,
                "no placeholder is called {{{name}}}: n, s, added, digits:N, letters:N, hex:N; a brace is {{{{"
            ),
            Self::Width(name) => write!(f, "the width of {{{name}}} is no number from 1 to {WIDTH_MAX}"),
        }
    }
}

impl std::error::Error for PlaceholderError {}

/// The numbers that one request is made from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Numbers {
    pub(super) number: u64,
    pub(super) sequence: u64,
    pub(super) added: u64,
}

/// Splits a template.
pub(super) fn parse(template: &str) -> Result<Vec<Segment<'_>>, PlaceholderError> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let (text, from) = rest.split_at(at);
        if !text.is_empty() {
            parts.push(Segment::Text(text));
        }
        if let Some(after) = from.strip_prefix("{{") {
            parts.push(Segment::Text("{"));
            rest = after;
            continue;
        }
        let (name, after) = from
            .strip_prefix('{')
            .and_then(|from| from.split_once('}'))
            .ok_or_else(|| PlaceholderError::Unclosed(template.to_owned()))?;
        parts.push(Segment::Variable(variable(name)?));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Segment::Text(rest));
    }
    Ok(parts)
}

fn variable(name: &str) -> Result<Variable, PlaceholderError> {
    const DIGITS: &[u8] = b"0123456789";
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    const HEX: &[u8] = b"0123456789abcdef";
    let (kind, width) = match name.split_once(':') {
        Some((kind, width)) => {
            let width = width.parse().ok().filter(|width| (1..=WIDTH_MAX).contains(width));
            (kind, Some(width.ok_or_else(|| PlaceholderError::Width(name.to_owned()))?))
        }
        None => (name, None),
    };
    match (kind, width) {
        ("n", width) => Ok(Variable::Number(width.unwrap_or(1))),
        ("s", width) => Ok(Variable::Sequence(width.unwrap_or(1))),
        ("added", width) => Ok(Variable::Added(width.unwrap_or(1))),
        ("digits", Some(width)) => Ok(Variable::Random(DIGITS, width)),
        ("letters", Some(width)) => Ok(Variable::Random(LETTERS, width)),
        ("hex", Some(width)) => Ok(Variable::Random(HEX, width)),
        _ => Err(PlaceholderError::Unknown(name.to_owned())),
    }
}

impl Variable {
    /// How many bytes this takes with `numbers`.
    fn width(self, numbers: &Numbers) -> usize {
        let digits = |number: u64, least: u8| (digits(number) as usize).max(usize::from(least));
        match self {
            Self::Number(least) => digits(numbers.number, least),
            Self::Sequence(least) => digits(numbers.sequence, least),
            Self::Added(least) => digits(numbers.added, least),
            Self::Random(_, width) => usize::from(width),
        }
    }
}

const fn digits(number: u64) -> u32 {
    match number.checked_ilog10() {
        Some(log) => log + 1,
        None => 1,
    }
}

/// One kind of request, encoded once for each set of widths of its numbers.
///
/// The lengths in a PDU depend only on how long its values are. So a request is encoded the first time that numbers of
/// its widths come, and from then on copied and patched.
#[derive(Debug)]
pub(super) struct Shapes {
    shapes: Vec<(u64, Shape)>,
    pub(super) variables: Vec<Variable>,
}

#[derive(Debug)]
struct Shape {
    bytes: Vec<u8>,
    /// Where the four octets of the message id start.
    id_offset: usize,
    patches: Vec<Patch>,
}

/// Bytes to be overwritten.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Patch {
    offset: usize,
    width: usize,
    variable: Variable,
}

/// Makes a text of a template.
pub(super) type Fill<'a> = dyn FnMut(&str) -> Result<String, PlaceholderError> + 'a;

/// Encodes a request: texts become bytes through the function that is handed in, everything else is the same each time.
pub(super) trait Encode {
    fn encode(&self, fill: &mut Fill<'_>, out: &mut Vec<u8>) -> anyhow::Result<()>;
}

impl Shapes {
    /// Reads the templates of `request`.
    ///
    /// # Errors
    /// A template that cannot be read, or what the request itself says, such as a filter that is none.
    pub(super) fn new(request: &impl Encode) -> anyhow::Result<Self> {
        let mut variables = Vec::new();
        let mut fill = |template: &str| {
            let mut text = String::new();
            for part in parse(template)? {
                match part {
                    Segment::Text(part) => text.push_str(part),
                    Segment::Variable(variable) => {
                        text.extend(std::iter::repeat_n('0', variable.width(&Numbers::default())));
                        if matches!(variable, Variable::Random(..)) || !variables.contains(&variable) {
                            variables.push(variable);
                        }
                    }
                }
            }
            Ok(text)
        };
        request.encode(&mut fill, &mut Vec::new())?;
        anyhow::ensure!(
            variables.len() <= VARIABLES_MAX,
            "a request with {} placeholders: at most {VARIABLES_MAX}",
            variables.len()
        );
        Ok(Self { shapes: Vec::new(), variables })
    }

    /// Appends the request with this message id, which must be one of [`MESSAGE_ID_MIN`] and above, and these numbers.
    pub(super) fn append(
        &mut self,
        request: &impl Encode,
        id: u32,
        numbers: &Numbers,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let key = u64::from(digits(numbers.number))
            | u64::from(digits(numbers.sequence)) << 8
            | u64::from(digits(numbers.added)) << 16;
        let at = match self.shapes.iter().position(|(known, _)| *known == key) {
            Some(at) => at,
            None => {
                self.shapes.push((key, Shape::new(request, &self.variables, numbers)?));
                self.shapes.len() - 1
            }
        };
        if let Some((_, shape)) = self.shapes.get(at) {
            shape.append(id, numbers, random, out);
        }
        Ok(())
    }
}

impl Shape {
    /// Encodes with every variable as zeros, then with one of them at a time as ones: the bytes that differ are its.
    fn new(request: &impl Encode, variables: &[Variable], numbers: &Numbers) -> anyhow::Result<Self> {
        let bytes = filled(request, numbers, usize::MAX)?;
        let mut patches = Vec::new();
        for (index, variable) in variables.iter().enumerate() {
            let marked = filled(request, numbers, occurrence(variables, index))?;
            let differing = bytes.iter().zip(&marked).enumerate().filter(|(_, (a, b))| a != b);
            let offsets: Vec<usize> = differing.map(|(offset, _)| offset).collect();
            let width = variable.width(numbers);
            let firsts = offsets.chunks(width).filter_map(|chunk| chunk.first());
            patches.extend(firsts.map(|&offset| Patch { offset, width, variable: *variable }));
        }
        patches.sort_unstable_by_key(|patch| patch.offset);
        let id = bytes.windows(4).position(|window| window == MESSAGE_ID_MIN.to_be_bytes());
        let id_offset = id.ok_or_else(|| anyhow::anyhow!("the encoder wrote no message id"))?;
        Ok(Self { bytes, id_offset, patches })
    }

    fn append(&self, id: u32, numbers: &Numbers, random: &mut Random, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        if let Some(place) = out.get_mut(start + self.id_offset..).and_then(|out| out.first_chunk_mut()) {
            *place = id.to_be_bytes();
        }
        for patch in &self.patches {
            let from = start + patch.offset;
            let Some(place) = out.get_mut(from..from + patch.width) else { continue };
            match patch.variable {
                Variable::Number(_) => write_digits(numbers.number, place),
                Variable::Sequence(_) => write_digits(numbers.sequence, place),
                Variable::Added(_) => write_digits(numbers.added, place),
                Variable::Random(alphabet, _) => place.fill_with(|| *random.pick(alphabet)),
            }
        }
    }
}

/// Where the variable at `index` stands among the texts' placeholders: numbers are identified by what they are, random ones
/// by their own count, which starts after the numbers' indexes.
fn occurrence(variables: &[Variable], index: usize) -> usize {
    match variables.get(index) {
        Some(Variable::Random(..)) => {
            let before = variables.iter().take(index);
            VARIABLES_MAX + before.filter(|variable| matches!(variable, Variable::Random(..))).count()
        }
        Some(Variable::Number(width)) => usize::from(*width) << 16,
        Some(Variable::Sequence(width)) => usize::from(*width) << 16 | 1,
        Some(Variable::Added(width)) => usize::from(*width) << 16 | 2,
        None => usize::MAX,
    }
}

/// The request with zeros for each placeholder but `marked`, which is ones.
fn filled(request: &impl Encode, numbers: &Numbers, marked: usize) -> anyhow::Result<Vec<u8>> {
    let mut random_seen = 0;
    let mut fill = |template: &str| {
        let mut text = String::new();
        for part in parse(template)? {
            match part {
                Segment::Text(part) => text.push_str(part),
                Segment::Variable(variable) => {
                    let own = match variable {
                        Variable::Random(..) => {
                            random_seen += 1;
                            VARIABLES_MAX + random_seen - 1
                        }
                        other => occurrence(&[other], 0),
                    };
                    let filler = if own == marked { '1' } else { '0' };
                    text.extend(std::iter::repeat_n(filler, variable.width(numbers)));
                }
            }
        }
        Ok(text)
    };
    let mut out = Vec::new();
    request.encode(&mut fill, &mut out)?;
    Ok(out)
}

/// The number right-aligned in `place`, with leading zeros.
fn write_digits(mut number: u64, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message id, a length byte and the text.
    struct Text(&'static str);

    impl Encode for Text {
        fn encode(&self, fill: &mut Fill<'_>, out: &mut Vec<u8>) -> anyhow::Result<()> {
            let text = fill(self.0)?;
            out.extend_from_slice(&MESSAGE_ID_MIN.to_be_bytes());
            out.push(b'A' + text.len() as u8);
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }

    #[test]
    fn requests_are_patched() {
        let check = |template, (number, sequence, added), expected: &str| {
            let request = Text(template);
            let mut shapes = Shapes::new(&request).unwrap();
            // The second time comes from the shape that the first one made.
            for _ in 0..2 {
                let (mut out, mut random) = (Vec::new(), Random::new(1));
                let numbers = Numbers { number, sequence, added };
                shapes.append(&request, 0x1122_3344, &numbers, &mut random, &mut out).unwrap();
                assert_eq!(out[..4], [0x11, 0x22, 0x33, 0x44]);
                assert_eq!(str::from_utf8(&out[4..]).unwrap(), expected, "{template}");
            }
        };
        check("plain", (1, 2, 3), "Fplain");
        check("{n}", (0, 0, 0), "B0");
        check("{n}", (12_345, 2, 3), "F12345");
        check("u{n}-{s}-{n}{n}", (12, 345, 3), "Mu12-345-1212");
        check("{n:5}{n:3}{n}", (7, 2, 3), "J000070077");
        check("{n:2}", (123, 2, 3), "D123");
        check("{added}.{s}", (1, 10, 9), "E9.10");
        check("a{{b}", (1, 2, 3), "Ea{b}");
        check("1{n}0", (10, 0, 0), "E1100");
    }

    #[test]
    fn random_characters_differ_between_places_and_requests() {
        let request = Text("{hex:8}{letters:8}{digits:8}{hex:8}");
        let mut shapes = Shapes::new(&request).unwrap();
        let (mut out, mut random) = (Vec::new(), Random::new(1));
        for _ in 0..2 {
            shapes.append(&request, 0x2020_2020, &Numbers::default(), &mut random, &mut out).unwrap();
        }
        let text = String::from_utf8(out).unwrap().replace("    ", "");
        let field = |at: usize| &text[1 + at * 8..9 + at * 8];
        assert!(field(0).bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
        assert!(field(1).bytes().all(|byte| byte.is_ascii_lowercase()), "{text}");
        assert!(field(2).bytes().all(|byte| byte.is_ascii_digit()), "{text}");
        assert_ne!(field(0), field(3), "{text}");
        assert_ne!(text[..33], text[33..], "{text}");
    }

    #[test]
    fn what_is_no_template_is_named() {
        for (template, expected) in [
            ("a{n", "\"a{n\" opens a placeholder"),
            ("{m}", "no placeholder is called {m}"),
            ("{digits}", "no placeholder is called {digits}"),
            ("{n:x}", "the width of {n:x}"),
            ("{hex:65}", "the width of {hex:65} is no number from 1 to 64"),
        ] {
            let error = parse(template).unwrap_err().to_string();
            assert!(error.contains(expected), "{template}: {error}");
        }
    }
}
