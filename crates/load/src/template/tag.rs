//! The parts of a value: text, references to attributes, and tags.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::error::TemplateFault;

/// A part of a value.
#[derive(Clone, Debug)]
pub(super) enum Segment {
    Text(String),
    /// The first value of an attribute, and how many of its characters.
    Attribute(String, Option<usize>),
    First,
    Last,
    Dn,
    ParentDn,
    Rdn,
    /// The index of its counter.
    Sequential(usize),
    /// From so many to so many characters of an alphabet.
    Characters(Rc<[char]>, u64, u64),
    Between(u64, u64),
    /// At most so many characters of its name.
    Month(usize),
    Telephone,
    Guid,
    /// Values, each with the sum of the weights up to it.
    List(Rc<[(u64, String)]>),
    FileRandom(Rc<[String]>),
    FileSequential(Rc<[String]>, usize),
    /// The line is there in so many of a hundred entries.
    Presence(u64),
    /// The line is there if the attribute is (with that value), or if it is not.
    If {
        present: bool,
        attribute: String,
        value: Option<String>,
    },
}

/// What reading tags adds to.
#[derive(Debug, Default)]
pub(super) struct Context {
    pub(super) directory: PathBuf,
    /// The first number of each counter, and whether it starts anew below each parent.
    pub(super) counters: Vec<(u64, bool)>,
    files: BTreeMap<String, Rc<[String]>>,
}

impl Context {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..Self::default() }
    }

    fn counter(&mut self, start: u64, restarts: bool) -> usize {
        self.counters.push((start, restarts));
        self.counters.len() - 1
    }

    /// The lines of a file that are not empty.
    fn file(&mut self, path: &str) -> Result<Rc<[String]>, TemplateFault> {
        if let Some(lines) = self.files.get(path) {
            return Ok(Rc::clone(lines));
        }
        let fault = |reason: String| TemplateFault::File { path: path.to_owned(), reason };
        let text =
            std::fs::read_to_string(self.directory.join(path)).map_err(|error| fault(error.to_string()))?;
        let lines: Rc<[String]> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if lines.is_empty() {
            return Err(fault("it has no lines".to_owned()));
        }
        self.files.insert(path.to_owned(), Rc::clone(&lines));
        Ok(lines)
    }
}

/// Splits a value whose constants are in place.
pub(super) fn parts(value: &str, context: &mut Context) -> Result<Vec<Segment>, TemplateFault> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = value;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        let closing = match c {
            '\\' => {
                let next = rest.chars().next().unwrap_or('\\');
                text.push(next);
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
                continue;
            }
            '{' => '}',
            '<' => '>',
            other => {
                text.push(other);
                continue;
            }
        };
        let (inner, after) = rest
            .split_once(closing)
            .ok_or_else(|| TemplateFault::Unclosed { opening: c, text: value.to_owned() })?;
        rest = after;
        let part = if c == '{' { attribute(inner)? } else { tag(inner, context)? };
        match part {
            Segment::Text(more) => text.push_str(&more),
            part => {
                if !text.is_empty() {
                    parts.push(Segment::Text(std::mem::take(&mut text)));
                }
                parts.push(part);
            }
        }
    }
    if !text.is_empty() {
        parts.push(Segment::Text(text));
    }
    Ok(parts)
}

fn attribute(text: &str) -> Result<Segment, TemplateFault> {
    match text.split_once(':') {
        None => Ok(Segment::Attribute(text.to_owned(), None)),
        Some((name, length)) => {
            let length = length.parse().map_err(|_| TemplateFault::Argument {
                tag: text.to_owned(),
                expected: "a number of characters after the colon",
            })?;
            Ok(Segment::Attribute(name.to_owned(), Some(length)))
        }
    }
}

fn tag(text: &str, context: &mut Context) -> Result<Segment, TemplateFault> {
    let mut arguments = text.split(':');
    let name = arguments.next().unwrap_or_default().to_ascii_lowercase();
    let arguments: Vec<&str> = arguments.collect();
    let expected = |expected| TemplateFault::Argument { tag: text.to_owned(), expected };
    match (name.as_str(), arguments.as_slice()) {
        ("first", []) => Ok(Segment::First),
        ("last", []) => Ok(Segment::Last),
        ("dn", []) => Ok(Segment::Dn),
        ("parentdn", []) => Ok(Segment::ParentDn),
        ("rdn", []) => Ok(Segment::Rdn),
        ("guid", []) => Ok(Segment::Guid),
        ("sequential", arguments) => {
            let expected = || expected("nothing, START, or START:true or false");
            let (start, restarts) = match arguments {
                [] => ("0", "true"),
                [start] => (*start, "true"),
                [start, restarts] => (*start, *restarts),
                _ => return Err(expected()),
            };
            let start = start.parse().map_err(|_| expected())?;
            let restarts = restarts.parse().map_err(|_| expected())?;
            Ok(Segment::Sequential(context.counter(start, restarts)))
        }
        ("random", arguments) => random(text, arguments),
        ("list", [_, ..]) => list(text),
        ("file", [path]) | ("file", [path, "random"]) => Ok(Segment::FileRandom(context.file(path)?)),
        ("file", [path, "sequential"]) => {
            let lines = context.file(path)?;
            Ok(Segment::FileSequential(lines, context.counter(0, false)))
        }
        ("file", _) => Err(expected("PATH, PATH:random or PATH:sequential")),
        ("presence", [percent]) => {
            let percent = percent.parse().ok().filter(|percent| *percent <= 100);
            percent.map(Segment::Presence).ok_or_else(|| expected("a number from 0 to 100"))
        }
        ("ifpresent" | "ifabsent", [attribute, value @ ..]) if value.len() < 2 => Ok(Segment::If {
            present: name == "ifpresent",
            attribute: (*attribute).to_owned(),
            value: value.first().map(|value| (*value).to_owned()),
        }),
        ("static", _) => Ok(Segment::Text(text.split_once(':').map_or("", |(_, text)| text).to_owned())),
        _ => Err(TemplateFault::Tag(text.to_owned())),
    }
}

fn random(text: &str, arguments: &[&str]) -> Result<Segment, TemplateFault> {
    const ALPHA: &str = "abcdefghijklmnopqrstuvwxyz";
    const NUMERIC: &str = "0123456789";
    const ALPHANUMERIC: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
    const HEX: &str = "0123456789abcdef";
    const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let expected = |expected| TemplateFault::Argument { tag: text.to_owned(), expected };
    let range = |arguments: &[&str]| {
        let number = |text: &str| text.parse::<u64>().ok();
        let range = match arguments {
            [length] => number(length).map(|length| (length, length)),
            [low, high] => number(low).zip(number(high)),
            _ => None,
        };
        range
            .filter(|(low, high)| low <= high)
            .ok_or_else(|| expected("a number, or two of which the first is not greater"))
    };
    let characters = |alphabet: &str, arguments: &[&str]| {
        let (low, high) = range(arguments)?;
        if high > 1 << 20 {
            return Err(expected("at most 1048576 characters"));
        }
        Ok(Segment::Characters(alphabet.chars().collect(), low, high))
    };
    match arguments {
        ["alpha", rest @ ..] => characters(ALPHA, rest),
        ["alphanumeric", rest @ ..] => characters(ALPHANUMERIC, rest),
        ["hex", rest @ ..] => characters(HEX, rest),
        ["base64", rest @ ..] => characters(BASE64, rest),
        ["numeric", low, high] => range(&[low, high]).map(|(low, high)| Segment::Between(low, high)),
        ["numeric", rest @ ..] => characters(NUMERIC, rest),
        ["chars", alphabet, rest @ ..] if !alphabet.is_empty() => characters(alphabet, rest),
        ["month"] => Ok(Segment::Month(usize::MAX)),
        ["month", length] => {
            let length = length.parse().map_err(|_| expected("a number of characters"))?;
            Ok(Segment::Month(length))
        }
        ["telephone"] => Ok(Segment::Telephone),
        _ => Err(expected(
            "alpha, numeric, alphanumeric, hex, base64, chars, month or telephone, and a length",
        )),
    }
}

/// `list:a,b` or `list:a:9,b:1`, also with MakeLDIF's semicolon before the weight.
fn list(text: &str) -> Result<Segment, TemplateFault> {
    let expected = || TemplateFault::Argument {
        tag: text.to_owned(),
        expected: "values with commas between them, each with a colon and a weight or none",
    };
    let mut sum = 0_u64;
    let mut values = Vec::new();
    for item in text.split_once(':').map_or("", |(_, list)| list).split(',') {
        let (value, weight) = match item.rsplit_once([':', ';']) {
            Some((value, weight)) => (value, weight.parse::<u32>().map_err(|_| expected())?),
            None => (item, 1),
        };
        sum += u64::from(weight);
        values.push((sum, value.to_owned()));
    }
    if sum == 0 {
        return Err(expected());
    }
    Ok(Segment::List(values.into()))
}
