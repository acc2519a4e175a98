//! From bytes to the logical lines of one record: folding, comments, includes.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{LdifError, LdifFault};
use crate::limits;

/// Opens the files that `:<` and `include:` name. A reader without one refuses such lines.
pub trait Files: Send {
    fn open(&mut self, path: &Path) -> io::Result<Box<dyn BufRead + Send>>;
}

/// The machine's files, whatever they are: for the offline tools, never for input from the network.
#[derive(Copy, Clone, Debug, Default)]
pub struct LocalFiles;

impl Files for LocalFiles {
    fn open(&mut self, path: &Path) -> io::Result<Box<dyn BufRead + Send>> {
        Ok(Box::new(BufReader::new(File::open(path)?)))
    }
}

/// The path of a `file:` URL; `None` if it is none. An authority, if any, must be empty or localhost.
pub(super) fn file_path(url: &str) -> Option<PathBuf> {
    let (scheme, rest) = url.split_at_checked(5)?;
    if !scheme.eq_ignore_ascii_case("file:") {
        return None;
    }
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if path.is_empty() || (rest.starts_with("//") && !path.starts_with('/')) {
        return None;
    }
    crate::url::percent_decode_text(path).map(PathBuf::from)
}

/// A place in the input, for errors.
#[derive(Clone, Debug)]
pub(super) struct SourcePosition {
    pub(super) line: u64,
    pub(super) file: Option<String>,
}

impl SourcePosition {
    pub(super) fn error(&self, fault: LdifFault) -> LdifError {
        LdifError { line: self.line, file: self.file.clone(), fault }
    }
}

/// The logical lines of one record. The buffers are used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
    lines: Vec<(u64, Range<usize>)>,
    /// The included file that the record is in.
    pub(super) file: Option<String>,
}

impl Block {
    /// A line by its place in the record, and its number in the input.
    pub(super) fn line(&self, index: usize) -> Option<(u64, &[u8])> {
        let (number, range) = self.lines.get(index)?;
        Some((*number, self.bytes.get(range.clone())?))
    }

    /// All of them.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().filter_map(|(_, range)| self.bytes.get(range.clone()))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
        self.file = None;
    }
}

/// The input and the files included from it, the innermost last.
pub(super) struct Input<R> {
    base: R,
    base_line: u64,
    /// The file that `base` is a part of, where it is an included one.
    base_file: Option<String>,
    included: Vec<Included>,
    pub(super) files: Option<Box<dyn Files>>,
    /// The physical line being looked at.
    line: Vec<u8>,
    /// A fault ended the input for good.
    broken: bool,
}

struct Included {
    reader: Box<dyn BufRead + Send>,
    line: u64,
    url: String,
}

/// What one physical line is.
enum Physical {
    End,
    Line,
}

impl<R: BufRead> Input<R> {
    pub(super) fn new(base: R) -> Self {
        Self::at(base, 0, None)
    }

    /// An input that is a part of a file, behind so many lines.
    pub(super) fn at(base: R, base_line: u64, base_file: Option<String>) -> Self {
        let (included, line) = (Vec::new(), Vec::new());
        Self { base, base_line, base_file, included, files: None, line, broken: false }
    }

    /// The number of the last line read.
    pub(super) fn position(&self) -> SourcePosition {
        match self.included.last() {
            Some(included) => SourcePosition { line: included.line, file: Some(included.url.clone()) },
            None => SourcePosition { line: self.base_line, file: self.base_file.clone() },
        }
    }

    /// Reads the next record's lines into `block`; false at the end. After an error the rest of the record has
    /// been skipped.
    pub(super) fn read(&mut self, block: &mut Block) -> Result<bool, LdifError> {
        block.clear();
        if self.broken {
            return Ok(false);
        }
        let mut fault = None;
        // What a continuation line continues: nothing, a comment, a logical line.
        let mut in_comment = false;
        loop {
            if fault.is_none() && self.included.is_empty() && self.plain_lines(block, &mut in_comment) {
                break;
            }
            if matches!(self.physical_line()?, Physical::End) {
                // A record does not go on behind the end of its file.
                if self.included.is_empty() || !block.lines.is_empty() || fault.is_some() {
                    break;
                }
                self.included.pop();
                in_comment = false;
                continue;
            }
            match self.line.first().copied() {
                None if block.lines.is_empty() && fault.is_none() => in_comment = false,
                None => break,
                Some(b'#') => in_comment = true,
                Some(b' ') if in_comment => {}
                Some(b' ') => match block.lines.last_mut() {
                    Some((_, range)) => {
                        block.bytes.extend_from_slice(self.line.get(1..).unwrap_or_default());
                        range.end = block.bytes.len();
                    }
                    None => {
                        fault.get_or_insert_with(|| self.position().error(LdifFault::StrayContinuation));
                    }
                },
                Some(_) if block.lines.is_empty() && fault.is_none() && self.include()? => in_comment = false,
                Some(_) => {
                    in_comment = false;
                    let start = block.bytes.len();
                    block.bytes.extend_from_slice(&self.line);
                    let SourcePosition { line, file } = self.position();
                    block.lines.push((line, start..block.bytes.len()));
                    block.file = file;
                }
            }
            if block.bytes.len() > limits::LDIF_RECORD {
                self.broken = true;
                return Err(self.position().error(LdifFault::TooLong(limits::LDIF_RECORD)));
            }
        }
        match fault {
            Some(error) => Err(error),
            None => Ok(!block.lines.is_empty()),
        }
    }

    /// Takes the lines that stand whole in the base's buffer, up to one that takes more than that: what may be an
    /// `include:`, a fault, the buffer's end. Whether the record's end was reached.
    fn plain_lines(&mut self, block: &mut Block, in_comment: &mut bool) -> bool {
        let Ok(available) = self.base.fill_buf() else { return false };
        let mut rest = available;
        let mut ended = false;
        while !ended && block.bytes.len() <= limits::LDIF_RECORD {
            let Some((line, after)) = memchr::memchr(b'\n', rest).and_then(|end| rest.split_at_checked(end))
            else {
                break;
            };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match line.first() {
                None if block.lines.is_empty() => *in_comment = false,
                None => ended = true,
                Some(b'#') => *in_comment = true,
                Some(b' ') if *in_comment => {}
                Some(b' ') => {
                    let Some((_, range)) = block.lines.last_mut() else { break };
                    block.bytes.extend_from_slice(line.get(1..).unwrap_or_default());
                    range.end = block.bytes.len();
                }
                Some(b'i' | b'I') if block.lines.is_empty() => break,
                Some(_) => {
                    *in_comment = false;
                    let start = block.bytes.len();
                    block.bytes.extend_from_slice(line);
                    block.lines.push((self.base_line + 1, start..block.bytes.len()));
                    if block.file != self.base_file {
                        block.file.clone_from(&self.base_file);
                    }
                }
            }
            self.base_line += 1;
            rest = after.get(1..).unwrap_or_default();
        }
        let used = available.len() - rest.len();
        self.base.consume(used);
        ended
    }

    /// Reads one physical line, its end cut off.
    fn physical_line(&mut self) -> Result<Physical, LdifError> {
        self.line.clear();
        let reader: &mut dyn BufRead = match self.included.last_mut() {
            Some(included) => &mut included.reader,
            None => &mut self.base,
        };
        let read = read_line(reader, &mut self.line);
        match self.included.last_mut() {
            Some(included) => included.line += 1,
            None => self.base_line += 1,
        }
        match read {
            Ok(true) => Ok(Physical::Line),
            Ok(false) => {
                // The end is not a line.
                match self.included.last_mut() {
                    Some(included) => included.line -= 1,
                    None => self.base_line -= 1,
                }
                Ok(Physical::End)
            }
            Err(fault) => {
                self.broken = true;
                Err(self.position().error(fault))
            }
        }
    }

    /// Takes the line as `include:`, if it is one, and opens the file.
    fn include(&mut self) -> Result<bool, LdifError> {
        let Some((keyword, url)) = self.line.split_at_checked(8) else { return Ok(false) };
        if !keyword.eq_ignore_ascii_case(b"include:") {
            return Ok(false);
        }
        let place = self.position();
        let url = String::from_utf8_lossy(url.trim_ascii()).into_owned();
        if self.included.len() >= limits::LDIF_INCLUDES {
            return Err(place.error(LdifFault::TooManyIncludes(limits::LDIF_INCLUDES)));
        }
        let reader = self.open(&url).map_err(|fault| place.error(fault))?;
        self.included.push(Included { reader, line: 0, url });
        Ok(true)
    }

    /// Opens what a URL names.
    pub(super) fn open(&mut self, url: &str) -> Result<Box<dyn BufRead + Send>, LdifFault> {
        let path = file_path(url).ok_or_else(|| LdifFault::UnsupportedUrl(url.into()))?;
        let files = self.files.as_mut().ok_or_else(|| LdifFault::FilesNotAllowed(url.into()))?;
        files.open(&path).map_err(|error| LdifFault::File { url: url.into(), error })
    }
}

/// Appends a line to `line`, without its LF or CRLF; false at the end of the input.
fn read_line(reader: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<bool, LdifFault> {
    let mut any = false;
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(LdifFault::Io(error)),
        };
        if available.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', available);
        line.extend_from_slice(available.get(..end.unwrap_or(available.len())).unwrap_or_default());
        let used = end.map_or(available.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(true);
        }
        if line.len() > limits::LDIF_RECORD {
            return Err(LdifFault::TooLong(limits::LDIF_RECORD));
        }
    }
}

impl<R> fmt::Debug for Input<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("line", &self.base_line).finish_non_exhaustive()
    }
}
