//! From a record's lines to a [`Record`].

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, Read};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::lines::{Block, Files, Input, SourcePosition};
use super::{Body, Change, Chunk, LdifAttribute, LdifError, LdifFault, Modification, Record};
use crate::control::ControlBuf;
use crate::limits;
use crate::list::ModifyOperation;

/// Reads records one by one. An error concerns one record: the next call goes on behind it, unless the error
/// [is not recoverable](LdifError::is_recoverable).
pub struct Reader<R> {
    input: Input<R>,
    block: Block,
    assume_modify: bool,
    shape: Shape,
}

/// Names of attributes in the order in which records have them: most records are like those before them, so that a name
/// need not be checked and looked for anew. No two are the same in any case of letters.
type Shape = Vec<Arc<str>>;

/// What names of attributes can be in a record.
trait Name: AsRef<str> {
    fn of(line: &Line<'_>) -> Self;
}

impl Name for String {
    fn of(line: &Line<'_>) -> Self {
        line.name.to_owned()
    }
}

impl Name for Arc<str> {
    fn of(line: &Line<'_>) -> Self {
        line.shared.map_or_else(|| line.name.into(), Self::clone)
    }
}

/// What some editors begin UTF-8 with.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// What UTF-16 begins with, as the shell of Windows writes it into files.
const UTF_16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
/// Names in a shape, at most.
const SHAPE_MAX: usize = 256;
/// Attributes that a record lacks in a row, before the next one is no longer known by its place.
const LOOK_AHEAD: usize = 8;

impl<'c> Reader<&'c [u8]> {
    /// Reads the records of a chunk; errors name the lines of the file that it is from.
    pub fn of_chunk(chunk: &'c Chunk) -> Self {
        let input = Input::at(chunk.bytes.as_slice(), chunk.line.saturating_sub(1), chunk.file.clone());
        Self { input, block: Block::default(), assume_modify: false, shape: Shape::new() }
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads `input`, and no files that it may name.
    pub fn new(input: R) -> Self {
        Self { input: Input::new(input), block: Block::default(), assume_modify: false, shape: Shape::new() }
    }

    /// Lets `attribute:< file:...` and `include: file:...` read files.
    #[must_use]
    pub fn with_files(mut self, files: impl Files + 'static) -> Self {
        self.input.files = Some(Box::new(files));
        self
    }

    /// Takes records without `changetype:` as modifications rather than as entries, as `ldapmodify` does.
    #[must_use]
    pub fn assume_modify(mut self, assume: bool) -> Self {
        self.assume_modify = assume;
        self
    }

    /// The number of the last line read from the input or the file included last, from 1.
    pub fn line(&self) -> u64 {
        self.input.position().line
    }

    /// The lines of the record that was read last, also of one with an error: unfolded, without comments.
    pub fn last_lines(&self) -> impl Iterator<Item = &[u8]> {
        self.block.lines()
    }

    /// The next record, or `None` at the end.
    pub fn read_record(&mut self) -> Result<Option<Record>, LdifError> {
        self.read()
    }

    /// The same with names that records share: where many are read, most of them have those of the one before.
    pub fn read_sharing(&mut self) -> Result<Option<Record<Arc<str>>>, LdifError> {
        self.read()
    }

    fn read<N: Name>(&mut self) -> Result<Option<Record<N>>, LdifError> {
        let mut block = std::mem::take(&mut self.block);
        let record = loop {
            match self.input.read(&mut block) {
                Ok(true) => match self.record(&block) {
                    // A version line on its own.
                    Ok(None) => continue,
                    other => break other,
                },
                Ok(false) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        self.block = block;
        record
    }

    fn record<N: Name>(&mut self, block: &Block) -> Result<Option<Record<N>>, LdifError> {
        let mut shape = std::mem::take(&mut self.shape);
        let mut strangers = Vec::new();
        let record = self.record_like(&shape, &mut strangers, block);
        for (place, name) in strangers.into_iter().rev() {
            if shape.len() < SHAPE_MAX && !shape.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
                shape.insert(place, name.into());
            }
        }
        self.shape = shape;
        record
    }

    /// Reads a record that may have the shape, and notes which names it would need, and where.
    fn record_like<N: Name>(
        &mut self,
        shape: &[Arc<str>],
        strangers: &mut Vec<(usize, String)>,
        block: &Block,
    ) -> Result<Option<Record<N>>, LdifError> {
        // Dumps of old tools number their entries.
        let numbered = block.line(0).is_some_and(|(_, line)| line.iter().all(u8::is_ascii_digit));
        let index = usize::from(numbered);
        let mut lines =
            Lines { reader: self, block, index, pushed_back: None, at: 0, shape, place: 0, strangers };
        let Some(mut first) = lines.next()? else { return Ok(None) };
        if first.is("version") {
            if first.value != b"1" {
                let version = String::from_utf8_lossy(&first.value).into_owned();
                return Err(lines.error(LdifFault::UnknownVersion(version)));
            }
            match lines.next()? {
                Some(next) => first = next,
                None => return Ok(None),
            }
        }
        if !first.is("dn") {
            return Err(lines.error(LdifFault::MissingDn(first.name.into())));
        }
        let line = lines.at;
        let dn = lines.text(first, "DN")?;
        let body = body(&mut lines)?;
        Ok(Some(Record { line, dn, body }))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, LdifError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_record().transpose()
    }
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("input", &self.input).finish_non_exhaustive()
    }
}

fn body<R: BufRead, N: Name>(lines: &mut Lines<'_, R>) -> Result<Body<N>, LdifError> {
    let mut controls = Vec::new();
    while let Some(line) = lines.next_if("control")? {
        let control = control(lines, line)?;
        controls.push(control);
    }
    let Some(change_type) = lines.next_if("changetype")? else {
        if !controls.is_empty() && !lines.reader.assume_modify {
            return Err(lines.error(LdifFault::Expected("changetype:")));
        }
        return Ok(if lines.reader.assume_modify {
            Body::Change { controls, change: modify(lines)? }
        } else {
            Body::Content(attributes(lines)?)
        });
    };
    let change_type = lines.text(change_type, "changetype")?;
    let change = match change_type.trim_end().to_ascii_lowercase().as_str() {
        "add" => Change::Add(attributes(lines)?),
        "delete" => match lines.next()? {
            Some(extra) => return Err(lines.misplaced(&extra)),
            None => Change::Delete,
        },
        "modify" => modify(lines)?,
        "modrdn" | "moddn" => modify_dn(lines)?,
        _ => return Err(lines.error(LdifFault::UnknownChangeType(change_type))),
    };
    Ok(Body::Change { controls, change })
}

/// The rest of the record as attributes, values of one attribute together.
fn attributes<R: BufRead, N: Name>(lines: &mut Lines<'_, R>) -> Result<Vec<LdifAttribute<N>>, LdifError> {
    /// From this many attributes on, an index finds them.
    const MANY: usize = 48;
    let mut attributes: Vec<LdifAttribute<N>> = Vec::with_capacity(lines.shape.len());
    let mut index: HashMap<String, usize> = HashMap::new();
    while let Some(line) = lines.next()? {
        if let Some(last) = attributes.last_mut()
            && line.is(last.description.as_ref())
        {
            last.values.push(line.value);
            continue;
        }
        // Those that came in the order of the shape are all different.
        if let Some(place) = line.place.filter(|_| lines.strangers.is_empty()) {
            lines.place = place + 1;
            attributes.push(LdifAttribute { description: N::of(&line), values: vec![line.value] });
            continue;
        }
        if attributes.len() >= MANY && index.is_empty() {
            let named = |(at, known): (usize, &LdifAttribute<N>)| {
                (known.description.as_ref().to_ascii_lowercase(), at)
            };
            index = attributes.iter().enumerate().map(named).collect();
        }
        let known = if index.is_empty() {
            attributes.iter().position(|known| line.is(known.description.as_ref()))
        } else {
            let next = attributes.len();
            let at = *index.entry(line.name.to_ascii_lowercase()).or_insert(next);
            (at < next).then_some(at)
        };
        match known.and_then(|at| attributes.get_mut(at)) {
            Some(attribute) => attribute.values.push(line.value),
            None => {
                if line.is("dn") {
                    return Err(lines.error(LdifFault::NoEmptyLine));
                }
                lines.strangers.push((lines.place, line.name.into()));
                attributes.push(LdifAttribute { description: N::of(&line), values: vec![line.value] });
            }
        }
    }
    Ok(attributes)
}

fn modify<R: BufRead>(lines: &mut Lines<'_, R>) -> Result<Change, LdifError> {
    let mut modifications = Vec::new();
    while let Some(line) = lines.next()? {
        let operation = match line.name.to_ascii_lowercase().as_str() {
            "add" => ModifyOperation::Add,
            "delete" => ModifyOperation::Delete,
            "replace" => ModifyOperation::Replace,
            "increment" => ModifyOperation::Increment,
            "dn" => return Err(lines.error(LdifFault::NoEmptyLine)),
            _ => return Err(lines.error(LdifFault::UnknownModification(line.name.into()))),
        };
        let description = lines.text(line, "attribute description")?;
        if !is_name(description.trim_end()) {
            return Err(lines.error(LdifFault::BadName(description)));
        }
        let mut modification =
            Modification { operation, description: description.trim_end().into(), values: Vec::new() };
        while let Some(value) = lines.next_value()? {
            if !value.is(&modification.description) {
                if value.is("dn") {
                    return Err(lines.error(LdifFault::NoEmptyLine));
                }
                return Err(lines.error(LdifFault::WrongAttribute {
                    expected: modification.description,
                    found: value.name.into(),
                }));
            }
            modification.values.push(value.value);
        }
        modifications.push(modification);
    }
    Ok(Change::Modify(modifications))
}

fn modify_dn<R: BufRead>(lines: &mut Lines<'_, R>) -> Result<Change, LdifError> {
    let new_rdn = match lines.next_if("newrdn")? {
        Some(line) => lines.text(line, "newrdn")?,
        None => return Err(lines.error(LdifFault::Expected("newrdn:"))),
    };
    let delete_old_rdn = match lines.next_if("deleteoldrdn")? {
        Some(line) => match line.value.trim_ascii_end() {
            b"0" => false,
            b"1" => true,
            other => {
                let other = String::from_utf8_lossy(other).into_owned();
                return Err(lines.error(LdifFault::BadDeleteOldRdn(other)));
            }
        },
        None => return Err(lines.error(LdifFault::Expected("deleteoldrdn:"))),
    };
    let new_superior = match lines.next_if("newsuperior")? {
        Some(line) => Some(lines.text(line, "newsuperior")?),
        None => None,
    };
    match lines.next()? {
        Some(extra) => Err(lines.misplaced(&extra)),
        None => Ok(Change::ModifyDn { new_rdn, delete_old_rdn, new_superior }),
    }
}

/// `OID [true|false] [: value | :: base64 | :< URL]`
fn control<R: BufRead>(lines: &mut Lines<'_, R>, line: Line<'_>) -> Result<ControlBuf, LdifError> {
    let (head, value) = match memchr::memchr(b':', &line.value).and_then(|at| line.value.split_at_checked(at))
    {
        Some((head, value)) => (head, value.get(1..)),
        None => (line.value.as_slice(), None),
    };
    let bad = || LdifFault::BadControl(String::from_utf8_lossy(&line.value).into_owned());
    let mut words = head.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let oid = match words.next().map(std::str::from_utf8) {
        Some(Ok(oid)) if oid.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => oid.to_owned(),
        _ => return Err(lines.error(bad())),
    };
    let critical = match words.next() {
        None => false,
        Some(word) if word.eq_ignore_ascii_case(b"true") => true,
        Some(word) if word.eq_ignore_ascii_case(b"false") => false,
        Some(_) => return Err(lines.error(bad())),
    };
    if words.next().is_some() {
        return Err(lines.error(bad()));
    }
    let value = match value {
        Some(value) => Some(lines.value("control", value)?),
        None => None,
    };
    Ok(ControlBuf { oid: oid.into(), critical, value })
}

/// Whether the text can be an attribute description; which ones there are, the schema knows.
fn is_name(text: &str) -> bool {
    // All bytes are looked at, several at once: nearly every name is one.
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().fold(true, |so_far, byte| so_far & byte.is_ascii_graphic())
}

/// One logical line, its value decoded.
struct Line<'b> {
    name: &'b str,
    /// The name as the shape has it, if it does.
    shared: Option<&'b Arc<str>>,
    value: Vec<u8>,
    /// Where the name stands in the shape, not before the place that is come to.
    place: Option<usize>,
}

impl Line<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// The lines of one record.
struct Lines<'b, R> {
    reader: &'b mut Reader<R>,
    block: &'b Block,
    /// The next line's place in the block.
    index: usize,
    pushed_back: Option<Line<'b>>,
    /// The number of the line read last.
    at: u64,
    shape: &'b [Arc<str>],
    /// The place in the shape behind the attribute read last.
    place: usize,
    /// Names that the shape lacks, or has elsewhere, and the places where they came.
    strangers: &'b mut Vec<(usize, String)>,
}

impl<'b, R: BufRead> Lines<'b, R> {
    fn next(&mut self) -> Result<Option<Line<'b>>, LdifError> {
        if let Some(line) = self.pushed_back.take() {
            return Ok(Some(line));
        }
        let Some(text) = self.next_text() else { return Ok(None) };
        if text == b"-" {
            return Err(self.error(LdifFault::Unexpected("-".into())));
        }
        self.parse(text).map(Some)
    }

    /// The next line if it has this name.
    fn next_if(&mut self, name: &str) -> Result<Option<Line<'b>>, LdifError> {
        match self.next()? {
            Some(line) if line.is(name) => Ok(Some(line)),
            other => {
                self.pushed_back = other;
                Ok(None)
            }
        }
    }

    /// The next value of a modification, which `-` or the record's end closes.
    fn next_value(&mut self) -> Result<Option<Line<'b>>, LdifError> {
        match self.next_text() {
            Some(text) if text.trim_ascii_end() != b"-" => self.parse(text).map(Some),
            _ => Ok(None),
        }
    }

    fn next_text(&mut self) -> Option<&'b [u8]> {
        let (number, text) = self.block.line(self.index)?;
        self.index += 1;
        self.at = number;
        Some(text)
    }

    fn parse(&mut self, text: &'b [u8]) -> Result<Line<'b>, LdifError> {
        if let Some((known, place, value)) = self.foreseen(text) {
            return Ok(Line { name: known, shared: Some(known), value: self.value(known, value)?, place });
        }
        if text.starts_with(BYTE_ORDER_MARK) {
            return Err(self.error(LdifFault::ByteOrderMark));
        }
        // Without a mark, the first letter of a name has a NUL beside it.
        let is_utf_16 = UTF_16_MARKS.iter().any(|mark| text.starts_with(mark))
            || matches!(text, [0, letter, 0, ..] | [letter, 0, _, 0, ..] if letter.is_ascii_alphabetic());
        if is_utf_16 {
            return Err(self.error(LdifFault::Utf16));
        }
        let (name, value) = memchr::memchr(b':', text)
            .and_then(|at| text.split_at_checked(at))
            .ok_or_else(|| self.error(LdifFault::MissingColon))?;
        let name = self.name(name)?;
        let value = self.value(name, value.get(1..).unwrap_or_default())?;
        Ok(Line { name, shared: None, value, place: None })
    }

    /// The name of a line, if it is the last one of the shape or one of the next, its place if it is one of the next, and
    /// what stands after the colon.
    fn foreseen(&self, line: &'b [u8]) -> Option<(&'b Arc<str>, Option<usize>, &'b [u8])> {
        let from = self.place.saturating_sub(1);
        let near = self.shape.get(from..)?.iter().take(LOOK_AHEAD);
        // No name has a colon.
        let is_named =
            |known: &str| line.get(known.len()) == Some(&b':') && line.starts_with(known.as_bytes());
        let (at, known) = (from..).zip(near).find(|(_, known)| is_named(known))?;
        Some((known, (at >= self.place).then_some(at), line.get(known.len() + 1..)?))
    }

    fn name(&self, name: &'b [u8]) -> Result<&'b str, LdifError> {
        let name = std::str::from_utf8(name.trim_ascii())
            .map_err(|_| self.error(LdifFault::NotUtf8("attribute description")))?;
        if name.is_empty() {
            return Err(self.error(LdifFault::MissingName));
        }
        if !is_name(name) {
            return Err(self.error(LdifFault::BadName(name.into())));
        }
        Ok(name)
    }

    /// What stands after the first colon behind the name, decoded.
    fn value(&mut self, name: &str, text: &[u8]) -> Result<Vec<u8>, LdifError> {
        match text {
            [b':', base64 @ ..] => {
                let kept: Vec<u8>;
                let base64 = base64.trim_ascii();
                let base64 = if base64.iter().any(u8::is_ascii_whitespace) {
                    kept = base64.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
                    &kept
                } else {
                    base64
                };
                STANDARD.decode(base64).map_err(|_| self.error(LdifFault::BadBase64(name.to_owned())))
            }
            [b'<', url @ ..] => {
                let url = String::from_utf8_lossy(url.trim_ascii()).into_owned();
                self.file(&url).map_err(|fault| self.error(fault))
            }
            _ => Ok(text.trim_ascii_start().to_vec()),
        }
    }

    fn file(&mut self, url: &str) -> Result<Vec<u8>, LdifFault> {
        let file = self.reader.input.open(url)?;
        let mut contents = Vec::new();
        file.take(limits::LDIF_RECORD as u64 + 1)
            .read_to_end(&mut contents)
            .map_err(|error| LdifFault::File { url: url.into(), error })?;
        if contents.len() > limits::LDIF_RECORD {
            let error = std::io::Error::new(std::io::ErrorKind::FileTooLarge, "too large for a value");
            return Err(LdifFault::File { url: url.into(), error });
        }
        Ok(contents)
    }

    fn text(&self, line: Line<'_>, what: &'static str) -> Result<String, LdifError> {
        String::from_utf8(line.value).map_err(|_| self.error(LdifFault::NotUtf8(what)))
    }

    /// The fault of a line behind the last one that the record may have.
    fn misplaced(&self, line: &Line<'_>) -> LdifError {
        self.error(match line.is("dn") {
            true => LdifFault::NoEmptyLine,
            false => LdifFault::Unexpected(line.name.into()),
        })
    }

    fn error(&self, fault: LdifFault) -> LdifError {
        SourcePosition { line: self.at, file: self.block.file.clone() }.error(fault)
    }
}
